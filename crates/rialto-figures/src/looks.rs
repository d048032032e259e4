//! [`Looks`]: what is read at both ends of a window.

use std::time::Duration;

use rialto_measure::driver::Observer;

/// Reads something when a window begins, and when it ends.
pub struct Looks<T, F> {
    look: F,
    seen: Vec<T>,
}

impl<T, F: FnMut() -> T> Looks<T, F> {
    /// With this to read.
    pub fn at(look: F) -> Looks<T, F> {
        Looks { look, seen: Vec::new() }
    }

    /// What was read when the window began, and when it ended.
    ///
    /// # Panics
    /// If the window has no two ends, which one that did not fail has.
    pub fn ends(self) -> (T, T) {
        let ends = <[T; 2]>::try_from(self.seen).ok().map(|[begin, end]| (begin, end));
        ends.expect("a window that did not fail has two ends")
    }
}

impl<T, F: FnMut() -> T> Observer for Looks<T, F> {
    fn window_begins(&mut self, _: u64, _: Duration) -> Result<(), String> {
        self.seen.push((self.look)());
        Ok(())
    }

    fn window_ends(&mut self) {
        self.seen.push((self.look)());
    }

    fn slice(&mut self, _: Duration, _: u64) {}

    fn tick(&mut self, _: Option<Duration>, _: f64) {}
}
