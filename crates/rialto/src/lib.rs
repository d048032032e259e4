//! Rialto is a transaction processing engine. Tables live in memory or, if they are larger, in pages on disk. A commit
//! is acknowledged when its log record is durable. Every transaction is serializable, range scans and secondary indexes
//! included.
//!
//! ```
//! use rialto::{Database, Error, Record, Records};
//!
//! #[derive(Record)]
//! #[record(table = "accounts")]
//! struct Account {
//!     #[record(key)]
//!     id: i32,
//!     balance: i64,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("rialto-front-page-{}", std::process::id()));
//! let db = Database::open(&directory)?; // creates the database if the directory has none
//! let accounts: Records<Account> = db.records()?; // creates the table if it is missing
//!
//! // One serializable transaction. The closure may run several times.
//! db.transact(|tx| {
//!     accounts.insert(tx, &Account { id: 1, balance: 100 })?;
//!     accounts.insert(tx, &Account { id: 2, balance: 100 })
//! })?; // now both rows are on disk
//!
//! // `submit` does not wait for the disk. The caller waits for the ticket, which is also a future.
//! let (balance, ticket) = db.submit(|tx| {
//!     let mut account = accounts.get(tx, 1)?.ok_or_else(|| Error::aborted("no such account"))?;
//!     account.balance -= 30;
//!     accounts.update(tx, &account)?;
//!     Ok(account.balance)
//! })?;
//! assert_eq!(balance, 70);
//! ticket.wait()?;
//!
//! let other = db.read(|tx| accounts.get(tx, 2))?;
//! assert_eq!(other.map(|account| account.balance), Some(100));
//! db.close()?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! | to | begin with |
//! |---|---|
//! | open and close a database | [`Database::open`], [`Options`], [`Database::close`] |
//! | make rows of a struct's values | [`Record`], [`Records`] |
//! | define tables without a struct | [`TableDef`], [`Transaction::create_table`] |
//! | read and write | [`Database::transact`], [`Database::read`], [`Transaction`], [`Scan`] |
//! | keep many commits in progress | [`Database::submit`], [`Ticket`] |
//! | choose how durable a commit is | [`Durability`], [`TxOptions`] |
//! | call registered procedures | [`Procedure`], [`Action`], [`Database::call`] |
//! | choose how transactions are assigned to threads | [`Engine`], [`Executors`] |
//! | handle errors | [`Error`], [`OpenError`] |
//! | keep a copy that can take over | [`Database::copy_to`], [`Follower`] |
//! | back up and restore | [`Database::backup`], [`backup::Restore`] |
//! | watch a database | [`Database::metrics`], [`Database::lock_waits`] |
//!
//! The folder `examples` of the crate has six programs. Each is run from the repository by the command beside it:
//!
//! - `cargo run -p rialto --example derive` makes rows of a struct's values, and reads them by a secondary index;
//! - `cargo run -p rialto --example embedded` creates a table without a struct, changes its rows and scans them;
//! - `cargo run -p rialto --example tickets` keeps many commits in progress from one thread, and awaits tickets in an
//!   async task;
//! - `cargo run -p rialto --example procedure` registers a procedure of two phases, and calls it by its name;
//! - `cargo run -p rialto --example follower` has a copy of a database take its log, answer reads, and take over;
//! - `cargo run -p rialto --example recovery` kills a process while it commits, recovers the database, and checks that
//!   every acknowledged commit is there.
//!
//! README and the folder `docs` of the repository are for users. The crate's folders are the stages of a transaction's
//! life; ARCHITECTURE.md explains how they fit together.

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
#[cfg(test)]
mod type_names;
mod unlikely;

pub use account::{PageCounts, ProcedureAccount, ProcedureId, ServerTimes, TimeAccount, TimeHistogram};
pub use backup::{BackupKind, BackupOptions, BackupReport, CutMeeting};
pub use catalog::{NewIndex, Residence, TableDef};
pub use checkpoint::Checkpointing;
pub use commit::Logging;
pub use commit::sweep_side::STRADDLING_RETRIES_MAX;
pub use database::{Database, Follower, LockWait, MoveOptions, PreparedCall};
pub use engine::{
    Action, ActionMode, ActionRuns, Arguments, Engine, Executors, Flow, HandOver, Locks, MessageServer,
    Outputs, PhasePlan, Plan, Planning, Procedure, TransactionServer, TransactionServerOptions,
};
pub use error::{Error, Result};
pub use foreign::Progress;
pub use ids::{HeapId, IndexId, Lsn, TableId};
pub use isolate::{LockGrain, LockPolicy};
pub use log::{Durability, GroupCommitDesign, GroupCommitOptions};
pub use metrics::Metrics;
pub use options::{Background, Options};
pub use records::Records;
pub use recovery::OpenError;
pub use reply::{Sent, Ticket};
pub use row::Record;
pub use store::{PageStats, Table};
pub use txn::two_stage::{TwoStage, TwoStageAccount};
pub use txn::{
    Canceller, Direction, Fields, IndexEntry, Isolation, KeyBound, PreparedTransaction, RangeSum, Retries,
    RowKey, Rows, Savepoint, Scan, ScanMode, SumRange, Transaction, TxOptions,
};

/// The examples of README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So do those of the page on embedding.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

/// And those of the page on the data-oriented engine.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/data-oriented.md")]
struct DataOriented;

/// And those of the crates' own pages.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../rialto-derive/README.md")]
struct Crates;
