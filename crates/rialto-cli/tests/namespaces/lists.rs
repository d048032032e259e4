//! [`Lists`]: clients that read lists and append to them, in transactions over several partitions. The kernel's checker
//! judges what they have seen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rialto::io::Random;
use rialto::{Durability, Engine};

use crate::client::{Failure, Session, at_address_within};
use crate::history::checker;
use crate::history::observed::{
    Attempt, Clock, End, Event, Found, Key, Life, Outcome, Row, State, VERSIONS_EACH, Values, text_of,
    versions_in,
};

/// The lists. They lie in several partitions, by their numbers.
const KEYS: i32 = 8;
/// The clients.
const CLIENTS: u64 = 4;
/// What all rows have beside their lists.
const VALUES: Values = Values { part: 0, tag: None };
/// For how long a client waits for a node.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Some time between transactions, so that a history stays of a size that can be checked.
const PAUSE: Duration = Duration::from_millis(15);
/// The refusals of a COMMIT after which it has certainly had no effect.
const WITHOUT_EFFECT: [&str; 6] = ["40001", "40P01", "55P03", "57P03", "53000", "53100"];

/// Clients that run.
pub struct Lists {
    addresses: Vec<String>,
    attempts: Arc<Mutex<Vec<Attempt>>>,
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    first: State,
}

/// What the clients have done.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    pub committed: usize,
    pub unknown: usize,
}

impl Lists {
    /// Makes the lists, each with one version, and has clients begin.
    pub fn begin(addresses: Vec<String>) -> Lists {
        let mut first = State::new();
        let mut session = begin(&addresses[0]).expect("the cluster serves");
        session
            .query("CREATE TABLE lists (id int PRIMARY KEY, items text NOT NULL)", |_| ())
            .expect("it serves");
        for id in 0..KEYS {
            let versions = vec![id as u64 + 1];
            let insert = format!("INSERT INTO lists VALUES ({id}, '{}')", text_of(&versions));
            session.query(&insert, |_| ()).expect("the cluster serves");
            first.insert(Key { table: 0, id }, Found { versions, values: Some(VALUES), in_grave: 0 });
        }
        let seed = Random::seed_from_environment();
        println!("RIALTO_SEED={seed}");
        let (mut seeds, clock) = (Random::new(seed), Arc::new(Clock::default()));
        let (attempts, ends) = (Arc::<Mutex<Vec<Attempt>>>::default(), Arc::new(AtomicBool::new(false)));
        let clients = (0..CLIENTS).map(|nth| {
            let (addresses, random, clock) = (addresses.clone(), seeds.fork(), clock.clone());
            let (attempts, ends) = (Arc::clone(&attempts), Arc::clone(&ends));
            let level = if nth % 2 == 0 { "standby" } else { "disk" };
            thread::spawn(move || {
                let mut client = Client { addresses, at: nth as usize, session: None, random, clock, level };
                while !ends.load(Ordering::Relaxed) {
                    let attempt = client.attempt();
                    attempts.lock().expect("no client panics").push(attempt);
                    thread::sleep(PAUSE);
                }
            })
        });
        let clients = clients.collect();
        Lists { addresses, attempts, ends, clients, first }
    }

    /// How many transactions have committed so far.
    pub fn committed(&self) -> usize {
        self.attempts
            .lock()
            .expect("no client panics")
            .iter()
            .filter(|of| matches!(of.outcome, Outcome::Committed { .. }))
            .count()
    }

    /// Ends the clients, reads the lists, and has all of it be judged: it is strictly serializable, and what was answered
    /// is there.
    pub fn judge(self) -> Tally {
        self.ends.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().expect("no client panics"));
        let mut last = State::new();
        let mut session = begin(&self.addresses[0]).expect("the cluster serves");
        let read = session.query("SELECT id, items FROM lists", |row| {
            let (id, items) = (row[0].expect("a number"), row[1].expect("a list"));
            let key = Key { table: 0, id: id.parse().expect("a number") };
            let versions = versions_in(items).expect("a list");
            last.insert(key, Found { versions, values: Some(VALUES), in_grave: 0 });
        });
        read.expect("the cluster serves");
        let attempts = std::mem::take(&mut *self.attempts.lock().expect("no client panics"));
        let count = |outcome: fn(&Outcome) -> bool| attempts.iter().filter(|of| outcome(&of.outcome)).count();
        let tally = Tally {
            committed: count(|outcome| matches!(outcome, Outcome::Committed { .. })),
            unknown: count(|outcome| *outcome == Outcome::Unknown),
        };
        let life =
            Life { engine: Engine::thin(), first: self.first, attempts, end: End::Killed, last: Some(last) };
        if let Err(wrong) = checker::check_life(&life) {
            panic!("the history of the lists: {wrong}");
        }
        tally
    }
}

/// Begins a session with a node.
pub fn begin(address: &str) -> Result<Session, Failure> {
    let stream = at_address_within(address, Duration::from_secs(1), ANSWER_WITHIN)?;
    Session::begin(stream, "lists")
}

struct Client {
    addresses: Vec<String>,
    /// The position of its node's address.
    at: usize,
    session: Option<Session>,
    random: Random,
    clock: Arc<Clock>,
    level: &'static str,
}

impl Client {
    /// One transaction, of some reads and appends, at the node that the client has or at the next one.
    fn attempt(&mut self) -> Attempt {
        let mut attempt = Attempt::aborted(self.clock.attempt(), self.clock.now());
        // A branch may have lost its locks before the transaction was aborted: what it has read need not fit together.
        attempt.coherent = false;
        let done = self.run(&mut attempt);
        match &done {
            Ok(()) => {
                attempt.outcome = Outcome::Committed { place: None };
                attempt.told = Some(Durability::Disk);
            }
            Err(Failed { asked_to_commit: true, failure }) if !is_without_effect(failure) => {
                attempt.outcome = Outcome::Unknown;
            }
            Err(_) => {}
        }
        // An unknown outcome may come about later than the client gives up.
        attempt.ended = (attempt.outcome != Outcome::Unknown).then(|| self.clock.now());
        if let Err(Failed { failure, .. }) = &done {
            // After an answer that has not come whole, the next one would be taken for another statement's.
            let session = self.session.as_mut().filter(|_| matches!(failure, Failure::Refused { .. }));
            let rolled_back = session.map(|session| session.query("ROLLBACK", |_| ()));
            if !matches!(rolled_back, Some(Ok(()))) {
                (self.session, self.at) = (None, self.at + 1);
            }
        }
        attempt
    }

    fn run(&mut self, attempt: &mut Attempt) -> Result<(), Failed> {
        let before = |failure| Failed { asked_to_commit: false, failure };
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let mut session = begin(&self.addresses[self.at % self.addresses.len()]).map_err(before)?;
                let level = format!("SET rialto.durability = '{}'", self.level);
                session.query(&level, |_| ()).map_err(before)?;
                session
            }
        };
        let session = self.session.insert(session);
        session.query("BEGIN", |_| ()).map_err(before)?;
        let mut keys: Vec<i32> =
            (0..1 + self.random.below(3)).map(|_| self.random.below(KEYS as u64) as i32).collect();
        // In one order everywhere, so that few of them are deadlocks' victims.
        keys.sort_unstable();
        keys.dedup();
        for (nth, id) in keys.into_iter().enumerate() {
            let appends = self.random.chance(1, 2);
            let version = attempt.number * VERSIONS_EACH + nth as u64;
            let statement = match appends {
                true => {
                    format!("UPDATE lists SET items = items || ' {version}' WHERE id = {id} RETURNING items")
                }
                false => format!("SELECT items FROM lists WHERE id = {id}"),
            };
            let mut found = Vec::new();
            session
                .query(&statement, |row| found.push(versions_in(row[0].unwrap_or("?"))))
                .map_err(before)?;
            let key = Key { table: 0, id };
            attempt.events.push(match (&found[..], appends) {
                ([Some(versions)], true) => {
                    Event::Put { key, row: Row { values: VALUES, versions: versions.clone() } }
                }
                ([Some(versions)], false) => {
                    Event::Read { key, seen: Some(Row { values: VALUES, versions: versions.clone() }) }
                }
                _ => Event::Wrong(format!("{statement} gave {found:?}")),
            });
        }
        let after = |failure| Failed { asked_to_commit: true, failure };
        session.query("COMMIT", |_| ()).map_err(after)
    }
}

/// Why a transaction is not known to have committed.
struct Failed {
    asked_to_commit: bool,
    failure: Failure,
}

fn is_without_effect(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { code, .. } if WITHOUT_EFFECT.contains(&&**code))
}
