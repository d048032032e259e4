//! [`Processor`]: one processor on a virtual clock.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Moment, Scheduler, VirtualClock, number_thread};

/// How often a waiting thread gets the turn to check what it waits for, until another one has done something or time has passed:
/// a first check may change what another thread waits for.
const LOOKS: u32 = 2;

thread_local! {
    /// The thread's number among those that share a processor.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// One processor on a virtual clock, for deterministic simulation: threads run one at a time, each until it waits, in the order in which they began to
/// wait. When all of them wait the clock moves to the first moment that one of them waits for. So the same threads do the same in
/// the same order, at the same times. The threads may block by the clock alone: what waits otherwise keeps its turn for ever.
pub struct Processor {
    state: Mutex<State>,
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Processor")
    }
}

#[derive(Default)]
struct State {
    threads: Vec<Thread>,
    turn: Option<usize>,
    /// Waits so far.
    waits: u64,
    /// All threads wait, and none has a deadline.
    is_stuck: bool,
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It runs, or can.
    Runs,
    /// It sleeps until a moment.
    Sleeps(Moment),
    /// It waits for another thread, or until a moment; it has looked so often since others have done something.
    Waits { until: Option<Moment>, looks: u32 },
    /// It has ended.
    Ended,
}

struct Thread {
    doing: Doing,
    /// When it began that, in waits of all threads.
    since: u64,
    has_turn: Arc<Condvar>,
}

impl Processor {
    /// A processor, and its clock, on which each run of a transaction takes `run_time` of it. The calling thread uses
    /// them alone until [`Processor::run`], and then again.
    pub fn new(run_time: Duration) -> (Arc<Processor>, Arc<VirtualClock>) {
        number_thread(0);
        let processor = Arc::new(Processor { state: Mutex::default() });
        let clock = VirtualClock::scheduled(processor.clone()).with_run_time(run_time);
        (processor, Arc::new(clock))
    }

    /// Runs these threads to their ends, and beside them `here`, on the calling thread.
    ///
    /// # Panics
    /// If one of them panics; if all of them wait for each other.
    pub fn run<'a>(
        &self,
        clock: &VirtualClock,
        threads: Vec<Box<dyn FnOnce() + Send + 'a>>,
        here: impl FnOnce(),
    ) {
        let last = threads.len();
        {
            let mut state = self.state.lock();
            let thread = |nth| Thread { doing: Doing::Runs, since: nth as u64, has_turn: Arc::default() };
            state.threads = (0..=last).map(thread).collect();
            state.waits = 1 + last as u64;
            state.choose(clock);
        }
        std::thread::scope(|scope| {
            for (me, thread) in threads.into_iter().enumerate() {
                scope.spawn(move || {
                    number_thread(1 + me);
                    self.run_one(clock, me, thread);
                });
            }
            self.run_one(clock, last, here);
        });
    }

    fn run_one(&self, clock: &VirtualClock, me: usize, thread: impl FnOnce()) {
        ME.set(Some(me));
        let _ends = Ends { processor: self, clock, me };
        self.await_turn(self.state.lock(), me);
        thread();
    }

    /// The calling thread has ended something that others may wait for.
    pub fn step(&self) {
        self.state.lock().has_gone_on();
    }

    fn pass(&self, clock: &VirtualClock, mut state: MutexGuard<'_, State>, me: usize, doing: Doing) {
        let was = state.threads[me].doing;
        let is_another_look = matches!((was, doing), (Doing::Waits { .. }, Doing::Waits { .. }));
        if !is_another_look {
            state.has_gone_on();
        }
        state.waits += 1;
        let since = state.waits;
        let looks = match was {
            Doing::Waits { looks, .. } => looks + 1,
            _ => 1,
        };
        let thread = &mut state.threads[me];
        thread.since = since;
        thread.doing = match doing {
            Doing::Waits { until, .. } => Doing::Waits { until, looks },
            other => other,
        };
        state.choose(clock);
        self.await_turn(state, me);
    }

    fn await_turn(&self, mut state: MutexGuard<'_, State>, me: usize) {
        let has_turn = state.threads[me].has_turn.clone();
        while state.turn != Some(me) {
            assert!(!state.is_stuck, "all threads wait for each other");
            has_turn.wait(&mut state);
        }
        if let Doing::Sleeps(_) = state.threads[me].doing {
            state.threads[me].doing = Doing::Runs;
        }
    }
}

impl State {
    /// Others may find what they wait for.
    fn has_gone_on(&mut self) {
        for thread in &mut self.threads {
            if let Doing::Waits { looks, .. } = &mut thread.doing {
                *looks = 0;
            }
        }
    }

    /// Gives the turn to the next thread.
    fn choose(&mut self, clock: &VirtualClock) {
        self.turn = None;
        loop {
            let now = clock.moment();
            let is_ready = |thread: &&Thread| match thread.doing {
                Doing::Runs => true,
                Doing::Sleeps(until) => until <= now,
                Doing::Waits { until, looks } => looks < LOOKS || until.is_some_and(|until| until <= now),
                Doing::Ended => false,
            };
            let ready = self.threads.iter().filter(is_ready).min_by_key(|thread| thread.since);
            if let Some(next) = ready {
                let since = next.since;
                self.turn = self.threads.iter().position(|thread| thread.since == since);
                next.has_turn.notify_one();
                return;
            }
            let moment = |thread: &Thread| match thread.doing {
                Doing::Sleeps(until) => Some(until),
                Doing::Waits { until, .. } => until,
                Doing::Runs | Doing::Ended => None,
            };
            match self.threads.iter().filter_map(moment).min() {
                Some(first) => clock.advance_to(first),
                None => {
                    self.is_stuck = self.threads.iter().any(|thread| thread.doing != Doing::Ended);
                    self.threads.iter().for_each(|thread| _ = thread.has_turn.notify_all());
                    return;
                }
            }
        }
    }
}

impl Scheduler for Processor {
    fn wait(&self, clock: &VirtualClock, until: Option<Moment>) {
        match ME.get() {
            Some(me) => self.pass(clock, self.state.lock(), me, Doing::Waits { until, looks: 0 }),
            // The thread is alone: before the others begin, or after their ends.
            None => until.map_or_else(std::thread::yield_now, |until| clock.advance_to(until)),
        }
    }

    fn end_wait(&self) {
        if let Some(me) = ME.get() {
            // Its next wait is another one, before which it has perhaps done what others wait for.
            self.state.lock().threads[me].doing = Doing::Runs;
        }
    }

    fn sleep(&self, clock: &VirtualClock, until: Moment) {
        match ME.get() {
            Some(me) => self.pass(clock, self.state.lock(), me, Doing::Sleeps(until)),
            None => clock.advance_to(until),
        }
    }
}

/// A thread, until it ends.
struct Ends<'a> {
    processor: &'a Processor,
    clock: &'a VirtualClock,
    me: usize,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        ME.set(None);
        let mut state = self.processor.state.lock();
        state.threads[self.me].doing = Doing::Ended;
        state.has_gone_on();
        // A thread that has panicked may not have had the turn.
        if state.turn == Some(self.me) {
            state.choose(self.clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Clock;

    /// Three threads share it: each computes, and waits for a disk of its own.
    #[test]
    fn threads_take_turns_and_time_passes_when_all_wait() {
        let orders: Vec<_> = (0..3)
            .map(|_| {
                let (processor, clock) = Processor::new(Duration::ZERO);
                let order = Mutex::new(Vec::new());
                let threads = (1..4).map(|me: u32| {
                    let (clock, order) = (Clock::from(clock.clone()), &order);
                    Box::new(move || {
                        for round in 0..3 {
                            clock.sleep(Duration::from_millis(10 * u64::from(me)));
                            order.lock().push((me, round, clock.now().reading().as_millis()));
                        }
                    }) as Box<dyn FnOnce() + Send>
                });
                processor.run(&clock, threads.collect(), || ());
                order.into_inner()
            })
            .collect();
        let expected = [
            (1, 0, 10),
            (2, 0, 20),
            (1, 1, 20),
            (3, 0, 30),
            (1, 2, 30),
            (2, 1, 40),
            (3, 1, 60),
            (2, 2, 60),
            (3, 2, 90),
        ];
        assert!(orders.iter().all(|order| order == &expected), "{orders:?}");
    }

    /// A thread that waits for another one goes on when that has done it, at the same moment.
    #[test]
    fn a_wait_for_another_thread_ends_when_that_has_done_it() {
        let (processor, clock) = Processor::new(Duration::ZERO);
        let (is_done, changed, ended) = (Mutex::new(false), Condvar::new(), Mutex::new(Vec::new()));
        let clocks = || Clock::from(clock.clone());
        let waits = || {
            let clock = clocks();
            let mut done = is_done.lock();
            while !*done {
                clock.wait(&changed, &mut done, None);
            }
            ended.lock().push(clock.now().reading().as_millis());
        };
        let does = || {
            let clock = clocks();
            clock.sleep(Duration::from_millis(7));
            *is_done.lock() = true;
            clock.sleep(Duration::from_millis(5));
        };
        processor.run(&clock, vec![Box::new(waits), Box::new(does)], waits);
        assert_eq!(*ended.lock(), [7, 7]);
    }

    /// Each thread waits for the one behind it, goes on when that has gone on, and waits again at once.
    #[test]
    fn what_a_thread_does_between_two_waits_shows_at_once() {
        const LAST: usize = 6;
        let (processor, clock) = Processor::new(Duration::ZERO);
        let (done, changed) = (Mutex::new([false; LAST + 1]), Condvar::new());
        let went_on = Mutex::new(Vec::new());
        let clocks = || Clock::from(clock.clone());
        let waits_for = |nth: usize, limit| {
            let clock = clocks();
            let mut done = done.lock();
            while !done[nth] {
                clock.wait(&changed, &mut done, limit);
            }
            clock.end_wait();
        };
        let in_chain = |me: usize| {
            let waits_for = &waits_for;
            let (done, went_on, clocks) = (&done, &went_on, &clocks);
            move || {
                waits_for(me + 1, Some(Duration::from_millis(10)));
                went_on.lock().push((me, clocks().now().reading().as_millis()));
                done.lock()[me] = true;
                waits_for(0, None);
            }
        };
        let mut threads: Vec<_> =
            (1..LAST).map(|me| Box::new(in_chain(me)) as Box<dyn FnOnce() + Send>).collect();
        threads.push(Box::new(|| {
            clocks().sleep(Duration::from_millis(5));
            done.lock()[LAST] = true;
            clocks().sleep(Duration::from_millis(50));
            done.lock()[0] = true;
        }));
        processor.run(&clock, threads, || ());
        let expected: Vec<_> = (1..LAST).rev().map(|me| (me, 5)).collect();
        assert_eq!(went_on.into_inner(), expected);
    }

    #[test]
    #[should_panic(expected = "all threads wait for each other")]
    fn threads_that_wait_for_each_other_end_with_a_panic() {
        let (processor, clock) = Processor::new(Duration::ZERO);
        let waits = || {
            let (never, changed) = (Mutex::new(()), Condvar::new());
            Clock::from(clock.clone()).wait(&changed, &mut never.lock(), None);
            Clock::from(clock.clone()).wait(&changed, &mut never.lock(), None);
            Clock::from(clock.clone()).wait(&changed, &mut never.lock(), None);
        };
        processor.run(&clock, vec![Box::new(waits)], waits);
    }
}
