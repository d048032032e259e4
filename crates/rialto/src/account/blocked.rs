//! [`Blocked`]: what a thread says before it sleeps for something that another transaction has to give back. An executor of
//! a transaction server then lets another one run; to other threads it means nothing.
//!
//! Every such wait that is not bounded by a few milliseconds has to say so, and only waits at which the thread holds no latch may: an
//! executor that goes on waits for its turn, and the thread that has the turn must need nothing that it holds, unless it waits for that in a wait that
//! says so, too. A commit that has waited goes on without the turn, and waits for it when it has ended (`Context::leave_turn`): others
//! do not wait for the body that has the turn, as they would for what the commit holds.
//!
//! **A thread that has lock tables out keeps its turn** (L12 in `isolate/local/`). It has some only while it runs a body whose transaction
//! has an executor lease (`OwnLease`), and then it waits for no other transaction, but for the log or a checkpoint at most. These
//! need no turn: they wait for commits, and none waits for its turn while it keeps a gate, a place that is not applied, or the log's room.

use std::cell::Cell;
use std::sync::Arc;

/// Who lets others run.
pub(crate) trait Turns: Send + Sync {
    /// The calling executor is about to block.
    fn leave(&self);
    /// What it waited for is there: returns when it is its turn.
    fn come_back(&self);
}

thread_local! {
    /// None: the thread is no executor, or is blocked already. So it is when this is gone, since the thread ends.
    static TURNS: Cell<Option<Arc<dyn Turns>>> = const { Cell::new(None) };
    /// Whether the thread has lock tables out.
    static KEEPS_ITS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread keeps its turn while it is blocked, or does no more.
pub(crate) fn keep_turn(keeps: bool) {
    KEEPS_ITS_TURN.set(keeps);
}

fn set_turns(turns: Option<Arc<dyn Turns>>) {
    // Gone, it is none.
    let _ = TURNS.try_with(|mine| mine.set(turns));
}

/// Makes the calling thread an executor, until what this gives is dropped. What the thread does afterwards, such as to close the
/// database with the last handle, is nobody's turn.
#[must_use = "the thread is an executor only as long as this lives"]
pub(crate) fn take_turns(turns: Arc<dyn Turns>) -> TakesTurns {
    set_turns(Some(turns));
    TakesTurns
}

/// The calling thread is an executor.
pub(crate) struct TakesTurns;

impl Drop for TakesTurns {
    fn drop(&mut self) {
        set_turns(None);
    }
}

/// The calling thread is blocked until this is dropped. What it waits for meanwhile is part of the same wait.
pub(crate) struct Blocked(Option<Arc<dyn Turns>>);

impl Blocked {
    /// Whether the thread has a turn, which [`Blocked::enter`] would give to another executor.
    pub fn would_give_turn_away() -> bool {
        TURNS
            .try_with(|mine| {
                let turns = mine.take();
                let has_turn = turns.is_some();
                mine.set(turns);
                has_turn
            })
            .unwrap_or_default()
    }

    /// Lets another executor run, unless the thread has lock tables out.
    pub fn enter() -> Blocked {
        if KEEPS_ITS_TURN.get() {
            return Blocked(None);
        }
        let turns = TURNS.try_with(Cell::take).unwrap_or_default();
        if let Some(turns) = &turns {
            turns.leave();
        }
        Blocked(turns)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.come_back();
            set_turns(Some(turns));
        }
    }
}
