//! [`within_memory`]: recoveries of databases that fill their memory.

use std::sync::Arc;

use super::load;
use crate::checkpoint::home::HomeBlock;
use crate::error::{Error, Result};
use crate::io::Disk;
use crate::store::Budget;
use crate::store::budget::MEMORY_BYTES_MAX;
use crate::store::memory::Segments;
use crate::store::tree::NodePool;

/// The most threads that may recover a database.
pub(crate) const THREADS_MAX: usize = 1_024;

/// One for each core.
pub(crate) fn threads_by_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// The share of the bound that a recovery by one thread may keep beyond it: one in this many.
const RESERVE: u64 = 4;

/// What errors name in place of a file where the system gives no address space.
const ADDRESS_SPACE: &str = "memory";

/// Whether a recovery failed because of the machine, and not because of the files: the memory that it may take, or
/// address space.
pub(crate) fn is_of_the_machine(error: &Error) -> bool {
    match error {
        Error::MemoryLimit { .. } => true,
        Error::Io { file, operation, .. } => file == ADDRESS_SPACE || operation == "map",
        _ => false,
    }
}

/// The resources of one attempt at a recovery.
pub(crate) struct Room {
    pub threads: usize,
    pub segments: Arc<Segments>,
    pub nodes: Arc<NodePool>,
}

/// Runs a recovery of this home block with `threads` threads and no reserve. If that reaches the memory bound, runs it
/// again with one thread and a reserve, and then with room for the rows of the copy on top. Each attempt begins anew.
///
/// A database opens again with the memory that it was used with. Several threads can need more than the transactions
/// did, because one of them redoes later inserts while another has not yet come to earlier deletes. One thread redoes
/// the packets in their order: at each place the tables have the rows that they had then, without placeholders and
/// secondary indexes, and what the copy has of later places. The copy is fuzzy, so it may have rows that were inserted
/// while it was made beside rows that were deleted, at most as many as fit into it. Also, rows may share segments in
/// another way, which is not logged. The reserve is for these cases; where it does not suffice, the one thread moves
/// the rows of sparse segments together ([`compact`](super::compact)).
///
/// At its end a recovery gives back the segments that have become empty, and has to be within its bound plus a quarter
/// of it. The database may keep that: it lends nothing more until less than its bound is in use.
pub(crate) fn within_memory<T>(
    (disk, home): (&dyn Disk, &HomeBlock),
    threads: usize,
    memory_bytes: u64,
    mut attempt: impl FnMut(Room) -> Result<T>,
) -> Result<T> {
    let (threads, memory_bytes) = (threads.clamp(1, THREADS_MAX), memory_bytes.min(MEMORY_BYTES_MAX));
    let segments = load::segments_there(disk, home);
    let mut try_with = |threads, kept: u64, given_back: u64| {
        let (segments, nodes) = memory(memory_bytes, kept + given_back, segments)?;
        let budget = segments.budget().clone();
        let done = attempt(Room { threads, segments, nodes })?;
        match budget.used() {
            used if used > memory_bytes.saturating_add(kept) => {
                Err(Error::MemoryLimit { used, limit: memory_bytes })
            }
            _ => Ok(done),
        }
    };
    // The next attempt is made only if the bound kept this one from its end: with more room less of it is reused, and
    // more is left in use.
    let (kept, later_rows) = (memory_bytes / RESERVE, load::copy_bytes(home).min(memory_bytes));
    let mut done = try_with(threads, 0, 0);
    let mut had = None;
    for given_back in [0, later_rows, memory_bytes] {
        if had.replace(given_back) == Some(given_back) {
            continue;
        }
        if !matches!(done, Err(Error::MemoryLimit { .. })) {
            break;
        }
        done = try_with(1, kept, given_back);
    }
    done
}

/// Memory for the tables of a database within a bound, and a reserve beyond it. It has numbers for at least
/// `segments_min` segments.
pub(crate) fn memory(
    memory_bytes: u64,
    reserve: u64,
    segments_min: u32,
) -> Result<(Arc<Segments>, Arc<NodePool>)> {
    let failed = |error: std::io::Error| Error::Io {
        file: ADDRESS_SPACE.to_owned(),
        offset: 0,
        operation: "reserving address space for the tables".to_owned(),
        cause: error.to_string(),
    };
    let budget = Arc::new(Budget::with_reserve(memory_bytes, reserve));
    let segments = Arc::new(Segments::reserve_numbers(budget.clone(), segments_min).map_err(failed)?);
    let nodes = NodePool::new(budget.capacity() as usize, budget).map_err(failed)?;
    Ok((segments, nodes))
}
