//! The errors that transactions may get.

use rialto::{Error, Options};

use super::databases::{LOG, MEMORY, is_out_of_scope};

/// The name of an error that a transaction may get under these options; none for an error that may not come. An error
/// that the transaction asks for itself (a cancellation) is not among them.
pub fn name_of(error: &Error, options: &Options) -> Option<&'static str> {
    let is_tight = options.log_bytes_max < LOG;
    Some(match error {
        Error::DuplicateKey { .. } => "duplicate keys",
        Error::Aborted { .. } => "aborted by bodies",
        Error::ReadOnly => "refused writes",
        Error::NoSuchTable { .. } => "tables gone",
        Error::NoSuchIndex { .. } => "indexes gone",
        error if is_out_of_scope(error) => "out of scope",
        Error::Timeout { .. } => "timed out",
        Error::LockTimeout { .. } => "lock time-outs",
        Error::Deadlock { .. } => "deadlocks",
        Error::Closed => "after a close",
        Error::WriteSetTooLarge { limit, .. } if *limit == options.write_set_bytes_max => {
            "write sets too large"
        }
        Error::MemoryLimit { .. } if options.memory_bytes < MEMORY => "without memory",
        Error::LogFull { .. } | Error::LogTooSmall { .. } if is_tight => "without room in the log",
        Error::TooManyPackets { .. } if is_tight && options.packets_max == 1 => "without packets",
        _ => return None,
    })
}
