//! Calls in the log (System M's TOPER): they run again after crashes, beside values, DDL and bulk loads, with one
//! thread and with several. Combinations that would lose something are refused, or detected.

mod errors;
mod local_locks;
mod model;
mod refused;
mod replayed_bodies;
mod tables;
mod versions;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use model::{Contents, Step};
use rialto::io::{FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, Flow, Logging, Options, Procedure, Result, Scan,
    ScanMode, Table, TableDef, Transaction, TxOptions,
};

use crate::common::engines;

const ACCOUNTS: i32 = 24;

fn exclusive(
    table: &str,
    body: impl Fn(&mut Transaction, &Table, &[Value]) -> Result<()> + Send + Sync + 'static,
) -> Action {
    Action::exclusive(table, move |tx, arguments, _| body(tx, arguments.table()?, arguments.values()))
}

fn int4(value: &Value) -> i32 {
    match value {
        Value::Int4(value) => *value,
        other => panic!("{other:?}"),
    }
}

fn int8(value: &Value) -> i64 {
    match value {
        Value::Int8(value) => *value,
        other => panic!("{other:?}"),
    }
}

/// Marks transaction `n` as done.
fn done() -> Action {
    exclusive("done", |tx, table, values| tx.insert(table, &values[..1])).by_argument(0)
}

/// From one account to another, and into the history, whose rows have no key: (n, from, to, amount).
fn transfer() -> Procedure {
    let account = |position: usize, sign: i64| {
        exclusive("accounts", move |tx, table, values| {
            let add = |fields: &mut rialto::Fields<'_>| fields.add(1, sign * int8(&values[3])).map(drop);
            tx.modify(table, int4(&values[position]), add).map(drop)
        })
        .by_argument(position)
    };
    let out_of = exclusive("history", |tx, table, values| {
        tx.insert(table, &[values[1].clone(), values[3].clone()])?;
        // An insert that is taken back takes a row number, too.
        let savepoint = tx.savepoint();
        tx.insert(table, &[values[1].clone(), Value::Int8(0)])?;
        tx.rollback_to(&savepoint)
    });
    let into = exclusive("history", |tx, table, values| {
        tx.insert(table, &[values[2].clone(), Value::Int8(-int8(&values[3]))])
    });
    let history = [out_of.by_argument(1), into.by_argument(2)];
    let flow = Flow::new().phase([account(1, -1), account(2, 1)].into_iter().chain(history)).phase([done()]);
    let types = [ColumnType::Int8, ColumnType::Int4, ColumnType::Int4, ColumnType::Int8];
    Procedure::new("transfer", types, flow).deterministic(1)
}

/// Gives an account another text, which may make the row move, and changes its unique key: (n, account, text).
fn rename() -> Procedure {
    let account = exclusive("accounts", |tx, table, values| {
        tx.update(table, int4(&values[1]), &[(2, values[2].clone())]).map(drop)
    });
    let flow = Flow::new().phase([account.by_argument(1)]).phase([done()]);
    Procedure::new("rename", [ColumnType::Int8, ColumnType::Int4, ColumnType::Text], flow).deterministic(3)
}

/// Gives an account a text, and the account that had the text another one: (n, account, text). Only the index tells
/// which account that is, so the rows of the call do not follow from its arguments.
fn take_over() -> Procedure {
    let rename = |text: fn(&[Value]) -> Value| {
        move |tx: &mut Transaction, table: &Table, id: i32, values: &[Value]| {
            tx.update(table, id, &[(2, text(values))]).map(drop)
        }
    };
    let find = Action::shared("accounts", |tx, arguments, outputs| {
        let (table, text) = (arguments.table()?, arguments.get_str(2)?);
        let holder = tx.probe(table, arguments.index(), text, ScanMode::Share, |entry| entry.get("id"))?;
        outputs.push(holder.transpose()?);
        Ok(())
    });
    let free = rename(|values| Value::Text(format!("{} free", values[0])));
    let free = Action::exclusive("accounts", move |tx, arguments, outputs| {
        let holder = outputs.get::<i32>(0).expect("it is left out without");
        free(tx, arguments.table()?, holder, arguments.values())
    });
    let give = rename(|values| values[2].clone());
    let give = exclusive("accounts", move |tx, table, values| give(tx, table, int4(&values[1]), values));
    let flow = Flow::new()
        .phase([find.on_index("by_text").by_argument(2)])
        .phase([free.by_output(0).when_output(0)])
        .phase([give.by_argument(1), done()]);
    Procedure::new("take over", [ColumnType::Int8, ColumnType::Int4, ColumnType::Text], flow).deterministic(1)
}

/// Takes the least row out of the history, by a scan; of equal ones the oldest. A plain closure, which may touch
/// anything: (n).
fn forget() -> Procedure {
    let flow = Flow::of(|tx, arguments, _| {
        let (history, done) = (tx.table("history")?, tx.table("done")?);
        let mut least = None;
        tx.scan(&history, &Scan::all(), |key, row| {
            let found = (row.get_i32(0)?, row.get_i64(1)?);
            if least.as_ref().is_none_or(|(least, _)| found < *least) {
                least = Some((found, key.clone()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some((_, least)) = least {
            tx.delete_at(&history, &least)?;
        }
        tx.insert(&done, &arguments.values()[..1])
    });
    Procedure::new("forget", [ColumnType::Int8], flow).deterministic(1)
}

/// Closes an account and opens it again with nothing, in one transaction: (n, account).
fn renew() -> Procedure {
    let account = exclusive("accounts", |tx, table, values| {
        let id = int4(&values[1]);
        let row = tx.get(table, id)?;
        if let Some(row) = row {
            tx.delete(table, id)?;
            let text = row.view().get(2);
            tx.insert(table, &[Value::Int4(id), Value::Int8(0), text])?;
        }
        Ok(())
    });
    let flow = Flow::new().phase([account.by_argument(1)]).phase([done()]);
    Procedure::new("renew", [ColumnType::Int8, ColumnType::Int4], flow).deterministic(1)
}

fn procedures() -> Vec<Procedure> {
    vec![transfer(), rename(), take_over(), forget(), renew()]
}

fn options(logging: Logging) -> Options {
    Options {
        memory_bytes: 64 << 20,
        logging,
        procedures: procedures(),
        checkpoint: Checkpointing::None,
        sweep_bytes_per_s: Some(0),
        recovery_threads: 3,
        ..Options::default()
    }
}

fn calls() -> Options {
    options(Logging::Transaction)
}

fn prepare(db: &Database) {
    db.transact(|tx| {
        let columns = vec![
            Column::new("id", ColumnType::Int4),
            Column::new("balance", ColumnType::Int8),
            Column::new("text", ColumnType::Text),
        ];
        tx.create_table(&TableDef::new("accounts", columns).with_primary_key(&["id"]))?;
        tx.create_index("accounts", "by_balance", &["balance"], false)?;
        tx.create_index("accounts", "by_text", &["text"], true)?;
        let columns = vec![Column::new("account", ColumnType::Int4), Column::new("delta", ColumnType::Int8)];
        tx.create_table(&TableDef::new("history", columns))?;
        let columns = vec![Column::new("n", ColumnType::Int8)];
        tx.create_table(&TableDef::new("done", columns).with_primary_key(&["n"]))?;
        Ok(())
    })
    .unwrap();
    let accounts = db.table("accounts").unwrap();
    db.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|id| {
            tx.insert(&accounts, &[Value::Int4(id), Value::Int8(0), Value::Text(format!("account {id}"))])
        })
    })
    .unwrap();
}

/// Transactions 1 to this are done.
fn done_in(db: &Database) -> i64 {
    let table = db.table("done").unwrap();
    let mut last = 0;
    db.read(|tx| {
        last = 0;
        tx.scan(&table, &Scan::all(), |_, row| {
            last += 1;
            assert_eq!(row.get_i64(0)?, last, "a prefix");
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    last
}

/// A random combination of logging and checkpoints that is allowed.
fn combination(random: &mut Random) -> (Logging, Checkpointing) {
    loop {
        let logging = match random.chance(2, 3) {
            true => Logging::Transaction,
            false => Logging::ALL[random.below(Logging::ALL.len() as u64) as usize],
        };
        let checkpoint = match random.chance(1, 3) {
            true => Checkpointing::None,
            false => Checkpointing::ALL[random.below(Checkpointing::ALL.len() as u64) as usize],
        };
        if logging.refuses(checkpoint).is_none() {
            return (logging, checkpoint);
        }
    }
}

/// Lives of a database, each ended by a crash or a SIGKILL at any step, and each with logging and checkpoints of its
/// own. Gives how many calls were replayed, and how often the power was lost and the process killed.
fn lives(seed: u64) -> (u64, [u64; 2]) {
    let mut random = Random::new(seed);
    let mut disk = FaultyDisk::new(random.next());
    let db = Database::open_on(disk.clone(), calls()).unwrap();
    prepare(&db);
    let mut states = vec![Contents::prepared(ACCOUNTS)];
    // The rows of the history as they were found then, in the order of their numbers: a replay gives them the same
    // numbers.
    let mut histories = vec![Some(Vec::new())];
    let (mut db, mut first) = (Some(db), 0);
    let (mut replayed, mut ends) = (0, [0; 2]);
    for life in 0..4 {
        let about = format!("RIALTO_SEED={seed}, life {life}");
        let open = db.take().expect("opened before");
        let kill = random.chance(1, 2);
        let at = disk.steps() + 1 + random.below(400);
        if kill {
            disk.kill_at(at)
        } else {
            disk.crash_at(at)
        }
        let (mut acknowledged, mut answered) = (first, first);
        for n in first + 1..first + 1 + 20 + random.below(60) as i64 {
            let durable = random.chance(1, 3);
            let durability = Some(if durable { Durability::Disk } else { Durability::Memory });
            let step = Step::any(&mut random, n, ACCOUNTS);
            states.push(states[n as usize - 1].after(n, &step));
            histories.push(None);
            let outcome = step.run(&open, n, &TxOptions { durability, ..TxOptions::default() });
            match outcome.and_then(|ticket| ticket.wait()) {
                Ok(()) => {}
                // It may have committed.
                Err(
                    Error::OutcomeUnknown { .. }
                    | Error::Stopped { .. }
                    | Error::Io { .. }
                    | Error::LogFull { .. },
                ) => break,
                Err(error) => panic!("{about}, transaction {n}: {error}"),
            }
            answered = n;
            if durable {
                acknowledged = n;
            }
            let found = Contents::of(&open, &about);
            found.assert_is(&states[n as usize], &format!("{about}, transaction {n}"));
            histories[n as usize] = Some(found.history);
            if random.chance(1, 25) && open.checkpoint().is_err() {
                break;
            }
        }
        if random.chance(1, 4) {
            let _ = open.close();
        } else {
            drop(open);
        }
        if !disk.is_down() {
            if kill { disk.kill() } else { disk.crash() }
        }
        ends[usize::from(kill)] += 1;
        disk = disk.restart();
        // With one thread, and with several: the same result, and again (I8).
        let mut reached = None;
        for threads in [1, 1 + random.below(4) as usize] {
            let (logging, checkpoint) = combination(&mut random);
            let options = Options {
                checkpoint,
                engine: engines::any(&mut random, 8, 2),
                checkpoint_interval: Duration::from_millis(1),
                sweep_bytes_per_s: Some(1_000_000 << random.below(6)),
                recovery_threads: threads,
                ..options(logging)
            };
            if let Some(again) = db.take() {
                drop::<Database>(again);
                disk.crash();
                disk = disk.restart();
            }
            let open =
                Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"));
            replayed += open.recovery().unwrap().calls;
            let about = &format!("{about}, recovered by {threads} threads");
            let found = Contents::of(&open, about);
            let last = found.done.len() as i64;
            // Level 1 outlives the process, and an opening writes what it finds of it.
            let least = if kill { answered } else { acknowledged };
            assert!(last >= least, "{about}: {least} was durable, found {last}");
            found.assert_is(&states[last as usize], &format!("{about}, as after transaction {last}"));
            let numbered = histories[last as usize].get_or_insert_with(|| found.history.clone());
            assert_eq!(&found.history, numbered, "{about}: in the order of their numbers");
            assert!(reached.is_none_or(|reached| reached == last), "{about}: {reached:?}, and then {last}");
            reached = Some(last);
            db = Some(open);
        }
        let reached = reached.expect("opened twice");
        states.truncate(reached as usize + 1);
        histories.truncate(reached as usize + 1);
        first = reached;
    }
    (replayed, ends)
}

#[test]
fn calls_are_run_again_after_crashes_beside_values_ddl_and_loads() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let (mut seed, mut replayed, mut power_lost, mut killed) = (base, 0, 0, 0);
    // Some lives replay few calls or none.
    while replayed < 50 || Instant::now() < until {
        let (calls, [by_power, by_kill]) = lives(seed);
        (replayed, power_lost, killed) = (replayed + calls, power_lost + by_power, killed + by_kill);
        seed = seed.wrapping_add(1);
    }
    println!(
        "tally: calls under crashes, {replayed} calls replayed, {power_lost} losses of power, {killed} kills, RIALTO_SEED={base}"
    );
}

/// Threads that conflict now and then, with slow sweeps all the while. A replay with one thread gives the result of the
/// calls in the order of their places, and so does a replay with several.
#[test]
fn a_replay_of_many_threads_work_is_what_they_did() {
    for checkpoint in [Checkpointing::TransactionCopyOnUpdate, Checkpointing::TransactionBlackWhite] {
        // A sweep that comes after the last call leaves nothing to replay. That does not happen each time.
        assert!((0..10).any(|_| many_threads(checkpoint)), "the test's own premise");
    }
}

/// Whether there were calls to replay.
fn many_threads(checkpoint: Checkpointing) -> bool {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let sweeps = Options {
        checkpoint,
        checkpoint_interval: Duration::from_millis(20),
        sweep_bytes_per_s: Some(4 << 20),
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        ..calls()
    };
    let db = Database::open_on(disk.clone(), sweeps).unwrap();
    prepare(&db);
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4i64)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64);
                    let each = (0..500).map(|at| {
                        let n = thread * 1_000 + at;
                        let [from, to] = [0; 2].map(|_| random.below(ACCOUNTS as u64) as i32);
                        let step = match at % 4 {
                            0 => Step::TakeOver(to, format!("the {}", random.below(6))),
                            _ => Step::Transfer { from, to, amount: at },
                        };
                        let ticket = step.run(db, n, &TxOptions::default()).unwrap();
                        let place = ticket.lsn();
                        ticket.wait().unwrap();
                        (place, n, step)
                    });
                    each.collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    db.sync().unwrap();
    // Their results one after the other, in the order of their places.
    done.sort_by_key(|(place, ..)| *place);
    let mut expected = Contents::prepared(ACCOUNTS);
    done.iter().for_each(|(_, n, step)| expected.take(*n, step));
    let before = Contents::of(&db, "before the end");
    before.assert_is(&expected, "before the end");
    disk.crash();
    drop(db);
    let (mut disk, mut has_replayed) = (disk.restart(), true);
    for recovery_threads in [1, 2, 5] {
        let db = Database::open_on(disk.clone(), Options { recovery_threads, ..calls() }).unwrap();
        has_replayed &= db.recovery().unwrap().calls > 0;
        let about = &format!("{checkpoint:?}, with {recovery_threads} threads");
        let found = Contents::of(&db, about);
        found.assert_is(&expected, about);
        assert_eq!(found.history, before.history, "{about}: in the order of their numbers");
        disk.crash();
        drop(db);
        disk = disk.restart();
    }
    has_replayed
}
