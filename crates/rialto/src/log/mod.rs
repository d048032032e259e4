//! The log: it makes commits durable, and keeps the order in which they happened.
//!
//! The log knows nothing of tables. A *packet* is the bytes of one transaction, with a kind; its *place* ([`Lsn`]) is
//! its number in the log order. A commit may be durable at one of two levels ([`Durability`]): at *level 1* its packet
//! is in memory that outlives the process, at *level 3* it is on disk. (Level 2 is a cluster's.) The way of a packet
//! (*leave*: no thread waits for it, and the log server writes it):
//!
//! ```text
//!  borrow a slot ─▶ write the packet ─▶ reserve room ─▶ PUSH: the place ─▶ apply, release locks ─▶ wait or leave
//!  (packet.rs)      (outside any latch)  (files.rs)     (queue.rs)                                  (turn.rs)
//!                                                          │
//!                          GATHER: drain, build commit blocks in the ring (gather.rs, block.rs, ring.rs)   level 1
//!                                                          │
//!                          WRITE A GROUP: ring ─▶ log file, sync, publish, one wake (writer.rs, files.rs)  level 3
//!                                                          │
//!                          after a crash: RECOVER, then OPEN (reader.rs, open.rs)
//! ```
//!
//! # Which thread does it, and when
//!
//! A thread that gathers holds a latch for a short time. A thread that writes a group has taken the *writer word*
//! (`turn.rs`). A level 1 committer gathers for itself. If it finds the latch free and the queue empty, it reserves
//! room, takes its place and builds its block at once, before it applies (`Log::place_alone`): one compare-and-swap
//! serves as push and drain. No other thread sees its slot then, so the context keeps the slot for its next
//! transaction.
//!
//! Which thread writes a group is the group commit design's choice (`group_commit/`); the mechanism only sees to it
//! that no packet is left behind.
//!
//! # Invariants kept here
//!
//! - **I2** Taking a place is one compare-and-swap that links the packet and numbers it, densely (`queue.rs`). A slot
//!   is used again only after gather and apply (`packet.rs`).
//! - **I3** [`Log::wait`] answers when the durable position, of the level asked for, has passed the place. A level 1
//!   commit is in the ring when it is answered. The log server starts to write it to disk no later than
//!   [`LogOptions::memory_flush_interval`] after that, behind at most one group that is being written; therefore it
//!   stays off the disk for at most that interval and two group writes. At each level what is durable is a prefix of
//!   the log, so one number a level describes it.
//! - **I4** The log is a prefix: each block carries the checksum of the one before it and the position known to be
//!   durable when it was built. The first failed write or sync stops the log for good ([`Error::Stopped`]). Every
//!   thread that waits is told [`Error::OutcomeUnknown`]; nothing is tried again.
//! - **I8, I9** Reading writes nothing; [`Log::open`] rewrites what was read. No byte is interpreted before its
//!   checksum is verified.
//! - **I10** [`Log::borrow_packet`] and [`Log::reserve`] are where a commit may wait or fail; after [`Log::push`] room
//!   in prepared files is certain. (For `Log::place_alone` room is reserved for some hundred commits at a time, before
//!   their places; without such room it does nothing. A committer that finds no room for its packet first takes back
//!   what is left of that reservation.) A full ring makes commits slower; it never makes them fail.
//!
//! # The crash argument
//!
//! The stream is a sequence of blocks without gaps (layout: `block.rs`); a log file holds a stretch of it after a
//! header of one page (`files.rs`). A *flush* ends at a page's end with a pad. So a page that was synced is never
//! written again, and a torn write can only damage what was not acknowledged as durable. After a crash of the machine:
//!
//! 1. *Everything durable is read back.* Its blocks are whole and chain. After them the file has blocks that the crash
//!    left half written, or older bytes. A half-written block fails its checksum. A block that is left over from an
//!    earlier use of the file, or from a tail that an earlier recovery gave up, does not chain. Checksums are seeded
//!    with the file's sequence number. Each opening writes a pad that counts the opening, durably, before any other
//!    block, so that no block of a lost tail can follow a new one.
//! 2. *Nothing in between is lost silently.* A block carries the durable position of its time. If a whole block after
//!    the end says that the end was durable, the missing block was damaged later, and recovery refuses to continue.
//! 3. *What recovery saw stays.* Blocks past the last proven durable position may be in the system's cache only (after
//!    a failed sync even in a page that the system takes for clean). They are written and synced again before the log
//!    continues.
//!
//! After the death of only the process (level 1): the ring is a shared mapping, so its bytes are still there. A block
//! counts once the gathered position has been advanced past it, which happens in order, and its room in the ring is
//! used again only when it is synced to a file. Therefore the files' chain, continued by the ring's blocks, reaches the
//! gathered position; if it does not, that is corruption. A ring of another boot or another database is ignored.
//!
//! A packet larger than a block spans several (`Part`); it counts when its last part is there. If the log ends inside a
//! packet, the parts stay in the stream, and the pad that the opening writes says by its higher incarnation that they
//! are void.
//!
//! # The rest of the log's life
//!
//! The first file is small. Later files are zeroed in the background when half of the last one is used.
//! [`Log::free_before`] renames freed files to spares, which become later files without being zeroed again. It keeps as
//! many spares as it frees files, because about as many will be needed before the next call. On a full disk a file may
//! be shorter than others. [`LogOptions::bytes_max`] bounds all files together; near it, reservations wait for a
//! checkpoint and then fail with [`Error::LogFull`], before the place.
//!
//! A log may follow another one instead of taking packets (`follow.rs`). Then its blocks are those of the other log, at the
//! same positions of files of the same layout. What its blocks say of durable positions is true of the other log's disk;
//! what its own disk has is in a record of its own (`follower_record.rs`).
//!
//! Of a [`PacketKind::Unlogged`] packet the log carries only the place, so that
//! places stay dense (I2) and a recovery can tell how many commits are missing. Of a [`PacketKind::Call`] packet it
//! carries only the last bytes, the call; the bytes before them are the write set, which the owner of the packet
//! applies to the tables.
//!
//! [`Error::Stopped`]: crate::Error::Stopped
//! [`Error::OutcomeUnknown`]: crate::Error::OutcomeUnknown
//! [`Error::LogFull`]: crate::Error::LogFull
//! [`Lsn`]: crate::Lsn

mod appended_packets;
pub(crate) mod archive;
mod before;
mod block;
mod commit_lock;
mod cursor;
mod extent;
mod files;
mod follow;
mod follower_record;
#[cfg(any(test, feature = "fuzzing"))]
mod forge;
mod freed;
mod gather;
pub mod group_commit;
mod left_over;
mod line;
#[allow(clippy::module_inception, reason = "the module's main type has a file of its own")]
mod log;
mod log_file;
mod marks;
mod open;
mod overlap;
mod packet;
mod queue;
mod reader;
mod received;
mod ring;
mod subscriptions;
mod sync;
mod turn;
mod unpacker;
pub mod virtual_time;
mod wakers;
mod write_path;
mod writer;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use appended_packets::AppendedPackets;
pub use archive::ArchiveStats;
pub(crate) use archive::Archiver;
pub use cursor::{LogBlocks, LogCursor, LogFileLayout};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use forge::{ForgedBlock, forge_log_file, log_file_of};
pub use group_commit::{GroupCommitDesign, GroupCommitOptions};
pub(crate) use left_over::is_begun;
pub use log::Log;
pub use packet::PacketSlot;
pub(crate) use packet::{PacketHome, PoolOwner};
pub(crate) use reader::witness::Witness;
pub use reader::{LogEnd, LogReader, Packet, recover};
pub(crate) use reader::{ReadUntil, read_archive, recover_through};
pub(crate) use received::ReceivedLog;
pub(crate) use ring::RING_NAME;
pub(crate) use turn::IN_FLIGHT_MAX;
pub use turn::Waits;
pub(crate) use wakers::{Listener, Listens, RegisteredListener};
pub use write_path::WritePath;
pub use writer::{GROUP_SIZE_CLASSES, LogStats, WRITE_TIME_CLASSES, write_time_class};

use crate::Lsn;
use crate::fault_injection;
use crate::io::{Caching, Clock, Moment};

/// Bytes of a page of the log; a flush is a multiple of it.
pub(crate) const PAGE: usize = 4096;

/// A flag in a packet's kind byte: the packet's last [`HELD_BY_BYTES`] bytes say which sweep holds it
/// ([`Packet::held_by`]).
pub(crate) const HELD_BY: u8 = 0x80;
pub(crate) const HELD_BY_BYTES: usize = 4;

/// The longest packet.
pub const PACKET_BYTES_MAX: usize = 1 << 30;

/// An offset in the log's stream of bytes, which the log files hold stretches of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition(pub u64);

/// Where one block ends and the next begins. The checksum of a block covers that of the block before it; therefore two
/// logs that go through one point are the same log up to there. Databases that began as copies of one directory are
/// told apart by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPoint {
    /// The last packet that ends before it.
    pub lsn: Lsn,
    /// Its position in the stream.
    pub position: LogPosition,
    /// The checksum of the block that ends there; 0 at the beginning of a log.
    pub checksum: u64,
}

impl LogPoint {
    /// The beginning of a log whose first packet gets the place after this one.
    pub(crate) fn beginning_after(place: Lsn) -> LogPoint {
        LogPoint { lsn: place, position: LogPosition(0), checksum: 0 }
    }
}

impl std::fmt::Display for LogPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LogPoint { lsn, position, checksum } = self;
        write!(
            f,
            "a block up to place {lsn} that ends at position {} with checksum {checksum:016x}",
            position.0
        )
    }
}

/// The part of the log that is still needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogNeeded {
    /// Packets from this place on.
    pub from: Lsn,
    /// The block that ends at this position, which tells whether the log goes through a [`LogPoint`] there.
    pub position: LogPosition,
}

/// How durable "committed" is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Level 1: the log lies in memory that outlives the process, not the machine.
    Memory,
    /// Level 3: the log lies on disk.
    Disk,
}

/// What a transaction says about how long its commit may stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patience {
    /// When the transaction began; `None` stands for the beginning of its commit.
    pub began: Option<Moment>,
    /// Its stall, in the designs that stall for a set time; `None` stands for the design's.
    pub stall: Option<Duration>,
    /// How long it may take in all, in the designs that ask for that; `None` stands for the design's.
    pub willing_to_wait: Option<Duration>,
}

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// A transaction's commit: its redo records.
    Commit = 1,
    /// A commit of which only the place is kept: what it wrote is not in the log.
    Unlogged = 4,
    /// A commit of which the log holds the call: a procedure's name, version and arguments, to be run again.
    Call = 5,
}

impl PacketKind {
    fn from_byte(byte: u8) -> Option<PacketKind> {
        match byte {
            1 => Some(PacketKind::Commit),
            4 => Some(PacketKind::Unlogged),
            5 => Some(PacketKind::Call),
            _ => None,
        }
    }
}

/// Which threads do the work that no committer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogThreads {
    /// Four threads: the log server, one that prepares files, one that runs the wakers of tickets, and one that runs
    /// the engine's own listeners.
    Background,
    /// No threads: every caller does all work itself, and the bound of I3 holds only for commits that a caller waits
    /// for.
    None,
    /// No threads, either. Listeners are woken only where a caller that holds nothing says so
    /// ([`Log::wake_listeners`]).
    Driven,
}

/// How a log is set up. Times beyond [`FOR_EVER`](crate::io::FOR_EVER) count as that.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Which thread writes groups, and when.
    pub group_commit: GroupCommitOptions,
    /// Stream bytes of the first log file; a multiple of 4096.
    pub first_file_bytes: u64,
    /// Stream bytes of each later log file; a multiple of 4096.
    pub file_bytes: u64,
    /// All log files together hold at most this many stream bytes.
    pub bytes_max: u64,
    /// Freed files that are kept for reuse whatever the bound. More are kept within it: as many as a checkpoint frees.
    pub spare_files_max: usize,
    /// Bytes of the shared ring: how far level 1 may be ahead of level 3; a multiple of 4096.
    pub ring_bytes: usize,
    /// How many transactions can have a packet at the same time.
    pub packet_slots: usize,
    /// How long a level 1 commit may stay off the disk before the write of a group that holds it begins (I3).
    pub memory_flush_interval: Duration,
    /// How long a transaction waits for a slot or for log space before it fails (I10).
    pub wait_max: Duration,
    /// How the log files are written: each group is one write and one sync (none with [`Caching::DirectSync`]). `None`
    /// stands for the fastest way, as measured ([`WritePath`]).
    pub caching: Option<Caching>,
    /// How many groups may be on their way to the disk at the same time, 1 to 3; they complete in their order. `None`
    /// stands for the measured number.
    pub writes_in_flight: Option<u32>,
    /// Which threads the log has.
    pub threads: LogThreads,
    /// The clock for its waits and times; a virtual one needs a log without threads.
    pub clock: Clock,
}

impl LogOptions {
    /// The largest number of packet slots.
    pub const PACKET_SLOTS_MAX: usize = queue::SLOTS_MAX - 1;
    /// No log of a database has longer files.
    pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;
    /// Bytes of the ring where nothing else is said.
    pub(crate) const RING_BYTES: usize = 16 << 20;
    /// The bounds of [`ring_bytes`](LogOptions::ring_bytes).
    pub(crate) const RING_BYTES_MIN: usize = gather::RING_MIN;
    pub(crate) const RING_BYTES_MAX: usize = 1 << 30;

    /// The bytes of a log file under this bound on all of them: at most an eighth of it. Files are freed as wholes, and
    /// the file that the log ends in is never freed; therefore at most a quarter of the bound is out of use.
    pub(crate) fn file_bytes_under(bytes_max: u64) -> u64 {
        let page = PAGE as u64;
        let bytes_max = if fault_injection::is_on("log-files-of-one-size") { u64::MAX } else { bytes_max };
        (bytes_max / 8 / page * page).min(LogOptions::default().file_bytes)
    }

    /// The bytes of a ring that is to have this many, under this bound on all log files: no more than the bound.
    pub(crate) fn ring_bytes_under(ring_bytes: usize, bytes_max: u64) -> usize {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(ring_bytes);
        (bytes_max / PAGE * PAGE).clamp(LogOptions::RING_BYTES_MIN, ring_bytes)
    }

    /// For a log that is created and closed, without a packet.
    pub(crate) fn of_a_log_that_is_only_made() -> LogOptions {
        LogOptions {
            ring_bytes: LogOptions::RING_BYTES_MIN,
            packet_slots: 16,
            caching: Some(Caching::Buffered),
            writes_in_flight: Some(1),
            threads: LogThreads::None,
            ..LogOptions::default()
        }
    }
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            group_commit: GroupCommitOptions::default(),
            first_file_bytes: 4 << 20,
            file_bytes: LogOptions::FILE_BYTES_MAX,
            bytes_max: u64::MAX,
            spare_files_max: 4,
            ring_bytes: LogOptions::RING_BYTES,
            packet_slots: 8192,
            memory_flush_interval: Duration::from_millis(10),
            wait_max: Duration::from_secs(5),
            caching: None,
            writes_in_flight: None,
            threads: LogThreads::Background,
            clock: Clock::System,
        }
    }
}
