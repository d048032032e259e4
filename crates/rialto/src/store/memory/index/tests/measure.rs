//! Figures, not checks: `cargo test --release -- --ignored --nocapture measure`. For instructions, run it under
//! `perf stat -e instructions:u` or callgrind with RIALTO_PHASE set to `none`, `keys`, `get` ..., and subtract.

use super::*;
use std::hint::black_box;

const KEYS: u64 = 1_000_000;

/// Key `n` of a set of random keys that needs no table.
fn key(n: u64) -> [u8; 8] {
    Random::new(n).next().to_be_bytes()
}

fn time(name: &str, times: u64, mut operation: impl FnMut(u64)) {
    let begin = Instant::now();
    (0..times).for_each(&mut operation);
    let ns = begin.elapsed().as_nanos() as f64 / times as f64;
    println!("{name:32} {ns:8.1} ns");
}

#[test]
#[ignore = "prints figures"]
fn measure() {
    let pool = pool(1 << 16);
    let index = Index::new(pool.clone()).expect("a first node");
    let phase = std::env::var("RIALTO_PHASE").unwrap_or_default();
    time("insert, random", KEYS, |n| {
        let _ = black_box(put(&index, &key(n), n));
    });
    println!("{} nodes", pool.nodes_in_use());
    let mut random = Random::new(9);
    if phase.is_empty() || phase == "keys" {
        time("(making a key)", KEYS, |_| {
            black_box(key(random.below(KEYS)));
        });
    }
    if phase.is_empty() || phase == "get" {
        time("get, random", KEYS, |_| {
            black_box(index.get(&key(random.below(KEYS))));
        });
    }
    if phase.is_empty() || phase == "replace" {
        time("replace, random", KEYS, |n| {
            black_box(index.replace(&key(n), n, n));
        });
    }
    if phase == "scan" {
        let mut batch = Batch::new();
        time("scan of 10 entries from a key", KEYS, |_| {
            batch.begin();
            batch.limit(10);
            let from = key(random.below(KEYS));
            let range = ScanRange { low: Bound::Included(&from), high: Bound::Unbounded };
            black_box(index.read_leaf(&range, Direction::Forward, Guard::Leave, &mut batch));
        });
    }
    if phase.is_empty() {
        let mut batch = Batch::new();
        time("scan of one leaf from a key", KEYS, |_| {
            batch.begin();
            let from = key(random.below(KEYS));
            let range = ScanRange { low: Bound::Included(&from), high: Bound::Unbounded };
            black_box(index.read_leaf(&range, Direction::Forward, Guard::Leave, &mut batch));
        });
        time("scan of 10 entries from a key", KEYS, |_| {
            batch.begin();
            batch.limit(10);
            let from = key(random.below(KEYS));
            let range = ScanRange { low: Bound::Included(&from), high: Bound::Unbounded };
            black_box(index.read_leaf(&range, Direction::Forward, Guard::Leave, &mut batch));
        });
        time("remove, random", KEYS, |n| {
            black_box(index.remove(&key(n), None));
        });
        println!("{} nodes", pool.nodes_in_use());
        let ascending = Index::new(pool.clone()).expect("a first node");
        time("insert, ascending", KEYS, |n| {
            let _ = black_box(put(&ascending, &n.to_be_bytes(), n));
        });
        let begin = Instant::now();
        let built = Index::build_sorted(pool, (0..KEYS).map(|n| (n.to_be_bytes(), n))).expect("enough nodes");
        println!("bulk load: {:.1} ns per entry", begin.elapsed().as_nanos() as f64 / KEYS as f64);
        assert_eq!(built.check(), Ok(KEYS));
    }
}
