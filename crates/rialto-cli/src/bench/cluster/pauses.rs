//! [`Pauses`]: the longest time without an answered commit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The times between answered commits of all clients, from the run's begin to its end.
#[derive(Debug, Default)]
pub struct Pauses {
    last_us: AtomicU64,
    longest_us: AtomicU64,
}

impl Pauses {
    /// A commit was answered, or the run has ended, at this time since its begin.
    pub fn ends(&self, at: Duration) {
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let last = self.last_us.fetch_max(at, Relaxed);
        self.longest_us.fetch_max(at.saturating_sub(last), Relaxed);
    }

    /// The longest one that has ended.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_may_be_at_the_begin_between_commits_or_at_the_end() {
        for (commits, longest) in [(&[8, 9, 10][..], 8), (&[1, 7, 6, 9], 6), (&[1, 3], 7), (&[], 10)] {
            let pauses = Pauses::default();
            for at in commits.iter().chain(&[10]) {
                pauses.ends(Duration::from_millis(*at));
            }
            assert_eq!(pauses.longest(), Duration::from_millis(longest), "{commits:?}");
        }
    }
}
