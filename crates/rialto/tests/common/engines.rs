//! Engines that tests run on.

use rialto::io::Random;
use rialto::{Engine, Executors};

/// This many executors in place, or on this many threads to which every call is handed over.
pub const fn of(count: usize, threads: usize) -> Engine {
    Engine::DataOriented(Executors::of(count, threads).handing_over())
}

/// The conventional engine with thin and with central locks, and this many executors in place and on two threads.
pub const fn each(count: usize) -> [Engine; 4] {
    [Engine::thin(), Engine::central(), of(count, 0), of(count, 2)]
}

/// The three kinds of engines, equally often: up to `count_max` executors, in place or on up to `threads_max` threads.
pub fn any(random: &mut Random, count_max: u64, threads_max: u64) -> Engine {
    let count = 1 + random.below(count_max) as usize;
    let threads = random.below(threads_max + 1) as usize;
    let executors = match random.below(2) {
        0 => of(count, threads),
        _ => Executors::of(count, threads).into(),
    };
    [Engine::thin(), Engine::central(), executors][random.below(3) as usize]
}

/// How many threads own executors at first.
pub fn threads(engine: Engine) -> usize {
    engine.executors().map_or(0, |executors| executors.threads)
}
