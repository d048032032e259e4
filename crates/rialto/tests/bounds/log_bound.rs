//! The bound on the log. Any bound that the options allow works, and a transaction at the bound hurries the checkpoint
//! that makes room. Where none can, the error says why, and nothing is half done.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rialto::backup::Archive;
use rialto::io::{Caching, Disk, FaultKind, FaultyDisk, MemoryDisk, Open};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, BackupKind, Checkpointing, Database, Durability, Error, Executors, Logging, OpenError, Options,
    Procedure, Scan, Table, TableDef, Transaction,
};

/// The rows of a table, and the bytes of each row's text: one change of all rows takes this much log.
const ROWS: i32 = 32;
const TEXT: usize = 30_000;

fn options(log_bytes_max: u64) -> Options {
    Options {
        memory_bytes: 64 << 20,
        durability: Durability::Memory,
        log_bytes_max,
        // A hurried checkpoint must not wait for an interval.
        checkpoint_interval: Duration::from_secs(600),
        // As long as a loaded machine takes to make a checkpoint, and the log's next file.
        log_wait_max: Duration::from_secs(60),
        log_writes: Some(Caching::Buffered),
        log_writes_in_flight: Some(1),
        ..Options::default()
    }
}

fn definition(name: &str) -> TableDef {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    TableDef::new(name, columns).with_primary_key(&["id"])
}

fn row(id: i32, letter: char) -> [Value; 2] {
    [Value::Int4(id), Value::Text(letter.to_string().repeat(TEXT))]
}

fn with_rows(disk: Arc<dyn Disk>, options: Options) -> (Database, Table) {
    let db = Database::open_on(disk, options).unwrap();
    let table = db.transact(|tx| {
        let table = tx.create_table(&definition("t"))?;
        (0..ROWS).try_for_each(|id| tx.insert(&table, &row(id, 'a')))?;
        Ok(table)
    });
    (db, table.unwrap())
}

/// Changes all rows; about a megabyte of log.
fn change(db: &Database, table: &Table, letter: char) -> Result<(), Error> {
    db.transact(|tx| change_within(tx, table, letter))
}

fn change_within(tx: &mut Transaction, table: &Table, letter: char) -> Result<(), Error> {
    (0..ROWS).try_for_each(|id| tx.update(table, id, &[(1, row(id, letter)[1].clone())]).map(drop))
}

/// Changes all rows until this many bytes of log are written. Gives the letter that the rows then have.
fn fill(db: &Database, table: &Table, log_bytes: u64) -> char {
    let mut letters = ('b'..='z').cycle();
    let mut letter = 'a';
    for round in 0..log_bytes / (ROWS as u64 * TEXT as u64) {
        letter = letters.next().expect("a cycle");
        assert_eq!(change(db, table, letter), Ok(()), "after {round} rounds");
    }
    letter
}

/// The letter of all rows.
fn letter(db: &Database) -> char {
    let table = db.table("t").unwrap();
    let mut letters = BTreeMap::<char, usize>::new();
    db.transact(|tx| {
        tx.scan(&table, &Scan::all(), |_, row| {
            let text = row.get_str(1)?;
            assert_eq!(text.len(), TEXT);
            *letters.entry(text.chars().next().expect("it is not empty")).or_default() += 1;
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    assert_eq!(letters.len(), 1, "one transaction changed them all: {letters:?}");
    let (letter, rows) = letters.pop_first().expect("there is one");
    assert_eq!(rows, ROWS as usize);
    letter
}

fn bytes_of_log(disk: &dyn Disk) -> u64 {
    let files = disk.list().unwrap().into_iter().filter(|name| name.starts_with("log-0"));
    files
        .map(|name| match disk.open(&name, Open::ReadOnly, Caching::Buffered) {
            Ok(file) => file.length().unwrap(),
            // A checkpoint has freed it meanwhile.
            Err(error) if error.is_missing() => 0,
            Err(error) => panic!("{name}: {error}"),
        })
        .sum()
}

/// Only the log's room makes a checkpoint here: no interval is over.
#[test]
fn every_bound_that_the_options_allow_goes_on_for_ever() {
    for (mib, backup_copies) in [(16, 2), (16, 3), (31, 2), (67, 2), (80, 3), (131, 2)] {
        let disk = MemoryDisk::new();
        let options = Options { backup_copies, ..options(mib << 20) };
        let (db, table) = with_rows(disk.clone(), options.clone());
        let filled = fill(&db, &table, (2 * mib) << 20);
        assert!(bytes_of_log(&*disk) <= (mib << 20) + (1 << 20), "a bound of {mib} MiB");
        drop((table, db));
        let db = Database::open_on(disk, options).unwrap();
        assert_eq!(letter(&db), filled, "a bound of {mib} MiB");
    }
}

/// So do the least bounds, with transactions that log three fifths of the bound.
#[test]
fn the_least_bounds_take_transactions_of_three_fifths() {
    for (mib, backup_copies) in [(1, 2), (1, 3), (2, 2)] {
        let disk = MemoryDisk::new();
        with_rows(disk.clone(), options(16 << 20)).0.close().unwrap();
        let options = Options { backup_copies, ..options(mib << 20) };
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        let table = db.table("t").unwrap();
        let rows = ((mib << 20) * 3 / 5 / (TEXT as u64 + 100)) as i32;
        for (round, letter) in (0..20).zip(('b'..='z').cycle()) {
            let changed = db.transact(|tx| {
                (0..rows).try_for_each(|id| {
                    tx.update(&table, id % ROWS, &[(1, row(id, letter)[1].clone())]).map(drop)
                })
            });
            assert_eq!(changed, Ok(()), "a bound of {mib} MiB, {rows} rows, round {round}");
        }
        // A file that a checkpoint is about to free may still be there.
        let freed = || bytes_of_log(&*disk) <= mib << 20;
        let began = Instant::now();
        while !freed() && began.elapsed() < crate::common::seeds::patience() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(freed(), "a bound of {mib} MiB, {} bytes", bytes_of_log(&*disk));
        drop((table, db));
        let db = Database::open_on(disk, options).unwrap();
        let table = db.table("t").unwrap();
        let first = db.transact(|tx| Ok(tx.get(&table, 0)?.expect("it is there"))).unwrap();
        assert_eq!(first.values(), row(0, 'u'), "a bound of {mib} MiB");
    }
}

/// A transaction may need more room than is free although the log since the last checkpoint is too short for a
/// checkpoint to be due. Its wait makes a checkpoint begin.
#[test]
fn a_transaction_that_waits_for_room_begins_the_checkpoint() {
    for backup_copies in [2, 3] {
        let options = Options { backup_copies, ..options(16 << 20) };
        let (db, table) = with_rows(MemoryDisk::new(), options);
        for round in 0..3 {
            let before = db.metrics().checkpoints.completed;
            // A third of the bound: if there were three copies, a checkpoint would be due.
            fill(&db, &table, 4 << 20);
            assert_eq!(db.metrics().checkpoints.completed, before, "none is due");
            let rows = ROWS..ROWS + 350;
            let large = db.transact(|tx| rows.clone().try_for_each(|id| tx.insert(&table, &row(id, 'b'))));
            assert_eq!(large, Ok(()), "{backup_copies} copies, round {round}");
            db.transact(|tx| rows.clone().try_for_each(|id| tx.delete(&table, id).map(drop))).unwrap();
            // What the large transaction leaves is no part of the next round.
            db.checkpoint().unwrap();
            db.checkpoint().unwrap();
        }
    }
}

/// Files keep the size of their opening. Those of a higher bound are gone when the log has gone on after them.
#[test]
fn a_directory_opens_under_another_bound_and_goes_on_there() {
    let disk = MemoryDisk::new();
    let (db, table) = with_rows(disk.clone(), options(4 << 30));
    let mut filled = fill(&db, &table, 12 << 20);
    drop((table, db));
    for mib in [16, 200, 24, 64, 16] {
        let db = Database::open_on(disk.clone(), options(mib << 20)).unwrap();
        assert_eq!(letter(&db), filled, "before {mib} MiB");
        let table = db.table("t").unwrap();
        filled = fill(&db, &table, 90 << 20);
        drop((table, db));
    }
    assert!(bytes_of_log(&*disk) <= 17 << 20, "{} bytes", bytes_of_log(&*disk));
}

/// Commits at level 1 that a killed process left only in the ring, over the beginnings of log files.
#[test]
fn a_log_that_was_recovered_from_the_ring_goes_on_for_ever() {
    let disk = FaultyDisk::new(7);
    let options = Options { memory_flush_interval: Duration::from_secs(3_600), ..options(16 << 20) };
    let (db, table) = with_rows(disk.clone(), options.clone());
    let before = fill(&db, &table, 4 << 20);
    disk.kill();
    drop((table, db));
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    assert_eq!(letter(&db), before);
    let filled = fill(&db, &db.table("t").unwrap(), 32 << 20);
    assert!(bytes_of_log(&*disk) <= 17 << 20, "{} bytes", bytes_of_log(&*disk));
    drop(db);
    assert_eq!(letter(&Database::open_on(disk, options).unwrap()), filled);
}

/// A stream that waits before each piece, until it is told not to.
struct Slow<'a> {
    piece: Duration,
    hurries: &'a AtomicBool,
    began: &'a AtomicBool,
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.began.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while began.elapsed() < self.piece && !self.hurries.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Rows of another table, so that the backup has more to copy than it does between two checks of the log.
fn add_rows(db: &Database, rows: i32) {
    let other = db.transact(|tx| tx.create_table(&definition("other"))).unwrap();
    for from in (0..rows).step_by(50) {
        let insert = |tx: &mut Transaction| {
            (from..rows.min(from + 50)).try_for_each(|id| tx.insert(&other, &row(id, 'o')))
        };
        db.transact(insert).unwrap();
    }
}

/// The log's bound counts for a backup as for the log's files.
#[test]
fn a_backup_is_taken_while_a_log_file_of_a_higher_bound_is_in_use() {
    let disk = MemoryDisk::new();
    let (db, table) = with_rows(disk.clone(), options(4 << 30));
    fill(&db, &table, 12 << 20);
    drop((table, db));
    let db = Database::open_on(disk.clone(), options(16 << 20)).unwrap();
    let filled = fill(&db, &db.table("t").unwrap(), 20 << 20);
    add_rows(&db, 300);
    assert!(bytes_of_log(&*disk) > 32 << 20, "the file of the higher bound is still in use");
    let taken = db.backup_to(&mut std::io::sink(), BackupKind::Full).unwrap();
    assert!(taken.segments > 128, "{} segments", taken.segments);
    assert_eq!(letter(&db), filled);
}

/// A backup keeps checkpoints waiting. It gives way to a transaction that waits for room which a checkpoint would free,
/// however much log that takes.
#[test]
fn a_backup_gives_way_to_a_transaction_that_waits_for_room() {
    let (db, table) = with_rows(MemoryDisk::new(), options(16 << 20));
    add_rows(&db, 800);
    for letter in ['x', 'y'] {
        change(&db, &table, letter).unwrap();
        db.checkpoint().unwrap();
    }
    // Less than makes a checkpoint due, or a backup give up.
    fill(&db, &table, 4 << 20);
    let (hurries, began) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut out = Slow { piece: Duration::from_secs(1), hurries: &hurries, began: &began };
        let database = &db;
        let backup = scope.spawn(move || database.backup_to(&mut out, BackupKind::Full));
        while !began.load(Ordering::SeqCst) {
            assert!(!backup.is_finished());
            std::thread::yield_now();
        }
        let large = db.transact(|tx| (ROWS..ROWS + 350).try_for_each(|id| tx.insert(&table, &row(id, 'b'))));
        hurries.store(true, Ordering::SeqCst);
        assert_eq!(large, Ok(()));
        let given_up = backup.join().unwrap().unwrap_err();
        assert!(
            matches!(&given_up, Error::LogFull { reason } if reason.contains("a transaction waits")),
            "{given_up}"
        );
    });
    db.backup_to(&mut std::io::sink(), BackupKind::Full).unwrap();
}

/// The log has only the name and arguments of a call, and nothing of a commit that is not logged: both have room
/// however much they write.
#[test]
fn only_what_is_logged_needs_room() {
    let load = || {
        let action = Action::exclusive("t", |tx, arguments, _| {
            let rows: i32 = arguments.get(0)?;
            (ROWS..ROWS + rows).try_for_each(|id| tx.insert(arguments.table()?, &row(id, 'b')))
        });
        Procedure::new("load", [ColumnType::Int4], action).deterministic(1)
    };
    let disk = MemoryDisk::new();
    let options = |logging, checkpoint| Options {
        logging,
        checkpoint,
        procedures: vec![load()],
        memory_bytes: 256 << 20,
        ..options(16 << 20)
    };
    let calls = options(Logging::Transaction, Checkpointing::TransactionCopyOnUpdate);
    let (db, table) = with_rows(disk.clone(), calls.clone());
    // Calls are logged as such once a copy is consistent.
    db.checkpoint().unwrap();
    db.call("load", &[Value::Int4(550)]).unwrap();
    let refused = db.transact(|tx| {
        (0..550).try_for_each(|id| tx.delete(&table, ROWS + id).map(drop))?;
        (0..550).try_for_each(|id| tx.insert(&table, &row(ROWS + id, 'c')))
    });
    assert!(matches!(refused, Err(Error::LogTooSmall { .. })), "{refused:?}");
    drop((table, db));
    let db = Database::open_on(disk, calls).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(db.transact(|tx| tx.count(&table)), Ok(ROWS as u64 + 550), "it is run again");
    drop((table, db));

    let (db, table) = with_rows(MemoryDisk::new(), options(Logging::None, Checkpointing::None));
    db.call("load", &[Value::Int4(550)]).unwrap();
    assert_eq!(db.transact(|tx| tx.count(&table)), Ok(ROWS as u64 + 550));
}

#[test]
fn a_transaction_larger_than_the_log_is_refused_at_once_and_before_its_place() {
    let (db, table) = with_rows(MemoryDisk::new(), options(16 << 20));
    let many = |tx: &mut Transaction, rows: i32| {
        (ROWS..ROWS + rows).try_for_each(|id| tx.insert(&table, &row(id, 'b')))
    };
    let began = Instant::now();
    let refused = db.transact(|tx| many(tx, 550)).unwrap_err();
    assert!(matches!(refused, Error::LogTooSmall { log_bytes_max: 0x100_0000, .. }), "{refused}");
    assert!(refused.to_string().contains("log_bytes_max"), "{refused}");
    assert!(began.elapsed() < options(0).log_wait_max, "it waits for nothing");
    assert_eq!(letter(&db), 'a');
    // A little less fits, once the rest is freed.
    assert_eq!(db.transact(|tx| many(tx, 350)), Ok(()));
    assert_eq!(
        db.transact(|tx| (ROWS..ROWS + 350).try_for_each(|id| tx.delete(&table, id).map(drop))),
        Ok(())
    );
    assert_eq!(letter(&db), 'a');
}

/// Changes rows until the log is full, and the reason contains this.
fn fills_up(db: &Database, table: &Table, reason: &str) -> Error {
    let (mut letters, began) = (('b'..='y').cycle(), Instant::now());
    let mut changes = 0;
    loop {
        match change(db, table, letters.next().expect("a cycle")) {
            Ok(()) => changes += 1,
            Err(full) if full.to_string().contains(reason) => return full,
            // The error of a transaction whose log file is not made yet.
            Err(Error::LogFull { .. }) if began.elapsed() < Duration::from_secs(60) => {}
            Err(error) => panic!("not \"{reason}\": {error}"),
        }
        assert!(changes < 64, "the log is full some time");
    }
}

/// Whatever reaches the bound is aborted whole: changes, new tables, dropped tables, indexes, bulk loads.
#[test]
fn without_checkpoints_the_log_is_full_and_says_so_until_one_is_made() {
    let disk = MemoryDisk::new();
    let options = Options {
        checkpoint: Checkpointing::None,
        // Longer than the pause of the log's own thread before it tries for another file.
        log_wait_max: Duration::from_secs(1),
        ..options(16 << 20)
    };
    let (db, table) = with_rows(disk.clone(), options.clone());
    let full = fills_up(&db, &table, "Checkpointing::None");
    assert!(matches!(full, Error::LogFull { .. }), "{full}");
    // Up to the last bytes.
    let small = db.transact(|tx| {
        let small =
            TableDef::new("small", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
        tx.create_table(&small)
    });
    let small = small.unwrap();
    let ids = 0..;
    let mut ids = ids.take_while(|&id| db.transact(|tx| tx.insert(&small, &[Value::Int4(id)])).is_ok());
    assert!(ids.by_ref().count() > 0);
    let files = disk.list().unwrap();
    let load = |tx: &mut Transaction| {
        let loaded = tx.create_table(&definition("loaded"))?;
        (0..500).try_for_each(|id| tx.insert(&loaded, &row(id, 'l')))
    };
    type Ddl<'a> = (&'a str, &'a dyn Fn(&mut Transaction) -> Result<(), Error>);
    let ddl: [Ddl<'_>; 5] = [
        ("create", &|tx| tx.create_table(&definition("created")).map(drop)),
        ("drop", &|tx| tx.drop_table("t")),
        ("truncate", &|tx| tx.truncate(&table)),
        ("index", &|tx| tx.create_index("t", "by_text", &["id"], false).map(drop)),
        ("load", &load),
    ];
    for (what, run) in ddl {
        let refused = db.transact(run);
        assert!(matches!(refused, Err(Error::LogFull { .. })), "{what}: {refused:?}");
    }
    let left: Vec<_> = disk.list().unwrap().into_iter().filter(|name| !files.contains(name)).collect();
    assert_eq!(left, Vec::<String>::new(), "a refused bulk load leaves no file");
    assert_eq!(names(&db), ["small", "t"]);
    let before = letter(&db);

    db.checkpoint().unwrap();
    assert_eq!(letter(&db), before);
    for (what, run) in ddl {
        // A dropped table is not truncated.
        let done = db.transact(run);
        assert_eq!(done.is_ok(), !matches!(what, "truncate" | "index"), "{what}: {done:?}");
    }
    drop((table, db));
    let db = Database::open_on(disk, options).unwrap();
    assert_eq!(names(&db), ["created", "loaded", "small"]);
    let loaded = db.table("loaded").unwrap();
    assert_eq!(db.transact(|tx| tx.count(&loaded)), Ok(500));
}

fn names(db: &Database) -> Vec<String> {
    let mut names: Vec<_> = db.tables().iter().map(|table| table.name().to_owned()).collect();
    names.retain(|name| !name.starts_with("rialto_"));
    names.sort();
    names
}

/// The log keeps what the archive has not taken. The error says that the archive is the cause. It ends when the archive
/// goes on, though nothing has changed since the last checkpoint.
#[test]
fn a_log_that_the_archive_keeps_full_says_so() {
    for checkpoint in [Checkpointing::Fuzzy, Checkpointing::None] {
        let (disk, archive) = (MemoryDisk::new(), FaultyDisk::new(7));
        let options = Options {
            checkpoint,
            archive: Some(Archive::on(archive.clone())),
            log_wait_max: Duration::from_millis(200),
            ..options(16 << 20)
        };
        let (db, table) = with_rows(disk, options);
        archive.fail_always(FaultKind::Write, "log-", 0);
        fills_up(&db, &table, "");
        db.checkpoint().unwrap();
        let full = fills_up(&db, &table, "archive");
        assert!(matches!(full, Error::LogFull { .. }), "{full}");
        archive.mend();
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = change(&db, &table, 'z') {
            assert!(matches!(error, Error::LogFull { .. }), "{error}");
            assert!(Instant::now() < until, "the archive works again: {error}");
            if checkpoint == Checkpointing::None {
                db.checkpoint().unwrap();
            }
        }
        assert_eq!(letter(&db), 'z');
    }
}

/// The error of a transaction that needs room tells of a checkpoint that fails.
#[test]
fn a_log_that_a_failing_checkpoint_keeps_full_says_so() {
    let disk = FaultyDisk::new(7);
    let (db, table) =
        with_rows(disk.clone(), Options { log_wait_max: Duration::from_millis(300), ..options(16 << 20) });
    disk.fail_always(FaultKind::Write, "backup-", 0);
    let full = fills_up(&db, &table, "checkpoint failed");
    assert!(matches!(full, Error::LogFull { .. }), "{full}");
    disk.mend();
    let until = Instant::now() + Duration::from_secs(60);
    while let Err(error) = change(&db, &table, 'c') {
        assert!(Instant::now() < until, "checkpoints work again: {error}");
    }
    assert_eq!(letter(&db), 'c');
}

/// The log ends in its only file, and the disk has no room for another: the log goes on in a shorter file, and then in
/// the first again.
#[test]
fn a_log_goes_on_with_room_for_less_than_a_file() {
    let disk = FaultyDisk::new(7);
    let options = options(16 << 20);
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let table = db.transact(|tx| tx.create_table(&definition("t"))).unwrap();
    db.transact(|tx| tx.insert(&table, &row(0, 'a'))).unwrap();
    // Both copies have their room.
    for letter in ['b', 'c'] {
        db.transact(|tx| tx.update(&table, 0, &[(1, row(0, letter)[1].clone())])).unwrap();
        assert!(!db.checkpoint().unwrap().skipped);
    }
    assert_eq!(bytes_of_log(&*disk), (2 << 20) + 4096);
    disk.leave_room(1 << 20);
    // Ten files.
    for round in 0..700 {
        let letter = char::from(b'a' + (round % 26) as u8);
        let changed = db.transact(|tx| tx.update(&table, 0, &[(1, row(0, letter)[1].clone())]).map(drop));
        assert_eq!(changed, Ok(()), "round {round}");
    }
    drop(table);
    db.close().unwrap();
    let db = Database::open_on(disk, options).unwrap();
    let table = db.table("t").unwrap();
    let found = db.transact(|tx| tx.get(&table, 0)).unwrap().unwrap();
    assert_eq!(found.get(1).unwrap(), row(0, 'x')[1]);
}

#[test]
fn a_wrong_option_of_the_log_is_named_as_one() {
    let with = |executors: Executors| Options { engine: executors.into(), ..options(16 << 20) };
    for (wrong, name) in [
        (Options { log_bytes_max: (1 << 20) - 1, ..options(0) }, "log_bytes_max"),
        (Options { log_buffer_bytes: 0, ..options(16 << 20) }, "log_buffer_bytes"),
        (Options { log_buffer_bytes: 500_000, ..options(16 << 20) }, "log_buffer_bytes"),
        (Options { log_buffer_bytes: (256 << 10) - 4_096, ..options(16 << 20) }, "log_buffer_bytes"),
        (Options { log_buffer_bytes: (1 << 30) + 4_096, ..options(16 << 20) }, "log_buffer_bytes"),
        (Options { log_writes_in_flight: Some(0), ..options(16 << 20) }, "log_writes_in_flight"),
        (Options { log_writes_in_flight: Some(9), ..options(16 << 20) }, "log_writes_in_flight"),
        (Options { packets_max: 0, ..options(16 << 20) }, "packets_max"),
        (Options { packets_max: 60_001, ..options(16 << 20) }, "packets_max"),
        (Options { transactions_max: 0, ..options(16 << 20) }, "transactions_max"),
        (Options { transactions_max: usize::MAX, ..options(16 << 20) }, "transactions_max"),
        (Options { recovery_threads: 0, ..options(16 << 20) }, "recovery_threads"),
        (Options { recovery_threads: 1_025, ..options(16 << 20) }, "recovery_threads"),
        (with(Executors::of(usize::MAX, 0)), "count"),
        (with(Executors { count_max: usize::MAX, ..Executors::default() }), "count_max"),
        (with(Executors { threads: 257, ..Executors::default() }), "threads"),
        (Options { write_set_bytes_max: usize::MAX, ..options(16 << 20) }, "write_set_bytes_max"),
        (Options { backup_copies: 4, ..options(16 << 20) }, "backup_copies"),
        (Options { memory_bytes: 0, ..options(16 << 20) }, "memory_bytes"),
        (Options { memory_bytes: u64::MAX, ..options(16 << 20) }, "memory_bytes"),
    ] {
        let refused = Database::open_on(MemoryDisk::new(), wrong).unwrap_err();
        assert!(matches!(&refused, OpenError::Options { what } if what.contains(name)), "{name}: {refused}");
    }
}
