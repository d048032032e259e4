//! [`OwnLease`]: the executor lease of the body that a thread runs, as the thread's other transactions need to know it.
//!
//! A body may use further transactions, by handles. The lock tables that its own transaction has out are back when the body has
//! ended; so a handle that waited for one would wait for its own thread, and a holder that it waits for may wait for these
//! tables. L12
//! holds for threads, then: beside an executor lease of its thread a transaction waits for no other transaction.
//!
//! A request that would have to is answered with [`LockError::Deadlock`](super::super::LockError::Deadlock), and the lease is
//! *met*: the body runs again without one, where a handle waits as others do. So it does for a request that is refused because
//! the lease keeps the table. What a transaction holds at executors and ends
//! beside the lease is released by another thread, which waits until the tables are back.
//!
//! What remains are waits for the log, for room in it and for checkpoints: a handle's first write and its commit,
//! `Database::sync`, `Ticket::wait`, `Database::checkpoint`, a backup. Neither the log nor a checkpoint waits for a body, so these
//! end, and are part of the time that the body takes (L15). The thread keeps its turn meanwhile ([`WaitGuard`]): if it left the
//! turn, it would come back only after the body that took it, and that body would hold up everybody at the executors that are
//! out. A wait for a transaction of another database is treated like a wait outside of any database: it is part of the body's
//! time, too.
//!
//! [`WaitGuard`]: crate::account::wait_guard::WaitGuard

use std::cell::Cell;

use super::super::manager::LockManager;
use super::super::slot::Owner;
use crate::account::wait_guard::keep_turn;

#[derive(Debug, Clone, Copy)]
struct ThreadLease {
    /// The lock manager's address: transactions of other databases wait for other tables.
    manager: usize,
    owner: u16,
    /// The tables are out still: the owner has not returned its lease.
    is_out: bool,
    is_met: bool,
}

thread_local! {
    static OF_THREAD: Cell<Option<ThreadLease>> = const { Cell::new(None) };
}

fn set(lease: Option<ThreadLease>) {
    OF_THREAD.set(lease);
    keep_turn(lease.is_some_and(|lease| lease.is_out));
}

/// The calling thread runs a body whose transaction has lock tables out, until this is dropped.
#[derive(Debug)]
pub struct OwnLease {
    /// That of the body that this one runs in: of another database that it opens.
    around: Option<ThreadLease>,
}

impl OwnLease {
    /// The body has ended: whether another transaction of its thread has met its lease.
    pub fn end(self) -> bool {
        OF_THREAD.get().is_some_and(|lease| lease.is_met)
    }

    /// Another transaction of the calling thread would have to wait: the lease is met.
    fn meet() {
        if let Some(lease) = OF_THREAD.get() {
            set(Some(ThreadLease { is_met: true, ..lease }));
        }
    }
}

impl Drop for OwnLease {
    fn drop(&mut self) {
        set(self.around);
    }
}

impl LockManager {
    /// What to keep while the calling thread runs a body of the owner's, or another function of the user's for it; none if the owner
    /// has no lock table out.
    #[inline]
    pub fn own_lease(&self, owner: &Owner) -> Option<OwnLease> {
        if !owner.body.lease.is_on() {
            return None;
        }
        let (manager, owner) = (self.address(), owner.id());
        let around = OF_THREAD.get();
        set(Some(ThreadLease { manager, owner, is_out: true, is_met: false }));
        Some(OwnLease { around })
    }

    /// The owner has returned its lease. If that was in its body, the rest of the body runs as any other body does.
    pub(super) fn end_own_lease(&self, owner: u16) {
        if let Some(lease) = OF_THREAD.get()
            && self.is_mine(lease)
            && lease.owner == owner
        {
            set(Some(ThreadLease { is_out: false, ..lease }));
        }
    }

    /// Whether the calling thread runs a body of another owner's that has lock tables out.
    pub fn is_beside_own_lease(&self, owner: u16) -> bool {
        OF_THREAD.get().is_some_and(|lease| lease.is_out && self.is_mine(lease) && lease.owner != owner)
    }

    /// The same of an owner that is about to wait; the lease is met, then.
    pub(in super::super) fn meets_own_lease(&self, owner: u16) -> bool {
        let meets = self.is_beside_own_lease(owner);
        if meets {
            OwnLease::meet();
        }
        meets
    }

    fn is_mine(&self, lease: ThreadLease) -> bool {
        lease.manager == self.address()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
