//! Transfers: a copy of a partition, a load file, or a backup goes from one node to another in pieces.
//!
//! The receiver pulls: it asks for each piece, a few ahead. So a transfer never has more than these in the queues between the
//! nodes, and goes as fast as the receiver writes. The sender gives up once nothing was pulled for [`PATIENCE`], the
//! receiver once nothing has come for as long, or the connection ended. Copies and load files go no faster than the node's
//! [`Pace`], all of them together; backups go as fast as they can, since commits may wait for them.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rialto::fault_injection;
use serde::{Deserialize, Serialize};

use super::pace::Pace;
use super::packet::Packet;
use super::random::random_number;
use super::sending::Sending;
use crate::net::{Class, SendError};
use crate::protocol::transactions::Opening;
use crate::protocol::{NodeId, PartitionId};

/// The longest wait for the other node.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The longest wait of a piece for a connection.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
/// The bytes of a piece, but for the last one.
const PIECE_BYTES: usize = 512 << 10;
/// How often a transfer that waits looks whether the node ends.
const LOOK_FOR_THE_END: Duration = Duration::from_millis(50);
/// How many pieces are asked for ahead.
const AHEAD: u64 = 4;

/// What is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A copy of the partition's database.
    Copy(PartitionId),
    /// A load file of the partition's database.
    LoadFile {
        /// The partition.
        partition: PartitionId,
        /// The file's number.
        number: u64,
    },
    /// A backup of the partition, at one moment with those of all others.
    Backup {
        /// The partition.
        partition: PartitionId,
        /// The opening of it that is backed up.
        opening: Opening,
        /// The backup's number.
        backup: u64,
    },
}

impl Source {
    /// The partition.
    pub fn partition(self) -> PartitionId {
        match self {
            Source::Copy(partition)
            | Source::LoadFile { partition, .. }
            | Source::Backup { partition, .. } => partition,
        }
    }
}

/// One piece of a transfer is wanted. The first one begins the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// The transfer: a number of the receiver's.
    pub transfer: u64,
    /// The piece, from 0 on.
    pub piece: u64,
    /// What is transferred.
    pub source: Source,
}

/// What a piece says about the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    /// More pieces follow.
    More,
    /// It was the last one.
    End,
    /// The transfer failed, for this reason.
    Failed(String),
}

/// A piece of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The transfer.
    pub transfer: u64,
    /// The piece, from 0 on.
    pub piece: u64,
    /// What follows.
    pub rest: Rest,
}

/// The node's transfers, in both directions.
pub struct Transfers {
    sending: Arc<Sending>,
    last: AtomicU64,
    is_closed: AtomicBool,
    /// Those that this node receives.
    incoming: Mutex<HashMap<u64, Incoming>>,
    /// Those that it sends, by the other node and its number. What is pulled is told here.
    outgoing: Mutex<HashMap<(NodeId, u64), Sender<u64>>>,
    /// The pace of the copies that it sends.
    pace: Pace,
}

struct Incoming {
    from: NodeId,
    of: PartitionId,
    pieces: Sender<(Piece, Vec<u8>)>,
}

impl Transfers {
    /// No transfers.
    pub fn new(sending: Arc<Sending>, pace: Pace) -> Transfers {
        // Another process's numbers do not come again, so that its late pieces are not taken for this one's.
        let last = AtomicU64::new(random_number() >> 16);
        let is_closed = AtomicBool::new(false);
        Transfers { sending, last, is_closed, incoming: Mutex::default(), outgoing: Mutex::default(), pace }
    }

    /// Sends a packet, and waits for room. A piece waits for a connection, too: at a start what was pulled may come before this
    /// node has reached the other one, which would wait for the piece for long.
    fn send(&self, to: NodeId, class: Class, packet: &Packet, beside: &[&[u8]]) -> Result<(), SendError> {
        let began = Instant::now();
        loop {
            let sent = self.sending.send(to, class, packet, beside);
            let patience = match sent {
                Err(SendError::Full) => PATIENCE,
                Err(SendError::NotConnected) if matches!(packet, Packet::Piece(_)) => CONNECTS_WITHIN,
                _ => return sent,
            };
            if began.elapsed() >= patience || self.is_closed.load(Ordering::SeqCst) {
                return sent;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Begins to receive.
    pub fn pull(self: &Arc<Transfers>, from: NodeId, source: Source) -> Pulling {
        let transfer = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (pieces, receiver) = channel();
        self.incoming.lock().insert(transfer, Incoming { from, of: source.partition(), pieces });
        let mut pulling = Pulling {
            transfers: self.clone(),
            from,
            source,
            transfer,
            receiver,
            piece: Vec::new(),
            read: 0,
            wanted: 0,
            next: 0,
            has_ended: false,
            unsent: self.is_closed.load(Ordering::SeqCst).then_some(SendError::NotConnected),
        };
        for _ in 0..AHEAD {
            pulling.want();
        }
        pulling
    }

    /// A piece has come.
    pub fn came(&self, from: NodeId, piece: Piece, bytes: &[u8]) {
        if let Some(incoming) = self.incoming.lock().get(&piece.transfer)
            && incoming.from == from
        {
            // Its reader may have gone meanwhile.
            let _ = incoming.pieces.send((piece, bytes.to_vec()));
        }
    }

    /// A piece is wanted: `serve` is run, on a thread of its own, if it is the first one.
    pub fn wanted(
        self: &Arc<Transfers>,
        by: NodeId,
        pull: Pull,
        serve: impl FnOnce(&mut Pushing) -> Result<(), String> + Send + 'static,
    ) {
        let mut outgoing = self.outgoing.lock();
        let key = (by, pull.transfer);
        if let Some(pulled) = outgoing.get(&key) {
            let _ = pulled.send(pull.piece);
            return;
        }
        if pull.piece != 0 {
            return;
        }
        let (pulled, receiver) = channel();
        let _ = pulled.send(0);
        outgoing.insert(key, pulled);
        let mut pushing = Pushing {
            transfers: self.clone(),
            to: by,
            source: pull.source,
            transfer: pull.transfer,
            receiver,
            buffer: Vec::new(),
            next: 0,
            allowed: 0,
        };
        let transfers = self.clone();
        let run = move || {
            let rest = match serve(&mut pushing) {
                Ok(()) => Rest::End,
                Err(why) => Rest::Failed(why),
            };
            // The receiver gives up by itself if it does not hear of the end.
            let _ = pushing.send(rest);
            transfers.outgoing.lock().remove(&key);
        };
        let thread = std::thread::Builder::new().name("rialto-transfer".to_owned());
        if thread.spawn(run).is_err() {
            outgoing.remove(&key);
        }
    }

    /// The connection with a node has ended: so have the transfers.
    pub fn cut(&self, node: NodeId) {
        self.incoming.lock().retain(|_, incoming| incoming.from != node);
        self.outgoing.lock().retain(|(to, _), _| *to != node);
    }

    /// A partition is received no more.
    pub fn end_pulls_of(&self, partition: PartitionId) {
        self.incoming.lock().retain(|_, incoming| incoming.of != partition);
    }

    /// The process ends.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        if !fault_injection::is_on("closing-leaves-transfers") {
            self.incoming.lock().clear();
        }
        self.outgoing.lock().clear();
    }
}

/// A transfer that this node receives: a reader of its bytes.
pub struct Pulling {
    transfers: Arc<Transfers>,
    from: NodeId,
    source: Source,
    transfer: u64,
    receiver: Receiver<(Piece, Vec<u8>)>,
    piece: Vec<u8>,
    read: usize,
    /// How many pieces were asked for.
    wanted: u64,
    /// The next piece that is to come.
    next: u64,
    has_ended: bool,
    /// Why a piece could not be asked for.
    unsent: Option<SendError>,
}

impl Pulling {
    fn want(&mut self) {
        let pull = Pull { transfer: self.transfer, piece: self.wanted, source: self.source };
        self.wanted += 1;
        let sent = self.transfers.send(self.from, Class::Protocol, &Packet::Pull(pull), &[]);
        if let Err(error) = sent {
            self.unsent.get_or_insert(error);
        }
    }

    fn next_piece(&mut self) -> io::Result<()> {
        if let Some(error) = self.unsent {
            return Err(io::Error::other(format!("the transfer from {}: {error}", self.from)));
        }
        let (piece, bytes) = self.receiver.recv_timeout(PATIENCE).map_err(|error| {
            let why = match error {
                RecvTimeoutError::Timeout => "nothing has come for 30 s",
                RecvTimeoutError::Disconnected => "the connection has ended",
            };
            io::Error::other(format!("the transfer from {}: {why}", self.from))
        })?;
        if piece.piece != self.next {
            return Err(io::Error::other(format!("the transfer from {}: a piece is missing", self.from)));
        }
        self.next += 1;
        match piece.rest {
            Rest::More => self.want(),
            Rest::End => self.has_ended = true,
            Rest::Failed(_) if fault_injection::is_on("failed-transfer-is-the-end") => self.has_ended = true,
            Rest::Failed(why) => return Err(io::Error::other(format!("{}: {why}", self.from))),
        }
        (self.piece, self.read) = (bytes, 0);
        Ok(())
    }
}

impl Read for Pulling {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() && !self.has_ended {
            self.next_piece()?;
        }
        let bytes = buffer.len().min(self.piece.len() - self.read);
        buffer[..bytes].copy_from_slice(&self.piece[self.read..self.read + bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        self.transfers.incoming.lock().remove(&self.transfer);
    }
}

/// A transfer that this node sends: a writer of its bytes. Its error ends the transfer.
pub struct Pushing {
    transfers: Arc<Transfers>,
    to: NodeId,
    source: Source,
    transfer: u64,
    receiver: Receiver<u64>,
    buffer: Vec<u8>,
    next: u64,
    /// Pieces below this number are wanted.
    allowed: u64,
}

impl Pushing {
    /// Sends what is in the buffer, once it is wanted.
    fn send(&mut self, rest: Rest) -> io::Result<()> {
        while self.allowed <= self.next {
            let wanted = self
                .receiver
                .recv_timeout(PATIENCE)
                .map_err(|_| io::Error::other(format!("{} does not take the transfer any more", self.to)))?;
            self.allowed = self.allowed.max(wanted + 1);
        }
        self.wait_for_its_time()?;
        let piece = Packet::Piece(Piece { transfer: self.transfer, piece: self.next, rest });
        let sent = self.transfers.send(self.to, Class::Work, &piece, &[&self.buffer]);
        sent.map_err(|error| io::Error::other(error.to_string()))?;
        self.next += 1;
        self.buffer.clear();
        Ok(())
    }
}

impl Pushing {
    /// Waits until the node's pace lets the piece in the buffer go.
    fn wait_for_its_time(&self) -> io::Result<()> {
        if matches!(self.source, Source::Backup { .. }) {
            return Ok(());
        }
        let began = Instant::now();
        let waits = self.transfers.pace.take(self.buffer.len(), began);
        while let Some(left) = waits.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            if self.transfers.is_closed.load(Ordering::SeqCst) {
                return Err(io::Error::other("this node ends"));
            }
            std::thread::sleep(left.min(LOOK_FOR_THE_END));
        }
        Ok(())
    }
}

impl Write for Pushing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= PIECE_BYTES {
            self.send(Rest::More)?;
        }
        let taken = bytes.len().min(PIECE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
