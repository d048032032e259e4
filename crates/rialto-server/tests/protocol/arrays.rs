//! Array parameters: their types, their two forms, and what is refused.

use crate::common::*;

/// Parse with these types of its parameters.
fn parse_typed(sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = [b"\0", sql.as_bytes(), b"\0"].concat();
    body.extend_from_slice(&(types.len() as u16).to_be_bytes());
    types.iter().for_each(|sql_type| body.extend_from_slice(&sql_type.to_be_bytes()));
    message(b'P', &body)
}

/// Bind of one argument, binary or as text; `None` for a null.
fn bind_one(binary: bool, argument: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1, 0, u8::from(binary), 0, 1];
    body.extend_from_slice(&argument.map_or(u32::MAX, |argument| argument.len() as u32).to_be_bytes());
    body.extend_from_slice(argument.unwrap_or_default());
    body.extend_from_slice(&[0, 0]);
    message(b'B', &body)
}

/// The binary form of an array of one dimension.
fn array(element: u32, elements: &[Option<&[u8]>]) -> Vec<u8> {
    let mut bytes = [1, 1, element, elements.len() as u32, 1].map(u32::to_be_bytes).concat();
    for value in elements {
        bytes.extend_from_slice(&value.map_or(u32::MAX, |value| value.len() as u32).to_be_bytes());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    bytes
}

fn asked(client: &mut Client, sql: &str, types: &[u32], bind: Vec<u8>) -> Vec<Message> {
    client.send(&[parse_typed(sql, types), describe(b'S', ""), bind, execute("", 0), sync()].concat());
    client.answer()
}

/// The types in a ParameterDescription.
fn parameters(answer: &[Message]) -> Vec<u32> {
    let (_, body) = answer.iter().find(|(tag, _)| *tag == b't').expect("parameters are described");
    body[2..].chunks(4).map(|oid| u32::from_be_bytes(oid.try_into().unwrap())).collect()
}

fn first_column(answer: &[Message]) -> Vec<String> {
    assert_eq!(error_code(answer), None, "{}", error_text(answer));
    rows(answer).into_iter().map(|row| row[0].clone().unwrap_or("NULL".to_string())).collect()
}

fn set_up(client: &mut Client) {
    client.run(
        "create table t (i2 smallint, i4 int primary key, i8 bigint, f8 double precision, n numeric(9,2), \
         b boolean, t text, c char(3), x bytea, d date, ts timestamp)",
    );
    client.run(
        "insert into t values \
         (1, 1, 1, 0.5, 1.25, true, 'one', 'a', '\\x01', '2026-01-01', '2026-01-01 00:00:01'), \
         (2, 2, 2, 1.5, 2.25, false, 'two', 'b', '\\x02', '2026-01-02', '2026-01-02 00:00:01'), \
         (3, 3, 3, 2.5, 3.25, null, 'thr,ee', 'c', '\\x03', '2026-01-03', '2026-01-03 00:00:01')",
    );
}

#[test]
fn a_parameter_of_any_takes_the_array_type_of_its_column() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    for (column, oid, text) in [
        ("i2", 1005, "{3,NULL,1}"),
        ("i4", 1007, "{3,NULL,1}"),
        ("i8", 1016, "{3,NULL,1}"),
        ("f8", 1022, "{2.5,NULL,0.5}"),
        ("n", 1231, "{3.250,NULL,1.25}"),
        ("t", 1009, "{\"thr,ee\",NULL,one}"),
        ("c", 1014, "{c,NULL,\"a  \"}"),
        ("x", 1001, "{\"\\\\x03\",NULL,\"\\\\x01\"}"),
        ("d", 1182, "{2026-01-03,NULL,2026-01-01}"),
        ("ts", 1115, "{\"2026-01-03 00:00:01\",NULL,\"2026-01-01 00:00:01\"}"),
    ] {
        let sql = format!("select i4 from t where {column} = any($1) order by i4");
        let answer = asked(&mut client, &sql, &[], bind_one(false, Some(text.as_bytes())));
        assert_eq!(first_column(&answer), ["1", "3"], "{column}");
        assert_eq!(parameters(&answer), [oid], "{column}");
        // With a null among them, no row is surely none of them.
        let sql = format!("select i4 from t where {column} <> all($1)");
        let answer = asked(&mut client, &sql, &[], bind_one(false, Some(text.as_bytes())));
        assert_eq!(first_column(&answer), [""; 0], "{column}");
    }
    let answer = asked(&mut client, "select i4 from t where b = any($1)", &[], bind_one(false, Some(b"{t}")));
    assert_eq!((first_column(&answer), parameters(&answer)), (vec!["1".to_string()], vec![1000]));
}

#[test]
fn binary_arrays_of_declared_types_are_read() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    let (one, three) = (1i64.to_be_bytes(), 3i64.to_be_bytes());
    let int8 = array(20, &[Some(&three), None, Some(&one)]);
    for column in ["i2", "i4", "i8", "f8 + 0.5", "n - 0.25"] {
        let sql = format!("select i4 from t where {column} = any($1) order by i4");
        let answer = asked(&mut client, &sql, &[1016], bind_one(true, Some(&int8)));
        assert_eq!(first_column(&answer), ["1", "3"], "{column}");
        assert_eq!(parameters(&answer), [1016], "{column}");
    }
    let texts = array(1043, &[Some(b"two"), Some(b"")]);
    for declared in [1009, 1015] {
        let sql = "select i4 from t where t = any($1)";
        let answer = asked(&mut client, sql, &[declared], bind_one(true, Some(&texts)));
        assert_eq!(first_column(&answer), ["2"]);
    }
    let sql = "select i4 from t where i4 = any($1)";
    let empty = [0, 0, 23].map(u32::to_be_bytes).concat();
    for nothing in [Some(&empty[..]), None] {
        let answer = asked(&mut client, sql, &[1007], bind_one(true, nothing));
        assert_eq!(first_column(&answer), [""; 0]);
    }
    let sql = "select i4 from t where $1::int[] is null or i4 = any($1) order by i4";
    let answer = asked(&mut client, sql, &[], bind_one(true, None));
    assert_eq!(first_column(&answer), ["1", "2", "3"]);
    let answer = asked(&mut client, sql, &[], bind_one(false, Some(b"{2}")));
    assert_eq!(first_column(&answer), ["2"]);
}

#[test]
fn what_is_no_array_is_an_error_at_its_bind() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    let sql = "select i4 from t where i4 = any($1)";
    let two = [2, 0, 23, 1, 1, 1, 1, 4, 7].map(u32::to_be_bytes).concat();
    let other = array(20, &[Some(&[0; 8])]);
    for (binary, argument, code) in [
        (false, &b"{1"[..], "22P02"),
        (false, b"1", "22P02"),
        (false, b"{x}", "22P02"),
        (false, b"{{1},{2}}", "0A000"),
        (true, &two, "0A000"),
        (true, &other, "42804"),
        (true, b"\0", "22P03"),
    ] {
        let answer = asked(&mut client, sql, &[], bind_one(binary, Some(argument)));
        assert_eq!(error_code(&answer).as_deref(), Some(code), "{argument:?}");
        assert!(!tags(&answer).contains('2'), "{argument:?}");
    }
    let many = format!("{{{}}}", vec!["1"; (1 << 20) + 1].join(","));
    let answer = asked(&mut client, sql, &[], bind_one(false, Some(many.as_bytes())));
    assert_eq!(error_code(&answer).as_deref(), Some("54000"));
    for (sql, types, code) in [
        ("select $1", &[1007][..], "0A000"),
        ("select 1 where 1 = $1", &[1007], "0A000"),
        ("insert into t (i4) values ($1)", &[1007], "0A000"),
        ("select $1::int[]", &[], "0A000"),
        ("select 1 = any($1)", &[23], "42809"),
        ("select 1 = any($1)", &[1009], "42883"),
        ("select 1 = any(array[array[1]])", &[], "0A000"),
    ] {
        client.send(&[parse_typed(sql, types), sync()].concat());
        assert_eq!(error_code(&client.answer()).as_deref(), Some(code), "{sql}");
    }
}
