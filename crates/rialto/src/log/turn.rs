//! Which thread writes the log next, and how the threads that wait for it sleep and wake: a synchroniser with no I/O in
//! it.
//!
//! Its state:
//!
//! - the *writer word*: whether it is held, and how many groups are *in flight*: drained from the queue, and not yet
//!   completed;
//! - the *durable position*: every place up to it is durable;
//! - the *group word*: the place up to which the newest group reaches that is being written;
//! - the *elected* committer, which will write the group that forms;
//! - the log server's *request* word.
//!
//! The holder of a [`Turn`] writes a group. What a committer does meanwhile is the group commit design's choice.
//!
//! A turn has two halves. From [`Writer::try_take`] to [`Turn::begin`] it holds the writer word, alone, and drains the
//! queue. From then on its group is in flight, and other groups may be too, up to a bound (one by default). Groups
//! *complete* in the order in which they were drained ([`Turn::publish`], I4), whichever is on the disk first.
//!
//! Where a committer sleeps, and until when:
//!
//! | a committer | sleeps | until |
//! |---|---|---|
//! | that a group serves | in the group's bucket | the group has completed: one wake call wakes this bucket, and no other |
//! | that is elected, or whose own wait is over, while another group is written | on the committer word | the writer word is free |
//! | that stalls, in the designs where each thread wakes itself | on the stall word | its time is over |
//! | that has asked for the commit lock | in the lock's queue (`commit_lock.rs`) | the lock is granted |
//! | whose group is on the disk before an earlier group | on the completion word | the earlier group has completed |
//!
//! In commit-stall the elected committer stalls, too, while another group is written. A committer that only waits for a
//! log write of a few microseconds spins before it sleeps.
//!
//! No wake-up is lost, because of these orders (all operations on these words are sequentially consistent):
//!
//! - A committer's packet is queued before the committer waits. A writer drains after it took the writer word.
//! - A committer counts itself as a sleeper, then reads the durable position, the group word, the writer word and the
//!   elected committer, then sleeps. A writer publishes the durable position, then frees the writer word, then looks
//!   for sleepers. Therefore either the committer sees what was published, or the writer sees the sleeper.
//! - A committer sleeps without a time limit only if another thread is bound to write its packet: its group is in
//!   flight, or the writer word cannot be taken, or another committer is elected, or (in the designs whose groups the
//!   log server writes) the log server has been asked for. The elected committer never sleeps in a bucket without a
//!   time limit; it sleeps on the committer word only while the writer word cannot be taken. The thread that gives the
//!   word back wakes it, and then looks again. If committers sleep whose packets are in no group, and none of them is
//!   elected, it asks the log server for a group, or wakes them to elect a committer.
//! - An election is over when a group covers the elected committer's place: nothing has to be taken back. A committer
//!   whose own wait is over takes over the election from one that stalls for longer. The committers that relied on that
//!   one are written no later than before, and its own sleep ends by itself.

use std::time::Duration;

use self::bucket::Bucket;
use self::log_server::request;
pub use self::waits::Waits;
use self::waits::{Author, Tally};
use super::commit_lock::CommitLock;
use super::sync::{AtomicU32, AtomicU64, Futex, Machine, Ordering};
use crate::fault_injection;
use crate::log::group_commit::{Choice, CommitLockMode, GroupCommit, GroupCommitter, View, Written};

// By their paths, because the model checker includes this file a second time.
#[path = "turn/bucket.rs"]
mod bucket;
#[path = "turn/election.rs"]
mod election;
#[path = "turn/log_server.rs"]
mod log_server;
#[path = "turn/waits.rs"]
mod waits;

/// The writer word: the lowest bit says whether it is held, the bits above it count the groups in flight.
const HELD: u32 = 1;
const IN_FLIGHT: u32 = 2;

/// The most groups in flight at the same time. Together with the group that forms, there is one for each bucket.
pub(crate) const IN_FLIGHT_MAX: u32 = BUCKETS as u32 - 1;
const BUCKETS: usize = 4;

/// The longest log write for which a committer spins: about what it costs to put a thread to sleep and to wake it. A
/// disk takes longer, memory does not.
const SPIN_WRITE_NS_MAX: u64 = 5_000;
/// How long one turn of the spin takes, about.
const SPIN_NS: u64 = 20;
/// How often a committer spins in one wait: for the write under way, and for its own group's.
const SPINS_MAX: u32 = 2;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The place is durable.
    Durable,
    /// The log stopped before it was.
    Stopped,
}

/// A thread that waits for a place to be durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committer {
    /// The place.
    pub(crate) lsn: u64,
    /// Whether it is the stand-in: the log server, for packets that no other thread waits for.
    pub(crate) stand_in: bool,
    /// When the transaction began, on the machine's clock.
    pub(crate) started: Option<Duration>,
    /// How long it stalls, if the transaction says so.
    pub(crate) stall: Option<Duration>,
    /// How long the transaction may take in all, if it says so.
    pub(crate) willing_to_wait: Option<Duration>,
    /// For the stand-in: level 1's interval, which bounds its stalls (I3).
    pub(crate) level_1: Option<Duration>,
}

impl Committer {
    /// The log server, for packets without a waiter up to this place.
    pub(crate) fn stand_in(lsn: u64) -> Committer {
        Committer { lsn, stand_in: true, started: None, stall: None, willing_to_wait: None, level_1: None }
    }
}

/// The writer word, and the words that the threads which wait for it sleep on.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Writer<M: Machine> {
    durable: AtomicU64,
    /// The place up to which the group in flight (or the last one) reaches, above the low 16 bits of the group's
    /// number.
    group_word: AtomicU64,
    /// The place of the committer that will write the group that forms; void once the group word has reached it.
    elected: AtomicU64,
    stopped: AtomicU32,
    word: AtomicU32,
    /// How many groups may be in flight.
    in_flight_max: u32,
    /// By the low bits of a group's number: up to which place it reaches, and its sleepers.
    targets: [AtomicU64; BUCKETS],
    buckets: [Bucket<M::Futex>; BUCKETS],
    /// The number of the last group that has completed, and where the writers of later groups wait to complete theirs.
    completed: AtomicU64,
    completing: Bucket<M::Futex>,
    committer: Bucket<M::Futex>,
    stalling: Bucket<M::Futex>,
    request: M::Futex,
    server_asleep: AtomicU32,
    /// Not 0: since the writer word was last taken, a packet has become durable at level 1, and is to be in a group
    /// within the interval. When the first one did, on the machine's clock, in nanoseconds.
    owes_level_1: AtomicU64,
    lock: CommitLock<M>,
    design: Box<dyn GroupCommit>,
    /// The design's.
    linger: Duration,
    /// A log write's time, smoothed, in nanoseconds.
    write_ns: AtomicU64,
    /// When the last group completed, on the machine's clock, in nanoseconds.
    freed_ns: AtomicU64,
    /// When the elected committer begins at the latest, as it announced before it slept: the machine's clock in
    /// nanoseconds, above the low 16 bits of its place. By these bits an earlier committer's announcement is not taken
    /// for the elected one's.
    begins: AtomicU64,
    /// What an administrator adds to every stall, in nanoseconds.
    raised_ns: AtomicU64,
    tally: Tally,
    machine: M,
}

impl<M: Machine> Writer<M> {
    /// A free writer word; every place up to `durable` is durable.
    pub(crate) fn new(
        machine: M,
        design: Box<dyn GroupCommit>,
        durable: u64,
        in_flight_max: u32,
    ) -> Writer<M> {
        assert!((1..=IN_FLIGHT_MAX).contains(&in_flight_max), "1 to {IN_FLIGHT_MAX} writes in flight");
        Writer {
            durable: AtomicU64::new(durable),
            group_word: AtomicU64::new(durable << 16),
            elected: AtomicU64::new(0),
            stopped: AtomicU32::new(0),
            word: AtomicU32::new(0),
            in_flight_max,
            targets: std::array::from_fn(|_| AtomicU64::new(durable)),
            buckets: std::array::from_fn(|_| Bucket::new(&machine)),
            completed: AtomicU64::new(0),
            completing: Bucket::new(&machine),
            committer: Bucket::new(&machine),
            stalling: Bucket::new(&machine),
            request: machine.futex(request::NONE),
            server_asleep: AtomicU32::new(0),
            owes_level_1: AtomicU64::new(0),
            lock: CommitLock::new(),
            linger: design.linger(),
            design,
            write_ns: AtomicU64::new(0),
            freed_ns: AtomicU64::new(0),
            begins: AtomicU64::new(0),
            raised_ns: AtomicU64::new(0),
            tally: Tally::default(),
            machine,
        }
    }

    /// The machine that the committers run on.
    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    /// The durable position, as a place.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Every place up to this one is durable, without a group that wrote it.
    pub(crate) fn raise_durable(&self, lsn: u64) {
        self.durable.fetch_max(lsn, Ordering::SeqCst);
    }

    /// Whether the log has stopped.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) != 0
    }

    /// What the waiting has cost so far.
    pub(crate) fn waits(&self) -> Waits {
        let waits = self.tally.read();
        Waits { wakes: waits.wakes + self.lock.wakes(), woken: waits.woken + self.lock.woken(), ..waits }
    }

    /// Adds `by` to every stall from now on, in place of what was added before.
    pub(crate) fn raise_stalls(&self, by: Duration) {
        self.raised_ns.store(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What [`Writer::raise_stalls`] added last.
    pub(crate) fn raised_stalls(&self) -> Duration {
        Duration::from_nanos(self.raised_ns.load(Ordering::Relaxed))
    }

    /// Whether the writer word cannot be taken: it is held, or the most groups are in flight.
    fn is_busy(&self) -> bool {
        self.is_taken(self.word.load(Ordering::SeqCst))
    }

    fn is_taken(&self, word: u32) -> bool {
        word & HELD != 0 || word / IN_FLIGHT >= self.in_flight_max
    }

    /// Takes the writer word if it can be taken.
    pub(crate) fn try_take(&self) -> Option<Turn<'_, M>> {
        // The plain load keeps the cache line shared while another thread holds the word.
        let mut word = self.word.load(Ordering::SeqCst);
        while !self.is_taken(word) {
            match self.word.compare_exchange(word, word | HELD, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    // Before the group is gathered: a packet that becomes durable at level 1 from here on may miss the
                    // group.
                    if self.owes_level_1.load(Ordering::SeqCst) != 0 {
                        self.owes_level_1.store(0, Ordering::SeqCst);
                    }
                    return Some(Turn { writer: self, group: None, author: Author::Committer });
                }
                Err(now) => word = now,
            }
        }
        None
    }

    /// Takes the writer word; sleeps while it cannot be taken.
    pub(crate) fn take(&self, place: impl Fn() -> u64) -> Turn<'_, M> {
        loop {
            if let Some(turn) = self.try_take() {
                return turn;
            }
            // A place past the group word is in the bucket of the next group. The sleep is short, because the word may
            // be freed without a wake-up of that bucket.
            let group_word = self.group_word.load(Ordering::SeqCst);
            self.sleep(place().saturating_add(1), group_word, Some(Duration::from_millis(1)));
        }
    }

    /// Waits until the committer's place is durable. `write` writes one group and frees the word.
    pub(crate) fn wait<'a>(
        &'a self,
        committer: &Committer,
        place: impl Fn() -> u64,
        mut write: impl FnMut(Turn<'a, M>),
    ) -> Waited {
        let lsn = committer.lsn;
        let author = if committer.stand_in { Author::StandIn } else { Author::Committer };
        let mut looks = 0;
        let mut arrived = None;
        loop {
            if self.durable() >= lsn {
                return Waited::Durable;
            }
            if self.stopped() {
                return Waited::Stopped;
            }
            if committer.stand_in && self.is_closed() {
                // A close waits for the log server, so this does not sleep.
                let turn = self.take(&place);
                write(turn.by(author));
                continue;
            }
            // The choice holds until the next group begins: groups may be bounded, and the committer that this one
            // relies on may be in a group that leaves this one out.
            let group_word = self.group_word.load(Ordering::SeqCst);
            let view = self.view(committer, looks, &mut arrived, &place);
            looks += 1;
            let choice = match self.design.choose(&view) {
                // Once the log is closed, there is no log server to leave anything to.
                Choice::LeaveToServer if self.request.load() == request::CLOSED => Choice::Write,
                // The others rely on the elected committer, so it may not sleep without a time limit.
                Choice::Sleep(None) if view.elected => Choice::Write,
                choice => choice,
            };
            if view.elected && self.design.reads_clock() {
                let stall = match choice {
                    Choice::Sleep(Some(time)) | Choice::Stall(time) => time,
                    _ => Duration::ZERO,
                };
                self.say_begin(lsn, view.now + stall);
            }
            let only_waits_for_write =
                view.writer_busy && matches!(choice, Choice::Write | Choice::Sleep(None));
            if only_waits_for_write && looks <= SPINS_MAX && self.spin_for_write(lsn) {
                continue;
            }
            let mut left = None;
            if let (Choice::Sleep(_) | Choice::Stall(_), Some(interval)) = (choice, committer.level_1) {
                left = self.left_of(interval);
                if left.is_none() {
                    write(self.take(&place).by(Author::Overdue));
                    continue;
                }
            }
            match choice {
                Choice::Write => match self.try_take() {
                    Some(turn) => write(turn.by(author)),
                    None if view.elected || self.goes_first(committer, &view) => self.sleep_as_committer(lsn),
                    None => self.sleep(lsn, group_word, None),
                },
                Choice::LeaveToServer => {
                    self.ask_now();
                    self.sleep(lsn, group_word, None);
                }
                Choice::Sleep(limit) => self.sleep_within(lsn, group_word, limit, left),
                Choice::Stall(time) => self.stall(time, left),
                Choice::Lock(mode) => {
                    let held = self.lock.request(&self.machine, mode);
                    if mode == CommitLockMode::Exclusive && self.durable() < lsn && !self.stopped() {
                        let turn = self.take(&place);
                        write(turn.by(author));
                    }
                    drop(held);
                }
            }
        }
    }

    /// Where a log write takes less time than a sleep and its wake-up, spins for about two writes, until the place is
    /// durable or the writer word can be taken. Returns whether one of them is so.
    fn spin_for_write(&self, lsn: u64) -> bool {
        let write_ns = self.write_ns.load(Ordering::Relaxed);
        if write_ns > SPIN_WRITE_NS_MAX {
            return false;
        }
        (0..2 * write_ns / SPIN_NS).any(|_| {
            std::hint::spin_loop();
            self.durable() >= lsn || !self.is_busy()
        })
    }

    fn view(
        &self,
        committer: &Committer,
        looks: u32,
        arrived: &mut Option<Duration>,
        place: impl Fn() -> u64,
    ) -> View {
        let elected = !self.has_server() && self.elect(committer.lsn);
        // Read once for both uses: a stall that is raised just now must not meet a time that was not read.
        let raised = self.raised_stalls();
        let timed = self.design.reads_clock() || !raised.is_zero();
        let now = if timed { self.machine.now() } else { Duration::ZERO };
        let arrived = *arrived.get_or_insert(now);
        let target = self.group_word.load(Ordering::SeqCst) >> 16;
        let place = place();
        let write_time = Duration::from_nanos(self.write_ns.load(Ordering::Relaxed));
        View {
            looks,
            stand_in: committer.stand_in,
            covered: committer.lsn <= target,
            elected,
            writer_busy: self.is_busy(),
            waiting: self.waiting(),
            forming: place.saturating_sub(target),
            outstanding: place.saturating_sub(self.durable()),
            now,
            arrived,
            started: committer.started.unwrap_or(arrived),
            stall: committer.stall,
            willing_to_wait: committer.willing_to_wait,
            raised,
            write_time,
            freed: Duration::from_nanos(self.freed_ns.load(Ordering::Relaxed)),
            committer_begins: if elected { None } else { self.committer_begins(now) },
        }
    }

    /// Whether the design is given the time: it asks for it, or an administrator has raised the stalls.
    fn is_timed(&self) -> bool {
        self.design.reads_clock() || self.raised_ns.load(Ordering::Relaxed) != 0
    }

    /// Whether the log server writes what committers leave to it. In the other designs it is one of the committers.
    fn has_server(&self) -> bool {
        self.design.committer() == GroupCommitter::LogServer
    }

    fn waiting(&self) -> u32 {
        self.buckets.iter().map(|bucket| bucket.sleepers.load(Ordering::SeqCst)).sum()
    }

    /// Sleeps until the group that covers `lsn` has completed, or until there may be something else to do. Returns at
    /// once if a group has begun since the group word was read.
    fn sleep(&self, lsn: u64, group_word: u64, limit: Option<Duration>) {
        self.sleep_within(lsn, group_word, limit, None);
    }

    /// As [`Writer::sleep`]. With `left`, for the stand-in: it sleeps no longer than that, and not past the close of
    /// the log.
    fn sleep_within(&self, lsn: u64, group_word: u64, limit: Option<Duration>, left: Option<Duration>) {
        let began = limit.map(|_| self.machine.now());
        let longest = limit.into_iter().chain(left).min();
        self.buckets[self.bucket_of(lsn, group_word)].sleep(longest, || {
            // As long as no group has begun since, the bucket is the right one, or the place is durable.
            let right_bucket = self.group_word.load(Ordering::SeqCst) == group_word;
            let is_bound_to_be_written = limit.is_some()
                || lsn <= group_word >> 16
                || self.is_busy()
                || self.elected().is_some_and(|elected| elected != lsn)
                || self.has_server() && matches!(self.request.load(), request::NOW | request::BLOCKED);
            let must_end = self.stopped() || left.is_some() && self.is_closed();
            right_bucket && is_bound_to_be_written && self.durable() < lsn && !must_end
        });
        if let (Some(began), Some(limit)) = (began, limit) {
            self.count_stall(began, limit);
        }
    }

    /// The bucket of the group that covers a place, or will cover it, as of a group word.
    fn bucket_of(&self, lsn: u64, group_word: u64) -> usize {
        let newest = group_word & 0xffff;
        if lsn > group_word >> 16 {
            return bucket(newest + 1);
        }
        // The oldest group in flight that reaches the place. A completed one cannot reach it: the place would be
        // durable.
        let completed = self.completed.load(Ordering::SeqCst);
        let in_flight = newest.wrapping_sub(completed) & 0xffff;
        let oldest = (1..=in_flight.min(u64::from(IN_FLIGHT_MAX)))
            .map(|ahead| completed + ahead)
            .find(|number| self.targets[bucket(*number)].load(Ordering::SeqCst) >= lsn);
        bucket(oldest.unwrap_or(newest))
    }

    /// Sleeps until the writer word is free. For the elected committer, and for one that goes first.
    fn sleep_as_committer(&self, lsn: u64) {
        self.committer.sleep(None, || self.is_busy() && self.durable() < lsn && !self.stopped());
    }

    /// Sleeps for `time`: the committer wakes itself. The stand-in sleeps as in [`Writer::sleep_within`].
    fn stall(&self, time: Duration, left: Option<Duration>) {
        let began = self.machine.now();
        let longest = left.map_or(time, |left| left.min(time));
        self.stalling.sleep(Some(longest), || !self.stopped() && (left.is_none() || !self.is_closed()));
        self.count_stall(began, time);
    }

    fn count_stall(&self, began: Duration, limit: Duration) {
        self.tally.stall(self.machine.now().saturating_sub(began), limit);
    }

    /// Stops the log: wakes every sleeper, and every later wait ends at once.
    pub(crate) fn stop(&self) {
        self.stopped.store(1, Ordering::SeqCst);
        for bucket in self.buckets.iter().chain([&self.committer, &self.stalling, &self.completing]) {
            bucket.epoch.fetch_add(1);
            bucket.epoch.wake_all();
        }
    }

    /// Wakes the sleepers of a bucket, and counts the wake call.
    fn wake(&self, bucket: &Bucket<M::Futex>) {
        if let Some(woken) = bucket.wake() {
            self.tally.wake(woken);
        }
    }

    /// The writer word was given back: wakes the elected committer, if it waits for the word.
    fn committer_may_go_on(&self) {
        self.wake(&self.committer);
    }

    /// For a thread that gives back the writer word: sees to the packets that no group covers yet.
    fn look_again(&self, place: impl Fn() -> u64) {
        let group_word = self.group_word.load(Ordering::SeqCst);
        let next = &self.buckets[bucket((group_word & 0xffff) + 1)];
        if self.request.load() == request::BLOCKED {
            if self.request.exchange(request::BLOCKED, request::NOW) {
                self.wake_server();
            }
        } else if next.sleepers.load(Ordering::SeqCst) > 0
            && place() > group_word >> 16
            && !self.is_busy()
            && self.elected().is_none()
            && !fault_injection::is_on("next-committer-not-woken")
        {
            if self.has_server() && self.request.load() != request::CLOSED {
                self.ask_now();
            } else {
                // The sleepers elect one of themselves.
                self.wake(next);
            }
        }
    }
}

fn bucket(number: u64) -> usize {
    number as usize % BUCKETS
}

/// The writer word, held, and then a group in flight. [`Turn::release`] gives it back; a turn that is dropped (by a
/// panic) stops the log.
#[derive(Debug)]
pub(crate) struct Turn<'a, M: Machine> {
    writer: &'a Writer<M>,
    /// The number of the group, once it is in flight.
    group: Option<u64>,
    author: Author,
}

impl<M: Machine> Turn<'_, M> {
    fn by(mut self, author: Author) -> Self {
        self.author = author;
        self
    }

    /// The group is drained: it reaches up to `target`, and is in flight from here on. If more groups may be in flight,
    /// the writer word is free for the next one.
    pub(crate) fn begin(&mut self, target: u64, place: impl Fn() -> u64) {
        let writer = self.writer;
        let number = writer.group_word.load(Ordering::SeqCst).wrapping_add(1) & 0xffff;
        writer.targets[bucket(number)].store(target, Ordering::SeqCst);
        writer.group_word.store(target << 16 | number, Ordering::SeqCst);
        self.group = Some(number);
        // One step: no longer held, and one more in flight.
        writer.word.fetch_add(IN_FLIGHT - HELD, Ordering::SeqCst);
        if writer.in_flight_max > 1 {
            writer.committer_may_go_on();
            writer.look_again(place);
        }
    }

    /// The group is on disk, and its write took `took`. Waits until the groups before it have completed, then completes
    /// it and publishes that every place up to `durable` is durable. If a group before it failed, does none of that and
    /// returns `false`.
    pub(crate) fn publish(
        &self,
        durable: u64,
        took: Duration,
        place: impl Fn() -> u64,
        complete: impl FnOnce(),
    ) -> bool {
        let writer = self.writer;
        let number = self.group.expect("the group is in flight");
        let before = |completed: u64| {
            (completed + 1) & 0xffff == number || fault_injection::is_on("groups-complete-in-any-order")
        };
        while !before(writer.completed.load(Ordering::SeqCst)) {
            writer
                .completing
                .sleep(None, || !before(writer.completed.load(Ordering::SeqCst)) && !writer.stopped());
            if writer.stopped() {
                return false;
            }
        }
        if writer.stopped() {
            return false;
        }
        complete();
        let before = writer.durable();
        if !took.is_zero() {
            // Before any committer is answered, which may then read the counts.
            writer.tally.group(self.author);
        }
        // In a log that follows another one it may be further already, without a group.
        writer.durable.fetch_max(durable, Ordering::SeqCst);
        if !took.is_zero() {
            let (took_ns, smooth) = (took.as_nanos() as u64, writer.write_ns.load(Ordering::Relaxed));
            let smooth = if smooth == 0 { took_ns } else { (7 * smooth + took_ns) / 8 };
            writer.write_ns.store(smooth, Ordering::Relaxed);
        }
        if writer.is_timed() {
            let now = writer.machine.now();
            writer.freed_ns.store(now.as_nanos() as u64, Ordering::Relaxed);
            writer.design.wrote(&Written {
                packets: durable.saturating_sub(before),
                behind: place().saturating_sub(durable),
                took,
                now,
            });
        }
        writer.completed.store(number, Ordering::SeqCst);
        writer.wake(&writer.completing);
        true
    }

    /// Gives back the writer word, or the group's share of the groups in flight. Wakes the committers that the group
    /// served and the next committer, and looks again so that no packet is left behind. `place` returns the last place
    /// taken.
    pub(crate) fn release(self, place: impl Fn() -> u64) {
        let (writer, group) = (self.writer, self.group);
        std::mem::forget(self);
        writer.word.fetch_sub(if group.is_some() { IN_FLIGHT } else { HELD }, Ordering::SeqCst);
        writer.committer_may_go_on();
        if let Some(number) = group {
            writer.wake(&writer.buckets[bucket(number)]);
        }
        writer.look_again(place);
    }
}

impl<M: Machine> Drop for Turn<'_, M> {
    fn drop(&mut self) {
        self.writer.stop();
        let held = if self.group.is_some() { IN_FLIGHT } else { HELD };
        self.writer.word.fetch_sub(held, Ordering::SeqCst);
    }
}
