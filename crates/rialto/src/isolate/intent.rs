//! The thin form of table intentions: a cell in the owner's slot, beside a word that says whether a transaction wants
//! a table as a whole.
//!
//! Invariant **L10**: an intention in a cell, idle or not, and a granted S, SIX or X of another owner on the same
//! table never exist together. An owner enters its intention as pending, reads the table's word, and confirms the
//! intention only if the word is 0. A request for the whole table raises the word first. Then, under the latch of the
//! table's head, it moves every confirmed intention into the head and strikes out every pending and every idle one.
//! Whichever of the two comes second sees the other.
//!
//! Intentions are sticky: a released one stays in its cell as idle, and the slot's next transaction takes it up again
//! by one exchange, without reading the table's word. An idle intention holds nothing and makes no request wait.
//!
//! Invariant **L13**: under a [lease](super::local) the executors hold the intentions, permanently: an owner that has a
//! lock table out, and *then* reads the table's word as 0, enters none. A request for the whole table raises the word,
//! waits until each executor's lock table has been in once, and only then moves intentions into the head. So either the
//! owner of the lease sees the word raised, or the request waits until the lease is over or its intentions are in their
//! cells. They are entered there before the lock tables are put back.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use super::central::head::{Head, Heads};
use super::manager::{LockManager, WokenOwners};
use super::mode::{Acquired, LockMode};
use super::name::{HeadName, LockTarget};
use super::slot::{HeldTable, Lent, Owner, TableForm};
use super::sync::{AtomicU32, AtomicU64};
use super::wait::{LockError, Wait};
use crate::ids::TableId;

/// A power of two. A table's intention lies in the cell of its number's low bits. If two tables of one transaction
/// share a cell, the second intention goes to a head.
const CELLS: usize = 16;
/// A power of two; tables whose numbers agree in the low bits share a word.
const WANTED_WORDS: usize = 64;

/// What a cell holds beside the table's number.
const EMPTY: u64 = 0;
const SHARED: u64 = 1;
const EXCLUSIVE: u64 = 2;
/// Entered and not confirmed, so not held yet.
const PENDING: u64 = 3;
/// Intent shared is held, intent exclusive is not confirmed.
const RAISING: u64 = 4;
/// Released: held by no transaction, for the slot's next one to take up.
const IDLE: u64 = 5;
const STATE_BITS: u32 = 3;
const STATE: u64 = (1 << STATE_BITS) - 1;

fn entry(table: TableId, state: u64) -> u64 {
    u64::from(table.0) << STATE_BITS | state
}

/// An owner's thin intentions.
#[derive(Debug, Default)]
pub(super) struct Intents {
    cells: [AtomicU64; CELLS],
}

impl Intents {
    #[inline]
    fn cell_of(table: TableId) -> usize {
        table.0 as usize % CELLS
    }

    /// Changes a cell from one entry to another; false: another thread moved the intention into the head, or struck
    /// it out.
    #[inline]
    fn change(&self, at: usize, from: u64, to: u64) -> bool {
        self.cells[at].compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Leaves an intention idle; false: it is in the head.
    #[inline]
    pub(super) fn leave_idle(&self, held: &HeldTable) -> bool {
        let table = held.table;
        self.change(Self::cell_of(table), entry(table, state_of(held.mode)), entry(table, IDLE))
    }

    /// Moves an intention for `table`, if there is one, into the table's head. The caller holds the head's latch.
    fn inflate(&self, owner: u16, table: TableId, head: &mut Head) {
        let cell = &self.cells[Self::cell_of(table)];
        let mut found = cell.load(Ordering::SeqCst);
        while found != EMPTY && found >> STATE_BITS == u64::from(table.0) {
            match cell.compare_exchange(found, EMPTY, Ordering::SeqCst, Ordering::SeqCst) {
                Err(now) => found = now,
                Ok(_) => {
                    match found & STATE {
                        SHARED | RAISING => head.adopt(owner, LockMode::IntentShared),
                        EXCLUSIVE => head.adopt(owner, LockMode::IntentExclusive),
                        _ => {}
                    }
                    break;
                }
            }
        }
    }
}

/// For each table, how many requests for the whole table are granted or wait.
#[derive(Debug)]
pub(super) struct WantedTables {
    words: Box<[CachePadded<AtomicU32>]>,
}

impl Default for WantedTables {
    fn default() -> WantedTables {
        WantedTables { words: (0..WANTED_WORDS).map(|_| CachePadded::default()).collect() }
    }
}

impl WantedTables {
    fn word(&self, table: TableId) -> &AtomicU32 {
        &self.words[table.0 as usize % WANTED_WORDS]
    }
}

/// The state in the cell of a confirmed intention.
fn state_of(mode: LockMode) -> u64 {
    if mode == LockMode::IntentShared { SHARED } else { EXCLUSIVE }
}

/// Whether a cell is free for another intention.
fn is_free(found: u64) -> bool {
    found == EMPTY || found & STATE == IDLE
}

impl Lent<'_> {
    /// As [`LockManager::intend_again`], for an intention of an owner without a lease.
    #[inline(always)]
    pub fn intend_again(self, owner: &mut Owner, table: TableId, mode: LockMode) -> bool {
        debug_assert!(!mode.is_whole() && !owner.body.lease.is_on());
        let (intents, at) = (&self.0.intents, Intents::cell_of(table));
        let found = intents.cells[at].load(Ordering::Relaxed);
        if found == entry(table, EXCLUSIVE) || found == entry(table, state_of(mode)) {
            return true;
        }
        let taken = found == entry(table, IDLE) && intents.change(at, found, entry(table, state_of(mode)));
        if taken {
            owner.body.tables.push(HeldTable { table, mode, form: TableForm::Intent, wanted: false });
        }
        taken
    }
}

impl LockManager {
    /// Uses a table under a lease, whose executors hold the intention. False, with nothing done, if a request wants
    /// the whole table, or if the cell has another table's intention: the intention is to be entered as without a
    /// lease.
    #[inline]
    pub fn use_under_lease(&self, owner: &mut Owner, table: TableId, mode: LockMode) -> bool {
        debug_assert!(!mode.is_whole());
        if !owner.body.lease.is_on() {
            return false;
        }
        let mut free = true;
        for held in &mut owner.body.tables {
            if held.table == table {
                if held.form == TableForm::Leased {
                    held.mode = held.mode.join(mode);
                    return true;
                }
                return held.mode.join(mode) == held.mode;
            }
            free &= held.form != TableForm::Leased || Intents::cell_of(held.table) != Intents::cell_of(table);
        }
        let cell = &self.slot(owner).intents.cells[Intents::cell_of(table)];
        if !free
            || !is_free(cell.load(Ordering::Relaxed))
            || self.wanted.word(table).load(Ordering::SeqCst) != 0
        {
            return false;
        }
        owner.body.tables.push(HeldTable { table, mode, form: TableForm::Leased, wanted: false });
        true
    }

    /// Enters the intentions that the executors of a lease have held so far. The lock tables are still out (L13).
    pub(super) fn enter_intents_of_lease(&self, owner: &mut Owner) {
        let intents = &self.slots[usize::from(owner.body.id)].intents;
        for held in owner.body.tables.iter_mut().filter(|held| held.form == TableForm::Leased) {
            let (at, entry) = (Intents::cell_of(held.table), entry(held.table, state_of(held.mode)));
            // Other threads only strike out idle intentions meanwhile.
            let before = intents.cells[at].swap(entry, Ordering::SeqCst);
            debug_assert!(is_free(before), "the cell was free, and only its owner fills it");
            held.form = TableForm::Intent;
        }
    }

    /// Waits until each executor's lock table has been in once since a table's word was raised (L13).
    fn outlast_leases(&self, owner: &Owner, wait: &Wait<'_>) -> Result<(), LockError> {
        debug_assert!(!owner.body.lease.is_on(), "it would wait for itself");
        self.pass_executors(owner, wait)
    }

    /// [`LockManager::table`] in the thin form, for a mode that is not held yet.
    pub(super) fn table_thin(
        &self,
        owner: &mut Owner,
        table: TableId,
        mode: LockMode,
        wait: &Wait<'_>,
        held: Option<usize>,
    ) -> Result<Acquired, LockError> {
        if !mode.is_whole()
            && let Some(acquired) = self.intend(owner, table, mode, held)
        {
            return Ok(acquired);
        }
        self.table_inflated(owner, table, mode, wait, held)
    }

    /// Whether the owner's cell has this intention, or a stronger one: held already, or left idle by an earlier
    /// transaction of this slot and taken up now. In the central form no cell has any.
    #[inline]
    pub fn intend_again(&self, owner: &mut Owner, table: TableId, mode: LockMode) -> bool {
        !mode.is_whole() && !owner.body.lease.is_on() && self.lent(owner).intend_again(owner, table, mode)
    }

    /// Enters or raises a thin intention; `None`: not possible now, or a request wants the whole table.
    fn intend(
        &self,
        owner: &mut Owner,
        table: TableId,
        mode: LockMode,
        held: Option<usize>,
    ) -> Option<Acquired> {
        let (intents, at) = (&self.slot(owner).intents, Intents::cell_of(table));
        // The cell is reserved for an intention that the executors hold.
        let is_kept = |held: &HeldTable| held.form == TableForm::Leased && Intents::cell_of(held.table) == at;
        if owner.body.tables.iter().any(is_kept) {
            return None;
        }
        let unwanted = || self.wanted.word(table).load(Ordering::SeqCst) == 0;
        let (before, between, acquired) = match held {
            None => {
                let before = intents.cells[at].load(Ordering::SeqCst);
                if !is_free(before) {
                    return None;
                }
                (before, entry(table, PENDING), Acquired::New)
            }
            Some(position) => {
                if owner.body.tables[position].form != TableForm::Intent {
                    return None;
                }
                (entry(table, SHARED), entry(table, RAISING), Acquired::Upgraded)
            }
        };
        if !intents.change(at, before, between) {
            return None;
        }
        if !unwanted() || !intents.change(at, between, entry(table, state_of(mode))) {
            let back = if held.is_some() { before } else { EMPTY };
            intents.change(at, between, back);
            return None;
        }
        self.note_table(owner, table, mode, TableForm::Intent, held);
        Some(acquired)
    }

    /// Asks the table's head. First moves this owner's intention into it, or the intentions of all owners if the
    /// whole table is requested.
    fn table_inflated(
        &self,
        owner: &mut Owner,
        table: TableId,
        mode: LockMode,
        wait: &Wait<'_>,
        held: Option<usize>,
    ) -> Result<Acquired, LockError> {
        // Lock tables that are out come after the head's latch in the order of latches (L4).
        self.return_lease(owner);
        let id = owner.id();
        let name = HeadName::table(table);
        let raised = Cell::new(held.is_some_and(|at| owner.body.tables[at].wanted));
        let raise = mode.is_whole() && !raised.get();
        let lower = || {
            self.wanted.word(table).fetch_sub(1, Ordering::SeqCst);
        };
        if raise && self.keeps_keys_at_executors() {
            self.wanted.word(table).fetch_add(1, Ordering::SeqCst);
            raised.set(true);
            self.outlast_leases(owner, wait).inspect_err(|_| lower())?;
        }
        let ask = |heads: &mut Heads| {
            let at = heads.find_or_insert(name);
            let head = heads.at(at);
            if mode.is_whole() {
                if !raised.replace(true) {
                    self.wanted.word(table).fetch_add(1, Ordering::SeqCst);
                }
                for (other, slot) in self.slots[..self.lent_ever()].iter().enumerate() {
                    slot.intents.inflate(other as u16, table, head);
                }
            } else {
                self.slots[usize::from(id)].intents.inflate(id, table, head);
            }
            (at, head.ask(id, mode))
        };
        let answer = self.acquire_by(owner, name, wait, || LockTarget::Table(table), ask);
        match answer {
            Ok((acquired, at)) => {
                let position = held.unwrap_or(owner.body.tables.len());
                self.note_table(owner, table, mode, TableForm::Head(at), held);
                owner.body.tables[position].wanted |= raise;
                Ok(acquired)
            }
            Err(error) => {
                if raise {
                    lower();
                }
                Err(error)
            }
        }
    }

    /// Releases a table lock that was an intention and is in the head by now, or one that counts in the table's word.
    pub(super) fn release_thin_table(&self, id: u16, held: &HeldTable) {
        let name = HeadName::table(held.table);
        let mut woken = WokenOwners::new();
        {
            let mut heads = self.partitions[Self::partition_of(name)].lock();
            let at = heads.find(name).expect("an intention that is not in its cell is in the head");
            let head = heads.at(at);
            let released = head.release(id);
            debug_assert!(released, "owner {id} releases {:?}, which it does not hold", held.table);
            if held.wanted {
                self.wanted.word(held.table).fetch_sub(1, Ordering::SeqCst);
            }
            self.grant_waiting(head, id, &mut woken);
            heads.retire_if_idle(at);
        }
        self.wake(&woken);
    }
}
