//! A page's image: its form in the page file.
//!
//! ```text
//!  0  checksum  u64   xxh3 of all bytes behind, seeded with the database's identity; in memory: the latch
//!  8  control   u64   what the node is (`tree/node.rs`)
//! 16  removal   u64   Lsn of the last removal
//! 24  page      u32   the page's number
//! 28  index     u32   the index that it belongs to
//! 32  lsn       u64   the highest place of a writer
//! 40  zeros     24
//! 64  the node's body
//! ```
//!
//! Numbers are in the machine's byte order, as in memory.
//!
//! The page map has a *stamp* of each image beside its address: some bits of the checksum. An undamaged image of another
//! page, of the same page at another time, or of another database has another stamp. So a write that was lost, or that
//! went elsewhere, is noticed when the page is read (I9).

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::page_map::PageId;

/// The bytes before the node's body.
pub(super) const HEADER_BYTES: usize = 64;
const CHECKSUM: std::ops::Range<usize> = 0..8;
const PAGE: std::ops::Range<usize> = 24..28;

/// The bits of a stamp.
pub(super) const STAMP_BITS: u32 = 31;

/// Tells an image from all others that have been at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(pub u32);

impl Stamp {
    fn of(checksum: u64) -> Stamp {
        Stamp((checksum >> (64 - STAMP_BITS)) as u32)
    }
}

/// Makes an image of a page's bytes.
pub(super) fn seal(bytes: &mut [u8], seed: u64) -> Stamp {
    let checksum = xxh3_64_with_seed(&bytes[CHECKSUM.end..], seed);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_ne_bytes());
    Stamp::of(checksum)
}

/// The page's number in an image.
pub(super) fn page_of(bytes: &[u8]) -> PageId {
    PageId(u32::from_ne_bytes(bytes[PAGE].try_into().expect("four bytes")))
}

/// Checks an image; the error says what is wrong.
pub(super) fn check(bytes: &[u8], page: PageId, stamp: Stamp, seed: u64) -> Result<(), String> {
    let expected = u64::from_ne_bytes(bytes[CHECKSUM].try_into().expect("eight bytes"));
    let found = xxh3_64_with_seed(&bytes[CHECKSUM.end..], seed);
    if found != expected {
        return Err(format!(
            "the checksum of page {} is {expected:016x}, its bytes have {found:016x}: they are damaged, or another \
             database's",
            page.0
        ));
    }
    let number = page_of(bytes);
    if number != page {
        return Err(format!(
            "expected page {}, found page {}: a write went to another offset",
            page.0, number.0
        ));
    }
    if Stamp::of(found) != stamp {
        return Err(format!(
            "page {} is another version than the one that was written last: a write was lost",
            page.0
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 5;

    fn image(page: u32, fill: u8) -> (Vec<u8>, Stamp) {
        let mut bytes = vec![fill; 4096];
        bytes[PAGE].copy_from_slice(&page.to_ne_bytes());
        let stamp = seal(&mut bytes, SEED);
        (bytes, stamp)
    }

    #[test]
    fn an_image_is_read_as_it_was_written() {
        let (bytes, stamp) = image(7, 1);
        assert_eq!(check(&bytes, PageId(7), stamp, SEED), Ok(()));
    }

    #[test]
    fn images_of_other_pages_times_and_databases_are_noticed() {
        let (bytes, stamp) = image(7, 1);
        let (older, _) = image(7, 2);
        let (other, other_stamp) = image(8, 1);
        let wrong = |bytes: &[u8], stamp, seed| check(bytes, PageId(7), stamp, seed).unwrap_err();
        assert!(wrong(&older, stamp, SEED).contains("a write was lost"));
        assert!(wrong(&other, other_stamp, SEED).contains("found page 8: a write went to another offset"));
        assert!(wrong(&bytes, stamp, 6).contains("another database's"));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (bytes, stamp) = image(7, 1);
        for at in (0..bytes.len()).step_by(7).chain(0..HEADER_BYTES) {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(check(&bad, PageId(7), stamp, SEED).is_err(), "byte {at}");
        }
    }
}
