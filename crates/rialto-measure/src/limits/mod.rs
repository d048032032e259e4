//! What bare code reaches on this machine with the same log bytes to the same kind of file (`--limits`). A result is
//! compared with it.
//!
//! | probe | what it is |
//! |---|---|
//! | [`mod@write`] | one thread that writes one transaction's log bytes, syncs, and begins again |
//! | [`group_commit`] | as many threads as clients that sleep until a writer thread has written for all of them |
//! | [`map`] | TPC-B on plain arrays by one thread, whose log a second thread writes, with as many in flight |
//! | [`pages`] | as many threads as clients that read pages at random, beside one that writes pages, for tables on disk |
//!
//! None of them has locks, an index, a checkpoint, an abort, or a way to recover: they are bounds, not peers. They run
//! right after each window, so that a spell of the machine is likely to be the same for both.

mod group_commit;
mod map;
mod pages;
mod write;

use std::sync::Arc;
use std::time::Duration;

use rialto::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};
use serde_json::{Value as Json, json};

pub use self::pages::{BarePages, PageMix, PageSpace, Reader};
use crate::calibrate::preallocated;
use crate::histogram::{Latencies, Percentiles};
use crate::text::{Table, figure, thousands, time};

/// What the probes stand beside.
#[derive(Clone)]
pub struct Beside {
    /// Clients, each a thread.
    pub clients: u32,
    /// Transactions in flight of each.
    pub in_flight: u32,
    /// Whether commits wait for the disk.
    pub waits_for_disk: bool,
    /// How the log was written: the probes write in the same way.
    pub log_writes: Caching,
    /// Log bytes of a transaction.
    pub log_bytes: f64,
    /// The bank, for the map; `None` where no map is asked for.
    pub bank: Option<Bank>,
    /// The pages of tables on disk; `None` if there are none. No map is asked for then.
    pub pages: Option<PageMix>,
    /// How long each probe runs.
    pub time: Duration,
}

/// The sizes of a TPC-B bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bank {
    /// Branches, each with ten tellers.
    pub branches: u32,
    /// Accounts in all.
    pub accounts: u32,
}

/// What a probe reached.
#[derive(Debug, Clone)]
pub struct Reached {
    /// A second.
    pub per_s: f64,
    /// How long each took.
    pub latency: Option<Percentiles>,
}

/// What the probes reached; `None` for one that says nothing about such clients.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A bare write and sync: for blocking clients that wait for the disk.
    pub write: Option<Reached>,
    /// A bare group commit: for several of them.
    pub group_commit: Option<Reached>,
    /// A bare map with a log thread: for tickets, and for commits that do not wait for the disk.
    pub map: Option<Reached>,
    /// Bare reads and writes of pages: for tables on disk.
    pub pages: Option<Reached>,
}

/// Runs the probes that apply.
///
/// # Errors
/// A failed write.
pub fn measure(disk: &dyn Disk, beside: &Beside) -> Result<Limits, String> {
    let blocking = beside.in_flight == 1 && beside.waits_for_disk;
    let run = |probe: fn(ProbeFile, &Beside) -> DiskResult<Reached>| {
        let file = ProbeFile::new(disk, beside.log_writes)?;
        probe(file, beside).map(Some).map_err(|error| error.to_string())
    };
    Ok(Limits {
        write: if blocking { run(write::run)? } else { None },
        group_commit: if blocking && beside.clients > 1 { run(group_commit::run)? } else { None },
        map: if blocking || beside.bank.is_none() { None } else { run(map::run)? },
        pages: beside.pages.as_ref().map(|mix| pages::run(disk, mix, beside)).transpose()?,
    })
}

impl Limits {
    /// For the result, with what share of each limit the run reached.
    pub fn json(&self, committed_per_s: f64, latency: Option<Percentiles>) -> Json {
        let shares = self.shares(committed_per_s, latency);
        let reached = |probe: &Option<Reached>| match probe {
            None => Json::Null,
            Some(Reached { per_s, latency }) => json!({
                "per_s": (*per_s),
                "p50_us": latency.map(|all| all.p50_us),
                "p99_us": latency.map(|all| all.p99_us),
            }),
        };
        json!({
            "write": reached(&self.write),
            "group_commit": reached(&self.group_commit),
            "map": reached(&self.map),
            "pages": reached(&self.pages),
            "p50_over_write": shares.p50_over_write,
            "p99_over_write": shares.p99_over_write,
            "share_of_group_commit": shares.of_group_commit,
            "share_of_map": shares.of_map,
            "share_of_pages": shares.of_pages,
        })
    }

    /// For the table, likewise.
    pub fn rows(&self, table: &mut Table, committed_per_s: f64, latency: Option<Percentiles>) {
        let shares = self.shares(committed_per_s, latency);
        if let Some((write, latency)) = self.write.as_ref().and_then(|write| Some((write, write.latency?))) {
            table.row(
                "bare write",
                format!(
                    "{}/s, p50 {}, p99 {}; this run's p50 is {} of it, its p99 {}",
                    thousands(write.per_s),
                    time(latency.p50_us),
                    time(latency.p99_us),
                    figure(shares.p50_over_write),
                    figure(shares.p99_over_write)
                ),
            );
        }
        for (name, probe, share) in [
            ("bare group commit", &self.group_commit, shares.of_group_commit),
            ("bare map with log", &self.map, shares.of_map),
            ("bare pages", &self.pages, shares.of_pages),
        ] {
            if let Some(probe) = probe {
                let share = figure(share);
                table.row(name, format!("{}/s; this run is {share} of it", thousands(probe.per_s)));
            }
        }
    }

    /// How far from the limits a run was.
    pub fn shares(&self, committed_per_s: f64, latency: Option<Percentiles>) -> Shares {
        let over_write = |part: fn(&Percentiles) -> f64| {
            let write = self.write.as_ref().and_then(|write| write.latency)?;
            Some(part(&latency?) / part(&write))
        };
        let share = |probe: &Option<Reached>| probe.as_ref().map(|probe| committed_per_s / probe.per_s);
        Shares {
            p50_over_write: over_write(|all| all.p50_us),
            p99_over_write: over_write(|all| all.p99_us),
            of_group_commit: share(&self.group_commit),
            of_map: share(&self.map),
            of_pages: share(&self.pages),
        }
    }
}

/// A run beside its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// The run's median latency over a bare write's.
    pub p50_over_write: Option<f64>,
    /// The same for the longest of 99 in 100.
    pub p99_over_write: Option<f64>,
    /// The run's throughput as a share of the bare group commit's.
    pub of_group_commit: Option<f64>,
    /// The same of the bare map's.
    pub of_map: Option<f64>,
    /// The same of bare pages'.
    pub of_pages: Option<f64>,
}

/// A preallocated file that is written around and around, as log files are used again.
struct ProbeFile {
    file: Arc<dyn File>,
    buffer: AlignedBuffer,
    at: u64,
}

const FILE: &str = "limits";
const FILE_BYTES: u64 = 64 << 20;
/// The longest write.
const WRITE_BYTES_MAX: usize = 8 << 20;
const PAGE: usize = 4096;

impl ProbeFile {
    fn new(disk: &dyn Disk, log_writes: Caching) -> Result<ProbeFile, String> {
        preallocated(disk, FILE, FILE_BYTES)?;
        let file = disk.open(FILE, Open::Existing, log_writes).map_err(|error| error.to_string())?;
        let mut buffer = AlignedBuffer::zeroed(WRITE_BYTES_MAX);
        // Not zeros, which some devices write faster.
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        Ok(ProbeFile { file, buffer, at: 0 })
    }

    /// Writes so many bytes in whole pages, and syncs, if the writes themselves do not.
    fn write(&mut self, bytes: usize) -> DiskResult<()> {
        let mut left = bytes.max(1).next_multiple_of(PAGE);
        while left > 0 {
            let length = left.min(WRITE_BYTES_MAX);
            if self.at + length as u64 > FILE_BYTES {
                self.at = 0;
            }
            self.file.write_at(&self.buffer[..length], self.at)?;
            self.at += length as u64;
            left -= length;
        }
        self.file.sync()
    }
}

fn reached(latencies: &Latencies, time: Duration) -> Reached {
    let per_s = latencies.count() as f64 / time.as_secs_f64().max(1e-9);
    Reached { per_s, latency: latencies.percentiles() }
}

#[cfg(test)]
mod tests {
    use rialto::io::{Clock, MemoryDisk, SimulatedDisk};

    use super::*;

    fn beside(clients: u32, in_flight: u32, waits_for_disk: bool) -> Beside {
        Beside {
            clients,
            in_flight,
            waits_for_disk,
            log_writes: Caching::Direct,
            log_bytes: 250.0,
            bank: Some(Bank { branches: 2, accounts: 1_000 }),
            pages: None,
            time: Duration::from_millis(200),
        }
    }

    /// A disk whose every sync takes long beside what a thread needs to wake up on a busy machine: milliseconds.
    fn slow_disk() -> Arc<dyn Disk> {
        SimulatedDisk::named("hdd", MemoryDisk::new(), Clock::System).expect("a preset")
    }

    #[test]
    fn each_kind_of_client_has_its_probes() {
        let disk = MemoryDisk::new();
        for (clients, in_flight, waits_for_disk, expected) in [
            (1, 1, true, (true, false, false)),
            (4, 1, true, (true, true, false)),
            (2, 50, true, (false, false, true)),
            (1, 1, false, (false, false, true)),
        ] {
            let limits = measure(&*disk, &beside(clients, in_flight, waits_for_disk)).unwrap();
            let found = (limits.write.is_some(), limits.group_commit.is_some(), limits.map.is_some());
            assert_eq!(found, expected, "{clients} clients, {in_flight} in flight");
            for probe in [limits.write, limits.group_commit, limits.map].into_iter().flatten() {
                assert!(probe.per_s > 0.0, "{probe:?}");
            }
        }
    }

    #[test]
    fn a_group_commit_serves_its_sleepers_with_one_write() {
        let disk = slow_disk();
        // A machine that is busy with something else in one of the three windows says nothing; it is not so five times.
        let pays = || {
            let one = measure(&*disk, &beside(1, 1, true)).unwrap().write.unwrap();
            let group = measure(&*disk, &beside(8, 1, true)).unwrap().group_commit.unwrap();
            let map = measure(&*disk, &beside(1, 64, true)).unwrap().map.unwrap();
            println!("{group:?} and {map:?} over {one:?}");
            group.per_s > 2.0 * one.per_s && map.per_s > 4.0 * one.per_s
        };
        assert!((0..5).any(|_| pays()));
    }

    #[test]
    fn bare_pages_are_as_many_as_the_transactions_read_and_wrote() {
        const PAGE_BYTES: usize = 4096;
        let disk = slow_disk();
        let file = preallocated(&*disk, "pages", 64 * PAGE_BYTES as u64).unwrap();
        let per_s = |reads, writes| {
            let mix = PageMix { file: file.clone(), places: 64, page_bytes: PAGE_BYTES, reads, writes };
            let beside = Beside { bank: None, pages: Some(mix), ..beside(2, 1, false) };
            let limits = measure(&*disk, &beside).unwrap();
            assert!(limits.map.is_none());
            limits.pages.unwrap().per_s
        };
        // As above: five times.
        let pays = || {
            let (few, many) = (per_s(0.25, 0.0), per_s(2.0, 0.0));
            let (few_writes, many_writes) = (per_s(0.0, 1.0), per_s(0.0, 8.0));
            println!("{few} over {many}, {few_writes} over {many_writes}");
            few > 3.0 * many && few_writes > 3.0 * many_writes
        };
        assert!((0..5).any(|_| pays()));
    }

    #[test]
    fn shares_are_of_the_limits() {
        let all = |p50_us| Percentiles { p50_us, p99_us: 2.0 * p50_us, p999_us: p50_us, max_us: p50_us };
        let probe = |per_s| Some(Reached { per_s, latency: Some(all(50.0)) });
        let limits = Limits {
            write: probe(1_000.0),
            group_commit: probe(10_000.0),
            map: None,
            pages: probe(14_000.0),
        };
        let shares = limits.shares(7_000.0, Some(all(55.0)));
        assert_eq!((shares.p50_over_write, shares.p99_over_write), (Some(1.1), Some(1.1)));
        assert_eq!((shares.of_group_commit, shares.of_map), (Some(0.7), None));
        assert_eq!(shares.of_pages, Some(0.5));
        let json = limits.json(7_000.0, None);
        assert_eq!(json.get("share_of_group_commit").and_then(Json::as_f64), Some(0.7));
        assert_eq!(json.get("map"), Some(&Json::Null));
    }
}
