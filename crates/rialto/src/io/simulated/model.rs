//! The model of a device: its parameters, its presets, and how long its requests take.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The kind of a device, with its times.
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
    /// The seek across all tracks. In between, the time grows with the square root of the distance.
    pub seek_full: Duration,
    /// One revolution; zero for a model whose `request` is a mean that includes the rotation.
    pub rotation: Duration,
    /// The bytes that pass the head in one second.
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
    /// The latency of a flush of the device's cache, which ends each sync.
    pub flush: Duration,
    /// The speed of the bus.
    pub bytes_per_s: u64,
    /// The number of requests in service at a time.
    pub channels: usize,
}

/// A device, or several of a kind, under a name.
#[derive(Debug)]
pub(super) struct Preset {
    pub name: &'static str,
    /// What it stands for.
    pub meaning: &'static str,
    pub model: DiskModel,
    /// How many there are.
    pub devices: usize,
}

/// The presets.
pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "koda",
        meaning: "the disk of KODA's paper: 30 commit writes of about 4 KiB a second, wherever they go",
        devices: 1,
        model: DiskModel::Spindle(Spindle {
            request: Duration::from_micros(31_800),
            seek_track: Duration::ZERO,
            seek_full: Duration::ZERO,
            rotation: Duration::ZERO,
            bytes_per_s: 2_700_000,
            bytes: 1 << 30,
        }),
    },
    Preset {
        name: "hdd",
        meaning: "a 7200 rpm disk, without a write cache",
        devices: 1,
        model: DiskModel::Spindle(Spindle {
            request: Duration::from_micros(100),
            seek_track: Duration::from_millis(1),
            seek_full: Duration::from_millis(16),
            rotation: Duration::from_nanos(8_333_333),
            bytes_per_s: 200_000_000,
            bytes: 4_000_000_000_000,
        }),
    },
    Preset {
        name: "ssd",
        meaning: "a SATA SSD with power-loss protection: 0.1 ms a log write",
        devices: 1,
        model: DiskModel::Ssd(Ssd {
            read: Duration::from_micros(100),
            write: Duration::from_micros(60),
            flush: Duration::from_micros(30),
            bytes_per_s: 500_000_000,
            channels: 8,
        }),
    },
    Preset {
        name: "nvme",
        meaning: "an NVMe SSD with power-loss protection: 0.03 ms a log write",
        devices: 1,
        model: DiskModel::Ssd(Ssd {
            read: Duration::from_micros(80),
            write: Duration::from_micros(25),
            flush: Duration::from_micros(5),
            bytes_per_s: 3_000_000_000,
            channels: 32,
        }),
    },
    Preset {
        name: "charm",
        meaning: "the disks of Charm's paper: three of 5400 rpm, one of them for the log",
        devices: 3,
        model: DiskModel::Spindle(Spindle {
            request: Duration::from_micros(300),
            seek_track: Duration::from_millis(2),
            seek_full: Duration::from_millis(20),
            rotation: Duration::from_nanos(11_111_111),
            bytes_per_s: 25_000_000,
            bytes: 20_000_000_000,
        }),
    },
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
    /// The sum of the times from a request's arrival to its end.
    pub taken: Duration,
}

impl SimulatedWork {
    /// What has come since an earlier look at the same device.
    #[must_use]
    pub fn since(self, earlier: SimulatedWork) -> SimulatedWork {
        SimulatedWork {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            busy: self.busy - earlier.busy,
            taken: self.taken - earlier.taken,
        }
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

#[derive(Debug)]
pub(super) struct Device {
    pub(super) model: DiskModel,
    /// When each channel is free again (a spindle has one).
    free_at: Vec<Duration>,
    bus_free_at: Duration,
    /// The byte after the last one that has passed the head.
    head: u64,
    /// Where each file lies, and where the next new one will begin.
    places: HashMap<String, Arc<Place>>,
    next_start: u64,
    pub(super) work: SimulatedWork,
}

/// Where a file lies on the device, for all its handles.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) start: u64,
    /// The bytes written since the last sync: beginning to end of each range; ranges do not touch.
    dirty: Mutex<BTreeMap<u64, u64>>,
}

impl Place {
    pub(super) fn add_dirty(&self, mut start: u64, mut end: u64) {
        let mut dirty = self.dirty.lock();
        while let Some((&other_start, &other_end)) = dirty.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            dirty.remove(&other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        dirty.insert(start, end);
    }

    pub(super) fn take_dirty(&self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.dirty.lock())
    }
}

/// The distance between the beginnings of two files on the device.
const FILE_SPACING: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Read,
    Write,
    Flush,
}

impl Device {
    pub(super) fn new(model: DiskModel) -> Device {
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
            next_start: 0,
            work: SimulatedWork::default(),
        }
    }

    /// The file's place on the device; a new one for a file that is new.
    pub(super) fn place(&mut self, name: &str) -> Arc<Place> {
        if let Some(place) = self.places.get(name) {
            return place.clone();
        }
        let place = Arc::new(Place { start: self.next_start, dirty: Mutex::default() });
        self.next_start += FILE_SPACING;
        self.places.insert(name.to_owned(), place.clone());
        place
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some(place) = self.places.remove(from) {
            self.places.insert(to.to_owned(), place);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.places.remove(name);
    }

    /// Queues a request that arrives now, and returns when it is done.
    pub(super) fn submit(&mut self, now: Duration, request: Request, address: u64, bytes: u64) -> Duration {
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
        self.work.taken += done.saturating_sub(now);
        done
    }
}

impl Spindle {
    pub(super) fn seek(&self, from: u64, to: u64) -> Duration {
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

    /// The platter turns with the clock. A request for the sector right after the last one therefore waits for nothing
    /// if it was in the queue, and for nearly a revolution if it came a little later.
    fn rotational_wait(&self, now: Duration, address: u64) -> Duration {
        if self.rotation.is_zero() {
            return Duration::ZERO;
        }
        let turn = self.rotation.as_secs_f64();
        let under_head = (now.as_secs_f64() / turn).fract();
        let wanted = (address % self.track_bytes()) as f64 / self.track_bytes() as f64;
        let share = (wanted - under_head).rem_euclid(1.0);
        // A sector that rounding has moved just past the head is under it.
        if share > 1.0 - 1e-6 { Duration::ZERO } else { self.rotation.mul_f64(share) }
    }
}

fn transfer(bytes: u64, bytes_per_s: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1))) as u64)
}
