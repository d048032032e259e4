//! The scenarios, with the lock tables of executors.

use rialto::Engine;

const ENGINE: Engine = Engine::data_oriented();

#[path = "scenarios/mod.rs"]
mod scenarios;
