//! Load files: the rows of a bulk load, as images of the segments that it filled.
//!
//! A load into a table that the same transaction created or truncated puts its rows straight into segments, or into the pages of a
//! disk-resident table. The packet names a file of the segments' images, which is written and synced before the packet is pushed.
//! Rows of a disk-resident table are packed into segments for the file. Redo puts the rows of the file into the table with the
//! packet's place. The file stays until no checkpoint that may be read needs it.
//!
//! The packet names the file by its number and by its digest. Two lives of one database that began as copies of one
//! directory give different loads the same numbers; the digest tells their files apart.
//!
//! ```text
//!    0  magic     8      "RIALTOLD"
//!    8  version   u32
//!   12  images    u32
//!   16  database  u128
//!   32  number    u64    the file's
//!   40  heap      u32
//!   48  digest    u64    xxh3 of the images' checksums, seeded as they are; not in version 1
//! 4088  checksum  u64    xxh3 of all before
//! 4096  images, one each 64 KiB (see `image.rs`)
//! ```

use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::image::{self, ImageHeader, seed_of};
use super::segments::UNIT_BYTES;
use crate::catalog::system::LAST_ID;
use crate::error::{Error, Result};
use crate::ids::{HeapId, Lsn};
use crate::io::{AlignedBuffer, Caching, Disk, DiskResult, File, Open};
use crate::store::Budget;
use crate::store::memory::{Heap, SEGMENT_BYTES, SegmentId, Segments, Unclaimed};

const MAGIC: &[u8; 8] = b"RIALTOLD";
const VERSION: u32 = 2;
/// The last version whose headers have no digest.
const WITHOUT_DIGEST: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 4096;
const DIGEST: std::ops::Range<usize> = 48..56;
const CHECKSUM_AT: usize = HEADER_BYTES - 8;
const PREFIX: &str = "load-";

/// A bulk load's file in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadFile {
    pub number: u64,
    pub committed: LoadCommit,
}

/// What is known of the place at which a bulk load committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadCommit {
    /// Its place.
    At(Lsn),
    /// Redo from this place on did not meet its packet, and the load began before the checkpoint from which redo
    /// started. So it committed before this place, or never. An older checkpoint and the archive may need the file.
    BeforeOrNever(Lsn),
    /// It did not commit: no packet names the file.
    Never,
    /// In a follower: a packet that will be received names it, or one that is not redone yet.
    Later,
    /// A checkpoint removes it.
    Going,
}

impl LoadFile {
    /// Whether a redo that begins at this place may need the file.
    pub fn is_needed_from(&self, redo_start: Lsn) -> bool {
        match self.committed {
            LoadCommit::At(place) => place >= redo_start,
            LoadCommit::BeforeOrNever(place) => place > redo_start,
            LoadCommit::Never | LoadCommit::Going => false,
            LoadCommit::Later => true,
        }
    }
}

/// The name of the load file of this number.
pub(crate) fn load_file_name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

/// The number of a load file by its name: `None` unless [`load_file_name`] makes this name of a number that a load can
/// have. A load's number is an identifier of the catalog, and the next identifier is above those of all load files.
pub(crate) fn load_file_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (number <= u64::from(LAST_ID) && name == load_file_name(number)).then_some(number)
}

/// The seed of the images in a load file. It contains the file's number, so that an image of another load fails its
/// checksum.
pub(crate) fn seed(database_id: u128, number: u64) -> u64 {
    seed_of(database_id) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes all segments of a heap to a load file, durably, and returns the file's digest. No other thread changes the
/// heap meanwhile. Ends with the error of `check`, which is asked before each segment.
pub(crate) fn write_load_file(
    disk: &dyn Disk,
    database_id: u128,
    number: u64,
    heap: &Heap,
    check: &dyn Fn() -> Result<()>,
) -> Result<u64> {
    let mut writer = LoadFileWriter::create(disk, database_id, number, heap.id())?;
    for &id in &heap.owned() {
        check()?;
        writer.segment(heap.segments(), id)?;
    }
    Ok(writer.finish(disk)?)
}

/// Writes a load file.
pub(crate) struct LoadFileWriter {
    file: Arc<dyn File>,
    database_id: u128,
    number: u64,
    heap: HeapId,
    buffer: AlignedBuffer,
    images: usize,
    digest: Xxh3,
}

impl LoadFileWriter {
    /// Begins the load file of this number, with rows of this heap.
    pub fn create(
        disk: &dyn Disk,
        database_id: u128,
        number: u64,
        heap: HeapId,
    ) -> DiskResult<LoadFileWriter> {
        let file = disk.open(&load_file_name(number), Open::Create, Caching::Direct)?;
        // A load that was not committed before a crash may have left a file of this number.
        file.set_length(0)?;
        let (buffer, digest) =
            (AlignedBuffer::zeroed(SEGMENT_BYTES), Xxh3::with_seed(seed(database_id, number)));
        Ok(LoadFileWriter { file, database_id, number, heap, buffer, images: 0, digest })
    }

    /// Writes the image of a segment.
    pub fn segment(&mut self, segments: &Segments, id: SegmentId) -> DiskResult<()> {
        let (heap, used) = segments.copy_out(id, &mut self.buffer);
        let header = ImageHeader { heap, segment: id.0, used, sequence: self.images as u64 };
        let sealed = image::seal(&mut self.buffer, &header, seed(self.database_id, self.number));
        self.digest.update(&sealed.checksum.to_le_bytes());
        self.file.write_at(sealed.bytes, offset_of(self.images))?;
        self.images += 1;
        Ok(())
    }

    /// Makes the file durable, and gives its digest.
    pub fn finish(self, disk: &dyn Disk) -> DiskResult<u64> {
        let digest = self.digest.digest();
        let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&(self.images as u32).to_le_bytes());
        block[16..32].copy_from_slice(&self.database_id.to_le_bytes());
        block[32..40].copy_from_slice(&self.number.to_le_bytes());
        block[40..44].copy_from_slice(&self.heap.0.to_le_bytes());
        set_digest(&mut block, digest);
        self.file.write_at(&block, 0)?;
        self.file.sync()?;
        disk.sync_directory()?;
        Ok(digest)
    }
}

/// Writes rows that lie in no segment to a load file: they are gathered in a segment of its own.
pub(crate) struct RowsToLoadFile {
    writer: LoadFileWriter,
    /// Has one segment at a time.
    gathering: Heap,
}

impl RowsToLoadFile {
    /// As [`LoadFileWriter::create`].
    pub fn create(disk: &dyn Disk, database_id: u128, number: u64, heap: HeapId) -> Result<RowsToLoadFile> {
        let writer = LoadFileWriter::create(disk, database_id, number, heap)?;
        let segments = one_segment(&load_file_name(number))?;
        Ok(RowsToLoadFile { writer, gathering: Heap::new(Arc::new(segments), heap, 100) })
    }

    /// Adds a row with this body.
    pub fn push(&mut self, body: &[u8]) -> Result<()> {
        let record = match self.gathering.allocate(0, body.len(), &mut Unclaimed) {
            Some(record) => record,
            None => {
                self.write_gathered()?;
                self.gathering
                    .allocate(0, body.len(), &mut Unclaimed)
                    .expect("an empty segment has room for a row")
            }
        };
        self.gathering.segments().write(record, body, Lsn::ZERO);
        Ok(())
    }

    fn write_gathered(&mut self) -> Result<()> {
        for &id in &self.gathering.owned() {
            self.writer.segment(self.gathering.segments(), id)?;
        }
        self.gathering.clear();
        Ok(())
    }

    /// As [`LoadFileWriter::finish`].
    pub fn finish(mut self, disk: &dyn Disk) -> Result<u64> {
        self.write_gathered()?;
        Ok(self.writer.finish(disk)?)
    }
}

/// Memory for one segment.
fn one_segment(for_file: &str) -> Result<Segments> {
    Segments::reserve(Arc::new(Budget::new(SEGMENT_BYTES as u64))).map_err(|error| Error::Io {
        file: for_file.to_owned(),
        offset: 0,
        operation: "reserving memory for a segment".to_owned(),
        cause: error.to_string(),
    })
}

/// Completes a header with the digest and its checksum.
fn set_digest(block: &mut [u8], digest: u64) {
    block[DIGEST].copy_from_slice(&digest.to_le_bytes());
    let checksum = xxh3_64(&block[..CHECKSUM_AT]);
    block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
}

/// Recomputes the digest of a load file whose images were changed, and returns it. For fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn forge_digest(bytes: &mut [u8], database_id: u128, number: u64) -> u64 {
    let seed = seed(database_id, number);
    let mut digest = Xxh3::with_seed(seed);
    for image in bytes[HEADER_BYTES..].chunks(SEGMENT_BYTES) {
        let checked = image::check(&mut image.to_vec(), seed).expect("the images are whole");
        digest.update(&checked.checksum.to_le_bytes());
    }
    let digest = digest.digest();
    set_digest(&mut bytes[..HEADER_BYTES], digest);
    digest
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
    /// The digest of its images, if the header has one.
    digest: Option<u64>,
    /// The heap that was loaded.
    pub heap: HeapId,
}

impl LoadFileReader {
    /// Opens the load file of this number, which the log names with this digest. The digest is `None` in a record of a
    /// program that knew no digests.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is missing, damaged or of another load; [`Error::Io`].
    pub fn open(
        disk: &dyn Disk,
        database_id: u128,
        number: u64,
        named: Option<u64>,
    ) -> Result<LoadFileReader> {
        LoadFileReader::open_as(disk, &load_file_name(number), database_id, number, named)
    }

    /// As [`LoadFileReader::open`], of a file of another name.
    pub fn open_as(
        disk: &dyn Disk,
        name: &str,
        database_id: u128,
        number: u64,
        named: Option<u64>,
    ) -> Result<LoadFileReader> {
        let corrupt = |what: &str| Error::Corrupt { file: name.to_owned(), offset: 0, what: what.to_owned() };
        let file = match disk.open(name, Open::ReadOnly, Caching::Buffered) {
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
        let digest = (u32_at(8) > WITHOUT_DIGEST)
            .then(|| u64::from_le_bytes(block[DIGEST].try_into().expect("eight bytes")));
        if let Some(named) = named.filter(|_| named != digest) {
            let found = digest.map_or("none".to_owned(), |digest| format!("{digest:016x}"));
            return Err(corrupt(&format!(
                "the log names the load file of digest {named:016x}, this one has {found}: it is of another life of the same \
                 database (a copy of its directory), or damaged; put the file back that was there with the log"
            )));
        }
        Ok(LoadFileReader { file, seed: seed(database_id, number), images, length, digest, heap })
    }

    /// Whether the load file of this number is complete and undamaged. The file of a load that was not committed, a
    /// file whose removal was interrupted, and a file that a checkpoint removes meanwhile need not be.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_whole(disk: &dyn Disk, database_id: u128, number: u64) -> Result<bool> {
        let length = || match disk.open(&load_file_name(number), Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => Ok(None),
            file => file?.length().map(Some),
        };
        let before = length()?;
        let read = LoadFileReader::open(disk, database_id, number, None);
        match read.and_then(|reader| reader.verify()) {
            Ok(()) => Ok(true),
            Err(Error::Corrupt { .. }) => Ok(false),
            // The file is cut in steps: the bytes to be read are gone.
            Err(_) if length()? != before => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn corrupt(&self, position: usize, what: String) -> Error {
        Error::Corrupt { file: self.file.name().to_owned(), offset: offset_of(position), what }
    }

    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.length
    }

    /// Reads all of the file, and returns the first error in it.
    pub fn verify(&self) -> Result<()> {
        self.for_each_row(|_, _| Ok(()))
    }

    /// Gives each row's body in turn, with the offset of its slot in the file.
    pub fn for_each_row(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let scratch = one_segment(self.file.name())?;
        let id = SegmentId(0);
        scratch.adopt(id, self.heap);
        let mut bytes = vec![0; SEGMENT_BYTES];
        let (mut body, mut digest) = (Vec::new(), Xxh3::with_seed(self.seed));
        for position in 0..self.images {
            let offset = offset_of(position);
            let there = self.length.saturating_sub(offset).min(SEGMENT_BYTES as u64) as usize;
            if there == 0 {
                let what =
                    format!("expected image {position} of the load, the file ends at byte {}", self.length);
                return Err(self.corrupt(position, what));
            }
            self.file.read_at(&mut bytes[..there], offset)?;
            let checked =
                image::check(&mut bytes[..there], self.seed).map_err(|what| self.corrupt(position, what))?;
            let header = checked.header;
            digest.update(&checked.checksum.to_le_bytes());
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
        match self.digest {
            Some(expected) if expected != digest.digest() => {
                let what = format!(
                    "its images are whole, but have the digest {:016x} and not {expected:016x}, which the header says: they \
                     are of several files",
                    digest.digest()
                );
                Err(Error::Corrupt { file: self.file.name().to_owned(), offset: 0, what })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryDisk;

    fn heap_of_rows(count: u32) -> Heap {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(16 << 20))).unwrap());
        let heap = Heap::new(segments, HeapId(90), 100);
        for n in 0..count {
            let body = [n.to_le_bytes().as_slice(), &[n as u8; 96]].concat();
            let record = heap.allocate(0, body.len(), &mut Unclaimed).unwrap();
            match n % 10 {
                // A slot without its row.
                3 => {}
                4 => heap.release(7, record),
                _ => heap.segments().write(record, &body, Lsn::ZERO),
            }
        }
        heap
    }

    fn rows(disk: &dyn Disk, database_id: u128) -> Result<Vec<u32>> {
        let mut rows = Vec::new();
        LoadFileReader::open(disk, database_id, 5, None)?.for_each_row(|_, body| {
            assert_eq!(body.len(), 100);
            rows.push(u32::from_le_bytes(body[..4].try_into().unwrap()));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn the_rows_of_a_load_are_read_back_and_damage_is_named() {
        let disk = MemoryDisk::new();
        write_load_file(&*disk, 77, 5, &heap_of_rows(3000), &|| Ok(())).unwrap();
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
        // An interrupted removal has cut it: within its second image, before it, and at its beginning.
        for length in [4096 + 65536 + 4096, 4096 + 65536, 65536] {
            file.set_length(length).unwrap();
            let expected = if length > 65536 { 4096 + 65536 } else { 4096 };
            match rows(&*disk, 77) {
                Err(Error::Corrupt { offset, .. }) => assert_eq!(offset, expected, "cut to {length}"),
                other => panic!("cut to {length}: expected corruption, found {other:?}"),
            }
            assert_eq!(LoadFileReader::is_whole(&*disk, 77, 5), Ok(false), "cut to {length}");
        }
        disk.remove(&load_file_name(5)).unwrap();
        assert!(matches!(rows(&*disk, 77), Err(Error::Corrupt { file, .. }) if file == load_file_name(5)));
    }

    fn file_5(disk: &dyn Disk) -> Arc<dyn File> {
        disk.open(&load_file_name(5), Open::Existing, Caching::Buffered).unwrap()
    }

    #[test]
    fn a_load_file_is_the_one_of_the_digest_that_the_log_names() {
        let (disk, other) = (MemoryDisk::new(), MemoryDisk::new());
        let digest = write_load_file(&*disk, 77, 5, &heap_of_rows(3000), &|| Ok(())).unwrap();
        let of_other = write_load_file(&*other, 77, 5, &heap_of_rows(2999), &|| Ok(())).unwrap();
        let open = |disk: &dyn Disk, named| LoadFileReader::open(disk, 77, 5, named)?.verify();
        for named in [None, Some(digest)] {
            assert_eq!(open(&*disk, named), Ok(()));
        }
        let told = open(&*other, Some(digest)).unwrap_err().to_string();
        let expected = format!("names the load file of digest {digest:016x}, this one has {of_other:016x}");
        assert!(told.contains(&expected), "{told}");

        // One image of the other file, which is whole.
        let mut image = vec![0; SEGMENT_BYTES];
        let last = file_5(&*disk).length().unwrap() - offset_of(0);
        let at = offset_of(last as usize / SEGMENT_BYTES);
        let length = (file_5(&*other).length().unwrap() - at) as usize;
        file_5(&*other).read_at(&mut image[..length], at).unwrap();
        file_5(&*disk).write_at(&image[..length], at).unwrap();
        for named in [None, Some(digest)] {
            let told = open(&*disk, named).unwrap_err().to_string();
            assert!(told.contains("they are of several files"), "{told}");
        }
    }

    /// Programs that knew no digests wrote version 1, and named no digest in the log.
    #[test]
    fn a_load_file_without_a_digest_is_read_where_the_log_names_none() {
        let disk = MemoryDisk::new();
        let digest = write_load_file(&*disk, 77, 5, &heap_of_rows(300), &|| Ok(())).unwrap();
        let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
        file_5(&*disk).read_at(&mut block, 0).unwrap();
        block[8..12].copy_from_slice(&WITHOUT_DIGEST.to_le_bytes());
        set_digest(&mut block, 0);
        file_5(&*disk).write_at(&block, 0).unwrap();
        assert_eq!(rows(&*disk, 77).unwrap().len(), 240);
        let told =
            LoadFileReader::open(&*disk, 77, 5, Some(digest)).err().expect("it is refused").to_string();
        assert!(told.contains(", this one has none: "), "{told}");
    }

    #[test]
    fn only_names_that_loads_give_their_files_are_those_of_load_files() {
        for number in [0, 5, u64::from(LAST_ID)] {
            assert_eq!(load_file_number(&load_file_name(number)), Some(number));
        }
        let above = load_file_name(u64::from(LAST_ID) + 1);
        for name in [
            "load-",
            "load-5",
            "load-+5",
            "load-+000000005",
            "load-0000000005.bak",
            &above,
            "load-99999999999",
        ] {
            assert_eq!(load_file_number(name), None, "{name}");
        }
    }

    #[test]
    fn a_file_that_an_earlier_load_left_is_replaced() {
        let disk = MemoryDisk::new();
        write_load_file(&*disk, 77, 5, &heap_of_rows(3000), &|| Ok(())).unwrap();
        write_load_file(&*disk, 77, 5, &heap_of_rows(1), &|| Ok(())).unwrap();
        assert_eq!(rows(&*disk, 77).unwrap(), [0]);
    }
}
