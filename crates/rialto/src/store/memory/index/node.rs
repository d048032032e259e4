//! One node: 4096 bytes of atomic words.
//!
//! ```text
//! word 0     latch     version, free, latched
//! word 1     control   count, level, guarded, prefix length, where the heap begins, how much of it is live
//! word 2     removal   Lsn of the last removal (leaves)
//! word 3     link      next free node (free nodes, under the pool's mutex)
//! words 8..  body      entries, two words each, upward: head, value << 16 | tag
//!                      free
//!                      heap, downward: tails; at its very end the node's prefix
//! ```
//!
//! An entry's tag is the length of its suffix, 0 to 8, or [`LONG`] and the offset of its tail in the body. In an inner
//! node the value is the child's id and the key the lowest that the child can hold; entry 0 stands for "everything
//! below entry 1" and its key is empty.
//!
//! All keys that a node can ever hold lie between two fences, which only the parents know; the prefix is common to both
//! fences. So a reader that came here by a validated descent skips the prefix without comparing it.
//!
//! Access rules: any thread may load any word at any time, relaxed; a store needs the latch ([`LatchedNode`]). A value
//! loaded without the latch may be torn, of another time, or of another node, until the latch validates it. Every
//! control word that was ever stored describes a layout inside the body (`count <= 252`), and every offset that comes
//! from an entry is bounds-checked.

#![allow(unsafe_code)]

use super::image::NodeImage;
use super::key::{FIRST_TAIL_BYTES, HEAD_BYTES, KeyBuf, MAX_KEY_BYTES, tail_word, tail_words};
use super::latch::Latch;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a node behind its header.
pub(super) const BODY_WORDS: usize = 504;
/// The most entries of a node.
pub(super) const MAX_ENTRIES: usize = BODY_WORDS / 2;
/// In a tag: the suffix has a tail, and the other bits are its offset.
pub(super) const LONG: u64 = 0x8000;
const TAG: u64 = 0xffff;
/// The bits of a value.
pub const VALUE_BITS: u32 = 48;

const _: () = assert!(size_of::<Node>() == 4096);
// A node whose entries are two of the longest keys has room for a third, so a node that must split has three entries.
const _: () = assert!(3 * (2 + tail_words(MAX_KEY_BYTES)) <= BODY_WORDS);

/// A node's control word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Control(u64);

impl Control {
    pub(super) const fn new(level: u8, guarded: bool, prefix_bytes: usize) -> Control {
        let heap = BODY_WORDS - prefix_bytes.div_ceil(8);
        Control(
            (level as u64) << 8 | (guarded as u64) << 16 | (prefix_bytes as u64) << 24 | (heap as u64) << 36,
        )
    }

    /// How many entries; never more than a body holds.
    #[inline(always)]
    pub(super) const fn count(self) -> usize {
        let count = (self.0 & 0xff) as usize;
        if count > MAX_ENTRIES { MAX_ENTRIES } else { count }
    }

    /// 0 for a leaf.
    #[inline(always)]
    pub(super) const fn level(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline(always)]
    pub(super) const fn guarded(self) -> bool {
        self.0 >> 16 & 1 != 0
    }

    #[inline(always)]
    pub(super) const fn prefix_bytes(self) -> usize {
        (self.0 >> 24 & 0xfff) as usize
    }

    /// The first word of the heap.
    pub(super) const fn heap(self) -> usize {
        (self.0 >> 36 & 0x3ff) as usize
    }

    /// The words of tails that entries point to.
    pub(super) const fn live(self) -> usize {
        (self.0 >> 48 & 0x3ff) as usize
    }

    pub(super) const fn prefix_words(self) -> usize {
        self.prefix_bytes().div_ceil(8)
    }

    /// The words between entries and heap.
    pub(super) const fn room(self) -> usize {
        self.heap() - 2 * self.count()
    }

    /// The words of dead tails.
    pub(super) const fn garbage(self) -> usize {
        BODY_WORDS - self.prefix_words() - self.heap() - self.live()
    }

    /// The words that entries, live tails and prefix take.
    pub(super) const fn used(self) -> usize {
        2 * self.count() + self.live() + self.prefix_words()
    }

    #[must_use]
    pub(super) const fn with_guard(self, guarded: bool) -> Control {
        Control(self.0 & !(1 << 16) | (guarded as u64) << 16)
    }

    /// One entry more, its tail of `words` words put on top of the heap.
    #[must_use]
    pub(super) const fn plus(self, words: usize) -> Control {
        Control(self.0 + 1 - ((words as u64) << 36) + ((words as u64) << 48))
    }

    /// One entry less; its tail of `words` words becomes garbage.
    #[must_use]
    pub(super) const fn minus(self, words: usize) -> Control {
        Control(self.0 - 1 - ((words as u64) << 48))
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }
}

/// A node. All zeroes is an open, empty leaf of version 0.
#[repr(C, align(64))]
pub(super) struct Node {
    pub(super) latch: Latch,
    control: AtomicU64,
    pub(super) removal: AtomicU64,
    pub(super) link: AtomicU64,
    spare: [AtomicU64; 4],
    pub(super) body: [AtomicU64; BODY_WORDS],
}

impl Node {
    #[inline(always)]
    pub(super) fn control(&self) -> Control {
        Control(self.control.load(Ordering::Relaxed))
    }

    /// Word `at` of the body; 0 outside it, which only a torn offset can name.
    #[inline(always)]
    pub(super) fn body(&self, at: usize) -> u64 {
        self.body.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The head of entry `at`, which is below [`MAX_ENTRIES`].
    #[inline(always)]
    pub(super) fn head(&self, at: usize) -> u64 {
        debug_assert!(at < MAX_ENTRIES);
        // SAFETY: callers index below a Control::count(), which is at most MAX_ENTRIES, whatever the memory holds.
        unsafe { self.body.get_unchecked(2 * at) }.load(Ordering::Relaxed)
    }

    /// Value and tag of entry `at`, which is below [`MAX_ENTRIES`].
    #[inline(always)]
    fn payload(&self, at: usize) -> u64 {
        debug_assert!(at < MAX_ENTRIES);
        // SAFETY: as in head().
        unsafe { self.body.get_unchecked(2 * at + 1) }.load(Ordering::Relaxed)
    }

    /// The value of entry `at`, which is below [`MAX_ENTRIES`].
    #[inline(always)]
    pub(super) fn value(&self, at: usize) -> u64 {
        self.payload(at) >> 16
    }

    /// The tag of entry `at`.
    #[inline(always)]
    pub(super) fn tag(&self, at: usize) -> u64 {
        self.payload(at) & TAG
    }

    /// The child of entry `at`.
    #[inline(always)]
    pub(super) fn child(&self, at: usize) -> u32 {
        (self.payload(at) >> 16) as u32
    }

    /// The length of the suffix of entry `at`.
    #[inline]
    pub(super) fn suffix_len(&self, at: usize) -> usize {
        let tag = self.tag(at);
        if tag & LONG == 0 {
            (tag as usize).min(HEAD_BYTES)
        } else {
            (self.body((tag & !LONG) as usize) & 0xffff) as usize
        }
    }

    /// Where the tail of entry `at` lies, and its words, if it has one.
    pub(super) fn tail_at(&self, at: usize) -> Option<(usize, usize)> {
        let tag = self.tag(at);
        (tag & LONG != 0).then(|| ((tag & !LONG) as usize, tail_words(self.suffix_len(at))))
    }

    /// Writes the node's prefix to `key`.
    pub(super) fn read_prefix(&self, control: Control, key: &mut KeyBuf) {
        let from = BODY_WORDS.saturating_sub(control.prefix_words());
        for word in 0..control.prefix_words() {
            key.put_word(8 * word, self.body(from + word));
        }
        key.set_len(control.prefix_bytes());
    }

    /// Writes the suffix of entry `at` to `key`, which begins with the node's prefix already.
    #[inline]
    pub(super) fn read_suffix(&self, control: Control, at: usize, key: &mut KeyBuf) {
        let prefix = control.prefix_bytes();
        let tag = self.tag(at);
        key.put_word(prefix, self.head(at));
        if tag & LONG == 0 {
            key.set_len(prefix + (tag as usize).min(HEAD_BYTES));
            return;
        }
        let tail = (tag & !LONG) as usize;
        let first = self.body(tail);
        let len = (first & 0xffff) as usize;
        key.put_word(prefix + HEAD_BYTES, first);
        for word in 1..tail_words(len.min(MAX_KEY_BYTES)) {
            key.put_word(prefix + HEAD_BYTES + FIRST_TAIL_BYTES + 8 * (word - 1), self.body(tail + word));
        }
        key.set_len(prefix + len);
    }

    /// Writes the key of entry `at` to `key`.
    pub(super) fn read_key(&self, control: Control, at: usize, key: &mut KeyBuf) {
        self.read_prefix(control, key);
        self.read_suffix(control, at, key);
    }

    /// Latches, if nothing changed since `version`.
    #[inline]
    pub(super) fn upgrade(&self, version: u64) -> Option<LatchedNode<'_>> {
        self.latch.upgrade(version).then(|| LatchedNode { node: self, changed: false })
    }

    /// Latches, waiting for it. None: the node is free.
    pub(super) fn lock(&self) -> Option<LatchedNode<'_>> {
        self.latch.lock().then(|| LatchedNode { node: self, changed: false })
    }
}

/// A latched node, with the operations that change it. Dropping it unlatches it, with a new version if something
/// changed.
pub(super) struct LatchedNode<'n> {
    node: &'n Node,
    changed: bool,
}

impl Deref for LatchedNode<'_> {
    type Target = Node;

    #[inline(always)]
    fn deref(&self) -> &Node {
        self.node
    }
}

impl Drop for LatchedNode<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.node.latch.unlock_changed();
        } else {
            self.node.latch.unlock_unchanged();
        }
    }
}

impl<'n> LatchedNode<'n> {
    /// A node that the pool has latched for its new owner.
    pub(super) fn of_latched(node: &'n Node) -> LatchedNode<'n> {
        LatchedNode { node, changed: true }
    }

    /// Ends the node: it belongs to the pool again.
    pub(super) fn retire(self) {
        self.node.latch.retire();
        std::mem::forget(self);
    }

    fn put(&self, at: usize, word: u64) {
        self.node.body[at].store(word, Ordering::Relaxed);
    }

    fn set_control(&mut self, control: Control) {
        self.changed = true;
        self.node.control.store(control.word(), Ordering::Relaxed);
    }

    /// Sets the guard. What optimistic readers have read stays valid, so the version stays.
    pub(super) fn guard(&mut self) {
        let control = self.control().with_guard(true);
        self.node.control.store(control.word(), Ordering::Relaxed);
    }

    /// Clears the guard, together with the insert that follows.
    pub(super) fn unguard(&mut self) {
        self.set_control(self.control().with_guard(false));
    }

    /// Raises the removal Lsn.
    pub(super) fn raise_removal(&mut self, lsn: u64) {
        if self.removal.load(Ordering::Relaxed) < lsn {
            self.changed = true;
            self.node.removal.store(lsn, Ordering::Relaxed);
        }
    }

    /// Puts an entry at `at`. There is room for it.
    pub(super) fn insert(&mut self, at: usize, head: u64, suffix: &[u8], value: u64) {
        let control = self.control();
        let words = tail_words(suffix.len());
        debug_assert!(2 + words <= control.room() && value >> VALUE_BITS == 0);
        self.changed = true;
        let mut tag = suffix.len() as u64;
        if words > 0 {
            let tail = control.heap() - words;
            for word in 0..words {
                self.put(tail + word, tail_word(suffix, word));
            }
            tag = LONG | tail as u64;
        }
        self.shift(2 * at, 2 * control.count(), 2 * at + 2);
        self.put(2 * at, head);
        self.put(2 * at + 1, value << 16 | tag);
        self.set_control(control.plus(words));
    }

    /// Gives entry `at` another value.
    pub(super) fn set_value(&mut self, at: usize, value: u64) {
        debug_assert!(value >> VALUE_BITS == 0);
        self.changed = true;
        self.put(2 * at + 1, value << 16 | self.tag(at));
    }

    /// Takes entry `at` out.
    pub(super) fn remove(&mut self, at: usize) {
        let control = self.control();
        let words = tail_words(self.suffix_len(at));
        self.changed = true;
        self.shift(2 * at + 2, 2 * control.count(), 2 * at);
        let mut after = control.minus(words);
        if after.live() == 0 {
            // No entry points into the heap: all of it is free again.
            let fresh = Control::new(after.level(), after.guarded(), after.prefix_bytes());
            after = Control(fresh.word() | after.count() as u64);
        }
        self.set_control(after);
    }

    /// Moves the words `from..to` to `target`.
    fn shift(&self, from: usize, to: usize, target: usize) {
        const AT_ONCE: usize = 4;
        let body = &self.node.body;
        let len = to - from;
        assert!(from <= to && to <= BODY_WORDS && target + len <= BODY_WORDS, "entries stay in the body");
        // Several words are loaded before they are stored: the compiler does not merge atomic stores by itself.
        let copy = |at: usize| {
            let moved: [u64; AT_ONCE] = std::array::from_fn(|word| {
                // SAFETY: at + AT_ONCE <= len, see the assertion above.
                unsafe { body.get_unchecked(from + at + word) }.load(Ordering::Relaxed)
            });
            for (word, moved) in moved.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { body.get_unchecked(target + at + word) }.store(moved, Ordering::Relaxed);
            }
        };
        let copy_one =
            |at: usize| body[target + at].store(body[from + at].load(Ordering::Relaxed), Ordering::Relaxed);
        if target > from {
            let mut at = len;
            while at >= AT_ONCE {
                at -= AT_ONCE;
                copy(at);
            }
            (0..at).rev().for_each(copy_one);
        } else {
            let mut at = 0;
            while at + AT_ONCE <= len {
                copy(at);
                at += AT_ONCE;
            }
            (at..len).for_each(copy_one);
        }
    }

    /// Gives the node these entries and this heap. Both end inside the body.
    pub(super) fn become_image(&mut self, image: &NodeImage) {
        let (control, body) = image.parts();
        for at in (0..2 * control.count()).chain(control.heap()..BODY_WORDS) {
            self.put(at, body[at]);
        }
        self.set_control(control);
        self.node.removal.store(image.removal, Ordering::Relaxed);
    }
}
