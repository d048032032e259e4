//! Looks at entries of lists, chains and trees, counted in tests: how long a search takes, without a clock.

/// Counts a look of this thread's, in tests.
#[inline(always)]
pub(crate) fn count_look() {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
}

#[cfg(test)]
thread_local! {
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
