//! The numbers of executors and of the threads that own them, changed while the database runs.

use std::ops::RangeInclusive;

use super::Database;
use crate::engine::data_oriented::resize;
use crate::error::{Error, Result};
use crate::inside::InBody;

/// The bounds, if they are in order and there is room for them.
fn check(what: &str, bounds: &RangeInclusive<usize>, room: usize, field: &str) -> Result<()> {
    let (least, most) = (*bounds.start(), *bounds.end());
    if least == 0 || least > most || most > room {
        let what = format!("{least} to {most} {what}, expected bounds from 1 to {room} (Executors::{field})");
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

impl Database {
    /// How many executors there are now; 0 on the [conventional](crate::Engine::Conventional) engine.
    pub fn executors(&self) -> usize {
        self.core().locks.executors_in_use()
    }

    /// How many threads own the executors now; 0 if calls run in place, on the threads that call.
    pub fn executor_threads(&self) -> usize {
        self.runtime().queues.as_ref().map_or(0, |queues| queues.len())
    }

    /// Bounds the number of executors from now on, while transactions run (the DORA paper, section 4.1.2); equal bounds
    /// fix it. Within the bounds the resource manager doubles the number where transactions often find an executor's
    /// lock table in use, and halves it where they hardly ever do. When the number changes, the datasets are shared out
    /// anew among the executors in use. Locks that are held or waited for move along with their keys, and no
    /// transaction waits for the change. At first the bounds are [`Executors::count`](crate::Executors::count) and
    /// [`Executors::count_max`](crate::Executors::count_max).
    ///
    /// # Errors
    /// [`Error::Unsupported`] on the [conventional](crate::Engine::Conventional) engine, and if the bounds are not from
    /// 1 to the number that there is room for; [`Error::Nested`] inside a body, which may have executors leased.
    pub fn set_executors(&self, bounds: RangeInclusive<usize>) -> Result<()> {
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        let core = self.core();
        if !self.runtime().engine.is_data_oriented() {
            let what = "a number of executors on the conventional engine: open the database with Options::engine DataOriented";
            return Err(Error::Unsupported { what: what.to_owned() });
        }
        let chosen = &self.runtime().bounds;
        check("executors", &bounds, chosen.executors_room, "count_max")?;
        let mut held = chosen.executors(&core.clock);
        *held = bounds;
        let now = core.locks.executors_in_use();
        let wanted = now.clamp(*held.start(), *held.end());
        if wanted != now {
            core.locks.set_executors(wanted);
        }
        Ok(())
    }

    /// Bounds the number of threads that own executors from now on, while calls are in progress; equal bounds fix it.
    /// Within the bounds the resource manager adds a thread where tasks queue up and there is a processor for it, and
    /// retires one where the remaining threads suffice. A retired thread ends the tasks that it has begun; its other
    /// tasks go to the remaining threads. At first the bounds are [`Executors::threads`](crate::Executors::threads) and
    /// [`Executors::threads_max`](crate::Executors::threads_max).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the database was opened without such threads, or if the bounds are not from 1 to the
    /// number that there is room for; [`Error::Io`] if the system has no thread left: then there are as many as it had;
    /// [`Error::Nested`] inside a body.
    pub fn set_executor_threads(&self, bounds: RangeInclusive<usize>) -> Result<()> {
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        let runtime = self.runtime();
        let Some(queues) = &runtime.queues else {
            let what = "a number of threads in a database opened without threads that own executors: give Executors::threads";
            return Err(Error::Unsupported { what: what.to_owned() });
        };
        check("threads that own executors", &bounds, queues.room(), "threads_max")?;
        let mut held = runtime.bounds.threads();
        *held = bounds;
        let now = queues.len();
        let wanted = now.clamp(*held.start(), *held.end());
        resize(runtime, wanted)
    }
}
