//! [`Tree`]: a B+-tree with optimistic latches; [`Index`]: the ordered index of the memory-resident store, a tree of
//! nodes in memory.
//!
//! Keys are byte strings of up to [`MAX_KEY_BYTES`], in `memcmp` order; values are numbers below 2^48, such as a
//! record's address. The index is never logged; recovery builds it anew.
//!
//! Readers write nothing: a reader notes a node's version, reads the node by relaxed atomic loads, and validates the
//! version before it uses what it read or goes on to a child. A writer latches the one leaf that it changes. A split or
//! merge latches the parent, then its children, always downward, so latches cannot deadlock. No thread waits for
//! anything while it holds a latch, except in `admit`, see [`Tree::try_insert`].
//!
//! Invariants:
//!
//! 1. A node's key interval (its *fences*, known to its parents) changes only under its latch and with its version. So
//!    a descent whose every step is validated leads to the leaf that covers the key, as of the version of that leaf.
//! 2. At any time the leaves' intervals cover the whole key space without gap or overlap. So the leaves that a scan
//!    walks, each from the fence of the one before, cover every position of its range, whatever splits and merges do in
//!    between. A split copies the guard and the removal `Lsn` of a leaf; a merge joins them.
//! 3. A version never goes back, and a node's memory is only ever a node (`pool`).
//! 4. The root stays the root: a tree grows and shrinks by moving the root's entries to and from children.
//! 5. Removing and re-pointing an entry need no node and cannot fail (I10).
//! 6. Under a leaf's guard, an entry is inserted only with `admit`'s consent (I7, with the interval locks).
//! 7. Every reader that misses the key after a removal at an `Lsn` sees this `Lsn`, as the removal `Lsn` of the leaf
//!    (I3).
//!
//! The tree is generic over where its nodes are ([`Nodes`]). A node may be missing for the moment; then an operation
//! gives that for an answer, and has changed nothing. Nodes in memory are never missing.
//!
//! Where to go next: `node` and `image` for the bytes, `search` for finding a key in them (`by_heads`: the usual way),
//! `latch` for the protocol, `descent` for descents that know their fences, `structure` for splits and merges, `scan`
//! for ranges, `prefetch` for look-ups that wait for memory together, `build` for bulk loads, `sort` for the sort
//! before them, `check` for the verifier.

mod build;
mod by_heads;
mod check;
mod descent;
mod image;
mod key;
mod latch;
mod node;
mod nodes;
mod page;
mod pool;
mod prefetch;
mod rows;
mod scan;
mod search;
mod sort;
mod spread;
mod structure;
#[cfg(test)]
mod tests;

use self::image::NodeImage;
use self::key::{SearchKey, tail_words};
use self::pool::NodesInMemory;
use self::search::Fraction;
use self::structure::wants_merge;
use crate::ids::Lsn;
use crate::probes::count_descent;
use crate::store::RowLocation;
use parking_lot::RwLock;
use std::convert::Infallible;
use std::sync::{Arc, atomic::Ordering};

pub use self::build::{IndexPart, Take};
pub use self::key::MAX_KEY_BYTES;
pub use self::node::VALUE_BITS;
pub use self::node::{LatchedNode, Node, body_words};
pub use self::nodes::{Nodes, Numbered, Stopped, StoppedIn};
pub use self::pool::{Full, NODE_BYTES, NodePool};
pub use self::prefetch::LeafAhead;
pub(crate) use self::rows::parts_of_taken_over;
pub use self::rows::{EntryMarks, Finger, FoundRow, InsertRow, NewRow, RowAt, row_words_max};
pub use self::scan::{Batch, Direction, Guard, More, ScanRange};
pub use self::sort::{Entry, Merge, SortRun, order};

/// A leaf as it was read; [`Tree::unchanged`] tells whether it is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    node: u32,
    version: u64,
}

impl Leaf {
    /// The number of its node.
    pub(crate) fn number(&self) -> u32 {
        self.node
    }

    /// The node's version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

/// The insert position of an absent key: its leaf, with the version that was read, and the slot in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacancy {
    /// The leaf.
    pub leaf: Leaf,
    at: u32,
}

/// What [`Tree::try_get`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The key's value, if it is present.
    pub value: Option<u64>,
    /// The leaf that covers the key.
    pub leaf: Leaf,
    /// Where in the leaf the key lies, or would lie.
    at: u32,
    /// The place of the last removal in that leaf. A transaction that relies on the absence replies after this place is
    /// durable (I3).
    pub removal: Lsn,
}

impl Found {
    /// Where the row of the key lies, if the key is present.
    #[inline]
    pub fn location(&self) -> Option<RowLocation> {
        self.value.map(RowLocation::from_number)
    }

    /// The insert position of the key, if it is absent.
    #[inline]
    pub fn vacancy(&self) -> Vacancy {
        Vacancy { leaf: self.leaf, at: self.at }
    }
}

/// Whether an insert into a guarded leaf may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// Insert.
    Go,
    /// Insert, and clear the leaf's guard: no interval lies over the leaf any more.
    GoAndUnguard,
    /// Do not insert.
    Refuse,
}

/// The result of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// The key was absent and is present now.
    Done,
    /// The key is present, with this value; nothing changed.
    Exists(u64),
    /// `admit` refused; nothing changed.
    Refused,
}

/// A tree, shared by reference between any number of threads.
///
/// It owns its nodes until it is discarded or dropped, whichever comes first. A user of a tree holds a lock that keeps
/// it from being discarded, or reads it by [`Tree::while_kept`].
pub struct Tree<N: Nodes<W>, const W: usize> {
    nodes: N,
    root: u32,
    /// True until the tree is discarded: its nodes are its own.
    is_kept: RwLock<bool>,
}

/// The words of the bodies of nodes in memory.
const MEMORY_WORDS: usize = body_words(4096);

/// An ordered index of the memory-resident store.
pub type Index = Tree<NodesInMemory, MEMORY_WORDS>;

impl<N: Nodes<W>, const W: usize> Tree<N, W> {
    /// The tree of this root.
    pub(crate) fn of_root(root: u32, nodes: N) -> Tree<N, W> {
        Tree { nodes, root, is_kept: RwLock::new(true) }
    }

    /// Looks `key` up.
    #[inline(always)]
    pub fn try_get(&self, key: &[u8]) -> Result<Found, N::Missing> {
        match self.get_by_heads(&SearchKey::new(key)) {
            Some(found) => Ok(found),
            None => self.get_any(key),
        }
    }

    #[inline(never)]
    fn get_any(&self, key: &[u8]) -> Result<Found, N::Missing> {
        let probe = SearchKey::new(key);
        loop {
            let Some(LeafOf { number, node, version, share }) = self.try_leaf(&probe)? else { continue };
            let (at, found) = node.find(node.control(), &probe, share);
            let value = found.then(|| node.value(at));
            let removal = Lsn(node.removal.load(Ordering::Relaxed));
            if node.latch.validate(version) {
                return Ok(Found { value, leaf: Leaf { node: number, version }, at: at as u32, removal });
            }
        }
    }

    /// True if no entry was inserted, removed or re-pointed in `leaf`, and its interval has not changed, since it was
    /// read.
    #[inline]
    pub fn unchanged(&self, leaf: &Leaf) -> bool {
        self.nodes.numbered(leaf.node).is_some_and(|node| node.latch.validate(leaf.version))
    }

    /// Inserts `key` if it is absent.
    ///
    /// If the leaf that takes the key is guarded, `admit` decides. It runs under that leaf's exclusive latch, when all
    /// else is settled; so an entry is inserted if and only if its last answer was not [`Admit::Refuse`]. It must not
    /// touch an index, nor wait for a thread that does: it asks the interval table and returns.
    ///
    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`] or the value has more than [`VALUE_BITS`] bits: callers check both
    /// when they make them.
    pub fn try_insert(
        &self,
        key: &[u8],
        value: u64,
        mut admit: impl FnMut() -> Admit,
    ) -> Result<Insert, StoppedIn<N, W>> {
        check_entry(key, value);
        let probe = SearchKey::new(key);
        loop {
            let leaf = self.try_leaf(&probe).map_err(Stopped::Missing)?;
            let Some(LeafOf { node, version, share, .. }) = leaf else { continue };
            let (at, found) = node.find(node.control(), &probe, share);
            if found {
                let existing = node.value(at);
                if node.latch.validate(version) {
                    return Ok(Insert::Exists(existing));
                }
                continue;
            }
            // The latch is granted only if the node is unchanged, so what was read without it holds.
            let Some(leaf) = self.latch_to_change(node, version)? else { continue };
            match self.enter(leaf, at, &probe, value, &mut admit) {
                Some(inserted) => return Ok(inserted),
                None => self.split(0, key)?,
            }
        }
    }

    /// As [`Tree::try_insert`], for a key that a look-up has not found: it skips the descent and the search if the
    /// leaf's version is unchanged.
    ///
    /// # Panics
    /// As [`Tree::try_insert`].
    #[inline]
    pub fn try_insert_at(
        &self,
        vacancy: &Vacancy,
        key: &[u8],
        value: u64,
        mut admit: impl FnMut() -> Admit,
    ) -> Result<Insert, StoppedIn<N, W>> {
        check_entry(key, value);
        self.check_kept();
        // Validated before the exchange: even a failed exchange may write, and the memory of a freed node may have been
        // given back.
        let same =
            self.nodes.numbered(vacancy.leaf.node).filter(|node| node.latch.validate(vacancy.leaf.version));
        let held = match same {
            Some(node) => self.latch_to_change(node, vacancy.leaf.version)?,
            None => None,
        };
        let entered = held
            .and_then(|leaf| self.enter(leaf, vacancy.at as usize, &SearchKey::new(key), value, &mut admit));
        entered.map_or_else(|| self.try_insert(key, value, admit), Ok)
    }

    /// Latches a node, to change it, if nothing changed since `version`.
    #[inline(always)]
    fn latch_to_change<'n>(
        &self,
        node: &'n Node<W>,
        version: u64,
    ) -> Result<Option<LatchedNode<'n, W>>, StoppedIn<N, W>> {
        let Some(latched) = node.upgrade(version) else { return Ok(None) };
        self.nodes.before_change(&latched).map_err(Stopped::Full)?;
        Ok(Some(latched))
    }

    /// Puts an entry at its position in a leaf that covers it. `None`: the leaf has no room, and is unchanged.
    #[inline(always)]
    fn enter(
        &self,
        mut leaf: LatchedNode<'_, W>,
        at: usize,
        probe: &SearchKey<'_>,
        value: u64,
        admit: &mut impl FnMut() -> Admit,
    ) -> Option<Insert> {
        let control = leaf.control();
        debug_assert_eq!(leaf.find(control, probe, None), (at, false), "where the key belongs");
        let prefix = control.prefix_bytes();
        let suffix = probe.suffix(prefix);
        if 2 + tail_words(suffix.len()) > control.room()
            && !self.compact(&mut leaf, 2 + tail_words(suffix.len()))
        {
            return None;
        }
        if control.guarded() {
            match admit() {
                Admit::Go => {}
                Admit::GoAndUnguard => leaf.unguard(),
                Admit::Refuse => return Some(Insert::Refused),
            }
        }
        leaf.insert(at, probe.head(prefix), suffix, value);
        Some(Insert::Done)
    }

    /// Points `key` from value `old` to value `new`. False, and no change, if it is absent or has another value.
    pub fn try_replace(&self, key: &[u8], old: u64, new: u64) -> Result<bool, StoppedIn<N, W>> {
        assert!(new >> VALUE_BITS == 0, "value {new:#x} does not fit in {VALUE_BITS} bits");
        let probe = SearchKey::new(key);
        loop {
            let leaf = self.try_leaf(&probe).map_err(Stopped::Missing)?;
            let Some(LeafOf { node, version, share, .. }) = leaf else { continue };
            let (at, found) = node.find(node.control(), &probe, share);
            if !found || node.value(at) != old {
                if node.latch.validate(version) {
                    return Ok(false);
                }
                continue;
            }
            let Some(mut leaf) = self.latch_to_change(node, version)? else { continue };
            leaf.set_value(at, new);
            return Ok(true);
        }
    }

    /// Removes `key` and returns its value. With an `lsn`, which is the removal's place, it raises the leaf's removal
    /// `Lsn`. Without one (an abort takes a placeholder back) no transaction will have to wait for the removal.
    pub fn try_remove(&self, key: &[u8], lsn: Option<Lsn>) -> Result<Option<u64>, StoppedIn<N, W>> {
        let probe = SearchKey::new(key);
        loop {
            let leaf = self.try_leaf(&probe).map_err(Stopped::Missing)?;
            let Some(LeafOf { node, version, share, .. }) = leaf else { continue };
            let (at, found) = node.find(node.control(), &probe, share);
            if !found {
                if node.latch.validate(version) {
                    return Ok(None);
                }
                continue;
            }
            let Some(mut leaf) = self.latch_to_change(node, version)? else { continue };
            let value = leaf.value(at);
            leaf.remove(at);
            if let Some(lsn) = lsn {
                leaf.raise_removal(lsn.0);
            }
            let control = leaf.control();
            drop(leaf);
            if wants_merge(control) {
                self.merge(0, key);
            }
            return Ok(Some(value));
        }
    }

    /// Gives all nodes back, even while there are references to the tree. From now on it is only used by
    /// [`Tree::while_kept`].
    pub fn discard(&self) {
        drop(self.give_back());
    }

    /// The same. Gives the roots of what could not be reached ([`Nodes::free_tree`]).
    pub fn give_back(&self) -> Vec<u32> {
        let mut is_kept = self.is_kept.write();
        match std::mem::take(&mut *is_kept) {
            true => self.nodes.free_tree(self.root),
            false => Vec::new(),
        }
    }

    /// Runs `look` while the tree is kept from being discarded. `None`: it is discarded.
    fn while_kept<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let is_kept = self.is_kept.read_recursive();
        is_kept.then(look)
    }

    /// The identifier of its root node, which no other tree has while this one is not discarded.
    #[inline]
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Called where a descent from the root begins.
    #[inline(always)]
    fn begin_descent(&self) {
        count_descent();
        self.check_kept();
    }

    /// Called where an operation enters the tree.
    #[inline(always)]
    fn check_kept(&self) {
        debug_assert!(*self.is_kept.read_recursive(), "a discarded tree is used");
    }

    /// The leaf that covers `probe`, not yet validated. `None`: begin again.
    #[inline(always)]
    fn try_leaf(&self, probe: &SearchKey<'_>) -> Result<Option<LeafOf<'_, W>>, N::Missing> {
        self.begin_descent();
        let Some((mut number, mut node)) = self.nodes.reach(self.root)? else { return Ok(None) };
        let Some(mut version) = node.latch.read() else { return Ok(None) };
        if !self.nodes.is(node, self.root) {
            return Ok(None);
        }
        let mut share = None;
        loop {
            let control = node.control();
            if control.level() == 0 {
                return Ok(Some(LeafOf { number, node, version, share }));
            }
            let slot = node.slot(control, probe);
            let id = node.child(slot);
            let reached = match self.nodes.reach(id) {
                // An entry that is out of date names any node.
                Err(_) if !node.latch.validate(version) => return Ok(None),
                Err(missing) => return Err(N::missing_under(missing, Leaf { node: number, version })),
                Ok(reached) => reached,
            };
            let Some((child_number, child)) = reached else { return Ok(None) };
            let Some(child_version) = child.latch.read() else { return Ok(None) };
            if !node.latch.validate(version) || !self.nodes.is(child, id) {
                return Ok(None);
            }
            if control.level() == 1 {
                share = node.share(control, slot, probe);
            }
            (number, node, version) = (child_number, child, child_version);
        }
    }
}

/// The leaf that covers a key, as a descent has read it.
struct LeafOf<'t, const W: usize> {
    number: u32,
    node: &'t Node<W>,
    version: u64,
    /// How far into the leaf's interval the key lies, if that is known.
    share: Option<Fraction>,
}

/// Nodes in memory are always at hand.
impl Index {
    /// An empty index with its nodes from `pool`.
    pub fn new(pool: Arc<NodePool>) -> Result<Index, Full> {
        let (root, mut held) = pool.allocate()?;
        held.become_image(&NodeImage::new(0, false, 0, &[]));
        drop(held);
        Ok(Index::of_root(root, NodesInMemory::of(pool)))
    }

    /// Looks `key` up.
    pub fn get(&self, key: &[u8]) -> Found {
        self.get_in_line(key)
    }

    /// The same, inlined into its caller.
    #[inline(always)]
    pub fn get_in_line(&self, key: &[u8]) -> Found {
        let Ok(found) = self.try_get(key);
        found
    }

    /// [`Tree::try_insert`].
    pub fn insert(&self, key: &[u8], value: u64, admit: impl FnMut() -> Admit) -> Result<Insert, Full> {
        self.try_insert(key, value, admit).map_err(Full::from)
    }

    /// [`Tree::try_insert_at`].
    #[inline]
    pub fn insert_at(
        &self,
        vacancy: &Vacancy,
        key: &[u8],
        value: u64,
        admit: impl FnMut() -> Admit,
    ) -> Result<Insert, Full> {
        self.try_insert_at(vacancy, key, value, admit).map_err(Full::from)
    }

    /// [`Tree::try_replace`].
    pub fn replace(&self, key: &[u8], old: u64, new: u64) -> bool {
        never_stopped(self.try_replace(key, old, new))
    }

    /// [`Tree::try_remove`].
    pub fn remove(&self, key: &[u8], lsn: Option<Lsn>) -> Option<u64> {
        never_stopped(self.try_remove(key, lsn))
    }

    /// [`Tree::try_read_leaf`].
    pub fn read_leaf(
        &self,
        range: &ScanRange<'_>,
        direction: Direction,
        guard: Guard,
        batch: &mut Batch,
    ) -> More {
        let Ok(more) = self.try_read_leaf(range, direction, guard, batch);
        more
    }

    /// How full the leaves are on average, in percent. No other thread uses the index meanwhile.
    pub fn fill_percent(&self) -> u64 {
        let (leaves, words) = self.leaf_words(self.root);
        words * 100 / (leaves * MEMORY_WORDS as u64)
    }
}

/// The result of an operation that needs no node, on a tree in memory (invariant 5).
fn never_stopped<T>(result: Result<T, Stopped<Infallible, Full>>) -> T {
    match result {
        Ok(done) => done,
        Err(Stopped::Full(full)) => unreachable!("{full}, though no node was needed"),
    }
}

impl From<Stopped<Infallible, Full>> for Full {
    fn from(stopped: Stopped<Infallible, Full>) -> Full {
        match stopped {
            Stopped::Full(full) => full,
        }
    }
}

/// Panics for an entry that no index takes.
#[inline(always)]
fn check_entry(key: &[u8], value: u64) {
    assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes; an index takes {MAX_KEY_BYTES}", key.len());
    assert!(value >> VALUE_BITS == 0, "value {value:#x} does not fit in {VALUE_BITS} bits");
}

impl<N: Nodes<W>, const W: usize> Drop for Tree<N, W> {
    fn drop(&mut self) {
        if std::mem::take(self.is_kept.get_mut()) {
            self.nodes.drop_tree(self.root);
        }
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = self.while_kept(|| self.nodes.node(self.root).control().level() + 1);
        f.debug_struct("Index").field("root", &self.root).field("levels", &level).finish()
    }
}
