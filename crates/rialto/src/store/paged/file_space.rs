//! [`FileSpace`]: which addresses of the page file are in use, and by what.
//!
//! Pages are written out of place, so the page file has, beside the pages as they are now, those that the last complete
//! checkpoints published. Each use is a set of addresses:
//!
//! | set | the addresses of |
//! |---|---|
//! | *current* | each page's newest image on disk, where there is one |
//! | *cut* | the pages as they were at the cut of the checkpoint in progress |
//! | *published* | what the last complete checkpoint published |
//! | *older* | what the complete checkpoint before it published, until the next one begins (I5) |
//!
//! Invariant: an address is handed out only if it is in none of them. So nothing that a home block may name is
//! overwritten (I5), and no image that memory relies on.

use super::bits::Bits;

/// Where a page's image lies in the page file: the number of a piece of the file that is as long as a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileAddress(pub u32);

/// Addresses are below this: 31 bits.
pub(super) const ADDRESSES_MAX: u32 = 1 << 31;

/// Adjacent addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressRun {
    pub first: FileAddress,
    pub length: u32,
}

impl AddressRun {
    pub fn addresses(self) -> impl Iterator<Item = FileAddress> {
        (self.first.0..self.first.0 + self.length).map(FileAddress)
    }
}

/// For what an address is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For the newest image of a page.
    Current,
    /// For an image as of the cut of the checkpoint in progress.
    Cut,
}

/// The sets.
#[derive(Debug, Default)]
pub(super) struct FileSpace {
    current: Bits,
    /// None: no checkpoint has made its cut and is not complete yet.
    cut: Option<Bits>,
    published: Bits,
    older: Bits,
    /// How many images have been superseded since the last cut whose addresses a cut needs.
    superseded: usize,
    /// How many images the last cut has had written that its checkpoint superseded by that.
    superseded_by_cut: usize,
    /// No word of 64 addresses below this one has a free address.
    first_free_word: usize,
}

impl FileSpace {
    /// After an opening: the addresses of the pages, of all that the checkpoint in force has published, and of what the one
    /// before it has.
    pub fn of_published(current: Bits, published: Bits, older: Bits) -> FileSpace {
        FileSpace { current, published, older, ..FileSpace::default() }
    }

    fn used(&self, word: usize) -> u64 {
        let cut = self.cut.as_ref().map_or(0, |cut| cut.word(word));
        self.current.word(word) | cut | self.published.word(word) | self.older.word(word)
    }

    fn set_of(&mut self, purpose: Purpose) -> &mut Bits {
        match purpose {
            Purpose::Current => &mut self.current,
            Purpose::Cut => self.cut.as_mut().expect("a checkpoint has made its cut"),
        }
    }

    /// Takes up to `most` adjacent addresses, the lowest that are free. `None`: the file cannot become longer.
    pub fn take(&mut self, purpose: Purpose, most: u32) -> Option<AddressRun> {
        let mut word = self.first_free_word;
        while self.used(word) == u64::MAX {
            word += 1;
        }
        self.first_free_word = word;
        let first = word as u32 * 64 + self.used(word).trailing_ones();
        let is_free = |address: u32| self.used(address as usize / 64) >> (address % 64) & 1 == 0;
        let end = (first..ADDRESSES_MAX).take(most as usize).take_while(|&address| is_free(address)).count();
        if end == 0 {
            return None;
        }
        let run = AddressRun { first: FileAddress(first), length: end as u32 };
        let set = self.set_of(purpose);
        run.addresses().for_each(|address| {
            set.insert(address.0);
        });
        Some(run)
    }

    /// An address that was taken is not used for its purpose any more, or was not used at all.
    pub fn give_back(&mut self, purpose: Purpose, address: FileAddress) {
        let was_there = self.set_of(purpose).remove(address.0);
        debug_assert!(was_there, "address {} is given back twice", address.0);
        self.note_free(address);
    }

    /// The page whose newest image was at an address has another one, or none, and that is not of the cut of the checkpoint in progress.
    pub fn supersede(&mut self, address: FileAddress) {
        self.give_back(Purpose::Current, address);
        self.superseded += self.is_used(address);
    }

    fn note_free(&mut self, address: FileAddress) {
        self.first_free_word = self.first_free_word.min(address.0 as usize / 64);
    }

    /// The image at an address, which was taken for the cut, is the page's newest one too.
    pub fn make_current(&mut self, address: FileAddress) {
        self.current.insert(address.0);
    }

    /// The image at an address, which was taken for a page's newest one, is the one as of the cut too.
    pub fn make_part_of_cut(&mut self, address: FileAddress) {
        if let Some(cut) = &mut self.cut {
            cut.insert(address.0);
        }
    }

    /// The page whose newest image was at an address has another one, which is of the cut of the checkpoint in progress: that does not
    /// need the older one.
    pub fn supersede_by_cut(&mut self, address: FileAddress) {
        if let Some(cut) = &mut self.cut {
            cut.remove(address.0);
        }
        self.give_back(Purpose::Current, address);
        self.superseded_by_cut += self.is_used(address);
    }

    /// 1 if an address is used, else 0.
    fn is_used(&self, address: FileAddress) -> usize {
        (self.used(address.0 as usize / 64) >> (address.0 % 64) & 1) as usize
    }

    /// The next checkpoint begins: the home block that named the older set is retired.
    pub fn forget_older(&mut self) {
        self.older.clear();
        self.first_free_word = 0;
    }

    /// The cut of a checkpoint: it publishes what is current now, as far as that is on disk, and what is written for it.
    pub fn make_cut(&mut self) {
        debug_assert!(self.cut.is_none(), "one checkpoint at a time");
        self.cut = Some(self.current.clone());
        (self.superseded, self.superseded_by_cut) = (0, 0);
    }

    /// The checkpoint in progress is complete: a home block names what it has published.
    pub fn publish_cut(&mut self) {
        let cut = self.cut.take().expect("a checkpoint has made its cut");
        self.older = std::mem::replace(&mut self.published, cut);
        // What was the older set's alone is free.
        self.first_free_word = 0;
    }

    /// The checkpoint in progress is given up. If a home block may name what it has written, since the write of that block
    /// has failed, it stays until the block is retired.
    pub fn abandon_cut(&mut self, may_be_named: bool) {
        if let Some(cut) = self.cut.take().filter(|_| may_be_named) {
            self.older.insert_all(&cut);
        }
        let words = (self.published.end() as usize).div_ceil(64);
        let superseded = |word: usize| self.published.word(word) & !self.current.word(word);
        self.superseded = (0..words).map(|word| superseded(word).count_ones() as usize).sum();
        self.first_free_word = 0;
    }

    /// How many addresses the last checkpoint needs while their pages have had newer images since its cut: the next one frees them, in
    /// the end. What a checkpoint itself writes supersedes nothing in this sense.
    pub fn superseded(&self) -> usize {
        self.superseded
    }

    /// Whether another checkpoint should begin, to free addresses: what the last one has superseded and what was superseded since are more
    /// than a quarter of the pages. So checkpoints that write few pages keep at most half as many addresses as there are pages, besides
    /// the pages' own. One that writes many is not made for less than half as many, and not for more than a quarter of the pages.
    pub fn is_crowded(&self) -> bool {
        let quarter = self.current() / 4;
        let enough = (self.superseded_by_cut / 2).clamp(quarter / 2, quarter);
        self.superseded > enough.max(quarter.saturating_sub(self.superseded_by_cut))
    }

    /// How many addresses have the newest image of a page.
    pub fn current(&self) -> usize {
        self.current.len()
    }

    /// How many addresses are in use.
    pub fn in_use(&self) -> usize {
        let words = (self.end() as usize).div_ceil(64);
        (0..words).map(|word| self.used(word).count_ones() as usize).sum()
    }

    /// All addresses in use are below this one.
    pub fn end(&self) -> u32 {
        let cut = self.cut.as_ref().map_or(0, Bits::end);
        self.current.end().max(cut).max(self.published.end()).max(self.older.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::io::Random;

    fn take(space: &mut FileSpace, purpose: Purpose) -> u32 {
        space.take(purpose, 1).expect("the file may grow").first.0
    }

    #[test]
    fn addresses_are_taken_from_the_lowest_free_one_in_runs() {
        let mut space = FileSpace::default();
        assert_eq!(
            space.take(Purpose::Current, 100),
            Some(AddressRun { first: FileAddress(0), length: 100 })
        );
        for address in [3, 4, 5, 70] {
            space.give_back(Purpose::Current, FileAddress(address));
        }
        assert_eq!(space.take(Purpose::Current, 2), Some(AddressRun { first: FileAddress(3), length: 2 }));
        assert_eq!(space.take(Purpose::Current, 9), Some(AddressRun { first: FileAddress(5), length: 1 }));
        assert_eq!(space.take(Purpose::Current, 9), Some(AddressRun { first: FileAddress(70), length: 1 }));
        assert_eq!(space.take(Purpose::Current, 9), Some(AddressRun { first: FileAddress(100), length: 9 }));
        assert_eq!((space.current(), space.in_use(), space.end()), (109, 109, 109));
    }

    #[test]
    fn what_a_home_block_may_name_is_not_overwritten() {
        let mut space = FileSpace::default();
        let first = take(&mut space, Purpose::Current);
        space.forget_older();
        space.make_cut();
        // The page is written anew after the cut: the checkpoint needs the image before.
        let second = take(&mut space, Purpose::Current);
        space.give_back(Purpose::Current, FileAddress(first));
        assert_eq!(take(&mut space, Purpose::Current), 2, "0 is of the cut, 1 is current");
        space.publish_cut();
        assert_eq!(take(&mut space, Purpose::Current), 3, "0 is published");
        space.forget_older();
        space.make_cut();
        space.publish_cut();
        assert_eq!(take(&mut space, Purpose::Current), 4, "0 is of the older checkpoint");
        space.forget_older();
        assert_eq!(take(&mut space, Purpose::Current), first, "no block names it any more");
        assert!(space.current.contains(second));
    }

    #[test]
    fn a_checkpoint_that_is_given_up_leaves_nothing() {
        let mut space = FileSpace::default();
        space.make_cut();
        let of_cut = take(&mut space, Purpose::Cut);
        assert_eq!((space.current(), space.in_use()), (0, 1));
        space.abandon_cut(false);
        assert_eq!(space.in_use(), 0);
        assert_eq!(take(&mut space, Purpose::Current), of_cut);
    }

    #[test]
    fn what_a_block_may_name_stays_until_it_is_retired() {
        let mut space = FileSpace::default();
        space.make_cut();
        let of_cut = take(&mut space, Purpose::Cut);
        space.abandon_cut(true);
        assert_ne!(take(&mut space, Purpose::Current), of_cut);
        space.forget_older();
        assert_eq!(take(&mut space, Purpose::Current), of_cut);
    }

    #[test]
    fn superseded_addresses_are_counted_since_the_last_cut() {
        let mut space = FileSpace::default();
        let addresses: Vec<_> = space.take(Purpose::Current, 100).unwrap().addresses().collect();
        let mut left = addresses.iter().copied();
        let mut supersede = |space: &mut FileSpace, count| {
            left.by_ref().take(count).for_each(|address| space.supersede(address))
        };
        supersede(&mut space, 10);
        assert_eq!(space.superseded(), 0, "no checkpoint needs them");
        space.make_cut();
        supersede(&mut space, 5);
        space.publish_cut();
        supersede(&mut space, 7);
        assert_eq!((space.superseded(), space.in_use() - space.current()), (12, 12));
        // The next checkpoint writes pages itself, and is given up.
        space.forget_older();
        space.make_cut();
        assert_eq!(space.superseded(), 0);
        supersede(&mut space, 3);
        space.abandon_cut(false);
        assert_eq!((space.superseded(), space.in_use() - space.current()), (15, 15));
        // A cut that is given up, as a backup's is, leaves nothing that was written and superseded after the last checkpoint.
        let since = take(&mut space, Purpose::Current);
        space.make_cut();
        space.supersede(FileAddress(since));
        assert_eq!(space.superseded(), 1, "the cut needs it");
        space.abandon_cut(false);
        assert_eq!((space.superseded(), space.in_use() - space.current()), (15, 15));
        // The one after it is not.
        space.make_cut();
        space.publish_cut();
        assert_eq!((space.superseded(), space.in_use() - space.current()), (0, 15), "the older set has them");
        space.forget_older();
        assert_eq!(space.in_use(), space.current());
    }

    #[test]
    fn a_checkpoint_is_made_for_addresses_if_it_frees_enough_for_what_it_writes() {
        // Of 1,000 pages so many are written by each checkpoint; so many images are superseded until another one is due.
        for (written, expected) in
            [(0, 251), (50, 201), (125, 126), (200, 126), (300, 151), (500, 251), (1_000, 251)]
        {
            let mut space = FileSpace::default();
            let addresses: Vec<_> = space.take(Purpose::Current, 1_000).unwrap().addresses().collect();
            space.make_cut();
            space.publish_cut();
            space.make_cut();
            for &address in &addresses[..written] {
                let image = FileAddress(take(&mut space, Purpose::Cut));
                space.make_current(image);
                space.supersede_by_cut(address);
            }
            space.publish_cut();
            let mut superseded = 0;
            // Each page has a newer image somewhere else.
            let current: Vec<u32> =
                (0..space.end()).filter(|address| space.current.contains(*address)).collect();
            for address in current {
                if space.is_crowded() {
                    break;
                }
                space.take(Purpose::Current, 1).unwrap();
                space.supersede(FileAddress(address));
                superseded += 1;
            }
            assert_eq!(superseded, expected, "{written} are written");
        }
    }

    /// Random steps, compared with plain sets.
    #[test]
    fn no_address_in_use_is_handed_out() {
        let seed = 11;
        let mut random = Random::new(seed);
        let mut space = FileSpace::default();
        let (mut current, mut cut) = (BTreeSet::new(), None::<BTreeSet<u32>>);
        let (mut published, mut older) = (BTreeSet::new(), BTreeSet::new());
        for step in 0..20_000 {
            match random.below(8) {
                0..=2 => {
                    let most = 1 + random.below(5) as u32;
                    let run = space.take(Purpose::Current, most).unwrap();
                    assert!((1..=most).contains(&run.length));
                    for FileAddress(address) in run.addresses() {
                        let used = published.contains(&address)
                            || older.contains(&address)
                            || cut.as_ref().is_some_and(|cut| cut.contains(&address));
                        assert!(!used && current.insert(address), "seed {seed}, step {step}: {address}");
                    }
                }
                3..=5 => {
                    let Some(&address) =
                        current.iter().nth(random.below(current.len().max(1) as u64) as usize)
                    else {
                        continue;
                    };
                    current.remove(&address);
                    space.give_back(Purpose::Current, FileAddress(address));
                }
                6 if cut.is_none() => {
                    older.clear();
                    space.forget_older();
                    cut = Some(current.clone());
                    space.make_cut();
                }
                6 => {
                    let address = take(&mut space, Purpose::Cut);
                    let of_cut = cut.as_mut().unwrap();
                    let used = current.contains(&address)
                        || published.contains(&address)
                        || older.contains(&address);
                    assert!(!used && of_cut.insert(address), "seed {seed}, step {step}: {address}");
                    if random.below(2) == 0 {
                        space.make_current(FileAddress(address));
                        current.insert(address);
                    }
                }
                _ => match cut.take() {
                    Some(of_cut) if random.below(4) > 0 => {
                        older = std::mem::replace(&mut published, of_cut);
                        space.publish_cut();
                    }
                    Some(_) => space.abandon_cut(false),
                    None => {}
                },
            }
            let mut used: BTreeSet<u32> = current.union(&published).chain(&older).copied().collect();
            used.extend(cut.iter().flatten());
            assert_eq!(space.in_use(), used.len(), "seed {seed}, step {step}");
            assert_eq!(space.end(), used.last().map_or(0, |last| last + 1));
        }
    }
}
