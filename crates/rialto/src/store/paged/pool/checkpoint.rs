//! What a checkpoint does with the pages: the cut, and the images as of it.

use std::sync::atomic::{Ordering, fence};

use super::super::cut::PageCut;
use super::super::file_space::{AddressRun, Purpose};
use super::super::image;
use super::super::page_map::{PageId, Saved, Whereabouts};
use super::{NoFrame, PagePool, PoolLists, WRITTEN_TOGETHER};
use crate::error::Result;
use crate::io::AlignedBuffer;
use crate::store::tree::{LatchedNode, Node};

/// Addresses for images that are being written, as runs of adjacent ones. Dropped before the write has ended well, they are given
/// back.
struct AddressesTaken<'a, const W: usize> {
    pool: &'a PagePool<W>,
    purpose: Purpose,
    runs: Vec<AddressRun>,
}

impl<const W: usize> AddressesTaken<'_, W> {
    fn take(&mut self, images: u32) -> Result<()> {
        let mut lists = self.pool.lists.lock();
        let mut left = images;
        while left > 0 {
            let Some(run) = lists.space.take(self.purpose, left) else {
                return Err(self.pool.error_of(&NoFrame::NoAddress));
            };
            left -= run.length;
            self.runs.push(run);
        }
        Ok(())
    }
}

impl<const W: usize> Drop for AddressesTaken<'_, W> {
    fn drop(&mut self) {
        if !self.runs.is_empty() {
            let mut lists = self.pool.lists.lock();
            let addresses = self.runs.iter().flat_map(|run| run.addresses());
            addresses.for_each(|address| lists.space.give_back(self.purpose, address));
        }
    }
}

impl<const W: usize> PagePool<W> {
    /// An image of a page is about to be superseded by one that is not of the cut.
    pub(super) fn note_superseded(&self, page: PageId, image: Option<Saved>) {
        if let Some(cut) = &mut *self.in_progress.lock() {
            cut.note(page, image);
        }
    }

    /// A page is about to be changed, or freed.
    #[inline(always)]
    pub(super) fn note_change(&self, node: &LatchedNode<'_, W>) {
        let cut = self.cut.load(Ordering::Relaxed);
        let since = node.changed_since.load(Ordering::Relaxed);
        if since != 0 && since < cut {
            self.copy_for_cut(node);
        }
        if since != cut {
            node.changed_since.store(cut, Ordering::Relaxed);
            if since == 0 {
                self.note_first_change(node, cut);
            }
        }
    }

    /// The page had no change that is not in its image, and has one since this cut. A cut that is made at this moment either
    /// sees that, and has the change, or is seen here, and has the image.
    fn note_first_change(&self, node: &LatchedNode<'_, W>, mut cut: u64) {
        self.counts.changed.fetch_add(1, Ordering::Relaxed);
        loop {
            fence(Ordering::SeqCst);
            let now = self.cut.load(Ordering::Relaxed);
            if now == cut {
                return;
            }
            cut = now;
            node.changed_since.store(cut, Ordering::Relaxed);
        }
    }

    /// Copies a page as it was at the cut, before its first change since.
    #[cold]
    fn copy_for_cut(&self, node: &LatchedNode<'_, W>) {
        if let Some(cut) = &mut *self.in_progress.lock() {
            let mut image = vec![0; Node::<W>::BYTES].into_boxed_slice();
            node.save(&mut image);
            cut.copies.insert(PageId(node.link.load(Ordering::Relaxed) as u32), image);
        }
    }

    /// The next checkpoint begins: nothing needs what the one before the last has published.
    pub fn begin_checkpoint(&self) {
        self.lists.lock().space.forget_older();
    }

    /// Makes the cut of a checkpoint. No commit is applied meanwhile. (What operations do before their commit is taken back
    /// when an image is read by another opening; and no page is split or merged at this moment.)
    pub fn make_cut(&self) {
        self.make_cut_with(|_| ());
    }

    /// The same; runs `with` at the moment of the cut.
    pub(super) fn make_cut_with<T>(&self, with: impl FnOnce(&mut PoolLists) -> T) -> T {
        let _no_restructuring = self.restructuring.write();
        let mut in_progress = self.in_progress.lock();
        let mut lists = self.lists.lock();
        *in_progress = Some(PageCut::new(lists.numbers.end()));
        lists.space.make_cut();
        self.cut.fetch_add(1, Ordering::Relaxed);
        // See `note_first_change`.
        fence(Ordering::SeqCst);
        with(&mut lists)
    }

    /// Writes all pages that the checkpoint needs and that are in no image yet. Gives where the image of each page is as of
    /// the cut. Before each write it calls `check`, whose error ends it.
    ///
    /// # Errors
    /// Of a write. Then the checkpoint is to be given up.
    pub fn write_cut(&self, check: &dyn Fn() -> Result<()>) -> Result<Vec<Option<Saved>>> {
        let cut = self.cut.load(Ordering::Relaxed);
        let mut buffer = AlignedBuffer::zeroed(WRITTEN_TOGETHER * Node::<W>::BYTES);
        let mut together = Vec::new();
        loop {
            for frame in
                (0..self.frames.count()).filter(|&frame| self.is_of_cut(self.frames.node(frame), cut))
            {
                let node = self.frames.node(frame);
                let Some(version) = node.latch.read() else { continue };
                let image = &mut buffer[together.len() * Node::<W>::BYTES..][..Node::<W>::BYTES];
                node.save(image);
                let page = PageId(node.link.load(Ordering::Relaxed) as u32);
                // A page that is of the cut now was so when it was copied.
                if self.is_of_cut(node, cut) && node.latch.validate(version) {
                    together.push((frame, page, version));
                }
                if together.len() == WRITTEN_TOGETHER {
                    check()?;
                    self.write_of_cut(&mut buffer, std::mem::take(&mut together))?;
                }
            }
            self.write_of_cut(&mut buffer, std::mem::take(&mut together))?;
            // A page that another thread had latched is still to be written.
            if !(0..self.frames.count()).any(|frame| self.is_of_cut(self.frames.node(frame), cut)) {
                break;
            }
        }
        self.write_copies(&mut buffer, check)?;
        Ok(self.images_of_cut())
    }

    /// Whether a page has changed before the cut, and is in no image yet.
    fn is_of_cut(&self, node: &Node<W>, cut: u64) -> bool {
        let since = node.changed_since.load(Ordering::Relaxed);
        since != 0 && since < cut && !node.latch.is_free()
    }

    /// Writes images, side by side, and gives where each is.
    ///
    /// # Errors
    /// Of a write. Then none of them is anywhere.
    pub(in super::super) fn write_images(&self, images: &mut [u8], purpose: Purpose) -> Result<Vec<Saved>> {
        let mut taken = AddressesTaken { pool: self, purpose, runs: Vec::new() };
        taken.take((images.len() / Node::<W>::BYTES) as u32)?;
        let addresses = taken.runs.iter().flat_map(|run| run.addresses());
        let seal = |(image, address)| Saved { address, stamp: image::seal(image, self.file.seed()) };
        let saved: Vec<Saved> = images.chunks_exact_mut(Node::<W>::BYTES).zip(addresses).map(seal).collect();
        let (mut writes, mut rest) = (Vec::with_capacity(taken.runs.len()), &*images);
        for run in &taken.runs {
            let (images, others) = rest.split_at(run.length as usize * Node::<W>::BYTES);
            writes.push((run.first, images));
            rest = others;
        }
        self.counts.writes.fetch_add(saved.len() as u64, Ordering::Relaxed);
        self.file.write_each(&writes)?;
        taken.runs.clear();
        Ok(saved)
    }

    fn write_of_cut(&self, buffer: &mut AlignedBuffer, together: Vec<(u32, PageId, u64)>) -> Result<()> {
        let images = &mut buffer[..together.len() * Node::<W>::BYTES];
        for ((frame, page, version), saved) in
            together.into_iter().zip(self.write_images(images, Purpose::Cut)?)
        {
            match self.frames.node(frame).upgrade(version) {
                Some(latched) if latched.changed_since.load(Ordering::Relaxed) != 0 => {
                    self.save(&latched, page, saved, Purpose::Cut);
                }
                // It has changed since, or left, or was written by another thread, or another thread has latched it.
                _ => self.note_written(page, saved),
            }
        }
        Ok(())
    }

    /// An image as of the cut is here, and is not the page's newest.
    fn note_written(&self, page: PageId, saved: Saved) {
        let mut in_progress = self.in_progress.lock();
        let cut = in_progress.as_mut().expect("a checkpoint is in progress");
        match cut.copies.contains_key(&page) {
            true => cut.note_written(page, saved),
            // The page has left, and its image of that time is as of the cut; or it will be written again.
            false => self.lists.lock().space.give_back(Purpose::Cut, saved.address),
        }
    }

    fn write_copies(&self, buffer: &mut AlignedBuffer, check: &dyn Fn() -> Result<()>) -> Result<()> {
        loop {
            check()?;
            let mut pages = Vec::new();
            {
                let in_progress = self.in_progress.lock();
                let cut = in_progress.as_ref().expect("a checkpoint is in progress");
                for (page, copy) in cut.copies.iter().take(WRITTEN_TOGETHER) {
                    buffer[pages.len() * copy.len()..][..copy.len()].copy_from_slice(copy);
                    pages.push(*page);
                }
            }
            if pages.is_empty() {
                return Ok(());
            }
            let images = &mut buffer[..pages.len() * Node::<W>::BYTES];
            let saved = self.write_images(images, Purpose::Cut)?;
            pages.into_iter().zip(saved).for_each(|(page, saved)| self.note_written(page, saved));
        }
    }

    /// Where the image of each page is as of the cut, once all are written.
    fn images_of_cut(&self) -> Vec<Option<Saved>> {
        let end = self.in_progress.lock().as_ref().map_or(0, |cut| cut.end);
        let image = |page| {
            // The newest image first: it is noted before it is superseded.
            let newest = self.newest_image(page);
            let noted = self.in_progress.lock().as_ref().and_then(|cut| cut.noted(page));
            noted.unwrap_or(newest)
        };
        (0..end).map(|page| image(PageId(page))).collect()
    }

    /// Where the newest image of a page is, if it has one.
    fn newest_image(&self, page: PageId) -> Option<Saved> {
        loop {
            match self.map.find(page) {
                Whereabouts::Free => return None,
                Whereabouts::OnDisk(saved) => return Some(saved),
                Whereabouts::Resident(frame) => {
                    let node = self.frames.node(frame);
                    let Some(version) = node.latch.read() else { continue };
                    let saved = Saved::of_word(node.saved.load(Ordering::Relaxed));
                    // The page may have left, and the frame have another one.
                    let is_its_own = node.link.load(Ordering::Relaxed) as u32 == page.0;
                    if is_its_own && node.latch.validate(version) {
                        return saved;
                    }
                }
            }
        }
    }

    /// The checkpoint is complete: what it has published is in force.
    pub fn publish_cut(&self) {
        let cut = self.in_progress.lock().take();
        let mut lists = self.lists.lock();
        lists.changed.insert_all(&cut.unwrap_or_default().written);
        lists.space.publish_cut();
        // No address is taken under this latch. If the file cannot be cut it stays as long as it is.
        _ = self.file.cut_to(lists.space.end());
    }

    /// The checkpoint is given up. Pages that it has written stay so; the next one writes the others. A home block may name
    /// what was written.
    pub fn abandon_cut(&self, may_be_named: bool) {
        let cut = self.in_progress.lock().take();
        let mut lists = self.lists.lock();
        lists.changed.insert_all(&cut.unwrap_or_default().written);
        lists.space.abandon_cut(may_be_named);
    }
}
