//! The targets on bytes from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::*;
use crate::io::Random;

/// Some bytes: of few values or of all, and often much shorter than they may be.
fn input(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.below(most as u64 + 1);
    let length = if random.chance(1, 2) { random.below(length + 1) } else { length };
    let few = random.chance(1, 3);
    (0..length)
        .map(|_| if few && random.chance(1, 2) { random.below(4) as u8 } else { random.next() as u8 })
        .collect()
}

fn run(name: &str) {
    let (_, target, most) = TARGETS.into_iter().find(|(other, _, _)| *other == name).expect("it is a target");
    let seed = Random::seed_from_environment();
    let (began, time) = (Instant::now(), Random::test_time_from_environment());
    let mut inputs = 0;
    while inputs == 0 || began.elapsed() < time {
        // Each input has a seed of its own, which alone runs it again.
        let seed = seed.wrapping_add(inputs);
        let input = input(&mut Random::new(seed), most);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            eprintln!("RIALTO_SEED={seed} replays this failure of {name}; its input: {input:?}");
            std::panic::resume_unwind(panic);
        }
        inputs += 1;
    }
    println!("tally: fuzz {name}, {inputs} inputs, RIALTO_SEED={seed}");
}

#[test]
fn a_damaged_database_is_what_it_was_or_an_error() {
    run("database_files");
}

#[test]
fn a_damaged_log_is_a_prefix_or_an_error() {
    run("log_files");
}

#[test]
fn a_forged_log_panics_nowhere() {
    run("forged_log");
}

#[test]
fn forged_home_blocks_panic_nowhere() {
    run("forged_home");
}

#[test]
fn a_forged_image_panics_nowhere() {
    run("forged_image");
}

#[test]
fn any_bytes_are_redo_records_or_an_error() {
    run("redo_records");
}

#[test]
fn any_bytes_are_rows_and_keys_or_an_error() {
    run("rows_and_keys");
}
