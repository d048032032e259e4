#![allow(unsafe_code)]
//! The log tail in shared memory. The gatherer builds blocks in it, which makes them durable at level 1. The writer
//! writes them from it to the log files, which makes them durable at level 3; only then is their room used again.
//!
//! ```text
//!  0       8      24       40      48        56        64      72            4096                 4096 + ring bytes
//!  +-------+------+--------+-------+---------+---------+-------+-------+- … -+--------------------------+
//!  | magic | boot |database| bytes |gathered |released | life  | check |     | stream byte p lies at    |
//!  |       |      |        | (ring)|position |position |       | word  |     | 4096 + p mod ring bytes  |
//!  +-------+------+--------+-------+---------+---------+-------+-------+- … -+--------------------------+
//! ```
//!
//! The gathered position is advanced after the bytes before it are complete, so a killed process leaves a chain of
//! whole blocks up to it. The contents are valid only under the boot and the database that wrote them.
//!
//! The *life* is a random number that is drawn when a ring is made. An opening that adopts the ring of an earlier
//! process keeps its number; every other opening draws one. So two openings with one life have lost nothing in between
//! that was durable at level 1. Its check word is a digest of it with boot and database: a program that writes no life
//! leaves the one that it finds, and says another boot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use xxhash_rust::xxh3::xxh3_64;

use super::PAGE;
use super::block::BLOCK_MAX;
use crate::fault_injection;
use crate::io::{Disk, SharedMap};
use crate::unlikely::unlikely;
use crate::{Error, Result, seed};

/// The shared map's name in the data directory.
pub(crate) const RING_NAME: &str = "log-tail";
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"RIALTOT1");
const GATHERED: usize = 6;
/// Up to here the log is on the disk, as far as this process knows; 0 in rings of programs that did not say it.
const RELEASED: usize = 7;
/// A random number, and its check word; both are 0 in rings of programs that did not draw one.
const LIFE: usize = 8;
const LIFE_CHECK: usize = 9;
pub(super) const HEADER_WORDS: usize = LIFE_CHECK + 1;

/// The check word of a life under this boot and database.
fn check_of(life: u64, boot: u128, database: u128) -> u64 {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&life.to_le_bytes());
    bytes[8..24].copy_from_slice(&boot.to_le_bytes());
    bytes[24..].copy_from_slice(&database.to_le_bytes());
    xxh3_64(&bytes)
}

/// The state that the gatherer's and the writer's end share.
#[derive(Debug)]
struct Ring {
    map: SharedMap,
    bytes: u64,
    /// The position at which it began: what lies before it was never in it.
    start: u64,
    life: u64,
    /// The gatherer's end: every byte before it is complete.
    filled: AtomicU64,
    /// The writer's end: every byte before it is durable on disk, and its room may be written again.
    released: AtomicU64,
}

/// Makes the ring anew at a page-aligned stream position, with these bytes of the page that begins there. It goes on with
/// the life of the ring that was adopted, if one was.
pub(crate) fn start(
    disk: &dyn Disk,
    database: u128,
    bytes: usize,
    (position, page): (u64, &[u8]),
    adopted: Option<u64>,
) -> Result<(RingFiller, RingDrainer, RingView)> {
    assert!(bytes.is_multiple_of(PAGE) && position.is_multiple_of(PAGE as u64) && page.len() < PAGE);
    let map = disk.map_shared(RING_NAME, PAGE + bytes)?;
    let words = map.as_words();
    let filled = position + page.len() as u64;
    // Invalid while the header changes: a ring of a process that is killed here is ignored, and nothing is in it.
    words[0].store(0, Ordering::SeqCst);
    let boot = disk.boot();
    let header =
        [boot as u64, (boot >> 64) as u64, database as u64, (database >> 64) as u64, bytes as u64, filled];
    for (word, value) in words[1..].iter().zip(header) {
        word.store(value, Ordering::SeqCst);
    }
    words[RELEASED].store(position, Ordering::SeqCst);
    let found = fault_injection::is_on("life-outlives-its-ring").then(|| words[LIFE].load(Ordering::SeqCst));
    let life = adopted.or(found.filter(|life| *life != 0)).unwrap_or_else(seed::draw);
    words[LIFE].store(life, Ordering::SeqCst);
    words[LIFE_CHECK].store(check_of(life, boot, database), Ordering::SeqCst);
    put_words(words, bytes as u64, position, page);
    words[0].store(MAGIC, Ordering::SeqCst);
    let released = AtomicU64::new(position);
    let ring = Arc::new(Ring {
        map,
        bytes: bytes as u64,
        start: position,
        life,
        filled: AtomicU64::new(filled),
        released,
    });
    let drainer = RingDrainer { ring: ring.clone(), taken: position };
    Ok((RingFiller::new(ring.clone(), filled), drainer, RingView { ring }))
}

/// Puts bytes, whose number is a multiple of 8, into the ring of these words and this length, around its end if need be.
fn put_words(words: &[AtomicU64], ring_bytes: u64, position: u64, bytes: &[u8]) {
    for (at, word) in (position..).step_by(8).zip(bytes.chunks_exact(8)) {
        let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        words[(PAGE as u64 + at % ring_bytes) as usize / 8].store(word, Ordering::Relaxed);
    }
}

impl Ring {
    /// The address of a range that does not pass the ring's end.
    fn address(&self, position: u64, length: usize) -> *mut u8 {
        let offset = position % self.bytes;
        assert!(offset + length as u64 <= self.bytes, "a block passes the ring's end");
        // SAFETY: header page and ring lie in the map, and the assertion keeps the range inside the ring.
        unsafe { self.map.as_ptr().add(PAGE + offset as usize) }
    }
}

/// The gatherer's end: the only one that writes the ring's bytes.
#[derive(Debug)]
pub(crate) struct RingFiller {
    ring: Arc<Ring>,
    /// Up to where it has filled the ring; only it changes that.
    position: u64,
    /// Where in the ring that position lies.
    offset: u64,
    /// Up to here the ring was seen to be free, in one piece.
    open_until: u64,
}

impl RingFiller {
    fn new(ring: Arc<Ring>, position: u64) -> RingFiller {
        RingFiller { offset: position % ring.bytes, open_until: position, ring, position }
    }

    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The position known to be durable on disk.
    #[inline(always)]
    pub(crate) fn durable(&self) -> u64 {
        self.ring.released.load(Ordering::Acquire)
    }

    /// Bytes that may be filled before more is released.
    #[inline(always)]
    pub(crate) fn free(&self) -> u64 {
        self.durable() + self.ring.bytes - self.position()
    }

    /// Bytes to the ring's end.
    #[inline(always)]
    pub(crate) fn room(&self) -> u64 {
        self.ring.bytes - self.offset
    }

    /// The next `length` bytes, to be filled in.
    #[inline(always)]
    pub(crate) fn window(&mut self, length: usize) -> &mut [u8] {
        let end = self.position + length as u64;
        if unlikely(end > self.open_until) {
            self.open_until = self.position + self.free().min(self.room());
            assert!(end <= self.open_until, "the ring is full, or ends before that");
        }
        // SAFETY: header page and ring lie in the map, and `open_until` keeps the range inside the ring.
        let start = unsafe { self.ring.map.as_ptr().add(PAGE + self.offset as usize) };
        // SAFETY: the range lies between filled and released + bytes, which only grows: the drainer reads only before
        // filled and at or past released, readers of an earlier process are gone, and this is the only filler, borrowed
        // mutably. `RingView::copy` reads words here, atomically, and does not look at what it may have read meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Copies the next bytes in, whose number is a multiple of 8 and at most what is free. They may pass the ring's end.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.free(), "the ring is full");
        put_words(self.ring.map.as_words(), self.ring.bytes, self.position, bytes);
        let end = self.position + bytes.len() as u64;
        // From here on as after a window.
        (self.offset, self.open_until) = (end % self.ring.bytes, end);
        self.position = end;
        self.ring.map.as_words()[GATHERED].store(end, Ordering::Release);
        self.ring.filled.store(end, Ordering::SeqCst);
        fence(Ordering::Release);
    }

    /// The next `length` bytes, which lay in a [window](RingFiller::window), are complete now.
    #[inline(always)]
    pub(crate) fn fill(&mut self, length: usize) {
        self.position += length as u64;
        self.offset += length as u64;
        if self.offset == self.ring.bytes {
            self.offset = 0;
        }
        self.ring.map.as_words()[GATHERED].store(self.position, Ordering::Release);
        self.ring.filled.store(self.position, Ordering::SeqCst);
        // For readers that copy the ring: bytes of the next window are written after this.
        fence(Ordering::Release);
    }
}

/// The writer's end: it takes what is filled, piece by piece.
#[derive(Debug)]
pub(crate) struct RingDrainer {
    ring: Arc<Ring>,
    /// Everything before this is taken.
    taken: u64,
}

impl RingDrainer {
    /// The position up to which the ring is taken.
    pub(crate) fn position(&self) -> u64 {
        self.taken
    }

    /// Takes what is filled, up to `to`.
    pub(crate) fn take(&mut self, to: u64) -> RingPiece {
        assert!(self.taken <= to && to <= self.ring.filled.load(Ordering::Acquire));
        let from = std::mem::replace(&mut self.taken, to);
        RingPiece { ring: self.ring.clone(), from, to }
    }
}

/// A piece of the ring on its way to the disk. Pieces do not overlap, and are released in their order.
#[derive(Debug)]
pub(crate) struct RingPiece {
    ring: Arc<Ring>,
    from: u64,
    to: u64,
}

impl RingPiece {
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    pub(crate) fn to(&self) -> u64 {
        self.to
    }

    /// The bytes from `from`, at most up to `to` and to the ring's end.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> &[u8] {
        assert!(self.from <= from && from <= to && to <= self.to);
        let length = (to - from).min(self.ring.bytes - from % self.ring.bytes) as usize;
        // SAFETY: the range lies between released and filled. The filler does not write there until this piece is
        // released, which consumes it, and the pieces before it are released first.
        unsafe { std::slice::from_raw_parts(self.ring.address(from, length), length) }
    }

    /// The piece is durable on disk, and so are all before it.
    pub(crate) fn release(self) {
        assert_eq!(
            self.ring.released.load(Ordering::Relaxed),
            self.from,
            "pieces are released in their order"
        );
        // Before its room may be written again.
        self.ring.map.as_words()[RELEASED].store(self.to, Ordering::SeqCst);
        self.ring.released.store(self.to, Ordering::SeqCst);
    }
}

/// Reads both positions, for any thread.
#[derive(Debug)]
pub(crate) struct RingView {
    ring: Arc<Ring>,
}

impl RingView {
    /// See the [module](self).
    pub(crate) fn life(&self) -> u64 {
        self.ring.life
    }

    pub(crate) fn filled(&self) -> u64 {
        self.ring.filled.load(Ordering::SeqCst)
    }

    pub(crate) fn released(&self) -> u64 {
        self.ring.released.load(Ordering::SeqCst)
    }

    /// Copies out the bytes of whole blocks, whose ends are 8-aligned. Returns false if they are not in the ring, or may have been
    /// overwritten during the copy.
    pub(crate) fn copy(&self, from: u64, to: u64, out: &mut Vec<u8>) -> bool {
        let (bytes, words) = (self.ring.bytes, self.ring.map.as_words());
        // The filler writes no further than one block behind what is filled, and only where the ring is released.
        let is_there = || from >= self.released() || from + bytes >= self.filled() + BLOCK_MAX as u64;
        out.clear();
        if from < self.ring.start || !is_there() {
            return false;
        }
        let mut at = from;
        while at < to {
            let length = (to - at).min(bytes - at % bytes);
            let first = (PAGE as u64 + at % bytes) as usize / 8;
            let words = &words[first..first + (length / 8) as usize];
            out.extend(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()));
            at += length;
        }
        fence(Ordering::Acquire);
        is_there()
    }
}

/// What an earlier process of the same boot left in the ring.
#[derive(Debug)]
pub(crate) struct RingTail {
    map: SharedMap,
    bytes: u64,
    gathered: u64,
    released: u64,
    life: Option<u64>,
}

impl RingTail {
    /// `None` if there is no ring, or one of another boot or database: after a loss of power a ring of another boot may
    /// have lost any part of its contents, and have any length. A ring of this boot that has been cut is an error:
    /// commits that were answered may be missing.
    pub(crate) fn find(disk: &dyn Disk, database: u128) -> Result<Option<RingTail>> {
        let Some(size) = disk.shared_bytes(RING_NAME)?.filter(|size| *size > 0) else { return Ok(None) };
        let of_no_ring = |which: String| {
            let what = format!(
                "has {size} bytes, {which}: put the file back as it was, or remove it if no process has used the database since the \
                 machine was started"
            );
            Err(Error::Corrupt { file: RING_NAME.to_owned(), offset: 0, what })
        };
        if size < 8 * HEADER_WORDS || !size.is_multiple_of(8) {
            return of_no_ring("which no ring has".to_owned());
        }
        let map = disk.map_shared(RING_NAME, size)?;
        let words: Vec<u64> =
            map.as_words()[..HEADER_WORDS].iter().map(|word| word.load(Ordering::SeqCst)).collect();
        let pair = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
        let ours = words[0] == MAGIC
            && pair(words[1], words[2]) == disk.boot()
            && pair(words[3], words[4]) == database;
        let bytes = size.saturating_sub(PAGE) as u64;
        if ours && words[5] != bytes {
            return of_no_ring(format!("expected {}", words[5].saturating_add(PAGE as u64)));
        }
        let ours = ours && !fault_injection::is_on("ring-not-adopted");
        let has_life = words[LIFE_CHECK] == check_of(words[LIFE], disk.boot(), database);
        let life = has_life.then_some(words[LIFE]);
        Ok(ours.then(|| RingTail { bytes, gathered: words[GATHERED], released: words[RELEASED], life, map }))
    }

    /// Its life, if the program that made it drew one.
    pub(crate) fn life(&self) -> Option<u64> {
        self.life
    }

    /// The position before which everything was durable at level 1.
    pub(crate) fn gathered(&self) -> u64 {
        self.gathered
    }

    /// The position before which everything was on the disk, so that the ring may hold something else; 0 if that is not
    /// known.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// Copies out the bytes from an 8-aligned position on, as far as the ring may hold them.
    pub(crate) fn read(&self, position: u64, most: usize) -> Vec<u8> {
        let there = self.gathered.saturating_sub(position).min(self.bytes).min(most as u64) / 8;
        let words = self.map.as_words();
        let word = |at: u64| words[(PAGE as u64 + at % self.bytes) as usize / 8].load(Ordering::Relaxed);
        (0..there).flat_map(|nth| word(position + 8 * nth).to_ne_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryDisk;

    #[test]
    fn fills_drains_wraps_and_is_found_again_only_by_its_database() {
        let disk = MemoryDisk::new();
        let (mut filler, mut drainer, view) = start(&*disk, 7, 2 * PAGE, (PAGE as u64, &[]), None).unwrap();
        assert_eq!((filler.free(), filler.room()), (2 * PAGE as u64, PAGE as u64));
        for round in 0..5u8 {
            filler.window(PAGE).fill(round);
            filler.fill(PAGE);
            let piece = drainer.take(view.filled());
            assert_eq!(drainer.position(), piece.to());
            assert!(piece.bytes(piece.from(), piece.to()).iter().all(|&byte| byte == round));
            if round < 4 {
                piece.release();
            }
        }
        assert_eq!(view.released(), 5 * PAGE as u64);
        let tail = RingTail::find(&*disk, 7).unwrap().unwrap();
        assert_eq!(tail.gathered(), 6 * PAGE as u64);
        assert_eq!(tail.read(5 * PAGE as u64, PAGE), vec![4; PAGE]);
        assert!(tail.read(6 * PAGE as u64, PAGE).is_empty());
        assert!(RingTail::find(&*disk, 8).unwrap().is_none());
    }

    #[test]
    fn one_that_has_been_cut_is_an_error() {
        let disk = MemoryDisk::new();
        let refused = |expected: &str| match RingTail::find(&*disk, 7) {
            Err(Error::Corrupt { file, what, .. }) => {
                assert!(file == RING_NAME && what.contains(expected), "{what}")
            }
            other => panic!("{other:?}"),
        };
        disk.map_shared(RING_NAME, 8).unwrap();
        refused("has 8 bytes, which no ring has");
        start(&*disk, 7, 4 * PAGE, (0, &[]), None).unwrap();
        let whole = disk.map_shared(RING_NAME, 5 * PAGE).unwrap();
        let cut = disk.map_shared(RING_NAME, 3 * PAGE).unwrap();
        assert!(RingTail::find(&*disk, 7).unwrap().is_none(), "an empty one");
        cut.as_words().iter().zip(whole.as_words()).for_each(|(to, from)| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        refused("has 12288 bytes, expected 20480");
        assert!(RingTail::find(&*disk, 8).unwrap().is_none());
        // Within its header's page, too.
        let header = disk.map_shared(RING_NAME, PAGE / 2).unwrap();
        header.as_words().iter().zip(whole.as_words()).for_each(|(to, from)| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        refused("has 2048 bytes, expected 20480");
    }

    /// A loss of power leaves a new ring, which was never synced, with any length.
    #[test]
    fn one_of_another_boot_may_have_any_length() {
        let disk = MemoryDisk::new();
        for bytes in [HEADER_WORDS * 8, 3_584, PAGE, 2 * PAGE + 512] {
            disk.map_shared(RING_NAME, bytes).unwrap();
            assert!(RingTail::find(&*disk, 7).unwrap().is_none(), "zeros, {bytes} bytes");
            let words = disk.map_shared(RING_NAME, bytes).unwrap();
            words.as_words()[0].store(MAGIC, Ordering::SeqCst);
            words.as_words()[3].store(7, Ordering::SeqCst);
            words.as_words()[5].store(4 * PAGE as u64, Ordering::SeqCst);
            assert!(RingTail::find(&*disk, 7).unwrap().is_none(), "{bytes} bytes of another boot");
        }
    }

    #[test]
    fn its_life_is_kept_by_an_adoption_and_tied_to_the_boot() {
        let disk = MemoryDisk::new();
        let (_, _, first) = start(&*disk, 7, 2 * PAGE, (0, &[]), None).unwrap();
        let found = || RingTail::find(&*disk, 7).unwrap().unwrap().life();
        assert_eq!(found(), Some(first.life()));
        let (_, _, adopted) = start(&*disk, 7, 2 * PAGE, (0, &[]), found()).unwrap();
        assert_eq!((adopted.life(), found()), (first.life(), Some(first.life())));
        let (_, _, other) = start(&*disk, 7, 2 * PAGE, (0, &[]), None).unwrap();
        assert_ne!(other.life(), first.life());
        let words = disk.map_shared(RING_NAME, 3 * PAGE).unwrap();
        // A program that draws no life has made the ring anew under this boot; the life in it is of another boot.
        words.as_words()[LIFE_CHECK].store(check_of(other.life(), 1, 7), Ordering::SeqCst);
        assert_eq!(found(), None);
        words.as_words()[LIFE..=LIFE_CHECK].iter().for_each(|word| word.store(0, Ordering::SeqCst));
        assert_eq!(found(), None, "made by a program that draws none");
    }

    #[test]
    #[should_panic(expected = "the ring is full")]
    fn is_not_overwritten_before_it_is_released() {
        let (mut filler, _drainer, _) = start(&*MemoryDisk::new(), 7, 2 * PAGE, (0, &[]), None).unwrap();
        filler.fill(2 * PAGE);
        filler.window(8);
    }
}
