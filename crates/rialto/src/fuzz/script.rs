//! [`Script`]: an input as a sequence of choices.

/// The bytes of an input, taken one number at a time; zeros behind its end.
#[derive(Debug)]
pub struct Script<'d> {
    rest: &'d [u8],
}

impl<'d> Script<'d> {
    /// A script from the first byte on.
    pub fn of(data: &'d [u8]) -> Script<'d> {
        Script { rest: data }
    }

    /// Whether all bytes are taken.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next `bytes` bytes as a number, at most eight, the lowest first.
    pub fn number(&mut self, bytes: usize) -> u64 {
        let taken = self.bytes(bytes);
        taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bytes = if bound <= 1 << 8 { 1 } else { 4 };
        self.number(bytes) as usize % bound
    }

    /// The next `most` bytes, fewer at the end.
    pub fn bytes(&mut self, most: usize) -> &'d [u8] {
        let (taken, rest) = self.rest.split_at(most.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}
