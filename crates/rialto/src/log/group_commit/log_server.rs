//! The log server (System M): one thread writes the log for all committers. A lone committer writes for itself, which
//! spares it two thread switches.

use std::time::Duration;

use super::{Choice, GroupCommit, GroupCommitter, View};

/// System M's log server, with a lone committer writing for itself.
#[derive(Debug, Clone, Copy)]
pub struct LogServer {
    /// How long packets without a waiter lie before they are written.
    pub linger: Duration,
}

impl Default for LogServer {
    fn default() -> LogServer {
        LogServer { linger: Duration::from_micros(200) }
    }
}

impl GroupCommit for LogServer {
    fn choose(&self, view: &View) -> Choice {
        if view.stand_in {
            Choice::Write
        } else if view.writer_busy {
            Choice::Sleep(None)
        } else if view.waiting == 0 {
            Choice::Write
        } else {
            Choice::LeaveToServer
        }
    }

    fn committer(&self) -> GroupCommitter {
        GroupCommitter::LogServer
    }

    fn linger(&self) -> Duration {
        self.linger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(writer_busy: bool, waiting: u32) -> View {
        View { writer_busy, waiting, ..View::default() }
    }

    #[test]
    fn a_lone_committer_writes_and_a_crowd_leaves_it_to_the_server() {
        assert_eq!(LogServer::default().choose(&view(false, 0)), Choice::Write);
        assert_eq!(LogServer::default().choose(&view(false, 3)), Choice::LeaveToServer);
        assert_eq!(LogServer::default().choose(&view(true, 0)), Choice::Sleep(None));
        assert_eq!(LogServer::default().choose(&view(true, 3)), Choice::Sleep(None));
    }
}
