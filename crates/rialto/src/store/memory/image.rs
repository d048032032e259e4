//! A segment's image: its form in a backup copy and in a load file.
//!
//! ```text
//!  0  magic      8     "RIALTOSG"
//!  8  heap       u32   0: the segment is free
//! 12  segment    u32
//! 16  used       u32   bytes of the image, this header included
//! 20  zero       u32
//! 24  sequence   u64   of the checkpoint that wrote it (of a load file: the image's position in it)
//! 32  checksum   u64   xxh3 of the image with zeros here, seeded with the database's identity
//! 40  zeros      24
//! 64  the segment's bytes from 64 to `used`
//! ```
//!
//! In a backup copy the image of segment n lies at n times 64 KiB; up to the next page it is followed by zeros.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::fault_injection;
use crate::ids::HeapId;
use crate::io::BUFFER_ALIGNMENT;
use crate::store::memory::segments::{Copy, IMAGE_HEADER_BYTES, SEGMENT_BYTES, UNIT_BYTES};

const MAGIC: &[u8; 8] = b"RIALTOSG";
const CHECKSUM: std::ops::Range<usize> = 32..40;

/// The header of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageHeader {
    /// The heap that the segment belonged to, none if it was free.
    pub heap: Option<HeapId>,
    /// The segment's number.
    pub segment: u32,
    /// Bytes of the image, header included.
    pub used: usize,
    /// The checkpoint that wrote it.
    pub sequence: u64,
}

/// The name of a backup copy's file.
pub(crate) fn backup_name(copy: Copy) -> String {
    format!("backup-{}", copy.number())
}

/// The seed of the checksums in a database's files; the files of another database fail them.
pub(crate) fn seed_of(database_id: u128) -> u64 {
    database_id as u64 ^ (database_id >> 64) as u64
}

/// A finished image.
pub(crate) struct Sealed<'b> {
    /// The bytes to write.
    pub bytes: &'b [u8],
    /// See [`ImageSums`](crate::checkpoint::image_sums::ImageSums).
    pub checksum: u64,
}

/// A checked image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    pub header: ImageHeader,
    /// As in [`Sealed`].
    pub checksum: u64,
}

/// Makes an image of a segment's bytes, which lie in `buffer` behind the room for the header.
pub(crate) fn seal<'b>(buffer: &'b mut [u8], header: &ImageHeader, seed: u64) -> Sealed<'b> {
    let used = header.used.max(IMAGE_HEADER_BYTES);
    let padded = used.next_multiple_of(BUFFER_ALIGNMENT);
    buffer[used..padded].fill(0);
    buffer[..IMAGE_HEADER_BYTES].fill(0);
    buffer[..8].copy_from_slice(MAGIC);
    buffer[8..12].copy_from_slice(&header.heap.map_or(0, |heap| heap.0).to_le_bytes());
    buffer[12..16].copy_from_slice(&header.segment.to_le_bytes());
    buffer[16..20].copy_from_slice(&(used as u32).to_le_bytes());
    buffer[24..32].copy_from_slice(&header.sequence.to_le_bytes());
    let checksum = xxh3_64_with_seed(&buffer[..used], seed);
    buffer[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    Sealed { bytes: &buffer[..padded], checksum }
}

/// Checks an image that begins at the start of `bytes`; the error says what is wrong. The checksum's bytes are zeros
/// afterwards.
pub(crate) fn check(bytes: &mut [u8], seed: u64) -> Result<Checked, String> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if bytes.len() < IMAGE_HEADER_BYTES {
        return Err(format!("expected a segment's image, but the file ends {} bytes behind", bytes.len()));
    }
    if &bytes[..8] != MAGIC {
        return Err("expected a segment's image, found other bytes".to_owned());
    }
    let used = u32_at(16) as usize;
    if !(IMAGE_HEADER_BYTES..=SEGMENT_BYTES).contains(&used) || !used.is_multiple_of(UNIT_BYTES) {
        return Err(format!("a segment's image of {used} bytes makes no sense"));
    }
    if used > bytes.len() {
        return Err(format!(
            "expected a segment's image of {used} bytes, the file ends after {}",
            bytes.len()
        ));
    }
    let (segment, sequence, heap, expected) = (u32_at(12), u64_at(24), u32_at(8), u64_at(32));
    bytes[CHECKSUM].fill(0);
    let is_unread = fault_injection::is_on("image-checksum-unread");
    let found = if is_unread { expected } else { xxh3_64_with_seed(&bytes[..used], seed) };
    if found != expected {
        return Err(format!(
            "the checksum of segment {segment}'s image is {expected:016x}, its bytes have {found:016x}: they are damaged, \
             or another database's"
        ));
    }
    let header = ImageHeader { heap: (heap != 0).then_some(HeapId(heap)), segment, used, sequence };
    Ok(Checked { header, checksum: found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_as_it_was_written() {
        let mut buffer = vec![7; SEGMENT_BYTES];
        let header = ImageHeader { heap: Some(HeapId(9)), segment: 3, used: 5008, sequence: 12 };
        let sealed = seal(&mut buffer, &header, 5);
        let (written, checksum) = (sealed.bytes.to_vec(), sealed.checksum);
        assert_eq!(written.len(), 8192);
        assert_eq!(check(&mut written.clone(), 5), Ok(Checked { header, checksum }));
        assert!(
            written[64..5008].iter().all(|&byte| byte == 7) && written[5008..].iter().all(|&byte| byte == 0)
        );
        assert!(check(&mut written.clone(), 6).unwrap_err().contains("another database"));
        for cut in [0, 63, 64, 5007] {
            assert!(check(&mut written[..cut].to_vec(), 5).is_err());
        }
    }

    #[test]
    fn a_free_segment_takes_one_page() {
        let mut buffer = vec![7; SEGMENT_BYTES];
        let header = ImageHeader { heap: None, segment: 3, used: 64, sequence: 12 };
        let mut written = seal(&mut buffer, &ImageHeader { used: 0, ..header }, 5).bytes.to_vec();
        assert_eq!(written.len(), 4096);
        assert_eq!(check(&mut written, 5).map(|checked| checked.header), Ok(header));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut buffer = vec![7; SEGMENT_BYTES];
        let header = ImageHeader { heap: Some(HeapId(9)), segment: 3, used: 512, sequence: 12 };
        let written = seal(&mut buffer, &header, 5).bytes.to_vec();
        for at in 0..512 {
            for bit in 0..8 {
                let mut bad = written.clone();
                bad[at] ^= 1 << bit;
                assert!(check(&mut bad, 5).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}
