//! Closing a database where something of it is under way: in a body, with a handle open, beside calls, by the last handle that
//! goes away.

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::in_time;
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Error, LockForm, Logging, OpenError, Options, Procedure, Result,
    TableDef, TransactionServer, TransactionServerOptions,
};

/// Of the longest wait in these tests.
const LIMIT: Duration = Duration::from_secs(60);

fn options(executor_threads: usize) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        locks: LockForm::Local,
        executors: 4,
        executor_threads,
        ..Options::default()
    }
}

fn with_a_row(options: Options) -> (Arc<MemoryDisk>, Database) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options).unwrap();
    let definition = TableDef::new("t", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    db.transact(|tx| {
        let table = tx.create_table(&definition)?;
        tx.insert(&table, &[Value::Int4(1)])
    })
    .unwrap();
    (disk, db)
}

/// A procedure whose body does this with a handle, the first time.
fn register(db: &Database, run: impl Fn(Database) -> Result<()> + Send + Sync + 'static) {
    let handle = Mutex::new(Some(db.clone()));
    let action = Action::exclusive("t", move |_, _, _| {
        let handle = handle.lock().unwrap().take();
        handle.map_or(Ok(()), &run)
    });
    db.register(Procedure::new("p", [ColumnType::Int4], action.by_argument(0))).unwrap();
}

/// Waits until the database is closed, and finds what was committed.
fn opens_again(disk: Arc<MemoryDisk>) {
    let until = Instant::now() + LIMIT;
    let db = loop {
        match Database::open_on(disk.clone(), options(0)) {
            Ok(db) => break db,
            Err(OpenError::Locked { .. }) if Instant::now() < until => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    let table = db.table("t").unwrap();
    assert!(db.transact(|tx| tx.get(&table, 1)).unwrap().is_some());
}

/// In a closure, in place, on a thread that owns executors, on a transaction server's: the close would wait for the body that
/// asks for it.
#[test]
fn a_close_in_a_body_is_refused_and_the_database_stays_open() {
    in_time(LIMIT, || {
        for threads in [0, 1, 3] {
            let (disk, db) = with_a_row(options(threads));
            assert_eq!(db.transact(|_| db.clone().close()), Err(Error::Nested));
            assert_eq!(db.read(|_| db.clone().close()), Err(Error::Nested));
            register(&db, Database::close);
            assert_eq!(db.call("p", &[Value::Int4(1)]), Err(Error::Nested), "{threads} threads");
            assert_eq!(db.call("p", &[Value::Int4(1)]), Ok(vec![]), "{threads} threads");
            db.close().unwrap();
            opens_again(disk);
        }
        let (disk, db) = with_a_row(options(0));
        register(&db, Database::close);
        let server = TransactionServer::start(&db, &TransactionServerOptions::default()).unwrap();
        let mut message_server = server.message_server();
        for outcome in [Err(Error::Nested), Ok(())] {
            let mut request = message_server.request(&server.procedure("p").unwrap());
            request.push(1);
            message_server.put(request).unwrap();
            assert_eq!(message_server.take().unwrap().outcome(), &outcome);
        }
        server.close();
        db.close().unwrap();
        opens_again(disk);
    });
}

/// The last handle is a body's, and goes away there.
#[test]
fn a_database_whose_last_handle_goes_away_in_a_body_closes() {
    in_time(LIMIT, || {
        for threads in [1, 3] {
            let (disk, db) = with_a_row(options(threads));
            let (goes, may_go) = std::sync::mpsc::channel::<()>();
            let may_go = Mutex::new(may_go);
            register(&db, move |handle| {
                // The caller's has gone.
                let _ = may_go.lock().unwrap().recv();
                drop(handle);
                Ok(())
            });
            drop(db.send_call("p", &[Value::Int4(1)]).unwrap());
            drop(db);
            drop(goes);
            opens_again(disk);
        }
    });
}

/// A transaction server that goes away in a body of its own.
#[test]
fn a_transaction_server_dropped_in_its_own_body_ends() {
    in_time(LIMIT, || {
        let (disk, db) = with_a_row(options(0));
        let there: Arc<Mutex<Option<TransactionServer>>> = Arc::default();
        let taken = there.clone();
        register(&db, move |_| {
            drop(taken.lock().unwrap().take());
            Ok(())
        });
        let server = TransactionServer::start(&db, &TransactionServerOptions::default()).unwrap();
        let mut message_server = server.message_server();
        let mut request = message_server.request(&server.procedure("p").unwrap());
        request.push(1);
        *there.lock().unwrap() = Some(server);
        message_server.put(request).unwrap();
        assert_eq!(message_server.take().unwrap().outcome(), &Ok(()));
        db.close().unwrap();
        drop(message_server);
        opens_again(disk);
    });
}

/// It goes away in a body of its own, and its executors have the last handles of the database.
#[test]
fn a_transaction_server_has_the_last_handle() {
    in_time(LIMIT, || {
        // The close makes a checkpoint.
        let (disk, db) = with_a_row(Options { logging: Logging::None, ..options(0) });
        let there: Arc<Mutex<Option<TransactionServer>>> = Arc::default();
        let taken = there.clone();
        let (goes, may_go) = std::sync::mpsc::channel::<()>();
        let may_go = Mutex::new(may_go);
        register(&db, move |handle| {
            drop(handle);
            drop(taken.lock().unwrap().take());
            // The caller's handle has gone.
            let _ = may_go.lock().unwrap().recv();
            Ok(())
        });
        let server = TransactionServer::start(&db, &TransactionServerOptions::default()).unwrap();
        let mut message_server = server.message_server();
        let mut request = message_server.request(&server.procedure("p").unwrap());
        request.push(1);
        *there.lock().unwrap() = Some(server);
        message_server.put(request).unwrap();
        drop((db, message_server));
        drop(goes);
        opens_again(disk);
    });
}

#[test]
fn a_close_with_a_handle_open_on_the_same_thread_aborts_it() {
    in_time(LIMIT, || {
        for threads in [0, 2] {
            let (disk, db) = with_a_row(options(threads));
            let table = db.table("t").unwrap();
            let mut handle = db.begin().unwrap();
            assert!(handle.delete(&table, 1).unwrap());
            db.clone().close().unwrap();
            assert_eq!(handle.commit(), Err(Error::Closed));
            drop(db);
            opens_again(disk);
        }
    });
}

/// Identifiers are computed by closures of the user: a call that one of them ends by a panic is none that a close waits for.
#[test]
fn an_identifier_that_panics_is_no_call_that_a_close_waits_for() {
    in_time(LIMIT, || {
        for threads in [0, 2] {
            let (disk, db) = with_a_row(options(threads));
            let action = Action::exclusive("t", |_, _, _| Ok(())).by(|arguments: &[Value]| {
                assert_ne!(arguments, [Value::Int4(13)], "no identifier");
                arguments[0].clone()
            });
            db.register(Procedure::new("p", [ColumnType::Int4], action)).unwrap();
            let called = std::panic::AssertUnwindSafe(|| db.call("p", &[Value::Int4(13)]));
            assert!(std::panic::catch_unwind(called).is_err());
            assert_eq!(db.call("p", &[Value::Int4(1)]), Ok(vec![]));
            db.close().unwrap();
            opens_again(disk);
        }
    });
}
