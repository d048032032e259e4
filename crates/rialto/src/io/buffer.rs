#![allow(unsafe_code)]
//! Memory that a device can read and write directly.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Addresses, lengths and offsets of direct access are multiples of this many bytes.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Zeroed bytes whose address is a multiple of [`BUFFER_ALIGNMENT`], for files opened with
/// [`Caching::Direct`](super::Caching::Direct).
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
}

impl AlignedBuffer {
    /// `bytes` zeroed bytes, rounded up to a positive multiple of [`BUFFER_ALIGNMENT`].
    pub fn zeroed(bytes: usize) -> AlignedBuffer {
        let length = bytes.max(1).next_multiple_of(BUFFER_ALIGNMENT);
        let layout = AlignedBuffer::layout(length);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuffer { start, length }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, BUFFER_ALIGNMENT).expect("a buffer's length fits the address space")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout, and nothing uses it after drop.
        unsafe { dealloc(self.start.as_ptr(), AlignedBuffer::layout(self.length)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `length` initialised bytes that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> AlignedBuffer {
        let mut copy = AlignedBuffer::zeroed(self.length);
        copy.copy_from_slice(self);
        copy
    }
}

// SAFETY: the buffer owns its bytes, like a `Vec<u8>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: a shared reference gives only shared access to the bytes.
unsafe impl Sync for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("bytes", &self.length).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_rounded_up() {
        for (asked, got) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            let mut buffer = AlignedBuffer::zeroed(asked);
            assert_eq!(buffer.len(), got);
            assert!((buffer.as_ptr() as usize).is_multiple_of(BUFFER_ALIGNMENT));
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer[got - 1] = 7;
            assert_eq!(buffer.clone()[got - 1], 7);
        }
    }
}
