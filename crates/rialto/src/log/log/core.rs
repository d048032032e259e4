//! [`LogCore`]: the state that the log's threads and its committers share, and the operations on it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::account::processor::ProcessorTime;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::io::{Clock, DiskError};
use crate::log::files::FileTable;
use crate::log::follow::Following;
use crate::log::freed::Freed;
use crate::log::gather::{Gathered, Gatherer};
use crate::log::line::Line;
use crate::log::log::{LOOKS_AT_GATHERER, WhenFull};
use crate::log::marks::Marks;
use crate::log::packet::PoolOwner;
use crate::log::ring::RingView;
use crate::log::sync::System;
use crate::log::turn::{Committer, Turn, Waited, Writer};
use crate::log::wakers::{self, Listeners, WakerThreads, WokenListeners};
use crate::log::write_path::WritePath;
use crate::log::writer::{Counters, GroupWrite, GroupWriter};
use crate::log::{Durability, LogPoint, Patience};
use crate::unlikely::unlikely;
use crate::{Error, Lsn, Result, fault_injection};

/// The state that the log's threads and its committers share.
pub(crate) struct LogCore {
    pub(in crate::log) pool: PoolOwner,
    pub(in crate::log) writer: Writer<System>,
    /// The last packet that is durable at level 1.
    pub(in crate::log) memory: AtomicU64,
    pub(in crate::log) gatherer: Mutex<Gatherer>,
    pub(super) group_writer: Mutex<GroupWriter>,
    pub(in crate::log) ring: RingView,
    pub(in crate::log) files: Arc<FileTable>,
    /// The first error of the disk; nothing is tried again after it.
    pub(super) failure: Mutex<Option<DiskError>>,
    pub(super) listeners: Listeners,
    pub(super) waker_threads: WakerThreads,
    pub(super) counters: Arc<Counters>,
    /// Processor time of the log's threads.
    pub(super) server_time: ProcessorTime,
    pub(super) marks: Mutex<Marks>,
    pub(super) closed: AtomicBool,
    /// It is closed, or follows another log.
    pub(super) refuses_packets: AtomicBool,
    pub(in crate::log) following: Following,
    /// A block end up to which the log is on the disk.
    pub(super) on_disk: Mutex<LogPoint>,
    /// It is closed, and has written all that it has.
    pub(super) ended: AtomicBool,
    /// Wakes the transactions that wait for a slot.
    pub(super) freed: Freed,
    /// Called by a transaction that waits for room.
    pub(in crate::log) when_full: OnceLock<WhenFull>,
    /// The transactions that wait for room.
    pub(super) line: Line,
    /// How many transactions work for room that no further file can be made for.
    pub(super) short: AtomicU32,
    pub(super) flush_interval: Duration,
    pub(super) wait_max: Duration,
    pub(super) packet_slots: usize,
    /// The most packets that a committer puts into a group.
    pub(super) group_max: u64,
    pub(super) write_path: WritePath,
    /// Whether the log has its threads; without them every caller does all work itself.
    pub(in crate::log) threaded: bool,
    /// It has no threads, and is driven ([`LogThreads::Driven`](crate::log::LogThreads)).
    pub(super) driven: bool,
    /// Without threads: a caller asked for a group while another one wrote, and did not wait.
    pub(super) asked: AtomicBool,
}

fn stopped(error: &DiskError) -> Error {
    Error::Stopped { cause: Error::from(error.clone()).to_string(), disk_full: error.is_full() }
}

impl LogCore {
    pub(super) fn check_open(&self) -> Result<()> {
        if self.writer.stopped() {
            return Err(self.stop_error());
        }
        if self.refuses_packets.load(Ordering::Relaxed) { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        if self.closed.load(Ordering::SeqCst) { Error::Closed } else { Error::Following }
    }

    /// The log follows no other one any more.
    pub(in crate::log) fn take_packets(&self) {
        self.refuses_packets.store(false, Ordering::SeqCst);
        // It may have been closed meanwhile.
        if self.closed.load(Ordering::SeqCst) {
            self.refuses_packets.store(true, Ordering::SeqCst);
        }
    }

    /// Stops the log, since a write has failed (I4).
    pub(in crate::log) fn stop_with(&self, error: DiskError) -> Error {
        self.failure.lock().get_or_insert(error);
        self.writer.stop();
        self.stop_error()
    }

    pub(in crate::log) fn stop_error(&self) -> Error {
        self.failure.lock().as_ref().map_or_else(
            || Error::Stopped {
                cause: "a thread panicked while it wrote the log".to_owned(),
                disk_full: false,
            },
            stopped,
        )
    }

    fn outcome_unknown(&self, lsn: Lsn) -> Error {
        match self.stop_error() {
            Error::Stopped { cause, .. } => Error::OutcomeUnknown { lsn, cause },
            other => other,
        }
    }

    /// Gathers what is queued, unless another thread does. Returns whether the place is durable at level 1 then.
    #[inline(always)]
    pub(super) fn gathers(&self, lsn: Lsn) -> bool {
        if self.writer.stopped() {
            return false;
        }
        let Some(mut gatherer) = self.gatherer.try_lock() else { return false };
        self.gather_queued(&mut gatherer);
        drop(gatherer);
        if unlikely(self.listeners.wait_for(Durability::Memory)) {
            self.hand_over_listeners(Durability::Memory);
        }
        self.memory.load(Ordering::SeqCst) >= lsn.0
    }

    /// Gathers what is queued and makes it durable at level 1.
    pub(super) fn gather_now(&self) -> Gathered {
        if self.writer.stopped() { Gathered::All } else { self.gather_all(self.gatherer.lock()) }
    }

    /// The same, unless another thread gathers this place.
    pub(super) fn gather_to(&self, lsn: Lsn) -> Gathered {
        if self.writer.stopped() {
            return Gathered::All;
        }
        match self.gatherer_unless_reached(lsn) {
            Some(gatherer) => self.gather_all(gatherer),
            None => {
                // The thread that gathered may write the group before it hands the listeners over.
                if unlikely(self.listeners.wait_for(Durability::Memory)) {
                    self.hand_over_listeners(Durability::Memory);
                }
                Gathered::All
            }
        }
    }

    fn gather_all(&self, mut gatherer: MutexGuard<'_, Gatherer>) -> Gathered {
        let gathered = self.gather_queued(&mut gatherer);
        drop(gatherer);
        self.hand_over_listeners(Durability::Memory);
        gathered
    }

    /// The gatherer; `None` if the place is durable at level 1. The holder of the gatherer gathers for all that are
    /// queued, which takes less time than falling asleep and being woken.
    fn gatherer_unless_reached(&self, lsn: Lsn) -> Option<MutexGuard<'_, Gatherer>> {
        let is_reached = || self.memory.load(Ordering::SeqCst) >= lsn.0;
        for _ in 0..LOOKS_AT_GATHERER {
            if is_reached() {
                return None;
            }
            if let Some(gatherer) = self.gatherer.try_lock() {
                return Some(gatherer);
            }
            std::hint::spin_loop();
        }
        let gatherer = self.gatherer.lock();
        (!is_reached()).then_some(gatherer)
    }

    /// As [`LogCore::gather`], for a thread that does not write the group itself: it requests that write. Therefore
    /// what is durable at level 1 reaches the disk within the interval (I3), whichever thread gathered it, and a
    /// committer that finds its place gathered requests nothing.
    pub(super) fn gather_queued(&self, gatherer: &mut Gatherer) -> Gathered {
        let before = gatherer.lsn();
        let gathered = self.gather(gatherer, u64::MAX);
        if gatherer.lsn() > before && !fault_injection::is_on("gathered-for-others-unasked") {
            self.writer.ask_soon();
        }
        gathered
    }

    /// Moves what is queued into the ring, up to the place `last`, which makes it durable at level 1.
    fn gather(&self, gatherer: &mut Gatherer, last: u64) -> Gathered {
        let before = gatherer.lsn();
        let gathered = gatherer.gather(&self.pool, last);
        self.memory.store(gatherer.lsn(), Ordering::SeqCst);
        self.freed.tell(gatherer.lsn() - before);
        gathered
    }

    /// Writes one group: gather, seal, write, sync, publish, wake. Does nothing once the log has stopped (I4).
    pub(in crate::log) fn write_group(&self, turn: Turn<'_, System>) -> Gathered {
        self.write_group_and_wake(turn, OwnListeners::HandOver)
    }

    /// As [`LogCore::write_group`]; `own` says what becomes of the engine's own listeners that the group served.
    fn write_group_and_wake(&self, turn: Turn<'_, System>, own: OwnListeners) -> Gathered {
        // Listeners are woken even if this panics, after the turn's drop has stopped the log. Dropped last, without a
        // turn.
        let _wake = WakeListeners { core: self, own };
        let place = || self.pool.place().0;
        let mut turn = turn;
        let mut gathered = Gathered::All;
        if !self.writer.stopped() {
            let (mut group, end, mark, lsn);
            (group, end, mark, lsn, gathered) = self.take_group();
            turn.begin(lsn, place);
            // The group is durable at level 1 already.
            if unlikely(self.listeners.wait_for(Durability::Memory)) {
                self.hand_over_listeners(Durability::Memory);
            }
            match group.write(self.clock()) {
                Ok(took) => {
                    // Groups complete in their order (I4). This one does not if a group before it failed.
                    if turn.publish(lsn, took, place, || {
                        self.reach_on_disk(end);
                        group.complete(took);
                    }) && gathered != Gathered::RingFull
                    {
                        // If the ring was full, the group may end inside a packet, and a mark there would leave out the
                        // packet's beginning.
                        self.marks.lock().add(mark.lsn, mark.position.0);
                    }
                }
                Err(error) => _ = self.stop_with(error),
            }
        }
        turn.release(place);
        if gathered != Gathered::All && self.threaded {
            // The group took the requests of packets that it left behind.
            self.writer.ask_soon();
            self.writer.ask_now();
        }
        // A thread that asked while this one wrote did not wait: this one writes for it.
        if !self.threaded && self.asked.load(Ordering::SeqCst) {
            self.ask_or_write();
        }
        gathered
    }

    /// Gathers the next group; returns where its last block ends, a point after which no packet before it has bytes, and
    /// its last place. For the holder of the writer word.
    fn take_group(&self) -> (GroupWrite, LogPoint, LogPoint, u64, Gathered) {
        let mut group_writer = self.group_writer.lock();
        let mut gatherer = self.gatherer.lock();
        if let Some(pages) = gatherer.take_appended_pages() {
            drop(gatherer);
            // A page that is not full may be on the disk, in the record.
            let lsn = pages.end.lsn.0.max(self.writer.durable());
            return (group_writer.take(pages.to, lsn), pages.end, pages.mark, lsn, Gathered::All);
        }
        let gathered = self.gather(&mut gatherer, group_writer.lsn().saturating_add(self.group_max));
        if gatherer.position() > group_writer.position() {
            gatherer.seal();
        }
        let end = gatherer.end();
        (group_writer.take(end.position.0, end.lsn.0), end, end, end.lsn.0, gathered)
    }

    /// The log is on the disk up to this block end.
    #[inline]
    pub(in crate::log) fn reach_on_disk(&self, end: LogPoint) {
        let mut on_disk = self.on_disk.lock();
        if on_disk.position < end.position {
            *on_disk = end;
        }
    }

    /// The last block end up to which the log is known to be on the disk.
    pub(in crate::log) fn on_disk_point(&self) -> LogPoint {
        match fault_injection::is_on("on-disk-point-is-the-end") {
            true => self.gatherer.lock().end(),
            false => *self.on_disk.lock(),
        }
    }

    /// The clock for the log's waits and times.
    pub(in crate::log) fn clock(&self) -> &Clock {
        &self.writer.machine().clock
    }

    pub(super) fn wait(&self, lsn: Lsn, durability: Durability, patience: &Patience) -> Result<()> {
        debug_assert!(lsn <= self.pool.place(), "a wait for a place that no commit has taken");
        if fault_injection::is_on("reply-before-durability") {
            return Ok(());
        }
        if durability == Durability::Memory && self.wait_for_memory(lsn)? {
            return Ok(());
        }
        // What is redone of another log is durable there.
        if unlikely(self.following.is_on()) {
            return Ok(());
        }
        let place = || self.pool.place().0;
        let write = |turn: Turn<'_, System>| _ = self.write_group(turn);
        let committer = Committer {
            lsn: lsn.0,
            stand_in: false,
            started: patience.began.map(|began| self.writer.machine().at(began)),
            stall: patience.stall,
            willing_to_wait: patience.willing_to_wait,
            level_1: None,
        };
        let _waiting = WaitGuard::enter(self.clock(), Awaited::Log);
        match self.writer.wait(&committer, place, write) {
            Waited::Durable => Ok(()),
            Waited::Stopped => Err(self.outcome_unknown(lsn)),
        }
    }

    /// Whether `lsn` is in the ring. `false` if the ring was full: then the caller has to wait for the disk.
    fn wait_for_memory(&self, lsn: Lsn) -> Result<bool> {
        if self.memory.load(Ordering::SeqCst) < lsn.0 {
            if self.writer.stopped() {
                return Err(self.outcome_unknown(lsn));
            }
            self.gather_to(lsn);
            if self.memory.load(Ordering::SeqCst) < lsn.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn is_done(&self, lsn: Lsn, durability: Durability) -> Option<Result<()>> {
        if self.has_reached(lsn, durability) {
            return Some(Ok(()));
        }
        self.writer.stopped().then(|| Err(self.outcome_unknown(lsn)))
    }

    /// Has the listeners woken whose places this level has reached. Runs none of them here.
    pub(in crate::log) fn hand_over_listeners(&self, durability: Durability) {
        self.waker_threads.hand_over_own(self.take_listeners(durability));
    }

    /// Takes the engine's own listeners whose places this level has reached; hands foreign ones over.
    fn take_listeners(&self, durability: Durability) -> WokenListeners {
        if !self.listeners.wait_for(durability) {
            return WokenListeners::new();
        }
        let has_passed = |lsn| self.has_reached(lsn, durability) || self.writer.stopped();
        self.listeners.take(durability, has_passed, &self.waker_threads)
    }

    pub(super) fn has_reached(&self, lsn: Lsn, durability: Durability) -> bool {
        durability == Durability::Memory && self.memory.load(Ordering::SeqCst) >= lsn.0
            || self.writer.durable() >= lsn.0
    }

    pub(super) fn ask_or_write(&self) {
        if self.following.is_on() && !self.threaded {
            // The log keeps the error of a write.
            let _ = self.write_appended(true);
            return;
        }
        if self.threaded {
            self.writer.ask_now();
            return;
        }
        // Set before the turn is tried: the holder of the turn looks for this after it has given the turn back.
        self.asked.store(true, Ordering::SeqCst);
        while let Some(turn) = self.writer.try_take() {
            self.asked.store(false, Ordering::SeqCst);
            if self.write_group(turn) == Gathered::All {
                return;
            }
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        if self.following.is_on() {
            self.sync_all_appended()?;
            if self.following.is_on() {
                return Ok(());
            }
        }
        self.sync_packets()
    }

    /// As [`LogCore::sync`], of a log that follows no other one.
    pub(in crate::log) fn sync_packets(&self) -> Result<()> {
        let lsn = self.pool.place();
        loop {
            if self.writer.durable() >= lsn.0 && self.ring.filled() == self.ring.released() {
                return Ok(());
            }
            if self.writer.stopped() {
                return Err(self.stop_error());
            }
            let turn = self.writer.take(|| self.pool.place().0);
            self.write_group(turn);
            if self.writer.durable() >= lsn.0 && !self.writer.stopped() {
                return Ok(());
            }
        }
    }

    /// The loop of the log server's thread.
    pub(super) fn serve(&self) {
        let place = || self.pool.place().0;
        let stand_in = || Committer::stand_in(place());
        self.writer.serve(self.flush_interval, stand_in, place, |turn| {
            if self.following.is_on() {
                turn.release(place);
                // The log keeps the error of a write.
                let _ = self.write_appended(true);
                return;
            }
            self.write_group_and_wake(turn, OwnListeners::Run);
            self.server_time.lap();
        });
    }
}

/// What the thread that wrote a group does with the engine's own listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnListeners {
    /// It runs them: it is the log server, and holds nothing.
    Run,
    HandOver,
}

/// Wakes, when it is dropped, the listeners that a group served. By then the turn has been given back.
struct WakeListeners<'a> {
    pub(super) core: &'a LogCore,
    own: OwnListeners,
}

impl Drop for WakeListeners<'_> {
    fn drop(&mut self) {
        // There is room in the ring to gather more, or the log has stopped.
        self.core.freed.tell(u64::MAX);
        // What is on disk is durable at both levels.
        for durability in [Durability::Memory, Durability::Disk] {
            let own =
                if fault_injection::is_on("wakers-on-the-committer") { OwnListeners::Run } else { self.own };
            match own {
                OwnListeners::Run => wakers::run_all(self.core.take_listeners(durability)),
                OwnListeners::HandOver => self.core.hand_over_listeners(durability),
            }
        }
        if !self.core.driven {
            self.core.waker_threads.wake_here();
        }
    }
}
