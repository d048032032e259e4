//! The parts of a commit. `txn/commit.rs` puts them together.
//!
//! - [`write_set`]: the writes of a transaction, as records in the format of the log ([`redo`]); [`tables`]: the tables
//!   that they belong to;
//! - `state`: the states of a commit, from its last operation to its released locks;
//! - `apply`: how the writes get into the tables, after the place (I2, I10);
//! - `in_progress`, `definitions`: the commits in progress, and the barriers that checkpoints close to them (I5);
//! - [`senseless`]: the errors for redo records that make no sense;
//! - [`sweep_side`]: on which side of a black/white sweep a commit is;
//! - `logging`: what goes into the log ([`Logging`]); `path`: the components that all commits share.

mod apply;
mod definitions;
mod in_progress;
mod logging;
#[cfg(test)]
mod model;
mod path;
pub(crate) mod redo;
pub(crate) mod senseless;
mod state;
pub(crate) mod sweep_side;
mod sync;
pub(crate) mod tables;
pub(crate) mod write_set;

pub(crate) use apply::Applying;
pub(crate) use definitions::Definitions;
pub(crate) use in_progress::{CommitBarrier, CommitsInProgress};
pub use logging::Logging;
pub(crate) use path::CommitPath;
pub(crate) use state::{Applied, NoPlace, Placed, Reserved};
