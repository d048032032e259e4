//! Databases on a virtual clock ([`Options::clock`]): a wait for a time takes exactly that long on it, and no time of
//! the machine's.

use std::sync::Arc;
use std::time::Duration;

use crate::common::turns::Turns;
use crate::common::{engines, in_time, quiet};
use rialto::io::{Clock, MemoryDisk, VirtualClock};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Background, Checkpointing, Database, Durability, Engine, Error, GroupCommitDesign,
    GroupCommitOptions, Options, Procedure, Table, TableDef, Transaction, TxOptions,
};

const LONG: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const INSTANT: Duration = Duration::from_nanos(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn options(clock: &Arc<VirtualClock>) -> Options {
    Options {
        background: Background::Driven,
        clock: clock.clone().into(),
        memory_bytes: 64 << 20,
        checkpoint_interval: HOUR,
        ..Options::default()
    }
}

fn open(options: Options) -> (Database, Table) {
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let table = quiet::numbers(&db);
    (db, table)
}

fn set(tx: &mut Transaction, table: &Table, id: i32) -> Result<(), Error> {
    tx.update(table, id, &[(1, Value::Int4(1))]).map(drop)
}

/// How long it takes on the clock.
fn time<T>(clock: &VirtualClock, run: impl FnOnce() -> T) -> (T, Duration) {
    let before = clock.now();
    (run(), clock.now() - before)
}

const ENGINES: [Engine; 3] = [Engine::thin(), Engine::central(), engines::of(4, 0)];

#[test]
fn waits_for_a_lock_end_at_their_time_out_and_at_the_deadline() {
    in_time(LONG, || {
        for engine in ENGINES {
            let clock = Arc::new(VirtualClock::new());
            let (db, table) = open(Options { engine, lock_timeout: ms(7_301), ..options(&clock) });
            let mut holder = db.begin().unwrap();
            set(&mut holder, &table, 5).unwrap();
            let (ended, took) = time(&clock, || db.transact(|tx| set(tx, &table, 5)));
            assert!(
                matches!(ended, Err(Error::LockTimeout { waited_ms: 7_301, .. })),
                "{engine:?}: {ended:?}"
            );
            assert_eq!(took, ms(7_301), "{engine:?}");
            let patient =
                TxOptions { lock_timeout: Some(10 * HOUR), timeout: Some(HOUR), ..TxOptions::default() };
            let (ended, took) = time(&clock, || db.transact_with(&patient, |tx| set(tx, &table, 5)));
            assert_eq!(ended, Err(Error::Timeout { limit_ms: 3_600_000 }), "{engine:?}");
            assert_eq!(took, HOUR, "{engine:?}");
            holder.commit().unwrap();
            let (ended, took) = time(&clock, || db.transact(|tx| set(tx, &table, 5)));
            assert_eq!((ended, took), (Ok(()), Duration::ZERO), "{engine:?}");
        }
    });
}

#[test]
fn a_transaction_comes_to_its_deadline_when_the_clock_does() {
    let clock = Arc::new(VirtualClock::new());
    let (db, table) = open(options(&clock));
    let within = TxOptions { timeout: Some(HOUR), ..TxOptions::default() };
    let mut tx = db.begin_with(&within).unwrap();
    clock.advance(HOUR);
    set(&mut tx, &table, 5).unwrap();
    clock.advance(INSTANT);
    assert_eq!(set(&mut tx, &table, 6), Err(Error::Timeout { limit_ms: 3_600_000 }));
}

/// The linger of a lone committer in each design: none where the first on the queue writes at once, otherwise its
/// setting.
#[test]
fn a_commit_lingers_as_long_as_its_design_says() {
    in_time(LONG, || {
        for design in GroupCommitDesign::ALL {
            let stalls = |stall| GroupCommitOptions { stall: Some(stall), ..design.into() };
            let waits = |wait| GroupCommitOptions { willing_to_wait: Some(wait), ..design.into() };
            let (group_commit, lingers) = match design {
                GroupCommitDesign::HiberStall => (stalls(ms(20_000)), ms(20_000)),
                GroupCommitDesign::Hiber => {
                    (GroupCommitOptions { wake_delay: Some(ms(8_000)), ..design.into() }, ms(8_000))
                }
                // It waits as long as a log write has taken; here that is no time, which counts as the shortest.
                GroupCommitDesign::WillingToWait | GroupCommitDesign::HiberWillingToWait => {
                    (waits(ms(9_000)), ms(9_000) - INSTANT)
                }
                _ => (design.into(), Duration::ZERO),
            };
            let clock = Arc::new(VirtualClock::new());
            let (db, table) = open(Options { group_commit, ..options(&clock) });
            for id in 0..5 {
                let (done, took) = time(&clock, || db.transact(|tx| set(tx, &table, id)));
                assert_eq!((done, took), (Ok(()), lingers), "{design}");
            }
            if design == GroupCommitDesign::HiberStall {
                let shorter = TxOptions { commit_stall: Some(ms(3)), ..TxOptions::default() };
                let commit = || db.transact_with(&shorter, |tx| set(tx, &table, 5));
                assert_eq!(time(&clock, commit), (Ok(()), ms(3)), "{design}");
            }
        }
    });
}

#[test]
fn a_transaction_waits_for_room_in_the_log_as_long_as_it_may() {
    in_time(LONG, || {
        let clock = Arc::new(VirtualClock::new());
        let few = Options {
            checkpoint: Checkpointing::None,
            log_bytes_max: 1 << 20,
            log_wait_max: HOUR / 60,
            durability: Durability::Memory,
            ..options(&clock)
        };
        let db = Database::open_on(MemoryDisk::new(), few).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let definition = TableDef::new("things", columns).with_primary_key(&["id"]);
        let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
        let insert = |id| db.transact(|tx| tx.insert(&table, &quiet::thing(id, 3_000)));
        let (full, took) = time(&clock, || (0..3_000).find_map(|id| insert(id).err()).unwrap());
        assert!(matches!(full, Error::LogFull { .. }), "{full}");
        assert_eq!(took, HOUR / 60);
    });
}

#[test]
fn a_checkpoint_is_due_when_its_interval_is_over() {
    let clock = Arc::new(VirtualClock::new());
    let (db, table) = open(options(&clock));
    let drive = || {
        db.transact(|tx| set(tx, &table, 5)).unwrap();
        db.drive().unwrap();
        db.metrics().checkpoints.completed
    };
    for made in 0..3 {
        clock.advance(HOUR - INSTANT);
        assert_eq!(drive(), made);
        clock.advance(INSTANT);
        assert_eq!(drive(), made + 1);
    }
}

#[test]
fn a_hundred_hours_pass_at_once() {
    in_time(LONG, || {
        let clock = Arc::new(VirtualClock::new());
        let (db, table) = open(options(&clock));
        let mut holder = db.begin().unwrap();
        set(&mut holder, &table, 1).unwrap();
        for hour in 1..=100 {
            let lock_timeout = TxOptions { lock_timeout: Some(HOUR), ..TxOptions::default() };
            let ended = db.transact_with(&lock_timeout, |tx| set(tx, &table, 1));
            assert!(matches!(ended, Err(Error::LockTimeout { waited_ms: 3_600_000, .. })), "{ended:?}");
            assert_eq!(clock.now(), hour * HOUR);
            db.transact(|tx| set(tx, &table, 5)).unwrap();
            db.drive().unwrap();
            assert_eq!(db.metrics().checkpoints.completed, u64::from(hour));
        }
        holder.commit().unwrap();
        db.close().unwrap();
    });
}

#[test]
fn a_clock_that_is_moved_by_hand_ends_waits_of_other_threads() {
    in_time(LONG, || {
        for engine in ENGINES {
            let clock = Arc::new(VirtualClock::moved_by_hand());
            let (db, table) = open(Options { engine, lock_timeout: HOUR, ..options(&clock) });
            let mut holder = db.begin().unwrap();
            set(&mut holder, &table, 5).unwrap();
            let waits = || db.lock_waits().len();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| db.transact(|tx| set(tx, &table, 5)));
                while waits() == 0 {
                    std::thread::yield_now();
                }
                clock.advance(HOUR - INSTANT);
                // Long enough for it to check again.
                std::thread::sleep(ms(10));
                assert!(!waiter.is_finished(), "{engine:?}");
                clock.advance(INSTANT);
                let ended = waiter.join().unwrap();
                assert!(
                    matches!(ended, Err(Error::LockTimeout { waited_ms: 3_600_000, .. })),
                    "{engine:?}: {ended:?}"
                );
            });
            // And a wait that another thread ends.
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| db.transact(|tx| set(tx, &table, 5)));
                while waits() == 0 {
                    std::thread::yield_now();
                }
                holder.commit().unwrap();
                assert_eq!(waiter.join().unwrap(), Ok(()), "{engine:?}");
            });
            assert_eq!(clock.now(), HOUR, "{engine:?}");
        }
    });
}

#[test]
fn a_virtual_clock_is_for_databases_without_threads() {
    let threads = Options { background: Background::Threads, ..options(&Arc::default()) };
    let refused = Database::open_on(MemoryDisk::new(), threads).unwrap_err().to_string();
    assert!(refused.contains("clock is a virtual one with background Threads"), "{refused}");
}

/// Three threads take turns. One runs a call, in place, whose body rests by the clock and has leased its executors
/// meanwhile; two run `what` beside it, which has to wait for these lock tables. Fails if `what` holds a latch that is
/// waited for when it gives up its turn.
fn beside_a_body_that_rests(what: fn(&Database, &VirtualClock)) {
    in_time(LONG, move || {
        // In some of these orders the body runs first.
        for seed in 0..12 {
            let (turns, clock) = Turns::new(seed);
            let (db, _) = open(Options { engine: engines::of(4, 0), ..options(&clock) });
            let by = Clock::from(clock.clone());
            let action = Action::exclusive("t", move |tx, arguments, _| {
                tx.update(arguments.table()?, arguments.get::<i32>(0)?, &[(1, Value::Int4(1))])?;
                by.sleep(ms(200));
                Ok(())
            });
            db.register(Procedure::new("rests", [ColumnType::Int4], action.by_argument(0))).unwrap();
            let calls = || assert_eq!(db.call("rests", &[Value::Int4(5)]), Ok(vec![]));
            let does = || what(&db, &clock);
            turns.run(&clock, vec![Box::new(calls), Box::new(does), Box::new(does)]);
        }
    });
}

#[test]
fn threads_that_take_turns_change_routing_rules_beside_a_body_that_rests() {
    beside_a_body_that_rests(|db, _| {
        db.set_routing("t", WhichIndex::Primary, &[vec![Value::Int4(3)]]).unwrap();
    });
}

#[test]
fn threads_that_take_turns_drive_a_database_beside_a_body_that_rests() {
    beside_a_body_that_rests(|db, clock| {
        // The resource manager is due.
        clock.advance(ms(60));
        db.drive().unwrap();
    });
}

#[test]
fn a_clock_that_comes_to_its_end_does_not_begin_anew() {
    let clock = VirtualClock::new();
    for _ in 0..8 {
        let before = clock.now();
        clock.advance(Duration::MAX);
        assert!(clock.now() >= before, "{:?}, after {before:?}", clock.now());
    }
}
