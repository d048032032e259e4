//! [`Source`]: an open database as a checkpointer sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use parking_lot::Mutex;

use crate::checkpoint::home::HomeBlock;
use crate::checkpoint::{CheckpointSource, Consistency, Cut, Defined};
use crate::commit::{CommitBarrier, CommitsInProgress};
use crate::error::Result;
use crate::fault_injection;
use crate::foreign::{self, Progress};
use crate::ids::{HeapId, Lsn};
use crate::log::{LogNeeded, LogPoint};
use crate::open::archive_loads;
use crate::store::memory::{LoadFile, Segments};
use crate::store::paged::DiskTables;
use crate::txn::core::Core;

/// The closed commit barrier of a cut; dropping it opens the barrier.
pub(super) struct ClosedBarrier<'a> {
    in_progress: &'a CommitsInProgress,
    /// What commits find from then on.
    then: CommitBarrier,
}

impl ClosedBarrier<'_> {
    fn close(in_progress: &CommitsInProgress, then: CommitBarrier) -> ClosedBarrier<'_> {
        in_progress.close_barrier();
        ClosedBarrier { in_progress, then }
    }
}

impl Drop for ClosedBarrier<'_> {
    fn drop(&mut self) {
        self.in_progress.open_barrier(self.then);
    }
}

/// What checkpoints need of the database.
pub(super) struct Source {
    pub(super) core: Arc<Core>,
    pub(super) recovery_threads: usize,
    pub(super) progress: Option<Progress>,
}

impl Source {
    /// Makes the cut while the barrier keeps commits from their places.
    fn cut_behind_the_barrier(
        &self,
        consistency: Consistency,
        heaps: &Arc<HashSet<HeapId>>,
        began: Instant,
    ) -> Cut {
        let core = &*self.core;
        let redo_start = match consistency {
            Consistency::Action => core.commits.in_progress.oldest(core.commits.log.place()),
            Consistency::Transaction => {
                if !fault_injection::is_on("cut-beside-commits") {
                    core.commits.in_progress.drain(&core.clock);
                }
                // The place is exact: every commit that has a place is applied, and no other one takes a place. (A
                // commit that looks at the barrier at this moment may still be listed as in progress, behind an earlier
                // place.)
                core.commits.log.place().next()
            }
        };
        let end = core.storage.memory.segments.cut(heaps.clone());
        Cut { redo_start, end, held: began.elapsed() }
    }
}

impl CheckpointSource for Source {
    fn segments(&self) -> &Segments {
        &self.core.storage.memory.segments
    }

    fn redo_start(&self) -> Lsn {
        // The log's head is read first: a packet that is pushed after this is not older.
        let place = self.core.commits.log.place();
        self.core.commits.in_progress.oldest(place)
    }

    fn cut(&self, consistency: Consistency, heaps: &Arc<HashSet<HeapId>>) -> Cut {
        // This is only measured, here and below, and therefore by the machine's clock.
        let began = Instant::now();
        let _closed = ClosedBarrier::close(&self.core.commits.in_progress, CommitBarrier::Snapshots);
        self.cut_behind_the_barrier(consistency, heaps, began)
    }

    fn cut_at_a_point(
        &self,
        heaps: &Arc<HashSet<HeapId>>,
        cut_pages: &mut dyn FnMut(),
    ) -> Result<(Cut, LogPoint)> {
        // Most of what is queued is gathered here, before commits are kept waiting.
        self.core.commits.log.point()?;
        let began = Instant::now();
        let closed = ClosedBarrier::close(&self.core.commits.in_progress, CommitBarrier::Snapshots);
        self.core.commits.in_progress.drain(&self.core.clock);
        let point = self.core.commits.log.point()?;
        let cut = self.cut_behind_the_barrier(Consistency::Transaction, heaps, began);
        let pages_are_late = fault_injection::is_on("backup-cuts-pages-later");
        if !pages_are_late {
            cut_pages();
        }
        debug_assert_eq!(cut.redo_start, point.lsn.next(), "no commit takes a place meanwhile");
        drop(closed);
        if pages_are_late {
            fault_injection::pause(1);
            cut_pages();
        }
        Ok((cut, point))
    }

    fn disk_tables(&self) -> Option<&DiskTables> {
        Some(&self.core.storage.disk_tables)
    }

    fn cut_pages(&self, cut: &mut dyn FnMut()) -> Lsn {
        let in_progress = &self.core.commits.in_progress;
        let _closed = ClosedBarrier::close(in_progress, CommitBarrier::Open);
        if !fault_injection::is_on("page-cut-beside-commits") {
            in_progress.drain(&self.core.clock);
        }
        cut();
        self.core.commits.log.place()
    }

    fn paint(&self, consistency: Consistency) -> Cut {
        let core = &*self.core;
        core.commits.in_progress.open_barrier(CommitBarrier::Sides);
        // The commits that have settled no side belong to the copy: it begins when they are applied.
        if !fault_injection::is_on("paint-outlasts-no-commit") {
            core.commits.in_progress.outlast(&core.clock);
        }
        let place = core.commits.log.place();
        let redo_start = match consistency {
            Consistency::Action => core.commits.in_progress.oldest(place),
            // Every commit that has a place by now is white, or applied already: the copy has it whole.
            Consistency::Transaction => place.next(),
        };
        core.storage.memory.segments.painting().set_black_from(place.next());
        Cut { redo_start, end: core.storage.memory.segments.paint(), held: Duration::ZERO }
    }

    fn hold_definitions(&self) -> Defined {
        let core = &*self.core;
        core.commits.definitions.hold(&core.clock);
        // No DDL is in progress. If the last DDL has passed commits that are still being applied, this waits for them.
        let last = core.storage.catalog.changed_at();
        let redo_start =
            core.commits.in_progress.outlast_until(&core.clock, last, || core.commits.log.place());
        let heaps: HashSet<HeapId> =
            core.storage.catalog.all().iter().map(|table| table.version().store.heap()).collect();
        Defined { redo_start, heaps: Arc::new(heaps) }
    }

    fn release_definitions(&self) {
        self.core.commits.definitions.release();
    }

    fn forget_cut(&self) {
        self.core.storage.memory.segments.forget_cut();
        self.core.commits.in_progress.open_barrier(CommitBarrier::Open);
    }

    fn place(&self) -> Lsn {
        self.core.commits.log.place()
    }

    fn redone(&self) -> Option<Lsn> {
        self.core.commits.log.is_following().then(|| self.place())
    }

    fn point(&self) -> Result<LogPoint> {
        self.core.commits.log.point()
    }

    fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        // A checkpoint has no place whose outcome could be unknown: its error says why the log stopped.
        self.core
            .commits
            .log
            .wait_on_disk(lsn)
            .map_err(|error| self.core.commits.log.failure().unwrap_or(error))
    }

    fn free_log_but(&self, needed: LogNeeded) -> Result<Option<Lsn>> {
        // The archive takes load files before the log that names them. While it takes nothing, no file is freed; the
        // reason is in the metrics.
        if let Some(archiver) = self.core.commits.log.archiver()
            && archiver
                .note(archive_loads(&self.core, archiver, |load| !load.is_needed_from(needed.from)))
                .is_err()
        {
            return Ok(None);
        }
        let log = &self.core.commits.log;
        log.free_all_but(needed)?;
        // A decision for which the log is too small fails with that itself.
        let _ = self.core.prepared.reserve_room();
        Ok(Some(log.kept_from(needed.from)))
    }

    fn leave_room(&self, is_left: bool) {
        self.core.commits.log.leave_room(is_left);
    }

    fn log_bytes_since(&self, lsn: Lsn) -> u64 {
        self.core.commits.log.bytes_since(lsn)
    }

    fn log_bytes_used(&self) -> u64 {
        self.core.commits.log.bytes_used()
    }

    fn archive_failure(&self) -> Option<String> {
        self.core.commits.log.archiver().and_then(|archiver| archiver.stats().failure)
    }

    fn log_is_short(&self) -> bool {
        self.core.commits.log.is_short()
    }

    fn published(&self, home: &HomeBlock) {
        self.core.commits.note_checkpoint(home.transaction_consistent);
    }

    fn next_id(&self) -> u32 {
        self.core.storage.catalog.next_id()
    }

    fn loads(&self) -> &Mutex<Vec<LoadFile>> {
        &self.core.storage.loads
    }

    fn log_position(&self) -> u64 {
        self.core.commits.log.end_position()
    }

    fn forward_ns(&self) -> Option<f64> {
        let core = &*self.core;
        let packets = core.commits.log.place().0 - core.storage.opened_at.0;
        (packets > 0)
            .then(|| core.commits.accounts.run_ns() as f64 / packets as f64 / self.recovery_threads as f64)
    }

    fn pages_read(&self) -> f64 {
        let storage = &self.core.storage;
        let packets = self.core.commits.log.place().0 - storage.opened_at.0;
        storage.disk_tables.stats().map_or(0.0, |pages| pages.reads as f64 / packets.max(1) as f64)
    }

    fn tell(&self, text: &str) {
        if let Some(tell) = &self.progress {
            foreign::tell(self.core.storage.catalog.opening(), &**tell, text);
        }
    }
}
