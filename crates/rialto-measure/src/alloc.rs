//! [`CountingAllocator`]: counts a program's allocations, so that a result can say how many a transaction makes.

#![allow(unsafe_code)]

mod small_pages;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use rialto::growth::Growing;

pub use self::small_pages::keep_small_pages;

const SHARDS: usize = 128;

/// Threads share a shard only when there are more threads than shards; shards never share a line.
static COUNTS: [CachePadded<Counts>; SHARDS] = [const { CachePadded::new(Counts::new()) }; SHARDS];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // No destructor and no lazy start, so that the allocator may use it at any time in a thread's life.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Counts {
    growth: AtomicU64,
    other: AtomicU64,
}

impl Counts {
    const fn new() -> Counts {
        Counts { growth: AtomicU64::new(0), other: AtomicU64::new(0) }
    }
}

/// What was allocated since the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocations {
    /// What databases have grown by, as [`rialto::growth`] tells it.
    pub growth: u64,
    /// All else.
    pub other: u64,
}

#[inline]
fn count() {
    let shard = SHARD.with(|own| {
        if own.get() == usize::MAX {
            own.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        own.get()
    });
    let counts = &COUNTS[shard];
    let count = if Growing::is_held() { &counts.growth } else { &counts.other };
    count.fetch_add(1, Ordering::Relaxed);
}

/// By what they were for; `None` if the program has not installed a [`CountingAllocator`].
pub fn allocations_apart() -> Option<Allocations> {
    let sum =
        |of: fn(&Counts) -> &AtomicU64| COUNTS.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum();
    let sums = Allocations { growth: sum(|counts| &counts.growth), other: sum(|counts| &counts.other) };
    // Every program has allocated before its `main`.
    (sums.growth + sums.other > 0).then_some(sums)
}

/// Allocations since the program began; `None` if the program has not installed a [`CountingAllocator`].
pub fn allocations() -> Option<u64> {
    allocations_apart().map(|Allocations { growth, other }| growth + other)
}

/// Another allocator, with each allocation counted.
#[derive(Debug)]
pub struct CountingAllocator<A>(A);

impl<A> CountingAllocator<A> {
    /// Counts what `inner` allocates.
    pub const fn new(inner: A) -> CountingAllocator<A> {
        CountingAllocator(inner)
    }
}

// SAFETY: every call goes to the inner allocator unchanged; counting neither allocates nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the inner allocator's condition.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { self.0.realloc(at, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn counts_allocations_and_not_releases() {
        let allocator = CountingAllocator::new(System);
        let layout = Layout::from_size_align(64, 8).unwrap();
        let before = allocations().unwrap_or(0);
        // SAFETY: a valid layout; released below with the same one, after growing.
        let at = unsafe { allocator.alloc(layout) };
        // SAFETY: `at` came from this allocator with this layout.
        let at = unsafe { allocator.realloc(at, layout, 128) };
        assert!(!at.is_null());
        // SAFETY: `at` has 128 bytes of this alignment now.
        unsafe { allocator.dealloc(at, Layout::from_size_align(128, 8).unwrap()) };
        assert_eq!(allocations(), Some(before + 2));

        let growth = || allocations_apart().map(|counts| counts.growth).unwrap_or(0);
        assert_eq!(growth(), 0);
        let growing = Growing::begin();
        // SAFETY: as above.
        let at = unsafe { allocator.alloc(layout) };
        drop(growing);
        // SAFETY: `at` has this layout.
        unsafe { allocator.dealloc(at, layout) };
        assert_eq!((growth(), allocations()), (1, Some(before + 3)));
    }
}
