//! [`Logging`]: what goes into the log.

/// What goes into the log (System M, sections 2.1 and 4.1). The log on disk may be mixed: each packet says what it is, and
/// a directory that was written with one of these may be opened with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Logging {
    /// The changed fields, or the whole row (System M's VALUE): every commit is recovered as its level of durability says.
    #[default]
    Value,
    /// What was done to the row (System M's AOPER): of an integer that was added to ([`Fields::add`](crate::Fields::add))
    /// the increment, else as [`Logging::Value`]. Fewer bytes for the same recovery, whatever the checkpoints.
    Action,
    /// Of a call of a procedure that is [deterministic](crate::Procedure::deterministic) its name, version and arguments
    /// (System M's TOPER), from which recovery runs it again; of everything else what [`Logging::Value`] has, transaction by
    /// transaction: closures, interactive ones, DDL, bulk loads. The fewest bytes; recovery takes about as long as the
    /// transactions did, and needs the procedures ([`Options::procedures`](crate::Options::procedures)).
    ///
    /// Needs checkpoints that are transaction-consistent ([`Checkpointing::TransactionCopyOnUpdate`],
    /// [`Checkpointing::TransactionBlackWhite`]), since a call is run
    /// again whole or not at all. In a directory whose checkpoint in force is not, calls are logged as values until one is
    /// complete that is.
    ///
    /// [`Checkpointing::TransactionCopyOnUpdate`]: crate::Checkpointing::TransactionCopyOnUpdate
    /// [`Checkpointing::TransactionBlackWhite`]: crate::Checkpointing::TransactionBlackWhite
    Transaction,
    /// Nothing but places, to measure what logging costs. Commits are answered at once, whatever their level, and nothing
    /// of them is durable until the database is closed: closing makes a checkpoint of all of it, with no transaction
    /// running. After anything but a close (a crash, SIGKILL, a failed close) the directory holds what it held when it
    /// was opened, and the next recovery says how many commits are lost ([`RecoveryReport::unlogged`]).
    ///
    /// Needs [`Checkpointing::None`]: a fuzzy copy is made whole by the log. [`Database::sync`] and
    /// [`Database::checkpoint`] are refused.
    ///
    /// [`Checkpointing::None`]: crate::Checkpointing::None
    /// [`RecoveryReport::unlogged`]: crate::recovery::RecoveryReport::unlogged
    /// [`Database::sync`]: crate::Database::sync
    /// [`Database::checkpoint`]: crate::Database::checkpoint
    None,
}

impl Logging {
    /// All that commits are recovered by.
    pub const ALL: [Logging; 3] = [Logging::Value, Logging::Action, Logging::Transaction];
}
