//! The answers are the same however a client's bytes are cut on their way. The fast path for a prepared statement's
//! messages that arrive together gives the same as the messages one by one. `RIALTO_SEED` runs a round again;
//! `RIALTO_TEST_SECONDS` says for how long new ones are tried.

use std::time::Instant;

use crate::common::*;
use rialto::io::{MemoryDisk, Random};
use rialto::{Database, Options};
use rialto_server::Shared;
use rialto_server::connection::serve;
use rialto_server::fuzz::Pieces;

/// The answers of a session on a new database to these pieces, without its key.
fn answers(pieces: Vec<Vec<u8>>) -> Vec<Message> {
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
    let start = b"\0\0\0\x12\0\x03\0\0user\0ann\0\0".to_vec();
    let (stream, answers) = Pieces::new(std::iter::once(start).chain(pieces).collect());
    serve(stream, Shared::new(database, 1));
    let bytes = answers.lock().unwrap().clone();
    let mut rest = &bytes[..];
    std::iter::from_fn(|| message_of(&mut rest)).filter(|(tag, _)| *tag != b'K').collect()
}

/// The answers to the messages in one piece. Checks that they are the same when the messages come one by one, or cut
/// anywhere.
fn same_answers(messages: &[Vec<u8>], what: &str) -> Vec<Message> {
    let whole = messages.concat();
    let at_once = answers(vec![whole.clone()]);
    assert_eq!(at_once, answers(messages.to_vec()), "{what}: at once, and one by one");
    for step in [1, 7, 25] {
        let cut = whole.chunks(step).map(<[u8]>::to_vec).collect();
        assert_eq!(at_once, answers(cut), "{what}: at once, and {step} bytes at a time");
    }
    at_once
}

/// The messages of libpq for a prepared statement.
fn run(name: &str, arguments: &[&str]) -> [Vec<u8>; 4] {
    [bind("", name, arguments), describe(b'P', ""), execute("", 0), sync()]
}

const SET_UP: [&str; 2] =
    ["create table t (a int primary key, b int)", "insert into t values (1, 10), (2, 20)"];

const STATEMENTS: [(&str, &str); 9] = [
    ("look", "select b from t where a = $1"),
    ("add", "update t set b = b + 1 where a = $1"),
    ("divide", "select 10 / b from t where b > $1::int"),
    ("put", "insert into t values ($1, 5)"),
    ("", ""),
    ("in", "copy t from stdin"),
    ("out", "copy t to stdout"),
    ("begin", "begin"),
    ("commit", "commit"),
];

fn prepared() -> Vec<Vec<u8>> {
    let mut messages: Vec<_> = SET_UP.map(query).into();
    for (name, sql) in STATEMENTS {
        messages.extend([parse(name, sql), sync()]);
    }
    messages
}

#[test]
fn a_prepared_statement_gives_the_same_however_it_comes() {
    for (name, arguments, tags_wanted) in [
        ("look", &["1"][..], "2TDCZ"),
        ("look", &["9"], "2TCZ"),
        ("add", &["1"], "2nCZ"),
        ("put", &["3"], "2nCZ"),
        ("put", &["1"], "2nEZ"),
        ("put", &["x"], "EZ"),
        ("look", &[], "EZ"),
        ("nobody", &[], "EZ"),
        ("", &[], "2nIZ"),
        ("out", &[], "2nHddcCZ"),
        ("begin", &[], "2nCZ"),
    ] {
        let mut messages = prepared();
        let before = same_answers(&messages, "set up").len();
        messages.extend(run(name, arguments));
        let found = same_answers(&messages, name);
        assert_eq!(tags(&found[before..]), tags_wanted, "{name} {arguments:?}");
    }
}

/// The Sync that came with the statement ends nothing: the COPY's data comes behind it.
#[test]
fn a_copy_begins_the_same_however_it_comes() {
    let mut messages = prepared();
    let before = same_answers(&messages, "set up").len();
    messages.extend(run("in", &[]));
    messages.extend([message(b'd', b"7\t8\n"), message(b'c', b""), sync()]);
    messages.extend(run("look", &["7"]));
    assert_eq!(tags(&same_answers(&messages, "copy")[before..]), "2nGCZ2TDCZ");
}

#[test]
fn any_messages_are_answered_the_same_however_they_come() {
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let mut seed = base;
    while seed == base || Instant::now() < until {
        println!("seed {seed}: RIALTO_SEED={seed} runs it again");
        let random = &mut Random::new(seed);
        let mut messages = prepared();
        for _ in 0..random.below(30) {
            let name = STATEMENTS[random.below(STATEMENTS.len() as u64) as usize].0;
            let argument = ["1", "2", "30", "x", "-1"][random.below(5) as usize];
            let arguments = &[argument][..usize::from(matches!(name, "look" | "add" | "divide" | "put"))];
            match random.below(14) {
                0..6 => messages.extend(run(name, arguments)),
                6 => messages.push(bind("p", name, arguments)),
                7 => messages.push(bind("", name, arguments)),
                8 => messages.push(describe(b'P', ["", "p"][random.below(2) as usize])),
                9 => messages.push(execute(["", "p"][random.below(2) as usize], random.below(2) as u32)),
                10 => messages
                    .push(query(["select 1", "begin", "rollback", "nonsense"][random.below(4) as usize])),
                11 => messages.extend([message(b'd', b"7\t8\n"), message(b'c', b"")]),
                12 => messages.push(message(b'C', b"P\0")),
                _ => messages.push(sync()),
            }
        }
        messages.push(sync());
        same_answers(&messages, &format!("seed {seed}"));
        seed = seed.wrapping_add(1);
    }
    println!("tally: pieces, {} sessions, RIALTO_SEED={base}", seed.wrapping_sub(base));
}
