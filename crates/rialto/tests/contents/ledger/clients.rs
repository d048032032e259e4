//! Clients, each on a thread of its own: writers that commit in every way, readers, the definer.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use rialto::engine::servers::{MessageServer, ServedProcedure};
use rialto::io::Random;
use rialto::row::{ColumnType, Value};
use rialto::{
    Action, Database, Durability, Error, Flow, Procedure, Table, Ticket, TransactionServer, TxOptions,
};

use super::contents::{
    COUNT, Contents, DEFINER, SIDES, WRITERS, count, count_of, define, write, write_what_never_stays,
};
use super::crowd::{CROWD, join};
use super::one_of;
use super::told::{Moment, Told};
use super::wakes::Wakes;

/// The number of tickets that a writer keeps before it checks them.
const TICKETS: usize = 8;

/// A client that is refused this often, because memory or the log is full, stops.
const REFUSED_MAX: u32 = 20;

/// What an error says about a transaction.
enum Verdict {
    /// It does not exist and never will; another may be tried.
    Never,
    /// The same, and the log accepts no more.
    Over,
    /// It may exist or not.
    Unknown,
}

/// The numbers of transactions that were refused at a bound.
#[derive(Debug, Default)]
pub struct Refusals {
    log: AtomicU64,
    memory: AtomicU64,
    slots: AtomicU64,
}

impl Refusals {
    fn all(&self) -> [u64; 3] {
        [&self.log, &self.memory, &self.slots].map(|count| count.load(Ordering::Relaxed))
    }

    pub fn add(&self, other: &Refusals) {
        let sums = [&self.log, &self.memory, &self.slots];
        for (sum, more) in sums.iter().zip(other.all()) {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub fn each_was_met(&self) -> bool {
        self.all().iter().all(|count| *count > 0)
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [log, memory, slots] = self.all();
        write!(f, "{log} refused by a full log, {memory} by full memory, {slots} for slots")
    }
}

/// `write` is a writer's transaction with its number, which reads another writer's count; `peek` reads one, and may
/// then fail.
pub fn procedures() -> Vec<Procedure> {
    let side = |name: &str| {
        let run =
            |tx: &mut rialto::Transaction, arguments: &rialto::Arguments<'_>, _: &mut rialto::Outputs| {
                let (writer, number) = (arguments.get::<i32>(0)? as usize, arguments.get(1)?);
                write(tx, arguments.table()?, writer, number)
            };
        Action::exclusive(name, run).by_argument(0)
    };
    let counts = Action::exclusive(COUNT, |tx, arguments, _| {
        count(tx, arguments.table()?, arguments.get::<i32>(0)? as usize, arguments.get(1)?)
    });
    let sees = Action::shared(COUNT, |tx, arguments, outputs| {
        outputs.push(count_of(tx, arguments.table()?, arguments.get::<i32>(2)? as usize)?);
        Ok(())
    });
    let joins = Action::exclusive(CROWD, |tx, arguments, _| {
        join(tx, arguments.table()?, arguments.get::<i32>(0)? as usize, arguments.get(1)?)
    });
    let phase =
        [joins.by_argument(0), side(SIDES[0]), counts.by_argument(0), side(SIDES[1]), sees.by_argument(2)];
    let types = [ColumnType::Int4, ColumnType::Int8, ColumnType::Int4];
    let peeks = Action::shared(COUNT, |tx, arguments, outputs| {
        let seen = count_of(tx, arguments.table()?, arguments.get::<i32>(0)? as usize)?;
        if arguments.get::<i32>(1)? == 1 {
            return Err(Error::aborted(seen.to_string()));
        }
        outputs.push(seen);
        Ok(())
    });
    vec![
        Procedure::new("write", types, Flow::new().phase(phase)).deterministic(1),
        Procedure::new("peek", [ColumnType::Int4; 2], peeks.by_argument(0)),
    ]
}

fn seen_in(outputs: &[Value], about: &str) -> i64 {
    match outputs {
        [Value::Int8(seen)] => *seen,
        other => panic!("{about}: {other:?}"),
    }
}

/// A client of a database.
pub struct Client<'a> {
    pub db: &'a Database,
    pub told: &'a [Told],
    /// The levels of its commits.
    levels: &'a [Durability],
    pub random: Random,
    refused: &'a Refusals,
    pub about: &'a str,
    count: Table,
    sides: [Table; 2],
    server: MessageServer,
    served: [ServedProcedure; 2],
    tickets: VecDeque<(i64, Durability, Ticket)>,
    /// The waker of tickets.
    wakes: Waker,
}

impl<'a> Client<'a> {
    pub fn new(
        db: &'a Database,
        server: &TransactionServer,
        (told, levels): (&'a [Told], &'a [Durability]),
        random: Random,
        (refused, wakes, about): (&'a Refusals, &Arc<Wakes>, &'a str),
    ) -> Client<'a> {
        let served = ["write", "peek"].map(|name| server.procedure(name).unwrap());
        let server = server.message_server();
        let (count, sides) = (db.table(COUNT).unwrap(), SIDES.map(|name| db.table(name).unwrap()));
        let (tickets, wakes) = (VecDeque::new(), Waker::from(wakes.clone()));
        Client { db, told, levels, random, refused, about, count, sides, server, served, tickets, wakes }
    }

    fn verdict(&self, error: &Error) -> Verdict {
        let bound = match error {
            Error::OutcomeUnknown { .. } => return Verdict::Unknown,
            Error::Stopped { .. } | Error::Io { .. } | Error::Closed => return Verdict::Over,
            Error::Deadlock { .. } | Error::LockTimeout { .. } => {
                return Verdict::Never;
            }
            // It was dropped, and another one made, after the transaction looked it up.
            Error::NoSuchTable { table } if table == CROWD => return Verdict::Never,
            Error::LogFull { .. } => &self.refused.log,
            Error::MemoryLimit { .. } | Error::LockMemory { .. } => &self.refused.memory,
            Error::TooManyTransactions { .. } | Error::TooManyPackets { .. } => &self.refused.slots,
            other => panic!("{}: {other}", self.about),
        };
        bound.fetch_add(1, Ordering::Relaxed);
        Verdict::Never
    }

    fn any_level(&mut self) -> (Durability, TxOptions) {
        let level = one_of(&mut self.random, self.levels);
        (level, TxOptions { durability: Some(level), ..TxOptions::default() })
    }

    /// Makes this many of a writer's transactions, or as many as the log accepts.
    pub fn write(mut self, writer: usize, first: i64, transactions: i64) {
        let (mut number, mut refused) = (first, 0);
        while number < first + transactions && refused < REFUSED_MAX {
            if self.random.chance(1, 6)
                && let Err(error) = self.give_up(writer, number)
                && !matches!(self.verdict(&error), Verdict::Never)
            {
                break;
            }
            let began = self.told[writer].now();
            match self.write_one(writer, number, began) {
                Ok(()) => number += 1,
                Err(error) => match self.verdict(&error) {
                    Verdict::Never => refused += 1,
                    Verdict::Over => break,
                    Verdict::Unknown => {
                        self.told[writer].issue(number, began);
                        break;
                    }
                },
            }
            let keep = if number % 5 == 0 { 0 } else { TICKETS };
            self.look_at_tickets(writer, keep);
        }
        self.look_at_tickets(writer, 0);
    }

    /// A transaction that is rolled back after it has written, more than the one of this number.
    fn give_up(&mut self, writer: usize, number: i64) -> Result<(), Error> {
        let (_, options) = self.any_level();
        let (count_table, sides) = (self.count.clone(), self.sides.clone());
        let body = |tx: &mut rialto::Transaction| {
            let crowd = tx.table(CROWD)?;
            join(tx, &crowd, writer, number)?;
            count(tx, &count_table, writer, number)?;
            sides.iter().try_for_each(|side| {
                write_what_never_stays(tx, side, writer)?;
                write(tx, side, writer, number)
            })
        };
        if self.random.chance(1, 2) {
            let outcome = self.db.transact_with(&options, |tx| {
                body(tx)?;
                Err(Error::aborted("given up"))
            });
            return match outcome {
                Ok(()) => unreachable!("it fails"),
                Err(Error::Aborted { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let mut tx = self.db.begin_with(&options)?;
        body(&mut tx)?;
        if self.random.chance(1, 2) {
            return tx.abort();
        }
        drop(tx);
        Ok(())
    }

    fn write_one(&mut self, writer: usize, number: i64, began: Moment) -> Result<(), Error> {
        let other = (writer + 1 + self.random.below(WRITERS as u64 - 1) as usize) % WRITERS;
        let (level, options) = self.any_level();
        let arguments = [Value::Int4(writer as i32), Value::Int8(number), Value::Int4(other as i32)];
        let (count_table, sides, about) = (self.count.clone(), self.sides.clone(), self.about);
        let rolls_back = self.random.chance(1, 4);
        let body = |tx: &mut rialto::Transaction| {
            let crowd = tx.table(CROWD)?;
            join(tx, &crowd, writer, number)?;
            count(tx, &count_table, writer, number)?;
            write(tx, &sides[0], writer, number)?;
            let seen = count_of(tx, &count_table, other)?;
            if rolls_back {
                let before = tx.savepoint();
                sides.iter().try_for_each(|side| write_what_never_stays(tx, side, writer))?;
                tx.rollback_to(&before)?;
            }
            write(tx, &sides[1], writer, number)?;
            Ok(seen)
        };
        let (seen, ticket) = match self.random.below(8) {
            0 => (self.db.transact_with(&options, body)?, None),
            1 => {
                let mut tx = self.db.begin_with(&options)?;
                let seen = body(&mut tx)?;
                tx.commit()?;
                (seen, None)
            }
            2 => {
                let (seen, ticket) = self.db.submit_with(&options, body)?;
                (seen, Some(ticket))
            }
            3 => (seen_in(&self.db.call_with(&options, "write", &arguments)?, about), None),
            4 => {
                let (outputs, ticket) = self.db.submit_call_with(&options, "write", &arguments)?;
                (seen_in(&outputs, about), Some(ticket))
            }
            5 => {
                let sent = self.db.send_call_with(&options, "write", &arguments)?;
                let (outputs, ticket) = sent.wait_for_place()?;
                (seen_in(&outputs, about), Some(ticket))
            }
            6 => {
                let sent = self.db.send_call_with(&options, "write", &arguments)?;
                (seen_in(&sent.wait()?, about), None)
            }
            _ => (self.serve(0, &arguments, level)?, None),
        };
        let told = &self.told[writer];
        told.issue(number, began);
        told.saw(number, other, seen);
        match ticket {
            Some(ticket) => {
                told.place(number, ticket.lsn());
                self.tickets.push_back((number, level, ticket));
            }
            None => {
                told.acknowledge(number, level);
                // What it has seen is in the log before it.
                self.told[other].acknowledge(seen, level);
            }
        }
        Ok(())
    }

    fn serve(&mut self, which: usize, arguments: &[Value], level: Durability) -> Result<i64, Error> {
        let mut request = self.server.request(&self.served[which]);
        for argument in arguments {
            request.push(argument.clone());
        }
        request.set_durability(level);
        self.server.put(request)?;
        let response = self.server.take().expect("one is under way");
        let outcome = response.outcome().clone().map(|()| seen_in(response.outputs(), self.about));
        self.server.recycle(response);
        outcome
    }

    /// Whether a ticket is done, and its outcome. If it is not, it may be asked to wake.
    fn ask(&mut self, ticket: &mut Ticket) -> Option<Result<(), Error>> {
        if self.random.chance(3, 4) {
            return ticket.poll_done();
        }
        match Pin::new(ticket).poll(&mut Context::from_waker(&self.wakes)) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    /// Waits until at most `keep` are left, after those that are done.
    fn look_at_tickets(&mut self, writer: usize, keep: usize) {
        while let Some((number, level, mut ticket)) = self.tickets.pop_front() {
            let done = match self.ask(&mut ticket) {
                None if self.tickets.len() < keep => {
                    self.tickets.push_front((number, level, ticket));
                    return;
                }
                None => ticket.wait(),
                Some(done) => done,
            };
            match done {
                Ok(()) => self.told[writer].acknowledge(number, level),
                Err(Error::OutcomeUnknown { .. }) => {}
                Err(other) => panic!("{}: {other}", self.about),
            }
        }
    }

    /// Reads writers' counts, in answers that succeed or fail: either tells only of what is durable (I3).
    pub fn read(mut self, times: u32) {
        for _ in 0..times {
            let writer = self.random.below(WRITERS as u64 + 1) as usize;
            let fails = self.random.chance(1, 2);
            let (level, options) = self.any_level();
            let arguments = [Value::Int4(writer as i32), Value::Int4(i32::from(fails))];
            let (table, about) = (self.count.clone(), self.about);
            let outcome = match self.random.below(4) {
                0 => self.db.transact_with(&options, |tx| {
                    let seen = count_of(tx, &table, writer)?;
                    if fails { Err(Error::aborted(seen.to_string())) } else { Ok(seen) }
                }),
                1 => self.db.call_with(&options, "peek", &arguments).map(|it| seen_in(&it, about)),
                2 => self
                    .db
                    .send_call_with(&options, "peek", &arguments)
                    .and_then(rialto::Sent::wait)
                    .map(|it| seen_in(&it, about)),
                _ => self.serve(1, &arguments, level),
            };
            let seen = match outcome {
                Ok(seen) => seen,
                Err(Error::Aborted { reason }) => reason.parse().expect("a count"),
                Err(error) => match self.verdict(&error) {
                    Verdict::Never => continue,
                    Verdict::Over | Verdict::Unknown => return,
                },
            };
            self.told[writer].acknowledge(seen, level);
        }
    }

    /// Makes this many of the definer's transactions, from this state on.
    pub fn define(mut self, mut state: Contents, transactions: i64) {
        let mut refused = 0;
        let first = state.counts[DEFINER] + 1;
        let mut number = first;
        while number < first + transactions && refused < REFUSED_MAX {
            let (level, options) = self.any_level();
            let mut next = state.clone();
            let began = self.told[DEFINER].now();
            match self.define_one(&options, &state, &mut next, number) {
                Ok(ticket) => {
                    let told = &self.told[DEFINER];
                    told.issue(number, began);
                    match ticket {
                        Some(ticket) => {
                            told.place(number, ticket.lsn());
                            self.tickets.push_back((number, level, ticket));
                        }
                        None => told.acknowledge(number, level),
                    }
                    (state, number) = (next, number + 1);
                }
                Err(error) => match self.verdict(&error) {
                    Verdict::Never => refused += 1,
                    Verdict::Over => break,
                    Verdict::Unknown => {
                        self.told[DEFINER].issue(number, began);
                        break;
                    }
                },
            }
            let keep = if number % 5 == 0 { 0 } else { TICKETS };
            self.look_at_tickets(DEFINER, keep);
        }
        self.look_at_tickets(DEFINER, 0);
    }

    /// The definer's transaction with this number, from one state to the next. Gives its ticket, if it has one.
    fn define_one(
        &mut self,
        options: &TxOptions,
        state: &Contents,
        next: &mut Contents,
        number: i64,
    ) -> Result<Option<Ticket>, Error> {
        let count_table = self.count.clone();
        let body = |tx: &mut rialto::Transaction| {
            *next = state.clone();
            define(Some(&mut *tx), next, number)?;
            count(tx, &count_table, DEFINER, number)
        };
        match self.random.below(3) {
            0 => self.db.transact_with(options, body).map(|()| None),
            1 => {
                let (mut tx, mut body) = (self.db.begin_with(options)?, body);
                body(&mut tx)?;
                tx.commit().map(|()| None)
            }
            _ => self.db.submit_with(options, body).map(|((), ticket)| Some(ticket)),
        }
    }
}
