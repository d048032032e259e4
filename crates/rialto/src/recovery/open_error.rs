//! [`OpenError`]: why a database could not be opened.

use crate::error::Error;
use crate::io::{DirectoryHolder, DiskError};

/// Why a database could not be opened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another handle of this one, has the directory open.
    #[error("\"{directory}\" is in use by {}", DirectoryHolder::advice(.holder.as_ref()))]
    Locked {
        /// The directory.
        directory: String,
        /// The process that has it open, if it is known.
        holder: Option<DirectoryHolder>,
    },
    /// An older Rialto wrote the directory, in a format that this one does not read.
    #[error(
        "\"{directory}\" has format version {found}, this program reads version {supported}: open it with the Rialto that \
         wrote it, and copy its tables to a new directory"
    )]
    OlderVersion {
        /// The directory.
        directory: String,
        /// The version found.
        found: u32,
        /// The version that can be read.
        supported: u32,
    },
    /// A newer Rialto wrote the directory.
    #[error(
        "\"{directory}\" has format version {found}, this program reads up to {supported}: use a newer one"
    )]
    NewerVersion {
        /// The directory.
        directory: String,
        /// The version found.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// A file, or the directory, does not exist.
    #[error("{what} is missing in \"{directory}\"")]
    Missing {
        /// The directory.
        directory: String,
        /// What is missing.
        what: String,
    },
    /// Files that are whole, but that this program does not read: of another format version, of a cluster, or of a
    /// database whose home file is missing.
    #[error("{what}")]
    Unsupported {
        /// Which file, what it is, and what to do.
        what: String,
    },
    /// An option out of its range.
    #[error("bad option: {what}")]
    Options {
        /// Which option, and what it may be.
        what: String,
    },
    /// The database does not fit into the memory that the options allow.
    #[error("the database does not fit into Options::memory_bytes ({limit} bytes): open it with more")]
    Memory {
        /// The limit in bytes.
        limit: u64,
    },
    /// Damaged files (I9), or a log that ends too early (I4).
    #[error("\"{file}\" is corrupt at offset {offset}: {what}")]
    Corrupt {
        /// The file.
        file: String,
        /// The byte offset.
        offset: u64,
        /// What was expected and found.
        what: String,
    },
    /// A call in the log came to another result than when it committed
    /// ([`Logging::Transaction`](crate::Logging::Transaction)). Nothing was written: with the procedure that made the
    /// call the directory can be opened.
    #[error("{what}")]
    Replay {
        /// The place, the procedure, its arguments, and what was found.
        what: String,
    },
    /// Reading or writing failed.
    #[error("{0}")]
    Io(String),
}

impl OpenError {
    /// The program's exit code for this error: 1 corrupt, 2 usage, 3 directory unusable, 4 I/O.
    pub fn exit_code(&self) -> u8 {
        match self {
            OpenError::Corrupt { .. } | OpenError::Replay { .. } => 1,
            OpenError::Options { .. } => 2,
            OpenError::Locked { .. }
            | OpenError::NewerVersion { .. }
            | OpenError::OlderVersion { .. }
            | OpenError::Missing { .. }
            | OpenError::Unsupported { .. }
            | OpenError::Memory { .. } => 3,
            OpenError::Io(_) => 4,
        }
    }

    /// The error of a directory of this name that cannot be locked or opened.
    pub fn directory(directory: &str, error: &DiskError) -> OpenError {
        if error.is_locked() {
            let holder = error.holder().cloned();
            return OpenError::Locked { directory: directory.to_owned(), holder };
        }
        if error.is_missing() {
            return OpenError::Missing { directory: directory.to_owned(), what: "the directory".to_owned() };
        }
        error.clone().into()
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> OpenError {
        match error {
            Error::Corrupt { file, offset, what } => OpenError::Corrupt { file, offset, what },
            Error::MemoryLimit { limit, .. } => OpenError::Memory { limit },
            Error::Unsupported { what } => OpenError::Unsupported { what },
            replay @ Error::Replay { .. } => OpenError::Replay { what: replay.to_string() },
            other => OpenError::Io(other.to_string()),
        }
    }
}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> OpenError {
        // That error says what helps where the disk is full.
        Error::from(error).into()
    }
}
