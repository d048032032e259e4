//! How log files are written: through the system's cache or past it, with a separate sync or a synchronous write, and
//! how many groups at a time. Which way is fastest differs between devices and file systems. Therefore it is measured
//! when a log is opened, unless it is given by an option or has been measured under the same boot, and recorded in the
//! file `log-writes`.
//!
//! | way | a group | why nothing durable is lost in a crash |
//! |---|---|---|
//! | [`Caching::Direct`] | `O_DIRECT` write, `fdatasync` | the write is on the device, perhaps in its cache; the sync flushes that; the durable position moves after the sync |
//! | [`Caching::DirectSync`] | `O_DIRECT` write with `O_DSYNC` | the write returns when the device holds it durably (FUA, or a flush after it); the position moves after the write |
//! | [`Caching::Buffered`] | write, `fdatasync` | the sync writes the cached pages and flushes the device's cache; after a failed sync the page may look clean and be lost, so the log stops for good (I4), and what a recovery read from the cache is written again (`open.rs`) |
//!
//! The same holds in all three. Files are zeroed and synced before they are used, so no write changes their metadata. A
//! group begins on a page that no durable group lies on, so a torn write damages only what no committer was told to be
//! durable. Blocks that a crash left after the end do not chain. The crash tests draw one of the three for each life
//! of a log.
//!
//! **Several groups in flight**: a group may reach the disk before the group in front of it, but it completes after
//! that one (`turn.rs`): the durable position, the answers and the ring's room wait for all groups before. After a
//! crash a hole ends the log (I4). No commit of the group after the hole was answered. The durable position in that
//! group's blocks is not past the hole, so the hole is not taken for damage. The next opening writes its pad into the
//! hole, which changes the chain, so the group never comes back. If a group fails, no group after it completes: the
//! log has stopped. Nor does a group in front of it complete whose sync overlaps the failed one (`overlap.rs`): a
//! failed sync may have lost what that group wrote, and be the only sync that reports it.

use std::fmt::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::left_over::is_begun;
use super::log_file::LogFileHeader;
use super::{PAGE, files};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};

/// The file that records what was measured.
pub(crate) const RECORD: &str = "log-writes";
/// What a record begins with.
const BOOT: &str = "boot ";
/// The lengths of the writes of a measurement: a lone transaction's group, and a group of some hundreds.
const LENGTHS: [usize; 2] = [PAGE, 16 * PAGE];
/// The measured writes go to this many bytes at the end of the file, which no log has used yet.
const AREA: u64 = 16 * PAGE as u64;
/// Writes for each way and length: the fewest and the most.
const ROUNDS: [usize; 2] = [3, 9];
/// No round begins after this time, because the opening of the database waits for it.
const BUDGET: Duration = Duration::from_millis(2);
/// Another way than the usual one has to be faster by this many percent, because so short a measurement is not exact.
const BETTER_PERCENT: u64 = 10;

/// Two groups are in flight if each of two writes at the same time takes at most this many percent longer than one
/// alone (then the device works on both at once), and one alone takes this long. On a disk of 90 us, two groups in
/// flight make the groups smaller and gain nothing: 8 to 32 clients commit as much as before with the log server, and 2
/// to 25% less with hiber and adaptive (`rialto bench commit --log-writes-in-flight 2`, two cores).
const TOGETHER_PERCENT: u64 = 30;
const LONG_NS: u64 = 500_000;

/// In a record: a measurement that was not made, because it would not matter.
const NOT_MEASURED: &str = "not measured";

/// The ways, the usual one first.
const WAYS: [(&str, Caching); 3] =
    [("direct", Caching::Direct), ("direct-sync", Caching::DirectSync), ("buffered", Caching::Buffered)];

/// How a log is written, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePath {
    /// The way.
    pub caching: Caching,
    /// How many groups may be on their way to the disk at the same time; they complete in their order.
    pub in_flight: u32,
    /// The medians of a write of 4 KiB and one of 64 KiB, each made durable, added up, in nanoseconds, with
    /// [`Caching::Direct`], [`Caching::DirectSync`] and [`Caching::Buffered`]. `None` where the way was given, or could
    /// not be measured.
    pub measured_ns: Option<[u64; 3]>,
    /// What a write of 4 KiB past the cache took when two threads wrote at the same time, in nanoseconds. `None` also
    /// where one write alone is too short for it to matter.
    pub together_ns: Option<u64>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MeasuredWrites {
    ways_ns: [u64; 3],
    /// A write of 4 KiB alone; below, one of two at the same time, if that was measured.
    alone_ns: u64,
    together_ns: Option<u64>,
}

impl Default for WritePath {
    fn default() -> WritePath {
        WritePath { caching: WAYS[0].1, in_flight: 1, measured_ns: None, together_ns: None }
    }
}

impl WritePath {
    fn fastest(measured: MeasuredWrites) -> WritePath {
        let MeasuredWrites { ways_ns, alone_ns, together_ns } = measured;
        let best = (1..WAYS.len()).min_by_key(|&way| ways_ns[way]).expect("there are others");
        let better = ways_ns[best] * 100 < ways_ns[0] * (100 - BETTER_PERCENT);
        let bound_ns = alone_ns * (100 + TOGETHER_PERCENT);
        let at_once = together_ns.is_some_and(|together_ns| together_ns * 100 <= bound_ns);
        WritePath {
            caching: WAYS[if better { best } else { 0 }].1,
            in_flight: if at_once && alone_ns >= LONG_NS { 2 } else { 1 },
            measured_ns: Some(ways_ns),
            together_ns,
        }
    }

    /// The way for a log whose last file is `last`, used up to `position`. What cannot be measured or recorded, for
    /// instance on a full disk, is left to a later opening: it only affects speed, and is no reason not to open.
    pub(super) fn choose(
        disk: &dyn Disk,
        told: (Option<Caching>, Option<u32>),
        last: &LogFileHeader,
        position: u64,
    ) -> WritePath {
        let found = match told {
            (Some(_), Some(_)) => WritePath::default(),
            _ => WritePath::measured(disk, last, position),
        };
        let (caching, in_flight) = (told.0.unwrap_or(found.caching), told.1.unwrap_or(found.in_flight));
        WritePath { caching, in_flight, ..found }
    }

    fn measured(disk: &dyn Disk, last: &LogFileHeader, position: u64) -> WritePath {
        if !disk.has_speed() {
            return WritePath::default();
        }
        if let Some(recorded) = read(disk).and_then(|text| parse(&text, disk.boot())) {
            return WritePath::fastest(recorded);
        }
        // A short last file has no such area, and one that is nearly full has none that is free: a later opening finds
        // room.
        if position.max(last.start) + AREA > last.end() {
            return WritePath::default();
        }
        let Ok(measured) = measure(disk, last) else { return WritePath::default() };
        let _ = record(disk, &format_record(measured, disk.boot()));
        WritePath::fastest(measured)
    }

    /// The text of a directory's record, for people.
    pub(crate) fn recorded(disk: &dyn Disk) -> Option<String> {
        read(disk).map(|text| text.lines().skip(1).collect::<Vec<_>>().join(", "))
    }
}

/// The medians of the ways, measured in turn over existing zeros. By the real clock, also for a database with a virtual
/// one: these are times of the disk, which a later opening uses, too.
fn measure(disk: &dyn Disk, last: &LogFileHeader) -> DiskResult<MeasuredWrites> {
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
                // The first round finds cold caches and paths.
                if round > 0 {
                    times.push(started.elapsed().as_nanos() as u64);
                }
            }
        }
    }
    let medians = times.map(|way| way.map(median));
    let (ways_ns, alone_ns) = (medians.map(|way| way.iter().sum()), medians[0][0]);
    // It does not matter where a write is short.
    let together_ns = if alone_ns >= LONG_NS { Some(together(&*open[0], offset, &zeros)?) } else { None };
    Ok(MeasuredWrites { ways_ns, alone_ns, together_ns })
}

/// The median of writes of a page that two threads make at the same time.
fn together(file: &dyn File, offset: u64, zeros: &AlignedBuffer) -> DiskResult<u64> {
    let begin = Barrier::new(2);
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let write = |lane: u64| {
        let mut times = Vec::new();
        loop {
            // Both threads read it before either can begin the next round.
            begin.wait();
            if over.load(Ordering::SeqCst) {
                return Ok(times);
            }
            let started = Instant::now();
            let written = file.write_at(&zeros[..PAGE], offset + lane * 8 * PAGE as u64);
            let done = written.and_then(|()| file.sync());
            times.push(started.elapsed().as_nanos() as u64);
            begin.wait();
            if lane == 0 && (times.len() > ROUNDS[1] || times.len() > ROUNDS[0] && began.elapsed() > BUDGET) {
                over.store(true, Ordering::SeqCst);
            }
            // The other thread is told in either case, and ends.
            if let Err(error) = done {
                over.store(true, Ordering::SeqCst);
                begin.wait();
                return Err(error);
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| write(1));
        let (mine, others) = (write(0), other.join().expect("a writer does not panic"));
        let mut times = mine?;
        times.extend(others?);
        Ok(median(times))
    })
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn format_record(measured: MeasuredWrites, boot: u128) -> String {
    let MeasuredWrites { ways_ns, alone_ns, together_ns } = measured;
    let ways = WAYS.iter().zip(ways_ns).map(|((name, _), ns)| (*name, Some(ns)));
    let mut text = format!("{BOOT}{boot:032x}\n");
    for (name, ns) in ways.chain([("4 KiB alone", Some(alone_ns)), ("4 KiB, two at a time", together_ns)]) {
        match ns {
            Some(ns) => writeln!(text, "{name}: {ns} ns"),
            None => writeln!(text, "{name}: {NOT_MEASURED}"),
        }
        .expect("writing to a string");
    }
    text
}

/// What the record says was measured under this boot.
fn parse(text: &str, boot: u128) -> Option<MeasuredWrites> {
    let mut lines = text.lines();
    if lines.next()? != format!("{BOOT}{boot:032x}") || !text.ends_with('\n') {
        return None;
    }
    let mut value = || Some(lines.next()?.rsplit_once(": ")?.1);
    let ns = |value: &str| value.strip_suffix(" ns")?.parse().ok();
    let ways_ns = [ns(value()?)?, ns(value()?)?, ns(value()?)?];
    let alone_ns = ns(value()?)?;
    let together_ns = match value()? {
        NOT_MEASURED => None,
        measured => Some(ns(measured)?),
    };
    Some(MeasuredWrites { ways_ns, alone_ns, together_ns })
}

/// A record that cannot be read counts as none.
fn read(disk: &dyn Disk) -> Option<String> {
    let file = disk.open(RECORD, Open::ReadOnly, Caching::Buffered).ok()?;
    let length = file.length().ok().filter(|length| *length < PAGE as u64)?;
    let mut bytes = vec![0; length as usize];
    file.read_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes).ok()
}

/// Whether the file of that name is a record, any part of which may be lost.
pub(super) fn is_record(disk: &dyn Disk) -> DiskResult<bool> {
    let file = disk.open(RECORD, Open::ReadOnly, Caching::Buffered)?;
    let mut begin = [0; BOOT.len()];
    let length = file.length()?;
    let begin = &mut begin[..length.min(BOOT.len() as u64) as usize];
    file.read_at(begin, 0)?;
    Ok(length < PAGE as u64 && is_begun(begin, BOOT.as_bytes()))
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
    use crate::io::{Clock, FaultKind, FaultyDisk, MemoryDisk, SimulatedDisk};
    use crate::log::{Log, LogOptions};

    fn measured(ways_ns: [u64; 3], alone_ns: u64, together_ns: Option<u64>) -> MeasuredWrites {
        MeasuredWrites { ways_ns, alone_ns, together_ns }
    }

    #[test]
    fn the_usual_way_stays_unless_another_is_clearly_faster() {
        for (ways_ns, caching) in [
            ([100, 100, 100], Caching::Direct),
            ([100, 91, 120], Caching::Direct),
            ([100, 89, 120], Caching::DirectSync),
            ([100, 80, 70], Caching::Buffered),
        ] {
            let path = WritePath::fastest(measured(ways_ns, 10, None));
            assert_eq!((path.caching, path.in_flight, path.measured_ns), (caching, 1, Some(ways_ns)));
        }
        for (alone_us, together_us, in_flight) in [(1_000, 1_300, 2), (1_000, 1_301, 1), (499, 499, 1)] {
            let path = WritePath::fastest(measured([1, 1, 1], alone_us * 1_000, Some(together_us * 1_000)));
            assert_eq!(path.in_flight, in_flight, "{alone_us} us alone, {together_us} us together");
        }
    }

    #[test]
    fn a_record_counts_under_its_boot_and_only_if_it_is_whole() {
        for found in [measured([30, 20, 10], 5, Some(6)), measured([30, 20, 10], 5, None)] {
            let text = format_record(found, 7);
            assert_eq!(parse(&text, 7), Some(found));
            assert_eq!(parse(&text, 8), None);
            for cut in 0..text.len() {
                assert_eq!(parse(&text[..cut], 7), None, "{:?}", &text[..cut]);
            }
        }
    }

    #[test]
    fn it_is_measured_once_recorded_and_used_again() {
        let inner = MemoryDisk::new();
        let disk: Arc<dyn Disk> =
            SimulatedDisk::named("nvme", inner.clone(), Clock::System).expect("a preset");
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
        let told = LogOptions { caching: Some(Caching::Buffered), writes_in_flight: Some(3), ..options };
        let end = crate::log::recover(&disk, 1, crate::Lsn(1)).unwrap().finish().unwrap();
        let told = Log::open(&disk, 1, &told, end).unwrap();
        let expected = WritePath { caching: Caching::Buffered, in_flight: 3, ..WritePath::default() };
        assert_eq!(told.write_path(), expected);
    }

    #[test]
    fn a_log_opens_where_nothing_can_be_measured_or_recorded() {
        for (kind, file, is_measured) in
            [(FaultKind::Full, RECORD, true), (FaultKind::FullToOverwrite, "log-0", false)]
        {
            let inner = FaultyDisk::new(1);
            let disk: Arc<dyn Disk> =
                SimulatedDisk::named("nvme", inner.clone(), Clock::System).expect("a preset");
            let options = LogOptions { first_file_bytes: 256 << 10, ..LogOptions::default() };
            let told =
                LogOptions { caching: Some(Caching::Direct), writes_in_flight: Some(1), ..options.clone() };
            Log::create(&disk, 1, &told).unwrap().close().unwrap();
            let end = crate::log::recover(&disk, 1, crate::Lsn(1)).unwrap().finish().unwrap();
            inner.fail(kind, file, 0);
            let log = Log::open(&disk, 1, &options, end).unwrap();
            assert_eq!(log.write_path().measured_ns.is_some(), is_measured);
            assert_eq!(read(&*disk).and_then(|text| parse(&text, disk.boot())), None, "{kind:?}");
            log.close().unwrap();
        }
    }
}
