//! Keys, rows and ranges are locked here, whichever form locks have. Tables: [`LockManager::table`].

use std::ops::Bound;

use super::local::{Span, SpanRef};
use super::manager::LockManager;
use super::mode::{Acquired, RecordMode};
use super::slot::Owner;
use super::sync::AtomicU64;
use super::wait::{LockError, Wait};
use crate::ids::IndexId;

impl LockManager {
    /// Locks a key of an index, whether there is a row of it or not: at the executors that it belongs to, or by its name.
    #[inline]
    pub fn key(
        &self,
        owner: &mut Owner,
        index: IndexId,
        key: &[u8],
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        match self.keeps_keys_at_executors() {
            true => self.local(owner, index, SpanRef::point(key), mode, wait),
            false => self.record(owner, self.name(index, key), key, mode, wait),
        }
    }

    /// Locks a row that is there: in its word, `at` being that and the row's number, or, where its store has none, by the name of `key`.
    /// The caller then checks that it still is the row of `key` (L8).
    #[inline]
    pub fn row(
        &self,
        owner: &mut Owner,
        at: Option<(&AtomicU64, u64)>,
        (index, key): (IndexId, &[u8]),
        mode: RecordMode,
        wait: &Wait<'_>,
    ) -> Result<Acquired, LockError> {
        match at {
            Some((word, number)) => self.record_thin(owner, word, number, index, key, mode, wait),
            None => self.record(owner, self.name(index, key), key, mode, wait),
        }
    }

    /// Locks a range of an index's keys, shared: which keys are in it stays as it is.
    pub fn range(
        &self,
        owner: &mut Owner,
        index: IndexId,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        wait: &Wait<'_>,
    ) -> Result<RangeLock, LockError> {
        if !self.keeps_keys_at_executors() {
            self.interval(owner, index, lower, upper);
            return Ok(RangeLock::Gaps);
        }
        match Span::between(lower, upper) {
            Some(span) => self.local(owner, index, span.borrow(), RecordMode::Shared, wait)?,
            // There are no keys in it.
            None => Acquired::Held,
        };
        Ok(RangeLock::Keys)
    }
}

/// What a lock on a range of keys is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeLock {
    /// All keys in it, present or not: so the rows are locked, too, if the keys are those that rows are locked by.
    Keys,
    /// The keys that may come into it, and no row: the scan guards each leaf before it reads it, and an insert into a guarded leaf asks
    /// [`LockManager::admits`].
    Gaps,
}
