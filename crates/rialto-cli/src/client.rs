//! A client of a server: sends one statement, and reads the answer. It has as much of the PostgreSQL protocol as that
//! takes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The longest message that is read.
const MESSAGE_MAX: usize = 1 << 20;

/// A connection to a server.
pub trait Stream: Read + Write {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// Why a statement was not executed.
#[derive(Debug)]
pub enum Failure {
    /// The server cannot be reached, or has gone.
    Connection(io::Error),
    /// The server refuses the statement.
    Refused {
        /// The SQLSTATE.
        code: String,
        /// The message.
        message: String,
    },
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Connection(error)
    }
}

/// Connects to a server at `HOST:PORT`.
pub fn at_address(address: &str) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(TcpStream::connect(address)?))
}

/// Connects to a server's socket file.
pub fn at_socket(path: &Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(UnixStream::connect(path)?))
}

/// A session with a server.
pub struct Session {
    stream: Box<dyn Stream>,
    key: Vec<u8>,
}

impl Session {
    /// Begins a session.
    pub fn begin(mut stream: Box<dyn Stream>) -> Result<Session, Failure> {
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        startup.extend_from_slice(b"user\0rialto\0application_name\0rialto backup\0\0");
        send(&mut *stream, None, &startup)?;
        let key = answers(&mut *stream, drop)?;
        Ok(Session { stream, key })
    }

    /// The key that a request to cancel its statement has to contain ([`cancel`]).
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Executes a statement that gives no rows, and ends the session. `notice` is given the server's notices, as they
    /// come.
    pub fn execute(mut self, statement: &str, notice: impl FnMut(String)) -> Result<(), Failure> {
        let mut query = statement.as_bytes().to_vec();
        query.push(0);
        send(&mut *self.stream, Some(b'Q'), &query)?;
        answers(&mut *self.stream, notice)?;
        // The statement is done, so an error here does not matter.
        let _ = send(&mut *self.stream, Some(b'X'), &[]);
        Ok(())
    }
}

/// Asks a server, over a connection of its own, to cancel the statement of the session with this key.
pub fn cancel(stream: &mut dyn Stream, key: &[u8]) -> io::Result<()> {
    let mut request = 80_877_102_u32.to_be_bytes().to_vec();
    request.extend_from_slice(key);
    send(stream, None, &request)?;
    // The server closes the connection when it has passed the request on.
    io::copy(stream, &mut io::sink()).map(drop)
}

fn send(stream: &mut dyn Stream, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let mut message: Vec<u8> = kind.into_iter().collect();
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    stream.write_all(&message)?;
    stream.flush()
}

/// Reads messages until the server is ready for the next statement. Gives the session's key, which is sent when it
/// begins.
fn answers(stream: &mut dyn Stream, mut notice: impl FnMut(String)) -> Result<Vec<u8>, Failure> {
    let mut key = Vec::new();
    let mut refused = None;
    loop {
        let mut head = [0; 5];
        if let Err(error) = stream.read_exact(&mut head) {
            // A server that refuses a connection closes it.
            return Err(refused.unwrap_or(Failure::Connection(error)));
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_MAX).contains(&length) {
            let what = format!("a message of {length} bytes; is this a PostgreSQL server?");
            return Err(Failure::Connection(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        let mut body = vec![0; length - 4];
        stream.read_exact(&mut body)?;
        match head[0] {
            b'E' => {
                refused = Some(Failure::Refused { code: field(&body, b'C'), message: field(&body, b'M') })
            }
            b'N' => notice(field(&body, b'M')),
            b'K' => key = body,
            b'Z' => return refused.map_or(Ok(key), Err),
            _ => {}
        }
    }
}

/// A field of an error or a notice.
fn field(body: &[u8], name: u8) -> String {
    let field = body.split(|&byte| byte == 0).find_map(|field| field.strip_prefix(&[name]));
    String::from_utf8_lossy(field.unwrap_or(b"an error without a message")).into_owned()
}
