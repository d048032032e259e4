//! Bulk loads: an index from entries in order, for recovery and for CREATE INDEX.

use super::image::NodeImage;
use super::key::{KeyBuf, MAX_KEY_BYTES, common_prefix, separator, tail_words};
use super::node::{VALUE_BITS, entries_max};
use super::pool::NodesInMemory;
use super::{Full, Index, MEMORY_WORDS, NodePool};
use std::sync::Arc;

/// The words that a bulk load fills in a node.
const FILL_WORDS: usize = MEMORY_WORDS * 9 / 10;
/// The most entries of a node.
const MAX_ENTRIES: usize = entries_max(MEMORY_WORDS);

/// Entries in order, with their keys in one string.
#[derive(Default)]
struct EntryRun {
    keys: Vec<u8>,
    /// Where each key ends, and its value.
    entries: Vec<(usize, u64)>,
}

impl EntryRun {
    fn push(&mut self, key: &[u8], value: u64) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), value));
    }

    fn key(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.entries[at - 1].0 };
        &self.keys[from..self.entries[at].0]
    }

    fn value(&self, at: usize) -> u64 {
        self.entries[at].1
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets the first `count` entries.
    fn drop_first(&mut self, count: usize) {
        let end = self.entries[count - 1].0;
        self.keys.drain(..end);
        self.entries.drain(..count);
        self.entries.iter_mut().for_each(|(at, _)| *at -= end);
    }
}

/// Builds the nodes of one level from left to right.
struct LevelBuilder<'p> {
    pool: &'p NodePool,
    level: u8,
    pending: EntryRun,
    /// The words that the pending entries take, at the least.
    words: usize,
    /// How many of them, from the first on, fit into one node at most. Fewer fit if the node's prefix is shorter than
    /// what they share with the low fence.
    fitting: usize,
    /// The low fence of the node to come.
    low: KeyBuf,
    /// The finished nodes, low fence and id: the entries of the level above.
    done: EntryRun,
}

impl<'p> LevelBuilder<'p> {
    fn new(pool: &'p NodePool, level: u8) -> LevelBuilder<'p> {
        LevelBuilder {
            pool,
            level,
            pending: EntryRun::default(),
            words: 0,
            fitting: 0,
            low: KeyBuf::new(),
            done: EntryRun::default(),
        }
    }

    fn push(&mut self, key: &[u8], value: u64) -> Result<(), Full> {
        // Two nodes' worth is kept, so that the last two nodes can share the rest.
        if self.words > 2 * FILL_WORDS || self.pending.len() > 2 * MAX_ENTRIES {
            self.put_node(self.fitting)?;
        }
        self.count_in(key);
        self.pending.push(key, value);
        Ok(())
    }

    /// Counts one more entry: the words that it takes at the least, and whether it may still be in the next node.
    fn count_in(&mut self, key: &[u8]) {
        let prefix = common_prefix(self.low.as_slice(), key);
        self.words += 2 + tail_words(key.len() - prefix);
        if self.words <= FILL_WORDS {
            self.fitting += 1;
        }
    }

    /// Makes one node of the first `count` pending entries, or of as many of them as fit.
    fn put_node(&mut self, mut count: usize) -> Result<(), Full> {
        let image = loop {
            match self.image(count) {
                Ok(image) => break image,
                Err(fitted) => count = fitted,
            }
        };
        let (id, mut held) = self.pool.allocate()?;
        held.become_image(&image);
        drop(held);
        self.done.push(self.low.as_slice(), u64::from(id));
        if count < self.pending.len() {
            self.low = self.fence(count);
        }
        self.pending.drop_first(count);
        let pending = std::mem::take(&mut self.pending);
        (self.words, self.fitting) = (0, 0);
        (0..pending.len()).for_each(|at| self.count_in(pending.key(at)));
        self.pending = pending;
        Ok(())
    }

    /// The lowest key that a node can hold that begins with pending entry `at`.
    fn fence(&self, at: usize) -> KeyBuf {
        let mut fence = KeyBuf::new();
        let key = self.pending.key(at);
        fence.set(if self.level == 0 { separator(self.pending.key(at - 1), key) } else { key });
        fence
    }

    /// The first `count` pending entries as a node; if they do not fit, how many of them may.
    fn image(&self, count: usize) -> Result<NodeImage<MEMORY_WORDS>, usize> {
        let prefix = match count < self.pending.len() {
            true => common_prefix(self.low.as_slice(), self.fence(count).as_slice()),
            // The last node has no high fence.
            false => 0,
        };
        let mut image = NodeImage::new(self.level, false, 0, &self.low.as_slice()[..prefix]);
        for at in 0..count {
            // An inner node's entry 0 stands for everything below entry 1.
            let suffix = if self.level > 0 && at == 0 { &[] } else { &self.pending.key(at)[prefix..] };
            let full = image.control().used() + 2 + tail_words(suffix.len()) > FILL_WORDS && at >= 2;
            if full || !image.push(suffix, self.pending.value(at)) {
                return Err(at);
            }
        }
        Ok(image)
    }

    /// Makes nodes of all pending entries.
    fn finish(&mut self) -> Result<(), Full> {
        while self.pending.len() > 0 {
            let all = self.pending.len();
            let count = match self.image(all) {
                // Entries that do not fit into one node are shared by two, so that no node has only a few.
                Err(fitted) if all - fitted < fitted => all.div_ceil(2),
                Err(fitted) => fitted,
                Ok(_) => all,
            };
            self.put_node(count)?;
        }
        Ok(())
    }
}

/// Takes an entry of a bulk load.
pub type Take<'a> = dyn FnMut(&[u8], u64) -> Result<(), Full> + 'a;

/// A part of an index that is built on a thread of its own.
pub struct IndexPart<F> {
    /// No key of the part is below this one, and all keys of the parts before are. Empty for the first part.
    pub low: Vec<u8>,
    /// Gives the part's entries, in order: at least one, unless the index is empty.
    pub fill: F,
}

impl Index {
    /// An index of `entries`, with nodes about nine tenths full.
    ///
    /// # Errors
    /// [`Full`] if the pool has not enough nodes; the ones built so far are freed.
    ///
    /// # Panics
    /// If the keys are not strictly ascending, a key is longer than [`MAX_KEY_BYTES`], or a value has more than
    /// [`VALUE_BITS`] bits: callers sort, and look for duplicates, before.
    pub fn build_sorted<K: AsRef<[u8]>>(
        pool: Arc<NodePool>,
        entries: impl IntoIterator<Item = (K, u64)>,
    ) -> Result<Index, Full> {
        Index::build(pool, |take| entries.into_iter().try_for_each(|(key, value)| take(key.as_ref(), value)))
    }

    /// The same for the entries that `fill` gives.
    ///
    /// # Errors
    /// As [`Index::build_sorted`], and the error of `fill`.
    ///
    /// # Panics
    /// As [`Index::build_sorted`].
    pub fn build<E: From<Full>>(
        pool: Arc<NodePool>,
        fill: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
    ) -> Result<Index, E> {
        let built = leaves(&pool, &[], fill);
        finish(pool, vec![built])
    }

    /// The same for several parts, each on a thread; the first part on this one.
    ///
    /// # Errors
    /// As [`Index::build_sorted`], and the error of a part's `fill`.
    ///
    /// # Panics
    /// As [`Index::build_sorted`], and if parts overlap.
    pub fn build_parts<F, E>(pool: Arc<NodePool>, parts: Vec<IndexPart<F>>) -> Result<Index, E>
    where
        F: FnOnce(&mut Take<'_>) -> Result<(), E> + Send,
        E: From<Full> + Send,
    {
        assert!(
            parts.first().is_none_or(|first| first.low.is_empty())
                && parts.windows(2).all(|two| two[0].low < two[1].low),
            "an index's parts do not follow each other"
        );
        let build = &|part: IndexPart<F>| leaves(&pool, &part.low, part.fill);
        let mut built = Vec::new();
        std::thread::scope(|scope| {
            let mut parts = parts.into_iter();
            let first = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(move || build(part))).collect();
            built.extend(first.map(build));
            built.extend(others.into_iter().map(|other| match other.join() {
                Ok(built) => built,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
        });
        finish(pool, built)
    }
}

/// Leaves, as entries of the level above, and whether all of them could be made.
type Built<E> = (EntryRun, Result<(), E>);

/// Builds the leaves from the fence `low` on.
fn leaves<E: From<Full>>(
    pool: &NodePool,
    low: &[u8],
    fill: impl FnOnce(&mut Take<'_>) -> Result<(), E>,
) -> Built<E> {
    let mut level = LevelBuilder::new(pool, 0);
    level.low.set(low);
    let mut last: Option<KeyBuf> = None;
    let filled = fill(&mut |key, value| {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes; an index takes {MAX_KEY_BYTES}", key.len());
        assert!(value >> VALUE_BITS == 0, "value {value:#x} does not fit in {VALUE_BITS} bits");
        let last = match &mut last {
            Some(last) => {
                assert!(last.as_slice() < key, "keys for an index are not strictly ascending: {key:02x?}");
                last
            }
            None => {
                assert!(low <= key, "key {key:02x?} lies before its part");
                last.insert(KeyBuf::new())
            }
        };
        last.set(key);
        level.push(key, value)
    });
    let filled = filled.and_then(|()| Ok(level.finish()?));
    (std::mem::take(&mut level.done), filled)
}

/// Builds the levels above the leaves. The index owns all nodes through its root, which is made last. If a node cannot
/// be had, all nodes are freed here.
fn finish<E: From<Full>>(pool: Arc<NodePool>, parts: Vec<Built<E>>) -> Result<Index, E> {
    let (mut nodes, mut result) = (EntryRun::default(), Ok(()));
    for (part, built) in parts {
        (0..part.len()).for_each(|at| nodes.push(part.key(at), part.value(at)));
        result = result.and(built);
    }
    let mut built: Vec<u32> = (0..nodes.len()).map(|at| nodes.value(at) as u32).collect();
    match result.and_then(|()| Ok(root(&pool, nodes, &mut built)?)) {
        Ok(root) => Ok(Index::of_root(root, NodesInMemory::of(pool))),
        Err(error) => {
            for id in built {
                if let Some(held) = pool.region().node(id).lock() {
                    pool.free(id, held);
                }
            }
            Err(error)
        }
    }
}

/// Builds level upon level and returns the root. The nodes are added to `built`.
fn root(pool: &NodePool, mut nodes: EntryRun, built: &mut Vec<u32>) -> Result<u32, Full> {
    for number in 1.. {
        match nodes.len() {
            0 => {
                let (id, mut held) = pool.allocate()?;
                held.become_image(&NodeImage::new(0, false, 0, &[]));
                return Ok(id);
            }
            1 => return Ok(nodes.value(0) as u32),
            _ => {}
        }
        let mut level = LevelBuilder::new(pool, number);
        let pushed = (0..nodes.len()).try_for_each(|at| level.push(nodes.key(at), nodes.value(at)));
        let pushed = pushed.and_then(|()| level.finish());
        nodes = std::mem::take(&mut level.done);
        built.extend((0..nodes.len()).map(|at| nodes.value(at) as u32));
        pushed?;
    }
    unreachable!("each level has fewer nodes than the one below")
}
