//! The seam between clients and what they run. Another workload is another type.

use std::future::Future;
use std::time::Instant;

use rialto::{Result, Ticket};

/// An outcome on its way to being durable.
pub trait Pending: Future<Output = Result<()>> + Unpin {
    /// The outcome, if it is there.
    fn poll_done(&self) -> Option<Result<()>>;
    /// Waits for the outcome.
    fn wait(self) -> Result<()>;
}

impl Pending for Ticket {
    fn poll_done(&self) -> Option<Result<()>> {
        Ticket::poll_done(self)
    }

    fn wait(self) -> Result<()> {
        Ticket::wait(self)
    }
}

/// What clients run.
pub trait Workload: Sync {
    /// A client's own state: its random numbers, its buffers.
    type Client: Send;
    /// What a submitted transaction gives back.
    type Ticket: Pending;

    /// The names of the transaction types; the others are given by their position here.
    fn procedures(&self) -> &'static [&'static str];

    /// The state of client `number`, from a seed.
    fn client(&self, number: u32, seed: u64) -> Self::Client;

    /// Runs one transaction until its outcome is durable; `now` is the time. Returns the transaction's type.
    ///
    /// # Errors
    /// [`Error::Aborted`](rialto::Error::Aborted) is the transaction's own abort; the run goes on after it and after a
    /// deadlock. Any other error ends the run.
    fn run_one(&self, client: &mut Self::Client, now: Instant) -> Result<usize>;

    /// Runs one transaction and does not wait for the log.
    ///
    /// # Errors
    /// As [`run_one`](Workload::run_one).
    fn submit_one(&self, client: &mut Self::Client, now: Instant) -> Result<(usize, Self::Ticket)>;
}
