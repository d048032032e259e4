//! The end of a transaction, with its place or without effect: everything that it holds goes back.

use super::calls::NumberSource;
use super::context::Context;
use super::releases::DeferredRelease;
use crate::account::wait_guard::WaitGuard;
use crate::commit::write_set::Mark;
use crate::fault_injection;
use crate::isolate::Owner;
use crate::unlikely::unlikely;

impl Context {
    /// Takes back everything that the transaction has written and defined.
    pub(super) fn drop_writes(&mut self) {
        if let Some(ddl) = self.ddl.take() {
            self.core.locks.return_lease(&mut self.owner);
            // The index entries of rows in dropped tables need not be taken back one by one, but it does no harm.
            self.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
            ddl.discard(self);
        } else {
            self.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
        }
    }

    /// Ends the transaction without effect.
    pub fn abort(&mut self) {
        if unlikely(self.view.is_out_of_order()) {
            self.end_view();
        }
        self.drop_writes();
        if self.open && !self.reads.runs_again() && !self.ends_a_stage() {
            self.core.commits.accounts.aborted(self.number, self.choices.procedure);
        }
        // `writing` does not tell here: a panic in a shared action leaves it as it is in the action.
        self.packet = None;
        self.finish_unapplied();
        if unlikely(self.blocked.is_some()) {
            self.await_turn();
        }
    }

    /// Ends a run that has only asked for locks. It will run again, and does not count as an abort.
    pub(super) fn end_undone(&mut self) {
        debug_assert!(self.writes.is_empty() && self.ddl.is_none());
        self.packet = None;
        self.finish_unapplied();
    }

    #[inline(never)]
    pub(super) fn finish_unapplied(&mut self) {
        self.drop_packet();
        self.finish();
    }

    /// Gives back the packet of a transaction without a place.
    #[inline(always)]
    pub(super) fn drop_packet(&mut self) {
        if unlikely(self.writing) {
            self.packet = None;
        }
    }

    /// Releases the locks and everything else that the transaction held. Its packet is gone already, or empty.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        debug_assert!(self.packet_bytes().is_empty());
        self.writing = false;
        self.writes.clear();
        self.savepoints.clear();
        if unlikely(!self.prefetched.is_empty()) {
            self.prefetched.clear();
        }
        if unlikely(self.call_from != 0 || !matches!(self.numbers, NumberSource::Next)) {
            (self.call_from, self.numbers) = (0, NumberSource::Next);
        }
        if unlikely(!self.kept_parts.is_empty()) {
            self.end_kept_parts();
        }
        let touched_pages = self.page_access.counts().accesses > 0 || self.statement.is_some();
        if unlikely(touched_pages) {
            self.end_statement();
        }
        if std::mem::take(&mut self.open) {
            if unlikely(self.owner.holds_at_executors() && self.is_held_up()) {
                self.note_waits(self.core.locks.waited_ns(&self.owner));
                self.deferred = Some(DeferredRelease::defer(self.core.clone(), self.owner.take()));
            } else {
                self.release_locks();
            }
        }
        // One that has touched no page may have waited behind one that has.
        if unlikely(touched_pages || self.core.has_stages()) {
            self.page_access.forget_disk_waits();
            // A run whose stage was not ended: it begins again.
            if !fault_injection::is_on("runs-leave-their-page-mode") {
                drop(self.page_access.end());
            }
        }
        if unlikely(std::mem::take(&mut self.forget_tables)) {
            self.tables.clear();
        }
    }

    /// Ends the kept parts. They may wait for lock tables, so the transaction's own lease ends before (L12).
    #[cold]
    fn end_kept_parts(&mut self) {
        self.core.locks.end_lease(&mut self.owner);
        std::mem::take(&mut self.kept_parts).into_iter().for_each(Context::end_part);
    }

    /// Releases what the transaction holds at executors, if that needs no wait for a lock table, or a short one.
    /// Returns whether anything is left. It does not wait beside an executor lease of its thread, and not for long
    /// (L15); not at all if the transaction was refused a lock, because its caller has to be told in time. Nor does a
    /// thread wait that would give its turn away for the wait: it would get the turn back only when the next body has
    /// ended.
    fn is_held_up(&mut self) -> bool {
        let Context { core, owner, .. } = self;
        if core.locks.is_beside_own_lease(owner.id()) {
            return true;
        }
        !core.locks.release_at_once(owner)
            && (self.was_refused || WaitGuard::would_give_turn_away() || !core.locks.release_in_time(owner))
    }

    /// Returns the context to its pool.
    pub(super) fn give_back(self: Box<Self>) {
        let lease = self.lease.clone();
        let pool = if self.is_for_parts { &lease.part_contexts } else { &lease.contexts };
        pool.give_back(self);
    }

    /// As [`Context::give_back`], with its lock slot, which a deferred release had.
    pub(super) fn get_slot_back(mut self: Box<Self>, owner: Owner) {
        self.owner = owner;
        self.give_back();
    }

    #[inline(always)]
    fn release_locks(&mut self) {
        let Context { core, owner, .. } = self;
        let waited_ns = core.locks.finish(owner, &core.storage);
        self.note_waits(waited_ns);
    }

    /// How long the transaction has waited for locks so far.
    pub(super) fn waited_so_far_ns(&self) -> u64 {
        self.core.locks.waited_ns(&self.owner) - self.waited_before_ns
    }

    /// Notes how long the transaction has waited for locks: its slot's waits have grown to `waited_ns` in all.
    #[inline(always)]
    fn note_waits(&mut self, waited_ns: u64) {
        self.lock_wait_ns = waited_ns - std::mem::replace(&mut self.waited_before_ns, waited_ns);
    }
}
