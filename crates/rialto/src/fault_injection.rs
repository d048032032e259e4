//! Fault injection: known bugs are put back on purpose, to verify that the tests find them (`.ci/injected-faults`,
//! whose list says what each leaves out). It needs the feature `fault-injection`, which is off by default. Without the
//! feature [`is_on`] is a constant and costs nothing. The same holds for [`pause`]: it marks a point at which a thread
//! sometimes stops for a moment, so that other threads see a half-done change.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Whether this bug is put back: the variable `RIALTO_BUG` names it.
#[inline(always)]
pub fn is_on(bug: &str) -> bool {
    #[cfg(feature = "fault-injection")]
    return asked_for() == bug;
    #[cfg(not(feature = "fault-injection"))]
    {
        let _ = bug;
        false
    }
}

#[cfg(feature = "fault-injection")]
fn asked_for() -> &'static str {
    static BUG: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("RIALTO_BUG").unwrap_or_default());
    &BUG
}

/// From now on threads of this process sometimes stop where they [`pause`].
pub fn have_pauses() {
    #[cfg(feature = "fault-injection")]
    pauses::HAS_ANY.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Marks a point at which other threads may see a half-done change. After [`have_pauses`], one pass in `one_in` stops
/// there for up to a millisecond, and some more passes yield to other threads.
#[inline(always)]
pub(crate) fn pause(one_in: u64) {
    #[cfg(feature = "fault-injection")]
    pauses::pause(one_in);
    #[cfg(not(feature = "fault-injection"))]
    let _ = one_in;
}

/// Makes other bytes of those of a packet, or none, if it is to stay as it is.
pub type Distortion = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

static HAS_DISTORTION: AtomicBool = AtomicBool::new(false);
static DISTORTION: Mutex<Option<Distortion>> = Mutex::new(None);

/// From now on followers of this process redo other packets than their logs have, where this says so: tests have tables that are
/// not their log, redone. It takes the place of an earlier one, and needs no feature.
pub fn distort_redo(distortion: Distortion) {
    *DISTORTION.lock() = Some(distortion);
    HAS_DISTORTION.store(true, Ordering::Release);
}

/// The bytes that are redone in place of those of a packet, if they are others.
pub(crate) fn distorted(packet: &[u8]) -> Option<Vec<u8>> {
    if !HAS_DISTORTION.load(Ordering::Acquire) {
        return None;
    }
    DISTORTION.lock().as_ref().and_then(|distort| distort(packet))
}

#[cfg(feature = "fault-injection")]
mod pauses {
    use std::cell::Cell;
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    pub static HAS_ANY: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(()) | 1);
    }

    pub fn pause(one_in: u64) {
        if !HAS_ANY.load(Ordering::Relaxed) {
            return;
        }
        // Xorshift; a thread that is ending has no state any more.
        let drawn = STATE.try_with(|state| {
            let mut drawn = state.get();
            drawn ^= drawn << 13;
            drawn ^= drawn >> 7;
            drawn ^= drawn << 17;
            state.set(drawn);
            drawn
        });
        let Ok(drawn) = drawn else { return };
        match drawn % one_in {
            0 => std::thread::sleep(Duration::from_micros(drawn >> 32 & 1_023)),
            1 | 2 => std::thread::yield_now(),
            _ => {}
        }
    }
}
