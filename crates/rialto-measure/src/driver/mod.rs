//! The clients: threads that run a workload through a warm-up and a measured window.
//!
//! A client keeps [`Load::in_flight`] transactions outstanding. With one it blocks until each is durable; with more it
//! submits, and waits for the tickets, the oldest first. With a rate the load is open: transactions have intended
//! starts, drawn from the seed with exponential gaps, and a latency begins at the intended start, however late the
//! client is. A transaction that was due in the window and is not done at its end is *overdue*, begun or not: it
//! counts among the latencies with the age that it has then. So no stall is left out, however long it lasts and
//! whatever it holds up.
//!
//! Invariant: a client writes only cache lines of its own (its cell). All clients read one word, the phase, which
//! changes twice.

mod client;
pub mod served;
#[cfg(test)]
mod tests;
pub mod virtual_machine;
mod workload;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rialto::Error;

pub use self::workload::{Driven, Pending, ServersSetting, Workload};
use crate::calibrate::SLICE;
use crate::confidence::Confidence;
use crate::histogram::Latencies;
use crate::interrupt;
use crate::usage::Usage;

/// What the clients do.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// How many clients; each is a thread.
    pub clients: u32,
    /// How many transactions each keeps outstanding.
    pub in_flight: usize,
    /// Transactions a second, over all clients; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Before the window.
    pub warmup: Duration,
    /// The window.
    pub window: Duration,
    /// Where the random choices come from.
    pub seed: u64,
}

/// Told what happens, on the thread that called [`drive`].
pub trait Observer {
    /// The warm-up is over: so many transactions committed in it. `Err` ends the run.
    ///
    /// # Errors
    /// The observer's own.
    fn window_begins(&mut self, committed: u64, warmed_up: Duration) -> Result<(), String>;
    /// The window is over.
    fn window_ends(&mut self);
    /// About every [`SLICE`] of the window: how long ago the last call or the window's begin was, and what committed
    /// since then.
    fn slice(&mut self, took: Duration, committed: u64);
    /// About once a second: how long the window is open (`None` in the warm-up), and what committed in the last slice.
    fn tick(&mut self, open: Option<Duration>, committed_per_s: f64);
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How long the window was.
    pub window: Duration,
    /// Latencies of what committed in the window, by transaction type.
    pub latencies: Vec<Latencies>,
    /// Ages at the window's end of what was due by then and not done; empty in a closed loop.
    pub overdue: Latencies,
    /// From the intended start to the start, over what committed in the window, by transaction type.
    pub queue_ns: Vec<u64>,
    /// The clients' own context switches in the window; `None` if the system does not tell.
    pub client_switches: Option<Usage>,
    /// Transactions of the window that aborted themselves.
    pub aborted_user: u64,
    /// Transactions whose commit was acknowledged, from the first to the last.
    pub acknowledged: u64,
    /// Transactions begun, from the first to the last.
    pub attempted: u64,
    /// Of message servers: response times by batch, equal parts of the window.
    pub batches: Vec<Batch>,
}

/// The response times of a part of the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub responses: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
}

impl Batch {
    fn add(&mut self, time: Duration) {
        self.responses += 1;
        self.sum_ns += time.as_nanos() as u64;
    }
}

impl Outcome {
    /// Committed in the window.
    pub fn committed(&self) -> u64 {
        self.latencies.iter().map(Latencies::count).sum()
    }

    /// Of all types that committed.
    pub fn response_times(&self) -> Latencies {
        let mut all = Latencies::default();
        self.latencies.iter().for_each(|latencies| all.merge(latencies));
        all
    }

    /// The mean response time in microseconds with its interval, of message servers.
    pub fn response_us(&self) -> Option<Confidence> {
        let mean = |batch: &Batch| batch.sum_ns as f64 / 1e3 / batch.responses as f64;
        let means: Vec<_> = self.batches.iter().filter(|batch| batch.responses > 0).map(mean).collect();
        Confidence::of(self.response_times().mean_us(), &means)
    }

    /// Transactions a second with their interval, of message servers.
    pub fn throughput(&self) -> Option<Confidence> {
        let seconds = self.window.as_secs_f64() / self.batches.len().max(1) as f64;
        let rates: Vec<_> = self.batches.iter().map(|batch| batch.responses as f64 / seconds).collect();
        Confidence::of_means(&rates)
    }

    /// Of all types, and of what is overdue: what percentiles are taken of.
    pub fn all_latencies(&self) -> Latencies {
        let mut all = self.response_times();
        all.merge(&self.overdue);
        all
    }
}

/// Why a run ended early.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// A transaction failed.
    Failed(Error),
    /// The observer ended it.
    Refused(String),
    /// The user ended it ([`interrupt`]).
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Warmup,
    Window,
    End,
}

/// One client's progress; only the client writes it.
#[derive(Debug, Default)]
struct Cell {
    committed: AtomicU64,
}

/// What the clients share.
struct Shared {
    phase: CachePadded<AtomicU8>,
    cells: Vec<CachePadded<Cell>>,
    began: Instant,
    /// When it began.
    window_begin: OnceLock<Instant>,
    /// When the window was over; nothing before that, nor if a failed client ended the run.
    window_end: OnceLock<Instant>,
}

impl Shared {
    fn new(clients: u32) -> Shared {
        let cells = (0..clients).map(|_| CachePadded::new(Cell::default())).collect();
        let phase = CachePadded::new(AtomicU8::new(Phase::Warmup as u8));
        Shared {
            phase,
            cells,
            began: Instant::now(),
            window_begin: OnceLock::new(),
            window_end: OnceLock::new(),
        }
    }

    #[inline]
    fn phase(&self) -> Phase {
        // With what was written before it: the window's end.
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Warmup,
            1 => Phase::Window,
            _ => Phase::End,
        }
    }

    /// Moves on, unless a failed client has ended the run.
    fn enter(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn end(&self) {
        self.phase.store(Phase::End as u8, Ordering::Release);
    }

    fn committed(&self) -> u64 {
        self.cells.iter().map(|cell| cell.committed.load(Ordering::Relaxed)).sum()
    }
}

/// Ends the run when dropped, so that a panic on this thread does not leave the clients running.
struct EndOnDrop<'a>(&'a Shared);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How often the calling thread looks whether a client has failed, and for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_secs(1);

struct Ticker<'a> {
    shared: &'a Shared,
    next: Instant,
    /// When the last tick was, and what had committed.
    ticked: (Instant, u64),
    sliced: (Instant, u64),
}

impl<'a> Ticker<'a> {
    fn new(shared: &'a Shared) -> Ticker<'a> {
        let now = Instant::now();
        let at = (now, shared.committed());
        Ticker { shared, next: now + TICK, ticked: at, sliced: at }
    }

    /// Sleeps until `end`, with a tick each second. False if a client, or an interrupt, ended the run.
    fn sleep(
        &mut self,
        phase: Phase,
        end: Instant,
        opened: Option<Instant>,
        observer: &mut dyn Observer,
    ) -> bool {
        loop {
            let now = Instant::now();
            if self.shared.phase() != phase || interrupt::is_asked() {
                return false;
            }
            if now >= end {
                return true;
            }
            if opened.is_some() && now - self.sliced.0 >= SLICE {
                let committed = self.shared.committed();
                observer.slice(now - self.sliced.0, committed - self.sliced.1);
                self.sliced = (now, committed);
            }
            if now >= self.next {
                let committed = self.shared.committed();
                let per_s = (committed - self.ticked.1) as f64 / (now - self.ticked.0).as_secs_f64();
                observer.tick(opened.map(|opened| now - opened), per_s);
                self.ticked = (now, committed);
                self.next += TICK;
            }
            std::thread::sleep(
                LOOK.min(end - now).min(self.next.saturating_duration_since(now).max(LOOK / 50)),
            );
        }
    }
}

/// Runs the workload. Returns when every transaction that was begun has its outcome.
///
/// # Errors
/// The first failure of a client, or the observer's, or an interrupt.
pub fn drive<W: Workload>(workload: &W, load: &Load, observer: &mut dyn Observer) -> Result<Outcome, Ended> {
    drive_threads(workload.procedures(), load, observer, "client", |shared, number| {
        client::run(workload, load, shared, number)
    })
}

/// Runs `load.clients` threads of this name through the phases; `run` is what each does, by its number.
fn drive_threads(
    types: &[&str],
    load: &Load,
    observer: &mut dyn Observer,
    name: &str,
    run: impl Fn(&Shared, u32) -> client::Done + Sync,
) -> Result<Outcome, Ended> {
    let shared = Shared::new(load.clients);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|number| {
                let (shared, run) = (&shared, &run);
                let spawned = std::thread::Builder::new()
                    .name(format!("{name}-{number}"))
                    .spawn_scoped(scope, move || run(shared, number));
                spawned.inspect_err(|_| shared.end())
            })
            .collect();
        let end_on_drop = EndOnDrop(&shared);
        let mut refused = None;
        let mut window = Duration::ZERO;
        let mut ticker = Ticker::new(&shared);
        if ticker.sleep(Phase::Warmup, shared.began + load.warmup, None, observer) {
            match observer.window_begins(shared.committed(), shared.began.elapsed()) {
                Err(reason) => refused = Some(reason),
                Ok(()) => {
                    let opened = *shared.window_begin.get_or_init(Instant::now);
                    if shared.enter(Phase::Warmup, Phase::Window) {
                        // A tick of the window covers nothing of the warm-up.
                        ticker = Ticker::new(&shared);
                        ticker.sleep(Phase::Window, opened + load.window, Some(opened), observer);
                        let end = *shared.window_end.get_or_init(Instant::now);
                        shared.end();
                        window = end - opened;
                        observer.window_ends();
                    }
                }
            }
        }
        drop(end_on_drop);
        let joined = clients.into_iter().map(|client| {
            let client = client.map_err(|error| no_thread(&error))?;
            Ok(client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        gather(types.len(), window, joined, refused)
    })
}

/// Puts together what came of all clients.
fn gather(
    types: usize,
    window: Duration,
    clients: impl Iterator<Item = Result<client::Done, Error>>,
    refused: Option<String>,
) -> Result<Outcome, Ended> {
    let mut outcome = Outcome {
        window,
        latencies: vec![Latencies::default(); types],
        queue_ns: vec![0; types],
        client_switches: Some(Usage::default()),
        ..Outcome::default()
    };
    let mut failed = None;
    for own in clients {
        let own = own.map_err(Ended::Failed)?;
        failed = failed.or(own.failed);
        outcome.queue_ns.iter_mut().zip(&own.queue_ns).for_each(|(all, own)| *all += own);
        outcome.client_switches = outcome.client_switches.zip(own.switches).map(|(mut all, own)| {
            all += own;
            all
        });
        outcome.aborted_user += own.aborted_user;
        outcome.acknowledged += own.acknowledged;
        outcome.attempted += own.attempted;
        outcome.overdue.merge(&own.overdue);
        outcome.batches.resize(outcome.batches.len().max(own.batches.len()), Batch::default());
        for (all, own) in outcome.batches.iter_mut().zip(&own.batches) {
            all.responses += own.responses;
            all.sum_ns += own.sum_ns;
        }
        outcome.latencies.iter_mut().zip(&own.latencies).for_each(|(all, own)| all.merge(own));
    }
    match (failed, refused) {
        (Some(error), _) => Err(Ended::Failed(error)),
        (None, Some(reason)) => Err(Ended::Refused(reason)),
        (None, None) if interrupt::is_asked() => Err(Ended::Interrupted),
        (None, None) => Ok(outcome),
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Unsupported { what: format!("starting a thread for each client ({error}); use fewer --clients") }
}
