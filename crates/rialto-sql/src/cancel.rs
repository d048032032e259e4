//! [`Cancel`]: how another thread ends what a session does.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use rialto::Canceller;

use crate::error::{Result, SqlError, SqlState};

/// The session waits for its client: there is nothing to cancel.
const IDLE: u8 = 0;
/// It parses or binds a statement.
const READING: u8 = 1;
/// It runs one.
const RUNNING: u8 = 2;

/// Reaches the statement that a session reads or runs.
///
/// Kept here: a request that comes while a statement is parsed or bound ends that statement, and leaves the open
/// transaction as it is; one that comes while it runs ends the transaction's operation. Of a query string of several
/// statements it ends the next one, if it comes between two, or too late for one.
#[derive(Default)]
pub struct Cancel {
    stage: AtomicU8,
    /// Whether the statement is to end. Stored before the stage is looked at by a request, and looked at after the stage
    /// was stored by the session, so that one of the two sees the other.
    requested: AtomicBool,
    /// Whether the session works on a query string of several statements: between two of them there is something to cancel.
    in_string: AtomicBool,
    /// Of the open transaction.
    canceller: Mutex<Option<Canceller>>,
}

impl Cancel {
    /// Ends the statement that is read or runs, with SQLSTATE 57014; does nothing if there is none. One that comes just as
    /// a statement ends may reach the next one of the same transaction: a request names a session, not a statement.
    pub fn request(&self) {
        let canceller = self.canceller.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stage.load(Ordering::SeqCst) == IDLE && !self.in_string.load(Ordering::SeqCst) {
            return;
        }
        self.requested.store(true, Ordering::SeqCst);
        if let Some(canceller) = &*canceller
            && self.stage.load(Ordering::SeqCst) == RUNNING
        {
            canceller.cancel();
        }
    }

    /// Whether the statement goes on: what parses, binds and computes asks this now and then.
    ///
    /// # Errors
    /// SQLSTATE 57014 after a request.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.requested.load(Ordering::Relaxed) { Err(cancelled()) } else { Ok(()) }
    }

    /// Reads a statement: `work` can be cancelled.
    pub(crate) fn reading<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.stage.load(Ordering::Relaxed) != IDLE {
            // A plan is made anew while its statement runs.
            return work();
        }
        self.enter(READING);
        let answer = work();
        if self.leave() { Err(cancelled()) } else { answer }
    }

    /// A statement begins to run.
    pub(crate) fn begin_running(&self) {
        self.enter(RUNNING);
    }

    /// It has ended.
    pub(crate) fn end_running(&self) {
        self.leave();
    }

    /// A query string of several statements begins or has ended.
    pub(crate) fn set_in_string(&self, in_string: bool) {
        self.in_string.store(in_string, Ordering::SeqCst);
        self.requested.store(false, Ordering::SeqCst);
    }

    fn enter(&self, stage: u8) {
        if !self.in_string.load(Ordering::Relaxed) {
            self.requested.store(false, Ordering::Relaxed);
        }
        self.stage.store(stage, Ordering::SeqCst);
    }

    /// Whether there was a request. In a query string it stays for the next statement.
    fn leave(&self) -> bool {
        self.stage.store(IDLE, Ordering::SeqCst);
        let requested = self.requested.load(Ordering::SeqCst);
        if requested && !self.in_string.load(Ordering::Relaxed) {
            self.requested.store(false, Ordering::SeqCst);
        }
        requested
    }

    /// A transaction has begun; `None`: it has ended, and its canceller is not to be held any longer.
    pub(crate) fn set(&self, canceller: Option<Canceller>) {
        *self.canceller.lock().unwrap_or_else(PoisonError::into_inner) = canceller;
    }
}

fn cancelled() -> SqlError {
    SqlError::new(SqlState::Cancelled, "cancelled on request")
}
