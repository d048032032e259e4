//! The clients of a node: threads that call procedures, one after the other, until the time is over.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto_cluster::node::{CallError, Node};
use rialto_measure::histogram::Latencies;
use rialto_measure::interrupt;

use super::counting::{Counted, count};
use super::thread_times::ThreadTimes;
use crate::homes::Homes;
use crate::spec::{Level, Load, Pace};
use crate::wire::{EndedWithoutAnswer, NodeRan, Outlier};
use crate::workload::{Drawn, Place, Told, Workload};

/// A transaction that takes longer is an outlier.
pub const LONG: Duration = Duration::from_millis(10);
/// The most outliers that each client tells of.
const OUTLIERS_MAX: usize = 1_000;
/// The load goes on after the window, so that no node's window sees the others idle: for a tenth of the window, at most so long.
const COOL_DOWN_MAX: Duration = Duration::from_secs(1);

/// How often a thread that waits looks whether the run is over, or interrupted.
const POLL: Duration = Duration::from_millis(50);
/// The longest time between two transactions of a client of an open loop, in seconds: longer than any run.
const INTERVAL_MAX: f64 = 1e9;

const WARM_UP: u8 = 0;
const WINDOW: u8 = 1;
const COOL_DOWN: u8 = 2;
const OVER: u8 = 3;

/// What runs a client's transactions, and counts what its process does.
pub trait Target: Sync {
    /// Runs a transaction, and waits until it may be answered.
    ///
    /// # Errors
    /// In words: one that a sound program does not make fail.
    fn transact(&self, drawn: Drawn, level: Level) -> Result<Ended, String>;

    /// Looks at all counters.
    fn count(&self) -> Counted;
}

/// Where clients run.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub workload: &'a dyn Workload,
    pub homes: &'a Homes,
    /// The number of this node, and how many there are.
    pub node: u32,
    pub nodes: u32,
    pub target: &'a dyn Target,
}

/// Runs the clients of a node.
///
/// # Errors
/// In words: a call that a sound program does not make fail.
pub fn run(site: Site<'_>, load: &Load) -> Result<NodeRan, String> {
    let phase = Phase { now: AtomicU8::new(WARM_UP), window_end: OnceLock::new() };
    // Each node draws others.
    let mut seeds = Random::new(load.seed.wrapping_mul(1_000).wrapping_add(u64::from(site.node)));
    let (counts, clients) = thread::scope(|scope| {
        let begin = |number: u32| {
            let random = seeds.fork();
            let client = Client::new(site, load, &phase, (number, random));
            scope.spawn(move || client.run())
        };
        let clients: Vec<_> = (0..load.clients).map(begin).collect();
        wait(load.warmup);
        let before = site.target.count();
        let began = Instant::now();
        phase.now.store(WINDOW, Ordering::Relaxed);
        wait(load.window);
        let _ = phase.window_end.set(Instant::now());
        phase.now.store(COOL_DOWN, Ordering::Release);
        let window = began.elapsed();
        let counts = site.target.count().since(&before, window);
        wait((load.window / 10).min(COOL_DOWN_MAX));
        phase.now.store(OVER, Ordering::Release);
        let ended = clients.into_iter().map(|client| client.join().expect("no client panics"));
        (counts, ended.collect::<Result<Vec<Ran>, String>>())
    });
    let mut all = Ran::new(site.workload.kinds().len());
    for client in clients? {
        all.local.merge(&client.local);
        all.remote.merge(&client.remote);
        all.told.merge(&client.told);
        all.ended.add(&client.ended);
        all.clients_untold += client.clients_untold;
        all.outliers.extend(client.outliers);
    }
    Ok(NodeRan {
        local: all.local.parts(),
        remote: all.remote.parts(),
        counts,
        told: all.told,
        ended: all.ended,
        clients_untold: all.clients_untold,
        outliers: all.outliers,
    })
}

/// What a client has seen.
struct Ran {
    local: Latencies,
    remote: Latencies,
    told: Told,
    ended: EndedWithoutAnswer,
    clients_untold: u64,
    outliers: Vec<Outlier>,
}

impl Ran {
    fn new(kinds: usize) -> Ran {
        Ran {
            local: Latencies::default(),
            remote: Latencies::default(),
            told: Told::new(kinds),
            ended: EndedWithoutAnswer::default(),
            clients_untold: 0,
            outliers: Vec::new(),
        }
    }
}

/// How a transaction has ended.
pub enum Ended {
    Answered,
    /// Without an effect, although it was tried for long.
    Aborted,
    /// Without a commit protocol: its first call has had its effect, and a later one none.
    Half,
    Unknown,
}

/// How far the run is.
struct Phase {
    now: AtomicU8,
    /// Set before the cool-down begins.
    window_end: OnceLock<Instant>,
}

impl Phase {
    fn now(&self) -> u8 {
        self.now.load(Ordering::Acquire)
    }
}

/// Waits for so long, or until the run is interrupted: then what is measured counts for nothing.
fn wait(time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt::is_asked() {
            return;
        }
        thread::sleep(left.min(POLL));
    }
}

struct Client<'a> {
    site: Site<'a>,
    load: &'a Load,
    phase: &'a Phase,
    due: Option<Due>,
    random: Random,
    ran: Ran,
}

/// When the transactions of an open loop are due.
struct Due {
    next: Instant,
    interval: Duration,
}

impl Due {
    /// Of a client of a node: the clients of the whole cluster take turns.
    fn new(pace: Pace, (node, nodes): (u32, u32), (client, clients): (u32, u32)) -> Due {
        let Pace::PerSecond(rate) = pace else { unreachable!("the parent has measured the peak") };
        let all = nodes * clients;
        let interval = Duration::from_secs_f64((f64::from(all) / rate).min(INTERVAL_MAX));
        let first = interval.mul_f64(f64::from(client * nodes + node) / f64::from(all));
        Due { next: Instant::now() + first, interval }
    }

    /// Waits for the next one. Gives the time at which it was due; none if the run is over before.
    fn wait(&mut self, phase: &Phase) -> Option<Instant> {
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let due = self.next;
                self.next += self.interval;
                return Some(due);
            }
            if phase.now() == OVER {
                return None;
            }
            thread::sleep(left.min(POLL));
        }
    }

    /// How many of those that were due before some time have not begun.
    fn left_at(&self, time: Instant) -> u64 {
        match time.checked_duration_since(self.next) {
            Some(behind) => 1 + (behind.as_nanos() / self.interval.as_nanos().max(1)) as u64,
            None => 0,
        }
    }
}

impl<'a> Client<'a> {
    fn new(site: Site<'a>, load: &'a Load, phase: &'a Phase, (number, random): (u32, Random)) -> Client<'a> {
        let ran = Ran::new(site.workload.kinds().len());
        let due = load.pace.map(|pace| Due::new(pace, (site.node, site.nodes), (number, load.clients)));
        Client { site, load, phase, due, random, ran }
    }

    fn run(mut self) -> Result<Ran, String> {
        let Site { workload, homes, node, target, .. } = self.site;
        let place = Place { homes, node, remote_pct: self.load.remote_pct };
        let mut times = self.load.outliers.then(ThreadTimes::open).flatten();
        self.ran.clients_untold = u64::from(self.load.outliers && times.is_none());
        let mut has_left = false;
        let mut times_before = times.as_mut().map(ThreadTimes::read);
        let mut last_ended = Instant::now();
        loop {
            let drawn = workload.draw(&mut self.random, &place);
            let (kind, is_remote) = (drawn.kind, drawn.is_remote);
            let due = match &mut self.due {
                None => Instant::now(),
                Some(due) => match due.wait(self.phase) {
                    Some(due) => due,
                    None => return Ok(self.ran),
                },
            };
            // Behind earlier ones; that this thread was woken late is told by the kernel.
            let late = last_ended.saturating_duration_since(due);
            let ended = target.transact(drawn, self.load.level)?;
            last_ended = Instant::now();
            let took = last_ended.saturating_duration_since(due);
            let times_now = times.as_mut().map(ThreadTimes::read);
            let phase = self.phase.now();
            match ended {
                Ended::Answered => {
                    self.ran.told.answered[kind] += 1;
                    if phase == WINDOW {
                        let latencies = if is_remote { &mut self.ran.remote } else { &mut self.ran.local };
                        latencies.record(took);
                        if took > LONG
                            && self.ran.outliers.len() < OUTLIERS_MAX
                            && let (Some(before), Some(now)) = (times_before, times_now)
                        {
                            let spent = now.since(before);
                            self.ran.outliers.push(Outlier {
                                is_remote,
                                took_us: took.as_micros() as u64,
                                late_us: if self.due.is_some() { late.as_micros() as u64 } else { 0 },
                                on_core_us: spent.on_core_ns / 1_000,
                                ready_us: spent.ready_ns / 1_000,
                            });
                        }
                    }
                }
                Ended::Aborted => {}
                Ended::Half => self.ran.told.half += 1,
                Ended::Unknown => self.ran.told.unknown[kind] += 1,
            }
            if phase == WINDOW {
                self.ran.ended.count(&ended, took);
            }
            // What was due in the window, and has not ended in it, is told once.
            if let (Some(open), Some(end)) = (&self.due, self.phase.window_end.get())
                && !has_left
            {
                has_left = true;
                self.ran.ended.late = open.left_at(*end) + u64::from(due < *end && took > LONG);
            }
            times_before = times_now;
            if phase == OVER {
                return Ok(self.ran);
            }
        }
    }
}

impl Target for Node {
    /// Runs the calls of a transaction. Without a commit protocol a later one may end otherwise than the earlier ones.
    fn transact(&self, drawn: Drawn, level: Level) -> Result<Ended, String> {
        for (nth, call) in drawn.calls.into_iter().enumerate() {
            match self.transactions().call(&call.level(level.of_call())) {
                Ok(_) => {}
                Err(CallError::Aborted(_)) if nth > 0 => return Ok(Ended::Half),
                Err(CallError::Aborted(_)) => return Ok(Ended::Aborted),
                Err(CallError::Unknown) => return Ok(Ended::Unknown),
                Err(error) => return Err(format!("a call: {error}")),
            }
        }
        Ok(Ended::Answered)
    }

    fn count(&self) -> Counted {
        count(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_an_open_loop_take_turns() {
        let began = Instant::now();
        let due = |node, client| Due::new(Pace::PerSecond(1_000.0), (node, 2), (client, 2));
        let mut all = [due(0, 0), due(1, 0), due(0, 1), due(1, 1)];
        for (nth, due) in (1u32..).zip(&all) {
            assert_eq!(due.interval, Duration::from_millis(4));
            let first = due.next.saturating_duration_since(began);
            assert!(first >= Duration::from_millis(1) * (nth - 1), "{nth}: {first:?}");
        }
        let phase = Phase { now: AtomicU8::new(WINDOW), window_end: OnceLock::new() };
        let first = all[0].wait(&phase).unwrap();
        assert!(Instant::now() >= first);
        assert_eq!(all[0].wait(&phase).unwrap() - first, Duration::from_millis(4));
    }

    #[test]
    fn a_low_rate_is_the_rate_that_is_offered_and_its_clients_end_with_the_run() {
        let mut due = Due::new(Pace::PerSecond(1.0), (1, 8), (3, 4));
        assert_eq!(due.interval, Duration::from_secs(32));
        let phase = Phase { now: AtomicU8::new(OVER), window_end: OnceLock::new() };
        assert_eq!(due.wait(&phase), None);
    }

    #[test]
    fn what_was_due_and_has_not_begun_is_counted() {
        let due = Due { next: Instant::now(), interval: Duration::from_millis(10) };
        let left = |ms| due.left_at(due.next + Duration::from_millis(ms));
        assert_eq!((left(0), left(9), left(10), left(995)), (1, 1, 2, 100));
        let later = Due { next: due.next + Duration::from_secs(1), ..due };
        assert_eq!(later.left_at(later.next - Duration::from_millis(1)), 0);
    }

    /// A target that stands still once, and of which some transactions have no effect.
    struct Stalls {
        /// Its calls.
        calls: std::sync::atomic::AtomicU64,
        aborts_each: u64,
    }

    impl Target for Stalls {
        fn transact(&self, _drawn: Drawn, _level: Level) -> Result<Ended, String> {
            let nth = self.calls.fetch_add(1, Ordering::Relaxed);
            if nth == 20 {
                thread::sleep(Duration::from_millis(200));
            }
            let is_aborted = nth % self.aborts_each == self.aborts_each - 1;
            Ok(if is_aborted { Ended::Aborted } else { Ended::Answered })
        }

        fn count(&self) -> Counted {
            Counted::none()
        }
    }

    fn run_on(target: &dyn Target, pace: Option<Pace>) -> NodeRan {
        use crate::spec::{Data, Protocol, Shape, WorkloadName};
        let data =
            Data { workload: WorkloadName::Tpcb, protocol: Protocol::Atomic, branches: 1, accounts: 10 };
        let workload = crate::workload::of(data);
        let homes = Homes::find(Shape { nodes: 1, partitions: 1, replicas: 1 }, data, |_| 0);
        let load = Load {
            clients: 1,
            remote_pct: 0,
            pace,
            level: Level::Memory,
            warmup: Duration::ZERO,
            window: Duration::from_millis(600),
            seed: 1,
            outliers: true,
        };
        run(Site { workload: &*workload, homes: &homes, node: 0, nodes: 1, target }, &load).unwrap()
    }

    #[test]
    fn what_queues_behind_a_stall_of_its_own_client_has_that_cause() {
        let target = Stalls { calls: 0.into(), aborts_each: u64::MAX };
        let ran = run_on(&target, Some(Pace::PerSecond(1_000.0)));
        if ran.clients_untold > 0 {
            return println!("skipped: the kernel does not tell of threads");
        }
        // The stalled one waited itself; those that were due meanwhile began up to 200 ms late.
        let behind = ran.outliers.iter().filter(|of| of.late_us > of.took_us / 2).count();
        assert!(behind > 100, "{behind} of {:?}", ran.outliers);
        assert!(
            ran.outliers.iter().any(|of| of.took_us >= 200_000 && of.late_us < 200_000),
            "{:?}",
            ran.outliers
        );
    }

    #[test]
    fn transactions_without_an_answer_are_counted() {
        let target = Stalls { calls: 0.into(), aborts_each: 2 };
        let ran = run_on(&target, None);
        let (aborted, answered) = (ran.ended.aborted, ran.told.answered[0]);
        assert!(aborted > 0 && answered > 0, "{aborted} aborted, {answered} answered");
    }
}
