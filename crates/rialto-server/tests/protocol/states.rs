//! Every message in every state of a connection, valid or not. Each pair has one answer, the connection goes on as if
//! the pair had not been, and the pair commits nothing.

use std::net::Shutdown;

use crate::common::*;

/// The states of a connection, each with the messages that lead there. Each but the first has an uncommitted row 7.
fn states() -> [(&'static str, Vec<u8>); 8] {
    let copy = "copy t from stdin";
    let pipeline = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let portal = [parse("p", "select a from t"), bind("p", "p", &[]), execute("p", 1), sync()].concat();
    let (data, flush) = (message(b'd', b"7\n"), message(b'H', b""));
    [
        ("ready", Vec::new()),
        ("in a pipeline", [pipeline("insert into t values (7)"), flush].concat()),
        ("skipping to a Sync", [pipeline("insert into t values (7)"), bind("", "nope", &[])].concat()),
        ("in a block", query("begin; insert into t values (7)")),
        ("in a failed block", query("begin; insert into t values (7); select 1 / 0")),
        ("portal suspended", [query("begin; insert into t values (7)"), portal].concat()),
        ("in a COPY", [query(copy), data.clone()].concat()),
        ("in a COPY of a pipeline", [pipeline(copy), data].concat()),
    ]
}

/// The messages, and for each state, in the order of [`states`], the answers to the message, and to a Sync, a ROLLBACK
/// and a Sync behind it; with a `+` if the row 7 is there in the end. `.` is nothing, `-` not even what was due before.
fn table() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let not_utf8 = b"\xff\0";
    vec![
        ("Query", query("select 1"), "TDCZZNCZZ TDCZZNCZZ+ ZNCZZ TDCZZCZZ EZZCZZ TDCZZCZZ EZZNCZZ EZNCZZ"),
        ("bad Query", message(b'Q', not_utf8), "EZZNCZZ EZZNCZZ ZNCZZ EZZCZZ EZZCZZ EZZCZZ EZZNCZZ EZNCZZ"),
        ("Parse", parse("", "select 1"), "1ZNCZZ 1ZNCZZ+ ZNCZZ 1ZCZZ EZCZZ 1ZCZZ EZZNCZZ EZNCZZ"),
        ("bad Parse", message(b'P', b"\0"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        (
            "long Parse",
            message(b'P', &vec![b' '; 18 << 20]),
            "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ",
        ),
        ("Bind", bind("new", "", &[]), "EZNCZZ 2ZNCZZ+ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        ("bad Bind", message(b'B', b"\0"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        ("Describe", describe(b'P', "p"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ TZCZZ EZZNCZZ EZNCZZ"),
        ("bad Describe", message(b'D', b"X\0"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        ("Execute", execute("p", 1), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ DsZCZZ EZZNCZZ EZNCZZ"),
        ("bad Execute", message(b'E', b"\0"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        ("Close", message(b'C', b"Pp\0"), "3ZNCZZ 3ZNCZZ+ ZNCZZ 3ZCZZ 3ZCZZ 3ZCZZ EZZNCZZ EZNCZZ"),
        ("bad Close", message(b'C', b"Pp"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        ("Sync", sync(), "ZZNCZZ ZZNCZZ+ ZZNCZZ ZZCZZ ZZCZZ ZZCZZ EZZ EZ"),
        ("bad Sync", message(b'S', b"x"), "EZZNCZZ EZZNCZZ EZZNCZZ EZZCZZ EZZCZZ EZZCZZ EZZNCZZ EZNCZZ"),
        ("Flush", message(b'H', b""), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ EZZ EZ"),
        ("bad Flush", message(b'H', b"x"), "EZNCZZ EZNCZZ ZNCZZ EZCZZ EZCZZ EZCZZ EZZNCZZ EZNCZZ"),
        ("CopyData", message(b'd', b"8\n"), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ EZZ EZ"),
        ("bad data", message(b'd', b"x\n"), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ EZZNCZZ EZNCZZ"),
        ("CopyDone", message(b'c', b""), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ CZZNCZZ+ CZNCZZ+"),
        ("bad CopyDone", message(b'c', b"x"), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ EZZNCZZ EZNCZZ"),
        ("CopyFail", message(b'f', b"no\0"), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ EZZNCZZ EZNCZZ"),
        ("bad CopyFail", message(b'f', not_utf8), "ZNCZZ ZNCZZ+ ZNCZZ ZCZZ ZCZZ ZCZZ EZZNCZZ EZNCZZ"),
        ("FunctionCall", message(b'F', b""), "EZZNCZZ EZZNCZZ ZNCZZ EZZCZZ EZZCZZ EZZCZZ EZZNCZZ EZNCZZ"),
        ("password", message(b'p', b"x\0"), "EZZNCZZ EZZNCZZ ZNCZZ EZZCZZ EZZCZZ EZZCZZ EZZNCZZ EZNCZZ"),
        ("unknown", message(b'!', b""), "E E E E E E E E"),
        ("too long", b"S\x7f\xff\xff\xff".to_vec(), "E E E E E E E E"),
        ("Terminate", message(b'X', b""), ". . - . . . . ."),
    ]
}

/// A name that is in use is an error only of a message that is supported at all.
#[test]
fn a_failed_block_refuses_a_statement_before_its_name() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&[parse("s", "select 1"), parse("end", "commit"), sync()].concat());
    client.answer();
    for (taken, good, failed) in [
        (parse("s", "select 1"), "42P05", "25P02"),
        (parse("s", "selec 1"), "42601", "42601"),
        (parse("s", "commit"), "42P05", "42P05"),
        (bind("p", "s", &[]), "42P03", "25P02"),
        (bind("p", "end", &[]), "42P03", "42P03"),
        (execute("absent", 0), "34000", "34000"),
    ] {
        for (statement, expected) in [("", good), ("; select 1 / 0", failed)] {
            client.run("begin");
            client.send(&[bind("p", "s", &[]), sync()].concat());
            client.answer();
            client.query(statement);
            client.send(&[taken.clone(), sync()].concat());
            assert_eq!(error_code(&client.answer()).as_deref(), Some(expected), "{statement}");
            client.run("rollback");
        }
    }
}

#[test]
fn every_message_has_its_answer_in_every_state() {
    let server = TestServer::start();
    let mut other = server.connect();
    other.run("create table t (a int primary key)");
    other.run("insert into t values (1), (2)");
    let answers = |messages: &[&[u8]]| {
        let mut client = server.connect();
        client.send(&messages.concat());
        client.stream.shutdown(Shutdown::Write).unwrap();
        tags(&std::iter::from_fn(|| client.read()).collect::<Vec<_>>())
    };
    let states = states().map(|(name, way)| (name, answers(&[&way]).len(), way));
    let end = [sync(), query("rollback"), sync()].concat();
    let mut wrong = String::new();
    for (name, bytes, expected) in table() {
        let found = states.iter().map(|(_, before, way)| {
            // Unread bytes could take the last answer along when the connection ends.
            let ends = matches!(name, "unknown" | "too long" | "Terminate");
            let answer = answers(&[way, &bytes, if ends { &[] } else { &end }]);
            let added = rows(&other.run("delete from t where a > 2 returning a")).len();
            answer.get(*before..).unwrap_or("-").to_string() + &"+".repeat(added)
        });
        let found = found.map(|cell| if cell.is_empty() { ".".to_string() } else { cell });
        let found = found.collect::<Vec<_>>().join(" ");
        if found != expected {
            wrong += &format!("{name}:\n  {found}\n  {expected} was expected\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}states: {:?}", states.map(|(name, ..)| name));
}
