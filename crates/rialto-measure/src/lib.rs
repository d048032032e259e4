//! Clients that put a load on Rialto, and the instruments that measure what it does under it.
//!
//! This crate knows no workload. What clients run is behind the seam [`driver::Workload`]; another engine is measured through
//! the same seam (`bench/peers`).
//!
//! | module | what |
//! |---|---|
//! | [`driver`] | the clients: threads, phases, when a transaction starts and when it is done; the seam to what they run |
//! | [`histogram`], [`confidence`], [`interval`], [`spread`] | latencies; means, medians of ratios and medians with their intervals |
//! | [`counters`], [`usage`], [`alloc`] | instructions, device bytes, context switches, allocations of this process |
//! | [`profile`] | where processor time goes, by the functions on sampled stacks |
//! | [`machine`], [`calibrate`], [`limits`] | what it ran on, its calm and noisy spells, what bare code reaches on it |
//! | [`growth`] | whether a run fits into the room that there is |
//! | [`report`] | the figures of a window as a table and as a JSON object |
//! | [`versus`] | a run against another, in pairs |
//! | [`json`], [`text`], [`chart`] | results for programs, for people, and as pictures |
//! | [`interrupt`], [`RunError`] | how a run ends early, and why it gave no result |
//!
//! Two rules hold here: clients share no cache line that one of them writes, and in an open loop a latency begins at the
//! intended start.

// The JSON object has some sixty members in one `json!`.
#![recursion_limit = "512"]

pub mod alloc;
pub mod calibrate;
pub mod chart;
pub mod confidence;
pub mod counters;
pub mod driver;
mod error;
pub mod growth;
pub mod histogram;
pub mod interrupt;
pub mod interval;
pub mod json;
pub mod limits;
pub mod machine;
pub mod profile;
pub mod report;
pub mod spread;
pub mod text;
pub mod usage;
pub mod versus;

pub use error::RunError;
