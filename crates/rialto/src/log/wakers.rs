//! [`Listener`]: it is woken when a place is durable; [`Listeners`]: those that wait; [`WakerThreads`]: where they are
//! woken.
//!
//! A waker that a user registers is foreign code, and so are its clone and its drop: it may panic, sleep, commit, wait
//! for the log, take a lock that the committing thread holds, or drop the last handle of the database. Kept here:
//!
//! - **W1** A foreign waker is cloned by the thread that registers it, before any latch is taken. It is run and dropped
//!   by the waker thread, which holds nothing. A thread that advances the log's position, between the place and the
//!   apply of a commit or with the writer's turn, only hands the waker over.
//! - **W2** A panic of a waker is caught: the next one is run all the same. A waker that sleeps delays the other
//!   foreign wakers, and nothing else: no commit, no response and no close waits for the waker thread, nor for anything
//!   behind which a foreign waker may run.
//! - **W3** Each listener is woken once, when its place is durable or the log has stopped.
//! - **W4** A ticket registers one listener, however often it is polled and by whichever tasks: the newest waker takes
//!   the older one's place.
//!
//! Listeners of the engine's own (the responses of transaction servers, the bells of threads that sleep for a call) are
//! short and wait for nothing. The log server runs them itself as soon as it has given its turn back. Every other
//! thread hands them over to a thread that runs only the engine's own listeners: behind a foreign one they would wait
//! for it (W2), and a committer between its place and its apply must not run them.
//!
//! A log without threads runs all listeners in its callers' threads. A driven log does so when a caller that holds
//! nothing calls [`Log::wake_listeners`](super::Log::wake_listeners), any other log after each group. There a waker
//! that sleeps delays its thread (W2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use super::Durability;
use crate::Lsn;
use crate::account::processor::ProcessorTime;
use crate::fault_injection;
use crate::foreign::run_caught;

/// A listener of the engine that is an object of its own, not a [`Waker`]. Its `wake` is short, and waits for nothing.
pub(crate) trait Listens: Send {
    fn wake(self: Box<Self>);
}

/// A listener: what is run once a place is durable.
pub(crate) enum Listener {
    /// A waker of the engine's own, which is short and waits for nothing.
    Own(Waker),
    /// An object of the engine's own.
    Boxed(Box<dyn Listens>),
    /// A user's waker.
    Foreign(Waker),
}

impl Listener {
    pub(crate) fn own(waker: &Waker) -> Listener {
        Listener::Own(waker.clone())
    }

    /// For a thread that holds no latch (W1).
    pub(crate) fn foreign(waker: &Waker) -> Listener {
        Listener::Foreign(waker.clone())
    }

    fn run(self) {
        run_caught(|| match self {
            Listener::Own(waker) | Listener::Foreign(waker) => waker.wake(),
            Listener::Boxed(listens) => listens.wake(),
        });
    }
}

struct WaitingListener {
    number: u64,
    lsn: Lsn,
    listener: Listener,
}

/// A listener that was registered, by its number among those of its level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegisteredListener(u64);

/// Listeners that wait, by level of durability.
#[derive(Default)]
pub(super) struct Listeners {
    levels: [DurabilityLevel; 2],
}

#[derive(Default)]
struct DurabilityLevel {
    /// How many wait; threads that advance the position read it without the latch.
    count: AtomicUsize,
    waiting: Mutex<InOrder>,
}

#[derive(Default)]
struct InOrder {
    /// How many have been added.
    added: u64,
    /// By their numbers.
    listeners: Vec<WaitingListener>,
}

/// Listeners that were taken off, to be woken by the thread that took them.
pub(super) type WokenListeners = SmallVec<[Listener; 4]>;

impl Listeners {
    fn level(&self, durability: Durability) -> &DurabilityLevel {
        &self.levels[durability as usize]
    }

    /// Whether any wait at this level.
    #[inline]
    pub(super) fn wait_for(&self, durability: Durability) -> bool {
        self.level(durability).count.load(Ordering::SeqCst) != 0
    }

    /// Adds one.
    pub(super) fn add(&self, lsn: Lsn, durability: Durability, listener: Listener) -> RegisteredListener {
        let level = self.level(durability);
        let mut waiting = level.waiting.lock();
        waiting.added += 1;
        let number = waiting.added;
        level.count.fetch_add(1, Ordering::SeqCst);
        waiting.listeners.push(WaitingListener { number, lsn, listener });
        RegisteredListener(number)
    }

    /// Puts this listener in the place of one that was added, if that one still waits.
    pub(super) fn replace(
        &self,
        durability: Durability,
        earlier: RegisteredListener,
        mut listener: Listener,
    ) -> bool {
        let mut waiting = self.level(durability).waiting.lock();
        let found = waiting.listeners.binary_search_by_key(&earlier.0, |waiting| waiting.number);
        if let Ok(at) = found {
            std::mem::swap(&mut waiting.listeners[at].listener, &mut listener);
        }
        // The one that is not kept is dropped with nothing held (W1).
        drop(waiting);
        drop(listener);
        found.is_ok()
    }

    /// Takes one off that was added, if it still waits. It is not woken.
    pub(super) fn remove(&self, durability: Durability, registered: RegisteredListener) {
        let level = self.level(durability);
        let mut waiting = level.waiting.lock();
        let found = waiting.listeners.binary_search_by_key(&registered.0, |waiting| waiting.number);
        let removed = found.ok().map(|at| waiting.listeners.remove(at));
        if removed.is_some() {
            level.count.fetch_sub(1, Ordering::SeqCst);
        }
        // It is dropped with nothing held (W1).
        drop(waiting);
    }

    /// Takes off the listeners whose places pass `has_passed`. Foreign ones go to their thread; the caller runs the
    /// engine's own ones, or hands them over.
    pub(super) fn take(
        &self,
        durability: Durability,
        has_passed: impl Fn(Lsn) -> bool,
        threads: &WakerThreads,
    ) -> WokenListeners {
        let (mut own, level) = (WokenListeners::new(), self.level(durability));
        let mut waiting = level.waiting.lock();
        let passed = waiting.listeners.extract_if(.., |waiting| has_passed(waiting.lsn));
        let foreign = passed.filter_map(|WaitingListener { listener, .. }| {
            level.count.fetch_sub(1, Ordering::SeqCst);
            match listener {
                Listener::Foreign(_) if !fault_injection::is_on("wakers-on-the-committer") => Some(listener),
                own_listener => {
                    own.push(own_listener);
                    None
                }
            }
        });
        threads.foreign.hand_over(foreign);
        own
    }
}

/// Runs listeners of the engine's own that [`Listeners::take`] returned. For a thread that holds nothing.
pub(super) fn run_all(own: WokenListeners) {
    own.into_iter().for_each(Listener::run);
}

/// The threads that wake what others hand over, one for each origin (W2). In a log without threads, the thread that
/// hands listeners over wakes them.
#[derive(Default)]
pub(super) struct WakerThreads {
    own: Arc<WakerThread>,
    foreign: Arc<WakerThread>,
}

impl WakerThreads {
    /// The name of the thread that runs the engine's own listeners, and of the one that runs foreign ones.
    const NAMES: [&str; 2] = ["rialto-replies", "rialto-wakers"];

    /// Starts the threads; on failure returns the name of the one that could not be started.
    pub(super) fn start(&self) -> Result<(), (&'static str, std::io::Error)> {
        let threads = WakerThreads::NAMES.into_iter().zip([&self.own, &self.foreign]);
        threads.into_iter().try_for_each(|(name, thread)| thread.start(name).map_err(|error| (name, error)))
    }

    /// Has this listener woken now: a foreign one by its thread, one of the engine's own by the caller.
    pub(super) fn wake(&self, listener: Listener) {
        match listener {
            Listener::Foreign(_) => self.foreign.hand_over(std::iter::once(listener)),
            own => own.run(),
        }
    }

    /// Has the engine's own listeners that [`Listeners::take`] returned woken by their thread.
    pub(super) fn hand_over_own(&self, own: WokenListeners) {
        self.own.hand_over(own.into_iter());
    }

    /// Without threads: wakes what was handed over. For a thread that holds nothing.
    pub(super) fn wake_here(&self) {
        self.own.wake_here();
        self.foreign.wake_here();
    }

    /// Ends the threads once they have woken what was handed over.
    pub(super) fn close(&self) {
        self.own.close();
        self.foreign.close();
    }

    /// Processor time of the threads.
    pub(super) fn time(&self) -> std::time::Duration {
        self.own.time.read() + self.foreign.time.read()
    }
}

/// Runs the listeners of one origin, one after the other.
#[derive(Default)]
struct WakerThread {
    handed: Mutex<Handed>,
    /// Whether the thread exists. Changed under the latch, except at its start.
    runs: AtomicBool,
    changed: Condvar,
    time: ProcessorTime,
}

#[derive(Default)]
struct Handed {
    listeners: Vec<Listener>,
    /// Whether the thread sleeps, or is about to.
    is_asleep: bool,
    closed: bool,
}

impl WakerThread {
    /// Starts the thread. Nothing waits for its end, so that a waker that sleeps does not keep a database from being
    /// closed.
    fn start(self: &Arc<WakerThread>, name: &str) -> std::io::Result<()> {
        let thread = self.clone();
        self.runs.store(true, Ordering::SeqCst);
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || thread.serve());
        if started.is_err() {
            self.runs.store(false, Ordering::SeqCst);
        }
        started.map(drop)
    }

    fn serve(&self) {
        let mut batch = Vec::new();
        let mut handed = self.handed.lock();
        loop {
            if !handed.listeners.is_empty() {
                std::mem::swap(&mut batch, &mut handed.listeners);
                drop(handed);
                batch.drain(..).for_each(Listener::run);
                handed = self.handed.lock();
            } else if handed.closed {
                self.runs.store(false, Ordering::SeqCst);
                return;
            } else {
                self.time.lap();
                handed.is_asleep = true;
                self.changed.wait(&mut handed);
                handed.is_asleep = false;
            }
        }
    }

    fn hand_over(&self, listeners: impl Iterator<Item = Listener>) {
        let mut listeners = listeners.peekable();
        if listeners.peek().is_none() {
            return;
        }
        let mut handed = self.handed.lock();
        handed.listeners.extend(listeners);
        if self.runs.load(Ordering::SeqCst) {
            let is_asleep = handed.is_asleep;
            drop(handed);
            if is_asleep {
                self.changed.notify_one();
            }
        }
    }

    /// Without a thread: wakes what was handed over.
    fn wake_here(&self) {
        if self.runs.load(Ordering::SeqCst) {
            return;
        }
        let mut handed = self.handed.lock();
        let listeners = std::mem::take(&mut handed.listeners);
        drop(handed);
        listeners.into_iter().for_each(Listener::run);
    }

    /// Ends the thread once it has woken what was handed over.
    fn close(&self) {
        self.handed.lock().closed = true;
        self.changed.notify_one();
    }
}
