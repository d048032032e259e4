//! The connections between nodes: TCP, permanent, one for each pair of nodes and direction, `2(n - 1)` a node.
//!
//! Invariants:
//! 1. **Order, per class.** A connection delivers a prefix of each class's messages, in the order in which they were sent.
//!    Messages of two classes may be delivered in another order. A message is lost only with its connection, whose end the
//!    node is told ([`Event`]). Connections with one node follow each other: the end of one is told before the beginning
//!    of the next one, also when the node's address changes.
//! 2. **A sender never blocks.** Its message is queued, or the call says that there is no room. Each class has room of its
//!    own, however much of another class is queued.
//! 3. **The protocol first.** Queued messages of [`Class::Protocol`] are written before all others. Such a message waits
//!    for at most one write of 64 KiB, or of one longer message, and for the bytes in the socket's buffer.
//!    [`Class::Work`] and [`Class::Blocks`] take turns while both wait: neither gets ahead by more than one message.
//! 4. **One write.** Messages that are queued for a node are written together, up to 64 KiB; all messages of a [`Turn`] to
//!    a node are queued at once.
//! 5. **An unauthenticated peer cannot hold up the node.** A handshake as a whole has a time limit, whatever the peer
//!    sends, and at most 256 incoming handshakes run at a time. When the links are dropped, all handshakes and connections
//!    end at once, also those with a node that does not read.
//! 6. **Failures stay small.** A connection for which there is no thread is turned away. A panic of the handler ends the
//!    connection that the call was for. Both are told.
//! 7. **Members only.** Messages are exchanged only with a node that has shown which member it is: the same cluster, known
//!    versions, its number and name, and with TLS a certificate for its name. Both nodes name the reason of a refusal
//!    ([`Refusal`]).
//! 8. **Not in the clear.** A plain connection goes between loopback addresses only, unless it was allowed by name
//!    ([`Security`]).
//!
//! A thread for each outgoing connection connects. A message is written by the thread that sends it, as far as the connection
//! takes it at once; the connection's thread writes the rest. A thread for each incoming one reads and calls the node's
//! [`Handler`]. There is no runtime: a node has few connections, which live long.
//!
//! Reading order: `frame.rs` (bytes), `hello.rs` and `handshake.rs` (two nodes get to know each other), `lanes.rs`,
//! `queue.rs` and `turn.rs` (what is to be written), `outlet.rs` (writing), `link.rs` (connecting), `incoming.rs` (reading),
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
mod outlet;
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
