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
