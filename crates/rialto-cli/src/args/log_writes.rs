//! The command line's choice of how the log is written.

use clap::{Args, ValueEnum};
use rialto::io::Caching;

/// A way to write the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogWritesName {
    /// Bypasses the system's cache (O_DIRECT), then fdatasync
    Direct,
    /// Bypasses the system's cache, and each write is durable when it returns (O_DIRECT and O_DSYNC)
    DirectSync,
    /// Writes through the system's cache, then fdatasync
    Buffered,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, Args)]
pub struct LogWritesArgs {
    /// How the log is written [default: the way that measures fastest at open]
    #[arg(long, value_enum)]
    log_writes: Option<LogWritesName>,
    /// How many groups may be written to the disk at the same time [default: as measured at open]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3))]
    log_writes_in_flight: Option<u32>,
}

impl LogWritesArgs {
    /// The way, if one is chosen.
    pub fn caching(&self) -> Option<Caching> {
        self.log_writes.map(|name| match name {
            LogWritesName::Direct => Caching::Direct,
            LogWritesName::DirectSync => Caching::DirectSync,
            LogWritesName::Buffered => Caching::Buffered,
        })
    }

    /// How many at a time, if that is chosen.
    pub fn in_flight(&self) -> Option<u32> {
        self.log_writes_in_flight
    }
}
