#![allow(unsafe_code)]
//! The packet pool: a fixed number of slots in which transactions write their packets, and the commit queue that links
//! them.
//!
//! What each side may do with a slot's bytes, by the slot's phase:
//!
//! | phase | the owner (a [`PacketSlot`]) | the gatherer (a [`DrainedPacket`]) |
//! |---|---|---|
//! | free | – | – |
//! | borrowed | reads and writes | – |
//! | placed | reads (its apply walks the packet) | reads, once it has drained the slot |
//! | gathered | reads | – |
//! | applied | – | reads |
//!
//! A slot is free again after gather *and* apply (I2); the later of the two frees it. Slots never move, and are never
//! returned to the allocator while a thread may touch one; therefore the queue only has to carry a slot number.
//!
//! A free slot lies in a list, or it is a *home* ([`PacketHome`]): kept for one borrower, which finds it free again as
//! soon as its last packet has been gathered and applied. Therefore a thread that commits one transaction after the
//! other touches no list.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize};

use crossbeam_utils::CachePadded;

use super::queue::{CommitQueue, Links, NO_SLOT, SLOTS_MAX};
use super::sync::{AtomicU32, AtomicU64, Ordering};
use super::{HELD_BY, PacketKind};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::io::thread_number;

const FREE: u8 = 0;
const BORROWED: u8 = 1;
const PLACED: u8 = 2;
const GATHERED: u8 = 4;
const APPLIED: u8 = 8;
/// Beside any of these: the slot is a home.
const HOME: u8 = 16;

/// A buffer that grew past this is given back to the allocator when its slot is freed.
const KEPT_BYTES: usize = 64 << 10;

/// Free lists. A thread borrows from its own list as long as that has a slot, so threads touch each other's cache lines
/// only when a list runs dry.
const STRIPES: usize = 32;

#[repr(align(64))]
struct PooledSlot {
    bytes: UnsafeCell<Vec<u8>>,
    lsn: AtomicU64,
    /// Stream bytes that were reserved for the packet.
    promised: AtomicU64,
    next: AtomicU32,
    next_free: AtomicU32,
    /// Where in its bytes the part of a call begins that goes into the log.
    logged_from: AtomicU32,
    phase: AtomicU8,
    kind: AtomicU8,
    stripe: u8,
}

const _: () = assert!(size_of::<PooledSlot>() == 64);

/// All packet slots of a log, its commit queue, and the log space promised to packets that are not gathered yet.
pub(crate) struct PacketPool {
    slots: Box<[PooledSlot]>,
    /// Per stripe, the first free slot plus one, under a count of changes that keeps a stale head from matching.
    free: Box<[CachePadded<AtomicU64>]>,
    /// How many slots are homes: at most half of all, so that some slots are always left for the other threads.
    homes: AtomicUsize,
    queue: CachePadded<CommitQueue>,
    promised: CachePadded<AtomicU64>,
}

// SAFETY: all of a slot is atomic but its bytes; the phases order the accesses to these (see above).
unsafe impl Sync for PacketPool {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for PacketPool {}

impl Links for PacketPool {
    fn next(&self, slot: u32) -> &AtomicU32 {
        &self.slots[slot as usize].next
    }

    fn lsn(&self, slot: u32) -> &AtomicU64 {
        &self.slots[slot as usize].lsn
    }
}

impl PacketPool {
    fn new(slots: usize, last: Lsn) -> PacketPool {
        assert!(
            (1..SLOTS_MAX).contains(&slots),
            "a log has between 1 and {SLOTS_MAX} packet slots, not {slots}"
        );
        let slot = |number: usize| PooledSlot {
            bytes: UnsafeCell::new(Vec::new()),
            lsn: AtomicU64::new(0),
            promised: AtomicU64::new(0),
            next: AtomicU32::new(NO_SLOT),
            next_free: AtomicU32::new(NO_SLOT),
            logged_from: AtomicU32::new(0),
            phase: AtomicU8::new(FREE),
            kind: AtomicU8::new(0),
            stripe: (number % STRIPES) as u8,
        };
        let pool = PacketPool {
            slots: (0..slots).map(slot).collect(),
            free: (0..STRIPES).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            homes: AtomicUsize::new(0),
            queue: CachePadded::new(CommitQueue::new(last)),
            promised: CachePadded::new(AtomicU64::new(0)),
        };
        for number in (0..slots as u32).rev() {
            pool.push_free(number);
        }
        pool
    }

    #[inline]
    fn push_free(&self, number: u32) {
        let slot = &self.slots[number as usize];
        let head = &self.free[slot.stripe as usize];
        let mut old = head.load(Ordering::Relaxed);
        loop {
            slot.next_free.store(old as u32, Ordering::Relaxed);
            let new = ((old >> 32) + 1) << 32 | u64::from(number + 1);
            match head.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    #[inline]
    fn pop_free(&self, stripe: usize) -> Option<u32> {
        let head = &self.free[stripe];
        let mut old = head.load(Ordering::Acquire);
        loop {
            let number = (old as u32).checked_sub(1)?;
            let next = self.slots[number as usize].next_free.load(Ordering::Relaxed);
            let new = ((old >> 32) + 1) << 32 | u64::from(next);
            match head.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => old = now,
            }
        }
    }

    /// A free slot, its buffer empty; `None` if there is none.
    #[inline(always)]
    pub(crate) fn borrow(&self) -> Option<PacketSlot> {
        let mine = thread_number() % STRIPES;
        let number = match self.pop_free(mine) {
            Some(number) => number,
            None => self.pop_elsewhere(mine)?,
        };
        debug_assert_eq!(self.slots[number as usize].phase.load(Ordering::Relaxed), FREE);
        Some(self.lend(number, BORROWED))
    }

    #[inline(always)]
    fn lend(&self, number: u32, phase: u8) -> PacketSlot {
        let slot = &self.slots[number as usize];
        slot.phase.store(phase, Ordering::Relaxed);
        PacketSlot { pool: NonNull::from(self), slot: NonNull::from(slot), number, placed: Lsn::ZERO }
    }

    /// A slot to be kept by one borrower; `None` if no slot is free, or half of all are homes.
    pub(crate) fn home(&self) -> Option<PacketHome> {
        let may_be = |homes: usize| (homes < self.slots.len() / 2).then_some(homes + 1);
        self.homes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may_be).ok()?;
        let mine = thread_number() % STRIPES;
        let Some(number) = self.pop_free(mine).or_else(|| self.pop_elsewhere(mine)) else {
            self.homes.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let slot = &self.slots[number as usize];
        slot.phase.store(FREE | HOME, Ordering::Relaxed);
        Some(PacketHome { pool: NonNull::from(self), slot: NonNull::from(slot), number })
    }

    #[cold]
    fn pop_elsewhere(&self, mine: usize) -> Option<u32> {
        (1..STRIPES).find_map(|step| self.pop_free((mine + step) % STRIPES))
    }

    #[inline]
    fn release(&self, number: u32) {
        let slot = &self.slots[number as usize];
        // SAFETY: no other thread can touch the slot any more: its borrower gave it up, or the caller's flag was the
        // second of gathered and applied.
        let bytes = unsafe { &mut *slot.bytes.get() };
        bytes.clear();
        if bytes.capacity() > KEPT_BYTES {
            *bytes = Vec::new();
        }
        // The last access, unless the slot goes to a list now: a home's borrower may take it at once, or give the home
        // up.
        if slot.phase.fetch_and(HOME, Ordering::AcqRel) & HOME == 0 {
            self.push_free(number);
        }
    }

    #[inline(always)]
    fn flag(&self, number: u32, flag: u8) {
        let other = GATHERED ^ APPLIED ^ flag;
        let order = if fault_injection::is_on("packet-handover-relaxed") {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        let before = self.slots[number as usize].phase.fetch_or(flag, order);
        debug_assert!(before & PLACED != 0 && before & flag == 0);
        if before & other != 0 {
            self.release(number);
        }
    }

    /// The last place taken.
    pub(crate) fn place(&self) -> Lsn {
        self.queue.place()
    }

    /// Takes the place after `last`, if nothing is queued, for a packet that is gathered at once.
    #[inline(always)]
    pub(crate) fn place_alone(&self, last: Lsn) -> Option<Lsn> {
        self.queue.place_alone(last)
    }

    /// Stream bytes promised to packets that are not gathered yet.
    pub(crate) fn promised(&self) -> &AtomicU64 {
        &self.promised
    }

    /// Drains the queue.
    #[inline]
    pub(crate) fn drain(&self, into: &mut Vec<DrainedPacket>) -> Drained {
        let Some(number) = self.queue.drain() else { return Drained::Nothing };
        let slot = &self.slots[number as usize];
        let newest = DrainedPacket { pool: NonNull::from(self), slot: NonNull::from(slot), number };
        match slot.next.load(Ordering::Relaxed) {
            NO_SLOT => Drained::One(newest),
            before => {
                self.drain_from(newest, before, into);
                Drained::Appended
            }
        }
    }

    #[inline(never)]
    fn drain_from(&self, newest: DrainedPacket, before: u32, into: &mut Vec<DrainedPacket>) {
        let start = into.len();
        into.push(newest);
        let mut number = before;
        while number != NO_SLOT {
            let slot = &self.slots[number as usize];
            into.push(DrainedPacket { pool: NonNull::from(self), slot: NonNull::from(slot), number });
            number = slot.next.load(Ordering::Relaxed);
        }
        into[start..].reverse();
    }

    /// Appends all queued packets, oldest first; returns their number.
    pub(crate) fn drain_all(&self, into: &mut Vec<DrainedPacket>) -> usize {
        let start = into.len();
        if let Drained::One(packet) = self.drain(into) {
            into.push(packet);
        }
        into.len() - start
    }

    fn all_free(&self) -> bool {
        // Counts the slots in the lists, not the phases: a thread that frees a slot touches it last when it puts it
        // into its list.
        let listed: usize = (0..STRIPES)
            .map(|stripe| {
                let mut link = self.free[stripe].load(Ordering::Acquire) as u32;
                let mut count = 0;
                while let Some(number) = link.checked_sub(1) {
                    count += 1;
                    link = self.slots[number as usize].next_free.load(Ordering::Relaxed);
                }
                count
            })
            .sum();
        listed == self.slots.len()
    }
}

impl fmt::Debug for PacketPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketPool").field("slots", &self.slots.len()).field("place", &self.place()).finish()
    }
}

/// Owns a pool. If a slot is still lent out when the owner is dropped, the pool is left in memory rather than freed.
/// Therefore a slot needs no reference count for each transaction.
#[derive(Debug)]
pub(crate) struct PoolOwner(NonNull<PacketPool>);

// SAFETY: it is a box of a pool, which is Send and Sync.
unsafe impl Send for PoolOwner {}
// SAFETY: as for Send.
unsafe impl Sync for PoolOwner {}

impl PoolOwner {
    pub(crate) fn new(slots: usize, last: Lsn) -> PoolOwner {
        PoolOwner(NonNull::from(Box::leak(Box::new(PacketPool::new(slots, last)))))
    }

    /// A pool with a home for each of this many borrowers, whose packets take no place.
    pub(crate) fn of_homes(borrowers: usize) -> PoolOwner {
        PoolOwner::new((2 * borrowers).max(1), Lsn::ZERO)
    }
}

impl std::ops::Deref for PoolOwner {
    type Target = PacketPool;

    fn deref(&self) -> &PacketPool {
        // SAFETY: the pool is freed only by this owner's drop.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PoolOwner {
    fn drop(&mut self) {
        let mut queued = Vec::new();
        self.drain_all(&mut queued);
        queued.into_iter().for_each(DrainedPacket::gathered);
        if self.all_free() {
            // SAFETY: it came from a box. Every slot lies in a free list, so no thread holds a slot or is about to
            // touch one, and slots are lent only through this owner.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// A slot that is kept for one borrower. When this is dropped, any thread may borrow the slot again.
pub(crate) struct PacketHome {
    pool: NonNull<PacketPool>,
    slot: NonNull<PooledSlot>,
    number: u32,
}

// SAFETY: as for PacketSlot; of the slot it touches the phase only, which is atomic.
unsafe impl Send for PacketHome {}
// SAFETY: as for Send.
unsafe impl Sync for PacketHome {}

impl PacketHome {
    fn phase(&self) -> &AtomicU8 {
        // SAFETY: slots never move, and the pool is not freed while one is a home: it lies in no list (PoolOwner).
        unsafe { &self.slot.as_ref().phase }
    }

    /// Whether this slot is the home.
    #[inline]
    pub(crate) fn is(&self, slot: &PacketSlot) -> bool {
        self.slot == slot.slot
    }

    /// Borrows it; `None` while its last packet is not gathered and applied.
    #[inline(always)]
    pub(crate) fn borrow(&mut self) -> Option<PacketSlot> {
        // No other thread changes the phase from here on: only this borrower takes a home that is free.
        if self.phase().load(Ordering::Acquire) != FREE | HOME {
            return None;
        }
        // SAFETY: as in phase().
        let pool = unsafe { self.pool.as_ref() };
        Some(pool.lend(self.number, BORROWED | HOME))
    }
}

impl Drop for PacketHome {
    fn drop(&mut self) {
        // SAFETY: as in phase(): the slot is in no list yet.
        let pool = unsafe { self.pool.as_ref() };
        pool.homes.fetch_sub(1, Ordering::Relaxed);
        // If the slot is not free, the thread that frees it later puts it into a list. After this the pool may be gone.
        if self.phase().fetch_and(!HOME, Ordering::AcqRel) == FREE | HOME {
            pool.push_free(self.number);
        }
    }
}

/// A packet slot, lent to a transaction: write the packet into it, [push](super::Log::push) it, apply, and hand it to
/// [`Log::applied`](super::Log::applied). A slot that is dropped without a place goes back unused.
pub struct PacketSlot {
    pool: NonNull<PacketPool>,
    slot: NonNull<PooledSlot>,
    number: u32,
    placed: Lsn,
}

// SAFETY: the slot is used by one owner at a time, on whichever thread; the pool is Sync.
unsafe impl Send for PacketSlot {}
// SAFETY: a shared reference only reads the bytes. No thread writes them meanwhile: writing needs `&mut`, or the slot
// freed, and it is not freed while this exists.
unsafe impl Sync for PacketSlot {}

impl PacketSlot {
    pub(crate) fn pool(&self) -> &PacketPool {
        // SAFETY: the pool is not freed while a slot is lent out (PoolOwner).
        unsafe { self.pool.as_ref() }
    }

    #[inline]
    fn slot(&self) -> &PooledSlot {
        // SAFETY: slots never move, and the pool is not freed while one is lent out (PoolOwner).
        unsafe { self.slot.as_ref() }
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: until the owner's apply is done only the owner writes the bytes, through `&mut self`.
        unsafe { &*self.slot().bytes.get() }
    }

    /// The packet, to be written. Panics once the packet has its place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        assert!(self.placed == Lsn::ZERO, "the packet has its place already: {}", self.placed);
        // SAFETY: without a place the slot belongs to this owner alone, which is borrowed mutably.
        unsafe { &mut *self.slot().bytes.get() }
    }

    /// The packet's place, if it has one.
    pub fn lsn(&self) -> Option<Lsn> {
        (self.placed != Lsn::ZERO).then_some(self.placed)
    }

    /// Stream bytes reserved for this packet so far.
    pub(crate) fn promised(&self) -> u64 {
        self.slot().promised.load(Ordering::Relaxed)
    }

    pub(crate) fn set_promised(&mut self, bytes: u64) {
        self.slot().promised.store(bytes, Ordering::Relaxed);
    }

    /// Takes the next place in the log order (I2).
    pub(crate) fn push(&mut self, kind: PacketKind) -> Lsn {
        self.push_as(kind as u8)
    }

    /// The same, for a packet that a sweep holds; the sweep's number is appended to its bytes.
    pub(crate) fn push_held(&mut self, kind: PacketKind, sweep: u32) -> Lsn {
        self.bytes_mut().extend_from_slice(&sweep.to_le_bytes());
        self.push_as(kind as u8 | HELD_BY)
    }

    /// Takes a place as a call: only the bytes from `from` on go into the log.
    pub(crate) fn push_call(&mut self, from: u32, held_by: Option<u32>) -> Lsn {
        self.slot().logged_from.store(from, Ordering::Relaxed);
        match held_by {
            Some(sweep) => self.push_held(PacketKind::Call, sweep),
            None => self.push(PacketKind::Call),
        }
    }

    fn push_as(&mut self, kind: u8) -> Lsn {
        assert!(self.placed == Lsn::ZERO, "the packet has its place already: {}", self.placed);
        let slot = self.slot();
        slot.kind.store(kind, Ordering::Relaxed);
        let home = slot.phase.load(Ordering::Relaxed) & HOME;
        slot.phase.store(PLACED | home, Ordering::Relaxed);
        let pool = self.pool();
        let lsn = pool.queue.push(pool, self.number);
        self.placed = lsn;
        lsn
    }
}

impl PacketSlot {
    /// Clears the slot's bytes, as for another borrower. The slot has no place.
    #[inline(always)]
    pub(crate) fn reuse(&mut self) {
        debug_assert!(self.promised() == 0);
        let bytes = self.bytes_mut();
        bytes.clear();
        if bytes.capacity() > KEPT_BYTES {
            *bytes = Vec::new();
        }
    }

    /// Gives the slot back, applied. It has its place.
    #[inline(always)]
    pub(crate) fn applied(self) {
        debug_assert!(self.placed != Lsn::ZERO);
        self.pool().flag(self.number, APPLIED);
        std::mem::forget(self);
    }
}

impl Drop for PacketSlot {
    fn drop(&mut self) {
        let pool = self.pool();
        if self.placed == Lsn::ZERO {
            let promised = self.slot().promised.swap(0, Ordering::Relaxed);
            if promised != 0 {
                pool.promised.fetch_sub(promised, Ordering::AcqRel);
            }
            pool.release(self.number);
        } else {
            pool.flag(self.number, APPLIED);
        }
    }
}

impl fmt::Debug for PacketSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes().len();
        f.debug_struct("PacketSlot")
            .field("number", &self.number)
            .field("placed", &self.placed)
            .field("bytes", &bytes)
            .finish()
    }
}

/// What was in the queue.
pub(crate) enum Drained {
    Nothing,
    /// One packet.
    One(DrainedPacket),
    /// Several, which were appended, oldest first.
    Appended,
}

/// A packet that was drained from the queue and is not gathered yet.
pub(crate) struct DrainedPacket {
    pool: NonNull<PacketPool>,
    slot: NonNull<PooledSlot>,
    number: u32,
}

// SAFETY: as for PacketSlot: it reads bytes that no thread writes until it is consumed.
unsafe impl Send for DrainedPacket {}

impl DrainedPacket {
    fn pool(&self) -> &PacketPool {
        // SAFETY: a drained packet's slot is not free, so the pool is not freed (PoolOwner).
        unsafe { self.pool.as_ref() }
    }

    fn slot(&self) -> &PooledSlot {
        // SAFETY: as for `pool`: slots lie in the pool and never move.
        unsafe { self.slot.as_ref() }
    }

    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.slot().lsn.load(Ordering::Relaxed))
    }

    pub(crate) fn kind(&self) -> u8 {
        self.slot().kind.load(Ordering::Relaxed)
    }

    /// The bytes that go into the log.
    pub(crate) fn bytes(&self) -> &[u8] {
        const UNLOGGED: u8 = PacketKind::Unlogged as u8;
        const CALL: u8 = PacketKind::Call as u8;
        let from = match self.kind() & !HELD_BY {
            UNLOGGED => return &[],
            CALL => self.slot().logged_from.load(Ordering::Relaxed) as usize,
            _ => 0,
        };
        // SAFETY: the slot is placed and not gathered: its owner may only read, and it cannot be freed.
        let bytes = unsafe { &*self.slot().bytes.get() };
        &bytes[from..]
    }

    /// Takes over the stream bytes that were reserved for the packet.
    pub(crate) fn take_promised(&self) -> u64 {
        let slot = self.slot();
        let promised = slot.promised.load(Ordering::Relaxed);
        slot.promised.store(0, Ordering::Relaxed);
        promised
    }

    /// The packet is copied; frees the slot if its owner has applied it.
    pub(crate) fn gathered(self) {
        self.pool().flag(self.number, GATHERED);
    }
}

#[cfg(test)]
mod tests;
