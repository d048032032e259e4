//! The part of the PostgreSQL protocol that these tests need, over a socket.

#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Serving;

/// A socket that a session has begun on.
pub fn session(serving: &Serving) -> TcpStream {
    session_at(&serving.tcp)
}

/// The same at an address.
pub fn session_at(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket takes it");
    stream.write_all(b"\0\0\0\x12\0\x03\0\0user\0ann\0\0").expect("it reads");
    answer(&mut stream);
    stream
}

/// The bytes up to ReadyForQuery, or to the end, with blanks for zeros.
pub fn answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut head = [0; 5];
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        stream.read_exact(&mut body).expect("a message comes whole");
        text += &String::from_utf8_lossy(&body).replace('\0', " ");
        if head[0] == b'Z' {
            break;
        }
    }
    text
}

pub fn query(stream: &mut TcpStream, sql: &str) -> String {
    let mut message = vec![b'Q'];
    message.extend_from_slice(&(sql.len() as u32 + 5).to_be_bytes());
    message.extend_from_slice(sql.as_bytes());
    message.push(0);
    stream.write_all(&message).expect("it reads");
    answer(stream)
}

/// A query that has to succeed, with an answer that ends.
pub fn runs(stream: &mut TcpStream, sql: &str) -> String {
    let said = query(stream, sql);
    assert!(!said.is_empty() && !said.contains("SERROR"), "{sql}: {said}");
    said
}
