//! The server's events, for logs: connections, errors that go to clients, the database's health, and the shutdown.
//!
//! They are [`tracing`] events. Without a subscriber an event costs a load and a branch, and none lies on the path of a
//! statement that succeeds. `rialto serve --log` prints them; a program that embeds the server chooses a subscriber.
//!
//! Invariant: no event has a password, an argument, or text of a statement. The message of an error may quote a value
//! (`Key (a)=(5) already exists`), so only the messages of errors of the machine are part of an event: they name files
//! and bounds. Texts that clients choose (user, database, application name) are quoted, so that an event is one line.

use std::fmt::Display;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rialto::{Database, Metrics};
use rialto_sql::{Session, SqlError, SqlState};
use tracing::{Level, Span, debug, enabled, error, error_span, info, warn};

/// The target of what the server says about its end, which is printed unless something else is asked for.
macro_rules! shutdown {
    ($($event:tt)*) => { tracing::info!(target: "rialto_server::shutdown", $($event)*) };
}
pub(crate) use shutdown;

/// How often the database's health is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The least time between two events of errors of the machine of one kind, in seconds.
const MACHINE_EVERY_S: u64 = 10;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client said that it ends.
    Terminated,
    /// The client closed its socket without a word.
    Closed,
    /// It asked for nothing but a cancellation, or was turned away at its start.
    NotBegun,
    /// The server shuts down.
    Shutdown,
    /// The server ended it by an error.
    Fatal(SqlState),
}

/// Tells of a connection from its first byte to its last.
pub(crate) struct ConnectionEvents {
    began: Instant,
    span: Span,
}

impl ConnectionEvents {
    /// A connection of this number is accepted.
    pub fn accepted(process: u32, from: &dyn Display) -> ConnectionEvents {
        let span = error_span!("connection", process);
        span.in_scope(|| info!(from = %from, "accepted"));
        ConnectionEvents { began: Instant::now(), span }
    }

    /// Serves it: what happens meanwhile on this thread is told as the connection's.
    pub fn serve(&self, serve: impl FnOnce() -> io::Result<Ended>) {
        let _inside = self.span.enter();
        let ended = serve();
        let reason = match &ended {
            Ok(Ended::Terminated) => "the client ended it".to_owned(),
            Ok(Ended::Closed) => "the client closed it without a Terminate".to_owned(),
            Ok(Ended::NotBegun) => "no session began".to_owned(),
            Ok(Ended::Shutdown) => "the server shuts down".to_owned(),
            Ok(Ended::Fatal(state)) => format!("{} {}", state.code(), state.condition()),
            Err(error) => error.to_string(),
        };
        info!(reason = &*reason, seconds = self.began.elapsed().as_secs_f64(), "ended");
    }
}

/// A session has begun.
pub(crate) fn session_began(user: &str, database: &str, session: &Session) {
    if enabled!(Level::INFO) {
        let application_name = &*session.show("application_name");
        info!(user, database, application_name, "session began");
    }
}

/// A connection found no place.
pub(crate) fn turned_away(connections: usize) {
    static THROTTLE: Throttle = Throttle::new();
    if let Some(left_out) = THROTTLE.due() {
        warn!(connections, left_out, "turned away: all connections are in use");
    }
}

/// An error goes to a client.
#[cold]
pub(crate) fn error_sent(error: &SqlError) {
    let (sqlstate, condition) = (error.sqlstate.code(), error.sqlstate.condition());
    debug!(sqlstate, condition, position = error.position, "error sent");
    if is_of_the_machine(error) {
        machine_failed(error);
    }
}

/// Whether the machine, its disk or the database fails, and not the client. A client that is gone is an I/O error, too,
/// but not one of the database.
fn is_of_the_machine(error: &SqlError) -> bool {
    match error.sqlstate {
        SqlState::Internal => true,
        SqlState::DiskFull
        | SqlState::OutOfMemory
        | SqlState::IoError
        | SqlState::OutcomeUnknown
        | SqlState::Corrupt => error.cause.is_some(),
        _ => false,
    }
}

/// Which events of one kind are told: one in ten seconds.
struct Throttle {
    /// The second in which one was told; 0 if none was.
    told: AtomicU64,
    /// The number of those that were not told since.
    left_out: AtomicU64,
}

impl Throttle {
    const fn new() -> Throttle {
        Throttle { told: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// If one is to be told now: how many were left out since the one before.
    fn due(&self) -> Option<u64> {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        self.due_at(FIRST.get_or_init(Instant::now).elapsed().as_secs())
    }

    /// As [`Throttle::due`], in this second.
    fn due_at(&self, second: u64) -> Option<u64> {
        // Seconds count from here, so that the first is told.
        let now = second + MACHINE_EVERY_S;
        let told = self.told.load(Ordering::Relaxed);
        let is_due = now >= told + MACHINE_EVERY_S
            && self.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

/// Tells of an error of the machine. A full disk fails every statement, so there is at most one such event of each
/// SQLSTATE in ten seconds: clients that meet the memory bound, as they may all day, hide no error of the disk.
fn machine_failed(error: &SqlError) {
    static OF_STATES: [Throttle; 6] = [const { Throttle::new() }; 6];
    let state = match error.sqlstate {
        SqlState::DiskFull => 0,
        SqlState::OutOfMemory => 1,
        SqlState::IoError => 2,
        SqlState::OutcomeUnknown => 3,
        SqlState::Corrupt => 4,
        _ => 5,
    };
    if let Some(left_out) = OF_STATES[state].due() {
        error!(sqlstate = error.sqlstate.code(), cause = &*error.message, left_out, "a statement failed");
    }
}

/// A connection could not be accepted: files or threads have run out. The server tries again without end.
#[cold]
pub(crate) fn not_accepted(error: &io::Error) {
    static THROTTLE: Throttle = Throttle::new();
    // A client that has gone meanwhile is no failure.
    let has_gone = matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset);
    if !has_gone && let Some(left_out) = THROTTLE.due() {
        error!(cause = &*error.to_string(), left_out, "a connection could not be accepted");
    }
}

/// What is told of the database's health.
#[derive(Default, PartialEq)]
struct Health {
    checkpoints_failed: u64,
    checkpoint_failure: Option<String>,
    archive_failure: Option<String>,
}

impl Health {
    fn of(metrics: Metrics) -> Health {
        Health {
            checkpoints_failed: metrics.checkpoints.failed,
            checkpoint_failure: metrics.checkpoints.failure,
            archive_failure: metrics.archive.and_then(|archive| archive.failure),
        }
    }

    /// Tells what has changed. A cause that stays is told once.
    fn tell(&self, before: &Health) {
        match (&self.checkpoint_failure, &before.checkpoint_failure) {
            (Some(cause), was) if was.as_ref() != Some(cause) => {
                error!(cause = &**cause, failed = self.checkpoints_failed, "a checkpoint failed");
            }
            (None, Some(_)) => warn!("checkpoints succeed again"),
            (None, None) if self.checkpoints_failed > before.checkpoints_failed => {
                error!(failed = self.checkpoints_failed, "a checkpoint failed, and a later one succeeded");
            }
            _ => {}
        }
        match (&self.archive_failure, &before.archive_failure) {
            (Some(cause), was) if was.as_ref() != Some(cause) => {
                error!(cause = &**cause, "the archive takes no files");
            }
            (None, Some(_)) => warn!("the archive takes files again"),
            _ => {}
        }
    }
}

/// Looks at the database's health until this is dropped, and tells of failures that no client is told of.
pub(crate) async fn watch(database: Database) {
    let mut before = Health::default();
    loop {
        if enabled!(Level::ERROR) {
            let now = Health::of(database.metrics());
            now.tell(&before);
            before = now;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_in_ten_seconds_is_told_and_the_others_are_counted() {
        let throttle = Throttle::new();
        let told: Vec<_> = [0, 0, 9, 10, 11, 40].map(|second| throttle.due_at(second)).into();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
