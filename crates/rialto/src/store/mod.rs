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
//! # A second store
//!
//! All tables are memory-resident, so [`TableStore`] is a struct with a [`MemoryTable`](memory::MemoryTable) in it.
//! With tables of pages (not built) it would be an enum of two variants, and each of its methods one `match`. This list
//! says what the methods would have to return then. Most signatures allow for it already.
//!
//! - **A location is 8 bytes and tells which store it belongs to**: a record's number takes 48 bits. In memory a slot
//!   stays a row's while an entry leads to it, so a location is the row. For a page it is a hint, from which a commit
//!   finds the row again by its key. Therefore `put`, `patch`, `operate` and `release` are then also given the key,
//!   which the redo record has. Code that compares locations today (`repoint_own`, `remove_own`, the slots that
//!   `commit/apply.rs` collects, the answer to `enter`) then compares keys, since two hints to one row may differ.
//! - **A read can miss.** The answers of `find`, `find_in_line`, `read_leaf`, `follow`, `row`, `read`, `read_unlocked`,
//!   `reserve`, `reserve_near`, `enter` and `enter_at` become either a *hit*, with the present answer, or a *miss*,
//!   with the page that is not in memory. An operation that misses gives back its latches, has the page read, and asks
//!   again. Memory always hits. The row that `row` gives is read as long as it is borrowed, by
//!   [`Fields`](crate::Fields) too; therefore a hit keeps its page pinned.
//! - **A commit does not miss** (`put`, `patch`, `operate`, `repoint_own`, `remove_own`, `release`, `count_rows`), nor
//!   does an abort (`repoint`, `take_back`): the operations before have reserved, or pinned, what these need (I10).
//! - **Locks**: [`TableStore::lock_word`] gives the word in which a row is locked where it lies, or `None`. Without a
//!   word the row is locked as absent keys are: by the name of its primary key. Today transactions ask
//!   [`LockManager`](crate::isolate::LockManager) once for all tables whether locks are kept in records. They will have
//!   to ask each table, because an entry of a secondary index does not give the primary key before it is followed. The
//!   trait [`Claims`] is about slots with such words.
//! - **Validation**: [`Leaf`] and [`Vacancy`] are a node and its version. [`SeenRow`] needs a version of the row; a
//!   store without a version word answers [`Unlocked::Locked`], and the transaction runs again with locks.
//! - **Sweeps**: a [`SegmentId`] names what a sweep copies at one time and what has a side in a black/white sweep.
//!   Pages have no side: a black/white sweep is refused beside them. A copy for a sweep at a cut is promised before the
//!   commit's place ([`Storage::promise_copies`]), for a page as for a segment.

pub(crate) mod budget;
mod catalog;
mod index_entries;
mod location;
mod material;
pub mod memory;
mod paged;
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

pub use budget::Budget;
pub(crate) use catalog::{Catalog, CatalogChange};
#[cfg(test)]
pub(crate) use index_entries::PUT_AT_ONCE;
pub(crate) use index_entries::{IndexEntries, NotBuilt};
pub use location::{Claims, RowLocation};
pub(crate) use material::Material;
pub use memory::SegmentId;
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
pub use tree::Direction;
pub(crate) use tree::{Admit, Batch, Found, Guard, Leaf, More, ScanRange, Vacancy};
