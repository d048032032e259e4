//! The log itself: what the engine calls.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::archive::Archiver;
use super::files::FileTable;
use super::gather::{Gathered, Gatherer, cost};
use super::marks::Marks;
use super::open::Parts;
use super::packet::{HomeSlot, PacketSlot, PoolOwner};
use super::ring::RingView;
use super::sync::System;
use super::turn::{Committer, Turn, Waited, Writer};
use super::write_path::WritePath;
use super::writer::{Counters, Flight, GroupWriter, LogStats};
use super::{
    Durability, HELD_BY_BYTES, LogOptions, LogPosition, LogThreads, PACKET_BYTES_MAX, PacketKind, Patience,
};
use crate::account::processor::ProcessorTime;
use crate::account::waits::Waiting;
use crate::io::DiskError;
use crate::rarely::rarely;
use crate::{Error, Lsn, Result};

/// How often a reserver looks again while it waits for room or for a slot.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Logs with fewer packet slots give none of them away for good.
const SLOTS_WITH_HOMES: usize = 8_192;

/// The log of a database.
///
/// A transaction [borrows](Log::borrow_packet) a slot, writes its packet into it, [reserves](Log::reserve) room,
/// [pushes](Log::push) (its place, I2), applies, [gives the slot back](Log::applied), and then either
/// [waits](Log::wait) or [leaves](Log::leave) the packet to the log server. Every push is followed by one of the two:
/// that is what bounds how long a commit that nobody waits for stays off the disk (I3).
pub struct Log {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the log's threads share.
pub(crate) struct Core {
    pool: PoolOwner,
    writer: Writer<System>,
    /// The last packet that is durable at level 1.
    memory: AtomicU64,
    gatherer: Mutex<Gatherer>,
    group_writer: Mutex<GroupWriter>,
    ring: RingView,
    files: Arc<FileTable>,
    failure: OnceLock<DiskError>,
    tickets: Mutex<Vec<Ticket>>,
    tickets_open: AtomicU64,
    counters: Arc<Counters>,
    /// Processor time of the log's threads.
    server_time: ProcessorTime,
    marks: Mutex<Marks>,
    closed: AtomicBool,
    flush_interval: Duration,
    wait_max: Duration,
    packet_slots: usize,
    /// The most packets that a committer puts into a group.
    group_max: u64,
    write_path: WritePath,
    /// Whether the log has its threads; without them every caller does all work itself.
    threaded: bool,
}

#[derive(Debug)]
struct Ticket {
    lsn: Lsn,
    durability: Durability,
    waker: Waker,
}

impl Log {
    pub(super) fn start(parts: Parts, options: &LogOptions) -> Result<Arc<Log>> {
        let position = parts.gatherer.position();
        let lsn = parts.gatherer.lsn();
        let core = Arc::new(Core {
            pool: PoolOwner::new(options.packet_slots, Lsn(lsn)),
            writer: Writer::new(
                System::new(),
                options.group_commit.policy(),
                lsn,
                parts.write_path.in_flight,
            ),
            memory: AtomicU64::new(lsn),
            gatherer: Mutex::new(parts.gatherer),
            group_writer: Mutex::new(parts.group_writer),
            ring: parts.ring,
            files: parts.files,
            failure: OnceLock::new(),
            tickets: Mutex::new(Vec::new()),
            tickets_open: AtomicU64::new(0),
            counters: parts.counters,
            server_time: ProcessorTime::default(),
            marks: Mutex::new(parts.marks),
            closed: AtomicBool::new(false),
            flush_interval: options.memory_flush_interval,
            wait_max: options.wait_max,
            packet_slots: options.packet_slots,
            write_path: parts.write_path,
            group_max: options.group_commit.group_max.map_or(u64::MAX, u64::from),
            threaded: options.threads == LogThreads::Background,
        });
        debug_assert!(core.ring.released() == position);
        let log = Arc::new(Log { core, threads: Mutex::new(Vec::new()) });
        if options.threads == LogThreads::Background {
            let (server, preparer) = (log.core.clone(), log.core.clone());
            log.spawn("rialto-log", move || server.serve())?;
            log.spawn("rialto-log-file", move || preparer.files.serve(|| preparer.server_time.lap()))?;
        } else {
            log.core.writer.close();
        }
        Ok(log)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread =
            std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|error| Error::Io {
                file: name.to_owned(),
                offset: 0,
                operation: "start of the thread".to_owned(),
                cause: error.to_string(),
            })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// As [`Log::borrow_packet`], without waiting; none if all are taken.
    #[inline]
    pub fn try_borrow_packet(&self) -> Result<Option<PacketSlot>> {
        self.core.check_open()?;
        Ok(self.core.pool.borrow())
    }

    /// A slot for a transaction's packet, its buffer empty.
    ///
    /// Waits for one at most [`LogOptions::wait_max`]; then, holding nothing, [`Error::TooManyPackets`] (I10).
    /// [`Error::Stopped`] and [`Error::Closed`] if the log takes no more.
    #[inline(always)]
    pub fn borrow_packet(&self) -> Result<PacketSlot> {
        match self.try_borrow_packet()? {
            Some(slot) => Ok(slot),
            None => self.wait_for_packet(),
        }
    }

    /// As [`Log::try_borrow_packet`], the home if it is free. One is made where there are slots for many.
    #[inline(always)]
    pub(crate) fn try_borrow_packet_at(&self, home: &mut Option<HomeSlot>) -> Result<Option<PacketSlot>> {
        match home.as_mut().and_then(HomeSlot::borrow) {
            Some(slot) => {
                self.core.check_open()?;
                Ok(Some(slot))
            }
            None => self.try_borrow_beside(home),
        }
    }

    #[inline(never)]
    fn try_borrow_beside(&self, home: &mut Option<HomeSlot>) -> Result<Option<PacketSlot>> {
        if home.is_none() && self.core.packet_slots >= SLOTS_WITH_HOMES {
            *home = self.core.pool.home();
        }
        self.try_borrow_packet()
    }

    #[cold]
    fn wait_for_packet(&self) -> Result<PacketSlot> {
        let core = &*self.core;
        let _waiting = Waiting::for_log();
        let until = Instant::now() + core.wait_max;
        loop {
            // Slots may only wait for being gathered.
            if core.gather_now() == Gathered::RingFull {
                core.ask_or_write();
            }
            if let Some(slot) = core.pool.borrow() {
                return Ok(slot);
            }
            core.check_open()?;
            if Instant::now() >= until {
                return Err(Error::TooManyPackets { limit: core.packet_slots });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Reserves log space for the packet as it is now, or for one of `bytes` bytes if that is more (I10): one addition
    /// to a shared word. Waits for room at most [`LogOptions::wait_max`], then [`Error::LogFull`].
    pub fn reserve(&self, packet: &mut PacketSlot, bytes: usize) -> Result<()> {
        if self.try_reserve(packet, bytes)? {
            return Ok(());
        }
        let needed = cost(packet.bytes().len().max(bytes) + HELD_BY_BYTES);
        self.core.promise_slowly(needed - packet.promised())?;
        packet.set_promised(needed);
        Ok(())
    }

    /// As [`Log::reserve`], without waiting; false if there is no room now.
    pub fn try_reserve(&self, packet: &mut PacketSlot, bytes: usize) -> Result<bool> {
        let core = &*self.core;
        let length = packet.bytes().len().max(bytes);
        if length > PACKET_BYTES_MAX {
            return Err(Error::WriteSetTooLarge { length, limit: PACKET_BYTES_MAX });
        }
        core.check_open()?;
        let (needed, had) = (cost(length + HELD_BY_BYTES), packet.promised());
        let there = needed <= had || core.promise(needed - had);
        if there {
            packet.set_promised(needed.max(had));
        }
        Ok(there)
    }

    /// As [`Log::try_reserve`] for the packet as it is now; false if there is more to it than one addition.
    #[inline(always)]
    pub(crate) fn reserves_at_once(&self, packet: &mut PacketSlot) -> bool {
        let core = &*self.core;
        let length = packet.bytes().len();
        if length > PACKET_BYTES_MAX || packet.promised() != 0 || !self.is_open() {
            return false;
        }
        let needed = cost(length + HELD_BY_BYTES);
        let there = core.promise(needed);
        if there {
            packet.set_promised(needed);
        }
        there
    }

    /// Whether it takes packets: it has neither stopped nor been closed.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !self.core.writer.stopped() && !self.core.closed.load(Ordering::Relaxed)
    }

    /// An error unless it takes packets.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.core.check_open()
    }

    /// Takes the next place and makes the packet durable at level 1, in one go: what [`Log::push`] and the gathering of a lone
    /// committer's packet come to, without a queue between them. For packets with nothing reserved. None, and nothing is done,
    /// where others are at it too, or there is more to it: reserve and push then.
    ///
    /// The packet has no place of its own to be [applied](Log::applied) by: it stays the owner's.
    #[inline(never)]
    pub(crate) fn place_alone(&self, packet: &PacketSlot, kind: PacketKind) -> Option<Lsn> {
        let core = &*self.core;
        let bytes = packet.bytes();
        if rarely(core.writer.stopped() || packet.promised() != 0) {
            return None;
        }
        let mut gatherer = core.gatherer.try_lock()?;
        let lsn = gatherer.place_alone(&core.pool, bytes, kind as u8, |needed| core.promise(needed))?;
        core.memory.store(lsn.0, Ordering::SeqCst);
        gatherer.look_at_files();
        drop(gatherer);
        if rarely(core.tickets_open.load(Ordering::SeqCst) != 0) {
            core.wake_tickets();
        }
        // I3: what only level 1 waited for is on disk within the interval all the same.
        core.writer.ask_soon();
        Some(lsn)
    }

    /// Takes the next place in the log order (I2). Cannot fail: the caller has reserved what it takes, panics otherwise.
    ///
    /// After it, apply, give the slot back with [`Log::applied`], then [`Log::wait`] or [`Log::leave`].
    pub fn push(&self, packet: &mut PacketSlot, kind: PacketKind) -> Lsn {
        self.check_reserved(packet, packet.bytes().len());
        packet.push(kind)
    }

    fn check_reserved(&self, packet: &PacketSlot, length: usize) {
        assert!(
            packet.promised() >= cost(length),
            "I10: a packet of {length} bytes has no log space reserved"
        );
        debug_assert!(std::ptr::eq(packet.pool(), &*self.core.pool), "the packet belongs to another log");
    }

    /// As [`Log::push`], for a packet that the backup copy of this sweep holds ([`Packet::held_by`]): the number goes behind
    /// the packet's bytes, for which [`Log::reserve`] keeps room.
    ///
    /// [`Packet::held_by`]: super::Packet::held_by
    pub fn push_held(&self, packet: &mut PacketSlot, kind: PacketKind, sweep: u32) -> Lsn {
        self.check_reserved(packet, packet.bytes().len() + HELD_BY_BYTES);
        packet.push_held(kind, sweep)
    }

    /// As [`Log::push`], for a call: of the packet's bytes only those from `from` on go into the log. With a sweep, as
    /// [`Log::push_held`].
    pub(crate) fn push_call(&self, packet: &mut PacketSlot, from: u32, held_by: Option<u32>) -> Lsn {
        self.check_reserved(packet, packet.bytes().len() + HELD_BY_BYTES);
        packet.push_call(from, held_by)
    }

    /// The owner has applied the packet and needs it no longer.
    #[inline(always)]
    pub fn applied(&self, packet: PacketSlot) {
        packet.applied();
    }

    /// Waits until every place up to `lsn` is as durable as asked; may write the log itself.
    ///
    /// [`Error::OutcomeUnknown`] if the log stopped before (I4).
    pub fn wait(&self, lsn: Lsn, durability: Durability, patience: &Patience) -> Result<()> {
        self.core.wait(lsn, durability, patience)
    }

    /// Leaves the packet with this place, which nobody waits for yet, to the log server. [`Durability::Disk`]: it is on disk when
    /// it has lingered ([`GroupCommitOptions::linger`](super::GroupCommitOptions)), at once in other designs than the log
    /// server's. [`Durability::Memory`]: within [`LogOptions::memory_flush_interval`] and the time of two group writes; in the
    /// shared memory it is when this returns, unless the ring is full. Does no I/O. In the designs that elect a committer the log
    /// server is the stand-in for all packets left to it together; it stalls as the design is set, and knows of no
    /// transaction's own [`Patience`].
    pub fn leave(&self, lsn: Lsn, durability: Durability) {
        let core = &*self.core;
        match durability {
            Durability::Memory if core.memory.load(Ordering::SeqCst) >= lsn.0 => core.writer.ask_soon(),
            Durability::Memory => match core.gather_now() {
                Gathered::All => core.writer.ask_soon(),
                Gathered::RingFull | Gathered::GroupFull => core.ask_or_write(),
            },
            Durability::Disk if core.writer.durable() >= lsn.0 => {}
            Durability::Disk if core.threaded => core.writer.ask_unhurried(),
            Durability::Disk => core.ask_or_write(),
        }
    }

    /// Whether every place up to `lsn` is as durable as asked; an error if it never will be.
    pub fn is_done(&self, lsn: Lsn, durability: Durability) -> Option<Result<()>> {
        self.core.is_done(lsn, durability)
    }

    /// Whether every place up to `lsn` is as durable as asked: the quick answer of [`Log::is_done`].
    #[inline]
    pub fn has_reached(&self, lsn: Lsn, durability: Durability) -> bool {
        let core = &*self.core;
        durability == Durability::Memory && core.memory.load(Ordering::SeqCst) >= lsn.0
            || core.writer.durable() >= lsn.0
    }

    /// As [`Log::has_reached`], after gathering what is queued if that is all it takes. Never sleeps.
    #[inline(always)]
    pub(crate) fn reaches(&self, lsn: Lsn, durability: Durability) -> bool {
        self.has_reached(lsn, durability) || durability == Durability::Memory && self.core.gathers(lsn)
    }

    /// Has `waker` woken when [`Log::is_done`] answers: for somebody who waits, so that the packet is written at once. Returns the
    /// answer if it is there already; the waker is then not kept.
    pub fn register_waker(&self, lsn: Lsn, durability: Durability, waker: &Waker) -> Option<Result<()>> {
        self.register(lsn, durability, waker, || match durability {
            Durability::Disk => self.core.ask_or_write(),
            Durability::Memory => self.leave(lsn, durability),
        })
    }

    /// As [`Log::register_waker`], for somebody who has other things to do meanwhile: the packet may linger.
    pub(crate) fn register_patient_waker(
        &self,
        lsn: Lsn,
        durability: Durability,
        waker: &Waker,
    ) -> Option<Result<()>> {
        self.register(lsn, durability, waker, || self.leave(lsn, durability))
    }

    fn register(
        &self,
        lsn: Lsn,
        durability: Durability,
        waker: &Waker,
        ask: impl FnOnce(),
    ) -> Option<Result<()>> {
        let core = &*self.core;
        if let Some(done) = core.is_done(lsn, durability) {
            return Some(done);
        }
        let mut tickets = core.tickets.lock();
        core.tickets_open.fetch_add(1, Ordering::SeqCst);
        tickets.push(Ticket { lsn, durability, waker: waker.clone() });
        drop(tickets);
        // Whoever advances a position from here on sees the count; what was advanced before, this sees.
        if core.is_done(lsn, durability).is_some() {
            core.wake_tickets();
        } else {
            ask();
        }
        None
    }

    /// Somebody waits for what was left to the log server: it is written at once.
    pub(crate) fn hurry(&self) {
        if self.core.writer.durable() < self.core.pool.place().0 {
            self.core.ask_or_write();
        }
    }

    /// The last place taken.
    pub fn place(&self) -> Lsn {
        self.core.pool.place()
    }

    /// Every place up to this one is durable at level 1.
    pub fn memory_position(&self) -> Lsn {
        Lsn(self.core.memory.load(Ordering::SeqCst).max(self.core.writer.durable()))
    }

    /// Every place up to this one is durable at level 3.
    pub fn durable_position(&self) -> Lsn {
        Lsn(self.core.writer.durable())
    }

    /// The position in the stream up to which it is on disk.
    pub fn durable_bytes(&self) -> LogPosition {
        LogPosition(self.core.ring.released())
    }

    /// Makes every place taken so far durable on disk.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Frees the log files that hold only packets before `lsn`, for reuse; how many. For the checkpointer, once no
    /// complete checkpoint needs them (I5).
    pub fn free_before(&self, lsn: Lsn) -> Result<u64> {
        self.core.check_open()?;
        let freed = self.core.files.free_before(lsn, self.core.ring.released())?;
        self.core.marks.lock().forget_before(self.core.files.extent().0);
        Ok(freed)
    }

    /// Has what is freed copied to an archive first.
    pub(crate) fn archive_to(&self, archiver: Archiver) {
        self.core.files.archive_to(archiver);
    }

    /// What copies files to the archive, if there is one.
    pub(crate) fn archiver(&self) -> Option<&Archiver> {
        self.core.files.archiver()
    }

    /// Has the archive take all before a durable position.
    pub(crate) fn archive_up_to(&self, position: LogPosition) -> Result<()> {
        self.core.files.archive_all(position.0)
    }

    /// About how many bytes of log follow this place: what redo from there would read. Exact to 256 KiB and
    /// the groups in flight.
    pub fn bytes_since(&self, lsn: Lsn) -> u64 {
        let marked = self.core.marks.lock().position_of(lsn);
        let from = marked.unwrap_or_else(|| self.core.files.extent().0);
        self.core.ring.filled().saturating_sub(from)
    }

    /// The end of the stream, with what is not written yet.
    pub(crate) fn end_position(&self) -> u64 {
        self.core.ring.filled()
    }

    /// Log files that exist now, prepared ones included.
    pub fn file_count(&self) -> usize {
        self.core.files.extent().1
    }

    /// How the log files are written.
    pub fn write_path(&self) -> WritePath {
        self.core.write_path
    }

    /// What the log has written since it was opened.
    pub fn stats(&self) -> LogStats {
        self.core.counters.read(self.core.writer.waits())
    }

    /// Processor time of the log's own threads: the log server, and who prepares files.
    pub(crate) fn server_time(&self) -> Duration {
        self.core.server_time.read()
    }

    /// Adds to the stalls of all committers from now on, in place of what was added before; zero for nothing. Designs
    /// that do not stall stay as they are.
    pub fn raise_stalls(&self, by: Duration) {
        self.core.writer.raise_stalls(by);
    }

    /// What [`Log::raise_stalls`] was last told.
    pub fn raised_stalls(&self) -> Duration {
        self.core.writer.raised_stalls()
    }

    /// Bytes of the stream that are promised.
    #[cfg(test)]
    pub(crate) fn promised(&self) -> u64 {
        self.core.pool.promised().load(Ordering::SeqCst)
    }

    /// The error that stopped the log, if one did.
    pub fn failure(&self) -> Option<Error> {
        self.core.failure.get().map(stopped)
    }

    /// Makes everything durable and ends the log's threads. What it answers is the last sync's outcome. Later
    /// reservations get [`Error::Closed`].
    pub fn close(&self) -> Result<()> {
        self.core.closed.store(true, Ordering::SeqCst);
        let threads = std::mem::take(&mut *self.threads.lock());
        self.core.writer.close();
        self.core.files.close();
        for thread in threads {
            // A panic of the thread has stopped the log already (Turn's drop), which the sync below reports.
            let _ = thread.join();
        }
        self.core.sync()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Whoever needs to know how it ends calls `close`.
        let _ = self.close();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("place", &self.place())
            .field("memory", &self.memory_position())
            .field("durable", &self.durable_position())
            .finish()
    }
}

fn stopped(error: &DiskError) -> Error {
    Error::Stopped { cause: Error::from(error.clone()).to_string(), disk_full: error.is_full() }
}

impl Core {
    fn check_open(&self) -> Result<()> {
        if self.writer.stopped() {
            return Err(self.stop_error());
        }
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    fn stop_error(&self) -> Error {
        self.failure.get().map_or_else(
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

    /// Counts `bytes` of stream as promised if prepared files hold them.
    fn promise(&self, bytes: u64) -> bool {
        let promised = self.pool.promised().fetch_add(bytes, Ordering::SeqCst) + bytes;
        // Read in this order: the gatherer advances the position before it takes a promise back.
        if self.ring.filled() + promised <= self.files.prepared() {
            return true;
        }
        self.pool.promised().fetch_sub(bytes, Ordering::SeqCst);
        false
    }

    fn promise_slowly(&self, bytes: u64) -> Result<()> {
        self.gatherer.lock().close_allotment(&self.pool);
        if self.promise(bytes) {
            return Ok(());
        }
        let _waiting = Waiting::for_log();
        let until = Instant::now() + self.wait_max;
        loop {
            let wanted = self.ring.filled() + self.pool.promised().load(Ordering::SeqCst) + bytes;
            let problem = if self.threaded {
                self.files.want(wanted.max(self.files.prepared() + 1));
                self.files.wait_for_attempt(LOOK_AGAIN * 10)
            } else {
                self.files.prepare().err().map(|error| match error {
                    Error::LogFull { reason } => reason,
                    error => error.to_string(),
                })
            };
            self.gather_now();
            if self.promise(bytes) {
                return Ok(());
            }
            self.check_open()?;
            if Instant::now() >= until || problem.is_some() && !self.threaded {
                let reason = problem.unwrap_or_else(|| "the next log file is not ready yet".to_owned());
                return Err(Error::LogFull { reason });
            }
            if problem.is_some() {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    /// Gathers what is queued, unless somebody else does; whether the place is durable at level 1 by that.
    #[inline(always)]
    fn gathers(&self, lsn: Lsn) -> bool {
        if self.writer.stopped() {
            return false;
        }
        let Some(mut gatherer) = self.gatherer.try_lock() else { return false };
        self.gather(&mut gatherer, u64::MAX);
        drop(gatherer);
        if rarely(self.tickets_open.load(Ordering::SeqCst) != 0) {
            self.wake_tickets();
        }
        let reached = self.memory.load(Ordering::SeqCst) >= lsn.0;
        // I3: what only level 1 waited for is on disk within the interval all the same.
        if reached && self.writer.durable() < lsn.0 {
            self.writer.ask_soon();
        }
        reached
    }

    /// Gathers what is queued and makes it durable at level 1.
    fn gather_now(&self) -> Gathered {
        if self.writer.stopped() {
            return Gathered::All;
        }
        let mut gatherer = self.gatherer.lock();
        let gathered = self.gather(&mut gatherer, u64::MAX);
        drop(gatherer);
        self.wake_tickets();
        gathered
    }

    fn gather(&self, gatherer: &mut Gatherer, last: u64) -> Gathered {
        let gathered = gatherer.gather(&self.pool, last);
        self.memory.store(gatherer.lsn(), Ordering::SeqCst);
        gathered
    }

    /// Writes one group: gather, seal, write, sync, publish, wake. Does nothing once the log has stopped (I4).
    fn write_group(&self, turn: Turn<'_, System>) -> Gathered {
        // Also if this panics, after the turn's drop has stopped the log.
        let _wake = WakeTickets(self);
        let place = || self.pool.place().0;
        let mut turn = turn;
        let mut gathered = Gathered::All;
        if !self.writer.stopped() {
            let (mut flight, to, lsn);
            (flight, to, lsn, gathered) = self.take_group();
            turn.begin(lsn, place);
            match flight.write() {
                Ok(took) => {
                    // Groups land in their order (I4): not at all if one before this failed.
                    if turn.publish(lsn, took, place, || flight.land(took)) && gathered != Gathered::RingFull
                    {
                        // Otherwise the group may end inside a packet, and a mark there would leave out its beginning.
                        self.marks.lock().add(Lsn(lsn), to);
                    }
                }
                Err(error) => {
                    // The first error stays; nothing is tried again.
                    let _ = self.failure.set(error);
                    self.writer.stop();
                }
            }
        }
        turn.release(place);
        if gathered != Gathered::All && self.threaded {
            // The group left packets behind whose requests it took.
            self.writer.ask_now();
        }
        gathered
    }

    /// Gathers the next group; how far it reaches. For the holder of the writer word.
    fn take_group(&self) -> (Flight, u64, u64, Gathered) {
        let mut group_writer = self.group_writer.lock();
        let mut gatherer = self.gatherer.lock();
        let gathered = self.gather(&mut gatherer, group_writer.lsn().saturating_add(self.group_max));
        if gatherer.position() > group_writer.position() {
            gatherer.seal();
        }
        let (to, lsn) = (gatherer.position(), gatherer.lsn());
        (group_writer.take(to, lsn), to, lsn, gathered)
    }

    fn wait(&self, lsn: Lsn, durability: Durability, patience: &Patience) -> Result<()> {
        debug_assert!(lsn <= self.pool.place(), "a wait for a place that nobody has taken");
        if durability == Durability::Memory && self.wait_for_memory(lsn)? {
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
        };
        match self.writer.wait(&committer, place, write) {
            Waited::Durable => Ok(()),
            Waited::Stopped => Err(self.outcome_unknown(lsn)),
        }
    }

    /// Whether `lsn` is in the ring; `false` if the ring was full, so that the caller has to wait for the disk.
    fn wait_for_memory(&self, lsn: Lsn) -> Result<bool> {
        if self.memory.load(Ordering::SeqCst) < lsn.0 {
            if self.writer.stopped() {
                return Err(self.outcome_unknown(lsn));
            }
            let mut gatherer = self.gatherer.lock();
            // Whoever held the lock may have gathered for us.
            if self.memory.load(Ordering::SeqCst) < lsn.0 {
                self.gather(&mut gatherer, u64::MAX);
                drop(gatherer);
                self.wake_tickets();
            }
            if self.memory.load(Ordering::SeqCst) < lsn.0 {
                return Ok(false);
            }
        }
        // I3: what only level 1 waited for is on disk within the interval all the same.
        if self.writer.durable() < lsn.0 {
            self.writer.ask_soon();
        }
        Ok(true)
    }

    fn is_done(&self, lsn: Lsn, durability: Durability) -> Option<Result<()>> {
        let memory = durability == Durability::Memory && self.memory.load(Ordering::SeqCst) >= lsn.0;
        if memory || self.writer.durable() >= lsn.0 {
            return Some(Ok(()));
        }
        self.writer.stopped().then(|| Err(self.outcome_unknown(lsn)))
    }

    fn wake_tickets(&self) {
        if self.tickets_open.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut done = Vec::new();
        self.tickets.lock().retain(|ticket| {
            let passed = self.is_done(ticket.lsn, ticket.durability).is_some();
            if passed {
                done.push(ticket.waker.clone());
            }
            !passed
        });
        self.tickets_open.fetch_sub(done.len() as u64, Ordering::SeqCst);
        done.into_iter().for_each(Waker::wake);
    }

    fn ask_or_write(&self) {
        if self.threaded {
            self.writer.ask_now();
            return;
        }
        while let Some(turn) = self.writer.try_take() {
            if self.write_group(turn) == Gathered::All {
                return;
            }
        }
    }

    fn sync(&self) -> Result<()> {
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

    /// The log server's thread.
    fn serve(&self) {
        let place = || self.pool.place().0;
        let stand_in = || Committer::stand_in(place());
        self.writer.serve(self.flush_interval, stand_in, place, |turn| {
            self.write_group(turn);
            self.server_time.lap();
        });
    }
}

struct WakeTickets<'a>(&'a Core);

impl Drop for WakeTickets<'_> {
    fn drop(&mut self) {
        self.0.wake_tickets();
    }
}
