//! I7 over the wire: histories of clients of the simple and the extended protocol are strictly serializable, with cancels, and
//! with clients that vanish amid a transaction or with its commit under way. The kernel's checkers judge them.

#[path = "../../../rialto/tests/isolation/strict/checker.rs"]
mod checker;
#[allow(dead_code, reason = "the kernel's tests use the rest")]
#[path = "../../../rialto/tests/isolation/strict/observed.rs"]
mod observed;
#[path = "../../../rialto/tests/isolation/strict/raw.rs"]
mod raw;
#[allow(dead_code, reason = "the kernel's tests use the rest")]
#[path = "../../../rialto/tests/isolation/strict/script.rs"]
mod script;
#[path = "../../../rialto/tests/common/seeds.rs"]
mod seeds;
#[path = "../../../rialto/tests/isolation/strict/walk.rs"]
mod walk;
mod wire;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Client, TestServer, query};
use observed::{Attempt, Clock, End, Event, Found, Key, Life, Outcome, State};
use rialto::io::Random;
use rialto::{Checkpointing, Durability, LockForm, Options};
use script::{Script, Verdict};
use seeds::for_a_while;
use wire::{Block, Refused, create};

/// What a client does.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Fill,
    LookAtAll,
    Truncate,
    /// One statement without a block.
    Glance,
    Random {
        reads: bool,
    },
}

/// A client that is used by one thread, and connects again after it has vanished.
struct Worker<'a> {
    server: &'a TestServer,
    client: Client,
    clock: &'a Clock,
    random: Random,
    /// What cancel requests name.
    cancellable: &'a Mutex<Vec<(u32, u32)>>,
    attempts: Vec<Attempt>,
}

impl<'a> Worker<'a> {
    fn new(
        server: &'a TestServer,
        clock: &'a Clock,
        random: Random,
        cancellable: &'a Mutex<Vec<(u32, u32)>>,
    ) -> Worker<'a> {
        Worker { server, client: server.connect(), clock, random, cancellable, attempts: Vec::new() }
    }

    fn vanish(&mut self) {
        self.client = self.server.connect();
    }

    fn attempt(&mut self, work: Work) {
        let reads = matches!(work, Work::Random { reads: true } | Work::LookAtAll | Work::Glance);
        if self.random.chance(1, 6) {
            self.cancellable.lock().unwrap().push((self.client.process, self.client.secret));
        }
        let vanishes_amid = matches!(work, Work::Random { .. }) && self.random.chance(1, 24);
        let vanishes_at_end = matches!(work, Work::Random { .. }) && self.random.chance(1, 24);
        let mut attempt = Attempt::aborted(self.clock.attempt(), self.clock.now());
        // A block that only reads may be told at its end that what it saw does not hold.
        attempt.coherent = !reads;
        let (extended, cautious) = (self.random.chance(1, 2), self.random.chance(1, 4));
        let mut block = Block::new(&mut self.client, extended);
        let begun = match (work, reads) {
            (Work::Glance, _) => Ok(Vec::new()),
            (_, true) => block.run("begin read only"),
            (_, false) => block.run("begin"),
        };
        let outcome = begun.and_then(|_| {
            let random = self.random.fork();
            let mut script = Script::new(&mut block, random, attempt.number, &mut attempt.events, cautious);
            match work {
                Work::Fill => script.fill(),
                Work::LookAtAll => script.look_at_all(),
                Work::Truncate => script.truncate(),
                Work::Glance => script.glance(),
                Work::Random { reads } => script.run(reads),
            }
        });
        if let Err(Refused::Error { code, text }) = &outcome {
            let is_known = ["40001", "40P01", "55P03", "57014"].contains(&code.as_str());
            assert!(is_known, "{code}: {text}");
        }
        if vanishes_amid {
            // Nobody has asked for a commit.
            self.vanish();
        } else if vanishes_at_end && outcome == Ok(Verdict::Commit) {
            self.client.send(&query("commit"));
            self.vanish();
            attempt.outcome = Outcome::Unknown;
        } else if outcome == Ok(Verdict::Commit) {
            // A statement without a block has its outcome already.
            let committed = if work == Work::Glance { Ok(Vec::new()) } else { block.run("commit") };
            match committed {
                Ok(_) => {
                    attempt.outcome = Outcome::Committed { place: None };
                    attempt.told = Some(Durability::Disk);
                    attempt.ended = Some(self.clock.now());
                }
                Err(_) => {
                    attempt.outcome = Outcome::Unknown;
                    self.vanish();
                }
            }
        } else if block.run("rollback").is_ok() {
            attempt.ended = Some(self.clock.now());
        } else {
            self.vanish();
        }
        self.attempts.push(attempt);
    }

    fn until_done(&mut self, work: Work) {
        loop {
            self.attempt(work);
            if matches!(self.attempts.last(), Some(Attempt { outcome: Outcome::Committed { .. }, .. })) {
                return;
            }
        }
    }
}

/// What was seen by an attempt that has looked at everything.
fn state(attempt: &Attempt) -> State {
    let mut state = State::new();
    for event in &attempt.events {
        match event {
            Event::Scan { table, predicate: observed::Predicate::Keys(..), seen } => {
                for (id, row) in seen {
                    let found: &mut Found = state.entry(Key { table: *table, id: *id }).or_default();
                    (found.versions, found.values) = (row.versions.clone(), Some(row.values));
                }
            }
            Event::Grave { key, versions } => {
                let found: &mut Found = state.entry(*key).or_default();
                found.in_grave = versions.len();
                if found.values.is_none() {
                    found.versions.clone_from(versions);
                }
            }
            _ => {}
        }
    }
    state
}

/// Sends cancel requests now and then until it is over.
fn cancel(server: &TestServer, cancellable: &Mutex<Vec<(u32, u32)>>, mut random: Random, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(random.below(6_000)));
        if let Some((process, secret)) = cancellable.lock().unwrap().pop() {
            let words = [80_877_102, process, secret].map(u32::to_be_bytes);
            Client::raw(server.address).send_startup(&words.concat());
        }
    }
}

/// Ends what runs beside the clients, also when one of them panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One history, and what it was of.
fn history(seed: u64) -> (Life, String) {
    let mut random = Random::new(seed);
    let locks = LockForm::ALL[random.below(3) as usize];
    let executors = 1 + random.below(8) as usize;
    let about = format!("RIALTO_SEED={seed}, {locks:?}, {executors} executors");
    let options = Options {
        memory_bytes: 64 << 20,
        log_bytes_max: 16 << 20,
        checkpoint: Checkpointing::None,
        lock_timeout: Duration::from_millis(2 + random.below(500)),
        locks,
        executors,
        ..Options::default()
    };
    let server = TestServer::with(options, 40);
    create(&mut server.connect());
    let (clock, cancellable, over) = (Clock::default(), Mutex::new(Vec::new()), AtomicBool::new(false));
    let mut first = Worker::new(&server, &clock, random.fork(), &cancellable);
    first.until_done(Work::Fill);
    let each = 10 + random.below(20);
    let mut attempts = std::thread::scope(|scope| {
        let cancelling = random.fork();
        scope.spawn(|| cancel(&server, &cancellable, cancelling, &over));
        let _ends = Ends(&over);
        let workers: Vec<_> = (0..6)
            .map(|_| Worker::new(&server, &clock, random.fork(), &cancellable))
            .map(|mut worker| {
                scope.spawn(move || {
                    for _ in 0..each {
                        let work = match worker.random.below(40) {
                            0 => Work::Truncate,
                            1..8 => Work::Random { reads: true },
                            8..16 => Work::Glance,
                            _ => Work::Random { reads: false },
                        };
                        worker.attempt(work);
                    }
                    worker.attempts
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    attempts.extend(first.attempts);
    // After those that vanished have ended, too: each of their blocks holds what it has written until then.
    let nobody = Mutex::new(Vec::new());
    let mut last = Worker::new(&server, &clock, random.fork(), &nobody);
    last.until_done(Work::LookAtAll);
    let found = state(last.attempts.last().expect("it is done"));
    attempts.extend(last.attempts);
    (Life { first: State::new(), attempts, end: End::Closed, last: Some(found) }, about)
}

#[test]
fn histories_over_the_wire_are_strictly_serializable() {
    let (mut attempts, mut committed, mut unknown, mut operations) = (0, 0, 0, 0);
    let (seed, histories) = for_a_while(|seed| {
        let (life, about) = history(seed);
        for attempt in &life.attempts {
            attempts += 1;
            committed += u64::from(matches!(attempt.outcome, Outcome::Committed { .. }));
            unknown += u64::from(attempt.outcome == Outcome::Unknown);
            operations += attempt.events.len();
        }
        let lives = [life];
        let found = (checker::check(&lives), raw::check(&lives));
        assert!(found.0.is_ok() && found.1.is_ok(), "{about}: {found:?}");
    });
    println!(
        "tally: strict histories over the wire, {histories} histories, {attempts} attempts, {committed} transactions, \
         {unknown} unknown outcomes, {operations} operations, RIALTO_SEED={seed}"
    );
}
