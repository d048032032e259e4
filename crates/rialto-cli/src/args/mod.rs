//! Options that several commands take.

mod group_commit;
mod log_writes;

use std::time::Duration;

use clap::ValueEnum;
use rialto::Durability;

pub use self::group_commit::GroupCommitArgs;
pub use self::log_writes::LogWritesArgs;

/// Seconds on the command line.
///
/// # Errors
/// What was expected.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, 0 to 1000000".to_owned())
}

/// An engine that runs transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Each thread runs its own transactions, which lock the rows that they touch
    Conventional,
    /// The keys of each index are divided among executors, each with a lock table; a call of a procedure locks at
    /// the executors of its keys
    DataOriented,
}

impl EngineName {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            EngineName::Conventional => "conventional",
            EngineName::DataOriented => "data-oriented",
        }
    }
}

/// The durability of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityName {
    /// Level 1: a commit survives the end of the process, not a crash of the machine
    Memory,
    /// Level 3: a commit is on disk before it is acknowledged
    Disk,
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Durability {
        match name {
            DurabilityName::Memory => Durability::Memory,
            DurabilityName::Disk => Durability::Disk,
        }
    }
}
