//! Waits for a lock that its holder keeps, while routing rules change all the time: however often a wait is turned
//! away, it ends at its time-out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Database, Error, Result, TableDef, TxOptions};

/// A table of one row.
const KEPT: &str = "kept";
const TIMEOUT: Duration = Duration::from_millis(30);
/// Changes of the rules, one at a time, that no wait survives: far more than happen within its time-out, or while a
/// machine keeps a runnable thread from running.
const CHANGES_MAX: u64 = 2_000;

/// The rules of the table change until a wait is over.
#[derive(Default)]
pub struct Waits {
    changes: AtomicU64,
    is_over: AtomicBool,
}

impl Waits {
    /// Makes the table, if there is room for it.
    pub fn new(db: &Database) -> Option<Waits> {
        let made = db.transact(|tx| {
            let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
            let kept = tx.create_table(&TableDef::new(KEPT, columns).with_primary_key(&["id"]))?;
            tx.insert(&kept, &[Value::Int4(0), Value::Int4(0)])
        });
        made.ok().map(|()| Waits::default())
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Moves the row to another executor, or not.
    pub fn change_rules(&self, db: &Database, random: &mut Random) -> Result<()> {
        let bound = vec![Value::Int4(random.below(2) as i32)];
        let changed = db.set_routing(KEPT, WhichIndex::Primary, &[bound]);
        self.changes.fetch_add(1, Ordering::SeqCst);
        changed
    }

    /// Waits for the row that a transaction keeps. Whether it has timed out: there may be no room for one of the two.
    pub fn wait(&self, db: &Database, about: &str) -> bool {
        let waited = self.wait_for_the_row(db);
        // Set before anything can fail.
        self.is_over.store(true, Ordering::SeqCst);
        waited.is_ok_and(|(outcome, changes)| {
            let few = changes < CHANGES_MAX;
            assert!(few, "{about}: a wait of {TIMEOUT:?} has gone through {changes} changes of rules");
            matches!(outcome, Err(Error::LockTimeout { .. }))
        })
    }

    /// The outcome of the wait, and how many changes it has gone through.
    fn wait_for_the_row(&self, db: &Database) -> Result<(Result<()>, u64)> {
        let mut holder = db.begin()?;
        let kept = holder.table(KEPT)?;
        holder.get(&kept, 0)?;
        let before = self.changes.load(Ordering::SeqCst);
        Ok(std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let options = TxOptions { lock_timeout: Some(TIMEOUT), ..TxOptions::default() };
                db.transact_with(&options, |tx| tx.update(&kept, 0, &[(1, Value::Int4(1))]).map(drop))
            });
            let changes = || self.changes.load(Ordering::SeqCst) - before;
            while !waiter.is_finished() && changes() < CHANGES_MAX {
                std::thread::sleep(Duration::from_micros(500));
            }
            let changes = changes();
            drop(holder);
            (waiter.join().expect("it does not panic"), changes)
        }))
    }
}
