//! The Commit-Stall Design (KODA): the first committer in the queue writes. The others set a time at which they wake
//! themselves, and then look again. A thread may wake and stall several times.

use std::time::Duration;

use super::{Choice, GroupCommit, View};

/// The first committer in the queue writes, the others stall.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitStall {
    /// The stall of transactions that set none; `None` stands for the time of a log write.
    pub stall: Option<Duration>,
}

/// The shortest stall: a sleep of no time would be a loop.
const STALL_MIN: Duration = Duration::from_micros(10);

impl GroupCommit for CommitStall {
    fn choose(&self, view: &View) -> Choice {
        if view.elected {
            return Choice::Write;
        }
        let stall = view.stall.or(self.stall).unwrap_or(view.write_time);
        Choice::Stall((stall + view.raised).max(STALL_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_writes_and_the_others_stall_as_told() {
        let ms = Duration::from_millis;
        let design = CommitStall { stall: Some(ms(20)) };
        let view = View { write_time: ms(33), ..View::default() };
        assert_eq!(design.choose(&View { elected: true, ..view }), Choice::Write);
        assert_eq!(design.choose(&view), Choice::Stall(ms(20)));
        assert_eq!(design.choose(&View { stall: Some(ms(5)), ..view }), Choice::Stall(ms(5)));
        assert_eq!(design.choose(&View { raised: ms(7), ..view }), Choice::Stall(ms(27)));
        assert_eq!(CommitStall::default().choose(&view), Choice::Stall(ms(33)));
    }
}
