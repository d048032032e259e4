//! The binary format: a header, tuples of values in their binary forms, and an end marker.

use super::lines::Found;
use super::{Scratch, bad_format};
use crate::error::{Result, SqlError, SqlState};

/// The beginning of the data. A transfer that changes line ends or drops high bits damages it.
pub(super) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Flags of which a reader must know each that is set: of these, none is known.
const CRITICAL: u32 = 0xffff_0000;
/// The flag of data with the numbers of rows.
const WITH_OIDS: u32 = 1 << 16;

/// What the next number means.
#[derive(Clone, Copy)]
enum Number {
    Flags,
    /// The length of the header's extension, which is passed over.
    Extension,
    /// The number of a tuple's values.
    Count,
    /// The length of a value; with so many values of the tuple left, this one included.
    Length(u16),
}

/// Finds the ends of records: of the header, the tuples, and the end marker. Data are checked as they come.
pub(super) struct Tuples {
    columns: usize,
    next: Number,
    /// The number so far, and the number of its bytes.
    number: (u32, usize),
    /// Bytes to pass over before the next number.
    pass: usize,
    /// Whether the record ends there.
    ends: bool,
    header: bool,
    /// Whether a part of a record has come.
    begun: bool,
}

impl Tuples {
    pub(super) fn new(columns: usize) -> Tuples {
        Tuples {
            columns,
            next: Number::Flags,
            number: (0, 0),
            pass: SIGNATURE.len(),
            ends: false,
            header: true,
            begun: false,
        }
    }

    pub(super) fn find(&mut self, data: &[u8]) -> Result<Found> {
        let mut at = 0;
        self.begun |= !data.is_empty();
        loop {
            let passed = self.pass.min(data.len() - at);
            if let (Number::Flags, 0) = (self.next, self.number.1) {
                let expected = &SIGNATURE[SIGNATURE.len() - self.pass..][..passed];
                if data[at..at + passed] != *expected {
                    return Err(bad_format("COPY file signature not recognized"));
                }
            }
            at += passed;
            self.pass -= passed;
            if self.pass > 0 {
                return Ok(Found { record: at, next: None });
            }
            if std::mem::take(&mut self.ends) {
                (self.next, self.begun) = (Number::Count, false);
                return Ok(Found { record: at, next: Some(at) });
            }
            let width = if matches!(self.next, Number::Count) { 2 } else { 4 };
            while self.number.1 < width {
                let Some(&byte) = data.get(at) else { return Ok(Found { record: at, next: None }) };
                self.number = (self.number.0 << 8 | u32::from(byte), self.number.1 + 1);
                at += 1;
            }
            let (number, _) = std::mem::take(&mut self.number);
            self.number_read(number)?;
        }
    }

    fn number_read(&mut self, number: u32) -> Result<()> {
        match self.next {
            Number::Flags if number & WITH_OIDS != 0 => {
                return Err(bad_format("invalid COPY file header (WITH OIDS)"));
            }
            Number::Flags if number & CRITICAL != 0 => {
                return Err(bad_format("unrecognized critical flags in COPY file header"));
            }
            Number::Flags => self.next = Number::Extension,
            Number::Extension => {
                let wrong = |_| bad_format("invalid COPY file header (wrong length)");
                self.pass = i32::try_from(number).map_err(wrong)? as usize;
                self.ends = true;
            }
            Number::Count if number == u32::from(u16::MAX) => self.ends = true,
            Number::Count if number as usize != self.columns => {
                let (found, expected) = (number as u16 as i16, self.columns);
                return Err(bad_format(&format!("row field count is {found}, expected {expected}")));
            }
            Number::Count => self.length_next(number as u16),
            Number::Length(left) => {
                if number != u32::MAX {
                    let wrong = |_| bad_format("invalid field size");
                    self.pass = i32::try_from(number).map_err(wrong)? as usize;
                }
                self.length_next(left - 1);
            }
        }
        Ok(())
    }

    fn length_next(&mut self, left: u16) {
        match left {
            0 => self.ends = true,
            left => self.next = Number::Length(left),
        }
    }

    /// The data have ended.
    pub(super) fn end(&self) -> Result<()> {
        match (self.header, self.begun) {
            (true, false) => Err(bad_format("COPY file signature not recognized")),
            (_, true) => Err(bad_format("unexpected EOF in COPY data")),
            (false, false) => Ok(()),
        }
    }

    /// Whether the header has not come yet.
    pub(super) fn is_in_header(&self) -> bool {
        self.header
    }

    /// Whether the record that was found is the header.
    pub(super) fn take_header(&mut self) -> bool {
        std::mem::take(&mut self.header)
    }
}

/// The values of a record, as places in it. `false` for the end marker.
pub(super) fn split(record: &[u8], scratch: &mut Scratch) -> Result<bool> {
    let broken = || SqlError::new(SqlState::Internal, "a tuple of a COPY was cut wrongly");
    scratch.values.clear();
    let (count, mut rest) = record.split_first_chunk::<2>().ok_or_else(broken)?;
    if *count == [0xff, 0xff] {
        return Ok(false);
    }
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let start = record.len() - behind.len();
        let value = usize::try_from(i32::from_be_bytes(*length)).ok().map(|length| start..start + length);
        rest = match &value {
            Some(value) => record.get(value.end..).ok_or_else(broken)?,
            None => behind,
        };
        scratch.values.push(value);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with an extension, tuples, and the end marker.
    fn data() -> Vec<u8> {
        let mut data = [&SIGNATURE[..], &[0, 0, 0, 7], &[0, 0, 0, 3], b"ext"].concat();
        data.extend_from_slice(b"\0\x02\0\0\0\x03abc\xff\xff\xff\xff");
        data.extend_from_slice(b"\0\x02\0\0\0\0\0\0\0\x01d\xff\xff");
        data
    }

    #[test]
    fn records_are_found_however_data_are_cut() {
        let data = data();
        for cut in 1..=data.len() {
            let (mut tuples, mut records, mut pending) = (Tuples::new(2), Vec::new(), Vec::new());
            for mut piece in data.chunks(cut) {
                loop {
                    let found = tuples.find(piece).unwrap();
                    pending.extend_from_slice(&piece[..found.record]);
                    let Some(next) = found.next else { break };
                    records.push(std::mem::take(&mut pending));
                    piece = &piece[next..];
                }
            }
            let lengths: Vec<usize> = records.iter().map(Vec::len).collect();
            assert_eq!(lengths, [22, 13, 11, 2], "pieces of {cut}");
            let mut scratch = Scratch::default();
            assert!(split(&records[1], &mut scratch).unwrap());
            assert_eq!(scratch.values, [Some(6..9), None]);
            assert!(split(&records[2], &mut scratch).unwrap());
            assert_eq!(scratch.values, [Some(6..6), Some(10..11)]);
            assert!(!split(&records[3], &mut scratch).unwrap());
            assert!(tuples.take_header() && tuples.end().is_ok());
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let message = |data: &[u8]| {
            let mut tuples = Tuples::new(2);
            match tuples.find(data) {
                Err(error) => error.message,
                Ok(_) => tuples.end().map_or_else(|error| error.message, |()| String::new()),
            }
        };
        let with = |flags: [u8; 4], length: [u8; 4]| [&SIGNATURE[..], &flags, &length].concat();
        assert_eq!(message(b""), "COPY file signature not recognized");
        assert_eq!(message(b"1\tx\n"), "COPY file signature not recognized");
        assert_eq!(message(&SIGNATURE[..5]), "unexpected EOF in COPY data");
        assert_eq!(message(&with([0, 1, 0, 0], [0; 4])), "invalid COPY file header (WITH OIDS)");
        assert_eq!(message(&with([0, 2, 0, 0], [0; 4])), "unrecognized critical flags in COPY file header");
        assert_eq!(message(&with([0; 4], [0x80, 0, 0, 0])), "invalid COPY file header (wrong length)");
    }
}
