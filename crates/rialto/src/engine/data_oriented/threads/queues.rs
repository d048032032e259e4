//! [`Queues`]: the threads that own executors, and their queues of tasks.
//!
//! Each thread has a [`Dispatch`], which hands requests over as System M's transaction server does. One *priority*
//! thread takes tasks off the queue, a batch under one hold of its latch, and runs them one after the other. While a
//! task waits for a lock, the disk or the log ([`WaitGuard`](crate::account::wait_guard::WaitGuard)), a *standby* thread runs
//! the next one. So a wait of one task does not hold up the others. Standby threads are started when they are needed.
//!
//! If another transaction holds a lock on exactly an identifier of a call's first phase, the call *backs off*: its
//! run ends without effect, it holds no locks, and it occupies no thread. It is run again when a call that had named
//! this identifier ends and wakes it, or after a back-off (`BACKOFF`). [`Runs::may_back_off`] limits how often; after
//! that the call waits for the lock as any transaction does.
//!
//! A transaction server is a `Queues` with one thread: its queue has a bound, at which message servers wait; its
//! tasks are their requests, taken off one by one. It has all its standbys from the start.
//!
//! Invariant kept here: a call that has been admitted completes. Calls are admitted up to a bound, at which callers
//! wait (back-pressure); phases and parts of an admitted call are never refused.
//!
//! The number of threads changes while calls run ([`Dispatches`]): nothing is lost, and no call waits for a change.
//! Which thread runs an action only affects speed: the action's locks are at the executors that the routing rules name.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::admission::CallAdmission;
use super::call::Call;
use super::execution::{Here, Task};
use super::visit::{Visit, Visitor};
use crate::account::processor;
use crate::account::wait_guard::{Turns, take_turns};
use crate::engine::Runtime;
use crate::engine::dispatch::{Backoff, Dispatch, Dispatches, Standing};
use crate::engine::servers::{KeptOpen, Unanswered};
use crate::inside::InBody;
use crate::txn::core::Core;
use crate::txn::runs::{BACKOFF, Runs};

/// The name of the identifier for which a call backs off, and the number of this back-off.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct BackoffId {
    name: u64,
    number: u64,
}

/// The entry of a call that backs off for a lock: the number of its back-off, its queue, and the back-off there.
struct BackoffEntry {
    number: u64,
    queue: usize,
    backoff: Backoff,
}

/// How often a thread that finds nothing to run yields before it sleeps; also for a caller that would visit a queue.
const YIELDS: usize = 20;

/// How often a caller that would visit a queue checks it before each yield: for about as long as a short call takes.
const SPINS: usize = 128;

/// How many tasks a thread takes off its queue under one hold of the latch.
const BATCH_MAX: usize = 8;

/// After so many tasks without a sleep, a thread of a transaction server accounts its processor time.
const TASKS_A_LAP: u32 = 64;

/// The queues, one for each thread that owns executors.
pub(crate) struct Queues {
    pub(super) core: Arc<Core>,
    /// One change of their number at a time, and none after the close.
    resizing: Mutex<Resizing>,
    /// Message servers wait for room in a server's queue. Callers wait for room in [`CallAdmission::admit`], before
    /// their call is queued.
    queues: Dispatches<Task>,
    pub(super) admission: CallAdmission,
    /// The calls that back off for a lock, by the name that they wait for. Each has one entry, until it is woken or its
    /// back-off is over.
    backing_off: Mutex<HashMap<u64, VecDeque<BackoffEntry>>>,
    backoff_names: AtomicUsize,
    /// How many times calls have backed off for a lock.
    backoffs: AtomicU64,
    /// All threads that were started, standbys included.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What callers need to visit a queue, by queue; set when the first thread starts.
    visitors: OnceLock<Box<[Arc<Visitor>]>>,
    /// A bug that tests inject.
    #[cfg(test)]
    pub(super) bug: Mutex<Option<Bug>>,
}

/// Where tests make a task panic outside of any body, once.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    Begin,
    ShareOut,
    PartDone,
    Join,
    End,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Resizing {
    #[default]
    Open,
    Ended,
}

impl Queues {
    /// With room for so many threads, none of which exists yet, for so many calls at a time, and for so many parts of
    /// phases beside the first part of each. When the other queues are retired, all tasks may come to stand on one
    /// queue, and all but one may wait there. Therefore each queue has a slot for each task.
    pub fn new(core: &Arc<Core>, threads_max: usize, calls_max: usize, parts_max: usize) -> Queues {
        let queues = Dispatches::new(threads_max, usize::MAX, BATCH_MAX, calls_max + parts_max);
        Queues::with(core, queues, calls_max)
    }

    /// For a transaction server: one queue of this length, and so many executors, none of which exists yet.
    pub fn of_server(core: &Arc<Core>, length: usize, executors: usize) -> Queues {
        Queues::with(core, Dispatches::new(1, length, 1, executors), 0)
    }

    fn with(core: &Arc<Core>, queues: Dispatches<Task>, admitted_max: usize) -> Queues {
        Queues {
            core: core.clone(),
            resizing: Mutex::default(),
            queues,
            admission: CallAdmission::new(admitted_max),
            backing_off: Mutex::default(),
            backoff_names: AtomicUsize::new(0),
            backoffs: AtomicU64::new(0),
            threads: Mutex::default(),
            visitors: OnceLock::new(),
            #[cfg(test)]
            bug: Mutex::default(),
        }
    }

    /// Panics if tests have injected this bug.
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
        self.queues.grow(|queue| self.spawn(queue, 0, Some(&served)), |queue| self.start_standby(queue))?;
        while self.try_start_standby(0, Some(&served))? {}
        Ok(())
    }

    /// The number of threads that own executors now.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// The number of threads that there is room for.
    pub fn room(&self) -> usize {
        self.queues.room()
    }

    /// The thread that owns an executor. Each thread owns neighbours, because these have keys that are used together.
    /// No thread owns the read-only executor: what is only read is read on any thread.
    pub fn owner_of(&self, executor: u16) -> Option<usize> {
        let threads = self.len();
        let owner =
            || (usize::from(executor) * threads / self.core.locks.executors_in_use()).min(threads - 1);
        (!self.core.locks.is_read_only_executor(executor)).then(owner)
    }

    /// Lets so many threads own the executors, from 1 to as many as there is room for.
    ///
    /// # Errors
    /// If the system has no thread left. Then there are as many threads as it gave.
    pub fn resize(self: &Arc<Queues>, threads: usize) -> std::io::Result<()> {
        assert!((1..=self.room()).contains(&threads), "{threads} threads");
        let resizing = self.resizing.lock();
        if *resizing == Resizing::Ended {
            return Ok(());
        }
        self.visitors.get_or_init(|| Visitor::of_all(self));
        self.threads.lock().retain(|thread| !thread.is_finished());
        while self.len() < threads {
            self.queues.grow(|queue| self.spawn(queue, 0, None), |queue| self.start_standby(queue))?;
        }
        while self.len() > threads {
            self.queues.shrink(|queue| self.start_standby(queue));
        }
        Ok(())
    }

    /// The number of tasks on each queue in use, and whether a thread runs there.
    pub fn loads(&self) -> impl Iterator<Item = (usize, bool)> {
        self.queues.used().map(Dispatch::load)
    }

    fn spawn(self: &Arc<Queues>, queue: usize, slot: usize, served: Option<&Served>) -> std::io::Result<()> {
        let thread = QueueThread { queues: self.clone(), queue, slot, served: served.cloned() };
        let name = if slot == 0 { format!("executor-{queue}") } else { format!("standby-{queue}-{slot}") };
        let thread = std::thread::Builder::new().name(name).spawn(move || Arc::new(thread).serve())?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Yields the processor for a moment before a thread without work sleeps. A caller that puts a task on its queue
    /// meanwhile need not wake it, nor wait until it has woken.
    fn spin_a_while(&self, queue: usize) {
        for _ in 0..YIELDS {
            std::thread::yield_now();
            let (_, is_running) = self.queues.at(queue).load();
            if is_running {
                return;
            }
        }
    }

    /// Starts a standby for a queue at which no thread can run what is on it. If the system has no thread left, the
    /// task waits until a blocked thread comes back. There is no free slot only if several callers start standbys at a
    /// time. Then one of the others' standbys is idle.
    fn start_standby(self: &Arc<Queues>, queue: usize) {
        let _ = self.try_start_standby(queue, None);
    }

    /// Starts a standby, unless no slot is left.
    fn try_start_standby(self: &Arc<Queues>, queue: usize, served: Option<&Served>) -> std::io::Result<bool> {
        let Some(slot) = self.queues.at(queue).add_standby() else { return Ok(false) };
        let spawned = self.spawn(queue, slot, served);
        spawned.inspect_err(|_| self.queues.at(queue).remove_executor(slot)).map(|()| true)
    }

    /// Lets the calling thread run its next call itself, in thread of the threads of this queue, if none of them runs
    /// and the queue is empty.
    ///
    /// Tries for a while: another visitor's call is usually short, and if that visitor was preempted it needs a
    /// processor. None also if there is no room for another call: the caller waits for that in
    /// [`CallAdmission::admit`].
    pub fn visit(self: &Arc<Queues>, queue: usize) -> Option<Visit<'_>> {
        let (visitor, dispatch) = (&self.visitors.get()?[queue], self.queues.at(queue));
        if !Visit::is_possible() {
            return None;
        }
        for _ in 0..YIELDS {
            for _ in 0..SPINS {
                if let Some(slot) = dispatch.visit() {
                    if !self.admission.admit_at_once() {
                        self.end_visit(queue, slot);
                        return None;
                    }
                    return Some(Visit::begin(self, visitor, slot));
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        None
    }

    /// Ends a visit of this queue.
    pub(super) fn end_visit(self: &Arc<Queues>, queue: usize, slot: usize) {
        if !self.queues.at(queue).end_visit(slot) {
            self.start_standby(queue);
        }
    }

    /// Puts a task on a queue: a new call behind all others, a phase or part of a call before all new calls, since it
    /// may hold locks.
    pub(super) fn put(self: &Arc<Queues>, queue: usize, task: Task) {
        let standing = if matches!(task, Task::Call(..)) { Standing::New } else { Standing::Begun };
        self.queues.put(queue, task, standing, |queue| self.start_standby(queue));
    }

    /// Puts tasks on their queues, all at one time: so the tasks of two phases stand in the same order on all queues
    /// that they share.
    pub(super) fn put_all(self: &Arc<Queues>, tasks: SmallVec<[(usize, Task); 8]>) {
        self.queues.put_all(tasks, |queue| self.start_standby(queue));
    }

    /// Puts a task that is to run again after a back-off on the restart queue of the calling thread's queue.
    pub(in crate::engine) fn restart(&self, queue: usize, task: Task, time: Duration) {
        self.queues.at(queue).restart(task, time);
    }

    /// Puts a call that backs off for a lock on the restart queue of the calling thread's queue, until
    /// another call ends that has this name ([`Queues::ended`]), or for a short time. The call holds nothing.
    pub(super) fn back_off(&self, queue: usize, call: Arc<Call>, runs: Runs, name: u64) {
        let number = self.backoffs.fetch_add(1, Ordering::Relaxed);
        let id = BackoffId { name, number };
        let mut waiting = self.backing_off.lock();
        let backoff =
            self.queues.at(queue).back_off(Task::again(call, runs, Some(id), &self.core.clock), BACKOFF);
        waiting.entry(name).or_default().push_back(BackoffEntry { number, queue, backoff });
        self.backoff_names.store(waiting.len(), Ordering::SeqCst);
    }

    /// Ends the back-off of a call. Returns whether another call has woken it.
    pub(super) fn end_backoff(&self, BackoffId { name, number }: BackoffId) -> bool {
        let mut waiting = self.backing_off.lock();
        let Some(of_name) = waiting.get_mut(&name) else { return true };
        let at = of_name.iter().position(|waiting| waiting.number == number);
        if let Some(at) = at {
            of_name.remove(at);
        }
        if of_name.is_empty() {
            waiting.remove(&name);
        }
        self.backoff_names.store(waiting.len(), Ordering::SeqCst);
        at.is_none()
    }

    /// A call that had these names holds nothing any more. For each name, wakes the first call that backs off for
    /// it.
    pub(super) fn ended(self: &Arc<Queues>, names: &mut SmallVec<[u64; 4]>) {
        if self.backoff_names.load(Ordering::SeqCst) == 0 {
            return;
        }
        names.sort_unstable();
        names.dedup();
        let mut waiting = self.backing_off.lock();
        let mut short_of: SmallVec<[usize; 4]> = SmallVec::new();
        for name in names.iter() {
            let Some(of_name) = waiting.get_mut(name) else { continue };
            // A call whose back-off has just ended runs without this.
            while let Some(BackoffEntry { queue, backoff, .. }) = of_name.pop_front() {
                if let Some(has_executor) = self.queues.at(queue).hasten(backoff) {
                    short_of.extend((!has_executor).then_some(queue));
                    break;
                }
            }
            if of_name.is_empty() {
                waiting.remove(name);
            }
        }
        self.backoff_names.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        short_of.into_iter().for_each(|queue| self.start_standby(queue));
    }

    /// Admits no more calls, waits for those that are admitted, and ends the threads.
    pub fn close(&self) {
        self.admission.close();
        *self.resizing.lock() = Resizing::Ended;
        self.queues.all().for_each(Dispatch::close);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The thread ends without a panic, or with the process.
            let _ = thread.join();
        }
    }
}

/// Held while a thread has a slot at a queue. A panic of a task ends only that task. A panic between tasks is one of the
/// hand-over (a bug of ours): what is on the queue would never run, and its callers would never get an answer.
/// Therefore it ends the process.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        eprintln!(
            "rialto: a panic while tasks were handed to executors; ending the process, reopen the database to recover"
        );
        std::process::abort();
    }
}

/// A thread that runs the tasks of a queue, in a slot of the queue.
struct QueueThread {
    queues: Arc<Queues>,
    queue: usize,
    slot: usize,
    /// Dropped last, because the database may close when it is dropped.
    served: Option<Served>,
}

/// What the threads of a transaction server need beside its queue.
#[derive(Clone)]
pub(in crate::engine) struct Served {
    pub runtime: Arc<Runtime>,
    pub unanswered: Arc<Unanswered>,
    /// Keeps the database open as long as one of the threads runs.
    pub _open: KeptOpen,
}

impl QueueThread {
    /// Runs tasks until the queue is closed and all are run.
    fn serve(self: Arc<QueueThread>) {
        let QueueThread { queues, queue, slot, served } = &*self;
        let _takes_turns = take_turns(self.clone());
        // It runs bodies, and these must not begin transactions of their own.
        let Ok(_in_body) = InBody::enter(queues.core.storage.catalog.opening()) else {
            unreachable!("the thread is new")
        };
        processor::begin();
        let unanswered = served.as_ref().map(|served| &served.unanswered);
        let here = Here { core: &queues.core, queues, queue: *queue, unanswered };
        let before_sleep = || match served {
            Some(_) => self.pause(),
            None => queues.spin_a_while(*queue),
        };
        let mut tasks: u32 = 0;
        let on_panic = EndsProcess;
        while let Some(task) = queues.queues.at(*queue).next(*slot, before_sleep) {
            tasks = tasks.wrapping_add(1);
            if tasks.is_multiple_of(TASKS_A_LAP) {
                self.lap();
            }
            task.run(&here);
        }
        std::mem::forget(on_panic);
        self.pause();
    }

    /// A server's thread stops to run and may be the last one, so responses need not wait for later commits to share
    /// their flush.
    fn pause(&self) {
        if self.served.is_some() {
            self.queues.core.commits.log.hurry();
            self.lap();
        }
    }

    /// Accounts a server's processor time.
    fn lap(&self) {
        self.served.iter().for_each(|served| served.runtime.server_times.transaction.lap());
    }
}

impl Turns for QueueThread {
    fn leave(&self) {
        self.pause();
        if !self.queues.queues.at(self.queue).leave(self.slot) {
            self.queues.start_standby(self.queue);
        }
    }

    fn come_back(&self) {
        self.queues.queues.at(self.queue).come_back(self.slot);
    }
}
