//! The databases of the suites: their options, their tables and contents, and that they open again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rialto::io::{Disk, MemoryDisk, Random};
use rialto::recovery::check::check;
use rialto::row::{ColumnType, Value, WhichIndex};
use rialto::{Checkpointing, Database, Durability, Error, Flow, Logging, Options, Procedure, Result, Scan};

use super::TABLES;
use super::generate::{ARGUMENTS, Plan, any_aborting_plan, any_plan, define};
use super::many;
use super::model::{Model, Outcome, Row, Rows};

/// Memory and log that no round uses up.
pub const MEMORY: u64 = 64 << 20;
pub const LOG: u64 = 16 << 20;
/// Longer than a loaded machine makes a lock or a log file wait, where no wait is to fail.
pub const LONG_WAIT: Duration = Duration::from_secs(300);

/// Twelve plans. The first three are run in another order than the flow's where plans follow aborts.
pub fn any_plans(random: &mut Random) -> Vec<Plan> {
    let any = |nth| if nth < 3 { any_aborting_plan(random) } else { any_plan(random) };
    (0..12).map(any).collect()
}

/// A kind of checkpoints, or none, and a logging that goes with it. Where threads own executors, a call that is logged
/// as such runs where it is called, so that is drawn seldom there.
pub fn any_logging(random: &mut Random, threads: usize) -> (Checkpointing, Logging) {
    let checkpoint = match random.chance(1, 3) {
        true => Checkpointing::None,
        false => Checkpointing::ALL[random.below(5) as usize],
    };
    let logging = Logging::ALL[random.below(3) as usize];
    let is_unfit = logging.refuses(checkpoint).is_some()
        || logging == Logging::Transaction && threads > 0 && random.chance(3, 4);
    (checkpoint, if is_unfit { Logging::Action } else { logging })
}

/// The procedures of these plans, by number. They have one argument more than the plans.
pub fn procedures(plans: &[Plan], flow: impl Fn(usize, &Plan) -> Flow) -> impl Iterator<Item = Procedure> {
    plans.iter().enumerate().map(move |(nth, plan)| {
        Procedure::new(format!("p{nth}"), [ColumnType::Int4; ARGUMENTS + 1], flow(nth, plan))
    })
}

/// The arguments of a call of such a procedure with this number.
pub fn values(arguments: &[i32; ARGUMENTS], number: i32) -> Vec<Value> {
    arguments.iter().copied().chain([number]).map(Value::Int4).collect()
}

/// A database on this disk with empty tables, this many rows in the table that can have many, and these procedures. If
/// calls are logged as such, it runs them again when it opens.
pub fn make(
    disk: Arc<MemoryDisk>,
    options: &mut Options,
    rows: i32,
    procedures: impl Iterator<Item = Procedure>,
) -> Database {
    let mut others = Vec::new();
    match options.logging {
        Logging::Transaction => options.procedures = procedures.map(|it| it.deterministic(1)).collect(),
        _ => others = procedures.collect(),
    }
    let db = Database::open_on(disk, options.clone()).unwrap();
    for table in TABLES {
        db.transact(|tx| define(tx, table)).unwrap();
    }
    many::define(&db, rows);
    others.into_iter().for_each(|procedure| db.register(procedure).unwrap());
    db
}

/// The rows of a table. Checks that each index gives the same.
fn rows_of(db: &Database, table: &str, context: &str) -> Rows {
    let handle = db.table(table).unwrap();
    let secondaries = (0..handle.schema().indexes().len()).map(WhichIndex::Secondary);
    let mut found: Option<Rows> = None;
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

pub fn tables(db: &Database, context: &str) -> [Rows; 2] {
    TABLES.map(|table| rows_of(db, table, context))
}

pub fn contents(db: &Database, context: &str) -> Model {
    Model { tables: tables(db, context), many: many::numbers(db, context) }
}

/// The outcomes that a model knows.
pub fn outcome_of(outcome: Result<(Vec<Value>, Durability)>) -> Result<Outcome> {
    Ok(match outcome {
        Ok((values, durability)) => Outcome::Given(values, durability),
        Err(Error::DuplicateKey { .. }) => Outcome::Duplicate,
        Err(Error::Aborted { .. }) => Outcome::Aborted,
        Err(Error::ReadOnly) => Outcome::ReadOnly,
        Err(Error::WriteSetTooLarge { .. }) => Outcome::TooLarge,
        Err(Error::Cancelled) => Outcome::Cancelled,
        Err(error) if is_out_of_scope(&error) => Outcome::OutOfScope,
        Err(error) => return Err(error),
    })
}

/// Whether an action was refused because it has gone to another dataset.
pub fn is_out_of_scope(error: &Error) -> bool {
    matches!(error, Error::Procedure { reason, .. } if reason.ends_with("which its identifier does not begin"))
}

/// Calls a procedure and waits until its outcome is durable, at the level that the flow has chosen.
pub fn call(db: &Database, name: &str, arguments: &[Value]) -> Result<(Vec<Value>, Durability)> {
    let (values, ticket) = db.submit_call(name, arguments)?;
    let durability = match format!("{ticket:?}") {
        disk if disk.contains("Disk") => Durability::Disk,
        _ => Durability::Memory,
    };
    ticket.wait()?;
    Ok((values, durability))
}

/// The directory of a closed database is sound, and it opens again with the model's contents.
pub fn opens_again(disk: Arc<MemoryDisk>, options: Options, model: &Model, context: &str) -> Database {
    is_sound(&disk, context);
    let db = Database::open_on(disk, options).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(&contents(&db, context), model, "{context}: opened again");
    db
}

pub fn is_sound(disk: &Arc<MemoryDisk>, context: &str) {
    let report = check(&(disk.clone() as Arc<dyn Disk>), MEMORY, 2).unwrap();
    assert!(report.is_sound(), "{context}: {report}");
}
