//! With a bug put back into the engine the checker of histories fails. One test, since the bugs are the process's.

mod common;

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::history::{check, check_with_adya};
use common::load::{Mix, run};
use rialto::canary::{RELEASE_BEFORE_PLACE, SKIP_INTERVAL_LOCKS, SKIP_RECHECK, SKIP_SECOND_LOOK};
use rialto::io::Random;

fn finds(bug: &AtomicBool, mix: Mix, about: &str) {
    let seed = Random::seed_from_environment();
    let mut random = Random::new(seed);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        let seed = random.next();
        bug.store(true, Ordering::Relaxed);
        let history = catch_unwind(|| run(seed, mix, 4, 150));
        bug.store(false, Ordering::Relaxed);
        // An engine that breaks on its own bug is no proof of the checker.
        let Ok(history) = history else { continue };
        if let Err(found) = check(&history) {
            println!("{about}: {found}\nadya says {:?}", check_with_adya(&history));
            return;
        }
    }
    panic!("the checker did not find the bug \"{about}\", RIALTO_SEED={seed}");
}

#[test]
fn the_checker_finds_bugs_that_are_put_back() {
    finds(&SKIP_INTERVAL_LOCKS, Mix::All, "scans without interval locks");
    finds(&SKIP_RECHECK, Mix::All, "records taken for the key's without another look");
    finds(&SKIP_SECOND_LOOK, Mix::All, "reads without locks that are believed");
    finds(&RELEASE_BEFORE_PLACE, Mix::Points, "locks released before the place");
}
