//! Rialto: a memory-resident, durable, serializable transaction processing engine.

#![deny(unsafe_code)]

pub mod account;
pub mod catalog;
pub mod checkpoint;
pub mod engine;
pub mod error;
pub mod ids;
pub mod io;
pub mod lock;
pub mod log;
pub mod recovery;
pub mod row;
pub mod store;
pub mod txn;

pub use error::{Error, Result};
pub use ids::{IndexId, Lsn, TableId};
