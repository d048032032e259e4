//! A model of a replica's log: each block is one transaction, and is known by a checksum that covers all before it.

use rialto::Lsn;
use rialto::log::{LogPoint, LogPosition};
use rialto_cluster::protocol::replication::LogState;

/// The checksums of the blocks; block `n` ends at position `n`. `on_disk` of them survive the machine, `redone` are in
/// the tables.
#[derive(Debug, Clone, Default)]
pub struct ModelLog {
    pub blocks: Vec<u64>,
    pub on_disk: usize,
    pub redone: usize,
}

impl ModelLog {
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn point(&self, at: usize) -> LogPoint {
        let checksum = if at == 0 { 0 } else { self.blocks[at - 1] };
        LogPoint { lsn: Lsn(at as u64), position: LogPosition(at as u64), checksum }
    }

    pub fn state(&self) -> LogState {
        LogState { received: self.point(self.len()), on_disk: self.point(self.on_disk) }
    }

    /// Appends a transaction of its own, unlike any other.
    pub fn write(&mut self, unique: u64) {
        let before = self.blocks.last().copied().unwrap_or(0);
        self.blocks.push((before ^ unique).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ unique);
    }

    pub fn goes_through(&self, point: LogPoint) -> bool {
        let at = point.position.0 as usize;
        at <= self.len() && self.point(at) == point
    }

    /// Whether it begins with these blocks.
    pub fn has(&self, blocks: &[u64]) -> bool {
        blocks.is_empty() || self.blocks.get(blocks.len() - 1) == blocks.last()
    }

    /// Whether its disk begins with these blocks.
    pub fn disk_has(&self, blocks: &[u64]) -> bool {
        blocks.len() <= self.on_disk && self.has(blocks)
    }

    /// How many blocks it has in common with another one.
    pub fn common(&self, other: &[u64]) -> usize {
        self.blocks.iter().zip(other).take_while(|(one, two)| one == two).count()
    }

    pub fn cut(&mut self, to: usize) {
        self.blocks.truncate(to);
        self.on_disk = self.on_disk.min(to);
        self.redone = self.redone.min(to);
    }
}
