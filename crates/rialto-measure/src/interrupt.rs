//! An interrupt (Ctrl-C), which ends a run early: the clients finish the transactions that they have begun, the database is
//! closed, the files beside it are removed, and there is no result.
//!
//! A signal is sent to the whole process, so its state is kept here, in a static. A run checks it at least every 50 ms
//! of a window or a warm-up, and before and after them; loading and verifying are not interrupted.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::RunError;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Asks the run of this process to end.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Whether the run was asked to end.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Goes on, unless the run was asked to end.
pub fn check() -> Result<(), RunError> {
    if is_asked() { Err(RunError::Interrupted) } else { Ok(()) }
}
