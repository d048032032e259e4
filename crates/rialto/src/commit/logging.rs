//! [`Logging`]: what goes into the log.

/// What goes into the log (System M, sections 2.1 and 4.1). The log on disk may be mixed: each packet says what it is,
/// and a directory that was written with one of these may be opened with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Logging {
    /// The changed fields, or the whole row (System M's VALUE): every commit is recovered as its level of durability
    /// says.
    #[default]
    Value,
    /// The operation on the row (System M's AOPER): for an integer that was added to
    /// ([`Fields::add`](crate::Fields::add)) the increment, otherwise as [`Logging::Value`]. Fewer bytes for the same
    /// recovery, with any kind of checkpoint.
    Action,
    /// For a call of a procedure that is [deterministic](crate::Procedure::deterministic), its name, version and
    /// arguments (System M's TOPER), from which recovery runs it again. Everything else is logged as with
    /// [`Logging::Value`], transaction by transaction: closures, interactive ones, DDL, bulk loads. The fewest bytes;
    /// recovery takes about as long as the transactions did, and needs the procedures
    /// ([`Options::procedures`](crate::Options::procedures)).
    ///
    /// Needs checkpoints that are transaction-consistent ([`Checkpointing::TransactionCopyOnUpdate`],
    /// [`Checkpointing::TransactionBlackWhite`]), because a call is run again wholly or not at all. In a directory
    /// whose checkpoint in force is not transaction-consistent, calls are logged as values until a checkpoint is
    /// complete that is.
    ///
    /// [`Checkpointing::TransactionCopyOnUpdate`]: crate::Checkpointing::TransactionCopyOnUpdate
    /// [`Checkpointing::TransactionBlackWhite`]: crate::Checkpointing::TransactionBlackWhite
    Transaction,
    /// Only places, to measure what logging costs. Commits are answered at once, whatever their level, and nothing of
    /// them is durable until the database is closed: closing makes a checkpoint of all of it, with no transaction
    /// running. After any other end (a crash, SIGKILL, a failed close) the directory holds what it held when it was
    /// opened, and the next recovery says how many commits are lost ([`RecoveryReport::unlogged`]).
    ///
    /// Needs [`Checkpointing::None`], because a fuzzy copy is only made consistent by the log. [`Database::sync`] and
    /// [`Database::checkpoint`] are refused.
    ///
    /// [`Checkpointing::None`]: crate::Checkpointing::None
    /// [`RecoveryReport::unlogged`]: crate::recovery::RecoveryReport::unlogged
    /// [`Database::sync`]: crate::Database::sync
    /// [`Database::checkpoint`]: crate::Database::checkpoint
    None,
}

impl Logging {
    /// The settings with which commits can be recovered.
    pub const ALL: [Logging; 3] = [Logging::Value, Logging::Action, Logging::Transaction];
}
