//! Requests for spans at executors, and waits for them.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::super::manager::{LockManager, Woke, WokenOwners};
use super::super::mode::{Acquired, RecordMode};
use super::super::name::LockTarget;
use super::super::slot::{Owner, Slot, WaitRecord, WaitsFor};
use super::super::wait::{LockError, LockPolicy, Wait};
use super::locks::{Granted, LocalAnswer, LocalRequest};
use super::routing::ExecutorSet;
use super::{HeldLocal, LockTableGuard, SpanRef, Strengthened, TABLE_RECHECK, Wanted};
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::fault_injection;
use crate::ids::IndexId;
use crate::unlikely::unlikely;

impl LockManager {
    /// Locks a span of an index's keys at the executors that have keys of it, one after the other in their order, or
    /// strengthens the owner's lock on that span.
    pub fn local(
        &self,
        owner: &mut Owner,
        index: IndexId,
        span: SpanRef<'_>,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        if owner.body.lease.is_on()
            && let Some(acquired) = self.local_under_lease(owner, Wanted { index, span, mode })
        {
            return Ok(acquired);
        }
        self.local_by_lock(owner, index, span, mode, wait)
    }

    #[inline(never)]
    fn local_by_lock(
        &self,
        owner: &mut Owner,
        index: IndexId,
        span: SpanRef<'_>,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        let (before, mut strengthened) = (owner.body.locals.len(), Strengthened::default());
        let long_keys = owner.body.long_keys;
        let wanted = Wanted { index, span, mode };
        let outcome = self.gather(owner, wanted, wait, &mut strengthened);
        if outcome.is_err() {
            self.give_up(owner, before, &strengthened, wanted);
            owner.body.long_keys = long_keys;
        }
        outcome
    }

    /// As [`LockManager::local_by_lock`], but a request that fails keeps what it was granted. `strengthened` notes
    /// which locks that the owner had before it has made stronger.
    #[inline(always)]
    fn gather(
        &self,
        owner: &mut Owner,
        Wanted { index, span, mode }: Wanted<'_>,
        wait: &Wait<'_>,
        strengthened: &mut Strengthened,
    ) -> Result<Acquired, LockError> {
        let (mut executors, hash) = (ExecutorSet::new(), self.local.seed.hash_of(index, span));
        'route: loop {
            let version = self.local.route(&mut owner.body.rules, index, span, &mut executors);
            let part = executors.len() > 1;
            let (id, transaction) = (owner.body.id, owner.body.transaction);
            let request = LocalRequest { owner: id, transaction, index, span, mode, version, part, hash };
            let mut acquired = Acquired::Held;
            for &executor in &executors {
                let answer = self.ask_at(owner, executor, request, wait, strengthened)?;
                acquired = match answer {
                    LocalAnswer::New(lock) => {
                        owner.body.locals.push(HeldLocal { executor, lock });
                        owner.body.long_keys += span.counts_more();
                        let held = owner.body.locals.len() + owner.body.long_keys;
                        if unlikely(held > self.options.locks_max) {
                            return Err(self.too_many());
                        }
                        Acquired::New
                    }
                    LocalAnswer::Upgraded(had) => {
                        strengthened.note(executor, request, had);
                        Acquired::Upgraded
                    }
                    LocalAnswer::Held => continue,
                    LocalAnswer::Rerouted | LocalAnswer::Wait => continue 'route,
                    LocalAnswer::Split => return Err(LockError::Split),
                };
            }
            if part && !self.make_whole(owner, &executors, request, wait)? {
                continue 'route;
            }
            if acquired != Acquired::Held {
                self.slot(owner).counters.local.add(1);
            }
            return Ok(acquired);
        }
    }

    /// Asks one executor for a span. A request that has to wait gives the answer after its wait.
    #[inline(always)]
    fn ask_at(
        &self,
        owner: &mut Owner,
        executor: u16,
        request: LocalRequest<'_>,
        wait: &Wait<'_>,
        strengthened: &mut Strengthened,
    ) -> Result<LocalAnswer, LockError> {
        let shares = owner.body.shares;
        let answer = {
            let mut locks = self.latch_to_ask(owner, executor, request.mode, wait)?;
            let split = shares && locks.held.is_kins(request);
            let answer = if split { LocalAnswer::Split } else { locks.ask(request) };
            if unlikely(answer == LocalAnswer::Wait) {
                owner.body.was_refused_on_same_span.store(locks.has_lock_on(&request), Ordering::Relaxed);
            }
            answer
        };
        match answer {
            LocalAnswer::Wait => self.wait_local(owner, executor, request, wait, strengthened),
            answer => Ok(answer),
        }
    }

    /// Whether there was a lock on exactly the span of the owner's last refused request. (Not if a leased lock table
    /// refused it.)
    pub(crate) fn was_refused_on_same_span(&self, owner: &Owner) -> bool {
        owner.body.was_refused_on_same_span.load(Ordering::Relaxed)
    }

    /// The latch of an executor, to ask for a span. A table that stays out is waited for under the rules of a lock
    /// wait.
    #[inline]
    fn latch_to_ask(
        &self,
        owner: &Owner,
        executor: u16,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<LockTableGuard<'_>, LockError> {
        match self.local.lock_to_ask_for(executor, mode, TABLE_RECHECK) {
            Some(latch) => Ok(latch),
            None => self.wait_for_table(owner, executor, mode, wait),
        }
    }

    #[cold]
    fn wait_for_table(
        &self,
        owner: &Owner,
        executor: u16,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<LockTableGuard<'_>, LockError> {
        let slot = self.slot(owner);
        // Also noted if the owner does not wait: without the lease it may get what it asks for.
        let meets = self.meets_own_lease(owner.id());
        if wait.policy == LockPolicy::Refuse {
            slot.counters.refused.add(1);
            owner.body.was_refused_on_same_span.store(false, Ordering::Relaxed);
            return Err(LockError::WouldWait);
        }
        if meets {
            slot.counters.deadlocks.add(1);
            return Err(LockError::Deadlock);
        }
        let since = self.now();
        wait.since(since);
        let outcome = loop {
            if let Err(error) = self.wait_until_in(slot, executor, mode, wait) {
                break Err(error);
            }
            // At its end the wait includes one for the thread's turn, without a latch: the table may be out again.
            if let Some(latch) = self.local.lock_to_ask_for(executor, mode, TABLE_RECHECK) {
                break Ok(latch);
            }
        };
        self.account_wait(slot, since, outcome.as_ref().err());
        outcome
    }

    /// Waits until an executor's lock table is in. Checks first whether the wait has to end.
    fn wait_until_in(
        &self,
        slot: &Slot,
        executor: u16,
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<(), LockError> {
        let _waiting = WaitGuard::enter(&self.options.clock, Awaited::Lock);
        loop {
            if slot.gives_up() {
                return Err(LockError::Cancelled);
            }
            if let Some(error) = self.why_not_wait(wait) {
                return Err(error);
            }
            if self.local.lock_to_ask_for(executor, mode, TABLE_RECHECK).is_some() {
                return Ok(());
            }
        }
    }

    /// The latch of an executor that has granted a request. A table that stays out is waited for under the rules of a
    /// lock wait.
    fn latch_when_in(
        &self,
        owner: &Owner,
        executor: u16,
        wait: &Wait<'_>,
    ) -> Result<LockTableGuard<'_>, LockError> {
        loop {
            if let Some(latch) = self.local.lock_for(executor, TABLE_RECHECK) {
                return Ok(latch);
            }
            if self.meets_own_lease(owner.id()) {
                return Err(LockError::Deadlock);
            }
            // At its end this includes a wait for the thread's turn, without a latch: the table may be out again.
            self.wait_until_in(self.slot(owner), executor, RecordMode::Shared, wait)?;
        }
    }

    /// Waits until each executor's lock table has been in once, without readers.
    pub(crate) fn pass_executors(&self, owner: &Owner, wait: &Wait<'_>) -> Result<(), LockError> {
        let executors = 0..self.local.executors.len() as u16;
        executors.into_iter().try_for_each(|executor| {
            self.latch_to_ask(owner, executor, RecordMode::Exclusive, wait).map(drop)
        })
    }

    /// Waits for a span at one executor, and gives the answer after the wait: never [`LocalAnswer::Wait`].
    #[cold]
    fn wait_local(
        &self,
        owner: &mut Owner,
        executor: u16,
        request: LocalRequest<'_>,
        wait: &Wait<'_>,
        strengthened: &mut Strengthened,
    ) -> Result<LocalAnswer, LockError> {
        let slot = self.slot(owner);
        if wait.policy == LockPolicy::Refuse {
            slot.counters.refused.add(1);
            return Err(LockError::WouldWait);
        }
        // A table may be waited for only after this (L12).
        self.return_lease(owner);
        // A wait for the table is accounted separately.
        let since;
        {
            let mut locks = self.latch_to_ask(owner, executor, request.mode, wait)?;
            since = self.now();
            self.drop_left_waits(&mut locks);
            let split = owner.body.shares && locks.held.is_kins(request);
            let answer = if split { LocalAnswer::Split } else { locks.ask(request) };
            if answer != LocalAnswer::Wait {
                return Ok(answer);
            }
            let target = LockTarget::Record { index: request.index, key: request.span.lower().to_vec() };
            if fault_injection::is_on("wait-begins-anew") {
                wait.since.set(None);
            }
            wait.since(since);
            self.begin_wait(owner, WaitRecord { waits_for: WaitsFor::Local(executor), target, since });
            locks.enqueue(request, self.slot(owner).wait_number());
        }
        let outcome = match self.sleep(request.owner, wait) {
            Woke::Granted | Woke::Retry => Ok(()),
            Woke::Not(error) if self.withdraw_local(request.owner, executor) => Err(error),
            // The request was granted between the decision to leave and the latch. A granted lock is held, so take
            // it.
            Woke::Not(_) => Ok(()),
        };
        // The request was granted, or turned away because its keys have moved, or granted and then turned away.
        let is_told = outcome.is_ok();
        let latch = outcome.and_then(|()| self.latch_when_in(owner, executor, wait));
        self.account_wait(slot, since, latch.as_ref().err());
        let (Granted { new, had, in_force }, split) = match latch {
            // Two parts of one transaction that both waited for the span may have been granted it together.
            Ok(mut locks) => {
                let granted = locks.take_granted(request, slot.wait_number());
                (granted, owner.body.shares && locks.held.is_kins(request))
            }
            Err(error) => {
                if is_told {
                    owner.body.locals.push(HeldLocal::of_wait(executor, slot.wait_number()));
                }
                return Err(error);
            }
        };
        let counts = in_force && !split;
        Ok(match (new, had) {
            (Some(lock), _) if counts => LocalAnswer::New(lock),
            (_, Some(had)) if counts => LocalAnswer::Upgraded(had),
            _ => {
                owner.body.locals.extend(new.map(|lock| HeldLocal { executor, lock }));
                if let Some(had) = had {
                    strengthened.note(executor, request, had);
                }
                if split { LocalAnswer::Split } else { LocalAnswer::Rerouted }
            }
        })
    }

    /// Waits for a span at the first executor. The request was told to wait a moment ago.
    #[cfg(test)]
    pub(crate) fn wait_for_span(&self, owner: &mut Owner, wanted: Wanted<'_>, wait: &Wait<'_>) {
        let Wanted { index, span, mode } = wanted;
        let (id, transaction) = (owner.body.id, owner.body.transaction);
        let (hash, version) =
            (self.local.seed.hash_of(index, span), self.local.version.load(Ordering::Acquire));
        let request = LocalRequest { owner: id, transaction, index, span, mode, version, part: false, hash };
        let answer = self.wait_local(owner, 0, request, wait, &mut Strengthened::default());
        let Ok(LocalAnswer::New(lock)) = answer else { panic!("{answer:?}") };
        owner.body.locals.push(HeldLocal { executor: 0, lock });
    }

    /// Undoes a request that failed, maybe in several parts: releases the owner's locks beyond the first `before`,
    /// and puts the locks that it had before back into the modes that they had. What lies at an executor whose table
    /// stays out is the owner's until its transaction ends (L15).
    #[cold]
    fn give_up(&self, owner: &mut Owner, before: usize, strengthened: &Strengthened, wanted: Wanted<'_>) {
        let Wanted { index, span, mode } = wanted;
        let (owner_id, transaction) = (owner.body.id, owner.body.transaction);
        let hash = self.local.seed.hash_of(index, span);
        // The version does not matter here.
        let request =
            LocalRequest { owner: owner_id, transaction, index, span, mode, version: 0, part: true, hash };
        let mut parts: SmallVec<[HeldLocal; 8]> = owner.body.locals.drain(before..).collect();
        self.release_locals_within(owner_id, &mut parts, TABLE_RECHECK);
        owner.body.locals.append(&mut parts);
        for &(executor, had) in &strengthened.0 {
            let Some(mut locks) = self.local.lock_for(executor, TABLE_RECHECK) else { continue };
            let mut woken = WokenOwners::new();
            if locks.held.fall_back(request, had) {
                self.grant_local(&mut locks, &mut woken);
            }
            drop(locks);
            self.wake(&woken);
        }
    }

    /// The owner has been granted all parts of a span, the last one by the rules of the request. False: these are no
    /// longer in force.
    ///
    /// The first executor decides. If the rules are still in force under its latch, the owner has all of the span.
    /// From this mark on a change of rules takes the lock along, to all executors that then have keys of the span. So
    /// the tables need not all be in at one moment. The marks at the other executors only spare the owner requests,
    /// and a table that is out gets none. If the first table stays out, it is waited for as a lock is, before there
    /// is any mark that a failure would have to take back.
    fn make_whole(
        &self,
        owner: &Owner,
        executors: &[u16],
        request: LocalRequest<'_>,
        wait: &Wait<'_>,
    ) -> Result<bool, LockError> {
        let (&first, others) = executors.split_first().expect("a span has an executor");
        if !self.latch_to_ask(owner, first, request.mode, wait)?.make_whole(request) {
            return Ok(false);
        }
        for &other in others {
            if let Some(mut table) = self.local.executor(other).lock_if_in() {
                table.make_whole(request);
            }
        }
        Ok(true)
    }
}
