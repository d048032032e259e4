//! Options that several commands take.

mod database;
mod group_commit;
mod log_writes;
mod memory;
mod names;
mod pages;

use std::time::Duration;

pub use self::database::DatabaseArgs;
pub use self::group_commit::GroupCommitArgs;
pub use self::log_writes::LogWritesArgs;
pub use self::memory::MemoryArgs;
pub use self::names::{
    CheckpointName, DurabilityName, EngineName, HandOverName, LockGrainName, LocksName, TwoStageName,
};
pub use self::pages::{CacheArgs, PageArgs};

/// Seconds on the command line.
///
/// # Errors
/// What was expected.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, 0 to 1000000".to_owned())
}
