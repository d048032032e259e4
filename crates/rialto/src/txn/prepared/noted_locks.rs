//! [`NotedLocks`]: the locks of a transaction that may be prepared, so that they can be taken again.

use std::ops::Bound;

use hashbrown::HashSet;

use crate::ids::{IndexId, TableId};

const TABLE: u8 = 1;
const KEY: u8 = 2;
const RANGE: u8 = 3;
const ROW: u8 = 4;

/// The longest list, in bytes. A transaction with more locks cannot be prepared.
pub(crate) const NOTES_BYTES_MAX: usize = 4 << 20;

/// The locks of a transaction that redoing its writes does not take: on keys, present or absent, on ranges, and on
/// whole tables. They are noted where they are granted.
///
/// All of them are taken again in shared mode. A transaction that has voted writes nothing more; so what it has locked
/// exclusively and not written has only to stay as it is. And what is noted is what was read, in whatever form of locks
/// that was, which may be another form in the next opening: of a scan the part of its range up to its end, where some
/// form locks the whole range; of a key its own note, also where a lock on a range has covered it. Therefore no two
/// prepared transactions are in conflict in any form.
#[derive(Debug, Default)]
pub(crate) struct NotedLocks {
    bytes: Vec<u8>,
    /// Each note. What is read again is not noted again.
    known: HashSet<Vec<u8>>,
    /// The last entry that the running scan has read.
    pub last_entry: Option<Vec<u8>>,
    is_too_long: bool,
}

/// A lock that was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotedLock<'a> {
    /// The whole table.
    Table(TableId),
    /// A key of an index by its name, whether there is a row of it or not.
    Key(IndexId, &'a [u8]),
    /// The row to which an index leads from this key.
    Row(IndexId, &'a [u8]),
    /// What a scan has read: the keys that exist in a range of an index, and their rows.
    Range(IndexId, Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl NotedLocks {
    pub fn table(&mut self, table: TableId) {
        let mut note = vec![TABLE];
        note.extend_from_slice(&table.0.to_le_bytes());
        self.push(note);
    }

    pub fn key(&mut self, index: IndexId, key: &[u8]) {
        self.keyed(KEY, index, key);
    }

    pub fn row(&mut self, index: IndexId, key: &[u8]) {
        self.keyed(ROW, index, key);
    }

    fn keyed(&mut self, kind: u8, index: IndexId, key: &[u8]) {
        let mut note = vec![kind];
        note.extend_from_slice(&index.0.to_le_bytes());
        push_bytes(&mut note, key);
        self.push(note);
    }

    pub fn range(&mut self, index: IndexId, (lower, upper): (Bound<&[u8]>, Bound<&[u8]>)) {
        let mut note = vec![RANGE];
        note.extend_from_slice(&index.0.to_le_bytes());
        for bound in [lower, upper] {
            let (edge, key): (u8, &[u8]) = match bound {
                Bound::Unbounded => (0, &[]),
                Bound::Included(key) => (1, key),
                Bound::Excluded(key) => (2, key),
            };
            note.push(edge);
            push_bytes(&mut note, key);
        }
        self.push(note);
    }

    fn push(&mut self, note: Vec<u8>) {
        if self.is_too_long || self.known.contains(&note) {
            return;
        }
        self.is_too_long = self.bytes.len() + note.len() > NOTES_BYTES_MAX;
        if !self.is_too_long {
            self.bytes.extend_from_slice(&note);
            self.known.insert(note);
        }
    }

    /// The notes without those on other indexes than these.
    pub fn on_indexes(&self, has: impl Fn(IndexId) -> bool) -> NotedLocks {
        let mut kept = NotedLocks { is_too_long: self.is_too_long, ..NotedLocks::default() };
        for lock in noted(&self.bytes) {
            match lock.expect("notes of this process are read back") {
                NotedLock::Table(table) => kept.table(table),
                NotedLock::Key(index, key) if has(index) => kept.key(index, key),
                NotedLock::Row(index, key) if has(index) => kept.row(index, key),
                NotedLock::Range(index, lower, upper) if has(index) => kept.range(index, (lower, upper)),
                NotedLock::Key(..) | NotedLock::Row(..) | NotedLock::Range(..) => {}
            }
        }
        kept
    }

    /// The notes; `None` if there were too many.
    pub fn bytes(&self) -> Option<&[u8]> {
        (!self.is_too_long).then_some(&*self.bytes)
    }
}

fn push_bytes(note: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a key is shorter than 4 GiB");
    note.extend_from_slice(&length.to_le_bytes());
    note.extend_from_slice(bytes);
}

/// The locks in these bytes, in the order in which they were granted. `Err`: the bytes make no sense from this offset
/// on.
pub(crate) fn noted(bytes: &[u8]) -> impl Iterator<Item = Result<NotedLock<'_>, usize>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let offset = bytes.len() - rest.len();
        let note = take_note(&mut rest);
        if note.is_none() {
            rest = &[];
        }
        Some(note.ok_or(offset))
    })
}

fn take_note<'a>(rest: &mut &'a [u8]) -> Option<NotedLock<'a>> {
    match take(rest, 1)?[0] {
        TABLE => Some(NotedLock::Table(TableId(take_u32(rest)?))),
        KEY => Some(NotedLock::Key(IndexId(take_u32(rest)?), take_bytes(rest)?)),
        ROW => Some(NotedLock::Row(IndexId(take_u32(rest)?), take_bytes(rest)?)),
        RANGE => {
            let index = IndexId(take_u32(rest)?);
            Some(NotedLock::Range(index, take_bound(rest)?, take_bound(rest)?))
        }
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, others) = rest.split_at_checked(bytes)?;
    *rest = others;
    Some(taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().expect("four bytes")))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_u32(rest)?;
    take(rest, usize::try_from(length).ok()?)
}

fn take_bound<'a>(rest: &mut &'a [u8]) -> Option<Bound<&'a [u8]>> {
    let edge = take(rest, 1)?[0];
    let key = take_bytes(rest)?;
    match edge {
        0 => Some(Bound::Unbounded),
        1 => Some(Bound::Included(key)),
        2 => Some(Bound::Excluded(key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_back_and_noted_once() {
        let mut locks = NotedLocks::default();
        for _ in 0..2 {
            locks.key(IndexId(70), b"key");
            locks.table(TableId(64));
            locks.range(IndexId(71), (Bound::Excluded(b"a"), Bound::Unbounded));
            locks.row(IndexId(70), b"");
        }
        let bytes = locks.bytes().unwrap();
        let found: Vec<NotedLock<'_>> = noted(bytes).map(Result::unwrap).collect();
        let expected = [
            NotedLock::Key(IndexId(70), b"key"),
            NotedLock::Table(TableId(64)),
            NotedLock::Range(IndexId(71), Bound::Excluded(b"a"), Bound::Unbounded),
            NotedLock::Row(IndexId(70), b""),
        ];
        assert_eq!(found, expected);
        // Bytes that are cut off amid a lock end in an error.
        for end in 0..bytes.len() {
            let is_whole = noted(&bytes[..end]).last().is_none_or(|last| last.is_ok());
            assert_eq!(is_whole, [0, 12, 17, 33].contains(&end), "{end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x40;
            assert!(noted(&damaged).count() <= 5);
        }
    }

    #[test]
    fn too_many_locks_are_no_list() {
        let mut locks = NotedLocks::default();
        for number in 0..NOTES_BYTES_MAX as u32 / 1_000 {
            let key = [&number.to_le_bytes()[..], &[7; 1_000]].concat();
            locks.key(IndexId(70), &key);
        }
        assert_eq!(locks.bytes(), None);
    }
}
