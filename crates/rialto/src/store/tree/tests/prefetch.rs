//! Lookups in steps: they lead where a lookup leads, and nowhere harmful while the tree changes.

use super::*;
use crate::store::tree::{Found, LeafAhead};
use std::sync::atomic::{AtomicBool, Ordering};

/// So many lookups go side by side.
const TOGETHER: usize = 8;

/// The steps of lookups; between the first and the last of them other threads may run.
fn led_to<K: AsRef<[u8]>>(index: &Index, keys: &[K; TOGETHER]) -> [Option<Found>; TOGETHER] {
    let leaves = keys.each_ref().map(|key| index.prefetch_leaf(key.as_ref()));
    leaves.iter().flatten().for_each(LeafAhead::prefetch_entry);
    std::thread::yield_now();
    leaves.map(|leaf| leaf?.found())
}

#[test]
fn steps_lead_where_a_lookup_leads() {
    let index = Index::new(pool(1 << 14)).expect("a first node");
    const KEYS: u64 = 60_000;
    let key = |n: u64| (n * 3).to_be_bytes();
    // From a tree that is a leaf to one of three levels.
    for n in 0..KEYS {
        // In an order that leaves leaves half full.
        put(&index, &key(n * 7_919 % KEYS), n + 1).expect("enough nodes");
        if !n.is_power_of_two() && n + 1 < KEYS {
            continue;
        }
        let (mut found, mut all) = (0, 0);
        for n in (0..KEYS * 3).step_by(5 * TOGETHER) {
            let keys = std::array::from_fn(|nth| (n + nth as u64).to_be_bytes());
            for (key, led) in keys.iter().zip(led_to(&index, &keys)) {
                all += 1;
                found += u64::from(led.is_some_and(|led| led == index.get(key)));
                assert!(led.is_none_or(|led| led == index.get(key)), "{key:?}: {led:?}");
            }
        }
        assert!(found >= all * 99 / 100, "{found} of {all}");
    }
}

/// Keys whose heads do not tell: one is the beginning of others, or they have their tails in the leaf.
#[test]
fn steps_lead_where_a_lookup_leads_by_tails() {
    let index = Index::new(pool(1 << 14)).expect("a first node");
    let key =
        |n: u64| format!("{}{}", "a common beginning ".repeat(n as usize % 3), n % 4_000 * 7).into_bytes();
    for n in 0..10_000 {
        put(&index, &key(n), n).expect("enough nodes");
    }
    let mut found = 0;
    for n in (0..20_000).step_by(TOGETHER) {
        let keys: [_; TOGETHER] = std::array::from_fn(|nth| key(n + nth as u64));
        for (key, led) in keys.iter().zip(led_to(&index, &keys)) {
            found += u64::from(led.is_some());
            assert!(led.is_none_or(|led| led == index.get(key)), "{key:?}: {led:?}");
        }
    }
    assert!(found > 0, "no step has led anywhere");
}

/// The steps read nodes that split, merge and are freed meanwhile: they stay inside the region and come to an end, and
/// where they lead as long as the leaf is unchanged, a lookup leads too.
#[test]
fn steps_of_a_tree_that_changes_lead_to_what_was_there() {
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
        let mut unchanged = 0;
        while !over.load(Ordering::Relaxed) {
            let keys = std::array::from_fn(|_| key(random.below(10_000)));
            for (key, led) in keys.iter().zip(led_to(&index, &keys)) {
                let Some(led) = led else { continue };
                let now = index.get(key);
                if index.unchanged(&led.leaf) {
                    assert_eq!(led, now, "{key:?}");
                    unchanged += 1;
                }
            }
        }
        assert!(unchanged > 0, "no step has led anywhere");
    });
}
