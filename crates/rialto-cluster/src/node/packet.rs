//! [`Packet`]: what nodes send to each other. A message, and bytes beside it that nothing copies into the message.

use rialto::log::{LogBlocks, LogFileLayout, LogPoint, LogPosition};
use serde::{Deserialize, Serialize};

use super::admin::RelayMessage;
use super::backup::BackupMessage;
use super::compare::Compared;
use super::transactions::{Cancelled, Serves, SqlWork};
use super::transfer::{Piece, Pull};
use crate::protocol::replication::Envelope;
use crate::protocol::transactions::Message;

/// A message of one node to another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Packet {
    /// Between the replicas of a partition. Beside [`Message::Blocks`](crate::protocol::replication::Message::Blocks) are
    /// the blocks ([`blocks`]).
    Replication(Envelope),
    /// The next piece of a copy or a load file is wanted.
    Pull(Pull),
    /// A piece. Its bytes are beside it.
    Piece(Piece),
    /// About a transaction; and what is sent with the next message because nothing waits for it.
    Transaction(Box<Message<SqlWork>>, Vec<Message<SqlWork>>),
    /// The node serves a partition.
    Serves(Serves),
    /// What a branch runs is to end.
    Cancel(Cancelled),
    /// About a backup of the cluster.
    Backup(BackupMessage),
    /// For an operator of another node's machine. What is asked or answered is beside it.
    Relay(RelayMessage),
    /// What a replica has found in a comparison.
    Compared(Compared),
}

/// Bytes that are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPacket;

impl Packet {
    /// The packet's bytes, with others beside it.
    pub fn to_bytes(&self, beside: &[&[u8]]) -> Vec<u8> {
        let room = 128 + beside.iter().map(|bytes| bytes.len()).sum::<usize>();
        // A vector takes everything, and the types have no maps or sequences of unknown length.
        let mut bytes = postcard::to_extend(self, Vec::with_capacity(room)).expect("a packet has bytes");
        for more in beside {
            bytes.extend_from_slice(more);
        }
        bytes
    }

    /// The packet, and the bytes beside it.
    ///
    /// # Errors
    /// [`NoPacket`] for damaged bytes, or those of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Packet, &[u8]), NoPacket> {
        postcard::take_from_bytes(bytes).map_err(|_| NoPacket)
    }
}

/// The bytes of a log file's layout, before its blocks.
const LAYOUT_BYTES: usize = 24;

/// The bytes of blocks, as they are beside a message: the layout of their file, and they themselves.
pub fn layout_bytes(layout: &LogFileLayout) -> [u8; LAYOUT_BYTES] {
    let mut bytes = [0; LAYOUT_BYTES];
    bytes[..8].copy_from_slice(&layout.sequence.to_le_bytes());
    bytes[8..16].copy_from_slice(&layout.start.0.to_le_bytes());
    bytes[16..].copy_from_slice(&layout.bytes.to_le_bytes());
    bytes
}

/// The blocks that are beside a message, which begin and end at these points.
///
/// # Errors
/// [`NoPacket`] if the bytes are too short for a layout.
pub fn blocks(beside: &[u8], begin: LogPoint, end: LogPoint) -> Result<LogBlocks<'_>, NoPacket> {
    let (layout, bytes) = beside.split_first_chunk::<LAYOUT_BYTES>().ok_or(NoPacket)?;
    let number = |at: usize| u64::from_le_bytes(layout[at..at + 8].try_into().expect("eight bytes"));
    let file = LogFileLayout { sequence: number(0), start: LogPosition(number(8)), bytes: number(16) };
    Ok(LogBlocks { position: begin.position, bytes, file, end })
}
