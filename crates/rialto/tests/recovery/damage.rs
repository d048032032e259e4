//! Failures, each with its exact message.

mod unusable;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::quiet::{count, open, options, put, thing, things};
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Open, Random};
use rialto::{Database, Durability, Error, Lsn, Options, TxOptions};

/// The error of an opening, and the program's exit code for it.
fn refused(disk: Arc<dyn Disk>) -> (String, u8) {
    let error = Database::open_on(disk, options()).expect_err("it cannot be opened");
    (error.to_string(), error.exit_code())
}

fn level_1() -> TxOptions {
    TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() }
}

/// A database of `checkpoints` checkpoints, 300 rows before each, and 50 rows after the last one.
fn database(checkpoints: i32) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    things(&db);
    for round in 0..checkpoints {
        put(&db, round * 1000..round * 1000 + 300);
        assert!(!db.checkpoint().unwrap().skipped);
    }
    put(&db, 900_000..900_050);
    db.close().unwrap();
    // The state that another boot of the machine finds.
    disk.remove("log-tail").unwrap();
    disk
}

fn change(disk: &dyn Disk, name: &str, offset: u64, length: usize, change: impl FnOnce(&mut [u8])) {
    let file = disk.open(name, Open::Existing, Caching::Buffered).unwrap();
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, offset).unwrap();
    change(&mut bytes);
    file.write_at(&bytes, offset).unwrap();
}

fn flip(disk: &dyn Disk, name: &str, offset: u64) {
    change(disk, name, offset, 1, |byte| byte[0] ^= 0x10);
}

/// The text with each run of hexadecimal digits of a checksum as `#`.
fn without_checksums(text: &str) -> String {
    let is_checksum = |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split(' ').map(|word| {
        let bare = word.trim_end_matches([',', ':', ';']);
        if is_checksum(bare) { format!("#{}", &word[bare.len()..]) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

// ---- the log fails

/// I4. A sync, or a write, of the log fails. Transactions past their place are told that their outcome is unknown,
/// later ones that the database has stopped. Nothing is tried again, and what was durable can be read. Reopening finds
/// what the page cache has and writes it again, so that a later crash of the machine loses nothing any more.
#[test]
fn a_failed_sync_or_write_of_the_log_is_sticky_and_reopening_makes_the_tail_durable() {
    let base = Random::seed_from_environment();
    for round in 0..30 {
        let about = format!("RIALTO_SEED={base}, round {round}");
        let kind = if round % 3 == 0 { FaultKind::Write } else { FaultKind::Sync };
        let disk = FaultyDisk::new(base.wrapping_add(round));
        let db = open(disk.clone());
        let table = things(&db);
        put(&db, 0..10);
        disk.fail(kind, "log-0", 0);
        let insert = |id| db.submit_with(&level_1(), |tx| tx.insert(&table, &thing(id, 3000))).unwrap().1;
        // Places 3 to 5. The last one waits for the disk; the ticket of the other level has its answer already.
        let (answered, pending) = (insert(100), insert(101));
        let ((), waiting) = db.submit(|tx| tx.insert(&table, &thing(102, 3000))).unwrap();
        assert_eq!((pending.lsn(), waiting.lsn()), (Lsn(4), Lsn(5)), "{about}");
        let unknown = waiting.wait().unwrap_err();
        let what = if kind == FaultKind::Write { "write" } else { "sync" };
        let Error::OutcomeUnknown { lsn: Lsn(5), cause } = &unknown else { panic!("{about}: {unknown:?}") };
        let offset = cause.split("offset ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert_eq!(
            cause,
            &format!(
                "{what} of \"log-0000000001\" at offset {offset} failed: Input/output error (os error 5)"
            ),
            "{about}"
        );
        assert_eq!(
            unknown.to_string(),
            format!(
                "outcome unknown: the log failed after the transaction took place 5 in it; reopen the database to \
                 learn its outcome ({cause})"
            )
        );
        assert_eq!(
            answered.wait(),
            Ok(()),
            "{about}: level 1 was answered, and holds while the machine is up"
        );

        let steps = disk.steps();
        let stopped = format!("the database has stopped: {cause}; reopen it to recover");
        let later = db.transact(|tx| tx.insert(&table, &thing(103, 10))).unwrap_err();
        assert_eq!(later.to_string(), stopped, "{about}");
        assert_eq!(db.sync().unwrap_err().to_string(), stopped, "{about}");
        assert_eq!(db.checkpoint().unwrap_err().to_string(), stopped, "{about}");
        assert!(db.read(|tx| Ok(tx.get(&table, 3)?.is_some())).unwrap(), "{about}: what was durable");
        let rests = db.read(|tx| Ok(tx.get(&table, 102)?.is_some())).unwrap_err();
        assert!(matches!(rests, Error::OutcomeUnknown { .. }), "{about}: {rests}");
        assert_eq!(disk.steps(), steps, "{about}: nothing is written or synced again");
        assert_eq!(db.close().unwrap_err().to_string(), stopped, "{about}");

        disk.kill();
        drop((table, pending));
        let disk = disk.restart();
        let db = open(disk.clone());
        let found = count(&db);
        assert_eq!(found, 13, "{about}: the process has ended, the ring and the page cache have not");
        disk.crash();
        drop(db);
        assert_eq!(count(&open(disk.restart())), found, "{about}: what recovery saw stays");
    }
}

/// There is no room for the next log file: commits go on in the room that is left, and then fail before their place.
#[test]
fn a_full_disk_under_the_log_fails_commits_before_their_place() {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let impatient = Options { log_wait_max: Duration::from_millis(50), ..options() };
    let db = Database::open_on(disk.clone(), impatient).unwrap();
    let table = things(&db);
    disk.fail_always(FaultKind::Full, "log-unfinished", 0);
    let (mut rows, began) = (0, Instant::now());
    let error = loop {
        match db.transact_with(&level_1(), |tx| tx.insert(&table, &thing(rows, 30_000))) {
            Ok(()) => rows += 1,
            // The log's own thread has not attempted it yet.
            Err(Error::LogFull { reason }) if reason.contains("is not ready yet") => {
                assert!(began.elapsed() < Duration::from_secs(60), "{reason}");
            }
            Err(error) => break error,
        }
        assert!(rows < 1000, "the first file holds 4 MiB");
    };
    assert_eq!(
        error.to_string(),
        "no room for the log: allocate of \"log-unfinished\" at offset 67112960 failed: the disk is full; make room on it; \
         no checkpoint is made by itself (Checkpointing::None): make one"
    );
    assert!(rows > 100);
    assert_eq!(count(&db), rows as u64, "it is not committed, and the database can be read");
    assert!(!db.checkpoint().unwrap().skipped, "and checkpointed");
    disk.mend();
    // The next file is 64 MiB of zeros, which may take longer than a commit waits here.
    let again = (0..1000).map(|_| db.transact(|tx| tx.insert(&table, &thing(rows, 30_000))));
    again.into_iter().find(|outcome| !matches!(outcome, Err(Error::LogFull { .. }))).unwrap().unwrap();
    disk.crash();
    drop(db);
    assert_eq!(count(&open(disk.restart())), rows as u64 + 1);
}

#[test]
fn a_disk_that_is_full_from_the_start_is_an_error_of_opening() {
    let disk = FaultyDisk::new(1);
    disk.fail_always(FaultKind::Full, "log-", 0);
    let expected =
        "allocate of \"log-unfinished\" at offset 4198400 failed: the disk is full; make room on it";
    assert_eq!(refused(disk.clone()), (expected.to_owned(), 4));
    disk.mend();
    things(&open(disk));
}

// ---- a checkpoint fails

#[test]
fn a_checkpoint_that_fails_leaves_the_last_one_in_force() {
    // How many operations succeed first, and the error of the one that fails.
    let cases = [
        (
            FaultKind::Full,
            "backup",
            0,
            "allocate of \"backup-1\" at offset 524288 failed: the disk is full; make room on it",
        ),
        (
            FaultKind::Write,
            "backup",
            1,
            "write of \"backup-1\" at offset 0 failed: Input/output error (os error 5)",
        ),
        (
            FaultKind::Sync,
            "backup",
            0,
            "sync of \"backup-1\" at offset 0 failed: Input/output error (os error 5)",
        ),
        (
            FaultKind::Write,
            "home",
            0,
            "write of \"home\" at offset 0 failed: Input/output error (os error 5)",
        ),
        (FaultKind::Sync, "home", 0, "sync of \"home\" at offset 0 failed: Input/output error (os error 5)"),
    ];
    for (kind, file, before, expected) in cases {
        let disk = FaultyDisk::new(Random::seed_from_environment());
        let db = open(disk.clone());
        things(&db);
        put(&db, 0..300);
        db.checkpoint().unwrap();
        put(&db, 300..600);
        disk.fail_always(kind, file, before);
        let error = db.checkpoint().unwrap_err();
        assert_eq!(error.to_string(), expected);
        let is_full = matches!(error, Error::DiskFull { .. });
        assert_eq!(
            (is_full, matches!(error, Error::Io { .. })),
            (kind == FaultKind::Full, kind != FaultKind::Full)
        );
        put(&db, 600..700);
        let stats = db.metrics().checkpoints;
        assert_eq!((stats.completed, stats.failed), (1, 1), "{expected}");
        assert_eq!(stats.failure.as_deref(), Some(expected));
        disk.crash();
        drop(db);
        let disk = disk.restart();
        let db = open(disk.clone());
        assert_eq!((count(&db), db.recovery().unwrap().checkpoint), (700, 2), "{expected}");
        assert!(!db.checkpoint().unwrap().skipped, "{expected}");
        disk.crash();
        drop(db);
        let db = open(disk.restart());
        assert_eq!((count(&db), db.recovery().unwrap().checkpoint), (700, 3), "{expected}");
    }
}

// ---- files are damaged, or missing

/// The warning of an opening about a damaged newest copy, after the rows were counted.
fn falls_back(disk: Arc<MemoryDisk>, options: Options) -> (u64, String) {
    let db = Database::open_on(disk, options).unwrap();
    let fell_back = db.recovery().unwrap().fell_back.clone().expect("it falls back");
    (count(&db), without_checksums(&fell_back.to_string()))
}

#[test]
fn a_damaged_newest_copy_falls_back_to_the_older_one_and_says_so() {
    // Checkpoint 3 is the second one, in backup-1; between the two is one packet.
    let disk = database(2);
    flip(&*disk, "backup-1", 70);
    let expected = "\"backup-1\" of checkpoint 3 is damaged at offset 0: the checksum of segment 0's image is #, its bytes \
                    have #: they are damaged, or another database's; recovered from checkpoint 2 in \"backup-0\" instead, \
                    with redo from place 3 on, 1 packets longer; the next checkpoint writes the damaged copy anew";
    for _ in 0..2 {
        // The warning comes again until a checkpoint has written the copy anew.
        assert_eq!(falls_back(disk.clone(), options()), (650, expected.to_owned()));
    }
    let db = open(disk.clone());
    db.checkpoint().unwrap();
    drop(db);
    let db = open(disk.clone());
    let report = db.recovery().unwrap();
    assert_eq!((count(&db), report.checkpoint, report.fell_back.is_some()), (650, 3, false));
    drop(db);

    let disk = database(2);
    disk.open("backup-1", Open::Existing, Caching::Buffered).unwrap().set_length(65_536 + 10).unwrap();
    let (rows, text) = falls_back(disk, options());
    assert_eq!(rows, 650);
    assert!(
        text.contains("at offset 65536: expected a segment's image, but the file ends 10 bytes behind;"),
        "{text}"
    );

    // Before the first checkpoint everything is in the log.
    let disk = database(1);
    flip(&*disk, "backup-0", 70);
    let (rows, text) = falls_back(disk, options());
    assert_eq!(rows, 350);
    assert!(
        text.contains("recovered from the log alone instead, with redo from place 1 on, 2 packets longer"),
        "{text}"
    );
}

#[test]
fn damage_of_both_copies_is_one_error_that_names_both() {
    let disk = database(2);
    flip(&*disk, "backup-0", 70);
    flip(&*disk, "backup-1", 65_536 + 70);
    let (text, code) = refused(disk);
    assert_eq!(
        without_checksums(&text),
        "\"backup-1\" is corrupt at offset 65536: the checksum of segment 1's image is #, its bytes have #: they are \
         damaged, or another database's; the older checkpoint cannot stand in for it: \"backup-0\" is corrupt at offset \
         0: the checksum of segment 0's image is #, its bytes have #: they are damaged, or another database's"
    );
    assert_eq!(code, 1);
}

/// Once the next sweep has begun, the older copy is given up, unless there is a third one.
#[test]
fn a_damaged_copy_while_the_next_is_written() {
    for copies in [2, 3] {
        let options = || Options { backup_copies: copies, ..options() };
        let faulty = FaultyDisk::new(Random::seed_from_environment());
        let db = Database::open_on(faulty.clone(), options()).unwrap();
        things(&db);
        for round in 0..2 {
            put(&db, round * 1000..round * 1000 + 300);
            db.checkpoint().unwrap();
        }
        put(&db, 5000..5100);
        faulty.fail(FaultKind::Write, "backup-", 1);
        db.checkpoint().unwrap_err();
        faulty.kill();
        drop(db);
        let faulty = faulty.restart();
        flip(&*faulty, "backup-1", 70);
        match (Database::open_on(faulty, options()), copies) {
            (Err(error), 2) => assert_eq!(
                without_checksums(&error.to_string()),
                "\"backup-1\" is corrupt at offset 0: the checksum of segment 0's image is #, its bytes have #: they are \
                 damaged, or another database's; the older checkpoint cannot stand in for it: a later one may have begun \
                 to overwrite its copy, or there is none"
            ),
            (Ok(db), 3) => {
                let fell_back = db.recovery().unwrap().fell_back.clone().expect("it falls back");
                assert_eq!((count(&db), fell_back.newest, fell_back.older), (700, 3, 2));
            }
            (other, _) => panic!("{copies} copies: {other:?}"),
        }
    }
}

/// I4. The newest home block says how far the log was durable, also where the older checkpoint replaces it: a log that
/// ends before that is refused, though it reaches as far as the older one needs.
#[test]
fn falling_back_asks_for_the_log_that_the_newest_checkpoint_proves() {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    things(&db);
    put(&db, 0..300);
    db.checkpoint().unwrap();
    let log = disk.open("log-0000000001", Open::Existing, Caching::Buffered).unwrap();
    let mut earlier = vec![0; log.length().unwrap() as usize];
    log.read_at(&mut earlier, 0).unwrap();
    put(&db, 1000..1300);
    db.checkpoint().unwrap();
    db.close().unwrap();
    disk.remove("log-tail").unwrap();
    log.write_at(&earlier, 0).unwrap();
    flip(&*disk, "backup-1", 70);
    let (text, code) = refused(disk);
    assert!(text.contains("log files are missing") && text.contains("backup-1"), "{text}");
    assert_eq!(code, 1);
}

/// The file of a bulk load that only the older of three copies needs stays, also if the process was killed in between.
#[test]
fn the_older_of_three_copies_keeps_the_load_files_that_it_needs() {
    let options = || Options { backup_copies: 3, ..options() };
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let db = Database::open_on(disk.clone(), options()).unwrap();
    things(&db);
    put(&db, 0..10);
    db.checkpoint().unwrap();
    let table = db.table("things").unwrap();
    db.transact(|tx| {
        tx.truncate(&table)?;
        (0..400).try_for_each(|id| tx.insert(&table, &thing(id, 300)))
    })
    .unwrap();
    db.checkpoint().unwrap();
    disk.kill();
    drop((table, db));
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    put(&db, 1000..1010);
    disk.fail(FaultKind::Write, "backup-2", 0);
    db.checkpoint().unwrap_err();
    disk.kill();
    drop(db);
    let disk = disk.restart();
    flip(&*disk, "backup-1", 70);
    let db = Database::open_on(disk.clone(), options()).unwrap();
    assert_eq!(db.recovery().unwrap().fell_back.as_ref().map(|fell_back| fell_back.older), Some(2));
    assert_eq!(count(&db), 410);
}

/// The number of copies is chosen at each opening; whichever is the newest, it may be damaged.
#[test]
fn two_copies_become_three_and_two_again() {
    let disk = MemoryDisk::new();
    let db = open(disk.clone());
    things(&db);
    drop(db);
    let mut rows = 0;
    for (round, copies) in [2, 3, 3, 3, 2, 2, 3, 2, 2].into_iter().enumerate() {
        let options = Options { backup_copies: copies, ..options() };
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        assert_eq!(count(&db), rows);
        let from = round as i32 * 100;
        put(&db, from..from + 50);
        rows += 50;
        let report = db.checkpoint().unwrap();
        drop(db);
        let names: Vec<String> =
            disk.list().unwrap().into_iter().filter(|name| name.starts_with("backup-")).collect();
        let damaged: Vec<bool> = names
            .iter()
            .map(|name| {
                flip(&*disk, name, 70);
                let db = Database::open_on(disk.clone(), options.clone()).unwrap();
                assert_eq!(count(&db), rows, "round {round}, {name} damaged");
                let fell_back = db.recovery().unwrap().fell_back.clone();
                flip(&*disk, name, 70);
                fell_back.is_some_and(|fell_back| fell_back.newest == report.sequence)
            })
            .collect();
        assert_eq!(damaged.iter().filter(|&&damaged| damaged).count(), 1, "round {round}: one is the newest");
    }
    assert!(!disk.list().unwrap().contains(&"backup-2".to_owned()), "two are enough");
}

#[test]
fn a_copy_that_is_not_in_force_is_not_read() {
    let disk = database(2);
    flip(&*disk, "backup-0", 70);
    assert_eq!(count(&open(disk)), 650);
}

#[test]
fn a_corrupt_home_block_falls_back_only_to_one_in_force() {
    // Between checkpoints the older block can replace it: its log is there.
    let disk = database(2);
    flip(&*disk, "home", 100);
    let db = open(disk);
    assert_eq!((count(&db), db.recovery().unwrap().checkpoint), (650, 2));
    drop(db);

    let disk = database(2);
    flip(&*disk, "home", 100);
    flip(&*disk, "home", 4096 + 100);
    assert_eq!(
        refused(disk),
        (
            "\"home\" is corrupt at offset 0: the home block's checksum does not match its bytes, and the other block \
             cannot stand in for it: its checkpoint was retired or never made"
                .to_owned(),
            1
        )
    );

    // In the middle of the next checkpoint it was retired: what it names may be half overwritten.
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let db = open(disk.clone());
    things(&db);
    for round in 0..2 {
        put(&db, round * 1000..round * 1000 + 300);
        db.checkpoint().unwrap();
    }
    put(&db, 5000..5100);
    disk.fail(FaultKind::Write, "backup-0", 1);
    db.checkpoint().unwrap_err();
    disk.crash();
    drop(db);
    let disk = disk.restart();
    disk.damage("home", 100, 1).unwrap();
    assert_eq!(
        refused(disk),
        (
            "\"home\" is corrupt at offset 0: the home block's checksum does not match its bytes, and the other block \
             cannot stand in for it: its checkpoint was retired or never made"
                .to_owned(),
            1
        )
    );
}

#[test]
fn a_missing_backup_copy_is_named() {
    let disk = database(2);
    disk.remove("backup-1").unwrap();
    let (rows, text) = falls_back(disk.clone(), options());
    let expected = "\"backup-1\" of checkpoint 3 is damaged at offset 0: \"home\" names this backup copy, and it is missing; \
                    recovered from checkpoint 2";
    assert!(rows == 650 && text.starts_with(expected), "{text}");
    disk.remove("backup-0").unwrap();
    let expected = "\"backup-1\" is corrupt at offset 0: \"home\" names this backup copy, and it is missing; the older \
                    checkpoint cannot stand in for it: \"backup-0\" is corrupt at offset 0: \"home\" names this backup copy, \
                    and it is missing";
    assert_eq!(refused(disk), (expected.to_owned(), 1));
}

#[test]
fn a_missing_home_file_never_makes_a_new_database_over_an_old_one() {
    let disk = database(0);
    disk.remove("home").unwrap();
    assert_eq!(
        refused(disk.clone()),
        (
            "\"log-0000000001\" has the name of a file of a log, but what says whose log it is (\"home\") is missing: put that \
             back, or move the file away if it is of no database, or use an empty directory"
                .to_owned(),
            3
        )
    );
    let disk = database(1);
    disk.remove("home").unwrap();
    disk.remove("log-0000000001").unwrap();
    assert_eq!(
        refused(disk.clone()),
        (
            "\"backup-0\" belongs to a database, but its file \"home\" is missing: put it back, or use an empty \
             directory"
                .to_owned(),
            3
        )
    );
    assert!(disk.list().unwrap().contains(&"backup-0".to_owned()));
}

/// An interrupted creation leaves a whole header, the whole length, and zeros after the pad.
#[test]
fn a_damaged_log_beside_a_missing_home_file_is_kept() {
    let damages: [fn(&dyn Disk); 3] = [
        |disk| flip(disk, "log-0000000001", 3),
        |disk| change(disk, "log-0000000001", 2 * 4096, 32, |header| header.fill(0)),
        |disk| {
            let file = disk.open("log-0000000001", Open::Existing, Caching::Buffered).unwrap();
            file.set_length(2 * 4096).unwrap();
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let disk = database(0);
        disk.remove("home").unwrap();
        damage(&*disk);
        let before = contents(&*disk);
        let (text, code) = refused(disk.clone());
        assert!(
            code == 3 && text.starts_with("\"log-0000000001\" has the name of a file"),
            "{number}: {text}"
        );
        assert!(contents(&*disk) == before, "{number}");
    }
}

fn contents(disk: &dyn Disk) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let file = disk.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    disk.list().unwrap().into_iter().map(read).collect()
}

/// The first creation is cut short at each of its steps, and so is the second.
#[test]
fn a_database_is_made_over_what_its_creation_left_when_it_was_cut_short() {
    let small = || Options { log_bytes_max: 16 << 20, ..options() };
    let seed = Random::seed_from_environment();
    let cut_short = |disk: Arc<FaultyDisk>, step: u64, kill: bool| {
        let at = disk.steps() + step;
        if kill {
            disk.kill_at(at)
        } else {
            disk.crash_at(at)
        }
        let opened = Database::open_on(disk.clone(), small());
        let is_cut = disk.is_down();
        drop(opened);
        if !is_cut {
            disk.kill();
        }
        (disk.restart(), is_cut)
    };
    for kill in [false, true] {
        for step in 1.. {
            let disk = FaultyDisk::new(seed ^ step);
            disk.pretend_speed();
            let (disk, is_cut) = cut_short(disk, step, kill);
            let (disk, _) = cut_short(disk, 1 + step / 2, !kill);
            let db = Database::open_on(disk, small())
                .unwrap_or_else(|error| panic!("RIALTO_SEED={seed}, step {step}, kill {kill}: {error}"));
            things(&db);
            put(&db, 0..10);
            assert_eq!(count(&db), 10);
            if !is_cut {
                assert!(step > 15, "the test's own premise: {step} steps");
                break;
            }
        }
    }
}

/// A database with a second log file, in use; the redo start is in the first one.
fn two_log_files() -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table = things(&db);
    for id in 0..180 {
        db.transact_with(&level_1(), |tx| tx.insert(&table, &thing(id, 30_000))).unwrap();
    }
    db.close().unwrap();
    disk.remove("log-tail").unwrap();
    assert!(disk.list().unwrap().contains(&"log-0000000002".to_owned()));
    disk
}

#[test]
fn a_missing_log_file_is_named() {
    let disk = database(1);
    disk.remove("log-0000000001").unwrap();
    assert_eq!(
        refused(disk),
        (
            "\"log-0000000001\" is corrupt at offset 4096: expected the log from place 3 on; no file holds a block"
                .to_owned(),
            1
        )
    );
    assert_eq!(count(&open(two_log_files())), 180);
    let disk = two_log_files();
    disk.remove("log-0000000001").unwrap();
    let (text, code) = refused(disk);
    let expected = "\"log-0000000002\" is corrupt at offset 4096: expected the log from place 1 on; the oldest file begins \
                    with place ";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(code, 1);
    // The last file: its contents were durable, and the files before it alone would look like a whole log.
    let disk = two_log_files();
    disk.remove("log-0000000002").unwrap();
    assert_eq!(
        refused(disk),
        (
            "\"log-0000000002\" is corrupt at offset 0: the log file is missing: \"log-0000000001\" is full to its end"
                .to_owned(),
            1
        )
    );
}
