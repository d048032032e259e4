//! Clients that commit in every way, definitions, sweeps, backups and changes of executors, all at the same time on a
//! faulty disk, and a ledger of what each client was told. After each end of the machine or of the process, everything
//! that an answer told is there, in the order of the log, whole, by each index; and so it is in each backup.
//!
//! The system schedules the threads: a seed gives the same choices again, not the same schedule.

mod clients;
mod contents;
mod copies;
mod crowd;
mod kept;
mod options;
mod restores;
mod steps;
mod strays;
mod told;
mod wakes;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::engines;
use crate::common::many_seeds::for_a_while_by;
use clients::{Client, Refusals};
use contents::{Contents, DEFINER, SIDES, WRITERS, compare, contents, prepare};
use copies::{Copies, Shelf, Taken, archive_on, has_no_log, plan, restored};
use kept::{Interrupted, Opening, keep, tell};
use options::{any_logged_options, describe};
use rialto::backup::RestoreTo;
use rialto::io::{Disk, FaultKind, FaultyDisk, Random};
use rialto::recovery::check::check;
use rialto::row::{Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Durability, Logging, Options, TransactionServer, TransactionServerOptions,
};
use told::{Bounds, END, Told};
use wakes::Wakes;

/// Some databases have little memory, and reach its bound.
const MEMORY: [u64; 3] = [64 << 20, 8 << 20, 4 << 20];
/// Rows of a table that hardly changes: few, or so many that the least memory is nearly full of them, or that a sweep
/// writes several images at a time: two, or five.
const STILL: [i32; 4] = [200, 8_000, 40_000, 80_000];

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// Ends what runs beside the clients, also if one of them panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Changes the checkpoint policy, and moves keys and data between executors, until the clients have ended.
fn change(db: &Database, options: &Options, mut random: Random, over: &AtomicBool) {
    let threads = engines::threads(options.engine);
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        let checkpoint = one_of(&mut random, &Checkpointing::ALL);
        if options.logging.refuses(checkpoint).is_none() {
            db.set_checkpoint(checkpoint).unwrap();
        }
        if !options.engine.is_data_oriented() {
            continue;
        }
        let executors = 1 + random.below(8) as usize;
        db.set_executors(executors..=executors).unwrap();
        if threads > 0 {
            let threads = 1 + random.below(threads as u64 * 2) as usize;
            db.set_executor_threads(threads..=threads).unwrap();
        }
        if executors > 1 {
            let bounds: Vec<_> = (1..WRITERS as i32).map(|writer| vec![Value::Int4(writer)]).collect();
            db.set_routing(one_of(&mut random, &SIDES), WhichIndex::Primary, &bounds).unwrap();
        }
    }
}

/// How a life of a database ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    PowerLost,
    Killed,
}

/// Counts for the tally.
#[derive(Default)]
struct Tally {
    power_lost: u64,
    killed: u64,
    closed: u64,
    /// Of the closes: those while clients worked.
    closed_amid: u64,
    /// Lives without a log.
    unlogged: u64,
    /// Of the losses of power and kills: those on the data-oriented engine.
    data_oriented: u64,
    /// Lives beside backups that ended well, on a disk without a fault; and those in which a backup was made.
    kept_well: u64,
    backed_up_well: u64,
    backups: u64,
    archives: u64,
    transactions: i64,
    /// Of these, the definer's.
    definitions: i64,
    refused: Refusals,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        let Tally { power_lost, killed, closed, closed_amid, unlogged, data_oriented, .. } = other;
        let Tally {
            kept_well, backed_up_well, backups, archives, transactions, definitions, refused, ..
        } = other;
        for (sum, more) in [
            (&mut self.power_lost, power_lost),
            (&mut self.killed, killed),
            (&mut self.closed, closed),
            (&mut self.closed_amid, closed_amid),
            (&mut self.unlogged, unlogged),
            (&mut self.data_oriented, data_oriented),
            (&mut self.kept_well, kept_well),
            (&mut self.backed_up_well, backed_up_well),
            (&mut self.backups, backups),
            (&mut self.archives, archives),
        ] {
            *sum += more;
        }
        self.transactions += transactions;
        self.definitions += definitions;
        self.refused.add(refused);
    }
}

/// All clients at once.
struct Work<'a> {
    db: &'a Database,
    options: &'a Options,
    told: &'a [Told],
    /// The contents before.
    state: &'a Contents,
    /// How many transactions each writer makes, and the definer.
    each: i64,
    definitions: i64,
    /// Nothing requests a log write: all commits are of level memory, and no checkpoint is demanded.
    is_quiet: bool,
    /// The copies that are made meanwhile, and where backups go.
    kept: Option<(&'a mut Copies, &'a Shelf)>,
    /// Whether the database is closed while clients work.
    closes: bool,
    refused: &'a Refusals,
    about: &'a str,
}

/// Works until all are done, the disk ends or the database is closed. Whether a close during the work has succeeded.
fn work(work: Work<'_>, random: &mut Random) -> bool {
    let Work { db, options, told, state, each, definitions, is_quiet, kept, closes, refused, about } = work;
    let levels: &[Durability] =
        if is_quiet { &[Durability::Memory] } else { &[Durability::Disk, Durability::Memory] };
    let standbys =
        TransactionServerOptions { queue: 1 + random.below(4) as usize, standbys: random.below(4) as usize };
    let server = TransactionServer::start(db, &standbys).unwrap();
    let over = AtomicBool::new(false);
    let demands = !is_quiet && (definitions > each || random.chance(1, 2));
    let with_changes = !closes && random.chance(1, 2);
    let pause = Duration::from_micros(random.below(3_000));
    let (closed, wakes) = (AtomicBool::new(false), Arc::<Wakes>::default());
    std::thread::scope(|scope| {
        let [beside, keeper] = [random.fork(), random.fork()];
        let mut others = Vec::new();
        if let Some((copies, shelf)) = kept {
            let over = &over;
            others.push(scope.spawn(move || copies.keep(db, shelf, told, keeper, over)));
        }
        if demands {
            others.push(scope.spawn(|| {
                while !over.load(Ordering::SeqCst) && db.checkpoint().is_ok() {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }));
        }
        if with_changes {
            others.push(scope.spawn(|| change(db, options, beside, &over)));
        }
        if closes {
            others.push(scope.spawn(|| {
                std::thread::sleep(pause);
                closed.store(db.clone().close().is_ok(), Ordering::SeqCst);
            }));
        }
        let ends = Ends(&over);
        std::thread::scope(|scope| {
            let mut client =
                || Client::new(db, &server, (told, levels), random.fork(), (refused, &wakes, about));
            let mut clients = Vec::new();
            for writer in 0..WRITERS {
                let client = client();
                clients.push(scope.spawn(move || client.write(writer, state.counts[writer] + 1, each)));
            }
            let (reader, definer) = (client(), client());
            clients.push(scope.spawn(move || reader.read(each as u32 * 2)));
            clients.push(scope.spawn(move || definer.define(state.clone(), definitions)));
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
        drop(ends);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    server.close();
    // A close ends the thread that wakes clients.
    let by_others = if closes { 0 } else { wakes.by_others() };
    assert_eq!(by_others, 0, "{about}: clients were woken by threads that do other things, too");
    closed.into_inner()
}

/// Checks that the contents follow from each writer's count.
fn check_contents(found: &Contents, before: &Contents, about: &str) {
    let mut expected = before.clone();
    expected.advance(&found.counts);
    compare(found, &expected, about);
}

fn sound(disk: &Arc<FaultyDisk>, memory_bytes: u64, about: &str) {
    let report = check(&(disk.clone() as Arc<dyn Disk>), memory_bytes, 2).unwrap();
    assert!(report.is_sound(), "{about}: {report}");
}

/// The last backup of a database, those that it is an increment on, and what was promised of its archive.
#[derive(Default)]
struct Kept {
    last: Option<(Copies, Taken)>,
    archived: Vec<i64>,
}

impl Kept {
    /// Adds the copies of a life that has ended.
    fn add(&mut self, copies: Copies) {
        if let Some(archived) = copies.archived.last() {
            self.archived.clone_from(&archived.least);
        }
        if let Some(taken) = copies.taken.last().cloned() {
            self.last = Some((copies, taken));
        }
    }

    /// The result of the last backup with the archive on this machine, which has at least what was promised.
    fn restored(&self, machine: &FaultyDisk, memory: u64, about: &str) -> Option<Contents> {
        let (copies, taken) = self.last.as_ref()?;
        let about = &format!("{about}, its last backup with the archive");
        let plan = plan(copies.chain(taken, None), Some(archive_on(machine)), RestoreTo::End, memory);
        let found = match restored(plan, about) {
            Ok((_, found)) => found,
            Err(error) => {
                assert!(self.archived.is_empty() && has_no_log(&error), "{about}: {error}");
                return None;
            }
        };
        for promised in [&taken.least, &self.archived] {
            for (writer, (least, count)) in promised.iter().zip(&found.counts).enumerate() {
                assert!(count >= least, "{about}: {least} of writer {writer} were archived, found {count}");
            }
        }
        check_contents(&found, &Contents::default(), about);
        Some(found)
    }
}

/// What most of the lives of a database are like.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Most {
    Written,
    Defined,
    /// Each life ends by a close during commits, unless the disk ends before, and most often has no log.
    Closed,
}

/// A database and its lives.
fn lives(seed: u64, most: Most, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    if random.chance(1, 4) {
        disk.pretend_speed();
    }
    let is_closed = most == Most::Closed;
    let memory = if is_closed { MEMORY[0] } else { one_of(&mut random, &MEMORY) };
    let archives = !is_closed && random.chance(1, 2);
    let archive = |disk: &FaultyDisk| archives.then(|| archive_on(disk));
    let mut options = any_logged_options(&mut random, memory, archive(&disk));
    let mut kept = Kept::default();
    let mut db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let still = match MEMORY.iter().position(|it| *it == memory) {
        Some(0) if !is_closed => &[STILL[0], STILL[0], STILL[2], STILL[3]],
        Some(2) => &STILL[..2],
        _ => &STILL[..1],
    };
    prepare(&db, one_of(&mut random, still));
    let mut state = Contents::default();
    for life in 0..4 {
        let about = &format!("RIALTO_SEED={seed}, life {life}, {}", describe(&options));
        let fault = (!is_closed && random.chance(1, 3)).then(|| {
            let kind = one_of(&mut random, &[FaultKind::Write, FaultKind::Sync, FaultKind::SyncReverts]);
            (kind, one_of(&mut random, &["", "log-", "log-"]))
        });
        // A failed sync of the directory ends the file system: until the machine starts again no other sync succeeds.
        // Only the end of the machine shows what a failed sync has lost.
        let needs_machine = match fault {
            Some((FaultKind::Sync | FaultKind::SyncReverts, name)) => name.is_empty() || random.chance(3, 4),
            _ => false,
        };
        let end = if needs_machine || random.chance(1, 2) { End::PowerLost } else { End::Killed };
        let range = 20 << if is_closed { 10 } else { random.below(10) };
        let at = disk.steps() + 1 + random.below(range);
        match end {
            End::Killed => disk.kill_at(at),
            End::PowerLost => disk.crash_at(at),
        }
        let told: Vec<Told> = state.counts.iter().map(|count| Told::at(*count, None)).collect();
        if let Some((kind, name)) = fault {
            let scale = random.below(9);
            disk.fail(kind, name, random.below(1 << scale));
        }
        let many = 10 + random.below(60) as i64;
        let (each, definitions) =
            if most == Most::Defined { (many / 10, 2 * many) } else { (many, many / 3) };
        let mut copies = Copies::new(&disk, fault.is_some(), about);
        let is_logged = options.logging != Logging::None;
        let keeps_copies = is_logged && !is_closed && random.chance(1, 3);
        let closes_amid = is_closed || random.chance(if is_logged { 1 } else { 6 }, 8);
        copies.may_be_closed = closes_amid;
        let keeps = keeps_copies.then_some((&mut copies, &Shelf::Elsewhere));
        let clients = Work {
            db: &db,
            options: &options,
            told: &told,
            state: &state,
            each,
            definitions,
            is_quiet: false,
            kept: keeps,
            closes: closes_amid,
            refused: &tally.refused,
            about,
        };
        let mut closed = work(clients, &mut random);
        let closes = !closes_amid && random.chance(1, 3);
        if closed {
            // Everything that was answered before the close ended, or will be.
            copies.archive(&told, || Ok(()));
        } else if closes && archives {
            copies.archive(&told, || db.close().inspect(|()| closed = true));
        } else if closes {
            closed = db.close().is_ok();
        }
        let end = if disk.is_down() { Some(end) } else { (!closed).then_some(end) };
        if !disk.is_down() {
            match end {
                Some(End::Killed) => disk.kill(),
                _ => disk.crash(),
            }
        }
        if keeps_copies && !closes_amid && end.is_none() && fault.is_none() {
            tally.kept_well += 1;
            tally.backed_up_well += u64::from(!copies.taken.is_empty());
        }
        tally.data_oriented += u64::from(end.is_some() && options.engine.is_data_oriented());
        match end {
            Some(End::Killed) => tally.killed += 1,
            Some(End::PowerLost) => tally.power_lost += 1,
            None => tally.closed += 1,
        }
        tally.closed_amid += u64::from(closes_amid && closed);
        tally.unlogged += u64::from(!is_logged);
        disk.mend();
        disk = disk.restart();
        if let Some(taken) = copies.taken.last() {
            tally.backups += 1;
            let about = &format!("{about}, its backup");
            let plan = plan(copies.chain(taken, None), None, RestoreTo::End, memory);
            let (place, found) = restored(plan, about).unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(place, taken.place, "{about}");
            let bounds = Bounds::of(&told, taken.least.clone(), END);
            bounds.up_to(place, &told).check(&found.counts, about);
            check_contents(&found, &state, about);
        }
        kept.add(copies);
        // A loss of power during recovery, or just after it (I8).
        let interrupted = random.chance(1, 3).then(|| {
            let (opening, step) = (Opening { memory, seed: random.next() }, 1 + random.below(30));
            Interrupted { disk: disk.copied(), opening, end: End::PowerLost, step }
        });
        // Level 1 outlives the process, not the machine; a close has written everything to disk.
        let power_lost = end == Some(End::PowerLost) || interrupted.is_some() && end.is_some();
        let least = told.iter().map(|it| it.least(power_lost)).collect();
        let mut bounds = Bounds::of(&told, least, END);
        let mut copy = disk.copied();
        let may_log = !is_closed || random.chance(1, 3);
        let opening = loop {
            let opening = Opening { memory, seed: random.next() };
            if may_log || opening.options(archive(&disk)).logging == Logging::None {
                break opening;
            }
        };
        let about = &format!("{about}, {end:?}");
        let checked = catch_unwind(AssertUnwindSafe(|| {
            if let Some(interrupted) = &interrupted {
                disk = interrupted.interrupt(&disk, archive(&disk));
                copy = disk.copied();
            }
            if random.chance(1, 3) {
                sound(&disk, memory, about);
            }
            let archived = if archives { kept.restored(&disk, memory, about) } else { None };
            options = opening.options(archive(&disk));
            let about = &format!("{about}, opened with {}", describe(&options));
            let db = Database::open_on(disk.clone(), options.clone())
                .unwrap_or_else(|error| panic!("{about}: {error}"));
            let found = contents(&db, about);
            if !is_logged && !closed {
                // A close keeps everything that was not logged, if it ends; nothing else keeps anything of it.
                if !closes_amid || found.counts == state.counts {
                    bounds =
                        Bounds { least: state.counts.clone(), most: state.counts.clone(), saw: Vec::new() };
                } else {
                    bounds.least = told.iter().map(|it| it.least(false)).collect();
                }
            }
            bounds.check(&found.counts, about);
            check_contents(&found, &state, about);
            (db, found, archived)
        }));
        let (found, archived) = match checked {
            Ok((opened, found, archived)) => {
                db = opened;
                (found, archived)
            }
            Err(panic) => {
                copy.kill();
                let directories = if archives { 2 } else { 1 };
                let at = keep(&copy.restart(), directories, opening, &bounds, std::slice::from_ref(about));
                if let Some(interrupted) = &interrupted {
                    interrupted.keep(directories, &at);
                }
                tell(&at);
                resume_unwind(panic);
            }
        };
        if let Some(archived) = archived {
            tally.archives += 1;
            let about = &format!("{about}, its last backup with the archive");
            let counts = archived.counts.iter().zip(&found.counts);
            assert!(
                counts.into_iter().all(|(restored, there)| restored <= there),
                "{about}: more than there is"
            );
            if end.is_none() {
                compare(&archived, &found, about);
            }
        }
        tally.transactions += found.counts.iter().sum::<i64>() - state.counts.iter().sum::<i64>();
        tally.definitions += found.counts[DEFINER] - state.counts[DEFINER];
        state = found;
    }
    db.close().unwrap_or_else(|error| panic!("RIALTO_SEED={seed}: {error}"));
    sound(&disk, memory, &format!("RIALTO_SEED={seed}"));
}

fn ledgers(what: &str, most: Most) {
    let all = Mutex::new(Tally::default());
    let (seed, databases) = for_a_while_by(3, |seed| {
        let mut tally = Tally::default();
        lives(seed, most, &mut tally);
        all.lock().unwrap().add(&tally);
    });
    let Tally {
        power_lost,
        killed,
        closed,
        closed_amid,
        unlogged,
        data_oriented,
        kept_well,
        backed_up_well,
        backups,
        archives,
        transactions,
        definitions,
        refused,
    } = all.into_inner().unwrap();
    println!(
        "tally: {what}, {databases} databases, {power_lost} losses of power, {killed} kills, {data_oriented} ends on the \
         data-oriented engine, {closed} closes, {closed_amid} of them amid commits, {unlogged} lives without a log, \
         {backups} backups restored, {archives} with an archive, {transactions} transactions, {definitions} of them with definitions, {refused}, RIALTO_SEED={seed}"
    );
    assert!(databases < 3 || definitions > 0, "RIALTO_SEED={seed}: nothing was defined beside writers");
    // A log that grows too fast makes a backup give up.
    assert!(
        kept_well < 20 || backed_up_well >= kept_well / 8,
        "RIALTO_SEED={seed}: of {kept_well} lives that ended well only {backed_up_well} have a backup"
    );
    let may_meet_all = most != Most::Closed && databases >= 300;
    assert!(!may_meet_all || refused.each_was_met(), "no run has met a bound: {refused}");
}

#[test]
fn what_an_answer_told_of_is_there() {
    ledgers("ledgers", Most::Written);
}

/// The same with hardly any transactions beside definitions: each sweep meets several.
#[test]
fn definitions_that_an_answer_told_of_are_there() {
    ledgers("ledgers of definitions", Most::Defined);
}

/// The same where a close comes during the work, most often without a log: then the close keeps everything that was
/// answered.
#[test]
fn what_was_answered_before_a_close_is_there() {
    ledgers("ledgers of closes", Most::Closed);
}
