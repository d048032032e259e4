//! How pages leave the pool.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::super::file_space::Purpose;
use super::super::frames::Frames;
use super::super::page_map::{PageId, Saved, Whereabouts};
use super::super::replacement::{Heat, Heats, Victim};
use super::{KEPT, NoFrame, PIN, PagePool, PoolLists};
use crate::error::Result;
use crate::fault_injection;
use crate::io::AlignedBuffer;
use crate::store::tree::{LatchedNode, Node};

/// For the pages that are written together.
pub(super) struct Buffers {
    images: AlignedBuffer,
    /// How many writes there were from here.
    writes: u64,
}

impl Buffers {
    /// For so many pages of so many bytes.
    pub(super) fn of(pages: usize, bytes: usize) -> Buffers {
        Buffers { images: AlignedBuffer::zeroed(pages * bytes), writes: 0 }
    }
}

/// A page that is written to leave.
struct Leaving {
    victim: Victim,
    page: PageId,
    version: u64,
    /// The kinds of pins that keep it where it is.
    held: u64,
}

/// Counts the rounds in which pages leave, so that each knows of those beside it: these hold victims of their own.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Writes that have ended.
    writes: AtomicU64,
}

impl Rounds {
    /// A round begins. Gives how many have begun before it, and whether one of them goes on.
    fn begin(&self) -> (u64, bool) {
        let ended = self.ended.load(Ordering::SeqCst);
        let before = self.begun.fetch_add(1, Ordering::SeqCst);
        (before, ended < before)
    }

    /// How many writes have ended.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// It ends. Whether there was another one beside it.
    fn end(&self, (before, is_beside): (u64, bool)) -> bool {
        self.ended.fetch_add(1, Ordering::SeqCst);
        is_beside || self.begun.load(Ordering::SeqCst) > before + 1
    }
}

/// A round in progress. When it ends, in any way, the pages that it has looked at and that stay are in a queue again, and the round
/// counts as ended: else others would wait for it for ever.
struct OpenRound<'a, const W: usize> {
    pool: &'a PagePool<W>,
    /// `None`: it has ended.
    began: Option<(u64, bool)>,
    /// Pages that stay.
    kept: Vec<Victim>,
    /// Pages whose images are still to be written.
    leaving: VecDeque<Leaving>,
}

impl<'a, const W: usize> OpenRound<'a, W> {
    fn begin(pool: &'a PagePool<W>) -> OpenRound<'a, W> {
        let began = Some(pool.rounds.begin());
        OpenRound { pool, began, kept: Vec::new(), leaving: VecDeque::new() }
    }

    /// Ends it. Whether there was another one beside it.
    fn end(&mut self, lists: &mut PoolLists) -> bool {
        let Some(began) = self.began.take() else { return false };
        let stay = self.kept.drain(..).chain(self.leaving.drain(..).map(|leaving| leaving.victim));
        stay.for_each(|victim| lists.replacement.keep(victim));
        self.pool.rounds.end(began)
    }
}

impl<const W: usize> Drop for OpenRound<'_, W> {
    fn drop(&mut self) {
        if self.began.is_some() {
            self.end(&mut self.pool.lists.lock());
        }
    }
}

/// Whether there are pins of these kinds.
fn is_held(pins: u64, kinds: u64) -> bool {
    // Those that keep a page are counted above the others.
    let others = pins % KEPT;
    others != 0 || kinds & KEPT != 0 && pins != others
}

impl<const W: usize> PagePool<W> {
    /// Lets some pages leave, and writes those of them that have changed. Returns when so many frames are free: whether it has waited
    /// for a write, of its own or of a round beside it.
    ///
    /// # Errors
    /// Of a write; [`NoFrame::NoneFree`] if no page can leave.
    pub fn make_room(&self, frames: usize) -> Result<bool> {
        let writes_before = self.rounds.writes();
        let (mut buffers, mut has_waited) = match self.leaving.try_lock() {
            Some(buffers) => (buffers, false),
            None => (self.clock.lock(&self.leaving), true),
        };
        let own_before = buffers.writes;
        // Those of operate stages may leave before an operation fails: kept leaves keep the pages that lead to them, too.
        let (mut held, mut looks) = (PIN | KEPT, 0);
        while self.lists.lock().free.len() < frames {
            match self.let_some_leave(&mut buffers, held)? {
                Round::SomeLeft => {}
                Round::SomeBusy => {
                    self.clock.look_later(looks);
                    looks += 1;
                    has_waited = true;
                }
                Round::AllStay if held & KEPT != 0 => held = PIN,
                Round::AllStay if self.lists.lock().free.len() >= frames => {}
                Round::AllStay => return Err(self.error_of(&NoFrame::NoneFree)),
            }
        }
        Ok(buffers.writes > own_before || has_waited && self.rounds.writes() > writes_before)
    }

    /// `held` are the kinds of pins that keep a page where it is.
    pub(super) fn let_some_leave(&self, buffers: &mut Buffers, held: u64) -> Result<Round> {
        let mut round = OpenRound::begin(self);
        let (mut freed, mut is_busy) = (0, false);
        let most = self.frames.count() as usize;
        let together = buffers.images.len() / Node::<W>::BYTES;
        while freed + round.leaving.len() < together.min(most.div_ceil(4)) && round.kept.len() < most {
            let Some(victim) = self.lists.lock().replacement.victim(&self.frames) else { break };
            match self.try_leave(victim, buffers, (round.leaving.len(), held)) {
                Leave::Left => freed += 1,
                Leave::Changed(written) => round.leaving.push_back(written),
                Leave::Busy => {
                    is_busy = true;
                    round.kept.push(victim);
                }
                Leave::Stays => round.kept.push(victim),
            }
        }
        let to_write = round.leaving.len();
        let (written, left) = self.write_leaving(buffers, &mut round);
        freed += left;
        is_busy |= left < to_write;
        let mut lists = self.lists.lock();
        // Frames that another round holds meanwhile are neither free nor in a queue.
        is_busy |= round.end(&mut lists);
        // Nor are those of a thread that is about to put a page there.
        is_busy |= lists.free.len() + lists.replacement.len() < most;
        drop(lists);
        if freed > 0 {
            self.write_behind.freed.notify_all();
        }
        written.map(|()| match (freed, is_busy) {
            (0, false) => Round::AllStay,
            (0, true) => Round::SomeBusy,
            _ => Round::SomeLeft,
        })
    }

    /// Lets a page leave whose image is in the page file. That of another page is copied to this position of the buffer.
    fn try_leave(&self, victim: Victim, buffers: &mut Buffers, (position, held): (usize, u64)) -> Leave {
        let node = self.frames.node(victim.frame);
        if node.latch.is_free() {
            // Its page was freed while the frame was in a queue.
            self.lists.lock().free.push(victim.frame);
            return Leave::Left;
        }
        // Without a latch, since pages that are used are not disturbed by it.
        if is_held(node.pins.load(Ordering::Relaxed), held) {
            return Leave::Stays;
        }
        let Some(version) = node.latch.try_read() else { return Leave::Busy };
        let Some(latched) = node.upgrade(version) else { return Leave::Busy };
        if self.stays(&latched, held) {
            return Leave::Stays;
        }
        let page = PageId(latched.link.load(Ordering::Relaxed) as u32);
        let saved = Saved::of_word(latched.saved.load(Ordering::Relaxed));
        match saved.filter(|_| latched.changed_since.load(Ordering::Relaxed) == 0) {
            Some(saved) => {
                self.leave(victim, page, saved, latched);
                Leave::Left
            }
            None => {
                let bytes = Node::<W>::BYTES;
                latched.save(&mut buffers.images[position * bytes..][..bytes]);
                Leave::Changed(Leaving { victim, page, version, held })
            }
        }
    }

    /// Whether a latched page is pinned, has claimed entries, or has a child in a frame.
    fn stays(&self, latched: &LatchedNode<'_, W>, held: u64) -> bool {
        // Before a pin is seen or not: see the module's page.
        fence(Ordering::SeqCst);
        is_held(latched.pins.load(Ordering::Relaxed), held)
            || latched.has_claims() && !fault_injection::is_on("claimed-pages-leave")
            || latched
                .children()
                .any(|child| matches!(self.map.find(PageId(child)), Whereabouts::Resident(_)))
    }

    /// The page leaves; this is its newest image.
    fn leave(&self, victim: Victim, page: PageId, saved: Saved, latched: LatchedNode<'_, W>) {
        self.map.set(page, Whereabouts::OnDisk(saved));
        latched.retire();
        let mut lists = self.lists.lock();
        lists.replacement.leave(victim, page);
        lists.free.push(victim.frame);
    }

    /// Writes pages, and lets them leave: how many did. Those that have changed meanwhile, or are used, are kept.
    fn write_leaving(&self, buffers: &mut Buffers, round: &mut OpenRound<'_, W>) -> (Result<()>, usize) {
        if round.leaving.is_empty() {
            return (Ok(()), 0);
        }
        let images = &mut buffers.images[..round.leaving.len() * Node::<W>::BYTES];
        let written = self.write_images(images, Purpose::Current);
        buffers.writes += 1;
        self.rounds.writes.fetch_add(1, Ordering::SeqCst);
        let saved = match written {
            Ok(saved) => saved,
            Err(error) => return (Err(error), 0),
        };
        let mut left = 0;
        for (leaving, saved) in round.leaving.drain(..).zip(saved) {
            match self.leave_written(&leaving, saved) {
                true => left += 1,
                false => round.kept.push(leaving.victim),
            }
        }
        (Ok(()), left)
    }

    /// Lets a page leave whose image was just written. False: it stays.
    fn leave_written(&self, leaving: &Leaving, saved: Saved) -> bool {
        let node = self.frames.node(leaving.victim.frame);
        let Some(latched) = node.upgrade(leaving.version) else {
            // The image is out of date.
            self.lists.lock().space.give_back(Purpose::Current, saved.address);
            return false;
        };
        if latched.changed_since.load(Ordering::Relaxed) == 0 {
            // A checkpoint has written the same image meanwhile, and relies on its own.
            self.lists.lock().space.give_back(Purpose::Current, saved.address);
            return false;
        }
        self.save(&latched, leaving.page, saved, Purpose::Current);
        let leaves = !self.stays(&latched, leaving.held);
        if leaves {
            self.leave(leaving.victim, leaving.page, saved, latched);
        }
        leaves
    }
}

/// What became of the pages that were to leave together.
pub(super) enum Round {
    SomeLeft,
    /// None left, and some only because a thread was using them.
    SomeBusy,
    AllStay,
}

/// Whether a page has left its frame.
enum Leave {
    Left,
    /// It has changed since its image was written, and leaves when it is written again.
    Changed(Leaving),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_knows_of_those_beside_it() {
        let rounds = Rounds::default();
        let alone = rounds.begin();
        assert!(!rounds.end(alone));
        // One that goes on when it begins, one that begins while it goes on, one that has ended meanwhile.
        let first = rounds.begin();
        let second = rounds.begin();
        assert!(rounds.end(first), "the second has begun beside it");
        let third = rounds.begin();
        assert!(rounds.end(second), "the first went on when it began");
        assert!(rounds.end(third), "the second went on when it began");
        let alone = rounds.begin();
        assert!(!rounds.end(alone), "all others have ended");
    }
}
