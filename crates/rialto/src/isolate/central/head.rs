//! Lock heads: one lock's holders and its queue, and the hash of heads that makes up a partition.
//!
//! Everything here runs under the partition's latch. Heads are pooled: a lock without holders and waiters has none,
//! and making one allocates nothing once the partition has had as many locks at a time, up to a bound. Memory beyond
//! the bound is given back with the last lock.

use smallvec::SmallVec;

use super::super::mode::{LockMode, MODES, ModeSet};
use super::super::name::HeadName;
use crate::probes::count_probe;
use crate::unlikely::unlikely;

/// "No head": the end of a bucket's chain or of the free list.
const NONE: u32 = u32::MAX;

/// A partition that has had more locks at a time than this gives their memory back once it has none.
pub(in super::super) const HEADS_KEPT: usize = 128;

/// One owner's granted lock.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Grant {
    pub(in super::super) owner: u16,
    pub(in super::super) mode: LockMode,
}

/// Whether a waiting request comes from a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum RequestKind {
    /// Waits for conflicting holders and for conflicting requests ahead of it.
    New,
    /// Waits for conflicting holders only.
    Upgrade,
}

/// A request that waits.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct LockRequest {
    pub(in super::super) owner: u16,
    /// For an upgrade, the join of the mode that is held and the one that is requested.
    pub(in super::super) mode: LockMode,
    pub(in super::super) kind: RequestKind,
    /// How often its owner was told to ask again and found the lock taken.
    pub(in super::super) retries: u32,
}

/// A request that was told to ask again, and found the lock taken, this many times is granted the lock in the queue.
const RETRIES_MAX: u32 = 3;

/// What a waiting request is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum WaitOutcome {
    /// This owner has the lock.
    Granted(u16),
    /// The lock is free, and this owner is to ask again.
    Retry(u16),
}

/// Why waiting requests may be granted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Release {
    /// A transaction has ended, or has given one lock back, or a request was withdrawn.
    Ordinary,
    /// A transaction was aborted to end a deadlock.
    Victim,
}

/// The answer of a head to a request.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum LockAnswer {
    Held,
    New,
    Upgraded,
    /// It has to wait, in this form.
    Wait(LockRequest),
}

/// The owners that keep a request waiting.
#[derive(Debug, Default)]
pub(in super::super) struct Blockers {
    /// The holders. For a transaction in parts that holds local locks, the owner that stands for it.
    pub(in super::super) holders: Vec<u16>,
    /// The owners of conflicting requests ahead of it.
    pub(in super::super) ahead: Vec<u16>,
    /// The owners of equal requests ahead of it. What keeps one of them waiting keeps this request waiting as well.
    pub(in super::super) alike: Vec<u16>,
    /// Whether there are sharers among the holders that only their own lists name.
    pub(in super::super) anonymous: bool,
}

/// One lock: its holders and the requests that wait.
#[derive(Debug)]
pub(in super::super) struct Head {
    name: HeadName,
    /// The next head in the bucket's chain, or in the free list.
    next: u32,
    /// The number of holders in each mode, the anonymous sharers included.
    counts: [u32; MODES],
    /// The modes whose count is not 0.
    modes: ModeSet,
    /// Sharers that a record's word only counted when the lock was inflated; their own lists name them.
    anonymous: u32,
    granted: SmallVec<[Grant; 4]>,
    waiting: Vec<LockRequest>,
    /// The owner that was told to ask again and has not done so yet. Requests that wait behind it rely on it.
    retrying: Option<u16>,
}

impl Head {
    fn new(name: HeadName) -> Head {
        Head {
            name,
            next: NONE,
            counts: [0; MODES],
            modes: 0,
            anonymous: 0,
            granted: SmallVec::new(),
            waiting: Vec::new(),
            retrying: None,
        }
    }

    /// Grants the request if it can be granted now. Otherwise says in which form it has to wait.
    #[inline]
    pub(in super::super) fn ask(&mut self, owner: u16, mode: LockMode) -> LockAnswer {
        if self.modes == 0 && self.waiting.is_empty() {
            self.add(owner, mode);
            return LockAnswer::New;
        }
        self.ask_shared(owner, mode)
    }

    fn ask_shared(&mut self, owner: u16, mode: LockMode) -> LockAnswer {
        if let Some(at) = self.grant_of(owner) {
            let held = self.granted[at].mode;
            let joined = held.join(mode);
            if joined == held {
                return LockAnswer::Held;
            }
            let request = LockRequest { owner, mode: joined, kind: RequestKind::Upgrade, retries: 0 };
            if self.fits(&request, 0) {
                self.grant(&request);
                return LockAnswer::Upgraded;
            }
            return LockAnswer::Wait(request);
        }
        let request = LockRequest { owner, mode, kind: RequestKind::New, retries: 0 };
        let ahead = match self.modes {
            // The lock is free: the first request that asks gets it.
            0 => 0,
            _ => self.waiting.iter().fold(0, |set, request| set | request.mode.bit()),
        };
        if self.fits(&request, ahead) {
            self.add(owner, mode);
            return LockAnswer::New;
        }
        LockAnswer::Wait(request)
    }

    /// L1: whether the request can be granted; `ahead` are the modes of the requests before it.
    fn fits(&self, request: &LockRequest, ahead: ModeSet) -> bool {
        match request.kind {
            RequestKind::New => request.mode.conflicts() & (self.modes | ahead) == 0,
            RequestKind::Upgrade => request.mode.conflicts() & self.modes_of_others(request.owner) == 0,
        }
    }

    /// The modes that owners other than `owner` hold.
    fn modes_of_others(&self, owner: u16) -> ModeSet {
        match self.grant_of(owner) {
            Some(at) if self.counts[self.granted[at].mode as usize] == 1 => {
                self.modes & !self.granted[at].mode.bit()
            }
            _ => self.modes,
        }
    }

    fn grant_of(&self, owner: u16) -> Option<usize> {
        self.granted.iter().position(|grant| grant.owner == owner)
    }

    #[inline]
    fn add(&mut self, owner: u16, mode: LockMode) {
        self.granted.push(Grant { owner, mode });
        self.count(mode);
    }

    /// Takes over a lock that was granted in another form.
    pub(in super::super) fn adopt(&mut self, owner: u16, mode: LockMode) {
        self.add(owner, mode);
    }

    /// Takes over `sharers` shared locks of owners that are not known here.
    pub(in super::super) fn adopt_anonymous(&mut self, sharers: u32) {
        self.anonymous += sharers;
        (0..sharers).for_each(|_| self.count(LockMode::Shared));
    }

    /// Turns one of the anonymous shared locks into that of `owner`.
    pub(in super::super) fn name_anonymous(&mut self, owner: u16) {
        self.anonymous -= 1;
        self.granted.push(Grant { owner, mode: LockMode::Shared });
    }

    /// Drops one anonymous shared lock.
    pub(in super::super) fn release_anonymous(&mut self) {
        self.anonymous -= 1;
        self.discount(LockMode::Shared);
    }

    /// Whether `owner` is a holder that is known here.
    pub(in super::super) fn names(&self, owner: u16) -> bool {
        self.grant_of(owner).is_some()
    }

    #[inline]
    fn count(&mut self, mode: LockMode) {
        self.counts[mode as usize] += 1;
        self.modes |= mode.bit();
    }

    #[inline]
    fn discount(&mut self, mode: LockMode) {
        self.counts[mode as usize] -= 1;
        if self.counts[mode as usize] == 0 {
            self.modes &= !mode.bit();
        }
    }

    fn grant(&mut self, request: &LockRequest) {
        match self.grant_of(request.owner) {
            Some(at) => {
                let old = std::mem::replace(&mut self.granted[at].mode, request.mode);
                self.discount(old);
                self.count(request.mode);
            }
            None => self.add(request.owner, request.mode),
        }
        debug_assert!(self.holders_get_along(), "L1: {self:?}");
    }

    fn holders_get_along(&self) -> bool {
        self.granted.iter().enumerate().all(|(at, one)| {
            self.granted[..at]
                .iter()
                .all(|other| one.mode.conflicts() & other.mode.bit() == 0 && one.owner != other.owner)
        })
    }

    /// Puts a request that has to wait into the queue. A new one goes to the end; an upgrade, and a request that has
    /// been first before, go behind the upgrades.
    pub(in super::super) fn enqueue(&mut self, request: LockRequest) {
        let at = match request {
            LockRequest { kind: RequestKind::New, retries: 0, .. } => self.waiting.len(),
            _ => self.waiting.iter().take_while(|r| r.kind == RequestKind::Upgrade).count(),
        };
        self.waiting.insert(at, request);
    }

    /// Notes that an owner that was told to ask again is about to do so.
    pub(in super::super) fn come_back(&mut self, owner: u16) {
        self.retrying.take_if(|retrying| *retrying == owner);
    }

    /// Drops `owner`'s grant; false: it had none.
    #[inline]
    pub(in super::super) fn release(&mut self, owner: u16) -> bool {
        let Some(at) = self.grant_of(owner) else { return false };
        let grant = self.granted.swap_remove(at);
        self.discount(grant.mode);
        true
    }

    /// Withdraws `owner`'s waiting request.
    pub(in super::super) fn withdraw(&mut self, owner: u16) {
        self.waiting.retain(|request| request.owner != owner);
    }

    /// Grants every waiting request that can be granted now, in order, and tells `tell` of each.
    ///
    /// A free record is not granted to an exclusive request, or only after [`RETRIES_MAX`] retries: that request's
    /// owner is told to ask again, and the first request that asks gets the lock. If the lock were granted to a
    /// thread that sleeps, it would be held until that thread has a processor; with more threads than processors all
    /// threads would then wait for each other in turn (a lock convoy).
    ///
    /// An exception is what a deadlock's victim releases, which is granted: the victim runs again at once, and would
    /// take the lock from the owner that it was aborted for, into the same deadlock.
    #[inline]
    pub(in super::super) fn grant_waiting(&mut self, by: Release, tell: impl FnMut(WaitOutcome)) {
        if !self.waiting.is_empty() {
            self.grant_queue(by, tell);
        }
    }

    /// The owners that wait.
    pub(in super::super) fn waiting(&self) -> impl Iterator<Item = u16> {
        self.waiting.iter().map(|request| request.owner)
    }

    #[cold]
    fn grant_queue(&mut self, by: Release, mut tell: impl FnMut(WaitOutcome)) {
        let first = self.waiting[0];
        if self.modes == 0
            && by != Release::Victim
            && first.mode == LockMode::Exclusive
            && first.retries < RETRIES_MAX
            && !self.name.is_table()
        {
            if self.retrying.is_none() {
                self.waiting.remove(0);
                self.retrying = Some(first.owner);
                tell(WaitOutcome::Retry(first.owner));
            }
            return;
        }
        let mut ahead: ModeSet = 0;
        let mut at = 0;
        while at < self.waiting.len() {
            let request = self.waiting[at];
            if self.fits(&request, ahead) {
                self.waiting.remove(at);
                self.grant(&request);
                tell(WaitOutcome::Granted(request.owner));
            } else {
                ahead |= request.mode.bit();
                at += 1;
            }
        }
    }

    /// The owners that keep `owner`'s waiting request from being granted: L1's negation. `None`: it does not wait
    /// here.
    pub(in super::super) fn blockers(&self, owner: u16) -> Option<(LockMode, Blockers)> {
        let at = self.waiting.iter().position(|request| request.owner == owner)?;
        let request = self.waiting[at];
        let in_conflict = |other: LockMode| request.mode.conflicts() & other.bit() != 0;
        let mut blockers = Blockers {
            anonymous: self.anonymous > 0 && in_conflict(LockMode::Shared),
            ..Blockers::default()
        };
        blockers
            .holders
            .extend(self.granted.iter().filter(|g| g.owner != owner && in_conflict(g.mode)).map(|g| g.owner));
        if request.kind == RequestKind::New {
            blockers.ahead.extend(self.waiting[..at].iter().filter(|r| in_conflict(r.mode)).map(|r| r.owner));
        }
        Some((request.mode, blockers))
    }

    /// Whether the lock is free and an owner is about to ask for it again.
    pub(in super::super) fn is_retried(&self) -> bool {
        self.modes == 0 && self.retrying.is_some()
    }

    #[inline]
    pub(in super::super) fn is_idle(&self) -> bool {
        self.modes == 0 && self.waiting.is_empty()
    }
}

/// A partition: the heads whose names fall into it.
#[derive(Debug)]
pub(in super::super) struct Heads {
    /// The first head of each chain; a power of two of them.
    buckets: Vec<u32>,
    heads: Vec<Head>,
    free: u32,
    used: usize,
}

impl Default for Heads {
    fn default() -> Heads {
        Heads { buckets: vec![NONE; 8], heads: Vec::new(), free: NONE, used: 0 }
    }
}

impl Heads {
    #[inline]
    fn bucket(&self, name: HeadName) -> usize {
        name.spread() as usize & (self.buckets.len() - 1)
    }

    /// The head of `name`, if it is held or waited for.
    #[inline]
    pub(in super::super) fn find(&self, name: HeadName) -> Option<u32> {
        self.find_in(self.bucket(name), name)
    }

    #[inline]
    fn find_in(&self, bucket: usize, name: HeadName) -> Option<u32> {
        let mut at = self.buckets[bucket];
        while let Some(head) = self.heads.get(at as usize) {
            count_probe();
            if head.name == name {
                return Some(at);
            }
            at = head.next;
        }
        None
    }

    /// The head of `name`; a new one if there was none. It keeps its number while it is held or waited for.
    #[inline]
    pub(in super::super) fn find_or_insert(&mut self, name: HeadName) -> u32 {
        let bucket = self.bucket(name);
        match self.find_in(bucket, name) {
            Some(at) => at,
            None => self.insert(bucket, name),
        }
    }

    #[inline]
    fn insert(&mut self, bucket: usize, name: HeadName) -> u32 {
        if self.free == NONE {
            return self.insert_beyond(name);
        }
        let at = self.free;
        let head = &mut self.heads[at as usize];
        self.free = head.next;
        head.name = name;
        head.next = std::mem::replace(&mut self.buckets[bucket], at);
        self.used += 1;
        at
    }

    /// Makes a head, and adds buckets if there would be fewer buckets than heads.
    #[cold]
    fn insert_beyond(&mut self, name: HeadName) -> u32 {
        if self.heads.len() == self.buckets.len() {
            self.grow();
        }
        let at = self.heads.len() as u32;
        self.heads.push(Head::new(name));
        let bucket = self.bucket(name);
        self.heads[at as usize].next = std::mem::replace(&mut self.buckets[bucket], at);
        self.used += 1;
        at
    }

    fn grow(&mut self) {
        let mut old = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; old.len() * 2];
        for first in old.drain(..) {
            let mut at = first;
            while at != NONE {
                let next = self.heads[at as usize].next;
                let bucket = self.bucket(self.heads[at as usize].name);
                self.heads[at as usize].next = std::mem::replace(&mut self.buckets[bucket], at);
                at = next;
            }
        }
    }

    /// Notes that an owner that was told to ask again for the lock of `name` is about to do so.
    pub(in super::super) fn come_back(&mut self, name: HeadName, owner: u16) {
        if let Some(at) = self.find(name) {
            self.at(at).come_back(owner);
        }
    }

    #[inline]
    pub(in super::super) fn at(&mut self, at: u32) -> &mut Head {
        &mut self.heads[at as usize]
    }

    pub(in super::super) fn get(&self, at: u32) -> &Head {
        &self.heads[at as usize]
    }

    /// Gives the head back to the pool if it has no holders and no waiters. Whether it did.
    #[inline]
    pub(in super::super) fn retire_if_idle(&mut self, at: u32) -> bool {
        let idle = self.heads[at as usize].is_idle();
        if idle {
            self.retire(at);
        }
        idle
    }

    /// Releases the lock and gives its head back, if `owner` is the only holder and no request waits. Otherwise does
    /// nothing.
    #[inline]
    pub(in super::super) fn release_sole(&mut self, at: u32, owner: u16) -> bool {
        let head = &mut self.heads[at as usize];
        if head.granted.len() != 1 || head.anonymous != 0 || !head.waiting.is_empty() {
            return false;
        }
        let Some(grant) = head.granted.pop() else { return false };
        debug_assert_eq!(grant.owner, owner, "a lock is released by its owner");
        head.counts[grant.mode as usize] = 0;
        head.modes = 0;
        self.retire(at);
        true
    }

    #[inline]
    fn retire(&mut self, at: u32) {
        let Head { name, next, .. } = self.heads[at as usize];
        let bucket = self.bucket(name);
        if self.buckets[bucket] == at {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.heads[before as usize].next != at {
                before = self.heads[before as usize].next;
            }
            self.heads[before as usize].next = next;
        }
        let head = &mut self.heads[at as usize];
        (head.next, head.retrying) = (self.free, None);
        self.free = at;
        self.used -= 1;
        if unlikely(self.heads.len() > HEADS_KEPT) && self.used == 0 {
            *self = Heads::default();
        }
    }

    /// The number of locks that there is room for.
    #[cfg(test)]
    pub(in super::super) fn capacity(&self) -> usize {
        self.heads.capacity().max(self.buckets.capacity())
    }

    /// The number of locks that are held or waited for.
    pub(in super::super) fn len(&self) -> usize {
        self.used
    }
}
