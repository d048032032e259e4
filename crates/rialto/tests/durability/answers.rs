//! I3: an answer waits until everything on which it depends is durable, absence and the catalog included.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::quiet::{columns, level, open, row, unique_n};
use crate::common::{engines, quiet};
use rialto::io::{FaultKind, FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Arguments, Database, Durability, Engine, Error, Executors, Flow, KeyBound, Options, Outputs,
    Procedure, Result, Scan, Table, TableDef, Transaction, TransactionServer, TransactionServerOptions,
    TxOptions,
};

/// A look at the change, by which the answer depends on it.
type Look = fn(&mut Transaction, &Table) -> Result<bool>;

struct Resting {
    name: &'static str,
    /// The change, committed at level 1: not on disk.
    change: fn(&mut Transaction, &Table) -> Result<()>,
    look: Look,
    read_only: bool,
}

fn is_duplicate(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Err(Error::DuplicateKey { .. }) => Ok(true),
        Ok(()) => Ok(false),
        Err(other) => Err(other),
    }
}

fn count(tx: &mut Transaction, table: &Table, scan: &Scan) -> Result<u64> {
    let mut count = 0;
    tx.scan(table, scan, |_, _| {
        count += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(count)
}

fn is_table(tx: &mut Transaction, name: &str) -> Result<bool> {
    match tx.table(name) {
        Ok(_) => Ok(true),
        Err(Error::NoSuchTable { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

fn is_empty(tx: &mut Transaction, name: &str) -> Result<bool> {
    let table = tx.table(name)?;
    Ok(count(tx, &table, &Scan::all())? == 0)
}

fn n_is(n: i64) -> Scan {
    Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int8(n)])
}

fn from(id: i32) -> Scan {
    Scan { lower: KeyBound::Included(vec![Value::Int4(id)]), ..Scan::all() }
}

/// Rows 1 to 4 are durable, with `n` ten times their key. Each `look` is true once the change is there, false without
/// it.
fn resting() -> Vec<Resting> {
    let insert = |tx: &mut Transaction, table: &Table| tx.insert(table, &row(9, 90, "new"));
    let delete = |tx: &mut Transaction, table: &Table| tx.delete(table, 2).map(drop);
    let update = |tx: &mut Transaction, table: &Table| tx.update(table, 3, &[(1, Value::Int8(33))]).map(drop);
    let truncate = |tx: &mut Transaction, table: &Table| tx.truncate(table);
    let create =
        |tx: &mut Transaction, _: &Table| tx.create_table(&TableDef::new("new", columns())).map(drop);
    let drop_table = |tx: &mut Transaction, _: &Table| tx.drop_table("other");
    let drop_index = |tx: &mut Transaction, _: &Table| tx.drop_index("by_n");
    let case = |name, change, look, read_only| Resting { name, change, look, read_only };
    vec![
        case("duplicate primary key", insert, |tx, t| is_duplicate(tx.insert(t, &row(9, 1, ""))), false),
        case("duplicate unique key", insert, |tx, t| is_duplicate(tx.insert(t, &row(10, 90, ""))), false),
        case(
            "duplicate unique key of a change",
            insert,
            |tx, t| is_duplicate(tx.update(t, 1, &[(1, Value::Int8(90))]).map(drop)),
            false,
        ),
        case("a row that was inserted", insert, |tx, t| Ok(tx.get(t, 9)?.is_some()), true),
        case("a row in a range", insert, |tx, t| Ok(count(tx, t, &from(5))? == 1), true),
        case("a row by a secondary index", insert, |tx, t| Ok(count(tx, t, &n_is(90))? == 1), true),
        case(
            "a row that was changed",
            update,
            |tx, t| Ok(tx.get(t, 3)?.unwrap().get(1)? == Value::Int8(33)),
            true,
        ),
        case("a key that was given up", update, |tx, t| Ok(count(tx, t, &n_is(30))? == 0), true),
        case("no such row", delete, |tx, t| Ok(tx.get(t, 2)?.is_none()), true),
        case("no such row to update", delete, |tx, t| Ok(!tx.update(t, 2, &[(1, Value::Int8(1))])?), false),
        case("no such row to delete", delete, |tx, t| Ok(!tx.delete(t, 2)?), false),
        case("no row in a range", delete, |tx, t| Ok(count(tx, t, &Scan::all())? == 3), true),
        case("no row by a secondary index", delete, |tx, t| Ok(count(tx, t, &n_is(20))? == 0), true),
        case("an empty table", truncate, |tx, t| Ok(count(tx, t, &Scan::all())? == 0), true),
        case("no such row in an empty table", truncate, |tx, t| Ok(tx.get(t, 1)?.is_none()), true),
        case("a table", create, |tx, _| is_table(tx, "new"), true),
        case(
            "a new table has no row",
            create,
            |tx, _| Ok(is_table(tx, "new")? && is_empty(tx, "new")?),
            true,
        ),
        case("no such table", drop_table, |tx, _| Ok(!is_table(tx, "other")?), true),
        case(
            "a name is taken",
            create,
            |tx, _| {
                Ok(matches!(tx.create_table(&TableDef::new("new", columns())), Err(Error::NameTaken { .. })))
            },
            false,
        ),
        case(
            "no such index",
            drop_index,
            |tx, _| Ok(matches!(tx.drop_index("by_n"), Err(Error::NoSuchIndex { .. }))),
            false,
        ),
    ]
}

fn resting_database(seed: u64) -> (Arc<FaultyDisk>, Database, Table) {
    let disk = FaultyDisk::new(seed);
    let db = open(disk.clone());
    let table = unique_n(&db);
    db.transact(|tx| tx.create_table(&TableDef::new("other", columns()))).unwrap();
    db.transact(|tx| (1..5).try_for_each(|id| tx.insert(&table, &row(id, i64::from(id) * 10, "")))).unwrap();
    (disk, db, table)
}

/// The forms of an answer.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// The outcome of `transact`, with what the body found as its value.
    Value,
    /// The outcome of `transact` whose body failed because of what it found.
    Failure,
    /// A ticket that is done.
    Ticket,
    /// An abort that has returned.
    Abort,
    /// A handle's commit that has failed before its place, because of what it found or otherwise.
    FailedCommit,
    /// The same, without a wait for the place.
    FailedSubmit,
    /// A panic of the body of `transact` with what it found, which goes on in the caller.
    Panic,
    /// The same for a call that was sent, and that runs where it was sent.
    SentPanic,
    /// The response of a transaction server to a request whose body has panicked.
    ServedPanic,
}

const IT_IS_THERE: &str = "it is there";

/// Registers a procedure that panics if it finds the change.
fn register_probe(db: &Database, table: &Table, case: &Resting) {
    let (look, table) = (case.look, table.clone());
    let body = move |tx: &mut Transaction, _: &Arguments<'_>, _: &mut Outputs| match look(tx, &table)? {
        true => panic!("{IT_IS_THERE}"),
        false => Ok(()),
    };
    db.register(Procedure::new("look", [], Flow::of(body))).unwrap();
}

/// Whether it has panicked with what it found.
fn caught(told: impl FnOnce() -> Result<()>) -> Result<bool> {
    match catch_unwind(AssertUnwindSafe(told)) {
        Ok(outcome) => outcome.map(|()| false),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            assert_eq!(text.or_else(|| panic.downcast_ref().copied()), Some(IT_IS_THERE));
            Ok(true)
        }
    }
}

/// Looks at level 3 and waits for the answer. Whether the change was there.
fn answer(db: &Database, table: &Table, case: &Resting, answer: Answer) -> Result<bool> {
    let options = TxOptions { read_only: case.read_only, ..level(Durability::Disk) };
    match answer {
        Answer::Value => db.transact_with(&options, |tx| (case.look)(tx, table)),
        Answer::Failure => {
            let outcome = db.transact_with(&options, |tx| match (case.look)(tx, table)? {
                true => Err(Error::aborted("it is there")),
                false => Ok(()),
            });
            match outcome {
                Err(Error::Aborted { .. }) => Ok(true),
                other => other.map(|()| false),
            }
        }
        Answer::Ticket => {
            let (found, ticket) = db.submit_with(&options, |tx| (case.look)(tx, table))?;
            ticket.wait().map(|()| found)
        }
        Answer::Abort => {
            let mut tx = db.begin_with(&options)?;
            let found = (case.look)(&mut tx, table)?;
            tx.abort().map(|()| found)
        }
        Answer::FailedCommit | Answer::FailedSubmit => {
            let mut tx = db.begin_with(&options)?;
            let found = (case.look)(&mut tx, table)?;
            tx.canceller().cancel();
            let failed = match answer {
                Answer::FailedSubmit => tx.submit().map(drop),
                _ => tx.commit(),
            };
            match failed {
                Err(Error::Cancelled) => Ok(found),
                other => other.map(|()| unreachable!("it was cancelled")),
            }
        }
        Answer::Panic => caught(|| {
            db.transact_with(&options, |tx| match (case.look)(tx, table)? {
                true => panic!("{IT_IS_THERE}"),
                false => Ok(()),
            })
        }),
        Answer::SentPanic => {
            register_probe(db, table, case);
            let sent = db.send_call_with(&options, "look", &[])?;
            caught(|| sent.wait().map(drop))
        }
        Answer::ServedPanic => {
            register_probe(db, table, case);
            let server = TransactionServer::start(db, &TransactionServerOptions::default())?;
            let mut message_server = server.message_server();
            let mut request = message_server.request(&server.procedure("look")?);
            request.set_durability(Durability::Disk);
            message_server.put(request)?;
            match message_server.take().expect("it is on its way").outcome() {
                Err(Error::Procedure { reason, .. }) if reason.contains(IT_IS_THERE) => Ok(true),
                other => other.clone().map(|()| false),
            }
        }
    }
}

const ANSWERS: [Answer; 9] = [
    Answer::Value,
    Answer::Failure,
    Answer::Ticket,
    Answer::Abort,
    Answer::FailedCommit,
    Answer::FailedSubmit,
    Answer::Panic,
    Answer::SentPanic,
    Answer::ServedPanic,
];

/// The change was answered at level 1 only. Once an answer at level 3 depends on it, the machine crashes: the change
/// has to be there.
#[test]
fn an_answer_that_rests_on_an_undurable_change_makes_it_durable() {
    for case in resting() {
        for how in ANSWERS {
            let about = format!("{}, told by {how:?}", case.name);
            let (disk, db, table) = resting_database(Random::seed_from_environment());
            db.transact_with(&level(Durability::Memory), |tx| (case.change)(tx, &table)).unwrap();
            assert!(answer(&db, &table, &case, how).unwrap(), "{about}");
            disk.crash();
            drop(db);
            let db = open(disk.restart());
            let table = db.table("t").unwrap();
            assert!(answer(&db, &table, &case, Answer::Value).unwrap(), "{about}: lost in the crash");
        }
    }
}

/// The same, and the log fails before the change is durable: no answer is given.
#[test]
fn an_answer_that_rests_on_a_lost_change_is_never_given() {
    for case in resting() {
        for how in ANSWERS {
            let about = format!("{}, told by {how:?}", case.name);
            let (disk, db, table) = resting_database(Random::seed_from_environment());
            db.transact_with(&level(Durability::Memory), |tx| (case.change)(tx, &table)).unwrap();
            disk.fail_always(FaultKind::Sync, "log-0", 0);
            let told = answer(&db, &table, &case, how);
            assert!(matches!(told, Err(Error::OutcomeUnknown { .. })), "{about}: {told:?}");
            let later = db.transact(|tx| tx.insert(&table, &row(50, 500, "")));
            assert!(matches!(later, Err(Error::Stopped { .. })), "{about}: {later:?}");
        }
    }
}

/// What was durable when it was read is answered at once, whatever else is not durable.
#[test]
fn an_answer_that_rests_on_durable_rows_waits_for_nothing() {
    let (disk, db, table) = resting_database(Random::seed_from_environment());
    db.transact_with(&level(Durability::Memory), |tx| tx.insert(&table, &row(9, 90, ""))).unwrap();
    disk.fail_always(FaultKind::Sync, "log-0", 0);
    assert!(db.read(|tx| Ok(tx.get(&table, 1)?.is_some())).unwrap());
    let duplicate = db.transact(|tx| tx.insert(&table, &row(1, 1, "")));
    assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
}

/// What an action has found, for another action of its phase.
static FOUND: AtomicI64 = AtomicI64::new(0);

/// On threads that own executors: one action reads, and another one, on the same thread or on another, panics with what
/// was read.
#[test]
fn a_panic_of_a_call_whose_parts_have_read_what_is_lost_is_never_given() {
    for (keys, durable) in [[1, 2], [1, 7], [7, 1]].into_iter().flat_map(|keys| [(keys, true), (keys, false)])
    {
        let disk = FaultyDisk::new(Random::seed_from_environment());
        let options = Options { engine: Executors::of(4, 2).handing_over().into(), ..quiet::options() };
        let db = Database::open_on(disk.clone(), options).unwrap();
        let table = db
            .transact(|tx| {
                let table = tx.create_table(&TableDef::new("t", columns()).with_primary_key(&["id"]))?;
                (0..8).try_for_each(|id| tx.insert(&table, &row(id, 0, "")))?;
                Ok(table)
            })
            .unwrap();
        let bounds = [2, 4, 6].map(|bound| vec![Value::Int4(bound)]);
        db.set_routing("t", WhichIndex::Primary, &bounds).unwrap();
        let reads = Action::shared("t", |tx, arguments, _| {
            let n = tx.look(arguments.table()?, arguments.get::<i32>(0)?, |row| row.get_i64(1))?;
            FOUND.store(n.expect("the row is there")?, Ordering::SeqCst);
            Ok(())
        });
        let tells = Action::shared("t", |_, _, _| {
            while FOUND.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            panic!("{IT_IS_THERE}")
        });
        let flow = Flow::new().phase([reads.by_argument(0), tells.by_argument(1)]);
        db.register(Procedure::new("tell", [ColumnType::Int4; 2], flow)).unwrap();
        FOUND.store(0, Ordering::SeqCst);
        let change = |tx: &mut Transaction| tx.update(&table, keys[0], &[(1, Value::Int8(33))]).map(drop);
        db.transact_with(&level(Durability::Memory), change).unwrap();
        if !durable {
            disk.fail_always(FaultKind::Sync, "log-0", 0);
        }
        let told =
            caught(|| db.call_with(&level(Durability::Disk), "tell", &keys.map(Value::Int4)).map(drop));
        match durable {
            true => assert_eq!(told, Ok(true), "{keys:?}"),
            false => assert!(matches!(told, Err(Error::OutcomeUnknown { .. })), "{keys:?}: {told:?}"),
        }
    }
}

const ENGINES: [Engine; 4] = engines::each(4);

/// Table "t", with an index.
fn define(tx: &mut Transaction) -> Result<()> {
    tx.create_table(&TableDef::new("t", columns()).with_primary_key(&["id"]))?;
    tx.create_index("t", "by_n", &["n"], false)
}

fn database(engine: Engine) -> (Arc<FaultyDisk>, Database) {
    let disk = FaultyDisk::new(Random::seed_from_environment());
    let options = Options { engine, ..quiet::options() };
    (disk.clone(), Database::open_on(disk, options).unwrap())
}

/// A call of an action that touches no row.
#[test]
fn a_call_that_rests_on_a_lost_definition_is_never_answered() {
    let columns = Action::shared("t", |_, arguments, outputs| {
        outputs.push(arguments.table()?.schema().columns().len() as i32);
        Ok(())
    });
    let columns = Procedure::new("columns", [ColumnType::Int4], columns.by_argument(0));
    let entries = Action::shared("t", |_, _, _| Ok(())).on_index("by_n").by(|_| Value::Int8(1));
    let entries = Procedure::new("entries", [ColumnType::Int4], entries);
    type Definition = fn(&mut Transaction) -> Result<()>;
    let cases: [(&str, Definition, Definition, &Procedure, bool); 4] = [
        ("a table", |_| Ok(()), define, &columns, true),
        ("an index", |_| Ok(()), define, &entries, true),
        ("no such table", define, |tx| tx.drop_table("t"), &columns, false),
        ("no such index", define, |tx| tx.drop_index("by_n"), &entries, false),
    ];
    for (name, prepare, definition, procedure, is_there) in cases {
        for engine in ENGINES {
            let about = format!("{name}, {engine:?}");
            let (disk, db) = database(engine);
            db.transact(prepare).unwrap();
            db.register(procedure.clone()).unwrap();
            db.transact_with(&level(Durability::Memory), definition).unwrap();
            let call = |durability| db.call_with(&level(durability), &procedure.name, &[Value::Int4(1)]);
            let outcome = call(Durability::Memory);
            assert_eq!(outcome.is_ok(), is_there, "{about}: {outcome:?}");
            disk.fail_always(FaultKind::Sync, "log-0", 0);
            let told = call(Durability::Disk);
            assert!(matches!(told, Err(Error::OutcomeUnknown { .. })), "{about}: {told:?}");
        }
    }
}

/// An error of an operation that reads no row, by a handle from before.
#[test]
fn an_error_that_rests_on_a_lost_key_is_never_told() {
    let insert =
        |tx: &mut Transaction, table: &Table| tx.insert(table, &[1.into(), 1i64.into(), Value::Null]);
    let get = |tx: &mut Transaction, table: &Table| tx.get(table, 7i64).map(drop);
    for (nth, operation) in [insert, get].into_iter().enumerate() {
        for engine in ENGINES {
            let (disk, db) = database(engine);
            let table = db.transact(|tx| {
                let mut columns = columns();
                columns[2] = Column::nullable("text", ColumnType::Text);
                tx.create_table(&TableDef::new("keyless", columns))
            });
            let table = table.unwrap();
            let definition = |tx: &mut Transaction| tx.add_primary_key("keyless", &["text"]);
            db.transact_with(&level(Durability::Memory), definition).unwrap();
            let tell = |durability| db.transact_with(&level(durability), |tx| operation(tx, &table));
            let outcome = tell(Durability::Memory);
            let is_of_key = matches!(outcome, Err(Error::NotNull { .. } | Error::TypeMismatch { .. }));
            assert!(is_of_key, "{nth}, {engine:?}: {outcome:?}");
            disk.fail_always(FaultKind::Sync, "log-0", 0);
            let told = tell(Durability::Disk);
            assert!(matches!(told, Err(Error::OutcomeUnknown { .. })), "{nth}, {engine:?}: {told:?}");
        }
    }
}

/// A scan's answer where no key can be depends on the table's definition (I3).
#[test]
fn a_range_without_keys_is_told_when_its_table_is_durable() {
    let behind_all = Scan { lower: KeyBound::Excluded(vec![Value::Int4(i32::MAX)]), ..Scan::all() };
    let backwards = Scan {
        lower: KeyBound::Included(vec![Value::Int4(5)]),
        upper: KeyBound::Excluded(vec![Value::Int4(3)]),
        ..Scan::all()
    };
    for engine in Engine::ALL {
        for scan in [&behind_all, &backwards] {
            let disk = FaultyDisk::new(1);
            let db = Database::open_on(disk.clone(), Options { engine, ..quiet::options() }).unwrap();
            let def =
                TableDef::new("new", vec![Column::new("id", ColumnType::Int4)]).with_primary_key(&["id"]);
            db.transact_with(&level(Durability::Memory), |tx| tx.create_table(&def).map(drop)).unwrap();
            let table = db.table("new").unwrap();
            let told = db.transact_with(&level(Durability::Disk), |tx| {
                tx.scan(&table, scan, |_, _| Ok(ControlFlow::Break(())))
            });
            disk.crash();
            drop(db);
            let is_there = open(disk.restart()).table("new").is_ok();
            assert!(told.is_err() || is_there, "{engine}, {scan:?}: told of a table that is not there");
        }
    }
}
