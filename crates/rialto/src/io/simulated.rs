//! The simulated disk: another disk's bytes at the speed of a modelled device, so that a paper's regime can be
//! reproduced anywhere.
//!
//! The model, whose parameters [`DiskModel`] holds:
//!
//! * There is no read cache: each read goes to the device.
//! * A write of a buffered file costs nothing until its sync, which writes what is dirty in the order of its offsets,
//!   neighbouring writes as one request, and then flushes. A write of a direct file goes to the device at once.
//! * A file lies in one piece; files lie one after another, in the order in which they were first seen.
//! * Requests queue. A request that finds the device busy starts when the ones before it are done.
//!
//! The clock tells when a call returns: it does the real work first, then sleeps until the model says that the device
//! would be done. Where the real work takes longer than the model, the call takes as long as the work.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Caching, Clock, DirectoryLock, Disk, DiskResult, File, Open, SharedMap};

/// How long a device takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskModel {
    /// One arm over turning platters: one request at a time, first come, first served.
    Spindle(Spindle),
    /// Flash: some requests at a time, over one bus.
    Ssd(Ssd),
}

/// A spindle. A request takes `request`, a seek, the wait until its first sector comes around, and its transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spindle {
    /// What each request costs before the arm moves.
    pub request: Duration,
    /// The seek to the next track.
    pub seek_track: Duration,
    /// The seek across all tracks. Between, it grows with the square root of the distance.
    pub seek_full: Duration,
    /// One revolution; zero for a model whose `request` is a mean that includes the rotation.
    pub rotation: Duration,
    /// What passes the head in one second.
    pub bytes_per_s: u64,
    /// The size of the disk, over which distances are measured.
    pub bytes: u64,
}

/// An SSD. A request waits for a free channel, takes its latency there, and then its transfer over the common bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssd {
    /// The latency of a read.
    pub read: Duration,
    /// The latency of a write.
    pub write: Duration,
    /// The latency of a flush of the device's cache, which each sync ends with.
    pub flush: Duration,
    /// The speed of the bus.
    pub bytes_per_s: u64,
    /// How many requests are in work at a time.
    pub channels: usize,
}

/// The presets: name, what it stands for, model.
const PRESETS: &[(&str, &str, DiskModel)] = &[
    (
        "koda",
        "the disk of KODA's paper: 30 commit writes of about 4 KiB a second, wherever they go",
        DiskModel::Spindle(Spindle {
            request: Duration::from_micros(31_800),
            seek_track: Duration::ZERO,
            seek_full: Duration::ZERO,
            rotation: Duration::ZERO,
            bytes_per_s: 2_700_000,
            bytes: 1 << 30,
        }),
    ),
    (
        "hdd",
        "a 7200 rpm disk, without a write cache",
        DiskModel::Spindle(Spindle {
            request: Duration::from_micros(100),
            seek_track: Duration::from_millis(1),
            seek_full: Duration::from_millis(16),
            rotation: Duration::from_nanos(8_333_333),
            bytes_per_s: 200_000_000,
            bytes: 4_000_000_000_000,
        }),
    ),
    (
        "ssd",
        "a SATA SSD",
        DiskModel::Ssd(Ssd {
            read: Duration::from_micros(100),
            write: Duration::from_micros(60),
            flush: Duration::from_micros(400),
            bytes_per_s: 500_000_000,
            channels: 8,
        }),
    ),
    (
        "nvme",
        "an NVMe SSD with power-loss protection",
        DiskModel::Ssd(Ssd {
            read: Duration::from_micros(80),
            write: Duration::from_micros(25),
            flush: Duration::from_micros(5),
            bytes_per_s: 3_000_000_000,
            channels: 32,
        }),
    ),
];

/// What a simulated device has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimulatedWork {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes, one for each sync of a file or of the directory.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The sum of the service times, without waits in the queue.
    pub busy: Duration,
}

/// Another disk with the service times of a [`DiskModel`]; the module says how they are made.
#[derive(Debug)]
pub struct SimulatedDisk {
    inner: Arc<dyn Disk>,
    name: String,
    timing: Arc<Timing>,
}

#[derive(Debug)]
struct Timing {
    clock: Arc<dyn Clock>,
    device: Mutex<Device>,
}

#[derive(Debug)]
struct Device {
    model: DiskModel,
    /// When each channel is free again (a spindle has one).
    free_at: Vec<Duration>,
    bus_free_at: Duration,
    /// The byte behind the last one that the head has passed.
    head: u64,
    /// Where each file begins, and the begin of the next new one.
    places: HashMap<String, u64>,
    next_place: u64,
    work: SimulatedWork,
}

/// The distance between the begins of two files on the device.
const FILE_SPACING: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Read,
    Write,
    Flush,
}

impl Device {
    fn new(model: DiskModel) -> Device {
        let channels = match &model {
            DiskModel::Spindle(_) => 1,
            DiskModel::Ssd(ssd) => ssd.channels.max(1),
        };
        Device {
            model,
            free_at: vec![Duration::ZERO; channels],
            bus_free_at: Duration::ZERO,
            head: 0,
            places: HashMap::new(),
            next_place: 0,
            work: SimulatedWork::default(),
        }
    }

    fn place(&mut self, name: &str) -> u64 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.next_place;
        self.next_place += FILE_SPACING;
        self.places.insert(name.to_owned(), place);
        place
    }

    /// Takes a request that arrives now into the queue and answers when it is done.
    fn submit(&mut self, now: Duration, request: Request, address: u64, bytes: u64) -> Duration {
        match request {
            Request::Read => {
                (self.work.reads, self.work.read_bytes) = (self.work.reads + 1, self.work.read_bytes + bytes)
            }
            Request::Write => {
                (self.work.writes, self.work.written_bytes) =
                    (self.work.writes + 1, self.work.written_bytes + bytes);
            }
            Request::Flush => self.work.flushes += 1,
        }
        let channel = (0..self.free_at.len()).min_by_key(|&channel| self.free_at[channel]).unwrap_or(0);
        let start = now.max(self.free_at[channel]);
        let done = match &self.model {
            DiskModel::Spindle(_) if request == Request::Flush => start,
            DiskModel::Spindle(spindle) => {
                let arrived = start + spindle.request + spindle.seek(self.head, address);
                self.head = address + bytes;
                arrived + spindle.rotational_wait(arrived, address) + transfer(bytes, spindle.bytes_per_s)
            }
            DiskModel::Ssd(ssd) => {
                let latency = match request {
                    Request::Read => ssd.read,
                    Request::Write => ssd.write,
                    Request::Flush => ssd.flush,
                };
                let on_bus = (start + latency).max(self.bus_free_at);
                let done = on_bus + transfer(bytes, ssd.bytes_per_s);
                if bytes > 0 {
                    self.bus_free_at = done;
                }
                done
            }
        };
        self.free_at[channel] = done;
        self.work.busy += done - start;
        done
    }
}

impl Spindle {
    fn seek(&self, from: u64, to: u64) -> Duration {
        let distance = from.abs_diff(to);
        if distance < self.track_bytes() {
            return Duration::ZERO;
        }
        let share = (distance as f64 / self.bytes.max(1) as f64).min(1.0).sqrt();
        self.seek_track + self.seek_full.saturating_sub(self.seek_track).mul_f64(share)
    }

    fn track_bytes(&self) -> u64 {
        ((self.bytes_per_s as f64 * self.rotation.as_secs_f64()) as u64).max(1)
    }

    /// The platter turns with the clock, so a request for the sector just behind the last one waits for nothing if it
    /// was in the queue, and for nearly a revolution if it came a little later.
    fn rotational_wait(&self, now: Duration, address: u64) -> Duration {
        if self.rotation.is_zero() {
            return Duration::ZERO;
        }
        let turn = self.rotation.as_secs_f64();
        let under_head = (now.as_secs_f64() / turn).fract();
        let wanted = (address % self.track_bytes()) as f64 / self.track_bytes() as f64;
        let share = (wanted - under_head).rem_euclid(1.0);
        // What rounding has pushed just past the head is under it.
        if share > 1.0 - 1e-6 { Duration::ZERO } else { self.rotation.mul_f64(share) }
    }
}

fn transfer(bytes: u64, bytes_per_s: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1))) as u64)
}

impl Timing {
    /// Does the real `work`, and returns when the device would be done with the requests, which arrived before it.
    fn serve<T>(
        &self,
        work: impl FnOnce() -> DiskResult<T>,
        requests: impl FnOnce(&mut Device, Duration) -> Duration,
    ) -> DiskResult<T> {
        let now = self.clock.now();
        let done = requests(&mut self.device.lock(), now);
        let result = work();
        let left = done.saturating_sub(self.clock.now());
        if !left.is_zero() {
            self.clock.sleep(left);
        }
        result
    }
}

impl SimulatedDisk {
    /// `inner` at the speed of `model`.
    pub fn new(model: DiskModel, inner: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Arc<SimulatedDisk> {
        SimulatedDisk::with("custom", model, inner, clock)
    }

    /// `inner` at the speed of a preset, or `None` if there is none of this name ([`names`](Self::names)). A leading
    /// `sim:` is allowed.
    pub fn named(name: &str, inner: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Option<Arc<SimulatedDisk>> {
        let name = name.strip_prefix("sim:").unwrap_or(name);
        let (name, _, model) = PRESETS.iter().find(|(preset, ..)| *preset == name)?;
        Some(SimulatedDisk::with(name, model.clone(), inner, clock))
    }

    fn with(name: &str, model: DiskModel, inner: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Arc<SimulatedDisk> {
        let device = Mutex::new(Device::new(model));
        Arc::new(SimulatedDisk { inner, name: name.to_owned(), timing: Arc::new(Timing { clock, device }) })
    }

    /// The presets: name, and what it stands for.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        PRESETS.iter().map(|(name, meaning, _)| (*name, *meaning))
    }

    /// What the device has done so far.
    pub fn work(&self) -> SimulatedWork {
        self.timing.device.lock().work
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let inner = self.inner.open(name, open, caching)?;
        let place = self.timing.device.lock().place(name);
        Ok(Arc::new(SimulatedFile {
            inner,
            caching,
            place,
            dirty: Mutex::default(),
            timing: self.timing.clone(),
        }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)?;
        let mut device = self.timing.device.lock();
        if let Some(place) = device.places.remove(from) {
            device.places.insert(to.to_owned(), place);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)?;
        self.timing.device.lock().places.remove(name);
        Ok(())
    }

    /// One write of 4096 bytes, at the begin of the device.
    fn sync_directory(&self) -> DiskResult<()> {
        self.timing.serve(
            || self.inner.sync_directory(),
            |device, now| {
                let written = device.submit(now, Request::Write, 0, 4096);
                device.submit(written, Request::Flush, 0, 0)
            },
        )
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        self.inner.lock()
    }

    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        self.inner.map_shared(name, bytes)
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        self.inner.shared_bytes(name)
    }

    fn boot(&self) -> u128 {
        self.inner.boot()
    }

    fn describe(&self) -> String {
        format!("sim:{} ({}) on {}", self.name, self.timing.device.lock().model, self.inner.describe())
    }
}

impl fmt::Display for DiskModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskModel::Spindle(spindle) => write!(
                f,
                "spindle: request {:?}, seek {:?} to {:?}, rotation {:?}, {} bytes/s, {} bytes",
                spindle.request,
                spindle.seek_track,
                spindle.seek_full,
                spindle.rotation,
                spindle.bytes_per_s,
                spindle.bytes
            ),
            DiskModel::Ssd(ssd) => write!(
                f,
                "SSD: read {:?}, write {:?}, flush {:?}, {} bytes/s, {} channels",
                ssd.read, ssd.write, ssd.flush, ssd.bytes_per_s, ssd.channels
            ),
        }
    }
}

/// A file whose calls take the device's time.
#[derive(Debug)]
struct SimulatedFile {
    inner: Arc<dyn File>,
    caching: Caching,
    place: u64,
    /// Written since the last sync: begin to end, apart from each other.
    dirty: Mutex<BTreeMap<u64, u64>>,
    timing: Arc<Timing>,
}

impl SimulatedFile {
    fn add_dirty(&self, start: u64, end: u64) {
        let mut dirty = self.dirty.lock();
        let (mut start, mut end) = (start, end);
        while let Some((&other_start, &other_end)) = dirty.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            dirty.remove(&other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        dirty.insert(start, end);
    }
}

impl File for SimulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        let bytes = buffer.len() as u64;
        self.timing.serve(
            || self.inner.read_at(buffer, offset),
            |device, now| device.submit(now, Request::Read, self.place + offset, bytes),
        )
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        let bytes = buffer.len() as u64;
        if self.caching == Caching::Buffered {
            self.inner.write_at(buffer, offset)?;
            if bytes > 0 {
                self.add_dirty(offset, offset + bytes);
            }
            return Ok(());
        }
        self.timing.serve(
            || self.inner.write_at(buffer, offset),
            |device, now| {
                let written = device.submit(now, Request::Write, self.place + offset, bytes);
                if self.caching == Caching::DirectSync {
                    device.submit(written, Request::Flush, 0, 0)
                } else {
                    written
                }
            },
        )
    }

    fn sync(&self) -> DiskResult<()> {
        if self.caching == Caching::DirectSync {
            return self.inner.sync();
        }
        let dirty = std::mem::take(&mut *self.dirty.lock());
        self.timing.serve(
            || self.inner.sync(),
            |device, now| {
                let mut written = now;
                for (start, end) in dirty {
                    written =
                        written.max(device.submit(now, Request::Write, self.place + start, end - start));
                }
                device.submit(written, Request::Flush, 0, 0)
            },
        )
    }

    fn length(&self) -> DiskResult<u64> {
        self.inner.length()
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.inner.set_length(bytes)
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.inner.allocate(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AlignedBuffer, MemoryDisk, SystemClock, VirtualClock};
    use super::*;

    fn simulated(name: &str) -> (Arc<SimulatedDisk>, Arc<VirtualClock>) {
        let clock = Arc::new(VirtualClock::new());
        (SimulatedDisk::named(name, MemoryDisk::new(), clock.clone()).unwrap(), clock)
    }

    fn direct(disk: &SimulatedDisk, name: &str) -> (Arc<dyn File>, AlignedBuffer) {
        let file = disk.open(name, Open::Create, Caching::Direct).unwrap();
        file.set_length(1 << 24).unwrap();
        (file, AlignedBuffer::zeroed(4096))
    }

    /// How long `call` takes on the clock.
    fn time(clock: &dyn Clock, call: impl FnOnce()) -> Duration {
        let start = clock.now();
        call();
        clock.now() - start
    }

    #[test]
    fn kodas_disk_does_thirty_commit_writes_a_second() {
        let (disk, clock) = simulated("sim:koda");
        let log = disk.open("log", Open::Create, Caching::Buffered).unwrap();
        let mut writes = 0;
        while clock.now() < Duration::from_secs(10) {
            log.write_at(&[1; 4096], writes * 4096).unwrap();
            log.sync().unwrap();
            writes += 1;
        }
        assert_eq!(writes, 301, "30 a second");
        assert_eq!(disk.work().writes, writes);
        assert!(disk.describe().contains("sim:koda (spindle: request 31.8ms"), "{}", disk.describe());
    }

    #[test]
    fn a_buffered_write_costs_at_its_sync_and_neighbours_are_one_request() {
        let (disk, clock) = simulated("hdd");
        let file = disk.open("f", Open::Create, Caching::Buffered).unwrap();
        let writing = time(&*clock, || {
            for block in [3, 1, 0, 2, 100] {
                file.write_at(&[1; 4096], block * 4096).unwrap();
            }
        });
        assert_eq!(writing, Duration::ZERO);
        assert!(time(&*clock, || file.sync().unwrap()) > Duration::ZERO);
        assert_eq!((disk.work().writes, disk.work().written_bytes, disk.work().flushes), (2, 5 * 4096, 1));
        assert_eq!(time(&*clock, || file.sync().unwrap()), Duration::ZERO, "nothing is dirty");
    }

    #[test]
    fn a_spindle_waits_for_its_sector_and_for_its_arm() {
        let (disk, clock) = simulated("hdd");
        let (near, mut buffer) = direct(&disk, "near");
        near.read_at(&mut buffer, 0).unwrap();
        // The next sector, asked for too late: nearly a revolution.
        clock.advance(Duration::from_micros(200));
        let missed = time(&*clock, || near.read_at(&mut buffer, 4096).unwrap());
        assert!((7.5..8.6).contains(&(missed.as_secs_f64() * 1e3)), "{missed:?}");
        // The same sector again: exactly one revolution.
        let again = time(&*clock, || near.read_at(&mut buffer, 4096).unwrap());
        assert!((8.3..8.4).contains(&(again.as_secs_f64() * 1e3)), "{again:?}");

        let spindle = match &disk.timing.device.lock().model {
            DiskModel::Spindle(spindle) => spindle.clone(),
            DiskModel::Ssd(_) => unreachable!("hdd is a spindle"),
        };
        assert_eq!(spindle.seek(0, 1000), Duration::ZERO);
        let (third, full) = (spindle.seek(0, spindle.bytes / 3), spindle.seek(spindle.bytes, 0));
        assert!(
            third > spindle.seek_track && third < full && full == spindle.seek_full,
            "{third:?} {full:?}"
        );
    }

    #[test]
    fn a_spindle_serves_one_at_a_time_and_an_ssd_several() {
        for (name, expected) in [("koda", 8.0..8.1), ("ssd", 1.0..1.6)] {
            let (disk, _) = simulated(name);
            let mut device = disk.timing.device.lock();
            let one = device.submit(Duration::ZERO, Request::Read, 0, 4096);
            let mut last = one;
            for request in 1..8 {
                last = device.submit(Duration::ZERO, Request::Read, request << 20, 4096);
            }
            let ratio = last.as_secs_f64() / one.as_secs_f64();
            assert!(expected.contains(&ratio), "{name}: {ratio}");
        }
    }

    #[test]
    fn presets_are_named_and_others_are_not() {
        let clock = || Arc::new(VirtualClock::new());
        for (name, meaning) in SimulatedDisk::names() {
            let disk = SimulatedDisk::named(name, MemoryDisk::new(), clock()).unwrap();
            assert!(disk.describe().starts_with(&format!("sim:{name} (")) && !meaning.is_empty());
        }
        assert!(SimulatedDisk::named("floppy", MemoryDisk::new(), clock()).is_none());
    }

    #[test]
    fn takes_its_time_on_the_system_clock_too() {
        let clock = Arc::new(SystemClock::new());
        let disk = SimulatedDisk::named("ssd", MemoryDisk::new(), clock.clone()).unwrap();
        let file = disk.open("f", Open::Create, Caching::Buffered).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        let (asked, took) = (Duration::from_micros(468), time(&*clock, || file.sync().unwrap()));
        assert!(took >= asked, "{took:?}");
    }
}
