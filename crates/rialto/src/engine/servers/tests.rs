//! The transaction server on a real database, as message servers see it.

mod blocked;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use super::{MessageServer, Request, ServedProcedure, TransactionServer, TransactionServerOptions};
use crate::io::MemoryDisk;
use crate::row::{Column, ColumnType, Value};
use crate::{Action, Database, Durability, Error, Flow, Options, Procedure, TableDef, Transaction};

const ROWS: i32 = 8;

/// Rows 0 to 7 with a number each, and procedures on them:
/// - `add`: row, amount; returns the sum;
/// - `sum`: reads them all;
/// - `swap`: adds to one row, then to another;
/// - `fail`, `panic`: add first.
fn database() -> Database {
    database_with(Options::default())
}

fn database_with(options: Options) -> Database {
    let database = Database::open_on(MemoryDisk::new(), options).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("number", ColumnType::Int8)];
    let rows = TableDef::new("rows", columns).with_primary_key(&["id"]);
    database
        .transact(|transaction| {
            let table = transaction.create_table(&rows)?;
            (0..ROWS).try_for_each(|id| transaction.insert(&table, &[Value::Int4(id), Value::Int8(0)]))
        })
        .unwrap();
    let register = |name: &str, arguments: &[ColumnType], flow: Flow| {
        database.register(Procedure::new(name, arguments.iter().copied(), flow)).unwrap();
    };
    let (int4, int8) = (ColumnType::Int4, ColumnType::Int8);
    register("add", &[int4, int8], Flow::from(add(0, 1, |_| Ok(()))));
    let fail = |_: i64| Err(Error::aborted("on purpose"));
    register("fail", &[int4, int8], Flow::from(add(0, 1, fail)));
    let panic = |_: i64| -> crate::Result<()> { panic!("a body of a test") };
    register("panic", &[int4, int8], Flow::from(add(0, 1, panic)));
    let second = add(1, 2, |_| Ok(()));
    register("swap", &[int4, int4, int8], Flow::new().phase([add(0, 2, |_| Ok(()))]).phase([second]));
    let sum = Action::shared("rows", |transaction, arguments, outputs| {
        let mut sum = 0;
        for id in 0..ROWS {
            sum += transaction.look(arguments.table()?, id, |row| row.get_i64(1))?.expect("it is there")?;
        }
        outputs.push(sum);
        Ok(())
    });
    register("sum", &[], Flow::from(sum));
    database
}

fn add(row: usize, amount: usize, then: impl Fn(i64) -> crate::Result<()> + Send + Sync + 'static) -> Action {
    let action = Action::exclusive("rows", move |transaction, arguments, outputs| {
        let mut number = 0;
        transaction.modify(arguments.table()?, arguments.get::<i32>(row)?, |fields| {
            number = fields.add_i64(1, arguments.get(amount)?)?;
            Ok(())
        })?;
        outputs.push(number);
        then(number)
    });
    action.by_argument(row)
}

fn start(database: &Database, queue: usize, standbys: usize) -> TransactionServer {
    TransactionServer::start(database, &TransactionServerOptions { queue, standbys }).unwrap()
}

fn request(server: &mut MessageServer, to: &ServedProcedure, row: i32, amount: i64) -> Request {
    let mut request = server.request(to);
    request.push(row).push(amount);
    request
}

/// As [`database`], but a packet without a waiter stays in memory for a minute.
fn lingering() -> Database {
    let group_commit = crate::GroupCommitOptions {
        linger: Some(Duration::from_secs(60)),
        ..crate::GroupCommitOptions::default()
    };
    let memory_flush_interval = Duration::from_secs(600);
    database_with(Options { group_commit, memory_flush_interval, ..Options::default() })
}

#[test]
fn the_log_is_hurried_when_there_is_nothing_more_to_run() {
    let (database, began) = (lingering(), Instant::now());
    let server = start(&database, 8, 0);
    let add = server.procedure("add").unwrap();
    let mut message_server = server.message_server();
    let put = |message_server: &mut MessageServer, row| {
        let request = request(message_server, &add, row, 5);
        message_server.put(request).unwrap();
    };
    put(&mut message_server, 0);
    assert_eq!(message_server.take().expect("it is on its way").outcome(), &Ok(()));
    // The last one blocks.
    let held = hold(&database, 1);
    put(&mut message_server, 0);
    put(&mut message_server, 1);
    assert_eq!(message_server.take().expect("it is on its way").outcome(), &Ok(()));
    drop(held);
    assert_eq!(message_server.take().expect("it is on its way").outcome(), &Ok(()));
    put(&mut message_server, 2);
    server.close();
    assert_eq!(message_server.take().expect("it was on its way").outcome(), &Ok(()));
    assert!(began.elapsed() < Duration::from_secs(50), "a call waited for a packet that lingers");
}

/// What is on the queue is run and answered before the close ends. Nothing is left to wait for after it.
#[test]
fn a_server_that_has_closed_has_put_all_responses_on_their_queues() {
    let database = lingering();
    for _ in 0..20 {
        let server = start(&database, 64, 1);
        let add = server.procedure("add").unwrap();
        let mut message_servers = [(); 2].map(|()| server.message_server());
        for nth in 0..32 {
            let own = &mut message_servers[nth % 2];
            let request = request(own, &add, nth as i32 % ROWS, 1);
            own.put(request).unwrap();
        }
        server.close();
        for own in &mut message_servers {
            let there = std::iter::from_fn(|| own.try_take());
            let answered = there.filter(|response| response.outcome() == &Ok(())).count();
            assert_eq!((answered, own.outstanding()), (16, 0));
        }
    }
}

/// Holds the lock on a row, in a transaction of its own on its own thread, until told to stop.
fn hold(database: &Database, row: i32) -> Transaction<'static> {
    let mut transaction = database.begin().unwrap();
    let table = database.table("rows").unwrap();
    transaction.modify(&table, row, |fields| fields.add_i64(1, 0).map(drop)).unwrap();
    transaction
}

/// Waits until a condition holds; fails if it never does.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(120), "{what} does not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn responses_have_outputs_tags_and_times_and_go_to_the_requester() {
    let database = database();
    let server = start(&database, 4, 1);
    let add = server.procedure("add").unwrap();
    std::thread::scope(|scope| {
        for row in 0..4 {
            let (server, add) = (&server, &add);
            scope.spawn(move || {
                let mut own = server.message_server();
                for tag in 1..=50u64 {
                    let mut request = request(&mut own, add, row, 2);
                    request.set_tag(tag);
                    if tag % 2 == 0 {
                        request.set_durability(Durability::Memory);
                    }
                    own.put(request).unwrap();
                    let response = own.take().unwrap();
                    assert_eq!((response.tag(), response.outcome()), (tag, &Ok(())));
                    assert_eq!(response.outputs(), [Value::Int8(2 * tag as i64)]);
                    assert_eq!((response.procedure(), &response.arguments()[0]), ("add", &Value::Int4(row)));
                    assert!(response.put_at() <= response.taken_at());
                    assert!(response.response_time() > Duration::ZERO);
                    own.recycle(response);
                }
                assert!(own.take().is_none() && own.outstanding() == 0);
            });
        }
    });
    assert_eq!(server.stats().requests, 200);
    let sum = server.procedure("sum").unwrap();
    let mut own = server.message_server();
    let request = own.request(&sum);
    own.put(request).unwrap();
    assert_eq!(own.take().unwrap().outputs(), [Value::Int8(400)]);
    let times = database.metrics().servers;
    server.close();
    let ended = database.metrics().servers;
    assert!(ended.transaction > Duration::ZERO && ended.message > Duration::ZERO, "{ended:?}");
    assert!(
        ended.log > Duration::ZERO,
        "{ended:?}: the log server wrote the groups and forwarded the responses"
    );
    assert!(ended.since(&times).total() < Duration::from_secs(5), "{ended:?}");
}

#[test]
fn a_standby_runs_while_a_lock_is_awaited_and_the_blocked_one_is_answered_in_its_turn() {
    let database = database();
    let server = start(&database, 16, 1);
    let add = server.procedure("add").unwrap();
    let mut own = server.message_server();
    let holder = hold(&database, 3);
    for (row, tag) in [(3, 1), (0, 2), (1, 3)] {
        let mut request = request(&mut own, &add, row, 1);
        request.set_tag(tag);
        own.put(request).unwrap();
    }
    // Requests behind the blocked one are answered.
    assert_eq!([own.take().unwrap().tag(), own.take().unwrap().tag()], [2, 3]);
    assert_eq!((own.outstanding(), own.try_take().is_none()), (1, true));
    let stats = server.stats();
    assert_eq!((stats.blocked, stats.queued), (1, 0));
    assert!(stats.stood_in >= 1, "{stats:?}");
    holder.abort().unwrap();
    let response = own.take().unwrap();
    assert_eq!((response.tag(), response.outputs()), (1, &[Value::Int8(1)][..]));
    let account = &database.metrics().procedures;
    let add = account.iter().find(|account| account.name == "add").unwrap();
    assert_eq!((add.committed, add.lock_wait.count()), (3, 1), "its wait is in the time account");
}

#[test]
fn a_standby_runs_while_a_packet_is_awaited() {
    let log_wait_max = Duration::from_secs(30);
    let few = Options { packets_max: 1, transactions_max: 4, log_wait_max, ..Options::default() };
    let database = database_with(few);
    let read = Action::shared("rows", |transaction, arguments, _| {
        transaction.get(arguments.table()?, arguments.get::<i32>(0)?).map(drop)
    });
    database.register(Procedure::new("read", [ColumnType::Int4], read.by_argument(0))).unwrap();
    let server = start(&database, 16, 1);
    let [add, read] = ["add", "read"].map(|name| server.procedure(name).unwrap());
    let mut own = server.message_server();
    let packets = database.core().commits.log.borrow_all_packets();
    let mut writes = request(&mut own, &add, 0, 1);
    writes.set_tag(1);
    own.put(writes).unwrap();
    let mut reads = own.request(&read);
    reads.push(1).set_tag(2);
    own.put(reads).unwrap();
    // The other one has waited as long as it may, and has failed.
    assert_eq!(own.take().unwrap().tag(), 2);
    drop(packets);
    let response = own.take().unwrap();
    assert_eq!((response.tag(), response.outcome()), (1, &Ok(())));
}

#[test]
fn with_all_executors_blocked_nothing_runs_until_one_is_granted() {
    let database = database();
    let server = start(&database, 16, 1);
    let add = server.procedure("add").unwrap();
    let mut own = server.message_server();
    let holders = [hold(&database, 1), hold(&database, 2)];
    for row in [1, 2, 5] {
        let request = request(&mut own, &add, row, 1);
        own.put(request).unwrap();
    }
    until("both executors' waits", || server.stats().blocked == 2);
    std::thread::sleep(Duration::from_millis(20));
    assert!(own.try_take().is_none());
    assert_eq!(server.stats().queued, 1);
    holders.into_iter().for_each(|holder| holder.abort().unwrap());
    assert_eq!((0..3).map(|_| own.take().unwrap()).filter(|response| response.outcome().is_ok()).count(), 3);
}

#[test]
fn a_full_queue_refuses_and_tells_of_room() {
    let database = database();
    let server = start(&database, 2, 0);
    let add = server.procedure("add").unwrap();
    let mut own = server.message_server();
    let holder = hold(&database, 0);
    let first = request(&mut own, &add, 0, 1);
    own.put(first).unwrap();
    until("the wait for the lock", || server.stats().blocked == 1);
    for _ in 0..2 {
        let request = request(&mut own, &add, 0, 1);
        assert!(own.try_put(request).unwrap().is_none());
    }
    let refused = request(&mut own, &add, 0, 1);
    let refused = own.try_put(refused).unwrap().expect("the queue is full");
    assert_eq!((refused.procedure(), refused.arguments().len()), ("add", 2));
    let stats = server.stats();
    assert_eq!((stats.queued, stats.queued_max, stats.found_full), (2, 2, 1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            holder.abort().unwrap();
        });
        own.put(refused).unwrap();
    });
    let mut sums: Vec<i64> = (0..4)
        .map(|_| match own.take().unwrap().outputs()[0] {
            Value::Int8(sum) => sum,
            ref other => panic!("{other:?}"),
        })
        .collect();
    sums.sort_unstable();
    assert_eq!(sums, [1, 2, 3, 4], "each has run once");
    own.wait();
}

#[test]
fn closing_answers_all_that_is_on_the_queue() {
    let database = database();
    let server = start(&database, 64, 2);
    let add = server.procedure("add").unwrap();
    let mut own = server.message_server();
    let mut other = server.message_server();
    let holder = hold(&database, 0);
    for row in 0..ROWS {
        for server in [&mut own, &mut other] {
            let request = request(server, &add, row, 1);
            server.put(request).unwrap();
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            holder.abort().unwrap();
        });
        server.close();
    });
    let late = request(&mut own, &add, 0, 1);
    assert_eq!(own.put(late), Err(Error::Closed));
    for server in [&mut own, &mut other] {
        let responses: Vec<_> = std::iter::from_fn(|| server.take()).collect();
        assert_eq!(responses.len(), ROWS as usize);
        assert!(responses.iter().all(|response| response.outcome().is_ok()), "{responses:?}");
    }
}

#[test]
fn errors_and_panics_are_answered_and_nothing_of_them_is_kept() {
    let database = database();
    let server = start(&database, 4, 1);
    let [add, fail, panic, sum] = ["add", "fail", "panic", "sum"].map(|name| server.procedure(name).unwrap());
    assert!(matches!(server.procedure("none"), Err(Error::Procedure { .. })));
    let mut own = server.message_server();
    for to in [&fail, &panic, &add] {
        let request = request(&mut own, to, 0, 7);
        own.put(request).unwrap();
    }
    let failed = own.take().unwrap();
    assert_eq!((failed.outcome(), failed.outputs()), (&Err(Error::aborted("on purpose")), &[][..]));
    let panicked = own.take().unwrap();
    let error = panicked.outcome().clone().unwrap_err().to_string();
    assert!(error.contains("\"panic\"") && error.contains("its body panicked: a body of a test"), "{error}");
    assert_eq!(own.take().unwrap().outputs(), [Value::Int8(7)]);
    let mut wrong = own.request(&add);
    wrong.push(1);
    let error = own.put(wrong).unwrap_err().to_string();
    assert!(error.contains("expected arguments (int4, int8), found (int4)"), "{error}");
    let request = own.request(&sum);
    own.put(request).unwrap();
    assert_eq!(own.take().unwrap().outputs(), [Value::Int8(7)]);
}

/// Carried by a panic.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("the destructor of what a panic carries");
    }
}

#[test]
fn a_panic_that_carries_what_panics_when_it_is_dropped_ends_no_executor() {
    let database = database();
    let action = Action::exclusive("rows", |_, _, _| std::panic::panic_any(PanicsWhenDropped));
    database.register(Procedure::new("burst", [ColumnType::Int4], action.by_argument(0))).unwrap();
    let server = start(&database, 4, 0);
    let [add, burst] = ["add", "burst"].map(|name| server.procedure(name).unwrap());
    let mut own = server.message_server();
    for nth in 1..4 {
        let mut bursting = own.request(&burst);
        bursting.push(0);
        own.put(bursting).unwrap();
        let adding = request(&mut own, &add, 0, 1);
        own.put(adding).unwrap();
        // Without an executor the responses never come.
        let mut responses = Vec::new();
        let since = Instant::now();
        while responses.len() < 2 {
            assert!(since.elapsed() < Duration::from_secs(120), "{} responses", responses.len());
            responses.extend(own.try_take());
        }
        let error = responses[0].outcome().clone().unwrap_err().to_string();
        assert!(error.contains("its body panicked"), "{error}");
        assert_eq!(responses[1].outputs(), [Value::Int8(nth)]);
    }
}

/// Carried by a panic. When it is dropped, it lets another thread write to a row, and tells the outcome.
struct WritesWhenDropped(Lent, std::sync::mpsc::Sender<crate::Result<()>>);

/// A handle that the test takes back, so that no body keeps the database open.
type Lent = Arc<std::sync::Mutex<Option<Database>>>;

impl Drop for WritesWhenDropped {
    fn drop(&mut self) {
        let database = self.0.lock().expect("no panic with it").clone().expect("lent for the test");
        let told = self.1.clone();
        let write = move || {
            let options =
                crate::TxOptions { lock_timeout: Some(Duration::from_millis(300)), ..Default::default() };
            let table = database.table("rows")?;
            database.transact_with(&options, |transaction| {
                transaction.modify(&table, 0, |fields| fields.add_i64(1, 1).map(drop)).map(drop)
            })
        };
        let written = std::thread::spawn(write).join().expect("no panic");
        told.send(written).expect("the test waits for it");
    }
}

/// The payload of a panic is foreign code when it is dropped; by then the transaction that the panic ended holds
/// nothing.
#[test]
fn what_a_panic_carries_is_dropped_when_its_transaction_holds_nothing() {
    for engine in crate::Engine::ALL {
        let database = database_with(Options { engine, ..Options::default() });
        let (told, tells) = std::sync::mpsc::channel();
        let lent: Lent = Arc::new(std::sync::Mutex::new(Some(database.clone())));
        let (handle, told) = (lent.clone(), std::sync::Mutex::new(told));
        let action = Action::exclusive("rows", move |transaction, arguments, _| {
            transaction.modify(arguments.table()?, arguments.get::<i32>(0)?, |fields| {
                fields.add_i64(1, 1).map(drop)
            })?;
            let told = told.lock().expect("no panic with it").clone();
            std::panic::panic_any(WritesWhenDropped(handle.clone(), told))
        });
        database.register(Procedure::new("burst", [ColumnType::Int4], action.by_argument(0))).unwrap();
        let server = start(&database, 4, 0);
        let burst = server.procedure("burst").unwrap();
        let mut own = server.message_server();
        let mut bursting = own.request(&burst);
        bursting.push(0);
        own.put(bursting).unwrap();
        assert_eq!(tells.recv_timeout(Duration::from_secs(120)), Ok(Ok(())), "{engine}");
        assert!(own.take().unwrap().outcome().is_err());
        lent.lock().expect("no panic with it").take();
    }
}

/// Counts when it is dropped.
struct Counts(Arc<AtomicU64>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What a body has captured is dropped with the last response to a call of it, if nothing else holds it.
#[test]
fn responses_that_no_message_server_takes_go_away() {
    let database = database();
    let dropped = Arc::new(AtomicU64::new(0));
    let counts = Counts(dropped.clone());
    let waits = Action::exclusive("rows", move |transaction, arguments, _| {
        let Counts(_) = &counts;
        transaction.modify(arguments.table()?, arguments.get::<i32>(0)?, |_| Ok(())).map(drop)
    });
    database.register(Procedure::new("waits", [ColumnType::Int4], waits.by_argument(0))).unwrap();
    let server = start(&database, 8, 1);
    let [add, waits] = ["add", "waits"].map(|name| server.procedure(name).unwrap());
    let [mut own, mut other] = [(); 2].map(|()| server.message_server());
    let held = hold(&database, 1);
    // One response lies in the queue when the message server goes, one comes later.
    for row in [0, 1] {
        let mut request = own.request(&waits);
        request.push(row);
        own.put(request).unwrap();
    }
    let behind = request(&mut other, &add, 2, 1);
    other.put(behind).unwrap();
    assert_eq!(other.take().unwrap().outcome(), &Ok(()));
    drop((own, waits));
    drop(held);
    server.close();
    drop((other, add));
    database.close().unwrap();
    until("the drop of what the body has captured", || dropped.load(Ordering::SeqCst) == 1);
}

#[test]
fn deadlocked_requests_run_again() {
    let database = database();
    let server = start(&database, 64, 3);
    let (swap, sum) = (server.procedure("swap").unwrap(), server.procedure("sum").unwrap());
    let stop = Arc::new(AtomicU64::new(0));
    // A thread outside of the server locks the rows in the other order, until one of the server's transactions was a
    // victim.
    let (own, turns) = (database.clone(), stop.clone());
    let outside = std::thread::spawn(move || {
        let table = own.table("rows").unwrap();
        let mut committed = 0;
        while turns.load(Ordering::Relaxed) == 0 {
            let add = |transaction: &mut Transaction, row: i32| {
                transaction.modify(&table, row, |fields| fields.add_i64(1, 1).map(drop)).map(drop)
            };
            own.transact(|transaction| {
                add(transaction, 1)?;
                std::thread::yield_now();
                add(transaction, 0)
            })
            .unwrap();
            committed += 1;
        }
        committed
    });
    let mut own = server.message_server();
    let mut requests = 0;
    let since = Instant::now();
    while server.stats().restarted == 0 && since.elapsed() < Duration::from_secs(20) {
        let mut request = own.request(&swap);
        request.push(0).push(1).push(1i64);
        own.put(request).unwrap();
        requests += 1;
        while let Some(response) = own.try_take() {
            assert_eq!(response.outcome(), &Ok(()));
            own.recycle(response);
        }
    }
    while let Some(response) = own.take() {
        assert_eq!(response.outcome(), &Ok(()));
    }
    stop.store(1, Ordering::Relaxed);
    let committed: i64 = outside.join().unwrap();
    let request = own.request(&sum);
    own.put(request).unwrap();
    assert_eq!(own.take().unwrap().outputs(), [Value::Int8(2 * (requests + committed))], "each once");
}

#[test]
fn a_closed_database_answers_with_that_and_bad_options_are_named() {
    let database = database();
    for (options, named) in [
        (TransactionServerOptions { queue: 0, standbys: 1 }, "TransactionServerOptions::queue"),
        (TransactionServerOptions { queue: 1, standbys: 5_000 }, "expected 0 to 1000"),
    ] {
        let error = TransactionServer::start(&database, &options).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let server = start(&database, 4, 0);
    let add = server.procedure("add").unwrap();
    let mut own = server.message_server();
    database.close().unwrap();
    let request = request(&mut own, &add, 0, 1);
    own.put(request).unwrap();
    assert_eq!(own.take().unwrap().outcome(), &Err(Error::Closed));
}

#[test]
fn many_message_servers_and_outside_transactions_lose_nothing() {
    let seconds = crate::io::Random::test_time_from_environment();
    let database = database();
    let server = start(&database, 8, 4);
    let [add, swap] = ["add", "swap"].map(|name| server.procedure(name).unwrap());
    let until = Instant::now() + seconds;
    let start = Barrier::new(4);
    let (done, sums) = mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..3i32 {
            let (server, add, swap, start, done) = (&server, &add, &swap, &start, done.clone());
            scope.spawn(move || {
                let mut own = server.message_server();
                start.wait();
                let mut added = 0;
                let mut row = number;
                while Instant::now() < until {
                    row = (row * 5 + 3) % ROWS;
                    let request = if row % 2 == 0 {
                        added += 1;
                        request(&mut own, add, row, 1)
                    } else {
                        added += 2;
                        let mut request = own.request(swap);
                        request.push(row).push((row + number + 1) % ROWS).push(1i64);
                        request
                    };
                    own.put(request).unwrap();
                    while let Some(response) = own.try_take() {
                        assert_eq!(response.outcome(), &Ok(()));
                        own.recycle(response);
                    }
                }
                while let Some(response) = own.take() {
                    assert_eq!(response.outcome(), &Ok(()));
                }
                done.send(added).unwrap();
            });
        }
        let (database, start, done) = (&database, &start, done);
        scope.spawn(move || {
            let table = database.table("rows").unwrap();
            start.wait();
            let mut added = 0;
            while Instant::now() < until {
                for row in [5, 2] {
                    let add = |transaction: &mut Transaction| {
                        transaction.modify(&table, row, |fields| fields.add_i64(1, 1).map(drop))?;
                        std::thread::sleep(Duration::from_micros(200));
                        Ok(())
                    };
                    database.transact(add).unwrap();
                    added += 1;
                }
            }
            done.send(added).unwrap();
        });
    });
    let added: i64 = sums.into_iter().sum();
    let stats = server.stats();
    assert!(stats.blocked > 0, "{stats:?}: nothing was tested");
    server.close();
    let table = database.table("rows").unwrap();
    let sum = database
        .read(|transaction| {
            (0..ROWS)
                .map(|id| transaction.look(&table, id, |row| row.get_i64(1))?.unwrap())
                .sum::<crate::Result<i64>>()
        })
        .unwrap();
    assert_eq!(sum, added);
    println!("tally: message servers, {} transactions", stats.requests);
}
