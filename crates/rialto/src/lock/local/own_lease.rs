//! [`OwnLease`]: the executor lease of the body that a thread runs, as the thread's other transactions need to know it.
//!
//! A body may use further transactions, by handles. The lock tables that its own transaction has out are back when the body has
//! ended; so a handle that waited for one would wait for its own thread, and a holder that it waits for may wait for these
//! tables. L12
//! holds for threads, then: beside an executor lease of its thread a transaction waits for nothing.
//!
//! A request that would have to is answered with [`LockError::Deadlock`](super::super::LockError::Deadlock), and the lease is
//! *met*: the body runs again without one, where a handle waits as others do. So it does for a request that is refused because
//! the lease keeps the table. What a transaction holds at executors and ends
//! beside the lease is released by another thread, which waits until the tables are back.

use std::cell::Cell;

use super::super::manager::LockManager;
use super::super::slot::Owner;

#[derive(Clone, Copy)]
struct Lease {
    /// The lock manager's address: transactions of other databases wait for other tables.
    manager: usize,
    owner: u16,
    is_met: bool,
}

thread_local! {
    static OF_THREAD: Cell<Option<Lease>> = const { Cell::new(None) };
}

/// The calling thread runs a body whose transaction has lock tables out, until this is dropped.
#[derive(Debug)]
pub struct OwnLease(());

impl OwnLease {
    /// The body has ended: whether another transaction of its thread has met its lease.
    pub fn end(self) -> bool {
        OF_THREAD.get().is_some_and(|lease| lease.is_met)
    }
}

impl Drop for OwnLease {
    fn drop(&mut self) {
        OF_THREAD.set(None);
    }
}

impl LockManager {
    /// What to keep while the calling thread runs a body of the owner's; none if the owner has no lock table out.
    #[inline]
    pub fn own_lease(&self, owner: &Owner) -> Option<OwnLease> {
        if !owner.body.stint.is_on() {
            return None;
        }
        OF_THREAD.set(Some(Lease { manager: self.address(), owner: owner.id(), is_met: false }));
        Some(OwnLease(()))
    }

    /// Whether the calling thread runs a body of another owner's that has lock tables out.
    pub fn is_beside_own_lease(&self, owner: u16) -> bool {
        OF_THREAD.get().is_some_and(|lease| lease.manager == self.address() && lease.owner != owner)
    }

    /// The same of an owner that is about to wait; the lease is met, then.
    pub(in super::super) fn meets_own_lease(&self, owner: u16) -> bool {
        let meets = self.is_beside_own_lease(owner);
        if meets && let Some(lease) = OF_THREAD.get() {
            OF_THREAD.set(Some(Lease { is_met: true, ..lease }));
        }
        meets
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
