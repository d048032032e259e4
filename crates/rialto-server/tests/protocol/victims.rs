//! After a conflict with another transaction: a deadlock's victim runs again, and a block whose statement was
//! cancelled, or waited too long, goes back to its savepoint.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use rialto::Options;

/// A server with the rows 0 to `last` of the table `t`.
fn server_with_rows(last: u32) -> TestServer {
    server_of_rows(Options::default(), last)
}

fn server_of_rows(options: Options, last: u32) -> TestServer {
    let server = TestServer::with(options, 60);
    let mut client = server.connect();
    client.run("create table t (a int primary key, b int not null)");
    client.run(&format!("insert into t select n, 0 from generate_series(0, {last}) n"));
    server
}

/// A client in a block that holds a row.
fn holder(server: &TestServer, row: u32) -> Client {
    let mut client = server.connect();
    client.run("begin");
    client.run(&format!("update t set b = b + 100 where a = {row}"));
    client
}

fn until_a_transaction_waits_for(server: &TestServer, row: u32) {
    let end = Instant::now() + Duration::from_secs(60);
    let key = format!("({row})");
    while !server.database.lock_waits().iter().any(|wait| wait.lock.contains(&key)) {
        assert!(
            Instant::now() < end,
            "no transaction waits for row {row}: {:?}",
            server.database.lock_waits()
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Requests the row 0, which is held by the statement that waits for this client's row: a deadlock.
fn close_the_circle(server: &TestServer, client: &mut Client, row: u32) -> Option<String> {
    until_a_transaction_waits_for(server, row);
    error_code(&client.query("update t set b = b + 100 where a = 0"))
}

const STATEMENT: &str = "update t set b = b + 1 where a >= 0";

#[test]
fn a_single_statement_runs_again_however_often_it_is_the_victim() {
    let deadlocks = 24;
    let server = server_with_rows(deadlocks);
    let older: Vec<Client> = (1..=deadlocks).map(|row| holder(&server, row)).collect();
    let mut statement = server.connect();
    statement.send(&query(STATEMENT));
    for (mut client, row) in older.into_iter().zip(1..) {
        assert_eq!(close_the_circle(&server, &mut client, row), None, "the statement is younger");
        client.run("commit");
    }
    let answer = statement.answer();
    assert_eq!(error_code(&answer), None, "{}", error_text(&answer));
    let changed = rows(&statement.run("select b from t where b % 100 = 1"));
    assert_eq!(changed.len() as u32, deadlocks + 1, "each row once");
}

#[test]
fn a_victim_that_runs_again_is_as_old_as_its_first_run() {
    let server = server_with_rows(2);
    let mut older = holder(&server, 1);
    let mut statement = server.connect();
    statement.send(&query(STATEMENT));
    until_a_transaction_waits_for(&server, 1);
    let mut younger = holder(&server, 2);
    assert_eq!(close_the_circle(&server, &mut older, 1), None, "the statement is younger");
    older.run("commit");
    assert_eq!(
        close_the_circle(&server, &mut younger, 2).as_deref(),
        Some("40P01"),
        "it is older than this one"
    );
    younger.run("rollback");
    let answer = statement.answer();
    assert_eq!(error_code(&answer), None, "{}", error_text(&answer));
}

/// A statement is retried as often as the kernel's own transactions.
#[test]
fn a_single_statement_that_is_the_victim_too_often_is_told() {
    let options = Options { deadlock_retries_max: 2, ..Options::default() };
    let server = server_of_rows(options, 3);
    let older: Vec<Client> = (1..=3).map(|row| holder(&server, row)).collect();
    let mut statement = server.connect();
    statement.send(&query(STATEMENT));
    for (mut client, row) in older.into_iter().zip(1..) {
        assert_eq!(close_the_circle(&server, &mut client, row), None, "the statement is younger");
        client.run("commit");
    }
    assert_eq!(error_code(&statement.answer()).as_deref(), Some("40P01"));
    assert_eq!(rows(&statement.run("select b from t where b % 100 = 1")).len(), 0);
}

/// A block that has changed rows, some of them behind its savepoint, and whose statement changes rows and then waits
/// for the last one.
fn waiting_block(server: &TestServer, setting: &str) -> (Client, Client) {
    let holder = holder(server, 9);
    let mut client = server.connect();
    client.run("begin");
    client.run(&format!("set local lock_timeout = {setting}"));
    client.run("update t set b = 10 where a = 1");
    client.run("savepoint s");
    client.run("update t set b = 20 where a = 2");
    client.send(&query(STATEMENT));
    (holder, client)
}

/// Everything before the savepoint is there, nothing behind it is, and the block goes on.
fn goes_back(server: &TestServer, mut holder: Client, mut client: Client) {
    assert_eq!(error_code(&client.query("select 1")).as_deref(), Some("25P02"));
    client.run("rollback to s");
    let values = |client: &mut Client| {
        let found = rows(&client.run("select b from t where a < 9 order by a")).concat();
        found.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(values(&mut client), "0 10 0 0 0 0 0 0 0");
    client.run("update t set b = 30 where a = 3");
    holder.run("rollback");
    client.run("update t set b = 90 where a = 9");
    assert_eq!(state(&client.run("commit")), 'I');
    let mut other = server.connect();
    assert_eq!(values(&mut other), "0 10 0 30 0 0 0 0 0");
    assert_eq!(rows(&other.run("select b from t where a = 9")), [[Some("90".to_string())]]);
}

#[test]
fn a_block_goes_back_to_its_savepoint_after_a_lock_time_out() {
    let server = server_with_rows(9);
    let (holder, mut client) = waiting_block(&server, "50");
    assert_eq!(error_code(&client.answer()).as_deref(), Some("55P03"));
    goes_back(&server, holder, client);
}

#[test]
fn a_block_goes_back_to_its_savepoint_after_a_cancel() {
    let server = server_with_rows(9);
    let (holder, mut client) = waiting_block(&server, "'60s'");
    until_a_transaction_waits_for(&server, 9);
    let words = [80_877_102, client.process, client.secret].map(u32::to_be_bytes);
    Client::raw(server.address).send_startup(&words.concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("57014"));
    goes_back(&server, holder, client);
}
