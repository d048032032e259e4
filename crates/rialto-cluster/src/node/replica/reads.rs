//! [`Reads`]: which transactions read at a replica that follows, and how they give way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rialto::{Follower, Lsn, fault_injection};
use rialto_sql::partitions::BranchPool;

use super::read_permit::{ReadEnd, ReadPermit};
use super::table_age::TableAge;
use crate::protocol::Moment;

/// What a transaction wants of the tables that it reads.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// They have everything that was answered longer ago than this.
    pub staleness: Duration,
    /// They have everything that was answered at or before this place.
    pub after: Lsn,
}

/// The transactions that read at a replica while it follows. They hold locks as at any database, and the redo waits for these. So
/// they are ended: when the replica is to lead, or its database is closed; and when the redo has been behind for some time.
///
/// 1. A transaction begins only on tables that are known to be as young as it wants, and that have nothing which the primary has
///    not let the log be redone to: other replicas in sync may lack that, and it may be lost.
/// 2. None begins once the replica is to lead, and each that is open is told to end then.
/// 3. Each place that may be redone is redone within twice the patience, plus what the redo itself takes: if it is not
///    redone after the patience, each transaction is told to end, and none begins until the place is redone.
pub struct Reads {
    /// How long the redo may be behind where there are transactions.
    patience: Duration,
    /// Whether the primary is about to be asked where its log ends.
    is_asked: AtomicBool,
    state: Mutex<State>,
    /// Told when the tables' age may be another one.
    changed: Condvar,
    /// How many transactions were told to end, since the redo had waited for them.
    ended: AtomicU64,
}

#[derive(Default)]
struct State {
    /// None while there are no tables to be read.
    open: Option<Open>,
    /// The number of the last transaction.
    last: u64,
}

struct Open {
    follower: Arc<Follower>,
    pool: Arc<BranchPool>,
    age: TableAge,
    /// Up to this place the primary lets the log be redone.
    allowed: Lsn,
    readers: BTreeMap<u64, Arc<ReadEnd>>,
    owed: Option<Owed>,
}

/// A place that may be redone and was not when it was looked at first.
#[derive(Clone, Copy)]
struct Owed {
    place: Lsn,
    since: Instant,
    /// Whether the transactions were told to end for it. Until it is redone none begins.
    is_late: bool,
}

impl Open {
    /// Whether a transaction may begin, however old the tables may be.
    fn admits(&self) -> bool {
        let redone = self.follower.redone();
        let is_ahead = redone > self.allowed && !fault_injection::is_on("reads-ahead-of-the-bound");
        let is_late = self.owed.is_some_and(|owed| owed.is_late && redone < owed.place);
        !is_ahead && (!is_late || fault_injection::is_on("readers-amid-a-late-redo"))
    }

    /// Since when the tables have everything that was answered, if they are as young as is wanted, and have the place.
    fn covers(&self, wanted: Wanted, now: Moment) -> Option<Moment> {
        let as_of = self.age.as_of().filter(|as_of| now < *as_of + wanted.staleness);
        let as_of = as_of.or(fault_injection::is_on("stale-reads").then_some(now))?;
        let is_behind = self.age.has(wanted.after) || fault_injection::is_on("read-before-its-position");
        is_behind.then_some(as_of)
    }
}

/// Whether a transaction can read here.
pub enum Begun {
    /// It has begun.
    Yes(ReadPermit, Renewal),
    /// The tables are too old, or their age is not known.
    TooOld,
    /// There are no tables to be read: the replica leads, say.
    Closed,
}

/// Whether the age of tables that are young enough should be asked for again, so that the next transactions need not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    NotYet,
    Due,
}

impl Reads {
    /// Those of a replica that is not open yet. The patience is how long the redo may be behind where there are
    /// transactions.
    pub fn new(patience: Duration) -> Reads {
        Reads {
            patience,
            is_asked: AtomicBool::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicU64::default(),
        }
    }

    /// The replica follows, with these tables. Nothing is known of their age.
    pub fn open(&self, follower: &Arc<Follower>) {
        let open = Open {
            follower: follower.clone(),
            pool: BranchPool::new(follower.database().clone()),
            age: TableAge::default(),
            allowed: Lsn::ZERO,
            readers: BTreeMap::new(),
            owed: None,
        };
        self.replace(Some(open));
    }

    /// The tables are not to be read any more: the replica is to lead, or its database is closed.
    pub fn close(&self) {
        if !fault_injection::is_on("reads-hold-up-a-takeover") {
            self.replace(None);
        }
    }

    fn replace(&self, open: Option<Open>) {
        let before = std::mem::replace(&mut self.state.lock().open, open);
        self.changed.notify_all();
        for reader in before.into_iter().flat_map(|open| open.readers.into_values()) {
            reader.tell();
        }
    }

    /// The primary lets the log be redone up to this place.
    pub fn allow(&self, last: Lsn) {
        if let Some(open) = &mut self.state.lock().open {
            open.allowed = open.allowed.max(last);
        }
    }

    /// Where the primary's log ended at a moment at which it was asked.
    pub fn end_known(&self, asked_at: Moment, end: Lsn) {
        if let Some(open) = &mut self.state.lock().open {
            open.age.end_known(Some(asked_at), end);
        }
        self.changed.notify_all();
    }

    /// Whether the caller is to have the primary asked where its log ends: it is not about to be asked.
    pub fn ask(&self) -> bool {
        !self.is_asked.swap(true, Ordering::SeqCst)
    }

    /// The primary is asked now, for all that have wanted it.
    pub fn takes_question(&self) {
        self.is_asked.store(false, Ordering::SeqCst);
    }

    /// Ends all transactions if the redo has been behind for too long. Called again and again, on a thread that waits for no redo.
    pub fn give_way(&self) {
        let mut state = self.state.lock();
        let Some(open) = &mut state.open else { return };
        let redone = open.follower.redone();
        let has_readers = !open.readers.is_empty();
        open.owed = open.owed.filter(|owed| redone < owed.place && (owed.is_late || has_readers));
        let (may_be, now) = (open.allowed.min(open.follower.received()), Instant::now());
        if redone >= may_be || !has_readers {
            return;
        }
        let owed = open.owed.get_or_insert(Owed { place: may_be, since: now, is_late: false });
        let is_too_soon = now.duration_since(owed.since) < self.patience;
        if owed.is_late || is_too_soon || fault_injection::is_on("reads-hold-up-the-redo") {
            return;
        }
        owed.is_late = true;
        let ends: Vec<_> = open.readers.values().filter(|end| !end.is_told()).cloned().collect();
        drop(state);
        // Counted first: what they hold is there for others as soon as they are told.
        self.ended.fetch_add(ends.len() as u64, Ordering::Relaxed);
        ends.iter().for_each(|end| end.tell());
    }

    /// How many transactions were told to end, since the redo had waited for them.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Begins a transaction, if the tables are as young as it wants at the moment that the clock tells.
    pub fn begin(self: &Arc<Reads>, wanted: Wanted, clock: impl Fn() -> Moment) -> Begun {
        if !self.look_at_age(wanted.after) {
            return Begun::Closed;
        }
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        let Some(open) = &mut state.open else { return Begun::Closed };
        // Looked at now: what came before may have taken its time.
        let now = clock();
        let (true, Some(as_of)) = (open.admits(), open.covers(wanted, now)) else { return Begun::TooOld };
        let end = Arc::<ReadEnd>::default();
        open.readers.insert(number, end.clone());
        let permit = ReadPermit::new(self.clone(), open.pool.clone(), number, end);
        let is_due = now >= as_of + wanted.staleness / 2;
        Begun::Yes(permit, if is_due { Renewal::Due } else { Renewal::NotYet })
    }

    /// Whether the tables are young enough now for what a transaction reads next, which has begun here.
    pub fn is_young(&self, wanted: Wanted, clock: impl Fn() -> Moment) -> bool {
        self.look_at_age(wanted.after)
            && self.state.lock().open.as_ref().is_some_and(|open| open.covers(wanted, clock()).is_some())
    }

    /// A transaction has ended.
    pub(super) fn has_ended(&self, number: u64) {
        if let Some(open) = &mut self.state.lock().open {
            open.readers.remove(&number);
        }
    }

    /// Looks at what was redone meanwhile, without holding up the replica. False if there are no tables.
    fn look_at_age(&self, after: Lsn) -> bool {
        let follower = {
            let mut state = self.state.lock();
            let Some(open) = &mut state.open else { return false };
            if !open.age.has(after) {
                open.age.wait_for(after);
            }
            let is_due = open.age.is_due(open.follower.redone());
            is_due.then(|| open.follower.clone())
        };
        let Some(follower) = follower else { return true };
        // What is redone is looked at first: its prepared transactions are then among those that are found, or have ended.
        let redone = follower.redone();
        let Ok(prepared) = follower.prepared() else { return true };
        if let Some(open) = &mut self.state.lock().open
            && Arc::ptr_eq(&open.follower, &follower)
        {
            open.age.redone(redone, &prepared);
        }
        true
    }

    /// Waits until the tables' age may be another one.
    pub fn wait(&self, patience: Duration) {
        self.changed.wait_for(&mut self.state.lock(), patience);
    }

    /// How many transactions are open.
    pub fn readers(&self) -> usize {
        self.state.lock().open.as_ref().map_or(0, |open| open.readers.len())
    }
}

#[cfg(test)]
mod tests;
