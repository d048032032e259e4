//! Directed interleaving tests that a disk can set up. Tests that need a hook inside the kernel are in
//! `src/interleavings/`, those of I3 in `answers.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::quiet::{columns, level, open, options, row, unique_n};
use rialto::io::{Caching, Disk, FaultyDisk, MemoryDisk, Open, Random};
use rialto::row::Value;
use rialto::{Database, Durability, Error, OpenError, Result, Scan, TableDef};

/// `(id, n, length of text)` of each row, in the order of the primary index.
fn rows(db: &Database, name: &str) -> Vec<(i32, i64, usize)> {
    let table = db.table(name).unwrap();
    let mut rows = Vec::new();
    db.read(|tx| {
        rows.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            rows.push((row.get_i32(0)?, row.get_i64(1)?, row.get_str(2)?.len()));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    assert_eq!(table.rows_estimate(), rows.len() as u64, "rows of {name}");
    rows
}

// ---- I4: the log is a prefix

const LOG: &str = "log-0000000001";
const RING: &str = "log-tail";
const PAGE: usize = 4096;

fn bytes_of(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::Existing, Caching::Buffered).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn write(disk: &MemoryDisk, name: &str, offset: usize, bytes: &[u8]) {
    let file = disk.open(name, Open::Existing, Caching::Buffered).unwrap();
    file.write_at(bytes, offset as u64).unwrap();
}

/// The offset of the block that has the first of these bytes, and of the next one.
fn block_with(log: &[u8], what: u8) -> (usize, usize) {
    let inside = log.windows(64).position(|window| window.iter().all(|&byte| byte == what)).unwrap();
    let is_block = |at: &usize| log[at + 8..at + 12] == *b"RLBK";
    let start = (0..=inside).rev().step_by(8).map(|at| at & !7).find(is_block).unwrap();
    let length = u32::from_le_bytes(log[start + 16..start + 20].try_into().unwrap());
    (start, start + length as usize)
}

/// Two rows of this letter: a packet that fills most of a block.
fn letters(db: &Database, letter: char, lengths: [usize; 2]) {
    let table = db.table("t").unwrap();
    let id = letter as i32 * 2;
    db.transact_with(&level(Durability::Memory), |tx| {
        for (at, length) in lengths.into_iter().enumerate() {
            let id = id + at as i32;
            tx.insert(&table, &row(id, i64::from(id), &letter.to_string().repeat(length)))?;
        }
        Ok(())
    })
    .unwrap();
}

/// Commits A to D, each in a block of its own, B to D written by one group; then the machine crashes.
fn four_blocks() -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    unique_n(&db);
    letters(&db, 'A', [25_000; 2]);
    db.sync().unwrap();
    for letter in ['B', 'C', 'D'] {
        letters(&db, letter, [25_000; 2]);
    }
    db.close().unwrap();
    disk.remove(RING).unwrap();
    disk
}

fn found(db: &Database) -> String {
    rows(db, "t").iter().step_by(2).map(|row| char::from((row.0 / 2) as u8)).collect()
}

/// The write of a group was torn in its second block. The third one is whole, but it is not in the log, and never comes
/// back, not even when the next life of the log ends exactly before it.
#[test]
fn a_stale_commit_block_behind_a_torn_one_never_comes_back() {
    let disk = four_blocks();
    let before = bytes_of(&disk, LOG);
    let (c, d) = block_with(&before, b'C');
    assert_eq!(block_with(&before, b'D').0, d, "the test's own premise: D's block follows C's");
    write(&disk, LOG, c + 20_000, &[0; 512]);

    let db = Database::open_on(disk.clone(), options()).unwrap();
    assert_eq!(found(&db), "AB");
    // The opening has written a pad to the page's end. The next block ends where D's begins, so that D's is next in
    // line: of the same place, and whole.
    let shorter = (c + 1).next_multiple_of(PAGE) - c;
    letters(&db, 'E', [25_000, 25_000 - shorter]);
    db.close().unwrap();
    disk.remove(RING).unwrap();
    let mut after = bytes_of(&disk, LOG);
    let (_, end) = block_with(&after, b'E');
    assert!(
        (d - 64..=d).contains(&end),
        "the test's own premise: E's block ends at {end}, D's begins at {d}"
    );
    // The pad after E did not reach the disk: the old bytes show.
    let page_end = d.next_multiple_of(PAGE);
    after[d..page_end].copy_from_slice(&before[d..page_end]);
    write(&disk, LOG, d, &before[d..page_end]);
    assert_eq!(block_with(&bytes_of(&disk, LOG), b'D').0, d, "D's block is there again");

    let db = Database::open_on(disk.clone(), options()).unwrap();
    assert_eq!(found(&db), "ABE");
    letters(&db, 'F', [25_000; 2]);
    db.close().unwrap();
    disk.remove(RING).unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    assert_eq!(found(&db), "ABEF");
}

/// A block in the middle is damaged, and a later block says that it was durable: that is not the log's end.
#[test]
fn damage_in_the_middle_of_the_log_is_corruption_and_named() {
    let disk = four_blocks();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    for letter in ['E', 'F'] {
        letters(&db, letter, [25_000; 2]);
        db.sync().unwrap();
    }
    db.close().unwrap();
    disk.remove(RING).unwrap();
    let log = bytes_of(&disk, LOG);
    let (c, _) = block_with(&log, b'C');
    write(&disk, LOG, c + 20_000, &[0; 512]);
    let error = Database::open_on(disk.clone(), options()).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    // The first block that was written when C was durable: that of E, by the second life of the log.
    let (pad, _) = block_with(&log, b'E');
    let expected = format!(
        "\"{LOG}\" is corrupt at offset {c}: expected the block after place 3; it is damaged, and was durable: the \
         block at offset {pad} of \"{LOG}\" was written after it"
    );
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error, OpenError::Corrupt { offset, .. } if offset == c as u64));
    assert_eq!(
        bytes_of(&disk, LOG)[..],
        {
            let mut expected = log;
            expected[c + 20_000..c + 20_512].fill(0);
            expected
        },
        "nothing was written"
    );
}

// ---- crashes at every step

/// Runs `work` and ends the life of the machine, or of the process, at each of its steps in turn, and once after the
/// last one. `check` then gets the database that the next life finds, and whether the work was acknowledged.
fn at_every_step(
    prepare: impl Fn(&Database),
    work: impl Fn(&Database) -> Result<()>,
    check: impl Fn(&Database, bool, &str),
) {
    let seed = Random::seed_from_environment();
    for kill in [false, true] {
        for step in 1.. {
            let about =
                format!("RIALTO_SEED={seed}, {} at step {step}", if kill { "killed" } else { "crashed" });
            let disk = FaultyDisk::new(seed.wrapping_add(step));
            let db = open(disk.clone());
            prepare(&db);
            db.sync().unwrap();
            let at = disk.steps() + step;
            if kill {
                disk.kill_at(at)
            } else {
                disk.crash_at(at)
            }
            let outcome = work(&db);
            let survived = !disk.is_down();
            assert!(outcome.is_ok() || !survived, "{about}: {outcome:?}");
            if kill {
                disk.kill()
            } else {
                disk.crash()
            }
            drop(db);
            let disk = disk.restart();
            let db =
                Database::open_on(disk.clone(), options()).unwrap_or_else(|error| panic!("{about}: {error}"));
            check(&db, outcome.is_ok(), &about);
            // A checkpoint and another crash do not change what was recovered.
            db.checkpoint().unwrap();
            disk.crash();
            drop(db);
            check(&open(disk.restart()), outcome.is_ok(), &format!("{about}, recovered again"));
            if survived {
                assert!(step > 2, "the work took {step} steps");
                break;
            }
        }
    }
}

const LOADED: i32 = 2_000;

/// A load into a table that the same transaction creates or truncates, and a crash at each step of it, the last one
/// after the commit and before any checkpoint.
#[test]
fn a_bulk_load_is_there_whole_or_not_at_all() {
    for truncates in [false, true] {
        let def = || TableDef::new("loaded", columns()).with_primary_key(&["id"]);
        at_every_step(
            |db| {
                if truncates {
                    db.transact(|tx| {
                        let table = tx.create_table(&def())?;
                        tx.create_index("loaded", "loaded_by_n", &["n"], true).map(|()| table)
                    })
                    .unwrap();
                    let table = db.table("loaded").unwrap();
                    db.transact(|tx| {
                        (0..5).try_for_each(|id| tx.insert(&table, &row(id, -1 - i64::from(id), "old")))
                    })
                    .unwrap();
                }
            },
            |db| {
                db.transact(|tx| {
                    let table = if truncates {
                        let table = tx.table("loaded")?;
                        tx.truncate(&table)?;
                        table
                    } else {
                        tx.create_table(&def())?
                    };
                    (0..LOADED).try_for_each(|id| tx.insert(&table, &row(id, i64::from(id), &"x".repeat(60))))
                })
            },
            |db, acknowledged, about| {
                let found = match db.table("loaded") {
                    Ok(_) => rows(db, "loaded"),
                    Err(Error::NoSuchTable { .. }) if !truncates => Vec::new(),
                    Err(error) => panic!("{about}: {error}"),
                };
                let whole = found.len() == LOADED as usize;
                let old = found.len() == if truncates { 5 } else { 0 };
                assert!(whole || old && !acknowledged, "{about}: {} rows", found.len());
                let expected =
                    |id: i32| if whole { (id, i64::from(id), 60) } else { (id, -1 - i64::from(id), 3) };
                assert!((0..).zip(&found).all(|(id, row)| *row == expected(id)), "{about}");
                if whole {
                    let table = db.table("loaded").unwrap();
                    let again = db.transact(|tx| tx.insert(&table, &row(LOADED - 1, 0, "")));
                    assert!(matches!(again, Err(Error::DuplicateKey { .. })), "{about}: {again:?}");
                }
            },
        );
    }
}

/// ADD PRIMARY KEY on a keyless table with rows, some of them changed and deleted by number before it, and more by key
/// after it: a crash on each side of it, and at each step between.
#[test]
fn add_primary_key_is_there_whole_or_not_at_all() {
    const KEYLESS: i32 = 300;
    at_every_step(
        |db| {
            let table = db.transact(|tx| tx.create_table(&TableDef::new("t", columns()))).unwrap();
            let rows: Vec<i32> = (0..KEYLESS).rev().collect();
            for part in rows.chunks(100) {
                db.transact(|tx| {
                    part.iter().try_for_each(|&id| tx.insert(&table, &row(id, i64::from(id), "keyless")))
                })
                .unwrap();
                // So that rows are in the copy, and in the log.
                db.checkpoint().unwrap();
            }
            db.transact(|tx| {
                let mut keys = Vec::new();
                tx.scan(&table, &Scan::all(), |key, row| {
                    keys.push((key.clone(), row.get_i32(0)?));
                    Ok(ControlFlow::Continue(()))
                })?;
                for (key, id) in keys {
                    match id % 10 {
                        3 => assert!(tx.delete_at(&table, &key)?),
                        4 => assert!(tx.update_at(&table, &key, &[(1, Value::Int8(-1))])?),
                        _ => {}
                    }
                }
                Ok(())
            })
            .unwrap();
        },
        |db| {
            let table = db.table("t")?;
            db.transact(|tx| tx.add_primary_key("t", &["id"]))?;
            db.transact(|tx| {
                assert!(tx.delete(&table, 5)?);
                tx.insert(&table, &row(3, 3, "by key"))?;
                assert!(tx.update(&table, 6, &[(2, Value::Text("longer".repeat(20)))])?);
                Ok(())
            })
        },
        |db, acknowledged, about| {
            let table = db.table("t").unwrap();
            let keyed = table.schema().primary_key().is_some();
            let found = rows(db, "t");
            let changed = found.iter().any(|row| row.0 == 3);
            assert!(keyed || !changed, "{about}: the log is a prefix");
            assert!(!acknowledged || changed, "{about}: what was acknowledged is lost");
            let mut expected: Vec<(i32, i64, usize)> = (0..KEYLESS)
                .filter(|id| id % 10 != 3 || changed && *id == 3)
                .filter(|id| !(changed && *id == 5))
                .map(|id| (id, if id % 10 == 4 { -1 } else { i64::from(id) }, 7))
                .collect();
            if changed {
                expected.iter_mut().filter(|row| row.0 == 3).for_each(|row| row.2 = 6);
                expected.iter_mut().filter(|row| row.0 == 6).for_each(|row| row.2 = 120);
            }
            let mut sorted = found.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, expected, "{about}");
            if keyed {
                assert_eq!(found, sorted, "{about}: in the order of the key");
                db.transact(|tx| {
                    for &(id, n, _) in &expected {
                        assert_eq!(
                            tx.get(&table, id)?.expect("by its key").get(1)?,
                            Value::Int8(n),
                            "{about}"
                        );
                    }
                    let duplicate = tx.insert(&table, &row(7, 0, ""));
                    assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{about}: {duplicate:?}");
                    assert_eq!(tx.get(&table, 13)?, None, "{about}");
                    tx.insert(&table, &row(13, 1, ""))?;
                    assert!(tx.delete(&table, 13)?);
                    Ok(())
                })
                .unwrap();
            } else {
                // It can be done now.
                db.transact(|tx| {
                    tx.add_primary_key("t", &["id"])?;
                    Err::<(), _>(Error::aborted("but is not"))
                })
                .unwrap_err();
            }
        },
    );
}

// ---- I8: recovery is idempotent

/// Work of every kind, with a checkpoint in the middle, a level 1 tail, and a load file that redo needs.
fn busy(db: &Database) {
    let table = unique_n(db);
    db.transact(|tx| (0..200).try_for_each(|id| tx.insert(&table, &row(id, i64::from(id), "one")))).unwrap();
    db.transact(|tx| tx.create_table(&TableDef::new("keyless", columns()))).unwrap();
    let keyless = db.table("keyless").unwrap();
    db.transact(|tx| (0..50).try_for_each(|id| tx.insert(&keyless, &row(id, 0, "k")))).unwrap();
    db.checkpoint().unwrap();
    db.transact(|tx| {
        for id in (0..200).step_by(3) {
            tx.delete(&table, id)?;
            tx.update(&table, id + 1, &[(2, Value::Text("two".repeat(40)))])?;
        }
        Ok(())
    })
    .unwrap();
    db.transact(|tx| {
        let loaded = tx.create_table(&TableDef::new("loaded", columns()).with_primary_key(&["id"]))?;
        (0..1_000).try_for_each(|id| tx.insert(&loaded, &row(id, 1, "loaded")))
    })
    .unwrap();
    db.transact(|tx| tx.add_primary_key("keyless", &["id"])).unwrap();
    db.transact(|tx| tx.insert(&keyless, &row(77, 7, "by key"))).unwrap();
    for id in 500..520 {
        db.transact_with(&level(Durability::Memory), |tx| {
            tx.insert(&table, &row(id, i64::from(id), &"tail".repeat(100)))
        })
        .unwrap();
    }
}

type Contents = Vec<(String, Vec<(i32, i64, usize)>)>;

fn contents(db: &Database) -> Contents {
    let user = db.tables().into_iter().map(|table| table.name()).filter(|name| !name.starts_with("rialto_"));
    user.map(|name| (name.clone(), rows(db, &name))).collect()
}

/// A crash, and then another one at each step of the recovery from it: the result is the same as without the second
/// one.
#[test]
fn a_crash_at_any_step_of_recovery_changes_nothing() {
    let seed = Random::seed_from_environment();
    for (first_is_kill, second_is_kill) in [(false, false), (false, true), (true, true)] {
        let about = format!("RIALTO_SEED={seed}, killed: {first_is_kill}, then {second_is_kill}");
        let ended = || {
            let disk = FaultyDisk::new(seed);
            let db = open(disk.clone());
            busy(&db);
            if first_is_kill {
                disk.kill()
            } else {
                disk.crash()
            }
            drop(db);
            disk.restart()
        };
        let crashed = ended();
        // One state of the disk for all of them. Only the shared ring is not copied by a restart: after a crash of the
        // machine it is gone; after a kill alone it counts, and the same life is repeated.
        if crashed.shared_bytes(RING).unwrap().is_some() {
            crashed.remove(RING).unwrap();
        }
        crashed.kill();
        let left = || if first_is_kill { ended() } else { crashed.restart() };
        let undisturbed = contents(&open(left()));
        assert_eq!(undisturbed.len(), 3, "{about}");
        if first_is_kill {
            let table = undisturbed.iter().find(|(name, _)| name == "t").unwrap();
            assert_eq!(table.1.len(), 153, "{about}: the tail of level 1 survives the process");
        }
        for step in 1.. {
            let about = format!("{about}, at step {step} of recovery");
            let mut disk = left();
            if second_is_kill {
                disk.kill_at(step)
            } else {
                disk.crash_at(step)
            }
            let opened = Database::open_on(disk.clone(), options());
            let survived = !disk.is_down();
            assert_eq!(opened.is_ok(), survived, "{about}: {opened:?}");
            if second_is_kill {
                disk.kill()
            } else {
                disk.crash()
            }
            drop(opened);
            disk = disk.restart();
            let again =
                Database::open_on(disk.clone(), options()).unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(contents(&again), undisturbed, "{about}");
            if survived {
                assert!(step > 3, "{about}: recovery writes its pad at the least");
                break;
            }
        }
    }
}
