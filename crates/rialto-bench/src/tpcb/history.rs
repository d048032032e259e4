//! [`HistoryRow`]: a history row, written in place for each transaction.

use rialto::row::{Schema, Value, encode};

use super::Movement;

pub(super) const ACCOUNT: usize = 0;
pub(super) const TELLER: usize = 1;
pub(super) const BRANCH: usize = 2;
pub(super) const DELTA: usize = 3;
pub(super) const TIME: usize = 4;

/// The filler that makes a history row 50 bytes long.
pub(super) const FILLER_BYTES: usize = 20;

/// An encoded history row whose fixed fields are set again and again, without encoding the rest.
#[derive(Debug)]
pub(super) struct HistoryRow {
    bytes: Vec<u8>,
    offsets: [usize; 5],
}

fn values(movement: &Movement, time_us: i64) -> [Value; 6] {
    [
        Value::Int4(movement.account),
        Value::Int4(movement.teller),
        Value::Int4(movement.branch),
        Value::Int8(movement.delta),
        Value::Timestamp(time_us),
        Value::Text("x".repeat(FILLER_BYTES)),
    ]
}

impl HistoryRow {
    /// A row of zeros.
    ///
    /// # Panics
    /// If setting a field in place does not give the row that encoding its value gives.
    pub fn new(schema: &Schema) -> HistoryRow {
        let encoded = |movement: &Movement, time_us| {
            let mut bytes = Vec::new();
            encode(schema, &values(movement, time_us), &mut bytes).expect("the history's columns are fixed");
            bytes
        };
        let offset = |column| {
            let slot = schema.fixed_field(column).expect("the first columns are fixed");
            usize::from(slot.offset)
        };
        let zero = Movement { account: 0, teller: 0, branch: 0, delta: 0 };
        let offsets = [ACCOUNT, TELLER, BRANCH, DELTA, TIME].map(offset);
        let mut row = HistoryRow { bytes: encoded(&zero, 0), offsets };
        let probe = Movement { account: 0x0102_0304, teller: -5, branch: 0x0607, delta: -0x0908_0706_0504 };
        row.set(&probe, 0x0a0b_0c0d_0e0f);
        assert_eq!(row.bytes, encoded(&probe, 0x0a0b_0c0d_0e0f), "a row's fixed fields are little-endian");
        row
    }

    /// Sets every field but the filler.
    #[inline]
    pub fn set(&mut self, movement: &Movement, time_us: i64) {
        let Movement { account, teller, branch, delta } = *movement;
        self.put(ACCOUNT, account.to_le_bytes());
        self.put(TELLER, teller.to_le_bytes());
        self.put(BRANCH, branch.to_le_bytes());
        self.put(DELTA, delta.to_le_bytes());
        self.put(TIME, time_us.to_le_bytes());
    }

    #[inline]
    fn put<const N: usize>(&mut self, column: usize, value: [u8; N]) {
        let at = self.offsets[column];
        self.bytes[at..at + N].copy_from_slice(&value);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
