//! Transactions in two stages: what each stage reads, keeps, locks and counts.

mod behind_locks;
mod executors;
mod statements;
mod together;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{TwoStage, TwoStageAccount};
use crate::account::PageCounts;
use crate::io::{Disk, MemoryDisk};
use crate::isolate::LockPolicy;
use crate::row::{Column, ColumnType, Value};
use crate::{
    Background, Checkpointing, Database, Durability, Engine, Error, Executors, Options, Residence, Result,
    Scan, ScanMode, Table, TableDef, Transaction, TxOptions,
};

/// Rows of 200 bytes: twenty in a page of 4 KiB.
const ROWS: i32 = 8_000;
/// Keys that lie in different pages of each index.
const FAR: i32 = 97;

fn options(two_stage: TwoStage) -> Options {
    Options {
        memory_bytes: 32 << 20,
        cache_bytes: 4 << 20,
        page_bytes: 4_096,
        checkpoint: Checkpointing::None,
        two_stage,
        ..Options::default()
    }
}

fn row(key: i32) -> [Value; 4] {
    [Value::Int4(key), Value::Int4(key / 4), Value::Int4(ROWS - key), Value::Text("x".repeat(200))]
}

/// A database with a table on disk, none of whose pages is in memory.
fn cold(two_stage: TwoStage) -> (Database, Table) {
    cold_with(options(two_stage))
}

fn cold_with(cold: Options) -> (Database, Table) {
    let disk = MemoryDisk::new();
    cold_on(disk.clone(), disk, cold)
}

/// The same; it is made on one disk, and opened on the other, which has the same files.
fn cold_on(disk: Arc<MemoryDisk>, opened: Arc<dyn Disk>, cold: Options) -> (Database, Table) {
    let db = Database::open_on(disk, options(TwoStage::TwoPhaseLocking)).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("part", ColumnType::Int4),
        Column::new("code", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    let definition = TableDef::new("things", columns)
        .with_primary_key(&["id"])
        .with_index("things_by_part", &["part"], false)
        .with_index("things_by_code", &["code"], true)
        .with_residence(Residence::Disk);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    for from in (0..ROWS).step_by(100) {
        // Each other key: there is room for new ones between.
        db.transact(|tx| (from..from + 100).step_by(2).try_for_each(|key| tx.insert(&table, &row(key))))
            .unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = Database::open_on(opened, cold).unwrap();
    let table = db.table("things").unwrap();
    (db, table)
}

fn account(db: &Database) -> TwoStageAccount {
    db.metrics().two_stage.into_iter().next().unwrap_or_default()
}

type Work = fn(&mut Transaction<'_>, &Table) -> Result<()>;

/// Transactions of each kind of operation, on keys that lie far from each other.
const WORKS: [(&str, Work); 12] = [
    ("get", |tx, table| tx.get(table, 2 * FAR).map(|row| assert!(row.is_some()))),
    ("get of an absent key", |tx, table| tx.get(table, 2 * FAR + 1).map(|row| assert!(row.is_none()))),
    ("update", |tx, table| {
        tx.update(table, 2 * FAR, &[(3, Value::Text("longer".repeat(50)))]).map(|there| assert!(there))
    }),
    ("update of keys", |tx, table| {
        let changes = [(1, Value::Int4(7 * FAR)), (2, Value::Int4(-5))];
        tx.update(table, 2 * FAR, &changes).map(|there| assert!(there))
    }),
    ("update of the primary key", |tx, table| {
        tx.update(table, 2 * FAR, &[(0, Value::Int4(8 * FAR + 1))]).map(|there| assert!(there))
    }),
    ("insert", |tx, table| tx.insert(table, &row(4 * FAR + 1))),
    ("insert of a long row", |tx, table| {
        let [id, _, _, _] = row(4 * FAR + 1);
        tx.insert(table, &[id, Value::Int4(0), Value::Int4(-9), Value::Text("x".repeat(9_000))])
    }),
    ("delete", |tx, table| tx.delete(table, 6 * FAR).map(|there| assert!(there))),
    ("look-up by a unique index", |tx, table| {
        tx.get_by(table, "things_by_code", ROWS - 4 * FAR).map(|row| assert!(row.is_some()))
    }),
    ("update by a unique index", |tx, table| {
        let key = ROWS - 4 * FAR;
        let id = tx.look_by(table, "things_by_code", key, ScanMode::Update, |row| row.get_i32(0))?;
        tx.update(table, id.unwrap()?, &[(3, Value::Text(String::new()))]).map(|there| assert!(there))
    }),
    ("rows by an index", |tx, table| {
        let rows = tx.rows_by(table, "things_by_part", FAR)?.count();
        assert_eq!(rows, 2);
        Ok(())
    }),
    ("scan that updates", |tx, table| {
        let mut keys = Vec::new();
        let scan = Scan { limit: Some(30), mode: ScanMode::Update, ..Scan::all() };
        tx.scan(table, &scan, |key, _| {
            keys.push(key.clone());
            Ok(ControlFlow::Continue(()))
        })?;
        keys.iter().try_for_each(|key| tx.delete_at(table, key).map(|there| assert!(there)))
    }),
];

/// I6, counted: what the operate stage touches the fetch stage has brought into memory.
#[test]
fn an_operate_stage_behind_a_fetch_stage_reads_no_page() {
    let engines = [Engine::default(), Executors::of(3, 0).into(), Executors::of(3, 2).into()];
    for (name, work, engine) in
        WORKS.iter().flat_map(|(name, work)| engines.map(|engine| (name, work, engine)))
    {
        let (db, table) = cold_with(Options { engine, ..options(TwoStage::Tste) });
        let (name, runs) = (format!("{name} on {engine:?}"), Cell::new(0));
        // The first execution of a procedure finds out that it touches pages.
        db.transact(|tx| {
            runs.set(runs.get() + 1);
            work(tx, &table)
        })
        .unwrap();
        assert_eq!(runs.get(), 3, "{name}: until the miss, the fetch stage, the operate stage");
        let met = account(&db);
        assert_eq!((met.executions, met.conversions, met.fallbacks), (1, 1, 0), "{name}: {met:?}");
        assert_eq!((met.misprefetches, met.lock_held_io_waits), (0, 0), "{name}: {met:?}");
        assert!(met.reads > 0 && met.kept_pages > 0 && met.accesses > 0, "{name}: {met:?}");
        assert_eq!(db.metrics().aborted, 0, "{name}: a stage is no abort");
        db.close().unwrap();
    }
}

/// I6 for the pages that an insertion makes: they need frames, which other pages have to leave. No thread writes behind here.
#[test]
fn a_fetch_stage_makes_room_for_the_pages_of_its_operate_stage() {
    for strategy in [TwoStage::Tste, TwoStage::TwoPhaseLocking] {
        let (db, table) = cold_with(Options { background: Background::Driven, ..options(strategy) });
        let text = "x".repeat(900);
        // Rows of twice the cache.
        for number in 0..8_000 {
            let [id, part, code, _] = row(ROWS + number * FAR % 8_000);
            let row = [id, part, code, Value::Text(text.clone())];
            db.transact(|tx| tx.insert(&table, &row)).unwrap();
            if number % 1_000 == 0 {
                db.drive().unwrap();
            }
        }
        let (met, metrics) = (account(&db), db.metrics());
        assert!(metrics.pages.writes > 1_000, "{:?}", metrics.pages);
        let sum = |of: fn(&PageCounts) -> u64| {
            metrics.procedures.iter().map(|account| of(&account.pages)).sum::<u64>()
        };
        let (misses, room_waits) = (sum(|pages| pages.misses), sum(|pages| pages.room_waits));
        assert!(room_waits > 50, "{strategy:?} waits for room: {room_waits}");
        match strategy {
            // In fetch stages alone.
            TwoStage::Tste => assert_eq!(met.lock_held_io_waits, met.misprefetches, "{met:?}"),
            _ => assert_eq!(met.lock_held_io_waits, misses + room_waits, "{met:?}"),
        }
        assert!(met.misprefetches < 10, "room is not made at the cost of pages that are kept: {met:?}");
        if strategy == TwoStage::TwoPhaseLocking {
            // The cache is full, and a round of an operation has freed eight frames, which are few.
            let before = db.metrics().pages.writes;
            db.drive().unwrap();
            assert!(db.metrics().pages.writes > before, "driving the database writes behind");
        }
        db.close().unwrap();
    }
}

#[test]
fn each_strategy_runs_a_body_as_often_as_it_needs() {
    // The runs of a cold execution, then of a warm one.
    for (strategy, cold_runs, warm_runs) in
        [(TwoStage::TwoPhaseLocking, 1, 1), (TwoStage::Tste, 2, 2), (TwoStage::Otste, 3, 1)]
    {
        let (db, table) = cold(strategy);
        let get = |key: i32| {
            let runs = Cell::new(0);
            let row = db.transact(|tx| {
                runs.set(runs.get() + 1);
                tx.get(&table, key)
            });
            assert!(row.unwrap().is_some());
            runs.get()
        };
        get(0);
        let before = account(&db);
        assert_eq!(get(4 * FAR), cold_runs, "{strategy:?}");
        assert_eq!(get(4 * FAR), warm_runs, "{strategy:?}");
        let met = account(&db);
        let held = met.lock_held_io_waits - before.lock_held_io_waits;
        assert_eq!(held, u64::from(strategy == TwoStage::TwoPhaseLocking), "{met:?}");
        let needs_two = strategy != TwoStage::TwoPhaseLocking;
        assert_eq!(met.conversions - before.conversions, u64::from(needs_two), "{met:?}");
        assert_eq!(met.strategy, strategy.name());
        db.close().unwrap();
    }
}

/// While a fetch stage has read a row, and written it, another transaction locks it, and the gaps around it.
#[test]
fn a_fetch_stage_holds_no_lock_and_changes_nothing() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let (run, had_all) = (AtomicU32::new(0), Cell::new(false));
    let others = || {
        let mut other = db.begin().unwrap();
        other.set_lock_policy(LockPolicy::Refuse);
        let found = other.get(&table, 4 * FAR).unwrap().unwrap();
        assert_eq!(found.view().get_i32(1), Ok(FAR), "the row is as it was");
        assert!(other.update(&table, 4 * FAR, &[(1, Value::Int4(FAR))]).unwrap());
        other.insert(&table, &row(4 * FAR + 1)).unwrap();
        assert!(other.delete(&table, 4 * FAR + 2).unwrap());
        let mut rows = 0;
        other
            .scan(&table, &Scan::all(), |_, _| {
                rows += 1;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert_eq!(rows, ROWS / 2, "nothing came and nothing went");
        other.abort().unwrap();
    };
    db.transact(|tx| {
        let is_first = run.fetch_add(1, Ordering::Relaxed) == 0;
        assert!(tx.update(&table, 4 * FAR, &[(1, Value::Int4(1)), (2, Value::Int4(-1))])?);
        tx.insert(&table, &row(4 * FAR + 3))?;
        assert!(tx.delete(&table, 4 * FAR + 2)?);
        // The whole table is more than may be kept.
        let some = Scan { limit: Some(100), ..Scan::all() };
        tx.scan(&table, &some, |_, _| Ok(ControlFlow::Continue(())))?;
        if is_first {
            // A panic here would be dropped with the stage.
            had_all.set(std::thread::scope(|scope| scope.spawn(others).join().is_ok()));
        }
        Ok(())
    })
    .unwrap();
    assert!(had_all.get(), "the others waited for nothing, and saw nothing");
    assert_eq!(run.into_inner(), 2);
    assert_eq!(table.version().store.pages().unwrap().unsettled(), [""; 0]);
    db.close().unwrap();
}

/// In each stage.
#[test]
fn a_body_sees_its_own_writes() {
    let (db, table) = cold(TwoStage::Tste);
    let in_memory =
        TableDef::new("few", vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)]);
    let few = db.transact(|tx| tx.create_table(&in_memory.clone().with_primary_key(&["id"]))).unwrap();
    db.transact(|tx| tx.get(&table, 0).and_then(|_| tx.insert(&few, &[Value::Int4(1), Value::Int8(10)])))
        .unwrap();
    let (runs, ended) = (Cell::new(0), Cell::new(0));
    db.transact(|tx| {
        runs.set(runs.get() + 1);
        tx.insert(&table, &row(4 * FAR + 1))?;
        assert!(tx.get(&table, 4 * FAR + 1)?.is_some());
        assert!(tx.update(&table, 4 * FAR + 1, &[(1, Value::Int4(3))])?);
        assert_eq!(tx.get(&table, 4 * FAR + 1)?.unwrap().view().get_i32(1), Ok(3));
        assert!(tx.delete(&table, 4 * FAR)?);
        assert!(tx.get(&table, 4 * FAR)?.is_none());
        assert!(!tx.delete(&table, 4 * FAR)?);
        tx.insert(&table, &row(4 * FAR))?;
        assert!(matches!(tx.insert(&table, &row(4 * FAR)), Err(Error::DuplicateKey { .. })));
        for _ in 0..20 {
            tx.modify(&few, 1, |fields| fields.add_i64(1, 1).map(drop))?;
        }
        assert_eq!(tx.get(&few, 1)?.unwrap().view().get_i64(1), Ok(30));
        assert!(tx.delete(&few, 1)?);
        tx.insert(&few, &[Value::Int4(1), Value::Int8(10)])?;
        let savepoint = tx.savepoint();
        assert!(tx.delete(&few, 1)?);
        tx.rollback_to(&savepoint)?;
        assert!(tx.get(&few, 1)?.is_some());
        ended.set(ended.get() + 1);
        Ok(())
    })
    .unwrap();
    assert_eq!((runs.get(), ended.get()), (2, 2), "in the fetch stage, too");
    db.close().unwrap();
}

/// A body fails in its fetch stage, in each way.
#[test]
fn what_goes_wrong_in_a_fetch_stage_is_dropped() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    for way in 0..5 {
        let runs = Cell::new(0);
        let done = db.transact(|tx| {
            runs.set(runs.get() + 1);
            if runs.get() == 2 {
                return tx.update(&table, 4 * FAR, &[(1, Value::Int4(way))]);
            }
            match way {
                0 => Err(Error::aborted("only in the first run")),
                1 => std::panic::panic_any("only in the first run"),
                // No lock is taken: a definition ends the stage.
                2 => tx
                    .create_table(&TableDef::new("new", vec![Column::new("n", ColumnType::Int4)]))
                    .map(|_| true),
                3 => loop {
                    tx.get(&table, 0)?;
                },
                _ => tx.table("there is none").map(|_| true),
            }
        });
        assert_eq!((done, runs.get()), (Ok(true), 2), "way {way}");
    }
    assert!(db.table("new").is_err());
    assert_eq!(db.metrics().aborted, 0);
    db.close().unwrap();
}

/// Works that panic amid an operation, after others.
const PANICS: [(&str, Work); 5] = [
    ("after changes", |tx, table| {
        tx.update(table, 2 * FAR, &[(1, Value::Int4(7 * FAR)), (2, Value::Int4(-5))])?;
        let [id, _, _, _] = row(4 * FAR + 1);
        tx.insert(table, &[id, Value::Int4(0), Value::Int4(-9), Value::Text("x".repeat(9_000))])?;
        tx.delete(table, 6 * FAR)?;
        panic!("after changes");
    }),
    ("as it changes a row", |tx, table| {
        tx.modify(table, 2 * FAR, |fields| {
            fields.set_i32(1, 5)?;
            panic!("as it changes a row");
        })
        .map(drop)
    }),
    ("as it looks at a row", |tx, table| {
        let key = ROWS - 2 * FAR;
        tx.look_by(table, "things_by_code", key, ScanMode::Update, |_| panic!("as it looks at a row"))
            .map(drop)
    }),
    ("in a scan", |tx, table| {
        let scan = Scan { mode: ScanMode::Update, ..Scan::all() };
        let mut rows = 0;
        tx.scan(table, &scan, |_, _| {
            rows += 1;
            assert!(rows < 50, "in a scan");
            Ok(ControlFlow::Continue(()))
        })
    }),
    ("behind a savepoint", |tx, table| {
        tx.delete(table, 2 * FAR)?;
        tx.savepoint();
        tx.delete(table, 4 * FAR)?;
        panic!("behind a savepoint");
    }),
];

/// The operate stage begins with nothing of a fetch stage that has panicked, and so does the next transaction.
#[test]
fn a_panic_in_a_fetch_stage_leaves_nothing_behind() {
    for (name, panics) in PANICS {
        for always in [false, true] {
            let (db, table) = cold(TwoStage::Tste);
            db.transact(|tx| tx.get(&table, 0)).unwrap();
            let others = || {
                let mut other = db.begin().unwrap();
                other.set_lock_policy(LockPolicy::Refuse);
                for key in [2 * FAR, 4 * FAR, 6 * FAR] {
                    let found = other.get(&table, key).unwrap().unwrap();
                    assert_eq!(found.view().get_i32(1), Ok(key / 4), "{name}: the row is as it was");
                    assert!(other.delete(&table, key).unwrap());
                }
                other.insert(&table, &row(4 * FAR + 1)).unwrap();
                assert_eq!(other.rows(&table, &Scan::all()).unwrap().count(), ROWS as usize / 2 - 2);
                other.abort().unwrap();
                // Not even an intention to read is locked.
                let mut last = db.begin().unwrap();
                last.set_lock_policy(LockPolicy::Refuse);
                last.truncate(&table).unwrap();
                last.abort().unwrap();
            };
            let (runs, kept, had_all) = (AtomicU32::new(0), Cell::new(0), Cell::new(false));
            let run = || {
                db.transact(|tx| {
                    if runs.fetch_add(1, Ordering::Relaxed) > 0 {
                        kept.set(db.metrics().pages.kept);
                        // A panic here would be the stage's.
                        had_all.set(std::thread::scope(|scope| scope.spawn(others).join().is_ok()));
                        if !always {
                            return Ok(());
                        }
                    }
                    panics(tx, &table)
                })
            };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            assert_eq!((done.is_err(), runs.into_inner()), (always, 2), "{name}");
            assert!(had_all.get(), "{name}: the first run has locked nothing and changed nothing");
            assert!(kept.get() > 0, "{name}: what it has read stays in memory for the second run");
            assert_eq!(db.metrics().pages.kept, 0, "{name}");
            assert_eq!(table.version().store.pages().unwrap().unsettled(), [""; 0], "{name}");
            others();
            db.close().unwrap();
        }
    }
}

/// Definitions and rows in one body.
#[test]
fn a_body_with_definitions_goes_on_without_its_fetch_stage() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let columns = vec![Column::new("n", ColumnType::Int4)];
    let copied = db.transact(|tx| {
        let new = tx.create_table(&TableDef::new("new", columns.clone()).with_residence(Residence::Disk))?;
        let mut copied = 0;
        let keys = tx.rows(&table, &Scan::all())?.collect::<Result<Vec<_>>>()?;
        for row in keys {
            tx.insert(&new, &[row.get(0)?])?;
            copied += 1;
        }
        Ok(copied)
    });
    assert_eq!(copied, Ok(ROWS / 2));
    db.close().unwrap();
}

/// More pages than a transaction may keep: an eighth of the pool.
#[test]
fn an_execution_that_needs_many_pages_goes_on_in_one_stage() {
    for strategy in [TwoStage::Tste, TwoStage::Otste] {
        let (db, table) = cold(strategy);
        db.transact(|tx| tx.get(&table, 0)).unwrap();
        let before = account(&db);
        let runs = Cell::new(0);
        let rows = db.transact(|tx| {
            runs.set(runs.get() + 1);
            tx.rows(&table, &Scan::all()).map(Iterator::count)
        });
        assert_eq!(
            (rows, runs.get()),
            (Ok(ROWS as usize / 2), if strategy == TwoStage::Tste { 2 } else { 3 })
        );
        let met = account(&db);
        assert_eq!(met.fallbacks, before.fallbacks + 1, "{met:?}");
        assert_eq!(met.kept_pages, before.kept_pages, "they are let go: {met:?}");
        assert!(met.lock_held_io_waits > before.lock_held_io_waits, "the rest is read under locks: {met:?}");
        // All of it is in memory by now, and is too much all the same.
        runs.set(0);
        db.transact(|tx| {
            runs.set(runs.get() + 1);
            tx.rows(&table, &Scan::all()).map(Iterator::count)
        })
        .unwrap();
        assert_eq!(runs.get(), if strategy == TwoStage::Tste { 2 } else { 1 });
        assert_eq!(account(&db).fallbacks, before.fallbacks + 2);
        assert_eq!(db.metrics().pages.kept, 0);
        db.close().unwrap();
    }
}

/// Transactions that touch tables in memory alone have one stage, beside tables on disk, too.
#[test]
fn transactions_in_memory_have_one_stage() {
    let (db, _) = cold(TwoStage::Tste);
    let few = TableDef::new("few", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    let few = db.transact(|tx| tx.create_table(&few)).unwrap();
    for key in 0..10 {
        let runs = Cell::new(0);
        db.transact(|tx| {
            runs.set(runs.get() + 1);
            tx.insert(&few, &[Value::Int4(key)])
        })
        .unwrap();
        assert_eq!(runs.get(), 1);
    }
    assert!(db.read(|tx| tx.get(&few, 3)).unwrap().is_some());
    assert_eq!(db.metrics().two_stage, []);
    db.close().unwrap();
}

/// A transaction that only reads has a fetch stage, too.
#[test]
fn read_only_transactions_are_fetched_for() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let before = account(&db);
    assert!(db.read(|tx| tx.get(&table, 4 * FAR)).unwrap().is_some());
    let met = account(&db);
    assert_eq!(met.lock_held_io_waits, before.lock_held_io_waits, "{met:?}");
    assert_eq!(met.conversions, before.conversions + 1, "{met:?}");
    db.close().unwrap();
}

/// A cancel and a time-out reach a transaction in its fetch stage, and end it.
#[test]
fn a_fetch_stage_hears_cancel_and_time_out() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let runs = Cell::new(0);
    let cancelled = db.transact(|tx| {
        runs.set(runs.get() + 1);
        tx.canceller().cancel();
        tx.get(&table, 2).map(drop)
    });
    assert_eq!((cancelled, runs.get()), (Err(Error::Cancelled), 2));
    let options = TxOptions { timeout: Some(Duration::from_millis(1)), ..TxOptions::default() };
    let late = db.transact_with(&options, |tx| {
        std::thread::sleep(Duration::from_millis(5));
        tx.get(&table, 2).map(drop)
    });
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    db.close().unwrap();
}

/// Kept pages do not leave, whatever else is read meanwhile, and are free to leave afterwards.
#[test]
fn kept_pages_stay_until_the_end_of_the_operate_stage() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let big = TableDef::new("big", columns).with_primary_key(&["id"]).with_residence(Residence::Disk);
    let big = db.transact(|tx| tx.create_table(&big)).unwrap();
    let wide = |key| [Value::Int4(key), Value::Text("x".repeat(1_500))];
    let others = || {
        for from in (0..4_000).step_by(100) {
            let mut other = db.begin().unwrap();
            (from..from + 100).try_for_each(|key| other.insert(&big, &wide(key))).unwrap();
            other.commit().unwrap();
        }
    };
    let before = account(&db);
    let runs = AtomicU32::new(0);
    db.transact(|tx| {
        if runs.fetch_add(1, Ordering::Relaxed) == 1 {
            assert!(db.metrics().pages.kept > 0);
            std::thread::scope(|scope| scope.spawn(others).join().unwrap());
        }
        tx.get(&table, 4 * FAR).map(|row| assert!(row.is_some()))
    })
    .unwrap();
    let met = account(&db);
    assert!(db.metrics().pages.pages > 2 * 1_024, "the test's own premise: pages have left");
    assert_eq!(met.misprefetches, before.misprefetches, "{met:?}");
    assert_eq!(db.metrics().pages.kept, 0, "none is kept for ever");
    db.close().unwrap();
}

/// Rows by an index lie here and there, and their pages are read again and again.
#[test]
fn a_page_is_kept_once_however_often_it_is_read() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let before = account(&db);
    db.transact(|tx| {
        (0..100).try_for_each(|_| tx.get(&table, 2 * FAR).and_then(|_| tx.get(&table, 40 * FAR)).map(drop))
    })
    .unwrap();
    let met = account(&db);
    assert_eq!(met.fallbacks, before.fallbacks, "two pages are not too many: {met:?}");
    assert_eq!(met.kept_pages - before.kept_pages, 2, "{met:?}");
    db.close().unwrap();
}

/// An entry ends in the primary key, which moves far.
#[test]
fn entries_of_a_moved_primary_key_are_fetched() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options(TwoStage::TwoPhaseLocking)).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("part", ColumnType::Int4)];
    let definition = TableDef::new("pairs", columns)
        .with_primary_key(&["id"])
        .with_index("pairs_by_part", &["part"], false)
        .with_residence(Residence::Disk);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    for from in (0..ROWS).step_by(500) {
        let insert = |tx: &mut Transaction<'_>, id| tx.insert(&table, &[Value::Int4(2 * id), Value::Int4(1)]);
        db.transact(|tx| (from..from + 500).try_for_each(|id| insert(tx, id))).unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, options(TwoStage::Tste)).unwrap();
    let table = db.table("pairs").unwrap();
    assert_eq!(db.transact(|tx| tx.update(&table, 0, &[(0, Value::Int4(2 * ROWS - 3))])), Ok(true));
    assert_eq!(account(&db).misprefetches, 0, "{:?}", account(&db));
    db.close().unwrap();
}

/// Its reads are not locked: the row of a change has gone when the stage comes to it again.
#[test]
fn a_row_that_goes_while_it_is_fetched_is_no_panic() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let (mut runs, mut panics) = (0, 0);
    let there = db.transact(|tx| {
        runs += 1;
        if runs == 1 {
            let (db, table) = (db.clone(), table.clone());
            crate::store::AFTER_FOLLOWING.set(Some(Box::new(move || {
                let delete = || {
                    let mut other = db.begin().unwrap();
                    assert!(other.delete(&table, 4 * FAR).unwrap());
                    other.commit().unwrap();
                };
                std::thread::scope(|scope| scope.spawn(delete).join().unwrap());
            })));
        }
        let update = || tx.update(&table, 4 * FAR, &[(1, Value::Int4(1))]);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(update)).unwrap_or_else(|_| {
            panics += 1;
            Ok(false)
        })
    });
    assert_eq!((there, panics), (Ok(false), 0));
    db.close().unwrap();
}

/// Before its commit another transaction's entry is there already.
#[test]
fn a_fetch_stage_finds_no_row_by_a_key_that_it_does_not_have() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let mut other = db.begin().unwrap();
    assert!(other.update(&table, 8, &[(2, Value::Int4(-5))]).unwrap());
    let (mut other, mut seen) = (Some(other), Vec::new());
    db.transact(|tx| {
        seen.push(tx.look_by(&table, "things_by_code", -5, ScanMode::Share, |row| row.get_i32(2))?);
        if let Some(other) = other.take() {
            std::thread::scope(|scope| scope.spawn(|| other.abort().unwrap()).join().unwrap());
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [None, None]);
    db.close().unwrap();
}

#[test]
fn a_fetch_stage_waits_for_no_lock_whatever_its_body_chooses() {
    let (db, table) = cold(TwoStage::Tste);
    db.transact(|tx| tx.get(&table, 0)).unwrap();
    let mut other = db.begin().unwrap();
    let whole = Scan { mode: ScanMode::Update, ..Scan::all() };
    other.scan(&table, &whole, |_, _| Ok(ControlFlow::Break(()))).unwrap();
    let options = TxOptions { lock_timeout: Some(Duration::from_millis(20)), ..TxOptions::default() };
    let mut found = Vec::new();
    let done = db.transact_with(&options, |tx| {
        tx.set_lock_policy(LockPolicy::Wait);
        found.push(tx.get(&table, 2).map(|row| row.is_some()));
        found.last().unwrap().clone()
    });
    assert!(matches!(done, Err(Error::LockTimeout { .. })), "{done:?}");
    assert!(!matches!(found[0], Err(Error::LockTimeout { .. })), "{found:?}");
    other.abort().unwrap();
    db.close().unwrap();
}

#[test]
fn a_read_of_both_kinds_of_tables_has_two_runs() {
    let (db, table) = cold(TwoStage::Tste);
    let few = TableDef::new("few", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    let few = db.transact(|tx| tx.create_table(&few)).unwrap();
    db.transact(|tx| tx.get(&table, 0).and_then(|_| tx.insert(&few, &[Value::Int4(1)]))).unwrap();
    let runs = Cell::new(0);
    db.read(|tx| {
        runs.set(runs.get() + 1);
        tx.get(&few, 1)?;
        tx.get(&table, 4 * FAR)
    })
    .unwrap();
    assert_eq!(runs.get(), 2);
    db.close().unwrap();
}

/// Leaves that are kept hold the pages that lead to them, too: of many small trees twice as many as are counted.
#[test]
fn kept_pages_leave_frames_for_others() {
    const EACH: usize = 128;
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options(TwoStage::TwoPhaseLocking)).unwrap();
    for n in 0..=4 * EACH {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let definition = TableDef::new(format!("t{n}"), columns);
        let definition = definition.with_primary_key(&["id"]).with_residence(Residence::Disk);
        db.transact(|tx| {
            let table = tx.create_table(&definition)?;
            (0..8).try_for_each(|key| tx.insert(&table, &[Value::Int4(key), Value::Text("x".repeat(1_000))]))
        })
        .unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, options(TwoStage::Tste)).unwrap();
    let tables: Vec<Table> = (0..=4 * EACH).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
    db.transact(|tx| tx.get(&tables[0], 1)).unwrap();
    let (inside, leave) = (AtomicU32::new(0), AtomicU32::new(0));
    let pause = || std::thread::sleep(Duration::from_millis(1));
    let read = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|nth| {
                let (db, tables, inside, leave) = (&db, &tables[nth * EACH..][..EACH], &inside, &leave);
                scope.spawn(move || {
                    let mut runs = 0;
                    db.transact(|tx| {
                        runs += 1;
                        let read = tables.iter().try_for_each(|table| tx.get(table, 1).map(drop));
                        if runs == 2 {
                            inside.fetch_add(1, Ordering::Relaxed);
                            while leave.load(Ordering::Relaxed) == 0 {
                                pause();
                            }
                        }
                        read
                    })
                })
            })
            .collect();
        while inside.load(Ordering::Relaxed) < 4 {
            pause();
        }
        let read = db.begin().unwrap().get(&tables[4 * EACH], 1).map(|row| row.is_some());
        leave.store(1, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        read
    });
    assert_eq!(read, Ok(true));
    assert_eq!(db.metrics().pages.kept, 0);
    db.close().unwrap();
}

/// Pages are not read or written after the close, though a transaction is still held: another process may have the directory.
#[test]
fn a_transaction_that_outlives_its_database_reads_no_page() {
    let (db, table) = cold(TwoStage::TwoPhaseLocking);
    let mut tx = db.begin().unwrap();
    assert!(tx.get(&table, 0).unwrap().is_some());
    db.close().unwrap();
    let late = tx.get(&table, 40 * FAR);
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
}
