//! [`CatalogCopy`]: the system tables of a backup copy, in their state at its redo start.
//!
//! Most of a copy is not of one moment: a fuzzy sweep copies each segment as it finds it, and redo then makes a
//! consistent state, row by row. For that, redo needs a catalog that describes the rows at each place in the log; so
//! the catalog itself must not be put together in this way. Whatever the policy of the sweep, **the copy's catalog is
//! exactly the one at the redo start**, and only the log's packets with DDL move it on from there:
//!
//! 1. The checkpointer holds the barrier for DDL, so that no transaction with DDL takes its place
//!    ([`Definitions`](crate::commit::Definitions)). It waits for commits that are not applied yet, if a DDL with a
//!    later place has been applied. So each DDL that was applied has its place before the redo start that is taken now,
//!    and each later one after it. Commits without DDL go on.
//! 2. It copies the segments of the system tables ([`CatalogCopy::take`]) into memory, and lets DDL go on.
//! 3. The sweep writes these images first, and skips their segments, whatever they hold meanwhile. A segment that has
//!    become a system table's since then is free in the copy.
//!
//! **A copy has segments of the tables in its catalog, and no others.** The segments of a table that was created or
//! truncated later, or by a transaction that may never commit, are free in it: redo makes all of their rows from the
//! log and from load files. So recovery need not guess which table a segment belongs to: a segment of no table in the
//! catalog is an error.
//!
//! A segment that the copy leaves out stays dirty for it, and the next sweep to this copy takes it.
//!
//! The system tables' segments are black for a sweep that paints, and for a cut. A transaction with DDL, which is never
//! white (`txn/sweep_side.rs`), need not wait for them, and none of them is kept as it was at the cut, since no sweep
//! would take that.
//!
//! A system table keeps its segments for good (`Heap::empty_segments`). So the segments that were a system table's in
//! step 2 still are when the sweep skips them, and hold no rows of users.

use std::sync::Arc;

use hashbrown::HashSet;

use super::image_sums::ImageSums;
use crate::catalog::system;
use crate::error::Result;
use crate::ids::HeapId;
use crate::io::{AlignedBuffer, File};
use crate::store::memory::image::{self, ImageHeader};
use crate::store::memory::segments::{Copy, IMAGE_HEADER_BYTES};
use crate::store::memory::{SEGMENT_BYTES, SegmentId, Segments};

/// Where images are written, and what their headers say.
#[derive(Clone, Copy)]
pub(crate) struct ImageTarget<'a> {
    /// The backup copy that is written.
    pub copy: Copy,
    /// Its file, opened for direct access.
    pub file: &'a dyn File,
    /// The seed of the database's images.
    pub seed: u64,
    /// The number of this checkpoint.
    pub sequence: u64,
    pub sums: &'a ImageSums,
}

/// A segment of a system table, as it was copied.
pub(super) struct SystemSegment {
    pub number: u32,
    pub heap: Option<HeapId>,
    pub used: usize,
    /// The bytes behind the image header's room.
    bytes: Box<[u8]>,
}

impl SystemSegment {
    /// Copies its bytes into a segment's room.
    pub fn copy_to(&self, room: &mut [u8]) {
        let end = IMAGE_HEADER_BYTES + self.bytes.len();
        room[IMAGE_HEADER_BYTES..end].copy_from_slice(&self.bytes);
    }
}

/// The catalog of a backup copy that is being made.
pub(crate) struct CatalogCopy<'a> {
    segments: &'a Segments,
    copy: Copy,
    /// The storage of the tables that it describes.
    heaps: Arc<HashSet<HeapId>>,
    /// The system tables' segments.
    system: HashSet<u32>,
    /// Images that the backup copy lacks, and that are not written yet.
    images: Vec<SystemSegment>,
    is_complete: bool,
}

impl<'a> CatalogCopy<'a> {
    /// Copies the system tables, none of which changes meanwhile; `heaps` is the storage of the tables that they
    /// describe. If the copies take more than `bytes_max` bytes they are written at once: then DDL waits for the disk.
    pub fn take(
        segments: &'a Segments,
        heaps: Arc<HashSet<HeapId>>,
        bytes_max: u64,
        target: &ImageTarget<'_>,
    ) -> Result<CatalogCopy<'a>> {
        let (copy, system) = (target.copy, HashSet::new());
        let mut catalog =
            CatalogCopy { segments, copy, heaps, system, images: Vec::new(), is_complete: false };
        let mut buffer = vec![0; SEGMENT_BYTES];
        let mut bytes = 0;
        for number in 0..segments.high_water() {
            let id = SegmentId(number);
            if !segments.heap(id).is_some_and(system::is_system_heap) {
                continue;
            }
            catalog.system.insert(number);
            if !segments.is_dirty(id, copy) {
                continue;
            }
            let Some(swept) = segments.sweep(segments.latch(id), id, copy, &mut buffer).copied() else {
                continue;
            };
            drop(swept.latched);
            let used = swept.used.max(IMAGE_HEADER_BYTES);
            bytes += used as u64;
            let bytes_of = buffer[IMAGE_HEADER_BYTES..used].into();
            catalog.images.push(SystemSegment { number, heap: swept.heap, used, bytes: bytes_of });
            if bytes > bytes_max {
                catalog.write(target)?;
                bytes = 0;
            }
        }
        Ok(catalog)
    }

    fn write(&mut self, target: &ImageTarget<'_>) -> Result<()> {
        let mut buffer = AlignedBuffer::zeroed(SEGMENT_BYTES);
        for segment in self.images.drain(..) {
            segment.copy_to(&mut buffer);
            let SystemSegment { number, heap, used, .. } = segment;
            let header = ImageHeader { heap, segment: number, used, sequence: target.sequence };
            let sealed = image::seal(&mut buffer, &header, target.seed);
            target.file.write_at(sealed.bytes, u64::from(number) * SEGMENT_BYTES as u64)?;
            target.sums.set(target.copy, number, sealed.checksum);
        }
        Ok(())
    }

    /// Makes the system tables' segments black, for a sweep that begins.
    pub fn paint(&self) {
        self.system.iter().for_each(|&number| self.segments.paint_black(SegmentId(number)));
    }

    /// The images that are still to be written.
    pub(super) fn images(&self) -> &[SystemSegment] {
        &self.images
    }

    /// Whether the segment was a system table's, so that the sweep skips it.
    pub(super) fn holds(&self, id: SegmentId) -> bool {
        self.system.contains(&id.0)
    }

    /// Whether the copy has rows of this storage in the segments that the sweep copies. A system table's rows come only
    /// from here, and a segment that it takes into use later has none of them.
    pub(super) fn describes(&self, heap: HeapId) -> bool {
        !system::is_system_heap(heap) && self.heaps.contains(&heap)
    }

    /// Called when the whole sweep is written: the copy has the system tables.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for CatalogCopy<'_> {
    /// Otherwise the copy lacks what was not written.
    fn drop(&mut self) {
        if !self.is_complete {
            self.system.iter().for_each(|&number| self.segments.set_dirty(SegmentId(number), self.copy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::system::FIRST_USER_ID;
    use crate::ids::Lsn;
    use crate::io::{Caching, Disk, MemoryDisk, Open};
    use crate::store::Budget;

    const USERS: HeapId = HeapId(FIRST_USER_ID);

    /// Three segments of system tables, with a row of as many bytes in each, and one segment of a user's table.
    fn filled() -> (Segments, [SegmentId; 4]) {
        let segments = Segments::reserve(Arc::new(Budget::new(1 << 20))).unwrap();
        let ids = [HeapId(1), USERS, HeapId(2), HeapId(2)].map(|heap| {
            let id = segments.allocate(heap).unwrap();
            let record = segments.extend(id, 10, SEGMENT_BYTES, b"").unwrap();
            segments.write(record, &[id.0 as u8; 100], Lsn(1));
            id
        });
        (segments, ids)
    }

    fn file_of(disk: &MemoryDisk, name: &str) -> Arc<dyn File> {
        disk.open(name, Open::Create, Caching::Buffered).unwrap()
    }

    fn bytes_of(file: &dyn File) -> Vec<u8> {
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn numbers(catalog: &CatalogCopy<'_>) -> Vec<u32> {
        catalog.images().iter().map(|image| image.number).collect()
    }

    #[test]
    fn beyond_their_bound_copies_are_written_at_once() {
        let (segments, ids) = filled();
        let used = segments.used(ids[0]) as u64;
        let disk = MemoryDisk::new();
        let take = |bytes_max: u64| {
            let (file, sums) = (file_of(&disk, &bytes_max.to_string()), ImageSums::default());
            let target = ImageTarget { copy: Copy::Ping, file: &*file, seed: 1, sequence: 2, sums: &sums };
            let heaps = Arc::new(HashSet::from([HeapId(1), HeapId(2), USERS]));
            let mut catalog = CatalogCopy::take(&segments, heaps, bytes_max, &target).unwrap();
            let kept = numbers(&catalog);
            // The rest is left to the sweep.
            catalog.write(&target).unwrap();
            sums.set(Copy::Ping, ids[1].0, 0);
            (kept, bytes_of(&*file), sums.digest(Copy::Ping, 4, 0))
        };
        let (all, images, digest) = take(u64::MAX);
        assert_eq!(all, [ids[0].0, ids[2].0, ids[3].0]);
        for (bytes_max, kept) in [(3 * used, &all[..]), (2 * used - 1, &all[2..]), (used - 1, &[]), (0, &[])]
        {
            assert_eq!(take(bytes_max), (kept.to_vec(), images.clone(), digest), "{bytes_max}");
        }
    }

    #[test]
    fn a_copy_that_is_not_completed_leaves_its_segments_dirty() {
        let (segments, ids) = filled();
        let (disk, sums) = (MemoryDisk::new(), ImageSums::default());
        let file = file_of(&disk, "backup");
        let target = ImageTarget { copy: Copy::Pong, file: &*file, seed: 1, sequence: 2, sums: &sums };
        let dirty = |copy| ids.map(|id| segments.is_dirty(id, copy));
        for bytes_max in [0, u64::MAX] {
            let heaps = Arc::new(HashSet::from([USERS, HeapId(1)]));
            let catalog = CatalogCopy::take(&segments, heaps, bytes_max, &target).unwrap();
            assert_eq!(dirty(Copy::Pong), [false, true, false, false]);
            assert_eq!(ids.map(|id| catalog.holds(id)), [true, false, true, true]);
            assert_eq!([USERS, HeapId(1)].map(|heap| catalog.describes(heap)), [true, false]);
            drop(catalog);
            assert_eq!(dirty(Copy::Pong), [true; 4], "{bytes_max}");
        }
        let heaps = Arc::new(HashSet::from([USERS]));
        let mut catalog = CatalogCopy::take(&segments, heaps.clone(), 0, &target).unwrap();
        catalog.complete();
        drop(catalog);
        assert_eq!((dirty(Copy::Pong), dirty(Copy::Ping)), ([false, true, false, false], [true; 4]));
        // A clean segment is held as well.
        let catalog = CatalogCopy::take(&segments, heaps, u64::MAX, &target).unwrap();
        assert_eq!((numbers(&catalog), catalog.holds(ids[0])), (Vec::new(), true));
    }
}
