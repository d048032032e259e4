//! [`AppendedPackets`]: the packets of a log that follows another one, one after the other, as they are appended.

use std::sync::Arc;
use std::time::Duration;

use super::block::{self, BLOCK_MAX};
use super::reader::RedoneUpTo;
use super::unpacker::{Malformed, Unpacked, Unpacker};
use super::{Log, LogCursor, LogPoint, Packet};
use crate::{Error, Lsn, Result};

/// Bytes of blocks that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// Reads a log's packets behind [`Log::append`].
pub(crate) struct AppendedPackets {
    cursor: LogCursor,
    /// Blocks that were read, and the first byte of those that were not unpacked yet; the position of the first block.
    blocks: Vec<u8>,
    at: usize,
    position: u64,
    unpacker: Unpacker,
    /// The packet that was read and not passed yet.
    next: Option<Unpacked>,
}

impl AppendedPackets {
    /// The packets of a log that follows another one that are not whole yet, or will be appended.
    pub(crate) fn of(log: &Arc<Log>) -> Result<AppendedPackets> {
        let (point, incarnation) = log.between_packets();
        AppendedPackets::behind(log, point, incarnation)
    }

    /// Those that the log's opening has not redone, and those that will be appended.
    ///
    /// # Errors
    /// As [`AppendedPackets::next`].
    pub(crate) fn unredone(log: &Arc<Log>) -> Result<AppendedPackets> {
        let RedoneUpTo { place, point, incarnation } = log.redone_at_opening();
        let mut packets = AppendedPackets::behind(log, point, incarnation)?;
        while packets.place() <= Lsn(place) {
            packets.next(Duration::ZERO)?.expect("the log has what was redone of it");
            packets.pass();
        }
        Ok(packets)
    }

    fn behind(log: &Arc<Log>, point: LogPoint, incarnation: u32) -> Result<AppendedPackets> {
        Ok(AppendedPackets {
            cursor: log.cursor(point, u64::MAX)?,
            blocks: Vec::new(),
            at: 0,
            position: point.position.0,
            unpacker: Unpacker::after(point.lsn.0, incarnation),
            next: None,
        })
    }

    /// Passes all packets, and gives what there is of one behind them.
    pub(super) fn unpack_all(mut self) -> Result<Unpacker> {
        while self.next(Duration::ZERO)?.is_some() {
            self.pass();
        }
        Ok(self.unpacker)
    }

    /// The place of the next packet.
    pub(crate) fn place(&self) -> Lsn {
        self.next.map_or_else(|| Lsn(self.unpacker.lsn()).next(), |next| next.lsn)
    }

    /// The next packet, until it is [passed](AppendedPackets::pass); `None` if none comes within this time.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a block that makes no sense; those of [`LogCursor::next_blocks`].
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Option<Packet<'_>>> {
        loop {
            if self.next.is_none() {
                self.next = self.unpacker.next().map_err(|malformed| corrupt(&malformed))?;
            }
            if let Some(next) = self.next {
                return self.unpacker.packet(next).map(Some).map_err(|malformed| corrupt(&malformed));
            }
            if self.at == self.blocks.len() && !self.read(patience)? {
                return Ok(None);
            }
            let (rest, position) = (&self.blocks[self.at..], self.position + self.at as u64);
            let length = block::claimed_length(rest, position, BLOCK_MAX as u64);
            let found = length.and_then(|length| Some((length, block::header_of(&rest[..length])?)));
            let (length, header) = found.expect("the cursor has verified it");
            self.unpacker.take(header, &rest[..length], false).map_err(|malformed| corrupt(&malformed))?;
            self.at += length;
        }
    }

    /// The packet is not needed any more.
    pub(crate) fn pass(&mut self) {
        self.next = None;
    }

    fn read(&mut self, patience: Duration) -> Result<bool> {
        self.cursor.release(self.cursor.point().position);
        let Some(read) = self.cursor.next_blocks(READ_BYTES, patience)? else { return Ok(false) };
        self.blocks.clear();
        self.blocks.extend_from_slice(read.bytes);
        (self.at, self.position) = (0, read.position.0);
        Ok(true)
    }
}

fn corrupt(malformed: &Malformed) -> Error {
    let Malformed { header, what } = malformed;
    let what = format!("the block's checksum is right, but {what} makes no sense");
    Error::Corrupt { file: "the log that is followed".to_owned(), offset: header.position, what }
}
