//! What a backup does with the pages: the cut, what has changed since the last one, and the images as of it.
//!
//! An increment holds each page whose image as of its cut is another one than as of the last backup's cut. Such an image was
//! written after the last cut, so it is noted when it is written: with the pages that have *changed*
//! ([`PoolLists::changed`](super::PoolLists)), or with the cut in progress if it is the page's image as of that
//! ([`PageCut::written`](super::super::cut::PageCut)). A backup takes the first at its cut, and the second once all of its
//! images are written. What is noted later is for the next backup.

use super::super::bits::Bits;
use super::super::page_map::{PageId, Saved};
use super::PagePool;
use crate::error::Result;
use crate::io::AlignedBuffer;
use crate::store::tree::Node;

impl<const W: usize> PagePool<W> {
    /// Makes the cut of a backup, as [`PagePool::make_cut`]. Gives the pages that have changed since the last one's.
    pub fn make_backup_cut(&self) -> Bits {
        self.make_cut_with(|lists| std::mem::take(&mut lists.changed))
    }

    /// As [`PagePool::write_cut`]. Also gives the pages whose image as of the cut was written after the cut.
    ///
    /// # Errors
    /// Of a write. Then the backup has failed.
    pub fn write_backup_cut(&self, check: &dyn Fn() -> Result<()>) -> Result<(Vec<Option<Saved>>, Bits)> {
        let images = self.write_cut(check)?;
        let written = self.in_progress.lock().as_mut().map(|cut| std::mem::take(&mut cut.written));
        Ok((images, written.unwrap_or_default()))
    }

    /// These pages have changed since the last backup that was completed.
    pub fn note_changed(&self, pages: &Bits) {
        self.lists.lock().changed.insert_all(pages);
    }

    /// Reads an image, and checks it.
    ///
    /// # Errors
    /// The disk's, and those of an image that is not what it should be.
    pub fn read_image(&self, page: PageId, saved: Saved, buffer: &mut AlignedBuffer) -> Result<()> {
        self.file.read(page, saved, buffer, Node::<W>::damage)
    }
}
