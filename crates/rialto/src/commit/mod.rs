//! The parts of a commit and its stages: its writes ([`write_set`], in the format of the log, [`redo`]) and the tables
//! that they belong to ([`tables`]), the states from its last operation to its released locks (`state`), the barriers
//! that checkpoints close to commits (I5), how its writes get into the tables (`apply`), and which side of a
//! black/white sweep it is on ([`sweep_side`]).

mod apply;
mod definitions;
mod in_progress;
mod logging;
#[cfg(test)]
mod model;
mod path;
pub(crate) mod redo;
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
