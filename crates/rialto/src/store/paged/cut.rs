//! [`PageCut`]: the pages as they were at a moment, for the checkpoint that publishes them.
//!
//! A checkpoint publishes a page map. It says of each page where its image as of the cut is:
//!
//! - where the newest image is, if the page has not been changed since the cut, or not been written since;
//! - else where [`PageCut::images`] says, which notes the older image before a newer one takes its place.
//!
//! A page that was changed before the cut and not written has no such image yet. The checkpoint writes it. If the page is
//! changed before that, its change copies it first ([`PageCut::copies`]).

use std::collections::HashMap;

use super::bits::Bits;
use super::page_map::{PageId, Saved};

/// The cut of a checkpoint in progress.
#[derive(Debug, Default)]
pub(super) struct PageCut {
    /// Images of pages that have changed since, and were not written for the checkpoint before.
    pub copies: HashMap<PageId, Box<[u8]>>,
    /// Where the images of pages are that have newer ones, or that are gone. `None`: there was no such page.
    images: HashMap<PageId, Option<Saved>>,
    /// Pages whose image as of the cut was written after the cut.
    pub written: Bits,
    /// All pages at the cut had numbers below this one.
    pub end: u32,
}

impl PageCut {
    /// At this moment all pages have numbers below `end`.
    pub fn new(end: u32) -> PageCut {
        PageCut { end, ..PageCut::default() }
    }

    /// The page's image as of the cut is this one, whatever becomes of the page. (What was noted of it before stays.)
    pub fn note(&mut self, page: PageId, image: Option<Saved>) {
        if page.0 < self.end && !self.copies.contains_key(&page) {
            self.images.entry(page).or_insert(image);
        }
    }

    /// The copy of the page has been written here.
    pub fn note_written(&mut self, page: PageId, saved: Saved) {
        self.copies.remove(&page);
        self.written.insert(page.0);
        self.images.insert(page, Some(saved));
    }

    /// What was noted of a page.
    pub fn noted(&self, page: PageId) -> Option<Option<Saved>> {
        self.images.get(&page).copied()
    }
}
