//! What a commit passes before its place: the gates of checkpoints and of definitions, and what it promises a sweep there.

use std::time::Duration;

use super::context::Context;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::commit::sweep_side::Settled;
use crate::commit::{Gate, NoPlace};
use crate::error::{Error, Result};
use crate::inside::check_may_wait;
use crate::io::Moment;

/// How often a commit looks again that waits at a gate, for room for snapshots, or for definitions.
const GATE_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often a commit looks again that waits for a black/white sweep to paint some segments.
const SWEEP_POLL: Duration = Duration::from_millis(2);

impl Context {
    /// Passes the gate before the place. What the commit may have to keep for a sweep at a cut is promised to it (I10), what
    /// it is white on for a black/white sweep it holds. Gives whether there is any of both, for [`Context::end_flight`]. After
    /// an error it is not in flight.
    #[inline(always)]
    pub(super) fn enter_flight(&mut self) -> Result<bool, NoPlace> {
        let owes = match self.core.commits.in_flight.enter(self.number, self.core.commits.log.place()) {
            Gate::Open => false,
            gate => self.enter_flight_slowly(gate)?,
        };
        if let Err(error) = self.core.storage.check_open() {
            self.core.commits.in_flight.leave(self.number);
            self.end_flight();
            return Err(error.into());
        }
        Ok(owes)
    }

    /// Passes the gate that checkpoints hold while they take what they need of the catalog. After the log's room is reserved,
    /// which may take a checkpoint, and with no executor's locks in hand.
    #[cold]
    pub(super) fn enter_definitions(&mut self) -> Result<()> {
        let mut since = None;
        while !self.core.commits.definitions.try_enter() {
            self.wait_for_others(&mut since, |context| {
                context.core.commits.definitions.wait(&context.core.clock, GATE_LOOK_EVERY)
            })?;
        }
        self.defines = true;
        Ok(())
    }

    /// As [`Context::wait_at_gate`], for what other transactions do: no longer than for a lock of theirs.
    fn wait_for_others(&mut self, since: &mut Option<Moment>, wait: impl FnOnce(&Context)) -> Result<()> {
        let now = self.core.clock.now();
        let waited = now - *since.get_or_insert(now);
        if waited < self.choices.lock_timeout.max(GATE_LOOK_EVERY) {
            return self.wait_at_gate(wait);
        }
        self.core.commits.in_flight.leave(self.number);
        self.leave_definitions();
        Err(Error::LockTimeout {
            lock: "the passage of a gate before a checkpoint or a definition".to_owned(),
            waited_ms: waited.as_millis() as u64,
        })
    }

    /// Waits at a gate, after which every gate is to be passed anew. Invariant: **a thread that waits at a gate has passed none.** What
    /// closes a gate waits for those that have passed it.
    #[cold]
    fn wait_at_gate(&mut self, wait: impl FnOnce(&Context)) -> Result<()> {
        self.core.commits.in_flight.leave(self.number);
        self.leave_definitions();
        self.leave_turn();
        let waiting = WaitGuard::enter(&self.core.clock, Awaited::Gate);
        wait(self);
        drop(waiting);
        self.check_open()
    }

    /// The DDL is visible, or has no place after all.
    #[cold]
    pub(super) fn leave_definitions(&mut self) {
        if std::mem::take(&mut self.defines) {
            self.core.commits.definitions.leave();
        }
    }

    /// Gives back what the commit had of a sweep, and of the gate before DDL, on its way.
    #[cold]
    pub(super) fn end_flight(&mut self) {
        self.leave_definitions();
        self.core.storage.keep_promise(std::mem::take(&mut self.promised));
        self.end_side();
    }

    #[cold]
    fn enter_flight_slowly(&mut self, mut gate: Gate) -> Result<bool, NoPlace> {
        self.core.locks.return_lease(&mut self.owner);
        // Of each wait at a closed gate: that for a sweep in between has no time-out.
        let mut since = None;
        loop {
            match gate {
                Gate::Open => return Ok(false),
                Gate::Snapshots => {
                    let needed = self.copies_owed();
                    if self.core.storage.promise_copies(needed) {
                        self.promised = needed;
                        return Ok(needed > 0);
                    }
                    self.check_may_wait_for_sweep()?;
                    self.wait_at_gate(|context| {
                        context.core.storage.wait_for_copies(&context.core.clock, GATE_LOOK_EVERY);
                    })?;
                    since = None;
                }
                Gate::Sides => {
                    let settled = self.settle_side();
                    if settled == Settled::OneSide {
                        return Ok(true);
                    }
                    if settled == Settled::Straddling && !self.waits_for_sweep && self.ddl.is_none() {
                        self.core.commits.in_flight.leave(self.number);
                        self.core.commits.accounts.straddling(self.number, self.choices.procedure);
                        return Err(NoPlace::Straddles);
                    }
                    self.check_may_wait_for_sweep()?;
                    self.wait_at_gate(|context| {
                        context.core.storage.painting().wait(&context.core.clock, SWEEP_POLL)
                    })?;
                    since = None;
                }
                Gate::Closed => {
                    self.wait_for_others(&mut since, |context| {
                        context.core.commits.in_flight.wait_at_gate(&context.core.clock, GATE_LOOK_EVERY);
                    })?;
                }
            }
            if self.ddl.is_some() {
                self.enter_definitions()?;
            }
            gate = self.core.commits.in_flight.enter(self.number, self.core.commits.log.place());
        }
    }

    /// Refuses a commit that a sweep would wait for, if it were to wait for the sweep.
    fn check_may_wait_for_sweep(&mut self) -> Result<()> {
        check_may_wait(self.core.storage.catalog.opening()).inspect_err(|_| {
            self.core.commits.in_flight.leave(self.number);
            self.end_flight();
        })
    }

    /// How many copies the commit may have to make before it changes its rows.
    fn copies_owed(&self) -> usize {
        let locations = self.writes.writes().iter().flat_map(|write| [write.record, write.lands_in()]);
        self.core.storage.copies_owed(locations)
    }
}
