//! [`BenchError`]: why `rialto bench` gave no result, and the exit code for it.

use rialto::{Error, OpenError};

use crate::driver::Ended;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
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

impl BenchError {
    /// The program's exit code: 1 inconsistent or corrupt, 2 usage, 3 directory unusable, 4 I/O, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::Usage(_) => 2,
            BenchError::Directory(_) => 3,
            BenchError::Open { cause, .. } => cause.exit_code(),
            BenchError::Transaction { cause, .. } => match cause {
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
                | Error::LockTimeout { .. } => 2,
                _ => 1,
            },
            BenchError::Inconsistent(_) => 1,
            BenchError::Versus { code, .. } => *code,
            BenchError::Io { .. } => 4,
            BenchError::Interrupted => 130,
        }
    }

    pub(crate) fn during(during: &'static str) -> impl FnOnce(Error) -> BenchError {
        move |cause| BenchError::Transaction { during, cause }
    }

    /// Of clients that ended early.
    pub(crate) fn of_clients(during: &'static str) -> impl FnOnce(Ended) -> BenchError {
        move |ended| match ended {
            Ended::Failed(cause) => BenchError::Transaction { during, cause },
            Ended::Refused(reason) => BenchError::Usage(reason),
            Ended::Interrupted => BenchError::Interrupted,
        }
    }
}
