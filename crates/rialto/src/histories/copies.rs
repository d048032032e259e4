//! Histories of random transactions, and of random calls whose phases executor threads share, and the copies and
//! backups made meanwhile. Each copy, alone and without the log, must hold the rows after some of the transactions,
//! each whole, and with each everything that it depends on. A fuzzy copy need not.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::history::{Done, State, check, check_rows, check_state, state_before};
use super::load::Load;
use super::told;
use crate::backup::{Backup, Restore, restore};
use crate::checkpoint::home::HomeBlock;
use crate::interleavings::common::calls;
use crate::interleavings::consistent::copy_alone;
use crate::interleavings::hooked::HookedDisk;
use crate::interleavings::{options, seed, until_checkpoint};
use crate::io::{Disk, MemoryDisk, Random};
use crate::row::{RowView, Value, WhichIndex};
use crate::store::memory::SegmentId;
use crate::txn::sweep_side::IGNORES_READS;
use crate::{
    BackupKind, Checkpointing, Database, Durability, Engine, Executors, Logging, Lsn, Options, Scan,
};

/// Stops the other threads when it is dropped, by a panic too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn entry(row: &RowView) -> (i32, (u64, i32)) {
    (row.get_i32(0).unwrap(), (row.get_i64(2).unwrap() as u64, row.get_i32(1).unwrap()))
}

/// What was found while transactions ran.
struct Found {
    /// All transactions.
    history: Vec<Done>,
    /// The copies of sweeps.
    copies: Vec<(HomeBlock, State)>,
    /// Backups, each with its place.
    backups: Vec<(Lsn, State)>,
}

/// How a history is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Bodies.
    Bodies,
    /// Bodies with a bug put back: what they have read has no side.
    ForgetfulBodies,
    /// Calls that executor threads run, whose parts each have a context, and sides, of their own.
    Threads,
}

/// The work of the clients.
enum Work {
    Bodies(Load),
    /// The database, and the number of the next call.
    Threads(Database, AtomicI64),
}

/// Rows have a text of fewer bytes than this: a segment holds a few of them, so that they lie in several, and move.
const FILLER: u64 = 8_000;

impl Work {
    /// The work, and the first transactions of the history, which make the first rows.
    fn begin(db: &Database, by: By) -> (Work, Vec<Done>) {
        match by {
            By::Bodies | By::ForgetfulBodies => {
                let (load, first) = Load::new(db.clone(), FILLER);
                (Work::Bodies(load), vec![first])
            }
            By::Threads => {
                calls::define::<FILLER>(db);
                let mut first = 0;
                let filling = calls::filling(|| {
                    first += 1;
                    first
                });
                let history = filling.into_iter().map(|arguments| call(db, arguments)).collect();
                (Work::Threads(db.clone(), AtomicI64::new(first + 1)), history)
            }
        }
    }

    fn one(&self, random: &mut Random) -> Done {
        match self {
            Work::Bodies(load) => load.one(random),
            Work::Threads(db, next) => {
                let version = next.fetch_add(1, Ordering::Relaxed);
                let plain = (0..).map(|_| calls::any_call(random, version)).find(|call| told::is_plain(call));
                call(db, plain.expect("most are"))
            }
        }
    }
}

fn call(db: &Database, arguments: Vec<Value>) -> Done {
    let (outputs, ticket) = db.submit_call("steps", &arguments).unwrap();
    let place = ticket.lsn().0;
    ticket.wait().unwrap();
    Done { place, events: told::events(&arguments, outputs) }
}

/// Runs the transactions of three threads under so many sweeps.
fn found(checkpoint: Checkpointing, sweeps: u64, seed: u64, by: By) -> Found {
    // With pauses, sweeps begin beside commits that are half applied.
    crate::fault_injection::have_pauses();
    let mut random = Random::new(seed);
    let (disk, swept) = HookedDisk::counting();
    let disk: Arc<dyn Disk> = disk;
    let conventional = if random.chance(1, 3) { Engine::central() } else { Engine::thin() };
    let engine = match by {
        By::Bodies | By::ForgetfulBodies => conventional,
        By::Threads => Executors::of(5, 3).handing_over().into(),
    };
    let options = Options {
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        engine,
        logging: if random.chance(1, 3) { Logging::Action } else { Logging::Value },
        spool: random.chance(1, 2),
        backup_copies: 2 + random.below(2) as u32,
        checkpoint_interval: Duration::from_millis(1),
        // A quick sweep makes way for the next cut; a slow one meets more commits.
        sweep_bytes_per_s: Some((4 << 20) << random.below(5)),
        memory_flush_interval: Duration::from_millis(1),
        ..options()
    };
    let db = Database::open_on(disk.clone(), options).unwrap();
    let (work, mut history) = Work::begin(&db, by);
    db.set_checkpoint(checkpoint).unwrap();
    let (mut copies, mut taken) = (Vec::new(), Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopped = Stop(&stop);
        let running: Vec<_> = (0..3)
            .map(|_| {
                let (work, stop, mut random) = (&work, &stop, random.fork());
                scope.spawn(move || {
                    IGNORES_READS.set(by == By::ForgetfulBodies);
                    let mut done = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        done.push(work.one(&mut random));
                        // The time to check a history grows with its length.
                        std::thread::sleep(Duration::from_micros(random.below(400)));
                    }
                    done
                })
            })
            .collect();
        // Holds a segment's latch now and then, so that commits are half applied.
        let (segments, held, mut chance) = (&db.core().storage.memory.segments, &stop, random.fork());
        let hand = scope.spawn(move || {
            while !held.load(Ordering::Relaxed) {
                let segment = SegmentId(chance.below(u64::from(segments.high_water())) as u32);
                let latched = segments.latch(segment);
                std::thread::sleep(Duration::from_micros(300));
                drop(latched);
                std::thread::sleep(Duration::from_micros(chance.below(600)));
            }
        });
        for sweep in 0..sweeps {
            until_checkpoint(&db, &swept);
            let (home, [rows]) = copy_alone(&disk, ["things"], entry);
            let (count, rows) = (rows.len(), State::from_iter(rows));
            assert_eq!(rows.len(), count, "the loader keeps one of two");
            copies.push((home, rows));
            if sweep % 2 == 0 {
                let to = MemoryDisk::new();
                let kind = if sweep == 0 { BackupKind::Full } else { BackupKind::Incremental };
                taken.push((db.backup_on(to.clone(), kind).unwrap().place, to));
            }
        }
        drop(stopped);
        hand.join().unwrap();
        running.into_iter().for_each(|thread| history.extend(thread.join().unwrap()));
    });
    let restored = |last: usize| {
        let chain = taken[..=last].iter().map(|(_, disk)| Backup::on(disk.clone(), "b").unwrap());
        let target = MemoryDisk::new();
        restore(Restore::new(chain.collect()), target.clone()).unwrap();
        let db = Database::open_on(target, crate::interleavings::options()).unwrap();
        assert_eq!(db.recovery().unwrap().packets, 0, "it stands alone");
        let table = db.table("things").unwrap();
        let mut rows = State::new();
        let mut by_group = BTreeMap::new();
        db.transact(|tx| {
            tx.scan(&table, &Scan::all(), |_, row| {
                rows.extend([entry(&row)]);
                Ok(ControlFlow::Continue(()))
            })?;
            tx.scan(&table, &Scan { index: WhichIndex::Secondary(0), ..Scan::all() }, |_, row| {
                by_group.extend([entry(&row)]);
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        assert_eq!(rows, by_group);
        rows
    };
    let backups = (0..taken.len()).map(|last| (taken[last].0, restored(last))).collect();
    Found { history, copies, backups }
}

/// What is wrong with a copy that should hold whole transactions.
fn wrong(history: &[Done], home: &HomeBlock, rows: &State) -> Option<String> {
    // The copy has to have everything before the redo start; what it lacks is redone, if the log exists.
    let inside = match check_state(history, rows, |done| done.place < home.redo_start.0) {
        Ok(inside) => inside,
        Err(error) => return Some(error),
    };
    let last = inside.iter().map(|at| history[*at].place).max();
    last.is_some_and(|last| last > home.clearance.0).then(|| format!("{last:?} is past the clearance"))
}

/// Each copy and each backup of a transaction-consistent kind holds whole transactions, and everything that they depend
/// on.
#[test]
fn what_a_consistent_copy_holds_is_a_state_of_the_history() {
    let base = seed();
    let end = Instant::now() + Random::test_time_from_environment();
    let kinds = [
        (Checkpointing::TransactionBlackWhite, By::Bodies),
        (Checkpointing::TransactionCopyOnUpdate, By::Bodies),
        (Checkpointing::TransactionBlackWhite, By::Threads),
        (Checkpointing::TransactionCopyOnUpdate, By::Threads),
    ];
    let (mut rounds, mut transactions, mut copies, mut backups) = (0, 0, 0, 0);
    while rounds < kinds.len() as u64 || Instant::now() < end {
        let (checkpoint, by) = kinds[rounds as usize % kinds.len()];
        let seed = base.wrapping_add(rounds);
        rounds += 1;
        let about = format!("{checkpoint:?}, {by:?}, RIALTO_SEED={seed}");
        let mut found = found(checkpoint, 4, seed, by);
        assert_eq!(check(&found.history), Ok(()), "{about}");
        // A transaction that only reads may see both sides of a sweep, and the copy has nothing of it.
        found.history.retain(Done::writes);
        let history = &found.history;
        for (home, rows) in &found.copies {
            assert_eq!(wrong(history, home, rows), None, "{about}, {home:?}");
            if checkpoint == Checkpointing::TransactionCopyOnUpdate {
                assert_eq!(rows, &state_before(history, home.redo_start.0), "{about}: a cut is a place");
            }
        }
        for (place, rows) in &found.backups {
            assert_eq!(rows, &state_before(history, place.0 + 1), "{about}: the backup of {place}");
        }
        transactions += history.len();
        copies += found.copies.len();
        backups += found.backups.len();
    }
    println!(
        "tally: copies against histories, {rounds} histories, {transactions} transactions, {copies} copies, {backups} \
         backups, RIALTO_SEED={base}"
    );
}

/// Runs two threads' transactions, a black/white sweep, and a backup that begins as soon as the sweep ends, whose cut
/// makes segments white again. Returns the rows at the end, and the rows that a recovery from the sweep's copy and the
/// log finds.
fn before_and_after(seed: u64) -> (State, State) {
    crate::fault_injection::have_pauses();
    let mut random = Random::new(seed);
    let disk = MemoryDisk::new();
    let engine = [Engine::thin(), Engine::central(), Engine::data_oriented()][random.below(3) as usize];
    let options =
        Options { durability: Durability::Memory, engine, logging: Logging::Transaction, ..options() };
    let db = Database::open_on(disk.clone(), options).unwrap();
    let (load, _) = Load::new(db.clone(), FILLER);
    db.set_checkpoint(Checkpointing::TransactionBlackWhite).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for _ in 0..2 {
            let (load, stop, mut random) = (&load, &stop, random.fork());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    load.one(&mut random);
                }
            });
        }
        let sweep = scope.spawn(|| db.checkpoint().unwrap());
        let segments = &db.core().storage.memory.segments;
        while !segments.is_painted() && !sweep.is_finished() {
            std::thread::yield_now();
        }
        db.backup_on(MemoryDisk::new(), BackupKind::Full).unwrap();
        sweep.join().unwrap();
    });
    let found = |db: &Database| {
        let (table, mut rows) = (db.table("things").unwrap(), State::new());
        db.transact(|tx| {
            tx.scan(&table, &Scan::all(), |_, row| {
                rows.extend([entry(&row)]);
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        rows
    };
    let before = found(&db);
    drop(load);
    db.close().unwrap();
    let db = Database::open_on(disk, crate::interleavings::options()).unwrap();
    (before, found(&db))
}

/// The redo of a commit is left out only if the copy has the commit.
#[test]
fn what_commits_beside_the_end_of_a_sweep_is_there_after_a_recovery() {
    let (base, end) = (seed(), Instant::now() + Random::test_time_from_environment());
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        let seed = base.wrapping_add(rounds);
        rounds += 1;
        let (before, after) = before_and_after(seed);
        assert_eq!(after, before, "RIALTO_SEED={seed}");
    }
    println!("tally: recoveries from a sweep beside commits, {rounds} recoveries, RIALTO_SEED={base}");
}

/// What an action-consistent copy has of a row is what some action has left.
#[test]
fn what_an_action_consistent_copy_holds_are_rows_of_the_history() {
    let base = seed();
    for (checkpoint, by) in [
        (Checkpointing::ActionBlackWhite, By::Bodies),
        (Checkpointing::ActionCopyOnUpdate, By::Bodies),
        (Checkpointing::ActionBlackWhite, By::Threads),
    ] {
        let Found { history, copies, .. } = found(checkpoint, 4, base, by);
        for (_, rows) in &copies {
            assert_eq!(check_rows(&history, rows), Ok(()), "{checkpoint:?}, {by:?}, RIALTO_SEED={base}");
        }
    }
}

/// The checker rejects other copies: a fuzzy copy has parts of transactions, and so has a copy made beside transactions
/// that do not note what they have read.
#[test]
fn what_other_copies_hold_is_no_state_of_the_history() {
    let base = seed();
    for (checkpoint, by) in
        [(Checkpointing::Fuzzy, By::Bodies), (Checkpointing::TransactionBlackWhite, By::ForgetfulBodies)]
    {
        let began = Instant::now();
        let found = (0..).find_map(|round| {
            let mut found = found(checkpoint, 4, base.wrapping_add(round), by);
            found.history.retain(Done::writes);
            let wrong = found.copies.iter().find_map(|(home, rows)| wrong(&found.history, home, rows));
            assert!(wrong.is_some() || began.elapsed() < Duration::from_secs(100), "the test's own premise");
            wrong
        });
        println!("{checkpoint:?}, {by:?}: {}", found.expect("it goes on until it finds one"));
    }
}
