//! What a backup does with the pages: the cut, what has changed since the last one, and the images as of it.
//!
//! An increment holds the pages whose image at its cut differs from that at the last backup's cut. Each such image was
//! written after the last cut, so the write records the page's number: in
//! [`PageCut::written`](super::super::cut::PageCut) if the image is the one as of the cut in progress, otherwise in
//! [`PoolLists::changed`](super::PoolLists). A backup takes `changed` at its cut, and `written` when all its images are
//! written. What is recorded later is for the next backup.

use super::super::bits::Bits;
use super::super::page_map::{PageId, Saved};
use super::PagePool;
use crate::error::Result;
use crate::io::AlignedBuffer;
use crate::store::tree::Node;

impl<const W: usize> PagePool<W> {
    /// Makes the cut of a backup, as [`PagePool::make_cut`]. Gives the pages that have changed since the last backup's cut.
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
