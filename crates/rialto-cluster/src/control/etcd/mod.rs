//! A control store in etcd.
//!
//! One client holds a connection to each endpoint. A call asks the endpoint that answered last, then the others, each
//! with its share of the time that is left, and then all of them once more: a connection that has not answered is replaced
//! by a new one, as its other end may be gone. Threads of their own do the waiting; the caller's thread needs no runtime.
//! Calls of several threads are asked beside each other.
//!
//! # A swap that is asked twice
//!
//! If an endpoint has not answered, the swap that it was asked for may have been done, or may be done later. The next
//! endpoint is asked nevertheless. If it answers *done*, the first request had not been done before it, and cannot be
//! done after it, as the key's revision is another one now. If it answers *lost* or *another store*, the first request may
//! have been done before that: the caller is told that the outcome is unknown.
//!
//! Reading order: `options.rs`, `endpoint.rs` (one member), `request.rs` (what it is asked), `watch.rs` (waiting).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use self::endpoint::{Endpoint, Failed, append, describe};
use self::options::connect_options;
use self::request::{Answer, Request};
use super::{
    Changed, ControlError, ControlStore, Found, Listed, Renewed, Revision, Swapped, check_lengths, end_of,
};
use crate::protocol::replication::StoreIdentity;

mod endpoint;
mod options;
mod request;
mod watch;

pub use options::{EtcdOptions, EtcdTls};

/// How many times one call asks an endpoint at most: the second time by another connection, if the first one was
/// silent.
const ROUNDS: usize = 2;

/// A control store in etcd.
///
/// All endpoints have to be members of one etcd: the first answer says which one that is, and an answer of another one
/// is refused. An etcd that was restored from a backup may count as another one; the nodes connect to it again then.
pub struct EtcdStore {
    runtime: Option<tokio::runtime::Runtime>,
    shared: Arc<Shared>,
}

/// What the tasks of calls use.
struct Shared {
    endpoints: Vec<Endpoint>,
    prefix: String,
    call_max: Duration,
    /// The endpoint that is asked first.
    preferred: AtomicUsize,
    /// The identity of the etcd, known since the first answer.
    cluster: OnceLock<u64>,
}

impl EtcdStore {
    /// Connects to an etcd, and compares its version with the least one, 3.4.
    ///
    /// # Blocking
    /// It returns within [`EtcdOptions::call_max`].
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the options make no sense, if an endpoint's version is too old, or if the endpoints are
    /// members of several etcds; [`ControlError::Unavailable`] if no endpoint has answered. An endpoint that does not
    /// answer is no error if another one does: it is looked at before its first use.
    pub fn connect(options: EtcdOptions) -> Result<EtcdStore, ControlError> {
        let EtcdOptions { endpoints, prefix, call_max, tls } = options;
        if endpoints.is_empty() {
            return Err(ControlError::Refused("no endpoint of etcd is named; name one at least".to_owned()));
        }
        if !prefix.ends_with('/') {
            return Err(ControlError::Refused(format!(
                "the prefix {prefix:?} of etcd's keys does not end with /"
            )));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("rialto-etcd")
            .enable_all()
            .build()
            .map_err(|error| {
                ControlError::Unavailable(format!("no threads for etcd's connections: {error}"))
            })?;
        let mut connected = Vec::with_capacity(endpoints.len());
        for name in endpoints {
            let made = Endpoint::new(name.clone(), connect_options(call_max, tls.as_ref()));
            let endpoint = runtime.block_on(made).map_err(|error| {
                let what = describe(&error);
                ControlError::Refused(format!("the endpoint {name} of etcd cannot be used: {what}"))
            })?;
            connected.push(endpoint);
        }
        let shared = Shared {
            endpoints: connected,
            prefix,
            call_max,
            preferred: AtomicUsize::new(0),
            cluster: OnceLock::new(),
        };
        let store = EtcdStore { runtime: Some(runtime), shared: Arc::new(shared) };
        store.greet_all()?;
        Ok(store)
    }

    /// Asks every endpoint for its version, all at once.
    fn greet_all(&self) -> Result<(), ControlError> {
        let (sender, answers) = std::sync::mpsc::channel();
        for index in 0..self.shared.endpoints.len() {
            let (shared, sender) = (Arc::clone(&self.shared), sender.clone());
            self.runtime().spawn(async move {
                let answer = shared.ask_for(index, Request::Greet, shared.call_max).await;
                // The receiver waits for all of them.
                let _ = sender.send((index, answer.map(drop)));
            });
        }
        drop(sender);
        let (mut reached, mut told) = (None, String::new());
        for (index, answer) in answers {
            match answer {
                Ok(()) => reached = reached.min(Some(index)).or(Some(index)),
                Err(Failed::Refused(what)) => return Err(ControlError::Refused(what)),
                Err(Failed::Unknown(what)) => append(&mut told, &what),
            }
        }
        let Some(index) = reached else {
            return Err(ControlError::Unavailable(format!("{told}; start etcd, or name other endpoints")));
        };
        self.shared.preferred.store(index, Ordering::Relaxed);
        Ok(())
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("it is there until the store is dropped")
    }

    /// Has a request answered, and waits for it.
    fn call(&self, request: Request) -> Result<Answer, ControlError> {
        let shared = Arc::clone(&self.shared);
        self.wait_for(async move { shared.ask(request).await })
    }

    fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, ControlError> {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            // The receiver waits for it.
            let _ = sender.send(work.await);
        });
        answer
            .recv()
            .unwrap_or_else(|_| Err(ControlError::Unavailable("etcd's client has stopped".to_owned())))
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It does not wait, and may be called from a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Asks the endpoints in turn, each twice at most, until one answers.
    async fn ask(&self, request: Request) -> Result<Answer, ControlError> {
        let until = Instant::now() + self.call_max;
        let (first, count) = (self.preferred.load(Ordering::Relaxed), self.endpoints.len());
        let mut told = String::new();
        for asked in 0..ROUNDS * count {
            let index = (first + asked) % count;
            let share = until.saturating_duration_since(Instant::now()) / (ROUNDS * count - asked) as u32;
            match self.ask_for(index, request.clone(), share).await {
                Ok(Answer::Swapped(Swapped::Lost | Swapped::AnotherStore)) if !told.is_empty() => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Err(ControlError::Unavailable(format!(
                        "{told}; {} answers that the key or the store has changed, perhaps by or after the same request",
                        self.endpoints[index].name
                    )));
                }
                Ok(answer) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Failed::Refused(what)) if told.is_empty() => return Err(ControlError::Refused(what)),
                Err(Failed::Refused(what)) => {
                    append(&mut told, &what);
                    return Err(ControlError::Unavailable(told));
                }
                Err(Failed::Unknown(what)) => append(&mut told, &what),
            }
        }
        Err(ControlError::Unavailable(format!(
            "{told}; see whether most of etcd's members run and reach each other"
        )))
    }

    /// Asks one endpoint, for so long at most.
    async fn ask_for(&self, index: usize, request: Request, share: Duration) -> Result<Answer, Failed> {
        let endpoint = &self.endpoints[index];
        let connection = endpoint.connection();
        let answer = tokio::time::timeout(share, self.ask_one(endpoint, &connection, request)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Failed::Unknown(format!("{} has not answered for {share:.1?}", endpoint.name)))
        });
        if let Err(Failed::Unknown(_)) = answer {
            endpoint.replace(&connection).await;
        }
        answer
    }

    /// The endpoint that has answered last.
    fn preferred(&self) -> &Endpoint {
        &self.endpoints[self.preferred.load(Ordering::Relaxed)]
    }
}

impl ControlStore for EtcdStore {
    fn identify(&self, new: StoreIdentity) -> Result<StoreIdentity, ControlError> {
        match self.call(Request::Identify(new))? {
            Answer::Identified(identity) => Ok(identity),
            _ => unreachable!("it is answered with the identity"),
        }
    }

    fn renew_identity(&self, from: StoreIdentity, to: StoreIdentity) -> Result<Renewed, ControlError> {
        match self.call(Request::Renew { from, to })? {
            Answer::Renewed(renewed) => Ok(renewed),
            _ => unreachable!("a renewal is answered with its outcome"),
        }
    }

    fn get(&self, key: &str) -> Result<Found, ControlError> {
        match self.call(Request::Get(key.to_owned()))? {
            Answer::Found(found) => Ok(found),
            _ => unreachable!("a read is answered with what it has found"),
        }
    }

    fn swap(
        &self,
        store: StoreIdentity,
        key: &str,
        expected: Option<Revision>,
        value: &[u8],
    ) -> Result<Swapped, ControlError> {
        check_lengths(key, value)?;
        match self.call(Request::Swap { store, key: key.to_owned(), expected, value: value.to_vec() })? {
            Answer::Swapped(swapped) => Ok(swapped),
            _ => unreachable!("a swap is answered with its outcome"),
        }
    }

    fn list(&self, prefix: &str) -> Result<Listed, ControlError> {
        match self.call(Request::List(prefix.to_owned()))? {
            Answer::Listed(listed) => Ok(listed),
            _ => unreachable!("a list is answered with keys"),
        }
    }

    fn changed_since(
        &self,
        prefix: &str,
        since: Revision,
        patience: Duration,
    ) -> Result<Changed, ControlError> {
        let (shared, prefix, until) = (Arc::clone(&self.shared), prefix.to_owned(), end_of(patience));
        self.wait_for(async move { shared.changed_since(prefix, since, until).await })
    }
}
