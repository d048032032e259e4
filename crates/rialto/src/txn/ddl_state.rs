//! [`DdlState`]: the tables that a transaction has made, changed or dropped, until it commits or is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashSet;

use super::bulk_load::Load;
use super::transaction::Context;
use crate::catalog::{Catalog, CatalogChange, Table, TableVersion};
use crate::checkpoint::{Committed, image};
use crate::core::LoadFile;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, Lsn, TableId};
use crate::store::memory::index::Index;
use crate::store::memory::{Heap, RecordRef};

/// A transaction's DDL.
#[derive(Default)]
pub(crate) struct DdlState {
    pub(super) changes: Vec<DdlChange>,
    pub(super) loads: Vec<Load>,
    /// Rows loaded since the first savepoint that is open, so that it can be rolled back to.
    pub(super) direct_rows: Vec<(u32, RecordRef)>,
}

/// What a statement has done to one table.
pub(super) enum DdlChange {
    Create(Arc<TableVersion>),
    Replace {
        old: Arc<TableVersion>,
        new: Arc<TableVersion>,
        /// Storage that goes when this commits.
        replaced: Vec<Part>,
        /// Storage that goes when this is taken back.
        created: Vec<Part>,
    },
    Drop(Arc<TableVersion>),
}

/// Storage of a table.
pub(super) enum Part {
    Heap(Arc<Heap>),
    Index(IndexId, Arc<Index>),
}

impl Part {
    pub(super) fn all_of(version: &TableVersion) -> Vec<Part> {
        let mut parts =
            vec![Part::Heap(version.heap.clone()), Part::Index(version.primary_id, version.primary.clone())];
        for (index, def) in version.secondaries.iter().zip(version.schema.indexes()) {
            parts.push(Part::Index(def.id, index.clone()));
        }
        parts
    }

    /// Gives its memory back. The index of an identifier may be there still, in other storage: a table keeps the identifiers
    /// of its indexes when it is emptied.
    pub(super) fn discard(&self, context: &Context) {
        match self {
            Part::Heap(heap) => heap.clear(),
            Part::Index(id, index) => {
                index.discard();
                context.core.locks.forget_intervals(*id);
            }
        }
    }

    /// The same of storage that a committed change replaces by that of the table's `next` version, if there is one: what is
    /// known of its index goes, too, unless that version has it.
    fn retire(&self, next: Option<&TableVersion>, context: &Context) {
        self.discard(context);
        if let Part::Index(id, _) = self
            && next.is_none_or(|next| !next.has_index(*id))
        {
            context.core.locks.forget_index(*id);
        }
    }
}

impl DdlChange {
    /// What it is to the catalog.
    fn in_catalog(&self) -> CatalogChange<'_> {
        match self {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => {
                CatalogChange::Put(version)
            }
            DdlChange::Drop(version) => CatalogChange::Remove(version),
        }
    }

    /// Takes the change back. It waits for no lock table: routing rules are of indexes that a commit has made known, which stay.
    pub(super) fn take_back(&self, context: &Context) {
        match self {
            DdlChange::Create(version) => {
                version.retire();
                Part::all_of(version).iter().for_each(|part| part.discard(context));
            }
            DdlChange::Replace { old, new, created, .. } => {
                new.take_back(old);
                created.iter().for_each(|part| part.discard(context));
            }
            DdlChange::Drop(_) => {}
        }
    }
}

/// Counts a look at a change, in tests.
#[inline(always)]
fn count_look() {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
}

#[cfg(test)]
thread_local! {
    static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl DdlState {
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    pub fn direct_rows(&self) -> usize {
        self.direct_rows.len()
    }

    /// Forgets the loads whose records lie from here on in the packet, which ends here now: the next row begins another load.
    /// Their rows are taken back, or never came.
    pub fn forget_loads(&mut self, packet_end: usize) {
        self.loads.retain(|load| load.packet_at < packet_end);
    }

    pub fn has_dropped(&self, id: TableId) -> bool {
        self.newest_first().any(|change| matches!(change, DdlChange::Drop(old) if old.id == id))
    }

    /// The changes, the newest first.
    fn newest_first(&self) -> impl Iterator<Item = &DdlChange> {
        self.changes.iter().rev().inspect(|_| count_look())
    }

    /// The tables that this transaction's DDL is about, each as it is now: in a version that the transaction has made, or dropped.
    pub(super) fn tables(&self) -> impl Iterator<Item = (TableId, Option<&Arc<TableVersion>>)> {
        let mut seen = HashSet::new();
        let states = self.newest_first().map(|change| match change {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => {
                (version.id, Some(version))
            }
            DdlChange::Drop(old) => (old.id, None),
        });
        states.filter(move |&(id, _)| seen.insert(id))
    }

    /// What this transaction's DDL says about a name, if it says anything.
    pub fn table(&self, name: &str, catalog: &Catalog) -> Option<Result<Table>> {
        self.newest_first().find_map(|change| match change {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. }
                if version.name() == name =>
            {
                Some(Ok(catalog.handle(version.clone())))
            }
            DdlChange::Drop(old) if old.name() == name => {
                Some(Err(Error::NoSuchTable { table: name.to_owned() }))
            }
            _ => None,
        })
    }

    /// The versions that this transaction has made, the newest first.
    fn made(&self) -> impl Iterator<Item = &Arc<TableVersion>> {
        self.newest_first().filter_map(|change| match change {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => Some(version),
            DdlChange::Drop(_) => None,
        })
    }

    /// The storage of all tables that it is about, before and after.
    pub(super) fn heaps(&self) -> impl Iterator<Item = &Arc<Heap>> {
        self.changes
            .iter()
            .flat_map(|change| match change {
                DdlChange::Create(version) | DdlChange::Drop(version) => [Some(&version.heap), None],
                DdlChange::Replace { old, new, .. } => [Some(&old.heap), Some(&new.heap)],
            })
            .flatten()
    }

    /// Whether nobody else can see this heap.
    pub(super) fn is_private(&self, heap: HeapId) -> bool {
        self.changes.iter().any(|change| match change {
            DdlChange::Create(version) => version.heap.id() == heap,
            DdlChange::Replace { old, new, .. } => new.heap.id() == heap && old.heap.id() != heap,
            DdlChange::Drop(_) => false,
        })
    }

    /// Makes the DDL visible; the writes are applied.
    pub fn publish(self, context: &mut Context, lsn: Lsn) {
        context.core.catalog.note_change(lsn);
        for load in &self.loads {
            context.core.loads.lock().push(LoadFile { number: load.file, committed: Committed::At(lsn) });
        }
        // I3: what is there or absent in an index built anew rests on this place.
        for version in self.made() {
            version.floor.fetch_max(lsn.0, Ordering::Relaxed);
        }
        context.core.catalog.change(self.changes.iter().map(DdlChange::in_catalog));
        for change in &self.changes {
            match change {
                DdlChange::Create(_) => {}
                DdlChange::Replace { old, new, replaced, .. } => {
                    old.retire();
                    replaced.iter().for_each(|part| part.retire(Some(new), context));
                }
                DdlChange::Drop(old) => {
                    old.retire();
                    Part::all_of(old).iter().for_each(|part| part.retire(None, context));
                }
            }
        }
        context.forget_tables = true;
    }

    /// Drops the DDL of an aborted transaction.
    pub fn discard(self, context: &mut Context) {
        for load in &self.loads {
            // It may not have been written, and nothing names it: recovery would remove it.
            let _ = context.core.disk.remove(&image::load_file_name(load.file));
        }
        self.changes.iter().rev().for_each(|change| change.take_back(context));
        context.forget_tables = true;
    }
}

#[cfg(test)]
mod tests {
    use super::LOOKS;
    use crate::io::MemoryDisk;
    use crate::row::{Column, ColumnType};
    use crate::{Checkpointing, Database, Logging, Options, TableDef};

    /// The looks at changes that one more table takes in a transaction that has made so many.
    fn looks_of_a_table_after(tables: usize) -> u64 {
        let options = Options {
            memory_bytes: 64 << 20,
            checkpoint: Checkpointing::None,
            logging: Logging::None,
            ..Options::default()
        };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut tx = db.begin().unwrap();
        let create = |tx: &mut crate::Transaction, nth: usize| {
            let columns = vec![Column::new("id", ColumnType::Int4)];
            tx.create_table(&TableDef::new(format!("t{nth}"), columns).with_primary_key(&["id"])).unwrap();
        };
        (0..tables).for_each(|nth| create(&mut tx, nth));
        let before = LOOKS.get();
        create(&mut tx, tables);
        let looks = LOOKS.get() - before;
        tx.abort().unwrap();
        looks
    }

    #[test]
    fn a_statement_takes_steps_in_proportion_to_the_ones_before() {
        let (few, many) = (looks_of_a_table_after(20), looks_of_a_table_after(160));
        assert!(many <= few * 8 + 100, "{few} looks after 20 tables, {many} after 160");
    }
}
