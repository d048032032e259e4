//! TPC-C: the nine tables, the population, the five transactions and the consistency conditions of its specification
//! (revision 5.11), in one process, without terminals and their think times.
//!
//! | | share | what it does |
//! |---|---|---|
//! | new-order | 45% | enters an order of 5 to 15 lines; one of a hundred is rolled back, one line of a hundred is supplied by another warehouse |
//! | payment | 43% | takes a customer's payment; 15 of a hundred customers are of another warehouse, 60 are found by last name |
//! | order-status | 4% | reads the last order of a customer; 60 of a hundred are found by last name |
//! | delivery | 4% | delivers the oldest new order of each district of a warehouse, at once |
//! | stock-level | 4% | counts the items of a district's last 20 orders that are nearly out of stock |
//!
//! It differs from the specification. There are no terminals, so there are no keying and think times and no response
//! time constraints, and a client draws the warehouse of each request. Deliveries are not queued. The mix is drawn at
//! random. So the figures are not tpmC. A new order that is rolled back counts as aborted by the user, not as
//! committed.
//!
//! - [`request`]: the transactions by name and what is asked of them; [`random`]: the specification's random values;
//! - [`tables`]: columns and sizes; [`load`]: the population; [`lines`]: the lines of an order as an argument;
//! - [`flows`]: the transactions, as registered procedures: nothing else runs them;
//! - [`verify`]: the consistency conditions.

mod flows;
mod lines;
mod load;
mod random;
mod request;
mod tables;
#[cfg(test)]
mod tests;
mod verify;

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Instant;

use rialto::row::Value;
use rialto::{Database, Error, Residence, Result, TxOptions};
use rialto_measure::driver::Workload;
use rialto_measure::limits::Bank;

pub use self::flows::{INVALID_ITEM, procedures, seen_payment};
use self::lines::Lines;
pub use self::request::Name;
use self::request::Requests;
use self::tables::Tables;
pub use self::tables::{CUSTOMERS, ITEMS, Shape, WAREHOUSES_MAX};
pub use self::verify::{Audit, Done};
use crate::calendar::Calendar;
use crate::calls::Calls;
use crate::data::{Data, ShapeError};
use crate::mix::Mix;
use crate::verify::Totals;
use crate::workload::{Answer, Audited, Submitted, Verdict, random_of};

/// The warehouses, open.
#[derive(Debug)]
pub struct Tpcc {
    database: Database,
    shape: Shape,
    mix: Mix<Name>,
    tables: Tables,
    /// For each transaction, in the order of [`Name::ALL`].
    options: [TxOptions; Name::ALL.len()],
    calendar: Calendar,
    /// What clients were told that are gone.
    done: Mutex<Done>,
}

/// One client's own state.
#[derive(Debug)]
pub struct Client {
    requests: Requests,
    calls: Calls,
    done: Done,
}

/// What a client notes of a call: what it will have done if it succeeds, as far as its arguments tell.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    name: Name,
    done: Done,
}

impl Note {
    fn of(name: Name, arguments: &[Value]) -> Note {
        let mut done = Done::default();
        match name {
            Name::NewOrder => {
                done.orders = 1;
                done.lines = Lines::of(arguments.last()).count() as i64;
            }
            Name::Payment => {
                done.payments = 1;
                if let Some(Value::Int4(cents)) = arguments.iter().rev().nth(1) {
                    done.paid_cents = i64::from(*cents);
                }
            }
            Name::Delivery | Name::OrderStatus | Name::StockLevel => {}
        }
        Note { name, done }
    }
}

impl Done {
    /// Adds what a call was answered.
    fn count(&mut self, note: &Note, outputs: Result<&[Value]>) -> Result<()> {
        let outputs = outputs.map_err(|error| answered(note.name, error))?;
        self.add(&note.done);
        if note.name == Name::Delivery {
            self.delivered += flows::delivery::delivered(outputs)?;
        }
        Ok(())
    }
}

impl Tpcc {
    /// The warehouses in the database, if they are of this shape; loaded, if the database is empty. The second is whether
    /// they were there already.
    ///
    /// # Errors
    /// [`ShapeError::OtherShape`] if the database holds something else.
    pub fn open_or_load(
        database: &Database,
        residence: Residence,
        shape: Shape,
        mix: Mix<Name>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Tpcc, bool), ShapeError> {
        let (tables, there) = shape.open_or_load(database, residence, progress)?;
        for procedure in procedures() {
            if database.registered_version(&procedure.name).is_none() {
                database.register(procedure)?;
            }
        }
        let options = Name::ALL.map(|name| TxOptions {
            procedure: Some(database.procedure_id(name.as_str())),
            read_only: name.only_reads(),
            ..TxOptions::default()
        });
        let tpcc = Tpcc {
            database: database.clone(),
            shape,
            mix,
            tables: Tables::new(tables),
            options,
            calendar: Calendar::of(database.clock()),
            done: Mutex::default(),
        };
        Ok((tpcc, there))
    }

    /// Runs other transactions from now on.
    pub fn set_mix(&mut self, mix: Mix<Name>) {
        self.mix = mix;
    }

    /// Draws the next request.
    #[inline]
    fn next(&self, client: &mut Client, now: Instant) -> Name {
        let name = self.mix.draw(&mut client.requests.random);
        let now_us = self.calendar.us(now);
        client.requests.draw(name, now_us, &mut client.calls.arguments);
        name
    }
}

/// An error as a client takes it: the one abort that the specification has lets the run go on, any other ends it.
#[cold]
fn answered(name: Name, error: Error) -> Error {
    match error {
        Error::Aborted { reason } if name != Name::NewOrder || reason != INVALID_ITEM => {
            Error::Procedure { name: name.as_str().to_owned(), reason: reason.into_owned() }
        }
        error => error,
    }
}

impl Workload for Tpcc {
    type Client = Client;
    type Ticket = Submitted<Note>;

    fn procedures(&self) -> &'static [&'static str] {
        &Name::NAMES
    }

    fn client(&self, number: u32, seed: u64) -> Client {
        let random = random_of(number, seed);
        let requests = Requests { shape: self.shape, random };
        Client { requests, calls: Calls::default(), done: Done::default() }
    }

    #[inline]
    fn run_one(&self, client: &mut Client, now: Instant) -> Result<usize> {
        let name = self.next(client, now);
        let options = &self.options[name as usize];
        let Client { calls, done, .. } = client;
        let note = Note::of(name, &calls.arguments);
        done.count(&note, calls.call(&self.database, options, (name as usize, name.as_str())))?;
        Ok(name as usize)
    }

    #[inline]
    fn submit_one(&self, client: &mut Client, now: Instant) -> Result<(usize, Submitted<Note>)> {
        let name = self.next(client, now);
        let options = &self.options[name as usize];
        let sent = client.calls.send(&self.database, options, (name as usize, name.as_str()))?;
        Ok((name as usize, Submitted::sent(sent, Note::of(name, &client.calls.arguments))))
    }

    fn settle(&self, client: &mut Client, answer: Answer<Note>) -> Result<()> {
        match answer {
            Answer::Placed(outcome) => outcome,
            Answer::Called(note, outputs) => {
                client.done.count(&note, outputs.as_deref().map_err(Clone::clone))
            }
        }
    }

    fn retire(&self, client: Client) {
        self.done.lock().expect("no thread panics with it").add(&client.done);
    }
}

/// Memory that a transaction adds, in bytes: an order with its lines; a history row.
const NEW_ORDER_BYTES: f64 = 1_400.0;
const PAYMENT_BYTES: f64 = 110.0;

impl Audited for Tpcc {
    const NAME: &'static str = "tpcc";
    const TITLE: &'static str = "TPC-C";
    const DATA: &'static str = "TPC-C database";

    type Audit = Audit;

    fn memory_per_transaction(&self) -> f64 {
        let share = |name| self.mix.percent(name) / 100.0;
        share(Name::NewOrder) * NEW_ORDER_BYTES + share(Name::Payment) * PAYMENT_BYTES
    }

    fn describe(&self) -> String {
        format!("{}; mix {}", self.shape, self.mix)
    }

    fn bank(&self) -> Option<Bank> {
        None
    }

    fn audit(&self) -> Result<Audit> {
        self.database.read(|transaction| self.tables.audit(transaction, self.shape))
    }

    fn verdict(&self, before: &Audit, after: &Audit, _: RangeInclusive<u64>) -> Verdict {
        let done = *self.done.lock().expect("no thread panics with it");
        after.judge(&before.done, &done)
    }
}
