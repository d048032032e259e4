//! [`Published`]: what a checkpoint says of the pages, and how it lies in the page file.
//!
//! It is a sequence of words, as many pages as it takes. Another, shorter sequence says where these pages are, and so on up
//! to a single page, the *root*. The home block names the root's image, and how many words there are; all levels follow from
//! that number.
//!
//! ```text
//! word 0    how many tables there are | 1: how many pages there have been at most
//! of each table: heap << 32 | secondary indexes, rows, last long body, root of the rows << 32 | of long bodies,
//!           then of each index: its identifier << 32 | its root
//! of each page: where its image is, or 0 if there is no such page
//! ```

use super::file_space::{FileAddress, Purpose};
use super::image::HEADER_BYTES;
use super::page_file::PageFile;
use super::page_map::{PageId, Saved};
use super::pool::PagePool;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId};
use crate::io::AlignedBuffer;

/// The number in the images of these pages, which no page of a tree has.
const NO_PAGE: PageId = PageId(u32::MAX);

/// The roots of a table's trees, and its counts, as of a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublishedTable {
    pub heap: HeapId,
    pub rows: u64,
    pub last_long: u64,
    pub primary: u32,
    pub long_bodies: u32,
    pub secondaries: Vec<(IndexId, u32)>,
}

/// A root that no tree has.
const NO_ROOT: u32 = u32::MAX;

impl PublishedTable {
    /// What is left of a table that is gone: pages that are to be freed, under these roots.
    pub fn of_rest(heap: HeapId, roots: &[u32]) -> PublishedTable {
        let root = |nth: usize| roots.get(nth).copied().unwrap_or(NO_ROOT);
        PublishedTable {
            heap,
            rows: 0,
            last_long: 0,
            primary: root(0),
            long_bodies: root(1),
            secondaries: roots.iter().skip(2).map(|&root| (IndexId(0), root)).collect(),
        }
    }

    /// Appends its words.
    pub(super) fn write_words(&self, words: &mut Vec<u64>) {
        words.extend([
            pair(self.heap.0, self.secondaries.len() as u32),
            self.rows,
            self.last_long,
            pair(self.primary, self.long_bodies),
        ]);
        words.extend(self.secondaries.iter().map(|&(index, root)| pair(index.0, root)));
    }

    /// The table that the next words describe. `None`: they are too few.
    pub(super) fn of_words(next: &mut impl FnMut() -> Option<u64>) -> Option<PublishedTable> {
        let (heap, secondaries) = halves(next()?);
        let (rows, last_long, (primary, long_bodies)) = (next()?, next()?, halves(next()?));
        let secondaries = (0..secondaries).map(|_| {
            let (index, root) = halves(next()?);
            Some((IndexId(index), root))
        });
        Some(PublishedTable {
            heap: HeapId(heap),
            rows,
            last_long,
            primary,
            long_bodies,
            secondaries: secondaries.collect::<Option<_>>()?,
        })
    }

    /// The roots of its trees.
    pub(super) fn roots(&self) -> impl Iterator<Item = u32> {
        let secondaries = self.secondaries.iter().map(|&(_, root)| root);
        [self.primary, self.long_bodies].into_iter().chain(secondaries).filter(|&root| root != NO_ROOT)
    }
}

/// The pages as of a cut: the tables, and where the image of each page is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Published {
    pub tables: Vec<PublishedTable>,
    pub images: Vec<Option<Saved>>,
}

/// Where a checkpoint's words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedAt {
    /// The root's image.
    root: Saved,
    /// How many words there are.
    words: u64,
}

impl PublishedAt {
    /// As numbers, for the home block: the root's image, and how many words there are.
    pub fn numbers(self) -> (u64, u64) {
        (self.root.word(), self.words)
    }

    /// `None`: the numbers name no image.
    pub fn of_numbers(root: u64, words: u64) -> Option<PublishedAt> {
        Saved::of_word(root).map(|root| PublishedAt { root, words })
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Published {
    fn words(&self) -> Vec<u64> {
        let mut words = vec![self.tables.len() as u64, self.images.len() as u64];
        self.tables.iter().for_each(|table| table.write_words(&mut words));
        words.extend(self.images.iter().map(|image| image.map_or(0, Saved::word)));
        words
    }

    /// Writes the words as pages of so many bytes; `write` seals and writes some, and gives where each is.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn write(
        &self,
        page_bytes: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<Vec<Saved>>,
    ) -> Result<PublishedAt> {
        let words = self.words();
        let count = words.len() as u64;
        let mut level = words;
        loop {
            let written = write_words(&level, page_bytes, &mut write)?;
            if let [root] = written[..] {
                return Ok(PublishedAt { root, words: count });
            }
            level = written.into_iter().map(Saved::word).collect();
        }
    }

    /// `None`: the words are of no checkpoint.
    fn of_words(words: &[u64]) -> Option<Published> {
        let mut words = words.iter().copied();
        let mut next = || words.next();
        let (tables, images) = (next()?, next()?);
        let mut published = Published::default();
        for _ in 0..tables {
            published.tables.push(PublishedTable::of_words(&mut next)?);
        }
        for _ in 0..images {
            published.images.push(match next()? {
                0 => None,
                word => Some(Saved::of_word(word)?),
            });
        }
        next().is_none().then_some(published)
    }
}

fn write_words(
    words: &[u64],
    page_bytes: usize,
    write: &mut impl FnMut(&mut [u8]) -> Result<Vec<Saved>>,
) -> Result<Vec<Saved>> {
    const TOGETHER: usize = 32;
    let per_page = (page_bytes - HEADER_BYTES) / 8;
    let mut buffer = AlignedBuffer::zeroed(TOGETHER * page_bytes);
    let mut written = Vec::new();
    for words in words.chunks(TOGETHER * per_page) {
        let pages = words.len().div_ceil(per_page);
        for (words, image) in words.chunks(per_page).zip(buffer.chunks_exact_mut(page_bytes)) {
            image.fill(0);
            image[24..28].copy_from_slice(&NO_PAGE.0.to_ne_bytes());
            for (word, bytes) in words.iter().zip(image[HEADER_BYTES..].chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        }
        written.extend(write(&mut buffer[..pages * page_bytes])?);
    }
    Ok(written)
}

/// How many words each level has, the longest first; the last one fits into a page.
fn levels(words: u64, per_page: u64) -> Vec<u64> {
    let mut levels = vec![words];
    while levels[levels.len() - 1] > per_page {
        levels.push(levels[levels.len() - 1].div_ceil(per_page));
    }
    levels
}

impl<const W: usize> PagePool<W> {
    /// Writes what a checkpoint says of the pages, after the pages themselves ([`PagePool::write_cut`]). All of it is
    /// durable after a [sync](PagePool::sync).
    ///
    /// # Errors
    /// Of a write. Then the checkpoint is to be given up.
    pub(super) fn write_published(&self, published: &Published) -> Result<PublishedAt> {
        published.write(HEADER_BYTES + 8 * W, |images| self.write_images(images, Purpose::Cut))
    }
}

/// Reads what a checkpoint has said of pages with bodies of `W` words, and gives the addresses at which it lies.
///
/// # Errors
/// The disk's; [`Error::Corrupt`] if it is damaged.
pub(super) fn read_published<const W: usize>(
    file: &PageFile,
    at: PublishedAt,
) -> Result<(Published, Vec<FileAddress>)> {
    let mut buffer = AlignedBuffer::zeroed(HEADER_BYTES + 8 * W);
    let (mut level, mut addresses) = (vec![at.root], Vec::new());
    for (depth, words) in levels(at.words, W as u64).into_iter().enumerate().rev() {
        let mut next = Vec::new();
        for page in &level {
            file.read(NO_PAGE, *page, &mut buffer, |_| None)?;
            addresses.push(page.address);
            let left = (words - next.len() as u64).min(W as u64) as usize;
            let bytes = buffer[HEADER_BYTES..].chunks_exact(8).take(left);
            next.extend(bytes.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))));
        }
        if depth == 0 {
            let published = Published::of_words(&next).ok_or_else(|| senseless(file, at))?;
            return Ok((published, addresses));
        }
        let places: Option<Vec<Saved>> = next.into_iter().map(Saved::of_word).collect();
        level = places.ok_or_else(|| senseless(file, at))?;
    }
    Err(senseless(file, at))
}

fn senseless(file: &PageFile, at: PublishedAt) -> Error {
    let what = "the checksum of a checkpoint's list of pages is right, but it makes no sense".to_owned();
    file.corrupt(at.root.address, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_in_one_page() {
        assert_eq!(levels(1, 504), [1]);
        assert_eq!(levels(504, 504), [504]);
        assert_eq!(levels(505, 504), [505, 2]);
        assert_eq!(levels(504 * 504 + 1, 504), [504 * 504 + 1, 505, 2]);
    }

    #[test]
    fn words_that_are_cut_off_or_too_many_are_refused() {
        let table = PublishedTable {
            heap: HeapId(7),
            rows: 5,
            last_long: 9,
            primary: 1,
            long_bodies: 2,
            secondaries: vec![(IndexId(8), 3), (IndexId(9), 4)],
        };
        let image = Saved::of_word(1 << 63 | 77);
        let published = Published { tables: vec![table.clone(), table], images: vec![None, image, image] };
        let words = published.words();
        assert_eq!(Published::of_words(&words).as_ref(), Some(&published));
        for length in 0..words.len() {
            assert_eq!(Published::of_words(&words[..length]), None, "{length}");
        }
        assert_eq!(Published::of_words(&[&words[..], &[0]].concat()), None);
    }
}
