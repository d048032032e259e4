//! The rows that a statement keeps of those that it reads: bounded, so that one statement cannot take all memory.

use std::cmp::Ordering;

use rialto::fault_injection;
use rialto::row::Value;

use crate::bind::Order;
use crate::error::{Result, SqlError, SqlState};

/// The most bytes of rows that one statement keeps: to sort them, or to change them once all are found.
pub const KEPT_BYTES_MAX: usize = 512 << 20;

/// The bytes of an allocation beside its contents.
pub(super) const ALLOCATION_BYTES: usize = 16;

/// The bytes of a place in the list of a sort: a list that grows has room for twice as many, and a sort needs room for
/// half as many.
const PLACE_BYTES: usize = 2 * size_of::<Row>() + size_of::<Row>() / 2;

/// Rows in the order of their arrival. None of them moves when more arrive, so each takes only its own place.
pub(super) struct KeptRows<T> {
    pieces: Vec<Vec<T>>,
}

impl<T> KeptRows<T> {
    const PIECE: usize = 1_024;

    pub(super) fn new() -> KeptRows<T> {
        KeptRows { pieces: Vec::new() }
    }

    pub(super) fn push(&mut self, row: T) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < Self::PIECE => piece.push(row),
            // The first piece grows with its rows: most statements keep few.
            last => {
                let mut piece = if last.is_some() { Vec::with_capacity(Self::PIECE) } else { Vec::new() };
                piece.push(row);
                self.pieces.push(piece);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }
}

/// How much a statement may still keep.
pub(super) struct Budget {
    used: usize,
    max: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { used: 0, max: KEPT_BYTES_MAX }
    }
}

impl Budget {
    /// Takes this number of bytes of it.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Result<()> {
        self.used += bytes;
        if self.used <= self.max { Ok(()) } else { Err(self.exceeded()) }
    }

    /// Refuses rows that leave less than an eighth free. Otherwise rows that only just fit would be sorted again for
    /// each further row.
    fn leaves_an_eighth(&self) -> Result<()> {
        if self.used <= self.max - self.max / 8 { Ok(()) } else { Err(self.exceeded()) }
    }

    #[cold]
    fn exceeded(&self) -> SqlError {
        let message = format!("the statement would keep more than {} bytes of rows", self.max);
        SqlError::new(SqlState::OutOfMemory, message)
            .hint("Add a LIMIT, an index that has the order, or a condition; change fewer rows at a time.")
    }
}

/// The bytes that these values take beside their own place.
pub(crate) fn bytes_of<'v>(values: impl IntoIterator<Item = &'v Value>) -> usize {
    let bytes = |value: &Value| match value {
        Value::Text(text) => text.capacity() + ALLOCATION_BYTES,
        Value::Bytes(bytes) => bytes.capacity() + ALLOCATION_BYTES,
        _ => 0,
    };
    values.into_iter().map(bytes).sum()
}

/// A row that is sorted: its keys and its values.
type Row = (Vec<Value>, Vec<Value>);

/// Rows that arrive in any order and are wanted in another; if there is a limit, only the first of them. Rows with
/// equal keys stay in the order of their arrival.
pub(super) struct Sorted<'o> {
    rows: Vec<Row>,
    order: &'o [Order],
    /// At most this number of rows is wanted.
    wanted: usize,
    budget: Budget,
}

impl<'o> Sorted<'o> {
    /// In this order, for this number of rows.
    pub(super) fn new(order: &'o [Order], wanted: usize) -> Sorted<'o> {
        Sorted { rows: Vec::new(), order, wanted, budget: Budget::default() }
    }

    /// One more row.
    pub(super) fn push(&mut self, keys: Vec<Value>, values: Vec<Value>) -> Result<()> {
        let taken = self.budget.take(row_bytes(&keys, &values));
        self.rows.push((keys, values));
        if fault_injection::is_on("sort-keeps-all-rows") {
            return Ok(());
        }
        // At most twice the wanted number is kept, so a row is sorted a few times in all.
        if taken.is_err() {
            self.cut();
            self.budget.leaves_an_eighth()?;
        } else if self.rows.len() >= self.wanted.saturating_mul(2).max(1_024) {
            self.cut();
        }
        Ok(())
    }

    fn cut(&mut self) {
        if self.rows.len() <= self.wanted {
            return;
        }
        self.sort();
        self.rows.truncate(self.wanted);
        self.budget.used = self.rows.iter().map(|(keys, values)| row_bytes(keys, values)).sum();
    }

    fn sort(&mut self) {
        self.rows.sort_by(|(left, _), (right, _)| sort_order(self.order, left, right));
    }

    /// The rows in their order.
    pub(super) fn finish(mut self) -> impl Iterator<Item = Vec<Value>> + use<> {
        self.sort();
        self.rows.into_iter().map(|(_, values)| values)
    }
}

/// How two rows compare by the values of these keys.
pub(crate) fn sort_order(order: &[Order], left: &[Value], right: &[Value]) -> Ordering {
    for (item, (left, right)) in order.iter().zip(left.iter().zip(right)) {
        let by_null = |first: Ordering| if item.nulls_first { first } else { first.reverse() };
        let ordering = match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => by_null(Ordering::Less),
            (false, true) => by_null(Ordering::Greater),
            (false, false) => {
                let ordering = left.compare(right).unwrap_or(Ordering::Equal);
                if item.descending { ordering.reverse() } else { ordering }
            }
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

fn row_bytes(keys: &Vec<Value>, values: &Vec<Value>) -> usize {
    PLACE_BYTES + list_bytes(keys) + list_bytes(values)
}

/// The bytes that a list of values takes beside its own place.
pub(super) fn list_bytes(values: &Vec<Value>) -> usize {
    if values.capacity() == 0 {
        return 0;
    }
    values.capacity() * size_of::<Value>() + ALLOCATION_BYTES + bytes_of(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;

    fn by_key() -> [Order; 1] {
        [Order { expr: Expr::Column(0), descending: false, nulls_first: false }]
    }

    fn row(key: i32, number: i32) -> (Vec<Value>, Vec<Value>) {
        (vec![Value::Int4(key)], vec![Value::Int4(number)])
    }

    /// The first rows of a sort with a limit are those of a sort without one, equal keys in the order of their arrival.
    #[test]
    fn a_limit_keeps_the_first_rows_and_no_others() {
        let order = by_key();
        for wanted in [1, 2, 7, 1_000, 100_000] {
            let mut limited = Sorted::new(&order, wanted);
            let mut all = Sorted::new(&order, usize::MAX);
            for number in 0..20_000 {
                let key = (number * 7_919) % 101;
                let (keys, values) = row(key, number);
                limited.push(keys.clone(), values.clone()).unwrap();
                all.push(keys, values).unwrap();
                assert!(limited.rows.len() <= (2 * wanted).max(1_024));
            }
            let expected: Vec<_> = all.finish().take(wanted).collect();
            assert_eq!(limited.finish().take(wanted).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn rows_are_kept_up_to_a_bound() {
        let order = by_key();
        let mut sorted = Sorted::new(&order, usize::MAX);
        sorted.budget.max = 100_000;
        let error = (0..10_000).find_map(|number| {
            let (keys, values) = row(number, number);
            sorted.push(keys, values).err()
        });
        assert_eq!(error.expect("the bound was passed").sqlstate, SqlState::OutOfMemory);
        assert!(sorted.rows.len() < 1_000);
        // With a limit of few rows, any number may be read.
        let mut sorted = Sorted::new(&order, 10);
        sorted.budget.max = 100_000;
        for number in 0..100_000 {
            let (keys, values) = row(-number, number);
            sorted.push(keys, values).unwrap();
        }
        assert_eq!(sorted.finish().next(), Some(vec![Value::Int4(99_999)]));
    }

    /// The rows that arrived since the last sort at the bound pay for the next one: they have an eighth of it.
    #[test]
    fn rows_at_the_bound_are_not_sorted_again_for_each_row() {
        let order = by_key();
        let max = 100_000;
        let (keys, values) = row(0, 0);
        let fitting = max / row_bytes(&keys, &values);
        for (wanted, passes) in [(fitting / 2, true), (fitting * 3 / 4, true), (fitting - 1, false)] {
            let mut sorted = Sorted::new(&order, wanted);
            sorted.budget.max = max;
            let (mut cuts, mut failed) = (0, None);
            for number in 0..20_000 {
                let (keys, values) = row(-number, number);
                let before = sorted.rows.len();
                failed = sorted.push(keys, values).err();
                cuts += usize::from(sorted.rows.len() <= before);
                if failed.is_some() {
                    break;
                }
            }
            assert!(cuts <= 20_000 / (fitting / 8) + 1, "{cuts} sorts for {wanted} of {fitting} rows");
            assert_eq!(failed.map(|error| error.sqlstate), (!passes).then_some(SqlState::OutOfMemory));
        }
    }
}
