//! Databases without threads of their own ([`Background::Driven`]), with one client: a seed replays a run in the same
//! steps of the disk, and with it each crash.
//!
//! A run draws its options, then transactions of any kind ([`Drawer`]) at both levels, checkpoints, and calls of
//! `drive`. It notes the database's answers, their times on the virtual clock, and how many steps the disk had made by
//! then. A second run has to come to the same steps and the same answers at the same times. Then the run is ended at
//! one step after the other, by loss of power and by a kill, and recovered: the transactions that are there are the
//! first ones of the run, with all those that the end may not take, and the contents are those of the model after them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::engines;
use crate::common::seeds::for_a_while;
use crate::tables::contents::COUNT;
use crate::tables::{Contents, Drawer, any_group_commit, any_logging, assert_sound, one_of};
use rialto::io::{Caching, Clock, FaultyDisk, Random, VirtualClock};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Background, Checkpointing, Database, Durability, Engine, Error, Options, Result, TableDef, TxOptions,
};

/// The time that passes on the clock between some steps.
const TICK: Duration = Duration::from_millis(20);

/// The most ends of one run.
const ENDS: u64 = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    PowerLost(u64),
    Killed(u64),
}

fn options(random: &mut Random, clock: &Arc<VirtualClock>) -> Options {
    let (logging, checkpoint) = any_logging(random);
    Options {
        background: Background::Driven,
        clock: clock.clone().into(),
        memory_bytes: 64 << 20,
        logging,
        checkpoint,
        // Due at each call of `drive`, at some, or never.
        checkpoint_interval: one_of(random, &[Duration::from_nanos(1), TICK, Duration::from_secs(3_600)]),
        sweep_bytes_per_s: one_of(random, &[Some(0), Some(1 << 20), None]),
        backup_copies: 2 + random.below(2) as u32,
        spool: random.chance(1, 2),
        log_bytes_max: one_of(random, &[1 << 20, 2 << 20, 16 << 20]),
        log_wait_max: TICK,
        engine: one_of(random, &[Engine::thin(), Engine::central(), engines::of(4, 0)]),
        group_commit: any_group_commit(random),
        // Measurements are not the same each time.
        log_writes: Some(one_of(random, &[Caching::Direct, Caching::DirectSync, Caching::Buffered])),
        log_writes_in_flight: Some(1 + random.below(3) as u32),
        recovery_threads: 1,
        ..Options::default()
    }
}

/// A run up to its end.
struct Run {
    disk: Arc<FaultyDisk>,
    clock: Arc<VirtualClock>,
    /// The contents after each number of transactions, including one whose commit had no answer. None before the first
    /// one.
    states: Vec<Contents>,
    /// The answers, with how many steps the disk had made by then, and the time on the clock.
    answers: Vec<(String, u64, Duration)>,
    /// How many transactions have to be there after a loss of power, and after a kill.
    durable: usize,
    acknowledged: usize,
    /// The steps that succeeded, by their numbers.
    trace: Vec<(u64, String)>,
}

impl Run {
    /// Notes an answer. If the run has ended meanwhile, it is the last one, with fewer steps than the whole run had
    /// then.
    fn answered(&mut self, what: impl Into<String>) -> std::result::Result<(), String> {
        if self.disk.is_down() {
            return Err("it has ended".to_owned());
        }
        self.answers.push((what.into(), self.disk.steps(), self.clock.now()));
        Ok(())
    }

    /// This many transactions were answered, at this level.
    fn acknowledge(&mut self, transactions: usize, is_durable: bool) {
        self.acknowledged = transactions;
        if is_durable {
            self.durable = transactions;
        }
    }
}

fn run(seed: u64, end: Option<End>, about: &str) -> Run {
    let mut random = Random::new(seed);
    let disk = FaultyDisk::new(random.next());
    match end {
        Some(End::PowerLost(step)) => disk.crash_at(step),
        Some(End::Killed(step)) => disk.kill_at(step),
        None => disk.trace(),
    }
    let states = vec![Contents::default()];
    let clock = Arc::new(VirtualClock::new());
    let mut run = Run { disk, clock, states, answers: vec![], durable: 0, acknowledged: 0, trace: vec![] };
    let ended = work(&mut random, &mut run, about);
    if let Err(error) = ended {
        assert!(end.is_some() && run.disk.is_down(), "{about}: {error}");
    }
    run.trace = run.disk.take_trace().iter().map(|step| (step.number(), step.to_string())).collect();
    run
}

fn work(random: &mut Random, run: &mut Run, about: &str) -> std::result::Result<(), String> {
    let options = options(random, &run.clock);
    let checkpoint = options.checkpoint;
    let mut drawer = Drawer::new(random.fork(), about.to_owned());
    let db = Database::open_on(run.disk.clone(), options).map_err(|error| error.to_string())?;
    run.answered("opened")?;
    db.transact(prepare).map_err(|error| error.to_string())?;
    run.answered("prepared")?;
    run.acknowledge(0, true);
    let mut transactions = 0;
    for _ in 0..3 + random.below(6) {
        let level = one_of(random, &[Durability::Memory, Durability::Disk]);
        let tx = TxOptions { durability: Some(level), ..TxOptions::default() };
        let mut tx = db.begin_with(&tx).map_err(|error| error.to_string())?;
        let before = run.states[transactions].clone();
        match drawer.transaction(&mut tx, &before) {
            Ok(after) if random.chance(3, 4) => {
                run.states.truncate(transactions + 1);
                run.states.push(after);
                match tx.commit() {
                    Ok(()) => {
                        transactions += 1;
                        run.acknowledge(transactions, level == Durability::Disk);
                        run.answered(format!("{transactions} at level {level:?}"))?;
                    }
                    // The transaction is too long for the log, or no checkpoint makes room.
                    Err(Error::LogTooSmall { .. }) => {
                        run.states.pop();
                        run.answered("too long for the log")?;
                    }
                    Err(Error::LogFull { .. })
                        if checkpoint == Checkpointing::None && !run.disk.is_down() =>
                    {
                        run.states.pop();
                        run.answered("no room in the log")?;
                    }
                    Err(error) => return Err(format!("commit, {checkpoint:?}: {error}")),
                }
            }
            Ok(_) => tx.abort().map_err(|error| format!("abort: {error}"))?,
            Err(error) => return Err(error.to_string()),
        }
        if random.chance(1, 2) {
            Clock::from(run.clock.clone()).sleep(TICK / 2);
        }
        if random.chance(1, 3) {
            db.drive().map_err(|error| format!("drive: {error}"))?;
            // A failed write stops the log, which a call of `drive` does not tell.
            run.answered("driven")?;
            run.acknowledge(transactions, true);
        }
        if random.chance(1, 6) {
            let made = db.checkpoint().map_err(|error| format!("checkpoint: {error}"))?;
            run.acknowledge(transactions, true);
            run.answered(format!("checkpoint of {} segments", made.segments))?;
        }
    }
    run.states[transactions].assert_in(&db, about);
    db.close().map_err(|error| format!("close: {error}"))?;
    run.acknowledge(transactions, true);
    run.answered("closed")?;
    Ok(())
}

fn prepare(tx: &mut rialto::Transaction) -> Result<()> {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int8)];
    let table = tx.create_table(&TableDef::new(COUNT, columns).with_primary_key(&["id"]))?;
    tx.insert(&table, &[Value::Int4(0), Value::Int8(0)])
}

/// Checks what a recovery finds of a run that was ended. Gives the number of transactions, if it was prepared.
fn recovered(run: &Run, end: End, random: &mut Random, about: &str) -> Option<usize> {
    let disk = run.disk.restart();
    let was_prepared = run.answers.iter().any(|(what, ..)| what == "prepared");
    if was_prepared {
        assert_sound(disk.clone(), about);
    }
    let db = Database::open_on(disk, options(random, &Arc::default()))
        .unwrap_or_else(|error| panic!("{about}: {error}"));
    if db.table(COUNT).is_err() {
        assert!(!was_prepared, "{about}: nothing is there, after {:?}", run.answers);
        return None;
    }
    let there = Contents::count(&db) as usize;
    let least = match end {
        End::PowerLost(_) => run.durable,
        End::Killed(_) => run.acknowledged,
    };
    let states = run.states.len() - 1;
    assert!(
        (least..=states).contains(&there),
        "{about}: {there} transactions are there, of {least} to {states}"
    );
    run.states[there].assert_in(&db, about);
    Some(there)
}

#[derive(Default)]
struct Tally {
    power_lost: u64,
    killed: u64,
    replayed: u64,
    steps: u64,
}

fn ends(seed: u64, tally: &mut Tally) {
    let about = format!("RIALTO_SEED={seed}");
    let (whole, again) = (run(seed, None, &about), run(seed, None, &about));
    assert_eq!(whole.answers, again.answers, "{about}: the same run, answered otherwise");
    let other = whole.trace.iter().zip(&again.trace).find(|(one, other)| one != other);
    assert_eq!(other, None, "{about}: the same run, in other steps");
    assert_eq!(whole.trace.len(), again.trace.len(), "{about}: the same run, in more steps");
    let steps = whole.trace.last().map_or(0, |(number, _)| *number);
    tally.steps += steps;
    let mut random = Random::new(!seed);
    let first = random.below(steps);
    for nth in 0..ENDS.min(steps) {
        let step = 1 + (first + nth) % steps;
        let end = match random.chance(1, 2) {
            true => End::PowerLost(step),
            false => End::Killed(step),
        };
        let about = format!("{about}, {end:?}");
        let ended = run(seed, Some(end), &about);
        // Up to its end it goes as the whole run does.
        let other = whole.answers.iter().zip(&ended.answers).find(|(one, other)| one != other);
        assert!(other.is_none() && ended.disk.is_down(), "{about}: of {steps} steps, {other:?}");
        let found = recovered(&ended, end, &mut random.clone(), &about);
        match end {
            End::PowerLost(_) => tally.power_lost += 1,
            End::Killed(_) => tally.killed += 1,
        }
        if nth % 4 == 0 {
            let replayed = run(seed, Some(end), &about);
            assert_eq!(ended.answers, replayed.answers, "{about}: replayed, answered otherwise");
            let found_again = recovered(&replayed, end, &mut random.clone(), &about);
            assert_eq!(found, found_again, "{about}: replayed, recovered otherwise");
            tally.replayed += 1;
        }
        random.next();
    }
}

#[test]
fn a_seed_replays_a_run_and_its_end() {
    let mut tally = Tally::default();
    let (first, seeds) = for_a_while(|seed| ends(seed, &mut tally));
    let Tally { power_lost, killed, replayed, steps } = tally;
    println!(
        "tally: databases without threads, {seeds} seeds, {power_lost} losses of power, {killed} kills, {replayed} replayed, \
         {steps} steps of the runs, RIALTO_SEED={first}"
    );
}
