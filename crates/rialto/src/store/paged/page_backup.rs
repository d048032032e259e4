//! [`PageBackup`]: the pages as of a backup's cut.
//!
//! A backup uses the cut of a checkpoint: checkpoints and backups exclude each other. As a checkpoint does, it writes the
//! pages as of the cut that are in no image yet. It then reads the image of each page from the page file, while the cut
//! keeps these addresses from being used again. At its end the cut is discarded, and no home block names it: the next
//! checkpoint writes all that it has to.

use std::sync::Arc;

use super::bits::Bits;
use super::disk_tables::DiskTables;
use super::page_list::PageList;
use super::page_map::{PageId, Saved};
use super::page_store::PageStore;
use super::paged_table::PagedTable;
use super::published::PublishedTable;
use crate::error::Result;
use crate::fault_injection;
use crate::io::AlignedBuffer;

/// Which pages a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagesHeld {
    All,
    /// Those that have changed since the last backup.
    Changed,
}

/// The pages that have changed since the last backup that was completed. Dropping this marks them as changed again, so
/// the next increment has them. [`ChangedPages::forget`] is for a complete backup.
pub(crate) struct ChangedPages {
    store: Arc<dyn PageStore>,
    pages: Bits,
}

impl ChangedPages {
    /// The backup is complete, and has them.
    pub fn forget(mut self) {
        self.pages = Bits::default();
    }
}

impl Drop for ChangedPages {
    fn drop(&mut self) {
        if !fault_injection::is_on("failed-backup-forgets-pages") {
            self.store.note_changed(&self.pages);
        }
    }
}

/// See the [module's documentation](self). The cut ends when this is dropped.
pub(crate) struct PageBackup<'a> {
    of: &'a DiskTables,
    store: Arc<dyn PageStore>,
    held: PagesHeld,
    /// The tables as of the cut; `None` before it.
    tables: Option<Vec<PublishedTable>>,
    changed: Option<ChangedPages>,
    /// Where the image of each page is that the backup holds; set by [`PageBackup::write`].
    images: Option<Vec<(PageId, Saved)>>,
}

impl<'a> PageBackup<'a> {
    pub(super) fn new(of: &'a DiskTables, store: Arc<dyn PageStore>, held: PagesHeld) -> PageBackup<'a> {
        PageBackup { of, store, held, tables: None, changed: None, images: None }
    }

    /// Calls `hold_commits` with a function that makes the cut; `hold_commits` calls it while no commit is being applied.
    pub fn cut<T>(&mut self, hold_commits: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
        let PageBackup { of, store, tables, changed, .. } = self;
        of.with_tables(|all| {
            hold_commits(&mut || {
                let pages = store.make_backup_cut();
                *tables = Some(all.values().map(PagedTable::published).collect());
                *changed = Some(ChangedPages { store: store.clone(), pages });
            })
        })
    }

    /// About how many bytes of pages it holds. After [`PageBackup::write`] the number is exact.
    pub fn bytes(&self) -> u64 {
        let stats = self.store.stats();
        let pages = match (&self.images, &self.changed) {
            (Some(images), _) => images.len() as u64,
            (None, Some(changed)) if self.held == PagesHeld::Changed => changed.pages.len() as u64,
            _ => stats.pages,
        };
        pages * stats.page_bytes
    }

    /// Writes the pages as of the cut that are in no image yet. `check` is called repeatedly; its error ends the write.
    ///
    /// # Errors
    /// Those of the disk, and of `check`.
    pub fn write(&mut self, check: &dyn Fn() -> Result<()>) -> Result<PageList> {
        let (images, written) = self.store.write_backup_cut(check)?;
        let changed = self.changed.as_mut().expect("the cut is made");
        if !fault_injection::is_on("increment-lacks-what-it-writes") {
            changed.pages.insert_all(&written);
        }
        let there = (0..).map(PageId).zip(images).filter_map(|(page, image)| Some((page, image?)));
        let (mut pages, mut held) = (Bits::default(), Vec::new());
        for (page, image) in there {
            pages.insert(page.0);
            if self.held == PagesHeld::All || changed.pages.contains(page.0) {
                held.push((page, image));
            }
        }
        self.images = Some(held);
        let page_bytes = self.store.stats().page_bytes as usize;
        Ok(PageList { page_bytes, tables: self.tables.clone().unwrap_or_default(), pages })
    }

    /// Reads the images of the pages that it holds, in the order of their numbers, and gives each to `take`.
    ///
    /// # Errors
    /// Those of the disk; [`Error::Corrupt`](crate::Error::Corrupt), with the file and the offset of an image that is not what
    /// it should be; those of `take`.
    pub fn read(&self, mut take: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = AlignedBuffer::zeroed(self.store.stats().page_bytes as usize);
        for &(page, image) in self.images.iter().flatten() {
            self.store.read_image(page, image, &mut buffer)?;
            take(page.0, &buffer)?;
        }
        Ok(())
    }

    /// Ends the cut.
    pub fn end(mut self) -> ChangedPages {
        self.changed.take().expect("the cut is made")
    }
}

impl Drop for PageBackup<'_> {
    fn drop(&mut self) {
        if self.tables.is_some() {
            self.store.abandon_cut(false);
        }
    }
}
