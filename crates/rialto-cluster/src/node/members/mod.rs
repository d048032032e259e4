//! Replicas that go from one node to another: because an operator wants it, or because a node is away for long.
//!
//! A *move* is a value in the control store, one for each partition: which node is to get a replica, and which one is to
//! lose its own. Operators' commands write moves, and so does a primary that finds one of its replicas lost. The node that
//! leads the partition carries them out, whichever machine it is on, and whichever node leads meanwhile.
//!
//! - [`Move`], [`Moves`] (`moves`): what the control store has of them.
//! - [`Placement`]: what all partitions have where, and where a replica is to go: to the least loaded node that has none.
//! - [`drain_round`], [`balance_round`] (`round`): what an operator's command does again and again.
//! - `keeper`: what a node does for the partitions that it leads, and the repair of what is lost.
//! - `given_up`: the directory of a replica that its node has no more.
//!
//! Invariants:
//! 1. **First one more, then one less.** A replica is removed once the one in its place is in sync, or once as many others
//!    are in sync as the partition is to have.
//! 2. **One at a time.** A partition has at most one move. Another one takes its place by compare-and-swap only.
//! 3. **Nothing is deleted that may be needed.** A replica's directory is deleted only under a configuration without it
//!    that is newer than all that the replica has seen, in the same control store, with no forced loss in between. It is
//!    read after the replica was closed: what acknowledges nothing any more cannot be in sync under a later one.

mod given_up;
mod keeper;
mod moves;
mod placement;
mod round;

pub use given_up::{give_up, is_left};
pub use keeper::Keeper;
pub use moves::{Move, Moves};
pub use placement::{NoRoom, Placement};
pub use round::{Round, RoundError, balance_round, drain_round};
