//! [`Unpacker`]: takes packets out of blocks that follow each other.

use super::block::{BlockHeader, BlockKind, HEADER, PACKET_HEADER, PART_HEADER, u32_at};
use super::{HELD_BY, HELD_BY_BYTES, PACKET_BYTES_MAX, Packet, PacketKind};
use crate::Lsn;

/// The packets of a chain of blocks, whose checksums are verified.
#[derive(Debug)]
pub(super) struct Unpacker {
    /// The last whole packet's place.
    lsn: u64,
    incarnation: u32,
    /// The block whose packets are taken out.
    block: Vec<u8>,
    header: Option<BlockHeader>,
    /// Where its next packet begins, and how many of its packets are left.
    cursor: usize,
    left: u32,
    /// The bytes of a large packet's parts so far.
    parts: Vec<u8>,
    parts_length: Option<usize>,
}

/// A block whose checksum is right and whose contents are wrong: our own bug, or a forgery.
#[derive(Debug)]
pub(super) struct Malformed {
    pub(super) header: BlockHeader,
    pub(super) what: &'static str,
}

/// The next packet, before its bytes are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unpacked {
    pub(super) lsn: Lsn,
    kind: u8,
    /// Where its bytes lie in the block; `None` if they are the parts.
    range: Option<(usize, usize)>,
}

impl Unpacker {
    /// For blocks after this place and of this incarnation.
    pub(super) fn after(lsn: u64, incarnation: u32) -> Unpacker {
        Unpacker {
            lsn,
            incarnation,
            block: Vec::new(),
            header: None,
            cursor: 0,
            left: 0,
            parts: Vec::new(),
            parts_length: None,
        }
    }

    /// The place of the last whole packet that was taken out.
    pub(super) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The incarnation of the last block.
    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The header of the last block.
    pub(super) fn header(&self) -> Option<&BlockHeader> {
        self.header.as_ref()
    }

    /// Whether the last block ends between packets.
    pub(super) fn is_between_packets(&self) -> bool {
        self.parts_length.is_none()
    }

    /// Leaves out the rest of the block's packets.
    pub(super) fn leave_out(&mut self) {
        self.lsn += u64::from(std::mem::take(&mut self.left));
    }

    /// Forgets the parts of a packet that the log ends inside of.
    pub(super) fn forget_parts(&mut self) {
        self.parts.clear();
    }

    /// Takes the next block; `is_first` of the chain, which may begin inside a packet.
    pub(super) fn take(
        &mut self,
        header: BlockHeader,
        block: &[u8],
        is_first: bool,
    ) -> Result<(), Malformed> {
        if header.incarnation > self.incarnation {
            // The packet does not count: its last part was not written before that opening.
            self.parts_length = None;
        }
        self.incarnation = header.incarnation;
        self.block.clear();
        self.block.extend_from_slice(block);
        (self.header, self.cursor, self.left) = (Some(header), HEADER, header.packets);
        let malformed = |what| Err(Malformed { header, what });
        match header.kind {
            BlockKind::Part => self.take_part(&header, is_first && header.inside),
            BlockKind::Group if header.inside || self.parts_length.is_some() => {
                malformed("a group inside a packet")
            }
            BlockKind::Pad if header.packets > 0 => malformed("a pad with packets"),
            BlockKind::Group | BlockKind::Pad => Ok(()),
        }
    }

    fn take_part(&mut self, header: &BlockHeader, begins_inside: bool) -> Result<(), Malformed> {
        let malformed = |what| Err(Malformed { header: *header, what });
        if self.block.len() < HEADER + PART_HEADER {
            return malformed("the length of a part");
        }
        let number = |at: usize| u32_at(&self.block, HEADER + 4 * at) as usize;
        let (here, before, whole) = (number(0), number(1), number(2));
        if before > whole || whole > PACKET_BYTES_MAX + HELD_BY_BYTES {
            return malformed("the length of a packet in parts");
        }
        if begins_inside {
            // The packet began in an earlier file, before the redo start: its place counts, its bytes are not needed.
            self.parts = vec![0; before];
            self.parts_length = Some(whole);
        } else if before == 0 {
            self.parts.clear();
            self.parts_length = Some(whole);
        }
        let from = HEADER + PART_HEADER;
        let sound = before == self.parts.len()
            && header.inside == (before > 0)
            && self.parts_length == Some(whole)
            && before + here <= whole
            && from + here <= self.block.len()
            && header.packets == u32::from(before + here == whole);
        if !sound {
            return malformed("a part of a packet");
        }
        self.parts.extend_from_slice(&self.block[from..from + here]);
        if header.packets == 1 {
            self.parts_length = None;
        }
        Ok(())
    }

    /// The block's next packet.
    pub(super) fn next(&mut self) -> Result<Option<Unpacked>, Malformed> {
        let Some(header) = self.header.filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        self.lsn += 1;
        let (kind, range) = match header.kind {
            BlockKind::Group => self.packet_in_group(header)?,
            BlockKind::Part | BlockKind::Pad => (header.packet_kind, None),
        };
        Ok(Some(Unpacked { lsn: Lsn(self.lsn), kind, range }))
    }

    fn packet_in_group(&mut self, header: BlockHeader) -> Result<(u8, Option<(usize, usize)>), Malformed> {
        let start = self.cursor + PACKET_HEADER;
        if start <= self.block.len() {
            let word = u32_at(&self.block, self.cursor);
            let end = start + (word & 0xff_ffff) as usize;
            if end <= self.block.len() {
                self.cursor = end;
                return Ok(((word >> 24) as u8, Some((start, end))));
            }
        }
        Err(Malformed { header, what: "the length of a packet" })
    }

    /// The packet that was taken out last, with its bytes.
    pub(super) fn packet(&self, unpacked: Unpacked) -> Result<Packet<'_>, Malformed> {
        let malformed = |what| {
            let header = self.header.expect("a packet was taken out of it");
            Malformed { header, what }
        };
        let Unpacked { lsn, kind, range } = unpacked;
        let mut bytes = match range {
            Some((from, to)) => &self.block[from..to],
            None => &self.parts[..],
        };
        let mut held_by = None;
        if kind & HELD_BY != 0 {
            let Some((packet, &sweep)) = bytes.split_last_chunk::<HELD_BY_BYTES>() else {
                return Err(malformed("the sweep that holds a packet"));
            };
            (bytes, held_by) = (packet, Some(u32::from_le_bytes(sweep)));
        }
        let kind = PacketKind::from_byte(kind & !HELD_BY).ok_or_else(|| malformed("its packet kind"))?;
        Ok(Packet { lsn, kind, bytes, held_by })
    }
}
