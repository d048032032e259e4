//! Settings belong to the transaction: SHOW tells what the open transaction uses, and a rollback undoes a SET.

use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::{Database, Error, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};

/// A database whose log is written for commits of level `disk` only, with a table of two rows.
fn database() -> Database {
    let options = Options { memory_flush_interval: Duration::from_secs(3_600), ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
    let mut session = session(&database);
    run(&mut session, "create table t (k int primary key, a int)");
    run(&mut session, "insert into t values (1, 0), (2, 0)");
    database
}

fn session(database: &Database) -> Session {
    Session::new(database.clone(), "ann", "bank")
}

fn try_run(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let answer = (|| {
        let prepared = session.prepare(sql, &[])?;
        let mut rows = Collected::default();
        session.execute(&prepared, &[], &mut rows)?;
        session.finish()?;
        Ok(rows.0.into_iter().map(|row| format!("{:?}", row[0]).replace("Text(\"", "").replace("\")", "")))
    })();
    answer.map(Iterator::collect).inspect_err(|error| {
        let _ = session.fail(error);
    })
}

fn run(session: &mut Session, sql: &str) -> Vec<String> {
    try_run(session, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn run_all(session: &mut Session, statements: &[&str]) {
    for sql in statements {
        run(session, sql);
    }
}

fn code(session: &mut Session, sql: &str) -> &'static str {
    try_run(session, sql).expect_err(sql).sqlstate.code()
}

fn show(session: &mut Session, name: &str) -> String {
    run(session, &format!("show {name}")).concat()
}

/// Runs the statements as one query string.
fn run_in_one_block(session: &mut Session, statements: &[&str]) -> Result<(), SqlError> {
    let answer = statements.iter().try_for_each(|sql| {
        let prepared = session.prepare(sql, &[])?;
        session.execute(&prepared, &[], &mut Collected::default()).map(|_| ())
    });
    answer.and_then(|()| session.finish()).inspect_err(|error| {
        let _ = session.fail(error);
    })
}

const MEMORY: &str = "set rialto.durability = 'memory'";
const DISK: &str = "set rialto.durability = 'disk'";

#[test]
fn a_commit_is_as_durable_as_show_says_before_it() {
    let database = database();
    for (before, within, shown) in [
        (MEMORY, &[][..], "memory"),
        (MEMORY, &["reset rialto.durability"], "default"),
        (MEMORY, &["reset all"], "default"),
        (MEMORY, &["set rialto.durability to default"], "default"),
        (MEMORY, &["set rialto.durability = 'default'"], "default"),
        (MEMORY, &[DISK], "disk"),
        (MEMORY, &["set local rialto.durability = 'disk'"], "disk"),
        (DISK, &["set local rialto.durability = 'memory'"], "memory"),
        (DISK, &["savepoint a", MEMORY, "rollback to a"], "disk"),
        (MEMORY, &["savepoint a", "reset all", "rollback to a"], "memory"),
        (DISK, &["savepoint a", MEMORY, "release a"], "memory"),
        (DISK, &["savepoint a", MEMORY, "savepoint b", DISK, "rollback to b", "rollback to a"], "disk"),
    ] {
        let mut session = session(&database);
        run_all(&mut session, &[before, "begin", "update t set a = a + 1 where k = 1"]);
        run_all(&mut session, within);
        assert_eq!(show(&mut session, "rialto.durability"), shown, "{before}, {within:?}");
        let groups = database.metrics().log.groups;
        run(&mut session, "commit");
        let written = database.metrics().log.groups > groups;
        assert_eq!(written, shown != "memory", "{before}, {within:?}: SHOW said {shown}");
    }
}

#[test]
fn every_setting_goes_back_with_a_rollback_and_with_one_to_a_savepoint() {
    let database = database();
    for (name, value) in [
        ("application_name", "'other'"),
        ("rialto.durability", "'memory'"),
        ("rialto.commit_stall", "'1ms'"),
        ("rialto.willing_to_wait", "'1ms'"),
        ("lock_timeout", "'3s'"),
        ("statement_timeout", "'3h'"),
        ("default_transaction_read_only", "on"),
        ("transaction_read_only", "on"),
        ("client_encoding", "'sql_ascii'"),
        ("client_min_messages", "warning"),
        ("extra_float_digits", "3"),
    ] {
        let mut session = session(&database);
        let set = format!("set {name} = {value}");
        run_all(&mut session, &["begin", "update t set a = 1 where k = 1"]);
        let before = show(&mut session, name);
        run_all(&mut session, &["savepoint a", &set]);
        let changed = show(&mut session, name);
        assert_ne!(changed, before, "{name}");
        run(&mut session, "rollback to a");
        assert_eq!(show(&mut session, name), before, "{name} after ROLLBACK TO");
        run_all(&mut session, &[&set, "rollback", "begin"]);
        assert_eq!(show(&mut session, name), before, "{name} after ROLLBACK");
        run_all(&mut session, &["commit", "begin", &set.replace("set", "set local")]);
        assert_eq!(show(&mut session, name), changed, "{name} after SET LOCAL");
        run_all(&mut session, &["commit", "begin"]);
        assert_eq!(show(&mut session, name), before, "{name} after SET LOCAL and COMMIT");
    }
}

#[test]
fn a_lock_timeout_counts_for_the_open_transaction() {
    let database = database();
    let (mut holder, mut waiter) = (session(&database), session(&database));
    run_all(&mut holder, &["begin", "update t set a = 1 where k = 1"]);
    run_all(&mut waiter, &["set lock_timeout = '60s'", "begin", "update t set a = 1 where k = 2"]);
    run(&mut waiter, "set lock_timeout = '20ms'");
    let error = try_run(&mut waiter, "update t set a = 2 where k = 1").unwrap_err();
    match error.cause.as_deref() {
        Some(Error::LockTimeout { waited_ms, .. }) => assert!(*waited_ms < 60_000, "{error}"),
        _ => panic!("{error}"),
    }
    run_all(&mut waiter, &["rollback", "set lock_timeout = '1ms'", "begin"]);
    run_all(&mut waiter, &["update t set a = 1 where k = 2", "set lock_timeout = 0"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&mut waiter, "update t set a = 2 where k = 1"));
        while database.lock_waits().is_empty() && !waiting.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        run(&mut holder, "commit");
        waiting.join().expect("a longer limit is waited for");
    });
}

#[test]
fn read_only_has_every_spelling_of_a_boolean_and_no_other() {
    let database = database();
    for (number, value) in ["'ON'", "'TRUE'", "t", "y", "on", "1", "'yes'"].into_iter().enumerate() {
        let mut session = session(&database);
        run_all(&mut session, &["begin", &format!("set transaction_read_only = {value}")]);
        assert_eq!(show(&mut session, "transaction_read_only"), "on", "{value}");
        assert_eq!(code(&mut session, &format!("insert into t values ({number} + 10, 0)")), "25006");
    }
    let mut session = session(&database);
    for value in ["banana", "''", "2", "o"] {
        run(&mut session, "begin");
        assert_eq!(code(&mut session, &format!("set transaction_read_only = {value}")), "22023", "{value}");
        run(&mut session, "rollback");
    }
}

#[test]
fn a_transaction_gives_up_writing_at_any_time_and_takes_it_up_before_its_first_query() {
    let database = database();
    let mut session = session(&database);
    run_all(
        &mut session,
        &["begin read only", "set transaction read write", "update t set a = 1 where k = 1"],
    );
    run_all(&mut session, &["savepoint a", "set transaction read only", "savepoint b"]);
    assert_eq!(code(&mut session, "update t set a = 2 where k = 1"), "25006");
    run(&mut session, "rollback to b");
    assert_eq!(code(&mut session, "set transaction read write"), "25001");
    run_all(&mut session, &["rollback to a", "update t set a = 3 where k = 1", "commit"]);
    assert_eq!(run(&mut session, "select a from t where k = 1"), ["Int4(3)"]);
    run(&mut session, "set session characteristics as transaction read only");
    assert_eq!(show(&mut session, "default_transaction_read_only"), "on");
    assert_eq!(code(&mut session, "update t set a = 4 where k = 1"), "25006");
    run_all(&mut session, &["begin", "reset all", "rollback"]);
    assert_eq!(code(&mut session, "update t set a = 4 where k = 1"), "25006");
    run_all(&mut session, &["reset all", "update t set a = 4 where k = 1"]);
}

#[test]
fn clients_are_told_of_every_change_that_they_want_to_know() {
    let database = database();
    let mut session = session(&database);
    session.set("application_name", "start").unwrap();
    let told = |session: &mut Session| {
        let changes = session.take_status_changes();
        changes.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    for (sql, expected) in [
        ("set application_name = 'a'", "application_name=a"),
        ("set lock_timeout = 5", ""),
        ("begin", ""),
        ("set local application_name = 'b'", "application_name=b"),
        ("savepoint s", ""),
        ("reset all", "application_name=start"),
        ("rollback to s", "application_name=b"),
        ("commit", "application_name=a"),
        ("set default_transaction_read_only = true", "default_transaction_read_only=on"),
        ("reset all", "application_name=start default_transaction_read_only=off"),
    ] {
        run(&mut session, sql);
        assert_eq!(told(&mut session), expected, "{sql}");
    }
}

#[test]
fn a_name_of_an_application_is_cut_as_with_postgresql() {
    let mut session = session(&database());
    run(&mut session, &format!("set application_name = '{}'", "a".repeat(1_000)));
    assert_eq!(run(&mut session, "show application_name"), ["a".repeat(63)]);
}

#[test]
fn a_setting_takes_every_form_of_a_string() {
    let database = database();
    let mut session = session(&database);
    for (written, shown) in [
        ("'plain'", "plain"),
        ("$$it's$$", "it's"),
        ("$tag$a $$ b$tag$", "a $$ b"),
        ("$$$$", ""),
        ("E'a\\x62'", "ab"),
        ("word", "word"),
        ("$$a$$, 'b'", "a, b"),
    ] {
        for set in ["set application_name =", "set application_name to", "set session application_name ="] {
            run(&mut session, &format!("{set} {written}"));
            assert_eq!(show(&mut session, "application_name"), shown, "{set} {written}");
        }
    }
    run(&mut session, "set lock_timeout = $$3s$$");
    assert_eq!(show(&mut session, "lock_timeout"), "3s");
    for wrong in ["$1", "$$open", "$a$x$b$"] {
        let error = try_run(&mut session, &format!("set application_name = {wrong}")).unwrap_err();
        assert_eq!(error.sqlstate.code(), "42601", "{wrong}");
    }
}

/// A block that a query string opens obeys the modes that are set in it, too.
#[test]
fn a_query_string_that_gives_up_writing_writes_nothing() {
    let mut session = session(&database());
    let strings: [&[&str]; 2] = [
        &["set transaction read only", "update t set a = 1"],
        &["select a from t", "set transaction read only", "update t set a = 1"],
    ];
    for statements in strings {
        let error = run_in_one_block(&mut session, statements).expect_err("it may not write");
        assert_eq!(error.sqlstate.code(), "25006");
        assert_eq!(run(&mut session, "select a from t"), ["Int4(0)", "Int4(0)"]);
    }
    run(&mut session, "set transaction read only");
    run(&mut session, "update t set a = 1");
}
