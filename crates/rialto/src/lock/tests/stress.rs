//! Many threads against an oracle that knows who is inside which lock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::{Dice, INDEX, manager, patient, seed, test_seconds};
use crate::ids::TableId;
use crate::lock::{Acquired, LockError, LockName, RecordMode, TableMode};

/// Who is inside: a count of sharers, or -1 for one writer. Entered after the grant and left before the release.
#[derive(Default)]
struct Inside(AtomicI64);

impl Inside {
    fn enter(&self, mode: RecordMode, acquired: Acquired) {
        let (expected, step): (fn(i64) -> bool, i64) = match (mode, acquired) {
            (_, Acquired::Held) => return,
            (RecordMode::Shared, _) => (|before| before >= 0, 1),
            (RecordMode::Exclusive, Acquired::New) => (|before| before == 0, -1),
            (RecordMode::Exclusive, _) => (|before| before == 1, -2),
        };
        let before = self.0.fetch_add(step, Ordering::SeqCst);
        assert!(expected(before), "{mode:?} {acquired:?} found {before} inside");
    }

    fn leave(&self, exclusive: bool) {
        self.0.fetch_add(if exclusive { 1 } else { -1 }, Ordering::SeqCst);
    }
}

#[test]
fn nobody_is_ever_inside_a_lock_with_an_enemy() {
    const KEYS: u64 = 24;
    const THREADS: u64 = 6;
    let seed = seed();
    println!("RIALTO_SEED={seed}");
    let manager = manager();
    let inside: Vec<Inside> = (0..KEYS).map(|_| Inside::default()).collect();
    let (committed, sacrificed) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + test_seconds();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (manager, inside, committed, sacrificed) = (&manager, &inside, &committed, &sacrificed);
            scope.spawn(move || {
                let mut dice = Dice::new(seed + thread);
                while Instant::now() < end {
                    let mut owner = manager.begin().unwrap();
                    let mut held: Vec<(usize, bool)> = Vec::new();
                    let mut outcome = Ok(Acquired::New);
                    if dice.below(4) == 0 {
                        let mode = [TableMode::IntentShared, TableMode::IntentExclusive, TableMode::Shared]
                            [dice.below(3) as usize];
                        outcome = manager.table(&mut owner, TableId(1), mode, &patient());
                    }
                    for _ in 0..dice.below(8) {
                        if outcome.is_err() {
                            break;
                        }
                        let key = dice.below(KEYS);
                        let mode =
                            if dice.below(2) == 0 { RecordMode::Shared } else { RecordMode::Exclusive };
                        let bytes = key.to_be_bytes();
                        outcome = manager.record(
                            &mut owner,
                            LockName::new(INDEX, &bytes),
                            &bytes,
                            mode,
                            &patient(),
                        );
                        let Ok(acquired) = outcome else { break };
                        inside[key as usize].enter(mode, acquired);
                        match held.iter_mut().find(|(held, _)| *held == key as usize) {
                            Some((_, exclusive)) => *exclusive |= mode == RecordMode::Exclusive,
                            None => held.push((key as usize, mode == RecordMode::Exclusive)),
                        }
                        if dice.below(16) == 0 {
                            thread::yield_now();
                        }
                    }
                    match outcome {
                        Ok(_) => committed.fetch_add(1, Ordering::Relaxed),
                        Err(LockError::Deadlock) => sacrificed.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                    for (key, exclusive) in held {
                        inside[key].leave(exclusive);
                    }
                    manager.end(owner);
                }
            });
        }
    });
    assert_eq!(manager.locks_now(), 0);
    assert!(manager.waits().is_empty());
    assert!(inside.iter().all(|inside| inside.0.load(Ordering::SeqCst) == 0));
    assert_eq!(manager.counters().deadlocks, sacrificed.load(Ordering::Relaxed));
    println!(
        "{} committed, {} sacrificed",
        committed.load(Ordering::Relaxed),
        sacrificed.load(Ordering::Relaxed)
    );
    assert!(committed.load(Ordering::Relaxed) > 100);
}
