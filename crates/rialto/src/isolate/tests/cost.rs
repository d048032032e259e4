//! What an uncontended lock costs. Measured, not gated here:
//!
//! `cargo test --release -p rialto lock::tests::cost -- --ignored --nocapture --test-threads 1`
//!
//! For instructions, run the test's program under `valgrind --tool=callgrind` with `RIALTO_COST_ROUNDS` at two values
//! and divide the difference of the totals by that of the locks.

use std::time::Instant;

use super::thin::{Words, lock};
use super::{INDEX, refusing};
use crate::ids::TableId;
use crate::isolate::{LockForm, LockManager, LockMode, LockName, LockOptions, RecordMode};

/// Locks per transaction.
const LOCKS: u64 = 10;

fn rounds() -> u64 {
    std::env::var("RIALTO_COST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(300_000)
}

fn measure(what: &str, per_round: u64, mut round: impl FnMut(u64)) {
    round(0);
    let start = Instant::now();
    (1..=rounds()).for_each(&mut round);
    let each = start.elapsed().as_nanos() as f64 / (rounds() * per_round) as f64;
    println!("{what}: {each:.1} ns for lock and unlock, uncontended");
}

#[test]
#[ignore = "a measurement"]
fn of_a_central_record_lock() {
    let manager = LockManager::new(LockOptions { form: LockForm::Central, ..LockOptions::default() });
    let mut owner = manager.begin().unwrap();
    measure("central record", LOCKS, |round| {
        for at in 0..LOCKS {
            let hash = (round * LOCKS + at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let name = LockName { index: INDEX, hash };
            manager.record(&mut owner, name, b"key", RecordMode::Exclusive, &refusing()).unwrap();
        }
        manager.release_all(&mut owner);
    });
    assert_eq!(manager.locks_now(), 0);
    manager.end(owner);
}

#[test]
#[ignore = "a measurement"]
fn of_a_thin_record_lock() {
    let manager = LockManager::new(LockOptions::default());
    let words = Words::new(1 << 16);
    let mut owner = manager.begin().unwrap();
    measure("thin record", LOCKS, |round| {
        for at in 0..LOCKS {
            let record = (round * LOCKS + at) & 0xFFFF;
            lock(&manager, &mut owner, &words, record, RecordMode::Exclusive, &refusing()).unwrap();
        }
        manager.release_all_thin(&mut owner, &words);
    });
    words.assert_all_free();
    manager.end(owner);
}

#[test]
#[ignore = "a measurement"]
fn of_a_table_intention() {
    for form in [LockForm::Thin, LockForm::Central] {
        let manager = LockManager::new(LockOptions { form, ..LockOptions::default() });
        let mut owner = manager.begin().unwrap();
        measure(&format!("{form:?} table intention"), 1, |_| {
            manager.table(&mut owner, TableId(1), LockMode::IntentExclusive, &refusing()).unwrap();
            manager.release_all(&mut owner);
        });
        manager.end(owner);
    }
}
