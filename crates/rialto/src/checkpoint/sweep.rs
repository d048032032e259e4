//! [`Sweep`]: the mechanism that copies segments to a backup copy. A [`SweepPolicy`] chooses which segments, and in
//! which order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::catalog_copy::{CatalogCopy, ImageTarget};
use super::cleared::Cleared;
use super::image_run::{ImageRun, RunLength};
use crate::account::processor::ProcessorTime;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::HeapId;
use crate::io::{Clock, Moment};
use crate::store::memory::image::ImageHeader;
use crate::store::memory::segments::{Copy, SegmentVisit, Swept};
use crate::store::memory::{SEGMENT_BYTES, SegmentId, Segments};

/// A pause is made once it has come to this much.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// How often a sweep at a cut checks, while it pauses, whether commits wait for room for snapshots.
const LOOK_AT_SNAPSHOTS_EVERY: Duration = Duration::from_millis(25);
/// The copy is synced after this many bytes, so that no sync has much to do: a sync of the log would wait for it.
const SYNC_EVERY: u64 = 32 << 20;

/// What a policy may read.
pub(crate) struct SweepView<'a> {
    segments: &'a Segments,
    copy: Copy,
    /// The sweep ends before this segment: the segments from here on were taken into use after it began.
    pub end: u32,
}

impl SweepView<'_> {
    /// Whether the segment has changed since it was last copied to this copy.
    pub fn is_dirty(&self, segment: u32) -> bool {
        self.segments.is_dirty(SegmentId(segment), self.copy)
    }

    /// Whether a sweep that made segments white has not met this one yet.
    pub fn is_white(&self, segment: u32) -> bool {
        self.segments.is_white(SegmentId(segment))
    }

    /// The white segment that commits asked for first. Commits wait for it, and no further commit comes to hold it.
    pub fn asked_for(&self) -> Option<SegmentId> {
        self.segments.next_asked()
    }

    /// A segment whose snapshot copy takes room that transactions wait for.
    pub fn snapshot_in_the_way(&self) -> Option<SegmentId> {
        let snapshots = self.segments.snapshots();
        if snapshots.is_short() { snapshots.any() } else { None }
    }
}

/// Decides what a sweep copies next; does no I/O.
pub(crate) trait SweepPolicy {
    /// The next segment, or `None` when all have been visited.
    fn next(&mut self, view: &SweepView<'_>) -> Option<SegmentId>;
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SweepStats {
    /// Segments that have an image in the copy now: those below this number.
    pub end: u32,
    /// The digest of these images: see [`ImageSums`](super::image_sums::ImageSums).
    pub digest: u64,
    /// Segments copied.
    pub segments: u64,
    /// Segment latches that it asked for.
    pub latches: u64,
    /// Of these, the latches that it did not get at once: the segment was latched, or a commit held it white.
    pub busy: u64,
    /// Bytes copied under latches.
    pub copied_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The longest time that one latch was held.
    pub hold_max: Duration,
}

/// How fast a sweep goes.
pub(crate) enum Pace<'a> {
    /// Without a pause.
    Unpaced,
    /// So many bytes written a second, and no pauses once the log presses.
    Bytes {
        /// Not 0.
        a_second: u64,
        /// How often it checks the log while it pauses.
        look_every: Duration,
        /// Whether the log has come near its bound.
        log_presses: &'a dyn Fn() -> bool,
    },
    /// As slowly as possible: through its segments in this time, and before the log has used up the room that it had
    /// when the sweep began.
    Follow {
        /// From begin to end.
        within: Duration,
        /// How often it checks the log while it pauses. Every check is a wake-up.
        look_every: Duration,
        /// The share of that room that is used, 0 to 1.
        log_used: &'a dyn Fn() -> f64,
    },
}

/// How a sweep is told to hurry or to stop.
#[derive(Debug, Default)]
pub(crate) struct SweepControl {
    urgent: AtomicBool,
    stop: AtomicBool,
    /// Processor time of the threads that sweep.
    pub server_time: ProcessorTime,
    /// Whether the sweep has been asked for something.
    nudged: AtomicBool,
    /// Held between reading these flags and the wait.
    lock: Mutex<()>,
    changed: Condvar,
    rested_ns: AtomicU64,
}

impl SweepControl {
    /// Sets whether to make no more pauses: a caller waits for the checkpoint, or the log needs its room.
    pub fn set_urgent(&self, urgent: bool) {
        self.set(&self.urgent, urgent);
    }

    /// Ends the present pause of the sweep, if it pauses.
    pub fn nudge(&self) {
        self.set(&self.nudged, true);
    }

    /// Stops the sweep, because the database closes.
    pub fn stop(&self) {
        self.set(&self.stop, true);
    }

    /// Whether [`SweepControl::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Called before the sweep reads what it was asked for.
    fn forget_nudge(&self) {
        self.nudged.store(false, Ordering::SeqCst);
    }

    fn set(&self, flag: &AtomicBool, value: bool) {
        flag.store(value, Ordering::SeqCst);
        let _lock = self.lock.lock();
        self.changed.notify_all();
    }

    /// Rests for `time`, or until a nudge, a hurry or a stop. Returns whether there is a reason not to rest any more.
    fn rest(&self, clock: &Clock, time: Duration) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        let told = || is(&self.urgent) || is(&self.nudged) || self.is_stopped();
        self.server_time.lap();
        let mut lock = self.lock.lock();
        if !told() {
            let began = clock.now();
            clock.wait(&self.changed, &mut lock, Some(time));
            self.rested_ns.fetch_add((clock.now() - began).as_nanos() as u64, Ordering::Relaxed);
        }
        told()
    }

    /// How long sweeps have rested so far.
    pub fn rested(&self) -> Duration {
        Duration::from_nanos(self.rested_ns.load(Ordering::Relaxed))
    }
}

/// One sweep over the segments, to one copy.
pub(crate) struct Sweep<'a> {
    pub segments: &'a Segments,
    pub target: ImageTarget<'a>,
    /// The sweep ends before this segment.
    pub end: u32,
    pub pace: Pace<'a>,
    pub run: RunLength,
    /// Whether a segment's latch is released once the segment is copied, and not only once it is written.
    pub spool: bool,
    pub clock: &'a Clock,
    pub control: &'a SweepControl,
}

impl Sweep<'_> {
    /// Writes the catalog's images, copies what the policy chooses, and syncs the copy. After an error or a panic all
    /// segments that should have been in the copy are dirty for it again.
    pub fn run(&self, mut catalog: CatalogCopy<'_>, policy: &mut dyn SweepPolicy) -> Result<SweepStats> {
        let mut cleared = Cleared::new(self.segments, self.target.copy);
        let swept = self.sweep(&catalog, policy, &mut cleared)?;
        catalog.complete();
        cleared.keep();
        Ok(swept)
    }

    fn sweep(
        &self,
        catalog: &CatalogCopy<'_>,
        policy: &mut dyn SweepPolicy,
        cleared: &mut Cleared<'_>,
    ) -> Result<SweepStats> {
        const { assert!(SEGMENT_BYTES <= 64 << 10, "what is copied under one hold of a latch") };
        let ImageTarget { copy, file, .. } = self.target;
        let view = SweepView { segments: self.segments, copy, end: self.end };
        let mut stats = SweepStats { end: view.end, ..SweepStats::default() };
        let to_copy =
            (0..view.end).filter(|&segment| view.is_dirty(segment)).count() + catalog.images().len();
        // All room is taken at once, so that a full disk is met here, and writes do not extend the file one by one.
        let bytes = u64::from(view.end) * SEGMENT_BYTES as u64;
        if file.length()? < bytes {
            file.allocate(bytes)?;
        }
        let mut run = ImageRun::new(file, self.run, view.end);
        let mut synced = 0;
        let began = self.clock.now();
        let pause = |written_bytes: u64, segments: u64| {
            self.pause(|| match self.pace {
                _ if self.segments.snapshots().is_short() || self.segments.painting().is_pressed() => {
                    Duration::ZERO
                }
                Pace::Unpaced => Duration::ZERO,
                Pace::Bytes { log_presses, .. } if log_presses() => Duration::ZERO,
                Pace::Bytes { a_second, .. } => {
                    let due = began + Duration::from_secs_f64(written_bytes as f64 / a_second as f64);
                    due - self.clock.now()
                }
                Pace::Follow { within, log_used, .. } => {
                    // Segments that have become dirty since then count too.
                    let done = segments as f64 / segments.max(to_copy as u64) as f64;
                    match done > log_used() {
                        true => began + within.mul_f64(done) - self.clock.now(),
                        false => Duration::ZERO,
                    }
                }
            })
        };
        for system in catalog.images() {
            if !run.takes(system.number) {
                run.write()?;
                pause(stats.written_bytes, stats.segments)?;
            }
            run.begin(system.number);
            system.copy_to(run.room());
            self.seal(&mut run, system.number, (system.heap, system.used), &mut stats);
        }
        if self.segments.is_painted() {
            stats.latches += self.segments.paint_clean(copy, self.end);
        }
        // Segments that were latched: the sweep waits for them after all others are done.
        let mut busy = Vec::new();
        loop {
            fault_injection::pause(64);
            let (id, waits) = match policy.next(&view) {
                Some(id) => (id, false),
                None => match busy.pop() {
                    Some(id) => (id, true),
                    None => break,
                },
            };
            if catalog.holds(id) {
                continue;
            }
            // Pauses lie between runs, because one for each segment would cost more than copying it. Nor is a latch
            // held while images of other segments are written.
            if !run.takes(id.0) || !self.spool {
                run.write()?;
                if stats.written_bytes >= synced + SYNC_EVERY {
                    file.sync()?;
                    synced = stats.written_bytes;
                }
                // Commits wait for a segment that was asked for.
                if !self.segments.is_awaited(id) {
                    pause(stats.written_bytes, stats.segments)?;
                }
            }
            if self.control.is_stopped() {
                return Err(Error::Closed);
            }
            run.begin(id.0);
            cleared.note(id);
            let (visit, granted) = self.visit(id, waits, run.room(), &mut stats);
            let Swept { heap, used, latched } = match visit {
                SegmentVisit::Copied(swept) => swept,
                not_copied => {
                    cleared.forget_last();
                    if matches!(not_copied, SegmentVisit::Held) {
                        busy.push(id);
                    }
                    continue;
                }
            };
            let granted = granted.filter(|_| latched.is_some());
            let (heap, used, latched) = match heap {
                Some(heap) if !catalog.describes(heap) => {
                    // The copy has it as free, and lacks what it holds.
                    drop(latched);
                    self.segments.set_dirty(id, copy);
                    (None, 0, None)
                }
                heap => (heap, used, latched),
            };
            // A transaction that takes a free segment into use must not wait for the disk.
            let latched = latched.filter(|_| !self.spool && heap.is_some());
            let mut given_back = self.clock.now();
            self.seal(&mut run, id.0, (heap, used), &mut stats);
            if latched.is_some() {
                run.write()?;
                drop(latched);
                given_back = self.clock.now();
            }
            self.segments.note_painted();
            stats.hold_max =
                stats.hold_max.max(granted.map_or(Duration::ZERO, |granted| given_back - granted));
        }
        debug_assert!(
            !self.segments.is_painted() || !(0..view.end).any(|segment| view.is_white(segment)),
            "all is painted in the end"
        );
        run.write()?;
        pause(stats.written_bytes, stats.segments)?;
        if !fault_injection::is_on("images-not-synced") {
            file.sync()?;
        }
        stats.digest = self.target.sums.digest(copy, stats.end, self.target.seed);
        Ok(stats)
    }

    /// Makes an image of the segment, whose bytes are in the run's room.
    fn seal(
        &self,
        run: &mut ImageRun<'_>,
        segment: u32,
        (heap, used): (Option<HeapId>, usize),
        stats: &mut SweepStats,
    ) {
        let ImageTarget { copy, seed, sequence, sums, .. } = self.target;
        let (bytes, checksum) = run.seal(&ImageHeader { heap, segment, used, sequence }, seed);
        sums.set(copy, segment, checksum);
        stats.written_bytes += bytes;
        stats.segments += 1;
        stats.copied_bytes += used as u64;
    }

    /// Copies the segment if no latch or hold is in its way, or if the sweep `waits` for it. The second value is when
    /// its latch was granted, by the clock, if one was needed.
    fn visit<'a>(
        &'a self,
        id: SegmentId,
        waits: bool,
        room: &mut [u8],
        stats: &mut SweepStats,
    ) -> (SegmentVisit<'a>, Option<Moment>) {
        let segments = self.segments;
        if let Some(swept) = segments.sweep_snapshot(id, room) {
            return (SegmentVisit::Copied(swept), None);
        }
        let mut sweep = |latched| {
            let granted = self.clock.now();
            (segments.sweep(latched, id, self.target.copy, room), Some(granted))
        };
        stats.latches += 1;
        let visited = segments.try_latch(id).map_or((SegmentVisit::Held, None), &mut sweep);
        if !matches!(visited.0, SegmentVisit::Held) {
            return visited;
        }
        stats.busy += 1;
        // The sweep waits at once for a segment that commits wait for.
        if waits || segments.is_awaited(id) {
            return sweep(segments.await_holders(id));
        }
        visited
    }

    /// Rests as long as the sweep is `ahead` of its pace.
    fn pause(&self, ahead: impl Fn() -> Duration) -> Result<()> {
        self.control.forget_nudge();
        let mut look_every = match self.pace {
            Pace::Unpaced => Duration::MAX,
            Pace::Bytes { look_every, .. } | Pace::Follow { look_every, .. } => look_every,
        };
        if self.segments.snapshots().are_taken() {
            look_every = look_every.min(LOOK_AT_SNAPSHOTS_EVERY);
        }
        let mut left = ahead();
        if left < PAUSE_MIN {
            return Ok(());
        }
        while !left.is_zero() && !self.control.rest(self.clock, left.min(look_every)) {
            left = ahead();
        }
        if self.control.is_stopped() { Err(Error::Closed) } else { Ok(()) }
    }
}
