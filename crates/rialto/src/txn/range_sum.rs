//! Sums of ranges of an index: what copies of a database compare.

use std::ops::{Bound, ControlFlow};

use xxhash_rust::xxh3::Xxh3;

use super::context::Context;
use super::read::RowKey;
use super::transaction::Transaction;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::row::{KEY_BYTES_MAX, Key, RowView, ValueRef, WhichIndex};
use crate::store::Table;

/// The most characters of a row in words.
const SHOWN_MAX: usize = 300;

/// A range of a table, in the order of one of its indexes. Its ends are keys of the index as a [`RangeSum`] gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SumRange {
    /// The index. By the primary one the rows are summed, with all their values; by another one its entries, each with the
    /// primary key that it leads to.
    pub index: WhichIndex,
    /// The range begins behind this key; without one it begins where the index does.
    pub after: Option<Vec<u8>>,
    /// It ends with this key; without one it ends where the index does.
    pub to: Option<Vec<u8>>,
    /// The sum ends after so many rows.
    pub rows_max: u64,
    /// It ends with the row that makes it this many bytes of keys and rows, or more.
    pub bytes_max: u64,
    /// How many of the first rows are given in words, too.
    pub show: usize,
}

impl SumRange {
    /// All rows of a table.
    pub fn all() -> SumRange {
        SumRange {
            index: WhichIndex::Primary,
            after: None,
            to: None,
            rows_max: u64::MAX,
            bytes_max: u64::MAX,
            show: 0,
        }
    }
}

/// What the rows of a range come to. It depends on nothing but the range's keys and values, in the order of the index: not on
/// where rows lie, on the form of the table's storage, or on what was there before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSum {
    /// How many rows there are.
    pub rows: u64,
    /// A checksum of their keys and values, one after the other. It is no defence against a forger.
    pub sum: u128,
    /// The key of the last row, in the index; nothing if there is no row.
    pub last: Option<Vec<u8>>,
    /// Whether the range ends there: the sum did not end at one of its bounds before.
    pub is_whole: bool,
    /// The first rows in words, as many as were to be shown.
    pub shown: Vec<String>,
}

impl Transaction<'_> {
    /// Sums the rows of a range, as the transaction sees them. As in a [`scan`](Transaction::scan), the rows that are read are
    /// locked, and the range against rows that come into it.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`]; [`Error::Unsupported`] for an end of the range that is longer than a key can be;
    /// [`Error::Corrupt`] for the bytes of a row that are none; the errors of a lock request.
    pub fn sum_range(&mut self, table: &Table, range: &SumRange) -> Result<RangeSum> {
        self.operate(|context| context.sum_range(table, range))
    }
}

impl Context {
    fn sum_range(&mut self, table: &Table, range: &SumRange) -> Result<RangeSum> {
        let bounds =
            (end_of(range.after.as_deref(), Bound::Excluded)?, end_of(range.to.as_deref(), Bound::Included)?);
        if range.rows_max == 0 {
            return Ok(RangeSum::default());
        }
        let (slot, scan) = self.begin_scan_within(table, range.index, bounds, Some(range.rows_max))?;
        let mut summing = Summing::default();
        let mut visit = |key: &RowKey, row: RowView<'_>| {
            // Sums are for what may be damaged.
            let row = RowView::of_layout(row.schema(), row.bytes())?;
            summing.add(range.index, &key.0, row);
            if summing.shown.len() < range.show {
                summing.shown.push(in_words(row));
            }
            let is_full = summing.rows == range.rows_max || summing.bytes >= range.bytes_max;
            summing.is_cut = is_full;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let mut scratch = self.scan_scratch.take().unwrap_or_default();
        let summed = self.scan_bytes(slot, &scan, &mut scratch, &mut visit);
        self.scan_scratch = Some(scratch);
        summed.map(|()| summing.end())
    }
}

fn end_of(key: Option<&[u8]>, bound: impl Fn(Key) -> Bound<Key>) -> Result<Bound<Key>> {
    match key {
        None => Ok(Bound::Unbounded),
        Some(key) if key.len() > KEY_BYTES_MAX => {
            let what = format!("a range of keys with an end of {} bytes", key.len());
            Err(Error::Unsupported { what })
        }
        Some(key) => Ok(bound(Key::from(key))),
    }
}

/// A sum that is being made.
#[derive(Default)]
struct Summing {
    sum: Xxh3,
    rows: u64,
    bytes: u64,
    /// The key of the last row, in the index.
    last: Key,
    /// Whether it ended at one of its bounds.
    is_cut: bool,
    shown: Vec<String>,
}

/// A row in words, the beginning of a long one.
fn in_words(row: RowView<'_>) -> String {
    let text = row.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Summing {
    fn add(&mut self, index: WhichIndex, key: &Key, row: RowView<'_>) {
        self.rows += 1;
        self.add_bytes(key);
        match index {
            WhichIndex::Primary => {
                self.last.clone_from(key);
                for column in 0..row.schema().columns().len() {
                    self.add_value(row.get_ref(column));
                }
            }
            WhichIndex::Secondary(position) => {
                let mut last = std::mem::take(&mut self.last);
                row.schema().index_key_of_row(position, row.bytes(), key, &mut last);
                self.add_bytes(&last);
                self.last = last;
            }
        }
    }

    /// With their length before them, so that no two sequences of values have the same bytes.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64 + 4;
        self.sum.update(&(bytes.len() as u32).to_le_bytes());
        self.sum.update(bytes);
    }

    fn add_value(&mut self, value: ValueRef<'_>) {
        if fault_injection::is_on("sums-of-keys-alone") {
            return;
        }
        match value {
            // No other value has this length.
            ValueRef::Null => {
                self.bytes += 4;
                self.sum.update(&u32::MAX.to_le_bytes());
            }
            ValueRef::Bool(value) => self.add_bytes(&[u8::from(value)]),
            ValueRef::Int2(value) => self.add_bytes(&value.to_le_bytes()),
            ValueRef::Int4(value) | ValueRef::Date(value) => self.add_bytes(&value.to_le_bytes()),
            ValueRef::Int8(value) | ValueRef::Timestamp(value) => self.add_bytes(&value.to_le_bytes()),
            // Processors make different NaNs of the same operation.
            ValueRef::Float8(value) if value.is_nan() => self.add_bytes(&f64::NAN.to_bits().to_le_bytes()),
            ValueRef::Float8(value) => self.add_bytes(&value.to_bits().to_le_bytes()),
            ValueRef::Decimal(value) => self.add_bytes(&value.unscaled().to_le_bytes()),
            ValueRef::Text(value) => self.add_bytes(value.as_bytes()),
            ValueRef::Bytes(value) => self.add_bytes(value),
        }
    }

    fn end(self) -> RangeSum {
        let last = (self.rows > 0).then(|| self.last.to_vec());
        let (rows, sum, is_whole) = (self.rows, self.sum.digest128(), !self.is_cut);
        RangeSum { rows, sum, last, is_whole, shown: self.shown }
    }
}

#[cfg(test)]
mod tests;
