//! Random flows from several clients at a time: what each call that commits gives, and what the tables hold in the end, is what a plain
//! model comes to that runs these calls one after the other, in the order of their places in the log (I2).

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Database, Durability, Error, Flow, GroupCommitDesign, GroupCommitOptions, LockForm, Lsn, Options,
    Planning, Procedure, Result, Sent, TableDef, TxOptions,
};

use super::generate::{ARGUMENTS, Plan, any_arguments, any_plan_of_parts};
use super::model::{Model, Outcome};
use super::{TABLES, contents, define, options, route};
use crate::common::seeds::for_a_while;

const CLIENTS: usize = 3;
/// Calls of a client that are on their way at the same time, and how often it sends so many.
const AT_A_TIME: usize = 8;
const TURNS: usize = 6;
const PLANS: u64 = 8;
/// A row for each call that has committed: so each takes a place of its own.
const MARKS: &str = "marks";

/// A call that has committed.
struct Committed {
    place: Lsn,
    plan: usize,
    arguments: [i32; ARGUMENTS],
    outputs: Vec<Value>,
}

fn any_options(random: &mut Random) -> Options {
    let threads = [2, 3, 4, 4, 8][random.below(5) as usize];
    let engine = match random.below(8) {
        0 => (LockForm::ALL[random.below(3) as usize], 0),
        _ => (LockForm::Local, threads),
    };
    Options {
        planning: if random.chance(1, 4) { Planning::Adaptive } else { Planning::Parallel },
        durability: if random.chance(1, 2) { Durability::Disk } else { Durability::Memory },
        // Of few packets most are of commits that have their place, and linger.
        transactions_max: [4, 4, 4, 8][random.below(4) as usize],
        packets_max: if random.chance(1, 2) { 1 } else { 16_384 },
        group_commit: GroupCommitOptions {
            linger: random.chance(3, 4).then_some(Duration::from_millis(10)),
            ..GroupCommitDesign::LogServer.into()
        },
        lock_timeout: Duration::from_secs(10),
        ..options(engine)
    }
}

/// The plan's flow, which marks its call before the plan's phases or behind them.
fn marked(plan: &Plan, is_before: bool) -> Flow {
    let mark = Action::exclusive(MARKS, |tx, arguments, _| {
        tx.insert(arguments.table()?, &[Value::Int4(arguments.get(ARGUMENTS)?)])
    });
    let mark = Flow::new().phase([mark.by_argument(ARGUMENTS)]);
    let (one, other) = if is_before { (mark, plan.flow()) } else { (plan.flow(), mark) };
    other.phases().iter().fold(one, |flow, phase| flow.phase(phase.iter().cloned()))
}

fn database(options: Options, plans: &[Plan]) -> Database {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    db.transact(|tx| {
        TABLES.iter().try_for_each(|table| define(tx, table))?;
        let id = vec![Column::new("id", ColumnType::Int4)];
        tx.create_table(&TableDef::new(MARKS, id).with_primary_key(&["id"])).map(drop)
    })
    .unwrap();
    route(&db).unwrap();
    for (nth, plan) in plans.iter().enumerate() {
        let arguments = [ColumnType::Int4; ARGUMENTS + 1];
        db.register(Procedure::new(format!("p{nth}"), arguments, marked(plan, nth % 2 == 0))).unwrap();
    }
    db
}

/// Sends calls, several at a time. Those that have committed.
fn client(db: &Database, random: &mut Random, numbers: &AtomicI32, about: &str) -> Vec<Committed> {
    let mut committed = Vec::new();
    for _ in 0..TURNS {
        let sent = (0..AT_A_TIME).map(|_| {
            let (plan, arguments) = (random.below(PLANS) as usize, any_arguments(random));
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let values: Vec<_> = arguments.iter().copied().chain([number]).map(Value::Int4).collect();
            (plan, arguments, db.send_call_with(&TxOptions::default(), &format!("p{plan}"), &values))
        });
        for (plan, arguments, sent) in sent.collect::<Vec<(usize, _, Result<Sent>)>>() {
            match sent.and_then(Sent::wait_for_place) {
                Ok((outputs, ticket)) => {
                    committed.push(Committed { place: ticket.lsn(), plan, arguments, outputs });
                }
                Err(
                    Error::DuplicateKey { .. }
                    | Error::Aborted { .. }
                    | Error::ReadOnly
                    | Error::LockTimeout { .. }
                    | Error::Deadlock { .. },
                ) => {}
                Err(error) => panic!("{about}: {error:?}"),
            }
        }
    }
    committed
}

fn round(seed: u64, tally: &mut (usize, usize)) {
    let mut random = Random::new(seed);
    let plans: Vec<_> = (0..PLANS).map(|_| any_plan_of_parts(&mut random)).collect();
    let options = any_options(&mut random);
    let about = &format!("RIALTO_SEED={seed}, {options:?}");
    let db = database(options, &plans);
    let numbers = AtomicI32::new(0);
    let mut committed: Vec<Committed> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (db, mut random, numbers) = (&db, random.fork(), &numbers);
                scope.spawn(move || client(db, &mut random, numbers, about))
            })
            .collect();
        clients.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    committed.sort_by_key(|call| call.place);
    let mut model = Model::default();
    for call in &committed {
        let plan = &plans[call.plan];
        let at = || format!("{about}, at {:?}: {plan:?}, {:?}", call.place, call.arguments);
        match model.call(plan, &call.arguments) {
            Some(Outcome::Given(outputs, _)) => assert_eq!(call.outputs, outputs, "{}", at()),
            other => panic!("{}: it has committed, where the model has {other:?}", at()),
        }
    }
    assert_eq!(contents(&db, about), model, "{about}");
    db.close().unwrap();
    let failed = numbers.into_inner() as usize - committed.len();
    *tally = (tally.0 + committed.len(), tally.1 + failed);
}

#[test]
fn calls_at_the_same_time_come_to_what_they_come_to_in_the_order_of_their_places() {
    let mut tally = (0, 0);
    let (first, rounds) = for_a_while(|seed| round(seed, &mut tally));
    let (committed, failed) = tally;
    println!(
        "tally: calls at the same time in the order of their places, {rounds} rounds, {committed} committed, {failed} failed, \
         RIALTO_SEED={first}"
    );
}
