//! Databases that are backed up and archived while all clients work, and lose their power. A restore gives at least
//! what complete backups and calls of the archive had covered, as a prefix of the log, and nothing that the machine's
//! own recovery lacks.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rialto::backup::{RestoreTo, restore};
use rialto::io::{Disk, FaultyDisk, Random};
use rialto::{BackupKind, Checkpointing, Database, Engine, Executors, HandOver, Lsn, OpenError, Options};

use super::clients::procedures;
use super::contents::{Contents, compare, contents};
use super::copies::{Copies, Shelf, Taken, archive_on, has_no_log, opened, plan, restored};
use super::kept::keep;
use super::options::describe;
use super::steps::Run;
use super::told::{Bounds, END, Told};
use super::{check_contents, one_of};
use crate::common::seeds::for_a_while_until;

/// The most steps of a run in which the power is lost: some steps of many runs rather than all of a few.
const STEPS: usize = 20;

/// What was done, for the tally.
#[derive(Default)]
struct Tally {
    ends: u64,
    /// Restores of a backup alone, with all of the archive, to a place, to a time.
    restores: [u64; 4],
    went_on: u64,
    cut_off: u64,
    begun_again: u64,
}

/// The goal of a restore.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    Backup,
    End,
    Place(Lsn),
    Time(u64),
}

impl Goal {
    fn to(self) -> RestoreTo {
        match self {
            Goal::Backup | Goal::End => RestoreTo::End,
            Goal::Place(place) => RestoreTo::Place(place),
            Goal::Time(ms) => RestoreTo::Time(time(ms)),
        }
    }

    fn nth(self) -> usize {
        match self {
            Goal::Backup => 0,
            Goal::End => 1,
            Goal::Place(_) => 2,
            Goal::Time(_) => 3,
        }
    }
}

fn time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// A run with its copies, and the machine as the loss of power has left it.
struct Left<'a> {
    run: &'a Run,
    told: &'a [Told],
    copies: &'a Copies,
    machine: &'a FaultyDisk,
    /// The step in which the power was lost.
    step: u64,
    about: &'a str,
}

impl Left<'_> {
    /// The bounds of the contents if this backup is restored to this goal.
    fn bounds(&self, taken: &Taken, goal: Goal) -> Bounds {
        let mut least = taken.least.clone();
        let mut raise = |counts: &mut dyn Iterator<Item = i64>| {
            least.iter_mut().zip(counts).for_each(|(least, count)| *least = count.max(*least));
        };
        match goal {
            Goal::End => {
                if let Some(archived) = self.copies.archived_before(self.step) {
                    raise(&mut archived.least.iter().copied());
                }
            }
            Goal::Time(ms) => raise(&mut self.told.iter().map(|told| told.least_by(ms))),
            Goal::Backup | Goal::Place(_) => {}
        }
        let mut bounds = Bounds::of(self.told, least, self.step);
        if let Goal::Time(ms) = goal {
            let by_time = self.told.iter().map(|told| told.most_by(ms));
            bounds.most.iter_mut().zip(by_time).for_each(|(most, count)| *most = count.min(*most));
        }
        bounds
    }

    /// Whether a restore with the archive may be refused: the archive had covered nothing yet, or nothing after the
    /// requested time.
    fn may_refuse(&self, goal: Goal, error: &OpenError) -> bool {
        let archived = self.copies.archived_before(self.step);
        match (goal, archived) {
            (Goal::Backup, _) => false,
            (_, None) if has_no_log(error) => true,
            (Goal::Time(ms), Some(archived)) => {
                let counts = archived.least.iter().zip(self.told);
                let is_behind = counts.into_iter().any(|(count, told)| *count > told.most_by(ms));
                !is_behind && error.to_string().contains("reaches place")
            }
            _ => false,
        }
    }

    fn plan(&self, taken: &Taken, goal: Goal) -> rialto::backup::Restore {
        let chain = self.copies.chain(taken, Some(self.machine));
        let archive = (goal != Goal::Backup).then(|| archive_on(self.machine));
        plan(chain, archive, goal.to(), self.run.memory)
    }

    /// Compares the result of a restore, and its place, with what was promised.
    fn hold(&self, taken: &Taken, goal: Goal, (place, found): (Lsn, &Contents), about: &str) {
        match goal {
            Goal::Backup => assert_eq!(place, taken.place, "{about}"),
            Goal::Place(to) => assert_eq!(place, to, "{about}"),
            Goal::End | Goal::Time(_) => assert!(place >= taken.place, "{about}: only up to {place}"),
        }
        let bounds = self.bounds(taken, goal).up_to(place, self.told);
        bounds.check(&found.counts, &format!("{about}, which came to place {place}"));
        check_contents(found, &self.run.state, about);
    }

    /// Restores, and checks the result. Gives the place, unless the restore was refused as it may be.
    fn restore(&self, taken: &Taken, goal: Goal, most: &Contents, tally: &mut Tally) -> Option<Lsn> {
        let about = &format!("{}, its backup of place {} restored: {goal:?}", self.about, taken.place);
        match restored(self.plan(taken, goal), about) {
            Ok((place, found)) => {
                tally.restores[goal.nth()] += 1;
                self.hold(taken, goal, (place, &found), about);
                for (writer, (count, most)) in found.counts.iter().zip(&most.counts).enumerate() {
                    assert!(
                        count <= most,
                        "{about}: writer {writer}'s {count}, of which {most} were recovered"
                    );
                }
                Some(place)
            }
            Err(error) => {
                assert!(self.may_refuse(goal, &error), "{about}: {error}");
                None
            }
        }
    }

    /// A random goal, for this backup and an archive that ends at this place.
    fn any_goal(&self, taken: &Taken, end: Option<Lsn>, random: &mut Random) -> Goal {
        let until = self.copies.archived_before(self.step).map(|archived| archived.began.ms);
        match (random.below(4), end, until) {
            (0 | 1, Some(end), _) if end >= taken.place => {
                Goal::Place(Lsn(taken.place.0 + random.below(end.0 - taken.place.0 + 1)))
            }
            // Answers in the millisecond in which the log was archived may have come after that.
            (2, _, Some(until)) if until > taken.ended.ms => {
                Goal::Time(taken.ended.ms + random.below(until - taken.ended.ms))
            }
            _ => Goal::Backup,
        }
    }

    /// Checks everything after a loss of power, given the recovered contents.
    fn check(&self, recovered: &Contents, random: &mut Random, tally: &mut Tally) {
        let before = self.copies.any_before(self.step, random);
        let within = self.copies.last_within(self.step, self.machine);
        for taken in before.into_iter().chain(within) {
            let end = self.restore(taken, Goal::End, recovered, tally);
            if random.chance(1, 2) {
                continue;
            }
            let goal = self.any_goal(taken, end, random);
            self.restore(taken, goal, recovered, tally);
        }
    }
}

/// A run with copies on its machine: of the conventional engine, or the data-oriented one in place or on threads.
fn run_with_copies(seed: u64) -> (Run, Options) {
    let mut run = Run::new(seed);
    run.archives = true;
    let mut options = run.options(&run.disk.clone());
    let executors = Executors { count_max: 8, ..Executors::of(1 + run.random.below(8) as usize, 0) };
    options.engine = match run.random.below(3) {
        0 => one_of(&mut run.random, &[Engine::thin(), Engine::central()]),
        1 => executors.into(),
        _ => {
            let threads = one_of(&mut run.random, &[1, 2, 5]);
            let hand_over = one_of(&mut run.random, &[HandOver::IfBusy, HandOver::Always]);
            Executors { threads, threads_max: threads * 2, hand_over, ..executors }.into()
        }
    };
    if run.random.chance(1, 2) {
        run.is_quiet = true;
        options.memory_flush_interval = Duration::from_secs(1);
        options.checkpoint_interval = Duration::from_secs(1);
    }
    (run, options)
}

/// Clients work beside backups and archiving. Gives the copies, and what was told.
fn work(run: &mut Run, options: &Options, traced: bool) -> (Copies, Vec<Told>) {
    let told = run.told(traced);
    let db = Database::open_on(run.disk.clone(), options.clone()).unwrap();
    let shelf = Shelf::Machine(run.disk.clone());
    let mut copies = Copies::new(&run.disk, false, &format!("{}, {}", run.about, describe(options)));
    if run.random.chance(3, 4) {
        copies.take(&db, &shelf, &told, BackupKind::Full);
        copies.archive(&told, || db.archive_log());
    }
    if traced {
        run.disk.trace();
    }
    let most = one_of(&mut run.random, &[12, 12, 40]);
    let each = 3 + run.random.below(most) as i64;
    run.work(&db, options, &told, each, Some((&mut copies, &shelf)));
    if run.random.chance(1, 2) {
        copies.archive(&told, || db.close());
    } else {
        drop(db);
    }
    (copies, told)
}

/// The power is lost in random steps of a run with copies, in many of them just after a promise, until the time is
/// over.
fn power(seed: u64, until: Instant, tally: &mut Tally) {
    let (mut run, options) = run_with_copies(seed);
    let (copies, told) = work(&mut run, &options, true);
    run.disk.crash();
    let trace = run.disk.take_trace();
    let mut random = run.random.fork();
    let mut order: Vec<usize> = (0..trace.len()).collect();
    random.shuffle(&mut order);
    // Steps just after a promise come first.
    order.sort_by_key(|&at| !copies.is_just_behind(trace[at].number()));
    for at in order.into_iter().take(STEPS) {
        let step = &trace[at];
        let about = &format!("{}, power lost in {step}, {}", run.about, describe(&options));
        let machine = step.crashed().restart();
        machine.crash();
        let kept = machine.copied();
        let least = told.iter().map(|it| it.least_before(step.number())).collect();
        let bounds = Bounds::of(&told, least, step.number());
        let opening = run.opening();
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let recovered = machine.restart();
            let db = Database::open_on(recovered.clone(), opening.options(run.archive(&recovered)))
                .unwrap_or_else(|error| panic!("{about}: {error}"));
            let found = contents(&db, about);
            bounds.check(&found.counts, about);
            check_contents(&found, &run.state, about);
            // Another of the states that this loss may have left.
            let other = machine.restart();
            let left =
                Left { run: &run, told: &told, copies: &copies, machine: &other, step: step.number(), about };
            left.check(&found, &mut random, tally);
            if random.chance(1, 16) {
                go_on(&left, db, found, &recovered, &mut random);
                tally.went_on += 1;
            }
        }));
        if let Err(panic) = checked {
            let steps = trace[..=at].iter().map(ToString::to_string);
            let lines: Vec<String> = [about.clone()].into_iter().chain(steps).collect();
            let at = keep(&kept.restart(), copies.directories(), opening, &bounds, &lines);
            println!("kept, with the archive and the backups: {}", at.display());
            resume_unwind(panic);
        }
        tally.ends += 1;
        if Instant::now() > until {
            return;
        }
    }
}

/// The recovered database goes on with the same archive until it is closed. Then the backup from before its end, with
/// the archive, is the database as it was closed.
fn go_on(left: &Left<'_>, db: Database, found: Contents, disk: &Arc<FaultyDisk>, random: &mut Random) {
    let about = &format!("{}, gone on", left.about);
    let mut run = Run {
        disk: disk.clone(),
        memory: left.run.memory,
        random: random.fork(),
        state: found,
        archives: true,
        is_quiet: false,
        about: about.clone(),
    };
    drop(db);
    let options = run.options(&run.disk.clone());
    let db = Database::open_on(run.disk.clone(), options.clone()).unwrap();
    let told = run.told(false);
    run.work(&db, &options, &told, 4, None);
    let closed = contents(&db, about);
    let least = told.iter().map(|it| it.least(false)).collect();
    Bounds::of(&told, least, END).check(&closed.counts, about);
    check_contents(&closed, &run.state, about);
    db.close().unwrap_or_else(|error| panic!("{about}: {error}"));
    let Some(taken) = left.copies.any_before(left.step, random) else { return };
    let chain = left.copies.chain(taken, Some(&run.disk));
    let plan = plan(chain, Some(archive_on(&run.disk)), RestoreTo::End, run.memory);
    let (_, found) = restored(plan, about).unwrap_or_else(|error| panic!("{about}: {error}"));
    compare(&found, &closed, about);
}

/// A restore is cut off in each of its steps, by a loss of power or a kill, in any order until the time is over. Then
/// the directory is refused as unfinished, or has the whole database; an unfinished one is restored again from the
/// start.
fn cut_off(seed: u64, until: Instant, tally: &mut Tally) {
    let (mut run, options) = run_with_copies(seed);
    let (copies, told) = work(&mut run, &options, false);
    run.disk.crash();
    let machine = run.disk.restart();
    let mut random = run.random.fork();
    let about = &format!("{}, {}", run.about, describe(&options));
    let left = Left { run: &run, told: &told, copies: &copies, machine: &machine, step: END, about };
    let Some(taken) = copies.any_before(END, &mut random) else { return };
    let end = copies.archived_before(END).map(|_| {
        let (place, _) = restored(left.plan(taken, Goal::End), about).unwrap();
        place
    });
    let goal = match end {
        Some(_) if random.chance(1, 2) => Goal::End,
        _ => left.any_goal(taken, end, &mut random),
    };
    let about = &format!("{about}, restored: {goal:?}");
    let whole = FaultyDisk::new(random.next());
    whole.trace();
    let report = match restore(left.plan(taken, goal), whole.clone()) {
        Ok(report) => report,
        Err(error) => return assert!(left.may_refuse(goal, &error), "{about}: {error}"),
    };
    left.hold(taken, goal, (report.place, &opened(whole.clone(), run.memory, about)), about);
    whole.crash();
    let mut trace = whole.take_trace();
    random.shuffle(&mut trace);
    for step in trace {
        let is_killed = random.chance(1, 8);
        let about = &format!("{about}, cut off in {step}, by a kill: {is_killed}");
        let (disk, was_told) = if is_killed {
            let disk = FaultyDisk::new(random.next());
            disk.kill_at(step.number());
            let was_told = restore(left.plan(taken, goal), disk.clone()).is_ok();
            // Where several threads redo the log, a restore may have fewer steps than another.
            disk.kill();
            (disk, was_told)
        } else {
            (step.crashed().clone(), false)
        };
        tally.cut_off += 1;
        look_at_what_is_left(&left, (taken, goal, report.place), &disk.restart(), was_told, about);
        let again = disk.restart();
        match restore(left.plan(taken, goal), again.clone()) {
            Ok(report) => {
                tally.begun_again += 1;
                left.hold(taken, goal, (report.place, &opened(again, run.memory, about)), about);
            }
            Err(error) => {
                assert!(error.to_string().contains("it is not empty"), "{about}: {error}");
                left.hold(taken, goal, (report.place, &opened(again, run.memory, about)), about);
            }
        }
        if Instant::now() > until {
            return;
        }
    }
}

/// Opens what a restore has left: it is refused, or it is whole and equal to a restore that is not cut off.
fn look_at_what_is_left(
    left: &Left<'_>,
    (taken, goal, whole): (&Taken, Goal, Lsn),
    disk: &Arc<FaultyDisk>,
    was_told: bool,
    about: &str,
) {
    // Before a restore has left anything, nothing could be taken for a database.
    if disk.list().unwrap().is_empty() {
        assert!(!was_told, "{about}: what was told of is there");
        return;
    }
    let options = Options {
        memory_bytes: left.run.memory,
        checkpoint: Checkpointing::None,
        procedures: procedures(),
        ..Options::default()
    };
    match Database::open_on(disk.clone(), options) {
        Ok(db) => left.hold(taken, goal, (whole, &contents(&db, about)), about),
        Err(error) => {
            assert!(!was_told, "{about}: {error}");
            assert!(error.to_string().contains("\"restore-unfinished\" says"), "{about}: {error}");
        }
    }
}

#[test]
fn copies_give_back_what_was_promised_whichever_step_the_power_is_lost_in() {
    let mut tally = Tally::default();
    let until = Instant::now() + Random::test_time_from_environment();
    let (seed, runs) = for_a_while_until(|seed| {
        power(seed, until, &mut tally);
        // A single seed may have no backup, or no archive.
        tally.restores[1] > 0
    });
    let Tally { ends, restores: [alone, whole, places, times], went_on, .. } = tally;
    println!(
        "tally: copies at steps, {runs} databases, {ends} losses of power, {alone} backups restored alone, {whole} with the \
         archive, {places} to a place, {times} to a time, {went_on} databases that went on, RIALTO_SEED={seed}"
    );
    assert!(whole > 0, "a test without a restore");
}

#[test]
fn a_restore_that_is_cut_off_is_begun_again() {
    let mut tally = Tally::default();
    let until = Instant::now() + Random::test_time_from_environment();
    let (seed, restores) = for_a_while_until(|seed| {
        cut_off(seed, until, &mut tally);
        tally.cut_off > 0 && tally.begun_again > 0
    });
    let Tally { cut_off, begun_again, .. } = tally;
    println!(
        "tally: restores cut off at each step, {restores} seeds, {cut_off} ends, {begun_again} begun again, RIALTO_SEED={seed}"
    );
    assert!(cut_off > 0 && begun_again > 0, "a test without a restore that was cut off");
}
