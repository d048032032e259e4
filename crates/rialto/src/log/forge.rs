//! Log files that no log wrote: their checksums are right, and their blocks may say anything. For fuzzing.

use super::block::{self, BlockHeader, BlockKind, HEADER};
use super::{PAGE, files};
use crate::log::log_file;

/// What a forged block says. Its position and the checksum of the block before it are always right.
#[derive(Debug, Clone)]
pub(crate) struct ForgedBlock {
    /// As in [`BlockKind`]; any other byte is no kind.
    pub kind: u8,
    pub packet_kind: u8,
    pub inside: bool,
    pub packets: u32,
    pub position: u64,
    pub first_lsn: u64,
    pub durable: u64,
    pub incarnation: u32,
    pub payload: Vec<u8>,
    /// Bytes of a packet that its parts have brought so far.
    pub part_before: u32,
}

/// The sequence number of the log file with this name.
pub(crate) fn log_file_of(name: &str) -> Option<u64> {
    files::sequence(name)
}

/// A first log file of `capacity` stream bytes. `forge` is given what would rightly come next, and makes the blocks
/// from that. The header says `claimed`: where the file starts and how much it holds.
pub(crate) fn forge_log_file(
    database: u128,
    capacity: usize,
    claimed: (u64, u64),
    mut forge: impl FnMut(&ForgedBlock) -> Option<ForgedBlock>,
) -> Vec<u8> {
    let mut file = log_file::header(database, 1, claimed.0, claimed.1).to_vec();
    file.resize(PAGE + capacity, 0);
    let mut next = ForgedBlock {
        kind: BlockKind::Pad as u8,
        packet_kind: 0,
        inside: false,
        packets: 0,
        position: 0,
        first_lsn: 1,
        durable: 0,
        incarnation: 1,
        payload: Vec::new(),
        part_before: 0,
    };
    let mut previous = 0;
    while let Some(forged) = forge(&next) {
        let at = next.position as usize;
        let length = block::closed_length(next.position, HEADER + forged.payload.len());
        if at + length > capacity {
            break;
        }
        let bytes = &mut file[PAGE + at..PAGE + at + length];
        bytes[HEADER..HEADER + forged.payload.len()].copy_from_slice(&forged.payload);
        let header = BlockHeader {
            kind: BlockKind::Pad,
            packet_kind: forged.packet_kind,
            inside: forged.inside,
            packets: forged.packets,
            position: next.position,
            first_lsn: forged.first_lsn,
            durable: forged.durable,
            previous,
            incarnation: forged.incarnation,
            time_ms: 0,
        };
        previous = block::seal_as(bytes, forged.kind, &header, block::seed(database, 1));
        next = ForgedBlock {
            kind: BlockKind::Pad as u8,
            packet_kind: 0,
            inside: false,
            packets: 0,
            position: next.position + length as u64,
            first_lsn: forged.first_lsn.wrapping_add(forged.packets.into()),
            payload: Vec::new(),
            ..forged
        };
    }
    file
}
