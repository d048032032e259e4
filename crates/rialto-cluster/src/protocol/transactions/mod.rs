//! Transactions over several partitions, and requests that run at most once (the invariants C8 to C13 below).
//!
//! A transaction has a *coordinator* (on the node that its client talks to), and a *branch* in each of its partitions.
//! One of these partitions is the *deciding* one, fixed before anything is sent; the commit of its branch is the
//! decision. Every other branch that may write prepares before, and every other one that only reads is confirmed.
//!
//! ```text
//!  coordinator     deciding partition     a branch that writes      a branch that only reads
//!      │── Act ────────────▶│                     │                          │
//!      │── Act (last) ──────┼────────────────────▶│ reserve, Prepared        │
//!      │── Act ─────────────┼─────────────────────┼─────────────────────────▶│
//!      │◀─ Reply ───────────┴─ Reply, vote ───────┴─ Reply ──────────────────│
//!      │── Confirm ─────────┼─────────────────────┼─────────────────────────▶│ still held? reads durable?
//!      │◀───────────────────┼─────────────────────┼─ StillHeld ──────────────│ locks released
//!      │── Decide ─────────▶│ commit, durable     │
//!      │◀─ Outcome ─────────│── Decided ─────────▶│ commit, durable
//!                           │◀─ Confirmed ────────│
//!                    forget │── Forgotten ───────▶│ (rides with other messages)
//! ```
//!
//! SQL's transactions grow statement by statement ([`Pace::Statements`]): the first statement's partition is the
//! deciding one, others join, each reply says whether its branch has written, and the commit asks for all votes in one
//! round (*Prepare* beside *Confirm*). One that has stayed in one partition is decided by one message, at whichever
//! level.
//!
//! # Invariants
//!
//! - **C8 A vote can be kept.** A branch that may write votes only after its commit has room and its *Prepared* is durable
//!   at the transaction's level (`participant`). What must outlive an opening is a row ([`RowChange`]): prepared branches,
//!   decisions that are not confirmed, and the answers of requests. So copies, checkpoints and failovers keep them.
//! - **C9 Reads are confirmed.** After the last action of any branch, each branch that only reads confirms, under its
//!   opening, that it still holds its locks (`coordinator`).
//! - **C10 One decision.** All branches end as the deciding one. It says "commit" only when its own commit is durable at the
//!   transaction's level, and "abort" only when it cannot commit any more (`in_doubt`). A decision is forgotten when all
//!   branches have confirmed that theirs is durable (`decider`). A message that comes twice, late, or under another
//!   opening has no second effect (`ended`). After a loss nothing is presumed: the branches are asked, and then an
//!   operator (`decider`). A loss is one of what was durable at the transaction's level: by force at each level, of all
//!   memories for transactions at level 2 alone ([`Lost`]).
//! - **C11 At least level 2.** A transaction over several partitions, and what it has read in each, are durable at level 2
//!   at least before it is decided ([`Level::over_partitions`], `participant`).
//! - **C12 At most once.** A request that comes again is answered from its row, or waits for the one that runs
//!   (`answers`, `participant`).
//! - **C13 Nothing waits for ever.** Queues (`queue`), waits and memory have bounds. A branch that is not prepared does
//!   not outlive its coordinator's connection, or the heartbeat that says that it does not run. A transaction that its
//!   client keeps open does not keep partitions from forgetting others (`running`, `ended`).
//!
//! All of this is state machines: [`Coordinator`] and [`Participant`] take messages, results and the time, and give
//! effects. How a driver maps the effects of a participant to the kernel:
//!
//! | effect | the kernel |
//! |---|---|
//! | [`Effect::Begin`] | begins a transaction of the partition's database. With [`Locking::ReadsLock`] its reads lock records, absent keys and intervals |
//! | [`Effect::Run`] | runs an action of it, whose lock waits are bounded |
//! | [`Effect::Reserve`] | the step from the open transaction to the state `Reserved` of a commit |
//! | [`Effect::Prepare`] | the state `Prepared`: values, all locks and the row in one packet; no commit barrier is held |
//! | [`Effect::AwaitReads`] | waits until the log is durable at the level up to its end as it is now |
//! | [`Effect::Commit`] | the states `Placed` and `Applied`, the rows in the same packet; locks go once it has its place |
//! | [`Effect::AwaitAnswer`] | as [`Effect::AwaitReads`], for an answer that was found in its row |
//! | [`Effect::Abort`], [`Effect::Release`] | rolls back, or ends, the transaction: its locks and its room are given back. The rows are written with the end of *Prepared*, never before it |
//! | [`Effect::Write`] | a transaction of its own on the system's tables |
//!
//! A primary that was deposed may not know it. So a driver tells a participant that something is durable
//! ([`Participant::durable`], at level 1, too) only after it has asked the partition's replica what may be answered at
//! that moment ([`Replica::answers`](super::replication::Replica::answers)), and found the step's place in it. The
//! steps of a deposed primary then never end. It still receives and sends: refusals, aborts, and what it knew before.
//! All of that is true under its opening; of later openings of its partition it says nothing (`in_doubt`).
//!
//! A promotion, or a start, waits until the log that it has found is durable at every level (else it tells of decisions
//! that the next failover loses), reads the system's tables ([`SystemRows`]), takes locks, placeholders and room of all
//! prepared branches again, and then calls [`Participant::open`]. After a loss it writes [`RowChange::Lost`]
//! first, and waits for that, too. A crash before that leaves the forced promotion undone: the next opening begins with
//! it.
//!
//! C2: each message between partitions names its sender's opening, and once a partition has heard of an opening of
//! another one, it refuses messages of earlier ones. It knows that in memory only. What an earlier opening has said
//! stays true whatever comes later, but for what a loss takes back: a decision. So the one thing about openings
//! of others that outlives an opening is a row: the one that a branch is bound to
//! ([`RowChange::Bound`]).
//!
//! Transactions of one partition that read without locks wait at each row that a branch of a transaction over several
//! partitions (one with [`Locking::ReadsLock`]) has written, whether it has prepared or not:
//!
//! - A prepared one may be decided, and its client told, before this partition has heard of it.
//! - One that is still open may belong to a transaction whose reading branches have been confirmed and have released
//!   their locks, or have lost them in a failover since. Then a later transaction may have overwritten what it read; a
//!   reader that sees the later one's writes has to see its writes, too.
//!
//! Reading order: `ids`, `records`, `message`, `coordinator`, `running`, `branch`, `participant`, `in_doubt`,
//! `decider`, `ended`, `answers`, `queue`; in `tests`, a simulation over models of partitions.

mod answers;
mod branch;
mod coordinator;
mod decider;
mod effect;
mod ended;
mod ids;
mod in_doubt;
mod message;
mod participant;
mod queue;
mod records;
mod running;

#[cfg(test)]
mod tests;

pub use answers::{Answers, CLOCK_MARGIN, Found, LIFETIME};
pub use coordinator::{
    ACT_WITHIN, Action, Coordinator, CoordinatorEffect, DECIDE_AGAIN, DECIDE_WITHIN, Place, Plan, Tries,
};
pub use decider::{ASK_ANEW, TELL_AGAIN, Undecided};
pub use effect::{Effect, Keeps, Locking, Step};
pub use ids::{Level, NoTransactionId, Opening, Request, Start, TransactionId};
pub use in_doubt::UNDECIDED_FOR;
pub use message::{
    Act, Address, Body, Class, Decision, Message, MessageKey, Outcome, Sender, Standing, Verdict,
};
pub use participant::{ASK_AFTER, HASTE, Opened, Participant, Ran};
pub use queue::{Full, SendQueue};
pub use records::{Access, BranchRef, Branches, Lost, RowChange, SystemRows, Work};
pub use running::{Pace, Running};
