//! Panics of ours, outside of any body: the call is told of them, and everything else goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::queues::Bug;
use crate::engine::{Action, Flow, Procedure};
use crate::io::MemoryDisk;
use crate::row::{Column, ColumnType, Value, WhichIndex};
use crate::{Arguments, Checkpointing, Database, LockForm, Options, Outputs, Result, TableDef, Transaction};

/// Of the longest wait.
const LIMIT: Duration = Duration::from_secs(60);

fn count<const AT: usize>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let key: i32 = arguments.get(AT)?;
    let mut n = 0;
    tx.modify(arguments.table()?, key, |row| {
        n = row.add_i64(1, 1)?;
        Ok(())
    })?;
    outputs.push(n);
    Ok(())
}

/// Two keys of two threads, whose rows are counted at the same time, and then again.
fn database() -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        locks: LockForm::Local,
        executors: 4,
        executor_threads: 2,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("counters", columns.clone()).with_primary_key(&["id"]))?;
        (0..8).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
    })
    .unwrap();
    db.set_routing("counters", WhichIndex::Primary, &[2, 4, 6].map(|bound| vec![Value::Int4(bound)]))
        .unwrap();
    let phase = || {
        [
            Action::exclusive("counters", count::<0>).by_argument(0),
            Action::exclusive("counters", count::<1>).by_argument(1),
        ]
    };
    let flow = Flow::new().phase(phase()).phase(phase());
    db.register(Procedure::new("both", [ColumnType::Int4; 2], flow)).unwrap();
    db
}

#[test]
fn a_panic_outside_of_bodies_ends_its_call_and_nothing_else() {
    let keys = [Value::Int4(1), Value::Int4(7)];
    for bug in [Bug::Begin, Bug::ShareOut, Bug::PartDone, Bug::Meet, Bug::End] {
        let (done, is_done) = channel();
        let keys = keys.clone();
        std::thread::spawn(move || {
            let db = database();
            assert_eq!(db.call("both", &keys), Ok([1, 1, 2, 2].map(Value::Int8).to_vec()));
            *db.core().queues.as_ref().unwrap().bug.lock() = Some(bug);
            let told = catch_unwind(AssertUnwindSafe(|| db.call("both", &keys)));
            assert!(told.is_err(), "{bug:?}: the panic was lost: {told:?}");
            // Nothing of it is kept, no lock is, and each thread still runs what is sent to it.
            for nth in 1..4 {
                let counts = [2 * nth + 1, 2 * nth + 1, 2 * nth + 2, 2 * nth + 2];
                assert_eq!(db.call("both", &keys), Ok(counts.map(Value::Int8).to_vec()), "{bug:?}");
            }
            db.close().unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{bug:?}: {error}"));
    }
}
