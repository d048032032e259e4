//! [`ReadPermit`]: a transaction that reads at a replica that follows, and [`ReadEnd`], how it hears that it is to end.

use std::sync::Arc;

use parking_lot::Mutex;
use rialto::{Error, Transaction};
use rialto_sql::partitions::BranchPool;

use super::reads::Reads;

/// How a transaction at a replica hears that it is to end.
#[derive(Default)]
pub struct ReadEnd(Mutex<Ending>);

#[derive(Default)]
struct Ending {
    is_told: bool,
    /// Ends what it runs, and itself.
    tell: Option<Box<dyn Fn() + Send>>,
}

impl ReadEnd {
    /// What ends the transaction: called at once if it is to end already.
    pub fn set(&self, tell: impl Fn() + Send + 'static) {
        let mut ending = self.0.lock();
        if ending.is_told {
            tell();
        }
        ending.tell = Some(Box::new(tell));
    }

    /// Whether it was told to end.
    pub fn is_told(&self) -> bool {
        self.0.lock().is_told
    }

    pub(super) fn tell(&self) {
        let mut ending = self.0.lock();
        if !std::mem::replace(&mut ending.is_told, true)
            && let Some(tell) = &ending.tell
        {
            tell();
        }
    }
}

/// A transaction that reads at a replica, from its begin to its end.
pub struct ReadPermit {
    reads: Arc<Reads>,
    pool: Arc<BranchPool>,
    number: u64,
    end: Arc<ReadEnd>,
}

/// Why a program's read at a replica gave nothing.
#[derive(Debug)]
pub enum NotRead {
    /// The replica had to go on with what the primary has written, or to lead, or is closed. Ask for another permit, or call.
    GaveWay,
    /// The read has failed.
    Failed(Error),
}

impl ReadPermit {
    pub(super) fn new(
        reads: Arc<Reads>,
        pool: Arc<BranchPool>,
        number: u64,
        end: Arc<ReadEnd>,
    ) -> ReadPermit {
        ReadPermit { reads, pool, number, end }
    }

    /// Runs the body in a transaction of its own, which only reads. It sees one state of the partition, no older than
    /// when the permit was given. If the replica is to go on meanwhile, the transaction is cancelled: each further read
    /// of the body fails. The replica waits until the body has returned, so the body must not wait for anything else.
    ///
    /// # Errors
    /// [`NotRead`]. Errors of the body count as such of the read.
    pub fn read<T>(
        &self,
        body: impl FnOnce(&mut Transaction<'static>) -> rialto::Result<T>,
    ) -> Result<T, NotRead> {
        let judge = |error| match self.end.is_told() {
            true => NotRead::GaveWay,
            false => NotRead::Failed(error),
        };
        if self.end.is_told() {
            return Err(NotRead::GaveWay);
        }
        let mut transaction = self.pool.database().begin().map_err(judge)?;
        let canceller = transaction.canceller();
        self.end.set(move || canceller.cancel());
        let read =
            body(&mut transaction).and_then(|read| transaction.commit().map(|_| read)).map_err(judge)?;
        // A database that leads by now may have had what is not agreed.
        if self.end.is_told() { Err(NotRead::GaveWay) } else { Ok(read) }
    }

    /// Where its branch is opened.
    pub(in crate::node) fn pool(&self) -> &Arc<BranchPool> {
        &self.pool
    }

    /// How it hears that it is to end.
    pub(in crate::node) fn end(&self) -> &Arc<ReadEnd> {
        &self.end
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        self.reads.has_ended(self.number);
    }
}
