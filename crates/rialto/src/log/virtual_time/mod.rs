//! Commit sequences in virtual time: the group commit designs on a machine that a few numbers describe. `turn.rs`,
//! `commit_lock.rs` and the designs themselves are the production code.
//!
//! A commit sequence is what KODA's experiments ran ("Details of the Experiments"): no database work, only the path of
//! a commit. A simulated client works on a processor for [`Regime::commit_cpu`], queues its packet, and waits as the
//! design says. A log write takes [`Regime::write`]; groups, wake calls and wake-ups cost what the regime says. Runs are
//! exact: the same seed gives the same figures on every machine.

mod machine;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use self::machine::{Costs, Virtual};
use super::turn::{Committer, Turn, Waits, Writer};
use super::writer::group_size_class;
use super::{GROUP_SIZE_CLASSES, GroupCommitOptions, Patience};
use crate::io::Random;
use crate::log::sync::Machine;

/// A machine and its log disk, in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regime {
    /// Its name, after `sim:`.
    pub name: &'static str,
    /// What it stands for.
    pub meaning: &'static str,
    /// Processors.
    pub processors: u32,
    /// Processor time of a commit sequence: the mean of an exponential distribution.
    pub commit_cpu: Duration,
    /// Processor time of a wake call.
    pub wake_cpu: Duration,
    /// Processor time of a wake-up: the thread is scheduled, and looks whether its commit is durable.
    pub look_cpu: Duration,
    /// What a wake-up that finds the commit durable takes besides. One that does not is useless.
    pub resume_cpu: Duration,
    /// Processor time of a group for the thread that writes it, half of it before the write and half after. It goes
    /// before the threads that wait for a processor, as a process whose I/O has ended does. It counts as part of the
    /// write's time for the designs.
    pub group_cpu: Duration,
    /// Time of a grant of the commit lock.
    pub grant: Duration,
    /// Time of a log write.
    pub write: Duration,
    /// The most packets in a group, unless the design's options set a bound.
    pub group_max: Option<u32>,
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

const fn ssd(name: &'static str, meaning: &'static str, write_us: u64) -> Regime {
    Regime {
        name,
        meaning,
        processors: 2,
        commit_cpu: us(2),
        wake_cpu: us(2),
        look_cpu: us(3),
        resume_cpu: Duration::ZERO,
        group_cpu: Duration::ZERO,
        grant: Duration::ZERO,
        write: us(write_us),
        group_max: None,
    }
}

/// The regimes.
pub const REGIMES: [Regime; 4] = [
    Regime {
        name: "koda",
        meaning: "KODA's VAX 6340: 4 processors, 30 log writes a second, groups of at most 50, 16.7 ms of a processor a group (the \
                  paper's 50 ms for a group, less the write); 2.8 ms a commit, 0.75 ms a wake-up and 2.45 ms more if it finds the \
                  commit durable (fitted to Tables 1 and 2), 1.5 ms a grant of the commit lock (fitted to 300 TPS)",
        processors: 4,
        commit_cpu: us(2_800),
        wake_cpu: us(50),
        look_cpu: us(750),
        resume_cpu: us(2_450),
        group_cpu: us(16_700),
        grant: us(1_500),
        write: us(33_333),
        group_max: Some(50),
    },
    ssd("ssd-30us", "2 processors, an SSD that writes and syncs in 30 us", 30),
    ssd("ssd-100us", "2 processors, an SSD that writes and syncs in 100 us", 100),
    ssd("ssd-1ms", "2 processors, an SSD that writes and syncs in 1 ms", 1_000),
];

/// The clients of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Client threads: the paper's servers.
    pub clients: u32,
    /// Commits that each client has outstanding: 1 is a blocking client, more are tickets.
    pub in_flight: u32,
    /// Commits before the measurement begins.
    pub warmup_commits: u64,
    /// Commits that are measured.
    pub commits: u64,
    /// The seed of the clients' work.
    pub seed: u64,
    /// What the clients say about their waits, in turn; nothing if it is empty. The time when a transaction began is
    /// known.
    pub patience: &'static [Patience],
    /// How often clients poll that never wait for a commit; `None` for clients that wait.
    pub polls: Option<Duration>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOutcome {
    /// Commits measured.
    pub commits: u64,
    /// The time that they took.
    pub time: Duration,
    /// Processors busy on average, between 0 and [`Regime::processors`].
    pub processors_busy: f64,
    /// Response times of the commits measured, from the start of their work, sorted.
    pub responses: Vec<Duration>,
    /// By client: the longest time that one of the commits measured was queued before it was durable.
    pub longest_commits: Vec<Duration>,
    /// By client: how many of the commits measured it made, and their response times together.
    pub by_client: Vec<(u64, Duration)>,
    /// Groups written meanwhile.
    pub groups: u64,
    /// Packets in the largest group.
    pub group_max: u64,
    /// Groups of 1, 2-3, 4-7, … packets.
    pub group_sizes: [u64; GROUP_SIZE_CLASSES],
    /// What waiting has cost meanwhile.
    pub waits: Waits,
}

impl LoadOutcome {
    /// Commits a second.
    pub fn per_second(&self) -> f64 {
        self.commits as f64 / self.time.as_secs_f64()
    }
}

struct World {
    regime: Regime,
    machine: Virtual,
    writer: Writer<Virtual>,
    place: AtomicU64,
    group_max: u64,
    over: AtomicBool,
    measured: Mutex<Measured>,
}

/// The machine's counters when the measurement began or ended.
#[derive(Debug, Clone, Copy)]
struct MachineReading {
    now: Duration,
    worked: Duration,
    waits: Waits,
}

#[derive(Default)]
struct Measured {
    begin: Option<MachineReading>,
    end: Option<MachineReading>,
    done: u64,
    groups: u64,
    group_max: u64,
    group_sizes: [u64; GROUP_SIZE_CLASSES],
    responses: Vec<Duration>,
    longest_commits: Vec<Duration>,
    by_client: Vec<(u64, Duration)>,
}

/// A commit that is not yet known to be durable.
#[derive(Debug, Clone, Copy)]
struct Pending {
    lsn: u64,
    began: Duration,
    queued: Duration,
}

/// Level 1's interval.
const INTERVAL: Duration = us(10_000);

impl World {
    fn new(regime: &Regime, options: &GroupCommitOptions, clients: usize) -> World {
        let Regime { processors, wake_cpu: wake, look_cpu: look, grant, .. } = *regime;
        // The last thread is the log server.
        let machine = Virtual::new(clients + 1, Costs { processors, wake, look, grant });
        World {
            regime: *regime,
            writer: Writer::new(machine.clone(), options.policy(), 0, 1),
            machine,
            place: AtomicU64::new(0),
            group_max: options.group_max.or(regime.group_max).map_or(u64::MAX, u64::from),
            over: AtomicBool::new(false),
            measured: Mutex::new(Measured {
                longest_commits: vec![Duration::ZERO; clients],
                by_client: vec![(0, Duration::ZERO); clients],
                ..Measured::default()
            }),
        }
    }

    /// Runs the clients, by their numbers, and the log server until the log is closed.
    fn run(&self, clients: usize, client: impl Fn(usize) + Sync) {
        let run = |number: usize| {
            self.machine.enter(number);
            if number < clients {
                client(number);
            } else {
                let stand_in = || Committer::stand_in(self.place());
                self.writer.serve(INTERVAL, stand_in, || self.place(), |turn| self.write(turn));
            }
            self.machine.leave();
        };
        std::thread::scope(|scope| {
            let start = |number| {
                let run = &run;
                std::thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn_scoped(scope, move || run(number))
                    .expect("a thread can be started")
            };
            let threads: Vec<_> = (0..=clients).map(start).collect();
            self.machine.start();
            // ThreadSanitizer does not see the synchronisation inside std by which the scope itself ends; it sees a
            // join.
            for thread in threads {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }

    fn place(&self) -> u64 {
        self.place.load(Ordering::SeqCst)
    }

    fn write(&self, mut turn: Turn<'_, Virtual>) {
        let (place, durable) = (self.place(), self.writer.durable());
        let target = place.min(durable.saturating_add(self.group_max));
        turn.begin(target, || self.place());
        let mut took = Duration::ZERO;
        if target > durable {
            let began = self.machine.now();
            self.machine.work_first(self.regime.group_cpu / 2);
            self.machine.pass(self.regime.write);
            self.machine.work_first(self.regime.group_cpu / 2);
            took = self.machine.now() - began;
        }
        // An empty group completes, too: later ones wait for it.
        turn.publish(target, took, || self.place(), || ());
        if target > durable {
            let mut measured = self.measured.lock();
            if measured.begin.is_some() && measured.end.is_none() {
                measured.groups += 1;
                measured.group_max = measured.group_max.max(target - durable);
                if let Some(class) = group_size_class(target - durable) {
                    measured.group_sizes[class] += 1;
                }
            }
        }
        turn.release(|| self.place());
        if target < place {
            self.writer.ask_now();
        }
    }

    fn moment(&self) -> MachineReading {
        MachineReading { now: self.machine.now(), worked: self.machine.worked(), waits: self.writer.waits() }
    }

    /// A client's commit is durable; returns whether the client has more to do.
    fn done(&self, client: usize, commit: &Pending, load: &Load) -> bool {
        let mut guard = self.measured.lock();
        let measured = &mut *guard;
        measured.done += 1;
        if measured.done == load.warmup_commits + 1 {
            measured.begin = Some(self.moment());
        } else if measured.done > load.warmup_commits && measured.end.is_none() {
            let now = self.machine.now();
            measured.responses.push(now - commit.began);
            let longest = &mut measured.longest_commits[client];
            *longest = (*longest).max(now - commit.queued);
            let (count, together) = &mut measured.by_client[client];
            (*count, *together) = (*count + 1, *together + (now - commit.began));
            if measured.responses.len() as u64 == load.commits {
                measured.end = Some(self.moment());
                self.over.store(true, Ordering::SeqCst);
            }
        }
        !self.over.load(Ordering::SeqCst)
    }

    fn client(&self, number: usize, load: &Load) {
        let mut random = Random::new(load.seed ^ (number as u64 + 1) << 32);
        let patience = match load.patience.len() {
            0 => Patience::default(),
            all => load.patience[number % all],
        };
        let mut pending = std::collections::VecDeque::new();
        while !self.over.load(Ordering::SeqCst) {
            let began = self.machine.now();
            self.machine.work(drawn(&mut random, self.regime.commit_cpu));
            let lsn = self.place.fetch_add(1, Ordering::SeqCst) + 1;
            if load.in_flight > 1 || load.polls.is_some() {
                // A ticket: the stand-in waits for it until the client does.
                self.writer.ask_unhurried();
            }
            pending.push_back(Pending { lsn, began, queued: self.machine.now() });
            if pending.len() < load.in_flight as usize {
                continue;
            }
            let waited = pending.pop_front().expect("it was pushed just now");
            if let Some(time) = load.polls {
                while self.writer.durable() < waited.lsn {
                    self.machine.pass(time);
                }
            } else {
                let committer = Committer {
                    lsn: waited.lsn,
                    stand_in: false,
                    started: Some(waited.began),
                    stall: patience.stall,
                    willing_to_wait: patience.willing_to_wait,
                    level_1: None,
                };
                let sleeps = Virtual::sleeps();
                self.writer.wait(&committer, || self.place(), |turn| self.write(turn));
                if Virtual::sleeps() > sleeps {
                    self.machine.work(self.regime.resume_cpu);
                }
            }
            if !self.done(number, &waited, load) {
                break;
            }
            while let Some(next) =
                pending.pop_front_if(|next: &mut Pending| next.lsn <= self.writer.durable())
            {
                self.done(number, &next, load);
            }
        }
    }
}

/// A time drawn from an exponential distribution with this mean: commits arrive at their own times, not in step.
fn drawn(random: &mut Random, mean: Duration) -> Duration {
    let uniform = (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
    mean.mul_f64(-uniform.ln())
}

/// Runs the load on the regime's machine.
///
/// # Panics
/// If the options have a [problem](GroupCommitOptions::problem), or the load has no client.
pub fn simulate(regime: &Regime, options: &GroupCommitOptions, load: &Load) -> LoadOutcome {
    assert_eq!(options.problem(), None);
    assert!(load.clients > 0 && load.in_flight > 0 && load.commits > 0, "{load:?}");
    let clients = load.clients as usize;
    let world = World::new(regime, options, clients);
    let left = AtomicU64::new(clients as u64);
    world.run(clients, |number| {
        world.client(number, load);
        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
            world.writer.close();
        }
    });
    let measured = std::mem::take(&mut *world.measured.lock());
    let (begin, end) = (measured.begin.expect("it was measured"), measured.end.expect("to its end"));
    let time = end.now - begin.now;
    let mut responses = measured.responses;
    responses.sort_unstable();
    LoadOutcome {
        commits: load.commits,
        time,
        processors_busy: (end.worked - begin.worked).as_secs_f64() / time.as_secs_f64(),
        responses,
        longest_commits: measured.longest_commits,
        by_client: measured.by_client,
        groups: measured.groups,
        group_max: measured.group_max,
        group_sizes: measured.group_sizes,
        waits: end.waits.since(begin.waits),
    }
}
