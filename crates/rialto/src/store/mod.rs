//! Stores.

pub mod memory;
