//! [`Connection`]: a session with one node; after an error, with the next one.

use std::thread;
use std::time::{Duration, Instant};

use rialto_measure::{RunError, interrupt};

use super::SERVES_WITHIN;
use super::addresses::Addresses;
use super::args::LevelName;
use crate::client::{Failure, Session, at_address_within};

/// For how long a node may let a new connection wait.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// For how long a node may let a client wait for an answer: longer than a failover takes.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The first pause after an error. Each further one is twice as long, up to [`PAUSE_MAX`], until something succeeds.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// The name that servers know these clients by.
const APPLICATION: &str = "rialto bench cluster";
/// The SQLSTATEs of a transaction that has had no effect, and may be run again in the same session: it conflicts with
/// another one, or was a deadlock's victim, or its partition is not served, or a lock was not free.
const AGAIN: [&str; 4] = ["40001", "40P01", "57P03", "55P03"];

/// Whether the transaction of a failed statement, or COMMIT, has certainly had no effect, and may be run again.
pub fn is_certain(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { code, .. } if AGAIN.contains(&&**code))
}

/// A name for a kind of failure: its SQLSTATE, or "connection".
pub fn name(failure: &Failure) -> &str {
    match failure {
        Failure::Refused { code, .. } => code,
        Failure::Connection(_) => "connection",
    }
}

/// A failure for people.
pub fn text(failure: &Failure) -> String {
    match failure {
        Failure::Refused { code, message } => format!("{message} ({code})"),
        Failure::Connection(error) => error.to_string(),
    }
}

/// A session with a node, or none.
pub struct Connection<'a> {
    addresses: &'a Addresses,
    durability: LevelName,
    /// The position of the node's address.
    position: usize,
    session: Option<Session>,
    pause: Duration,
}

impl<'a> Connection<'a> {
    /// No session yet; the first one will be with the node of this position.
    pub fn new(addresses: &'a Addresses, durability: LevelName, position: usize) -> Connection<'a> {
        Connection { addresses, durability, position, session: None, pause: PAUSE_MIN }
    }

    /// Executes statements, in a new session if there is none.
    ///
    /// # Errors
    /// See [`Session::query`]; the caller calls [`Connection::recover`] then.
    pub fn query(&mut self, statements: &str, row: impl FnMut(&[Option<&str>])) -> Result<(), Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.begin()?,
        };
        let answer = self.session.insert(session).query(statements, row);
        if matches!(answer, Err(Failure::Connection(_))) {
            self.session = None;
        }
        answer
    }

    fn begin(&self) -> Result<Session, Failure> {
        let address = self.addresses.at(self.position);
        let stream = at_address_within(&address, CONNECT_WITHIN, ANSWER_WITHIN)?;
        let mut session = Session::begin(stream, APPLICATION)?;
        let begins = format!("SET rialto.durability = '{}'; SHOW rialto.nodes", self.durability.name());
        session.query(&begins, |row| {
            if let Some(Some(nodes)) = row.first() {
                self.addresses.learn(nodes);
            }
        })?;
        Ok(session)
    }

    /// Something has succeeded: the next pause is short.
    pub fn succeeded(&mut self) {
        self.pause = PAUSE_MIN;
    }

    /// Gets ready for another transaction after a failure: in the same session if its transaction may be run again, else
    /// at the next node; after a pause in any case.
    pub fn recover(&mut self, failure: &Failure) {
        let goes_on = is_certain(failure) && self.session.is_some() && self.query("ROLLBACK", |_| ()).is_ok();
        if !goes_on {
            self.session = None;
            self.position += 1;
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Executes a statement that may be executed again, until it succeeds. Rows of executions that have failed are given,
    /// too; `begins` is called before each.
    ///
    /// # Errors
    /// The cluster does not serve for [`SERVES_WITHIN`], or the run was interrupted.
    pub fn insist<T>(
        &mut self,
        during: &'static str,
        statement: &str,
        mut begins: impl FnMut() -> T,
        mut row: impl FnMut(&mut T, &[Option<&str>]),
    ) -> Result<T, RunError> {
        let began = Instant::now();
        loop {
            interrupt::check()?;
            let mut found = begins();
            match self.query(statement, |values| row(&mut found, values)) {
                Ok(()) => {
                    self.succeeded();
                    return Ok(found);
                }
                Err(failure) if began.elapsed() > SERVES_WITHIN => {
                    let cause = std::io::Error::other(text(&failure));
                    return Err(RunError::Io { during, cause });
                }
                Err(failure) => self.recover(&failure),
            }
        }
    }
}
