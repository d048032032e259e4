//! The limit on the files and sockets that the process may have open at a time.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::ServeError;
use crate::shared::REFUSED_MAX;

/// A connection's socket, and the handle by which other threads end it.
const OF_A_CONNECTION: usize = 2;
/// Reserved for the database beside the files that it has open when the server starts: files of the log, copies,
/// backups, the archive.
const OF_THE_DATABASE: usize = 256;

/// Raises the limit on open files as far as the process may. Gives the limit, `None` for no limit.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // The limit stays as it is.
        Err(_) => limit.current,
    }
}

/// Refuses more connections than can be open at a time beside the database: clients must not keep the log from its
/// files.
pub(crate) fn check(connections: usize) -> Result<(), ServeError> {
    let Some(limit) = raise_open_files() else { return Ok(()) };
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let others = open + OF_THE_DATABASE + REFUSED_MAX * OF_A_CONNECTION;
    let most = (limit.try_into().unwrap_or(usize::MAX)).saturating_sub(others) / OF_A_CONNECTION;
    if connections <= most {
        Ok(())
    } else {
        Err(ServeError::TooManyConnections { connections, limit, most })
    }
}
