use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rialto::{Error, Result};

use super::*;

/// Takes `service` for each transaction; aborts every tenth of type 1; fails at `fail_at`.
struct Timed {
    service: Duration,
    fail_at: u64,
    begun: AtomicU64,
    submitted: AtomicU64,
}

impl Timed {
    fn new(service: Duration) -> Timed {
        Timed { service, fail_at: u64::MAX, begun: AtomicU64::new(0), submitted: AtomicU64::new(0) }
    }
}

struct Due {
    at: Instant,
}

impl Future for Due {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if Instant::now() >= self.at {
            return Poll::Ready(Ok(()));
        }
        let (waker, at) = (context.waker().clone(), self.at);
        std::thread::spawn(move || {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            waker.wake();
        });
        Poll::Pending
    }
}

impl Pending for Due {
    type Answer = Result<()>;

    fn is_done(&mut self) -> bool {
        Instant::now() >= self.at
    }

    fn wait(self) -> Result<()> {
        std::thread::sleep(self.at.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

impl Workload for Timed {
    type Client = u64;
    type Ticket = Due;

    fn procedures(&self) -> &'static [&'static str] {
        &["even", "odd"]
    }

    fn client(&self, number: u32, _seed: u64) -> u64 {
        u64::from(number)
    }

    fn run_one(&self, client: &mut u64, now: Instant) -> Result<usize> {
        let (procedure, ticket) = self.submit_one(client, now)?;
        ticket.wait()?;
        Ok(procedure)
    }

    fn submit_one(&self, client: &mut u64, now: Instant) -> Result<(usize, Due)> {
        *client += 1;
        if self.begun.fetch_add(1, Ordering::Relaxed) == self.fail_at {
            return Err(Error::Closed);
        }
        if *client % 10 == 1 {
            return Err(Error::aborted("every tenth"));
        }
        self.submitted.fetch_add(1, Ordering::Relaxed);
        Ok(((*client % 2) as usize, Due { at: now + self.service }))
    }

    fn settle(&self, _: &mut u64, outcome: Result<()>) -> Result<()> {
        outcome
    }
}

#[derive(Default)]
struct Watch {
    began: u64,
    ended: u64,
    refuse: bool,
    warmed_up: Duration,
    slices: Vec<(Duration, u64)>,
    /// What committed each second, as the ticks tell.
    ticks: Vec<f64>,
}

impl Observer for Watch {
    fn window_begins(&mut self, _committed: u64, warmed_up: Duration) -> std::result::Result<(), String> {
        self.began += 1;
        self.warmed_up = warmed_up;
        if self.refuse { Err("too large".into()) } else { Ok(()) }
    }

    fn window_ends(&mut self) {
        self.ended += 1;
    }

    fn slice(&mut self, took: Duration, committed: u64) {
        self.slices.push((took, committed));
    }

    fn tick(&mut self, _open: Option<Duration>, committed_per_s: f64) {
        self.ticks.push(committed_per_s);
    }
}

fn load(clients: u32, in_flight: usize, rate: Option<f64>) -> Load {
    let (warmup, window) = (Duration::from_millis(50), Duration::from_millis(400));
    Load { clients, in_flight, rate, warmup, window, seed: 7 }
}

/// Runs a workload in windows of which each is twice as long as the one before, until `is_enough`: a machine that is slow, or
/// stands still, takes longer to come to as much.
fn drive_until<W: Workload>(
    load: &Load,
    make: impl Fn() -> W,
    is_enough: impl Fn(&W, &Outcome, &Watch) -> bool,
) -> (W, Outcome, Watch) {
    let mut load = load.clone();
    loop {
        let (workload, mut watch) = (make(), Watch::default());
        let outcome = drive(&workload, &load, &mut watch).unwrap();
        if is_enough(&workload, &outcome, &watch) {
            return (workload, outcome, watch);
        }
        load.window *= 2;
        assert!(load.window < Duration::from_secs(60), "{outcome:?}, {:?}", watch.slices);
    }
}

#[test]
fn blocking_clients_count_every_transaction_and_every_abort() {
    let (workload, outcome, watch) = drive_until(
        &Load { window: TICK, ..load(4, 1, None) },
        || Timed::new(Duration::from_millis(1)),
        |_, outcome, watch| {
            let is_any = outcome.aborted_user > 0 && outcome.latencies.iter().all(|type_| type_.count() > 0);
            // A tick, a slice, and some in the warm-up.
            is_any
                && watch.ticks.first().is_some_and(|per_s| *per_s > 0.0)
                && watch.slices.iter().any(|slice| slice.1 > 0)
                && outcome.committed() < outcome.acknowledged
        },
    );
    assert_eq!((watch.began, watch.ended), (1, 1));
    assert!(watch.warmed_up >= Duration::from_millis(50));
    assert_eq!(outcome.attempted, workload.begun.load(Ordering::Relaxed));
    assert_eq!(outcome.acknowledged, workload.submitted.load(Ordering::Relaxed));
    assert!(watch.slices.iter().all(|slice| slice.0 >= SLICE), "{:?}", watch.slices);
    let in_slices: u64 = watch.slices.iter().map(|slice| slice.1).sum();
    // The clients may each have been about to count one more when the window was over.
    assert!(in_slices <= outcome.committed() + 4, "{:?}", watch.slices);
    // The first tick is that of a second, or more.
    let ticked = watch.ticks[0] * TICK.as_secs_f64();
    assert!(ticked <= outcome.acknowledged as f64, "{ticked} of {}", outcome.acknowledged);
    assert_eq!(outcome.queue_ns, [0, 0]);
    let switches = outcome.client_switches.unwrap();
    assert!(switches.voluntary >= outcome.committed() / 2, "each transaction sleeps: {switches:?}");
    let latencies = outcome.all_latencies().percentiles().unwrap();
    assert!(latencies.p50_us >= 1000.0, "{latencies:?}");
}

/// What is submitted is done when it is waited for, and not before.
#[derive(Default)]
struct Unhurried {
    submitted: AtomicU64,
    /// The most transactions that each client had outstanding.
    most: Mutex<Vec<usize>>,
}

struct WaitedFor;

impl Future for WaitedFor {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Pending
    }
}

impl Pending for WaitedFor {
    type Answer = Result<()>;

    fn is_done(&mut self) -> bool {
        false
    }

    fn wait(self) -> Result<()> {
        Ok(())
    }
}

/// How many transactions a client has outstanding, and the most that it had.
#[derive(Default)]
struct Count {
    outstanding: usize,
    most: usize,
}

impl Workload for Unhurried {
    type Client = Count;
    type Ticket = WaitedFor;

    fn procedures(&self) -> &'static [&'static str] {
        &["unhurried"]
    }

    fn client(&self, _number: u32, _seed: u64) -> Count {
        Count::default()
    }

    fn run_one(&self, _: &mut Count, _now: Instant) -> Result<usize> {
        unreachable!("clients with several in flight submit")
    }

    fn submit_one(&self, client: &mut Count, _now: Instant) -> Result<(usize, WaitedFor)> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        client.outstanding += 1;
        client.most = client.most.max(client.outstanding);
        Ok((0, WaitedFor))
    }

    fn settle(&self, client: &mut Count, outcome: Result<()>) -> Result<()> {
        client.outstanding -= 1;
        outcome
    }

    fn retire(&self, client: Count) {
        assert_eq!(client.outstanding, 0, "each is waited for");
        self.most.lock().unwrap().push(client.most);
    }
}

#[test]
fn tickets_keep_as_many_in_flight_as_asked_and_are_all_waited_for() {
    // Long enough for each client to come to as many.
    let has_most = |workload: &Unhurried, _: &Outcome, _: &Watch| {
        workload.most.lock().unwrap().iter().all(|most| *most >= 20)
    };
    let (workload, outcome, _) = drive_until(&load(2, 20, None), Unhurried::default, has_most);
    assert_eq!(*workload.most.lock().unwrap(), [20, 20]);
    assert_eq!(outcome.acknowledged, workload.submitted.load(Ordering::Relaxed));

    let make = || Timed::new(Duration::from_millis(5));
    let (workload, outcome, _) =
        drive_until(&load(2, 20, None), make, |_, outcome, _| outcome.committed() > 0);
    assert_eq!(outcome.acknowledged, workload.submitted.load(Ordering::Relaxed));
    assert!(outcome.all_latencies().percentiles().unwrap().p50_us >= 5000.0);
}

#[test]
fn an_open_loop_offers_its_rate_and_counts_from_the_intended_start() {
    for in_flight in [1, 8] {
        // A machine that stands still at the end of the window comes to few of those that are due then; not each time.
        let offers_its_rate = || {
            let workload = Timed::new(Duration::from_micros(500));
            let outcome = drive(&workload, &load(2, in_flight, Some(500.0)), &mut Watch::default()).unwrap();
            let expected = 500.0 * (watch_seconds(&outcome) + 0.05);
            let begun = outcome.attempted as f64;
            println!("{begun} begun, {expected} expected");
            (expected * 0.6..expected * 1.5).contains(&begun)
        };
        assert!((0..10).any(|_| offers_its_rate()), "{in_flight} in flight");

        // At ten times what one client can do, it falls behind, and the latencies say so.
        let workload = Timed::new(Duration::from_millis(5));
        let outcome =
            drive(&workload, &load(1, in_flight, Some(in_flight as f64 * 2000.0)), &mut Watch::default());
        let outcome = outcome.unwrap();
        let latencies = outcome.all_latencies().percentiles().unwrap();
        assert!(latencies.p50_us > 50_000.0, "{in_flight} in flight: {latencies:?}");
        assert!(outcome.queue_ns.iter().sum::<u64>() > 0);
    }
}

/// Every client is held up from a moment of the window on until the window is over, as its observer tells.
#[derive(Clone, Default)]
struct Stalls {
    from: Arc<OnceLock<Instant>>,
    is_over: Arc<AtomicBool>,
}

impl Observer for Stalls {
    fn window_begins(&mut self, _committed: u64, _warmed_up: Duration) -> std::result::Result<(), String> {
        self.from.set(Instant::now() + Duration::from_millis(100)).unwrap();
        Ok(())
    }

    fn window_ends(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }

    fn slice(&mut self, _took: Duration, _committed: u64) {}

    fn tick(&mut self, _open: Option<Duration>, _committed_per_s: f64) {}
}

/// Done at once, or when the stall is over. A client that has polled it naps, and polls again.
struct Stalled(Option<Arc<AtomicBool>>);

impl Future for Stalled {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_done() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Pending for Stalled {
    type Answer = Result<()>;

    fn is_done(&mut self) -> bool {
        self.0.as_ref().is_none_or(|is_over| is_over.load(Ordering::Acquire))
    }

    fn wait(mut self) -> Result<()> {
        while !self.is_done() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Workload for Stalls {
    type Client = ();
    type Ticket = Stalled;

    fn procedures(&self) -> &'static [&'static str] {
        &["stalls"]
    }

    fn client(&self, _number: u32, _seed: u64) {}

    fn run_one(&self, client: &mut (), now: Instant) -> Result<usize> {
        let (procedure, ticket) = self.submit_one(client, now)?;
        ticket.wait()?;
        Ok(procedure)
    }

    fn submit_one(&self, _client: &mut (), now: Instant) -> Result<(usize, Stalled)> {
        let is_stalled = self.from.get().is_some_and(|from| now >= *from);
        Ok((0, Stalled(is_stalled.then(|| self.is_over.clone()))))
    }

    fn settle(&self, _: &mut (), outcome: Result<()>) -> Result<()> {
        outcome
    }
}

#[test]
fn a_stall_until_the_windows_end_is_in_the_latencies_with_all_that_it_held_up() {
    // With a thousand in flight every client comes to all that is due, and none of it is done.
    for in_flight in [1, 4, 1_000] {
        // The first 100 ms of the window go well, 300 ms and more do not.
        let (workload, began) = (Stalls::default(), Instant::now());
        let outcome = drive(&workload, &load(4, in_flight, Some(2_000.0)), &mut workload.clone()).unwrap();
        let (due, due_ever) =
            (2_000.0 * outcome.window.as_secs_f64(), 2_000.0 * began.elapsed().as_secs_f64());
        let all = outcome.all_latencies();
        // Of what was due in the window everything is there: what it did not come to, too.
        assert!((due * 0.7..due_ever * 1.3).contains(&(all.count() as f64)), "{} of {due}", all.count());
        assert_eq!(all.count(), outcome.committed() + outcome.overdue.count());
        assert!(outcome.overdue.count() as f64 > due * 0.4, "{} of {due}", outcome.overdue.count());
        // Half of what it held up was held up for longer than half the stall.
        let held = outcome.overdue.percentiles().unwrap();
        assert!(held.p50_us > 100_000.0 && held.max_us > 200_000.0, "{in_flight}: {held:?}");
        assert!(all.percentiles().unwrap().p99_us > 200_000.0, "{in_flight}: {:?}", all.percentiles());
    }
    // A closed loop intends nothing.
    let outcome = drive(&Timed::new(Duration::from_millis(5)), &load(4, 1, None), &mut Watch::default());
    assert_eq!(outcome.unwrap().overdue.count(), 0);
}

#[test]
fn intended_starts_come_at_the_rate_and_from_the_seed() {
    let of = |seed, clients| {
        let load = Load { seed, ..load(clients, 1, Some(1_000.0)) };
        let began = Instant::now();
        let all = (0..clients).flat_map(|number| {
            let mut arrivals = client::Arrivals::new(&load, number, began).unwrap();
            let next = move || {
                let at = arrivals.next - began;
                arrivals.advance();
                at
            };
            std::iter::repeat_with(next).take_while(|at| *at < Duration::from_secs(20))
        });
        all.collect::<Vec<_>>()
    };
    for clients in [1, 32] {
        // 20,000 of a Poisson process, give or take five standard deviations.
        let count = of(7, clients).len();
        assert!((19_300..20_700).contains(&count), "{count} of {clients} clients");
    }
    assert_eq!(of(7, 2), of(7, 2));
    assert_ne!(of(7, 1), of(8, 1));
    // Gaps are exponential: about exp(-1) of them are longer than their mean.
    let starts = of(7, 1);
    let long = starts.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(1)).count();
    let share = long as f64 / starts.len() as f64;
    assert!((0.34..0.40).contains(&share), "{share}");
}

fn watch_seconds(outcome: &Outcome) -> f64 {
    outcome.window.as_secs_f64()
}

#[test]
fn a_failure_ends_the_run_at_once() {
    for in_flight in [1, 4] {
        let workload = Timed { fail_at: 20, ..Timed::new(Duration::from_millis(1)) };
        let long = Load { window: Duration::from_secs(3_600), ..load(2, in_flight, None) };
        let started = Instant::now();
        assert_eq!(drive(&workload, &long, &mut Watch::default()).unwrap_err(), Ended::Failed(Error::Closed));
        assert!(started.elapsed() < Duration::from_secs(600), "the window is not waited for");
    }
}

#[test]
fn the_observer_can_refuse_the_window() {
    let mut watch = Watch { refuse: true, ..Watch::default() };
    let outcome = drive(&Timed::new(Duration::from_millis(1)), &load(2, 1, None), &mut watch);
    assert_eq!(outcome.unwrap_err(), Ended::Refused("too large".into()));
    assert_eq!((watch.began, watch.ended), (1, 0));
}
