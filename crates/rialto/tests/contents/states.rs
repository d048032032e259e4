//! A client whose transactions draw definitions, rows and savepoints, as closures and as calls; and threads of such
//! clients. After each end of the machine or of the process the database has the result of one of the client's
//! transactions, or of the threads' transactions up to some place, by each index, however it is opened and by however
//! many threads it is recovered. The same holds for restores of its backups and its archive. The results are known from
//! the outcomes of the transactions' operations, in a model of plain maps.

mod drawn;
mod model;

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use crate::common::engines;
use crate::common::seeds::for_a_while;
use drawn::{Client, prepare, procedures};
use model::{Contents, Effect, Records};
use parking_lot::Mutex;
use rialto::backup::{Archive, Backup, Restore, restore};
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto::recovery::check::check;
use rialto::{BackupKind, Checkpointing, Database, Durability, Error, Logging, Lsn, Options, TxOptions};

/// Plenty of memory, or so little that transactions reach the bound.
const MEMORY: [u64; 3] = [64 << 20, 64 << 20, 5 << 20];

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A directory, with what stays the same in all of its lives.
struct Directory {
    disk: Arc<FaultyDisk>,
    archive: Arc<MemoryDisk>,
    memory: u64,
    /// The operations of the transactions' bodies.
    records: Arc<Records>,
}

impl Directory {
    fn new(random: &mut Random) -> Directory {
        let disk = FaultyDisk::new(random.next());
        let (archive, memory) = (MemoryDisk::new(), one_of(random, &MEMORY));
        Directory { disk, archive, memory, records: Arc::default() }
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
        Options {
            memory_bytes: self.memory,
            logging,
            checkpoint,
            procedures: procedures(&self.records),
            check_determinism: random.chance(1, 4),
            checkpoint_interval: Duration::from_millis(1 + random.below(20)),
            sweep_bytes_per_s: Some(2_000_000 << random.below(6)),
            backup_copies: 2 + random.below(2) as u32,
            snapshot_bytes_max: random.chance(1, 3).then_some(0),
            spool: random.chance(3, 4),
            archive: Some(Archive::on(self.archive.clone())),
            engine: engines::any(random, 6, 2),
            recovery_threads: 1 + random.below(3) as usize,
            lock_timeout: Duration::from_secs(20),
            ..Options::default()
        }
    }

    fn load(&self) -> i32 {
        if self.memory < MEMORY[0] { 4_000 } else { 500 }
    }

    fn open(&self, options: Options, about: &str) -> Database {
        let described = format!("{:?}, {:?}, {}", options.logging, options.checkpoint, options.engine);
        Database::open_on(self.disk.clone(), options)
            .unwrap_or_else(|error| panic!("{about}, opened with {described}: {error}"))
    }

    /// Ends it at a later step.
    fn end_at(&self, step: u64, is_kill: bool) {
        let at = self.disk.steps() + step;
        if is_kill { self.disk.kill_at(at) } else { self.disk.crash_at(at) }
    }

    /// Ends it now, unless it has ended, and goes on.
    fn restart(&mut self, is_kill: bool) {
        if !self.disk.is_down() {
            if is_kill { self.disk.kill() } else { self.disk.crash() }
        }
        self.disk = self.disk.restart();
    }

    /// The contents that the backups and the archive together give.
    fn restored(&self, backups: &[Vec<u8>], about: &str) -> Contents {
        let backups = backups.iter().map(|bytes| Backup::stream("a backup", Cursor::new(bytes.clone())));
        let memory_bytes = 256 << 20;
        let plan = Restore {
            archive: Some(Archive::on(self.archive.clone())),
            memory_bytes,
            threads: 2,
            procedures: procedures(&self.records),
            ..Restore::new(backups.collect())
        };
        let target = MemoryDisk::new();
        restore(plan, target.clone()).unwrap_or_else(|error| panic!("{about}: {error}"));
        check_sound(target.clone(), about);
        let options = Options { memory_bytes, procedures: procedures(&self.records), ..Options::default() };
        let db = Database::open_on(target, options).unwrap_or_else(|error| panic!("{about}: {error}"));
        Contents::of(&db, about)
    }
}

fn check_sound(disk: Arc<dyn Disk>, about: &str) {
    let report = check(&disk, 256 << 20, 2).unwrap_or_else(|error| panic!("{about}: {error}"));
    assert!(report.is_sound(), "{about}: {report}");
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
    // After each transaction, beginning before the first.
    let mut states = vec![Contents::default()];
    states[0].apply(&prepare(&db), "the tables that stay");
    db.sync().unwrap();
    for life in 0..4 {
        let about = &format!("RIALTO_SEED={seed}, life {life}");
        let is_kill = random.chance(1, 2);
        if random.chance(3, 4) {
            directory.end_at(1 + random.below(900), is_kill);
        }
        let first = states.len();
        let (mut acknowledged, mut answered, mut backups) = (first - 1, first - 1, Vec::new());
        let records = &*directory.records;
        let mut client =
            Client { db: &db, random: random.fork(), defines: true, load: directory.load(), records };
        for n in first..first + 15 + random.below(50) as usize {
            let durability = one_of(&mut random, &[Durability::Disk, Durability::Memory, Durability::Memory]);
            let options = TxOptions { durability: Some(durability), ..TxOptions::default() };
            let outcome = client.transact(n as i64, &options).and_then(|ticket| ticket.wait());
            let about = &format!("{about}, transaction {n}");
            let left = records.take(n as i64).map(|effects| {
                let mut left = states[n - 1].clone();
                left.apply(&effects, about);
                left
            });
            match outcome {
                Ok(()) => {
                    states.push(left.expect("its body has come to its end"));
                    Contents::of(&db, about).assert_is(&states[n], about);
                    answered = n;
                }
                Err(Error::MemoryLimit { .. }) => break,
                // It may have committed, if its body has ended.
                Err(error) if is_end(&error) => {
                    states.extend(left);
                    break;
                }
                Err(error) => panic!("{about}: {error}"),
            }
            // Level memory survives the process.
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
            // After the machine has ended it cannot be closed.
            if db.close().is_ok() {
                acknowledged = answered;
            }
        } else {
            drop(db);
        }
        directory.restart(is_kill);
        // Recovered in several ways, with the same result.
        let mut reached = None;
        for _ in 0..2 {
            check_sound(directory.disk.clone(), about);
            let again = directory.open(directory.options(&mut random), about);
            tally.calls += again.recovery().expect("it was there").calls;
            let found = Contents::of(&again, about);
            let last = (0..states.len()).rev().find(|n| *n == 0 || found.done.contains(&(*n as i64)));
            let last = last.expect("the first state has no transaction");
            assert!(last >= acknowledged, "{about}: {acknowledged} was acknowledged, found {last}");
            found.assert_is(&states[last], &format!("{about}, as transaction {last} left it"));
            assert!(reached.is_none_or(|before| before == last), "{about}: {reached:?}, and then {last}");
            reached = Some(last);
            if !backups.is_empty() {
                again.archive_log().unwrap_or_else(|error| panic!("{about}: {error}"));
            }
            drop(again);
            directory.restart(false);
        }
        let reached = reached.expect("it was opened");
        tally.transactions += (reached + 1 - first) as u64;
        states.truncate(reached + 1);
        if !backups.is_empty() {
            let restored = directory.restored(&backups, about);
            restored.assert_is(&states[reached], &format!("{about}, restored"));
            tally.restored += 1;
        }
        db = directory.open(directory.options(&mut random), about);
    }
    db.close().unwrap();
}

/// Transactions of threads that have their places.
#[derive(Default)]
struct Placed {
    all: Vec<(Lsn, i64, Vec<Effect>)>,
    acknowledged: Vec<i64>,
    /// Transactions whose clients were not told whether they have a place.
    unknown: BTreeSet<i64>,
}

impl Placed {
    /// The contents that transactions leave which a database has. They have to be those up to some place, with all
    /// acknowledged ones. None if one of them has an unknown place.
    fn left(&self, done: &BTreeSet<i64>, first: &[Effect], about: &str) -> Option<Contents> {
        if let Some(n) = self.acknowledged.iter().find(|n| !done.contains(n)) {
            panic!("{about}: transaction {n} was acknowledged");
        }
        let is_there = |(_, n, _): &&(Lsn, i64, Vec<Effect>)| done.contains(n);
        let there: Vec<_> = self.all.iter().take_while(is_there).collect();
        if let Some((place, n, _)) = self.all.iter().skip(there.len()).find(is_there) {
            panic!("{about}: transaction {n} at {place:?} is there, and one before it is not");
        }
        if !self.unknown.is_disjoint(done) {
            return None;
        }
        let mut left = Contents::default();
        left.apply(first, about);
        there.iter().for_each(|(_, n, effects)| left.apply(effects, &format!("{about}, transaction {n}")));
        Some(left)
    }
}

/// The number range of each thread's transactions: two threads never have the same number.
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
    let about =
        &format!("RIALTO_SEED={seed}, {:?}, {:?}, {}", options.logging, options.checkpoint, options.engine);
    let db = directory.open(options, about);
    let first = prepare(&db);
    db.sync().unwrap();
    let (is_cut, is_kill) = (random.chance(1, 2), random.chance(1, 2));
    if is_cut {
        directory.end_at(200 + random.below(3_000), is_kill);
    }
    let (placed, records) = (Mutex::<Placed>::default(), &*directory.records);
    let count = 30 + random.below(100) as i64;
    let mut backup = Vec::new();
    let has_backup = std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, defines, load) = (&db, thread == 0, directory.load());
            let mut client = Client { db, random: random.fork(), defines, load, records };
            let mut random = random.fork();
            let placed = &placed;
            scope.spawn(move || {
                for n in thread * EACH + 1..thread * EACH + 1 + count {
                    let durability = one_of(&mut random, &[Durability::Disk, Durability::Memory]);
                    let options = TxOptions { durability: Some(durability), ..TxOptions::default() };
                    match client.transact(n, &options) {
                        Ok(ticket) => {
                            let effects = records.take(n).expect("its body has come to its end");
                            placed.lock().all.push((ticket.lsn(), n, effects));
                            match ticket.wait() {
                                Ok(()) if durability == Durability::Disk || is_kill => {
                                    placed.lock().acknowledged.push(n);
                                }
                                Ok(()) => {}
                                Err(error) if is_end(&error) => return,
                                Err(error) => panic!("{about}, transaction {n}, placed: {error}"),
                            }
                        }
                        Err(error) if is_end(&error) => {
                            placed.lock().unknown.insert(n);
                            return;
                        }
                        Err(
                            Error::MemoryLimit { .. }
                            | Error::Deadlock { .. }
                            | Error::LockTimeout { .. }
                            | Error::NoSuchTable { .. }
                            | Error::TableChanged { .. },
                        ) => {}
                        Err(error) => panic!("{about}, transaction {n}: {error}"),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(random.below(60)));
        db.backup_to(&mut backup, BackupKind::Full).is_ok()
    });
    let mut placed = placed.into_inner();
    placed.all.sort_by_key(|(place, ..)| *place);
    let mut there = None;
    if db.sync().is_ok() && !directory.disk.is_down() {
        placed.acknowledged = placed.all.iter().map(|(_, n, _)| *n).collect();
        there = Some(placed.acknowledged.iter().copied().collect());
        let found = Contents::of(&db, about);
        let left = placed.left(&found.done, &first, about).expect("all have their places");
        found.assert_is(&left, about);
    }
    drop(db);
    directory.restart(is_kill);
    let mut left = None;
    for recovery_threads in [1, 3] {
        check_sound(directory.disk.clone(), about);
        let options = Options { recovery_threads, ..directory.options(&mut random) };
        let db = directory.open(options, about);
        tally.calls += db.recovery().expect("it was there").calls;
        let about = &format!("{about}, recovered by {recovery_threads} threads");
        let found = Contents::of(&db, about);
        left = placed.left(&found.done, &first, about);
        if let Some(left) = &left {
            found.assert_is(left, about);
        }
        let before: &BTreeSet<i64> = there.get_or_insert_with(|| found.done.clone());
        assert_eq!(&found.done, before, "{about}: transactions that are there");
        db.archive_log().unwrap_or_else(|error| panic!("{about}: {error}"));
        drop(db);
        directory.restart(false);
    }
    tally.transactions += there.map_or(0, |there| there.len() as u64);
    if has_backup && let Some(left) = left {
        directory.restored(&[backup], about).assert_is(&left, &format!("{about}, restored"));
        tally.restored += 1;
    }
}

/// Runs one seed after another, for as long as tests take.
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
