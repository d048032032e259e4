//! Entries on their way into a bulk load: they are collected and sorted run by run, and the runs are merged.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use super::node::VALUE_BITS;

/// Key bytes that lie in the entry.
const HEAD_BYTES: usize = 8;

/// An entry that is to be. Sorting moves 24 bytes, and compares one number unless keys begin alike.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The key's first bytes, filled up with zeros, as a number in their order.
    head: u64,
    /// The value, and above it the key's length.
    value: u64,
    /// Where the key's other bytes lie in its run.
    rest: u64,
}

impl Entry {
    /// The value that the key leads to.
    pub fn value(self) -> u64 {
        self.value & ((1 << VALUE_BITS) - 1)
    }

    fn length(self) -> usize {
        (self.value >> VALUE_BITS) as usize
    }
}

/// Entries that were collected together.
#[derive(Debug, Default)]
pub struct SortRun {
    /// In the order of their keys, once they are sorted.
    pub entries: Vec<Entry>,
    rests: Vec<u8>,
}

impl SortRun {
    /// The most bytes that an entry takes whose key has this many bytes.
    pub fn bytes_of_entry(key_bytes: usize) -> usize {
        size_of::<Entry>() + key_bytes
    }

    /// The bytes that its entries take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.entries) + self.rests.len()
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If no index takes such a key or value.
    pub fn push(&mut self, key: &[u8], value: u64) {
        let (head, rest) = match key.split_first_chunk::<HEAD_BYTES>() {
            Some((head, rest)) => (u64::from_be_bytes(*head), rest),
            None => {
                let mut head = [0; HEAD_BYTES];
                head[..key.len()].copy_from_slice(key);
                (u64::from_be_bytes(head), &[][..])
            }
        };
        assert!(
            key.len() <= usize::from(u16::MAX) && value >> VALUE_BITS == 0,
            "no index takes a key of {} bytes, nor value {value:#x}",
            key.len()
        );
        let at = self.rests.len() as u64;
        self.rests.extend_from_slice(rest);
        self.entries.push(Entry { head, value: value | (key.len() as u64) << VALUE_BITS, rest: at });
    }

    fn rest(&self, entry: Entry) -> &[u8] {
        &self.rests[entry.rest as usize..][..entry.length().saturating_sub(HEAD_BYTES)]
    }

    /// Puts the key's bytes into the buffer.
    pub fn key<'b>(&self, entry: Entry, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.clear();
        buffer.extend_from_slice(&entry.head.to_be_bytes()[..entry.length().min(HEAD_BYTES)]);
        buffer.extend_from_slice(self.rest(entry));
        buffer
    }

    /// Puts the entries into the order of their keys.
    pub fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by_key(|entry| entry.head);
        for alike in entries.chunk_by_mut(|a, b| a.head == b.head) {
            if alike.len() > 1 {
                alike.sort_unstable_by(|&a, &b| order((self, a), (self, b)));
            }
        }
        self.entries = entries;
    }

    /// Gives back the memory that was reserved for more entries.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.rests.shrink_to_fit();
    }
}

/// The order of two entries' keys, each with its run.
pub fn order((run, entry): (&SortRun, Entry), (other_run, other): (&SortRun, Entry)) -> Ordering {
    entry.head.cmp(&other.head).then_with(|| match entry.length().min(other.length()) {
        // The heads are equal although one of them is padded: the shorter key is a prefix of the other.
        0..=HEAD_BYTES => entry.length().cmp(&other.length()),
        _ => run.rest(entry).cmp(other_run.rest(other)),
    })
}

/// Parts of sorted runs as one sequence, in the order of their keys; equal keys come in any order.
pub struct Merge<'a> {
    heads: BinaryHeap<RunHead<'a>>,
}

/// The rest of one part.
struct RunHead<'a> {
    run: &'a SortRun,
    next: Entry,
    /// The entries behind `next`.
    others: Range<usize>,
}

impl<'a> RunHead<'a> {
    fn of((run, mut stretch): (&'a SortRun, Range<usize>)) -> Option<RunHead<'a>> {
        let next = run.entries[stretch.next()?];
        Some(RunHead { run, next, others: stretch })
    }
}

/// The greatest is the one with the least key, for the heap.
impl Ord for RunHead<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        order((other.run, other.next), (self.run, self.next))
    }
}

impl PartialOrd for RunHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RunHead<'_> {}

impl<'a> Merge<'a> {
    /// A merge of these parts.
    pub fn of(stretches: impl IntoIterator<Item = (&'a SortRun, Range<usize>)>) -> Merge<'a> {
        Merge { heads: stretches.into_iter().filter_map(RunHead::of).collect() }
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = (&'a SortRun, Entry);

    fn next(&mut self) -> Option<Self::Item> {
        let mut head = self.heads.peek_mut()?;
        let least = (head.run, head.next);
        match head.others.next() {
            Some(at) => head.next = head.run.entries[at],
            None => drop(PeekMut::pop(head)),
        }
        Some(least)
    }
}
