//! [`Shared`]: what all connections of a server share: the database, the places, the way to the end.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rialto::{Database, Error};
use rialto_sql::{Cancel, SqlError, SqlState};
use tokio::sync::{Notify, watch};

/// How soon a server hears that its database has stopped, if no session told it.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How far a server is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Far.
    Serving,
    /// New work is refused, open transactions may finish.
    Draining,
    /// Everything ends.
    Ending,
}

/// What all connections share.
pub struct Shared {
    pub(crate) database: Database,
    connections_max: usize,
    connections: Mutex<HashMap<u32, Registered>>,
    next_process: AtomicU32,
    random: RandomState,
    phase: watch::Sender<Phase>,
    /// The error that stopped the database.
    failure: OnceLock<Error>,
    suspected: Notify,
}

struct Registered {
    secret: u32,
    cancel: Arc<Cancel>,
}

impl Shared {
    /// For a server on this database.
    pub fn new(database: Database, connections_max: usize) -> Arc<Shared> {
        Arc::new(Shared {
            database,
            connections_max,
            connections: Mutex::default(),
            next_process: AtomicU32::new(1),
            random: RandomState::new(),
            phase: watch::Sender::new(Phase::Serving),
            failure: OnceLock::new(),
            suspected: Notify::new(),
        })
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u32, Registered>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most connections at a time.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Takes one of the places; `None` if all are taken.
    pub(crate) fn register(self: &Arc<Self>, cancel: Arc<Cancel>) -> Option<Place> {
        let mut connections = self.connections();
        if connections.len() >= self.connections_max {
            return None;
        }
        let process = self.next_process.fetch_add(1, Ordering::Relaxed);
        let secret = self.random.hash_one((process, std::time::SystemTime::now())) as u32;
        connections.insert(process, Registered { secret, cancel });
        Some(Place { shared: self.clone(), process, secret, phase: self.phase.subscribe() })
    }

    /// Cancels what a connection runs, if the secret is right.
    pub(crate) fn cancel(&self, process: u32, secret: u32) {
        let cancel = match self.connections().get(&process) {
            Some(registered) if registered.secret == secret => registered.cancel.clone(),
            _ => return,
        };
        cancel.request();
    }

    /// Refuses new work.
    pub(crate) fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Ends everything: what waits for a lock is cancelled.
    pub(crate) fn end(&self) {
        self.phase.send_replace(Phase::Ending);
        for registered in self.connections().values() {
            registered.cancel.request();
        }
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.connections().len()
    }

    /// Looks at an error that a client is told: it may say that the database has stopped.
    pub(crate) fn note(&self, error: &SqlError) {
        if matches!(error.cause.as_deref(), Some(Error::Stopped { .. } | Error::OutcomeUnknown { .. })) {
            self.suspected.notify_one();
        }
    }

    /// Returns once the database has stopped (I4), with the error that it stopped for.
    pub(crate) async fn stopped(&self) -> Error {
        loop {
            if let Some(error) = self.database.stopped() {
                return self.failure.get_or_init(|| error).clone();
            }
            let _ = tokio::time::timeout(LOOK_AFTER, self.suspected.notified()).await;
        }
    }

    /// What a client hears whose connection ends because the server does.
    pub(crate) fn farewell(&self) -> SqlError {
        match self.failure.get() {
            Some(error) => {
                let mut told = SqlError::from(error.clone());
                told.message = format!("terminating connection: {}", told.message);
                told
            }
            None => {
                let message = "terminating connection: the server is shutting down";
                SqlError::new(SqlState::Shutdown, message)
            }
        }
    }
}

/// A connection's place among those of a server; dropping it frees it.
pub(crate) struct Place {
    shared: Arc<Shared>,
    pub(crate) process: u32,
    pub(crate) secret: u32,
    phase: watch::Receiver<Phase>,
}

impl Place {
    /// How far the server is from its end.
    pub(crate) fn phase(&mut self) -> Phase {
        *self.phase.borrow_and_update()
    }

    /// Returns once the phase is another one.
    pub(crate) async fn phase_changed(&mut self) {
        if self.phase.changed().await.is_err() {
            // The sender lives as long as `shared`.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections().remove(&self.process);
    }
}
