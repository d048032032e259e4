//! The bytes of the PostgreSQL protocol, version 3: nothing here knows a session, a statement or a socket.
//!
//! Kept here: a message from a client is read in full before it is interpreted, every length in it is checked against
//! the bytes that are there, and whatever does not fit is a [`Malformed`], never a panic. Answers are appended to one
//! byte buffer that belongs to the session, so that the session alone decides when a write to the socket happens.
//!
//! [`frontend`] reads what clients send, [`backend`] writes what they hear.

pub mod backend;
pub mod frontend;

/// A message whose bytes make no sense: SQLSTATE 08P01.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Malformed {
        Malformed(what.into())
    }
}
