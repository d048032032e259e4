//! Replies: how the outcome of a transaction reaches its caller, once the log is durable up to its place (I3).
//!
//! - `ticket`: the promise that the log will be durable up to a place;
//! - `outcome`: a transaction's result or its failure, with the ticket that says when it may be returned;
//! - `completion`: where a caller finds the outcome of a call that other threads run, and which wakes the caller;
//! - [`sent`]: a call that was sent, for its caller;
//! - `bell`: a thread sleeps on it while it waits for a future.
//!
//! Wakers are code of the program's: they are cloned, woken and dropped while their thread holds no latch and no lock.

mod bell;
mod completion;
mod outcome;
pub mod sent;
mod ticket;

pub(crate) use completion::{Completes, Completion};
pub(crate) use outcome::{Failure, Outcome};
pub use sent::Sent;
pub use ticket::Ticket;
pub(crate) use ticket::{LogLease, TicketAccount};
