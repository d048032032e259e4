//! [`Pages`]: the nodes of trees as pages of a pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockReadGuard;

use super::super::page_map::{PageId, Saved, Whereabouts};
use super::{MissingPage, NoFrame, PagePool};
use crate::error::Result;
use crate::store::tree::{LatchedNode, Leaf, Node, Nodes, Numbered};

/// A reference to the pool, for one tree.
pub(crate) struct Pages<const W: usize>(pub Arc<PagePool<W>>);

impl<const W: usize> Pages<W> {
    /// Frees a page and all below it, which nothing uses any more. A page that cannot be read goes to `unread`, and stays with
    /// all below it.
    fn free_under(&self, id: u32, unread: &mut Vec<u32>) {
        let page = match self.latched(id) {
            Ok(Some(page)) => page,
            Ok(None) => return,
            Err(_) => return unread.push(id),
        };
        let (children, leads_to_leaves): (Vec<u32>, _) = (page.children().collect(), page.leads_to_leaves());
        // No latch is held while a page is read.
        drop(page);
        for child in children {
            match leads_to_leaves {
                true => self.free_alone(child),
                false => self.free_under(child, unread),
            }
        }
        self.free_alone(id);
    }

    /// Frees a page with nothing below it, which is not read for that.
    pub fn free_alone(&self, id: u32) {
        while !self.0.free_on_disk(PageId(id)) {
            match self.reach(id) {
                Ok(None) => return,
                // It has left its frame.
                Err(_) => {}
                Ok(Some((_, node))) => {
                    if let Some(latched) = node.lock().filter(|latched| self.is(latched, id)) {
                        return self.free(id, latched);
                    }
                }
            }
        }
    }

    /// The page, latched, after it was fetched if it was missing. `None`: there is no such page.
    fn latched(&self, id: u32) -> Result<Option<LatchedNode<'_, W>>> {
        loop {
            match self.reach(id) {
                Ok(None) => return Ok(None),
                Err(missing) => self.0.fetch(&missing)?,
                Ok(Some((_, node))) => {
                    if let Some(latched) = node.lock().filter(|latched| self.is(latched, id)) {
                        return Ok(Some(latched));
                    }
                }
            }
        }
    }
}

impl<const W: usize> Nodes<W> for Pages<W> {
    type Missing = MissingPage;
    type Full = NoFrame;
    type Restructuring<'n> = RwLockReadGuard<'n, ()>;

    #[inline(always)]
    fn at_hand(&self, id: u32) -> Option<Numbered<'_, W>> {
        match self.0.map.find(PageId(id)) {
            Whereabouts::Resident(frame) => {
                let node = self.0.frames.get(frame)?;
                self.0.touch(node);
                Some((frame, node))
            }
            Whereabouts::Free | Whereabouts::OnDisk(_) => None,
        }
    }

    #[inline(always)]
    fn reach(&self, id: u32) -> std::result::Result<Option<Numbered<'_, W>>, MissingPage> {
        match self.0.map.find(PageId(id)) {
            Whereabouts::Resident(frame) => {
                let node = self.0.frames.get(frame);
                Ok(node.map(|node| {
                    self.0.touch(node);
                    (frame, node)
                }))
            }
            Whereabouts::Free => Ok(None),
            Whereabouts::OnDisk(_) => Err(MissingPage { page: PageId(id), parent: None }),
        }
    }

    fn missing_under(missing: MissingPage, parent: Leaf) -> MissingPage {
        MissingPage { parent: Some(parent), ..missing }
    }

    #[inline(always)]
    fn is(&self, node: &Node<W>, id: u32) -> bool {
        node.link.load(Ordering::Relaxed) as u32 == id
    }

    #[inline(always)]
    fn numbered(&self, number: u32) -> Option<&Node<W>> {
        self.0.frames.get(number)
    }

    #[inline(always)]
    fn note_use(&self, node: &Node<W>) {
        self.0.touch(node);
    }

    fn before_change(&self, node: &LatchedNode<'_, W>) -> std::result::Result<(), NoFrame> {
        self.0.note_change(node);
        Ok(())
    }

    fn begin_restructuring(&self) -> RwLockReadGuard<'_, ()> {
        self.0.restructuring.read()
    }

    fn allocate(&self) -> std::result::Result<(u32, LatchedNode<'_, W>), NoFrame> {
        self.0.allocate_page().map(|(page, node)| (page.0, node))
    }

    fn free(&self, id: u32, node: LatchedNode<'_, W>) {
        let pool = &self.0;
        debug_assert!(
            matches!(pool.map.find(PageId(id)), Whereabouts::Resident(_)),
            "it is latched in a frame"
        );
        pool.note_change(&node);
        let saved = Saved::of_word(node.saved.load(Ordering::Relaxed));
        pool.note_superseded(PageId(id), saved);
        pool.map.set(PageId(id), Whereabouts::Free);
        // The frame is in a queue of the replacement, and is free again when it is a victim.
        node.usage.store(0, Ordering::Relaxed);
        pool.counts.changed.fetch_sub(1, Ordering::Relaxed);
        node.retire();
        let mut lists = pool.lists.lock();
        lists.numbers.give_back(PageId(id));
        if let Some(saved) = saved {
            lists.space.supersede(saved.address);
        }
    }

    fn free_tree(&self, root: u32) -> Vec<u32> {
        let mut unread = Vec::new();
        self.free_under(root, &mut unread);
        unread
    }

    fn drop_tree(&self, _root: u32) {}
}
