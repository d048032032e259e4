//! Two stages on the data-oriented engine: a call that misses a page leaves its executors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{FAR, account, cold_with, options};
use crate::row::{ColumnType, Value};
use crate::{Action, Database, Executors, Options, Procedure, TwoStage};

/// Registers a call that changes a row; `in_fetch_stage` is told the key in a fetch stage.
fn register(db: &Database, in_fetch_stage: impl Fn(i32) + Send + Sync + 'static) {
    let touch = Action::exclusive("things", move |tx, arguments, outputs| {
        let key: i32 = arguments.get(0)?;
        tx.modify(arguments.table()?, key, |row| row.set(3, &Value::Text("touched".to_owned())))?;
        let context = tx.context();
        if context.fetches() {
            assert!(!context.owner.holds_lease(), "a fetch stage uses no executor");
            in_fetch_stage(key);
        }
        outputs.push(key);
        Ok(())
    });
    db.register(Procedure::new("touch", [ColumnType::Int4], touch.by_argument(0))).unwrap();
}

/// While a call reads its pages, others use its executor, the same key included.
#[test]
fn a_call_that_misses_a_page_leaves_its_executor() {
    for two_stage in [TwoStage::Otste, TwoStage::Tste] {
        let engine = Executors::of(1, 0).into();
        let (db, _) = cold_with(Options { engine, ..options(two_stage) });
        let met = Arc::new(AtomicU32::new(0));
        let (others, count) = (db.clone(), met.clone());
        register(&db, move |key| {
            // The first call is in its fetch stage. The other one finds the page.
            if key == 2 * FAR && count.fetch_add(1, Ordering::Relaxed) == 0 {
                std::thread::scope(|scope| {
                    scope.spawn(|| others.call("touch", &[Value::Int4(2 * FAR)])).join().unwrap().unwrap();
                });
            }
        });
        assert_eq!(db.call("touch", &[Value::Int4(2 * FAR)]).unwrap(), [Value::Int4(2 * FAR)]);
        assert!(met.load(Ordering::Relaxed) >= 1, "it had a fetch stage");
        let all = account(&db);
        let met = db.metrics().two_stage;
        let (waits, conversions) =
            met.iter().fold((0, 0), |sum, one| (sum.0 + one.lock_held_io_waits, sum.1 + one.conversions));
        assert!(waits == 0 && conversions > 0, "{all:?} of {met:?}");
        db.close().unwrap();
    }
}

/// Calls that threads of executors run have one stage.
#[test]
fn a_call_on_threads_of_executors_has_one_stage() {
    let engine = Executors { hand_over: crate::HandOver::Always, ..Executors::of(2, 2) }.into();
    let (db, _) = cold_with(Options { engine, ..options(TwoStage::Tste) });
    // Said outside: a panic in a fetch stage would be dropped.
    let fetch_stages = Arc::new(AtomicU32::new(0));
    let count = fetch_stages.clone();
    register(&db, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    for nth in 0..5 {
        db.call("touch", &[Value::Int4(2 * nth * FAR)]).unwrap();
    }
    assert_eq!(fetch_stages.load(Ordering::Relaxed), 0);
    db.close().unwrap();
}
