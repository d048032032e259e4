//! Deadlocks of every kind are found: each has one victim, and the others go on.

use std::ops::Bound;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use super::{INDEX, manager, name, patient, until_waiting, within};
use crate::ids::TableId;
use crate::io::Moment;
use crate::isolate::{LockError, LockManager, LockMode, LockOptions, Owner, RecordMode, VictimPolicy};

fn exclusive(manager: &LockManager, owner: &mut Owner, key: u64) -> Result<(), LockError> {
    let key = key.to_be_bytes();
    manager.record(owner, manager.name(INDEX, &key), &key, RecordMode::Exclusive, &patient()).map(drop)
}

/// `n` owners lock a key of their own each, then each asks for the next one's. Returns the victims, by position.
fn ring(manager: &Arc<LockManager>, n: u64) -> Vec<usize> {
    let barrier = Arc::new(Barrier::new(n as usize));
    // They begin in order, so the last one is the youngest.
    let owners: Vec<Owner> = (0..n).map(|_| manager.begin().unwrap()).collect();
    let threads: Vec<_> = owners
        .into_iter()
        .zip(0..n)
        .map(|(mut owner, at)| {
            let (manager, barrier) = (manager.clone(), barrier.clone());
            thread::spawn(move || {
                exclusive(&manager, &mut owner, at).unwrap();
                barrier.wait();
                let answer = exclusive(&manager, &mut owner, (at + 1) % n);
                manager.end(owner);
                answer
            })
        })
        .collect();
    let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(()) | Err(LockError::Deadlock))), "{answers:?}");
    assert_eq!(manager.locks_now(), 0);
    answers.iter().enumerate().filter(|(_, answer)| answer.is_err()).map(|(at, _)| at).collect()
}

#[test]
fn a_ring_of_any_length_has_one_victim_the_youngest() {
    for n in [2, 3, 5, 16] {
        let manager = manager();
        // The detector finds it: a time-out would be another answer.
        assert_eq!(ring(&manager, n), [n as usize - 1], "a ring of {n}");
        assert_eq!(manager.counters().deadlocks, 1);
    }
}

#[test]
fn the_victim_policy_can_prefer_the_owner_of_the_fewest_locks() {
    let options = LockOptions { owners_max: 8, victim: VictimPolicy::FewestLocks, ..LockOptions::default() };
    let manager = LockManager::new(options);
    let (mut old, mut young) = (manager.begin().unwrap(), manager.begin().unwrap());
    exclusive(&manager, &mut old, 0).unwrap();
    for key in [1, 2, 3] {
        exclusive(&manager, &mut young, key).unwrap();
    }
    thread::scope(|scope| {
        let old = scope.spawn(|| {
            let answer = exclusive(&manager, &mut old, 1);
            manager.end(old);
            answer
        });
        assert_eq!(exclusive(&manager, &mut young, 0), Ok(()));
        assert_eq!(old.join().unwrap(), Err(LockError::Deadlock));
    });
    manager.end(young);
}

#[test]
fn a_retried_victim_keeps_its_age() {
    let manager = manager();
    let first_run = Moment::now();
    thread::sleep(Duration::from_millis(1));
    let mut other = manager.begin().unwrap();
    let mut retried = manager.take().unwrap();
    manager.open(&mut retried, first_run);
    exclusive(&manager, &mut other, 0).unwrap();
    exclusive(&manager, &mut retried, 1).unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let answer = exclusive(&manager, &mut other, 1);
            manager.end(other);
            answer
        });
        assert_eq!(exclusive(&manager, &mut retried, 0), Ok(()));
        assert_eq!(other.join().unwrap(), Err(LockError::Deadlock));
    });
    manager.end(retried);
}

#[test]
fn two_upgraders_of_one_lock_are_a_deadlock() {
    let manager = manager();
    let mut owners = [manager.begin().unwrap(), manager.begin().unwrap()];
    for owner in &mut owners {
        manager.record(owner, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    }
    let answers = thread::scope(|scope| {
        let threads = owners.map(|mut owner| {
            let manager = &manager;
            scope.spawn(move || {
                let answer = manager.record(&mut owner, name(b"k"), b"k", RecordMode::Exclusive, &patient());
                manager.end(owner);
                answer.map(drop)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(answers, [Ok(()), Err(LockError::Deadlock)]);
    assert_eq!(manager.locks_now(), 0);
}

#[test]
fn two_upgraders_of_a_table_lock_are_a_deadlock() {
    let manager = manager();
    let mut owners = [manager.begin().unwrap(), manager.begin().unwrap()];
    for owner in &mut owners {
        manager.table(owner, TableId(1), LockMode::IntentExclusive, &patient()).unwrap();
    }
    let answers = thread::scope(|scope| {
        let threads = owners.map(|mut owner| {
            let manager = &manager;
            scope.spawn(move || {
                let answer = manager.table(&mut owner, TableId(1), LockMode::Shared, &patient());
                manager.end(owner);
                answer.map(drop)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(answers, [Ok(()), Err(LockError::Deadlock)]);
}

#[test]
fn a_cycle_may_go_through_a_queue_not_only_through_holders() {
    // `b` waits for `a`'s shared lock on k; `c` holds m and waits behind `b` for k; `a` then asks for m.
    let manager = manager();
    let (mut a, mut b, mut c) =
        (manager.begin().unwrap(), manager.begin().unwrap(), manager.begin().unwrap());
    manager.record(&mut a, name(b"k"), b"k", RecordMode::Shared, &patient()).unwrap();
    manager.record(&mut c, name(b"m"), b"m", RecordMode::Exclusive, &patient()).unwrap();
    thread::scope(|scope| {
        let manager = &manager;
        let b = scope.spawn(move || {
            let answer = manager.record(&mut b, name(b"k"), b"k", RecordMode::Exclusive, &patient());
            manager.end(b);
            answer.map(drop)
        });
        until_waiting(manager, 1);
        let c = scope.spawn(move || {
            let answer = manager.record(&mut c, name(b"k"), b"k", RecordMode::Shared, &patient());
            manager.end(c);
            answer.map(drop)
        });
        until_waiting(manager, 2);
        assert!(manager.record(&mut a, name(b"m"), b"m", RecordMode::Shared, &patient()).is_ok());
        manager.end(a);
        assert_eq!(b.join().unwrap(), Ok(()));
        assert_eq!(c.join().unwrap(), Err(LockError::Deadlock), "c is the youngest of the three");
    });
}

#[test]
fn a_cycle_may_go_through_an_interval() {
    let manager = manager();
    let (mut scanner, mut inserter) = (manager.begin().unwrap(), manager.begin().unwrap());
    manager.interval(&mut scanner, INDEX, Bound::Included(b"a"), Bound::Excluded(b"m"));
    manager.record(&mut inserter, name(b"c"), b"c", RecordMode::Exclusive, &patient()).unwrap();
    thread::scope(|scope| {
        let manager = &manager;
        let inserter = scope.spawn(move || {
            let answer = manager.wait_interval(&mut inserter, INDEX, b"c", &patient());
            manager.end(inserter);
            answer
        });
        assert!(manager.record(&mut scanner, name(b"c"), b"c", RecordMode::Shared, &patient()).is_ok());
        assert_eq!(inserter.join().unwrap(), Err(LockError::Deadlock));
        manager.end(scanner);
    });
}

#[test]
fn two_scanners_that_insert_into_each_others_interval_are_a_deadlock() {
    let manager = manager();
    let mut owners = [manager.begin().unwrap(), manager.begin().unwrap()];
    for owner in &mut owners {
        manager.interval(owner, INDEX, Bound::Unbounded, Bound::Unbounded);
    }
    let answers = thread::scope(|scope| {
        let threads = owners.map(|mut owner| {
            let manager = &manager;
            scope.spawn(move || {
                let answer = manager.wait_interval(&mut owner, INDEX, b"key", &patient());
                manager.end(owner);
                answer
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(answers, [Ok(()), Err(LockError::Deadlock)]);
}

#[test]
fn a_cycle_may_mix_tables_records_and_intervals() {
    let manager = manager();
    let mut owners = [manager.begin().unwrap(), manager.begin().unwrap(), manager.begin().unwrap()];
    manager.table(&mut owners[0], TableId(9), LockMode::IntentExclusive, &patient()).unwrap();
    manager.record(&mut owners[1], name(b"r"), b"r", RecordMode::Exclusive, &patient()).unwrap();
    manager.interval(&mut owners[2], INDEX, Bound::Excluded(b"a"), Bound::Unbounded);
    let [mut one, mut two, mut three] = owners;
    thread::scope(|scope| {
        let manager = &manager;
        let one = scope.spawn(move || {
            let answer = manager.record(&mut one, name(b"r"), b"r", RecordMode::Shared, &patient());
            manager.end(one);
            answer.map(drop)
        });
        let two = scope.spawn(move || {
            let answer = manager.wait_interval(&mut two, INDEX, b"b", &patient());
            manager.end(two);
            answer
        });
        let three = scope.spawn(move || {
            let answer = manager.table(&mut three, TableId(9), LockMode::Shared, &patient());
            manager.end(three);
            answer.map(drop)
        });
        let answers = [one, two, three].map(|thread| thread.join().unwrap());
        assert_eq!(answers, [Ok(()), Ok(()), Err(LockError::Deadlock)]);
    });
}

#[test]
fn a_chain_without_a_cycle_is_left_alone() {
    let manager = manager();
    let mut owners: Vec<Owner> = (0..4).map(|_| manager.begin().unwrap()).collect();
    for (at, owner) in owners.iter_mut().enumerate() {
        exclusive(&manager, owner, at as u64).unwrap();
    }
    let first = owners.remove(0);
    thread::scope(|scope| {
        let threads: Vec<_> = owners
            .into_iter()
            .enumerate()
            .map(|(at, mut owner)| {
                let manager = &manager;
                scope.spawn(move || {
                    let answer = exclusive(manager, &mut owner, at as u64);
                    manager.end(owner);
                    answer
                })
            })
            .collect();
        until_waiting(&manager, 3);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(manager.waits().len(), 3, "the detector has looked a few times by now");
        manager.end(first);
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    });
    assert_eq!(manager.counters().deadlocks, 0);
}

#[test]
fn a_time_out_inside_a_would_be_cycle_is_a_time_out() {
    let options = LockOptions {
        owners_max: 4,
        deadlock_check_after: Duration::from_secs(3600),
        ..LockOptions::default()
    };
    let manager = LockManager::new(options);
    let (mut one, mut two) = (manager.begin().unwrap(), manager.begin().unwrap());
    exclusive(&manager, &mut one, 1).unwrap();
    exclusive(&manager, &mut two, 2).unwrap();
    thread::scope(|scope| {
        let one = scope.spawn(|| {
            let answer = exclusive(&manager, &mut one, 2);
            manager.end(one);
            answer
        });
        until_waiting(&manager, 1);
        let key = 1_u64.to_be_bytes();
        let wait = within(Duration::from_millis(20));
        let answer = manager.record(&mut two, manager.name(INDEX, &key), &key, RecordMode::Exclusive, &wait);
        assert!(matches!(answer, Err(LockError::Timeout { .. })), "{answer:?}");
        manager.end(two);
        assert_eq!(one.join().unwrap(), Ok(()));
    });
}
