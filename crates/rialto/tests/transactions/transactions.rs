//! The scenarios, with thin locks.

use rialto::Engine;

const ENGINE: Engine = Engine::thin();

#[path = "scenarios/mod.rs"]
mod scenarios;
