//! [`Frames`]: the memory of the pages that are in memory.
#![allow(unsafe_code)]

use crate::store::region::Region;
use crate::store::tree::Node;

/// So many nodes, one after the other, each of which is a page or free.
pub(super) struct Frames<const W: usize> {
    region: Region,
    count: u32,
}

impl<const W: usize> Frames<W> {
    /// Reserves address space for so many frames. A frame takes memory from its first use on.
    pub fn reserve(count: u32) -> std::io::Result<Frames<W>> {
        Ok(Frames { region: Region::reserve(count as usize * Node::<W>::BYTES)?, count })
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// The node in a frame; `None` if there is no such frame.
    #[inline(always)]
    pub fn get(&self, frame: u32) -> Option<&Node<W>> {
        if frame >= self.count {
            return None;
        }
        let first = &self.region.words()[frame as usize * (Node::<W>::BYTES / 8)];
        // SAFETY: the frame's words lie inside the region, which is zeroed at first, page-aligned, mapped as long as
        // `self`, and reached as atomics only; a node is so many atomics and is aligned to 64 bytes, as each frame is.
        Some(unsafe { &*std::ptr::from_ref(first).cast::<Node<W>>() })
    }

    /// The node in a frame that exists.
    #[inline(always)]
    pub fn node(&self, frame: u32) -> &Node<W> {
        self.get(frame).expect("frames come from this pool")
    }
}
