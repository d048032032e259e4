//! Seeds of random tests.

use std::time::Instant;

use rialto::io::Random;

/// Runs it with one seed after the other for as long as random tests may take, and once at least. The first seed and their number.
pub fn for_a_while(mut run: impl FnMut(u64)) -> (u64, u64) {
    for_a_while_until(|seed| {
        run(seed);
        true
    })
}

/// The same, and on until it says that all has come that only some seeds bring: for 400 seeds at most, so that the caller asserts it.
pub fn for_a_while_until(mut run: impl FnMut(u64) -> bool) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    loop {
        // The first is the one that a failure names.
        let has_come = run(first.wrapping_add(seeds));
        seeds += 1;
        if began.elapsed() >= time && (has_come || seeds >= 400) {
            return (first, seeds);
        }
    }
}
