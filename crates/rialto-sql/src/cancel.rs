//! [`Cancel`]: how another thread ends the current statement of a session.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rialto::{Canceller, fault_injection};

use crate::error::{Result, SqlError, SqlState};
use crate::partitions::CancelBranches;

/// The session waits for its client: there is nothing to cancel.
const IDLE: u8 = 0;
/// It parses or binds a statement.
const READING: u8 = 1;
/// It runs one.
const RUNNING: u8 = 2;

/// No deadline; no entry in the timer.
const NEVER: u64 = 0;
/// The deadline of a statement that the timer has ended.
const EXPIRED: u64 = u64::MAX;

/// PostgreSQL's message for a statement that the timer has ended.
const TIMED_OUT: &str = "canceling statement due to statement timeout";

/// When a statement has to be done, in the timer's microseconds.
pub(crate) enum Deadline {
    /// At no time.
    None,
    /// At this time.
    At(u64),
    /// That time came before it was done.
    Expired,
}

/// It works on a query string of several statements.
const IN_STRING: u8 = 1;
/// An implicit block is open: its outcome is still to come.
const IN_BLOCK: u8 = 2;

/// What ends the current operation of the open transaction.
enum Ends {
    Transaction(Canceller),
    Branches(Arc<dyn CancelBranches>),
}

/// Reaches the statement that a session reads or runs.
///
/// Invariant: a request that comes while a statement is parsed or bound ends that statement, and leaves the open
/// transaction as it is. A request that comes while a statement runs ends the transaction's current operation. In a
/// query string of several statements, or a pipeline whose transaction is open, a request that comes between two
/// statements, or too late for one, ends the next. Behind the last statement of an implicit block it ends the block.
///
/// A deadline ends the statement for which it was set, and no other: when the session ends the deadline, it takes back
/// what the timer has asked for. While there is a deadline, nothing else takes a request back.
#[derive(Default)]
pub struct Cancel {
    stage: AtomicU8,
    /// Whether the statement is to end. A request stores this before it reads the stage, and the session reads it after
    /// it stores the stage. So at least one of the two sees the other.
    requested: AtomicBool,
    /// What can be cancelled between two statements: [`IN_STRING`] and [`IN_BLOCK`]. While it is zero, a request that
    /// comes between two statements is not kept.
    between: AtomicU8,
    /// The canceller of the open transaction.
    canceller: Mutex<Option<Ends>>,
    /// See [`Deadline`]. The session sets and ends it. The timer changes it to [`EXPIRED`], with `canceller` locked.
    deadline: AtomicU64,
    /// The time of the timer's entry for the session; changed with the timer locked.
    entry: AtomicU64,
}

impl Cancel {
    /// Ends the statement that is read or runs, with SQLSTATE 57014; does nothing if there is none. A request that
    /// comes just as a statement ends may reach the next one of the same transaction, because a request names a
    /// session, not a statement.
    pub fn request(&self) {
        let canceller = self.canceller();
        let stage = self.stage.load(Ordering::SeqCst);
        let is_unheard = stage == READING && fault_injection::is_on("cancel-amid-a-text-is-lost");
        let is_idle = (stage == IDLE || is_unheard) && self.between.load(Ordering::SeqCst) == 0;
        if is_idle && !fault_injection::is_on("cancel-waits-for-a-statement") {
            return;
        }
        self.end_statement(&canceller);
    }

    fn canceller(&self) -> MutexGuard<'_, Option<Ends>> {
        self.canceller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_statement(&self, canceller: &Option<Ends>) {
        self.requested.store(true, Ordering::SeqCst);
        if let Some(canceller) = canceller
            && self.stage.load(Ordering::SeqCst) == RUNNING
        {
            match canceller {
                Ends::Transaction(canceller) => canceller.cancel(),
                Ends::Branches(branches) => branches.cancel(),
            }
        }
    }

    /// The statement that is read or runs now has to be done by this time. Whether the timer has an entry for the
    /// session that is early enough.
    pub(crate) fn set_deadline(&self, time: u64) -> bool {
        self.forget_between();
        self.deadline.store(time, Ordering::SeqCst);
        // The timer takes its entry before it reads the deadline. So at least one of the two sees the other.
        self.entry().is_some_and(|entry| entry <= time)
    }

    /// The statement is done, or has failed: no deadline ends it any longer. Whether one has. Then nothing is left of
    /// the request, but the transaction's cancellation may be.
    pub(crate) fn end_deadline(&self) -> bool {
        let expired = self.deadline.swap(NEVER, Ordering::SeqCst) == EXPIRED;
        if expired {
            // The timer may be about to ask.
            drop(self.canceller());
            self.requested.store(false, Ordering::SeqCst);
        } else if self.stage.load(Ordering::Relaxed) == IDLE {
            self.forget_between();
        }
        expired
    }

    pub(crate) fn deadline(&self) -> Deadline {
        match self.deadline.load(Ordering::SeqCst) {
            NEVER => Deadline::None,
            EXPIRED => Deadline::Expired,
            time => Deadline::At(time),
        }
    }

    /// Ends the statement that had to be done by this time, unless it is.
    pub(crate) fn expire(&self, time: u64) {
        let canceller = self.canceller();
        let expired = self.deadline.compare_exchange(time, EXPIRED, Ordering::SeqCst, Ordering::SeqCst);
        if expired.is_ok() {
            self.end_statement(&canceller);
        }
    }

    /// The time of the timer's entry for the session.
    pub(crate) fn entry(&self) -> Option<u64> {
        Some(self.entry.load(Ordering::SeqCst)).filter(|time| *time != NEVER)
    }

    pub(crate) fn set_entry(&self, time: Option<u64>) {
        self.entry.store(time.unwrap_or(NEVER), Ordering::SeqCst);
    }

    /// Gives the error of a statement whose time was up its message: the kernel knows only that it was cancelled.
    #[cold]
    pub(crate) fn name_cause(&self, error: &mut SqlError) {
        if error.sqlstate == SqlState::Cancelled && matches!(self.deadline(), Deadline::Expired) {
            error.message = TIMED_OUT.to_owned();
        }
    }

    #[cold]
    fn cancelled(&self) -> SqlError {
        let message = match self.deadline() {
            Deadline::Expired => TIMED_OUT,
            Deadline::None | Deadline::At(_) => "cancelled on request",
        };
        SqlError::new(SqlState::Cancelled, message)
    }

    /// Whether the statement goes on. Parsing, binding and computing check this now and then.
    ///
    /// # Errors
    /// SQLSTATE 57014 after a request, and when the statement's time is up.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.requested.load(Ordering::Relaxed) { Err(self.cancelled()) } else { Ok(()) }
    }

    /// The flag that is set while the statement is to end.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.requested
    }

    /// Reads a statement: `work` can be cancelled.
    pub(crate) fn reading<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.stage.load(Ordering::Relaxed) != IDLE {
            // A plan may be remade while its statement runs. If a request comes during that, the plan ends with its
            // error and is not kept.
            let answer = work()?;
            return self.check().map(|()| answer);
        }
        self.enter(READING);
        let answer = work();
        if self.leave() { Err(self.cancelled()) } else { answer }
    }

    /// A statement begins to run.
    pub(crate) fn begin_running(&self) {
        self.enter(RUNNING);
    }

    /// The statement has ended.
    pub(crate) fn end_running(&self) {
        self.leave();
    }

    /// As [`Cancel::check`], between two statements.
    #[inline]
    pub(crate) fn check_between(&self) -> Result<()> {
        if self.between.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.check() }
    }

    /// A query string of several statements begins or has ended.
    pub(crate) fn set_in_string(&self, in_string: bool) {
        self.set_between(IN_STRING, in_string);
    }

    /// Whether the session works on a query string of several statements.
    pub(crate) fn is_in_string(&self) -> bool {
        self.between.load(Ordering::Relaxed) & IN_STRING != 0
    }

    /// An implicit block begins or has ended.
    #[inline]
    pub(crate) fn set_in_block(&self, in_block: bool) {
        self.set_between(IN_BLOCK, in_block);
    }

    /// Only the session's own thread changes it.
    fn set_between(&self, what: u8, is_so: bool) {
        let before = self.between.load(Ordering::Relaxed);
        let after = if is_so { before | what } else { before & !what };
        self.between.store(after, Ordering::Release);
        if before == 0 || after == 0 {
            self.forget();
        }
    }

    /// Takes back a request, unless a deadline may have made it.
    fn forget(&self) {
        if self.deadline.load(Ordering::Relaxed) == NEVER {
            self.requested.store(false, Ordering::Relaxed);
        }
    }

    /// As [`Cancel::forget`], if there is nothing to cancel between two statements.
    fn forget_between(&self) {
        if self.between.load(Ordering::Relaxed) == 0
            && !fault_injection::is_on("cancel-waits-for-a-statement")
        {
            self.forget();
        }
    }

    fn enter(&self, stage: u8) {
        self.forget_between();
        self.stage.store(stage, Ordering::SeqCst);
    }

    /// Takes the request, if there was one. Between two statements it stays for the next one.
    fn leave(&self) -> bool {
        self.stage.store(IDLE, Ordering::SeqCst);
        let requested = self.requested.load(Ordering::SeqCst);
        if requested && self.between.load(Ordering::Relaxed) == 0 {
            self.forget();
        }
        requested
    }

    /// A transaction has begun; `None`: it has ended, and its canceller is not to be held any longer.
    pub(crate) fn set(&self, canceller: Option<Canceller>) {
        *self.canceller() = canceller.map(Ends::Transaction);
    }

    /// As [`Cancel::set`], for a transaction over partitions.
    pub(crate) fn set_branches(&self, branches: Option<Arc<dyn CancelBranches>>) {
        *self.canceller() = branches.map(Ends::Branches);
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel").field("requested", &self.requested).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No statement follows one that stands alone.
    #[test]
    fn a_request_too_late_for_a_statement_ends_the_next_one_of_its_query_string() {
        for in_string in [true, false] {
            let cancel = Cancel::default();
            cancel.set_in_string(in_string);
            cancel.begin_running();
            cancel.request();
            cancel.end_running();
            cancel.begin_running();
            assert_eq!(cancel.check().is_err(), in_string);
            cancel.end_running();
            cancel.set_in_string(false);
            assert!(cancel.check().is_ok());
        }
    }

    /// A deadline that has come ends its own statement, while that runs or between two of its messages, and no other.
    #[test]
    fn a_deadline_ends_only_the_statement_for_which_it_was_set() {
        for (in_string, in_block) in [(false, false), (true, false), (false, true)] {
            let cancel = Cancel::default();
            cancel.set_in_string(in_string);
            cancel.set_deadline(5);
            cancel.reading(|| Ok(())).unwrap();
            cancel.expire(5);
            cancel.set_in_block(in_block);
            cancel.begin_running();
            assert_eq!(cancel.check().unwrap_err().message, "canceling statement due to statement timeout");
            cancel.end_running();
            assert!(cancel.end_deadline());
            cancel.begin_running();
            assert!(cancel.check().is_ok(), "the next statement");
            // The timer has seen the deadline of the one before.
            cancel.set_deadline(7);
            cancel.expire(5);
            assert!(cancel.check().is_ok());
            cancel.end_running();
            assert!(!cancel.end_deadline());
            cancel.expire(7);
            assert!(cancel.check().is_ok());
        }
    }

    /// A request that comes while a deadline is set counts as any other.
    #[test]
    fn a_request_beside_a_deadline_is_no_time_out() {
        let cancel = Cancel::default();
        cancel.set_deadline(5);
        cancel.begin_running();
        cancel.request();
        assert_eq!(cancel.check().unwrap_err().message, "cancelled on request");
        cancel.end_running();
        assert!(!cancel.end_deadline());
        cancel.begin_running();
        assert!(cancel.check().is_ok(), "it was for the statement before");
    }
}
