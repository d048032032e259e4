//! Every engine: what it committed is there after it is closed and opened again, and adds up.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const SHAPE: Shape = Shape { branches: 2, accounts: 11_000 };
const TRANSACTIONS: u64 = 50;
const CLIENTS: u64 = 4;

/// A directory of this test's own, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("peers-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn run_clients(engine: &dyn Engine, first_seed: u64) {
    std::thread::scope(|scope| {
        for seed in first_seed..first_seed + CLIENTS {
            scope.spawn(move || {
                let mut client = engine.client(seed).unwrap();
                for _ in 0..TRANSACTIONS {
                    client.transact(Instant::now()).unwrap();
                }
            });
        }
    });
}

#[test]
fn every_bank_adds_up_with_clients_side_by_side() {
    for &name in EngineName::all() {
        for guarantee in [Guarantee::Machine, Guarantee::Process] {
            let directory = Directory::new();
            let engine = name.open(&directory.0, guarantee, SHAPE).unwrap();
            assert_eq!(engine.audit().unwrap().problem(SHAPE, 0), None, "{name:?}, {guarantee:?}, loaded");
            run_clients(&*engine, 1);
            let sums = engine.audit().unwrap();
            assert_eq!(sums.problem(SHAPE, CLIENTS * TRANSACTIONS), None, "{name:?}, {guarantee:?}");
            engine.close().unwrap();
            // LMDB's stays mapped as long as the process lives, and must not be opened twice.
            if name == EngineName::Lmdb {
                continue;
            }
            let engine = name.open(&directory.0, guarantee, SHAPE).unwrap();
            assert_eq!(engine.audit().unwrap(), sums, "{name:?}, {guarantee:?}, opened again");
            run_clients(&*engine, 1 + CLIENTS);
            let problem = engine.audit().unwrap().problem(SHAPE, 2 * CLIENTS * TRANSACTIONS);
            assert_eq!(problem, None, "{name:?}, {guarantee:?}, opened again and used");
            engine.close().unwrap();
        }
    }
}

#[test]
fn a_bank_of_another_shape_is_refused_by_its_sums() {
    let directory = Directory::new();
    let engine = EngineName::Sqlite.open(&directory.0, Guarantee::Process, SHAPE).unwrap();
    let other = Shape { accounts: SHAPE.accounts + 1, ..SHAPE };
    assert_eq!(
        engine.audit().unwrap().problem(other, 0),
        Some("accounts has 11000 rows, expected 11001".to_owned())
    );
    engine.close().unwrap();
}
