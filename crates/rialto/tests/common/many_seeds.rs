//! Seeds that are run at the same time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rialto::io::Random;

/// As [`for_a_while`](super::seeds::for_a_while) on so many threads, for a test whose threads sleep most of the time.
pub fn for_a_while_by(threads: usize, run: impl Fn(u64) + Sync) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    rialto::canary::have_pauses();
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let (seeds, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        loop {
            let seed = first.wrapping_add(seeds.fetch_add(1, Ordering::Relaxed));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                has_failed.store(true, Ordering::Relaxed);
                resume_unwind(panic);
            }
            if began.elapsed() >= time || has_failed.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        others.into_iter().for_each(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    (first, seeds.into_inner())
}
