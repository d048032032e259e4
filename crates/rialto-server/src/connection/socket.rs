//! [`Socket`]: a client's stream. A client that does not read is given up.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::Stream;

/// A client has to take this many bytes, or all that wait, within the write time-out: so a client that reads a byte now
/// and then is given up, too.
const STEP_BYTES: usize = 256 << 10;

/// A client's stream after start-up.
pub(super) struct Socket<S> {
    stream: S,
    write_timeout: Option<Duration>,
    /// A write has failed: the client is gone, and nothing waits for it again.
    failed: bool,
}

impl<S: Stream> Socket<S> {
    pub(super) fn new(stream: S, write_timeout: Option<Duration>) -> Socket<S> {
        Socket { stream, write_timeout, failed: false }
    }

    /// Sends all of it; waits for a client that reads slowly, up to the write time-out.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        for step in bytes.chunks(STEP_BYTES) {
            let sent = match self.stream.write(step) {
                Ok(written) if written == step.len() => Ok(()),
                first => self.send_rest(first, step),
            };
            if sent.is_err() {
                self.failed = true;
                return sent;
            }
        }
        Ok(())
    }

    /// After the first write of a step has not sent all of it.
    #[cold]
    fn send_rest(&mut self, mut answer: io::Result<usize>, mut step: &[u8]) -> io::Result<()> {
        let began = Instant::now();
        loop {
            match answer {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => step = &step[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if step.is_empty() {
                return Ok(());
            }
            if self.write_timeout.is_some_and(|limit| began.elapsed() >= limit) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            answer = self.stream.write(step);
        }
    }
}

impl<S: Stream> Read for Socket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::Closer;
    use super::*;

    /// A client that takes a byte at a time, each after a while, and none at all after `takes` of them.
    struct Trickle {
        takes: usize,
        calls: usize,
    }

    impl Read for Trickle {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Write for Trickle {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            std::thread::sleep(Duration::from_millis(1));
            if self.calls > self.takes { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Trickle {
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

    #[test]
    fn a_client_that_reads_too_little_is_given_up_for_good() {
        for (takes, limit) in [(usize::MAX, Duration::from_millis(20)), (3, Duration::from_secs(3_600))] {
            let mut socket = Socket::new(Trickle { takes, calls: 0 }, Some(limit));
            assert!(socket.send(&[0; 1 << 20]).is_err());
            let calls = socket.stream.calls;
            assert!(socket.send(b"more").is_err());
            assert_eq!(socket.stream.calls, calls, "nothing waits for it again");
        }
        let mut socket = Socket::new(Trickle { takes: 9, calls: 0 }, None);
        assert!(socket.send(&[0; 9]).is_ok());
    }
}
