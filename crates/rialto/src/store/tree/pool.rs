//! [`NodePool`]: the memory of index nodes: one reserved region, in which memory of a node is never used for anything
//! else.
//!
//! Invariants: the region stays mapped while the pool lives, and a node's memory is only ever a node. So an optimistic
//! reader that comes too late reads an old or another node, never anything else, and its validation fails. A node's
//! version never goes back: a node whose memory was given back to the system reads as an empty leaf of version 0 that
//! no index leads to, and when it is used again it gets a version above all that such nodes had. Memory is taken from
//! the budget before a node of it is handed out, and is back with the system before the budget has it again.

#![allow(unsafe_code)]

use super::node::{LatchedNode, Node};
use super::nodes::{Nodes, Numbered};
use super::{Leaf, MEMORY_WORDS};
use crate::store::Budget;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::convert::Infallible;
use std::{io, ptr::NonNull, sync::Arc, sync::atomic::Ordering};

/// A node in memory.
type MemoryNode = Node<MEMORY_WORDS>;

/// The size of a node, in bytes.
pub const NODE_BYTES: usize = size_of::<MemoryNode>();

/// The nodes that are taken from the budget at a time.
const CHUNK_NODES: u32 = 64;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const NO_NODE: u64 = u64::MAX;

/// The memory bound is reached: an index could not get a node. The tree is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no index node is free: {in_use} nodes of {NODE_BYTES} bytes are in use, the memory budget of {budget_limit} bytes \
     has {budget_used} taken and {reserve_nodes} nodes are reserved; delete rows or open with more memory (--memory-bytes)"
)]
pub struct Full {
    /// Nodes in use.
    pub in_use: u64,
    /// The limit of the budget, in bytes.
    pub budget_limit: u64,
    /// What all users of the budget have taken, in bytes.
    pub budget_used: u64,
    /// The nodes that the pool's address range has room for.
    pub reserve_nodes: u64,
}

/// The address range of a pool's nodes: what a reader needs of the pool, without an indirection.
#[derive(Clone, Copy)]
pub(super) struct NodeRegion {
    base: NonNull<MemoryNode>,
    nodes: u32,
}

// SAFETY: the region is shared memory of atomics; the holder of a Region keeps its NodePool alive (see Index).
unsafe impl Send for NodeRegion {}
// SAFETY: as above; all access to nodes goes through atomics.
unsafe impl Sync for NodeRegion {}

impl NodeRegion {
    /// Node `id`, or `None` if there is no such id: a torn read can ask for any number.
    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<&MemoryNode> {
        // SAFETY: inside the region, which is mapped, zeroed at first, and holds only Nodes, which are all atomics.
        (id < self.nodes).then(|| unsafe { self.base.add(id as usize).as_ref() })
    }

    /// Node `id`, which exists.
    #[inline]
    pub(super) fn node(&self, id: u32) -> &MemoryNode {
        self.get(id).expect("node ids come from this pool")
    }

    /// Gives the memory of so many free nodes back to the system; it then reads as zeros. False, and no change, if that
    /// cannot be done.
    fn return_memory(&self, first: u32, count: usize) -> bool {
        assert!(first as usize + count <= self.nodes as usize, "the nodes lie in the region");
        // On other machines a page may be larger than a node.
        if !cfg!(target_arch = "x86_64") {
            return false;
        }
        // SAFETY: inside the region, which is mapped and of atomics, so that a reader which comes too late reads old
        // words or zeros. No thread writes to a free node, and no page reaches beyond one.
        unsafe {
            let first = self.base.add(first as usize);
            madvise(first.as_ptr().cast(), count * NODE_BYTES, Advice::LinuxDontNeed).is_ok()
        }
    }
}

/// What the pool has handed out and can hand out: `in_use + free_nodes <= paid`.
struct Lists {
    /// First node of the free list, linked through the nodes' memory.
    free: u64,
    /// Nodes on that list.
    free_nodes: u64,
    /// Nodes below this have been handed out at least once.
    fresh: u32,
    /// The nodes below `fresh` whose memory the system has again.
    returned: Vec<u32>,
    /// The latch word of a free node: at least the highest that any of them ever had.
    returned_latch: u64,
    /// How many nodes are paid for.
    paid: u64,
    in_use: u64,
}

/// The memory of index nodes, for any number of indexes.
pub struct NodePool {
    region: NodeRegion,
    mapping: NonNull<std::ffi::c_void>,
    mapping_bytes: usize,
    budget: Arc<Budget>,
    lists: Mutex<Lists>,
}

// SAFETY: the mapping belongs to the pool until it is dropped; the lists are behind a mutex.
unsafe impl Send for NodePool {}
// SAFETY: as above.
unsafe impl Sync for NodePool {}

impl NodePool {
    /// Reserves `reserve_bytes` of address space, which is not memory yet; nodes take theirs from `budget`.
    pub fn new(reserve_bytes: usize, budget: Arc<Budget>) -> io::Result<Arc<NodePool>> {
        let nodes = u32::try_from(reserve_bytes / NODE_BYTES).unwrap_or(u32::MAX);
        // One huge page more, so that the nodes can begin at the start of a huge page.
        let mapping_bytes = (nodes as usize * NODE_BYTES).checked_add(HUGE_PAGE_BYTES).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("cannot reserve {reserve_bytes} bytes of address space"),
            )
        })?;
        // SAFETY: a fresh private mapping at an address that the kernel chooses.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| {
            io::Error::new(
                io::Error::from(errno).kind(),
                format!("cannot reserve {mapping_bytes} bytes of address space for index nodes: {errno}"),
            )
        })?;
        let mapping = NonNull::new(mapping).expect("mmap gives no null");
        // SAFETY: inside the mapping just made. A kernel without huge pages refuses; that costs speed only.
        let _ = unsafe { madvise(mapping.as_ptr(), mapping_bytes, Advice::LinuxHugepage) };
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the mapping is one huge page longer than the nodes.
        let base = unsafe { mapping.byte_add(skip) }.cast::<MemoryNode>();
        Ok(Arc::new(NodePool {
            region: NodeRegion { base, nodes },
            mapping,
            mapping_bytes,
            budget,
            lists: Mutex::new(Lists {
                free: NO_NODE,
                free_nodes: 0,
                fresh: 0,
                returned: Vec::new(),
                returned_latch: 0,
                paid: 0,
                in_use: 0,
            }),
        }))
    }

    /// How many nodes are part of an index now.
    pub fn nodes_in_use(&self) -> u64 {
        self.lists.lock().in_use
    }

    /// The bytes taken from the budget. Freed nodes stay with the pool, for its indexes, until
    /// [`NodePool::give_back_free`].
    pub fn bytes_taken(&self) -> u64 {
        self.lists.lock().paid * NODE_BYTES as u64
    }

    pub(super) fn region(&self) -> NodeRegion {
        self.region
    }

    /// A node, latched, for the caller to fill.
    pub(super) fn allocate(&self) -> Result<(u32, LatchedNode<'_, MEMORY_WORDS>), Full> {
        let mut lists = self.lists.lock();
        let id = if lists.free != NO_NODE {
            let id = lists.free as u32;
            lists.free = self.region.node(id).link.load(Ordering::Relaxed);
            lists.free_nodes -= 1;
            id
        } else {
            if lists.in_use == lists.paid {
                self.pay(&mut lists)?;
            }
            self.take_unlisted(&mut lists)
        };
        lists.in_use += 1;
        drop(lists);
        let node = self.region.node(id);
        node.latch.claim();
        Ok((id, LatchedNode::of_latched(node)))
    }

    /// A node that is paid for and not on the free list.
    fn take_unlisted(&self, lists: &mut Lists) -> u32 {
        match lists.returned.pop() {
            Some(id) => {
                self.region.node(id).latch.take_up(lists.returned_latch);
                id
            }
            None => {
                lists.fresh += 1;
                lists.fresh - 1
            }
        }
    }

    /// Takes the next chunk from the budget, or what is left of it.
    fn pay(&self, lists: &mut Lists) -> Result<(), Full> {
        let left = u64::from(self.region.nodes) - lists.paid;
        let mut chunk = u64::from(CHUNK_NODES).min(left);
        while chunk > 0 && !self.budget.take(chunk * NODE_BYTES as u64) {
            chunk /= 2;
        }
        lists.paid += chunk;
        if chunk > 0 {
            return Ok(());
        }
        Err(Full {
            in_use: lists.in_use,
            budget_limit: self.budget.limit(),
            budget_used: self.budget.used(),
            reserve_nodes: u64::from(self.region.nodes),
        })
    }

    /// Gives the memory of nodes that no index uses back to the system and to the budget, if the budget then has
    /// `wanted` free bytes. Returns how many bytes it gave back.
    #[cold]
    pub fn give_back_free(&self, wanted: u64) -> u64 {
        let mut lists = self.lists.lock();
        let unused = (lists.paid - lists.in_use) * NODE_BYTES as u64;
        if unused == 0 || self.budget.free().saturating_add(unused) < wanted {
            return 0;
        }
        let mut ids: Vec<u32> = Vec::new();
        while lists.free != NO_NODE {
            ids.push(lists.free as u32);
            lists.free = self.region.node(lists.free as u32).link.load(Ordering::Relaxed);
        }
        lists.free_nodes = 0;
        ids.sort_unstable();
        for run in ids.chunk_by(|one, next| one + 1 == *next) {
            let highest = run.iter().map(|&id| self.region.node(id).latch.word()).max();
            if self.region.return_memory(run[0], run.len()) {
                lists.returned_latch = lists.returned_latch.max(highest.unwrap_or(0));
                lists.returned.extend_from_slice(run);
            } else {
                run.iter().for_each(|&id| self.list(&mut lists, id));
            }
        }
        let given = (lists.paid - lists.in_use - lists.free_nodes) * NODE_BYTES as u64;
        lists.paid = lists.in_use + lists.free_nodes;
        self.budget.give(given);
        given
    }

    /// Puts a node on the free list.
    fn list(&self, lists: &mut Lists, id: u32) {
        self.region.node(id).link.store(lists.free, Ordering::Relaxed);
        lists.free = u64::from(id);
        lists.free_nodes += 1;
    }

    /// Takes back a node that no index leads to any more; optimistic readers may still be in it.
    pub(super) fn free(&self, id: u32, held: LatchedNode<'_, MEMORY_WORDS>) {
        let mut lists = self.lists.lock();
        self.list(&mut lists, id);
        held.retire();
        lists.in_use -= 1;
    }
}

/// The nodes of one index in a pool. An identifier of a node is its number.
pub struct NodesInMemory {
    region: NodeRegion,
    /// It keeps the region mapped.
    pool: Arc<NodePool>,
}

impl NodesInMemory {
    pub(super) fn of(pool: Arc<NodePool>) -> NodesInMemory {
        NodesInMemory { region: pool.region(), pool }
    }

    /// Node `id`, which exists.
    #[inline]
    pub(super) fn node(&self, id: u32) -> &MemoryNode {
        self.region.node(id)
    }

    /// Node `id`, or `None` if there is no such number.
    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<&MemoryNode> {
        self.region.get(id)
    }
}

impl Nodes<MEMORY_WORDS> for NodesInMemory {
    type Missing = Infallible;
    type Full = Full;
    /// No one looks at all nodes at one moment.
    type Restructuring<'n> = ();

    #[inline(always)]
    fn at_hand(&self, id: u32) -> Option<Numbered<'_, MEMORY_WORDS>> {
        self.region.get(id).map(|node| (id, node))
    }

    #[inline(always)]
    fn reach(&self, id: u32) -> Result<Option<Numbered<'_, MEMORY_WORDS>>, Infallible> {
        Ok(self.at_hand(id))
    }

    fn missing_under(missing: Infallible, _: Leaf) -> Infallible {
        missing
    }

    /// A validated parent names no node that was freed.
    #[inline(always)]
    fn is(&self, _: &MemoryNode, _: u32) -> bool {
        true
    }

    #[inline(always)]
    fn numbered(&self, number: u32) -> Option<&MemoryNode> {
        self.region.get(number)
    }

    fn note_use(&self, _node: &MemoryNode) {}

    #[inline(always)]
    fn begin_restructuring(&self) {}

    #[inline(always)]
    fn before_change(&self, _: &LatchedNode<'_, MEMORY_WORDS>) -> Result<(), Full> {
        Ok(())
    }

    fn allocate(&self) -> Result<(u32, LatchedNode<'_, MEMORY_WORDS>), Full> {
        self.pool.allocate()
    }

    fn free(&self, id: u32, node: LatchedNode<'_, MEMORY_WORDS>) {
        self.pool.free(id, node);
    }

    fn free_tree(&self, root: u32) -> Vec<u32> {
        let node = self.node(root).lock().expect("a node of a tree is in use");
        let control = node.control();
        if control.level() > 0 {
            (0..control.count()).for_each(|at| drop(self.free_tree(node.child(at))));
        }
        self.pool.free(root, node);
        Vec::new()
    }

    fn drop_tree(&self, root: u32) {
        drop(self.free_tree(root));
    }
}

impl Drop for NodePool {
    fn drop(&mut self) {
        let lists = self.lists.get_mut();
        self.budget.give(lists.paid * NODE_BYTES as u64);
        // SAFETY: indexes hold the pool, so none is left, and no reference into the region lives.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), self.mapping_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
