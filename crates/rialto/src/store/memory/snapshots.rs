//! [`Snapshots`]: copies of segments as they were at a cut, made by the first change after it (System M, section 3.3).
//!
//! A checkpointer that wants the segments of one moment first makes them *white* ([`Segments::whiten`]), then cuts, and
//! then sweeps. Before the cut white has no effect. After it, a thread that is about to change a white segment keeps a
//! copy of it here if the backup copy lacks it, and makes it black. The sweep takes a white segment as it is, and a
//! black one from here.
//!
//! A change that touches no committed row (a slot that is begun, reserved, or given back without ever having held one)
//! needs no copy: its slot is absent in both states. Nor do segments of storage that no table had at the cut need one:
//! an open transaction has made it, or a committed transaction had replaced it. The sweep counts these segments as
//! free, so only the number of a changed one is kept.
//!
//! Snapshots of one cut are gone before the next cut: a thread that keeps one checks the stage (`CutStage`) under the
//! lock under which the cut is ended.
//!
//! [`Segments::whiten`]: super::Segments::whiten

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hashbrown::HashSet;
use parking_lot::{Condvar, Mutex};

use super::segments::{Copy, SEGMENT_BYTES, SegmentId};
use crate::ids::HeapId;
use crate::io::Clock;

/// The stage of a checkpoint at a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CutStage {
    /// There is no such checkpoint.
    Idle,
    /// Segments are being made white; the cut has not been made.
    Whitening,
    /// The cut has been made: white segments are kept before they change.
    Cut,
    /// A black/white sweep is in progress: white segments stay white until it has met them.
    Painting,
}

/// A segment as it was at the cut.
pub(super) enum Snapshot {
    /// It had no table's row.
    Free,
    /// It was in use.
    Bytes(KeptBytes),
}

/// A segment's bytes.
pub(super) struct KeptBytes {
    pub heap: Option<HeapId>,
    /// Bytes in use, the image header's room included.
    pub used: usize,
    /// One segment long.
    pub bytes: Box<[u8]>,
}

/// The snapshot copies of the sweep in progress, if there is one.
pub struct Snapshots {
    stage: AtomicU8,
    /// The backup copy that is written: segments that it already has need no snapshot.
    copy: AtomicU8,
    /// The most bytes that transactions may make the snapshots take.
    bytes_max: AtomicU64,
    /// On a line of its own, away from the words that every change of a clean segment reads.
    kept: CachePadded<Mutex<KeptSegments>>,
    /// Notified when there is room again.
    changed: Condvar,
}

#[derive(Default)]
struct KeptSegments {
    /// The storage of the tables at the cut.
    heaps: Arc<HashSet<HeapId>>,
    segments: BTreeMap<u32, KeptBytes>,
    /// Segments that had no table's row at the cut, and have changed since.
    free: HashSet<u32>,
    spare: Vec<Box<[u8]>>,
    /// How many segments transactions on their way to their place may still keep.
    promised: usize,
    /// Transactions that wait for room.
    waiting: usize,
    /// The most segments that were kept at the same time since the cut.
    most: usize,
    /// Segments that were given back since the cut, and stay until the sweep is over.
    freed: Vec<SegmentId>,
}

/// How many buffers are kept for later snapshots.
const SPARE_MAX: usize = 64;

impl Snapshots {
    pub(super) fn new() -> Snapshots {
        Snapshots {
            stage: AtomicU8::new(CutStage::Idle as u8),
            copy: AtomicU8::new(0),
            bytes_max: AtomicU64::new(u64::MAX),
            kept: CachePadded::default(),
            changed: Condvar::new(),
        }
    }

    #[inline]
    pub(super) fn stage(&self) -> CutStage {
        match self.stage.load(Ordering::Acquire) {
            0 => CutStage::Idle,
            1 => CutStage::Whitening,
            2 => CutStage::Cut,
            _ => CutStage::Painting,
        }
    }

    pub(super) fn begin(&self, copy: Copy, bytes_max: u64) {
        self.copy.store(copy.number(), Ordering::Relaxed);
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        debug_assert!(kept.segments.is_empty() && kept.free.is_empty() && kept.freed.is_empty());
        kept.most = 0;
        self.stage.store(CutStage::Whitening as u8, Ordering::Release);
    }

    /// Notes the cut, at which the tables have this storage.
    pub(super) fn cut(&self, heaps: Arc<HashSet<HeapId>>) {
        let mut kept = self.kept.lock();
        kept.heaps = heaps;
        self.stage.store(CutStage::Cut as u8, Ordering::Release);
    }

    pub(super) fn paint(&self) {
        self.stage.store(CutStage::Painting as u8, Ordering::Release);
    }

    /// Ends the sweep. Returns the segments that were given back meanwhile.
    pub(super) fn end(&self) -> Vec<SegmentId> {
        let mut kept = self.kept.lock();
        self.stage.store(CutStage::Idle as u8, Ordering::Release);
        kept.heaps = Arc::default();
        kept.segments.clear();
        kept.free.clear();
        kept.spare.clear();
        self.changed.notify_all();
        std::mem::take(&mut kept.freed)
    }

    /// The copy that is written.
    pub(super) fn copy(&self) -> Copy {
        Copy::of_number(self.copy.load(Ordering::Relaxed))
    }

    /// Whether a table had this storage at the cut.
    pub(super) fn has(&self, heap: HeapId) -> bool {
        self.kept.lock().heaps.contains(&heap)
    }

    /// Keeps a segment. The caller holds its latch; `fill` copies it and gives its heap and the bytes in use.
    pub(super) fn keep(&self, id: SegmentId, fill: impl FnOnce(&mut [u8]) -> (Option<HeapId>, usize)) {
        let spare = self.kept.lock().spare.pop();
        let mut bytes = spare.unwrap_or_else(|| vec![0; SEGMENT_BYTES].into_boxed_slice());
        let (heap, used) = fill(&mut bytes);
        let mut kept = self.kept.lock();
        // The sweep may have ended since the caller looked.
        if self.stage() == CutStage::Cut {
            let twice = kept.segments.insert(id.0, KeptBytes { heap, used, bytes });
            debug_assert!(twice.is_none(), "a segment is kept when it stops being white");
            kept.most = kept.most.max(kept.segments.len());
        }
    }

    /// Notes that a segment was free at the cut.
    pub(super) fn keep_free(&self, id: SegmentId) {
        let mut kept = self.kept.lock();
        if self.stage() == CutStage::Cut {
            kept.free.insert(id.0);
        }
    }

    /// The snapshot of a segment, if it was kept. The sweep owns it until [`Snapshots::give_back`].
    pub(super) fn take(&self, id: SegmentId) -> Option<Snapshot> {
        let mut kept = self.kept.lock();
        match kept.segments.remove(&id.0) {
            Some(bytes) => Some(Snapshot::Bytes(bytes)),
            None => kept.free.remove(&id.0).then_some(Snapshot::Free),
        }
    }

    pub(super) fn give_back(&self, snapshot: KeptBytes) {
        let mut kept = self.kept.lock();
        if kept.spare.len() < SPARE_MAX {
            kept.spare.push(snapshot.bytes);
        }
        self.changed.notify_all();
    }

    /// Keeps a segment that is given back as it is until the sweep is over; false if there is no sweep at a cut.
    pub(super) fn keep_from_reuse(&self, id: SegmentId) -> bool {
        // Under the lock, so that the sweep does not end in between.
        let mut kept = self.kept.lock();
        let there = self.stage() == CutStage::Cut;
        if there {
            kept.freed.push(id);
        }
        there
    }

    /// Promises a transaction room for so many snapshots; false if there is none now. While no other promise is open
    /// there is always room for one transaction, however much it needs.
    pub fn promise(&self, segments: usize) -> bool {
        if segments == 0 {
            return true;
        }
        let mut kept = self.kept.lock();
        let taken = kept.segments.len() + kept.promised;
        let room = (self.bytes_max.load(Ordering::Relaxed) as usize / SEGMENT_BYTES).saturating_sub(taken);
        if segments > room && taken > 0 {
            return false;
        }
        kept.promised += segments;
        true
    }

    /// Ends a promise: the transaction has made all the snapshots that it needs.
    pub fn keep_promise(&self, segments: usize) {
        if segments == 0 {
            return;
        }
        self.kept.lock().promised -= segments;
        self.changed.notify_all();
    }

    /// Waits until there may be room, at most `limit`. While a transaction waits, the sweep makes no pause.
    pub fn wait(&self, clock: &Clock, limit: Duration) {
        let mut kept = self.kept.lock();
        if self.stage() == CutStage::Cut {
            kept.waiting += 1;
            clock.wait(&self.changed, &mut kept, Some(limit));
            kept.waiting -= 1;
        }
    }

    /// Whether a sweep at a cut is in progress.
    pub fn are_taken(&self) -> bool {
        self.stage() == CutStage::Cut
    }

    /// Whether a transaction waits for room.
    pub fn is_short(&self) -> bool {
        self.kept.lock().waiting > 0
    }

    /// The lowest segment whose bytes are kept, for a sweep that has to make room.
    pub fn any(&self) -> Option<SegmentId> {
        self.kept.lock().segments.first_key_value().map(|(&number, _)| SegmentId(number))
    }

    /// The most bytes that snapshots have taken since the last cut.
    pub fn most_bytes(&self) -> u64 {
        (self.kept.lock().most * SEGMENT_BYTES) as u64
    }
}
