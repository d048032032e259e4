//! [`PageAccess`]: how the operations of one run of a transaction reach pages.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::fingers::Fingers;
use crate::account::PageCounts;
use crate::account::disk_waits::{self, DiskWaits};
use crate::error::{Error, Result};
use crate::store::tree::Leaf;

/// What an operation does with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PageMode {
    /// It reads those that are missing.
    #[default]
    Read,
    /// It reads those that are missing, and keeps all that it reads in memory.
    Fetch,
    /// It gives up at the first that is missing, and keeps all that it has read before in memory.
    UntilMiss,
}

/// Why an operation gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GaveUp {
    /// A page was missing.
    Missed,
    /// There are as many kept pages as there may be: of this access, or of all together.
    KeepsTooMany,
}

/// See the [module's documentation](self).
#[derive(Default)]
pub(crate) struct PageAccess {
    mode: Cell<PageMode>,
    counts: Cell<PageCounts>,
    gave_up: Cell<Option<GaveUp>>,
    kept: RefCell<KeptPages>,
    fingers: Fingers,
    /// When its transaction has waited for the disk.
    disk_waits: Option<Arc<DiskWaits>>,
}

impl PageAccess {
    /// Of a caller that is no transaction, or that changes what is in memory only.
    pub fn plain() -> PageAccess {
        PageAccess::default()
    }

    /// The same, of a caller with several operations on a key.
    pub fn with_fingers() -> PageAccess {
        PageAccess { fingers: Fingers::new(), ..PageAccess::default() }
    }

    /// Of a transaction with these waits for the disk.
    pub fn of(disk_waits: Arc<DiskWaits>) -> PageAccess {
        PageAccess { disk_waits: Some(disk_waits), ..PageAccess::with_fingers() }
    }

    /// Where its operations have found keys.
    pub fn fingers(&self) -> &Fingers {
        &self.fingers
    }

    /// Does what may wait for the disk.
    pub(super) fn wait<T>(&self, work: impl FnOnce() -> T) -> T {
        disk_waits::waits_of(self.disk_waits.as_deref(), work)
    }

    /// For tests of waits for the disk.
    #[cfg(test)]
    pub(crate) fn wait_for_tests<T>(&self, work: impl FnOnce() -> T) -> T {
        self.wait(work)
    }

    /// Forgets the transaction's waits for the disk: a run of it begins, or it has ended.
    pub fn forget_disk_waits(&self) {
        if let Some(waits) = &self.disk_waits {
            waits.forget();
        }
    }

    /// Begins a run, which has kept these pages already.
    pub fn begin(&self, mode: PageMode, kept: KeptPages) {
        self.mode.set(mode);
        self.counts.take();
        self.gave_up.take();
        self.kept.replace(kept);
    }

    /// Begins a part of another one's run.
    pub fn begin_part_of(&self, whole: &PageAccess) {
        self.begin(whole.mode.get(), KeptPages::default());
    }

    /// Ends a part of this one's run: takes over what it has counted and kept, and that it gave up.
    pub fn end_part(&self, part: &PageAccess) {
        self.add_counts(part.take_counts());
        let kept = part.end();
        match part.gave_up.take() {
            // A page that was missing ends the run, whatever else was given up.
            Some(GaveUp::Missed) => {
                self.gave_up.set(Some(GaveUp::Missed));
                self.kept.borrow_mut().absorb(kept);
            }
            Some(GaveUp::KeepsTooMany) => {
                if self.gave_up().is_none() {
                    self.gave_up.set(Some(GaveUp::KeepsTooMany));
                }
                self.go_on_without_keeping();
            }
            None => self.kept.borrow_mut().absorb(kept),
        }
    }

    /// From now on it reads what is missing, and keeps nothing.
    fn go_on_without_keeping(&self) {
        self.mode.set(PageMode::Read);
        self.kept.borrow_mut().release();
    }

    /// What was counted since the run began.
    pub fn counts(&self) -> PageCounts {
        self.counts.get()
    }

    /// The same, once.
    pub fn take_counts(&self) -> PageCounts {
        self.counts.take()
    }

    /// Adds what another one has counted.
    fn add_counts(&self, other: PageCounts) {
        let counts = self.counts.get();
        self.counts.set(PageCounts {
            accesses: counts.accesses + other.accesses,
            misses: counts.misses + other.misses,
            reads: counts.reads + other.reads,
            room_waits: counts.room_waits + other.room_waits,
        });
    }

    /// Why an operation gave up, if one has.
    pub fn gave_up(&self) -> Option<GaveUp> {
        self.gave_up.get()
    }

    /// Whether an operation gave up because a page was missing. It is told once.
    pub fn takes_miss(&self) -> bool {
        let missed = self.gave_up() == Some(GaveUp::Missed);
        if missed {
            self.gave_up.take();
        }
        missed
    }

    /// Forgets why an operation gave up: another transaction begins.
    pub fn forget_giving_up(&self) {
        self.gave_up.take();
    }

    /// Ends a run: from now on what is missing is read. Gives the pages that the run has kept, which the caller keeps from now on.
    pub fn end(&self) -> KeptPages {
        self.mode.set(PageMode::Read);
        self.kept.take()
    }

    /// Counts an access, before it begins.
    #[inline]
    pub(super) fn count(&self) {
        let counts = self.counts.get();
        self.counts.set(PageCounts { accesses: counts.accesses + 1, ..counts });
    }

    /// A page is missing; `again` says whether one was before in the same access.
    ///
    /// # Errors
    /// If the access gives up.
    pub(super) fn miss(&self, again: bool) -> Result<()> {
        if self.mode.get() == PageMode::UntilMiss {
            return Err(self.give_up(GaveUp::Missed));
        }
        let counts = self.counts.get();
        self.counts.set(PageCounts {
            misses: counts.misses + u64::from(!again),
            reads: counts.reads + 1,
            ..counts
        });
        Ok(())
    }

    /// So many pages were missing on the ways to keys that are looked up later, and so many were read for them.
    pub(super) fn count_ahead(&self, misses: usize, reads: usize) {
        let counts = self.counts.get();
        self.counts.set(PageCounts {
            misses: counts.misses + misses as u64,
            reads: counts.reads + reads as u64,
            ..counts
        });
    }

    /// Whether what is missing is read, instead of ending the run.
    pub fn reads(&self) -> bool {
        self.mode.get() != PageMode::UntilMiss
    }

    /// It got a place for a page; `waited` says whether it had to wait until another page was written.
    pub(super) fn get_room(&self, waited: bool) {
        let counts = self.counts.get();
        self.counts.set(PageCounts { room_waits: counts.room_waits + u64::from(waited), ..counts });
    }

    /// Whether it keeps the pages that it reads.
    #[inline]
    pub(super) fn keeps(&self) -> bool {
        self.mode.get() != PageMode::Read
    }

    /// Keeps the page of a leaf that was just read in memory, unless the leaf has changed since: then others use it now.
    ///
    /// # Errors
    /// If the access gives up, because there are too many kept pages.
    pub(super) fn keep<P: KeepsPages + 'static>(&self, pool: &Arc<P>, leaf: &Leaf) -> Result<()> {
        let mut kept = self.kept.borrow_mut();
        let Err(position) = kept.frames.binary_search(&leaf.number()) else { return Ok(()) };
        match pool.keep(leaf, kept.frames.len()) {
            Kept::Yes => {
                if kept.pool.is_none() {
                    kept.pool = Some(pool.clone());
                }
                kept.frames.insert(position, leaf.number());
                Ok(())
            }
            Kept::Changed => Ok(()),
            Kept::TooMany => {
                kept.release();
                match self.mode.get() {
                    PageMode::Fetch => Err(self.give_up(GaveUp::KeepsTooMany)),
                    // It goes on, and reads what is missing.
                    PageMode::UntilMiss | PageMode::Read => {
                        self.gave_up.set(Some(GaveUp::KeepsTooMany));
                        self.mode.set(PageMode::Read);
                        Ok(())
                    }
                }
            }
        }
    }

    fn give_up(&self, why: GaveUp) -> Error {
        self.gave_up.set(Some(why));
        let waiting_for = match why {
            GaveUp::Missed => "nothing: a page is not in memory, and the transaction runs again when it is",
            GaveUp::KeepsTooMany => {
                "nothing: it needs more pages than a transaction may keep in memory, and runs again without"
            }
        };
        Error::Deadlock { waiting_for: waiting_for.to_owned() }
    }
}

/// Whether a page is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Yes,
    /// The leaf has changed since it was read.
    Changed,
    /// As many pages are kept as there may be.
    TooMany,
}

/// What keeps pages in memory: a pool.
pub(crate) trait KeepsPages: Send + Sync {
    /// Keeps the page of a leaf in memory, for an access that keeps so many already.
    fn keep(&self, leaf: &Leaf, already: usize) -> Kept;

    /// Ends that for the pages in these frames.
    fn release(&self, frames: &[u32]);
}

/// Pages that stay in memory until this is dropped.
#[derive(Default)]
pub(crate) struct KeptPages {
    pool: Option<Arc<dyn KeepsPages>>,
    /// In order.
    frames: Vec<u32>,
}

impl KeptPages {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Takes others over. A page that is among both is kept once.
    fn absorb(&mut self, mut others: KeptPages) {
        if self.pool.is_none() {
            self.pool = others.pool.clone();
        }
        let own = &self.frames;
        let (twice, new): (Vec<u32>, Vec<u32>) =
            others.frames.drain(..).partition(|frame| own.binary_search(frame).is_ok());
        if let Some(pool) = &self.pool {
            pool.release(&twice);
        }
        self.frames.extend(new);
        self.frames.sort_unstable();
    }

    /// They need not stay any longer.
    pub fn release(&mut self) {
        if let Some(pool) = &self.pool {
            pool.release(&self.frames);
        }
        self.frames.clear();
    }
}

impl Drop for KeptPages {
    fn drop(&mut self) {
        self.release();
    }
}
