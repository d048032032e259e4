//! Commit blocks: the bytes of the log.
//!
//! The log is one endless stream of blocks; a [`LogPosition`](super::LogPosition) is an offset in it. All numbers are
//! little-endian.
//!
//! ```text
//!  0        8      12    13     14     16      20       24        32         40        48        56           60   64
//!  +--------+------+-----+------+------+-------+--------+---------+----------+---------+---------+------------+----+---
//!  |checksum|magic |kind |packet|flags |length |packets |position |first Lsn |durable  |previous |incarnation |time| payload, zeros
//!  +--------+------+-----+------+------+-------+--------+---------+----------+---------+---------+------------+----+---
//!   xxh3_64  "RLBK"        kind  1: inside      |        in the     of the     position  checksum  counts the
//!   of all*               (parts)   a packet    |        stream     next       known     of the    openings
//!   that follows                                whole packets       packet     durable   block     of the log
//!                                               that end here                            before
//!
//!  Group payload:  { u32 packet length | packet kind << 24, packet bytes }  packets times
//!  Part payload:   u32 bytes here, u32 bytes before, u32 bytes of the packet, u32 0, bytes
//!  Pad payload:    zeros
//! ```
//!
//! The time is when the block was gathered, in milliseconds since 1970; 0 for pads and in format 2. Its low 32 bits are
//! at 60, the others in bits 1 to 15 of the flags. Only a restore to a point in time uses it.
//!
//! *A pad's checksum covers its header only: the reader knows what follows, and compares it. Therefore a lone commit,
//! most of whose page is a pad, does not pay for hashing zeros.
//!
//! # The commit list
//!
//! A block says which transactions it commits: the places from its first `Lsn` on, as many as packets end in it. That
//! is KODA's commit list ("Group Commit"), in two numbers instead of a list, because places are dense (I2) and a
//! transaction has no other identifier in the log. The block needs no list of the active transactions, by which
//! recovery would undo what they had written: under I1 an uncommitted transaction's writes are nowhere but in its own
//! write set, so what is not in a block never happened. KODA hands out the next transactions' identifiers with each
//! group, to spare them a shared counter at their start. Here there is no such counter: an open transaction is known by
//! its slot, and its final identifier, the place, is handed out by the same compare-and-swap that queues its packet.
//!
//! The checksum is seeded with the database's id and the log file's sequence number, so a block that was left behind in
//! a reused file, or that belongs to another database, never verifies.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{LogPoint, LogPosition, PAGE};
use crate::ids::Lsn;

/// Bytes of a block before its payload.
pub(crate) const HEADER: usize = 64;
/// The longest block.
pub(crate) const BLOCK_MAX: usize = 64 << 10;
/// Bytes of a part's payload before the packet's bytes.
pub(crate) const PART_HEADER: usize = 16;
/// Bytes before a packet in a group.
pub(crate) const PACKET_HEADER: usize = 4;
/// With less room than this only a pad is written; the next packet goes after it.
pub(crate) const ROOM_MIN: usize = 512;
/// The most zeros that end a block: the rest of a page is never too short for a header.
pub(crate) const SLACK: usize = HEADER;

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"RLBK");

const _: () = assert!(BLOCK_MAX.is_multiple_of(PAGE) && ROOM_MIN > HEADER + SLACK + PART_HEADER);
const _: () = assert!(BLOCK_MAX < 1 << 24, "a packet's length in a group has 24 bits");

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// Whole packets.
    Group = 1,
    /// A part of one packet that is too large for the block in which it began.
    Part = 2,
    /// Nothing: it fills a page, or the room before the end of a file, or marks an opening of the log.
    Pad = 3,
}

/// A block's header, without its checksum and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) kind: BlockKind,
    /// A part's packet kind; 0 otherwise.
    pub(crate) packet_kind: u8,
    /// Whether the block lies inside a packet that began in an earlier one.
    pub(crate) inside: bool,
    /// Whole packets that end here.
    pub(crate) packets: u32,
    pub(crate) position: u64,
    /// The place of the first packet in the block. For a part, the place of its packet; in a block without packets, the
    /// next place.
    pub(crate) first_lsn: u64,
    /// The position that was known to be durable when the block was built.
    pub(crate) durable: u64,
    /// The checksum of the block before this one.
    pub(crate) previous: u64,
    pub(crate) incarnation: u32,
    /// When it was gathered, in milliseconds since 1970; 0 if the block does not say.
    pub(crate) time_ms: u64,
}

/// Milliseconds since 1970 that fit into a block: until the year 6429.
const TIME_MAX: u64 = (1 << 47) - 1;

/// The checksum's seed for the blocks of one log file.
pub(crate) fn seed(database: u128, sequence: u64) -> u64 {
    // An odd factor spreads the sequence number over the word, so that it cannot cancel against small ids.
    (database as u64) ^ ((database >> 64) as u64) ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The length of a block at `position` whose header and payload take `used` bytes.
#[inline(always)]
pub(crate) fn closed_length(position: u64, used: usize) -> usize {
    let length = (used + 7) & !7;
    let to_page = PAGE - ((position as usize + length - 1) & (PAGE - 1)) - 1;
    if to_page < HEADER { length + to_page } else { length }
}

/// Writes header and checksum of the block that fills `block`, whose payload is already there; returns the checksum.
#[inline(always)]
pub(crate) fn seal(block: &mut [u8], header: &BlockHeader, seed: u64) -> u64 {
    seal_as(block, header.kind as u8, header, seed)
}

/// As [`seal`], with any byte for the block's kind: forged blocks may have a kind that does not exist.
#[inline(always)]
pub(super) fn seal_as(block: &mut [u8], kind: u8, header: &BlockHeader, seed: u64) -> u64 {
    debug_assert!(block.len() >= HEADER && block.len().is_multiple_of(8));
    block[8..12].copy_from_slice(&MAGIC.to_le_bytes());
    block[12] = kind;
    block[13] = header.packet_kind;
    let time = header.time_ms.min(TIME_MAX);
    let flags = u16::from(header.inside) | ((time >> 32) as u16) << 1;
    block[14..16].copy_from_slice(&flags.to_le_bytes());
    let length = block.len() as u32;
    block[16..20].copy_from_slice(&length.to_le_bytes());
    block[20..24].copy_from_slice(&header.packets.to_le_bytes());
    block[24..32].copy_from_slice(&header.position.to_le_bytes());
    block[32..40].copy_from_slice(&header.first_lsn.to_le_bytes());
    block[40..48].copy_from_slice(&header.durable.to_le_bytes());
    block[48..56].copy_from_slice(&header.previous.to_le_bytes());
    block[56..60].copy_from_slice(&header.incarnation.to_le_bytes());
    block[60..64].copy_from_slice(&(time as u32).to_le_bytes());
    let checksum = xxh3_64_with_seed(hashed(block, kind), seed);
    block[..8].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// What the checksum of a block of this kind covers.
fn hashed(block: &[u8], kind: u8) -> &[u8] {
    if kind == BlockKind::Pad as u8 { &block[8..HEADER] } else { &block[8..] }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The length that the unchecked header at the start of `bytes` claims, if the rest of the header could be a block's at
/// `position` with `room` bytes left for it.
pub(crate) fn claimed_length(bytes: &[u8], position: u64, room: u64) -> Option<usize> {
    if bytes.len() < HEADER || u32_at(bytes, 8) != MAGIC || u64_at(bytes, 24) != position {
        return None;
    }
    let length = u32_at(bytes, 16) as usize;
    (length >= HEADER && length.is_multiple_of(8) && length as u64 <= room).then_some(length)
}

/// Reads a whole block: its header and checksum, or `None` if the checksum does not verify.
pub(crate) fn verify(block: &[u8], seed: u64) -> Option<(BlockHeader, u64)> {
    let checksum = u64_at(block, 0);
    if xxh3_64_with_seed(hashed(block, block[12]), seed) != checksum {
        return None;
    }
    Some((header_of(block)?, checksum))
}

/// The header of a block whose checksum was verified; `None` if it makes no sense.
pub(crate) fn header_of(block: &[u8]) -> Option<BlockHeader> {
    let kind = match block[12] {
        1 => BlockKind::Group,
        2 => BlockKind::Part,
        3 if block[HEADER..].iter().all(|byte| *byte == 0) => BlockKind::Pad,
        _ => return None,
    };
    // Places count from 1, and the last one is `Lsn::MAX`; no log wrote a block that says more.
    let (first_lsn, packets) = (u64_at(block, 32), u32_at(block, 20));
    if first_lsn == 0 || first_lsn > Lsn::MAX.0 - u64::from(packets) {
        return None;
    }
    let header = BlockHeader {
        kind,
        packet_kind: block[13],
        inside: block[14] & 1 != 0,
        packets,
        position: u64_at(block, 24),
        first_lsn,
        durable: u64_at(block, 40),
        previous: u64_at(block, 48),
        incarnation: u32_at(block, 56),
        time_ms: u64::from(u16::from_le_bytes([block[14], block[15]]) >> 1) << 32
            | u64::from(u32_at(block, 60)),
    };
    Some(header)
}

/// As [`verify`], of a block that has to follow a point; gives where it ends, too.
pub(crate) fn verify_next(block: &[u8], point: &LogPoint, seed: u64) -> Option<(BlockHeader, LogPoint)> {
    let (header, checksum) = verify(block, seed)?;
    let follows = header.previous == point.checksum && header.first_lsn == point.lsn.0 + 1;
    let end = LogPoint {
        lsn: Lsn(header.first_lsn - 1 + u64::from(header.packets)),
        position: LogPosition(header.position + block.len() as u64),
        checksum,
    };
    follows.then_some((header, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(position: u64) -> BlockHeader {
        BlockHeader {
            kind: BlockKind::Group,
            packet_kind: 0,
            inside: false,
            packets: 0,
            position,
            first_lsn: 9,
            durable: 4096,
            previous: 77,
            incarnation: 3,
            time_ms: 1_795_000_000_123,
        }
    }

    #[test]
    fn reads_back_what_was_sealed_and_only_under_its_seed() {
        let mut block = vec![7u8; 128];
        let checksum = seal(&mut block, &header(8192), seed(5, 1));
        assert_eq!(claimed_length(&block, 8192, 128), Some(128));
        assert_eq!(claimed_length(&block, 8192, 120), None, "longer than its room");
        assert_eq!(claimed_length(&block, 4096, 128), None, "another position");
        assert_eq!(verify(&block, seed(5, 1)), Some((header(8192), checksum)));
        assert_eq!(verify(&block, seed(5, 2)), None, "left behind in a reused file");
        assert_eq!(verify(&block, seed(6, 1)), None, "another database");
        every_byte_is_covered(&block);
        let mut pad = vec![0; 128];
        seal(&mut pad, &BlockHeader { kind: BlockKind::Pad, ..header(8192) }, seed(5, 1));
        every_byte_is_covered(&pad);
    }

    fn every_byte_is_covered(block: &[u8]) {
        assert!(verify(block, seed(5, 1)).is_some());
        for bit in 0..8 * block.len() {
            let mut bad = block.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&bad, seed(5, 1)), None, "bit {bit} is covered");
        }
    }

    #[test]
    fn never_leaves_less_than_a_header_before_a_page_ends() {
        for position in (0..8192u64).step_by(8) {
            for used in 64..300 {
                let length = closed_length(position, used);
                assert!(length >= used && length < used + 8 + SLACK && length.is_multiple_of(8));
                let left = (PAGE - (position as usize + length) % PAGE) % PAGE;
                assert!(left == 0 || left >= HEADER, "{position} {used} {left}");
            }
        }
    }
}
