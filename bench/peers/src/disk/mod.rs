//! Tables much larger than memory: engines side by side within the same memory limit (`peers disk`).
//!
//! | file | what |
//! |---|---|
//! | [`args`] | the options |
//! | [`change`] | what a transaction draws; what a table must add up to |
//! | [`table`](mod@table) | the engines behind two small traits, a file each beside it, and bare pages |
//! | [`memory_group`] | the control group that limits an engine's memory |
//! | [`protocol`] | what the run asks an engine's process, and its answers |
//! | [`server`], [`process`] | the two ends of it: an engine in a process of its own, and the run's handle of that process |
//! | [`device`] | bytes that a process has read from devices and written to them |
//! | [`measurement`], [`report`] | the rounds; the table, the ratios, the JSON |
//!
//! Invariant: an engine's process is in its group before it opens anything. So all memory of the engine counts, the
//! page cache of its files included.

pub mod args;
mod bare;
mod change;
mod device;
mod fjall;
mod lmdb;
mod measurement;
mod memory_group;
mod process;
mod protocol;
mod report;
mod rialto;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod server;
mod table;

pub use self::measurement::Measurement;
pub use self::server::serve;
