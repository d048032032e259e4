//! Every engine against a plain model: random flows over tables with unique indexes, whose actions insert, delete, move keys,
//! catch errors, take steps back and choose for their transaction, beside closures and definitions. What a call gives, and what
//! the tables hold by each index, is what the flow's actions come to one after the other; and the database opens again. Calls at
//! the same time do so in the order of their places (`in_order.rs`). At the bounds of memory and of the log a call is whole or leaves
//! nothing (`at_bounds.rs`). A program by itself: its panic hook is the process's.

mod at_bounds;
mod beside;
#[path = "../common/mod.rs"]
mod common;
mod databases;
mod errors;
mod every_engine;
mod generate;
mod handles;
mod in_order;
mod ledger;
mod many;
mod model;
mod operation;
mod rules;
mod served;
mod shapes;
mod tally;
mod views;
mod waits;

use rialto::{Checkpointing, Durability, LockForm, Options, Planning};

const TABLES: [&str; 2] = ["one", "two"];
/// What a call leaves behind when it commits, in its own row: so each takes a place of its own.
const MARKS: &str = "marks";

/// The form of locks, and how many threads own executors.
type Engine = (LockForm, usize);

const ENGINES: [Engine; 7] = [
    (LockForm::Thin, 0),
    (LockForm::Central, 0),
    (LockForm::Local, 0),
    (LockForm::Local, 1),
    (LockForm::Local, 2),
    (LockForm::Local, 4),
    (LockForm::Local, 8),
];

fn options((locks, executor_threads): Engine) -> Options {
    Options {
        memory_bytes: databases::MEMORY,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        locks,
        executors: 8,
        executors_max: 16,
        executor_threads,
        executor_threads_max: if executor_threads > 0 { 8 } else { 0 },
        // Where an action that aborts often runs first, another error is told of several.
        planning: Planning::Parallel,
        ..Options::default()
    }
}
