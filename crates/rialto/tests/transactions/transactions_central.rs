//! The scenarios, with central locks.

use rialto::Engine;

const ENGINE: Engine = Engine::central();

#[path = "scenarios/mod.rs"]
mod scenarios;
