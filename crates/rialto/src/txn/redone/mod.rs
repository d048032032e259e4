//! Redoing a packet of a log as a transaction, on a database that is in use.
//!
//! A follower redoes the packets of its primary one after the other. Each becomes one transaction: it takes locks, fills
//! its write set from the packet's redo records, and commits. [`Context::redo`] does the filling. What it finds are the
//! tables as they were at the packet's place, so each operation of the packet's transaction is simply done again by what
//! a live transaction uses, in the order of the records:
//!
//! - `rows`: a record of a row becomes an insert, a change or a delete, with the locks and index entries of one;
//! - `definitions`: records of system tables become writes of their rows, and then the changes of tables that these rows
//!   describe (as in recovery, after a run of such records and before anything else);
//! - `private`: records of rows in storage that the packet itself has made, load files among them.
//!
//! Invariants:
//!
//! - **Nothing is believed**: a row is checked before a key is made of it, a definition before a table is. What makes no
//!   sense is [`Error::Corrupt`] with the packet's place, and never a panic. Only an abort is left of the transaction then.
//! - **All that can fail fails before the place.**
//! - **No bound on write sets holds** (`Options::write_set_bytes_max`): the primary has accepted the packet.
//! - **Identifiers and hidden row numbers are those of the records.** None of them is handed out afterwards. (A block of
//!   row numbers that a context of this database has taken before is not seen: while packets are redone, no other
//!   transaction inserts rows.)
//! - **The transaction's packet has the records of the packet**, in their order. It is the same packet, byte for byte, if a
//!   Rialto of this version wrote that.

mod definitions;
mod private;
mod rows;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::canceller::Canceller;
use super::context::Context;
use super::core::Core;
use super::options::TxOptions;
use super::runs::start;
#[cfg(test)]
use super::transaction::Transaction;
use crate::catalog::system::is_system;
use crate::catalog::{Described, Description};
use crate::commit::NoPlace;
use crate::commit::redo;
use crate::commit::senseless::{self, no_record, no_table};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::{Lsn, TableId};
use crate::io::Moment;
use crate::isolate::LockMode;
use crate::log::{Packet, PacketKind, PoolOwner};
use crate::row::KEY_BYTES_MAX;

/// A packet of more records locks whole tables, and not each row.
const ROWS_LOCKED_MAX: usize = 64 << 10;

/// A packet that is being redone.
struct Redone<'a> {
    context: &'a mut Context,
    lsn: Lsn,
    packet: &'a [u8],
    /// How the tables are locked in which it changes rows.
    mode: LockMode,
    /// The tables that it uses, by their position in the context's list.
    slots: HashMap<TableId, u32>,
    /// Whether the transaction changes definitions.
    defines: bool,
    /// The tables that its definitions are about.
    described: Described,
    /// Of these, the ones that were looked for in the catalog.
    known: HashSet<TableId>,
    /// The tables whose storage the packet has made, and that have no secondary indexes yet: their rows go straight
    /// there, in an order in which two of them may have a unique key in turn.
    private: BTreeMap<TableId, Description>,
    /// The least identifier that is above all in the packet.
    next_id: u32,
    /// The records of the packet before this offset are redone already.
    redone_to: usize,
    /// The bounds of the context's packet and entries.
    bounds: (usize, usize),
}

#[cfg(test)]
impl Transaction<'_> {
    /// As [`Context::redo`].
    pub(crate) fn redo(&mut self, lsn: Lsn, packet: &[u8]) -> Result<()> {
        self.operate(|context| context.redo(lsn, packet))
    }
}

impl Context {
    /// Does again what the transaction of this packet, which is at this place of a log, has done. The commit is left to
    /// the caller. This transaction has done nothing before.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a packet that makes no sense on the tables as they are; the errors of a lock request;
    /// [`Error::MemoryLimit`] and those of the disk. Then only an abort is left of the transaction.
    fn redo(&mut self, lsn: Lsn, packet: &[u8]) -> Result<()> {
        self.redo_locking(lsn, packet, ROWS_LOCKED_MAX)
    }

    /// The same for a packet that locks each row if it has no more records than this.
    pub(super) fn redo_locking(&mut self, lsn: Lsn, packet: &[u8], rows_max: usize) -> Result<()> {
        let done = self.check_write().and_then(|()| Redone::begin(self, lsn, packet, rows_max)?.run());
        if let Err(error) = &done {
            self.doom(error.clone());
        }
        done
    }
}

/// Redoes the packets of the log that a database follows, each as a transaction.
pub(crate) struct Redoer {
    core: Arc<Core>,
    packets: PoolOwner,
}

impl Redoer {
    pub fn new(core: &Arc<Core>) -> Redoer {
        Redoer { core: core.clone(), packets: PoolOwner::of_homes(1) }
    }

    /// Redoes the packet after the last one that was redone. An error leaves everything as it was. `began` is when this
    /// was tried first.
    ///
    /// # Errors
    /// As `Context::redo`; [`Error::Unsupported`] for a packet that is no commit with its redo records.
    pub fn redo(&self, packet: &Packet<'_>, began: Moment, canceller: &Canceller) -> Result<()> {
        if packet.kind != PacketKind::Commit {
            let what = format!(
                "a follower of a database whose log has packets of kind {:?} (place {}): only logging value and action \
                 can be followed",
                packet.kind, packet.lsn
            );
            return Err(Error::Unsupported { what });
        }
        // A packet that is redone again is as old as at first: a deadlock with younger readers is not its loss each time.
        let mut transaction = start(&self.core, &TxOptions::default(), Some(began))?;
        transaction.follow(canceller);
        let context = transaction.context();
        let mut home = self.packets.home().expect("one packet is redone at a time");
        context.packet = home.borrow();
        (context.writing, context.waits_for_sweep) = (true, true);
        let distorted = fault_injection::distorted(packet.bytes);
        let bytes = distorted.as_deref().unwrap_or(packet.bytes);
        let redone = context.redo(packet.lsn, bytes).map_err(NoPlace::from);
        redone.and_then(|()| context.commit_redone(packet.lsn)).map_err(|none| match none {
            NoPlace::Error(error) => error,
            NoPlace::Straddles => unreachable!("the commit waits for the sweep"),
        })
    }
}

impl<'a> Redone<'a> {
    fn begin(context: &'a mut Context, lsn: Lsn, packet: &'a [u8], rows_max: usize) -> Result<Redone<'a>> {
        let mut records = 0;
        for record in redo::read(packet) {
            record.map_err(|offset| no_record(lsn, offset))?;
            records += 1;
        }
        context.core.redo_steps.begin(lsn);
        let bounds = (context.room, context.room_for_entries);
        (context.room, context.room_for_entries) = (usize::MAX, usize::MAX);
        // Increments are logged as such again.
        context.choices.operations = true;
        Ok(Redone {
            context,
            lsn,
            packet,
            mode: if records > rows_max { LockMode::Exclusive } else { LockMode::IntentExclusive },
            slots: HashMap::new(),
            defines: false,
            described: Described::default(),
            known: HashSet::new(),
            private: BTreeMap::new(),
            next_id: 0,
            redone_to: 0,
            bounds,
        })
    }

    fn run(mut self) -> Result<()> {
        let lsn = self.lsn;
        self.records().map_err(|error| as_senseless(lsn, error))?;
        self.context.core.storage.catalog.raise_next_id(self.next_id);
        Ok(())
    }

    fn records(&mut self) -> Result<()> {
        let (packet, mut end) = (self.packet, 0);
        for item in redo::read_with_bytes(packet) {
            let (record, bytes) = item.map_err(|offset| no_record(self.lsn, offset))?;
            self.context.core.redo_steps.step();
            let from = end;
            end += bytes.len();
            if record.key.len() > KEY_BYTES_MAX {
                return Err(senseless::packet(self.lsn, format!("a key of {} bytes", record.key.len())));
            }
            if is_system(record.table) {
                self.system_record(&record)?;
                continue;
            }
            self.bring_in_line(from)?;
            if from < self.redone_to {
                continue;
            }
            match self.private.contains_key(&record.table) {
                true => self.private_record(&record, bytes)?,
                false => {
                    let slot = self.slot_of(record.table)?;
                    self.change_row(slot, &record)?;
                }
            }
        }
        self.bring_in_line(end)?;
        self.finish_private()
    }

    /// Locks the table of this number, and gives its position.
    fn slot_of(&mut self, id: TableId) -> Result<u32> {
        if let Some(&slot) = self.slots.get(&id) {
            return Ok(slot);
        }
        let Redone { context, lsn, mode, .. } = self;
        let slot = match context.tables.find(id) {
            Some(slot) => slot,
            None => {
                let table = context.core.storage.catalog.by_id(id).ok_or_else(|| no_table(*lsn, id))?;
                context.tables.put(table.version())
            }
        };
        let slot = context.use_slot(slot, *mode).map_err(|error| match error {
            Error::NoSuchTable { .. } => no_table(*lsn, id),
            other => other,
        })?;
        self.slots.insert(id, slot);
        Ok(slot)
    }

    /// The error for a record for this table.
    fn senseless(&self, slot: u32, what: &str) -> Error {
        senseless::record(self.lsn, self.context.tables.at(slot).name(), what)
    }
}

/// The context may end and become another transaction's.
impl Drop for Redone<'_> {
    fn drop(&mut self) {
        (self.context.room, self.context.room_for_entries) = self.bounds;
    }
}

/// The packet's own transaction had none of these errors, on the same tables: what the packet says makes no sense.
fn as_senseless(lsn: Lsn, error: Error) -> Error {
    match error {
        Error::DuplicateKey { .. }
        | Error::NotNull { .. }
        | Error::KeyTooLong { .. }
        | Error::NoSuchTable { .. }
        | Error::BadDefinition { .. } => {
            senseless::packet(lsn, format!("its records cannot be redone: {error}"))
        }
        other => other,
    }
}
