//! [`Slice`]: one engine's clients for some seconds.
//!
//! The clients are those of `rialto bench` ([`drive`]): their threads, their phases, and, in an open loop, their intended
//! starts from which latencies count.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto_measure::driver::{Ended, Load, Observer, Pending, Workload, drive};
use rialto_measure::histogram::Percentiles;

use crate::engine::{Client, Engine};
use crate::error::{PeerError, Result};

/// What clients do in a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// How many; each is a thread that blocks for its commit.
    pub clients: u32,
    /// Transactions a second, over all clients; `None` for a closed loop.
    pub rate: Option<f64>,
    /// How long, after a tenth of it as warm-up.
    pub time: Duration,
    /// Other seeds give other transactions.
    pub seed: u64,
}

/// What one slice measured.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Transactions a second that committed in the window.
    pub per_s: f64,
    /// The share that these are of all that was due; 1 in a closed loop.
    pub kept_up: f64,
    /// Their latencies; in an open loop with those that were due and not done at its end.
    pub percentiles: Percentiles,
    /// All that committed, those of the warm-up included.
    pub committed: u64,
}

/// An engine's clients, as the driver runs them.
struct Clients<'a> {
    made: Mutex<Vec<Option<Box<dyn Client + 'a>>>>,
    /// The driver's own errors are the kernel's.
    failure: Mutex<Option<PeerError>>,
}

/// Engines give no tickets here: what is submitted is done.
struct Done;

impl Future for Done {
    type Output = rialto::Result<()>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<rialto::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Pending for Done {
    type Answer = rialto::Result<()>;

    fn is_done(&mut self) -> bool {
        true
    }

    fn wait(self) -> rialto::Result<()> {
        Ok(())
    }
}

impl<'a> Workload for Clients<'a> {
    type Client = Box<dyn Client + 'a>;
    type Ticket = Done;

    fn procedures(&self) -> &'static [&'static str] {
        &["tpcb"]
    }

    fn client(&self, number: u32, _seed: u64) -> Box<dyn Client + 'a> {
        let mut made = self.made.lock().expect("nobody panics with it");
        made[number as usize].take().expect("each client is asked for once")
    }

    fn run_one(&self, client: &mut Box<dyn Client + 'a>, now: Instant) -> rialto::Result<usize> {
        client.transact(now).map(|()| 0).map_err(|error| {
            self.failure.lock().expect("nobody panics with it").get_or_insert(error);
            rialto::Error::Closed
        })
    }

    fn submit_one(&self, client: &mut Box<dyn Client + 'a>, now: Instant) -> rialto::Result<(usize, Done)> {
        self.run_one(client, now).map(|procedure| (procedure, Done))
    }

    fn settle(&self, _: &mut Box<dyn Client + 'a>, outcome: rialto::Result<()>) -> rialto::Result<()> {
        outcome
    }
}

/// Looks at nothing.
struct Nobody;

impl Observer for Nobody {
    fn window_begins(&mut self, _committed: u64, _warmed_up: Duration) -> std::result::Result<(), String> {
        Ok(())
    }

    fn window_ends(&mut self) {}

    fn slice(&mut self, _took: Duration, _committed: u64) {}

    fn tick(&mut self, _open: Option<Duration>, _committed_per_s: f64) {}
}

impl Offer {
    /// The seed of one client. It is drawn: from seeds that are a step of the generator apart, all clients would draw the
    /// same numbers, one after the other, and what one of them has read would be in memory for the others.
    pub fn seed_of(&self, number: u32) -> u64 {
        Random::new(self.seed ^ (u64::from(number) << 40)).next()
    }
}

/// Runs an engine's clients for the time.
///
/// # Errors
/// If a client fails, or none finishes a transaction in the window.
pub fn slice(engine: &dyn Engine, offer: Offer) -> Result<Slice> {
    let clients = (0..offer.clients).map(|number| engine.client(offer.seed_of(number)));
    run(clients.collect::<Result<_>>()?, offer)
}

/// Runs these clients for the time.
///
/// # Errors
/// As [`slice`](fn@slice).
pub fn run<'a>(clients: Vec<Box<dyn Client + 'a>>, offer: Offer) -> Result<Slice> {
    let made = clients.into_iter().map(Some).collect();
    let Offer { clients, rate, time, seed } = offer;
    let workload = Clients { made: Mutex::new(made), failure: Mutex::new(None) };
    let load = Load { clients, in_flight: 1, rate, warmup: time / 10, window: time, seed };
    let outcome = match drive(&workload, &load, &mut Nobody) {
        Ok(outcome) => outcome,
        Err(ended) => {
            let failure = workload.failure.into_inner().expect("nobody panics with it");
            let cause = match ended {
                Ended::Failed(error) => error.to_string(),
                Ended::Refused(reason) => reason,
                Ended::Interrupted => "interrupted".to_owned(),
            };
            return Err(failure.unwrap_or(PeerError::Usage(cause)));
        }
    };
    let none = || {
        let seconds = time.as_secs_f64();
        PeerError::Usage(format!("no transaction ended within {seconds} s: expected a longer --seconds"))
    };
    let all = outcome.all_latencies();
    Ok(Slice {
        per_s: outcome.committed() as f64 / outcome.window.as_secs_f64(),
        percentiles: all.percentiles().ok_or_else(none)?,
        kept_up: outcome.committed() as f64 / all.count() as f64,
        committed: outcome.acknowledged,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::tpcb::Sums;

    /// Takes a millisecond, counts, and fails at its limit.
    struct Counter {
        begun: AtomicU64,
        limit: u64,
    }

    impl Engine for Counter {
        fn client<'a>(&'a self, _seed: u64) -> Result<Box<dyn Client + 'a>> {
            Ok(Box::new(self))
        }

        fn audit(&self) -> Result<Sums> {
            Ok(Sums { history_rows: self.begun.load(Ordering::Relaxed), ..Sums::default() })
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    impl Client for &Counter {
        fn transact(&mut self, _now: Instant) -> Result<()> {
            std::thread::sleep(Duration::from_millis(1));
            if self.begun.fetch_add(1, Ordering::Relaxed) >= self.limit {
                return Err(PeerError::Usage("the limit".to_owned()));
            }
            Ok(())
        }
    }

    fn offer(rate: Option<f64>, time: Duration) -> Offer {
        Offer { clients: 3, rate, time, seed: 1 }
    }

    #[test]
    fn all_that_committed_is_counted_and_latencies_are_the_clients_own() {
        let engine = Counter { begun: AtomicU64::new(0), limit: u64::MAX };
        let slice = slice(&engine, offer(None, Duration::from_millis(100))).unwrap();
        assert_eq!(engine.audit().unwrap().history_rows, slice.committed);
        assert!(slice.per_s > 0.0 && slice.percentiles.p50_us >= 1_000.0, "{slice:?}");
        assert_eq!(slice.kept_up, 1.0);
    }

    #[test]
    fn an_open_loop_runs_at_its_rate_and_waits_in_line_beyond_what_the_engine_can_do() {
        let time = Duration::from_millis(400);
        let engine = Counter { begun: AtomicU64::new(0), limit: u64::MAX };
        let calm = slice(&engine, offer(Some(200.0), time)).unwrap();
        assert!((100.0..320.0).contains(&calm.per_s), "{calm:?}");
        // Three clients of a millisecond each do at most 3,000 a second.
        let flooded = slice(&engine, offer(Some(30_000.0), time)).unwrap();
        assert!(calm.kept_up > 0.8 && flooded.kept_up < 0.3, "{calm:?}, {flooded:?}");
        assert!(flooded.per_s <= 3_100.0 && flooded.percentiles.p50_us > 100_000.0, "{flooded:?}");
    }

    #[test]
    fn clients_draw_different_numbers() {
        let offer = Offer { clients: 64, ..offer(None, Duration::from_secs(1)) };
        let draws = |number| {
            let mut random = Random::new(offer.seed_of(number));
            (0..1_000).map(move |_| random.next())
        };
        let all: std::collections::HashSet<u64> = (0..offer.clients).flat_map(draws).collect();
        assert_eq!(all.len(), 64_000);
    }

    #[test]
    fn a_failure_of_one_client_ends_the_slice() {
        let engine = Counter { begun: AtomicU64::new(0), limit: 5 };
        let error = slice(&engine, offer(None, Duration::from_secs(3_600))).unwrap_err();
        assert_eq!(error.to_string(), "the limit");
    }
}
