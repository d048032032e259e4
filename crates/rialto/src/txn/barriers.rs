//! What a commit does just before it takes its place: it passes the barriers of checkpoints and of definitions. There
//! it is promised the copies that it may have to keep for a sweep at a cut, or holds the segments on which it is white.

use std::time::Duration;

use super::context::Context;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::commit::sweep_side::Settled;
use crate::commit::{CommitBarrier, NoPlace};
use crate::error::{Error, Result};
use crate::inside::check_may_wait;
use crate::io::Moment;

/// How often a commit checks again while it waits at a barrier, for room for snapshots, or for definitions.
const BARRIER_POLL: Duration = Duration::from_millis(10);
/// How often a commit checks again while it waits for a black/white sweep to paint some segments.
const SWEEP_POLL: Duration = Duration::from_millis(2);

impl Context {
    /// Passes the barrier before the place. The copies that the commit may have to keep for a sweep at a cut are
    /// promised to it (I10); for a black/white sweep it holds the segments on which it is white. Returns whether it has
    /// any promise or hold, for [`Context::leave_barrier`]. After an error the commit is no longer in progress.
    #[inline(always)]
    pub(super) fn pass_barrier(&mut self) -> Result<bool, NoPlace> {
        let owes = match self.core.commits.in_progress.enter(self.number, self.core.commits.log.place()) {
            CommitBarrier::Open => false,
            barrier => self.pass_barrier_slowly(barrier)?,
        };
        if let Err(error) = self.core.storage.check_open() {
            self.core.commits.in_progress.leave(self.number);
            self.leave_barrier();
            return Err(error.into());
        }
        Ok(owes)
    }

    /// Passes the barrier that checkpoints hold while they copy the catalog. It is called after the log's room is
    /// reserved, which may take a checkpoint, and while no executor is leased.
    #[cold]
    pub(super) fn enter_definitions(&mut self) -> Result<()> {
        let mut since = None;
        while !self.core.commits.definitions.try_enter() {
            self.wait_for_others(&mut since, |context| {
                context.core.commits.definitions.wait(&context.core.clock, BARRIER_POLL)
            })?;
        }
        self.defines = true;
        Ok(())
    }

    /// As [`Context::wait_at_barrier`], for other transactions; it takes no longer than a wait for a lock may take.
    fn wait_for_others(&mut self, since: &mut Option<Moment>, wait: impl FnOnce(&Context)) -> Result<()> {
        let now = self.core.clock.now();
        let waited = now - *since.get_or_insert(now);
        if waited < self.choices.lock_timeout.max(BARRIER_POLL) {
            return self.wait_at_barrier(wait);
        }
        self.core.commits.in_progress.leave(self.number);
        self.leave_definitions();
        Err(Error::LockTimeout {
            lock: "the passage of a barrier before a checkpoint or a definition".to_owned(),
            waited_ms: waited.as_millis() as u64,
        })
    }

    /// Waits at a barrier, after which the commit passes every barrier anew. Invariant: **a thread that waits at a
    /// barrier has passed none.** A thread that closes a barrier waits for the commits that have passed it.
    #[cold]
    fn wait_at_barrier(&mut self, wait: impl FnOnce(&Context)) -> Result<()> {
        self.core.commits.in_progress.leave(self.number);
        self.leave_definitions();
        self.leave_turn();
        let waiting = WaitGuard::enter(&self.core.clock, Awaited::Barrier);
        wait(self);
        drop(waiting);
        self.check_open()
    }

    /// Ends the pass: the DDL is visible, or gets no place.
    #[cold]
    pub(super) fn leave_definitions(&mut self) {
        if std::mem::take(&mut self.defines) {
            self.core.commits.definitions.leave();
        }
    }

    /// Gives back the commit's promises and holds, and the pass of the barrier before DDL.
    #[cold]
    pub(super) fn leave_barrier(&mut self) {
        self.leave_definitions();
        self.core.storage.keep_promise(std::mem::take(&mut self.promised));
        self.end_side();
    }

    #[cold]
    fn pass_barrier_slowly(&mut self, mut barrier: CommitBarrier) -> Result<bool, NoPlace> {
        self.core.locks.return_lease(&mut self.owner);
        // The begin of each wait at a closed barrier; a wait for a sweep in between has no time-out.
        let mut since = None;
        loop {
            match barrier {
                CommitBarrier::Open => return Ok(false),
                CommitBarrier::Snapshots => {
                    let needed = self.copies_owed();
                    if self.core.storage.promise_copies(needed) {
                        self.promised = needed;
                        return Ok(needed > 0);
                    }
                    self.check_may_wait_for_sweep()?;
                    self.wait_at_barrier(|context| {
                        context.core.storage.wait_for_copies(&context.core.clock, BARRIER_POLL);
                    })?;
                    since = None;
                }
                CommitBarrier::Sides => {
                    let settled = self.settle_side();
                    if settled == Settled::OneSide {
                        return Ok(true);
                    }
                    if settled == Settled::Straddling && !self.waits_if_straddling() {
                        self.core.commits.in_progress.leave(self.number);
                        self.core.commits.accounts.straddling(self.number, self.choices.procedure);
                        return Err(NoPlace::Straddles);
                    }
                    self.check_may_wait_for_sweep()?;
                    self.wait_at_barrier(|context| {
                        context.core.storage.painting().wait(&context.core.clock, SWEEP_POLL)
                    })?;
                    since = None;
                }
                CommitBarrier::Closed => {
                    self.wait_for_others(&mut since, |context| {
                        context.core.commits.in_progress.wait_at_barrier(&context.core.clock, BARRIER_POLL);
                    })?;
                }
            }
            if self.ddl.is_some() {
                self.enter_definitions()?;
            }
            barrier = self.core.commits.in_progress.enter(self.number, self.core.commits.log.place());
        }
    }

    /// Refuses a commit that would wait for a sweep which itself waits for this thread.
    fn check_may_wait_for_sweep(&mut self) -> Result<()> {
        check_may_wait(self.core.storage.catalog.opening()).inspect_err(|_| {
            self.core.commits.in_progress.leave(self.number);
            self.leave_barrier();
        })
    }

    /// The most copies that the commit has to make before it changes its rows.
    fn copies_owed(&self) -> usize {
        let locations = self.writes.writes().iter().flat_map(|write| [write.record, write.final_location()]);
        self.core.storage.copies_owed(locations)
    }
}
