//! [`Heap`]: the records of a table: which segments hold them and where the next one goes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard};

use super::segments::{IMAGE_HEADER_BYTES, RECORD_HEADER_BYTES, UNIT_BYTES};
use super::{RecordRef, SEGMENT_BYTES, SegmentId, Segments};
use crate::catalog::system::is_system_heap;
use crate::fault_injection;
use crate::growth::Growing;
use crate::ids::HeapId;
use crate::store::{Claims, RowLocation};

/// The number of stripes. Each stripe fills a segment of its own, so that inserts of different threads go to different
/// segments.
const STRIPES: usize = 8;

/// The records of one table.
///
/// Which heap owns a segment is decided under the locks of the stripes. Three rules hold for all of them:
///
/// - A slot is marked free exactly while it is on the free list of a stripe. Mark and list change together, under that
///   stripe's lock.
/// - A segment is given back under the locks of *all* stripes, if every slot in it is free. Its slots go from the free
///   lists with it, and the segment goes from everything that inserts fill.
/// - A segment stays in use until then, also while a transaction waits until no other transaction seeks a slot in it
///   any more. So tables lose no room to a wait without a result.
///
/// So a slot on a free list, and an open segment, certainly belong to this heap. A segment without a row, a placeholder
/// or a reserved slot can be given to another heap: no slot that was freed in it is still on its way to a list.
///
/// Inserts leave a share of each segment free, so that a record that grows can stay in its segment (System M, section
/// 2.6). When it moves inside one segment, a sweep can neither miss it nor copy it twice.
pub struct Heap {
    segments: Arc<Segments>,
    id: HeapId,
    /// Inserts fill a segment up to this many bytes.
    fill_bytes: usize,
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    owned: Mutex<Vec<SegmentId>>,
    /// How many segments were ever given back. It changes under the locks of all stripes.
    given_back: AtomicU64,
    /// Segments with room that no stripe fills: recovery has adopted them, or a row did not fit into them.
    partial: Mutex<VecDeque<SegmentId>>,
    rows: Box<[CachePadded<AtomicI64>]>,
}

/// The [`Claims`] of a heap whose records are locked by name, or not at all.
pub struct Unclaimed;

impl Claims for Unclaimed {
    fn claim(&mut self, _location: RowLocation, _word: &AtomicU64) -> bool {
        true
    }
}

/// The segments of a heap in which every slot was free at one moment.
#[derive(Debug)]
pub struct EmptySegments {
    segments: HashMap<SegmentId, Slots>,
    /// How many segments the heap had given back by that moment.
    given_back: u64,
}

impl EmptySegments {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

/// The slots of a segment at a moment at which all are free. If they are equal at two moments between which the heap
/// has kept the segment, no slot was used in between: the number of slots only grows, and freeing a slot moves its
/// version on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Slots {
    count: u64,
    /// The sum of their versions.
    versions: u64,
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
    fn pop(&mut self, segments: &Segments, units: usize, claims: &mut impl Claims) -> Option<RecordRef> {
        if self.free.len() <= units {
            return None;
        }
        // A slot that is up to a quarter too large is still a good fit.
        (units..=units + units / 4)
            .find_map(|n| take_last(segments, self.free.get_mut(n)?, CLAIMS_TRIED, claims))
    }

    fn push(&mut self, units: usize, record: RecordRef) {
        if self.free.len() <= units {
            self.free.resize_with(units + 1, Vec::new);
        }
        self.free[units].push(record);
    }
}

/// Takes the last slot that can be claimed among the last few of a free list.
fn take_last(
    segments: &Segments,
    free: &mut Vec<RecordRef>,
    tried: usize,
    claims: &mut impl Claims,
) -> Option<RecordRef> {
    let mut claim = |&record: &RecordRef| claims.claim(record.into(), segments.lock_word(record));
    let from_end = free.iter().rev().take(tried).position(&mut claim)?;
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
            given_back: AtomicU64::new(0),
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

    /// An absent slot for a body of `length` bytes, or `None` at the memory bound. `hint` tells threads apart.
    #[inline]
    pub fn allocate(&self, hint: usize, length: usize, claims: &mut impl Claims) -> Option<RecordRef> {
        let units = units(length.max(claims.placeholder().len()));
        let mut stripe = self.stripes[hint % STRIPES].lock();
        if let Some(record) = stripe.pop(&self.segments, units, claims) {
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
        self.scrape(units, claims)
    }

    /// Clears the mark of a free slot that was on the list of a stripe, whose lock is held.
    #[inline]
    fn take_off_list(&self, record: RecordRef, claims: &impl Claims) {
        debug_assert_eq!(self.segments.heap(record.segment()), Some(self.id), "the segment of a free slot");
        self.segments.reclaim(record, claims.placeholder());
    }

    /// Up to where a slot of so many units fills a segment. A slot that needs a whole segment gets one.
    fn limit_for(&self, units: usize) -> usize {
        self.fill_bytes.max(IMAGE_HEADER_BYTES + units * UNIT_BYTES)
    }

    /// A new slot at the end of a segment.
    fn extend(
        &self,
        id: SegmentId,
        units: usize,
        limit: usize,
        claims: &mut impl Claims,
    ) -> Option<RecordRef> {
        let record = self.segments.extend(id, units, limit, claims.placeholder())?;
        let claimed = claims.claim(record.into(), self.segments.lock_word(record));
        debug_assert!(claimed, "L8: no transaction can seek a slot that is new");
        claimed.then_some(record)
    }

    /// A slot at the memory bound: part of a larger free slot.
    #[cold]
    fn scrape(&self, units: usize, claims: &mut impl Claims) -> Option<RecordRef> {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            let sizes = units..stripe.free.len();
            let larger = sizes
                .into_iter()
                .find_map(|n| take_last(&self.segments, &mut stripe.free[n], usize::MAX, claims));
            if let Some(record) = larger {
                if let Some(rest) = self.segments.split(record, units) {
                    stripe.push(self.segments.units(rest), rest);
                }
                self.take_off_list(record, claims);
                return Some(record);
            }
        }
        None
    }

    /// The segments in which every slot is free and unlocked, for [`Heap::give_back`]. It looks at every slot, and is
    /// therefore called when memory runs out.
    ///
    /// A system table keeps its segments: a checkpoint copies them at its begin, and counts them as the system table's
    /// until its end.
    #[cold]
    pub fn empty_segments(&self) -> EmptySegments {
        // With all stripes locked no slot is taken or freed.
        let _stripes = self.lock_stripes();
        let owned = self.owned.lock();
        let candidates = if is_system_heap(self.id) { &[][..] } else { &owned[..] };
        let segments = candidates.iter().filter_map(|&id| Some((id, self.slots_if_empty(id)?))).collect();
        EmptySegments { segments, given_back: self.given_back.load(Ordering::Relaxed) }
    }

    /// Gives back the segments in which every slot has been free all the time since they were found to be empty.
    /// Returns how many have been given back since then, by other callers too.
    ///
    /// Where one of their slots began, a row of another table may lie soon. Therefore the caller has waited in between
    /// until no transaction seeks a record by an address that it had before.
    ///
    /// It may be called for any table without a lock on that table: beside transactions that use the table, and beside
    /// one that drops it.
    #[cold]
    pub fn give_back(&self, empty: &EmptySegments) -> u64 {
        let mut stripes = self.lock_stripes();
        let mut owned = self.owned.lock();
        let before = self.given_back.load(Ordering::Relaxed);
        // If any was given back meanwhile, one of these segments may have gone and come back.
        if before == empty.given_back {
            let is_unused = |id: &SegmentId| {
                empty.segments.get(id).is_some_and(|&then| self.slots_if_empty(*id) == Some(then))
            };
            let go: HashSet<SegmentId> = owned.iter().copied().filter(is_unused).collect();
            self.forget(&mut stripes, &go);
            owned.retain(|id| !go.contains(id));
            self.free_segments(go);
        }
        self.given_back.load(Ordering::Relaxed) - empty.given_back
    }

    /// Finds and gives back at once, where no transaction seeks a record by an address.
    #[cold]
    pub fn give_back_unsought(&self) -> u64 {
        self.give_back(&self.empty_segments())
    }

    fn lock_stripes(&self) -> Vec<MutexGuard<'_, Stripe>> {
        self.stripes.iter().map(|stripe| stripe.lock()).collect()
    }

    /// The slots of a segment if every one is free and none is locked.
    fn slots_if_empty(&self, id: SegmentId) -> Option<Slots> {
        self.segments.slots(id).try_fold(Slots::default(), |slots, slot| {
            let record = slot.ok().filter(|&record| self.segments.is_free_of_locks(record))?;
            Some(Slots { count: slots.count + 1, versions: slots.versions + self.segments.version(record) })
        })
    }

    /// Removes segments and their slots from everything that inserts fill.
    fn forget(&self, stripes: &mut [MutexGuard<'_, Stripe>], segments: &HashSet<SegmentId>) {
        if segments.is_empty() {
            return;
        }
        for stripe in stripes {
            stripe.open = stripe.open.filter(|id| !segments.contains(id));
            for records in &mut stripe.free {
                records.retain(|record| !segments.contains(&record.segment()));
            }
        }
        self.partial.lock().retain(|id| !segments.contains(id));
    }

    /// Gives back segments that no list here names any more. All stripes are locked.
    fn free_segments(&self, segments: impl IntoIterator<Item = SegmentId>) {
        for id in segments {
            self.segments.free(id);
            self.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An absent slot for a record that has outgrown its own: in its own segment if the share kept free allows,
    /// otherwise anywhere.
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
        let is_early = fault_injection::is_on("slot-freed-before-its-list");
        if is_early {
            self.segments.vacate(record);
        }
        let mut stripe = self.stripes[hint % STRIPES].lock();
        // Done under the stripe's lock: a slot that is marked free but is not yet on a list would let its segment be
        // given back.
        if !is_early {
            self.segments.vacate(record);
        }
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

    /// The stripe fills this segment from now on. The segment that it has filled until now may have room left if a long
    /// row did not fit.
    fn open(&self, stripe: &mut Stripe, id: SegmentId) {
        if let Some(before) = stripe.open.replace(id) {
            self.put_aside(before);
        }
    }

    /// Whether a segment into which a row did not fit has enough room to try it again.
    fn has_room(&self, id: SegmentId) -> bool {
        self.segments.used(id) + self.fill_bytes / 8 <= self.fill_bytes
    }

    /// No stripe fills the segment from now on; its room is used later.
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

    /// Takes segments out of the heap and of what inserts fill: from now on no slot in them is handed out. Recovery
    /// uses this to empty them; each is then given back, or readmitted.
    pub fn withdraw(&self, segments: &HashSet<SegmentId>) {
        self.forget(&mut self.lock_stripes(), segments);
        self.owned.lock().retain(|id| !segments.contains(id));
    }

    /// Takes back a segment that was withdrawn.
    pub fn readmit(&self, id: SegmentId) {
        self.owned.lock().push(id);
        let free = |slot: &RecordRef| self.segments.is_free(*slot);
        self.segments.slots(id).map_while(Result::ok).filter(free).for_each(|slot| self.adopt_free(0, slot));
        self.put_aside(id);
    }

    /// Gives back a withdrawn segment that has no row any more.
    pub fn give_back_withdrawn(&self, id: SegmentId) {
        let _stripes = self.lock_stripes();
        self.free_segments([id]);
    }

    /// Puts a free slot that recovery found on the free list.
    pub fn adopt_free(&self, hint: usize, record: RecordRef) {
        self.stripes[hint % STRIPES].lock().push(self.segments.units(record), record);
    }

    /// Gives all segments back. The caller ensures that no index points here any more.
    pub fn clear(&self) {
        let mut stripes = self.lock_stripes();
        let mut owned = self.owned.lock();
        stripes.iter_mut().for_each(|stripe| **stripe = Stripe::default());
        *self.partial.lock() = VecDeque::new();
        self.free_segments(std::mem::take(&mut *owned));
        for rows in &self.rows {
            rows.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
