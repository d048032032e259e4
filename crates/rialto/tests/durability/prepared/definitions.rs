//! Prepared transactions that have changed definitions.

use std::collections::BTreeMap;
use std::time::Instant;

use rialto::Residence;
use rialto::io::Random;

use super::*;

/// Tables and indexes with their rows: the rows, and how many each index leads to.
type State = BTreeMap<String, (Vec<Vec<Value>>, Vec<(String, usize)>)>;

fn state(db: &Database) -> State {
    let mut state = State::new();
    for table in db.tables().into_iter().filter(|table| !table.name().starts_with("rialto_")) {
        let mut rows = Vec::new();
        let mut counts = Vec::new();
        db.transact(|tx| {
            (rows, counts) = (Vec::new(), Vec::new());
            tx.scan(&table, &Scan::all(), |_, row| {
                rows.push(row.values());
                Ok(ControlFlow::Continue(()))
            })?;
            for (position, index) in table.schema().indexes().iter().enumerate() {
                let mut count = 0;
                let scan = Scan::prefix(WhichIndex::Secondary(position), Vec::new());
                tx.scan(&table, &scan, |_, _| {
                    count += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
                counts.push((index.name.clone(), count));
            }
            Ok(())
        })
        .unwrap();
        rows.sort_by_key(|row| format!("{row:?}"));
        let key = format!("{} {:?} {:?}", table.name(), table.schema().primary_key(), table.residence());
        state.insert(key, (rows, counts));
    }
    state
}

fn columns() -> Vec<Column> {
    vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)]
}

fn row(id: i32, n: i32) -> [Value; 2] {
    [Value::Int4(id), Value::Int4(n)]
}

/// The tables "t" with a primary key, "u" without one, "w" with an index, and "d" on the disk.
fn make(db: &Database) {
    two_columns(db);
    db.transact(|tx| {
        let u = tx.create_table(&TableDef::new("u", columns()))?;
        let w = tx.create_table(&TableDef::new("w", columns()).with_primary_key(&["id"]))?;
        tx.create_index("w", "w_n", &["n"], false)?;
        let d = TableDef { residence: Residence::Disk, ..TableDef::new("d", columns()) };
        let d = tx.create_table(&d.with_primary_key(&["id"]))?;
        (0..8).try_for_each(|id| {
            [&u, &w, &d].into_iter().try_for_each(|table| tx.insert(table, &row(id, id / 2)))
        })
    })
    .unwrap();
}

fn put(tx: &mut Transaction<'_>, table: &str, id: i32, n: i32) -> Result<(), Error> {
    let table = tx.table(table)?;
    tx.insert(&table, &row(id, n))
}

type Definition = fn(&mut Transaction<'_>) -> Result<(), Error>;

const DEFINITIONS: [(&str, Definition); 14] = [
    ("a new table", |tx| {
        let table = tx.create_table(&TableDef::new("new", columns()).with_primary_key(&["id"]))?;
        tx.insert(&table, &row(1, 5))?;
        tx.create_index("new", "new_n", &["n"], true)?;
        put(tx, "new", 2, 6)?;
        // Locks on what only this transaction sees.
        let table = tx.table("new")?;
        assert!(tx.get(&table, 2)?.is_some());
        assert!(tx.get_by(&table, WhichIndex::Secondary(0), 6)?.is_some());
        tx.count(&table).map(drop)
    }),
    ("a new table without a key", |tx| {
        let table = tx.create_table(&TableDef::new("new", columns()))?;
        (0..20).try_for_each(|id| tx.insert(&table, &row(id, 0)))
    }),
    ("a new table on the disk", |tx| {
        let table = TableDef { residence: Residence::Disk, ..TableDef::new("new", columns()) };
        let table = tx.create_table(&table.with_primary_key(&["id"]))?;
        tx.create_index("new", "new_n", &["n"], false)?;
        (0..20).try_for_each(|id| tx.insert(&table, &row(id, 0)))
    }),
    ("a dropped table", |tx| {
        let table = tx.table("t")?;
        assert!(tx.get(&table, 1)?.is_some());
        tx.update(&table, 2, &[(1, Value::Int4(9))])?;
        tx.drop_table("t")
    }),
    ("a table in the place of another", |tx| {
        tx.drop_table("w")?;
        let table = tx.create_table(&TableDef::new("w", columns()))?;
        tx.insert(&table, &row(1, 5))
    }),
    ("a table that comes and goes", |tx| {
        tx.create_table(&TableDef::new("new", columns()))?;
        tx.drop_table("new")?;
        put(tx, "t", 50, 1)
    }),
    ("an index", |tx| {
        let table = tx.table("t")?;
        tx.insert(&table, &row(50, 3))?;
        tx.create_index("t", "t_n", &["n"], false)?;
        put(tx, "t", 51, 3)?;
        let table = tx.table("t")?;
        assert!(tx.delete(&table, 3)?);
        Ok(())
    }),
    ("an index on the disk", |tx| {
        put(tx, "d", 50, 3)?;
        tx.create_index("d", "d_n", &["n"], false)
    }),
    ("a dropped index", |tx| {
        let scan = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(2)]);
        let table = tx.table("w")?;
        tx.scan(&table, &scan, |_, _| Ok(ControlFlow::Continue(())))?;
        tx.drop_index("w_n")
    }),
    ("a table without its rows", |tx| {
        let table = tx.table("w")?;
        tx.truncate(&table)?;
        (100..110).try_for_each(|id| put(tx, "w", id, 1))
    }),
    ("a primary key", |tx| tx.add_primary_key("u", &["id"])),
    ("a table that goes to the disk", |tx| tx.set_residence("w", Residence::Disk)),
    ("a definition that was rolled back", |tx| {
        let savepoint = tx.savepoint();
        tx.drop_table("t")?;
        tx.create_table(&TableDef::new("new", columns()))?;
        tx.rollback_to(&savepoint)?;
        put(tx, "t", 50, 1)
    }),
    ("definitions beside rows", |tx| {
        put(tx, "u", 50, 1)?;
        tx.drop_table("t")?;
        tx.create_index("u", "u_n", &["n"], false)?;
        let table = tx.create_table(&TableDef::new("new", columns()).with_primary_key(&["id"]))?;
        tx.insert(&table, &row(1, 1))?;
        let table = tx.table("w")?;
        tx.modify(&table, 3, |row| row.add(1, 7).map(drop)).map(drop)
    }),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Checkpoint,
    Kill,
    Crash,
    /// A follower leads in the place of the database.
    Lead,
}

const BETWEEN: [Between; 5] =
    [Between::Nothing, Between::Checkpoint, Between::Kill, Between::Crash, Between::Lead];

fn copy(from: &dyn Disk, to: &dyn Disk) {
    for name in from.list().unwrap() {
        let Ok(file) = from.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let copy = to.open(&name, Open::Create, Caching::Buffered).unwrap();
        copy.write_at(&bytes, 0).unwrap();
        copy.sync().unwrap();
    }
    to.sync_directory().unwrap();
}

/// What the tables are before and after the definition.
fn expected(define: Definition) -> [State; 2] {
    let db = Database::open_on(MemoryDisk::new(), small()).unwrap();
    make(&db);
    let before = state(&db);
    let mut tx = db.begin().unwrap();
    define(&mut tx).unwrap();
    tx.commit().unwrap();
    [before, state(&db)]
}

#[test]
fn a_prepared_definition_waits_for_its_decision() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, mut seed) = (Instant::now(), first);
    loop {
        let mut random = Random::new(seed);
        for (what, define) in DEFINITIONS {
            waits_for_its_decision(what, define, &mut random, seed);
        }
        if began.elapsed() >= Random::test_time_from_environment() {
            return;
        }
        seed = seed.wrapping_add(1);
    }
}

fn waits_for_its_decision(what: &str, define: Definition, random: &mut Random, seed: u64) {
    let states = expected(define);
    let (between, commits) = (BETWEEN[random.below(5) as usize], random.chance(1, 2));
    let about = format!("RIALTO_SEED={seed}, {what}, {between:?}, commits: {commits}");
    let engine = [Engine::thin(), Engine::central(), on_executors(3).engine][random.below(3) as usize];
    let options = Options { engine, ..small() };
    let mut disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    make(&db);
    db.close().unwrap();
    let copied = FaultyDisk::new(2);
    copy(&*disk, &*copied);
    let mut db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let mut tx = db.begin_with(&for_branches(Durability::Disk)).unwrap();
    define(&mut tx).unwrap();
    tx.prepare("it", b"a note").unwrap_or_else(|error| panic!("{about}: {error}"));
    let mut follower = None;
    match between {
        Between::Nothing => {}
        Between::Checkpoint => _ = db.checkpoint().unwrap(),
        Between::Kill | Between::Crash => {
            drop(db);
            if between == Between::Kill {
                disk.kill()
            } else {
                disk.crash()
            }
            disk = disk.restart();
            db = Database::open_on(disk.clone(), options.clone())
                .unwrap_or_else(|error| panic!("{about}: {error}"));
        }
        Between::Lead => {
            let follows = Follower::open_on(copied.clone(), options.clone()).unwrap();
            let mut cursor = db.log_cursor(Some(follows.point()), u64::MAX).unwrap();
            while let Some(blocks) = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap() {
                follows.append(&blocks).unwrap();
            }
            drop(cursor);
            db.close().unwrap();
            db = follows.lead(Duration::from_secs(60)).unwrap_or_else(|error| panic!("{about}: {error}"));
            (disk, follower) = (copied, Some(follows));
        }
    }
    assert_eq!(db.prepared().len(), 1, "{about}");
    let defined = db.begin_with(&probing()).unwrap().create_table(&TableDef::new("other", columns()));
    let waits = matches!(defined, Err(Error::WouldWait { .. }));
    assert!(waits || what == "a definition that was rolled back", "{about}: {defined:?}");
    let decided = if commits { db.commit_prepared("it") } else { db.abort_prepared("it") };
    decided.unwrap_or_else(|error| panic!("{about}: {error}")).wait().unwrap();
    let expected = &states[usize::from(commits)];
    assert_eq!(&state(&db), expected, "{about}");
    if between == Between::Checkpoint {
        db.checkpoint().unwrap();
    }
    // No identifier is given twice, and no name stays taken.
    let table = db.transact(|tx| tx.create_table(&TableDef::new("later", columns()))).unwrap();
    db.transact(|tx| tx.insert(&table, &row(1, 1))).unwrap();
    let (later, prepared) = (state(&db), db.prepared());
    assert_eq!((later.len(), prepared.len()), (expected.len() + 1, 0), "{about}");
    drop((db, table));
    drop(follower);
    disk.crash();
    let db = Database::open_on(disk.restart(), options).unwrap();
    assert_eq!(state(&db), later, "{about}: after a crash");
    db.close().unwrap();
}

/// A vote and a decision of definitions lose power at each step.
#[test]
fn a_definition_is_there_whole_or_not_at_all() {
    let (_, define) = DEFINITIONS[13];
    let states = expected(define);
    for commits in [true, false] {
        let (mut step, mut undecided) = (1, 0);
        loop {
            let disk = FaultyDisk::new(step);
            let db = Database::open_on(disk.clone(), small()).unwrap();
            make(&db);
            drop(db.begin_with(&for_branches(Durability::Disk)).unwrap());
            db.sync().unwrap();
            let about = format!("commits: {commits}, step {step}");
            disk.crash_at(disk.steps() + step);
            let outcome = db
                .begin_with(&for_branches(Durability::Disk))
                .and_then(|mut tx| {
                    define(&mut tx)?;
                    tx.prepare("it", b"")
                })
                .and_then(|()| if commits { db.commit_prepared("it") } else { db.abort_prepared("it") })
                .and_then(|ticket| ticket.wait());
            let went_down = disk.is_down();
            drop(db);
            if !went_down {
                assert_eq!(outcome, Ok(()), "{about}");
                disk.crash();
            }
            let db = Database::open_on(disk.restart(), small()).unwrap();
            let is_prepared = !db.prepared().is_empty();
            if is_prepared {
                undecided += 1;
                db.commit_prepared("it").unwrap().wait().unwrap();
            }
            let found = state(&db);
            let is_after = found == states[1];
            assert!(is_after || found == states[0], "{about}: {found:?}");
            assert!(!is_prepared || is_after, "{about}");
            assert!(outcome.is_err() || is_after == commits, "{about}");
            db.close().unwrap();
            if !went_down {
                break;
            }
            step += 1;
        }
        assert!(step > 4 && undecided > 0, "{step} steps, {undecided} times undecided");
    }
}

#[test]
fn rows_that_would_be_loaded_in_bulk_are_prepared() {
    let db = Database::open_on(MemoryDisk::new(), small()).unwrap();
    make(&db);
    let before = state(&db);
    let mut tx = db.begin_with(&for_branches(Durability::Disk)).unwrap();
    let table = tx.create_table(&TableDef::new("new", columns())).unwrap();
    (0..400).for_each(|id| tx.insert(&table, &row(id, 1)).unwrap());
    tx.prepare("it", b"").unwrap();
    assert_eq!(state(&db), before);
    // The rows of a decision are no bulk load, either.
    let more = |tx: &mut rialto::Transaction<'_>| {
        let table = tx.table("new")?;
        (400..410).try_for_each(|id| tx.insert(&table, &row(id, 1)))
    };
    db.commit_prepared_with("it", more).unwrap().1.wait().unwrap();
    let count = |db: &Database| {
        let table = db.table("new").unwrap();
        db.transact(|tx| tx.count(&table)).unwrap()
    };
    assert_eq!(count(&db), 410);
    db.close().unwrap();
}

#[test]
fn what_was_locked_in_a_definition_that_is_taken_back_is_not_taken_again() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), small()).unwrap();
    make(&db);
    let mut tx = db.begin_with(&for_branches(Durability::Disk)).unwrap();
    let savepoint = tx.savepoint();
    let def = TableDef::new("new", columns()).with_primary_key(&["id"]);
    let table = tx.create_table(&def).unwrap();
    tx.insert(&table, &row(1, 1)).unwrap();
    assert_eq!(tx.count(&table).unwrap(), 1);
    tx.scan(&table, &rialto::Scan::all(), |_, _| Ok(std::ops::ControlFlow::Continue(()))).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    tx.prepare("it", b"").unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, small()).unwrap();
    assert_eq!(db.prepared().len(), 1);
    db.commit_prepared("it").unwrap().wait().unwrap();
    db.close().unwrap();
}
