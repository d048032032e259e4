//! Closing a database while it is in use: in a body, with a handle open, beside calls, by the drop of the last handle.

use std::cell::RefCell;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::hooked::{About, HookedDisk};
use crate::common::in_time;
use rialto::io::{Disk, FaultKind, FaultyDisk, MemoryDisk};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, BackupKind, Checkpointing, Database, Durability, Engine, Error, Executors, Logging,
    MessageServer, OpenError, Options, Procedure, Residence, Result, Table, TableDef, Transaction,
    TransactionServer, TransactionServerOptions, TxOptions,
};

/// The limit of each wait in these tests.
const LIMIT: Duration = Duration::from_secs(60);

fn options(threads: usize) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        engine: Executors::of(4, threads).handing_over().into(),
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

/// Waits until the database is closed, and checks that what was committed is there.
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

/// The outcome of a close is known to every handle that asks for it.
#[test]
fn each_close_tells_what_the_first_one_came_to() {
    let faulty = FaultyDisk::new(1);
    let options = Options { memory_flush_interval: Duration::from_secs(3600), ..options(0) };
    let db = Database::open_on(faulty.clone(), options).unwrap();
    let other = db.clone();
    let definition = TableDef::new("t", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    let at_level_1 = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    db.transact_with(&at_level_1, |tx| tx.insert(&table, &[Value::Int4(1)])).unwrap();
    faulty.fail_always(FaultKind::Sync, "log-0", 0);
    let first = db.close();
    assert!(matches!(first, Err(Error::Stopped { .. })), "{first:?}");
    assert_eq!(other.close(), first);
}

/// In a closure, in place, on a thread that owns executors, on a transaction server's: the close would wait for the
/// body that asks for it.
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

/// The last handle belongs to a body, and is dropped there.
#[test]
fn a_database_whose_last_handle_goes_away_in_a_body_closes() {
    in_time(LIMIT, || {
        for threads in [1, 3] {
            let (disk, db) = with_a_row(options(threads));
            let (goes, may_go) = std::sync::mpsc::channel::<()>();
            let may_go = Mutex::new(may_go);
            register(&db, move |handle| {
                // The caller's handle has been dropped.
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

/// Starts a transaction server, leaves it for the body, and sends it a request.
fn serve_one(db: &Database, there: &Mutex<Option<TransactionServer>>) -> MessageServer {
    let server = TransactionServer::start(db, &TransactionServerOptions::default()).unwrap();
    let mut message_server = server.message_server();
    let mut request = message_server.request(&server.procedure("p").unwrap());
    request.push(1);
    *there.lock().unwrap() = Some(server);
    message_server.put(request).unwrap();
    message_server
}

/// A transaction server is dropped in a body of its own.
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
        let mut message_server = serve_one(&db, &there);
        assert_eq!(message_server.take().unwrap().outcome(), &Ok(()));
        db.close().unwrap();
        drop(message_server);
        opens_again(disk);
    });
}

/// It is dropped in a body of its own, and its executors have the last handles of the database.
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
            // The caller's handle has been dropped.
            let _ = may_go.lock().unwrap().recv();
            Ok(())
        });
        let message_server = serve_one(&db, &there);
        drop((db, message_server));
        drop(goes);
        opens_again(disk);
    });
}

const LOADED: i32 = 1_000;

/// Makes a table, and loads it.
fn load(tx: &mut Transaction) -> Result<()> {
    let definition =
        TableDef::new("loaded", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
    let table = tx.create_table(&definition)?;
    (0..LOADED).try_for_each(|id| tx.insert(&table, &[Value::Int4(id)]))
}

/// Opens the database and commits a load, runs `meanwhile`, and checks that the rows are there when the database is
/// opened again.
fn keeps_its_load(disk: Arc<dyn Disk>, meanwhile: impl FnOnce()) {
    let db = Database::open_on(disk.clone(), options(0)).unwrap();
    db.transact(load).unwrap();
    db.sync().unwrap();
    meanwhile();
    db.close().unwrap();
    let db = Database::open_on(disk, options(0)).unwrap();
    let table = db.table("loaded").unwrap();
    assert_eq!(db.transact(|tx| tx.count(&table)), Ok(LOADED as u64));
}

/// Different openings number their load files alike.
#[test]
fn a_handle_of_an_earlier_opening_leaves_committed_loads_alone() {
    let ends: [fn(Transaction<'static>); 3] = [
        drop,
        |handle| assert_eq!(handle.abort(), Ok(())),
        |handle| assert_eq!(handle.commit(), Err(Error::Closed)),
    ];
    in_time(LIMIT, move || {
        for end in ends {
            let (disk, db) = with_a_row(options(0));
            let mut earlier = db.begin().unwrap();
            load(&mut earlier).unwrap();
            db.close().unwrap();
            keeps_its_load(disk, || end(earlier));
        }
    });
}

/// The commit finds the database closed when it has written its load file.
#[test]
fn a_close_waits_for_a_load_file_that_is_being_written() {
    in_time(LIMIT, || {
        let disk = HookedDisk::new(MemoryDisk::new());
        let db = Database::open_on(disk.clone(), options(0)).unwrap();
        let ((reaches, is_reached), (goes_on, may_go_on)) = (channel(), channel::<()>());
        let may_go_on = Mutex::new(may_go_on);
        disk.before(move |file, about| {
            if file.starts_with("load-") && about == About::Sync {
                let _ = reaches.send(());
                let _ = may_go_on.lock().unwrap().recv();
            }
        });
        let mut loading = db.begin().unwrap();
        load(&mut loading).unwrap();
        let commit = std::thread::spawn(move || loading.commit());
        is_reached.recv().unwrap();
        let closed = db.clone();
        let close = std::thread::spawn(move || db.close());
        while closed.begin().is_ok() {
            std::thread::yield_now();
        }
        drop(closed);
        for _ in 0..1_000 {
            let opened = Database::open_on(disk.clone(), options(0));
            assert!(matches!(opened.map(drop), Err(OpenError::Locked { .. })));
            std::thread::yield_now();
        }
        drop(goes_on);
        assert_eq!(commit.join().unwrap(), Err(Error::Closed));
        assert_eq!(close.join().unwrap(), Ok(()));
        disk.unhook();
        keeps_its_load(disk, || {});
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

/// Users' closures compute identifiers: a close does not wait for a call that ended by a panic of one of them. A commit
/// that waits for room in the log notices the close, whose calls have ended before the log is closed.
#[test]
fn a_close_waits_for_no_commit_that_waits_for_room_in_the_log() {
    for threads in [0, 1] {
        let options = Options {
            log_bytes_max: 16 << 20,
            durability: Durability::Memory,
            log_wait_max: Duration::from_secs(3_600),
            ..options(threads)
        };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let definition = TableDef::new("t", columns).with_primary_key(&["id"]);
        let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
        // Four fifths of the log, with one row.
        let fill = move |tx: &mut Transaction, bytes: usize| {
            (0..bytes / 30_000).try_for_each(|_| {
                tx.delete(&table, 1)?;
                tx.insert(&table, &[Value::Int4(1), Value::Text("a".repeat(30_000))])
            })
        };
        (0..10).for_each(|_| db.transact(|tx| fill(tx, 1 << 20)).unwrap());
        let (ends, has_ended) = channel();
        let action = Action::exclusive("t", move |tx, _, _| {
            fill(tx, 8 << 20)?;
            ends.send(()).map_err(|error| Error::aborted(error.to_string()))
        });
        db.register(Procedure::new("p", [ColumnType::Int4], action.by_argument(0))).unwrap();
        let caller = db.clone();
        let call = std::thread::spawn(move || caller.call("p", &[Value::Int4(1)]));
        // Its commit, for which the log has no room, is next.
        has_ended.recv_timeout(LIMIT).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let (closed, is_closed) = channel();
        std::thread::spawn(move || closed.send(db.close()));
        assert_eq!(is_closed.recv_timeout(LIMIT), Ok(Ok(())), "{threads} threads");
        assert_eq!(call.join().unwrap(), Err(Error::Closed));
    }
}

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

/// Uses its handle, the last one, when its thread ends.
struct UsesAsItEnds(Option<Database>);

impl Drop for UsesAsItEnds {
    fn drop(&mut self) {
        let Some(db) = self.0.take() else { return };
        let table = db.table("t").unwrap();
        db.transact(|tx| tx.insert(&table, &[Value::Int4(2)])).unwrap();
        db.call("p", &[Value::Int4(3)]).unwrap();
        // Without a log there is none to make, nor a backup.
        assert!(matches!(db.checkpoint(), Ok(_) | Err(Error::Unsupported { .. })));
        let backup = db.backup_to(&mut Vec::new(), BackupKind::Full);
        assert!(matches!(backup, Ok(_) | Err(Error::Unsupported { .. })));
    }
}

thread_local! {
    static USES_AS_IT_ENDS: RefCell<UsesAsItEnds> = const { RefCell::new(UsesAsItEnds(None)) };
}

/// The engine's own thread-locals have been destroyed by then, because they were first used later. Without a log the
/// close makes a checkpoint.
#[test]
fn a_thread_uses_the_last_handle_as_it_ends() {
    for (logging, threads) in [(Logging::Value, 2), (Logging::Value, 0), (Logging::None, 0)] {
        let (disk, db) = with_a_row(Options { logging, ..options(threads) });
        let done = in_time(LIMIT, move || {
            let thread = std::thread::spawn(move || {
                USES_AS_IT_ENDS.with_borrow_mut(|last| last.0 = Some(db.clone()));
                let insert = |tx: &mut Transaction<'_>| {
                    let table = tx.table("t")?;
                    tx.insert(&table, &[Value::Int4(4)])
                };
                db.transact(insert).unwrap();
                register(&db, |_| Ok(()));
                db.call("p", &[Value::Int4(1)]).unwrap();
                assert!(matches!(db.checkpoint(), Ok(_) | Err(Error::Unsupported { .. })));
                // Waits for another database's log, where this one has none.
                with_a_row(options(0)).1.close().unwrap();
            });
            thread.join().is_ok()
        });
        assert!(done);
        let db = Database::open_on(disk, options(0)).unwrap();
        let table = db.table("t").unwrap();
        assert_eq!(db.transact(|tx| tx.count(&table)), Ok(3), "{logging:?}");
    }
}

struct ReadsAsItEnds(Option<(Database, Table)>);

impl Drop for ReadsAsItEnds {
    fn drop(&mut self) {
        if let Some((db, table)) = self.0.take() {
            assert!(db.transact(|tx| tx.get(&table, 1)).unwrap().is_some());
        }
    }
}

thread_local! {
    static READS_AS_IT_ENDS: RefCell<ReadsAsItEnds> = const { RefCell::new(ReadsAsItEnds(None)) };
}

/// The same on a disk-resident table, whose transactions have stages. A panic there would end the process.
#[test]
fn a_thread_uses_a_table_on_disk_as_it_ends() {
    let db =
        Database::open_on(MemoryDisk::new(), Options { engine: Engine::default(), ..options(0) }).unwrap();
    let definition = TableDef::new("d", vec![Column::new("id", ColumnType::Int4)])
        .with_primary_key(&["id"])
        .with_residence(Residence::Disk);
    let table = db.transact(|tx| tx.create_table(&definition)).unwrap();
    db.transact(|tx| tx.insert(&table, &[Value::Int4(1)])).unwrap();
    let in_thread = db.clone();
    let thread = std::thread::spawn(move || {
        READS_AS_IT_ENDS.with_borrow_mut(|last| last.0 = Some((in_thread.clone(), table.clone())));
        in_thread.transact(|tx| tx.get(&table, 1)).unwrap();
    });
    assert!(thread.join().is_ok());
    db.close().unwrap();
}
