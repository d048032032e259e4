//! A table is dropped and made anew while a statement on it has a plan and no lock: the columns that the client is told
//! of, and the rows that it gets, are of one table.

use std::time::{Duration, Instant};

use crate::common::*;

const MADE: &str = "create table t (a int primary key)";
const MADE_ANEW: &str = "begin; drop table t; create table t (a int primary key, b text, c char(4)); \
     insert into t values (1, 'kept', 'x')";

/// The lines of a COPY to the client.
fn copied(answer: &[Message]) -> String {
    let lines = answer.iter().filter(|(tag, _)| *tag == b'd');
    lines.map(|(_, body)| String::from_utf8_lossy(body).into_owned()).collect()
}

/// The numbers of columns in messages of this kind, of which the first number begins at this byte.
fn columns(answer: &[Message], tag: u8, at: usize) -> Vec<u16> {
    let told = answer.iter().filter(|(found, _)| *found == tag);
    told.map(|(_, body)| u16::from_be_bytes([body[at], body[at + 1]])).collect()
}

fn until_one_waits(server: &TestServer) {
    let end = Instant::now() + PATIENCE;
    while server.database.lock_waits().is_empty() {
        assert!(Instant::now() < end, "no transaction waits for a lock");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_prepared_copy_to_the_client_has_the_columns_of_the_table_as_it_is() {
    let server = TestServer::start();
    let (mut reader, mut other) = (server.connect(), server.connect());
    other.run(MADE);
    reader.send(&[parse("s", "copy t to stdout"), sync()].concat());
    assert_eq!(error_code(&reader.answer()), None);
    other.run(&format!("{MADE_ANEW}; commit"));
    for _ in 0..2 {
        reader.send(&[bind("", "s", &[]), execute("", 0), sync()].concat());
        let answer = reader.answer();
        assert_eq!(tags(&answer), "2HdcCZ", "{}", error_text(&answer));
        assert_eq!((columns(&answer, b'H', 1), copied(&answer).as_str()), (vec![3], "1\tkept\tx   \n"));
    }
}

/// As in PostgreSQL, which plans a simple query under the locks on its tables.
#[test]
fn a_simple_query_that_waits_for_the_table_has_its_new_columns() {
    let server = TestServer::start();
    let (mut reader, mut other) = (server.connect(), server.connect());
    let row = [["1", "kept", "x   "].map(|value| Some(value.to_string())).to_vec()];
    for block in ["", "begin"] {
        for (sql, answered) in [
            ("select * from t", "TDCZ"),
            ("select * from t where a = 1", "TDCZ"),
            ("update t set a = a returning *", "TDCZ"),
            ("update t set a = 1 where a = 1 returning *", "TDCZ"),
            ("delete from t returning *", "TDCZ"),
            ("copy t to stdout", "HdcCZ"),
            ("select 7; select * from t", "TDCTDCZ"),
        ] {
            other.run(&format!("drop table if exists t; {MADE}"));
            // Makes a plan.
            reader.run(sql);
            other.run(MADE_ANEW);
            reader.run(&format!("{block};"));
            reader.send(&query(sql));
            until_one_waits(&server);
            other.run("commit");
            let answer = reader.answer();
            assert_eq!(tags(&answer), answered, "{sql}: {}", error_text(&answer));
            match sql.starts_with("copy") {
                true => assert_eq!(copied(&answer), "1\tkept\tx   \n"),
                false => assert_eq!(rows(&answer).last(), row.last(), "{sql}"),
            }
            let told = [columns(&answer, b'T', 0), columns(&answer, b'H', 1)].concat();
            assert_eq!(told.last(), Some(&3), "{sql}");
            reader.run("rollback");
        }
    }
}

/// The literals of a simple query have the types that they have beside the columns of the table on which the query
/// runs.
#[test]
fn a_simple_query_that_waits_for_the_table_has_its_literals_in_the_new_types() {
    let server = TestServer::start();
    let (mut reader, mut other) = (server.connect(), server.connect());
    for (before, sql, answered) in [
        ("select a from t where b = '5'", "select a from t where b = '05'", "TDCZ"),
        // The client was told of the columns already.
        ("select a from t where b = 5", "select a from t where b = 6", "TEZ"),
        ("insert into t values (2, '5')", "insert into t values (3, '05')", "CZ"),
        ("update t set b = '5' where a = 1", "update t set b = '05' where a = 1", "CZ"),
    ] {
        other.run("drop table if exists t; create table t (a int primary key, b int)");
        // Makes a plan for another text.
        reader.run(before);
        other.run(
            "begin; drop table t; create table t (a int primary key, b text); insert into t values (1, '05')",
        );
        reader.send(&query(sql));
        until_one_waits(&server);
        other.run("commit");
        let answer = reader.answer();
        assert_eq!(tags(&answer), answered, "{sql}: {}", error_text(&answer));
        let expected = (answered == "TEZ").then_some("42883");
        assert_eq!(error_code(&answer).as_deref(), expected, "{sql}: {}", error_text(&answer));
        let kept = rows(&other.run("select b from t"));
        assert!(kept.iter().all(|row| row[0].as_deref() == Some("05")), "{sql}: {kept:?}");
    }
}

/// A COPY from the client has the columns that the table has under the lock for which the COPY waits, and keeps the
/// table as it is from then on, before its first row.
#[test]
fn a_copy_from_the_client_locks_its_table_before_its_first_row() {
    let server = TestServer::start();
    let (mut copier, mut other) = (server.connect(), server.connect());
    other.run(MADE);
    other.run(MADE_ANEW);
    copier.send(&query("copy t from stdin"));
    until_one_waits(&server);
    other.run("commit");
    let begun = copier.read().unwrap();
    assert_eq!(columns(&[begun], b'G', 1), [3]);
    other.send(&query("drop table t; create table t (a text)"));
    until_one_waits(&server);
    copier.send(&[message(b'd', b"2\tnew\ty\n"), message(b'c', b"")].concat());
    let answer = copier.answer();
    assert_eq!(tags(&answer), "CZ", "{}", error_text(&answer));
    assert_eq!(tags(&other.answer()), "CCZ");
}

/// A client that was told of the columns by a Describe gets no others.
#[test]
fn the_columns_of_a_prepared_statement_stay() {
    let server = TestServer::start();
    let (mut reader, mut other) = (server.connect(), server.connect());
    other.run(MADE);
    reader.send(&[parse("s", "select * from t"), describe(b'S', "s"), sync()].concat());
    assert_eq!(columns(&reader.answer(), b'T', 0), [1]);
    other.run(&format!("{MADE_ANEW}; commit"));
    reader.send(&[bind("", "s", &[]), execute("", 0), sync()].concat());
    let answer = reader.answer();
    assert_eq!((tags(&answer).as_str(), error_code(&answer).as_deref()), ("2EZ", Some("0A000")));
}
