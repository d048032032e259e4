//! The hidden numbers of rows without a primary key: however an opening ends, none is given twice, and no row is
//! inserted where another one is.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::quiet::options;
use rialto::backup::{Archive, Backup, Restore, restore};
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, ActionMode, BackupKind, Checkpointing, Database, Engine, Executors, Flow, Options, Procedure,
    Result, RowKey, Scan, Table, TableDef, Transaction,
};

/// The rows by their numbers, as keys.
fn rows(db: &Database) -> BTreeMap<RowKey, i32> {
    let table = db.table("t").unwrap();
    let mut rows = BTreeMap::new();
    db.read(|tx| {
        rows.clear();
        tx.scan(&table, &Scan::all(), |key, row| {
            rows.insert(key.clone(), row.get_i32(0)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    assert_eq!(table.rows_estimate(), rows.len() as u64);
    rows
}

/// What has been committed, and every number that was seen.
#[derive(Default)]
struct Model {
    rows: BTreeMap<RowKey, i32>,
    given: BTreeMap<RowKey, i32>,
    next: i32,
}

impl Model {
    /// Inserts some rows, in the blocks of as many sessions, and notes the numbers that they got.
    fn insert(&mut self, db: &Database, random: &mut Random, about: &str) {
        let table = db.table("t").unwrap();
        let sessions = (0..1 + random.below(3)).map(|_| db.begin().unwrap());
        for mut session in sessions.collect::<Vec<_>>() {
            for _ in 0..1 + random.below(100) {
                session.insert(&table, &[Value::Int4(self.next)]).unwrap();
                self.next += 1;
            }
            session.commit().unwrap();
        }
        let found = rows(db);
        for (key, id) in &found {
            if self.rows.get(key) != Some(id) {
                assert_eq!(self.given.insert(key.clone(), *id), None, "{about}: {key:?} was given before");
                self.rows.insert(key.clone(), *id);
            }
        }
        assert!(found == self.rows && found.len() == self.rows.len(), "{about}");
        let mut ids: Vec<_> = found.into_values().collect();
        ids.dedup();
        assert_eq!(ids.len(), self.rows.len(), "{about}");
    }

    /// Deletes some rows, mostly those of the highest numbers.
    fn delete(&mut self, db: &Database, random: &mut Random) {
        let table = db.table("t").unwrap();
        let highest = random.chance(2, 3);
        let keep = random.below(self.rows.len() as u64 + 1) as usize;
        let goes: Vec<RowKey> = match highest {
            true => self.rows.keys().skip(keep).cloned().collect(),
            false => self.rows.keys().filter(|_| random.chance(1, 2)).cloned().collect(),
        };
        db.transact(|tx| {
            for key in &goes {
                assert!(tx.delete_at(&table, key)?);
            }
            Ok(())
        })
        .unwrap();
        self.rows.retain(|key, _| !goes.contains(key));
    }
}

#[test]
fn no_number_is_given_twice_whatever_ends_an_opening() {
    let base = Random::seed_from_environment();
    for (nth, checkpoint) in Checkpointing::ALL.into_iter().enumerate() {
        let seed = base.wrapping_add(nth as u64);
        let mut random = Random::new(seed);
        let archive: Arc<dyn Disk> = MemoryDisk::new();
        let with_archive = || Options { archive: Some(Archive::on(archive.clone())), ..options() };
        let mut disk = FaultyDisk::new(random.next());
        let mut db = Database::open_on(disk.clone(), with_archive()).unwrap();
        db.transact(|tx| tx.create_table(&TableDef::new("t", vec![Column::new("id", ColumnType::Int4)])))
            .unwrap();
        let mut backup = Vec::new();
        db.backup_to(&mut backup, BackupKind::Full).unwrap();
        let mut model = Model::default();
        for round in 0..12 {
            let about = format!("RIALTO_SEED={seed}, {checkpoint:?}, round {round}");
            db.set_checkpoint(checkpoint).unwrap();
            for _ in 0..1 + random.below(3) {
                model.insert(&db, &mut random, &about);
                model.delete(&db, &mut random);
                if random.chance(1, 3) {
                    db.checkpoint().unwrap();
                }
            }
            match random.below(3) {
                0 => {
                    disk.crash();
                    drop(db);
                }
                1 => {
                    disk.kill();
                    drop(db);
                }
                _ => {
                    db.close().unwrap();
                    disk.kill();
                }
            }
            disk = disk.restart();
            db = Database::open_on(disk.clone(), with_archive()).unwrap();
            assert!(rows(&db) == model.rows, "{about}");
        }
        db.close().unwrap();
        // A restored database has a log of its own, which goes on after the last place.
        let mut plan = Restore::new(vec![Backup::stream("b", Cursor::new(backup))]);
        plan.archive = Some(Archive::on(archive.clone()));
        (plan.memory_bytes, plan.threads) = (64 << 20, 2);
        let restored = MemoryDisk::new();
        restore(plan, restored.clone()).unwrap();
        for _ in 0..2 {
            let about = format!("RIALTO_SEED={seed}, {checkpoint:?}, restored");
            let db = Database::open_on(restored.clone(), options()).unwrap();
            assert!(rows(&db) == model.rows, "{about}");
            model.insert(&db, &mut random, &about);
            model.delete(&db, &mut random);
            db.close().unwrap();
        }
    }
}

/// An action inserts a row, learns its number from a scan, and passes it to a thread that reads by it. What that thread
/// has read under its lock stays unchanged.
#[test]
fn a_row_by_a_number_that_its_inserter_has_told_is_read_the_same_twice() {
    let by_index = |n| Scan::prefix(WhichIndex::Secondary(0), vec![n]);
    type Looks = fn(&mut Transaction, &Table, Scan) -> Result<Option<RowKey>>;
    let rows: Looks = |tx, table, scan| {
        let mut number = None;
        tx.scan(table, &scan, |key, _| {
            number = Some(key.clone());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(number)
    };
    let entries: Looks = |tx, table, scan| {
        let mut number = None;
        tx.entries(table, &scan, |key, _| {
            number = Some(key.clone());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(number)
    };
    type Way = (&'static str, fn(Value) -> Scan, Looks);
    let ways: [Way; 3] =
        [("rows", by_index, rows), ("entries", by_index, entries), ("all rows", |_| Scan::all(), rows)];
    for (way, scan, looks) in ways {
        let options = Options { engine: Executors::of(4, 0).into(), ..options() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        db.transact(|tx| {
            let column = |name| vec![Column::new(name, ColumnType::Int4)];
            tx.create_table(&TableDef::new("k", column("id")).with_primary_key(&["id"]))?;
            tx.create_table(&TableDef::new("t", column("n")))?;
            tx.create_index("t", "by_n", &["n"], false)
        })
        .unwrap();
        // Each key of "k" belongs to another executor.
        let bounds = [1, 2, 3].map(|bound| vec![Value::Int4(bound)]);
        db.set_routing("k", WhichIndex::Primary, &bounds).unwrap();
        while db.executors_of("t", WhichIndex::Primary).unwrap() < 4 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let table = db.table("t").unwrap();
        let (tells, told) = channel();
        let (answers, answered) = channel::<()>();
        let channels = Mutex::new((tells, answered));
        let insert = Action::exclusive("t", move |tx, arguments, _| {
            let (table, n) = (arguments.table()?, arguments.values()[0].clone());
            tx.insert(table, std::slice::from_ref(&n))?;
            let number = looks(tx, table, scan(n))?.expect("the row is there");
            let (tells, answered) = &*channels.lock().unwrap();
            tells.send(number).unwrap();
            // A reader that asks an executor which this call has leased waits for this call.
            let _ = answered.recv_timeout(Duration::from_millis(300));
            Ok(())
        });
        let claim = Action::claim("k", ActionMode::Exclusive).by_argument(0);
        let flow = Flow::new().phase([claim, insert]);
        db.register(Procedure::new("insert", [ColumnType::Int4], flow)).unwrap();
        for id in 0..4 {
            std::thread::scope(|scope| {
                let call = scope.spawn(|| db.call("insert", &[Value::Int4(id)]));
                let number = told.recv().unwrap();
                let mut reader = db.begin().unwrap();
                let first = reader.get_at(&table, &number).unwrap();
                let _ = answers.send(());
                call.join().unwrap().unwrap();
                assert_eq!(reader.get_at(&table, &number).unwrap(), first, "by {way}, executor {id}");
                reader.commit().unwrap();
            });
        }
    }
}

/// A transaction has found no row by any of the numbers that can be given next. `insert` beside it inserts into `t`,
/// and the transaction does not see the row appear.
fn stays_absent(db: &Database, insert: impl Fn(i32) -> Result<()> + Sync, about: &str) {
    let table = db.table("t").unwrap();
    // The first numbers of the blocks that a new database gives first: each transaction may begin one.
    let first = |block: u64| (0..8).map(move |nth| 65_536 + 1_024 * block + nth);
    let there = |tx: &mut Transaction| {
        (0..64).flat_map(first).filter(|&number| tx.get(&table, number).unwrap().is_some()).count()
    };
    for n in 0..4 {
        let mut reader = db.begin().unwrap();
        let before = there(&mut reader);
        std::thread::scope(|scope| {
            let inserted = scope.spawn(|| insert(n));
            // If it does not wait for the reader it is done by now.
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(there(&mut reader), before, "{about}, row {n}");
            reader.commit().unwrap();
            inserted.join().unwrap().unwrap();
        });
        let after = db.transact(|tx| Ok(there(tx))).unwrap();
        assert_eq!(after, before + 1, "the test's own premise: {about}, row {n}");
    }
}

#[test]
fn a_number_that_was_read_as_absent_stays_absent() {
    for engine in Engine::ALL {
        let db = Database::open_on(MemoryDisk::new(), Options { engine, ..options() }).unwrap();
        let columns = vec![Column::new("n", ColumnType::Int4)];
        let table = db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()))).unwrap();
        let insert = |n| db.transact(|tx| tx.insert(&table, &[Value::Int4(n)]));
        stays_absent(&db, insert, &format!("{engine}"));
    }
    // By calls that have leased an executor.
    let options = Options { engine: Executors::of(4, 0).into(), ..options() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    db.transact(|tx| {
        let column = |name| vec![Column::new(name, ColumnType::Int4)];
        tx.create_table(&TableDef::new("k", column("id")).with_primary_key(&["id"]))?;
        tx.create_table(&TableDef::new("t", column("n")))
    })
    .unwrap();
    db.set_routing("k", WhichIndex::Primary, &[1, 2, 3].map(|bound| vec![Value::Int4(bound)])).unwrap();
    while db.executors_of("t", WhichIndex::Primary).unwrap() < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let insert = Action::exclusive("t", |tx, arguments, _| {
        tx.insert(arguments.table()?, std::slice::from_ref(&arguments.values()[0]))
    });
    let claim = Action::claim("k", ActionMode::Exclusive).by_argument(0);
    let flow = Flow::new().phase([claim, insert]);
    db.register(Procedure::new("insert", [ColumnType::Int4], flow)).unwrap();
    stays_absent(&db, |n| db.call("insert", &[Value::Int4(n)]).map(drop), "by calls");
}
