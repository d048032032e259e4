//! [`Stint`]: executors in the hands of one transaction.
//!
//! A transaction that a thread runs in place (DESIGN section 5) takes the lock tables that it needs for as long as it runs,
//! and enters nothing into them: what it would have locked it only keeps in a list, after a look at whether a lock of
//! somebody else's is in the way. Nobody else can ask these tables meanwhile, so the list is as good as locks. Before the
//! owner waits for anything he *leaves* the stint: what is in the list becomes locks, and the tables go back.
//!
//! Invariant **L12**: whoever is in a stint waits for nothing and nobody. So tables that are out come back soon, and nobody
//! in a stint can be on a cycle of waits. The one exception orders itself: at the beginning of a stint its tables are
//! waited for, in ascending order, as everywhere (L4).

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::manager::LockManager;
use super::super::mode::{Acquired, RecordMode};
use super::super::slot::Owner;
use super::executor::Taken;
use super::locks::{LocalLocks, Request, hash_of, suffices};
use super::routing::Executors;
use super::span::{SpanAt, SpanRef};
use super::{HeldLocal, LocalTables};
use crate::ids::IndexId;

/// A table that stays out for longer than a short transaction takes is not waited for by those who would have it next: they
/// ask for locks, as others do.
const TAKE_WITHIN: Duration = Duration::from_millis(1);

/// A stint of more spans is left: they are looked at one by one.
const SPANS_MAX: usize = 24;

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

/// Which executors have keys of which (the second) of the spans that are asked for.
type Routes = SmallVec<[(u16, u16); 8]>;

/// The lock tables that an owner has taken out, and what he has of them.
#[derive(Debug, Default)]
pub(in super::super) struct Stint {
    tables: SmallVec<[(u16, Taken); 4]>,
    kept: SmallVec<[Kept; 8]>,
    /// The bytes of the spans that are kept.
    bytes: Vec<u8>,
    /// Of the routing rules by which they were found. These stay in force as long as any table is out.
    version: u64,
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

    /// Puts the tables back as they are.
    #[inline]
    fn put_back(&mut self, local: &LocalTables) {
        while let Some((executor, table)) = self.tables.pop() {
            local.executor(executor).put_back(table);
        }
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
    /// in the way, or an executor that would have to be waited for.
    pub fn stint(&self, owner: &mut Owner, wanted: &[Wanted<'_>]) -> bool {
        if self.take_spans(owner, wanted) {
            return true;
        }
        self.leave_stint(owner);
        false
    }

    #[inline]
    fn take_spans(&self, owner: &mut Owner, wanted: &[Wanted<'_>]) -> bool {
        let body = &mut owner.body;
        let (begins, stint) = (!body.stint.is_on(), &mut body.stint);
        // Whoever changes the rules has to have all tables in.
        if begins && self.local.changing.load(Ordering::Relaxed) > 0
            || stint.kept.len() + wanted.len() > SPANS_MAX
        {
            return false;
        }
        // In a stint the owner knows the rules in force, so that this waits for nobody.
        let rules = self.local.rules_in_force(&mut body.rules);
        stint.version = rules.version;
        let mut routes = Routes::new();
        for (nth, &Wanted { index, span, .. }) in wanted.iter().enumerate() {
            match rules.only_executor_of(index, span) {
                Some(executor) => routes.push((executor, nth as u16)),
                None => {
                    let mut executors = Executors::new();
                    rules.executors_of(index, span, &mut executors);
                    routes.extend(executors.iter().map(|&executor| (executor, nth as u16)));
                }
            }
        }
        // Only in this order may they be waited for.
        if begins && routes.len() > 1 {
            routes.sort_unstable();
        }
        let (id, transaction) = (body.id, body.transaction);
        for &(executor, nth) in &routes {
            let Some(table) = self.take_table(stint, executor, begins) else { return false };
            let Wanted { index, span, mode } = wanted[usize::from(nth)];
            if !table.is_idle() {
                let (version, hash) = (table.version(), hash_of(index, span));
                let request =
                    Request { owner: id, transaction, index, span, mode, version, part: false, hash };
                if !table.is_free_for(request) {
                    return false;
                }
            }
            table.count(index, span);
        }
        for &Wanted { index, span, mode } in wanted {
            let span = span.put(&mut stint.bytes);
            stint.kept.push(Kept { index, span, mode });
        }
        true
    }

    /// An executor's lock table, taken out if it is not yet. None: it would have to be waited for, or the rules by which it was
    /// found are not in force.
    #[inline]
    fn take_table<'a>(
        &self,
        stint: &'a mut Stint,
        executor: u16,
        begins: bool,
    ) -> Option<&'a mut LocalLocks> {
        let there = stint.tables.iter().position(|(taken, _)| *taken == executor);
        let at = match there {
            Some(at) => at,
            None => {
                let place = self.local.executor(executor);
                let table = if begins { place.take_within(TAKE_WITHIN) } else { place.try_take() };
                stint.tables.push((executor, table?));
                stint.tables.len() - 1
            }
        };
        let table = &mut stint.tables[at].1;
        (table.version() == stint.version).then_some(table)
    }

    /// In a stint: the span as part of it. None: there is no stint any more, and it is to be asked for as others ask.
    pub(super) fn local_in_stint(&self, owner: &mut Owner, wanted: Wanted<'_>) -> Option<Acquired> {
        if owner.body.stint.covers(wanted) {
            return Some(Acquired::Held);
        }
        self.stint(owner, &[wanted]).then_some(Acquired::New)
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
