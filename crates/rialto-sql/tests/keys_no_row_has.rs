//! What a statement finds that no row can have is as serializable as what it finds in rows: the answer rests on the definition of
//! its table, which stays as it is until the transaction ends.

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};

fn try_run(session: &mut Session, sql: &str) -> Result<String, SqlError> {
    let mut rows = Collected::default();
    let answer = session.read(sql).and_then(|read| {
        let ready = session.prepare_read(sql, read)?;
        let tag = session.execute_ready(&ready, &mut rows)?;
        session.finish()?;
        Ok(tag)
    });
    let tag = answer.inspect_err(|error| drop(session.fail(error)))?;
    Ok(format!("{tag} {:?}", rows.0))
}

fn run(session: &mut Session, sql: &str) -> String {
    try_run(session, sql).unwrap_or_else(|error| panic!("{sql}\n{} {error}", error.sqlstate.code()))
}

fn looks_twice(first: &str, second: &str, make_anew: &[&str]) -> (String, String, bool) {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).unwrap();
    let mut one = Session::new(database.clone(), "ann", "bank");
    let mut two = Session::new(database, "bob", "bank");
    for sql in [
        "create table t (id integer primary key)",
        "create table s (k text primary key)",
        "insert into t values (1)",
    ] {
        run(&mut one, sql);
    }
    run(&mut one, "begin");
    let before = run(&mut one, first);
    // The other transaction gives up soon if it has to wait, as it should.
    run(&mut two, "set lock_timeout = 200");
    run(&mut two, "begin");
    let mut waited = false;
    for sql in make_anew {
        if let Err(error) = try_run(&mut two, sql) {
            assert_eq!(error.sqlstate.code(), "55P03", "{sql}: {error}");
            waited = true;
            break;
        }
    }
    run(&mut two, if waited { "rollback" } else { "commit" });
    let after = run(&mut one, second);
    run(&mut one, "commit");
    (before, after, waited)
}

/// Holds: a value that a key can express locks its table, and the definition waits.
#[test]
fn a_value_that_fits_is_repeatable() {
    let look = "select count(*) from t where id = 7";
    let again = ["drop table t", "create table t (id bigint primary key)", "insert into t values (7)"];
    let (before, after, waited) = looks_twice(look, look, &again);
    assert_eq!((before, waited), (after, true));
}

#[test]
fn a_value_that_no_key_expresses_is_repeatable() {
    let look = "select count(*) from t where id = 99999999999";
    let again =
        ["drop table t", "create table t (id bigint primary key)", "insert into t values (99999999999)"];
    let (before, after, waited) = looks_twice(look, look, &again);
    assert_eq!((before, waited), (after, true));
}

#[test]
fn a_text_that_no_key_holds_is_repeatable() {
    let long = "x".repeat(8_000);
    let look = format!("select count(*) from s where k = '{long}'");
    let insert = format!("insert into s values ('{long}')");
    let (before, after, waited) =
        looks_twice(&look, &look, &["drop table s", "create table s (k text)", &insert]);
    assert_eq!((before, waited), (after, true));
}

#[test]
fn what_a_delete_did_not_find_stays_absent() {
    let again =
        ["drop table t", "create table t (id bigint primary key)", "insert into t values (99999999999)"];
    let delete = "delete from t where id = 99999999999";
    let (before, after, waited) = looks_twice(delete, delete, &again);
    assert_eq!((before, waited), (after, true));
}

/// What tells of no row but of the definition: the other transaction waits.
#[test]
fn what_rests_on_the_definition_alone_keeps_it() {
    let anew = ["drop table t", "create table t (id bigint primary key)"];
    for look in [
        "select id from t limit 0",
        "insert into t select 1 where false",
        "update t set id = 1 where id = 99999999999",
        "select id from t where id = 99999999999 for update",
    ] {
        let (before, after, waited) = looks_twice(look, look, &anew);
        assert_eq!((before, waited), (after, true), "{look}");
    }
}
