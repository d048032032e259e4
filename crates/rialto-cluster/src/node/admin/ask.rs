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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// A directory that goes with the test. Its path is longer than an address of a socket.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let name = format!("rialto-admin-{name}-{}-{}", std::process::id(), "x".repeat(120));
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }

        fn listen(&self) -> UnixListener {
            UnixListener::bind(Opened::new(&self.0).unwrap().path(SOCKET)).unwrap()
        }

        fn connect(&self) -> Result<rustix::fd::OwnedFd, Errno> {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let opened = Opened::new(&self.0).unwrap();
            connect(&socket, &SocketAddrUnix::new(opened.path(SOCKET))?)?;
            Ok(socket)
        }

        fn ask(&self) -> Reached {
            ask(&self.0, &AdminRequest::Status, PATIENCE).unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_that_is_gone_is_down() {
        let directory = Directory::new("down");
        assert_eq!(directory.ask(), Reached::Down);
        // The socket of a process that was killed is still there.
        drop(directory.listen());
        assert!(directory.0.join(SOCKET).exists());
        assert_eq!(directory.ask(), Reached::Down);
        let missing = ask(&directory.0.join("missing"), &AdminRequest::Status, PATIENCE);
        assert_eq!(missing.unwrap(), Reached::Down);
    }

    #[test]
    fn a_process_that_takes_no_connections_is_silent_however_often_it_is_asked() {
        let directory = Directory::new("silent");
        let listener = directory.listen();
        rustix::net::listen(&listener, 1).unwrap();
        let pid = Some(std::process::id());
        assert_eq!(directory.ask(), Reached::Silent { pid });
        // Connections that are kept fill its queue; an operator does not wait for room in it.
        let kept: Vec<_> = (0..4).map(|_| directory.connect()).collect();
        assert!(kept.iter().any(Result::is_err), "the queue is full");
        assert_eq!(directory.ask(), Reached::Silent { pid: None });
    }

    #[test]
    fn an_answer_comes_with_the_pid() {
        let directory = Directory::new("answers");
        let listener = directory.listen();
        let serve = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&mut connection).read_line(&mut line).unwrap();
            assert_eq!(serde_json::from_str::<AdminRequest>(&line).unwrap(), AdminRequest::Status);
            connection.write_all(b"{\"refused\":\"no\"}\n").unwrap();
        });
        let answer = AdminAnswer::Refused("no".to_owned());
        let asked = ask(&directory.0, &AdminRequest::Status, Duration::from_secs(60)).unwrap();
        assert_eq!(asked, Reached::Answered { pid: std::process::id(), answer });
        serve.join().unwrap();
    }
}
