//! The connections between nodes: TCP, permanent, one for each pair of nodes and direction, `2(n - 1)` a node.
//!
//! Invariants:
//! 1. **Order.** Between the beginning and the end of a connection ([`Event`]), the messages that come are the first ones
//!    that were sent by it, in order. What was sent and has not come is lost only if the end of its connection is told.
//! 2. **A sender never blocks.** It queues, or hears that there is no room. Messages of the protocol have room of their
//!    own ([`Class`]), however much work is queued.
//! 3. **One write.** All that is queued for a node goes by one write; what a [`Turn`] sends to a node is queued at once.
//! 4. **Members only.** No message is taken from, or sent to, a node that has not shown that it is the member that it is
//!    taken for: same cluster, known versions, its number and name, and with TLS a certificate for its name. Both nodes
//!    name the reason of a refusal ([`Refusal`]).
//! 5. **Not in the clear.** A plain connection goes between loopback addresses only, unless it was allowed by name
//!    ([`Security`]).
//!
//! A thread for each outgoing connection connects and writes, a thread for each incoming one reads and calls the node's
//! [`Handler`]. There is no runtime: a node has few connections, which live long.
//!
//! Reading order: `frame.rs` (bytes), `hello.rs` and `handshake.rs` (two nodes get to know each other), `queue.rs` and
//! `turn.rs` (what is to be written), `link.rs` (connecting and writing), `incoming.rs` (reading), `links.rs` (all of it).

mod bell;
mod counters;
mod event;
pub mod frame;
mod handshake;
mod hello;
mod incoming;
mod link;
mod links;
mod options;
mod queue;
mod stream;
mod tls;
mod turn;

pub use counters::Counts;
pub use event::{Direction, Event, Failure, Handler};
pub use hello::{Agreed, Hello, NAME_MAX, Refusal, Versions, is_a_name};
pub use links::{Links, Member, OpenError};
pub use options::{Nagle, Options, OptionsError, Security};
pub use queue::{Class, ConnectionId, SendError};
pub use tls::{Tls, TlsError};
pub use turn::Turn;
