//! [`Workers`]: the node's queue of work that may block, and the threads that take from it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use parking_lot::{Mutex, MutexGuard};
use rialto::fault_injection;

use super::branch::Branch;
use super::served::ServedPartition;

/// How many idle threads stay for later work.
const IDLE_MAX: usize = 256;
/// Statements' expressions are trees of up to 500 levels.
const STACK_BYTES: usize = 8 << 20;

/// Something that a thread is needed for, since it may block.
pub enum Job {
    /// The tasks of a branch: all that there are, and those that come meanwhile.
    Branch(Arc<Branch>),
    /// Other work of a partition.
    OfPartition(Arc<ServedPartition>, Box<dyn FnOnce() + Send>),
    /// Anything else.
    Other(Box<dyn FnOnce() + Send>),
}

impl Job {
    fn run(self) {
        match self {
            Job::Branch(branch) => branch.run(),
            Job::OfPartition(_, run) | Job::Other(run) => run(),
        }
    }

    /// The partition whose work it is.
    fn partition(&self) -> Option<&Arc<ServedPartition>> {
        match self {
            Job::Branch(branch) => Some(&branch.served),
            Job::OfPartition(served, _) => Some(served),
            Job::Other(_) => None,
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
///
/// If no thread can start, what is queued may wait for what blocks: then the partitions of these jobs resign, which ends
/// what blocks there, and jobs of no partition are dropped.
#[derive(Clone, Default)]
pub struct Workers {
    shared: Arc<Shared>,
}

/// Fails where a thread could not start.
#[cfg(test)]
type RefusesToStart = Box<dyn Fn() -> io::Result<()> + Send>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    jobs: AtomicU64,
    wake_ups: AtomicU64,
    /// Whether a thread cannot start.
    #[cfg(test)]
    refuses_to_start: Mutex<Option<RefusesToStart>>,
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
        let (mut state, error) = match self.shared.call_one(state) {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        // The lock was held all the time: the last job is this one.
        let job = state.queue.pop_back();
        drop(state);
        self.shared.jobs.fetch_sub(1, Ordering::Relaxed);
        drop(job);
        Err(error)
    }

    /// How many jobs were queued.
    pub fn jobs(&self) -> u64 {
        self.shared.jobs.load(Ordering::Relaxed)
    }

    /// How many times a thread was woken, or started, to take something.
    pub fn wake_ups(&self) -> u64 {
        self.shared.wake_ups.load(Ordering::Relaxed)
    }

    /// Ends the threads that have nothing to do.
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
    ///
    /// # Errors
    /// If none can start. Until that is known the lock is held, and is given back: what is queued meanwhile would count on
    /// a thread that does not come.
    fn call_one<'s>(
        self: &Arc<Shared>,
        mut state: MutexGuard<'s, State>,
    ) -> Result<(), (MutexGuard<'s, State>, io::Error)> {
        if state.coming > 0 {
            return Ok(());
        }
        if let Some(sleeper) = state.asleep.pop() {
            state.coming += 1;
            drop(state);
            sleeper.call(WORK);
        } else if let Err(error) = self.start() {
            return Err((state, error));
        } else {
            state.coming += 1;
        }
        self.wake_ups.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Starts a thread. It waits for the lock before it takes anything.
    fn start(self: &Arc<Shared>) -> io::Result<()> {
        #[cfg(test)]
        if let Some(refuses) = &*self.refuses_to_start.lock() {
            refuses()?;
        }
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("rialto-branch".to_owned());
        thread.stack_size(STACK_BYTES).spawn(move || shared.serve()).map(drop)
    }

    /// Has a thread come for what is queued after a job that is to run now. Without one, no queued job may count on
    /// being run.
    fn call_another(self: &Arc<Shared>, state: MutexGuard<'_, State>) {
        let Err((mut state, error)) = self.call_one(state) else { return };
        let partitions: Vec<_> = state.queue.iter().filter_map(Job::partition).cloned().collect();
        let (of_partitions, others) =
            std::mem::take(&mut state.queue).into_iter().partition(|job| job.partition().is_some());
        state.queue = of_partitions;
        drop(state);
        for served in partitions {
            served.has_no_thread(&error);
        }
        drop::<VecDeque<Job>>(others);
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
                    self.call_another(state);
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
            // All but the last one come while the same thread is on its way.
            let nth = workers.shared.state.lock().queue.len() + 1;
            match nth {
                JOBS => workers.run(Job::Other(Box::new(job))).unwrap(),
                _ => workers.shared.state.lock().queue.push_back(Job::Other(Box::new(job))),
            }
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

    /// A job that tells when it is dropped, whether it has run or not.
    fn telling(told: &std::sync::mpsc::Sender<()>, wait: Option<std::sync::mpsc::Receiver<()>>) -> Job {
        struct Dropped(std::sync::mpsc::Sender<()>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let dropped = Dropped(told.clone());
        Job::Other(Box::new(move || {
            let _ = wait.map(|wait| wait.recv());
            drop(dropped);
        }))
    }

    fn refusal() -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    #[test]
    fn a_job_does_not_wait_for_one_that_no_thread_comes_for() {
        let workers = Workers::default();
        let (told, ended) = channel();
        let (second, waits) = channel();
        // One thread starts, for both.
        workers.shared.state.lock().queue.push_back(telling(&told, Some(waits)));
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let refuses = move || if is_first.swap(false, Ordering::Relaxed) { Ok(()) } else { refusal() };
        *workers.shared.refuses_to_start.lock() = Some(Box::new(refuses));
        let behind = Job::Other(Box::new(move || {
            let _ = second.send(());
        }));
        workers.run(behind).unwrap();
        ended.recv_timeout(patience()).expect("the first job ends");
        workers.close();
    }

    /// Threads queue jobs while now and then no thread can start. Each job runs, or is refused: none is left queued.
    #[test]
    fn no_job_counts_on_a_thread_that_cannot_start() {
        const THREADS: usize = 4;
        const JOBS: usize = 200;
        let workers = Workers::default();
        let starts = AtomicU64::new(0);
        let refuses = move || {
            let refuses = starts.fetch_add(1, Ordering::Relaxed) & 1 == 0;
            // Others come meanwhile.
            std::thread::sleep(Duration::from_micros(200));
            if refuses { refusal() } else { Ok(()) }
        };
        *workers.shared.refuses_to_start.lock() = Some(Box::new(refuses));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let workers = workers.clone();
                std::thread::spawn(move || {
                    for _ in 0..JOBS {
                        let (told, is_over) = channel();
                        match workers.run(telling(&told, None)) {
                            Ok(()) => is_over.recv_timeout(patience()).expect("a job that was taken ends"),
                            Err(_) => is_over.try_recv().expect("a job that was refused is dropped"),
                        }
                        // So threads have to start again.
                        workers.close();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// The longest wait for something that has to come. `RIALTO_PATIENCE_S` gives another number of seconds, for runs
    /// with fault injection.
    fn patience() -> Duration {
        let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
        Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(120))
    }
}
