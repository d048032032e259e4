//! The seam between clients and what they run, [`Workload`], between a run and whoever puts the load on it, [`Driven`], and
//! between a run and what it leaves in tables, [`Audited`].
//! Another workload is another type.

#[cfg(test)]
pub(crate) mod meddled;

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use rialto::engine::servers::TransactionServerStats;
use rialto::row::Value;
use rialto::{Result, Sent, Ticket};

use crate::driver::{self, Ended, Load, Observer, Outcome};
use crate::report::ServersSetting;
use crate::tpcb;

/// A submitted transaction, on its way to being durable.
pub trait Pending: Future<Output = Self::Answer> + Unpin {
    /// What its client is told in the end.
    type Answer;

    /// Whether the answer is there.
    fn is_done(&mut self) -> bool;
    /// Waits for the answer.
    fn wait(self) -> Self::Answer;
}

/// What a client has submitted: `N` is what it notes of a call until the answer is there.
pub enum Submitted<N> {
    /// A transaction that has its place; what it gave the client knows.
    Placed(Ticket),
    /// A call that may still be with the executors. In a box: clients keep hundreds of these, most of them tickets.
    Sent(Box<(Sent, N)>),
}

impl<N> Submitted<N> {
    /// Of a call.
    pub fn sent(sent: Sent, note: N) -> Submitted<N> {
        Submitted::Sent(Box::new((sent, note)))
    }
}

/// The answer to what was [`Submitted`].
pub enum Answer<N> {
    /// To a transaction that had its place.
    Placed(Result<()>),
    /// To a call.
    Called(N, Result<Vec<Value>>),
}

impl<N: Copy + Unpin> Future for Submitted<N> {
    type Output = Answer<N>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<N>> {
        Poll::Ready(match self.get_mut() {
            Submitted::Placed(ticket) => Answer::Placed(ready!(Pin::new(ticket).poll(context))),
            Submitted::Sent(call) => {
                let (sent, note) = &mut **call;
                Answer::Called(*note, ready!(Pin::new(sent).poll(context)))
            }
        })
    }
}

impl<N: Copy + Unpin> Pending for Submitted<N> {
    type Answer = Answer<N>;

    #[inline]
    fn is_done(&mut self) -> bool {
        match self {
            Submitted::Placed(ticket) => ticket.poll_done().is_some(),
            Submitted::Sent(call) => call.0.is_done(),
        }
    }

    fn wait(self) -> Answer<N> {
        match self {
            Submitted::Placed(ticket) => Answer::Placed(ticket.wait()),
            Submitted::Sent(call) => {
                let (sent, note) = *call;
                Answer::Called(note, sent.wait())
            }
        }
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

/// Whether the data is consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// It is.
    pub consistent: bool,
    /// What was found, for people.
    pub text: String,
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
        driver::drive(self, load, observer)
    }
}

/// A load on tables, with a consistency condition of its own.
pub trait Audited: Driven {
    /// The name on the command line.
    const NAME: &'static str;
    /// What results are headed with.
    const TITLE: &'static str;
    /// What its data is called.
    const DATA: &'static str;
    /// How many of a hundred transactions of each type succeed by the workload's specification, if it says so: the others
    /// abort by themselves.
    const SUCCESS_PERCENT: Option<&'static [f64]> = None;

    /// What a pass over all tables finds.
    type Audit;

    /// Memory that a transaction adds, in bytes.
    fn memory_per_transaction(&self) -> f64;

    /// The sizes and shares of this run, for people.
    fn describe(&self) -> String;

    /// The bank that the bare map of `--limits` has the transactions of; `None` if it does not have this workload's.
    fn bank(&self) -> Option<tpcb::Shape>;

    /// Reads all tables.
    ///
    /// # Errors
    /// What a read can meet.
    fn audit(&self) -> Result<Self::Audit>;

    /// Judges what was found `after` transactions that all clients together ran since `before`: at least as many as
    /// were acknowledged, at most as many as were begun.
    fn verdict(
        &self,
        before: &Self::Audit,
        after: &Self::Audit,
        transactions: RangeInclusive<u64>,
    ) -> Verdict;
}

/// A load on the tables of another, put on them in its own way: all that is of the tables is the other's.
pub trait Wraps: Driven {
    /// The other.
    type Inner: Audited;

    /// The other.
    fn inner(&self) -> &Self::Inner;
}

impl<W: Wraps> Audited for W {
    const NAME: &'static str = W::Inner::NAME;
    const TITLE: &'static str = W::Inner::TITLE;
    const DATA: &'static str = W::Inner::DATA;
    const SUCCESS_PERCENT: Option<&'static [f64]> = W::Inner::SUCCESS_PERCENT;

    type Audit = <W::Inner as Audited>::Audit;

    fn memory_per_transaction(&self) -> f64 {
        self.inner().memory_per_transaction()
    }

    fn describe(&self) -> String {
        self.inner().describe()
    }

    fn bank(&self) -> Option<tpcb::Shape> {
        self.inner().bank()
    }

    fn audit(&self) -> Result<Self::Audit> {
        self.inner().audit()
    }

    fn verdict(
        &self,
        before: &Self::Audit,
        after: &Self::Audit,
        transactions: RangeInclusive<u64>,
    ) -> Verdict {
        self.inner().verdict(before, after, transactions)
    }
}
