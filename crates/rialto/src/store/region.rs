//! [`Region`]: the address space that segments, frames and the page map lie in.
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
        // SAFETY: the range was just mapped. Huge pages are only a hint: a refusal changes only the speed.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        Ok(Region { base: base.cast(), words: bytes / 8 })
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, so many words long, zero-filled, lives as long as `self`, and every
        // access to it goes through this slice of atomics.
        unsafe { std::slice::from_raw_parts(self.base, self.words) }
    }
}

/// Copies words to `out` that other threads may change meanwhile, each of them whole or in parts, in the machine's byte
/// order. `out` is eight times as long as `words`.
pub(super) fn copy_words(words: &[AtomicU64], out: &mut [u8]) {
    assert_eq!(out.len(), words.len() * 8);
    // No compiler makes one copy of so many atomic loads, and a plain copy of what another thread may change is not
    // defined. What the processor does with the instruction is defined, and takes half the time: 35 ms a GB instead of
    // 70 to 90.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it reads the bytes of `words` and writes those of `out`, which have the same length and no other owner;
    // the direction flag is clear on entry, as the ABI says.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words.len() => _,
            inout("rsi") words.as_ptr() => _,
            inout("rdi") out.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for (word, bytes) in words.iter().zip(out.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes());
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.words * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_to_their_bytes_and_no_further() {
        for count in [0, 1, 7, 8_184] {
            let words: Vec<AtomicU64> =
                (0..count as u64).map(|n| AtomicU64::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
            let mut out = vec![0xaa; count * 8 + 16];
            copy_words(&words, &mut out[8..8 + count * 8]);
            let expected =
                words.iter().flat_map(|word| word.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes());
            assert!(out[8..8 + count * 8].iter().copied().eq(expected));
            assert!(out[..8].iter().chain(&out[8 + count * 8..]).all(|&byte| byte == 0xaa));
        }
    }
}
