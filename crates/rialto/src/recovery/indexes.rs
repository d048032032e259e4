//! Building indexes from the rows in segments, with several threads.
//!
//! Each thread collects the entries of the segments that it visits and sorts them. Then each builds a part of the index:
//! it merges what all runs have between two keys.

use std::cmp::Ordering::{self as Order, Equal};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::store::memory::index::{Full, Index, NodePool, Part, Take};
use crate::store::memory::{Budget, RecordRef, SegmentId};

/// Key bytes that lie in the entry.
const HEAD_BYTES: usize = 8;
/// Bits of an entry's `record` that are the record's.
const RECORD_BITS: u32 = 48;
/// Indexes with fewer entries are built by one thread.
const PARTS_FROM: usize = 10_000;
/// Entries of each run that are looked at, for each part, to find where the parts begin.
const SAMPLES: usize = 64;

/// An index entry that is to be. Sorting moves 24 bytes, and compares one number unless keys begin alike.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The key's first bytes, filled up with zeros, as a number in their order.
    head: u64,
    /// The record, and above it the key's length.
    record: u64,
    /// Where the key's other bytes lie in its run.
    rest: u64,
}

impl Entry {
    fn record(self) -> RecordRef {
        RecordRef(self.record & ((1 << RECORD_BITS) - 1))
    }

    fn length(self) -> usize {
        (self.record >> RECORD_BITS) as usize
    }
}

/// Entries that one thread has collected.
#[derive(Debug, Default)]
pub(super) struct Run {
    entries: Vec<Entry>,
    rests: Vec<u8>,
}

impl Run {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], record: RecordRef) {
        let (head, rest) = match key.split_first_chunk::<HEAD_BYTES>() {
            Some((head, rest)) => (u64::from_be_bytes(*head), rest),
            None => {
                let mut head = [0; HEAD_BYTES];
                head[..key.len()].copy_from_slice(key);
                (u64::from_be_bytes(head), &[][..])
            }
        };
        assert!(
            key.len() <= usize::from(u16::MAX) && record.0 >> RECORD_BITS == 0,
            "no index takes a key of {} bytes, nor record {record:?}",
            key.len()
        );
        let at = self.rests.len() as u64;
        self.rests.extend_from_slice(rest);
        self.entries.push(Entry { head, record: record.0 | (key.len() as u64) << RECORD_BITS, rest: at });
    }

    fn rest(&self, entry: Entry) -> &[u8] {
        &self.rests[entry.rest as usize..][..entry.length().saturating_sub(HEAD_BYTES)]
    }

    /// Puts the key's bytes into the buffer.
    fn key<'b>(&self, entry: Entry, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.clear();
        buffer.extend_from_slice(&entry.head.to_be_bytes()[..entry.length().min(HEAD_BYTES)]);
        buffer.extend_from_slice(self.rest(entry));
        buffer
    }

    fn sort(&mut self) {
        let Run { entries, .. } = self;
        entries.sort_unstable_by_key(|entry| entry.head);
        let mut entries = std::mem::take(entries);
        for alike in entries.chunk_by_mut(|a, b| a.head == b.head) {
            if alike.len() > 1 {
                alike.sort_unstable_by(|&a, &b| order((self, a), (self, b)));
            }
        }
        self.entries = entries;
    }
}

/// The order of two entries' keys.
fn order((run, entry): (&Run, Entry), (other_run, other): (&Run, Entry)) -> Order {
    entry.head.cmp(&other.head).then_with(|| match entry.length().min(other.length()) {
        // Heads that are equal although one is filled up: the shorter key is the other's beginning.
        0..=HEAD_BYTES => entry.length().cmp(&other.length()),
        _ => run.rest(entry).cmp(other_run.rest(other)),
    })
}

/// What a thread does with a segment: its own number, the segment, the run that it adds entries to.
pub(super) type Visit<'a> = dyn Fn(usize, SegmentId, &mut Run) -> Result<()> + Sync + 'a;

/// Has threads visit the segments, each with a number of its own, and collect entries; gives a sorted run of each. `told`
/// hears how many are begun, on this thread.
pub(super) fn collect(
    threads: usize,
    segments: &[SegmentId],
    told: &dyn Fn(usize),
    visit: &Visit<'_>,
) -> Result<Vec<Run>> {
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    let work = &|thread: usize, told: Option<&dyn Fn(usize)>| {
        let mut run = Run::default();
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

/// Of two entries with this key, whether the first record is kept, or an error; the thread's number before.
pub(super) type KeepFirst<'a> = dyn Fn(usize, &[u8], RecordRef, RecordRef) -> Result<bool> + Sync + 'a;

/// Builds an index of sorted runs, with so many threads, and gives the number of its entries.
pub(super) fn build(
    nodes: &Arc<NodePool>,
    budget: &Budget,
    threads: usize,
    runs: &[Run],
    keep_first: &KeepFirst<'_>,
) -> Result<(Index, u64)> {
    let count = AtomicU64::new(0);
    let part = |(thread, (low, ranges)): (usize, (Vec<u8>, Vec<Range<usize>>))| {
        let count = &count;
        let fill = move |take: &mut Take<'_>| {
            let mut merge = Merge { runs, ranges, thread, keep_first };
            count.fetch_add(merge.run(take)?, Ordering::Relaxed);
            Ok(())
        };
        Part { low, fill }
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

/// Cuts sorted runs at common keys: for each part its lowest possible key and its entries in each run. No part is empty.
fn cut(runs: &[Run], parts: usize) -> Vec<(Vec<u8>, Vec<Range<usize>>)> {
    let all = runs.iter().map(|run| run.entries.len()).sum::<usize>();
    let parts = if all < PARTS_FROM { 1 } else { parts };
    let mut samples: Vec<(&Run, Entry)> = Vec::new();
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
    /// No more nodes.
    Full,
    Failed(Error),
}

impl From<Full> for MergeError {
    fn from(_: Full) -> MergeError {
        MergeError::Full
    }
}

/// Stretches of sorted runs as one.
struct Merge<'a> {
    runs: &'a [Run],
    /// What is left of each.
    ranges: Vec<Range<usize>>,
    thread: usize,
    keep_first: &'a KeepFirst<'a>,
}

impl<'a> Merge<'a> {
    fn next(&mut self) -> Option<(&'a Run, Entry)> {
        let mut least: Option<(usize, (&Run, Entry))> = None;
        for (at, (run, range)) in self.runs.iter().zip(&self.ranges).enumerate() {
            if range.is_empty() {
                continue;
            }
            let head = (run, run.entries[range.start]);
            if least.is_none_or(|(_, least)| order(head, least) == Order::Less) {
                least = Some((at, head));
            }
        }
        let (at, head) = least?;
        self.ranges[at].start += 1;
        Some(head)
    }

    /// Gives the entries in order, one for each key; how many they were.
    fn run(&mut self, take: &mut Take<'_>) -> Result<u64, MergeError> {
        let (mut key, mut count) = (Vec::new(), 0);
        let Some(mut held) = self.next() else { return Ok(0) };
        loop {
            let next = self.next();
            if let Some(next) = next
                && order(held, next) == Equal
            {
                let (first, second) = (held.1.record(), next.1.record());
                let keep_first = (self.keep_first)(self.thread, held.0.key(held.1, &mut key), first, second);
                if !keep_first.map_err(MergeError::Failed)? {
                    held = next;
                }
                continue;
            }
            take(held.0.key(held.1, &mut key), held.1.record().0)?;
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
    use crate::store::memory::index::{Admit, Insert};

    #[test]
    fn runs_are_merged_and_of_equal_keys_one_is_kept() {
        let budget = Arc::new(Budget::new(64 << 20));
        let nodes = NodePool::new(64 << 20, budget.clone()).unwrap();
        let segments: Vec<_> = (0..50).map(SegmentId).collect();
        // Fewer entries than are built in parts, and more.
        for each in [100, 2_000] {
            let runs = collect(3, &segments, &|_| (), &|_, id, run| {
                for n in (0..each).map(|n| n * 50 + id.0) {
                    run.push(&n.to_be_bytes(), RecordRef(u64::from(n)));
                }
                run.push(&7u32.to_be_bytes(), RecordRef(900_000 + u64::from(id.0)));
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

    /// Keys of all lengths, many of which begin alike, end in zeros, or are another's beginning.
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
            let mut runs: Vec<Run> = (0..threads).map(|_| Run::default()).collect();
            // One run has none, if there are several.
            let into = threads.max(2) as u64 - 1;
            model
                .iter()
                .for_each(|(key, &record)| runs[random.below(into) as usize].push(key, RecordRef(record)));
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
            // What comes between and before finds its place, too.
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
        let mut runs = [Run::default(), Run::default()];
        for n in 0..40_000u64 {
            runs[n as usize % 2].push(&n.to_be_bytes(), RecordRef(n));
        }
        runs[1].push(&33_333u64.to_be_bytes(), RecordRef(1));
        runs.iter_mut().for_each(Run::sort);
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
