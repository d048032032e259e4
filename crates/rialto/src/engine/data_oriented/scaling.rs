//! The numbers of executors and of threads that own them, while the database is open.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::engine::Runtime;
use crate::error::{Error, Result};
use crate::io::Clock;

/// The bounds within which the resource manager chooses the numbers. One change at a time.
#[derive(Debug)]
pub(crate) struct Bounds {
    executors: Mutex<RangeInclusive<usize>>,
    threads: Mutex<RangeInclusive<usize>>,
    /// How many executors there is room for.
    pub executors_room: usize,
}

impl Bounds {
    /// With these bounds at first. The upper ones are also the most that there is ever room for.
    pub fn new(executors: RangeInclusive<usize>, threads: RangeInclusive<usize>) -> Bounds {
        let executors_room = *executors.end();
        Bounds { executors: Mutex::new(executors), threads: Mutex::new(threads), executors_room }
    }

    /// The bounds. They do not change while the guard is held.
    pub(crate) fn executors(&self, clock: &Clock) -> MutexGuard<'_, RangeInclusive<usize>> {
        clock.lock(&self.executors)
    }

    pub(crate) fn threads(&self) -> MutexGuard<'_, RangeInclusive<usize>> {
        self.threads.lock()
    }
}

/// Lets so many threads own the executors.
pub(crate) fn resize(runtime: &Arc<Runtime>, threads: usize) -> Result<()> {
    let Some(queues) = &runtime.queues else { return Ok(()) };
    runtime.core.storage.check_open()?;
    queues.resize(threads).map_err(|error| Error::Io {
        file: "the threads of executors".to_owned(),
        offset: 0,
        operation: "starting one".to_owned(),
        cause: error.to_string(),
    })
}
