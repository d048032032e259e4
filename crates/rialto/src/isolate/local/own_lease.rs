//! [`OwnLease`]: the executor lease of the body that a thread runs, as other transactions of that thread see it.
//!
//! A body may use further transactions by their handles ([`Database::begin`](crate::Database::begin)). The lock tables
//! that its own transaction has out are back only when the body has ended. So a handle that waited for such a table
//! would wait for its own thread, and a transaction that a handle waits for may itself wait for these tables. Therefore
//! L12 holds for threads: beside an executor lease of its thread a transaction waits for no other transaction.
//!
//! A request that would have to wait is answered with [`LockError::Deadlock`](super::super::LockError::Deadlock), and
//! the lease is *met*: the body runs again without a lease, and then its handles wait as other transactions do. The
//! same happens if a request is refused because the lease has the table. If a transaction that ends beside the lease
//! holds locks at these executors, another thread releases them, after the tables are back.
//!
//! What remains are waits for the log, for room in it and for checkpoints: a handle's first write and its commit,
//! `Database::sync`, `Ticket::wait`, `Database::checkpoint`, a backup. Neither the log nor a checkpoint waits for a
//! body, so these waits end, and are part of the time that the body takes (L15). The thread keeps its turn meanwhile
//! ([`WaitGuard`]). If it left the turn, it would come back only after the body that took it, and that body would hold
//! up every request at the executors that are out. A wait for a transaction of another database is treated like a wait
//! outside of any database: it is also part of the body's time.
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
    /// The lease of the body around this one, which runs in another database that the outer body opened.
    around: Option<ThreadLease>,
}

impl OwnLease {
    /// Ends the body. True: another transaction of its thread has met its lease.
    pub fn end(self) -> bool {
        OF_THREAD.get().is_some_and(|lease| lease.is_met)
    }

    /// Notes that the lease is met: another transaction of the calling thread would have to wait.
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
    /// A guard to keep while the calling thread runs a body of the owner, or another function of the user for it.
    /// None if the owner has no lock table out.
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

    /// Notes that the owner has returned its lease. After a return within a body, the rest of that body runs like one
    /// without a lease.
    pub(super) fn end_own_lease(&self, owner: u16) {
        if let Some(lease) = OF_THREAD.get()
            && self.is_mine(lease)
            && lease.owner == owner
        {
            set(Some(ThreadLease { is_out: false, ..lease }));
        }
    }

    /// Whether the calling thread runs a body of another owner that has lock tables out.
    pub fn is_beside_own_lease(&self, owner: u16) -> bool {
        OF_THREAD.get().is_some_and(|lease| lease.is_out && self.is_mine(lease) && lease.owner != owner)
    }

    /// The same for an owner that is about to wait; if so, notes that the lease is met.
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
