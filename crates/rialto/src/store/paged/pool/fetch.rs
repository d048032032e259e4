//! How pages come from the page file into frames.
//!
//! A page is read by one thread at a time; others that need it wait for that one. No latch is held meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use parking_lot::{Condvar, Mutex};

use super::super::page_map::{PageId, Saved, Whereabouts};
use super::{MissingPage, PagePool, READ_BUFFERS_MAX};
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::error::Result;
use crate::io::AlignedBuffer;
use crate::store::tree::{Leaf, Node};

/// The most pages that one thread reads side by side.
const READ_TOGETHER: usize = 32;

/// The pages that are being read.
pub(super) type PageLoads = Mutex<HashMap<PageId, Arc<PageLoad>>>;

/// A page that is being read.
#[derive(Default)]
pub(super) struct PageLoad {
    done: Mutex<bool>,
    is_done: Condvar,
}

/// A page that this thread reads, until this is dropped. Then those that wait for it go on.
struct OpenLoad<'a> {
    loads: &'a PageLoads,
    page: PageId,
    load: Arc<PageLoad>,
}

impl Drop for OpenLoad<'_> {
    fn drop(&mut self) {
        self.loads.lock().remove(&self.page);
        *self.load.done.lock() = true;
        self.load.is_done.notify_all();
    }
}

/// A pin, until this is dropped.
struct Pinned<'a, const W: usize> {
    pool: &'a PagePool<W>,
    frame: u32,
}

impl<const W: usize> Drop for Pinned<'_, W> {
    fn drop(&mut self) {
        self.pool.unpin(self.frame);
    }
}

/// A frame that was free. It is free again when this is dropped, unless a page has come into it.
struct FrameTaken<'a, const W: usize> {
    pool: &'a PagePool<W>,
    frame: u32,
    has_page: bool,
}

impl<const W: usize> Drop for FrameTaken<'_, W> {
    fn drop(&mut self) {
        if !self.has_page {
            self.pool.lists.lock().free.push(self.frame);
        }
    }
}

/// A page on its way into a frame.
struct Arrival<'a, const W: usize> {
    page: PageId,
    /// Pinned, if there is one.
    parent: Option<Leaf>,
    saved: Saved,
    buffer: AlignedBuffer,
    // Dropped in this order.
    taken: FrameTaken<'a, W>,
    _pinned: Option<Pinned<'a, W>>,
    _open: OpenLoad<'a>,
}

impl<const W: usize> Arrival<'_, W> {
    /// The image is in the buffer, and is what it should be: the page comes into the frame.
    fn arrive(mut self) {
        let Arrival { page, parent, saved, ref buffer, ref mut taken, .. } = self;
        let (pool, frame) = (taken.pool, taken.frame);
        let node = pool.frames.node(frame);
        let mut latched = node.claim_free();
        latched.load(buffer);
        node.saved.store(saved.word(), Ordering::Relaxed);
        node.changed_since.store(0, Ordering::Relaxed);
        pool.map.set(page, Whereabouts::Resident(frame));
        // Before the parent is looked at: a page that is about to leave looks for its children in the other order.
        fence(Ordering::SeqCst);
        let is_its_parent = |parent: Leaf| pool.frames.node(parent.number()).latch.validate(parent.version());
        if parent.is_none_or(is_its_parent) {
            pool.enter(frame, node, Some(page));
            taken.has_page = true;
            drop(latched);
        } else {
            // Another page may be its parent by now, which is not pinned, and may have left.
            pool.map.set(page, Whereabouts::OnDisk(saved));
            latched.retire();
        }
        let mut kept = pool.read_buffers.lock();
        if kept.len() < READ_BUFFERS_MAX {
            kept.push(self.buffer);
        }
    }
}

impl<const W: usize> PagePool<W> {
    /// Reads a missing page into a frame, unless another thread does. Then the operation begins again.
    ///
    /// # Errors
    /// The disk's, and those of an image that is not what it should be; [`NoFrame`](super::NoFrame) if all pages are pinned.
    pub fn fetch(&self, missing: &MissingPage) -> Result<()> {
        let _waiting = WaitGuard::enter(&self.clock, Awaited::Page);
        match self.open_load(missing.page) {
            Ok(open) => {
                let Some(mut arrival) = self.begin_arrival(missing, open, || self.take_frame().map(Some))?
                else {
                    return Ok(());
                };
                let (page, saved) = (arrival.page, arrival.saved);
                let read = self.file.read(page, saved, &mut arrival.buffer, Node::<W>::damage);
                self.counts.reads.fetch_add(1, Ordering::Relaxed);
                read.map(|()| arrival.arrive())
            }
            Err(load) => {
                let mut done = load.done.lock();
                while !*done {
                    self.clock.wait(&load.is_done, &mut done, None);
                }
                // What went wrong there shows again when this thread tries.
                Ok(())
            }
        }
    }

    /// Reads missing pages into frames, side by side: those that no other thread reads, as far as frames are free. How many these
    /// were.
    ///
    /// # Errors
    /// As [`PagePool::fetch`]. Some of the pages may have come then.
    pub fn fetch_each(&self, missing: &[MissingPage]) -> Result<usize> {
        let _waiting = WaitGuard::enter(&self.clock, Awaited::Page);
        let mut arrivals = Vec::new();
        for missing in missing.iter().take(READ_TOGETHER) {
            let Ok(open) = self.open_load(missing.page) else { continue };
            arrivals.extend(self.begin_arrival(missing, open, || Ok(self.take_free_frame()))?);
        }
        let read = arrivals.len();
        self.file.read_each(arrivals.iter_mut().map(|arrival| (arrival.saved, &mut arrival.buffer)))?;
        self.counts.reads.fetch_add(read as u64, Ordering::Relaxed);
        for arrival in arrivals {
            self.file.check(arrival.page, arrival.saved, &arrival.buffer, Node::<W>::damage)?;
            arrival.arrive();
        }
        Ok(read)
    }

    /// From now on this thread reads the page. Another thread's load if that does.
    fn open_load(&self, page: PageId) -> std::result::Result<OpenLoad<'_>, Arc<PageLoad>> {
        let mut loads = self.loads.lock();
        match loads.get(&page) {
            Some(load) => Err(load.clone()),
            None => {
                let load = Arc::new(PageLoad::default());
                loads.insert(page, load.clone());
                Ok(OpenLoad { loads: &self.loads, page, load })
            }
        }
    }

    /// `None`: the page has come already, its parent is another one, or there is no frame for it.
    fn begin_arrival<'a>(
        &'a self,
        missing: &MissingPage,
        open: OpenLoad<'a>,
        take_frame: impl FnOnce() -> Result<Option<u32>>,
    ) -> Result<Option<Arrival<'a, W>>> {
        let MissingPage { page, parent } = *missing;
        let pinned = match &parent {
            Some(parent) if !self.pin(parent) => return Ok(None),
            Some(parent) => Some(Pinned { pool: self, frame: parent.number() }),
            None => None,
        };
        let Whereabouts::OnDisk(saved) = self.map.find(page) else { return Ok(None) };
        let Some(frame) = take_frame()? else { return Ok(None) };
        let taken = FrameTaken { pool: self, frame, has_page: false };
        let buffer = self.read_buffers.lock().pop();
        let buffer = buffer.unwrap_or_else(|| AlignedBuffer::zeroed(Node::<W>::BYTES));
        Ok(Some(Arrival { page, parent, saved, buffer, taken, _pinned: pinned, _open: open }))
    }

    /// A frame, if one is free.
    fn take_free_frame(&self) -> Option<u32> {
        let (frame, left) = {
            let mut lists = self.lists.lock();
            (lists.free.pop()?, lists.free.len())
        };
        if left < self.free_wanted() {
            self.write_behind.ask();
        }
        Some(frame)
    }

    fn take_frame(&self) -> Result<u32> {
        loop {
            if let Some(frame) = self.take_free_frame() {
                return Ok(frame);
            }
            self.get_room(1)?;
        }
    }
}
