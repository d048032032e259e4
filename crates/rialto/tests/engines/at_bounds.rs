//! One call at a time where memory or the log is used up: a refused call leaves nothing behind, every other one has the
//! model's result, and the database opens again within the same bounds.

use std::time::Duration;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{Checkpointing, Database, Error, Options, Table, TableDef};

use super::databases::{
    LONG_WAIT, any_logging, any_plans, call, make, opens_again, outcome_of, procedures, tables, values,
};
use super::generate::any_arguments;
use super::model::{Bounds, Model, Outcome};
use super::operation::NO_MEMORY;
use super::rules::{change_rules, route};
use super::shapes::with_texts_of;
use super::tally::{Tally, rounds_until_met};
use super::{ENGINES, TABLES, many, options};
use crate::common::engines;

/// The most bytes of each text.
const TEXT_MAX: u64 = 24_000;
/// About half of a segment.
const LONG: usize = 30_000;

/// Memory that calls with long texts use up.
pub fn any_memory(random: &mut Random) -> u64 {
    (4 << 20) + random.below(1 << 20)
}

/// A bound on the log that they reach.
pub fn any_log(random: &mut Random) -> u64 {
    (1 << 20) + random.below(1 << 20)
}

fn row(id: i32) -> [Value; 2] {
    [Value::Int4(id), Value::Text("x".repeat(LONG))]
}

/// A table of long rows.
fn ballast(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    let definition = TableDef::new("ballast", columns).with_primary_key(&["id"]);
    db.transact(|tx| tx.create_table(&definition)).unwrap()
}

/// Fills memory up with rows, but a few are deleted.
pub fn fill_memory(db: &Database, random: &mut Random) {
    let table = ballast(db);
    let fits = |id| match db.transact(|tx| tx.insert(&table, &row(id))) {
        Ok(()) => true,
        Err(Error::MemoryLimit { .. }) => false,
        Err(error) => panic!("an insert at the bound of memory: {error}"),
    };
    let rows = (0..).find(|&id| !fits(id)).expect("memory is bounded");
    let room = 1 + random.below(8) as i32;
    for id in (rows - room).max(0)..rows {
        assert_eq!(db.transact(|tx| tx.delete(&table, id)), Ok(true));
    }
}

/// Fills the log in part, or up to its bound.
pub fn fill_log(db: &Database, random: &mut Random) {
    let table = ballast(db);
    for id in 0..20 + random.below(50) as i32 {
        match db.transact(|tx| tx.insert(&table, &row(id))) {
            Ok(()) => {}
            Err(Error::LogFull { .. }) => return,
            Err(error) => panic!("an insert at the bound of the log: {error}"),
        }
    }
}

fn round(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let plans: Vec<_> =
        any_plans(&mut random).into_iter().map(|plan| with_texts_of(plan, TEXT_MAX, &mut random)).collect();
    let engine = ENGINES[random.below(ENGINES.len() as u64) as usize];
    let of_memory = seed.is_multiple_of(2);
    let (mut checkpoint, logging) = any_logging(&mut random, engines::threads(engine));
    if !of_memory && random.chance(1, 2) {
        checkpoint = Checkpointing::None;
    }
    let common = Options {
        checkpoint,
        logging,
        lock_timeout: LONG_WAIT,
        log_wait_max: LONG_WAIT,
        checkpoint_interval: Duration::from_millis(20),
        ..options(engine)
    };
    let mut options = match of_memory {
        true => Options { memory_bytes: any_memory(&mut random), ..common },
        false => Options {
            log_bytes_max: any_log(&mut random),
            log_wait_max: if checkpoint == Checkpointing::None {
                Duration::from_millis(5)
            } else {
                LONG_WAIT
            },
            ..common
        },
    };
    let about = &format!("RIALTO_SEED={seed}, {options:?}");
    let disk = MemoryDisk::new();
    let db = make(disk.clone(), &mut options, 0, procedures(&plans, |_, plan| plan.flow()));
    route(&db).unwrap();
    match of_memory {
        true => fill_memory(&db, &mut random),
        false => fill_log(&db, &mut random),
    }
    let mut model = Model { many: many::first_rows(0), ..Model::default() };
    // Nothing has committed since a checkpoint.
    let mut has_room = false;
    for nth in 0..80 {
        if random.chance(1, 10) {
            change_rules(&db, &TABLES, &mut random).unwrap_or_else(|error| panic!("{about}: {error}"));
        }
        let plan = random.below(plans.len() as u64) as usize;
        let arguments = any_arguments(&mut random);
        let context = || format!("{about}, call {nth}, {arguments:?}, {:?}", plans[plan]);
        let outcome = outcome_of(call(&db, &format!("p{plan}"), &values(&arguments, 0)));
        match outcome {
            Ok(outcome) => {
                let given: &[Value] = match &outcome {
                    Outcome::Given(given, _) => given,
                    _ => &[],
                };
                let went_without = given.contains(&Value::Int4(NO_MEMORY));
                assert!(of_memory || !went_without, "{}", context());
                tally.add("caught want of memory", u64::from(went_without));
                let before = model.clone();
                let bounds = Bounds { write_set: options.write_set_bytes_max, given };
                let expected =
                    model.call(&plans[plan], &arguments, bounds).expect("no write set comes near its bound");
                if !of_memory || matches!(outcome, Outcome::Given(..)) {
                    assert_eq!(outcome, expected, "{}", context());
                    tally.note("as the model says");
                } else {
                    // It may have failed because an earlier operation had no memory: it reports none.
                    model = before;
                    tally.note("failed and left nothing");
                }
                has_room &= !matches!(outcome, Outcome::Given(..));
            }
            Err(Error::MemoryLimit { .. }) if of_memory => tally.note("without memory"),
            Err(Error::LogTooSmall { length, limit, log_bytes_max })
                if !of_memory && length > limit && limit as u64 > log_bytes_max / 2 =>
            {
                tally.note("more than the log");
            }
            // Where checkpoints are made, a call waits for the room that they free.
            Err(Error::LogFull { .. }) if !of_memory && checkpoint == Checkpointing::None && !has_room => {
                tally.note("without room in the log");
                db.checkpoint().unwrap_or_else(|error| panic!("{}: {error}", context()));
                has_room = true;
            }
            Err(error) => panic!("{}: {error:?}", context()),
        }
        assert_eq!(tables(&db, about), model.tables, "{}", context());
    }
    db.close().unwrap();
    opens_again(disk, options, &model, about);
}

#[test]
fn calls_at_the_bounds_of_memory_and_log_are_whole_or_leave_nothing() {
    let expected =
        ["as the model says", "without memory", "caught want of memory", "without room in the log"];
    rounds_until_met("calls at the bounds of memory and log", &expected, round);
}
