//! [`PeerError`]: why there is no result.

use std::fmt::Display;

use crate::table::Table;

/// What everything here gives.
pub type Result<T> = std::result::Result<T, PeerError>;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Options that do not go together.
    #[error("{0}")]
    Usage(String),
    /// An engine failed.
    #[error("{engine}, {during}: {cause}")]
    Engine {
        /// Which.
        engine: &'static str,
        /// What was being done.
        during: &'static str,
        /// What it said.
        cause: String,
    },
    /// A row is not there, or is not what was written.
    #[error(
        "row {key} of table {table} is missing or has another length: the table is not the one that was loaded"
    )]
    Row {
        /// Where.
        table: Table,
        /// Its key.
        key: u32,
    },
    /// The files could not be used.
    #[error("{during}: {cause}; choose another directory with --data DIR")]
    Files {
        /// What was being done.
        during: String,
        /// Why.
        cause: std::io::Error,
    },
    /// A picture could not be drawn.
    #[error(transparent)]
    Drawing(#[from] rialto_measure::chart::DrawingError),
    /// A file that was named could not be read or written.
    #[error("{during}: {cause}")]
    Named {
        /// What was being done.
        during: String,
        /// Why.
        cause: std::io::Error,
    },
    /// There is no memory control group for an engine.
    #[error(
        "{during}: {cause}; the memory of each engine is limited by a control group, which needs root and a writable \
         memory controller at /sys/fs/cgroup/memory (version 1) or /sys/fs/cgroup (version 2)"
    )]
    Group {
        /// What was being done.
        during: String,
        /// Why.
        cause: std::io::Error,
    },
    /// A process that loads a bank, or measures its memory, failed.
    #[error("{during} in a process of its own: {cause}")]
    Child {
        /// What it was for.
        during: String,
        /// What is known.
        cause: String,
    },
}

impl PeerError {
    /// For `map_err`: an engine's own error.
    pub fn engine<E: Display>(engine: &'static str, during: &'static str) -> impl FnOnce(E) -> PeerError {
        move |cause| PeerError::Engine { engine, during, cause: cause.to_string() }
    }
}
