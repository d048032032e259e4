//! [`Request`] and [`Response`]: the same envelope, on its way to an executor and back.

use std::fmt;
use std::time::{Duration, Instant};

use super::envelope::Envelope;
use super::server::ServedProcedure;
use crate::error::Result;
use crate::log::Durability;
use crate::row::Value;

/// A call of a registered procedure, to be put on the request queue.
/// [`MessageServer::request`](super::MessageServer::request) makes one.
pub struct Request(pub(super) Box<Envelope>);

impl Request {
    /// A new request of the same message server, in the memory of this one.
    pub(super) fn renew(&mut self, to: &ServedProcedure) {
        let envelope = &mut *self.0;
        if !envelope.procedure.is_same(&to.procedure) {
            envelope.opening = to.opening;
            envelope.procedure = to.procedure.clone();
        }
        envelope.options.clone_from(&to.options);
        envelope.arguments.clear();
        envelope.outputs.clear();
        envelope.tag = 0;
    }

    /// Adds an argument.
    pub fn push(&mut self, argument: impl Into<Value>) -> &mut Request {
        self.0.arguments.push(argument.into());
        self
    }

    /// The arguments so far.
    pub fn arguments(&self) -> &[Value] {
        &self.0.arguments
    }

    /// Sets a number that the response will also have, for the caller's use; 0 unless set.
    pub fn set_tag(&mut self, tag: u64) -> &mut Request {
        self.0.tag = tag;
        self
    }

    /// Sets how durable the transaction has to be before its response goes out; by default the database's level.
    pub fn set_durability(&mut self, durability: Durability) -> &mut Request {
        self.0.options.durability = Some(durability);
        self
    }

    /// The name of the procedure.
    pub fn procedure(&self) -> &str {
        self.0.procedure.name()
    }
}

/// The outcome of a [`Request`].
pub struct Response(pub(super) Box<Envelope>);

impl Response {
    /// Success if the transaction has committed and is as durable as was requested; otherwise its error.
    pub fn outcome(&self) -> &Result<()> {
        &self.0.outcome
    }

    /// The outputs of the procedure; none if it failed.
    pub fn outputs(&self) -> &[Value] {
        match self.0.outcome {
            Ok(()) => self.0.outputs.values(),
            Err(_) => &[],
        }
    }

    /// The number that the request was given.
    pub fn tag(&self) -> u64 {
        self.0.tag
    }

    /// The name of the procedure.
    pub fn procedure(&self) -> &str {
        self.0.procedure.name()
    }

    /// The request's arguments.
    pub fn arguments(&self) -> &[Value] {
        &self.0.arguments
    }

    /// When the request was put on the request queue.
    pub fn put_at(&self) -> Instant {
        self.0.put
    }

    /// When the response was taken from the response queue.
    pub fn taken_at(&self) -> Instant {
        self.0.taken
    }

    /// The time between the two: what the paper measures (section 4.3).
    pub fn response_time(&self) -> Duration {
        self.0.taken.saturating_duration_since(self.0.put)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Request");
        debug
            .field("procedure", &self.procedure())
            .field("arguments", &self.arguments())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Response");
        debug.field("procedure", &self.procedure()).field("outcome", self.outcome());
        debug.field("outputs", &self.outputs()).finish_non_exhaustive()
    }
}
