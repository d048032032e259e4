//! [`Cover`]: what an action's identifier has locked.

use super::transaction::Context;
use crate::error::Result;
use crate::lock::{LockTarget, RecordMode, Span, SpanRef};
use crate::row::Key;

/// The rows of one table whose primary keys begin alike, and which are locked together while an action runs that works on
/// them: none of them needs a lock of its own.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    /// Where the table stands in the transaction's list of tables.
    slot: Option<u32>,
    prefix: Key,
    exclusive: bool,
}

impl Cover {
    /// Until [`Cover::clear`].
    pub fn set(&mut self, slot: u32, prefix: Key, mode: RecordMode) {
        *self = Cover { slot: Some(slot), prefix, exclusive: mode == RecordMode::Exclusive };
    }

    #[inline]
    pub fn clear(&mut self) {
        self.slot = None;
    }

    /// Whether the row of a primary key needs no lock in this mode.
    #[inline]
    pub fn has(&self, slot: u32, key: &[u8], mode: RecordMode) -> bool {
        self.slot == Some(slot)
            && (self.exclusive || mode == RecordMode::Shared)
            && key.starts_with(&self.prefix)
    }

    /// Whether a span of primary keys needs no lock in shared mode.
    pub fn has_span(&self, slot: u32, span: &Span) -> bool {
        self.slot == Some(slot) && Span::prefix(&self.prefix).borrow().covers(span.borrow())
    }
}

impl Context {
    /// Locks all rows whose primary keys begin with this, present or not; `parts` of the key's columns are in it.
    pub fn lock_identifier(&mut self, slot: u32, prefix: &Key, parts: usize, mode: RecordMode) -> Result<()> {
        let version = self.tables.at(slot);
        let index = version.primary_id;
        let is_row = version.schema.primary_key().is_some_and(|columns| columns.len() == parts);
        let wide = if is_row { None } else { Some(Span::prefix(prefix)) };
        let span = wide.as_ref().map_or(SpanRef::point(prefix), Span::borrow);
        self.lock(
            |core, owner, _, _, wait| core.locks.local(owner, index, span, mode, wait).map(drop),
            |_, _| LockTarget::Record { index, key: prefix.to_vec() },
        )
    }
}
