//! [`CallError`]: why a call has no outputs.

use std::fmt;

use crate::protocol::PartitionId;

/// Why a call has no outputs. [`CallError::has_no_effect`] says whether it may have had effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// A node's program does not have the procedure, or not this version of it.
    NotInstalled {
        /// The procedure's name.
        procedure: String,
        /// The version that is missing; none if the node that was called has no version.
        version: Option<u32>,
    },
    /// The call has fewer keys than the procedure's actions name.
    TooFewKeys {
        /// The procedure's name.
        procedure: String,
        /// How many are needed.
        needed: usize,
        /// How many the call has.
        found: usize,
    },
    /// An action has failed, with these words. With a number the call has failed for good: it is answered so each time.
    Failed(String),
    /// A partition had no primary for as long as the call was tried.
    NoPrimary(PartitionId),
    /// Each try was ended, the last one for this reason: by deadlocks, by waits for locks that took too long, by
    /// changes of primaries, by a limit, or since a table was not there.
    Aborted(String),
    /// Whether the call has had its effects is not known. One that has a number may be sent again.
    Unknown,
    /// A later call of its session was answered, or it was numbered more than 24 hours ago, or by a clock that is more
    /// than an hour ahead: it did not run now. Whether it has run before is not known any more.
    TooOld,
    /// The arguments are too long, they have at most 1 MiB, or the outputs are: they have at most 2 MiB, and with a
    /// number 16 KiB.
    TooLong,
}

impl CallError {
    /// Whether the call surely has no effect.
    pub fn has_no_effect(&self) -> bool {
        !matches!(self, CallError::Unknown | CallError::TooOld)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::NotInstalled { procedure, version: None } => {
                write!(f, "the node's program has no procedure {procedure}: install it (NodeOptions::procedures)")
            }
            CallError::NotInstalled { procedure, version: Some(version) } => write!(
                f,
                "a node's program has no version {version} of the procedure {procedure}: install it on each node"
            ),
            CallError::TooFewKeys { procedure, needed, found } => {
                write!(f, "the procedure {procedure} needs {needed} keys, and the call has {found}")
            }
            CallError::Failed(why) => f.write_str(why),
            CallError::NoPrimary(partition) => write!(
                f,
                "{partition} has no primary that serves; try again later, and see `rialto cluster status`"
            ),
            CallError::Aborted(why) => {
                write!(f, "the call has no effect: each try was ended, the last one by {why}; call again")
            }
            CallError::Unknown => f.write_str(
                "it is not known whether the call has had its effects: a primary has gone, or the call's end did not come in \
                 time; send it again if it has a number, otherwise look for its effects first",
            ),
            CallError::TooOld => f.write_str(
                "the call's number cannot be used: a later call of its session was answered, or the number is older than 24 \
                 hours, or of a clock that is more than an hour ahead; look for its effects",
            ),
            CallError::TooLong => f.write_str(
                "the arguments or the outputs are too long: the arguments of a call have at most 1 MiB, its outputs \
                 2 MiB, and those of a call with a number 16 KiB",
            ),
        }
    }
}

impl std::error::Error for CallError {}
