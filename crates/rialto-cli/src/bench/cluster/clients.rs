//! The load: clients that transfer money until the time is over.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rialto::io::Random;
use rialto_measure::histogram::Latencies;
use rialto_measure::interrupt;
use rialto_measure::text::say;

use super::addresses::Addresses;
use super::args::ClusterBenchArgs;
use super::attempts::{Attempts, Outcome};
use super::bank::Bank;
use super::connection::{self, Connection};
use super::pauses::Pauses;
use crate::client::Failure;

/// What the clients have done.
#[derive(Default)]
pub struct Load {
    /// Of each client.
    pub attempts: Vec<Attempts>,
    /// Commits that were answered before the time was over.
    pub committed: u64,
    /// Of these, from the first try of a transfer to the answer.
    pub latencies: Latencies,
    /// Transactions without effect, by SQLSTATE; "connection" for those whose node has gone before COMMIT was sent.
    pub aborts: BTreeMap<String, u64>,
    /// The longest time without an answered commit.
    pub longest_pause: Duration,
}

/// What all clients share.
struct Shared<'a> {
    args: &'a ClusterBenchArgs,
    addresses: &'a Addresses,
    bank: Bank,
    began: Instant,
    pauses: Pauses,
    /// The kinds of failures that were told.
    told: Mutex<Vec<String>>,
}

impl Shared<'_> {
    /// Whether clients go on.
    fn goes_on(&self) -> bool {
        self.began.elapsed() < self.args.seconds && !interrupt::is_asked()
    }

    /// Tells of the first failure of each kind.
    fn tell(&self, failure: &Failure) {
        let name = connection::name(failure).to_owned();
        let mut told = self.told.lock().expect("no thread panics while it has the lock");
        if !told.contains(&name) {
            say(&format!("  {:.1} s: {}", self.began.elapsed().as_secs_f64(), connection::text(failure)));
            told.push(name);
        }
    }
}

/// Runs all clients, until the time is over or the run is interrupted.
///
/// # Panics
/// If a client does.
pub fn run(args: &ClusterBenchArgs, addresses: &Addresses, bank: Bank) -> Load {
    let shared = Shared {
        args,
        addresses,
        bank,
        began: Instant::now(),
        pauses: Pauses::default(),
        told: Mutex::default(),
    };
    let mut seeds = Random::new(args.seed);
    let clients: Vec<Load> = thread::scope(|scope| {
        let run = |client: u32| {
            let (shared, random) = (&shared, seeds.fork());
            scope.spawn(move || Client::new(shared, client, random).run())
        };
        let clients: Vec<_> = (0..args.clients).map(run).collect();
        clients.into_iter().map(|client| client.join().expect("no client panics")).collect()
    });
    shared.pauses.ends(args.seconds);
    let mut all = Load { longest_pause: shared.pauses.longest(), ..Load::default() };
    for client in clients {
        all.attempts.extend(client.attempts);
        all.committed += client.committed;
        all.latencies.merge(&client.latencies);
        for (name, count) in client.aborts {
            *all.aborts.entry(name).or_default() += count;
        }
    }
    all
}

/// One client.
struct Client<'a> {
    shared: &'a Shared<'a>,
    client: u32,
    random: Random,
    connection: Connection<'a>,
    attempts: Attempts,
    load: Load,
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared<'a>, client: u32, random: Random) -> Client<'a> {
        let connection = Connection::new(shared.addresses, shared.args.durability, client as usize);
        Client { shared, client, random, connection, attempts: Attempts::default(), load: Load::default() }
    }

    fn run(mut self) -> Load {
        while self.shared.goes_on() {
            self.transfer();
        }
        self.load.attempts.push(self.attempts);
        self.load
    }

    /// Runs a transfer, and runs it again while it has no effect.
    fn transfer(&mut self) {
        let Shared { args, bank, began, .. } = self.shared;
        let transfer = bank.draw(&mut self.random, args.remote_pct);
        let first = Instant::now();
        while self.shared.goes_on() {
            let statements = bank.statements(transfer, self.client, self.attempts.next_number());
            let (outcome, failure) = self.attempt(&statements);
            self.attempts.ended(outcome);
            if let Some(failure) = failure {
                self.shared.tell(&failure);
                if outcome == Outcome::Aborted {
                    *self.load.aborts.entry(connection::name(&failure).to_owned()).or_default() += 1;
                }
                self.connection.recover(&failure);
            }
            match outcome {
                Outcome::Aborted => {}
                Outcome::Unknown => return,
                Outcome::Answered => {
                    self.connection.succeeded();
                    let at = began.elapsed();
                    if at <= args.seconds {
                        self.shared.pauses.ends(at);
                        self.load.committed += 1;
                        self.load.latencies.record(first.elapsed());
                    }
                    return;
                }
            }
        }
    }

    /// One transaction, and why it is not known to have committed.
    fn attempt(&mut self, statements: &str) -> (Outcome, Option<Failure>) {
        if let Err(failure) = self.connection.query(statements, |_| ()) {
            return (Outcome::Aborted, Some(failure));
        }
        match self.connection.query("COMMIT", |_| ()) {
            Ok(()) => (Outcome::Answered, None),
            Err(failure) if connection::is_certain(&failure) => (Outcome::Aborted, Some(failure)),
            Err(failure) => (Outcome::Unknown, Some(failure)),
        }
    }
}
