//! The settings of the group commit designs.

use std::fmt;
use std::time::Duration;

use super::{
    Adaptive, CommitLockDesign, CommitStall, GroupCommit, GroupCommitDesign, Hiber, HiberStall,
    HiberWillingToWait, LogServer, WillingToWait,
};

/// The longest stall and the longest willing-to-wait that can be set.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// Which thread writes the log, and when: a design and its settings. A setting of `None` is the design's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCommitOptions {
    /// The design.
    pub design: GroupCommitDesign,
    /// How long a committer stalls whose transaction sets no stall
    /// ([`TxOptions::commit_stall`](crate::TxOptions::commit_stall)); by default as long as a log write takes. For
    /// commit-stall and hiber-stall.
    pub stall: Option<Duration>,
    /// How long a transaction may take in all if it does not set that itself
    /// ([`TxOptions::willing_to_wait`](crate::TxOptions::willing_to_wait)); no time by default. For willing-to-wait and
    /// hiber-willing-to-wait.
    pub willing_to_wait: Option<Duration>,
    /// The shortest wait of every transaction, whatever it sets itself: KODA's administrative minimum; none by default.
    /// For willing-to-wait and hiber-willing-to-wait.
    pub willing_to_wait_min: Option<Duration>,
    /// The shortest time from the end of a group to the beginning of the next committer's; none by default. For hiber.
    pub wake_delay: Option<Duration>,
    /// How long packets without a waiter ([`Ticket`](crate::Ticket)s) lie before the log server begins to write them,
    /// counted from the end of the group before if one is being written: 200 us by default, no time with zero, and no
    /// longer than [`LogOptions::memory_flush_interval`](crate::log::LogOptions). As soon as a thread waits, they are
    /// written at once. For log-server.
    pub linger: Option<Duration>,
    /// The most packets that a committer puts into one group (KODA's was 50); no bound by default. Packets that level 1
    /// commits or a transaction that waited for log space have gathered already are part of the next group, whatever
    /// the bound. A group's wake-up call also wakes the committers that the bound has left out.
    pub group_max: Option<u32>,
}

impl From<GroupCommitDesign> for GroupCommitOptions {
    fn from(design: GroupCommitDesign) -> GroupCommitOptions {
        GroupCommitOptions { design, ..GroupCommitOptions::default() }
    }
}

impl fmt::Display for GroupCommitOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.design.fmt(f)?;
        for (name, value) in [
            ("stall", self.stall),
            ("willing to wait", self.willing_to_wait),
            ("at least", self.willing_to_wait_min),
            ("wake delay", self.wake_delay),
            ("linger", self.linger),
        ] {
            if let Some(value) = value {
                write!(f, ", {name} {value:?}")?;
            }
        }
        self.group_max.map_or(Ok(()), |packets| write!(f, ", groups of at most {packets}"))
    }
}

impl GroupCommitOptions {
    /// What is wrong with the settings, if anything: names the setting and its limits.
    pub fn problem(&self) -> Option<String> {
        use GroupCommitDesign::{
            CommitStall, Hiber, HiberStall, HiberWillingToWait, LogServer, WillingToWait,
        };
        let waiting = &[WillingToWait, HiberWillingToWait][..];
        for (name, value, designs) in [
            ("stall", self.stall, &[CommitStall, HiberStall][..]),
            ("willing_to_wait", self.willing_to_wait, waiting),
            ("willing_to_wait_min", self.willing_to_wait_min, waiting),
            ("wake_delay", self.wake_delay, &[Hiber]),
            ("linger", self.linger, &[LogServer]),
        ] {
            let Some(value) = value else { continue };
            if !designs.contains(&self.design) {
                let names: Vec<&str> = designs.iter().map(|design| design.name()).collect();
                return Some(format!(
                    "group commit {} has no {name} (it is {value:?}); those that have: {}",
                    self.design,
                    names.join(", ")
                ));
            }
            if value > WAIT_MAX {
                return Some(format!("group commit's {name} is {value:?}, expected at most {WAIT_MAX:?}"));
            }
        }
        if let (Some(wait), Some(least)) = (self.willing_to_wait, self.willing_to_wait_min)
            && wait < least
        {
            return Some(format!(
                "group commit's willing_to_wait is {wait:?}, less than willing_to_wait_min, {least:?}: it would never count"
            ));
        }
        if self.group_max == Some(0) {
            return Some(
                "group commit's group_max is 0, expected at least 1, or none for no bound".to_owned(),
            );
        }
        None
    }

    /// The design with these settings.
    pub fn policy(&self) -> Box<dyn GroupCommit> {
        let waits = WillingToWait {
            wait: self.willing_to_wait.unwrap_or_default(),
            wait_min: self.willing_to_wait_min.unwrap_or_default(),
        };
        match self.design {
            GroupCommitDesign::CommitLock => Box::new(CommitLockDesign { shared: false }),
            GroupCommitDesign::CommitLockShared => Box::new(CommitLockDesign { shared: true }),
            GroupCommitDesign::CommitStall => Box::new(CommitStall { stall: self.stall }),
            GroupCommitDesign::WillingToWait => Box::new(waits),
            GroupCommitDesign::Hiber => Box::new(Hiber { wake_delay: self.wake_delay.unwrap_or_default() }),
            GroupCommitDesign::HiberStall => Box::new(HiberStall { stall: self.stall }),
            GroupCommitDesign::HiberWillingToWait => Box::new(HiberWillingToWait { waits }),
            GroupCommitDesign::LogServer => {
                Box::new(self.linger.map_or_else(LogServer::default, |linger| LogServer { linger }))
            }
            GroupCommitDesign::Adaptive => Box::new(Adaptive::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_do_not_apply_or_make_no_sense_are_refused_by_name() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let wtw = GroupCommitOptions::from(GroupCommitDesign::WillingToWait);
        for (options, words) in [
            (
                GroupCommitOptions { stall: ms(5), ..GroupCommitOptions::default() },
                &["log-server", "stall"][..],
            ),
            (
                GroupCommitOptions { wake_delay: ms(5), ..wtw },
                &["willing-to-wait has no wake_delay", "hiber"],
            ),
            (GroupCommitOptions { willing_to_wait: ms(600_000), ..wtw }, &["willing_to_wait is 600s", "60s"]),
            (
                GroupCommitOptions { willing_to_wait: ms(5), willing_to_wait_min: ms(6), ..wtw },
                &["5ms", "6ms", "never count"],
            ),
            (GroupCommitOptions { group_max: Some(0), ..wtw }, &["group_max is 0"]),
        ] {
            let problem = options.problem().expect("it is refused");
            assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
        }
        for design in GroupCommitDesign::ALL {
            assert_eq!(GroupCommitOptions::from(design).problem(), None);
        }
    }
}
