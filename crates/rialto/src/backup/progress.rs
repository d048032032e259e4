//! How far a backup or a restore has come, for code that shows it.

use std::fmt;
use std::sync::Arc;

use crate::foreign::run_caught;
use crate::inside::Amid;
use crate::opening::Opening;

/// How many bytes are done between two calls of an observer.
const EVERY: u64 = 1 << 20;

/// How far a backup or a restore has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesDone {
    /// The bytes that are done.
    pub done: u64,
    /// The bytes that there are to do; `None` if that is not known, as of a stream that is restored.
    pub total: Option<u64>,
}

/// Code that is told how far a backup or a restore has come: about once for each mebibyte, and at the end. `done` grows
/// from call to call, and the last call of a backup or restore that succeeds has `done` equal to `total`.
///
/// The code runs on the thread that copies, so it should be short. It may panic: the panic is caught and has no other
/// effect. In a backup it must not call the database for something that waits for the backup, which is refused.
#[derive(Clone)]
pub struct CopyObserver(Arc<dyn Fn(BytesDone) + Send + Sync>);

impl CopyObserver {
    /// Calls this code.
    pub fn new(tell: impl Fn(BytesDone) + Send + Sync + 'static) -> CopyObserver {
        CopyObserver(Arc::new(tell))
    }
}

impl fmt::Debug for CopyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CopyObserver")
    }
}

/// Decides when an observer is called.
pub(super) struct CopyProgress<'a> {
    observer: Option<&'a CopyObserver>,
    /// The database that is backed up.
    opening: Option<Opening>,
    total: Option<u64>,
    told: u64,
}

impl<'a> CopyProgress<'a> {
    /// Of a copy of so many bytes.
    pub fn of(observer: Option<&'a CopyObserver>, total: Option<u64>) -> CopyProgress<'a> {
        CopyProgress { observer, opening: None, total, told: 0 }
    }

    /// As [`CopyProgress::of`], of this database's backup; the total is needed only if there is an observer.
    pub fn of_backup(
        observer: Option<&'a CopyObserver>,
        opening: Opening,
        total: impl FnOnce() -> u64,
    ) -> CopyProgress<'a> {
        CopyProgress { observer, opening: Some(opening), total: observer.map(|_| total()), told: 0 }
    }

    /// In the total are so many `expected` bytes of which it is known now how many there are.
    pub fn correct(&mut self, expected: u64, found: u64) {
        self.total = self.total.map(|total| (total.saturating_sub(expected) + found).max(self.told));
    }

    /// So many bytes are done in all.
    pub fn at(&mut self, done: u64) {
        // The last byte is told at the end: until then the copy may fail.
        let done = self.total.map_or(done, |total| done.min(total.saturating_sub(1)));
        if done >= self.told.saturating_add(EVERY) {
            self.tell(BytesDone { done, total: self.total });
        }
    }

    /// Everything is done: all bytes, or so many if the total was not known.
    pub fn end(mut self, done: u64) {
        let done = self.total.unwrap_or(done);
        self.tell(BytesDone { done, total: Some(done) });
    }

    fn tell(&mut self, progress: BytesDone) {
        let Some(observer) = self.observer else { return };
        self.told = progress.done;
        let _amid = self.opening.map(Amid::enter);
        run_caught(|| (observer.0)(progress));
    }
}
