//! How a node's connections are made.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::hello::{Versions, is_a_name};
use super::lanes::{Class, PerClass};
use super::queue::Room;
use super::tls::Tls;
use crate::protocol::{Life, NodeId};

/// How connections are protected.
#[derive(Debug, Clone)]
pub enum Security {
    /// Encrypted, with certificates on both sides.
    Tls(Tls),
    /// Plain, and only between loopback addresses.
    PlainOnLoopback,
    /// Plain, to any address: every machine in the network can read and change what nodes say. For a network that no
    /// other machine is in.
    PlainAnywhere,
}

/// Whether the kernel holds small writes back until earlier ones are acknowledged (Nagle's algorithm).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Nagle {
    /// Each write is sent at once.
    #[default]
    Off,
    /// Small writes wait. For measurements.
    On,
}

/// How a node's connections are made.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster: a random number, drawn when the cluster was made.
    pub cluster: u128,
    /// This node.
    pub node: NodeId,
    /// This node's name: letters, digits, `-` and `.`, as that of a host.
    pub name: String,
    /// See [`Hello::life`](super::Hello::life).
    pub life: Life,
    /// The versions that this node knows.
    pub versions: Versions,
    /// Where it takes connections.
    pub listen: SocketAddr,
    /// How connections are protected.
    pub security: Security,
    /// Whether small writes wait.
    pub nagle: Nagle,
    /// The longest message, in bytes.
    pub message_max: usize,
    /// Room for messages of [`Class::Protocol`](super::Class::Protocol) to one node, in bytes. Each class has room of its
    /// own, in which one message of the greatest length fits.
    pub protocol_room: usize,
    /// The same for messages of [`Class::Work`](super::Class::Work).
    pub work_room: usize,
    /// The same for messages of [`Class::Blocks`](super::Class::Blocks).
    pub blocks_room: usize,
    /// The most time that a handshake takes, from its first packet on.
    pub handshake_max: Duration,
    /// The longest pause between two attempts to connect.
    pub reconnect_max: Duration,
    /// The longest time in which a machine acknowledges nothing; after it, its connections count as ended. At least a
    /// second.
    pub silence_max: Duration,
}

impl Options {
    /// Options for a node, with the usual limits: messages of 4 MiB, room for 8 MiB of the protocol's, 16 MiB of work and
    /// 16 MiB of blocks to each node, 5 s for a handshake, 1 s between attempts to connect, 10 s of silence.
    pub fn new(cluster: u128, node: NodeId, name: &str, listen: SocketAddr, security: Security) -> Options {
        Options {
            cluster,
            node,
            name: name.to_owned(),
            life: Life(0),
            versions: Versions { oldest: 1, newest: 1, feature_level: 1 },
            listen,
            security,
            nagle: Nagle::Off,
            message_max: 4 << 20,
            protocol_room: 8 << 20,
            work_room: 16 << 20,
            blocks_room: 16 << 20,
            handshake_max: Duration::from_secs(5),
            reconnect_max: Duration::from_secs(1),
            silence_max: Duration::from_secs(10),
        }
    }

    pub(super) fn room(&self) -> Room {
        let mut classes = PerClass::default();
        for (class, bytes) in [
            (Class::Protocol, self.protocol_room),
            (Class::Work, self.work_room),
            (Class::Blocks, self.blocks_room),
        ] {
            classes[class.index()] = bytes;
        }
        Room { classes, message_max: self.message_max }
    }

    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let wrong = |what: String| Err(OptionsError(what));
        let longest = self.message_max + super::frame::HEADER;
        if !is_a_name(&self.name) {
            return wrong(format!(
                "{:?} cannot be the name of a node: a name has letters, digits, - and . only",
                self.name
            ));
        }
        if self.versions.oldest > self.versions.newest {
            return wrong(format!("{:?}: these cannot be the versions of a node", self.versions));
        }
        let rooms = [self.protocol_room, self.work_room, self.blocks_room];
        if self.message_max == 0 || rooms.iter().any(|&room| room < longest) {
            return wrong(format!(
                "a message of {} bytes does not fit into the room for it",
                self.message_max
            ));
        }
        if self.silence_max < Duration::from_secs(1)
            || self.handshake_max.is_zero()
            || self.reconnect_max.is_zero()
        {
            return wrong("a time of the connections is too short".to_owned());
        }
        if matches!(self.security, Security::PlainOnLoopback) && !self.listen.ip().is_loopback() {
            return wrong(format!(
                "connections to {} would be plain; give the node certificates, or allow plain connections by name",
                self.listen
            ));
        }
        Ok(())
    }
}

/// Options that make no sense, or would leave connections unprotected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsError(String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}
