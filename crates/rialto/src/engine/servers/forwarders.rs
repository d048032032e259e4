//! [`Forwarders`]: the responses of a transaction server that wait for the log in memory, and on disk.

use std::sync::Arc;
use std::task::Wake;

use super::envelope::Envelope;
use super::forwarder::{Forwarder, Places};
use crate::ids::Lsn;
use crate::log::{Durability, Listener, Log};
use crate::reply::Outcome;

/// The log, as far as responses wait for it.
struct LogPlaces(Arc<Log>);

impl Places for LogPlaces {
    type Place = (Lsn, Durability);
    type Response = (Outcome<()>, Box<Envelope>);

    fn place((outcome, _): &Self::Response) -> (Lsn, Durability) {
        outcome.place().expect("what waits for the log has a place there")
    }

    fn has_reached(&self, (lsn, durability): (Lsn, Durability)) -> bool {
        self.0.is_done(lsn, durability).is_some()
    }

    fn call(&self, (lsn, durability): (Lsn, Durability), forwarder: &Arc<Forwarder<Self>>) -> bool {
        // While there are requests to run; then the log is hurried.
        let listener = || Listener::own(&forwarder.clone().into());
        self.0.register_patient(lsn, durability, listener).is_none()
    }

    fn send(&self, (outcome, envelope): Self::Response) {
        let done = outcome.done().expect("the log has reached its place, or has stopped");
        envelope.complete(outcome.tell(done), &self.0);
    }
}

impl Wake for Forwarder<LogPlaces> {
    fn wake(self: Arc<Self>) {
        self.forward();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.forward();
    }
}

/// See the module.
pub(in crate::engine) struct Forwarders {
    log: LogPlaces,
    /// By level of durability.
    lines: [Arc<Forwarder<LogPlaces>>; 2],
}

impl Forwarders {
    pub fn new(log: &Arc<Log>) -> Forwarders {
        let places = || LogPlaces(log.clone());
        Forwarders { log: places(), lines: [(); 2].map(|()| Forwarder::new(places())) }
    }

    /// Puts the response on its queue, when what became of the request may be told.
    pub(super) fn complete(&self, mut outcome: Outcome<()>, envelope: Box<Envelope>) {
        outcome.await_log();
        match outcome.is_done() {
            true => self.log.send((outcome, envelope)),
            false => {
                let response = (outcome, envelope);
                let (_, durability) = LogPlaces::place(&response);
                self.lines[durability as usize].wait_for_log(response);
            }
        }
    }

    /// There is nothing to run for now: responses that wait for the disk need not wait for others.
    pub fn hurry_log(&self) {
        if self.lines[Durability::Disk as usize].has_responses() {
            self.log.0.hurry();
        }
    }

    /// Waits until no response waits for the log.
    pub fn wait_until_empty(&self) {
        self.hurry_log();
        self.lines.iter().for_each(|line| line.wait_until_empty());
    }
}
