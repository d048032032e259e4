//! The states of a commit. The step from each state to the next consumes its value, so that no step is left out or
//! comes too early.
//!
//! ```text
//!  the open transaction ─▶ Reserved ─▶ Placed ─▶ Applied ─▶ locks released, reply sent
//!                  may fail            cannot fail (I10)
//! ```
//!
//! A prepared transaction (`txn/prepared`) is between the open transaction and `Reserved`: it has reserved room in the
//! log, keeps its locks, has passed no barrier, and gets its place with its decision.

use crate::error::Error;
use crate::ids::Lsn;

/// All that can fail is done: the log has room for the commit's packet, and the commit has passed the barriers of
/// checkpoints. It counts as a commit in progress (I5).
#[must_use = "a commit in progress keeps checkpoints waiting until it has its place"]
pub(crate) struct Reserved {
    /// Whether it owes something to a sweep, or has definitions, until it is applied.
    pub owes: bool,
}

/// Why a commit gets no place: nothing of it is kept.
#[derive(Debug)]
pub(crate) enum NoPlace {
    /// The transaction touched both what a black/white checkpoint has copied and what it has not. It has to run again.
    Straddles,
    /// The commit has failed.
    Error(Error),
}

impl From<Error> for NoPlace {
    fn from(error: Error) -> NoPlace {
        NoPlace::Error(error)
    }
}

/// The commit has its place in the log, which cannot be taken back: it is applied, or the process ends.
#[must_use = "a commit that has its place is applied"]
pub(crate) struct Placed {
    lsn: Lsn,
    owes: bool,
    is_alone: bool,
    whole: WholeOrNothing,
}

/// The commit's writes are in the tables, so its locks may be released (I2).
#[must_use = "the locks of a commit that was applied go"]
pub(crate) struct Applied {
    lsn: Lsn,
}

impl Reserved {
    /// The commit has taken this place.
    #[inline(always)]
    pub fn at(self, lsn: Lsn) -> Placed {
        Placed { lsn, owes: self.owes, is_alone: false, whole: WholeOrNothing }
    }
}

impl Placed {
    /// For a commit that takes its place and makes it durable at level 1 in one step, with what it has reserved, if it
    /// can.
    #[inline(always)]
    pub fn alone(place: impl FnOnce() -> Option<Lsn>) -> Option<Placed> {
        let whole = WholeOrNothing;
        match place() {
            Some(lsn) => Some(Placed { lsn, owes: false, is_alone: true, whole }),
            None => {
                whole.keep();
                None
            }
        }
    }

    /// Whether it owes something to a sweep, or has definitions, until it is applied.
    #[inline(always)]
    pub fn owes(&self) -> bool {
        self.owes
    }

    /// Whether only its own context has seen its packet.
    #[inline(always)]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Applies it.
    #[inline(always)]
    pub fn apply(self, apply: impl FnOnce(Lsn)) -> Applied {
        apply(self.lsn);
        self.whole.keep();
        Applied { lsn: self.lsn }
    }
}

impl Applied {
    /// The commit's place, for the answer.
    #[inline(always)]
    pub fn lsn(self) -> Lsn {
        self.lsn
    }
}

/// Held while a lone commit takes its place and while a write set is applied. A panic there (a bug of ours: nothing in
/// it can fail, I10) leaves a place without a packet, or tables that no log prefix describes. These must be neither
/// read nor checkpointed: the process ends, and recovery restores a consistent state.
struct WholeOrNothing;

impl WholeOrNothing {
    #[inline(always)]
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for WholeOrNothing {
    fn drop(&mut self) {
        eprintln!(
            "rialto: a panic while a commit was applied; ending the process, reopen the database to recover"
        );
        std::process::abort();
    }
}
