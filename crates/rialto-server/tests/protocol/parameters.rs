//! Parameters that a Parse declares, and parameters of a query without arguments.

use crate::common::*;

/// Parse with these types of its parameters, 0 for one whose type is open.
fn parse_typed(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = [name.as_bytes(), b"\0", sql.as_bytes(), b"\0"].concat();
    body.extend_from_slice(&(types.len() as u16).to_be_bytes());
    types.iter().for_each(|sql_type| body.extend_from_slice(&sql_type.to_be_bytes()));
    message(b'P', &body)
}

const INT4: u32 = 23;

/// A parameter that does not occur in the statement has a type only if the client gives it one, and only in this
/// statement: the same text without that type is as it was.
#[test]
fn a_parameter_that_is_not_used_spoils_no_other_statement() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int)");
    for (text, unused) in
        [("commit", 1), ("select * from t", 1), ("select a from t where a = $1", 2), ("begin", 3)]
    {
        // The last one finds the text in the cache.
        for sql_type in [0, INT4, 0] {
            let mut types = vec![sql_type; unused];
            types[0] = INT4 * u32::from(text.contains('$')).max(u32::from(sql_type > 0));
            client.send(&[parse_typed("", text, &types), sync()].concat());
            let expected = (sql_type == 0).then_some("42P18");
            assert_eq!(error_code(&client.answer()).as_deref(), expected, "{text} {types:?}");
            let arguments: &[&str] = if text.contains('$') { &["7"] } else { &[] };
            let again = [parse("", text), bind("", "", arguments), execute("", 0), sync()].concat();
            client.send(&again);
            let answer = client.answer();
            assert_eq!(error_code(&answer), None, "{text}: {}", error_text(&answer));
            client.query("rollback");
            if arguments.is_empty() {
                client.run(text);
            }
            client.query("rollback");
        }
    }
    // The last of them counts all before it.
    client.send(&[parse("", "select $3::int"), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("42P18"));
}

#[test]
fn a_simple_query_has_no_parameters() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int)");
    for sql in
        ["select $1", "select a from t where a = $2", "insert into t values ($1)", "select 1; select $1::int"]
    {
        for _ in 0..2 {
            assert_eq!(error_code(&client.query(sql)).as_deref(), Some("42P02"), "{sql}");
        }
    }
    // Nor does a text that was prepared with them.
    client.send(&[parse("", "select $1"), sync()].concat());
    assert_eq!(error_code(&client.answer()), None);
    assert_eq!(error_code(&client.query("select $1")).as_deref(), Some("42P02"));
    client.send(&[parse("", "select $1"), bind("", "", &["x"]), execute("", 0), sync()].concat());
    assert_eq!(rows(&client.answer()), [[Some("x".to_string())]]);
}

/// Everything that prepared statements keep counts, whatever a short text has much of.
#[test]
fn the_types_and_columns_of_prepared_statements_count() {
    let server = TestServer::start();
    let mut client = server.connect();
    let columns: Vec<String> =
        (0..1_600).map(|column| format!("{}{column:04} int", "c".repeat(55))).collect();
    client.run(&format!("create table wide ({})", columns.join(", ")));
    let refused = |text: &str, types: &[u32]| {
        let mut client = server.connect();
        (0..2_000).find(|number| {
            client.send(
                &[parse_typed(&format!("s{number}"), &format!("{text} -- {number}"), types), sync()].concat(),
            );
            error_code(&client.answer()).inspect(|code| assert_eq!(code, "53200")).is_some()
        })
    };
    // 65,535 types take half a megabyte; the columns and their description take about as much.
    assert!(refused("select 1", &vec![INT4; 65_535]).is_some_and(|number| number < 250));
    assert!(refused("select * from wide", &[]).is_some_and(|number| number < 250));
    assert!(
        refused(&format!("vacuum {}", vec!["a"; 60_000].join(",")), &[]).is_some_and(|number| number < 60)
    );
}

/// The types in ParameterDescription.
fn described(answer: &[Message]) -> Vec<u32> {
    let (_, body) = answer.iter().find(|(tag, _)| *tag == b't').expect("a ParameterDescription");
    body[2..].chunks(4).map(|oid| u32::from_be_bytes(oid.try_into().unwrap())).collect()
}

/// A driver takes a number that it has not declared for that of another statement: JDBC declares varchar, and closes
/// the connection if it is told text.
#[test]
fn a_declared_type_is_told_as_it_was_declared() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int, b text, c char(3), d double precision, e timestamp, f smallint)");
    let (int2, int8, text, float4, float8, bpchar, varchar) = (21, 20, 25, 700, 701, 1042, 1043);
    let (unknown, timestamp, timestamptz, date, numeric) = (705, 1114, 1184, 1082, 1700);
    for (sql, declared, told) in [
        ("insert into t (b) values ($1)", &[varchar][..], &[varchar][..]),
        ("insert into t (b) values ($1)", &[text], &[text]),
        ("insert into t (b) values ($1)", &[bpchar], &[bpchar]),
        ("insert into t (b) values ($1)", &[unknown], &[text]),
        ("insert into t (b) values ($1)", &[0], &[text]),
        ("insert into t (b) values ($1)", &[], &[text]),
        ("insert into t (b) values ($1)", &[INT4], &[INT4]),
        ("insert into t (c) values ($1)", &[varchar], &[varchar]),
        ("insert into t (c) values ($1)", &[0], &[bpchar]),
        ("insert into t (a) values ($1)", &[int8], &[int8]),
        ("insert into t (a) values ($1)", &[int2], &[int2]),
        ("insert into t (a) values ($1)", &[numeric], &[numeric]),
        ("insert into t (a) values ($1)", &[unknown], &[INT4]),
        ("insert into t (f) values ($1)", &[INT4], &[INT4]),
        ("insert into t (d) values ($1)", &[float4], &[float4]),
        ("insert into t (d) values ($1)", &[], &[float8]),
        ("insert into t (e) values ($1)", &[timestamptz], &[timestamptz]),
        ("insert into t (e) values ($1)", &[date], &[date]),
        ("insert into t (e) values ($1)", &[0], &[timestamp]),
        ("insert into t (a, b) values ($1, $2)", &[0, varchar], &[INT4, varchar]),
        ("insert into t (a, b) values ($1, $2)", &[int8], &[int8, text]),
        ("select a from t where b = $1 and a = $2", &[varchar, int8], &[varchar, int8]),
        ("select 1", &[varchar], &[varchar]),
    ] {
        for name in ["", "s"] {
            let close = message(b'C', b"Ss\0");
            client.send(&[parse_typed(name, sql, declared), describe(b'S', name), close, sync()].concat());
            let answer = client.answer();
            assert_eq!(error_code(&answer), None, "{sql} {declared:?}: {}", error_text(&answer));
            assert_eq!(described(&answer), told, "{sql} {declared:?}");
        }
    }
}

/// As in PostgreSQL, which gives the same codes.
#[test]
fn a_declared_type_that_does_not_fit_is_refused_or_converted() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int, b text, x bytea, e timestamp, n numeric(5,2))");
    let (bool, bytea, int8, text, float8, varchar, date, numeric) = (16, 17, 20, 25, 701, 1043, 1082, 1700);
    let wide = "1099511627776";
    for (sql, declared, argument, expected) in [
        ("insert into t (a) values ($1)", text, "7", Some("42804")),
        ("insert into t (a) values ($1)", varchar, "7", Some("42804")),
        ("insert into t (e) values ($1)", varchar, "2026-01-31", Some("42804")),
        ("insert into t (x) values ($1)", text, "\\x00", Some("42804")),
        ("insert into t (a) values ($1)", bool, "t", Some("42804")),
        ("insert into t (a) values ($1)", bytea, "\\x00", Some("42804")),
        ("select b from t where a = $1", text, "7", Some("42883")),
        ("select b from t where b = $1", INT4, "7", Some("42883")),
        ("select b from t where x = $1", varchar, "7", Some("42883")),
        ("insert into t (a) values ($1)", int8, wide, Some("22003")),
        ("insert into t (a) values ($1)", int8, "7", None),
        ("insert into t (a) values ($1)", float8, "7.5", None),
        ("insert into t (a) values ($1)", numeric, "7.5", None),
        ("insert into t (n) values ($1)", numeric, "1234.5", Some("22003")),
        ("insert into t (b) values ($1)", INT4, "7", None),
        ("insert into t (b) values ($1)", date, "2026-01-31", None),
        ("insert into t (e) values ($1)", date, "2026-01-31", None),
        ("select b from t where a = $1", int8, wide, None),
        ("select b from t where a = $1", numeric, "7.5", None),
        ("insert into t (a) values ($1)", INT4, "x", Some("22P02")),
        ("insert into t (a) values ($1)", 2950, "x", Some("0A000")),
    ] {
        let parsed = parse_typed("", sql, &[declared]);
        client.send(&[parsed, bind("", "", &[argument]), execute("", 0), sync()].concat());
        let answer = client.answer();
        assert_eq!(error_code(&answer).as_deref(), expected, "{sql} {declared}: {}", error_text(&answer));
    }
    let kept = rows(&client.run("select b from t where b is not null"));
    assert_eq!(kept, [[Some("7".to_owned())], [Some("2026-01-31".to_owned())]]);
}
