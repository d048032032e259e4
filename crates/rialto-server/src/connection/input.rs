//! [`Input`]: bytes from a client, cut into messages.

use std::io;
use std::sync::Arc;

use rialto_sql::SqlError;
use rialto_sql::room::{Room, SMALL_BYTES, Taken};

use crate::protocol::Malformed;
use crate::protocol::frontend;

/// The least room for a read.
const BUFFER_BYTES: usize = 16 * 1024;

/// Bytes that have arrived and are not used yet.
///
/// Invariant: beyond [`SMALL_BYTES`] the buffer is at most an eighth longer than what has arrived, whatever length was
/// announced, and takes its bytes from a [`Room`] of the server. A message without room is skipped.
pub(super) struct Input {
    /// The buffer; the bytes from `start` to `end` have arrived.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    taken: Taken,
    refused: Option<Box<Refused>>,
}

/// A message that is being skipped.
struct Refused {
    tag: u8,
    /// Its bytes that are still to come.
    left: usize,
    error: Box<SqlError>,
}

/// What has arrived.
pub(super) enum Came<'a> {
    /// A message: its tag and its body.
    Message(u8, &'a [u8]),
    /// A message with this tag that was skipped, and the reason.
    Refused(u8, Box<SqlError>),
}

impl Input {
    pub(super) fn new(room: &Arc<Room>) -> Input {
        Input { bytes: Vec::new(), start: 0, end: 0, taken: Taken::of(room), refused: None }
    }

    /// Reads what there is, at least one byte; `false` at the end. `read` is given whether the unfinished message takes
    /// room.
    pub(super) fn fill(
        &mut self,
        mut read: impl FnMut(&mut [u8], bool) -> io::Result<usize>,
    ) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            // The rest is a part of one message: little, unless the message is large and has just begun.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Where no message has begun, a buffer that is neither too short nor too long is right.
        if self.end > 0 || !(BUFFER_BYTES..=SMALL_BYTES).contains(&self.bytes.len()) {
            self.make_room();
        }
        loop {
            match read(&mut self.bytes[self.end..], !self.taken.is_empty()) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes room for a read.
    #[inline(never)]
    fn make_room(&mut self) {
        let announced = self.announced();
        // The message, and room for what follows it.
        let whole = announced.map_or(0, |(_, bytes)| bytes).max(self.end) + BUFFER_BYTES;
        let step = (self.end + self.end / 8).max(SMALL_BYTES);
        let length = whole.min(step).max(self.end + BUFFER_BYTES);
        // The buffer of a long message is not kept for the next one, which may never come.
        if self.bytes.len() > length.max(SMALL_BYTES) {
            self.resize(length);
        }
        let too_long = announced.and_then(|(tag, bytes)| frontend::too_long(tag, bytes));
        let grown = match too_long {
            Some(error) => Err(error),
            None if self.bytes.len() - self.end >= BUFFER_BYTES => Ok(()),
            None => self.fit(length).map(|()| self.resize(length)),
        };
        if let (Err(error), Some((tag, bytes))) = (grown, announced) {
            self.refused = Some(Box::new(Refused { tag, left: bytes - self.end, error: Box::new(error) }));
            self.end = 0;
            self.resize(BUFFER_BYTES);
        }
    }

    /// The unfinished message: its tag and its whole length.
    fn announced(&self) -> Option<(u8, usize)> {
        let head = self.bytes[..self.end].first_chunk::<5>()?;
        // An error in it has been told already.
        let length = frontend::message_bytes(head[0], [head[1], head[2], head[3], head[4]]).ok()?;
        Some((head[0], 1 + length))
    }

    /// Takes or gives back room for a buffer of this length.
    fn fit(&mut self, length: usize) -> Result<(), SqlError> {
        self.taken
            .fit(length, "the message")
            .map_err(|error| error.hint("Try again when less is received, or send it in smaller parts."))
    }

    /// Makes the buffer this long; it has the room.
    fn resize(&mut self, length: usize) {
        if length < self.bytes.len() {
            self.bytes.truncate(length);
            self.bytes.shrink_to_fit();
            let _ = self.fit(length);
        } else {
            self.bytes.reserve_exact(length - self.bytes.len());
            self.bytes.resize(length, 0);
        }
    }

    /// The next message; `None` if it has not arrived in full.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Came<'_>>, Malformed> {
        if self.refused.is_some() {
            return Ok(self.pass_over());
        }
        let rest = &self.bytes[self.start..self.end];
        let Some((head, _)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let length = frontend::message_bytes(head[0], [head[1], head[2], head[3], head[4]])?;
        if rest.len() < 1 + length {
            return Ok(None);
        }
        self.start += 1 + length;
        Ok(Some(Came::Message(head[0], &rest[5..1 + length])))
    }

    /// Skips what has arrived of a refused message.
    #[cold]
    fn pass_over(&mut self) -> Option<Came<'static>> {
        let refused = self.refused.as_mut()?;
        let come = refused.left.min(self.end - self.start);
        self.start += come;
        refused.left -= come;
        if refused.left > 0 {
            return None;
        }
        let Refused { tag, error, .. } = *self.refused.take()?;
        Some(Came::Refused(tag, error))
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
    use std::io::Read;

    use super::*;

    fn fresh() -> Input {
        Input::new(&Room::new(8 << 30))
    }

    /// The beginning of a message whose body has this number of bytes.
    fn head(tag: u8, body: usize) -> Vec<u8> {
        let mut head = vec![tag];
        head.extend_from_slice(&(4 + body as u32).to_be_bytes());
        head
    }

    /// Sends `sent`; gives a short form of what arrived.
    fn feed(input: &mut Input, mut sent: &[u8]) -> Vec<String> {
        let mut came = Vec::new();
        while !sent.is_empty() {
            assert!(input.fill(|buffer, _| sent.read(buffer)).unwrap());
            while let Some(next) = input.next().unwrap() {
                came.push(match next {
                    Came::Message(tag, body) => format!("{} {}", tag as char, body.len()),
                    Came::Refused(tag, error) => format!("{} {}", tag as char, error.sqlstate.code()),
                });
            }
        }
        came
    }

    #[test]
    fn a_message_takes_memory_as_it_comes() {
        let mut input = fresh();
        let body = 20 << 20;
        assert_eq!(feed(&mut input, &head(b'd', body)), [""; 0]);
        assert!(input.bytes.capacity() <= SMALL_BYTES, "as good as nothing has come");
        let mut come = 5;
        for piece in vec![7; body].chunks(100_000) {
            let whole = feed(&mut input, piece);
            come += piece.len();
            let (room, most) =
                (input.bytes.capacity(), (come + come / 8).max(SMALL_BYTES) + 2 * BUFFER_BYTES);
            assert!(room <= most, "{room} bytes for {come}");
            assert_eq!(whole.is_empty(), come < 5 + body);
        }
        assert_eq!(feed(&mut input, &[head(b'Q', 1), vec![0]].concat()), ["Q 1"]);
        assert!(input.bytes.capacity() <= SMALL_BYTES && input.taken.is_empty(), "it is given back");
        // A message that is as long, but does not come.
        assert_eq!(feed(&mut input, &[head(b'd', body), vec![7; body]].concat()).len(), 1);
        assert_eq!(feed(&mut input, &head(b'd', body)), [""; 0]);
        assert!(input.bytes.capacity() <= SMALL_BYTES, "it waits");
    }

    #[test]
    fn what_has_no_room_is_passed_over() {
        let room = Room::new(3 * SMALL_BYTES);
        let [mut one, mut other] = [(); 2].map(|()| Input::new(&room));
        let body = 3 * SMALL_BYTES;
        let message = [head(b'B', body), vec![7; body]].concat();
        let next = [head(b'S', 0), head(b'Q', 1), vec![0]].concat();
        assert!(feed(&mut one, &message[..body]).is_empty());
        let came = feed(&mut other, &[message.clone(), next.clone()].concat());
        assert_eq!(came, ["B 53200", "S 0", "Q 1"]);
        assert_eq!(
            feed(&mut other, &[head(b'B', SMALL_BYTES / 2), vec![7; SMALL_BYTES / 2]].concat()).len(),
            1
        );
        assert_eq!(feed(&mut one, &message[body..]), [format!("B {body}")]);
        drop(one);
        assert_eq!(feed(&mut other, &message), [format!("B {body}")]);
        // A statement that is too long takes no room, however much there is.
        let text = 18 << 20;
        let long = [head(b'P', text), vec![7; text], next].concat();
        assert_eq!(feed(&mut fresh(), &long), ["P 54000", "S 0", "Q 1"]);
    }

    #[test]
    fn messages_come_out_whole_however_they_came_in() {
        let mut bytes = Vec::new();
        for text in ["a", "", "longer text"] {
            bytes.push(b'Q');
            bytes.extend_from_slice(&(4 + text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for step in 1..bytes.len() {
            let mut input = fresh();
            let mut found = Vec::new();
            for mut piece in bytes.chunks(step) {
                assert!(input.fill(|buffer, _| piece.read(buffer)).unwrap());
                while let Some(Came::Message(tag, body)) = input.next().unwrap() {
                    assert_eq!(tag, b'Q');
                    found.push(String::from_utf8(body.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["a", "", "longer text"]);
        }
    }

    #[test]
    fn a_length_that_makes_no_sense_is_refused() {
        let mut input = fresh();
        input.fill(|buffer, _| (&b"Q\0\0\0\x03"[..]).read(buffer)).unwrap();
        assert!(input.next().is_err());
        let mut input = fresh();
        input.fill(|buffer, _| (&b"Q\xff\xff\xff\xff"[..]).read(buffer)).unwrap();
        assert!(input.next().is_err());
        for head in [&b"S\0\0\x27\x11"[..], b"!\0\0\0\x04", b"E\x01\0\0\0"] {
            let mut input = fresh();
            input.fill(|buffer, _| (&head[..]).read(buffer)).unwrap();
            assert!(input.next().is_err(), "{head:?} before its body has come");
        }
    }
}
