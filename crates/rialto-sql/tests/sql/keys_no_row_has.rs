//! An answer about a key that no row can have is as serializable as an answer from rows. It depends on the definition
//! of the table, which stays as it is until the transaction ends.

use rialto::io::MemoryDisk;
use rialto::{Database, Engine, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};

fn try_run(session: &mut Session, sql: &str) -> Result<String, SqlError> {
    let answer = run_in_pipeline(session, sql).and_then(|answer| session.finish().map(|()| answer));
    answer.inspect_err(|error| drop(session.fail(error)))
}

/// Runs a statement that others may follow in its implicit block.
fn run_in_pipeline(session: &mut Session, sql: &str) -> Result<String, SqlError> {
    let mut rows = Collected::default();
    let read = session.read(sql)?;
    let ready = session.prepare_read(sql, read)?;
    let tag = session.execute_ready(&ready, &mut rows)?;
    Ok(format!("{tag} {:?}", rows.0))
}

fn run(session: &mut Session, sql: &str) -> String {
    try_run(session, sql).unwrap_or_else(|error| panic!("{sql}\n{} {error}", error.sqlstate.code()))
}

/// New databases, one with each form of locks.
fn databases() -> impl Iterator<Item = (Engine, Database)> {
    Engine::ALL.into_iter().map(|engine| {
        let options = Options { engine, ..Options::default() };
        (engine, Database::open_on(MemoryDisk::new(), options).unwrap())
    })
}

/// The statement's answer stays true until its transaction ends, and a transaction that makes the table anew waits for
/// that.
fn stays(look: &str, make_anew: &[&str]) {
    stays_in("begin", look, make_anew);
}

fn stays_in(begin: &str, look: &str, make_anew: &[&str]) {
    for (engine, database) in databases() {
        let (before, after, waited) = looks_twice(database, begin, look, make_anew);
        assert_eq!((before, waited), (after, true), "{engine}: {begin}; {look}");
    }
}

fn looks_twice(database: Database, begin: &str, look: &str, make_anew: &[&str]) -> (String, String, bool) {
    let mut one = Session::new(database.clone(), "ann", "bank");
    let mut two = Session::new(database, "bob", "bank");
    for sql in [
        "create table t (id integer primary key)",
        "create table s (k text primary key)",
        "insert into t values (1)",
    ] {
        run(&mut one, sql);
    }
    run(&mut one, begin);
    let before = run(&mut one, look);
    // The other transaction has to wait, and gives up soon.
    run(&mut two, "set lock_timeout = 50");
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
    let after = run(&mut one, look);
    run(&mut one, "commit");
    (before, after, waited)
}

/// For comparison: a value that a key can express locks its table, and the definition waits.
#[test]
fn a_value_that_fits_is_repeatable() {
    let look = "select count(*) from t where id = 7";
    let again = ["drop table t", "create table t (id bigint primary key)", "insert into t values (7)"];
    stays(look, &again);
}

#[test]
fn a_value_that_no_key_expresses_is_repeatable() {
    let look = "select count(*) from t where id = 99999999999";
    let again =
        ["drop table t", "create table t (id bigint primary key)", "insert into t values (99999999999)"];
    stays(look, &again);
}

#[test]
fn a_text_that_no_key_holds_is_repeatable() {
    let long = "x".repeat(8_000);
    let look = format!("select count(*) from s where k = '{long}'");
    let insert = format!("insert into s values ('{long}')");
    stays(&look, &["drop table s", "create table s (k text)", &insert]);
}

/// No value of the list is one that a row's key can have.
#[test]
fn a_list_of_keys_that_no_row_has_keeps_its_table() {
    let long = |letter: &str| format!("'{}'", letter.repeat(2_000));
    let (one, other) = (long("x"), long("y"));
    let insert = format!("insert into s values ({one})");
    for look in ["select count(*) from s", "delete from s", "update s set k = ''"] {
        let look = format!("{look} where k in ({one}, {other})");
        stays(&look, &["drop table s", "create table s (k text)", &insert]);
    }
    let again =
        ["drop table t", "create table t (id bigint primary key)", "insert into t values (99999999999)"];
    stays("select count(*) from t where id = any('{99999999999,99999999998}'::bigint[])", &again);
}

#[test]
fn what_a_delete_did_not_find_stays_absent() {
    let again =
        ["drop table t", "create table t (id bigint primary key)", "insert into t values (99999999999)"];
    stays("delete from t where id = 99999999999", &again);
}

/// A plan tells of the table and its indexes, and a statement with nothing to do tells of the table. These stay as they
/// were told.
#[test]
fn what_tells_of_tables_keeps_them() {
    for (tells, changes) in [
        ("explain select id from t where id = 1", &["drop table t", "create table t (id bigint)"][..]),
        ("explain select id from t where id = 1", &["truncate t"]),
        ("explain delete from t", &["create index i on t (id)"]),
        ("explain insert into t values (2)", &["drop table t"]),
        ("analyze s, t", &["drop table t"]),
        ("vacuum t", &["drop table t"]),
    ] {
        for begin in ["begin", "begin read only"] {
            stays_in(begin, tells, changes);
        }
    }
}

/// A statement that is alone in its transaction tells of the tables as they are, and waits for no definition.
#[test]
fn what_tells_of_tables_waits_for_nothing_outside_a_block() {
    for (engine, database) in databases() {
        let mut one = Session::new(database.clone(), "ann", "bank");
        let mut two = Session::new(database.clone(), "bob", "bank");
        run(&mut one, "create table t (id integer primary key)");
        run(&mut one, "create table s (id integer)");
        run(&mut two, "set lock_timeout = 50");
        run(&mut one, "begin");
        run(&mut one, "drop table t");
        for tells in ["explain select id from t where id = 1", "analyze t", "vacuum t"] {
            run(&mut two, tells);
            run(&mut two, "begin");
            let waited = try_run(&mut two, tells).unwrap_err();
            assert_eq!(waited.sqlstate.code(), "55P03", "{engine}: {tells}");
            run(&mut two, "rollback");
        }
        // Of two tables it tells the state at one moment.
        let waited = try_run(&mut two, "vacuum s, t").unwrap_err();
        assert_eq!(waited.sqlstate.code(), "55P03", "{engine}");
        run(&mut one, "commit");
        for tells in ["explain select id from t where id = 1", "analyze t", "vacuum t"] {
            for block in [false, true] {
                if block {
                    run(&mut two, "begin");
                }
                let absent = try_run(&mut two, tells).unwrap_err();
                assert_eq!(absent.sqlstate.code(), "42P01", "{engine}: {tells}");
                if block {
                    run(&mut two, "rollback");
                }
            }
        }
    }
}

#[test]
fn what_tells_of_tables_keeps_them_to_the_end_of_a_pipeline() {
    for (engine, database) in databases() {
        let mut one = Session::new(database.clone(), "ann", "bank");
        let mut two = Session::new(database.clone(), "bob", "bank");
        run(&mut two, "set lock_timeout = 50");
        for tells in ["explain select id from t where id = 1", "analyze t"] {
            run(&mut one, "create table t (id integer primary key)");
            for sql in ["select 1", tells] {
                run_in_pipeline(&mut one, sql).unwrap();
            }
            let waited = try_run(&mut two, "drop table t").unwrap_err();
            assert_eq!(waited.sqlstate.code(), "55P03", "{engine}: {tells}");
            one.finish().unwrap();
            run(&mut two, "drop table t");
        }
    }
}

/// A plan in a block is made for the table under its lock.
#[test]
fn a_plan_in_a_block_is_of_the_table_as_it_was_locked() {
    for (engine, database) in databases() {
        let mut one = Session::new(database.clone(), "ann", "bank");
        let mut two = Session::new(database.clone(), "bob", "bank");
        run(&mut one, "create table t (id integer primary key, n integer)");
        let explain = "explain select id from t where n = 1";
        let by_scan = run(&mut two, explain);
        run(&mut one, "begin");
        run(&mut one, "create index t_n on t (n)");
        run(&mut two, "begin");
        let by_index = std::thread::scope(|scope| {
            let explained = scope.spawn(|| run(&mut two, explain));
            while database.lock_waits().is_empty() && !explained.is_finished() {
                std::thread::yield_now();
            }
            run(&mut one, "commit");
            explained.join().unwrap()
        });
        assert!(by_index.contains("t_n") && !by_scan.contains("t_n"), "{engine}: {by_scan}, then {by_index}");
        assert_eq!(run(&mut two, explain), by_index, "{engine}");
        run(&mut two, "commit");
    }
}

/// These statements tell of no row but of the definition: the other transaction waits.
#[test]
fn what_rests_on_the_definition_alone_keeps_it() {
    let anew = ["drop table t", "create table t (id bigint primary key)"];
    for look in [
        "select id from t limit 0",
        "insert into t select 1 where false",
        "update t set id = 1 where id = 99999999999",
        "select id from t where id = 99999999999 for update",
    ] {
        stays(look, &anew);
    }
}
