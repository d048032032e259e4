//! The Willing-to-Wait Design (KODA): each transaction says how long it may take in all. Its stall is that, minus the
//! time it has used, minus the time of a log write. No other thread wakes it earlier, so its wait is also the least
//! time that a transaction takes: with N servers, at most N x 1000 / WTW transactions commit in a second.
//!
//! A committer that is not the first in the queue, and will be written with the first before its own stall ends, sleeps
//! for the time of that write, too: otherwise it would wake up only to sleep again.

use std::time::Duration;

use super::{Choice, GroupCommit, View};

/// Every committer stalls for the rest of its wait, even the first in the queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct WillingToWait {
    /// The wait of transactions that set none.
    pub wait: Duration,
    /// The administrator's minimum, for all transactions.
    pub wait_min: Duration,
}

impl WillingToWait {
    /// When the stall is over.
    pub(super) fn end(&self, view: &View) -> Duration {
        let wait = view.willing_to_wait.unwrap_or(self.wait).max(self.wait_min) + view.raised;
        (view.started + wait).saturating_sub(view.write_time)
    }

    /// Whether the first committer in the queue begins to write before this stall is over.
    pub(super) fn relies(&self, view: &View) -> bool {
        view.committer_begins.is_some_and(|begins| begins <= self.end(view).max(view.now))
    }
}

impl GroupCommit for WillingToWait {
    fn choose(&self, view: &View) -> Choice {
        let relies = self.relies(view);
        let end = if relies { self.end(view) + view.write_time } else { self.end(view) };
        if view.now < end {
            Choice::Stall(end - view.now)
        } else if view.covered || relies {
            Choice::Sleep(None)
        } else {
            Choice::Write
        }
    }

    fn reads_clock(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stall_is_the_wait_less_what_was_used_and_what_the_write_takes() {
        let ms = Duration::from_millis;
        let design = WillingToWait { wait: ms(90), wait_min: ms(40) };
        let view = View { started: ms(1000), now: ms(1010), write_time: ms(33), ..View::default() };
        assert_eq!(design.choose(&view), Choice::Stall(ms(47)));
        assert_eq!(design.choose(&View { elected: true, ..view }), Choice::Stall(ms(47)), "even the first");
        let (before, after) = (Some(ms(1050)), Some(ms(1060)));
        assert_eq!(design.choose(&View { committer_begins: before, ..view }), Choice::Stall(ms(80)));
        assert_eq!(design.choose(&View { committer_begins: after, ..view }), Choice::Stall(ms(47)));
        assert_eq!(design.choose(&View { willing_to_wait: Some(ms(2000)), ..view }), Choice::Stall(ms(1957)));
        let impatient = View { willing_to_wait: Some(ms(1)), now: ms(1002), ..view };
        assert_eq!(design.choose(&impatient), Choice::Stall(ms(5)), "the administrator's minimum");
        assert_eq!(design.choose(&View { now: ms(1057), ..view }), Choice::Write);
        assert_eq!(design.choose(&View { now: ms(1057), covered: true, ..view }), Choice::Sleep(None));
        assert_eq!(design.choose(&View { now: ms(1057), raised: ms(9), ..view }), Choice::Stall(ms(9)));
    }
}
