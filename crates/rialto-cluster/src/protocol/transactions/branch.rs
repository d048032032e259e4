//! A branch: the part of a transaction in one partition, under one opening.
//!
//! ```text
//!  Parked ─▶ Idle ◀─▶ Running ─▶ Reserving ─▶ Preparing ─▶ Prepared ─▶ Committing       a branch that votes
//!             ├─▶ ReservingDecision ─▶ Deciding                                          the deciding branch
//!             └─▶ Confirming                                                             one that only reads
//! ```
//!
//! Up to `Preparing` a branch may abort by itself at any time, and does not outlive its opening. From `Prepared` on it
//! ends as its deciding partition says, or aborts as its coordinator says, until it is [`Bound`]. From
//! `ReservingDecision` on the deciding branch is not given up for its coordinator's sake; from `Deciding` on it has its
//! place and cannot abort.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Access, Act, Branches, Level, Opening, Request, Verdict, Work};

/// A branch.
#[derive(Debug)]
pub(super) struct Branch<W: Work> {
    /// Where it stands.
    pub state: State<W>,
    /// The client's request, where this is the deciding branch.
    pub request: Option<Request>,
    /// Whether this is a whole transaction of one partition, and the level of its commit.
    pub whole: Option<Level>,
    /// The level that the client asks for.
    pub level: Level,
    /// The number of the next action to run.
    pub next: u32,
    /// Actions that have come before their turn.
    pub waiting: BTreeMap<u32, Act<W>>,
    /// Whether it has written.
    pub access: Access,
    /// When it was opened.
    pub opened_at: Duration,
    /// When a branch in doubt first asked this one, the deciding one, for the decision.
    pub asked_at: Option<Duration>,
}

/// The reply that a vote rides on.
#[derive(Debug, Clone)]
pub(super) struct Rides<W: Work> {
    pub sequence: u32,
    pub reply: W::Reply,
}

/// Whether a prepared branch waits for a decision of certain openings of its deciding partition: it has been asked by
/// one, after a loss there. A decision of an opening before that may be lost, and one that its coordinator wants
/// may not be the one that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// It was not asked.
    No,
    /// By this opening. The row is being made durable, and the answer waits for that.
    Writing(Opening),
    /// By this opening, which has been answered.
    Durable(Opening),
}

impl Bound {
    /// The earliest opening that may say how the branch ends.
    pub fn least(self) -> Opening {
        match self {
            Bound::No => Opening(0),
            Bound::Writing(opening) | Bound::Durable(opening) => opening,
        }
    }
}

/// A branch that has committed, while its decision may be remembered.
#[derive(Debug)]
pub(super) struct Committed {
    pub branches: Branches,
    /// The earliest opening of the deciding partition that may say that the decision is forgotten: the one that has told
    /// it. An earlier one may have been deposed, and know another decision, or none.
    pub told_by: Opening,
    /// When it confirms again.
    pub confirm_at: Duration,
}

/// Where a branch stands.
#[derive(Debug)]
pub(super) enum State<W: Work> {
    /// It waits for another transaction of the same request to end (C12). It has not begun.
    Parked,
    /// It is open, and runs nothing.
    Idle,
    /// It runs an action; with the last one, it prepares afterwards.
    Running { sequence: u32, vote: Option<Branches> },
    /// It has asked for the room that its commit needs.
    Reserving { branches: Branches, rides: Option<Rides<W>> },
    /// *Prepared* is being made durable.
    Preparing { branches: Branches, rides: Option<Rides<W>> },
    /// It has voted. It asks its deciding partition at this time.
    Prepared { branches: Branches, bound: Bound, ask_at: Duration },
    /// It has committed; the commit is being made durable.
    Committing { branches: Branches, told_by: Opening },
    /// What it has read is being made durable.
    Confirming,
    /// The deciding branch has asked for the room that its commit needs.
    ReservingDecision { branches: Branches, verdict: Verdict<W> },
    /// The deciding branch has its place in the log: it is being made durable.
    Deciding { branches: Branches, verdict: Verdict<W> },
}

impl<W: Work> State<W> {
    /// Whether the branch may still abort for a reason of its own, or of its coordinator.
    pub fn may_abort(&self) -> bool {
        match self {
            State::Parked
            | State::Idle
            | State::Running { .. }
            | State::Reserving { .. }
            | State::Preparing { .. }
            | State::Confirming => true,
            State::Prepared { .. }
            | State::Committing { .. }
            | State::ReservingDecision { .. }
            | State::Deciding { .. } => false,
        }
    }
}

impl<W: Work> Branch<W> {
    pub fn new(state: State<W>, now: Duration) -> Branch<W> {
        Branch {
            state,
            request: None,
            whole: None,
            level: Level::Memory,
            next: 0,
            waiting: BTreeMap::new(),
            access: Access::Reads,
            opened_at: now,
            asked_at: None,
        }
    }
}
