//! The memory-resident store (System M, section 2.6): records in fixed-size segments, ordered indexes over them.
//!
//! - [`segments`]: the arena of segments, each with its latch, a dirty bit for each copy and a paint bit; records with
//!   a 16-byte header inside, which `words` reads and changes.
//! - [`snapshots`]: copies of segments as they were at a *cut*, the moment whose state a copy-on-update sweep or a
//!   backup copies.
//! - [`heap`]: which slots of which segments a table uses, and where its next record goes.
//! - the indexes are trees of nodes in memory ([`tree`](crate::store::tree)), key to [`RecordRef`]; never logged.
//! - `table`: one table's records and indexes, behind `TableStore`;
//! - `image`: a segment's image in a file; `load_file`: the images of a bulk load; `loaded_rows`: which rows of a load
//!   a rollback to a savepoint takes back.
//!
//! Kept here: **I1** (a slot holds committed bytes or says that it holds none: *absent*), **I10** (slots are allocated
//! when an operation runs, so that applying a commit allocates nothing). Every word of a segment is an atomic. Locks
//! and latches keep readers, writers and the sweep apart; a mistake there is a wrong answer that a test can find, never
//! undefined behaviour.

use std::sync::Arc;

use crate::store::tree::NodePool;

mod copied_load;
pub mod heap;
pub(crate) mod image;
pub(crate) mod load_file;
mod loaded_rows;
pub(in crate::store) mod prefetch;
pub mod segments;
pub mod snapshots;
mod table;
mod words;

pub use copied_load::LoadFileBytes;
pub(crate) use copied_load::{ReceivedLoad, has_load_file, remove_received};
pub use heap::{EmptySegments, Heap, Unclaimed};
pub(crate) use load_file::{LoadCommit, LoadFile};
pub(crate) use loaded_rows::{LoadMark, LoadedRows};
pub use segments::{RecordRef, SEGMENT_BYTES, SegmentId, Segments};
pub(crate) use table::MemoryTable;
pub use words::{BodyWords, StoredRow, same_version};

/// The memory of all memory-resident tables.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    pub segments: Arc<Segments>,
    /// The nodes of their indexes.
    pub nodes: Arc<NodePool>,
}
