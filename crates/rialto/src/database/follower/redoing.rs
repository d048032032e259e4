//! [`Redoing`]: what the threads of a follower do, and what they share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::observer::Observer;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::log::{AppendedPackets, Packet};
use crate::txn::Canceller;
use crate::txn::core::Core;
use crate::txn::redone::Redoer;

/// So many bytes are written at once, before their time.
const WRITE_AT: usize = 64 << 10;
/// How often a thread that waits looks whether it is to end.
const POLL: Duration = Duration::from_millis(20);
/// How long a redo waits that found a lock, a context or memory for locks in use, before it is tried again.
const BACKOFF: Duration = Duration::from_millis(2);
/// How long the redo of a packet looks for memory for its locks, or places for its pages, before that is a failure.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// The redo of a follower's log.
pub(super) struct Redoing {
    core: Arc<Core>,
    redoer: Redoer,
    /// Ends a redo that waits, when the threads are to end.
    canceller: Canceller,
    /// `None` once the database has led.
    packets: Mutex<Option<AppendedPackets>>,
    state: Mutex<RedoState>,
    /// What is told of changes of a row.
    observer: Mutex<Option<Arc<Observer>>>,
    /// Told of what is redone, and that nothing is any more.
    changed: Condvar,
    /// Told when more may be redone.
    may_redo: Condvar,
    /// Told when there is something to write where there was nothing, and when it is much.
    has_bytes: Condvar,
}

struct RedoState {
    /// The last place that may be redone, unless everything is.
    allowed: Lsn,
    redoes_all: bool,
    /// Everything up to this place is in the tables. (The log's own place is taken before its packet is applied.)
    redone: Lsn,
    /// What was in the way of the redo last, if anything still is.
    hindrance: Option<Error>,
    /// Whether the redoing thread waits until it may redo more.
    awaits_more: bool,
    /// Bytes that came since the writing thread wrote last.
    unwritten: usize,
    /// Whether the writing thread waits until there is something to write.
    awaits_bytes: bool,
    /// Whether a call waits for something to be redone.
    waiters: u32,
    is_closed: bool,
    failure: Option<Error>,
}

impl RedoState {
    /// Whether the packet at this place may be redone now.
    fn allows(&self, place: Lsn) -> bool {
        self.redoes_all || place <= self.allowed
    }
}

impl Redoing {
    /// It redoes what comes after the opening's redo, up to this place.
    pub fn new(core: &Arc<Core>, allowed: Lsn) -> Result<Redoing> {
        Ok(Redoing {
            core: core.clone(),
            redoer: Redoer::new(core),
            canceller: Canceller::new(core),
            packets: Mutex::new(Some(AppendedPackets::unredone(&core.commits.log)?)),
            state: Mutex::new(RedoState {
                allowed,
                redoes_all: false,
                redone: core.commits.log.place(),
                hindrance: None,
                awaits_more: false,
                unwritten: 0,
                awaits_bytes: false,
                waiters: 0,
                is_closed: false,
                failure: None,
            }),
            observer: Mutex::default(),
            changed: Condvar::new(),
            may_redo: Condvar::new(),
            has_bytes: Condvar::new(),
        })
    }

    /// So many bytes of blocks came. The writing thread is woken by the first of them, and once they are many: in between it
    /// waits for its time.
    pub fn tell_of_blocks(&self, bytes: usize) {
        let mut state = self.state.lock();
        let before = state.unwritten;
        state.unwritten += bytes;
        if state.awaits_bytes || (before < WRITE_AT && state.unwritten >= WRITE_AT) {
            self.has_bytes.notify_all();
        }
    }

    pub fn allow(&self, last: Lsn) {
        let mut state = self.state.lock();
        state.allowed = last;
        if state.awaits_more {
            self.may_redo.notify_all();
        }
    }

    /// Everything may be redone, whatever is allowed; or only that.
    pub fn redo_all(&self, all: bool) {
        self.state.lock().redoes_all = all;
        self.may_redo.notify_all();
    }

    /// Everything up to this place is in the tables.
    pub fn redone(&self) -> Lsn {
        self.state.lock().redone.min(self.core.commits.log.place())
    }

    /// From now on this one is told of changes of its row.
    pub fn observe(&self, observer: Observer) {
        *self.observer.lock() = Some(Arc::new(observer));
    }

    /// What is in the way of the redo.
    pub fn hindrance(&self) -> Option<Error> {
        self.state.lock().hindrance.clone()
    }

    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// The redo has ended: this is why.
    pub fn fail(&self, error: Error) {
        self.state.lock().failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Ends the threads. The observer is not told of anything any more.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.canceller.cancel();
        for told in [&self.changed, &self.may_redo, &self.has_bytes] {
            told.notify_all();
        }
    }

    /// The database takes transactions of its own: no log has to stay for the redo.
    pub fn forget_packets(&self) {
        *self.packets.lock() = None;
        self.state.lock().redone = Lsn::MAX;
        *self.observer.lock() = None;
    }

    /// Threads may serve again.
    pub fn reopen(&self) {
        self.canceller.clear();
        self.state.lock().is_closed = false;
    }

    /// Waits until a place is redone; false if it is not after this time.
    pub fn wait(&self, place: Lsn, patience: Duration) -> Result<bool> {
        let clock = &self.core.clock;
        let until = clock.now() + patience;
        let mut state = self.state.lock();
        state.waiters += 1;
        let outcome = loop {
            if state.redone >= place {
                break Ok(true);
            }
            if let Some(failure) = &state.failure {
                break Err(failure.clone());
            }
            let now = clock.now();
            if now >= until {
                break Ok(false);
            }
            clock.wait_until(&self.changed, &mut state, until.min(now + POLL));
        };
        state.waiters -= 1;
        outcome
    }

    /// The thread that redoes.
    pub fn serve(&self) {
        let _ends = EndsInFailure(self);
        while !self.state.lock().is_closed {
            if self.redo_next(POLL).is_err() {
                return;
            }
        }
    }

    /// Redoes what was received and may be redone, up to a packet for which something is in the way.
    pub fn redo_some(&self) -> Result<()> {
        while self.redo_next(Duration::ZERO)? {}
        Ok(())
    }

    /// Redoes the next packet; false if none comes, or may be redone, within this time.
    fn redo_next(&self, patience: Duration) -> Result<bool> {
        let mut packets = self.packets.lock();
        let Some(packets) = packets.as_mut() else { return Ok(false) };
        {
            let mut state = self.state.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if !state.allows(packets.place()) {
                if !patience.is_zero() {
                    let clock = &self.core.clock;
                    state.awaits_more = true;
                    clock.wait_until(&self.may_redo, &mut state, clock.now() + patience);
                    state.awaits_more = false;
                }
                return Ok(false);
            }
        }
        let redone = match packets.next(patience) {
            Ok(None) => return Ok(false),
            Ok(Some(packet)) => {
                let redone = self.redo(&packet, !patience.is_zero());
                if let Ok(true) = redone {
                    self.tell_observer(&packet);
                }
                redone
            }
            Err(error) => Err(error),
        };
        let mut state = self.state.lock();
        match redone {
            Ok(true) => {
                state.redone = packets.place();
                packets.pass();
            }
            Ok(false) => return Ok(false),
            Err(error) => {
                self.changed.notify_all();
                return Err(state.failure.get_or_insert(error).clone());
            }
        }
        if state.waiters > 0 {
            self.changed.notify_all();
        }
        Ok(true)
    }

    /// Tells the observer of a packet that was redone, before the next one is, if it is about the observer's row. A database
    /// that is to lead, or is closed, does not wait for that.
    fn tell_observer(&self, packet: &Packet<'_>) {
        let Some(observer) = self.observer.lock().clone() else { return };
        let is_over = {
            let state = self.state.lock();
            state.redoes_all || state.is_closed
        };
        if !is_over && observer.is_about(packet) {
            observer.tell(packet.lsn);
        }
    }

    /// Redoes a packet; false if something is in the way. If it may wait, it tries again as long as that is so. The
    /// bound may have changed while this waited for the packet, and may change while something is in the way.
    fn redo(&self, packet: &Packet<'_>, waits: bool) -> Result<bool> {
        let began = self.core.clock.now();
        loop {
            if !self.state.lock().allows(packet.lsn) && !fault_injection::is_on("redo-past-its-bound") {
                return Ok(false);
            }
            let redone = self.redoer.redo(packet, began, &self.canceller);
            let mut state = self.state.lock();
            let Err(error) = redone else {
                state.hindrance = None;
                return Ok(true);
            };
            if state.is_closed {
                return Ok(false);
            }
            // The packet alone may need more than there is.
            let is_for_ever = matches!(error, Error::LockMemory { .. } | Error::CacheFull { .. })
                && self.core.clock.now() - began > ROOM_PATIENCE;
            if is_for_ever || !is_of_the_moment(&error) {
                return Err(error);
            }
            state.hindrance = Some(error);
            drop(state);
            if !waits {
                return Ok(false);
            }
            self.core.clock.rest(BACKOFF);
        }
    }

    /// The thread that writes what was received: whole pages once they are many, and everything after this time.
    pub fn write_behind(&self, flush_interval: Duration) {
        let _ends = EndsInFailure(self);
        let (log, clock) = (&self.core.commits.log, &self.core.clock);
        let interval = flush_interval.min(POLL);
        // When all of what there is to write has to be written.
        let mut due = None;
        loop {
            let writes_all = {
                let mut state = self.state.lock();
                if state.is_closed {
                    return;
                }
                let now = clock.now();
                if state.unwritten == 0 && !log.has_appended_more() {
                    due = None;
                    state.awaits_bytes = true;
                    clock.wait_until(&self.has_bytes, &mut state, now + POLL);
                    state.awaits_bytes = false;
                    continue;
                }
                let due = *due.get_or_insert(now + interval);
                if now < due && state.unwritten < WRITE_AT {
                    clock.wait_until(&self.has_bytes, &mut state, due);
                    continue;
                }
                state.unwritten = 0;
                now >= due
            };
            // The log keeps the error of a write, and takes nothing after it.
            if log.write_appended(writes_all).is_err() {
                return;
            }
            if writes_all {
                due = None;
            }
        }
    }
}

/// A panic of a thread of the follower becomes the failure.
struct EndsInFailure<'a>(&'a Redoing);

impl Drop for EndsInFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = "a thread of the follower panicked".to_owned();
            self.0.fail(Error::Stopped { cause, disk_full: false });
        }
    }
}

/// Whether the redo goes on once others have ended: they hold what it needs.
fn is_of_the_moment(error: &Error) -> bool {
    matches!(
        error,
        Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::WouldWait { .. }
            | Error::LockMemory { .. }
            | Error::CacheFull { .. }
            | Error::TooManyTransactions { .. }
    )
}
