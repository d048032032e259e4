//! Parts of a transaction: the actions of one phase that run at the same time, each part in a context of its own, until
//! they meet.
//!
//! A part is a **view of one transaction**. Its own context has only what it needs to run beside the other parts: a
//! lock owner, the packet and write set of this phase, scratch memory. Everything else is the transaction's and exists
//! once:
//! - *Choices* of actions (durability, waits, lock policy, whether to write) are noted with the action's position. When
//!   the parts meet, the choices are applied to the transaction in the flow's order ([`ActionChoice`]). The same is
//!   done where one thread runs the actions in another order than the flow's. A choice that changes whether the
//!   transaction may write also applies to the actions behind it in the flow, so it needs the whole transaction.
//! - *Cancellation* is one flag. A [`Canceller`](super::Canceller) made in any part sets it.
//! - *Time limits* are one deadline. A doomed part dooms the transaction.
//! - *Room for writes* is divided: the shares of all parts add up to what the transaction has left.
//! - *Packets* that go into the log are the transactions': one for each transaction that writes, reserved before the
//!   transaction is split, also for the part that runs in the transaction's own context. What the other parts write is
//!   added to it when they meet. Each other part has a packet that is kept for its context (`Core::part_packets`). So
//!   no part waits for a packet, and parts that wait for locks keep no packet from a transaction that they wait for.
//! - *Tables* are locked by the transaction before it is split, so their versions stay the same. Only plain closures
//!   change definitions. A phase with a closure, and every phase after a definition has changed, runs whole.
//! - *Keys of unique indexes* are claimed by their locks. Two parts never hold the same key, and a part never holds a
//!   key that the transaction claimed in an earlier phase (L14 in `isolate/local/mod.rs`).
//!
//! **The whole transaction does what a part cannot do alone.** If two parts want one unique key, or a part has used up
//! its share of room, the part is doomed, whatever its body does with the error ([`Context::need_whole`]). The call
//! then runs again with every phase whole, one action after the other, as on any other engine.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::cancellation::Cancellation;
use super::context::{Choices, Context};
use super::options::{CommitWaits, LockPolicy};
use super::transaction::Transaction;
use crate::commit::write_set::{ENTRIES_PER_PACKET, Mark};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::log::Durability;
use crate::unlikely::unlikely;

/// A choice that an action makes for its transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ActionChoice {
    LockPolicy(LockPolicy),
    Durability(Durability),
    Waits(CommitWaits),
    /// See [`Transaction::choose`].
    All {
        durability: Durability,
        lock_timeout: Duration,
        read_only: bool,
        waits: CommitWaits,
    },
}

/// What a context knows of its transaction while that runs in parts.
#[derive(Default)]
pub(crate) struct PartView {
    is_on: bool,
    /// The position of the running action in its phase.
    action: u16,
    /// The choices of this part's actions.
    chosen: SmallVec<[(u16, ActionChoice); 2]>,
    /// The transaction's choices before the phase. While this is set, and in a part, choices are noted.
    before: Option<(Choices, CommitWaits)>,
    needs_whole: bool,
    /// The context's own cancellation flag, while the part uses the transaction's.
    flag: Option<Arc<Cancellation>>,
}

impl PartView {
    /// Whether the transaction runs in parts.
    pub fn is_part(&self) -> bool {
        self.is_on
    }

    /// Whether actions of the phase run in another order than the flow's.
    #[inline]
    pub fn is_out_of_order(&self) -> bool {
        self.is_on || self.before.is_some()
    }
}

/// A part other than the one that runs in the transaction's own context. The transaction absorbs it; a part that is
/// dropped is rolled back.
pub(crate) struct PartTransaction(Transaction<'static>);

impl PartTransaction {
    /// The handle for the part's bodies.
    pub fn transaction(&mut self) -> &mut Transaction<'static> {
        &mut self.0
    }
}

impl Drop for PartTransaction {
    fn drop(&mut self) {
        let Some(mut context) = self.0.context.take() else { return };
        context.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
        context.end_part();
    }
}

impl Transaction<'_> {
    /// Gives up the executor lease, so that the transaction may wait.
    pub(crate) fn return_lease(&mut self) {
        let context = self.context();
        context.core.locks.return_lease(&mut context.owner);
    }

    /// The owner of its locks; for a part the part's own.
    pub(crate) fn lock_owner(&mut self) -> u16 {
        self.context().owner.id()
    }

    /// Splits the transaction into parts, each of which `writes` or only reads, and returns all but the first, which
    /// runs in the transaction's own context. If contexts for parts run out there are fewer parts; the first one does
    /// the remaining actions. If only the first part is left, or if a part writes and there is no packet for the
    /// transaction, there are no parts: the transaction runs the phase whole, and waits for a packet as usual. The
    /// transaction has locked its tables and given up its executor lease. A wait for a part's lock is a wait for the
    /// transaction.
    pub(crate) fn split(&mut self, writes: &[bool]) -> SmallVec<[PartTransaction; 4]> {
        let whole = self.context();
        let mut others = SmallVec::new();
        if !writes.contains(&true) || whole.reserve_packet().is_ok() {
            others.extend(writes[1..].iter().map_while(|&writes| whole.begin_part(writes).ok()));
        }
        if others.is_empty() {
            whole.core.locks.end_parts(&mut whole.owner);
            return others;
        }
        let parts = if fault_injection::is_on("parts-have-all-the-room") { 1 } else { others.len() + 1 };
        let (written, entries) = (whole.packet_bytes().len(), whole.writes.entry_bytes());
        let share = whole.room.saturating_sub(written) / parts;
        let share_of_entries = whole.room_for_entries.saturating_sub(entries) / parts;
        others.iter_mut().for_each(|part: &mut PartTransaction| {
            let part = part.0.context();
            (part.room, part.room_for_entries) = (share, share_of_entries);
        });
        (whole.room, whole.room_for_entries) = (written + share, entries + share_of_entries);
        let before = Some((whole.choices, whole.waits));
        whole.view = PartView { is_on: true, before, ..PartView::default() };
        others
    }

    /// Called before the actions of a phase run one after the other in another order than the flow's.
    /// [`Transaction::end_split`] ends this, as it ends parts.
    pub(crate) fn begin_turns(&mut self) {
        let whole = self.context();
        whole.view = PartView { before: Some((whole.choices, whole.waits)), ..PartView::default() };
    }

    /// Ends the turns, if there are any, after a panic of the running action.
    pub(crate) fn end_turns_early(&mut self) {
        let view = &self.context().view;
        if view.is_out_of_order() {
            let action = view.action;
            self.end_split(Some(action));
        }
    }

    /// Notes that the action at this position of its phase begins.
    pub(crate) fn begin_action(&mut self, position: u16) {
        self.context().view.action = position;
    }

    /// Whether an action of this part needs the whole transaction.
    pub(crate) fn needs_whole(&mut self) -> bool {
        self.context().view.needs_whole
    }

    /// Takes over everything that a part has done and holds.
    pub(crate) fn absorb(&mut self, mut part: PartTransaction) {
        let mut part = part.0.context.take().expect("a part is open until it is absorbed");
        let whole = self.context();
        if !fault_injection::is_on("choices-of-parts-are-lost") {
            whole.view.chosen.append(&mut part.view.chosen);
        }
        whole.page_access.end_part(&part.page_access);
        whole.absorb(&mut part);
        let let_go = fault_injection::is_on("part-locks-let-go");
        if let_go || part.core.locks.hand_over(&mut part.owner, &mut whole.owner) {
            part.end_part();
        } else {
            part.packet = None;
            whole.kept_parts.push(part);
        }
    }

    /// Rolls a part back. The transaction's error depends on what the part has read (I3).
    pub(crate) fn forget(&mut self, mut part: PartTransaction) {
        let (whole, part) = (self.context(), part.0.context());
        if !fault_injection::is_on("parts-that-miss-are-errors") {
            whole.page_access.end_part(&part.page_access);
        }
        whole.view.chosen.append(&mut part.view.chosen);
        whole.depend(part.depends);
    }

    /// Ends the split, after all parts were absorbed or forgotten, or ends the turns: applies the actions' choices in
    /// the flow's order. Choices behind the position of a failed action do not count, as if those actions had not run.
    pub(crate) fn end_split(&mut self, failed_at: Option<u16>) {
        let whole = self.context();
        let PartView { mut chosen, before, .. } = whole.end_view();
        whole.give_up_reserved_packet();
        if chosen.is_empty() {
            return;
        }
        if let Some((choices, waits)) = before {
            (whole.choices, whole.waits) = (choices, waits);
        }
        chosen.sort_by_key(|(action, _)| *action);
        let ran = chosen.into_iter().filter(|(action, _)| failed_at.is_none_or(|failed| *action <= failed));
        ran.for_each(|(_, choice)| whole.take_choice(choice));
    }
}

impl Context {
    /// Begins a part of this transaction, with its packet if it writes. The part uses tables under the transaction's
    /// locks.
    fn begin_part(&mut self, writes: bool) -> Result<PartTransaction> {
        let core = self.lease.core();
        let mut part = core.part_contexts.lend(core)?;
        if let Err(error) = part.begin_as_part(self) {
            core.part_contexts.give_back(part);
            return Err(error);
        }
        let shared = match fault_injection::is_on("parts-hear-no-cancel") {
            true => Cancellation::new(),
            false => self.cancellation.clone(),
        };
        let flag = std::mem::replace(&mut part.cancellation, shared);
        part.view = PartView { is_on: true, flag: Some(flag), ..PartView::default() };
        self.core.locks.follow(&mut part.owner, &mut self.owner);
        if unlikely(core.has_stages()) {
            part.page_access.begin_part_of(&self.page_access);
        }
        if writes {
            part.take_part_packet();
        }
        Ok(PartTransaction(Transaction::of(part)))
    }

    /// Ends a part that was rolled back, whose transaction has ended, or that has handed over its locks. Returns its
    /// context to the pool.
    pub(super) fn end_part(mut self: Box<Self>) {
        self.packet = None;
        // Its number is not one of those that have accounts.
        self.page_access.take_counts();
        // When another thread comes to release it, its transaction is over.
        self.core.locks.part_from_leader(&mut self.owner);
        self.finish();
        let view = std::mem::take(&mut self.view);
        if let Some(flag) = view.flag {
            self.cancellation = flag;
        }
        self.give_back();
    }

    /// Forgets the view, and gives the context its whole room again.
    pub fn end_view(&mut self) -> PartView {
        self.room = self.core.defaults.write_set_bytes_max;
        self.room_for_entries = ENTRIES_PER_PACKET * self.room;
        self.core.locks.end_parts(&mut self.owner);
        std::mem::take(&mut self.view)
    }

    /// Makes a choice: for good, or noted until the end of the phase where its actions run out of the flow's order.
    pub(super) fn choose(&mut self, choice: ActionChoice) {
        // What a fetch stage chooses is dropped, and it waits for no lock.
        if self.fetches() {
            return;
        }
        if self.view.is_out_of_order() {
            self.view.chosen.push((self.view.action, choice));
        }
        self.take_choice(choice);
    }

    /// A choice of whether the transaction may write binds the actions behind it in the flow. Where these may have run
    /// before it, or run beside it, only the whole transaction can make it: then this is an error. An action that may
    /// write locks what it reads.
    pub(super) fn check_read_only_choice(&mut self, read_only: bool) -> Result<()> {
        if !read_only && self.reads.is_active() {
            self.read_locked()?;
        }
        if !self.view.is_out_of_order() || read_only == self.scope.is_read_only_after() {
            return Ok(());
        }
        Err(self.need_whole("an action has chosen whether its transaction may write".to_owned()))
    }

    fn take_choice(&mut self, choice: ActionChoice) {
        match choice {
            ActionChoice::LockPolicy(policy) => self.choices.lock_wait = policy,
            ActionChoice::Durability(durability) => self.choices.durability = durability,
            ActionChoice::Waits(waits) => self.set_waits(waits),
            ActionChoice::All { durability, lock_timeout, read_only, waits } => {
                (self.choices.durability, self.choices.lock_timeout) = (durability, lock_timeout);
                self.set_waits(waits);
                self.set_read_only(read_only);
            }
        }
    }

    /// The error of a write set that has become too long. A part, which has only a share of the room, needs the whole
    /// transaction instead.
    #[cold]
    pub(super) fn too_large(&mut self, length: usize) -> Error {
        self.above(length, self.core.defaults.write_set_bytes_max)
    }

    /// The same for a write set whose index entries have come to take so many bytes.
    #[cold]
    pub(super) fn too_many_entries(&mut self, length: usize) -> Error {
        self.above(length, ENTRIES_PER_PACKET * self.core.defaults.write_set_bytes_max)
    }

    fn above(&mut self, length: usize, limit: usize) -> Error {
        match self.view.is_on {
            true => self.need_whole("its part of a phase has used up its share of the write set".to_owned()),
            false => Error::WriteSetTooLarge { length, limit },
        }
    }

    /// Dooms a part: the transaction has to run again whole, in the flow's order.
    #[cold]
    pub(super) fn need_whole(&mut self, why: String) -> Error {
        debug_assert!(self.view.is_out_of_order(), "only a part needs the whole: {why}");
        self.view.needs_whole = true;
        let error = Error::Deadlock { waiting_for: format!("nothing: {why}; it runs again as a whole") };
        self.doom(error.clone());
        error
    }

    /// Takes over what a part has read, written and locked. The part wrote other rows than this context.
    fn absorb(&mut self, part: &mut Context) {
        self.depend(part.depends);
        self.share_doom(part);
        if !self.forgets_parts() {
            self.side.absorb(&part.side);
        }
        if !part.writes.is_empty() {
            self.writing = true;
            let Context { writes, tables, packet: Some(packet), .. } = self else {
                unreachable!("it was reserved before the split")
            };
            let base = packet.bytes().len();
            packet.bytes_mut().extend_from_slice(part.packet_bytes());
            let slot_of = |slot| {
                let known =
                    tables.find(part.tables.id(slot)).expect("the transaction has its parts' tables locked");
                let is_same = std::ptr::eq(tables.at(known), part.tables.at(slot));
                assert!(is_same, "a table stays as it is while the transaction has it locked");
                known
            };
            writes.absorb(&mut part.writes, base as u32, slot_of, packet.bytes());
        }
    }

    fn forgets_parts(&self) -> bool {
        #[cfg(test)]
        return self.core.contexts.forgets_parts.load(std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(test))]
        false
    }
}

#[cfg(test)]
mod tests {
    use super::ENTRIES_PER_PACKET;
    use crate::io::{MemoryDisk, Moment};
    use crate::txn::runs::Runs;
    use crate::{Checkpointing, Database, Error, Executors, Options, TxOptions};

    fn open(threads: usize, options: Options) -> Database {
        let checkpoint = Checkpointing::None;
        let engine = Executors { threads, ..Executors::default().handing_over() }.into();
        let options = Options { memory_bytes: 64 << 20, checkpoint, engine, ..options };
        Database::open_on(MemoryDisk::new(), options).unwrap()
    }

    /// It does not matter what the body did with the error: a victim ends without effect.
    #[test]
    fn a_part_that_is_a_victim_dooms_its_transaction() {
        let db = open(2, Options::default());
        let mut transaction = db.begin().unwrap();
        let mut part = transaction.split(&[true; 2]).pop().unwrap();
        let victim = Error::Deadlock { waiting_for: "a row".to_owned() };
        part.transaction().context().doom(victim.clone());
        transaction.absorb(part);
        transaction.end_split(None);
        assert_eq!(transaction.commit(), Err(victim));
    }

    /// The index entries of all parts together may take as much as those of one transaction.
    #[test]
    fn parts_share_the_room_for_index_entries() {
        let db = open(3, Options { write_set_bytes_max: 3_000, ..Options::default() });
        let mut transaction = db.begin().unwrap();
        let all = ENTRIES_PER_PACKET * 3_000;
        let mut parts = transaction.split(&[true; 3]);
        let rooms = parts.iter_mut().map(|part| part.transaction().context().room_for_entries);
        assert!(rooms.eq([all / 3; 2]));
        assert_eq!(transaction.context().room_for_entries, all / 3);
        drop(parts);
        transaction.end_split(None);
        assert_eq!(transaction.context().room_for_entries, all);
    }

    /// Parts have a pool of contexts of their own, and return to it when they are dropped.
    #[test]
    fn parts_take_no_contexts_of_transactions() {
        let db = open(3, Options { transactions_max: 2, ..Options::default() });
        for _ in 0..10 {
            let mut both = [db.begin().unwrap(), db.begin().unwrap()];
            assert_eq!(both[0].split(&[true; 3]).len(), 2);
            let parts = both[1].split(&[true; 3]);
            assert_eq!((parts.len(), db.metrics().aborted), (2, 0));
            drop(parts);
            both.iter_mut().for_each(|transaction| transaction.end_split(None));
            both.into_iter().for_each(|transaction| transaction.commit().unwrap());
        }
    }

    /// This keeps a transaction that was a victim from having the youngest parts again.
    #[test]
    fn a_part_is_as_old_as_the_first_run_of_its_transaction() {
        let db = open(2, Options::default());
        let (core, options, mut runs) = (db.core(), TxOptions::default(), Runs::new());
        let first = runs.begin(core, &options).unwrap().context().began;
        while Moment::now() <= first {}
        let mut again = runs.begin(core, &options).unwrap();
        assert!(again.context().began > first);
        let mut parts = again.split(&[true; 2]);
        assert_eq!(parts[0].transaction().context().owner.started(), first);
        drop(parts);
        again.end_split(None);
        again.commit().unwrap();
    }
}
