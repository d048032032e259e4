//! Seeds of random tests.

use std::time::Instant;

use rialto::io::Random;

/// Runs it with one seed after the other for as long as random tests may take, and once at least. The first seed and their number.
pub fn for_a_while(mut run: impl FnMut(u64)) -> (u64, u64) {
    for_a_while_and_until(&mut (), |()| true, |seed, ()| run(seed))
}

/// The same for what only some seeds do: goes on until the counts say that it was done, and fails where 300 seeds have not.
pub fn for_a_while_and_until<Counts>(
    counts: &mut Counts,
    is_done: impl Fn(&Counts) -> bool,
    mut run: impl FnMut(u64, &mut Counts),
) -> (u64, u64) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, time, mut seeds) = (Instant::now(), Random::test_time_from_environment(), 0);
    while seeds == 0 || began.elapsed() < time || !is_done(counts) {
        assert!(seeds < 300 || is_done(counts), "{seeds} seeds have not done what some have to do");
        // The first is the one that a failure names.
        run(first.wrapping_add(seeds), counts);
        seeds += 1;
    }
    (first, seeds)
}
