//! [`Shared`]: what all connections of a server share: the database, the places for connections, and the phase of the
//! server.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rialto::{Database, Error};
use rialto_sql::parse::READING_ROOM_BYTES;
use rialto_sql::partitions::Partitions;
use rialto_sql::room::Room;
use rialto_sql::{Cancel, Session, SqlError, SqlState};
use tokio::sync::Notify;

use crate::ServeOptions;
use crate::connection::Closer;

/// The most bytes of large messages that all connections of a server receive at one time.
const MESSAGE_ROOM_BYTES: usize = 2 << 30;

/// How often a server checks whether its database has stopped, if no session has told it.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Connections beyond the bound that may still send a cancel request, or are told that there is no room.
pub(crate) const REFUSED_MAX: usize = 16;
/// How long such a connection may take.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The phase of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// New work is refused, open transactions may finish.
    Draining,
    /// Everything ends.
    Ending,
}

/// What all connections share.
pub struct Shared {
    pub(crate) database: Database,
    /// The partitions over which sessions run; `None` if they run on the database.
    partitions: Option<Arc<dyn Partitions>>,
    /// The memory for the statements that its sessions are reading.
    pub(crate) reading_room: Arc<Room>,
    /// The memory for the messages that its connections are receiving, and for the text behind a COPY in a query
    /// string.
    pub(crate) message_room: Arc<Room>,
    connections_max: usize,
    startup_timeout: Duration,
    write_timeout: Duration,
    connections: Mutex<HashMap<u32, Registered>>,
    next_process: AtomicU32,
    random: RandomState,
    phase: AtomicU8,
    /// The error that stopped the database.
    failure: OnceLock<Error>,
    suspected: Notify,
}

/// A connection, from the moment that it is accepted.
struct Registered {
    secret: u32,
    /// The canceller of its session, once there is one.
    cancel: Option<Arc<Cancel>>,
    /// Whether it is one of those within the bound.
    served: bool,
    /// Whether it waits for a message while nothing is open.
    idle: Arc<AtomicBool>,
    close: Closer,
}

impl Shared {
    /// For a server of this database.
    pub fn new(database: Database, connections_max: usize) -> Arc<Shared> {
        Shared::with(database, &ServeOptions { max_connections: connections_max, ..ServeOptions::default() })
    }

    /// For a server of this database, with the bounds of these options.
    pub fn with(database: Database, options: &ServeOptions) -> Arc<Shared> {
        Shared::serving(database, None, options)
    }

    /// For a server of sessions over these partitions, with the bounds of these options. Its database is their catalog.
    pub fn over_partitions(partitions: Arc<dyn Partitions>, options: &ServeOptions) -> Arc<Shared> {
        Shared::serving(partitions.catalog(), Some(partitions), options)
    }

    fn serving(
        database: Database,
        partitions: Option<Arc<dyn Partitions>>,
        options: &ServeOptions,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            database,
            partitions,
            reading_room: Room::new(READING_ROOM_BYTES),
            message_room: Room::new(MESSAGE_ROOM_BYTES),
            connections_max: options.max_connections,
            startup_timeout: options.startup_timeout,
            write_timeout: options.write_timeout,
            connections: Mutex::default(),
            next_process: AtomicU32::new(1),
            random: RandomState::new(),
            phase: AtomicU8::new(Phase::Serving as u8),
            failure: OnceLock::new(),
            suspected: Notify::new(),
        })
    }

    /// A new session, for this user and database name.
    pub(crate) fn session(&self, user: &str, name: &str) -> Session {
        let room = self.reading_room.clone();
        match &self.partitions {
            None => Session::beside_others(self.database.clone(), user, name, room),
            Some(partitions) => Session::over_partitions(partitions.clone(), user, name, room),
        }
    }

    /// Whether the server's end closes the database. Partitions are closed by the node that has them.
    pub(crate) fn closes_database(&self) -> bool {
        self.partitions.is_none()
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u32, Registered>> {
        self.connections.lock()
    }

    /// The most connections at a time.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// The time in which a client has to read or send a step; `None` without a limit.
    pub(crate) fn write_timeout(&self) -> Option<Duration> {
        Some(self.write_timeout).filter(|limit| !limit.is_zero())
    }

    /// Gives an accepted connection a place within the bound. If none is free, gives it one for a refusal or a cancel
    /// request. `None` if these are taken too, or the server ends.
    pub(crate) fn admit(self: &Arc<Self>, close: Closer) -> Option<Place> {
        let mut connections = self.connections();
        let served_now = connections.values().filter(|registered| registered.served).count();
        let served = served_now < self.connections_max;
        if !served && connections.len() - served_now >= REFUSED_MAX {
            return None;
        }
        // Numbers come again after 2^32 connections, and an old one may still be in use.
        let next = || self.next_process.fetch_add(1, Ordering::Relaxed);
        let process = std::iter::repeat_with(next).find(|process| !connections.contains_key(process));
        let process = process.expect("there are fewer connections than numbers");
        let secret = self.random.hash_one((process, std::time::SystemTime::now())) as u32;
        // Until its session begins, ending it loses nothing.
        let idle = Arc::new(AtomicBool::new(true));
        connections.insert(process, Registered { secret, cancel: None, served, idle: idle.clone(), close });
        drop(connections);
        let place = Place { shared: self.clone(), process, secret, served, idle };
        // A phase that began before the insertion did not see the connection.
        place.is_serving().then_some(place)
    }

    /// Cancels the statement of a connection, if the secret is right.
    pub(crate) fn cancel(&self, process: u32, secret: u32) {
        let cancel = match self.connections().get(&process) {
            Some(registered) if registered.secret == secret => registered.cancel.clone(),
            _ => None,
        };
        if let Some(cancel) = cancel {
            cancel.request();
        }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Serving,
            1 => Phase::Draining,
            _ => Phase::Ending,
        }
    }

    /// Changes the phase, and ends the reads of connections that end by it.
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
        for registered in self.connections().values() {
            if phase == Phase::Ending || registered.idle.load(Ordering::SeqCst) {
                (registered.close)(Shutdown::Read);
            }
        }
    }

    /// Refuses new work.
    pub(crate) fn drain(&self) {
        self.enter(Phase::Draining);
    }

    /// Ends everything: waits for locks are cancelled.
    pub(crate) fn end(&self) {
        self.enter(Phase::Ending);
        for registered in self.connections().values() {
            if let Some(cancel) = &registered.cancel {
                cancel.request();
            }
        }
    }

    /// Cuts off the connections that are left, which wait for clients that do not read.
    pub(crate) fn cut(&self) {
        for registered in self.connections().values() {
            (registered.close)(Shutdown::Both);
        }
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.connections().len()
    }

    /// Examines an error that goes to a client: it may say that the database has stopped.
    pub(crate) fn note(&self, error: &SqlError) {
        if error.is_log_failure() {
            self.suspected.notify_one();
        }
    }

    /// Returns once the database has stopped (I4), with the error that stopped it.
    pub(crate) async fn stopped(&self) -> Error {
        loop {
            // A node moves the partitions of a database that has stopped elsewhere, and goes on.
            if let Some(error) = self.database.stopped().filter(|_| self.closes_database()) {
                return self.failure.get_or_init(|| error).clone();
            }
            let _ = tokio::time::timeout(LOOK_AFTER, self.suspected.notified()).await;
        }
    }

    /// The error for a client whose connection ends because the server does.
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

/// A connection's place in a server; dropping it frees it.
pub(crate) struct Place {
    shared: Arc<Shared>,
    pub(crate) process: u32,
    pub(crate) secret: u32,
    served: bool,
    idle: Arc<AtomicBool>,
}

impl Place {
    /// Whether the place is one for a session.
    pub(crate) fn is_served(&self) -> bool {
        self.served
    }

    /// The time that the client has for its start-up packets.
    pub(crate) fn startup_timeout(&self) -> Duration {
        let limit = self.shared.startup_timeout;
        if self.served { limit } else { limit.min(REFUSAL_TIMEOUT) }
    }

    /// The connection has a session.
    pub(crate) fn begin(&self, cancel: Arc<Cancel>) {
        if let Some(registered) = self.shared.connections().get_mut(&self.process) {
            registered.cancel = Some(cancel);
        }
    }

    /// Whether the server serves.
    #[inline]
    pub(crate) fn is_serving(&self) -> bool {
        self.shared.phase() == Phase::Serving
    }

    /// Whether the connection, idle or not, is to end.
    pub(crate) fn ends(&self, idle: bool) -> bool {
        match self.shared.phase() {
            Phase::Serving => false,
            Phase::Draining => idle,
            Phase::Ending => true,
        }
    }

    /// Waits for a message by `read`, which returns at once if the connection is to end.
    pub(crate) fn read(&self, idle: bool, read: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        self.idle.store(idle, Ordering::SeqCst);
        // A phase that began before the line above is seen here. One that begins after it sees that line, and closes
        // the reads.
        if self.ends(idle) {
            return Ok(true);
        }
        let more = read();
        self.idle.store(false, Ordering::SeqCst);
        more
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections().remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_its_number_when_numbers_come_again() {
        let options = rialto::Options { memory_bytes: 16 << 20, ..rialto::Options::default() };
        let database = Database::open_on(rialto::io::MemoryDisk::new(), options).unwrap();
        let shared = Shared::new(database, 4);
        let admit = || shared.admit(Box::new(|_| ())).unwrap();
        let first = admit();
        shared.next_process.store(u32::MAX, Ordering::Relaxed);
        let others = [admit(), admit(), admit()];
        let mut numbers: Vec<u32> = others.iter().chain([&first]).map(|place| place.process).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), shared.count()), (4, 4));
    }
}
