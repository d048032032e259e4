//! Building indexes from the rows in segments, with several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::row::Key;
use crate::store::memory::index::{Full, Index, NodePool};
use crate::store::memory::{Budget, RecordRef, SegmentId};

/// An index entry that is to be.
pub(super) type Entry = (Key, RecordRef);

/// What a thread does with a segment: its own number, the segment, the run that it adds entries to.
pub(super) type Visit<'a> = dyn Fn(usize, SegmentId, &mut Vec<Entry>) -> Result<()> + Sync + 'a;

/// Has threads visit the segments, each with a number of its own, and collect entries; gives a sorted run of each.
pub(super) fn collect(threads: usize, segments: &[SegmentId], visit: &Visit<'_>) -> Result<Vec<Vec<Entry>>> {
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    let work = &|thread: usize| {
        let mut run = Vec::new();
        while let Some(&id) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(failed) = visit(thread, id, &mut run) {
                error.lock().get_or_insert(failed);
                next.store(segments.len(), Ordering::Relaxed);
                break;
            }
        }
        run.sort_unstable();
        run
    };
    let mut runs = Vec::new();
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads.min(segments.len())).map(|thread| scope.spawn(move || work(thread))).collect();
        runs.push(work(0));
        for other in others {
            runs.push(other.join().expect("collecting does not panic"));
        }
    });
    error.into_inner().map_or(Ok(runs), Err)
}

/// Builds an index of sorted runs. Of two entries with one key, `keep_first` says whether the first is kept, or an error.
pub(super) fn build(
    nodes: &Arc<NodePool>,
    budget: &Budget,
    runs: Vec<Vec<Entry>>,
    mut keep_first: impl FnMut(&Entry, &Entry) -> Result<bool>,
) -> Result<(Index, u64)> {
    let mut error = None;
    let mut count = 0;
    let mut merged = Merged::new(runs);
    let mut held = merged.next();
    let unique = std::iter::from_fn(|| {
        loop {
            let first = held.take()?;
            match merged.next() {
                Some(second) if second.0 == first.0 => match keep_first(&first, &second) {
                    Ok(true) => held = Some(first),
                    Ok(false) => held = Some(second),
                    Err(failed) => {
                        error = Some(failed);
                        return None;
                    }
                },
                other => {
                    held = other;
                    count += 1;
                    return Some((KeyBytes(first.0), first.1.0));
                }
            }
        }
    });
    let built = Index::build_sorted(nodes.clone(), unique);
    match error {
        Some(error) => Err(error),
        None => built.map(|index| (index, count)).map_err(|_: Full| memory_limit(budget)),
    }
}

pub(super) fn memory_limit(budget: &Budget) -> Error {
    Error::MemoryLimit { used: budget.used(), limit: budget.limit() }
}

struct KeyBytes(Key);

impl AsRef<[u8]> for KeyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Sorted runs as one.
struct Merged {
    runs: Vec<Vec<Entry>>,
    /// The next of each.
    at: Vec<usize>,
}

impl Merged {
    fn new(runs: Vec<Vec<Entry>>) -> Merged {
        let at = vec![0; runs.len()];
        Merged { runs, at }
    }

    fn next(&mut self) -> Option<Entry> {
        let heads = self.runs.iter().zip(&self.at).enumerate();
        let (run, _) =
            heads.filter_map(|(n, (run, &at))| Some((n, run.get(at)?))).min_by_key(|&(_, entry)| entry)?;
        let entry = std::mem::take(&mut self.runs[run][self.at[run]].0);
        let record = self.runs[run][self.at[run]].1;
        self.at[run] += 1;
        Some((entry, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_and_of_equal_keys_one_is_kept() {
        let budget = Arc::new(Budget::new(64 << 20));
        let nodes = NodePool::new(64 << 20, budget.clone()).unwrap();
        let entry = |key: u32, record: u64| (Key::from(&key.to_be_bytes()[..]), RecordRef(record));
        let segments: Vec<_> = (0..50).map(SegmentId).collect();
        let runs = collect(3, &segments, &|_, id, run| {
            run.extend((0..100).map(|n| entry(n * 50 + id.0, u64::from(n * 50 + id.0))));
            run.push(entry(7, 9_000 + u64::from(id.0)));
            Ok(())
        });
        let (index, count) =
            build(&nodes, &budget, runs.unwrap(), |first, second| Ok(first.1 > second.1)).unwrap();
        assert_eq!((index.check(), count), (Ok(5000), 5000));
        assert_eq!(index.get(&7u32.to_be_bytes()).value, Some(9_049));
        assert_eq!(index.get(&4999u32.to_be_bytes()).value, Some(4999));
        let failing = collect(3, &segments, &|_, id, _| if id.0 == 30 { Err(Error::Closed) } else { Ok(()) });
        assert_eq!(failing, Err(Error::Closed));
    }
}
