//! Clients that misbehave: that do not read, send nothing, or come in crowds.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::*;
use rialto::io::MemoryDisk;
use rialto::{Checkpointing, Database, Options};
use rialto_server::{ServeOptions, Shared};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

fn server(serve: ServeOptions) -> TestServer {
    TestServer::serving(MemoryDisk::new(), Options::default(), serve)
}

/// A client that holds a lock on row 1 and does not read the long answer to its statement.
fn deaf_client(server: &TestServer) -> Client {
    let mut client = server.connect();
    client.run("create table t (a int primary key, b int)");
    client.run("insert into t values (1, 0)");
    client.run("begin");
    client.run("update t set b = 1 where a = 1");
    let long = "x".repeat(1_000);
    client.send(&query(&format!("select '{long}' from generate_series(1, 1000000000) n")));
    // The answer has begun, so the statement is running.
    assert_eq!(client.read().map(|(tag, _)| tag), Some(b'T'));
    // The answer has filled the system's buffers for the client, so the statement waits for the client.
    let mut kept = vec![0; 16 << 20];
    let mut before = 0;
    loop {
        let now = client.stream.peek(&mut kept).unwrap();
        if now == before {
            return client;
        }
        before = now;
        thread::sleep(Duration::from_millis(100));
    }
}

/// Whether the server has not closed its end of a client's connection, by the system's table of TCP sockets.
fn is_open_at_the_server(server: SocketAddr, client: SocketAddr) -> bool {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(address) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
        }
        SocketAddr::V6(_) => panic!("the tests' servers have IPv4 addresses"),
    };
    let established = format!("{} {} 01 ", hex(server), hex(client));
    std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&established)
}

#[test]
fn a_client_that_does_not_read_loses_its_session_and_its_locks() {
    let server = server(ServeOptions { write_timeout: Duration::from_millis(100), ..Default::default() });
    let deaf = deaf_client(&server);
    let mut other = server.connect();
    other.run("set lock_timeout = 0");
    other.run("update t set b = b + 10 where a = 1");
    assert_eq!(rows(&other.run("select b from t")), [[Some("10".to_string())]]);
    drop(deaf);
}

/// A message, or the text behind a COPY, that takes room shared by all connections has to be completed, or to go on.
#[test]
fn a_client_that_stops_amid_what_takes_room_loses_its_session_and_its_locks() {
    let server = server(ServeOptions { write_timeout: Duration::from_millis(100), ..Default::default() });
    let mut other = server.connect();
    other.run("create table t (a int primary key, b int)");
    other.run("insert into t values (1, 0)");
    other.run("set lock_timeout = 0");
    // A client that has begun a message without shared room may take its time: so does libpq with the last bytes of a
    // COPY's data.
    let mut slow = server.connect();
    // The messages that took room were completed.
    slow.run(&format!("select '{}'", "x".repeat(2 << 20)));
    slow.run("begin");
    let little = query("select count(*) from t");
    slow.send(&little[..9]);
    let large = query(&format!("select '{}'", "x".repeat(4 << 20)));
    let behind = query(&format!("copy t from stdin; select '{}'", "x".repeat(2 << 20)));
    for begun in [&large[..3 << 20], &behind] {
        let mut stuck = server.connect();
        stuck.run("begin");
        stuck.run("update t set b = 1 where a = 1");
        stuck.send(begun);
        let answer = stuck.answer();
        assert_eq!(error_code(&answer).as_deref(), Some("08P01"));
        assert!(error_text(&answer).contains("came within 100ms"), "{}", error_text(&answer));
        assert!(stuck.read().is_none(), "it is ended");
        other.run("update t set b = b + 10 where a = 1");
    }
    assert_eq!(rows(&other.run("select b from t")), [[Some("20".to_string())]]);
    slow.send(&little[9..]);
    assert_eq!(rows(&slow.answer()), [[Some("1".to_string())]]);
}

#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_end_nor_outlive_it() {
    let server = server(ServeOptions {
        write_timeout: LONG,
        drain_timeout: Duration::from_millis(10),
        ..Default::default()
    });
    let deaf = deaf_client(&server);
    let (address, database) = (server.address, server.database.clone());
    let is_open = || is_open_at_the_server(address, deaf.stream.local_addr().unwrap());
    assert!(is_open(), "the table has it");
    server.wait().unwrap();
    assert_eq!(database.begin().err(), Some(rialto::Error::Closed));
    // A session that outlived the server would go on as soon as its client reads.
    assert!(!is_open(), "the session has outlived its server");
}

#[test]
fn a_copy_that_waits_for_data_does_not_hold_up_the_end() {
    let server = server(ServeOptions { drain_timeout: Duration::from_millis(10), ..Default::default() });
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    client.send(&[query("copy t from stdin"), message(b'd', b"1\n")].concat());
    assert_eq!(client.read().map(|(tag, _)| tag), Some(b'G'));
    server.wait().unwrap();
    assert_eq!(error_code(&client.answer()).as_deref(), Some("57P01"));
}

/// The error that a client gets at its start, if any.
fn hello(client: &mut Client) -> Option<String> {
    client.send_startup(b"\0\x03\0\0user\0ann\0\0");
    error_code(&client.answer())
}

#[test]
fn connections_that_say_nothing_count_and_are_ended() {
    let server = server(ServeOptions {
        max_connections: 2,
        // Longer than it takes to refuse a connection.
        startup_timeout: Duration::from_secs(3),
        ..Default::default()
    });
    let mut silent = [Client::raw(server.address), Client::raw(server.address)];
    // The packet would be sent byte by byte, for five times as long as the client has.
    let packet = [&9_000u32.to_be_bytes()[..], &[0; 300 - 4]].concat();
    let free = AtomicBool::new(false);
    thread::scope(|scope| {
        let trickle = scope.spawn(|| {
            let mut silent = silent[0].stream.try_clone().unwrap();
            let is_there = |_: &&[u8]| !free.load(Ordering::SeqCst);
            let sent = packet.chunks(1).take_while(is_there).inspect(|byte| {
                thread::sleep(Duration::from_millis(50));
                let _ = silent.write_all(byte);
            });
            sent.count()
        });
        assert_eq!(hello(&mut Client::raw(server.address)).as_deref(), Some("53300"));
        while !trickle.is_finished() && hello(&mut Client::raw(server.address)).is_some() {
            thread::sleep(Duration::from_millis(10));
        }
        free.store(true, Ordering::SeqCst);
        let sent = trickle.join().unwrap();
        assert!(sent < packet.len(), "places are free again after the time-out");
    });
    for client in &mut silent {
        assert!(client.read().is_none(), "it was ended");
    }
}

/// An administrator sets no limit by the longest time.
#[test]
fn times_that_never_come_are_no_limits() {
    let endless = ServeOptions {
        startup_timeout: Duration::MAX,
        write_timeout: Duration::MAX,
        drain_timeout: Duration::MAX,
        ..Default::default()
    };
    let server = server(endless);
    server.connect().run("select 1");
    server.wait().unwrap();
}

#[test]
fn a_crowd_is_turned_away_and_a_cancel_gets_through() {
    let server = server(ServeOptions { max_connections: 1, startup_timeout: LONG, ..Default::default() });
    let mut client = server.connect();
    client.run("create table t (a int primary key, b int)");
    client.send(&query("select count(*) from generate_series(1, 1000000000000) n"));
    let request = [80_877_102, client.process, client.secret].map(u32::to_be_bytes).concat();
    thread::scope(|scope| {
        let answer = scope.spawn(|| client.answer());
        // A request that comes before the statement runs does nothing.
        while !answer.is_finished() {
            let mut canceller = Client::raw(server.address);
            canceller.send_startup(&request);
            assert!(canceller.read().is_none());
        }
        assert_eq!(error_code(&answer.join().unwrap()).as_deref(), Some("57014"));
    });
    // Some more connections are answered; the rest are refused at once.
    let mut crowd: Vec<Client> = (0..40).map(|_| Client::raw(server.address)).collect();
    for late in &mut crowd[20..] {
        assert_eq!(error_code(&late.answer()).as_deref(), Some("53300"));
    }
    client.run("select 1");
    drop(crowd);
}

#[test]
fn encryption_is_asked_for_once_each() {
    let server = server(ServeOptions::default());
    let mut client = Client::raw(server.address);
    for request in [80_877_103u32, 80_877_104] {
        client.send_startup(&request.to_be_bytes());
        let mut byte = [0];
        client.stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"N");
    }
    client.send_startup(&80_877_103u32.to_be_bytes());
    assert_eq!(error_code(&client.answer()).as_deref(), Some("08P01"));
    // Start-up packets that are cut short give their places back.
    for cut in 0..12 {
        let mut client = Client::raw(server.address);
        client.stream.write_all(&b"\0\0\0\x12\0\x03\0\0user\0ann\0\0"[..cut]).unwrap();
    }
    assert_eq!(hello(&mut Client::raw(server.address)), None);
}

/// A large buffer is sent though no Sync has come.
#[test]
fn a_pipeline_without_an_end_is_answered_all_the_same() {
    let server = server(ServeOptions::default());
    let mut client = server.connect();
    let long = "x".repeat(1_000);
    let prepare = parse("s", &format!("select '{long}' from generate_series(1, 10) n"));
    let run = [bind("", "s", &[]), execute("", 0)].concat();
    client.send(&[prepare, run.repeat(300)].concat());
    // Three of the four million bytes come before the Sync is sent.
    let mut bytes = 0;
    while bytes < 2_000_000 {
        bytes += client.read().expect("it is answered before its end").1.len();
    }
    client.send(&sync());
    assert_eq!(state(&client.answer()), 'I');
}

/// I3: outside of a block nothing that was read is sent before it is durable, however early it is sent.
#[test]
fn rows_are_told_early_only_if_they_are_durable() {
    // The log is written only for waits.
    let options =
        Options { memory_flush_interval: LONG, checkpoint: Checkpointing::None, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).unwrap();
    let shared = Shared::new(database.clone(), 4);
    let connect = || {
        let (mut client, stream) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let shared = shared.clone();
        let thread = thread::spawn(move || rialto_server::connection::serve(stream, shared));
        client.write_all(b"\0\0\0\x12\0\x03\0\0user\0ann\0\0").unwrap();
        answer_of(&mut client);
        (client, thread)
    };
    let run = |client: &mut UnixStream, sql: &str| {
        client.write_all(&query(sql)).unwrap();
        let answer = answer_of(client);
        assert_eq!(error_code(&answer), None, "{sql}");
    };
    let long = "x".repeat(1_000);
    let (mut writer, _) = connect();
    run(&mut writer, "create table t (a int primary key, b text)");
    run(&mut writer, &format!("insert into t select n, '{long}' from generate_series(1, 20000) n"));
    run(&mut writer, "set rialto.durability = 'memory'");
    let flush = message(b'H', b"");
    let look = [parse("", "select * from t where a = 1"), bind("", "", &[]), execute("", 0), flush].concat();
    for (number, (what, bytes)) in [
        // Too long for the sockets' buffers: when the first row comes, the statement is still running.
        ("a long result", query("select * from t")),
        ("a COPY", query("copy t to stdout")),
        ("a Flush", look),
    ]
    .into_iter()
    .enumerate()
    {
        let groups = database.metrics().log.groups;
        run(&mut writer, &format!("update t set b = 'short{number}' where a = 1"));
        assert_eq!(database.metrics().log.groups, groups, "it is in memory only");
        let (mut reader, thread) = connect();
        reader.write_all(&bytes).unwrap();
        let found =
            std::iter::from_fn(|| message_of(&mut reader)).find(|(tag, _)| matches!(tag, b'D' | b'd'));
        assert!(
            found.is_some_and(|(_, body)| body
                .windows(6)
                .any(|word| word == format!("short{number}").as_bytes())),
            "{what}"
        );
        assert!(database.metrics().log.groups > groups, "{what} told what is not durable");
        // The reader may still be reading, and would wait for the next write.
        drop(reader);
        thread.join().expect("it does not panic");
    }
}
