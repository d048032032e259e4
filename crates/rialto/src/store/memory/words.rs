//! [`StoredRow`]: a record as its words.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::segments::{
    ABSENT, CAPACITY_MASK, CAPACITY_SHIFT, FREE, LENGTH_MASK, RECORD_HEADER_BYTES, THIN_LOCK_MASK,
    UNIT_BYTES, VERSION_ONE,
};
use crate::ids::Lsn;
use crate::unlikely::unlikely;

/// A record's words, from its header to the end of the arena.
#[derive(Clone, Copy)]
pub struct StoredRow<'a> {
    /// Word 0.
    lock: &'a AtomicU64,
    /// Word 1.
    stamp: &'a AtomicU64,
    body: &'a [AtomicU64],
}

impl<'a> StoredRow<'a> {
    /// The record at word `at` of the arena.
    #[inline(always)]
    pub(super) fn at(arena: &'a [AtomicU64], at: usize) -> StoredRow<'a> {
        match &arena[at..] {
            [lock, stamp, body @ ..] => StoredRow { lock, stamp, body },
            _ => unreachable!("a record has a header"),
        }
    }

    /// The first word, for the lock manager's thin form.
    #[inline]
    pub fn lock(&self) -> &'a AtomicU64 {
        self.lock
    }

    /// The slot's size in units, header included.
    #[inline]
    pub fn units(&self) -> usize {
        ((self.lock.load(Ordering::Relaxed) & CAPACITY_MASK) >> CAPACITY_SHIFT) as usize
    }

    /// The longest body that fits, in bytes.
    #[inline]
    pub fn room(&self) -> usize {
        self.units() * UNIT_BYTES - RECORD_HEADER_BYTES
    }

    /// Whether the slot holds no committed row: it is free, or being inserted, or reserved for a move.
    #[inline]
    pub fn is_absent(&self) -> bool {
        self.lock.load(Ordering::Acquire) & (ABSENT | FREE) != 0
    }

    /// The place of the record's last writer.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.stamp.load(Ordering::Acquire) >> 16)
    }

    /// The length of the body.
    #[inline]
    pub fn length(&self) -> usize {
        (self.stamp.load(Ordering::Acquire) & LENGTH_MASK) as usize
    }

    /// The first word, read before anything else of the record is read without a lock; see [`StoredRow::word_after`].
    #[inline]
    pub fn word_before(&self) -> u64 {
        self.lock.load(Ordering::Acquire)
    }

    /// The first word, read after the rest. If it and the word before are [the same but for locks](same_version), and
    /// neither shows an exclusive lock, everything read between them was committed and unchanged.
    #[inline]
    pub fn word_after(&self) -> u64 {
        fence(Ordering::Acquire);
        self.lock.load(Ordering::Relaxed)
    }

    /// Copies the body into `out` while other threads may write it.
    #[inline]
    pub fn read_unlocked(&self, out: &mut Vec<u8>) {
        self.read(self.length().min(self.room()), out);
    }

    /// The body alone.
    #[inline]
    pub fn body(&self) -> BodyWords<'a> {
        BodyWords(self.body)
    }

    /// As [`BodyWords::field`].
    #[inline]
    pub fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.body().field(offset)
    }

    /// Copies the first `length` bytes of the body.
    #[inline]
    pub fn read(&self, length: usize, out: &mut Vec<u8>) {
        let words = &self.body[..length.div_ceil(8)];
        out.clear();
        out.reserve(words.len() * 8);
        let to = out.as_mut_ptr().cast::<u64>();
        for (at, word) in words.iter().enumerate() {
            // SAFETY: `reserve` made room for all the words, and an unaligned write asks for no more.
            unsafe { to.add(at).write_unaligned(word.load(Ordering::Relaxed).to_le()) };
        }
        // SAFETY: the words, all written, hold `length` bytes.
        unsafe { out.set_len(length) };
    }

    /// Changes the bytes of the body from its first one on. The caller has announced the change.
    #[inline]
    pub(super) fn put(&self, body: &[u8]) {
        assert!(body.len() <= self.room(), "a body of {} bytes does not fit its slot", body.len());
        let words = &self.body[..body.len().div_ceil(8)];
        let (chunks, rest) = body.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let last = match body.last_chunk::<8>() {
                // The body's last eight bytes, without those that are in the word before.
                Some(bytes) => u64::from_le_bytes(*bytes) >> (8 * (8 - rest.len())),
                None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
            };
            words[chunks.len()].store(last, Ordering::Relaxed);
        }
    }

    /// Changes the bytes at `offset` of the body. The caller has announced the change.
    #[inline(always)]
    pub(super) fn patch(&self, offset: usize, bytes: &[u8]) {
        // Most fields are numbers of eight bytes or four, in one word or two.
        if let Ok(number) = bytes.try_into().map(u64::from_le_bytes) {
            return self.put_number(offset, number, u64::MAX);
        }
        if let Ok(number) = bytes.try_into().map(u32::from_le_bytes) {
            return self.put_number(offset, u64::from(number), u64::from(u32::MAX));
        }
        self.patch_bytes(offset, bytes);
    }

    #[inline(never)]
    fn patch_bytes(&self, offset: usize, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % 8;
            let take = rest.len().min(8 - within);
            let word = &self.body[at / 8];
            let mut value = word.load(Ordering::Relaxed).to_le_bytes();
            value[within..within + take].copy_from_slice(&rest[..take]);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
            at += take;
            rest = &rest[take..];
        }
    }

    /// Changes the bytes at `offset` that `mask` covers, lowest first, to those of `number`.
    #[inline(always)]
    fn put_number(&self, offset: usize, number: u64, mask: u64) {
        let (shift, at) = (offset % 8 * 8, offset / 8);
        if mask == u64::MAX && shift == 0 {
            self.body[at].store(number.to_le(), Ordering::Relaxed);
            return;
        }
        let put = |word: &AtomicU64, number: u64, mask: u64| {
            let before = u64::from_le(word.load(Ordering::Relaxed));
            word.store((before & !mask | number).to_le(), Ordering::Relaxed);
        };
        put(&self.body[at], number << shift, mask << shift);
        if unlikely(shift > mask.leading_zeros() as usize) {
            put(&self.body[at + 1], number >> (64 - shift), mask >> (64 - shift));
        }
    }

    /// Makes an absent slot of so many units where there was none.
    #[inline]
    pub(super) fn begin(&self, units: usize, placeholder: &[u8]) {
        self.lock.store(ABSENT | (units as u64) << CAPACITY_SHIFT, Ordering::Relaxed);
        self.put_placeholder(placeholder);
    }

    /// Puts the primary key that is being inserted into an absent slot.
    #[inline]
    pub(super) fn put_placeholder(&self, key: &[u8]) {
        self.put(key);
        self.stamp.store(key.len() as u64, Ordering::Release);
    }

    /// Ends a change: the row is present, with a new version.
    #[inline]
    pub(super) fn finish_write(&self, length: usize, lsn: Lsn) {
        self.stamp.store(lsn.0 << 16 | length as u64, Ordering::Release);
        if self.lock.load(Ordering::Relaxed) & ABSENT != 0 {
            self.lock.fetch_and(!ABSENT, Ordering::AcqRel);
        }
        self.lock.fetch_add(VERSION_ONE, Ordering::AcqRel);
    }
}

/// The body of a record, to the end of the arena.
#[derive(Clone, Copy)]
pub struct BodyWords<'a>(&'a [AtomicU64]);

impl BodyWords<'_> {
    /// Of a body that lies elsewhere.
    pub const NONE: BodyWords<'static> = BodyWords(&[]);

    /// `N` bytes of the body at `offset`, at most 8, which the body has.
    #[inline]
    pub fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        const { assert!(N <= 8) };
        let (within, at) = (offset % 8, offset / 8);
        let low = self.0[at].load(Ordering::Relaxed) >> (within * 8);
        let high = match unlikely(within + N > 8) {
            true => self.0[at + 1].load(Ordering::Relaxed) << (64 - within * 8),
            false => 0,
        };
        *(low | high).to_le_bytes().first_chunk().expect("at most eight")
    }
}

/// Whether two values of a record's first word belong to the same version of the record.
#[inline]
pub fn same_version(word: u64, other: u64) -> bool {
    (word ^ other) & !THIN_LOCK_MASK == 0
}

/// Called before the first byte of a record is changed. A reader without a lock that reads a changed byte then finds
/// the exclusive lock or, after it, the new version.
#[inline]
pub(super) fn announce_write() {
    fence(Ordering::Release);
}
