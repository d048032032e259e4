//! [`Workers`]: the node's queue of work that may block, and the threads that take from it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use parking_lot::{Mutex, MutexGuard};
use rialto::fault_injection;

use super::branch::Branch;

/// So many threads stay for later work.
const IDLE_MAX: usize = 256;
/// Statements' expressions are trees of up to 500 levels.
const STACK_BYTES: usize = 8 << 20;

/// Something that a thread is needed for, since it may block.
pub enum Job {
    /// The tasks of a branch: all that there are, and those that come meanwhile.
    Branch(Arc<Branch>),
    /// Anything else.
    Other(Box<dyn FnOnce() + Send>),
}

impl Job {
    fn run(self) {
        match self {
            Job::Branch(branch) => branch.run(),
            Job::Other(run) => run(),
        }
    }
}

/// The node's queue of work that may block, from requests of this node and of others and from their replies, and the
/// threads that take from it.
///
/// Invariant: while something is queued, a thread is awake that takes from the queue before it does anything else. A thread
/// that takes something, which may then block, wakes another one for what is left. So nothing that is queued waits for
/// what blocks, such as a lock's release for the one that waits for the lock. But a thread that is through takes the next
/// job without sleeping: jobs that come together wake fewer threads than they are.
#[derive(Clone)]
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    jobs: AtomicU64,
    wake_ups: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Threads that sleep; the one that fell asleep last is woken first.
    asleep: Vec<Arc<Sleeper>>,
    /// Threads that were woken or started, and have not taken anything yet.
    coming: usize,
    is_closed: bool,
}

/// A thread that sleeps until it is called.
struct Sleeper {
    thread: Thread,
    call: AtomicU8,
}

/// What a thread is called for.
const NOTHING: u8 = 0;
const WORK: u8 = 1;
const ITS_END: u8 = 2;

impl Sleeper {
    fn call(&self, what: u8) {
        self.call.store(what, Ordering::Release);
        self.thread.unpark();
    }

    /// Sleeps until it is called. Gives for what.
    fn sleep(&self) -> u8 {
        loop {
            match self.call.swap(NOTHING, Ordering::Acquire) {
                NOTHING => std::thread::park(),
                what => return what,
            }
        }
    }
}

impl Default for Workers {
    fn default() -> Workers {
        let (jobs, wake_ups) = (AtomicU64::new(0), AtomicU64::new(0));
        Workers { shared: Arc::new(Shared { state: Mutex::default(), jobs, wake_ups }) }
    }
}

impl Workers {
    /// Queues a job.
    ///
    /// # Errors
    /// If a thread is needed and cannot start. The job is dropped.
    pub fn run(&self, job: Job) -> io::Result<()> {
        // Counted before it runs: what it does may be counted by then.
        self.shared.jobs.fetch_add(1, Ordering::Relaxed);
        let mut state = self.shared.state.lock();
        state.queue.push_back(job);
        let called = self.shared.call_one(state);
        if called.is_err() {
            self.shared.jobs.fetch_sub(1, Ordering::Relaxed);
            drop(self.shared.state.lock().queue.pop_back());
        }
        called
    }

    /// How many jobs were queued.
    pub fn jobs(&self) -> u64 {
        self.shared.jobs.load(Ordering::Relaxed)
    }

    /// How many times a thread was woken, or started, to take something.
    pub fn wake_ups(&self) -> u64 {
        self.shared.wake_ups.load(Ordering::Relaxed)
    }

    /// Has the threads end that have nothing to do.
    pub fn close(&self) {
        let asleep = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.asleep)
        };
        asleep.iter().for_each(|sleeper| sleeper.call(ITS_END));
    }
}

impl Shared {
    /// Has a thread come for what is queued, unless one comes already.
    fn call_one(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) -> io::Result<()> {
        if state.coming > 0 {
            return Ok(());
        }
        state.coming += 1;
        self.wake_ups.fetch_add(1, Ordering::Relaxed);
        let sleeper = state.asleep.pop();
        drop(state);
        let started = match sleeper {
            Some(sleeper) => {
                sleeper.call(WORK);
                return Ok(());
            }
            None => {
                let shared = self.clone();
                let thread = std::thread::Builder::new().name("rialto-branch".to_owned());
                thread.stack_size(STACK_BYTES).spawn(move || shared.serve())
            }
        };
        if started.is_err() {
            self.state.lock().coming -= 1;
        }
        started.map(drop)
    }

    /// Takes jobs until there is nothing to wait for. It is the body of a thread, which was started for the first one.
    fn serve(self: Arc<Shared>) {
        let sleeper = Arc::new(Sleeper { thread: std::thread::current(), call: AtomicU8::new(NOTHING) });
        let mut is_coming = true;
        loop {
            let mut state = self.state.lock();
            state.coming -= usize::from(std::mem::take(&mut is_coming));
            if let Some(job) = state.queue.pop_front() {
                if !state.queue.is_empty() && !fault_injection::is_on("jobs-behind-a-job-that-waits") {
                    // Without another thread what is left waits for this one. Each wait of a job has its end.
                    let _ = self.call_one(state);
                } else {
                    drop(state);
                }
                job.run();
                continue;
            }
            if state.is_closed || state.asleep.len() == IDLE_MAX {
                return;
            }
            state.asleep.push(sleeper.clone());
            drop(state);
            if sleeper.sleep() == ITS_END {
                return;
            }
            is_coming = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Each job but the last one waits until the next one has begun.
    #[test]
    fn jobs_that_wait_for_later_ones_end() {
        const JOBS: usize = 20;
        let workers = Workers::default();
        let (told, ended) = channel();
        let (mut begins, mut next): (Vec<_>, Vec<_>) = (0..JOBS).map(|_| channel::<()>()).unzip();
        let first = next.remove(0);
        let waits = next.into_iter().map(Some).chain([None]);
        for (begins, waits) in begins.drain(..).zip(waits) {
            let told = told.clone();
            let job = move || {
                let _ = begins.send(());
                if let Some(waits) = waits {
                    let _ = waits.recv();
                }
                let _ = told.send(());
            };
            workers.run(Job::Other(Box::new(job))).unwrap();
        }
        first.recv_timeout(patience()).expect("the first job begins");
        (0..JOBS).for_each(|_| ended.recv_timeout(patience()).expect("each job ends"));
        workers.close();
    }

    #[test]
    fn what_comes_after_the_end_has_a_thread_too() {
        let workers = Workers::default();
        for _ in 0..3 {
            let (told, ended) = channel();
            workers.run(Job::Other(Box::new(move || told.send(()).unwrap()))).unwrap();
            ended.recv_timeout(patience()).expect("the job ends");
            workers.close();
        }
        assert_eq!(workers.jobs(), 3);
    }

    /// The longest wait for something that has to come. `RIALTO_PATIENCE_S` gives another number of seconds, for runs with
    /// bugs put back.
    fn patience() -> Duration {
        let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
        Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(120))
    }
}
