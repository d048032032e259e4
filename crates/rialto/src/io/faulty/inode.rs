//! One file of the faulty disk: its page cache, its bytes on the device, and the changes between them.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::Random;
use super::super::image::{FileImage, is_zero};

/// The device writes this much wholly or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A file, named or not, that handles and directories share.
pub(super) type SharedInode = Mutex<Inode>;

/// A file's bytes.
///
/// Invariants: `cache` is what the running system reads; `durable` is what every crash leaves, except where `unsynced`
/// overlaps it; `cache` is `durable` with all of `unsynced` applied, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    cache: FileImage,
    durable: FileImage,
    unsynced: Vec<FileChange>,
    /// The first bytes that have blocks: writing there cannot meet a full disk.
    reserved: u64,
}

/// A change that is not certainly durable.
#[derive(Debug, Clone)]
enum FileChange {
    Write {
        offset: u64,
        bytes: Bytes,
        /// The write made the file longer.
        extends: bool,
        /// A sync of it has failed: the page cache takes it for clean, and no later sync writes it.
        forgotten: bool,
    },
    SetLength(u64),
    Grow(u64),
}

/// Bytes of a write, shared by the copies of an inode.
#[derive(Debug, Clone)]
enum Bytes {
    Some { all: Arc<[u8]>, part: Range<usize> },
    Zeros(usize),
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Bytes::Some { part, .. } => part.len(),
            Bytes::Zeros(length) => *length,
        }
    }

    fn slice(&self, range: Range<usize>) -> Bytes {
        match self {
            Bytes::Some { all, part } => {
                Bytes::Some { all: all.clone(), part: part.start + range.start..part.start + range.end }
            }
            Bytes::Zeros(_) => Bytes::Zeros(range.len()),
        }
    }

    fn write_to(&self, image: &mut FileImage, offset: u64, range: Range<usize>) {
        match self {
            Bytes::Some { all, part } => {
                image.write(
                    &all[part.start + range.start..part.start + range.end],
                    offset + range.start as u64,
                );
            }
            Bytes::Zeros(_) => image.write_zeros(offset + range.start as u64, range.len()),
        }
    }
}

impl Inode {
    pub(super) fn length(&self) -> u64 {
        self.cache.length()
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.cache.read(buffer, offset)
    }

    /// The bytes that have blocks.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The blocks, in bytes, that a write up to `end` needs and the file does not have.
    pub(super) fn missing_blocks(&self, end: u64) -> u64 {
        end.saturating_sub(self.reserved)
    }

    pub(super) fn write(&mut self, buffer: &[u8], offset: u64) {
        if buffer.is_empty() {
            return;
        }
        let end = offset + buffer.len() as u64;
        let extends = end > self.length();
        let bytes = if is_zero(buffer) {
            Bytes::Zeros(buffer.len())
        } else {
            Bytes::Some { all: buffer.into(), part: 0..buffer.len() }
        };
        bytes.write_to(&mut self.cache, offset, 0..buffer.len());
        self.unsynced.push(FileChange::Write { offset, bytes, extends, forgotten: false });
        if offset <= self.reserved {
            self.reserved = self.reserved.max(end);
        }
    }

    /// The same for a write of which a part is lost: there the file keeps its bytes, or gets zeros behind its end.
    pub(super) fn write_but(&mut self, buffer: &[u8], offset: u64, lost: Range<usize>) {
        let mut bytes = buffer.to_vec();
        let from = offset + lost.start as u64;
        let there = self.length().saturating_sub(from).min(lost.len() as u64) as usize;
        let lost = &mut bytes[lost];
        lost.fill(0);
        assert!(there == 0 || self.read(&mut lost[..there], from), "the file is that long");
        self.write(&bytes, offset);
    }

    /// The device writes bytes here that belong elsewhere.
    pub(super) fn land(&mut self, part: &[u8], offset: u64) {
        self.write(part, offset);
        self.sync_last();
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.cache.set_length(length);
        self.unsynced.push(FileChange::SetLength(length));
        self.reserved = self.reserved.min(length);
    }

    pub(super) fn allocate(&mut self, length: u64) {
        self.cache.grow(length);
        self.unsynced.push(FileChange::Grow(length));
        self.reserved = self.reserved.max(length);
    }

    /// The bytes that are certainly on the device.
    pub(super) fn durable_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.durable.length() as usize];
        self.durable.read(&mut bytes, 0);
        bytes
    }

    /// Gives a synced file these bytes. Those that it does not have yet are not durable.
    pub(super) fn become_unsynced(&mut self, bytes: &[u8]) {
        let old = self.durable_bytes();
        if bytes.len() < old.len() {
            self.set_length(bytes.len() as u64);
        } else if bytes.len() > old.len() {
            self.allocate(bytes.len() as u64);
        }
        let sector = SECTOR_BYTES as usize;
        for (at, new) in bytes.chunks(sector).enumerate() {
            let from = (at * sector).min(old.len());
            let old = &old[from..(from + new.len()).min(old.len())];
            if !(old == new || old.is_empty() && is_zero(new)) {
                self.write(new, (at * sector) as u64);
            }
        }
    }

    /// A sync that succeeds: all changes that were not forgotten are durable.
    pub(super) fn sync(&mut self) {
        if self.unsynced.iter().any(|change| matches!(change, FileChange::Write { forgotten: true, .. })) {
            self.settle(0);
            return;
        }
        for change in self.unsynced.drain(..) {
            match change {
                // The cache's pages hold the result of all changes together.
                FileChange::Write { offset, bytes, .. } => {
                    self.durable.grow(offset + bytes.len() as u64);
                    self.durable.share(&self.cache, offset, bytes.len());
                }
                FileChange::SetLength(length) => self.durable.set_length(length),
                FileChange::Grow(length) => self.durable.grow(length),
            }
        }
        debug_assert_eq!(self.durable.length(), self.cache.length(), "a synced file has its length");
    }

    /// The last write becomes durable, and no other change (`O_DSYNC`).
    pub(super) fn sync_last(&mut self) {
        self.settle(self.unsynced.len().saturating_sub(1));
    }

    /// Makes the changes from `first` on durable, except forgotten ones; also all changes of length, because the length
    /// lies in the inode, which is always written whole. A change that stays keeps no bytes that a later durable change
    /// covers.
    fn settle(&mut self, first: usize) {
        let mut left: Vec<FileChange> = Vec::new();
        for (at, change) in std::mem::take(&mut self.unsynced).into_iter().enumerate() {
            match change {
                FileChange::Write { offset, ref bytes, forgotten, .. } => {
                    let end = offset + bytes.len() as u64;
                    self.durable.grow(end);
                    if at < first || forgotten {
                        left.push(change);
                    } else {
                        bytes.write_to(&mut self.durable, offset, 0..bytes.len());
                        left = cut(left, offset..end);
                    }
                }
                FileChange::SetLength(length) => {
                    self.durable.set_length(length);
                    left = cut(left, length..u64::MAX);
                }
                FileChange::Grow(length) => self.durable.grow(length),
            }
        }
        self.unsynced = left;
    }

    /// A sync that fails: the page cache forgets that anything was dirty.
    pub(super) fn fail_sync(&mut self) {
        for change in &mut self.unsynced {
            if let FileChange::Write { forgotten, .. } = change {
                *forgotten = true;
            }
        }
    }

    /// A write of an `O_DSYNC` file that fails in its sync.
    pub(super) fn fail_last(&mut self) {
        if let Some(FileChange::Write { forgotten, .. }) = self.unsynced.last_mut() {
            *forgotten = true;
        }
    }

    /// The page cache drops what no sync will ever write: those bytes read as they are on the device. The file keeps
    /// its length.
    pub(super) fn revert(&mut self) {
        let left = std::mem::take(&mut self.unsynced).into_iter().filter_map(|change| match change {
            FileChange::Write { offset, bytes, extends, forgotten: true } => {
                extends.then(|| FileChange::Grow(offset + bytes.len() as u64))
            }
            other => Some(other),
        });
        self.unsynced = left.collect();
        self.cache = self.durable.clone();
        for change in &self.unsynced {
            match change {
                FileChange::Write { offset, bytes, .. } => {
                    bytes.write_to(&mut self.cache, *offset, 0..bytes.len())
                }
                FileChange::SetLength(length) => self.cache.set_length(*length),
                FileChange::Grow(length) => self.cache.grow(*length),
            }
        }
    }

    /// What a crashed machine finds.
    pub(super) fn survivor(&self, random: &mut Random) -> Inode {
        let mut image = self.durable.clone();
        let mut changes: Vec<&FileChange> = self.unsynced.iter().collect();
        let fate = Fate::choose(random, changes.len());
        if fate == Fate::Each && random.chance(1, 2) {
            random.shuffle(&mut changes);
        }
        for (at, change) in changes.into_iter().enumerate() {
            let keeps = fate.keeps(at);
            match change {
                FileChange::Write { offset, bytes, extends, .. } => {
                    if *extends && keeps.unwrap_or_else(|| random.chance(1, 2)) {
                        image.grow(offset + bytes.len() as u64);
                    }
                    for part in surviving_sectors(random, *offset, bytes.len(), keeps) {
                        bytes.write_to(&mut image, *offset, part);
                    }
                }
                FileChange::SetLength(length) if keeps.unwrap_or_else(|| random.chance(1, 2)) => {
                    image.set_length(*length);
                }
                FileChange::Grow(length) if keeps.unwrap_or_else(|| random.chance(1, 2)) => {
                    image.grow(*length)
                }
                FileChange::SetLength(_) | FileChange::Grow(_) => {}
            }
        }
        let reserved = self.reserved.min(image.length());
        Inode { cache: image.clone(), durable: image, unsynced: Vec::new(), reserved }
    }

    /// Changes bytes to other values; `false` if the file ends before.
    pub(super) fn damage(&mut self, random: &mut Random, offset: u64, length: usize) -> bool {
        let masks: Vec<u8> = (0..length).map(|_| random.below(255) as u8 + 1).collect();
        let harm = |image: &mut FileImage| {
            let mut bytes = vec![0; length];
            let there = image.read(&mut bytes, offset);
            if there {
                bytes.iter_mut().zip(&masks).for_each(|(byte, mask)| *byte ^= mask);
                image.write(&bytes, offset);
            }
            there
        };
        harm(&mut self.durable);
        harm(&mut self.cache)
    }
}

/// The changes without those bytes of their writes that lie in `range`.
fn cut(changes: Vec<FileChange>, range: Range<u64>) -> Vec<FileChange> {
    let mut left = Vec::with_capacity(changes.len());
    for change in changes {
        let FileChange::Write { offset, bytes, extends, forgotten } = change else {
            left.push(change);
            continue;
        };
        let end = offset + bytes.len() as u64;
        for kept in [offset..range.start.min(end), range.end.max(offset)..end] {
            if kept.start < kept.end {
                let bytes = bytes.slice((kept.start - offset) as usize..(kept.end - offset) as usize);
                left.push(FileChange::Write { offset: kept.start, bytes, extends, forgotten });
            }
        }
    }
    left
}

/// How a crash treats a sequence of changes as a whole. The rare outcomes (all, none, a prefix) thereby stay likely
/// however long the sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    All,
    None,
    /// The changes before this one, and perhaps this one.
    Until(usize),
    /// Each change is kept or lost on its own.
    Each,
}

impl Fate {
    pub(super) fn choose(random: &mut Random, changes: usize) -> Fate {
        match random.below(8) {
            0 => Fate::All,
            1 => Fate::None,
            2 | 3 if changes > 0 => Fate::Until(random.below(changes as u64) as usize),
            _ => Fate::Each,
        }
    }

    /// Whether the change at this place is kept whole or lost whole; `None` if that is drawn for each change.
    pub(super) fn keeps(self, at: usize) -> Option<bool> {
        match self {
            Fate::All => Some(true),
            Fate::None => Some(false),
            Fate::Until(last) if at != last => Some(at < last),
            Fate::Until(_) | Fate::Each => None,
        }
    }
}

/// The parts of a write that are kept: whole sectors, chosen in one of the ways in which real writes tear.
fn surviving_sectors(
    random: &mut Random,
    offset: u64,
    length: usize,
    keeps: Option<bool>,
) -> Vec<Range<usize>> {
    let first = offset / SECTOR_BYTES;
    let sectors = (offset + length as u64).div_ceil(SECTOR_BYTES) - first;
    let start =
        |sector: u64| ((first + sector) * SECTOR_BYTES).saturating_sub(offset).min(length as u64) as usize;
    let run = |range: Range<u64>| start(range.start)..start(range.end);
    let one = random.below(sectors);
    match (keeps, random.below(6)) {
        (Some(true), _) | (None, 0) => vec![run(0..sectors)],
        (Some(false), _) | (None, 1) => Vec::new(),
        (None, 2) => vec![run(0..one)],
        (None, 3) => vec![run(0..one), run(one + 1..sectors)],
        (None, 4) => vec![run(one..one + 1)],
        _ => (0..sectors).filter(|_| random.chance(1, 2)).map(|sector| run(sector..sector + 1)).collect(),
    }
}
