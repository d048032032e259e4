//! Calls of procedures over the cluster's partitions.
//!
//! A *procedure* is installed in the program of each node. Its actions are grouped in phases; each action names the key
//! that says in which partition it runs. A program calls it by its name, at any node. If all keys of a call lie in one
//! partition, the call is sent there whole and is one transaction of that partition's database. Otherwise its actions
//! are branches of one transaction: those of other nodes are sent first, those of this node run meanwhile, and the next
//! phase begins when all have replied.
//!
//! - `procedure`: [`Procedure`], [`ProcedureAction`] and [`Procedures`], what is installed.
//! - `call`: [`Call`], what a program asks for. `numbers`: [`CallNumbers`], for calls that run at most once.
//! - `error`: [`CallError`].
//! - `work`: what goes between nodes.
//!
//! [`Transactions::call`](super::Transactions::call) runs a call.

mod call;
mod error;
mod numbers;
mod procedure;
mod work;

pub use call::{Call, CallLevel};
pub use error::CallError;
pub use numbers::CallNumbers;
pub(super) use numbers::time_of_day;
pub use procedure::{ActionInput, Outputs, Procedure, ProcedureAction, Procedures};
pub(super) use work::{CallAction, Failure, Part, words_of};
