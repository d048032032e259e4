//! The cards behind System M's servers: requests through one bounded queue, run one at a time as registered procedures.

use rialto::engine::servers::ServedProcedure;
use rialto::io::Random;
use rialto::row::Date;
use rialto::{Database, MessageServer, Result, TransactionServer, TransactionServerOptions};
use rialto_measure::driver::served::{self, Served, Taken};
use rialto_measure::driver::{Driven, Ended, Load, Observer, Outcome, ServersSetting, Workload};

use super::flows::{self, Answer};
use super::request::{Name, Request};
use super::verify::Totals;
use super::{Card, Shape};
use crate::data::ShapeError;
use crate::workload::Wraps;

/// The cards, and a transaction server for them.
#[derive(Debug)]
pub struct CardServers {
    card: Card,
    server: TransactionServer,
    /// In the order of [`Name::ALL`].
    procedures: [ServedProcedure; Name::COUNT],
    message_servers: u32,
}

/// What one message server has to itself.
#[derive(Debug)]
pub struct Desk {
    server: MessageServer,
    random: Random,
    /// A request that found the queue full.
    refused: Option<rialto::engine::servers::Request>,
    address: String,
    done: Totals,
}

impl CardServers {
    /// Starts a transaction server for cards; what `opened` says of them is passed on.
    ///
    /// # Errors
    /// As the opening; what a registration and a start can meet.
    pub fn start(
        database: &Database,
        opened: Result<(Card, bool), ShapeError>,
        options: &TransactionServerOptions,
        message_servers: u32,
    ) -> Result<(CardServers, bool), ShapeError> {
        let (card, there) = opened?;
        flows::register(database)?;
        let server = TransactionServer::start(database, options)?;
        let mut procedures = Vec::with_capacity(Name::COUNT);
        for name in Name::ALL {
            procedures.push(server.procedure(name.as_str())?);
        }
        let procedures = procedures.try_into().expect("one for each name");
        Ok((CardServers { card, server, procedures, message_servers }, there))
    }

    /// The sizes.
    pub fn shape(&self) -> Shape {
        self.card.shape()
    }

    /// A message server for people.
    pub(super) fn interactive(&self, today: Date) -> Interactive<'_> {
        Interactive { servers: self, desk: self.desk(0, 0), today }
    }
}

/// A message server that asks one thing at a time.
pub(super) struct Interactive<'a> {
    servers: &'a CardServers,
    desk: Desk,
    /// The day that requests are of: transactions are told it.
    pub today: Date,
}

impl Interactive<'_> {
    pub fn shape(&self) -> Shape {
        self.servers.shape()
    }

    /// Puts a request on the queue and waits for its response, which is given to `show`.
    ///
    /// # Errors
    /// The transaction's.
    pub fn ask(&mut self, request: &Request<'_>, show: impl FnOnce(&Answer<'_>)) -> Result<()> {
        let Desk { server, done, .. } = &mut self.desk;
        let mut call = server.request(&self.servers.procedures[request.name() as usize]);
        flows::each_argument(request, |argument| _ = call.push(argument));
        server.put(call)?;
        let response = server.take().expect("it was asked for");
        response.outcome().clone()?;
        let answer = flows::answer(request, response.outputs())?;
        done.count(request, &answer.response);
        show(&answer);
        server.recycle(response);
        Ok(())
    }

    /// What the responses add up to.
    pub fn done(&self) -> Totals {
        self.desk.done
    }
}

impl Served for CardServers {
    type Desk = Desk;

    fn types(&self) -> &'static [&'static str] {
        &Name::NAMES
    }

    fn desk(&self, number: u32, seed: u64) -> Desk {
        let super::Client { random, address, done, .. } = Workload::client(&self.card, number, seed);
        Desk { server: self.server.message_server(), random, refused: None, address, done }
    }

    fn put(&self, desk: &mut Desk) -> Result<bool> {
        let Desk { server, random, refused, address, .. } = desk;
        let call = refused.take().unwrap_or_else(|| {
            let request = Request::draw(self.card.mix.draw(random), &self.card.shape, random, address);
            let mut call = server.request(&self.procedures[request.name() as usize]);
            call.set_tag(request.name() as u64);
            flows::each_argument(&request, |argument| _ = call.push(argument));
            call
        });
        *refused = server.try_put(call)?;
        Ok(refused.is_none())
    }

    fn take(&self, desk: &mut Desk) -> Option<Taken> {
        let response = desk.server.try_take()?;
        let procedure = response.tag() as usize;
        let mut outcome = response.outcome().clone();
        if outcome.is_ok() {
            let request = flows::request(Name::ALL[procedure], response.arguments());
            let answer = request
                .and_then(|request| Ok((request, flows::answer(&request, response.outputs())?.response)));
            outcome = answer.map(|(request, response)| desk.done.count(&request, &response));
        }
        let taken =
            Taken { procedure, response_time: response.response_time(), at: response.taken_at(), outcome };
        desk.server.recycle(response);
        Some(taken)
    }

    fn wait(&self, desk: &mut Desk) {
        desk.server.wait();
    }

    fn outstanding(&self, desk: &Desk) -> usize {
        desk.server.outstanding()
    }

    fn retire(&self, mut desk: Desk) {
        desk.server.count_processor_time();
        self.card.add_to_done(&desk.done);
    }
}

impl Driven for CardServers {
    fn types(&self) -> &'static [&'static str] {
        Served::types(self)
    }

    fn drive(&self, load: &Load, observer: &mut dyn Observer) -> std::result::Result<Outcome, Ended> {
        served::drive(self, load, observer)
    }

    fn servers(&self) -> Option<ServersSetting> {
        let TransactionServerOptions { queue, standbys } = *self.server.options();
        Some(ServersSetting { message_servers: self.message_servers, queue, standbys })
    }

    fn server_stats(&self) -> rialto::engine::servers::TransactionServerStats {
        self.server.stats()
    }
}

impl Wraps for CardServers {
    type Inner = Card;

    fn inner(&self) -> &Card {
        &self.card
    }
}
