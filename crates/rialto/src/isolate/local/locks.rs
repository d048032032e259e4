//! [`LocalLocks`]: a local lock table, with the locks that are held on one executor's datasets and the requests that
//! wait.
//!
//! Everything here runs under the executor's latch.

use super::super::central::head::Blockers;
use super::super::mode::RecordMode;
use super::HeldLocal;
use super::held::{HeldLocks, conflict};
use super::span::{Span, SpanRef};
use crate::ids::IndexId;
use crate::row::Key;

/// A request for a span.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct LocalRequest<'a> {
    pub owner: u16,
    /// The owner that stands for the transaction: the same one, unless it runs a part of a phase. Owners of one
    /// transaction do not conflict with each other.
    pub transaction: u16,
    pub index: IndexId,
    pub span: SpanRef<'a>,
    pub mode: RecordMode,
    /// The version of the routing rules by which it was routed here.
    pub version: u64,
    /// The span has keys at other executors too.
    pub part: bool,
    /// The hash of index and key, if the span is one key ([`Seed::hash_of`](super::Seed::hash_of)).
    pub hash: u64,
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum LocalAnswer {
    /// The owner has the span already, by a lock on it or on a wider one.
    Held,
    /// Granted as this lock.
    New(u32),
    /// Granted by strengthening a lock that the owner had in this mode.
    Upgraded(RecordMode),
    Wait,
    /// The routing rules have changed since the request was routed.
    Rerouted,
    /// Another owner of the same transaction holds keys of the span exclusively (L14).
    Split,
}

/// The outcome of a request that has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Granted {
    /// The lock that the owner holds now and did not before.
    pub new: Option<u32>,
    /// The mode in which the owner held it before.
    pub had: Option<RecordMode>,
    /// It was granted, and by the routing rules that are still in force.
    pub in_force: bool,
}

#[derive(Debug)]
struct NewlyGranted {
    owner: u16,
    /// The number of its wait.
    wait: u64,
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
    fn request(&self) -> LocalRequest<'_> {
        let Blocked { owner, transaction, index, ref span, mode, part, hash, .. } = *self;
        LocalRequest { owner, transaction, index, span: span.borrow(), mode, version: 0, part, hash }
    }

    /// Whether it waits for a lock that a transaction holds.
    fn waits_for(&self, transaction: u16, held: &mut HeldLocks) -> bool {
        held.holds_against(transaction, self.request())
    }
}

/// The waiting requests that conflict with this one.
fn in_the_way_of<'a>(request: LocalRequest<'a>, waiting: &'a [Blocked]) -> impl Iterator<Item = &'a Blocked> {
    waiting.iter().filter(move |other| {
        other.transaction != request.transaction
            && other.index == request.index
            && conflict(other.mode, request.mode)
            && other.span.borrow().overlaps(request.span)
    })
}

/// Whether a request has to wait: for a lock of another transaction, or for a request ahead of it that does not wait
/// for its transaction.
fn is_blocked(held: &mut HeldLocks, ahead: &[Blocked], request: LocalRequest<'_>) -> bool {
    held.conflicts_with(request)
        || in_the_way_of(request, ahead).any(|other| !other.waits_for(request.transaction, held))
}

/// A local lock table: spans of keys in shared and exclusive mode, and the blocked requests in their order.
///
/// Rule (L1 for spans): a request is granted exactly when it is compatible with all locks of other transactions on
/// spans that overlap its own, and with the requests ahead of it that do not wait for its own transaction. (It cannot
/// wait for those: they go on only after it.) So an owner that has a part of a span passes the queue when it asks for
/// more.
#[derive(Debug, Default)]
pub(in super::super) struct LocalLocks {
    /// What is held.
    pub held: HeldLocks,
    blocked: Vec<Blocked>,
    /// Requests that were granted after a wait, until their owners have taken note.
    granted: Vec<NewlyGranted>,
    /// The version of the routing rules in force.
    version: u64,
    /// The subjects of some requests since the last sample.
    keys: Vec<(IndexId, Key, RecordMode)>,
}

/// The most keys that are kept between two samples.
const KEYS_MAX: usize = 512;

/// The requests at an executor since the last sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The number of requests.
    pub requests: u64,
    /// The index, the first key and the mode of some of them.
    pub keys: Vec<(IndexId, Key, RecordMode)>,
}

impl LocalLocks {
    /// The outcome of a request after a wait of this number.
    pub fn take_granted(&mut self, request: LocalRequest<'_>, wait: u64) -> Granted {
        let is_this = |granted: &NewlyGranted| granted.owner == request.owner && granted.wait == wait;
        let Some(at) = self.granted.iter().position(is_this) else {
            return Granted { new: None, had: None, in_force: false };
        };
        let NewlyGranted { lock, had, .. } = self.granted.swap_remove(at);
        let new = had.is_none().then_some(lock);
        Granted { new, had, in_force: self.version == request.version }
    }

    /// The lock that the owner is about to release or to hand over, with its number. None: there is nothing to
    /// release, because the request strengthened a lock that the owner lists already, or was turned away.
    pub fn noted(&mut self, owner: u16, held: HeldLocal) -> Option<HeldLocal> {
        if held.lock & HeldLocal::NOT_NOTED == 0 {
            return Some(held);
        }
        let is_this = |granted: &NewlyGranted| {
            granted.owner == owner && HeldLocal::of_wait(held.executor, granted.wait) == held
        };
        let at = self.granted.iter().position(is_this)?;
        let NewlyGranted { lock, had, .. } = self.granted.swap_remove(at);
        had.is_none().then_some(HeldLocal { lock, ..held })
    }

    /// Grants the request if it can be granted now.
    pub fn ask(&mut self, request: LocalRequest<'_>) -> LocalAnswer {
        if request.version != self.version {
            return LocalAnswer::Rerouted;
        }
        if self.is_idle() {
            return LocalAnswer::New(self.held.add(request));
        }
        let there = self.held.find(&request);
        if self.held.has_all(request, there) {
            return LocalAnswer::Held;
        }
        if !self.is_free_for(request) {
            return LocalAnswer::Wait;
        }
        match there {
            Some(at) => self.held.grant(at, &request).map_or(LocalAnswer::New(at), LocalAnswer::Upgraded),
            None => LocalAnswer::New(self.held.add(request)),
        }
    }

    /// Whether any owner, the asking one included, has a lock on exactly this span.
    pub fn has_lock_on(&self, request: &LocalRequest<'_>) -> bool {
        self.held.find(request).is_some()
    }

    /// Keeps the subject of a request for the next sample.
    #[inline(never)]
    pub fn tell(&mut self, index: IndexId, span: SpanRef<'_>, mode: RecordMode) {
        if self.keys.len() < KEYS_MAX {
            self.keys.reserve_exact(KEYS_MAX - self.keys.len());
            self.keys.push((index, Key::from(span.lower()), mode));
        }
    }

    /// Takes the subjects of requests that were kept since the last sample.
    pub fn take_keys(&mut self) -> Vec<(IndexId, Key, RecordMode)> {
        self.keys.drain(..).collect()
    }

    /// Whether the request could be granted now.
    pub fn is_free_for(&mut self, request: LocalRequest<'_>) -> bool {
        !is_blocked(&mut self.held, &self.blocked, request)
    }

    /// Whether no lock is held and no request waits.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.blocked.is_empty()
    }

    /// Lists a request that was told to wait, with the number of its owner's wait.
    pub fn enqueue(&mut self, request: LocalRequest<'_>, wait: u64) {
        let LocalRequest { owner, transaction, index, span, mode, part, hash, .. } = request;
        let span = span.to_owned();
        self.blocked.push(Blocked { owner, transaction, index, span, mode, part, hash, wait });
    }

    /// Takes an owner's request off the list; false: it was granted before.
    pub fn withdraw(&mut self, owner: u16) -> bool {
        match self.blocked.iter().position(|blocked| blocked.owner == owner) {
            Some(at) => {
                self.blocked.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes the requests for keys of an index, or of all, off the list, and tells their owners that they are to be
    /// routed again.
    pub fn turn_away(&mut self, index: Option<IndexId>, mut turned_away: impl FnMut(u16, u64)) {
        let gone = self.blocked.extract_if(.., |blocked| index.is_none_or(|index| blocked.index == index));
        gone.for_each(|blocked| turned_away(blocked.owner, blocked.wait));
    }

    /// The routing rules in force from now on.
    pub fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Whether any request waits.
    pub fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Drops the requests whose owners have left their waits.
    pub fn drop_left(&mut self, has_left: impl Fn(u16, u64) -> bool) {
        self.blocked.retain(|blocked| !has_left(blocked.owner, blocked.wait));
    }

    /// Grants the blocked requests that no longer conflict, in their order. `tell` tells the owner, and says whether
    /// that still waits; if it does not, its request is only dropped.
    pub fn grant_waiting(&mut self, mut tell: impl FnMut(u16, u64) -> bool) {
        let mut at = 0;
        while at < self.blocked.len() {
            let (ahead, rest) = self.blocked.split_at(at);
            if is_blocked(&mut self.held, ahead, rest[0].request()) {
                at += 1;
                continue;
            }
            let blocked = self.blocked.remove(at);
            if !tell(blocked.owner, blocked.wait) {
                continue;
            }
            let (lock, had) = match self.held.find(&blocked.request()) {
                Some(lock) => (lock, self.held.grant(lock, &blocked.request())),
                None => (self.held.add(blocked.request()), None),
            };
            self.granted.push(NewlyGranted { owner: blocked.owner, wait: blocked.wait, lock, had });
        }
    }

    /// What keeps the owner's request waiting, and its mode; `None`: it does not wait here. For a transaction that
    /// holds locks, the owner that stands for it is given.
    pub fn blockers(&mut self, owner: u16) -> Option<(RecordMode, Blockers)> {
        let at = self.blocked.iter().position(|blocked| blocked.owner == owner)?;
        let request = self.blocked[at].request();
        let holders = self.held.holders_against(request);
        let (mut ahead, mut alike) = (Vec::new(), Vec::new());
        let mut one_waits_for_it = false;
        for other in in_the_way_of(request, &self.blocked[..at]) {
            if other.waits_for(request.transaction, &mut self.held) {
                one_waits_for_it = true;
            } else if other.mode == request.mode && other.span.borrow().is(request.span) {
                alike.push(other.owner);
            } else {
                ahead.push(other.owner);
            }
        }
        // A request for the same span may have to wait for one that waits for this owner, while this request does not
        // wait for that one.
        if one_waits_for_it {
            ahead.append(&mut alike);
        }
        Some((request.mode, Blockers { holders, ahead, alike, anonymous: false }))
    }

    /// Notes that the owner has all parts of the span now, in this mode. False if the rules have changed since the
    /// request was routed.
    pub fn make_whole(&mut self, request: LocalRequest<'_>) -> bool {
        let is_in_force = self.version == request.version;
        if is_in_force {
            self.held.make_whole(request);
        }
        is_in_force
    }
}

#[cfg(test)]
mod tests;
