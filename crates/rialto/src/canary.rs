//! Bugs that tests put back on purpose, to see that their checkers find them. Only with the feature `canary`, which is
//! off by default; without it every question here is a constant, and costs nothing.

#[cfg(feature = "canary")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Scans lock no intervals: phantoms come in.
#[cfg(feature = "canary")]
pub static SKIP_INTERVAL_LOCKS: AtomicBool = AtomicBool::new(false);

/// Commits release their locks before they take their place (against I2).
#[cfg(feature = "canary")]
pub static RELEASE_BEFORE_PLACE: AtomicBool = AtomicBool::new(false);

/// A record that a probe of an index gave is locked, and then taken for the key's without another look (against L8).
#[cfg(feature = "canary")]
pub static SKIP_RECHECK: AtomicBool = AtomicBool::new(false);

/// Transactions that only read believe what they read without locks (against I7).
#[cfg(feature = "canary")]
pub static SKIP_SECOND_LOOK: AtomicBool = AtomicBool::new(false);

/// A packet slot changes hands between its owner and the gatherer without an order: a data race, for ThreadSanitizer.
#[cfg(feature = "canary")]
pub static RELAX_PACKET_HANDOVER: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn relaxes_packet_handover() -> bool {
    #[cfg(feature = "canary")]
    return RELAX_PACKET_HANDOVER.load(Ordering::Relaxed);
    #[cfg(not(feature = "canary"))]
    false
}

#[inline]
pub(crate) fn skips_second_look() -> bool {
    #[cfg(feature = "canary")]
    return SKIP_SECOND_LOOK.load(Ordering::Relaxed);
    #[cfg(not(feature = "canary"))]
    false
}

#[inline]
pub(crate) fn skips_recheck() -> bool {
    #[cfg(feature = "canary")]
    return SKIP_RECHECK.load(Ordering::Relaxed);
    #[cfg(not(feature = "canary"))]
    false
}

#[inline]
pub(crate) fn skips_interval_locks() -> bool {
    #[cfg(feature = "canary")]
    return SKIP_INTERVAL_LOCKS.load(Ordering::Relaxed);
    #[cfg(not(feature = "canary"))]
    false
}

#[inline]
pub(crate) fn releases_before_place() -> bool {
    #[cfg(feature = "canary")]
    return RELEASE_BEFORE_PLACE.load(Ordering::Relaxed);
    #[cfg(not(feature = "canary"))]
    false
}
