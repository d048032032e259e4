//! [`DdlState`]: the tables that a transaction has made, changed or dropped, until it commits or is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::bulk_load::Load;
use super::context::Context;
use super::loaded_rows::LoadedRows;
use crate::catalog::{Catalog, CatalogChange, Table, TableVersion};
use crate::commit::write_set::WriteSet;
use crate::error::{Error, Result};
use crate::ids::{HeapId, IndexId, Lsn, TableId};
use crate::looks::count_look;
use crate::row::WhichIndex;
use crate::store::memory::Heap;
use crate::store::memory::LoadFile;
use crate::store::memory::index::Index;
use crate::store::memory::{Committed, image};

/// A transaction's DDL.
#[derive(Default)]
pub(crate) struct DdlState {
    changes: Vec<DdlChange>,
    /// What they keep in memory beside the tables' storage, about.
    bytes: usize,
    /// For each name of a table, and for each table, the changes that are about it, the oldest first.
    by_name: HashMap<String, Vec<usize>>,
    by_table: HashMap<TableId, Vec<usize>>,
    /// The indexes that the tables of the changes have now, primary ones included, by name.
    by_index: HashMap<String, TableId>,
    /// The tables that the changes drop.
    dropped: HashSet<TableId>,
    /// The storage that the changes make, which nobody else can see.
    private: HashSet<HeapId>,
    /// In the order of their records in the packet.
    loads: Vec<Load>,
    /// The storage that they load.
    loaded: HashSet<HeapId>,
    pub(super) write_counts: WriteCounts,
    pub(super) loaded_rows: LoadedRows,
}

/// How many of a transaction's writes are to rows in each storage. It counts the first `counted` writes, and looks at each
/// write once.
#[derive(Default)]
pub(super) struct WriteCounts {
    counted: usize,
    by_heap: HashMap<HeapId, usize>,
}

impl WriteCounts {
    /// How many writes are to rows in this storage.
    pub fn of(&mut self, heap: HeapId, writes: &WriteSet) -> usize {
        for write in &writes.writes()[self.counted..] {
            count_look();
            *self.by_heap.entry(write.heap).or_default() += 1;
        }
        self.counted = writes.len();
        self.by_heap.get(&heap).copied().unwrap_or_default()
    }

    /// The last write, to a row in this storage, is taken back: so many are left.
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
    /// The version of the table before it, and the one after it.
    fn versions(&self) -> (Option<&Arc<TableVersion>>, Option<&Arc<TableVersion>>) {
        match self {
            DdlChange::Create(new) => (None, Some(new)),
            DdlChange::Replace { old, new, .. } => (Some(old), Some(new)),
            DdlChange::Drop(old) => (Some(old), None),
        }
    }

    /// The table as the change leaves it, or as the change has dropped it.
    fn version(&self) -> &Arc<TableVersion> {
        let (old, new) = self.versions();
        new.or(old).expect("a change is about a table")
    }

    /// What it is to the catalog.
    fn in_catalog(&self) -> CatalogChange<'_> {
        match self {
            DdlChange::Create(version) | DdlChange::Replace { new: version, .. } => {
                CatalogChange::Put(version)
            }
            DdlChange::Drop(version) => CatalogChange::Remove(version),
        }
    }

    /// What it keeps in memory until its transaction has ended, beside storage, in bytes, about. The version that a dropped table had
    /// is the catalog's, or of a change before.
    fn bytes(&self) -> usize {
        let kept = match self {
            DdlChange::Create(new) => new.bytes(),
            DdlChange::Replace { new, replaced, created, .. } => {
                new.bytes() + (replaced.len() + created.len()) * size_of::<Part>()
            }
            DdlChange::Drop(_) => 0,
        };
        size_of::<DdlChange>() + kept
    }

    /// The storage that it makes for the table's rows, if it makes some.
    fn made_heap(&self) -> Option<HeapId> {
        match self {
            DdlChange::Create(version) => Some(version.heap.id()),
            DdlChange::Replace { old, new, .. } => {
                let heap = new.heap.id();
                (old.heap.id() != heap).then_some(heap)
            }
            DdlChange::Drop(_) => None,
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

impl DdlState {
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// What the changes keep in memory beside the tables' storage, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes a change.
    pub(super) fn push(&mut self, change: DdlChange) {
        self.bytes += change.bytes();
        self.private.extend(change.made_heap());
        if let DdlChange::Drop(old) = &change {
            self.dropped.insert(old.id);
        }
        let (version, nth) = (change.version(), self.changes.len());
        self.by_name.entry(version.name().to_owned()).or_default().push(nth);
        self.by_table.entry(version.id).or_default().push(nth);
        let (old, new) = change.versions();
        self.change_indexes(old, new);
        self.changes.push(change);
    }

    /// The indexes of one version of a table are no more, those of the other are there.
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
        // A version that was committed is the catalog's to know.
        let old = old.filter(|old| self.is_about(old.id));
        self.change_indexes(new, old);
        Some(change)
    }

    /// The loads, in the order of their records in the packet.
    pub(super) fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Notes a load, whose record is the last one in the packet.
    pub(super) fn add_load(&mut self, load: Load) {
        self.loaded.insert(load.heap.id());
        self.loads.push(load);
    }

    /// Whether this storage is being loaded.
    pub(super) fn is_loaded(&self, heap: HeapId) -> bool {
        self.loaded.contains(&heap)
    }

    /// Forgets the loads whose records lie from here on in the packet, which ends here now: the next row begins another load.
    /// Their rows are taken back, or never came.
    pub fn forget_loads(&mut self, packet_end: usize) {
        while let Some(load) = self.loads.pop_if(|load| load.packet_at >= packet_end) {
            self.loaded.remove(&load.heap.id());
        }
    }

    pub fn has_dropped(&self, id: TableId) -> bool {
        self.dropped.contains(&id)
    }

    /// The changes, the newest first.
    fn newest_first(&self) -> impl Iterator<Item = &DdlChange> {
        self.changes.iter().rev().inspect(|_| count_look())
    }

    /// What this transaction's DDL says about a name, if it says anything.
    pub fn table(&self, name: &str, catalog: &Catalog) -> Option<Result<Table>> {
        count_look();
        Some(match self.changes[*self.by_name.get(name)?.last()?].versions().1 {
            Some(version) => Ok(catalog.handle(version.clone())),
            None => Err(Error::NoSuchTable { table: name.to_owned() }),
        })
    }

    /// Whether this transaction's DDL has made, changed or dropped this table.
    pub(super) fn is_about(&self, id: TableId) -> bool {
        count_look();
        self.by_table.contains_key(&id)
    }

    /// The table that has an index of this name, primary ones included, in a version that this transaction has made.
    pub(super) fn table_of_index(&self, name: &str) -> Option<(&Arc<TableVersion>, WhichIndex)> {
        count_look();
        let version = self.changes[*self.by_table.get(self.by_index.get(name)?)?.last()?].versions().1?;
        Some((version, version.schema.index_named(name).ok()?))
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
        self.private.contains(&heap)
    }

    /// Makes the DDL visible; the writes are applied, and the locks are held.
    pub fn publish(&self, context: &mut Context, lsn: Lsn) {
        context.core.storage.catalog.note_change(lsn);
        if context.core.commits.names_load_files() {
            let written = |load: &Load| LoadFile { number: load.file, committed: Committed::At(lsn) };
            context.core.storage.loads.lock().extend(self.loads.iter().map(written));
        }
        // I3: what is there or absent in an index built anew rests on this place.
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

    /// Gives back the storage that the DDL, which is visible, has replaced. No record in there is locked any more.
    pub fn discard_replaced(self, context: &Context) {
        for change in &self.changes {
            match change {
                DdlChange::Create(_) => {}
                DdlChange::Replace { new, replaced, .. } => {
                    replaced.iter().for_each(|part| part.retire(Some(new), context));
                }
                DdlChange::Drop(old) => {
                    Part::all_of(old).iter().for_each(|part| part.retire(None, context));
                }
            }
        }
    }

    /// Drops the DDL of an aborted transaction.
    pub fn discard(self, context: &mut Context) {
        if let Ok(_pass) = context.core.storage.pass_to_load_files() {
            for load in &self.loads {
                // It may not have been written, and nothing names it: recovery would remove it.
                let _ = context.core.storage.disk.remove(&image::load_file_name(load.file));
            }
        }
        self.changes.iter().rev().for_each(|change| change.take_back(context));
        context.forget_tables = true;
    }
}

/// The newest change is no longer about this.
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
mod tests {
    use crate::io::MemoryDisk;
    use crate::looks::LOOKS;
    use crate::row::{Column, ColumnType, Value};
    use crate::{Checkpointing, Database, Error, Logging, Options, Table, TableDef, Transaction};

    fn open() -> Database {
        open_with(Options::default())
    }

    fn open_with(options: Options) -> Database {
        let (checkpoint, logging) = (Checkpointing::None, Logging::None);
        let options = Options { memory_bytes: 64 << 20, checkpoint, logging, ..options };
        Database::open_on(MemoryDisk::new(), options).unwrap()
    }

    fn create(tx: &mut Transaction, nth: usize) -> Table {
        let columns = vec![Column::new("id", ColumnType::Int4)];
        tx.create_table(&TableDef::new(format!("t{nth}"), columns).with_primary_key(&["id"])).unwrap()
    }

    fn insert(tx: &mut Transaction, table: &Table, ids: std::ops::Range<i32>) {
        ids.for_each(|id| tx.insert(table, &[Value::Int4(id)]).unwrap());
    }

    /// The looks at changes that one more table takes in a transaction that has made so many.
    fn looks_of_a_table_after(tables: usize) -> u64 {
        let db = open();
        let mut tx = db.begin().unwrap();
        (0..tables).for_each(|nth| drop(create(&mut tx, nth)));
        let before = LOOKS.get();
        create(&mut tx, tables);
        let looks = LOOKS.get() - before;
        tx.abort().unwrap();
        looks
    }

    #[test]
    fn a_definition_takes_a_few_looks_whatever_came_before() {
        let (few, many) = (looks_of_a_table_after(20), looks_of_a_table_after(160));
        assert!(many <= few + 10, "{few} looks after 20 tables, {many} after 160");
    }

    /// A name of an index is taken as long as its table has the index, in the versions that the transaction sees.
    #[test]
    fn a_name_of_an_index_is_free_when_its_table_has_it_no_more() {
        let db = open();
        let mut tx = db.begin().unwrap();
        (0..2).for_each(|nth| drop(create(&mut tx, nth)));
        tx.create_index("t0", "i", &["id"], false).unwrap();
        tx.commit().unwrap();

        let mut tx = db.begin().unwrap();
        let is_taken = |tx: &mut Transaction, table: &str| {
            matches!(tx.create_index(table, "i", &["id"], false), Err(Error::NameTaken { .. }))
        };
        assert!(is_taken(&mut tx, "t1"));
        let before = tx.savepoint();
        tx.drop_index("i").unwrap();
        assert!(!is_taken(&mut tx, "t1"));
        assert!(is_taken(&mut tx, "t0"));
        let moved = tx.savepoint();
        tx.drop_table("t1").unwrap();
        assert!(!is_taken(&mut tx, "t0"));
        tx.rollback_to(&moved).unwrap();
        assert!(is_taken(&mut tx, "t0"), "t1 is back, with its index");
        tx.rollback_to(&before).unwrap();
        assert!(is_taken(&mut tx, "t1"), "t0 has its index again");
        tx.drop_index("i").unwrap();
        assert!(!is_taken(&mut tx, "t1"));
        tx.commit().unwrap();

        let mut tx = db.begin().unwrap();
        assert!(is_taken(&mut tx, "t0"));
        tx.drop_table("t1").unwrap();
        assert!(!is_taken(&mut tx, "t0"));
        tx.commit().unwrap();
        assert!(is_taken(&mut db.begin().unwrap(), "t0"));
    }

    #[test]
    fn loaded_rows_are_listed_only_while_a_savepoint_is_open() {
        let db = open();
        let mut tx = db.begin().unwrap();
        let table = create(&mut tx, 0);
        insert(&mut tx, &table, 0..300);
        let [first, second] = [300, 400].map(|from| {
            let savepoint = tx.savepoint();
            insert(&mut tx, &table, from..from + 100);
            savepoint
        });
        tx.release_savepoint(second).unwrap();
        assert_ne!(bytes_of_runs(&mut tx), 0, "the first one may be rolled back to");
        tx.release_savepoint(first).unwrap();
        assert_eq!(bytes_of_runs(&mut tx), 0);
        let savepoint = tx.savepoint();
        insert(&mut tx, &table, 500..600);
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(tx.count(&table).unwrap(), 500);
        tx.commit().unwrap();
    }

    /// The list of loaded rows grows by the segments that they fill, of which a small row takes a 2,000th part, also where the loads
    /// of some tables take turns, and where the slots are those that a rollback has freed.
    #[test]
    fn loaded_rows_are_listed_by_the_segments_that_they_fill() {
        let db = open();
        let mut tx = db.begin().unwrap();
        let tables: Vec<Table> = (0..3).map(|nth| create(&mut tx, nth)).collect();
        tables.iter().for_each(|table| insert(&mut tx, table, 0..256));
        let outer = tx.savepoint();
        for round in 0..3 {
            insert(&mut tx, &tables[0], 1_000..21_000);
            insert(&mut tx, &tables[1], 500..510);
            let inner = tx.savepoint();
            for id in 30_000..40_000 {
                tables.iter().for_each(|table| insert(&mut tx, table, id..id + 1));
            }
            let bytes = bytes_of_runs(&mut tx);
            assert!((16..800).contains(&bytes), "{bytes} bytes in round {round}");
            let mut rows = [30_256, 10_266, 10_256];
            if round == 0 {
                tx.release_savepoint(inner).unwrap();
            } else {
                tx.rollback_to(&inner).unwrap();
                rows = [20_256, 266, 256];
            }
            let counted = [0, 1, 2].map(|nth: usize| tx.count(&tables[nth]).unwrap());
            assert_eq!(counted, rows, "round {round}");
            tx.rollback_to(&outer).unwrap();
            assert_eq!(bytes_of_runs(&mut tx), 0);
            tables.iter().for_each(|table| assert_eq!(tx.count(table), Ok(256)));
        }
        tx.commit().unwrap();
    }

    /// A savepoint around each row of a load leaves one run, whose rows are taken back from where a savepoint was made.
    #[test]
    fn savepoints_do_not_cut_runs() {
        let db = open();
        let mut tx = db.begin().unwrap();
        let table = create(&mut tx, 0);
        insert(&mut tx, &table, 0..300);
        let outer = tx.savepoint();
        for id in 300..1_000 {
            let savepoint = tx.savepoint();
            insert(&mut tx, &table, id..id + 1);
            tx.release_savepoint(savepoint).unwrap();
        }
        assert_eq!(bytes_of_runs(&mut tx), 16);
        let [middle, last] = [1_000, 1_100].map(|from| {
            let savepoint = tx.savepoint();
            insert(&mut tx, &table, from..from + 100);
            savepoint
        });
        assert_eq!(bytes_of_runs(&mut tx), 16);
        let count = |tx: &mut Transaction| tx.count(&table).unwrap();
        tx.rollback_to(&last).unwrap();
        assert_eq!(count(&mut tx), 1_100);
        tx.rollback_to(&middle).unwrap();
        assert_eq!(count(&mut tx), 1_000);
        insert(&mut tx, &table, 2_000..2_010);
        tx.rollback_to(&middle).unwrap();
        assert_eq!(count(&mut tx), 1_000);
        assert_eq!(tx.get(&table, 999).unwrap().map(|row| row.view().values()), Some(vec![Value::Int4(999)]));
        tx.rollback_to(&outer).unwrap();
        assert_eq!(count(&mut tx), 300);
        tx.commit().unwrap();
        assert_eq!(db.transact(|tx| tx.count(&table)), Ok(300));
    }

    /// Behind savepoint after savepoint, rows of two tables by turns begin a run each time. What the runs take is bounded.
    #[test]
    fn runs_of_loaded_rows_are_bounded() {
        let limit = 4 * 10_000;
        let db = open_with(Options { write_set_bytes_max: 10_000, ..Options::default() });
        let mut tx = db.begin().unwrap();
        let mut tables = Vec::new();
        for nth in 0..2 {
            tables.push(create(&mut tx, nth));
            insert(&mut tx, &tables[nth], 0..256);
        }
        let savepoint = tx.savepoint();
        let mut refused = None;
        for id in 10_000..16_000 {
            let each = tx.savepoint();
            let inserted = tables.iter().try_for_each(|table| tx.insert(table, &[Value::Int4(id)]));
            if let Err(error) = inserted {
                tx.rollback_to(&each).unwrap();
                refused = Some(error);
                break;
            }
            tx.release_savepoint(each).unwrap();
        }
        let Some(Error::WriteSetTooLarge { length, limit: told }) = refused else { panic!("{refused:?}") };
        assert!(told == limit && (limit..limit + 32).contains(&length), "{length} of {told}");
        assert!(bytes_of_runs(&mut tx) <= limit + 32);
        tx.release_savepoint(savepoint).unwrap();
        tables.iter().for_each(|table| insert(&mut tx, table, 5_000..6_000));
        let rows = tx.count(&tables[0]).unwrap();
        assert!(rows > 256 + 1_000 + limit as u64 / 32 - 10, "{rows}");
        tx.commit().unwrap();
    }

    fn bytes_of_runs(tx: &mut Transaction) -> usize {
        tx.context().ddl().loaded_rows.bytes()
    }

    /// However many tables, and rows in them, the transaction has made before.
    #[test]
    fn a_row_of_a_new_table_takes_a_few_looks() {
        let db = open();
        let mut tx = db.begin().unwrap();
        let mut made = Vec::new();
        for nth in 0..100 {
            made.push(create(&mut tx, nth));
            let drops = nth % 4 == 0;
            insert(&mut tx, &made[nth], 0..20);
            if drops {
                tx.drop_table(&format!("t{nth}")).unwrap();
            }
        }
        let before = LOOKS.get();
        for table in [&made[1], &made[98], &made[99]] {
            insert(&mut tx, table, 20..30);
        }
        let looks = LOOKS.get() - before;
        assert!(looks < 100, "{looks} looks for 30 rows");
    }

    /// Takes each kind of definition back to a savepoint many times. The list of tables keeps one version of each table, and the
    /// transaction works on the table as it was at the savepoint.
    #[test]
    fn definitions_that_are_taken_back_leave_no_versions_behind() {
        let db = open();
        let columns = ["id", "n"].map(|name| Column::new(name, ColumnType::Int4)).to_vec();
        let row = |id| [Value::Int4(id), Value::Int4(id % 2)];
        db.transact(|tx| {
            let table = tx.create_table(&TableDef::new("kept", columns.clone()))?;
            tx.create_index("kept", "by_n", &["n"], false)?;
            (0..10).try_for_each(|id| tx.insert(&table, &row(id)))
        })
        .unwrap();
        type Statement = fn(&mut Transaction, &Table);
        let statements: [(&str, Statement); 6] = [
            ("truncate", |tx, table| tx.truncate(table).unwrap()),
            ("create table", |tx, _| drop(create(tx, 0))),
            ("drop table", |tx, _| tx.drop_table("kept").unwrap()),
            ("create index", |tx, _| tx.create_index("kept", "other", &["id"], false).unwrap()),
            ("drop index", |tx, _| tx.drop_index("by_n").unwrap()),
            ("add primary key", |tx, _| tx.add_primary_key("kept", &["id"]).unwrap()),
        ];
        for (what, statement) in statements {
            // In the first case the table comes into the list behind the savepoint, in the others it is there before.
            for made_before in [false, true] {
                let table = db.table("kept").unwrap();
                let mut tx = db.begin().unwrap();
                if made_before {
                    tx.truncate(&table).unwrap();
                    insert_all(&mut tx, &table, 20..25, row);
                }
                let savepoint = tx.savepoint();
                let mut listed = 0;
                for round in 0..20 {
                    statement(&mut tx, &table);
                    if what != "drop table" {
                        insert_all(&mut tx, &table, 30..32, row);
                    }
                    tx.rollback_to(&savepoint).unwrap();
                    let rows = if made_before { 5 } else { 10 };
                    assert_eq!(tx.count(&table), Ok(rows), "{what}, round {round}");
                    let now = tx.context().tables.len();
                    if round == 1 {
                        listed = now;
                    }
                    assert!(round < 2 || now == listed, "{what}: {listed} versions, {now} in round {round}");
                }
                insert_all(&mut tx, &table, 40..43, row);
                tx.commit().unwrap();
                let rows = db.transact(|tx| tx.count(&table)).unwrap();
                assert_eq!(rows, if made_before { 8 } else { 13 }, "{what}");
                db.transact(|tx| {
                    tx.truncate(&table)?;
                    (0..10).try_for_each(|id| tx.insert(&table, &row(id)))
                })
                .unwrap();
            }
        }
    }

    fn insert_all(
        tx: &mut Transaction,
        table: &Table,
        ids: std::ops::Range<i32>,
        row: fn(i32) -> [Value; 2],
    ) {
        ids.for_each(|id| tx.insert(table, &row(id)).unwrap());
    }

    /// A new primary key writes the transaction's rows once more, for which there is no room here.
    #[test]
    fn a_definition_that_fails_leaves_no_version_behind() {
        let db = open_with(Options { write_set_bytes_max: 2_000, ..Options::default() });
        let columns = vec![Column::new("id", ColumnType::Int4)];
        let table = db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()))).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &table, 0..50);
        let mut listed = None;
        for _ in 0..10 {
            let refused = tx.add_primary_key("t", &["id"]);
            assert!(matches!(refused, Err(Error::WriteSetTooLarge { .. })), "{refused:?}");
            let now = tx.context().tables.len();
            assert_eq!(*listed.get_or_insert(now), now);
        }
        assert_eq!(tx.count(&table), Ok(50));
        tx.commit().unwrap();
    }

    /// What the transaction has read of a table under a lock on the whole of it has its colour by the version in the list.
    #[test]
    fn a_table_that_was_locked_behind_a_savepoint_stays_in_the_list() {
        let db = open();
        let tables = db.transact(|tx| Ok([create(tx, 0), create(tx, 1)])).unwrap();
        let mut tx = db.begin().unwrap();
        let savepoint = tx.savepoint();
        for table in &tables {
            tx.truncate(table).unwrap();
        }
        tx.rollback_to(&savepoint).unwrap();
        for table in &tables {
            let tables = &tx.context().tables;
            let slot = tables.find(table.id()).expect("the table is locked still");
            assert!(!tables.at(slot).is_retired());
        }
    }

    /// A load begins behind the same number of rows in the packet, whatever was rolled back before.
    #[test]
    fn rows_that_are_taken_back_do_not_count_for_a_load() {
        let db = open();
        let mut tx = db.begin().unwrap();
        let tables = [create(&mut tx, 0), create(&mut tx, 1)];
        let loads = |tx: &mut Transaction| tx.context().ddl.as_ref().unwrap().loads().len();
        tables.iter().for_each(|table| insert(&mut tx, table, 0..200));
        let savepoint = tx.savepoint();
        for (round, rows) in [(0, 50), (1, 100), (2, 400)] {
            insert(&mut tx, &tables[0], 200..200 + rows);
            assert_eq!(loads(&mut tx), usize::from(round > 0), "round {round}");
            tx.rollback_to(&savepoint).unwrap();
            assert_eq!(loads(&mut tx), 0, "round {round}");
        }
        for (table, begun) in tables.iter().zip(1..) {
            insert(&mut tx, table, 200..256);
            assert_eq!(loads(&mut tx), begun - 1);
            insert(&mut tx, table, 256..300);
            assert_eq!(loads(&mut tx), begun);
        }
        tx.commit().unwrap();
        let rows = |table| db.transact(|tx| tx.count(table)).unwrap();
        assert_eq!([rows(&tables[0]), rows(&tables[1])], [300, 300]);
    }
}
