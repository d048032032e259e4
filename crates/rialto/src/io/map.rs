#![allow(unsafe_code)]
//! Memory that outlives a process: a mapped file, or its stand-in for disks in memory.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// A shared map: `len()` bytes, aligned to a page, that several threads (and, mapped from a file, several processes one
/// after another) use at the same time.
///
/// Clones share the memory; it is unmapped when the last one is dropped.
#[derive(Clone)]
pub struct SharedMap {
    region: Arc<MappedRegion>,
}

struct MappedRegion {
    start: NonNull<u8>,
    bytes: usize,
}

impl SharedMap {
    /// Maps the first `bytes` bytes of a file, which must be that long and have its blocks reserved.
    pub(super) fn of_file(file: BorrowedFd<'_>, bytes: usize) -> io::Result<SharedMap> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Ok(SharedMap::new(start.cast(), bytes))
    }

    /// Zeroed memory of this process alone; pages that are never touched cost nothing.
    pub(super) fn anonymous(bytes: usize) -> io::Result<SharedMap> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        Ok(SharedMap::new(start.cast(), bytes))
    }

    fn new(start: *mut u8, bytes: usize) -> SharedMap {
        let start = NonNull::new(start).expect("mmap answers an address or an error");
        SharedMap { region: Arc::new(MappedRegion { start, bytes }) }
    }

    /// The size in bytes, as it was asked for.
    #[allow(clippy::len_without_is_empty, reason = "a map is never empty")]
    pub fn len(&self) -> usize {
        self.region.bytes
    }

    /// The map as words.
    pub fn as_words(&self) -> &[AtomicU64] {
        // SAFETY: the region is mapped for as long as `self` lives, page-aligned, and initialised (by the file or with
        // zeros); every bit pattern is a u64, and atomics allow shared mutation.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast::<AtomicU64>(), self.region.bytes / 8) }
    }

    /// The first byte. Valid for reads and writes of `len()` bytes while any clone lives. The user orders the accesses
    /// to each byte, and no Rust reference to plain bytes may exist while another thread can write them.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.start.as_ptr()
    }

    /// A private copy of the map, word by word, with zeros for the pages that `keep` refuses: what a crashed machine
    /// may find of a map.
    pub(super) fn survivor(&self, mut keep: impl FnMut() -> bool) -> io::Result<SharedMap> {
        const PAGE_WORDS: usize = 512;
        let copy = SharedMap::anonymous(self.len())?;
        for (to, from) in copy.as_words().chunks(PAGE_WORDS).zip(self.as_words().chunks(PAGE_WORDS)) {
            let written = from.iter().any(|word| word.load(Ordering::Relaxed) != 0);
            if written && keep() {
                for (to, from) in to.iter().zip(from) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
        }
        Ok(copy)
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: the region was mapped with this address and size, and its last user is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}

// SAFETY: the region is plain memory without ties to a thread; access to it is by atomics or by the user's own order.
unsafe impl Send for MappedRegion {}
// SAFETY: as for Send; a shared reference gives out only atomics and a raw pointer.
unsafe impl Sync for MappedRegion {}

impl fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMap").field("bytes", &self.len()).finish()
    }
}
