//! Message servers that generate requests (System M, section 2.2): each is a thread that puts requests on the request queue
//! as fast as that takes them, and takes the responses from a queue of its own.
//!
//! A response time runs from the put on the request queue to the take of the response. Most of it is time in the
//! request queue, which is always full. So a longer queue means longer response times, and from some length on it does
//! not raise throughput any more (section 4.3).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rialto::{Error, Result};

use super::client::Done;
use super::{Batch, Ended, Load, Observer, Outcome, Phase, Shared, drive_threads};
use crate::confidence::BATCHES;
use crate::usage::Usage;

/// A response, taken from the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The transaction's type.
    pub procedure: usize,
    /// From the request's put to now.
    pub response_time: Duration,
    /// When it was taken.
    pub at: Instant,
    /// What came of it.
    pub outcome: Result<()>,
}

/// What runs behind a request queue.
pub trait Served: Sync {
    /// What one message server has to itself.
    type Desk: Send;

    /// The names of the transaction types; the others are given by their position here.
    fn types(&self) -> &'static [&'static str];

    /// The state of message server `number`, from a seed.
    fn desk(&self, number: u32, seed: u64) -> Self::Desk;

    /// Puts the next request on the queue; false if that is full, and the same request is for the next call.
    ///
    /// # Errors
    /// If there is no server any more.
    fn put(&self, desk: &mut Self::Desk) -> Result<bool>;

    /// Takes a response, if one is there.
    fn take(&self, desk: &mut Self::Desk) -> Option<Taken>;

    /// Sleeps until a response is there, or room if the queue was full. Returns at once if neither is to come.
    fn wait(&self, desk: &mut Self::Desk);

    /// Requests whose responses were not taken yet.
    fn outstanding(&self, desk: &Self::Desk) -> usize;

    /// Takes back the state of a message server that is done.
    fn retire(&self, desk: Self::Desk);
}

/// Runs `load.clients` message servers. Returns when every request that was put has its response.
///
/// # Errors
/// The first failure of a transaction, or the observer's.
pub fn drive<S: Served>(served: &S, load: &Load, observer: &mut dyn Observer) -> Result<Outcome, Ended> {
    drive_threads(served.types(), load, observer, "message-server", |shared, number| {
        run(served, load, shared, number)
    })
}

struct MessageServer<'a, S: Served> {
    served: &'a S,
    desk: S::Desk,
    shared: &'a Shared,
    number: u32,
    window: Duration,
    done: Done,
    switches_before: Option<Option<Usage>>,
}

fn run<S: Served>(served: &S, load: &Load, shared: &Shared, number: u32) -> Done {
    let done = Done { batches: vec![Batch::default(); BATCHES], ..Done::new(served.types().len()) };
    let desk = served.desk(number, load.seed);
    let mut server =
        MessageServer { served, desk, shared, number, window: load.window, done, switches_before: None };
    if let Err(error) = server.serve() {
        shared.end();
        server.done.failed = Some(error);
    }
    if let Some(before) = server.switches_before {
        server.done.switches = Usage::of_thread().zip(before).map(|(now, before)| now.since(before));
    }
    let MessageServer { desk, done, .. } = server;
    served.retire(desk);
    done
}

impl<S: Served> MessageServer<'_, S> {
    fn serve(&mut self) -> Result<()> {
        while self.shared.phase() != Phase::End {
            let is_put = self.served.put(&mut self.desk)?;
            self.done.attempted += u64::from(is_put);
            let taken = self.take_all()?;
            if !is_put && taken == 0 {
                self.served.wait(&mut self.desk);
            }
        }
        while self.served.outstanding(&self.desk) > 0 {
            self.served.wait(&mut self.desk);
            self.take_all()?;
        }
        Ok(())
    }

    fn take_all(&mut self) -> Result<usize> {
        let mut taken = 0;
        while let Some(response) = self.served.take(&mut self.desk) {
            taken += 1;
            self.settle(response)?;
        }
        Ok(taken)
    }

    fn settle(&mut self, taken: Taken) -> Result<()> {
        let phase = self.shared.phase();
        match taken.outcome {
            Ok(()) => {}
            Err(Error::Aborted { .. }) => {
                self.done.aborted_user += u64::from(phase == Phase::Window);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.done.acknowledged += 1;
        let cell = &self.shared.cells[self.number as usize];
        cell.committed.store(self.done.acknowledged, Ordering::Relaxed);
        if phase != Phase::Window {
            return Ok(());
        }
        if self.switches_before.is_none() {
            self.switches_before = Some(Usage::of_thread());
        }
        self.done.latencies[taken.procedure].record(taken.response_time);
        if let Some(begun) = self.shared.window_begin.get() {
            let share = taken.at.saturating_duration_since(*begun).as_secs_f64() / self.window.as_secs_f64();
            // The window may be open a moment longer than it was meant to.
            let batch = ((share * BATCHES as f64) as usize).min(BATCHES - 1);
            self.done.batches[batch].add(taken.response_time);
        }
        Ok(())
    }
}
