//! The index against `BTreeMap`, one thread, random operations.

use super::*;
use crate::ids::Lsn;
use std::collections::BTreeMap;

/// Kinds of keys that stress different parts of a node.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// Eight random bytes of a small set.
    Numbers,
    /// Zero to twelve bytes of a tiny alphabet, zero included: equal heads, keys that differ in length only.
    Short,
    /// Long common prefixes.
    Paths,
    /// Up to the longest key, few to a node.
    Huge,
}

fn key(kind: Keys, random: &mut Random) -> Vec<u8> {
    match kind {
        Keys::Numbers => random.below(20_000).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
        Keys::Short => {
            let len = random.below(13);
            (0..len).map(|_| [0, 0, 1, 255][random.below(4) as usize]).collect()
        }
        Keys::Paths => {
            let depth = random.below(4);
            let mut key = b"/a/rather/long/beginning".to_vec();
            (0..depth).for_each(|_| key.extend_from_slice(b"/and/on/it/goes/for/ever"));
            key.extend_from_slice(format!("/{}", random.below(500)).as_bytes());
            key
        }
        Keys::Huge => {
            let len = [MAX, MAX - 1, 900, 513, 40, 9][random.below(6) as usize];
            let mut key = vec![random.below(3) as u8; len];
            for _ in 0..3 {
                let at = random.below(len as u64) as usize;
                key[at] = random.below(4) as u8;
            }
            key
        }
    }
}

const MAX: usize = super::super::MAX_KEY_BYTES;

fn check_against(index: &Index, model: &BTreeMap<Vec<u8>, u64>) {
    assert_eq!(index.check(), Ok(model.len() as u64));
    assert_eq!(index.count(), model.len() as u64);
}

fn check_range(
    index: &Index,
    model: &BTreeMap<Vec<u8>, u64>,
    random: &mut Random,
    kind: Keys,
    batch: &mut Batch,
) {
    let (low, high) = (key(kind, random), key(kind, random));
    let bound = |which: u64, key| match which {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    let range = ScanRange {
        low: bound(random.below(3), low.as_slice()),
        high: bound(random.below(4), high.as_slice()),
    };
    let inside = |key: &[u8]| {
        (match range.low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
        }) && match range.high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
        }
    };
    let mut expected: Vec<_> =
        model.iter().filter(|(key, _)| inside(key)).map(|(key, &value)| (key.clone(), value)).collect();
    batch.begin();
    if random.below(2) == 0 {
        batch.limit(1 + random.below(20) as usize);
    }
    assert_eq!(scan(index, &range, Direction::Forward, batch), expected, "forward {range:02x?}");
    expected.reverse();
    batch.begin();
    if random.below(2) == 0 {
        batch.limit(1 + random.below(20) as usize);
    }
    assert_eq!(scan(index, &range, Direction::Backward, batch), expected, "backward {range:02x?}");
}

fn run(kind: Keys, share: f64) {
    let seed = Seed::get();
    let mut random = Random::new(seed.0);
    let pool = pool(1 << 14);
    let index = Index::new(pool.clone()).expect("a first node");
    let mut model = BTreeMap::new();
    let mut batch = Batch::new();
    // Keys that were absent, and what may have changed since.
    let mut absent = Vec::new();
    let end = Instant::now() + (deadline() - Instant::now()).mul_f64(share);
    let mut round = 0u64;
    while Instant::now() < end {
        // Rounds alternate: mostly inserts, then mostly removals, down to an empty index.
        let inserts = if round.is_multiple_of(2) { 80 } else { 5 };
        for step in 0..4000 {
            let key = key(kind, &mut random);
            let value = random.below(1 << 48);
            let found = index.get(&key);
            if found.value.is_none() && absent.len() < 64 {
                absent.push((key.clone(), found.vacancy()));
            }
            match random.below(100) {
                n if n < inserts => {
                    let remembered = random.below(2) == 0 && !absent.is_empty();
                    let (key, vacancy) = match remembered {
                        true => absent.swap_remove(random.below(absent.len() as u64) as usize),
                        false => (key.clone(), index.get(&key).vacancy()),
                    };
                    let expected = match model.get(&key) {
                        Some(&there) => Insert::Exists(there),
                        None => Insert::Done,
                    };
                    let inserted = match remembered || expected == Insert::Done && random.below(2) == 0 {
                        true => index.insert_at(&vacancy, &key, value, || Admit::Go),
                        false => put(&index, &key, value),
                    };
                    assert_eq!(inserted, Ok(expected));
                    model.entry(key).or_insert(value);
                }
                n if n < 90 => {
                    // Most of the time, a key that is present.
                    let key = match model.range(key.clone()..).next() {
                        Some((there, _)) if random.below(4) > 0 => there.clone(),
                        _ => key,
                    };
                    let lsn = (random.below(2) == 0).then_some(Lsn(round * 4000 + step));
                    let removed = model.remove(&key);
                    assert_eq!(index.remove(&key, lsn), removed, "{key:02x?}");
                    let found = index.get(&key);
                    assert_eq!(found.value, None);
                    if let (Some(lsn), Some(_)) = (lsn, removed) {
                        assert_eq!(found.removal, lsn);
                    }
                }
                n if n < 94 => {
                    let old = model.get(&key).copied();
                    assert!(!index.replace(&key, old.map_or(0, |old| old ^ 1), value));
                    if let Some(old) = old {
                        assert!(index.replace(&key, old, value));
                        model.insert(key, value);
                    }
                }
                n if n < 99 || step % 64 != 0 => {
                    assert_eq!(index.get(&key).value, model.get(&key).copied(), "{key:02x?}");
                }
                _ => check_range(&index, &model, &mut random, kind, &mut batch),
            }
        }
        check_against(&index, &model);
        check_range(&index, &model, &mut random, kind, &mut batch);
        if round % 4 == 3 {
            for key in std::mem::take(&mut model).into_keys() {
                assert!(index.remove(&key, None).is_some());
            }
            check_against(&index, &model);
            assert!(pool.nodes_in_use() <= 2, "{} nodes hold nothing", pool.nodes_in_use());
        }
        round += 1;
    }
    drop(index);
    assert_eq!(pool.nodes_in_use(), 0);
    println!("tally: the index against a map, {} operations, RIALTO_SEED={}", round * 4000, seed.0);
}

#[test]
fn numbers() {
    run(Keys::Numbers, 0.5);
}

#[test]
fn short_keys_that_differ_in_length() {
    run(Keys::Short, 0.5);
}

#[test]
fn long_common_prefixes() {
    run(Keys::Paths, 0.5);
}

#[test]
fn the_longest_keys() {
    run(Keys::Huge, 0.5);
}

#[test]
fn bulk_loads_equal_inserts() {
    let seed = Seed::get();
    let mut random = Random::new(seed.0);
    for kind in [Keys::Numbers, Keys::Short, Keys::Paths, Keys::Huge] {
        for size in [0, 1, 2, 3, 100, 251, 252, 253, 500, 5000] {
            let model: BTreeMap<_, _> = (0..size).map(|value| (key(kind, &mut random), value)).collect();
            let pool = pool(1 << 14);
            let index = Index::build_sorted(pool.clone(), model.iter().map(|(key, &value)| (key, value)));
            let index = index.expect("enough nodes");
            check_against(&index, &model);
            let all: Vec<_> = model.iter().map(|(key, &value)| (key.clone(), value)).collect();
            assert_eq!(scan(&index, &ScanRange::ALL, Direction::Forward, &mut Batch::new()), all);
            for (key, &value) in &model {
                assert_eq!(index.get(key).value, Some(value), "{kind:?} {size}");
            }
            // The loaded index goes on as any other.
            let mut model = model;
            for value in 0..500 {
                let key = key(kind, &mut random);
                put(&index, &key, value).expect("enough nodes");
                model.entry(key).or_insert(value);
            }
            check_against(&index, &model);
            for key in model.into_keys() {
                index.remove(&key, None).expect("it was there");
            }
            assert_eq!(index.check(), Ok(0));
            assert!(pool.nodes_in_use() <= 2);
        }
    }
}

/// The leaf in which a key was not found is freed, and becomes a leaf of another index.
#[test]
fn an_insert_finds_its_leaf_gone() {
    let pool = pool(1 << 14);
    let (index, other) =
        (Index::new(pool.clone()).expect("a node"), Index::new(pool.clone()).expect("a node"));
    let key = |n: u64| (2 * n).to_be_bytes();
    (0..20_000).for_each(|n| assert_eq!(put(&index, &key(n), n), Ok(Insert::Done)));
    let between = |n: u64| (2 * n + 1).to_be_bytes();
    let vacancies: Vec<_> = (0..20_000).step_by(100).map(|n| (n, index.get(&between(n)).vacancy())).collect();
    (0..20_000).for_each(|n| assert_eq!(index.remove(&key(n), None), Some(n)));
    pool.give_back_free(0);
    (0..20_000).for_each(|n| assert_eq!(put(&other, &key(n), n), Ok(Insert::Done)));
    for (n, vacancy) in vacancies {
        assert_eq!(index.insert_at(&vacancy, &between(n), n, || Admit::Go), Ok(Insert::Done));
        assert_eq!((index.get(&between(n)).value, other.get(&between(n)).value), (Some(n), None));
    }
    assert_eq!((index.check(), other.check()), (Ok(200), Ok(20_000)));
}
