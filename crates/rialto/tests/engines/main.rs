//! Every engine against a plain model: random flows over tables with unique indexes, whose actions insert, delete, move keys,
//! catch errors, take steps back and choose for their transaction, beside closures and definitions. What a call gives, and what
//! the tables hold by each index, is what the flow's actions come to one after the other; and the database opens again. Calls at
//! the same time do so in the order of their places (`in_order.rs`). A program by itself: its panic hook is the process's.

mod beside;
#[path = "../common/mod.rs"]
mod common;
mod generate;
mod in_order;
mod model;
mod served;
mod shapes;
mod views;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use generate::{Plan, any_aborting_plan, any_arguments, any_plan, define};
use model::{Model, Outcome, Row};
use rialto::io::{Disk, MemoryDisk, Random};
use rialto::recovery::check::check;
use rialto::row::{ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Durability, Error, Flow, LockForm, Logging, Options, Planning, Procedure,
    Result, Scan,
};

const TABLES: [&str; 2] = ["one", "two"];
/// What moves between the rows of this table adds up to nothing.
const SUMS: &str = "sums";
const MEMORY: u64 = 64 << 20;
/// What a transaction may write, in bytes.
const WRITE_SET: usize = 10 << 10;

/// The form of locks, and how many threads own executors.
type Engine = (LockForm, usize);

const ENGINES: [Engine; 7] = [
    (LockForm::Thin, 0),
    (LockForm::Central, 0),
    (LockForm::Local, 0),
    (LockForm::Local, 1),
    (LockForm::Local, 2),
    (LockForm::Local, 4),
    (LockForm::Local, 8),
];

/// Engines whose plans follow how often actions abort.
const PLANNERS: [Engine; 2] = [(LockForm::Local, 2), (LockForm::Local, 4)];

fn options((locks, executor_threads): Engine) -> Options {
    Options {
        memory_bytes: MEMORY,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        locks,
        executors: 8,
        executor_threads,
        // Where an action that aborts often runs first, another error is told of several.
        planning: Planning::Parallel,
        ..Options::default()
    }
}

/// Options with which the database logs calls of these plans, and runs them again when it opens, or logs values.
fn logging(logging: Logging, plans: &[Plan], engine: Engine, planning: Planning) -> Options {
    let procedures = match logging {
        Logging::Transaction => procedures(plans, Plan::flow).map(|it| it.deterministic(1)).collect(),
        _ => Vec::new(),
    };
    Options { logging, procedures, planning, write_set_bytes_max: WRITE_SET, ..options(engine) }
}

/// A database on this disk with empty tables and the plans' procedures.
fn make(disk: Arc<MemoryDisk>, options: Options, plans: &[Plan]) -> Database {
    let registers = options.procedures.is_empty();
    let db = Database::open_on(disk, options).unwrap();
    for table in TABLES {
        db.transact(|tx| define(tx, table)).unwrap();
    }
    if registers {
        procedures(plans, Plan::flow).for_each(|procedure| db.register(procedure).unwrap());
    }
    db
}

fn route(db: &Database) -> Result<()> {
    if db.executors() < 2 {
        return Ok(());
    }
    for table in TABLES {
        let version = db.table(table)?;
        let bounds = |step: i32| (1..8).map(|nth| vec![Value::Int4(nth * step)]).collect::<Vec<_>>();
        db.set_routing(table, WhichIndex::Primary, &bounds(1))?;
        for position in 0..version.schema().indexes().len() {
            db.set_routing(table, WhichIndex::Secondary(position), &bounds(2))?;
        }
    }
    Ok(())
}

/// The rows of a table, which are the same by each index.
fn rows_of(db: &Database, table: &str, context: &str) -> BTreeMap<(i32, i32), Row> {
    let handle = db.table(table).unwrap();
    let secondaries = (0..handle.schema().indexes().len()).map(WhichIndex::Secondary);
    let mut found: Option<BTreeMap<(i32, i32), Row>> = None;
    for which in [WhichIndex::Primary].into_iter().chain(secondaries) {
        let mut rows = BTreeMap::new();
        db.transact(|tx| {
            rows.clear();
            tx.scan(&handle, &Scan::prefix(which, vec![]), |_, row| {
                let key = (row.get_i32(0)?, row.get_i32(1)?);
                let of = Row { u: row.read(2)?, n: row.get_i32(3)?, length: row.get_str(4)?.len() };
                assert_eq!(rows.insert(key, of), None, "{context}: {table} has {key:?} twice by {which:?}");
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        match &found {
            None => found = Some(rows),
            Some(primary) => assert_eq!(&rows, primary, "{context}: {table} by {which:?}"),
        }
    }
    found.unwrap()
}

fn contents(db: &Database, context: &str) -> Model {
    Model { tables: TABLES.map(|table| rows_of(db, table, context)) }
}

/// What tells outcomes apart that a model knows of.
fn outcome_of(outcome: Result<(Vec<Value>, Durability)>) -> Outcome {
    match outcome {
        Ok((values, durability)) => Outcome::Given(values, durability),
        Err(Error::DuplicateKey { .. }) => Outcome::Duplicate,
        Err(Error::Aborted { .. }) => Outcome::Aborted,
        Err(Error::ReadOnly) => Outcome::ReadOnly,
        Err(Error::WriteSetTooLarge { .. }) => Outcome::TooLarge,
        Err(error) => panic!("{error}"),
    }
}

/// Calls a procedure and waits until its outcome is durable, which has to be by how the flow has chosen it.
fn call(db: &Database, name: &str, arguments: &[Value]) -> Result<(Vec<Value>, Durability)> {
    let (values, ticket) = db.submit_call(name, arguments)?;
    let durability = match format!("{ticket:?}") {
        disk if disk.contains("Disk") => Durability::Disk,
        _ => Durability::Memory,
    };
    ticket.wait()?;
    Ok((values, durability))
}

fn procedures(plans: &[Plan], flow: impl Fn(&Plan) -> Flow) -> impl Iterator<Item = Procedure> {
    plans.iter().enumerate().map(move |(nth, plan)| {
        Procedure::new(format!("p{nth}"), [ColumnType::Int4; generate::ARGUMENTS], flow(plan))
    })
}

/// Twelve, of which the first three come to be run in another order than the flow's where plans follow what aborts.
fn any_plans(random: &mut Random) -> Vec<Plan> {
    let any = |nth| if nth < 3 { any_aborting_plan(random) } else { any_plan(random) };
    (0..12).map(any).collect()
}

/// Calls the first three until the engine runs a phase of each of them serially, and empties the tables. How many of the calls
/// have committed.
fn learn(db: &Database, random: &mut Random, context: &str) -> u64 {
    let (began, mut committed) = (Instant::now(), 0);
    let is_serial = |name: &str| {
        let plans = db.metrics().plans;
        plans.iter().any(|plan| plan.procedure == name && plan.plan != rialto::Plan::Parallel)
    };
    for name in ["p0", "p1", "p2"] {
        while !is_serial(name) {
            for _ in 0..50 {
                let outcome = outcome_of(call(db, name, &any_arguments(random).map(Value::Int4)));
                committed += u64::from(matches!(outcome, Outcome::Given(..)));
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{context}: {:?}", db.metrics().plans);
        }
    }
    for table in TABLES {
        db.transact(|tx| {
            let table = tx.table(table)?;
            tx.truncate(&table)
        })
        .unwrap();
    }
    committed
}

/// The database is closed, its directory is sound, and it opens again as the model has it.
fn opens_again(db: Database, disk: Arc<MemoryDisk>, options: Options, model: &Model, context: &str) {
    db.close().unwrap();
    let report = check(&(disk.clone() as Arc<dyn Disk>), MEMORY, 2).unwrap();
    assert!(report.is_sound(), "{context}: {report}");
    let db = Database::open_on(disk, options).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(&contents(&db, context), model, "{context}: opened again");
}

#[test]
fn every_engine_does_what_the_flow_says() {
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let (mut random, mut calls, mut refused, mut too_large) = (Random::new(seed), 0, 0, 0);
    while calls == 0 || began.elapsed() < time {
        let plans = any_plans(&mut random);
        let engines = ENGINES.map(|engine| (engine, Planning::Parallel));
        let planners = PLANNERS.map(|engine| (engine, Planning::Adaptive));
        let dbs: Vec<_> = engines
            .into_iter()
            .chain(planners)
            .map(|(engine, planning)| {
                let disk = MemoryDisk::new();
                // Where threads own executors, a call that is logged as such would run where it is called.
                let kind =
                    if engine.1 == 0 && random.chance(1, 2) { Logging::Transaction } else { Logging::Value };
                let options = Options {
                    recovery_threads: 1 + random.below(4) as usize,
                    ..logging(kind, &plans, engine, planning)
                };
                let db = make(disk.clone(), options.clone(), &plans);
                if planning == Planning::Adaptive {
                    learn(&db, &mut random, &format!("RIALTO_SEED={seed}, {engine:?}"));
                }
                (engine, planning, (disk, options), db)
            })
            .collect();
        let mut model = Model::default();
        for nth in 0..60 {
            if nth % 10 == 0 {
                dbs.iter().for_each(|(.., db)| route(db).unwrap());
            }
            let plan = random.below(plans.len() as u64) as usize;
            let arguments = any_arguments(&mut random);
            let Some(expected) = model.call(&plans[plan], &arguments) else { continue };
            refused += u32::from(!matches!(expected, Outcome::Given(..)));
            too_large += u32::from(expected == Outcome::TooLarge);
            for (engine, planning, _, db) in &dbs {
                let context =
                    format!("RIALTO_SEED={seed}, call {nth}, {engine:?}, {planning:?}, {:?}", plans[plan]);
                let outcome = outcome_of(call(db, &format!("p{plan}"), &arguments.map(Value::Int4)));
                match (&expected, planning) {
                    (Outcome::Given(..), _) | (_, Planning::Parallel) => {
                        assert_eq!(outcome, expected, "{context}, {arguments:?}");
                    }
                    // Which of several errors is told follows the plan.
                    _ => assert!(
                        !matches!(outcome, Outcome::Given(..)),
                        "{context}, {arguments:?}: {outcome:?}"
                    ),
                }
                assert_eq!(contents(db, &context), model, "{context}, {arguments:?}");
            }
            calls += 1;
        }
        for (engine, _, (disk, options), db) in dbs {
            let context = format!("RIALTO_SEED={seed}, {engine:?}, {:?}", options.logging);
            opens_again(db, disk, options, &model, &context);
        }
    }
    println!(
        "tally: engines against a model, {calls} calls, {refused} refused, {too_large} too large, RIALTO_SEED={seed}"
    );
}
