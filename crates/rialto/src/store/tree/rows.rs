//! Leaves with rows: each entry has a string of bytes, its *row*, in the heap of its node.
//!
//! The value of an entry says where its row lies:
//!
//! ```text
//! 0..13 first word | 13..26 room in words | 26..42 bytes | 42 absent | 43 claimed | 44 overflow | 45 taken over
//! ```
//!
//! An *absent* entry is a placeholder, whose row has not been written yet. A *claimed* entry will be changed by the
//! transaction that has claimed it. The row of an *overflow* entry says where the bytes are. That of an entry that is
//! *taken over* has two parts: what it was when it was claimed, behind the length of that in two bytes, and what it is
//! now. The tree itself gives these marks no meaning, and they go where their entries go, except that
//! [`LatchedNode::end_claims`] takes back what claims have announced.
//!
//! A row may have more room than it needs, so that it can grow without a search for room. Compactions, splits and merges
//! take the room of entries that are not claimed away.

use std::sync::atomic::Ordering;

use super::key::{SearchKey, tail_words};
use super::node::{LatchedNode, Node};
use super::nodes::{Nodes, Stopped, StoppedIn};
use super::{Admit, Leaf, LeafOf, Tree};
use crate::fault_injection;
use crate::ids::Lsn;

/// What an entry says of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowAt {
    first: u16,
    room: u16,
    bytes: u16,
    /// What else the entry says.
    pub marks: EntryMarks,
}

/// The marks of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryMarks {
    /// Its row has not been written yet.
    pub absent: bool,
    /// A transaction has claimed it.
    pub claimed: bool,
    /// Its row says where the bytes are.
    pub overflow: bool,
    /// Its row has two parts.
    pub taken_over: bool,
}

impl EntryMarks {
    /// Of an entry that a transaction will change, and nothing else.
    pub const CLAIMED: EntryMarks =
        EntryMarks { absent: false, claimed: true, overflow: false, taken_over: false };

    /// Of a placeholder.
    pub const PLACEHOLDER: EntryMarks = EntryMarks { absent: true, ..EntryMarks::CLAIMED };
}

/// The two parts of the row of an entry that is taken over: what it was, and what it is now.
pub(crate) fn parts_of_taken_over(row: &[u8]) -> (&[u8], &[u8]) {
    let (length, parts) = row.split_first_chunk::<2>().expect("a row of two parts has a length");
    parts.split_at(usize::from(u16::from_le_bytes(*length)))
}

const FIRST_BITS: u32 = 13;
const BYTES_AT: u32 = 2 * FIRST_BITS;
const MARKS_AT: u32 = BYTES_AT + 16;
const WORDS: u64 = (1 << FIRST_BITS) - 1;

impl RowAt {
    pub(super) fn new(first: usize, room: usize, bytes: usize, marks: EntryMarks) -> RowAt {
        debug_assert!(first <= WORDS as usize && room <= WORDS as usize && bytes <= 8 * room);
        RowAt { first: first as u16, room: room as u16, bytes: bytes as u16, marks }
    }

    /// As an entry's value.
    pub(super) fn value(self) -> u64 {
        let EntryMarks { absent, claimed, overflow, taken_over } = self.marks;
        u64::from(self.first)
            | u64::from(self.room) << FIRST_BITS
            | u64::from(self.bytes) << BYTES_AT
            | (u64::from(absent)
                | u64::from(claimed) << 1
                | u64::from(overflow) << 2
                | u64::from(taken_over) << 3)
                << MARKS_AT
    }

    #[inline(always)]
    pub(super) fn of_value(value: u64) -> RowAt {
        let mark = |bit: u32| value >> (MARKS_AT + bit) & 1 != 0;
        RowAt {
            first: (value & WORDS) as u16,
            room: (value >> FIRST_BITS & WORDS) as u16,
            bytes: (value >> BYTES_AT) as u16,
            marks: EntryMarks { absent: mark(0), claimed: mark(1), overflow: mark(2), taken_over: mark(3) },
        }
    }

    /// Its first word.
    pub(super) fn first(self) -> usize {
        usize::from(self.first)
    }

    /// The words that it may take.
    pub(super) fn room(self) -> usize {
        usize::from(self.room)
    }

    /// The bytes that it may have.
    pub fn room_bytes(self) -> usize {
        8 * self.room()
    }

    /// Its length.
    pub fn bytes(self) -> usize {
        usize::from(self.bytes)
    }

    /// The words that it takes in another node: its room, if it is claimed.
    pub(super) fn kept_room(self) -> usize {
        let keeps_room = self.marks.claimed && !fault_injection::is_on("claimed-rows-lose-their-room");
        if keeps_room { self.room() } else { self.bytes().div_ceil(8) }
    }
}

/// The longest row, in words, of a key of so many bytes: a node whose entries are two of the longest has room for a
/// third. (One word is for the node's prefix. Each further word of it saves one in the tail of each entry.)
pub const fn row_words_max(body_words: usize, key_bytes: usize) -> usize {
    (body_words - 1) / 3 - 2 - tail_words(key_bytes)
}

/// Word `at` of the bytes of a row.
#[inline]
fn row_word(bytes: &[u8], at: usize) -> u64 {
    let bytes = &bytes[8 * at..];
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_ne_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(chunk)
        }
    }
}

impl<const W: usize> Node<W> {
    /// Where the row of entry `at` lies.
    #[inline(always)]
    pub fn row_at(&self, at: usize) -> RowAt {
        RowAt::of_value(self.value(at))
    }

    /// Appends a row's bytes to `out`.
    pub fn read_row(&self, row: RowAt, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + 8 * row.bytes().div_ceil(8), 0);
        for (word, bytes) in out[from..].chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.body(row.first() + word).to_ne_bytes());
        }
        out.truncate(from + row.bytes());
    }

    /// The words that entry `at` takes, with its tail and its row.
    pub(super) fn entry_words(&self, at: usize) -> usize {
        let row = if self.control().has_rows() { self.row_at(at).kept_room() } else { 0 };
        2 + tail_words(self.suffix_len(at)) + row
    }

    /// The words of the heap that entry `at` has.
    pub(super) fn heap_words(&self, at: usize) -> usize {
        let row = if self.control().has_rows() { self.row_at(at).room() } else { 0 };
        tail_words(self.suffix_len(at)) + row
    }
}

impl<const W: usize> LatchedNode<'_, W> {
    fn put_row(&mut self, first: usize, bytes: &[u8]) {
        (0..bytes.len().div_ceil(8)).for_each(|word| self.put(first + word, row_word(bytes, word)));
    }

    /// Puts an entry with a row at `at`. There is room for it.
    pub(super) fn insert_row(&mut self, at: usize, head: u64, suffix: &[u8], new: &NewRow<'_>) {
        let control = self.control();
        let first = control.heap() - tail_words(suffix.len()) - new.room_words();
        self.put_row(first, new.bytes);
        let row = RowAt::new(first, new.room_words(), new.bytes.len(), new.marks);
        self.insert(at, head, suffix, row.value());
        let control = self.control().with_words(new.room_words());
        self.set_control(control);
    }

    /// Writes the row of entry `at` anew. It has room for it.
    pub fn set_row(&mut self, at: usize, bytes: &[u8], marks: EntryMarks) {
        let row = self.row_at(at);
        assert!(bytes.len() <= 8 * row.room(), "a row of {} bytes in {} words", bytes.len(), row.room());
        self.put_row(row.first(), bytes);
        self.set_value(at, RowAt::new(row.first(), row.room(), bytes.len(), marks).value());
    }

    /// Writes these bytes over those from `offset` on in the row of entry `at`.
    pub fn patch_row(&mut self, at: usize, offset: usize, bytes: &[u8]) {
        let row = self.row_at(at);
        assert!(offset + bytes.len() <= row.bytes(), "a patch lies in its row");
        let mut done = 0;
        while done < bytes.len() {
            let (word, inside) = (row.first() + (offset + done) / 8, (offset + done) % 8);
            let count = (8 - inside).min(bytes.len() - done);
            let mut chunk = self.body(word).to_ne_bytes();
            chunk[inside..inside + count].copy_from_slice(&bytes[done..done + count]);
            self.put(word, u64::from_ne_bytes(chunk));
            done += count;
        }
        // The value is the same; the version moves on.
        self.set_value(at, row.value());
    }

    /// Gives entry `at` other marks.
    pub fn set_marks(&mut self, at: usize, marks: EntryMarks) {
        let row = RowAt { marks, ..self.row_at(at) };
        self.set_value(at, row.value());
    }

    /// Whether a leaf has an entry that a transaction has claimed.
    pub(crate) fn has_claims(&self) -> bool {
        let control = self.control();
        control.has_rows()
            && control.level() == 0
            && (0..control.count()).any(|at| self.row_at(at).marks.claimed)
    }

    /// Takes back what the claims in a leaf have announced: placeholders go, and what was taken over is as before. No
    /// transaction has a claim any more.
    pub(crate) fn end_claims(&mut self) {
        for at in (0..self.control().count()).rev() {
            let row = self.row_at(at);
            let marks = EntryMarks { claimed: false, taken_over: false, ..row.marks };
            match row.marks {
                EntryMarks { absent: true, .. } => self.remove(at),
                EntryMarks { taken_over: true, .. } => {
                    let mut both = Vec::new();
                    self.read_row(row, &mut both);
                    self.set_row(at, parts_of_taken_over(&both).0, marks);
                }
                EntryMarks { claimed: true, .. } => self.set_marks(at, marks),
                _ => {}
            }
        }
    }

    /// Gives the row of entry `at` room for so many words, if the node has them. False, and no change, if not.
    fn enlarge_row(&mut self, at: usize, room: usize) -> bool {
        let (control, row) = (self.control(), self.row_at(at));
        if room <= row.room() {
            return true;
        }
        if room > control.room() {
            return false;
        }
        let first = control.heap() - room;
        for word in 0..row.bytes().div_ceil(8) {
            let moved = self.body(row.first() + word);
            self.put(first + word, moved);
        }
        self.set_value(at, RowAt::new(first, room, row.bytes(), row.marks).value());
        self.set_control(control.with_words(room).without_words(row.room()));
        true
    }
}

/// A row that is put into a leaf with its key.
#[derive(Debug, Clone, Copy)]
pub struct NewRow<'a> {
    /// The row.
    pub bytes: &'a [u8],
    /// The bytes that it may grow to; at least its length.
    pub room: usize,
    /// The marks of its entry.
    pub marks: EntryMarks,
}

impl NewRow<'_> {
    fn room_words(&self) -> usize {
        self.room.max(self.bytes.len()).div_ceil(8)
    }
}

/// Where an operation has found a key, or a place for it: its leaf, and its position there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finger {
    pub(super) leaf: Leaf,
    pub(super) at: u32,
}

/// What was found of a key in a tree with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRow {
    /// The marks of its entry, if it has one; its row was read.
    pub marks: Option<EntryMarks>,
    /// The leaf that covers the key.
    pub leaf: Leaf,
    at: u32,
    /// The highest place of a writer to the leaf, removals included (I3).
    pub lsn: Lsn,
}

impl FoundRow {
    /// Where it was found.
    pub fn finger(&self) -> Finger {
        Finger { leaf: self.leaf, at: self.at }
    }
}

/// The result of an insert of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertRow {
    /// The key was absent and is present now.
    Done,
    /// The key is present, with these marks; nothing changed.
    Exists(EntryMarks),
    /// `admit` refused; nothing changed.
    Refused,
}

/// An operation on a key may begin where an earlier one has found the key (`from`), and not at the root. A leaf whose version
/// is the same is the same leaf of the same tree. If it has the key, it covers it; if not, or if it has changed, the
/// operation descends.
impl<N: Nodes<W>, const W: usize> Tree<N, W> {
    /// Looks `key` up, and appends its row to `row` if it is there.
    pub fn try_get_row(
        &self,
        key: &[u8],
        from: Option<Finger>,
        row: &mut Vec<u8>,
    ) -> Result<FoundRow, N::Missing> {
        let length = row.len();
        self.try_find_with(key, from, |node, there| {
            row.truncate(length);
            node.read_row(there, row);
        })
    }

    /// Looks `key` up, without its row.
    pub fn try_find_row(&self, key: &[u8], from: Option<Finger>) -> Result<FoundRow, N::Missing> {
        self.try_find_with(key, from, |_, _| {})
    }

    /// The same; `read` sees where the row of the key lies, maybe more than once, the last time as it is.
    #[inline]
    fn try_find_with(
        &self,
        key: &[u8],
        mut from: Option<Finger>,
        mut read: impl FnMut(&Node<W>, RowAt),
    ) -> Result<FoundRow, N::Missing> {
        let probe = SearchKey::new(key);
        loop {
            let Some((leaf, at, found)) = self.try_entry(&probe, from.take())? else { continue };
            let LeafOf { number, node, version, .. } = leaf;
            let marks = found.then(|| {
                let there = node.row_at(at);
                read(node, there);
                there.marks
            });
            let lsn = Lsn(node.removal.load(Ordering::Relaxed));
            if node.latch.validate(version) {
                return Ok(FoundRow { marks, leaf: Leaf { node: number, version }, at: at as u32, lsn });
            }
        }
    }

    /// The leaf that covers `probe`, where in it the key lies or would lie, and whether it is there; not yet validated.
    /// `None`: begin again.
    #[inline(always)]
    fn try_entry(
        &self,
        probe: &SearchKey<'_>,
        from: Option<Finger>,
    ) -> Result<Option<(LeafOf<'_, W>, usize, bool)>, N::Missing> {
        if let Some((leaf, at)) = from.and_then(|from| self.entry_in(from, probe)) {
            return Ok(Some((leaf, at, true)));
        }
        let Some(leaf) = self.try_leaf(probe)? else { return Ok(None) };
        let (at, found) = leaf.node.find(leaf.node.control(), probe, leaf.share);
        Ok(Some((leaf, at, found)))
    }

    /// The leaf of a finger, if it is unchanged and has the key, and the key's position. It is to be validated: what another
    /// thread writes meanwhile may be seen.
    #[inline]
    fn entry_in(&self, from: Finger, probe: &SearchKey<'_>) -> Option<(LeafOf<'_, W>, usize)> {
        self.check_kept();
        let Leaf { node: number, version } = from.leaf;
        let node = self.nodes.numbered(number).filter(|node| node.latch.validate(version))?;
        let control = node.control();
        // No descent has shown that the key lies between the node's fences.
        if !node.has_prefix_of(control, probe.key) && !fault_injection::is_on("finger-on-another-key") {
            return None;
        }
        let (at, found) = match node.is_at(control, from.at as usize, probe) {
            true => (from.at as usize, true),
            false => node.find(control, probe, None),
        };
        if !found {
            return None;
        }
        if !fault_injection::is_on("finger-is-no-use") {
            self.nodes.note_use(node);
        }
        Some((LeafOf { number, node, version, share: None }, at))
    }

    /// As [`Tree::try_insert`], with a row, which is at most [`row_words_max`] long. Gives where the key is, or belongs, too.
    pub fn try_insert_row(
        &self,
        key: &[u8],
        new: &NewRow<'_>,
        mut admit: impl FnMut() -> Admit,
    ) -> Result<(InsertRow, Finger), StoppedIn<N, W>> {
        assert!(new.room_words() <= row_words_max(W, key.len()), "the row of a key fits into its node");
        let probe = SearchKey::new(key);
        loop {
            let leaf = self.try_leaf(&probe).map_err(Stopped::Missing)?;
            let Some(LeafOf { number, node, version, share }) = leaf else { continue };
            let (at, found) = node.find(node.control(), &probe, share);
            if found {
                let there = node.row_at(at).marks;
                if node.latch.validate(version) {
                    let leaf = Leaf { node: number, version };
                    return Ok((InsertRow::Exists(there), Finger { leaf, at: at as u32 }));
                }
                continue;
            }
            let Some(mut leaf) = self.latch_to_change(node, version)? else { continue };
            let control = leaf.control();
            let suffix = probe.suffix(control.prefix_bytes());
            let words = 2 + tail_words(suffix.len()) + new.room_words();
            if words > control.room() && !self.compact(&mut leaf, words) {
                drop(leaf);
                self.split(0, key)?;
                continue;
            }
            if control.guarded() {
                match admit() {
                    Admit::Go => {}
                    Admit::GoAndUnguard => leaf.unguard(),
                    Admit::Refuse => {
                        let leaf = leaf.unlatch(number);
                        return Ok((InsertRow::Refused, Finger { leaf, at: at as u32 }));
                    }
                }
            }
            leaf.insert_row(at, probe.head(control.prefix_bytes()), suffix, new);
            let leaf = leaf.unlatch(number);
            return Ok((InsertRow::Done, Finger { leaf, at: at as u32 }));
        }
    }

    /// Changes the leaf of a key that is present, by its latched node and the key's position. Gives where the key
    /// is afterwards, too. `None`: the key is absent.
    pub fn try_change<T>(
        &self,
        key: &[u8],
        mut from: Option<Finger>,
        work: impl FnOnce(&mut LatchedNode<'_, W>, usize) -> T,
    ) -> Result<Option<(T, Finger)>, StoppedIn<N, W>> {
        let probe = SearchKey::new(key);
        loop {
            let entry = self.try_entry(&probe, from.take()).map_err(Stopped::Missing)?;
            let Some((LeafOf { number, node, version, .. }, at, found)) = entry else { continue };
            if !found {
                if node.latch.validate(version) {
                    return Ok(None);
                }
                continue;
            }
            let Some(mut leaf) = self.latch_to_change(node, version)? else { continue };
            let done = work(&mut leaf, at);
            let leaf = leaf.unlatch(number);
            return Ok(Some((done, Finger { leaf, at: at as u32 })));
        }
    }

    /// Gives the row of a key room for so many bytes, which its node can hold. Gives where the key is afterwards.
    /// `None`: the key is absent.
    pub fn try_enlarge_row(
        &self,
        key: &[u8],
        from: Option<Finger>,
        room: usize,
    ) -> Result<Option<Finger>, StoppedIn<N, W>> {
        let words = room.div_ceil(8);
        assert!(words <= row_words_max(W, key.len()), "the row of a key fits into its node");
        loop {
            let enlarged = self.try_change(key, from, |leaf, at| {
                leaf.enlarge_row(at, words) || self.compact(leaf, words) && leaf.enlarge_row(at, words)
            })?;
            match enlarged {
                None => return Ok(None),
                Some((true, finger)) => return Ok(Some(finger)),
                Some((false, _)) => self.split(0, key)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_where_a_row_lies() {
        for marks in 0..16_u8 {
            let mark = |bit: u8| marks >> bit & 1 != 0;
            let marks =
                EntryMarks { absent: mark(0), claimed: mark(1), overflow: mark(2), taken_over: mark(3) };
            for (first, room, bytes) in [(0, 0, 0), (8_183, 8_184, 65_472), (17, 3, 20)] {
                let row = RowAt::new(first, room, bytes, marks);
                assert_eq!(RowAt::of_value(row.value()), row);
                assert!(row.value() >> super::super::node::VALUE_BITS == 0);
            }
        }
    }
}
