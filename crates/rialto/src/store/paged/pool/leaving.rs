//! How pages leave the pool.

use std::sync::atomic::{Ordering, fence};

use super::super::file_space::Purpose;
use super::super::frames::Frames;
use super::super::image;
use super::super::page_map::{PageId, Saved, Whereabouts};
use super::super::replacement::{Heat, Heats, Victim};
use super::{NoFrame, PagePool, WRITTEN_TOGETHER};
use crate::error::Result;
use crate::io::AlignedBuffer;
use crate::store::tree::{LatchedNode, Node};

/// For the pages that are written together.
pub(super) struct Buffers {
    pub(super) images: AlignedBuffer,
}

/// A page that is written to leave.
struct Leaving {
    victim: Victim,
    page: PageId,
    version: u64,
}

impl<const W: usize> PagePool<W> {
    /// Lets some pages leave, and writes those of them that have changed. Returns when there are free frames.
    ///
    /// # Errors
    /// Of a write; [`NoFrame::NoneFree`] if no page can leave.
    pub fn make_room(&self) -> Result<()> {
        let mut buffers = self.leaving.lock();
        loop {
            if !self.lists.lock().free.is_empty() {
                return Ok(());
            }
            let is_busy = self.let_some_leave(&mut buffers)?;
            if !is_busy && self.lists.lock().free.is_empty() {
                return Err(self.error_of(&NoFrame::NoneFree));
            }
        }
    }

    /// One round of it. Gives whether a page stays only because a thread is changing it.
    fn let_some_leave(&self, buffers: &mut Buffers) -> Result<bool> {
        let (mut kept, mut leaving) = (Vec::new(), Vec::new());
        let (mut freed, mut is_busy) = (0, false);
        let most = self.frames.count() as usize;
        while freed + leaving.len() < WRITTEN_TOGETHER.min(most.div_ceil(4)) && kept.len() < most {
            let Some(victim) = self.lists.lock().replacement.victim(&self.frames) else { break };
            match self.try_leave(victim) {
                Leave::Left => freed += 1,
                Leave::Changed(page) => match self.save_for_leaving(victim, page, buffers, leaving.len()) {
                    Some(saved) => leaving.push(saved),
                    None => {
                        is_busy = true;
                        kept.push(victim);
                    }
                },
                Leave::Busy => {
                    is_busy = true;
                    kept.push(victim);
                }
                Leave::Stays => kept.push(victim),
            }
        }
        let count = kept.len();
        let written = self.write_leaving(buffers, leaving, &mut kept);
        is_busy |= kept.len() > count;
        let mut lists = self.lists.lock();
        kept.into_iter().for_each(|victim| lists.replacement.keep(victim));
        written.map(|()| is_busy)
    }

    /// Lets a page leave whose image is in the page file.
    fn try_leave(&self, victim: Victim) -> Leave {
        let node = self.frames.node(victim.frame);
        if node.latch.is_free() {
            // Its page was freed while the frame was in a queue.
            self.lists.lock().free.push(victim.frame);
            return Leave::Left;
        }
        let Some(version) = node.latch.try_read() else { return Leave::Busy };
        if node.pins.load(Ordering::Relaxed) != 0 {
            return Leave::Stays;
        }
        let page = PageId(node.link.load(Ordering::Relaxed) as u32);
        if node.changed_since.load(Ordering::Relaxed) != 0 {
            return Leave::Changed(page);
        }
        match node.upgrade(version) {
            Some(latched) => self.leave(victim, page, latched),
            None => Leave::Busy,
        }
    }

    /// The same for a page that is latched, and whose version is that of its image.
    fn leave(&self, victim: Victim, page: PageId, latched: LatchedNode<'_, W>) -> Leave {
        // Before a pin is seen or not: see the module's page.
        fence(Ordering::SeqCst);
        let is_held = latched.pins.load(Ordering::Relaxed) != 0;
        let has_child_here =
            latched.children().any(|child| matches!(self.map.find(PageId(child)), Whereabouts::Resident(_)));
        let saved = Saved::of_word(latched.saved.load(Ordering::Relaxed));
        let Some(saved) = saved.filter(|_| !is_held && !has_child_here) else { return Leave::Stays };
        self.map.set(page, Whereabouts::OnDisk(saved));
        latched.retire();
        let mut lists = self.lists.lock();
        lists.replacement.leave(victim, page);
        lists.free.push(victim.frame);
        Leave::Left
    }

    /// Copies the page's image to the buffer, if no thread changes it meanwhile.
    fn save_for_leaving(
        &self,
        victim: Victim,
        page: PageId,
        buffers: &mut Buffers,
        position: usize,
    ) -> Option<Leaving> {
        let node = self.frames.node(victim.frame);
        let version = node.latch.try_read()?;
        let (from, bytes) = (position * Node::<W>::BYTES, Node::<W>::BYTES);
        node.save(&mut buffers.images[from..from + bytes]);
        let is_whole = node.latch.validate(version) && node.link.load(Ordering::Relaxed) as u32 == page.0;
        is_whole.then_some(Leaving { victim, page, version })
    }

    /// Writes pages, and lets them leave. Those that have changed meanwhile, or are used, go to `kept`.
    fn write_leaving(
        &self,
        buffers: &mut Buffers,
        leaving: Vec<Leaving>,
        kept: &mut Vec<Victim>,
    ) -> Result<()> {
        let bytes = Node::<W>::BYTES;
        let mut outcome = Ok(());
        let mut leaving = leaving.into_iter().enumerate().peekable();
        while let Some(&(first, _)) = leaving.peek() {
            let most = leaving.len() as u32;
            let run = self.lists.lock().space.take(Purpose::Current, most);
            let Some(run) = run.filter(|_| outcome.is_ok()) else {
                kept.extend(leaving.map(|(_, leaving)| leaving.victim));
                return outcome;
            };
            let images = &mut buffers.images[first * bytes..][..run.length as usize * bytes];
            let stamps: Vec<_> =
                images.chunks_exact_mut(bytes).map(|image| image::seal(image, self.file.seed())).collect();
            if let Err(error) = self.file.write(run.first, images) {
                outcome = Err(error.into());
            }
            self.counts.writes.fetch_add(u64::from(run.length), Ordering::Relaxed);
            for ((address, stamp), (_, leaving)) in run.addresses().zip(stamps).zip(leaving.by_ref()) {
                let saved = Saved { address, stamp };
                if outcome.is_err() || !self.leave_written(&leaving, saved) {
                    kept.push(leaving.victim);
                }
                if outcome.is_err() {
                    self.lists.lock().space.give_back(Purpose::Current, address);
                }
            }
        }
        outcome
    }

    /// Lets a page leave whose image was just written. False: it stays.
    fn leave_written(&self, leaving: &Leaving, saved: Saved) -> bool {
        let node = self.frames.node(leaving.victim.frame);
        let Some(latched) = node.upgrade(leaving.version) else {
            // The image is out of date.
            self.lists.lock().space.give_back(Purpose::Current, saved.address);
            return false;
        };
        self.save(&latched, leaving.page, saved, Purpose::Current);
        matches!(self.leave(leaving.victim, leaving.page, latched), Leave::Left)
    }
}

/// Whether a page has left its frame.
enum Leave {
    Left,
    /// This page has changed since its image was written.
    Changed(PageId),
    /// A thread is changing it.
    Busy,
    /// It is pinned, has claimed entries, or has a child in a frame.
    Stays,
}

impl<const W: usize> Heats for Frames<W> {
    fn heat(&self, frame: u32) -> Heat {
        Heat::of_bits(self.node(frame).usage.load(Ordering::Relaxed) as u16)
    }

    fn set_heat(&self, frame: u32, heat: Heat) {
        self.node(frame).usage.store(u64::from(heat.bits()), Ordering::Relaxed);
    }
}
