//! [`Releases`]: locks that a transaction's own thread cannot release.
//!
//! A transaction by a handle may end in the body of another transaction, which has lock tables of executors out until the body
//! has ended (`lock/local/own_lease.rs`). Another thread releases what the first one holds at executors; it waits until the
//! tables are back.
//!
//! Kept here:
//!
//! - **Whatever is owed is released.** A context is on the list before a thread is started for it. If the system has no thread left,
//!   the resource manager releases the locks at its next look, or the close does.
//! - **No thread of these outlives a close**, which waits for them.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::transaction::Context;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Releases {
    owed: Mutex<Owed>,
    /// The last thread has ended.
    ended: Condvar,
    #[cfg(test)]
    faults: Faults,
}

#[allow(clippy::vec_box, reason = "contexts are lent in their boxes")]
#[derive(Default)]
struct Owed {
    contexts: Vec<Box<Context>>,
    /// Threads that were started, or are about to be.
    threads: usize,
}

/// What tests put in.
#[cfg(test)]
#[derive(Default)]
struct Faults {
    /// The system has no thread left.
    has_no_threads: AtomicBool,
    /// How often that was found.
    found: AtomicUsize,
    /// A thread comes to its release late.
    is_slow: AtomicBool,
}

/// A thread that releases, until it ends.
struct Running(Arc<Releases>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut owed = self.0.owed.lock();
        owed.threads -= 1;
        if owed.threads == 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Releases {
    /// Has the locks of a context released by another thread than this one.
    pub fn add(self: &Arc<Releases>, context: Box<Context>) {
        let mut owed = self.owed.lock();
        owed.contexts.push(context);
        owed.threads += 1;
        drop(owed);
        let running = Running(self.clone());
        let thread = std::thread::Builder::new().name("rialto-release".to_owned());
        #[cfg(test)]
        if self.faults.has_no_threads.load(Ordering::SeqCst) {
            self.faults.found.fetch_add(1, Ordering::SeqCst);
            return;
        }
        // Without a thread the context stays on the list.
        let _ = thread.spawn(move || {
            #[cfg(test)]
            if running.0.faults.is_slow.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
            running.0.release_one();
        });
    }

    /// Releases all that is owed, on a thread that has no lock tables out.
    pub fn release_all(&self) {
        while self.release_one() {}
    }

    fn release_one(&self) -> bool {
        let Some(context) = self.owed.lock().contexts.pop() else { return false };
        context.release_owed();
        true
    }

    /// Releases all that is owed, and waits for the threads that are at it. The database closes.
    pub fn end(&self) {
        self.release_all();
        let mut owed = self.owed.lock();
        while owed.threads > 0 {
            self.ended.wait(&mut owed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::Releases;
    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType, Value};
    use crate::{Action, Checkpointing, Database, LockForm, Options, Procedure, TableDef};

    /// A database in which a transaction that held the lock of row 7 has ended in a body beside its lock tables.
    fn with_a_release(faults: impl FnOnce(&Releases)) -> (Database, Arc<Releases>) {
        let options = Options {
            memory_bytes: 64 << 20,
            checkpoint: Checkpointing::None,
            locks: LockForm::Local,
            // All keys are of one executor.
            executors: 1,
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
        let handle = Mutex::new(Some(handle));
        let body = Action::exclusive("t", move |_, _, _| {
            handle.lock().take().map_or(Ok(()), |handle| handle.commit())
        });
        db.register(Procedure::new("p", [ColumnType::Int4], body.by_argument(0))).unwrap();
        let releases = db.core().releases.clone();
        faults(&releases);
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
        assert!(releases.owed.lock().contexts.is_empty());
    }

    #[test]
    fn a_close_waits_for_locks_that_are_being_released() {
        let (db, releases) = with_a_release(|it| it.faults.is_slow.store(true, Ordering::SeqCst));
        db.close().unwrap();
        let owed = releases.owed.lock();
        assert_eq!((owed.contexts.len(), owed.threads), (0, 0));
    }
}
