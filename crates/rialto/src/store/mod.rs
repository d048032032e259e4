//! The store: the tables of an open database, and the one seam behind which their rows and index entries lie.
//!
//! - [`Storage`]: what all tables share: directory, memory, [`Catalog`], what commits and sweeps tell each other ([`Painting`]).
//! - [`Table`]: a table by handle; [`TableVersion`]: what it is between two definitions.
//! - [`TableStore`]: **the seam.** Transactions and commits (`txn/`, `commit/`, `engine/`) reach rows and entries by its methods, and by
//!   those of [`Storage`], and by nothing else. Where a row lies they know as a [`RowLocation`].
//! - [`memory`]: the memory-resident store. Outside this folder only checkpoints, recovery, backups and the opening know it, which go
//!   through its segments. The test `arrows.rs` holds that.
//!
//! # A second store
//!
//! All tables are memory-resident, so [`TableStore`] is a struct around that store: in an enum of one variant every method would have a
//! `match` that chooses nothing. A table of pages makes it an enum, which each of its methods matches once;
//! [`MemoryTable`](memory::MemoryTable) is the first variant. Most signatures allow for that:
//!
//! - **A location is 8 bytes and tells its store**: a record's number takes 48 bits. A slot in memory stays a row's while an entry leads
//!   to it, so a location is the row. Of a page it is a hint, from which a commit finds the row again by its key. So `put`, `patch`,
//!   `operate` and `release` are also given the key, which the redo record has. What compares locations (`repoint_own`, `remove_own`, the
//!   slots that `commit/apply.rs` collects, the answer to `enter`) compares rows by their keys there, since two hints of a row may differ.
//! - **A read can miss.** The answers of `find`, `find_in_line`, `read_leaf`, `follow`, `row`, `read`, `read_unlocked`, `reserve`,
//!   `reserve_near`, `enter` and `enter_at` become a *hit*, with what they are now, or a *miss*, with the page that is not in memory.
//!   An operation that misses gives back its latches, has the page read, and asks again. Memory always hits.
//!   The row that `row` gives is read as long as it is borrowed, by [`Fields`](crate::Fields) too: a hit of a page keeps the page pinned.
//! - **A commit does not miss** (`put`, `patch`, `operate`, `repoint_own`, `remove_own`, `release`, `count_rows`), nor does an abort
//!   (`repoint`, `take_back`): the operations before have reserved, or pinned, what these need (I10).
//! - **Locks**: [`TableStore::lock_word`] gives the word in which a row is locked where it lies, or none; without a word the row is locked
//!   by name, as absent keys are: that of its primary key. Transactions ask [`LockManager`](crate::isolate::LockManager) whether locks
//!   are kept in records, for all tables; they have to ask each table, because an entry of a secondary index does not tell that name before
//!   it is followed. The trait [`Claims`] is about slots with such words.
//! - **Validation**: [`Leaf`] and [`Vacancy`] are a node and its version. [`SeenRow`] needs a version of the row; a store without such
//!   a word answers [`Unlocked::Locked`], and the transaction runs again with locks.
//! - **Sweeps**: a [`SegmentId`] is what a sweep copies at one time and what has a side of a black/white sweep. Pages have no side: such a
//!   sweep is refused beside them. A copy for a sweep at a cut is promised before the commit's place ([`Storage::promise_copies`]), of
//!   a page as of a segment.

pub(crate) mod budget;
mod catalog;
mod index_entries;
mod location;
mod material;
pub mod memory;
mod painting;
mod prefetch;
mod prefetched;
mod storage;
mod table;
mod table_store;
#[cfg(test)]
mod tests;

pub use budget::Budget;
pub(crate) use catalog::{Catalog, CatalogChange};
#[cfg(test)]
pub(crate) use index_entries::PUT_AT_ONCE;
pub(crate) use index_entries::{IndexEntries, NotBuilt};
pub use location::{Claims, RowLocation};
pub(crate) use material::Material;
pub use memory::SegmentId;
pub use memory::index::Direction;
pub(crate) use memory::index::{Admit, Batch, Found, Guard, Leaf, More, ScanRange, Vacancy};
pub(crate) use memory::load_file::{load_file_name, load_file_number};
pub(crate) use memory::{BodyWords, LoadMark, LoadedRows};
pub use painting::{Consistency, Paint, Painting};
pub(crate) use prefetch::TOGETHER;
pub(crate) use prefetched::Prefetched;
pub(crate) use storage::Storage;
#[cfg(test)]
pub(crate) use table::AFTER_FOLLOWING;
pub use table::Table;
pub(crate) use table::{Followed, ROW_NUMBER_BYTES, TableParts, TableVersion};
pub(crate) use table_store::{Entered, IndexStorage, SeenRow, StoragePart, TableStore, Unlocked};
