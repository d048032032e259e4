//! [`Pieces`]: a client that has sent everything, and keeps what it is answered.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::connection::{Closer, Stream};

/// A client's bytes, which arrive in pieces of at most so many.
pub(super) struct Pieces {
    sent: Vec<u8>,
    /// How many have arrived.
    at: usize,
    piece: usize,
    answers: Arc<Mutex<Vec<u8>>>,
}

impl Pieces {
    /// The stream, and where the answers come.
    pub(super) fn of(sent: Vec<u8>, piece: usize) -> (Pieces, Arc<Mutex<Vec<u8>>>) {
        let answers = Arc::new(Mutex::new(Vec::new()));
        (Pieces { sent, at: 0, piece, answers: answers.clone() }, answers)
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.piece.min(buffer.len());
        let count = (&self.sent[self.at..]).read(&mut buffer[..most])?;
        self.at += count;
        Ok(count)
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

impl Stream for Pieces {
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
