//! What is on its way between its place and its last write, and the gates that checkpoints close before commits (I5).

mod definitions;
mod gate;
#[cfg(test)]
mod model;
mod sync;

pub(crate) use definitions::Definitions;
pub(crate) use gate::{Gate, InFlight};
