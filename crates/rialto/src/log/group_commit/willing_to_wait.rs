//! The Willing-to-Wait Design (KODA): each transaction says how long it may take in all. Its stall is that, minus the time
//! it has used, minus the time of a log write. Nobody wakes it before, so its wait is also the least time that a
//! transaction takes: with N servers, N x 1000 / WTW is the most that commit in a second.
//!
//! Who is not the first on the queue, and will be written with the first before its own stall ends, sleeps for the time of
//! that write, too: it would only wake up to sleep again.

use std::time::Duration;

use super::{Choice, GroupCommit, View};

/// Everybody stalls for what its wait leaves, even the first.
#[derive(Debug, Clone, Copy, Default)]
pub struct WillingToWait {
    /// The wait of transactions that do not say.
    pub wait: Duration,
    /// The administrator's minimum, for all.
    pub wait_min: Duration,
}

impl WillingToWait {
    /// When the stall is over.
    pub(super) fn end(&self, view: &View) -> Duration {
        let wait = view.willing_to_wait.unwrap_or(self.wait).max(self.wait_min) + view.raised;
        (view.started + wait).saturating_sub(view.write_time)
    }

    /// Whether the first on the queue begins to write before this stall is over.
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
