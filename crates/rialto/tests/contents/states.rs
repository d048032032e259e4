//! A client whose transactions draw definitions, rows and savepoints, as closures and as calls; and threads of such clients. After each
//! end of the machine or of the process the database is what one of the client's transactions left, by each index, however it is
//! opened and by however many threads it is recovered; and so is what is restored from its backups and its archive.

mod drawn;

use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::seeds::for_a_while;
use drawn::{Client, DONE, prepare, procedures};
use parking_lot::Mutex;
use rialto::backup::{Archive, Backup, Restore, restore};
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto::recovery::check::check;
use rialto::row::WhichIndex;
use rialto::{
    BackupKind, Checkpointing, Database, Durability, Error, LockForm, Logging, Options, Scan, TxOptions,
};

/// Plenty, and so little that transactions meet the bound.
const MEMORY: [u64; 3] = [64 << 20, 64 << 20, 5 << 20];

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A directory and what stays as it is in all of its lives.
struct Directory {
    disk: Arc<FaultyDisk>,
    archive: Arc<MemoryDisk>,
    memory: u64,
}

impl Directory {
    fn new(random: &mut Random) -> Directory {
        let disk = FaultyDisk::new(random.next());
        Directory { disk, archive: MemoryDisk::new(), memory: one_of(random, &MEMORY) }
    }

    fn options(&self, random: &mut Random) -> Options {
        let (logging, checkpoint) = loop {
            let logging =
                if random.chance(1, 2) { Logging::Transaction } else { one_of(random, &Logging::ALL) };
            let checkpoint = match random.chance(1, 5) {
                true => Checkpointing::None,
                false => one_of(random, &Checkpointing::ALL),
            };
            if logging != Logging::None && logging.refuses(checkpoint).is_none() {
                break (logging, checkpoint);
            }
        };
        let locks = one_of(random, &LockForm::ALL);
        let threads = if locks == LockForm::Local { random.below(3) as usize } else { 0 };
        Options {
            memory_bytes: self.memory,
            logging,
            checkpoint,
            procedures: procedures(),
            check_determinism: random.chance(1, 4),
            checkpoint_interval: Duration::from_millis(1 + random.below(20)),
            sweep_bytes_per_s: Some(2_000_000 << random.below(6)),
            backup_copies: 2 + random.below(2) as u32,
            snapshot_bytes_max: random.chance(1, 3).then_some(0),
            spool: random.chance(3, 4),
            archive: Some(Archive::on(self.archive.clone())),
            locks,
            executors: 1 + random.below(6) as usize,
            executor_threads: threads,
            recovery_threads: 1 + random.below(3) as usize,
            lock_timeout: Duration::from_secs(20),
            ..Options::default()
        }
    }

    fn load(&self) -> i32 {
        if self.memory < MEMORY[0] { 4_000 } else { 500 }
    }

    fn open(&self, options: Options, about: &str) -> Database {
        let described = format!("{:?}, {:?}, {:?}", options.logging, options.checkpoint, options.locks);
        Database::open_on(self.disk.clone(), options)
            .unwrap_or_else(|error| panic!("{about}, opened with {described}: {error}"))
    }

    /// Ends it at a step to come.
    fn end_at(&self, step: u64, is_kill: bool) {
        let at = self.disk.steps() + step;
        if is_kill { self.disk.kill_at(at) } else { self.disk.crash_at(at) }
    }

    /// Ends it now, unless it has ended; and goes on.
    fn restart(&mut self, is_kill: bool) {
        if !self.disk.is_down() {
            if is_kill { self.disk.kill() } else { self.disk.crash() }
        }
        self.disk = self.disk.restart();
    }

    /// What the backups and the archive together hold.
    fn restored(&self, backups: &[Vec<u8>], about: &str) -> Vec<String> {
        let backups = backups.iter().map(|bytes| Backup::stream("a backup", Cursor::new(bytes.clone())));
        let memory_bytes = 256 << 20;
        let plan = Restore {
            archive: Some(Archive::on(self.archive.clone())),
            memory_bytes,
            threads: 2,
            procedures: procedures(),
            ..Restore::new(backups.collect())
        };
        let target = MemoryDisk::new();
        restore(plan, target.clone()).unwrap_or_else(|error| panic!("{about}: {error}"));
        check_sound(target.clone(), about);
        let options = Options { memory_bytes, procedures: procedures(), ..Options::default() };
        contents(&Database::open_on(target, options).unwrap_or_else(|error| panic!("{about}: {error}")))
    }
}

fn check_sound(disk: Arc<dyn Disk>, about: &str) {
    let report = check(&disk, 256 << 20, 2).unwrap_or_else(|error| panic!("{about}: {error}"));
    assert!(report.is_sound(), "{about}: {report}");
}

/// All there is: tables with their indexes, and rows by each index.
fn contents(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    let mut tx = db.begin().unwrap();
    for table in db.tables().into_iter().filter(|table| !table.name().starts_with("rialto_")) {
        let (name, schema) = (table.name(), table.schema());
        let indexes = schema.indexes();
        let names: Vec<_> = indexes.iter().map(|it| (&it.name, &it.columns, it.unique)).collect();
        all.push(format!(
            "{name}: key {:?}, indexes {names:?}, {} rows",
            schema.primary_key(),
            table.rows_estimate()
        ));
        let secondary = (0..indexes.len()).map(WhichIndex::Secondary);
        for index in std::iter::once(WhichIndex::Primary).chain(secondary) {
            tx.scan(&table, &Scan { index, ..Scan::all() }, |_, row| {
                let values: Vec<_> = (0..schema.columns().len()).map(|at| row.get(at).to_string()).collect();
                all.push(format!("{name} by {index:?}: {}", values.join(", ")));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        }
    }
    // The machine may have ended: then that what was read is durable is not known.
    let _ = tx.abort();
    all
}

/// The line of a transaction that has committed.
fn done(n: i64) -> String {
    format!("{DONE} by {:?}: {n}", WhichIndex::Primary)
}

fn compare(found: &[String], expected: &[String], about: &str) {
    let both = found.iter().zip(expected);
    let at = both.take_while(|(found, expected)| found == expected).count();
    assert!(
        found == expected,
        "{about}: line {at} of {} is {:?}, expected {:?} of {}",
        found.len(),
        found.get(at),
        expected.get(at),
        expected.len()
    );
}

/// Counts for the tally.
#[derive(Default)]
struct Tally {
    transactions: u64,
    calls: u64,
    restored: u64,
}

/// Whether a transaction failed because the database stopped, or its log is full.
fn is_end(error: &Error) -> bool {
    matches!(
        error,
        Error::OutcomeUnknown { .. } | Error::Stopped { .. } | Error::Io { .. } | Error::LogFull { .. }
    )
}

fn lives(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let mut directory = Directory::new(&mut random);
    let mut db = directory.open(directory.options(&mut random), "new");
    prepare(&db);
    db.sync().unwrap();
    // After each transaction, from the one before the first.
    let mut states = vec![contents(&db)];
    for life in 0..4 {
        let about = &format!("RIALTO_SEED={seed}, life {life}");
        let is_kill = random.chance(1, 2);
        if random.chance(3, 4) {
            directory.end_at(1 + random.below(900), is_kill);
        }
        let first = states.len();
        let (mut acknowledged, mut answered, mut backups) = (first - 1, first - 1, Vec::new());
        let mut client = Client { db: &db, random: random.fork(), defines: true, load: directory.load() };
        for n in first..first + 15 + random.below(50) as usize {
            let durability = one_of(&mut random, &[Durability::Disk, Durability::Memory, Durability::Memory]);
            let options = TxOptions { durability: Some(durability), ..TxOptions::default() };
            match client.transact(n as i64, &options) {
                Ok(()) => {
                    states.push(contents(&db));
                    answered = n;
                }
                Err(Error::MemoryLimit { .. }) => break,
                // It may have committed.
                Err(error) if is_end(&error) => {
                    states.push(contents(&db));
                    break;
                }
                Err(error) => panic!("{about}, transaction {n}: {error}"),
            }
            // Level memory outlives the process.
            if durability == Durability::Disk || is_kill {
                acknowledged = n;
            }
            if random.chance(1, 20) && db.checkpoint().is_err() {
                break;
            }
            if random.chance(1, 15) {
                let is_more = !backups.is_empty() && random.chance(1, 2);
                let kind = if is_more { BackupKind::Incremental } else { BackupKind::Full };
                let mut backup = Vec::new();
                if db.backup_to(&mut backup, kind).is_ok() {
                    if !is_more {
                        backups.clear();
                    }
                    backups.push(backup);
                    acknowledged = n;
                }
            }
        }
        if random.chance(1, 4) {
            // Where the machine has ended it cannot.
            if db.close().is_ok() {
                acknowledged = answered;
            }
        } else {
            drop(db);
        }
        directory.restart(is_kill);
        // Once by one way, once by another.
        let mut found: Option<Vec<String>> = None;
        for _ in 0..2 {
            check_sound(directory.disk.clone(), about);
            let again = directory.open(directory.options(&mut random), about);
            tally.calls += again.recovery().expect("it was there").calls;
            let there = contents(&again);
            if let Some(found) = &found {
                compare(&there, found, about);
            }
            found = Some(there);
            if !backups.is_empty() {
                again.archive_log().unwrap_or_else(|error| panic!("{about}: {error}"));
            }
            drop(again);
            directory.restart(false);
        }
        let found = found.expect("it was opened");
        let reached = (0..states.len()).rev().find(|n| *n == 0 || found.contains(&done(*n as i64)));
        let reached = reached.expect("the first state has no transaction");
        assert!(reached >= acknowledged, "{about}: {acknowledged} was acknowledged, found {reached}");
        compare(&found, &states[reached], &format!("{about}, as transaction {reached} left it"));
        tally.transactions += (reached + 1 - first) as u64;
        states.truncate(reached + 1);
        if !backups.is_empty() {
            compare(&directory.restored(&backups, about), &found, &format!("{about}, restored"));
            tally.restored += 1;
        }
        db = directory.open(directory.options(&mut random), about);
    }
    db.close().unwrap();
}

/// How many numbers a thread has for its transactions: those of two threads are never the same.
const EACH: i64 = 10_000;

fn threads(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let mut directory = Directory::new(&mut random);
    let options = Options {
        durability: Durability::Memory,
        deadlock_retries_max: 1_000,
        lock_timeout: Duration::from_millis(500),
        ..directory.options(&mut random)
    };
    let about = &format!(
        "RIALTO_SEED={seed}, {:?}, {:?}, {:?}, {} executor threads",
        options.logging, options.checkpoint, options.locks, options.executor_threads
    );
    let db = directory.open(options, about);
    prepare(&db);
    db.sync().unwrap();
    let (is_cut, is_kill) = (random.chance(1, 2), random.chance(1, 2));
    if is_cut {
        directory.end_at(200 + random.below(3_000), is_kill);
    }
    let acknowledged = Mutex::new(Vec::new());
    let count = 30 + random.below(100) as i64;
    let mut backup = Vec::new();
    let has_backup = std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut client =
                Client { db: &db, random: random.fork(), defines: thread == 0, load: directory.load() };
            let mut random = random.fork();
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                for n in thread * EACH + 1..thread * EACH + 1 + count {
                    let durability = one_of(&mut random, &[Durability::Disk, Durability::Memory]);
                    let options = TxOptions { durability: Some(durability), ..TxOptions::default() };
                    match client.transact(n, &options) {
                        Ok(()) if durability == Durability::Disk || is_kill => acknowledged.lock().push(n),
                        Ok(()) => {}
                        Err(error) if is_end(&error) => return,
                        Err(
                            Error::MemoryLimit { .. }
                            | Error::Deadlock { .. }
                            | Error::LockTimeout { .. }
                            | Error::NoSuchTable { .. }
                            | Error::TableChanged { .. }
                            | Error::MixedColours,
                        ) => {}
                        Err(error) => panic!("{about}, transaction {n}: {error}"),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(random.below(60)));
        db.backup_to(&mut backup, BackupKind::Full).is_ok()
    });
    let mut expected = None;
    if db.sync().is_ok() && !directory.disk.is_down() {
        expected = Some(contents(&db));
    }
    drop(db);
    directory.restart(is_kill);
    for recovery_threads in [1, 3] {
        check_sound(directory.disk.clone(), about);
        let options = Options { recovery_threads, ..directory.options(&mut random) };
        let db = directory.open(options, about);
        tally.calls += db.recovery().expect("it was there").calls;
        let found = contents(&db);
        if let Some(n) = acknowledged.lock().iter().find(|n| !found.contains(&done(**n))) {
            panic!("{about}: transaction {n} was acknowledged");
        }
        if let Some(expected) = &expected {
            compare(&found, expected, &format!("{about}, recovered by {recovery_threads} threads"));
        }
        expected = Some(found);
        db.archive_log().unwrap_or_else(|error| panic!("{about}: {error}"));
        drop(db);
        directory.restart(false);
    }
    let expected = expected.expect("it was opened");
    tally.transactions += expected.iter().filter(|line| line.starts_with(DONE)).count() as u64 - 1;
    if has_backup {
        compare(&directory.restored(&[backup], about), &expected, &format!("{about}, restored"));
        tally.restored += 1;
    }
}

/// Seed after seed, for as long as tests take.
fn tallied(what: &str, run: impl Fn(u64, &mut Tally)) {
    let mut tally = Tally::default();
    let (seed, databases) = for_a_while(|seed| run(seed, &mut tally));
    let Tally { transactions, calls, restored } = tally;
    println!(
        "tally: {what}, {databases} databases, {transactions} transactions, {calls} calls replayed, {restored} restored, \
         RIALTO_SEED={seed}"
    );
}

#[test]
fn a_database_is_as_one_of_its_transactions_left_it() {
    tallied("states", lives);
}

#[test]
fn threads_leave_what_recoveries_and_restores_find() {
    tallied("states of threads", threads);
}
