//! The bytes of the PostgreSQL protocol, version 3. Nothing here knows a session, a statement or a socket.
//!
//! Invariant: a message from a client is read in full before it is interpreted. Every length in it is checked against
//! the bytes that are there, and a message that does not fit is a [`Malformed`], never a panic. Answers are appended to
//! one byte buffer that belongs to the session, so the session alone decides when to write to the socket.
//!
//! [`frontend`] reads messages from clients, [`backend`] writes messages to them.

pub mod backend;
pub mod frontend;

/// A message with malformed bytes: SQLSTATE 08P01.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Malformed {
        Malformed(what.into())
    }
}
