//! Statements of any text.

use std::cell::RefCell;

use super::client::{Client, Plans};
use super::fixture::{Fixture, contents};
use super::words;
use crate::SqlState;
use crate::parse::split;

thread_local! {
    static TWINS: RefCell<[Fixture; 2]> = RefCell::default();
}

/// Whether what a statement tells, or writes, depends on when it runs.
fn tells_the_time(text: &str) -> bool {
    let text = text.to_lowercase();
    ["now", "current_", "localtime", "transaction_timestamp"].iter().any(|word| text.contains(word))
}

/// A string of statements, run one by one by two clients, each on a database of its own: one that shares plans between texts that
/// differ in their literals, and one that does not. Both are told the same. A statement that is refused leaves no change, and the
/// session takes the next one.
pub fn statements(data: &[u8]) {
    let text = words::text(data);
    let comparable = !tells_the_time(&text);
    TWINS.with_borrow_mut(|twins| {
        let [one, other] = twins;
        let mut sharing = Client::new(one.database(), Plans::Shared);
        let mut alone = Client::new(other.database(), Plans::Own);
        for piece in split(&text).filter(|piece| words::is_harmless(piece.text)) {
            let (told, expected) = (sharing.run(piece.text), alone.run(piece.text));
            if matches!(&told.outcome, Err(error) if error.sqlstate == SqlState::UndefinedParameter) {
                // A simple query refuses a parameter where it meets it; what is prepared may have other errors before.
                assert!(expected.outcome.is_err(), "{}: {told:?}, {expected:?}", piece.text);
            } else if comparable {
                assert_eq!(told, expected, "{}", piece.text);
            }
        }
        sharing.end();
        alone.end();
        assert!(!comparable || contents(one.database()) == contents(other.database()), "{text}");
        twins.iter_mut().for_each(Fixture::restore);
    });
}
