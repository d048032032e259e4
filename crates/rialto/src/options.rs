//! [`Options`]: how a database is opened.

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
use crate::isolate::LockGrain;
use crate::log::{Durability, GroupCommitOptions, IN_FLIGHT_MAX, LogOptions, PAGE};
use crate::recovery::{THREADS_MAX, threads_by_default};
use crate::store::budget::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, memory_bytes_by_default};
use crate::store::paged::{
    CACHE_BYTES_BY_DEFAULT, CACHE_BYTES_MIN, PAGE_BYTES_BY_DEFAULT, PAGE_SIZES, PageOptions,
};
use crate::txn::two_stage::TwoStage;

/// The choices of a database; [`Options::default`] suits most. A time longer than [`FOR_EVER`](crate::io::FOR_EVER),
/// such as [`Duration::MAX`], counts as `FOR_EVER`: a wait with this limit lasts until something else ends it.
#[derive(Clone)]
pub struct Options {
    /// How durable "committed" is for transactions that do not choose a level; the disk (level 3) by default.
    pub durability: Durability,
    /// The bound on the memory of segments and index nodes, in bytes; by default three quarters of the memory that the
    /// process may have ([`MachineMemory`](crate::io::MachineMemory): the machine's, or the limit of a control group),
    /// at most 16 TiB.
    ///
    /// Three kinds of lists are no part of the segments and nodes. At an opening the indexes are built one after the
    /// other from lists that come on top of the bound: 24 to 48 bytes a row, and the bytes of its key behind the
    /// eighth; with narrow rows that is up to a third of the bound. A transaction that makes an index over existing
    /// rows takes the memory of its list from the bound. Long lists of locks on rows may take an eighth of the bound
    /// beside it, or 1 MiB if that is more.
    pub memory_bytes: u64,
    /// The bytes that pages of disk-resident tables ([`Residence::Disk`](crate::Residence)) take in memory, beside
    /// `memory_bytes`; at least 4 MiB, and 256 MiB by default. They are taken as they are used. A checkpoint may take as
    /// much again for copies of pages that change while it writes them.
    pub cache_bytes: u64,
    /// The bytes of a page of disk-resident tables: 4,096, 8,192, 16,384, 32,768 or 65,536; 4,096 by default. It holds for a
    /// database that has never had such tables; the pages of others keep their size.
    pub page_bytes: usize,
    /// When transactions read pages of disk-resident tables that are not in memory; HTSTE by default.
    pub two_stage: TwoStage,
    /// How much a lock on a row of a disk-resident table locks: the row, by default.
    pub lock_grain: LockGrain,
    /// What goes into the log; the changed values by default.
    pub logging: Logging,
    /// The procedures that are registered before recovery, so that recovery can run calls in the log again
    /// ([`Logging::Transaction`]); none by default. There may be several versions of one name, because a log may have
    /// calls of each; a call by name runs the highest. [`Database::register`](crate::Database::register) adds others
    /// later.
    pub procedures: Vec<Procedure>,
    /// Whether each call of a [deterministic](crate::Procedure::deterministic) procedure runs twice; off by default. If
    /// the two runs write or return different things, the call is refused with the first record that differs. This
    /// finds mistakes in procedures, at twice the cost.
    pub check_determinism: bool,
    /// How memory is brought to disk in the background; fuzzy by default.
    /// [`Database::set_checkpoint`](crate::Database::set_checkpoint) changes it while the database runs.
    pub checkpoint: Checkpointing,
    /// The time from the begin of one background checkpoint to the begin of the next (System M's interval floor); 30 s
    /// by default. The next one begins earlier if half of [`log_bytes_max`](Options::log_bytes_max) is used (with three
    /// [`backup_copies`](Options::backup_copies) a third), or if a transaction finds no room in the log.
    pub checkpoint_interval: Duration,
    /// The longest time that a recovery should take; none by default. With it, a background checkpoint begins when the
    /// log to redo requires one, so that a recovery is predicted to stay within this time. A recovery here is load,
    /// indexes, and the redo that accumulates until the checkpoint completes. Checkpoints are then more frequent when
    /// the log grows faster, and none is made while it does not grow.
    /// [`checkpoint_interval`](Options::checkpoint_interval) is then the longest time that a sweep takes, and no longer
    /// the shortest time between checkpoints. The prediction rests on rates that each recovery measures and keeps
    /// ([`RecoveryRates`](crate::recovery::RecoveryRates)). If the time cannot be kept, [`progress`](Options::progress)
    /// is told the figures, and [`Metrics::recovery`](crate::Metrics::recovery) has them.
    pub recovery_within: Option<Duration>,
    /// How fast a background checkpoint writes segments, in bytes a second; 0 for no pauses. Once three quarters of
    /// [`log_bytes_max`](Options::log_bytes_max) are used, the checkpoint makes no pauses, whatever the value. With
    /// `None`, the default, the sweep follows the log: it takes as long as
    /// [`checkpoint_interval`](Options::checkpoint_interval), or less if the log would otherwise come near its bound.
    pub sweep_bytes_per_s: Option<u64>,
    /// Whether a checkpoint writes a copy of each segment (System M's spooling), so that the segment is latched only
    /// while it is copied; yes by default. Without spooling the segment is latched through the write, and a commit that
    /// changes it waits for the disk.
    pub spool: bool,
    /// How many backup copies of the segments are kept, 2 (the default) or 3. With three, both complete copies stay
    /// while the next one is written, with the log that the older one needs. If the newest copy is found damaged at an
    /// opening, recovery can then always start from the older one. With two, it can do so only as long as the next
    /// checkpoint has not begun to overwrite the older copy. The number may change from one opening to the next.
    pub backup_copies: u32,
    /// The bound on the snapshot copies of a copy-on-update sweep, in bytes, on top of
    /// [`memory_bytes`](Options::memory_bytes); an eighth of `memory_bytes` by default. Commits that need more wait
    /// until the sweep has written some. A commit that alone needs more than the bound gets it, and commits in progress
    /// at an action-consistent cut are not counted.
    pub snapshot_bytes_max: Option<u64>,
    /// How long a transaction that a black/white checkpoint has aborted waits before it runs again (System M's retry
    /// time); 1 ms by default, at most 60 s. After [`STRADDLING_RETRIES_MAX`] aborts the transaction is not aborted
    /// again: its commit waits, with its locks held, until the checkpoint has copied the segments in its way, which it
    /// does next. The transaction of a handle, which the engine cannot run again, waits at once.
    pub straddling_retry: Duration,
    /// Whether a black/white checkpoint also copies next what was in the way of a transaction that it aborted; yes by
    /// default. Without it the checkpoint keeps to its order, as System M's does (section 3.2), and the transaction may
    /// be aborted as often as [`STRADDLING_RETRIES_MAX`] says.
    pub straddling_hints: bool,
    /// Where log files are copied before a checkpoint frees them, and the rest of the log when the database is closed;
    /// nowhere by default. A backup and the archive together can be restored to any later place or time
    /// ([`Restore`](crate::backup::Restore)). While the archive fails the log keeps its files, up to
    /// [`log_bytes_max`](Options::log_bytes_max), and [`Metrics::archive`](crate::Metrics::archive) gives the reason.
    pub archive: Option<Archive>,
    /// The bound on the log on disk, in bytes; 4 GiB by default, at least 1 MiB. When half of it is used (with three
    /// backup copies a third), a checkpoint begins; at the bound transactions wait. A log file has an eighth of it, at most 64 MiB. The bound may change
    /// from one opening to the next: files of the earlier size stay until a checkpoint frees them. The log record of
    /// one transaction has to fit beside the log file that the log ends in, pads included; up to three fifths of the
    /// bound always do.
    pub log_bytes_max: u64,
    /// The bytes of log that are gathered in memory before a group is written; 16 MiB by default, a multiple of 4,096,
    /// from 256 KiB to 1 GiB. It bounds how far commits at
    /// [`Durability::Memory`](crate::Durability::Memory) may be ahead of the disk: when it is full, they wait for a
    /// group. Larger than [`log_bytes_max`](Options::log_bytes_max), it has that size.
    pub log_buffer_bytes: usize,
    /// Which engine assigns transactions to threads; by default each transaction runs on one thread and locks what it
    /// touches ([`Engine::Conventional`]).
    pub engine: Engine,
    /// Which thread writes the log, and when; the log server by default. A design alone is enough:
    /// `GroupCommitDesign::Hiber.into()`.
    pub group_commit: GroupCommitOptions,
    /// How the log files are written; by default in the way that is measured to be the fastest at the opening
    /// ([`WritePath`](crate::log::WritePath)).
    pub log_writes: Option<Caching>,
    /// How many groups may be on their way to the disk at the same time, 1 to 3; by default a number that is measured
    /// at the opening.
    pub log_writes_in_flight: Option<u32>,
    /// How many transactions can be open at the same time; 1,024 by default, at most [`Options::TRANSACTIONS_MAX`].
    pub transactions_max: usize,
    /// The number of packets for transactions that write; 16,384 by default, 1 to 60,000. A transaction has its packet
    /// from its first write until the packet is in the log's ring, on its way to the disk. There are never fewer than
    /// two packets for each transaction that can be open ([`Options::transactions_max`]). Therefore no open transaction
    /// waits for a packet of another open one.
    pub packets_max: usize,
    /// The longest write set of one transaction, in bytes as they are logged; 64 MiB by default, at most 512 MiB. Rows
    /// loaded into a table that the same transaction created or truncated do not count. Three other lists of a
    /// transaction may each take four times as much beside it:
    ///
    /// - the keys that it adds to secondary indexes: until the commit such a key takes its own bytes and some 60 more;
    /// - the versions of tables that its definitions make, one for each change of a table: some 200 bytes for each
    ///   column of the table, and 400 for each index;
    /// - the list of rows that are loaded while a savepoint is open: 16 bytes for each segment of 64 KiB that a load
    ///   fills, and for each row where rows are not adjacent.
    pub write_set_bytes_max: usize,
    /// The longest wait for one lock; 10 s by default.
    pub lock_timeout: Duration,
    /// How often `transact` runs a body again after deadlocks before it gives up; 100 by default.
    pub deadlock_retries_max: u32,
    /// How long a commit at level 1 may stay off the disk before its group is begun (I3); 10 ms by default.
    pub memory_flush_interval: Duration,
    /// How long a transaction waits for a packet slot or for log space before it fails; 5 s by default.
    pub log_wait_max: Duration,
    /// How many threads recovery uses; one for each core by default, at most [`Options::RECOVERY_THREADS_MAX`].
    pub recovery_threads: usize,
    /// Receives a line for each step of a long recovery; one when [`recovery_within`](Options::recovery_within) cannot be
    /// kept; and, while a definition goes through the rows of a table (an index is built, a table moves), how many are
    /// done, after two seconds and then every ten. None by default. It may panic: the panic is caught and has no other effect.
    pub progress: Option<Progress>,
    /// Whether a directory without a database becomes one; yes by default.
    pub create: bool,
    /// Which threads do the background work; the database's own by default.
    pub background: Background,
    /// The clock by which the database waits and decides; the machine's by default. A [virtual
    /// clock](crate::io::VirtualClock) needs [`Background::Driven`]. Under it a time-out, a deadline, the linger of a
    /// group commit, an interval or a rest passes exactly when that clock does, and an hour takes no time. Times in the
    /// log and in backups count from 2020. So what a database does by time can be replayed.
    ///
    /// With one thread each wait moves the clock to the wait's end
    /// ([`VirtualClock::new`](crate::io::VirtualClock::new)); several threads take turns by a
    /// [`Scheduler`](crate::io::Scheduler). Times that are only reported may be the machine's, and so may the times by
    /// which the speed of a disk is measured.
    pub clock: Clock,
}

/// Which threads do the work that no caller waits for ([`Options::background`]): log writes of commits at level memory,
/// checkpoints that are due, and routing rules that follow the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Background {
    /// Threads of the database's own.
    #[default]
    Threads,
    /// The caller, by [`Database::drive`](crate::Database::drive), which has to be called now and then. This is for a
    /// program or a test that decides itself when background work is done. It should use the database from one thread
    /// at a time.
    ///
    /// A commit that waits for the disk writes its group itself, and so does a ticket when it is waited for or polled.
    /// A transaction that finds no room in the log makes the checkpoint that makes room, unless
    /// [`Checkpointing::None`](crate::Checkpointing) is set. The wakers of tickets run in calls of `drive`, at the end
    /// of a commit that waited for the disk, and where a ticket is polled.
    ///
    /// Once open, this database starts a thread only if its last handle is dropped in a body, or if a handle ends in
    /// another handle's body (with [`Engine::DataOriented`]). The opening itself uses
    /// [`recovery_threads`](Options::recovery_threads). [Threads that own executors](crate::Executors::threads) and
    /// transaction servers are refused.
    ///
    /// If one thread makes the same calls, and the disk gives the same answers, the database takes the same steps. This
    /// requires that nothing depends on a measurement or on the machine's time: [`log_writes`](Options::log_writes) and
    /// [`log_writes_in_flight`](Options::log_writes_in_flight) are given, and the [`clock`](Options::clock) is a
    /// virtual one.
    Driven,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Disk,
            memory_bytes: memory_bytes_by_default(),
            cache_bytes: CACHE_BYTES_BY_DEFAULT,
            page_bytes: PAGE_BYTES_BY_DEFAULT,
            two_stage: TwoStage::default(),
            lock_grain: LockGrain::default(),
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
            straddling_hints: true,
            log_bytes_max: 4 << 30,
            log_buffer_bytes: LogOptions::RING_BYTES,
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

/// The least bound on the log: it allows files of two blocks each.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// The bounds of [`Options::recovery_within`].
const RECOVERY_WITHIN_MIN: Duration = Duration::from_millis(10);
const RECOVERY_WITHIN_MAX: Duration = Duration::from_secs(86_400);

impl Options {
    /// The most transactions that can be open at the same time ([`Options::transactions_max`]).
    pub const TRANSACTIONS_MAX: usize = 16_384;

    /// The most threads that a recovery uses ([`Options::recovery_threads`]).
    pub const RECOVERY_THREADS_MAX: usize = THREADS_MAX;

    /// How pages of disk-resident tables are kept.
    pub(crate) fn pages(&self) -> PageOptions {
        PageOptions {
            page_bytes: self.page_bytes,
            cache_bytes: self.cache_bytes,
            is_read_only: false,
            clock: self.clock.clone(),
            writes_behind: self.background == Background::Threads,
        }
    }

    pub(crate) fn snapshot_bytes_max(&self) -> u64 {
        self.snapshot_bytes_max.unwrap_or(self.memory_bytes / 8)
    }

    /// The memory that long lists of locks on rows may take, in bytes.
    pub(crate) fn lock_memory(&self) -> u64 {
        (self.memory_bytes / 8).max(1 << 20)
    }

    /// How many parts of phases can run at a time beside the first part of each phase: as many as all admitted calls
    /// can have, up to a bound. Beyond the bound fewer threads share a phase.
    pub(crate) fn parts_max(&self) -> usize {
        let beside_its_own = self.engine.thread_bounds().end().saturating_sub(1);
        (self.transactions_max.div_ceil(2) * beside_its_own).min(PARTS_MAX)
    }

    /// The number of packets of the log. Invariant: **a transaction that waits for a packet waits for commits that have
    /// their place, and not for an open transaction**, which may wait for the first one's locks. Each context keeps at
    /// most one home packet, which is idle while its transaction has another packet, and homes are at most half of all
    /// packets ([`PacketPool::home`](crate::log)). Each open transaction without a place has at most one packet. So
    /// with two packets for each context one is free, or belongs to a commit that has its place.
    pub(crate) fn packet_slots(&self) -> usize {
        self.packets_max.max(2 * self.transactions_max)
    }

    /// The first option that is out of its range, with the values that it may have; `None` if there is none.
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
        if self.cache_bytes < CACHE_BYTES_MIN {
            return Some(format!("cache_bytes is {}, expected at least {CACHE_BYTES_MIN}", self.cache_bytes));
        }
        if !PAGE_SIZES.contains(&self.page_bytes) {
            return Some(format!("page_bytes is {}, expected one of {PAGE_SIZES:?}", self.page_bytes));
        }
        if self.log_bytes_max < LOG_BYTES_MIN {
            return Some(format!(
                "log_bytes_max is {}, expected at least {LOG_BYTES_MIN}",
                self.log_bytes_max
            ));
        }
        if !(LogOptions::RING_BYTES_MIN..=LogOptions::RING_BYTES_MAX).contains(&self.log_buffer_bytes)
            || !self.log_buffer_bytes.is_multiple_of(PAGE)
        {
            return Some(format!(
                "log_buffer_bytes is {}, expected a multiple of {PAGE} from {} to {}",
                self.log_buffer_bytes,
                LogOptions::RING_BYTES_MIN,
                LogOptions::RING_BYTES_MAX
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
        if self.lock_grain == LockGrain::Page && self.engine != Engine::central() {
            return Some("lock_grain is Page: expected Engine::central(), or lock_grain Record".to_owned());
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
