//! [`IndexRef`]: what names an index of a table.

use super::{Schema, WhichIndex};
use crate::Result;

/// What names an index of a table: its name (`{table}_pkey` is the primary key's), or its position, a [`WhichIndex`].
///
/// A name is looked up in each call, under the lock on the table: it still names the same index when other indexes were
/// dropped. A position costs less, and is that of another index then.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no index",
    note = "an index is named by its name, a `&str` or `&String`, or by a `WhichIndex`"
)]
pub trait IndexRef {
    /// The index in this schema.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`](crate::Error::NoSuchIndex).
    fn find(&self, schema: &Schema) -> Result<WhichIndex>;
}

impl IndexRef for WhichIndex {
    #[inline]
    fn find(&self, schema: &Schema) -> Result<WhichIndex> {
        schema.find_key_shape(*self).map(|_| *self)
    }
}

impl IndexRef for &str {
    fn find(&self, schema: &Schema) -> Result<WhichIndex> {
        schema.index_named(self)
    }
}

impl IndexRef for &String {
    fn find(&self, schema: &Schema) -> Result<WhichIndex> {
        schema.index_named(self)
    }
}
