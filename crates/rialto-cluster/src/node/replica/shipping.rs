//! [`Shipping`]: the blocks of a primary's log, on their way to the other replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rialto::log::{LogCursor, LogPoint};
use rialto::{Database, Error};

use crate::net::{Class, SendError};
use crate::node::packet::{Packet, layout_bytes};
use crate::node::sending::Sending;
use crate::protocol::replication::{Envelope, Member, Message, Stream};
use crate::protocol::{Epoch, NodeId, PartitionId};

/// The most bytes of blocks in a message, but for a single block that is longer.
const MESSAGE_BYTES: usize = 1 << 20;

/// The streams of blocks to the other replicas, each with a cursor on the log. What the links have no room for waits here.
pub struct Shipping {
    sending: Arc<Sending>,
    partition: PartitionId,
    me: Member,
    /// The most bytes of log that are kept for each replica.
    log_bytes: u64,
    streams: BTreeMap<NodeId, Shipped>,
    /// Cursors that came with copies: they keep the log for replicas whose streams have not begun.
    kept: BTreeMap<NodeId, LogCursor>,
}

struct Shipped {
    stream: Stream,
    to: Member,
    cursor: LogCursor,
    /// Up to here the state machine has asked for blocks.
    end: LogPoint,
    epoch: Epoch,
    /// A message that the links had no room for.
    unsent: Option<(Packet, Vec<u8>)>,
}

/// Why blocks are not shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotShipped {
    /// The log does not have them, and will not.
    NotThere,
    /// The log has stopped or is closed.
    Ended,
}

impl Shipping {
    pub fn new(sending: Arc<Sending>, partition: PartitionId, me: Member, log_bytes: u64) -> Shipping {
        let (streams, kept) = (BTreeMap::new(), BTreeMap::new());
        Shipping { sending, partition, me, log_bytes, streams, kept }
    }

    /// Keeps the log from a copy's place on, for a replica.
    pub fn keep(&mut self, to: NodeId, cursor: LogCursor) {
        self.kept.insert(to, cursor);
    }

    /// Whether [`Shipping::ship`] reads no file.
    pub fn ships_from_memory(&self, to: Member, stream: Stream, begin: LogPoint, end: LogPoint) -> bool {
        let shipped = self.streams.get(&to.node).filter(|shipped| shipped.goes_on(to, stream, begin));
        shipped.is_some_and(|shipped| begin == end || shipped.cursor.is_in_memory())
    }

    /// Sends what a stream has from one point to another one; a message also if there is nothing between them.
    ///
    /// # Errors
    /// See [`NotShipped`].
    pub fn ship(
        &mut self,
        db: &Database,
        epoch: Epoch,
        to: Member,
        stream: Stream,
        (begin, end): (LogPoint, LogPoint),
    ) -> Result<(), NotShipped> {
        let goes_on = self.streams.get(&to.node).is_some_and(|shipped| shipped.goes_on(to, stream, begin));
        if !goes_on {
            self.streams.remove(&to.node);
            let cursor = db.log_cursor(Some(begin), self.log_bytes).map_err(|error| not_shipped(&error))?;
            let shipped = Shipped { stream, to, cursor, end: begin, epoch, unsent: None };
            self.streams.insert(to.node, shipped);
            self.kept.remove(&to.node);
        }
        let shipped = self.streams.get_mut(&to.node).expect("the stream is there");
        (shipped.end, shipped.epoch) = (end, epoch);
        if begin == end {
            let envelope = envelope(self.partition, self.me, shipped, begin, end);
            let _ = self.sending.send(to.node, Class::Protocol, &Packet::Replication(envelope), &[]);
            return Ok(());
        }
        self.go_on(to.node)
    }

    /// Sends what waits, as far as there is room for it. Gives the streams that cannot go on.
    pub fn go_on_all(&mut self) -> Vec<(NodeId, Stream, NotShipped)> {
        let waiting = self.streams.iter().filter(|(_, shipped)| shipped.waits()).map(|(node, _)| *node);
        let mut broken = Vec::new();
        for node in waiting.collect::<Vec<_>>() {
            let stream = self.streams[&node].stream;
            if let Err(why) = self.go_on(node) {
                broken.push((node, stream, why));
            }
        }
        broken
    }

    /// Whether something waits.
    pub fn waits(&self) -> bool {
        self.streams.values().any(Shipped::waits)
    }

    /// A replica has everything before this point in its stream.
    pub fn acknowledged(&mut self, from: NodeId, stream: Option<Stream>, received: Option<LogPoint>) {
        if let (Some(shipped), Some(received)) = (self.streams.get(&from), received)
            && Some(shipped.stream) == stream
        {
            shipped.cursor.release(received.position);
        }
    }

    fn go_on(&mut self, node: NodeId) -> Result<(), NotShipped> {
        let sent = self.send_waiting(node);
        if sent.is_err() {
            self.streams.remove(&node);
        }
        sent
    }

    fn send_waiting(&mut self, node: NodeId) -> Result<(), NotShipped> {
        let shipped = self.streams.get_mut(&node).expect("the stream is there");
        loop {
            if let Some((packet, beside)) = &shipped.unsent {
                match self.sending.send(node, Class::Blocks, packet, &[beside]) {
                    Ok(()) => shipped.unsent = None,
                    Err(SendError::Full) => return Ok(()),
                    // What is lost is sent again from what is acknowledged.
                    Err(SendError::NotConnected | SendError::NotAMember) => {
                        shipped.unsent = None;
                        shipped.end = shipped.cursor.point();
                        return Ok(());
                    }
                    Err(SendError::TooLong) => return Err(NotShipped::NotThere),
                }
            }
            let begin = shipped.cursor.point();
            let wanted = shipped.end.position.0.saturating_sub(begin.position.0) as usize;
            if wanted == 0 {
                return Ok(());
            }
            let blocks = shipped.cursor.next_blocks(wanted.min(MESSAGE_BYTES), Duration::ZERO);
            let Some(blocks) = blocks.map_err(|error| not_shipped(&error))? else { return Ok(()) };
            let mut beside = Vec::with_capacity(blocks.bytes.len() + 24);
            beside.extend(layout_bytes(&blocks.file));
            beside.extend_from_slice(blocks.bytes);
            let end = blocks.end;
            let envelope = envelope(self.partition, self.me, shipped, begin, end);
            shipped.unsent = Some((Packet::Replication(envelope), beside));
        }
    }
}

impl Shipped {
    /// Whether blocks from this point on are the next ones of this stream.
    fn goes_on(&self, to: Member, stream: Stream, begin: LogPoint) -> bool {
        self.stream == stream && self.end == begin && self.to == to
    }

    fn waits(&self) -> bool {
        self.unsent.is_some() || self.cursor.point().position < self.end.position
    }
}

fn envelope(
    partition: PartitionId,
    from: Member,
    shipped: &Shipped,
    begin: LogPoint,
    end: LogPoint,
) -> Envelope {
    let Shipped { stream, to, epoch, .. } = *shipped;
    let message = Message::Blocks { stream, begin, end };
    Envelope { partition, epoch, from, to: to.node, to_life: Some(to.life), message }
}

fn not_shipped(error: &Error) -> NotShipped {
    match error {
        Error::LogDiverged { .. } | Error::LogTrimmed { .. } | Error::Corrupt { .. } => NotShipped::NotThere,
        _ => NotShipped::Ended,
    }
}
