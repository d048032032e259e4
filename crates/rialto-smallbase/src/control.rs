//! The control store of a cluster under measurement: the parent has it in memory, and serves it to the nodes
//! ([`RemoteStore`]). It is as linearizable as [`MemoryStore`]. It ends with the parent, as the nodes do.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rialto_cluster::control::{
    Changed, ControlError, ControlStore, Found, Listed, MemoryStore, Renewed, Revision, Swapped, Versioned,
};
use rialto_cluster::protocol::replication::StoreIdentity;
use serde::{Deserialize, Serialize};

use crate::wire::{Hello, receive, send};

/// A call of [`ControlStore`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Identify(StoreIdentity),
    Renew { from: StoreIdentity, to: StoreIdentity },
    Get(String),
    Swap { store: StoreIdentity, key: String, expected: Option<Revision>, value: Vec<u8> },
    List(String),
    Changed { prefix: String, since: Revision, patience: Duration },
}

/// A value, and its revision.
type Value = (Vec<u8>, Revision);

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Identified(StoreIdentity),
    /// Whether it has the new identity.
    Renewed(bool),
    Found {
        store: Option<StoreIdentity>,
        value: Option<Value>,
    },
    /// `None`: another store.
    Swapped(Option<Result<Revision, ()>>),
    Listed {
        store: Option<StoreIdentity>,
        newest: Revision,
        keys: Vec<(String, Value)>,
    },
    Changed(bool),
    Unavailable(String),
    Refused(String),
}

fn parts(versioned: Versioned) -> Value {
    (versioned.value, versioned.revision)
}

fn whole((value, revision): Value) -> Versioned {
    Versioned { value, revision }
}

/// Carries out a node's request, and answers it.
///
/// # Errors
/// The node has gone.
pub fn serve(store: &MemoryStore, request: Request, to: &mut UnixStream) -> io::Result<()> {
    let reply = answer(store, request).unwrap_or_else(|error| match error {
        ControlError::Unavailable(why) => Reply::Unavailable(why),
        ControlError::Refused(why) => Reply::Refused(why),
    });
    send(to, &reply)
}

fn answer(store: &MemoryStore, request: Request) -> Result<Reply, ControlError> {
    Ok(match request {
        Request::Identify(new) => Reply::Identified(store.identify(new)?),
        Request::Renew { from, to } => Reply::Renewed(store.renew_identity(from, to)? == Renewed::Done),
        Request::Get(key) => {
            let Found { store, value } = store.get(&key)?;
            Reply::Found { store, value: value.map(parts) }
        }
        Request::Swap { store: of, key, expected, value } => {
            Reply::Swapped(match store.swap(of, &key, expected, &value)? {
                Swapped::Done(revision) => Some(Ok(revision)),
                Swapped::Lost => Some(Err(())),
                Swapped::AnotherStore => None,
            })
        }
        Request::List(prefix) => {
            let Listed { store, newest, keys } = store.list(&prefix)?;
            let keys = keys.into_iter().map(|(key, value)| (key, parts(value))).collect();
            Reply::Listed { store, newest, keys }
        }
        Request::Changed { prefix, since, patience } => {
            Reply::Changed(store.changed_since(&prefix, since, patience)? == Changed::Yes)
        }
    })
}

/// A node's client of the parent's store. Each call has a connection of its own, so that none waits for another one.
pub struct RemoteStore {
    parent: PathBuf,
}

impl RemoteStore {
    /// A client of the store that is served at the parent's socket.
    pub fn new(parent: PathBuf) -> RemoteStore {
        RemoteStore { parent }
    }

    fn ask(&self, request: Request) -> Result<Reply, ControlError> {
        let ask = || -> io::Result<Reply> {
            let mut stream = UnixStream::connect(&self.parent)?;
            send(&mut stream, &Hello::Store(request))?;
            receive(&mut BufReader::new(stream))?.ok_or_else(|| io::Error::other("the parent has gone"))
        };
        match ask() {
            Ok(Reply::Unavailable(why)) => Err(ControlError::Unavailable(why)),
            Ok(Reply::Refused(why)) => Err(ControlError::Refused(why)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(ControlError::Unavailable(error.to_string())),
        }
    }
}

/// An answer to another request: it may have been done.
fn other<T>(reply: &Reply) -> Result<T, ControlError> {
    Err(ControlError::Unavailable(format!("the parent has answered {reply:?}")))
}

impl ControlStore for RemoteStore {
    fn identify(&self, new: StoreIdentity) -> Result<StoreIdentity, ControlError> {
        match self.ask(Request::Identify(new))? {
            Reply::Identified(identity) => Ok(identity),
            reply => other(&reply),
        }
    }

    fn renew_identity(&self, from: StoreIdentity, to: StoreIdentity) -> Result<Renewed, ControlError> {
        match self.ask(Request::Renew { from, to })? {
            Reply::Renewed(true) => Ok(Renewed::Done),
            Reply::Renewed(false) => Ok(Renewed::AnotherStore),
            reply => other(&reply),
        }
    }

    fn get(&self, key: &str) -> Result<Found, ControlError> {
        match self.ask(Request::Get(key.to_owned()))? {
            Reply::Found { store, value } => Ok(Found { store, value: value.map(whole) }),
            reply => other(&reply),
        }
    }

    fn swap(
        &self,
        store: StoreIdentity,
        key: &str,
        expected: Option<Revision>,
        value: &[u8],
    ) -> Result<Swapped, ControlError> {
        match self.ask(Request::Swap { store, key: key.to_owned(), expected, value: value.to_vec() })? {
            Reply::Swapped(Some(Ok(revision))) => Ok(Swapped::Done(revision)),
            Reply::Swapped(Some(Err(()))) => Ok(Swapped::Lost),
            Reply::Swapped(None) => Ok(Swapped::AnotherStore),
            reply => other(&reply),
        }
    }

    fn list(&self, prefix: &str) -> Result<Listed, ControlError> {
        match self.ask(Request::List(prefix.to_owned()))? {
            Reply::Listed { store, newest, keys } => {
                let keys = keys.into_iter().map(|(key, value)| (key, whole(value))).collect();
                Ok(Listed { store, newest, keys })
            }
            reply => other(&reply),
        }
    }

    fn changed_since(
        &self,
        prefix: &str,
        since: Revision,
        patience: Duration,
    ) -> Result<Changed, ControlError> {
        match self.ask(Request::Changed { prefix: prefix.to_owned(), since, patience })? {
            Reply::Changed(true) => Ok(Changed::Yes),
            Reply::Changed(false) => Ok(Changed::No),
            reply => other(&reply),
        }
    }
}
