//! The write set: what a transaction will do to the tables once it has its place (I1).
//!
//! The redo records in the commit packet are the write set's bytes; this list says where each one lies, which record
//! it changes and what it has reserved, so that applying it allocates nothing and cannot fail (I10).

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::redo::{Operations, Patches, Placed};
use super::seek::Place;
use crate::catalog::TableVersion;
use crate::ids::HeapId;
use crate::rarely::rarely;
use crate::row::{Key, WhichIndex};
use crate::store::memory::RecordRef;

/// From this many writes on, a hash table finds a transaction's own writes; below, a look at each is faster.
const LINEAR_MAX: usize = 16;

/// A hash table with so many times the room that its entries need is made anew.
const MOSTLY_EMPTY: usize = 32;

/// What one write does to its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// The whole body.
    Put,
    /// Byte ranges of the row.
    Patch,
    /// Operations on fields of the row.
    Operate,
    /// The row goes.
    Delete,
}

/// Where a row is before an operation changes it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub slot: u32,
    pub place: Place,
}

/// What a write does to its row's slots and keys.
#[derive(Clone, Copy)]
pub(crate) struct Effect {
    pub kind: WriteKind,
    /// Where the row lies when the write's turn comes.
    pub record: RecordRef,
    /// The slot reserved for a row that has outgrown its own.
    pub moved_to: Option<RecordRef>,
    /// The row made this slot for itself: there was none of its key.
    pub fresh: bool,
    /// Secondary keys change.
    pub rekeys: bool,
}

impl Effect {
    /// Of a write that leaves slots and keys as they are.
    #[inline]
    pub fn of(kind: WriteKind, record: RecordRef) -> Effect {
        Effect { kind, record, moved_to: None, fresh: false, rekeys: false }
    }
}

/// One write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    /// The rows' storage: a table that the transaction truncates has another after it.
    pub heap: HeapId,
    /// Where the table stands in the transaction's list of tables.
    pub slot: u32,
    pub kind: WriteKind,
    /// The record made a placeholder for itself: there was none of its key.
    pub fresh: bool,
    /// Its primary entry is in the index: an abort takes it out.
    pub entered: bool,
    /// Secondary keys change.
    pub rekeys: bool,
    /// Where in the body the row begins.
    pub row_at: u8,
    /// Where the row lies when this write's turn comes.
    pub record: RecordRef,
    /// The slot reserved for a row that has outgrown its own.
    pub moved_to: Option<RecordRef>,
    /// The transaction's last write to the same row before this one.
    pub previous: Option<u32>,
    /// A later write goes to the same row.
    pub superseded: bool,
    pub placed: Placed,
}

impl Write {
    /// A write to the row that was at `target`, whose redo record lies where `placed` says.
    #[inline(always)]
    pub fn new(table: &TableVersion, target: Target, effect: Effect, placed: Placed) -> Write {
        let previous = match target.place {
            Place::Own(position) => Some(position),
            Place::Stored(_) | Place::Absent => None,
        };
        let Effect { kind, record, moved_to, fresh, rekeys } = effect;
        Write {
            heap: table.heap.id(),
            slot: target.slot,
            kind,
            fresh,
            entered: false,
            rekeys,
            row_at: table.row_at() as u8,
            record,
            moved_to,
            previous,
            superseded: false,
            placed,
        }
    }

    /// Whether it is all that the transaction does to its row, and changes nothing but fields of it.
    #[inline(always)]
    pub fn is_plain_patch(&self) -> bool {
        self.kind == WriteKind::Patch && !self.rekeys && self.previous.is_none() && !self.superseded
    }

    /// Where the row lies once this write is applied.
    pub fn lands_in(&self) -> RecordRef {
        self.moved_to.unwrap_or(self.record)
    }
}

/// An index entry that an operation made or re-pointed before the commit, so that an abort can take it back.
#[derive(Debug)]
pub(crate) struct IndexAdd {
    /// Where the table stands in the transaction's list of tables.
    pub slot: u32,
    pub index: WhichIndex,
    pub key: Key,
    pub record: RecordRef,
    /// What the entry pointed to before, if it was there.
    pub replaced: Option<RecordRef>,
}

/// A point to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub writes: usize,
    pub adds: usize,
    pub packet: usize,
}

/// A transaction's writes, in order, with what they have reserved.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    writes: Vec<Write>,
    adds: Vec<IndexAdd>,
    /// Positions of the newest write of each row, once there are many.
    latest: HashTable<u32>,
    /// Whether any row is written twice.
    pub chained: bool,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.writes.len()
    }

    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub fn get(&self, position: u32) -> &Write {
        &self.writes[position as usize]
    }

    pub fn adds(&self) -> &[IndexAdd] {
        &self.adds
    }

    pub fn add(&mut self, add: IndexAdd) {
        self.adds.push(add);
    }

    /// The last write's row has its primary entry.
    #[inline]
    pub fn note_entered(&mut self) {
        if let Some(write) = self.writes.last_mut() {
            write.entered = true;
        }
    }

    pub fn mark(&self, packet: usize) -> Mark {
        Mark { writes: self.writes.len(), adds: self.adds.len(), packet }
    }

    /// Appends a write, whose redo record is in the packet. Its `previous` is what [`WriteSet::find`] gave.
    #[inline(always)]
    pub fn push(&mut self, write: Write, packet: &[u8]) {
        if let Some(previous) = write.previous {
            self.writes[previous as usize].superseded = true;
            self.chained = true;
        }
        self.writes.push(write);
        if self.writes.len() >= LINEAR_MAX {
            self.note_all(packet);
        }
    }

    /// Enters the last write into the hash table; all of them, when they have just become many.
    #[cold]
    fn note_all(&mut self, packet: &[u8]) {
        let positions = match self.writes.len() {
            LINEAR_MAX => {
                self.latest.clear();
                0..LINEAR_MAX
            }
            many => many - 1..many,
        };
        positions.for_each(|position| self.note(position as u32, packet));
    }

    fn note(&mut self, position: u32, packet: &[u8]) {
        let writes = &self.writes;
        let hash = |position: u32| hash_of(&writes[position as usize], packet);
        // By its own hash: ADD PRIMARY KEY gives a row another key than its writes before have.
        if let Some(previous) = writes[position as usize].previous
            && let Ok(entry) = self.latest.find_entry(hash(previous), |&p| p == previous)
        {
            entry.remove();
        }
        self.latest.insert_unique(hash(position), position, |&position| hash(position));
    }

    /// The newest write of a row, by its storage and key.
    pub fn find(&self, heap: HeapId, key: &[u8], packet: &[u8]) -> Option<u32> {
        let is = |position: u32| {
            let write = &self.writes[position as usize];
            write.heap == heap && key_of(write, packet) == key
        };
        if self.writes.len() < LINEAR_MAX {
            (0..self.writes.len() as u32).rev().find(|&position| is(position))
        } else {
            self.latest.find(xxh3_64(key), |&position| is(position)).copied()
        }
    }

    /// Counts the writes to rows in this storage.
    pub fn count_of(&self, heap: HeapId) -> usize {
        self.writes.iter().filter(|write| write.heap == heap).count()
    }

    /// Takes writes back, the newest first, down to `mark`.
    pub fn pop_write(&mut self, mark: &Mark, packet: &[u8]) -> Option<Write> {
        if self.writes.len() <= mark.writes {
            return None;
        }
        let position = self.writes.len() as u32 - 1;
        let write = self.writes[position as usize];
        let hashed = self.writes.len() >= LINEAR_MAX;
        if hashed && let Ok(entry) = self.latest.find_entry(hash_of(&write, packet), |&p| p == position) {
            entry.remove();
        }
        self.writes.pop();
        if let Some(previous) = write.previous {
            self.writes[previous as usize].superseded = false;
            if hashed {
                let hash = |position: u32| hash_of(&self.writes[position as usize], packet);
                self.latest.insert_unique(hash(previous), previous, |&position| hash(position));
            }
        }
        Some(write)
    }

    /// Takes index entries back, the newest first, down to `mark`.
    pub fn pop_add(&mut self, mark: &Mark) -> Option<IndexAdd> {
        if self.adds.len() > mark.adds { self.adds.pop() } else { None }
    }

    /// Takes over the writes of a part, whose redo records lie from `base` on in the packet by now, and whose tables have
    /// other places here. They are to other rows than those here.
    pub fn absorb(
        &mut self,
        part: &mut WriteSet,
        base: u32,
        mut slot_of: impl FnMut(u32) -> u32,
        packet: &[u8],
    ) {
        let first = self.writes.len() as u32;
        for mut write in part.writes.drain(..) {
            write.slot = slot_of(write.slot);
            write.placed.key_at += base;
            write.placed.body_at += base;
            write.previous = write.previous.map(|previous| previous + first);
            self.writes.push(write);
        }
        for add in part.adds.drain(..) {
            self.adds.push(IndexAdd { slot: slot_of(add.slot), ..add });
        }
        self.chained |= part.chained;
        if self.writes.len() >= LINEAR_MAX {
            self.latest.clear();
            let WriteSet { writes, latest, .. } = self;
            let hash = |position: &u32| hash_of(&writes[*position as usize], packet);
            for position in (0..writes.len() as u32).filter(|&position| !writes[position as usize].superseded)
            {
                latest.insert_unique(hash(&position), position, hash);
            }
        }
    }

    /// Forgets everything; keeps the memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        if rarely(self.writes.len() >= LINEAR_MAX) {
            self.forget_latest();
        }
        self.writes.clear();
        if !self.adds.is_empty() {
            self.adds.clear();
        }
        self.chained = false;
    }

    /// Clears the hash table. That takes time for its room, so of one that is mostly empty the room is given back: it is a
    /// larger transaction's before.
    #[inline(never)]
    fn forget_latest(&mut self) {
        match self.latest.capacity() > MOSTLY_EMPTY * self.writes.len() {
            true => self.latest = HashTable::new(),
            false => self.latest.clear(),
        }
    }

    /// The body that the row has after the write at `position`: false if it is gone. `base` reads the body that the
    /// tables hold for a record.
    pub fn materialize(
        &self,
        position: u32,
        packet: &[u8],
        row_at: usize,
        body: &mut Vec<u8>,
        base: &mut dyn FnMut(RecordRef, &mut Vec<u8>),
    ) -> bool {
        let write = self.get(position);
        match write.kind {
            WriteKind::Delete => return false,
            WriteKind::Put => {
                body.clear();
                body.extend_from_slice(body_of(write, packet));
            }
            WriteKind::Patch => {
                match write.previous {
                    Some(previous) => {
                        let there = self.materialize(previous, packet, row_at, body, base);
                        debug_assert!(there, "a patch follows a row");
                    }
                    None => base(write.record, body),
                }
                let fits = Patches::of(body_of(write, packet)).apply(&mut body[row_at..]);
                debug_assert!(fits, "a patch fits its row");
            }
            WriteKind::Operate => {
                debug_assert!(
                    write.previous.is_none(),
                    "only the first write to a row is logged as operations"
                );
                base(write.record, body);
                let fits = Operations::of(body_of(write, packet)).apply(&mut body[row_at..]);
                debug_assert!(fits, "operations fit their row");
            }
        }
        true
    }
}

fn hash_of(write: &Write, packet: &[u8]) -> u64 {
    xxh3_64(key_of(write, packet))
}

/// The primary key of a write, in the packet.
pub(crate) fn key_of<'p>(write: &Write, packet: &'p [u8]) -> &'p [u8] {
    &packet[write.placed.key_at as usize..][..usize::from(write.placed.key_bytes)]
}

/// The body or the patches of a write, in the packet.
pub(crate) fn body_of<'p>(write: &Write, packet: &'p [u8]) -> &'p [u8] {
    &packet[write.placed.body_at as usize..][..write.placed.body_bytes as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;
    use crate::txn::redo;

    fn push(set: &mut WriteSet, packet: &mut Vec<u8>, key: u8, body: &[u8]) {
        let previous = set.find(HeapId(1), &[key], packet);
        let placed = redo::write_put(packet, TableId(1), &[key], false, body);
        let write = Write {
            heap: HeapId(1),
            slot: 0,
            kind: WriteKind::Put,
            fresh: previous.is_none(),
            entered: false,
            rekeys: false,
            row_at: 0,
            record: RecordRef(u64::from(key)),
            moved_to: None,
            previous,
            superseded: false,
            placed,
        };
        set.push(write, packet);
    }

    #[test]
    fn the_newest_write_of_a_row_is_found_before_and_after_a_rollback() {
        for many in [4, 40] {
            let (mut set, mut packet) = (WriteSet::default(), Vec::new());
            for key in 0..many {
                push(&mut set, &mut packet, key, b"first");
            }
            let mark = set.mark(packet.len());
            for key in 0..many {
                push(&mut set, &mut packet, key, b"second");
                push(&mut set, &mut packet, key, b"third");
            }
            let body = |set: &WriteSet, packet: &[u8], key: u8| {
                let position = set.find(HeapId(1), &[key], packet).unwrap();
                let mut body = Vec::new();
                assert!(set.materialize(position, packet, 0, &mut body, &mut |_, _| unreachable!()));
                body
            };
            assert!((0..many).all(|key| body(&set, &packet, key) == b"third"));
            while set.pop_write(&mark, &packet).is_some() {}
            packet.truncate(mark.packet);
            assert!((0..many).all(|key| body(&set, &packet, key) == b"first"));
            assert_eq!(set.find(HeapId(1), &[200], &packet), None);
        }
    }
}
