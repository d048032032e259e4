//! Many threads, checked by an oracle that counts the owners inside each lock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::thin::{Words, lock as thin_lock};
use super::{Dice, INDEX, patient, seed, test_seconds};
use crate::ids::TableId;
use crate::isolate::{
    Acquired, LockError, LockForm, LockManager, LockMode, LockOptions, LockWords, Owner, RecordMode, SpanRef,
};

/// The owners inside: a count of sharers, or -1 for one writer. An owner enters after the grant and leaves before the
/// release.
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
fn central_locks_keep_conflicting_owners_apart() {
    stress(LockForm::Central);
}

#[test]
fn thin_locks_keep_conflicting_owners_apart() {
    stress(LockForm::Thin);
}

#[test]
fn local_locks_keep_conflicting_owners_apart() {
    stress(LockForm::Local);
}

fn stress(form: LockForm) {
    const KEYS: u64 = 24;
    const THREADS: u64 = 6;
    let seed = seed();
    println!("RIALTO_SEED={seed}");
    let manager = LockManager::new(LockOptions { owners_max: 64, form, ..LockOptions::default() });
    let words = Words::new(KEYS as usize);
    let inside: Vec<Inside> = (0..=KEYS).map(|_| Inside::default()).collect();
    let table = &inside[KEYS as usize];
    let (committed, sacrificed) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + test_seconds();
    let run = |dice: &mut Dice, owner: &mut Owner, held: &mut Vec<(usize, bool)>| -> Result<(), LockError> {
        match dice.below(12) {
            0..=1 => {
                let acquired = manager.table(owner, TableId(1), LockMode::Shared, &patient())?;
                table.enter(RecordMode::Shared, acquired);
                held.push((KEYS as usize, false));
            }
            2 => {
                let acquired = manager.table(owner, TableId(1), LockMode::Exclusive, &patient())?;
                table.enter(RecordMode::Exclusive, acquired);
                held.push((KEYS as usize, true));
            }
            3..=5 => {
                // The oracle does not tell intentions from shared table locks: only an exclusive one excludes both.
                let acquired = manager.table(owner, TableId(1), LockMode::IntentShared, &patient())?;
                table.enter(RecordMode::Shared, acquired);
                held.push((KEYS as usize, false));
                if dice.below(2) == 0 {
                    manager.table(owner, TableId(1), LockMode::IntentExclusive, &patient())?;
                }
            }
            _ => {}
        }
        for _ in 0..dice.below(8) {
            let key = dice.below(KEYS);
            let mode = if dice.below(2) == 0 { RecordMode::Shared } else { RecordMode::Exclusive };
            let bytes = key.to_be_bytes();
            let acquired = match form {
                LockForm::Thin => thin_lock(&manager, owner, &words, key, mode, &patient())?,
                LockForm::Central => {
                    manager.record(owner, manager.name(INDEX, &bytes), &bytes, mode, &patient())?
                }
                LockForm::Local => manager.local(owner, INDEX, SpanRef::point(&bytes), mode, &patient())?,
            };
            inside[key as usize].enter(mode, acquired);
            // The store changes its own bits of the word meanwhile; twice, so that the pattern is whole at the end.
            words.lock_word(key).fetch_xor(1 << 40, Ordering::SeqCst);
            match held.iter_mut().find(|(held, _)| *held == key as usize) {
                Some((_, exclusive)) => *exclusive |= mode == RecordMode::Exclusive,
                None => held.push((key as usize, mode == RecordMode::Exclusive)),
            }
            if dice.below(16) == 0 {
                thread::yield_now();
            }
            words.lock_word(key).fetch_xor(1 << 40, Ordering::SeqCst);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let spawn = |thread| {
            let (manager, words, inside, run) = (&manager, &words, &inside, &run);
            let (committed, sacrificed) = (&committed, &sacrificed);
            scope.spawn(move || {
                let mut dice = Dice::new(seed + thread);
                while Instant::now() < end {
                    let mut owner = manager.begin().unwrap();
                    let mut held: Vec<(usize, bool)> = Vec::new();
                    match run(&mut dice, &mut owner, &mut held) {
                        Ok(()) => committed.fetch_add(1, Ordering::Relaxed),
                        Err(LockError::Deadlock) => sacrificed.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                    for (key, exclusive) in held {
                        inside[key].leave(exclusive);
                    }
                    manager.release_all_thin(&mut owner, words);
                    manager.end(owner);
                }
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        // Joined here, because ThreadSanitizer does not see the end of a scope.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(manager.locks_now(), 0);
    assert!(manager.waits().is_empty());
    words.assert_all_free();
    assert!(inside.iter().all(|inside| inside.0.load(Ordering::SeqCst) == 0));
    assert_eq!(manager.counters().deadlocks, sacrificed.load(Ordering::Relaxed));
    println!(
        "tally: locks under stress, {} transactions, {} sacrificed, RIALTO_SEED={seed}",
        committed.load(Ordering::Relaxed),
        sacrificed.load(Ordering::Relaxed)
    );
    assert!(committed.load(Ordering::Relaxed) > 100);
}
