//! [`Turns`]: threads of a database on a virtual clock that run one at a time, in an order that a seed chooses. With
//! the same seed they do the same in the same steps.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rialto::io::{Moment, Random, Scheduler, VirtualClock, number_thread};

/// The time that passes with each step: transactions that begin one after the other have different ages.
const STEP: Duration = Duration::from_micros(1);

/// Each thread checks this many times in vain before time passes: a thread's first check may change what another thread
/// waits for.
const LOOKS: u32 = 2;

thread_local! {
    /// The thread's number among those that take turns.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The turns of the threads.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    random: Random,
    threads: Vec<Thread>,
    turn: Option<usize>,
    /// The turns so far, and when each began.
    taken: Vec<(usize, Duration)>,
    /// All threads wait, and none until a set time.
    is_stuck: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    has_ended: bool,
    /// How many times it has checked in vain since a thread made a step or time passed.
    looks: u32,
    until: Option<Moment>,
}

impl Turns {
    /// Turns by this seed, and a clock that advances with them. The calling thread then opens the database.
    pub fn new(seed: u64) -> (Arc<Turns>, Arc<VirtualClock>) {
        number_thread(0);
        let random = Random::new(seed);
        let state = State { random, threads: Vec::new(), turn: None, taken: Vec::new(), is_stuck: false };
        let turns = Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() });
        let clock = Arc::new(VirtualClock::scheduled(turns.clone()));
        (turns, clock)
    }

    /// Runs them, each on a thread of its own, to their ends.
    pub fn run<'a>(&self, clock: &VirtualClock, clients: Vec<Box<dyn FnOnce() + Send + 'a>>) {
        {
            let mut state = self.state.lock();
            state.threads = vec![Thread::default(); clients.len()];
            state.choose(clock);
        }
        std::thread::scope(|scope| {
            for (me, client) in clients.into_iter().enumerate() {
                scope.spawn(move || {
                    ME.set(Some(me));
                    number_thread(1 + me);
                    let _ends = Ends { turns: self, clock, me };
                    self.await_turn(self.state.lock(), me);
                    client();
                });
            }
        });
    }

    /// The calling thread has done something: others may run before it goes on.
    pub fn step(&self, clock: &VirtualClock) {
        let me = ME.get().expect("a thread that takes turns");
        let mut state = self.state.lock();
        state.has_gone_on(clock);
        self.pass(clock, state, me);
    }

    /// The turns so far.
    pub fn taken(&self) -> Vec<(usize, Duration)> {
        self.state.lock().taken.clone()
    }

    fn pass(&self, clock: &VirtualClock, mut state: MutexGuard<'_, State>, me: usize) {
        state.choose(clock);
        self.changed.notify_all();
        self.await_turn(state, me);
    }

    fn await_turn(&self, mut state: MutexGuard<'_, State>, me: usize) {
        while state.turn != Some(me) {
            assert!(!state.is_stuck, "all threads wait for each other");
            self.changed.wait(&mut state);
        }
    }
}

impl State {
    fn has_gone_on(&mut self, clock: &VirtualClock) {
        clock.advance(STEP);
        self.threads.iter_mut().for_each(|thread| thread.looks = 0);
    }

    /// The next turn goes to one of the threads that have checked least often.
    fn choose(&mut self, clock: &VirtualClock) {
        let running = || self.threads.iter().filter(|thread| !thread.has_ended);
        self.turn = None;
        let Some(mut looks) = running().map(|thread| thread.looks).min() else { return };
        if looks == LOOKS {
            let Some(until) = running().filter_map(|thread| thread.until).min() else {
                self.is_stuck = true;
                return;
            };
            clock.advance_to(until);
            self.threads.iter_mut().for_each(|thread| thread.looks = 0);
            looks = 0;
        }
        let threads = self.threads.iter().enumerate();
        let least = threads.filter(|(_, thread)| !thread.has_ended && thread.looks == looks);
        let least: Vec<usize> = least.map(|(nth, _)| nth).collect();
        let turn = least[self.random.below(least.len() as u64) as usize];
        self.turn = Some(turn);
        self.taken.push((turn, clock.now()));
    }
}

impl Scheduler for Turns {
    fn wait(&self, clock: &VirtualClock, until: Option<Moment>) {
        let Some(me) = ME.get() else {
            // The thread is alone: before the others begin, or after their ends.
            return until.map_or_else(std::thread::yield_now, |until| clock.advance_to(until));
        };
        let mut state = self.state.lock();
        let thread = &mut state.threads[me];
        (thread.looks, thread.until) = (thread.looks + 1, until);
        self.pass(clock, state, me);
    }
}

/// A thread, until it ends.
struct Ends<'a> {
    turns: &'a Turns,
    clock: &'a VirtualClock,
    me: usize,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        ME.set(None);
        let mut state = self.turns.state.lock();
        state.threads[self.me].has_ended = true;
        state.has_gone_on(self.clock);
        // A thread that has panicked may not have had the turn.
        if state.turn == Some(self.me) {
            state.choose(self.clock);
        }
        self.turns.changed.notify_all();
    }
}
