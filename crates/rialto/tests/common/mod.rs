//! Shared by the test programs. `calls` are random calls of one procedure; `disk_tables` are tables of both kinds and a model
//! of their rows; `engines` are the engines that a test runs
//! on; `hooked` and `gated` are disks that stop a test's database at one moment; `quiet` and `archives` are databases
//! on which nothing happens by itself; `seeds` runs random tests. The kernel's own tests include it, too
//! (`src/interleavings/`, `src/histories/`).

#![allow(dead_code, reason = "each test program uses its part")]

pub mod archives;
pub mod calls;
pub mod disk_tables;
pub mod engines;
pub mod gated;
pub mod hooked;
pub mod many_seeds;
pub mod quiet;
pub mod seeds;
pub mod turns;

use std::time::{Duration, Instant};

/// Waits until the condition holds; fails when patience is at its end.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    within(seeds::patience(), what, is_so);
}

/// Waits until the condition holds; fails after `limit`, or when patience is at its end.
pub fn within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit.min(seeds::patience());
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Runs it on a thread of its own, and fails if it is not done in that time, or when patience is at its end.
pub fn in_time<T: Send + 'static>(limit: Duration, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let outcome = run();
        // The waiter may have given up.
        let _ = done.send(());
        outcome
    });
    match is_done.recv_timeout(limit.min(seeds::patience())) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it is not done after {limit:?}"),
        // It is done, or has panicked.
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}
