//! What may be answered, and what waits for that: [`Lead::answer`], [`Lead::ask`] and [`AnswerQueue`].
//!
//! Invariant: what waits is looked at again after each step of the replica, and is told as soon as it may be answered (C1: it is
//! looked at then), or will not be any more. A step wakes only those threads whose wait is over.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Instant;

use rialto::{Lsn, fault_injection};

use super::database::Kernel;
use super::driver::Input;
use super::hosted::{Lead, NotServing, Outcome, Shared, State};
use super::inputs::Inputs;
use crate::protocol::replication::RoleKind;
use crate::protocol::transactions::Level;

/// What waits until it may be answered, by level and place.
#[derive(Default)]
pub(super) struct AnswerQueue {
    /// What waits began to wait while the replica led for this time,
    leads: u64,
    waiting: BTreeMap<Key, Then>,
    /// and this while it led before.
    over: Vec<Then>,
    next: u64,
}

/// By level and place, and then in the order in which they came.
type Key = (Level, Lsn, u64);

/// What happens when a wait is over.
enum Then {
    /// A thread is woken. It looks again.
    Wake(Arc<Waker>),
    /// This is told, on the thread that drives the replica ([`Inputs`]): whether it may be answered. It waits for no
    /// transaction's lock and for no disk. It may wait for a step of a partition of this node, and write to links what
    /// they take at once.
    Tell(Box<dyn FnOnce(bool) + Send>),
}

/// Whether all that was to be told has been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Told {
    /// It has.
    All,
    /// At least one was not told: it has failed in a panic, which has told of itself. The others were.
    Panicked,
}

/// Ends these waits. A panic of one keeps none of the others waiting, nor does it end the replica's driver.
fn end_all(waits: Vec<Then>, is_answered: bool) -> Told {
    let mut told = Told::All;
    for then in waits {
        if catch_unwind(AssertUnwindSafe(|| then.end(is_answered))).is_err() {
            told = Told::Panicked;
        }
    }
    told
}

impl Then {
    fn end(self, is_answered: bool) {
        match self {
            Then::Wake(waker) => waker.wake(),
            Then::Tell(tell) => tell(is_answered),
        }
    }
}

impl AnswerQueue {
    fn push(&mut self, level: Level, place: Lsn, then: Then) -> Key {
        self.next += 1;
        let key = (level, place, self.next);
        self.waiting.insert(key, then);
        key
    }

    /// Takes out what is covered at a level up to a place.
    fn take_up_to(&mut self, level: Level, place: Lsn, into: &mut Vec<Then>) {
        while let Some((key, _)) = self.waiting.range((level, Lsn::ZERO, 0)..=(level, place, u64::MAX)).next()
        {
            let key = *key;
            into.extend(self.waiting.remove(&key));
        }
    }
}

/// What wakes a thread that waits for an answer.
struct Waker {
    thread: Thread,
    is_called: AtomicBool,
}

impl Waker {
    /// That of this thread, which is made once.
    fn of_this_thread() -> Arc<Waker> {
        thread_local! {
            static OWN: OnceCell<Arc<Waker>> = const { OnceCell::new() };
        }
        let new = || Arc::new(Waker { thread: std::thread::current(), is_called: AtomicBool::new(false) });
        OWN.with(|own| own.get_or_init(new).clone())
    }

    fn wake(&self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Sleeps until it is called; at most until this time. It may have been called for an earlier wait.
    fn sleep(&self, until: Option<Instant>) {
        while !self.is_called.swap(false, Ordering::Acquire) {
            let Some(until) = until else {
                std::thread::park();
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }
}

/// How soon an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Haste {
    /// At once: the log is shipped now.
    Hurries,
    /// Nothing waits for it: the log is shipped with what comes within a millisecond.
    Lingers,
}

/// Whether something may be answered at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answerable {
    /// It may be.
    Now,
    /// Not yet. Whether the disk counts, too: it may lack it, or the state machine may not know that it has it.
    Waits { needs_disk: bool },
    /// It must not be any more.
    NotServing,
}

impl Shared {
    /// The log has grown, or more of it is on the disk: ships what there is, on this thread if no other one drives
    /// ([`Inputs::drive`]). The caller holds no lock. False once the replica has ended.
    pub fn log_moved(&self, inputs: &Inputs) -> bool {
        if !self.is_log_moved.swap(true, Ordering::AcqRel) {
            return inputs.drive(Input::LogMoved).is_ok();
        }
        inputs.drive_on();
        true
    }

    /// Tells what may be answered by now, and what will not be any more. Called after each step, with no lock held.
    pub fn answer_waiting(&self) -> Told {
        let mut answered = Vec::new();
        let ended = {
            let state = &mut *self.state.lock();
            let waiting = &mut state.waiting;
            let mut ended = std::mem::take(&mut waiting.over);
            if !waiting.waiting.is_empty() {
                let machine = state.machine.as_ref().filter(|machine| machine.role() == RoleKind::Leading);
                let leads = matches!(state.kernel, Kernel::Leading(_)) && waiting.leads == state.leads;
                match machine.filter(|_| leads) {
                    None => ended.extend(std::mem::take(&mut waiting.waiting).into_values()),
                    Some(machine) => {
                        let log = state.kernel.log().expect("a database that leads has a log");
                        // Nothing while a promise has run out, which may come again.
                        if let Some(answers) = machine.answers(self.clock.now(), log) {
                            waiting.take_up_to(Level::Memory, Lsn(u64::MAX), &mut answered);
                            waiting.take_up_to(Level::Standby, answers.level_2.lsn, &mut answered);
                            waiting.take_up_to(Level::Disk, answers.level_3.lsn, &mut answered);
                        }
                    }
                }
            }
            ended
        };
        let mut told = end_all(answered, true);
        if !fault_injection::is_on("waits-outlive-their-lead") && end_all(ended, false) == Told::Panicked {
            told = Told::Panicked;
        }
        told
    }

    /// Ends the replica: nothing is answered any more, and what waits is told so. Gives what the replica had of its database.
    pub fn end(&self) -> Kernel {
        let kernel = {
            let mut state = self.state.lock();
            state.machine = None;
            state.leads += 1;
            std::mem::replace(&mut state.kernel, Kernel::Closed)
        };
        self.changed.notify_all();
        self.reads.close();
        // The replica ends anyway.
        let _ = self.answer_waiting();
        kernel
    }
}

impl Lead {
    /// Waits until what ran may be answered: a commit with this place, or reads of nothing later, at this level. Asked for
    /// after it ran (C1). At level 3 it has the log written to the disk.
    ///
    /// # Errors
    /// [`NotServing`]: it must not be answered.
    pub fn answer(&self, place: Lsn, level: Level) -> Result<(), NotServing> {
        self.answer_until(place, level, None).map(drop)
    }

    /// As [`Lead::answer`], but waits until this time. Gives whether it may be answered.
    ///
    /// # Errors
    /// [`NotServing`]: it must not be answered.
    pub(in crate::node) fn answer_until(
        &self,
        place: Lsn,
        level: Level,
        until: Option<Instant>,
    ) -> Result<bool, NotServing> {
        let mut has_synced = false;
        loop {
            let mut state = self.shared.state.lock();
            match self.answerable(&state, place, level) {
                Answerable::Now => return Ok(true),
                Answerable::NotServing => {
                    return Err(NotServing { primary: state.primary(), outcome: Outcome::Unknown });
                }
                Answerable::Waits { needs_disk: true } if !has_synced => {
                    has_synced = true;
                    drop(state);
                    // A log that has stopped is noticed by the driver, and nothing is answered.
                    let _ = self.db.sync();
                    let _ = self.shared.log_moved(&self.inputs);
                    continue;
                }
                Answerable::Waits { .. } => {}
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            let waker = Waker::of_this_thread();
            let key = self.begin_to_wait(&mut state, place, level, Then::Wake(waker.clone()));
            drop(state);
            let _ = self.shared.log_moved(&self.inputs);
            waker.sleep(until);
            self.shared.state.lock().waiting.waiting.remove(&key);
        }
    }

    /// What has its place goes to the other replicas at once. The caller holds no lock.
    pub(in crate::node) fn ship(&self) {
        // After the end nothing is to be told.
        let _ = self.shared.log_moved(&self.inputs);
    }

    /// Whether what ran may be answered, as [`Lead::answer`] does, without waiting for it: `None` if that is not known yet.
    /// Then it is told once it is, perhaps by this thread before this returns: the caller holds no lock that this takes.
    pub(in crate::node) fn ask(
        &self,
        (place, level): (Lsn, Level),
        haste: Haste,
        tell: impl FnOnce(bool) + Send + 'static,
    ) -> Option<bool> {
        let mut state = self.shared.state.lock();
        match self.answerable(&state, place, level) {
            Answerable::Now => Some(true),
            Answerable::NotServing => Some(false),
            Answerable::Waits { needs_disk } => {
                self.begin_to_wait(&mut state, place, level, Then::Tell(Box::new(tell)));
                drop(state);
                // After the end nothing is to be told.
                if haste == Haste::Hurries {
                    let _ = self.shared.log_moved(&self.inputs);
                }
                if needs_disk {
                    let _ = self.inputs.send(Input::Sync);
                }
                None
            }
        }
    }

    fn begin_to_wait(&self, state: &mut State, place: Lsn, level: Level, then: Then) -> Key {
        let waiting = &mut state.waiting;
        if waiting.leads != self.leads {
            waiting.leads = self.leads;
            waiting.over.extend(std::mem::take(&mut waiting.waiting).into_values());
        }
        state.waiting.push(level, place, then)
    }

    /// Whether something may be answered at this moment.
    pub(super) fn may_answer(&self, state: &State, place: Lsn, level: Level) -> bool {
        self.answerable(state, place, level) == Answerable::Now
    }

    fn answerable(&self, state: &State, place: Lsn, level: Level) -> Answerable {
        let machine = state.machine.as_ref().filter(|_| self.goes_on_in(state));
        let Some(machine) = machine.filter(|machine| machine.role() == RoleKind::Leading) else {
            return Answerable::NotServing;
        };
        let now = self.shared.clock.now();
        // At level 1 everything that ran may be answered: how far the log is does not matter.
        if level == Level::Memory {
            return match machine.answers_level_1(now) {
                true => Answerable::Now,
                false => Answerable::Waits { needs_disk: false },
            };
        }
        let log = state.kernel.log().expect("a database that leads has a log");
        let Some(answers) = machine.answers(now, log) else {
            return Answerable::Waits { needs_disk: false };
        };
        let is_covered = match level {
            Level::Memory | Level::Standby => answers.level_2.lsn >= place,
            Level::Disk => answers.level_3.lsn >= place,
        };
        match is_covered {
            true => Answerable::Now,
            // With too few replicas in sync its disk counts, at level 2, too.
            false => {
                Answerable::Waits { needs_disk: level == Level::Disk || machine.needs_disk_for_level_2() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_wait_that_ends_in_a_panic_keeps_no_other_waiting() {
        let (told, is_told) = channel();
        let tells =
            |told: std::sync::mpsc::Sender<bool>| Then::Tell(Box::new(move |is| told.send(is).unwrap()));
        let panics = Then::Tell(Box::new(|_| panic!("a test's panic")));
        assert_eq!(end_all(vec![tells(told.clone()), panics, tells(told.clone())], true), Told::Panicked);
        assert_eq!(end_all(vec![tells(told)], false), Told::All);
        assert_eq!(is_told.iter().collect::<Vec<_>>(), [true, true, false]);
    }
}
