//! [`PagePool`]: the pages that are in memory, and how they come and go.
//!
//! A page is in a *frame*, or only in the page file. A descent finds a page by the page map: a load of its word, and of
//! the frame's version. A page that is in no frame is *missing*: the operation gives up, the page is
//! [fetched](PagePool::fetch), and the operation begins again.
//!
//! Invariants:
//!
//! 1. A frame's version never goes back, and moves on when a page comes into the frame or leaves it.
//! 2. The page map leads to a frame only while the frame has that page. It changes under the frame's latch.
//! 3. The parent of a page that is in a frame is in a frame. A fetch pins the parent; a page with a child in a frame does
//!    not leave.
//! 4. A page that is pinned, or has claimed entries, does not leave. One that is kept for an operate stage leaves only if no
//!    other page can.
//! 5. A page leaves only if its newest image is in the page file.
//!
//! A pin is counted before the version is validated, and a page leaves only if its pins are 0 after its frame is
//! latched. So one of the two sees the other.

mod backup;
mod checkpoint;
mod fetch;
mod leaving;
mod pages;
mod write_behind;

use self::fetch::PageLoads;
use self::leaving::{Buffers, Rounds};
pub(crate) use self::pages::Pages;
use self::write_behind::WriteBehind;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::{Mutex, RwLock};

use super::bits::Bits;
use super::cut::PageCut;
use super::file_space::{FileSpace, Purpose};
use super::frames::Frames;
use super::page_access::{KeepsPages, Kept};
use super::page_file::{GROWTH_BYTES, PageFile};
use super::page_map::{PageId, PageMap, PageNumbers, Saved, Whereabouts};
use super::page_store::PageStats;
use super::replacement::{Heat, Replacement};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::io::{AlignedBuffer, Clock};
use crate::store::tree::{LatchedNode, Leaf, Node};

/// The most pages that are written at a time: by write-behind and by checkpoints; and by an operation that makes room itself.
const WRITTEN_TOGETHER: usize = 32;
const WRITTEN_FOR_ROOM: usize = 8;

/// So many buffers for reads are kept for the next ones.
const READ_BUFFERS_MAX: usize = 64;

/// What a pin adds to [`Node::pins`], and what one that keeps a page for an operate stage adds.
const PIN: u64 = 1;
const KEPT: u64 = 1 << 32;

/// The most frames that one operation of a tree takes before it begins again: a root that grows has two new children.
pub(super) const FRAMES_AT_ONCE: usize = 2;

/// All transactions together keep at most this part of the pages in memory, so that there is room for what they change; and one
/// of them keeps at most that part.
const KEPT_BY_ALL: u32 = 2;
const KEPT_BY_ONE: u32 = 8;

/// A page that is in no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingPage {
    page: PageId,
    /// The page that leads to it; none if it is a root.
    parent: Option<Leaf>,
}

/// Why there is no frame for a page.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum NoFrame {
    /// No frame is free at this moment: a page has to leave first.
    #[error("no frame is free")]
    NoneFree,
    /// The page map has no free number.
    #[error("there are {0} pages, the most that there can be")]
    NoNumber(u32),
    /// The page file has no free address.
    #[error("the page file is as long as it can be")]
    NoAddress,
}

/// What changes under one latch.
struct PoolLists {
    /// Frames without a page.
    free: Vec<u32>,
    replacement: Replacement,
    space: FileSpace,
    numbers: PageNumbers,
    /// Pages whose newest image was written since the last backup's cut, and is not as of a cut in progress.
    changed: Bits,
}

/// The pages of a database, with bodies of `W` words.
pub(crate) struct PagePool<const W: usize> {
    frames: Frames<W>,
    map: PageMap,
    file: PageFile,
    lists: Mutex<PoolLists>,
    loads: PageLoads,
    /// One operation at a time lets pages leave; others that need a frame wait for it.
    leaving: Mutex<Buffers>,
    /// At most [`READ_BUFFERS_MAX`].
    read_buffers: Mutex<Vec<AlignedBuffer>>,
    /// Of the replacement, for uses.
    tick: AtomicU8,
    /// The number of the last cut, from 1 on.
    cut: AtomicU64,
    /// The cut of the checkpoint in progress.
    in_progress: Mutex<Option<PageCut>>,
    /// Held by splits and merges, against the cut.
    restructuring: RwLock<()>,
    counts: PoolCounts,
    /// How many pages transactions keep in memory ([`KeepsPages`]).
    kept: AtomicU32,
    /// The clock by which threads wait for pages.
    clock: Clock,
    write_behind: WriteBehind,
    rounds: Rounds,
}

/// What has happened in a pool.
#[derive(Debug, Default)]
struct PoolCounts {
    reads: AtomicU64,
    writes: AtomicU64,
    /// Pages in frames that have changed since their newest image was written, or have none.
    changed: AtomicU64,
}

impl<const W: usize> PagePool<W> {
    /// A pool without pages, of so many frames.
    pub fn new(file: PageFile, frames: u32, pages_max: u32, clock: &Clock) -> std::io::Result<PagePool<W>> {
        debug_assert_eq!(file.page_bytes(), Node::<W>::BYTES);
        Ok(PagePool {
            frames: Frames::reserve(frames)?,
            map: PageMap::reserve(pages_max)?,
            lists: Mutex::new(PoolLists {
                free: (0..frames).rev().collect(),
                replacement: Replacement::new(frames as usize),
                space: FileSpace::default(),
                numbers: PageNumbers::default(),
                changed: Bits::default(),
            }),
            loads: PageLoads::default(),
            leaving: Mutex::new(Buffers::of(WRITTEN_FOR_ROOM, Node::<W>::BYTES)),
            read_buffers: Mutex::new(Vec::new()),
            tick: AtomicU8::new(0),
            cut: AtomicU64::new(1),
            in_progress: Mutex::new(None),
            restructuring: RwLock::new(()),
            counts: PoolCounts::default(),
            kept: AtomicU32::new(0),
            clock: clock.clone(),
            write_behind: WriteBehind::default(),
            rounds: Rounds::default(),
            file,
        })
    }

    /// A pool for the pages whose images a checkpoint has published, in a file in which these addresses are in use: by what
    /// it has published, and by what the checkpoint before it has.
    pub fn open(
        file: PageFile,
        (frames, pages_max): (u32, u32),
        images: &[Option<Saved>],
        (published, older): (Bits, Bits),
        clock: &Clock,
    ) -> std::io::Result<PagePool<W>> {
        let pool = PagePool::new(file, frames, pages_max, clock)?;
        let (mut numbers, mut current) = (Bits::default(), Bits::default());
        for (page, saved) in (0..).zip(images) {
            if let Some(saved) = saved {
                pool.map.set(PageId(page), Whereabouts::OnDisk(*saved));
                numbers.insert(page);
                current.insert(saved.address.0);
            }
        }
        {
            let mut lists = pool.lists.lock();
            lists.numbers = PageNumbers::of_used(numbers);
            lists.space = FileSpace::of_published(current, published, older);
        }
        Ok(pool)
    }

    /// How many pages all transactions may keep in memory at a time, and how many one of them may.
    fn kept_max(&self) -> (u32, u32) {
        let frames = self.frames.count();
        (frames / KEPT_BY_ALL, (frames / KEPT_BY_ONE).max(1))
    }

    /// Makes an empty page for a tree, as its root, and gives its number.
    pub fn make_root(&self, has_rows: bool) -> Result<u32> {
        loop {
            match self.allocate_page() {
                Ok((page, mut node)) => {
                    node.become_empty_leaf(has_rows);
                    return Ok(page.0);
                }
                // Without a guard of the wait: the caller has locked what others need, and keeps its turn.
                Err(NoFrame::NoneFree) => _ = self.make_room(1)?,
                Err(full) => return Err(self.error_of(&full)),
            }
        }
    }

    /// Notes a use of a page in a frame.
    #[inline(always)]
    fn touch(&self, node: &Node<W>) {
        let heat = Heat::of_bits(node.usage.load(Ordering::Relaxed) as u16);
        if let Some(used) = heat.used(self.tick.load(Ordering::Relaxed)) {
            node.usage.store(u64::from(used.bits()), Ordering::Relaxed);
        }
    }

    /// Pins the page that a leaf was read of. False: it may have changed or left since.
    pub fn pin(&self, leaf: &Leaf) -> bool {
        self.hold(leaf, PIN)
    }

    fn hold(&self, leaf: &Leaf, by: u64) -> bool {
        let node = self.frames.node(leaf.number());
        node.pins.fetch_add(by, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_there = node.latch.validate(leaf.version());
        if !is_there {
            self.let_go(leaf.number(), by);
        }
        is_there
    }

    /// Ends a pin of the page in a frame.
    pub fn unpin(&self, frame: u32) {
        self.let_go(frame, PIN);
    }

    fn let_go(&self, frame: u32, held: u64) {
        let before = self.frames.node(frame).pins.fetch_sub(held, Ordering::Release);
        debug_assert!(before >= held, "frame {frame} is unpinned more often than pinned");
    }

    /// A page has come into a frame.
    fn enter(&self, frame: u32, node: &Node<W>, loaded: Option<PageId>) {
        let mut lists = self.lists.lock();
        match loaded {
            Some(page) => lists.replacement.enter(frame, page),
            None => lists.replacement.enter_new(frame),
        }
        let tick = lists.replacement.tick();
        self.tick.store(tick, Ordering::Relaxed);
        node.usage.store(u64::from(Heat::of_loaded(tick).bits()), Ordering::Relaxed);
    }

    /// The page's newest image is this one, at an address that was taken for this purpose.
    fn save(&self, node: &LatchedNode<'_, W>, page: PageId, saved: Saved, purpose: Purpose) {
        let since = node.changed_since.load(Ordering::Relaxed);
        let older = Saved::of_word(node.saved.load(Ordering::Relaxed));
        // The cut is made under this latch.
        let mut in_progress = self.in_progress.lock();
        let is_of_cut = in_progress.is_some() && since < self.cut.load(Ordering::Relaxed);
        if let Some(cut) = &mut *in_progress
            && !is_of_cut
        {
            cut.note(page, older);
        }
        node.saved.store(saved.word(), Ordering::Relaxed);
        node.changed_since.store(0, Ordering::Relaxed);
        self.counts.changed.fetch_sub(u64::from(since != 0), Ordering::Relaxed);
        let mut lists = self.lists.lock();
        match &mut *in_progress {
            Some(cut) if is_of_cut => cut.written.insert(page.0),
            _ => lists.changed.insert(page.0),
        };
        match purpose {
            Purpose::Cut => lists.space.make_current(saved.address),
            Purpose::Current if is_of_cut => lists.space.make_part_of_cut(saved.address),
            Purpose::Current => {}
        }
        match older {
            Some(older) if is_of_cut => lists.space.supersede_by_cut(older.address),
            Some(older) => lists.space.supersede(older.address),
            None => {}
        }
    }

    fn allocate_page(&self) -> std::result::Result<(PageId, LatchedNode<'_, W>), NoFrame> {
        let mut lists = self.lists.lock();
        let frame = lists.free.pop().ok_or(NoFrame::NoneFree)?;
        let limit = self.map.capacity();
        let Some(page) = lists.numbers.take(limit) else {
            lists.free.push(frame);
            return Err(NoFrame::NoNumber(limit));
        };
        drop(lists);
        let node = self.frames.node(frame);
        let latched = node.claim_free();
        self.note_superseded(page, None);
        node.link.store(u64::from(page.0), Ordering::Relaxed);
        node.saved.store(0, Ordering::Relaxed);
        node.changed_since.store(self.cut.load(Ordering::Relaxed), Ordering::Relaxed);
        self.counts.changed.fetch_add(1, Ordering::Relaxed);
        self.enter(frame, node, None);
        self.map.set(page, Whereabouts::Resident(frame));
        Ok((page, latched))
    }

    /// The error of an operation for which there is no room.
    pub fn error_of(&self, full: &NoFrame) -> Error {
        match full {
            // All pages in frames are pinned, claimed, or have a child in a frame.
            NoFrame::NoneFree => {
                let limit = u64::from(self.frames.count()) * Node::<W>::BYTES as u64;
                Error::CacheFull { limit }
            }
            NoFrame::NoNumber(limit) => Error::Unsupported { what: format!("more than {limit} pages") },
            NoFrame::NoAddress => Error::Unsupported { what: "a longer page file".to_owned() },
        }
    }

    /// Frees a page that is in no frame, and that nothing leads to any more. False: it is in a frame.
    fn free_on_disk(&self, page: PageId) -> bool {
        let Whereabouts::OnDisk(saved) = self.map.find(page) else { return false };
        self.note_superseded(page, Some(saved));
        self.map.set(page, Whereabouts::Free);
        let mut lists = self.lists.lock();
        lists.numbers.give_back(page);
        lists.space.supersede(saved.address);
        true
    }

    /// How many pages there are, and how many of their newest images are in the page file.
    pub fn pages_and_images(&self) -> (usize, usize) {
        let lists = self.lists.lock();
        (lists.numbers.used(), lists.space.current())
    }

    /// Whether a checkpoint should begin, to free places, and the file may become shorter by them.
    pub fn wants_checkpoint(&self) -> bool {
        let lists = self.lists.lock();
        lists.space.is_crowded() && lists.space.superseded() as u64 * Node::<W>::BYTES as u64 > GROWTH_BYTES
    }

    /// What has happened to the pages, and how many there are.
    pub fn stats(&self) -> PageStats {
        let (reads, writes) = self.reads_and_writes();
        let (used, superseded) = {
            let lists = self.lists.lock();
            (lists.space.in_use(), lists.space.superseded())
        };
        let bytes = |pages: usize| pages as u64 * Node::<W>::BYTES as u64;
        PageStats {
            page_bytes: Node::<W>::BYTES as u64,
            pages: self.pages_and_images().0 as u64,
            kept: u64::from(self.kept.load(Ordering::Relaxed)),
            reads,
            writes,
            file_bytes: self.file.length(),
            used_bytes: bytes(used),
            superseded_bytes: bytes(superseded),
            changed: self.counts.changed.load(Ordering::Relaxed),
        }
    }

    /// From now on no page is read or written.
    pub fn close(&self) {
        self.file.close(&self.clock);
    }

    /// Makes everything durable that was written to the page file.
    pub fn sync(&self) -> Result<()> {
        Ok(self.file.sync()?)
    }

    /// How many pages were read and written.
    pub fn reads_and_writes(&self) -> (u64, u64) {
        (self.counts.reads.load(Ordering::Relaxed), self.counts.writes.load(Ordering::Relaxed))
    }
}

impl<const W: usize> KeepsPages for PagePool<W> {
    fn keep(&self, leaf: &Leaf, already: usize) -> Kept {
        let (all, one) = self.kept_max();
        let before = self.kept.fetch_add(1, Ordering::Relaxed);
        let kept = match before < all && already < one as usize {
            false => Kept::TooMany,
            true if !fault_injection::is_on("kept-pages-leave") && self.hold(leaf, KEPT) => Kept::Yes,
            true => Kept::Changed,
        };
        if kept != Kept::Yes {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        kept
    }

    fn release(&self, frames: &[u32]) {
        frames.iter().for_each(|&frame| self.let_go(frame, KEPT));
        self.kept.fetch_sub(frames.len() as u32, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
