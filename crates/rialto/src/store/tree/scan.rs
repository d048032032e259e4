//! Scans of ranges, one leaf at a time, in both directions.
//!
//! A scan copies the entries that it wants of one leaf, validated, and remembers the leaf's fence; it goes on at that
//! fence, not at a neighbour's id. So splits and merges between two steps can neither hide an entry nor show it twice,
//! and the leaves that a scan guards cover its range without a gap (invariant 2).
//!
//! A guarding scan enters its interval in the interval table first. Then it either sees the guard set, in the same
//! validated reading as the entries, or sets it under the latch and then reads. So either the scan sees an insert into
//! that leaf, or the insert sees the guard, under the latch, and then the interval.

use super::descent::{Fences, Seek};
use super::key::{KeyBuf, SearchKey};
use super::node::{Control, Node};
use super::nodes::Nodes;
use super::search::Equal;
use super::{Leaf, Tree};
use crate::ids::Lsn;
use crate::store::RowLocation;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// After this many readings that a writer made invalid, a scan latches the leaf.
const OPTIMISTIC_TRIES: u32 = 8;

/// The order in which a scan goes through its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key up.
    Forward,
    /// From the highest key down.
    Backward,
}

/// Whether a scan marks the leaves that it reads, so that inserts into them ask first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Mark each leaf, before it is read.
    Set,
    /// Leave the leaves as they are.
    Leave,
}

/// Whether a scan has more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// Call [`Tree::try_read_leaf`] again, with the same range and batch.
    Yes,
    /// The range has been read to its end.
    No,
}

/// A range of keys. One whose low bound lies above its high bound is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRange<'k> {
    /// Where the keys begin.
    pub low: Bound<&'k [u8]>,
    /// Where they end.
    pub high: Bound<&'k [u8]>,
}

impl ScanRange<'_> {
    /// All keys.
    pub const ALL: ScanRange<'static> = ScanRange { low: Bound::Unbounded, high: Bound::Unbounded };
}

#[derive(Clone, Copy)]
struct BatchEntry {
    key_at: u32,
    key_len: u32,
    value: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanStage {
    Begin,
    /// Goes on at the resume key: forward from it or from behind it, backward always from before it.
    At,
    Behind,
    End,
}

/// What a scan has read of one leaf, and where it goes on. It belongs to one scan at a time; its buffers are reused.
pub struct Batch {
    keys: Vec<u8>,
    entries: Vec<BatchEntry>,
    leaf: Leaf,
    removal: Lsn,
    stage: ScanStage,
    limit: usize,
    /// Whether the limit left some entries of the leaf unread.
    cut: bool,
    fences: Box<Fences>,
    resume: Option<Box<KeyBuf>>,
    key: Box<KeyBuf>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Batch {
    /// An empty batch, ready for a scan.
    pub fn new() -> Batch {
        Batch {
            keys: Vec::new(),
            entries: Vec::new(),
            leaf: Leaf { node: u32::MAX, version: 0 },
            removal: Lsn::ZERO,
            stage: ScanStage::Begin,
            limit: usize::MAX,
            cut: false,
            fences: Box::new(Fences::new()),
            resume: Some(Box::new(KeyBuf::new())),
            key: Box::new(KeyBuf::new()),
        }
    }

    /// Prepares for another scan. Keeps the buffers, forgets the limit.
    pub fn begin(&mut self) {
        self.clear();
        self.stage = ScanStage::Begin;
        self.limit = usize::MAX;
    }

    /// Takes at most `entries` (at least 1) of a leaf at a time, for scans that may stop early.
    pub fn limit(&mut self, entries: usize) {
        self.limit = entries.max(1);
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries; the range may still have some in further leaves.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key of entry `at`, in the order of the scan.
    pub fn key(&self, at: usize) -> &[u8] {
        let entry = &self.entries[at];
        &self.keys[entry.key_at as usize..][..entry.key_len as usize]
    }

    /// The value of entry `at`.
    pub fn value(&self, at: usize) -> u64 {
        self.entries[at].value
    }

    /// Keys and values, in the order of the scan.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        (0..self.len()).map(|at| (self.key(at), self.value(at)))
    }

    /// Keys, and where their rows lie, in the order of the scan.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&[u8], RowLocation)> {
        self.iter().map(|(key, value)| (key, RowLocation::from_number(value)))
    }

    /// Where the row of entry `at` lies.
    pub fn location(&self, at: usize) -> RowLocation {
        RowLocation::from_number(self.value(at))
    }

    /// The leaf as it was read.
    pub fn leaf(&self) -> Leaf {
        self.leaf
    }

    /// The place of the last removal in the leaf, before it was read.
    pub fn removal(&self) -> Lsn {
        self.removal
    }

    /// Where the scan goes on; `None` at its end. Forward: at this key, itself included unless it is the last entry's.
    /// Backward: before this key.
    pub fn next_key(&self) -> Option<&[u8]> {
        let resume = self.resume.as_ref()?;
        matches!(self.stage, ScanStage::At | ScanStage::Behind).then(|| resume.as_slice())
    }
}

impl<N: Nodes<W>, const W: usize> Tree<N, W> {
    /// Reads the entries of one leaf that lie in `range` into `batch`, in `direction`: from the first leaf of the range
    /// if the batch is new, otherwise from the next one. The range and the direction stay the same from call to call.
    ///
    /// A leaf of the range without an entry in it gives an empty batch and [`More::Yes`]. An empty range reads, and
    /// guards, the leaf that would hold its entries.
    ///
    /// If a node is missing, the batch is as before the call, but without entries.
    pub fn try_read_leaf(
        &self,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> Result<More, N::Missing> {
        if batch.stage == ScanStage::End {
            batch.clear();
            return Ok(More::No);
        }
        // The resume key is taken out of the batch while the scan reads from it.
        let resume = batch.resume.take().unwrap_or_else(|| Box::new(KeyBuf::new()));
        let mut left = *range;
        match (direction, batch.stage) {
            (_, ScanStage::Begin | ScanStage::End) => {}
            (Direction::Forward, ScanStage::At) => left.low = Bound::Included(resume.as_slice()),
            (Direction::Forward, ScanStage::Behind) => left.low = Bound::Excluded(resume.as_slice()),
            (Direction::Backward, _) => left.high = Bound::Excluded(resume.as_slice()),
        }
        let mut tries = 0;
        let read = loop {
            match self.read_leaf_once(&left, direction, guard, batch, tries) {
                Ok(Some(stage)) => break Ok(stage),
                Ok(None) => tries += 1,
                Err(missing) => break Err(missing),
            }
        };
        let mut resume = resume;
        let stage = match read {
            Ok(stage) => stage,
            Err(missing) => {
                batch.clear();
                batch.resume = Some(resume);
                return Err(missing);
            }
        };
        batch.stage = stage;
        match (stage, direction) {
            (ScanStage::At, Direction::Forward) => resume.set(batch.fences.high.as_slice()),
            (ScanStage::At, Direction::Backward) => resume.set(batch.fences.low.as_slice()),
            (ScanStage::Behind, _) => resume.set(batch.key(batch.len() - 1)),
            (ScanStage::Begin | ScanStage::End, _) => {}
        }
        batch.resume = Some(resume);
        Ok(if stage == ScanStage::End { More::No } else { More::Yes })
    }

    /// One try. `None`: a writer made it invalid.
    fn read_leaf_once(
        &self,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
        tries: u32,
    ) -> Result<Option<ScanStage>, N::Missing> {
        let seek = match (direction, range.low, range.high) {
            (Direction::Forward, Bound::Unbounded, _) => Seek::First,
            (Direction::Forward, Bound::Included(low) | Bound::Excluded(low), _) => {
                Seek::At(SearchKey::new(low))
            }
            (Direction::Backward, _, Bound::Unbounded) => Seek::Last,
            (Direction::Backward, _, Bound::Included(high)) => Seek::At(SearchKey::new(high)),
            (Direction::Backward, _, Bound::Excluded(high)) => Seek::Before(SearchKey::new(high)),
        };
        let leaf = self.reach(seek, 0, &mut batch.fences)?.expect("every tree has leaves");
        let must_guard = guard == Guard::Set && !leaf.node.control().guarded();
        // Latched only to guard, or after enough readings that failed their validation. The latch is granted only if
        // the leaf has not changed since it was reached. Guarding leaves the version as it is, so an unlatched reading
        // can still be validated.
        let mut held = None;
        if must_guard || tries >= OPTIMISTIC_TRIES {
            let Some(mut latched) = leaf.node.upgrade(leaf.version) else { return Ok(None) };
            if must_guard {
                latched.guard();
            }
            held = Some(latched).filter(|_| tries >= OPTIMISTIC_TRIES);
        }
        batch.copy_entries(leaf.node, range, direction);
        batch.leaf = Leaf { node: leaf.number, version: leaf.version };
        batch.removal = Lsn(leaf.node.removal.load(Ordering::Relaxed));
        if held.is_none() && !leaf.node.latch.validate(leaf.version) {
            return Ok(None);
        }
        Ok(Some(batch.stage_after(range, direction)))
    }
}

impl Batch {
    /// Copies the entries of `leaf` in `range`; the caller validates.
    fn copy_entries<const W: usize>(&mut self, leaf: &Node<W>, range: &ScanRange<'_>, direction: Direction) {
        self.clear();
        let control = leaf.control();
        let from = match range.low {
            Bound::Unbounded => 0,
            Bound::Included(low) => self.rank(leaf, control, low, Equal::NotCounted),
            Bound::Excluded(low) => self.rank(leaf, control, low, Equal::Counted),
        };
        let to = match range.high {
            Bound::Unbounded => control.count(),
            Bound::Included(high) => self.rank(leaf, control, high, Equal::Counted),
            Bound::Excluded(high) => self.rank(leaf, control, high, Equal::NotCounted),
        };
        leaf.read_prefix(control, &mut self.key);
        let count = to.saturating_sub(from).min(self.limit);
        for step in 0..count {
            let at = match direction {
                Direction::Forward => from + step,
                Direction::Backward => to - 1 - step,
            };
            leaf.read_suffix(control, at, &mut self.key);
            let key = self.key.as_slice();
            let (key_at, key_len) = (self.keys.len() as u32, key.len() as u32);
            self.keys.extend_from_slice(key);
            self.entries.push(BatchEntry { key_at, key_len, value: leaf.value(at) });
        }
        self.cut = count < to.saturating_sub(from);
    }

    /// The rank of a bound in a leaf; the bound may lie outside the leaf.
    fn rank<const W: usize>(&self, leaf: &Node<W>, control: Control<W>, bound: &[u8], equal: Equal) -> usize {
        if bound < self.fences.low() {
            0
        } else if self.fences.high().is_some_and(|high| bound >= high) {
            control.count()
        } else {
            leaf.rank(control, &SearchKey::new(bound), equal)
        }
    }

    /// Whether the range goes on beyond what was copied, and where.
    fn stage_after(&self, range: &ScanRange<'_>, direction: Direction) -> ScanStage {
        if self.cut {
            return ScanStage::Behind;
        }
        let ends = match direction {
            Direction::Forward => match (self.fences.high(), range.high) {
                (None, _) => true,
                (Some(_), Bound::Unbounded) => false,
                (Some(fence), Bound::Included(high)) => high < fence,
                (Some(fence), Bound::Excluded(high)) => high <= fence,
            },
            Direction::Backward => match range.low {
                _ if !self.fences.bounded_below => true,
                Bound::Unbounded => false,
                Bound::Included(low) | Bound::Excluded(low) => low >= self.fences.low(),
            },
        };
        if ends { ScanStage::End } else { ScanStage::At }
    }
}
