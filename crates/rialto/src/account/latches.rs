//! Counts the latches that a thread holds, in debug builds, so that no thread waits while it holds one
//! ([`WaitGuard`](super::wait_guard::WaitGuard)).
//!
//! The kernel's own tests are left out: under their models many tasks share one thread.

use super::wait_guard::Awaited;

#[cfg(all(debug_assertions, not(test)))]
thread_local! {
    static HELD: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The thread has taken a latch.
#[inline(always)]
pub(crate) fn taken() {
    #[cfg(all(debug_assertions, not(test)))]
    let _ = HELD.try_with(|held| held.set(held.get() + 1));
}

/// The thread has given a latch back.
#[inline(always)]
pub(crate) fn given_back() {
    #[cfg(all(debug_assertions, not(test)))]
    let _ = HELD
        .try_with(|held| held.set(held.get().checked_sub(1).expect("a latch that is given back was taken")));
}

/// Panics in debug builds if the thread holds a latch.
#[inline(always)]
pub(super) fn assert_none(what: Awaited) {
    #[cfg(all(debug_assertions, not(test)))]
    let _ = HELD.try_with(|held| {
        assert!(held.get() == 0, "a thread that holds {} latches waits: {what:?}", held.get());
    });
    let _ = what;
}
