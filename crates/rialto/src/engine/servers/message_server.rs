//! [`MessageServer`]: puts requests and takes responses, like the telecommunications monitor of a bank.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Instant;

use super::envelope::{Envelope, Responses};
use super::request::{Request, Response};
use super::response_queue::{ResponseQueue, ServerWait};
use super::server::ServedProcedure;
use crate::account::processor;
use crate::engine::data_oriented::{Queues, Task};
use crate::engine::dispatch::Refused;
use crate::engine::runtime::Runtime;
use crate::error::{Error, Result};
use crate::inside::InBody;

/// After so many requests without a sleep, a message server accounts its processor time.
const REQUESTS_A_LAP: u32 = 64;

/// Puts requests on a [`TransactionServer`](super::TransactionServer)'s queue and takes responses from its own.
///
/// Its thread is the message server: the processor time of the thread from the first call on, also between the calls,
/// is [`ServerTimes::message`](crate::ServerTimes::message). Dropping it cancels nothing: its requests run, and their
/// responses are dropped.
///
/// Inside a body it does not wait: what it would wait for may come only when the body has ended, because the body may
/// be one of the server's requests. Neither does it wait in a call of a backup's stream or in a line of progress of
/// the same database.
pub struct MessageServer {
    runtime: Arc<Runtime>,
    queues: Arc<Queues>,
    responses: Arc<Responses>,
    /// Memory for later requests.
    spare: Vec<Request>,
    /// Requests whose responses were not taken yet.
    outstanding: usize,
    /// The queue was full when the last request was put.
    wants_room: bool,
    /// The thread whose processor time is accounted.
    thread: Option<ThreadId>,
    requests: u32,
}

impl MessageServer {
    pub(super) fn new(runtime: &Arc<Runtime>, queues: &Arc<Queues>) -> MessageServer {
        MessageServer {
            runtime: runtime.clone(),
            queues: queues.clone(),
            responses: Arc::new(ResponseQueue::new()),
            spare: Vec::new(),
            outstanding: 0,
            wants_room: false,
            thread: None,
            requests: 0,
        }
    }

    /// A request without arguments.
    pub fn request(&mut self, procedure: &ServedProcedure) -> Request {
        match self.spare.pop() {
            Some(mut spare) => {
                spare.renew(procedure);
                spare
            }
            None => Request(Envelope::new(procedure, &self.responses)),
        }
    }

    /// Puts a request on the queue; waits while the queue is full.
    ///
    /// # Errors
    /// [`Error::Procedure`] if the procedure takes other arguments; [`Error::ForeignHandle`] if it is another
    /// database's; [`Error::Closed`] if the server is closed; [`Error::Nested`] inside a body if the queue is full:
    /// [`MessageServer::try_put`] gives the request back.
    pub fn put(&mut self, request: Request) -> Result<()> {
        let mut request = request;
        while let Some(refused) = self.try_put(request)? {
            if !self.may_wait() {
                return Err(Error::Nested);
            }
            request = refused;
            self.sleep(ServerWait::Room);
        }
        Ok(())
    }

    /// Puts a request on the queue, or gives it back if the queue is full.
    ///
    /// # Errors
    /// As [`MessageServer::put`], except the last one.
    pub fn try_put(&mut self, request: Request) -> Result<Option<Request>> {
        self.count();
        let Request(mut envelope) = request;
        if envelope.opening != self.runtime.core.storage.catalog.opening() {
            return Err(Error::ForeignHandle {
                what: format!("procedure \"{}\"", envelope.procedure.name()),
            });
        }
        if !Arc::ptr_eq(&envelope.responses, &self.responses) {
            // Another message server has made it, but the response comes to this one, which waits for it.
            envelope.responses = self.responses.clone();
        }
        if let Cow::Owned(arguments) = envelope.procedure.check(&envelope.arguments)? {
            envelope.arguments = arguments;
        }
        if self.wants_room {
            self.responses.forget_room();
        }
        envelope.put = Instant::now();
        match self.queues.request_queue().put(Task::Request(envelope), &self.responses) {
            Ok(()) => {
                self.outstanding += 1;
                self.wants_room = false;
                Ok(None)
            }
            Err(Refused::Full(Task::Request(envelope))) => {
                self.wants_room = true;
                Ok(Some(Request(envelope)))
            }
            Err(_) => Err(Error::Closed),
        }
    }

    /// Takes the response that came first; waits if there is none yet. Of requests in progress, a later one may be
    /// answered earlier, because several threads may find at the same time that the log is durable. None if there is
    /// none to come; inside a body, if there is none yet.
    pub fn take(&mut self) -> Option<Response> {
        loop {
            if let Some(response) = self.try_take() {
                return Some(response);
            }
            if self.outstanding == 0 || !self.may_wait() {
                return None;
            }
            self.sleep(ServerWait::Response);
        }
    }

    /// Takes a response, if one is there.
    pub fn try_take(&mut self) -> Option<Response> {
        let mut envelope = self.responses.take()?;
        self.outstanding -= 1;
        envelope.taken = Instant::now();
        Some(Response(envelope))
    }

    /// Sleeps until there is a response, or, if the queue was full when a request was last put on it, until there is
    /// room. Returns at once if neither is to come, and inside a body.
    pub fn wait(&mut self) {
        if !self.may_wait() {
            return;
        }
        let awaited = match (self.outstanding > 0, self.wants_room) {
            (true, true) => ServerWait::Either,
            (true, false) => ServerWait::Response,
            (false, true) => ServerWait::Room,
            (false, false) => return,
        };
        self.sleep(awaited);
    }

    fn sleep(&self, awaited: ServerWait) {
        self.responses.wait(awaited, || self.runtime.server_times.message.lap());
    }

    /// Not inside a body: the executor that is to answer may be the one that runs the body.
    fn may_wait(&self) -> bool {
        !InBody::is_inside(self.runtime.core.storage.catalog.opening())
    }

    /// Requests that were put on the queue, and whose responses were not taken yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Gives a response's memory back, for the next request.
    pub fn recycle(&mut self, response: Response) {
        let Response(envelope) = response;
        // If it belongs to another message server, a request in it would be answered there.
        if Arc::ptr_eq(&envelope.responses, &self.responses) {
            self.spare.push(Request(envelope));
        }
    }

    /// Adds the thread's processor time to that of the message servers, so it is exact up to here. Otherwise it lags
    /// behind by some requests.
    pub fn count_processor_time(&mut self) {
        self.requests = 0;
        if self.thread.is_some() {
            self.runtime.server_times.message.lap();
        }
    }

    fn count(&mut self) {
        if self.requests == 0 {
            let thread = std::thread::current().id();
            match self.thread.replace(thread) {
                Some(before) if before == thread => self.runtime.server_times.message.lap(),
                _ => processor::begin(),
            }
        }
        self.requests = (self.requests + 1) % REQUESTS_A_LAP;
    }
}

impl Drop for MessageServer {
    fn drop(&mut self) {
        drop(self.responses.close());
    }
}

impl fmt::Debug for MessageServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageServer").field("outstanding", &self.outstanding).finish_non_exhaustive()
    }
}
