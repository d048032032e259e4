//! Wakers of tickets and of sent calls are foreign code: they run with nothing held, and a waker that panics, sleeps or
//! comes back to the database affects only itself.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::common::hooked::{About, HookedDisk};
use crate::common::in_time;
use rialto::io::{Caching, Clock, MemoryDisk, SimulatedDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Durability, Executors, GroupCommitDesign, LockPolicy, OpenError,
    Options, Procedure, Sent, Table, TableDef, Ticket, Transaction, TransactionServer,
    TransactionServerOptions, TxOptions,
};

/// The limit of each wait in these tests.
const LIMIT: Duration = Duration::from_secs(300);
const ROWS: i32 = 8;

fn options(design: GroupCommitDesign) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        group_commit: design.into(),
        // Set, so that no opening measures it.
        log_writes: Some(Caching::Buffered),
        log_writes_in_flight: Some(1),
        ..Options::default()
    }
}

/// A database on a disk whose writes take milliseconds, so that tickets are waited for.
fn database(options: Options) -> (Arc<MemoryDisk>, Database, Table) {
    let memory = MemoryDisk::new();
    let disk = SimulatedDisk::named("hdd", memory.clone(), Clock::System).expect("a preset");
    let db = Database::open_on(disk, options).unwrap();
    let table = with_rows(&db);
    (memory, db, table)
}

fn with_rows(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        (0..ROWS).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)]))?;
        Ok(table)
    })
    .unwrap()
}

fn at(durability: Durability) -> TxOptions {
    TxOptions { durability: Some(durability), ..TxOptions::default() }
}

fn change(db: &Database, table: &Table, id: i32, durability: Durability) -> Ticket {
    let changed =
        db.submit_with(&at(durability), |tx| tx.modify(table, id, |row| row.add_i64(1, 1).map(drop)));
    let (there, ticket) = changed.unwrap();
    assert!(there);
    ticket
}

/// Runs this function when it is woken, with its value.
struct Does<T>(Mutex<Option<T>>, fn(T));

impl<T: Send + 'static> Wake for Does<T> {
    fn wake(self: Arc<Self>) {
        let with = self.0.lock().unwrap().take();
        if let Some(with) = with {
            (self.1)(with);
        }
    }
}

fn does<T: Send + 'static>(with: T, what: fn(T)) -> Waker {
    Waker::from(Arc::new(Does(Mutex::new(Some(with)), what)))
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Registers this waker with a ticket; with another ticket, if that one is done before it is asked.
fn has_woken(db: &Database, table: &Table, waker: &Waker) {
    while poll(&mut change(db, table, 0, Durability::Disk), waker).is_ready() {}
}

/// A waker that sends on a channel.
fn bell() -> (Waker, Receiver<()>) {
    let (rings, is_rung) = channel();
    (does(rings, |rings: Sender<()>| rings.send(()).unwrap()), is_rung)
}

fn opens_again(disk: Arc<MemoryDisk>) {
    let until = Instant::now() + LIMIT;
    loop {
        match Database::open_on(disk.clone(), Options { memory_bytes: 64 << 20, ..Options::default() }) {
            Ok(_) => return,
            Err(OpenError::Locked { .. }) if Instant::now() < until => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads rows when it is woken, and notes on which thread.
struct Looks {
    db: Database,
    table: Table,
    /// The errors, each with its thread.
    refused: Arc<Mutex<Vec<(ThreadId, String)>>>,
    threads: Arc<Mutex<HashSet<ThreadId>>>,
    woken: Arc<AtomicUsize>,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.threads.lock().unwrap().insert(std::thread::current().id());
        let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() };
        // Rows that a thread has locked which takes its place at level 1; that is at any time except while it runs
        // this.
        for id in 1..ROWS {
            let mut tx = self.db.begin_with(&refuse).unwrap();
            if let Err(error) = tx.get(&self.table, id) {
                self.refused.lock().unwrap().push((std::thread::current().id(), error.to_string()));
            }
        }
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

/// Threads that commit at level 1 and on disk advance the log's position, between the place and the apply of a commit
/// and with the writer's turn: none of them runs a waker.
#[test]
fn no_waker_is_run_by_a_thread_that_commits() {
    in_time(LIMIT, || {
        for design in GroupCommitDesign::ALL {
            let (_, db, table) = database(options(design));
            let (stop, threads) = (AtomicBool::new(false), Arc::<Mutex<HashSet<ThreadId>>>::default());
            let woken = Arc::new(AtomicUsize::new(0));
            std::thread::scope(|scope| {
                let committers = [Durability::Memory, Durability::Disk].map(|durability| {
                    let (db, table, stop) = (&db, &table, &stop);
                    let committer = scope.spawn(move || {
                        let id = 1 + durability as i32;
                        while !stop.load(Ordering::SeqCst) {
                            db.transact_with(&at(durability), |tx| {
                                tx.modify(table, id, |row| row.add_i64(1, 1).map(drop))
                            })
                            .unwrap();
                        }
                    });
                    committer.thread().id()
                });
                let mut expected = 0;
                while expected < 10 {
                    let looks = Looks {
                        db: db.clone(),
                        table: table.clone(),
                        refused: Arc::default(),
                        threads: threads.clone(),
                        woken: woken.clone(),
                    };
                    let mut ticket = change(&db, &table, 0, Durability::Disk);
                    if poll(&mut ticket, &Waker::from(Arc::new(looks))).is_pending() {
                        expected += 1;
                        while woken.load(Ordering::SeqCst) < expected {
                            std::thread::yield_now();
                        }
                        assert_eq!(ticket.poll_done(), Some(Ok(())));
                    }
                }
                stop.store(true, Ordering::SeqCst);
                let threads = threads.lock().unwrap();
                assert_eq!(threads.len(), 1, "{design}: wakers run on a thread of their own");
                assert!(committers.iter().all(|id| !threads.contains(id)), "{design}");
            });
        }
    });
}

/// A waker sees no lock that is held by the thread that runs it.
#[test]
fn a_waker_finds_no_lock_of_the_thread_that_runs_it() {
    in_time(LIMIT, || {
        let (_, db, table) = database(options(GroupCommitDesign::LogServer));
        let (refused, woken) =
            (Arc::<Mutex<Vec<(ThreadId, String)>>>::default(), Arc::new(AtomicUsize::new(0)));
        for nth in 0..20 {
            let looks = Looks {
                db: db.clone(),
                table: table.clone(),
                refused: refused.clone(),
                threads: Arc::default(),
                woken: woken.clone(),
            };
            let mut ticket = change(&db, &table, 0, Durability::Disk);
            let pending = poll(&mut ticket, &Waker::from(Arc::new(looks))).is_pending();
            // Only this thread ever locks the others: elsewhere a waker may meet locks of its own.
            db.transact_with(&at(Durability::Memory), |tx| {
                tx.modify(&table, 1 + nth % (ROWS - 1), |row| row.add_i64(1, 1).map(drop))
            })
            .unwrap();
            while pending && ticket.poll_done().is_none() {
                std::thread::yield_now();
            }
        }
        db.sync().unwrap();
        let mut refused = std::mem::take(&mut *refused.lock().unwrap());
        refused.retain(|(thread, _)| *thread == std::thread::current().id());
        assert_eq!(refused, []);
    });
}

/// One that panics when it is woken, and one that panics when it is dropped.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a waker's destructor");
    }
}

#[test]
fn wakers_that_panic_affect_no_other() {
    in_time(LIMIT, || {
        for design in GroupCommitDesign::ALL {
            let (disk, db, table) = database(options(design));
            for round in 0..2 {
                has_woken(&db, &table, &does((), |()| panic!("a waker")));
                has_woken(&db, &table, &does(PanicsWhenDropped, drop));
                let (waker, is_rung) = bell();
                has_woken(&db, &table, &waker);
                is_rung.recv().unwrap_or_else(|error| panic!("{design}, {round}: {error}"));
                for durability in [Durability::Memory, Durability::Disk] {
                    change(&db, &table, 1, durability).wait().unwrap();
                }
            }
            db.close().unwrap();
            opens_again(disk);
        }
    });
}

/// As a waker that takes a lock of a thread that commits, or that waits for its own commit.
#[test]
fn a_waker_that_sleeps_keeps_nothing_from_committing_or_closing() {
    in_time(LIMIT, || {
        for design in GroupCommitDesign::ALL {
            let (disk, db, table) = database(options(design));
            // It commits, and waits for that.
            let (done, is_done) = channel();
            let commits = does((db.clone(), table.clone(), done), |(db, table, done)| {
                done.send(change(&db, &table, 2, Durability::Disk).wait()).unwrap();
            });
            has_woken(&db, &table, &commits);
            assert_eq!(is_done.recv().unwrap(), Ok(()), "{design}");
            // It sleeps until this thread has committed, at both levels and with tickets, and has closed the database.
            let (wakes_up, sleeps) = channel::<()>();
            has_woken(&db, &table, &does(sleeps, |sleeps: Receiver<()>| _ = sleeps.recv()));
            for durability in [Durability::Memory, Durability::Disk] {
                for id in 1..3 {
                    change(&db, &table, id, durability).wait().unwrap();
                    db.transact_with(&at(durability), |tx| tx.update(&table, id, &[(1, Value::Int4(0))]))
                        .unwrap();
                }
            }
            db.sync().unwrap();
            db.close().unwrap();
            opens_again(disk);
            drop(wakes_up);
        }
    });
}

#[test]
fn a_database_is_closed_in_a_waker_and_by_the_last_handle_that_goes_away_there() {
    in_time(LIMIT, || {
        for design in [GroupCommitDesign::LogServer, GroupCommitDesign::Hiber] {
            let (disk, db, table) = database(options(design));
            let (done, is_done) = channel();
            let closes = does((db.clone(), done), |(db, done)| done.send(db.close()).unwrap());
            has_woken(&db, &table, &closes);
            assert_eq!(is_done.recv().unwrap(), Ok(()), "{design}");
            drop(db);
            opens_again(disk);

            let (disk, db, table) = database(options(design));
            let (goes, may_go) = channel::<()>();
            let drops = does((db.clone(), may_go), |(db, may_go): (Database, Receiver<()>)| {
                let _ = may_go.recv();
                drop(db);
            });
            has_woken(&db, &table, &drops);
            drop(db);
            drop(goes);
            opens_again(disk);
        }
    });
}

/// Wakers of a call that was sent to threads that own executors: these threads run no waker either.
#[test]
fn wakers_of_calls_that_panic_or_sleep_cost_no_executor_anything() {
    in_time(LIMIT, || {
        for durability in [Durability::Memory, Durability::Disk] {
            let (disk, db, table) = database(Options {
                engine: Executors::of(4, 2).handing_over().into(),
                durability,
                ..options(GroupCommitDesign::LogServer)
            });
            let action = Action::exclusive("t", |tx, arguments, _| {
                let id: i32 = arguments.get(0)?;
                tx.modify(arguments.table()?, id, |row| row.add_i64(1, 1).map(drop)).map(drop)
            });
            db.register(Procedure::new("change", [ColumnType::Int4], action.by_argument(0))).unwrap();
            let call = |id: i32| db.send_call("change", &[Value::Int4(id)]).unwrap();
            // A handle that has the row keeps the call from its end until it is waited for.
            let wakes = |waker: &Waker| {
                let mut handle = db.begin().unwrap();
                assert!(handle.modify(&table, 3, |row| row.add_i64(1, 0).map(drop)).unwrap());
                let mut sent = call(3);
                assert!(poll(&mut sent, waker).is_pending());
                drop(handle);
            };
            let (wakes_up, sleeps) = channel::<()>();
            wakes(&does((), |()| panic!("a waker")));
            wakes(&does(PanicsWhenDropped, drop));
            let (waker, is_rung) = bell();
            wakes(&waker);
            is_rung.recv().unwrap();
            wakes(&does(sleeps, |sleeps: Receiver<()>| _ = sleeps.recv()));
            for id in 0..ROWS {
                assert_eq!(call(id).wait(), Ok(vec![]));
            }
            db.close().unwrap();
            opens_again(disk);
            drop(wakes_up);
        }
    });
}

/// Whichever thread reaches the places that they wait for: in most designs committers write the log themselves, and a
/// committer at level 1 gathers for others.
#[test]
fn a_waker_that_sleeps_holds_up_no_response_and_no_wait_for_a_call() {
    in_time(LIMIT, || {
        use GroupCommitDesign::{CommitLock, Hiber, LogServer};
        for design in [LogServer, CommitLock, Hiber] {
            let (disk, db, table) =
                database(Options { engine: Executors::of(4, 2).handing_over().into(), ..options(design) });
            let action = Action::exclusive("t", |tx, arguments, _| {
                let id: i32 = arguments.get(0)?;
                tx.modify(arguments.table()?, id, |row| row.add_i64(1, 1).map(drop)).map(drop)
            });
            db.register(Procedure::new("change", [ColumnType::Int4], action.by_argument(0))).unwrap();
            let (wakes_up, sleeps) = channel::<()>();
            has_woken(&db, &table, &does(sleeps, |sleeps: Receiver<()>| _ = sleeps.recv()));
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for (id, durability) in [(0, Durability::Memory), (1, Durability::Disk)] {
                    let (db, table, stop) = (&db, &table, &stop);
                    scope.spawn(move || {
                        while !stop.load(Ordering::SeqCst) {
                            change(db, table, id, durability).wait().unwrap();
                            let options = at(durability);
                            let body = |tx: &mut Transaction| {
                                tx.modify(table, id, |row| row.add_i64(1, 1).map(drop))
                            };
                            db.transact_with(&options, body).unwrap();
                        }
                    });
                }
                let server = TransactionServer::start(&db, &TransactionServerOptions::default()).unwrap();
                let (change, mut messages) = (server.procedure("change").unwrap(), server.message_server());
                for nth in 0..30 {
                    let level = if nth % 4 == 0 { Durability::Memory } else { Durability::Disk };
                    let mut request = messages.request(&change);
                    request.push(2 + nth % 3).set_durability(level);
                    messages.put(request).unwrap();
                    assert_eq!(messages.take().expect("it is under way").outcome(), &Ok(()), "{design}");
                    let sent = db.send_call_with(&at(level), "change", &[Value::Int4(5 + nth % 3)]).unwrap();
                    assert_eq!(sent.wait(), Ok(vec![]), "{design}");
                }
                server.close();
                stop.store(true, Ordering::SeqCst);
            });
            db.close().unwrap();
            opens_again(disk);
            drop(wakes_up);
        }
    });
}

/// A waker that is counted as long as it is kept.
struct Kept(Arc<AtomicUsize>);

impl Kept {
    fn waker(kept: &Arc<AtomicUsize>) -> Waker {
        kept.fetch_add(1, Ordering::SeqCst);
        Waker::from(Arc::new(Kept(kept.clone())))
    }
}

impl Wake for Kept {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A task that polls many futures polls all of them whenever it is woken, and may be another task each time: the log
/// keeps one waker for each future, the newest.
#[test]
fn futures_that_are_polled_again_and_again_have_a_waker_each() {
    const FUTURES: usize = 40;
    in_time(LIMIT, || {
        let inner = HookedDisk::new(MemoryDisk::new());
        let options = options(GroupCommitDesign::LogServer);
        let db = Database::open_on(inner.clone(), options).unwrap();
        let table = with_rows(&db);
        let action = Action::exclusive("t", |tx, arguments, _| {
            let id: i32 = arguments.get(0)?;
            tx.modify(arguments.table()?, id, |row| row.add_i64(1, 1).map(drop)).map(drop)
        });
        db.register(Procedure::new("change", [ColumnType::Int4], action.by_argument(0))).unwrap();
        db.sync().unwrap();
        let (slow, goes_on) = channel::<()>();
        let goes_on = Mutex::new(goes_on);
        inner.before(move |file: &str, about| {
            if file.starts_with("log-0") && about == About::Sync {
                // Without a sender the disk is fast.
                let _ = goes_on.lock().unwrap().recv();
            }
        });
        let mut tickets: Vec<Ticket> =
            (0..FUTURES).map(|_| change(&db, &table, 1, Durability::Disk)).collect();
        let mut calls: Vec<Sent> =
            (0..FUTURES).map(|_| db.send_call("change", &[Value::Int4(2)]).unwrap()).collect();
        let kept = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let waker = Kept::waker(&kept);
            assert!(tickets.iter_mut().all(|ticket| poll(ticket, &waker).is_pending()));
            assert!(calls.iter_mut().all(|call| poll(call, &waker).is_pending()));
        }
        // The newest one, and those of calls that have come to their places since.
        assert_eq!(kept.load(Ordering::SeqCst), 1, "wakers of earlier rounds");
        drop(slow);
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        calls.into_iter().for_each(|call| drop(call.wait().unwrap()));
    });
}

/// A future may be polled any number of times.
#[test]
fn a_ticket_that_is_polled_again_and_again_wakes_once() {
    in_time(LIMIT, || {
        let (_, db, table) = database(options(GroupCommitDesign::LogServer));
        struct Counts(AtomicUsize);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let counts = Arc::new(Counts(AtomicUsize::new(0)));
        let waker = Waker::from(counts.clone());
        // A ticket that is done before it is asked keeps no waker: another one, then.
        let mut ticket = loop {
            let mut ticket = change(&db, &table, 1, Durability::Disk);
            if poll(&mut ticket, &waker).is_pending() {
                break ticket;
            }
        };
        let mut polls = 1;
        while poll(&mut ticket, &waker).is_pending() {
            polls += 1;
        }
        db.sync().unwrap();
        // The waker thread has run everything before it.
        let (bell, is_rung) = bell();
        has_woken(&db, &table, &bell);
        is_rung.recv().unwrap();
        // Once more, if it was polled at the moment at which it was done.
        let woken = counts.0.load(Ordering::SeqCst);
        assert!((1..=2).contains(&woken), "{polls} polls, {woken} wakes");
    });
}
