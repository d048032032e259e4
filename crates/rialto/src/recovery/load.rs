//! Loading the backup copy in force into the segments, in parallel.
//!
//! Sweeps write past the system's cache, so nothing of the copy is in the cache: reading through it would only add a
//! copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::progress::{RecoveryProgress, Step};
use crate::checkpoint::home::{HOME_FILE, HomeBlock};
use crate::checkpoint::image_sums::ImageSums;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::HeapId;
use crate::io::{AlignedBuffer, BUFFER_ALIGNMENT, Caching, Disk, File, Open};
use crate::store::memory::image::{self, Checked, backup_name, seed_of};
use crate::store::memory::segments::{Copy, IMAGE_HEADER_BYTES};
use crate::store::memory::{SEGMENT_BYTES, SegmentId, Segments};

/// Segments that a thread reads at a time: few enough to stay in its core's cache until they are checked and in place.
const CHUNK: usize = 16;
/// Threads for each one that a recovery may use: while one waits for the disk another one checks and copies.
const THREADS_EACH: usize = 2;

/// The result of loading.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The segments in use and their heaps, in the order of their numbers.
    pub segments: Vec<(SegmentId, HeapId)>,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of records in them.
    pub record_bytes: u64,
    /// The checksums of the images.
    pub sums: ImageSums,
}

/// Fills the segments from the copy that `home` names, and checks each. They are clean for that copy and dirty for the
/// others. Lock bits are still as they were when the copy was made.
///
/// # Errors
/// [`Error::Corrupt`] with file and offset; [`Error::Io`]; [`Error::MemoryLimit`].
pub(crate) fn load(
    disk: &dyn Disk,
    home: &HomeBlock,
    segments: &Segments,
    threads: usize,
    progress: &RecoveryProgress<'_>,
) -> Result<Loaded> {
    let Some(copy) = home.copy else { return Ok(Loaded::default()) };
    let mut file = open_copy(disk, copy, Caching::Direct)?;
    let length = file.length()?;
    if !length.is_multiple_of(BUFFER_ALIGNMENT as u64) {
        // The file was cut short: the rest of its last page cannot be read directly.
        file = open_copy(disk, copy, Caching::Buffered)?;
    }
    progress.begin(Step::Load, length.min(copy_bytes(home)));
    let loader = Loader {
        length,
        file: &*file,
        home,
        copy,
        segments,
        next: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        record_bytes: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        found: Mutex::default(),
        sums: ImageSums::default(),
        error: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads * THREADS_EACH).map(|_| scope.spawn(|| loader.work(None))).collect();
        loader.work(Some(progress));
        others.into_iter().for_each(super::join);
    });
    if let Some((_, error)) = loader.error.into_inner() {
        return Err(error);
    }
    check_digest(home, copy, &loader.sums)?;
    segments.rebuild_free_list(home.segments);
    let sums = loader.sums;
    let mut found = loader.found.into_inner();
    found.sort_unstable_by_key(|&(id, _)| id);
    let (bytes, record_bytes) = (loader.bytes.into_inner(), loader.record_bytes.into_inner());
    Ok(Loaded { segments: found, bytes, record_bytes, sums })
}

/// Checks that the images of a copy, all of which are whole, are those that its checkpoint completed.
///
/// If not, files of different times lie in the directory, or the device has lost writes. That is not damage of one
/// file, for which the older checkpoint would stand in by itself: an administrator has to decide which of the files to
/// believe.
pub(crate) fn check_digest(home: &HomeBlock, copy: Copy, sums: &ImageSums) -> Result<()> {
    let found = sums.digest(copy, home.segments, seed_of(home.database_id));
    if found == home.digest || fault_injection::is_on("copy-not-tied-to-home") {
        return Ok(());
    }
    let what = format!(
        "it names checkpoint {} in \"{name}\", whose images are whole, but not all of that checkpoint: expected the digest \
         {:016x}, found {found:016x}; \"{name}\", or a part of it, is of another time: put the right file back, or remove it, \
         and the older checkpoint is recovered from if it can be",
        home.sequence,
        home.digest,
        name = backup_name(copy)
    );
    Err(Error::Corrupt { file: HOME_FILE.to_owned(), offset: 0, what })
}

/// Bytes of the backup copy that a home block names.
pub(crate) fn copy_bytes(home: &HomeBlock) -> u64 {
    if home.copy.is_some() { u64::from(home.segments) * SEGMENT_BYTES as u64 } else { 0 }
}

/// The segments that have an image in the backup copy that a home block names, as far as its file reaches.
pub(crate) fn segments_there(disk: &dyn Disk, home: &HomeBlock) -> u32 {
    // Errors of the file are found when it is loaded.
    let length = home.copy.and_then(|copy| open_copy(disk, copy, Caching::Buffered).ok()?.length().ok());
    let images = length.unwrap_or(0).div_ceil(SEGMENT_BYTES as u64);
    u64::from(home.segments).min(images) as u32
}

/// Opens a backup copy for reading.
pub(crate) fn open_copy(disk: &dyn Disk, copy: Copy, caching: Caching) -> Result<Arc<dyn File>> {
    let name = backup_name(copy);
    match disk.open(&name, Open::ReadOnly, caching) {
        Err(error) if error.is_missing() => {
            let what = format!("\"{HOME_FILE}\" names this backup copy, and it is missing");
            Err(Error::Corrupt { file: name, offset: 0, what })
        }
        file => Ok(file?),
    }
}

struct Loader<'a> {
    file: &'a dyn File,
    length: u64,
    home: &'a HomeBlock,
    copy: Copy,
    segments: &'a Segments,
    next: AtomicUsize,
    bytes: AtomicU64,
    record_bytes: AtomicU64,
    failed: AtomicBool,
    found: Mutex<Vec<(SegmentId, HeapId)>>,
    sums: ImageSums,
    /// The error of the lowest segment, so that a damaged file gives the same answer each time.
    error: Mutex<Option<(usize, Error)>>,
}

impl Loader<'_> {
    fn work(&self, progress: Option<&RecoveryProgress<'_>>) {
        let count = self.home.segments as usize;
        let mut buffer = AlignedBuffer::zeroed(CHUNK.min(count.max(1)) * SEGMENT_BYTES);
        let mut found = Vec::new();
        while !self.failed.load(Ordering::Relaxed) {
            let first = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= count {
                break;
            }
            let end = count.min(first + CHUNK);
            if let Err((segment, error)) = self.chunk(first, end, &mut buffer, &mut found) {
                self.failed.store(true, Ordering::Relaxed);
                let mut kept = self.error.lock();
                if kept.as_ref().is_none_or(|&(other, _)| segment < other) {
                    *kept = Some((segment, error));
                }
            }
            if let Some(progress) = progress {
                progress.at(self.bytes.load(Ordering::Relaxed));
            }
        }
        self.found.lock().append(&mut found);
    }

    fn chunk(
        &self,
        first: usize,
        end: usize,
        buffer: &mut [u8],
        found: &mut Vec<(SegmentId, HeapId)>,
    ) -> Result<(), (usize, Error)> {
        let offset = (first * SEGMENT_BYTES) as u64;
        let there = self.length.saturating_sub(offset).min(((end - first) * SEGMENT_BYTES) as u64) as usize;
        self.file.read_at(&mut buffer[..there], offset).map_err(|error| (first, error.into()))?;
        self.bytes.fetch_add(there as u64, Ordering::Relaxed);
        for number in first..end {
            let from = ((number - first) * SEGMENT_BYTES).min(there);
            let bytes = &mut buffer[from..there.min(from + SEGMENT_BYTES)];
            self.segment(number, bytes, found).map_err(|error| (number, error))?;
        }
        Ok(())
    }

    fn segment(&self, number: usize, bytes: &mut [u8], found: &mut Vec<(SegmentId, HeapId)>) -> Result<()> {
        let Checked { header, checksum } = check_image(self.home, self.copy, number, bytes)?;
        let id = SegmentId(number as u32);
        self.sums.set(self.copy, id.0, checksum);
        if let Some(heap) = header.heap {
            if !self.segments.adopt(id, heap) {
                let budget = self.segments.budget();
                return Err(Error::MemoryLimit { used: budget.used(), limit: budget.limit() });
            }
            self.segments.restore(id, &bytes[..header.used]);
            found.push((id, heap));
            self.record_bytes.fetch_add((header.used - IMAGE_HEADER_BYTES) as u64, Ordering::Relaxed);
        }
        if (number as u64) < self.segments.capacity() {
            self.segments.clear_dirty(id, self.copy);
        }
        Ok(())
    }
}

/// Checks the image that should lie at this place of a copy.
pub(crate) fn check_image(home: &HomeBlock, copy: Copy, number: usize, bytes: &mut [u8]) -> Result<Checked> {
    let corrupt = |what: String| Error::Corrupt {
        file: backup_name(copy),
        offset: (number * SEGMENT_BYTES) as u64,
        what,
    };
    let checked = image::check(bytes, seed_of(home.database_id)).map_err(corrupt)?;
    let header = checked.header;
    if header.segment as usize != number {
        return Err(corrupt(format!(
            "expected the image of segment {number}, found that of {}",
            header.segment
        )));
    }
    if header.sequence > home.sequence {
        return Err(corrupt(format!(
            "checkpoint {} is in force, but this image was written by checkpoint {}, which did not complete",
            home.sequence, header.sequence
        )));
    }
    Ok(checked)
}
