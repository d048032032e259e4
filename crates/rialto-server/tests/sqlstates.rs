//! Each SQLSTATE of docs/sql.md that a client can provoke, heard by a client.

mod common;

use common::*;
use rialto::Options;
use rialto::io::{FaultKind, FaultyDisk};

#[test]
fn every_error_that_a_client_can_bring_about_has_its_code() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b smallint not null, c char(3))");
    client.run("insert into t values (1, 1, 'abc')");
    for (sql, code) in [
        ("select 1 from t join t u on true", "0A000"),
        ("insert into t values (2, 1, 'abcd')", "22001"),
        ("insert into t values (2, 99999, 'abc')", "22003"),
        ("select a + 2147483647 from t", "22003"),
        ("select 'x'::date", "22007"),
        ("select 1 / 0", "22012"),
        ("select 'x'::int", "22P02"),
        ("insert into t values (2, null, 'abc')", "23502"),
        ("insert into t values (1, 1, 'abc')", "23505"),
        ("savepoint s", "25P01"),
        ("selec", "42601"),
        ("select * from nope", "42P01"),
        ("select nope from t", "42703"),
        ("drop index nope", "42704"),
        ("create table t (a int)", "42P07"),
        ("insert into t values (true, 1, 'abc')", "42804"),
        ("select 1 + true", "42883"),
        ("set timezone = 'Mars/Olympus'", "55P02"),
    ] {
        assert_eq!(error_code(&client.query(sql)).as_deref(), Some(code), "{sql}");
    }
    client.run("begin read only");
    assert_eq!(error_code(&client.query("delete from t")).as_deref(), Some("25006"));
    assert_eq!(error_code(&client.query("select 1")).as_deref(), Some("25P02"));
    client.run("rollback");
}

#[test]
fn a_full_memory_is_53200_and_a_long_write_set_54000() {
    let options = Options { memory_bytes: 64 << 20, write_set_bytes_max: 1 << 20, ..Options::default() };
    let server = TestServer::with(options, 4);
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text)");
    let long = "x".repeat(1_000);
    let answer = client.query(&format!("insert into t select n, '{long}' from generate_series(1, 100000) n"));
    assert_eq!(error_code(&answer).as_deref(), Some("54000"), "{}", error_text(&answer));
    let mut code = None;
    for batch in 0..1_000 {
        let (from, to) = (batch * 500, batch * 500 + 499);
        let answer =
            client.query(&format!("insert into t select n, '{long}' from generate_series({from}, {to}) n"));
        code = error_code(&answer);
        if code.is_some() {
            break;
        }
    }
    assert_eq!(code.as_deref(), Some("53200"));
    // The database goes on.
    client.run("delete from t where a < 100");
    client.run("select count(*) from t");
}

/// Brings a server up on a disk, breaks the disk, and gives the codes that two writers hear.
fn codes_after(kind: FaultKind) -> Vec<Option<String>> {
    let disk = FaultyDisk::new(1);
    let server = TestServer::on(disk.clone(), Options::default(), 4);
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    disk.fail_always(kind, "", 0);
    (0..2).map(|n| error_code(&client.query(&format!("insert into t values ({n})")))).collect()
}

#[test]
fn a_log_that_fails_is_told_as_outcome_unknown_and_then_as_an_io_error() {
    let codes = codes_after(FaultKind::Sync);
    assert_eq!(codes[0].as_deref(), Some("08007"), "the insert had its place when the log failed");
    assert_eq!(codes[1].as_deref(), Some("58030"), "the error is sticky");
    let codes = codes_after(FaultKind::Write);
    assert_eq!(codes[1].as_deref(), Some("58030"), "{codes:?}");
}

/// The table of the issue that no test here can bring about from outside is held by `sqlstate.rs`: XX001 and 53100 come
/// from the kernel's errors by the one function that is tested there.
#[test]
fn a_server_that_ends_is_57p01() {
    let mut server = TestServer::start();
    let mut client = server.connect();
    client.run("select 1");
    server.ask_to_stop();
    assert_eq!(error_code(&client.answer()).as_deref(), Some("57P01"));
}
