//! The protocol in bytes: one Sync is one write, a waiting connection holds up no other, cancel requests, pipelines,
//! portals, bad messages, the end of the server.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_server::ServeOptions;
use rialto_server::connection::{Closer, Stream};

/// A socket that counts the writes to it.
struct Counted(UnixStream, Arc<AtomicUsize>);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Counted before the reader can see the bytes.
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Counted {
    fn closer(&self) -> io::Result<Closer> {
        self.0.closer()
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(limit)
    }

    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_write_timeout(limit)
    }
}

#[test]
fn one_sync_is_one_write() {
    {
        let database = Database::open_on(MemoryDisk::new(), Options::default()).unwrap();
        let shared = rialto_server::Shared::new(database, 4);
        let (mut client, stream) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Counted(stream, writes.clone());
        thread::spawn(move || rialto_server::connection::serve(counted, shared));
        client.write_all(b"\0\0\0\x12\0\x03\0\0user\0ann\0\0").unwrap();
        answer_of(&mut client);
        let mut expected = 1;
        assert_eq!(writes.load(Ordering::SeqCst), expected, "the start-up answer is one write");
        let update = "update t set b = b + $1 where a = $2";
        let exchanges: Vec<(&str, Vec<u8>)> = vec![
            ("CZ", query("create table t (a int primary key, b int)")),
            ("CCCZ", query("insert into t values (1, 0); begin; insert into t values (2, 0)")),
            ("CZ", query("commit")),
            ("TDDCTDCZ", query("select * from t; select 1")),
            ("EZ", query("select nope")),
            ("1Z", [parse("s", update), sync()].concat()),
            ("2nCZ", [bind("", "s", &["5", "1"]), describe(b'P', ""), execute("", 0), sync()].concat()),
            (
                "12nC12TDCZ",
                [
                    parse("", update),
                    bind("", "", &["5", "1"]),
                    describe(b'P', ""),
                    execute("", 0),
                    parse("", "select b from t where a = $1"),
                    bind("", "", &["1"]),
                    describe(b'P', ""),
                    execute("", 0),
                    sync(),
                ]
                .concat(),
            ),
            ("1EZ", [parse("x", "select 1"), bind("", "nope", &[]), execute("", 0), sync()].concat()),
        ];
        for (tags_expected, bytes) in exchanges {
            client.write_all(&bytes).unwrap();
            let answer = answer_of(&mut client);
            assert_eq!(tags(&answer), tags_expected, "{}", error_text(&answer));
            expected += 1;
            assert_eq!(writes.load(Ordering::SeqCst), expected, "{tags_expected} took more than one write");
        }
    }
}

/// A table with rows 1 to 9, b = 0.
fn table(client: &mut Client) {
    client.run("create table t (a int primary key, b int)");
    client.run("insert into t select n, 0 from generate_series(1, 9) n");
}

/// Waits until this many transactions wait for a lock.
fn until_waiting(server: &TestServer, count: usize) {
    let began = Instant::now();
    while server.database.lock_waits().len() < count {
        assert!(began.elapsed() < Duration::from_secs(60), "they do not come to wait");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_waiting_lock_holds_up_no_other_session() {
    let server = TestServer::start();
    let mut holder = server.connect();
    table(&mut holder);
    holder.run("begin");
    holder.run("update t set b = 1 where a = 1");
    // Many more waiters than there are threads for short statements.
    let mut waiters: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        waiter.run("set lock_timeout = 0");
        waiter.send(&query("update t set b = b + 1 where a = 1"));
    }
    until_waiting(&server, 12);
    let mut other = server.connect();
    // Each answer comes while all waiters still wait: no statement of this session had to wait for one of them.
    for _ in 0..50 {
        other.run("update t set b = b + 1 where a = 2");
        other.run("select b from t where a = 3");
    }
    assert_eq!(server.database.lock_waits().len(), 12, "{:?}", server.database.lock_waits());
    holder.run("commit");
    for waiter in &mut waiters {
        let answer = waiter.answer();
        assert_eq!(error_code(&answer), None, "{}", error_text(&answer));
    }
    let answer = other.run("select b from t where a = 1");
    assert_eq!(rows(&answer), [[Some("13".to_string())]]);
}

fn cancel(server: &TestServer, process: u32, secret: u32) {
    let mut canceller = Client::raw(server.address);
    let words = [80_877_102, process, secret].map(u32::to_be_bytes);
    canceller.send_startup(&words.concat());
    assert!(canceller.read().is_none(), "a cancel request is not answered");
}

#[test]
fn a_lock_wait_can_be_cancelled() {
    let server = TestServer::start();
    let mut holder = server.connect();
    table(&mut holder);
    holder.run("begin");
    holder.run("update t set b = 1 where a = 1");
    let mut waiter = server.connect();
    waiter.run("begin");
    waiter.send(&query("update t set b = 2 where a = 1"));
    until_waiting(&server, 1);
    // A request with a wrong secret cancels nothing: the statement gets its lock.
    cancel(&server, waiter.process, waiter.secret.wrapping_add(1));
    holder.run("commit");
    let answer = waiter.answer();
    assert_eq!(tags(&answer), "CZ", "{}", error_text(&answer));
    waiter.run("rollback");
    holder.run("begin");
    holder.run("update t set b = 1 where a = 1");
    waiter.run("begin");
    waiter.send(&query("update t set b = 2 where a = 1"));
    until_waiting(&server, 1);
    cancel(&server, waiter.process, waiter.secret);
    let answer = waiter.answer();
    assert_eq!(error_code(&answer).as_deref(), Some("57014"));
    assert_eq!(state(&answer), 'E');
    waiter.run("rollback");
    // A request with nothing to cancel does nothing.
    cancel(&server, waiter.process, waiter.secret);
    waiter.run("select b from t where a = 5");
    holder.run("commit");
}

/// A pipeline's transaction is open until the Sync: a request that comes between two of its messages ends it at the
/// next one.
#[test]
fn a_cancel_between_two_messages_of_a_pipeline_ends_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    table(&mut client);
    let flush = message(b'H', &[]);
    let insert = [parse("", "insert into t values (90, 1)"), bind("", "", &[]), execute("", 0), flush];
    let statement = [parse("", "insert into t values (91, 1)"), bind("", "", &[]), execute("", 0)];
    let nexts = [
        ("a statement", [&statement[..], &[sync()]].concat().concat(), "EZ"),
        (
            "a Parse of what was parsed before",
            [parse("s", "select b from t where a = 1"), sync()].concat(),
            "EZ",
        ),
        ("a Describe", [describe(b'S', ""), sync()].concat(), "EZ"),
        ("a Sync", sync(), "EZ"),
        ("a query", query("select b from t where a = 1"), "EZ"),
    ];
    client.run("select b from t where a = 1");
    for (what, next, expected) in nexts {
        client.send(&insert.concat());
        let answered: Vec<u8> = (0..3).map(|_| client.read().expect("the server answers").0).collect();
        assert_eq!(answered, *b"12C", "{what}");
        cancel(&server, client.process, client.secret);
        client.send(&next);
        let answer = client.answer();
        assert_eq!(tags(&answer), expected, "{what}: {}", error_text(&answer));
        assert_eq!((error_code(&answer).as_deref(), state(&answer)), (Some("57014"), 'I'), "{what}");
        let found = rows(&client.run("select count(*) from t where a >= 90"));
        assert_eq!(found, [[Some("0".to_string())]], "{what}");
    }
    // Behind a Sync there is nothing to cancel, nor before the first statement that runs.
    cancel(&server, client.process, client.secret);
    client.send(&[&statement[..2], &[message(b'H', &[])]].concat().concat());
    assert_eq!([client.read().unwrap().0, client.read().unwrap().0], *b"12");
    cancel(&server, client.process, client.secret);
    client.send(&[execute("", 0), sync()].concat());
    assert_eq!(tags(&client.answer()), "CZ");
    assert_eq!(rows(&client.run("select a from t where a >= 90")), [[Some("91".to_string())]]);
}

#[test]
fn deadlocks_and_lock_time_outs_have_their_codes() {
    let server = TestServer::start();
    let (mut one, mut two) = (server.connect(), server.connect());
    table(&mut one);
    one.run("begin");
    one.run("update t set b = 1 where a = 1");
    two.run("begin");
    two.run("update t set b = 2 where a = 2");
    one.send(&query("update t set b = 1 where a = 2"));
    until_waiting(&server, 1);
    two.send(&query("update t set b = 2 where a = 1"));
    let finish = |client: &mut Client| {
        let answer = client.answer();
        let ended = client.query("commit");
        assert_eq!(error_code(&ended), None);
        error_code(&answer)
    };
    let outcomes = thread::scope(|scope| {
        let (one, two) = (scope.spawn(|| finish(&mut one)), scope.spawn(|| finish(&mut two)));
        [one.join().unwrap(), two.join().unwrap()]
    });
    let victims: Vec<&str> = outcomes.iter().flatten().map(String::as_str).collect();
    assert_eq!(victims, ["40P01"], "one of the two is the victim");
    one.run("begin");
    one.run("delete from t where a = 3");
    two.run("set lock_timeout = '50ms'");
    assert_eq!(error_code(&two.query("select * from t where a = 3")).as_deref(), Some("55P03"));
    one.run("rollback");
}

#[test]
fn a_pipeline_is_one_transaction_and_skips_after_an_error() {
    let server = TestServer::start();
    let mut client = server.connect();
    table(&mut client);
    let insert =
        |a: &str| [parse("", "insert into t values ($1, 7)"), bind("", "", &[a]), execute("", 0)].concat();
    client.send(&[insert("20"), insert("1"), insert("21"), sync()].concat());
    let answer = client.answer();
    assert_eq!(tags(&answer), "12C12EZ");
    assert_eq!(error_code(&answer).as_deref(), Some("23505"));
    assert_eq!(state(&answer), 'I');
    let count = client.run("select count(*) from t where b = 7");
    assert_eq!(rows(&count), [[Some("0".to_string())]]);
    client.send(&[insert("20"), insert("21"), sync()].concat());
    assert_eq!(tags(&client.answer()), "12C12CZ");
}

/// An error that ends the connection ends the pipeline's transaction, too: its statements have no effect.
#[test]
fn a_connection_that_ends_amid_a_pipeline_tells_no_outcome_of_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    let insert = [parse("", "insert into t values (1)"), bind("", "", &[]), execute("", 0)].concat();
    client.send(&[insert, message(b'!', b"")].concat());
    let answer = client.answer();
    assert_eq!((tags(&answer).as_str(), error_code(&answer).as_deref()), ("12E", Some("08P01")));
    assert!(client.read().is_none());
    assert_eq!(rows(&server.connect().run("select count(*) from t")), [[Some("0".to_string())]]);
}

#[test]
fn describe_tells_parameters_and_columns() {
    let server = TestServer::start();
    let mut client = server.connect();
    client
        .run("create table t (a int primary key, b bigint, c char(5), d numeric(6,2), e timestamp, f text)");
    client.send(
        &[
            parse("s", "select *, now() from t where a = $1 and b > $2 and c = $3"),
            describe(b'S', "s"),
            sync(),
        ]
        .concat(),
    );
    let answer = client.answer();
    assert_eq!(tags(&answer), "1tTZ");
    let types: Vec<u32> =
        answer[1].1[2..].chunks(4).map(|oid| u32::from_be_bytes(oid.try_into().unwrap())).collect();
    assert_eq!(types, [23, 20, 1042]);
    let columns = &answer[2].1;
    assert_eq!(u16::from_be_bytes(columns[..2].try_into().unwrap()), 7);
    // Name, table and column numbers, type, size, modifier, format.
    let mut at = 2;
    let mut found = Vec::new();
    for _ in 0..7 {
        let end = at + columns[at..].iter().position(|&byte| byte == 0).unwrap();
        found.push(u32::from_be_bytes(columns[end + 7..end + 11].try_into().unwrap()));
        at = end + 19;
    }
    assert_eq!(found, [23, 20, 1042, 1700, 1114, 25, 1184]);
}

#[test]
fn binary_values_go_both_ways() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b bigint, c float8)");
    let mut body = b"\0\0\0\x01\0\x01\0\x03".to_vec();
    for value in [&7i32.to_be_bytes()[..], &(-8i64).to_be_bytes(), &0.5f64.to_be_bytes()] {
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value);
    }
    body.extend_from_slice(&[0, 1, 0, 1]);
    let insert = parse("", "insert into t values ($1, $2, $3) returning b, a, c");
    client.send(&[insert, message(b'B', &body), execute("", 0), sync()].concat());
    let answer = client.answer();
    assert_eq!(tags(&answer), "12DCZ", "{}", error_text(&answer));
    let mut expected = vec![0, 3, 0, 0, 0, 8];
    expected.extend_from_slice(&(-8i64).to_be_bytes());
    expected.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 8]);
    expected.extend_from_slice(&0.5f64.to_be_bytes());
    assert_eq!(answer[2].1, expected);
}

#[test]
fn a_portal_hands_its_rows_out_in_pieces() {
    let server = TestServer::start();
    let mut client = server.connect();
    table(&mut client);
    client.run("begin");
    client.send(
        &[parse("", "select a from t order by a"), bind("p", "", &[]), execute("p", 4), sync()].concat(),
    );
    assert_eq!(tags(&client.answer()), "12DDDDsZ");
    client.send(&[execute("p", 4), execute("p", 4), sync()].concat());
    assert_eq!(tags(&client.answer()), "DDDDsDCZ");
    client.send(&[execute("p", 4), sync()].concat());
    assert_eq!(tags(&client.answer()), "CZ", "it has given all");
    client.run("rollback");
    client.send(&[execute("p", 0), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("34000"));
}

#[test]
fn a_long_result_comes_whole() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key, b text)");
    client.run("insert into t select n, 'some text to make the rows a little longer' from generate_series(1, 50000) n");
    let answer = client.run("select * from t");
    assert_eq!(rows(&answer).len(), 50_000);
    let answer = client.run("copy t to stdout");
    assert_eq!(answer.iter().filter(|(tag, _)| *tag == b'd').count(), 50_000);
}

/// A tree as high as its chain is long, in a query and in a Parse alone, on the stack that sessions have.
#[test]
fn a_long_chain_ends_no_server() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.connect(), server.connect());
    client.run("create table t (k int primary key)");
    for (first, part) in [
        ("select * from t where k = 0", " or k = 1"),
        ("select k", " + 1"),
        ("select 1", "::int::bigint"),
        ("select 1", " is null"),
        ("select true", " between true and true"),
        ("select 1", " union select 1"),
        ("", "explain "),
    ] {
        let sql = format!("{first}{}", part.repeat(10_000));
        client.send(&query(&sql));
        client.answer();
        client.send(&[parse("", &sql), sync()].concat());
        client.answer();
    }
    assert_eq!(rows(&other.run("select 1")).len(), 1);
}

/// RowDescription and DataRow count columns by 16 bits.
#[test]
fn a_result_has_no_more_columns_than_its_messages_count() {
    let server = TestServer::start();
    let mut client = server.connect();
    for columns in [1_665, 65_536, 65_537] {
        client.send(&query(&format!("select {}", vec!["7"; columns].join(","))));
        let answer = client.answer();
        assert_eq!((tags(&answer).as_str(), error_code(&answer).as_deref()), ("EZ", Some("54011")));
    }
}

#[test]
fn bad_messages_are_errors() {
    let server = TestServer::start();
    let mut client = server.connect();
    // A query without its end, then a correct one.
    client.send(&message(b'Q', b"select 1"));
    assert_eq!(error_code(&client.answer()).as_deref(), Some("08P01"));
    client.run("select 1");
    client.send(&[message(b'B', b"\0"), execute("", 0), sync()].concat());
    let answer = client.answer();
    assert_eq!((tags(&answer).as_str(), error_code(&answer).as_deref()), ("EZ", Some("08P01")));
    client.send(&[bind("", "nope", &[]), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("26000"));
    client.send(&[parse("", "select 1; select 2"), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("42601"));
    client.send(&[parse("", "select $1::int"), bind("", "", &[]), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("08P01"));
    client.send(&[parse("", "select $1::int"), bind("", "", &["x"]), sync()].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("22P02"));
    // An unknown kind ends the connection.
    client.send(&message(b'!', b""));
    assert_eq!(error_code(&client.answer()).as_deref(), Some("08P01"));
    assert!(client.read().is_none());
    let mut client = Client::raw(server.address);
    client.send_startup(&[0, 2, 0, 0]);
    assert_eq!(error_code(&client.answer()).as_deref(), Some("08P01"));
    let mut client = Client::raw(server.address);
    client.stream.write_all(&[0xff; 16]).unwrap();
    assert_eq!(error_code(&client.answer()).as_deref(), Some("08P01"));
}

#[test]
fn encryption_is_declined_and_settings_are_told() {
    let server = TestServer::start();
    let mut client = Client::raw(server.address);
    client.send_startup(&80_877_103u32.to_be_bytes());
    let mut byte = [0];
    std::io::Read::read_exact(&mut client.stream, &mut byte).unwrap();
    assert_eq!(byte, *b"N");
    let client = server.connect();
    let told =
        |name: &str| client.parameters.iter().find(|(told, _)| told == name).map(|(_, value)| value.as_str());
    assert_eq!(told("server_encoding"), Some("UTF8"));
    assert_eq!(told("DateStyle"), Some("ISO, MDY"));
    assert_eq!(told("standard_conforming_strings"), Some("on"));
    assert!(told("server_version").is_some_and(|version| version.starts_with("15")));
}

#[test]
fn connections_are_bounded() {
    let server = TestServer::with(Options::default(), 2);
    let (one, mut two) = (server.connect(), server.connect());
    let mut third = Client::raw(server.address);
    third.send_startup(b"\0\x03\0\0user\0ann\0\0");
    assert_eq!(error_code(&third.answer()).as_deref(), Some("53300"));
    drop(one);
    two.run("select 1");
    let began = Instant::now();
    loop {
        let mut third = Client::raw(server.address);
        third.send_startup(b"\0\x03\0\0user\0ann\0\0");
        if error_code(&third.answer()).is_none() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "a place that is free again is given again");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_ends_lets_open_transactions_finish() {
    let patient = ServeOptions { drain_timeout: PATIENCE, ..ServeOptions::default() };
    let mut server = TestServer::serving(MemoryDisk::new(), Options::default(), patient);
    let (mut open, mut idle) = (server.connect(), server.connect());
    table(&mut open);
    open.run("begin");
    open.run("update t set b = 5 where a = 1");
    idle.run("select 1");
    server.ask_to_stop();
    assert_eq!(error_code(&idle.answer()).as_deref(), Some("57P01"));
    open.run("update t set b = 6 where a = 2");
    let answer = open.query("commit");
    assert_eq!(error_code(&answer), None, "{}", error_text(&answer));
    assert_eq!(error_code(&open.answer()).as_deref(), Some("57P01"));
    let database = server.database.clone();
    server.wait().unwrap();
    assert_eq!(database.begin().err(), Some(rialto::Error::Closed));
}

#[test]
fn a_copy_that_fails_is_told_at_once_and_its_rest_ignored() {
    let server = TestServer::start();
    let mut client = server.connect();
    table(&mut client);
    client.send(&query("copy t from stdin"));
    assert_eq!(client.read().unwrap().0, b'G');
    client.send(&[message(b'd', b"x\t1\n"), message(b'd', b"30\t1\n"), message(b'c', b"")].concat());
    let answer = client.answer();
    assert_eq!((tags(&answer).as_str(), error_code(&answer).as_deref()), ("EZ", Some("22P02")));
    client.send(&query("copy t from stdin"));
    assert_eq!(client.read().unwrap().0, b'G');
    client.send(&[message(b'd', b"30\t"), message(b'd', b"1\n31\t"), message(b'f', b"no more\0")].concat());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("57014"));
    client.send(&query("copy t from stdin; select count(*) from t"));
    assert_eq!(client.read().unwrap().0, b'G');
    client.send(
        &[
            message(b'd', b"30\t"),
            message(b'd', b"1\n31\t2\n32"),
            message(b'd', b"\t\\N"),
            message(b'c', b""),
        ]
        .concat(),
    );
    let answer = client.answer();
    assert_eq!(tags(&answer), "CTDCZ", "{}", error_text(&answer));
    assert_eq!(rows(&answer), [[Some("12".to_string())]]);
}

/// A time beyond all clocks is no limit, for each option.
#[test]
fn times_without_end_are_no_limits() {
    let serve = rialto_server::ServeOptions {
        startup_timeout: Duration::MAX,
        write_timeout: Duration::MAX,
        drain_timeout: Duration::MAX,
        ..Default::default()
    };
    let server = TestServer::serving(MemoryDisk::new(), Options::default(), serve);
    let mut client = server.connect();
    assert_eq!(rows(&client.run("select n from generate_series(1, 3) n")).len(), 3);
    drop(client);
    server.wait().unwrap();
}

/// A setting that an implicit block changes for itself is reported, and reported again with its old value before
/// ReadyForQuery.
#[test]
fn a_setting_that_ends_with_its_block_is_told_before_ready_for_query() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("set application_name = 'before'");
    let answer = client.query("set local application_name = 'within'; select 1");
    assert_eq!(error_code(&answer), None);
    let told: Vec<String> = answer
        .iter()
        .filter(|(tag, _)| *tag == b'S')
        .map(|(_, body)| String::from_utf8_lossy(body).replace('\0', " ").trim().to_owned())
        .collect();
    assert_eq!(told.last().map(String::as_str), Some("application_name before"), "{told:?}");
    assert_eq!(answer.last().map(|(tag, _)| *tag), Some(b'Z'));
}
