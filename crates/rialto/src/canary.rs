//! Bugs that are put back on purpose, to see that the suites find them (`.ci/canaries`, whose list says what each leaves out).
//! Only with the feature `canary`, which is off by default; without it the question is a constant, and costs nothing.

/// Whether this bug is put back: the variable `RIALTO_BUG` names it.
#[inline(always)]
pub fn is_back(bug: &str) -> bool {
    #[cfg(feature = "canary")]
    return asked_for() == bug;
    #[cfg(not(feature = "canary"))]
    {
        let _ = bug;
        false
    }
}

#[cfg(feature = "canary")]
fn asked_for() -> &'static str {
    static BUG: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("RIALTO_BUG").unwrap_or_default());
    &BUG
}
