//! What a partition's side of the protocol has its driver do, and what the driver tells it afterwards.

use super::{Level, Message, Opening, RowChange, TransactionId, Work};

/// How the reads of a branch are kept apart from other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// Reads take locks, and keep them to the end: the transaction is one over several partitions (C9).
    ReadsLock,
    /// The kernel reads as it does in any transaction of one partition.
    AsAlone,
}

/// What is kept of a branch that commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Its effects and the rows of the system.
    Effects,
    /// The rows of the system alone: the transaction has failed, and its answer is kept.
    AnswerOnly,
}

/// What the driver of a partition does. The table at the top of [`transactions`](super) says how each maps to the
/// kernel.
#[derive(Debug, Clone)]
pub enum Effect<W: Work> {
    /// Send this; it may get lost.
    Send(Message<W>),
    /// Begin a branch.
    Begin {
        /// The transaction.
        transaction: TransactionId,
        /// How its reads are kept apart from others.
        locking: Locking,
    },
    /// Run an action of it, with bounded waits, then call [`super::Participant::ran`].
    Run {
        /// The transaction.
        transaction: TransactionId,
        /// The action's number.
        sequence: u32,
        /// The action.
        action: W::Action,
    },
    /// Reserve all that its commit needs, then call [`super::Participant::reserved`].
    Reserve {
        /// The transaction.
        transaction: TransactionId,
        /// The level that it commits at. A driver may say that there is no room, since it refuses the level.
        level: Level,
    },
    /// Write *Prepared*, with values and locks; once it is durable at the level, call
    /// [`super::Participant::durable`] with [`Step::Prepared`].
    Prepare {
        /// The transaction.
        transaction: TransactionId,
        /// The system's row.
        rows: Vec<RowChange<W>>,
        /// The level.
        level: Level,
    },
    /// Wait until all that the branch can have read is durable at the level, then [`Step::Reads`].
    AwaitReads {
        /// The transaction.
        transaction: TransactionId,
        /// The level.
        level: Level,
    },
    /// Wait until the log is durable at the level up to its end as it is now, then [`Step::Answer`]. The transaction
    /// has no branch.
    AwaitAnswer {
        /// The transaction.
        transaction: TransactionId,
        /// The level.
        level: Level,
    },
    /// Commit now: this cannot fail. Once the commit is durable at the level, [`Step::Commit`].
    Commit {
        /// The transaction.
        transaction: TransactionId,
        /// What is kept.
        keeps: Keeps,
        /// Rows of the system, in the same packet.
        rows: Vec<RowChange<W>>,
        /// The level.
        level: Level,
    },
    /// Roll the branch back and release its locks. A running action of it is stopped. If there are rows: once they are
    /// durable at the level, [`Step::Aborted`].
    Abort {
        /// The transaction.
        transaction: TransactionId,
        /// Rows of the system, if it may have left some.
        rows: Vec<RowChange<W>>,
        /// The level.
        level: Level,
    },
    /// End a branch that has only read: release its locks.
    Release {
        /// The transaction.
        transaction: TransactionId,
    },
    /// Write rows of the system; once they are durable at the level, this step of the transaction.
    Write {
        /// The transaction that they belong to.
        transaction: TransactionId,
        /// The rows.
        rows: Vec<RowChange<W>>,
        /// The level.
        level: Level,
        /// [`Step::Rows`], [`Step::Bound`] or [`Step::Expired`].
        step: Step,
    },
    /// After a loss nothing tells how this transaction ended: an operator decides
    /// ([`super::Participant::operator_decides`]).
    AskOperator {
        /// The transaction.
        transaction: TransactionId,
    },
}

/// What has become durable at the level that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`Effect::Prepare`].
    Prepared,
    /// [`Effect::AwaitReads`].
    Reads,
    /// [`Effect::Commit`].
    Commit,
    /// [`Effect::Abort`] with rows.
    Aborted,
    /// [`Effect::Write`], of what the deciding partition remembers.
    Rows,
    /// [`Effect::AwaitAnswer`].
    Answer,
    /// [`Effect::Write`], of answers that have expired. It is taken, too, if they could not be removed: then a later
    /// opening finds them.
    Expired,
    /// [`Effect::Write`], of the row that binds a prepared branch to this opening of its deciding partition.
    Bound(Opening),
}
