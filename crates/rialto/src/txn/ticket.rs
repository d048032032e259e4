//! [`Ticket`]: an outcome that will be durable.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::core::Lease;
use crate::error::Result;
use crate::ids::Lsn;
use crate::log::Durability;

/// A transaction's outcome on its way to being durable: done when the log is durable up to its place, at its level.
///
/// Dropping a ticket cancels nothing. A ticket is also a `Future`.
#[must_use = "a transaction's outcome is known only when its ticket is done"]
pub struct Ticket {
    core: Lease,
    lsn: Lsn,
    durability: Durability,
}

impl Ticket {
    pub(crate) fn new(core: Lease, lsn: Lsn, durability: Durability) -> Ticket {
        Ticket { core, lsn, durability }
    }

    /// The place that the log has to be durable up to: the transaction's own, or of what it read.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Waits until it is done.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) if the log fails first.
    pub fn wait(self) -> Result<()> {
        self.core.log.wait(self.lsn, self.durability)
    }

    /// Whether it is done; the outcome if it is.
    pub fn poll_done(&self) -> Option<Result<()>> {
        self.core.log.is_done(self.lsn, self.durability)
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.core.log.register_waker(self.lsn, self.durability, context.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({}, {:?})", self.lsn, self.durability)
    }
}
