//! A client of a server: sends statements, and reads their answers. It has as much of the PostgreSQL protocol as that
//! takes.

use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

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

/// As [`at_address`], for a client that gives a server up: if it does not take the connection in the first time, or lets
/// the client wait for the next bytes of an answer for longer than the second one.
pub fn at_address_within(address: &str, connect: Duration, answer: Duration) -> io::Result<Box<dyn Stream>> {
    let mut failed = io::Error::other(format!("{address} is no address"));
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, connect) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(answer))?;
                stream.set_write_timeout(Some(answer))?;
                return Ok(Box::new(stream));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to a server's socket file.
pub fn at_socket(path: &Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(UnixStream::connect(path)?))
}

/// What a server says before it is ready for the next statement.
enum Said<'a> {
    Notice(String),
    /// A row; null is `None`.
    Row(&'a [Option<&'a str>]),
}

/// A session with a server.
pub struct Session {
    stream: BufReader<Box<dyn Stream>>,
    key: Vec<u8>,
}

impl Session {
    /// Begins a session, under this name of the application.
    pub fn begin(stream: Box<dyn Stream>, application: &str) -> Result<Session, Failure> {
        let mut stream = BufReader::new(stream);
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        startup.extend_from_slice(format!("user\0rialto\0application_name\0{application}\0\0").as_bytes());
        send(&mut **stream.get_mut(), None, &startup)?;
        let key = answers(&mut stream, |_| ())?;
        Ok(Session { stream, key })
    }

    /// The key that a request to cancel its statement has to contain ([`cancel`]).
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Executes a statement that gives no rows, and ends the session. `notice` is given the server's notices, as they
    /// come.
    pub fn execute(mut self, statement: &str, mut notice: impl FnMut(String)) -> Result<(), Failure> {
        let tell = |said: Said<'_>| {
            if let Said::Notice(text) = said {
                notice(text);
            }
        };
        self.send_query(statement)?;
        answers(&mut self.stream, tell)?;
        // The statement is done, so an error here does not matter.
        let _ = send(&mut **self.stream.get_mut(), Some(b'X'), &[]);
        Ok(())
    }

    /// Executes statements, separated by semicolons. `row` is given their rows, as they come; null is `None`. After
    /// [`Failure::Connection`] the session is of no use.
    pub fn query(&mut self, statements: &str, mut row: impl FnMut(&[Option<&str>])) -> Result<(), Failure> {
        let give = |said: Said<'_>| {
            if let Said::Row(values) = said {
                row(values);
            }
        };
        self.send_query(statements)?;
        answers(&mut self.stream, give).map(drop)
    }

    fn send_query(&mut self, statements: &str) -> io::Result<()> {
        let mut query = statements.as_bytes().to_vec();
        query.push(0);
        send(&mut **self.stream.get_mut(), Some(b'Q'), &query)
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

fn send(stream: &mut dyn Write, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let mut message: Vec<u8> = kind.into_iter().collect();
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    stream.write_all(&message)?;
    stream.flush()
}

/// Reads messages until the server is ready for the next statement. Gives the session's key, which is sent when it
/// begins.
fn answers(stream: &mut dyn Read, mut hear: impl FnMut(Said<'_>)) -> Result<Vec<u8>, Failure> {
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
            b'N' => hear(Said::Notice(field(&body, b'M'))),
            b'D' => {
                let none = || io::Error::new(io::ErrorKind::InvalidData, "a row that cannot be read");
                hear(Said::Row(&values(&body).ok_or_else(none)?));
            }
            b'K' => key = body,
            b'Z' => return refused.map_or(Ok(key), Err),
            _ => {}
        }
    }
}

/// The values of a row.
fn values(body: &[u8]) -> Option<Vec<Option<&str>>> {
    let (count, mut rest) = body.split_first_chunk()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, behind) = rest.split_first_chunk()?;
        // Null has a length below zero.
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (value, behind) = behind.split_at_checked(length.unwrap_or(0))?;
        values.push(length.map(|_| std::str::from_utf8(value)).transpose().ok()?);
        rest = behind;
    }
    Some(values)
}

/// A field of an error or a notice.
fn field(body: &[u8], name: u8) -> String {
    let field = body.split(|&byte| byte == 0).find_map(|field| field.strip_prefix(&[name]));
    String::from_utf8_lossy(field.unwrap_or(b"an error without a message")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_by_the_lengths_of_its_values() {
        let row = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(values(row), Some(vec![Some("ab"), None, Some("")]));
        for cut in 0..row.len() {
            assert_eq!(values(&row[..cut]), None, "{cut} bytes of it");
        }
        assert_eq!(values(b"\0\x01\0\0\0\x01\xff"), None, "no text");
    }
}
