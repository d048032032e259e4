//! The memory-resident store.

pub mod budget;
pub mod index;
