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
use super::locks::{LocalLocks, Request, hash_of, suffices};
use super::routing::Executors;
use super::span::{Span, SpanRef};
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
#[derive(Debug)]
struct Kept {
    index: IndexId,
    span: Span,
    mode: RecordMode,
}

/// Which executors (the second) have keys of which of the spans that are asked for.
type Routes = SmallVec<[(u16, u16); 8]>;

/// The lock tables that an owner has taken out, and what he has of them.
#[derive(Debug, Default)]
pub(in super::super) struct Stint {
    tables: SmallVec<[(u16, Box<LocalLocks>); 4]>,
    kept: SmallVec<[Kept; 4]>,
    /// Of the routing rules by which they were found. These stay in force as long as any table is out.
    version: u64,
}

impl Stint {
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.tables.is_empty()
    }

    fn has(&self, executor: u16) -> bool {
        self.tables.iter().any(|(taken, _)| *taken == executor)
    }

    fn table(&self, executor: u16) -> &LocalLocks {
        let table = self.tables.iter().find(|(taken, _)| *taken == executor);
        &table.expect("every executor of a span has been taken").1
    }

    fn table_mut(&mut self, executor: u16) -> &mut LocalLocks {
        let table = self.tables.iter_mut().find(|(taken, _)| *taken == executor);
        &mut table.expect("every executor of a span has been taken").1
    }

    fn covers(&self, Wanted { index, span, mode }: Wanted<'_>) -> bool {
        self.kept
            .iter()
            .any(|kept| kept.index == index && suffices(kept.mode, mode) && kept.span.borrow().covers(span))
    }

    /// Puts the tables back as they are.
    fn put_back(&mut self, local: &LocalTables) {
        for (executor, table) in self.tables.drain(..) {
            local.executor(executor).put_back(table);
        }
        self.kept.clear();
    }
}

impl Drop for Stint {
    fn drop(&mut self) {
        debug_assert!(!self.is_on() || std::thread::panicking(), "a stint ends before its owner does");
    }
}

/// Notes the spans, unless somebody else's lock is in the way of one. Their tables are out.
fn keep(owner: &mut Owner, wanted: &[Wanted<'_>], routes: &[(u16, u16)]) -> bool {
    let (id, transaction, stint) = (owner.body.id, owner.body.transaction, &mut owner.body.stint);
    if stint.kept.len() + wanted.len() > SPANS_MAX {
        return false;
    }
    let is_free = |&(nth, executor): &(u16, u16)| {
        let table = stint.table(executor);
        table.is_idle() || {
            let Wanted { index, span, mode } = wanted[usize::from(nth)];
            let (version, hash) = (stint.version, hash_of(index, span));
            table.is_free_for(Request {
                owner: id,
                transaction,
                index,
                span,
                mode,
                version,
                part: false,
                hash,
            })
        }
    };
    if !routes.iter().all(is_free) {
        return false;
    }
    for &(nth, executor) in routes {
        let Wanted { index, span, .. } = wanted[usize::from(nth)];
        stint.table_mut(executor).count(index, span);
    }
    let kept = wanted.iter().map(|&Wanted { index, span, mode }| Kept { index, span: span.to_owned(), mode });
    stint.kept.extend(kept);
    true
}

impl LockManager {
    /// Begins a stint of these spans, or widens the one that there is. False, and no stint, if a lock of somebody else's is
    /// in the way, or an executor that would have to be waited for.
    pub fn stint(&self, owner: &mut Owner, wanted: &[Wanted<'_>]) -> bool {
        let mut routes = Routes::new();
        if self.take_tables(owner, wanted, &mut routes) && keep(owner, wanted, &routes) {
            return true;
        }
        self.leave_stint(owner);
        false
    }

    /// Takes out the tables of these spans that are not out yet, and tells which have keys of which.
    #[inline]
    fn take_tables(&self, owner: &mut Owner, wanted: &[Wanted<'_>], routes: &mut Routes) -> bool {
        let body = &mut owner.body;
        let (begins, mut executors, mut missing) = (!body.stint.is_on(), Executors::new(), Executors::new());
        // Whoever changes the rules has to have all tables in.
        if begins && self.local.changing.load(Ordering::Relaxed) > 0 {
            return false;
        }
        for (nth, Wanted { index, span, .. }) in wanted.iter().enumerate() {
            // In a stint the owner knows the rules in force, so that this waits for nobody.
            body.stint.version = self.local.route(&mut body.rules, *index, *span, &mut executors);
            for &executor in &executors {
                routes.push((nth as u16, executor));
                if !body.stint.has(executor) && !missing.contains(&executor) {
                    missing.push(executor);
                }
            }
        }
        if missing.len() > 1 {
            missing.sort_unstable();
        }
        for executor in missing {
            let at = self.local.executor(executor);
            let table = if begins { at.take_within(TAKE_WITHIN) } else { at.try_take() };
            let Some(table) = table else { return false };
            let is_in_force = table.version() == body.stint.version;
            body.stint.tables.push((executor, table));
            if !is_in_force {
                return false;
            }
        }
        true
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
        let body = &mut owner.body;
        let mut executors = Executors::new();
        for Kept { index, span, mode } in body.stint.kept.drain(..) {
            let (span, hash) = (span.borrow(), hash_of(index, span.borrow()));
            let version = self.local.route(&mut body.rules, index, span, &mut executors);
            let (owner, transaction) = (body.id, body.transaction);
            let request = Request { owner, transaction, index, span, mode, version, part: false, hash };
            for (executor, table) in &mut body.stint.tables {
                if executors.contains(executor)
                    && let Some(lock) = table.hold(request)
                {
                    body.locals.push(HeldLocal { executor: *executor, lock });
                }
            }
            self.slots[usize::from(body.id)].counters.local.add(1);
        }
        body.stint.put_back(&self.local);
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
