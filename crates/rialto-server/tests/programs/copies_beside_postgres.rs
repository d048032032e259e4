//! COPY beside PostgreSQL: each reads what the other has written, and both tell of errors in the same fields.

use crate::common::*;
use crate::postgres::Postgres;

const TABLE: &str = "create table t (k int primary key, b boolean, i2 smallint, i8 bigint, f8 double precision, \
                     n numeric(12,2), t text, c char(3), x bytea, d date, ts timestamp)";

/// Texts that have quotes, delimiters, line ends, escapes and what may stand for null.
const TEXTS: [&str; 16] = [
    "", "x", "\\N", "\\.", "nil", "a,b", "a\tb", "\"q\"", "'", "\\", "\n", "\r", "\r\n", "größe|", " a ",
    "\\n\"\n,",
];

/// Numbers of one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one(&mut self, texts: &[&str]) -> String {
        texts[self.below(texts.len())].to_string()
    }
}

/// An INSERT of a row of any values.
fn insert(numbers: &mut Numbers, key: usize) -> String {
    let text = format!("{}{}", numbers.one(&TEXTS), numbers.one(&TEXTS)).replace('\'', "''");
    let values = [
        numbers.one(&["true", "false"]),
        numbers.one(&["-32768", "0", "7"]),
        numbers.one(&["-9223372036854775808", "1", "4294967296"]),
        numbers.one(&["'NaN'", "'-infinity'", "1e300", "0.1", "-5e-324", "1e15", "123456789.5"]),
        numbers.one(&["0", "-0.01", "9999999999.99", "10000", "1.5"]),
        format!("'{text}'"),
        numbers.one(&["''", "'a'", "'abc'", "'é\"'", "'\\.'"]),
        numbers.one(&["'\\x'", "'\\x00ff5c'", "'\\x2c22'"]),
        numbers.one(&["'0001-01-01'", "'2026-02-28'", "'4000-12-31 BC'"]),
        numbers.one(&["'2000-01-01 00:00:00'", "'1999-12-31 23:59:59.999999'", "'0044-03-15 12:00:00 BC'"]),
    ];
    let mut values: Vec<String> = values.into();
    for value in &mut values {
        if numbers.below(5) == 0 {
            *value = "null".to_string();
        }
    }
    format!("insert into t values ({key}, {})", values.join(", "))
}

const FORMS: [&str; 9] = [
    "",
    "(format text, delimiter '|', null 'nil', header)",
    "delimiter ',' null ''",
    "csv",
    "(format csv, header match)",
    "csv delimiter ';' quote '''' escape '\\' null 'nil' header",
    "(format csv, quote '|', null '\\N')",
    "(format csv, escape 'x')",
    "binary",
];

#[test]
fn each_reads_what_the_other_has_written() {
    let Some(postgres) = Postgres::start() else { return };
    let server = TestServer::start();
    let (mut ours, mut theirs) = (server.connect(), Client::connect(postgres.address));
    let mut numbers = Numbers(7);
    for client in [&mut ours, &mut theirs] {
        client.run(TABLE);
    }
    for round in 0..8 {
        ours.run("truncate t");
        for key in 0..40 {
            ours.run(&insert(&mut numbers, key));
        }
        let all = |client: &mut Client| rows(&client.run("select * from t order by k"));
        let mut expected = all(&mut ours);
        for form in FORMS {
            let to = format!("copy t to stdout {}", form.replace(" match", ""));
            let from = format!("copy t from stdin {form}");
            let written = copy_out(&mut ours, &to);
            theirs.run("truncate t");
            let answer = copy_in(&mut theirs, &from, &written);
            assert_eq!(error_code(&answer), None, "{round} {form}: {}", error_text(&answer));
            // A value that is written as the null string is read as null, by both.
            if form.is_empty() || form.contains("csv") || form == "binary" {
                assert_eq!(all(&mut theirs), expected, "{round} {form}");
            } else {
                expected = all(&mut theirs);
            }
            let again = copy_out(&mut theirs, &to);
            ours.run("truncate t");
            let answer = copy_in(&mut ours, &from, &written);
            assert_eq!(error_code(&answer), None, "{round} {form}: {}", error_text(&answer));
            assert_eq!(all(&mut ours), expected, "{round} {form}");
            let ours_again = copy_out(&mut ours, &to);
            assert_eq!(
                String::from_utf8_lossy(&ours_again),
                String::from_utf8_lossy(&again),
                "{round} {form}"
            );
            assert_eq!(ours_again, again, "{round} {form}");
        }
    }
}

/// Options of a COPY, and data that it refuses.
const ERRORS: &[(&str, &[u8])] = &[
    ("", b"1\tx\ty\nbad\tx\ty\n"),
    ("", b"99999999999\tx\ty\n"),
    ("", b"1\tx\n"),
    ("", b"1\tx\ty\tz\n"),
    ("", b"1\tx\ty\n2\tx\ty\n1\tx\ty\n"),
    ("", b"1\t\\N\ty\n"),
    ("", b"1\tx\tabcd\n"),
    ("", b"1\tx\ty\n2\tx\ty\r\n"),
    ("", b"\\N\tx\ty\n"),
    ("csv", b"1,x\n"),
    ("csv", b"1,x,y,z\n"),
    ("csv", b"1,\"x\ny\nz\",y\nbad,x,y\n"),
    ("csv", b"1,\"x\r\ny\",y\r\nbad,x,y\r\n"),
    ("csv", b"1,\"x,y\nz\n"),
    ("csv", b"1,,y\n"),
    ("csv", b"1,x,y\n2,x,y\r\n"),
    ("csv", b"1,x,y\r\n2,x,y\n"),
    ("csv header", b"a,b,c\n\"bad\",x,y\n"),
    ("(format csv, header match)", b"a,b\n"),
    ("(format csv, header match)", b"a,x,c\n"),
    ("(format csv, header match)", b"a,,c\n"),
    ("(format csv, header match)", b""),
    ("(format text, header match)", b"a\tb\tx\n"),
    ("binary", b""),
    ("binary", b"1\tx\ty\n"),
    ("binary", b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0"),
    ("binary", b"PGCOPY\n\xff\r\n\0\0\x02\0\0\0\0\0\0"),
    ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02"),
    ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xffx"),
];

/// Options that are refused.
const REFUSED: &[&str] = &[
    "binary delimiter ','",
    "(format binary, null 'x')",
    "binary header",
    "quote '|'",
    "escape '|'",
    "csv csv",
    "csv quote 'ab'",
    "csv delimiter '\"'",
    "(format xml)",
    "(nope)",
    "(format csv, force_quote (a))",
    "(format csv, force_null (nope))",
    "(force_not_null (a))",
    "delimiter 'a'",
    "delimiter 'ab'",
    "null e'\\n'",
];

/// The fields of the error that a statement gives: code, message, context, and names.
fn told(client: &mut Client, sql: &str, data: &[u8]) -> Vec<String> {
    let answer = copy_in(client, sql, data);
    let field = |letter: u8| Some(format!("{}={}", char::from(letter), error_field(&answer, letter)?));
    [b'C', b'M', b'W', b's', b't', b'c', b'd', b'n'].into_iter().filter_map(field).collect()
}

#[test]
fn errors_are_told_in_the_same_fields() {
    let Some(postgres) = Postgres::start() else { return };
    let server = TestServer::start();
    let (mut ours, mut theirs) = (server.connect(), Client::connect(postgres.address));
    for client in [&mut ours, &mut theirs] {
        client.run("create table e (a int primary key, b text not null, c char(3))");
        client.run("create table u (a int, b int, c text)");
        client.run("insert into u values (1, 1, 'x'), (1, null, 'y')");
    }
    let statements = [
        "insert into e values (1, null, 'x')",
        "insert into e values (1, 'x', 'y'), (1, 'x', 'y')",
        "insert into e values (1, 'x', 'abcd')",
        "insert into e values (99999999999, 'x', 'abc')",
        "create unique index i on u (a)",
        "alter table u add primary key (b)",
        "select * from nope",
        "select nope from e",
    ];
    let copies = ERRORS.iter().copied().chain(REFUSED.iter().map(|options| (*options, &b""[..])));
    let copies = copies.map(|(options, data)| (format!("copy e from stdin {options}"), data));
    let mut wrong = Vec::new();
    for (sql, data) in copies.chain(statements.map(|sql| (sql.to_string(), &b""[..]))) {
        let (our, their) = (told(&mut ours, &sql, data), told(&mut theirs, &sql, data));
        if our != their {
            let data = String::from_utf8_lossy(data);
            wrong.push(format!("{sql} {data:?}\n  Rialto:     {our:?}\n  PostgreSQL: {their:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
