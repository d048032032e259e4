//! The commit lock of KODA's Commit-Lock Design: one lock, exclusive or shared, granted in the order of the requests.
//!
//! An exclusive request is granted to one requester at a time, with a wake call for each: the serial procession that
//! the paper measures. Shared requests that follow each other are granted in unison, with one wake call.
//!
//! Each requester sleeps on the word of its run (a run is one exclusive request, or shared ones in a row), and the word
//! is changed before its sleepers are woken, so no grant is lost.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sync::{AtomicU64, Futex, Machine, Mutex, Ordering};
use crate::log::group_commit::CommitLockMode;

const WAITS: u32 = 0;
const GRANTED: u32 = 1;

#[derive(Debug)]
struct RequestRun<F> {
    mode: CommitLockMode,
    requests: u32,
    word: Arc<F>,
}

#[derive(Debug)]
struct Queue<F> {
    /// How many threads hold the lock, and in which mode.
    holders: u32,
    mode: CommitLockMode,
    runs: VecDeque<RequestRun<F>>,
    /// Words without sleepers.
    spare: Vec<Arc<F>>,
}

impl<F: Futex> Queue<F> {
    /// The last thread that gives back a word makes it spare.
    fn give_back(&mut self, mut word: Arc<F>) {
        if Arc::get_mut(&mut word).is_some() {
            word.exchange(GRANTED, WAITS);
            self.spare.push(word);
        }
    }
}

/// The commit lock.
#[derive(Debug)]
pub(crate) struct CommitLock<M: Machine> {
    queue: Mutex<Queue<M::Futex>>,
    wakes: AtomicU64,
    woken: AtomicU64,
}

/// The commit lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct CommitLockGuard<'a, M: Machine> {
    lock: &'a CommitLock<M>,
    /// The word that the holder slept on, if it slept.
    word: Option<Arc<M::Futex>>,
}

impl<M: Machine> CommitLock<M> {
    pub(crate) fn new() -> CommitLock<M> {
        let (runs, spare) = (VecDeque::new(), Vec::new());
        CommitLock {
            queue: Mutex::new(Queue { holders: 0, mode: CommitLockMode::Shared, runs, spare }),
            wakes: AtomicU64::new(0),
            woken: AtomicU64::new(0),
        }
    }

    /// Wake calls made.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    /// Threads that these calls woke.
    pub(crate) fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Waits until the lock is granted.
    pub(crate) fn request(&self, machine: &M, mode: CommitLockMode) -> CommitLockGuard<'_, M> {
        let word = self.enqueue(machine, mode);
        if let Some(word) = &word {
            while word.load() == WAITS {
                word.wait(WAITS, None);
            }
        }
        machine.granted();
        CommitLockGuard { lock: self, word }
    }

    /// Takes the lock, or queues for it and returns the word to sleep on.
    fn enqueue(&self, machine: &M, mode: CommitLockMode) -> Option<Arc<M::Futex>> {
        let mut queue = self.queue.lock();
        let shared = mode == CommitLockMode::Shared;
        if queue.runs.is_empty() && (queue.holders == 0 || shared && queue.mode == CommitLockMode::Shared) {
            queue.holders += 1;
            queue.mode = mode;
            return None;
        }
        if let Some(last) = queue.runs.back_mut().filter(|last| shared && last.mode == CommitLockMode::Shared)
        {
            last.requests += 1;
            return Some(last.word.clone());
        }
        let word = queue.spare.pop().unwrap_or_else(|| Arc::new(machine.futex(WAITS)));
        queue.runs.push_back(RequestRun { mode, requests: 1, word: word.clone() });
        Some(word)
    }

    fn release(&self, word: Option<Arc<M::Futex>>) {
        let mut queue = self.queue.lock();
        word.into_iter().for_each(|word| queue.give_back(word));
        queue.holders -= 1;
        if queue.holders > 0 {
            return;
        }
        let Some(run) = queue.runs.pop_front() else { return };
        (queue.holders, queue.mode) = (run.requests, run.mode);
        run.word.exchange(WAITS, GRANTED);
        drop(queue);
        self.wakes.fetch_add(1, Ordering::Relaxed);
        let woken = run.word.wake_all();
        self.woken.fetch_add(woken.into(), Ordering::Relaxed);
        self.queue.lock().give_back(run.word);
    }
}

impl<M: Machine> Drop for CommitLockGuard<'_, M> {
    fn drop(&mut self) {
        self.lock.release(self.word.take());
    }
}
