//! Handles of another database, of an earlier opening, or of a dropped table: their use is refused with an error that
//! says why, nothing is done, and later transactions are not affected.

use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Action, Checkpointing, Database, Engine, Error, Options, Procedure, Result, Scan, ScanMode, Table,
    TableDef, Transaction, TransactionServer, TransactionServerOptions,
};

const FORMS: [Engine; 3] = Engine::ALL;

fn open(disk: Arc<MemoryDisk>, engine: Engine) -> Database {
    let options =
        Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, engine, ..Options::default() };
    Database::open_on(disk, options).unwrap()
}

fn make(db: &Database, name: &str, rows: i32) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"]))?;
        tx.create_index(name, &format!("{name}_n"), &["n"], true)?;
        (0..rows).try_for_each(|id| tx.insert(&table, &row(id, id)))?;
        Ok(table)
    })
    .unwrap()
}

fn row(id: i32, n: i32) -> [Value; 2] {
    [Value::Int4(id), Value::Int4(n)]
}

/// The rows, by the table's name, in a transaction of its own.
fn rows(db: &Database, table: &str) -> Vec<(i32, i32)> {
    let table = db.table(table).unwrap();
    let mut rows = Vec::new();
    db.transact(|tx| {
        rows.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            rows.push((row.get_i32(0)?, row.get_i32(1)?));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    rows
}

type Use = fn(&mut Transaction, &Table) -> Result<()>;

/// Each way to use a table by its handle.
const USES: [(&str, Use); 12] = [
    ("get", |tx, table| tx.get(table, 1).map(drop)),
    ("get for update", |tx, table| tx.get_for_update(table, 1).map(drop)),
    ("look", |tx, table| tx.look(table, 1, |_| ()).map(drop)),
    ("look by an index", |tx, table| {
        tx.look_by(table, WhichIndex::Secondary(0), 1, ScanMode::Share, |_| ()).map(drop)
    }),
    ("scan", |tx, table| tx.scan(table, &Scan::all(), |_, _| Ok(ControlFlow::Continue(())))),
    ("count", |tx, table| tx.count(table).map(drop)),
    ("insert", |tx, table| tx.insert(table, &row(9, 9))),
    ("update", |tx, table| tx.update(table, 1, &[(1, Value::Int4(7))]).map(drop)),
    ("modify", |tx, table| tx.modify(table, 1, |row| row.set(1, &Value::Int4(7))).map(drop)),
    ("delete", |tx, table| tx.delete(table, 1).map(drop)),
    ("update behind another", |tx, table| {
        let own = tx.table("own")?;
        tx.update(&own, 1, &[(1, Value::Int4(1))])?;
        tx.update(table, 1, &[(1, Value::Int4(7))]).map(drop)
    }),
    ("truncate", |tx, table| tx.truncate(table)),
];

/// Checks that the database refuses each use of the handle, on a thread that may know its tables and on one that does
/// not; in a closure, and, except for definitions, in an action on table "own".
fn refuses(db: &Database, handle: &Table, engine: Engine) {
    let own = rows(db, "own");
    for (nth, (what, uses)) in USES.into_iter().enumerate() {
        let refused = |outcome: Result<()>, about: &str| {
            assert!(
                matches!(outcome, Err(Error::ForeignHandle { .. })),
                "{what}, {about}, {engine}: {outcome:?}"
            );
            assert_eq!(rows(db, "own"), own, "{what}, {about}, {engine}");
        };
        let in_closure = || db.transact(|tx| uses(tx, handle));
        refused(in_closure(), "in a closure");
        refused(
            std::thread::scope(|scope| scope.spawn(in_closure).join().unwrap()),
            "in another thread's closure",
        );
        if what != "truncate" {
            let of_body = handle.clone();
            let body = Action::exclusive("own", move |tx, _, _| uses(tx, &of_body));
            let name = format!("p{nth}");
            db.register(Procedure::new(&name, [ColumnType::Int4], body.by_argument(0))).unwrap();
            refused(db.call(&name, &[Value::Int4(1)]).map(drop), "in an action");
        }
        // Later transactions know nothing of it.
        let table = db.table("own").unwrap();
        db.transact(|tx| tx.update(&table, 0, &[(1, Value::Int4(100))])).unwrap();
        db.transact(|tx| tx.update(&table, 0, &[(1, Value::Int4(0))])).unwrap();
    }
}

/// The table has the number of one of this database's tables.
#[test]
fn a_handle_of_another_database_is_refused() {
    for engine in FORMS {
        let [one, other] = [(); 2].map(|()| open(MemoryDisk::new(), engine));
        make(&one, "own", 5);
        let foreign = make(&other, "foreign", 3);
        refuses(&one, &foreign, engine);
        assert_eq!(rows(&other, "foreign"), [(0, 0), (1, 1), (2, 2)]);
    }
}

/// The table has a number that no table of this database has.
#[test]
fn a_handle_of_another_databases_table_that_is_not_here_is_refused() {
    for engine in FORMS {
        let [one, other] = [(); 2].map(|()| open(MemoryDisk::new(), engine));
        make(&one, "own", 5);
        make(&other, "own", 3);
        let foreign = make(&other, "foreign", 3);
        refuses(&one, &foreign, engine);
        assert_eq!(rows(&other, "foreign"), [(0, 0), (1, 1), (2, 2)]);
    }
}

#[test]
fn a_handle_of_an_earlier_opening_is_refused() {
    for engine in FORMS {
        let disk = MemoryDisk::new();
        let db = open(disk.clone(), engine);
        let stale = make(&db, "own", 5);
        db.close().unwrap();
        let db = open(disk.clone(), engine);
        refuses(&db, &stale, engine);
        let own = rows(&db, "own");
        db.close().unwrap();
        assert_eq!(rows(&open(disk, engine), "own"), own);
    }
}

#[test]
fn a_savepoint_of_another_database_is_none() {
    let [mut one, mut other] = [(); 2].map(|()| open(MemoryDisk::new(), Engine::thin()).begin().unwrap());
    let (own, foreign) = (one.savepoint(), other.savepoint());
    assert!(matches!(one.rollback_to(&foreign), Err(Error::NoSuchSavepoint { .. })));
    one.rollback_to(&own).unwrap();
}

/// A procedure of one database's transaction server, used with another's.
#[test]
fn a_procedure_of_another_server_is_refused() {
    let [one, other] = [(); 2].map(|()| {
        let db = open(MemoryDisk::new(), Engine::thin());
        make(&db, "own", 5);
        let action = Action::exclusive("own", |tx, arguments, _| {
            tx.update(arguments.table()?, arguments.get::<i32>(0)?, &[(1, Value::Int4(77))]).map(drop)
        });
        db.register(Procedure::new("p", [ColumnType::Int4], action.by_argument(0))).unwrap();
        db
    });
    let [of_one, of_other] =
        [&one, &other].map(|db| TransactionServer::start(db, &TransactionServerOptions::default()).unwrap());
    let (own, foreign) = (of_one.procedure("p").unwrap(), of_other.procedure("p").unwrap());
    let mut client = of_one.message_server();
    let mut request = client.request(&foreign);
    request.push(1);
    assert!(matches!(client.put(request), Err(Error::ForeignHandle { .. })));
    assert!(client.take().is_none());

    // The memory of a response is used again for a request to the other server.
    let mut request = client.request(&own);
    request.push(2);
    client.put(request).unwrap();
    let response = client.take().unwrap();
    assert_eq!(response.outcome(), &Ok(()));
    client.recycle(response);
    let mut request = client.request(&foreign);
    request.push(3);
    assert!(matches!(client.put(request), Err(Error::ForeignHandle { .. })));
    assert_eq!(rows(&one, "own"), [(0, 0), (1, 1), (2, 77), (3, 3), (4, 4)]);
    assert_eq!(rows(&other, "own"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
}

/// The response comes to the message server that put the request, whichever made it.
#[test]
fn a_request_of_another_message_server_is_answered_where_it_was_put() {
    let db = open(MemoryDisk::new(), Engine::thin());
    let action = Action::shared("own", |_, _, _| Ok(()));
    make(&db, "own", 1);
    db.register(Procedure::new("p", [ColumnType::Int4], action.by_argument(0))).unwrap();
    let server = TransactionServer::start(&db, &TransactionServerOptions::default()).unwrap();
    let procedure = server.procedure("p").unwrap();
    let (mut maker, mut client) = (server.message_server(), server.message_server());
    let mut request = maker.request(&procedure);
    request.push(0);
    client.put(request).unwrap();
    assert_eq!(client.take().unwrap().outcome(), &Ok(()));
    assert!(maker.take().is_none());
}

/// A request that one server's queue has refused goes to another server of the database: it is run once, and answered
/// there.
#[test]
fn a_request_goes_on_to_another_server_and_none_is_lost() {
    let db = open(MemoryDisk::new(), Engine::thin());
    make(&db, "own", 5);
    let action = Action::exclusive("own", |tx, arguments, _| {
        tx.modify(arguments.table()?, arguments.get::<i32>(0)?, |row| row.add_i32(1, 100).map(drop)).map(drop)
    });
    db.register(Procedure::new("add", [ColumnType::Int4], action.by_argument(0))).unwrap();
    let short = TransactionServerOptions { queue: 1, standbys: 0 };
    let [full, free] = [short, TransactionServerOptions::default()]
        .map(|options| TransactionServer::start(&db, &options).unwrap());
    let [of_full, of_free] = [&full, &free].map(|server| server.procedure("add").unwrap());
    let (mut one, mut two, mut other) = (full.message_server(), full.message_server(), free.message_server());
    // Its executor waits for this lock, and its queue is soon full.
    let mut holder = db.begin().unwrap();
    let own = holder.table("own").unwrap();
    holder.update(&own, 0, &[(1, Value::Int4(0))]).unwrap();
    let mut put = 0;
    let mut refused = loop {
        let mut request = one.request(&of_full);
        request.push(0);
        match two.try_put(request).unwrap() {
            None => put += 1,
            Some(refused) => break refused,
        }
    };
    assert_eq!((one.outstanding(), two.outstanding()), (0, put));
    // It is for a row that no transaction holds.
    let mut elsewhere = one.request(&of_full);
    elsewhere.push(3);
    std::mem::swap(&mut refused, &mut elsewhere);
    other.put(refused).unwrap();
    let response = other.take().unwrap();
    assert_eq!(response.outcome(), &Ok(()));
    for stranger in [&mut one, &mut two] {
        assert!(stranger.try_take().is_none());
    }
    // The memory of another server's response is not used again here, where it would be answered.
    one.recycle(response);
    let mut request = one.request(&of_free);
    request.push(4);
    other.put(request).unwrap();
    assert_eq!(other.take().unwrap().outcome(), &Ok(()));
    holder.abort().unwrap();
    // The refused request can also be put where it was made.
    one.put(elsewhere).unwrap();
    assert_eq!(one.take().unwrap().outcome(), &Ok(()));
    for _ in 0..put {
        assert_eq!(two.take().unwrap().outcome(), &Ok(()));
    }
    assert!(one.take().is_none() && two.take().is_none() && other.take().is_none());
    let added = (put as i32 + 1) * 100;
    assert_eq!(rows(&db, "own"), [(0, added), (1, 1), (2, 2), (3, 103), (4, 104)]);
}

/// Another table has the name of the handle's table by now.
#[test]
fn truncating_by_the_handle_of_a_dropped_table_empties_no_other() {
    for engine in FORMS {
        let db = open(MemoryDisk::new(), engine);
        let dropped = make(&db, "own", 3);
        db.transact(|tx| tx.drop_table("own")).unwrap();
        make(&db, "own", 5);
        let truncated = db.transact(|tx| tx.truncate(&dropped));
        assert_eq!(truncated, Err(Error::NoSuchTable { table: "own".to_owned() }), "{engine}");
        // Also where the transaction has given the name away itself.
        let own = db.table("own").unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4)];
        let truncated = db.transact(|tx| {
            tx.drop_table("own")?;
            let new = tx.create_table(&TableDef::new("own", columns.clone()))?;
            tx.insert(&new, &[Value::Int4(1)])?;
            let refused = tx.truncate(&own);
            assert_eq!(tx.count(&new)?, 1, "{engine}");
            refused
        });
        assert_eq!(truncated, Err(Error::NoSuchTable { table: "own".to_owned() }), "{engine}");
        assert_eq!(rows(&db, "own").len(), 5, "{engine}");
        db.transact(|tx| tx.truncate(&own)).unwrap();
        assert_eq!(rows(&db, "own"), []);
    }
}
