//! [`Queues`]: what there is to do for the threads that own executors, and these threads.
//!
//! Each thread has a [`Dispatch`], System M's hand-over: one *priority* thread takes tasks off the queue, a group under one
//! hold of its latch, and runs them one after the other; while one of them waits for a lock a *standby* thread goes on
//! with the next, so that the executor itself never waits. Standbys are hired as they are needed.
//!
//! Kept here: whoever has been let in goes through. Calls are let in up to a bound, at which callers wait (back-pressure);
//! what comes of them later, phases and parts, is never refused.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use super::flight::{Here, Task};
use crate::core::Core;
use crate::database::InBody;
use crate::engine::transaction_server::blocked::{Turns, take_turns};
use crate::engine::transaction_server::dispatch::{Dispatch, Waiter};
use crate::error::{Error, Result};

/// How many tasks a thread takes off its queue under one hold of the latch.
const GROUP: usize = 8;

/// Nobody waits for room in a queue: callers do before, for [`Queues::admit`].
pub(super) struct Nobody;

impl Waiter for Nobody {
    fn tell_of_room(&self) {}
}

/// The queues, one for each thread that owns executors.
pub(crate) struct Queues {
    queues: Box<[CachePadded<Dispatch<Task, Nobody>>]>,
    admitted: Mutex<Admitted>,
    /// A call has its outcome: for one who waits for room.
    room: Condvar,
    /// The last one has, after the end: for who closes.
    empty: Condvar,
    admitted_max: usize,
    /// All that were started, standbys too.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Admitted {
    /// Calls on their way.
    calls: usize,
    /// Callers who wait for room.
    sleepers: usize,
    closed: bool,
}

impl Queues {
    /// For so many threads, and so many calls at a time.
    pub fn new(threads: usize, calls_max: usize, seats_max: usize) -> Queues {
        Queues {
            queues: (0..threads).map(|_| CachePadded::new(Dispatch::unbounded(GROUP, seats_max))).collect(),
            admitted: Mutex::default(),
            room: Condvar::new(),
            empty: Condvar::new(),
            admitted_max: calls_max,
            threads: Mutex::default(),
        }
    }

    /// How many threads own executors.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// The thread that owns an executor.
    pub fn owner_of(&self, executor: u16) -> usize {
        usize::from(executor) % self.queues.len()
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// If the system has none left.
    pub fn start(self: &Arc<Queues>, core: &Arc<Core>) -> std::io::Result<()> {
        (0..self.len()).try_for_each(|queue| self.spawn(core, queue, 0))
    }

    fn spawn(self: &Arc<Queues>, core: &Arc<Core>, queue: usize, seat: usize) -> std::io::Result<()> {
        let (queues, core) = (self.clone(), core.clone());
        let name = if seat == 0 { format!("executor-{queue}") } else { format!("standby-{queue}-{seat}") };
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            take_turns(Arc::new(Seat { queues: queues.clone(), core: core.clone(), queue, seat }));
            // What it runs are bodies: they must not begin transactions of their own.
            let Ok(_in_body) = InBody::enter() else { unreachable!("the thread is new") };
            let here = Here { core: &core, queues: &queues, queue };
            while let Some(task) = queues.queues[queue].next(seat, || ()) {
                task.run(&here);
            }
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Nobody is there to run what is on a queue: gets somebody. If the system has no thread left it waits until one of
    /// those that are blocked comes back.
    fn hire(self: &Arc<Queues>, core: &Arc<Core>, queue: usize) {
        if let Some(seat) = self.queues[queue].hire()
            && self.spawn(core, queue, seat).is_err()
        {
            self.queues[queue].dismiss(seat);
        }
    }

    /// Lets a call in; waits while there are as many as there may be.
    pub fn admit(&self) -> Result<()> {
        let mut admitted = self.admitted.lock();
        while admitted.calls >= self.admitted_max && !admitted.closed {
            admitted.sleepers += 1;
            self.room.wait(&mut admitted);
            admitted.sleepers -= 1;
        }
        if admitted.closed {
            return Err(Error::Closed);
        }
        admitted.calls += 1;
        Ok(())
    }

    /// A call has its outcome.
    pub fn release(&self) {
        let mut admitted = self.admitted.lock();
        admitted.calls -= 1;
        let (is_awaited, is_end) = (admitted.sleepers > 0, admitted.closed && admitted.calls == 0);
        drop(admitted);
        // Room for one. If somebody takes it who came by he wakes the next when he has done.
        if is_awaited {
            self.room.notify_one();
        }
        if is_end {
            self.empty.notify_all();
        }
    }

    /// Puts a task on a queue.
    pub(super) fn put(self: &Arc<Queues>, core: &Arc<Core>, queue: usize, task: Task) {
        if !self.queues[queue].put_all([task]) {
            self.hire(core, queue);
        }
    }

    /// Puts tasks on their queues, ascending, all at one time: so those of two phases stand in the same order wherever they
    /// meet.
    pub(super) fn put_all(self: &Arc<Queues>, core: &Arc<Core>, tasks: SmallVec<[(usize, Task); 8]>) {
        debug_assert!(tasks.is_sorted_by_key(|(queue, _)| *queue), "latches are taken in one order");
        let latches: SmallVec<[_; 8]> =
            tasks.iter().map(|(queue, _)| self.queues[*queue].lock_to_put()).collect();
        let mut short_of: SmallVec<[usize; 8]> = SmallVec::new();
        for ((queue, task), latch) in tasks.into_iter().zip(latches) {
            if !latch.put([task]) {
                short_of.push(queue);
            }
        }
        short_of.into_iter().for_each(|queue| self.hire(core, queue));
    }

    /// Puts a task aside that is to run again after a rest, on the queue of the thread that calls.
    pub(super) fn restart(&self, queue: usize, task: Task, rest: std::time::Duration) {
        self.queues[queue].restart(task, rest);
    }

    /// Lets no more calls in, waits for those that are there, and ends the threads.
    pub fn close(&self) {
        let mut admitted = self.admitted.lock();
        admitted.closed = true;
        self.room.notify_all();
        while admitted.calls > 0 {
            self.empty.wait(&mut admitted);
        }
        drop(admitted);
        self.queues.iter().for_each(|queue| queue.close());
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // It catches the panics of bodies; its own would be ours, and has been printed.
            let _ = thread.join();
        }
    }
}

/// A thread's place at a queue.
struct Seat {
    queues: Arc<Queues>,
    core: Arc<Core>,
    queue: usize,
    seat: usize,
}

impl Turns for Seat {
    fn leave(&self) {
        if !self.queues.queues[self.queue].leave(self.seat) {
            self.queues.hire(&self.core, self.queue);
        }
    }

    fn come_back(&self) {
        self.queues.queues[self.queue].come_back(self.seat);
    }
}
