//! Calls that were made with local locks, and run again beside each other.

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Action, Database, Engine, Executors, Flow, Options, Procedure, TableDef};

use super::{calls, exclusive};

/// Fails only on a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The progress of bodies that wait for each other.
#[derive(Default)]
struct Steps {
    reached: Mutex<u32>,
    changed: Condvar,
}

impl Steps {
    fn reach(&self, step: u32) {
        let mut reached = self.reached.lock();
        *reached = step.max(*reached);
        self.changed.notify_all();
    }

    fn wait_for(&self, step: u32) {
        self.changed.wait_while_for(&mut self.reached.lock(), |reached| *reached < step, PATIENCE);
    }
}

const WIDE_HAS_LOCKS: u32 = 1;
const SLOW_RUNS: u32 = 2;
const QUICK_HAS_RUN: u32 = 3;

/// The slow call runs, with its locks, from before the wide call's end until a later call has run.
fn procedures(steps: &Arc<Steps>) -> Vec<Procedure> {
    let insert = move |begin: u32, until: u32, steps: &Arc<Steps>| {
        let steps = steps.clone();
        exclusive("t", move |tx, table, values| {
            steps.reach(begin);
            steps.wait_for(until);
            tx.insert(table, &values[..1])
        })
        .by_argument(0)
    };
    // More actions than a lease allows for: it locks the keys that they name.
    let nothing = exclusive("t", |_, _, _| Ok(())).by_argument(0);
    let wide = std::iter::once(insert(WIDE_HAS_LOCKS, SLOW_RUNS, steps)).chain(repeat_n(nothing, 70));
    let beside = steps.clone();
    let late = Action::shared("u", move |_, _, _| {
        beside.wait_for(WIDE_HAS_LOCKS);
        Ok(())
    });
    let slow = Flow::new().phase([late]).phase([insert(SLOW_RUNS, QUICK_HAS_RUN, steps)]);
    let quick = insert(QUICK_HAS_RUN, 0, steps);
    let procedure = |name: &str, flow: Flow| Procedure::new(name, [ColumnType::Int4], flow).deterministic(1);
    vec![
        procedure("wide", Flow::new().phase(wide)),
        procedure("slow", slow),
        procedure("quick", Flow::new().phase([quick])),
    ]
}

/// One call ends while the body of another call, which takes long, holds its locks.
#[test]
fn calls_beside_a_slow_body_are_run_again() {
    let steps = Arc::new(Steps::default());
    let options = || Options {
        procedures: procedures(&steps),
        engine: Executors::of(1, 0).into(),
        recovery_threads: 3,
        ..calls()
    };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    db.transact(|tx| {
        ["t", "u"].into_iter().try_for_each(|name| {
            let columns = vec![Column::new("id", ColumnType::Int4)];
            tx.create_table(&TableDef::new(name, columns).with_primary_key(&["id"])).map(drop)
        })
    })
    .unwrap();
    // Here the calls run one after the other.
    steps.reach(u32::MAX);
    for (id, name) in ["wide", "slow", "quick", "quick", "quick", "quick"].into_iter().enumerate() {
        db.call(name, &[Value::Int4(id as i32)]).unwrap();
    }
    db.close().unwrap();
    *steps.reached.lock() = 0;
    let db = Database::open_on(disk, options()).unwrap();
    assert_eq!((db.recovery().unwrap().calls, db.table("t").unwrap().rows_estimate()), (6, 6));
}

/// One lock on a range, when the call committed, is a lock on each absent key when it is run again: more than a
/// transaction may have.
#[test]
fn a_call_that_read_many_absent_keys_under_one_lock_is_run_again() {
    const KEYS: i32 = (4 << 20) + 10;
    let action = Action::exclusive("t", |tx, arguments, _| {
        let (left, table) = (arguments.get::<i32>(0)?, arguments.table()?);
        for right in 0..KEYS {
            assert!(tx.get(table, (left, right))?.is_none());
        }
        tx.insert(table, &[Value::Int4(left), Value::Int4(-1)])
    });
    let flow = Flow::new().phase([action.by_argument(0)]);
    let procedure = Procedure::new("many", [ColumnType::Int4], flow).deterministic(1);
    let options =
        || Options { engine: Engine::data_oriented(), procedures: vec![procedure.clone()], ..calls() };
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let columns = ["a", "b"].map(|name| Column::new(name, ColumnType::Int4)).to_vec();
    let table = TableDef::new("t", columns).with_primary_key(&["a", "b"]);
    db.transact(|tx| tx.create_table(&table)).unwrap();
    db.call("many", &[Value::Int4(1)]).unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    assert_eq!(db.recovery().unwrap().calls, 1);
}
