//! `statement_timeout`: a statement that takes longer ends with 57014.

use std::time::Duration;

use crate::common::*;

/// Takes for ever.
const LONG: &str = "select count(*) from generate_series(1, 1000000000000)";

#[track_caller]
fn assert_timed_out(answer: &[Message]) {
    assert_eq!(error_code(answer).as_deref(), Some("57014"), "{}", error_text(answer));
    let text = error_text(answer);
    assert!(text.contains("canceling statement due to statement timeout"), "{text}");
}

/// Runs a short statement under a short limit, again if a slow machine does not finish it in time.
fn run(client: &mut Client, sql: &str) -> Vec<Message> {
    loop {
        let answer = client.query(sql);
        match error_code(&answer).as_deref() {
            None => return answer,
            Some("57014") => {}
            Some(_) => panic!("{sql}: {}", error_text(&answer)),
        }
    }
}

fn value(client: &mut Client, sql: &str) -> String {
    rows(&run(client, sql)).remove(0).remove(0).unwrap()
}

#[test]
fn a_statement_ends_when_its_time_is_up() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text)");
    client.run("set statement_timeout = 30");
    assert_timed_out(&client.query(LONG));
    client.send(&[parse("", LONG), bind("", "", &[]), execute("", 0), sync()].concat());
    assert_timed_out(&client.answer());
    // Alone in its transaction, so that all of it is undone.
    assert_timed_out(&client.query("insert into t select n, 'x' from generate_series(1, 1000000000) n"));
    run(&mut client, "set statement_timeout = 0");
    assert_eq!(value(&mut client, "select count(*) from t"), "0");
    client.run("insert into t values (1, 'x')");
}

#[test]
fn a_block_has_failed_when_the_time_of_its_statement_is_up() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    client.run("begin");
    client.run("insert into t values (1)");
    client.run("savepoint s");
    client.run("insert into t values (2)");
    client.run("set local statement_timeout = '20ms'");
    let answer = client.query(LONG);
    assert_timed_out(&answer);
    assert_eq!(state(&answer), 'E');
    // The savepoint is from before the SET.
    run(&mut client, "rollback to s");
    assert_eq!(value(&mut client, "show statement_timeout"), "0");
    assert_eq!(value(&mut client, "select count(*) from t"), "1");
    client.run("commit");
    assert_eq!(value(&mut client, "select count(*) from t"), "1");
}

#[test]
fn a_wait_for_a_lock_ends_when_the_time_is_up() {
    let server = TestServer::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.run("create table t (a int primary key, b int)");
    holder.run("insert into t values (1, 0)");
    holder.run("begin; update t set b = 1 where a = 1");
    waiter.run("set lock_timeout = 0; set statement_timeout = '50ms'");
    let update = "update t set b = 2 where a = 1";
    assert_timed_out(&waiter.query(update));
    waiter.send(&[parse("", update), bind("", "", &[]), execute("", 0), sync()].concat());
    assert_timed_out(&waiter.answer());
    run(&mut waiter, "begin");
    let answer = waiter.query(update);
    assert_timed_out(&answer);
    assert_eq!(state(&answer), 'E');
    run(&mut waiter, "rollback");
    // The shorter of the two limits counts.
    run(&mut waiter, "set lock_timeout = '10ms'; set statement_timeout = '1h'");
    assert_eq!(error_code(&waiter.query(update)).as_deref(), Some("55P03"));
    holder.run("commit");
    waiter.run(update);
}

/// Each statement of a query string has a time of its own, and a statement behind one that has failed is not run.
#[test]
fn the_statement_of_a_query_string_that_takes_too_long_ends_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    let text =
        format!("insert into t values (1); set statement_timeout = '20ms'; {LONG}; insert into t values (2)");
    let answer = client.query(&text);
    assert_timed_out(&answer);
    assert_eq!(value(&mut client, "select count(*) from t"), "0");
    assert_eq!(value(&mut client, "show statement_timeout"), "0", "the SET was undone");
}

/// The time runs from the first message for a statement. While the client is waited for, nothing can be told to it.
#[test]
fn the_time_of_a_pipeline_runs_until_its_execute() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    client.run("set statement_timeout = 1");
    client.send(&[parse("", "insert into t values (1)"), message(b'H', &[])].concat());
    std::thread::sleep(Duration::from_millis(60));
    client.send(&[bind("", "", &[]), execute("", 0), sync()].concat());
    assert_timed_out(&client.answer());
    let mut other = server.connect();
    assert_eq!(value(&mut other, "select count(*) from t"), "0");
}

#[test]
fn a_load_whose_data_take_too_long_ends_with_them() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    client.run("set statement_timeout = '20ms'");
    client.send(&query("copy t from stdin"));
    let (tag, body) = client.read().expect("an answer");
    // Otherwise the time was up before the load began.
    if tag == b'G' {
        std::thread::sleep(Duration::from_millis(200));
        client.send(&[message(b'd', b"1\n"), message(b'c', &[])].concat());
        assert_timed_out(&client.answer());
    } else {
        assert_eq!(tag, b'E', "{body:?}");
        client.answer();
    }
    run(&mut client, "set statement_timeout = 0");
    assert_eq!(value(&mut client, "select count(*) from t"), "0");
}

#[test]
fn a_limit_is_read_and_shown_as_in_postgresql() {
    let server = TestServer::start();
    let mut client = server.connect();
    for (given, shown) in
        [("5000", "5s"), ("'5s'", "5s"), ("'1.5 min'", "90s"), ("'2h'", "2h"), ("'1d'", "1d"), ("'0'", "0")]
    {
        for name in ["statement_timeout", "lock_timeout"] {
            client.run(&format!("set {name} = {given}"));
            assert_eq!(value(&mut client, &format!("show {name}")), shown, "{name} = {given}");
        }
    }
    for given in ["-1", "'x'", "'5 sec'", "'25d'"] {
        let answer = client.query(&format!("set statement_timeout = {given}"));
        assert_eq!(error_code(&answer).as_deref(), Some("22023"), "{given}");
    }
    client.run("begin; set local statement_timeout = '1h'");
    assert_eq!(value(&mut client, "show statement_timeout"), "1h");
    client.run("commit");
    assert_eq!(value(&mut client, "show statement_timeout"), "0");
    client.run("set statement_timeout = '1h'; reset statement_timeout");
    assert_eq!(value(&mut client, "show statement_timeout"), "0");
}

/// A client that has sent these parameters, and the answer to its start.
fn start(server: &TestServer, parameters: &[(&str, &str)]) -> (Client, Vec<Message>) {
    let mut client = Client::raw(server.address);
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for (name, value) in [("user", "ann")].iter().chain(parameters) {
        body.extend_from_slice(&[name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    client.send_startup(&body);
    let answer = client.answer();
    (client, answer)
}

#[test]
fn a_limit_of_the_start_is_the_sessions_own() {
    let server = TestServer::start();
    for parameters in [
        ("statement_timeout", "40"),
        ("options", "-c statement_timeout=40ms"),
        ("options", "--statement_timeout=40"),
        ("options", "-c lock_timeout=5s -cstatement_timeout=0.04s"),
    ] {
        let (mut client, answer) = start(&server, &[parameters]);
        assert_eq!(error_code(&answer), None, "{parameters:?}: {}", error_text(&answer));
        assert_timed_out(&client.query(LONG));
        run(&mut client, "set statement_timeout = 0; reset statement_timeout");
        assert_timed_out(&client.query(LONG));
        run(&mut client, "discard all");
        assert_eq!(value(&mut client, "show statement_timeout"), "40ms");
    }
    let (_, answer) = start(&server, &[("options", "-c statement_timeout=soon")]);
    assert_eq!(error_code(&answer).as_deref(), Some("22023"));
}

/// asyncpg sends quotes.
#[test]
fn an_encoding_is_known_by_its_letters_and_digits() {
    let server = TestServer::start();
    for (given, expected) in [
        ("'utf-8'", "UTF8"),
        ("utf8", "UTF8"),
        ("UTF-8", "UTF8"),
        ("Unicode", "UTF8"),
        ("'sql_ascii'", "SQL_ASCII"),
        ("SQL ASCII", "SQL_ASCII"),
    ] {
        let (_, answer) = start(&server, &[("client_encoding", given)]);
        assert_eq!(error_code(&answer), None, "{given}: {}", error_text(&answer));
        let status = [&b"client_encoding\0"[..], expected.as_bytes(), b"\0"].concat();
        assert!(answer.iter().any(|(tag, body)| *tag == b'S' && *body == status), "{given}");
    }
    for given in ["latin1", "''", "utf"] {
        let (_, answer) = start(&server, &[("client_encoding", given)]);
        assert_eq!(error_code(&answer).as_deref(), Some("22023"), "{given}");
    }
}

#[test]
fn a_client_in_another_time_zone_is_told_that_the_session_is_in_utc() {
    let server = TestServer::start();
    for (zone, warned) in [("Europe/Zurich", true), ("UTC", false)] {
        let (_, answer) = start(&server, &[("TimeZone", zone)]);
        assert!(answer.iter().any(|(tag, body)| *tag == b'S' && *body == b"TimeZone\0UTC\0"), "{zone}");
        let warnings: Vec<_> = answer.iter().filter(|(tag, _)| *tag == b'N').collect();
        assert_eq!(warnings.len(), usize::from(warned), "{zone}");
        assert!(answer.iter().all(|(tag, _)| *tag != b'E'), "{zone}: {}", error_text(&answer));
    }
    // Asked for in so many words, it is refused.
    let (_, answer) = start(&server, &[("options", "-c TimeZone=Europe/Zurich")]);
    assert_eq!(error_code(&answer).as_deref(), Some("55P02"));
}
