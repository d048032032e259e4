//! [`CheckpointOptions`]: when checkpoints are made, and how fast.

use std::time::Duration;

use super::image_run::RunLength;
use crate::checkpoint::Checkpointing;
use crate::checkpoint::RecoveryRates;
use crate::ids::Lsn;

/// When checkpoints are made, and how fast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointOptions {
    /// How one is made that is asked for while none are made in the background.
    pub on_demand: Checkpointing,
    /// The shortest time from one background checkpoint's begin to the next one's (System M's interval floor).
    pub interval: Duration,
    /// How fast a background sweep writes; 0 for no pause. None: it takes an interval, or less if the log fills up.
    pub sweep_bytes_per_s: Option<u64>,
    /// The bound on the log. With half of it (of three copies, a third) behind the redo start a checkpoint begins, whatever
    /// the interval; at three quarters in all, sweeps make no pauses, and what only the older checkpoint needs is freed at
    /// once.
    pub log_bytes_max: u64,
    /// How many images are written at once.
    pub run: RunLength,
    /// What snapshot copies may take.
    pub snapshot_bytes_max: u64,
    /// Whether segments are unlatched before they are written.
    pub spool: bool,
    /// Commits with places behind this one are not logged.
    pub unlogged_behind: Option<Lsn>,
    /// How many backup copies there are, 2 or 3.
    pub copies: u32,
    /// The longest time that a recovery should take. If there is one, checkpoints begin when it asks for one, and not when
    /// the interval is over, which is then the longest time that a sweep takes.
    pub recovery_within: Option<Duration>,
    /// What a recovery's parts cost.
    pub recovery_rates: RecoveryRates,
}

impl CheckpointOptions {
    /// Log behind the redo start with which a checkpoint begins, whatever the interval: the copies that count, and the one
    /// that is made, share the room.
    pub fn log_bytes_due(&self) -> u64 {
        self.log_bytes_max / u64::from(self.copies)
    }

    /// Log beyond which nothing waits.
    pub fn log_bytes_pressing(&self) -> u64 {
        self.log_bytes_max / 4 * 3
    }
}
