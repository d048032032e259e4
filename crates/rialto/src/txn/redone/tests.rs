//! A primary's packets are redone on a copy of its directory, which has the same rows, indexes and definitions then.

pub(crate) mod contents;
pub(crate) mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::contents::{Contents, all, assert_same, copy_file, copy_of};
use crate::catalog::system::HEAPS;
use crate::checkpoint::home::read_home;
use crate::commit::redo as records;
use crate::ids::{Lsn, TableId};
use crate::io::{Disk, MemoryDisk, Random};
use crate::isolate::LockMode;
use crate::log::{self, PacketKind};
use crate::row::{Column, ColumnType, FieldPatch, Value};
use crate::{Checkpointing, Database, Engine, Error, Executors, Logging, Options, Residence, TableDef};

/// The smallest bound on write sets.
const WRITE_SET: usize = 64 << 10;

fn options(logging: Logging) -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, logging, ..Options::default() }
}

fn open(disk: &Arc<MemoryDisk>, options: Options) -> Database {
    Database::open_on(disk.clone(), options).unwrap()
}

/// The packets of a log, from behind this place.
fn packets_behind(disk: &Arc<MemoryDisk>, place: Lsn) -> Vec<(Lsn, Vec<u8>)> {
    let disk: Arc<dyn Disk> = disk.clone();
    let home = read_home(&*disk).map(|(_, home)| home).unwrap();
    let mut reader = log::recover(&disk, home.database_id, home.log_start()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        assert_eq!(packet.kind, PacketKind::Commit);
        if packet.lsn > place {
            packets.push((packet.lsn, packet.bytes.to_vec()));
        }
    }
    packets
}

/// Gives a follower the load files of its primary.
fn send_load_files(from: &MemoryDisk, to: &MemoryDisk) {
    for name in from.list().unwrap().iter().filter(|name| name.starts_with("load-")) {
        copy_file(from, to, name);
    }
}

/// A primary's directory at its base, and what came then.
struct Primary {
    disk: Arc<MemoryDisk>,
    base: Arc<MemoryDisk>,
    packets: Vec<(Lsn, Vec<u8>)>,
    contents: BTreeMap<String, Contents>,
    /// The next identifier in the end.
    next_id: u32,
}

impl Primary {
    fn new(logging: Logging, create: impl FnOnce(&Database), work: impl FnOnce(&Database)) -> Primary {
        let disk = MemoryDisk::new();
        let db = open(&disk, options(logging));
        create(&db);
        let place = db.core().commits.log.place();
        db.close().unwrap();
        let base = copy_of(&disk);
        let db = open(&disk, options(logging));
        work(&db);
        let (contents, next_id) = (all(&db), db.core().storage.catalog.next_id());
        db.close().unwrap();
        let packets = packets_behind(&disk, place);
        Primary { disk, base, packets, contents, next_id }
    }

    /// A follower at the base.
    fn follower(&self, logging: Logging) -> (Arc<MemoryDisk>, Database) {
        self.follower_with(logging, Engine::thin())
    }

    fn follower_with(&self, logging: Logging, engine: Engine) -> (Arc<MemoryDisk>, Database) {
        let disk = copy_of(&self.base);
        let db = open(&disk, Options { write_set_bytes_max: WRITE_SET, engine, ..options(logging) });
        send_load_files(&self.disk, &disk);
        (disk, db)
    }
}

fn redo(db: &Database, lsn: Lsn, packet: &[u8]) -> crate::Result<()> {
    db.transact(|tx| {
        tx.redo(lsn, packet)?;
        assert_eq!(tx.context().packet_bytes(), packet, "the packet at place {lsn}");
        Ok(())
    })
}

/// Columns id and v.
fn two_columns(name: &str) -> TableDef {
    TableDef::new(name, vec![Column::new("id", ColumnType::Int4), Column::new("v", ColumnType::Int8)])
}

/// Repeats a random round for as long as tests may take.
fn rounds(mut round: impl FnMut(u64)) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time, mut seed) = (Instant::now(), Random::test_time_from_environment(), first);
    loop {
        println!("round of RIALTO_SEED={seed}");
        round(seed);
        seed = seed.wrapping_add(1);
        if began.elapsed() >= time {
            return;
        }
    }
}

#[test]
fn a_follower_has_what_its_primary_has() {
    rounds(|seed| {
        let (mut random, about) = (Random::new(seed), format!("RIALTO_SEED={seed}"));
        let logging = if random.chance(1, 2) { Logging::Value } else { Logging::Action };
        let (mut for_base, steps) = (random.fork(), 10 + random.below(40));
        let primary = Primary::new(
            logging,
            |db| workload::create(db, &mut for_base),
            |db| (0..steps).for_each(|_| workload::step(db, &mut random)),
        );
        let executors = Executors { count: 3, ..Executors::default() };
        let engine = [Engine::thin(), Engine::central(), executors.into()][random.below(3) as usize];
        let about = format!("{about}, {engine:?}");
        let (disk, db) =
            primary.follower_with(if random.chance(1, 2) { logging } else { Logging::Value }, engine);
        for (lsn, packet) in &primary.packets {
            if random.chance(1, 5) {
                let before = all(&db);
                let mut tx = db.begin().unwrap();
                tx.redo(*lsn, packet).unwrap_or_else(|error| panic!("{about}, place {lsn}: {error}"));
                tx.abort().unwrap();
                assert_same(&all(&db), &before, &format!("{about}, place {lsn}, aborted"));
            }
            redo(&db, *lsn, packet).unwrap_or_else(|error| panic!("{about}, place {lsn}: {error}"));
            if random.chance(1, 12) {
                db.checkpoint().unwrap();
            }
        }
        assert_same(&all(&db), &primary.contents, &about);
        // It can be used, and recovered.
        db.close().unwrap();
        let db = open(&disk, options(logging));
        assert_same(&all(&db), &primary.contents, &format!("{about}, opened again"));
        (0..5).for_each(|_| workload::step(&db, &mut random));
        for name in ["nm", "nd"] {
            let table = db.table(name).unwrap();
            db.transact(|tx| {
                (0..40)
                    .try_for_each(|id| tx.insert(&table, &workload::row(&mut random, 500 + id, 50_000 + id)))
            })
            .unwrap();
        }
        let expected = all(&db);
        let after_crash = open(&copy_of(&disk), options(logging));
        assert_same(&all(&after_crash), &expected, &format!("{about}, recovered"));
        after_crash.close().unwrap();
        db.close().unwrap();
    });
}

/// Bytes of packets are changed at random: what is redone of them is aborted, or committed where that works.
#[test]
fn a_forged_packet_is_an_error_or_another_packet() {
    rounds(|seed| {
        let mut random = Random::new(seed);
        let (mut for_base, steps) = (random.fork(), 4 + random.below(6));
        let primary = Primary::new(
            Logging::Action,
            |db| workload::create(db, &mut for_base),
            |db| (0..steps).for_each(|_| workload::step(db, &mut random)),
        );
        let (_disk, db) = primary.follower(Logging::Action);
        let at = random.below(primary.packets.len().max(1) as u64) as usize;
        for (nth, (lsn, packet)) in primary.packets.iter().enumerate().take(at + 1) {
            if nth < at && !packet.is_empty() {
                redo(&db, *lsn, packet).unwrap();
                continue;
            }
            if packet.is_empty() {
                continue;
            }
            for forgery in 0..150 {
                let mut forged = packet.clone();
                for _ in 0..1 + random.below(3) {
                    let at = random.below(forged.len().clamp(1, 4096) as u64) as usize;
                    if at >= forged.len() {
                        continue;
                    }
                    match random.below(4) {
                        0 => forged[at] ^= 1 << random.below(8),
                        1 => forged[at] = random.next() as u8,
                        2 => drop(forged.drain(at..(at + random.below(9) as usize).min(forged.len()))),
                        _ => forged.insert(at, random.next() as u8),
                    }
                }
                let mut tx = db.begin().unwrap();
                let redone = tx.redo(*lsn, &forged);
                match redone {
                    Ok(()) if forgery > 140 => return tx.commit().unwrap(),
                    Ok(()) => {}
                    Err(Error::Corrupt { .. } | Error::MemoryLimit { .. } | Error::NumbersUsedUp { .. }) => {
                        assert!(tx.commit().is_err(), "only an abort is left");
                        continue;
                    }
                    Err(error) => panic!("RIALTO_SEED={seed}: {error:?}"),
                }
                tx.abort().unwrap();
            }
            redo(&db, *lsn, packet).unwrap();
        }
        db.close().unwrap();
    });
}

fn refused(primary: &Primary, packet: &[u8], expected: &str) {
    let (_disk, db) = primary.follower(Logging::Value);
    let found = redo(&db, Lsn(77), packet);
    let Err(Error::Corrupt { file, what, .. }) = &found else { panic!("{found:?}") };
    assert!(what.contains(expected), "{what}");
    assert!(file == "the log, place 77" || file.starts_with("load-"), "{file}");
    db.close().unwrap();
}

#[test]
fn what_is_missing_is_named() {
    let create = |db: &Database| {
        for residence in [Residence::Memory, Residence::Disk] {
            let def =
                two_columns(&format!("on_{residence}")).with_primary_key(&["id"]).with_residence(residence);
            db.transact(|tx| tx.create_table(&def).map(drop)).unwrap();
        }
    };
    let mut ids = Vec::new();
    let primary = Primary::new(Logging::Value, create, |db| {
        ids = ["on_memory", "on_disk"].map(|name| db.table(name).unwrap().id()).to_vec();
        db.transact(|tx| {
            let table = tx.create_table(&two_columns("loaded"))?;
            (0..400).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
        })
        .unwrap();
    });
    let key = [0x80, 0, 0, 7];
    for &table in &ids {
        let mut packet = Vec::new();
        records::write_patch(&mut packet, table, &key, &[FieldPatch::new(4, &[0; 8])]);
        refused(&primary, &packet, "the row of the key");
        packet.clear();
        records::write_delete(&mut packet, table, &key);
        refused(&primary, &packet, "is not there");
        packet.clear();
        records::write_operations(&mut packet, table, &key, &[FieldPatch::of_sum(4, &[0; 8], 1)]);
        refused(&primary, &packet, "is not there");
        packet.clear();
        records::write_load(&mut packet, table, 1_000, Some(1));
        refused(&primary, &packet, "a bulk load");
    }
    let mut packet = Vec::new();
    records::write_delete(&mut packet, TableId(4_000), &key);
    refused(&primary, &packet, "a redo record for table 4000");
    packet.clear();
    records::write_delete(&mut packet, TableId(20), &key);
    refused(&primary, &packet, "system table 20");
    packet.clear();
    records::write_put(&mut packet, ids[0], &key, false, &[0; 3]);
    refused(&primary, &packet, "at its byte 3");
    for name in primary.disk.list().unwrap().iter().filter(|name| name.starts_with("load-")) {
        primary.disk.remove(name).unwrap();
    }
    refused(&primary, &primary.packets[0].1, "it is missing");
}

/// Names and storage that the follower's own tables have.
#[test]
fn a_table_does_not_take_what_another_one_has() {
    let primary = Primary::new(
        Logging::Value,
        |_| {},
        |db| {
            db.transact(|tx| tx.create_table(&two_columns("t").with_index("by_v", &["v"], false)).map(drop))
                .unwrap();
        },
    );
    let (lsn, packet) = &primary.packets[0];
    for taken in ["t", "by_v", "t_pkey"] {
        let (_disk, db) = primary.follower(Logging::Value);
        db.core().storage.catalog.raise_next_id(1_000);
        db.transact(|tx| tx.create_table(&two_columns(taken)).map(drop)).unwrap();
        let refused = redo(&db, *lsn, packet);
        let Err(Error::Corrupt { what, .. }) = refused else { panic!("{refused:?}") };
        assert!(what.contains("is the name of two tables or indexes"), "{what}");
        db.close().unwrap();
    }
    // The heap of one of its own tables.
    let mut create = Vec::new();
    for record in records::read(packet).map(Result::unwrap) {
        let records::Change::Put { row, .. } = record.change else { panic!("only puts") };
        let mut row = row.to_vec();
        if record.table == HEAPS {
            row[4..8].copy_from_slice(&1_002_i32.to_le_bytes());
        }
        records::write_put(&mut create, record.table, record.key, false, &row);
    }
    let (_disk, db) = primary.follower(Logging::Value);
    db.core().storage.catalog.raise_next_id(1_000);
    db.transact(|tx| tx.create_table(&two_columns("other")).map(drop)).unwrap();
    let refused = redo(&db, *lsn, &create);
    let Err(Error::Corrupt { what, .. }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("gets heap 1002, which a table has"), "{what}");
    db.close().unwrap();
}

/// Rows that the transaction has written before ADD PRIMARY KEY are in the packet again, by their new keys.
#[test]
fn written_rows_get_a_primary_key() {
    let create = |db: &Database| {
        db.transact(|tx| {
            let def =
                two_columns("t").with_index("by_v", &["v"], false).with_index("by_both", &["v", "id"], true);
            let table = tx.create_table(&def)?;
            (0..30).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
        })
        .unwrap();
    };
    let primary = Primary::new(Logging::Action, create, |db| {
        let table = db.table("t").unwrap();
        db.transact(|tx| {
            let mut keys = Vec::new();
            tx.scan(&table, &crate::Scan::all(), |key, _| {
                keys.push(key.clone());
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            tx.delete_at(&table, &keys[3])?;
            tx.modify_at(&table, &keys[4], |fields| fields.add(1, 7).map(drop))?;
            tx.update_at(&table, &keys[5], &[(0, Value::Int4(500))])?;
            (100..120).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))?;
            tx.add_primary_key("t", &["id"])?;
            tx.update(&table, 500, &[(1, Value::Int8(8))])?;
            tx.update(&table, 101, &[(0, Value::Int4(99))])?;
            tx.delete(&table, 102)?;
            tx.insert(&table, &[Value::Int4(102), Value::Int8(1)])?;
            tx.drop_index("by_v")?;
            tx.create_index("t", "by_v", &["v"], false)?;
            tx.update(&table, 103, &[(1, Value::Int8(1))]).map(drop)
        })
        .unwrap();
    });
    let (_disk, db) = primary.follower(Logging::Action);
    for (lsn, packet) in &primary.packets {
        redo(&db, *lsn, packet).unwrap();
    }
    assert_same(&all(&db), &primary.contents, "with a primary key");
    db.close().unwrap();
}

/// A redo waits for a reader's locks, and goes on when they are released.
#[test]
fn a_redo_waits_for_readers() {
    let create = |db: &Database| {
        for name in ["t", "gone"] {
            let def = two_columns(name).with_primary_key(&["id"]);
            db.transact(|tx| {
                let table = tx.create_table(&def)?;
                tx.insert(&table, &[Value::Int4(1), Value::Int8(0)])
            })
            .unwrap();
        }
    };
    let primary = Primary::new(Logging::Value, create, |db| {
        let table = db.table("t").unwrap();
        db.transact(|tx| tx.update(&table, 1, &[(1, Value::Int8(5))])).unwrap();
        db.transact(|tx| tx.insert(&table, &[Value::Int4(2), Value::Int8(5)])).unwrap();
        db.transact(|tx| tx.drop_table("gone")).unwrap();
    });
    let (_disk, db) = primary.follower(Logging::Value);
    let tables = ["t", "gone"].map(|name| db.table(name).unwrap());
    let second = primary.packets[1].0.0;
    for ((lsn, packet), table) in primary.packets.iter().zip([&tables[0], &tables[0], &tables[1]]) {
        // The row that is changed, that is inserted, and whose table is dropped.
        let (mut reader, key) = (db.begin().unwrap(), if lsn.0 == second { 2 } else { 1 });
        let row = reader.get(table, key).unwrap();
        std::thread::scope(|scope| {
            let redoing = scope.spawn(|| redo(&db, *lsn, packet));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!redoing.is_finished(), "place {lsn}");
            assert_eq!(reader.get(table, key), Ok(row));
            reader.commit().unwrap();
            redoing.join().unwrap().unwrap();
        });
    }
    assert_same(&all(&db), &primary.contents, "redone beside readers");
    drop(tables);
    db.close().unwrap();
}

/// A checkpoint that no longer needs a load file removes it.
#[test]
fn a_redone_load_file_goes_with_a_later_checkpoint() {
    let primary = Primary::new(
        Logging::Value,
        |_| {},
        |db| {
            db.transact(|tx| {
                let table = tx.create_table(&two_columns("loaded"))?;
                (0..400).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
            })
            .unwrap();
        },
    );
    let (disk, db) = primary.follower(Logging::Value);
    let loads = || disk.list().unwrap().iter().filter(|name| name.starts_with("load-")).count();
    let (lsn, packet) = &primary.packets[0];
    let mut tx = db.begin().unwrap();
    tx.redo(*lsn, packet).unwrap();
    tx.abort().unwrap();
    assert_eq!(loads(), 1, "an abort leaves what it has not written");
    redo(&db, *lsn, packet).unwrap();
    assert_eq!(loads(), 1);
    assert_eq!(db.core().storage.catalog.next_id(), primary.next_id);
    for name in ["a", "b", "c"] {
        db.transact(|tx| tx.create_table(&two_columns(name)).map(drop)).unwrap();
        db.checkpoint().unwrap();
    }
    assert_eq!(loads(), 0);
    assert_eq!(all(&db)["loaded"], primary.contents["loaded"]);
    db.close().unwrap();
}

/// The storage of a table is made again when its packet is redone after an abort.
#[test]
fn a_packet_is_redone_after_an_abort() {
    let primary = Primary::new(
        Logging::Value,
        |_| {},
        |db| {
            for residence in [Residence::Memory, Residence::Disk] {
                let def = two_columns(&format!("on_{residence}")).with_index(
                    format!("by_{residence}"),
                    &["v"],
                    false,
                );
                db.transact(|tx| {
                    let table = tx.create_table(&def.clone().with_residence(residence))?;
                    (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
                })
                .unwrap();
            }
        },
    );
    let (_disk, db) = primary.follower(Logging::Value);
    for (lsn, packet) in &primary.packets {
        for _ in 0..3 {
            let mut tx = db.begin().unwrap();
            tx.redo(*lsn, packet).unwrap();
            tx.abort().unwrap();
        }
        redo(&db, *lsn, packet).unwrap();
    }
    (0..3).for_each(|_| db.checkpoint().map(drop).unwrap());
    assert_same(&all(&db), &primary.contents, "after aborts");
    db.close().unwrap();
}

/// A packet that the follower's own bounds would refuse, and with more rows than are locked one by one.
#[test]
fn a_large_packet_is_redone_whole() {
    let create = |db: &Database| {
        let def = two_columns("t").with_primary_key(&["id"]).with_index("by_v", &["v"], false);
        db.transact(|tx| tx.create_table(&def).map(drop)).unwrap();
    };
    let rows = super::ROWS_LOCKED_MAX as i32 + 1_000;
    let primary = Primary::new(Logging::Value, create, |db| {
        let table = db.table("t").unwrap();
        db.transact(|tx| (0..rows).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)])))
            .unwrap();
    });
    let (_disk, db) = primary.follower(Logging::Value);
    for (lsn, packet) in &primary.packets {
        assert!(packet.len() > WRITE_SET);
        db.transact(|tx| {
            tx.redo(*lsn, packet)?;
            assert_eq!(
                tx.context().owner.mode_of(primary.contents["t"].description.id),
                Some(LockMode::Exclusive)
            );
            Ok(())
        })
        .unwrap();
    }
    assert_same(&all(&db), &primary.contents, "a large packet");
    let table = db.table("t").unwrap();
    let refused = db
        .transact(|tx| (0..rows).try_for_each(|id| tx.update(&table, id, &[(1, Value::Int8(1))]).map(drop)));
    assert!(
        matches!(refused, Err(Error::WriteSetTooLarge { .. })),
        "the bound holds for other transactions: {refused:?}"
    );
    drop(table);
    db.close().unwrap();
}
