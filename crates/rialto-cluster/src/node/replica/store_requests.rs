//! [`StoreRequests`]: a replica's requests to the control store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::control::{ControlError, ControlStore, Revision, Swapped, Versioned};
use crate::protocol::PartitionId;
use crate::protocol::replication::{
    Configuration, Event, Known, ReadOutcome, StoreIdentity, SwapOutcome, Ticket,
};

/// Before the number of a partition in the key of its configuration.
pub const CONFIGURATIONS: &str = "partitions/";

/// The key of a partition's configuration.
pub fn configuration_key(partition: PartitionId) -> String {
    format!("{CONFIGURATIONS}{}", partition.0)
}

/// What the control store has of a partition.
///
/// # Errors
/// Those of the store; [`ControlError::Refused`] for bytes that are no configuration.
pub fn read_configuration(
    store: &dyn ControlStore,
    partition: PartitionId,
) -> Result<Option<Known>, ControlError> {
    let key = configuration_key(partition);
    let found = store.get(&key)?;
    let (Some(store), Some(value)) = (found.store, found.value) else { return Ok(None) };
    let configuration = Configuration::from_bytes(&value.value)
        .map_err(|error| ControlError::Refused(format!("the key {key}: {error}")))?;
    Ok(Some(Known { store, revision: value.revision, configuration }))
}

/// What the control store has of all partitions, and in words what it has that is no configuration.
///
/// # Errors
/// Those of the store.
pub fn read_configurations(
    store: &dyn ControlStore,
) -> Result<(BTreeMap<PartitionId, Known>, Vec<String>), ControlError> {
    let listed = store.list(CONFIGURATIONS)?;
    let (mut found, mut unreadable) = (BTreeMap::new(), Vec::new());
    let Some(identity) = listed.store else { return Ok((found, unreadable)) };
    let read = |(key, value): (String, Versioned)| {
        let wrong = |what: &dyn std::fmt::Display| format!("the control store's key {key}: {what}");
        let number = key.strip_prefix(CONFIGURATIONS).and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| wrong(&"it names no partition"))?;
        let configuration = Configuration::from_bytes(&value.value).map_err(|error| wrong(&error))?;
        Ok((PartitionId(number), Known { store: identity, revision: value.revision, configuration }))
    };
    for key in listed.keys {
        match read(key) {
            Ok((partition, known)) => _ = found.insert(partition, known),
            Err(what) => unreadable.push(what),
        }
    }
    Ok((found, unreadable))
}

enum Request {
    Read(Ticket),
    Swap { ticket: Ticket, store: StoreIdentity, expected: Revision, configuration: Configuration },
}

/// A replica's requests to the control store, one after the other on a thread of their own, since each may take the store's
/// whole time.
pub struct StoreRequests {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreRequests {
    /// Requests of a replica; `tell` gets each outcome.
    ///
    /// # Errors
    /// If no thread can start.
    pub fn new(
        store: Arc<dyn ControlStore>,
        partition: PartitionId,
        tell: impl Fn(Event) + Send + 'static,
    ) -> std::io::Result<StoreRequests> {
        let (requests, receiver) = channel();
        let serve = move || {
            for request in receiver {
                tell(carry_out(&*store, partition, request));
            }
        };
        let name = format!("rialto-control-{}", partition.0);
        let thread = std::thread::Builder::new().name(name).spawn(serve)?;
        Ok(StoreRequests { requests: Some(requests), thread: Some(thread) })
    }

    pub fn read(&self, ticket: Ticket) {
        self.send(Request::Read(ticket));
    }

    pub fn swap(
        &self,
        ticket: Ticket,
        store: StoreIdentity,
        expected: Revision,
        configuration: Configuration,
    ) {
        self.send(Request::Swap { ticket, store, expected, configuration });
    }

    fn send(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // Its thread ends only after this.
            let _ = requests.send(request);
        }
    }
}

impl Drop for StoreRequests {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has told of itself.
            let _ = thread.join();
        }
    }
}

fn carry_out(store: &dyn ControlStore, partition: PartitionId, request: Request) -> Event {
    match request {
        Request::Read(ticket) => {
            let outcome = match read_configuration(store, partition) {
                Ok(Some(known)) => ReadOutcome::Is(known),
                Ok(None) => ReadOutcome::Missing,
                Err(_) => ReadOutcome::Unavailable,
            };
            Event::ReadEnded(ticket, outcome)
        }
        Request::Swap { ticket, store: identity, expected, configuration } => {
            let key = configuration_key(partition);
            let outcome = match store.swap(identity, &key, Some(expected), &configuration.to_bytes()) {
                Ok(Swapped::Done(revision)) => SwapOutcome::Done(revision),
                Ok(Swapped::Lost | Swapped::AnotherStore) => SwapOutcome::Lost,
                Err(_) => SwapOutcome::Unknown,
            };
            Event::SwapEnded(ticket, outcome)
        }
    }
}
