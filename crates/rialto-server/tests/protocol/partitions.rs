//! A server of sessions over partitions: clients see one database.

use std::thread;
use std::time::Duration;

use crate::common::{
    Client, TestServer, bind, copy_in, copy_out, describe, error_code, error_field, execute, parse, query,
    rows, state, sync, tags,
};
use crate::in_process::{Counts, InProcess};

fn texts(messages: &[crate::common::Message]) -> Vec<String> {
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "NULL".to_owned());
    rows(messages).into_iter().map(|row| row.into_iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn clients_of_partitions_see_one_database() {
    let partitions = InProcess::new(2);
    let counts = partitions.counts.clone();
    let server = TestServer::over_partitions(partitions.clone());
    let mut client = server.connect();
    client.run("create table t (id int primary key, v int, c text)");
    client.run("insert into t select n, n, 'c' || n from generate_series(1, 1000) n");
    assert_eq!(texts(&client.run("select count(*) from t")), ["1000"]);
    assert_eq!(texts(&client.run("select id, c from t order by v desc limit 2")), ["1000 c1000", "999 c999"]);
    // A simple query of one statement costs one exchange; so does a prepared one with its Sync.
    for counter in [&counts.exchanges, &counts.commits] {
        Counts::take(counter);
    }
    client.run("update t set v = 0 where id = 7");
    client.send(&[parse("s", "select v, c from t where id = $1"), sync()].concat());
    client.answer();
    client.send(&[bind("", "s", &["7"]), describe(b'P', ""), execute("", 0), sync()].concat());
    assert_eq!(texts(&client.answer()), ["0 c7"]);
    assert_eq!((Counts::take(&counts.exchanges), Counts::take(&counts.commits)), (2, 0));
    // Errors have their fields.
    let answer = client.query("insert into t values (2000, 1, 'x'), (5, 1, 'x')");
    assert_eq!(error_code(&answer).as_deref(), Some("23505"));
    assert_eq!(error_field(&answer, b'n').as_deref(), Some("t_pkey"));
    assert_eq!(error_field(&answer, b'D').as_deref(), Some("Key (id)=(5) already exists."));
    // A query string, and a pipeline, are committed whole or not at all.
    let answer =
        client.query("delete from t where id = 1; delete from t where id = 2; insert into t values (5)");
    assert_eq!((error_code(&answer).as_deref(), state(&answer)), (Some("23505"), 'I'));
    let run =
        |sql: &str, arguments: &[&str]| [parse("", sql), bind("", "", arguments), execute("", 0)].concat();
    let delete = "delete from t where id = $1::int";
    let wrong = run("select 1 / (id - 3) from t where id = 3", &[]);
    client.send(&[run(delete, &["1"]), run(delete, &["2"]), wrong, sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("22012"));
    assert_eq!(texts(&client.run("select count(*) from t")), ["1000"]);
    // Portals keep rows.
    client.run("begin");
    let opened = [parse("", "select id from t where id < 6 order by id"), bind("p", "", &[])].concat();
    client.send(&[opened, execute("p", 2), execute("p", 2), execute("p", 2), sync()].concat());
    let answer = client.answer();
    assert_eq!(tags(&answer), "12DDsDDsDCZ");
    assert_eq!(texts(&answer), ["1", "2", "3", "4", "5"]);
    client.run("savepoint s");
    client.run("delete from t");
    client.run("rollback to s");
    client.run("commit");
    assert_eq!(texts(&client.run("select count(*) from t")), ["1000"]);
    // COPY, both ways.
    client.run("create table u (id int primary key, c text)");
    let lines: String = (1..=500).map(|id| format!("{id}\tx{id}\n")).collect();
    assert_eq!(error_code(&copy_in(&mut client, "copy u from stdin", lines.as_bytes())), None);
    let copied = String::from_utf8(copy_out(&mut client, "copy u to stdout")).unwrap();
    let mut copied: Vec<&str> = copied.lines().collect();
    copied.sort_by_key(|line| line.split('\t').next().unwrap().parse::<i32>().unwrap());
    assert_eq!(copied, lines.lines().collect::<Vec<_>>());
    drop(client);
    server.wait().unwrap();
    // The server's end leaves the partitions as they are.
    let mut session = partitions.session();
    assert!(session.prepare("select * from t", &[]).is_ok());
}

#[test]
fn a_cancel_request_reaches_the_branches() {
    let server = TestServer::over_partitions(InProcess::new(2));
    let (mut client, mut holder) = (server.connect(), server.connect());
    holder.run("create table t (id int primary key, v int)");
    holder.run("insert into t values (1, 1), (2, 2), (3, 3)");
    holder.run("begin");
    holder.run("update t set v = 7");
    client.send(&query("update t set v = 8"));
    let (address, process, secret) = (server.address, client.process, client.secret);
    let cancels = thread::spawn(move || {
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(10));
            Client::cancel(address, process, secret);
        }
    });
    assert_eq!(error_code(&client.answer()).as_deref(), Some("57014"));
    cancels.join().unwrap();
    holder.run("commit");
    // The last request may come late.
    while error_code(&client.query("update t set v = 8")).is_some() {}
    assert_eq!(texts(&client.run("select v from t where id = 2")), ["8"]);
}
