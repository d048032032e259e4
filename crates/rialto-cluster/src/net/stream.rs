//! The bytes of one connection, plain or encrypted, by blocking reads and writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::options::{Nagle, Options};

/// A connection.
pub(super) enum Stream {
    Plain(Socket),
    /// This node has connected.
    Connected(Box<StreamOwned<ClientConnection, Socket>>),
    /// The other node has connected.
    Accepted(Box<StreamOwned<ServerConnection, Socket>>),
}

/// A handle that ends a connection from another thread.
pub(super) struct Ender(TcpStream);

impl Ender {
    pub(super) fn of(socket: &TcpStream) -> io::Result<Ender> {
        Ok(Ender(socket.try_clone()?))
    }

    /// Ends the connection, both ways: blocked reads and writes return.
    pub(super) fn end(&self) {
        // It fails only if the connection has ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A socket whose reads and writes end at one instant, all of them together, until the handshake is over: a machine
/// that sends a byte now and then gains no time.
pub(super) struct Socket {
    socket: TcpStream,
    until: Option<Instant>,
    /// Whether writes give up instead of waiting. Nothing is read meanwhile.
    does_not_wait: bool,
}

impl Socket {
    /// Sets what every connection has: it finds out within a time that the other machine is gone. The handshake is over
    /// at an instant.
    pub(super) fn prepare(socket: TcpStream, options: &Options, until: Instant) -> io::Result<Socket> {
        socket.set_nodelay(options.nagle == Nagle::Off)?;
        let silence_ms = u32::try_from(options.silence_max.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(&socket, silence_ms)?;
        rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
        // One probe after half of the time, in whole seconds; the user time-out then ends it.
        let probe = Duration::from_secs((options.silence_max.as_secs() / 2).max(1));
        rustix::net::sockopt::set_tcp_keepidle(&socket, probe)?;
        rustix::net::sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(1))?;
        Ok(Socket { socket, until: Some(until), does_not_wait: false })
    }

    /// What is left of the handshake's time.
    fn left(until: Instant) -> io::Result<Duration> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// A read or write that has waited for all the time that was left.
    fn in_time(&self, done: io::Result<usize>) -> io::Result<usize> {
        match done {
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.until.is_some() => {
                Err(ErrorKind::TimedOut.into())
            }
            done => done,
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.does_not_wait {
            // TLS would read once it cannot write.
            return Err(ErrorKind::WouldBlock.into());
        }
        if let Some(until) = self.until {
            self.socket.set_read_timeout(Some(Socket::left(until)?))?;
        }
        let read = self.socket.read(bytes);
        self.in_time(read)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.does_not_wait {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            return Ok(rustix::net::send(&self.socket, bytes, flags)?);
        }
        if let Some(until) = self.until {
            self.socket.set_write_timeout(Some(Socket::left(until)?))?;
        }
        let written = self.socket.write(bytes);
        self.in_time(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Stream {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => &socket.socket,
            Stream::Connected(tls) => &tls.sock.socket,
            Stream::Accepted(tls) => &tls.sock.socket,
        }
    }

    fn own(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Connected(tls) => &mut tls.sock,
            Stream::Accepted(tls) => &mut tls.sock,
        }
    }

    /// Writes what the connection takes without waiting. Gives how many bytes that are, and whether all of them have left
    /// this process.
    pub(super) fn write_now(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        self.own().does_not_wait = true;
        let wrote = self.write_while_it_takes(bytes);
        self.own().does_not_wait = false;
        wrote
    }

    fn write_while_it_takes(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write(&bytes[written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((written, false)),
                Err(error) => return Err(error),
            }
        }
        match self.flush() {
            Ok(()) => Ok((written, true)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok((written, false)),
            Err(error) => Err(error),
        }
    }

    /// The handshake is over: reads and writes wait for as long as it takes.
    pub(super) fn has_begun(&mut self) -> io::Result<()> {
        let socket = self.own();
        socket.until = None;
        socket.socket.set_read_timeout(None)?;
        socket.socket.set_write_timeout(None)
    }

    pub(super) fn ender(&self) -> io::Result<Ender> {
        Ender::of(self.socket())
    }

    /// The certificate that the other node has shown, once the handshake is over.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'_>> {
        let certificates = match self {
            Stream::Plain(_) => None,
            Stream::Connected(tls) => tls.conn.peer_certificates(),
            Stream::Accepted(tls) => tls.conn.peer_certificates(),
        };
        certificates.and_then(<[_]>::first)
    }

    /// Reads what is there without waiting. The other end of a connection that this node writes to has nothing to say
    /// any more: bytes, or an end, are an error.
    pub(super) fn check(&mut self) -> io::Result<()> {
        self.socket().set_nonblocking(true)?;
        let read = self.read(&mut [0; 256]);
        self.socket().set_nonblocking(false)?;
        match read {
            Ok(0) => Err(io::Error::other("the other node has ended it")),
            Ok(_) => Err(io::Error::other("the other node has sent bytes where it only listens")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(bytes),
            Stream::Connected(tls) => tls.read(bytes),
            Stream::Accepted(tls) => tls.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Connected(tls) => tls.write(bytes),
            Stream::Accepted(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Connected(tls) => tls.flush(),
            Stream::Accepted(tls) => tls.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::options::Security;
    use super::*;
    use crate::protocol::NodeId;

    #[test]
    fn small_writes_wait_only_if_that_is_chosen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for (nagle, is_sent_at_once) in [(Nagle::Off, true), (Nagle::On, false)] {
            let options =
                Options { nagle, ..Options::new(1, NodeId(0), "a", address, Security::PlainOnLoopback) };
            let socket = TcpStream::connect(address).unwrap();
            let socket = Socket::prepare(socket, &options, Instant::now()).unwrap();
            assert_eq!(socket.socket.nodelay().unwrap(), is_sent_at_once, "{nagle:?}");
        }
    }
}
