//! Random flows from several clients at a time. The outputs of each call that commits, and the contents of the tables
//! in the end, are those of a plain model that runs these calls one after the other, in the order of their places in
//! the log (I2).

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{
    Database, Durability, Engine, Flow, GroupCommitDesign, GroupCommitOptions, Lsn, Options, Planning,
    Result, Sent, TxOptions,
};

use super::databases::{LONG_WAIT, any_logging, contents, make, opens_again, procedures, values};
use super::errors::name_of;
use super::generate::{ARGUMENTS, Plan, any_arguments, any_plan_of_parts};
use super::ledger::{define_marks, mark};
use super::model::{Bounds, Model, Outcome};
use super::rules::{change_rules, route};
use super::shapes::with_many;
use super::tally::{IN_PARTS, Tally, rounds_until_met};
use super::{TABLES, many, of_threads, options, planned, visiting};
use crate::common::engines;

const CLIENTS: usize = 3;
/// The most calls of a client that are under way at the same time, and how often it sends that many.
const AT_A_TIME: usize = 8;
const TURNS: usize = 6;
const PLANS: u64 = 8;

/// The permitted errors of calls. Nothing else hinders them: deadlocks are run again, and no wait for a lock reaches
/// its limit.
const MAY_FAIL: [&str; 4] = ["duplicate keys", "aborted by bodies", "refused writes", "out of scope"];

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
        0 => [Engine::thin(), Engine::central(), of_threads(0)][random.below(3) as usize],
        1 | 2 => visiting(of_threads(threads)),
        _ => of_threads(threads),
    };
    let planning = if random.chance(1, 4) { Planning::Adaptive } else { Planning::Parallel };
    let engine = planned(engine, planning);
    let (checkpoint, logging) = any_logging(random, engines::threads(engine));
    Options {
        checkpoint,
        logging,
        checkpoint_interval: Duration::from_millis(20),
        durability: if random.chance(1, 2) { Durability::Disk } else { Durability::Memory },
        // If packets are few, most of them belong to commits that have their place, and linger.
        transactions_max: [4, 4, 4, 8][random.below(4) as usize],
        packets_max: if random.chance(1, 2) { 1 } else { 16_384 },
        group_commit: GroupCommitOptions {
            linger: random.chance(3, 4).then_some(Duration::from_millis(10)),
            ..GroupCommitDesign::LogServer.into()
        },
        lock_timeout: LONG_WAIT,
        log_wait_max: LONG_WAIT,
        ..options(engine)
    }
}

/// The plan's flow, which marks its call before the plan's phases or after them.
fn marked(plan: &Plan, is_before: bool) -> Flow {
    let mark = Flow::new().phase([mark()]);
    let (one, other) = if is_before { (mark, plan.flow()) } else { (plan.flow(), mark) };
    other.phases().iter().fold(one, |flow, phase| flow.phase(phase.iter().cloned()))
}

/// Sends calls, several at a time. Gives those that have committed.
fn client(
    db: &Database,
    random: &mut Random,
    numbers: &AtomicI32,
    (options, about): (&Options, &str),
) -> (Vec<Committed>, Tally) {
    let (mut committed, mut tally) = (Vec::new(), Tally::default());
    for _ in 0..TURNS {
        let sent = (0..AT_A_TIME).map(|_| {
            let (plan, arguments) = (random.below(PLANS) as usize, any_arguments(random));
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let values = values(&arguments, number);
            (plan, arguments, db.send_call_with(&TxOptions::default(), &format!("p{plan}"), &values))
        });
        for (plan, arguments, sent) in sent.collect::<Vec<(usize, _, Result<Sent>)>>() {
            match sent.and_then(Sent::wait_for_place) {
                Ok((outputs, ticket)) => {
                    committed.push(Committed { place: ticket.lsn(), plan, arguments, outputs });
                }
                Err(error) => {
                    let name = name_of(&error, options).filter(|name| MAY_FAIL.contains(name));
                    tally.note(name.unwrap_or_else(|| panic!("{about}: {error:?}")));
                }
            }
        }
    }
    (committed, tally)
}

fn round(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let rows = if random.chance(1, 4) { many::ROWS } else { 0 };
    let mut plans: Vec<_> = (0..PLANS).map(|_| any_plan_of_parts(&mut random)).collect();
    if rows > 0 {
        plans = plans.into_iter().map(|plan| with_many(plan, &mut random)).collect();
    }
    let mut options = any_options(&mut random);
    let about = &format!("RIALTO_SEED={seed}, {options:?}");
    let disk = MemoryDisk::new();
    let procedures = procedures(&plans, |nth, plan| marked(plan, nth % 2 == 0));
    let db = make(disk.clone(), &mut options, rows, procedures);
    db.transact(define_marks).unwrap();
    route(&db).unwrap();
    if rows > 0 {
        many::scan_escalates(&db, options.engine, about);
        tally.note("with scans that escalate");
    }
    let (numbers, over, changes) = (AtomicI32::new(0), AtomicBool::new(false), random.chance(1, 4));
    let ended: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (db, mut random, numbers, options) = (&db, random.fork(), &numbers, &options);
                scope.spawn(move || client(db, &mut random, numbers, (options, about)))
            })
            .collect();
        let (mut random, db, over) = (random.fork(), &db, &over);
        let rules = scope.spawn(move || {
            while changes && !over.load(Ordering::Relaxed) {
                change_rules(db, &TABLES, &mut random).unwrap_or_else(|error| panic!("{about}: {error}"));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let ended: Vec<_> = clients.into_iter().map(|it| it.join()).collect();
        over.store(true, Ordering::Relaxed);
        rules.join().unwrap();
        ended
    });
    let mut committed = Vec::new();
    for (of_client, of_tally) in ended.into_iter().map(|it| it.unwrap()) {
        committed.extend(of_client);
        tally.add_all(of_tally);
    }
    committed.sort_by_key(|call| call.place);
    tally.add("committed", committed.len() as u64);
    let mut model = Model { many: many::first_rows(rows), ..Model::default() };
    for call in &committed {
        let plan = &plans[call.plan];
        let at = || format!("{about}, at {:?}: {plan:?}, {:?}", call.place, call.arguments);
        match model.call(plan, &call.arguments, Bounds::of_write_sets(options.write_set_bytes_max)) {
            Some(Outcome::Given(outputs, _)) => assert_eq!(call.outputs, outputs, "{}", at()),
            other => panic!("{}: it has committed, where the model has {other:?}", at()),
        }
    }
    assert_eq!(contents(&db, about), model, "{about}");
    tally.note_parts(&db);
    db.close().unwrap();
    opens_again(disk, options, &model, about);
}

#[test]
fn calls_at_the_same_time_come_to_what_they_come_to_in_the_order_of_their_places() {
    let expected = ["committed", IN_PARTS, "with scans that escalate"];
    rounds_until_met("calls at the same time in the order of their places", &expected, round);
}
