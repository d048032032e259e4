//! Pages of keys that are known together are read side by side.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{FAR, account, cold_on, options};
use crate::io::MemoryDisk;
use crate::io::watched::{Transfers, WatchedDisk};
use crate::row::{ColumnType, Value};
use crate::{
    Action, Database, Engine, Executors, Flow, Options, Procedure, Table, Transaction, TwoStage, TxOptions,
};

const KEYS: usize = 4;

/// As `cold`; the number is of the most pages that were read by one call of the disk.
fn cold_and_watched(options: Options) -> (Database, Table, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let disk = MemoryDisk::new();
    let watched = WatchedDisk::over(disk.clone(), move |name, transfers| {
        if let ("pages", Transfers::Reads(count)) = (name, transfers) {
            seen.fetch_max(count, Ordering::Relaxed);
        }
    });
    let (db, table) = cold_on(disk, watched, options);
    (db, table, most)
}

/// Registers a call that changes as many rows, in one phase.
fn register(db: &Database) {
    let actions = (0..KEYS).map(|position| {
        let touch = Action::exclusive("things", move |tx, arguments, _| {
            let key: i32 = arguments.get(position)?;
            tx.modify(arguments.table()?, key, |row| row.set(3, &Value::Text("touched".to_owned())))?;
            Ok(())
        });
        touch.by_argument(position)
    });
    db.register(Procedure::new("touch", [ColumnType::Int4; KEYS], Flow::new().phase(actions))).unwrap();
}

#[test]
fn the_keys_of_a_phase_are_fetched_side_by_side_on_both_engines() {
    for engine in [Engine::default(), Executors::of(2, 0).into()] {
        let (db, table, most) = cold_and_watched(Options { engine, ..options(TwoStage::Tste) });
        register(&db);
        let keys: Vec<i32> = (1..).map(|nth| 2 * nth * FAR).take(KEYS).collect();
        // The first call of a procedure begins in the operate stage: nothing is known of it yet.
        for nth in 0..2 {
            let arguments: Vec<Value> = keys.iter().map(|key| Value::Int4(key + 20 * FAR * nth)).collect();
            db.call("touch", &arguments).unwrap();
        }
        assert_eq!(most.load(Ordering::Relaxed), KEYS);
        let all = account(&db);
        assert!(all.misprefetches == 0 && all.reads >= 2 * KEYS as u64, "{all:?}");
        let is_touched = |key: i32| {
            let row = db.read(|tx| tx.get(&table, key)).unwrap().unwrap();
            row.get("text").unwrap() == Value::Text("touched".to_owned())
        };
        assert!(keys.iter().all(|&key| is_touched(key)));
        db.close().unwrap();
    }
}

/// What a body prefetches is read side by side, in the fetch stage or under two-phase locking.
#[test]
fn prefetched_rows_of_a_table_on_disk_are_read_side_by_side() {
    for two_stage in [TwoStage::Tste, TwoStage::Otste, TwoStage::TwoPhaseLocking] {
        let (db, table, most) = cold_and_watched(options(two_stage));
        let keys = (1..=KEYS as i32).map(|nth| 2 * nth * FAR);
        for nth in 0..2 {
            let touched = db.transact(|tx| {
                tx.prefetch(&table, keys.clone().map(|key| key + 20 * FAR * nth));
                let mut found = 0;
                for key in keys.clone() {
                    found += usize::from(tx.get(&table, key + 20 * FAR * nth)?.is_some());
                }
                Ok(found)
            });
            assert_eq!(touched.unwrap(), KEYS);
        }
        assert_eq!(most.load(Ordering::Relaxed), KEYS, "{two_stage:?}");
        let misprefetches = account(&db).misprefetches;
        assert_eq!(misprefetches, 0, "{two_stage:?}");
        db.close().unwrap();
    }
}

/// Any number of keys may follow from what a fetch stage has read, and a caller may name any number.
#[test]
fn prefetching_ends_with_the_budget_of_the_stage_and_with_the_transaction() {
    let (db, table, _) = cold_and_watched(options(TwoStage::Tste));
    let endless = |tx: &mut Transaction<'_>| tx.prefetch(&table, std::iter::repeat(1));
    let (stages, met) = (Cell::new(0), Cell::new(false));
    for _ in 0..2 {
        db.transact(|tx| {
            tx.get(&table, 2 * FAR)?;
            if tx.context().fetches() {
                endless(tx);
                met.set(true);
            }
            stages.set(stages.get() + 1);
            Ok(())
        })
        .unwrap();
    }
    assert!(met.get() && stages.get() > 2, "{} runs", stages.get());
    let options = TxOptions { timeout: Some(Duration::from_millis(1)), ..TxOptions::default() };
    let ended = db.transact_with(&options, |tx| {
        if !tx.context().fetches() {
            endless(tx);
        }
        tx.get(&table, 2 * FAR).map(drop)
    });
    assert!(ended.is_err(), "{ended:?}");
    db.close().unwrap();
}

/// Keys of one page miss it once.
#[test]
fn a_page_that_several_keys_miss_counts_once() {
    let (db, table, _) = cold_and_watched(options(TwoStage::TwoPhaseLocking));
    db.transact(|tx| {
        tx.get(&table, 2 * FAR)?;
        let before = tx.context().page_access.counts();
        tx.prefetch(&table, [40 * FAR, 40 * FAR + 2, 40 * FAR + 4]);
        let after = tx.context().page_access.counts();
        assert_eq!((after.misses - before.misses, after.reads - before.reads), (1, 1));
        Ok(())
    })
    .unwrap();
    db.close().unwrap();
}
