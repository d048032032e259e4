//! Followers of databases that do whatever a log can have, on disks that crash at any step.

mod bases;
mod bound;
mod continuations;
mod copies;
mod leading;
mod lives;
mod loads;
mod observed;
mod written;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::catalog::TableDef;
use crate::io::{Caching, Disk, FaultyDisk, MemoryDisk, Open, Random};
use crate::recovery::OpenError;
use crate::row::{Column, ColumnType, Value};
use crate::txn::Scan;
use crate::txn::redone::tests::contents::{all, assert_same};
use crate::txn::redone::tests::workload;
use crate::{
    Background, Checkpointing, Database, Durability, Error, Follower, Logging, Lsn, Options, Result, Table,
};

const SOON: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn driven() -> Options {
    Options { background: Background::Driven, ..options() }
}

/// A copy of the files of a closed database.
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

/// A database that is followed, and a copy of it from before `create` has ended.
fn primary_and_copy(
    options: &Options,
    to: Arc<dyn Disk>,
    create: impl FnOnce(&Database),
) -> (Arc<MemoryDisk>, Database) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    create(&db);
    db.close().unwrap();
    copy(&*disk, &*to);
    (disk.clone(), Database::open_on(disk, options.clone()).unwrap())
}

/// Gives the follower all that the primary's log has, in pieces of this many bytes.
fn ship(primary: &Database, follower: &Follower, bytes: usize) -> Result<()> {
    let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX)?;
    while let Some(blocks) = cursor.next_blocks(bytes, Duration::ZERO)? {
        loop {
            match follower.append(&blocks) {
                Err(Error::LoadFileMissing { number }) => {
                    follower.take_load_file(number, &mut primary.load_file(number)?)?;
                }
                appended => break appended?,
            }
        }
        assert_eq!(follower.received(), blocks.end.lsn);
    }
    Ok(())
}

fn two_columns(name: &str) -> TableDef {
    TableDef::new(name, vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)])
        .with_primary_key(&["id"])
}

fn add(db: &Database, table: &Table, id: i32, by: i64) -> Result<()> {
    db.transact(|tx| tx.modify(table, id, |row| row.add(1, by).map(drop)).map(drop))
}

/// A life of a follower that ends in a crash at some step, or before.
fn life(primary: &Database, follower: &Follower, random: &mut Random) -> Result<()> {
    for _ in 0..random.below(12) {
        workload::step(primary, random);
        if random.chance(2, 3) {
            ship(primary, follower, [1, 3_000, 1 << 20][random.below(3) as usize])?;
        }
        match random.below(5) {
            0 => follower.drive()?,
            1 => follower.sync()?,
            2 => follower.database().checkpoint().map(drop)?,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn a_follower_goes_on_after_a_crash_at_any_step_and_leads() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, mut seed) = (Instant::now(), first);
    while began.elapsed() < Random::test_time_from_environment() {
        println!("round of RIALTO_SEED={seed}");
        lives(seed);
        seed = seed.wrapping_add(1);
    }
}

fn lives(seed: u64) {
    let mut random = Random::new(seed);
    let logging = if random.chance(1, 2) { Logging::Value } else { Logging::Action };
    let of_primary = Options { logging, ..options() };
    let mut faulty = FaultyDisk::new(random.next());
    let mut for_base = random.fork();
    let (_disk, primary) =
        primary_and_copy(&of_primary, faulty.clone(), |db| workload::create(db, &mut for_base));
    let of_follower = Options { logging, ..driven() };
    let (mut on_disk, mut received) = (Lsn::ZERO, Lsn::ZERO);
    for _ in 0..3 {
        let is_killed = random.chance(1, 3);
        let step = faulty.steps() + 1 + random.below(400);
        let arms = random.chance(3, 4);
        match (arms, is_killed) {
            (false, _) => {}
            (true, true) => faulty.kill_at(step),
            (true, false) => faulty.crash_at(step),
        }
        let follower = Follower::open_on(faulty.clone(), of_follower.clone());
        if let Ok(follower) = &follower {
            let least = if follower.redone() < on_disk { on_disk } else { follower.redone() };
            assert!(
                follower.redone() >= least,
                "{} were on its disk, {} are there",
                least,
                follower.redone()
            );
            let lived = life(&primary, follower, &mut random);
            assert!(lived.is_ok() || faulty.is_down(), "{lived:?}");
            (on_disk, received) = (follower.on_disk().max(on_disk), follower.received().max(received));
        } else {
            assert!(faulty.is_down(), "{:?}", follower.err());
        }
        if is_killed {
            faulty.kill()
        } else {
            faulty.crash()
        }
        drop(follower);
        faulty = faulty.restart();
        let follower = Follower::open_on(faulty.clone(), of_follower.clone()).unwrap();
        let least = if is_killed { received } else { on_disk };
        assert!(follower.redone() >= least, "of {least} places {} are there", follower.redone());
        received = follower.redone();
        follower.close().unwrap();
        drop(follower);
    }
    let follower = Follower::open_on(faulty.clone(), of_follower).unwrap();
    ship(&primary, &follower, 1 << 20).unwrap();
    follower.drive().unwrap();
    assert_eq!(follower.redone(), follower.received());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    let refused = follower.database().transact(|tx| tx.create_table(&two_columns("refused")));
    assert!(matches!(refused, Err(Error::Following)), "{refused:?}");
    workload::step(&primary, &mut random);
    ship(&primary, &follower, 1 << 20).unwrap();
    let expected = all(&primary);
    primary.close().unwrap();
    let db = follower.lead(SOON).unwrap();
    assert_same(&all(&db), &expected, "the follower that leads");
    (0..5).for_each(|_| workload::step(&db, &mut random));
    if random.chance(1, 2) {
        db.checkpoint().unwrap();
        (0..2).for_each(|_| workload::step(&db, &mut random));
    }
    let expected = all(&db);
    faulty.crash();
    drop((db, follower));
    let db = Database::open_on(faulty.restart(), Options { logging, ..options() }).unwrap();
    assert_same(&all(&db), &expected, "the follower that has led, after a crash");
    db.close().unwrap();
}

/// Transfers at the primary; the follower's readers see only whole ones, and it has all in the end.
#[test]
fn readers_beside_the_redo_see_whole_transactions() {
    const ACCOUNTS: i32 = 40;
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
        db.transact(|tx| {
            let table = tx.create_table(&two_columns("accounts"))?;
            (0..ACCOUNTS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(100)]))
        })
        .unwrap();
    });
    let follower = Follower::open_on(to, Options { checkpoint: Checkpointing::Fuzzy, ..options() }).unwrap();
    let (table, is_over) = (primary.table("accounts").unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (primary, follower, is_over) = (&primary, &follower, &is_over);
        let writers: Vec<_> = (0..2u64)
            .map(|nth| {
                let table = table.clone();
                scope.spawn(move || {
                    let mut random = Random::new(nth);
                    for _ in 0..800 {
                        let (from, to) = (random.below(40) as i32, random.below(40) as i32);
                        primary
                            .transact(|tx| {
                                tx.modify(&table, from, |row| row.add(1, -1).map(drop))?;
                                tx.modify(&table, to, |row| row.add(1, 1).map(drop)).map(drop)
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        let shipper = scope.spawn(move || {
            let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX).unwrap();
            loop {
                let ends = is_over.load(Ordering::SeqCst);
                match cursor.next_blocks(1 << 20, Duration::from_millis(5)).unwrap() {
                    Some(blocks) => follower.append(&blocks).unwrap(),
                    None if ends => return,
                    None => {}
                }
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let table = follower.database().table("accounts").unwrap();
                    let mut seen = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        let sum = follower.database().read(|tx| {
                            let mut sum = 0;
                            tx.scan(&table, &Scan::all(), |_, row| {
                                let Value::Int8(n) = row.get(1) else { panic!("a number") };
                                sum += n;
                                Ok(ControlFlow::Continue(()))
                            })?;
                            Ok(sum)
                        });
                        assert_eq!(sum.unwrap(), 100 * i64::from(ACCOUNTS));
                        seen += 1;
                    }
                    seen
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        shipper.join().unwrap();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_eq!(follower.failure(), None);
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    primary.close().unwrap();
    let db = follower.lead(SOON).unwrap();
    add(&db, &db.table("accounts").unwrap(), 1, 5).unwrap();
    assert_eq!(follower.on_disk(), follower.redone(), "its own commit");
    db.close().unwrap();
}

#[test]
fn nothing_past_the_bound_is_redone() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
        db.transact(|tx| {
            let table = tx.create_table(&two_columns("t"))?;
            tx.insert(&table, &[Value::Int4(1), Value::Int8(0)])
        })
        .unwrap();
    });
    let follower = Follower::open_on(to, options()).unwrap();
    let before = follower.redone();
    follower.redo_up_to(before.next());
    let table = primary.table("t").unwrap();
    (0..3).for_each(|_| add(&primary, &table, 1, 1).unwrap());
    ship(&primary, &follower, 1 << 20).unwrap();
    assert!(follower.wait_redone(before.next(), SOON).unwrap());
    assert!(!follower.wait_redone(before.next().next(), Duration::from_millis(100)).unwrap());
    let read = |follower: &Follower| {
        let table = follower.database().table("t").unwrap();
        follower.database().read(|tx| tx.get(&table, 1)).unwrap().unwrap().get(1usize).unwrap()
    };
    assert_eq!(read(&follower), Value::Int8(1));
    follower.redo_up_to(Lsn::MAX);
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_eq!(read(&follower), Value::Int8(3));
    // Three transactions beyond another bound: the end of following redoes them all the same.
    follower.redo_up_to(follower.redone());
    (0..3).for_each(|_| add(&primary, &table, 1, 1).unwrap());
    ship(&primary, &follower, 1 << 20).unwrap();
    let db = follower.lead(SOON).unwrap();
    assert_eq!(read(&follower), Value::Int8(6));
    let refused = ship(&primary, &follower, 1 << 20);
    add(&primary, &table, 1, 1).unwrap();
    let diverged = ship(&primary, &follower, 1 << 20);
    assert!(
        matches!((&refused, &diverged), (Err(Error::LogDiverged { .. }), Err(Error::LogDiverged { .. }))),
        "{refused:?}, {diverged:?}"
    );
    db.close().unwrap();
}

/// A follower frees its log by checkpoints of its own, in less room than what it is given takes.
#[test]
fn a_follower_frees_its_own_log() {
    let to = MemoryDisk::new();
    let bound = 4 << 20;
    let of_both = Options { log_bytes_max: bound, checkpoint: Checkpointing::Fuzzy, ..options() };
    let (_disk, primary) = primary_and_copy(&of_both, to.clone(), |db| {
        db.transact(|tx| tx.create_table(&workload_table())).unwrap();
    });
    let follower = Follower::open_on(to, of_both).unwrap();
    let table = primary.table("texts").unwrap();
    let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX).unwrap();
    let text = "x".repeat(20_000);
    for id in 0..600 {
        primary
            .transact(|tx| {
                let row = [Value::Int4(id % 50), Value::Text(text.clone())];
                tx.delete(&table, id % 50)?;
                tx.insert(&table, &row)
            })
            .unwrap();
        while let Some(blocks) = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap() {
            follower.append(&blocks).unwrap();
            cursor.release(follower.point().position);
        }
    }
    assert!(follower.point().position.0 > 2 * bound, "more than the log has room for");
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    follower.close().unwrap();
}

fn workload_table() -> TableDef {
    TableDef::new("texts", vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)])
        .with_primary_key(&["id"])
}

#[test]
fn load_files_are_awaited_and_checked() {
    let to = MemoryDisk::new();
    let (disk, primary) = primary_and_copy(&options(), to.clone(), |_| {});
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    primary
        .transact(|tx| {
            let table = tx.create_table(&two_columns("loaded"))?;
            (0..2_000).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(1)]))
        })
        .unwrap();
    let mut cursor = primary.log_cursor(Some(follower.point()), u64::MAX).unwrap();
    let blocks = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().unwrap();
    let (before, point) = (follower.received(), follower.point());
    let missing = |refused: Result<()>| match refused {
        Err(Error::LoadFileMissing { number }) => number,
        other => panic!("{other:?}"),
    };
    let number = missing(follower.append(&blocks));
    assert_eq!((follower.received(), follower.point()), (before, point), "none of the blocks is taken");
    let mut damaged = Vec::new();
    std::io::Read::read_to_end(&mut primary.load_file(number).unwrap(), &mut damaged).unwrap();
    damaged[5_000] ^= 1;
    let refused = follower.take_load_file(number, &mut &damaged[..]);
    assert!(matches!(&refused, Err(Error::Corrupt { file, .. }) if file.starts_with("load-")), "{refused:?}");
    assert_eq!(missing(follower.append(&blocks)), number);
    follower.take_load_file(number, &mut primary.load_file(number).unwrap()).unwrap();
    // A checkpoint leaves a file that is not named yet.
    follower.database().checkpoint().unwrap();
    follower.append(&blocks).unwrap();
    // Given again, cut short or damaged: what the log names stays.
    follower.take_load_file(number, &mut primary.load_file(number).unwrap()).unwrap();
    for bad in [&damaged[..], &damaged[..20_000], &[]] {
        assert!(matches!(follower.take_load_file(number, &mut &*bad), Err(Error::Corrupt { .. })));
    }
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    assert!(primary.load_file(number + 7).is_err(), "there is none");
    assert!(matches!(follower.take_load_file(u64::MAX, &mut &damaged[..]), Err(Error::Corrupt { .. })));
    follower.close().unwrap();
    drop(follower);
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    assert_same(&all(follower.database()), &all(&primary), "the follower, opened again");
    let db = follower.lead(SOON).unwrap();
    let late = follower.take_load_file(number, &mut primary.load_file(number).unwrap());
    assert!(matches!(late, Err(Error::LogDiverged { .. })), "{late:?}");
    assert!(to.list().unwrap().iter().all(|name| !name.contains("unfinished")), "{:?}", to.list());
    drop(db);
    follower.close().unwrap();
    drop(disk);
}

/// A reader that stays open is in the way of the redo: then the follower goes on to follow, with its bound.
#[test]
fn a_reader_in_the_way_keeps_it_from_leading_and_from_nothing_else() {
    for is_driven in [false, true] {
        let to = MemoryDisk::new();
        let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
            db.transact(|tx| {
                let table = tx.create_table(&two_columns("t"))?;
                tx.insert(&table, &[Value::Int4(1), Value::Int8(0)])
            })
            .unwrap();
        });
        let of_follower = if is_driven { driven() } else { options() };
        let of_follower = Options { lock_timeout: Duration::from_millis(20), ..of_follower };
        let follower = Follower::open_on(to, of_follower).unwrap();
        let table = follower.database().table("t").unwrap();
        let mut reader = follower.database().begin().unwrap();
        assert!(reader.get(&table, 1).unwrap().is_some());
        let before = follower.redone();
        follower.redo_up_to(before.next());
        (0..2).for_each(|_| add(&primary, &primary.table("t").unwrap(), 1, 1).unwrap());
        ship(&primary, &follower, 1 << 20).unwrap();
        follower.drive().unwrap();
        let refused = follower.lead(Duration::from_millis(50)).map(drop);
        assert!(matches!(refused, Err(Error::LockTimeout { .. } | Error::Deadlock { .. })), "{refused:?}");
        assert_eq!((follower.redone(), follower.failure()), (before, None));
        // In a body it would wait for itself.
        let nested = follower.database().transact(|_| {
            let calls = [follower.lead(SOON).map(drop), follower.close(), ship(&primary, &follower, 1)];
            assert!(calls[..2].iter().all(|call| matches!(call, Err(Error::Nested))), "{calls:?}");
            Ok(())
        });
        nested.unwrap();
        reader.commit().unwrap();
        follower.drive().unwrap();
        assert!(follower.wait_redone(before.next(), SOON).unwrap());
        assert!(!follower.wait_redone(before.next().next(), Duration::from_millis(50)).unwrap(), "its bound");
        let db = follower.lead(SOON).unwrap();
        add(&db, &table, 1, 1).unwrap();
        db.close().unwrap();
    }
}

/// The threads end while a redo waits for a reader.
#[test]
fn a_follower_that_waits_for_a_reader_can_be_dropped() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
        db.transact(|tx| {
            let table = tx.create_table(&two_columns("t"))?;
            tx.insert(&table, &[Value::Int4(1), Value::Int8(0)])
        })
        .unwrap();
    });
    let of_follower = Options { lock_timeout: Duration::from_secs(3_600), ..options() };
    let follower = Follower::open_on(to, of_follower).unwrap();
    let table = follower.database().table("t").unwrap();
    let mut reader = follower.database().begin().unwrap();
    assert!(reader.get(&table, 1).unwrap().is_some());
    add(&primary, &primary.table("t").unwrap(), 1, 1).unwrap();
    ship(&primary, &follower, 1 << 20).unwrap();
    while follower.database().lock_waits().is_empty() {
        std::thread::yield_now();
    }
    drop(follower);
    reader.commit().unwrap();
}

#[test]
fn a_directory_of_a_follower_is_opened_as_one() {
    let to = MemoryDisk::new();
    let (_disk, primary) = primary_and_copy(&options(), to.clone(), |db| {
        db.transact(|tx| tx.create_table(&two_columns("t"))).unwrap();
    });
    for (what, bad) in [
        ("logging", Options { logging: Logging::Transaction, ..options() }),
        ("logging", Options { logging: Logging::None, ..options() }),
    ] {
        let refused = Follower::open_on(to.clone(), bad).map(drop);
        assert!(
            matches!(&refused, Err(OpenError::Options { what: told }) if told.contains(what)),
            "{refused:?}"
        );
    }
    let missing = Follower::open_on(MemoryDisk::new(), options()).map(drop);
    assert!(matches!(missing, Err(OpenError::Missing { .. })), "{missing:?}");
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    let backup = follower.database().backup_on(MemoryDisk::new(), crate::BackupKind::Full).map(drop);
    assert!(matches!(backup, Err(Error::Unsupported { .. })), "{backup:?}");
    follower.close().unwrap();
    drop(follower);
    let refused = Database::open_on(to.clone(), options()).map(drop);
    assert!(
        matches!(&refused, Err(OpenError::Unsupported { what }) if what.contains("Follower::lead")),
        "{refused:?}"
    );
    let follower = Follower::open_on(to.clone(), options()).unwrap();
    follower.lead(SOON).unwrap().close().unwrap();
    let again = follower.lead(SOON).map(drop);
    assert!(again.is_err());
    drop(follower);
    Database::open_on(to, options()).unwrap().close().unwrap();
    primary.close().unwrap();
}
