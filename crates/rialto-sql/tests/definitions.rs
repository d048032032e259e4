//! I3: what a session tells of the catalog, an absence as well as a presence, is durable before it is told.

use std::time::Duration;

use rialto::io::{FaultKind, FaultyDisk};
use rialto::{Checkpointing, Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};

fn run(session: &mut Session, sql: &str) -> Result<(), SqlError> {
    let prepared = session.prepare(sql, &[]);
    let answer = prepared.and_then(|prepared| {
        session.execute(&prepared, &[], &mut Collected::default())?;
        session.finish()
    });
    answer.map_err(|error| session.fail(&error).err().unwrap_or(error))
}

/// Two sessions on a database whose log can no longer be synced: the first has done `definition` without waiting for that,
/// and the second waits for it.
fn after(definition: &str) -> (Session, Session) {
    let disk = FaultyDisk::new(7);
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        memory_flush_interval: Duration::from_secs(3_600),
        ..Options::default()
    };
    let database = Database::open_on(disk.clone(), options).unwrap();
    let session = || Session::new(database.clone(), "ann", "bank");
    let (mut first, second) = (session(), session());
    run(&mut first, "create table t (a int primary key)").unwrap();
    run(&mut first, "create index t_a on t (a)").unwrap();
    run(&mut first, "set rialto.durability = 'memory'").unwrap();
    disk.fail_always(FaultKind::Sync, "log-0", 0);
    run(&mut first, definition).unwrap();
    (first, second)
}

/// Prepares a statement and, as at a Sync, finishes; the error's code.
fn told(session: &mut Session, sql: &str) -> Option<&'static str> {
    let answer = session.prepare(sql, &[]).and_then(|_| session.finish());
    let error = answer.err()?;
    let told = session.fail(&error).err().unwrap_or(error);
    Some(told.sqlstate.code())
}

#[test]
fn no_absence_is_told_before_it_is_durable() {
    for before in [&[][..], &["begin"], &["set lock_timeout = '5s'"], &["begin", "savepoint s"]] {
        for sql in
            ["select * from t", "insert into t values (1)", "explain delete from t", "copy t to stdout"]
        {
            let (mut first, mut second) = after("drop table t");
            for statement in before {
                run(&mut second, statement).unwrap();
            }
            // It may come to nothing: the table would be there again.
            assert_eq!(told(&mut second, sql), Some("08007"), "{before:?} {sql}");
            drop(first.take_notices());
        }
    }
    // Of what was asked for itself less, less is awaited.
    let (mut first, _) = after("drop table t");
    assert_eq!(told(&mut first, "select * from t"), Some("42P01"));
    for (definition, sql) in [
        ("drop table t", "analyze t"),
        ("drop table t", "drop table t"),
        ("drop index t_a", "drop index t_a"),
        ("create table u (a int)", "create table u (a int)"),
    ] {
        let (_first, mut second) = after(definition);
        let told = run(&mut second, sql).unwrap_err();
        assert!(matches!(told.sqlstate.code(), "08007" | "58030"), "{definition}; {sql}: {told}");
    }
}

#[test]
fn no_presence_is_told_before_it_is_durable() {
    for sql in ["select * from u", "insert into u values (1)", "select b from u where b = $1"] {
        let (mut first, mut second) = after("create table u (b int)");
        assert_eq!(told(&mut second, sql), Some("08007"), "{sql}");
        assert_eq!(told(&mut first, sql), None, "{sql}");
    }
}
