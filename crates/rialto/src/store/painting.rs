//! [`Painting`]: the state of a black/white sweep that commits see (System M, section 3.2).
//!
//! All segments are white when the sweep begins, and the sweep paints each one black when it has copied it. The side of
//! a commit is settled before its place (`txn::sweep_side`). `Painting` is what commits and the sweep tell each other
//! beside the segments' own paint: the sweep's number, the segments that it is asked to paint next, and the absences
//! that black transactions have read, which no record can hold for later commits.
//!
//! While no black/white sweep is in progress, no commit reads any of this.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::{Condvar, Mutex};

use super::SegmentId;
use crate::fault_injection;
use crate::ids::{IndexId, Lsn};
use crate::io::Clock;

/// What is whole in a backup copy on its own, without the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Every write of a row.
    Action,
    /// Every transaction.
    Transaction,
}

/// The side of a segment, as a commit found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// The sweep has not copied the segment yet, and does not while the commit holds it.
    White,
    /// The sweep has copied it.
    Black,
    /// The sweep waits to paint it.
    Awaited,
}

/// The state of a black/white sweep that is not in the segments.
pub struct Painting {
    /// The number of the sweep in progress; 0 if there is none.
    sweep: AtomicU32,
    by_transaction: AtomicBool,
    /// The first place that a black transaction may have; [`Lsn::MAX`] while there is none.
    black_from: AtomicU64,
    /// Whether transactions that begin now note what they read.
    noted: AtomicBool,
    asked: Mutex<PaintRequests>,
    /// Whether commits have asked for segments, or for a sweep that hurries.
    pressed: AtomicBool,
    /// The number of commits that wait for the sweep.
    waiting: AtomicU32,
    /// Notified when segments were painted, or when the sweep is over.
    changed: Condvar,
    absences: Mutex<Absences>,
    nudge: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct PaintRequests {
    /// Whether a sweep is in progress.
    going: bool,
    hurry: bool,
    /// Each once, in the order in which they were asked for.
    segments: VecDeque<SegmentId>,
    queued: HashSet<SegmentId>,
}

/// The indexes in which black transactions of this sweep have read that there is no row.
#[derive(Default)]
struct Absences {
    indexes: HashSet<IndexId>,
    anywhere: bool,
}

impl Painting {
    pub(super) fn new() -> Painting {
        Painting {
            sweep: AtomicU32::new(0),
            by_transaction: AtomicBool::new(false),
            black_from: AtomicU64::new(Lsn::MAX.0),
            noted: AtomicBool::new(false),
            asked: Mutex::default(),
            pressed: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            changed: Condvar::new(),
            absences: Mutex::default(),
            nudge: OnceLock::new(),
        }
    }

    /// Calls `nudge` when the sweep is asked for something, so that the sweep ends its pause. Only the first caller's
    /// `nudge` is kept.
    pub fn when_asked(&self, nudge: impl Fn() + Send + Sync + 'static) {
        let _ = self.nudge.set(Box::new(nudge));
    }

    /// Begins the sweep of this number, before any segment is white for it.
    pub fn begin(&self, sweep: u32, consistency: Consistency) {
        self.black_from.store(Lsn::MAX.0, Ordering::Relaxed);
        self.by_transaction.store(consistency == Consistency::Transaction, Ordering::Relaxed);
        *self.absences.lock() = Absences::default();
        self.asked.lock().going = true;
        self.sweep.store(sweep, Ordering::Release);
    }

    /// From now on segments are painted: no packet with a place before this one is black.
    pub fn set_black_from(&self, place: Lsn) {
        self.black_from.store(place.0, Ordering::Release);
    }

    /// Ends the sweep, successful or not.
    pub(super) fn end(&self) {
        let mut asked = self.asked.lock();
        *asked = PaintRequests::default();
        self.pressed.store(false, Ordering::SeqCst);
        if !fault_injection::is_on("white-for-a-sweep-that-is-over") {
            self.sweep.store(0, Ordering::Release);
        }
        self.changed.notify_all();
    }

    /// The number of the black/white sweep in progress, if there is one. A commit asks for it once it holds white
    /// segments. If a sweep is in progress, they are white for that sweep, which cannot end while they are held: its
    /// copy will have the commit. If there is none, they are white for the cut of a backup or of another checkpoint,
    /// which began after the sweep that the commit met at the barrier had ended: no black/white copy will have the
    /// commit.
    pub fn sweep(&self) -> Option<u32> {
        Some(self.sweep.load(Ordering::Acquire)).filter(|sweep| *sweep > 0)
    }

    /// What has to be on one side in this sweep.
    pub fn consistency(&self) -> Consistency {
        match self.by_transaction.load(Ordering::Relaxed) {
            true => Consistency::Transaction,
            false => Consistency::Action,
        }
    }

    /// Whether a writer with this place may be black.
    pub fn may_be_black(&self, place: Lsn) -> bool {
        place.0 >= self.black_from.load(Ordering::Acquire)
    }

    /// Makes transactions that begin from now on note what they read, or stops that.
    pub fn note_reads(&self, noted: bool) {
        self.noted.store(noted, Ordering::SeqCst);
    }

    /// Whether a transaction that begins now notes what it reads.
    #[inline]
    pub fn is_noted(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }

    /// A black transaction has read that there is no row in these indexes, or in indexes that are not known
    /// (`anywhere`).
    pub fn leave_absences(&self, indexes: &[IndexId], anywhere: bool) {
        if !indexes.is_empty() || anywhere {
            let mut absences = self.absences.lock();
            absences.indexes.extend(indexes);
            absences.anywhere |= anywhere;
        }
    }

    /// Whether a black transaction may have read that there is no row at an entry that comes into the index.
    pub fn has_absence(&self, index: IndexId) -> bool {
        let absences = self.absences.lock();
        absences.anywhere || absences.indexes.contains(&index)
    }

    /// Asks the sweep to paint these segments next. Segments that are asked for already keep their turns, so that a
    /// waiting transaction may ask again and again.
    pub fn ask(&self, segments: &[SegmentId]) {
        let mut asked = self.asked.lock();
        if !asked.going {
            return;
        }
        let PaintRequests { segments: queue, queued, .. } = &mut *asked;
        let before = queue.len();
        queue.extend(segments.iter().filter(|&&id| queued.insert(id)));
        if queue.len() > before {
            self.press(asked);
        }
    }

    /// Asks the sweep to make no more pauses.
    pub fn hurry(&self) {
        let mut asked = self.asked.lock();
        if asked.going && !asked.hurry {
            asked.hurry = true;
            self.press(asked);
        }
    }

    fn press(&self, asked: parking_lot::MutexGuard<'_, PaintRequests>) {
        self.pressed.store(true, Ordering::SeqCst);
        drop(asked);
        if let Some(nudge) = self.nudge.get() {
            nudge();
        }
    }

    /// Whether the sweep is asked for something.
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::SeqCst)
    }

    /// The first of the segments that were asked for.
    pub(super) fn next_asked(&self) -> Option<SegmentId> {
        if !self.is_pressed() {
            return None;
        }
        let mut asked = self.asked.lock();
        let next = asked.segments.pop_front();
        if let Some(id) = &next {
            asked.queued.remove(id);
        }
        if asked.segments.is_empty() && !asked.hurry {
            self.pressed.store(false, Ordering::SeqCst);
        }
        next
    }

    /// Notes that a segment is painted.
    pub(super) fn painted(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _asked = self.asked.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until a segment is painted or the sweep is over, at most `limit`.
    pub fn wait(&self, clock: &Clock, limit: Duration) {
        let mut asked = self.asked.lock();
        if asked.going {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            clock.wait(&self.changed, &mut asked, Some(limit));
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Painting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Painting").field("sweep", &self.sweep()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition that waits for a sweep asks, at each check, for all segments of its table that are left.
    #[test]
    fn a_segment_that_is_asked_for_again_and_again_is_queued_once() {
        let painting = Painting::new();
        painting.begin(1, Consistency::Transaction);
        let segments = [3, 1, 2].map(SegmentId);
        (0..10).for_each(|_| painting.ask(&segments));
        painting.ask(&[SegmentId(4)]);
        assert_eq!(painting.asked.lock().segments, [3, 1, 2, 4].map(SegmentId));
        // A segment that has had its turn can get another one.
        assert_eq!(painting.next_asked(), Some(SegmentId(3)));
        painting.ask(&segments);
        let left: Vec<_> = std::iter::from_fn(|| painting.next_asked()).collect();
        assert_eq!(left, [1, 2, 4, 3].map(SegmentId));
        assert!(!painting.is_pressed() && painting.asked.lock().queued.is_empty());
    }
}
