//! [`ask`]: an operator's end of a node's admin socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, socket_with, sockopt::socket_peercred};

use super::report::{AdminAnswer, AdminRequest};
use super::{Opened, SOCKET};

/// How a node was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// No process runs the node.
    Down,
    /// A process runs it, which has not answered in time: it was stopped, or its machine is overloaded.
    Silent {
        /// The process, if the socket took the connection.
        pid: Option<u32>,
    },
    /// It has answered.
    Answered {
        /// The process.
        pid: u32,
        /// What it says.
        answer: AdminAnswer,
    },
}

/// Asks the node whose directory this is.
///
/// # Blocking
/// It returns within twice the patience.
///
/// # Errors
/// If the directory or the socket must not be used, or the answer makes no sense.
pub fn ask(directory: &Path, request: &AdminRequest, patience: Duration) -> io::Result<Reached> {
    let opened = match Opened::new(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Reached::Down),
        opened => opened?,
    };
    let address = SocketAddrUnix::new(opened.path(SOCKET))?;
    // A process that stands still takes no connections; once its queue is full, one that blocks would wait for it.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(Reached::Down),
        Err(Errno::AGAIN) => return Ok(Reached::Silent { pid: None }),
        Err(error) => return Err(error.into()),
    }
    let pid = socket_peercred(&socket)?.pid.as_raw_pid().unsigned_abs();
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    match exchange(&mut stream, request) {
        Ok(Some(answer)) => Ok(Reached::Answered { pid, answer }),
        // It ends just now.
        Ok(None) => Ok(Reached::Silent { pid: Some(pid) }),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(Reached::Silent { pid: Some(pid) }),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Ok(Reached::Silent { pid: Some(pid) })
            }
            _ => Err(error),
        },
    }
}

fn exchange(stream: &mut UnixStream, request: &AdminRequest) -> io::Result<Option<AdminAnswer>> {
    let mut bytes = serde_json::to_vec(request)?;
    bytes.push(b'\n');
    stream.write_all(&bytes)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match line.as_str() {
        "" => Ok(None),
        line => Ok(Some(serde_json::from_str(line)?)),
    }
}
