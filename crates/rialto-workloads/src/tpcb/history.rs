//! [`HistoryRow`]: a history row, set again for each transaction.

use std::sync::Arc;

use rialto::row::{Row, Schema, Timestamp, Value};

use super::Movement;

pub(super) const ACCOUNT: usize = 0;
pub(super) const TELLER: usize = 1;
pub(super) const BRANCH: usize = 2;
pub(super) const DELTA: usize = 3;
pub(super) const TIME: usize = 4;

/// The filler that makes a history row 50 bytes long.
pub(super) const FILLER: &str = "xxxxxxxxxxxxxxxxxxxx";

/// A history row whose fields are set in place, without encoding the rest.
#[derive(Debug)]
pub(super) struct HistoryRow(Row);

impl HistoryRow {
    /// A row of zeros.
    ///
    /// # Panics
    /// If the schema is not the history's.
    pub fn new(schema: Arc<Schema>) -> HistoryRow {
        let values = [
            Value::Int4(0),
            Value::Int4(0),
            Value::Int4(0),
            Value::Int8(0),
            Value::Timestamp(0),
            Value::Text(FILLER.to_owned()),
        ];
        HistoryRow(Row::from_values(schema, &values).expect("the history's columns are fixed"))
    }

    /// Sets every field but the filler.
    ///
    /// # Errors
    /// None of a history's row.
    #[inline]
    pub fn set(&mut self, movement: &Movement, time_us: i64) -> rialto::Result<()> {
        let Movement { account, teller, branch, delta } = movement;
        self.0.set(ACCOUNT, account)?;
        self.0.set(TELLER, teller)?;
        self.0.set(BRANCH, branch)?;
        self.0.set(DELTA, delta)?;
        self.0.set(TIME, &Timestamp(time_us))
    }

    pub fn row(&self) -> &Row {
        &self.0
    }
}
