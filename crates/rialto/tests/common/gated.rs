//! A disk that holds the writes of a sweep, so that transactions run while it is half done.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rialto::io::MemoryDisk;

use super::hooked::{About, HookedDisk};

/// A disk whose gate is open.
pub fn disk() -> GatedDisk {
    let gate = Arc::new(Gate { at: Mutex::new((u64::MAX, false)), changed: Condvar::new() });
    let disk = HookedDisk::new(MemoryDisk::new());
    let passed = gate.clone();
    disk.before(move |file, about| match about {
        About::Write(offset) if file.starts_with("backup") => passed.pass(offset),
        _ => {}
    });
    GatedDisk { disk, gate }
}

/// A disk in memory whose backup copies can be written only up to a place.
pub struct GatedDisk {
    pub disk: Arc<HookedDisk>,
    pub gate: Arc<Gate>,
}

pub struct Gate {
    /// Writes at or behind this byte of a backup copy wait; and whether one waits.
    at: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Gate {
    pub fn set(&self, at: u64) {
        *self.at.lock() = (at, false);
        self.changed.notify_all();
    }

    pub fn wait_until_reached(&self) {
        let mut at = self.at.lock();
        while !at.1 {
            assert!(
                !self.changed.wait_for(&mut at, Duration::from_secs(60)).timed_out(),
                "the sweep does not come by"
            );
        }
    }

    fn pass(&self, offset: u64) {
        let mut at = self.at.lock();
        while offset >= at.0 {
            at.1 = true;
            self.changed.notify_all();
            self.changed.wait(&mut at);
        }
    }
}
