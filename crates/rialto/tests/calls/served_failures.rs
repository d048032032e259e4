//! The log fails under a transaction server: every request has its answer, which says what is known, and the server
//! ends. Then the machine loses its power, or goes on, and everything that was acknowledged is there.

use std::time::Duration;

use crate::common::in_time;
use rialto::io::{Caching, FaultKind, FaultyDisk, Random};
use rialto::row::{Column, ColumnType, Value};
use rialto::{
    Action, Checkpointing, Database, Durability, Error, GroupCommitDesign, Options, Procedure, TableDef,
    TransactionServer, TransactionServerOptions,
};

/// The limit of each wait in these tests.
const LIMIT: Duration = Duration::from_secs(120);
const CLIENTS: i64 = 3;
/// Requests that a client has under way.
const UNDER_WAY: usize = 4;

fn options(design: GroupCommitDesign, path: Caching, durability: Durability) -> Options {
    Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability,
        group_commit: design.into(),
        log_writes: Some(path),
        log_writes_in_flight: Some(2),
        memory_flush_interval: Duration::from_millis(1),
        ..Options::default()
    }
}

/// Adds a row, and adds to a counter that all requests wait for: standbys run while a request waits.
fn register(db: &Database) {
    let columns = vec![Column::new("id", ColumnType::Int8), Column::new("n", ColumnType::Int8)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"]))?;
        tx.insert(&table, &[Value::Int8(-1), Value::Int8(0)])
    })
    .unwrap();
    let action = Action::exclusive("t", |tx, arguments, _| {
        let id: i64 = arguments.get(0)?;
        tx.insert(arguments.table()?, &[Value::Int8(id), Value::Int8(0)])?;
        tx.modify(arguments.table()?, -1, |row| row.add_i64(1, 1).map(drop)).map(drop)
    });
    db.register(Procedure::new("add", [ColumnType::Int8], action)).unwrap();
}

/// Sends requests until one fails. Gives the rows that were acknowledged.
fn client(server: &TransactionServer, client: i64, about: &str) -> Vec<i64> {
    let add = server.procedure("add").unwrap();
    let mut message_server = server.message_server();
    let (mut acknowledged, mut next, mut failed) = (Vec::new(), client << 32, false);
    loop {
        while !failed && message_server.outstanding() < UNDER_WAY {
            let mut request = message_server.request(&add);
            request.push(next);
            message_server.put(request).unwrap();
            next += 1;
        }
        let Some(response) = message_server.take() else { return acknowledged };
        match response.outcome() {
            Ok(()) => match response.arguments() {
                [Value::Int8(id)] => acknowledged.push(*id),
                other => panic!("{about}: {other:?}"),
            },
            Err(Error::OutcomeUnknown { .. } | Error::Stopped { .. }) => failed = true,
            Err(other) => panic!("{about}: {other}"),
        }
        message_server.recycle(response);
    }
}

#[test]
fn every_request_is_answered_when_the_log_fails_and_what_was_acknowledged_is_there() {
    in_time(LIMIT, || {
        let seed = Random::seed_from_environment();
        let mut random = Random::new(seed);
        let mut counts = [0; 3];
        for design in GroupCommitDesign::ALL {
            let ways = [
                (Caching::Buffered, Durability::Disk),
                (Caching::DirectSync, Durability::Disk),
                (Caching::Buffered, Durability::Memory),
            ];
            for (count, (path, durability)) in counts.iter_mut().zip(ways) {
                let about = format!("RIALTO_SEED={seed}, {design}, {path:?}, {durability:?}");
                let disk = FaultyDisk::new(random.next());
                let db = Database::open_on(disk.clone(), options(design, path, durability)).unwrap();
                register(&db);
                let standbys = TransactionServerOptions { queue: 2, standbys: 4 };
                let server = TransactionServer::start(&db, &standbys).unwrap();
                // A transaction of another thread has the counter: requests wait for it.
                let table = db.table("t").unwrap();
                let mut holder = db.begin().unwrap();
                assert!(holder.modify(&table, -1, |row| row.add_i64(1, 0).map(drop)).unwrap());
                disk.fail_always(FaultKind::Sync, "log-0", random.below(20));
                let acknowledged: Vec<i64> = std::thread::scope(|scope| {
                    let clients: Vec<_> = (0..CLIENTS)
                        .map(|nth| {
                            let (server, about) = (&server, &about);
                            scope.spawn(move || client(server, nth, about))
                        })
                        .collect();
                    std::thread::sleep(Duration::from_millis(2));
                    drop(holder);
                    clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
                });
                server.close();
                assert!(db.close().is_err(), "{about}: the log has failed");
                drop(table);
                *count += acknowledged.len();
                disk.mend();
                match durability {
                    Durability::Disk => disk.crash(),
                    // Level 1 holds as long as the machine goes on.
                    Durability::Memory => disk.kill(),
                }
                let db = Database::open_on(disk.restart(), options(design, path, durability)).unwrap();
                let table = db.table("t").unwrap();
                let counted = db.read(|tx| tx.get(&table, -1)?.expect("it was there before").get(1)).unwrap();
                let rows = db.read(|tx| tx.count(&table)).unwrap() - 1;
                assert_eq!(
                    counted,
                    Value::Int8(rows as i64),
                    "{about}: each request adds a row, and counts it"
                );
                assert!(rows >= acknowledged.len() as u64, "{about}: {rows} of {}", acknowledged.len());
                for id in acknowledged {
                    assert!(
                        db.read(|tx| tx.get(&table, id)).unwrap().is_some(),
                        "{about}: {id} was acknowledged"
                    );
                }
            }
        }
        assert!(counts.iter().all(|&count| count > 0), "RIALTO_SEED={seed}: {counts:?} were acknowledged");
        println!("tally: served failures, {counts:?} acknowledged, RIALTO_SEED={seed}");
    });
}
