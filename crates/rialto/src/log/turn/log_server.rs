//! The log server: the requests that are made to it, and its loop.

use std::time::Duration;

use super::waits::Author;
use super::{Choice, Committer, Futex, GroupCommitter, Machine, Ordering, Turn, Writer};
use crate::fault_injection;

/// The request word's values, in the order in which one replaces another.
pub(super) mod request {
    /// No request.
    pub(in crate::log) const NONE: u32 = 0;
    /// Something should be durable within the flush interval.
    pub(in crate::log) const SOON: u32 = 1;
    /// Something without a waiter should be durable after the linger.
    pub(in crate::log) const LINGER: u32 = 2;
    /// A thread waits for something to be durable.
    pub(in crate::log) const NOW: u32 = 3;
    /// The log server waits for the writer word; the thread that frees the word sets this back to `NOW`.
    pub(in crate::log) const BLOCKED: u32 = 4;
    /// The log is closing.
    pub(in crate::log) const CLOSED: u32 = 5;
}

/// Why the log server is awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeCause {
    /// A group was requested now, or the linger of an earlier request is over.
    Now,
    /// A group was requested within the flush interval, which is over.
    Overdue,
}

/// For a log server that stalls: until when what is durable only at level 1 has to be in a group (I3).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level1Bound {
    interval: Duration,
    /// What is requested is due then, or later; `None` before the first look.
    due: Option<Duration>,
}

impl<M: Machine> Writer<M> {
    /// Asks the log server to write a group at once.
    pub(crate) fn ask_now(&self) {
        self.ask(request::NOW);
    }

    /// Asks the log server to write a group for packets without a waiter: as soon as the design says.
    pub(crate) fn ask_unhurried(&self) {
        self.ask(if self.linger.is_zero() { request::NOW } else { request::LINGER });
    }

    /// Asks the log server to write a group within the flush interval.
    pub(crate) fn ask_soon(&self) {
        // Kept beside the request word, where a request for a group now would hide this one from a stand-in that
        // stalls.
        if self.owes_level_1.load(Ordering::SeqCst) == 0 {
            self.owes_level_1.store(1, Ordering::SeqCst);
        }
        self.ask(request::SOON);
    }

    fn ask(&self, what: u32) {
        // A request that is found here has not been taken yet, so the drain that serves it comes after this load.
        if self.request.load() < what && self.request.fetch_max(what) < what {
            self.wake_server();
        }
    }

    pub(super) fn wake_server(&self) {
        if self.server_asleep.load(Ordering::SeqCst) != 0 {
            self.tally.wake(self.request.wake_all());
        }
    }

    /// Ends [`Writer::next_request`], and the log server's stalls.
    pub(crate) fn close(&self) {
        self.request.fetch_max(request::CLOSED);
        self.request.wake_all();
        for bucket in self.buckets.iter().chain([&self.stalling]) {
            bucket.epoch.fetch_add(1);
            bucket.epoch.wake_all();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.request.load() == request::CLOSED
    }

    /// The log server's loop: sleeps until there is a request, and then writes a group, or makes sure that a committer
    /// does. Ends when the log is closed. Without a request it sleeps without a time limit.
    ///
    /// In designs that elect one of the waiting committers, the log server is one of them: the stand-in for packets
    /// without a waiter. `committer` returns the stand-in for all places taken so far.
    pub(crate) fn serve<'a>(
        &'a self,
        interval: Duration,
        committer: impl Fn() -> Committer,
        place: impl Fn() -> u64,
        mut write: impl FnMut(Turn<'a, M>),
    ) {
        let (mut arrived, mut bound) = (None, None);
        while let Some((asked, due)) = self.next_request(interval) {
            match self.design.committer() {
                GroupCommitter::Elected if asked == WakeCause::Overdue => {
                    // I3 bounds level 1 without regard to stalls.
                    self.request.exchange(request::NOW, request::NONE);
                    let turn = self.take(&place);
                    write(turn.by(Author::Overdue));
                }
                GroupCommitter::Elected => {
                    // Taken back before the place is read: a request that is made from here on is served next time.
                    self.request.exchange(request::NOW, request::NONE);
                    let level_1 = Some(Level1Bound { interval, due });
                    let _ = self.wait(&Committer { level_1, ..committer() }, &place, &mut write);
                }
                GroupCommitter::LogServer => {
                    let stand_in = committer();
                    let group_word = self.group_word.load(Ordering::SeqCst);
                    let view = self.view(&stand_in, 0, &mut arrived, &place);
                    let mut asked = asked;
                    if let (Choice::Sleep(Some(time)), WakeCause::Now) = (self.design.choose(&view), asked) {
                        let bound = bound.get_or_insert(Level1Bound { interval, due });
                        if let Some(left) = self.left_of(bound) {
                            // The committers that made the request rely on it, so it stays.
                            self.sleep_within(stand_in.lsn, group_word, Some(time), Some(left));
                            if self.durable() >= stand_in.lsn || self.stopped() {
                                arrived = None;
                                self.request.exchange(request::NOW, request::NONE);
                                if place() > self.durable() && !self.stopped() {
                                    // A committer that asked meanwhile relies on the request that was just taken back.
                                    self.ask_now();
                                }
                            }
                            continue;
                        }
                        asked = WakeCause::Overdue;
                    }
                    (arrived, bound) = (None, None);
                    if let Some(turn) = self.try_take() {
                        // Taken back before the drain: a request that is made from here on is served by the next group.
                        let is_late = fault_injection::is_on("request-taken-back-late");
                        if !is_late {
                            self.request.exchange(request::NOW, request::NONE);
                        }
                        let is_overdue = asked == WakeCause::Overdue;
                        write(turn.by(if is_overdue { Author::Overdue } else { Author::LogServer }));
                        if is_late {
                            self.request.exchange(request::NOW, request::NONE);
                        }
                    } else if self.request.exchange(request::NOW, request::BLOCKED) {
                        while self.request.load() == request::BLOCKED {
                            if !self.is_busy() {
                                self.request.exchange(request::BLOCKED, request::NOW);
                            } else {
                                self.server_sleep(request::BLOCKED, None);
                            }
                        }
                    }
                }
            }
        }
    }

    /// How long the log server may sleep until it has to look again; `None` if it has to write now, because level 1's
    /// interval is over.
    pub(super) fn left_of(&self, bound: &mut Level1Bound) -> Option<Duration> {
        let now = self.machine.now();
        let due = bound.due.get_or_insert(now + bound.interval);
        if now < *due {
            return Some(*due - now);
        }
        if self.owes_level_1.load(Ordering::SeqCst) != 0 {
            return None;
        }
        // What is requested from here on is due no earlier.
        *due = now + bound.interval;
        Some(bound.interval)
    }

    /// Sleeps until a group has to be written now. Returns why, and until when what was requested before has to be
    /// written, if anything was; `None` when closed.
    fn next_request(&self, interval: Duration) -> Option<(WakeCause, Option<Duration>)> {
        // When the first request from here on is due at the latest, and when its linger is over.
        let (mut due, mut linger_ends): (Option<Duration>, Option<Duration>) = (None, None);
        let sooner =
            |end: &mut Option<Duration>, at: Duration| *end.insert(end.map_or(at, |end| end.min(at)));
        loop {
            match self.request.load() {
                request::CLOSED => return None,
                request::NOW => return Some((WakeCause::Now, due)),
                asked @ (request::SOON | request::LINGER) => {
                    let now = self.machine.now();
                    // A later request does not put off what was requested first.
                    let latest = sooner(&mut due, now + interval);
                    // A requester of less than this found this request in place, and relies on it.
                    let begins = match asked {
                        request::LINGER => latest.min(sooner(&mut linger_ends, now + self.linger)),
                        _ => latest,
                    };
                    if now < begins {
                        self.server_sleep(asked, Some(begins - now));
                    } else if self.request.exchange(asked, request::NOW) {
                        return Some(match asked {
                            request::SOON => (WakeCause::Overdue, None),
                            _ => (WakeCause::Now, due),
                        });
                    }
                }
                _ => {
                    (due, linger_ends) = (None, None);
                    self.server_sleep(request::NONE, None);
                }
            }
        }
    }

    fn server_sleep(&self, expected: u32, limit: Option<Duration>) {
        self.server_asleep.store(1, Ordering::SeqCst);
        self.request.wait(expected, limit);
        self.server_asleep.store(0, Ordering::SeqCst);
    }
}
