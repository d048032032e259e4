//! No bytes make the server panic: messages, statements from their text to their rows, and whole connections.
//! `RIALTO_SEED` runs a round again; `RIALTO_TEST_SECONDS` says for how long new ones are tried.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::common::*;
use rialto::io::{MemoryDisk, Random};
use rialto::row::Value;
use rialto::{Database, Options};
use rialto_server::Shared;
use rialto_server::protocol::frontend::{self, Message};
use rialto_sql::parse::split;
use rialto_sql::run::Collected;
use rialto_sql::{Prepared, Session, SqlType};

const PAGE: &str = include_str!("../../../../docs/sql.md");
/// Texts that no statement of the page has.
const MORE: [&str; 36] = [
    "'",
    "\"",
    "$$",
    "$a$",
    "--",
    "/*",
    "*/",
    ";",
    "(",
    ")",
    "::",
    "$1",
    "$2",
    "$70000",
    "NULL",
    "E'\\x4",
    "\\",
    "é",
    "𝄞",
    "9223372036854775807",
    "-9223372036854775808",
    "1e400",
    "0.1e-400",
    "18446744073709551616",
    "''''",
    "U&'\\0041'",
    "B'101'",
    "X'1F'",
    "interval",
    "array[",
    "between",
    "is not distinct from",
    "not",
    "- -",
    "%",
    "||",
];

fn rounds(name: &str, mut round: impl FnMut(u64, &mut Random)) {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut seed = base;
    while seed == base || Instant::now() < until {
        let outcome = catch_unwind(AssertUnwindSafe(|| round(seed, &mut Random::new(seed))));
        assert!(outcome.is_ok(), "seed {seed}: it panicked, see above; RIALTO_SEED={seed} runs it again");
        seed = seed.wrapping_add(1);
    }
    println!("tally: fuzz {name}, {} inputs, RIALTO_SEED={base}", seed.wrapping_sub(base));
}

fn pick<'a, T: ?Sized>(random: &mut Random, from: &[&'a T]) -> &'a T {
    from[random.below(from.len() as u64) as usize]
}

/// The statements of docs/sql.md, accepted and refused.
fn corpus() -> Vec<&'static str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in PAGE.lines() {
        if line.starts_with("```") {
            inside = line.starts_with("```sql");
        } else if inside {
            found.push(line.trim_end_matches(';'));
        }
    }
    assert!(found.len() > 150, "docs/sql.md has lost its examples");
    found
}

/// A place in the text between two characters.
fn place(random: &mut Random, text: &str) -> usize {
    let mut at = random.below(text.len() as u64 + 1) as usize;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn statement(random: &mut Random, corpus: &[&str]) -> String {
    let mut text = pick(random, corpus).to_owned();
    for _ in 0..random.below(5) {
        let at = place(random, &text);
        match random.below(10) {
            0 => text.truncate(at),
            1 => {
                let to = place(random, &text);
                text.replace_range(at.min(to)..at.max(to), "");
            }
            2 => {
                let to = place(random, &text);
                let part = text[at.min(to)..at.max(to)].to_owned();
                text.insert_str(at, &part);
            }
            3 | 4 => text.insert_str(at, pick(random, &MORE)),
            5 => {
                // A word of another statement.
                let words: Vec<&str> = pick(random, corpus).split(' ').collect();
                text.insert_str(at, &format!(" {} ", pick(random, &words)));
            }
            6 => {
                let other = pick(random, corpus);
                let from = place(random, other);
                text.replace_range(at.., &other[from..]);
            }
            7 => {
                let depth = 1 << random.below(11);
                let (open, close) =
                    [("(", ")"), ("not (", ")"), ("-", ""), ("case when ", "")][random.below(4) as usize];
                text.insert_str(at, &open.repeat(depth));
                text.push_str(&close.repeat(depth));
            }
            8 => {
                let part = pick(random, &[" + 1", " or true", "::text::int", " is null", " || 'x'", "[]"]);
                text.push_str(&part.repeat(1 << random.below(14)));
            }
            _ => {
                let byte = random.below(128) as u8;
                text.insert(at, char::from(byte));
            }
        }
    }
    text
}

fn value(random: &mut Random, sql_type: SqlType) -> Value {
    let texts = ["0", "1", "-7", "x", "2026-01-31", "9999999999999999999", "t", "\\x41", "1e10", "NaN", ""];
    let text = pick(random, &texts);
    rialto_sql::values::text::parse(sql_type, text).unwrap_or(Value::Null)
}

/// Whether the statement runs for a short time.
fn is_bounded(text: &str) -> bool {
    !text.to_lowercase().contains("generate_series")
}

fn run(session: &mut Session, prepared: &std::sync::Arc<Prepared>, params: &[Value]) {
    let mut rows = Collected::default();
    let answer = session.execute(prepared, params, &mut rows);
    let answer = answer.and_then(|_| session.finish());
    if let Err(error) = answer {
        assert_ne!(error.sqlstate.code(), "XX000", "{}: {error}", prepared.text);
        let _ = session.fail(&error);
    }
}

#[test]
fn no_statement_makes_the_session_panic() {
    let corpus = corpus();
    let work = move || {
        rounds("statements", |_, random| {
            let database = Database::open_on(
                MemoryDisk::new(),
                Options { memory_bytes: 64 << 20, ..Options::default() },
            );
            let mut session = Session::new(database.expect("a new database opens"), "ann", "bank");
            for sql in [
                "create table account (id integer not null, owner text, balance bigint, note char(20))",
                "create table event (account integer, at timestamp not null, what varchar, primary key (account, at))",
                "insert into account values (1, 'ann', 100, null), (2, 'bob', 200, 'x')",
            ] {
                let prepared = session.prepare(sql, &[]).expect(sql);
                run(&mut session, &prepared, &[]);
            }
            for _ in 0..150 {
                let sql = statement(random, &corpus);
                for piece in split(&sql) {
                    let Ok(prepared) = session.prepare(piece.text, &[]) else { continue };
                    let params: Vec<Value> =
                        prepared.params.iter().map(|sql_type| value(random, *sql_type)).collect();
                    if is_bounded(piece.text) && prepared.copy().is_none() {
                        run(&mut session, &prepared, &params);
                    }
                }
            }
        });
    };
    // As deep as a session's stack.
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(work).expect("a thread starts");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Some messages that fit together.
fn messages(random: &mut Random, corpus: &[&str]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..1 + random.below(6) {
        let mut sql = statement(random, corpus);
        if !is_bounded(&sql) {
            sql = "select 1".to_owned();
        }
        let name = ["", "s", "p"][random.below(3) as usize];
        match random.below(4) {
            0 => all.push(query(&sql.replace('\0', " "))),
            1 => {
                all.push(query("copy account from stdin"));
                all.push(message(b'd', b"7\tx\t\\N\t\\\\\n8"));
                all.push(message(if random.chance(1, 2) { b'c' } else { b'f' }, b"\0"));
            }
            _ => {
                let arguments: Vec<&str> = (0..random.below(3)).map(|_| "1").collect();
                all.push(parse(name, &sql.replace('\0', " ")));
                all.push(bind("", name, &arguments));
                all.push(describe(if random.chance(1, 2) { b'P' } else { b'S' }, name));
                all.push(execute("", random.below(3) as u32));
                all.push(sync());
            }
        }
    }
    all
}

/// Changes some of the bytes, most often behind the length word.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        if bytes.len() < 6 {
            return;
        }
        let at = if random.chance(1, 20) { 0 } else { 5 } + random.below(bytes.len() as u64 - 5) as usize;
        match random.below(4) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            2 => bytes[at] ^= 1 << random.below(8),
            _ => {
                bytes.truncate(at.max(5));
                let length = bytes.len() as u32 - 1;
                bytes[1..5].copy_from_slice(&length.to_be_bytes());
            }
        }
    }
}

#[test]
fn no_message_makes_the_decoder_panic() {
    let corpus = corpus();
    rounds("messages", |_, random| {
        for _ in 0..200 {
            for mut bytes in messages(random, &corpus) {
                damage(random, &mut bytes);
                let (tag, body) = (bytes[0], bytes.get(5..).unwrap_or(&[]));
                if let Ok(Message::Bind(bind)) = frontend::message(tag, body) {
                    assert_eq!(bind.arguments.iter().count(), bind.arguments.count(), "{body:?}");
                    for index in 0..bind.arguments.count() + 1 {
                        let _ = (bind.formats.get(index), bind.result_formats.get(index));
                    }
                }
                let _ = frontend::startup(body);
            }
        }
    });
}

#[test]
fn no_bytes_make_a_connection_panic_and_answers_stay_whole() {
    let corpus = corpus();
    rounds("connections", |seed, random| {
        let database =
            Database::open_on(MemoryDisk::new(), Options { memory_bytes: 64 << 20, ..Options::default() });
        let shared = Shared::new(database.expect("a new database opens"), 4);
        let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
        client.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket takes it");
        let serving = std::thread::Builder::new().stack_size(8 << 20);
        let serving =
            serving.spawn(move || rialto_server::connection::serve(socket, shared)).expect("a thread starts");
        let mut bytes = b"\0\0\0\x12\0\x03\0\0user\0ann\0\0".to_vec();
        bytes.extend(query(
            "create table account (id integer primary key, owner text, balance bigint, note char(20))",
        ));
        for mut piece in messages(random, &corpus) {
            if random.chance(1, 3) {
                damage(random, &mut piece);
            }
            bytes.extend(piece);
        }
        let reader = client.try_clone().expect("a socket can be cloned");
        let reading = std::thread::spawn(move || {
            let mut answer = Vec::new();
            let mut reader = reader;
            let read = reader.read_to_end(&mut answer);
            (answer, read.map_err(|error| error.kind()))
        });
        // The server may have closed the connection already.
        let _ = client.write_all(&bytes);
        let _ = client.shutdown(Shutdown::Write);
        assert!(serving.join().is_ok(), "seed {seed}: the connection's thread panicked");
        let (answer, read) = reading.join().expect("reading does not panic");
        assert!(
            !matches!(read, Err(std::io::ErrorKind::WouldBlock)),
            "seed {seed}: the connection does not end"
        );
        let mut at = 0;
        while let Some(head) = answer.get(at..at + 5) {
            assert!(head[0].is_ascii_alphanumeric(), "seed {seed}: no message begins at byte {at}");
            at += 1 + u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        }
        assert!(at == answer.len() || read.is_err(), "seed {seed}: the answers end within a message");
    });
}
