//! [`prefetch`]: asks the processor for a cache line that is read soon.
#![allow(unsafe_code)]

/// Asks for the line that `at` lies in. It is a hint: nothing is read by it.
#[inline(always)]
pub(in crate::store) fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an address of anything at all may be given; this one is a reference's.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
