//! One member of an etcd, and what its errors mean.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use etcd_client::{Client, ConnectOptions, Error};
use parking_lot::Mutex;

use crate::control::Revision;

/// The oldest etcd that is taken: major and minor version.
const LEAST: (u32, u32) = (3, 4);

/// The codes of gRPC by which a server says that it will never do this request: an argument is invalid, permission is
/// denied, a precondition fails, the call is not implemented, the client is not authenticated.
const REFUSALS: [i32; 5] = [3, 7, 9, 12, 16];

/// One member.
pub(super) struct Endpoint {
    pub name: String,
    options: ConnectOptions,
    connection: Mutex<Arc<Connection>>,
}

/// A connection with a member. It is made again when it has ended, and replaced when it has failed or is silent.
pub(super) struct Connection {
    pub client: Client,
    /// Set once the member's version was found to be new enough.
    pub version: OnceLock<()>,
}

impl Connection {
    async fn new(name: &str, options: &ConnectOptions) -> Result<Connection, Error> {
        let client = Client::connect([name], Some(options.clone())).await?;
        Ok(Connection { client, version: OnceLock::new() })
    }
}

/// Why one endpoint gave no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// What was asked may have been done.
    Unknown(String),
    /// It answered that it will not.
    Refused(String),
}

impl Failed {
    /// The same for a request that may change something, and was sent: whatever the answer is, it may have been done.
    pub(super) fn after_sending(self) -> Failed {
        match self {
            Failed::Refused(what) | Failed::Unknown(what) => Failed::Unknown(what),
        }
    }
}

impl Endpoint {
    /// A member of this name. It connects at the first request.
    pub(super) async fn new(name: String, options: ConnectOptions) -> Result<Endpoint, Error> {
        let connection = Connection::new(&name, &options).await?;
        Ok(Endpoint { name, options, connection: Mutex::new(Arc::new(connection)) })
    }

    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.lock())
    }

    /// Has later calls use another connection than this one, which has failed or has not answered: its other end may be
    /// gone without a word. Calls that wait for an answer by it go on.
    pub(super) async fn replace(&self, failed: &Arc<Connection>) {
        // A name that was usable once is so again.
        let Ok(new) = Connection::new(&self.name, &self.options).await else { return };
        let mut connection = self.connection.lock();
        if Arc::ptr_eq(&connection, failed) {
            *connection = Arc::new(new);
        }
    }

    pub(super) fn failed(&self, error: &Error) -> Failed {
        let what = format!("{}: {}", self.name, describe(error));
        let Error::GRpcStatus(status) = error else { return Failed::Unknown(what) };
        if status.message().contains("database space exceeded") {
            Failed::Refused(format!(
                "{what}; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"
            ))
        } else if REFUSALS.contains(&(status.code() as i32)) {
            Failed::Refused(what)
        } else {
            Failed::Unknown(what)
        }
    }

    pub(super) fn revision(&self, revision: i64) -> Result<Revision, Failed> {
        match u64::try_from(revision) {
            Ok(revision) if revision > 0 => Ok(Revision(revision)),
            _ => Err(Failed::Refused(format!("{} says that {revision} is a key's revision", self.name))),
        }
    }
}

pub(super) fn check_version(name: &str, version: &str) -> Result<(), Failed> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let found = numbers.next().flatten().zip(numbers.next().flatten());
    if found.is_some_and(|found| found >= LEAST) {
        return Ok(());
    }
    let (major, minor) = LEAST;
    Err(Failed::Refused(format!(
        "{name} is etcd {version:?}; {major}.{minor} is the oldest one that is supported: upgrade it"
    )))
}

/// An error, with what has caused it.
pub(super) fn describe(error: &Error) -> String {
    let mut told = String::new();
    let mut cause: Option<&dyn std::error::Error> = match error {
        Error::GRpcStatus(status) => {
            told.push_str(status.message());
            std::error::Error::source(status)
        }
        Error::TransportError(error) => Some(error),
        other => {
            let _ = write!(told, "{other}");
            None
        }
    };
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            append(&mut told, &text);
        }
        cause = error.source();
    }
    told
}

pub(super) fn append(told: &mut String, what: &str) {
    // As when the same endpoint is asked twice.
    if told.contains(what) {
        return;
    }
    if !told.is_empty() {
        told.push_str("; ");
    }
    told.push_str(what);
}

#[cfg(test)]
mod tests {
    use super::{Failed, check_version};

    #[test]
    fn an_etcd_before_3_4_is_refused_by_name() {
        for taken in ["3.4.0", "3.4.23", "3.5.12", "3.10.1", "4.0.0-rc.1", "3.6.0-alpha.0"] {
            assert!(check_version("here", taken).is_ok(), "{taken}");
        }
        for old in ["3.3.27", "2.3.8", "3", "", "three.five", "3.x"] {
            let Err(Failed::Refused(told)) = check_version("http://here:2379", old) else {
                panic!("{old} is taken")
            };
            assert!(
                told.contains("http://here:2379") && told.contains(old) && told.contains("3.4"),
                "{told}"
            );
        }
    }
}
