//! [`DdlState`]: the tables that a transaction has made, changed or dropped, until it commits or is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::bulk_load::{LoadFileIs, TableLoad};
use super::context::Context;
use crate::commit::write_set::WriteSet;
use crate::error::{Error, Result};
use crate::ids::{HeapId, Lsn, TableId};
use crate::probes::count_probe;
use crate::row::WhichIndex;
use crate::store::{Catalog, CatalogChange, LoadedRows, StoragePart, Table, TableStore, TableVersion};

/// A transaction's DDL.
#[derive(Default)]
pub(crate) struct DdlState {
    changes: Vec<DdlChange>,
    /// About how many bytes the changes keep in memory beside the tables' storage.
    bytes: usize,
    /// For each name of a table, and for each table, its changes, the oldest first.
    by_name: HashMap<String, Vec<usize>>,
    by_table: HashMap<TableId, Vec<usize>>,
    /// The indexes that the tables of the changes have now, primary ones included, by name.
    by_index: HashMap<String, TableId>,
    /// The tables that the changes drop.
    dropped: HashSet<TableId>,
    /// The storage that the changes make, which no other transaction sees, and which change makes it.
    private: HashMap<HeapId, usize>,
    /// Loads in the order of their records in the packet.
    loads: Vec<TableLoad>,
    /// The storage of these loads.
    loaded: HashSet<HeapId>,
    pub(super) write_counts: WriteCounts,
    pub(super) loaded_rows: LoadedRows,
}

/// How many of a transaction's writes are to rows in each storage. It covers the first `counted` writes, and visits
/// each write once.
#[derive(Default)]
pub(super) struct WriteCounts {
    counted: usize,
    by_heap: HashMap<HeapId, usize>,
}

impl WriteCounts {
    /// How many writes are to rows in this storage.
    pub fn of(&mut self, heap: HeapId, writes: &WriteSet) -> usize {
        for write in &writes.writes()[self.counted..] {
            count_probe();
            *self.by_heap.entry(write.heap).or_default() += 1;
        }
        self.counted = writes.len();
        self.by_heap.get(&heap).copied().unwrap_or_default()
    }

    /// Notes that the last write, to a row in this storage, is taken back; `left` writes remain.
    pub fn take_back(&mut self, heap: HeapId, left: usize) {
        if left < self.counted {
            self.counted = left;
            if let Entry::Occupied(mut count) = self.by_heap.entry(heap) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// The effect of a statement on one table.
pub(super) enum DdlChange {
    Create(Arc<TableVersion>),
    Replace {
        old: Arc<TableVersion>,
        new: Arc<TableVersion>,
        /// Storage that is discarded when this commits.
        replaced: Vec<StoragePart>,
        /// Storage that is discarded when this is taken back.
        created: Vec<StoragePart>,
    },
    Drop(Arc<TableVersion>),
}

/// Gives the memory of storage back. An index of the same identifier may still exist in other storage: a table keeps
/// the identifiers of its indexes when it is emptied.
fn discard(part: &StoragePart, context: &Context) {
    part.discard();
    if let Some(id) = part.index() {
        context.core.locks.forget_intervals(id);
    }
}

/// The same for storage that a committed change replaces by the storage of the table's `next` version, the last that the transaction has made, if there is one.
/// What the locks know of its index goes too, unless that version has the index.
fn retire(part: &StoragePart, next: Option<&TableVersion>, context: &Context) {
    discard(part, context);
    if let Some(id) = part.index()
        && next.is_none_or(|next| !next.has_index(id))
    {
        context.core.locks.forget_index(id);
    }
}

impl DdlChange {
    /// The version of the table before the change, and the one after it.
    fn versions(&self) -> (Option<&Arc<TableVersion>>, Option<&Arc<TableVersion>>) {
        match self {
            DdlChange::Create(new) => (None, Some(new)),
            DdlChange::Replace { old, new, .. } => (Some(old), Some(new)),
            DdlChange::Drop(old) => (Some(old), None),
        }
    }

    /// The table's version after the change; for a dropped table, its last one.
    fn version(&self) -> &Arc<TableVersion> {
        let (old, new) = self.versions();
        new.or(old).expect("a change is about a table")
    }

    /// The change as the catalog sees it.
    fn in_catalog(&self) -> CatalogChange<'_> {
        match self {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => {
                CatalogChange::Put(version)
            }
            DdlChange::Drop(version) => CatalogChange::Remove(version),
        }
    }

    /// About how many bytes it keeps in memory, beside storage, until its transaction has ended. The version of a
    /// dropped table belongs to the catalog, or to an earlier change.
    fn bytes(&self) -> usize {
        let kept = match self {
            DdlChange::Create(new) => new.bytes(),
            DdlChange::Replace { new, replaced, created, .. } => {
                new.bytes() + (replaced.len() + created.len()) * size_of::<StoragePart>()
            }
            DdlChange::Drop(_) => 0,
        };
        size_of::<DdlChange>() + kept
    }

    /// The storage that it makes for the table's rows, if any.
    fn made_heap(&self) -> Option<HeapId> {
        match self {
            DdlChange::Create(version) => Some(version.store.heap()),
            DdlChange::Replace { old, new, .. } => {
                let heap = new.store.heap();
                (old.store.heap() != heap).then_some(heap)
            }
            DdlChange::Drop(_) => None,
        }
    }

    /// Takes the change back. It waits for no lock table: routing rules belong to indexes that a commit has made known,
    /// and these stay.
    pub(super) fn take_back(&self, context: &Context) {
        match self {
            DdlChange::Create(version) => {
                version.retire();
                StoragePart::all_of(version).iter().for_each(|part| discard(part, context));
            }
            DdlChange::Replace { old, new, created, .. } => {
                new.take_back(old);
                created.iter().for_each(|part| discard(part, context));
            }
            DdlChange::Drop(_) => {}
        }
    }
}

impl DdlState {
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// About how many bytes the changes keep in memory beside the tables' storage.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes a change.
    pub(super) fn push(&mut self, change: DdlChange) {
        self.bytes += change.bytes();
        let nth = self.changes.len();
        self.private.extend(change.made_heap().map(|heap| (heap, nth)));
        if let DdlChange::Drop(old) = &change {
            self.dropped.insert(old.id);
        }
        let version = change.version();
        self.by_name.entry(version.name().to_owned()).or_default().push(nth);
        self.by_table.entry(version.id).or_default().push(nth);
        let (old, new) = change.versions();
        self.change_indexes(old, new);
        self.changes.push(change);
    }

    /// Removes the index names of one version of a table and enters those of the other.
    fn change_indexes(&mut self, gone: Option<&Arc<TableVersion>>, there: Option<&Arc<TableVersion>>) {
        if let Some(version) = gone {
            for name in version.schema.index_names() {
                if self.by_index.get(name) == Some(&version.id) {
                    self.by_index.remove(name);
                }
            }
        }
        if let Some(version) = there {
            self.by_index.extend(version.schema.index_names().map(|name| (name.to_owned(), version.id)));
        }
    }

    /// Forgets the last change, which the caller takes back.
    pub(super) fn pop(&mut self) -> Option<DdlChange> {
        let change = self.changes.pop()?;
        self.bytes -= change.bytes();
        if let Some(heap) = change.made_heap() {
            self.private.remove(&heap);
        }
        if let DdlChange::Drop(old) = &change {
            self.dropped.remove(&old.id);
        }
        let version = change.version();
        forget_newest(&mut self.by_name, version.name());
        forget_newest(&mut self.by_table, &version.id);
        let (old, new) = change.versions();
        // A version that was committed is found in the catalog.
        let old = old.filter(|old| self.is_about(old.id));
        self.change_indexes(new, old);
        Some(change)
    }

    /// The loads, in the order of their records in the packet.
    pub(super) fn loads(&self) -> &[TableLoad] {
        &self.loads
    }

    /// Notes a load, whose record is the last in the packet.
    pub(super) fn add_load(&mut self, load: TableLoad) {
        self.loaded.insert(load.store.heap());
        self.loads.push(load);
    }

    /// Whether this storage is being loaded.
    pub(super) fn is_loaded(&self, heap: HeapId) -> bool {
        self.loaded.contains(&heap)
    }

    /// Forgets the loads whose records lie after the packet's present end: the next row begins another load. Their
    /// rows are taken back, or never came.
    pub fn forget_loads(&mut self, packet_end: usize) {
        while let Some(load) = self.loads.pop_if(|load| load.packet_at >= packet_end) {
            self.loaded.remove(&load.store.heap());
        }
    }

    pub fn has_dropped(&self, id: TableId) -> bool {
        self.dropped.contains(&id)
    }

    /// The changes, the newest first.
    fn newest_first(&self) -> impl Iterator<Item = &DdlChange> {
        self.changes.iter().rev().inspect(|_| count_probe())
    }

    /// The answer of this transaction's DDL about a name, if it has one.
    pub fn table(&self, name: &str, catalog: &Catalog) -> Option<Result<Table>> {
        count_probe();
        Some(match self.changes[*self.by_name.get(name)?.last()?].versions().1 {
            Some(version) => Ok(catalog.handle(version.clone())),
            None => Err(Error::NoSuchTable { table: name.to_owned() }),
        })
    }

    /// Whether this transaction's DDL has made, changed or dropped this table.
    pub(super) fn is_about(&self, id: TableId) -> bool {
        count_probe();
        self.by_table.contains_key(&id)
    }

    /// The table that has an index of this name, primary ones included, in a version that this transaction has made.
    pub(super) fn table_of_index(&self, name: &str) -> Option<(&Arc<TableVersion>, WhichIndex)> {
        count_probe();
        let version = self.last_version(*self.by_index.get(name)?)?;
        Some((version, version.schema.index_named(name).ok()?))
    }

    /// The version of a table after the last change of it; none if that drops it.
    fn last_version(&self, id: TableId) -> Option<&Arc<TableVersion>> {
        count_probe();
        self.changes[*self.by_table.get(&id)?.last()?].versions().1
    }

    /// The versions that this transaction has made, the newest first.
    fn made(&self) -> impl Iterator<Item = &Arc<TableVersion>> {
        self.newest_first().filter_map(|change| match change {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => Some(version),
            DdlChange::Drop(_) => None,
        })
    }

    /// The storage of all tables that the changes are about, before and after.
    pub(super) fn stores(&self) -> impl Iterator<Item = &TableStore> {
        self.changes
            .iter()
            .flat_map(|change| match change {
                DdlChange::Create(version) | DdlChange::Drop(version) => [Some(&version.store), None],
                DdlChange::Replace { old, new, .. } => [Some(&old.store), Some(&new.store)],
            })
            .flatten()
    }

    /// Whether no other transaction sees this heap.
    pub(super) fn is_private(&self, heap: HeapId) -> bool {
        self.private.contains_key(&heap)
    }

    /// Whether this heap is made by one of the changes from this one on.
    pub(super) fn is_made_since(&self, heap: HeapId, change: usize) -> bool {
        self.private.get(&heap).is_some_and(|&made| made >= change)
    }

    /// Makes the DDL visible; the writes are applied, and the locks are still held.
    pub fn publish(&self, context: &mut Context, lsn: Lsn) {
        context.core.storage.catalog.note_change(lsn);
        if context.core.commits.names_load_files() {
            context.core.storage.note_load_files(self.loads.iter().map(|load| load.file), lsn);
        }
        // I3: what is present or absent in a newly built index rests on this place.
        for version in self.made() {
            version.floor.fetch_max(lsn.0, Ordering::Relaxed);
        }
        context.core.storage.catalog.change(self.changes.iter().map(DdlChange::in_catalog));
        for change in &self.changes {
            match change {
                DdlChange::Create(_) => {}
                DdlChange::Replace { old, .. } | DdlChange::Drop(old) => old.retire(),
            }
        }
        context.forget_tables = true;
    }

    /// Gives back the storage that the visible DDL has replaced. No record in there is locked any more.
    pub fn discard_replaced(self, context: &Context) {
        for change in &self.changes {
            match change {
                DdlChange::Create(_) => {}
                DdlChange::Replace { new, replaced, .. } => {
                    let last = self.last_version(new.id);
                    replaced.iter().for_each(|part| retire(part, last.map(|last| &**last), context));
                }
                DdlChange::Drop(old) => {
                    StoragePart::all_of(old).iter().for_each(|part| retire(part, None, context));
                }
            }
        }
    }

    /// Drops the DDL of an aborted transaction.
    pub fn discard(self, context: &mut Context) {
        if let Ok(_pass) = context.core.storage.pass_to_load_files() {
            for load in self.loads.iter().filter(|load| load.written != LoadFileIs::Received) {
                context.core.storage.remove_load_file(load.file);
            }
        }
        self.changes.iter().rev().for_each(|change| change.take_back(context));
        context.forget_tables = true;
    }
}

/// Removes the newest change from the list of this name or table.
fn forget_newest<K, Q>(changes: &mut HashMap<K, Vec<usize>>, about: &Q)
where
    K: std::hash::Hash + Eq + std::borrow::Borrow<Q>,
    Q: std::hash::Hash + Eq + ?Sized,
{
    if let Some(list) = changes.get_mut(about) {
        list.pop();
        if list.is_empty() {
            changes.remove(about);
        }
    }
}

#[cfg(test)]
mod tests;
