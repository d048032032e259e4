//! The Commit-Stall Design (KODA): the first committer in the queue writes, if it finds no group being written. The others
//! set a time at which they wake themselves, and then look again. A thread may wake and stall several times.
//!
//! No thread wakes another, so the log stays idle from the end of a group until a committer may write that looks: the
//! first in the queue, or one whose own stall is shorter than what is left of the first one's. That is what a longer
//! stall costs.

use std::time::Duration;

use super::{Choice, GroupCommit, View};

/// The first committer in the queue writes if the log is free, the others stall.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitStall {
    /// The stall of transactions that set none; `None` stands for the time of a log write.
    pub stall: Option<Duration>,
}

/// The shortest stall: a sleep of no time would be a loop.
const STALL_MIN: Duration = Duration::from_micros(10);

impl GroupCommit for CommitStall {
    fn choose(&self, view: &View) -> Choice {
        let stall = (view.stall.or(self.stall).unwrap_or(view.write_time) + view.raised).max(STALL_MIN);
        // One of a shorter stall goes before an elected committer that sleeps longer.
        let goes_first =
            view.elected || view.committer_begins.is_some_and(|begins| begins > view.now + stall);
        if goes_first && !view.writer_busy { Choice::Write } else { Choice::Stall(stall) }
    }

    fn reads_clock(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_writes_if_the_log_is_free_and_the_others_stall_as_told() {
        let ms = Duration::from_millis;
        let design = CommitStall { stall: Some(ms(20)) };
        let view = View { write_time: ms(33), now: ms(100), ..View::default() };
        let elected = View { elected: true, ..view };
        assert_eq!(design.choose(&elected), Choice::Write);
        assert_eq!(design.choose(&View { writer_busy: true, ..elected }), Choice::Stall(ms(20)));
        assert_eq!(design.choose(&view), Choice::Stall(ms(20)));
        assert_eq!(design.choose(&View { stall: Some(ms(5)), ..view }), Choice::Stall(ms(5)));
        assert_eq!(design.choose(&View { raised: ms(7), ..view }), Choice::Stall(ms(27)));
        assert_eq!(CommitStall::default().choose(&view), Choice::Stall(ms(33)));
    }

    #[test]
    fn a_shorter_stall_does_not_wait_for_a_longer_one_of_the_first() {
        let ms = Duration::from_millis;
        let design = CommitStall { stall: Some(ms(20)) };
        let hasty = View { stall: Some(ms(5)), now: ms(100), ..View::default() };
        assert_eq!(design.choose(&View { committer_begins: Some(ms(106)), ..hasty }), Choice::Write);
        assert_eq!(design.choose(&View { committer_begins: Some(ms(105)), ..hasty }), Choice::Stall(ms(5)));
        let busy = View { committer_begins: Some(ms(106)), writer_busy: true, ..hasty };
        assert_eq!(design.choose(&busy), Choice::Stall(ms(5)));
    }
}
