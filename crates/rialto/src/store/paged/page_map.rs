//! [`PageMap`]: where each page is, in a frame or in the page file.
//!
//! A page has a number for as long as it is part of a tree; its parent and the page map know it by that. The map has a
//! word for each number:
//!
//! ```text
//! free      0
//! resident  1 << 62 | frame
//! on disk   1 << 63 | stamp << 31 | address
//! ```
//!
//! A page has the newest of its images at the address of its frame's `saved` while it is resident. Only the thread that
//! has latched a page's frame, or that loads the page, changes its word. Readers load words without a latch.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bits::Bits;
use super::file_space::{ADDRESSES_MAX, FileAddress};
use super::image::{STAMP_BITS, Stamp};
use crate::store::region::Region;

/// A page's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(pub u32);

/// An image in the page file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saved {
    pub address: FileAddress,
    pub stamp: Stamp,
}

const ON_DISK: u64 = 1 << 63;
const RESIDENT: u64 = 1 << 62;
const ADDRESS_BITS: u32 = 31;
const _: () = assert!(ADDRESSES_MAX == 1 << ADDRESS_BITS && ADDRESS_BITS + STAMP_BITS == 62);

impl Saved {
    /// As a number that is not 0.
    pub fn word(self) -> u64 {
        ON_DISK | u64::from(self.stamp.0) << ADDRESS_BITS | u64::from(self.address.0)
    }

    /// `None` for 0, or for another number that no image has.
    pub fn of_word(word: u64) -> Option<Saved> {
        (word & (ON_DISK | RESIDENT) == ON_DISK).then_some(Saved {
            address: FileAddress((word & ((1 << ADDRESS_BITS) - 1)) as u32),
            stamp: Stamp((word >> ADDRESS_BITS & ((1 << STAMP_BITS) - 1)) as u32),
        })
    }
}

/// What the map says of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// No page has the number.
    Free,
    /// In this frame.
    Resident(u32),
    OnDisk(Saved),
}

impl Whereabouts {
    #[inline(always)]
    fn of_word(word: u64) -> Whereabouts {
        if word & RESIDENT != 0 {
            return Whereabouts::Resident(word as u32);
        }
        Saved::of_word(word).map_or(Whereabouts::Free, Whereabouts::OnDisk)
    }

    fn word(self) -> u64 {
        match self {
            Whereabouts::Free => 0,
            Whereabouts::Resident(frame) => RESIDENT | u64::from(frame),
            Whereabouts::OnDisk(saved) => saved.word(),
        }
    }
}

/// The words of all pages.
pub(super) struct PageMap {
    /// Reserved address space; a page's word takes memory from the first use of its neighbourhood on.
    words: Region,
}

impl PageMap {
    /// A map for up to `pages` pages, all of them free.
    pub fn reserve(pages: u32) -> std::io::Result<PageMap> {
        Ok(PageMap { words: Region::reserve(pages as usize * 8)? })
    }

    /// How many pages there can be.
    pub fn capacity(&self) -> u32 {
        self.words.words().len() as u32
    }

    /// Where a page is. A number that is torn, or too large, is no page's.
    #[inline(always)]
    pub fn find(&self, page: PageId) -> Whereabouts {
        let word = self.words.words().get(page.0 as usize);
        // Acquire: a thread that finds a page in a frame sees what was loaded into the frame.
        word.map_or(Whereabouts::Free, |word| Whereabouts::of_word(word.load(Ordering::Acquire)))
    }

    /// Says where a page is from now on.
    pub fn set(&self, page: PageId, now: Whereabouts) {
        self.word(page).store(now.word(), Ordering::Release);
    }

    fn word(&self, page: PageId) -> &AtomicU64 {
        &self.words.words()[page.0 as usize]
    }
}

/// The numbers that pages have, and those that are free.
#[derive(Debug, Default)]
pub(super) struct PageNumbers {
    used: Bits,
    first_free_word: usize,
}

impl PageNumbers {
    /// These numbers are used.
    pub fn of_used(used: Bits) -> PageNumbers {
        PageNumbers { used, first_free_word: 0 }
    }

    /// The lowest free number, if it is below `limit`.
    pub fn take(&mut self, limit: u32) -> Option<PageId> {
        while self.used.word(self.first_free_word) == u64::MAX {
            self.first_free_word += 1;
        }
        let word = self.first_free_word;
        let number = word as u32 * 64 + self.used.word(word).trailing_ones();
        if number >= limit {
            return None;
        }
        self.used.insert(number);
        Some(PageId(number))
    }

    pub fn give_back(&mut self, page: PageId) {
        let was_used = self.used.remove(page.0);
        debug_assert!(was_used, "page {} is freed twice", page.0);
        self.first_free_word = self.first_free_word.min(page.0 as usize / 64);
    }

    /// How many are used.
    pub fn used(&self) -> usize {
        self.used.len()
    }

    /// All used ones are below this one.
    pub fn end(&self) -> u32 {
        self.used.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_where_a_page_is() {
        let saved = Saved { address: FileAddress(ADDRESSES_MAX - 1), stamp: Stamp((1 << STAMP_BITS) - 1) };
        let all = [
            Whereabouts::Free,
            Whereabouts::Resident(0),
            Whereabouts::Resident(u32::MAX),
            Whereabouts::OnDisk(Saved { address: FileAddress(0), stamp: Stamp(0) }),
            Whereabouts::OnDisk(saved),
        ];
        let map = PageMap::reserve(100).unwrap();
        for (page, whereabouts) in (0..).map(PageId).zip(all) {
            assert_eq!(map.find(page), Whereabouts::Free);
            map.set(page, whereabouts);
            assert_eq!(map.find(page), whereabouts);
        }
        assert_eq!(map.find(PageId(u32::MAX)), Whereabouts::Free);
        assert_eq!(Saved::of_word(0), None);
    }

    #[test]
    fn numbers_are_taken_from_the_lowest_free_one() {
        let mut numbers = PageNumbers::default();
        let taken: Vec<_> = std::iter::from_fn(|| numbers.take(200)).collect();
        assert_eq!(taken, (0..200).map(PageId).collect::<Vec<_>>());
        for page in [150, 3, 70] {
            numbers.give_back(PageId(page));
        }
        assert_eq!((numbers.used(), numbers.end()), (197, 200));
        assert_eq!(
            [0; 4].map(|_| numbers.take(200)),
            [Some(PageId(3)), Some(PageId(70)), Some(PageId(150)), None]
        );
    }
}
