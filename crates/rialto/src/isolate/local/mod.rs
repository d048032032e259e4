//! Local lock tables: the locks of the data-oriented engine (the DORA paper, section 4.1.1).
//!
//! Each executor has a lock table for its datasets: shared and exclusive locks on [`Span`]s of an index's keys,
//! present or not. An action's identifier is such a span, a prefix of the key; so is a range that a scan reads, and
//! so is the key of one row. Two spans conflict by the keys that they have in common. So there are neither intention
//! locks on the way to a record nor phantoms in a range: an entry that comes into the range is locked by its key
//! first (I7).
//!
//! The invariants L1 to L5 hold for these locks as for heads, with the executor's latch in the place of the
//! partition's. It comes after the latches of heads and intervals (L4). Waits are noted in the slots of owners, so
//! there is one waits-for graph.
//!
//! A transaction that runs in place has lock tables for itself for a while: [`lease`], L12. [`own_lease`] says what
//! that means for other transactions of its thread.
//!
//! Invariant **L14**: while a transaction runs in parts, a span that one of its owners holds exclusively is not
//! granted to another of them. Owners of one transaction do not block each other, but a part does not see what
//! another part does under its lock: two parts could give the same key of a unique index to two rows. The second
//! owner gets [`LockError::Split`](super::wait::LockError::Split), and the transaction runs again as a whole.
//!
//! Invariant **L15**: a lock table can be out for as long as a body runs. An owner's waits are numbered. An owner whose
//! wait ends meanwhile leaves its request in the table's list, and marks in its own slot that it has left the wait of
//! this number. This wait can then not be granted any more. The request is dropped before the table grants anything,
//! before another request is listed behind it, and before the deadlock detector reads the table.
//!
//! What such an owner holds at an executor whose table is out, by an earlier request or as another part of a span,
//! stays its own for now. All its other locks are released in their turn: the parts of the span with the request that
//! has failed, the rest with the transaction. No transaction waits at its end until a table is back. What an owner
//! cannot release is left to another thread (`txn/releases.rs`): at once if the owner was refused a lock or ends on a
//! thread that owns executors, else after a few tries of [`RELEASE_AGAIN`] each. When parts meet, their locks pass to
//! the transaction's own owner. Locks of a part that cannot be handed over to it stay the part's until the transaction
//! ends.
//!
//! An owner whose request is granted just before the table goes out waits until the table is in, to take note of its
//! lock; the limits of its lock wait hold. If that wait ends first, the owner notes the number of the wait, and the
//! lock's own number is looked up in the table when the lock is released.

mod ask;
mod changes;
mod executor;
mod held;
mod lease;
mod locks;
mod ordered;
mod own_lease;
mod point_order;
mod readers;
mod routing;
mod span;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use self::changes::RoutingChanges;
use self::executor::Executor;
pub(super) use self::executor::LockTableGuard;
use self::held::suffices;
pub(super) use self::lease::ExecutorLease;
pub use self::lease::Wanted;
pub(super) use self::locks::LocalLocks;
use self::locks::LocalRequest;
pub use self::locks::Sample;
pub use self::own_lease::OwnLease;
pub use self::routing::RoutingRule;
use self::routing::{ExecutorSet, RoutingRules};
pub use self::span::{Span, SpanRef};
use super::central::head::Blockers;
use super::manager::{LockManager, WokenOwners};
use super::mode::{LockMode, RecordMode};
use super::slot::{HELD_KEPT, HeldTable, Owner, TableForm};
use super::sync::{self, AtomicU32, AtomicU64, Mutex};
use crate::ids::IndexId;
use crate::io::Clock;
use crate::{fault_injection, seed};

/// How long an owner waits for a table that is out before it checks whether to wait any longer.
const TABLE_RECHECK: Duration = Duration::from_millis(1);

/// How long an owner that only releases its locks waits for a table that is out before it tries the other tables that
/// it found out. A change of rules waits as long.
const RELEASE_AGAIN: Duration = Duration::from_millis(25);

/// The most locks that are released at an executor under one hold of its latch.
const RELEASED_AT_ONCE: usize = 256;

/// A lock in a local lock table that an owner holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldLocal {
    executor: u16,
    /// Its number in the table, which is stable while the lock is held. With [`HeldLocal::NOT_NOTED`]: the number of
    /// a wait.
    lock: u32,
}

impl HeldLocal {
    /// Set if the lock was granted in a wait and its owner could not take note of its number: only the table knows
    /// it.
    const NOT_NOTED: u32 = 1 << 31;

    /// The lock that was granted in the wait of this number, at an executor whose table is out.
    fn of_wait(executor: u16, wait: u64) -> HeldLocal {
        HeldLocal { executor, lock: wait as u32 | HeldLocal::NOT_NOTED }
    }
}

/// The executors at which a request of several parts has strengthened locks of its owner, and the modes that these
/// locks had before.
#[derive(Debug, Default)]
struct Strengthened(SmallVec<[(u16, RecordMode); 8]>);

impl Strengthened {
    /// Notes that the owner had the span in this mode at this executor before the request was granted there.
    fn note(&mut self, executor: u16, request: LocalRequest<'_>, had: RecordMode) {
        let is_new = || self.0.iter().all(|&(other, _)| other != executor);
        if request.part && !suffices(had, request.mode) && is_new() {
            self.0.push((executor, had));
        }
    }
}

/// Retires a lock whose keys have moved; copies of it have gone with them. A holder that acquired the lock here keeps
/// it, to release it later. If a holder's lock was made at an earlier move, it goes, and its copies become copies of
/// the lock that it was made for. So a holder has a lock where the keys are, and one where it acquired it, however
/// often the keys move.
fn retire(tables: &mut [LockTableGuard<'_>], gone: HeldLocal) {
    let at = |held: HeldLocal| usize::from(held.executor);
    tables[at(gone)].held.retire(gone.lock);
    for (owner, from) in tables[at(gone)].held.came_from(gone.lock) {
        // If it is no copy any more, its owner is about to release this lock too, or to hand it over.
        if tables[at(from)].held.forget_copy(from.lock, owner, gone) {
            let mut copies: SmallVec<[HeldLocal; 8]> = SmallVec::new();
            tables[at(gone)].held.release(owner, gone.lock, |copy| copies.push(copy));
            for copy in copies {
                tables[at(copy)].held.moved(copy.lock, owner).from = Some(from);
                tables[at(from)].held.moved(from.lock, owner).copies.push(copy);
            }
        }
    }
}

/// The executors' lock tables, and the routing rules that lead to them. Beyond those that there is room for there is
/// one more, for what is only read: the read-only executor.
///
/// Invariant **L11**: an owner that has been granted a span holds it at each executor that has keys of it under the
/// rules in force. A request is refused under an executor's latch unless it was routed by these; a change of rules
/// has all latches, and takes the locks along with the keys.
#[derive(Debug)]
pub(super) struct LocalTables {
    executors: Box<[CachePadded<Executor>]>,
    /// One change of the rules at a time.
    change: Mutex<()>,
    /// How many threads change the rules, or wait to do so: no lease begins meanwhile.
    changing: AtomicU32,
    /// The version of the rules.
    version: AtomicU64,
    rules: Mutex<Arc<RoutingRules>>,
    /// The number of executors in use.
    in_use: AtomicU32,
    changes: Mutex<RoutingChanges>,
    /// Indexes that were dropped, whose rules may still be there.
    pub(super) dropped: Mutex<Vec<IndexId>>,
    /// The same for all executors: a lock keeps its hash when its key goes from one to another.
    seed: Seed,
}

/// The seed of the hashes of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seed(u64);

impl Seed {
    /// The hash by which a lock on one key is found. No hash leads to a lock on a wider span.
    #[inline]
    pub fn hash_of(self, index: IndexId, span: SpanRef<'_>) -> u64 {
        if span.is_point() {
            xxh3_64_with_seed(span.lower(), self.0.wrapping_add(u64::from(index.0)))
        } else {
            0
        }
    }
}

impl LocalTables {
    /// With room for `executors_max` executors, of which `executors` are in use at first.
    pub fn new(executors: usize, executors_max: usize, clock: &Clock) -> LocalTables {
        let others = (0..executors_max).map(|_| CachePadded::new(Executor::new(clock)));
        let readers = CachePadded::new(Executor::read_only(clock));
        LocalTables {
            executors: others.chain([readers]).collect(),
            change: Mutex::new(()),
            changing: AtomicU32::new(0),
            version: AtomicU64::new(0),
            rules: Mutex::new(Arc::new(RoutingRules::new(executors as u16))),
            in_use: AtomicU32::new(executors as u32),
            changes: Mutex::default(),
            dropped: Mutex::default(),
            seed: Seed(seed::draw()),
        }
    }

    fn executor(&self, executor: u16) -> &Executor {
        &self.executors[usize::from(executor)]
    }

    /// The latch of an executor, unless its table is out.
    pub(super) fn lock_if_in(&self, executor: u16) -> Option<LockTableGuard<'_>> {
        self.executor(executor).lock_if_in()
    }

    /// The executor at which readers do not exclude each other.
    #[inline]
    fn read_only(&self) -> u16 {
        self.executors.len() as u16 - 1
    }

    /// The latch, for anything but a request for an exclusive lock.
    pub fn lock(&self, executor: u16) -> LockTableGuard<'_> {
        self.executor(executor).lock()
    }

    /// The latch, for a request of this mode; none if the table cannot be had within about `limit`.
    #[inline]
    fn lock_to_ask_for(
        &self,
        executor: u16,
        mode: RecordMode,
        limit: Duration,
    ) -> Option<LockTableGuard<'_>> {
        match mode {
            RecordMode::Shared => self.executor(executor).lock_for(limit),
            RecordMode::Exclusive => self.executor(executor).lock_alone_for(limit),
        }
    }

    /// As [`LocalTables::lock`]; none if the table cannot be had within about `limit`.
    pub fn lock_for(&self, executor: u16, limit: Duration) -> Option<LockTableGuard<'_>> {
        self.executor(executor).lock_for(limit)
    }

    /// The latches of all executors, each with its table in and without readers. Otherwise no latch, and an executor
    /// that prevents it.
    fn lock_all_if_in(&self) -> Result<Vec<LockTableGuard<'_>>, u16> {
        let lock = |executor| self.executor(executor).lock_if_in().ok_or(executor);
        (0..self.executors.len() as u16).map(lock).collect()
    }

    pub fn locks_now(&self) -> usize {
        self.executors.iter().map(|executor| executor.lock().held.len()).sum()
    }

    pub fn has_rule(&self, index: IndexId) -> bool {
        self.rules.lock().rule_of(index).is_some()
    }

    /// Puts the executors of a span into `out`, and gives the version of the rules that were used.
    #[inline]
    fn route(&self, known: &mut Rules, index: IndexId, span: SpanRef<'_>, out: &mut ExecutorSet) -> u64 {
        let rules = self.rules_in_force(known);
        rules.executors_of(index, span, out);
        rules.version
    }

    /// The rules in force; `known` is the owner's copy, which is refreshed if it is old.
    #[inline]
    fn rules_in_force<'a>(&self, known: &'a mut Rules) -> &'a RoutingRules {
        let current = self.version.load(Ordering::Acquire);
        if known.0.as_ref().is_none_or(|rules| rules.version != current) {
            known.0 = Some(self.rules.lock().clone());
        }
        known.0.as_ref().expect("it was just made known")
    }
}

/// An owner's copy of the routing rules, so that routing touches no memory that other threads write.
#[derive(Debug, Default)]
pub(super) struct Rules(Option<Arc<RoutingRules>>);

impl LockManager {
    /// Grants the blocked requests of an executor that have become compatible.
    fn grant_local(&self, locks: &mut LocalLocks, woken: &mut WokenOwners) {
        locks.drop_left(|owner, wait| self.slots[usize::from(owner)].has_left(wait));
        locks.grant_waiting(|owner, wait| self.tell_local(owner, wait, woken));
    }

    /// Tells an owner that its wait of this number has ended. False: the owner has left it.
    fn tell_local(&self, owner: u16, wait: u64, woken: &mut WokenOwners) -> bool {
        let waits = self.slots[usize::from(owner)].set_granted_in(wait);
        if waits {
            woken.push(owner);
        }
        waits
    }

    /// Drops the requests of owners that left their waits while the table was out, and grants the requests that stood
    /// behind these.
    pub(super) fn drop_left_waits(&self, locks: &mut LocalLocks) {
        if locks.has_blocked() {
            let mut woken = WokenOwners::new();
            self.grant_local(locks, &mut woken);
            self.wake(&woken);
        }
    }

    /// Takes a blocked request off its list and grants the requests behind it. False: it has been granted. If the
    /// table stays out, the owner only leaves its wait (L15).
    fn withdraw_local(&self, owner: u16, executor: u16) -> bool {
        let mut woken = WokenOwners::new();
        {
            let Some(mut locks) = self.local.lock_for(executor, TABLE_RECHECK) else {
                return self.slots[usize::from(owner)].leave_wait();
            };
            if !locks.withdraw(owner) {
                return false;
            }
            self.grant_local(&mut locks, &mut woken);
        }
        self.wake(&woken);
        true
    }

    /// Releases all local locks, executor by executor, and grants the requests that waited for them. A table that
    /// stays out is waited for only after the locks at all other executors are released.
    #[inline]
    pub(super) fn release_locals(&self, id: u16, locals: &mut SmallVec<[HeldLocal; 8]>) {
        let mut limit = TABLE_RECHECK;
        while !self.release_locals_within(id, locals, limit) {
            limit = RELEASE_AGAIN;
        }
    }

    /// As [`LockManager::release_locals`], but leaves locks at executors whose tables stay out for about so long
    /// each. False: such locks are left, in `locals`.
    fn release_locals_within(&self, id: u16, locals: &mut SmallVec<[HeldLocal; 8]>, limit: Duration) -> bool {
        let (mut out, mut elsewhere): (SmallVec<[HeldLocal; 8]>, SmallVec<[HeldLocal; 8]>) =
            Default::default();
        while !locals.is_empty() {
            locals.sort_unstable_by_key(|held| held.executor);
            for mut at_one in locals.chunk_by(|held, next| held.executor == next.executor) {
                while let Some(first) = at_one.first() {
                    let Some(mut locks) = self.local.lock_for(first.executor, limit) else {
                        out.extend_from_slice(at_one);
                        break;
                    };
                    let (released, rest) = at_one.split_at(at_one.len().min(RELEASED_AT_ONCE));
                    let mut woken = WokenOwners::new();
                    for &held in released {
                        if let Some(held) = locks.noted(id, held) {
                            locks.held.release(id, held.lock, |copy| elsewhere.push(copy));
                        }
                    }
                    if locks.has_blocked() {
                        self.grant_local(&mut locks, &mut woken);
                    }
                    drop(locks);
                    self.wake(&woken);
                    at_one = rest;
                }
            }
            // Copies that the owner was given where keys moved in the meantime.
            locals.clear();
            locals.append(&mut elsewhere);
        }
        if locals.capacity() > HELD_KEPT {
            *locals = SmallVec::new();
        }
        if !out.is_empty() {
            locals.append(&mut out);
        }
        locals.is_empty()
    }

    /// Releases what an owner holds after its transaction has ended, except for locks at executors whose tables stay
    /// out. False: such locks are left.
    pub fn release_at_once(&self, owner: &mut Owner) -> bool {
        self.release_but_out(owner, TABLE_RECHECK)
    }

    /// The same, on a thread that can wait longer.
    #[cold]
    pub fn release_in_time(&self, owner: &mut Owner) -> bool {
        self.release_but_out(owner, RELEASE_AGAIN)
    }

    fn release_but_out(&self, owner: &mut Owner, limit: Duration) -> bool {
        // A table may be waited for only after this (L12).
        self.end_lease(owner);
        let mut locals = std::mem::take(&mut owner.body.locals);
        owner.body.long_keys = 0;
        let has_released = self.release_locals_within(owner.body.id, &mut locals, limit);
        self.release_all(owner);
        owner.body.locals = locals;
        has_released
    }

    /// The first executor, in the order of their numbers, that has keys of a span.
    pub fn first_executor(&self, owner: &mut Owner, index: IndexId, span: SpanRef<'_>) -> u16 {
        let mut executors = ExecutorSet::new();
        self.local.route(&mut owner.body.rules, index, span, &mut executors);
        executors[0]
    }

    /// Whether this is the read-only executor.
    pub fn is_read_only_executor(&self, executor: u16) -> bool {
        executor == self.local.read_only()
    }

    /// As [`LockManager::first_executor`], for a caller that is not an owner.
    pub fn executor_now(&self, index: IndexId, span: SpanRef<'_>) -> u16 {
        let mut executors = ExecutorSet::new();
        self.local.rules.lock().executors_of(index, span, &mut executors);
        executors[0]
    }

    /// Makes `part` the owner of a part of a phase of `leader`'s transaction. A request that waits for one of the two
    /// waits for both. The part uses tables by the leader's locks on them.
    pub fn follow(&self, part: &mut Owner, leader: &mut Owner) {
        part.body.transaction = leader.body.id;
        (part.body.shares, leader.body.shares) = (true, true);
        let leaders = |held: &HeldTable| HeldTable { form: TableForm::Leaders, wanted: false, ..*held };
        part.body.tables.extend(leader.body.tables.iter().map(leaders));
        self.slot(part).follow(Some(leader.body.id));
        self.followers.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the part's bond to the transaction of another owner.
    #[inline]
    pub fn part_from_leader(&self, owner: &mut Owner) {
        if owner.body.transaction != owner.body.id {
            owner.body.transaction = owner.body.id;
            owner.body.shares = false;
            self.slot(owner).follow(None);
            self.slot(owner).give_up(false);
            self.followers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that the leader's transaction no longer runs in parts.
    pub fn end_parts(&self, leader: &mut Owner) {
        leader.body.shares = false;
        self.slot(leader).give_up(false);
    }

    /// Ends a part: the locks that it holds at executors become the leader's, except where a table stays out. False:
    /// such locks are left, and the part keeps them for the leader's transaction.
    pub fn hand_over(&self, part: &mut Owner, leader: &mut Owner) -> bool {
        self.return_lease(part);
        self.return_lease(leader);
        let (mut kept, mut out) = (SmallVec::new(), ExecutorSet::new());
        while let Some(held) = part.body.locals.pop() {
            let executor = held.executor;
            let latch =
                if out.contains(&executor) { None } else { self.local.lock_for(executor, TABLE_RECHECK) };
            let Some(mut latch) = latch else {
                out.push(executor);
                kept.push(held);
                continue;
            };
            let (from, to) = (part.body.id, leader.body.id);
            let Some(held) = latch.noted(from, held) else { continue };
            let locals = &mut part.body.locals;
            let was_holder = latch.held.hand_over(held.lock, from, to, |copy| locals.push(copy));
            if !was_holder {
                leader.body.locals.push(held);
            }
        }
        part.body.locals = kept;
        // A count is reset when its owner's locks are released: a leader without any would keep it for ever.
        if !leader.body.locals.is_empty() {
            leader.body.long_keys += std::mem::take(&mut part.body.long_keys);
        }
        let has_all = part.body.locals.is_empty();
        if has_all {
            self.part_from_leader(part);
        }
        has_all
    }

    /// How many executors are in use: those with the lowest numbers.
    pub fn executors_in_use(&self) -> usize {
        self.local.in_use.load(Ordering::Relaxed) as usize
    }

    fn in_use(&self) -> impl Iterator<Item = &CachePadded<Executor>> {
        self.local.executors.iter().take(self.executors_in_use())
    }

    /// The requests at each executor in use since the last sample.
    pub fn sample_executors(&self) -> Vec<Sample> {
        self.in_use().map(|executor| executor.sample()).collect()
    }

    /// The requests at the read-only executor since the last sample.
    pub fn sample_read_only(&self) -> Sample {
        self.local.executor(self.local.read_only()).sample()
    }

    /// How often a thread has found the lock table of an executor out, other than the read-only one, and has waited
    /// for it.
    pub fn found_out(&self) -> u64 {
        let readers = usize::from(self.local.read_only());
        let others = self.local.executors.iter().enumerate().filter(|&(nth, _)| nth != readers);
        others.map(|(_, executor)| executor.found_out()).sum()
    }

    /// How many requests each executor in use has had. This does not wait for a body that has a lock table out.
    pub fn requests_by_executor(&self) -> Vec<u64> {
        self.in_use().map(|executor| executor.requests()).collect()
    }

    /// Over how many executors an index's keys are divided; 1 in another form.
    pub fn executors_of(&self, index: IndexId) -> usize {
        if !self.keeps_keys_at_executors() {
            return 1;
        }
        let mut executors = ExecutorSet::new();
        self.local.rules.lock().executors_of(index, SpanRef::all(), &mut executors);
        executors.len()
    }

    /// Gives an index another routing rule (`None`: one dataset). The locks on keys that move go along with them at
    /// once: nothing drains, and an open transaction does not delay the change. Blocked requests for the index's keys
    /// are routed again.
    pub fn route(&self, index: IndexId, rule: Option<RoutingRule>) {
        self.change_rules(Some(index), |rules| rules.with(index, rule));
    }

    /// Divides the datasets of all indexes among the first `executors` executors. Those beyond have no keys from then
    /// on, and keep only what is left behind of locks that were held ([`LockManager::route`]).
    ///
    /// # Panics
    /// If there is no room for so many, or the number is zero.
    pub fn set_executors(&self, executors: usize) {
        assert!((1..self.local.executors.len()).contains(&executors), "{executors} executors");
        self.change_rules(None, |rules| rules.among(executors as u16));
    }

    /// The counts of changes of the rules so far.
    pub fn routing_changes(&self) -> RoutingChanges {
        *self.local.changes.lock()
    }

    /// The latches of all executors. While this waits for a table that is out, it holds none. None if the database
    /// closes meanwhile.
    fn lock_all_tables(&self) -> Option<Vec<LockTableGuard<'_>>> {
        loop {
            match self.local.lock_all_if_in() {
                Ok(latches) => return Some(latches),
                Err(_) if self.is_shut_down() => return None,
                Err(out) => drop(self.local.executor(out).lock_alone_for(RELEASE_AGAIN)),
            }
        }
    }

    /// Puts other rules in force, for one index or for all. If a lock table is out and the database closes, nothing
    /// changes.
    fn change_rules(&self, index: Option<IndexId>, change: impl FnOnce(&RoutingRules) -> RoutingRules) {
        let mut woken = WokenOwners::new();
        {
            // The lock on the rules is not taken yet: a thread that routes a request would then wait for all tables
            // with this one.
            let _one_at_a_time = sync::lock_across_waits(&self.options.clock, &self.local.change);
            self.local.changing.fetch_add(1, Ordering::Relaxed);
            let tables = self.lock_all_tables();
            self.local.changing.fetch_sub(1, Ordering::Relaxed);
            let Some(mut tables) = tables else { return };
            // This only measures, so it uses the machine's clock.
            let since = Instant::now();
            let changed = change(&self.local.rules.lock());
            let mut executors = ExecutorSet::new();
            // All lists first: locks that the move makes are not to be moved again.
            let locks: Vec<_> = tables.iter().map(|table| table.held.locks_of(index)).collect();
            let found: usize = locks.iter().map(Vec::len).sum();
            for (from, locks) in locks.into_iter().enumerate() {
                for (lock, index, span) in locks {
                    changed.executors_of(index, span.borrow(), &mut executors);
                    let here = HeldLocal { executor: from as u16, lock };
                    let is_other =
                        |to| to != here.executor && !fault_injection::is_on("local-locks-stay-behind");
                    for &to in executors.iter().filter(|&&to| is_other(to)) {
                        let [one, other] = tables
                            .get_disjoint_mut([from, usize::from(to)])
                            .expect("a routing rule names executors that there are");
                        one.held.copy_to(here, to, &mut other.held);
                    }
                    if !executors.contains(&here.executor) {
                        retire(&mut tables, here);
                    }
                }
            }
            for table in &mut tables {
                table.turn_away(index, |owner, wait| {
                    self.tell_local(owner, wait, &mut woken);
                });
                table.set_version(changed.version);
            }
            let version = changed.version;
            self.local.in_use.store(u32::from(changed.executors), Ordering::Relaxed);
            *self.local.rules.lock() = Arc::new(changed);
            self.local.version.store(version, Ordering::Release);
            drop(tables);
            let mut changes = self.local.changes.lock();
            changes.changes += 1;
            changes.locks += found as u64;
            changes.held_max = changes.held_max.max(since.elapsed());
        }
        self.wake(&woken);
    }

    /// The owners that keep this owner waiting at an executor, and the mode of its request.
    pub(super) fn blockers_local(locks: &mut LocalLocks, owner: u16) -> Option<(LockMode, Blockers)> {
        locks.blockers(owner).map(|(mode, blockers)| (mode.into(), blockers))
    }
}
