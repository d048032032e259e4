//! [`Input`]: bytes from a client, cut into messages.

use std::io::{self, Read};

use crate::protocol::Malformed;
use crate::protocol::frontend;

/// The buffer that is kept when nothing is in it.
const BUFFER_BYTES: usize = 16 * 1024;

/// Bytes that came and are not used yet.
#[derive(Default)]
pub(super) struct Input {
    /// Room for bytes; those from `start` to `end` have come.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Reads what there is, at least one byte; `false` at the end.
    pub(super) fn fill(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        if self.start > 0 {
            // What is left is a part of one message: little, unless the message is large and just begun.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == 0 && self.bytes.len() > 64 * BUFFER_BYTES {
            self.bytes = Vec::new();
        }
        if self.bytes.len() - self.end < BUFFER_BYTES {
            let length = (2 * self.end).max(self.end + BUFFER_BYTES);
            self.bytes.resize(length, 0);
        }
        loop {
            match stream.read(&mut self.bytes[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next message: its tag and its body; `None` if it has not come in full.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u8, &[u8])>, Malformed> {
        let rest = &self.bytes[self.start..self.end];
        let Some((head, _)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let length = frontend::message_bytes(head[0], [head[1], head[2], head[3], head[4]])?;
        if rest.len() < 1 + length {
            return Ok(None);
        }
        self.start += 1 + length;
        Ok(Some((head[0], &rest[5..1 + length])))
    }

    /// Takes these bytes if they come next.
    #[inline]
    pub(super) fn skip(&mut self, wanted: &[u8]) -> bool {
        let comes = self.bytes[self.start..self.end].starts_with(wanted);
        if comes {
            self.start += wanted.len();
        }
        comes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_came_in() {
        let mut bytes = Vec::new();
        for text in ["a", "", "longer text"] {
            bytes.push(b'Q');
            bytes.extend_from_slice(&(4 + text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for step in 1..bytes.len() {
            let mut input = Input::default();
            let mut found = Vec::new();
            for mut piece in bytes.chunks(step) {
                assert!(input.fill(&mut piece).unwrap());
                while let Some((tag, body)) = input.next().unwrap() {
                    assert_eq!(tag, b'Q');
                    found.push(String::from_utf8(body.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["a", "", "longer text"]);
        }
    }

    #[test]
    fn a_length_that_makes_no_sense_is_refused() {
        let mut input = Input::default();
        input.fill(&mut &b"Q\0\0\0\x03"[..]).unwrap();
        assert!(input.next().is_err());
        let mut input = Input::default();
        input.fill(&mut &b"Q\xff\xff\xff\xff"[..]).unwrap();
        assert!(input.next().is_err());
        for head in [&b"S\0\0\x27\x11"[..], b"!\0\0\0\x04", b"E\x01\0\0\0"] {
            let mut input = Input::default();
            input.fill(&mut &head[..]).unwrap();
            assert!(input.next().is_err(), "{head:?} before its body has come");
        }
    }
}
