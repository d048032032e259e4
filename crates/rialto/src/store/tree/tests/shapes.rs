//! The shape of the tree, what it refuses, and what its leaves remember.

use super::*;
use crate::ids::Lsn;

fn number(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

#[test]
fn ascending_and_descending_keys_leave_full_leaves() {
    for descending in [false, true] {
        let pool = pool(1 << 12);
        let index = Index::new(pool.clone()).expect("a first node");
        for n in 0..100_000 {
            let n = if descending { 100_000 - n } else { n };
            assert_eq!(put(&index, &number(n), n), Ok(Insert::Done));
        }
        assert_eq!(index.check(), Ok(100_000));
        let per_node = 100_000 / pool.nodes_in_use();
        assert!(per_node > 215, "{per_node} entries per node, descending: {descending}");
    }
}

/// Inserts as by transactions that take keys from ranges of their own, and another range when one is used up.
#[test]
fn keys_that_grow_in_many_places_leave_full_leaves() {
    for len in [4, 8, 20] {
        let pool = pool(1 << 12);
        let index = Index::new(pool.clone()).expect("a first node");
        let key = |place: u64, n: u64| {
            let mut key = vec![b'a'; len];
            let number = (n / 1_024 * 50 + place) * 1_024 + n % 1_024;
            let bytes = number.to_be_bytes();
            let last = len.min(8);
            key[len - last..].copy_from_slice(&bytes[8 - last..]);
            key
        };
        for n in 0..2_000 {
            for place in 0..50 {
                assert_eq!(put(&index, &key(place, n), n), Ok(Insert::Done));
            }
        }
        assert_eq!(index.check(), Ok(100_000));
        let per_node = 100_000 / pool.nodes_in_use();
        assert!(per_node > 190, "{per_node} entries per node, keys of {len} bytes");
    }
}

/// A key that happens to follow other keys shows no run. Leaves hold at least 156 entries; if one key behind another
/// one counted as a run, they would hold 142.
#[test]
fn dense_keys_in_any_order_leave_leaves_two_thirds_full() {
    let mut random = Random::new(Seed::get().0);
    let mut keys: Vec<u64> = (0..100_000).collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    let pool = pool(1 << 12);
    let index = Index::new(pool.clone()).expect("a first node");
    let mut least = u64::MAX;
    for (nth, &n) in (1..).zip(&keys) {
        assert_eq!(put(&index, &number(n), n), Ok(Insert::Done));
        if nth % 10_000 == 0 {
            least = least.min(nth / pool.nodes_in_use());
        }
    }
    assert_eq!(index.check(), Ok(100_000));
    assert!(least > 148, "{least} entries per node");
}

#[test]
fn random_keys_leave_leaves_two_thirds_full() {
    let seed = Seed::get();
    let mut random = Random::new(seed.0);
    let pool = pool(1 << 12);
    let index = Index::new(pool.clone()).expect("a first node");
    for n in 0..100_000 {
        assert_eq!(put(&index, &number(random.next()), n), Ok(Insert::Done));
    }
    let per_node = 100_000 / pool.nodes_in_use();
    assert!(per_node > 155, "{per_node} entries per node");
    let estimate = index.len_estimate();
    assert!((50_000..200_000).contains(&estimate), "estimated {estimate} of 100000");
}

#[test]
fn a_bulk_load_fills_nine_tenths() {
    let pool = pool(1 << 12);
    let index =
        Index::build_sorted(pool.clone(), (0..100_000).map(|n| (number(n), n))).expect("enough nodes");
    assert_eq!(index.check(), Ok(100_000));
    let per_node = 100_000 / pool.nodes_in_use();
    assert!((215..240).contains(&per_node), "{per_node} entries per node");
}

#[test]
fn marks_lie_evenly_in_an_index() {
    let pool = pool(1 << 12);
    let index = Index::new(pool.clone()).expect("a first node");
    assert!(index.marks(64).is_empty());
    let mut put_in = 0;
    for entries in [1, 7, 3_000, 100_000u64] {
        for n in std::mem::replace(&mut put_in, entries)..entries {
            assert_eq!(put(&index, &number(n * 7919 % 100_003), n), Ok(Insert::Done));
        }
        let mut keys: Vec<_> = (0..entries).map(|n| number(n * 7919 % 100_003)).collect();
        keys.sort_unstable();
        for parts in [1, 2, 7, 64, 100_000] {
            let marks = index.marks(parts * 8);
            assert!(marks.is_sorted_by(|one, next| one < next));
            assert!(marks.len() >= (parts * 8).min(entries as usize), "{} of {parts}", marks.len());
            let rank = |mark: &Vec<u8>| keys.partition_point(|key| key[..] < mark[..]);
            let parts = parts.min(marks.len());
            let bounds = (1..parts).map(|part| rank(&marks[part * marks.len() / parts]));
            let ranks: Vec<usize> = [0].into_iter().chain(bounds).chain([entries as usize]).collect();
            let equal = entries as usize / parts;
            for part in ranks.windows(2).map(|ends| ends[1] - ends[0]) {
                assert!((equal / 2..=equal * 2 + 1).contains(&part), "{part} of {entries} in {parts}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "not strictly ascending")]
fn a_bulk_load_refuses_disorder() {
    let _ = Index::build_sorted(pool(16), [(b"b", 1), (b"a", 2)]);
}

#[test]
fn a_full_pool_refuses_and_the_tree_stays_whole() {
    let seed = Seed::get();
    let mut random = Random::new(seed.0);
    for nodes in [1, 2, 3, 4, 5, 10, 40] {
        let budget = Arc::new(Budget::new(nodes * NODE_BYTES as u64 + 100));
        let pool = NodePool::new(1 << 30, budget.clone()).expect("address space");
        let index = Index::new(pool.clone()).expect("a first node");
        let mut keys = Vec::new();
        let mut refused = 0;
        while refused < 200 {
            let mut key = number(random.next()).to_vec();
            key.resize(8 + random.below(300) as usize, 7);
            match put(&index, &key, 1) {
                Ok(done) => {
                    assert_eq!(done, Insert::Done);
                    keys.push(key);
                }
                Err(full) => {
                    refused += 1;
                    assert_eq!(index.get(&key).value, None);
                    assert!(full.to_string().contains("budget"), "{full}");
                }
            }
        }
        assert_eq!(index.check(), Ok(keys.len() as u64), "{nodes} nodes");
        assert!(budget.used() <= budget.limit());
        assert_eq!(pool.bytes_taken(), budget.used());
        for key in &keys {
            assert_eq!(index.remove(key, Some(Lsn(1))), Some(1));
        }
        assert_eq!(index.check(), Ok(0));
        assert!(pool.nodes_in_use() <= 2);
        assert_eq!(put(&index, b"room again", 1), Ok(Insert::Done));
        // A second index, and a bulk load, are refused with the same error.
        let entries = (0..100_000u64).map(|n| (number(n), n));
        assert!(Index::build_sorted(pool.clone(), entries).is_err());
        assert!(pool.nodes_in_use() <= 2);
        drop(index);
        assert_eq!(pool.nodes_in_use(), 0);
        drop(pool);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_stamp_holds_until_its_leaf_changes() {
    let index = index();
    for n in 0..10_000 {
        put(&index, &number(n * 2), n).expect("enough nodes");
    }
    let near = index.get(&number(5001));
    let far = index.get(&number(19_000));
    assert_eq!((near.value, far.value), (None, Some(9500)));
    assert!(index.unchanged(&near.leaf) && index.unchanged(&far.leaf));
    put(&index, &number(5001), 1).expect("enough nodes");
    assert!(!index.unchanged(&near.leaf) && index.unchanged(&far.leaf));
    let near = index.get(&number(5001));
    assert_eq!(index.insert(&number(5001), 3, || panic!("nothing is inserted")), Ok(Insert::Exists(1)));
    assert!(!index.replace(&number(5001), 7, 2) && index.unchanged(&near.leaf));
    assert!(index.replace(&number(5001), 1, 2) && !index.unchanged(&near.leaf));
    let near = index.get(&number(5001));
    assert_eq!(index.remove(&number(5003), Some(Lsn(4))), None);
    assert!(index.unchanged(&near.leaf));
    assert_eq!(index.remove(&number(5001), None), Some(2));
    assert!(!index.unchanged(&near.leaf));
}

#[test]
fn removal_lsns_outlive_splits_and_merges() {
    let index = index();
    for n in 0..200 {
        put(&index, &number(n), n).expect("enough nodes");
    }
    index.remove(&number(100), Some(Lsn(77))).expect("it was there");
    index.remove(&number(101), Some(Lsn(76))).expect("it was there");
    assert_eq!(index.get(&number(100)).removal, Lsn(77));
    // Grows the root, splits, and splits again around it.
    for n in 0..60_000u64 {
        let mut key = number(n % 200).to_vec();
        key.extend_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        put(&index, &key, n).expect("enough nodes");
    }
    assert_eq!(index.get(&number(100)).removal, Lsn(77));
    for n in 0..60_000u64 {
        let mut key = number(n % 200).to_vec();
        key.extend_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        index.remove(&key, None).expect("it was there");
    }
    assert_eq!(index.check(), Ok(198));
    assert_eq!(index.get(&number(100)).removal, Lsn(77));
}

/// Guards the leaves of a range; returns how many there are.
fn guard(index: &Index, range: &ScanRange<'_>, direction: Direction) -> usize {
    let mut batch = Batch::new();
    let mut leaves = 1;
    while index.read_leaf(range, direction, Guard::Set, &mut batch) == More::Yes {
        leaves += 1;
    }
    leaves
}

/// Whether an insert of `key` asks `admit`, which then refuses it.
fn asks(index: &Index, key: &[u8]) -> bool {
    match index.insert(key, 1, || Admit::Refuse).expect("enough nodes") {
        Insert::Refused => true,
        Insert::Done => {
            index.remove(key, None).expect("just inserted");
            false
        }
        Insert::Exists(_) => panic!("the test's keys are new"),
    }
}

#[test]
fn guards_cover_a_range_whatever_the_tree_does_later() {
    for direction in [Direction::Forward, Direction::Backward] {
        let index = index();
        for n in 0..5000 {
            put(&index, &number(n * 10), n).expect("enough nodes");
        }
        let (low, high) = (number(10_001), number(30_001));
        assert!(guard(&index, &from_to(&low, &high), direction) > 5);
        let inside = |index: &Index| {
            (10_001..30_001).step_by(37).filter(|n| n % 10 != 0).all(|n| asks(index, &number(n)))
        };
        assert!(inside(&index));
        assert!(!asks(&index, &number(1)) && !asks(&index, &number(49_999)));
        // Splits all leaves; `admit` consents.
        for n in 0..50_000 {
            if n % 10 != 0 && n % 37 != 10_001 % 37 {
                index.insert(&number(n), n, || Admit::Go).expect("enough nodes");
            }
        }
        assert!(inside(&index));
        // Merges them again.
        for n in 0..50_000 {
            index.remove(&number(n), None);
        }
        assert_eq!(index.check(), Ok(0));
        assert!(inside(&index));
    }
}

#[test]
fn an_empty_range_guards_the_leaf_that_would_hold_it() {
    for direction in [Direction::Forward, Direction::Backward] {
        let index = index();
        assert_eq!(guard(&index, &from_to(b"m", b"n"), direction), 1);
        assert!(asks(&index, b"m1"));
        assert_eq!(index.insert(b"m1", 1, || Admit::GoAndUnguard), Ok(Insert::Done));
        assert!(!asks(&index, b"m2"), "the guard is gone");
        assert_eq!(guard(&index, &from_to(b"p", b"p"), direction), 1);
        assert!(asks(&index, b"p"));
    }
}

#[test]
fn a_refusal_changes_nothing() {
    let index = index();
    put(&index, b"a", 1).expect("enough nodes");
    guard(&index, &ScanRange::ALL, Direction::Forward);
    let before = index.get(b"a").leaf;
    assert!(asks(&index, b"b"));
    assert!(index.unchanged(&before));
    assert_eq!(index.count(), 1);
}

#[test]
fn a_panic_in_admit_leaves_the_leaf_usable() {
    let index = index();
    guard(&index, &ScanRange::ALL, Direction::Forward);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = index.insert(b"a", 1, || panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(put(&index, b"a", 2), Ok(Insert::Done));
}

/// For a holder of a reference, reads without a lock find a discarded index empty.
#[test]
fn a_discarded_index_has_no_node() {
    for size in [0u64, 1, 300, 100_000] {
        let pool = pool(1 << 12);
        let index =
            Index::build_sorted(pool.clone(), (0..size).map(|n| (number(n), n))).expect("enough nodes");
        let leaf = index.get(&number(1)).leaf;
        index.discard();
        assert_eq!(pool.nodes_in_use(), 0);
        let another =
            Index::build_sorted(pool.clone(), (0..300).map(|n| (number(n), n))).expect("enough nodes");
        let nodes = pool.nodes_in_use();
        assert_eq!((index.len_estimate(), index.marks(8)), (0, Vec::new()));
        assert!(!index.unchanged(&leaf));
        index.discard();
        drop(index);
        assert_eq!((another.check(), pool.nodes_in_use()), (Ok(300), nodes));
    }
}

#[test]
fn an_emptied_leaf_goes_even_between_full_ones() {
    let index =
        Index::build_sorted(pool(1 << 12), (0..10_000).map(|n| (number(n), n))).expect("enough nodes");
    for n in 1000..3000 {
        index.remove(&number(n), None).expect("it was there");
    }
    assert_eq!(index.check(), Ok(8000));
    let mut batch = Batch::new();
    while index.read_leaf(&ScanRange::ALL, Direction::Forward, Guard::Leave, &mut batch) == More::Yes {
        assert!(!batch.is_empty(), "an empty leaf at {:02x?}", batch.next_key());
    }
}

#[test]
fn nodes_that_no_index_uses_go_back_to_the_budget() {
    let budget = Arc::new(Budget::new(1000 * NODE_BYTES as u64));
    let pool = NodePool::new(1 << 30, budget.clone()).expect("address space");
    let index = Index::new(pool.clone()).expect("a first node");
    for _ in 0..3 {
        let mut n = 0;
        while put(&index, &number(n * 7919 % 1_000_003), n).is_ok() {
            n += 1;
        }
        assert!(budget.free() < NODE_BYTES as u64, "the bound is reached");
        assert_eq!(pool.give_back_free(0), 0, "all are in use");
        for n in 0..n {
            assert_eq!(index.remove(&number(n * 7919 % 1_000_003), None), Some(n));
        }
        let unused = budget.used() - pool.nodes_in_use() * NODE_BYTES as u64;
        assert_eq!(pool.give_back_free(budget.limit()), 0, "the root stays, so so much cannot be had");
        assert_eq!(pool.give_back_free(unused), unused);
        assert_eq!(pool.bytes_taken(), pool.nodes_in_use() * NODE_BYTES as u64);
        assert_eq!(budget.used(), pool.bytes_taken());
    }
    assert_eq!(index.check(), Ok(0));
}

#[test]
fn a_node_whose_memory_was_given_back_is_another_one() {
    let pool = pool(16);
    let before = Index::new(pool.clone()).expect("a first node").get(b"key").leaf;
    assert_eq!(pool.nodes_in_use(), 0);
    assert!(pool.give_back_free(0) > 0);
    for _ in 0..5 {
        let index = Index::new(pool.clone()).expect("a first node");
        assert_eq!(index.get(b"key").leaf.node, before.node, "the test's own premise");
        assert!(!index.unchanged(&before), "a version never goes back");
        put(&index, b"key", 1).expect("there is room");
    }
}
