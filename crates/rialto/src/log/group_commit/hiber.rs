//! The Hiber Design (KODA): a committer that is not elected sleeps until it is woken. The elected committer wakes its
//! whole group, and the next committer, at once or after a delay. Also what the paper leaves as future work: the design
//! combined with either of the timers.

use std::time::Duration;

use super::willing_to_wait::WillingToWait;
use super::{Choice, GroupCommit, View};

/// Sleep until this time; write when it is over.
fn until(end: Duration, view: &View) -> Choice {
    match end.checked_sub(view.now).filter(|left| !left.is_zero()) {
        Some(left) => Choice::Sleep(Some(left)),
        None => Choice::Write,
    }
}

/// The committer wakes its group and the next committer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hiber {
    /// The shortest time from the end of a group to the beginning of the next.
    pub wake_delay: Duration,
}

impl GroupCommit for Hiber {
    fn choose(&self, view: &View) -> Choice {
        let delay = self.wake_delay + view.raised;
        match (view.elected, view.writer_busy) {
            (false, _) => Choice::Sleep(None),
            // The delay begins when the group before has completed.
            (true, true) => Choice::Write,
            (true, false) if delay.is_zero() => Choice::Write,
            (true, false) => until(view.freed + delay, view),
        }
    }

    fn reads_clock(&self) -> bool {
        !self.wake_delay.is_zero()
    }
}

/// Hiber, and every elected committer stalls before it writes, even the first.
#[derive(Debug, Clone, Copy, Default)]
pub struct HiberStall {
    /// The stall of transactions that set none; `None` stands for the time of a log write.
    pub stall: Option<Duration>,
}

impl GroupCommit for HiberStall {
    fn choose(&self, view: &View) -> Choice {
        let stall = view.stall.or(self.stall).unwrap_or(view.write_time) + view.raised;
        match (view.elected, view.writer_busy) {
            (false, _) => Choice::Sleep(None),
            (true, true) => Choice::Write,
            // Other packets can come from the moment when the group before has completed.
            (true, false) => until(view.arrived.max(view.freed) + stall, view),
        }
    }

    fn reads_clock(&self) -> bool {
        true
    }
}

/// Hiber, and no stall is longer than its transaction is willing to wait: the committer whose wait is over first
/// writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct HiberWillingToWait {
    /// The waits.
    pub waits: WillingToWait,
}

impl GroupCommit for HiberWillingToWait {
    fn choose(&self, view: &View) -> Choice {
        // The first committer in the queue writes before this one's own stall is over, and wakes it.
        if view.covered || self.waits.relies(view) {
            return Choice::Sleep(None);
        }
        until(self.waits.end(view), view)
    }

    fn reads_clock(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn only_the_elected_one_writes_and_after_the_delay() {
        let view = View { now: ms(100), freed: ms(95), arrived: ms(99), ..View::default() };
        let elected = View { elected: true, ..view };
        assert_eq!(Hiber::default().choose(&view), Choice::Sleep(None));
        assert_eq!(Hiber::default().choose(&elected), Choice::Write);
        let delayed = Hiber { wake_delay: ms(8) };
        assert_eq!(delayed.choose(&elected), Choice::Sleep(Some(ms(3))));
        assert_eq!(delayed.choose(&View { freed: ms(92), ..elected }), Choice::Write);
        assert_eq!(delayed.choose(&View { writer_busy: true, ..elected }), Choice::Write);
    }

    #[test]
    fn the_committer_stalls_from_when_company_can_come() {
        let design = HiberStall { stall: Some(ms(10)) };
        let view = View { now: ms(100), freed: ms(95), arrived: ms(99), elected: true, ..View::default() };
        assert_eq!(design.choose(&view), Choice::Sleep(Some(ms(9))));
        assert_eq!(design.choose(&View { arrived: ms(60), ..view }), Choice::Sleep(Some(ms(5))));
        assert_eq!(design.choose(&View { arrived: ms(60), freed: ms(90), ..view }), Choice::Write);
        assert_eq!(design.choose(&View { elected: false, ..view }), Choice::Sleep(None));
        assert_eq!(design.choose(&View { stall: Some(ms(1)), ..view }), Choice::Write);
    }

    #[test]
    fn the_committer_whose_wait_is_over_first_writes_and_none_waits_longer() {
        let design = HiberWillingToWait { waits: WillingToWait { wait: ms(90), wait_min: ms(0) } };
        let view = View { started: ms(0), now: ms(20), write_time: ms(33), ..View::default() };
        assert_eq!(design.choose(&view), Choice::Sleep(Some(ms(37))));
        assert_eq!(design.choose(&View { now: ms(57), ..view }), Choice::Write);
        assert_eq!(design.choose(&View { now: ms(57), covered: true, ..view }), Choice::Sleep(None));
    }
}
