//! What a node hears of its connections.

use std::fmt;
use std::net::SocketAddr;

use super::hello::{Agreed, Refusal};
use super::queue::ConnectionId;
use crate::protocol::{Life, NodeId};

/// What takes messages and events. Its calls come from the threads of the connections.
///
/// For each node and direction, events and messages come one after the other: [`Event::Began`], messages (of an incoming
/// connection), [`Event::Ended`], and so on, also when the node's address or name becomes another one
/// ([`Links::set_members`](super::Links::set_members)). The messages of a [`Class`](super::Class) between a beginning and
/// an end are the first ones of that class that were sent by that connection, in order, without a gap.
///
/// A call that panics ends the connection that it was for; [`Event::Ended`] says so. A call may drop the node's links.
pub trait Handler: Send + Sync {
    /// A message has come. While this call takes its time, no further message of this node is read.
    fn message(&self, from: NodeId, connection: ConnectionId, payload: &[u8]);

    /// Something has become of a connection.
    fn event(&self, event: Event);
}

/// The direction of a connection's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From this node.
    Outgoing,
    /// To this node.
    Incoming,
}

/// What has become of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A connection is there.
    Began {
        /// The other node.
        peer: NodeId,
        /// Whether this node sends by it, or receives.
        direction: Direction,
        /// The connection.
        connection: ConnectionId,
        /// What both have agreed on.
        agreed: Agreed,
        /// The other node's life.
        life: Life,
    },
    /// A connection has ended. Messages that were sent by it and have not come are lost.
    Ended {
        /// The other node.
        peer: NodeId,
        /// Whether this node has sent by it, or received.
        direction: Direction,
        /// The connection.
        connection: ConnectionId,
        /// Why.
        why: String,
    },
    /// No connection to a node could be made; this node tries again. It is told once for each reason.
    Failed {
        /// The other node.
        peer: NodeId,
        /// Its address.
        address: String,
        /// Why.
        why: Failure,
    },
    /// A connection that another machine has made was turned away.
    TurnedAway {
        /// The other machine.
        address: SocketAddr,
        /// Why.
        why: Failure,
    },
}

/// Why a connection was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The other node was not reached, or has not answered, or has no valid certificate.
    Unreachable(String),
    /// This node cannot take it now: it has too many handshakes, or no thread or file handle left. It may be made later.
    Busy(String),
    /// This node refuses the other one.
    RefusedByUs(Refusal),
    /// The other node refuses this one.
    RefusedByThem(Refusal),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(what) | Failure::Busy(what) => f.write_str(what),
            Failure::RefusedByUs(refusal) => write!(f, "refused: {refusal}"),
            Failure::RefusedByThem(refusal) => write!(f, "refused by the other node: {refusal}"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Unreachable(error.to_string())
    }
}
