//! Routing fields: the columns by whose values rows belong to executors (the DORA paper, section 4.1.1). They are those of
//! the primary key; of a table without one, its columns in their order.

use super::key::{self, Key};
use super::key_shape::KeyShape;
use super::{RowView, Schema, ValueRef, WhichIndex};
use crate::{Error, Result};

impl Schema {
    /// Whether the keys of an index begin with the first so many routing fields: then all rows that have some values there
    /// lie side by side in it.
    pub(crate) fn begins_with_routing_fields(&self, index: WhichIndex, count: usize) -> bool {
        let shape = self.key_shape(index);
        let positions = shape.columns.iter().map(|column| Some(column.position));
        let field = |nth: usize| self.primary_key().map_or(Some(nth), |key| key.get(nth).copied());
        count <= positions.len() && positions.take(count).eq((0..count).map(field))
    }

    /// Appends a value of the table's `nth` column as keys have it.
    ///
    /// # Errors
    /// [`Error::KeyColumns`] if there are not so many columns; as [`encode`](super::encode()) for a value that the column
    /// does not take.
    pub(crate) fn append_column(&self, nth: usize, value: ValueRef<'_>, out: &mut Key) -> Result<()> {
        let Some(column) = self.columns().get(nth) else {
            let columns = self.columns().iter().map(|column| format!("{} {}", column.name, column.ty));
            let expected = columns.collect::<Vec<_>>().join(", ");
            let index = self.key_shape(WhichIndex::Primary).name().to_owned();
            return Err(Error::KeyColumns { index, expected, found: nth + 1 });
        };
        key::append(column, value.coerce(self.table(), column)?, out);
        Ok(())
    }

    /// Replaces `out` by the first so many columns of a row, as [`Schema::append_column`] makes them.
    pub(crate) fn first_columns_of_row(&self, row: &[u8], count: usize, out: &mut Key) {
        out.clear();
        let view = RowView::new(self, row);
        for (nth, column) in self.columns().iter().take(count).enumerate() {
            key::append(column, view.get_ref(nth), out);
        }
    }

    /// Those columns for messages, by name: `(account, day)=(7, 3)`.
    pub(crate) fn print_first_columns(&self, mut bytes: &[u8]) -> String {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for column in self.columns() {
            if bytes.is_empty() {
                break;
            }
            let Some(value) = key::take(column, &mut bytes) else { break };
            names.push(column.name.as_str());
            values.push(value.to_string());
        }
        format!("({})=({})", names.join(", "), values.join(", "))
    }
}

impl KeyShape {
    /// Whether so many values are all of a key, which no second row can have.
    pub(crate) fn is_whole_key(&self, parts: usize) -> bool {
        self.is_unique() && parts > 0 && parts == self.columns.len() && !self.may_append_primary_key()
    }
}
