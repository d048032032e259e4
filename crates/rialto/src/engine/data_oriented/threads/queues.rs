//! [`Queues`]: what there is to do for the threads that own executors, and these threads.
//!
//! Each thread has a [`Dispatch`], System M's hand-over: one *priority* thread takes tasks off the queue, a group under one
//! hold of its latch, and runs them one after the other; while one of them waits for a lock or for the log ([`WaitGuard`](crate::account::wait_guard::WaitGuard)) a *standby* thread goes
//! on with the next, so that the executor itself never waits. Standbys are hired as they are needed.
//!
//! A call whose first locks are not free steps aside: it holds nothing, rests on its queue, and runs again when a call ends that had what it
//! wants, or when its rest is over.
//!
//! A transaction server is this with one thread: its queue has a bound, at which message servers wait, and its tasks are requests of
//! theirs, taken off one by one. It has all its standbys from the start.
//!
//! Kept here: a call that has been let in comes to its end. Calls are let in up to a bound, at which callers wait (back-pressure);
//! what comes of them later, phases and parts, is never refused.
//!
//! Their number changes while calls are under way ([`Dispatches`]): nothing is lost, and nothing waits for a change. Which
//! thread runs an action is a matter of speed, its locks are where the routing rules have them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use super::call::Call;
use super::execution::{Before, Here, Task};
use super::visit::{Visit, Visitor};
use crate::account::processor;
use crate::account::wait_guard::{Turns, take_turns};
use crate::engine::Runtime;
use crate::engine::dispatch::{Dispatch, Dispatches, Rest, Standing};
use crate::engine::servers::{KeptOpen, Unanswered};
use crate::error::{Error, Result};
use crate::inside::InBody;
use crate::txn::core::Core;
use crate::txn::runs::{ASIDE, Runs};

/// What a call is aside for, and the number of that.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Aside {
    name: u64,
    number: u64,
}

/// Where a call rests that is aside.
struct Waiting {
    number: u64,
    queue: usize,
    rest: Rest,
}

/// So often a thread that finds nothing to run, and a caller that would visit a queue, looks again before it sleeps.
const YIELDS: usize = 20;

/// A caller that would visit a queue looks so often before each time that it lets others have the processor: for about as long as a short call
/// takes.
const SPINS: usize = 128;

/// How many tasks a thread takes off its queue under one hold of the latch.
const GROUP: usize = 8;

/// After so many tasks without a sleep a thread of a transaction server counts its processor time.
const TASKS_A_LAP: u32 = 64;

/// The queues, one for each thread that owns executors.
pub(crate) struct Queues {
    pub(super) core: Arc<Core>,
    /// One change of their number at a time, and none after the end.
    resizing: Mutex<Resizing>,
    /// Message servers wait for room in a server's queue. Callers wait for room before, for [`Queues::admit`].
    queues: Dispatches<Task>,
    /// How many calls are let in.
    calls: CachePadded<AtomicUsize>,
    /// How many callers sleep until there is room; and whether no more calls are let in. Both lie apart from the calls, which
    /// each call changes.
    sleepers: AtomicUsize,
    is_closed: AtomicBool,
    /// Held by callers that are about to sleep, and by the close.
    at_the_door: Mutex<()>,
    /// A call has its outcome: for a caller that sleeps until there is room.
    room: Condvar,
    /// The last one has, after the end: for the close.
    empty: Condvar,
    admitted_max: usize,
    /// The calls that are aside, by what they wait for: each has one entry, until it is called or comes back.
    aside: Mutex<HashMap<u64, VecDeque<Waiting>>>,
    names_aside: AtomicUsize,
    /// How many times calls have stepped aside.
    asides: AtomicU64,
    /// All that were started, standbys too.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What callers have that visit a queue, by queue; from the first thread on.
    visitors: OnceLock<Box<[Arc<Visitor>]>>,
    /// A bug that tests put in.
    #[cfg(test)]
    pub(super) bug: Mutex<Option<Bug>>,
}

/// Where tests have a task panic outside of any body, once.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    Begin,
    ShareOut,
    PartDone,
    Meet,
    End,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Resizing {
    #[default]
    Open,
    Ended,
}

impl Queues {
    /// With room for so many threads, none of which is there yet, and for so many calls at a time, and parts of their phases beside
    /// the first of each. All tasks that there can be may come to stand on one queue, when the others are retired, and all but one may
    /// wait for it there: each queue has a seat for each of them.
    pub fn new(core: &Arc<Core>, threads_max: usize, calls_max: usize, parts_max: usize) -> Queues {
        let queues = Dispatches::new(threads_max, usize::MAX, GROUP, calls_max + parts_max);
        Queues::with(core, queues, calls_max)
    }

    /// A transaction server's: one queue of this length, and so many executors, of which none is there yet.
    pub fn of_server(core: &Arc<Core>, length: usize, executors: usize) -> Queues {
        Queues::with(core, Dispatches::new(1, length, 1, executors), 0)
    }

    fn with(core: &Arc<Core>, queues: Dispatches<Task>, admitted_max: usize) -> Queues {
        Queues {
            core: core.clone(),
            resizing: Mutex::default(),
            queues,
            calls: CachePadded::default(),
            sleepers: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            at_the_door: Mutex::new(()),
            room: Condvar::new(),
            empty: Condvar::new(),
            admitted_max,
            aside: Mutex::default(),
            names_aside: AtomicUsize::new(0),
            asides: AtomicU64::new(0),
            threads: Mutex::default(),
            visitors: OnceLock::new(),
            #[cfg(test)]
            bug: Mutex::default(),
        }
    }

    /// Panics if tests have that bug put in here.
    #[cfg(test)]
    pub(super) fn panic_at(&self, here: Bug) {
        let bug = self.bug.lock().take_if(|bug| *bug == here);
        assert_eq!(bug, None, "put in by a test");
    }

    /// The queue of a transaction server.
    pub(in crate::engine) fn request_queue(&self) -> &Dispatch<Task> {
        self.queues.at(0)
    }

    /// Starts the executors of a transaction server.
    pub(in crate::engine) fn start_server(self: &Arc<Queues>, served: Served) -> std::io::Result<()> {
        self.queues.grow(|queue| self.spawn(queue, 0, Some(&served)), |queue| self.hire(queue))?;
        while self.hire_with(0, Some(&served))? {}
        Ok(())
    }

    /// How many threads own executors now.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// How many there is room for.
    pub fn room(&self) -> usize {
        self.queues.room()
    }

    /// The thread that owns an executor: each owns neighbours, which have what is used together. None owns the read-only one: what is
    /// only read is read anywhere.
    pub fn owner_of(&self, executor: u16) -> Option<usize> {
        let threads = self.len();
        let owner =
            || (usize::from(executor) * threads / self.core.locks.executors_in_use()).min(threads - 1);
        (!self.core.locks.is_read_only_executor(executor)).then(owner)
    }

    /// Has so many threads own the executors, from 1 to as many as there is room for.
    ///
    /// # Errors
    /// If the system has no thread left; there are as many as it had.
    pub fn resize(self: &Arc<Queues>, threads: usize) -> std::io::Result<()> {
        assert!((1..=self.room()).contains(&threads), "{threads} threads");
        let resizing = self.resizing.lock();
        if *resizing == Resizing::Ended {
            return Ok(());
        }
        self.visitors.get_or_init(|| Visitor::of_all(self));
        self.threads.lock().retain(|thread| !thread.is_finished());
        while self.len() < threads {
            self.queues.grow(|queue| self.spawn(queue, 0, None), |queue| self.hire(queue))?;
        }
        while self.len() > threads {
            self.queues.shrink(|queue| self.hire(queue));
        }
        Ok(())
    }

    /// How many tasks are on each queue in use, and whether somebody runs there.
    pub fn loads(&self) -> impl Iterator<Item = (usize, bool)> {
        self.queues.used().map(Dispatch::load)
    }

    fn spawn(self: &Arc<Queues>, queue: usize, seat: usize, served: Option<&Served>) -> std::io::Result<()> {
        let place = Seat { queues: self.clone(), queue, seat, served: served.cloned() };
        let name = if seat == 0 { format!("executor-{queue}") } else { format!("standby-{queue}-{seat}") };
        let thread = std::thread::Builder::new().name(name).spawn(move || Arc::new(place).serve())?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// There is nothing to run: lets others have the processor for a moment before the thread sleeps. Those who put something on its queue
    /// meanwhile wake nobody, and do not wait for one that wakes.
    fn spin_a_while(&self, queue: usize) {
        for _ in 0..YIELDS {
            std::thread::yield_now();
            let (_, is_called) = self.queues.at(queue).load();
            if is_called {
                return;
            }
        }
    }

    /// No thread is there to run what is on a queue: one is hired. If the system has no thread left, the task waits until one of
    /// those that are blocked comes back. No seat is left only where several ask at a time: then one of the others' is idle.
    fn hire(self: &Arc<Queues>, queue: usize) {
        let _ = self.hire_with(queue, None);
    }

    /// Hires a thread, unless no seat is left.
    fn hire_with(self: &Arc<Queues>, queue: usize, served: Option<&Served>) -> std::io::Result<bool> {
        let Some(seat) = self.queues.at(queue).hire() else { return Ok(false) };
        let spawned = self.spawn(queue, seat, served);
        spawned.inspect_err(|_| self.queues.at(queue).dismiss(seat)).map(|()| true)
    }

    /// Has the calling thread run its next call itself, beside the threads of this queue, if none of them runs and nothing is on the queue.
    ///
    /// Looks for a while: another visitor's call is short, mostly, and if that visitor was preempted it needs a processor. None, too, if there is no
    /// room for another call: the caller waits for it in [`Queues::admit`].
    pub fn visit(self: &Arc<Queues>, queue: usize) -> Option<Visit<'_>> {
        let (visitor, dispatch) = (&self.visitors.get()?[queue], self.queues.at(queue));
        if !Visit::is_possible() {
            return None;
        }
        for _ in 0..YIELDS {
            for _ in 0..SPINS {
                if let Some(seat) = dispatch.visit() {
                    if !self.admit_at_once() {
                        self.end_visit(queue, seat);
                        return None;
                    }
                    return Some(Visit::begin(self, visitor, seat));
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        None
    }

    /// A visit of this queue is over.
    pub(super) fn end_visit(self: &Arc<Queues>, queue: usize, seat: usize) {
        if !self.queues.at(queue).end_visit(seat) {
            self.hire(queue);
        }
    }

    /// Lets a call in; waits while there are as many as there may be.
    pub fn admit(&self) -> Result<()> {
        while !self.admit_one() {
            let mut latch = self.at_the_door.lock();
            if self.is_closed.load(Ordering::SeqCst) {
                return Err(Error::Closed);
            }
            // A call that ends either leaves room for the next look, or sees that a caller sleeps.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let is_in = self.admit_one();
            if !is_in {
                self.room.wait(&mut latch);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if is_in {
                break;
            }
        }
        Ok(())
    }

    /// Lets a call in, if it need not wait for that, nor do others.
    fn admit_at_once(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) == 0 && self.admit_one()
    }

    /// Lets a call in, if there is room.
    fn admit_one(&self) -> bool {
        let one_more = |calls| (calls < self.admitted_max).then_some(calls + 1);
        if self.calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            return false;
        }
        // Either the close waits for it, or it sees the close.
        let is_open = !self.is_closed.load(Ordering::SeqCst);
        if !is_open {
            self.release();
        }
        is_open
    }

    /// A call has its outcome.
    pub fn release(&self) {
        let is_last = self.calls.fetch_sub(1, Ordering::SeqCst) == 1;
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Room for one. A caller that takes it without having slept wakes the next one when its call ends.
            drop(self.at_the_door.lock());
            self.room.notify_one();
        }
        if is_last && self.is_closed.load(Ordering::SeqCst) {
            drop(self.at_the_door.lock());
            self.empty.notify_all();
        }
    }

    /// Puts a task on a queue: a call behind all others, what it becomes before all calls, since it may hold locks.
    pub(super) fn put(self: &Arc<Queues>, queue: usize, task: Task) {
        let standing = if matches!(task, Task::Call(..)) { Standing::New } else { Standing::Begun };
        self.queues.put(queue, task, standing, |queue| self.hire(queue));
    }

    /// Puts tasks on their queues, all at one time: so those of two phases stand in the same order wherever they meet.
    pub(super) fn put_all(self: &Arc<Queues>, tasks: SmallVec<[(usize, Task); 8]>) {
        self.queues.put_all(tasks, |queue| self.hire(queue));
    }

    /// Puts a task aside that is to run again after a rest, on the queue of the thread that calls.
    pub(in crate::engine) fn restart(&self, queue: usize, task: Task, rest: Duration) {
        self.queues.at(queue).restart(task, rest);
    }

    /// Puts a call aside, on the queue of the thread that calls, until another one that has this name ends ([`Queues::ended`]), or for a
    /// short time. It holds nothing.
    pub(super) fn step_aside(&self, queue: usize, call: Arc<Call>, runs: Runs, name: u64) {
        let number = self.asides.fetch_add(1, Ordering::Relaxed);
        let aside = Aside { name, number };
        let mut waiting = self.aside.lock();
        let rest = self
            .queues
            .at(queue)
            .put_aside(Task::Call(call, Some(Box::new(Before(runs, Some(aside))))), ASIDE);
        waiting.entry(name).or_default().push_back(Waiting { number, queue, rest });
        self.names_aside.store(waiting.len(), Ordering::SeqCst);
    }

    /// A call is aside no more; whether it was called.
    pub(super) fn come_back(&self, Aside { name, number }: Aside) -> bool {
        let mut waiting = self.aside.lock();
        let Some(of_name) = waiting.get_mut(&name) else { return true };
        let at = of_name.iter().position(|waiting| waiting.number == number);
        if let Some(at) = at {
            of_name.remove(at);
        }
        if of_name.is_empty() {
            waiting.remove(&name);
        }
        self.names_aside.store(waiting.len(), Ordering::SeqCst);
        at.is_none()
    }

    /// A call that had these names holds nothing any more: of those that are aside for one of them the first may try again.
    pub(super) fn ended(self: &Arc<Queues>, names: &mut SmallVec<[u64; 4]>) {
        if self.names_aside.load(Ordering::SeqCst) == 0 {
            return;
        }
        names.sort_unstable();
        names.dedup();
        let mut waiting = self.aside.lock();
        let mut short_of: SmallVec<[usize; 4]> = SmallVec::new();
        for name in names.iter() {
            let Some(of_name) = waiting.get_mut(name) else { continue };
            // One whose rest has just ended comes back by itself.
            while let Some(Waiting { queue, rest, .. }) = of_name.pop_front() {
                if let Some(has_hand) = self.queues.at(queue).hasten(rest) {
                    short_of.extend((!has_hand).then_some(queue));
                    break;
                }
            }
            if of_name.is_empty() {
                waiting.remove(name);
            }
        }
        self.names_aside.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        short_of.into_iter().for_each(|queue| self.hire(queue));
    }

    /// Lets no more calls in, waits for those that are there, and ends the threads.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let mut latch = self.at_the_door.lock();
        self.room.notify_all();
        while self.calls.load(Ordering::SeqCst) > 0 {
            self.empty.wait(&mut latch);
        }
        drop(latch);
        *self.resizing.lock() = Resizing::Ended;
        self.queues.all().for_each(Dispatch::close);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // It ends without a panic, or with the process.
            let _ = thread.join();
        }
    }
}

/// Held while a thread has a seat. Tasks end by themselves, by a panic too; a panic between them is one of the hand-over of
/// tasks (a bug of ours), after which what is on the queue would never be run and its callers never told: the process ends.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        eprintln!(
            "rialto: a panic while tasks were handed to executors; ending the process, reopen the database to recover"
        );
        std::process::abort();
    }
}

/// A thread's place at a queue.
struct Seat {
    queues: Arc<Queues>,
    queue: usize,
    seat: usize,
    /// Dropped last: the database may close with it.
    served: Option<Served>,
}

/// What the threads of a transaction server have beside its queue.
#[derive(Clone)]
pub(in crate::engine) struct Served {
    pub runtime: Arc<Runtime>,
    pub unanswered: Arc<Unanswered>,
    /// The database stays open as long as one of them runs.
    pub _open: KeptOpen,
}

impl Seat {
    /// Runs tasks until the queue is closed and all are run.
    fn serve(self: Arc<Seat>) {
        let Seat { queues, queue, seat, served } = &*self;
        let _takes_turns = take_turns(self.clone());
        // What it runs are bodies: they must not begin transactions of their own.
        let Ok(_in_body) = InBody::enter(queues.core.storage.catalog.opening()) else {
            unreachable!("the thread is new")
        };
        processor::begin();
        let unanswered = served.as_ref().map(|served| &served.unanswered);
        let here = Here { core: &queues.core, queues, queue: *queue, unanswered };
        let nap = || match served {
            Some(_) => self.rest(),
            None => queues.spin_a_while(*queue),
        };
        let mut tasks: u32 = 0;
        let unseated = EndsProcess;
        while let Some(task) = queues.queues.at(*queue).next(*seat, nap) {
            tasks = tasks.wrapping_add(1);
            if tasks.is_multiple_of(TASKS_A_LAP) {
                self.lap();
            }
            task.run(&here);
        }
        std::mem::forget(unseated);
        self.rest();
    }

    /// A server's thread stops to run, and may be the last: responses need not wait for others any more.
    fn rest(&self) {
        if self.served.is_some() {
            self.queues.core.commits.log.hurry();
            self.lap();
        }
    }

    /// Counts a server's processor time.
    fn lap(&self) {
        self.served.iter().for_each(|served| served.runtime.server_times.transaction.lap());
    }
}

impl Turns for Seat {
    fn leave(&self) {
        self.rest();
        if !self.queues.queues.at(self.queue).leave(self.seat) {
            self.queues.hire(self.queue);
        }
    }

    fn come_back(&self) {
        self.queues.queues.at(self.queue).come_back(self.seat);
    }
}
