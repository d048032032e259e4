//! How log files are written: through the system's cache or past it, with a sync of its own or in the write. What is
//! fastest differs between devices and file systems, so it is measured when a log is opened, unless it was told or has
//! been measured under the same boot, and recorded in the file `log-writes`.
//!
//! | way | a group | why nothing durable is lost in a crash |
//! |---|---|---|
//! | [`Caching::Direct`] | `O_DIRECT` write, `fdatasync` | the write is on the device, perhaps in its cache; the sync empties that; the durable position moves behind the sync |
//! | [`Caching::DirectSync`] | `O_DIRECT` write with `O_DSYNC` | the write returns when the device has it for good (FUA, or a flush behind it); the position moves behind the write |
//! | [`Caching::Buffered`] | write, `fdatasync` | the sync writes the cached pages and empties the device's cache; after a failed one the page may look clean and be lost, so the log stops for good (I4), and what a recovery read from the cache is written again (`open.rs`) |
//!
//! The same in all three: files are zeroed and synced before they are used, so no write changes their metadata; a group
//! begins on a page that no durable group lies on, so a torn write damages only what nobody was told to be durable; blocks
//! that a crash left behind the end do not chain. The crash tests draw one of the three for each life of a log.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::PAGE;
use super::files::{self, LogFile};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, Open};

/// The file that holds what was measured.
pub(crate) const RECORD: &str = "log-writes";
/// Bytes written in a measurement: a lone transaction's group, and one of some hundreds.
const LENGTHS: [usize; 2] = [PAGE, 16 * PAGE];
/// Where in the file it writes, from the end: what no log has used yet.
const AREA: u64 = 16 * PAGE as u64;
/// Writes of each way and length, at least and at most.
const ROUNDS: [usize; 2] = [2, 9];
/// No round begins after this time.
const BUDGET: Duration = Duration::from_millis(4);
/// Another way than the usual one has to be this much faster, in percent: a measurement this short is not exact.
const BETTER_PERCENT: u64 = 10;

/// The ways, the usual one first.
const WAYS: [(&str, Caching); 3] =
    [("direct", Caching::Direct), ("direct-sync", Caching::DirectSync), ("buffered", Caching::Buffered)];

/// How a log is written, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePath {
    /// The way.
    pub caching: Caching,
    /// How many groups may be on their way at the same time; they land in their order.
    pub in_flight: u32,
    /// What a write of 4 KiB and one of 64 KiB, each made durable, took together, in nanoseconds, with
    /// [`Caching::Direct`], [`Caching::DirectSync`] and [`Caching::Buffered`]: medians. `None` where the way was given, or
    /// could not be measured.
    pub measured_ns: Option<[u64; 3]>,
}

impl Default for WritePath {
    fn default() -> WritePath {
        WritePath { caching: WAYS[0].1, in_flight: 1, measured_ns: None }
    }
}

impl WritePath {
    fn fastest(measured_ns: [u64; 3]) -> WritePath {
        let best = (1..WAYS.len()).min_by_key(|&way| measured_ns[way]).expect("there are others");
        let better = measured_ns[best] * 100 < measured_ns[0] * (100 - BETTER_PERCENT);
        WritePath {
            caching: WAYS[if better { best } else { 0 }].1,
            in_flight: 1,
            measured_ns: Some(measured_ns),
        }
    }

    /// The way for a log whose last file is `last`, used up to `position`.
    pub(super) fn choose(
        disk: &dyn Disk,
        told: Option<Caching>,
        last: &LogFile,
        position: u64,
    ) -> DiskResult<WritePath> {
        if let Some(caching) = told {
            return Ok(WritePath { caching, ..WritePath::default() });
        }
        if !disk.has_speed() {
            return Ok(WritePath::default());
        }
        if let Some(recorded) = read(disk).and_then(|text| parse(&text, disk.boot())) {
            return Ok(WritePath::fastest(recorded));
        }
        if position + AREA > last.end() {
            // The next opening finds room.
            return Ok(WritePath::default());
        }
        let measured_ns = measure(disk, last)?;
        record(disk, &format_record(measured_ns, disk.boot()))?;
        Ok(WritePath::fastest(measured_ns))
    }

    /// What is recorded in a directory, for people.
    pub(crate) fn recorded(disk: &dyn Disk) -> Option<String> {
        read(disk).map(|text| text.lines().skip(1).collect::<Vec<_>>().join(", "))
    }
}

/// Medians of the ways in turn, over zeros that are there already.
fn measure(disk: &dyn Disk, last: &LogFile) -> DiskResult<[u64; 3]> {
    let began = Instant::now();
    let name = files::name(last.sequence);
    let offset = last.offset(last.end() - AREA);
    let zeros = AlignedBuffer::zeroed(AREA as usize);
    let mut open = Vec::new();
    for (_, caching) in WAYS {
        open.push(disk.open(&name, Open::Existing, caching)?);
    }
    let mut times: [[Vec<u64>; LENGTHS.len()]; WAYS.len()] = Default::default();
    for round in 0..=ROUNDS[1] {
        if round > ROUNDS[0] && began.elapsed() > BUDGET {
            break;
        }
        for (file, times) in open.iter().zip(&mut times) {
            for (length, times) in LENGTHS.into_iter().zip(times) {
                let started = Instant::now();
                file.write_at(&zeros[..length], offset)?;
                file.sync()?;
                // The first round finds caches and paths cold.
                if round > 0 {
                    times.push(started.elapsed().as_nanos() as u64);
                }
            }
        }
    }
    Ok(times.map(|ways| ways.map(median).iter().sum()))
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn format_record(measured_ns: [u64; 3], boot: u128) -> String {
    let mut text = format!("boot {boot:032x}\n");
    for ((name, _), ns) in WAYS.into_iter().zip(measured_ns) {
        writeln!(text, "{name} {ns} ns").expect("writing to a string");
    }
    text
}

/// What was measured under this boot.
fn parse(text: &str, boot: u128) -> Option<[u64; 3]> {
    let mut lines = text.lines();
    if lines.next()? != format!("boot {boot:032x}") {
        return None;
    }
    let mut measured_ns = [0; 3];
    for ((name, _), ns) in WAYS.into_iter().zip(&mut measured_ns) {
        *ns = lines.next()?.strip_prefix(name)?.trim().strip_suffix(" ns")?.parse().ok()?;
    }
    Some(measured_ns)
}

/// A record that cannot be read is as good as none.
fn read(disk: &dyn Disk) -> Option<String> {
    let file = disk.open(RECORD, Open::ReadOnly, Caching::Buffered).ok()?;
    let length = file.length().ok().filter(|length| *length < PAGE as u64)?;
    let mut bytes = vec![0; length as usize];
    file.read_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes).ok()
}

/// Not synced: a lost record is measured again.
fn record(disk: &dyn Disk, text: &str) -> DiskResult<()> {
    let file = disk.open(RECORD, Open::Create, Caching::Buffered)?;
    file.set_length(text.len() as u64)?;
    file.write_at(text.as_bytes(), 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::io::{MemoryDisk, SimulatedDisk, SystemClock};
    use crate::log::{Log, LogOptions};

    #[test]
    fn the_usual_way_stays_unless_another_is_clearly_faster() {
        for (measured_ns, caching) in [
            ([100, 100, 100], Caching::Direct),
            ([100, 91, 120], Caching::Direct),
            ([100, 89, 120], Caching::DirectSync),
            ([100, 80, 70], Caching::Buffered),
        ] {
            let path = WritePath::fastest(measured_ns);
            assert_eq!((path.caching, path.measured_ns), (caching, Some(measured_ns)));
        }
    }

    #[test]
    fn a_record_counts_under_its_boot_and_only_if_it_is_whole() {
        let text = format_record([30, 20, 10], 7);
        assert_eq!(parse(&text, 7), Some([30, 20, 10]));
        assert_eq!(parse(&text, 8), None);
        for cut in 0..text.len() - 1 {
            assert_eq!(parse(&text[..cut], 7), None, "{:?}", &text[..cut]);
        }
    }

    #[test]
    fn it_is_measured_once_recorded_and_used_again() {
        let inner = MemoryDisk::new();
        let disk: Arc<dyn Disk> =
            SimulatedDisk::named("nvme", inner.clone(), Arc::new(SystemClock::new())).expect("a preset");
        let options = LogOptions { first_file_bytes: 256 << 10, ..LogOptions::default() };
        let log = Log::create(&disk, 1, &options).unwrap();
        let measured = log.write_path();
        assert!(measured.measured_ns.is_some_and(|ways| ways.iter().all(|ns| *ns > 0)), "{measured:?}");
        log.close().unwrap();
        drop(log);
        let text = WritePath::recorded(&*disk).expect("it is recorded");
        assert!(text.contains("direct-sync"), "{text}");
        let end = crate::log::recover(&disk, 1, crate::Lsn(1)).unwrap().finish().unwrap();
        let again = Log::open(&disk, 1, &options, end).unwrap();
        assert_eq!(again.write_path(), measured, "not measured again");
        again.close().unwrap();
        let told = LogOptions { caching: Some(Caching::Buffered), ..options };
        let end = crate::log::recover(&disk, 1, crate::Lsn(1)).unwrap().finish().unwrap();
        let told = Log::open(&disk, 1, &told, end).unwrap();
        assert_eq!(told.write_path(), WritePath { caching: Caching::Buffered, ..WritePath::default() });
    }
}
