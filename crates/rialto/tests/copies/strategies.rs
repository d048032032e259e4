//! Checkpoints of every strategy, one after the other, spooled or not, under transactions at full speed, on a disk that
//! sometimes fails a write of a copy. No update is lost, and no transaction starves. After the end (a crash of the
//! machine, a kill, a close) the database is a prefix of what was committed, with everything that was promised.
//!
//! A transaction moves money between two accounts, whose rows grow and shrink and so move. It counts itself in its
//! thread's counter, and inserts a row with its number, while it removes an older one. So half of a transaction breaks
//! a sum or a list. It is a closure, a handle, or a call of a registered procedure, which is logged as the opening
//! says: values, actions, calls. It is also a flow of two phases, of which a client has several under way: with local
//! locks they run in place, or are sent between threads that own executors, which are added and retired.

use std::ops::ControlFlow;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::hooked::HookedDisk;
use rialto::io::{FaultKind, FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Arguments, Checkpointing, Database, Durability, Engine, Error, Executors, Flow, HandOver,
    Logging, Options, Outputs, Procedure, Result, STRADDLING_RETRIES_MAX, Scan, Table, TableDef, Transaction,
    TxOptions,
};

const ACCOUNTS: i32 = 150;
const START: i64 = 1_000;
const THREADS: usize = 3;
/// The number of its last rows that a thread keeps.
const KEPT: i64 = 8;
/// Numbers of one thread's rows are below this.
const NUMBERS: i64 = 1 << 32;

struct Tables {
    accounts: Table,
    counters: Table,
    numbers: Table,
}

impl Tables {
    fn of(db: &Database) -> Tables {
        let table = |name| db.table(name).unwrap();
        Tables { accounts: table("accounts"), counters: table("counters"), numbers: table("numbers") }
    }

    fn create(db: &Database, random: &mut Random) -> Tables {
        let column = |name: &str, column_type| Column::new(name, column_type);
        let accounts = vec![
            column("id", ColumnType::Int4),
            column("balance", ColumnType::Int8),
            column("text", ColumnType::Text),
        ];
        let pair = || vec![column("id", ColumnType::Int8), column("n", ColumnType::Int8)];
        db.transact(|tx| {
            for (name, columns) in [("accounts", accounts.clone()), ("counters", pair()), ("numbers", pair())]
            {
                tx.create_table(&TableDef::new(name, columns).with_primary_key(&["id"]))?;
            }
            Ok(())
        })
        .unwrap();
        let tables = Tables::of(db);
        for id in 0..ACCOUNTS {
            let row = [Value::Int4(id), Value::Int8(START), text(random)];
            db.transact(|tx| tx.insert(&tables.accounts, &row)).unwrap();
        }
        db.transact(|tx| {
            (0..THREADS).try_for_each(|thread| {
                tx.insert(&tables.counters, &[Value::Int8(thread as i64), Value::Int8(0)])
            })
        })
        .unwrap();
        tables
    }
}

/// Long enough that the accounts fill several segments.
fn text(random: &mut Random) -> Value {
    Value::Text("t".repeat(random.below(5_000) as usize))
}

/// The operations of one transaction: a function of its random numbers.
fn work(tx: &mut Transaction, tables: &Tables, thread: i64, n: i64, mut random: Random) -> Result<()> {
    let from = random.below(ACCOUNTS as u64) as i32;
    let to = (from + 1 + random.below(ACCOUNTS as u64 - 1) as i32) % ACCOUNTS;
    let amount = 1 + random.below(9) as i64;
    let mut changes = [(from, -amount), (to, amount)];
    // In one order, so that no transaction is a deadlock's victim.
    changes.sort_unstable();
    for (account, change) in changes {
        if random.chance(1, 5) {
            let balance = tx.get_for_update(&tables.accounts, account)?.unwrap().view().get_i64(1)?;
            let changes = [(1, Value::Int8(balance + change)), (2, text(&mut random))];
            assert!(tx.update(&tables.accounts, account, &changes)?);
        } else {
            assert!(tx.modify(&tables.accounts, account, |row| row.add_i64(1, change).map(drop))?);
        }
    }
    tx.modify(&tables.counters, thread, |row| {
        assert_eq!(row.get_i64(1)?, n - 1);
        row.set_i64(1, n)
    })?;
    tx.insert(&tables.numbers, &[Value::Int8(thread * NUMBERS + n), Value::Int8(n)])?;
    let old = n - KEPT;
    assert_eq!(tx.delete(&tables.numbers, thread * NUMBERS + old)?, old > 0);
    // Reads of present and of absent rows.
    assert!(tx.get(&tables.numbers, thread * NUMBERS + old)?.is_none());
    assert!(
        tx.get(&tables.accounts, random.below(ACCOUNTS as u64) as i32)
            .map_or_else(is_deadlock, |row| row.is_some())
    );
    Ok(())
}

/// [`work`] as a procedure: of a thread, a number and a seed.
fn procedure() -> Procedure {
    let flow = Flow::of(|tx, arguments, _| {
        let [thread, n, seed] = [0, 1, 2].map(|position| arguments.get::<i64>(position));
        let [accounts, counters, numbers] = ["accounts", "counters", "numbers"].map(|name| tx.table(name));
        let tables = Tables { accounts: accounts?, counters: counters?, numbers: numbers? };
        work(tx, &tables, thread?, n?, Random::new(seed? as u64))
    });
    Procedure::new("work", [ColumnType::Int8; 3], flow).deterministic(1)
}

/// The same as a flow of two phases: of a thread, a seed, and three accounts. It finds its number by itself, so that
/// several flows of a thread can be under way.
fn flow() -> Flow {
    let count = Action::exclusive("counters", |tx, arguments, outputs| {
        let (thread, mut n): (i64, _) = (arguments.get(0)?, 0);
        assert!(tx.modify(arguments.table()?, thread, |row| {
            n = row.add_i64(1, 1)?;
            Ok(())
        })?);
        outputs.push(thread * NUMBERS + n);
        outputs.push(thread * NUMBERS + n - KEPT);
        Ok(())
    });
    fn add<const AT: usize, const CHANGE: i64>(
        tx: &mut Transaction,
        arguments: &Arguments<'_>,
        _: &mut Outputs,
    ) -> Result<()> {
        let (accounts, account): (_, i32) = (arguments.table()?, arguments.get(AT)?);
        let mut random = Random::new(arguments.get::<i64>(1)? as u64 ^ AT as u64);
        if random.chance(1, 5) {
            let balance = tx.get_for_update(accounts, account)?.unwrap().view().get_i64(1)?;
            let changes = [(1, Value::Int8(balance + CHANGE)), (2, text(&mut random))];
            assert!(tx.update(accounts, account, &changes)?);
        } else {
            assert!(tx.modify(accounts, account, |row| row.add_i64(1, CHANGE).map(drop))?);
        }
        Ok(())
    }
    let look = Action::shared("accounts", |tx, arguments, _| {
        assert!(tx.get(arguments.table()?, arguments.get::<i32>(4)?)?.is_some());
        Ok(())
    });
    let number = |outputs: &Outputs, at| outputs.get::<i64>(at).expect("the first phase gives two numbers");
    let keep = Action::exclusive("numbers", move |tx, arguments, outputs| {
        let number = number(outputs, 0);
        tx.insert(arguments.table()?, &[Value::Int8(number), Value::Int8(number % NUMBERS)])
    });
    let forget = Action::exclusive("numbers", move |tx, arguments, outputs| {
        let old = number(outputs, 1);
        assert_eq!(tx.delete(arguments.table()?, old)?, old > arguments.get::<i64>(0)? * NUMBERS);
        Ok(())
    });
    Flow::new().phase([count.by_argument(0)]).phase([
        Action::exclusive("accounts", add::<2, -1>).by_argument(2),
        Action::exclusive("accounts", add::<3, 1>).by_argument(3),
        look.by_argument(4),
        keep.by_output(0),
        forget.by_output(1),
    ])
}

const OF_FLOW: [ColumnType; 5] =
    [ColumnType::Int8, ColumnType::Int8, ColumnType::Int4, ColumnType::Int4, ColumnType::Int4];

/// All of them: those that the log may have as calls, and one that it never has.
fn procedures() -> Vec<Procedure> {
    vec![
        procedure(),
        Procedure::new("flow", OF_FLOW, flow()).deterministic(1),
        Procedure::new("flow of values", OF_FLOW, flow()),
    ]
}

/// The arguments of a call of [`flow`].
fn of_flow(random: &mut Random, thread: usize) -> [Value; 5] {
    let mut account = || random.below(ACCOUNTS as u64) as i32;
    let [from, to, looked_at] = [account(), account(), account()].map(Value::Int4);
    [Value::Int8(thread as i64), Value::Int8(random.next() as i64), from, to, looked_at]
}

fn is_deadlock(error: Error) -> bool {
    // The last read is of any account: its transaction may be a victim, and is then doomed.
    matches!(error, Error::Deadlock { .. }) || ends(&error)
}

/// The disk, or the database, has ended.
fn ends(error: &Error) -> bool {
    match error {
        Error::Closed | Error::Stopped { .. } | Error::OutcomeUnknown { .. } | Error::Io { .. } => true,
        // While the log's next file was made, and a transaction needed it.
        Error::LogFull { reason } => reason.contains("the simulated "),
        _ => false,
    }
}

/// What a thread was promised.
#[derive(Default)]
struct Promises {
    /// The last number that was tried.
    tried: AtomicI64,
    /// The last number that was answered at all, and at level 3.
    answered: AtomicI64,
    on_disk: AtomicI64,
    /// The most runs of one transaction.
    runs_max: AtomicU32,
}

fn run(db: &Database, tables: &Tables, thread: usize, promises: &Promises, seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut n = promises.answered.load(Ordering::SeqCst);
    while !stop.load(Ordering::SeqCst) {
        if random.chance(1, 3) {
            match call_on_threads(db, thread, promises, &mut random, n) {
                Some(done) => n += done,
                None => return,
            }
            continue;
        }
        n += 1;
        promises.tried.store(n, Ordering::SeqCst);
        let level = if random.chance(1, 8) { Durability::Disk } else { Durability::Memory };
        let options = TxOptions { durability: Some(level), ..TxOptions::default() };
        let seed = random.next();
        let thread = thread as i64;
        let mut runs = 0;
        let outcome = match random.below(4) {
            // A handle runs again by itself.
            0 => loop {
                let outcome = db.begin_with(&options).and_then(|mut tx| {
                    work(&mut tx, tables, thread, n, Random::new(seed))?;
                    tx.commit()
                });
                match outcome {
                    Err(Error::Deadlock { .. }) => {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    outcome => break outcome,
                }
            },
            1..3 => {
                let arguments = [thread, n, seed as i64].map(Value::Int8);
                db.call_with(&options, "work", &arguments).map(drop)
            }
            _ => db.transact_with(&options, |tx| {
                runs += 1;
                work(tx, tables, thread, n, Random::new(seed))
            }),
        };
        match outcome {
            Ok(()) => {
                promises.answered.store(n, Ordering::SeqCst);
                if level == Durability::Disk {
                    promises.on_disk.store(n, Ordering::SeqCst);
                }
                promises.runs_max.fetch_max(runs, Ordering::SeqCst);
            }
            Err(error) if ends(&error) => return,
            Err(error) => panic!("thread {thread}, number {n}: {error}"),
        }
    }
}

/// Keeps some calls under way, after `n` transactions of this thread. Gives how many were answered; none if the
/// database ends.
fn call_on_threads(
    db: &Database,
    thread: usize,
    promises: &Promises,
    random: &mut Random,
    n: i64,
) -> Option<i64> {
    let calls = 1 + random.below(6) as i64;
    promises.tried.store(n + calls, Ordering::SeqCst);
    let name = *pick(random, &["flow", "flow of values"]);
    let mut sent = Vec::new();
    for _ in 0..calls {
        let level = if random.chance(1, 8) { Durability::Disk } else { Durability::Memory };
        let options = TxOptions { durability: Some(level), ..TxOptions::default() };
        match db.send_call_with(&options, name, &of_flow(random, thread)) {
            Ok(call) => sent.push((level, call)),
            Err(error) if ends(&error) => break,
            Err(error) => panic!("thread {thread}, after number {n}: {error}"),
        }
    }
    let (mut answered, mut on_disk) = (0, 0);
    for (level, call) in sent {
        let outcome = match random.below(2) {
            0 => call.wait().map(drop),
            _ => call.wait_for_place().and_then(|(_, ticket)| ticket.wait()),
        };
        match outcome {
            Ok(()) => {
                answered += 1;
                on_disk += i64::from(level == Durability::Disk);
            }
            Err(error) if ends(&error) => {}
            Err(error) => panic!("thread {thread}, after number {n}: {error}"),
        }
    }
    // They choose their numbers themselves: at least this many are there.
    promises.answered.fetch_add(answered, Ordering::SeqCst);
    let before = promises.on_disk.load(Ordering::SeqCst);
    let at_least = if on_disk > 0 { n + on_disk } else { before };
    promises.on_disk.store(at_least, Ordering::SeqCst);
    (answered == calls).then_some(calls)
}

/// Checks the contents, and gives the threads' counters.
fn check(db: &Database, about: &str) -> Vec<i64> {
    let tables = Tables::of(db);
    db.transact(|tx| {
        let (mut sum, mut count) = (0, 0);
        tx.scan(&tables.accounts, &Scan::all(), |_, row| {
            (sum, count) = (sum + row.get_i64(1)?, count + 1);
            Ok(ControlFlow::Continue(()))
        })?;
        assert_eq!((sum, count), (i64::from(ACCOUNTS) * START, ACCOUNTS), "{about}");
        let mut counters = Vec::new();
        tx.scan(&tables.counters, &Scan::all(), |_, row| {
            counters.push(row.get_i64(1)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let mut numbers = Vec::new();
        tx.scan(&tables.numbers, &Scan::all(), |_, row| {
            numbers.push(row.get_i64(0)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let expected: Vec<i64> = (0..)
            .zip(&counters)
            .flat_map(|(thread, &n)| ((n - KEPT + 1).max(1)..=n).map(move |n| thread * NUMBERS + n))
            .collect();
        assert_eq!(numbers, expected, "{about}");
        Ok(counters)
    })
    .unwrap()
}

/// A checkpoint strategy that allows this kind of log.
fn strategy(random: &mut Random, logging: Logging) -> Checkpointing {
    let mut beside = Checkpointing::ALL.to_vec();
    beside.retain(|strategy| logging.refuses(*strategy).is_none());
    *pick(random, &beside)
}

fn options(random: &mut Random) -> Options {
    let logging = *pick(random, &Logging::ALL);
    let threads = random.below(4) as usize;
    let executors = Executors {
        count_max: 8,
        threads_max: if threads > 0 { 3 } else { 0 },
        hand_over: *pick(random, &[HandOver::IfBusy, HandOver::Always]),
        ..Executors::of(1 + random.below(8) as usize, threads)
    };
    Options {
        memory_bytes: 64 << 20,
        checkpoint: strategy(random, logging),
        checkpoint_interval: Duration::from_millis(1),
        sweep_bytes_per_s: *pick(random, &[Some(0), Some(2 << 20), Some(50 << 20), None]),
        spool: random.chance(1, 2),
        snapshot_bytes_max: *pick(random, &[None, Some(3 << 16)]),
        straddling_retry: Duration::from_micros(random.below(2_000)),
        straddling_hints: random.chance(1, 2),
        backup_copies: *pick(random, &[2, 3]),
        engine: *pick(random, &[Engine::thin(), Engine::central(), executors.into()]),
        deadlock_retries_max: 100_000,
        logging,
        procedures: procedures(),
        recovery_threads: 1 + random.below(3) as usize,
        ..Options::default()
    }
}

fn pick<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    &all[random.below(all.len() as u64) as usize]
}

#[test]
fn strategies_that_change_under_load_lose_nothing_and_starve_no_transaction() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let (mut rounds, mut transactions, mut checkpoints, mut failed, mut straddling, mut calls) =
        (0, 0, 0, 0, 0, 0);
    while rounds < 3 || Instant::now() < until || checkpoints <= rounds && rounds < 50 {
        let seed = base.wrapping_add(rounds);
        rounds += 1;
        let mut random = Random::new(seed);
        let mut disk = FaultyDisk::new(random.next());
        let promises: [Promises; THREADS] = Default::default();
        for opening in 0..3 {
            let options = options(&mut random);
            let logging = options.logging;
            let about =
                format!("RIALTO_SEED={seed}, opening {opening} with {options:?}, spool {}", options.spool);
            let db =
                Database::open_on(disk.clone(), options).unwrap_or_else(|error| panic!("{about}: {error}"));
            let tables = match opening {
                0 => Tables::create(&db, &mut random),
                _ => Tables::of(&db),
            };
            let end = random.below(3);
            let begins: Vec<i64> =
                promises.iter().map(|promises| promises.answered.load(Ordering::SeqCst)).collect();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _stop = Stop(&stop);
                for (thread, promises) in promises.iter().enumerate() {
                    let (db, tables, seed, stop) = (&db, &tables, random.next(), &stop);
                    scope.spawn(move || run(db, tables, thread, promises, seed, stop));
                }
                for _ in 0..4 + random.below(12) {
                    db.set_checkpoint(strategy(&mut random, logging)).unwrap();
                    std::thread::sleep(Duration::from_millis(random.below(8)));
                    // Refused where there are no executors.
                    let (threads, executors) = (1 + random.below(3) as usize, 1 + random.below(8) as usize);
                    let _ = db.set_executor_threads(threads..=threads);
                    let _ = db.set_executors(executors..=executors);
                    match random.below(6) {
                        0 => {
                            let file = if random.chance(1, 2) { "backup" } else { "home" };
                            disk.fail(FaultKind::Write, file, random.below(4));
                        }
                        1 => disk.fail(FaultKind::Sync, "backup", random.below(2)),
                        2 => {
                            // It succeeds, or fails in one of these ways.
                            let _ = db.checkpoint();
                        }
                        3 => {
                            let columns = vec![Column::new("n", ColumnType::Int8)];
                            let def = TableDef::new("passing", columns).with_primary_key(&["n"]);
                            db.transact(|tx| tx.create_table(&def)).unwrap();
                            db.transact(|tx| tx.drop_table("passing")).unwrap();
                        }
                        _ => disk.mend(),
                    }
                }
                disk.mend();
                match end {
                    0 => disk.crash(),
                    1 => disk.kill(),
                    _ => {}
                }
            });
            let metrics = db.metrics();
            checkpoints += metrics.checkpoints.completed;
            failed += metrics.checkpoints.failed;
            straddling += metrics.aborted_straddling;
            let victims = metrics.aborted_deadlock as u32;
            for promises in &promises {
                let runs = promises.runs_max.load(Ordering::SeqCst);
                assert!(
                    runs <= STRADDLING_RETRIES_MAX + 1 + victims,
                    "{about}: {runs} runs of one transaction"
                );
            }
            match end {
                0 | 1 => drop(db),
                _ => {
                    db.close().unwrap_or_else(|error| panic!("{about}: {error}"));
                    disk.kill();
                }
            }
            disk = disk.restart();
            let afterwards =
                Options { memory_bytes: 64 << 20, procedures: procedures(), ..Options::default() };
            let db = Database::open_on(disk.clone(), afterwards)
                .unwrap_or_else(|error| panic!("{about}: {error}"));
            calls += db.recovery().unwrap().calls;
            let counters = check(&db, &about);
            for ((promises, n), before) in promises.iter().zip(counters).zip(begins) {
                let [tried, answered, on_disk] = [&promises.tried, &promises.answered, &promises.on_disk]
                    .map(|n| n.load(Ordering::SeqCst));
                let promised = if end == 0 { on_disk } else { answered };
                assert!(
                    (promised..=tried).contains(&n),
                    "{about}, end {end}: {n}, not {promised} to {tried}"
                );
                transactions += n - before;
                promises.answered.store(n, Ordering::SeqCst);
                promises.on_disk.store(n, Ordering::SeqCst);
            }
            db.close().unwrap();
        }
    }
    assert!(checkpoints > rounds, "the test's own premise");
    println!(
        "tally: strategies under load, {rounds} seeds, {transactions} transactions, {checkpoints} checkpoints, {failed} \
         failed, {straddling} straddling, {calls} calls replayed, RIALTO_SEED={base}"
    );
}

/// Stops the others when it is dropped, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// However slow a black/white sweep is, it copies the segments that commits wait for without a pause. At a byte a
/// second they would otherwise wait for a day.
#[test]
fn a_slow_sweep_takes_what_commits_wait_for_at_once() {
    let options = Options {
        checkpoint: Checkpointing::None,
        checkpoint_interval: Duration::from_millis(1),
        sweep_bytes_per_s: Some(1),
        memory_bytes: 256 << 20,
        ..Options::default()
    };
    let (disk, swept) = HookedDisk::counting();
    let db = Database::open_on(disk, options).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ];
    let table = db
        .transact(|tx| tx.create_table(&TableDef::new("wide", columns.clone()).with_primary_key(&["id"])))
        .unwrap();
    // A sweep writes a group of 64 segments at once, and then rests for days: more segments than those of the catalog.
    // So the first rows are black then, and all others white.
    const ROWS: i32 = 8_000;
    for first in (0..ROWS).step_by(100) {
        db.transact(|tx| {
            (first..first + 100).try_for_each(|id| {
                tx.insert(&table, &[Value::Int4(id), Value::Int8(0), Value::Text("x".repeat(8_200))])
            })
        })
        .unwrap();
    }
    // Not before: what a sweep does not meet has no side. No transaction is in the way of the first group: the sweep
    // would leave out what it holds, end the group there, and rest.
    let before = swept.load(Ordering::Relaxed);
    db.set_checkpoint(Checkpointing::TransactionBlackWhite).unwrap();
    while swept.load(Ordering::Relaxed) == before {
        std::thread::yield_now();
    }
    let (done, finished) = std::sync::mpsc::channel();
    let client = db.clone();
    std::thread::spawn(move || {
        let mut step = 0;
        while client.metrics().aborted_straddling < 5 {
            step += 1;
            let (one, other) = (step % 7, ROWS - 1 - step * 11 % (ROWS / 2));
            client
                .transact(|tx| {
                    for id in [one, other] {
                        tx.modify(&table, id, |row| row.add_i64(1, 1).map(drop))?;
                    }
                    Ok(())
                })
                .unwrap();
        }
        done.send(()).unwrap();
    });
    if finished.recv_timeout(Duration::from_secs(60)).is_err() {
        // Closing it would wait as well.
        std::mem::forget(db);
        panic!("a commit waits for the sweep's pace");
    }
}
