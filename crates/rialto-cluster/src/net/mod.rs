//! The connections between nodes: TCP, permanent, one for each pair of nodes and direction, `2(n - 1)` a node.
//!
//! Invariants:
//! 1. **Order, per class.** Between the beginning and the end of a connection ([`Event`]), the messages of a [`Class`]
//!    that come are the first ones of that class that were sent by it, in order. Messages of two classes may come in
//!    another order than they were sent in. What was sent and has not come is lost only if the end of its connection is
//!    told. Connections with one node follow each other: the end of one is told before the beginning of the next one,
//!    also when the node's address changes.
//! 2. **A sender never blocks.** It queues, or hears that there is no room. Each class has room of its own, however much
//!    of another one is queued.
//! 3. **The protocol first.** What is queued of [`Class::Protocol`] is written before all else: it waits for one write of
//!    64 KiB, or of one longer message, and for what the kernel has taken. [`Class::Work`] and [`Class::Blocks`] go by
//!    turns while both wait: neither gets ahead of the other by more than one message.
//! 4. **One write.** What is queued for a node goes by one write, up to 64 KiB; what a [`Turn`] sends to a node is queued
//!    at once.
//! 5. **Nothing waits for a stranger.** A handshake is over within a time as a whole, whatever the other machine sends;
//!    there are at most 256 at a time with machines that connect. Links that are dropped end all handshakes and
//!    connections at once, also those with a node that does not read.
//! 6. **Failures stay small.** A connection for which there is no thread is turned away. A panic of the handler ends the
//!    connection that the call was for. Both are told.
//! 7. **Members only.** No message is taken from, or sent to, a node that has not shown that it is the member that it is
//!    taken for: same cluster, known versions, its number and name, and with TLS a certificate for its name. Both nodes
//!    name the reason of a refusal ([`Refusal`]).
//! 8. **Not in the clear.** A plain connection goes between loopback addresses only, unless it was allowed by name
//!    ([`Security`]).
//!
//! A thread for each outgoing connection connects and writes, a thread for each incoming one reads and calls the node's
//! [`Handler`]. There is no runtime: a node has few connections, which live long.
//!
//! Reading order: `frame.rs` (bytes), `hello.rs` and `handshake.rs` (two nodes get to know each other), `lanes.rs`,
//! `queue.rs` and `turn.rs` (what is to be written), `link.rs` (connecting and writing), `incoming.rs` (reading),
//! `links.rs` (all of it).

mod bell;
mod counters;
mod dial;
mod event;
pub mod frame;
mod handshake;
mod handshakes;
mod hello;
mod incoming;
mod lanes;
mod link;
mod links;
mod options;
mod queue;
mod stream;
mod thread;
mod tls;
mod turn;

pub use counters::Counts;
pub use event::{Direction, Event, Failure, Handler};
pub use hello::{Agreed, Hello, NAME_MAX, Refusal, Versions, is_a_name};
pub use lanes::Class;
pub use links::{Links, Member, OpenError};
pub use options::{Nagle, Options, OptionsError, Security};
pub use queue::{ConnectionId, SendError};
pub use tls::{Tls, TlsError};
pub use turn::Turn;
