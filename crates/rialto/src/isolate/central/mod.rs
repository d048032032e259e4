//! The central form: every lock is a head, which has its holders and its queue. The other forms keep here what they
//! cannot keep in place: conflicts, absent keys, intervals.

pub(super) mod head;
pub(super) mod interval;
mod interval_locks;

use self::head::{Heads, LockAnswer, LockRequest, RequestKind};
use super::manager::{LockManager, Woke, WokenOwners};
use super::mode::{Acquired, LockMode, RecordMode};
use super::name::{HeadName, LockName, LockTarget};
use super::slot::{GRANTED, HeldRecord, Owner, RETRY, WaitRecord, WaitsFor};
use super::sync::{self, MutexGuard};
use super::wait::{LockError, LockPolicy, Wait};
use crate::unlikely::unlikely;

impl LockManager {
    /// Locks a record's name, or strengthens the lock that the owner has on it. `key` is the key whose hash the name
    /// holds; it is read only if the request has to wait, for the view of waits.
    #[inline]
    pub fn record(
        &self,
        owner: &mut Owner,
        name: LockName,
        key: &[u8],
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        let head_name = HeadName::record(name);
        let target = || LockTarget::Record { index: name.index, key: key.to_vec() };
        let (acquired, head) = self.acquire(owner, head_name, mode.into(), wait, target)?;
        if acquired == Acquired::New {
            if unlikely(owner.body.records.len() >= self.options.locks_max) {
                self.release(owner.body.id, head_name, head);
                return Err(self.too_many());
            }
            owner.body.records.push(HeldRecord { name: head_name, head });
        }
        if acquired != Acquired::Held {
            self.slot(owner).counters.row.add(1);
        }
        Ok(acquired)
    }

    /// Asks the head of `name` for `mode`.
    #[inline]
    pub(super) fn acquire(
        &self,
        owner: &mut Owner,
        name: HeadName,
        mode: LockMode,
        wait: &Wait<'_>,
        target: impl FnOnce() -> LockTarget,
    ) -> Result<(Acquired, u32), LockError> {
        let id = owner.body.id;
        self.acquire_by(owner, name, wait, target, |heads| {
            let at = heads.find_or_insert(name);
            (at, heads.at(at).ask(id, mode))
        })
    }

    /// The grant path: one latch, under which `ask` is called, and no wait. If the answer is to wait, the slow path
    /// asks once more.
    #[inline]
    pub(super) fn acquire_by(
        &self,
        owner: &mut Owner,
        name: HeadName,
        wait: &Wait<'_>,
        target: impl FnOnce() -> LockTarget,
        ask: impl Fn(&mut Heads) -> (u32, LockAnswer),
    ) -> Result<(Acquired, u32), LockError> {
        {
            let mut heads = self.partitions[Self::partition_of(name)].lock();
            match ask(&mut heads) {
                (at, LockAnswer::New) => return Ok((Acquired::New, at)),
                (at, LockAnswer::Held) => return Ok((Acquired::Held, at)),
                (at, LockAnswer::Upgraded) => return Ok((Acquired::Upgraded, at)),
                (_, LockAnswer::Wait(_)) => {}
            }
        }
        if wait.policy == LockPolicy::Refuse {
            self.slot(owner).counters.refused.add(1);
            return Err(LockError::WouldWait);
        }
        self.acquire_slowly(owner, name, wait, target(), ask)
    }

    #[cold]
    fn acquire_slowly(
        &self,
        owner: &mut Owner,
        name: HeadName,
        wait: &Wait<'_>,
        target: LockTarget,
        ask: impl Fn(&mut Heads) -> (u32, LockAnswer),
    ) -> Result<(Acquired, u32), LockError> {
        let (slot, id, since) = (self.slot(owner), owner.body.id, self.now());
        wait.since(since);
        let mut retries = 0;
        let outcome = loop {
            let (waits_for, target) = (WaitsFor::Head(name), target.clone());
            self.begin_wait(owner, WaitRecord { waits_for, target, since });
            let queued = {
                let mut heads = self.partitions[Self::partition_of(name)].lock();
                if retries > 0 {
                    heads.come_back(name, id);
                }
                match ask(&mut heads) {
                    (at, LockAnswer::New) => Ok((Acquired::New, at)),
                    (at, LockAnswer::Held) => Ok((Acquired::Held, at)),
                    (at, LockAnswer::Upgraded) => Ok((Acquired::Upgraded, at)),
                    (at, LockAnswer::Wait(request)) => {
                        heads.at(at).enqueue(LockRequest { retries, ..request });
                        Err((at, request.kind))
                    }
                }
            };
            let (at, kind) = match queued {
                Ok(granted) if retries == 0 => {
                    slot.end_wait();
                    return Ok(granted);
                }
                Ok(granted) => break Ok(granted),
                Err(queued) => queued,
            };
            let granted = match kind {
                RequestKind::New => Acquired::New,
                RequestKind::Upgrade => Acquired::Upgraded,
            };
            let woke = match self.sleep(id, wait) {
                Woke::Not(error) => self.withdraw(id, name, at, error),
                woke => woke,
            };
            match woke {
                Woke::Granted => break Ok((granted, at)),
                Woke::Not(error) => break Err(error),
                Woke::Retry => retries += 1,
            }
        };
        self.account_wait(slot, since, outcome.as_ref().err());
        outcome
    }

    /// Withdraws a waiting request and grants the requests that it stood before. If the request has been answered
    /// meanwhile, the answer counts: a granted lock is held, so its owner takes it. The head stays, because the lock
    /// that the request waited for is still held or is asked for again (L1).
    fn withdraw(&self, owner: u16, name: HeadName, at: u32, error: LockError) -> Woke {
        let mut woken = WokenOwners::new();
        {
            let mut heads = self.partitions[Self::partition_of(name)].lock();
            // The flags are set under this latch.
            match self.slots[usize::from(owner)].flags() {
                flags if flags & GRANTED != 0 => return Woke::Granted,
                flags if flags & RETRY != 0 => return Woke::Retry,
                _ => {}
            }
            let head = heads.at(at);
            head.withdraw(owner);
            self.grant_waiting(head, owner, &mut woken);
            debug_assert!(!head.is_idle() || head.is_retried(), "L1: a request waited without a holder");
        }
        self.wake(&woken);
        Woke::Not(error)
    }

    /// Releases one record lock before the end of the transaction: for weaker isolation levels, and for a failed
    /// operation that is to leave no trace. Does nothing if the lock is not held.
    pub fn release_early(&self, owner: &mut Owner, name: LockName) {
        let name = HeadName::record(name);
        if let Some(at) = owner.body.records.iter().rposition(|held| held.name == name) {
            let held = owner.body.records.remove(at);
            self.release(owner.body.id, held.name, held.head);
        }
    }

    #[inline]
    pub(super) fn release(&self, id: u16, name: HeadName, at: u32) {
        let mut heads = self.partitions[Self::partition_of(name)].lock();
        if !heads.release_sole(at, id) {
            self.release_among_others(heads, id, name, at);
        }
    }

    fn release_among_others(&self, mut heads: MutexGuard<'_, Heads>, id: u16, name: HeadName, at: u32) {
        let mut woken = WokenOwners::new();
        let head = heads.at(at);
        let held = head.release(id);
        debug_assert!(held, "owner {id} releases a lock that it does not hold: {name:?}");
        self.grant_waiting(head, id, &mut woken);
        heads.retire_if_idle(at);
        drop(heads);
        self.wake(&woken);
    }
}
