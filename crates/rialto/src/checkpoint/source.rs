//! [`CheckpointSource`]: what checkpoints need of the engine.

use std::time::Duration;

use parking_lot::Mutex;

use super::home::HomeBlock;
use super::load_file::LoadFile;
use crate::error::Result;
use crate::ids::Lsn;
use crate::store::memory::Segments;
use crate::store::memory::painting::Consistency;

/// A cut that was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The oldest place that it may not have whole.
    pub redo_start: Lsn,
    /// The end of the segments that it has.
    pub end: u32,
    /// How long commits were kept from their places.
    pub held: Duration,
}

/// What a checkpoint needs of the engine.
pub(crate) trait CheckpointSource: Send + Sync {
    /// The segments to copy.
    fn segments(&self) -> &Segments;
    /// The oldest place that may not be applied whole: the queue's head is read first, then the packets in flight (I5).
    fn redo_start(&self) -> Lsn;
    /// Cuts, the segments being white: no commit takes its place meanwhile, and for a transaction-consistent cut all that
    /// have one are applied.
    fn cut(&self, consistency: Consistency) -> Cut;
    /// Begins a black/white sweep, the segments being white: from here on what comes to its place settles its
    /// colour, and what has come before is applied. Nobody is kept waiting.
    fn paint(&self, consistency: Consistency) -> Cut;
    /// The sweep at the cut is over, or the black/white one.
    fn forget_cut(&self);
    /// The last place taken.
    fn place(&self) -> Lsn;
    /// Waits until the log is on disk up to `lsn`.
    fn wait_durable(&self, lsn: Lsn) -> Result<()>;
    /// Frees the log before `lsn`. Whether load files of before may go too: not if an archive has not taken them.
    fn free_log_before(&self, lsn: Lsn) -> Result<bool>;
    /// About how many bytes of log follow `lsn`; of all log that is there, for [`Lsn::ZERO`].
    fn log_bytes_since(&self, lsn: Lsn) -> u64;
    /// A checkpoint has taken effect.
    fn published(&self, home: &HomeBlock);
    /// An identifier that nothing applied so far has, nor has any above it.
    fn next_id(&self) -> u32;
    /// The load files that are there.
    fn loads(&self) -> &Mutex<Vec<LoadFile>>;
    /// The end of the log.
    fn log_position(&self) -> u64;
    /// What a transaction that logs has run for in the mean, shared by the threads of a recovery, in nanoseconds.
    fn forward_ns(&self) -> Option<f64>;
    /// Tells the user.
    fn tell(&self, text: &str);
}

/// Sees to it that a cut does not outlast its sweep.
pub(super) struct Uncut<'a> {
    pub source: &'a dyn CheckpointSource,
    pub is_cut: bool,
}

impl Drop for Uncut<'_> {
    fn drop(&mut self) {
        if self.is_cut {
            self.source.forget_cut();
        }
    }
}
