//! Types of literals and parameters: an open type becomes that of the expression beside it, and there is only one.

use rialto::io::MemoryDisk;
use rialto::row::Value;
use rialto::{Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::values::text;
use rialto_sql::{Session, SqlError, SqlType};

fn session() -> Session {
    let database = Database::open_on(MemoryDisk::new(), Options::default()).expect("a new database opens");
    let mut session = Session::new(database, "ann", "bank");
    for sql in [
        "create table t (id int primary key, v int, b bytea, x text, big bigint, c char(5), d date, f float8)",
        "create index t_v on t (v)",
        "insert into t values (1, 5, '\\x6162', '5', 7, 'ab', '2026-01-31', 0.5)",
        "insert into t values (2, 6, null, '6', 8, 'cd', '2026-02-01', 1.5)",
        "insert into t (id, big) values (3, 9007199254740993)",
        "create table pv (id bigint primary key, nxt int, x text)",
    ] {
        run(&mut session, sql, &[]).expect(sql);
    }
    session
}

/// Runs one statement with these arguments, given as text. Gives the rows as text, with bars between values.
fn try_run(
    session: &mut Session,
    sql: &str,
    declared: &[SqlType],
    arguments: &[&str],
) -> Result<Vec<String>, SqlError> {
    let answer = (|| {
        let prepared = session.prepare(sql, declared)?;
        let params = arguments.iter().zip(&prepared.params).map(|(text, to)| text::parse(*to, text));
        let params = params.collect::<Result<Vec<Value>, _>>()?;
        let mut rows = Collected::default();
        session.execute(&prepared, &params, &mut rows)?;
        session.finish()?;
        let print = |(value, column): (&Value, &rialto_sql::OutputColumn)| {
            let mut out = Vec::new();
            match text::write(value, column.sql_type, &mut out) {
                Some(()) => String::from_utf8(out).unwrap(),
                None => "NULL".to_string(),
            }
        };
        let print_row = |row: &Vec<Value>| {
            let values: Vec<String> = row.iter().zip(prepared.row_columns()).map(print).collect();
            values.join("|")
        };
        Ok(rows.0.iter().map(print_row).collect())
    })();
    answer.inspect_err(|error| drop(session.fail(error)))
}

fn run(session: &mut Session, sql: &str, arguments: &[&str]) -> Result<Vec<String>, &'static str> {
    try_run(session, sql, &[], arguments).map_err(|error| error.sqlstate.code())
}

/// As a simple query, whose literals may be lifted.
fn run_lifted(session: &mut Session, sql: &str) -> Result<usize, &'static str> {
    let mut rows = Collected::default();
    let read = session.read(sql).and_then(|read| session.prepare_read(sql, read));
    let answer = read.and_then(|ready| session.execute_ready(&ready, &mut rows));
    let answer = answer.and_then(|_| session.finish());
    answer.inspect_err(|error| drop(session.fail(error))).map_err(|error| error.sqlstate.code())?;
    Ok(rows.0.len())
}

/// A cast gives its column a name if its operand has none; the outermost cast decides.
#[test]
fn columns_are_called_as_with_postgresql() {
    let mut session = session();
    let sql = "select true, true::text, 1.5::float8::int8, v::text::int, abs(v)::text, t.v::int8, '1'::int::text, \
               1, date '2026-01-31', timestamp '2026-01-31 12:00', timestamp with time zone '2026-01-31 12:00', \
               int '1' + 1, bool 't'::text from t where id = 1";
    let prepared = session.prepare(sql, &[]).unwrap();
    let names: Vec<&str> = prepared.row_columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "bool",
            "text",
            "int8",
            "v",
            "abs",
            "v",
            "text",
            "?column?",
            "date",
            "timestamp",
            "timestamptz",
            "?column?",
            "text"
        ]
    );
}

#[test]
fn a_block_is_begun_by_the_tag_of_its_command() {
    let mut session = session();
    for (sql, tag) in [("begin", "BEGIN"), ("start transaction read only", "START TRANSACTION")] {
        let prepared = session.prepare(sql, &[]).unwrap();
        let answer = session.execute(&prepared, &[], &mut Collected::default()).unwrap();
        assert_eq!(answer.to_string(), tag);
        run(&mut session, "rollback", &[]).unwrap();
    }
}

#[test]
fn a_parameter_has_one_type() {
    let mut session = session();
    for (sql, argument) in [
        ("insert into pv values ($1, $1 + 1, 'x')", "5"),
        ("insert into pv (id, x, nxt) values ($1, 'y', -($1::int))", "6"),
        ("select $1, $1 + 1", "7"),
        ("select $1, $1::int", "7"),
        ("select $1 || ($1 + 1)", "5"),
        ("select coalesce($1, abs($1::int)::text)", "5"),
    ] {
        let answer = run(&mut session, sql, &[argument]);
        assert!(matches!(answer, Err("42P08" | "42804" | "42883")), "{sql}: {answer:?}");
    }
    let error = try_run(&mut session, "insert into pv values ($1, $1 + 1, 'x')", &[], &["5"]).unwrap_err();
    assert_eq!(error.message, "inconsistent types deduced for parameter $1");
    assert_eq!(error.detail.as_deref(), Some("integer versus bigint"));
    assert_eq!(run(&mut session, "select * from pv", &[]), Ok(vec![]), "nothing was stored");
    // A type that the client gives, or the first that a parameter takes, stays.
    let insert = "insert into pv values ($1, $1 + 1, 'x') returning *";
    let told = try_run(&mut session, insert, &[SqlType::Int8], &["5"]).map_err(|error| error.sqlstate.code());
    assert_eq!(told, Ok(vec!["5|6|x".to_string()]));
    for (sql, argument, expected) in [
        ("select $1 + 1, $1", "7", "8|7"),
        ("select $1::int, $1 + 1", "7", "7|8"),
        ("select $1::text, $1::int", "7", "7|7"),
        ("select coalesce($1, $1 + 1)", "7", "7"),
        ("select nullif($1, $1 + 1)", "7", "7"),
        ("select $1 = ($1 + 1)", "7", "f"),
        ("select $1 + $1 * $1", "7", "56"),
        ("select id from t where v = $1 or big = $1 order by id", "5", "1"),
        ("select id from t where $1 in (id, $1 + 1)", "2", "2"),
        ("select id from t where $1 between v and big", "6", "1"),
        ("select id from t where v = $1 + 0 and big = $1 + 2", "5", "1"),
        ("select id from t where $1 is null or id = $1", "2", "2"),
        ("update t set v = $1, big = $1 where id = 2 returning v, big", "6", "6|6"),
    ] {
        let answer = run(&mut session, sql, &[argument]);
        let answer = answer.map(|rows| rows.first().cloned().unwrap_or_default());
        assert_eq!(answer.as_deref(), Ok(expected), "{sql}");
    }
}

#[test]
fn an_open_literal_of_in_takes_a_type_in_each_comparison() {
    let mut session = session();
    let ids = |rows: &[&str]| Ok(rows.iter().map(|row| row.to_string()).collect::<Vec<_>>());
    for (sql, expected) in [
        ("select id from t where '5' in ('5', v) order by 1", &["1", "2", "3"][..]),
        ("select id from t where '5' in ('7', v) order by 1", &["1"]),
        ("select id from t where '5' not in ('7', v) order by 1", &["2"]),
        ("select id from t where '7' in ('8', '9', v, big) order by 1", &["1"]),
        ("select id from t where '5' in (v, x) order by 1", &["1"]),
        ("select id from t where v in ('5', 6) order by 1", &["1", "2"]),
        ("select id from t where v in ('5', '6', 7.5) order by 1", &["1", "2"]),
        ("select id from t where x in ('5', '6') order by 1", &["1", "2"]),
        // A literal beside a timestamp is a timestamp.
        ("select id from t where d in ('2026-01-31 12:00', timestamp '2026-02-01 00:00') order by 1", &["2"]),
        ("select id from t where d in ('2026-01-31 12:00', date '2026-02-01') order by 1", &["1", "2"]),
        // Beside a float all numbers are floats, and these two integers are one float.
        ("select id from t where big in (1.5::float8, 9007199254740992) order by 1", &["3"]),
        ("select id from t where big in (1.5, 9007199254740992) order by 1", &[]),
        // The trailing blanks of a char do not count, and texts beside a char are chars.
        ("select id from t where c in ('ab  ', 'x') order by 1", &["1"]),
        ("select id from t where c in ('ab  ', 'x'::text) order by 1", &["1"]),
        ("select id from t where c in ('ab', 'x'::text) order by 1", &["1"]),
        ("select id from t where 1e40 in (1, v)", &[]),
        ("select id from t where id in (1, 99999999999999999999999999999999999999999999)", &["1"]),
    ] {
        assert_eq!(run(&mut session, sql, &[]), ids(expected), "{sql}");
        assert_eq!(run_lifted(&mut session, sql), Ok(expected.len()), "{sql}");
        assert_eq!(run_lifted(&mut session, sql), Ok(expected.len()), "{sql}");
    }
    for (sql, argument, expected) in [
        ("select id from t where $1 in (v, 7) order by 1", "6", Ok(&["2"][..])),
        ("select id from t where $1 in (6, 7) order by 1", "6", Ok(&["1", "2", "3"])),
        ("select id from t where $1 in (6, 7, v) order by 1", "6", Ok(&["1", "2", "3"])),
        // Each item with a column is a comparison of its own, and so is a single item: beside '5' the parameter is
        // text, beside the column an integer.
        ("select id from t where $1 in ('5', v) order by 1", "5", Err("42P08")),
        ("select id from t where $1 in (v, '5') order by 1", "5", Err("42P08")),
        ("select id from t where $1 not in ('5', v) order by 1", "5", Err("42P08")),
        ("select id from t where $1 in (v, big) order by 1", "5", Err("42P08")),
        // Several items of one type make the parameter text for the others too.
        ("select id from t where $1 in ('5', '6', v) order by 1", "5", Err("42883")),
        ("select id from t where $1 between '5' and v", "5", Err("42883")),
    ] {
        let answer = run(&mut session, sql, &[argument]);
        match expected {
            Ok(rows) => assert_eq!(answer, ids(rows), "{sql}"),
            Err(code) => assert_eq!(answer, Err(code), "{sql}"),
        }
    }
    assert_eq!(run(&mut session, "select 1 in (2, 'x')", &[]), Err("22P02"));
    assert_eq!(run(&mut session, "select 1 in (2, true)", &[]), Err("42883"));
    assert_eq!(run(&mut session, "select 1 in (2, 'x'::text)", &[]), Err("42883"));
    let plan = run(&mut session, "explain select id from t where v = 5", &[]).unwrap();
    assert!(plan[0].contains("t_v"), "{plan:?}");
}

#[test]
fn bytes_beside_an_open_literal_are_bytes() {
    let mut session = session();
    for (sql, expected) in [
        ("select b || 'abc' from t where id = 1", "\\x6162616263"),
        ("select 'abc' || b from t where id = 1", "\\x6162636162"),
        ("select b || b from t where id = 1", "\\x61626162"),
        ("select b || null from t where id = 1", "NULL"),
        ("select b || 'c' || 'd'::text from t where id = 1", "\\x616263d"),
        ("select b || 'c'::text from t where id = 1", "\\x6162c"),
        ("select 'a' || 1 || true", "a1true"),
        ("select 'a' || 'b' || null", "NULL"),
    ] {
        assert_eq!(run(&mut session, sql, &[]), Ok(vec![expected.to_string()]), "{sql}");
    }
    assert_eq!(run(&mut session, "select 1 || 2", &[]), Err("42883"));
    assert_eq!(run(&mut session, "select 1 || '\\x61'::bytea", &[]), Err("42883"));
}

#[test]
fn abs_takes_the_sign_of_zero() {
    let mut session = session();
    let sql = "select abs('-0'::float8), abs('-1.5'::float8), abs(-3), abs(null::int)";
    assert_eq!(run(&mut session, sql, &[]), Ok(vec!["0|1.5|3|NULL".to_string()]));
}

#[test]
fn texts_in_a_list_beside_a_char_are_chars() {
    let mut session = session();
    for (condition, found) in [
        ("c in ('zz'::text, 'ab '::text)", "1"),
        ("c in ('zz'::text, x || 'ab ', 'ab  '::text)", "1"),
        // A single item is compared by itself, as text.
        ("c in ('ab '::text)", "0"),
        ("c::text in ('zz'::text, 'ab '::text)", "0"),
    ] {
        let sql = format!("select count(*) from t where id = 1 and {condition}");
        assert_eq!(run(&mut session, &sql, &[]), Ok(vec![found.to_string()]), "{condition}");
    }
}

#[test]
fn coalesce_of_chars_keeps_the_blanks_of_each() {
    let mut session = session();
    for (sql, expected) in [
        ("select coalesce(c, 'x') like 'ab   ', coalesce(c, 'x') = 'ab' from t where id = 1", "t|t"),
        ("select coalesce(c, 'xy') like 'xy' from t where id = 3", "t"),
        ("select '<' || coalesce(c, 'xy') || '>', coalesce(c, 'xy') from t where id = 1", "<ab>|ab   "),
        ("select length(coalesce(c, 'xy')) from t where id = 1", "2"),
        ("select coalesce(null::char(5), 'ab '), coalesce(null::char(5), 'ab ') = 'ab'", "ab |t"),
        ("select coalesce('ab  ', c), coalesce('ab  ', c) || '!' from t where id = 1", "ab  |ab!"),
        ("select coalesce('ab'::char(5), coalesce('a', c)) like 'ab   ' from t where id = 1", "t"),
    ] {
        assert_eq!(run(&mut session, sql, &[]), Ok(vec![expected.to_string()]), "{sql}");
    }
}

#[test]
fn a_year_has_at_least_three_digits() {
    let mut session = session();
    for text in ["01-02-03", "99-01-08", "1-2-3", "26-01-05 10:00"] {
        for to in ["date", "timestamp"] {
            assert_eq!(run(&mut session, &format!("select '{text}'::{to}"), &[]), Err("22007"), "{text}");
        }
    }
    assert_eq!(run(&mut session, "select '100-1-2'::date", &[]), Ok(vec!["0100-01-02".to_string()]));
}

#[test]
fn a_copy_has_no_delimiter_in_its_null_string() {
    let mut session = session();
    for copy in ["delimiter ',', null 'a,b'", "null 'xZ', delimiter 'Z'", "delimiter 'N'"] {
        assert_eq!(run(&mut session, &format!("copy t to stdout ({copy})"), &[]), Err("0A000"), "{copy}");
    }
}

/// Such a NULL string would take the end of its line with it, or end the data.
#[test]
fn a_copy_has_no_open_escape_in_its_null_string() {
    let mut session = session();
    for (null, expected) in [
        ("\\", Err("0A000")),
        ("x\\\\\\", Err("0A000")),
        ("\\.", Err("0A000")),
        ("x\\.y", Err("0A000")),
        ("\\\\", Ok(())),
        ("\\\\.", Ok(())),
        ("\\N", Ok(())),
    ] {
        let found = run(&mut session, &format!("copy t to stdout (null '{null}')"), &[]).map(drop);
        assert_eq!(found, expected, "{null}");
    }
}

#[test]
fn nullif_has_the_type_in_which_its_sides_are_compared() {
    const WIDE: &str = "123456789012345678901234567890123456789";
    let mut session = session();
    let float = Ok(vec!["1.2345678901234568e+38".to_string()]);
    for (sql, expected) in [
        (format!("select nullif({WIDE}, 1)"), float.clone()),
        (format!("select nullif({WIDE}, v) from t where id = 1"), float.clone()),
        (format!("select nullif({WIDE}, {WIDE})::text is null"), Err("22003")),
        (format!("select nullif({WIDE}, 1.5::float8)"), float.clone()),
        (format!("select nullif({WIDE}, 1)::text"), float),
        (format!("select nullif({WIDE}, 1)::int"), Err("22003")),
        (format!("select nullif(1, {WIDE})"), Ok(vec!["1".to_string()])),
        (format!("select nullif(-{WIDE}, 'x')"), Err("22003")),
    ] {
        assert_eq!(run(&mut session, &sql, &[]), expected, "{sql}");
    }
    for (sql, expected) in [
        ("nullif(1, 1.5::float8)", SqlType::Float8),
        ("nullif(1::float8, 1)", SqlType::Float8),
        ("nullif(1, 2.5)", SqlType::Decimal(None)),
        ("nullif(1, 2::bigint)", SqlType::Int4),
        ("nullif('5', 1)", SqlType::Int4),
        ("nullif('a', 'b')", SqlType::Text),
        ("nullif(d, timestamp '2026-01-31 00:00')", SqlType::Date),
    ] {
        let sql = format!("select {sql} from t");
        assert_eq!(session.prepare(&sql, &[]).unwrap().columns[0].sql_type, expected, "{sql}");
    }
    // Beside a float the integer has the value with which it is compared.
    let sql = "select nullif(big, 1.5::float8) from t where id = 3";
    assert_eq!(run(&mut session, sql, &[]), Ok(vec!["9.007199254740992e+15".to_string()]));
    run(&mut session, "insert into t (id, v) values (9, nullif(7, 7.5::float8))", &[]).unwrap();
    assert_eq!(run(&mut session, "select v from t where id = 9", &[]), Ok(vec!["7".to_string()]));
}

/// NaN equals itself and is larger than every number, as in PostgreSQL. Printed values and found rows agree.
#[test]
fn floats_have_infinities_and_one_nan() {
    let mut session = session();
    for (sql, expected) in [
        ("'NaN'::float8 = 'NaN'::float8, 'NaN'::float8 > 'infinity', 1 < 'NaN'::float8", "t|t|t"),
        ("'NaN'::float8 <> 1, '-infinity'::float8 < -1e308, 'inf'::float8 = 'Infinity'", "t|t|t"),
        ("-('NaN'::float8) = 'NaN', 2.5 < 'NaN'::float8, 9223372036854775807 < 'NaN'::float8", "t|t|t"),
        ("'NaN'::float8 in ('NaN'), 1::float8 in (1, 'NaN'), 'NaN'::float8 between 'inf' and 'nan'", "t|t|t"),
        ("nullif('NaN'::float8, 'NaN'), coalesce('NaN'::float8, 1)", "NULL|NaN"),
        ("'NaN'::float8 / 0, 'NaN'::float8 + 1, 'inf'::float8 - 'inf', 'inf'::float8 * 0", "NaN|NaN|NaN|NaN"),
        ("1 / 'inf'::float8, -1 / 'inf'::float8, 'inf'::float8 / 2, 0 / 'NaN'::float8", "0|-0|Infinity|NaN"),
        ("-('NaN'::float8), abs('-inf'::float8), '-inf'::float8::text", "NaN|Infinity|-Infinity"),
        ("0::float8 * 1e-300, 0 / 1e300::float8", "0|0"),
        (
            "0.1::float8::numeric, (-100)::float8::numeric, 0::float8::numeric, 1e20::float8::numeric",
            "0.1|-100|0|100000000000000000000",
        ),
        (
            "1.5e-20::float8::numeric::text, 0.1::float8::numeric(6,3), (1::float8 / 3)::numeric",
            "0.000000000000000000015|0.100|0.333333333333333",
        ),
    ] {
        assert_eq!(run(&mut session, &format!("select {sql}"), &[]), Ok(vec![expected.to_string()]), "{sql}");
    }
    for (sql, code) in [
        ("'inf'::float8 / 0", "22012"),
        ("1e300::float8 * 1e300::float8", "22003"),
        ("1e-300::float8 * 1e-300::float8", "22003"),
        ("1e-300::float8 / 1e300::float8", "22003"),
        ("'NaN'::float8::int", "22003"),
        ("'inf'::float8::bigint", "22003"),
        ("'infinity'::int", "22P02"),
        ("'Infin'::float8", "22P02"),
        ("1 = 'NaN'", "22P02"),
    ] {
        assert_eq!(run(&mut session, &format!("select {sql}"), &[]), Err(code), "{sql}");
    }
    run(&mut session, "create table k (f float8 primary key)", &[]).unwrap();
    for (sql, expected) in [
        ("insert into k values ('NaN'), (-('NaN'::float8))", Err("23505")),
        ("insert into k values ('0'), ('-0')", Err("23505")),
        ("insert into k values ('inf'), ('-inf'), (-('NaN'::float8)), (0)", Ok(vec![])),
        ("insert into k values ('NaN')", Err("23505")),
    ] {
        assert_eq!(run(&mut session, sql, &[]), expected, "{sql}");
    }
    let keys = run(&mut session, "select f from k order by f desc", &[]).unwrap();
    assert_eq!(keys, ["NaN", "Infinity", "0", "-Infinity"]);
    run(&mut session, "create table fs (id int primary key, f float8, v int, n numeric(8,2))", &[]).unwrap();
    let rows = "(1, 'NaN', 5, 1), (2, 'inf', 6, 2), (3, '-inf', 7, 3), (4, '-0', null, 4), (5, 0, 8, 5), (6, null, 9, 6)";
    run(&mut session, &format!("insert into fs values {rows}"), &[]).unwrap();
    // By a scan, then by indexes.
    for index in [None, Some("f"), Some("v"), Some("n")] {
        if let Some(column) = index {
            run(&mut session, &format!("create index fs_{column} on fs ({column})"), &[]).unwrap();
        }
        for (condition, expected) in [
            ("f = 'NaN'", "1"),
            ("f > 1", "12"),
            ("f > 'inf'", "1"),
            ("f >= 'NaN'", "1"),
            ("f > 'NaN'", ""),
            ("f = 0", "45"),
            ("f < 'NaN'", "2345"),
            ("f <= '-inf'", "3"),
            ("f <> 'NaN'", "2345"),
            ("f in ('NaN', 0)", "145"),
            ("f between 'inf' and 'NaN'", "12"),
            ("v < 'NaN'::float8", "12356"),
            ("v > 'NaN'::float8", ""),
            ("v = 'NaN'::float8", ""),
            ("v < 'inf'::float8", "12356"),
            ("v > '-inf'::float8", "12356"),
            ("n < 'NaN'::float8", "123456"),
            ("n >= 'inf'::float8", ""),
        ] {
            let sql = format!("select id from fs where {condition} order by id");
            let found = run(&mut session, &sql, &[]).unwrap().concat();
            assert_eq!(found, expected, "{condition}, {index:?}");
        }
        let sorted = run(&mut session, "select id from fs order by f, id", &[]).unwrap().concat();
        assert_eq!(sorted, "345216", "{index:?}");
    }
    for text in ["'NaN'::numeric", "'infinity'::numeric"] {
        assert_eq!(run(&mut session, &format!("select {text}"), &[]), Err("22P02"), "{text}");
    }
    assert_eq!(run(&mut session, "select 'NaN'::float8::numeric", &[]), Err("22003"));
    for text in ["'infinity'::date", "'-infinity'::timestamp"] {
        assert_eq!(run(&mut session, &format!("select {text}"), &[]), Err("22007"), "{text}");
    }
}

/// Text and char(n) are cast to each other alike, so the first of them decides. A text that becomes a char is compared
/// without its trailing blanks, and shown with them.
#[test]
fn the_first_text_of_several_decides_whether_they_are_chars() {
    let mut session = session();
    run(&mut session, "update t set x = '5  ' where id = 1", &[]).unwrap();
    for (expr, expected) in [
        ("coalesce(c, x)", SqlType::Char(None)),
        ("coalesce(c, 'x'::text)", SqlType::Char(None)),
        ("coalesce(c, 'x')", SqlType::Char(None)),
        ("coalesce('x', c, x)", SqlType::Char(None)),
        ("coalesce(null, c, x)", SqlType::Char(None)),
        ("coalesce(c, c)", SqlType::Char(Some(5))),
        ("coalesce(x, c)", SqlType::Text),
        ("coalesce('x'::text, c)", SqlType::Text),
        ("nullif(c, x)", SqlType::Text),
        ("nullif(x, c)", SqlType::Text),
        ("nullif(c, 'x')", SqlType::Char(Some(5))),
    ] {
        let sql = format!("select {expr} from t");
        assert_eq!(session.prepare(&sql, &[]).unwrap().columns[0].sql_type, expected, "{expr}");
    }
    for (sql, expected) in [
        ("coalesce(c, x), coalesce(nullif(c, 'ab'), x), coalesce(x, c)", "ab   |5  |5  "),
        ("coalesce(c, x) = 'ab ', coalesce(nullif(c, 'ab'), 'y  '::text) = 'y '", "t|t"),
        // As texts they differ in their blanks.
        ("coalesce(x, c) = '5', coalesce(nullif(c, 'ab'), x) = '5'", "f|t"),
        ("coalesce(null::char(5), x) = '5', coalesce(null::char(5), x) || '!'", "t|5!"),
        ("coalesce(null::char(5), x) like '5  ', length(coalesce(null::char(5), x))", "t|1"),
        ("coalesce(null::char(5), 'y  '::text), coalesce(null::char(5), 'y  '::text) like 'y  '", "y  |t"),
        ("coalesce(null::char(5), 'y  '::text) in ('y', 'z')", "t"),
        ("coalesce(x, null::char(5)) in ('5', 'z')", "f"),
    ] {
        let sql = format!("select {sql} from t where id = 1");
        assert_eq!(run(&mut session, &sql, &[]), Ok(vec![expected.to_string()]), "{sql}");
    }
}

#[test]
fn what_a_value_prints_as_is_read_back() {
    let mut session = session();
    for value in ["0044-03-15 12:00:00+00 BC", "2026-01-31 00:00:00.5+00"] {
        let again = format!("select '{value}'::timestamptz");
        assert_eq!(run(&mut session, &again, &[]), Ok(vec![value.to_owned()]));
        assert_eq!(run(&mut session, "select $1::timestamptz", &[value]), Ok(vec![value.to_owned()]));
    }
}

/// An octal escape has three octal digits, and no sign.
#[test]
fn an_escape_in_a_bytea_is_three_digits() {
    let mut session = session();
    assert_eq!(run(&mut session, "select '\\012'::bytea", &[]), Ok(vec!["\\x0a".to_owned()]));
    for text in ["\\+12", "\\-12", "\\8", "\\189"] {
        assert_eq!(run(&mut session, "select $1::bytea", &[text]), Err("22P02"), "{text}");
    }
}

/// Zeros behind the last digit of an operand take no digits from a result that fits.
#[test]
fn quotients_and_products_that_fit_have_their_digits() {
    let mut session = session();
    let zeros = "0".repeat(30);
    for (sql, expected) in [
        (format!("1.{zeros} / 3.{zeros}"), format!("0.{}", "3".repeat(30))),
        (format!("5 / 0.5{zeros}0000000"), format!("10.{}", "0".repeat(36))),
        (format!("2.{zeros} * 3.{zeros}"), "6".to_owned()),
        ("1.50 * 2.0".to_owned(), "3.000".to_owned()),
        ("1 / 3.0".to_owned(), "0.3333333333333333".to_owned()),
    ] {
        assert_eq!(run(&mut session, &format!("select {sql}"), &[]), Ok(vec![expected]), "{sql}");
    }
}

/// No clause behind a function in FROM is ignored, and count(*) is allowed only where it counts.
#[test]
fn what_is_not_served_is_refused() {
    let mut session = session();
    for (sql, code) in [
        ("select count(*) from generate_series(1, 9) tablesample system (1)", "0A000"),
        ("select n from generate_series(1, 9) as g(n text)", "0A000"),
        ("select * from generate_series(1, count(*))", "42803"),
        ("select id from t order by count(*)", "42803"),
    ] {
        assert_eq!(run(&mut session, sql, &[]), Err(code), "{sql}");
    }
    assert_eq!(
        run(&mut session, "select n from generate_series(1, 2) as g(n)", &[]).map(|rows| rows.len()),
        Ok(2)
    );
}
