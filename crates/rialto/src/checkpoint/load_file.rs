//! Load files: the rows of a bulk load, as images of the segments that it filled.
//!
//! A load into a table that the same transaction created or truncated puts its rows straight into segments. What the
//! packet names is a file of their images, written and synced before the packet is pushed; redo puts its rows into the
//! table with the packet's place. The file stays until no checkpoint that may be read needs it.
//!
//! ```text
//!    0  magic     8      "RIALTOLD"
//!    8  version   u32
//!   12  images    u32
//!   16  database  u128
//!   32  number    u64    the file's
//!   40  heap      u32
//! 4088  checksum  u64    xxh3 of all before
//! 4096  images, one each 64 KiB (see `image.rs`)
//! ```

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::image::{self, ImageHeader, seed_of};
use crate::error::{Error, Result};
use crate::ids::{HeapId, Lsn};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};
use crate::store::memory::segments::UNIT_BYTES;
use crate::store::memory::{Budget, Heap, SEGMENT_BYTES, SegmentId, Segments};

const MAGIC: &[u8; 8] = b"RIALTOLD";
const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 4096;
const CHECKSUM_AT: usize = HEADER_BYTES - 8;
const PREFIX: &str = "load-";

/// A bulk load's file in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadFile {
    pub number: u64,
    pub committed: Committed,
}

/// What is known of the place at which a bulk load was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The place.
    At(Lsn),
    /// Redo from this place on did not come by its packet, and it was begun before the checkpoint that redo began with: it
    /// was committed before this place, or never. An older checkpoint and the archive may need the file.
    BeforeOrNever(Lsn),
    /// It was not: nothing names the file.
    Never,
}

impl LoadFile {
    /// Whether a redo that begins at this place may need the file.
    pub fn is_needed_from(&self, redo_start: Lsn) -> bool {
        match self.committed {
            Committed::At(place) => place >= redo_start,
            Committed::BeforeOrNever(place) => place > redo_start,
            Committed::Never => false,
        }
    }
}

/// The name of the load file of this number.
pub(crate) fn load_file_name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

/// The number of a load file, if the name is one's.
pub(crate) fn load_file_number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// The seed of the images in a load file: its number counts, so that no other load's are taken for its.
pub(crate) fn seed(database_id: u128, number: u64) -> u64 {
    seed_of(database_id) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes all of a heap's segments to a load file, durably. Nobody else changes the heap meanwhile.
pub(crate) fn write_load_file(
    disk: &dyn Disk,
    database_id: u128,
    number: u64,
    heap: &Heap,
) -> DiskResult<()> {
    let file = disk.open(&load_file_name(number), Open::Create, Caching::Direct)?;
    // A load that was not committed before a crash may have left one of this number.
    file.set_length(0)?;
    let owned = heap.owned();
    let mut buffer = AlignedBuffer::zeroed(SEGMENT_BYTES);
    let seed = seed(database_id, number);
    for (position, &id) in owned.iter().enumerate() {
        let (heap, used) = heap.segments().copy_out(id, &mut buffer);
        let header = ImageHeader { heap, segment: id.0, used, sequence: position as u64 };
        file.write_at(image::seal(&mut buffer, &header, seed).bytes, offset_of(position))?;
    }
    let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
    block[..8].copy_from_slice(MAGIC);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    block[12..16].copy_from_slice(&(owned.len() as u32).to_le_bytes());
    block[16..32].copy_from_slice(&database_id.to_le_bytes());
    block[32..40].copy_from_slice(&number.to_le_bytes());
    block[40..44].copy_from_slice(&heap.id().0.to_le_bytes());
    let checksum = xxh3_64(&block[..CHECKSUM_AT]);
    block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    file.write_at(&block, 0)?;
    file.sync()?;
    disk.sync_directory()
}

fn offset_of(position: usize) -> u64 {
    (HEADER_BYTES + position * SEGMENT_BYTES) as u64
}

/// Reads a load file back.
pub(crate) struct LoadFileReader {
    file: Arc<dyn File>,
    seed: u64,
    images: usize,
    length: u64,
    /// The heap that was loaded.
    pub heap: HeapId,
}

impl LoadFileReader {
    /// # Errors
    /// [`Error::Corrupt`] if it is missing, damaged or another's; [`Error::Io`].
    pub fn open(disk: &dyn Disk, database_id: u128, number: u64) -> Result<LoadFileReader> {
        let name = load_file_name(number);
        let corrupt = |what: &str| Error::Corrupt { file: name.clone(), offset: 0, what: what.to_owned() };
        let file = match disk.open(&name, Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => {
                return Err(corrupt("the log names this file of a bulk load, and it is missing"));
            }
            file => file?,
        };
        let length = file.length()?;
        let mut block = vec![0; HEADER_BYTES];
        if length < HEADER_BYTES as u64 {
            return Err(corrupt(&format!(
                "expected the header of a load file, the file ends at byte {length}"
            )));
        }
        file.read_at(&mut block, 0)?;
        let checksum = u64::from_le_bytes(block[CHECKSUM_AT..].try_into().expect("eight bytes"));
        if &block[..8] != MAGIC || checksum != xxh3_64(&block[..CHECKSUM_AT]) {
            return Err(corrupt("expected the header of a load file, its magic or checksum is wrong"));
        }
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        if block[16..32] != database_id.to_le_bytes() || block[32..40] != number.to_le_bytes() {
            return Err(corrupt("this load file is another database's, or has another number than its name"));
        }
        if u32_at(8) > VERSION {
            let what = format!(
                "\"{name}\" has load file format {}, this program reads up to {VERSION}: use a newer one",
                u32_at(8)
            );
            return Err(Error::Unsupported { what });
        }
        let (images, heap) = (u32_at(12) as usize, HeapId(u32_at(40)));
        Ok(LoadFileReader { file, seed: seed(database_id, number), images, length, heap })
    }

    /// Whether the load file of this number is all there and undamaged. The file of a load that was not committed, one whose
    /// removal was cut short, or one that a checkpoint removes meanwhile, need not be.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_whole(disk: &dyn Disk, database_id: u128, number: u64) -> Result<bool> {
        let length = || match disk.open(&load_file_name(number), Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => Ok(None),
            file => file?.length().map(Some),
        };
        let before = length()?;
        let read = LoadFileReader::open(disk, database_id, number)
            .and_then(|reader| reader.for_each_row(|_, _| Ok(())));
        match read {
            Ok(()) => Ok(true),
            Err(Error::Corrupt { .. }) => Ok(false),
            // It is cut in steps: what was to be read is gone.
            Err(_) if length()? != before => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn corrupt(&self, position: usize, what: String) -> Error {
        Error::Corrupt { file: self.file.name().to_owned(), offset: offset_of(position), what }
    }

    /// How long the file is.
    pub fn bytes(&self) -> u64 {
        self.length
    }

    /// Gives the body of each row in turn, and where in the file its slot lies.
    pub fn for_each_row(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let arena = Arc::new(Budget::new(SEGMENT_BYTES as u64));
        let scratch = Segments::reserve(arena).map_err(|error| Error::Io {
            file: self.file.name().to_owned(),
            offset: 0,
            operation: "reserving memory for a segment".to_owned(),
            cause: error.to_string(),
        })?;
        let id = SegmentId(0);
        scratch.adopt(id, self.heap);
        let mut bytes = vec![0; SEGMENT_BYTES];
        let mut body = Vec::new();
        for position in 0..self.images {
            let offset = offset_of(position);
            let there = self.length.saturating_sub(offset).min(SEGMENT_BYTES as u64) as usize;
            self.file.read_at(&mut bytes[..there], offset)?;
            let checked =
                image::check(&mut bytes[..there], self.seed).map_err(|what| self.corrupt(position, what))?;
            let header = checked.header;
            if header.sequence != position as u64 {
                let what = format!("expected image {position} of the load, found image {}", header.sequence);
                return Err(self.corrupt(position, what));
            }
            scratch.restore(id, &bytes[..header.used]);
            for slot in scratch.slots(id) {
                let slot = slot.map_err(|what| self.corrupt(position, what))?;
                if scratch.settle_after_load(slot) {
                    scratch.read(slot, &mut body);
                    take(offset + slot.0 * UNIT_BYTES as u64, &body)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryDisk;
    use crate::store::memory::Unclaimed;

    fn heap_of_rows(count: u32) -> Heap {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(16 << 20))).unwrap());
        let heap = Heap::new(segments, HeapId(90), 100);
        for n in 0..count {
            let body = [n.to_le_bytes().as_slice(), &[n as u8; 96]].concat();
            let record = heap.allocate(0, body.len(), &mut Unclaimed).unwrap();
            match n % 10 {
                // Not there yet.
                3 => {}
                4 => heap.release(7, record),
                _ => heap.segments().write(record, &body, Lsn::ZERO),
            }
        }
        heap
    }

    fn rows(disk: &dyn Disk, database_id: u128) -> Result<Vec<u32>> {
        let mut rows = Vec::new();
        LoadFileReader::open(disk, database_id, 5)?.for_each_row(|_, body| {
            assert_eq!(body.len(), 100);
            rows.push(u32::from_le_bytes(body[..4].try_into().unwrap()));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn the_rows_of_a_load_are_read_back_and_damage_is_named() {
        let disk = MemoryDisk::new();
        write_load_file(&*disk, 77, 5, &heap_of_rows(3000)).unwrap();
        let expected: Vec<u32> = (0..3000).filter(|n| n % 10 != 3 && n % 10 != 4).collect();
        assert_eq!(rows(&*disk, 77).unwrap(), expected);
        assert!(matches!(rows(&*disk, 78), Err(Error::Corrupt { .. })));

        let file = disk.open(&load_file_name(5), Open::Existing, Caching::Buffered).unwrap();
        let mut byte = [0];
        for (at, offset) in [(20, 0), (5000, 4096), (4096 + 65536 + 500, 4096 + 65536)] {
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 4], at).unwrap();
            match rows(&*disk, 77) {
                Err(Error::Corrupt { file, offset: found, .. }) => {
                    assert_eq!((file, found), (load_file_name(5), offset));
                }
                other => panic!("expected corruption, found {other:?}"),
            }
            file.write_at(&byte, at).unwrap();
        }
        file.set_length(4096 + 65536 + 4096).unwrap();
        assert!(matches!(rows(&*disk, 77), Err(Error::Corrupt { offset, .. }) if offset == 4096 + 65536));
        disk.remove(&load_file_name(5)).unwrap();
        assert!(matches!(rows(&*disk, 77), Err(Error::Corrupt { file, .. }) if file == load_file_name(5)));
    }

    #[test]
    fn a_file_that_an_earlier_load_left_is_replaced() {
        let disk = MemoryDisk::new();
        write_load_file(&*disk, 77, 5, &heap_of_rows(3000)).unwrap();
        write_load_file(&*disk, 77, 5, &heap_of_rows(1)).unwrap();
        assert_eq!(rows(&*disk, 77).unwrap(), [0]);
    }
}
