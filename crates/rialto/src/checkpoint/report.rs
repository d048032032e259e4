//! What checkpoints did: [`CheckpointReport`], [`CheckpointStats`].

use std::time::Duration;

use crate::ids::Lsn;

/// What one checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Its number.
    pub sequence: u64,
    /// Nothing had changed, so nothing was written: the last checkpoint still says it all.
    pub skipped: bool,
    /// Segments written.
    pub segments: u64,
    /// Segment latches that it asked for.
    pub latches: u64,
    /// Of those, the ones that it did not get at once: somebody had the segment latched, or a commit on its way held it white
    /// (black/white).
    pub busy: u64,
    /// Bytes written to the backup copy.
    pub written_bytes: u64,
    /// Bytes copied, snapshots included.
    pub copied_bytes: u64,
    /// The longest time that one segment latch was held, from when it was granted.
    pub hold_max: Duration,
    /// How long the cut kept commits from their places; none without a cut.
    pub cut_held: Duration,
    /// The most bytes of snapshot copies at a time.
    pub snapshot_bytes: u64,
    /// From begin to the home block.
    pub took: Duration,
    /// Processor time of the thread that made it.
    pub cpu: Duration,
    /// Where redo begins now.
    pub redo_start: Lsn,
}

/// What a database's checkpoints came to since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Checkpoints completed.
    pub completed: u64,
    /// Checkpoints that failed; the database goes on with the last complete one.
    pub failed: u64,
    /// Bytes written to the backup copies.
    pub written_bytes: u64,
    /// Bytes copied under segment latches.
    pub copied_bytes: u64,
    /// Processor time of the threads that made them.
    pub cpu: Duration,
    /// Segment latches that sweeps asked for: one a segment visited.
    pub latches: u64,
    /// Of those, the ones that were not free (System M's lock conflicts, Table 4.2).
    pub latch_conflicts: u64,
    /// The longest time that a sweep held one segment's latch: while it copied at most 64 KiB and, where images are not spooled,
    /// wrote them.
    pub hold_max: Duration,
    /// Cuts made, by checkpoints and by backups.
    pub cuts: u64,
    /// The longest time that a cut kept commits from their places.
    pub cut_held_max: Duration,
    /// The most bytes of snapshot copies at a time.
    pub snapshot_bytes_max: u64,
    /// The last complete one.
    pub last: Option<CheckpointReport>,
    /// Why the last one failed, until one succeeds.
    pub failure: Option<String>,
}
