//! [`CommitPath`]: the components that the commits of an open database pass through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::logging::Logging;
use super::{CommitsInProgress, Definitions};
use crate::account::Accounts;
use crate::error::{Error, Result};
use crate::log::{Durability, Log, PacketKind};

/// See the [module](self).
pub(crate) struct CommitPath {
    pub log: Arc<Log>,
    pub in_progress: Arc<CommitsInProgress>,
    /// The barrier before the places of transactions with DDL.
    pub definitions: Definitions,
    pub accounts: Arc<Accounts>,
    pub logging: Logging,
    /// Whether the log takes calls: [`Logging::Transaction`], and the checkpoint in force is transaction-consistent.
    pub calls: AtomicBool,
    /// Whether deterministic procedures run twice, to be compared.
    pub checks_determinism: bool,
}

impl CommitPath {
    /// The level that a commit waits for if it asks for this one.
    pub fn durability(&self, asked: Durability) -> Durability {
        match self.logging {
            Logging::Value | Logging::Action | Logging::Transaction => asked,
            // The log holds nothing of the commit, so there is nothing to wait for.
            Logging::None => Durability::Memory,
        }
    }

    /// Whether this database treats calls of deterministic procedures differently from others.
    #[inline]
    pub fn tracks_calls(&self) -> bool {
        self.logging == Logging::Transaction || self.checks_determinism
    }

    /// Whether a call is logged as a call now.
    pub fn logs_calls(&self) -> bool {
        self.calls.load(Ordering::Acquire)
    }

    /// Notes whether the copy of the checkpoint in force is transaction-consistent.
    pub fn note_checkpoint(&self, transaction_consistent: bool) {
        let calls = transaction_consistent && self.logging == Logging::Transaction;
        self.calls.store(calls, Ordering::Release);
    }

    /// The kind of a commit's packet, unless it is a call.
    pub fn packet_kind(&self) -> PacketKind {
        match self.logging {
            Logging::Value | Logging::Action | Logging::Transaction => PacketKind::Commit,
            Logging::None => PacketKind::Unlogged,
        }
    }

    /// Whether the packets of bulk loads name their load files in the log. If not, no load file can be needed, and none
    /// is written.
    pub fn names_load_files(&self) -> bool {
        self.packet_kind() != PacketKind::Unlogged
    }

    /// Refuses an operation that would promise that commits are on disk.
    pub fn check_logged(&self, operation: &str) -> Result<()> {
        match self.logging {
            Logging::Value | Logging::Action | Logging::Transaction => Ok(()),
            Logging::None => Err(Error::Unsupported {
                what: format!(
                    "{operation} with Options::logging none: close the database, which keeps all of it"
                ),
            }),
        }
    }
}
