//! [`Socket`]: a client's stream. The connection ends if the client does not read, or stops in the middle of input that
//! takes shared room.

use std::io;
use std::time::{Duration, Instant};

use rialto_sql::{SqlError, SqlState};

use super::Stream;

/// A client has to read this many bytes, or all that are waiting, within the write time-out. So the connection of a
/// client that reads a byte now and then ends, too. The client has to send as many, or the rest, of input that takes
/// room shared by all connections.
const STEP_BYTES: usize = 256 << 10;

/// A client's stream after start-up.
pub(super) struct Socket<S> {
    stream: S,
    write_timeout: Option<Duration>,
    /// A write has failed: the client is gone, and nothing waits for it again.
    failed: bool,
    /// The bytes that the client has sent of a hurried step, and how long the server has waited for them.
    step: Option<(usize, Duration)>,
}

impl<S: Stream> Socket<S> {
    pub(super) fn new(stream: S, write_timeout: Option<Duration>) -> Socket<S> {
        Socket { stream, write_timeout, failed: false, step: None }
    }

    /// Sends all of it. Waits for a client that reads slowly, up to the write time-out.
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

    /// After the first write of a step has not sent everything.
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

impl<S: Stream> Socket<S> {
    /// Reads what there is. `hurried` input has to come within the write time-out; only the time that the server waits
    /// for it counts.
    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8], hurried: bool) -> io::Result<usize> {
        if hurried || self.step.is_some() {
            self.read_step(buffer, hurried)
        } else {
            self.stream.read(buffer)
        }
    }

    #[cold]
    fn read_step(&mut self, buffer: &mut [u8], hurried: bool) -> io::Result<usize> {
        let Some(limit) = self.write_timeout.filter(|_| hurried) else {
            if self.step.take().is_some() {
                self.stream.set_read_timeout(None)?;
            }
            return self.stream.read(buffer);
        };
        let (bytes, waited) = self.step.unwrap_or_default();
        let left = limit.saturating_sub(waited);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // From here on the stream has a time-out, which the next unhurried read removes.
        self.step = Some((bytes, waited));
        self.stream.set_read_timeout(Some(left))?;
        let began = Instant::now();
        let read = self.stream.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        let bytes = bytes + read;
        self.step =
            Some(if bytes < STEP_BYTES { (bytes, waited + began.elapsed()) } else { Default::default() });
        Ok(read)
    }

    /// The error for a client that was hurried and did not send enough.
    pub(super) fn stopped_sending(&self) -> SqlError {
        let message = format!(
            "incomplete message from client: of a message or of a COPY, which takes room that all connections share, less than {} KiB \
             came within {:?}",
            STEP_BYTES >> 10,
            self.write_timeout.unwrap_or_default()
        );
        SqlError::new(SqlState::ProtocolViolation, message)
            .hint("The time is the server's --write-timeout-s. Send lines and messages of more than a mebibyte in one go.")
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::Closer;
    use super::*;

    /// A client that reads and sends one byte at a time, each after a while, and none at all after `takes` of them.
    struct Trickle {
        takes: usize,
        calls: usize,
    }

    impl Read for Trickle {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.write(b"1")
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

    #[test]
    fn a_client_that_is_hurried_sends_enough_or_is_given_up() {
        let byte = &mut [0];
        for (takes, limit) in [(usize::MAX, Duration::from_millis(20)), (3, Duration::from_secs(3_600))] {
            let mut socket = Socket::new(Trickle { takes, calls: 0 }, Some(limit));
            // Each read takes a millisecond or more.
            let ended = (0..=20).find_map(|_| socket.read(byte, true).err()).expect("it is given up");
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        }
        // Each step has the whole time.
        let limit = Duration::from_secs(3_600);
        let mut socket = Socket::new(Trickle { takes: 2, calls: 0 }, Some(limit));
        socket.step = Some((STEP_BYTES - 1, limit / 2));
        assert!(socket.read(byte, true).is_ok());
        assert_eq!(socket.step, Some((0, Duration::ZERO)));
        // Unhurried input may take any time, and so may any input where there is no limit.
        for (limit, hurried) in [(Some(Duration::from_millis(1)), false), (None, true)] {
            let mut socket = Socket::new(Trickle { takes: 50, calls: 0 }, limit);
            assert!((0..50).all(|_| socket.read(byte, hurried).is_ok()));
        }
    }
}
