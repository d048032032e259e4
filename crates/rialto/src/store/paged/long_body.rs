//! [`LongBody`]: a body that is too long for a page of the primary tree, in parts.

/// Where the parts of a long body are, as the row of its primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LongBody {
    pub number: u64,
    pub bytes: u32,
}

impl LongBody {
    /// The bytes of such a row.
    pub const BYTES: usize = 12;

    pub fn of_row(row: &[u8]) -> LongBody {
        let (number, bytes) = row.split_at(8);
        LongBody {
            number: u64::from_le_bytes(number.try_into().expect("eight bytes")),
            bytes: u32::from_le_bytes(bytes.try_into().expect("four bytes")),
        }
    }

    pub fn row(self) -> [u8; LongBody::BYTES] {
        let mut row = [0; LongBody::BYTES];
        row[..8].copy_from_slice(&self.number.to_le_bytes());
        row[8..].copy_from_slice(&self.bytes.to_le_bytes());
        row
    }
}

/// The key of a part of a long body.
pub(super) fn part_key(number: u64, part: usize) -> [u8; PART_KEY_BYTES] {
    let mut key = [0; PART_KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&(part as u16).to_be_bytes());
    key
}

/// The bytes of such a key.
pub(super) const PART_KEY_BYTES: usize = 10;
