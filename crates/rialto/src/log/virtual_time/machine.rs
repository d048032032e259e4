//! The machine of virtual time: real threads run one at a time, and the clock moves only when every thread sleeps,
//! works or waits for the disk.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::log::sync::{Futex, Machine};

thread_local! {
    /// Which of the machine's threads this is.
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
    /// How often the thread has slept until it was woken or its time was over.
    static SLEEPS: Cell<u64> = const { Cell::new(0) };
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// How long some operations take on the machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub processors: u32,
    /// The cost of a wake call.
    pub wake: Duration,
    /// The cost of a wake-up, whether or not there is something to do.
    pub look: Duration,
    /// The cost of a grant of the commit lock.
    pub grant: Duration,
}

/// The threads that wait for a processor, and for how many nanoseconds of work each.
type WorkQueue = VecDeque<(usize, u64)>;

#[derive(Debug)]
struct MachineState {
    now_ns: u64,
    /// Events by their time, then in the order in which they were made: a thread continues, if it is still in the sleep
    /// of this number.
    events: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    made: u64,
    /// Each thread's present sleep.
    sleeps: Vec<u64>,
    /// For each word, the threads that sleep on it.
    sleepers: Vec<Vec<usize>>,
    running: Option<usize>,
    processors_free: u32,
    queue: WorkQueue,
    worked_ns: u64,
    threads_left: usize,
    /// Every thread sleeps, and no event will wake one.
    stuck: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<MachineState>,
    turns: Vec<Condvar>,
    costs: Costs,
}

/// A machine whose time is virtual.
#[derive(Debug, Clone)]
pub(super) struct Virtual(Arc<Shared>);

impl Virtual {
    /// A machine for this many threads; each thread [enters](Virtual::enter) with its number.
    pub fn new(threads: usize, costs: Costs) -> Virtual {
        let state = MachineState {
            now_ns: 0,
            events: (0..threads).map(|thread| Reverse((0, thread as u64, thread, 0))).collect(),
            made: threads as u64,
            sleeps: vec![0; threads],
            sleepers: Vec::new(),
            running: None,
            processors_free: costs.processors,
            queue: VecDeque::new(),
            worked_ns: 0,
            threads_left: threads,
            stuck: false,
        };
        let turns = (0..threads).map(|_| Condvar::new()).collect();
        Virtual(Arc::new(Shared { state: Mutex::new(state), turns, costs }))
    }

    /// Begins: the first event's thread runs. Call it when all threads are about to [`Virtual::enter`].
    pub fn start(&self) {
        self.next(&mut self.0.state.lock());
    }

    /// From here on this thread is one of the machine's; returns when it is its turn.
    pub fn enter(&self, thread: usize) {
        ME.set(thread);
        self.await_turn(&mut self.0.state.lock(), thread);
    }

    /// This thread has ended.
    pub fn leave(&self) {
        let mut state = self.0.state.lock();
        state.threads_left -= 1;
        self.next(&mut state);
    }

    /// Processor time used so far, of all threads.
    pub fn worked(&self) -> Duration {
        Duration::from_nanos(self.0.state.lock().worked_ns)
    }

    /// Lets time pass without a processor: time of the disk, or of another machine.
    pub fn pass(&self, time: Duration) {
        if !time.is_zero() {
            let mut state = self.0.state.lock();
            self.event(&mut state, ME.get(), ns(time));
            self.sleep(&mut state);
        }
    }

    /// How often the calling thread has slept until it was woken or its time was over.
    pub fn sleeps() -> u64 {
        SLEEPS.get()
    }

    /// Works on a processor, after the threads that asked for one before.
    pub fn work(&self, time: Duration) {
        self.work_queued(time, VecDeque::push_back);
    }

    /// Works on a processor, before the threads that have asked for one.
    pub fn work_first(&self, time: Duration) {
        self.work_queued(time, VecDeque::push_front);
    }

    fn work_queued(&self, time: Duration, queue_up: fn(&mut WorkQueue, (usize, u64))) {
        if time.is_zero() {
            return;
        }
        let mut state = self.0.state.lock();
        let me = ME.get();
        if state.processors_free > 0 {
            state.processors_free -= 1;
            self.event(&mut state, me, ns(time));
        } else {
            queue_up(&mut state.queue, (me, ns(time)));
        }
        self.sleep(&mut state);
        state.worked_ns += ns(time);
        match state.queue.pop_front() {
            Some((next, work_ns)) => self.event(&mut state, next, work_ns),
            None => state.processors_free += 1,
        }
    }

    /// The thread continues after this time, if it is still in its present sleep.
    fn event(&self, state: &mut MachineState, thread: usize, after_ns: u64) {
        state.made += 1;
        let event = (state.now_ns + after_ns, state.made, thread, state.sleeps[thread]);
        state.events.push(Reverse(event));
    }

    /// Passes the turn to the next thread, and waits for this thread's next turn.
    fn sleep(&self, state: &mut MutexGuard<'_, MachineState>) {
        let me = ME.get();
        self.next(state);
        self.await_turn(state, me);
    }

    fn await_turn(&self, state: &mut MutexGuard<'_, MachineState>, me: usize) {
        while state.running != Some(me) {
            assert!(!state.stuck, "a wake-up was lost: at {} ns every thread sleeps", state.now_ns);
            self.0.turns[me].wait(state);
        }
        // The events that were to end this sleep end no later one.
        state.sleeps[me] += 1;
    }

    fn next(&self, state: &mut MachineState) {
        state.running = None;
        while let Some(Reverse((at_ns, _, thread, sleep))) = state.events.pop() {
            if state.sleeps[thread] == sleep {
                state.now_ns = at_ns;
                state.running = Some(thread);
                self.0.turns[thread].notify_one();
                return;
            }
        }
        if state.threads_left > 0 {
            state.stuck = true;
            self.0.turns.iter().for_each(|turn| _ = turn.notify_one());
        }
    }
}

impl Machine for Virtual {
    type Futex = VirtualFutex;

    fn futex(&self, value: u32) -> VirtualFutex {
        let mut state = self.0.state.lock();
        state.sleepers.push(Vec::new());
        let number = state.sleepers.len() - 1;
        VirtualFutex { word: AtomicU32::new(value), number, machine: self.clone() }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.state.lock().now_ns)
    }

    fn granted(&self) {
        self.pass(self.0.costs.grant);
    }
}

/// A word of the machine.
#[derive(Debug)]
pub(super) struct VirtualFutex {
    word: AtomicU32,
    number: usize,
    machine: Virtual,
}

impl Futex for VirtualFutex {
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

    fn wait(&self, expected: u32, limit: Option<Duration>) {
        if self.load() != expected {
            return;
        }
        let machine = &self.machine;
        let mut state = machine.0.state.lock();
        let me = ME.get();
        state.sleepers[self.number].push(me);
        if let Some(limit) = limit {
            machine.event(&mut state, me, ns(limit));
        }
        machine.sleep(&mut state);
        // A thread that was woken is off the list already.
        state.sleepers[self.number].retain(|sleeper| *sleeper != me);
        drop(state);
        SLEEPS.set(SLEEPS.get() + 1);
        machine.work(machine.0.costs.look);
    }

    fn wake_all(&self) -> u32 {
        let machine = &self.machine;
        let mut state = machine.0.state.lock();
        let woken = std::mem::take(&mut state.sleepers[self.number]);
        let count = woken.len() as u32;
        woken.into_iter().for_each(|thread| machine.event(&mut state, thread, 0));
        drop(state);
        if count > 0 {
            machine.work(machine.0.costs.wake);
        }
        count
    }
}
