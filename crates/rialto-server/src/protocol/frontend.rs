//! The messages from clients: the start-up packet, and the messages after it.

use std::ffi::CStr;

use rialto_sql::parse::STATEMENT_BYTES_MAX;
use rialto_sql::{SqlError, SqlState};

use super::Malformed;

/// The longest message with text or data that is accepted after start-up, in bytes; as in PostgreSQL.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The longest Parse message: it has one statement, its name, and the types of its parameters.
pub const PARSE_BYTES_MAX: usize = STATEMENT_BYTES_MAX + (1 << 20);
/// The longest message of any other kind: it has names at most.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;
/// The longest start-up packet that is accepted, in bytes; as in PostgreSQL.
pub const STARTUP_BYTES_MAX: usize = 10_000;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup {
    /// A request for TLS or GSS encryption, answered by one byte.
    Encryption,
    /// A request to cancel the statement of another connection.
    Cancel {
        /// The other connection's process number.
        process: u32,
        /// The secret of that connection.
        secret: u32,
    },
    /// The start of a session.
    Session {
        /// The minor version that was asked for.
        minor: u16,
        /// User, database and settings.
        parameters: Vec<(String, String)>,
    },
}

/// The object of a Describe or Close message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// One message after start-up; strings and bytes borrow from the read buffer.
#[derive(Debug, PartialEq)]
pub enum Message<'a> {
    /// A simple query: one string, any number of statements.
    Query(&'a str),
    /// Prepare a statement.
    Parse {
        /// The statement's name; empty for the unnamed one.
        name: &'a str,
        /// Its text.
        sql: &'a str,
        /// Type numbers of the parameters; zero where the server finds the type.
        types: Vec<u32>,
    },
    /// Give a statement its arguments.
    Bind(Bind<'a>),
    /// Ask for parameter types and columns.
    Describe(Target, &'a str),
    /// Run a portal.
    Execute {
        /// The portal's name.
        portal: &'a str,
        /// The number of rows after which to stop; zero, and what PostgreSQL reads as negative, for all.
        max_rows: u32,
    },
    /// Close a statement or portal.
    Close(Target, &'a str),
    /// The end of a pipeline.
    Sync,
    /// Send the answers so far.
    Flush,
    /// A piece of COPY input.
    CopyData(&'a [u8]),
    /// The end of COPY input.
    CopyDone,
    /// The client gives up its COPY, with its reason.
    CopyFail(&'a str),
    /// The end of the session.
    Terminate,
    /// A message kind that exists and is not supported, by name.
    Unserved(&'static str),
}

/// A statement's name as it came. Statements are found by its bytes, so only a name without a statement is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementName<'a>(pub &'a [u8]);

impl<'a> StatementName<'a> {
    /// The name.
    ///
    /// # Errors
    /// The name is not UTF-8.
    pub fn text(self) -> Result<&'a str, Malformed> {
        text(self.0, "Bind")
    }
}

/// Arguments for a prepared statement.
#[derive(Debug, PartialEq)]
pub struct Bind<'a> {
    /// The portal to make; empty for the unnamed one.
    pub portal: &'a str,
    /// Its statement.
    pub statement: StatementName<'a>,
    /// Formats of the arguments.
    pub formats: Formats<'a>,
    /// The arguments.
    pub arguments: Arguments<'a>,
    /// Formats of the result columns.
    pub result_formats: Formats<'a>,
}

/// The arguments of a Bind, as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arguments<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Their number.
    pub fn count(self) -> usize {
        self.count
    }

    /// Their bytes, lengths included.
    pub fn bytes(self) -> usize {
        self.bytes.len()
    }

    /// Their bytes, `None` for null.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut fields = Fields { rest: self.bytes, kind: "Bind" };
        // Reading the message has checked their lengths.
        (0..self.count).map_while(move |_| fields.argument().ok())
    }
}

/// Formats as in a Bind: none (all text), one for all, or one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats<'a>(&'a [u8]);

/// The format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As text.
    Text,
    /// In PostgreSQL's binary form for the type.
    Binary,
}

impl Formats<'_> {
    /// The number of formats given.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.len() / 2
    }

    /// The format of value `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Result<Format, Malformed> {
        if self.0.is_empty() { Ok(Format::Text) } else { self.given(index) }
    }

    fn given(&self, index: usize) -> Result<Format, Malformed> {
        let at = if self.count() == 1 { 0 } else { index };
        let code = self
            .0
            .get(at * 2..at * 2 + 2)
            .ok_or_else(|| Malformed::new(format!("no format code for value {}", index + 1)))?;
        match u16::from_be_bytes([code[0], code[1]]) {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(Malformed::new(format!("format code {other}; expected 0 (text) or 1 (binary)"))),
        }
    }
}

/// Reads the fields of one message.
struct Fields<'a> {
    rest: &'a [u8],
    kind: &'static str,
}

impl<'a> Fields<'a> {
    #[cold]
    fn short(&self, count: usize) -> Malformed {
        let left = self.rest.len();
        Malformed::new(format!("{} message ends early: {count} bytes expected, {left} left", self.kind))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((head, rest)) = self.rest.split_first_chunk() else { return Err(self.short(N)) };
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((head, rest)) = self.rest.split_at_checked(count) else { return Err(self.short(count)) };
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    fn argument(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.u32()? {
            u32::MAX => Ok(None),
            length => self.bytes(length as usize).map(Some),
        }
    }

    #[inline]
    fn string(&mut self) -> Result<&'a str, Malformed> {
        // Most strings are names, and most of those are empty.
        if let [0, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok("");
        }
        self.some_string()
    }

    fn some_string(&mut self) -> Result<&'a str, Malformed> {
        text(self.string_bytes()?, self.kind)
    }

    /// A string's bytes, without the zero byte behind them.
    #[inline]
    fn string_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        // The general search is faster for long strings only.
        let near = self.rest[..self.rest.len().min(16)].iter().position(|&byte| byte == 0);
        let end = near.or_else(|| Some(CStr::from_bytes_until_nul(self.rest).ok()?.count_bytes()));
        let Some(end) = end else {
            return Err(Malformed::new(format!("a string in a {} message has no end", self.kind)));
        };
        let bytes = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(bytes)
    }

    fn row_limit(&mut self) -> Result<u32, Malformed> {
        let limit = self.u32()?;
        Ok(if limit > i32::MAX as u32 { 0 } else { limit })
    }

    fn target(&mut self) -> Result<Target, Malformed> {
        match self.u8()? {
            b'S' => Ok(Target::Statement),
            b'P' => Ok(Target::Portal),
            other => Err(Malformed::new(format!("{} of kind {other:#04x}; expected 'S' or 'P'", self.kind))),
        }
    }

    #[inline]
    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.long()) }
    }

    #[cold]
    fn long(&self) -> Malformed {
        Malformed::new(format!("{} message has {} bytes too many", self.kind, self.rest.len()))
    }
}

fn text<'a>(bytes: &'a [u8], kind: &str) -> Result<&'a str, Malformed> {
    let not_utf8 = |_| Malformed::new(format!("a string in a {kind} message is not UTF-8"));
    std::str::from_utf8(bytes).map_err(not_utf8)
}

/// Reads the body of a start-up packet, without its length word.
pub fn startup(body: &[u8]) -> Result<Startup, Malformed> {
    let mut fields = Fields { rest: body, kind: "start-up" };
    match fields.u32()? {
        SSL_REQUEST | GSS_REQUEST => Ok(Startup::Encryption),
        CANCEL_REQUEST => Ok(Startup::Cancel { process: fields.u32()?, secret: fields.u32()? }),
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = fields.string()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name.to_string(), fields.string()?.to_string()));
            }
            fields.end()?;
            Ok(Startup::Session { minor: version as u16, parameters })
        }
        version => Err(Malformed::new(format!(
            "protocol version {}.{} is not spoken here; version 3.0 is",
            version >> 16,
            version & 0xffff
        ))),
    }
}

/// Reads a message's head, its tag and its length word. Gives the length. Nothing else is examined before the rest has
/// come. So a message that is too long is refused here, before memory is taken for it.
#[inline]
pub fn message_bytes(tag: u8, length: [u8; 4]) -> Result<usize, Malformed> {
    let bytes = u32::from_be_bytes(length) as usize;
    let most = match tag {
        b'Q' | b'P' | b'B' | b'd' | b'F' => MESSAGE_BYTES_MAX,
        _ => SMALL_MESSAGE_BYTES_MAX,
    };
    let known = matches!(
        tag,
        b'Q' | b'P' | b'B' | b'D' | b'E' | b'C' | b'S' | b'H' | b'd' | b'c' | b'f' | b'X' | b'F' | b'p'
    );
    if known && (4..=most).contains(&bytes) {
        return Ok(bytes);
    }
    let kind = kind_name(tag)?;
    Err(Malformed(format!("{kind} message of {bytes} bytes; 4 to {most} are allowed")))
}

/// Why a message of this number of bytes is skipped, if its length alone is the reason.
pub fn too_long(tag: u8, bytes: usize) -> Option<SqlError> {
    (tag == b'P' && bytes > PARSE_BYTES_MAX).then(|| {
        let message =
            format!("Parse message of {bytes} bytes: a statement has at most {STATEMENT_BYTES_MAX} bytes");
        SqlError::new(SqlState::LimitExceeded, message)
            .hint("Split it, give values as parameters, or use COPY.")
    })
}

/// Reads the body of a Bind message.
pub fn bind_message(body: &[u8]) -> Result<Bind<'_>, Malformed> {
    let mut fields = Fields { rest: body, kind: "Bind" };
    bind(&mut fields)
}

/// Reads one message after start-up: its tag, and its body without the length word.
pub fn message(tag: u8, body: &[u8]) -> Result<Message<'_>, Malformed> {
    let mut fields = Fields { rest: body, kind: kind_name(tag)? };
    let message = match tag {
        b'Q' => Message::Query(fields.string()?),
        b'P' => {
            let name = fields.string()?;
            let sql = fields.string()?;
            let count = fields.u16()?;
            let types = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
            Message::Parse { name, sql, types }
        }
        b'B' => return bind(&mut fields).map(Message::Bind),
        b'D' => Message::Describe(fields.target()?, fields.string()?),
        b'E' => Message::Execute { portal: fields.string()?, max_rows: fields.row_limit()? },
        b'C' => Message::Close(fields.target()?, fields.string()?),
        b'S' => Message::Sync,
        b'H' => Message::Flush,
        b'd' => return Ok(Message::CopyData(body)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(fields.string()?),
        b'X' => Message::Terminate,
        b'F' => return Ok(Message::Unserved("function call")),
        _ => return Ok(Message::Unserved("password")),
    };
    fields.end()?;
    Ok(message)
}

fn kind_name(tag: u8) -> Result<&'static str, Malformed> {
    Ok(match tag {
        b'Q' => "Query",
        b'P' => "Parse",
        b'B' => "Bind",
        b'D' => "Describe",
        b'E' => "Execute",
        b'C' => "Close",
        b'S' => "Sync",
        b'H' => "Flush",
        b'd' => "CopyData",
        b'c' => "CopyDone",
        b'f' => "CopyFail",
        b'X' => "Terminate",
        b'F' => "FunctionCall",
        b'p' => "password",
        other => return Err(Malformed::new(format!("unknown message kind {other:#04x}"))),
    })
}

#[inline]
fn bind<'a>(fields: &mut Fields<'a>) -> Result<Bind<'a>, Malformed> {
    let portal = fields.string()?;
    let statement = StatementName(fields.string_bytes()?);
    let count = fields.u16()? as usize;
    let formats = Formats(fields.bytes(count * 2)?);
    let count = fields.u16()? as usize;
    if formats.count() > 1 && formats.count() != count {
        return Err(Malformed::new(format!(
            "Bind has {} format codes for {count} arguments",
            formats.count()
        )));
    }
    let bytes = fields.rest;
    for _ in 0..count {
        fields.argument()?;
    }
    let arguments = Arguments { count, bytes: &bytes[..bytes.len() - fields.rest.len()] };
    let count = fields.u16()? as usize;
    let result_formats = Formats(fields.bytes(count * 2)?);
    fields.end()?;
    Ok(Bind { portal, statement, formats, arguments, result_formats })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u32, rest: &[u8]) -> Vec<u8> {
        let mut body = version.to_be_bytes().to_vec();
        body.extend_from_slice(rest);
        body
    }

    #[test]
    fn a_startup_packet_gives_its_parameters() {
        let body = packet(196_608, b"user\0ann\0database\0bank\0\0");
        let Startup::Session { minor, parameters } = startup(&body).unwrap() else { panic!("no session") };
        assert_eq!(minor, 0);
        assert_eq!(parameters[1], ("database".to_string(), "bank".to_string()));
        assert_eq!(startup(&packet(SSL_REQUEST, b"")).unwrap(), Startup::Encryption);
        assert!(startup(&packet(2 << 16, b"\0")).unwrap_err().0.contains("version 2.0"));
    }

    #[test]
    fn a_bind_is_read_in_full() {
        let mut body = b"\0stmt\0".to_vec();
        body.extend_from_slice(&[0, 1, 0, 1, 0, 2, 0, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        let Message::Bind(bind) = message(b'B', &body).unwrap() else { panic!("no bind") };
        assert_eq!(bind.statement.text(), Ok("stmt"));
        assert_eq!(bind.arguments.iter().collect::<Vec<_>>(), [Some(&[7u8][..]), None]);
        assert_eq!(bind.formats.get(1).unwrap(), Format::Binary);
        assert_eq!(bind.result_formats.get(4).unwrap(), Format::Text);
    }

    #[test]
    fn every_cut_of_every_message_is_an_error_and_no_panic() {
        let mut bind = b"p\0stmt\0".to_vec();
        bind.extend_from_slice(&[0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 7, 0, 1, 0, 0]);
        let bodies: [(u8, Vec<u8>); 6] = [
            (b'Q', b"select 1\0".to_vec()),
            (b'P', b"s\0select $1\0\0\x01\0\0\0\x17".to_vec()),
            (b'B', bind),
            (b'D', b"Sname\0".to_vec()),
            (b'E', b"p\0\0\0\0\x05".to_vec()),
            (b'f', b"why\0".to_vec()),
        ];
        for (tag, body) in bodies {
            message(tag, &body).unwrap();
            for cut in 0..body.len() {
                assert!(message(tag, &body[..cut]).is_err(), "{} cut at {cut}", tag as char);
            }
            let mut long = body.clone();
            long.push(0);
            assert!(message(tag, &long).is_err(), "{} with a byte too many", tag as char);
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            let mut body = Vec::new();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for _ in 0..state >> 59 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                body.push((state >> 33) as u8 & 0x3f);
            }
            for tag in b"QPBDECSHdcfXFp?" {
                let _ = message(*tag, &body);
            }
            let _ = startup(&body);
        }
    }
}
