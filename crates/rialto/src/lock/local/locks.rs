//! [`LocalLocks`]: what transactions hold of one executor's datasets, and who waits for it.
//!
//! Everything here runs under the executor's latch. Locks are pooled: taking one allocates nothing once the executor
//! has had as many at a time, up to a bound; beyond it their memory goes with the last of them.

use std::collections::HashMap;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::super::head::Blockers;
use super::super::mode::RecordMode;
use super::HeldLocal;
use super::ordered::{OrderedLocks, Summary};
use super::point_order::PointOrder;
use super::span::{Span, SpanRef};
use crate::ids::IndexId;
use crate::looks::count_look;
use crate::rarely::rarely;
use crate::row::Key;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Request<'a> {
    pub owner: u16,
    /// The owner that stands for the transaction: the same, unless it runs a part of a phase. Owners of one transaction are
    /// in nobody's way of each other.
    pub transaction: u16,
    pub index: IndexId,
    pub span: SpanRef<'a>,
    pub mode: RecordMode,
    /// The version of the routing rules that brought it here.
    pub version: u64,
    /// The span has keys at other executors too.
    pub part: bool,
    /// Of index and key, if the span is of one ([`Seed::hash_of`](super::Seed::hash_of)).
    pub hash: u64,
}

/// What the table says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Answer {
    /// The owner has all of it already, or of a span that covers it.
    Held,
    /// Granted, as this lock.
    New(u32),
    /// Granted to a holder, who had it in this mode.
    Upgraded(RecordMode),
    Wait,
    /// The routing rules have changed since the request was routed.
    Rerouted,
    /// Another owner of the same transaction holds keys of it exclusively (L14).
    Split,
}

/// One span, with its holders.
#[derive(Debug)]
pub(super) struct Lock {
    pub index: IndexId,
    pub span: Span,
    /// As its requests'.
    hash: u64,
    pub holders: SmallVec<[Holder; 2]>,
    /// The span's keys have gone elsewhere: it is here only for its holders to release it.
    gone: bool,
}

/// What moves of keys have to do with a holder's lock.
///
/// Invariant: the holder has this lock as one of the copies of the lock that it came from, unless it has released, or handed over,
/// that one.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The lock that this one was made for at a move of keys.
    pub from: Option<HeldLocal>,
    /// What the holder was given elsewhere for this one, and releases with it.
    pub copies: SmallVec<[HeldLocal; 1]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    owner: u16,
    pub transaction: u16,
    pub mode: RecordMode,
    /// The mode in which the owner has all of the span, at each executor that has keys of it; what is noted here is true, but it
    /// may be less than the owner has. What the owner has of all of the span is noted at one of these executors at least
    /// (`LockManager::make_whole`). While the owner gathers a span part by part it is weaker than the one in
    /// which it has this part.
    whole: Option<RecordMode>,
}

impl Holder {
    fn of(request: &Request<'_>) -> Holder {
        let Request { owner, transaction, mode, part, .. } = *request;
        Holder { owner, transaction, mode, whole: if part { None } else { Some(mode) } }
    }

    fn make_whole(&mut self, mode: RecordMode) {
        if !self.whole.is_some_and(|whole| suffices(whole, mode)) {
            self.whole = Some(mode);
        }
    }
}

/// What a request came to that has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Granted {
    /// The lock that the owner holds now and did not before.
    pub new: Option<u32>,
    /// The mode in which the owner held it before.
    pub had: Option<RecordMode>,
    /// It was granted, and by the routing rules that are in force still.
    pub in_force: bool,
}

#[derive(Debug)]
struct NewlyGranted {
    owner: u16,
    lock: u32,
    had: Option<RecordMode>,
}

/// A request that waits.
#[derive(Debug)]
struct Blocked {
    owner: u16,
    transaction: u16,
    index: IndexId,
    span: Span,
    mode: RecordMode,
    part: bool,
    hash: u64,
    /// The number of its owner's wait.
    wait: u64,
}

impl Blocked {
    fn request(&self) -> Request<'_> {
        let Blocked { owner, transaction, index, ref span, mode, part, hash, .. } = *self;
        Request { owner, transaction, index, span: span.borrow(), mode, version: 0, part, hash }
    }
}

/// A local lock table: spans of keys in shared and exclusive mode, and the blocked requests in their order.
///
/// Rule (L1 for spans): a request is granted exactly when it is compatible with all locks of others on spans that overlap
/// its own, and with the requests ahead of it that do not wait for the owner himself. (He cannot wait for those: they
/// go on only after him.) So an owner who asks for more of what he has part of passes the queue.
#[derive(Debug, Default)]
pub(in super::super) struct LocalLocks {
    locks: Vec<Lock>,
    free: Vec<u32>,
    /// Of the locks, by number and holder, that have to do with moves of keys.
    moved: HashMap<(u32, u16), Moved>,
    /// Locks on one key each, by index and key.
    points: HashTable<u32>,
    order: PointOrder,
    /// The others.
    wide: OrderedLocks,
    blocked: Vec<Blocked>,
    /// Requests that were granted when they had waited, until their owners have taken note.
    granted: Vec<NewlyGranted>,
    /// Of the routing rules in force.
    version: u64,
    /// What some requests since the last look were for.
    keys: Vec<(IndexId, Key, RecordMode)>,
}

/// A table without locks that has had more than so many at a time gives their memory back.
const LOCKS_KEPT: usize = 1024;

/// The most keys that are kept from one look to the next.
const KEYS_MAX: usize = 512;

/// What an executor was asked for since the last look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// How many requests there were.
    pub requests: u64,
    /// Of some of them the index, the first key, and the mode.
    pub keys: Vec<(IndexId, Key, RecordMode)>,
}

fn conflict(one: RecordMode, other: RecordMode) -> bool {
    one == RecordMode::Exclusive || other == RecordMode::Exclusive
}

pub(super) fn suffices(held: RecordMode, asked: RecordMode) -> bool {
    held == RecordMode::Exclusive || asked == RecordMode::Shared
}

impl Lock {
    /// What the order of locks goes by.
    pub fn place(&self) -> (IndexId, SpanRef<'_>) {
        (self.index, self.span.borrow())
    }

    fn is(&self, index: IndexId, span: SpanRef<'_>) -> bool {
        self.index == index && self.span.borrow().is(span)
    }

    fn holder(&self, owner: u16) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.owner == owner)
    }

    fn holder_mut(&mut self, owner: u16) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.owner == owner)
    }
}

impl LocalLocks {
    /// The lock on just the span of the request.
    fn find(&self, request: &Request<'_>) -> Option<u32> {
        let is = |&at: &u32| {
            count_look();
            self.locks[at as usize].is(request.index, request.span)
        };
        match request.span.is_point() {
            true => self.points.find(request.hash, is).copied(),
            false => self.wide.find(&self.locks, request.index, request.span),
        }
    }

    /// What a request came to that has waited.
    pub fn take_granted(&mut self, request: Request<'_>) -> Granted {
        let Some(at) = self.granted.iter().position(|granted| granted.owner == request.owner) else {
            return Granted { new: None, had: None, in_force: false };
        };
        let NewlyGranted { lock, had, .. } = self.granted.swap_remove(at);
        let new = had.is_none().then_some(lock);
        Granted { new, had, in_force: self.version == request.version }
    }

    /// Grants the request if it can be granted now.
    pub fn ask(&mut self, request: Request<'_>) -> Answer {
        let Request { owner, mode, version, .. } = request;
        if version != self.version {
            return Answer::Rerouted;
        }
        if self.is_idle() {
            return Answer::New(self.add(request));
        }
        let there = self.find(&request);
        // A part counts for nothing here: keys with locks of others on them may have come to it since.
        let held = there.and_then(|at| self.locks[at as usize].holder(owner)?.whole);
        if held.is_some_and(|held| suffices(held, mode)) || self.is_covered(request) {
            return Answer::Held;
        }
        if !self.is_free_for(request) {
            return Answer::Wait;
        }
        match there {
            Some(at) => self.grant(at, &request).map_or(Answer::New(at), Answer::Upgraded),
            None => Answer::New(self.add(request)),
        }
    }

    /// Keeps what a request was for.
    #[inline(never)]
    pub fn tell(&mut self, index: IndexId, span: SpanRef<'_>, mode: RecordMode) {
        if self.keys.len() < KEYS_MAX {
            self.keys.reserve_exact(KEYS_MAX - self.keys.len());
            self.keys.push((index, Key::from(span.lower()), mode));
        }
    }

    /// What was kept of requests since the last time.
    pub fn take_keys(&mut self) -> Vec<(IndexId, Key, RecordMode)> {
        self.keys.drain(..).collect()
    }

    /// Whether the request could be granted now.
    pub fn is_free_for(&mut self, request: Request<'_>) -> bool {
        if !request.span.is_point() {
            self.order.ask(&self.locks, &self.points);
        }
        !self.is_blocked(request, self.blocked.len())
    }

    /// Nobody holds anything or waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.locks.len() == self.free.len() && self.blocked.is_empty()
    }

    /// Enters a lock that the owner has by other means: the lock, if he had none on the span.
    pub fn hold(&mut self, request: Request<'_>) -> Option<u32> {
        match self.find(&request) {
            Some(at) => self.grant(at, &request).is_none().then_some(at),
            None => Some(self.add(request)),
        }
    }

    /// Grants a request for a span that has a lock. Gives the mode in which its owner held it before.
    fn grant(&mut self, at: u32, request: &Request<'_>) -> Option<RecordMode> {
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

    /// A lock has other holders, or in other modes.
    fn update(&mut self, at: u32) {
        let lock = &self.locks[at as usize];
        match lock.span.borrow().is_point() {
            _ if lock.gone => {}
            true => self.order.update(&self.locks, at),
            false => self.wide.update(&self.locks, at),
        }
    }

    /// Makes a lock on a span that has none.
    fn add(&mut self, request: Request<'_>) -> u32 {
        let (Request { index, span, hash, .. }, holder) = (request, Holder::of(&request));
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

    /// Leads to a lock no more.
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

    /// Whether the owner holds a span, strongly enough, in which the asked one lies. Such a span has the asked one's first key,
    /// so locks that begin behind that key are not looked at.
    fn is_covered(&self, Request { owner, transaction, index, span, mode, .. }: Request<'_>) -> bool {
        let may_cover = |locks: &Summary| {
            let last = &self.locks[locks.last as usize];
            locks.only_of.is_none_or(|only| only == transaction)
                && (mode == RecordMode::Shared || locks.is_exclusive)
                && !(last.index == index && last.span.borrow().ends_before(span))
        };
        let first = SpanRef::point(span.lower());
        self.wide.overlapping(&self.locks, index, first, may_cover).any(|lock| {
            lock.holder(owner).and_then(|holder| holder.whole).is_some_and(|held| suffices(held, mode))
                && lock.span.borrow().covers(span)
        })
    }

    /// The locks on keys of this span; but for some of those that `may` says do not count.
    fn overlapping<'a>(
        &'a self,
        request: Request<'a>,
        may: impl Fn(&Summary) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = &'a Lock> {
        let Request { index, span, .. } = request;
        let (point, points, ordered) = match (span.is_point(), self.order.locks()) {
            (true, _) => (self.find(&request), None, None),
            (false, None) => (None, Some(self.points.iter().copied()), None),
            (false, Some(order)) => (None, None, Some(order.overlapping(&self.locks, index, span, may))),
        };
        point
            .into_iter()
            .chain(points.into_iter().flatten())
            .inspect(|_| count_look())
            .map(|at| &self.locks[at as usize])
            .filter(move |lock| lock.index == index && lock.span.borrow().overlaps(span))
            .chain(ordered.into_iter().flatten())
            .chain(self.wide.overlapping(&self.locks, index, span, may))
    }

    /// What others hold that the request conflicts with.
    fn conflicts<'a>(&'a self, request: Request<'a>) -> impl Iterator<Item = &'a Holder> + 'a {
        let may = move |locks: &Summary| {
            locks.only_of != Some(request.transaction)
                && (request.mode == RecordMode::Exclusive || locks.is_exclusive)
        };
        self.overlapping(request, may).flat_map(|lock| lock.holders.iter()).filter(move |holder| {
            holder.transaction != request.transaction && conflict(holder.mode, request.mode)
        })
    }

    /// Whether another owner of the same transaction holds exclusively what the request is for (L14).
    #[cold]
    pub fn is_kins(&self, request: Request<'_>) -> bool {
        let may = move |locks: &Summary| {
            locks.is_exclusive && locks.only_of.is_none_or(|only| only == request.transaction)
        };
        self.overlapping(request, may).flat_map(|lock| lock.holders.iter()).any(|holder| {
            holder.transaction == request.transaction
                && holder.owner != request.owner
                && holder.mode == RecordMode::Exclusive
        })
    }

    /// Those who hold what the request conflicts with.
    fn holders_against<'a>(&'a self, request: Request<'a>) -> impl Iterator<Item = u16> + 'a {
        self.conflicts(request).map(|holder| holder.owner)
    }

    /// Those whose conflicting requests are among the first `ahead` that wait, and do not wait for this one's owner.
    fn ahead_of<'a>(&'a self, request: Request<'a>, ahead: usize) -> impl Iterator<Item = u16> + 'a {
        self.in_the_way_of(request, ahead)
            .filter(move |other| !self.waits_for(other, request.transaction))
            .map(|other| other.owner)
    }

    /// Those of the first `ahead` that wait whose requests conflict with this one.
    fn in_the_way_of<'a>(
        &'a self,
        request: Request<'a>,
        ahead: usize,
    ) -> impl Iterator<Item = &'a Blocked> + 'a {
        self.blocked[..ahead].iter().filter(move |other| {
            other.transaction != request.transaction
                && other.index == request.index
                && conflict(other.mode, request.mode)
                && other.span.borrow().overlaps(request.span)
        })
    }

    /// Whether a request that is blocked waits for what a transaction holds.
    fn waits_for(&self, blocked: &Blocked, transaction: u16) -> bool {
        self.conflicts(blocked.request()).any(|holder| holder.transaction == transaction)
    }

    fn is_blocked(&self, request: Request<'_>, ahead: usize) -> bool {
        self.holders_against(request).next().is_some() || self.ahead_of(request, ahead).next().is_some()
    }

    /// Lists a request whose answer was to wait, and the number of its owner's wait.
    pub fn enqueue(&mut self, request: Request<'_>, wait: u64) {
        let Request { owner, transaction, index, span, mode, part, hash, .. } = request;
        let span = span.to_owned();
        self.blocked.push(Blocked { owner, transaction, index, span, mode, part, hash, wait });
    }

    /// Takes a request off the list; false: it was granted before.
    pub fn withdraw(&mut self, owner: u16) -> bool {
        match self.blocked.iter().position(|blocked| blocked.owner == owner) {
            Some(at) => {
                self.blocked.remove(at);
                true
            }
            None => false,
        }
    }

    /// Gives one lock of the owner's back, and tells of those that he was given for it elsewhere.
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
        self.free.push(at);
        if rarely(self.locks.len() > LOCKS_KEPT) && self.locks.len() == self.free.len() {
            self.give_up_pools();
        }
    }

    /// Gives the memory of locks back, of which there is none.
    #[cold]
    fn give_up_pools(&mut self) {
        (self.locks, self.free, self.points) = Default::default();
        (self.order, self.wide, self.moved) = Default::default();
    }

    /// The lock is its holder's no more: tells of those that he was given for it elsewhere.
    #[inline]
    fn forget_moves(&mut self, owner: u16, at: u32, elsewhere: impl FnMut(HeldLocal)) {
        if rarely(!self.moved.is_empty())
            && let Some(moved) = self.moved.remove(&(at, owner))
        {
            moved.copies.into_iter().for_each(elsewhere);
        }
    }

    /// Gives a holder's lock to another owner. Whether he had it already; he has it in the stronger of the two modes then.
    /// Tells of those that the holder was given for it elsewhere, which are to be handed over too.
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

    /// Gives the holders of a lock of this table, those that have all of its span, the same at another executor.
    pub fn copy_to(&mut self, here: HeldLocal, executor: u16, other: &mut LocalLocks) {
        let Lock { index, span, hash, holders, .. } = &self.locks[here.lock as usize];
        for &Holder { owner, transaction, whole, .. } in holders.iter() {
            let Some(mode) = whole else { continue };
            let request = Request {
                owner,
                transaction,
                index: *index,
                span: span.borrow(),
                mode,
                version: other.version,
                part: false,
                hash: *hash,
            };
            // None: the owner has it there already, as another part of the span, and from here on that says so, too.
            if let Some(lock) = other.hold(request) {
                other.moved(lock, owner).from = Some(here);
                let moved = self.moved.entry((here.lock, owner)).or_default();
                moved.copies.push(HeldLocal { executor, lock });
            }
        }
    }

    /// What moves of keys have to do with a holder's lock.
    pub(super) fn moved(&mut self, at: u32, owner: u16) -> &mut Moved {
        self.moved.entry((at, owner)).or_default()
    }

    /// The holders of a lock that was made for them at a move of keys, and for which ones.
    pub(super) fn came_from(&self, at: u32) -> SmallVec<[(u16, HeldLocal); 4]> {
        let holders = self.locks[at as usize].holders.iter();
        holders
            .filter_map(|&Holder { owner, .. }| Some((owner, self.moved.get(&(at, owner))?.from?)))
            .collect()
    }

    /// A holder's lock has this copy no more; false: it has none such.
    pub(super) fn forget_copy(&mut self, at: u32, owner: u16, copy: HeldLocal) -> bool {
        let copies = self.moved.get_mut(&(at, owner)).map(|moved| &mut moved.copies);
        let found = copies.and_then(|copies| {
            let nth = copies.iter().position(|&other| other == copy)?;
            Some(copies.swap_remove(nth))
        });
        found.is_some()
    }

    /// The owner has the span here in the mode again that he had before a request that has failed; not in a weaker one than all of it.
    /// Whether he had more.
    pub fn fall_back(&mut self, request: Request<'_>, had: RecordMode) -> bool {
        let Some(at) = self.find(&request) else { return false };
        let Some(holder) = self.locks[at as usize].holder_mut(request.owner) else { return false };
        let had = holder.whole.filter(|&whole| !suffices(had, whole)).unwrap_or(had);
        let had_more = std::mem::replace(&mut holder.mode, had) != had;
        self.update(at);
        had_more
    }

    /// The owner has all parts of the span now, in this mode. False if the rules have changed since he began.
    pub fn make_whole(&mut self, request: Request<'_>) -> bool {
        if self.version != request.version {
            return false;
        }
        if let Some(at) = self.find(&request)
            && let Some(holder) = self.locks[at as usize].holder_mut(request.owner)
        {
            holder.make_whole(request.mode);
        }
        true
    }

    /// The keys of a lock have gone elsewhere: it is only to be released.
    pub fn retire(&mut self, at: u32) {
        self.unlist(at);
        self.locks[at as usize].gone = true;
    }

    /// Takes the requests for keys of an index, or of all, off the list, and tells whose: they are to be routed anew.
    pub fn turn_away(&mut self, index: Option<IndexId>, mut turned_away: impl FnMut(u16, u64)) {
        let gone = self.blocked.extract_if(.., |blocked| index.is_none_or(|index| blocked.index == index));
        gone.for_each(|blocked| turned_away(blocked.owner, blocked.wait));
    }

    /// The routing rules in force from now on.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Whether anybody waits.
    pub fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Takes the requests off the list whose owners have left their waits.
    pub fn drop_left(&mut self, has_left: impl Fn(u16, u64) -> bool) {
        self.blocked.retain(|blocked| !has_left(blocked.owner, blocked.wait));
    }

    /// Grants the blocked requests that no other request keeps any more, in their order. `tell` says whether the owner, who is told, waits
    /// still; if not, its request is only dropped.
    pub fn grant_waiting(&mut self, mut tell: impl FnMut(u16, u64) -> bool) {
        let mut at = 0;
        while at < self.blocked.len() {
            if !self.blocked[at].span.borrow().is_point() {
                self.order.ask(&self.locks, &self.points);
            }
            if self.is_blocked(self.blocked[at].request(), at) {
                at += 1;
                continue;
            }
            let blocked = self.blocked.remove(at);
            if !tell(blocked.owner, blocked.wait) {
                continue;
            }
            let (lock, had) = match self.find(&blocked.request()) {
                Some(lock) => (lock, self.grant(lock, &blocked.request())),
                None => (self.add(blocked.request()), None),
            };
            self.granted.push(NewlyGranted { owner: blocked.owner, lock, had });
        }
    }

    /// Who keeps the owner's request waiting, and its mode; `None`: he does not wait here.
    pub fn blockers(&self, owner: u16) -> Option<(RecordMode, Blockers)> {
        let at = self.blocked.iter().position(|blocked| blocked.owner == owner)?;
        let request = self.blocked[at].request();
        let mut holders: Vec<u16> = self.holders_against(request).collect();
        holders.sort_unstable();
        holders.dedup();
        let (mut ahead, mut alike) = (Vec::new(), Vec::new());
        let mut one_waits_for_him = false;
        for other in self.in_the_way_of(request, at) {
            if self.waits_for(other, request.transaction) {
                one_waits_for_him = true;
            } else if other.mode == request.mode && other.span.borrow().is(request.span) {
                alike.push(other.owner);
            } else {
                ahead.push(other.owner);
            }
        }
        // Of those who wait for him himself, others ahead may know.
        if one_waits_for_him {
            ahead.append(&mut alike);
        }
        Some((request.mode, Blockers { holders, ahead, alike, anonymous: false }))
    }

    /// The number of locks that are held.
    pub fn len(&self) -> usize {
        self.locks.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests;
