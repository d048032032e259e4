//! Nodes under construction, in private memory.

use super::key::{HEAD_BYTES, KeyBuf, be_word, tail_word, tail_words};
use super::node::{BODY_WORDS, Control, LONG, LatchedNode};

/// A node under construction, in private memory: splits, merges, compactions and bulk loads build one and publish it.
pub(super) struct NodeImage {
    control: Control,
    /// The removal Lsn.
    pub(super) removal: u64,
    body: [u64; BODY_WORDS],
}

impl NodeImage {
    /// An empty node of keys that begin with `prefix`.
    pub(super) fn new(level: u8, guarded: bool, removal: u64, prefix: &[u8]) -> NodeImage {
        let control = Control::new(level, guarded, prefix.len());
        let mut image = NodeImage { control, removal, body: [0; BODY_WORDS] };
        for (word, chunk) in prefix.chunks(8).enumerate() {
            image.body[control.heap() + word] = be_word(chunk);
        }
        image
    }

    /// The control word and the body of the node that this image becomes.
    pub(super) fn parts(&self) -> (Control, &[u64; BODY_WORDS]) {
        (self.control, &self.body)
    }

    pub(super) fn control(&self) -> Control {
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

    /// Appends entries `range` of a latched node. False: they do not fit.
    #[must_use]
    pub(super) fn push_entries(&mut self, node: &LatchedNode<'_>, range: std::ops::Range<usize>) -> bool {
        let control = node.control();
        let (old, new) = (control.prefix_bytes(), self.control.prefix_bytes());
        let mut key = KeyBuf::new();
        node.read_prefix(control, &mut key);
        for at in range {
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
