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
//!
//! The clock decides when a call returns: the call does the real work first, then sleeps until the modelled device
//! would be done. Where the real work takes longer than the model, the call takes as long as the work.

mod model;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::model::{Device, PRESETS, Place, Request};
pub use self::model::{DiskModel, SimulatedWork, Spindle, Ssd};
use super::{Caching, Clock, DirectoryLock, Disk, DiskResult, File, Open, SharedMap};

/// Another disk with the service times of a [`DiskModel`]; the module says how they are computed.
#[derive(Debug)]
pub struct SimulatedDisk {
    inner: Arc<dyn Disk>,
    name: String,
    timing: Arc<Timing>,
}

#[derive(Debug)]
struct Timing {
    clock: Clock,
    device: Mutex<Device>,
}

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
        SimulatedDisk::with("custom", model, inner, clock)
    }

    /// `inner` at the speed of a preset, or `None` if no preset has this name ([`names`](Self::names)). A leading
    /// `sim:` is allowed.
    pub fn named(name: &str, inner: Arc<dyn Disk>, clock: Clock) -> Option<Arc<SimulatedDisk>> {
        let name = name.strip_prefix("sim:").unwrap_or(name);
        let (name, _, model) = PRESETS.iter().find(|(preset, ..)| *preset == name)?;
        Some(SimulatedDisk::with(name, model.clone(), inner, clock))
    }

    fn with(name: &str, model: DiskModel, inner: Arc<dyn Disk>, clock: Clock) -> Arc<SimulatedDisk> {
        let device = Mutex::new(Device::new(model));
        Arc::new(SimulatedDisk { inner, name: name.to_owned(), timing: Arc::new(Timing { clock, device }) })
    }

    /// The presets: each one's name, and what it stands for.
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
        Ok(Arc::new(SimulatedFile { inner, caching, place, timing: self.timing.clone() }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)?;
        self.timing.device.lock().rename(from, to);
        Ok(())
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)?;
        self.timing.device.lock().remove(name);
        Ok(())
    }

    /// One write of 4096 bytes, at the beginning of the device.
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

/// A file whose calls take the device's time.
#[derive(Debug)]
struct SimulatedFile {
    inner: Arc<dyn File>,
    caching: Caching,
    place: Arc<Place>,
    timing: Arc<Timing>,
}

impl File for SimulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        let bytes = buffer.len() as u64;
        self.timing.serve(
            || self.inner.read_at(buffer, offset),
            |device, now| device.submit(now, Request::Read, self.place.start + offset, bytes),
        )
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        let bytes = buffer.len() as u64;
        if self.caching == Caching::Buffered {
            self.inner.write_at(buffer, offset)?;
            if bytes > 0 {
                self.place.add_dirty(offset, offset + bytes);
            }
            return Ok(());
        }
        self.timing.serve(
            || self.inner.write_at(buffer, offset),
            |device, now| {
                let written = device.submit(now, Request::Write, self.place.start + offset, bytes);
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
        let dirty = self.place.take_dirty();
        self.timing.serve(
            || self.inner.sync(),
            |device, now| {
                let mut written = now;
                for (start, end) in dirty {
                    written = written.max(device.submit(
                        now,
                        Request::Write,
                        self.place.start + start,
                        end - start,
                    ));
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
