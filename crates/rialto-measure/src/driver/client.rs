//! One client's thread.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto::{Error, Result};

use super::workload::{Pending, Workload};
use super::{Batch, Cell, Load, Phase, Shared};
use crate::histogram::Latencies;
use crate::usage::Usage;

/// What came of one client.
pub(super) struct Done {
    pub latencies: Vec<Latencies>,
    pub overdue: Latencies,
    pub queue_ns: Vec<u64>,
    /// Context switches from the first commit of the window to the end.
    pub switches: Option<Usage>,
    pub aborted_user: u64,
    pub acknowledged: u64,
    pub attempted: u64,
    /// Response times by batch of the window; none of clients.
    pub batches: Vec<Batch>,
    pub failed: Option<Error>,
}

impl Done {
    /// Nothing yet, of so many types of transactions.
    pub fn new(types: usize) -> Done {
        Done {
            latencies: vec![Latencies::default(); types],
            overdue: Latencies::default(),
            queue_ns: vec![0; types],
            switches: Some(Usage::default()),
            aborted_user: 0,
            acknowledged: 0,
            attempted: 0,
            batches: Vec::new(),
            failed: None,
        }
    }
}

/// A submitted transaction.
struct Outstanding<T> {
    ticket: T,
    begun: Begun,
}

/// When a transaction of some type was begun, and when it was meant to be.
#[derive(Clone, Copy)]
struct Begun {
    procedure: usize,
    intended: Instant,
    begun: Instant,
}

struct Client<'a, W: Workload> {
    workload: &'a W,
    state: W::Client,
    shared: &'a Shared,
    cell: &'a Cell,
    is_open: bool,
    done: Done,
    /// When the window began for this client.
    switches_before: Option<Option<Usage>>,
}

/// Intended starts: exponential gaps, so that all clients together are a Poisson process.
pub(super) struct Arrivals {
    random: Random,
    mean_s: f64,
    pub next: Instant,
}

impl Arrivals {
    pub fn new(load: &Load, number: u32, began: Instant) -> Option<Arrivals> {
        let rate = load.rate? / f64::from(load.clients);
        let random = Random::new(load.seed ^ (u64::from(number) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let mut arrivals = Arrivals { random, mean_s: 1.0 / rate, next: began };
        arrivals.advance();
        Some(arrivals)
    }

    pub fn advance(&mut self) {
        // Above zero, so that its logarithm is finite.
        let uniform = ((self.random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.next += Duration::from_secs_f64(-uniform.ln() * self.mean_s);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

pub(super) fn run<W: Workload>(workload: &W, load: &Load, shared: &Shared, number: u32) -> Done {
    let done = Done::new(workload.procedures().len());
    let state = workload.client(number, load.seed);
    let (cell, is_open) = (&shared.cells[number as usize], load.rate.is_some());
    let mut client = Client { workload, state, shared, cell, is_open, done, switches_before: None };
    let mut arrivals = Arrivals::new(load, number, shared.began);
    let outcome = match (load.in_flight, &mut arrivals) {
        (1, None) => client.blocking(),
        (1, Some(arrivals)) => client.blocking_open(arrivals),
        (in_flight, None) => client.tickets(in_flight),
        (in_flight, Some(arrivals)) => client.tickets_open(in_flight, arrivals),
    };
    if let Err(error) = outcome {
        shared.end();
        client.done.failed = Some(error);
    }
    if let Some(arrivals) = arrivals {
        client.never_begun(arrivals);
    }
    if let Some(before) = client.switches_before {
        client.done.switches = Usage::of_thread().zip(before).map(|(now, before)| now.since(before));
    }
    let Client { state, done, .. } = client;
    workload.retire(state);
    done
}

/// How long a client sleeps at most before it looks at the phase.
const NAP: Duration = Duration::from_millis(20);

/// The kernel wakes this thread when it asked to be, not up to 50 us later: a client that sleeps until a transaction is
/// due would begin each one late.
fn wake_on_time() {
    // Where it is refused sleeps are longer; latencies say so.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

impl<W: Workload> Client<'_, W> {
    fn blocking(&mut self) -> Result<()> {
        let mut now = Instant::now();
        while self.shared.phase() != Phase::End {
            now = self.block_on_one(now, now)?;
        }
        Ok(())
    }

    fn blocking_open(&mut self, arrivals: &mut Arrivals) -> Result<()> {
        wake_on_time();
        while self.shared.phase() != Phase::End {
            let now = Instant::now();
            if now < arrivals.next {
                std::thread::sleep((arrivals.next - now).min(NAP));
                continue;
            }
            self.block_on_one(arrivals.next, now)?;
            arrivals.advance();
        }
        Ok(())
    }

    /// Returns when it was done.
    fn block_on_one(&mut self, intended: Instant, begun: Instant) -> Result<Instant> {
        self.done.attempted += 1;
        let outcome = self.workload.run_one(&mut self.state, begun);
        let now = Instant::now();
        if let Some(procedure) = self.judge(outcome)? {
            self.committed(procedure, intended, begun, now);
        }
        Ok(now)
    }

    fn tickets(&mut self, in_flight: usize) -> Result<()> {
        let mut ring = VecDeque::with_capacity(in_flight);
        while self.shared.phase() != Phase::End {
            if ring.len() == in_flight {
                self.await_oldest(&mut ring)?;
            }
            let now = Instant::now();
            self.submit_one(&mut ring, now, now)?;
            self.harvest(&mut ring)?;
        }
        self.drain(ring)
    }

    fn tickets_open(&mut self, in_flight: usize, arrivals: &mut Arrivals) -> Result<()> {
        wake_on_time();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut ring: VecDeque<Outstanding<W::Ticket>> = VecDeque::with_capacity(in_flight);
        while self.shared.phase() != Phase::End {
            let now = Instant::now();
            if now >= arrivals.next && ring.len() < in_flight {
                self.submit_one(&mut ring, arrivals.next, now)?;
                arrivals.advance();
                self.harvest(&mut ring)?;
                continue;
            }
            // Woken by the oldest ticket, or when the next transaction is due.
            if let Some(oldest) = ring.front_mut()
                && let Poll::Ready(answer) = Pin::new(&mut oldest.ticket).poll(&mut context)
            {
                let now = Instant::now();
                let oldest = ring.pop_front().expect("it was just there").begun;
                self.settle(oldest, answer, now)?;
                self.harvest(&mut ring)?;
                continue;
            }
            let due = if ring.len() < in_flight { arrivals.next.saturating_duration_since(now) } else { NAP };
            std::thread::park_timeout(due.min(NAP));
        }
        self.drain(ring)
    }

    fn submit_one(
        &mut self,
        ring: &mut VecDeque<Outstanding<W::Ticket>>,
        intended: Instant,
        begun: Instant,
    ) -> Result<()> {
        self.done.attempted += 1;
        let outcome = self.workload.submit_one(&mut self.state, begun);
        if let Some((procedure, ticket)) = self.judge(outcome)? {
            ring.push_back(Outstanding { ticket, begun: Begun { procedure, intended, begun } });
        }
        Ok(())
    }

    fn await_oldest(&mut self, ring: &mut VecDeque<Outstanding<W::Ticket>>) -> Result<()> {
        let Some(oldest) = ring.pop_front() else { return Ok(()) };
        let begun = oldest.begun;
        let answer = oldest.ticket.wait();
        self.settle(begun, answer, Instant::now())?;
        self.harvest(ring)
    }

    /// Takes what is done, the oldest first, without waiting.
    fn harvest(&mut self, ring: &mut VecDeque<Outstanding<W::Ticket>>) -> Result<()> {
        let mut now = None;
        while ring.front_mut().is_some_and(|oldest| oldest.ticket.is_done()) {
            let oldest = ring.pop_front().expect("it was just there");
            let begun = oldest.begun;
            self.settle(begun, oldest.ticket.wait(), *now.get_or_insert_with(Instant::now))?;
        }
        Ok(())
    }

    fn drain(&mut self, mut ring: VecDeque<Outstanding<W::Ticket>>) -> Result<()> {
        while !ring.is_empty() {
            self.await_oldest(&mut ring)?;
        }
        Ok(())
    }

    fn settle(&mut self, done: Begun, answer: <W::Ticket as Pending>::Answer, now: Instant) -> Result<()> {
        let outcome = self.workload.settle(&mut self.state, answer);
        if self.judge(outcome)?.is_some() {
            self.committed(done.procedure, done.intended, done.begun, now);
        }
        Ok(())
    }

    fn committed(&mut self, procedure: usize, intended: Instant, begun: Instant, now: Instant) {
        self.done.acknowledged += 1;
        self.cell.committed.store(self.done.acknowledged, Ordering::Relaxed);
        if self.shared.phase() == Phase::Window {
            self.done.latencies[procedure].record(now.saturating_duration_since(intended));
            if self.switches_before.is_none() {
                self.switches_before = Some(Usage::of_thread());
            }
            self.done.queue_ns[procedure] += begun.saturating_duration_since(intended).as_nanos() as u64;
        } else if self.is_open {
            self.overdue(intended);
        }
    }

    /// Counts a transaction that was not done at the window's end, if it was due by then. Returns whether it was.
    fn overdue(&mut self, intended: Instant) -> bool {
        let age = self.shared.window_end.get().and_then(|end| end.checked_duration_since(intended));
        age.inspect(|&age| self.done.overdue.record(age)).is_some()
    }

    /// Counts those that were due and that the client did not come to.
    fn never_begun(&mut self, mut arrivals: Arrivals) {
        while self.overdue(arrivals.next) {
            arrivals.advance();
        }
    }

    /// `None` for a transaction that aborted and lets the run go on.
    fn judge<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(Error::Aborted { .. }) => {
                if self.shared.phase() == Phase::Window {
                    self.done.aborted_user += 1;
                }
                Ok(None)
            }
            // The kernel has counted it.
            Err(Error::Deadlock { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
