//! What commits go through: what is on its way between its place and its last write, and the gates that checkpoints close before commits
//! (I5); what goes into the log.

mod definitions;
mod gate;
mod logging;
#[cfg(test)]
mod model;
mod path;
mod sync;

pub(crate) use definitions::Definitions;
pub(crate) use gate::{Gate, InFlight};
pub use logging::Logging;
pub(crate) use path::CommitPath;
