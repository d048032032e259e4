//! Histories of a table in pages: several threads, a pool that is too small for the table, each form of locks.

use super::history::check;
use super::load::Load;
use crate::interleavings::seed;
use crate::io::{MemoryDisk, Random};
use crate::{Checkpointing, Database, Durability, Engine, Executors, Options};

/// Some rows are longer than a page.
const FILLER: u64 = 3_000;

/// Hardly more frames than the pages that the transactions of the threads claim. A transaction that finds none free runs
/// again.
const FRAMES: u64 = 24;

#[test]
fn histories_of_a_table_in_pages_are_serializable() {
    crate::fault_injection::have_pauses();
    let mut random = Random::new(seed());
    for engine in [Engine::thin(), Engine::central(), Executors::of(3, 0).into()] {
        let context = format!("RIALTO_SEED={}, {engine:?}", seed());
        let options = Options {
            durability: Durability::Memory,
            deadlock_retries_max: 100_000,
            checkpoint: Checkpointing::None,
            engine,
            ..Options::default()
        };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let (load, first) = Load::in_pages(db.clone(), FILLER, FRAMES);
        let mut history = vec![first];
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (load, mut random) = (&load, random.fork());
                    scope.spawn(move || (0..400).map(|_| load.one(&mut random)).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().for_each(|thread| history.extend(thread.join().unwrap()));
        });
        check(&history).unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
        db.close().unwrap();
    }
}
