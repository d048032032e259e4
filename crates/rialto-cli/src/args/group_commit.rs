//! The command line's choice of a group commit design and of its settings.

use std::time::Duration;

use clap::Args;
use rialto::{GroupCommitDesign, GroupCommitOptions};

/// Which thread writes the log, and when.
#[derive(Debug, Clone, Copy, Args)]
pub struct GroupCommitArgs {
    /// The design of group commit, which decides which thread writes the log, and when: commit-lock,
    /// commit-lock-shared, commit-stall, willing-to-wait, hiber, hiber-stall, hiber-willing-to-wait, log-server or
    /// adaptive
    #[arg(long, value_name = "NAME", default_value_t = GroupCommitDesign::default())]
    pub group_commit: GroupCommitDesign,
    /// How long a committer stalls if its transaction sets no stall (commit-stall, hiber-stall) [default: as long
    /// as a log write takes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub stall_us: Option<u64>,
    /// How long a transaction that sets no time itself may take in all, its log write included; larger times give
    /// larger groups (willing-to-wait, hiber-willing-to-wait) [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub willing_to_wait_us: Option<u64>,
    /// The shortest wait of every transaction, also of one that sets a shorter time (willing-to-wait,
    /// hiber-willing-to-wait) [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub willing_to_wait_min_us: Option<u64>,
    /// The shortest time from the end of a group to the beginning of the next committer's group (hiber) [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub wake_delay_us: Option<u64>,
    /// How long the log server delays packets that no thread waits for, such as those of tickets, so that one write
    /// takes more of them (log-server) [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub linger_us: Option<u64>,
    /// The most packets that a committer puts into one group [default: no bound]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32))]
    pub group_max: Option<u32>,
}

impl GroupCommitArgs {
    /// As a database is opened with it.
    pub fn options(&self) -> GroupCommitOptions {
        let us = |value: Option<u64>| value.map(Duration::from_micros);
        GroupCommitOptions {
            design: self.group_commit,
            stall: us(self.stall_us),
            willing_to_wait: us(self.willing_to_wait_us),
            willing_to_wait_min: us(self.willing_to_wait_min_us),
            wake_delay: us(self.wake_delay_us),
            linger: us(self.linger_us),
            group_max: self.group_max,
        }
    }
}
