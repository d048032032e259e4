//! [`Workers`]: threads for work that may block.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;

/// So many threads stay for later work.
const IDLE_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The threads that wait for work; none once this is closed.
type Idle = Option<Vec<Sender<Job>>>;

/// Threads for work that may block. Each job has one for itself; a thread that has ended its job stays for the next one.
#[derive(Clone)]
pub struct Workers {
    idle: Arc<Mutex<Idle>>,
    jobs: Arc<AtomicU64>,
}

impl Default for Workers {
    fn default() -> Workers {
        Workers { idle: Arc::new(Mutex::new(Some(Vec::new()))), jobs: Arc::default() }
    }
}

impl Workers {
    /// Runs a job on a thread.
    ///
    /// # Errors
    /// If no thread can start. The job is dropped.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // Counted before it runs: what it does may be counted by then.
        self.jobs.fetch_add(1, Ordering::Relaxed);
        let started = self.start(job);
        if started.is_err() {
            self.jobs.fetch_sub(1, Ordering::Relaxed);
        }
        started
    }

    fn start(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut job: Job = Box::new(job);
        let idle = self.idle.lock().as_mut().and_then(Vec::pop);
        if let Some(worker) = idle {
            match worker.send(job) {
                Ok(()) => return Ok(()),
                Err(unsent) => job = unsent.0,
            }
        }
        let (sender, jobs) = channel::<Job>();
        let idle = self.idle.clone();
        let serve = move || {
            job();
            loop {
                match &mut *idle.lock() {
                    Some(idle) if idle.len() < IDLE_MAX => idle.push(sender.clone()),
                    _ => return,
                }
                match jobs.recv() {
                    Ok(job) => job(),
                    Err(_) => return,
                }
            }
        };
        std::thread::Builder::new()
            .name("rialto-branch".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(serve)
            .map(drop)
    }

    /// How many jobs there were.
    pub fn jobs(&self) -> u64 {
        self.jobs.load(Ordering::Relaxed)
    }

    /// Has the idle threads end.
    pub fn close(&self) {
        for worker in self.idle.lock().take().into_iter().flatten() {
            // It finds that there is nothing more to wait for.
            let _ = worker.send(Box::new(|| {}));
        }
    }
}

/// Statements' expressions are trees of up to 500 levels.
const STACK_BYTES: usize = 8 << 20;
