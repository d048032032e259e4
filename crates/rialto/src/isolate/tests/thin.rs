//! The thin form: the word's bits, inflation and deflation, upgrades, deadlocks among sharers that the word only
//! counted, and table intentions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{Dice, INDEX, manager, patient, refusing, seed, until_waiting, within};
use crate::ids::TableId;
use crate::io::Moment;
use crate::isolate::thin::CHUNKS_KEPT;
use crate::isolate::{
    Acquired, LockError, LockManager, LockMode, LockOptions, LockTarget, LockWords, Owner, RecordMode,
    ThinWord, Wait,
};
use crate::probes::PROBES;
use crate::store::Budget;

/// Records' words; the address is the position. The store's bits hold a pattern that has to survive.
pub(super) struct Words(Vec<AtomicU64>);

const PATTERN: u64 = 0xABCD_EF01_2345_6789 & !ThinWord::MASK;

impl Words {
    pub(super) fn new(count: usize) -> Words {
        Words((0..count).map(|_| AtomicU64::new(PATTERN)).collect())
    }

    pub(super) fn assert_all_free(&self) {
        for (at, word) in self.0.iter().enumerate() {
            let word = word.load(Ordering::SeqCst);
            assert!(ThinWord::is_free(word), "word {at} is {word:#x}");
            assert_eq!(word, PATTERN);
        }
    }
}

impl LockWords for Words {
    fn lock_word(&self, record: u64) -> &AtomicU64 {
        &self.0[record as usize]
    }
}

pub(super) fn lock(
    manager: &LockManager,
    owner: &mut Owner,
    words: &Words,
    record: u64,
    mode: RecordMode,
    wait: &Wait<'_>,
) -> Result<Acquired, LockError> {
    manager.record_thin(owner, words.lock_word(record), record, INDEX, &record.to_be_bytes(), mode, wait)
}

#[test]
fn an_uncontended_lock_leaves_no_trace_but_in_its_word() {
    let (manager, words) = (manager(), Words::new(200));
    let mut owner = manager.begin().unwrap();
    for record in 0..200 {
        let mode = if record % 2 == 0 { RecordMode::Shared } else { RecordMode::Exclusive };
        assert_eq!(lock(&manager, &mut owner, &words, record, mode, &refusing()), Ok(Acquired::New));
        assert!(!ThinWord::is_free(words.0[record as usize].load(Ordering::SeqCst)));
        assert_eq!(words.0[record as usize].load(Ordering::SeqCst) & !ThinWord::MASK, PATTERN);
    }
    for record in (0..200).rev() {
        let again = lock(&manager, &mut owner, &words, record, RecordMode::Shared, &refusing());
        assert_eq!(again, Ok(Acquired::Held));
    }
    assert_eq!(manager.locks_now(), 0);
    manager.release_all_thin(&mut owner, &words);
    words.assert_all_free();
    manager.end(owner);
}

#[test]
fn thin_locks_are_re_entrant_and_upgrade_in_place() {
    let (manager, words) = (manager(), Words::new(100));
    let (mut owner, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    let shared = RecordMode::Shared;
    assert_eq!(lock(&manager, &mut owner, &words, 0, shared, &refusing()), Ok(Acquired::New));
    assert_eq!(lock(&manager, &mut owner, &words, 0, shared, &refusing()), Ok(Acquired::Held));
    for record in 1..100 {
        lock(&manager, &mut owner, &words, record, shared, &refusing()).unwrap();
    }
    // However long ago it was locked.
    assert_eq!(lock(&manager, &mut owner, &words, 0, shared, &refusing()), Ok(Acquired::Held));
    let exclusive = RecordMode::Exclusive;
    assert_eq!(lock(&manager, &mut owner, &words, 0, exclusive, &refusing()), Ok(Acquired::Upgraded));
    assert_eq!(lock(&manager, &mut owner, &words, 0, exclusive, &refusing()), Ok(Acquired::Held));
    assert_eq!(lock(&manager, &mut owner, &words, 0, shared, &refusing()), Ok(Acquired::Held));
    assert_eq!(lock(&manager, &mut other, &words, 0, shared, &refusing()), Err(LockError::WouldWait));
    assert_eq!(lock(&manager, &mut other, &words, 1, shared, &refusing()), Ok(Acquired::New));
    assert_eq!(lock(&manager, &mut owner, &words, 1, exclusive, &refusing()), Err(LockError::WouldWait));
    assert_eq!(manager.locks_now(), 0, "refusals do not inflate");
    manager.release_all_thin(&mut owner, &words);
    assert_eq!(lock(&manager, &mut other, &words, 1, exclusive, &refusing()), Ok(Acquired::Upgraded));
    manager.release_all_thin(&mut other, &words);
    words.assert_all_free();
    manager.end(owner);
    manager.end(other);
}

/// Strengthening a lock takes a few steps, however many locks the owner has, and however often and in whatever order
/// it has read them.
#[test]
fn many_locks_are_upgraded_in_few_steps_each() {
    const RECORDS: u64 = 5_000;
    let (manager, words) = (manager(), Words::new(RECORDS as usize + 1));
    let (mut owner, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    let (shared, exclusive) = (RecordMode::Shared, RecordMode::Exclusive);
    for times_read in 1..=3 {
        for nth_time in 0..times_read {
            let expected = if nth_time == 0 { Acquired::New } else { Acquired::Held };
            for record in 0..RECORDS {
                assert_eq!(lock(&manager, &mut owner, &words, record, shared, &refusing()), Ok(expected));
            }
        }
        // A record that another owner reads, too, is not upgraded.
        lock(&manager, &mut other, &words, 7, shared, &refusing()).unwrap();
        let before = PROBES.get();
        for record in 0..RECORDS {
            // A lock that is given back at once takes its entry of the list along.
            lock(&manager, &mut owner, &words, RECORDS, shared, &refusing()).unwrap();
            let expected = if record == 7 { Err(LockError::WouldWait) } else { Ok(Acquired::Upgraded) };
            assert_eq!(lock(&manager, &mut owner, &words, record, exclusive, &refusing()), expected);
            manager.release_thin_early(&mut owner, words.lock_word(RECORDS), RECORDS);
        }
        let probes = (PROBES.get() - before) / RECORDS;
        assert!(probes < 100, "{probes} probes for each lock");
        manager.release_all_thin(&mut other, &words);
        manager.release_all_thin(&mut owner, &words);
        words.assert_all_free();
    }
    manager.end(owner);
    manager.end(other);
}

/// Locks that are taken, strengthened and given back at random leave none behind.
#[test]
fn a_long_list_and_its_index_agree() {
    const RECORDS: u64 = 300;
    let mut dice = Dice::new(seed());
    let (manager, words) = (manager(), Words::new(RECORDS as usize));
    let mut owner = manager.begin().unwrap();
    for _ in 0..200 {
        let mut held = vec![None; RECORDS as usize];
        // The records that were requested once, the latest last: only these can be given back.
        let mut once: Vec<u64> = Vec::new();
        for step in 0..dice.below(1_000) {
            // The list becomes longer and shorter in turns.
            let give_back = if step / 100 % 2 == 0 { 1 } else { 3 };
            if dice.below(4) < give_back
                && let Some(record) = once.pop()
            {
                manager.release_thin_early(&mut owner, words.lock_word(record), record);
                held[record as usize] = None;
                continue;
            }
            let record = dice.below(RECORDS);
            let mode = if dice.below(3) == 0 { RecordMode::Exclusive } else { RecordMode::Shared };
            let acquired = lock(&manager, &mut owner, &words, record, mode, &refusing()).unwrap();
            let before = held[record as usize];
            if before != Some(RecordMode::Exclusive) {
                held[record as usize] = Some(mode);
            }
            match (before, mode) {
                (None, _) => assert_eq!(acquired, Acquired::New),
                (Some(RecordMode::Exclusive), _) => assert_eq!(acquired, Acquired::Held),
                (Some(RecordMode::Shared), RecordMode::Exclusive) => assert_eq!(acquired, Acquired::Upgraded),
                (Some(RecordMode::Shared), RecordMode::Shared) => assert_eq!(acquired, Acquired::Held),
            }
            match before {
                None => once.push(record),
                Some(_) => once.retain(|other| *other != record),
            }
        }
        manager.release_all_thin(&mut owner, &words);
        words.assert_all_free();
    }
    manager.end(owner);
}

/// However often a transaction reads the same records, its list names each once, and each further read takes as many
/// steps as the one before it.
#[test]
fn records_that_are_read_again_are_named_once() {
    const RECORDS: u64 = 200;
    let (manager, words) = (manager(), Words::new(RECORDS as usize));
    let mut owner = manager.begin().unwrap();
    let mut looks_of = |times: u64| {
        let before = PROBES.get();
        for _ in 0..times {
            for record in 0..RECORDS {
                lock(&manager, &mut owner, &words, record, RecordMode::Shared, &refusing()).unwrap();
            }
        }
        assert_eq!(owner.locks_held(), RECORDS as usize);
        let word = words.lock_word(7);
        assert_eq!(word.load(Ordering::SeqCst) & ThinWord::MASK, 1, "one sharer");
        PROBES.get() - before
    };
    looks_of(1);
    let (few, many) = (looks_of(10), looks_of(80));
    assert!(many <= few * 8 + RECORDS, "{few} probes for 10 reads of each record, {many} for 80");
    let before = PROBES.get();
    let upgraded = lock(&manager, &mut owner, &words, 7, RecordMode::Exclusive, &refusing());
    assert_eq!(upgraded, Ok(Acquired::Upgraded));
    assert!(PROBES.get() - before <= RECORDS);
    manager.release_all_thin(&mut owner, &words);
    words.assert_all_free();
    manager.end(owner);
}

/// A slot gives the memory of a long list back at its transaction's end.
#[test]
fn a_long_list_is_given_back() {
    const RECORDS: u64 = 5_000;
    let (manager, words) = (manager(), Words::new(RECORDS as usize));
    let mut owner = manager.begin().unwrap();
    for _ in 0..2 {
        for record in 0..RECORDS {
            lock(&manager, &mut owner, &words, record, RecordMode::Exclusive, &refusing()).unwrap();
        }
        assert!(manager.held_records(&owner).eq(0..RECORDS));
        let list = &manager.slots[usize::from(owner.id())].thin;
        assert!((0..RECORDS).step_by(7).all(|record| list.contains(record)) && !list.contains(RECORDS));
        assert!(list.chunks() > CHUNKS_KEPT);
        manager.release_all_thin(&mut owner, &words);
        assert_eq!(list.chunks(), CHUNKS_KEPT);
        assert!(!list.contains(7));
        words.assert_all_free();
    }
    manager.end(owner);
}

/// The list and its index take memory from the budget while they are long; without memory there is no lock, and
/// nothing else is lost.
#[test]
fn a_long_list_takes_its_memory_from_the_budget() {
    const RECORDS: u64 = 20_000;
    let words = Words::new(RECORDS as usize);
    for bytes in [0, 10_000, 50_000, 100_000, 200_000, 400_000, 4_000_000] {
        let memory = Arc::new(Budget::new(bytes));
        let options = LockOptions { owners_max: 8, memory: memory.clone(), ..LockOptions::default() };
        let manager = LockManager::new(options);
        let mut owners = [manager.begin().unwrap(), manager.begin().unwrap()];
        let mut locked = [0, 0];
        // The second owner asks whether it shares what the first one has locked, so it gets an index of its list.
        for (owner, locked) in owners.iter_mut().zip(&mut locked) {
            let refused = (0..RECORDS).find_map(|record| {
                lock(&manager, owner, &words, record, RecordMode::Shared, &refusing()).err()
            });
            *locked = manager.held_records(owner).count() as u64;
            assert!(manager.held_records(owner).eq(0..*locked));
            assert_eq!(
                refused,
                (*locked < RECORDS).then_some(LockError::NoMemory { limit: bytes }),
                "{bytes} bytes"
            );
            assert!(*locked >= 448 && (bytes > 0 || *locked == 448), "{locked} of {bytes} bytes");
        }
        if bytes == 0 {
            // A lock that it has needs no more room.
            let again = lock(&manager, &mut owners[1], &words, 0, RecordMode::Shared, &refusing());
            assert_eq!(again, Ok(Acquired::Held));
            // A lock that another owner has exclusively would need room, so it is not waited for.
            let mut holder = manager.begin().unwrap();
            lock(&manager, &mut holder, &words, RECORDS - 1, RecordMode::Exclusive, &refusing()).unwrap();
            let queued =
                lock(&manager, &mut owners[1], &words, RECORDS - 1, RecordMode::Exclusive, &patient());
            assert_eq!(queued, Err(LockError::NoMemory { limit: 0 }));
            manager.release_all_thin(&mut holder, &words);
            manager.end(holder);
            // The owner's own shared lock, which no other owner shares, is strengthened in place.
            let mut other = manager.begin().unwrap();
            for record in 1_000..1_448 {
                lock(&manager, &mut other, &words, record, RecordMode::Shared, &refusing()).unwrap();
            }
            let stronger = lock(&manager, &mut other, &words, 1_000, RecordMode::Exclusive, &refusing());
            assert_eq!(stronger, Ok(Acquired::Upgraded));
            manager.release_all_thin(&mut other, &words);
            manager.end(other);
        }
        assert!(memory.used() >= (locked[0] - 448) * 8 + (locked[1] - 448) * 17, "{locked:?} of {bytes}");
        assert_eq!(locked == [RECORDS; 2], bytes == 4_000_000, "{locked:?} of {bytes} bytes");
        for mut owner in owners {
            manager.release_all_thin(&mut owner, &words);
            manager.end(owner);
        }
        assert_eq!(memory.used(), 0);
        words.assert_all_free();
    }
}

/// A list and its index also give their memory back if the locks were released one by one before.
#[test]
fn a_list_that_was_long_gives_its_memory_back() {
    const RECORDS: u64 = 2_000;
    let (memory, words) = (Arc::new(Budget::new(1 << 20)), Words::new(RECORDS as usize));
    let options = LockOptions { owners_max: 8, memory: memory.clone(), ..LockOptions::default() };
    let manager = LockManager::new(options);
    let owners = [(); 2].map(|()| {
        let mut owner = manager.begin().unwrap();
        for record in 0..RECORDS {
            // The second owner asks whether it is among the sharers, so it gets an index.
            lock(&manager, &mut owner, &words, record, RecordMode::Shared, &refusing()).unwrap();
        }
        owner
    });
    for mut owner in owners {
        for record in (0..RECORDS).rev() {
            manager.release_thin_early(&mut owner, words.lock_word(record), record);
        }
        assert!(memory.used() > 0);
        manager.release_all_thin(&mut owner, &words);
        manager.end(owner);
    }
    assert_eq!(memory.used(), 0);
    words.assert_all_free();
}

#[test]
fn a_conflict_inflates_the_lock_and_its_end_deflates_it() {
    let (manager, words) = (manager(), Words::new(1));
    let (mut one, mut two, mut three) =
        (manager.begin().unwrap(), manager.begin().unwrap(), manager.begin().unwrap());
    lock(&manager, &mut one, &words, 0, RecordMode::Shared, &refusing()).unwrap();
    lock(&manager, &mut two, &words, 0, RecordMode::Shared, &refusing()).unwrap();
    let ids = [one.id(), two.id(), three.id()];
    thread::scope(|scope| {
        let (manager, words) = (&manager, &words);
        let writer = scope.spawn(move || {
            let answer = lock(manager, &mut three, words, 0, RecordMode::Exclusive, &patient());
            manager.release_all_thin(&mut three, words);
            manager.end(three);
            answer
        });
        until_waiting(manager, 1);
        let wait = manager.waits().remove(0);
        assert_eq!((wait.waiter, wait.mode), (ids[2], LockMode::Exclusive));
        assert_eq!(wait.holders, ids[..2], "sharers that the word only counted are named from their lists");
        assert_eq!(wait.target, LockTarget::Record { index: INDEX, key: 0_u64.to_be_bytes().to_vec() });
        assert_eq!(manager.locks_now(), 1);
        // The holder asks again. A stranger may not overtake the writer.
        assert_eq!(lock(manager, &mut one, words, 0, RecordMode::Shared, &refusing()), Ok(Acquired::Held));
        let mut late = manager.begin().unwrap();
        assert_eq!(
            lock(manager, &mut late, words, 0, RecordMode::Shared, &refusing()),
            Err(LockError::WouldWait)
        );
        manager.end(late);
        manager.release_all_thin(&mut one, words);
        thread::sleep(Duration::from_millis(2));
        assert_eq!(manager.waits()[0].holders, ids[1..2]);
        manager.release_all_thin(&mut two, words);
        assert_eq!(writer.join().unwrap(), Ok(Acquired::New));
    });
    assert_eq!(manager.locks_now(), 0);
    words.assert_all_free();
    manager.end(one);
    manager.end(two);
}

#[test]
fn a_time_out_deflates_nothing_that_is_held_and_everything_that_is_not() {
    let (manager, words) = (manager(), Words::new(1));
    let (mut holder, mut waiter) = (manager.begin().unwrap(), manager.begin().unwrap());
    lock(&manager, &mut holder, &words, 0, RecordMode::Exclusive, &refusing()).unwrap();
    let wait = within(Duration::from_millis(5));
    let answer = lock(&manager, &mut waiter, &words, 0, RecordMode::Shared, &wait);
    assert!(matches!(answer, Err(LockError::Timeout { .. })), "{answer:?}");
    assert_eq!(
        lock(&manager, &mut holder, &words, 0, RecordMode::Exclusive, &refusing()),
        Ok(Acquired::Held)
    );
    assert_eq!(
        lock(&manager, &mut waiter, &words, 0, RecordMode::Shared, &refusing()),
        Err(LockError::WouldWait)
    );
    manager.release_all_thin(&mut holder, &words);
    words.assert_all_free();
    assert_eq!(manager.locks_now(), 0);
    manager.end(holder);
    manager.end(waiter);
}

#[test]
fn two_thin_sharers_that_upgrade_are_a_deadlock() {
    let (manager, words) = (manager(), Words::new(1));
    let mut owners = [manager.begin().unwrap(), manager.begin().unwrap()];
    for owner in &mut owners {
        lock(&manager, owner, &words, 0, RecordMode::Shared, &patient()).unwrap();
    }
    let answers = thread::scope(|scope| {
        let threads = owners.map(|mut owner| {
            let (manager, words) = (&manager, &words);
            scope.spawn(move || {
                let answer = lock(manager, &mut owner, words, 0, RecordMode::Exclusive, &patient());
                manager.release_all_thin(&mut owner, words);
                manager.end(owner);
                answer
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(answers, [Ok(Acquired::Upgraded), Err(LockError::Deadlock)]);
    words.assert_all_free();
}

#[test]
fn a_ring_of_thin_locks_has_one_victim() {
    for mode in [RecordMode::Shared, RecordMode::Exclusive] {
        let (manager, words) = (manager(), Words::new(5));
        let mut owners: Vec<Owner> = (0..5).map(|_| manager.begin().unwrap()).collect();
        for (record, owner) in owners.iter_mut().enumerate() {
            lock(&manager, owner, &words, record as u64, mode, &patient()).unwrap();
        }
        let victims: Vec<usize> = thread::scope(|scope| {
            let threads: Vec<_> = owners
                .into_iter()
                .enumerate()
                .map(|(at, mut owner)| {
                    let (manager, words) = (&manager, &words);
                    scope.spawn(move || {
                        let next = (at as u64 + 1) % 5;
                        let answer =
                            lock(manager, &mut owner, words, next, RecordMode::Exclusive, &patient());
                        manager.release_all_thin(&mut owner, words);
                        manager.end(owner);
                        answer
                    })
                })
                .collect();
            let answers = threads.into_iter().map(|thread| thread.join().unwrap());
            answers
                .enumerate()
                .filter(|(_, answer)| *answer == Err(LockError::Deadlock))
                .map(|(at, _)| at)
                .collect()
        });
        assert_eq!(victims, [4], "held {mode:?}");
        words.assert_all_free();
    }
}

#[test]
fn a_fresh_slot_is_locked_only_if_its_lock_bits_are_free() {
    let (manager, words) = (manager(), Words::new(1));
    let (mut old, mut new) = (manager.begin().unwrap(), manager.begin().unwrap());
    lock(&manager, &mut old, &words, 0, RecordMode::Shared, &patient()).unwrap();
    assert!(!manager.lock_fresh(&mut new, words.lock_word(0), 0));
    manager.release_thin_early(&mut old, words.lock_word(0), 0);
    assert_eq!(old.locks_held(), 0);
    assert!(manager.lock_fresh(&mut new, words.lock_word(0), 0));
    assert_eq!(
        lock(&manager, &mut old, &words, 0, RecordMode::Shared, &refusing()),
        Err(LockError::WouldWait)
    );
    manager.release_all_thin(&mut new, &words);
    words.assert_all_free();
    manager.end(old);
    manager.end(new);
}

/// A slot that a transaction has locked and taken back can take its next row, locked as it is.
#[test]
fn a_slot_that_was_taken_back_is_claimed_again() {
    let (manager, words) = (manager(), Words::new(2));
    let (mut owner, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    for _ in 0..1_000 {
        assert!(manager.lock_fresh(&mut owner, words.lock_word(0), 0));
        assert_eq!(owner.locks_held(), 1);
        assert!(!manager.lock_fresh(&mut other, words.lock_word(0), 0));
    }
    // A shared lock is no claim, and neither is a lock that other owners wait for.
    lock(&manager, &mut owner, &words, 1, RecordMode::Shared, &refusing()).unwrap();
    assert!(!manager.lock_fresh(&mut owner, words.lock_word(1), 1));
    thread::scope(|scope| {
        let (manager, words) = (&manager, &words);
        let waiter = scope.spawn(move || {
            let answer = lock(manager, &mut other, words, 0, RecordMode::Shared, &patient());
            manager.release_all_thin(&mut other, words);
            manager.end(other);
            answer
        });
        until_waiting(manager, 1);
        assert!(!manager.lock_fresh(&mut owner, words.lock_word(0), 0));
        manager.release_all_thin(&mut owner, words);
        assert_eq!(waiter.join().unwrap(), Ok(Acquired::New));
    });
    words.assert_all_free();
    manager.end(owner);
}

#[test]
fn an_intention_is_thin_until_the_whole_table_is_requested() {
    let manager = manager();
    let (mut writer, mut reader, mut scanner) =
        (manager.begin().unwrap(), manager.begin().unwrap(), manager.begin().unwrap());
    let table = TableId(4);
    assert_eq!(manager.table(&mut writer, table, LockMode::IntentShared, &refusing()), Ok(Acquired::New));
    assert_eq!(
        manager.table(&mut writer, table, LockMode::IntentExclusive, &refusing()),
        Ok(Acquired::Upgraded)
    );
    assert_eq!(manager.table(&mut reader, table, LockMode::IntentShared, &refusing()), Ok(Acquired::New));
    assert_eq!(manager.locks_now(), 0);
    let refused = Err(LockError::WouldWait);
    assert_eq!(manager.table(&mut scanner, table, LockMode::Shared, &refusing()), refused);
    assert_eq!(manager.locks_now(), 1, "the intentions were moved into the head");
    // No request wants the whole table any more, so the intention of another owner is thin. It conflicts all the
    // same.
    let mut late = manager.begin().unwrap();
    assert_eq!(manager.table(&mut late, table, LockMode::IntentExclusive, &refusing()), Ok(Acquired::New));
    manager.end(writer);
    assert_eq!(manager.table(&mut scanner, table, LockMode::Shared, &refusing()), refused);
    manager.end(late);
    assert_eq!(manager.table(&mut scanner, table, LockMode::Shared, &refusing()), Ok(Acquired::New));
    assert_eq!(manager.table(&mut reader, table, LockMode::IntentExclusive, &refusing()), refused);
    manager.end(scanner);
    assert_eq!(
        manager.table(&mut reader, table, LockMode::IntentExclusive, &refusing()),
        Ok(Acquired::Upgraded)
    );
    manager.end(reader);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn a_released_intention_is_idle_until_the_whole_table_is_requested() {
    let manager = manager();
    let table = TableId(4);
    let mut writer = manager.begin().unwrap();
    let mut scanner = manager.begin().unwrap();
    for mode in [LockMode::IntentExclusive, LockMode::IntentShared, LockMode::IntentExclusive] {
        assert_eq!(manager.table(&mut writer, table, mode, &refusing()), Ok(Acquired::New));
        assert_eq!(
            manager.table(&mut scanner, table, LockMode::Exclusive, &refusing()),
            Err(LockError::WouldWait)
        );
        manager.close(&mut writer);
        manager.open(&mut writer, Moment::now());
        // The slot is open but does not use the table: the scanner need not wait for it, and keeps it out.
        assert_eq!(manager.table(&mut scanner, table, LockMode::Exclusive, &refusing()), Ok(Acquired::New));
        assert_eq!(manager.table(&mut writer, table, mode, &refusing()), Err(LockError::WouldWait));
        manager.release_all(&mut scanner);
        // The second time the intention is taken up again, not entered.
        for _ in 0..2 {
            assert_eq!(manager.table(&mut writer, table, mode, &refusing()), Ok(Acquired::New));
            assert_eq!(manager.table(&mut writer, table, mode, &refusing()), Ok(Acquired::Held));
            assert_eq!(manager.locks_now(), 0);
            manager.release_all(&mut writer);
        }
        assert_eq!(manager.table(&mut scanner, table, LockMode::Exclusive, &refusing()), Ok(Acquired::New));
        assert_eq!(manager.table(&mut writer, table, mode, &refusing()), Err(LockError::WouldWait));
        manager.release_all(&mut scanner);
        assert_eq!(manager.table(&mut writer, table, mode, &refusing()), Ok(Acquired::New));
        manager.release_all(&mut writer);
        // The intention on another table that shares the cell takes the place of the idle one.
        assert_eq!(manager.table(&mut writer, TableId(20), mode, &refusing()), Ok(Acquired::New));
        assert_eq!(manager.locks_now(), 0);
        manager.release_all(&mut writer);
    }
    manager.end(writer);
    manager.end(scanner);
}

#[test]
fn of_tables_that_share_a_cell_the_second_one_has_its_intention_in_a_head() {
    let manager = manager();
    let (mut owner, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    for round in 0..2 {
        for table in 0..20 {
            let answer = manager.table(&mut owner, TableId(table), LockMode::IntentExclusive, &refusing());
            assert_eq!(answer, Ok(Acquired::New), "round {round}");
        }
        assert_eq!(manager.locks_now(), 4);
        for table in 0..20 {
            let answer = manager.table(&mut other, TableId(table), LockMode::Exclusive, &refusing());
            assert_eq!(answer, Err(LockError::WouldWait));
        }
        manager.release_all(&mut owner);
        assert_eq!(manager.locks_now(), 0);
    }
    manager.end(owner);
    manager.end(other);
}

#[test]
fn a_wait_for_others_to_end_is_given_up_when_its_caller_does() {
    let manager = manager();
    let (owner, mut other) = (manager.begin().unwrap(), manager.begin().unwrap());
    let asked = AtomicU64::new(0);
    let gives_up = || asked.fetch_add(1, Ordering::SeqCst) == 3;
    assert!(!manager.outlast_others(&owner, Duration::MAX, gives_up), "the other one goes on");
    manager.rest(&other, true);
    assert!(manager.outlast_others(&owner, Duration::ZERO, || true), "one that rests is not waited for");
    manager.rest(&other, false);
    assert!(!manager.outlast_others(&owner, Duration::ZERO, || true), "it goes on again");
    manager.close(&mut other);
    assert!(manager.outlast_others(&owner, Duration::ZERO, || true), "no owner is left to be waited for");
    manager.give_back(&mut other);
    manager.end(owner);
}
