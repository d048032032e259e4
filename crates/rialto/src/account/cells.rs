//! [`Accounts`]: the counters, one set for each context and procedure.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::histogram::HistogramCells;
use super::procedure::{PROCEDURES_MAX, PageCounts, ProcedureAccount, ProcedureId, ProcedureNames};
use super::{Spent, disk_waits};
use crate::io::thread_number;
use crate::unlikely::unlikely;

/// Counter sets for tickets, which all threads that wait for tickets share.
const TICKET_SETS: usize = 32;

/// Which threads add to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writers {
    /// One at a time: a load and a store suffice.
    One,
    /// Several at the same time.
    Many,
}

impl Writers {
    #[inline]
    fn add(self, counter: &AtomicU64, by: u64) {
        match self {
            Writers::One => counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed),
            Writers::Many => _ = counter.fetch_add(by, Ordering::Relaxed),
        }
    }
}

/// One context's counters for one procedure. Times are sums, in nanoseconds.
#[derive(Default)]
struct ProcedureCounters {
    committed: AtomicU64,
    aborted: AtomicU64,
    deadlocks: AtomicU64,
    straddling: AtomicU64,
    lock_wait_ns: AtomicU64,
    latch_wait_ns: AtomicU64,
    run_ns: AtomicU64,
    log_wait_ns: AtomicU64,
    fetch_io_ns: AtomicU64,
    lock_wait_for_disk_ns: AtomicU64,
    page_accesses: AtomicU64,
    page_misses: AtomicU64,
    page_reads: AtomicU64,
    page_room_waits: AtomicU64,
    /// Response times, which are also runs, of transactions that never waited: one cell to count instead of two.
    unwaited: HistogramCells,
    /// Response times of the other transactions.
    response: HistogramCells,
    /// Runs of the other transactions.
    run: HistogramCells,
    lock_wait: HistogramCells,
    latch_wait: HistogramCells,
    log_wait: HistogramCells,
}

impl ProcedureCounters {
    /// Counts a transaction and its parts, but not its response time.
    fn place(&self, spent: &Spent) {
        let one = Writers::One;
        one.add(&self.committed, 1);
        let run_ns = spent.run_ns();
        one.add(&self.run_ns, run_ns);
        one.add(self.run.cell(run_ns), 1);
        if spent.fetch_io_ns > 0 {
            one.add(&self.fetch_io_ns, spent.fetch_io_ns);
        }
        if spent.lock_wait_ns > 0 {
            one.add(&self.lock_wait_for_disk_ns, disk_waits::take_behind_ns());
        }
        for (waited_ns, sum, histogram) in [
            (spent.lock_wait_ns, &self.lock_wait_ns, &self.lock_wait),
            (spent.latch_wait_ns, &self.latch_wait_ns, &self.latch_wait),
            (spent.log_wait_ns, &self.log_wait_ns, &self.log_wait),
        ] {
            if waited_ns > 0 {
                one.add(sum, waited_ns);
                one.add(histogram.cell(waited_ns), 1);
            }
        }
    }

    fn add_to(&self, total: &mut ProcedureAccount) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        total.committed += get(&self.committed);
        // In this order: a run counts among all that were aborted before it counts among some of them.
        total.deadlocks += get(&self.deadlocks);
        total.straddling += get(&self.straddling);
        total.aborted += get(&self.aborted);
        total.time.lock_wait_ns += get(&self.lock_wait_ns);
        total.time.lock_wait_for_disk_ns += get(&self.lock_wait_for_disk_ns);
        total.time.latch_wait_ns += get(&self.latch_wait_ns);
        total.time.run_ns += get(&self.run_ns);
        total.time.log_wait_ns += get(&self.log_wait_ns);
        total.pages.accesses += get(&self.page_accesses);
        total.pages.misses += get(&self.page_misses);
        total.pages.reads += get(&self.page_reads);
        total.pages.room_waits += get(&self.page_room_waits);
        let fetch_io_ns = get(&self.fetch_io_ns);
        if fetch_io_ns > 0 {
            *total.time.fetch_io_ns.get_or_insert(0) += fetch_io_ns;
        }
        self.unwaited.add_to(&mut total.response);
        self.response.add_to(&mut total.response);
        self.unwaited.add_to(&mut total.run);
        self.run.add_to(&mut total.run);
        self.lock_wait.add_to(&mut total.lock_wait);
        self.latch_wait.add_to(&mut total.latch_wait);
        self.log_wait.add_to(&mut total.log_wait);
    }
}

/// Cells by procedure, made at their first use: most contexts are never lent, and see few procedures.
#[derive(Default)]
struct CounterSet {
    cells: OnceLock<Box<[OnceLock<Box<ProcedureCounters>>]>>,
}

impl CounterSet {
    #[inline]
    fn cell(&self, procedure: ProcedureId) -> &ProcedureCounters {
        let cells = self.cells.get_or_init(|| (0..PROCEDURES_MAX).map(|_| OnceLock::new()).collect());
        cells[procedure.position()].get_or_init(Box::default)
    }
}

/// All accounts of a database. A context's set has one writer at a time: the thread that the context is lent to.
pub(crate) struct Accounts {
    names: ProcedureNames,
    contexts: Box<[CachePadded<CounterSet>]>,
    tickets: Box<[CachePadded<CounterSet>]>,
}

impl Accounts {
    pub fn new(contexts: usize) -> Accounts {
        let sets = |count: usize| (0..count).map(|_| CachePadded::default()).collect();
        Accounts { names: ProcedureNames::default(), contexts: sets(contexts), tickets: sets(TICKET_SETS) }
    }

    /// The account of this name.
    pub fn id(&self, name: &str) -> ProcedureId {
        self.names.id(name)
    }

    /// The names of all accounts, by their positions.
    pub fn names(&self) -> Vec<String> {
        self.names.all()
    }

    /// A transaction has ended with a commit.
    #[inline(always)]
    pub fn committed(&self, context: usize, procedure: ProcedureId, spent: &Spent) {
        let (cell, one) = (self.contexts[context].cell(procedure), Writers::One);
        if unlikely(spent.has_waited()) {
            cell.place(spent);
            one.add(cell.response.cell(spent.response_ns), 1);
            return;
        }
        one.add(&cell.committed, 1);
        one.add(&cell.run_ns, spent.response_ns);
        one.add(cell.unwaited.cell(spent.response_ns), 1);
    }

    /// A transaction has taken its place, and leaves the rest to a ticket.
    #[inline]
    pub fn left_to_ticket(&self, context: usize, procedure: ProcedureId, spent: &Spent) {
        self.contexts[context].cell(procedure).place(spent);
    }

    /// A thread waited for a ticket: `log_wait_ns` from its transaction's place on, which came after `before_ns`.
    pub fn ticket_waited(&self, procedure: ProcedureId, log_wait_ns: u64, before_ns: u64) {
        let cell = self.tickets[thread_number() % TICKET_SETS].cell(procedure);
        Writers::Many.add(&cell.log_wait_ns, log_wait_ns);
        Writers::Many.add(cell.log_wait.cell(log_wait_ns), 1);
        Writers::Many.add(cell.response.cell(before_ns + log_wait_ns), 1);
    }

    /// A run has touched pages.
    #[cold]
    pub fn touched_pages(&self, context: usize, procedure: ProcedureId, counts: PageCounts) {
        let (cell, one) = (self.contexts[context].cell(procedure), Writers::One);
        one.add(&cell.page_accesses, counts.accesses);
        one.add(&cell.page_misses, counts.misses);
        one.add(&cell.page_reads, counts.reads);
        one.add(&cell.page_room_waits, counts.room_waits);
    }

    /// A run has ended without effect.
    pub fn aborted(&self, context: usize, procedure: ProcedureId) {
        Writers::One.add(&self.contexts[context].cell(procedure).aborted, 1);
        // Its time is not counted, nor is what it has waited for.
        disk_waits::take_behind_ns();
    }

    /// A run was a deadlock's victim and will be tried again.
    pub fn deadlock(&self, context: usize, procedure: ProcedureId) {
        Writers::One.add(&self.contexts[context].cell(procedure).deadlocks, 1);
    }

    /// A run touched both sides of a black/white checkpoint.
    pub fn straddling(&self, context: usize, procedure: ProcedureId) {
        Writers::One.add(&self.contexts[context].cell(procedure).straddling, 1);
    }

    /// How long all transactions have run so far, in nanoseconds. Adds one counter of each cell, where
    /// [`Accounts::read`] adds hundreds.
    pub fn run_ns(&self) -> u64 {
        let named = self.names.all().len();
        let sets = self.contexts.iter().chain(&self.tickets).filter_map(|set| set.cells.get());
        let cells = sets.flat_map(|cells| cells[..named].iter().filter_map(OnceLock::get));
        cells.map(|cell| cell.run_ns.load(Ordering::Relaxed)).sum()
    }

    /// The accounts in which something was counted.
    pub fn read(&self) -> Vec<ProcedureAccount> {
        let named = self.names.all().into_iter();
        let mut accounts: Vec<_> =
            named.map(|name| ProcedureAccount { name, ..ProcedureAccount::default() }).collect();
        for set in self.contexts.iter().chain(&self.tickets) {
            let Some(cells) = set.cells.get() else { continue };
            for (cell, account) in cells.iter().zip(&mut accounts) {
                if let Some(cell) = cell.get() {
                    cell.add_to(account);
                }
            }
        }
        accounts.retain(|account| account.committed + account.aborted > 0);
        accounts
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_of_all_contexts_and_tickets_add_up_by_procedure() {
        let accounts = Accounts::new(4);
        let (pay, look) = (accounts.id("pay"), accounts.id("look"));
        accounts.id("never run");
        let spent = |lock_wait_ns, latch_wait_ns, log_wait_ns| Spent {
            response_ns: 1_000 + lock_wait_ns + latch_wait_ns + log_wait_ns,
            lock_wait_ns,
            latch_wait_ns,
            log_wait_ns,
            fetch_io_ns: 0,
        };
        accounts.committed(0, pay, &spent(10, 0, 500));
        accounts.committed(3, pay, &spent(0, 7, 0));
        accounts.left_to_ticket(1, pay, &spent(0, 0, 0));
        accounts.ticket_waited(pay, 2_000, 1_000);
        accounts.aborted(2, look);
        accounts.deadlock(2, look);
        let read = accounts.read();
        assert_eq!(read.iter().map(|account| account.name.as_str()).collect::<Vec<_>>(), ["pay", "look"]);
        let (pay, look) = (&read[0], &read[1]);
        assert_eq!((pay.committed, pay.aborted, pay.response.count(), pay.run.count()), (3, 0, 3, 3));
        assert_eq!(accounts.run_ns(), read.iter().map(|account| account.time.run_ns).sum::<u64>());
        assert_eq!((pay.lock_wait.count(), pay.latch_wait.count(), pay.log_wait.count()), (1, 1, 2));
        assert_eq!((pay.time.run_ns, pay.time.log_wait_ns), (3_000, 2_500));
        assert_eq!(pay.time.response(), Duration::from_nanos(1_510 + 1_007 + 3_000));
        assert_eq!((look.committed, look.aborted, look.deadlocks), (0, 1, 1));
    }
}
