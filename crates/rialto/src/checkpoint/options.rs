//! [`CheckpointOptions`]: when checkpoints are made, and how fast.

use std::time::Duration;

use super::image_run::RunLength;
use crate::checkpoint::Checkpointing;
use crate::checkpoint::RecoveryRates;
use crate::ids::Lsn;

/// When checkpoints are made, and how fast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointOptions {
    /// How a checkpoint on demand is made while none are made in the background.
    pub on_demand: Checkpointing,
    /// The shortest time from the begin of one background checkpoint to the begin of the next (System M's interval
    /// floor).
    pub interval: Duration,
    /// How fast a background sweep writes, in bytes a second; 0 for no pause. `None`: it takes an interval, or less if
    /// the log fills up.
    pub sweep_bytes_per_s: Option<u64>,
    /// The bound on the log. With half of it after the redo start (with three copies, a third) a checkpoint begins,
    /// whatever the interval. With three quarters of it used in all, sweeps make no pauses, and the log that only the
    /// older checkpoint needs is freed at once.
    pub log_bytes_max: u64,
    /// How many images are written at once.
    pub run: RunLength,
    /// The bytes that snapshot copies may take.
    pub snapshot_bytes_max: u64,
    /// Whether segments are unlatched before they are written.
    pub spool: bool,
    /// Commits with places after this one are not logged.
    pub unlogged_behind: Option<Lsn>,
    /// How many backup copies there are, 2 or 3.
    pub copies: u32,
    /// The longest time that a recovery should take. If it is set, checkpoints begin when this target requires one, and
    /// not when the interval is over; the interval is then the longest time that a sweep takes.
    pub recovery_within: Option<Duration>,
    /// The measured costs of a recovery's parts.
    pub recovery_rates: RecoveryRates,
}

impl CheckpointOptions {
    /// The bytes of log after the redo start at which a checkpoint begins, whatever the interval. The copies that
    /// count, and the one in the making, share the log's room.
    pub fn log_bytes_due(&self) -> u64 {
        self.log_bytes_max / u64::from(self.copies)
    }

    /// The bytes of log beyond which no sweep pauses.
    pub fn log_bytes_pressing(&self) -> u64 {
        self.log_bytes_max / 4 * 3
    }
}
