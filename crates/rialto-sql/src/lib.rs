//! SQL for Rialto: parse, bind, plan, run.
//!
//! A [`Session`] is one client's view of a database: it prepares statements ([`Session::prepare`]), runs them
//! ([`Session::execute`]) and keeps the state of its transaction. It uses no socket. It waits for locks, and at the
//! end of a transaction until the log is as durable as the outcome needs (invariant I3: no outcome is given before
//! that).
//!
//! [`parse`] turns text into a statement, [`bind`] turns names into columns, [`plan`] turns conditions into an access
//! path, and [`run`] executes the statement in a transaction. `docs/sql.md` lists what is accepted; everything else is
//! refused by name.

pub mod bind;
mod cancel;
pub mod copy;
pub mod error;
pub mod expr;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod keys;
pub mod parse;
pub mod partitions;
pub mod plan;
pub mod prepared;
pub mod room;
pub mod run;
pub mod session;
pub mod sqlstate;
mod timer;
pub mod values;

pub use bind::OutputColumn;
pub use cancel::Cancel;
pub use copy::CopyIn;
pub use error::{About, Result, Severity, SqlError};
pub use prepared::Prepared;
pub use run::RowSink;
pub use session::{Closing, ReadStatement, Ready, Session, Tag, TransactionStatus};
pub use sqlstate::SqlState;
pub use values::SqlType;

/// The version that clients are told, so that they use the features of PostgreSQL 15.
pub const SERVER_VERSION: &str = "15.0 (Rialto 0.1.0)";
