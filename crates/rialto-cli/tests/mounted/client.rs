//! A client of the server: sends a statement, and gives the answer.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any answer takes, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Values of a row, as text.
pub type Row = Vec<Option<String>>;

/// The answer to a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was executed. `notice` is the last notice that came with it.
    Done { rows: Vec<Row>, tag: String, notice: String },
    /// It was refused, and the session goes on. An SQLSTATE, and the message.
    Refused { code: String, text: String },
    /// The session has ended instead; the server's last message.
    Ended(String),
}

impl Answer {
    /// The rows of a statement that was executed.
    pub fn rows(self, about: &str) -> Vec<Row> {
        match self {
            Answer::Done { rows, .. } => rows,
            other => panic!("{about}: {other:?}"),
        }
    }
}

pub struct Client(TcpStream);

impl Client {
    /// Begins a session; an error if there is no server, or if it ends meanwhile.
    pub fn connect(address: &str) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut client = Client(stream);
        client.0.write_all(b"\0\0\0\x12\0\x03\0\0user\0ann\0\0")?;
        match client.answer() {
            Answer::Done { .. } => Ok(client),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    pub fn query(&mut self, sql: &str) -> Answer {
        match self.send(b'Q', format!("{sql}\0").as_bytes()) {
            Ok(()) => self.answer(),
            Err(error) => Answer::Ended(error.to_string()),
        }
    }

    /// A COPY from the client, of these lines.
    pub fn copy(&mut self, sql: &str, lines: &str) -> Answer {
        match self.send(b'Q', format!("{sql}\0").as_bytes()) {
            Ok(()) => self.answer_with(lines),
            Err(error) => Answer::Ended(error.to_string()),
        }
    }

    fn send(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut message = vec![kind];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        self.0.write_all(&message)
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        self.0.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// The messages up to ReadyForQuery, or to the end.
    fn answer(&mut self) -> Answer {
        self.answer_with("")
    }

    /// The same, if the server may ask for lines of a COPY.
    fn answer_with(&mut self, lines: &str) -> Answer {
        let (mut rows, mut tag, mut notice, mut error) = (Vec::new(), String::new(), String::new(), None);
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                // No server is silent for so long: a hang is a failure of its own.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("no answer after {PATIENCE:?}")
                }
                Err(ended) => return Answer::Ended(format!("{error:?}, {ended}")),
            };
            match kind {
                b'D' => rows.push(values(&body)),
                b'C' => tag = text(&body),
                b'N' => notice = field(&body, b'M'),
                b'G' => {
                    let sent = self.send(b'd', lines.as_bytes()).and_then(|()| self.send(b'c', b""));
                    if let Err(error) = sent {
                        return Answer::Ended(error.to_string());
                    }
                }
                b'E' => error = Some((field(&body, b'C'), field(&body, b'M'))),
                b'Z' => {
                    return match error {
                        Some((code, text)) => Answer::Refused { code, text },
                        None => Answer::Done { rows, tag, notice },
                    };
                }
                _ => {}
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// A field of an error.
fn field(body: &[u8], name: u8) -> String {
    let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&name));
    field.map(|field| text(&field[1..])).unwrap_or_default()
}

fn values(body: &[u8]) -> Row {
    let (mut at, mut values) = (2, Vec::new());
    while at < body.len() {
        let length = i32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
        at += 4;
        let bytes = usize::try_from(length).ok().map(|length| &body[at..at + length]);
        at += bytes.map_or(0, <[u8]>::len);
        values.push(bytes.map(text));
    }
    values
}
