//! [`CheckpointSource`]: what checkpoints need of the engine.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;

use super::home::HomeBlock;
use crate::error::Result;
use crate::fault_injection;
use crate::ids::{HeapId, Lsn};
use crate::log::{LogNeeded, LogPoint};
use crate::store::Consistency;
use crate::store::memory::Segments;
use crate::store::memory::load_file::LoadFile;
use crate::store::paged::DiskTables;

/// The result of a cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The oldest place that the cut may not have whole.
    pub redo_start: Lsn,
    /// The end of the segments that the cut has.
    pub end: u32,
    /// How long commits were kept from their places.
    pub held: Duration,
}

/// The existing tables, while transactions with DDL are kept from their places.
#[derive(Debug)]
pub(crate) struct Defined {
    /// All packets before this place are applied whole, and all DDL that is applied has its place before it.
    pub redo_start: Lsn,
    /// The storage of the tables, the system's included.
    pub heaps: Arc<HashSet<HeapId>>,
}

/// What a checkpoint needs of the engine.
pub(crate) trait CheckpointSource: Send + Sync {
    /// The segments to copy.
    fn segments(&self) -> &Segments;
    /// The oldest place that may not be applied whole: the queue's head is read first, then the packets in progress
    /// (I5).
    fn redo_start(&self) -> Lsn;
    /// Makes a cut, while the segments are white and definitions are held, at which the tables have this storage. No
    /// commit takes its place meanwhile, and for a transaction-consistent cut all commits that have one are applied.
    fn cut(&self, consistency: Consistency, heaps: &Arc<HashSet<HeapId>>) -> Cut;
    /// The disk-resident tables.
    fn disk_tables(&self) -> Option<&DiskTables> {
        None
    }
    /// Runs `cut` while no commit takes its place and all commits that have one are applied, and gives the last place.
    /// No cut and no black/white sweep is under way.
    fn cut_pages(&self, cut: &mut dyn FnMut()) -> Lsn {
        cut();
        self.place()
    }
    /// Begins a black/white sweep, while the segments are white. From now on a commit settles its side before its
    /// place, and every earlier commit is applied. No commit is kept waiting.
    fn paint(&self, consistency: Consistency) -> Cut;
    /// Keeps transactions with DDL from their places, until [`CheckpointSource::release_definitions`]; others go on.
    /// Waits for the commits that are still being applied although a DDL with a later place has been.
    fn hold_definitions(&self) -> Defined;
    /// Lets DDL go on.
    fn release_definitions(&self);
    /// Ends the sweep at the cut, or the black/white one.
    fn forget_cut(&self);
    /// As a transaction-consistent [`CheckpointSource::cut`]; also returns where the log ends at the cut. Runs `cut_pages` at
    /// the same moment.
    fn cut_at_a_point(
        &self,
        heaps: &Arc<HashSet<HeapId>>,
        cut_pages: &mut dyn FnMut(),
    ) -> Result<(Cut, LogPoint)>;
    /// The last place taken.
    fn place(&self) -> Lsn;
    /// In a follower: the last place that is redone; the log may have more.
    fn redone(&self) -> Option<Lsn> {
        None
    }
    /// Where the log ends after all places taken so far. The point is on disk when its place is.
    fn point(&self) -> Result<LogPoint>;
    /// Waits until the log is on disk up to `lsn`.
    fn wait_durable(&self, lsn: Lsn) -> Result<()>;
    /// Frees the log that is not needed. Returns the place before which no log stays that names a load file; `None`: no load file
    /// may go, since an archive has not taken them.
    fn free_log_but(&self, needed: LogNeeded) -> Result<Option<Lsn>>;
    /// Notes that a checkpoint begins or has ended. On a disk that was full, the checkpoint takes room before the log
    /// does.
    fn leave_room(&self, is_left: bool);
    /// About how many bytes of log follow `lsn`.
    fn log_bytes_since(&self, lsn: Lsn) -> u64;
    /// How much of its bound the log uses. It is less than the log's bytes where files of an earlier, higher bound are
    /// in use.
    fn log_bytes_used(&self) -> u64;
    /// Why the archive, if there is one, keeps log that no checkpoint needs.
    fn archive_failure(&self) -> Option<String>;
    /// Whether a transaction waits for room in the log that only a checkpoint can make.
    fn log_is_short(&self) -> bool;
    /// Notes that a checkpoint has taken effect.
    fn published(&self, home: &HomeBlock);
    /// An identifier that nothing applied so far has; nor does anything have a higher one.
    fn next_id(&self) -> u32;
    /// The existing load files.
    fn loads(&self) -> &Mutex<Vec<LoadFile>>;
    /// The end of the log.
    fn log_position(&self) -> u64;
    /// The mean time that a transaction that logs has run, divided by the threads of a recovery, in nanoseconds.
    fn forward_ns(&self) -> Option<f64>;
    /// The mean number of pages of disk-resident tables that were read for a transaction that logs.
    fn pages_read(&self) -> f64 {
        0.0
    }
    /// Tells the user.
    fn tell(&self, text: &str);
}

/// Ends the cut, so that it does not outlast its sweep.
pub(super) struct CutGuard<'a> {
    pub source: &'a dyn CheckpointSource,
    pub is_cut: bool,
}

impl Drop for CutGuard<'_> {
    fn drop(&mut self) {
        if self.is_cut {
            self.source.forget_cut();
        }
    }
}

/// As long as this lives, a checkpoint takes room on the disk before the log does ([`CheckpointSource::leave_room`]).
pub(super) struct LeftRoom<'a>(&'a dyn CheckpointSource);

impl<'a> LeftRoom<'a> {
    pub fn of(source: &'a dyn CheckpointSource) -> LeftRoom<'a> {
        source.leave_room(true);
        LeftRoom(source)
    }
}

impl Drop for LeftRoom<'_> {
    fn drop(&mut self) {
        self.0.leave_room(false);
    }
}

/// As long as this lives, no transaction with DDL takes its place.
pub(crate) struct HeldDefinitions<'a> {
    source: &'a dyn CheckpointSource,
    pub defined: Defined,
}

impl<'a> HeldDefinitions<'a> {
    pub fn hold(source: &'a dyn CheckpointSource) -> HeldDefinitions<'a> {
        let defined = source.hold_definitions();
        if fault_injection::is_on("definitions-beside-their-copy") {
            source.release_definitions();
        }
        fault_injection::pause(4);
        HeldDefinitions { source, defined }
    }
}

impl Drop for HeldDefinitions<'_> {
    fn drop(&mut self) {
        if !fault_injection::is_on("definitions-beside-their-copy") {
            self.source.release_definitions();
        }
    }
}
