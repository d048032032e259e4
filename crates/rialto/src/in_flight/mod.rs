//! What is on its way between its place and its last write, and the gate that a cut closes before commits (I5).

mod gate;
#[cfg(test)]
mod model;
mod sync;

pub(crate) use gate::{Gate, InFlight};
