//! Probes: accesses to entries of lists, chains and trees, and descents of indexes, counted in tests. They show how
//! long a search is without a clock.

/// Counts a probe by this thread, in tests.
#[inline(always)]
pub(crate) fn count_probe() {
    #[cfg(test)]
    PROBES.with(|probes| probes.set(probes.get() + 1));
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
    pub(crate) static PROBES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
