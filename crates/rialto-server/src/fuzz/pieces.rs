//! [`InMemory`]: a client that is served on the caller's thread, without a socket. [`Pieces`]: a client that has sent
//! everything, and keeps the answers.

use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::connection::{Closer, Stream};

/// A stream in place of a socket: its `read` gives what the client sends, its `write` takes the answers, and neither
/// waits.
pub struct InMemory<C>(pub C);

impl<C: Read> Read for InMemory<C> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<C: Write> Write for InMemory<C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<C: Read + Write + Send> Stream for InMemory<C> {
    fn closer(&self) -> io::Result<Closer> {
        Ok(Box::new(|_| ()))
    }

    fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn set_write_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

/// A client's bytes, which arrive in pieces.
pub struct Pieces {
    pieces: std::vec::IntoIter<Vec<u8>>,
    /// The rest of the piece that is arriving.
    piece: Cursor<Vec<u8>>,
    answers: Arc<Mutex<Vec<u8>>>,
}

impl Pieces {
    /// The stream, and the buffer of the answers.
    pub fn new(pieces: Vec<Vec<u8>>) -> (InMemory<Pieces>, Arc<Mutex<Vec<u8>>>) {
        let answers = Arc::new(Mutex::new(Vec::new()));
        let pieces =
            Pieces { pieces: pieces.into_iter(), piece: Cursor::default(), answers: answers.clone() };
        (InMemory(pieces), answers)
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(next) = self.pieces.next() else { return Ok(0) };
            self.piece = Cursor::new(next);
        }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answers.lock().expect("nothing panics with it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
