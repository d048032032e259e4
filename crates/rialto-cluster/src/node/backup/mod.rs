//! A backup of the whole cluster: the state of all its partitions at one moment, in a directory.
//!
//! The node that is asked for it *takes* it (`taking`). For each partition it gets the backup that the kernel of the
//! partition's primary writes, as a transfer of its own. All of them *meet* (`meeting`), so that they have one cut:
//!
//! ```text
//!  the taking node     each primary
//!      │── transfer ──────▶│ the kernel's backup waits for a checkpoint that runs
//!      │◀─ Near ───────────│ its cut comes next
//!      │── Hold ──────────▶│ no branch is prepared any more: those that are to be wait, those that are get their decisions
//!      │◀─ Clear ──────────│ nothing is prepared
//!      │── Cut ───────────▶│ the cut: no commit takes its place
//!      │◀─ AtCut ──────────│
//!      │── Go ────────────▶│ commits go on, and branches are prepared
//!      │◀─ Past ───────────│
//!      │◀═ the bytes ══════│ the state at the cut; once all is written, the primary says that it still leads
//! ```
//!
//! Invariants:
//! 1. **One moment.** There is a moment at which all partitions were at their cuts: each waits there until all have
//!    said that they are. So the backup has what was committed before that moment, in all partitions, and nothing else.
//! 2. **Nothing in doubt.** At that moment nothing is prepared. A transaction that writes in several partitions has
//!    prepared branches in all but one of them when it is decided, and they stay so until they have committed. So it
//!    is in the backup in all its partitions, or in none. Definitions are such transactions. One that has the votes of
//!    some partitions when branches are not prepared any more, and not of all, cannot be decided before the cut. So
//!    partitions ask for decisions sooner meanwhile, and the deciding one soon gives it up.
//! 3. **Of primaries.** After the cut each primary has its place durable at level 3 in a configuration in which it
//!    leads, in the same opening, which is the one that the manifest names. So it has led at the cut, and had all that
//!    was answered.
//! 4. **Nothing is blocked for long.** What a primary holds up it lets go by itself: branches that are to be prepared
//!    after `HOLD_WITHIN`, commits after `CUT_WITHIN`. Then the backup fails, and says so.
//! 5. **Whole or refused.** The manifest (`manifest`) is written last. A directory without it is no backup; one whose
//!    files are not as it says is refused. A directory that has something in it is never written to; nor is one that
//!    another backup is being written to, since the file in which the manifest is written is made first
//!    (`manifest.unfinished`). What fails removes what it has made, and nothing else.
//! 6. **It ends.** After a failure the taking node says so to all primaries, until its transfers have ended. The backup
//!    of a primary ends at the next segment, and holds the log's checkpoints up no longer than the log has room.
//!
//! `restoring` makes the databases of a new cluster from a backup. The new partitions begin in epochs above those of
//! the old cluster, since the rows of the system name the old openings. The new cluster takes no key of the control
//! store that another cluster has left.

mod backups;
mod manifest;
mod meeting;
mod message;
mod restoring;
mod taking;

pub use backups::{BackupStatus, Backups};
pub use manifest::{MANIFEST, Manifest, PartitionBackup};
pub use message::BackupMessage;
pub use restoring::restore_partition;
