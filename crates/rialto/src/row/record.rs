//! [`Record`]: a Rust struct as a row; [`Field`]: a Rust type as a column.

use super::{Column, ColumnType, Date, Decimal, IndexDef, IntoKey, RowView, Schema, Timestamp, ValueRef};
use crate::{Error, IndexId, Result};

/// A struct whose values are rows of one table. `#[derive(Record)]` implements it.
///
/// ```
/// use rialto::row::{Decimal, Record};
///
/// #[derive(Record)]
/// #[record(table = "accounts")]
/// struct Account {
///     #[record(key)]
///     id: i64,
///     #[record(index)]
///     branch: i32,
///     #[record(decimal(12, 2))]
///     balance: Decimal,
///     #[record(char = 20)]
///     owner: Option<String>,
/// }
///
/// assert_eq!(Account::primary_key(), ["id"]);
/// assert_eq!(Account::indexes(), [("accounts_branch_idx".to_owned(), vec!["branch"], false)]);
/// ```
///
/// A key cannot be NULL:
///
/// ```compile_fail,E0080
/// #[derive(rialto::row::Record)]
/// struct Account {
///     #[record(key)]
///     id: Option<i64>,
/// }
/// ```
///
/// A decimal's digits have to be given, and only a string can be a char(n):
///
/// ```compile_fail,E0277
/// #[derive(rialto::row::Record)]
/// struct Account {
///     balance: rialto::row::Decimal,
/// }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(rialto::row::Record)]
/// struct Account {
///     #[record(char = 20)]
///     balance: i64,
/// }
/// ```
pub trait Record: Sized {
    /// The name of the table, unless the caller gives another.
    const TABLE: &'static str;

    /// The primary key: the key field's type, or a tuple of several; `u64`, the row number, if there is none.
    type Key: IntoKey;

    /// The columns, one for each field.
    fn columns() -> Vec<Column>;

    /// The names of the primary key's columns; empty if there is none.
    fn primary_key() -> Vec<&'static str>;

    /// The secondary indexes: name, columns, whether unique.
    fn indexes() -> Vec<(String, Vec<&'static str>, bool)>;

    /// Appends the row to `out`; `schema` fits the record (see [`fits`]).
    ///
    /// # Errors
    /// As [`encode`](super::encode()).
    fn encode(&self, schema: &Schema, out: &mut Vec<u8>) -> Result<()>;

    /// The record of a row whose schema fits it.
    ///
    /// # Errors
    /// As [`RowView::read`].
    fn decode(row: RowView<'_>) -> Result<Self>;
}

/// The schema of a record's table, with an identifier for each index from `next_index`.
///
/// # Errors
/// As [`Schema::new`].
pub fn schema_of<R: Record>(mut next_index: impl FnMut(&str) -> IndexId) -> Result<Schema> {
    let columns = R::columns();
    let positions = |names: &[&'static str]| -> Result<Vec<usize>> {
        let position = |name: &&str| columns.iter().position(|column| column.name == *name);
        names
            .iter()
            .map(|name| {
                position(name).ok_or_else(|| Error::NoSuchColumn {
                    table: R::TABLE.to_owned(),
                    column: (*name).to_owned(),
                })
            })
            .collect()
    };
    let key = R::primary_key();
    let key = if key.is_empty() { None } else { Some(positions(&key)?) };
    let indexes = R::indexes()
        .into_iter()
        .map(|(name, columns, unique)| {
            Ok(IndexDef { id: next_index(&name), columns: positions(&columns)?, name, unique })
        })
        .collect::<Result<Vec<_>>>()?;
    Schema::new(R::TABLE, columns, key, indexes)
}

/// Checks that a record's fields are the table's columns: names, types, nullability, order and primary key.
///
/// # Errors
/// [`Error::SchemaMismatch`], naming the first column that differs, what the table has and what the record has.
pub fn fits<R: Record>(schema: &Schema) -> Result<()> {
    let mismatch = |reason: String| {
        let record = std::any::type_name::<R>();
        Error::SchemaMismatch {
            record: record.rsplit("::").next().unwrap_or(record).to_owned(),
            table: schema.table().to_owned(),
            reason,
        }
    };
    let print = |column: Option<&Column>| match column {
        Some(Column { name, ty, nullable }) => {
            format!("\"{name}\" {ty}{}", if *nullable { "" } else { " NOT NULL" })
        }
        None => "none".to_owned(),
    };
    let (fields, columns) = (R::columns(), schema.columns());
    for position in 0..fields.len().max(columns.len()) {
        let (field, column) = (fields.get(position), columns.get(position));
        if field != column {
            return Err(mismatch(format!(
                "column {} of the table is {}, but that field of the record is {}",
                position + 1,
                print(column),
                print(field)
            )));
        }
    }
    let key: Vec<&str> = schema
        .primary_key()
        .unwrap_or_default()
        .iter()
        .map(|position| columns[*position].name.as_str())
        .collect();
    if key != R::primary_key() {
        let print =
            |key: &[&str]| if key.is_empty() { "none".to_owned() } else { format!("({})", key.join(", ")) };
        return Err(mismatch(format!(
            "the primary key of the table is {}, but that of the record is {}",
            print(&key),
            print(&R::primary_key())
        )));
    }
    Ok(())
}

/// A Rust type as which a column's values are read and written.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no column type",
    note = "columns are bool, i16, i32, i64, f64, Decimal, String, Vec<u8>, [u8; N], Date, Timestamp, and Option of \
            one of them for a nullable column"
)]
pub trait Field: Sized {
    /// Whether the type takes NULL.
    const NULLABLE: bool = false;
    /// The type's name, for messages.
    const RUST_TYPE: &'static str;

    /// The value, borrowed.
    fn to_ref(&self) -> ValueRef<'_>;

    /// The value as this type; `None` if it has another type, or is NULL. A narrower integer is widened.
    fn from_ref(value: ValueRef<'_>) -> Option<Self>;
}

/// A [`Field`] whose column type needs no further parameters.
#[diagnostic::on_unimplemented(
    message = "the column type of `{Self}` needs to be given",
    note = "a Decimal field needs #[record(decimal(precision, scale))]; other columns are bool, i16, i32, i64, f64, \
            String, Vec<u8>, [u8; N], Date, Timestamp, and Option of one of them for a nullable column"
)]
pub trait DefaultType: Field {
    /// The column type.
    const TYPE: ColumnType;
}

/// A [`Field`] that can be a char(n) column.
#[diagnostic::on_unimplemented(
    message = "#[record(char = n)] is for String and Option<String>, not for `{Self}`"
)]
pub trait CharField: Field {}

/// A [`Field`] that can be a decimal column.
#[diagnostic::on_unimplemented(
    message = "#[record(decimal(p, s))] is for Decimal and Option<Decimal>, not for `{Self}`"
)]
pub trait DecimalField: Field {}

macro_rules! field {
    ($($type:ty: $ty:expr, $value:ident => $to:expr, $($from:pat => $back:expr),+;)+) => {
        $(
            impl Field for $type {
                const RUST_TYPE: &'static str = stringify!($type);

                #[inline]
                fn to_ref(&self) -> ValueRef<'_> {
                    let $value = self;
                    $to
                }

                #[inline]
                fn from_ref(value: ValueRef<'_>) -> Option<$type> {
                    match value {
                        $($from => Some($back),)+
                        _ => None,
                    }
                }
            }

            impl DefaultType for $type {
                const TYPE: ColumnType = $ty;
            }
        )+
    };
}

field! {
    bool: ColumnType::Bool, value => ValueRef::Bool(*value), ValueRef::Bool(value) => value;
    i16: ColumnType::Int2, value => ValueRef::Int2(*value), ValueRef::Int2(value) => value;
    i32: ColumnType::Int4, value => ValueRef::Int4(*value),
        ValueRef::Int4(value) => value, ValueRef::Int2(value) => value.into();
    i64: ColumnType::Int8, value => ValueRef::Int8(*value),
        ValueRef::Int8(value) => value, ValueRef::Int4(value) => value.into(), ValueRef::Int2(value) => value.into();
    f64: ColumnType::Float8, value => ValueRef::Float8(*value), ValueRef::Float8(value) => value;
    String: ColumnType::Text, value => ValueRef::Text(value), ValueRef::Text(value) => value.to_owned();
    Vec<u8>: ColumnType::Bytes, value => ValueRef::Bytes(value), ValueRef::Bytes(value) => value.to_owned();
    Date: ColumnType::Date, value => ValueRef::Date(value.0), ValueRef::Date(value) => Date(value);
    Timestamp: ColumnType::Timestamp, value => ValueRef::Timestamp(value.0),
        ValueRef::Timestamp(value) => Timestamp(value);
}

impl Field for Decimal {
    const RUST_TYPE: &'static str = "Decimal";

    fn to_ref(&self) -> ValueRef<'_> {
        ValueRef::Decimal(*self)
    }

    fn from_ref(value: ValueRef<'_>) -> Option<Decimal> {
        match value {
            ValueRef::Decimal(value) => Some(value),
            _ => None,
        }
    }
}

impl<const N: usize> Field for [u8; N] {
    const RUST_TYPE: &'static str = "[u8; N] of the value's length";

    fn to_ref(&self) -> ValueRef<'_> {
        ValueRef::Bytes(self)
    }

    fn from_ref(value: ValueRef<'_>) -> Option<[u8; N]> {
        match value {
            ValueRef::Bytes(bytes) => bytes.try_into().ok(),
            _ => None,
        }
    }
}

impl<const N: usize> DefaultType for [u8; N] {
    const TYPE: ColumnType = ColumnType::Bytes;
}

impl<T: Field> Field for Option<T> {
    const NULLABLE: bool = {
        assert!(!T::NULLABLE, "an Option of an Option is no column type");
        true
    };
    const RUST_TYPE: &'static str = T::RUST_TYPE;

    #[inline]
    fn to_ref(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, Field::to_ref)
    }

    #[inline]
    fn from_ref(value: ValueRef<'_>) -> Option<Option<T>> {
        match value {
            ValueRef::Null => Some(None),
            value => T::from_ref(value).map(Some),
        }
    }
}

impl<T: DefaultType> DefaultType for Option<T> {
    const TYPE: ColumnType = T::TYPE;
}

impl CharField for String {}
impl<T: CharField> CharField for Option<T> {}
impl DecimalField for Decimal {}
impl<T: DecimalField> DecimalField for Option<T> {}
