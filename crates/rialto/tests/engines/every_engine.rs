//! One call at a time, on all engines at once, against the model. Between calls the rules change, and the numbers of
//! executors and threads.

use std::time::{Duration, Instant};

use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Database, Engine, Logging, Options, Planning};

use super::databases::{
    LONG_WAIT, any_logging, any_plans, call, make, opens_again, outcome_of, procedures, tables, values,
};
use super::generate::{Plan, any_arguments};
use super::model::{Bounds, Model, Outcome};
use super::operation::{CAUGHT, TOO_LARGE};
use super::rules::{change_rules, route};
use super::shapes::{with_a_cancel, with_many};
use super::tally::{IN_PARTS, Tally, rounds_until_met};
use super::{ENGINES, TABLES, many, of_threads, options, planned};
use crate::common::engines::threads;
use crate::common::seeds::patience;

/// What a transaction may write, in bytes.
const WRITE_SET: usize = 10 << 10;

/// Engines whose plans follow how often actions abort.
const PLANNERS: [Engine; 2] = [of_threads(2), of_threads(4)];

/// Makes calls of the first three until the engine runs a phase of each of them serially, and empties the tables.
fn learn(db: &Database, random: &mut Random, context: &str) {
    let began = Instant::now();
    let is_serial = |name: &str| {
        let plans = db.metrics().plans;
        plans.iter().any(|plan| plan.procedure == name && plan.plan != rialto::Plan::Parallel)
    };
    for name in ["p0", "p1", "p2"] {
        while !is_serial(name) {
            for _ in 0..50 {
                let outcome = outcome_of(call(db, name, &values(&any_arguments(random), 0)));
                assert!(outcome.is_ok(), "{context}: {outcome:?}");
            }
            assert!(began.elapsed() < patience(), "{context}: {:?}", db.metrics().plans);
        }
    }
    for table in TABLES {
        db.transact(|tx| {
            let table = tx.table(table)?;
            tx.truncate(&table)
        })
        .unwrap();
    }
}

/// A database of each engine.
struct Each {
    about: String,
    planning: Planning,
    disk: std::sync::Arc<MemoryDisk>,
    options: Options,
    db: Database,
}

impl Each {
    fn new(
        engine: Engine,
        planning: Planning,
        (plans, rows): (&[Plan], i32),
        seed: u64,
        random: &mut Random,
    ) -> Each {
        // Plans are learned from calls that are not logged as such: those would run where they are called.
        let threads = if planning == Planning::Adaptive { usize::MAX } else { threads(engine) };
        let (checkpoint, logging) = any_logging(random, threads);
        let logging =
            if threads == usize::MAX && logging == Logging::Transaction { Logging::Value } else { logging };
        let mut options = Options {
            checkpoint,
            checkpoint_interval: Duration::from_millis(20),
            lock_timeout: LONG_WAIT,
            log_wait_max: LONG_WAIT,
            logging,
            write_set_bytes_max: WRITE_SET,
            recovery_threads: 1 + random.below(4) as usize,
            ..options(planned(engine, planning))
        };
        let disk = MemoryDisk::new();
        let db = make(disk.clone(), &mut options, rows, procedures(plans, |_, plan| plan.flow()));
        let about = format!("RIALTO_SEED={seed}, {engine}, {planning:?}, {logging:?}, {checkpoint:?}");
        if planning == Planning::Adaptive {
            learn(&db, random, &about);
        }
        route(&db).unwrap();
        Each { about, planning, disk, options, db }
    }
}

fn note(outcome: &Outcome, tally: &mut Tally) {
    if let Outcome::Given(given, _) = outcome {
        let has = |what| given.contains(&Value::Int4(what));
        tally.add("caught errors", u64::from(has(CAUGHT)));
        tally.add("caught that they write too much", u64::from(has(TOO_LARGE)));
    }
    tally.note(match outcome {
        Outcome::Given(..) => "committed",
        Outcome::TooLarge => "too large",
        Outcome::OutOfScope => "out of scope",
        Outcome::Cancelled => "cancelled",
        _ => "refused",
    });
}

fn round(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let mut plans = any_plans(&mut random);
    let rows = if random.chance(1, 5) { many::ROWS } else { 0 };
    if rows > 0 {
        // The first ones are those whose order is learned.
        let others = plans.split_off(3);
        plans.extend(others.into_iter().map(|plan| with_many(plan, &mut random)));
    }
    // Not of the plans whose order is learned.
    for plan in &mut plans[3..] {
        if random.chance(1, 8) {
            *plan = with_a_cancel(plan.clone(), &mut random);
        }
    }
    let engines = ENGINES.map(|engine| (engine, Planning::Parallel));
    let planners = PLANNERS.map(|engine| (engine, Planning::Adaptive));
    let all: Vec<_> = engines
        .into_iter()
        .chain(planners)
        .map(|(engine, planning)| Each::new(engine, planning, (&plans, rows), seed, &mut random))
        .collect();
    let mut model = Model { many: many::first_rows(rows), ..Model::default() };
    for nth in 0..60 {
        let plan = random.below(plans.len() as u64) as usize;
        let arguments = any_arguments(&mut random);
        let Some(expected) = model.call(&plans[plan], &arguments, Bounds::of_write_sets(WRITE_SET)) else {
            continue;
        };
        note(&expected, tally);
        for Each { about, planning, db, .. } in &all {
            if random.chance(1, 10) {
                change_rules(db, &TABLES, &mut random).unwrap_or_else(|error| panic!("{about}: {error}"));
            }
            let context = || format!("{about}, call {nth}, {arguments:?}, {:?}", plans[plan]);
            let outcome = outcome_of(call(db, &format!("p{plan}"), &values(&arguments, 0)));
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", context()));
            match (&expected, planning) {
                // Beside other actions it may end these, or they go on.
                _ if plans[plan].cancels() => {
                    assert!(!matches!(outcome, Outcome::Given(..)), "{}: {outcome:?}", context());
                }
                (Outcome::Given(..), _) | (_, Planning::Parallel) => {
                    assert_eq!(outcome, expected, "{}", context());
                }
                // Which of several errors is given follows the plan.
                _ => assert!(!matches!(outcome, Outcome::Given(..)), "{}: {outcome:?}", context()),
            }
            assert_eq!(tables(db, about), model.tables, "{}", context());
        }
    }
    for each in all {
        assert_eq!(many::numbers(&each.db, &each.about), model.many, "{}", each.about);
        let Each { about, planning, disk, options, db } = each;
        // Not the calls by which the others have learned.
        if planning == Planning::Parallel {
            tally.note_parts(&db);
        }
        db.close().unwrap();
        opens_again(disk, options, &model, &about);
    }
}

#[test]
fn every_engine_does_what_the_flow_says() {
    let expected = [
        "committed",
        IN_PARTS,
        "caught errors",
        "caught that they write too much",
        "refused",
        "out of scope",
        "cancelled",
    ];
    rounds_until_met("engines against a model", &expected, round);
}
