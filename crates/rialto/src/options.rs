//! What a database may be opened with.

use std::fmt;
use std::time::Duration;

use crate::backup::Archive;
use crate::checkpoint::Checkpointing;
use crate::commit::Logging;
#[expect(unused_imports, reason = "named by documentation")]
use crate::commit::sweep_side::STRADDLING_RETRIES_MAX;
use crate::engine::{Engine, Procedure};
use crate::foreign::Progress;
use crate::io::{Caching, Clock};
use crate::log::{Durability, GroupCommitOptions, IN_FLIGHT_MAX};
use crate::recovery::{THREADS_MAX, threads_by_default};
use crate::store::budget::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, memory_bytes_by_default};

/// A database's choices; [`Options::default`] suits most. A time that is longer than [`FOR_EVER`](crate::io::FOR_EVER), as
/// [`Duration::MAX`], counts as that: what waits for it waits until something else ends the wait.
#[derive(Clone)]
pub struct Options {
    /// How durable "committed" is for transactions that do not choose; the disk (level 3) by default.
    pub durability: Durability,
    /// The bound on the memory of segments and index nodes, in bytes; three quarters of the machine's by default, at most 16 TiB.
    /// While the database is opened the indexes are built, one after the other, from lists that come on top: 24 to 48 bytes a row, and the bytes of
    /// its key behind the eighth. Of a database full of narrow rows that is up to a third of the bound. A transaction that makes an index over
    /// rows takes such a list from the bound. Beside it, long lists of locks on rows may take an eighth of it, or 1 MiB if that is more.
    pub memory_bytes: u64,
    /// What goes into the log; the changed values by default.
    pub logging: Logging,
    /// The procedures that are registered before recovery, so that it can run calls in the log again
    /// ([`Logging::Transaction`]); none by default. Of one name there may be several versions, because a log may have calls of
    /// each; by its name the highest is called. [`Database::register`](crate::Database::register) adds others later.
    pub procedures: Vec<Procedure>,
    /// Whether each call of a [deterministic](crate::Procedure::deterministic) procedure runs twice and is refused, with the
    /// first record that differs, if the two runs write or give different things: to look for mistakes, at twice the cost.
    pub check_determinism: bool,
    /// How memory is brought to disk in the background; fuzzy by default.
    /// [`Database::set_checkpoint`](crate::Database::set_checkpoint) switches it while the database runs.
    pub checkpoint: Checkpointing,
    /// The shortest time from one background checkpoint's begin to the next one's (System M's interval floor); 30 s by
    /// default.
    pub checkpoint_interval: Duration,
    /// The longest time that a recovery should take; none by default. With it, background checkpoints begin when the log to
    /// redo asks for one, so that a recovery (load, indexes, and the redo that comes up until the checkpoint completes) is
    /// predicted to stay within this time: more often when the log grows faster, not at all while it does not.
    /// [`checkpoint_interval`](Options::checkpoint_interval) is then no least time between them, but the longest time that
    /// a sweep takes. What it rests on is measured by each recovery and kept
    /// ([`RecoveryRates`](crate::recovery::RecoveryRates)). A time that cannot be kept is told to
    /// [`progress`](Options::progress) with the figures, and by [`Metrics::recovery`](crate::Metrics::recovery).
    pub recovery_within: Option<Duration>,
    /// How fast a background checkpoint writes segments, in bytes a second; 0 for no pause. With three quarters of
    /// [`log_bytes_max`](Options::log_bytes_max) used it makes no pauses either. None, the default, follows the log: a sweep
    /// takes as long as [`checkpoint_interval`](Options::checkpoint_interval), or less if the log would else come near its
    /// bound.
    pub sweep_bytes_per_s: Option<u64>,
    /// Whether a checkpoint writes a copy of each segment (System M's spooling), so that the segment is latched
    /// for as long as copying takes; yes by default. Without, it is latched through the write, and whoever would change it
    /// waits for the disk.
    pub spool: bool,
    /// How many backup copies of the segments are kept, 2 (the default) or 3. With three the two that are complete both stay
    /// while the next one is written, with the log that the older one needs: should the newest be damaged when the database
    /// is opened, the older one is recovered from, always. With two that can be done as long as the next checkpoint has not
    /// begun to overwrite the older one. May be changed from one opening to the next.
    pub backup_copies: u32,
    /// What the snapshot copies of a copy-on-update sweep may take, in bytes, on top of
    /// [`memory_bytes`](Options::memory_bytes); by default an eighth of those. Commits that need more wait until the sweep has
    /// written some; one that alone needs more than this gets it, and what is in flight at an action-consistent cut is not
    /// counted.
    pub snapshot_bytes_max: Option<u64>,
    /// How long a transaction waits that a black/white checkpoint has aborted before it runs again (System M's retry time);
    /// 1 ms by default. Each time the checkpoint is told which segments were in its way and copies those next; after
    /// [`STRADDLING_RETRIES_MAX`] times the transaction waits for that at its commit, with its locks, and is not aborted again. A handle's
    /// transaction, which the engine cannot run again, waits at once.
    pub straddling_retry: Duration,
    /// Where log files are copied to before a checkpoint frees them, and what is left of the log when the database is closed;
    /// nowhere by default. A backup and the archive together are restored to any place or time since
    /// ([`Restore`](crate::backup::Restore)). While the archive fails the log keeps its files, up to
    /// [`log_bytes_max`](Options::log_bytes_max), and [`Metrics::archive`](crate::Metrics::archive) says why.
    pub archive: Option<Archive>,
    /// The bound on the log on disk, in bytes; when half of it is used a checkpoint begins, and at the bound
    /// transactions wait; 4 GiB by default, at least 1 MiB. Log files have an eighth of it, at most 64 MiB. It may be changed from
    /// one opening to the next: files of the earlier size stay until a checkpoint frees them. What one transaction logs has to
    /// fit beside the log file that the log ends in, pads included: up to three fifths of the bound always do.
    pub log_bytes_max: u64,
    /// How transactions meet threads; by default threads have transactions, which lock what they touch
    /// ([`Engine::Conventional`]).
    pub engine: Engine,
    /// Who writes the log, and when; the log server by default. A design alone will do: `GroupCommitDesign::Hiber.into()`.
    pub group_commit: GroupCommitOptions,
    /// How the log files are written; by default the way that measures fastest when the database is opened
    /// ([`WritePath`](crate::log::WritePath)).
    pub log_writes: Option<Caching>,
    /// How many groups may be on their way to the disk at the same time, 1 to 3; by default as many as measure well when
    /// the database is opened.
    pub log_writes_in_flight: Option<u32>,
    /// How many transactions can be open at the same time; 1,024 by default, at most [`Options::TRANSACTIONS_MAX`].
    pub transactions_max: usize,
    /// How many packets there are for transactions that write; 16,384 by default. A transaction has its packet from its first write until
    /// it is in the log's ring, on its way to the disk. There are never fewer than two packets for each transaction that can be open
    /// ([`Options::transactions_max`]): so open transactions wait for no packet of each other's.
    pub packets_max: usize,
    /// The longest write set of one transaction, in bytes as they are logged; 64 MiB by default. Rows that are loaded into a table
    /// that the same transaction created or truncated do not count. The keys that the transaction adds to secondary indexes may take
    /// four times as much beside it; until the commit such a key takes its bytes and some 60 more. And so may the versions of tables that
    /// its definitions make, one for each change of a table: some 200 bytes for each column of the table, and 400 for each index. And so may
    /// the list of rows that are loaded while a savepoint is open: 16 bytes for each segment of 64 KiB that a load fills, and for each
    /// row where rows do not lie one behind the other.
    pub write_set_bytes_max: usize,
    /// The longest wait for one lock; 10 s by default.
    pub lock_timeout: Duration,
    /// How often `transact` runs a body again after deadlocks before it gives up; 100 by default.
    pub deadlock_retries_max: u32,
    /// How long a level 1 commit may stay off the disk before its group is begun (I3); 10 ms by default.
    pub memory_flush_interval: Duration,
    /// How long a transaction waits for a packet slot or for log space before it fails; 5 s by default.
    pub log_wait_max: Duration,
    /// How many threads recovery uses; one for each core by default, at most [`Options::RECOVERY_THREADS_MAX`].
    pub recovery_threads: usize,
    /// Told of each step of a long recovery, and when [`recovery_within`](Options::recovery_within) cannot be kept; nothing
    /// by default. It may panic: nothing else comes of that.
    pub progress: Option<Progress>,
    /// Whether a directory without a database becomes one; yes by default.
    pub create: bool,
    /// Who does what no caller waits for; threads of the database's own by default.
    pub background: Background,
    /// The clock by which the database waits and decides; the machine's by default. A [virtual one](crate::io::VirtualClock) needs
    /// [`Background::Driven`]. Under it a time-out, a deadline, the linger of a group commit, an interval or a rest passes exactly when that
    /// clock does, an hour in no time; times in the log and in backups count from 2020. So what a database does by time replays. Of one thread
    /// each wait moves the clock to its end ([`VirtualClock::new`](crate::io::VirtualClock::new)); several threads take turns by a
    /// [`Scheduler`](crate::io::Scheduler). Times that are only reported may be the machine's, and so are those that a disk with a speed is
    /// measured by.
    pub clock: Clock,
}

/// Who does what no caller waits for ([`Options::background`]): log writes of commits at level memory, checkpoints that are due, routing
/// rules that follow the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Background {
    /// Threads of the database's own.
    #[default]
    Threads,
    /// The caller, by [`Database::drive`](crate::Database::drive), which has to be called now and then. For a program, or a test, that wants to say
    /// itself when such work is done; it should use the database from one thread at a time.
    ///
    /// A commit that waits for the disk writes its group itself, and so does a ticket when it is waited for or polled. A transaction that finds no room in the log makes the
    /// checkpoint that makes room, unless [`Checkpointing::None`](crate::Checkpointing) says that none is made. The wakers of
    /// tickets run in calls of `drive`, at the end of a commit that waited for the disk, and where a ticket is polled. Once it is open, such a database starts a thread only if its
    /// last handle is dropped in a body, or a handle ends in another one's body (with [`Engine::DataOriented`]). An opening uses
    /// [`recovery_threads`](Options::recovery_threads). [Threads that own executors](crate::Executors::threads) and transaction servers are
    /// refused.
    ///
    /// One thread that does the same on a disk that does the same has it done in the same steps, if nothing is left to measurement or to the
    /// machine's time: [`log_writes`](Options::log_writes) and [`log_writes_in_flight`](Options::log_writes_in_flight) are given, and the
    /// [`clock`](Options::clock) is a virtual one.
    Driven,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Disk,
            memory_bytes: memory_bytes_by_default(),
            logging: Logging::Value,
            procedures: Vec::new(),
            check_determinism: false,
            checkpoint: Checkpointing::Fuzzy,
            checkpoint_interval: Duration::from_secs(30),
            recovery_within: None,
            sweep_bytes_per_s: None,
            spool: true,
            backup_copies: 2,
            archive: None,
            snapshot_bytes_max: None,
            straddling_retry: Duration::from_millis(1),
            log_bytes_max: 4 << 30,
            engine: Engine::default(),
            group_commit: GroupCommitOptions::default(),
            log_writes: None,
            log_writes_in_flight: None,
            transactions_max: 1_024,
            packets_max: 16_384,
            write_set_bytes_max: 64 << 20,
            lock_timeout: Duration::from_secs(10),
            deadlock_retries_max: 100,
            memory_flush_interval: Duration::from_millis(10),
            log_wait_max: Duration::from_secs(5),
            recovery_threads: threads_by_default(),
            progress: None,
            create: true,
            background: Background::default(),
            clock: Clock::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("memory_bytes", &self.memory_bytes)
            .field("logging", &self.logging)
            .field("checkpoint", &self.checkpoint)
            .field("recovery_within", &self.recovery_within)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("engine", &self.engine)
            .field("group_commit", &self.group_commit)
            .field("transactions_max", &self.transactions_max)
            .finish_non_exhaustive()
    }
}

/// The longest [`Options::straddling_retry`].
const STRADDLING_RETRY_MAX: Duration = Duration::from_secs(60);

/// See [`Options::parts_max`].
const PARTS_MAX: usize = 2_048;

/// The least bound on the log: files of two blocks each.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// What [`Options::recovery_within`] may be.
const RECOVERY_WITHIN_MIN: Duration = Duration::from_millis(10);
const RECOVERY_WITHIN_MAX: Duration = Duration::from_secs(86_400);

impl Options {
    /// The most transactions that can be open at the same time ([`Options::transactions_max`]).
    pub const TRANSACTIONS_MAX: usize = 16_384;

    /// The most threads that a recovery uses ([`Options::recovery_threads`]).
    pub const RECOVERY_THREADS_MAX: usize = THREADS_MAX;

    pub(crate) fn snapshot_bytes_max(&self) -> u64 {
        self.snapshot_bytes_max.unwrap_or(self.memory_bytes / 8)
    }

    /// What long lists of locks on rows may take, in bytes.
    pub(crate) fn lock_memory(&self) -> u64 {
        (self.memory_bytes / 8).max(1 << 20)
    }

    /// How many parts of phases can run at a time beside the first of each phase: as many as all admitted calls can have, up to a
    /// bound. Beyond the bound fewer threads share a phase.
    pub(crate) fn parts_max(&self) -> usize {
        let beside_its_own = self.engine.thread_bounds().end().saturating_sub(1);
        (self.transactions_max.div_ceil(2) * beside_its_own).min(PARTS_MAX)
    }

    /// How many packets the log has. Invariant: **a transaction that waits for a packet waits for commits that have their place, and
    /// not for an open transaction**, which may wait for its locks. Each context keeps at most one home, idle while its transaction
    /// has another packet, and homes are at most half of all ([`PacketPool::home`](crate::log)); each open transaction without a
    /// place has at most one packet. So with two for each context one is free, or of a commit that has its place.
    pub(crate) fn packet_slots(&self) -> usize {
        self.packets_max.max(2 * self.transactions_max)
    }

    /// What is wrong with the options, if anything: which one, what it may be.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(problem) = self.logging.refuses(self.checkpoint) {
            return Some(problem);
        }
        if let Some(problem) = self.group_commit.problem() {
            return Some(problem);
        }
        if self.straddling_retry > STRADDLING_RETRY_MAX {
            return Some(format!(
                "straddling_retry is {:?}, expected at most {STRADDLING_RETRY_MAX:?}",
                self.straddling_retry
            ));
        }
        if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&self.memory_bytes) {
            return Some(format!(
                "memory_bytes is {}, expected {MEMORY_BYTES_MIN} to {MEMORY_BYTES_MAX}",
                self.memory_bytes
            ));
        }
        if self.log_bytes_max < LOG_BYTES_MIN {
            return Some(format!(
                "log_bytes_max is {}, expected at least {LOG_BYTES_MIN}",
                self.log_bytes_max
            ));
        }
        if self.log_writes_in_flight.is_some_and(|writes| !(1..=IN_FLIGHT_MAX).contains(&writes)) {
            let found = self.log_writes_in_flight.unwrap_or_default();
            return Some(format!(
                "log_writes_in_flight is {found}, expected 1 to {IN_FLIGHT_MAX}, or none to measure it"
            ));
        }
        for (name, found, most) in [
            ("transactions_max", self.transactions_max, Options::TRANSACTIONS_MAX),
            ("recovery_threads", self.recovery_threads, Options::RECOVERY_THREADS_MAX),
        ] {
            if !(1..=most).contains(&found) {
                return Some(format!("{name} is {found}, expected 1 to {most}"));
            }
        }
        if let Some(executors) = self.engine.executors() {
            if let Some(problem) = executors.problem() {
                return Some(problem);
            }
            if executors.threads > 0 && self.background == Background::Driven {
                return Some(format!(
                    "Executors::threads is {} with background Driven, which starts no threads: give none, or background Threads",
                    executors.threads
                ));
            }
        }
        if matches!(self.clock, Clock::Virtual(_)) && self.background == Background::Threads {
            return Some(
                "clock is a virtual one with background Threads: expected background Driven".to_owned(),
            );
        }
        if !(1..=60_000).contains(&self.packets_max) {
            return Some(format!("packets_max is {}, expected 1 to 60000", self.packets_max));
        }
        if self.write_set_bytes_max > 1 << 29 {
            return Some(format!(
                "write_set_bytes_max is {}, expected at most {}",
                self.write_set_bytes_max,
                1 << 29
            ));
        }
        if !(2..=3).contains(&self.backup_copies) {
            return Some(format!("backup_copies is {}, expected 2 or 3", self.backup_copies));
        }
        if let Some(within) = self.recovery_within {
            if self.checkpoint == Checkpointing::None {
                return Some(
                    "recovery_within needs checkpoints, and checkpoint is none: nothing else keeps the log short; expected \
                     another checkpoint, or no recovery_within"
                        .to_owned(),
                );
            }
            if !(RECOVERY_WITHIN_MIN..=RECOVERY_WITHIN_MAX).contains(&within) {
                return Some(format!(
                    "recovery_within is {within:?}, expected {RECOVERY_WITHIN_MIN:?} to {RECOVERY_WITHIN_MAX:?}"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_locks_may_take_an_eighth_of_the_memory_and_a_mebibyte_at_least() {
        for (memory, locks) in
            [(4 << 20, 1 << 20), (8 << 20, 1 << 20), (64 << 20, 8 << 20), (1 << 40, 1 << 37)]
        {
            let options = Options { memory_bytes: memory, ..Options::default() };
            assert_eq!(options.lock_memory(), locks, "of {memory} bytes");
        }
    }
}
