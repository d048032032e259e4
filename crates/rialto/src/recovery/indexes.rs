//! Builds indexes from the rows in segments, with several threads.
//!
//! Each thread collects the entries of the segments that it visits and sorts them. Then each builds a part of the
//! index: it merges the entries of all runs between two keys.

use std::cmp::Ordering::{self as Order, Equal};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::store::Budget;
use crate::store::memory::{RecordRef, SegmentId};
use crate::store::tree::{Entry, Full, Index, IndexPart, Merge, NodePool, SortRun, Take, order};

/// Indexes with fewer entries are built by one thread.
const PARTS_FROM: usize = 10_000;
/// Entries of each run that are sampled, for each part, to find where the parts begin.
const SAMPLES: usize = 64;

/// What a thread does with a segment. It gets the thread's number, the segment, and the run to which it adds entries.
pub(super) type SegmentVisitor<'a> = dyn Fn(usize, SegmentId, &mut SortRun) -> Result<()> + Sync + 'a;

/// Has threads, each with a number of its own, visit the segments and collect entries; returns a sorted run of each.
/// `told` is called on this thread with how many segments are begun.
pub(super) fn collect(
    threads: usize,
    segments: &[SegmentId],
    told: &dyn Fn(usize),
    visit: &SegmentVisitor<'_>,
) -> Result<Vec<SortRun>> {
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    let work = &|thread: usize, told: Option<&dyn Fn(usize)>| {
        let mut run = SortRun::default();
        while let Some(&id) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(told) = told {
                told(next.load(Ordering::Relaxed).min(segments.len()));
            }
            if let Err(failed) = visit(thread, id, &mut run) {
                error.lock().get_or_insert(failed);
                next.store(segments.len(), Ordering::Relaxed);
                break;
            }
        }
        run.sort();
        run
    };
    let mut runs = Vec::new();
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads.min(segments.len())).map(|thread| scope.spawn(move || work(thread, None))).collect();
        runs.push(work(0, Some(told)));
        for other in others {
            runs.push(other.join().expect("collecting does not panic"));
        }
    });
    error.into_inner().map_or(Ok(runs), Err)
}

/// For two entries with this key: whether the first record is kept, or an error. The first argument is the thread's
/// number.
pub(super) type KeepFirst<'a> = dyn Fn(usize, &[u8], RecordRef, RecordRef) -> Result<bool> + Sync + 'a;

/// Builds an index of sorted runs, with `threads` threads, and returns the number of its entries.
pub(super) fn build(
    nodes: &Arc<NodePool>,
    budget: &Budget,
    threads: usize,
    runs: &[SortRun],
    keep_first: &KeepFirst<'_>,
) -> Result<(Index, u64)> {
    let count = AtomicU64::new(0);
    let part = |(thread, (low, ranges)): (usize, (Vec<u8>, Vec<Range<usize>>))| {
        let count = &count;
        let fill = move |take: &mut Take<'_>| {
            let merge = Merge::of(runs.iter().zip(ranges));
            let mut entries = Entries { merge, thread, keep_first };
            count.fetch_add(entries.put(take)?, Ordering::Relaxed);
            Ok(())
        };
        IndexPart { low, fill }
    };
    let parts = cut(runs, threads).into_iter().enumerate().map(part).collect();
    match Index::build_parts(nodes.clone(), parts) {
        Ok(index) => Ok((index, count.into_inner())),
        Err(MergeError::Full) => Err(memory_limit(budget)),
        Err(MergeError::Failed(error)) => Err(error),
    }
}

pub(super) fn memory_limit(budget: &Budget) -> Error {
    Error::MemoryLimit { used: budget.used(), limit: budget.limit() }
}

/// Cuts sorted runs at common keys: for each part its lowest possible key and its entries in each run. No part is
/// empty.
fn cut(runs: &[SortRun], parts: usize) -> Vec<(Vec<u8>, Vec<Range<usize>>)> {
    let all = runs.iter().map(|run| run.entries.len()).sum::<usize>();
    let parts = if all < PARTS_FROM { 1 } else { parts };
    let mut samples: Vec<(&SortRun, Entry)> = Vec::new();
    for run in runs {
        let every = (run.entries.len() / (parts * SAMPLES)).max(1);
        samples.extend(run.entries.iter().step_by(every).map(|&entry| (run, entry)));
    }
    samples.sort_unstable_by(|&a, &b| order(a, b));
    let mut cuts = Vec::new();
    let (mut low, mut begin) = (Vec::new(), vec![0; runs.len()]);
    for part in 1..=parts {
        let end: Vec<usize> = match samples.get(part * samples.len() / parts) {
            Some(&at) if part < parts => runs
                .iter()
                .map(|run| run.entries.partition_point(|&entry| order((run, entry), at) == Order::Less))
                .collect(),
            _ => runs.iter().map(|run| run.entries.len()).collect(),
        };
        if begin == end {
            continue;
        }
        let ranges = begin.iter().zip(&end).map(|(&begin, &end)| begin..end).collect();
        cuts.push((std::mem::take(&mut low), ranges));
        if let Some(&(run, entry)) = samples.get(part * samples.len() / parts) {
            run.key(entry, &mut low);
        }
        begin = end;
    }
    cuts
}

enum MergeError {
    /// No index node is free.
    Full,
    Failed(Error),
}

impl From<Full> for MergeError {
    fn from(_: Full) -> MergeError {
        MergeError::Full
    }
}

/// Parts of sorted runs in one order, with the decision about entries with equal keys.
struct Entries<'a> {
    merge: Merge<'a>,
    thread: usize,
    keep_first: &'a KeepFirst<'a>,
}

impl Entries<'_> {
    /// Puts the entries into the index in order, one for each key. Returns how many they were.
    fn put(&mut self, take: &mut Take<'_>) -> Result<u64, MergeError> {
        let (mut key, mut count) = (Vec::new(), 0);
        let Some(mut held) = self.merge.next() else { return Ok(0) };
        loop {
            let next = self.merge.next();
            if let Some(next) = next
                && order(held, next) == Equal
            {
                let (first, second) = (RecordRef(held.1.value()), RecordRef(next.1.value()));
                let keep_first = (self.keep_first)(self.thread, held.0.key(held.1, &mut key), first, second);
                if !keep_first.map_err(MergeError::Failed)? {
                    held = next;
                }
                continue;
            }
            take(held.0.key(held.1, &mut key), held.1.value())?;
            count += 1;
            match next {
                Some(next) => held = next,
                None => return Ok(count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Random;
    use crate::store::tree::{Admit, Insert};

    #[test]
    fn runs_are_merged_and_of_equal_keys_one_is_kept() {
        let budget = Arc::new(Budget::new(64 << 20));
        let nodes = NodePool::new(64 << 20, budget.clone()).unwrap();
        let segments: Vec<_> = (0..50).map(SegmentId).collect();
        // Fewer entries than are built in parts, and more.
        for each in [100, 2_000] {
            let runs = collect(3, &segments, &|_| (), &|_, id, run| {
                for n in (0..each).map(|n| n * 50 + id.0) {
                    run.push(&n.to_be_bytes(), u64::from(n));
                }
                run.push(&7u32.to_be_bytes(), 900_000 + u64::from(id.0));
                Ok(())
            });
            let keep = |_: usize, key: &[u8], first: RecordRef, second: RecordRef| {
                assert_eq!(key, 7u32.to_be_bytes());
                Ok(first.0 > second.0)
            };
            let all = u64::from(each) * 50;
            let (index, count) = build(&nodes, &budget, 3, &runs.unwrap(), &keep).unwrap();
            assert_eq!((index.check(), count), (Ok(all), all));
            assert_eq!(index.get(&7u32.to_be_bytes()).value, Some(900_049));
            assert_eq!(index.get(&4999u32.to_be_bytes()).value, Some(4999));
        }
        let failing =
            collect(3, &segments, &|_| (), &|_, id, _| if id.0 == 30 { Err(Error::Closed) } else { Ok(()) });
        assert_eq!(failing.err(), Some(Error::Closed));
    }

    /// Keys of all lengths, many of which share a prefix, end in zeros, or are a prefix of another.
    #[test]
    fn any_keys_come_out_in_order_whatever_the_parts() {
        let mut random = Random::new(Random::seed_from_environment());
        let budget = Arc::new(Budget::new(256 << 20));
        let nodes = NodePool::new(256 << 20, budget.clone()).unwrap();
        for threads in [1, 2, 3, 7] {
            let mut model = std::collections::BTreeMap::new();
            let letters = 2 + random.below(3);
            while model.len() < 30_000 {
                let length = random.below(40) as usize;
                let key: Vec<u8> = (0..length).map(|_| random.below(letters) as u8).collect();
                let record = model.len() as u64;
                model.entry(key).or_insert(record);
            }
            let mut runs: Vec<SortRun> = (0..threads).map(|_| SortRun::default()).collect();
            // One run is empty, if there are several.
            let into = threads.max(2) as u64 - 1;
            model.iter().for_each(|(key, &record)| runs[random.below(into) as usize].push(key, record));
            runs.iter_mut().for_each(|run| {
                for at in (1..run.entries.len()).rev() {
                    run.entries.swap(at, random.below(at as u64 + 1) as usize);
                }
                run.sort();
            });
            assert!(cut(&runs, threads).len() == threads, "so many samples find a part for each thread");
            let never = |_: usize, _: &[u8], _, _| unreachable!("no key comes twice");
            let (index, count) = build(&nodes, &budget, threads, &runs, &never).unwrap();
            assert_eq!((index.check(), count), (Ok(30_000), 30_000));
            assert!(model.iter().all(|(key, &record)| index.get(key).value == Some(record)));
            // Keys between the present ones and before them find their place, too.
            for _ in 0..20_000 {
                let key: Vec<u8> = (0..random.below(12)).map(|_| random.below(letters) as u8).collect();
                let there = model.contains_key(&key);
                if !there {
                    model.insert(key.clone(), 77);
                    assert_eq!(index.insert(&key, 77, || Admit::Go), Ok(Insert::Done));
                }
            }
            assert_eq!(index.check(), Ok(model.len() as u64));
            assert!(model.iter().all(|(key, &record)| index.get(key).value == Some(record)));
        }
    }

    #[test]
    fn an_error_or_a_full_pool_gives_all_nodes_back() {
        let budget = Arc::new(Budget::new(64 << 20));
        let nodes = NodePool::new(64 << 20, budget.clone()).unwrap();
        let mut runs = [SortRun::default(), SortRun::default()];
        for n in 0..40_000u64 {
            runs[n as usize % 2].push(&n.to_be_bytes(), n);
        }
        runs[1].push(&33_333u64.to_be_bytes(), 1);
        runs.iter_mut().for_each(SortRun::sort);
        let refuse = |_: usize, _: &[u8], _, _| Err(Error::Closed);
        assert_eq!(build(&nodes, &budget, 2, &runs, &refuse).err(), Some(Error::Closed));
        assert_eq!(nodes.nodes_in_use(), 0);
        let keep = |_: usize, _: &[u8], _, _| Ok(true);
        let small = NodePool::new(40 * 4096, budget.clone()).unwrap();
        assert!(matches!(build(&small, &budget, 2, &runs, &keep), Err(Error::MemoryLimit { .. })));
        assert_eq!(small.nodes_in_use(), 0);
        let (index, count) = build(&nodes, &budget, 2, &runs, &keep).unwrap();
        assert_eq!((index.check(), count), (Ok(40_000), 40_000));
    }
}
