//! Lookups in steps: they lead where a lookup leads, and nowhere harmful while the tree changes.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// The steps of one lookup.
fn led_to(index: &Index, key: &[u8]) -> Option<u64> {
    let leaf = index.prefetch_leaf(key)?;
    leaf.prefetch_entry();
    leaf.value()
}

#[test]
fn steps_lead_to_the_values_of_numbers() {
    let index = Index::new(pool(1 << 14)).expect("a first node");
    const KEYS: u64 = 60_000;
    let key = |n: u64| (n * 3).to_be_bytes();
    for n in 0..KEYS {
        // In an order that leaves leaves half full.
        let n = n * 7_919 % KEYS;
        put(&index, &key(n), n + 1).expect("enough nodes");
    }
    let found = (0..KEYS).filter(|&n| led_to(&index, &key(n)) == Some(n + 1)).count() as u64;
    assert!(found >= KEYS * 99 / 100, "{found} of {KEYS}");
    let absent = (0..KEYS).filter(|&n| led_to(&index, &(n * 3 + 1).to_be_bytes()).is_some()).count();
    assert_eq!(absent, 0, "keys that are not there");
}

/// The steps read nodes that split, merge and are freed meanwhile: they stay inside the region and come to an end, whatever they lead to.
#[test]
fn steps_of_a_tree_that_changes_stay_inside_of_it() {
    let index = Index::new(pool(1 << 14)).expect("a first node");
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let (seed, end, over) = (Seed::get(), deadline(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed.0);
            while Instant::now() < end {
                // Grows to many leaves, and shrinks to few.
                for n in 0..8_000 {
                    put(&index, &key(n), n).expect("enough nodes");
                }
                for _ in 0..16_000 {
                    index.remove(&key(random.below(8_000)), None);
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut random = Random::new(!seed.0);
        let mut found = 0;
        while !over.load(Ordering::Relaxed) {
            found += u64::from(led_to(&index, &key(random.below(10_000))).is_some());
        }
        assert!(found > 0, "no step has led anywhere");
    });
}
