//! Seeds of random tests.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rialto::io::Random;

/// How long a test waits for something that has to come, at most: longer than a machine stands still. `RIALTO_PATIENCE_S` says another
/// number of seconds, where bugs are put back that it comes for in vain.
pub fn patience() -> Duration {
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
    Duration::from_secs(seconds.map_or(100, |text| text.parse().expect("a number of seconds")))
}

/// Runs it with one seed after the other for as long as random tests may take, and once at least. The first seed and their number.
pub fn for_a_while(mut run: impl FnMut(u64)) -> (u64, u64) {
    for_a_while_until(|seed| {
        run(seed);
        true
    })
}

/// The same by so many threads at the same time, for a test whose threads sleep most of the time.
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

/// The same for a test that needs what only some seeds bring: `run` says whether it has come, and more seeds are tried until it has. After
/// 400 seeds, or five minutes ([`patience`]), this gives up: the caller asserts that all has come.
pub fn for_a_while_until(mut run: impl FnMut(u64) -> bool) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    rialto::canary::have_pauses();
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    loop {
        // The first is the one that a failure names.
        let has_come = run(first.wrapping_add(seeds));
        seeds += 1;
        let gives_up = seeds >= 400 || began.elapsed() >= 3 * patience();
        if began.elapsed() >= time && (has_come || gives_up) {
            return (first, seeds);
        }
    }
}
