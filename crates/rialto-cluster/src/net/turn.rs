//! A turn: the messages that one step of a node sends.

use std::sync::Arc;

use super::lanes::{Class, Lanes};
use super::link::Link;
use super::links::Shared;
use super::queue::{ConnectionId, SendError};
use crate::protocol::NodeId;

/// The messages of one step of a node. They are gathered, and queued when the turn ends ([`Turn::end`], or when it is
/// dropped): all that goes to one node is queued at once, and therefore goes by one write (if it is no more than a write
/// takes) and wakes its writer once. A turn that is used again keeps its buffers, so that it allocates nothing.
pub struct Turn<'a> {
    shared: &'a Shared,
    parts: Vec<Part>,
}

/// What goes to one node by one connection.
struct Part {
    link: Arc<Link>,
    connection: ConnectionId,
    messages: Lanes,
}

impl<'a> Turn<'a> {
    pub(super) fn new(shared: &'a Shared) -> Turn<'a> {
        Turn { shared, parts: Vec::new() }
    }

    /// Gathers a message for a node; room for it is taken now. It never blocks.
    ///
    /// # Errors
    /// As [`Links::send`](super::Links::send).
    pub fn send(&mut self, to: NodeId, class: Class, payload: &[u8]) -> Result<(), SendError> {
        let link = self.shared.link(to).ok_or(SendError::NotAMember)?;
        let connection = self.shared.counted(link.queue.admit(class, payload.len()))?;
        let known = self.parts.iter().position(|part| Arc::ptr_eq(&part.link, &link));
        let index = known.unwrap_or_else(|| {
            self.parts.push(Part { link, connection, messages: Lanes::default() });
            self.parts.len() - 1
        });
        let part = &mut self.parts[index];
        if part.connection != connection {
            // What was gathered for a connection that has ended is lost with it.
            part.messages.clear();
            part.connection = connection;
        }
        part.messages.push(class, payload);
        Ok(())
    }

    /// Queues what was gathered. The next message begins another turn.
    pub fn end(&mut self) {
        // A link that is over has another one in its place, or none.
        self.parts.retain(|part| !part.link.is_over());
        for part in self.parts.iter_mut().filter(|part| !part.messages.is_empty()) {
            part.link.append(part.connection, &mut part.messages, &self.shared.counters);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
