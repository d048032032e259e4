//! [`Checkpointing`]: how memory is brought to disk.

use crate::commit::Logging;

/// How memory is brought to disk in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Checkpointing {
    /// Fuzzy: segments are copied as they are, one at a time (System M, section 3.1).
    #[default]
    Fuzzy,
    /// Copy-on-update, action-consistent (System M's ACCOU, section 3.3): segments are copied as they were when the
    /// sweep began; a transaction that changes a segment which the sweep has not copied yet keeps a copy of it first.
    /// No write of a row is in the backup in part.
    ActionCopyOnUpdate,
    /// Copy-on-update, transaction-consistent (System M's TCCOU): as above, and no commit is applied in part when the
    /// sweep begins. For this, commits wait before they take their places until all commits that have a place are
    /// applied. The backup is the state that a prefix of the log makes.
    TransactionCopyOnUpdate,
    /// Black/white, action-consistent (System M's ACBW, section 3.2): segments are copied as they are and painted, and
    /// no action touches both painted and unpainted ones. An action is the change of one row, so only a change that
    /// moves its row to another segment can touch both: its transaction is run again.
    ActionBlackWhite,
    /// Black/white, transaction-consistent (System M's TCBW): no transaction that writes touches both painted and
    /// unpainted segments, reads included. One that does is aborted and run again, after
    /// [`Options::straddling_retry`](crate::Options::straddling_retry). The backup is what the transactions that
    /// touched unpainted segments have made.
    TransactionBlackWhite,
    /// No checkpoints in the background: the log grows up to its bound, and recovery takes correspondingly long. It
    /// serves to measure what checkpoints cost. [`Database::checkpoint`](crate::Database::checkpoint) still makes one.
    None,
}

impl Checkpointing {
    /// All values that make checkpoints.
    pub const ALL: [Checkpointing; 5] = [
        Checkpointing::Fuzzy,
        Checkpointing::ActionCopyOnUpdate,
        Checkpointing::TransactionCopyOnUpdate,
        Checkpointing::ActionBlackWhite,
        Checkpointing::TransactionBlackWhite,
    ];
}

impl Logging {
    /// The reason if a database that logs this way could not be recovered with checkpoints of this kind. System M's
    /// paper runs FUZZY with VALUE only; ours recovers operations beside any copy, since each row says which of them it
    /// has.
    pub fn refuses(self, checkpoint: Checkpointing) -> Option<String> {
        match (self, checkpoint) {
            (Logging::None, Checkpointing::None) => None,
            (Logging::None, _) => Some(format!(
                "logging is none and checkpoint {checkpoint:?}: a copy made while transactions run is made whole by the \
                 log; expected checkpoint none (closing makes one)"
            )),
            // A record of a value, or of an operation, concerns one row, whose `Lsn` says whether the copy has it.
            (Logging::Value | Logging::Action, _) => None,
            (
                Logging::Transaction,
                Checkpointing::TransactionCopyOnUpdate
                | Checkpointing::TransactionBlackWhite
                | Checkpointing::None,
            ) => None,
            (Logging::Transaction, _) => Some(format!(
                "logging is Transaction and checkpoint {checkpoint:?}: its copy can hold a part of a transaction, and a \
                 call that is run again does all of it; expected checkpoint TransactionCopyOnUpdate, \
                 TransactionBlackWhite or None"
            )),
        }
    }
}
