//! Bodies that a recovery runs again: they read what they read then, and their panics are errors of the opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rialto::io::MemoryDisk;
use rialto::row::{ColumnType, Value};
use rialto::{Action, Database, Error, Flow, OpenError, Options, Procedure};

use super::errors::{reopened, rows};
use super::{calls, done_in, exclusive, int8, prepare};

fn marks(body: impl Fn(i64) -> i64 + Send + Sync + 'static) -> Procedure {
    let mark = exclusive("done", move |tx, table, values| {
        let n = int8(&values[0]);
        tx.insert(table, &[Value::Int8(n + body(n))])
    });
    Procedure::new("mark", [ColumnType::Int8], Flow::from(mark)).deterministic(1)
}

/// A database whose log has this call three times, with 0, 100 and 200.
fn called(procedure: &Procedure) -> (Arc<MemoryDisk>, Database) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options(procedure, 3)).unwrap();
    prepare(&db);
    (0..3).for_each(|n| drop(db.call("mark", &[Value::Int8(100 * n)]).unwrap()));
    (disk, db)
}

fn options(procedure: &Procedure, recovery_threads: usize) -> Options {
    Options { procedures: vec![procedure.clone()], recovery_threads, ..calls() }
}

/// A body's operation on another database is `Nested`, and stays so when the body is run again, on one thread and on
/// several.
#[test]
fn a_replayed_body_is_refused_what_any_body_is() {
    for threads in [1, 4] {
        let other = Database::open_on(MemoryDisk::new(), calls()).unwrap();
        prepare(&other);
        let procedure = marks({
            let other = other.clone();
            let done = other.table("done").unwrap();
            move |n| match other.transact(|tx| tx.insert(&done, &[Value::Int8(n)])) {
                Err(Error::Nested) => 1,
                _ => 2,
            }
        });
        let (disk, db) = called(&procedure);
        assert_eq!(rows(&db, "done"), ["1", "101", "201"], "the body is refused");
        assert_eq!(reopened(&disk, db, options(&procedure, threads)), 3);
        assert_eq!(done_in(&other), 0, "{threads} threads");
    }
}

/// A thread that opens a database may be inside a body of another one.
#[test]
fn a_database_whose_log_has_calls_opens_inside_a_body() {
    let procedure = marks(|_| 0);
    let (disk, db) = called(&procedure);
    db.close().unwrap();
    let other = Database::open_on(MemoryDisk::new(), calls()).unwrap();
    let open = || Database::open_on(disk.clone(), options(&procedure, 3)).unwrap();
    assert_eq!(other.transact(|_| Ok(open().recovery().unwrap().calls)), Ok(3));
}

#[test]
fn a_body_that_panics_as_it_is_replayed_is_an_error_that_names_the_call() {
    let panics = Arc::new(AtomicBool::new(false));
    let procedure = marks({
        let panics = panics.clone();
        move |n| if n == 100 && panics.load(Ordering::Relaxed) { panic!("not today") } else { 0 }
    });
    let (disk, db) = called(&procedure);
    db.close().unwrap();
    panics.store(true, Ordering::Relaxed);
    for threads in [1, 4] {
        let error = Database::open_on(disk.clone(), options(&procedure, threads)).unwrap_err();
        let OpenError::Replay { what } = error else { panic!("{error:?}") };
        assert_eq!(
            what,
            "replaying place 4 of the log, procedure \"mark\" version 1 with (100): it committed then, and now it panics: not today"
        );
    }
    panics.store(false, Ordering::Relaxed);
    let db = Database::open_on(disk, options(&procedure, 3)).unwrap();
    assert_eq!(db.recovery().unwrap().calls, 3);
}

/// Which actions a call leaves out by its outputs is known only as it runs, but what it touches is computed before.
#[test]
fn an_identifier_of_an_action_that_a_call_leaves_out_may_panic() {
    let first = exclusive("done", |tx, table, values| tx.insert(table, &values[..1]));
    let left_out =
        Action::exclusive("done", |_, _, _| Ok(())).by(|_| panic!("never asked for")).when_output(0);
    let flow = Flow::new().phase([first.by_argument(0)]).phase([left_out]);
    let procedure = Procedure::new("mark", [ColumnType::Int8], flow).deterministic(1);
    let (disk, db) = called(&procedure);
    assert_eq!(rows(&db, "done"), ["0", "100", "200"]);
    assert_eq!(reopened(&disk, db, options(&procedure, 3)), 3);
}
