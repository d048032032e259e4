//! [`Redoing`]: what the threads of a follower do, and what they share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::log::{AppendedPackets, Packet};
use crate::txn::core::Core;
use crate::txn::redone::Redoer;

/// How often a thread that waits looks whether it is to end.
const POLL: Duration = Duration::from_millis(20);
/// How long a redo waits that found a lock, a context or memory for locks in use, before it is tried again.
const BACKOFF: Duration = Duration::from_millis(2);

/// The redo of a follower's log.
pub(super) struct Redoing {
    core: Arc<Core>,
    redoer: Redoer,
    /// `None` once the database has led.
    packets: Mutex<Option<AppendedPackets>>,
    state: Mutex<RedoState>,
    /// Told of each change of the state, of blocks, and of what is redone.
    changed: Condvar,
}

struct RedoState {
    /// The last place that may be redone.
    allowed: Lsn,
    /// Whether blocks came since the writing thread looked last.
    has_blocks: bool,
    /// Whether a call waits for something to be redone.
    waiters: u32,
    is_closed: bool,
    failure: Option<Error>,
}

impl Redoing {
    pub fn new(core: &Arc<Core>) -> Result<Redoing> {
        Ok(Redoing {
            core: core.clone(),
            redoer: Redoer::new(core),
            packets: Mutex::new(Some(AppendedPackets::of(&core.commits.log)?)),
            state: Mutex::new(RedoState {
                allowed: Lsn::MAX,
                has_blocks: false,
                waiters: 0,
                is_closed: false,
                failure: None,
            }),
            changed: Condvar::new(),
        })
    }

    pub fn tell_of_blocks(&self) {
        self.state.lock().has_blocks = true;
        self.changed.notify_all();
    }

    pub fn allow(&self, last: Lsn) {
        self.state.lock().allowed = last;
        self.changed.notify_all();
    }

    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Ends the threads.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// The database takes transactions of its own: no log has to stay for the redo.
    pub fn forget_packets(&self) {
        *self.packets.lock() = None;
    }

    /// Threads may serve again.
    pub fn reopen(&self) {
        self.state.lock().is_closed = false;
    }

    /// Waits until a place is redone; false if it is not after this time.
    pub fn wait(&self, place: Lsn, patience: Duration) -> Result<bool> {
        let clock = &self.core.clock;
        let until = clock.now() + patience;
        let mut state = self.state.lock();
        state.waiters += 1;
        let outcome = loop {
            if self.core.commits.log.place() >= place {
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

    /// Redoes what was received and may be redone.
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
            if packets.place() > state.allowed {
                if !patience.is_zero() {
                    let clock = &self.core.clock;
                    clock.wait_until(&self.changed, &mut state, clock.now() + patience);
                }
                return Ok(false);
            }
        }
        let redone = match packets.next(patience) {
            Ok(None) => return Ok(false),
            Ok(Some(packet)) => self.redo(&packet),
            Err(error) => Err(error),
        };
        let mut state = self.state.lock();
        if let Err(error) = redone {
            self.changed.notify_all();
            return Err(state.failure.get_or_insert(error).clone());
        }
        packets.pass();
        if state.waiters > 0 {
            self.changed.notify_all();
        }
        Ok(true)
    }

    /// Redoes a packet, if need be several times.
    fn redo(&self, packet: &Packet<'_>) -> Result<()> {
        loop {
            match self.redoer.redo(packet) {
                Err(error) if is_of_the_moment(&error) && !self.state.lock().is_closed => {
                    self.core.clock.rest(BACKOFF);
                }
                redone => return redone,
            }
        }
    }

    /// The thread that writes what was received: whole pages at once, and the rest when nothing came for this time.
    pub fn write_behind(&self, flush_interval: Duration) {
        let (log, clock) = (&self.core.commits.log, &self.core.clock);
        loop {
            let has_blocks = {
                let mut state = self.state.lock();
                let patience = if log.has_appended_more() { flush_interval.min(POLL) } else { POLL };
                if !state.has_blocks && !state.is_closed {
                    clock.wait_until(&self.changed, &mut state, clock.now() + patience);
                }
                if state.is_closed {
                    return;
                }
                std::mem::take(&mut state.has_blocks)
            };
            // The log keeps the error of a write, and takes nothing after it.
            if (has_blocks || log.has_appended_more()) && log.write_appended(!has_blocks).is_err() {
                return;
            }
        }
    }
}

/// A panic of the thread that redoes becomes the failure.
struct EndsInFailure<'a>(&'a Redoing);

impl Drop for EndsInFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = "the thread that redoes the log panicked".to_owned();
            self.0.state.lock().failure.get_or_insert(Error::Stopped { cause, disk_full: false });
            self.0.changed.notify_all();
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
