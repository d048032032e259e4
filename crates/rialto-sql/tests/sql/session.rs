//! Sessions on a database in memory: results, transactions, errors, plans.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::backup::Archive;
use rialto::io::{Caching, FaultKind, FaultyDisk, MemoryDisk};
use rialto::row::Value;
use rialto::{Checkpointing, Database, Durability, GroupCommitDesign, GroupCommitOptions, Logging, Options};
use rialto_sql::run::Collected;
use rialto_sql::values::text;
use rialto_sql::{Prepared, RowSink, Session, SqlError, SqlType, TransactionStatus};

mod blocks;
mod cancels;
mod copies;
mod on_disk;

fn database() -> Database {
    Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens")
}

/// Runs one statement with arguments. Gives the rows as text.
fn try_run(session: &mut Session, sql: &str, params: &[Value]) -> Result<Vec<Vec<String>>, SqlError> {
    let answer = (|| {
        let prepared = session.prepare(sql, &[])?;
        let mut rows = Collected::default();
        session.execute(&prepared, params, &mut rows)?;
        session.finish()?;
        let print = |(value, sql_type): (&Value, SqlType)| {
            let mut out = Vec::new();
            match text::write(value, sql_type, &mut out) {
                Some(()) => String::from_utf8(out).unwrap(),
                None => "NULL".to_string(),
            }
        };
        let types: Vec<SqlType> = prepared.row_columns().iter().map(|column| column.sql_type).collect();
        Ok(rows.0.iter().map(|row| row.iter().zip(types.clone()).map(print).collect()).collect())
    })();
    answer.inspect_err(|error| {
        let _ = session.fail(error);
    })
}

fn run(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    try_run(session, sql, &[]).unwrap_or_else(|error| panic!("{sql}\n{} {error}", error.sqlstate.code()))
}

/// The one value of a one-row, one-column result.
fn value(session: &mut Session, sql: &str) -> String {
    let rows = run(session, sql);
    assert!(rows.len() == 1 && rows[0].len() == 1, "{sql}: {rows:?}");
    rows[0][0].clone()
}

/// The first column.
fn column(session: &mut Session, sql: &str) -> Vec<String> {
    run(session, sql).into_iter().map(|mut row| row.swap_remove(0)).collect()
}

fn code(session: &mut Session, sql: &str) -> &'static str {
    try_run(session, sql, &[]).expect_err(sql).sqlstate.code()
}

fn bank() -> Session {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (a int primary key, b int, c text, d char(5), e numeric(6,2))");
    run(&mut session, "create index t_b on t (b)");
    run(&mut session, "create index t_cb on t (c, b)");
    run(&mut session, "insert into t select n, n % 3, 'c', 'd', 1.5 from generate_series(1, 9) n");
    run(&mut session, "insert into t values (10, null, null, 'abc', null)");
    session
}

#[test]
fn expressions_give_what_postgresql_gives() {
    let mut session = Session::new(database(), "ann", "bank");
    let cases = [
        ("1 + 2 * 3", "7"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("10 / 4.0", "2.5000000000000000"),
        ("1.5 + 1", "2.5"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1e3", "1000"),
        ("'12'::int + 1", "13"),
        ("2.5::int", "3"),
        ("0.5::float8::int", "0"),
        ("'t'::bool", "t"),
        ("null and false", "f"),
        ("null or true", "t"),
        ("not (null and true)", "NULL"),
        ("1 = null", "NULL"),
        ("null is null", "t"),
        ("1 in (2, null)", "NULL"),
        ("1 in (1, null)", "t"),
        ("1 not in (2, 3)", "t"),
        ("2 between 1 and 2", "t"),
        ("2 not between 1 and 2", "f"),
        ("'abc' like '_b%'", "t"),
        ("'a%c' like 'a\\%c'", "t"),
        ("'abc' like 'a\\%c'", "f"),
        ("'aXbXc' like '%X%X%'", "t"),
        ("'abc' not like '%d%'", "t"),
        ("'a' || 1 || true", "a1true"),
        ("coalesce(null, null, 3)", "3"),
        ("nullif(1, 1)", "NULL"),
        ("abs(-3.5)", "3.5"),
        ("length('größe')", "5"),
        ("upper('abc') || lower('DEF')", "ABCdef"),
        ("'abcdef'::char(3)", "abc"),
        ("date '2024-02-29'", "2024-02-29"),
        ("timestamp '2024-02-29 12:00:00.5' > date '2024-02-29'", "t"),
        ("'2024-02-29 23:59:59'::timestamp::date", "2024-02-29"),
        ("1.50 = 1.5", "t"),
    ];
    for (expr, expected) in &cases {
        assert_eq!(value(&mut session, &format!("select {expr}")), *expected, "{expr}");
    }
}

#[test]
fn expression_errors_have_their_codes() {
    let mut session = bank();
    for (sql, expected) in [
        ("select 2147483647 + 1", "22003"),
        ("select a + 2147483647 from t", "22003"),
        ("select 1 / 0", "22012"),
        ("select 'x'::int", "22P02"),
        ("select '99999999999'::int", "22003"),
        ("select 1 + 'x'", "22P02"),
        ("select 1 + true", "42883"),
        ("select 'a' + 'b'", "22P02"),
        ("select a from t where b", "42804"),
        ("select nope from t", "42703"),
        ("select x.a from t", "42P01"),
        ("select a from nope", "42P01"),
        ("select * from t where count(*) > 1", "42803"),
        ("select a, count(*) from t", "42803"),
        ("select a from t order by 3", "42P10"),
        ("select a as x, b as x from t order by x", "42702"),
        ("select a from t limit -1", "22023"),
        ("selec 1", "42601"),
        ("select 1 +", "42601"),
        ("insert into t values (1, 2, 3, 4, 5, 6)", "42601"),
        ("insert into t (a, a) values (1, 2)", "42701"),
        ("insert into t (a, nope) values (1, 2)", "42703"),
        ("insert into t (a) values (null)", "23502"),
        ("insert into t (a) values (1)", "23505"),
        ("insert into t (a, d) values (99, 'too long')", "22001"),
        ("insert into t (a, e) values (99, 99999.5)", "22003"),
        ("insert into t (a) values (true)", "42804"),
        ("insert into t (a) values (99999999999)", "22003"),
        ("update t set b = 1, b = 2", "42601"),
        ("create table t (a int)", "42P07"),
        ("create table u (a int, a int)", "42701"),
        ("create table u (a int primary key, primary key (a))", "42P16"),
        ("create index t_b on t (a)", "42P07"),
        ("create index on t (nope)", "42703"),
        ("drop table nope", "42P01"),
        ("drop index nope", "42704"),
        ("truncate nope", "42P01"),
        ("alter table t add primary key (b)", "42P16"),
        ("show nope", "42704"),
        ("set nope = 1", "42704"),
        ("savepoint s", "25P01"),
        ("rollback to s", "25P01"),
    ] {
        assert_eq!(code(&mut session, sql), expected, "{sql}");
        assert_eq!(session.status(), TransactionStatus::Idle, "{sql}");
    }
}

#[test]
fn errors_point_at_their_place() {
    let mut session = bank();
    let mut position = |sql: &str| try_run(&mut session, sql, &[]).expect_err(sql).position;
    assert_eq!(position("select nope from t"), Some(8));
    assert_eq!(position("select a\n  from nope"), Some(17));
    assert_eq!(position("select 'é', nope from t"), Some(13));
    assert_eq!(position("selec 1"), Some(1));
    assert_eq!(position("select 1 from t where"), Some(22));
    assert_eq!(position("insert into t (a, nope) values (1, 2)"), Some(19));
    assert_eq!(position("update t set nope = 1"), Some(14));
    assert_eq!(position("explain select nope from t"), Some(16));
    assert_eq!(position("vacuum nope"), Some(8));
    assert_eq!(position("select 'x'::int"), Some(8));
}

#[test]
fn rows_are_found_the_same_by_every_path() {
    let mut session = bank();
    for (sql, expected) in [
        ("select a from t where a = 3", "3"),
        ("select a from t where 3 = a", "3"),
        ("select a from t where a = 3.0", "3"),
        ("select a from t where a = 3.5", ""),
        ("select a from t where a = 99999999999", ""),
        ("select a from t where a > 7.5", "8 9 10"),
        ("select a from t where a >= 8 and a < 9.5", "8 9"),
        ("select a from t where a < -99999999999", ""),
        ("select a from t where a < 99999999999 and a > 8", "9 10"),
        ("select a from t where a between 2 and 4 order by a desc", "4 3 2"),
        ("select a from t where a in (4, 2)", "2 4"),
        ("select a from t where b = 1", "1 4 7"),
        ("select a from t where b = 1 and a > 1", "4 7"),
        ("select a from t where b > 0 order by a", "1 2 4 5 7 8"),
        ("select a from t where b >= 2", "2 5 8"),
        ("select a from t where b is null", "10"),
        ("select a from t where b = null", ""),
        ("select a from t where c = 'c' and b = 2", "2 5 8"),
        ("select a from t where c >= 'c' and b = 2", "2 5 8"),
        ("select a from t where d = 'abc'", "10"),
        ("select a from t where d = 'abc  '", "10"),
        ("select a from t where e = 1.5 and a < 3", "1 2"),
        ("select a from t order by b, a limit 4", "3 6 9 1"),
        ("select a from t order by b desc, a limit 2", "10 2"),
        ("select a from t order by b desc nulls last, a limit 2", "2 5"),
        ("select a from t order by a desc limit 2 offset 1", "9 8"),
        ("select a from t order by -a limit 2", "10 9"),
        ("select a as x from t order by x desc limit 1", "10"),
        ("select a as x, a as x, a as x from t order by x desc limit 1", "10"),
        ("select a from t limit 0", ""),
        ("select count(*) from t where b = 0", "3"),
        ("select count(*) from t where a > 100", "0"),
        ("select n from generate_series(3, 1, -1) n", "3 2 1"),
        ("select n from generate_series(1, 5) n order by n desc limit 2", "5 4"),
    ] {
        assert_eq!(column(&mut session, sql).join(" "), expected, "{sql}");
    }
}

#[test]
fn explain_tells_the_path() {
    let mut session = bank();
    for (sql, expected) in [
        ("select * from t where a = 1", "Key lookup on t using t_pkey"),
        ("select * from t where a = 1 and b = 2", "Key lookup on t using t_pkey"),
        ("select * from t where a > 1", "Index scan on t using t_pkey"),
        ("select * from t where b = 1", "Index scan on t using t_b"),
        ("select * from t where c = 'x' and b > 1", "Index scan on t using t_cb"),
        ("select * from t where d = 'x'", "Table scan on t using t_pkey"),
        ("select * from t order by a desc limit 1", "Limit"),
        ("select * from t order by d", "Sort"),
        ("select count(*) from t", "Count rows"),
        ("update t set e = e + 1 where a = $1", "Update in place of t"),
        ("update t set b = 1 where a = 1", "Update of t"),
        ("update t set e = 1 where a = 1 returning e", "Update of t"),
        ("delete from t", "Delete from t"),
        ("insert into t (a) values (1), (2)", "Insert 2 rows into t"),
    ] {
        assert_eq!(column(&mut session, &format!("explain {sql}"))[0], expected, "{sql}");
    }
    let lines = column(&mut session, "explain select * from t where b = 1 and a <> 2 order by b");
    assert_eq!(lines, ["Index scan on t using t_b", "  Key: b = 1", "  Filter: (a <> 2)"]);
}

#[test]
fn changes_are_seen_and_returned() {
    let mut session = bank();
    assert_eq!(
        run(&mut session, "update t set e = e + 0.255 where a = 1 returning e, d"),
        [["1.76", "d    "]]
    );
    assert_eq!(
        column(&mut session, "update t set b = a, a = a + 100 where a <= 2 returning a"),
        ["101", "102"]
    );
    assert_eq!(column(&mut session, "select a from t where b = 2 order by a"), ["5", "8", "102"]);
    assert_eq!(column(&mut session, "delete from t where b = 1 returning a"), ["4", "7", "101"]);
    assert_eq!(value(&mut session, "select count(*) from t"), "7");
    run(&mut session, "update t set a = a + 1 where a > 100");
    assert_eq!(value(&mut session, "select b from t where a = 103"), "2");
    run(&mut session, "truncate t");
    assert_eq!(value(&mut session, "select count(*) from t"), "0");
}

#[test]
fn parameters_take_the_types_of_their_neighbours() {
    let mut session = bank();
    let prepared = session
        .prepare("select a + $1, $2 from t where c = $3 and e > $4 and a in ($5) limit $6", &[])
        .unwrap();
    let names: Vec<String> = prepared.params.iter().map(|sql_type| sql_type.name()).collect();
    assert_eq!(names, ["integer", "text", "text", "numeric", "integer", "bigint"]);
    let prepared = session.prepare("insert into t (a, d) values ($1, $2)", &[]).unwrap();
    assert_eq!(prepared.params, [SqlType::Int4, SqlType::Char(None)]);
    let prepared = session.prepare("select $1", &[SqlType::Int8]).unwrap();
    assert_eq!(prepared.columns[0].sql_type, SqlType::Int8);
    let sql = "update t set b = b + $1 where a = $2";
    try_run(&mut session, sql, &[Value::Int4(40), Value::Int4(1)]).unwrap();
    assert_eq!(value(&mut session, "select b from t where a = 1"), "41");
}

/// A session on a database with this group commit design, whose transactions stall only if they ask for it.
fn session_with(design: GroupCommitDesign) -> (Database, Session) {
    let stall = (design == GroupCommitDesign::HiberStall).then_some(Duration::ZERO);
    let group_commit = GroupCommitOptions { stall, ..design.into() };
    let options = Options { group_commit, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
    let mut session = Session::new(database.clone(), "ann", "bank");
    run(&mut session, "create table t (a int)");
    (database, session)
}

/// Of two sessions that define something at one time, the second waits from its first lookup on, and neither is a
/// victim.
#[test]
fn a_definition_looks_at_names_under_the_lock_of_the_catalog() {
    let database = database();
    let mut one = Session::new(database.clone(), "one", "bank");
    let mut two = Session::new(database, "two", "bank");
    run(&mut two, "set lock_timeout = 50");
    run(&mut one, "begin");
    run(&mut one, "drop table if exists absent");
    run(&mut two, "begin");
    assert_eq!(code(&mut two, "drop table if exists absent"), "55P03");
    run(&mut two, "rollback");
    run(&mut one, "create table absent (a int)");
    // A statement that defines nothing waits for no definition, and keeps none waiting.
    run(&mut two, "begin");
    run(&mut two, "select 1");
    run(&mut two, "savepoint s");
    assert_eq!(code(&mut two, "select * from other"), "42P01");
    run(&mut two, "rollback to s");
    run(&mut one, "create table other (a int)");
    run(&mut one, "commit");
    run(&mut two, "commit");
    run(&mut two, "drop table if exists absent");
    // A transaction that may only read defines nothing, whatever tables exist.
    run(&mut two, "begin read only");
    assert_eq!(code(&mut two, "drop table if exists absent"), "25006");
    run(&mut two, "rollback");
}

/// Whether these statements, which commit once, stall at the commit.
fn stalls(database: &Database, session: &mut Session, statements: &[&str]) -> bool {
    let before = database.metrics().log.waits.stalls;
    for sql in statements {
        run(session, sql);
    }
    database.metrics().log.waits.stalls > before
}

#[test]
fn a_commit_waits_as_its_session_says() {
    for (design, name) in [
        (GroupCommitDesign::HiberStall, "rialto.commit_stall"),
        (GroupCommitDesign::HiberWillingToWait, "rialto.willing_to_wait"),
    ] {
        let (database, mut session) = session_with(design);
        let (set, unset) = (format!("set {name} = '250ms'"), format!("set {name} = default"));
        let zero = format!("set {name} = 0");
        let insert = "insert into t values (1)";
        for (statements, expected) in [
            (&[insert][..], false),
            (&[&set, insert], true),
            (&["begin", insert, insert, "commit"], true),
            (&[&zero, insert], false),
            (&[&set, &unset, insert], false),
            // A change in an open transaction is in force for that transaction already, and is rolled back with it.
            (&["begin", insert, &set, "commit"], true),
            (&["begin", insert, &zero, "commit"], false),
            (&["begin", &set, "rollback", insert], false),
        ] {
            assert_eq!(stalls(&database, &mut session, statements), expected, "{design}: {statements:?}");
        }
        // The setting is the session's own.
        run(&mut session, &set);
        let mut other = Session::new(database.clone(), "ben", "bank");
        assert!(!stalls(&database, &mut other, &[insert]), "{design}: another session");
    }
}

#[test]
fn alter_system_raises_the_stalls_of_all_sessions_until_it_is_taken_back() {
    for design in [GroupCommitDesign::HiberStall, GroupCommitDesign::HiberWillingToWait] {
        let (database, mut session) = session_with(design);
        let mut other = Session::new(database.clone(), "ben", "bank");
        let insert = ["insert into t values (1)"];
        assert!(!stalls(&database, &mut other, &insert), "{design}");
        run(&mut session, "alter system set rialto.raise_stalls = '250ms'");
        assert!(stalls(&database, &mut other, &insert), "{design}");
        assert!(stalls(&database, &mut session, &insert), "{design}");
        run(&mut session, "alter system set rialto.raise_stalls = 0");
        assert!(!stalls(&database, &mut other, &insert), "{design}");
        run(&mut session, "alter system set rialto.raise_stalls = '250ms'");
        run(&mut session, "alter system set rialto.raise_stalls = default");
        assert!(!stalls(&database, &mut other, &insert), "{design}");
    }
}

#[test]
fn a_wait_that_the_design_has_no_use_for_is_told() {
    let settings = [
        (
            "set rialto.commit_stall = '1ms'",
            GroupCommitDesign::honours_stall as fn(GroupCommitDesign) -> bool,
        ),
        ("set rialto.willing_to_wait = '1ms'", GroupCommitDesign::honours_willing_to_wait),
        ("alter system set rialto.raise_stalls = '1ms'", GroupCommitDesign::honours_raised_stalls),
    ];
    for design in GroupCommitDesign::ALL {
        let (_, mut session) = session_with(design);
        session.take_notices();
        for (sql, honours) in settings {
            run(&mut session, sql);
            let told: Vec<String> =
                session.take_notices().into_iter().map(|(_, notice)| notice.message.clone()).collect();
            assert_eq!(told.len(), usize::from(!honours(design)), "{design}: {sql}: {told:?}");
            for words in told {
                let names = words.contains(&format!("design {design};")) && words.contains("adaptive");
                assert!(names && words.contains("has no effect"), "{words}");
            }
        }
        for sql in
            ["reset all", "set rialto.commit_stall = default", "alter system reset rialto.raise_stalls"]
        {
            run(&mut session, sql);
            assert!(session.take_notices().is_empty(), "{design}: {sql}");
        }
    }
}

#[test]
fn deadlocks_are_retried_alone_and_told_in_a_block() {
    let database = database();
    let mut one = Session::new(database.clone(), "one", "bank");
    run(&mut one, "create table t (a int primary key, b int)");
    run(&mut one, "insert into t values (1, 0), (2, 0)");
    run(&mut one, "begin");
    run(&mut one, "update t set b = 1 where a = 1");
    let (has_locked, other_has_locked) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut two = Session::new(database, "two", "bank");
        run(&mut two, "begin");
        run(&mut two, "update t set b = 2 where a = 2");
        has_locked.send(()).unwrap();
        let outcome = try_run(&mut two, "update t set b = 2 where a = 1", &[]);
        run(&mut two, "commit");
        outcome.err().map(|error| error.sqlstate.code())
    });
    other_has_locked.recv().unwrap();
    let mine =
        try_run(&mut one, "update t set b = 1 where a = 2", &[]).err().map(|error| error.sqlstate.code());
    run(&mut one, "commit");
    let theirs = other.join().unwrap();
    assert!(
        matches!((mine, theirs), (Some("40P01"), None) | (None, Some("40P01"))),
        "one of the two is the victim: {mine:?} {theirs:?}"
    );
}

#[test]
fn a_lock_time_out_is_told() {
    let database = database();
    let mut one = Session::new(database.clone(), "one", "bank");
    let mut two = Session::new(database, "two", "bank");
    run(&mut one, "create table t (a int primary key, b int)");
    run(&mut one, "insert into t values (1, 0)");
    run(&mut one, "begin");
    run(&mut one, "update t set b = 1 where a = 1");
    run(&mut two, "set lock_timeout = 50");
    assert_eq!(code(&mut two, "update t set b = 2 where a = 1"), "55P03");
    run(&mut one, "rollback");
    run(&mut two, "update t set b = 2 where a = 1");
}

/// A regression: such a plan is good for one execution, and was made again for ever.
#[test]
fn an_index_made_in_the_block_is_used_in_the_block() {
    let mut session = bank();
    run(&mut session, "begin");
    run(&mut session, "create index t_e on t (e)");
    run(&mut session, "insert into t values (90, 1, 'x', 'y', 7.25)");
    assert!(run(&mut session, "explain select a from t where e = 7.25")[0][0].contains("t_e"));
    assert_eq!(column(&mut session, "select a from t where e = 7.25"), ["90"]);
    run(&mut session, "update t set b = 5 where e = 7.25");
    run(&mut session, "drop index t_b");
    assert_eq!(column(&mut session, "select a from t where c = 'x' and b = 5"), ["90"]);
    run(&mut session, "commit");
}

/// No definition of another transaction comes between the begin of a COPY and its rows, which were planned for the
/// table as it was.
#[test]
fn a_copy_keeps_its_table_as_it_is_from_its_begin_on() {
    let db = database();
    let mut copier = Session::new(db.clone(), "ann", "bank");
    let mut other = Session::new(db, "bob", "bank");
    run(&mut other, "set lock_timeout = '20ms'");
    for (table, ddl) in [
        ("wide", "create index wide_c on wide (c)"),
        ("keyless", "alter table keyless add primary key (a)"),
        ("gone", "drop table gone"),
    ] {
        run(&mut other, &format!("create table {table} (a int, c text)"));
        let prepared = copier.prepare(&format!("copy {table} from stdin"), &[]).unwrap();
        let mut copy = copier.begin_copy(&prepared).unwrap();
        assert_eq!(code(&mut other, ddl), "55P03", "{ddl}");
        copier.run_copy(&mut copy, b"1\tx\n", true).unwrap();
        copier.finish().unwrap();
        assert_eq!(value(&mut other, &format!("select count(*) from {table}")), "1");
        run(&mut other, ddl);
    }
}

/// With action logging `x = x + 1` is logged as an increment: fewer bytes, the same rows, also after a recovery.
#[test]
fn sums_mean_the_same_whatever_is_logged_of_them() {
    let mut found = Vec::new();
    for logging in Logging::ALL {
        let disk = MemoryDisk::new();
        // One group for everything, so that its bytes can be compared.
        let options = || Options {
            logging,
            checkpoint: Checkpointing::None,
            durability: Durability::Memory,
            memory_flush_interval: Duration::from_secs(3600),
            ..Options::default()
        };
        let db = Database::open_on(disk.clone(), options()).unwrap();
        let mut session = Session::new(db.clone(), "ann", "bank");
        run(&mut session, "create table s (a int primary key, b int, c bigint, d smallint, e bigint)");
        run(&mut session, "insert into s values (1, 10, 1000000000000, 3, null), (2, 2147483647, 0, 0, 5)");
        db.sync().unwrap();
        let before = db.metrics().log.bytes;
        for _ in 0..400 {
            run(&mut session, "update s set b = b - 1, c = 5 + c, d = d + 1, e = e + 1 where a = 1");
            run(&mut session, "update s set c = c - b where a = 2");
        }
        db.sync().unwrap();
        let logged = db.metrics().log.bytes - before;
        assert_eq!(code(&mut session, "update s set b = b + 1 where a = 2"), "22003");
        run(&mut session, "begin");
        run(&mut session, "update s set c = c + 1, e = c - e where a = 2");
        run(&mut session, "update s set c = c + 1, b = b - 7 where a = 2");
        run(&mut session, "commit");
        let all = "select a, b, c, d, e from s order by a";
        let rows = run(&mut session, all);
        drop(session);
        db.close().unwrap();
        let db = Database::open_on(disk, options()).unwrap();
        assert_eq!(run(&mut Session::new(db, "ann", "bank"), all), rows, "{logging:?}");
        found.push((rows, logged));
    }
    let (values, actions) = (&found[0], &found[1]);
    assert_eq!(values.0, actions.0);
    assert!(actions.1 < values.1, "log bytes: {} of actions, {} of values", actions.1, values.1);
}

#[test]
fn backups_are_taken_by_statement() {
    let mut session = bank();
    let directory =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sql-backup-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    session.take_notices();
    let mut taken = |sql: &str| {
        run(&mut session, sql);
        session
            .take_notices()
            .into_iter()
            .map(|(_, notice)| notice.message.clone())
            .collect::<Vec<_>>()
            .join("; ")
    };
    let path = |name: &str| directory.join(name).display().to_string();
    assert!(taken(&format!("backup to '{}'", path("it's").replace('\'', "''"))).starts_with("full backup "));
    assert!(taken(&format!("BACKUP INCREMENTAL TO '{}'", path("b"))).contains(", an increment on "));
    assert!(directory.join("it's").join("backup.rialto").exists());
    assert_eq!(code(&mut session, "backup to 'here'"), "22023");
    assert_eq!(code(&mut session, &format!("backup to '{}'", path("b"))), "0A000");
    assert_eq!(code(&mut session, "backup incremental '/tmp/x'"), "42601");
    assert_eq!(code(&mut session, "backup to here"), "42601");
    assert_eq!(code(&mut session, "archive log"), "0A000");
    assert_eq!(code(&mut session, "archive"), "42601");
    let insert = session.prepare("insert into t (a) values (99)", &[]).unwrap();
    session.execute(&insert, &[], &mut Collected::default()).unwrap();
    let behind = code(&mut session, &format!("backup to '{}'", path("c")));
    assert_eq!(behind, "25001", "behind another statement of its query string");
    run(&mut session, "begin");
    assert_eq!(code(&mut session, &format!("backup to '{}'", path("c"))), "25001");
    run(&mut session, "rollback");
    assert!(!directory.join("c").exists());
    let _ = std::fs::remove_dir_all(&directory);
}

/// Keeps what the client is told while a statement runs.
#[derive(Default)]
struct Told(Vec<String>);

impl RowSink for Told {
    fn row(&mut self, _: &Prepared, row: &[Value]) -> rialto_sql::Result<()> {
        panic!("a row: {row:?}")
    }

    fn tell(&mut self, notice: &SqlError) -> rialto_sql::Result<()> {
        self.0.push(notice.message.clone());
        Ok(())
    }

    fn restart(&mut self) -> bool {
        true
    }
}

#[test]
fn a_client_is_told_how_far_its_backup_has_come() {
    let mut session = bank();
    run(&mut session, "create table large (id int primary key, b text)");
    for id in 0..3_000 {
        let row = [Value::Int4(id), Value::Text("x".repeat(1_000))];
        try_run(&mut session, "insert into large values ($1, $2)", &row).unwrap();
    }
    let directory =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sql-told-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let mut told = |name: &str, settings: &str| {
        run(&mut session, settings);
        let sql = format!("backup to '{}'", directory.join(name).display());
        let backup = session.prepare(&sql, &[]).unwrap();
        let mut told = Told::default();
        session.execute(&backup, &[], &mut told).unwrap();
        session.finish().unwrap();
        told.0
    };
    let at_begin = told("a", "set client_min_messages = notice");
    assert_eq!(at_begin.len(), 1, "{at_begin:?}");
    let rest = at_begin[0].strip_prefix("backed up ").and_then(|rest| rest.strip_suffix(" MiB"));
    let (done, total) = rest.and_then(|rest| rest.split_once(" of ")).expect(&at_begin[0]);
    let [done, total] = [done, total].map(|mib| mib.parse::<f64>().unwrap());
    assert!(0.0 < done && done < total && total > 3.0, "{at_begin:?}");
    assert_eq!(told("b", "set client_min_messages = warning"), [""; 0]);
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn a_copy_without_its_transaction_takes_no_rows() {
    let mut session = bank();
    let prepared = session.prepare("copy t from stdin", &[]).unwrap();
    let mut copy = session.begin_copy(&prepared).unwrap();
    session.fail(&SqlError::unsupported("a message that comes between")).unwrap();
    assert!(session.run_copy(&mut copy, b"50\t1\tx\ty\t1\n", true).is_err());
    assert_eq!(value(&mut session, "select count(*) from t where a = 50"), "0");
}

/// The log fails during a commit, in each design and on each write path. The client is told that the outcome is
/// unknown, never that the transaction was aborted. Later statements are told that the database has stopped.
#[test]
fn a_commit_under_which_the_log_fails_has_an_unknown_outcome() {
    let paths = [Caching::Buffered, Caching::Direct, Caching::DirectSync];
    for (design, path) in
        GroupCommitDesign::ALL.into_iter().flat_map(|design| paths.map(|path| (design, path)))
    {
        for statements in
            [&["insert into t values (2)"][..], &["begin", "insert into t values (2)", "commit"]]
        {
            let about = format!("{design}, {path:?}, {statements:?}");
            let disk = FaultyDisk::new(7);
            let options = Options {
                memory_bytes: 64 << 20,
                checkpoint: Checkpointing::None,
                group_commit: design.into(),
                log_writes: Some(path),
                log_writes_in_flight: Some(2),
                ..Options::default()
            };
            let database = Database::open_on(disk.clone(), options).unwrap();
            let mut session = Session::new(database.clone(), "ann", "bank");
            run(&mut session, "create table t (a int primary key)");
            run(&mut session, "insert into t values (1)");
            disk.fail_always(FaultKind::Sync, "log-0", 0);
            let (last, before) = statements.split_last().expect("there is one");
            before.iter().for_each(|statement| drop(run(&mut session, statement)));
            assert_eq!(code(&mut session, last), "08007", "{about}");
            assert_eq!(session.status(), TransactionStatus::Idle, "{about}");
            assert_eq!(code(&mut session, "insert into t values (3)"), "58030", "{about}");
            // The answer depends on the row whose outcome is unknown.
            assert_eq!(code(&mut session, "select a from t where a = 2"), "08007", "{about}");
        }
    }
}
