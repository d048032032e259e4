//! Applies a write set: after its place is taken, before its locks are released (I2). Nothing here can fail (I10).

use super::redo::{Operations, Patches};
use super::tables::TableCache;
use super::write_set::{IndexAdd, Write, WriteKind, WriteSet, body_of, key_of};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::row::{Key, WhichIndex};
use crate::store::paged::Fingers;
use crate::store::{RowLocation, TableStore, TableVersion};

/// An entry of a row in a secondary index.
type SecondaryEntry = (usize, Key);

/// The writes of a transaction that has its place.
pub(crate) struct Applying<'a> {
    pub writes: &'a WriteSet,
    pub packet: &'a [u8],
    pub tables: &'a TableCache,
    /// Where its operations have found keys in pages.
    pub fingers: &'a Fingers,
    /// The number of the transaction's context, by which heaps keep their counts.
    pub number: usize,
    /// Whether the transaction has definitions, which become visible after its rows.
    pub defines: bool,
}

impl Applying<'_> {
    /// Applies all writes at this place.
    #[inline(always)]
    pub fn apply(&self, lsn: Lsn) {
        for (position, write) in self.writes.writes().iter().enumerate() {
            fault_injection::pause(64);
            if write.is_plain_patch() {
                let store = &self.tables.at(write.slot).store;
                apply_patch(store, write.record, write.row_at, body_of(write, self.packet), lsn);
            } else if !write.superseded {
                self.apply_write(position as u32, lsn);
            }
        }
    }

    /// Applies a write that no later one supersedes, together with the earlier writes to the same row.
    #[inline(never)]
    fn apply_write(&self, position: u32, lsn: Lsn) {
        let (packet, write) = (self.packet, self.writes.get(position));
        let store = &self.tables.at(write.slot).store;
        match write.kind {
            WriteKind::Put if write.fresh && !write.rekeys => {
                store.put(write.record, body_of(write, packet), lsn);
                store.count_rows(self.number, 1);
            }
            // The row stays in its slot, and its keys do not change.
            WriteKind::Put if !write.rekeys && write.previous.is_none() && write.moved_to.is_none() => {
                store.put(write.record, body_of(write, packet), lsn);
            }
            WriteKind::Operate if !write.rekeys => {
                let row_at = usize::from(write.row_at);
                let changes = Operations::of(body_of(write, packet)).changes();
                let changes = changes.map(|(offset, change)| (row_at + offset, change));
                store.operate(write.record, changes, lsn);
            }
            _ => self.apply_row(position, lsn),
        }
    }

    /// Applies the result of all of a transaction's writes to one row, the newest of them at `last`: the row in its
    /// last slot, and entries exactly for the keys that it has in the end.
    #[inline(never)]
    fn apply_row(&self, last: u32, lsn: Lsn) {
        let (packet, write) = (self.packet, self.writes.get(last));
        if write.record.is_in_pages() {
            return self.apply_in_pages(last, lsn);
        }
        let table = self.tables.at(write.slot);
        let store = &table.store;
        let key = Key::from(key_of(write, packet));
        let mut base = |write: &Write, body: &mut Vec<u8>| store.read(write.record, body);
        let mut body = Vec::new();
        let stays = self.writes.materialize(last, packet, table.row_at(), &mut body, &mut base);

        let (locations, was_there) = self.locations(last);
        let mut entries = Vec::new();
        if was_there {
            let mut before = Vec::new();
            store.read(locations[0], &mut before);
            secondary_keys(table, &before, &key, &mut entries);
        }
        let added = self.writes.chain(last).flat_map(|position| self.writes.adds_of(position));
        for add in added {
            let then = self.tables.at(add.slot);
            if !matches!(add.index, WhichIndex::Secondary(_))
                || then.store.heap() != store.heap()
                || !locations.contains(&add.record)
            {
                continue;
            }
            if let Some(position) = self.position_now(add, table) {
                entries.push((position, Key::from(self.writes.key_of_add(add))));
            }
        }
        // An index that the transaction created meanwhile was built with the row as it was then. The operations have
        // put the row's entries into all other indexes, and noted them. No other transaction changes a table while an
        // index of it is created.
        if self.defines && !table.schema.indexes().is_empty() {
            self.keys_meanwhile(last, table, &key, &mut entries);
        }

        let mut kept = Vec::new();
        let target = write.final_location();
        if stays {
            store.put(target, &body, lsn);
            secondary_keys(table, &body, &key, &mut kept);
            store.repoint_own(WhichIndex::Primary, &key, &locations, target);
        } else {
            store.remove_own(WhichIndex::Primary, &key, &locations, Some(lsn));
        }
        for (position, entry) in &entries {
            let which = WhichIndex::Secondary(*position);
            if kept.iter().any(|(p, k)| p == position && k == entry) {
                store.repoint_own(which, entry, &locations, target);
            } else {
                store.remove_own(which, entry, &locations, Some(lsn));
            }
        }
        for &location in locations.iter().filter(|&&location| !stays || location != target) {
            store.release(self.number, location);
        }
        store.count_rows(self.number, i64::from(stays) - i64::from(was_there));
    }

    /// The same in a disk-resident table, whose row and entries the operations have claimed.
    fn apply_in_pages(&self, last: u32, lsn: Lsn) {
        let (packet, write) = (self.packet, self.writes.get(last));
        let table = self.tables.at(write.slot);
        let pages = table.store.pages().expect("the write's location is in pages");
        let key = key_of(write, packet);
        // The transaction's only write of the row, which changes no other entry and stays where it is.
        let is_plain = write.previous.is_none()
            && write.record.is_in_line()
            && write.moved_to.is_none()
            && (self.writes.adds_of(last).iter().all(|add| add.index == WhichIndex::Primary)
                || fault_injection::is_on("every-write-in-pages-is-plain"));
        let written = body_of(write, packet);
        match write.kind {
            WriteKind::Patch if is_plain => {
                let row_at = usize::from(write.row_at);
                let ranges = Patches::of(written).ranges().map(|(offset, bytes)| (row_at + offset, bytes));
                return pages.patch(self.fingers, key, ranges, lsn);
            }
            WriteKind::Put if is_plain => {
                pages.put(self.fingers, key, write.record, written, lsn);
                return pages.count_rows(i64::from(write.fresh));
            }
            _ => {}
        }
        let (mut body, mut kept) = (Vec::new(), Vec::new());
        let mut base = |write: &Write, body: &mut Vec<u8>| pages.read_claimed(key_of(write, packet), body);
        let stays = self.writes.materialize(last, packet, table.row_at(), &mut body, &mut base);
        let (locations, was_there) = self.locations(last);
        let target = write.final_location();
        if stays {
            pages.put(self.fingers, key, target, &body, lsn);
            secondary_keys(table, &body, key, &mut kept);
        } else {
            pages.remove_row(key, lsn);
        }
        for add in self.writes.chain(last).flat_map(|position| self.writes.adds_of(position)) {
            let WhichIndex::Secondary(_) = add.index else { continue };
            // The entries of an index that was dropped meanwhile go with it.
            let Some(position) = self.position_now(add, table) else { continue };
            let entry = self.writes.key_of_add(add);
            match kept.iter().any(|(of, kept)| *of == position && **kept == *entry) {
                true => pages.settle(position, entry, key, lsn),
                false => pages.remove_entry(position, entry, key, lsn),
            }
        }
        let gone = locations.iter().filter(|&&location| !stays || location != target);
        gone.for_each(|&location| pages.release(location));
        pages.count_rows(i64::from(stays) - i64::from(was_there));
    }

    /// Where a version of the table has the index of an entry. By identifier: DDL in between may have moved the index's position, or
    /// dropped the index.
    fn position_now(&self, add: &IndexAdd, table: &TableVersion) -> Option<usize> {
        let id = self.tables.at(add.slot).index_id(add.index);
        table.schema.indexes().iter().position(|index| index.id == id)
    }

    /// The keys that a row had after each of the transaction's writes to it except the last.
    fn keys_meanwhile(&self, last: u32, table: &TableVersion, key: &Key, entries: &mut Vec<SecondaryEntry>) {
        let mut base = |write: &Write, body: &mut Vec<u8>| table.store.read(write.record, body);
        let mut body = Vec::new();
        for position in self.writes.chain(last).skip(1) {
            if self.writes.materialize(position, self.packet, table.row_at(), &mut body, &mut base) {
                secondary_keys(table, &body, key, entries);
            }
        }
    }

    /// The slots that a row has had in this transaction, the first one first, and whether the row was in the tables
    /// before.
    fn locations(&self, last: u32) -> (Vec<RowLocation>, bool) {
        let (mut locations, mut fresh) = (Vec::new(), false);
        for position in self.writes.chain(last) {
            let at = self.writes.get(position);
            for location in [at.final_location(), at.record] {
                if !locations.contains(&location) {
                    locations.push(location);
                }
            }
            fresh = at.fresh;
        }
        locations.reverse();
        (locations, !fresh)
    }
}

/// Changes fields of a row, as most writes do.
#[inline(always)]
fn apply_patch(store: &TableStore, record: RowLocation, row_at: u8, patches: &[u8], lsn: Lsn) {
    let ranges = Patches::of(patches).ranges();
    store.patch(record, ranges.map(|(offset, bytes)| (usize::from(row_at) + offset, bytes)), lsn);
}

fn secondary_keys(table: &TableVersion, body: &[u8], primary: &[u8], out: &mut Vec<SecondaryEntry>) {
    for position in 0..table.schema.indexes().len() {
        let mut key = Key::new();
        table.schema.index_key_of_row(position, &body[table.row_at()..], primary, &mut key);
        out.push((position, key));
    }
}
