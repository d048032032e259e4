//! [`RunError`]: why a run gave no result, and the exit code for it.

use rialto::{Error, OpenError};

use crate::driver::Ended;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Options that do not go together, or that ask for what does not fit.
    #[error("{0}")]
    Usage(String),
    /// The directory holds something else.
    #[error("{0}")]
    Directory(String),
    /// The database could not be opened.
    #[error("cannot open {data}: {cause}")]
    Open {
        /// The directory, or the disk.
        data: String,
        /// Why.
        cause: OpenError,
    },
    /// A transaction failed.
    #[error("{during}: {cause}")]
    Transaction {
        /// What was being done.
        during: &'static str,
        /// Why.
        cause: Error,
    },
    /// The data broke the workload's consistency condition before the run.
    #[error("{0}")]
    Inconsistent(String),
    /// One side of a comparison failed.
    #[error("the run of {side}: {text}")]
    Versus {
        /// This or other.
        side: &'static str,
        /// What went wrong.
        text: String,
        /// The exit code of its program.
        code: u8,
    },
    /// The user ended the run ([`interrupt`](crate::interrupt)).
    #[error("interrupted: there is no result")]
    Interrupted,
    /// The result could not be written, or a file not read.
    #[error("{during}: {cause}")]
    Io {
        /// What was being done.
        during: &'static str,
        /// Why.
        cause: std::io::Error,
    },
}

impl RunError {
    /// The program's exit code: 1 inconsistent or corrupt, 2 usage, 3 directory unusable, 4 I/O, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Usage(_) => 2,
            RunError::Directory(_) => 3,
            RunError::Open { cause, .. } => cause.exit_code(),
            RunError::Transaction { cause, .. } => match cause {
                Error::Stopped { .. }
                | Error::OutcomeUnknown { .. }
                | Error::Io { .. }
                | Error::DiskFull { .. } => 4,
                Error::MemoryLimit { .. }
                | Error::LogFull { .. }
                | Error::TooManyTransactions { .. }
                | Error::TooManyPackets { .. }
                | Error::TooManyLocks { .. }
                | Error::LockMemory { .. }
                | Error::CacheFull { .. }
                | Error::LockTimeout { .. } => 2,
                _ => 1,
            },
            RunError::Inconsistent(_) => 1,
            RunError::Versus { code, .. } => *code,
            RunError::Io { .. } => 4,
            RunError::Interrupted => 130,
        }
    }

    /// Of a transaction that failed while something was being done.
    pub fn during(during: &'static str) -> impl FnOnce(Error) -> RunError {
        move |cause| RunError::Transaction { during, cause }
    }

    /// Of clients that ended early.
    pub fn of_clients(during: &'static str) -> impl FnOnce(Ended) -> RunError {
        move |ended| match ended {
            Ended::Failed(cause) => RunError::Transaction { during, cause },
            Ended::Refused(reason) => RunError::Usage(reason),
            Ended::Interrupted => RunError::Interrupted,
        }
    }
}
