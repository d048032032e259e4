//! The simulated disk: another disk's bytes at the speed of a modelled device, so that a paper's regime can be
//! reproduced on any machine.
//!
//! The model, whose parameters [`DiskModel`] holds:
//!
//! * There is no read cache: each read goes to the device.
//! * A write to a buffered file costs nothing until the file's sync, which writes what is dirty in the order of
//!   offsets, neighbouring writes as one request, and then flushes. A write to a direct file goes to the device at
//!   once.
//! * A file is contiguous; files begin 64 MiB apart, in the order in which they were first seen.
//! * Requests queue. A request that finds the device busy starts when the ones before it are done.
//! * There may be several devices: then the log is on the first one, and other files are spread over the rest, in pieces of 1 MiB.
//!
//! The clock decides when a call returns: the call does the real work first, then sleeps until the modelled device
//! would be done. Where the real work takes longer than the model, the call takes as long as the work.

mod model;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::model::{Device, PRESETS, Place, Preset, Request};
pub use self::model::{DiskModel, SimulatedWork, Spindle, Ssd};
use super::{Caching, Clock, DirectoryLock, Disk, DiskResult, File, Open, SharedMap};

/// Another disk with the service times of a [`DiskModel`]; the module says how they are computed.
#[derive(Debug)]
pub struct SimulatedDisk {
    inner: Arc<dyn Disk>,
    name: String,
    /// By device.
    timings: Vec<Arc<Timing>>,
}

#[derive(Debug)]
struct Timing {
    clock: Clock,
    device: Mutex<Device>,
}

/// The pieces of files that are spread over several devices.
const PIECE: u64 = 1 << 20;

impl Timing {
    /// Does the real `work`, and returns when the device would be done with the requests, which arrived before it.
    fn serve<T>(
        &self,
        work: impl FnOnce() -> DiskResult<T>,
        requests: impl FnOnce(&mut Device, Duration) -> Duration,
    ) -> DiskResult<T> {
        let now = self.clock.now().reading();
        let done = requests(&mut self.device.lock(), now);
        let result = work();
        let left = done.saturating_sub(self.clock.now().reading());
        if !left.is_zero() {
            self.clock.sleep(left);
        }
        result
    }
}

impl SimulatedDisk {
    /// `inner` at the speed of `model`.
    pub fn new(model: DiskModel, inner: Arc<dyn Disk>, clock: Clock) -> Arc<SimulatedDisk> {
        SimulatedDisk::with("custom", (model, 1), inner, clock)
    }

    /// `inner` at the speed of a preset, or `None` if no preset has this name ([`names`](Self::names)). A leading
    /// `sim:` is allowed.
    pub fn named(name: &str, inner: Arc<dyn Disk>, clock: Clock) -> Option<Arc<SimulatedDisk>> {
        let name = name.strip_prefix("sim:").unwrap_or(name);
        let Preset { name, model, devices, .. } = PRESETS.iter().find(|preset| preset.name == name)?;
        Some(SimulatedDisk::with(name, (model.clone(), *devices), inner, clock))
    }

    fn with(
        name: &str,
        (model, devices): (DiskModel, usize),
        inner: Arc<dyn Disk>,
        clock: Clock,
    ) -> Arc<SimulatedDisk> {
        let timing =
            |_| Arc::new(Timing { clock: clock.clone(), device: Mutex::new(Device::new(model.clone())) });
        Arc::new(SimulatedDisk { inner, name: name.to_owned(), timings: (0..devices).map(timing).collect() })
    }

    /// The devices that a file is on.
    fn devices_of(&self, file: &str) -> &[Arc<Timing>] {
        match self.timings.len() {
            1 => &self.timings,
            _ if file.starts_with("log") => &self.timings[..1],
            _ => &self.timings[1..],
        }
    }

    /// The presets: each one's name, and what it stands for.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        PRESETS.iter().map(|preset| (preset.name, preset.meaning))
    }

    /// What each device has done so far.
    pub fn works(&self) -> Vec<SimulatedWork> {
        self.timings.iter().map(|timing| timing.device.lock().work).collect()
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        let inner = self.inner.open(name, open, caching)?;
        let part = |timing: &Arc<Timing>| FilePart {
            place: timing.device.lock().place(name),
            timing: timing.clone(),
        };
        let parts = self.devices_of(name).iter().map(part).collect();
        Ok(Arc::new(SimulatedFile { inner, caching, parts }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)?;
        self.timings.iter().for_each(|timing| timing.device.lock().rename(from, to));
        Ok(())
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)?;
        self.timings.iter().for_each(|timing| timing.device.lock().remove(name));
        Ok(())
    }

    /// One write of 4096 bytes, at the beginning of the device.
    fn sync_directory(&self) -> DiskResult<()> {
        self.timings[0].serve(
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

    /// By a virtual clock its calls take no time of the machine's, by which speeds are measured.
    fn has_speed(&self) -> bool {
        self.timings.iter().all(|timing| matches!(timing.clock, Clock::System))
    }

    fn boot(&self) -> u128 {
        self.inner.boot()
    }

    fn describe(&self) -> String {
        let devices = match self.timings.len() {
            1 => String::new(),
            devices => format!("{devices} devices, the first for the log, each a "),
        };
        let model = self.timings[0].device.lock().model.to_string();
        format!("sim:{} ({devices}{model}) on {}", self.name, self.inner.describe())
    }
}

/// A file whose calls take the device's time.
#[derive(Debug)]
struct SimulatedFile {
    inner: Arc<dyn File>,
    caching: Caching,
    /// By device.
    parts: Vec<FilePart>,
}

/// The part of a file that is on a device.
#[derive(Debug)]
struct FilePart {
    place: Arc<Place>,
    timing: Arc<Timing>,
}

impl SimulatedFile {
    /// Where a request at this offset goes.
    fn part(&self, offset: u64) -> &FilePart {
        &self.parts[(offset / PIECE) as usize % self.parts.len()]
    }
}

impl File for SimulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        let (bytes, FilePart { place, timing }) = (buffer.len() as u64, self.part(offset));
        timing.serve(
            || self.inner.read_at(buffer, offset),
            |device, now| device.submit(now, Request::Read, place.start + offset, bytes),
        )
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        let (bytes, FilePart { place, timing }) = (buffer.len() as u64, self.part(offset));
        if self.caching == Caching::Buffered {
            self.inner.write_at(buffer, offset)?;
            if bytes > 0 {
                place.add_dirty(offset, offset + bytes);
            }
            return Ok(());
        }
        timing.serve(
            || self.inner.write_at(buffer, offset),
            |device, now| {
                let written = device.submit(now, Request::Write, place.start + offset, bytes);
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
        let mut synced = Ok(());
        for FilePart { place, timing } in &self.parts {
            let dirty = place.take_dirty();
            synced = timing.serve(
                || synced.and_then(|()| self.inner.sync()),
                |device, now| {
                    let mut written = now;
                    for (start, end) in dirty {
                        let done = device.submit(now, Request::Write, place.start + start, end - start);
                        written = written.max(done);
                    }
                    device.submit(written, Request::Flush, 0, 0)
                },
            );
        }
        synced
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
