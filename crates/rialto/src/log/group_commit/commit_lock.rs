//! The Commit-Lock Design (KODA, "Group Committer"): a lock elects the committer. Packets queue while the lock is held.
//! When it is released, the next requester is granted it, which is either committed by then and releases it again, or
//! writes a group of all packets that have come since. The procession of grants is the design's stall, and its cost.

use super::{Choice, CommitLockMode, GroupCommit, View};

/// The lock elects the committer.
#[derive(Debug, Clone, Copy)]
pub struct CommitLockDesign {
    /// Whether the lock is requested in shared mode first: the requester may be committed already when it is granted.
    /// If it is not, it requests the lock again, in exclusive mode.
    pub shared: bool,
}

impl GroupCommit for CommitLockDesign {
    fn choose(&self, view: &View) -> Choice {
        // The lock was granted and the packet is not committed. With the shared mode this only happens if no group has
        // been written since.
        let mode =
            if self.shared && view.looks == 0 { CommitLockMode::Shared } else { CommitLockMode::Exclusive };
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
        let (exclusive, shared) = (CommitLockDesign { shared: false }, CommitLockDesign { shared: true });
        assert_eq!(exclusive.choose(&first), Choice::Lock(CommitLockMode::Exclusive));
        assert_eq!(shared.choose(&first), Choice::Lock(CommitLockMode::Shared));
        assert_eq!(shared.choose(&again), Choice::Lock(CommitLockMode::Exclusive));
    }
}
