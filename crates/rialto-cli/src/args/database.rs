//! The options of an open database that `serve` and `bench` take: each sets one of [`Options`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rialto::backup::Archive;
use rialto::{Engine, Executors, Options};

use super::{
    CheckpointName, DurabilityName, EngineName, GroupCommitArgs, HandOverName, LockGrainName, LocksName,
    LogWritesArgs, MemoryArgs, PageArgs, seconds,
};

/// How a database is opened.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// The durability of commits; with serve, in sessions that do not set rialto.durability
    #[arg(long, value_enum, default_value = "disk")]
    pub durability: DurabilityName,
    /// The engine that runs transactions
    #[arg(long, value_enum, default_value = "conventional")]
    pub engine: EngineName,
    /// Where the conventional engine keeps its locks [default: thin]
    #[arg(long, value_enum)]
    pub locks: Option<LocksName>,
    /// With --engine data-oriented: the number of executors among which the keys of each index are divided [default:
    /// 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub executors: Option<u16>,
    /// With --engine data-oriented: the number of threads that own the executors; with 0 each call runs in place, on
    /// its caller's thread. SQL statements lock at the executors, and run on their sessions' threads [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub executor_threads: Option<u16>,
    /// With --executor-threads: when a caller that waits for its call hands it over to the thread that owns the
    /// executor; otherwise it runs the call itself [default: if-busy]
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
    /// The bytes of log that are gathered in memory before a group is written, a multiple of 4096 from 256 KiB to 1
    /// GiB: when they are full, commits at --durability memory wait for a group [default: 16 MiB]
    #[arg(long, value_name = "N")]
    log_buffer_bytes: Option<usize>,
    /// How checkpoints copy the changed segments (64 KiB of rows each) of the tables to disk in the background
    #[arg(long, value_enum, default_value = "fuzzy")]
    pub checkpoint: CheckpointName,
    /// The shortest time from the beginning of one checkpoint to the beginning of the next, in seconds [default: 30]
    #[arg(long, value_name = "S", value_parser = seconds)]
    checkpoint_interval_s: Option<Duration>,
    /// The longest time that a recovery should take, in seconds. With it, a checkpoint begins when the log to redo
    /// requires one, and --checkpoint-interval-s is the longest time that a checkpoint takes [default: none]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub recovery_within_s: Option<Duration>,
    /// How many bytes a second a checkpoint writes; 0 for no pauses [default: so many that it takes
    /// --checkpoint-interval-s, or more of them if the log fills up]
    #[arg(long, value_name = "N")]
    sweep_bytes_per_s: Option<u64>,
    /// true: a checkpoint copies each segment, and writes the copy; false: it writes the segment itself, latched
    /// meanwhile
    #[arg(long, value_name = "true|false", default_value_t = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    spool: bool,
    /// The number of backup copies of the tables; with three, the database can always do without a damaged one
    #[arg(long, value_name = "2|3", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=3))]
    backup_copies: u32,
    /// With --checkpoint acbw or tcbw: how long a transaction that the checkpoint has aborted waits before it runs
    /// again, in microseconds [default: 1000]
    #[arg(long, value_name = "US")]
    straddling_retry_us: Option<u64>,
    /// With --checkpoint acbw or tcbw: true: the checkpoint next copies the segments because of which it has aborted a
    /// transaction; false: it keeps its order, as System M's does [default: true]
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    straddling_hints: Option<bool>,
    /// The directory to which log files are copied before a checkpoint frees them; the rest is copied at the end
    /// [default: none]
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub pages: PageArgs,
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
            _ if self.pages.lock_grain == Some(LockGrainName::Page)
                && self.locks != Some(LocksName::Central) =>
            {
                return Some(
                    "--lock-grain page does not apply without central locks; available: --locks central"
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
        let of_black_white = [
            ("--straddling-retry-us", self.straddling_retry_us.is_some()),
            ("--straddling-hints", self.straddling_hints.is_some()),
        ];
        let is_black_white = matches!(self.checkpoint, CheckpointName::Acbw | CheckpointName::Tcbw);
        if let Some((option, _)) = of_black_white.iter().find(|(_, is_set)| *is_set && !is_black_white) {
            return Some(format!(
                "{option} applies only to black/white checkpoints; available: --checkpoint acbw, tcbw"
            ));
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
        let defaults = self.pages.in_options(Options::default());
        Options {
            durability: self.durability.into(),
            engine: self.engine(),
            group_commit: self.group_commit.options(),
            log_writes: self.log_writes.caching(),
            log_writes_in_flight: self.log_writes.in_flight(),
            log_bytes_max: self.log_bytes_max.unwrap_or(defaults.log_bytes_max),
            log_buffer_bytes: self.log_buffer_bytes.unwrap_or(defaults.log_buffer_bytes),
            checkpoint: self.checkpoint.into(),
            checkpoint_interval: self.checkpoint_interval_s.unwrap_or(defaults.checkpoint_interval),
            recovery_within: self.recovery_within_s,
            sweep_bytes_per_s: self.sweep_bytes_per_s.or(defaults.sweep_bytes_per_s),
            spool: self.spool,
            backup_copies: self.backup_copies,
            straddling_retry: self
                .straddling_retry_us
                .map_or(defaults.straddling_retry, Duration::from_micros),
            straddling_hints: self.straddling_hints.unwrap_or(defaults.straddling_hints),
            archive: self.archive.as_ref().map(Archive::directory),
            memory_bytes: self.memory.bytes(),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests;
