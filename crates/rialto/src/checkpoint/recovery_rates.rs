//! The time that a recovery takes: [`RecoveryWork`] is how much there is to do, [`RecoveryRates`] the cost of each part
//! on this machine and database, [`RecoveryEstimate`] the resulting time.
//!
//! Each recovery that has enough to do measures the costs. They are kept in the file `recovery-rates`, because the next
//! process, which may die soon, has to know them. The cost of a part that was never measured is assumed
//! ([`RecoveryRates::default`]). The costs hold for the machine, the number of threads and the indexes that they were
//! measured with; when those change, the next recovery corrects them.
//!
//! Redo has two costs: reading a byte of log, and doing a packet. Either alone would be far wrong when groups become
//! larger or smaller, because a lone commit's page is mostly empty.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::io::{Caching, Disk, DiskResult, Open};

/// The file of the measured costs.
pub(crate) const RECORD: &str = "recovery-rates";
const FIRST_LINE: &str = "recovery rates, version 1";
/// The longest record, in bytes.
const RECORD_BYTES_MAX: u64 = 4096;
/// The bounds within which the measured time of a transaction is believed: bodies may wait for anything.
const FORWARD_NS: (f64, f64) = (200.0, 20_000.0);
/// What a page is assumed to cost that redo reads: several are read side by side.
const PAGE_READ_NS: f64 = 20_000.0;
/// The most pages for a packet that are believed: others than transactions that log read pages, too.
const PAGES_READ_MAX: f64 = 4.0;
/// The highest cost: a second for a byte.
const COST_MAX: f64 = 1e9;

/// How much a recovery has to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryWork {
    /// Bytes of the backup copy that it loads and indexes.
    pub copy_bytes: u64,
    /// Bytes of segments at its end, from which secondary indexes are built.
    pub memory_bytes: u64,
    /// Bytes of log that it reads.
    pub log_bytes: u64,
    /// Packets in this log.
    pub packets: u64,
    /// Bytes of bulk loads that the backup copy lacks.
    pub bulk_bytes: u64,
}

/// The cost of one part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Nanoseconds for a byte, or for a packet.
    pub ns: f64,
    /// Whether a recovery measured it; otherwise it is assumed.
    pub is_measured: bool,
}

impl Cost {
    const fn assumed(ns: f64) -> Cost {
        Cost { ns, is_measured: false }
    }

    /// Takes the next measurement. Two in a row weigh the same, so that one that was disturbed does not count alone.
    pub(crate) fn learn(&mut self, ns: f64) {
        let ns = if self.is_measured { (self.ns + ns) / 2.0 } else { ns };
        *self = Cost { ns: ns.clamp(0.0, COST_MAX), is_measured: true };
    }

    fn of(&self, amount: u64) -> Duration {
        Duration::from_secs_f64(self.ns * amount as f64 / 1e9)
    }
}

/// The costs of the parts of a recovery.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecoveryRates {
    /// Reading a byte of the backup copy.
    pub load: Cost,
    /// Building the primary indexes, for each byte of it.
    pub primary: Cost,
    /// Building all secondary indexes, for each byte of segments.
    pub secondary: Cost,
    /// Reading a byte of log.
    pub log: Cost,
    /// Redoing a packet.
    pub packet: Cost,
    /// Redoing a byte of a bulk load.
    pub bulk: Cost,
}

impl Default for RecoveryRates {
    /// The costs assumed before any measurement. The copy is read at 625 MB/s, and its indexes are built at 1.25 GB/s
    /// by primary keys and at 2 GB/s by others. Log is read at 1 GB/s, a million packets are redone in a second, and
    /// bulk loads are redone at 100 MB/s.
    fn default() -> RecoveryRates {
        RecoveryRates {
            load: Cost::assumed(1.6),
            primary: Cost::assumed(0.8),
            secondary: Cost::assumed(0.5),
            log: Cost::assumed(1.0),
            packet: Cost::assumed(1000.0),
            bulk: Cost::assumed(10.0),
        }
    }
}

impl RecoveryRates {
    pub(crate) fn named(&self) -> [(&'static str, Cost); 6] {
        [
            ("load, a byte of the backup copy", self.load),
            ("primary indexes, a byte of the backup copy", self.primary),
            ("secondary indexes, a byte of segments", self.secondary),
            ("reading log, a byte", self.log),
            ("redo, a packet", self.packet),
            ("redo of bulk loads, a byte", self.bulk),
        ]
    }

    /// How long this work will take.
    pub fn estimate(&self, work: &RecoveryWork) -> RecoveryEstimate {
        RecoveryEstimate {
            load: self.load.of(work.copy_bytes),
            primary: self.primary.of(work.copy_bytes),
            redo: self.redo(work.log_bytes, work.packets) + self.bulk.of(work.bulk_bytes),
            secondary: self.secondary.of(work.memory_bytes),
        }
    }

    /// How long redoing so much log will take.
    pub fn redo(&self, log_bytes: u64, packets: u64) -> Duration {
        self.log.of(log_bytes) + self.packet.of(packets)
    }

    /// Without a measurement, assumes that redoing a packet takes about as long as running its transaction, and that it reads as
    /// many pages. Returns whether that differs much from the assumption before.
    pub(crate) fn assume_packet(&mut self, forward_ns: f64, pages_read: f64) -> bool {
        if self.packet.is_measured {
            return false;
        }
        let ns = forward_ns.clamp(FORWARD_NS.0, FORWARD_NS.1) + pages_read.min(PAGES_READ_MAX) * PAGE_READ_NS;
        let before = std::mem::replace(&mut self.packet.ns, ns);
        !(0.8..=1.25).contains(&(self.packet.ns / before.max(1.0)))
    }

    /// The rates recorded in a directory. A record that cannot be read counts as none.
    pub(crate) fn recorded(disk: &dyn Disk) -> Option<RecoveryRates> {
        let file = disk.open(RECORD, Open::ReadOnly, Caching::Buffered).ok()?;
        let length = file.length().ok().filter(|length| *length <= RECORD_BYTES_MAX)?;
        let mut bytes = vec![0; length as usize];
        file.read_at(&mut bytes, 0).ok()?;
        RecoveryRates::parse(&String::from_utf8(bytes).ok()?)
    }

    /// Records the rates. The record is not synced: if it is lost, the next recovery measures again.
    pub(crate) fn record(&self, disk: &dyn Disk) -> DiskResult<()> {
        let text = self.text();
        let file = disk.open(RECORD, Open::Create, Caching::Buffered)?;
        file.set_length(text.len() as u64)?;
        file.write_at(text.as_bytes(), 0)
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (name, cost) in self.named() {
            let how = if cost.is_measured { "measured" } else { "assumed" };
            writeln!(text, "{name}: {:.6} ns, {how}", cost.ns).expect("writing to a string");
        }
        text
    }

    fn parse(text: &str) -> Option<RecoveryRates> {
        let mut rates = RecoveryRates::default();
        let names = rates.named().map(|(name, _)| name);
        let costs = [
            &mut rates.load,
            &mut rates.primary,
            &mut rates.secondary,
            &mut rates.log,
            &mut rates.packet,
            &mut rates.bulk,
        ];
        let mut lines = text.strip_suffix('\n')?.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        for (name, cost) in names.into_iter().zip(costs) {
            let (ns, how) = lines.next()?.strip_prefix(name)?.strip_prefix(": ")?.split_once(" ns, ")?;
            let ns = ns.parse().ok().filter(|ns| (0.0..=COST_MAX).contains(ns))?;
            *cost = Cost { ns, is_measured: matches!(how, "measured") };
        }
        lines.next().is_none().then_some(rates)
    }
}

/// How long a recovery is expected to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryEstimate {
    /// Reading the backup copy.
    pub load: Duration,
    /// Building the primary indexes of what was loaded.
    pub primary: Duration,
    /// Redoing the log, and bulk loads in it.
    pub redo: Duration,
    /// Building the secondary indexes.
    pub secondary: Duration,
}

impl RecoveryEstimate {
    /// Loading and all indexes: the part that no checkpoint makes shorter.
    pub fn fixed(&self) -> Duration {
        self.load + self.primary + self.secondary
    }

    /// The sum.
    pub fn total(&self) -> Duration {
        self.fixed() + self.redo
    }
}

impl fmt::Display for RecoveryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} s: load {:.3} s, indexes {:.3} s, redo {:.3} s",
            self.total().as_secs_f64(),
            self.load.as_secs_f64(),
            (self.primary + self.secondary).as_secs_f64(),
            self.redo.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryDisk;

    #[test]
    fn a_record_is_read_as_it_was_written_or_not_at_all() {
        let disk = MemoryDisk::new();
        assert_eq!(RecoveryRates::recorded(&*disk), None);
        let mut rates = RecoveryRates::default();
        rates.load.learn(0.731);
        rates.record(&*disk).unwrap();
        assert_eq!(RecoveryRates::recorded(&*disk), Some(rates));
        let text = rates.text();
        for cut in 0..text.len() {
            assert_eq!(RecoveryRates::parse(&text[..cut]), None, "{:?}", &text[..cut]);
        }
        for (from, to) in
            [("0.731", "-0.731"), ("0.731", "NaN"), ("version 1", "version 2"), ("redo,", "rodeo,")]
        {
            assert_eq!(RecoveryRates::parse(&text.replace(from, to)), None, "{to}");
        }
        // A shorter record replaces a longer one.
        disk.open(RECORD, Open::Create, Caching::Buffered).unwrap().set_length(4000).unwrap();
        rates.record(&*disk).unwrap();
        assert_eq!(RecoveryRates::recorded(&*disk), Some(rates));
    }
}
