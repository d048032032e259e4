//! [`Growing`]: tells the memory by which a database grows from the memory of a transaction.
//!
//! A transaction allocates nothing while its pools are warm. What its thread still allocates is room for rows, for
//! index nodes and for the log (its marks, and on the memory disk its pages), which outlives the transaction. The code
//! that does so holds a `Growing`, so that a counting allocator can count it separately.

use std::cell::Cell;

thread_local! {
    // It has no destructor and no lazy start, because an allocator reads it at any time in a thread's life.
    static GROWING: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, what its thread allocates counts as growth.
#[derive(Debug)]
pub struct Growing(());

impl Growing {
    /// Begins a scope of growth.
    #[must_use = "it is over when it is dropped"]
    pub fn begin() -> Growing {
        GROWING.set(GROWING.get() + 1);
        Growing(())
    }

    /// Whether the calling thread holds one. This allocates nothing.
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
