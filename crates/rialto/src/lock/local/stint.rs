//! [`Stint`]: executors in the hands of one transaction.
//!
//! A transaction that a thread runs in place (DESIGN section 5) takes the lock tables that it needs for as long as it runs,
//! and enters nothing into them: what it would have locked it only keeps in a list, after a look at whether a lock of
//! somebody else's is in the way. Nobody else can ask these tables meanwhile, so the list is as good as locks. Before the
//! owner waits for anything he *leaves* the stint: what is in the list becomes locks, and the tables go back.
//!
//! Invariant **L12**: whoever is in a stint waits for nothing and nobody. So tables that are out come back soon, and nobody
//! in a stint can be on a cycle of waits. Who begins one and finds a table out puts back what he has, waits for that table,
//! and begins again with it: many threads on few cores would else sleep one behind the other, each with tables that the
//! next ones want.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::manager::LockManager;
use super::super::mode::{Acquired, RecordMode};
use super::super::slot::Owner;
use super::executor::Taken;
use super::locks::{Request, hash_of, suffices};
use super::routing::{Executors, RoutingRules};
use super::span::{SpanAt, SpanRef};
use super::{HeldLocal, LocalTables};
use crate::ids::IndexId;

/// A table that stays out for longer than a short transaction takes is not waited for by those who would have it next: they
/// ask for locks, as others do.
const TAKE_WITHIN: Duration = Duration::from_millis(1);

/// Who has waited for so many tables, and found another one out each time, asks for locks.
const WAITS_MAX: usize = 8;

/// A stint of more spans is left: they are looked at one by one.
const SPANS_MAX: usize = 96;

/// A span that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The index.
    pub index: IndexId,
    /// Which of its keys.
    pub span: SpanRef<'a>,
    /// In which mode.
    pub mode: RecordMode,
}

impl Wanted<'_> {
    /// Whether nobody else may have any of it.
    pub fn is_exclusive(&self) -> bool {
        self.mode == RecordMode::Exclusive
    }
}

/// What stands for a lock.
#[derive(Debug, Clone, Copy)]
struct Kept {
    index: IndexId,
    span: SpanAt,
    mode: RecordMode,
}

/// The lock tables that an owner has taken out, and what he has of them.
#[derive(Debug, Default)]
pub(in super::super) struct Stint {
    tables: SmallVec<[(u16, Taken); 4]>,
    kept: SmallVec<[Kept; 8]>,
    /// The bytes of the spans that are kept.
    bytes: Vec<u8>,
    /// Of the routing rules by which they were found. These stay in force as long as any table is out.
    version: u64,
    /// The executor whose table somebody else had when it was asked for.
    found_out: Option<u16>,
}

impl Stint {
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.tables.is_empty()
    }

    fn covers(&self, Wanted { index, span, mode }: Wanted<'_>) -> bool {
        self.kept.iter().any(|kept| {
            kept.index == index && suffices(kept.mode, mode) && kept.span.of(&self.bytes).covers(span)
        })
    }

    /// Puts the tables back as they are. Nobody is woken before the last one is back: he might run at once, in place of who
    /// has them.
    #[inline(always)]
    fn put_back(&mut self, local: &LocalTables) {
        let mut wanted = Executors::new();
        while let Some((executor, table)) = self.tables.pop() {
            if local.executor(executor).put_back(table) {
                wanted.push(executor);
            }
        }
        wanted.iter().for_each(|&executor| local.executor(executor).wake());
        self.kept.clear();
        self.bytes.clear();
    }
}

impl Drop for Stint {
    fn drop(&mut self) {
        debug_assert!(!self.is_on() || std::thread::panicking(), "a stint ends before its owner does");
    }
}

impl LockManager {
    /// Begins a stint of these spans, or widens the one that there is. False, and no stint, if a lock of somebody else's is
    /// in the way, or an executor that stays out for long, or, to widen it, is out at all.
    #[inline]
    pub fn stint<'a>(&self, owner: &mut Owner, wanted: impl Iterator<Item = Wanted<'a>> + Clone) -> bool {
        let body = &mut owner.body;
        let (begins, stint) = (!body.stint.is_on(), &mut body.stint);
        let kept = stint.kept.len();
        // Whoever changes the rules has to have all tables in.
        if !begins || self.local.changing.load(Ordering::Relaxed) == 0 {
            // In a stint the owner knows the rules in force, so that this waits for nobody.
            let rules = self.local.rules_in_force(&mut body.rules);
            stint.version = rules.version;
            let asker = (body.id, body.transaction);
            let has_all = wanted.clone().all(|wanted| self.take_span(stint, rules, asker, wanted))
                || begins && self.begin_again(stint, rules, asker, wanted);
            if has_all {
                return true;
            }
        }
        // These were not asked for in the order of locks.
        stint.kept.truncate(kept);
        stint.found_out = None;
        self.leave_stint(owner);
        false
    }

    /// Begins a stint with the table that was out, as soon as it is back.
    #[cold]
    #[inline(never)]
    fn begin_again<'a>(
        &self,
        stint: &mut Stint,
        rules: &RoutingRules,
        asker: (u16, u16),
        wanted: impl Iterator<Item = Wanted<'a>> + Clone,
    ) -> bool {
        for _ in 0..WAITS_MAX {
            let Some(executor) = stint.found_out.take() else { return false };
            stint.put_back(&self.local);
            if self.local.changing.load(Ordering::Relaxed) > 0 {
                return false;
            }
            let Some(table) = self.local.executor(executor).take_within(TAKE_WITHIN) else { return false };
            stint.tables.push((executor, table));
            if wanted.clone().all(|wanted| self.take_span(stint, rules, asker, wanted)) {
                return true;
            }
        }
        false
    }

    /// Keeps a span, if the tables of its executors can be had at once and no lock of somebody else's is in the way.
    #[inline(always)]
    fn take_span(
        &self,
        stint: &mut Stint,
        rules: &RoutingRules,
        asker: (u16, u16),
        wanted: Wanted<'_>,
    ) -> bool {
        if stint.kept.len() == SPANS_MAX {
            return false;
        }
        let Wanted { index, span, mode } = wanted;
        let has = match rules.only_executor_of(index, span) {
            Some(executor) => self.take_at(stint, executor, asker, wanted),
            None => {
                let mut executors = Executors::new();
                rules.executors_of(index, span, &mut executors);
                executors.iter().all(|&executor| self.take_at(stint, executor, asker, wanted))
            }
        };
        if has {
            let span = span.put(&mut stint.bytes);
            stint.kept.push(Kept { index, span, mode });
        }
        has
    }

    /// The span at one executor, whose table is taken out if it is not yet. False: somebody else has it, a lock is in the
    /// way, or the rules by which the executor was found are not in force.
    #[inline(always)]
    fn take_at(
        &self,
        stint: &mut Stint,
        executor: u16,
        (owner, transaction): (u16, u16),
        Wanted { index, span, mode }: Wanted<'_>,
    ) -> bool {
        let there = stint.tables.iter().position(|(taken, _)| *taken == executor);
        let at = match there {
            Some(at) => at,
            None => {
                let Some(table) = self.local.executor(executor).try_take() else {
                    stint.found_out = Some(executor);
                    return false;
                };
                stint.tables.push((executor, table));
                stint.tables.len() - 1
            }
        };
        let table = &mut stint.tables[at].1;
        let version = table.version();
        if version != stint.version {
            return false;
        }
        if !table.is_idle() {
            let hash = hash_of(index, span);
            let request = Request { owner, transaction, index, span, mode, version, part: false, hash };
            if !table.is_free_for(request) {
                return false;
            }
        }
        table.count(index, span);
        true
    }

    /// In a stint: the span as part of it. None: there is no stint any more, and it is to be asked for as others ask.
    pub(super) fn local_in_stint(&self, owner: &mut Owner, wanted: Wanted<'_>) -> Option<Acquired> {
        if owner.body.stint.covers(wanted) {
            return Some(Acquired::Held);
        }
        self.stint(owner, std::iter::once(wanted)).then_some(Acquired::New)
    }

    /// Leaves the stint, if there is one: what the owner has of it are locks from here on.
    #[inline]
    pub fn leave_stint(&self, owner: &mut Owner) {
        if owner.body.stint.is_on() {
            self.leave_stint_slowly(owner);
        }
    }

    #[cold]
    fn leave_stint_slowly(&self, owner: &mut Owner) {
        self.enter_intents_of_stint(owner);
        let (body, mut executors) = (&mut owner.body, Executors::new());
        let stint = &mut body.stint;
        for Kept { index, span, mode } in stint.kept.drain(..) {
            let span = span.of(&stint.bytes);
            let hash = hash_of(index, span);
            let version = self.local.route(&mut body.rules, index, span, &mut executors);
            let (owner, transaction) = (body.id, body.transaction);
            let request = Request { owner, transaction, index, span, mode, version, part: false, hash };
            for (executor, table) in &mut stint.tables {
                if executors.contains(executor)
                    && let Some(lock) = table.hold(request)
                {
                    body.locals.push(HeldLocal { executor: *executor, lock });
                }
            }
            self.slots[usize::from(body.id)].counters.local.add(1);
        }
        stint.put_back(&self.local);
    }

    /// Ends the stint, and with it what the owner had of it.
    #[inline]
    pub(in super::super) fn end_stint(&self, owner: &mut Owner) {
        if owner.body.stint.is_on() {
            let kept = owner.body.stint.kept.len() as u64;
            self.slot(owner).counters.local.add(kept);
            owner.body.stint.put_back(&self.local);
        }
    }
}
