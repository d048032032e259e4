//! [`Lines`]: the lines of a new order, as one argument of its procedure.
//!
//! There are as many as the order has, 1 to [`LINES_MAX`], so they are bytes: of each line the item, 4 bytes, the supplying
//! warehouse, 2 bytes, and the quantity, 1 byte; integers little endian.

use rialto::row::Value;

/// The most lines of an order.
pub const LINES_MAX: usize = 15;
/// The bytes of a line.
pub const LINE_BYTES: usize = 7;

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The item.
    pub item: i32,
    /// The warehouse that has it in stock.
    pub supply_warehouse: i16,
    /// How many of it.
    pub quantity: u8,
}

impl Line {
    /// Appends it to those before it.
    pub fn append_to(self, lines: &mut Vec<u8>) {
        lines.extend_from_slice(&self.item.to_le_bytes());
        lines.extend_from_slice(&self.supply_warehouse.to_le_bytes());
        lines.push(self.quantity);
    }

    /// `bytes` are [`LINE_BYTES`].
    #[inline]
    fn of(bytes: &[u8]) -> Line {
        Line {
            item: i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            supply_warehouse: i16::from_le_bytes([bytes[4], bytes[5]]),
            quantity: bytes[6],
        }
    }
}

/// The lines of an order.
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a>(&'a [u8]);

impl<'a> Lines<'a> {
    /// Those of an argument; what is behind the last whole line is left out. An argument that is none has none.
    #[inline]
    pub fn of(argument: Option<&'a Value>) -> Lines<'a> {
        match argument {
            Some(Value::Bytes(bytes)) => Lines(bytes),
            _ => Lines(&[]),
        }
    }

    /// What is wrong with them, if anything.
    pub fn problem(self) -> Option<String> {
        let (bytes, most) = (self.0.len(), LINES_MAX * LINE_BYTES);
        let is_sound = (LINE_BYTES..=most).contains(&bytes) && bytes.is_multiple_of(LINE_BYTES);
        (!is_sound).then(|| {
            format!("its lines are {bytes} bytes, expected {LINE_BYTES} for each of 1 to {LINES_MAX} lines")
        })
    }

    /// How many there are.
    #[inline]
    pub fn count(self) -> usize {
        self.0.len() / LINE_BYTES
    }

    /// The line at a position, counted from 0.
    #[inline]
    pub fn get(self, position: usize) -> Option<Line> {
        let at = position * LINE_BYTES;
        self.0.get(at..at + LINE_BYTES).map(Line::of)
    }

    /// All of them.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Line> + 'a {
        self.0.chunks_exact(LINE_BYTES).map(Line::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let line =
            |number: i32| Line { item: number, supply_warehouse: -number as i16, quantity: number as u8 };
        let mut bytes = Vec::new();
        for count in 1..=LINES_MAX {
            line(count as i32).append_to(&mut bytes);
            let argument = Value::Bytes(bytes.clone());
            let lines = Lines::of(Some(&argument));
            assert_eq!((lines.problem(), lines.count()), (None, count));
            assert!(lines.iter().eq((1..=count as i32).map(line)));
            assert_eq!((lines.get(count - 1), lines.get(count)), (Some(line(count as i32)), None));
        }
    }

    #[test]
    fn what_are_no_lines_is_told_what_was_expected() {
        for bytes in [0, 1, 9, LINES_MAX * LINE_BYTES + 1, (LINES_MAX + 1) * LINE_BYTES] {
            let problem = Lines(&vec![0; bytes]).problem().expect("a problem");
            assert!(problem.contains(&format!("{bytes} bytes, expected 7 for each of 1 to 15")), "{problem}");
        }
        assert!(Lines::of(Some(&Value::Null)).problem().is_some() && Lines::of(None).problem().is_some());
    }
}
