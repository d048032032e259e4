//! Looks at entries of lists, chains and trees, and descents of indexes, counted in tests: how long a search takes, without a clock.

/// Counts a look of this thread's, in tests.
#[inline(always)]
pub(crate) fn count_look() {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
}

/// Counts a descent of an index from its root by this thread, in tests.
#[inline(always)]
pub(crate) fn count_descent() {
    #[cfg(test)]
    DESCENTS.with(|descents| descents.set(descents.get() + 1));
}

#[cfg(test)]
thread_local! {
    pub(crate) static DESCENTS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
