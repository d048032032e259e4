//! Rialto: a memory-resident, durable, serializable transaction processing engine.
//!
//! Start at [`Database`]; a [`Transaction`] reads and writes [`Table`]s. The crate's folders are the stages of a
//! transaction's life; ARCHITECTURE.md in the repository tells how they fit together.

#![deny(unsafe_code)]

// What `tests/` has in common is used by the kernel's own tests too.
#[cfg(test)]
extern crate self as rialto;

pub mod account;
#[cfg(test)]
mod arrows;
pub mod backup;
pub mod catalog;
pub mod checkpoint;
mod commit;
mod database;
pub mod engine;
pub mod error;
#[doc(hidden)]
pub mod fault_injection;
mod foreign;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod growth;
#[cfg(test)]
mod histories;
pub mod ids;
mod inside;
#[cfg(test)]
mod interleavings;
pub mod io;
pub mod isolate;
pub mod log;
mod metrics;
mod open;
mod opening;
mod options;
mod probes;
mod records;
pub mod recovery;
pub mod reply;
pub mod row;
mod seed;
pub mod store;
pub mod txn;
mod unlikely;

pub use account::{ProcedureAccount, ProcedureId, ServerTimes, TimeAccount, TimeHistogram};
pub use backup::{BackupKind, BackupReport};
pub use catalog::{NewIndex, TableDef};
pub use checkpoint::Checkpointing;
pub use commit::Logging;
pub use commit::sweep_side::STRADDLING_RETRIES_MAX;
pub use database::{Database, LockWait, PreparedCall};
pub use engine::{
    Action, ActionMode, ActionRuns, Arguments, Engine, Executors, Flow, HandOver, Locks, MessageServer,
    Outputs, PhasePlan, Plan, Planning, Procedure, TransactionServer, TransactionServerOptions,
};
pub use error::{Error, Result};
pub use foreign::Progress;
pub use ids::{HeapId, IndexId, Lsn, TableId};
pub use isolate::LockPolicy;
pub use log::{Durability, GroupCommitDesign, GroupCommitOptions};
pub use metrics::Metrics;
pub use options::{Background, Options};
pub use records::Records;
pub use recovery::OpenError;
pub use reply::{Sent, Ticket};
pub use row::Record;
pub use store::Table;
pub use txn::{
    Canceller, Direction, Fields, IndexEntry, Isolation, KeyBound, Retries, RowKey, Rows, Savepoint, Scan,
    ScanMode, Transaction, TxOptions,
};

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
