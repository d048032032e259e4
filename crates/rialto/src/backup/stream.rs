//! The format of a backup: frames, one after the other. All numbers are little endian.
//!
//! ```text
//!  0       4      8        12     16       24         32
//!  +-------+------+--------+------+--------+----------+---------
//!  | magic | kind | length | zero | number | checksum | payload, `length` bytes
//!  +-------+------+--------+------+--------+----------+---------
//!   "RLBF"         of the           of the   xxh3 of bytes 0..24 and the payload, seeded with the backup's
//!                  payload          frame    identity (of the first frame with 0)
//!
//!  begin (1), the first:   version u32, u32 0, database u128, backup u128, base u128 (0: full), place u64,
//!                          segments u32, next identifier u32, time u64 (ms since 1970), base's place u64;
//!                          from version 3 on where the log ended at the place: position u64, checksum u64
//!  segment (2):            number u32, heap u32 (0: free), the segment's bytes from 64 to its end
//!  list of pages (4):      words in all u64, words in the frames before u64, the next words, each u64
//!  page (5):               number u32, u32 0, the bytes of the page's image from 8 to its end
//!  end (3), the last:      segments u64, bytes of all frames before this one u64; from version 4 on pages u64
//!  begin of a copy (6):    as the begin of a backup
//!  log (7):                a log file's number u64, where it begins in the stream of the log u64, its bytes u64,
//!                          a position in it u64, the log's bytes from there on
//! ```
//!
//! A backup of a database that has a page file has version 4, others have version 3. Behind its segments it has the list of
//! its pages (`store/paged/page_list.rs`) in as many frames as that takes, and then pages, in the order of their numbers: all
//! of the list, or in an increment those that have changed. Their images are in the byte order of the machine, as in the
//! page file.
//!
//! A *copy for a follower* (`copy.rs`, `receive.rs`) has the same frames, behind a begin of its own, so neither is taken for the
//! other. It is always a full one, and has log between its pages and its end: from the beginning of a log file up to the
//! point that the begin names, without gaps.
//!
//! The checksum of a frame covers its number and the backup's identity, so a missing frame, a repeated one, and one of
//! another backup are detected. Without the end frame nothing is believed.

use std::collections::HashSet;
use std::io::{self, Read, Write};

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};
use crate::ids::{HeapId, Lsn};
use crate::log::{LogFileLayout, LogPoint, LogPosition};
use crate::recovery::OpenError;
use crate::store::memory::SEGMENT_BYTES;
use crate::store::memory::segments::{IMAGE_HEADER_BYTES, UNIT_BYTES};
use crate::store::paged::{LIST_WORDS_MAX, PageList, RestoredPages, page_damage};

const MAGIC: u32 = u32::from_le_bytes(*b"RLBF");
/// The newest format of backups, with pages of disk-resident tables. Since 2 a backup has segments only of the tables in its
/// catalog; since 3 it names its point of the log.
const VERSION: u32 = 4;
/// The format of backups without pages that this program writes.
const VERSION_WITHOUT_PAGES: u32 = 3;
/// The oldest format that this program reads.
const VERSION_WITHOUT_POINT: u32 = 2;
const FRAME_HEADER: usize = 32;
const CHECKSUM: std::ops::Range<usize> = 24..32;
const BEGIN: u32 = 1;
const SEGMENT: u32 = 2;
const END: u32 = 3;
const LIST: u32 = 4;
const PAGE: u32 = 5;
const BEGIN_COPY: u32 = 6;
const LOG: u32 = 7;
const BEGIN_BYTES: usize = 104;
const BEGIN_BYTES_WITHOUT_POINT: usize = 88;
const END_BYTES: usize = 24;
const END_BYTES_WITHOUT_PAGES: usize = 16;
const PAYLOAD_MAX: usize = SEGMENT_BYTES;
/// The words of a list that lie in one frame.
const WORDS_PER_FRAME: usize = (PAYLOAD_MAX - LIST_HEAD_BYTES) / 8;
const LIST_HEAD_BYTES: usize = 16;
const LOG_HEAD_BYTES: usize = 32;
/// The bytes of log that lie in one frame; blocks may span frames.
const LOG_BYTES_PER_FRAME: usize = PAYLOAD_MAX / 2;
/// In an image these bytes are its checksum, which a restore makes anew.
const PAGE_HEAD_BYTES: usize = 8;

/// What a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    Backup,
    /// A copy for a follower.
    Copy,
}

impl StreamKind {
    fn begin(self) -> u32 {
        match self {
            StreamKind::Backup => BEGIN,
            StreamKind::Copy => BEGIN_COPY,
        }
    }

    /// How errors name it.
    pub fn noun(self) -> &'static str {
        match self {
            StreamKind::Backup => "backup",
            StreamKind::Copy => "copy",
        }
    }
}

/// The header of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BackupHeader {
    pub database: u128,
    pub id: u128,
    /// For an increment: the backup that it follows, and that backup's place.
    pub base: Option<(u128, Lsn)>,
    pub place: Lsn,
    /// The point where the log of its database's life ended at the place, if the backup names it.
    pub point: Option<LogPoint>,
    /// The segments of the database: those below this number.
    pub segments: u32,
    pub next_id: u32,
    /// When it was taken, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whether it has a list of pages.
    pub has_pages: bool,
}

fn seed_of(id: u128) -> u64 {
    id as u64 ^ (id >> 64) as u64
}

impl BackupHeader {
    fn encode(&self) -> [u8; BEGIN_BYTES] {
        let mut bytes = [0; BEGIN_BYTES];
        let (base, base_place) = self.base.unwrap_or_default();
        let version = if self.has_pages { VERSION } else { VERSION_WITHOUT_PAGES };
        bytes[..4].copy_from_slice(&version.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.id.to_le_bytes());
        bytes[40..56].copy_from_slice(&base.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.place.0.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.segments.to_le_bytes());
        bytes[68..72].copy_from_slice(&self.next_id.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[80..88].copy_from_slice(&base_place.0.to_le_bytes());
        let point = self.point.expect("a backup that is taken has a point");
        bytes[88..96].copy_from_slice(&point.position.0.to_le_bytes());
        bytes[96..104].copy_from_slice(&point.checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> BackupHeader {
        let u128_at = |at: usize| u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"));
        let (base, place) = (u128_at(40), Lsn(u64_at(bytes, 56)));
        let point = |bytes: &[u8]| LogPoint {
            lsn: place,
            position: LogPosition(u64_at(bytes, 0)),
            checksum: u64_at(bytes, 8),
        };
        BackupHeader {
            database: u128_at(8),
            id: u128_at(24),
            base: (base != 0).then(|| (base, Lsn(u64_at(bytes, 80)))),
            place,
            point: bytes.get(BEGIN_BYTES_WITHOUT_POINT..BEGIN_BYTES).map(point),
            segments: u32_at(bytes, 64),
            next_id: u32_at(bytes, 68),
            time_ms: u64_at(bytes, 72),
            has_pages: u32_at(bytes, 0) >= VERSION,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// How much a backup has.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenStream {
    pub segments: u64,
    pub pages: u64,
    pub bytes: u64,
}

/// Writes a backup.
pub(super) struct StreamWriter<'a> {
    out: &'a mut dyn Write,
    name: &'a str,
    seed: u64,
    frames: u64,
    has_pages: bool,
    pub segments: u64,
    pub pages: u64,
    pub bytes: u64,
}

impl<'a> StreamWriter<'a> {
    pub fn begin(
        (out, name): (&'a mut dyn Write, &'a str),
        kind: StreamKind,
        header: &BackupHeader,
    ) -> Result<StreamWriter<'a>> {
        let mut writer = StreamWriter {
            out,
            name,
            seed: 0,
            frames: 0,
            has_pages: header.has_pages,
            segments: 0,
            pages: 0,
            bytes: 0,
        };
        writer.frame(kind.begin(), &[], &header.encode())?;
        writer.seed = seed_of(header.id);
        Ok(writer)
    }

    /// Writes a segment, whose bytes lie in `bytes` behind the room for an image header.
    pub fn segment(&mut self, number: u32, heap: Option<HeapId>, bytes: &[u8]) -> Result<()> {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&number.to_le_bytes());
        head[4..].copy_from_slice(&heap.map_or(0, |heap| heap.0).to_le_bytes());
        self.segments += 1;
        self.frame(SEGMENT, &head, bytes.get(IMAGE_HEADER_BYTES..).unwrap_or_default())
    }

    /// Writes the list of pages, behind the segments.
    pub fn list(&mut self, list: &PageList) -> Result<()> {
        let words = list.words();
        let mut before = 0u64;
        for chunk in words.chunks(WORDS_PER_FRAME) {
            let mut head = [0; LIST_HEAD_BYTES];
            head[..8].copy_from_slice(&(words.len() as u64).to_le_bytes());
            head[8..].copy_from_slice(&before.to_le_bytes());
            let bytes: Vec<u8> = chunk.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.frame(LIST, &head, &bytes)?;
            before += chunk.len() as u64;
        }
        Ok(())
    }

    /// Writes a page, whose image this is.
    pub fn page(&mut self, number: u32, image: &[u8]) -> Result<()> {
        let mut head = [0; PAGE_HEAD_BYTES];
        head[..4].copy_from_slice(&number.to_le_bytes());
        self.pages += 1;
        self.frame(PAGE, &head, &image[PAGE_HEAD_BYTES..])
    }

    /// Writes bytes of the log, behind the pages: whole blocks, which begin at this position of a file.
    pub fn log(&mut self, file: &LogFileLayout, position: LogPosition, bytes: &[u8]) -> Result<()> {
        let mut at = position.0;
        for chunk in bytes.chunks(LOG_BYTES_PER_FRAME) {
            let mut head = [0; LOG_HEAD_BYTES];
            for (word, number) in head.chunks_exact_mut(8).zip([file.sequence, file.start.0, file.bytes, at])
            {
                word.copy_from_slice(&number.to_le_bytes());
            }
            self.frame(LOG, &head, chunk)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    pub fn end(mut self) -> Result<WrittenStream> {
        let mut payload = [0; END_BYTES];
        payload[..8].copy_from_slice(&self.segments.to_le_bytes());
        payload[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        payload[16..].copy_from_slice(&self.pages.to_le_bytes());
        let length = if self.has_pages { END_BYTES } else { END_BYTES_WITHOUT_PAGES };
        self.frame(END, &[], &payload[..length])?;
        Ok(WrittenStream { segments: self.segments, pages: self.pages, bytes: self.bytes })
    }

    fn frame(&mut self, kind: u32, head: &[u8], rest: &[u8]) -> Result<()> {
        let mut header = [0; FRAME_HEADER];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[8..12].copy_from_slice(&((head.len() + rest.len()) as u32).to_le_bytes());
        header[16..24].copy_from_slice(&self.frames.to_le_bytes());
        let mut hash = Xxh3::with_seed(self.seed);
        [&header[..24], head, rest].into_iter().for_each(|bytes| hash.update(bytes));
        header[CHECKSUM].copy_from_slice(&hash.digest().to_le_bytes());
        for bytes in [&header, head, rest] {
            self.out.write_all(bytes).map_err(|error| write_error(self.name, self.bytes, &error))?;
        }
        self.frames += 1;
        self.bytes += (FRAME_HEADER + head.len() + rest.len()) as u64;
        Ok(())
    }
}

/// The error for a failed write of a backup.
pub(super) fn write_error(name: &str, offset: u64, error: &io::Error) -> Error {
    // It contains the disk's own error, which has the file's name in the directory.
    if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<crate::io::DiskError>()) {
        return Error::from(inner.clone());
    }
    let (file, operation) = (name.to_owned(), "write".to_owned());
    match error.kind() {
        io::ErrorKind::StorageFull => Error::DiskFull { file, offset, operation },
        _ => Error::Io { file, offset, operation, cause: error.to_string() },
    }
}

/// What was read of a backup.
pub(super) enum ReadPart<'a> {
    Segment(ReadSegment<'a>),
    /// The list of pages, complete.
    List(PageList),
    Page(ReadPage<'a>),
    /// In a copy for a follower.
    Log(ReadLog<'a>),
}

/// A part of the log that was read.
pub(super) struct ReadLog<'a> {
    pub file: LogFileLayout,
    pub position: LogPosition,
    pub bytes: &'a [u8],
}

/// A page that was read, which the list has.
pub(super) struct ReadPage<'a> {
    pub number: u32,
    /// Its image, without a checksum.
    pub image: &'a [u8],
}

/// A segment that was read.
pub(super) struct ReadSegment<'a> {
    pub number: u32,
    pub heap: Option<HeapId>,
    /// The segment's bytes from 64 on.
    pub bytes: &'a [u8],
}

/// Reads a backup.
pub(super) struct StreamReader<'a> {
    from: &'a mut dyn Read,
    name: &'a str,
    kind: StreamKind,
    pub header: BackupHeader,
    seed: u64,
    frames: u64,
    segments: u64,
    /// The words of the list of pages that have come.
    words: Vec<u64>,
    /// The list, once it is complete.
    list: Option<PageList>,
    last_page: Option<u32>,
    pages: u64,
    /// Whether log has come.
    has_log: bool,
    /// Where the next frame begins.
    at: u64,
    payload: Vec<u8>,
}

impl<'a> StreamReader<'a> {
    /// Reads the first frame.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`], with the offset of the frame; [`OpenError::Unsupported`] for another format, and for a
    /// stream of the other kind; [`OpenError::Io`].
    pub fn begin(
        from: &'a mut dyn Read,
        name: &'a str,
        kind: StreamKind,
    ) -> Result<StreamReader<'a>, OpenError> {
        let (header, payload) = (BackupHeader::decode(&[0; BEGIN_BYTES]), Vec::new());
        let mut reader = StreamReader {
            from,
            name,
            kind,
            header,
            seed: 0,
            frames: 0,
            segments: 0,
            words: Vec::new(),
            list: None,
            last_page: None,
            pages: 0,
            has_log: false,
            at: 0,
            payload,
        };
        let found = reader.frame()?;
        let other = match kind {
            StreamKind::Backup => "a copy for a follower: receive it (Follower::receive)",
            StreamKind::Copy => "a backup: restore it, or give the stream of Database::copy_to",
        };
        if found != kind.begin() && [BEGIN, BEGIN_COPY].contains(&found) {
            return Err(OpenError::Unsupported { what: format!("\"{name}\" is {other}") });
        }
        if found != kind.begin() || reader.payload.len() < 4 {
            return Err(
                reader.corrupt(0, &format!("expected the begin of a {}, found another frame", kind.noun()))
            );
        }
        let version = u32_at(&reader.payload, 0);
        let length = match version {
            VERSION | VERSION_WITHOUT_PAGES => BEGIN_BYTES,
            VERSION_WITHOUT_POINT => BEGIN_BYTES_WITHOUT_POINT,
            _ => {
                let what = format!(
                    "\"{name}\" has {} format {version}, this program reads formats {VERSION_WITHOUT_POINT} to {VERSION}: \
                     use a matching version",
                    kind.noun()
                );
                return Err(OpenError::Unsupported { what });
            }
        };
        if reader.payload.len() != length || kind == StreamKind::Copy && length != BEGIN_BYTES {
            return Err(reader.corrupt(0, "the begin of the backup has another length than all have"));
        }
        reader.header = BackupHeader::decode(&reader.payload);
        if kind == StreamKind::Copy && reader.header.place >= Lsn::MAX {
            return Err(reader.corrupt(0, "no log has the place of the copy"));
        }
        reader.seed = seed_of(reader.header.id);
        Ok(reader)
    }

    /// The next segment, the list of pages or the next page, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<ReadPart<'_>>, OpenError> {
        loop {
            let at = self.at;
            match self.frame()? {
                LIST if self.header.has_pages && self.list.is_none() => {
                    if let Some(list) = self.list_frame(at)? {
                        return Ok(Some(ReadPart::List(list)));
                    }
                }
                kind => return self.other_frame(kind, at),
            }
        }
    }

    /// The list of pages, if the frame that was read completes it.
    fn list_frame(&mut self, at: u64) -> Result<Option<PageList>, OpenError> {
        let has_words = self.payload.len() > LIST_HEAD_BYTES && self.payload.len().is_multiple_of(8);
        let words = || self.payload[LIST_HEAD_BYTES..].chunks_exact(8).map(|word| u64_at(word, 0));
        let all = has_words.then(|| u64_at(&self.payload, 0));
        let fits = |all: &u64| {
            u64_at(&self.payload, 8) == self.words.len() as u64
                && *all <= LIST_WORDS_MAX
                && self.words.len() as u64 + words().len() as u64 <= *all
        };
        let Some(all) = all.filter(fits) else {
            return Err(self.corrupt(at, "a part of the list of pages that does not follow what came before"));
        };
        self.words.extend(words());
        if (self.words.len() as u64) < all {
            return Ok(None);
        }
        let list = PageList::of_words(&std::mem::take(&mut self.words));
        let list = list.map_err(|what| self.corrupt(at, what))?;
        self.list = Some(list.clone());
        Ok(Some(list))
    }

    fn other_frame(&mut self, kind: u32, at: u64) -> Result<Option<ReadPart<'_>>, OpenError> {
        match kind {
            SEGMENT
                if self.payload.len() >= 8
                    && self.list.is_none()
                    && self.words.is_empty()
                    && !self.has_log =>
            {
                let (number, heap, length) =
                    (u32_at(&self.payload, 0), u32_at(&self.payload, 4), self.payload.len() - 8);
                if number >= self.header.segments
                    || length > SEGMENT_BYTES - IMAGE_HEADER_BYTES
                    || !length.is_multiple_of(UNIT_BYTES)
                {
                    return Err(self.corrupt(at, "a segment that the backup cannot have"));
                }
                self.segments += 1;
                let heap = (heap != 0).then_some(HeapId(heap));
                Ok(Some(ReadPart::Segment(ReadSegment { number, heap, bytes: &self.payload[8..] })))
            }
            PAGE if self.payload.len() >= PAGE_HEAD_BYTES && !self.has_log => {
                let number = u32_at(&self.payload, 0);
                let is_listed = self.list.as_ref().is_some_and(|list| {
                    self.payload.len() == list.page_bytes
                        && list.pages.contains(number)
                        && self.last_page.is_none_or(|last| last < number)
                });
                if !is_listed {
                    return Err(self.corrupt(at, "a page that the backup cannot have here"));
                }
                if let Some(what) = page_damage(number, &self.payload) {
                    return Err(self.corrupt(at, &what));
                }
                self.last_page = Some(number);
                self.pages += 1;
                Ok(Some(ReadPart::Page(ReadPage { number, image: &self.payload })))
            }
            LOG if self.kind == StreamKind::Copy
                && self.payload.len() > LOG_HEAD_BYTES
                && self.list.is_some() == self.header.has_pages =>
            {
                self.has_log = true;
                let word = |at: usize| u64_at(&self.payload, 8 * at);
                let (sequence, start, bytes) = (word(0), LogPosition(word(1)), word(2));
                Ok(Some(ReadPart::Log(ReadLog {
                    file: LogFileLayout { sequence, start, bytes },
                    position: LogPosition(word(3)),
                    bytes: &self.payload[LOG_HEAD_BYTES..],
                })))
            }
            END if self.payload.len() == self.end_bytes() => {
                let found = (u64_at(&self.payload, 0), u64_at(&self.payload, 8));
                let pages = self.payload.get(16..END_BYTES).map_or(0, |bytes| u64_at(bytes, 0));
                if found != (self.segments, at) || pages != self.pages {
                    let what = "the end of the backup counts other segments, pages or bytes than came";
                    return Err(self.corrupt(at, what));
                }
                if self.header.has_pages && self.list.is_none() {
                    return Err(self.corrupt(at, "the backup ends before its list of pages does"));
                }
                if self.kind == StreamKind::Copy {
                    // What follows on a connection, as the blocks of the log, is left there.
                    return Ok(None);
                }
                let mut more = [0];
                match self.from.read(&mut more) {
                    Ok(0) => Ok(None),
                    Ok(_) => Err(self.corrupt(self.at, "bytes follow the end of the backup")),
                    Err(error) => Err(self.failed(&error)),
                }
            }
            _ => Err(self.corrupt(at, "a frame of a kind or length that no backup has")),
        }
    }

    fn end_bytes(&self) -> usize {
        if self.header.has_pages { END_BYTES } else { END_BYTES_WITHOUT_PAGES }
    }

    /// What is missing of what the header and the list of pages say: a segment which is not among those that came, or a
    /// page.
    pub fn check_whole(
        name: &str,
        header: &BackupHeader,
        there: &HashSet<u32>,
        pages: Option<&RestoredPages>,
        kind: StreamKind,
    ) -> Result<(), OpenError> {
        let noun = kind.noun();
        let segment = (0..header.segments).find(|number| !there.contains(number));
        let segment = segment.map(|missing| format!("segment {missing} of {}", header.segments));
        let page = || pages.and_then(RestoredPages::missing);
        let missing = segment.or_else(|| page().map(|missing| format!("page {missing}, which its list has")));
        let Some(missing) = missing else { return Ok(()) };
        let what = format!("the {noun} lacks {missing}");
        Err(OpenError::Corrupt { file: name.to_owned(), offset: 0, what })
    }

    /// How many bytes have been read.
    pub fn position(&self) -> u64 {
        self.at
    }

    pub fn corrupt(&self, offset: u64, what: &str) -> OpenError {
        OpenError::Corrupt { file: self.name.to_owned(), offset, what: what.to_owned() }
    }

    fn failed(&self, error: &io::Error) -> OpenError {
        OpenError::Io(format!("read of \"{}\" at offset {} failed: {error}", self.name, self.at))
    }

    /// Reads the next frame into `payload`, and returns its kind.
    fn frame(&mut self) -> Result<u32, OpenError> {
        let mut header = [0; FRAME_HEADER];
        self.fill(0, &mut header)?;
        if u32_at(&header, 0) != MAGIC {
            let what = match self.frames {
                0 => format!("expected a {}, found other bytes", self.kind.noun()),
                _ => format!("expected a frame of the {}, found other bytes", self.kind.noun()),
            };
            return Err(self.corrupt(self.at, &what));
        }
        let length = u32_at(&header, 8) as usize;
        if length > PAYLOAD_MAX {
            return Err(self.corrupt(self.at, &format!("a frame of {length} bytes makes no sense")));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(length, 0);
        let filled = self.fill(FRAME_HEADER, &mut payload);
        self.payload = payload;
        filled?;
        let mut hash = Xxh3::with_seed(self.seed);
        hash.update(&header[..24]);
        hash.update(&self.payload);
        let (expected, found) = (u64_at(&header, CHECKSUM.start), hash.digest());
        if expected != found || u64_at(&header, 16) != self.frames {
            return Err(self.corrupt(
                self.at,
                &format!(
                    "the checksum of frame {} is {expected:016x}, its bytes have {found:016x}: they are damaged, or of \
                     another {}",
                    self.frames,
                    self.kind.noun()
                ),
            ));
        }
        self.frames += 1;
        self.at += (FRAME_HEADER + length) as u64;
        Ok(u32_at(&header, 4))
    }

    fn fill(&mut self, before: usize, buffer: &mut [u8]) -> Result<(), OpenError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.from.read(&mut buffer[filled..]) {
                Ok(0) => {
                    let what = format!(
                        "the {} is cut: it ends after {} bytes, before its end",
                        self.kind.noun(),
                        self.at + (before + filled) as u64
                    );
                    return Err(self.corrupt(self.at, &what));
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }
}

/// A frame's kind and its payload.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) type Frame = (u32, Vec<u8>);

/// The frames of a complete backup.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn frames_of(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(FRAME_HEADER);
        let (payload, rest) = rest.split_at(u32_at(header, 8) as usize);
        frames.push((u32_at(header, 4), payload.to_vec()));
        bytes = rest;
    }
    frames
}

/// A backup of any frames, with correct numbers and checksums.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn forge(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = StreamWriter {
        out: &mut out,
        name: "",
        seed: 0,
        frames: 0,
        has_pages: false,
        segments: 0,
        pages: 0,
        bytes: 0,
    };
    for (kind, payload) in frames {
        writer.frame(*kind, &[], payload).expect("memory takes it");
        if let (1, Some(id)) = (writer.frames, payload.get(24..40)) {
            writer.seed = seed_of(u128::from_le_bytes(id.try_into().expect("sixteen bytes")));
        }
    }
    out
}

#[cfg(test)]
mod tests;
