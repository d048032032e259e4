//! The command line's choice of a group commit design and of its settings.

use std::time::Duration;

use clap::Args;
use rialto::{GroupCommitDesign, GroupCommitOptions};

/// Which thread writes the log, and when.
#[derive(Debug, Clone, Copy, Args)]
pub struct GroupCommitArgs {
    /// Which thread writes the log, and when
    #[arg(long, value_name = "NAME", default_value_t = GroupCommitDesign::default())]
    pub group_commit: GroupCommitDesign,
    /// How long a committer stalls (commit-stall, hiber-stall) [default: as long as a log write takes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub stall_us: Option<u64>,
    /// How long a transaction is willing to take in all (willing-to-wait, hiber-willing-to-wait) [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub willing_to_wait_us: Option<u64>,
    /// The least that every transaction waits, whatever it says [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub willing_to_wait_min_us: Option<u64>,
    /// How long after a group the next one is begun (hiber) [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub wake_delay_us: Option<u64>,
    /// How long a packet without a waiter, such as a ticket's, lies before it is written (log-server) [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64))]
    pub linger_us: Option<u64>,
    /// Packets that a committer puts into one group at most [default: no bound]
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
