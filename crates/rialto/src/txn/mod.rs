//! Transactions: from `begin` to a place in the log's order, and to the tables.
//!
//! - [`transaction`]: the handle; [`context`]: its working state; `savepoint`: points to roll back to;
//! - `commit`: from the last operation to the released locks; `barriers`: the barriers that a commit passes before its
//!   place; `ending`: what every end of a transaction does;
//! - `seek`: locking a key and finding its row; `unlocked`: reading without locks; `read`, [`scan`], `unique`, `write`
//!   with `insert` and `change`, [`fields`]: the operations of a body;
//! - `ddl`: definitions; `build_index`: indexes over existing rows; `ddl_state`: the tables that definitions have made,
//!   until the commit; `bulk_load`: rows into those; `rewrite` and [`moving`]: copies of tables;
//!   [`long_work`]: how far the long ones of these have come;
//! - `entries`: reads of an index without its rows; `range_sum`: sums of ranges, which copies of a database compare; `scope`: what an action may touch;
//! - `runs`: the runs of one transaction; `retries`: when it runs again; `core`: what all transactions share;
//! - `prefetch`: rows whose keys are known ahead, prefetched into the processor's cache together;
//! - `part`: a part of a transaction, which runs some actions of a phase at the same time as other parts do;
//! - [`two_stage`]: two-stage execution; `fetch`: its first stage; `fetch_ahead`: statements of handles; `pages`: operations on disk-resident tables;
//! - `sweep_side`: which side of a black/white sweep a commit is on;
//! - `redone`: packets of a log that are redone as transactions; `redo_steps`: how far that has got; [`prepared`]: transactions that have voted and wait
//!   for the decision of others;
//! - `calls`: transactions that are logged as calls of procedures.
//!
//! Kept here:
//! - **I1** an operation changes nothing that another transaction can see but placeholders: slots and index entries
//!   without a row. Another transaction that meets a placeholder waits for its transaction;
//! - **I2** `Context::commit` takes the place, then applies all, then releases all;
//! - **I3** everything read raises `Context::depends`, which replies wait for;
//! - **I7** two-phase locks on records, on absent keys by name, and on the intervals of scans (with local locks on
//!   spans); `unlocked` for transactions that only read;
//! - **I10** operations reserve slots and index entries; the commit reserves the log space before its place.

mod barriers;
mod build_index;
mod bulk_load;
pub(crate) mod calls;
pub(crate) mod cancellation;
mod canceller;
mod change;
mod commit;
pub(crate) mod committed;
pub(crate) mod context;
pub(crate) mod core;
mod ddl;
mod ddl_state;
mod ending;
mod entries;
mod fetch;
mod fetch_ahead;
pub mod fields;
mod insert;
pub(crate) mod long_work;
#[cfg(test)]
mod model;
pub(crate) mod moving;
pub mod options;
mod pages;
pub(crate) mod part;
mod prefetch;
pub(crate) mod prepared;
mod range_sum;
mod read;
pub(crate) mod redo_steps;
pub(crate) mod redone;
pub(crate) mod releases;
pub(crate) mod retries;
mod rewrite;
mod rows;
pub(crate) mod runs;
mod savepoint;
pub mod scan;
pub(crate) mod scope;
mod seek;
pub(crate) mod sweep_side;
mod sync;
pub(crate) mod transaction;
pub(crate) mod two_stage;
mod unique;
mod unlocked;
mod write;

pub use canceller::Canceller;
pub use entries::IndexEntry;
pub use fields::Fields;
pub use options::{Isolation, TxOptions};
pub use prepared::PreparedTransaction;
pub use range_sum::{RangeSum, SumRange};
pub use read::RowKey;
pub use retries::Retries;
pub use rows::Rows;
pub use savepoint::Savepoint;
pub use scan::{Direction, KeyBound, Scan, ScanMode};
pub use transaction::Transaction;
