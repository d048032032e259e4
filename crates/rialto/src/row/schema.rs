//! [`Schema`]: a table's columns, the layout of its rows and the shape of its keys, worked out once.

use hashbrown::{HashMap, HashSet};

use super::key_shape::KeyShape;
use super::{ColumnType, KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::{Error, IndexId, Result};

/// The most columns that a table has.
pub const COLUMNS_MAX: usize = 1_600;

/// The most secondary indexes of a table.
pub const INDEXES_MAX: usize = 1_000;

/// The most columns that an index has.
pub const INDEX_COLUMNS_MAX: usize = 32;

const PRIMARY_SUFFIX: &str = "_pkey";

/// The name of a table's primary index. It belongs to the table from its creation, even while the table has no primary
/// key.
pub(crate) fn primary_index_name(table: &str) -> String {
    format!("{table}{PRIMARY_SUFFIX}")
}

/// The name of the table whose primary index would have this name.
pub(crate) fn table_of_primary_index(index: &str) -> Option<&str> {
    index.strip_suffix(PRIMARY_SUFFIX)
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, 1 to 63 bytes, unique in the table.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// Whether it takes NULL.
    pub nullable: bool,
}

impl Column {
    /// A column that takes no NULL.
    pub fn new(name: impl Into<String>, ty: ColumnType) -> Column {
        Column { name: name.into(), ty, nullable: false }
    }

    /// A column that takes NULL.
    pub fn nullable(name: impl Into<String>, ty: ColumnType) -> Column {
        Column { name: name.into(), ty, nullable: true }
    }
}

/// A secondary index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    /// Its identifier.
    pub id: IndexId,
    /// Its name, 1 to 63 bytes.
    pub name: String,
    /// The positions of its columns in the table, the most significant first.
    pub columns: Vec<usize>,
    /// Whether two rows must not have the same values in these columns; rows with a NULL among them always may.
    pub unique: bool,
}

/// One of a table's indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhichIndex {
    /// The primary key, or the row number of a table without one.
    #[default]
    Primary,
    /// The secondary index at this position in [`Schema::indexes`].
    Secondary(usize),
}

/// Where a column lies in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSlot {
    /// For a fixed column: the offset of its value. For a variable one: the offset of its `u16` end offset.
    pub offset: u16,
    /// The bytes of a fixed column's value; 0 for a variable one.
    pub len: u8,
    /// The column's bit in the null bitmap at the row's start, if it is nullable.
    pub null_bit: Option<u16>,
    /// Its type.
    pub ty: ColumnType,
}

impl FieldSlot {
    /// Whether the column is NULL in `row`.
    #[inline]
    pub fn is_null(&self, row: &[u8]) -> bool {
        self.null_bit.is_some_and(|bit| row[usize::from(bit / 8)] & (1 << (bit % 8)) != 0)
    }

    /// The bytes of a fixed column in `row`.
    #[inline]
    pub(super) fn fixed<'r, const N: usize>(&self, row: &'r [u8]) -> &'r [u8; N] {
        debug_assert_eq!(usize::from(self.len), N);
        row[usize::from(self.offset)..].first_chunk().expect("the bytes are a row of this schema")
    }
}

/// A table's columns, row layout, primary key and secondary indexes. Built once, then never changed; share it by `Arc`.
///
/// A row is one byte string, all numbers little endian:
///
/// ```text
/// | null bitmap              | fixed columns     | u16 end offsets        | bytes of the      |
/// | one bit per nullable     | in column order,  | of the variable        | variable columns, |
/// | column, in column order  | unaligned         | columns                | in column order   |
/// 0                                              ends_at                  body_at
/// ```
///
/// A NULL is a set bit over zero bytes (over no bytes in a variable column), so equal values are equal rows. End
/// offsets count from the row's start. Fixed columns never move: a change to one is a few bytes at a known offset.
#[derive(Clone, Debug)]
pub struct Schema {
    table: String,
    columns: Vec<Column>,
    slots: Vec<FieldSlot>,
    positions: HashMap<String, usize>,
    primary_key: Option<Vec<usize>>,
    indexes: Vec<IndexDef>,
    pub(super) null_bits: usize,
    /// The columns in which some bytes are no value: all but plain numbers.
    pub(super) picky: Box<[u16]>,
    pub(super) ends_at: usize,
    pub(super) body_at: usize,
    pub(super) primary_shape: KeyShape,
    pub(super) index_shapes: Vec<KeyShape>,
    /// Whether some key of some row could pass [`KEY_BYTES_MAX`], so that each row's keys have to be measured.
    pub(crate) keys_can_be_too_long: bool,
    /// Where, in a row's fixed part, the fields of keys and their null bits have ended.
    pub(super) keys_end: u16,
}

impl Schema {
    /// Works out a table's layout. Without a `primary_key` a row's identity is a hidden `u64` row number.
    ///
    /// # Errors
    /// [`Error::BadDefinition`], naming what is wrong: a name that is empty, too long or used twice; no column or more
    /// than 1600; a type whose parameters make no sense; a key that names an absent column, one column twice or a
    /// nullable column (primary key only); or a key that is always longer than [`KEY_BYTES_MAX`].
    pub fn new(
        table_name: impl Into<String>,
        columns: Vec<Column>,
        primary_key: Option<Vec<usize>>,
        indexes: Vec<IndexDef>,
    ) -> Result<Schema> {
        let table = table_name.into();
        let mut key = primary_key.iter().flatten().filter_map(|position| columns.get(*position));
        if let Some(column) = key.find(|column| column.nullable) {
            let reason =
                format!("column \"{}\" of the primary key is nullable: make it NOT NULL", column.name);
            return bad(&table, reason);
        }
        Schema::stored(table, columns, primary_key, indexes)
    }

    /// A table whose rows have a null bit for each nullable one of these columns, including columns of the primary key:
    /// these were nullable when the rows' layout was fixed, and take no NULL since they are in the key.
    ///
    /// # Errors
    /// As [`Schema::new`], except for nullable columns in the primary key.
    pub(crate) fn stored(
        table: String,
        mut columns: Vec<Column>,
        primary_key: Option<Vec<usize>>,
        indexes: Vec<IndexDef>,
    ) -> Result<Schema> {
        check_name(&table, &table, "table")?;
        let positions = check_columns(&table, &columns)?;
        let (slots, null_bits, ends_at, body_at) = lay_out(&columns);
        let primary_name = primary_index_name(&table);
        if let Some(key) = &primary_key {
            check_key(&primary_name, key, &columns)?;
            key.iter().for_each(|&position| columns[position].nullable = false);
        }
        check_indexes(&table, &primary_name, &indexes, &columns)?;
        let primary_shape = match &primary_key {
            Some(key) => KeyShape::of_primary_key(&table, primary_name.clone(), key, &columns, &slots),
            None => KeyShape::of_row_number(&table),
        };
        let index_shapes: Vec<KeyShape> =
            indexes.iter().map(|index| KeyShape::of_index(&table, index, &columns, &slots)).collect();
        let is_picky = |ty: ColumnType| {
            ty.fixed_bytes().is_none() || matches!(ty, ColumnType::Bool | ColumnType::Decimal { .. })
        };
        let picky =
            (0u16..).zip(&columns).filter(|(_, column)| is_picky(column.ty)).map(|(at, _)| at).collect();
        let (mut keys_can_be_too_long, mut keys_end) = (false, 0);
        for shape in std::iter::once(&primary_shape).chain(&index_shapes) {
            keys_end = keys_end.max(shape.fixed_end());
            let primary = if shape.may_append_primary_key() { Some(&primary_shape) } else { None };
            let bytes = shape.bytes_min() + primary.map_or(0, KeyShape::bytes_min);
            if bytes > KEY_BYTES_MAX {
                let reason =
                    format!("its keys have at least {bytes} bytes, and the limit is {KEY_BYTES_MAX}");
                return bad(shape.name(), reason);
            }
            let most = shape.bytes_max().zip(primary.map_or(Some(0), KeyShape::bytes_max));
            keys_can_be_too_long |= most.is_none_or(|(own, primary)| own + primary > KEY_BYTES_MAX);
        }
        Ok(Schema {
            table,
            columns,
            slots,
            positions,
            primary_key,
            indexes,
            null_bits,
            picky,
            ends_at,
            body_at,
            primary_shape,
            index_shapes,
            keys_can_be_too_long,
            keys_end,
        })
    }

    /// The same table with other secondary indexes.
    ///
    /// # Errors
    /// As [`Schema::new`].
    pub fn with_indexes(&self, indexes: Vec<IndexDef>) -> Result<Schema> {
        Schema::stored(self.table.clone(), self.stored_columns(), self.primary_key.clone(), indexes)
    }

    /// The columns as in the rows' layout: the nullable ones are those with a null bit.
    pub(crate) fn stored_columns(&self) -> Vec<Column> {
        let mut columns = self.columns.clone();
        for (column, slot) in columns.iter_mut().zip(&self.slots) {
            column.nullable = slot.null_bit.is_some();
        }
        columns
    }

    /// About how many bytes it takes in memory.
    pub fn bytes(&self) -> usize {
        // Each column also has an entry in `positions`, which is allocated twice as large as its contents, and its name
        // once more.
        let each = size_of::<Column>() + size_of::<FieldSlot>() + 2 * size_of::<(String, usize)>();
        let columns: usize = self.columns.iter().map(|column| each + 2 * column.name.len()).sum();
        let index = |index: &IndexDef| {
            size_of::<IndexDef>() + index.name.len() + index.columns.len() * size_of::<usize>()
        };
        let indexes: usize = self.indexes.iter().map(index).sum();
        let shapes: usize = self.index_shapes.iter().map(KeyShape::bytes).sum();
        size_of::<Schema>() + self.primary_shape.bytes() + columns + indexes + shapes
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The positions of the primary key's columns, the most significant first; `None` for a table without one.
    pub fn primary_key(&self) -> Option<&[usize]> {
        self.primary_key.as_deref()
    }

    /// The secondary indexes.
    pub fn indexes(&self) -> &[IndexDef] {
        &self.indexes
    }

    /// The shape of an index's keys, which [`IntoKey`](super::IntoKey) encodes to.
    pub fn key_shape(&self, index: WhichIndex) -> &KeyShape {
        match index {
            WhichIndex::Primary => &self.primary_shape,
            WhichIndex::Secondary(position) => &self.index_shapes[position],
        }
    }

    /// As [`Schema::key_shape`], for an index that a caller names by its position: the table may not have it, or no
    /// longer have it.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    pub(crate) fn find_key_shape(&self, index: WhichIndex) -> Result<&KeyShape> {
        match index {
            WhichIndex::Primary => Ok(&self.primary_shape),
            WhichIndex::Secondary(position) => self.index_shapes.get(position).ok_or_else(|| {
                Error::NoSuchIndex { index: format!("{}, at position {position}", self.table) }
            }),
        }
    }

    /// The position of a column.
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`].
    pub fn position_of(&self, column: &str) -> Result<usize> {
        self.positions
            .get(column)
            .copied()
            .ok_or_else(|| Error::NoSuchColumn { table: self.table.clone(), column: column.to_owned() })
    }

    /// The names of its indexes, that of the primary key included.
    pub(crate) fn index_names(&self) -> impl Iterator<Item = &str> {
        let primary = self.primary_key.as_ref().map(|_| self.primary_shape.name());
        primary.into_iter().chain(self.indexes.iter().map(|index| index.name.as_str()))
    }

    /// The index of this name; `{table}_pkey` is the primary key.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    pub fn index_named(&self, name: &str) -> Result<WhichIndex> {
        if name == self.primary_shape.name() {
            return Ok(WhichIndex::Primary);
        }
        let position = self.indexes.iter().position(|index| index.name == name);
        position.map(WhichIndex::Secondary).ok_or_else(|| Error::NoSuchIndex { index: name.to_owned() })
    }

    /// Where a column lies in a row.
    #[inline]
    pub fn slot(&self, column: usize) -> FieldSlot {
        self.slots[column]
    }

    /// Where a column lies, if it is of exactly this type.
    #[inline]
    pub(crate) fn slot_of(&self, column: usize, ty: ColumnType) -> Option<&FieldSlot> {
        self.slots.get(column).filter(|slot| slot.ty == ty)
    }

    /// The offset in a row of a column that is of exactly this fixed type and takes no NULL.
    #[inline]
    pub(crate) fn plain_field(&self, column: usize, ty: ColumnType) -> Option<usize> {
        let slot = self.slot_of(column, ty)?;
        slot.null_bit.is_none().then_some(usize::from(slot.offset))
    }

    /// Where a fixed column lies in a row; `None` for a variable one, whose change makes a new row.
    #[inline]
    pub fn fixed_field(&self, column: usize) -> Option<FieldSlot> {
        Some(self.slots[column]).filter(|slot| slot.len > 0)
    }

    /// The bytes of a row before those of its variable columns. Every row has at least these.
    pub fn row_bytes_min(&self) -> usize {
        self.body_at
    }
}

fn bad<T>(name: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::BadDefinition { name: name.to_owned(), reason: reason.into() })
}

fn check_name(owner: &str, name: &str, what: &str) -> Result<()> {
    match name.len() {
        0 => bad(owner, format!("a {what} needs a name")),
        1..=NAME_BYTES_MAX => Ok(()),
        length => bad(
            owner,
            format!("the {what} name \"{name}\" has {length} bytes, and the limit is {NAME_BYTES_MAX}"),
        ),
    }
}

fn check_columns(table: &str, columns: &[Column]) -> Result<HashMap<String, usize>> {
    if columns.is_empty() {
        return bad(table, "a table needs at least one column");
    }
    if columns.len() > COLUMNS_MAX {
        return bad(table, format!("{} columns, and the limit is {COLUMNS_MAX}", columns.len()));
    }
    let mut positions = HashMap::with_capacity(columns.len());
    for (position, column) in columns.iter().enumerate() {
        check_name(table, &column.name, "column")?;
        if let Some(problem) = column.ty.problem() {
            return bad(table, format!("column \"{}\": {problem}", column.name));
        }
        if positions.insert(column.name.clone(), position).is_some() {
            return bad(table, format!("there are two columns named \"{}\"", column.name));
        }
    }
    Ok(positions)
}

fn check_key(name: &str, key: &[usize], columns: &[Column]) -> Result<()> {
    if key.is_empty() {
        return bad(name, "a key needs at least one column");
    }
    if key.len() > INDEX_COLUMNS_MAX {
        return bad(name, format!("{} key columns, and the limit is {INDEX_COLUMNS_MAX}", key.len()));
    }
    for (nth, position) in key.iter().enumerate() {
        let Some(column) = columns.get(*position) else {
            return bad(
                name,
                format!("there is no column at position {position}: the table has {}", columns.len()),
            );
        };
        if key[..nth].contains(position) {
            return bad(name, format!("column \"{}\" is in the key twice", column.name));
        }
    }
    Ok(())
}

fn check_indexes(table: &str, primary_name: &str, indexes: &[IndexDef], columns: &[Column]) -> Result<()> {
    let mut names: HashSet<&str> = HashSet::new();
    names.insert(primary_name);
    let mut ids = HashSet::new();
    for index in indexes {
        check_name(&index.name, &index.name, "index")?;
        check_key(&index.name, &index.columns, columns)?;
        if !names.insert(&index.name) {
            return bad(&index.name, format!("table \"{table}\" has another index of this name"));
        }
        if !ids.insert(index.id) {
            return bad(
                &index.name,
                format!("table \"{table}\" has another index with identifier {}", index.id.0),
            );
        }
    }
    Ok(())
}

/// The slots, the bits of the null bitmap, where the end offsets begin and where the variable bytes begin.
fn lay_out(columns: &[Column]) -> (Vec<FieldSlot>, usize, usize, usize) {
    let null_bits = columns.iter().filter(|column| column.nullable).count();
    let fixed: usize = columns.iter().filter_map(|column| column.ty.fixed_bytes()).map(usize::from).sum();
    let ends_at = null_bits.div_ceil(8) + fixed;
    let (mut next_bit, mut next_fixed, mut next_end) = (0u16, null_bits.div_ceil(8), ends_at);
    let slots = columns
        .iter()
        .map(|column| {
            let null_bit = column.nullable.then_some(next_bit);
            next_bit += u16::from(column.nullable);
            let len = column.ty.fixed_bytes().unwrap_or(0);
            let next = if len > 0 { &mut next_fixed } else { &mut next_end };
            let offset = *next as u16;
            *next += if len > 0 { usize::from(len) } else { 2 };
            FieldSlot { offset, len, null_bit, ty: column.ty }
        })
        .collect();
    (slots, null_bits, ends_at, next_end)
}
