//! [`Replacement`]: which page leaves the pool for another one.
//!
//! The rule is S3-FIFO's (Yang and others, SOSP 2023). A page that is loaded enters a short queue, a tenth of the pool.
//! When it comes to that queue's end it leaves the pool, unless it was used meanwhile: then it goes on to the main
//! queue. A page that left from the short queue and is loaded again soon enters the main queue at once. At the end of
//! the main queue a page that was used goes back to the begin, up to three times, and one that was not leaves the pool.
//! So a scan of a large table passes through the short queue, and the pages that are used again stay.
//!
//! *Use* is counted in [`Heat`], at most once in a *tick*, a sixteenth of the pool's turnover. The uses by one
//! transaction, in its fetch stage, its operate stage and its commit, are thereby one use.

use std::collections::VecDeque;

use hashbrown::HashSet;

use super::page_map::PageId;

/// How often a page was used, beside the tick of its last use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Heat {
    uses: u8,
    tick: u8,
}

/// More uses do not count.
const USES_MAX: u8 = 3;

impl Heat {
    /// Of a page that is loaded in this tick.
    pub fn of_loaded(tick: u8) -> Heat {
        Heat { uses: 0, tick }
    }

    /// After a use in this tick; `None`: as before.
    #[inline(always)]
    pub fn used(self, tick: u8) -> Option<Heat> {
        (self.tick != tick).then(|| Heat { uses: (self.uses + 1).min(USES_MAX), tick })
    }

    /// One use less; `None`: there is none.
    fn cooled(self) -> Option<Heat> {
        self.uses.checked_sub(1).map(|uses| Heat { uses, ..self })
    }

    pub fn bits(self) -> u16 {
        u16::from(self.uses) << 8 | u16::from(self.tick)
    }

    pub fn of_bits(bits: u16) -> Heat {
        Heat { uses: (bits >> 8) as u8, tick: bits as u8 }
    }
}

/// The heat of the pages in the frames.
pub(super) trait Heats {
    fn heat(&self, frame: u32) -> Heat;
    fn set_heat(&self, frame: u32, heat: Heat);
}

/// A page that may leave the pool. It is in no queue until it is [kept](Replacement::keep).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Victim {
    pub frame: u32,
    /// Whether it was in the short queue.
    is_new: bool,
}

/// The queues.
#[derive(Debug)]
pub(super) struct Replacement {
    short: VecDeque<u32>,
    main: VecDeque<u32>,
    short_max: usize,
    gone: Gone,
    /// Pages that have entered.
    entered: u64,
    /// So many enter in a tick.
    per_tick: u64,
}

impl Replacement {
    /// For a pool of so many frames.
    pub fn new(frames: usize) -> Replacement {
        Replacement {
            short: VecDeque::new(),
            main: VecDeque::new(),
            short_max: (frames / 10).max(1),
            gone: Gone { order: VecDeque::new(), pages: HashSet::new(), most: frames },
            entered: 0,
            per_tick: (frames as u64 / 16).max(1),
        }
    }

    /// The present tick.
    pub fn tick(&self) -> u8 {
        (self.entered / self.per_tick) as u8
    }

    /// A page was loaded into a frame.
    pub fn enter(&mut self, frame: u32, page: PageId) {
        self.entered += 1;
        match self.gone.take(page) {
            true => self.main.push_back(frame),
            false => self.short.push_back(frame),
        }
    }

    /// A page that is made belongs to a tree that grows, and enters the main queue.
    pub fn enter_new(&mut self, frame: u32) {
        self.entered += 1;
        self.main.push_back(frame);
    }

    /// The next page to leave. `None`: all pages have been looked at as often as they can be kept.
    pub fn victim(&mut self, heats: &impl Heats) -> Option<Victim> {
        let pages = self.short.len() + self.main.len();
        for _ in 0..pages * (usize::from(USES_MAX) + 2) {
            let is_new = self.short.len() > self.short_max || self.main.is_empty();
            let queue = if is_new { &mut self.short } else { &mut self.main };
            let frame = queue.pop_front()?;
            match heats.heat(frame).cooled() {
                None => return Some(Victim { frame, is_new }),
                Some(heat) => {
                    heats.set_heat(frame, heat);
                    self.main.push_back(frame);
                }
            }
        }
        None
    }

    /// The page of a victim has left the pool.
    pub fn leave(&mut self, victim: Victim, page: PageId) {
        if victim.is_new {
            self.gone.put(page);
        }
    }

    /// How many frames are in a queue.
    pub fn len(&self) -> usize {
        self.short.len() + self.main.len()
    }

    /// A victim stays: it is in use.
    pub fn keep(&mut self, victim: Victim) {
        match victim.is_new {
            true => self.short.push_back(victim.frame),
            false => self.main.push_back(victim.frame),
        }
    }
}

/// Pages that have left from the short queue, as many as the pool has frames.
#[derive(Debug)]
struct Gone {
    order: VecDeque<PageId>,
    pages: HashSet<PageId>,
    most: usize,
}

impl Gone {
    fn put(&mut self, page: PageId) {
        if self.pages.insert(page) {
            self.order.push_back(page);
        }
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.pages.remove(&oldest);
            }
        }
    }

    /// Whether the page is among them. It is not any more.
    fn take(&mut self, page: PageId) -> bool {
        // Its place in the order stays until it is the oldest; a page that comes back meanwhile goes a little early.
        self.pages.remove(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    use crate::io::Random;

    /// A pool without memory: which page is in which frame, and how often pages were loaded.
    struct Pool {
        pages: Vec<Option<PageId>>,
        heats: RefCell<Vec<Heat>>,
        queues: Replacement,
        loads: usize,
    }

    impl Heats for RefCell<Vec<Heat>> {
        fn heat(&self, frame: u32) -> Heat {
            self.borrow()[frame as usize]
        }

        fn set_heat(&self, frame: u32, heat: Heat) {
            self.borrow_mut()[frame as usize] = heat;
        }
    }

    impl Pool {
        fn new(frames: usize) -> Pool {
            Pool {
                pages: vec![None; frames],
                heats: RefCell::new(vec![Heat::default(); frames]),
                queues: Replacement::new(frames),
                loads: 0,
            }
        }

        /// Whether the page was there.
        fn touch(&mut self, page: u32) -> bool {
            let (page, tick) = (PageId(page), self.queues.tick());
            if let Some(frame) = self.pages.iter().position(|&there| there == Some(page)) {
                let heat = self.heats.heat(frame as u32);
                if let Some(used) = heat.used(tick) {
                    self.heats.set_heat(frame as u32, used);
                }
                return true;
            }
            self.loads += 1;
            let free = self.pages.iter().position(Option::is_none);
            let frame = free.unwrap_or_else(|| {
                let victim = self.queues.victim(&self.heats).expect("a page can leave");
                let left = self.pages[victim.frame as usize].take().expect("a victim is a page");
                self.queues.leave(victim, left);
                victim.frame as usize
            });
            self.pages[frame] = Some(page);
            self.heats.set_heat(frame as u32, Heat::of_loaded(tick));
            self.queues.enter(frame as u32, page);
            false
        }
    }

    #[test]
    fn a_scan_leaves_what_is_used_again() {
        let mut pool = Pool::new(100);
        let mut random = Random::new(3);
        // 50 pages are used again and again, between them others once.
        for once in 1_000..3_000 {
            pool.touch(random.below(50) as u32);
            pool.touch(once);
        }
        let before = pool.loads;
        for page in 10_000..20_000 {
            pool.touch(page);
            pool.touch(random.below(50) as u32);
        }
        let missed = pool.loads - before - 10_000;
        assert!(missed < 100, "{missed} of 10,000 uses of the 50 pages were misses");
    }

    #[test]
    fn a_scan_alone_uses_the_short_queue_once_the_pool_is_full() {
        let mut pool = Pool::new(100);
        for round in 0..20 {
            (0..60).for_each(|page| {
                pool.touch(page);
                pool.touch(100_000 + 100 * round + page);
            });
        }
        (1_000..5_000).for_each(|page| {
            pool.touch(page);
        });
        let stayed = (0..60).filter(|&page| pool.pages.contains(&Some(PageId(page)))).count();
        assert!(stayed >= 50, "{stayed} of 60 pages stayed during a scan of 4,000");
    }

    #[test]
    fn uses_in_one_tick_are_one_use() {
        let heat = Heat::of_loaded(4);
        assert_eq!(heat.used(4), None);
        let used = heat.used(5).unwrap();
        assert_eq!((used.uses, used.used(5)), (1, None));
        assert_eq!(Heat::of_bits(used.bits()), used);
        let hot = (6..20).fold(used, |heat, tick| heat.used(tick).unwrap());
        assert_eq!(hot.uses, USES_MAX);
    }

    #[test]
    fn a_victim_that_is_kept_is_asked_for_again() {
        let mut pool = Pool::new(10);
        (0..10).for_each(|page| {
            pool.touch(page);
        });
        let mut seen = HashSet::new();
        for _ in 0..10 {
            let victim = pool.queues.victim(&pool.heats).unwrap();
            seen.insert(victim.frame);
            pool.queues.keep(victim);
        }
        assert_eq!(seen.len(), 10);
    }
}
