//! COPY in CSV and in binary form, and the place that its errors name.

use crate::common::*;

fn texts(rows: &[&[Option<&str>]]) -> Vec<Vec<Option<String>>> {
    rows.iter().map(|row| row.iter().map(|value| value.map(str::to_string)).collect()).collect()
}

fn all_rows(client: &mut Client) -> Vec<Vec<Option<String>>> {
    rows(&client.run("select * from t"))
}

fn set_up(client: &mut Client) {
    client.run("create table t (a int primary key, b text, c char(3))");
}

/// The error with which a COPY ends: its code, and its context.
fn failed(client: &mut Client, sql: &str, data: &[u8]) -> (String, String) {
    let answer = copy_in(client, sql, data);
    let code = error_code(&answer).unwrap_or_else(|| panic!("{sql} is done"));
    (code, error_field(&answer, b'W').unwrap_or_default())
}

#[test]
fn csv_goes_both_ways() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    let data = b"a,b,c\r\n1,\"x,\"\"y\"\"\nz\",ab\r\n2,,\r\n3,\"\",\"\"\r\n4,\\.,\\N";
    let answer = copy_in(&mut client, "copy t from stdin with (format csv, header)", data);
    assert_eq!(tags(&answer), "GCZ", "{}", error_text(&answer));
    let expected = texts(&[
        &[Some("1"), Some("x,\"y\"\nz"), Some("ab ")],
        &[Some("2"), None, None],
        &[Some("3"), Some(""), Some("   ")],
        &[Some("4"), Some("\\."), Some("\\N ")],
    ]);
    assert_eq!(all_rows(&mut client), expected);
    for (options, lines) in [
        ("csv header", "a,b,c\n1,\"x,\"\"y\"\"\nz\",ab \n2,,\n3,\"\",   \n4,\\.,\\N \n"),
        (
            "with csv delimiter as '|' quote '''' escape '\\' null 'nil' force quote b",
            "1|'x,\"y\"\nz'|ab \n2|nil|nil\n3|''|   \n4|'\\\\.'|\\N \n",
        ),
    ] {
        let written = copy_out(&mut client, &format!("copy t to stdout {options}"));
        assert_eq!(String::from_utf8(written.clone()).unwrap(), lines, "{options}");
        client.run("truncate t");
        let from = options.replace(" force quote b", "");
        let answer = copy_in(&mut client, &format!("copy t from stdin {from}"), &written);
        assert_eq!(error_code(&answer), None, "{}", error_text(&answer));
        assert_eq!(all_rows(&mut client), expected, "{options}");
    }
    assert!(copy_out(&mut client, "copy t (b) to stdout csv").ends_with(b"\n\"\\.\"\n"));
}

#[test]
fn columns_of_a_csv_may_force_nulls_and_texts() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a text, b text, c text)");
    let sql = "copy t from stdin (format csv, force_null (a), force_not_null (b))";
    assert_eq!(error_code(&copy_in(&mut client, sql, b"\"\",,\n")), None);
    assert_eq!(all_rows(&mut client), texts(&[&[None, Some(""), None]]));
}

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

#[test]
fn binary_goes_both_ways_with_the_header_before_the_first_row() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    let first = b"\0\x03\0\0\0\x04\0\0\0\x01\0\0\0\x02xy\0\0\0\x03a  ";
    let second = b"\0\x03\0\0\0\x04\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff";
    let data = [HEADER, first, second, b"\xff\xff"].concat();
    let answer = copy_in(&mut client, "copy binary t from stdin", &data);
    assert_eq!(tags(&answer), "GCZ", "{}", error_text(&answer));
    assert_eq!(answer[0].1, [1, 0, 3, 0, 1, 0, 1, 0, 1], "all columns are binary");
    let expected = texts(&[&[Some("1"), Some("xy"), Some("a  ")], &[Some("2"), None, None]]);
    assert_eq!(all_rows(&mut client), expected);
    let answer = client.run("copy t to stdout (format binary)");
    assert_eq!(tags(&answer), "HdddcCZ");
    assert_eq!(answer[0].1, [1, 0, 3, 0, 1, 0, 1, 0, 1]);
    assert_eq!(answer[1].1, [HEADER, first].concat(), "drivers expect it in one piece");
    assert_eq!(copy_out(&mut client, "copy t to stdout with binary"), data);
    client.run("truncate t");
    assert_eq!(copy_out(&mut client, "copy t to stdout binary"), [HEADER, b"\xff\xff"].concat());
    // However the data are cut, and without the end marker.
    client.send(&query("copy t from stdin binary"));
    for byte in &data[..data.len() - 2] {
        client.send(&message(b'd', &[*byte]));
    }
    client.send(&message(b'c', b""));
    assert_eq!(tags(&client.answer()), "GCZ");
    assert_eq!(all_rows(&mut client), expected);
}

#[test]
fn errors_name_the_line_and_the_column() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text not null, c char(3))");
    let long = format!("{}\tx\ty\n", "x".repeat(200));
    let shown = format!("COPY t, line 1, column a: \"{}...\"", "x".repeat(100));
    for (options, data, code, expected) in [
        ("", "1\tx\ty\nbad\tx\ty\n", "22P02", "COPY t, line 2, column a: \"bad\""),
        ("", "1\tx\n", "22P04", "COPY t, line 1: \"1\tx\""),
        ("", "1\tx\ty\tz\n", "22P04", "COPY t, line 1: \"1\tx\ty\tz\""),
        ("", "1\tx\ty\n1\tx\ty\n", "23505", "COPY t, line 2"),
        ("", "1\t\\N\ty\n", "23502", "COPY t, line 1: \"1\t\\N\ty\""),
        ("", "1\tx\tabcd\n", "22001", "COPY t, line 1, column c: \"abcd\""),
        ("", &long, "22P02", &shown),
        ("csv", "1,\"x\ny\",z\nbad,x,y\n", "22P02", "COPY t, line 2, column a: \"bad\""),
        ("csv header", "a\n1,x,\"", "22P04", "COPY t, line 2: \"1,x,\"\""),
        ("(format csv, header match)", "a,x,c\n", "22P04", "COPY t, line 1: \"a,x,c\""),
        ("csv", "1,x,y\n2,x,y\r\n", "22P04", "COPY t, line 2"),
    ] {
        let sql = format!("copy t from stdin {options}");
        let found = failed(&mut client, &sql, data.as_bytes());
        assert_eq!(found, (code.to_string(), expected.to_string()), "{sql} {data:?}");
    }
    let answer = copy_in(&mut client, "copy t from stdin", b"1\tx\ty\n1\tx\ty\n");
    assert_eq!(error_field(&answer, b'n').as_deref(), Some("t_pkey"));
    for (tuple, code, expected) in [
        (&b"\0\x03\0\0\0\x02\0\x01\0\0\0\0\0\0\0\0"[..], "22P03", "COPY t, line 1, column a"),
        (b"\0\x02", "22P04", "COPY t, line 1"),
        (b"\0\x03\0\0\0\x04\0", "22P04", "COPY t, line 1"),
    ] {
        let found = failed(&mut client, "copy t from stdin binary", &[HEADER, tuple].concat());
        assert_eq!(found, (code.to_string(), expected.to_string()), "{tuple:?}");
    }
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    for (options, code) in [
        ("binary delimiter ','", "42601"),
        ("binary header", "0A000"),
        ("quote '|'", "0A000"),
        ("csv csv", "42601"),
        ("csv quote 'ab'", "0A000"),
        ("csv delimiter '\"'", "22023"),
        ("csv null '\"'", "0A000"),
        ("(format xml)", "22023"),
        ("(nope)", "42601"),
        ("(format csv, force_null (a))", "0A000"),
        ("(format csv, force_quote (nope))", "42703"),
        ("(format csv, force_quote (a))", "42P10"),
        ("delimiter 'a'", "22023"),
    ] {
        let answer = client.query(&format!("copy t (b, c) to stdout {options}"));
        assert_eq!(error_code(&answer).as_deref(), Some(code), "{options}");
    }
}

/// What a COPY keeps of its data is bounded, whatever its form.
#[test]
fn a_record_without_an_end_is_refused() {
    let server = TestServer::start();
    let mut client = server.connect();
    set_up(&mut client);
    let piece = vec![b'x'; 64 << 10];
    let tuple = [HEADER, b"\0\x03\x7f\xff\xff\xff"].concat();
    for (options, begin) in [("csv", &b"1,\""[..]), ("binary", &tuple), ("", b"1\t")] {
        client.send(&query(&format!("copy t from stdin {options}")));
        client.send(&message(b'd', begin));
        for _ in 0..40 {
            client.send(&message(b'd', &piece));
        }
        client.send(&message(b'c', b""));
        assert_eq!(error_code(&client.answer()).as_deref(), Some("54000"), "{options}");
    }
    assert_eq!(rows(&client.run("select 1")).len(), 1);
}
