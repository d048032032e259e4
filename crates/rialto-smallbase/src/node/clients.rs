//! The clients of a node: threads that call procedures, one after the other, until the time is over.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto_cluster::node::{CallError, Node};
use rialto_measure::histogram::Latencies;

use super::counting::{Counted, count};
use super::thread_times::ThreadTimes;
use crate::homes::Homes;
use crate::spec::{Level, Load, Pace};
use crate::wire::{NodeRan, Outlier};
use crate::workload::{Drawn, Place, Told, Workload};

/// A transaction that takes longer is an outlier.
pub const LONG: Duration = Duration::from_millis(10);
/// So many outliers of each client are told.
const OUTLIERS_MAX: usize = 1_000;
/// The load goes on after the window, so that no node's window sees the others idle: for a tenth of the window, at most so long.
const COOL_DOWN_MAX: Duration = Duration::from_secs(1);

/// The longest time between two transactions of a client of an open loop, in seconds: the end of the run is seen between two.
const INTERVAL_MAX: f64 = 1.0;

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
    let phase = AtomicU8::new(WARM_UP);
    // Each node draws others.
    let mut seeds = Random::new(load.seed.wrapping_mul(1_000).wrapping_add(u64::from(site.node)));
    let (counts, clients) = thread::scope(|scope| {
        let begin = |number: u32| {
            let random = seeds.fork();
            let client = Client::new(site, load, &phase, (number, random));
            scope.spawn(move || client.run())
        };
        let clients: Vec<_> = (0..load.clients).map(begin).collect();
        thread::sleep(load.warmup);
        let before = site.target.count();
        let began = Instant::now();
        phase.store(WINDOW, Ordering::Relaxed);
        thread::sleep(load.window);
        phase.store(COOL_DOWN, Ordering::Relaxed);
        let window = began.elapsed();
        let counts = site.target.count().since(&before, window);
        thread::sleep((load.window / 10).min(COOL_DOWN_MAX));
        phase.store(OVER, Ordering::Relaxed);
        let ended = clients.into_iter().map(|client| client.join().expect("no client panics"));
        (counts, ended.collect::<Result<Vec<Ran>, String>>())
    });
    let mut all = Ran::new(site.workload.kinds().len());
    for client in clients? {
        all.local.merge(&client.local);
        all.remote.merge(&client.remote);
        all.told.merge(&client.told);
        all.aborted += client.aborted;
        all.outliers.extend(client.outliers);
    }
    Ok(NodeRan {
        local: all.local.parts(),
        remote: all.remote.parts(),
        counts,
        told: all.told,
        aborted: all.aborted,
        outliers: all.outliers,
    })
}

/// What a client has seen.
struct Ran {
    local: Latencies,
    remote: Latencies,
    told: Told,
    aborted: u64,
    outliers: Vec<Outlier>,
}

impl Ran {
    fn new(kinds: usize) -> Ran {
        Ran {
            local: Latencies::default(),
            remote: Latencies::default(),
            told: Told::new(kinds),
            aborted: 0,
            outliers: Vec::new(),
        }
    }
}

/// How a transaction has ended.
pub enum Ended {
    Answered,
    /// Without an effect, although it was tried for long.
    Aborted,
    Unknown,
}

struct Client<'a> {
    site: Site<'a>,
    load: &'a Load,
    phase: &'a AtomicU8,
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

    /// Waits for the next one. Gives the time at which it was due.
    fn wait(&mut self) -> Instant {
        let due = self.next;
        self.next += self.interval;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

impl<'a> Client<'a> {
    fn new(
        site: Site<'a>,
        load: &'a Load,
        phase: &'a AtomicU8,
        (number, random): (u32, Random),
    ) -> Client<'a> {
        let ran = Ran::new(site.workload.kinds().len());
        let due = load.pace.map(|pace| Due::new(pace, (site.node, site.nodes), (number, load.clients)));
        Client { site, load, phase, due, random, ran }
    }

    fn run(mut self) -> Result<Ran, String> {
        let Site { workload, homes, node, target, .. } = self.site;
        let place = Place { homes, node, remote_pct: self.load.remote_pct };
        let mut times = self.load.outliers.then(ThreadTimes::open).flatten();
        let mut times_before = times.as_mut().map(ThreadTimes::read);
        loop {
            let drawn = workload.draw(&mut self.random, &place);
            let (kind, is_remote) = (drawn.kind, drawn.is_remote);
            let began = self.due.as_mut().map_or_else(Instant::now, Due::wait);
            let ended = target.transact(drawn, self.load.level)?;
            let took = began.elapsed();
            let times_now = times.as_mut().map(ThreadTimes::read);
            let phase = self.phase.load(Ordering::Relaxed);
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
                                on_core_us: spent.on_core_ns / 1_000,
                                ready_us: spent.ready_ns / 1_000,
                            });
                        }
                    }
                }
                Ended::Aborted => self.ran.aborted += 1,
                Ended::Unknown => self.ran.told.unknown[kind] += 1,
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
        for call in drawn.calls {
            match self.transactions().call(&call.level(level.of_call())) {
                Ok(_) => {}
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
        let first = all[0].wait();
        assert!(Instant::now() >= first);
        assert_eq!(all[0].wait() - first, Duration::from_millis(4));
    }
}
