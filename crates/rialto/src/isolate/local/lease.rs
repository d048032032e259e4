//! [`ExecutorLease`]: the lock tables of executors that one transaction has for itself.
//!
//! A transaction that runs in place takes the lock tables that it needs *out* for as long as its body runs. It enters
//! nothing into them: it only keeps a list of what it would have locked, after a check that no lock of another owner
//! conflicts. No other transaction can ask these tables meanwhile, so the list is as good as locks. Before the owner
//! waits for anything, it *returns* the lease: the entries of the list become locks, and the tables go back.
//!
//! Invariant **L12**: an owner that is under a lease waits for no other owner, no lock table and no turn of its
//! thread; it only spins for a short time until one more table comes back. So tables that are out come back when the
//! body that runs has ended, and no lease can be on a cycle of waits. (What else a body waits for, such as the log,
//! is part of its time: [`own_lease`](super::own_lease).)
//!
//! An owner that begins a lease and finds a table out puts back the tables that it has, waits for the missing one,
//! and tries again with that one first. Otherwise, with many threads on few cores, threads would sleep one behind the
//! other, each with tables that the next ones need.
//!
//! Indexes that are only read belong to the read-only executor. Any number of leases may have its table at the same
//! time, as long as they only read there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::manager::LockManager;
use super::super::mode::{Acquired, RecordMode};
use super::super::slot::Owner;
use super::executor::{Reading, TakenTable};
use super::held::suffices;
use super::locks::{LocalLocks, LocalRequest};
use super::routing::{ExecutorSet, RoutingRules};
use super::span::{SpanAt, SpanRef};
use super::{HeldLocal, LocalTables, Seed};
use crate::catalog::NumberShare;
use crate::ids::IndexId;

/// How long a new lease waits for a table that is out: longer than a short transaction takes. After that the
/// transaction asks for locks, as it would without leases.
const TAKE_WITHIN: Duration = Duration::from_millis(1);

/// After so many waits, each of which ended with another table found out, the transaction asks for locks.
const WAITS_MAX: usize = 8;

/// The most spans in one lease. A lease that would need more is returned, because its spans are searched one by one.
const SPANS_MAX: usize = 96;

/// A request for a span.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The index.
    pub index: IndexId,
    /// The keys.
    pub span: SpanRef<'a>,
    /// The mode.
    pub mode: RecordMode,
}

impl Wanted<'_> {
    /// Whether it excludes all other transactions.
    pub fn is_exclusive(&self) -> bool {
        self.mode == RecordMode::Exclusive
    }
}

/// An entry of a lease's list: it stands for a lock.
#[derive(Debug, Clone, Copy)]
struct KeptSpan {
    index: IndexId,
    span: SpanAt,
    mode: RecordMode,
}

impl KeptSpan {
    /// Whether it stands for a lock that is enough for the request; `bytes` are the lease's.
    fn answers(&self, Wanted { index, span, mode }: Wanted<'_>, bytes: &[u8]) -> bool {
        self.index == index && suffices(self.mode, mode) && self.span.of(bytes).covers(span)
    }
}

/// The lock tables that an owner has taken out, and the list of what it would have locked in them.
#[derive(Debug, Default)]
pub(in super::super) struct ExecutorLease {
    tables: Vec<(u16, TakenTable)>,
    /// If the owner is one of the readers at the read-only executor: its number.
    reader: Option<u16>,
    kept: Vec<KeptSpan>,
    /// The bytes of the spans that are kept.
    bytes: Vec<u8>,
    /// The version of the routing rules that led to these executors. These rules stay in force as long as any table
    /// is out.
    version: u64,
    /// The lease has begun, and the present request widens it.
    widens: bool,
    /// The executor whose table the last request found out, and the mode of that request.
    found_out: Option<(u16, RecordMode)>,
}

impl ExecutorLease {
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.tables.is_empty() || self.reader.is_some()
    }

    fn covers(&self, wanted: Wanted<'_>) -> bool {
        self.kept.iter().any(|kept| kept.answers(wanted, &self.bytes))
    }

    /// Puts the tables back as they are. Sleepers are woken only after the last table is back: a woken thread might
    /// run at once on this core, in place of the thread that still has the other tables.
    #[inline(always)]
    fn put_back(&mut self, local: &LocalTables) {
        let wanted = self.reader.take().is_some_and(|reader| stop_reading(local, reader));
        self.put_tables_back(local);
        if wanted {
            local.executor(local.read_only()).wake_behind_reader();
        }
        self.kept.clear();
        self.bytes.clear();
    }

    #[inline(always)]
    fn put_tables_back(&mut self, local: &LocalTables) {
        let mut wanted = ExecutorSet::new();
        while let Some((executor, table)) = self.tables.pop() {
            if local.executor(executor).put_back(table) {
                wanted.push(executor);
            }
        }
        wanted.iter().for_each(|&executor| local.executor(executor).wake());
    }
}

/// Leaves the readers. True: a thread sleeps until there are no readers.
#[inline(never)]
fn stop_reading(local: &LocalTables, reader: u16) -> bool {
    local.executor(local.read_only()).stop_reading(reader)
}

impl Drop for ExecutorLease {
    fn drop(&mut self) {
        debug_assert!(!self.is_on() || std::thread::panicking(), "a lease ends before its owner does");
    }
}

/// Whether no lock and no waiting request of another owner conflicts with the span.
#[cold]
#[inline(never)]
fn is_free_for(
    table: &mut LocalLocks,
    seed: Seed,
    (owner, transaction): (u16, u16),
    wanted: Wanted<'_>,
) -> bool {
    let Wanted { index, span, mode } = wanted;
    let hash = seed.hash_of(index, span);
    // The request is not entered, so its version and `part` do not matter.
    table.is_free_for(LocalRequest { owner, transaction, index, span, mode, version: 0, part: false, hash })
}

impl LockManager {
    /// Begins a lease of these spans, or widens the present one. False, with no lease left, if a lock of another
    /// owner conflicts or an executor's table stays out for long; when a lease is widened, also if a table is out at
    /// all.
    #[inline]
    pub fn lease<'a>(&self, owner: &mut Owner, wanted: impl Iterator<Item = Wanted<'a>> + Clone) -> bool {
        let body = &mut owner.body;
        let (begins, lease) = (!body.lease.is_on(), &mut body.lease);
        let kept = lease.kept.len();
        // A change of the routing rules needs all tables in.
        if !begins || self.local.changing.load(Ordering::Relaxed) == 0 {
            // An owner under a lease knows the rules in force, so this does not wait.
            let rules = self.local.rules_in_force(&mut body.rules);
            (lease.version, lease.widens) = (rules.version, !begins);
            let asker = (body.id, body.transaction);
            let has_all = wanted.clone().all(|wanted| self.take_span(lease, rules, asker, wanted))
                || begins && self.begin_again(lease, rules, asker, wanted);
            if has_all {
                return true;
            }
        }
        // The spans of this request were not asked for in the order of locks, so none of them becomes a lock.
        lease.kept.truncate(kept);
        lease.found_out = None;
        self.return_lease(owner);
        false
    }

    /// Begins the lease again: waits for the table that was out, and takes it first.
    #[cold]
    #[inline(never)]
    fn begin_again<'a>(
        &self,
        lease: &mut ExecutorLease,
        rules: &RoutingRules,
        asker: (u16, u16),
        wanted: impl Iterator<Item = Wanted<'a>> + Clone,
    ) -> bool {
        for _ in 0..WAITS_MAX {
            let Some((executor, mode)) = lease.found_out.take() else { return false };
            lease.put_back(&self.local);
            if self.local.changing.load(Ordering::Relaxed) > 0 {
                return false;
            }
            if executor == self.local.read_only() && mode == RecordMode::Shared {
                if !self.local.executor(executor).wait_to_read(TAKE_WITHIN) {
                    return false;
                }
            } else {
                let Some(table) = self.local.executor(executor).take_within(TAKE_WITHIN) else {
                    return false;
                };
                lease.tables.push((executor, table));
            }
            if wanted.clone().all(|wanted| self.take_span(lease, rules, asker, wanted)) {
                return true;
            }
        }
        false
    }

    /// Adds a span to the lease if the tables of its executors can be had at once and no lock of another owner
    /// conflicts.
    #[inline(always)]
    fn take_span(
        &self,
        lease: &mut ExecutorLease,
        rules: &RoutingRules,
        asker: (u16, u16),
        wanted: Wanted<'_>,
    ) -> bool {
        if lease.kept.len() == SPANS_MAX {
            return false;
        }
        let Wanted { index, span, mode } = wanted;
        let has = match rules.only_executor_of(index, span) {
            Some(executor) => self.take_at(lease, executor, asker, wanted),
            None => {
                let mut executors = ExecutorSet::new();
                rules.executors_of(index, span, &mut executors);
                executors.iter().all(|&executor| self.take_at(lease, executor, asker, wanted))
            }
        };
        if has {
            let span = span.put(&mut lease.bytes);
            lease.kept.push(KeptSpan { index, span, mode });
        }
        has
    }

    /// Takes the span at one executor, and takes its table out if the lease does not have it yet. False: another
    /// thread has the table, a lock conflicts, or the rules by which the executor was found are no longer in force.
    #[inline(always)]
    fn take_at(
        &self,
        lease: &mut ExecutorLease,
        executor: u16,
        asker: (u16, u16),
        wanted: Wanted<'_>,
    ) -> bool {
        let Wanted { index, span, mode } = wanted;
        let there = lease.tables.iter().position(|(taken, _)| *taken == executor);
        let at = match there {
            Some(at) => at,
            None if executor == self.local.read_only()
                && (lease.reader.is_some() || !wanted.is_exclusive()) =>
            {
                return self.read_at(lease, asker, wanted);
            }
            None => {
                let there = self.local.executor(executor);
                // Returning a lease costs more time than a short lease takes, so a short spin for the table pays.
                let taken = if lease.widens { there.try_take_soon() } else { there.try_take() };
                let Some(table) = taken else {
                    lease.found_out = Some((executor, mode));
                    return false;
                };
                lease.tables.push((executor, table));
                lease.tables.len() - 1
            }
        };
        // A change of the rules takes all lock tables, so the version cannot change while this one is out.
        let is_in_force = self.local.version.load(Ordering::Acquire) == lease.version;
        let table = &mut lease.tables[at].1;
        if !is_in_force || !(table.is_idle() || is_free_for(table, self.local.seed, asker, wanted)) {
            return false;
        }
        self.local.executor(executor).count(table, index, span, mode);
        true
    }

    /// As [`LockManager::take_at`], at the read-only executor.
    #[inline(never)]
    fn read_at(&self, lease: &mut ExecutorLease, asker: (u16, u16), wanted: Wanted<'_>) -> bool {
        let executor = self.local.read_only();
        let readers = self.local.executor(executor);
        let is_free = |table: &mut LocalLocks| is_free_for(table, self.local.seed, asker, wanted);
        let reading = match wanted.mode {
            RecordMode::Shared if lease.reader.is_some() => readers.read_more(asker.0, is_free),
            RecordMode::Shared => readers.try_read(asker.0, is_free),
            RecordMode::Exclusive => match readers.take_from_readers(asker.0) {
                Some(mut table) => {
                    let is_free = table.is_idle() || is_free(&mut table);
                    lease.reader = None;
                    lease.tables.push((executor, table));
                    return is_free;
                }
                None => Reading::Away,
            },
        };
        match reading {
            Reading::Yes => {
                lease.reader = Some(asker.0);
                // A change of the rules excludes readers, so the version cannot change while there is one.
                self.local.version.load(Ordering::Acquire) == lease.version
            }
            Reading::Locked => false,
            Reading::Away => {
                lease.found_out = Some((executor, wanted.mode));
                false
            }
        }
    }

    /// Under a lease: the share of the index's hidden row numbers that belongs to an executor of the lease. A new
    /// number of that share needs no further lock table.
    pub(crate) fn numbers_of_lease(&self, owner: &mut Owner, index: IndexId) -> Option<NumberShare> {
        let body = &mut owner.body;
        if body.lease.tables.is_empty() {
            return None;
        }
        let among = self.local.rules_in_force(&mut body.rules).rule_of(index)?.numbers_among()?;
        let executor =
            body.lease.tables.iter().map(|(executor, _)| *executor).find(|&executor| executor < among)?;
        Some(NumberShare { executor, among })
    }

    /// Under a lease: makes the span part of it. None: the lease is over, and the span has to be requested as without
    /// one.
    pub(super) fn local_under_lease(&self, owner: &mut Owner, wanted: Wanted<'_>) -> Option<Acquired> {
        if owner.body.lease.covers(wanted) {
            return Some(Acquired::Held);
        }
        self.lease(owner, std::iter::once(wanted)).then_some(Acquired::New)
    }

    /// Returns the lease, if there is one: the entries of its list become locks.
    #[inline]
    pub fn return_lease(&self, owner: &mut Owner) {
        if owner.body.lease.is_on() {
            self.return_lease_slowly(owner);
        }
    }

    #[cold]
    fn return_lease_slowly(&self, owner: &mut Owner) {
        self.enter_intents_of_lease(owner);
        let (body, mut executors) = (&mut owner.body, ExecutorSet::new());
        let lease = &mut body.lease;
        let mut enter = |lease: &mut ExecutorLease, kept: KeptSpan, as_reader: bool| {
            let KeptSpan { index, span, mode } = kept;
            let span = span.of(&lease.bytes);
            let hash = self.local.seed.hash_of(index, span);
            let version = self.local.route(&mut body.rules, index, span, &mut executors);
            let (owner, transaction) = (body.id, body.transaction);
            let request = LocalRequest { owner, transaction, index, span, mode, version, part: false, hash };
            let mut note = |executor, held: Option<u32>| {
                if let Some(lock) = held {
                    body.locals.push(HeldLocal { executor, lock });
                    body.long_keys += span.counts_more();
                }
            };
            if as_reader {
                // The lock is shared, so it conflicts with no other reader.
                let readers = self.local.read_only();
                if executors.contains(&readers) {
                    note(readers, self.local.lock(readers).held.hold(request));
                }
                return;
            }
            for (executor, table) in lease.tables.iter_mut().filter(|(at, _)| executors.contains(at)) {
                note(*executor, table.held.hold(request));
            }
            self.slots[usize::from(body.id)].counters.local.add(1);
        };
        let kept = std::mem::take(&mut lease.kept);
        kept.iter().for_each(|&kept| enter(lease, kept, false));
        if lease.reader.is_some() {
            // The latch is waited for only when no table is out (L12).
            lease.put_tables_back(&self.local);
            kept.iter().for_each(|&kept| enter(lease, kept, true));
        }
        // The next lease uses the same memory.
        lease.kept = kept;
        lease.put_back(&self.local);
        self.end_own_lease(owner.body.id);
    }

    /// Ends the lease, and with it all that the owner has by it.
    #[inline]
    pub fn end_lease(&self, owner: &mut Owner) {
        if owner.body.lease.is_on() {
            let kept = owner.body.lease.kept.len() as u64;
            self.slot(owner).counters.local.add(kept);
            owner.body.lease.put_back(&self.local);
        }
    }
}
