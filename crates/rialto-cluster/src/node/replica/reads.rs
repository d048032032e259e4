//! [`Reads`]: which transactions read at a replica that follows, and how they give way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rialto::{Database, Follower, Lsn, fault_injection};
use rialto_sql::partitions::BranchPool;

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
/// they are ended: when the replica is to lead, or its database is closed; and when the redo has stood still for some time.
///
/// 1. A transaction begins only on tables that are known to be as young as it wants.
/// 2. None begins once the replica is to lead, and each that is open is told to end then.
/// 3. While something may be redone, and nothing is, each transaction that was open when that began is told to end after a
///    bounded time.
#[derive(Default)]
pub struct Reads {
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
    readers: BTreeMap<u64, Reader>,
    stands: Option<Standing>,
}

/// A redo that has something to do, and does not get further.
#[derive(Clone, Copy)]
struct Standing {
    reached: (Lsn, u64),
    since: Instant,
}

struct Reader {
    began: Instant,
    end: Arc<ReadEnd>,
}

/// How a transaction at a replica hears that it is to end.
#[derive(Default)]
pub struct ReadEnd(Mutex<Ending>);

#[derive(Default)]
struct Ending {
    is_told: bool,
    /// Ends what it runs, and itself.
    tell: Option<Box<dyn Fn() + Send>>,
}

impl ReadEnd {
    /// What ends the transaction: called at once if it is to end already.
    pub fn set(&self, tell: impl Fn() + Send + 'static) {
        let mut ending = self.0.lock();
        if ending.is_told {
            tell();
        }
        ending.tell = Some(Box::new(tell));
    }

    /// Whether it was told to end.
    pub fn is_told(&self) -> bool {
        self.0.lock().is_told
    }

    fn tell(&self) {
        let mut ending = self.0.lock();
        if !std::mem::replace(&mut ending.is_told, true)
            && let Some(tell) = &ending.tell
        {
            tell();
        }
    }
}

/// A transaction that reads at a replica, from its begin to its end.
pub struct ReadPermit {
    reads: Arc<Reads>,
    pool: Arc<BranchPool>,
    number: u64,
    end: Arc<ReadEnd>,
}

impl ReadPermit {
    /// Where its branch is opened.
    pub fn pool(&self) -> &Arc<BranchPool> {
        &self.pool
    }

    /// The database, for reads that are short.
    pub fn database(&self) -> &Database {
        self.pool.database()
    }

    /// How it hears that it is to end.
    pub fn end(&self) -> &Arc<ReadEnd> {
        &self.end
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        if let Some(open) = &mut self.reads.state.lock().open {
            open.readers.remove(&self.number);
        }
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
    /// The replica follows, with these tables. Nothing is known of their age.
    pub fn open(&self, follower: &Arc<Follower>) {
        let open = Open {
            follower: follower.clone(),
            pool: BranchPool::new(follower.database().clone()),
            age: TableAge::default(),
            allowed: Lsn::ZERO,
            readers: BTreeMap::new(),
            stands: None,
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
            reader.end.tell();
        }
    }

    /// The primary lets the log be redone up to this place.
    pub fn allow(&self, last: Lsn) {
        if let Some(open) = &mut self.state.lock().open {
            open.allowed = last;
        }
    }

    /// Where the primary's log ended at a moment at which it was asked.
    pub fn end_known(&self, asked_at: Moment, end: Lsn) {
        if let Some(open) = &mut self.state.lock().open {
            open.age.end_known(Some(asked_at), end);
        }
        self.changed.notify_all();
    }

    /// Ends transactions for which the redo has waited for this long.
    pub fn give_way(&self, patience: Duration) {
        let mut state = self.state.lock();
        let Some(open) = &mut state.open else { return };
        let reached = (open.follower.redone(), open.follower.steps());
        let owes = reached.0 < open.allowed.min(open.follower.received());
        if !owes || open.readers.is_empty() {
            open.stands = None;
            return;
        }
        let now = Instant::now();
        let stands = open.stands.filter(|stands| stands.reached == reached);
        let Standing { since, .. } = *open.stands.insert(stands.unwrap_or(Standing { reached, since: now }));
        if now.duration_since(since) < patience || fault_injection::is_on("reads-hold-up-the-redo") {
            return;
        }
        open.stands = Some(Standing { reached, since: now });
        let older = open.readers.values().filter(|reader| reader.began <= since && !reader.end.is_told());
        let ends: Vec<_> = older.map(|reader| reader.end.clone()).collect();
        drop(state);
        // Counted first: what they hold is there for others as soon as they are told.
        self.ended.fetch_add(ends.len() as u64, Ordering::Relaxed);
        ends.iter().for_each(|end| end.tell());
    }

    /// How many transactions were told to end, since the redo had waited for them.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Begins a transaction, if the tables are as young as it wants.
    pub fn begin(self: &Arc<Reads>, wanted: Wanted, now: Moment) -> Begun {
        if !self.look_at_age(wanted.after) {
            return Begun::Closed;
        }
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        let Some(open) = &mut state.open else { return Begun::Closed };
        let oldest = open.age.as_of().filter(|as_of| now < *as_of + wanted.staleness);
        let unbounded = fault_injection::is_on("stale-reads");
        let is_behind = open.age.has(wanted.after) || fault_injection::is_on("read-before-its-position");
        let (Some(as_of), true) = (oldest.or(unbounded.then_some(now)), is_behind) else {
            return Begun::TooOld;
        };
        let end = Arc::<ReadEnd>::default();
        open.readers.insert(number, Reader { began: Instant::now(), end: end.clone() });
        let permit = ReadPermit { reads: self.clone(), pool: open.pool.clone(), number, end };
        let is_due = now >= as_of + wanted.staleness / 2;
        Begun::Yes(permit, if is_due { Renewal::Due } else { Renewal::NotYet })
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
