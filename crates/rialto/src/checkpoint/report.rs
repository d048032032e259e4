//! The results of checkpoints: [`CheckpointReport`], [`CheckpointStats`].

use std::time::Duration;

use crate::ids::Lsn;

/// What one checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Its number.
    pub sequence: u64,
    /// Whether nothing was written because nothing had changed: the last checkpoint is still complete.
    pub skipped: bool,
    /// Segments written.
    pub segments: u64,
    /// Segment latches that the sweep asked for.
    pub latches: u64,
    /// Of these, the latches that it did not get at once: a transaction had the segment latched, or a commit in
    /// progress held it white (black/white).
    pub busy: u64,
    /// Bytes written to the backup copy.
    pub written_bytes: u64,
    /// Bytes copied, snapshots included.
    pub copied_bytes: u64,
    /// The longest time that one segment latch was held, from when it was granted.
    pub hold_max: Duration,
    /// How long the cut kept commits from their places; zero without a cut.
    pub cut_held: Duration,
    /// The most bytes of snapshot copies at the same time.
    pub snapshot_bytes: u64,
    /// The time from the begin to the home block.
    pub took: Duration,
    /// Processor time of the thread that made it.
    pub cpu: Duration,
    /// Where redo begins now.
    pub redo_start: Lsn,
}

/// Sums over the database's checkpoints since it was opened.
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
    /// Of these, the latches that were not free (System M's lock conflicts, Table 4.2).
    pub latch_conflicts: u64,
    /// The longest time that a sweep held one segment's latch: the time to copy at most 64 KiB and, where images are
    /// not spooled, to write them.
    pub hold_max: Duration,
    /// Cuts made, by checkpoints and by backups.
    pub cuts: u64,
    /// The longest time that a cut kept commits from their places.
    pub cut_held_max: Duration,
    /// The most bytes of snapshot copies at the same time.
    pub snapshot_bytes_max: u64,
    /// The last complete one.
    pub last: Option<CheckpointReport>,
    /// Why the last one failed, until one succeeds.
    pub failure: Option<String>,
}
