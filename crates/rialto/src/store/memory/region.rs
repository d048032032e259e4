//! [`Region`]: the address space that segments lie in.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

/// Reserved address space, seen as atomic words. Zero until written.
pub(super) struct Region {
    base: *const AtomicU64,
    words: usize,
}

// SAFETY: the region is plain memory that is only reached as atomics, from any thread, and unmapped only by `drop`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub fn reserve(bytes: usize) -> std::io::Result<Region> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // SAFETY: the range was just mapped. Huge pages are a wish: a refusal changes only the speed.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        Ok(Region { base: base.cast(), words: bytes / 8 })
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, so many words long, zero-filled, lives as long as `self`, and every access to
        // it goes through this slice of atomics.
        unsafe { std::slice::from_raw_parts(self.base, self.words) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.words * 8) };
    }
}
