//! The write set: the changes that a transaction will make to the tables once it has its place (I1).
//!
//! The redo records in the commit packet are the write set's bytes. This list says where each record lies, which row it
//! changes and what it has reserved, so that applying it allocates nothing and cannot fail (I10).

use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::redo::{Operations, Patches, RecordAt};
use crate::ids::{HeapId, IndexId};
use crate::row::WhichIndex;
use crate::seed;
use crate::store::{RowLocation, TableVersion, Vacancy};
use crate::unlikely::unlikely;

/// From this many writes on, a hash table finds a transaction's own writes; with fewer, a linear search is faster.
const LINEAR_MAX: usize = 16;

/// A list with room for more entries than this gives its memory back at the end of its transaction.
const ENTRIES_KEPT: usize = 1024;

/// If the keys of a transaction's entries are longer than this in sum, their memory is given back at its end.
const KEY_BYTES_KEPT: usize = 64 << 10;

/// The index entries of a transaction may take this many times the bytes that its packet may take
/// ([`Options::write_set_bytes_max`](crate::Options::write_set_bytes_max)).
pub(crate) const ENTRIES_PER_PACKET: usize = 4;

/// A hash table with this many times the room that its entries need is replaced by a new one.
const MOSTLY_EMPTY: usize = 32;

/// After this many successive patches of a row, the row is written whole, so that reading it does not take a step for
/// every earlier change.
const PATCHES_MIN: usize = 16;

/// A longer body may have one more patch for each this many of its bytes. Writing it whole then adds at most as many
/// bytes to the packet for each patch.
const BODY_BYTES_PER_PATCH: usize = 16;

/// What one write does to its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// The whole body.
    Put,
    /// Byte ranges of the row.
    Patch,
    /// Operations on fields of the row.
    Operate,
    /// The row is deleted.
    Delete,
}

/// The location of the row of a locked key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CurrentLocation {
    /// In the write set: this write of the same transaction has it.
    Own(u32),
    /// In the tables.
    Stored(RowLocation),
    /// There is no row. If it was read: the position in the primary index at which its key would be inserted.
    Absent(Option<Vacancy>),
}

/// The location of a row before an operation changes it.
#[derive(Clone, Copy)]
pub(crate) struct TargetRow {
    pub slot: u32,
    pub location: CurrentLocation,
}

/// What a write does to its row's slots and keys.
#[derive(Clone, Copy)]
pub(crate) struct Effect {
    pub kind: WriteKind,
    /// Where the row lies when the write is applied.
    pub record: RowLocation,
    /// The slot reserved for a row that has outgrown its own.
    pub moved_to: Option<RowLocation>,
    /// Whether the write made this slot for its row: there was no row with its key.
    pub fresh: bool,
    /// Whether secondary keys change.
    pub rekeys: bool,
}

impl Effect {
    /// For a write that leaves slots and keys as they are.
    #[inline]
    pub fn of(kind: WriteKind, record: RowLocation) -> Effect {
        Effect { kind, record, moved_to: None, fresh: false, rekeys: false }
    }
}

/// One write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    /// The storage of the row. A table that the transaction truncates has another storage afterwards.
    pub heap: HeapId,
    /// The index whose key this write's key is: ADD PRIMARY KEY gives the table another identity.
    pub identity: IndexId,
    /// The position of the table in the transaction's list of tables.
    pub slot: u32,
    pub kind: WriteKind,
    /// Whether the write made a placeholder for its row: there was no row with its key.
    pub fresh: bool,
    /// Whether its primary entry is in the index: an abort takes it out.
    pub entered: bool,
    /// Whether secondary keys change. (So it is taken for each write to a disk-resident table.)
    pub rekeys: bool,
    /// Where in the body the row begins.
    pub row_at: u8,
    /// How many patches, this one included, lead from the last write of the whole body, or from the tables, to the row.
    pub patches: u16,
    /// Where the row lies when this write is applied.
    pub record: RowLocation,
    /// The slot reserved for a row that has outgrown its own.
    pub moved_to: Option<RowLocation>,
    /// The transaction's last write to the same row before this one.
    pub previous: Option<u32>,
    /// Whether a later write goes to the same row.
    pub superseded: bool,
    pub record_at: RecordAt,
}

impl Write {
    /// A write to the row that was at `target`, whose redo record lies in the packet where `record_at` says.
    #[inline(always)]
    pub fn new(table: &TableVersion, target: TargetRow, effect: Effect, record_at: RecordAt) -> Write {
        let previous = match target.location {
            CurrentLocation::Own(position) => Some(position),
            CurrentLocation::Stored(_) | CurrentLocation::Absent(_) => None,
        };
        let Effect { kind, record, moved_to, fresh, rekeys } = effect;
        Write {
            heap: table.store.heap(),
            identity: table.primary_id,
            slot: target.slot,
            kind,
            fresh,
            entered: false,
            rekeys,
            row_at: table.row_at() as u8,
            patches: 0,
            record,
            moved_to,
            previous,
            superseded: false,
            record_at,
        }
    }

    /// Whether this is the transaction's only write to its row, and changes only fields.
    #[inline(always)]
    pub fn is_plain_patch(&self) -> bool {
        self.kind == WriteKind::Patch && !self.rekeys && self.previous.is_none() && !self.superseded
    }

    /// Changes the row as this write of fields does.
    fn change(&self, packet: &[u8], row: &mut [u8]) {
        count_step();
        let bytes = body_of(self, packet);
        let fits = match self.kind {
            WriteKind::Patch => Patches::of(bytes).apply(row),
            WriteKind::Operate => {
                debug_assert!(
                    self.previous.is_none(),
                    "only the first write to a row is logged as operations"
                );
                Operations::of(bytes).apply(row)
            }
            WriteKind::Put | WriteKind::Delete => unreachable!("a write of the whole row"),
        };
        debug_assert!(fits, "a change of fields fits its row");
    }

    /// Where the row lies once this write is applied.
    pub fn final_location(&self) -> RowLocation {
        self.moved_to.unwrap_or(self.record)
    }
}

/// An index entry that an operation made or re-pointed before the commit; kept so that an abort can take it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexAdd {
    /// The position of the table in the transaction's list of tables.
    pub slot: u32,
    pub index: WhichIndex,
    /// Where its key lies among the keys of the write set's entries.
    key_at: u32,
    key_bytes: u16,
    pub record: RowLocation,
    /// The row that the entry pointed to before, if the entry existed.
    pub replaced: Option<RowLocation>,
    /// Of an entry in a page: what has become of it.
    pub in_pages: Option<EntryInPages>,
    /// The number of writes when the entry was added; the last of them is the write of its own row.
    pub writes: u32,
}

/// What an operation has done with an entry in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryInPages {
    /// It has made it.
    Made,
    /// It has claimed it: the row itself, or an entry that the row gives up.
    Claimed,
    /// It has pointed it from another row of the transaction to this one. The primary key of the other one has so many
    /// bytes; they lie behind the entry's key.
    /// That row may have taken it over itself.
    TakenOver { before_bytes: u16, is_again: bool },
}

/// A point to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub writes: usize,
    pub adds: usize,
    pub packet: usize,
}

/// A transaction's writes, in order, with what they have reserved.
#[derive(Debug)]
pub(crate) struct WriteSet {
    writes: Vec<Write>,
    adds: Vec<IndexAdd>,
    /// The keys of the entries, in their order.
    keys: Vec<u8>,
    /// Positions of the newest write of each row, once there are many.
    latest: HashTable<u32>,
    /// The seed of its hashes.
    seed: u64,
    /// Whether any row is written twice.
    pub chained: bool,
}

impl Default for WriteSet {
    fn default() -> WriteSet {
        let (writes, adds, keys, latest) = Default::default();
        WriteSet { writes, adds, keys, latest, seed: seed::draw(), chained: false }
    }
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

    pub fn adds(&self) -> impl Iterator<Item = &IndexAdd> {
        self.adds.iter().inspect(|_| count_step())
    }

    /// Notes an entry of the last write's row.
    pub fn add(
        &mut self,
        slot: u32,
        index: WhichIndex,
        key: &[u8],
        record: RowLocation,
        replaced: Option<RowLocation>,
    ) {
        let writes = self.writes.len() as u32;
        let (key_at, key_bytes) = (self.end_of_keys(), key.len() as u16);
        self.keys.extend_from_slice(key);
        self.adds.push(IndexAdd { slot, index, key_at, key_bytes, record, replaced, in_pages: None, writes });
    }

    /// The same for an entry in a page; `before` is the primary key of the row that it is taken over from.
    pub fn add_in_pages(
        &mut self,
        (slot, index): (u32, WhichIndex),
        key: &[u8],
        record: RowLocation,
        done: EntryInPages,
        before: &[u8],
    ) {
        self.add(slot, index, key, record, None);
        self.keys.extend_from_slice(before);
        if let Some(add) = self.adds.last_mut() {
            add.in_pages = Some(done);
        }
    }

    /// The primary key of the row that an entry in a page was taken over from.
    pub fn key_before(&self, add: &IndexAdd, bytes: u16) -> &[u8] {
        &self.keys[add.key_at as usize + usize::from(add.key_bytes)..][..usize::from(bytes)]
    }

    fn end_of_keys(&self) -> u32 {
        u32::try_from(self.keys.len()).expect("what entries take is bounded")
    }

    /// The key of an entry.
    pub fn key_of_add(&self, add: &IndexAdd) -> &[u8] {
        &self.keys[add.key_at as usize..][..usize::from(add.key_bytes)]
    }

    /// The bytes that the entries take.
    pub fn entry_bytes(&self) -> usize {
        self.adds.len() * size_of::<IndexAdd>() + self.keys.len()
    }

    /// The entries that were added with the write at `position`.
    pub fn adds_of(&self, position: u32) -> &[IndexAdd] {
        let first = self.adds.partition_point(|add| add.writes <= position);
        let adds = &self.adds[first..];
        let count =
            adds.iter().take_while(|add| add.writes == position + 1).inspect(|_| count_step()).count();
        &adds[..count]
    }

    /// The writes to a row, from the newest, at `last`, to the first.
    pub fn chain(&self, last: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(last), |&position| self.get(position).previous)
    }

    /// Notes that the last write's row has its primary entry.
    #[inline]
    pub fn note_entered(&mut self) {
        if let Some(write) = self.writes.last_mut() {
            write.entered = true;
        }
    }

    pub fn mark(&self, packet: usize) -> Mark {
        Mark { writes: self.writes.len(), adds: self.adds.len(), packet }
    }

    /// Appends a write, whose redo record is in the packet. Its `previous` is what [`WriteSet::find`] returned.
    #[inline(always)]
    pub fn push(&mut self, mut write: Write, packet: &[u8]) {
        if let Some(previous) = write.previous {
            let previous = &mut self.writes[previous as usize];
            previous.superseded = true;
            if write.kind == WriteKind::Patch {
                write.patches = previous.patches.saturating_add(1);
            }
            self.chained = true;
        }
        self.writes.push(write);
        if self.writes.len() >= LINEAR_MAX {
            self.note_all(packet);
        }
    }

    /// Whether the next change of this write's row, whose body has this length, has to write it whole.
    pub fn is_patched_often(&self, position: u32, body: usize) -> bool {
        let enough = PATCHES_MIN.max(body / BODY_BYTES_PER_PATCH).min(usize::from(u16::MAX));
        usize::from(self.get(position).patches) >= enough
    }

    /// Enters the last write into the hash table; or all writes, when they have just become many.
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
        let (writes, seed) = (&self.writes, self.seed);
        let hash = |position: u32| hash_of(key_of(&writes[position as usize], packet), seed);
        // By the previous write's own hash: ADD PRIMARY KEY gives a row another key than its earlier writes have.
        if let Some(previous) = writes[position as usize].previous
            && let Ok(entry) = self.latest.find_entry(hash(previous), |&p| p == previous)
        {
            entry.remove();
        }
        self.latest.insert_unique(hash(position), position, |&position| hash(position));
    }

    /// The newest write of a row, found by its storage and by its key in the table's present identity.
    ///
    /// The newest write of an existing row has such a key (`rename_writes`). A row that was deleted before the table
    /// got that identity has no key in it, and its old key may have the bytes of another row's; therefore it is not
    /// found.
    pub fn find(&self, heap: HeapId, identity: IndexId, key: &[u8], packet: &[u8]) -> Option<u32> {
        let is = |position: u32| {
            count_step();
            let write = &self.writes[position as usize];
            write.heap == heap && write.identity == identity && key_of(write, packet) == key
        };
        if self.writes.len() < LINEAR_MAX {
            (0..self.writes.len() as u32).rev().find(|&position| is(position))
        } else {
            self.latest.find(hash_of(key, self.seed), |&position| is(position)).copied()
        }
    }

    /// Takes writes back, the newest first, down to `mark`.
    pub fn pop_write(&mut self, mark: &Mark, packet: &[u8]) -> Option<Write> {
        if self.writes.len() <= mark.writes {
            return None;
        }
        let position = self.writes.len() as u32 - 1;
        let write = self.writes[position as usize];
        let (hashed, seed) = (self.writes.len() >= LINEAR_MAX, self.seed);
        let hash = |write: &Write| hash_of(key_of(write, packet), seed);
        if hashed && let Ok(entry) = self.latest.find_entry(hash(&write), |&p| p == position) {
            entry.remove();
        }
        self.writes.pop();
        if let Some(previous) = write.previous {
            self.writes[previous as usize].superseded = false;
            if hashed {
                let hash = |&position: &u32| hash(&self.writes[position as usize]);
                self.latest.insert_unique(hash(&previous), previous, hash);
            }
        }
        Some(write)
    }

    /// The newest index entry behind `mark`.
    pub fn last_add(&self, mark: &Mark) -> Option<&IndexAdd> {
        self.adds[mark.adds.min(self.adds.len())..].last()
    }

    /// Forgets the newest index entry, which has been taken back.
    pub fn pop_add(&mut self) {
        if let Some(add) = self.adds.pop() {
            self.keys.truncate(add.key_at as usize);
        }
    }

    /// Takes over the writes of a part. Their redo records now lie from `base` on in the packet, and their tables have
    /// other positions here. They write other rows than the writes here.
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
            write.record_at.key_at += base;
            write.record_at.body_at += base;
            write.previous = write.previous.map(|previous| previous + first);
            self.writes.push(write);
        }
        let keys = self.end_of_keys();
        self.keys.append(&mut part.keys);
        for add in part.adds.drain(..) {
            let (slot, key_at, writes) = (slot_of(add.slot), add.key_at + keys, add.writes + first);
            self.adds.push(IndexAdd { slot, key_at, writes, ..add });
        }
        self.chained |= part.chained;
        if self.writes.len() >= LINEAR_MAX {
            self.latest.clear();
            let WriteSet { writes, latest, seed, .. } = self;
            let hash = |position: &u32| hash_of(key_of(&writes[*position as usize], packet), *seed);
            for position in (0..writes.len() as u32).filter(|&position| !writes[position as usize].superseded)
            {
                latest.insert_unique(hash(&position), position, hash);
            }
        }
    }

    /// Forgets everything; keeps memory for a transaction of the usual size.
    #[inline(always)]
    pub fn clear(&mut self) {
        if unlikely(self.writes.len() >= LINEAR_MAX) {
            self.forget_latest();
        }
        self.writes.clear();
        if self.adds.capacity() > 0 {
            self.forget_adds();
        }
        self.chained = false;
        if unlikely(self.writes.capacity() > ENTRIES_KEPT) {
            self.give_up_memory();
        }
    }

    /// Forgets the index entries, and gives back the memory of many or long ones.
    fn forget_adds(&mut self) {
        self.adds.clear();
        self.keys.clear();
        if unlikely(self.adds.capacity() > ENTRIES_KEPT || self.keys.capacity() > KEY_BYTES_KEPT) {
            (self.adds, self.keys) = Default::default();
        }
    }

    /// Gives back the memory of a large transaction. The hash table has room for as many entries as the list of writes.
    #[cold]
    fn give_up_memory(&mut self) {
        (self.writes, self.latest) = Default::default();
    }

    /// Clears the hash table. The time for that grows with its room. Therefore the room of a mostly empty table is
    /// given back: it is that of an earlier, larger transaction.
    #[inline(never)]
    fn forget_latest(&mut self) {
        match self.latest.capacity() > MOSTLY_EMPTY * self.writes.len() {
            true => self.latest = HashTable::new(),
            false => self.latest.clear(),
        }
    }

    /// The body that the row has after the write at `position`; returns `false` if the row is deleted. `base` reads the
    /// body that the tables hold for the row of a write.
    pub fn materialize(
        &self,
        position: u32,
        packet: &[u8],
        row_at: usize,
        body: &mut Vec<u8>,
        base: &mut dyn FnMut(&Write, &mut Vec<u8>),
    ) -> bool {
        let (mut patches, mut at) = (SmallVec::<[u32; PATCHES_MIN]>::new(), position);
        loop {
            let write = self.get(at);
            match (write.kind, write.previous) {
                (WriteKind::Delete, _) => return false,
                (WriteKind::Put, _) => {
                    body.clear();
                    body.extend_from_slice(body_of(write, packet));
                    break;
                }
                (WriteKind::Patch, Some(previous)) => {
                    patches.push(at);
                    at = previous;
                }
                (WriteKind::Patch | WriteKind::Operate, _) => {
                    base(write, body);
                    write.change(packet, &mut body[row_at..]);
                    break;
                }
            }
        }
        for &patch in patches.iter().rev() {
            self.get(patch).change(packet, &mut body[row_at..]);
        }
        true
    }
}

/// Counts a step along the writes, in tests.
#[inline]
fn count_step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn hash_of(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The primary key of a write, in the packet.
pub(crate) fn key_of<'p>(write: &Write, packet: &'p [u8]) -> &'p [u8] {
    &packet[write.record_at.key_at as usize..][..usize::from(write.record_at.key_bytes)]
}

/// The body or the patches of a write, in the packet.
pub(crate) fn body_of<'p>(write: &Write, packet: &'p [u8]) -> &'p [u8] {
    &packet[write.record_at.body_at as usize..][..write.record_at.body_bytes as usize]
}

#[cfg(test)]
mod tests;
