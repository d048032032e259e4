//! Rows, keys and schemas: how typed values become bytes, and bytes values.
//!
//! A [`Schema`] has a table's columns, and computes once where each column lies in a row and in the keys of each index.
//! A row is one compact byte string ([`encode()`], [`RowEncoder`]), of which one field can be read ([`RowView`]) or
//! changed ([`FieldPatch`]) alone. A [`Key`] is bytes in the order of the values in it, made from a row or from values
//! ([`IntoKey`]). Rust structs are rows by [`Record`]; SQL and tools use [`Row`], [`Value`] and column names.
//!
//! Invariants kept here:
//!
//! - There is one encoding of each row, so rows with equal values have equal bytes. A patched row has the bytes that
//!   encoding its values gives.
//! - The order of keys as bytes is the order of the values, NULLs and NaN last; no key is a prefix of another one of
//!   its index.
//! - What [`encode()`] accepts stays within [`ROW_BYTES_MAX`], and each of its keys within [`KEY_BYTES_MAX`], whatever
//!   its fixed columns are changed to later. So making the keys of a row cannot fail (I10).
//! - Bytes from outside pass [`RowView::validate`] before they are read; it never panics (I9).
//!
//! Read on in `value.rs`, then `schema.rs` for the row's layout and `key.rs` for the key's.

mod date;
mod decimal;
mod encode;
mod index_ref;
mod into_key;
mod key;
mod key_shape;
mod owned;
mod patch;
mod record;
mod routing_fields;
mod schema;
mod value;
mod view;

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

pub use date::{Date, ParseDateError, Timestamp};
pub use decimal::{DECIMAL_DIGITS_MAX, Decimal, ParseDecimalError};
pub(crate) use encode::encode_borrowed;
pub use encode::{RowEncoder, encode};
pub use index_ref::IndexRef;
pub use into_key::{IntoKey, KeyPart};
pub use key::Key;
pub use key_shape::KeyShape;
pub use owned::Row;
pub(crate) use patch::FieldChange;
pub use patch::{FieldPatch, FieldPatches};
pub use record::{CharField, DecimalField, DefaultType, Field, Record, fits, schema_of};
pub use routing_fields::LeadingColumns;
pub use schema::{
    COLUMNS_MAX, Column, FieldSlot, INDEX_COLUMNS_MAX, INDEXES_MAX, IndexDef, Schema, WhichIndex,
};
pub(crate) use schema::{primary_index_name, table_of_primary_index};
pub use value::{ColumnType, Value, ValueRef};
pub use view::{ColumnRef, RowView};
pub(crate) use view::{Nulls, damage};

pub use rialto_derive::Record;

/// The most bytes that a row has.
pub const ROW_BYTES_MAX: usize = 32_000;

/// The most bytes that a key has.
pub const KEY_BYTES_MAX: usize = 1_024;

/// The most bytes that the name of a table, column or index has.
pub const NAME_BYTES_MAX: usize = 63;
