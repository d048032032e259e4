//! The engines of histories, their changes while a history runs, and the judgement of both checkers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::io::Random;
use rialto::row::{Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Engine, Executors, GroupCommitDesign, HandOver, Logging, Options, Result,
};

use super::observed::{GRAVES, KEYS, Life, Outcome, PARTS, ROWS, TABLES, TAGS};
use super::space::Space;
use super::{checker, raw};

pub fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

pub fn options(random: &mut Random) -> Options {
    let threads = one_of(random, &[0, 3]);
    let executors = Executors {
        count_max: 8,
        threads_max: if threads > 0 { 4 } else { 0 },
        hand_over: one_of(random, &[HandOver::IfBusy, HandOver::Always]),
        ..Executors::of(1 + random.below(8) as usize, threads)
    };
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        deadlock_retries_max: 100_000,
        engine: one_of(random, &[Engine::thin(), Engine::central(), executors.into(), executors.into()]),
        group_commit: one_of(random, &GroupCommitDesign::ALL).into(),
        memory_flush_interval: Duration::from_millis(1 + random.below(10)),
        log_bytes_max: 16 << 20,
        recovery_threads: 2,
        ..Options::default()
    }
}

/// The options of a database that is opened again: its logging, and checkpoints that go with it.
pub fn lasting_options(random: &mut Random) -> Options {
    let logging = one_of(random, &Logging::ALL);
    let fits = |of: &Checkpointing| logging.refuses(*of).is_none();
    let fitting: Vec<Checkpointing> = Checkpointing::ALL.into_iter().filter(fits).collect();
    let (checkpoint, checkpoint_interval) = (one_of(random, &fitting), Duration::from_millis(1));
    Options { logging, checkpoint, checkpoint_interval, ..options(random) }
}

pub fn describe(options: &Options) -> String {
    let Options { engine, group_commit, logging, checkpoint, .. } = options;
    format!("{engine}, {:?}, {logging:?}, {checkpoint:?}", group_commit.design)
}

/// In this many histories the data-oriented engine has done at least a third of the operations: half of the databases
/// use it.
const MANY_HISTORIES: u64 = 400;

/// Counts for the tally.
#[derive(Default)]
pub struct Tally {
    lives: u64,
    attempts: u64,
    committed: u64,
    unknown: u64,
    operations: u64,
    /// Of these on the data-oriented engine.
    data_oriented: u64,
}

impl Tally {
    pub fn count(&mut self, lives: &[Life]) {
        for life in lives {
            let before = self.operations;
            for attempt in &life.attempts {
                self.attempts += 1;
                self.committed += u64::from(matches!(attempt.outcome, Outcome::Committed { .. }));
                self.unknown += u64::from(attempt.outcome == Outcome::Unknown);
                self.operations += attempt.events.len() as u64;
            }
            if life.engine.is_data_oriented() {
                self.data_oriented += self.operations - before;
            }
        }
        self.lives += lives.len() as u64;
    }

    pub fn tell(&self, what: &str, (seed, histories): (u64, u64)) {
        let Tally { lives, attempts, committed, unknown, operations, data_oriented } = self;
        assert!(4 * committed > *attempts, "only {committed} of {attempts} attempts have committed");
        println!(
            "tally: {what}, {histories} histories, {lives} lives, {attempts} attempts, {committed} transactions, \
             {unknown} unknown outcomes, {operations} operations of histories, \
             {data_oriented} operations of histories on the data-oriented engine, RIALTO_SEED={seed}"
        );
        assert!(
            histories < MANY_HISTORIES || 3 * data_oriented >= *operations,
            "RIALTO_SEED={seed}: the data-oriented engine has done {data_oriented} of {operations} operations"
        );
    }
}

/// Changes the routing rule of one index.
fn route(db: &Database, random: &mut Random) -> Result<()> {
    let table = random.below(TABLES as u64) as usize;
    let (name, which, values) = match random.below(4) {
        0 => (ROWS[table], WhichIndex::Secondary(0), PARTS),
        1 => (ROWS[table], WhichIndex::Secondary(1), TAGS),
        2 => (GRAVES[table], WhichIndex::Primary, KEYS),
        _ => (ROWS[table], WhichIndex::Primary, KEYS),
    };
    let space = Space::any(random);
    let mut bounds: Vec<i32> = (0..random.below(4)).map(|_| space.any_hot(values, random)).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let bounds: Vec<_> = bounds.into_iter().map(|bound| vec![Value::Int4(bound)]).collect();
    db.set_routing(name, which, &bounds)
}

/// Moves keys, data or actions between executors, if the engine has any.
pub fn change_engine(db: &Database, options: &Options, random: &mut Random) -> Result<()> {
    let is_local = options.engine.is_data_oriented();
    match random.below(5) {
        0..3 if is_local => route(db, random),
        3 if is_local => {
            let executors = 1 + random.below(8) as usize;
            db.set_executors(executors..=executors)
        }
        4 if db.executor_threads() > 0 => {
            let threads = 1 + random.below(4) as usize;
            db.set_executor_threads(threads..=threads)
        }
        _ => Ok(()),
    }
}

/// Ends what runs beside the clients, also when one of them panics.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Fails if one of the checkers refuses the history.
pub fn judge(lives: &[Life], about: &str) {
    if let Err(wrong) = checker::check(lives) {
        panic!("{about}: {wrong}");
    }
    if let Err(wrong) = raw::check(lives) {
        panic!("{about}: {wrong}");
    }
}
