//! SQL sessions over real nodes: transactions over partitions, and what failovers leave of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rialto_sql::parse::READING_ROOM_BYTES;
use rialto_sql::room::Room;
use rialto_sql::run::Collected;
use rialto_sql::values::text;
use rialto_sql::{Session, SqlError, SqlType};

use crate::cluster::{Cluster, patience, soon};

/// A session at a node.
pub fn session(cluster: &Cluster, node: usize) -> Session {
    let partitions = cluster.node(node).transactions().partitions();
    Session::over_partitions(partitions, "ann", "bank", Room::new(READING_ROOM_BYTES))
}

/// Runs one statement. Gives its rows as text.
pub fn try_run(session: &mut Session, sql: &str) -> Result<Vec<Vec<String>>, SqlError> {
    let answer = (|| {
        let mut rows = Collected::default();
        let read = session.read(sql)?;
        let ready = session.prepare_read(sql, read)?;
        session.announce_end();
        session.execute_ready(&ready, &mut rows)?;
        session.finish()?;
        let types: Vec<SqlType> = ready.prepared.row_columns().iter().map(|column| column.sql_type).collect();
        let print = |(value, sql_type): (&rialto::row::Value, SqlType)| {
            let mut out = Vec::new();
            match text::write(value, sql_type, &mut out) {
                Some(()) => String::from_utf8(out).unwrap(),
                None => "NULL".to_owned(),
            }
        };
        Ok(rows.0.iter().map(|row| row.iter().zip(types.clone()).map(print).collect()).collect())
    })();
    answer.map_err(|error| session.fail(&error).err().unwrap_or(error))
}

pub fn run(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    try_run(session, sql)
        .unwrap_or_else(|error| panic!("{sql}\n{} {error} {:?}", error.sqlstate.code(), error.hint))
}

fn value(session: &mut Session, sql: &str) -> String {
    let rows = run(session, sql);
    assert!(rows.len() == 1 && rows[0].len() == 1, "{sql}: {rows:?}");
    rows[0][0].clone()
}

pub fn ready(cluster: &Cluster, partitions: u32, replicas: usize) {
    (0..partitions).for_each(|partition| cluster.in_sync(partition, replicas));
}

pub const ACCOUNTS: i64 = 40;

pub fn bank(session: &mut Session) {
    run(session, "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)");
    run(session, &format!("INSERT INTO accounts SELECT i, 100 FROM generate_series(1, {ACCOUNTS}) AS i"));
}

/// What all accounts have together.
pub fn total(session: &mut Session) -> i64 {
    run(session, "SELECT balance FROM accounts").iter().map(|row| row[0].parse::<i64>().unwrap()).sum()
}

/// Moves an amount between two accounts, in one transaction. Whether it has taken effect.
pub fn transfer(session: &mut Session, from: i64, to: i64, amount: i64) -> Result<(), SqlError> {
    let statements = [
        "BEGIN".to_owned(),
        format!("UPDATE accounts SET balance = balance - {amount} WHERE id = {from}"),
        format!("UPDATE accounts SET balance = balance + {amount} WHERE id = {to}"),
        "COMMIT".to_owned(),
    ];
    for statement in &statements {
        if let Err(error) = try_run(session, statement) {
            let _ = try_run(session, "ROLLBACK");
            return Err(error);
        }
    }
    Ok(())
}

#[test]
fn statements_run_through_any_node() {
    let cluster = Cluster::calm("sql", 3, 6, 2);
    ready(&cluster, 6, 2);
    let mut first = session(&cluster, 0);
    bank(&mut first);
    for node in 0..3 {
        let mut session = session(&cluster, node);
        assert_eq!(value(&mut session, "SELECT count(*) FROM accounts"), ACCOUNTS.to_string());
        for id in 1..=ACCOUNTS {
            assert_eq!(value(&mut session, &format!("SELECT balance FROM accounts WHERE id = {id}")), "100");
        }
        let ids = run(&mut session, "SELECT id FROM accounts ORDER BY id DESC LIMIT 3");
        assert_eq!(ids, [["40"], ["39"], ["38"]]);
    }
    let mut last = session(&cluster, 2);
    for (from, to) in [(1, 2), (3, 17), (40, 1), (5, 6)] {
        transfer(&mut last, from, to, 7).unwrap();
    }
    assert_eq!(total(&mut first), 100 * ACCOUNTS);
    assert_eq!(value(&mut first, "SELECT balance FROM accounts WHERE id = 3"), "93");
    run(&mut first, "BEGIN");
    run(&mut first, "UPDATE accounts SET balance = 0");
    assert_eq!(total(&mut first), 0);
    run(&mut first, "ROLLBACK");
    assert_eq!(total(&mut first), 100 * ACCOUNTS);
    // Nothing is left over.
    soon("all transactions are forgotten", || {
        (0..3).all(|node| {
            let unfinished = cluster.node(node).transactions().unfinished();
            unfinished.iter().all(|partition| partition.transactions == 0 && partition.prepared == 0)
        })
    });
}

/// Money stays while transfers run, primaries change, and nodes end and start.
#[test]
fn transfers_are_atomic_over_failovers() {
    let mut cluster = Cluster::new("transfers", 3, 3, 2);
    ready(&cluster, 3, 2);
    let mut checker = session(&cluster, 0);
    bank(&mut checker);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            // Node 0 stays, so its sessions do.
            let mut session = session(&cluster, 0);
            let (stop, done) = (stop.clone(), done.clone());
            std::thread::spawn(move || {
                let mut random = rialto::io::Random::new(client);
                while !stop.load(Ordering::Relaxed) {
                    let from = 1 + random.below(ACCOUNTS as u64) as i64;
                    let to = 1 + random.below(ACCOUNTS as u64) as i64;
                    if from != to && transfer(&mut session, from, to, 1).is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let progress = |what: &str| {
        let before = done.load(Ordering::Relaxed);
        soon(what, || done.load(Ordering::Relaxed) > before + 20);
    };
    progress("transfers run");
    for node in [1, 2] {
        cluster.stop(node);
        progress("transfers run without a node");
        cluster.start(node);
        ready(&cluster, 3, 2);
        progress("transfers run with the node again");
    }
    cluster.change_primary(0, 1);
    progress("transfers run after a planned change");
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(total(&mut checker), 100 * ACCOUNTS);
    soon("nothing is in doubt", || {
        (0..3).all(|node| {
            let unfinished = cluster.node(node).transactions().unfinished();
            unfinished.iter().all(|partition| partition.prepared == 0)
        })
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(total(&mut checker), 100 * ACCOUNTS);
}

/// A statement that is alone in its transaction, in a partition of its node, has no branch. It ends when it is cancelled, and with
/// its partition.
#[test]
fn a_statement_that_is_alone_ends_with_its_partition() {
    let mut cluster = Cluster::calm("alone", 1, 1, 1);
    ready(&cluster, 1, 1);
    let mut first = session(&cluster, 0);
    bank(&mut first);
    let unfinished = |cluster: &Cluster| {
        let of = cluster.node(0).transactions().unfinished();
        of.iter().map(|partition| partition.transactions).sum::<usize>()
    };
    soon("nothing is left of the tables' making", || unfinished(&cluster) == 0);
    let tasks = |cluster: &Cluster| cluster.node(0).transactions().transaction_counts().tasks;
    let before = tasks(&cluster);
    run(&mut first, "UPDATE accounts SET balance = 101 WHERE id = 3");
    assert_eq!(value(&mut first, "SELECT balance FROM accounts WHERE id = 3"), "101");
    assert_eq!(tasks(&cluster), before, "neither of them has a branch");

    // Each row takes its time, between two looks at a cancellation.
    run(&mut first, "CREATE TABLE texts (id int PRIMARY KEY, v text)");
    run(&mut first, "INSERT INTO texts SELECT i, 'x' FROM generate_series(1, 800) AS i");
    run(&mut first, &format!("UPDATE texts SET v = '{}'", "x".repeat(20_000)));
    let changed = format!("{}v{} = 'x'", "upper(lower(".repeat(35), "))".repeat(35));
    let is_none = vec![changed; 400].join(" OR ");
    let endless = format!("SELECT count(*) FROM texts WHERE {is_none}");
    let (told, ended) = channel();
    let endless = || {
        let (mut session, told, endless) = (session(&cluster, 0), told.clone(), endless.clone());
        let cancel = session.cancel();
        std::thread::spawn(move || told.send(try_run(&mut session, &endless)));
        let early = ended.recv_timeout(Duration::from_millis(300));
        assert!(early.is_err(), "it runs for long: {early:?}");
        cancel
    };
    let code = |what: &str| {
        let answer = ended.recv_timeout(patience()).expect(what);
        answer.expect_err("it does not come to its end").sqlstate.code().to_owned()
    };
    // A request that comes between two stages of a statement ends nothing.
    let (cancel, is_over) = (endless(), Arc::new(AtomicBool::new(false)));
    let is_over_too = is_over.clone();
    let cancelling = std::thread::spawn(move || {
        while !is_over_too.load(Ordering::Relaxed) {
            cancel.request();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(code("a cancelled statement ends"), "57014");
    is_over.store(true, Ordering::Relaxed);
    cancelling.join().unwrap();
    endless();
    let stopping = std::thread::spawn(move || cluster.stop(0));
    // The session may run it again, and finds no primary, or that the node ends.
    let code = code("a statement ends with its partition");
    assert!(["40001", "57P01", "57P03"].contains(&&*code), "{code}");
    stopping.join().unwrap();
}

/// What is at a bound, or fails, ends with an answer, and the session goes on.
#[test]
fn statements_at_their_bounds_have_an_answer() {
    let cluster = Cluster::calm("bounds", 2, 4, 2);
    ready(&cluster, 4, 2);
    // Node 1 does not lead the first partition.
    let mut session = session(&cluster, 1);
    for round in 0..5 {
        // The table is there for the next statement, wherever its definition comes from.
        run(&mut session, &format!("CREATE TABLE t{round} (id int PRIMARY KEY, v text)"));
        run(&mut session, &format!("INSERT INTO t{round} VALUES (1, 'a'), (2, 'b'), (3, 'c')"));
        assert_eq!(value(&mut session, &format!("SELECT count(*) FROM t{round}")), "3");
    }
    // More rows than a bulk load needs, in a block.
    run(&mut session, "BEGIN");
    run(&mut session, "TRUNCATE t0");
    run(&mut session, "INSERT INTO t0 SELECT i, 'x' FROM generate_series(1, 3000) AS i");
    run(&mut session, "COMMIT");
    assert_eq!(value(&mut session, "SELECT count(*) FROM t0"), "3000");
    // A result of many portions.
    run(&mut session, &format!("UPDATE t0 SET v = '{}'", "y".repeat(1000)));
    assert_eq!(run(&mut session, "SELECT id, v FROM t0 ORDER BY id").len(), 3000);
    assert_eq!(run(&mut session, "SELECT id, v FROM t0 WHERE id IN (5, 6, 7)").len(), 3);
    // A row that is too long for a message, where it comes from another node.
    let long = "z".repeat(30_000);
    (1..=8).for_each(|id| drop(run(&mut session, &format!("UPDATE t0 SET v = '{long}' WHERE id = {id}"))));
    let codes: Vec<_> = (1..=8)
        .filter_map(|id| {
            let long = format!("SELECT {} FROM t0 WHERE id = {id}", vec!["v"; 160].join(", "));
            try_run(&mut session, &long).err().map(|error| error.sqlstate.code().to_owned())
        })
        .collect();
    assert!(!codes.is_empty() && codes.iter().all(|code| code == "54000"), "{codes:?}");
    // Sessions that only read.
    run(&mut session, "SET default_transaction_read_only = on");
    assert_eq!(value(&mut session, "SELECT id FROM t0 WHERE id = 9"), "9");
    assert_eq!(value(&mut session, "SELECT count(*) FROM t0"), "3000");
    run(&mut session, "SET default_transaction_read_only = off");
    // The system's own tables.
    for statement in ["SELECT * FROM rialto_cluster", "CREATE TABLE rialto_x (id int PRIMARY KEY)"] {
        let error = try_run(&mut session, statement).unwrap_err();
        assert_eq!(error.sqlstate.code(), "0A000", "{statement}: {error}");
    }
    assert_eq!(value(&mut session, "SELECT count(*) FROM t1"), "3");
}
