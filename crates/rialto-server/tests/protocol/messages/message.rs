//! Messages of both sides, in the form of the model and as bytes.

use super::statement::Kind;
use crate::common::*;

/// One message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A message of this tag; its contents are not compared.
    Tag(char),
    Complete(String),
    Error(String),
    Ready(char),
    /// The type and the format of each column.
    Columns(Vec<(u32, u16)>),
    Row(Vec<Vec<u8>>),
    Parameters(Vec<u32>),
}

/// One message of the client.
#[derive(Debug, Clone)]
pub enum Sent {
    Query(Vec<Kind>),
    /// A query that is no UTF-8.
    BadQuery,
    Parse(&'static str, Kind),
    /// The portal, the statement, the argument, and whether rows come in binary form.
    Bind(&'static str, &'static str, Option<&'static str>, bool),
    DescribeStatement(&'static str),
    DescribePortal(&'static str),
    Execute(&'static str, u32),
    CloseStatement(&'static str),
    ClosePortal(&'static str),
    Sync,
    Flush,
    /// A line of a COPY: a key, or none.
    Data(Option<i32>),
    Done,
    Fail,
}

/// The bytes of a client's message.
pub fn encode(sent: &Sent) -> Vec<u8> {
    let close = |kind: u8, name: &str| message(b'C', &[&[kind], name.as_bytes(), b"\0"].concat());
    match sent {
        Sent::Query(kinds) => {
            let texts: Vec<String> = kinds.iter().map(|kind| kind.text()).collect();
            query(&texts.join("; "))
        }
        Sent::BadQuery => message(b'Q', b"select '\xff'\0"),
        Sent::Parse(name, kind) => parse(name, &kind.text()),
        Sent::Bind(portal, statement, argument, is_binary) => {
            let arguments: Vec<&str> = argument.iter().copied().collect();
            let mut bytes = bind(portal, statement, &arguments);
            if *is_binary {
                // One format for all columns, in place of none.
                bytes.truncate(bytes.len() - 2);
                bytes.extend([0, 1, 0, 1]);
                let length = bytes.len() as u32 - 1;
                bytes[1..5].copy_from_slice(&length.to_be_bytes());
            }
            bytes
        }
        Sent::DescribeStatement(name) => describe(b'S', name),
        Sent::DescribePortal(name) => describe(b'P', name),
        Sent::Execute(name, limit) => execute(name, *limit),
        Sent::CloseStatement(name) => close(b'S', name),
        Sent::ClosePortal(name) => close(b'P', name),
        Sent::Sync => sync(),
        Sent::Flush => message(b'H', b""),
        Sent::Data(Some(key)) => message(b'd', format!("{key}\n").as_bytes()),
        Sent::Data(None) => message(b'd', b"x\n"),
        Sent::Done => message(b'c', b""),
        Sent::Fail => message(b'f', b"no\0"),
    }
}

/// A message of the server in the form of the model.
pub fn decode(message: &Message) -> Told {
    let (tag, body) = message;
    let u16_at = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
    match tag {
        b'C' => Told::Complete(String::from_utf8_lossy(body).trim_end_matches('\0').to_owned()),
        b'E' => Told::Error(error_code(std::slice::from_ref(message)).expect("an error has a code")),
        b'Z' => Told::Ready(body[0] as char),
        b't' => Told::Parameters((0..u16_at(0) as usize).map(|at| u32_at(2 + 4 * at)).collect()),
        b'T' => {
            let (mut at, mut columns) = (2, Vec::new());
            for _ in 0..u16_at(0) {
                at += body[at..].iter().position(|byte| *byte == 0).expect("a name has an end") + 1;
                columns.push((u32_at(at + 6), u16_at(at + 16)));
                at += 18;
            }
            Told::Columns(columns)
        }
        b'D' => {
            let (mut at, mut values) = (2, Vec::new());
            for _ in 0..u16_at(0) {
                let end = at + 4 + u32_at(at) as usize;
                values.push(body[at + 4..end].to_vec());
                at = end;
            }
            assert_eq!(at, body.len(), "a row has the values that it counts");
            Told::Row(values)
        }
        tag => Told::Tag(*tag as char),
    }
}
