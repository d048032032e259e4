//! The disk-resident store: trees whose nodes are pages, in a pool of frames.
//!
//! The note `docs/decisions/2026-11-28-pages-are-nodes-of-the-index-tree.md` has the reasons.
//!
//! - [`disk_tables`]: the disk-resident tables of a database; [`paged_table`]: the trees of one of them; [`paged_index`]: that of
//!   a secondary index, and [`index_build`] fills a new one; [`paged_tree`]: a tree of pages, whose operations fetch what is missing;
//! - [`page_access`]: how the operations of a transaction reach pages; [`fingers`]: where they have found keys; [`key_ahead`]: keys whose pages are read side by side;
//! - [`page_store`]: the pages of a database, whatever their size;
//! - [`pool`]: the pages in memory, and how they come and go; [`frames`]: their memory; [`replacement`]: which of them
//!   leaves; [`page_map`]: where each page is; [`cut`]: the pages as they were at a moment.
//! - [`long_body`]: how a body that is too long for a page is divided;
//! - [`published`]: what a checkpoint says of the pages;
//! - [`page_backup`]: the pages as of a backup's cut; [`page_list`]: what a backup says of them; [`restored_pages`]: the page file
//!   of a database that is being restored;
//! - [`page_file`]: the file of pages; [`file_space`]: which of its addresses are free; [`image`]: a page's form there.

mod bits;
mod cut;
mod disk_tables;
mod file_space;
mod fingers;
mod frames;
mod image;
mod index_build;
mod key_ahead;
mod long_body;
mod page_access;
mod page_backup;
mod page_file;
mod page_list;
mod page_map;
mod page_store;
mod paged_index;
mod paged_table;
mod paged_tree;
mod pool;
mod published;
mod replacement;
mod restored_pages;

pub(crate) use self::disk_tables::{
    CACHE_BYTES_BY_DEFAULT, DiskTables, PAGE_BYTES_BY_DEFAULT, PageCheckpoint, PageOptions, PagesAt,
};
pub(crate) use self::fingers::Fingers;
pub(crate) use self::index_build::IndexBuild;
pub(crate) use self::key_ahead::{KeyAhead, fetch_together};
pub(crate) use self::page_access::{GaveUp, KeptPages, PageAccess, PageMode};
pub(crate) use self::page_backup::{ChangedPages, PageBackup, PagesHeld};
pub(crate) use self::page_file::PAGE_FILE;
pub(crate) use self::page_list::{LIST_WORDS_MAX, PageList};
pub use self::page_store::PageStats;
pub(crate) use self::page_store::{CACHE_BYTES_MIN, PAGE_SIZES};
pub(crate) use self::paged_index::PagedIndex;
pub(crate) use self::paged_table::{ClaimedRow, EnteredInPages, LeafEnds, PagedTable};
pub(crate) use self::published::PublishedAt;
pub(crate) use self::restored_pages::{RestoredPages, damage as page_damage};

#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;

/// For tests of other rooms: an empty table with these indexes, in a pool of so many frames of 4 KiB, on a disk in memory.
#[cfg(test)]
pub(crate) fn table_for_tests(
    heap: crate::ids::HeapId,
    indexes: &[crate::ids::IndexId],
    frames: u64,
) -> PagedTable {
    let disk = crate::io::MemoryDisk::new();
    let room = page_store::PageRoom {
        disk: &*disk,
        page_bytes: 4096,
        seed: 7,
        cache_bytes: frames * 4096,
        is_read_only: false,
        clock: &crate::io::Clock::System,
    };
    let store = page_store::create(room).unwrap();
    PagedTable::make(&*store, heap, indexes, std::sync::Weak::new()).unwrap()
}
