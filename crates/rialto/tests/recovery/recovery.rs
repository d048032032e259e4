//! A database after a crash: random work with DDL and bulk loads, checkpoints all the while, on faulty disks.
//!
//! Every transaction counts itself in a table. So the contents after a crash say which prefix of the work they have to
//! be, and the model of that prefix has the required contents.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rialto::io::{FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Durability, Error, GroupCommitDesign, Logging, Options, Scan, Table, TableDef,
    Transaction, TxOptions,
};

use crate::common::engines;

#[derive(Debug, Clone, PartialEq, Default)]
struct Model {
    tables: BTreeMap<String, ModelTable>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct ModelTable {
    keyed: bool,
    indexes: Vec<String>,
    rows: BTreeMap<i32, (i64, String)>,
}

fn options() -> Options {
    Options {
        memory_bytes: 256 << 20,
        checkpoint: Checkpointing::None,
        sweep_bytes_per_s: Some(0),
        recovery_threads: 3,
        ..Options::default()
    }
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::nullable("text", ColumnType::Text),
    ]
}

fn row(id: i32, n: i64, text: &str) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(n), Value::Text(text.to_owned())]
}

fn text(random: &mut Random) -> String {
    let length = if random.chance(1, 20) { random.below(6000) } else { random.below(60) };
    char::from(b'a' + random.below(26) as u8).to_string().repeat(length as usize)
}

/// With slow sweeps of any kind in the background all the time, so that each meets many unfinished transactions.
fn slow_sweeps(random: &mut Random) -> Options {
    Options {
        checkpoint: Checkpointing::ALL[random.below(Checkpointing::ALL.len() as u64) as usize],
        checkpoint_interval: Duration::from_millis(1),
        sweep_bytes_per_s: Some(1_000_000 << random.below(6)),
        // Or as often as a short recovery needs them, which may not be possible.
        recovery_within: random.chance(1, 3).then(|| Duration::from_millis(10 + random.below(300))),
        ..options()
    }
}

/// One step of a transaction, on the database and on the model.
fn step(tx: &mut Transaction, model: &mut Model, random: &mut Random, nth: u64) -> Result<(), Error> {
    let names: Vec<String> = model.tables.keys().cloned().collect();
    let name = match names.len() {
        0 => String::new(),
        count => names[random.below(count as u64) as usize].clone(),
    };
    let kind = random.below(100);
    if names.is_empty() || kind < 4 && names.len() < 6 {
        let name = format!("t{}", random.below(12));
        if model.tables.contains_key(&name) {
            return Ok(());
        }
        let keyed = random.chance(1, 2);
        let mut def = TableDef::new(name.clone(), columns());
        if keyed {
            def = def.with_primary_key(&["id"]);
        }
        let table = tx.create_table(&def)?;
        let mut made = ModelTable { keyed, ..ModelTable::default() };
        if random.chance(1, 2) {
            load(tx, &table, &mut made, random)?;
        }
        model.tables.insert(name, made);
        return Ok(());
    }
    let table = tx.table(&name)?;
    let entry = model.tables.get_mut(&name).expect("of this name");
    match kind {
        4 => {
            tx.drop_table(&name)?;
            model.tables.remove(&name);
        }
        5..7 if nth == 0 => {
            tx.truncate(&table)?;
            entry.rows.clear();
            let table = tx.table(&name)?;
            if random.chance(1, 2) {
                load(tx, &table, entry, random)?;
            }
        }
        7..10 if nth == 0 && entry.indexes.len() < 3 => {
            // Few names, so that a dropped index is made again under its own name.
            let index = format!("{name}_{}", random.below(4));
            if !entry.indexes.contains(&index) {
                let unique = random.chance(1, 3);
                let columns: &[&str] = if unique { &["id", "n"] } else { &["n"] };
                tx.create_index(&name, &index, columns, unique)?;
                entry.indexes.push(index);
            }
        }
        10..12 if nth == 0 => {
            if let Some(index) = entry.indexes.pop() {
                tx.drop_index(&index)?;
            }
        }
        12..15 if nth == 0 && !entry.keyed => match tx.add_primary_key(&name, &["id"]) {
            Ok(()) => entry.keyed = true,
            Err(Error::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        },
        _ => {
            for _ in 0..1 + random.below(6) {
                change(tx, &table, entry, random)?;
            }
        }
    }
    Ok(())
}

fn load(
    tx: &mut Transaction,
    table: &Table,
    entry: &mut ModelTable,
    random: &mut Random,
) -> Result<(), Error> {
    for id in 0..random.below(900) as i32 {
        let text = text(random);
        tx.insert(table, &row(id, i64::from(id), &text))?;
        entry.rows.insert(id, (i64::from(id), text));
    }
    Ok(())
}

fn change(
    tx: &mut Transaction,
    table: &Table,
    entry: &mut ModelTable,
    random: &mut Random,
) -> Result<(), Error> {
    let id = random.below(300) as i32;
    let there = entry.rows.contains_key(&id);
    if !there {
        let (n, text) = (random.below(50) as i64, text(random));
        tx.insert(table, &row(id, n, &text))?;
        entry.rows.insert(id, (n, text));
        return Ok(());
    }
    let changes = if random.chance(1, 3) {
        let text = text(random);
        entry.rows.get_mut(&id).unwrap().1 = text.clone();
        vec![(2, Value::Text(text))]
    } else if random.chance(1, 2) {
        let (n, before) = (random.below(50) as i64, entry.rows[&id].0);
        entry.rows.get_mut(&id).unwrap().0 = n;
        if entry.keyed && random.chance(1, 2) {
            assert!(tx.modify(table, id, |fields| fields.add(1, n - before).map(drop))?);
            return Ok(());
        }
        vec![(1, Value::Int8(n))]
    } else if random.chance(1, 4) {
        let to = 300 + random.below(1 << 20) as i32;
        if entry.rows.contains_key(&to) {
            return Ok(());
        }
        let row = entry.rows.remove(&id).unwrap();
        entry.rows.insert(to, row);
        vec![(0, Value::Int4(to))]
    } else {
        entry.rows.remove(&id);
        Vec::new()
    };
    let done = if entry.keyed {
        if changes.is_empty() { tx.delete(table, id)? } else { tx.update(table, id, &changes)? }
    } else {
        let mut key = None;
        tx.scan(table, &Scan::all(), |at, row| {
            if row.get_i32(0)? == id {
                key = Some(at.clone());
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let key = key.expect("the row is there");
        if changes.is_empty() { tx.delete_at(table, &key)? } else { tx.update_at(table, &key, &changes)? }
    };
    assert!(done, "row {id} of {} is there", table.name());
    Ok(())
}

/// The contents of the database, each table read by each of its indexes.
fn contents(db: &Database) -> (i64, Model) {
    let mut model = Model::default();
    let mut count = 0;
    let mut tx = db.begin().unwrap();
    for table in db.tables() {
        let name = table.name();
        if name.starts_with("rialto_") {
            continue;
        }
        let schema = table.schema();
        let mut indexes = vec![WhichIndex::Primary];
        indexes.extend((0..schema.indexes().len()).map(WhichIndex::Secondary));
        let mut entry = ModelTable { keyed: schema.primary_key().is_some(), ..ModelTable::default() };
        entry.indexes = schema.indexes().iter().map(|index| index.name.clone()).collect();
        for which in indexes {
            let mut rows = BTreeMap::new();
            let mut seen = 0;
            tx.scan(&table, &Scan { index: which, ..Scan::all() }, |_, row| {
                seen += 1;
                rows.insert(row.get_i32(0)?, (row.get_i64(1)?, row.get_str(2)?.to_owned()));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            assert_eq!(seen, rows.len(), "table {name} by {which:?} has a row twice");
            if which != WhichIndex::Primary {
                assert_eq!(rows, entry.rows, "table {name} by {which:?} and by its primary key");
            }
            entry.rows = rows;
        }
        assert_eq!(table.rows_estimate(), entry.rows.len() as u64, "rows of {name}");
        if name == "count" {
            count = entry.rows[&0].0;
        } else {
            model.tables.insert(name, entry);
        }
    }
    tx.abort().unwrap();
    (count, model)
}

fn same(found: &Model, expected: &Model, about: &str) {
    let names = |model: &Model| model.tables.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{about}: the tables");
    for (name, table) in &expected.tables {
        let other = &found.tables[name];
        assert_eq!(other.keyed, table.keyed, "{about}: the key of {name}");
        let sorted = |table: &ModelTable| {
            let mut indexes = table.indexes.clone();
            indexes.sort();
            indexes
        };
        assert_eq!(sorted(other), sorted(table), "{about}: the indexes of {name}");
        for (id, row) in &table.rows {
            assert_eq!(other.rows.get(id), Some(row), "{about}: row {id} of {name}");
        }
        assert_eq!(other.rows.len(), table.rows.len(), "{about}: rows of {name}");
    }
}

/// Ends the checkpoints, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Works until the disk fails or the rounds are done. Gives the state after each transaction, the last that was
/// acknowledged as durable on disk, and the last that was acknowledged at all.
fn work(
    db: &Database,
    demand: bool,
    start: (i64, Model),
    random: &mut Random,
    rounds: u64,
) -> (Vec<Model>, i64, i64) {
    let (first, mut model) = start;
    let mut history = vec![model.clone()];
    let (mut acknowledged, mut answered) = (first, first);
    let checkpoints = AtomicBool::new(demand);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while checkpoints.load(Ordering::Relaxed) && db.checkpoint().is_ok() {
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _stop = Stop(&checkpoints);
        for round in 0..rounds {
            let durable = random.chance(1, 4);
            let durability = Some(if durable { Durability::Disk } else { Durability::Memory });
            let mut next = model.clone();
            let steps = 1 + random.below(3);
            let outcome =
                db.begin_with(&TxOptions { durability, ..TxOptions::default() }).and_then(|mut tx| {
                    for nth in 0..steps {
                        step(&mut tx, &mut next, random, nth)?;
                    }
                    let count = tx.table("count")?;
                    // An increment that was lost, or done twice, is a position in the history that does not fit.
                    tx.modify(&count, 0, |fields| {
                        let now = fields.get_i64(1)?;
                        fields.add(1, first + round as i64 + 1 - now).map(drop)
                    })?;
                    if random.chance(1, 12) {
                        tx.abort()?;
                        return Err(Error::aborted("for a change"));
                    }
                    tx.commit()
                });
            match outcome {
                Ok(()) => {}
                Err(Error::Aborted { .. }) => next = model.clone(),
                Err(Error::OutcomeUnknown { .. }) => {
                    history.push(next);
                    break;
                }
                Err(Error::Stopped { .. } | Error::Io { .. } | Error::LogFull { .. }) => break,
                Err(error) => panic!("transaction {}: {error}", first + round as i64 + 1),
            }
            model = next;
            history.push(model.clone());
            if outcome.is_ok() {
                answered = first + round as i64 + 1;
                acknowledged = if durable { answered } else { acknowledged };
            }
        }
    });
    (history, acknowledged, answered)
}

/// Crashes of the machine, ends of the process, and transactions.
#[derive(Default)]
struct Counts {
    crashes: u64,
    kills: u64,
    transactions: u64,
}

fn round(seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let db = Database::open_on(disk.clone(), options()).unwrap();
    db.transact(|tx| {
        let count = tx.create_table(&TableDef::new("count", columns()).with_primary_key(&["id"]))?;
        tx.insert(&count, &row(0, 0, ""))
    })
    .unwrap();
    let mut state = contents(&db);
    let (mut db, mut slow) = (Some(db), false);
    for life in 0..4 {
        let about = format!("RIALTO_SEED={seed}, life {life}");
        let open = db.take().expect("opened before");
        let kill = random.chance(1, 2);
        let at = disk.steps() + 1 + random.below(600);
        if kill {
            disk.kill_at(at)
        } else {
            disk.crash_at(at)
        }
        let first = state.0;
        let rounds = 20 + random.below(80);
        let demand = !slow && random.chance(3, 4);
        let (history, acknowledged, answered) = work(&open, demand, state, &mut random, rounds);
        if random.chance(1, 4) {
            let _ = open.close();
        } else {
            drop(open);
        }
        if !disk.is_down() {
            if kill { disk.kill() } else { disk.crash() }
        }
        if kill {
            counts.kills += 1
        } else {
            counts.crashes += 1
        }
        counts.transactions += history.len() as u64 - 1;
        disk = disk.restart();
        // Level 1 survives the process, not the machine.
        let mut least = if kill { answered } else { acknowledged };
        if random.chance(1, 3) {
            least = acknowledged;
            counts.crashes += 1;
            // A crash during recovery, or just after it (I8).
            disk.crash_at(disk.steps() + 1 + random.below(12));
            if let Ok(db) = Database::open_on(disk.clone(), options()) {
                let _ = db.sync();
            }
            if !disk.is_down() {
                disk.crash();
            }
            disk = disk.restart();
        }
        slow = random.chance(2, 3);
        let mut options = if slow { slow_sweeps(&mut random) } else { options() };
        // Of all that go together.
        while {
            // An operation that is done twice shows; a value that is put twice does not.
            options.logging = match random.chance(1, 2) {
                true => Logging::Action,
                false => Logging::ALL[random.below(Logging::ALL.len() as u64) as usize],
            };
            options.logging.refuses(options.checkpoint).is_some()
        } {
            options.checkpoint = slow_sweeps(&mut random).checkpoint;
        }
        let designs = GroupCommitDesign::ALL;
        options.group_commit = designs[random.below(designs.len() as u64) as usize].into();
        options.engine = engines::any(&mut random, 8, 0);
        let reopened =
            Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"));
        let found = contents(&reopened);
        assert!(found.0 >= least, "{about}: {least} was durable, found {}", found.0);
        let expected = history.get((found.0 - first) as usize);
        same(&found.1, expected.unwrap_or_else(|| panic!("{about}: never was at {}", found.0)), &about);
        state = found;
        db = Some(reopened);
    }
}

#[test]
fn what_was_durable_is_found_after_crashes_with_ddl_loads_and_checkpoints() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut seed = base;
    let mut counts = Counts::default();
    while seed == base || Instant::now() < until {
        round(seed, &mut counts);
        seed = seed.wrapping_add(1);
    }
    println!(
        "tally: databases under crashes, {} seeds, {} losses of power, {} kills, {} transactions, RIALTO_SEED={base}",
        seed.wrapping_sub(base),
        counts.crashes,
        counts.kills,
        counts.transactions
    );
}
