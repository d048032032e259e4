//! Seeds that are run at the same time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::seeds::{SEEDS_MAX, patience};
use rialto::io::Random;

/// As [`for_a_while`](super::seeds::for_a_while) on this many threads, for a test whose threads sleep most of the time.
pub fn for_a_while_by(threads: usize, run: impl Fn(u64) + Sync) -> (u64, u64) {
    for_a_while_until_by(threads, |seed| {
        run(seed);
        true
    })
}

/// As [`for_a_while_until`](super::seeds::for_a_while_until) on this many threads.
pub fn for_a_while_until_by(threads: usize, run: impl Fn(u64) -> bool + Sync) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    rialto::fault_injection::have_pauses();
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let has_come = catch_unwind(AssertUnwindSafe(|| run(first.wrapping_add(nth))));
            let has_come = has_come.unwrap_or_else(|panic| {
                has_failed.store(true, Ordering::Relaxed);
                resume_unwind(panic)
            });
            let gives_up = nth >= SEEDS_MAX || began.elapsed() >= 3 * patience();
            let is_over = began.elapsed() >= time && (has_come || gives_up);
            if is_over || has_failed.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        others.into_iter().for_each(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    (first, next.into_inner())
}
