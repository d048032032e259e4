//! [`Log`]: the log's interface to the engine.

pub(super) mod core;
mod reading;
mod room;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use self::room::CHECKPOINTS_MAX;
use super::archive::Archiver;
use super::freed::Freed;
use super::gather::{Gathered, cost, longest_within};
use super::line::Line;
use super::open::Parts;
use super::packet::{PacketHome, PacketSlot, PoolOwner};
use super::sync::System;
use super::turn::Writer;
use super::wakers::{Listener, Listeners, RegisteredListener, WakerThreads};
use super::write_path::WritePath;
use super::writer::LogStats;
use super::{
    Durability, HELD_BY_BYTES, LogNeeded, LogOptions, LogPoint, LogPosition, LogThreads, PACKET_BYTES_MAX,
    PacketKind, Patience,
};
use crate::account::processor::ProcessorTime;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::io::{Clock, FOR_EVER};
use crate::log::log::core::LogCore;
use crate::unlikely::unlikely;
use crate::{Error, Lsn, Result, fault_injection};

/// How often a thread that waits for a slot, or for room, checks whether it gives up.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// How often a transaction that needs the gatherer checks whether it is free, or has gathered for it, before it falls
/// asleep.
const LOOKS_AT_GATHERER: u32 = 128;

/// Logs with fewer packet slots have no homes.
const SLOTS_WITH_HOMES: usize = 8_192;

/// Called by a full log to have files freed, by a checkpoint that it makes itself if the argument says that it may.
/// Returns why none will be freed, if that is known.
pub(crate) type WhenFull = Box<dyn Fn(bool) -> Option<String> + Send + Sync>;

/// The log of a database.
///
/// A transaction [borrows](Log::borrow_packet) a slot, writes its packet into it, [reserves](Log::reserve) room,
/// [pushes](Log::push) (which gives it its place, I2), applies, [gives the slot back](Log::applied), and then either
/// [waits](Log::wait) or [leaves](Log::leave) the packet to the log server. Each push has to be followed by one of the
/// two, which bounds how long a commit without a waiter stays off the disk (I3).
pub struct Log {
    pub(super) core: Arc<LogCore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Log {
    pub(super) fn start(parts: Parts, options: &LogOptions) -> Result<Arc<Log>> {
        let lsn = parts.gatherer.lsn();
        let core = Arc::new(LogCore {
            pool: PoolOwner::new(options.packet_slots, parts.place),
            writer: Writer::new(
                System::new(&options.clock),
                options.group_commit.policy(),
                lsn,
                parts.write_path.in_flight,
            ),
            memory: AtomicU64::new(lsn),
            gatherer: Mutex::new(parts.gatherer),
            group_writer: Mutex::new(parts.group_writer),
            ring: parts.ring,
            files: parts.files,
            failure: Mutex::default(),
            listeners: Listeners::default(),
            waker_threads: WakerThreads::default(),
            counters: parts.counters,
            server_time: ProcessorTime::default(),
            marks: Mutex::new(parts.marks),
            closed: AtomicBool::new(false),
            refuses_packets: AtomicBool::new(parts.following.is_on()),
            following: parts.following,
            on_disk: Mutex::new(parts.on_disk),
            ended: AtomicBool::new(false),
            freed: Freed::default(),
            when_full: OnceLock::new(),
            line: Line::default(),
            short: AtomicU32::new(0),
            flush_interval: match fault_injection::is_on("interval-of-its-own") {
                true => Duration::from_secs(5),
                false => options.memory_flush_interval.min(FOR_EVER),
            },
            wait_max: options.wait_max.min(FOR_EVER),
            packet_slots: options.packet_slots,
            write_path: parts.write_path,
            group_max: options.group_commit.group_max.map_or(u64::MAX, u64::from),
            threaded: options.threads == LogThreads::Background,
            driven: options.threads == LogThreads::Driven,
            asked: AtomicBool::new(false),
        });
        let log = Arc::new(Log { core, threads: Mutex::new(Vec::new()) });
        if options.threads == LogThreads::Background {
            let (server, preparer) = (log.core.clone(), log.core.clone());
            log.spawn("rialto-log", move || server.serve())?;
            log.spawn("rialto-log-file", move || preparer.files.serve(|| preparer.server_time.lap()))?;
            log.core.waker_threads.start().map_err(|(name, error)| thread_error(name, &error))?;
        } else {
            log.core.writer.close();
        }
        Ok(log)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|error| thread_error(name, &error))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// As [`Log::borrow_packet`], without waiting; `None` if all slots are taken.
    #[inline]
    pub fn try_borrow_packet(&self) -> Result<Option<PacketSlot>> {
        self.core.check_open()?;
        Ok(self.core.pool.borrow())
    }

    /// A slot for a transaction's packet, its buffer empty.
    ///
    /// Waits for one for at most [`LogOptions::wait_max`]; then fails with [`Error::TooManyPackets`], holding nothing
    /// (I10). Fails with [`Error::Stopped`] or [`Error::Closed`] if the log takes no more packets.
    #[inline(always)]
    pub fn borrow_packet(&self) -> Result<PacketSlot> {
        match self.try_borrow_packet()? {
            Some(slot) => Ok(slot),
            None => self.wait_for_packet(|| Ok(())),
        }
    }

    /// As [`Log::try_borrow_packet`], but borrows the home if it is free. Makes a home if there is none and the log has
    /// slots for many.
    #[inline(always)]
    pub(crate) fn try_borrow_packet_at(&self, home: &mut Option<PacketHome>) -> Result<Option<PacketSlot>> {
        match home.as_mut().and_then(PacketHome::borrow) {
            Some(slot) => {
                self.core.check_open()?;
                Ok(Some(slot))
            }
            None => self.try_borrow_beside(home),
        }
    }

    #[inline(never)]
    fn try_borrow_beside(&self, home: &mut Option<PacketHome>) -> Result<Option<PacketSlot>> {
        if home.is_none() && self.core.packet_slots >= SLOTS_WITH_HOMES {
            *home = self.core.pool.home();
        }
        self.try_borrow_packet()
    }

    /// Borrows a packet slot if one is free, also of a log that takes no packets yet.
    pub(crate) fn borrow_any_packet(&self) -> Option<PacketSlot> {
        self.core.pool.borrow()
    }

    /// As [`Log::borrow_packet`], when no slot was free; gives up when `check` returns an error.
    #[cold]
    pub(crate) fn wait_for_packet(&self, check: impl Fn() -> Result<()>) -> Result<PacketSlot> {
        let core = &*self.core;
        let clock = core.clock();
        let _waiting = WaitGuard::enter(clock, Awaited::LogRoom);
        let until = clock.now() + core.wait_max;
        let mut waiter = core.freed.join();
        loop {
            // Slots may be taken only because their packets are not gathered yet.
            if core.gather_now() == Gathered::RingFull {
                core.ask_or_write();
            }
            if let Some(slot) = core.pool.borrow() {
                return Ok(slot);
            }
            core.check_open()?;
            check()?;
            let now = clock.now();
            if now >= until {
                return Err(Error::TooManyPackets { limit: core.packet_slots });
            }
            waiter.sleep(clock, until.min(now + ASK_EVERY));
        }
    }

    /// Reserves log space for the packet as it is now, or for one of `bytes` bytes if that is more (I10): one addition
    /// to a shared word. Waits for room for at most [`LogOptions::wait_max`], then fails with [`Error::LogFull`].
    pub fn reserve(&self, packet: &mut PacketSlot, bytes: usize) -> Result<()> {
        self.reserve_record(packet, packet.bytes().len().max(bytes), &|| Ok(()))
    }

    /// As [`Log::reserve`], for a record of this many bytes, which may be fewer than the packet has
    /// ([`Log::push_call`]); gives up when `check` returns an error.
    pub(crate) fn reserve_record(
        &self,
        packet: &mut PacketSlot,
        length: usize,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if self.try_reserve_record(packet, length)? {
            return Ok(());
        }
        let needed = cost(length + HELD_BY_BYTES);
        self.core.promise_slowly(needed - packet.promised(), check)?;
        packet.set_promised(needed);
        Ok(())
    }

    /// As [`Log::reserve`], without waiting; `false` if there is no room now.
    pub fn try_reserve(&self, packet: &mut PacketSlot, bytes: usize) -> Result<bool> {
        self.try_reserve_record(packet, packet.bytes().len().max(bytes))
    }

    /// As [`Log::try_reserve`], for a record of this many bytes.
    pub(crate) fn try_reserve_record(&self, packet: &mut PacketSlot, length: usize) -> Result<bool> {
        let core = &*self.core;
        if length > PACKET_BYTES_MAX {
            return Err(Error::WriteSetTooLarge { length, limit: PACKET_BYTES_MAX });
        }
        core.check_open()?;
        let (needed, had) = (cost(length + HELD_BY_BYTES), packet.promised());
        let most = core.files.most_for_one();
        if needed > most {
            // No checkpoint can make room for this record.
            let (limit, log_bytes_max) = (longest_within(most) - HELD_BY_BYTES, core.files.bytes_max());
            return Err(Error::LogTooSmall { length, limit, log_bytes_max });
        }
        let there = needed <= had || core.promise(needed - had);
        if there {
            packet.set_promised(needed.max(had));
        }
        Ok(there)
    }

    /// As [`Log::try_reserve_record`]; `false` if it takes more than one addition.
    #[inline(always)]
    pub(crate) fn reserves_at_once(&self, packet: &mut PacketSlot, length: usize) -> bool {
        let core = &*self.core;
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

    /// How many attempts to make room may help. Where the log has no threads, each one makes a checkpoint, or the next
    /// file.
    pub(crate) fn attempts_for_room(&self) -> u32 {
        if self.core.threaded { u32::MAX } else { CHECKPOINTS_MAX + 2 }
    }

    /// Makes one attempt to have room for records of so many bytes: has a file prepared, or asks for a checkpoint that frees
    /// one. False if it is known that no checkpoint will.
    pub(crate) fn make_room(&self, length: usize) -> bool {
        self.core.prepare_or_rest(cost(length)) || self.ask_for_room().is_none()
    }

    /// Whether the log takes packets: it has neither stopped nor been closed.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        !self.core.writer.stopped() && !self.core.refuses_packets.load(Ordering::Relaxed)
    }

    /// The clock for the log's waits and times.
    pub(crate) fn clock(&self) -> &Clock {
        self.core.clock()
    }

    /// An error if the log has stopped, or is closed.
    pub(crate) fn check_not_ended(&self) -> Result<()> {
        match self.check_open() {
            Err(Error::Following) => Ok(()),
            open => open,
        }
    }

    /// An error if the log takes no packets.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.core.check_open()
    }

    /// Takes the next place and makes the packet durable at level 1, in one step: it does what [`Log::push`] and the
    /// gathering of a lone committer's packet do, without a queue between them. For packets with nothing reserved.
    /// Returns `None` without any effect if other committers are queued or gather, or if the log needs more work first:
    /// reserve and push then.
    ///
    /// The packet slot gets no place that would have to be [applied](Log::applied): it stays the owner's.
    #[inline(never)]
    pub(crate) fn place_alone(&self, packet: &PacketSlot, kind: PacketKind) -> Option<Lsn> {
        let core = &*self.core;
        let bytes = packet.bytes();
        if unlikely(core.writer.stopped() || packet.promised() != 0) {
            return None;
        }
        let mut gatherer = core.gatherer.try_lock()?;
        let lsn = gatherer.place_alone(&core.pool, bytes, kind as u8, |needed| core.promise(needed))?;
        core.memory.store(lsn.0, Ordering::SeqCst);
        gatherer.look_at_files();
        drop(gatherer);
        if unlikely(core.listeners.wait_for(Durability::Memory)) {
            // Their listeners do not run on this thread: its commit has its place, and is not applied yet (W1).
            core.hand_over_listeners(Durability::Memory);
        }
        core.writer.ask_soon();
        Some(lsn)
    }

    /// Takes the next place in the log order (I2). Cannot fail: the caller has reserved the room, or this panics.
    ///
    /// After it, apply, give the slot back with [`Log::applied`], then [`Log::wait`] or [`Log::leave`].
    pub fn push(&self, packet: &mut PacketSlot, kind: PacketKind) -> Lsn {
        // The log holds only the place of a packet that is not logged.
        let length = if kind == PacketKind::Unlogged { 0 } else { packet.bytes().len() };
        self.check_reserved(packet, length);
        packet.push(kind)
    }

    fn check_reserved(&self, packet: &PacketSlot, length: usize) {
        assert!(
            packet.promised() >= cost(length),
            "I10: a packet of {length} bytes has no log space reserved"
        );
        debug_assert!(std::ptr::eq(packet.pool(), &*self.core.pool), "the packet belongs to another log");
    }

    /// As [`Log::push`], for a packet that the backup copy of this sweep holds ([`Packet::held_by`]): the number is
    /// appended to the packet's bytes; [`Log::reserve`] includes room for it.
    ///
    /// [`Packet::held_by`]: super::Packet::held_by
    pub fn push_held(&self, packet: &mut PacketSlot, kind: PacketKind, sweep: u32) -> Lsn {
        self.check_reserved(packet, packet.bytes().len() + HELD_BY_BYTES);
        packet.push_held(kind, sweep)
    }

    /// As [`Log::push`], for a call: only the packet's bytes from `from` on go into the log. With a sweep, as
    /// [`Log::push_held`].
    pub(crate) fn push_call(&self, packet: &mut PacketSlot, from: u32, held_by: Option<u32>) -> Lsn {
        self.check_reserved(packet, packet.bytes().len() - from as usize + HELD_BY_BYTES);
        packet.push_call(from, held_by)
    }

    /// The owner has applied the packet and needs it no longer.
    #[inline(always)]
    pub fn applied(&self, packet: PacketSlot) {
        packet.applied();
    }

    /// Waits until every place up to `lsn` is durable at this level; may write the log itself.
    ///
    /// [`Error::OutcomeUnknown`] if the log stopped before (I4).
    pub fn wait(&self, lsn: Lsn, durability: Durability, patience: &Patience) -> Result<()> {
        self.core.wait(lsn, durability, patience)
    }

    /// Leaves the packet with this place, which no thread waits for yet, to the log server. With [`Durability::Disk`]
    /// it is on disk after its linger ([`GroupCommitOptions::linger`](super::GroupCommitOptions)); where an elected
    /// committer writes, at once. With [`Durability::Memory`] it is on disk within
    /// [`LogOptions::memory_flush_interval`] and the time of two group writes; it is in the shared memory when this
    /// returns, unless the ring is full. Does no I/O where the log has threads. In the designs that elect a committer,
    /// the log server is the stand-in for all packets left to it together; it stalls as the design is set, and knows no
    /// transaction's own [`Patience`].
    pub fn leave(&self, lsn: Lsn, durability: Durability) {
        let core = &*self.core;
        match durability {
            Durability::Memory => match core.gather_to(lsn) {
                Gathered::All => {}
                Gathered::RingFull | Gathered::GroupFull => core.ask_or_write(),
            },
            Durability::Disk if core.writer.durable() >= lsn.0 => {}
            Durability::Disk if fault_injection::is_on("left-tickets-unasked") => {}
            Durability::Disk if core.threaded => core.writer.ask_unhurried(),
            // Nothing is requested until a ticket is waited for or polled, or the log is driven.
            Durability::Disk if core.driven => {}
            Durability::Disk => core.ask_or_write(),
        }
    }

    /// Waits until every place up to `lsn` is on this disk.
    pub(crate) fn wait_on_disk(&self, lsn: Lsn) -> Result<()> {
        match self.core.following.is_on() {
            true => self.core.sync_appended(lsn.0),
            false => self.core.wait(lsn, Durability::Disk, &Patience::default()),
        }
    }

    /// Whether every place up to `lsn` is durable at this level; an error if it never will be.
    pub fn is_done(&self, lsn: Lsn, durability: Durability) -> Option<Result<()>> {
        self.core.is_done(lsn, durability)
    }

    /// Whether every place up to `lsn` is durable at this level: the quick answer of [`Log::is_done`].
    #[inline]
    pub fn has_reached(&self, lsn: Lsn, durability: Durability) -> bool {
        self.core.has_reached(lsn, durability)
    }

    /// As [`Log::has_reached`], but gathers what is queued if that suffices. Never sleeps.
    #[inline(always)]
    pub(crate) fn reaches(&self, lsn: Lsn, durability: Durability) -> bool {
        self.has_reached(lsn, durability) || durability == Durability::Memory && self.core.gathers(lsn)
    }

    /// Has `waker` woken when [`Log::is_done`] answers. For a caller that waits, so that the packet is written at once.
    /// Returns the answer if it is there already; the waker is then not kept.
    ///
    /// The waker is run by a thread of the log that runs only wakers and holds nothing: the waker may panic, or use the
    /// log. While it sleeps, the wakers after it wait.
    pub fn register_waker(&self, lsn: Lsn, durability: Durability, waker: &Waker) -> Option<Result<()>> {
        self.register(lsn, durability, || Listener::foreign(waker), &mut None, false)
    }

    /// As [`Log::register_waker`], for any listener, which replaces the one that was registered, if one was. The packet
    /// `lingers` if the caller has other work meanwhile; the caller then [hurries](Log::hurry) the log when it has
    /// none.
    pub(crate) fn register(
        &self,
        lsn: Lsn,
        durability: Durability,
        listener: impl FnOnce() -> Listener,
        registered: &mut Option<RegisteredListener>,
        lingers: bool,
    ) -> Option<Result<()>> {
        let core = &*self.core;
        if let Some(done) = core.is_done(lsn, durability) {
            return Some(done);
        }
        match *registered {
            Some(earlier) => {
                if !core.listeners.replace(durability, earlier, listener()) {
                    // The registered listener is being woken: the place is durable, or the log has stopped.
                    return core.is_done(lsn, durability);
                }
            }
            None => *registered = Some(core.listeners.add(lsn, durability, listener())),
        }
        // A thread that advances a position from here on sees this listener; this thread sees what was advanced before.
        if core.is_done(lsn, durability).is_some() {
            core.hand_over_listeners(durability);
        } else if durability == Durability::Disk && !lingers {
            core.ask_or_write();
        } else {
            self.leave(lsn, durability);
        }
        core.waker_threads.wake_here();
        None
    }

    /// Has a listener woken when the place is durable, which may be at once. The packet may linger as in
    /// [`Log::register`].
    pub(crate) fn wake_when_done(&self, lsn: Lsn, durability: Durability, listener: Listener, lingers: bool) {
        let mut listener = Some(listener);
        let given = || listener.take().expect("it is registered once");
        if self.register(lsn, durability, given, &mut None, lingers).is_some()
            && let Some(listener) = listener
        {
            self.wake(listener);
        }
    }

    /// Has a listener woken now; a foreign one by the thread for foreign ones (W1 in `wakers.rs`).
    pub(crate) fn wake(&self, listener: Listener) {
        self.core.waker_threads.wake(listener);
        self.core.waker_threads.wake_here();
    }

    /// If a listener waits for the disk, has what was left to the log server written at once.
    pub(crate) fn hurry(&self) {
        if self.core.listeners.wait_for(Durability::Disk)
            && self.core.writer.durable() < self.core.pool.place().0
        {
            self.core.ask_or_write();
        }
    }

    /// The last place taken.
    pub fn place(&self) -> Lsn {
        self.core.pool.place()
    }

    /// Where the log ends after all places taken so far, which are gathered first, and perhaps some more. The point is
    /// durable when its place is. The call does not wait for commits that come after it, however many they are.
    ///
    /// [`Error::Stopped`] if the log has stopped.
    pub(crate) fn point(&self) -> Result<LogPoint> {
        let core = &*self.core;
        let taken = self.place();
        loop {
            if core.writer.stopped() {
                return Err(core.stop_error());
            }
            let mut gatherer = core.gatherer.lock();
            core.gather_queued(&mut gatherer);
            let point = gatherer.point();
            drop(gatherer);
            core.hand_over_listeners(Durability::Memory);
            if point.lsn >= taken {
                return Ok(point);
            }
            // The ring has no room for the remaining packets until a group is written.
            core.sync()?;
        }
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

    /// For a log that is driven: wakes the listeners whose places have been reached. The caller holds nothing.
    pub(crate) fn wake_listeners(&self) {
        if self.core.driven {
            self.core.waker_threads.wake_here();
        }
    }

    /// For a log that is driven: prepares the next file, if it is due. The commit that needs the file reports an error.
    pub(crate) fn prepare_next_file(&self) {
        if self.core.files.is_due(self.core.ring.filled()) && !self.core.following.is_on() {
            let _ = self.core.files.prepare();
        }
    }

    /// Makes every place taken so far durable on disk.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Frees the log files that hold only packets before `lsn`, for reuse; returns how many. For the checkpointer, once
    /// no complete checkpoint needs them (I5).
    pub fn free_before(&self, lsn: Lsn) -> Result<u64> {
        self.free_all_but(LogNeeded { from: lsn, position: LogPosition(u64::MAX) })
    }

    /// As [`Log::free_before`]; the file that holds `needed.position` stays, too.
    pub(crate) fn free_all_but(&self, needed: LogNeeded) -> Result<u64> {
        self.check_not_ended()?;
        // The file that begins at the position says in its first block which checksum the block before it has.
        let last = self.core.ring.released().min(needed.position.0.saturating_add(1));
        let files = &self.core.files;
        let freed = match self.is_short() {
            // A reader that stands still stops no commit.
            true => files.free_before(needed.from, last)?,
            false => files.free_what_no_cursor_needs(needed.from, last, self.core.ring.filled())?,
        };
        self.core.marks.lock().forget_before(self.core.files.extent().0);
        Ok(freed)
    }

    /// A checkpoint begins, or has ended: on a disk that was full, room goes to the checkpoint before it goes to the
    /// log.
    pub(crate) fn leave_room(&self, is_left: bool) {
        self.core.files.leave_room(is_left);
    }

    /// Sets what a transaction that waits for room calls now and then.
    pub(crate) fn when_full(&self, when_full: WhenFull) {
        // A log has one checkpointer.
        let _ = self.core.when_full.set(when_full);
    }

    /// Has files copied to an archive before they are freed.
    pub(crate) fn archive_to(&self, archiver: Archiver) {
        self.core.files.archive_to(archiver);
    }

    /// The archiver, if there is an archive.
    pub(crate) fn archiver(&self) -> Option<&Archiver> {
        self.core.files.archiver()
    }

    /// Has the archive copy all before a durable position.
    pub(crate) fn archive_up_to(&self, position: LogPosition) -> Result<()> {
        self.core.files.archive_all(position.0)
    }

    /// Refuses an archive that has the log of another life of the database.
    pub(crate) fn check_archive(&self) -> Result<()> {
        self.core.files.check_archive(self.durable_bytes().0)
    }

    /// About how many bytes of log follow this place, which redo from there would read. Exact to 256 KiB and the groups
    /// in flight.
    pub fn bytes_since(&self, lsn: Lsn) -> u64 {
        let marked = self.core.marks.lock().position_of(lsn);
        let from = marked.unwrap_or_else(|| self.core.files.extent().0);
        self.core.ring.filled().saturating_sub(from)
    }

    /// What the log takes of its bound, [`LogOptions::bytes_max`]: how near it is to being full.
    pub(crate) fn bytes_used(&self) -> u64 {
        self.core.files.used(self.core.ring.filled())
    }

    /// Whether a transaction waits for room that only freed files can give.
    pub(crate) fn is_short(&self) -> bool {
        self.core.short.load(Ordering::Relaxed) > 0
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

    /// Processor time of the log's own threads: the log server, the one that prepares files, and those that run wakers.
    pub(crate) fn server_time(&self) -> Duration {
        self.core.server_time.read() + self.core.waker_threads.time()
    }

    /// Adds `by` to the stalls of all committers from now on, in place of what was added before; zero adds nothing.
    /// Designs that do not stall stay as they are.
    pub fn raise_stalls(&self, by: Duration) {
        self.core.writer.raise_stalls(by);
    }

    /// What [`Log::raise_stalls`] added last.
    pub fn raised_stalls(&self) -> Duration {
        self.core.writer.raised_stalls()
    }

    /// Bytes of the stream that are promised.
    #[cfg(test)]
    pub(crate) fn promised(&self) -> u64 {
        self.core.pool.promised().load(Ordering::SeqCst)
    }

    /// Borrows all free packet slots.
    #[cfg(test)]
    pub(crate) fn borrow_all_packets(&self) -> Vec<PacketSlot> {
        std::iter::from_fn(|| self.core.pool.borrow()).collect()
    }

    /// How many transactions wait for room.
    #[cfg(test)]
    pub(crate) fn waiting_for_room(&self) -> usize {
        self.core.line.len()
    }

    /// The error that stopped the log, or the panic, if one did.
    pub fn failure(&self) -> Option<Error> {
        self.core.writer.stopped().then(|| self.core.stop_error())
    }

    /// Makes everything durable and ends the log's threads. Returns the outcome of the last sync. Later reservations
    /// get [`Error::Closed`].
    pub fn close(&self) -> Result<()> {
        self.core.closed.store(true, Ordering::SeqCst);
        self.core.refuses_packets.store(true, Ordering::SeqCst);
        self.core.freed.tell(u64::MAX);
        let threads = std::mem::take(&mut *self.threads.lock());
        self.core.writer.close();
        self.core.files.close();
        for thread in threads {
            // A panic of the thread has stopped the log already (Turn's drop), which the sync below reports.
            let _ = thread.join();
        }
        let synced = self.core.sync();
        self.core.ended.store(true, Ordering::SeqCst);
        self.core.waker_threads.close();
        synced
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A caller that needs to know the outcome calls `close`.
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

fn thread_error(name: &str, error: &std::io::Error) -> Error {
    Error::Io {
        file: name.to_owned(),
        offset: 0,
        operation: "start of the thread".to_owned(),
        cause: error.to_string(),
    }
}
