//! Stores.

pub mod memory;
mod storage;

pub(crate) use storage::Storage;
