//! How many executors there are, which threads own them, and whose each dataset is.

use std::ops::RangeInclusive;

use super::Database;
use crate::engine::data_oriented::resize;
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::isolate::LockForm;

/// The bounds, if they are in order and there is room for them.
fn check(what: &str, bounds: &RangeInclusive<usize>, room: usize, option: &str) -> Result<()> {
    let (least, most) = (*bounds.start(), *bounds.end());
    if least == 0 || least > most || most > room {
        let what = format!("{least} to {most} {what}, expected bounds from 1 to {room} (Options::{option})");
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

impl Database {
    /// How many executors there are now; 0 unless locks are [`LockForm::Local`].
    pub fn executors(&self) -> usize {
        match self.core().locks.form() {
            LockForm::Local => self.core().locks.executors_in_use(),
            LockForm::Thin | LockForm::Central => 0,
        }
    }

    /// How many threads own the executors now; 0 if whoever calls runs his call in place.
    pub fn executor_threads(&self) -> usize {
        self.runtime().queues.as_ref().map_or(0, |queues| queues.len())
    }

    /// Bounds the number of executors from here on, while transactions run (the DORA paper, section 4.1.2); bounds that are
    /// equal fix it. Within them the resource manager doubles it where transactions often find an executor in somebody's
    /// hands, and halves it where they hardly ever do. When the number changes, datasets are dealt out to the executors
    /// that are in use, and shared out anew; locks that are held or waited for go along with their keys, and nobody waits for
    /// it. At first the bounds are [`Options::executors`](crate::Options::executors) and
    /// [`Options::executors_max`](crate::Options::executors_max).
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless locks are [`LockForm::Local`], or if the bounds are not from 1 to the most that there is
    /// room for; [`Error::Nested`] inside of a body, which may have executors in its hands.
    pub fn set_executors(&self, bounds: RangeInclusive<usize>) -> Result<()> {
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        let core = self.core();
        if core.locks.form() != LockForm::Local {
            let what =
                "a number of executors without any: open the database with Options::locks Local".to_owned();
            return Err(Error::Unsupported { what });
        }
        let chosen = &self.runtime().bounds;
        check("executors", &bounds, chosen.executors_room, "executors_max")?;
        let mut held = chosen.executors();
        *held = bounds;
        let now = core.locks.executors_in_use();
        let wanted = now.clamp(*held.start(), *held.end());
        if wanted != now {
            core.locks.set_executors(wanted);
        }
        Ok(())
    }

    /// Bounds the number of threads that own executors from here on, while calls are under way; bounds that are equal fix it.
    /// Within them the resource manager has one more where tasks queue up and there is a processor for it, and one fewer where
    /// those that are left will do. What a thread that is retired has begun it ends; what it has not goes to the others. At
    /// first the bounds are [`Options::executor_threads`](crate::Options::executor_threads) and
    /// [`Options::executor_threads_max`](crate::Options::executor_threads_max).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the database was opened without such threads, or if the bounds are not from 1 to the most that
    /// there is room for; [`Error::Io`] if the system has no thread left: there are as many as it had; [`Error::Nested`] inside
    /// of a body.
    pub fn set_executor_threads(&self, bounds: RangeInclusive<usize>) -> Result<()> {
        let _in_body = InBody::enter(self.core().storage.catalog.opening())?;
        let runtime = self.runtime();
        let Some(queues) = &runtime.queues else {
            let what = "threads that own executors in a database that was opened without: give Options::executor_threads";
            return Err(Error::Unsupported { what: what.to_owned() });
        };
        check("threads that own executors", &bounds, queues.room(), "executor_threads_max")?;
        let mut held = runtime.bounds.threads();
        *held = bounds;
        let now = queues.len();
        let wanted = now.clamp(*held.start(), *held.end());
        resize(runtime, wanted)
    }
}
