//! [`PageList`]: what a backup says of the pages.
//!
//! ```text
//! word 0    the bytes of a page | 1: how many tables there are | 2: all pages have numbers below this one
//! of each table: as a checkpoint publishes it (`published.rs`)
//! of each 64 pages: which of them there are, a bit for each
//! ```

use super::bits::Bits;
use super::page_store::{PAGE_SIZES, PAGES_MAX};
use super::published::PublishedTable;

/// The most words, of 8 bytes each, in a list. As many tables as there are identifiers would need more; no database has them.
pub(crate) const LIST_WORDS_MAX: u64 = 1 << 28;

/// The tables, and which pages there are, as of a backup's cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageList {
    pub page_bytes: usize,
    pub tables: Vec<PublishedTable>,
    pub pages: Bits,
}

impl PageList {
    /// As words.
    pub fn words(&self) -> Vec<u64> {
        let end = self.pages.end();
        let mut words = vec![self.page_bytes as u64, self.tables.len() as u64, u64::from(end)];
        self.tables.iter().for_each(|table| table.write_words(&mut words));
        words.extend((0..end.div_ceil(64)).map(|at| self.pages.word(at as usize)));
        words
    }

    /// Decodes a list.
    ///
    /// # Errors
    /// What is wrong with the words.
    pub fn of_words(words: &[u64]) -> Result<PageList, &'static str> {
        const TOO_FEW: &str = "a list of pages of another length than it says";
        let mut words = words.iter().copied();
        let mut next = || words.next();
        let (Some(page_bytes), Some(tables), Some(end)) = (next(), next(), next()) else {
            return Err(TOO_FEW);
        };
        let page_bytes = usize::try_from(page_bytes).ok().filter(|bytes| PAGE_SIZES.contains(bytes));
        let page_bytes = page_bytes.ok_or("a size of pages that no database has")?;
        if end > u64::from(PAGES_MAX) {
            return Err("more pages than a database can have");
        }
        let mut list = PageList { page_bytes, tables: Vec::new(), pages: Bits::default() };
        for _ in 0..tables {
            list.tables.push(PublishedTable::of_words(&mut next).ok_or(TOO_FEW)?);
        }
        for at in 0..(end as u32).div_ceil(64) {
            let word = next().ok_or(TOO_FEW)?;
            (0..64).filter(|bit| word >> bit & 1 != 0).for_each(|bit| _ = list.pages.insert(64 * at + bit));
        }
        if next().is_some() || u64::from(list.pages.end()) != end {
            return Err(TOO_FEW);
        }
        if !list.tables.iter().flat_map(PublishedTable::roots).all(|root| list.pages.contains(root)) {
            return Err("a table whose root is no page");
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{HeapId, IndexId};

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let table = PublishedTable {
            heap: HeapId(7),
            rows: 5,
            last_long: 9,
            primary: 1,
            long_bodies: 2,
            secondaries: vec![(IndexId(8), 70)],
        };
        let mut pages = Bits::default();
        [1, 2, 70].into_iter().for_each(|page| _ = pages.insert(page));
        let list = PageList { page_bytes: 8_192, tables: vec![table], pages };
        let words = list.words();
        assert_eq!(PageList::of_words(&words), Ok(list.clone()));
        for length in 0..words.len() {
            assert!(PageList::of_words(&words[..length]).is_err(), "{length}");
        }
        assert!(PageList::of_words(&[&words[..], &[0]].concat()).is_err());
        for (at, word) in [(0, 5_000), (1, 2), (1, u64::MAX), (2, 64), (2, u64::MAX), (6, 3 << 32 | 2)] {
            let mut other = words.clone();
            other[at] = word;
            assert!(PageList::of_words(&other).is_err(), "word {at} is {word}");
        }
        let empty = PageList { tables: Vec::new(), pages: Bits::default(), ..list };
        assert_eq!(PageList::of_words(&empty.words()), Ok(empty));
    }
}
