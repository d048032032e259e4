//! A session of any messages.

use std::cell::RefCell;

use rialto::Database;
use rialto::fuzz::Script;
use rialto_sql::fuzz::{Fixture, contents, is_harmless, tells_the_time};

use super::pieces::Pieces;
use super::written::{message, messages};
use crate::Shared;
use crate::connection::serve;

thread_local! {
    static TWINS: RefCell<[Fixture; 2]> = RefCell::default();
}

/// The packet that begins a session.
const START: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0ann\0\0";

/// An answer: its tag and its body.
type Answer<'a> = (u8, &'a [u8]);

/// Messages of any kind in any order. The answers are whole messages, and the same ones however the client's bytes are
/// cut on their way. The session handles the messages that come after.
pub fn protocol_messages(data: &[u8]) {
    let mut script = Script::of(data);
    let piece = 1 + script.below(64);
    let mut sent = messages(&mut script);
    sent.retain(|message| is_harmless(&String::from_utf8_lossy(message)));
    let comparable = !sent.iter().any(|message| tells_the_time(&String::from_utf8_lossy(message)));
    // These leave a COPY, the skipping after an error, and a block.
    sent.extend([
        message(b'f', b"\0"),
        message(b'S', b""),
        message(b'Q', b"rollback\0"),
        message(b'Q', b"select 7\0"),
    ]);
    let sent = [START, &sent.concat()].concat();
    TWINS.with_borrow_mut(|twins| {
        let [whole, cut] = &*twins;
        let at_once = answers(whole.database(), sent.clone(), usize::MAX);
        let in_pieces = answers(cut.database(), sent, piece);
        let [at_once, in_pieces] = [&at_once, &in_pieces].map(|bytes| parsed(bytes));
        for answers in [&at_once, &in_pieces] {
            let last: Vec<u8> = answers.iter().rev().take(4).rev().map(|(tag, _)| *tag).collect();
            assert_eq!(last, b"TDCZ", "the session does not go on: {answers:?}");
            let [.., (_, row), _, (_, status)] = answers[..] else { unreachable!("there are four") };
            assert_eq!((row, status), (&b"\0\x01\0\0\0\x017"[..], &b"I"[..]), "{answers:?}");
        }
        if comparable {
            assert_eq!(at_once, in_pieces, "in pieces of {piece} bytes");
            assert_eq!(contents(whole.database()), contents(cut.database()));
        }
        twins.iter_mut().for_each(Fixture::restore);
    });
}

/// Bytes of any kind behind the start of a session, or in its place. The answers are whole messages, and the connection
/// ends.
pub fn protocol_bytes(data: &[u8]) {
    let mut script = Script::of(data);
    let piece = 1 + script.below(64);
    let start = if script.byte().is_multiple_of(4) { &[][..] } else { START };
    let sent = [start, script.bytes(usize::MAX)].concat();
    if !is_harmless(&String::from_utf8_lossy(&sent)) {
        return;
    }
    TWINS.with_borrow_mut(|[fixture, _]| {
        let mut bytes = &answers(fixture.database(), sent, piece)[..];
        // Each request for encryption is answered by one byte.
        while let Some(rest) = bytes.strip_prefix(b"N").filter(|_| start.is_empty()) {
            bytes = rest;
        }
        parsed(bytes);
        fixture.restore();
    });
}

/// The answers of a session on the database.
fn answers(database: &Database, sent: Vec<u8>, piece: usize) -> Vec<u8> {
    let (stream, answers) = Pieces::new(sent.chunks(piece).map(<[u8]>::to_vec).collect());
    serve(stream, Shared::new(database.clone(), 1));
    std::mem::take(&mut *answers.lock().expect("nothing panics with it"))
}

/// The messages of a server, without the session's key.
fn parsed(mut bytes: &[u8]) -> Vec<Answer<'_>> {
    let mut answers = Vec::new();
    while let Some((&[tag, length @ ..], rest)) = bytes.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(length) as usize;
        assert!(b"RSKZTDCEN123nstIGHdcv".contains(&tag), "an answer begins with {tag:#04x}");
        assert!(
            (4..=4 + rest.len()).contains(&length),
            "an answer of {length} bytes, of which {} are there",
            rest.len()
        );
        let (body, rest) = rest.split_at(length - 4);
        bytes = rest;
        if tag != b'K' {
            answers.push((tag, body));
        }
    }
    assert!(bytes.is_empty(), "the answers end within a message");
    answers
}
