//! A table's records: which segments hold them and where the next one goes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use hashbrown::HashSet;
use parking_lot::Mutex;

use super::segments::{IMAGE_HEADER_BYTES, RECORD_HEADER_BYTES, UNIT_BYTES};
use super::{RecordRef, SEGMENT_BYTES, SegmentId, Segments};
use crate::catalog::system::is_system_heap;
use crate::growth::Growing;
use crate::ids::HeapId;

/// Inserts of different threads go to different segments: each stripe fills a segment of its own.
const STRIPES: usize = 8;

/// The records of one table.
///
/// Who owns a segment is decided under the locks of the stripes. These hold for all of them:
///
/// - A slot is marked free exactly while it is on the free list of a stripe, or in a segment that
///   [`Heap::give_back_empty`] has taken out of use. Mark and list change together, under that stripe's lock.
/// - A segment is taken out of use under the locks of *all* stripes, if every slot in it is free, and with it go its slots
///   from the free lists and the segment from everything that inserts fill. One that is taken into use again comes under
///   the lock of the stripe that gets its slots, slots and all.
///
/// So a slot on a free list, and an open segment, are certainly this heap's, and a segment without a row, a placeholder or
/// a reserved slot in it can be given to another heap: nothing that was freed in it is still on its way to a list.
///
/// Inserts leave a share of each segment free, so that a record that grows can stay in its segment (System M, section
/// 2.6): moving inside one segment, it can neither be missed by a sweep nor be caught twice.
pub struct Heap {
    segments: Arc<Segments>,
    id: HeapId,
    /// Inserts fill a segment up to here, in bytes.
    fill_bytes: usize,
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    owned: Mutex<Vec<SegmentId>>,
    /// How often all segments were given back. Written under the lock of `owned`.
    clears: AtomicU64,
    /// Segments with room that no stripe fills: recovery has adopted them, or a row did not fit in there.
    partial: Mutex<VecDeque<SegmentId>>,
    rows: Box<[CachePadded<AtomicI64>]>,
}

/// What the locks say of slots whose addresses name them (`lock::thin`, L8).
pub trait Claims {
    /// Takes a slot that is about to be used, before anybody can find it. False: others still lock it, or seek it, as
    /// the record that it was; the slot stays free.
    fn claim(&mut self, record: RecordRef) -> bool;

    /// Waits a little until nobody can seek a record that no index leads to any more. False: somebody still may, so
    /// that the free slots have to stay slots.
    fn quiesce(&mut self) -> bool;

    /// What a slot holds until its row comes.
    fn placeholder(&self) -> &[u8] {
        &[]
    }
}

/// Where records are locked by name, or not at all.
pub struct Unclaimed;

impl Claims for Unclaimed {
    fn claim(&mut self, _record: RecordRef) -> bool {
        true
    }

    fn quiesce(&mut self) -> bool {
        true
    }
}

/// How many free slots of one size are tried before a new one is made.
const CLAIMS_TRIED: usize = 8;
/// How many segments with room are tried for a row before a new one is taken into use.
const PARTIAL_TRIED: usize = 8;

#[derive(Default)]
struct Stripe {
    open: Option<SegmentId>,
    /// Free slots by their size in units.
    free: Vec<Vec<RecordRef>>,
}

impl Stripe {
    fn pop(&mut self, units: usize, claims: &mut impl Claims) -> Option<RecordRef> {
        if self.free.len() <= units {
            return None;
        }
        // A slot up to a quarter too large is still a good fit.
        (units..=units + units / 4).find_map(|n| take_last(self.free.get_mut(n)?, CLAIMS_TRIED, claims))
    }

    fn push(&mut self, units: usize, record: RecordRef) {
        if self.free.len() <= units {
            self.free.resize_with(units + 1, Vec::new);
        }
        self.free[units].push(record);
    }
}

/// Takes the last slot of a free list that can be claimed, out of so many.
fn take_last(free: &mut Vec<RecordRef>, tried: usize, claims: &mut impl Claims) -> Option<RecordRef> {
    let from_end = free.iter().rev().take(tried).position(|&record| claims.claim(record))?;
    Some(free.swap_remove(free.len() - 1 - from_end))
}

/// The units that a slot for a body of `length` bytes takes.
fn units(length: usize) -> usize {
    (RECORD_HEADER_BYTES + length).div_ceil(UNIT_BYTES)
}

impl Heap {
    /// An empty heap whose inserts fill `fill_percent` of each segment.
    pub fn new(segments: Arc<Segments>, id: HeapId, fill_percent: u8) -> Heap {
        let fill_percent = usize::from(fill_percent.clamp(10, 100));
        Heap {
            segments,
            id,
            fill_bytes: IMAGE_HEADER_BYTES + (SEGMENT_BYTES - IMAGE_HEADER_BYTES) * fill_percent / 100,
            stripes: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(Stripe::default()))).collect(),
            owned: Mutex::new(Vec::new()),
            clears: AtomicU64::new(0),
            partial: Mutex::default(),
            rows: (0..STRIPES).map(|_| CachePadded::new(AtomicI64::new(0))).collect(),
        }
    }

    /// The heap's identifier, which its segments carry.
    pub fn id(&self) -> HeapId {
        self.id
    }

    /// The arena that the records lie in.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// The segments in use, in no order.
    pub fn owned(&self) -> Vec<SegmentId> {
        self.owned.lock().clone()
    }

    /// Rows in the table, exact while nothing changes it.
    pub fn rows(&self) -> u64 {
        self.rows.iter().map(|n| n.load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
    }

    /// Counts rows that came or went.
    pub fn count_rows(&self, hint: usize, change: i64) {
        self.rows[hint % STRIPES].fetch_add(change, Ordering::Relaxed);
    }

    /// An absent slot for a body of `length` bytes, or none at the memory bound. `hint` tells threads apart.
    #[inline]
    pub fn allocate(&self, hint: usize, length: usize, claims: &mut impl Claims) -> Option<RecordRef> {
        let units = units(length.max(claims.placeholder().len()));
        let mut stripe = self.stripes[hint % STRIPES].lock();
        if let Some(record) = stripe.pop(units, claims) {
            self.take_off_list(record, claims);
            return Some(record);
        }
        let mut fits = |id| self.extend(id, units, self.limit_for(units), claims);
        if let Some(record) = stripe.open.and_then(&mut fits) {
            return Some(record);
        }
        if let Some(record) = self.fill_partial(&mut stripe, PARTIAL_TRIED, &mut fits) {
            return Some(record);
        }
        if let Some(id) = self.segments.allocate(self.id) {
            self.take_into_use(&mut stripe, id);
            return fits(id);
        }
        if let Some(record) = self.fill_partial(&mut stripe, usize::MAX, &mut fits) {
            return Some(record);
        }
        drop(stripe);
        self.scrape(hint, units, claims)
    }

    /// The mark of a free slot that was on the list of a stripe, whose lock is held, goes with it.
    #[inline]
    fn take_off_list(&self, record: RecordRef, claims: &impl Claims) {
        debug_assert_eq!(self.segments.heap(record.segment()), Some(self.id), "the segment of a free slot");
        self.segments.reclaim(record, claims.placeholder());
    }

    /// Up to where a segment is filled by a slot of so many units: one that needs a segment gets one.
    fn limit_for(&self, units: usize) -> usize {
        self.fill_bytes.max(IMAGE_HEADER_BYTES + units * UNIT_BYTES)
    }

    /// A slot that never was one.
    fn extend(
        &self,
        id: SegmentId,
        units: usize,
        limit: usize,
        claims: &mut impl Claims,
    ) -> Option<RecordRef> {
        let record = self.segments.extend(id, units, limit, claims.placeholder())?;
        let claimed = claims.claim(record);
        debug_assert!(claimed, "L8: nobody can seek a slot that is new");
        claimed.then_some(record)
    }

    /// A slot at the memory bound: part of a larger free one, or out of a segment that has become free as a whole.
    #[cold]
    fn scrape(&self, hint: usize, units: usize, claims: &mut impl Claims) -> Option<RecordRef> {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            let sizes = units..stripe.free.len();
            let larger = sizes.into_iter().find_map(|n| take_last(&mut stripe.free[n], usize::MAX, claims));
            if let Some(record) = larger {
                if let Some(rest) = self.segments.split(record, units) {
                    stripe.push(self.segments.units(rest), rest);
                }
                self.take_off_list(record, claims);
                return Some(record);
            }
        }
        if self.give_back_empty(claims) == 0 {
            return None;
        }
        let mut stripe = self.stripes[hint % STRIPES].lock();
        let id = self.segments.allocate(self.id)?;
        self.take_into_use(&mut stripe, id);
        self.extend(id, units, SEGMENT_BYTES, claims)
    }

    /// Gives the segments back in which every slot is free, and says how many. For when memory runs out: it looks at
    /// every slot.
    ///
    /// Where one of their slots began, another table's row may lie soon: so they go only when nobody seeks a record by
    /// an address in them any more.
    ///
    /// Anybody may call it for any table, with no lock on that: beside transactions that use the table, and one that drops it.
    ///
    /// A system table keeps its segments: a checkpoint copies these at its begin, and takes them for the system table's until its
    /// end.
    #[cold]
    pub fn give_back_empty(&self, claims: &mut impl Claims) -> usize {
        if is_system_heap(self.id) {
            return 0;
        }
        let (empty, clears) = self.take_empty();
        if empty.is_empty() {
            return 0;
        }
        let go = claims.quiesce();
        let (mut free, kept): (Vec<_>, Vec<_>) = empty.into_iter().partition(|&id| go && self.is_empty(id));
        for id in kept {
            // The stripe's lock first: a segment is in use only with its free slots on a list.
            let mut stripe = self.stripes[id.0 as usize % STRIPES].lock();
            let mut owned = self.owned.lock();
            if self.clears.load(Ordering::Relaxed) != clears {
                // The clearing of the heap did not find it.
                free.push(id);
                continue;
            }
            owned.push(id);
            for record in self.segments.slots(id).flatten() {
                debug_assert!(self.segments.is_free(record), "nobody has filled it meanwhile");
                stripe.push(self.segments.units(record), record);
            }
            // Last: from here on other stripes may fill it, and what they take is on no list.
            self.put_aside(id);
        }
        free.iter().for_each(|&id| self.segments.free(id));
        free.len()
    }

    /// Whether every slot of the segment is free, and no lock is on any.
    fn is_empty(&self, id: SegmentId) -> bool {
        self.segments.slots(id).all(|slot| slot.is_ok_and(|record| self.segments.is_free_of_locks(record)))
    }

    /// Takes the segments in which every slot is free out of use. Says how often the heap had been cleared then.
    fn take_empty(&self) -> (HashSet<SegmentId>, u64) {
        // With all stripes locked no slot is taken or freed.
        let mut stripes: Vec<_> = self.stripes.iter().map(|stripe| stripe.lock()).collect();
        let mut owned = self.owned.lock();
        let empty: HashSet<SegmentId> = owned.iter().copied().filter(|&id| self.is_empty(id)).collect();
        for stripe in &mut stripes {
            stripe.open = stripe.open.filter(|id| !empty.contains(id));
            for records in &mut stripe.free {
                records.retain(|record| !empty.contains(&record.segment()));
            }
        }
        self.partial.lock().retain(|id| !empty.contains(id));
        owned.retain(|id| !empty.contains(id));
        (empty, self.clears.load(Ordering::Relaxed))
    }

    /// An absent slot for a record that has outgrown its own: in its own segment if the share kept free allows, else
    /// anywhere.
    pub fn allocate_near(
        &self,
        hint: usize,
        length: usize,
        home: RecordRef,
        claims: &mut impl Claims,
    ) -> Option<RecordRef> {
        let units = units(length.max(claims.placeholder().len()));
        let near = self.extend(home.segment(), units, SEGMENT_BYTES, claims);
        near.or_else(|| self.allocate(hint, length, claims))
    }

    /// Frees a slot that nothing points to.
    pub fn release(&self, hint: usize, record: RecordRef) {
        let mut stripe = self.stripes[hint % STRIPES].lock();
        // Under the stripe's lock: a slot that says that it is free, and is on no list yet, would let its segment go.
        self.segments.vacate(record);
        stripe.push(self.segments.units(record), record);
    }

    /// A slot in one of the next `tried` segments with room, which the stripe fills from then on.
    #[cold]
    fn fill_partial(
        &self,
        stripe: &mut Stripe,
        tried: usize,
        mut fits: impl FnMut(SegmentId) -> Option<RecordRef>,
    ) -> Option<RecordRef> {
        let mut partial = self.partial.lock();
        for _ in 0..tried.min(partial.len()) {
            let id = partial.pop_back()?;
            if let Some(record) = fits(id) {
                drop(partial);
                self.open(stripe, id);
                return Some(record);
            }
            if self.has_room(id) {
                partial.push_front(id);
            }
        }
        None
    }

    /// A new segment of the heap's, which the stripe fills from now on.
    fn take_into_use(&self, stripe: &mut Stripe, id: SegmentId) {
        let _growing = Growing::begin();
        self.owned.lock().push(id);
        self.open(stripe, id);
    }

    /// The stripe fills this segment from now on. The one that it has filled until now is not full if a long row did not fit.
    fn open(&self, stripe: &mut Stripe, id: SegmentId) {
        if let Some(before) = stripe.open.replace(id) {
            self.put_aside(before);
        }
    }

    /// Whether a segment in which a row did not fit has room that is worth another look.
    fn has_room(&self, id: SegmentId) -> bool {
        self.segments.used(id) + self.fill_bytes / 8 <= self.fill_bytes
    }

    /// No stripe fills the segment any more. Its room is used later.
    fn put_aside(&self, id: SegmentId) {
        if self.has_room(id) {
            let _growing = Growing::begin();
            self.partial.lock().push_front(id);
        }
    }

    /// Takes over a segment that recovery has filled.
    pub fn adopt_segment(&self, id: SegmentId) {
        self.owned.lock().push(id);
        if self.segments.used(id) < self.fill_bytes {
            self.partial.lock().push_back(id);
        }
    }

    /// Puts a free slot that recovery found on the free list.
    pub fn adopt_free(&self, hint: usize, record: RecordRef) {
        self.stripes[hint % STRIPES].lock().push(self.segments.units(record), record);
    }

    /// Gives all segments back. The caller sees to it that no index points here any more.
    pub fn clear(&self) {
        // With all of it locked no segment is taken into use again.
        let mut stripes: Vec<_> = self.stripes.iter().map(|stripe| stripe.lock()).collect();
        let mut owned = self.owned.lock();
        stripes.iter_mut().for_each(|stripe| **stripe = Stripe::default());
        self.partial.lock().clear();
        self.clears.fetch_add(1, Ordering::Relaxed);
        owned.drain(..).for_each(|id| self.segments.free(id));
        for rows in &self.rows {
            rows.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;
    use crate::ids::Lsn;
    use crate::io::Random;
    use crate::store::memory::Budget;

    fn heap(fill_percent: u8) -> Heap {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(1 << 20))).unwrap());
        Heap::new(segments, HeapId(73), fill_percent)
    }

    #[test]
    fn a_freed_slot_is_used_again() {
        let heap = heap(100);
        let record = heap.allocate(0, 100, &mut Unclaimed).unwrap();
        heap.segments().write(record, &[1; 100], Lsn(1));
        heap.release(0, record);
        assert!(heap.segments().is_free(record));
        assert_eq!(heap.allocate(0, 90, &mut Unclaimed), Some(record));
        assert!(!heap.segments().is_free(record) && heap.segments().is_absent(record));
    }

    #[test]
    fn a_segment_that_is_taken_into_use_again_is_filled_by_others_when_its_slots_are_listed() {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(2 << 20))).unwrap());
        let (heap, over) = (Heap::new(segments, HeapId(73), 100), AtomicBool::new(false));
        let end = Instant::now() + Random::test_time_from_environment();
        std::thread::scope(|scope| {
            let (heap, over) = (&heap, &over);
            for _ in 0..2 {
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        heap.give_back_empty(&mut Busy { locked: Vec::new(), quiet: false });
                    }
                });
            }
            let allocating: Vec<_> = (0..6_u8)
                .map(|thread| scope.spawn(move || allocate_and_release(heap, thread, end)))
                .collect();
            let outcomes: Vec<_> = allocating.into_iter().map(|thread| thread.join()).collect();
            over.store(true, Ordering::Relaxed);
            outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        });
    }

    /// Nobody else writes to a slot that was allocated.
    fn allocate_and_release(heap: &Heap, thread: u8, end: Instant) {
        let (segments, mut read) = (heap.segments(), Vec::new());
        for round in 1.. {
            if Instant::now() >= end {
                return;
            }
            // Of many lengths: a listed slot seldom fits.
            let length = 200 + round % 40 * 50;
            let Some(record) = heap.allocate(thread.into(), length, &mut Unclaimed) else {
                heap.give_back_empty(&mut Unclaimed);
                continue;
            };
            segments.write(record, &vec![thread; length], Lsn(round as u64));
            (0..3).for_each(|_| std::thread::yield_now());
            segments.read(record, &mut read);
            let is_mine = !segments.is_free(record) && read == vec![thread; length];
            assert!(is_mine, "round {round}: {record:?} was given to another thread, too");
            heap.release(thread.into(), record);
        }
    }

    #[test]
    fn a_record_that_grows_stays_in_its_segment() {
        let heap = heap(50);
        let mut last = heap.allocate(0, 100, &mut Unclaimed).unwrap();
        let home = last;
        while last.segment() == home.segment() {
            last = heap.allocate(0, 100, &mut Unclaimed).unwrap();
        }
        let moved = heap.allocate_near(0, 1000, home, &mut Unclaimed).unwrap();
        assert_eq!(moved.segment(), home.segment());
    }

    #[test]
    fn threads_fill_segments_of_their_own() {
        let heap = heap(100);
        let (a, b) =
            (heap.allocate(0, 10, &mut Unclaimed).unwrap(), heap.allocate(1, 10, &mut Unclaimed).unwrap());
        assert_ne!(a.segment(), b.segment());
    }

    #[test]
    fn at_the_memory_bound_larger_slots_are_split_and_empty_segments_used_again() {
        let heap = heap(100);
        let large: Vec<_> = std::iter::from_fn(|| heap.allocate(0, 5_000, &mut Unclaimed)).collect();
        large.iter().for_each(|&record| heap.release(0, record));
        let small: Vec<_> = std::iter::from_fn(|| heap.allocate(1, 50, &mut Unclaimed)).collect();
        assert!(small.len() > 10 * large.len(), "{} small slots", small.len());
        small[1..].iter().for_each(|&record| heap.release(1, record));
        assert!(heap.allocate(2, 30_000, &mut Unclaimed).is_some(), "small free slots make a segment again");
        assert!(!heap.segments().is_free(small[0]) && heap.segments().units(small[0]) == 5);
    }

    /// Segments that recovery has found half full, and a row that fits in none of them.
    #[test]
    fn a_row_that_fits_nowhere_leaves_the_room_to_smaller_ones() {
        let heap = heap(100);
        for _ in 0..4 {
            let id = heap.segments().allocate(heap.id()).unwrap();
            heap.segments().extend(id, units(30_000), SEGMENT_BYTES, &[]).unwrap();
            heap.adopt_segment(id);
        }
        assert!(heap.allocate(0, 50_000, &mut Unclaimed).is_some());
        for _ in 0..120 {
            assert!(heap.allocate(0, 1_000, &mut Unclaimed).is_some());
        }
        assert_eq!(heap.owned().len(), 5);
    }

    #[test]
    fn a_segment_that_a_row_did_not_fit_in_is_filled_later() {
        let heap = heap(100);
        for length in [40_000, 30_000, 40_000] {
            assert!(heap.allocate(0, length, &mut Unclaimed).is_some());
        }
        for _ in 0..70 {
            assert!(heap.allocate(0, 1_000, &mut Unclaimed).is_some());
        }
        assert_eq!(heap.owned().len(), 3);
    }

    #[test]
    fn clearing_gives_the_memory_back() {
        let heap = heap(100);
        while heap.allocate(0, 30_000, &mut Unclaimed).is_some() {}
        heap.clear();
        assert_eq!(heap.segments().budget().used(), 0);
    }

    /// Claims no slot of a set, and says whether all is quiet.
    struct Busy {
        locked: Vec<RecordRef>,
        quiet: bool,
    }

    impl Claims for Busy {
        fn claim(&mut self, record: RecordRef) -> bool {
            !self.locked.contains(&record)
        }

        fn quiesce(&mut self) -> bool {
            self.quiet
        }
    }

    #[test]
    fn a_slot_that_others_seek_is_left_alone() {
        let heap = heap(100);
        let slots: Vec<_> = (0..3).map(|_| heap.allocate(0, 100, &mut Unclaimed).unwrap()).collect();
        slots.iter().for_each(|&record| heap.release(0, record));
        let mut busy = Busy { locked: vec![slots[2], slots[0]], quiet: true };
        assert_eq!(heap.allocate(0, 100, &mut busy), Some(slots[1]));
        let other = heap.allocate(0, 100, &mut busy).unwrap();
        assert!(!slots.contains(&other));
        busy.locked.clear();
        let mut left =
            [heap.allocate(0, 100, &mut busy), heap.allocate(0, 100, &mut busy)].map(Option::unwrap);
        left.sort();
        assert_eq!(left, [slots[0], slots[2]]);
    }

    #[test]
    fn an_empty_segment_stays_while_its_slots_are_sought() {
        let heap = heap(100);
        let slots: Vec<_> = std::iter::from_fn(|| heap.allocate(0, 1_000, &mut Unclaimed)).collect();
        slots.iter().for_each(|&record| heap.release(0, record));
        let mut busy = Busy { locked: Vec::new(), quiet: false };
        assert_eq!(heap.give_back_empty(&mut busy), 0);
        assert!(heap.allocate(0, 30_000, &mut busy).is_none());
        let again: Vec<_> = std::iter::from_fn(|| heap.allocate(0, 1_000, &mut busy)).collect();
        assert_eq!(again.len(), slots.len(), "their slots are still there");
        again.iter().for_each(|&record| heap.release(0, record));
        busy.quiet = true;
        assert!(heap.allocate(0, 30_000, &mut busy).is_some());
    }

    /// A table is dropped while another one's insert looks for segments that are empty.
    #[test]
    fn a_heap_that_is_cleared_keeps_no_segment_that_was_out_of_use() {
        struct Clears<'a>(&'a Heap);
        impl Claims for Clears<'_> {
            fn claim(&mut self, _record: RecordRef) -> bool {
                true
            }

            fn quiesce(&mut self) -> bool {
                self.0.clear();
                false
            }
        }
        let heap = heap(100);
        let record = heap.allocate(0, 1_000, &mut Unclaimed).unwrap();
        heap.release(0, record);
        heap.give_back_empty(&mut Clears(&heap));
        assert_eq!((heap.owned().len(), heap.segments().budget().used()), (0, 0));
    }

    #[test]
    fn a_system_table_keeps_its_empty_segments() {
        for (id, given_back) in [(HeapId(73), 1), (HeapId(3), 0)] {
            let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(1 << 20))).unwrap());
            let heap = Heap::new(segments, id, 100);
            let record = heap.allocate(0, 1_000, &mut Unclaimed).unwrap();
            heap.release(0, record);
            assert_eq!(heap.give_back_empty(&mut Unclaimed), given_back, "{id:?}");
        }
    }

    /// Allocates and releases slots for a while, beside threads that give empty segments back: those that find all quiet, and
    /// those that do not and take the segments into use again.
    fn while_segments_are_given_back(quiet: &[bool], length: usize) {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(16 << 20))).unwrap());
        let heap = Heap::new(segments.clone(), HeapId(73), 100);
        // Takes what the heap gives back.
        let other = Heap::new(segments.clone(), HeapId(74), 100);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (heap, other, segments, stop) = (&heap, &other, &segments, &stop);
            for &quiet in quiet {
                scope.spawn(move || {
                    let mut busy = Busy { locked: Vec::new(), quiet };
                    while !stop.load(Ordering::Relaxed) {
                        heap.give_back_empty(&mut busy);
                    }
                });
            }
            let allocating = scope.spawn(move || {
                let end = Instant::now() + Random::test_time_from_environment();
                let mut rounds = 0;
                let mut other_one = other.allocate(0, 100, &mut Unclaimed).unwrap();
                while Instant::now() < end {
                    rounds += 1;
                    let record = heap.allocate(0, length, &mut Unclaimed).unwrap();
                    let owner = segments.heap(record.segment());
                    if owner != Some(HeapId(73)) || segments.is_free(record) {
                        return Err((rounds, record, owner));
                    }
                    segments.write(record, &[7; 30_000][..length], Lsn(rounds));
                    heap.release(0, record);
                    other.release(0, other_one);
                    other.give_back_empty(&mut Unclaimed);
                    other_one = other.allocate(0, 100, &mut Unclaimed).unwrap();
                }
                Ok(())
            });
            let outcome = allocating.join();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(outcome.unwrap(), Ok(()), "a slot of a segment that is not the heap's was handed out");
        });
    }

    #[test]
    fn a_slot_that_is_being_released_keeps_its_segment() {
        while_segments_are_given_back(&[true], 30_000);
    }

    #[test]
    fn a_segment_that_is_taken_into_use_again_has_its_slots_listed() {
        while_segments_are_given_back(&[false, true], 3_000);
    }
}
