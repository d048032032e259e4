//! Many threads: what each reader and scan can rely on while writers split, merge and re-point around it.

use super::*;
use crate::ids::Lsn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keys of two shapes; every third has a tail.
fn key(n: u64) -> Vec<u8> {
    let mut key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    if n.is_multiple_of(3) {
        key.extend_from_slice(b"-and-a-tail");
        key.extend_from_slice(&n.to_be_bytes());
    }
    key
}

/// A value from which its key and the number of its changes follow.
fn value(n: u64, change: u64) -> u64 {
    n << 24 | change & 0xff_ffff
}

#[test]
fn writers_of_their_own_keys_readers_and_scans_of_all() {
    writers_readers_and_scans(|_| ());
}

/// The nodes that merges free come back from the system as zeros.
#[test]
fn writers_readers_and_scans_while_the_pool_gives_free_nodes_back() {
    writers_readers_and_scans(|pool| {
        pool.give_back_free(0);
    });
}

/// `beside` runs all the time on a thread of its own.
fn writers_readers_and_scans(beside: impl Fn(&NodePool) + Sync) {
    const WRITERS: u64 = 2;
    const KEYS: u64 = 6000;
    let seed = Seed::get();
    let pool = pool(1 << 14);
    let index = Index::new(pool.clone()).expect("a first node");
    // Keys 0, 10, 20... stay; each other key belongs to one writer.
    let stable: Vec<u64> = (0..KEYS).step_by(10).collect();
    for &n in &stable {
        put(&index, &key(n), value(n, 0)).expect("enough nodes");
    }
    let end = deadline();
    let done = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let index = &index;
        let done = &done;
        let stable = &stable;
        let (pool, beside) = (&*pool, &beside);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                beside(pool);
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random::new(seed_of(&Seed(0), writer) ^ end.elapsed().as_nanos() as u64);
                    let mut mine = std::collections::BTreeMap::new();
                    let mut change = 0;
                    while Instant::now() < end {
                        let growing = change / 20_000 % 2 == 0;
                        for _ in 0..100 {
                            change += 1;
                            let n = random.below(KEYS / 10 / WRITERS) * WRITERS * 10
                                + writer * 10
                                + 1
                                + random.below(9);
                            if n >= KEYS {
                                continue;
                            }
                            let key = key(n);
                            match (mine.get(&n).copied(), random.below(10)) {
                                (None, step) if growing || step == 0 => {
                                    assert_eq!(put(index, &key, value(n, change)), Ok(Insert::Done));
                                    mine.insert(n, value(n, change));
                                }
                                (Some(old), 0..5) => {
                                    assert!(index.replace(&key, old, value(n, change)));
                                    mine.insert(n, value(n, change));
                                }
                                (Some(old), step) if !growing || step > 8 => {
                                    assert_eq!(index.remove(&key, Some(Lsn(change))), Some(old));
                                    mine.remove(&n);
                                    let found = index.get(&key);
                                    assert!(found.value.is_none() && found.removal >= Lsn(change));
                                }
                                (there, _) => assert_eq!(index.get(&key).value, there),
                            }
                        }
                    }
                    done.store(true, Ordering::Relaxed);
                    mine
                })
            })
            .collect();
        scope.spawn(move || {
            let mut random = Random::new(7);
            while !done.load(Ordering::Relaxed) {
                let n = random.below(KEYS);
                let found = index.get(&key(n)).value;
                assert!(
                    found.is_none_or(|found| found >> 24 == n),
                    "key {n} has the value {found:?} of another"
                );
                assert!(!n.is_multiple_of(10) || found.is_some(), "stable key {n} went missing");
            }
        });
        scope.spawn(move || {
            let mut batch = Batch::new();
            let mut direction = Direction::Forward;
            while !done.load(Ordering::Relaxed) {
                batch.begin();
                let all = scan(index, &ScanRange::ALL, direction, &mut batch);
                let mut seen = 0;
                for (found, value) in &all {
                    let n = value >> 24;
                    assert_eq!(*found, key(n), "a value under another's key");
                    seen += u64::from(n % 10 == 0);
                }
                assert_eq!(seen, stable.len() as u64, "{direction:?}: a stable key was missed");
                direction = match direction {
                    Direction::Forward => Direction::Backward,
                    Direction::Backward => Direction::Forward,
                };
            }
        });
        let left: Vec<_> =
            writers.into_iter().map(|writer| writer.join().expect("no writer fails")).collect();
        left
    });
    let mut expected = stable.len() as u64;
    for (&n, &value) in left.iter().flatten() {
        assert_eq!(index.get(&key(n)).value, Some(value));
        expected += 1;
    }
    assert_eq!(index.check(), Ok(expected));
    drop(seed);
    drop(index);
    assert_eq!(pool.nodes_in_use(), 0);
}

fn seed_of(seed: &Seed, thread: u64) -> u64 {
    seed.0.wrapping_mul(31).wrapping_add(thread + 1)
}

#[test]
fn threads_that_contend_for_the_same_keys() {
    let seed = Seed::get();
    let pool = pool(1 << 14);
    let index = Index::new(pool.clone()).expect("a first node");
    let balance = AtomicU64::new(0);
    let end = Instant::now() + (deadline() - Instant::now()) / 2;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (index, balance) = (&index, &balance);
            let mut random = Random::new(seed_of(&seed, thread));
            scope.spawn(move || {
                while Instant::now() < end {
                    // Bursts over few keys, so that leaves fill, split, empty and merge under all threads.
                    for _ in 0..200 {
                        let n = random.below(600);
                        let key = key(n);
                        if random.below(2) == 0 {
                            if put(index, &key, n) == Ok(Insert::Done) {
                                balance.fetch_add(1, Ordering::Relaxed);
                            }
                        } else if let Some(old) = index.remove(&key, Some(Lsn(1))) {
                            assert_eq!(old, n);
                            balance.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(index.check(), Ok(balance.load(Ordering::Relaxed)));
    for n in 0..600 {
        index.remove(&key(n), None);
    }
    assert_eq!(index.check(), Ok(0));
    assert!(pool.nodes_in_use() <= 2);
}

/// The rule of the interval locks: if a scan has registered its interval before it guards, then an insert into the
/// range asks and finds the interval, or the scan sees its entry.
#[test]
fn an_insert_asks_or_is_seen() {
    let seed = Seed::get();
    let end = deadline();
    let mut rounds = 0u64;
    while Instant::now() < end {
        let index = index();
        let mut random = Random::new(seed.0 ^ rounds);
        for _ in 0..random.below(800) {
            put(&index, &key(random.below(1000)), 1).expect("enough nodes");
        }
        let filled = index.count();
        let direction = if rounds.is_multiple_of(2) { Direction::Forward } else { Direction::Backward };
        // The interval table: whether the scan's interval (all keys) is in it.
        let intervals = Mutex::new(false);
        let (missed, seen) = std::thread::scope(|scope| {
            let scanner = scope.spawn(|| {
                *intervals.lock().expect("no panic") = true;
                let mut batch = Batch::new();
                let mut seen = std::collections::BTreeSet::new();
                loop {
                    let more = index.read_leaf(&ScanRange::ALL, direction, Guard::Set, &mut batch);
                    seen.extend(batch.iter().filter(|&(_, value)| value == 2).map(|(key, _)| key.to_vec()));
                    if more == More::No {
                        return seen;
                    }
                }
            });
            // Inserts that went through without finding the interval: the scan must see them.
            let mut missed = Vec::new();
            for n in 0..400 {
                let key = key(2000 + n * 7);
                let admit = || match *intervals.lock().expect("no panic") {
                    true => Admit::Refuse,
                    false => Admit::GoAndUnguard,
                };
                match index.insert(&key, 2, admit).expect("enough nodes") {
                    Insert::Done => missed.push(key),
                    Insert::Refused => {}
                    Insert::Exists(_) => panic!("the test's keys are new"),
                }
            }
            (missed, scanner.join().expect("the scan does not fail"))
        });
        for key in &missed {
            assert!(
                seen.contains(key),
                "round {rounds}: {key:02x?} was inserted without asking, and not seen"
            );
        }
        assert_eq!(index.check(), Ok(filled + missed.len() as u64));
        rounds += 1;
    }
    assert!(rounds > 3, "only {rounds} rounds");
}

#[test]
fn indexes_of_one_pool_come_and_go_beside_readers() {
    let pool = pool(1 << 12);
    let end = Instant::now() + (deadline() - Instant::now()) / 4;
    let lasting = Index::new(pool.clone()).expect("a first node");
    for n in 0..2000 {
        put(&lasting, &key(n), n).expect("enough nodes");
    }
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let pool = &pool;
            scope.spawn(move || {
                while Instant::now() < end {
                    let index = Index::new(pool.clone()).expect("a first node");
                    for n in 0..1500 {
                        put(&index, &key(n * 2 + thread), n).expect("enough nodes");
                    }
                    assert_eq!(index.count(), 1500);
                }
            });
        }
        scope.spawn(|| {
            let mut random = Random::new(3);
            while Instant::now() < end {
                let n = random.below(2000);
                assert_eq!(lasting.get(&key(n)).value, Some(n));
                lasting.remove(&key(n), None);
                put(&lasting, &key(n), n).expect("enough nodes");
            }
        });
    });
    assert_eq!(lasting.check(), Ok(2000));
    drop(lasting);
    assert_eq!(pool.nodes_in_use(), 0);
}
