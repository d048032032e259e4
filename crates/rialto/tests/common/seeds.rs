//! Seeds of random tests.

use std::time::{Duration, Instant};

use rialto::io::Random;

/// The longest wait of a test for something that has to come: longer than a machine stands still. `RIALTO_PATIENCE_S`
/// gives another number of seconds, for runs with bugs put back, in which it may never come.
pub fn patience() -> Duration {
    let seconds = std::env::var("RIALTO_PATIENCE_S").ok();
    Duration::from_secs(seconds.map_or(100, |text| text.parse().expect("a number of seconds")))
}

/// The most seeds that a test tries for something that only some seeds bring.
pub const SEEDS_MAX: u64 = 400;

/// Runs it with one seed after the other for as long as random tests may take, and at least once. Gives the first seed
/// and their number.
pub fn for_a_while(mut run: impl FnMut(u64)) -> (u64, u64) {
    for_a_while_until(|seed| {
        run(seed);
        true
    })
}

/// The same for a test that needs something that only some seeds bring. `run` says whether it has come, and more seeds
/// are tried until it has. After [`SEEDS_MAX`] seeds, or five minutes ([`patience`]), this gives up: the caller asserts
/// that everything has come.
pub fn for_a_while_until(mut run: impl FnMut(u64) -> bool) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    rialto::fault_injection::have_pauses();
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    loop {
        // A failure names the first seed.
        let has_come = run(first.wrapping_add(seeds));
        seeds += 1;
        let gives_up = seeds >= SEEDS_MAX || began.elapsed() >= 3 * patience();
        if began.elapsed() >= time && (has_come || gives_up) {
            return (first, seeds);
        }
    }
}
