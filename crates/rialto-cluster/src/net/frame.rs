//! Frames: the bytes of a connection.
//!
//! ```text
//!  0       4         5      6      8        12          16         24
//!  +-------+---------+------+------+--------+-----------+----------+---- ...
//!  |"RLNT" | version | kind | 0  0 | length | header's  | payload's| payload
//!  |       |         |      |      |        | checksum  | checksum |
//!  +-------+---------+------+------+--------+-----------+----------+---- ...
//!                                   of the   low half of  xxh3_64
//!                                   payload  xxh3_64 of
//!                                            bytes 0-11
//! ```
//!
//! All numbers are little-endian. The header has a checksum of its own, so that a damaged length is found before bytes
//! are awaited for it. The version is that of this layout; the magic number and the version lie at the same bytes in
//! every version, so that a node can name a version that it does not know.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a frame before its payload.
pub const HEADER: usize = 24;
/// The version of the layout.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"RLNT";
/// Bytes for which a decoder asks at least.
const READ_MIN: usize = 16 << 10;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The connecting node says what it is.
    Hello,
    /// The node that was connected to says what it is.
    Welcome,
    /// A node says why it ends the connection.
    Refusal,
    /// A message of a node to another one.
    Message,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Refusal => 3,
            Kind::Message => 4,
        }
    }

    fn of(number: u8) -> Option<Kind> {
        [Kind::Hello, Kind::Welcome, Kind::Refusal, Kind::Message]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// A frame, in the buffer of the decoder that has found it.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is for.
    pub kind: Kind,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Why bytes are no frame. The connection that they came by is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// They do not begin as a frame does.
    NoFrame,
    /// A frame of a version that this node does not know.
    Version(u8),
    /// Its header is damaged.
    Header,
    /// Its payload is damaged.
    Payload,
    /// A kind that this node does not know.
    Kind(u8),
    /// Its payload is longer than the longest one that this node takes.
    TooLong {
        /// Bytes of the payload.
        length: usize,
        /// The most bytes.
        longest: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::NoFrame => write!(f, "it does not send frames of a cluster's node"),
            FrameError::Version(theirs) => {
                write!(f, "it sends frames of version {theirs}; this node knows version {VERSION}")
            }
            FrameError::Header => write!(f, "the header of a frame is damaged"),
            FrameError::Payload => write!(f, "the payload of a frame is damaged"),
            FrameError::Kind(number) => write!(f, "it sends a frame of the unknown kind {number}"),
            FrameError::TooLong { length, longest } => {
                write!(f, "it sends a frame of {length} bytes; this node takes {longest} at most")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// Appends a frame to a buffer, as to a `Vec<u8>` or a `VecDeque<u8>`.
///
/// # Panics
/// If the payload has 4 GiB or more; callers know the longest frame of their peer, which is far shorter.
pub fn append(buffer: &mut impl for<'b> Extend<&'b u8>, kind: Kind, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a frame is shorter than 4 GiB");
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = VERSION;
    header[5] = kind.number();
    header[8..12].copy_from_slice(&length.to_le_bytes());
    let checksum = header_checksum(&header);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    header[16..24].copy_from_slice(&xxh3_64(payload).to_le_bytes());
    buffer.extend(&header);
    buffer.extend(payload);
}

fn header_checksum(header: &[u8; HEADER]) -> u32 {
    xxh3_64(&header[..12]) as u32
}

/// Finds the frames in a stream of bytes, however the stream is cut into reads.
///
/// The buffer is the only memory: it grows to the longest frame that came, and never past the longest one that is
/// taken and one read.
pub struct Decoder {
    buffer: Vec<u8>,
    /// What is not a frame's yet: the bytes from `begin` to `end`.
    begin: usize,
    end: usize,
    longest: usize,
    /// The error after which no frame is found any more.
    failed: Option<FrameError>,
}

impl Decoder {
    /// A decoder that takes payloads of so many bytes.
    pub fn new(longest: usize) -> Decoder {
        Decoder { buffer: vec![0; READ_MIN], begin: 0, end: 0, longest, failed: None }
    }

    /// Where the next bytes of the stream are read to; never empty. [`Decoder::filled`] says how many there are.
    pub fn room(&mut self) -> &mut [u8] {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
        let lacking = self.lacking().unwrap_or(1).max(1);
        if self.buffer.len() - self.end < lacking {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            let needed = self.end + lacking;
            if self.buffer.len() < needed {
                self.buffer.resize(needed.max(READ_MIN), 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were read into [`Decoder::room`].
    ///
    /// # Panics
    /// If there was not so much room.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.end, "more bytes than there was room for");
        self.end += bytes;
    }

    /// The next frame; `None` if more bytes have to come first.
    ///
    /// # Errors
    /// If the bytes are no frame. Every later call gives the same error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let header = match self.header() {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.fail(error)),
        };
        let (begin, end) = (self.begin + HEADER, self.begin + HEADER + header.length);
        if self.end < end {
            return Ok(None);
        }
        if xxh3_64(&self.buffer[begin..end]) != header.checksum
            && !rialto::fault_injection::is_on("frame-unchecked")
        {
            return Err(self.fail(FrameError::Payload));
        }
        self.begin = end;
        Ok(Some(Frame { kind: header.kind, payload: &self.buffer[begin..end] }))
    }

    /// Whether bytes are left that are no whole frame.
    pub fn is_inside_a_frame(&self) -> bool {
        self.begin < self.end
    }

    fn fail(&mut self, error: FrameError) -> FrameError {
        self.failed = Some(error);
        error
    }

    /// Bytes that the next frame lacks, as far as they are known.
    fn lacking(&self) -> Option<usize> {
        let total = match self.header() {
            Ok(Some(header)) => HEADER + header.length,
            Ok(None) => HEADER,
            Err(_) => return None,
        };
        Some(total.saturating_sub(self.end - self.begin))
    }

    /// The next frame's header, once it is whole. What is wrong in its first bytes is found as soon as they are there.
    fn header(&self) -> Result<Option<Header>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let bytes = &self.buffer[self.begin..self.end];
        let magic = bytes.len().min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(FrameError::NoFrame);
        }
        match bytes.get(4) {
            Some(&version) if version != VERSION => return Err(FrameError::Version(version)),
            _ => {}
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("inside the header"));
        if word(12) != header_checksum(header) {
            return Err(FrameError::Header);
        }
        let kind = Kind::of(header[5]).ok_or(FrameError::Kind(header[5]))?;
        let length = word(8) as usize;
        if length > self.longest {
            return Err(FrameError::TooLong { length, longest: self.longest });
        }
        Ok(Some(Header { kind, length, checksum: u64::from(word(16)) | u64::from(word(20)) << 32 }))
    }
}

struct Header {
    kind: Kind,
    length: usize,
    checksum: u64,
}
