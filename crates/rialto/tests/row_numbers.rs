//! The hidden numbers of rows without a primary key: whatever ends an opening, none is given twice, and no row goes where another
//! is.

#[path = "common/quiet.rs"]
mod quiet;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use quiet::options;
use rialto::backup::{Archive, Backup, Restore, restore};
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{BackupKind, Checkpointing, Database, Options, RowKey, Scan, TableDef};

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

/// What has been committed, and which numbers were ever seen.
#[derive(Default)]
struct Model {
    rows: BTreeMap<RowKey, i32>,
    given: BTreeMap<RowKey, i32>,
    next: i32,
}

impl Model {
    /// Inserts some rows, in the blocks of as many sessions, and takes in the numbers that they have got.
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

    /// Deletes some rows, for the most part those of the highest numbers.
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
        // A restored database has a log of its own, which goes on behind the last place.
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
