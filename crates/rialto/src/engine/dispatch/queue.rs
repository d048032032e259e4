//! [`Dispatch`]: a request queue, and which executor runs.
//!
//! An executor here is a thread that runs requests: the priority executor, or a standby. Its *slot* is the entry that
//! holds its state. A run that is to be repeated after a back-off waits on the restart queue (`restarts`).
//!
//! One latch guards the state. It is held for a few instructions. The invariants are checked after each step (in debug
//! builds):
//!
//! - **D1** At most one executor runs: the one that `running` names, and its slot says so.
//! - **D2** If no executor runs, then none could run: no executor is ready, and either no request may run or no
//!   executor is idle.
//! - **D3** A blocked executor that may go on is ready. Ready executors run in the order in which their waits ended,
//!   before the next request is taken off the queue. Where requests are taken off in batches, the rest of a batch that
//!   has been taken off comes first.
//! - **D4** A request is in one place: on the queue, on the restart queue, or with an executor, which turns it into a
//!   response or puts it on the restart queue. After the close each request is still run. When a queue is given up,
//!   requests that no executor has taken off go to the caller that gave it up. All others are run by the queue's own
//!   executors.
//! - **D6** On the queue, requests that are [begun](Standing::Begun) stand before new ones. Within each kind the order
//!   is that in which the requests came. This also holds on the queue to which they are moved when their own is given
//!   up. A batch that has been taken off the queue comes before both (D3).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard};

/// The executor that runs requests as long as it is not blocked; the others stand by.
const PRIORITY: usize = 0;
/// If so many requests are on the restart queue, no new one is begun. Requests that have done nothing do not count.
pub(in crate::engine) const RESTARTS_MAX: usize = 1_024;

/// A caller that waits for room in the queue.
pub(in crate::engine) trait RoomWaiter: Send + Sync {
    /// Tells it that there is room.
    fn tell_of_room(&self);
}

/// Where a request stands on the queue. Requests whose back-off is over alternate with those that are begun, and stand
/// before new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Standing {
    /// Behind all others.
    New,
    /// Behind other begun requests, but before new ones: others may wait for what it holds.
    Begun,
}

/// The state of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecutorState {
    /// Sleeps until there is something to run.
    Idle,
    Running,
    /// Waits for something that its transaction needs.
    Blocked,
    /// Waits no longer for its transaction, but for its turn.
    Ready,
    /// Its thread has ended.
    Gone,
}

/// The back-off of a request before it runs again: its end and its number. By the machine's clock: servers are threads,
/// and a database on a virtual clock has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct Backoff {
    due: Instant,
    number: u64,
    /// The request has done nothing yet, and delays no other one.
    is_undone: bool,
}

impl Backoff {
    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.due <= Instant::now()
    }
}

/// The counts of a [`TransactionServer`](crate::TransactionServer).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionServerStats {
    /// Requests put on the queue.
    pub requests: u64,
    /// Requests on the queue now.
    pub queued: usize,
    /// The most that were on the queue at a time.
    pub queued_max: usize,
    /// How often a message server found the queue full.
    pub found_full: u64,
    /// How often an executor was blocked, and another one could run.
    pub blocked: u64,
    /// How often a standby executor began to run requests.
    pub stood_in: u64,
    /// Runs that were ended without effect and put on the restart queue.
    pub restarted: u64,
}

struct DispatchState<J> {
    /// The requests on the queue: first these,
    begun: VecDeque<J>,
    /// then these.
    new: VecDeque<J>,
    restarts: BTreeMap<Backoff, J>,
    /// How many of the restarts have done nothing yet.
    undone: usize,
    /// The last request that was taken off was a restart: the next turn is that of the begun ones.
    took_restart: bool,
    slots: Vec<ExecutorState>,
    running: Option<usize>,
    ready: VecDeque<usize>,
    /// Callers that found the queue full.
    waiters: Vec<Arc<dyn RoomWaiter>>,
    closed: bool,
    stats: TransactionServerStats,
}

/// Waiters to be told of room after the latch is released.
type ToldWaiters = SmallVec<[Arc<dyn RoomWaiter>; 4]>;

/// Why a request was not put on the queue.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) enum Refused<J> {
    /// The queue is full.
    Full(J),
    /// It takes no more.
    Closed(J),
}

/// See the [module](self).
pub(in crate::engine) struct Dispatch<J> {
    state: Mutex<DispatchState<J>>,
    /// One for each executor that there can be. It sleeps on it, with the latch.
    bells: Box<[Condvar]>,
    /// The length of the queue.
    length: usize,
    /// Requests that the priority executor has taken off the queue, as a batch under one hold of the latch, and not
    /// begun yet. Only the executor that runs uses it.
    batch: Mutex<VecDeque<J>>,
    /// The most requests in a batch.
    batch_max: usize,
    /// Not 0 if an executor or a visitor runs. Visitors read it before they take the latch.
    busy: AtomicUsize,
}

impl<J> DispatchState<J> {
    fn restart_is_due(&self) -> bool {
        self.restarts.first_key_value().is_some_and(|(first, _)| first.is_over())
    }

    fn queued(&self) -> usize {
        self.begun.len() + self.new.len()
    }

    /// The number of requests that may be run now: no new one is begun while too many are on the restart queue.
    fn allowed(&self) -> usize {
        if self.restarts.len() - self.undone < RESTARTS_MAX { self.queued() } else { self.begun.len() }
    }

    fn pop(&mut self) -> Option<J> {
        self.begun.pop_front().or_else(|| self.new.pop_front())
    }

    /// Whether there is something to run now.
    fn has_work(&self) -> bool {
        self.allowed() > 0 || self.restart_is_due()
    }

    /// Whether there is something to run, now or after its back-off, and no executor to run it. An idle one is enough:
    /// it sleeps until then.
    fn needs_executor(&self) -> bool {
        let has_some = self.allowed() > 0 || !self.restarts.is_empty();
        self.running.is_none() && has_some && self.first_idle().is_none()
    }

    /// Whether all requests that were put on the queue have been run, and no more can come.
    fn is_over(&self) -> bool {
        self.closed
            && self.queued() == 0
            && self.restarts.is_empty()
            && self.slots.iter().all(|slot| matches!(slot, ExecutorState::Idle | ExecutorState::Gone))
    }

    fn first_idle(&self) -> Option<usize> {
        self.slots.iter().position(|&slot| slot == ExecutorState::Idle)
    }

    /// D1 to D3.
    fn check(&self) {
        if cfg!(debug_assertions) {
            let running = self.slots.iter().filter(|&&slot| slot == ExecutorState::Running).count();
            assert_eq!(running, usize::from(self.running.is_some()), "D1: {:?}", self.slots);
            assert!(
                self.running.is_none_or(|at| self.slots[at] == ExecutorState::Running),
                "D1: {:?}",
                self.slots
            );
            // A restart may have become due just now: the executor that sleeps until then is about to wake up.
            assert!(
                self.running.is_some()
                    || self.ready.is_empty() && !(self.allowed() > 0 && self.first_idle().is_some()),
                "D2: {:?}",
                self.slots
            );
            let ready = self.slots.iter().filter(|&&slot| slot == ExecutorState::Ready).count();
            assert_eq!(ready, self.ready.len(), "D3: {:?}", self.slots);
        }
    }
}

/// A queue whose latch is held.
pub(in crate::engine) struct Putting<'a, J> {
    dispatch: &'a Dispatch<J>,
    state: MutexGuard<'a, DispatchState<J>>,
}

impl<J> Putting<'_, J> {
    /// Whether it takes no more.
    pub fn is_closed(&self) -> bool {
        self.state.closed
    }

    /// Puts requests on the queue, whatever its length: for callers that have been admitted already. False: there is no
    /// executor to run them, so a standby has to be started.
    #[must_use]
    pub fn put(mut self, jobs: impl IntoIterator<Item = J>, standing: Standing) -> bool {
        let state = &mut *self.state;
        debug_assert!(!state.closed, "D5: it would keep the threads of a queue that was given up");
        let before = state.queued();
        let queue = match standing {
            Standing::New => &mut state.new,
            Standing::Begun => &mut state.begun,
        };
        jobs.into_iter().for_each(|job| queue.push_back(job));
        let state = &mut self.state;
        let queued = state.queued();
        state.stats.requests += (queued - before) as u64;
        state.stats.queued_max = state.stats.queued_max.max(queued);
        if state.running.is_none() {
            self.dispatch.appoint(state);
        }
        state.check();
        !state.needs_executor()
    }
}

impl<J> Dispatch<J> {
    /// A queue of this length. Its priority executor takes requests off in batches of so many; standbys are
    /// [added](Dispatch::add_standby), up to `executors` in all. It is closed until it is [opened](Dispatch::reopen).
    pub fn new(length: usize, batch_max: usize, executors: usize) -> Dispatch<J> {
        let state = DispatchState {
            begun: VecDeque::new(),
            new: VecDeque::new(),
            restarts: BTreeMap::new(),
            undone: 0,
            took_restart: false,
            slots: vec![ExecutorState::Gone],
            running: None,
            ready: VecDeque::new(),
            waiters: Vec::new(),
            closed: true,
            stats: TransactionServerStats::default(),
        };
        let bells = (0..executors).map(|_| Condvar::default()).collect();
        let batch = Mutex::new(VecDeque::new());
        Dispatch { state: Mutex::new(state), bells, length, batch, batch_max, busy: AtomicUsize::new(0) }
    }

    /// Takes the latch of the queue, to put requests on it, or on several queues at once.
    pub fn lock_to_put(&self) -> Putting<'_, J> {
        Putting { dispatch: self, state: self.state.lock() }
    }

    /// Gives a standby a slot; its thread calls [`Dispatch::next`]. None if there are as many executors as there can
    /// be.
    pub fn add_standby(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let slot = self.free_slot(&state)?;
        match state.slots.get_mut(slot) {
            Some(gone) => *gone = ExecutorState::Idle,
            None => state.slots.push(ExecutorState::Idle),
        }
        if state.running.is_none() {
            self.appoint(&mut state);
        }
        state.check();
        Some(slot)
    }

    /// Puts a request on a queue that has all its standbys. If the queue is full, `waiter` is told when
    /// there is room.
    pub fn put(&self, job: J, waiter: &Arc<impl RoomWaiter + 'static>) -> Result<(), Refused<J>> {
        let mut latch = self.lock_to_put();
        let state = &mut *latch.state;
        if state.closed {
            return Err(Refused::Closed(job));
        }
        if state.queued() >= self.length {
            state.stats.found_full += 1;
            let waiter: Arc<dyn RoomWaiter> = waiter.clone();
            if !state.waiters.iter().any(|other| Arc::ptr_eq(other, &waiter)) {
                state.waiters.push(waiter);
            }
            return Err(Refused::Full(job));
        }
        let _has_executor = latch.put([job], Standing::New);
        Ok(())
    }

    /// The next request, for an executor that has run the one before; none once the queue is closed and all is run.
    /// `before_sleep` is called before each sleep, without the latch.
    pub fn next(&self, me: usize, before_sleep: impl Fn()) -> Option<J> {
        if me == PRIORITY && self.batch_max > 1 {
            let next = self.batch.lock().pop_front();
            if next.is_some() {
                return next;
            }
        }
        let mut told = ToldWaiters::new();
        let mut state = self.state.lock();
        if state.running == Some(me) {
            // After one request of a standby it is the priority executor's turn again.
            let others_turn = !state.ready.is_empty()
                || me != PRIORITY && state.slots[PRIORITY] == ExecutorState::Idle && state.has_work();
            if others_turn {
                self.step_down(&mut state, me, ExecutorState::Idle);
            }
        }
        let mut was_prepared = false;
        loop {
            if state.running == Some(me) {
                if let Some(job) = self.take(&mut state, &mut told) {
                    if me == PRIORITY && self.batch_max > 1 {
                        // No new request goes before a restart that is due.
                        let waiting =
                            if state.restart_is_due() { state.begun.len() } else { state.allowed() };
                        let more = waiting.min(self.batch_max - 1);
                        self.batch.lock().extend((0..more).filter_map(|_| state.pop()));
                    }
                    state.check();
                    drop(state);
                    told.iter().for_each(|waiter| waiter.tell_of_room());
                    return Some(job);
                }
                self.step_down(&mut state, me, ExecutorState::Idle);
            }
            state.check();
            if state.is_over() {
                state.slots[me] = ExecutorState::Gone;
                // The other executors are idle, too.
                self.bells.iter().for_each(Condvar::notify_all);
                return None;
            }
            if !was_prepared {
                was_prepared = true;
                drop(state);
                before_sleep();
                state = self.state.lock();
                continue;
            }
            let first = state.restarts.first_key_value().filter(|_| state.running.is_none());
            let limit = first.map(|(first, _)| first.due.saturating_duration_since(Instant::now()));
            state = self.bells[me].wait(state, limit);
            was_prepared = false;
            if state.running.is_none() {
                self.appoint(&mut state);
            }
        }
    }

    /// Takes the next request off the queue. Waiters are told of room when half of the queue is free: if they were told
    /// of each request that is taken off, they would wake for each.
    fn take(&self, state: &mut DispatchState<J>, told: &mut ToldWaiters) -> Option<J> {
        // Restarts alternate with begun requests, which others may wait for, and go before all new ones.
        let is_turn = state.begun.is_empty() || !std::mem::take(&mut state.took_restart);
        if is_turn && state.restart_is_due() {
            state.took_restart = true;
            let (backoff, job) = state.restarts.pop_first()?;
            state.undone -= usize::from(backoff.is_undone);
            return Some(job);
        }
        if state.allowed() == 0 {
            return None;
        }
        let job = state.pop()?;
        if !state.waiters.is_empty() && state.queued() <= self.length / 2 {
            told.extend(state.waiters.drain(..));
        }
        Some(job)
    }

    /// Puts a request that is to run again after a back-off on the restart queue.
    pub fn restart(&self, job: J, time: Duration) -> Backoff {
        self.put_restart(job, time, false)
    }

    /// The same for a request that has done nothing. The number of these is not bounded.
    pub fn back_off(&self, job: J, time: Duration) -> Backoff {
        self.put_restart(job, time, true)
    }

    fn put_restart(&self, job: J, time: Duration, is_undone: bool) -> Backoff {
        let mut state = self.state.lock();
        state.stats.restarted += 1;
        let backoff = Backoff { due: Instant::now() + time, number: state.stats.restarted, is_undone };
        state.restarts.insert(backoff, job);
        state.undone += usize::from(is_undone);
        backoff
    }

    /// Ends the back-off of a request, which is to run now. None: it runs already, or has run. False: there is no
    /// executor to run it, so a standby has to be started.
    pub fn hasten(&self, backoff: Backoff) -> Option<bool> {
        let mut state = self.state.lock();
        let job = state.restarts.remove(&backoff)?;
        state.undone -= usize::from(backoff.is_undone);
        state.begun.push_back(job);
        if state.running.is_none() {
            self.appoint(&mut state);
        }
        state.check();
        Some(!state.needs_executor())
    }

    /// The running executor is about to block, so another one may run. False: there is none that could, so a standby
    /// has to be started.
    pub fn leave(&self, me: usize) -> bool {
        let mut state = self.state.lock();
        if me == PRIORITY {
            let batch = &mut *self.batch.lock();
            // These requests stood before all others.
            batch.drain(..).rev().for_each(|job| state.begun.push_front(job));
        }
        debug_assert_eq!(state.running, Some(me), "only the running executor can block");
        state.stats.blocked += 1;
        self.step_down(&mut state, me, ExecutorState::Blocked);
        state.check();
        !state.needs_executor()
    }

    /// The executor is no longer blocked. Returns when it runs again.
    pub fn come_back(&self, me: usize) {
        let mut state = self.state.lock();
        debug_assert_eq!(state.slots[me], ExecutorState::Blocked);
        state.slots[me] = ExecutorState::Ready;
        state.ready.push_back(me);
        if state.running.is_none() {
            self.appoint(&mut state);
        }
        state.check();
        while state.running != Some(me) {
            state = self.bells[me].wait(state, None);
        }
    }

    /// Gives a slot to a visitor: a thread that runs a request itself instead of putting it on the queue, because the
    /// queue is empty and no executor runs. [`Dispatch::end_visit`] gives the slot back.
    pub fn visit(&self) -> Option<usize> {
        if self.is_busy() {
            return None;
        }
        let mut state = self.state.lock();
        if state.closed || state.running.is_some() || state.has_work() {
            return None;
        }
        let slot = self.free_slot(&state)?;
        match state.slots.get_mut(slot) {
            Some(gone) => *gone = ExecutorState::Running,
            None => state.slots.push(ExecutorState::Running),
        }
        self.set_running(&mut state, Some(slot));
        state.check();
        Some(slot)
    }

    /// Ends a visit. False: there is no executor for what is on the queue now, so a standby has to be started.
    #[must_use]
    pub fn end_visit(&self, slot: usize) -> bool {
        let mut state = self.state.lock();
        self.step_down(&mut state, slot, ExecutorState::Gone);
        state.check();
        if state.is_over() {
            self.bells.iter().for_each(Condvar::notify_all);
        }
        !state.needs_executor()
    }

    /// Takes back the slot of an executor that got no thread.
    pub fn remove_executor(&self, slot: usize) {
        let mut state = self.state.lock();
        state.slots[slot] = ExecutorState::Gone;
        if state.running == Some(slot) {
            self.set_running(&mut state, None);
            self.appoint(&mut state);
        }
    }

    /// Closes the queue and returns the requests that no executor has taken off. Requests that were taken off, that
    /// wait for a lock or that are on the restart queue are run by this queue's threads to their end. Then the threads
    /// end.
    pub fn give_up(&self) -> impl Iterator<Item = (J, Standing)> + use<J> {
        let mut state = self.state.lock();
        state.closed = true;
        let (begun, new) = (std::mem::take(&mut state.begun), std::mem::take(&mut state.new));
        drop(state);
        self.bells.iter().for_each(Condvar::notify_all);
        let begun = begun.into_iter().map(|job| (job, Standing::Begun));
        begun.chain(new.into_iter().map(|job| (job, Standing::New)))
    }

    /// Opens the queue after it was given up. True: its priority executor has no thread any more, and is to get one.
    pub fn reopen(&self) -> bool {
        let mut state = self.state.lock();
        state.closed = false;
        let is_vacant = state.slots[PRIORITY] == ExecutorState::Gone;
        if is_vacant {
            state.slots[PRIORITY] = ExecutorState::Idle;
        }
        is_vacant
    }

    /// How many requests are on the queue, and whether an executor runs.
    pub fn load(&self) -> (usize, bool) {
        let state = self.state.lock();
        (state.queued(), state.running.is_some())
    }

    /// Closes the queue. The requests that are there are still run.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let told: ToldWaiters = state.waiters.drain(..).collect();
        drop(state);
        self.bells.iter().for_each(Condvar::notify_all);
        told.iter().for_each(|waiter| waiter.tell_of_room());
    }

    /// The counts so far.
    pub fn stats(&self) -> TransactionServerStats {
        let state = self.state.lock();
        TransactionServerStats { queued: state.queued(), ..state.stats }
    }

    /// How many executors wait for their turn now.
    #[cfg(test)]
    pub fn ready(&self) -> usize {
        self.state.lock().ready.len()
    }

    /// A slot without a thread, beside the priority executor's: its thread has ended, or has never begun.
    fn free_slot(&self, state: &DispatchState<J>) -> Option<usize> {
        let left = state.slots.iter().skip(1).position(|&slot| slot == ExecutorState::Gone);
        let slot = left.map_or(state.slots.len(), |at| at + 1);
        (slot < self.bells.len()).then_some(slot)
    }

    /// Whether an executor or a visitor runs, as far as can be told without the latch.
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    fn set_running(&self, state: &mut DispatchState<J>, running: Option<usize>) {
        state.running = running;
        self.busy.store(usize::from(running.is_some()), Ordering::Relaxed);
    }

    /// The running executor stops to run.
    fn step_down(&self, state: &mut MutexGuard<'_, DispatchState<J>>, me: usize, slot: ExecutorState) {
        state.slots[me] = slot;
        self.set_running(state, None);
        self.appoint(state);
    }

    /// Chooses the executor that runs next. None runs now.
    fn appoint(&self, state: &mut MutexGuard<'_, DispatchState<J>>) {
        debug_assert_eq!(state.running, None, "D1");
        let idle = state.first_idle();
        let chosen = match state.ready.pop_front() {
            Some(ready) => Some(ready),
            None if state.has_work() => idle,
            None => None,
        };
        if let Some(chosen) = chosen {
            if chosen != PRIORITY && state.slots[chosen] == ExecutorState::Idle {
                state.stats.stood_in += 1;
            }
            state.slots[chosen] = ExecutorState::Running;
            self.set_running(state, Some(chosen));
            self.bells[chosen].notify_all();
        } else if let (Some(idle), false) = (idle, state.restarts.is_empty()) {
            // It sleeps until the first of the restarts is due.
            self.bells[idle].notify_all();
        }
    }
}
