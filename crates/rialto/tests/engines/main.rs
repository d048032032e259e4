//! Every engine against a plain model: random flows over tables with unique indexes, whose actions insert, delete, move
//! keys, catch errors, roll steps back and choose for their transaction, beside closures and definitions. The outputs
//! of a call, and the contents of the tables by each index, are those of the flow's actions one after the other; and
//! the database opens again. Calls at the same time have the results of the order of their places (`in_order.rs`). At
//! the bounds of memory and of the log a call is whole or leaves nothing (`at_bounds.rs`). A program by itself, because
//! a panic hook belongs to the process.

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

use rialto::{Checkpointing, Durability, Engine, Executors, HandOver, Options, Planning};

const TABLES: [&str; 2] = ["one", "two"];
/// The table in which a call leaves a row of its own when it commits: so each takes a place of its own.
const MARKS: &str = "marks";

const ENGINES: [Engine; 9] = [
    Engine::thin(),
    Engine::central(),
    of_threads(0),
    of_threads(1),
    of_threads(2),
    of_threads(4),
    of_threads(8),
    visiting(of_threads(2)),
    visiting(of_threads(4)),
];

/// Eight executors on this many threads, or in place; both may become more.
const fn of_threads(threads: usize) -> Engine {
    Engine::DataOriented(Executors {
        count_max: 16,
        threads_max: if threads > 0 { 8 } else { 0 },
        // If an action that aborts often ran first, another of several errors would be given.
        planning: Planning::Parallel,
        ..Executors::of(8, threads).handing_over()
    })
}

/// The same, but a caller runs its call itself if the thread is idle.
const fn visiting(engine: Engine) -> Engine {
    match engine {
        Engine::DataOriented(executors) => {
            Engine::DataOriented(Executors { hand_over: HandOver::IfBusy, ..executors })
        }
        conventional => conventional,
    }
}

/// The same with this planning.
fn planned(engine: Engine, planning: Planning) -> Engine {
    engine.executors().map_or(engine, |executors| Executors { planning, ..executors }.into())
}

fn options(engine: Engine) -> Options {
    Options {
        memory_bytes: databases::MEMORY,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        deadlock_retries_max: 100_000,
        engine,
        ..Options::default()
    }
}
