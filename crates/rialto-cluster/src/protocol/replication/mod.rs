//! The replicas of one partition: which one is primary, which are in sync, and what may be answered.
//!
//! [`Replica`] is the state machine. A driver feeds it [`Event`]s with the node's clock and the log's positions, and carries
//! out its [`Effect`]s. Bytes of the log do not pass through it.
//!
//! - [`Configuration`], [`Known`]: what the control store has. It changes only by a swap, and each change raises the epoch.
//! - `following`: a standby or a learner; promises, promotion, the return of a primary. `forcing`: promotion by an operator.
//! - `leading`, `peer`, `promise`: a primary; shipping, and what may be answered. `changes`: which change of the configuration it
//!   makes: standbys that hold it up, an operator's commands, learners that have caught up.
//! - `common`, `store`: what a replica has in each role, and its requests to the control store.
//! - `adopting`: how it takes what the control store has. [`ReplicaStatus`]: what an operator is shown.
//!
//! # Invariants
//!
//! - **C1** At most one replica serves. A primary serves while all standbys in sync, and those that an open swap adds, have
//!   promised; it counts a promise from before it asked, less the drift margin. A standby promotes itself by a swap only after its
//!   promise has run out or was given back, and gives none while its swap may be done. A swap is opened only after the control
//!   store has answered a read just now: one that is open for long would leave the partition without promises.
//! - **C2** Every message carries the partition, the epoch and the life. A lower epoch is refused, and the sender is told.
//! - **C3** Each replica in sync has everything that was answered at level 2 or 3. From before a swap is sent until a configuration
//!   of its epoch or a later one is seen, answers need the replicas of both configurations. A replica that becomes the only one
//!   in sync, or becomes primary, has all of it on its disk. A standby that promises and takes no blocks is dropped.
//! - **C4** A replica leads only if it is in sync in its life, or is the recorded primary and all others in sync have declared
//!   new lives, or by force. It leads only under a configuration that its own process has swapped in; therefore a swap that an
//!   earlier process has left open is lost by then. The configuration says in which epoch answers may have been lost, and each
//!   later primary is told so. A replica without a whole database, or that is no member, promises nothing and leads nothing.
//! - **C5** Standbys redo only what all replicas in sync have. A replica starts over if the primary's log does not go
//!   through the end of its log, unless it is in sync: no answer is cut off.
//! - **C6** A replica whose tables are not those of the primary at the same place (`node/compare`) is dropped from those in sync,
//!   and takes a new copy before it gets back. Until the drop is in force it counts as before: a control store that is away
//!   stops no partition for it.
//! - **C7** A primary whose log has stopped, or whose database does not lead, gives the promises back, and pauses before it
//!   tries again. A standby whose appends or redo have failed says so, and is dropped.
//!
//! **The age of a replica's tables.** A replica that follows asks its primary for the end of the log, and its clock
//! says when ([`Event::AskEnd`]). A primary that serves answers. Then everything that was answered before the question,
//! at any level, lies before that end (C1, C3), also if another primary leads by the time the answer comes; what was
//! answered at level 1 may have been lost. Once the replica's tables have everything up to that end, they are at most
//! as old as the question. Only the replica's clock is read. Without an answer, what it knows of its tables' age grows
//! older.
//!
//! # What a driver does over the kernel
//!
//! | effect | carried out by |
//! |---|---|
//! | [`Effect::Save`] | a small file beside the database, written anew and synced |
//! | [`Effect::Ship`] | a `LogCursor` for each stream, made by `Database::log_cursor` when the stream is new; `LogDiverged` and `LogTrimmed` are [`Event::CannotShip`]; `next_blocks` until `end`. `LogCursor::release` follows the acknowledgements |
//! | [`Effect::Append`] | `Follower::append`, after `Follower::take_load_file` for those that are missing; then [`Event::LogMoved`], or [`Event::AppendFailed`] |
//! | [`Effect::RedoUpTo`] | `Follower::redo_up_to` |
//! | [`Effect::SyncDisk`] | `Follower::sync`; at a primary a flush of its log; then [`Event::LogMoved`] |
//! | [`Effect::Lead`] | `Follower::lead`, whose first block of its own counts an opening; then [`Event::Led`], or [`Event::LeadFailed`]. Transactions over partitions are told of lost memories |
//! | [`Effect::Follow`] | close the database, answer nothing of what runs, `Follower::open_redoing_up_to`, [`Event::Opened`] |
//! | [`Effect::Drain`], [`Effect::GoOn`] | admission |
//! | [`Effect::StartOver`] | close, copy the primary's directory, `Follower::open_redoing_up_to`; then [`Event::Opened`] or [`Event::StartOverFailed`] |
//! | [`Effect::EndKnown`] | what reads at this replica are told of the age of its tables |
//! | [`Effect::Read`], [`Effect::Swap`] | [`ControlStore`](crate::control::ControlStore), on a thread of its own. No driver watches the store yet: [`Event::StoreChanged`] does not come, and replicas ask by themselves |
//!
//! The log of a step is None from [`Effect::Follow`] or [`Effect::StartOver`] until the database is open again, and while a
//! process opens it. The replica answers heartbeats meanwhile, and promises nothing.
//!
//! [`LogState`] is `Follower::point` and `Follower::on_disk_point`; at a primary the end of its log and
//! `Database::on_disk_point`. A transaction is answered after [`Replica::answers`] covers its place, asked for after it
//! ran.
//!
//! An opening redoes nothing beyond the checkpoint that it begins with: a driver opens with the least bound
//! (`Follower::open_redoing_up_to`), since other replicas in sync may lack the rest (C5). `RedoUpTo` raises the bound.
//!
//! The simulation is in `tests/replication/`.

mod adopting;
mod changes;
mod common;
mod configuration;
mod event;
mod following;
mod forcing;
mod leading;
mod message;
mod options;
mod peer;
mod promise;
mod replica;
mod status;
mod store;

pub use configuration::{Configuration, ConfigurationError, Known, Loss, LostBefore, Member, StoreIdentity};
pub use event::{
    At, Contents, Effect, Event, LogState, Once, ReadOutcome, Report, Saved, SwapOutcome, Ticket,
};
pub use leading::Answers;
pub use message::{Envelope, Fitness, Message, Stream};
pub use options::{ReplicationOptions, Unprotected};
pub use promise::Asked;
pub use replica::{Replica, RoleKind};
pub use status::{PeerStatus, ReplicaStatus};
