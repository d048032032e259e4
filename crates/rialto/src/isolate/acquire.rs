//! Locks on keys, rows and ranges, whichever form locks have. Tables: [`LockManager::table`].

use std::ops::Bound;

use super::local::{Span, SpanRef};
use super::manager::LockManager;
use super::mode::{Acquired, RecordMode};
use super::slot::Owner;
use super::sync::AtomicU64;
use super::wait::{LockError, Wait};
use crate::ids::IndexId;

impl LockManager {
    /// Locks a key of an index, whether there is a row of it or not: at the executors that it belongs to, or by its
    /// name.
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

    /// Locks a row that is present: in its word, where `at` is the word and the row's number, or, if its store has no
    /// words, by the name of `key`. The caller then checks that it is still the row of `key` (L8).
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

    /// Locks a range of an index's keys, shared: the set of keys that exist in it does not change.
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
            // The range contains no key.
            None => Acquired::Held,
        };
        Ok(RangeLock::Keys)
    }
}

/// What a lock on a range of keys protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeLock {
    /// All keys in the range, present or not. If rows are locked by these keys, the rows are locked, too.
    Keys,
    /// The keys that may be inserted into the range, and no row. The scan guards each leaf before it reads it, and an
    /// insert into a guarded leaf asks [`LockManager::admits`].
    Gaps,
}
