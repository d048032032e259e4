//! Whose turn it is to write the log, and how everybody else sleeps and wakes: a synchroniser with no I/O in it.
//!
//! It knows three things: the *writer word* (free or held), the *durable position* (every place up to it is durable)
//! and the log server's *request* word. The write itself is whatever the holder of a [`Turn`] does.
//!
//! No wake-up is lost, because of these orders (all operations on these words are sequentially consistent):
//!
//! - A committer's packet is queued before it waits. A writer drains after it took the writer word.
//! - A committer counts itself as a sleeper, then looks at the durable position, the flight word and the writer word,
//!   then sleeps. A writer publishes the durable position, then frees the writer word, then looks for sleepers. So
//!   either the committer sees what was published, or the writer sees the sleeper.
//! - A committer sleeps only if the writer word is held or the log server has been asked for. Whoever frees the word
//!   looks again: if somebody sleeps whose place that group did not cover, it asks the log server.
//!
//! Sleepers lie in two buckets: those whom the group in flight covers, and those whom the next one will. So one wake
//! call serves a group and wakes nobody else.

use std::time::{Duration, Instant};

use super::sync::{AtomicU32, AtomicU64, Futex, Ordering};
use crate::log::group_commit::{Choice, View};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The request word's values, in the order in which one replaces another.
mod request {
    /// Nobody needs the log server.
    pub(super) const NONE: u32 = 0;
    /// Something should be durable within the flush interval.
    pub(super) const SOON: u32 = 1;
    /// Something waits.
    pub(super) const NOW: u32 = 2;
    /// The log server itself waits for the writer word; whoever frees it sets this back to `NOW`.
    pub(super) const BLOCKED: u32 = 3;
    /// The log is closing.
    pub(super) const CLOSED: u32 = 4;
}

#[derive(Debug)]
#[repr(align(128))]
struct Bucket {
    epoch: Futex,
    sleepers: AtomicU32,
}

impl Bucket {
    fn new() -> Bucket {
        Bucket { epoch: Futex::new(0), sleepers: AtomicU32::new(0) }
    }

    fn wake(&self) -> bool {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.epoch.fetch_add(1);
        self.epoch.wake_all();
        true
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The place is durable.
    Durable,
    /// The log stopped before it was.
    Stopped,
}

/// The writer word and all who wait for it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Writer {
    durable: AtomicU64,
    /// The place up to which the group in flight (or the last one) reaches, over the low 16 bits of its number.
    flight: AtomicU64,
    stopped: AtomicU32,
    word: AtomicU32,
    buckets: [Bucket; 2],
    request: Futex,
    server_asleep: AtomicU32,
    wakes: AtomicU64,
}

impl Writer {
    /// A free writer word; every place up to `durable` is durable.
    pub(crate) fn new(durable: u64) -> Writer {
        Writer {
            durable: AtomicU64::new(durable),
            flight: AtomicU64::new(durable << 16),
            stopped: AtomicU32::new(0),
            word: AtomicU32::new(FREE),
            buckets: [Bucket::new(), Bucket::new()],
            request: Futex::new(request::NONE),
            server_asleep: AtomicU32::new(0),
            wakes: AtomicU64::new(0),
        }
    }

    /// The durable position, as a place.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Whether the log has stopped.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) != 0
    }

    /// Wake calls made so far.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    /// Takes the writer word if it is free.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        // The plain load keeps the line shared while somebody else holds the word.
        (self.word.load(Ordering::SeqCst) == FREE
            && self.word.compare_exchange(FREE, HELD, Ordering::SeqCst, Ordering::SeqCst).is_ok())
        .then(|| Turn { writer: self })
    }

    /// Takes the writer word, sleeping while others hold it.
    pub(crate) fn take(&self, place: impl Fn() -> u64) -> Turn<'_> {
        loop {
            if let Some(turn) = self.try_take() {
                return turn;
            }
            // Past the flight, so that the sleeper is in the bucket of the next group, and short, because the word may
            // be freed without one.
            self.sleep(place().saturating_add(1), Some(Duration::from_millis(1)));
        }
    }

    /// Waits until `lsn` is durable. `choose` is the policy; `write` writes one group and frees the word.
    pub(crate) fn wait<'a>(
        &'a self,
        lsn: u64,
        place: impl Fn() -> u64,
        choose: impl Fn(&View) -> Choice,
        mut write: impl FnMut(Turn<'a>),
    ) -> Waited {
        loop {
            let durable = self.durable();
            if durable >= lsn {
                return Waited::Durable;
            }
            if self.stopped() {
                return Waited::Stopped;
            }
            let view = View {
                writer_busy: self.word.load(Ordering::SeqCst) == HELD,
                waiting: self.waiting(),
                pending: place().saturating_sub(durable),
            };
            // Once closed there is no log server to leave anything to.
            let choice = match self.request.load() {
                request::CLOSED if view.writer_busy => Choice::Wait,
                request::CLOSED => Choice::Write,
                _ => choose(&view),
            };
            match choice {
                Choice::Write => match self.try_take() {
                    Some(turn) => write(turn),
                    None => self.sleep(lsn, None),
                },
                Choice::LeaveToServer => {
                    self.ask_now();
                    self.sleep(lsn, None);
                }
                Choice::Wait => self.sleep(lsn, None),
            }
        }
    }

    fn waiting(&self) -> u32 {
        self.buckets[0].sleepers.load(Ordering::SeqCst) + self.buckets[1].sleepers.load(Ordering::SeqCst)
    }

    /// Sleeps until the group that covers `lsn` is done, or until there may be something else to do.
    fn sleep(&self, lsn: u64, timeout: Option<Duration>) {
        let flight = self.flight.load(Ordering::SeqCst);
        let number = flight & 0xffff;
        let bucket = if lsn <= flight >> 16 { number } else { number + 1 };
        let bucket = &self.buckets[(bucket & 1) as usize];
        bucket.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = bucket.epoch.load();
        let right_bucket = self.flight.load(Ordering::SeqCst) == flight;
        let somebody_writes = self.word.load(Ordering::SeqCst) == HELD
            || matches!(self.request.load(), request::NOW | request::BLOCKED);
        if right_bucket && somebody_writes && self.durable() < lsn && !self.stopped() {
            bucket.epoch.wait(epoch, timeout);
        }
        bucket.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Asks the log server to write a group at once.
    pub(crate) fn ask_now(&self) {
        self.ask(request::NOW);
    }

    /// Asks the log server to write a group within the flush interval.
    pub(crate) fn ask_soon(&self) {
        self.ask(request::SOON);
    }

    fn ask(&self, what: u32) {
        // A request that is there already has not been taken yet, so the drain that serves it comes after this load.
        if self.request.load() < what && self.request.fetch_max(what) < what {
            self.wake_server();
        }
    }

    fn wake_server(&self) {
        if self.server_asleep.load(Ordering::SeqCst) != 0 {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.request.wake_all();
        }
    }

    /// Ends [`Writer::next_for_server`].
    pub(crate) fn close(&self) {
        self.request.fetch_max(request::CLOSED);
        self.request.wake_all();
    }

    /// Stops the log: nobody sleeps any longer, every later wait ends at once.
    pub(crate) fn stop(&self) {
        self.stopped.store(1, Ordering::SeqCst);
        for bucket in &self.buckets {
            bucket.epoch.fetch_add(1);
            bucket.epoch.wake_all();
        }
    }

    /// The log server's loop: sleeps until it is asked for, and returns with the writer word; `None` when closed.
    ///
    /// With nothing asked it sleeps without a time limit.
    pub(crate) fn next_for_server(&self, interval: Duration) -> Option<Turn<'_>> {
        let mut due: Option<Instant> = None;
        loop {
            match self.request.load() {
                request::CLOSED => return None,
                request::NOW => {
                    if let Some(turn) = self.try_take() {
                        // Taken back before the drain: who asks from here on is served by the next group.
                        self.request.exchange(request::NOW, request::NONE);
                        return Some(turn);
                    }
                    self.request.exchange(request::NOW, request::BLOCKED);
                }
                request::BLOCKED => {
                    if self.word.load(Ordering::SeqCst) == FREE {
                        self.request.exchange(request::BLOCKED, request::NOW);
                    } else {
                        self.server_sleep(request::BLOCKED, None);
                    }
                }
                request::SOON => {
                    let now = Instant::now();
                    let due = *due.get_or_insert(now + interval);
                    if now >= due {
                        self.request.exchange(request::SOON, request::NOW);
                    } else {
                        self.server_sleep(request::SOON, Some(due - now));
                    }
                }
                _ => {
                    due = None;
                    self.server_sleep(request::NONE, None);
                }
            }
        }
    }

    fn server_sleep(&self, expected: u32, timeout: Option<Duration>) {
        self.server_asleep.store(1, Ordering::SeqCst);
        self.request.wait(expected, timeout);
        self.server_asleep.store(0, Ordering::SeqCst);
    }
}

/// The writer word, held. It has to be given back by [`Turn::release`]; a dropped one (a panic) stops the log.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    writer: &'a Writer,
}

impl Turn<'_> {
    /// The group is drained: it reaches up to `target`.
    pub(crate) fn begin(&self, target: u64) {
        let number = self.writer.flight.load(Ordering::SeqCst).wrapping_add(1) & 0xffff;
        self.writer.flight.store(target << 16 | number, Ordering::SeqCst);
    }

    /// Every place up to `durable` is durable.
    pub(crate) fn publish(&self, durable: u64) {
        debug_assert!(durable >= self.writer.durable());
        self.writer.durable.store(durable, Ordering::SeqCst);
    }

    /// Frees the writer word, wakes those whom the group served, and looks again so that no packet is left behind.
    /// `place` tells the last place taken.
    pub(crate) fn release(self, place: impl Fn() -> u64) {
        let writer = self.writer;
        std::mem::forget(self);
        let number = writer.flight.load(Ordering::SeqCst) & 0xffff;
        let served = &writer.buckets[(number & 1) as usize];
        let next = &writer.buckets[((number + 1) & 1) as usize];
        writer.word.store(FREE, Ordering::SeqCst);
        if served.wake() {
            writer.wakes.fetch_add(1, Ordering::Relaxed);
        }
        if writer.request.load() == request::BLOCKED {
            if writer.request.exchange(request::BLOCKED, request::NOW) {
                writer.wake_server();
            }
        } else if next.sleepers.load(Ordering::SeqCst) > 0
            && place() > writer.durable()
            && writer.word.load(Ordering::SeqCst) == FREE
        {
            if writer.request.load() == request::CLOSED {
                next.wake();
            } else {
                writer.ask_now();
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.writer.stop();
        self.writer.word.store(FREE, Ordering::SeqCst);
    }
}
