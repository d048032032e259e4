//! Writing groups: from the ring into the log files. What makes packets durable at level 3.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::files::{FileTable, LogFile};
use super::ring::RingDrainer;
use super::turn::Waits;
use crate::io::{Caching, DiskResult};

/// Groups are counted by size in powers of two: 1, 2-3, 4-7, and so on; the last class holds all larger ones.
pub const GROUP_SIZE_CLASSES: usize = 16;

/// The class of a group of so many packets; `None` for an empty one.
pub(crate) fn group_size_class(packets: u64) -> Option<usize> {
    packets.checked_ilog2().map(|class| (class as usize).min(GROUP_SIZE_CLASSES - 1))
}

/// Counters of the log; each has one writer at a time (the holder of the writer word).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    groups: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    write_ns: AtomicU64,
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
    /// Groups of 1, 2-3, 4-7, … packets.
    pub group_sizes: [u64; GROUP_SIZE_CLASSES],
    /// What waiting for them has cost.
    pub waits: Waits,
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

/// The writer's state; the holder of the writer word has it.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    ring: RingDrainer,
    files: Arc<FileTable>,
    file: Arc<LogFile>,
    caching: Caching,
    lsn: u64,
    counters: Arc<Counters>,
}

impl GroupWriter {
    pub(crate) fn new(
        ring: RingDrainer,
        files: Arc<FileTable>,
        file: Arc<LogFile>,
        caching: Caching,
        lsn: u64,
        counters: Arc<Counters>,
    ) -> GroupWriter {
        GroupWriter { ring, files, file, caching, lsn, counters }
    }

    /// The position up to which the log is durable.
    pub(crate) fn position(&self) -> u64 {
        self.ring.position()
    }

    /// The last packet that is durable.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Makes the ring durable up to a page-aligned position, which holds whole packets up to `lsn`; how long it took.
    pub(crate) fn write(&mut self, to: u64, lsn: u64) -> DiskResult<Duration> {
        let mut from = self.ring.position();
        if from == to {
            return Ok(Duration::ZERO);
        }
        let (started, first) = (Instant::now(), from);
        while from < to {
            if from == self.file.end() {
                self.sync()?;
                self.file = self.files.at(from).expect("I10: what was gathered has its log file prepared");
            }
            let bytes = self.ring.bytes(from, to.min(self.file.end()));
            self.file.file.write_at(bytes, self.file.offset(from))?;
            Counters::add(&self.counters.writes, 1);
            from += bytes.len() as u64;
        }
        self.sync()?;
        self.ring.release(to);
        self.counters.count_group(lsn - self.lsn);
        Counters::add(&self.counters.bytes, to - first);
        let took = started.elapsed();
        Counters::add(&self.counters.write_ns, took.as_nanos() as u64);
        self.lsn = lsn;
        Ok(took)
    }

    fn sync(&self) -> DiskResult<()> {
        if self.caching == Caching::DirectSync {
            return Ok(());
        }
        Counters::add(&self.counters.syncs, 1);
        self.file.file.sync()
    }
}
