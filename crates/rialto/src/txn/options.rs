//! The choices of one transaction.

use std::time::Duration;

use crate::account::ProcedureId;
use crate::error::{Error, Result};
pub use crate::isolate::LockPolicy;
use crate::log::Durability;
use crate::log::group_commit::WAIT_MAX;

/// What keeps a transaction apart from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// As if transactions ran one after the other, in the order of their places in the log (I7).
    #[default]
    Serializable,
}

/// One transaction's choices. The default takes the database's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TxOptions {
    /// How durable "committed" is; [`Options::durability`](crate::Options::durability) unless set.
    pub durability: Option<Durability>,
    /// What keeps the transaction apart from the others.
    pub isolation: Isolation,
    /// The longest wait for one lock; [`Options::lock_timeout`](crate::Options::lock_timeout) unless set.
    pub lock_timeout: Option<Duration>,
    /// The longest time from the begin of the transaction to its commit; unbounded unless set, and if longer than
    /// [`FOR_EVER`](crate::io::FOR_EVER).
    pub timeout: Option<Duration>,
    /// The time account that the transaction is added to; the account of transactions without a name unless set.
    pub procedure: Option<ProcedureId>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// How long the transaction stalls at its commit so that others join its group, where the group commit design
    /// stalls (commit-stall, hiber-stall), and at most how long where the design decides (adaptive); the design's own
    /// stall unless set. In hiber-stall the whole group has the committer's stall. The other designs ignore it
    /// ([`GroupCommitDesign::honours_stall`](crate::GroupCommitDesign::honours_stall)).
    ///
    /// It is the stall of a thread that waits for the commit, in [`Database::transact`](crate::Database::transact) and
    /// similar calls, or in [`Ticket::wait`](crate::Ticket::wait). A ticket without a waiter is left to the log
    /// server's thread, which serves all such tickets together and knows only the design's settings
    /// ([`GroupCommitOptions`](crate::GroupCommitOptions)). It may write earlier than this stall, and later where those
    /// settings are longer. A later wait for the ticket cannot hold that thread back.
    pub commit_stall: Option<Duration>,
    /// How long the transaction is willing to take in all, its log write included, so that groups become larger (KODA's
    /// Willing-to-Wait Design). In willing-to-wait it takes at least that long; in hiber-willing-to-wait and adaptive
    /// it stalls no longer than that. [`GroupCommitOptions`](crate::GroupCommitOptions)' value unless set. The other
    /// designs ignore it
    /// ([`GroupCommitDesign::honours_willing_to_wait`](crate::GroupCommitDesign::honours_willing_to_wait)). As with
    /// [`commit_stall`](TxOptions::commit_stall), a ticket's time counts from the begin of the wait for it.
    pub willing_to_wait: Option<Duration>,
    /// Whether the transaction may be prepared ([`Transaction::prepare`](crate::Transaction::prepare)). It then notes its
    /// locks, which takes some time and memory, and its reads always take locks. Only
    /// [`Database::begin_with`](crate::Database::begin_with) takes this; other calls ignore what it would be for.
    pub may_prepare: bool,
    /// Whether a lock request waits (the default), or fails with [`Error::WouldWait`](crate::Error::WouldWait).
    pub lock_wait: LockPolicy,
}

impl TxOptions {
    /// Whether any of the choices is made that most transactions leave out.
    #[inline(always)]
    pub(crate) fn has_times(&self) -> bool {
        self.timeout.is_some()
            || self.commit_stall.is_some()
            || self.willing_to_wait.is_some()
            || self.may_prepare
    }

    /// Its waits at the commit; an error for waits that are too long.
    pub(crate) fn waits(&self) -> Result<CommitWaits> {
        for (name, wait) in [("commit_stall", self.commit_stall), ("willing_to_wait", self.willing_to_wait)] {
            if let Some(wait) = wait {
                check_wait(name, wait)?;
            }
        }
        Ok(CommitWaits { stall: self.commit_stall, willing_to_wait: self.willing_to_wait })
    }
}

/// The waits of a transaction at its commit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommitWaits {
    /// [`TxOptions::commit_stall`].
    pub stall: Option<Duration>,
    /// [`TxOptions::willing_to_wait`].
    pub willing_to_wait: Option<Duration>,
}

/// Refuses a wait for a group commit that is too long.
pub(crate) fn check_wait(name: &str, wait: Duration) -> Result<()> {
    if wait > WAIT_MAX {
        let reason = format!("{wait:?} is too long a wait for a group commit; expected at most {WAIT_MAX:?}");
        return Err(Error::BadDefinition { name: name.to_owned(), reason });
    }
    Ok(())
}
