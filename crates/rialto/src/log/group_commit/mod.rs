//! Group commit: who drains the commit queue, and when.
//!
//! A design is a small type with no I/O in it. It is given a read-only [`View`] and answers with a [`Choice`]; the
//! mechanism (`turn.rs`, `writer.rs`) acts. To add a design: its own file here, and one variant of
//! [`GroupCommitDesign`].

mod log_server;

use std::fmt;
use std::str::FromStr;

pub use log_server::LogServer;

/// What a blocking committer sees when its packet is not durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Whether somebody is writing a group at this moment.
    pub writer_busy: bool,
    /// Committers that sleep, or have just been woken.
    pub waiting: u32,
    /// Places taken that are not durable yet, the asker's included.
    pub pending: u64,
}

/// What a committer should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Take the writer word and write one group.
    Write,
    /// Wake the log server, and sleep until it has written the group.
    LeaveToServer,
    /// Sleep until the group that is being written is done; only while [`View::writer_busy`].
    Wait,
}

/// A group commit design.
pub trait GroupCommit: fmt::Debug + Send + Sync {
    /// What a blocking committer does whose packet is not durable.
    fn choose(&self, view: &View) -> Choice;
}

/// The group commit designs, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GroupCommitDesign {
    /// System M's log server, with a lone committer writing for itself.
    #[default]
    LogServer,
}

impl GroupCommitDesign {
    /// Every design, in the order that help texts list them.
    pub const ALL: [GroupCommitDesign; 1] = [GroupCommitDesign::LogServer];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            GroupCommitDesign::LogServer => "log-server",
        }
    }

    /// The design's policy.
    pub fn policy(self) -> Box<dyn GroupCommit> {
        match self {
            GroupCommitDesign::LogServer => Box::new(LogServer),
        }
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
        let error = "hiber".parse::<GroupCommitDesign>().unwrap_err();
        assert!(error.contains("hiber") && error.contains("log-server"), "{error}");
    }
}
