//! [`Meddled`]: a workload whose tables are changed behind its clients in the middle of a run, for tests of its consistency condition.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rialto::Result;
use rialto_measure::driver::{Pending, Workload};
use rialto_workloads::workload::{Audited, Wraps};

/// A workload, and what is done to its tables once.
pub struct Meddled<W, M> {
    inner: W,
    /// It is done before the transaction that takes this from 1 to 0.
    left: AtomicU64,
    meddle: M,
}

impl<W, M: Fn() + Sync> Meddled<W, M> {
    /// Of this workload, before its transaction of this number, counted from 1.
    pub fn new(inner: W, left: u64, meddle: M) -> Meddled<W, M> {
        Meddled { inner, left: AtomicU64::new(left), meddle }
    }
}

impl<W: Workload, M: Fn() + Sync> Workload for Meddled<W, M> {
    type Client = W::Client;
    type Ticket = W::Ticket;

    fn procedures(&self) -> &'static [&'static str] {
        self.inner.procedures()
    }

    fn client(&self, number: u32, seed: u64) -> W::Client {
        self.inner.client(number, seed)
    }

    fn run_one(&self, client: &mut W::Client, now: Instant) -> Result<usize> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.meddle)();
        }
        self.inner.run_one(client, now)
    }

    fn submit_one(&self, client: &mut W::Client, now: Instant) -> Result<(usize, W::Ticket)> {
        self.inner.submit_one(client, now)
    }

    fn settle(&self, client: &mut W::Client, answer: <W::Ticket as Pending>::Answer) -> Result<()> {
        self.inner.settle(client, answer)
    }

    fn retire(&self, client: W::Client) {
        self.inner.retire(client);
    }
}

impl<W: Audited + Workload, M: Fn() + Sync> Wraps for Meddled<W, M> {
    type Inner = W;

    fn inner(&self) -> &W {
        &self.inner
    }
}
