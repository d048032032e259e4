//! The request queue, the hand-over and the response queues under a model checker: the same source files, compiled
//! against shuttle's primitives and run under many schedules. A lost request or wake-up is a deadlock here, which
//! shuttle reports; that at most one executor runs is asserted by the dispatch (D1) and by the model.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

/// `super::sync`, for the model.
mod sync {
    use super::Duration;

    pub(super) use shuttle::sync::MutexGuard;
    pub(super) use shuttle::sync::atomic::AtomicUsize;

    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no task panics with it")
        }
    }

    #[derive(Default)]
    pub(super) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// A sleep with a limit may end at any time.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Option<Duration>) -> MutexGuard<'a, T> {
            if limit.is_some_and(|limit| limit < super::FOR_EVER / 2) {
                // The latch has to be free meanwhile, and only a wait frees it; another thread is there to end that
                // wait.
                shuttle::thread::yield_now();
                return guard;
            }
            self.0.wait(guard).expect("no task panics with it")
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other primitives")]
#[path = "queue.rs"]
mod queue;
#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other primitives")]
#[path = "queues.rs"]
mod queues;
#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other primitives")]
#[path = "../servers/response_queue.rs"]
mod response_queue;

mod resizing;

use queue::{Dispatch, Refused, RoomWaiter, Standing};
use response_queue::{ResponseQueue, ServerWait};

const FOR_EVER: Duration = Duration::from_secs(3_600);
/// Schedules tried per model.
const SCHEDULES: usize = 2_000;

/// A request: its message server, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Job {
    sender: usize,
    number: u32,
}

/// A lock that a request may need. A thread outside of the server releases it at some time.
#[derive(Default)]
struct Lock {
    is_free: sync::Condvar,
    taken: Option<sync::Mutex<bool>>,
}

impl Lock {
    fn taken() -> Lock {
        Lock { taken: Some(sync::Mutex::new(true)), ..Lock::default() }
    }

    /// Waits as a wait for a lock does: leave, sleep, come back.
    fn wait(&self, dispatch: &Dispatch<Job>, me: usize) {
        let Some(taken) = &self.taken else { return };
        if *taken.lock() {
            let _ = dispatch.leave(me);
            let mut taken = taken.lock();
            while *taken {
                taken = self.is_free.wait(taken, None);
            }
            drop(taken);
            dispatch.come_back(me);
        }
    }

    fn give_back(&self) {
        if let Some(taken) = &self.taken {
            *taken.lock() = false;
            self.is_free.notify_all();
        }
    }
}

/// The parameters of a model.
#[derive(Debug, Clone, Copy)]
struct Case {
    queue: usize,
    executors: usize,
    senders: usize,
    each: u32,
    /// Every request with this number waits for the lock.
    blocks: Option<u32>,
    /// Every request with this number runs twice.
    restarts: Option<u32>,
    /// Whether the server is closed before all requests are answered.
    closes_early: bool,
    /// Whether a request that runs twice backs off until another thread ends its back-off.
    hastened: bool,
}

const CASES: [Case; 9] = [
    Case {
        queue: 1,
        executors: 1,
        senders: 2,
        each: 2,
        blocks: None,
        restarts: None,
        closes_early: false,
        hastened: false,
    },
    Case {
        queue: 2,
        executors: 2,
        senders: 2,
        each: 2,
        blocks: Some(0),
        restarts: None,
        closes_early: false,
        hastened: false,
    },
    Case {
        queue: 1,
        executors: 3,
        senders: 2,
        each: 3,
        blocks: Some(1),
        restarts: None,
        closes_early: false,
        hastened: false,
    },
    // All executors block.
    Case {
        queue: 4,
        executors: 2,
        senders: 3,
        each: 1,
        blocks: Some(0),
        restarts: None,
        closes_early: false,
        hastened: false,
    },
    Case {
        queue: 2,
        executors: 2,
        senders: 2,
        each: 2,
        blocks: None,
        restarts: Some(1),
        closes_early: false,
        hastened: false,
    },
    Case {
        queue: 2,
        executors: 2,
        senders: 2,
        each: 2,
        blocks: Some(0),
        restarts: Some(1),
        closes_early: true,
        hastened: false,
    },
    Case {
        queue: 1,
        executors: 2,
        senders: 2,
        each: 2,
        blocks: Some(0),
        restarts: None,
        closes_early: true,
        hastened: false,
    },
    // The back-off of a request is ended by another thread.
    Case {
        queue: 4,
        executors: 2,
        senders: 2,
        each: 2,
        blocks: None,
        restarts: Some(1),
        closes_early: false,
        hastened: true,
    },
    Case {
        queue: 4,
        executors: 2,
        senders: 2,
        each: 2,
        blocks: Some(0),
        restarts: Some(1),
        closes_early: true,
        hastened: true,
    },
];

/// Runs one case. Every request that was put on the queue is answered once.
fn serve(case: Case) {
    let dispatch = Dispatch::<Job>::new(case.queue, 1, case.executors);
    assert!(dispatch.reopen());
    (1..case.executors).for_each(|slot| assert_eq!(dispatch.add_standby(), Some(slot)));
    let dispatch = Arc::new(dispatch);
    let responses: Arc<Vec<_>> =
        Arc::new((0..case.senders).map(|_| Arc::new(ResponseQueue::new())).collect());
    let lock = Arc::new(if case.blocks.is_some() { Lock::taken() } else { Lock::default() });
    let running = Arc::new(AtomicU32::new(0));
    let executors: Vec<_> = (0..case.executors)
        .map(|me| {
            let (dispatch, responses, lock, running) =
                (dispatch.clone(), responses.clone(), lock.clone(), running.clone());
            thread::spawn(move || {
                let mut rerun = Vec::new();
                while let Some(job) = dispatch.next(me, || {}) {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "D1: two executors run");
                    if case.blocks == Some(job.number) {
                        running.fetch_sub(1, Ordering::SeqCst);
                        lock.wait(&dispatch, me);
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "D1: two executors run");
                    }
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    if case.restarts == Some(job.number) && !rerun.contains(&job) {
                        rerun.push(job);
                        let backoff =
                            dispatch.restart(job, if case.hastened { FOR_EVER } else { Duration::ZERO });
                        if case.hastened {
                            let dispatch = dispatch.clone();
                            thread::spawn(move || {
                                assert!(dispatch.hasten(backoff).is_some(), "it backs off")
                            });
                        }
                    } else {
                        assert!(responses[job.sender].put(job).is_ok());
                    }
                }
            })
        })
        .collect();
    let senders: Vec<_> = (0..case.senders)
        .map(|sender| {
            let (dispatch, responses) = (dispatch.clone(), responses[sender].clone());
            thread::spawn(move || {
                let (mut put, mut answered) = (0, Vec::new());
                let mut is_closed = false;
                while put < case.each && !is_closed || answered.len() < put as usize {
                    let mut awaited = ServerWait::Response;
                    if put < case.each && !is_closed {
                        responses.forget_room();
                        match dispatch.put(Job { sender, number: put }, &responses) {
                            Ok(()) => {
                                put += 1;
                                continue;
                            }
                            Err(Refused::Closed(_)) => {
                                is_closed = true;
                                continue;
                            }
                            Err(Refused::Full(_)) => {
                                awaited = if answered.len() < put as usize {
                                    ServerWait::Either
                                } else {
                                    ServerWait::Room
                                };
                            }
                        }
                    }
                    match responses.take() {
                        Some(job) => answered.push(job),
                        None => responses.wait(awaited, || {}),
                    }
                }
                answered.sort_by_key(|job| job.number);
                let expected: Vec<_> = (0..put).map(|number| Job { sender, number }).collect();
                assert_eq!(answered, expected, "each once");
                assert!(is_closed || put == case.each);
            })
        })
        .collect();
    let owner = thread::spawn({
        let lock = lock.clone();
        move || {
            thread::yield_now();
            lock.give_back();
        }
    });
    if case.closes_early {
        dispatch.close();
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    dispatch.close();
    executors.into_iter().for_each(|executor| executor.join().unwrap());
    owner.join().unwrap();
}

#[test]
fn every_request_is_answered_once_and_one_executor_runs_at_a_time() {
    for case in CASES {
        eprintln!("{case:?}");
        shuttle::check_random(move || serve(case), SCHEDULES);
        shuttle::check_pct(move || serve(case), SCHEDULES, 3);
    }
}

/// A queue without a bound, as threads that own executors have it: requests are taken off in batches, and standbys are
/// started when all executors are blocked.
struct StandbyModel {
    dispatch: Dispatch<u32>,
    running: AtomicU32,
    done: sync::Mutex<Vec<u32>>,
    /// The first task waits for it, and the last one sets it.
    given: sync::Mutex<bool>,
    told: sync::Condvar,
    /// Whether the task that backs off has done so.
    backed_off: sync::Mutex<bool>,
    threads: sync::Mutex<Vec<thread::JoinHandle<()>>>,
}

/// The task that backs off before it sets what the first one waits for.
const BACKS_OFF: u32 = 9;
/// In most schedules longer than the first task takes until it waits.
const BACKOFF: Duration = Duration::from_micros(200);

impl StandbyModel {
    /// With room for three threads, of which one exists.
    fn new() -> Arc<StandbyModel> {
        let all = Arc::new(StandbyModel {
            dispatch: Dispatch::new(usize::MAX, 2, 3),
            running: AtomicU32::new(0),
            done: sync::Mutex::new(Vec::new()),
            given: sync::Mutex::new(false),
            told: sync::Condvar::default(),
            backed_off: sync::Mutex::new(false),
            threads: sync::Mutex::new(Vec::new()),
        });
        assert!(all.dispatch.reopen());
        all.work(0);
        all
    }

    /// Puts each group on the queue, on a thread of its own. Returns the tasks that were done in the end.
    fn serve<const N: usize>(self: Arc<StandbyModel>, groups: [(&'static [u32], Standing); N]) -> Vec<u32> {
        let putters = groups.map(|(tasks, standing)| {
            let all = self.clone();
            thread::spawn(move || {
                let is_served = all.dispatch.lock_to_put().put(tasks.iter().copied(), standing);
                if !is_served {
                    all.start_standby();
                }
            })
        });
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        self.dispatch.close();
        loop {
            let Some(executor) = self.threads.lock().pop() else { break };
            executor.join().unwrap();
        }
        let mut done = self.done.lock().clone();
        done.sort_unstable();
        done
    }

    fn work(self: &Arc<StandbyModel>, me: usize) {
        let all = self.clone();
        let executor = thread::spawn(move || {
            while let Some(task) = all.dispatch.next(me, || {}) {
                assert_eq!(all.running.fetch_add(1, Ordering::SeqCst), 0, "D1: two run");
                thread::yield_now();
                all.running.fetch_sub(1, Ordering::SeqCst);
                match task {
                    0 => all.wait(me),
                    BACKS_OFF if !std::mem::replace(&mut *all.backed_off.lock(), true) => {
                        all.dispatch.restart(task, BACKOFF);
                        continue;
                    }
                    3 | BACKS_OFF => {
                        *all.given.lock() = true;
                        all.told.notify_all();
                    }
                    _ => {}
                }
                all.done.lock().push(task);
            }
        });
        self.threads.lock().push(executor);
    }

    fn wait(self: &Arc<StandbyModel>, me: usize) {
        if !self.dispatch.leave(me) {
            self.start_standby();
        }
        let mut given = self.given.lock();
        while !*given {
            given = self.told.wait(given, None);
        }
        drop(given);
        self.dispatch.come_back(me);
    }

    fn start_standby(self: &Arc<StandbyModel>) {
        if let Some(slot) = self.dispatch.add_standby() {
            self.work(slot);
        }
    }

    /// Runs a task on this thread if no thread runs and the queue is empty; otherwise puts it there. A visitor that
    /// waits gives its turn up for good.
    fn visit(self: &Arc<StandbyModel>, task: u32) {
        let Some(slot) = self.dispatch.visit() else {
            let is_served = self.dispatch.lock_to_put().put([task], Standing::New);
            return if !is_served {
                self.start_standby()
            };
        };
        assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "D1: two run");
        thread::yield_now();
        self.running.fetch_sub(1, Ordering::SeqCst);
        if !self.dispatch.end_visit(slot) {
            self.start_standby();
        }
        match task {
            0 => {
                let mut given = self.given.lock();
                while !*given {
                    given = self.told.wait(given, None);
                }
            }
            _ => {
                *self.given.lock() = true;
                self.told.notify_all();
            }
        }
        self.done.lock().push(task);
    }
}

/// The first task waits for the last one, whichever thread puts them and in whichever batches they are taken: without a
/// further standby no thread would run the last one. Each task is run once.
#[test]
fn tasks_behind_one_that_waits_are_run_by_started_standbys() {
    let serve = || {
        let done = StandbyModel::new().serve([(&[0, 1], Standing::New), (&[2, 3], Standing::Begun)]);
        assert_eq!(done, [0, 1, 2, 3]);
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}

/// The first task waits for one that backs off. When it waits, there may be no other executor to sleep until the
/// back-off is over.
#[test]
fn a_task_that_backs_off_is_run_by_a_started_standby() {
    let serve = || {
        let done = StandbyModel::new().serve([(&[BACKS_OFF], Standing::New), (&[0], Standing::New)]);
        assert_eq!(done, [0, BACKS_OFF]);
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}

/// Two visitors come while tasks are put on the queue. One task waits for another, wherever each of them is run. Each
/// task is run once, and one thread runs at a time.
#[test]
fn visitors_run_their_tasks_or_put_them_on_the_queue() {
    let serve = || {
        let all = StandbyModel::new();
        let visitors = [0, 3].map(|task| {
            let all = all.clone();
            thread::spawn(move || all.visit(task))
        });
        let putter = thread::spawn({
            let all = all.clone();
            move || {
                let is_served = all.dispatch.lock_to_put().put([1, 2], Standing::New);
                if !is_served {
                    all.start_standby();
                }
            }
        });
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        putter.join().unwrap();
        assert_eq!(all.serve([]), [0, 1, 2, 3]);
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}

/// Visitors wait for a task that backs off. An executor sleeps until the back-off is over, and is not forgotten if a
/// visitor had the turn meanwhile. If all executors wait, one more is started.
#[test]
fn visitors_come_and_go_beside_a_task_that_backs_off() {
    let serve = || {
        let all = StandbyModel::new();
        let putter = thread::spawn({
            let all = all.clone();
            move || {
                if !all.dispatch.lock_to_put().put([BACKS_OFF], Standing::New) {
                    all.start_standby();
                }
            }
        });
        let visitors = [0, 0].map(|task| {
            let all = all.clone();
            thread::spawn(move || all.visit(task))
        });
        putter.join().unwrap();
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        assert_eq!(all.serve([]), [0, 0, BACKS_OFF]);
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}

/// A queue is closed while a thread visits it. Its executors end all the same.
#[test]
fn a_queue_that_is_closed_beside_a_visitor_ends() {
    let serve = || {
        let all = StandbyModel::new();
        let visitor = thread::spawn({
            let all = all.clone();
            move || {
                if let Some(slot) = all.dispatch.visit() {
                    thread::yield_now();
                    assert!(all.dispatch.end_visit(slot), "nothing is on the queue");
                }
            }
        });
        assert_eq!(all.clone().serve([]), [0; 0]);
        visitor.join().unwrap();
    };
    shuttle::check_random(serve, SCHEDULES);
    shuttle::check_pct(serve, SCHEDULES, 3);
}
