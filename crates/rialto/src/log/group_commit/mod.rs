//! Group commit: which thread drains the commit queue and writes the group, and when.
//!
//! A design is a small type with no I/O in it. It is given a read-only [`View`] and returns a [`Choice`]; the mechanism
//! (`turn.rs`, `writer.rs`) acts. A new design needs a file of its own here, and a variant of [`GroupCommitDesign`];
//! the tests go through all variants.
//!
//! | design | which thread writes | how long the others sleep | what wakes them |
//! |---|---|---|---|
//! | commit-lock | the committer that the lock is granted to, if it is not committed yet | until the lock is granted | the lock, one by one |
//! | commit-lock-shared | the same; the lock is requested in shared mode first | the same | the lock, shared requests in unison |
//! | commit-stall | the elected committer, without a stall | for their stalls, again and again | they wake themselves |
//! | willing-to-wait | the committer whose wait is over first | for the rest of their waits | they wake themselves |
//! | hiber | the elected committer, after the group before | until woken | the writer wakes its group and the next elected committer |
//! | hiber-stall | the same, after its stall | the same | the same |
//! | hiber-willing-to-wait | the committer whose wait is over first | for the rest of their waits, or until woken | the writer wakes its group |
//! | log-server | the log server, for tickets after their linger; a lone committer itself | until woken | the log server wakes its group |
//! | adaptive | as log-server, or the committer that completes the company | as log-server, or while the company forms | as log-server |
//!
//! The first five are KODA's (sections "Cooperative Commit Processing" and "Our New Designs"), the next two are what
//! that paper leaves as future work, and the log server is System M's.

mod adaptive;
mod commit_lock;
mod commit_stall;
mod hiber;
mod log_server;
mod options;
mod willing_to_wait;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use adaptive::Adaptive;
pub use commit_lock::CommitLockDesign;
pub use commit_stall::CommitStall;
pub use hiber::{Hiber, HiberStall, HiberWillingToWait};
pub use log_server::LogServer;
pub use options::{GroupCommitOptions, WAIT_MAX};
pub use willing_to_wait::WillingToWait;

/// What a committer knows when its packet is not durable yet. Times are on the log's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// How often this committer has chosen before, in this wait.
    pub looks: u32,
    /// Whether this is the stand-in: the log server, for packets that no other thread waits for.
    pub stand_in: bool,
    /// Whether the group that is being written holds the packet.
    pub covered: bool,
    /// Whether this committer is the first in the queue: no other thread is bound to write the group that forms. Only
    /// where the committer is [elected](GroupCommitter::Elected).
    pub elected: bool,
    /// Whether the writer word cannot be taken at this moment, because a group is being formed or written.
    pub writer_busy: bool,
    /// Committers that sleep until their group is written, or have just been woken.
    pub waiting: u32,
    /// Places taken that no group covers yet.
    pub forming: u64,
    /// Places taken that are not durable yet.
    pub outstanding: u64,
    /// The time now. Zero for designs that do not [read the clock](GroupCommit::reads_clock); so are the next two
    /// fields.
    pub now: Duration,
    /// When this committer began to wait.
    pub arrived: Duration,
    /// When its transaction began.
    pub started: Duration,
    /// How long it stalls, if its transaction says so.
    pub stall: Option<Duration>,
    /// How long its transaction may take in all, if it says so.
    pub willing_to_wait: Option<Duration>,
    /// What an administrator adds to every stall.
    pub raised: Duration,
    /// How long a log write takes, smoothed over the last ones; zero before the first.
    pub write_time: Duration,
    /// When the last group completed.
    pub freed: Duration,
    /// When another committer, which is elected, begins: now, or when its stall is over; `None` if there is none, or it
    /// has not announced a time.
    pub committer_begins: Option<Duration>,
}

/// What a committer should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Take the writer word and write one group; while the word cannot be taken, sleep until it can.
    Write,
    /// Wake the log server, and sleep until it has written the group.
    LeaveToServer,
    /// Sleep until woken with the group, or until this time is over. Without a time only for committers that are not
    /// elected.
    Sleep(Option<Duration>),
    /// Sleep until this time is over; the thread that writes the group wakes no other.
    Stall(Duration),
    /// Wait for the commit lock. In exclusive mode: while holding it, write one group if that is still needed. In
    /// shared mode: choose again.
    Lock(CommitLockMode),
}

/// The mode in which the commit lock is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLockMode {
    /// Together with other shared requests.
    Shared,
    /// Alone.
    Exclusive,
}

/// Which thread writes a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupCommitter {
    /// One of the waiting committers: the first in the queue is elected, or the lock elects one. The log server is one
    /// of them, as the stand-in for packets without a waiter.
    Elected,
    /// The log server, except for committers that choose to write.
    LogServer,
}

/// A group that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Packets in it.
    pub packets: u64,
    /// Places taken after the group when it completed.
    pub behind: u64,
    /// How long its write took.
    pub took: Duration,
    /// When it completed.
    pub now: Duration,
}

/// A group commit design.
pub trait GroupCommit: fmt::Debug + Send + Sync {
    /// What a committer does while its packet is not durable.
    fn choose(&self, view: &View) -> Choice;

    /// Which thread writes a group.
    fn committer(&self) -> GroupCommitter {
        GroupCommitter::Elected
    }

    /// Whether the design needs times in its [`View`], and a report of each group that was
    /// [written](GroupCommit::wrote).
    fn reads_clock(&self) -> bool {
        false
    }

    /// How long packets without a waiter lie before the log server writes them, so that its group holds more of them.
    /// As soon as a thread waits, the log server does as the design chooses, without a linger. Only for designs whose
    /// log server writes, because a stand-in would stall besides.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }

    /// A group was written. Calls do not overlap.
    fn wrote(&self, _group: &Written) {}
}

/// The group commit designs, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GroupCommitDesign {
    /// KODA's Commit-Lock Design.
    CommitLock,
    /// The same, with the lock asked for in shared mode first.
    CommitLockShared,
    /// KODA's Commit-Stall Design.
    CommitStall,
    /// KODA's Willing-to-Wait Design.
    WillingToWait,
    /// KODA's Hiber Design.
    Hiber,
    /// The Hiber Design combined with Commit-Stall.
    HiberStall,
    /// The Hiber Design combined with Willing-to-Wait.
    HiberWillingToWait,
    /// System M's log server, with a lone committer writing for itself.
    #[default]
    LogServer,
    /// A design that finds its stall and its group size by itself.
    Adaptive,
}

impl GroupCommitDesign {
    /// Every design, in the order of the help texts.
    pub const ALL: [GroupCommitDesign; 9] = [
        GroupCommitDesign::CommitLock,
        GroupCommitDesign::CommitLockShared,
        GroupCommitDesign::CommitStall,
        GroupCommitDesign::WillingToWait,
        GroupCommitDesign::Hiber,
        GroupCommitDesign::HiberStall,
        GroupCommitDesign::HiberWillingToWait,
        GroupCommitDesign::LogServer,
        GroupCommitDesign::Adaptive,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            GroupCommitDesign::CommitLock => "commit-lock",
            GroupCommitDesign::CommitLockShared => "commit-lock-shared",
            GroupCommitDesign::CommitStall => "commit-stall",
            GroupCommitDesign::WillingToWait => "willing-to-wait",
            GroupCommitDesign::Hiber => "hiber",
            GroupCommitDesign::HiberStall => "hiber-stall",
            GroupCommitDesign::HiberWillingToWait => "hiber-willing-to-wait",
            GroupCommitDesign::LogServer => "log-server",
            GroupCommitDesign::Adaptive => "adaptive",
        }
    }

    /// Whether a transaction's own stall counts ([`TxOptions::commit_stall`](crate::TxOptions::commit_stall)).
    pub const fn honours_stall(self) -> bool {
        use GroupCommitDesign::{Adaptive, CommitStall, HiberStall};
        matches!(self, CommitStall | HiberStall | Adaptive)
    }

    /// Whether the design uses what a transaction is willing to wait
    /// ([`TxOptions::willing_to_wait`](crate::TxOptions::willing_to_wait)).
    pub const fn honours_willing_to_wait(self) -> bool {
        use GroupCommitDesign::{Adaptive, HiberWillingToWait, WillingToWait};
        matches!(self, WillingToWait | HiberWillingToWait | Adaptive)
    }

    /// Whether the design has stalls that an administrator can raise
    /// ([`Database::raise_stalls`](crate::Database::raise_stalls)).
    pub const fn honours_raised_stalls(self) -> bool {
        use GroupCommitDesign::{CommitLock, CommitLockShared, LogServer};
        !matches!(self, CommitLock | CommitLockShared | LogServer)
    }
}

impl fmt::Display for GroupCommitDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for GroupCommitDesign {
    type Err = String;

    fn from_str(name: &str) -> Result<GroupCommitDesign, String> {
        GroupCommitDesign::ALL.into_iter().find(|design| design.name() == name).ok_or_else(|| {
            let names: Vec<&str> = GroupCommitDesign::ALL.iter().map(|design| design.name()).collect();
            format!("no group commit design \"{name}\"; available: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_an_unknown_name_lists_the_known() {
        for design in GroupCommitDesign::ALL {
            assert_eq!(design.to_string().parse(), Ok(design));
        }
        let error = "sleepy".parse::<GroupCommitDesign>().unwrap_err();
        assert!(error.contains("sleepy") && error.contains("log-server, adaptive"), "{error}");
    }

    #[test]
    fn a_design_honours_the_waits_that_it_says_it_does() {
        let ms = Duration::from_millis;
        let view = View {
            forming: 1,
            now: ms(1_000),
            arrived: ms(1_000),
            started: ms(1_000),
            freed: ms(999),
            write_time: ms(2),
            ..View::default()
        };
        for design in GroupCommitDesign::ALL {
            let policy = match design {
                // Otherwise it has no company yet.
                GroupCommitDesign::Adaptive => Box::new(Adaptive::waiting_for(4)),
                _ => GroupCommitOptions::from(design).policy(),
            };
            let changes = |with: View| {
                [false, true].into_iter().any(|elected| {
                    policy.choose(&View { elected, ..with }) != policy.choose(&View { elected, ..view })
                })
            };
            let found = [
                changes(View { stall: Some(ms(1)), ..view }),
                changes(View { willing_to_wait: Some(ms(5)), ..view }),
                changes(View { raised: ms(7), ..view }),
            ];
            let said =
                [design.honours_stall(), design.honours_willing_to_wait(), design.honours_raised_stalls()];
            assert_eq!(found, said, "{design}");
        }
    }
}
