//! Replies: how what became of a transaction reaches its caller, once the log is durable up to its place (I3).
//!
//! - `ticket`: the promise that the log will be durable up to a place;
//! - `outcome`: what a transaction gave, or how it failed, behind the ticket that says when it may be told;
//! - `completion`: where a caller finds the outcome of a call that others run, and by which it is woken;
//! - [`sent`]: a call that was sent, for its caller;
//! - `bell`: what a thread sleeps by in one wait for a future.
//!
//! Wakers are foreign code: they are cloned, woken and dropped with nothing held.

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
