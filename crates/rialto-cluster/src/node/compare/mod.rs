//! The comparison of replicas (C6): a standby's tables are the log, redone.
//!
//! The primary sums a range of a table under its locks, and writes the sum into a row of the system's in the same
//! transaction. So the log has, at one place, what the range comes to there. A replica that redoes the log redoes that
//! transaction as any other. Before it redoes the next one, it sums the same range of its own tables, and sends what it
//! has found:
//!
//! ```text
//!  the primary                                        each replica that follows
//!      │ locks, sum, a row with the sum, commit            │
//!      │══ the log, up to this place ═════════════════════▶│ redoes it up to this place
//!      │                                                   │ the sum of the same range, of its own tables
//!      │◀─ Compared ───────────────────────────────────────│
//!      │ the same, or differs                              │ redoes on
//! ```
//!
//! Invariants:
//! 1. **At one place.** Locks are kept until a commit has its place, and packets are redone one after the other. So
//!    both sums are those of the tables after the same transaction, whatever runs beside it: definitions, which lock
//!    their tables, too. No place has to be agreed on before, and no redo waits.
//! 2. **Of keys and values alone.** A sum depends on keys and values (`RangeSum`), and on nothing of how a replica has
//!    come to them: forms of storage, checkpoints, copies, NaNs of other processors.
//! 3. **Nothing is thrown away on one word.** A difference counts once the same replica differs in the same range again, at
//!    another place. A replica is the same only if it says so: silence is told as silence.
//! 4. **By the log's primary, in its time (C2).** An answer counts only for the comparison that it names, only in the
//!    epoch in which its primary began to lead, and only from a standby in the life that the configuration has, or from
//!    a learner.
//! 5. **Gentle.** The transaction ends within [`RANGE_WITHIN`](summing), waits at most [`LOCK_WITHIN`](summing) for a lock and
//!    reads a bounded number of rows. In the background it takes one part in a hundred of a thread's time.
//! 6. **A wrong redo is no vote.** Standbys that agree against the primary may all have redone a packet in the same wrong way,
//!    and clients have the primary's answers. So an outvoted primary leads on, and nothing is replaced: an operator chooses.
//!
//! What becomes of a difference, otherwise: at the end of the walk the replica that differs gets out of sync and takes a new
//! copy ([`Event::Differs`](crate::protocol::replication::Event::Differs)).
//!
//! - `comparison`: the row in the log. `message`: what a replica answers. `answering`: how it finds it.
//! - `walk`: a comparison of a whole partition, range by range. `summing`: how a range is summed, and answered.
//!   `stepping`: how rows are passed over if their locks cannot be had.
//! - `verdict`: what a second comparison says. `difference`: what is done about a difference.
//! - `report`: what an operator is shown. `comparisons`: the thread of a node, and what it shares.
//!
//! Not compared: what is in no table (files of the log, pages that no row is in), and replicas without a standby's redo.

mod answering;
mod comparison;
mod comparisons;
mod difference;
mod message;
mod report;
mod stepping;
mod summing;
mod verdict;
mod walk;

pub use answering::answer_comparisons;
pub use comparisons::Comparisons;
pub use message::Compared;
pub use report::{ComparisonReport, ComparisonStatus, Difference, LastComparison, PartitionComparison};
