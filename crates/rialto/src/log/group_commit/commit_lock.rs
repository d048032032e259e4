//! The Commit-Lock Design (KODA, "Group Committer"): a lock elects the committer. Packets queue while it is held; when it
//! is released it goes to the next requester, who finds itself committed and releases it again, or writes for everybody
//! who has come since. The procession of grants is the design's stall, and its cost.

use super::{Choice, GroupCommit, LockMode, View};

/// The lock elects the committer.
#[derive(Debug, Clone, Copy)]
pub struct CommitLock {
    /// Whether it is asked for in shared mode first, in the hope to be committed already when it is granted; whoever is
    /// not asks again, for itself alone.
    pub shared: bool,
}

impl GroupCommit for CommitLock {
    fn choose(&self, view: &View) -> Choice {
        // Granted, and not committed: with the shared mode only if nobody has written since.
        let mode = if self.shared && view.looks == 0 { LockMode::Shared } else { LockMode::Exclusive };
        Choice::Lock(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_mode_is_tried_once() {
        let first = View::default();
        let again = View { looks: 1, ..first };
        let (exclusive, shared) = (CommitLock { shared: false }, CommitLock { shared: true });
        assert_eq!(exclusive.choose(&first), Choice::Lock(LockMode::Exclusive));
        assert_eq!(shared.choose(&first), Choice::Lock(LockMode::Shared));
        assert_eq!(shared.choose(&again), Choice::Lock(LockMode::Exclusive));
    }
}
