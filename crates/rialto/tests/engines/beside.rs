//! Random flows from several clients at a time, beside handles, definitions and changes of routing rules, executors and threads, at
//! bounds of all kinds, with calls that time out, panic or lose their caller, and a close amid them: whatever they come to, each row
//! is found by each index, and each call that commits has done all that it does, once, and no other call anything.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use rialto::io::{Disk, MemoryDisk, Random};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Error, Flow, LockForm, Options, Planning, Result, Scan, Sent, TableDef,
    TxOptions,
};

use super::generate::{ARGUMENTS, Plan, any_arguments};
use super::{MEMORY, SUMS, TABLES, any_plans, contents, define, options, procedures, route};
use crate::common::seeds::for_a_while;
use crate::common::until;

const ROWS: i32 = 8;
pub const PANIC: &str = "as the plan says";

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

fn any_options(random: &mut Random) -> Options {
    let locks = one_of(random, &[LockForm::Local, LockForm::Local, LockForm::Thin, LockForm::Central]);
    let threads = if locks == LockForm::Local { one_of(random, &[0, 1, 2, 4, 8]) } else { 0 };
    let checkpoint = match random.chance(1, 3) {
        true => Checkpointing::None,
        false => one_of(random, &Checkpointing::ALL),
    };
    Options {
        checkpoint,
        checkpoint_interval: Duration::from_millis(one_of(random, &[1, 50])),
        planning: one_of(random, &[Planning::Parallel, Planning::Adaptive]),
        write_set_bytes_max: one_of(random, &[4_000, 1 << 20]),
        transactions_max: one_of(random, &[4, 8, 1_024]),
        packets_max: one_of(random, &[1, 16_384]),
        log_bytes_max: 16 << 20,
        lock_timeout: Duration::from_millis(one_of(random, &[3, 10_000, 10_000])),
        deadlock_retries_max: one_of(random, &[2, 100_000]),
        executors_max: 16,
        executor_threads_max: if threads > 0 { 8 } else { 0 },
        ..options((locks, threads))
    }
}

/// The table of [`SUMS`].
fn define_sums(db: &Database) {
    let columns = ["id", "amount", "calls"].map(|name| match name {
        "id" => Column::new(name, ColumnType::Int4),
        _ => Column::new(name, ColumnType::Int8),
    });
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new(SUMS, columns.to_vec()).with_primary_key(&["id"]))?;
        (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int8(0), Value::Int8(0)]))
    })
    .unwrap();
}

/// The amounts of [`SUMS`], and the calls, added up.
fn sums(db: &Database) -> (i64, i64) {
    let (table, mut sums) = (db.table(SUMS).unwrap(), (0, 0));
    db.transact(|tx| {
        sums = (0, 0);
        tx.scan(&table, &Scan::all(), |_, row| {
            sums = (sums.0 + row.get_i64(1)?, sums.1 + row.get_i64(2)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    sums
}

/// The database, for bodies that close it, while the round has it.
type Closes = Arc<Mutex<Option<Database>>>;

/// The flow with sums, and a last phase of two actions, one of which panics for some arguments, and for others closes the database,
/// which a body must not wait for.
fn flow(plan: &Plan, closes: &Closes) -> Flow {
    let last = |at: usize| {
        let closes = closes.clone();
        let action = Action::shared(SUMS, move |_, arguments, _| {
            let both: (i32, i32) = (arguments.get(4)?, arguments.get(5)?);
            assert!(at != 0 || both != (7, 7), "{PANIC}");
            // Others come between what the parts have done and the commit.
            std::thread::sleep(Duration::from_micros(100));
            let db = closes.lock().unwrap().clone().filter(|_| both == (6, 6));
            let closed = db.map(Database::close);
            assert!(matches!(closed, None | Some(Err(Error::Nested))), "a body has closed: {closed:?}");
            Ok(())
        });
        action.by_argument(at)
    };
    plan.flow_with_sums().phase([last(0), last(1)])
}

/// Calls whose outcome is known, and those of which it is not.
#[derive(Default)]
struct Calls {
    committed: AtomicI64,
    unknown: AtomicI64,
    failed: AtomicI64,
}

impl Calls {
    fn note(&self, outcome: std::thread::Result<Result<Vec<Value>>>, about: &str) {
        let count = match outcome {
            Ok(Ok(_)) => &self.committed,
            Ok(Err(Error::OutcomeUnknown { .. })) => &self.unknown,
            Ok(Err(
                Error::DuplicateKey { .. }
                | Error::Aborted { .. }
                | Error::ReadOnly
                | Error::WriteSetTooLarge { .. }
                | Error::Timeout { .. }
                | Error::LockTimeout { .. }
                | Error::Deadlock { .. }
                | Error::MixedColours
                | Error::NoSuchTable { .. }
                | Error::NoSuchIndex { .. }
                // Handles that have ended keep their slots while bodies have the lock tables.
                | Error::TooManyTransactions { limit: ..=8 }
                | Error::Closed,
            )) => &self.failed,
            Ok(Err(error)) => panic!("{about}: {error:?}"),
            Err(panic) => {
                let is_planned = panic.downcast_ref::<String>().is_some_and(|it| it.contains(PANIC))
                    || panic.downcast_ref::<&str>().is_some_and(|it| it.contains(PANIC));
                assert!(is_planned, "{about}: another panic");
                &self.failed
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends calls, some with little time, and forgets some of them.
fn client(db: &Database, random: &mut Random, plans: u64, calls: &Calls, about: &str) {
    for _ in 0..10 {
        let mut sent: Vec<Sent> = Vec::new();
        for _ in 0..8 {
            let timeout = random.chance(1, 6).then(|| Duration::from_micros(random.below(3_000)));
            let options = TxOptions { timeout, ..TxOptions::default() };
            let arguments: [i32; ARGUMENTS] = any_arguments(random);
            let name = format!("p{}", random.below(plans));
            // Where calls run in place, a panic comes out here.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                db.send_call_with(&options, &name, &arguments.map(Value::Int4))
            }));
            match outcome {
                Ok(Ok(call)) => sent.push(call),
                Ok(Err(error)) => calls.note(Ok(Err(error)), about),
                Err(panic) => calls.note(Err(panic), about),
            }
        }
        for call in sent {
            if random.chance(1, 10) {
                drop(call);
                calls.unknown.fetch_add(1, Ordering::Relaxed);
            } else {
                calls.note(catch_unwind(AssertUnwindSafe(|| call.wait())), about);
            }
        }
    }
}

/// A transaction of a handle, that moves an amount and changes other rows or a definition, and may be cancelled, or dropped.
fn handle(db: &Database, random: &mut Random) -> Result<()> {
    let mut tx = db.begin()?;
    let canceller = tx.canceller();
    let table = tx.table(SUMS)?;
    let (from, to) = (random.below(ROWS as u64) as i32, random.below(ROWS as u64) as i32);
    tx.modify(&table, from, |row| row.add_i64(1, -1).map(drop))?;
    std::thread::sleep(Duration::from_micros(random.below(300)));
    if random.chance(1, 4) {
        match tx.drop_index("sums_more") {
            Err(Error::NoSuchIndex { .. }) => tx.create_index(SUMS, "sums_more", &["amount"], false)?,
            dropped => dropped?,
        }
    }
    if random.chance(1, 3) {
        let other = tx.table(one_of(random, &TABLES))?;
        let savepoint = tx.savepoint();
        let (a, b) = (random.below(8) as i32, random.below(3) as i32);
        let row = [a.into(), b.into(), Value::Int4(b), a.into(), Value::Text("of a handle".to_owned())];
        match tx.insert(&other, &row) {
            Err(Error::DuplicateKey { .. }) => {
                tx.delete(&other, (a, b))?;
            }
            inserted => inserted?,
        }
        if random.chance(1, 2) {
            tx.rollback_to(&savepoint)?;
        }
    }
    if random.chance(1, 8) {
        canceller.cancel();
    }
    // The index may have come or gone since.
    let table = tx.table(SUMS)?;
    tx.modify(&table, to, |row| row.add_i64(1, 1).map(drop))?;
    if random.chance(3, 4) { tx.commit() } else { Ok(()) }
}

/// Changes the rules, and how many executors and threads there are.
fn change_rules(db: &Database, random: &mut Random) -> Result<()> {
    match route(db) {
        // A client has made the table anew, or dropped an index.
        Ok(()) | Err(Error::NoSuchTable { .. } | Error::BadDefinition { .. }) => {}
        Err(error) => return Err(error),
    }
    if db.executors() == 0 {
        return Ok(());
    }
    match random.below(3) {
        0 => db.set_routing_by_hash(SUMS, WhichIndex::Primary, 1)?,
        _ => {
            let bounds: Vec<_> = (1..ROWS).filter(|_| random.chance(1, 2)).collect();
            let bounds: Vec<_> = bounds.into_iter().map(|id| vec![Value::Int4(id)]).collect();
            db.set_routing(SUMS, WhichIndex::Primary, &bounds)?;
        }
    }
    if db.executor_threads() > 0 && random.chance(1, 2) {
        let threads = 1 + random.below(8) as usize;
        db.set_executor_threads(threads..=threads)?;
    }
    if random.chance(1, 2) {
        let executors = 1 + random.below(16) as usize;
        db.set_executors(executors..=executors)?;
    }
    Ok(())
}

fn round(seed: u64, tally: &mut (i64, i64, i64)) {
    let mut random = Random::new(seed);
    let (plans, options) = (any_plans(&mut random), any_options(&mut random));
    let about = &format!("RIALTO_SEED={seed}, {options:?}");
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    for table in TABLES {
        db.transact(|tx| define(tx, table)).unwrap();
    }
    define_sums(&db);
    let in_bodies = Closes::default();
    procedures(&plans, |plan| flow(plan, &in_bodies)).for_each(|procedure| db.register(procedure).unwrap());
    *in_bodies.lock().unwrap() = Some(db.clone());
    let (calls, over, closes) = (Calls::default(), AtomicBool::new(false), random.chance(1, 4));
    std::thread::scope(|scope| {
        let (calls, over) = (&calls, &over);
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (db, mut random, plans) = (db.clone(), random.fork(), plans.len() as u64);
                scope.spawn(move || client(&db, &mut random, plans, calls, about))
            })
            .collect();
        let (of_handles, mut random_of_handles) = (db.clone(), random.fork());
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match handle(&of_handles, &mut random_of_handles) {
                    Err(Error::Closed) => return,
                    // What a call may fail with, a handle may.
                    Ok(()) | Err(_) => std::thread::sleep(Duration::from_micros(200)),
                }
            }
        });
        let (of_rules, mut random_of_rules) = (db.clone(), random.fork());
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match change_rules(&of_rules, &mut random_of_rules) {
                    Ok(()) => std::thread::sleep(Duration::from_micros(500)),
                    Err(Error::Closed) => return,
                    Err(error) => panic!("{about}: rules: {error}"),
                }
            }
        });
        if closes {
            std::thread::sleep(Duration::from_millis(random.below(40)));
            db.clone().close().unwrap_or_else(|error| panic!("{about}: close: {error}"));
        }
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|ended| ended.is_ok()), "{about}: a client has failed");
    });
    let mut before = None;
    if !closes {
        until("all locks to be released", || db.lock_waits().is_empty());
        before = Some((sums(&db), contents(&db, about)));
        db.clone().close().unwrap();
    }
    *in_bodies.lock().unwrap() = None;
    drop(db);
    let report = check(&(disk.clone() as std::sync::Arc<dyn Disk>), MEMORY, 2).unwrap();
    assert!(report.is_sound(), "{about}: {report}");
    let db = Database::open_on(disk, Options { lock_timeout: Duration::from_secs(10), ..options });
    let db = db.unwrap_or_else(|error| panic!("{about}: {error}"));
    let after = (sums(&db), contents(&db, about));
    if let Some(before) = before {
        assert_eq!(after, before, "{about}: opened again");
    }
    let (amount, counted) = after.0;
    let (committed, unknown) = (calls.committed.into_inner(), calls.unknown.into_inner());
    assert_eq!(amount, 0, "{about}: {committed} calls have committed, of {unknown} it is not known");
    assert!(
        (committed..=committed + unknown).contains(&counted),
        "{about}: {committed}, {unknown}: {counted}"
    );
    *tally = (tally.0 + committed, tally.1 + calls.failed.into_inner(), tally.2 + unknown);
}

/// Prints no panic that a plan asks for.
pub fn keep_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let printed = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.to_string().contains(PANIC) {
                printed(panic);
            }
        }));
    });
}

#[test]
fn rows_add_up_and_indexes_agree_after_calls_at_the_same_time() {
    keep_quiet();
    let mut tally = (0, 0, 0);
    let (first, rounds) = for_a_while(|seed| round(seed, &mut tally));
    let (committed, failed, unknown) = tally;
    println!(
        "tally: calls at the same time on all engines, {rounds} rounds, {committed} committed, {failed} failed, {unknown} unknown, \
         RIALTO_SEED={first}"
    );
}
