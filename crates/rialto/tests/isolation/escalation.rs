//! Scans of so many rows that they request the whole table instead of further row locks.

use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::engines;
use crate::common::seeds::for_a_while;
use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Direction, Durability, Engine, Error, Flow, KeyBound, LockPolicy,
    Options, Procedure, Scan, ScanMode, Table, TableDef, TxOptions,
};

/// A scan that has locked this many rows requests the table.
const ESCALATES_AT: i32 = 4_096;
const BY_N: WhichIndex = WhichIndex::Secondary(0);

fn open(engine: Engine) -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine,
        ..Options::default()
    };
    Database::open_on(MemoryDisk::new(), options).unwrap()
}

/// Rows of `id`, the same number by an index of its own, and a short text.
fn filled(engine: Engine, rows: i32) -> (Database, Table) {
    let db = open(engine);
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    let table = db
        .transact(|tx| {
            tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
            tx.create_index("t", "by_n", &["n"], false)?;
            tx.table("t")
        })
        .unwrap();
    for from in (0..rows).step_by(100) {
        let row = |id| [Value::Int4(id), Value::Int4(id), Value::Text("old".to_owned())];
        db.transact(|tx| (from..from + 100).try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
    }
    (db, table)
}

fn between(from: i32, to: i32) -> Scan {
    let [lower, upper] = [from, to].map(|id| KeyBound::Included(vec![Value::Int4(id)]));
    Scan { lower, upper, ..Scan::all() }
}

/// In the middle of a scan, just before it requests the table, rows after its position grow out of their slots.
fn a_scan_beside_moves(engine: Engine, scan: &Scan, entries: bool) {
    const ROWS: i32 = 4_400;
    let (db, table) = filled(engine, ROWS);
    let is_backward = scan.direction == Direction::Backward;
    let to_come = if is_backward { 0..ROWS - ESCALATES_AT } else { ESCALATES_AT..ROWS };
    let mut writer = Some(db.begin().unwrap());
    for id in to_come.clone() {
        let longer = Value::Text("new".repeat(300));
        assert_eq!(writer.as_mut().unwrap().update(&table, id, &[(2, longer)]), Ok(true));
    }
    let mut ids = Vec::new();
    let mut note = |id: i32| {
        ids.push(id);
        if ids.len() as i32 == ESCALATES_AT - 1 {
            writer.take().unwrap().commit().unwrap();
        }
    };
    let mut tx = db.begin().unwrap();
    let done = match entries {
        true => tx.entries(&table, scan, |_, entry| {
            note(entry.get_i32(0)?);
            Ok(ControlFlow::Continue(()))
        }),
        false => tx.scan(&table, scan, |_, row| {
            let id = row.get_i32(0)?;
            assert_eq!(row.get_str(2)?.starts_with("new"), to_come.contains(&id), "row {id}");
            note(id);
            Ok(ControlFlow::Continue(()))
        }),
    };
    tx.commit().unwrap();
    assert_eq!(done, Ok(()));
    if is_backward {
        ids.reverse();
    }
    assert!(ids.iter().copied().eq(0..ROWS), "{engine}, {scan:?}: {} rows of {ROWS}", ids.len());
}

#[test]
fn a_scan_that_asks_for_the_table_misses_no_row_that_moves() {
    for engine in Engine::ALL {
        for index in [WhichIndex::Primary, BY_N] {
            for direction in [Direction::Forward, Direction::Backward] {
                for mode in [ScanMode::Share, ScanMode::Update] {
                    // From a key on: a scan of all rows locks the table to begin with.
                    let lower = KeyBound::Included(vec![Value::Int4(0)]);
                    let scan = Scan { index, direction, mode, lower, ..Scan::all() };
                    // There the range is locked before the first row is read, and conflicts with the writer.
                    if engine.is_data_oriented() && index == WhichIndex::Primary {
                        continue;
                    }
                    a_scan_beside_moves(engine, &scan, false);
                    if mode == ScanMode::Share {
                        a_scan_beside_moves(engine, &scan, true);
                    }
                }
            }
        }
    }
}

#[test]
fn a_scan_of_many_rows_gets_the_table_if_it_is_free() {
    for engine in [Engine::thin(), Engine::central()] {
        let (db, table) = filled(engine, 10_000);
        let refusing = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let change_last = || {
            let mut tx = db.begin_with(&refusing).unwrap();
            let changed = tx.update(&table, 9_999, &[(2, Value::Text("new".to_owned()))]);
            tx.abort().unwrap();
            changed
        };
        let mut tx = db.begin().unwrap();
        tx.scan(&table, &between(0, 4_000), |_, _| Ok(ControlFlow::Continue(()))).unwrap();
        assert_eq!(change_last(), Ok(true), "{engine}: by so few rows it locks each");
        tx.scan(&table, &between(0, 5_000), |_, _| Ok(ControlFlow::Continue(()))).unwrap();
        assert!(matches!(change_last(), Err(Error::WouldWait { .. })), "{engine}: the table is locked");
        tx.abort().unwrap();
    }
}

#[test]
fn a_scan_that_refuses_to_wait_does_not_fail_for_a_row_outside_it() {
    for engine in [Engine::thin(), Engine::central()] {
        let (db, table) = filled(engine, 6_000);
        let mut writer = db.begin().unwrap();
        assert_eq!(writer.update(&table, 5_999, &[(2, Value::Text("new".to_owned()))]), Ok(true));
        let refusing = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        let mut tx = db.begin_with(&refusing).unwrap();
        let scanned = tx.scan(&table, &between(0, 5_000), |_, _| Ok(ControlFlow::Continue(())));
        assert_eq!(scanned, Ok(()), "{engine}");
    }
}

#[test]
fn two_update_scans_of_different_rows_are_no_deadlock() {
    for engine in [Engine::thin(), Engine::central()] {
        let (db, table) = filled(engine, 10_000);
        let both_have_many = Barrier::new(2);
        let run = |from: i32| -> Result<(), Error> {
            let mut tx = db.begin().unwrap();
            let scan = Scan { mode: ScanMode::Update, ..between(from, from + 4_999) };
            let mut rows = 0;
            tx.scan(&table, &scan, |_, _| {
                rows += 1;
                if rows == ESCALATES_AT - 96 {
                    both_have_many.wait();
                }
                Ok(ControlFlow::Continue(()))
            })
        };
        let run = &run;
        let ends = std::thread::scope(|scope| {
            [0, 5_000].map(|from| scope.spawn(move || run(from))).map(|one| one.join().unwrap())
        });
        assert_eq!(ends, [Ok(()), Ok(())], "{engine}");
    }
}

/// The rows of (a, b) have each `a` below this.
const GROUPS: i32 = 3;

/// A procedure that inserts rows into one group, counts those of another by either index, and gives their number: on
/// threads, two parts of a phase. Rows that are found by the secondary index are locked one by one.
fn with_groups(threads: usize, rows: i32) -> Database {
    let db = open(engines::of(2, threads));
    let columns = ["a", "b", "n"].map(|name| Column::new(name, ColumnType::Int4)).to_vec();
    let definition = TableDef::new("t", columns).with_primary_key(&["a", "b"]);
    let table = db
        .transact(|tx| {
            tx.create_table(&definition)?;
            tx.create_index("t", "by_n", &["a", "n"], false)?;
            tx.table("t")
        })
        .unwrap();
    let row = |a: i32, b: i32| [a, b, -b].map(Value::Int4);
    for a in 0..GROUPS {
        db.transact(|tx| (0..rows).try_for_each(|b| tx.insert(&table, &row(a, b)))).unwrap();
    }
    let put = Action::exclusive("t", move |tx, arguments, _| {
        let (a, from, count): (i32, i32, i32) = (arguments.get(0)?, arguments.get(2)?, arguments.get(3)?);
        let table = arguments.table()?;
        (from..from + count).try_for_each(|b| tx.insert(table, &row(a, b)))
    });
    let count = Action::shared("t", |tx, arguments, outputs| {
        let mut rows = 0;
        let of = vec![Value::Int4(arguments.get(1)?)];
        let index = if arguments.get::<i32>(4)? == 0 { WhichIndex::Primary } else { BY_N };
        tx.scan(arguments.table()?, &Scan::prefix(index, of), |_, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        outputs.push(rows);
        Ok(())
    });
    let flow = Flow::new().phase([put.by_argument(0), count.by_argument(1)]);
    db.register(Procedure::new("p", [ColumnType::Int4; 5], flow)).unwrap();
    db
}

/// The other part of its phase writes the same table: its transaction's own intention would conflict with it.
#[test]
fn scans_that_parts_make_see_each_row_once() {
    const ROWS: i32 = ESCALATES_AT + 400;
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let threads = random.below(4) as usize;
        let (about, db) = (format!("RIALTO_SEED={seed}, {threads} threads"), with_groups(threads, ROWS));
        let mut rows = [ROWS; GROUPS as usize];
        for nth in 0..20 {
            if nth % 5 == 0 {
                let bounds: Vec<_> = (1..GROUPS).filter(|_| random.chance(2, 3)).collect();
                let bounds: Vec<_> = bounds.into_iter().map(|a| vec![Value::Int4(a)]).collect();
                db.set_routing("t", WhichIndex::Primary, &bounds).unwrap();
            }
            let [a, other] = [0; 2].map(|_| random.below(GROUPS as u64) as usize);
            let (count, index) = (random.below(3) as i32, random.below(2) as i32);
            let arguments = [a as i32, other as i32, rows[a], count, index].map(Value::Int4);
            rows[a] += count;
            assert_eq!(db.call("p", &arguments), Ok(vec![Value::Int4(rows[other])]), "{about}, call {nth}");
        }
    });
    println!("tally: scans that parts make, {seeds} seeds, RIALTO_SEED={first}");
}

/// Scans of all rows, while other transactions make rows longer and shorter, so that these move, and insert rows in
/// place of others.
#[test]
fn scans_that_escalate_see_each_row_once() {
    const ROWS: i32 = 4_500;
    let scans = AtomicU64::new(0);
    let (first, seeds) = for_a_while(|seed| {
        let mut random = Random::new(seed);
        let engine = Engine::ALL[random.below(3) as usize];
        let (about, (db, table)) = (format!("RIALTO_SEED={seed}, {engine}"), filled(engine, ROWS));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (db, table, over, mut random) = (&db, &table, &over, random.fork());
                scope.spawn(move || {
                    for _ in 0..400 {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        let drawn = random.next();
                        let write =
                            |tx: &mut rialto::Transaction| move_rows(tx, table, &mut Random::new(drawn));
                        match db.transact(write) {
                            Ok(()) | Err(Error::Deadlock { .. } | Error::LockTimeout { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            for _ in 0..12 {
                let index = if random.chance(1, 2) { WhichIndex::Primary } else { BY_N };
                let mode = if random.chance(1, 3) { ScanMode::Update } else { ScanMode::Share };
                let scan = Scan { index, mode, ..between(-1, ROWS) };
                let mut ids = Vec::new();
                let outcome = db.transact(|tx| {
                    ids.clear();
                    tx.scan(&table, &scan, |_, row| {
                        ids.push(row.get_i32(0)?);
                        Ok(ControlFlow::Continue(()))
                    })
                });
                match outcome {
                    Ok(()) => {
                        assert!(ids.iter().copied().eq(0..ROWS), "{about}: {} rows by {index:?}", ids.len())
                    }
                    Err(Error::Deadlock { .. } | Error::LockTimeout { .. }) => {}
                    Err(error) => panic!("{about}: {error}"),
                }
                scans.fetch_add(1, Ordering::Relaxed);
            }
            over.store(true, Ordering::Relaxed);
        });
    });
    println!("tally: scans that escalate, {seeds} seeds, {} scans, RIALTO_SEED={first}", scans.into_inner());
}

/// Moves some of the rows after those that a scan locks one by one.
fn move_rows(tx: &mut rialto::Transaction, table: &Table, random: &mut Random) -> rialto::Result<()> {
    for _ in 0..10 {
        let id = ESCALATES_AT + random.below(350) as i32;
        let text = Value::Text("x".repeat(random.below(900) as usize));
        if random.chance(1, 4) {
            assert!(tx.delete(table, id)?, "row {id} is there");
            tx.insert(table, &[Value::Int4(id), Value::Int4(id), text])?;
        } else {
            assert!(tx.update(table, id, &[(2, text)])?, "row {id} is there");
        }
    }
    Ok(())
}
