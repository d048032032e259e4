//! The interface between clients and what they run ([`Workload`]), and between a run and what puts the load on it
//! ([`Driven`]).

use std::future::Future;
use std::time::Instant;

use rialto::engine::servers::TransactionServerStats;
use rialto::{Error, Result};

use super::virtual_machine::{self, VirtualMachine};
use super::{Ended, Load, Observer, Outcome, drive};

/// A submitted transaction, on its way to being durable.
pub trait Pending: Future<Output = Self::Answer> + Unpin {
    /// What its client is told in the end.
    type Answer;

    /// Whether the answer is there.
    fn is_done(&mut self) -> bool;
    /// Waits for the answer.
    fn wait(self) -> Self::Answer;
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

    /// Runs one transaction and does not wait for the log, nor for executors that it is sent to. Returns its type.
    ///
    /// # Errors
    /// As [`run_one`](Workload::run_one), for a transaction that ran here.
    fn submit_one(&self, client: &mut Self::Client, now: Instant) -> Result<(usize, Self::Ticket)>;

    /// Takes the answer to what a client submitted.
    ///
    /// # Errors
    /// As [`run_one`](Workload::run_one).
    fn settle(&self, client: &mut Self::Client, answer: <Self::Ticket as Pending>::Answer) -> Result<()>;

    /// Takes back the state of a client that is done.
    fn retire(&self, client: Self::Client) {
        drop(client);
    }
}

/// What a load can be put on: by clients that run transactions, or by message servers.
pub trait Driven: Sync {
    /// The names of the transaction types.
    fn types(&self) -> &'static [&'static str];

    /// Runs it. Returns when every transaction that was begun has its outcome.
    ///
    /// # Errors
    /// The first failure of a client, or the observer's.
    fn drive(&self, load: &Load, observer: &mut dyn Observer) -> std::result::Result<Outcome, Ended>;

    /// The same on a virtual machine.
    ///
    /// # Errors
    /// As [`Driven::drive`]; that it is not built.
    fn drive_on(
        &self,
        _machine: &VirtualMachine,
        _load: &Load,
        _observer: &mut dyn Observer,
    ) -> std::result::Result<Outcome, Ended> {
        Err(Ended::Failed(Error::Unsupported { what: "servers on a virtual machine".to_owned() }))
    }

    /// The servers that requests go through, if they do.
    fn servers(&self) -> Option<ServersSetting> {
        None
    }

    /// What the transaction server has done, if there is one.
    fn server_stats(&self) -> TransactionServerStats {
        TransactionServerStats::default()
    }
}

impl<W: Workload> Driven for W {
    fn types(&self) -> &'static [&'static str] {
        self.procedures()
    }

    fn drive(&self, load: &Load, observer: &mut dyn Observer) -> std::result::Result<Outcome, Ended> {
        drive(self, load, observer)
    }

    fn drive_on(
        &self,
        machine: &VirtualMachine,
        load: &Load,
        observer: &mut dyn Observer,
    ) -> std::result::Result<Outcome, Ended> {
        virtual_machine::drive_on(self, machine, load, observer)
    }
}

/// A transaction server and its message servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServersSetting {
    /// Message servers.
    pub message_servers: u32,
    /// The length of the request queue.
    pub queue: usize,
    /// Standby executors.
    pub standbys: usize,
}
