//! Nodes under construction, in private memory.

use super::key::{HEAD_BYTES, KeyBuf, be_word, tail_word, tail_words};
use super::node::{Control, LONG, LatchedNode};
use super::rows::RowAt;

/// A node under construction, in private memory: splits, merges, compactions and bulk loads build one and publish it.
pub(super) struct NodeImage<const W: usize> {
    control: Control<W>,
    /// The removal Lsn.
    pub(super) removal: u64,
    body: [u64; W],
}

impl<const W: usize> NodeImage<W> {
    /// An empty node of keys that begin with `prefix`.
    pub(super) fn new(level: u8, guarded: bool, removal: u64, prefix: &[u8]) -> NodeImage<W> {
        let control = Control::new(level, guarded, prefix.len());
        let mut image = NodeImage { control, removal, body: [0; W] };
        for (word, chunk) in prefix.chunks(8).enumerate() {
            image.body[control.heap() + word] = be_word(chunk);
        }
        image
    }

    /// The control word and the body of the node that this image becomes.
    pub(super) fn parts(&self) -> (Control<W>, &[u64; W]) {
        (self.control, &self.body)
    }

    pub(super) fn control(&self) -> Control<W> {
        self.control
    }

    /// Appends an entry whose key, behind the prefix, is `suffix`. False: it does not fit.
    #[must_use]
    pub(super) fn push(&mut self, suffix: &[u8], value: u64) -> bool {
        let words = tail_words(suffix.len());
        if 2 + words > self.control.room() {
            return false;
        }
        let mut tag = suffix.len() as u64;
        if words > 0 {
            let tail = self.control.heap() - words;
            for word in 0..words {
                self.body[tail + word] = tail_word(suffix, word);
            }
            tag = LONG | tail as u64;
        }
        self.append(be_word(suffix), value << 16 | tag, words);
        true
    }

    fn append(&mut self, head: u64, payload: u64, words: usize) {
        let at = 2 * self.control.count();
        self.body[at] = head;
        self.body[at + 1] = payload;
        self.control = self.control.plus(words);
    }

    /// The node is a leaf whose entries have rows.
    pub(super) fn has_rows(&mut self, has_rows: bool) {
        self.control = self.control.with_rows(has_rows);
    }

    /// Appends an entry with its row of a latched node.
    fn push_with_row(&mut self, suffix: &[u8], node: &LatchedNode<'_, W>, row: RowAt) -> bool {
        let room = row.kept_room();
        if 2 + tail_words(suffix.len()) + room > self.control.room() {
            return false;
        }
        self.control = self.control.with_words(room);
        let first = self.control.heap();
        for word in 0..row.bytes().div_ceil(8) {
            self.body[first + word] = node.body(row.first() + word);
        }
        self.push(suffix, RowAt::new(first, room, row.bytes(), row.marks).value())
    }

    /// Appends entries `range` of a latched node. False: they do not fit.
    #[must_use]
    pub(super) fn push_entries(&mut self, node: &LatchedNode<'_, W>, range: std::ops::Range<usize>) -> bool {
        let control = node.control();
        let (old, new) = (control.prefix_bytes(), self.control.prefix_bytes());
        let mut key = KeyBuf::new();
        node.read_prefix(control, &mut key);
        for at in range {
            if control.has_rows() {
                node.read_suffix(control, at, &mut key);
                if !self.push_with_row(&key.as_slice()[new..], node, node.row_at(at)) {
                    return false;
                }
                continue;
            }
            let tag = node.tag(at);
            if tag & LONG == 0 && new >= old && tag as usize >= new - old {
                if self.control.room() < 2 {
                    return false;
                }
                let cut = new - old;
                let head = if cut < HEAD_BYTES { node.head(at) << (8 * cut) } else { 0 };
                self.append(head, node.value(at) << 16 | (tag - cut as u64), 0);
                continue;
            }
            node.read_suffix(control, at, &mut key);
            // Entry 0 of an inner node has no key to keep.
            let suffix = key.as_slice().get(new..).unwrap_or(&[]);
            if !self.push(suffix, node.value(at)) {
                return false;
            }
        }
        true
    }
}
