//! A table's records: which segments hold them and where the next one goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::segments::{IMAGE_HEADER_BYTES, RECORD_HEADER_BYTES, UNIT_BYTES};
use super::{RecordRef, SEGMENT_BYTES, SegmentId, Segments};
use crate::ids::HeapId;

/// Inserts of different threads go to different segments: each stripe fills a segment of its own.
const STRIPES: usize = 8;

/// The records of one table.
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
    /// Segments with room that recovery has adopted and no stripe fills yet: so that restarts do not waste any.
    partial: Mutex<Vec<SegmentId>>,
    rows: Box<[CachePadded<AtomicI64>]>,
}

#[derive(Default)]
struct Stripe {
    open: Option<SegmentId>,
    /// Free slots by their size in units.
    free: Vec<Vec<RecordRef>>,
}

impl Stripe {
    fn pop(&mut self, units: usize) -> Option<RecordRef> {
        // A slot up to a quarter too large is still a good fit.
        (units..=units + units / 4).find_map(|n| self.free.get_mut(n)?.pop())
    }

    fn push(&mut self, units: usize, record: RecordRef) {
        if self.free.len() <= units {
            self.free.resize_with(units + 1, Vec::new);
        }
        self.free[units].push(record);
    }
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
            partial: Mutex::new(Vec::new()),
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
    pub fn allocate(&self, hint: usize, length: usize) -> Option<RecordRef> {
        let units = units(length);
        let mut stripe = self.stripes[hint % STRIPES].lock();
        if let Some(record) = stripe.pop(units) {
            self.segments.reclaim(record);
            return Some(record);
        }
        let fits = |id| {
            self.segments.extend(id, units, self.fill_bytes.max(IMAGE_HEADER_BYTES + units * UNIT_BYTES))
        };
        if let Some(record) = stripe.open.and_then(fits) {
            return Some(record);
        }
        while let Some(id) = self.pop_partial() {
            if let Some(record) = fits(id) {
                stripe.open = Some(id);
                return Some(record);
            }
        }
        let id = self.segments.allocate(self.id)?;
        self.owned.lock().push(id);
        stripe.open = Some(id);
        fits(id)
    }

    /// An absent slot for a record that has outgrown its own: in its own segment if the share kept free allows, else
    /// anywhere.
    pub fn allocate_near(&self, hint: usize, length: usize, home: RecordRef) -> Option<RecordRef> {
        self.segments
            .extend(home.segment(), units(length), SEGMENT_BYTES)
            .or_else(|| self.allocate(hint, length))
    }

    /// Frees a slot that nothing points to.
    pub fn release(&self, hint: usize, record: RecordRef) {
        self.segments.vacate(record, true);
        self.stripes[hint % STRIPES].lock().push(self.segments.units(record), record);
    }

    fn pop_partial(&self) -> Option<SegmentId> {
        self.partial.lock().pop()
    }

    /// Takes over a segment that recovery has filled.
    pub fn adopt_segment(&self, id: SegmentId) {
        self.owned.lock().push(id);
        if self.segments.used(id) < self.fill_bytes {
            self.partial.lock().push(id);
        }
    }

    /// Puts a free slot that recovery found on the free list.
    pub fn adopt_free(&self, hint: usize, record: RecordRef) {
        self.stripes[hint % STRIPES].lock().push(self.segments.units(record), record);
    }

    /// Gives all segments back. The caller sees to it that no index points here any more.
    pub fn clear(&self) {
        for stripe in &self.stripes {
            *stripe.lock() = Stripe::default();
        }
        self.partial.lock().clear();
        for id in self.owned.lock().drain(..) {
            self.segments.free(id);
        }
        for rows in &self.rows {
            rows.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Lsn;
    use crate::store::memory::Budget;

    fn heap(fill_percent: u8) -> Heap {
        let segments = Arc::new(Segments::reserve(Arc::new(Budget::new(1 << 20))).unwrap());
        Heap::new(segments, HeapId(3), fill_percent)
    }

    #[test]
    fn a_freed_slot_is_used_again() {
        let heap = heap(100);
        let record = heap.allocate(0, 100).unwrap();
        heap.segments().write(record, &[1; 100], Lsn(1));
        heap.release(0, record);
        assert!(heap.segments().is_free(record));
        assert_eq!(heap.allocate(0, 90), Some(record));
        assert!(!heap.segments().is_free(record) && heap.segments().is_absent(record));
    }

    #[test]
    fn a_record_that_grows_stays_in_its_segment() {
        let heap = heap(50);
        let mut last = heap.allocate(0, 100).unwrap();
        let home = last;
        while last.segment() == home.segment() {
            last = heap.allocate(0, 100).unwrap();
        }
        let moved = heap.allocate_near(0, 1000, home).unwrap();
        assert_eq!(moved.segment(), home.segment());
    }

    #[test]
    fn threads_fill_segments_of_their_own() {
        let heap = heap(100);
        let (a, b) = (heap.allocate(0, 10).unwrap(), heap.allocate(1, 10).unwrap());
        assert_ne!(a.segment(), b.segment());
    }

    #[test]
    fn clearing_gives_the_memory_back() {
        let heap = heap(100);
        while heap.allocate(0, 30_000).is_some() {}
        heap.clear();
        assert_eq!(heap.segments().budget().used(), 0);
    }
}
