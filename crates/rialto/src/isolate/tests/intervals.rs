//! Interval locks: the keys that an interval contains, admission, waiting, release.

use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::thread;
use std::time::Duration;

use super::{Dice, INDEX, manager, patient, refusing, seed, until_waiting, within};
use crate::ids::IndexId;
use crate::isolate::{
    Admission, LockError, LockTarget,
    central::interval::{INDEXES_IN_DETAIL, INTERVALS_PER_OWNER_MAX, SPARE_MAX},
};

#[test]
fn an_interval_refuses_exactly_the_keys_between_its_bounds() {
    type Case<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>, &'a [&'a [u8]], &'a [&'a [u8]]);
    let cases: [Case<'_>; 7] = [
        (Unbounded, Unbounded, &[b"", b"a", b"\xff\xff"], &[]),
        (Included(b"b"), Included(b"d"), &[b"b", b"b\0", b"c", b"d"], &[b"", b"a", b"a\xff", b"d\0", b"e"]),
        (Excluded(b"b"), Excluded(b"d"), &[b"b\0", b"c", b"c\xff"], &[b"b", b"d", b"a", b"e"]),
        (Unbounded, Excluded(b"d"), &[b"", b"c"], &[b"d", b"e"]),
        (Excluded(b"b"), Unbounded, &[b"b\0", b"z"], &[b"", b"b"]),
        (Included(b""), Included(b""), &[b""], &[b"\0", b"a"]),
        (Included(b"k"), Included(b"k"), &[b"k"], &[b"j", b"k\0"]),
    ];
    for (lower, upper, inside, outside) in cases {
        let manager = manager();
        let (mut scanner, inserter) = (manager.begin().unwrap(), manager.begin().unwrap());
        manager.interval(&mut scanner, INDEX, lower, upper);
        for key in inside {
            assert_eq!(
                manager.admits(&inserter, INDEX, key),
                Admission::Refuse,
                "{key:?} in {lower:?}..{upper:?}"
            );
            assert_eq!(
                manager.admits(&scanner, INDEX, key),
                Admission::Go,
                "one's own interval does not count"
            );
        }
        for key in outside {
            assert_eq!(
                manager.admits(&inserter, INDEX, key),
                Admission::Go,
                "{key:?} in {lower:?}..{upper:?}"
            );
        }
        manager.release_all(&mut scanner);
        for key in inside.iter().chain(outside) {
            assert_eq!(manager.admits(&inserter, INDEX, key), Admission::GoAndUnguard);
        }
        manager.end(scanner);
        manager.end(inserter);
    }
}

#[test]
fn an_empty_index_is_unguarded_though_its_partition_is_not() {
    let manager = manager();
    let (mut scanner, inserter) = (manager.begin().unwrap(), manager.begin().unwrap());
    let neighbour = IndexId(INDEX.0 + 64);
    manager.interval(&mut scanner, INDEX, Unbounded, Unbounded);
    assert_eq!(manager.admits(&inserter, neighbour, b"k"), Admission::GoAndUnguard);
    manager.forget_index(INDEX);
    assert_eq!(manager.admits(&inserter, INDEX, b"k"), Admission::Refuse, "an index in use is not forgotten");
    manager.end(scanner);
    manager.forget_index(INDEX);
    assert_eq!(manager.admits(&inserter, INDEX, b"k"), Admission::GoAndUnguard);
    manager.end(inserter);
}

type ModelInterval = (u16, Bound<Vec<u8>>, Bound<Vec<u8>>);

#[test]
fn admission_agrees_with_a_plain_list_of_intervals() {
    let seed = seed();
    println!("RIALTO_SEED={seed}");
    let mut dice = Dice::new(seed);
    let manager = manager();
    let mut owners: Vec<_> = (0..5).map(|_| manager.begin().unwrap()).collect();
    let mut model: Vec<ModelInterval> = Vec::new();
    for _ in 0..4000 {
        let at = dice.below(5) as usize;
        match dice.below(10) {
            0 => {
                manager.release_all(&mut owners[at]);
                model.retain(|(owner, ..)| *owner != owners[at].id());
            }
            1..=3 => {
                let (lower, upper) = (bound(&mut dice), bound(&mut dice));
                let lower_key = lower.as_ref().map(Vec::as_slice);
                manager.interval(&mut owners[at], INDEX, lower_key, upper.as_ref().map(Vec::as_slice));
                model.push((owners[at].id(), lower, upper));
            }
            _ => {
                let key = key(&mut dice);
                let id = owners[at].id();
                let refused = model.iter().any(|(owner, lower, upper)| {
                    let starts = match lower {
                        Unbounded => true,
                        Included(first) => *first <= key,
                        Excluded(before) => *before < key,
                    };
                    let ends = match upper {
                        Unbounded => true,
                        Included(last) => key <= *last,
                        Excluded(behind) => key < *behind,
                    };
                    *owner != id && starts && ends
                });
                let expected = match (refused, model.is_empty()) {
                    (true, _) => Admission::Refuse,
                    (false, true) => Admission::GoAndUnguard,
                    (false, false) => Admission::Go,
                };
                assert_eq!(
                    manager.admits(&owners[at], INDEX, &key),
                    expected,
                    "key {key:?}, model {model:?}"
                );
            }
        }
    }
    owners.into_iter().for_each(|owner| manager.end(owner));
}

fn key(dice: &mut Dice) -> Vec<u8> {
    (0..dice.below(4)).map(|_| b'a' + dice.below(4) as u8).collect()
}

fn bound(dice: &mut Dice) -> Bound<Vec<u8>> {
    match dice.below(5) {
        0 => Unbounded,
        1 | 2 => Included(key(dice)),
        _ => Excluded(key(dice)),
    }
}

#[test]
fn an_owner_of_very_many_intervals_holds_the_one_that_spans_them() {
    let manager = manager();
    let (mut scanner, inserter) = (manager.begin().unwrap(), manager.begin().unwrap());
    let point = |at: usize| (2 * at as u32).to_be_bytes();
    for at in 1..=INTERVALS_PER_OWNER_MAX {
        manager.interval(&mut scanner, INDEX, Included(&point(at)), Included(&point(at)));
    }
    let between = 5_u32.to_be_bytes();
    assert_eq!(manager.admits(&inserter, INDEX, &between), Admission::Go);
    let last = point(INTERVALS_PER_OWNER_MAX + 1);
    manager.interval(&mut scanner, INDEX, Included(&last), Excluded(&last));
    assert_eq!(manager.admits(&inserter, INDEX, &between), Admission::Refuse);
    assert_eq!(manager.admits(&inserter, INDEX, &1_u32.to_be_bytes()), Admission::Go);
    assert_eq!(manager.admits(&inserter, INDEX, &last), Admission::Go);
    manager.release_all(&mut scanner);
    assert_eq!(manager.admits(&inserter, INDEX, &between), Admission::GoAndUnguard);
    manager.end(scanner);
    manager.end(inserter);
}

/// A transaction that scans very many indexes has one interval in each of most of them.
#[test]
fn an_owner_with_intervals_in_very_many_indexes_has_one_in_each_further_one() {
    let manager = manager();
    let (mut scanner, inserter) = (manager.begin().unwrap(), manager.begin().unwrap());
    let point = |at: u32| (2 * at).to_be_bytes();
    for index in 0..=INDEXES_IN_DETAIL as u32 {
        for at in [1, 9] {
            manager.interval(&mut scanner, IndexId(100 + index), Included(&point(at)), Included(&point(at)));
        }
    }
    let admits = |index: u32| manager.admits(&inserter, IndexId(100 + index), &point(5));
    assert_eq!(admits(0), Admission::Go);
    assert_eq!(admits(INDEXES_IN_DETAIL as u32), Admission::Refuse);
    manager.release_all(&mut scanner);
    assert_eq!(admits(INDEXES_IN_DETAIL as u32), Admission::GoAndUnguard);
    manager.end(scanner);
    manager.end(inserter);
}

#[test]
fn an_insert_waits_until_the_last_scan_around_its_key_has_ended() {
    let manager = manager();
    let (mut one, mut two) = (manager.begin().unwrap(), manager.begin().unwrap());
    let mut elsewhere = manager.begin().unwrap();
    manager.interval(&mut one, INDEX, Included(b"a"), Included(b"m"));
    manager.interval(&mut two, INDEX, Included(b"c"), Unbounded);
    manager.interval(&mut elsewhere, INDEX, Included(b"x"), Unbounded);
    let (one_id, two_id) = (one.id(), two.id());
    thread::scope(|scope| {
        let manager = &manager;
        let insert = scope.spawn(move || {
            let mut inserter = manager.begin().unwrap();
            let answer = manager.wait_interval(&mut inserter, INDEX, b"d", &patient());
            let admission = manager.admits(&inserter, INDEX, b"d");
            manager.end(inserter);
            (answer, admission)
        });
        until_waiting(manager, 1);
        let wait = &manager.waits()[0];
        assert_eq!(wait.holders, [one_id.min(two_id), one_id.max(two_id)]);
        assert_eq!(wait.target, LockTarget::Interval { index: INDEX, key: b"d".to_vec() });
        manager.end(one);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(manager.waits()[0].holders, [two_id]);
        manager.end(two);
        assert_eq!(insert.join().unwrap(), (Ok(()), Admission::Go));
    });
    manager.end(elsewhere);
}

#[test]
fn waiting_for_an_interval_can_be_refused_or_time_out() {
    let manager = manager();
    let (mut scanner, mut inserter) = (manager.begin().unwrap(), manager.begin().unwrap());
    assert_eq!(manager.wait_interval(&mut inserter, INDEX, b"k", &patient()), Ok(()), "none conflicts");
    manager.interval(&mut scanner, INDEX, Unbounded, Unbounded);
    assert_eq!(manager.wait_interval(&mut inserter, INDEX, b"k", &refusing()), Err(LockError::WouldWait));
    let answer = manager.wait_interval(&mut inserter, INDEX, b"k", &within(Duration::from_millis(10)));
    assert!(matches!(answer, Err(LockError::Timeout { .. })), "{answer:?}");
    assert!(manager.waits().is_empty());
    manager.end(scanner);
    manager.end(inserter);
}

/// A scan of a table and its drop in one transaction: the index goes before the interval in it.
#[test]
fn nothing_is_kept_of_an_index_that_is_gone() {
    let manager = manager();
    let mut owner = manager.begin().unwrap();
    for index in (0..10).map(IndexId) {
        manager.interval(&mut owner, index, Unbounded, Unbounded);
        manager.forget_index(index);
    }
    manager.interval(&mut owner, IndexId(10), Unbounded, Unbounded);
    manager.release_all(&mut owner);
    assert_eq!(manager.intervals.indexes(), 1);
    manager.forget_index(IndexId(10));
    assert_eq!(manager.intervals.indexes(), 0);
    manager.end(owner);
}

#[test]
fn intervals_that_are_released_leave_a_few_buffers_behind() {
    let manager = manager();
    let mut scanner = manager.begin().unwrap();
    for n in 0..200 {
        manager.interval(&mut scanner, INDEX, Included(&[n; 1_000]), Included(&[n; 1_001]));
    }
    manager.release_all(&mut scanner);
    let room = manager.intervals.spare_room();
    assert!(room <= 2 * SPARE_MAX, "room for {room} intervals");
    manager.end(scanner);
}
