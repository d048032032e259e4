//! [`Releases`]: locks that a transaction's own thread cannot release.
//!
//! A transaction by a handle may end in the body of another transaction, which has lock tables of executors leased
//! until the body has ended (`isolate/local/own_lease.rs`). Any transaction may end while another thread's body has
//! lock tables leased (L15 in `isolate/local/mod.rs`). Then another thread releases what the ended transaction holds at
//! executors, as soon as the tables are returned. A release that is still to be done is a *deferred release*
//! (`DeferredRelease`).
//!
//! Kept here:
//!
//! - **Every deferred release is done** while the database is open: another thread begins to release the locks when the
//!   transaction has ended. What the transaction's own thread then waits for, such as the log or its turn, keeps no
//!   lock. Each has a thread of its own; if the system has no thread left, it is on a list, and the resource manager
//!   releases the locks when it finds the tables returned.
//! - **A transaction's context is used again only when it has its lock slot back.** The deferred release has the slot
//!   until then, because the locks are entered under the slot's number.
//! - **No such thread outlives a close.** The close waits for these threads, but not for a table: from the close on no
//!   thread waits for a lock.
//! - **No such context outlives a close.** A deferred release that is left then, or that arises later in a body that
//!   goes on, is dropped with its locks held, and its lock slot is not used again.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::context::Context;
use crate::isolate::Owner;
use crate::txn::core::Core;

/// A release that is still to be done: the lock slot of a transaction that has ended, with the locks that the slot
/// holds at executors.
pub(crate) struct DeferredRelease {
    core: Arc<Core>,
    state: Mutex<DeferredReleaseState>,
}

struct DeferredReleaseState {
    /// The slot; none while a thread is releasing it, and once the context has it back.
    owner: Option<Owner>,
    /// Whether the slot holds nothing any more.
    is_released: bool,
    /// The transaction's context, once it is in no other use.
    context: Option<Box<Context>>,
}

/// How long to wait for a lock table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TableWait {
    /// As long as a short transaction takes.
    Short,
    /// Several times as long.
    Long,
}

impl DeferredRelease {
    /// Has another thread release the locks of a slot, as soon as the tables are returned.
    pub fn defer(core: Arc<Core>, owner: Owner) -> Arc<DeferredRelease> {
        let state = DeferredReleaseState { owner: Some(owner), is_released: false, context: None };
        let deferred = Arc::new(DeferredRelease { core, state: Mutex::new(state) });
        deferred.core.releases.add(&deferred);
        deferred
    }

    /// Releases the locks whose tables are free, or are returned in time. True: nothing is left to do.
    fn release(&self, patience: TableWait) -> bool {
        let Some(mut owner) = self.state.lock().owner.take() else { return true };
        let locks = &self.core.locks;
        let is_released = match patience {
            TableWait::Short => locks.release_at_once(&mut owner),
            TableWait::Long => locks.release_in_time(&mut owner),
        };
        if is_released {
            locks.finish(&mut owner, &self.core.storage);
        }
        let mut state = self.state.lock();
        state.is_released = is_released;
        match state.context.take_if(|_| is_released) {
            Some(context) => {
                drop(state);
                context.get_slot_back(owner);
            }
            None => state.owner = Some(owner),
        }
        is_released
    }

    /// Returns the context of the transaction to its pool as soon as it has its slot back. If no thread releases the
    /// locks, because the database has closed, both are dropped here.
    pub fn give_back(mut context: Box<Context>) {
        let deferred = context.deferred.take().expect("its release is deferred");
        let mut state = deferred.state.lock();
        if !state.is_released {
            state.context = Some(context);
            return;
        }
        let owner = state.owner.take().expect("it is released, and the context did not wait for it");
        drop(state);
        context.get_slot_back(owner);
    }
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Releases {
    state: Mutex<ReleasesState>,
    /// Notified when the last thread has ended.
    ended: Condvar,
    #[cfg(test)]
    faults: Faults,
}

#[derive(Default)]
struct ReleasesState {
    /// Releases for which no thread could be started.
    deferred: Vec<Arc<DeferredRelease>>,
    /// Threads that were started, or are about to be.
    threads: usize,
    /// Whether the database has closed.
    is_closed: bool,
}

/// Faults that tests inject.
#[cfg(test)]
#[derive(Default)]
struct Faults {
    /// Whether the system has no thread left.
    has_no_threads: AtomicBool,
    /// How often that was found.
    found: AtomicUsize,
    /// Whether a thread comes to its release late.
    is_slow: AtomicBool,
}

/// Counts a thread that releases, until it ends.
struct ReleaseThread(Arc<Releases>);

impl Drop for ReleaseThread {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.threads -= 1;
        if state.threads == 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Releases {
    fn add(self: &Arc<Releases>, deferred: &Arc<DeferredRelease>) {
        if !self.begin_thread() {
            return;
        }
        let (running, of_thread) = (ReleaseThread(self.clone()), deferred.clone());
        if !self.start(move || running.0.release_in_time(&of_thread)) {
            let mut state = self.state.lock();
            if !state.is_closed {
                state.deferred.push(deferred.clone());
            }
        }
    }

    /// Counts a thread that is about to be started. False: the database has closed.
    fn begin_thread(&self) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.threads += 1;
        }
        !state.is_closed
    }

    /// Starts a thread for `run`; false if the system had none left.
    fn start(&self, run: impl FnOnce() + Send + 'static) -> bool {
        #[cfg(test)]
        if self.faults.has_no_threads.load(Ordering::SeqCst) {
            self.faults.found.fetch_add(1, Ordering::SeqCst);
            return false;
        }
        std::thread::Builder::new().name("rialto-release".to_owned()).spawn(run).is_ok()
    }

    /// Does a deferred release as soon as the tables are returned, unless the database closes before.
    fn release_in_time(&self, deferred: &DeferredRelease) {
        #[cfg(test)]
        if self.faults.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        while !deferred.release(TableWait::Long) {
            if self.state.lock().is_closed {
                return;
            }
        }
    }

    /// Does the releases without a thread of their own, on a thread that has no lock tables leased. Those of locks in a
    /// table that stays leased remain deferred.
    pub fn release_all(&self) {
        let deferred = std::mem::take(&mut self.state.lock().deferred);
        for release in deferred {
            if release.release(TableWait::Short) {
                continue;
            }
            let mut state = self.state.lock();
            if !state.is_closed {
                state.deferred.push(release);
            }
        }
    }

    /// For the close: releases what can be released, drops the rest, and waits for the releasing threads.
    pub fn end(&self) {
        self.release_all();
        let mut state = self.state.lock();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.deferred);
        while state.threads > 0 {
            self.ended.wait(&mut state);
        }
        drop(state);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;

    use super::Releases;
    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType, Value};
    use crate::{
        Action, Checkpointing, Database, Executors, Options, Procedure, Result, TableDef, Transaction,
    };

    /// Longer than any of this takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A database with a handle that holds the lock of row 7, and its releases.
    fn with_a_handle(faults: impl FnOnce(&Releases)) -> (Database, Arc<Releases>, Transaction<'static>) {
        let options = Options {
            memory_bytes: 64 << 20,
            checkpoint: Checkpointing::None,
            // All keys belong to one executor.
            engine: Executors::of(1, 0).into(),
            lock_timeout: Duration::from_secs(60),
            ..Options::default()
        };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        let table = db
            .transact(|tx| {
                let table =
                    tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
                (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)]))?;
                Ok(table)
            })
            .unwrap();
        let mut handle = db.begin().unwrap();
        assert!(handle.update(&table, 7, &[(1, Value::Int4(1))]).unwrap());
        let releases = db.core().releases.clone();
        faults(&releases);
        (db, releases, handle)
    }

    /// Registers a procedure whose body runs with its lock tables leased and calls this with the handle.
    fn register(
        db: &Database,
        handle: Transaction<'static>,
        end: impl Fn(Transaction<'static>) -> Result<()> + Send + Sync + 'static,
    ) {
        let handle = Mutex::new(Some(handle));
        let body = Action::exclusive("t", move |_, _, _| handle.lock().take().map_or(Ok(()), &end));
        db.register(Procedure::new("p", [ColumnType::Int4], body.by_argument(0))).unwrap();
    }

    /// The same after the handle has ended in such a body.
    fn with_a_release(faults: impl FnOnce(&Releases)) -> (Database, Arc<Releases>) {
        let (db, releases, handle) = with_a_handle(faults);
        register(&db, handle, Transaction::commit);
        assert_eq!(db.call("p", &[Value::Int4(0)]), Ok(vec![]));
        (db, releases)
    }

    #[test]
    fn a_machine_without_threads_releases_locks_all_the_same() {
        let (db, releases) = with_a_release(|it| it.faults.has_no_threads.store(true, Ordering::SeqCst));
        assert_eq!(releases.faults.found.load(Ordering::SeqCst), 1, "the test's own premise");
        let table = db.table("t").unwrap();
        assert_eq!(db.transact(|tx| tx.update(&table, 7, &[(1, Value::Int4(2))])), Ok(true));
        db.close().unwrap();
        assert!(releases.state.lock().deferred.is_empty());
    }

    #[test]
    fn a_close_waits_for_locks_that_are_being_released() {
        let (db, releases) = with_a_release(|it| it.faults.is_slow.store(true, Ordering::SeqCst));
        db.close().unwrap();
        let state = releases.state.lock();
        assert_eq!((state.deferred.len(), state.threads), (0, 0));
    }

    /// A body goes on after its database has closed, and a handle ends in it.
    #[test]
    fn what_is_deferred_after_a_close_is_kept_by_nothing() {
        for has_no_threads in [false, true] {
            let faults = |it: &Releases| it.faults.has_no_threads.store(has_no_threads, Ordering::SeqCst);
            let (db, releases, handle) = with_a_handle(faults);
            let core = Arc::downgrade(db.core());
            let [(begins, has_begun), (closes, has_closed)] = [mpsc::channel(), mpsc::channel::<()>()];
            let (has_closed, beside) = (Mutex::new(has_closed), releases.clone());
            register(&db, handle, move |handle| {
                begins.send(()).unwrap();
                has_closed.lock().recv_timeout(PATIENCE).unwrap();
                drop(handle);
                // Its lock tables are still leased.
                let state = beside.state.lock();
                assert_eq!((state.deferred.len(), state.threads), (0, 0));
                Ok(())
            });
            std::thread::scope(|scope| {
                let caller = db.clone();
                let call = scope.spawn(move || caller.call("p", &[Value::Int4(0)]));
                has_begun.recv_timeout(PATIENCE).unwrap();
                db.close().unwrap();
                closes.send(()).unwrap();
                let _ = call.join().unwrap();
            });
            let since = Instant::now();
            while core.strong_count() > 0 {
                assert!(since.elapsed() < PATIENCE, "has_no_threads: {has_no_threads}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
