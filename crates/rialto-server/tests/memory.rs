//! The memory of a query string of many statements. A program of one test, because it reads the memory of the whole
//! process.

mod common;

use common::*;
use rialto::Options;

/// The most bytes that this process has had in memory.
fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? << 10)
}

#[test]
fn a_query_string_of_many_statements_keeps_neither_all_of_them_nor_all_their_answers() {
    const COUNT: usize = 400_000;
    let server = TestServer::with(Options { memory_bytes: 64 << 20, ..Options::default() }, 4);
    let mut client = server.connect();
    client.run("select 17; select 18");
    let sql = "select 17;".repeat(COUNT);
    let Some(before) = peak() else {
        println!("skipped: there is no /proc/self/status");
        return;
    };
    client.send(&query(&sql));
    let mut completed = 0;
    loop {
        let (tag, body) = client.read().expect("the server answers");
        match tag {
            b'C' => completed += 1,
            b'Z' => break,
            b'E' => panic!("{}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
    assert_eq!(completed, COUNT);
    let more = peak().unwrap() - before;
    // The message itself exists a few times: here, on its way, and as it arrives.
    assert!(more < 40 << 20, "{more} bytes more");
    // An error in one of them is found before the first is run, however far behind it is.
    client.run("create table t (a int)");
    let answer = client.query(&format!("{}selec 1;", "insert into t values (1);".repeat(20_000)));
    assert_eq!((tags(&answer).as_str(), error_code(&answer).as_deref()), ("EZ", Some("42601")));
    assert_eq!(rows(&client.run("select count(*) from t")), [[Some("0".to_string())]]);
    // They are one transaction even if their answers were sent before its end.
    let answer = client.query(&format!("{}select 1 / 0;", "insert into t values (1);".repeat(20_000)));
    assert_eq!(error_code(&answer).as_deref(), Some("22012"));
    assert_eq!(rows(&client.run("select count(*) from t")), [[Some("0".to_string())]]);
}
