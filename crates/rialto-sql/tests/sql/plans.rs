//! Plans and values: an index and a scan find the same rows, and a plan is used only for the table for which it was
//! made.

use std::sync::atomic::{AtomicBool, Ordering};

use rialto::io::{MemoryDisk, Random};
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::values::text;
use rialto_sql::{Prepared, Session, SqlError};

fn database() -> Database {
    Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens")
}

fn try_run(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let mut rows = Collected::default();
    let answer = session.read(sql).and_then(|read| {
        let ready = session.prepare_read(sql, read)?;
        session.execute_ready(&ready, &mut rows)?;
        session.finish()?;
        Ok(ready.prepared.row_columns().iter().map(|column| column.sql_type).collect::<Vec<_>>())
    });
    let types = answer.inspect_err(|error| drop(session.fail(error)))?;
    let print = |row: &Vec<rialto::row::Value>| {
        let mut out = Vec::new();
        for (value, sql_type) in row.iter().zip(&types) {
            if text::write(value, *sql_type, &mut out).is_none() {
                out.extend_from_slice(b"NULL");
            }
            out.push(b'|');
        }
        out.pop();
        String::from_utf8(out).unwrap()
    };
    Ok(rows.0.iter().map(print).collect())
}

fn run(session: &mut Session, sql: &str) -> Vec<String> {
    try_run(session, sql).unwrap_or_else(|error| panic!("{sql}\n{} {error}", error.sqlstate.code()))
}

fn code(session: &mut Session, sql: &str) -> &'static str {
    match try_run(session, sql) {
        Ok(rows) => panic!("{sql}: {rows:?}"),
        Err(error) => error.sqlstate.code(),
    }
}

/// Every column type against values of every type with which it compares: an index gives the same as a scan.
#[test]
fn an_index_finds_what_a_scan_finds() {
    let mut session = Session::new(database(), "ann", "bank");
    let numbers = [
        "0",
        "-1",
        "1",
        "7",
        "1.5",
        "-0.5",
        "32767",
        "32768",
        "-32769",
        "2147483647",
        "2147483648",
        "99999.99",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1e30",
        "0::float8",
        "-0.0::float8",
        "1.5::float8",
        "9007199254740992::float8",
        "9007199254740994::float8",
        "9223372036854775807::float8",
        "'NaN'::float8",
        "'Infinity'::float8",
        "'-Infinity'::float8",
        "1e100",
        "-1e300",
        "null::int",
        "0.1",
        "0.10",
        "0.1::float8",
    ];
    let texts = [
        "''",
        "'a'",
        "'ab'",
        "'ab '",
        "'abc'",
        "'abcd'",
        "''::text",
        "'a'::text",
        "'ab '::text",
        "'abc   '::text",
        "'ab'::char(5)",
        "'ab\u{1}'::text",
        "E'ab\\n'",
        "'ab '::text || ''",
        "null::text",
        "' '::text",
        "'aé'",
    ];
    let times = [
        "date '2024-02-29'",
        "date '5874897-12-31'",
        "date '4713-01-01 BC'",
        "timestamp '2024-02-29 00:00:00'",
        "timestamp '2024-02-29 12:00:00'",
        "timestamp '294246-12-31 23:59:59'",
        "date '294247-01-10'",
        "date '294247-01-11'",
        "null::date",
        "timestamp '1969-12-31 23:59:59.999999'",
        "date '1969-12-31'",
    ];
    let long = format!("'{}'", "x".repeat(3_000));
    let texts: Vec<&str> = texts.into_iter().chain([long.as_str()]).collect();
    let kinds: [(&str, &[&str], &[&str]); 9] = [
        ("smallint", &["-32768", "-1", "0", "1", "7", "32767", "null"], &numbers),
        ("integer", &["-2147483648", "-1", "0", "1", "7", "2147483647", "null"], &numbers),
        (
            "bigint",
            &[
                "-9223372036854775808",
                "0",
                "1",
                "9007199254740992",
                "9007199254740993",
                "9007199254740994",
                "9223372036854775806",
                "9223372036854775807",
                "null",
            ],
            &numbers,
        ),
        (
            "double precision",
            &[
                "'-Infinity'",
                "-1e300",
                "-0.5",
                "0",
                "0.1",
                "1.5",
                "9007199254740992",
                "9223372036854775807",
                "1e300",
                "'Infinity'",
                "'NaN'",
                "null",
            ],
            &numbers,
        ),
        ("numeric(7,2)", &["-99999.99", "-0.5", "0", "0.1", "1.5", "7", "99999.99", "null"], &numbers),
        ("text", &["''", "'a'", "'ab'", "'ab '", "'abc'", "' '", "null"], &texts),
        ("char(3)", &["''", "'a'", "'ab'", "'ab '", "E'ab\\n'", "'abc'", "'aé'", "null"], &texts),
        (
            "date",
            &["'2024-02-29'", "'1969-12-31'", "'1970-01-01'", "'5874897-12-31'", "'4713-01-01 BC'", "null"],
            &times,
        ),
        (
            "timestamp",
            &[
                "'2024-02-29'",
                "'2024-02-29 12:00:00'",
                "'1969-12-31 23:59:59.999999'",
                "'294246-12-31 23:59:59'",
                "null",
            ],
            &times,
        ),
    ];
    for (number, (kind, stored, compared)) in kinds.into_iter().enumerate() {
        for table in ["scanned", "indexed"] {
            run(&mut session, &format!("create table {table}{number} (k int primary key, v {kind}, w int)"));
            for (key, value) in stored.iter().enumerate() {
                run(&mut session, &format!("insert into {table}{number} values ({key}, {value}, 1)"));
            }
        }
        run(&mut session, &format!("create index on indexed{number} (v)"));
        run(&mut session, &format!("create index on indexed{number} (w, v)"));
        for value in compared {
            for op in ["=", "<>", "<", "<=", ">", ">="] {
                for shape in [
                    format!("v {op} {value}"),
                    format!("{value} {op} v"),
                    format!("w = 1 and v {op} {value}"),
                    format!("v {op} {value} and v >= {value}"),
                ] {
                    let mut found = |table: &str| {
                        try_run(
                            &mut session,
                            &format!("select k from {table}{number} where {shape} order by k"),
                        )
                        .map_err(|error| error.sqlstate.code())
                    };
                    let (scanned, indexed) = (found("scanned"), found("indexed"));
                    assert_eq!(scanned, indexed, "{kind}: {shape}");
                    assert!(scanned.is_ok() || value.contains("e100"), "{kind}: {shape}: {scanned:?}");
                }
            }
        }
    }
}

/// The answers are PostgreSQL's.
#[test]
fn literals_mean_what_they_mean_in_postgresql() {
    let mut session = Session::new(database(), "ann", "bank");
    for (expr, expected) in [
        ("'a'\n'b'", "ab"),
        ("'a' \n -- and on\n 'b'  \n\t'c' as x", "abc"),
        ("'ab'::char(4) like 'ab'", "f"),
        ("'ab'::char(4) like 'ab  '", "t"),
        ("'ab'::char(4) like 'ab%'", "t"),
        ("coalesce('ab'::char(4), 'c'::char(4)) || '!'", "ab!"),
        ("1e-320::float8 > 0", "t"),
        ("1e100::float8", "1e+100"),
        ("1e100::float8 < 1e101", "t"),
        ("1 < 1e100", "t"),
        ("1.5 > -1e200", "t"),
        ("coalesce(1, 1/0)", "1"),
        ("coalesce(1, 70000::smallint)", "1"),
        ("false and 1/0 = 1", "f"),
        ("true or 1/0 = 1", "t"),
        ("date '294247-01-10' < timestamp '294246-01-01'", "f"),
        ("date '5874897-12-31' > now()", "t"),
        ("date '4714-11-24 BC'", "4714-11-24 BC"),
        ("timestamp '4714-11-24 00:00:00 BC'", "4714-11-24 00:00:00 BC"),
    ] {
        assert_eq!(run(&mut session, &format!("select {expr}")), [expected], "{expr}");
    }
    for (sql, expected) in [
        ("select 'a' 'b'", "42601"),
        ("select 'a' /* */ \n 'b'", "42601"),
        ("select 1 'b'", "42601"),
        ("select 1 as 'b'", "42601"),
        ("select E'a'\n'b'", "0A000"),
        ("select date 2024", "42601"),
        ("select (date 5)::timestamp", "42601"),
        ("select int true + 1", "42601"),
        ("select date $1", "42601"),
        ("select '1e400'::float8", "22003"),
        ("select '1e-400'::float8", "22003"),
        ("select 1e400", "22003"),
        ("select 1e100", "22003"),
        ("select 1e100 + 1", "22003"),
        ("select '1e100'::numeric", "22003"),
        ("select 'x'::numeric", "22P02"),
        ("select '+-1'::float8", "22P02"),
        ("select 1/0 = 1 and false", "22012"),
        ("select nullif(1/0, 1)", "22012"),
        ("select date '5874897-12-31'::timestamp", "22008"),
        ("select date '294247-01-11'::timestamp", "22008"),
        ("select date '4714-11-23 BC'", "22008"),
        ("select date '5874898-01-01'", "22008"),
        ("select timestamp '4714-11-23 23:59:59 BC'", "22008"),
    ] {
        assert_eq!(code(&mut session, sql), expected, "{sql}");
    }
    run(&mut session, "create table m (k int primary key, f double precision, n numeric(6,2), ts timestamp)");
    run(&mut session, "insert into m values (1, 1e100), (2, -1e-100)");
    assert_eq!(run(&mut session, "select k from m where f > 1e99"), ["1"]);
    assert_eq!(code(&mut session, "insert into m (k, n) values (3, 1e100)"), "22003");
    assert_eq!(code(&mut session, "insert into m (k, ts) values (3, date '5874897-12-31')"), "22008");
    assert_eq!(run(&mut session, "select k from m where k = 1 and false and k = 1/0"), [""; 0]);
}

/// Errors of constants are raised where a value is needed. A shared plan never raises the error of another text.
#[test]
fn an_error_in_a_branch_that_is_not_taken_is_none() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (k int primary key, v int)");
    run(&mut session, "insert into t values (1, 1), (2, null)");
    assert_eq!(run(&mut session, "select coalesce(v, 1/0) from t where k = 1"), ["1"]);
    assert_eq!(code(&mut session, "select coalesce(v, 1/0) from t where k = 2"), "22012");
    assert_eq!(run(&mut session, "select k from t where k = 5 and 1/0 = 1"), [""; 0]);
    assert_eq!(code(&mut session, "select 1/0 from t where k = 5"), "22012");
    let error = try_run(&mut session, "select v, coalesce(v, 1 / 0) from t where k = 2").unwrap_err();
    assert_eq!(error.position, Some(23));
}

/// Readers by indexes beside a session that drops and makes indexes: each answer is right, and none is an error.
#[test]
fn plans_hold_while_indexes_come_and_go() {
    let database = database();
    let mut session = Session::new(database.clone(), "ann", "bank");
    run(&mut session, "create table t (id int primary key, a int, b int)");
    run(&mut session, "insert into t select n, n, n from generate_series(1, 100) n");
    run(&mut session, "create index t_b on t (b)");
    run(&mut session, "create index t_ab on t (a, b)");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        for seed in 0..3 {
            let database = database.clone();
            scope.spawn(move || {
                let mut session = Session::new(database, "ann", "bank");
                let mut random = Random::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let key = random.below(100) + 1;
                    let sql = format!("select id from t where a = {key} and b >= {key}");
                    assert_eq!(run(&mut session, &sql), [key.to_string()]);
                    let sql = format!("select id from t where b = {key} for update");
                    assert_eq!(run(&mut session, &sql), [key.to_string()]);
                    run(&mut session, &format!("update t set b = b where b = {key}"));
                }
            });
        }
        for _ in 0..300 {
            for sql in [
                "drop index t_b",
                "create index t_b on t (b)",
                "begin",
                "drop index t_ab",
                "create index t_ab on t (a, b)",
                "commit",
            ] {
                // A reader and this session may wait for the table at the same time: a deadlock, of which a block is
                // told.
                if let Err(error) = try_run(&mut session, sql) {
                    assert_eq!(error.sqlstate.code(), "40P01", "{sql}: {error}");
                    try_run(&mut session, "rollback").unwrap();
                    break;
                }
            }
            run(&mut session, "create index if not exists t_b on t (b)");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A prepared statement survives every definition of its own transaction and of others.
#[test]
fn a_prepared_statement_outlives_definitions() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (a int, b int)");
    run(&mut session, "create index t_b on t (b)");
    run(&mut session, "insert into t select n, n from generate_series(1, 9) n");
    let query = "select a from t where b = 3";
    let explain = format!("explain {query}");
    let prepared = session.prepare(query, &[]).unwrap();
    let explained = session.prepare(&explain, &[]).unwrap();
    let told = |session: &mut Session, prepared: &Prepared| {
        let mut rows = Collected::default();
        session.execute(prepared, &[], &mut rows).unwrap();
        session.finish().unwrap();
        rows.0
    };
    let check = |session: &mut Session, expected: usize| {
        assert_eq!(told(session, &prepared).len(), expected);
        let made_now = session.prepare(&explain, &[]).unwrap();
        let expected = told(session, &made_now);
        assert_eq!(told(session, &explained), expected);
    };
    check(&mut session, 1);
    for (sql, expected) in [
        ("begin", 1),
        ("drop index t_b", 1),
        ("create index t_a on t (a)", 1),
        ("create index t_b on t (b)", 1),
        ("savepoint s", 1),
        ("truncate t", 0),
        ("rollback to s", 1),
        ("alter table t add primary key (a)", 1),
        ("commit", 1),
        ("drop index t_a", 1),
        ("drop table t", 1),
    ] {
        run(&mut session, sql);
        if sql != "drop table t" {
            check(&mut session, expected);
        }
    }
    run(&mut session, "create table t (a int primary key, b int)");
    run(&mut session, "create index t_x on t (a, b)");
    run(&mut session, "create index t_b on t (b)");
    run(&mut session, "insert into t values (1, 3), (2, 3)");
    check(&mut session, 2);
}

/// A plan with an access path has its conditions twice, one of an INSERT has no conditions.
#[test]
fn the_values_of_an_insert_are_counted_once() {
    let mut session = Session::new(database(), "ann", "bank");
    run(&mut session, "create table t (a int, b int, c int, d int, e int, f int, g int, h int)");
    let row = "(7, 7, 7, 7, 7, 7, 7, 7)";
    let insert = format!("insert into t values {}", vec![row; 1_000].join(", "));
    let list = format!("select a from t where a in ({})", vec!["7"; 8_000].join(", "));
    let (insert, list) = (session.prepare(&insert, &[]).unwrap(), session.prepare(&list, &[]).unwrap());
    assert!(insert.bytes * 4 < list.bytes * 3, "{} for rows, {} for a list", insert.bytes, list.bytes);
    assert!(list.bytes < insert.bytes * 4, "{} for rows, {} for a list", insert.bytes, list.bytes);
}
