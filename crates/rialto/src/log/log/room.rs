//! Room in the log: the promises to packets that are not gathered yet, and the transactions that wait for room.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{ASK_EVERY, LogCore};
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::log::line::LineGuard;
use crate::{Error, Result};

/// How long a transaction that works for room waits for an attempt to prepare a file.
const ATTEMPT_MAX: Duration = Duration::from_millis(10);
/// How long it sleeps after an attempt that has failed.
const PAUSE: Duration = Duration::from_millis(1);

/// The most checkpoints that one transaction makes for its room. The first may find that the checkpoint in force needs
/// all of the log; the second retires that checkpoint, and the third frees what only it needed.
pub(super) const CHECKPOINTS_MAX: u32 = 3;

impl LogCore {
    /// Adds `bytes` of stream to the promises, if prepared files hold them.
    pub(super) fn promise(&self, bytes: u64) -> bool {
        let promised = self.pool.promised().fetch_add(bytes, Ordering::SeqCst) + bytes;
        // Read in this order: the gatherer advances the position before it takes a promise back.
        if self.ring.filled() + promised <= self.files.prepared() {
            return true;
        }
        self.pool.promised().fetch_sub(bytes, Ordering::SeqCst);
        false
    }

    /// As [`LogCore::promise`], but first takes back what is promised to lone committers for their next packets. They
    /// may open another allotment at any time after this, so each attempt takes it back again, and promises under the
    /// same latch.
    fn promise_before_others(&self, bytes: u64) -> bool {
        let mut gatherer = self.gatherer.lock();
        gatherer.close_allotment(&self.pool);
        self.promise(bytes)
    }

    /// Waits for room; gives up when `check` gives an error.
    pub(super) fn promise_slowly(&self, bytes: u64, check: &dyn Fn() -> Result<()>) -> Result<()> {
        if self.promise_before_others(bytes) {
            return Ok(());
        }
        let _waiting = WaitGuard::enter(self.clock(), Awaited::LogRoom);
        let standing = self.line.join(bytes);
        let ended = self.work_for_room(bytes, &standing, check);
        // The room may have been given at the last moment.
        if standing.leave() { Ok(()) } else { ended }
    }

    /// Has the next file prepared for so many bytes, or rests for a moment if there is none.
    pub(super) fn prepare_or_rest(&self, bytes: u64) -> bool {
        let is_prepared = self.prepare_for(bytes).is_none();
        if !is_prepared {
            self.clock().rest(PAUSE);
        }
        is_prepared
    }

    /// As [`LogCore::promise_before_others`], for all that stand in the line.
    fn give_room(&self) {
        let given = {
            let mut gatherer = self.gatherer.lock();
            gatherer.close_allotment(&self.pool);
            self.line.give(|bytes| self.promise(bytes))
        };
        given.iter().for_each(|entry| entry.wake());
    }

    /// Waits in the line until room is given. Works for it if it is the first, and once when it has waited for as long
    /// as it may.
    fn work_for_room(
        &self,
        bytes: u64,
        standing: &LineGuard<'_>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut short = None;
        // Why there is no file, and why there will be none, as far as each is known.
        let mut attempted: Option<(Option<String>, Option<String>)> = None;
        // Where the log is driven, this caller makes the room itself, by a checkpoint between two attempts.
        let mut checkpoints = if self.driven { CHECKPOINTS_MAX } else { 0 };
        let mut has_made_room = false;
        let clock = self.clock();
        let until = clock.now() + self.wait_max;
        loop {
            while !standing.come_forward(clock, until.min(clock.now() + ASK_EVERY)) && clock.now() < until {
                check()?;
            }
            if standing.is_given() {
                return Ok(());
            }
            self.check_open()?;
            check()?;
            let is_late = clock.now() >= until;
            // An attempt follows each checkpoint that was made for this transaction.
            if let Some((problem, hopeless)) = attempted.take()
                && (is_late && !has_made_room || problem.is_some() && !self.threaded && !self.driven)
            {
                let reason = match (problem, hopeless) {
                    (None, _) => "the next log file is not ready yet; try again".to_owned(),
                    (Some(problem), None) => format!("{problem}; try again after the next checkpoint"),
                    (Some(problem), Some(hopeless)) => format!("{problem}; {hopeless}"),
                };
                return Err(Error::LogFull { reason });
            }
            let problem = self.prepare_for(bytes);
            self.gather_now();
            self.give_room();
            if standing.is_given() {
                return Ok(());
            }
            // If the next file is only not ready yet, no checkpoint is needed.
            let hopeless = problem.as_ref().and_then(|_| {
                short.get_or_insert_with(|| Short::begin(&self.short));
                self.when_full.get().and_then(|when_full| when_full(checkpoints > 0))
            });
            has_made_room = problem.is_some() && checkpoints > 0;
            checkpoints -= u32::from(has_made_room);
            if problem.is_some() {
                clock.rest(PAUSE);
            }
            attempted = Some((problem, hopeless));
        }
    }

    /// Makes the next file that this many bytes need, or waits for an attempt to make it. Returns why the attempt has
    /// failed.
    pub(super) fn prepare_for(&self, bytes: u64) -> Option<String> {
        if self.threaded {
            let wanted = self.ring.filled() + self.pool.promised().load(Ordering::SeqCst) + bytes;
            let asked = self.files.want(wanted.max(self.files.prepared() + 1));
            return self.files.wait_for_attempt(asked, ATTEMPT_MAX);
        }
        match self.files.prepare() {
            Ok(()) => None,
            Err(Error::LogFull { reason }) => Some(reason),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// A transaction that works for room, counted as long as this lives.
struct Short<'a>(&'a AtomicU32);

impl<'a> Short<'a> {
    fn begin(count: &'a AtomicU32) -> Short<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Short(count)
    }
}

impl Drop for Short<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
