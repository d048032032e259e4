//! The commit queue and the writer word under a model checker: the same source files, compiled against shuttle's
//! atomics, run under many random schedules. A lost wake-up shows as a deadlock, which shuttle reports.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Condvar;
use shuttle::thread;

use super::group_commit::{Adaptive, GroupCommitDesign, GroupCommitOptions};

/// `super::sync`, for the model.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::{Condvar, Duration};
    pub(crate) use crate::log::sync::{Futex, Machine};

    /// parking_lot's interface.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// Time passes only in sleeps with a time limit.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Modelled {
        now_ns: std::sync::Arc<std::sync::atomic::AtomicU64>,
    }

    impl Machine for Modelled {
        type Futex = ModelledFutex;

        fn futex(&self, value: u32) -> ModelledFutex {
            ModelledFutex {
                word: AtomicU32::new(value),
                lock: Mutex::new(()),
                changed: Condvar::new(),
                machine: self.clone(),
            }
        }

        fn now(&self) -> Duration {
            Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
        }
    }

    #[derive(Debug)]
    pub(crate) struct ModelledFutex {
        word: AtomicU32,
        lock: Mutex<()>,
        changed: Condvar,
        machine: Modelled,
    }

    impl Futex for ModelledFutex {
        fn load(&self) -> u32 {
            self.word.load(Ordering::SeqCst)
        }

        fn fetch_add(&self, by: u32) -> u32 {
            self.word.fetch_add(by, Ordering::SeqCst)
        }

        fn fetch_max(&self, with: u32) -> u32 {
            self.word.fetch_max(with, Ordering::SeqCst)
        }

        fn exchange(&self, old: u32, new: u32) -> bool {
            self.word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        }

        /// A sleep with a time limit may end at any time; then that much time has passed. A sleep without one, or with
        /// a very long one, ends only by a wake call.
        fn wait(&self, expected: u32, limit: Option<Duration>) {
            let lock = self.lock.lock();
            if self.load() != expected {
                return;
            }
            match limit.filter(|limit| *limit < super::FOR_EVER) {
                Some(limit) => {
                    drop(lock);
                    self.machine.now_ns.fetch_add(limit.as_nanos() as u64, Ordering::Relaxed);
                    shuttle::thread::yield_now();
                }
                None => drop(self.changed.wait(lock).unwrap()),
            }
        }

        fn wake_all(&self) -> u32 {
            let _lock = self.lock.lock();
            self.changed.notify_all();
            0
        }
    }
}

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "commit_lock.rs"]
mod commit_lock;
#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "queue.rs"]
mod queue;
#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "turn.rs"]
mod turn;

use queue::{CommitQueue, Links, NO_SLOT};
use sync::{AtomicU32, AtomicU64, Machine, Modelled, Ordering};
use turn::{Committer, Turn, Waited, Writer};

/// Schedules tried per model of the queue.
const SCHEDULES: usize = 3000;
/// The shortest time limit of a sleep that does not end by itself.
const FOR_EVER: Duration = Duration::from_secs(30);
/// Schedules tried per model and design.
const DESIGN_SCHEDULES: usize = 400;

struct Slots(Vec<(AtomicU32, AtomicU64)>);

impl Links for Slots {
    fn next(&self, slot: u32) -> &AtomicU32 {
        &self.0[slot as usize].0
    }

    fn lsn(&self, slot: u32) -> &AtomicU64 {
        &self.0[slot as usize].1
    }
}

/// The thread that drains also takes some places alone, without the queue.
#[test]
fn places_are_dense_and_drained_in_order() {
    const PUSHERS: u32 = 3;
    const EACH: u32 = 2;
    const ALONE: u32 = 2;
    let model = || {
        let slots = (0..PUSHERS * EACH).map(|_| (AtomicU32::new(NO_SLOT), AtomicU64::new(0))).collect();
        let shared = Arc::new((CommitQueue::new(crate::Lsn(40)), Slots(slots)));
        let pushers: Vec<_> = (0..PUSHERS)
            .map(|pusher| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut last = 0;
                    for slot in pusher * EACH..(pusher + 1) * EACH {
                        let lsn = shared.0.push(&shared.1, slot).0;
                        assert!(lsn > last && lsn <= shared.0.place().0);
                        last = lsn;
                    }
                })
            })
            .collect();
        let (mut next, mut alone) = (41, 0);
        while next <= 40 + u64::from(PUSHERS * EACH + ALONE) {
            if alone < ALONE
                && let Some(lsn) = shared.0.place_alone(crate::Lsn(next - 1))
            {
                assert_eq!(lsn.0, next, "dense, between the drained ones");
                (next, alone) = (next + 1, alone + 1);
                thread::yield_now();
                continue;
            }
            let Some(mut slot) = shared.0.drain() else {
                thread::yield_now();
                continue;
            };
            let mut chain = Vec::new();
            while slot != NO_SLOT {
                chain.push(shared.1.lsn(slot).load(Ordering::Relaxed));
                slot = shared.1.next(slot).load(Ordering::Relaxed);
            }
            for lsn in chain.into_iter().rev() {
                assert_eq!(lsn, next, "dense, oldest first");
                next += 1;
            }
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        assert_eq!(shared.0.place().0, next - 1);
    };
    shuttle::check_random(model, SCHEDULES);
}

/// A log without bytes: a place is a count, a write is nothing.
struct World {
    writer: Writer<Modelled>,
    place: AtomicU64,
    writes: AtomicU64,
    fails_at: u64,
    write: Duration,
    group_max: u64,
    /// Whether a thread drains, how many groups are in flight, and how far they have completed, counted by the model.
    draining: AtomicU32,
    pending: AtomicU32,
    in_flight: u32,
    completed: AtomicU64,
    drained: AtomicU64,
}

/// A model's parameters.
#[derive(Clone, Copy)]
struct Case {
    options: GroupCommitOptions,
    /// The company that the adaptive design waits for, if it has found one.
    company: u64,
    /// How many groups may be in flight.
    in_flight: u32,
    /// The write that fails; 0 for none.
    fails_at: u64,
    /// How long a write takes, as the committers know it: for a short one they spin.
    write: Duration,
    tickets: bool,
    closes_early: bool,
    /// What each committer says about its own waits.
    own: [Own; COMMITTERS],
    /// Whether a thread raises all stalls and lowers them again meanwhile.
    raises: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { options, company, in_flight, write, own, raises, .. } = self;
        write!(
            f,
            "{options}, a company of {company}, {in_flight} in flight, writes of {write:?}, {own:?}, raised: {raises}"
        )
    }
}

const COMMITTERS: usize = 3;

/// What a committer says about its own waits.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    stall: Option<Duration>,
    willing_to_wait: Option<Duration>,
}

impl Own {
    const fn of(us: u64) -> Own {
        let wait = Some(Duration::from_micros(us));
        Own { stall: wait, willing_to_wait: wait }
    }
}

/// Every design, with settings of its own where it has some, and a bound for its groups; also with committers that have
/// waits of their own while all stalls are raised and lowered.
fn cases() -> Vec<Case> {
    let (short, long) = (Some(Duration::from_micros(10)), Some(Duration::from_millis(10)));
    let mut all: Vec<GroupCommitOptions> = GroupCommitDesign::ALL.into_iter().map(Into::into).collect();
    for (design, wait) in [
        (GroupCommitDesign::WillingToWait, short),
        (GroupCommitDesign::HiberWillingToWait, short),
        (GroupCommitDesign::HiberWillingToWait, long),
    ] {
        all.push(GroupCommitOptions { willing_to_wait: wait, ..design.into() });
    }
    all.push(GroupCommitOptions { wake_delay: short, ..GroupCommitDesign::Hiber.into() });
    all.push(GroupCommitOptions { stall: long, ..GroupCommitDesign::HiberStall.into() });
    all.push(GroupCommitOptions { linger: long, ..GroupCommitDesign::LogServer.into() });
    let bounded: Vec<_> =
        all.iter().map(|options| GroupCommitOptions { group_max: Some(1), ..*options }).collect();
    let case = |options| Case {
        options,
        company: 0,
        in_flight: 1,
        fails_at: 0,
        write: Duration::from_micros(100),
        tickets: false,
        closes_early: false,
        own: [Own::default(); COMMITTERS],
        raises: false,
    };
    let in_company = [2, 3, 5].map(|company| Case { company, ..case(GroupCommitDesign::Adaptive.into()) });
    let alone: Vec<Case> = all.into_iter().chain(bounded).map(case).chain(in_company).collect();
    let together = alone.clone().into_iter().map(|case| Case { in_flight: 2, ..case });
    let three = GroupCommitDesign::ALL.map(|design| Case { in_flight: 3, ..case(design.into()) });
    let own = [Own::of(10), Own::of(10_000), Own::default()];
    let mixed = GroupCommitDesign::ALL.into_iter().flat_map(|design| {
        [(None, 1), (Some(1), 1), (None, 2)].map(|(group_max, in_flight)| {
            let options = GroupCommitOptions { group_max, ..design.into() };
            Case { own, raises: true, in_flight, ..case(options) }
        })
    });
    let quick = GroupCommitDesign::ALL.into_iter().flat_map(|design| {
        let write = Duration::from_nanos(40);
        [1, 2].map(|in_flight| Case { write, in_flight, ..case(design.into()) })
    });
    together.chain(three).chain(mixed).chain(quick).chain(alone).collect()
}

impl World {
    fn new(case: &Case) -> Arc<World> {
        let (place, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        let design = match case.company {
            0 => case.options.policy(),
            company => Box::new(Adaptive::waiting_for(company)),
        };
        Arc::new(World {
            writer: Writer::new(Modelled::default(), design, 0, case.in_flight),
            place,
            writes,
            fails_at: case.fails_at,
            write: case.write,
            group_max: case.options.group_max.map_or(u64::MAX, u64::from),
            draining: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            in_flight: case.in_flight,
            completed: AtomicU64::new(0),
            drained: AtomicU64::new(0),
        })
    }

    fn place(&self) -> u64 {
        self.place.load(Ordering::SeqCst)
    }

    fn write(&self, mut turn: Turn<'_, Modelled>) {
        assert_eq!(self.draining.swap(1, Ordering::SeqCst), 0, "two committers at once");
        let pending = self.pending.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(pending <= self.in_flight, "{pending} groups in flight");
        let place = self.place();
        let drained = self.drained.load(Ordering::SeqCst);
        let target = place.min(drained.saturating_add(self.group_max));
        self.drained.store(target, Ordering::SeqCst);
        self.draining.store(0, Ordering::SeqCst);
        turn.begin(target, || self.place());
        thread::yield_now();
        if self.writes.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at {
            self.writer.stop();
        } else if !self.writer.stopped() {
            turn.publish(
                target,
                self.write,
                || self.place(),
                || {
                    let before = self.completed.swap(target, Ordering::SeqCst);
                    assert!(before == drained, "I4: the group from {drained} on completed after {before}");
                },
            );
        }
        self.pending.fetch_sub(1, Ordering::SeqCst);
        turn.release(|| self.place());
        if target < place {
            // As the log does: the packets that the group left behind may have no waiter but the stand-in.
            self.writer.ask_now();
        }
    }

    fn commit(&self, own: Own) -> (u64, Waited) {
        let started = Some(self.writer.machine().now());
        let lsn = self.place.fetch_add(1, Ordering::SeqCst) + 1;
        let Own { stall, willing_to_wait } = own;
        let committer = Committer { lsn, stand_in: false, started, stall, willing_to_wait, level_1: None };
        (lsn, self.writer.wait(&committer, || self.place(), |turn| self.write(turn)))
    }

    fn serve(&self, interval: Duration) {
        let stand_in = || Committer::stand_in(self.place());
        self.writer.serve(interval, stand_in, || self.place(), |turn| self.write(turn));
    }
}

fn committers_and_server(case: Case) {
    let world = World::new(&case);
    let server = thread::spawn({
        let world = world.clone();
        move || world.serve(Duration::from_millis(1))
    });
    let raising = case.raises.then(|| {
        let world = world.clone();
        thread::spawn(move || {
            for us in [50, 0, 5_000, 0] {
                world.writer.raise_stalls(Duration::from_micros(us));
            }
        })
    });
    let committers: Vec<_> = case
        .own
        .into_iter()
        .map(|own| {
            let world = world.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let (lsn, waited) = world.commit(own);
                    match waited {
                        Waited::Durable => assert!(world.writer.durable() >= lsn),
                        Waited::Stopped => assert!(case.fails_at > 0 && world.writer.stopped()),
                    }
                }
            })
        })
        .collect();
    if case.tickets {
        let asks = [Writer::ask_now, Writer::ask_unhurried, Writer::ask_now, Writer::ask_soon];
        for ask in asks {
            let lsn = world.place.fetch_add(1, Ordering::SeqCst) + 1;
            ask(&world.writer);
            while world.writer.durable() < lsn {
                thread::yield_now();
            }
        }
    }
    if case.closes_early {
        world.writer.close();
    }
    committers.into_iter().chain(raising).for_each(|thread| thread.join().unwrap());
    world.writer.close();
    server.join().unwrap();
    if case.fails_at == 0 {
        assert_eq!(world.writer.durable(), world.place());
    }
}

/// A lost wake-up, a committer asleep behind a full queue, a packet that no thread is bound to write: all show as
/// deadlocks.
#[test]
fn no_committer_sleeps_for_ever() {
    for case in cases() {
        eprintln!("{case}");
        shuttle::check_random(move || committers_and_server(case), DESIGN_SCHEDULES);
        shuttle::check_pct(move || committers_and_server(case), DESIGN_SCHEDULES, 3);
    }
}

#[test]
fn packets_without_waiters_are_written() {
    for case in cases() {
        eprintln!("{case}");
        let case = Case { tickets: true, ..case };
        // It takes many schedules until a sleep of the log server, another thread's group and a ticket in between
        // coincide.
        let schedules = if case.company > 0 { 10 * DESIGN_SCHEDULES } else { DESIGN_SCHEDULES };
        shuttle::check_random(move || committers_and_server(case), schedules);
    }
}

#[test]
fn a_failed_write_releases_every_committer() {
    for (case, fails_at) in cases().into_iter().flat_map(|case| [(case, 1), (case, 2)]) {
        eprintln!("{case}");
        let case = Case { fails_at, ..case };
        shuttle::check_random(move || committers_and_server(case), DESIGN_SCHEDULES);
    }
}

#[test]
fn committers_write_for_themselves_once_the_log_server_is_gone() {
    for case in cases() {
        eprintln!("{case}");
        let case = Case { closes_early: true, ..case };
        shuttle::check_random(move || committers_and_server(case), DESIGN_SCHEDULES);
    }
}

/// Packets would linger for ever without a thread that waits: alone, together with another, or by a request.
fn waited_for_after_a_linger(case: Case) {
    let world = World::new(&case);
    let server = thread::spawn({
        let world = world.clone();
        move || world.serve(FOR_EVER)
    });
    let lingering = thread::spawn({
        let world = world.clone();
        move || {
            for _ in 0..3 {
                world.place.fetch_add(1, Ordering::SeqCst);
                world.writer.ask_unhurried();
            }
        }
    });
    let committers: Vec<_> = (0..2)
        .map(|_| {
            let world = world.clone();
            thread::spawn(move || _ = world.commit(Own::default()))
        })
        .collect();
    committers.into_iter().chain([lingering]).for_each(|thread| thread.join().unwrap());
    let lsn = world.place.fetch_add(1, Ordering::SeqCst) + 1;
    world.writer.ask_now();
    while world.writer.durable() < lsn {
        thread::yield_now();
    }
    world.writer.close();
    server.join().unwrap();
}

#[test]
fn a_waiter_ends_a_linger() {
    for in_flight in [1, 2] {
        let options = GroupCommitOptions { linger: Some(FOR_EVER), ..GroupCommitDesign::LogServer.into() };
        let case = cases().into_iter().find(|case| !case.raises).expect("there are some");
        let case = Case { options, in_flight, ..case };
        shuttle::check_random(move || waited_for_after_a_linger(case), 20 * DESIGN_SCHEDULES);
    }
}

/// Committers whose waits are short, beside one that would sleep for ever: they must not rely on that one. In
/// hiber-stall, where the elected committer stalls for all, they do rely on it.
fn hasty_beside_a_patient_one(case: Case) {
    let world = World::new(&case);
    let server = thread::spawn({
        let world = world.clone();
        move || world.serve(Duration::from_millis(1))
    });
    let commits = |own: Own| {
        let world = world.clone();
        thread::spawn(move || _ = world.commit(own))
    };
    let patient = commits(Own::of(60_000_000));
    // One commit each: a later one would take along a packet that was left behind.
    let hasty = [0, 0, 500].map(|us| commits(Own::of(us)));
    hasty.into_iter().for_each(|hasty| hasty.join().unwrap());
    assert!(!world.writer.stopped() && world.writer.durable() >= 3);
    world.writer.stop();
    patient.join().unwrap();
    world.writer.close();
    server.join().unwrap();
}

#[test]
fn a_transaction_whose_wait_is_over_is_not_left_behind() {
    let honoured = [
        GroupCommitDesign::CommitStall,
        GroupCommitDesign::WillingToWait,
        GroupCommitDesign::HiberWillingToWait,
    ];
    for case in cases().into_iter().filter(|case| honoured.contains(&case.options.design) && case.raises) {
        let case = Case { raises: false, ..case };
        eprintln!("{case}");
        shuttle::check_random(move || hasty_beside_a_patient_one(case), 5 * DESIGN_SCHEDULES);
        shuttle::check_pct(move || hasty_beside_a_patient_one(case), DESIGN_SCHEDULES, 3);
    }
}
