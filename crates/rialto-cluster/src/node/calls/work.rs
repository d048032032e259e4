//! [`CallAction`]: what a partition is asked to do for a call.

use serde::{Deserialize, Serialize};

use super::procedure::Outputs;
use crate::protocol::transactions::{Access, Level};

/// What a partition is asked to do for a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallAction {
    /// The procedure's name.
    pub procedure: String,
    /// Its version.
    pub version: u32,
    /// What the branch may do.
    pub access: Access,
    /// The level that a failure's reads need before it is told.
    pub level: Level,
    /// Whether the outputs are kept in a row.
    pub is_numbered: bool,
    /// Which part of it.
    pub part: Part,
}

/// Which part of a call a partition runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// All of it.
    Whole {
        /// The call's arguments.
        arguments: Vec<u8>,
    },
    /// Some actions of a phase.
    Some {
        /// The phase.
        phase: u16,
        /// The actions.
        actions: Vec<u16>,
        /// The call's arguments.
        arguments: Vec<u8>,
        /// The outputs of earlier phases.
        earlier: Outputs,
    },
    /// Nothing more: waits until what the branch has read is durable at the level.
    Settle,
}

/// Why an action of a call, and so the call, has failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Failure {
    /// The partition's node does not have this version of the procedure.
    NotInstalled,
    /// With these words.
    Failed(String),
    /// The outputs are too long.
    TooLong,
    /// For this reason, which may pass: a limit, or a table that is not there yet. It is tried again.
    Passing(String),
}

/// The most bytes of a failure's words: they may be kept in a row, as outputs are.
const WORDS_BYTES_MAX: usize = 1 << 10;

impl Failure {
    /// Whether the same call may end otherwise if it is sent again. Then it is no answer that is kept.
    pub fn is_passing(&self) -> bool {
        match self {
            Failure::NotInstalled | Failure::Passing(_) => true,
            Failure::Failed(_) | Failure::TooLong => false,
        }
    }
}

/// The words of an error; of very long ones the beginning.
pub fn words_of(error: &rialto::Error) -> String {
    let mut words = error.to_string();
    if words.len() > WORDS_BYTES_MAX {
        words.truncate((0..=WORDS_BYTES_MAX).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0));
        words.push('…');
    }
    words
}
