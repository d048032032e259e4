//! The number of probes at locks that a request takes beside many other locks.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::*;
use crate::probes::PROBES;
use crate::seed::{LOOKED_AT, keys_of_one_slot};

/// The number of probes at locks that `run` takes.
fn probes(run: impl FnOnce()) -> u64 {
    let before = PROBES.get();
    run();
    PROBES.get() - before
}

/// The nth of some ranges. They are disjoint, or each contains those before it.
fn range(nth: u32, is_nested: bool) -> Span {
    let (from, to) = ((if is_nested { 0 } else { 2 * nth }).to_be_bytes(), (2 * nth + 2).to_be_bytes());
    Span::between(Bound::Included(&from), Bound::Excluded(&to)).expect("it has keys")
}

/// All keys from this one on.
fn to_the_end(from: u32) -> Span {
    Span::between(Bound::Included(&from.to_be_bytes()), Bound::Unbounded).expect("it has keys")
}

/// How many probes at locks it takes to lock so many ranges (and as many keys beside them if there are `points`) at
/// one executor, to move them to another one, and to release them.
fn probes_at_ranges(ranges: u32, is_nested: bool, points: bool) -> [u64; 3] {
    let manager = manager();
    let [mut owner, mut other] = [(); 2].map(|()| manager.begin().unwrap());
    // So that not all of them belong to one transaction.
    lock(&manager, &mut other, range(1 << 20, false).borrow(), RecordMode::Shared).unwrap();
    let had = probes(|| {
        for nth in 0..ranges {
            let acquired = lock(&manager, &mut owner, range(nth, is_nested).borrow(), RecordMode::Exclusive);
            assert_eq!(acquired, Ok(Acquired::New));
            if points {
                let key = (u32::MAX - nth).to_be_bytes();
                let acquired = lock(&manager, &mut owner, SpanRef::point(&key), RecordMode::Exclusive);
                assert_eq!(acquired, Ok(Acquired::New));
            }
        }
    });
    let moved = probes(|| manager.route(INDEX, Some(RoutingRule::new(vec![], vec![1]))));
    let released = probes(|| manager.end(owner));
    manager.end(other);
    assert_eq!(manager.locks_now(), 0);
    [had, moved, released]
}

/// Eight times as many ranges of one transaction take about eight times as many probes, and by the chances of the tree up
/// to eighteen times as many, not sixty-four times.
#[test]
fn each_of_many_ranges_is_had_moved_and_released_in_few_probes() {
    for (is_nested, points) in [(false, false), (true, false), (false, true)] {
        let [few, many] = [1_000, 8_000].map(|ranges| probes_at_ranges(ranges, is_nested, points));
        for (few, many) in few.into_iter().zip(many) {
            assert!(many < 32 * few, "{few} and {many} probes, nested: {is_nested}, points: {points}");
        }
    }
}

#[test]
fn keys_that_a_client_chooses_are_found_in_few_probes() {
    let manager = manager();
    let mut owner = manager.begin().unwrap();
    let keys = keys_of_one_slot(200, |key| xxh3_64_with_seed(key, u64::from(INDEX.0)) & LOOKED_AT);
    let probes = probes(|| {
        for key in &keys {
            lock(&manager, &mut owner, SpanRef::point(key), RecordMode::Exclusive).unwrap();
        }
    });
    assert!(probes < 2_000, "{probes} probes for {} locks", keys.len());
    manager.end(owner);
}

/// Ranges beside as many keys, at an executor that has served short transactions of one key each before.
#[test]
fn each_of_many_ranges_is_had_in_few_probes_after_a_while_of_short_transactions() {
    let looks_after = |short: u32| {
        let manager = manager();
        let [mut owner, mut other] = [(); 2].map(|()| manager.begin().unwrap());
        lock(&manager, &mut other, range(1 << 20, false).borrow(), RecordMode::Shared).unwrap();
        for nth in 0..short {
            let key = nth.to_be_bytes();
            lock(&manager, &mut owner, SpanRef::point(&key), RecordMode::Exclusive).unwrap();
            manager.release_all(&mut owner);
        }
        let probes = probes(|| {
            for nth in 0..8_000 {
                lock(&manager, &mut owner, range(nth, false).borrow(), RecordMode::Exclusive).unwrap();
                let key = (u32::MAX - nth).to_be_bytes();
                lock(&manager, &mut owner, SpanRef::point(&key), RecordMode::Exclusive).unwrap();
            }
        });
        manager.end(owner);
        manager.end(other);
        probes
    };
    let [fresh, after] = [0, 600_000].map(looks_after);
    assert!(after < 4 * fresh, "{fresh} probes at first, {after} after 600,000 short transactions");
}

/// Short transactions in place, each with one range, beside a transaction that has locked many keys at the executor.
/// At the read-only executor all of them only read.
#[test]
fn a_lease_of_a_range_beside_many_locked_keys_takes_few_probes() {
    let probes_beside = |keys: u32, mode: RecordMode| {
        let manager = manager();
        if mode == RecordMode::Shared {
            manager.place_read_only(INDEX);
        }
        let [mut holder, mut runner] = [(); 2].map(|()| manager.begin().unwrap());
        for nth in 0..keys {
            let key = (u32::MAX - nth).to_be_bytes();
            lock(&manager, &mut holder, SpanRef::point(&key), mode).unwrap();
        }
        let mut last = 0;
        for nth in 0..2_000 {
            last = probes(|| assert!(lease(&manager, &mut runner, &[(range(nth, false), mode)])));
            manager.end_lease(&mut runner);
        }
        manager.end(holder);
        manager.end(runner);
        last
    };
    for mode in [RecordMode::Exclusive, RecordMode::Shared] {
        let [few, many] = [10, 20_000].map(|keys| probes_beside(keys, mode));
        assert!(
            many < 20 * few.max(10),
            "the 2,000th {mode:?} lease took {few} probes beside 10 keys, {many} beside 20,000"
        );
    }
}

/// Ranges that all end where the index ends, each of which begins before those before it: `WHERE id >= $1 LIMIT 1`,
/// downwards.
#[test]
fn each_of_many_ranges_to_the_end_is_had_in_few_probes() {
    let looks_at = |ranges: u32| {
        let manager = manager();
        let mut owner = manager.begin().unwrap();
        let probes = probes(|| {
            for nth in 0..ranges {
                let span = to_the_end(u32::MAX - nth);
                assert_eq!(lock(&manager, &mut owner, span.borrow(), RecordMode::Shared), Ok(Acquired::New));
            }
        });
        manager.end(owner);
        probes
    };
    let [few, many] = [1_000, 8_000].map(looks_at);
    assert!(many < 32 * few, "{few} probes for 1,000 ranges, {many} for 8,000");
}

/// Long and short ranges alternate.
#[derive(Debug, Clone, Copy)]
enum Mixed {
    /// The requesting transaction holds the long ones, another one the short ones.
    Transactions,
    /// The same, but two other transactions hold the short ones.
    MoreTransactions,
    /// Another transaction holds both, the long ones shared and the short ones exclusive.
    Modes,
}

/// The average number of probes of a granted request beside so many short ranges, and as many long ones that begin
/// among them and reach to the end. Only the short ones would conflict, and the request is where none is: before all
/// of them, in their middle, or behind.
fn probes_among(mixed: Mixed, ranges: u32) -> [u64; 3] {
    const REQUESTS: u32 = 64;
    let (manager, first) = (manager(), 1 << 16);
    let [mut asker, mut one, mut other] = [(); 3].map(|()| manager.begin().unwrap());
    let at = |nth: u32| range((first + 4 * nth) / 2, false);
    // In descending order, so that no long one is covered by another.
    for nth in (0..ranges).rev() {
        let long = to_the_end(first + 4 * nth + 2);
        let (holds_long, holds_short, mode) = match mixed {
            Mixed::Modes => (&mut one, None, RecordMode::Exclusive),
            Mixed::MoreTransactions if nth % 2 == 0 => (&mut asker, Some(&mut other), RecordMode::Shared),
            _ => (&mut asker, Some(&mut one), RecordMode::Shared),
        };
        lock(&manager, holds_long, long.borrow(), RecordMode::Shared).unwrap();
        lock(&manager, holds_short.unwrap_or(holds_long), at(nth).borrow(), mode).unwrap();
    }
    let mode = if matches!(mixed, Mixed::Modes) { RecordMode::Shared } else { RecordMode::Exclusive };
    let places = [0, first + 2 * ranges, first + 4 * ranges];
    let probes = places.map(|place| {
        probes(|| {
            for nth in 0..REQUESTS {
                let asked = range((place + 4 * nth + 2) / 2, false);
                assert_eq!(lock(&manager, &mut asker, asked.borrow(), mode), Ok(Acquired::New));
            }
        })
    });
    [asker, one, other].into_iter().for_each(|owner| manager.end(owner));
    probes.map(|probes| probes / u64::from(REQUESTS))
}

#[test]
fn a_request_among_locks_of_mixed_transactions_or_modes_takes_few_probes() {
    for mixed in [Mixed::Transactions, Mixed::MoreTransactions, Mixed::Modes] {
        let [few, many] = [8_000, 32_000].map(|ranges| probes_among(mixed, ranges));
        for (few, many) in few.into_iter().zip(many) {
            // A tree may be twice as high as another one of its size.
            assert!(
                few < 400 && many < 2 * few.max(200),
                "{mixed:?}: {few} probes among 8,000 of each, {many} among 32,000"
            );
        }
    }
}
