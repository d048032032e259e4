//! Replicas that go from one node to another: because an operator wants it, or because a node is away for long.
//!
//! A *move* is a value in the control store, one for each partition: which node is to get a replica, and which one is to
//! lose its own. Operators' commands write moves, and so does a primary that finds one of its replicas lost. The node that
//! leads the partition carries them out, whichever machine it is on, and whichever node leads meanwhile.
//!
//! - [`Move`], [`Moves`] (`moves`): what the control store has of them.
//! - [`Placement`]: which replicas the nodes have, and which node is to get another one: the least loaded one that has
//!   none.
//! - [`drain_round`], [`balance_round`] (`round`): what an operator's command does again and again.
//! - [`next_primary`] (`primaries`): which primary is to change so that nodes lead about as many partitions.
//! - `keeper`: what a node does for the partitions that it leads, and the repair of what is lost.
//! - `hand_overs`: when a primary that is to go is asked to hand over.
//! - `unheard`: since when replicas are not heard.
//! - `given_up`: the directory of a replica that its node has no more.
//!
//! Invariants:
//! 1. **First one more, then one less.** A replica is removed once the one in its place is in sync, or once as many
//!    others are in sync as the partition is to have. One that is still being copied does not count. The primary checks
//!    this when it makes the change, not when the removal was asked for.
//! 2. **One at a time.** A partition has at most one move. Another one takes its place by compare-and-swap only.
//! 3. **Nothing is deleted that may be needed.** A replica's directory is deleted only under a configuration without it
//!    that has as many in sync as the partition is to have, is not older than what the replica has seen, is of the same
//!    control store, and with no loss since the replica was in sync. It is read after the replica was closed: what
//!    acknowledges nothing any more cannot be in sync under a later one. It has stood for some seconds: a replica in sync
//!    that is dead is dropped meanwhile.
//! 4. **A move ends.** One whose new replica is not heard, or gets no further, ends with a reason, and what it has made is
//!    taken back.

mod given_up;
mod hand_overs;
mod keeper;
mod moves;
mod placement;
mod primaries;
mod round;
mod unheard;

pub use given_up::{give_up, is_left};
pub use keeper::Keeper;
pub use moves::{FailedMove, Move, Moves, Purpose};
pub use placement::{NoRoom, Placement};
pub use primaries::next_primary;
pub use round::{Round, RoundError, balance_round, drain_round};
