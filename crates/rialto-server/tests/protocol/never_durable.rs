//! I3: outside of a block, rows are shown only when what they were read from is durable. The log's syncs fail here, so
//! a commit at level memory is acknowledged and never durable, and a reader at level disk must not see its row.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use rialto::Options;
use rialto::io::{FaultKind, FaultyDisk};

/// A server whose table `t` has durable rows up to this one, and no row 1.
fn server_with_durable_rows(last: u32) -> (Arc<FaultyDisk>, TestServer) {
    let disk = FaultyDisk::new(1);
    let options = Options { memory_flush_interval: Duration::from_secs(3600), ..Options::default() };
    let server = TestServer::on(disk.clone(), options, 8);
    let mut writer = server.connect();
    writer.run("create table t (a int primary key, b text)");
    writer.run("insert into t values (0, 'durable')");
    let text = "x".repeat(1000);
    writer.run(&format!("insert into t select n, '{text}' from generate_series(2, {last}) n"));
    (disk, server)
}

/// Inserts the row 1 in memory. Until a reader waits for the log, nothing writes it.
fn insert_what_is_never_durable(disk: &FaultyDisk, server: &TestServer) {
    let mut writer = server.connect();
    writer.run("set rialto.durability = 'memory'");
    disk.fail_always(FaultKind::Sync, "log", 0);
    writer.run("insert into t values (1, 'never durable')");
}

fn server_with_a_row_in_memory(last: u32) -> TestServer {
    let (disk, server) = server_with_durable_rows(last);
    insert_what_is_never_durable(&disk, &server);
    server
}

/// A reader's answer: the tags, and whether the row is among them.
fn told(answer: &[Message]) -> (String, bool) {
    let shown = rows(answer).concat().contains(&Some("never durable".to_string()));
    (tags(answer), shown)
}

#[test]
fn a_statement_whose_wait_fails_shows_no_rows() {
    let server = server_with_a_row_in_memory(2);
    let answer = server.connect().query("select b from t where a = 1");
    assert_eq!(told(&answer), ("EZ".to_string(), false), "{}", error_text(&answer));
    assert_eq!(error_code(&answer).as_deref(), Some("08007"), "{}", error_text(&answer));
}

#[test]
fn a_pipeline_whose_wait_fails_shows_no_rows() {
    let server = server_with_a_row_in_memory(2);
    let mut reader = server.connect();
    let statement = |sql| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let (durable, other) =
        (statement("select b from t where a = 0"), statement("select b from t where a = 1"));
    reader.send(&[durable, other, sync()].concat());
    let answer = reader.answer();
    assert_eq!(told(&answer), ("12EZ".to_string(), false), "{}", error_text(&answer));
}

#[test]
fn an_error_shows_no_rows_of_statements_before_it_whose_wait_fails() {
    let server = server_with_a_row_in_memory(2);
    let answer = server.connect().query("select b from t where a = 1; select 1 / (a - 1) from t where a = 1");
    assert_eq!(told(&answer), ("EZ".to_string(), false), "{}", error_text(&answer));
}

#[test]
fn rows_that_fill_the_buffer_are_not_shown_if_the_wait_before_they_are_sent_fails() {
    let server = server_with_a_row_in_memory(2500);
    let answer = server.connect().query("select b from t where a > 0 order by a");
    assert_eq!(told(&answer), ("EZ".to_string(), false), "{}", error_text(&answer));
}

/// In one implicit block: durable rows have been sent to the client when another row comes that never will be durable.
#[test]
fn rows_behind_others_that_have_been_sent_are_not_shown_if_their_wait_fails() {
    let (disk, server) = server_with_durable_rows(2);
    let mut reader = server.connect();
    // Everything before the first row has been sent to the client, too.
    let names = (0..100).map(|n| parse(&format!("s{n}"), "select 1")).collect::<Vec<_>>().concat();
    let statement = |sql| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    reader.send(&[names, statement("select b from t where a = 0"), message(b'H', b"")].concat());
    while reader.read().expect("a message").0 != b'C' {}
    insert_what_is_never_durable(&disk, &server);
    reader.send(&[statement("select b from t where a = 1"), sync()].concat());
    let answer = reader.answer();
    let (tags, shown) = told(&answer);
    assert!(!shown && tags.ends_with("EZ"), "{tags}: {}", error_text(&answer));
}

#[test]
fn a_connection_that_ends_with_an_error_shows_no_rows_whose_wait_fails() {
    let server = server_with_a_row_in_memory(2);
    let mut reader = server.connect();
    let statement = [parse("", "select b from t where a = 1"), bind("", "", &[]), execute("", 0)].concat();
    reader.send(&[statement, message(b'?', b"")].concat());
    let answer = reader.answer();
    assert_eq!(told(&answer), ("12E".to_string(), false), "{}", error_text(&answer));
}

#[test]
fn the_answer_to_a_block_that_has_ended_stays() {
    let server = server_with_a_row_in_memory(2);
    let block = "begin; select b from t where a = 0; commit";
    let mut reader = server.connect();
    let answer = reader.query(&format!("{block}; select b from t where a = 1"));
    assert_eq!(told(&answer), ("CTDCCEZ".to_string(), false), "{}", error_text(&answer));
    let server = server_with_a_row_in_memory(2);
    let mut reader = server.connect();
    let implicit = "select b from t where a = 0; commit";
    let answer = reader.query(&format!("{implicit}; select b from t where a = 1"));
    let tags: String = told(&answer).0.replace('N', "");
    assert_eq!((tags.as_str(), told(&answer).1), ("TDCCEZ", false), "{}", error_text(&answer));
}

/// A Describe tells of a table at the session's level of that moment, whatever level it had when the statement was
/// prepared.
#[test]
fn a_description_whose_wait_fails_is_not_told() {
    let disk = FaultyDisk::new(1);
    let options = Options { memory_flush_interval: Duration::from_secs(3600), ..Options::default() };
    let server = TestServer::on(disk.clone(), options, 8);
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    client.run("set rialto.durability = 'memory'");
    disk.fail_always(FaultKind::Sync, "log", 0);
    client.run("create table u (never_durable int)");
    client.send(&[parse("s", "select never_durable from u limit 0"), sync()].concat());
    assert_eq!(tags(&client.answer()), "1Z");
    client.send(&[describe(b'S', "s"), bind("", "s", &[]), describe(b'P', ""), sync()].concat());
    assert_eq!(tags(&client.answer()), "tT2TZ", "at level memory it is told");
    client.run("set rialto.durability = 'disk'");
    for told in [
        describe(b'S', "s"),
        [bind("", "s", &[]), describe(b'P', "")].concat(),
        [bind("", "s", &[]), execute("", 0)].concat(),
    ] {
        let is_sent = client.stream.write_all(&[told, sync()].concat()).is_ok();
        let answer = if is_sent { client.answer() } else { Vec::new() };
        assert!(!tags(&answer).contains(['T', 't', 'C']), "{}", tags(&answer));
        if !tags(&answer).ends_with('Z') {
            // The server has ended: it has found that its database has stopped.
            return;
        }
        let code = error_code(&answer);
        assert!(matches!(code.as_deref(), Some("08007" | "58030")), "{}", error_text(&answer));
    }
}

/// The bytes of the messages of an answer, but for the last.
fn bytes_before_ready(answer: &[Message]) -> usize {
    answer[..answer.len() - 1].iter().map(|(_, body)| body.len() + 5).sum()
}

/// A full buffer is sent early. If the completion of the last statement fills it, only the commit is still to come, and
/// the completion would tell an outcome that is not known.
#[test]
fn the_completion_of_the_last_statement_is_not_sent_before_the_commit() {
    let string = |length: usize| query(&format!("insert into t values (1); select '{}'", "x".repeat(length)));
    let pipeline = |length: usize| {
        let select = format!("select '{}'", "x".repeat(length));
        let first = [parse("", "insert into t values (1)"), bind("", "", &[]), execute("", 0)];
        [first.concat(), parse("", &select), bind("", "", &[]), execute("", 0), sync()].concat()
    };
    for of_length in [&string as &dyn Fn(usize) -> Vec<u8>, &pipeline] {
        let disk = FaultyDisk::new(1);
        let server = TestServer::on(disk.clone(), Options::default(), 8);
        let mut client = server.connect();
        client.run("create table t (a int)");
        // With its last byte the last completion fills the buffer of a mebibyte.
        client.send(&of_length(100));
        let length = 100 + (1 << 20) - bytes_before_ready(&client.answer());
        client.send(&of_length(length));
        assert_eq!(bytes_before_ready(&client.answer()), 1 << 20);
        disk.fail_always(FaultKind::Sync, "log", 0);
        client.send(&of_length(length));
        let answer = client.answer();
        assert!(error_code(&answer).is_some());
        let completed = answer.iter().filter(|(tag, _)| *tag == b'C').count();
        assert!(completed < 2, "both were told, and the commit failed: {}", error_text(&answer));
    }
}
