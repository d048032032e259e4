//! Random flows from several clients at a time, beside handles, definitions and changes of routing rules, executors and
//! threads, at bounds of all kinds, with calls that time out, are cancelled, panic or lose their caller, and a close
//! during them. Whatever the outcomes, each row is found by each index, each call that commits has had all its effects,
//! once, and no other call has had any.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use parking_lot::Mutex;
use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{
    Action, Checkpointing, Database, Engine, Error, Flow, Options, Planning, Result, Sent, TxOptions,
};

use super::databases::{LOG, MEMORY, any_logging, any_plans, contents, is_sound, make, procedures, values};
use super::errors::name_of;
use super::generate::{ARGUMENTS, Plan, any_arguments};
use super::handles::{self, Cancels, End};
use super::ledger::{self, Answer, Ledger, SUMS, Transfer};
use super::rules::{change_rules, route};
use super::shapes::{with_many, with_texts_of};
use super::tally::{IN_PARTS, Tally, rounds_until_met};
use super::waits::Waits;
use super::{TABLES, at_bounds, many, of_threads, options, planned, visiting};
use crate::common::engines::threads;
use crate::common::until;

pub const PANIC: &str = "as the plan says";
/// A call with this value of this argument is to be cancelled.
const CANCELLED: (usize, i32) = (6, 3);

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A bound that the calls of a round reach, with long texts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tight {
    Memory,
    Log,
    WriteSet,
    Nothing,
}

fn any_options(random: &mut Random, tight: Tight) -> Options {
    let executors = of_threads(one_of(random, &[0, 1, 2, 4, 8]));
    let executors = planned(executors, one_of(random, &[Planning::Parallel, Planning::Adaptive]));
    let engine = one_of(random, &[executors, visiting(executors), Engine::thin(), Engine::central()]);
    let (mut checkpoint, logging) = any_logging(random, threads(engine));
    if tight == Tight::Log && random.chance(1, 2) {
        checkpoint = Checkpointing::None;
    }
    let log_waits = Duration::from_millis(one_of(random, &[2, 20]));
    Options {
        memory_bytes: if tight == Tight::Memory { at_bounds::any_memory(random) } else { MEMORY },
        log_bytes_max: if tight == Tight::Log { at_bounds::any_log(random) } else { LOG },
        log_wait_max: if tight == Tight::Log { log_waits } else { Options::default().log_wait_max },
        checkpoint,
        logging,
        checkpoint_interval: Duration::from_millis(one_of(random, &[1, 50])),
        write_set_bytes_max: if tight == Tight::WriteSet { 4_000 } else { 1 << 20 },
        transactions_max: one_of(random, &[4, 8, 1_024]),
        packets_max: one_of(random, &[1, 16_384]),
        lock_timeout: Duration::from_millis(one_of(random, &[3, 10_000, 10_000])),
        deadlock_retries_max: one_of(random, &[0, 2, 10]),
        ..options(engine)
    }
}

/// What bodies use of the round: the database, for bodies that close it, while the round has it; and calls that are to
/// be cancelled.
#[derive(Default)]
struct InBodies {
    db: Mutex<Option<Database>>,
    cancels: Cancels,
}

/// The flow with a transfer, and a last phase of two actions. One of these panics for some arguments, and for others
/// closes the database, for which a body must not wait.
fn flow(plan: &Plan, transfers: (bool, bool), round: &Arc<InBodies>) -> Flow {
    let last = |at: usize| {
        let round = round.clone();
        let action = Action::shared(SUMS, move |_, arguments, _| {
            let both: (i32, i32) = (arguments.get(4)?, arguments.get(5)?);
            assert!(at != 0 || both != (7, 7), "{PANIC}");
            // Others run between the parts and the commit.
            std::thread::sleep(Duration::from_micros(100));
            let db = round.db.lock().clone().filter(|_| both.0 == 6);
            let closed = db.map(Database::close);
            assert!(matches!(closed, None | Some(Err(Error::Nested))), "a body has closed: {closed:?}");
            Ok(())
        });
        action.by_argument(at)
    };
    let of_cancels = round.clone();
    let flow = ledger::flow(plan, transfers, move |tx, arguments| {
        if arguments.get::<i32>(CANCELLED.0)? == CANCELLED.1 {
            of_cancels.cancels.ask_for(tx);
        }
        Ok(())
    });
    flow.phase([last(0), last(1)])
}

/// What the threads of a round share.
struct Round<'a> {
    db: &'a Database,
    options: &'a Options,
    about: &'a str,
    in_bodies: &'a InBodies,
    /// One in ten calls: those that their clients forget. They may go on after all threads of the round have ended.
    forgotten: u64,
    ledger: Ledger,
    /// A wait that goes on while rules change.
    waits: Option<Waits>,
    tally: Mutex<Tally>,
    over: AtomicBool,
}

impl Round<'_> {
    fn note(&self, what: &'static str) {
        self.tally.lock().note(what);
    }

    /// Notes the outcome of a call, which may have been cancelled or not.
    fn note_call(
        &self,
        transfer: Transfer,
        outcome: std::thread::Result<Result<Vec<Value>>>,
        cancelled: bool,
    ) {
        let answer = match outcome {
            Ok(Ok(_)) => {
                self.note("committed");
                Answer::Committed
            }
            Ok(Err(error)) => self.failed(&error, cancelled),
            Err(panic) => {
                let is_planned = panic.downcast_ref::<String>().is_some_and(|it| it.contains(PANIC))
                    || panic.downcast_ref::<&str>().is_some_and(|it| it.contains(PANIC));
                assert!(is_planned, "{}: another panic", self.about);
                self.note("panics");
                Answer::Failed
            }
        };
        self.ledger.note(transfer, answer);
    }

    /// The answer of a transaction with a permitted failure.
    fn failed(&self, error: &Error, cancelled: bool) -> Answer {
        let name = match error {
            Error::Cancelled if cancelled => Some("cancelled"),
            // Handles that have ended keep their slots while bodies have leased the lock tables.
            Error::TooManyTransactions { limit: ..=8 } => Some("without contexts"),
            error => name_of(error, self.options),
        };
        self.note(name.unwrap_or_else(|| panic!("{}: {error:?}", self.about)));
        Answer::Failed
    }

    /// Sends calls, some with little time, and forgets some of them.
    fn client(&self, random: &mut Random, plans: u64) {
        for _ in 0..10 {
            let mut sent: Vec<(Transfer, bool, Sent)> = Vec::new();
            for _ in 0..8 {
                let timeout = random.chance(1, 6).then(|| Duration::from_micros(random.below(3_000)));
                let options = TxOptions { timeout, ..TxOptions::default() };
                let arguments: [i32; ARGUMENTS] = any_arguments(random);
                let transfer = self.ledger.transfer(arguments[0], arguments[2]);
                let cancelled = arguments[CANCELLED.0] == CANCELLED.1;
                let name = format!("p{}", random.below(plans));
                // Where calls run in place, a panic comes out here.
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    self.db.send_call_with(&options, &name, &values(&arguments, transfer.number))
                }));
                match outcome {
                    Ok(Ok(call)) => sent.push((transfer, cancelled, call)),
                    Ok(Err(error)) => self.note_call(transfer, Ok(Err(error)), cancelled),
                    Err(panic) => self.note_call(transfer, Err(panic), cancelled),
                }
            }
            for (transfer, cancelled, call) in sent {
                if random.chance(self.forgotten, 10) {
                    drop(call);
                    self.note("forgotten");
                    self.ledger.note(transfer, Answer::None);
                } else {
                    let outcome = catch_unwind(AssertUnwindSafe(|| call.wait()));
                    self.note_call(transfer, outcome, cancelled);
                }
            }
        }
    }

    /// Runs transactions of handles until the round is over.
    fn handles(&self, random: &mut Random) {
        while !self.over.load(Ordering::Relaxed) {
            let (transfer, mut cancelled) = (self.ledger.any_transfer(random), false);
            let cancels = &self.in_bodies.cancels;
            let answer = match handles::run(self.db, transfer, random, cancels, &mut cancelled, self.about) {
                Ok(End::Committed) => {
                    self.note("committed by handles");
                    Answer::Committed
                }
                Ok(End::Cancelled) => {
                    self.note("refused commits");
                    Answer::Failed
                }
                Ok(End::Dropped) => Answer::Failed,
                Err(error) => self.failed(&error, cancelled),
            };
            self.ledger.note(transfer, answer);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Changes rules, executors and threads until the round and its wait are over.
    fn rules(&self, random: &mut Random) {
        let waits = self.waits.as_ref();
        while !self.over.load(Ordering::Relaxed) || waits.is_some_and(|waits| !waits.is_over()) {
            let of_wait = waits.map_or(Ok(()), |waits| waits.change_rules(self.db, random));
            match of_wait.and_then(|()| change_rules(self.db, &[TABLES[0], TABLES[1], SUMS], random)) {
                Ok(()) => std::thread::sleep(Duration::from_micros(500)),
                Err(Error::Closed) => return,
                Err(error) => panic!("{}: rules: {error}", self.about),
            }
        }
    }

    /// Waits for a lock that is not released, in some rounds.
    fn wait(&self) {
        if let Some(waits) = &self.waits
            && waits.wait(self.db, self.about)
        {
            self.note("waits beside changes of rules");
        }
    }

    /// Cancels the calls that are to be cancelled, a little later.
    fn cancels(&self, random: &mut Random) {
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(random.below(300)));
            self.in_bodies.cancels.cancel_all();
        }
    }
}

fn round(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let mut plans = any_plans(&mut random);
    // Consecutive rounds have different ones.
    let tight = [Tight::Nothing, Tight::WriteSet, Tight::Memory, Tight::Log][(seed % 4) as usize];
    let texts = match tight {
        Tight::Memory | Tight::Log => Some(12_000),
        Tight::WriteSet => Some(1_500),
        Tight::Nothing => None,
    };
    if let Some(most) = texts {
        plans = plans.into_iter().map(|plan| with_texts_of(plan, most, &mut random)).collect();
    }
    let rows = if tight == Tight::Nothing && random.chance(1, 2) { many::ROWS } else { 0 };
    if rows > 0 {
        plans = plans.into_iter().map(|plan| with_many(plan, &mut random)).collect();
    }
    let mut options = any_options(&mut random, tight);
    let about = &format!("RIALTO_SEED={seed}, {options:?}");
    let (disk, in_bodies) = (MemoryDisk::new(), Arc::new(InBodies::default()));
    let procedures = procedures(&plans, |nth, plan| flow(plan, (nth % 2 == 0, nth % 4 < 2), &in_bodies));
    let db = make(disk.clone(), &mut options, rows, procedures);
    ledger::define(&db);
    route(&db).unwrap();
    match tight {
        Tight::Memory => at_bounds::fill_memory(&db, &mut random),
        Tight::Log => at_bounds::fill_log(&db, &mut random),
        _ => {}
    }
    *in_bodies.db.lock() = Some(db.clone());
    let (closes, forgotten) = (random.chance(1, 4), if random.chance(1, 3) { 3 } else { 0 });
    let waits = !closes && options.engine.is_data_oriented();
    let round = Round {
        db: &db,
        options: &options,
        about,
        in_bodies: &in_bodies,
        forgotten,
        ledger: Ledger::default(),
        waits: waits.then(|| Waits::new(&db)).flatten(),
        tally: Mutex::default(),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let round = &round;
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (round, mut random, plans) = (round, random.fork(), plans.len() as u64);
                scope.spawn(move || round.client(&mut random, plans))
            })
            .collect();
        let [mut of_handles, mut of_rules, mut of_cancels] = [0; 3].map(|_| random.fork());
        let beside = [
            scope.spawn(move || round.handles(&mut of_handles)),
            scope.spawn(move || round.rules(&mut of_rules)),
            scope.spawn(move || round.cancels(&mut of_cancels)),
            scope.spawn(move || round.wait()),
        ];
        if closes {
            std::thread::sleep(Duration::from_millis(random.below(40)));
            db.clone().close().unwrap_or_else(|error| panic!("{about}: close: {error}"));
        }
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        round.over.store(true, Ordering::Relaxed);
        beside.into_iter().for_each(|beside| beside.join().unwrap());
        assert!(ended.iter().all(|ended| ended.is_ok()), "{about}: a client has failed");
    });
    let Round { ledger, tally: of_round, .. } = round;
    tally.add_all(of_round.into_inner());
    tally.note_parts(&db);
    let mut before = None;
    if !closes && forgotten == 0 {
        until("all locks to be released", || db.lock_waits().is_empty());
        ledger.agrees(&db, about);
        before = Some(contents(&db, about));
    }
    db.clone().close().unwrap();
    *in_bodies.db.lock() = None;
    drop(db);
    is_sound(&disk, about);
    let db = Database::open_on(disk, Options { lock_timeout: Duration::from_secs(10), ..options });
    let db = db.unwrap_or_else(|error| panic!("{about}: {error}"));
    ledger.agrees(&db, &format!("opened again, {about}"));
    let after = contents(&db, about);
    if let Some(before) = before {
        assert_eq!(after, before, "{about}: opened again");
    }
}

/// Does not print panics that a plan asks for.
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
    let expected = [
        "committed",
        "committed by handles",
        "without memory",
        "without room in the log",
        "write sets too large",
        "timed out",
        "cancelled",
        "refused commits",
        "panics",
        "after a close",
        "waits beside changes of rules",
        IN_PARTS,
    ];
    rounds_until_met("calls at the same time on all engines", &expected, round);
}
