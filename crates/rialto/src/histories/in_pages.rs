//! Histories of a table in pages: several threads, a pool that is too small for the table, each form and grain of locks, and each
//! strategy of two-stage execution.

use super::history::check;
use super::load::Load;
use crate::interleavings::seed;
use crate::io::{MemoryDisk, Random};
use crate::{Checkpointing, Database, Durability, Engine, Executors, LockGrain, Options, TwoStage};

/// Some rows are longer than a page.
const FILLER: u64 = 12_000;

/// Hardly more frames than the pages that the transactions of the threads claim. A transaction that finds none free runs
/// again.
const FRAMES: u64 = 48;

#[test]
fn histories_of_a_table_in_pages_are_serializable() {
    crate::fault_injection::have_pauses();
    let mut random = Random::new(seed());
    let engines = [
        (Executors::of(3, 0).into(), LockGrain::Record),
        (Executors::of(3, 2).into(), LockGrain::Record),
        (Engine::thin(), LockGrain::Record),
        (Engine::central(), LockGrain::Record),
        (Engine::central(), LockGrain::Page),
    ];
    let staged = engines
        .into_iter()
        .flat_map(|(engine, grain)| TwoStage::ALL.map(|(strategy, _)| (engine, grain, strategy)));
    for (engine, grain, two_stage) in staged {
        let context = format!("RIALTO_SEED={}, {engine:?}, {grain:?}, {two_stage:?}", seed());
        let options = Options {
            durability: Durability::Memory,
            deadlock_retries_max: 100_000,
            checkpoint: Checkpointing::None,
            engine,
            two_stage,
            ..Options::default()
        };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let (load, first) = Load::in_pages(db.clone(), FILLER, FRAMES, grain);
        let mut history = vec![first];
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (load, mut random) = (&load, random.fork());
                    scope.spawn(move || (0..200).map(|_| load.one(&mut random)).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().for_each(|thread| history.extend(thread.join().unwrap()));
        });
        check(&history).unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
        let conversions = db.metrics().two_stage.iter().map(|account| account.conversions).sum::<u64>();
        match two_stage {
            TwoStage::Tste | TwoStage::Otste => assert!(conversions > 0, "{context}"),
            // The others choose as they like.
            TwoStage::Htste | TwoStage::Adaptive => {}
            _ => assert_eq!(conversions, 0, "{context}"),
        }
        db.close().unwrap();
    }
}
