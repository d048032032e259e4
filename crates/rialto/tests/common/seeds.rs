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

/// The same, and on until it says that all has come that only some seeds bring; fails where 400 have not brought it.
pub fn for_a_while_until(mut run: impl FnMut(u64) -> bool) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    loop {
        // The first is the one that a failure names.
        let has_come = run(first.wrapping_add(seeds));
        seeds += 1;
        if has_come && began.elapsed() >= time {
            return (first, seeds);
        }
        assert!(
            has_come || seeds < 400,
            "RIALTO_SEED={first}: {seeds} seeds have not brought what this test is about"
        );
    }
}

/// The same, and on until it says that all has come that is to come: at most so many seeds in all.
pub fn for_a_while_until(mut run: impl FnMut(u64) -> bool) -> (u64, u64) {
    const SEEDS_MAX: u64 = 400;
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    loop {
        let has_come = run(first.wrapping_add(seeds));
        seeds += 1;
        if began.elapsed() >= time && (has_come || seeds >= SEEDS_MAX) {
            return (first, seeds);
        }
    }
}
