//! A table as transactions see it: one immutable version, which DDL replaces.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;

use super::paged::PageAccess;
use super::{RowLocation, TableStore};
use crate::catalog::{Residence, RowNumbers};
use crate::error::Result;
use crate::ids::{IndexId, Lsn, TableId};
use crate::opening::{Opening, TableKey};
use crate::row::{Schema, WhichIndex};

/// The bytes before the row in the body of a record that carries its hidden row number.
pub(crate) const ROW_NUMBER_BYTES: usize = 8;

/// One version of a table: its [parts](TableParts), which never change, and whether it is still in force.
///
/// A version is used only under a lock on its table, and DDL replaces versions only under an exclusive lock. So a
/// version that is found in force under the lock stays in force until the lock is released.
pub(crate) struct TableVersion {
    parts: TableParts,
    retired: AtomicBool,
    /// Leads to the version in force once this version is taken back.
    link: Arc<Link>,
}

impl Deref for TableVersion {
    type Target = TableParts;

    #[inline(always)]
    fn deref(&self) -> &TableParts {
        &self.parts
    }
}

/// Leads from a version that was taken back to the version in force: from link to link, each of the version that the
/// previous one had replaced. It keeps no version alive, and still works when the versions in between are gone.
#[derive(Default)]
struct Link {
    /// The version of this link, once another version was taken back to it.
    version: OnceLock<Weak<TableVersion>>,
    /// The link of the version that this one replaced, once this version was taken back, too.
    before: OnceLock<Arc<Link>>,
}

impl Drop for Link {
    /// Drops the links of a chain in a loop, however many there are; a recursive drop could overflow the stack.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut link) = before.and_then(Arc::into_inner) {
            before = link.before.take();
        }
    }
}

/// What all versions of one table share: where the committed version is. A version leads to another version only by
/// this, or, once it was taken back, by its [`Link`]; neither keeps a version alive. So a holder of a table keeps one
/// version at most, whatever has become of the table since.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    committed: RwLock<Weak<TableVersion>>,
}

/// The parts of a version. The next version is built from a changed copy.
#[derive(Clone)]
pub(crate) struct TableParts {
    pub id: TableId,
    pub schema: Arc<Schema>,
    /// The index of the rows' identity: of the primary key, or of the hidden row number.
    pub primary_id: IndexId,
    /// Whether bodies begin with a hidden row number. This is true for good in a table that was created without a key.
    pub numbered: bool,
    /// The share of each segment that inserts fill.
    pub fill_percent: u8,
    /// Where its rows and index entries lie.
    pub store: TableStore,
    pub numbers: Arc<RowNumbers>,
    /// The least place that any read of the table depends on, the read of an absence included (I3): the place of the
    /// last DDL that made the table what it is. The rows of a bulk load do not carry it, and an emptied table has no
    /// leaf that could.
    pub floor: Arc<AtomicU64>,
    /// Shared by the table's versions.
    pub lineage: Arc<Lineage>,
}

/// Where an index entry leads ([`TableVersion::read_by_entry`]).
pub(crate) struct Followed {
    /// Where the row lies; none if there is no such entry.
    pub record: Option<RowLocation>,
    /// What a reader of the row depends on (I3).
    pub lsn: Lsn,
    /// The place of the last removal beside the entry.
    pub removal: Lsn,
    /// Whether there is a row. If not, the body is the primary key that is being inserted.
    pub there: bool,
}

#[cfg(test)]
thread_local! {
    /// Called when this thread has followed its next entry and released the latch.
    pub(crate) static AFTER_FOLLOWING: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

impl TableVersion {
    pub fn new(parts: TableParts) -> TableVersion {
        debug_assert_eq!(parts.schema.indexes().len(), parts.store.secondaries());
        TableVersion { parts, retired: AtomicBool::new(false), link: Arc::default() }
    }

    /// The parts, to build the next version from.
    pub fn parts(&self) -> TableParts {
        self.parts.clone()
    }

    pub fn name(&self) -> &str {
        self.schema.table()
    }

    /// About how many bytes of memory the version takes beside its storage.
    pub fn bytes(&self) -> usize {
        size_of::<TableVersion>() + self.schema.indexes().len() * size_of::<Arc<()>>() + self.schema.bytes()
    }

    /// Bytes of a record's body that come before the row.
    pub fn row_at(&self) -> usize {
        if self.numbered { ROW_NUMBER_BYTES } else { 0 }
    }

    /// The row number of the record whose body is `body`; 0 in a table without row numbers.
    pub fn row_number(&self, body: &[u8]) -> u64 {
        if self.numbered {
            u64::from_le_bytes(body[..ROW_NUMBER_BYTES].try_into().expect("eight bytes"))
        } else {
            0
        }
    }

    /// Reads the body that an index entry leads to, of a row that is not locked: everything that the caller needs of
    /// it.
    pub fn read_by_entry(
        &self,
        by: &PageAccess,
        which: WhichIndex,
        entry: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Followed> {
        let mut followed = self.store.follow(by, which, entry, body)?;
        if followed.record.is_some() {
            followed.lsn = followed.lsn.max(self.floor());
        }
        #[cfg(test)]
        AFTER_FOLLOWING.take().into_iter().for_each(|happens| happens());
        Ok(followed)
    }

    pub fn index_id(&self, which: WhichIndex) -> IndexId {
        match which {
            WhichIndex::Primary => self.primary_id,
            WhichIndex::Secondary(position) => self.schema.indexes()[position].id,
        }
    }

    /// Whether one of its indexes has this identifier.
    pub fn has_index(&self, id: IndexId) -> bool {
        self.primary_id == id || self.schema.indexes().iter().any(|index| index.id == id)
    }

    pub fn floor(&self) -> Lsn {
        Lsn(self.floor.load(Ordering::Relaxed))
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Retires a version that a transaction has made, in favour of the version that it replaced.
    pub fn take_back(&self, before: &Arc<TableVersion>) {
        before.link.version.get_or_init(|| Arc::downgrade(before));
        let first = self.link.before.set(before.link.clone()).is_ok();
        debug_assert!(first, "a version is taken back once");
        self.retire();
    }

    /// The version in force in place of this one, which may be retired. For a version that was taken back it is the
    /// nearest earlier version that was not taken back, if that one is in force, which its transaction may have made as
    /// well; otherwise it is the committed version. If the table exists no more it is this version itself.
    fn in_force(self: Arc<TableVersion>) -> Arc<TableVersion> {
        if !self.is_retired() {
            return self;
        }
        let mut link = &self.link;
        while let Some(before) = link.before.get() {
            link = before;
        }
        let kept = link.version.get().and_then(Weak::upgrade).filter(|version| !version.is_retired());
        kept.or_else(|| self.lineage.committed.read().upgrade()).unwrap_or(self)
    }

    /// Makes this the table's committed version, to which the handles of retired versions move on.
    pub(super) fn become_committed(self: &Arc<TableVersion>) {
        *self.lineage.committed.write() = Arc::downgrade(self);
    }
}

/// A handle of a table. It is cheap to clone, and stays valid when other transactions change the table by DDL.
/// Operations on it use the table's current version.
///
/// It is valid until its database is closed: transactions of another database, or of a later opening, refuse it
/// ([`Error::ForeignHandle`](crate::Error::ForeignHandle)).
#[derive(Clone)]
pub struct Table {
    inner: Arc<TableHandle>,
}

struct TableHandle {
    key: TableKey,
    current: RwLock<Arc<TableVersion>>,
}

impl Table {
    pub(super) fn new(opening: Opening, version: Arc<TableVersion>) -> Table {
        let key = opening.key(version.id);
        Table { inner: Arc::new(TableHandle { key, current: RwLock::new(version) }) }
    }

    /// The table's version as last committed. For a handle from a transaction's own DDL it is the version that this
    /// transaction made.
    pub(crate) fn version(&self) -> Arc<TableVersion> {
        let seen = self.inner.current.read().clone();
        if !seen.is_retired() {
            return seen;
        }
        let in_force = seen.clone().in_force();
        let mut current = self.inner.current.write();
        // The catalog's own handle keeps the committed version, and has moved on to a later one if there is one.
        if Arc::ptr_eq(&current, &seen) {
            *current = in_force.clone();
        }
        in_force
    }

    pub(crate) fn replace(&self, version: Arc<TableVersion>) {
        *self.inner.current.write() = version;
    }

    /// Makes an empty table, with no transaction in it, a disk-resident one, in a pool of so many frames.
    #[cfg(test)]
    pub(crate) fn move_to_pages(&self, frames: u64) {
        let old = self.version();
        assert_eq!(old.store.rows(), 0, "only an empty table moves");
        let indexes: Vec<IndexId> = old.schema.indexes().iter().map(|index| index.id).collect();
        let pages = super::paged::table_for_tests(old.store.heap(), &indexes, frames);
        let store = TableStore::in_pages(pages);
        let new = Arc::new(TableVersion::new(TableParts { store, ..old.parts() }));
        new.become_committed();
        self.replace(new);
        old.retire();
    }

    /// The table's identifier.
    pub fn id(&self) -> TableId {
        self.inner.key.id()
    }

    /// The same, with the opening of the handle.
    #[inline(always)]
    pub(crate) fn key(&self) -> TableKey {
        self.inner.key
    }

    /// The table's name.
    pub fn name(&self) -> String {
        self.version().name().to_owned()
    }

    /// The table's columns, keys and indexes as last committed.
    pub fn schema(&self) -> Arc<Schema> {
        self.version().schema.clone()
    }

    /// Where its rows are kept.
    pub fn residence(&self) -> Residence {
        match self.version().store.pages() {
            Some(_) => Residence::Disk,
            None => Residence::Memory,
        }
    }

    /// The number of rows. Rows of transactions that are committing may be counted or not.
    pub fn rows_estimate(&self) -> u64 {
        self.version().store.rows()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} {:?})", self.id().0, self.name())
    }
}
