//! One node: a header of 64 bytes, and a body of `W` atomic words.
//!
//! ```text
//! word 0     latch     version, free, latched
//! word 1     control   count, level, guarded, prefix length, where the heap begins, how much of it is live
//! word 2     removal   Lsn of the last removal (leaves); of a page: of its last writer
//! word 3     link      next free node (free nodes in memory, under the pool's mutex); of a page: which page it is
//! word 4     usage     how often it was used (pages)
//! word 5     pins      what keeps it in its frame (pages)
//! word 6     changed   since when its image in the page file is out of date (pages)
//! word 7     saved     its image in the page file (pages)
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
//! control word that was ever stored describes a layout inside the body (`count <= W / 2`), and every offset that comes
//! from an entry is bounds-checked.

#![allow(unsafe_code)]

use super::Leaf;
use super::image::NodeImage;
use super::key::{FIRST_TAIL_BYTES, HEAD_BYTES, KeyBuf, MAX_KEY_BYTES, be_word, tail_word, tail_words};
use super::latch::Latch;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a body behind the header, for a node of so many bytes.
pub const fn body_words(node_bytes: usize) -> usize {
    (node_bytes - HEADER_BYTES) / 8
}

/// The most entries of a node with a body of so many words.
pub(super) const fn entries_max(body_words: usize) -> usize {
    body_words / 2
}

/// The most entries of any node.
pub(super) const ENTRIES_MAX: usize = entries_max(body_words(NODE_BYTES_MAX));
/// The bytes before a node's body.
pub const HEADER_BYTES: usize = 64;
/// The largest node: its offsets fit into a tag and into a control word.
const NODE_BYTES_MAX: usize = 64 << 10;
/// In a tag: the suffix has a tail, and the other bits are its offset.
pub(super) const LONG: u64 = 0x8000;
const TAG: u64 = 0xffff;
/// The bits of a value.
pub const VALUE_BITS: u32 = 48;

const _: () = assert!(size_of::<Node<504>>() == 4096 && body_words(NODE_BYTES_MAX) < 1 << HEAP_BITS);

/// A node's control word, for a body of `W` words.
///
/// ```text
/// 0..12 count | 12..16 level | 16 guarded | 17 has rows | 24..36 prefix bytes | 36..50 heap | 50..64 live
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Control<const W: usize>(u64);

const COUNT: u64 = 0xfff;
const LEVEL_AT: u32 = 12;
const LEVEL: u64 = 0xf;
const GUARDED: u64 = 1 << 16;
const HAS_ROWS: u64 = 1 << 17;
const PREFIX_AT: u32 = 24;
const PREFIX: u64 = 0xfff;
const HEAP_AT: u32 = 36;
const LIVE_AT: u32 = 50;
const HEAP_BITS: u32 = LIVE_AT - HEAP_AT;
const WORDS: u64 = (1 << HEAP_BITS) - 1;

impl<const W: usize> Control<W> {
    /// A node whose entries are two of the longest keys has room for a third, so a node that must split has three.
    const HAS_ROOM_FOR_THREE: () = assert!(3 * (2 + tail_words(MAX_KEY_BYTES)) <= W && W < 1 << HEAP_BITS);

    pub(super) const fn new(level: u8, guarded: bool, prefix_bytes: usize) -> Control<W> {
        let () = Self::HAS_ROOM_FOR_THREE;
        let heap = W - prefix_bytes.div_ceil(8);
        Control(
            (level as u64) << LEVEL_AT
                | if guarded { GUARDED } else { 0 }
                | (prefix_bytes as u64) << PREFIX_AT
                | (heap as u64) << HEAP_AT,
        )
    }

    /// How many entries; never more than a body holds.
    #[inline(always)]
    pub(super) const fn count(self) -> usize {
        let count = (self.0 & COUNT) as usize;
        if count > entries_max(W) { entries_max(W) } else { count }
    }

    /// 0 for a leaf.
    #[inline(always)]
    pub(super) const fn level(self) -> u8 {
        (self.0 >> LEVEL_AT & LEVEL) as u8
    }

    #[inline(always)]
    pub(super) const fn guarded(self) -> bool {
        self.0 & GUARDED != 0
    }

    /// Whether its entries have rows (`rows.rs`).
    #[inline(always)]
    pub(super) const fn has_rows(self) -> bool {
        self.0 & HAS_ROWS != 0
    }

    /// Of a leaf whose entries have rows.
    #[must_use]
    pub(super) const fn with_rows(self, has_rows: bool) -> Control<W> {
        Control(self.0 & !HAS_ROWS | if has_rows { HAS_ROWS } else { 0 })
    }

    #[inline(always)]
    pub(super) const fn prefix_bytes(self) -> usize {
        (self.0 >> PREFIX_AT & PREFIX) as usize
    }

    /// The first word of the heap.
    pub(super) const fn heap(self) -> usize {
        (self.0 >> HEAP_AT & WORDS) as usize
    }

    /// The words of tails that entries point to.
    pub(super) const fn live(self) -> usize {
        (self.0 >> LIVE_AT) as usize
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
        W - self.prefix_words() - self.heap() - self.live()
    }

    /// The words that entries, live tails and prefix take.
    pub(super) const fn used(self) -> usize {
        2 * self.count() + self.live() + self.prefix_words()
    }

    #[must_use]
    pub(super) const fn with_guard(self, guarded: bool) -> Control<W> {
        Control(self.0 & !GUARDED | if guarded { GUARDED } else { 0 })
    }

    /// One entry more, its tail of `words` words put on top of the heap.
    #[must_use]
    pub(super) const fn plus(self, words: usize) -> Control<W> {
        Control(self.0 + 1 - ((words as u64) << HEAP_AT) + ((words as u64) << LIVE_AT))
    }

    /// One entry less; its tail of `words` words becomes garbage.
    #[must_use]
    pub(super) const fn minus(self, words: usize) -> Control<W> {
        Control(self.0 - 1 - ((words as u64) << LIVE_AT))
    }

    /// So many more words on top of the heap.
    #[must_use]
    pub(super) const fn with_words(self, words: usize) -> Control<W> {
        Control(self.0 - ((words as u64) << HEAP_AT) + ((words as u64) << LIVE_AT))
    }

    /// So many words of the heap become garbage.
    #[must_use]
    pub(super) const fn without_words(self, words: usize) -> Control<W> {
        Control(self.0 - ((words as u64) << LIVE_AT))
    }

    /// As an image has it.
    pub(super) const fn of_word(word: u64) -> Control<W> {
        Control(word)
    }

    /// Whether it describes a layout inside the body.
    pub(super) const fn is_sound(self) -> bool {
        let heap_end = W - if self.prefix_words() < W { self.prefix_words() } else { W };
        (self.0 & COUNT) as usize == self.count()
            && self.prefix_bytes() <= MAX_KEY_BYTES
            && 2 * self.count() <= self.heap()
            && self.heap() <= heap_end
            && self.live() <= heap_end - self.heap()
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }
}

/// A node. All zeroes is an open, empty leaf of version 0.
#[repr(C, align(64))]
pub struct Node<const W: usize> {
    pub(crate) latch: Latch,
    control: AtomicU64,
    pub(crate) removal: AtomicU64,
    pub(crate) link: AtomicU64,
    pub(crate) usage: AtomicU64,
    pub(crate) pins: AtomicU64,
    pub(crate) changed_since: AtomicU64,
    pub(crate) saved: AtomicU64,
    pub(super) body: [AtomicU64; W],
}

impl<const W: usize> Node<W> {
    #[inline(always)]
    pub(super) fn control(&self) -> Control<W> {
        Control(self.control.load(Ordering::Relaxed))
    }

    /// Word `at` of the body; 0 outside it, which only a torn offset can name.
    #[inline(always)]
    pub(super) fn body(&self, at: usize) -> u64 {
        self.body.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The head of entry `at`, which is below half the words of the body.
    #[inline(always)]
    pub(super) fn head(&self, at: usize) -> u64 {
        debug_assert!(at < entries_max(W));
        // SAFETY: callers index below a Control::count(), which is at most half the words, whatever the memory holds.
        unsafe { self.body.get_unchecked(2 * at) }.load(Ordering::Relaxed)
    }

    /// Value and tag of entry `at`, which is below half the words of the body.
    #[inline(always)]
    fn payload(&self, at: usize) -> u64 {
        debug_assert!(at < entries_max(W));
        // SAFETY: as in head().
        unsafe { self.body.get_unchecked(2 * at + 1) }.load(Ordering::Relaxed)
    }

    /// The value of entry `at`, which is below half the words of the body.
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
    pub(super) fn read_prefix(&self, control: Control<W>, key: &mut KeyBuf) {
        let from = W.saturating_sub(control.prefix_words());
        for word in 0..control.prefix_words() {
            key.put_word(8 * word, self.body(from + word));
        }
        key.set_len(control.prefix_bytes());
    }

    /// Whether a key begins with the node's prefix.
    #[inline]
    pub(super) fn has_prefix_of(&self, control: Control<W>, key: &[u8]) -> bool {
        let (from, bytes) = (W.saturating_sub(control.prefix_words()), control.prefix_bytes());
        bytes <= key.len()
            && (0..control.prefix_words()).all(|word| {
                let left_out = 8 * (8 * (word + 1)).saturating_sub(bytes);
                (be_word(&key[8 * word..]) ^ self.body(from + word)) >> left_out == 0
            })
    }

    /// Writes the suffix of entry `at` to `key`, which begins with the node's prefix already.
    #[inline]
    pub(super) fn read_suffix(&self, control: Control<W>, at: usize, key: &mut KeyBuf) {
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
    pub(super) fn read_key(&self, control: Control<W>, at: usize, key: &mut KeyBuf) {
        self.read_prefix(control, key);
        self.read_suffix(control, at, key);
    }

    /// Latches, if nothing changed since `version`.
    #[inline]
    pub(crate) fn upgrade(&self, version: u64) -> Option<LatchedNode<'_, W>> {
        self.latch.upgrade(version).then(|| LatchedNode { node: self, changed: false })
    }

    /// Latches a free node, for its owner to fill.
    pub(crate) fn claim_free(&self) -> LatchedNode<'_, W> {
        self.latch.claim();
        LatchedNode::of_latched(self)
    }

    /// The children that the entries lead to; none of a leaf's.
    pub(crate) fn children(&self) -> impl Iterator<Item = u32> {
        let control = self.control();
        let count = if control.level() > 0 { control.count() } else { 0 };
        (0..count).map(|at| self.child(at))
    }

    /// Latches, waiting for it. None: the node is free.
    pub(crate) fn lock(&self) -> Option<LatchedNode<'_, W>> {
        self.latch.lock().then(|| LatchedNode { node: self, changed: false })
    }
}

/// A latched node, with the operations that change it. Dropping it unlatches it, with a new version if something
/// changed.
pub struct LatchedNode<'n, const W: usize> {
    node: &'n Node<W>,
    changed: bool,
}

impl<const W: usize> Deref for LatchedNode<'_, W> {
    type Target = Node<W>;

    #[inline(always)]
    fn deref(&self) -> &Node<W> {
        self.node
    }
}

impl<const W: usize> Drop for LatchedNode<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<'n, const W: usize> LatchedNode<'n, W> {
    /// A node that the pool has latched for its new owner.
    pub(super) fn of_latched(node: &'n Node<W>) -> LatchedNode<'n, W> {
        LatchedNode { node, changed: true }
    }

    /// Unlatches the node. Gives its version from now on.
    #[inline]
    fn unlock(&mut self) -> u64 {
        if self.changed { self.node.latch.unlock_changed() } else { self.node.latch.unlock_unchanged() }
    }

    /// Unlatches the node, which is a leaf of this number: what it is now.
    #[inline]
    pub(super) fn unlatch(mut self, number: u32) -> Leaf {
        let version = self.unlock();
        std::mem::forget(self);
        Leaf { node: number, version }
    }

    /// Ends the node: it belongs to the pool again.
    pub(crate) fn retire(self) {
        self.node.latch.retire();
        std::mem::forget(self);
    }

    /// Makes it an empty leaf, for all keys.
    pub(crate) fn become_empty_leaf(&mut self, has_rows: bool) {
        let mut image = NodeImage::new(0, false, 0, &[]);
        image.has_rows(has_rows);
        self.become_image(&image);
    }

    pub(super) fn put(&self, at: usize, word: u64) {
        self.node.body[at].store(word, Ordering::Relaxed);
    }

    pub(super) fn set_control(&mut self, control: Control<W>) {
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
    pub(crate) fn raise_removal(&mut self, lsn: u64) {
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
        let words = self.heap_words(at);
        self.changed = true;
        self.shift(2 * at + 2, 2 * control.count(), 2 * at);
        let mut after = control.minus(words);
        if after.live() == 0 {
            // No entry points into the heap: all of it is free again.
            let fresh: Control<W> = Control::new(after.level(), after.guarded(), after.prefix_bytes());
            after = Control(fresh.with_rows(after.has_rows()).word() | after.count() as u64);
        }
        self.set_control(after);
    }

    /// Moves the words `from..to` to `target`.
    fn shift(&self, from: usize, to: usize, target: usize) {
        const AT_ONCE: usize = 4;
        let body = &self.node.body;
        let len = to - from;
        assert!(from <= to && to <= W && target + len <= W, "entries stay in the body");
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
    pub(super) fn become_image(&mut self, image: &NodeImage<W>) {
        let (control, body) = image.parts();
        for at in (0..2 * control.count()).chain(control.heap()..W) {
            self.put(at, body[at]);
        }
        self.set_control(control);
        self.node.removal.store(image.removal, Ordering::Relaxed);
    }
}
