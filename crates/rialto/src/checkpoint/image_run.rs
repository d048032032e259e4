//! [`ImageRun`]: images of adjacent segments, written in one call.

use crate::error::Result;
use crate::fault_injection;
use crate::io::{AlignedBuffer, File};
use crate::store::memory::SEGMENT_BYTES;
use crate::store::memory::image::{self, ImageHeader, Sealed};

/// The most segments of a run. The write of a single segment costs the system several times what its bytes cost; a
/// longer write keeps the log's writes waiting.
const SEGMENTS_MAX: usize = 32;

/// Images that wait to be written, each at its segment's position.
pub(super) struct ImageRun<'a> {
    file: &'a dyn File,
    buffer: AlignedBuffer,
    /// The first segment.
    first: u32,
    count: usize,
    /// Bytes up to the last image's end.
    length: usize,
}

/// The bound on the segments of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunLength {
    /// A small part of the sweep's segments, so that the pace stays even.
    Auto,
    /// A fixed number, so that small databases of tests have runs, too.
    #[cfg(test)]
    Segments(usize),
}

impl<'a> ImageRun<'a> {
    /// A run for a sweep over so many segments.
    pub fn new(file: &'a dyn File, length: RunLength, segments: u32) -> ImageRun<'a> {
        let longest = match length {
            RunLength::Auto => (segments as usize / 64).clamp(1, SEGMENTS_MAX),
            #[cfg(test)]
            RunLength::Segments(longest) => longest,
        };
        let buffer = AlignedBuffer::zeroed(longest * SEGMENT_BYTES);
        ImageRun { file, buffer, first: 0, count: 0, length: 0 }
    }

    /// Whether the segment can be added; if not, the run has to be written first. An empty run takes any.
    pub fn takes(&self, segment: u32) -> bool {
        let fits = (self.count + 1) * SEGMENT_BYTES <= self.buffer.len();
        self.count == 0 || fits && segment == self.first + self.count as u32
    }

    /// Makes room for the segment's bytes.
    pub fn begin(&mut self, segment: u32) {
        debug_assert!(self.takes(segment), "segment {segment} does not adjoin the run");
        if self.count == 0 {
            self.first = segment;
        }
        // The bytes between two images are written, too.
        let end = self.count * SEGMENT_BYTES;
        self.buffer[self.length..end].fill(0);
    }

    /// The room of the segment that was just begun.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.count * SEGMENT_BYTES..][..SEGMENT_BYTES]
    }

    /// Makes an image of the segment, whose bytes are in its room. Returns the bytes that will be written for it, and
    /// its checksum.
    pub fn seal(&mut self, header: &ImageHeader, seed: u64) -> (u64, u64) {
        let Sealed { bytes, checksum } = image::seal(self.room(), header, seed);
        let image = bytes.len();
        let before = std::mem::replace(&mut self.length, self.count * SEGMENT_BYTES + image);
        self.count += 1;
        ((self.length - before) as u64, checksum)
    }

    /// Writes the images of the run.
    pub fn write(&mut self) -> Result<()> {
        if self.count > 0 {
            if fault_injection::is_on("runs-lack-their-last-image") && self.count > 1 {
                self.length = (self.count - 1) * SEGMENT_BYTES;
            }
            let offset = u64::from(self.first) * SEGMENT_BYTES as u64;
            self.file.write_at(&self.buffer[..self.length], offset)?;
        }
        (self.count, self.length) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HeapId;
    use crate::io::{Caching, Disk, MemoryDisk, Open};

    #[test]
    fn runs_leave_in_the_file_what_single_images_do() {
        // Full and nearly empty segments, gaps, and more in a row than a run takes.
        let segments: Vec<u32> = (3..40).chain([50, 52]).chain(60..63).collect();
        let used = |segment: u32| if segment.is_multiple_of(3) { 5_000 } else { SEGMENT_BYTES };
        let disk = MemoryDisk::new();
        let written = |name: &str, length: RunLength, of: u32| {
            let file = disk.open(name, Open::Create, Caching::Direct).unwrap();
            file.allocate(64 * SEGMENT_BYTES as u64).unwrap();
            let mut run = ImageRun::new(&*file, length, of);
            let mut bytes = 0;
            for &segment in &segments {
                if !run.takes(segment) {
                    run.write().unwrap();
                }
                run.begin(segment);
                run.room().fill(segment as u8);
                let header = ImageHeader { heap: Some(HeapId(7)), segment, used: used(segment), sequence: 9 };
                bytes += run.seal(&header, 5).0;
            }
            run.write().unwrap();
            let mut contents = AlignedBuffer::zeroed(64 * SEGMENT_BYTES);
            file.read_at(&mut contents, 0).unwrap();
            (contents, bytes)
        };
        let (single, single_bytes) = written("single", RunLength::Auto, 1);
        let long = [RunLength::Auto, RunLength::Segments(2), RunLength::Segments(5), RunLength::Segments(64)];
        for (length, of) in long.into_iter().zip([SEGMENTS_MAX as u32 * 64, 1, 1, 1]) {
            let (runs, runs_bytes) = written("runs", length, of);
            assert!(*single == *runs, "{length:?}");
            assert!(runs_bytes > single_bytes && runs_bytes <= segments.len() as u64 * SEGMENT_BYTES as u64);
        }
    }
}
