//! Calls that executor threads run (`Executors::threads`) beside changes of definitions: parts of a phase, each with a
//! context of its own, are one transaction with the others until it ends.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use crate::common::{in_time, until};
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Checkpointing, Database, Durability, Error, Executors, Flow, LockPolicy, Options,
    Outputs, Procedure, Result, Scan, Table, TableDef, Transaction, TxOptions,
};

/// The limit of each wait in these tests.
const LIMIT: Duration = Duration::from_secs(120);
/// One key in each of the datasets of `left`.
const KEYS: [i32; 5] = [0, 2, 4, 6, 8];

/// Two tables. The keys of `left` are divided among all executors, and so among both threads.
fn database(threads: usize) -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        engine: Executors::of(KEYS.len(), threads).handing_over().into(),
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    for name in ["left", "right"] {
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
        db.transact(|tx| tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"])))
            .unwrap();
    }
    let bounds = KEYS[1..].iter().map(|&bound| vec![Value::Int4(bound)]).collect::<Vec<_>>();
    db.set_routing("left", WhichIndex::Primary, &bounds).unwrap();
    db
}

/// Gives a row of the action's table the number in argument 2, and tells on which thread.
fn set<const KEY: usize>(
    tx: &mut Transaction,
    arguments: &Arguments<'_>,
    outputs: &mut Outputs,
) -> Result<()> {
    let (table, key, n): (_, i32, i32) = (arguments.table()?, arguments.get(KEY)?, arguments.get(2)?);
    if !tx.update(table, key, &[(1, Value::Int4(n))])? {
        tx.insert(table, &[Value::Int4(key), Value::Int4(n)])?;
    }
    outputs.push(Value::Text(std::thread::current().name().unwrap_or_default().to_owned()));
    Ok(())
}

/// Both tables in one phase.
fn both() -> [Action; 2] {
    [Action::exclusive("left", set::<0>).by_argument(0), Action::exclusive("right", set::<1>).by_argument(1)]
}

fn ints<const N: usize>(values: [i32; N]) -> [Value; N] {
    values.map(Value::Int4)
}

/// Whether the actions of a call were run by two threads.
fn was_shared_out(outputs: &[Value]) -> bool {
    let queue = |value: &Value| match value {
        Value::Text(name) => name.split('-').nth(1).map(str::to_owned),
        other => panic!("{other:?}"),
    };
    queue(&outputs[0]) != queue(&outputs[1])
}

/// The rows by the primary index. Checks that each other index gives the same.
fn rows(db: &Database, table: &str, indexes: usize) -> BTreeMap<i32, i32> {
    let table: Table = db.table(table).unwrap();
    let by = |which| {
        let mut rows = Vec::new();
        db.transact(|tx| {
            rows.clear();
            tx.scan(&table, &Scan { index: which, ..Scan::all() }, |_, row| {
                rows.push((row.get_i32(0)?, row.get_i32(1)?));
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        rows.sort_unstable();
        rows
    };
    let rows = by(WhichIndex::Primary);
    for position in 0..indexes {
        assert_eq!(by(WhichIndex::Secondary(position)), rows, "by secondary index {position}");
    }
    rows.into_iter().collect()
}

/// The last action of a call waits while another transaction wants the tables that the first ones have used: in parts,
/// each with a context of its own, or under a lease, whose executors hold the intentions (L13).
#[test]
fn what_a_call_has_used_is_its_own_until_it_ends() {
    static IS_IN: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    fn wait(flag: &AtomicBool) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while !flag.load(Ordering::SeqCst) {
            if Instant::now() > end {
                return Err(Error::aborted("waited in vain"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
    for (threads, has_lease) in [(2, false), (0, true), (0, false)] {
        in_time(2 * LIMIT, move || {
            let db = database(threads);
            let last = Action::exclusive("left", |_, _, _| {
                IS_IN.store(true, Ordering::SeqCst);
                wait(&GO_ON)
            });
            // Without an identifier it leases no executor.
            let last = if has_lease { last.by_argument(0) } else { last };
            let flow = Flow::new().phase(both()).phase([last]);
            db.register(Procedure::new("both", [ColumnType::Int4; 3], flow)).unwrap();
            let mut shared_out = 0;
            for key in KEYS {
                let outputs = std::thread::scope(|scope| {
                    let call = scope.spawn(|| db.call("both", &ints([key, 7, key])));
                    wait(&IS_IN).unwrap();
                    for name in ["left", "right"] {
                        let table = db.table(name).unwrap();
                        let at_once = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
                        let emptied = db.transact_with(&at_once, |tx| tx.truncate(&table));
                        assert!(
                            matches!(emptied, Err(Error::WouldWait { .. })),
                            "{name}, {key}, {threads} threads: {emptied:?}"
                        );
                    }
                    GO_ON.store(true, Ordering::SeqCst);
                    call.join().unwrap().unwrap()
                });
                shared_out += u32::from(was_shared_out(&outputs));
                [&IS_IN, &GO_ON].iter().for_each(|flag| flag.store(false, Ordering::SeqCst));
            }
            assert_eq!(shared_out > 0, threads > 0, "the test's own premise");
            assert_eq!(rows(&db, "right", 0), BTreeMap::from([(7, 8)]));
        });
    }
}

/// Definitions change between calls and during them: what parts write goes into the tables as they are then.
#[test]
fn parts_write_into_tables_as_they_are_by_then() {
    in_time(LIMIT, || {
        let db = database(2);
        db.register(Procedure::new("both", [ColumnType::Int4; 3], Flow::new().phase(both()))).unwrap();
        let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
        let (mut indexes, mut shared_out) = (0, 0);
        for round in 0..12 {
            match round % 3 {
                0 => {}
                1 => {
                    db.transact(|tx| tx.create_index("right", &format!("by_n{round}"), &["n"], false))
                        .unwrap();
                    indexes += 1;
                }
                _ => {
                    let table = db.table("right").unwrap();
                    db.transact(|tx| tx.truncate(&table)).unwrap();
                    right.clear();
                }
            }
            for nth in 0..20 {
                let key = KEYS[(nth + round) as usize % KEYS.len()];
                let (other, n) = (nth % 7, 100 * round + nth);
                let outputs = db.call("both", &ints([key, other, n])).unwrap();
                shared_out += u32::from(was_shared_out(&outputs));
                left.insert(key, n);
                right.insert(other, n);
            }
            assert_eq!(rows(&db, "left", 0), left, "in round {round}");
            assert_eq!(rows(&db, "right", indexes), right, "in round {round}");
        }
        assert!(shared_out > 0, "the test's own premise");
    });
}

/// When a caller is told that a body of its call has panicked, the call holds nothing any more.
#[test]
fn a_call_that_has_panicked_holds_nothing_once_it_is_told() {
    in_time(LIMIT, || {
        let db = database(2);
        let [left, right] = both();
        let panics = Action::exclusive("left", |_, _, _| panic!("it panics")).by_argument(2);
        let flow = Flow::new().phase([left, right, panics]);
        db.register(Procedure::new("panics", [ColumnType::Int4; 3], flow)).unwrap();
        let table = db.table("left").unwrap();
        let at_once = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        for nth in 0..300 {
            let [key, other] = [nth, nth + 1].map(|nth| KEYS[nth % KEYS.len()]);
            let call = || db.call("panics", &ints([key, 7, other]));
            let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"it panics"));
            let found =
                db.transact_with(&at_once, |tx| tx.get_for_update(&table, key).map(|row| row.is_some()));
            assert_eq!(found, Ok(false), "call {nth}");
        }
    });
}

/// The first and the last action of the largest possible phase, each on a thread of its own; all others are left out.
#[test]
fn the_last_action_of_the_largest_phase_runs() {
    in_time(LIMIT, || {
        let db = database(2);
        let first = Action::exclusive("left", set::<0>).by_argument(0);
        let last = Action::exclusive("left", set::<1>).by_argument(1);
        let left_out = vec![first.clone().when(|_| false); 65_534];
        let flow = Flow::new().phase([first].into_iter().chain(left_out).chain([last]));
        db.register(Procedure::new("largest", [ColumnType::Int4; 3], flow)).unwrap();
        let outputs = db.call("largest", &ints([KEYS[0], KEYS[4], 7])).unwrap();
        assert!(was_shared_out(&outputs));
        assert_eq!(rows(&db, "left", 0), BTreeMap::from([(KEYS[0], 7), (KEYS[4], 7)]));
    });
}

/// A table with a unique index, whose keys are divided among all executors, and so among both threads.
fn of_unique_numbers() -> (Database, Table) {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine: Executors::of(KEYS.len(), 2).handing_over().into(),
        lock_timeout: 4 * LIMIT,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let table = db
        .transact(|tx| {
            let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
            tx.create_index("t", "by_n", &["n"], true)?;
            Ok(table)
        })
        .unwrap();
    let bounds = KEYS[1..].iter().map(|&bound| vec![Value::Int4(bound)]).collect::<Vec<_>>();
    db.set_routing("t", WhichIndex::Primary, &bounds).unwrap();
    (db, table)
}

/// An action that has failed ends the waits of later actions of the flow, on other threads: the caller waits for none
/// of their locks. Earlier actions wait on, because theirs may be the error.
#[test]
fn a_part_waits_for_no_lock_any_more_when_an_action_before_it_has_failed() {
    static WAITS: AtomicBool = AtomicBool::new(false);
    for waits_first in [false, true] {
        in_time(LIMIT, move || {
            let (db, table) = of_unique_numbers();
            // The key 100 of the unique index belongs to this transaction until it ends.
            let mut holder = db.begin().unwrap();
            holder.insert(&table, &ints([4, 100])).unwrap();
            let waits = Action::exclusive("t", |tx, arguments, _| {
                let key: i32 = arguments.get(0)?;
                WAITS.store(true, Ordering::SeqCst);
                tx.insert(arguments.table()?, &ints([key, 100]))
            });
            let watched = db.clone();
            let fails = Action::exclusive("t", move |_, _, _| {
                let end = Instant::now() + LIMIT;
                while !WAITS.load(Ordering::SeqCst) || watched.lock_waits().is_empty() {
                    assert!(Instant::now() < end, "the test's own premise: the other part waits");
                    std::thread::yield_now();
                }
                Err(Error::aborted("it fails"))
            });
            let (waits, fails) = (waits.by_argument(0), fails.by_argument(1));
            let phase = if waits_first { [waits, fails] } else { [fails, waits] };
            db.register(Procedure::new("both", [ColumnType::Int4; 2], Flow::new().phase(phase))).unwrap();
            WAITS.store(false, Ordering::SeqCst);
            let sent = db.send_call("both", &ints([0, 8])).unwrap();
            if waits_first {
                let end = Instant::now() + LIMIT;
                while db.lock_waits().is_empty() {
                    assert!(Instant::now() < end, "the test's own premise: the first part waits");
                }
                std::thread::sleep(Duration::from_millis(50));
                assert!(!db.lock_waits().is_empty(), "the first action waits on");
                holder.abort().unwrap();
                assert_eq!(sent.wait(), Err(Error::aborted("it fails")));
            } else {
                assert_eq!(sent.wait(), Err(Error::aborted("it fails")));
                holder.commit().unwrap();
            }
            let rows = rows(&db, "t", 1);
            assert_eq!(rows, if waits_first { [].into() } else { [(4, 100)].into() });
        });
    }
}

/// A part whose waits another part has ended ends with its transaction: the next transactions with its context, or with
/// the transaction's, wait for locks as usual.
#[test]
fn strangers_wait_for_locks_after_a_part_whose_waits_were_ended() {
    in_time(LIMIT, || {
        let (db, table) = of_unique_numbers();
        let insert = |at: usize| {
            let insert = Action::exclusive("t", move |tx, arguments, _| {
                let key: i32 = arguments.get(at)?;
                tx.insert(arguments.table()?, &ints([key, 100 + key]))
            });
            insert.by_argument(at)
        };
        let fail_beside = |db: &Database| {
            let watched = db.clone();
            let fails = Action::exclusive("t", move |_, _, _| {
                until("a lock wait", || !watched.lock_waits().is_empty());
                Err(Error::aborted("it fails"))
            });
            fails.by_argument(0)
        };
        let both = Flow::new().phase([insert(0), insert(1)]);
        db.register(Procedure::new("both", [ColumnType::Int4; 2], both)).unwrap();
        let fails = Flow::new().phase([fail_beside(&db), insert(1)]);
        db.register(Procedure::new("fails", [ColumnType::Int4; 2], fails)).unwrap();
        // Each thread's part has its waits ended once, so once also the transaction's own context; then each has to
        // wait.
        for [fails, waits] in [[0, 8], [8, 0]] {
            let mut holder = db.begin().unwrap();
            holder.insert(&table, &ints([4, 100 + waits])).unwrap();
            assert_eq!(db.call("fails", &ints([fails, waits])), Err(Error::aborted("it fails")));
            holder.abort().unwrap();
            for waits in [0, 8] {
                for first in [waits, 8 - waits] {
                    let mut holder = db.begin().unwrap();
                    holder.insert(&table, &ints([4, 100 + waits])).unwrap();
                    let mut sent = db.send_call("both", &ints([first, 8 - first])).unwrap();
                    until("a lock wait or the end", || sent.is_done() || !db.lock_waits().is_empty());
                    holder.abort().unwrap();
                    assert_eq!(sent.wait(), Ok(vec![]), "{waits} waits, {first} is first");
                    db.transact(|tx| [0, 8].into_iter().try_for_each(|key| tx.delete(&table, key).map(drop)))
                        .unwrap();
                }
            }
        }
    });
}

/// Two parts of a phase panic. Destructors of the panics' payloads find nothing held; also that of the panic that is
/// not told.
#[test]
fn what_the_panics_of_two_parts_carry_is_dropped_when_nothing_is_held() {
    struct Payload(Database, mpsc::Sender<Result<bool>>);
    impl Drop for Payload {
        fn drop(&mut self) {
            let options = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
            let found = self.0.begin_with(&options).and_then(|mut tx| {
                let table = self.0.table("left")?;
                tx.get_for_update(&table, KEYS[0]).map(|row| row.is_some())
            });
            let _ = self.1.send(found);
        }
    }
    let db = database(2);
    let left = db.table("left").unwrap();
    db.transact(|tx| KEYS.iter().try_for_each(|&key| tx.insert(&left, &ints([key, 0])))).unwrap();
    let ((found, are_found), both) = (mpsc::channel(), Arc::new(Barrier::new(2)));
    let panics = |at: usize| {
        let (db, found, both) = (db.clone(), found.clone(), both.clone());
        let body = Action::exclusive("left", move |_, _, _| {
            both.wait();
            panic_any(Payload(db.clone(), found.clone()))
        });
        body.by_argument(at)
    };
    let flow = Flow::new().phase([panics(0), panics(1)]);
    db.register(Procedure::new("p", [ColumnType::Int4; 2], flow)).unwrap();
    let call = catch_unwind(AssertUnwindSafe(|| db.call("p", &ints([KEYS[0], KEYS[4]]))));
    drop(call.expect_err("it panics"));
    for nth in 0..2 {
        assert_eq!(are_found.recv_timeout(LIMIT).unwrap(), Ok(true), "destructor {nth}");
    }
}
