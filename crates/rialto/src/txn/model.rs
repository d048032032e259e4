//! A transaction's cancellation under a model checker: `cancellation.rs` is compiled a second time, and shuttle
//! schedules its every step.

/// `super::sync` as the model sees it.
mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicU16, fence};
}

#[allow(dead_code, clippy::duplicate_mod, reason = "the model uses a part of it, with other atomics")]
#[path = "cancellation.rs"]
mod cancellation;

use cancellation::Cancellation;
use shuttle::thread;

const SCHEDULES: usize = 1_000;

/// The last canceller of a transaction sets the flag and goes just as the context begins its next transaction.
#[test]
fn a_canceller_ends_no_transaction_but_its_own() {
    let run = || {
        let of_last = Cancellation::new();
        let canceller = of_last.clone();
        let canceller = thread::spawn(move || canceller.ask());
        // As `Context::begin` does it.
        let of_next = if of_last.is_used() { Cancellation::new() } else { of_last };
        canceller.join().unwrap();
        assert!(!of_next.is_asked());
    };
    shuttle::check_random(run, SCHEDULES);
}
