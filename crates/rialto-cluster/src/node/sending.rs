//! [`Sending`]: how the parts of a node send packets.

use std::sync::OnceLock;

use super::packet::Packet;
use crate::net::{Class, Links, SendError};
use crate::protocol::NodeId;

/// How the parts of a node send packets to other nodes. The links call these parts with what comes, so they exist before the
/// links do.
#[derive(Default)]
pub struct Sending {
    links: OnceLock<std::sync::Weak<Links>>,
}

impl Sending {
    /// The links are open.
    pub fn open(&self, links: &std::sync::Arc<Links>) {
        let _ = self.links.set(std::sync::Arc::downgrade(links));
    }

    /// The messages that were sent to other nodes.
    pub fn messages_sent(&self) -> u64 {
        let links = self.links.get().and_then(std::sync::Weak::upgrade);
        links.map_or(0, |links| links.counts().messages_sent)
    }

    /// Queues a packet for a node. It never blocks.
    ///
    /// # Errors
    /// See [`SendError`]; [`SendError::NotConnected`] also before the links are open and once they are closed.
    pub fn send(&self, to: NodeId, class: Class, packet: &Packet, beside: &[&[u8]]) -> Result<(), SendError> {
        let links = self.links.get().and_then(std::sync::Weak::upgrade).ok_or(SendError::NotConnected)?;
        links.send(to, class, &packet.to_bytes(beside))
    }
}
