//! Every engine: what its clients changed side by side is there.

use std::path::PathBuf;

use super::*;
use crate::disk::change::{Change, Changes};

const ROWS: u32 = 3_001;
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 100;

/// A directory of this test's own, gone when dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn every_table_adds_up_with_clients_side_by_side() {
    for &engine in DiskEngine::all() {
        let name = format!("peers-disk-{}-{}", std::process::id(), engine.name());
        let directory = Directory(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&directory.0).unwrap();
        let table = engine.load(&directory.0, ROWS, Limit(64 << 20)).unwrap();
        table.settle().unwrap();
        table.set_mix(Mix { reads: 0.5, writes: 0.5 });
        let before = table.pages();
        let change = |seed: u64| {
            let mut client = table.client(seed).unwrap();
            let mut changes = Changes::new(ROWS, seed);
            (0..TRANSACTIONS).fold(0, |sum, _| {
                let Change { key, amount } = changes.next();
                client.add(key, amount).unwrap();
                sum + amount
            })
        };
        let acknowledged: i64 = std::thread::scope(|scope| {
            let clients: Vec<_> = (1..=CLIENTS).map(|seed| scope.spawn(move || change(seed))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        let problem = table.audit().unwrap().and_then(|sums| sums.problem(ROWS, acknowledged));
        assert_eq!(problem, None, "{engine:?}");
        assert_eq!(table.audit().unwrap().is_none(), engine == DiskEngine::Bare);
        let counted = table.pages().zip(before).map(|(now, before)| now.since(&before));
        assert_eq!(counted.is_some(), engine == DiskEngine::Rialto);
        assert!(counted.is_none_or(|pages| pages.accesses >= CLIENTS * TRANSACTIONS), "{counted:?}");
        table.close().unwrap();
    }
}

#[test]
fn parts_cover_all_rows() {
    let parts: Vec<_> = parts(1_200).collect();
    assert_eq!(parts, [0..500, 500..1_000, 1_000..1_200]);
}
