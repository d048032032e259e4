//! Statements of any text.

use std::cell::RefCell;

use rialto::fuzz::Script;

use super::client::{Client, Plans};
use super::fixture::{Fixture, contents};
use super::words;
use crate::SqlState;
use crate::parse::split;

thread_local! {
    static TWINS: RefCell<[Fixture; 2]> = RefCell::default();
}

/// The text with each digit of its literals, and of its names, replaced by another.
fn with_other_digits(text: &str) -> String {
    let other = |letter: char| match letter.to_digit(10) {
        Some(digit) => char::from(b'0' + (digit as u8 + 1) % 10),
        None => letter,
    };
    text.chars().map(other).collect()
}

/// A string of statements, run one by one by two clients, each on a database of its own. One client shares plans
/// between texts that differ in their literals, and the other does not. Both get the same answers. A statement that is
/// refused leaves no change, and the session takes the next one. If the first byte is odd, each statement runs once
/// more with other literals.
pub fn statements(data: &[u8]) {
    let mut script = Script::of(data);
    let again = !script.byte().is_multiple_of(2);
    let text = words::text(script.bytes(usize::MAX));
    let mut statements = Vec::new();
    for piece in split(&text) {
        statements.push(piece.text.to_owned());
        statements.extend(again.then(|| with_other_digits(piece.text)).filter(|other| other != piece.text));
    }
    statements.retain(|text| words::is_harmless(text));
    let comparable = !words::tells_the_time(&text);
    TWINS.with_borrow_mut(|twins| {
        let [one, other] = twins;
        let mut sharing = Client::new(one.database(), Plans::Shared);
        let mut alone = Client::new(other.database(), Plans::Own);
        for text in &statements {
            let (told, expected) = (sharing.run(text), alone.run(text));
            if matches!(&told.outcome, Err(error) if error.sqlstate == SqlState::UndefinedParameter) {
                // A simple query refuses a parameter where it finds it; a prepared statement may have other errors
                // before.
                assert!(expected.outcome.is_err(), "{text}: {told:?}, {expected:?}");
            } else if comparable {
                assert_eq!(told, expected, "{text}");
            }
        }
        sharing.end();
        alone.end();
        assert!(!comparable || contents(one.database()) == contents(other.database()), "{text}");
        twins.iter_mut().for_each(Fixture::restore);
    });
}
