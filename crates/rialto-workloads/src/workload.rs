//! The tables after a run, and how they are judged ([`Audited`]); the transaction that a client has submitted
//! ([`Submitted`]).

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rialto::io::Random;
use rialto::row::Value;
use rialto::{Result, Sent, Ticket};
use rialto_measure::driver::{Driven, Pending};
use rialto_measure::limits::Bank;

/// The random choices of client `number`, from a run's seed.
pub(crate) fn random_of(number: u32, seed: u64) -> Random {
    Random::new(seed ^ (u64::from(number) + 1).wrapping_mul(0x9e6c_63d0_876a_68dd))
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

/// Whether the data is consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// It is.
    pub consistent: bool,
    /// What was found, for people.
    pub text: String,
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
    fn bank(&self) -> Option<Bank>;

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

    fn bank(&self) -> Option<Bank> {
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
