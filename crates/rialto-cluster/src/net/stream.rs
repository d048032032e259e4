//! The bytes of one connection, plain or encrypted, by blocking reads and writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::options::{Nagle, Options};

/// A connection.
pub(super) enum Stream {
    Plain(TcpStream),
    /// This node has connected.
    Connected(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// The other node has connected.
    Accepted(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// A handle that ends a connection from another thread.
pub(super) struct Ender(TcpStream);

impl Ender {
    /// Ends the connection, both ways: blocked reads and writes return.
    pub(super) fn end(&self) {
        // It fails only if the connection has ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Sets what every connection has: it finds out within a time that the other machine is gone, and the handshake is over
/// within a time.
pub(super) fn prepare(socket: &TcpStream, options: &Options) -> io::Result<()> {
    socket.set_nodelay(options.nagle == Nagle::Off)?;
    let silence_ms = u32::try_from(options.silence_max.as_millis()).unwrap_or(u32::MAX);
    rustix::net::sockopt::set_tcp_user_timeout(socket, silence_ms)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    // One probe after half of the time, in whole seconds; the user time-out then ends it.
    let probe = Duration::from_secs((options.silence_max.as_secs() / 2).max(1));
    rustix::net::sockopt::set_tcp_keepidle(socket, probe)?;
    rustix::net::sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    handshake_time(socket, Some(options.handshake_max))
}

/// The most time of one read or write: that of the handshake, or none.
pub(super) fn handshake_time(socket: &TcpStream, time: Option<Duration>) -> io::Result<()> {
    socket.set_read_timeout(time)?;
    socket.set_write_timeout(time)
}

impl Stream {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Connected(tls) => &tls.sock,
            Stream::Accepted(tls) => &tls.sock,
        }
    }

    pub(super) fn ender(&self) -> io::Result<Ender> {
        Ok(Ender(self.socket().try_clone()?))
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
