//! TATP, the benchmark that the papers call TM1 (section 5.1 of DORA's): the subscribers of a mobile network, four tables
//! and seven short transactions.
//!
//! | | share | succeeds | what it does |
//! |---|---|---|---|
//! | `GetSubscriberData` | 35% | 100% | reads a subscriber, all columns |
//! | `GetNewDestination` | 10% | 23.9% | reads a special facility and, if it is active, where calls go at that time |
//! | `GetAccessData` | 35% | 62.5% | reads one kind of access data |
//! | `UpdateSubscriberData` | 2% | 62.5% | sets a bit of the subscriber and a byte of a special facility |
//! | `UpdateLocation` | 14% | 100% | finds the subscriber by number, sets where it is |
//! | `InsertCallForwarding` | 2% | 31.25% | finds it by number, reads its facilities, inserts a call forwarding |
//! | `DeleteCallForwarding` | 2% | 31.25% | finds it by number, deletes a call forwarding |
//!
//! A transaction that does not succeed has asked for a row that does not exist, or would insert one that does. The
//! specification counts it as failed, and correct. Here it rolls back and counts as *aborted by itself*. So
//! `committed` counts the successful ones, which gives the specification's qualified throughput; `committed` plus
//! `aborted_user` is all that ran. The shares that succeed are printed beside the specification's. (For
//! `GetNewDestination` the specification states 23.9%, but its own rules give 14.8% on its population, and 20.4% when
//! every call forwarding has been replaced: in so few cases a time of 1 to 24 lies before the end of a forwarding.)
//!
//! - [`request`]: arguments and responses, subscribers chosen as the specification says;
//! - [`population`]: what every subscriber is loaded with; [`tables`]: the tables;
//! - [`transactions`]: what is done on each; [`flows`]: the same as registered procedures;
//! - [`verify`]: the consistency condition.

mod flows;
mod population;
pub mod request;
mod tables;
#[cfg(test)]
mod tests;
mod transactions;
mod verify;

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Instant;

use rialto::io::Random;
use rialto::row::Row;
use rialto::{Database, Residence, Result, TxOptions};
use rialto_measure::driver::Workload;
use rialto_measure::limits::Bank;

pub use self::flows::{Plan, procedures, update_subscriber_data};
pub use self::request::{Name, Number, Request, Response};
use self::tables::Tables;
pub use self::tables::{SUBSCRIBERS_PER_SCALE, Shape};
use self::transactions::Scans;
pub use self::verify::{Audit, Totals};
use crate::calls::Calls;
use crate::data::ShapeError;
use crate::verify::Totals as _;
use crate::workload::{Answer, Audited, Submitted, Verdict, random_of};

/// How often each transaction is run.
pub type Mix = crate::mix::Mix<Name>;

/// The subscribers, open.
#[derive(Debug)]
pub struct Tatp {
    database: Database,
    shape: Shape,
    mix: Mix,
    tables: Tables,
    /// For each transaction, in the order of [`Name::ALL`].
    options: [TxOptions; Name::COUNT],
    /// Whether transactions run as calls of the procedures.
    calls: bool,
    /// What clients were told that are gone.
    done: Mutex<Totals>,
}

/// One client's own state.
#[derive(Debug)]
pub struct Client {
    random: Random,
    /// Memory for the subscriber that is read, and for the ranges that are scanned.
    row: Row,
    scans: Scans,
    calls: Calls,
    done: Totals,
}

impl Tatp {
    /// The subscribers in the database, if there are so many; loaded, if the database is empty. The second is whether they
    /// were there already.
    ///
    /// # Errors
    /// [`ShapeError::OtherShape`] if the database holds something else.
    pub fn open_or_load(
        database: &Database,
        residence: Residence,
        shape: Shape,
        mix: Mix,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Tatp, bool), ShapeError> {
        let (tables, there) = Tables::open_or_load(database, residence, shape, progress)?;
        let options = Name::ALL.map(|name| TxOptions {
            procedure: Some(database.procedure_id(name.as_str())),
            read_only: name.only_reads(),
            ..TxOptions::default()
        });
        let done = Mutex::new(Totals::default());
        Ok((Tatp { database: database.clone(), shape, mix, tables, options, calls: false, done }, there))
    }

    /// The same, its transactions run as calls of the [procedures], which are registered, or not.
    #[must_use]
    pub fn by_calls(mut self, calls: bool) -> Tatp {
        self.calls = calls;
        self
    }

    /// Runs other transactions from now on.
    pub fn set_mix(&mut self, mix: Mix) {
        self.mix = mix;
    }

    /// Runs the transaction of a request until its outcome is durable.
    ///
    /// # Errors
    /// [`Error::Aborted`](rialto::Error::Aborted) for what does not succeed; what transactions can meet.
    #[inline]
    pub fn run(&self, request: &Request, client: &mut Client) -> Result<Response> {
        let options = &self.options[request.name() as usize];
        let Client { row, scans, calls, done, .. } = client;
        let response = match self.calls {
            true => self.call(options, request, calls)?,
            false => self
                .database
                .transact_with(options, |transaction| self.tables.run(transaction, request, scans, row))?,
        };
        done.count(request, &response);
        Ok(response)
    }

    #[inline(never)]
    fn call(&self, options: &TxOptions, request: &Request, calls: &mut Calls) -> Result<Response> {
        set_arguments(request, calls);
        let name = request.name();
        let outputs = calls.call(&self.database, options, (name as usize, name.as_str()))?;
        flows::response(request, outputs)
    }
}

/// The arguments of a call, in the order of its procedure.
fn set_arguments(request: &Request, calls: &mut Calls) {
    calls.arguments.clear();
    flows::each_argument(request, |argument| calls.arguments.push(argument));
}

impl Workload for Tatp {
    type Client = Client;
    type Ticket = Submitted<Request>;

    fn procedures(&self) -> &'static [&'static str] {
        &Name::NAMES
    }

    fn client(&self, number: u32, seed: u64) -> Client {
        let random = random_of(number, seed);
        let row = self.tables.subscriber_row();
        Client { random, row, scans: Scans::new(), calls: Calls::default(), done: Totals::default() }
    }

    #[inline]
    fn run_one(&self, client: &mut Client, _: Instant) -> Result<usize> {
        let request = Request::draw(self.mix.draw(&mut client.random), self.shape, &mut client.random);
        self.run(&request, client)?;
        Ok(request.name() as usize)
    }

    #[inline]
    fn submit_one(&self, client: &mut Client, _: Instant) -> Result<(usize, Submitted<Request>)> {
        let Client { random, row, scans, calls, done } = client;
        let request = Request::draw(self.mix.draw(random), self.shape, random);
        let position = request.name() as usize;
        let options = &self.options[position];
        if self.calls {
            set_arguments(&request, calls);
            let sent = calls.send(&self.database, options, (position, request.name().as_str()))?;
            return Ok((position, Submitted::sent(sent, request)));
        }
        let (response, ticket) = self
            .database
            .submit_with(options, |transaction| self.tables.run(transaction, &request, scans, row))?;
        // A ticket that fails ends the run without a verdict.
        done.count(&request, &response);
        Ok((position, Submitted::Placed(ticket)))
    }

    #[inline]
    fn settle(&self, client: &mut Client, answer: Answer<Request>) -> Result<()> {
        match answer {
            Answer::Placed(outcome) => outcome,
            Answer::Called(request, outputs) => {
                client.done.count(&request, &flows::response(&request, &outputs?)?);
                Ok(())
            }
        }
    }

    fn retire(&self, client: Client) {
        self.done.lock().expect("no thread panics with it").add(&client.done);
    }
}

impl Audited for Tatp {
    const NAME: &'static str = "tatp";
    const TITLE: &'static str = "TATP (TM1)";
    const DATA: &'static str = "TATP population";
    const SUCCESS_PERCENT: Option<&'static [f64]> = Some(&Name::SUCCESS_PERCENT);

    type Audit = Audit;

    fn memory_per_transaction(&self) -> f64 {
        // Call forwardings that are inserted and deleted balance.
        0.0
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
        after.judge(self.shape, &before.totals, &done)
    }
}
