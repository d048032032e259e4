//! Copies that are made while the primary is used: received on disks that crash at any step, and followed from then on.

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicU64;

use super::*;
use crate::backup::{Backup, CopyOptions, CopyReport, Restore, RestoreTo, forge, frames_of, restore};
use crate::log::LogCursor;
use crate::{BackupKind, Durability};

/// How long a stream waits for the transactions beside the copy, which may wait for the copy.
const BESIDE: Duration = Duration::from_millis(20);

/// A stream that lets transactions go on between its writes.
struct Slow<'a> {
    out: Vec<u8>,
    steps: &'a AtomicU64,
    random: Random,
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.random.chance(1, 3) {
            let (until, began) = (self.steps.load(Ordering::SeqCst) + self.random.below(3), Instant::now());
            while self.steps.load(Ordering::SeqCst) < until && began.elapsed() < BESIDE {
                std::thread::yield_now();
            }
        }
        let count = bytes.len().min(1 + self.random.below(200_000) as usize);
        self.out.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A copy at rest.
fn copied(primary: &Database) -> (Vec<u8>, CopyReport, LogCursor) {
    let mut out = Vec::new();
    let (report, cursor) = primary.copy_to(&mut out, &CopyOptions::default()).unwrap();
    assert_eq!(report.bytes, out.len() as u64);
    (out, report, cursor)
}

/// A copy beside random transactions and checkpoints.
fn copied_beside_work(primary: &Database, random: &mut Random) -> (Vec<u8>, CopyReport, LogCursor) {
    let (is_over, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut of_work = random.fork();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                match of_work.chance(1, 10) {
                    true => drop(primary.checkpoint().unwrap()),
                    false => workload::step(primary, &mut of_work),
                }
                steps.fetch_add(1, Ordering::SeqCst);
            }
        });
        let copied = loop {
            let mut out = Slow { out: Vec::new(), steps: &steps, random: random.fork() };
            match primary.copy_to(&mut out, &CopyOptions::default()) {
                Ok((report, cursor)) => break (out.out, report, cursor),
                // Transactions needed the log's room.
                Err(Error::LogFull { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        is_over.store(true, Ordering::SeqCst);
        worker.join().unwrap();
        copied
    })
}

/// Texts that take several log files where these are small.
fn fill_log(db: &Database, texts: u64) {
    let table = match db.table("texts") {
        Ok(table) => table,
        Err(_) => db.transact(|tx| tx.create_table(&workload_table())).unwrap(),
    };
    for id in 0..texts as i32 {
        db.transact(|tx| {
            tx.delete(&table, id % 10)?;
            tx.insert(&table, &[Value::Int4(id % 10), Value::Text("x".repeat(30_000))])
        })
        .unwrap();
    }
}

/// Gives the follower all that the cursor, which came with its copy, has.
fn ship_from(primary: &Database, cursor: &mut LogCursor, follower: &Follower) -> Result<()> {
    assert_eq!(cursor.point(), follower.point());
    while let Some(blocks) = cursor.next_blocks(200_000, Duration::ZERO)? {
        while let Err(error) = follower.append(&blocks) {
            let Error::LoadFileMissing { number } = error else { return Err(error) };
            follower.take_load_file(number, &mut primary.load_file(number)?)?;
        }
        cursor.release(follower.point().position);
    }
    Ok(())
}

/// Receives a copy on a disk that crashes at some steps, until one receipt comes to its end.
fn receive_at_last(mut faulty: Arc<FaultyDisk>, stream: &[u8], random: &mut Random) -> Arc<FaultyDisk> {
    loop {
        let is_killed = random.chance(1, 3);
        let step = faulty.steps() + 1 + random.below(150);
        match (random.chance(2, 3), is_killed) {
            (false, _) => {}
            (true, true) => faulty.kill_at(step),
            (true, false) => faulty.crash_at(step),
        }
        let received = Follower::receive_on(faulty.clone(), &mut &*stream);
        assert!(received.is_ok() || faulty.is_down(), "{received:?}");
        if is_killed {
            faulty.kill()
        } else {
            faulty.crash()
        }
        faulty = faulty.restart();
        let names = faulty.list().unwrap();
        assert!(received.is_err() || names.iter().any(|name| name == "home"), "{names:?}");
        if names.iter().any(|name| name == "home") {
            return faulty;
        }
        assert_refused(&faulty);
    }
}

/// Nothing opens a directory in which no copy was received whole.
fn assert_refused(disk: &Arc<FaultyDisk>) {
    let is_marked = disk.list().unwrap().iter().any(|name| name == "restore-unfinished");
    let follower = Follower::open_on(disk.clone(), driven()).map(drop);
    match is_marked {
        true => {
            let of_database = Database::open_on(disk.clone(), options()).map(drop);
            for refused in [follower, of_database] {
                assert!(
                    matches!(&refused, Err(OpenError::Unsupported { what }) if what.contains("was not completed")),
                    "{refused:?}"
                );
            }
        }
        false => assert!(matches!(follower, Err(OpenError::Missing { .. })), "{follower:?}"),
    }
}

#[test]
fn a_copy_made_beside_transactions_is_followed() {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, mut seed) = (Instant::now(), first);
    while began.elapsed() < Random::test_time_from_environment() {
        println!("round of RIALTO_SEED={seed}");
        round(seed);
        seed = seed.wrapping_add(1);
    }
}

fn round(seed: u64) {
    let mut random = Random::new(seed);
    let logging = if random.chance(1, 2) { Logging::Value } else { Logging::Action };
    let durability = if random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
    let small = random.chance(1, 2);
    let log_bytes_max = if small { 16 << 20 } else { options().log_bytes_max };
    let strategies =
        [Checkpointing::Fuzzy, Checkpointing::TransactionCopyOnUpdate, Checkpointing::ActionBlackWhite];
    let checkpoint = strategies[random.below(3) as usize];
    let of_primary = Options { logging, durability, log_bytes_max, checkpoint, ..options() };
    let of_follower = Options { logging, log_bytes_max, ..driven() };
    let mut primary = Database::open_on(MemoryDisk::new(), of_primary.clone()).unwrap();
    workload::create(&primary, &mut random);
    // The second time the primary is a follower that has led.
    for generation in 0..2 {
        fill_log(&primary, random.below(if small { 160 } else { 20 }));
        (0..random.below(8)).for_each(|_| workload::step(&primary, &mut random));
        let (stream, report, mut cursor) = copied_beside_work(&primary, &mut random);
        let (mut from, mut faulty) = (&stream[..], FaultyDisk::new(random.next()));
        faulty = receive_at_last(faulty, &stream, &mut random);
        assert!(Follower::receive_on(faulty.clone(), &mut from).is_err(), "it is there");
        let alone = Database::open_on(faulty.clone(), of_primary.clone()).map(drop);
        assert!(
            matches!(&alone, Err(OpenError::Unsupported { what }) if what.contains("Follower::lead")),
            "a second primary: {alone:?}"
        );
        // A crash of its first opening, or later.
        faulty.crash_at(faulty.steps() + 1 + random.below(200));
        if let Ok(follower) = Follower::open_on(faulty.clone(), of_follower.clone()) {
            assert_eq!(follower.point(), report.point);
            let lived = ship_from(&primary, &mut cursor, &follower).and_then(|()| follower.drive());
            let lived = lived.and_then(|()| life(&primary, &follower, &mut random));
            assert!(lived.is_ok() || faulty.is_down(), "{lived:?}");
        }
        faulty.crash();
        faulty = faulty.restart();
        let follower = Follower::open_on(faulty.clone(), of_follower.clone()).unwrap();
        assert!(follower.redone() >= report.point.lsn);
        (0..random.below(8)).for_each(|_| workload::step(&primary, &mut random));
        ship(&primary, &follower, 1 << 20).unwrap();
        follower.drive().unwrap();
        assert_same(&all(follower.database()), &all(&primary), "the follower");
        let expected = all(&primary);
        drop(cursor);
        primary.close().unwrap();
        let db = follower.lead(SOON).unwrap();
        assert_same(&all(&db), &expected, "the follower that leads");
        if generation == 1 {
            (0..5).for_each(|_| workload::step(&db, &mut random));
        }
        let expected = all(&db);
        db.close().unwrap();
        drop(follower);
        primary = Database::open_on(faulty, of_primary.clone()).unwrap();
        assert_same(&all(&primary), &expected, "the follower that has led");
    }
    primary.close().unwrap();
}

fn small_database(options: Options) -> (Arc<MemoryDisk>, Database) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options).unwrap();
    db.transact(|tx| {
        let table = tx.create_table(&two_columns("t"))?;
        tx.create_table(&two_columns("d").with_residence(crate::Residence::Disk))?;
        (0..5).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
    })
    .unwrap();
    (disk, db)
}

/// A receipt that stops at each of its steps, by a crash or a kill: then nothing opens the directory, or all is there.
#[test]
fn a_receipt_can_be_interrupted_at_each_step() {
    let (_disk, primary) = small_database(options());
    fill_log(&primary, 3);
    let (stream, report, _cursor) = copied(&primary);
    let expected = all(&primary);
    let steps = {
        let faulty = FaultyDisk::new(1);
        Follower::receive_on(faulty.clone(), &mut &stream[..]).unwrap();
        faulty.steps()
    };
    assert!(steps > 20, "{steps}");
    for step in 1..=steps {
        let mut faulty = FaultyDisk::new(step);
        if step % 3 == 0 {
            faulty.kill_at(step)
        } else {
            faulty.crash_at(step)
        }
        let received = Follower::receive_on(faulty.clone(), &mut &stream[..]);
        if step % 3 == 0 {
            faulty.kill()
        } else {
            faulty.crash()
        }
        faulty = faulty.restart();
        let is_there = faulty.list().unwrap().iter().any(|name| name == "home");
        assert!(received.is_err() || is_there, "step {step}");
        if !is_there {
            assert_refused(&faulty);
            Follower::receive_on(faulty.clone(), &mut &stream[..]).unwrap();
        }
        let follower = Follower::open_on(faulty, driven()).unwrap();
        assert_eq!(follower.point(), report.point, "step {step}");
        assert_same(&all(follower.database()), &expected, "a received copy");
    }
}

/// The log behind the copy stays for its cursor, with the load files that it names, whatever checkpoints free; and not longer.
#[test]
fn the_log_behind_a_copy_stays_for_its_cursor() {
    let of_both = Options { log_bytes_max: 16 << 20, ..options() };
    let (_disk, primary) = small_database(of_both.clone());
    let load = |name: &str| {
        primary
            .transact(|tx| {
                let table = tx.create_table(&two_columns(name))?;
                (0..2_000).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(1)]))
            })
            .unwrap();
    };
    let work = |name: &str| {
        load(name);
        fill_log(&primary, 110);
        for _ in 0..3 {
            primary.checkpoint().unwrap();
            add(&primary, &primary.table("t").unwrap(), 1, 1).unwrap();
        }
    };
    let (stream, _, mut cursor) = copied(&primary);
    work("loaded");
    let to = MemoryDisk::new();
    let received = Follower::receive_on(to.clone(), &mut &stream[..]).unwrap();
    assert_eq!(received.point, cursor.point());
    let follower = Follower::open_on(to, of_both.clone()).unwrap();
    ship_from(&primary, &mut cursor, &follower).unwrap();
    assert!(follower.wait_redone(follower.received(), SOON).unwrap());
    assert_same(&all(follower.database()), &all(&primary), "the follower");
    drop(cursor);
    follower.close().unwrap();
    // Without a cursor, and behind the bound of one, it goes.
    let mut stream = Vec::new();
    let few = CopyOptions { log_bytes_max: 0, ..CopyOptions::default() };
    let (report, mut cursor) = primary.copy_to(&mut stream, &few).unwrap();
    work("more");
    let gone = cursor.next_blocks(1 << 20, Duration::ZERO);
    assert!(matches!(gone, Err(Error::LogTrimmed { .. })), "{gone:?}");
    assert!(matches!(primary.log_cursor(Some(report.point), u64::MAX), Err(Error::LogTrimmed { .. })));
    primary.close().unwrap();
}

/// Copies with each end of the log around the end of a log file, in whole pages and amid them.
#[test]
fn the_log_of_a_copy_may_end_anywhere() {
    let of_primary = Options {
        durability: Durability::Memory,
        memory_flush_interval: Duration::from_secs(3_600),
        log_bytes_max: 1 << 20,
        ..options()
    };
    let (_disk, primary) = small_database(of_primary);
    let (table, file_bytes) = (primary.table("t").unwrap(), 128 << 10);
    let mut cursor = primary.log_cursor(None, u64::MAX).unwrap();
    let (mut amid, mut files) = (0, std::collections::BTreeSet::new());
    loop {
        add(&primary, &table, 1, 1).unwrap();
        while cursor.next_blocks(1 << 20, Duration::ZERO).unwrap().is_some() {}
        let at = cursor.point().position.0;
        let is_near = at % file_bytes < 12_000 || at % file_bytes > file_bytes - 12_000;
        if !is_near {
            primary.sync().unwrap();
            continue;
        }
        let (stream, report, _) = copied(&primary);
        let at = report.point.position.0;
        amid += u32::from(at % 4096 != 0);
        files.insert(at / file_bytes);
        let to = MemoryDisk::new();
        Follower::receive_on(to.clone(), &mut &stream[..]).unwrap();
        let follower = Follower::open_on(to.clone(), driven()).unwrap();
        assert_eq!(follower.point(), report.point);
        add(&primary, &table, 2, 1).unwrap();
        ship(&primary, &follower, 1 << 20).unwrap();
        // What was received is not on the disk; the process ends.
        drop(follower);
        let follower = Follower::open_on(to, driven()).unwrap();
        assert_same(&all(follower.database()), &all(&primary), "the follower");
        if files.len() > 3 {
            break;
        }
    }
    assert!(amid > 10, "{amid}");
}

#[test]
fn what_is_no_copy_is_refused() {
    let (_disk, primary) = small_database(options());
    let (stream, _, _cursor) = copied(&primary);
    let on = |disk: &Arc<MemoryDisk>, mut from: &[u8]| Follower::receive_on(disk.clone(), &mut from);
    let disk = MemoryDisk::new();
    let mut backup = Vec::new();
    primary.backup_to(&mut backup, BackupKind::Full).unwrap();
    let refused = on(&disk, &backup);
    assert!(
        matches!(&refused, Err(OpenError::Unsupported { what }) if what.contains("is a backup")),
        "{refused:?}"
    );
    let of_copy = Restore::new(vec![Backup::stream("s", io::Cursor::new(stream.clone()))]);
    let refused = restore(of_copy, disk.clone());
    assert!(
        matches!(&refused, Err(OpenError::Unsupported { what }) if what.contains("Follower::receive")),
        "{refused:?}"
    );
    let mut random = Random::new(7);
    for _ in 0..60 {
        let (mut damaged, at) = (stream.clone(), random.below(stream.len() as u64) as usize);
        damaged[at] ^= 1;
        for bad in [&damaged[..], &stream[..at]] {
            let refused = on(&disk, bad);
            assert!(matches!(&refused, Err(OpenError::Corrupt { .. })), "{at}: {refused:?}");
            assert_eq!(disk.list().unwrap(), [""; 0], "nothing is left");
        }
    }
    // What follows the copy in its stream is left there.
    let with_more = [&stream[..], b"blocks"].concat();
    let (mut from, mut rest) = (&with_more[..], Vec::new());
    Follower::receive_on(disk.clone(), &mut from).unwrap();
    from.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"blocks");
    let refused = on(&disk, &stream);
    assert!(
        matches!(&refused, Err(OpenError::Unsupported { what }) if what.contains("it is not empty")),
        "{refused:?}"
    );
    // No follower gives a copy: its own log may lack what the primary's has.
    let follower = Follower::open_on(disk, options()).unwrap();
    let refused = follower.database().copy_to(&mut Vec::new(), &CopyOptions::default()).map(drop);
    assert!(
        matches!(&refused, Err(Error::Unsupported { what }) if what.contains("follows another one")),
        "{refused:?}"
    );
    follower.close().unwrap();
    let full = FaultyDisk::new(1);
    full.leave_room(300_000);
    let refused = Follower::receive_on(full.clone(), &mut &stream[..]);
    assert!(matches!(&refused, Err(OpenError::Io(what)) if what.contains("full")), "{refused:?}");
    full.mend();
    assert_eq!(full.list().unwrap(), [""; 0]);
    primary.close().unwrap();
    for logging in [Logging::Transaction, Logging::None] {
        let db = Database::open_on(MemoryDisk::new(), Options { logging, ..options() }).unwrap();
        let refused = db.copy_to(&mut Vec::new(), &CopyOptions::default()).map(drop);
        assert!(
            matches!(&refused, Err(Error::Unsupported { what }) if what.contains("follower")),
            "{refused:?}"
        );
    }
}

/// Copies whose checksums are right, and that no primary has made.
#[test]
fn forged_copies_are_refused() {
    let (_disk, primary) = small_database(options());
    let (stream, ..) = copied(&primary);
    let frames = frames_of(&stream);
    let log: Vec<usize> = (0..frames.len()).filter(|&at| frames[at].0 == 7).collect();
    assert!(!log.is_empty());
    let mut random = Random::new(11);
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..200 {
        let mut forged = frames.clone();
        // The point, or the layout of the file or the position in a part of the log.
        let (frame, word) = match random.chance(1, 3) {
            true => (0, [56, 88, 96][random.below(3) as usize]),
            false => (log[random.below(log.len() as u64) as usize], 8 * random.below(4) as usize),
        };
        let number = &mut forged[frame].1[word..word + 8];
        let old = u64::from_le_bytes((&*number).try_into().unwrap());
        let new = [
            old.wrapping_add(4096),
            old.wrapping_sub(8),
            old / 2,
            random.next(),
            u64::MAX,
            u64::MAX / 8 * 8,
            0,
        ];
        number.copy_from_slice(&new[random.below(new.len() as u64) as usize].to_le_bytes());
        if random.chance(1, 4) {
            let other = log[random.below(log.len() as u64) as usize];
            forged.swap(other, other - 1);
        }
        let disk = MemoryDisk::new();
        match Follower::receive_on(disk.clone(), &mut &forge(&forged)[..]) {
            Ok(_) if Follower::open_on(disk, driven()).is_ok() => opened += 1,
            Ok(_) => refused += 1,
            Err(OpenError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(refused > 150, "{refused} are refused, {opened} opened");
}

#[test]
fn an_increment_after_a_copy_lacks_nothing() {
    let (_disk, primary) = small_database(options());
    let (full, increment) = (MemoryDisk::new(), MemoryDisk::new());
    primary.backup_on(full.clone(), BackupKind::Full).unwrap();
    for name in ["t", "d"] {
        let table = primary.table(name).unwrap();
        primary.transact(|tx| tx.insert(&table, &[Value::Int4(77), Value::Int8(7)])).unwrap();
    }
    drop(copied(&primary));
    let cancelled = AtomicBool::new(true);
    let options_of_copy = CopyOptions { cancelled: Some(&cancelled), ..CopyOptions::default() };
    let refused = primary.copy_to(&mut Vec::new(), &options_of_copy).map(drop);
    assert!(matches!(refused, Err(Error::Cancelled)), "{refused:?}");
    let report = primary.backup_on(increment.clone(), BackupKind::Incremental).unwrap();
    assert!(report.base.is_some());
    let backups = [full, increment].map(|disk| Backup::on(disk, "backup").unwrap());
    let to = MemoryDisk::new();
    restore(Restore { to: RestoreTo::End, ..Restore::new(backups.into()) }, to.clone()).unwrap();
    let restored = Database::open_on(to, options()).unwrap();
    assert_same(&all(&restored), &all(&primary), "the restored database");
}
