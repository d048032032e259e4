//! The credit cards of System M (section 4 of its paper): accounts, customers, hot cards and stores, and eight
//! transactions on them.
//!
//! | | share | what it does |
//! |---|---|---|
//! | BAL | 17% | reads an account and its customer's name |
//! | CCCK | 20% | reads an account; counts the check at the store; if the card is hot, counts the attempted use at the store and at the hot card |
//! | CLCK | 20% | the same, and compares the price with the credit that is left |
//! | DEBIT | 20% | adds a purchase to the used credit and to the store's sales, or counts at the store that the purchase was declined |
//! | PAY | 20% | takes a payment off the used credit |
//! | MOVE | 1% | changes a customer's address |
//! | LOST | 1% | marks an account as lost and puts its card on the list of hot cards |
//! | FOUND | 1% | takes the mark away and the card off the list; the customer keeps the attempted uses |
//!
//! The paper names the first five transactions and their shares, the sets and the sizes of their records. The last
//! three are ours: the paper only says that its other transactions change the customer's description and handle lost
//! cards. LOST and FOUND draw from a small part of the cards, so that about a hundred are hot at any time
//! ([`Shape::careless`]).
//!
//! - [`request`]: arguments and responses;
//! - [`tables`]: the sets; [`transactions`]: what is done on each; [`flows`]: the same as registered procedures;
//! - [`verify`]: the consistency condition;
//! - [`servers`]: the same behind System M's transaction server; [`interactive`]: the message server for people.

mod flows;
pub mod interactive;
pub mod request;
pub mod servers;
mod tables;
#[cfg(test)]
mod tests;
mod transactions;
mod verify;

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Instant;

use rialto::io::Random;
use rialto::{Database, Residence, Result, TxOptions};
use rialto_measure::driver::Workload;
use rialto_measure::limits::Bank;

pub use self::flows::procedures;
pub use self::request::{Name, Request, Response, TODAY};
pub use self::servers::CardServers;
use self::tables::Sets;
pub use self::tables::{ACCOUNTS, ADDRESS_BYTES, Shape};
pub use self::verify::{Audit, Totals};
use crate::calls::Calls;
use crate::data::{Data, ShapeError};
use crate::verify::Totals as _;
use crate::workload::{Answer, Audited, Submitted, Verdict, random_of};

/// How often each transaction is run.
pub type Mix = crate::mix::Mix<Name>;

/// The cards, open.
#[derive(Debug)]
pub struct Card {
    database: Database,
    shape: Shape,
    mix: Mix,
    sets: Sets,
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
    /// Memory for the name that a balance check reads, and for a new address.
    name: String,
    address: String,
    calls: Calls,
    done: Totals,
}

impl Card {
    /// The cards in the database, if they are of this shape; loaded, if the database is empty. The second is whether they
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
    ) -> Result<(Card, bool), ShapeError> {
        let ([accounts, customers, hot_cards, stores], there) =
            shape.open_or_load(database, residence, progress)?;
        let sets = Sets { accounts, customers, hot_cards, stores };
        let options = Name::ALL.map(|name| TxOptions {
            procedure: Some(database.procedure_id(name.as_str())),
            read_only: name == Name::Bal,
            ..TxOptions::default()
        });
        let done = Mutex::new(Totals::default());
        Ok((Card { database: database.clone(), shape, mix, sets, options, calls: false, done }, there))
    }

    /// The same, its transactions run as calls of the [procedures], which are registered, or not.
    #[must_use]
    pub fn by_calls(mut self, calls: bool) -> Card {
        self.calls = calls;
        self
    }

    /// Runs other transactions from now on.
    pub fn set_mix(&mut self, mix: Mix) {
        self.mix = mix;
    }

    /// The sizes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Adds what a client was told that is gone.
    fn add_to_done(&self, done: &Totals) {
        self.done.lock().expect("no thread panics with it").add(done);
    }

    /// Runs the transaction of a request until its outcome is durable.
    ///
    /// # Errors
    /// [`Error::Aborted`](rialto::Error::Aborted) for an account or store that there is not; what transactions can meet.
    #[inline]
    pub fn run(&self, request: &Request<'_>, client: &mut Client) -> Result<Response> {
        let Client { name, calls, done, .. } = client;
        self.transact(request, name, calls, done)
    }

    #[inline(always)]
    fn transact(
        &self,
        request: &Request<'_>,
        name: &mut String,
        calls: &mut Calls,
        done: &mut Totals,
    ) -> Result<Response> {
        let options = &self.options[request.name() as usize];
        let response = match self.calls {
            true => self.call(options, request, calls)?,
            false => self
                .database
                .transact_with(options, |transaction| self.sets.run(transaction, request, name))?,
        };
        done.count(request, &response);
        Ok(response)
    }
}

impl Card {
    /// All that [`Workload::run_one`] does but for the transaction.
    pub fn draw_one(&self, client: &mut Client) -> usize {
        let Client { random, address, done, .. } = client;
        let request = Request::draw(self.mix.draw(random), &self.shape, random, address);
        black_box(&self.options[request.name() as usize]);
        done.count(black_box(&request), black_box(&Response::Valid));
        request.name() as usize
    }
}

/// The arguments of a call, in the order of its procedure.
fn set_arguments(request: &Request<'_>, calls: &mut Calls) {
    calls.arguments.clear();
    flows::each_argument(request, |argument| calls.arguments.push(argument));
}

impl Card {
    #[inline(never)]
    fn call(&self, options: &TxOptions, request: &Request<'_>, calls: &mut Calls) -> Result<Response> {
        set_arguments(request, calls);
        let name = request.name();
        let outputs = calls.call(&self.database, options, (name as usize, name.as_str()))?;
        flows::answer(request, outputs).map(|answer| answer.response)
    }
}

impl Workload for Card {
    type Client = Client;
    type Ticket = Submitted<Request<'static>>;

    fn procedures(&self) -> &'static [&'static str] {
        &Name::NAMES
    }

    fn client(&self, number: u32, seed: u64) -> Client {
        let random = random_of(number, seed);
        Client {
            random,
            name: String::new(),
            address: String::new(),
            calls: Calls::default(),
            done: Totals::default(),
        }
    }

    #[inline]
    fn run_one(&self, client: &mut Client, _: Instant) -> Result<usize> {
        let Client { random, name, address, calls, done } = client;
        let request = Request::draw(self.mix.draw(random), &self.shape, random, address);
        self.transact(&request, name, calls, done)?;
        Ok(request.name() as usize)
    }

    #[inline]
    fn submit_one(&self, client: &mut Client, _: Instant) -> Result<(usize, Self::Ticket)> {
        let Client { random, name, address, calls, done } = client;
        let request = Request::draw(self.mix.draw(random), &self.shape, random, address);
        let position = request.name() as usize;
        let options = &self.options[position];
        if self.calls {
            set_arguments(&request, calls);
            let sent = calls.send(&self.database, options, (position, request.name().as_str()))?;
            return Ok((position, Submitted::sent(sent, request.without_text())));
        }
        let (response, ticket) =
            self.database.submit_with(options, |transaction| self.sets.run(transaction, &request, name))?;
        // A ticket that fails ends the run without a verdict.
        done.count(&request, &response);
        Ok((position, Submitted::Placed(ticket)))
    }

    #[inline]
    fn settle(&self, client: &mut Client, answer: Answer<Request<'static>>) -> Result<()> {
        match answer {
            Answer::Placed(outcome) => outcome,
            Answer::Called(request, outputs) => {
                client.done.count(&request, &flows::answer(&request, &outputs?)?.response);
                Ok(())
            }
        }
    }

    fn retire(&self, client: Client) {
        self.add_to_done(&client.done);
    }
}

impl Audited for Card {
    const NAME: &'static str = "card";
    const TITLE: &'static str = "Credit cards";
    const DATA: &'static str = "card portfolio";
    type Audit = Audit;

    fn memory_per_transaction(&self) -> f64 {
        // Cards that are reported lost and found balance.
        0.0
    }

    fn describe(&self) -> String {
        format!("{}; mix {}", self.shape, self.mix)
    }

    fn bank(&self) -> Option<Bank> {
        None
    }

    fn audit(&self) -> Result<Audit> {
        self.database.read(|transaction| self.sets.audit(transaction))
    }

    fn verdict(&self, before: &Audit, after: &Audit, _: RangeInclusive<u64>) -> Verdict {
        let done = *self.done.lock().expect("no thread panics with it");
        after.judge(self.shape, &before.totals, &done)
    }
}
