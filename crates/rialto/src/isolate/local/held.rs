//! [`HeldLocks`]: the locks that transactions hold on one executor's datasets.
//!
//! Locks are pooled: once the executor has had some number of locks at a time, up to a bound, taking that many
//! allocates nothing. Memory beyond the bound is given back with the last lock.

use std::cell::RefCell;
use std::collections::HashMap;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::super::mode::RecordMode;
use super::HeldLocal;
use super::locks::LocalRequest;
use super::ordered::{FoundTransactions, OrderedLocks, Summary};
use super::point_order::PointOrder;
use super::span::{Span, SpanRef};
use crate::fault_injection;
use crate::ids::IndexId;
use crate::probes::count_probe;
use crate::unlikely::unlikely;

/// One span, with its holders.
#[derive(Debug)]
pub(super) struct Lock {
    pub index: IndexId,
    pub span: Span,
    /// The hash of its requests.
    hash: u64,
    pub holders: SmallVec<[Holder; 2]>,
    /// The span's keys have moved to other executors: the lock is here only for its holders to release it.
    gone: bool,
}

/// How a holder's lock is linked to others by moves of keys.
///
/// Invariant: this lock is one of the copies of the holder's lock that it came from, unless the holder has released
/// or handed over that one.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The lock that this one was made for at a move of keys.
    pub from: Option<HeldLocal>,
    /// The locks that the holder was given elsewhere in place of this one, and releases with it.
    pub copies: SmallVec<[HeldLocal; 1]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    owner: u16,
    pub transaction: u16,
    pub mode: RecordMode,
    /// The mode in which the owner has all of the span, at each executor that has keys of it. What is noted here is
    /// true, but the owner may have more: its mode for all of the span is noted at one of these executors at least
    /// (`LockManager::make_whole`). While the owner gathers a span part by part, `whole` is weaker than `mode`, in
    /// which it has this part.
    whole: Option<RecordMode>,
}

impl Holder {
    fn of(request: &LocalRequest<'_>) -> Holder {
        let LocalRequest { owner, transaction, mode, part, .. } = *request;
        Holder { owner, transaction, mode, whole: if part { None } else { Some(mode) } }
    }

    fn make_whole(&mut self, mode: RecordMode) {
        if !self.whole.is_some_and(|whole| suffices(whole, mode)) {
            self.whole = Some(mode);
        }
    }
}

/// The locks on spans of keys at one executor, in shared and exclusive mode.
#[derive(Debug, Default)]
pub(in super::super) struct HeldLocks {
    locks: Vec<Lock>,
    free: Vec<u32>,
    /// The links by moves of keys, by lock and holder; only for locks that have any.
    moved: HashMap<(u32, u16), Moved>,
    /// Locks on one key each, by index and key.
    points: HashTable<u32>,
    order: PointOrder,
    /// All other locks.
    wide: OrderedLocks,
}

/// A table that has had more locks at a time than this gives their memory back once it has none.
const LOCKS_KEPT: usize = 1024;

pub(super) fn conflict(one: RecordMode, other: RecordMode) -> bool {
    one == RecordMode::Exclusive || other == RecordMode::Exclusive
}

pub(super) fn suffices(held: RecordMode, asked: RecordMode) -> bool {
    held == RecordMode::Exclusive || asked == RecordMode::Shared
}

impl Lock {
    /// What locks are sorted by.
    pub fn sort_key(&self) -> (IndexId, SpanRef<'_>) {
        (self.index, self.span.borrow())
    }

    fn is(&self, index: IndexId, span: SpanRef<'_>) -> bool {
        self.index == index && self.span.borrow().is(span)
    }

    /// The transactions that hold it in modes that conflict with a request; its own may be among them.
    fn against(&self, request: LocalRequest<'_>) -> impl Iterator<Item = u16> {
        let against = self.holders.iter().filter(move |holder| conflict(holder.mode, request.mode));
        against.map(|holder| holder.transaction)
    }

    fn holder(&self, owner: u16) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.owner == owner)
    }

    fn holder_mut(&mut self, owner: u16) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.owner == owner)
    }
}

impl HeldLocks {
    /// The lock on exactly the span of the request.
    pub fn find(&self, request: &LocalRequest<'_>) -> Option<u32> {
        let is = |&at: &u32| {
            count_probe();
            self.locks[at as usize].is(request.index, request.span)
        };
        match request.span.is_point() {
            true => self.points.find(request.hash, is).copied(),
            false => self.wide.find(&self.locks, request.index, request.span),
        }
    }

    /// Enters a lock that the owner has by other means. Gives the lock if the owner had none on the span.
    pub fn hold(&mut self, request: LocalRequest<'_>) -> Option<u32> {
        match self.find(&request) {
            Some(at) => self.grant(at, &request).is_none().then_some(at),
            None => Some(self.add(request)),
        }
    }

    /// Grants a request for a span that has a lock. Gives the mode in which its owner held that lock before.
    pub fn grant(&mut self, at: u32, request: &LocalRequest<'_>) -> Option<RecordMode> {
        let lock = &mut self.locks[at as usize];
        let had = match lock.holder_mut(request.owner) {
            Some(holder) => {
                let had = holder.mode;
                if !suffices(had, request.mode) {
                    holder.mode = request.mode;
                }
                if !request.part {
                    holder.make_whole(request.mode);
                }
                Some(had)
            }
            None => {
                lock.holders.push(Holder::of(request));
                None
            }
        };
        self.update(at);
        had
    }

    /// Brings the orders up to date after a lock's holders or their modes have changed.
    fn update(&mut self, at: u32) {
        let lock = &self.locks[at as usize];
        match lock.span.borrow().is_point() {
            _ if lock.gone => {}
            true => self.order.update(&self.locks, at),
            false => self.wide.update(&self.locks, at),
        }
    }

    /// Adds a lock on a span that has none.
    pub fn add(&mut self, request: LocalRequest<'_>) -> u32 {
        let (LocalRequest { index, span, hash, .. }, holder) = (request, Holder::of(&request));
        let at = match self.free.pop() {
            Some(at) => {
                let lock = &mut self.locks[at as usize];
                (lock.index, lock.span, lock.hash, lock.gone) = (index, span.to_owned(), hash, false);
                lock.holders.push(holder);
                at
            }
            None => {
                let holders = SmallVec::from_slice(&[holder]);
                self.locks.push(Lock { index, span: span.to_owned(), hash, holders, gone: false });
                (self.locks.len() - 1) as u32
            }
        };
        match span.is_point() {
            true => {
                let locks = &self.locks;
                self.points.insert_unique(hash, at, |&at: &u32| locks[at as usize].hash);
                self.order.add(locks, at, self.points.len());
            }
            false => self.wide.insert(&self.locks, at),
        }
        at
    }

    /// Removes a lock from what leads to it.
    fn unlist(&mut self, at: u32) {
        let lock = &self.locks[at as usize];
        if lock.span.borrow().is_point() {
            let entry = self.points.find_entry(lock.hash, |&other| other == at);
            entry.expect("a lock on a key is among them").remove();
            self.order.remove(&self.locks, at);
        } else {
            self.wide.remove(&self.locks, at);
        }
    }

    /// Whether the owner has all of a span, in a mode that is enough, by the lock on exactly this span or by one on a
    /// wider span. A part does not count here: keys on which others hold locks may have come to it since.
    pub fn has_all(&self, request: LocalRequest<'_>, there: Option<u32>) -> bool {
        let held = there.and_then(|at| self.locks[at as usize].holder(request.owner)?.whole);
        held.is_some_and(|held| suffices(held, request.mode)) || self.is_covered(request)
    }

    /// Whether the owner holds, in a mode that is enough, a span that covers the requested one. Such a span contains
    /// the requested one's first key, so locks that begin behind that key are not searched.
    fn is_covered(
        &self,
        LocalRequest { owner, transaction, index, span, mode, .. }: LocalRequest<'_>,
    ) -> bool {
        let last = |locks: &Summary| {
            locks.of_mode(mode).of_one(transaction).filter(|&last| {
                let last = &self.locks[last as usize];
                !(last.index == index && last.span.borrow().ends_before(span))
            })
        };
        let first = SpanRef::point(span.lower());
        self.wide.overlapping(&self.locks, index, first, last).any(|lock| {
            lock.holder(owner).and_then(|holder| holder.whole).is_some_and(|held| suffices(held, mode))
                && lock.span.borrow().covers(span)
        })
    }

    /// Counts a search for locks that overlap a span.
    fn count_search(&mut self, span: SpanRef<'_>) {
        if !span.is_point() {
            self.order.ask(&self.locks, &self.points);
        }
    }

    /// The locks on keys of this span that count, and perhaps others; see [`OrderedLocks::overlapping`].
    fn overlapping<'a>(
        &'a self,
        request: LocalRequest<'a>,
        last: impl Fn(&Summary) -> Option<u32> + Copy + 'a,
    ) -> impl Iterator<Item = &'a Lock> {
        let LocalRequest { index, span, .. } = request;
        let (point, points, ordered) = match (span.is_point(), self.order.locks()) {
            (true, _) => (self.find(&request), None, None),
            (false, None) => (None, Some(self.points.iter().copied()), None),
            (false, Some(order)) => (None, None, Some(order.overlapping(&self.locks, index, span, last))),
        };
        point
            .into_iter()
            .chain(points.into_iter().flatten())
            .inspect(|_| count_probe())
            .map(|at| &self.locks[at as usize])
            .filter(move |lock| lock.index == index && lock.span.borrow().overlaps(span))
            .chain(ordered.into_iter().flatten())
            .chain(self.wide.overlapping(&self.locks, index, span, last))
    }

    /// Whether other transactions hold locks that conflict with a request.
    pub fn conflicts_with(&mut self, request: LocalRequest<'_>) -> bool {
        self.count_search(request.span);
        let last = |locks: &Summary| locks.against(request.mode).of_others(request.transaction);
        let mut locks = self.overlapping(request, last);
        locks.any(|lock| lock.against(request).any(|holder| holder != request.transaction))
    }

    /// Whether a transaction holds a lock that conflicts with another one's request.
    pub fn holds_against(&mut self, transaction: u16, request: LocalRequest<'_>) -> bool {
        self.count_search(request.span);
        let last = |locks: &Summary| locks.against(request.mode).of_one(transaction);
        let mut locks = self.overlapping(request, last);
        locks.any(|lock| lock.against(request).any(|holder| holder == transaction))
    }

    /// The other transactions that hold locks that conflict with a request, each once.
    pub fn holders_against(&mut self, request: LocalRequest<'_>) -> Vec<u16> {
        self.count_search(request.span);
        let found = RefCell::new(FoundTransactions::default());
        found.borrow_mut().add(request.transaction);
        let last = |locks: &Summary| locks.against(request.mode).of_others_than(&found.borrow());
        for lock in self.overlapping(request, last) {
            lock.against(request).for_each(|holder| found.borrow_mut().add(holder));
        }
        let found = found.into_inner().into_transactions().into_iter();
        found.filter(|&transaction| transaction != request.transaction).collect()
    }

    /// Whether another owner of the same transaction holds keys of the requested span exclusively (L14).
    #[cold]
    pub fn is_kins(&mut self, request: LocalRequest<'_>) -> bool {
        self.count_search(request.span);
        let last = |locks: &Summary| locks.of_mode(RecordMode::Exclusive).of_one(request.transaction);
        self.overlapping(request, last).flat_map(|lock| lock.holders.iter()).any(|holder| {
            holder.transaction == request.transaction
                && holder.owner != request.owner
                && holder.mode == RecordMode::Exclusive
                && !(fault_injection::is_on("unclaimed-across-parts") && holder.owner != request.transaction)
                && !(fault_injection::is_on("unclaimed-across-phases") && holder.owner == request.transaction)
        })
    }

    /// Releases one lock of the owner, and passes on its copies at other executors.
    pub fn release(&mut self, owner: u16, at: u32, elsewhere: impl FnMut(HeldLocal)) {
        self.forget_moves(owner, at, elsewhere);
        let lock = &mut self.locks[at as usize];
        let holder = lock.holders.iter().position(|holder| holder.owner == owner);
        let holder = holder.expect("a lock is released by its holder");
        lock.holders.swap_remove(holder);
        if !lock.holders.is_empty() {
            return self.update(at);
        }
        if !lock.gone {
            self.unlist(at);
        }
        let lock = &mut self.locks[at as usize];
        if unlikely(lock.span.is_allocated()) {
            lock.span = Span::prefix(&[]);
        }
        self.free.push(at);
        if unlikely(self.locks.len() > LOCKS_KEPT) && self.locks.len() == self.free.len() {
            self.give_up_pools();
        }
    }

    /// Gives back the memory of locks. There are none.
    #[cold]
    fn give_up_pools(&mut self) {
        (self.locks, self.free, self.points) = Default::default();
        (self.order, self.wide, self.moved) = Default::default();
    }

    /// Ends the links of a holder's lock, and passes on its copies at other executors.
    #[inline]
    fn forget_moves(&mut self, owner: u16, at: u32, elsewhere: impl FnMut(HeldLocal)) {
        if unlikely(!self.moved.is_empty())
            && let Some(moved) = self.moved.remove(&(at, owner))
        {
            moved.copies.into_iter().for_each(elsewhere);
        }
    }

    /// Gives a holder's lock to another owner. True: that owner had it already, and now has it in the stronger of the
    /// two modes. Passes on the copies at other executors, which are to be handed over too.
    pub fn hand_over(&mut self, at: u32, from: u16, to: u16, elsewhere: impl FnMut(HeldLocal)) -> bool {
        self.forget_moves(from, at, elsewhere);
        let lock = &mut self.locks[at as usize];
        let position = lock.holders.iter().position(|holder| holder.owner == from);
        let position = position.expect("a lock is handed over by its holder");
        let had = lock.holders[position];
        let had_it = match lock.holder_mut(to) {
            Some(holder) => {
                if !suffices(holder.mode, had.mode) {
                    holder.mode = had.mode;
                }
                if let Some(whole) = had.whole {
                    holder.make_whole(whole);
                }
                lock.holders.swap_remove(position);
                true
            }
            None => {
                (lock.holders[position].owner, lock.holders[position].transaction) = (to, to);
                false
            }
        };
        self.update(at);
        had_it
    }

    /// The locks on keys of an index, or of all, with their spans.
    pub fn locks_of(&self, index: Option<IndexId>) -> Vec<(u32, IndexId, Span)> {
        let listed = self.points.iter().copied().chain(self.wide.iter());
        let listed = listed.map(|at| (at, &self.locks[at as usize]));
        let listed = listed.filter(|(_, lock)| index.is_none_or(|index| lock.index == index));
        listed.map(|(at, lock)| (at, lock.index, lock.span.clone())).collect()
    }

    /// Gives the holders of a lock of this table that have all of its span the same lock at another executor.
    pub fn copy_to(&mut self, here: HeldLocal, executor: u16, other: &mut HeldLocks) {
        let Lock { index, span, hash, holders, .. } = &self.locks[here.lock as usize];
        for &Holder { owner, transaction, whole, .. } in holders.iter() {
            let Some(mode) = whole else { continue };
            let request = LocalRequest {
                owner,
                transaction,
                index: *index,
                span: span.borrow(),
                mode,
                version: 0,
                part: false,
                hash: *hash,
            };
            // None: the owner has the lock there already, as another part of the span, and the whole mode is noted in
            // it now.
            if let Some(lock) = other.hold(request) {
                other.moved(lock, owner).from = Some(here);
                let moved = self.moved.entry((here.lock, owner)).or_default();
                moved.copies.push(HeldLocal { executor, lock });
            }
        }
    }

    /// The links of a holder's lock by moves of keys.
    pub(super) fn moved(&mut self, at: u32, owner: u16) -> &mut Moved {
        self.moved.entry((at, owner)).or_default()
    }

    /// The holders for which a lock was made at a move of keys, and for each of them the lock that it was made for.
    pub(super) fn came_from(&self, at: u32) -> SmallVec<[(u16, HeldLocal); 4]> {
        let holders = self.locks[at as usize].holders.iter();
        holders
            .filter_map(|&Holder { owner, .. }| Some((owner, self.moved.get(&(at, owner))?.from?)))
            .collect()
    }

    /// Removes a copy from those of a holder's lock; false: it was none of them.
    pub(super) fn forget_copy(&mut self, at: u32, owner: u16, copy: HeldLocal) -> bool {
        let copies = self.moved.get_mut(&(at, owner)).map(|moved| &mut moved.copies);
        let found = copies.and_then(|copies| {
            let nth = copies.iter().position(|&other| other == copy)?;
            Some(copies.swap_remove(nth))
        });
        found.is_some()
    }

    /// Puts the owner's lock on the span here back into the mode that it had before a request that has failed, but
    /// not below the mode in which the owner has all of the span. Whether it was stronger.
    pub fn fall_back(&mut self, request: LocalRequest<'_>, had: RecordMode) -> bool {
        let Some(at) = self.find(&request) else { return false };
        let Some(holder) = self.locks[at as usize].holder_mut(request.owner) else { return false };
        let had = holder.whole.filter(|&whole| !suffices(had, whole)).unwrap_or(had);
        let had_more = std::mem::replace(&mut holder.mode, had) != had;
        self.update(at);
        had_more
    }

    /// Notes that the owner has all parts of the span now, in this mode.
    pub fn make_whole(&mut self, request: LocalRequest<'_>) {
        if let Some(at) = self.find(&request)
            && let Some(holder) = self.locks[at as usize].holder_mut(request.owner)
        {
            holder.make_whole(request.mode);
        }
    }

    /// The keys of a lock have moved: it stays only until it is released.
    pub fn retire(&mut self, at: u32) {
        self.unlist(at);
        self.locks[at as usize].gone = true;
    }

    /// The number of locks that are held.
    pub fn len(&self) -> usize {
        self.locks.len() - self.free.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.locks.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests;
