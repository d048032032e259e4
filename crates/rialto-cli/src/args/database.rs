//! The options of an open database that `serve` and `bench` take: each sets one of [`Options`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rialto::backup::Archive;
use rialto::{Engine, Executors, Options};

use super::{
    CheckpointName, DurabilityName, EngineName, GroupCommitArgs, HandOverName, LocksName, LogWritesArgs,
    MemoryArgs, seconds,
};

/// How a database is opened.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// How durable "committed" is; with serve, in sessions that do not set rialto.durability
    #[arg(long, value_enum, default_value = "disk")]
    pub durability: DurabilityName,
    /// The engine: how transactions meet threads
    #[arg(long, value_enum, default_value = "conventional")]
    pub engine: EngineName,
    /// How locks are kept while no transaction competes for them [default: thin]
    #[arg(long, value_enum)]
    locks: Option<LocksName>,
    /// With --engine data-oriented: the number of executors among which the keys of each index are divided [default:
    /// 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub executors: Option<u16>,
    /// With --engine data-oriented: how many threads own the executors; 0 runs each call in place, on its caller's
    /// thread. SQL statements take their locks at the executors, and run on their sessions' threads [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub executor_threads: Option<u16>,
    /// With --executor-threads: hand calls over to them always, or only if they are at work, and else run them on the
    /// caller's thread [default: if-busy]
    #[arg(long, value_enum)]
    hand_over: Option<HandOverName>,
    #[command(flatten)]
    pub group_commit: GroupCommitArgs,
    #[command(flatten)]
    pub log_writes: LogWritesArgs,
    /// The bound on the log on disk, in bytes: at half of it a checkpoint begins, at the bound transactions wait. A log
    /// file has an eighth of it, at most 64 MiB [default: 4 GiB]
    #[arg(long, value_name = "N")]
    log_bytes_max: Option<u64>,
    /// How memory is brought to disk in the background
    #[arg(long, value_enum, default_value = "fuzzy")]
    pub checkpoint: CheckpointName,
    /// The shortest time in seconds from one checkpoint's begin to the next one's [default: 30]
    #[arg(long, value_name = "S", value_parser = seconds)]
    checkpoint_interval_s: Option<Duration>,
    /// The longest time in seconds that a recovery should take: checkpoints begin when the log asks for one, and the
    /// interval is the longest time that a sweep takes [default: none]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub recovery_within_s: Option<Duration>,
    /// How fast a checkpoint goes through memory, in bytes a second; 0 is without a pause [default: as the log grows]
    #[arg(long, value_name = "N")]
    sweep_bytes_per_s: Option<u64>,
    /// Whether a checkpoint copies a segment before it writes it, or keeps it latched through the write
    #[arg(long, value_name = "true|false", default_value_t = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    spool: bool,
    /// The number of backup copies of the tables; with three, the database can always do without a damaged one
    #[arg(long, value_name = "2|3", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=3))]
    backup_copies: u32,
    /// With --checkpoint acbw or tcbw: how long in microseconds a transaction waits that straddled a sweep, before it
    /// runs again [default: 1000]
    #[arg(long, value_name = "US")]
    straddling_retry_us: Option<u64>,
    /// The directory to which log files are copied before a checkpoint frees them; the rest is copied at the end
    /// [default: none]
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    #[command(flatten)]
    pub memory: MemoryArgs,
}

impl DatabaseArgs {
    /// Options that do not go together, with what is available instead, if there are some.
    pub fn misuse(&self) -> Option<String> {
        match self.engine {
            EngineName::Conventional if self.executors.is_some() || self.executor_threads.is_some() => {
                let option = if self.executors.is_some() { "--executors" } else { "--executor-threads" };
                return Some(format!(
                    "{option} does not apply to the conventional engine; available: --engine data-oriented"
                ));
            }
            _ if self.hand_over.is_some() && self.executor_threads.unwrap_or_default() == 0 => {
                return Some(
                    "--hand-over does not apply without threads that own executors; available: --executor-threads 1 to 256"
                        .to_owned(),
                );
            }
            EngineName::DataOriented if self.locks.is_some() => {
                return Some(
                    "--locks does not apply to the data-oriented engine, whose executors have lock tables of their own; \
                     available: --engine conventional"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if let Some(problem) = self.group_commit.options().problem() {
            return Some(problem);
        }
        let no_checkpoints = self.checkpoint == CheckpointName::None;
        for (given, option) in [
            (self.checkpoint_interval_s.is_some(), "--checkpoint-interval-s"),
            (self.sweep_bytes_per_s.is_some(), "--sweep-bytes-per-s"),
            (self.recovery_within_s.is_some(), "--recovery-within-s"),
        ] {
            if given && no_checkpoints {
                return Some(format!(
                    "{option} does not apply to --checkpoint none; available: --checkpoint fuzzy, accou, tccou, acbw, tcbw"
                ));
            }
        }
        if self.straddling_retry_us.is_some()
            && !matches!(self.checkpoint, CheckpointName::Acbw | CheckpointName::Tcbw)
        {
            return Some(
                "--straddling-retry-us applies to black/white checkpoints alone; available: --checkpoint acbw, tcbw".to_owned(),
            );
        }
        self.straddling_retry_us
            .filter(|&us| us > 60_000_000)
            .map(|us| format!("--straddling-retry-us {us}: expected at most 60000000"))
    }

    fn engine(&self) -> Engine {
        let defaults = Executors::default();
        match self.engine {
            EngineName::Conventional => {
                Engine::Conventional { locks: self.locks.unwrap_or(LocksName::Thin).into() }
            }
            EngineName::DataOriented => Engine::DataOriented(Executors {
                count: self.executors.map_or(defaults.count, usize::from),
                threads: self.executor_threads.map_or(defaults.threads, usize::from),
                hand_over: self.hand_over.map_or(defaults.hand_over, Into::into),
                ..defaults
            }),
        }
    }

    /// What the database is opened with.
    pub fn options(&self) -> Options {
        let defaults = Options::default();
        Options {
            durability: self.durability.into(),
            engine: self.engine(),
            group_commit: self.group_commit.options(),
            log_writes: self.log_writes.caching(),
            log_writes_in_flight: self.log_writes.in_flight(),
            log_bytes_max: self.log_bytes_max.unwrap_or(defaults.log_bytes_max),
            checkpoint: self.checkpoint.into(),
            checkpoint_interval: self.checkpoint_interval_s.unwrap_or(defaults.checkpoint_interval),
            recovery_within: self.recovery_within_s,
            sweep_bytes_per_s: self.sweep_bytes_per_s.or(defaults.sweep_bytes_per_s),
            spool: self.spool,
            backup_copies: self.backup_copies,
            straddling_retry: self
                .straddling_retry_us
                .map_or(defaults.straddling_retry, Duration::from_micros),
            archive: self.archive.as_ref().map(Archive::directory),
            memory_bytes: self.memory.bytes(),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests;
