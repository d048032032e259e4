//! The time limit of a statement, `statement_timeout`.
//!
//! As in PostgreSQL, the time runs from the arrival of a statement's text, or of an Execute, until the statement is
//! done or has failed. Each statement of a query string has a time of its own. The commit that ends an implicit block
//! is not limited.

use super::Session;
use crate::cancel::Deadline;
use crate::error::Result;
use crate::timer;

impl Session {
    /// The time of a statement runs, unless it does already.
    ///
    /// # Errors
    /// SQLSTATE 57014 if it is up.
    #[inline]
    pub(super) fn start_time(&mut self) -> Result<()> {
        if self.settings.current().statement_timeout.is_zero() { Ok(()) } else { self.start_limited_time() }
    }

    #[cold]
    fn start_limited_time(&mut self) -> Result<()> {
        if self.timed {
            return match self.cancel.deadline() {
                Deadline::Expired => self.cancel.check(),
                Deadline::None | Deadline::At(_) => Ok(()),
            };
        }
        timer::end_after(&self.cancel, self.settings.current().statement_timeout)?;
        self.timed = true;
        Ok(())
    }

    /// A statement is done, or has failed. If its time was up too late to end it, nothing is left of that.
    #[inline]
    pub(super) fn stop_time(&mut self) {
        if self.timed {
            self.stop_limited_time();
        }
    }

    #[cold]
    fn stop_limited_time(&mut self) {
        self.timed = false;
        if !self.cancel.end_deadline() {
            return;
        }
        if let Some(tx) = &mut self.tx {
            tx.clear_cancellation();
        }
        if let Some(over) = &mut self.over {
            over.clear_cancellation();
        }
    }
}
