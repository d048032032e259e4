//! [`Cover`]: what an action's identifier has locked.

use super::transaction::Context;
use crate::error::Result;
use crate::ids::IndexId;
use crate::lock::{LockTarget, RecordMode, Span, SpanRef};
use crate::row::{Key, WhichIndex};

/// The keys of one index that begin alike, and which are locked together while an action runs that works on them: none of
/// them needs a lock of its own, nor do, of the primary one, their rows.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    /// Where the table stands in the transaction's list of tables.
    slot: Option<u32>,
    which: WhichIndex,
    prefix: Key,
    exclusive: bool,
}

impl Cover {
    /// Until [`Cover::clear`].
    pub fn set(&mut self, slot: u32, which: WhichIndex, prefix: &Key, mode: RecordMode) {
        (self.slot, self.which, self.exclusive) = (Some(slot), which, mode == RecordMode::Exclusive);
        self.prefix.clone_from(prefix);
    }

    #[inline]
    pub fn clear(&mut self) {
        self.slot = None;
    }

    /// Whether the row of a primary key needs no lock in this mode.
    #[inline]
    pub fn has(&self, slot: u32, key: &[u8], mode: RecordMode) -> bool {
        self.slot == Some(slot)
            && self.which == WhichIndex::Primary
            && (self.exclusive || mode == RecordMode::Shared)
            && key.starts_with(&self.prefix)
    }

    /// Whether a span of an index's keys needs no lock in shared mode.
    pub fn has_span(&self, slot: u32, which: WhichIndex, span: &Span) -> bool {
        self.slot == Some(slot) && self.which == which && SpanRef::prefix(&self.prefix).covers(span.borrow())
    }
}

impl Context {
    /// Locks what an action's identifier names of an index, present or not.
    pub fn lock_identifier(&mut self, index: IndexId, span: SpanRef<'_>, mode: RecordMode) -> Result<()> {
        self.lock(
            |core, owner, _, _, wait| core.locks.local(owner, index, span, mode, wait).map(drop),
            |_, _| LockTarget::Record { index, key: span.lower().to_vec() },
        )
    }
}
