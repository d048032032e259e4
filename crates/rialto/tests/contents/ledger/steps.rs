//! Runs that end at each of their steps in turn.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rialto::backup::Archive;
use rialto::io::{FaultyDisk, Random, TracedStep};
use rialto::{Database, Options};

use super::clients::Refusals;
use super::contents::{Contents, contents, prepare};
use super::copies::{Copies, Shelf, archive_on};
use super::kept::{Interrupted, Opening, VARIABLE, judge, keep, tell};
use super::options::{any_logged_options, describe};
use super::told::{Bounds, END, Told};
use super::{End, MEMORY, STILL, Work, check_contents, one_of, sound, work};
use crate::common::seeds::for_a_while;

/// A run of all clients, which is ended at each of its steps.
pub struct Run {
    pub disk: Arc<FaultyDisk>,
    pub memory: u64,
    pub random: Random,
    /// The contents before.
    pub state: Contents,
    /// Whether the log is archived, on the same machine.
    pub archives: bool,
    /// Whether only backups and the archive request log writes.
    pub is_quiet: bool,
    pub about: String,
}

impl Run {
    /// A new database, or one that was worked on before and closed.
    pub fn new(seed: u64) -> Run {
        let mut random = Random::new(seed);
        let disk = FaultyDisk::new(random.next());
        let memory = one_of(&mut random, &MEMORY);
        let (state, about) = (Contents::default(), String::new());
        let mut run = Run { disk, memory, random, state, archives: false, is_quiet: false, about };
        let options = run.options(&run.disk.clone());
        run.about = format!("RIALTO_SEED={seed}, before: {}", describe(&options));
        let db = Database::open_on(run.disk.clone(), options.clone()).unwrap();
        prepare(&db, STILL[0]);
        if run.random.chance(1, 2) {
            let (told, each) = (run.told(false), 5 + run.random.below(20) as i64);
            run.work(&db, &options, &told, each, None);
            let found = contents(&db, &run.about);
            let least = told.iter().map(|it| it.least(false)).collect();
            Bounds::of(&told, least, END).check(&found.counts, &run.about);
            check_contents(&found, &run.state, &run.about);
            run.state = found;
        }
        db.close().unwrap();
        run.about = format!("RIALTO_SEED={seed}");
        run
    }

    /// The options of the next opening.
    pub fn opening(&mut self) -> Opening {
        Opening { memory: self.memory, seed: self.random.next() }
    }

    /// Its archive, if it has one, on this disk.
    pub fn archive(&self, disk: &FaultyDisk) -> Option<Archive> {
        self.archives.then(|| archive_on(disk))
    }

    /// Options for a database on this disk.
    pub fn options(&mut self, disk: &FaultyDisk) -> Options {
        let archive = self.archive(disk);
        any_logged_options(&mut self.random, self.memory, archive)
    }

    /// The ledger from now on.
    pub fn told(&self, traced: bool) -> Vec<Told> {
        let counts = self.state.counts.iter();
        counts.map(|count| Told::at(*count, traced.then_some(&self.disk))).collect()
    }

    pub fn work(
        &mut self,
        db: &Database,
        options: &Options,
        told: &[Told],
        each: i64,
        kept: Option<(&mut Copies, &Shelf)>,
    ) {
        let about = &format!("{}, {}", self.about, describe(options));
        let (state, is_quiet) = (&self.state, self.is_quiet);
        let (definitions, refused) = (each / 3, &Refusals::default());
        let work_of_all = Work {
            db,
            options,
            told,
            state,
            each,
            definitions,
            is_quiet,
            kept,
            closes: false,
            refused,
            about,
        };
        work(work_of_all, &mut self.random);
    }

    /// The same, with backups to elsewhere in some runs.
    fn work_on(&mut self, db: &Database, options: &Options, told: &[Told], each: i64) {
        let mut copies = Copies::new(&self.disk, false, &self.about);
        let kept = self.random.chance(1, 3).then_some((&mut copies, &Shelf::Elsewhere));
        self.work(db, options, told, each, kept);
    }

    /// Opens what an end has left and checks it; and before that, in some cases, begins a recovery that ends in the
    /// same way (I8). A disk that fails is kept, with the events that led to it.
    fn check(&mut self, end: End, left: &FaultyDisk, bounds: &Bounds, about: &str, before: &[TracedStep]) {
        let mut disk = left.restart();
        let interrupted = self.random.chance(1, 8).then(|| {
            let (opening, step) = (self.opening(), 1 + self.random.below(30));
            Interrupted { disk: disk.copied(), opening, end, step }
        });
        // An opening here changes the shared maps.
        let (mut copy, opening) = (disk.copied(), self.opening());
        let checked = catch_unwind(AssertUnwindSafe(|| {
            if let Some(interrupted) = &interrupted {
                disk = interrupted.interrupt(&disk, self.archive(&disk));
                copy = disk.copied();
            }
            if self.random.chance(1, 8) {
                sound(&disk, self.memory, about);
            }
            let options = opening.options(self.archive(&disk));
            let about = &format!("{about}, opened with {}", describe(&options));
            let db =
                Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"));
            let found = contents(&db, about);
            bounds.check(&found.counts, about);
            check_contents(&found, &self.state, about);
        }));
        if let Err(panic) = checked {
            let steps = before.iter().map(ToString::to_string);
            let lines: Vec<String> = [about.to_owned()].into_iter().chain(steps).collect();
            copy.kill();
            let at = keep(&copy.restart(), 1, opening, bounds, &lines);
            if let Some(interrupted) = &interrupted {
                interrupted.keep(1, &at);
            }
            tell(&at);
            resume_unwind(panic);
        }
    }
}

/// What was done, for the tally.
#[derive(Default)]
struct Tally {
    ends: u64,
    /// Of these on the data-oriented engine.
    data_oriented: u64,
    transactions: i64,
}

/// The power is lost at each step of a run.
fn power(seed: u64, tally: &mut Tally) {
    let mut run = Run::new(seed);
    let told = run.told(true);
    let options = run.options(&run.disk.clone());
    run.disk.trace();
    let db = Database::open_on(run.disk.clone(), options.clone()).unwrap();
    let most = one_of(&mut run.random, &[12, 12, 40, 100]);
    let each = 3 + run.random.below(most) as i64;
    run.work_on(&db, &options, &told, each);
    if run.random.chance(1, 2) {
        db.close().unwrap();
    } else {
        drop(db);
    }
    run.disk.crash();
    let trace = run.disk.take_trace();
    for (at, step) in trace.iter().enumerate() {
        let about = format!("{}, power lost in {step}, {}", run.about, describe(&options));
        let left = step.crashed().restart();
        left.crash();
        let least = told.iter().map(|it| it.least_before(step.number())).collect();
        let bounds = Bounds::of(&told, least, step.number());
        run.check(End::PowerLost, &left, &bounds, &about, &trace[..=at]);
        tally.ends += 1;
        tally.data_oriented += u64::from(options.engine.is_data_oriented());
    }
    tally.transactions += told.iter().map(|it| it.least_before(END)).sum::<i64>();
}

/// The process is killed at each step of such runs, one step a run, from a random step until a run has no more steps or
/// the time is over. All begin with the same database, and each has options of its own.
fn kills(seed: u64, until: Instant, tally: &mut Tally) {
    for step in 1 + Random::new(seed).below(200).. {
        let mut run = Run::new(seed);
        run.random = Random::new(seed ^ step << 32);
        let told = run.told(false);
        let options = run.options(&run.disk.clone());
        run.disk.kill_at(run.disk.steps() + step);
        let about = format!("{}, killed in step {step}, {}", run.about, describe(&options));
        let opened = Database::open_on(run.disk.clone(), options.clone());
        if let Ok(db) = &opened {
            let each = 3 + run.random.below(12) as i64;
            run.work_on(db, &options, &told, each);
        }
        drop(opened);
        let is_over = !run.disk.is_down();
        run.disk.kill();
        let least = told.iter().map(|it| it.least(false)).collect();
        let bounds = Bounds::of(&told, least, END);
        let left = run.disk.clone();
        run.check(End::Killed, &left, &bounds, &about, &[]);
        tally.ends += 1;
        tally.data_oriented += u64::from(options.engine.is_data_oriented());
        tally.transactions += told.iter().map(|it| it.least(false)).sum::<i64>();
        if is_over || Instant::now() > until {
            return;
        }
    }
}

#[test]
fn it_is_there_whichever_step_the_power_is_lost_in() {
    let mut tally = Tally::default();
    let (seed, runs) = for_a_while(|seed| power(seed, &mut tally));
    let Tally { ends, data_oriented, transactions } = tally;
    println!(
        "tally: ledgers at each step, {runs} databases, {ends} losses of power, {data_oriented} ends on the data-oriented \
         engine, {transactions} transactions, RIALTO_SEED={seed}"
    );
}

#[test]
fn it_is_there_whichever_step_the_process_is_killed_in() {
    let mut tally = Tally::default();
    let until = Instant::now() + Random::test_time_from_environment();
    let (seed, _) = for_a_while(|seed| kills(seed, until, &mut tally));
    let Tally { ends, data_oriented, transactions } = tally;
    println!(
        "tally: ledgers killed at each step, {ends} kills, {data_oriented} ends on the data-oriented engine, \
         {transactions} transactions, RIALTO_SEED={seed}"
    );
}

/// A failed run, if one is named; otherwise one that is kept here, and passes only if its ledger is true.
#[test]
fn a_kept_run_is_judged_again() {
    if let Some(from) = std::env::var_os(VARIABLE) {
        return judge(Path::new(&from));
    }
    let mut run = Run::new(1);
    let told = run.told(false);
    let options = run.options(&run.disk.clone());
    println!("{}", describe(&options));
    let db = Database::open_on(run.disk.clone(), options.clone()).unwrap();
    run.work_on(&db, &options, &told, 5);
    drop(db);
    run.disk.kill();
    let bounds = Bounds::of(&told, told.iter().map(|it| it.least(false)).collect(), END);
    let opening = run.opening();
    let found = run.disk.copied().restart();
    let interrupted = Interrupted { disk: found.copied(), opening, end: End::Killed, step: 3 };
    let kept = |bounds: &Bounds| {
        let at = keep(&found, 1, opening, bounds, &[]);
        interrupted.keep(1, &at);
        at
    };
    let at = kept(&bounds);
    judge(&at);
    std::fs::remove_dir_all(&at).unwrap();
    let mut more = bounds;
    more.least[0] += 1;
    more.most[0] += 1;
    let at = kept(&more);
    let judged = catch_unwind(|| judge(&at));
    std::fs::remove_dir_all(&at).unwrap();
    assert!(judged.is_err(), "an answer told of one transaction more than there are");
}
