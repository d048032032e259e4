//! Tables that move to memory or to the disk while they are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::disk_tables::{Model, NAMES, assert_same, change, contents, definition, options};
use crate::common::hooked::{About, HookedDisk};
use crate::common::seeds::for_a_while_until;
use rialto::io::{FaultKind, FaultyDisk, Random};
use rialto::row::Value;
use rialto::{
    Checkpointing, Database, Durability, Error, MoveOptions, Options, Residence, Scan, Table, TableDef,
    Transaction, TxOptions,
};

const NAME: &str = NAMES[0];
/// Rows that nothing changes: so many that the table is not small.
const STILL_ROWS: i32 = 1_500;

fn quiet() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn row(id: i32) -> [Value; 4] {
    let text = Value::Text(if id % 100 == 0 { "y".repeat(20_000) } else { "y".to_owned() });
    [Value::Int4(id), Value::Int4(id % 5), Value::Int4(id), text]
}

/// A table with rows, and what is in it.
fn filled(db: &Database, residence: Residence) -> Model {
    fill(db, &definition(NAME).with_residence(residence));
    contents(db)
}

fn fill(db: &Database, definition: &TableDef) {
    let table = db.transact(|tx| tx.create_table(definition)).unwrap();
    let ids = 5_000..5_000 + STILL_ROWS;
    db.transact(|tx| ids.clone().try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
}

/// Some changes in a transaction, and in the model as if it commits.
fn change_some(db: &Database, table: &Table, random: &mut Random, model: &mut Model) -> Result<(), Error> {
    let seed = random.below(u64::MAX);
    let mut rows = model[NAME].clone();
    let before = rows.clone();
    let done = db.transact(|tx| {
        // A body may run several times.
        let mut random = Random::new(seed);
        rows.clone_from(&before);
        (0..1 + random.below(4)).try_for_each(|_| change(tx, table, &mut random, &mut rows))
    });
    model.insert(NAME, rows);
    done
}

fn other(residence: Residence) -> Residence {
    match residence {
        Residence::Memory => Residence::Disk,
        Residence::Disk => Residence::Memory,
    }
}

/// Lets a move go on also when the test fails.
struct LetsGo<'a>(&'a FaultyDisk);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Begins to move the table, which then hangs at its load file; runs `meanwhile`, and lets the move go on.
fn amid_a_move<T>(
    disk: &FaultyDisk,
    db: &Database,
    to: Residence,
    options: &MoveOptions,
    meanwhile: impl FnOnce() -> T,
) -> (Result<(), Error>, T) {
    disk.hang(FaultKind::Write, "load-");
    std::thread::scope(|scope| {
        let lets_go = LetsGo(disk);
        let moving = scope.spawn(|| db.set_residence_with(NAME, to, options));
        while disk.hanging() == 0 {
            assert!(!moving.is_finished(), "it writes a load file");
            std::thread::yield_now();
        }
        let done = meanwhile();
        drop(lets_go);
        (moving.join().unwrap(), done)
    })
}

/// Rows are inserted, changed and deleted while the table is copied, and unique keys go from one row to another. The table has all of
/// that when it has moved, and after a crash.
#[test]
fn a_table_that_moves_is_read_and_changed_meanwhile() {
    let variants = [
        (Residence::Memory, false),
        (Residence::Disk, false),
        (Residence::Memory, true),
        (Residence::Disk, true),
    ];
    for (from, gets_its_key_later) in variants {
        let disk = FaultyDisk::new(11);
        let db = Database::open_on(disk.clone(), quiet()).unwrap();
        let definition = definition(NAME).with_residence(from);
        if gets_its_key_later {
            fill(&db, &TableDef { primary_key: None, ..definition });
            db.transact(|tx| tx.add_primary_key(NAME, &["id"])).unwrap();
        } else {
            fill(&db, &definition);
        }
        let mut model = contents(&db);
        let table = db.table(NAME).unwrap();
        let mut random = Random::new(5);
        let (moved, ()) = amid_a_move(&disk, &db, other(from), &MoveOptions::default(), || {
            for _ in 0..300 {
                change_some(&db, &table, &mut random, &mut model).unwrap();
            }
            let rows = model.get_mut(NAME).unwrap();
            // Two rows that were copied exchange their codes, and one goes.
            let exchange = |tx: &mut Transaction<'_>| {
                for (id, code) in [(5_001, -1), (5_002, 5_001), (5_001, 5_002)] {
                    assert!(tx.update(&table, id, &[(2, Value::Int4(code))])?);
                }
                tx.delete(&table, 5_003)
            };
            assert!(db.transact(exchange).unwrap());
            (rows.get_mut(&5_001).unwrap().1, rows.get_mut(&5_002).unwrap().1) = (5_002, 5_001);
            rows.remove(&5_003);
            let mut there = 0;
            db.read(|tx| {
                there = 0;
                tx.scan(&table, &Scan::all(), |_, _| {
                    there += 1;
                    Ok(std::ops::ControlFlow::Continue(()))
                })
            })
            .unwrap();
            assert_eq!((there, table.residence()), (rows.len(), from));
        });
        moved.unwrap();
        assert_eq!(db.table(NAME).unwrap().residence(), other(from));
        assert_same(&contents(&db), &model, &format!("moved from {from}"));
        change_some(&db, &table, &mut random, &mut model).unwrap();
        disk.crash();
        drop((db, table));
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        assert_eq!(db.table(NAME).unwrap().residence(), other(from));
        assert_same(&contents(&db), &model, &format!("moved from {from}, opened"));
    }
}

/// A definition that changes the table while it is copied has its effect, and so has the move.
#[test]
fn a_table_that_is_redefined_while_it_moves_moves_as_it_is_then() {
    type Step<'a> = &'a dyn Fn(&mut Transaction<'_>, &Table) -> Result<(), Error>;
    let steps: [(&str, Step<'_>, bool); 4] = [
        ("an index", &|tx, _| tx.create_index(NAME, "by_both", &["part", "code"], false), true),
        ("no rows", &|tx, table| tx.truncate(table), true),
        ("no table", &|tx, _| tx.drop_table(NAME), false),
        (
            "another table",
            &|tx, _| {
                tx.drop_table(NAME)?;
                let table = tx.create_table(&definition(NAME).with_residence(Residence::Memory))?;
                tx.insert(&table, &row(7))
            },
            true,
        ),
    ];
    for (what, step, is_left) in steps {
        let disk = FaultyDisk::new(12);
        let db = Database::open_on(disk.clone(), quiet()).unwrap();
        filled(&db, Residence::Memory);
        let table = db.table(NAME).unwrap();
        let (moved, model) = amid_a_move(&disk, &db, Residence::Disk, &MoveOptions::default(), || {
            db.transact(|tx| step(tx, &table)).unwrap();
            contents(&db)
        });
        match (moved, is_left) {
            (Ok(()), true) => {
                let moved = db.table(NAME).unwrap();
                assert_eq!(moved.residence(), Residence::Disk, "{what}");
                let has_index = moved.schema().indexes().iter().any(|index| index.name == "by_both");
                assert_eq!(has_index, what == "an index", "{what}");
            }
            (Err(Error::NoSuchTable { table }), false) => assert_eq!(table, NAME),
            (moved, _) => panic!("{what}: {moved:?}"),
        }
        assert_same(&contents(&db), &model, what);
        disk.crash();
        drop((db, table));
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        assert_same(&contents(&db), &model, &format!("{what}, opened"));
    }
}

/// A move that fails, or is cancelled, leaves the table as it was, and no file, no memory and no page.
#[test]
fn a_move_that_comes_to_nothing_leaves_nothing() {
    let disk = FaultyDisk::new(13);
    let db = Database::open_on(disk.clone(), Options { memory_bytes: 4 << 20, ..quiet() }).unwrap();
    let model = filled(&db, Residence::Disk);
    let load_files = || {
        let names = rialto::io::Disk::list(&*disk).unwrap();
        names.into_iter().filter(|name| name.starts_with("load-")).count()
    };
    let (used, files) = (db.metrics().memory_used, load_files());
    let unchanged = |what: &str| {
        assert_eq!(db.table(NAME).unwrap().residence(), Residence::Disk, "{what}");
        assert_same(&contents(&db), &model, what);
        // Free nodes of indexes may have gone, too.
        assert!(db.metrics().memory_used <= used, "{what}");
        assert_eq!(load_files(), files, "{what}");
    };
    let by_canceller = || {
        let canceller = db.canceller();
        (MoveOptions { canceller: Some(canceller.clone()), ..MoveOptions::default() }, canceller)
    };
    let (options, canceller) = by_canceller();
    canceller.cancel();
    assert_eq!(db.set_residence_with(NAME, Residence::Memory, &options), Err(Error::Cancelled));
    unchanged("cancelled at once");
    let (options, canceller) = by_canceller();
    let (moved, ()) = amid_a_move(&disk, &db, Residence::Memory, &options, || canceller.cancel());
    assert_eq!(moved, Err(Error::Cancelled));
    unchanged("cancelled at its file");

    let cancelled_while_it_waits = || {
        let (options, canceller) = by_canceller();
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| db.set_residence_with(NAME, Residence::Memory, &options));
            while db.lock_waits().is_empty() {
                assert!(!moving.is_finished());
                std::thread::yield_now();
            }
            canceller.cancel();
            assert_eq!(moving.join().unwrap(), Err(Error::Cancelled));
        });
    };
    // It waits for the lock on a row.
    let table = db.table(NAME).unwrap();
    let mut other = db.begin().unwrap();
    assert!(other.update(&table, 5_700, &[(1, Value::Int4(-1))]).unwrap());
    cancelled_while_it_waits();
    other.abort().unwrap();
    unchanged("cancelled while it waits for a row");
    // It reads beside one that reads, and then waits for the lock on the table.
    let mut other = db.begin().unwrap();
    assert!(other.get(&table, 5_700).unwrap().is_some());
    cancelled_while_it_waits();
    other.abort().unwrap();
    unchanged("cancelled while it waits for the table");

    disk.fail(FaultKind::Write, "load-", 1);
    let moved = db.set_residence(NAME, Residence::Memory);
    assert!(matches!(&moved, Err(Error::Io { file, .. }) if file.starts_with("load-")), "{moved:?}");
    unchanged("without its file");

    let inside = db.transact(|_| db.set_residence(NAME, Residence::Memory));
    assert_eq!(inside, Err(Error::Nested));

    // Its rows have no room in memory.
    db.transact(|tx| {
        (0..300).try_for_each(|id| {
            let text = Value::Text("x".repeat(20_000));
            tx.insert(&table, &[Value::Int4(id), Value::Int4(0), Value::Int4(id), text])
        })
    })
    .unwrap();
    let model = contents(&db);
    let moved = db.set_residence(NAME, Residence::Memory);
    assert!(matches!(moved, Err(Error::MemoryLimit { .. })), "{moved:?}");
    assert_same(&contents(&db), &model, "without room");
    assert!(db.metrics().memory_used <= used);
    assert_eq!(load_files(), files);
}

/// A table goes to and fro while a thread changes it, until the disk goes down.
#[test]
fn tables_that_move_keep_what_was_committed_whenever_the_disk_goes_down() {
    let (mut moves, mut crashes_amid, mut meanwhile) = (0, 0, 0);
    let (first, seeds) = for_a_while_until(|seed| {
        let mut random = Random::new(seed);
        let disk = FaultyDisk::new(seed);
        let mut options = options(&mut random);
        if options.checkpoint == Checkpointing::None {
            options.checkpoint = Checkpointing::Fuzzy;
        }
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        let start = [Residence::Memory, Residence::Disk][random.below(2) as usize];
        let mut model = filled(&db, start);
        disk.crash_at(disk.steps() + 20 + random.below(400));
        let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let (after, has_moved) = std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let (mut to, mut has_moved) = (other(start), 0);
                while !is_over.load(Ordering::Relaxed) && has_moved < 6 {
                    let before = changes.load(Ordering::Relaxed);
                    match db.set_residence(NAME, to) {
                        Ok(()) => has_moved += 1,
                        Err(_) => break,
                    }
                    meanwhile += u64::from(changes.load(Ordering::Relaxed) > before);
                    to = other(to);
                }
                is_over.store(true, Ordering::Relaxed);
                has_moved
            });
            let table = db.table(NAME).unwrap();
            let mut after = None;
            while !is_over.load(Ordering::Relaxed) {
                let mut next = model.clone();
                if change_some(&db, &table, &mut random, &mut next).is_err() {
                    after = Some(next);
                    is_over.store(true, Ordering::Relaxed);
                    break;
                }
                changes.fetch_add(1, Ordering::Relaxed);
                model = next;
            }
            (after, mover.join().unwrap())
        });
        moves += has_moved;
        crashes_amid += u64::from(disk.is_down());
        disk.crash();
        drop(db);
        let db = Database::open_on(disk.restart(), options).unwrap();
        let found = contents(&db);
        if after.as_ref() != Some(&found) {
            assert_same(&found, &model, &format!("RIALTO_SEED={seed}, opened"));
        }
        moves >= 3 && crashes_amid > 0 && meanwhile > 0
    });
    println!(
        "{seeds} seeds from {first}: {moves} moves, {meanwhile} of them with changes, {crashes_amid} crashes amid them"
    );
    assert!(moves >= 3 && crashes_amid > 0 && meanwhile > 0, "{moves} {crashes_amid} {meanwhile}");
}

/// While rows change faster than a move can copy them it still comes to its end.
#[test]
fn a_move_ends_beside_a_load_that_does_not() {
    let db = Database::open_on(rialto::io::MemoryDisk::new(), quiet()).unwrap();
    filled(&db, Residence::Memory);
    let table = db.table(NAME).unwrap();
    let (is_over, changes) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for nth in 0..3 {
            let (is_over, changes, table, db) = (is_over.clone(), &changes, &table, &db);
            scope.spawn(move || {
                let mut random = Random::new(nth);
                while !is_over.load(Ordering::Relaxed) {
                    let id = 5_000 + random.below(STILL_ROWS as u64) as i32;
                    let text = Value::Text("z".repeat(random.below(50) as usize));
                    let options = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
                    assert!(
                        db.transact_with(&options, |tx| tx.update(table, id, &[(3, text.clone())])).unwrap()
                    );
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut to = Residence::Disk;
        for _ in 0..4 {
            db.set_residence(NAME, to).unwrap();
            assert_eq!(db.table(NAME).unwrap().residence(), to);
            to = other(to);
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(changes.load(Ordering::Relaxed) > 0);
    assert_eq!(contents(&db)[NAME].len(), STILL_ROWS as usize);
}

/// More rows change while the load file is written than are left for the table's lock: they are copied again before it, and logged.
#[test]
fn rows_that_change_behind_the_load_file_are_copied_again() {
    for from in [Residence::Memory, Residence::Disk] {
        let disk = FaultyDisk::new(17);
        let db = Database::open_on(disk.clone(), quiet()).unwrap();
        let mut model = filled(&db, from);
        let load_files = || {
            let names = rialto::io::Disk::list(&*disk).unwrap();
            names.into_iter().filter(|name| name.starts_with("load-")).count()
        };
        let before = load_files();
        let table = db.table(NAME).unwrap();
        let (moved, ()) = amid_a_move(&disk, &db, other(from), &MoveOptions::default(), || {
            // All rows, with the unique codes of pairs exchanged.
            for id in (5_000..5_000 + STILL_ROWS).step_by(2) {
                let exchange = |tx: &mut Transaction<'_>| {
                    for (id, code) in [(id, -1), (id + 1, id), (id, id + 1)] {
                        let changes = [(2, Value::Int4(code)), (3, Value::Text("z".to_owned()))];
                        assert!(tx.update(&table, id, &changes)?);
                    }
                    Ok(())
                };
                db.transact(exchange).unwrap();
            }
        });
        moved.unwrap();
        for (id, row) in model.get_mut(NAME).unwrap() {
            (row.1, row.2) = (id ^ 1, "z".to_owned());
        }
        assert_eq!(load_files(), before + 1, "it was not moved under its lock");
        assert_same(&contents(&db), &model, &format!("moved from {from}"));
        disk.crash();
        drop((db, table));
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        assert_same(&contents(&db), &model, &format!("moved from {from}, opened"));
    }
}

/// Rows that were copied before the move waits for another one change meanwhile.
#[test]
fn rows_that_change_while_others_are_copied_are_copied_again() {
    for from in [Residence::Memory, Residence::Disk] {
        let db = Database::open_on(rialto::io::MemoryDisk::new(), quiet()).unwrap();
        let mut model = filled(&db, from);
        let rows = model.get_mut(NAME).unwrap();
        let table = db.table(NAME).unwrap();
        let mut holder = db.begin().unwrap();
        assert!(holder.update(&table, 5_700, &[(1, Value::Int4(-1))]).unwrap());
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| db.set_residence(NAME, other(from)));
            while db.lock_waits().is_empty() {
                assert!(!moving.is_finished());
                std::thread::yield_now();
            }
            db.transact(|tx| {
                assert!(tx.update(&table, 5_001, &[(1, Value::Int4(-2))])? && tx.delete(&table, 5_002)?);
                tx.insert(&table, &row(4_999))
            })
            .unwrap();
            holder.commit().unwrap();
            moving.join().unwrap().unwrap();
        });
        (rows.get_mut(&5_700).unwrap().0, rows.get_mut(&5_001).unwrap().0) = (-1, -2);
        rows.remove(&5_002);
        rows.insert(4_999, (4, 4_999, "y".to_owned()));
        assert_same(&contents(&db), &model, &format!("moved from {from}"));
    }
}

/// Rows without a key move with their numbers.
#[test]
fn a_table_without_a_key_moves_while_rows_come_and_go() {
    for from in [Residence::Memory, Residence::Disk] {
        let disk = FaultyDisk::new(14);
        let db = Database::open_on(disk.clone(), quiet()).unwrap();
        fill(&db, &TableDef { primary_key: None, ..definition(NAME).with_residence(from) });
        let table = db.table(NAME).unwrap();
        let (moved, ()) = amid_a_move(&disk, &db, other(from), &MoveOptions::default(), || {
            (0..50).for_each(|id| db.transact(|tx| tx.insert(&table, &row(id))).unwrap());
            let mut keys = Vec::new();
            let some = Scan { limit: Some(30), ..Scan::all() };
            db.read(|tx| {
                keys.clear();
                tx.scan(&table, &some, |key, _| {
                    keys.push(key.clone());
                    Ok(std::ops::ControlFlow::Continue(()))
                })
            })
            .unwrap();
            db.transact(|tx| keys.iter().try_for_each(|key| tx.delete_at(&table, key).map(drop))).unwrap();
        });
        moved.unwrap();
        let expected: Vec<i32> = (0..50).chain(5_030..5_000 + STILL_ROWS).collect();
        let ids = |db: &Database| contents(db)[NAME].keys().copied().collect::<Vec<_>>();
        assert_eq!(ids(&db), expected, "moved from {from}");
        db.transact(|tx| tx.insert(&table, &row(51))).unwrap();
        disk.crash();
        drop((db, table));
        let db = Database::open_on(disk.restart(), quiet()).unwrap();
        assert_eq!(ids(&db).len(), expected.len() + 1, "moved from {from}, opened");
    }
}

/// At its bounds a move goes on under the table's lock.
#[test]
fn a_move_at_a_bound_takes_the_lock() {
    // More is changed after its load file than its packet has room for.
    let disk = FaultyDisk::new(15);
    let options = Options { write_set_bytes_max: 1 << 20, ..quiet() };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let mut model = filled(&db, Residence::Memory);
    let table = db.table(NAME).unwrap();
    let (moved, ()) = amid_a_move(&disk, &db, Residence::Disk, &MoveOptions::default(), || {
        for (id, row) in model.get_mut(NAME).unwrap() {
            row.2 = "z".repeat(2_000);
            db.transact(|tx| tx.update(&table, *id, &[(3, Value::Text(row.2.clone()))])).unwrap();
        }
    });
    moved.unwrap();
    assert_eq!(table.residence(), Residence::Disk);
    assert_same(&contents(&db), &model, "a small packet");
    disk.crash();
    drop((db, table));
    let db = Database::open_on(disk.restart(), options).unwrap();
    assert_same(&contents(&db), &model, "a small packet, opened");

    // No transaction is left for its reads.
    let options = Options { transactions_max: 1, ..quiet() };
    let db = Database::open_on(rialto::io::MemoryDisk::new(), options).unwrap();
    let model = filled(&db, Residence::Memory);
    db.set_residence(NAME, Residence::Disk).unwrap();
    assert_eq!(db.table(NAME).unwrap().residence(), Residence::Disk);
    assert_same(&contents(&db), &model, "one transaction");
}

/// Small tables, too, are not moved once that is cancelled.
#[test]
fn a_small_table_is_not_moved_after_a_cancel() {
    let db = Database::open_on(rialto::io::MemoryDisk::new(), quiet()).unwrap();
    let table =
        db.transact(|tx| tx.create_table(&definition(NAME).with_residence(Residence::Memory))).unwrap();
    let canceller = db.canceller();
    canceller.cancel();
    let options = MoveOptions { canceller: Some(canceller), ..MoveOptions::default() };
    assert_eq!(db.set_residence_with(NAME, Residence::Disk, &options), Err(Error::Cancelled));
    assert_eq!(table.residence(), Residence::Memory);
    db.set_residence(NAME, Residence::Disk).unwrap();
    assert_eq!(table.residence(), Residence::Disk);
}

/// I3: the error of a move rests on rows that it has read, and comes when these are durable.
#[test]
fn the_error_of_a_move_waits_for_what_it_rests_on() {
    let disk = FaultyDisk::new(16);
    let options =
        Options { memory_bytes: 4 << 20, log_writes: Some(rialto::io::Caching::Buffered), ..quiet() };
    let db = Database::open_on(disk.clone(), options).unwrap();
    filled(&db, Residence::Disk);
    let table = db.table(NAME).unwrap();
    disk.hang(FaultKind::Sync, "log-0");
    std::thread::scope(|scope| {
        let lets_go = LetsGo(&disk);
        let options = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
        db.transact_with(&options, |tx| {
            (0..300).try_for_each(|id| {
                let text = Value::Text("x".repeat(20_000));
                tx.insert(&table, &[Value::Int4(id), Value::Int4(0), Value::Int4(id), text])
            })
        })
        .unwrap();
        let moving = scope.spawn(|| db.set_residence(NAME, Residence::Memory));
        while disk.hanging() == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(!moving.is_finished(), "an error before what it rests on is durable");
        drop(lets_go);
        let moved = moving.join().unwrap();
        assert!(matches!(moved, Err(Error::MemoryLimit { .. })), "{moved:?}");
    });
}

/// Code of others that panics amid a move leaves nothing of it.
#[test]
fn a_disk_that_panics_leaves_nothing_of_a_move() {
    for from in [Residence::Disk, Residence::Memory] {
        let disk = HookedDisk::new(rialto::io::MemoryDisk::new());
        let db = Database::open_on(disk.clone(), quiet()).unwrap();
        let model = filled(&db, from);
        db.checkpoint().unwrap();
        let load_files = || {
            let names = rialto::io::Disk::list(&*disk).unwrap();
            names.into_iter().filter(|name| name.starts_with("load-")).count()
        };
        let before = (db.metrics().memory_used, db.metrics().pages.pages, load_files());
        disk.before(|file: &str, _: About| assert!(!file.starts_with("load-"), "the test's own panic"));
        let moving = std::panic::AssertUnwindSafe(|| db.set_residence(NAME, other(from)));
        assert!(std::panic::catch_unwind(moving).is_err());
        disk.unhook();
        let mut model = model;
        for checkpoint in 0..3 {
            // A checkpoint has to have something to write. Each frees what the one before it needed.
            let table = db.table(NAME).unwrap();
            db.transact(|tx| tx.update(&table, 5_001, &[(1, Value::Int4(checkpoint))]).map(drop)).unwrap();
            model.get_mut(NAME).unwrap().get_mut(&5_001).unwrap().0 = checkpoint;
            db.checkpoint().unwrap();
        }
        assert!(db.metrics().memory_used <= before.0, "moved from {from}");
        assert_eq!((db.metrics().pages.pages, load_files()), (before.1, before.2), "moved from {from}");
        assert_same(&contents(&db), &model, "after a panic");
        db.set_residence(NAME, other(from)).unwrap();
        assert_same(&contents(&db), &model, "moved after a panic");
    }
}
