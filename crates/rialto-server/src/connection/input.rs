//! [`Input`]: bytes from a client, cut into messages.

use std::io;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::protocol::Malformed;
use crate::protocol::frontend::MESSAGE_BYTES_MAX;

/// The buffer that is kept when nothing is in it.
const BUFFER_BYTES: usize = 16 * 1024;

/// Bytes that came and are not used yet.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
}

impl Input {
    /// Reads what there is, at least one byte; `false` at the end.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.start > 0 {
            // What is left is a part of one message: little, unless the message is large and just begun.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > 64 * BUFFER_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.reserve(BUFFER_BYTES);
        let read = ready!(pin!(stream.read_buf(&mut self.bytes)).poll(cx))?;
        Poll::Ready(Ok(read > 0))
    }

    /// The next message: its tag and where its body lies; `None` if it has not come in full.
    pub(super) fn next(&mut self) -> Result<Option<(u8, Range<usize>)>, Malformed> {
        let rest = &self.bytes[self.start..];
        let Some((head, _)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Malformed(format!(
                "message of {length} bytes; 4 to {MESSAGE_BYTES_MAX} are allowed"
            )));
        }
        if rest.len() < 1 + length {
            return Ok(None);
        }
        let body = self.start + 5..self.start + 1 + length;
        self.start = body.end;
        Ok(Some((head[0], body)))
    }

    /// Lends the bytes, so that a message can be read while the connection is worked on. Give them back.
    pub(super) fn lend(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn fill(input: &mut Input, mut piece: &[u8]) -> io::Result<bool> {
        poll_fn(|cx| input.poll_fill(&mut piece, cx)).await
    }

    #[tokio::test]
    async fn messages_come_out_whole_however_they_came_in() {
        let mut bytes = Vec::new();
        for text in ["a", "", "longer text"] {
            bytes.push(b'Q');
            bytes.extend_from_slice(&(4 + text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for step in 1..bytes.len() {
            let mut input = Input::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                assert!(fill(&mut input, piece).await.unwrap());
                while let Some((tag, body)) = input.next().unwrap() {
                    assert_eq!(tag, b'Q');
                    let lent = input.lend();
                    found.push(String::from_utf8(lent[body].to_vec()).unwrap());
                    input.give_back(lent);
                }
            }
            assert_eq!(found, ["a", "", "longer text"]);
        }
    }

    #[tokio::test]
    async fn a_length_that_makes_no_sense_is_refused() {
        let mut input = Input::default();
        fill(&mut input, b"Q\0\0\0\x03").await.unwrap();
        assert!(input.next().is_err());
        let mut input = Input::default();
        fill(&mut input, b"Q\xff\xff\xff\xff").await.unwrap();
        assert!(input.next().is_err());
    }
}
