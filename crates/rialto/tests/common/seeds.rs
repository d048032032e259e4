//! Seeds of random tests.

use std::time::Instant;

use rialto::io::Random;

/// Runs it with one seed after the other for as long as random tests may take, and once at least. The first seed and their number.
pub fn for_a_while(mut run: impl FnMut(u64)) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    while seeds == 0 || began.elapsed() < time {
        // The first is the one that a failure names.
        run(first.wrapping_add(seeds));
        seeds += 1;
    }
    (first, seeds)
}
