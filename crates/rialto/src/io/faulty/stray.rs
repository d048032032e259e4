//! Writes that succeed although their bytes do not reach their place.

use std::ops::Range;
use std::sync::Arc;

use super::super::Random;
use super::inode::{SECTOR_BYTES, SharedInode};
use super::{FaultKind, FaultyDisk, FaultyDiskState};

/// Bytes that land in a wrong place have the same offset within a block of this size as in their own place.
const BLOCK_BYTES: u64 = 4096;

/// A part of a write that does not lie at its place, although the write succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The step of the write.
    pub step: u64,
    /// Its file.
    pub name: String,
    /// Where the part belongs.
    pub offset: u64,
    /// How long the part is.
    pub bytes: u64,
    /// The file and the offset where it has landed, if it has landed.
    pub landed: Option<(String, u64)>,
}

impl FaultyDiskState {
    /// Whether this write to a file of this directory goes astray, and how.
    pub(super) fn strays(&mut self, folder: usize, name: &str) -> Option<FaultKind> {
        let kinds = [FaultKind::LostWrite, FaultKind::MisdirectedWrite];
        kinds.into_iter().find(|kind| self.trips(*kind, folder, name))
    }

    /// Chooses where a part of a write to this place of a file lands instead: in a file of the same directory that is
    /// long enough. It overwrites what is there, on the device and in the page cache. `None` if there is no such place.
    pub(super) fn land(
        &mut self,
        folder: usize,
        own: &Arc<SharedInode>,
        offset: u64,
        part: &[u8],
    ) -> Option<(String, u64)> {
        let (within, length) = (offset % BLOCK_BYTES, part.len() as u64);
        let places = |node: &SharedInode| match node.lock().length().checked_sub(within + length) {
            Some(behind) => behind / BLOCK_BYTES + 1,
            None => 0,
        };
        let directory = &self.folders[folder].directory;
        let files = directory.names().filter_map(|name| Some((name.clone(), directory.find(name)?)));
        let mut files: Vec<_> = files.filter(|(_, node)| places(node) > 0).collect();
        let is_own = |file: &(String, Arc<SharedInode>)| Arc::ptr_eq(&file.1, own);
        if files.iter().any(is_own) && self.random.chance(1, 2) {
            files.retain(is_own);
        }
        if files.is_empty() {
            return None;
        }
        let (name, node) = files.swap_remove(self.random.below(files.len() as u64) as usize);
        let mut places = places(&node);
        // Files are preallocated: most have their written bytes in their first part.
        if self.random.chance(3, 4) {
            places = places.min(offset / BLOCK_BYTES + 1);
        }
        let at = within + self.random.below(places) * BLOCK_BYTES;
        if Arc::ptr_eq(&node, own) && at == offset {
            return None;
        }
        node.lock().land(part, at);
        Some((name, at))
    }
}

/// The part of a write that goes astray: consecutive whole sectors.
pub(super) fn any_part(random: &mut Random, offset: u64, length: usize) -> Range<usize> {
    let first = offset / SECTOR_BYTES;
    let sectors = (offset + length as u64).div_ceil(SECTOR_BYTES) - first;
    let start =
        |sector: u64| ((first + sector) * SECTOR_BYTES).saturating_sub(offset).min(length as u64) as usize;
    let from = if random.chance(2, 3) { 0 } else { random.below(sectors) };
    let to = if random.chance(2, 3) { sectors } else { from + 1 + random.below(sectors - from) };
    start(from)..start(to)
}

impl FaultyDisk {
    /// The writes that have gone astray since the disk was made or restarted.
    pub fn strays(&self) -> Vec<Stray> {
        self.state.lock().strays.clone()
    }
}
