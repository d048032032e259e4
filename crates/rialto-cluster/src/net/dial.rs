//! Connecting to an address, with an end.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::bell::{Awaited, Bell, Woken};

/// Connects to an address. It gives up at an instant, or once the bell has rung and `is_over` says so.
pub(super) fn dial(
    address: SocketAddr,
    bell: &Bell,
    until: Instant,
    is_over: impl Fn() -> bool,
) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it has not answered in time"));
            }
            let woken = bell.sleep(Some(Awaited::Connection(socket.as_fd())), Some(left));
            if is_over() {
                return Err(io::Error::other("this node has ended it"));
            }
            if woken == Woken::Socket {
                rustix::net::sockopt::socket_error(&socket)??;
                break;
            }
        },
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}
