//! Shared by the tests of histories: `history` is what transactions saw and the checker of it, `load` runs
//! them. The kernel's own tests use both as well (`src/traps/histories.rs`).

#![allow(dead_code, reason = "each test uses its own part of this")]

pub mod history;
pub mod load;
