//! [`Inputs`]: what happens to a replica, on its way to the driver, and which thread drives.
//!
//! The driver has a thread of its own. Each wake of a thread takes a commit longer, though, and what happens most takes no
//! time: blocks that go into memory, an acknowledgement, a log that has grown. A thread that brings such an input
//! ([`Inputs::drive`]) carries it out itself, if no other thread drives at that moment.
//!
//! Invariants:
//! 1. Inputs are taken in the order in which they came, by one thread at a time: the one that holds the driver.
//! 2. No input is left. A thread that has driven looks again after it has let go of the driver, and a thread that finds the
//!    driver held leaves its input to the holder.
//! 3. What waits, for a disk or for another thread, is done by the driver's thread alone: a link is to be read, and a client
//!    answered, whatever the disk does. Another thread takes a step as far as its first effect that may wait, and leaves the rest.
//!    There is one exception: where blocks name a load file that has come before, it is verified at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rialto::fault_injection;

use super::driver::{Driver, Input};

/// So many inputs a thread takes that has brought one. The driver's thread takes the others.
const TAKEN_MAX: usize = 32;

/// The replica has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

/// What takes the inputs.
pub trait Drives {
    /// Whether the thread that has brought an input may begin to take it.
    fn takes_at_once(&self, input: &Input) -> bool;

    /// Takes such an input, as far as that waits for nothing; false if the driver's thread is to go on.
    fn take_at_once(&mut self, input: Input) -> bool;

    /// Inputs were taken: tells what waits for that.
    fn tell(&mut self);

    /// Whether something is to be tried again soon.
    fn waits(&self) -> bool;
}

/// The inputs of a replica's driver.
pub struct Inputs<D: Drives = Driver>(Arc<Inner<D>>);

impl<D: Drives> Clone for Inputs<D> {
    fn clone(&self) -> Self {
        Inputs(self.0.clone())
    }
}

struct Inner<D> {
    queue: Mutex<Queue>,
    /// Told when the driver's thread has something to do.
    came: Condvar,
    /// None before it starts, and once it has ended.
    driver: Mutex<Option<D>>,
    /// A step has failed in a panic.
    has_panicked: AtomicBool,
}

struct Queue {
    /// None once the replica has ended.
    inputs: Option<VecDeque<Input>>,
    /// Whether the driver's thread is to look, whatever there is.
    is_wanted: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.inputs.as_ref().is_none_or(VecDeque::is_empty)
    }
}

/// How a turn of a thread that has brought an input has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There was nothing more.
    Done,
    /// The driver's thread has to go on.
    Left,
}

impl<D: Drives> Inputs<D> {
    pub fn new() -> Self {
        Inputs(Arc::new(Inner {
            queue: Mutex::new(Queue { inputs: Some(VecDeque::new()), is_wanted: false }),
            came: Condvar::new(),
            driver: Mutex::new(None),
            has_panicked: AtomicBool::new(false),
        }))
    }

    /// The driver takes inputs from here on.
    pub fn begin(&self, driver: D) {
        *self.0.driver.lock() = Some(driver);
    }

    /// Brings an input. Another thread takes it.
    ///
    /// # Errors
    /// [`Ended`]: it is lost.
    pub fn send(&self, input: Input) -> Result<(), Ended> {
        self.push(input)?;
        // The holder looks again once it has let go: the fences order its look and this one.
        fence(Ordering::SeqCst);
        if !self.0.driver.is_locked() {
            self.0.came.notify_one();
        }
        Ok(())
    }

    /// Brings an input, and takes it, and what else there is, as far as that takes no time. The caller holds no lock that a
    /// step of a replica or of a transaction may need.
    ///
    /// # Errors
    /// [`Ended`]: it is lost.
    pub fn drive(&self, input: Input) -> Result<(), Ended> {
        self.push(input)?;
        self.drive_on();
        Ok(())
    }

    /// As [`Inputs::drive`], for inputs that were brought before.
    pub fn drive_on(&self) {
        loop {
            let turn = {
                fence(Ordering::SeqCst);
                let Some(mut held) = self.0.driver.try_lock() else { return };
                let Some(driver) = held.as_mut() else { return };
                self.turn(driver)
            };
            if turn == Turn::Left {
                self.0.queue.lock().is_wanted = true;
                self.0.came.notify_one();
                return;
            }
            fence(Ordering::SeqCst);
            if fault_injection::is_on("inputs-left-behind") || self.is_empty() {
                return;
            }
        }
    }

    fn turn(&self, driver: &mut D) -> Turn {
        if self.0.has_panicked.load(Ordering::Acquire) {
            return Turn::Left;
        }
        let turn = || {
            for _ in 0..TAKEN_MAX {
                let Some(input) = self.next_if(|input| driver.takes_at_once(input)) else { break };
                if !driver.take_at_once(input) {
                    return Turn::Left;
                }
            }
            driver.tell();
            if !self.is_empty() || driver.waits() { Turn::Left } else { Turn::Done }
        };
        catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|_| {
            self.0.has_panicked.store(true, Ordering::Release);
            Turn::Left
        })
    }

    /// On the driver's thread: waits for an input, for at most this time, and drives. None once a step has failed in a panic.
    pub fn drive_after<T>(&self, patience: Duration, turn: impl FnOnce(&mut D) -> T) -> Option<T> {
        // It has let go of the driver before.
        fence(Ordering::SeqCst);
        {
            let mut queue = self.0.queue.lock();
            if queue.is_empty() && !queue.is_wanted && !patience.is_zero() {
                self.0.came.wait_for(&mut queue, patience);
            }
            queue.is_wanted = false;
        }
        let mut held = self.0.driver.lock();
        if self.0.has_panicked.load(Ordering::Acquire) {
            return None;
        }
        let driver = held.as_mut().expect("it ends on this thread");
        let outcome = catch_unwind(AssertUnwindSafe(|| turn(driver)));
        outcome.inspect_err(|_| self.0.has_panicked.store(true, Ordering::Release)).ok()
    }

    /// The next input.
    pub fn next(&self) -> Option<Input> {
        self.0.queue.lock().inputs.as_mut()?.pop_front()
    }

    /// The next input, if this holds of it. The caller holds the driver, so no other thread takes one.
    fn next_if(&self, is: impl FnOnce(&Input) -> bool) -> Option<Input> {
        let input = self.next()?;
        if is(&input) {
            return Some(input);
        }
        // Looked at without the queue's lock: others bring inputs with locks held that the look needs.
        if let Some(inputs) = &mut self.0.queue.lock().inputs {
            inputs.push_front(input);
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.0.queue.lock().is_empty()
    }

    /// The driver, which ends: no thread drives any more.
    pub fn take_driver(&self) -> Option<D> {
        self.0.driver.lock().take()
    }

    /// Nothing is brought any more. Gives what was, and was not taken.
    pub fn end(&self) -> VecDeque<Input> {
        self.0.queue.lock().inputs.take().unwrap_or_default()
    }

    fn push(&self, input: Input) -> Result<(), Ended> {
        self.0.queue.lock().inputs.as_mut().ok_or(Ended)?.push_back(input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Counts what it takes, and lets others run before it is let go.
    #[derive(Clone, Default)]
    struct Counts(Arc<AtomicU64>);

    impl Drives for Counts {
        fn takes_at_once(&self, input: &Input) -> bool {
            matches!(input, Input::LogMoved)
        }

        fn take_at_once(&mut self, _: Input) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }

        fn tell(&mut self) {}

        fn waits(&self) -> bool {
            std::thread::yield_now();
            false
        }
    }

    /// No thread but those that bring inputs takes any here: what one of them leaves behind stays.
    #[test]
    fn inputs_that_come_together_are_all_taken() {
        const ROUNDS: u64 = 10_000;
        let (inputs, counts) = (Inputs::<Counts>::new(), Counts::default());
        inputs.begin(counts.clone());
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            let bring = || {
                for round in 1..=ROUNDS {
                    both.wait();
                    inputs.drive(Input::LogMoved).unwrap();
                    both.wait();
                    assert_eq!(counts.0.load(Ordering::Relaxed), 2 * round, "inputs are left");
                }
            };
            scope.spawn(bring);
            bring();
        });
    }

    /// What may wait is left to the driver's thread, which is woken for it; and so is what comes behind.
    #[test]
    fn what_may_wait_is_left_to_the_thread_of_the_driver() {
        let (inputs, counts) = (Inputs::<Counts>::new(), Counts::default());
        inputs.begin(counts.clone());
        inputs.drive(Input::LogMoved).unwrap();
        inputs.drive(Input::Sync).unwrap();
        inputs.drive(Input::LogMoved).unwrap();
        assert_eq!(counts.0.load(Ordering::Relaxed), 1);
        let (sleeps, is_woken) = (inputs.clone(), Arc::new(AtomicBool::new(false)));
        let woken = is_woken.clone();
        let thread = std::thread::spawn(move || {
            let forever = Duration::from_secs(3600);
            let take = |_: &mut Counts| std::iter::from_fn(|| sleeps.next()).count();
            let first = sleeps.drive_after(forever, take);
            let second = sleeps.drive_after(forever, take);
            woken.store(true, Ordering::Release);
            (first, second)
        });
        // The first ones are there already; the next one comes while the thread sleeps, or is about to.
        while !is_woken.load(Ordering::Acquire) {
            inputs.send(Input::Sync).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let (first, second) = thread.join().unwrap();
        assert!(first >= Some(2) && second >= Some(1), "{first:?}, {second:?}");
        assert!(inputs.take_driver().is_some());
        inputs.end();
        assert_eq!(inputs.send(Input::Sync), Err(Ended));
    }

    /// A step that fails in a panic ends the driver, whichever thread has taken it: no thread takes another step.
    #[test]
    fn a_panic_on_another_thread_ends_the_driver() {
        struct Panics;
        impl Drives for Panics {
            fn takes_at_once(&self, _: &Input) -> bool {
                true
            }
            fn take_at_once(&mut self, _: Input) -> bool {
                panic!("a test's panic")
            }
            fn tell(&mut self) {}
            fn waits(&self) -> bool {
                false
            }
        }
        let inputs = Inputs::new();
        inputs.begin(Panics);
        inputs.drive(Input::LogMoved).unwrap();
        inputs.drive(Input::LogMoved).unwrap();
        assert_eq!(inputs.drive_after(Duration::from_secs(3600), |_| ()), None);
        assert!(matches!(inputs.end().pop_front(), Some(Input::LogMoved)), "the second one was not taken");
    }
}
