//! Writes groups from the ring into the log files, which makes packets durable at level 3.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::files::FileTable;
use super::log_file::LogFile;
use super::overlap::OverlappingSyncs;
use super::ring::{RingDrainer, RingPiece};
use super::turn::Waits;
use super::write_path::WritePath;
use crate::fault_injection;
use crate::io::{Caching, Clock, DiskResult};

/// Groups are counted by size in powers of two: 1, 2-3, 4-7, and so on; the last class holds all larger ones.
pub const GROUP_SIZE_CLASSES: usize = 16;

/// The class of a group of this many packets; `None` for an empty one.
pub(crate) fn group_size_class(packets: u64) -> Option<usize> {
    packets.checked_ilog2().map(|class| (class as usize).min(GROUP_SIZE_CLASSES - 1))
}

/// Log writes are counted by their time in powers of two of a microsecond: less than 2, 2-4, 4-8, and so on; the last
/// class holds all from 2^15 us, 33 ms, on.
pub const WRITE_TIME_CLASSES: usize = 16;

/// The class of a log write that took so long.
pub fn write_time_class(took: Duration) -> usize {
    let us = took.as_micros().clamp(1, u128::from(u32::MAX)) as u32;
    (us.ilog2() as usize).min(WRITE_TIME_CLASSES - 1)
}

/// Counters of the log. Each has one writer at a time, the thread whose group completes; those of calls may have
/// several.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    groups: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    write_ns: AtomicU64,
    write_times: [AtomicU64; WRITE_TIME_CLASSES],
    sizes: [AtomicU64; GROUP_SIZE_CLASSES],
}

/// What the log has written since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Groups written.
    pub groups: u64,
    /// Packets in them.
    pub packets: u64,
    /// Bytes written to the log files.
    pub bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Sync calls.
    pub syncs: u64,
    /// Time spent in writes and syncs, in nanoseconds.
    pub write_ns: u64,
    /// Groups whose write and sync took less than 2, 2-4, 4-8, … us.
    pub write_times: [u64; WRITE_TIME_CLASSES],
    /// Groups of 1, 2-3, 4-7, … packets.
    pub group_sizes: [u64; GROUP_SIZE_CLASSES],
    /// What waiting for them has cost.
    pub waits: Waits,
}

impl LogStats {
    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &LogStats) -> LogStats {
        LogStats {
            groups: self.groups - earlier.groups,
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            writes: self.writes - earlier.writes,
            syncs: self.syncs - earlier.syncs,
            write_ns: self.write_ns - earlier.write_ns,
            write_times: std::array::from_fn(|class| self.write_times[class] - earlier.write_times[class]),
            group_sizes: std::array::from_fn(|class| self.group_sizes[class] - earlier.group_sizes[class]),
            waits: self.waits.since(earlier.waits),
        }
    }
}

impl Counters {
    fn add(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, waits: Waits) -> LogStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            groups: read(&self.groups),
            packets: read(&self.packets),
            bytes: read(&self.bytes),
            writes: read(&self.writes),
            syncs: read(&self.syncs),
            write_ns: read(&self.write_ns),
            write_times: std::array::from_fn(|class| read(&self.write_times[class])),
            group_sizes: std::array::from_fn(|class| read(&self.sizes[class])),
            waits,
        }
    }

    fn count_group(&self, packets: u64) {
        Counters::add(&self.groups, 1);
        Counters::add(&self.packets, packets);
        if let Some(class) = group_size_class(packets) {
            Counters::add(&self.sizes[class], 1);
        }
    }
}

/// Cuts groups out of the ring, one after the other. The holder of the writer word uses it.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    ring: RingDrainer,
    files: Arc<FileTable>,
    /// The file that the next group begins in, or at whose end it begins.
    file: Arc<LogFile>,
    caching: Caching,
    syncs: Option<Arc<OverlappingSyncs>>,
    lsn: u64,
    counters: Arc<Counters>,
}

/// A group on its way to the disk.
#[derive(Debug)]
pub(crate) struct GroupWrite {
    piece: RingPiece,
    files: Arc<FileTable>,
    file: Arc<LogFile>,
    caching: Caching,
    /// Shared by groups whose syncs may overlap.
    syncs: Option<Arc<OverlappingSyncs>>,
    packets: u64,
    counters: Arc<Counters>,
}

impl GroupWriter {
    pub(crate) fn new(
        ring: RingDrainer,
        files: Arc<FileTable>,
        file: Arc<LogFile>,
        write_path: WritePath,
        lsn: u64,
        counters: Arc<Counters>,
    ) -> GroupWriter {
        let WritePath { caching, in_flight, .. } = write_path;
        let syncs = (in_flight > 1).then(Arc::default);
        GroupWriter { ring, files, file, caching, syncs, lsn, counters }
    }

    /// The position up to which the log is on its way to the disk, or durable.
    pub(crate) fn position(&self) -> u64 {
        self.ring.position()
    }

    /// The last packet that is on its way to the disk, or durable.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Takes the group up to a page-aligned position, which holds whole packets up to `lsn`.
    pub(crate) fn take(&mut self, to: u64, lsn: u64) -> GroupWrite {
        let group = GroupWrite {
            piece: self.ring.take(to),
            files: self.files.clone(),
            file: self.file.clone(),
            caching: self.caching,
            syncs: self.syncs.clone(),
            packets: lsn - self.lsn,
            counters: self.counters.clone(),
        };
        while to > self.file.end() {
            self.file = group.next_file(self.file.end());
        }
        self.lsn = lsn;
        group
    }
}

impl GroupWrite {
    fn next_file(&self, position: u64) -> Arc<LogFile> {
        self.files.at(position).expect("I10: what was gathered has its log file prepared")
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.piece.from() == self.piece.to()
    }

    /// Writes the group and syncs it. Returns how long that took, which is zero only if there was nothing to write.
    pub(crate) fn write(&mut self, clock: &Clock) -> DiskResult<Duration> {
        if self.is_empty() {
            return Ok(Duration::ZERO);
        }
        let started = clock.now();
        let (mut from, to) = (self.piece.from(), self.piece.to());
        while from < to {
            if from == self.file.end() {
                // A group that begins at the end of a file has written nothing to that file, which needs no sync.
                if from > self.piece.from() {
                    self.sync()?;
                }
                self.file = self.next_file(from);
            }
            let bytes = self.piece.bytes(from, to.min(self.file.end()));
            self.file.file.write_at(bytes, self.file.offset(from))?;
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            from += bytes.len() as u64;
        }
        self.sync()?;
        Ok((clock.now() - started).max(Duration::from_nanos(1)))
    }

    fn sync(&self) -> DiskResult<()> {
        if self.caching == Caching::DirectSync {
            return Ok(());
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        if fault_injection::is_on("log-without-sync") {
            return Ok(());
        }
        let file = &*self.file.file;
        let synced = match &self.syncs {
            Some(syncs) => syncs.sync(file),
            None => file.sync(),
        };
        if fault_injection::is_on("failed-sync-counts") { Ok(()) } else { synced }
    }

    /// The group is durable, and so are all groups before it.
    pub(crate) fn complete(self, took: Duration) {
        if !self.is_empty() {
            self.counters.count_group(self.packets);
            Counters::add(&self.counters.bytes, self.piece.to() - self.piece.from());
            Counters::add(&self.counters.write_ns, took.as_nanos() as u64);
            Counters::add(&self.counters.write_times[write_time_class(took)], 1);
        }
        self.piece.release();
    }
}
