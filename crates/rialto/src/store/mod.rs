//! The store: the tables of an open database, and the one interface behind which their rows and index entries lie.
//!
//! - [`Storage`]: what all tables share: the directory, the memory, the [`Catalog`], and what commits and sweeps tell
//!   each other ([`Painting`]).
//! - [`Table`]: a table by handle; [`TableVersion`]: a table between two definitions.
//! - [`TableStore`]: **the interface.** Transactions and commits (`txn/`, `commit/`, `engine/`) reach rows and entries
//!   only by its methods and those of [`Storage`]. They name a row's location by a [`RowLocation`].
//! - [`memory`]: the memory-resident store. Outside this folder only checkpoints, recovery, backups and the opening
//!   know it, because they work on its segments. The test `arrows.rs` holds that.
//!
//! - [`paged`]: the disk-resident store: trees of pages.
//!
//! # Two stores
//!
//! A table is in one of them ([`Residence`](crate::Residence)). They differ in what transactions can rely on, so operations
//! on disk-resident tables are in a file of their own (`txn/pages.rs`):
//!
//! - **Locations.** In memory a slot stays a row's while an entry leads to it, and names the row. A row in a page is named by its
//!   primary key; its location says which of its bodies it is.
//! - **Misses.** Any operation on pages may read the disk, and fail with it. Memory never misses.
//! - **A commit does not miss, nor does an abort** (I10): operations *claim* what these will change, and a page with a claim
//!   stays in memory (`paged/paged_table.rs`).
//! - **Locks.** A row in memory may be locked in its own word ([`TableStore::lock_word`]). A row in a page has none, and is
//!   locked by the name of its primary key, whatever form locks have. It is never read without a lock.
//! - **Validation.** [`Leaf`] and [`Vacancy`] are a node and its version, in both stores.
//! - **Checkpoints.** A sweep copies segments ([`SegmentId`]), and a black/white one has them on two sides. Pages have no side:
//!   their checkpoint is a state at one place, of its own (`paged/disk_tables.rs`), and redo of each store begins at its
//!   own place.

pub(crate) mod budget;
mod catalog;
mod index_entries;
mod location;
mod material;
pub mod memory;
pub(crate) mod paged;
mod painting;
mod prefetch;
mod prefetched;
mod region;
mod storage;
mod table;
mod table_store;
#[cfg(test)]
mod tests;
pub mod tree;
mod watched_tables;

pub use budget::Budget;
pub(crate) use catalog::{Catalog, CatalogChange};
#[cfg(test)]
pub(crate) use index_entries::PUT_AT_ONCE;
pub(crate) use index_entries::{IndexEntries, NotBuilt};
pub use location::{Claims, RowLocation};
pub(crate) use material::Material;
pub use memory::LoadFileBytes;
pub use memory::SegmentId;
pub(crate) use memory::load_file::{load_file_name, load_file_number};
pub(crate) use memory::{BodyWords, LoadMark, LoadedRows};
pub use paged::PageStats;
pub use painting::{Consistency, Paint, Painting};
pub(crate) use prefetch::TOGETHER;
pub(crate) use prefetched::Prefetched;
pub(crate) use storage::Storage;
#[cfg(test)]
pub(crate) use table::AFTER_FOLLOWING;
pub use table::Table;
pub(crate) use table::{Followed, ROW_NUMBER_BYTES, TableParts, TableVersion};
pub(crate) use table_store::{Entered, IndexStorage, SeenRow, StoragePart, TableStore, Unlocked};
pub use tree::Direction;
pub(crate) use tree::{Admit, Batch, Found, Guard, InsertRow, Leaf, More, ScanRange, Vacancy};
pub(crate) use watched_tables::{ChangedRows, WatchedTables};
