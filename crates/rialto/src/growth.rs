//! [`Growing`]: tells memory that a database grows by from a transaction's own.
//!
//! A transaction that finds its pools warm allocates nothing. What the thread that runs it still allocates is room for rows,
//! for index nodes and for the log (its marks, on the memory disk its pages), which stays when it is over. Where that is done a
//! `Growing` is held, so that an allocator that counts can count it apart.

use std::cell::Cell;

thread_local! {
    // No destructor and no lazy start: an allocator looks at it at any time in a thread's life.
    static GROWING: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, what its thread allocates is growth.
#[derive(Debug)]
pub struct Growing(());

impl Growing {
    /// From here to the end of the scope.
    #[must_use = "it is over when it is dropped"]
    pub fn begin() -> Growing {
        GROWING.set(GROWING.get() + 1);
        Growing(())
    }

    /// Whether the calling thread holds one. Allocates nothing.
    #[inline]
    pub fn is_held() -> bool {
        GROWING.get() > 0
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        GROWING.set(GROWING.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_lie_in_one_another_and_are_a_threads_own() {
        assert!(!Growing::is_held());
        let outer = Growing::begin();
        drop(Growing::begin());
        assert!(Growing::is_held());
        std::thread::scope(|scope| scope.spawn(|| assert!(!Growing::is_held())).join().unwrap());
        drop(outer);
        assert!(!Growing::is_held());
    }
}
