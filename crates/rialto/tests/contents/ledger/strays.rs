//! Databases on a disk on which one write goes astray: it is answered, and synced, and a part of it is lost, or lies at
//! another place, whose bytes are then lost. What the machine, or the process, leaves is refused with the name of a
//! file, or it has everything that an answer told. It never has less, and is never mixed from two times.
//!
//! One loss cannot be detected. That a block of the log was durable is told by what was written when it was: the later
//! blocks, which say how far the log was durable then, the home block, which names the log's end of then, and the ring,
//! which a loss of power takes away. So after a loss of power a log that was cut off by a stray write looks like one
//! that ended there, if nothing tells of more:
//!
//! - A transaction that began when a missing one had been acknowledged, and was itself acknowledged at level disk,
//!   tells of it, unless its own block is missing, too. If it began after the stray write, its block is not missing. If
//!   it was acknowledged before, its block is missing if the stray write has landed on it. Among such transactions,
//!   each of which began when the one before it had been acknowledged, each has pages of its own.
//! - A checkpoint that began after the stray write tells of everything.

use std::iter::successors;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rialto::io::{Disk, FaultKind, FaultyDisk, Stray};
use rialto::recovery::check::check;
use rialto::{Database, OpenError};

use super::contents::{COUNT, Contents, WRITERS, contents};
use super::kept::{Opening, keep, tell};
use super::options::describe;
use super::steps::Run;
use super::told::{Bounds, END, Told};
use super::{End, Ends, check_contents, one_of};
use crate::common::many_seeds::for_a_while_until_by;

/// Each write of the log ends at the end of such a page.
const PAGE_BYTES: u64 = 4096;
/// The files in which a write goes astray: mostly the log, each of whose blocks matters by itself.
const PREFIXES: [&str; 8] = ["log-0", "log-0", "log-0", "home", "backup", "load-", "", ""];

/// What was done, for the tally.
#[derive(Default)]
struct Tally {
    lost: u64,
    misdirected: u64,
    power_lost: u64,
    killed: u64,
    /// Of the ends: those on the data-oriented engine.
    data_oriented: u64,
    refused: u64,
    /// Databases that were opened without some of the acknowledged transactions, of which nothing tells any more.
    untold: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        let Tally { lost, misdirected, power_lost, killed, data_oriented, refused, untold } = other;
        for (sum, more) in [
            (&mut self.lost, lost),
            (&mut self.misdirected, misdirected),
            (&mut self.power_lost, power_lost),
            (&mut self.killed, killed),
            (&mut self.data_oriented, data_oriented),
            (&mut self.refused, refused),
            (&mut self.untold, untold),
        ] {
            *sum += more;
        }
    }
}

fn is_of_log(name: &str) -> bool {
    name.starts_with("log-0")
}

/// The result of a run with a stray write, and what has to be there.
struct Left<'a> {
    told: &'a [Told],
    bounds: &'a Bounds,
    stray: Option<&'a Stray>,
    power_lost: bool,
    /// Whether a checkpoint that began when the clients were done, and the write had gone astray, is complete.
    checkpoint_behind: bool,
    about: &'a str,
}

impl Left<'_> {
    /// What was found has everything, or lacks only transactions of which nothing tells. Whether it lacks some.
    fn check(&self, found: &Found) -> bool {
        found.check(self.about);
        let counts = found.counts();
        let lost = self.told.iter().zip(&counts);
        let first_lost = lost.filter_map(|(told, count)| told.first_told_behind(*count)).min();
        let mut bounds = self.bounds.clone();
        let lacks = match (first_lost, self.stray) {
            (Some(first), Some(stray)) => self.power_lost && self.may_end_at(stray, first),
            _ => false,
        };
        if lacks {
            bounds.least.fill(-1);
        }
        bounds.check(&counts, self.about);
        lacks
    }

    /// Whether a log that ends at this write looks like a whole one. The first answer that tells of the missing part
    /// came in the step `first`.
    fn may_end_at(&self, stray: &Stray, first: u64) -> bool {
        let landed = stray.landed.as_ref().filter(|(name, _)| is_of_log(name));
        let pages = landed.map_or(0, |(_, at)| (at + stray.bytes).div_ceil(PAGE_BYTES) - at / PAGE_BYTES);
        // Each began after the answer to the one before it.
        let next = |step: &u64| {
            self.told.iter().filter_map(|it| it.first_told_behind(it.most_before(step + 1))).min()
        };
        let missing = successors(Some(first), next).take_while(|step| *step < stray.step).count() as u64;
        let behind = first.max(stray.step - 1);
        let is_told_of = self.told.iter().any(|it| it.least_before(END) > it.most_before(behind + 1));
        let is_in_log = is_of_log(&stray.name) || landed.is_some();
        is_in_log && missing <= pages && !is_told_of && !self.checkpoint_behind
    }
}

/// An opening is refused because of this disk's contents, and names the file.
fn check_refusal(error: &OpenError, disk: &Arc<FaultyDisk>, memory: u64, about: &str) {
    let text = error.to_string();
    let names = disk.list().unwrap();
    let names_a_file = names.iter().any(|name| text.contains(&format!("\"{name}\"")));
    assert!(matches!(error, OpenError::Corrupt { .. }) && names_a_file, "{about}: {error}");
    let report = check(&(disk.clone() as Arc<dyn Disk>), memory, 2);
    let is_sound = report.as_ref().is_ok_and(|report| report.is_sound());
    assert!(!is_sound, "{about}: it is called sound, and not opened: {error}");
}

/// The contents of a database that was opened.
enum Found {
    /// Not even the prepared tables: its log ends before them.
    Nothing,
    All(Contents),
}

impl Found {
    /// The number of each writer's transactions. Less than zero if its tables do not exist.
    fn counts(&self) -> Vec<i64> {
        match self {
            Found::Nothing => vec![-1; WRITERS + 1],
            Found::All(contents) => contents.counts.clone(),
        }
    }

    fn check(&self, about: &str) {
        if let Found::All(contents) = self {
            // Not compared with the contents before the run: an overwritten log may end there.
            check_contents(contents, &Contents::default(), about);
        }
    }
}

/// Opens a disk. Gives the contents, or nothing if the opening is refused as it may be.
fn opened(disk: &Arc<FaultyDisk>, opening: Opening, about: &str) -> Option<Found> {
    let options = opening.options(None);
    let about = &format!("{about}, opened with {}", describe(&options));
    match Database::open_on(disk.clone(), options) {
        Ok(db) if db.table(COUNT).is_err() => Some(Found::Nothing),
        Ok(db) => Some(Found::All(contents(&db, about))),
        Err(error) => {
            check_refusal(&error, disk, opening.memory, about);
            None
        }
    }
}

/// Ends the disk in this step, or in the next one if that has passed.
fn end_in(disk: &FaultyDisk, end: End, step: u64) {
    match end {
        End::PowerLost => disk.crash_at(step),
        End::Killed => disk.kill_at(step),
    }
}

/// Waits for a write to go astray, and ends the disk this many steps after it.
fn end_behind(disk: &FaultyDisk, end: End, steps: u64, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        if let Some(stray) = disk.strays().first() {
            return end_in(disk, end, stray.step + 1 + steps);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

fn stray(seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut run = Run::new(seed);
    let disk = run.disk.clone();
    let told = run.told(true);
    let options = run.options(&disk);
    let kind = one_of(&mut run.random, &[FaultKind::LostWrite, FaultKind::MisdirectedWrite]);
    let prefix = one_of(&mut run.random, &PREFIXES);
    let scale = run.random.below(7);
    disk.fail(kind, prefix, run.random.below(1 << scale));
    let end = one_of(&mut run.random, &[End::PowerLost, End::PowerLost, End::Killed]);
    let behind = match run.random.below(4) {
        0 => {
            let scale = run.random.below(8);
            end_in(&disk, end, disk.steps() + 1 + run.random.below(20 << scale));
            None
        }
        1 => None,
        _ => Some(run.random.below(12)),
    };
    let about = format!("{}, {end:?}, {kind:?} of {prefix:?}, {}", run.about, describe(&options));
    let mut checkpoint_behind = false;
    let db = Database::open_on(disk.clone(), options.clone());
    match &db {
        Ok(db) => {
            let each = 3 + run.random.below(30) as i64;
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (ends, disk, over) = (Ends(&over), &disk, &over);
                let waits = behind.map(|steps| scope.spawn(move || end_behind(disk, end, steps, over)));
                run.work(db, &options, &told, each, None);
                drop(ends);
                waits.into_iter().for_each(|waits| waits.join().unwrap());
            });
            let has_strayed = !disk.strays().is_empty();
            checkpoint_behind = has_strayed && run.random.chance(1, 3) && db.checkpoint().is_ok();
        }
        Err(error) => assert!(disk.is_down() || !disk.strays().is_empty(), "{about}: {error}"),
    }
    if !disk.is_down() {
        match end {
            End::PowerLost => disk.crash(),
            End::Killed => disk.kill(),
        }
    }
    drop(db);
    let strays = disk.strays();
    let about = &format!("{about}: {strays:?}");
    let power_lost = end == End::PowerLost;
    let least = told.iter().map(|it| it.least(power_lost)).collect();
    let bounds = Bounds::of(&told, least, END);
    let stray = strays.first();
    if let Some(stray) = stray {
        *if stray.landed.is_none() { &mut tally.lost } else { &mut tally.misdirected } += 1;
        *if power_lost { &mut tally.power_lost } else { &mut tally.killed } += 1;
        tally.data_oriented += u64::from(options.engine.is_data_oriented());
    }
    let of_run = Left { told: &told, bounds: &bounds, stray, power_lost, checkpoint_behind, about };
    let left = disk.restart();
    let copy = left.copied();
    let opening = run.opening();
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let Some(found) = opened(&left, opening, about) else {
            assert!(stray.is_some(), "{about}: it is refused without a cause");
            return None;
        };
        let lacks = of_run.check(&found);
        Some((found, lacks))
    }));
    let found = checked.unwrap_or_else(|panic| {
        copy.kill();
        tell(&keep(&copy.restart(), 1, opening, &bounds, std::slice::from_ref(about)));
        resume_unwind(panic)
    });
    let Some((found, lacks)) = found else {
        tally.refused += 1;
        return tally;
    };
    tally.untold += u64::from(lacks);
    // What was found once has to stay.
    left.crash();
    if let Some(again) = opened(&left.restart(), opening, about) {
        assert_eq!(again.counts(), found.counts(), "{about}: found, and then found again");
        again.check(about);
    }
    tally
}

#[test]
fn a_write_that_goes_astray_is_missed_or_does_no_harm() {
    let all = Mutex::new(Tally::default());
    let (seed, databases) = for_a_while_until_by(3, |seed| {
        let tally = stray(seed);
        let mut all = all.lock();
        all.add(&tally);
        all.lost > 0 && all.misdirected > 0 && all.refused > 0
    });
    let Tally { lost, misdirected, power_lost, killed, data_oriented, refused, untold } = all.into_inner();
    println!(
        "tally: ledgers beside a stray write, {databases} databases, {lost} writes lost, {misdirected} misdirected, \
         {power_lost} losses of power, {killed} kills, {data_oriented} ends on the data-oriented engine, {refused} refused, \
         {untold} without an end of the log that nothing tells of, RIALTO_SEED={seed}"
    );
    assert!(
        lost > 0 && misdirected > 0 && refused > 0,
        "RIALTO_SEED={seed}: {lost}, {misdirected}, {refused}"
    );
}
