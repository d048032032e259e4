//! Telling a user how a long recovery goes on.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The least time from one message to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Passes messages on, not too many of them.
pub(crate) struct Progress<'a> {
    tell: Option<&'a dyn Fn(&str)>,
    last: Cell<Instant>,
}

impl<'a> Progress<'a> {
    /// Messages go to `tell`, if there is one.
    pub fn new(tell: Option<&'a dyn Fn(&str)>) -> Progress<'a> {
        Progress { tell, last: Cell::new(Instant::now()) }
    }

    /// Says it if the last message was long enough ago: so a short recovery says nothing.
    pub fn now_and_then(&self, message: impl FnOnce() -> String) {
        if let Some(tell) = self.tell
            && self.last.get().elapsed() >= EVERY
        {
            self.last.set(Instant::now());
            tell(&message());
        }
    }
}
