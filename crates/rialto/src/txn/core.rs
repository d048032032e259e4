//! [`Core`]: what the transactions of an open database share.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use crossbeam_utils::atomic::AtomicCell;
use parking_lot::Mutex;

use super::context::{Choices, Context};
use super::options::TxOptions;
use super::prepared::PreparedTransactions;
use super::redo_steps::RedoSteps;
use super::releases::{DeferredRelease, Releases};
use super::two_stage::TwoStages;
use crate::commit::{CommitPath, Logging};
use crate::error::{Error, Result};
use crate::foreign::Progress;
use crate::io::{Clock, thread_number};
use crate::isolate::LockManager;
use crate::log::{Durability, Patience, PoolOwner};
use crate::reply::{LogLease, Ticket};
use crate::store::Storage;
use crate::unlikely::unlikely;

/// A core behind a count of its own, one for each context, so that tickets of different threads touch different counts.
#[derive(Clone)]
pub(crate) struct Lease(Arc<LeasedCore>);

struct LeasedCore(Arc<Core>);

impl Lease {
    pub fn new(core: &Arc<Core>) -> Lease {
        Lease(Arc::new(LeasedCore(core.clone())))
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.0.0
    }
}

impl std::ops::Deref for Lease {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0.0
    }
}

/// What the transactions of an open database share.
pub(crate) struct Core {
    pub storage: Storage,
    pub commits: CommitPath,
    pub locks: LockManager,
    pub contexts: Contexts,
    /// Contexts for the parts of transactions, which threads run at the same time.
    pub part_contexts: Contexts,
    /// A home packet for each of these contexts.
    pub part_packets: PoolOwner,
    /// Transactions that wait for the decision of others.
    pub prepared: PreparedTransactions,
    /// How far the redo of a followed log has got.
    pub redo_steps: RedoSteps,
    /// Deferred releases, of transactions that have ended where their locks could not be released.
    pub releases: Arc<Releases>,
    /// The clock by which transactions wait and measure their times.
    pub clock: Clock,
    /// Two-stage execution, on the engine that has it.
    pub stages: Option<Box<TwoStages>>,
    pub defaults: TxDefaults,
}

/// The defaults and bounds of transactions.
pub(crate) struct TxDefaults {
    pub durability: Durability,
    pub lock_timeout: Duration,
    pub log_wait_max: Duration,
    pub write_set_bytes_max: usize,
    pub packet_slots: usize,
    pub transactions_max: usize,
    /// How often a deadlock's victim runs again.
    pub deadlock_retries_max: u32,
    /// How long a transaction that straddled a checkpoint waits before it runs again.
    pub straddling_retry: Duration,
    /// Whether the checkpoint copies next what was in its way.
    pub straddling_hints: bool,
    /// Receives lines about definitions that take long.
    pub progress: Option<Progress>,
}

impl Core {
    pub fn choices(&self, options: &TxOptions) -> Choices {
        Choices {
            durability: self.commits.durability(options.durability.unwrap_or(self.defaults.durability)),
            lock_timeout: options.lock_timeout.unwrap_or(self.defaults.lock_timeout),
            procedure: options.procedure.unwrap_or_default(),
            read_only: options.read_only,
            lock_wait: options.lock_wait,
            operations: self.commits.logging == Logging::Action,
        }
    }

    /// A ticket that is done when everything that has its place by now is as durable as the options ask. It is for a
    /// caller that does not know what exactly was read.
    pub fn settle_all(&self, options: &TxOptions) -> Ticket {
        let durability = self.choices(options).durability;
        let lease = LogLease::new(&self.commits.log, &self.commits.accounts);
        Ticket::new(lease, self.commits.log.place(), durability, Patience::default())
    }

    /// Whether transactions may have stages: there are disk-resident tables.
    #[inline(always)]
    pub fn has_stages(&self) -> bool {
        self.stages.is_some() && self.storage.disk_tables.are_there()
    }

    /// A context for a transaction.
    #[inline(always)]
    pub fn lend(self: &Arc<Core>) -> Result<Box<Context>> {
        self.contexts.lend(self)
    }
}

/// Pools of contexts; a thread keeps to its own pool while that has one.
///
/// Invariant: a request fails only if it has found every pool empty, and no context came back meanwhile.
pub(crate) struct Contexts {
    pools: Box<[CachePadded<Pool>]>,
    made: AtomicUsize,
    max: usize,
    /// How many threads look for a context in all pools, and whether the pools were [`CLOSED`]. A thread that returns a
    /// context reads this.
    looking: AtomicUsize,
    /// How many contexts came back while some thread was looking.
    came_back: AtomicUsize,
    /// A bug that tests put back: what parts of transactions have read has no side.
    #[cfg(test)]
    pub forgets_parts: AtomicBool,
}

/// The context that came back last is kept in a cell of its own: one exchange takes it or puts it.
#[allow(clippy::vec_box, reason = "contexts are lent in their boxes")]
#[derive(Default)]
struct Pool {
    last: AtomicCell<Option<Box<Context>>>,
    others: Mutex<Vec<Box<Context>>>,
}

const _: () = assert!(AtomicCell::<Option<Box<Context>>>::is_lock_free());

impl Pool {
    #[inline]
    fn take(&self) -> Option<Box<Context>> {
        self.last.take().or_else(|| self.others.lock().pop())
    }

    #[inline]
    fn put(&self, context: Box<Context>) {
        if let Some(before) = self.last.swap(Some(context)) {
            self.others.lock().push(before);
        }
    }
}

const POOLS: usize = 32;
const CLOSED: usize = 1 << (usize::BITS - 1);

impl Contexts {
    pub fn new(max: usize) -> Contexts {
        Contexts {
            pools: (0..POOLS).map(|_| CachePadded::default()).collect(),
            made: AtomicUsize::new(0),
            max,
            looking: AtomicUsize::new(0),
            came_back: AtomicUsize::new(0),
            #[cfg(test)]
            forgets_parts: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub fn lend(&self, core: &Arc<Core>) -> Result<Box<Context>> {
        core.storage.check_open()?;
        let own = thread_number() % POOLS;
        match self.pools[own].take() {
            Some(context) => Ok(context),
            None => self.take_elsewhere(core, own),
        }
    }

    #[cold]
    fn take_elsewhere(&self, core: &Arc<Core>, own: usize) -> Result<Box<Context>> {
        let made = self
            .made
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |made| (made < self.max).then_some(made + 1));
        if let Ok(number) = made
            && let Some(context) = Context::new(core.clone(), number)
        {
            return Ok(Box::new(context));
        }
        let take = |pool: usize| self.pools[(own + pool) % POOLS].take();
        self.look_everywhere(take).ok_or(Error::TooManyTransactions { limit: self.max })
    }

    /// Takes a context from any of the pools.
    fn look_everywhere(&self, mut take: impl FnMut(usize) -> Option<Box<Context>>) -> Option<Box<Context>> {
        self.looking.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            let before = self.came_back.load(Ordering::SeqCst);
            let found = (0..POOLS).find_map(&mut take);
            // A context that came back meanwhile may lie where this has looked before.
            if found.is_some() || self.came_back.load(Ordering::SeqCst) == before {
                break found;
            }
        };
        self.looking.fetch_sub(1, Ordering::SeqCst);
        found
    }

    #[inline(always)]
    pub fn give_back(&self, context: Box<Context>) {
        if unlikely(context.deferred.is_some()) {
            return DeferredRelease::give_back(context);
        }
        self.pools[thread_number() % POOLS].put(context);
        // Either this thread sees that another one looks for a context, or the other one sees the context. The same
        // holds for a close: contexts hold their core.
        if unlikely(self.looking.load(Ordering::SeqCst) != 0) {
            self.tell_of_one();
        }
    }

    #[cold]
    fn tell_of_one(&self) {
        self.came_back.fetch_add(1, Ordering::SeqCst);
        if self.looking.load(Ordering::SeqCst) & CLOSED != 0 {
            self.drop_all();
        }
    }

    /// Drops all contexts that are not lent, and from now on those that come back.
    pub fn close(&self) {
        self.looking.fetch_or(CLOSED, Ordering::SeqCst);
        self.drop_all();
    }

    fn drop_all(&self) {
        for pool in &self.pools {
            drop(pool.last.take());
            let contexts = std::mem::take(&mut *pool.others.lock());
            drop(contexts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::io::MemoryDisk;

    /// The only context comes back to a pool that was found empty already.
    #[test]
    fn a_context_that_comes_back_while_one_is_looked_for_is_found() {
        let options = crate::Options { transactions_max: 1, ..Default::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let contexts = &db.core().contexts;
        let mut lent = Some(contexts.lend(db.core()).unwrap());
        assert!(contexts.look_everywhere(|pool| contexts.pools[pool].take()).is_none());
        let mut looks = 0;
        let found = contexts.look_everywhere(|pool| {
            looks += 1;
            let found = contexts.pools[pool].take();
            if looks == POOLS {
                contexts.give_back(lent.take().unwrap());
            }
            found
        });
        contexts.give_back(found.expect("it is free"));
        assert_eq!(contexts.looking.load(Ordering::SeqCst), 0);
        db.close().unwrap();
    }
}
