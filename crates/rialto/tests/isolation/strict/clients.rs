//! A client of a database: random transactions in every form, and a record of each attempt.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use rialto::engine::servers::{MessageServer, ServedProcedure};
use rialto::io::Random;
use rialto::row::Value;
use rialto::{
    Canceller, Database, Durability, Error, LockPolicy, Retries, Sent, Ticket, Transaction,
    TransactionServer, TxOptions,
};

use super::calls::{ASKED_TO, NAMES, Notes, any_call};
use super::kernel::{Running, Tables};
use super::observed::{Attempt, Clock, Outcome, TABLES};
use super::script::{Script, Verdict};
use super::space::Space;

/// What an error says about a transaction.
pub enum Ended {
    /// It was aborted; another one may be tried.
    Aborted,
    /// It was aborted, and the log accepts no more.
    Over,
    Unknown,
}

/// Fails for an error that no history has.
pub fn ended(error: &Error, about: &str) -> Ended {
    match error {
        Error::OutcomeUnknown { .. } => Ended::Unknown,
        Error::Stopped { .. } | Error::Io { .. } | Error::Closed | Error::DiskFull { .. } => Ended::Over,
        Error::Aborted { .. }
        | Error::Cancelled
        | Error::Deadlock { .. }
        | Error::LockTimeout { .. }
        | Error::LogFull { .. }
        | Error::TableChanged { .. }
        | Error::Timeout { .. }
        | Error::TooManyPackets { .. }
        | Error::TooManyTransactions { .. }
        | Error::WouldWait { .. } => Ended::Aborted,
        other => panic!("{about}: {other}"),
    }
}

/// What the clients of one life share.
pub struct Site<'a> {
    pub db: &'a Database,
    pub tables: &'a Tables,
    pub clock: &'a Clock,
    pub space: Space,
    pub notes: &'a Notes,
    pub server: &'a TransactionServer,
    /// The number of definitions that have succeeded.
    pub defined: &'a AtomicU64,
    /// Cancellers of open transactions.
    pub cancellers: &'a Mutex<Vec<Canceller>>,
    pub about: &'a str,
}

/// A client, which is used by one thread.
pub struct Client<'a> {
    site: &'a Site<'a>,
    random: Random,
    attempts: Vec<Attempt>,
    /// Attempts that have their place, by their position.
    tickets: VecDeque<(usize, Durability, Ticket)>,
    sent: VecDeque<(Attempt, Durability, Sent)>,
    server: MessageServer,
    served: [ServedProcedure; TABLES],
    over: bool,
}

type Work = fn(&mut Script<'_, Running<'_, '_>>, bool) -> rialto::Result<Verdict>;

impl<'a> Client<'a> {
    pub fn new(site: &'a Site<'a>, random: Random) -> Client<'a> {
        Client {
            site,
            random,
            attempts: Vec::new(),
            tickets: VecDeque::new(),
            sent: VecDeque::new(),
            server: site.server.message_server(),
            served: NAMES.map(|name| site.server.procedure(name).unwrap()),
            over: false,
        }
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Makes this many random transactions, or as many as the log accepts. Gives all attempts.
    pub fn work(mut self, transactions: u64) -> Vec<Attempt> {
        for _ in 0..transactions {
            if self.over {
                break;
            }
            match self.random.below(18) {
                0..4 => self.by_body(false, |script, reads| script.run(reads)),
                4..6 => self.by_body(true, |script, reads| script.run(reads)),
                6..8 => self.by_handle(),
                8 => self.call(),
                9..11 => self.send(),
                11 => self.serve(),
                12 => self.by_body(true, |script, _| script.glance()),
                _ => self.by_body(true, |script, _| script.look_twice()),
            }
            let keep = [3, 12][usize::from(self.random.chance(1, 4))];
            let keep = self.random.below(keep) as usize;
            self.settle(keep);
        }
        self.end()
    }

    /// Waits for everything under way.
    pub fn end(mut self) -> Vec<Attempt> {
        self.settle(0);
        self.attempts
    }

    /// A transaction that removes all rows of a table.
    pub fn truncate(&mut self) {
        self.by_body(false, |script, _| script.truncate());
    }

    /// Reads everything, and waits for the answer.
    pub fn look_at_all(&mut self) {
        self.by_body(true, |script, _| script.look_at_all());
    }

    fn any_options(&mut self) -> (Durability, TxOptions) {
        let random = &mut self.random;
        let level = if random.chance(1, 2) { Durability::Disk } else { Durability::Memory };
        let options = TxOptions {
            durability: Some(level),
            lock_timeout: random.chance(1, 6).then(|| Duration::from_micros(200 + random.below(20_000))),
            timeout: random.chance(1, 12).then(|| Duration::from_micros(200 + random.below(20_000))),
            lock_wait: if random.chance(1, 8) { LockPolicy::Refuse } else { LockPolicy::Wait },
            ..TxOptions::default()
        };
        (level, options)
    }

    fn by_body(&mut self, reads: bool, work: Work) {
        let (level, mut options) = self.any_options();
        options.read_only = reads;
        let with_ticket = self.random.chance(2, 3);
        let Site { db, tables, clock, space, cancellers, .. } = *self.site;
        let (random, mut runs, mut failed) = (&mut self.random, Vec::new(), false);
        let cautious = options.lock_timeout.is_some() || options.lock_wait == LockPolicy::Refuse;
        let body = |tx: &mut Transaction<'_>| {
            if let Some(Attempt { ended, .. }) = runs.last_mut() {
                *ended = Some(clock.now());
            }
            if random.chance(1, 16) {
                cancellers.lock().push(tx.canceller());
            }
            let mut attempt = Attempt::aborted(clock.attempt(), clock.now());
            // A run without locks may be discarded for what it saw.
            attempt.coherent = !reads;
            let mut running = Running::begun(tx, tables, space, random);
            let (number, events) = (attempt.number, &mut attempt.events);
            let outcome =
                work(&mut Script::new(&mut running, random.fork(), number, events, cautious, space), reads);
            runs.push(attempt);
            failed = !matches!(outcome, Ok(Verdict::Commit));
            match outcome? {
                Verdict::Commit => Ok(()),
                Verdict::Abort => Err(Error::aborted(ASKED_TO)),
            }
        };
        let outcome = match with_ticket {
            true => db.submit_with(&options, body).map(|((), ticket)| Some(ticket)),
            false => db.transact_with(&options, body).map(|()| None),
        };
        let Some(last) = runs.pop() else {
            self.over |=
                matches!(outcome, Err(ref error) if matches!(ended(error, self.site.about), Ended::Over));
            return;
        };
        self.attempts.extend(runs);
        self.record(last, level, failed, outcome);
    }

    /// The last run of a transaction has had this outcome. `failed`: it never came to its commit.
    fn record(
        &mut self,
        mut attempt: Attempt,
        level: Durability,
        failed: bool,
        outcome: rialto::Result<Option<Ticket>>,
    ) {
        attempt.ended = Some(self.site.clock.now());
        match outcome {
            Ok(None) => {
                attempt.outcome = Outcome::Committed { place: None };
                attempt.told = Some(level);
            }
            Ok(Some(ticket)) => {
                attempt.outcome = Outcome::Committed { place: Some(ticket.lsn().0) };
                self.tickets.push_back((self.attempts.len(), level, ticket));
            }
            Err(error) => match ended(&error, self.site.about) {
                Ended::Aborted => attempt.told = Some(level),
                Ended::Over => self.over = true,
                Ended::Unknown if failed => {}
                Ended::Unknown => {
                    attempt.outcome = Outcome::Unknown;
                    attempt.ended = None;
                }
            },
        }
        self.attempts.push(attempt);
    }

    fn by_handle(&mut self) {
        let (level, options) = self.any_options();
        let Site { db, tables, clock, space, cancellers, .. } = *self.site;
        let cautious = options.lock_timeout.is_some() || options.lock_wait == LockPolicy::Refuse;
        let begun = db.begin_with(&options);
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => {
                self.over |= matches!(ended(&error, self.site.about), Ended::Over);
                return;
            }
        };
        let mut retries = Retries::default();
        loop {
            if self.random.chance(1, 8) {
                cancellers.lock().push(tx.canceller());
            }
            let mut attempt = Attempt::aborted(clock.attempt(), clock.now());
            let mut running = Running::begun(&mut tx, tables, space, &mut self.random);
            let (number, events) = (attempt.number, &mut attempt.events);
            let random = self.random.fork();
            let outcome = Script::new(&mut running, random, number, events, cautious, space).run(false);
            let (failed, outcome) = match outcome {
                Ok(Verdict::Commit) if self.random.chance(1, 2) => (false, tx.submit().map(Some)),
                Ok(Verdict::Commit) => (false, tx.commit().map(|()| None)),
                Ok(Verdict::Abort) => (true, tx.abort().and_then(|()| Err(Error::aborted(ASKED_TO)))),
                Err(error) => match db.begin_again(tx, error, &options, &mut retries) {
                    Ok(next) => {
                        attempt.ended = Some(clock.now());
                        self.attempts.push(attempt);
                        tx = next;
                        continue;
                    }
                    Err(error) => (true, Err(error)),
                },
            };
            return self.record(attempt, level, failed, outcome);
        }
    }

    /// A new call: its arguments, and its attempt.
    fn any_call(&mut self) -> (usize, Vec<Value>, Attempt) {
        let clock = self.site.clock;
        let attempt = Attempt::aborted(clock.attempt(), clock.now());
        let which = self.random.below(TABLES as u64) as usize;
        (which, any_call(&mut self.random, self.site.space, attempt.number), attempt)
    }

    /// A call has had this outcome.
    fn record_call(
        &mut self,
        mut attempt: Attempt,
        level: Durability,
        outcome: rialto::Result<(Vec<Value>, Option<Ticket>)>,
    ) {
        let notes = self.site.notes;
        attempt.events = match &outcome {
            Ok((outputs, _)) => notes.of(attempt.number, outputs),
            // It may have failed at any step, of any run.
            Err(Error::OutcomeUnknown { .. }) => notes.of_last_run(attempt.number),
            Err(_) => Vec::new(),
        };
        self.record(attempt, level, false, outcome.map(|(_, ticket)| ticket));
    }

    fn call(&mut self) {
        let ((level, options), (which, arguments, attempt)) = (self.any_options(), self.any_call());
        let db = self.site.db;
        let outcome = match self.random.chance(1, 2) {
            true => db.call_with(&options, NAMES[which], &arguments).map(|outputs| (outputs, None)),
            false => db
                .submit_call_with(&options, NAMES[which], &arguments)
                .map(|(outputs, ticket)| (outputs, Some(ticket))),
        };
        self.record_call(attempt, level, outcome);
    }

    fn send(&mut self) {
        let ((level, options), (which, arguments, attempt)) = (self.any_options(), self.any_call());
        match self.site.db.send_call_with(&options, NAMES[which], &arguments) {
            Ok(sent) => self.sent.push_back((attempt, level, sent)),
            Err(error) => self.record_call(attempt, level, Err(error)),
        }
    }

    fn serve(&mut self) {
        let (level, (which, arguments, attempt)) = (self.any_options().0, self.any_call());
        let mut request = self.server.request(&self.served[which]);
        for argument in arguments {
            request.push(argument);
        }
        request.set_durability(level);
        if let Err(error) = self.server.put(request) {
            return self.record_call(attempt, level, Err(error));
        }
        let response = self.server.take().expect("one is under way");
        let outcome = response.outcome().clone().map(|()| (response.outputs().to_vec(), None));
        self.server.recycle(response);
        self.record_call(attempt, level, outcome);
    }

    /// Waits until at most this many calls, and this many tickets, are left.
    fn settle(&mut self, keep: usize) {
        while self.sent.len() > keep {
            let any = self.random.below(self.sent.len() as u64) as usize;
            let (attempt, level, sent) = self.sent.swap_remove_back(any).expect("one is left");
            let outcome = match self.random.chance(1, 2) {
                true => sent.wait().map(|outputs| (outputs, None)),
                false => sent.wait_for_place().map(|(outputs, ticket)| (outputs, Some(ticket))),
            };
            self.record_call(attempt, level, outcome);
        }
        while self.tickets.len() > keep {
            let (at, level, ticket) = self.tickets.pop_front().expect("one is left");
            match ticket.wait() {
                Ok(()) => self.attempts[at].told = Some(level),
                Err(error) => match ended(&error, self.site.about) {
                    Ended::Unknown | Ended::Over => self.over = true,
                    Ended::Aborted => panic!("{}: a placed transaction: {error}", self.site.about),
                },
            }
        }
    }
}
