//! The nodes' memory: one reserved region, type-stable.
//!
//! Invariants: the region stays mapped while the pool lives, and a node's memory is only ever a node, so an optimistic
//! reader that comes too late reads an old or another node, never anything else, and its validation tells it so. A
//! node's version never goes back. Memory is taken from the budget before a node of it is handed out.

#![allow(unsafe_code)]

use super::node::{Held, Node};
use crate::store::memory::budget::Budget;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::{io, ptr::NonNull, sync::Arc, sync::atomic::Ordering};

/// The size of a node, in bytes.
pub const NODE_BYTES: usize = size_of::<Node>();

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
    /// What is taken of the budget, by all its users, in bytes.
    pub budget_used: u64,
    /// The nodes that the pool's address range has room for.
    pub reserve_nodes: u64,
}

/// The address range of a pool's nodes: what a reader needs of the pool, without a detour.
#[derive(Clone, Copy)]
pub(super) struct Region {
    base: NonNull<Node>,
    nodes: u32,
}

// SAFETY: the region is shared memory of atomics; who holds a Region keeps its NodePool alive (see Index).
unsafe impl Send for Region {}
// SAFETY: as above; all access to nodes goes through atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Node `id`, or None if that cannot be an id: a torn read can ask for anything.
    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<&Node> {
        // SAFETY: inside the region, which is mapped, zeroed at first, and holds only Nodes, which are all atomics.
        (id < self.nodes).then(|| unsafe { self.base.add(id as usize).as_ref() })
    }

    /// Node `id`, which is one.
    #[inline]
    pub(super) fn node(&self, id: u32) -> &Node {
        self.get(id).expect("node ids come from this pool")
    }
}

struct Lists {
    /// First node of the list of free ones, linked through their memory.
    free: u64,
    /// Nodes below this have been handed out at least once.
    fresh: u32,
    /// Nodes below this are paid for.
    paid: u32,
    in_use: u64,
}

/// The memory of index nodes, for any number of indexes.
pub struct NodePool {
    region: Region,
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
        // One huge page more, so that the nodes can begin where one begins.
        let mapping_bytes = (nodes as usize * NODE_BYTES).checked_add(HUGE_PAGE_BYTES).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("cannot reserve {reserve_bytes} bytes of address space"),
            )
        })?;
        // SAFETY: a fresh private mapping at a place of the kernel's choice.
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
        let base = unsafe { mapping.byte_add(skip) }.cast::<Node>();
        Ok(Arc::new(NodePool {
            region: Region { base, nodes },
            mapping,
            mapping_bytes,
            budget,
            lists: Mutex::new(Lists { free: NO_NODE, fresh: 0, paid: 0, in_use: 0 }),
        }))
    }

    /// How many nodes are part of an index now.
    pub fn nodes_in_use(&self) -> u64 {
        self.lists.lock().in_use
    }

    /// The bytes taken from the budget; freed nodes stay with the pool, for its indexes.
    pub fn bytes_taken(&self) -> u64 {
        u64::from(self.lists.lock().paid) * NODE_BYTES as u64
    }

    pub(super) fn region(&self) -> Region {
        self.region
    }

    /// A node, latched, for the caller to fill.
    pub(super) fn allocate(&self) -> Result<(u32, Held<'_>), Full> {
        let mut lists = self.lists.lock();
        let id = if lists.free != NO_NODE {
            let id = lists.free as u32;
            lists.free = self.region.node(id).link.load(Ordering::Relaxed);
            id
        } else {
            if lists.fresh == lists.paid {
                self.pay(&mut lists)?;
            }
            lists.fresh += 1;
            lists.fresh - 1
        };
        lists.in_use += 1;
        drop(lists);
        let node = self.region.node(id);
        node.latch.claim();
        Ok((id, Held::of_latched(node)))
    }

    /// Takes the next chunk from the budget, or what of it is left.
    fn pay(&self, lists: &mut Lists) -> Result<(), Full> {
        let mut chunk = CHUNK_NODES.min(self.region.nodes - lists.paid);
        while chunk > 0 && !self.budget.take(u64::from(chunk) * NODE_BYTES as u64) {
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

    /// Takes back a node that no index leads to any more; optimistic readers may still be in it.
    pub(super) fn free(&self, id: u32, held: Held<'_>) {
        let mut lists = self.lists.lock();
        self.region.node(id).link.store(lists.free, Ordering::Relaxed);
        held.retire();
        lists.free = u64::from(id);
        lists.in_use -= 1;
    }
}

impl Drop for NodePool {
    fn drop(&mut self) {
        let lists = self.lists.get_mut();
        self.budget.give(u64::from(lists.paid) * NODE_BYTES as u64);
        // SAFETY: indexes hold the pool, so none is left, and no reference into the region lives.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), self.mapping_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
