//! Routing fields: the columns by whose values rows belong to executors (the DORA paper, section 4.1.1). They are the
//! columns of the primary key; in a table without one, all columns in their order.

use super::key::{self, Key};
use super::key_shape::{KeyColumn, KeyShape};
use super::{Column, ColumnType, RowView, Schema, ValueRef, WhichIndex};
use crate::{Error, Result};

impl Column {
    /// Appends a value of this column in the form of keys: values that are equal as keys have the same bytes.
    ///
    /// # Errors
    /// As [`encode`](super::encode()) for a value that the column does not take.
    pub(crate) fn append_to_key(&self, table: &str, value: ValueRef<'_>, out: &mut Key) -> Result<()> {
        key::append(self, value.coerce(table, self)?, out);
        Ok(())
    }
}

impl Schema {
    /// Whether the keys of an index begin with the first `count` routing fields: then all rows with the same values
    /// there are adjacent in it.
    pub(crate) fn begins_with_routing_fields(&self, index: WhichIndex, count: usize) -> bool {
        let shape = self.key_shape(index);
        let positions = shape.columns.iter().map(|column| Some(column.position));
        let field = |nth: usize| self.primary_key().map_or(Some(nth), |key| key.get(nth).copied());
        count <= positions.len() && positions.take(count).eq((0..count).map(field))
    }

    /// Appends a value of the table's `nth` column in the form of keys.
    ///
    /// # Errors
    /// [`Error::KeyColumns`] if the table has not so many columns; as [`encode`](super::encode()) for a value that the
    /// column does not take.
    pub(crate) fn append_column(&self, nth: usize, value: ValueRef<'_>, out: &mut Key) -> Result<()> {
        let Some(column) = self.columns().get(nth) else {
            let columns = self.columns().iter().map(|column| format!("{} {}", column.name, column.ty));
            let expected = columns.collect::<Vec<_>>().join(", ");
            let index = self.key_shape(WhichIndex::Primary).name().to_owned();
            return Err(Error::KeyColumns { index, expected, found: nth + 1 });
        };
        column.append_to_key(self.table(), value, out)
    }

    /// Replaces `out` by the first `count` columns of a row, as [`Schema::append_column`] makes them.
    pub(crate) fn first_columns_of_row(&self, row: &[u8], count: usize, out: &mut Key) {
        out.clear();
        let view = RowView::new(self, row);
        for (nth, column) in self.columns().iter().take(count).enumerate() {
            key::append(column, view.get_ref(nth), out);
        }
    }

    /// These columns in text, by name, for messages: `(account, day)=(7, 3)`.
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

/// The length of the first columns of an index's keys, found from their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadingColumns(Box<[Width]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Width {
    nullable: bool,
    /// `None`: up to the end mark.
    bytes: Option<usize>,
}

impl LeadingColumns {
    /// How many bytes of a key these columns take; `None` if the key ends before they do.
    #[inline]
    pub fn len_in(&self, key: &[u8]) -> Option<usize> {
        let mut at = 0;
        for Width { nullable, bytes } in &self.0 {
            if *nullable {
                at += 1;
                if *key.get(at - 1)? == key::NULL {
                    continue;
                }
            }
            at += match bytes {
                Some(bytes) => *bytes,
                None => key.get(at..)?.iter().position(|byte| *byte == key::END)? + 1,
            };
        }
        (at <= key.len()).then_some(at)
    }
}

impl KeyShape {
    /// The first `count` columns; `None` if `count` is 0 or more than there are.
    pub fn leading(&self, count: usize) -> Option<LeadingColumns> {
        if self.is_row_number() {
            return (count == 1).then(|| LeadingColumns([Width { nullable: false, bytes: Some(8) }].into()));
        }
        let columns = self.columns.get(..count).filter(|columns| !columns.is_empty())?;
        let widths = columns.iter().map(|KeyColumn { column, .. }| {
            let (least, most) = key::bytes_of_column(column);
            let is_fixed =
                column.ty.fixed_bytes().is_some() || matches!(column.ty, ColumnType::Decimal { .. });
            let bytes = most.filter(|_| is_fixed).map(|_| least - usize::from(column.nullable));
            Width { nullable: column.nullable, bytes }
        });
        Some(LeadingColumns(widths.collect()))
    }

    /// Whether this many values are a whole key, which no second row can have.
    pub(crate) fn is_whole_key(&self, parts: usize) -> bool {
        self.is_unique() && parts > 0 && parts == self.columns.len() && !self.may_append_primary_key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::IndexId;
    use crate::row::{IndexDef, IntoKey, Value};

    #[test]
    fn leading_columns_end_where_the_next_begin() {
        let types = [
            ColumnType::Int4,
            ColumnType::Text,
            ColumnType::Char(3),
            ColumnType::Decimal { precision: 20, scale: 2 },
            ColumnType::Bool,
            ColumnType::Bytes,
        ];
        let texts = ["", "a", "\u{1}\0b", "straße"];
        for nullable in [false, true] {
            let column = |(nth, ty): (usize, &ColumnType)| {
                let name = format!("c{nth}");
                if nullable && nth > 0 { Column::nullable(name, *ty) } else { Column::new(name, *ty) }
            };
            let columns = types.iter().enumerate().map(column).collect();
            let (id, name, columns_of_index) = (IndexId(7), "i".to_owned(), (0..types.len()).collect());
            let index = IndexDef { id, name, columns: columns_of_index, unique: false };
            let schema = Schema::new("t", columns, Some(vec![0]), vec![index]).unwrap();
            let shape = schema.key_shape(WhichIndex::Secondary(0));
            for nth in 0..16 {
                let text = texts[nth % 4];
                let mut values = vec![
                    Value::Int4(nth as i32 - 8),
                    Value::Text(text.to_owned()),
                    Value::Text(text.chars().take(3).collect()),
                    Value::Decimal("-12.34".parse().unwrap()),
                    Value::Bool(nth % 2 == 0),
                    Value::Bytes(text.as_bytes().to_vec()),
                ];
                if nullable && nth > 3 {
                    values[1 + nth % 5] = Value::Null;
                }
                let prefix = |count: usize| {
                    let mut key = Key::new();
                    values[..count].encode_prefix_into(shape, &mut key).unwrap();
                    key
                };
                let whole = prefix(types.len());
                for count in 1..=types.len() {
                    let leading = shape.leading(count).unwrap();
                    assert_eq!(leading.len_in(&whole), Some(prefix(count).len()), "{values:?}, {count}");
                    assert_eq!(leading.len_in(&prefix(count)), Some(prefix(count).len()));
                    assert_eq!(leading.len_in(&prefix(count)[..prefix(count).len() - 1]), None);
                    assert_eq!(leading.len_in(&prefix(count - 1)), None, "{values:?}, {count}");
                }
            }
            assert_eq!(shape.leading(0), None);
            assert_eq!(shape.leading(types.len() + 1), None);
        }
        let numbered = Schema::new("t", vec![Column::new("c", ColumnType::Int4)], None, vec![]).unwrap();
        let leading = numbered.key_shape(WhichIndex::Primary).leading(1).unwrap();
        assert_eq!(leading.len_in(&7u64.to_be_bytes()), Some(8));
    }
}
