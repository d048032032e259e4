//! The fields of an error that name what it is about: only violations of constraints have them, as in PostgreSQL.

use crate::common::*;

/// The fields schema, table, column and constraint.
fn about(answer: &[Message]) -> [Option<String>; 4] {
    [b's', b't', b'c', b'n'].map(|letter| error_field(answer, letter))
}

fn names(table: &str, column: &str, constraint: &str) -> [Option<String>; 4] {
    ["public", table, column, constraint].map(|name| Some(name.to_string()).filter(|name| !name.is_empty()))
}

#[test]
fn a_violation_names_its_table_and_its_column_or_constraint() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text unique, c int not null, d int)");
    client.run("insert into t values (1, 'x', 1, 7), (2, 'y', 1, 7)");
    for (sql, message, detail, expected) in [
        (
            "insert into t values (1, 'z', 1, 1)",
            "duplicate key value violates unique constraint \"t_pkey\"",
            Some("Key (a)=(1) already exists."),
            names("t", "", "t_pkey"),
        ),
        (
            "update t set b = 'x' where a = 2",
            "duplicate key value violates unique constraint \"t_b_key\"",
            Some("Key (b)=(x) already exists."),
            names("t", "", "t_b_key"),
        ),
        (
            "insert into t (a) values (3)",
            "null value in column \"c\" of relation \"t\" violates not-null constraint",
            None,
            names("t", "c", ""),
        ),
        (
            "create unique index u on t (d, c)",
            "could not create unique index \"u\"",
            Some("Key (d, c)=(7, 1) is duplicated."),
            names("t", "", "u"),
        ),
    ] {
        let answer = client.query(sql);
        assert_eq!(error_field(&answer, b'M').as_deref(), Some(message), "{sql}");
        assert_eq!(error_field(&answer, b'D').as_deref(), detail, "{sql}");
        assert_eq!(about(&answer), expected, "{sql}");
    }
    client.run("create table u (a int, b int)");
    client.run("insert into u values (1, null)");
    let answer = client.query("alter table u add primary key (a, b)");
    assert_eq!(about(&answer), names("u", "b", ""));
    let message = "column \"b\" of relation \"u\" contains null values";
    assert_eq!(error_field(&answer, b'M').as_deref(), Some(message));
}

#[test]
fn other_errors_name_nothing_in_fields() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, c char(2))");
    for (sql, code) in [
        ("select * from nope", "42P01"),
        ("select nope from t", "42703"),
        ("insert into t values (1, 'abc')", "22001"),
        ("insert into t values (99999999999, 'a')", "22003"),
        ("select 1 / 0", "22012"),
    ] {
        let answer = client.query(sql);
        assert_eq!(error_code(&answer).as_deref(), Some(code), "{sql}");
        assert_eq!(about(&answer), [const { None }; 4], "{sql}");
    }
}
