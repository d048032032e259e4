//! Reads of a range, by any index, in either direction.

use std::ops::{Bound, ControlFlow};

use super::read::{Place, RowKey, view};
use super::transaction::{Context, Transaction};
use crate::canary;
use crate::catalog::{Table, TableVersion};
use crate::error::Result;
use crate::lock::{RecordMode, TableMode};
use crate::row::{IntoKey, Key, RowView, Value, WhichIndex};
use crate::store::memory::RecordRef;
pub use crate::store::memory::index::Direction;
use crate::store::memory::index::{Batch, Guard, More, ScanRange};

/// A scan that has locked this many rows one by one asks for the table instead.
const ESCALATE_ROWS: u64 = 4_096;

/// One end of a scan. The values are of the index's columns, or of the first of them: all keys with that prefix are
/// then on the same side.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum KeyBound {
    /// To the end of the index.
    #[default]
    Unbounded,
    /// With the keys that begin with these values.
    Included(Vec<Value>),
    /// Without them.
    Excluded(Vec<Value>),
}

/// What a scan does to the rows that it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScanMode {
    /// Reads them.
    #[default]
    Share,
    /// Reads them to change them: locks them exclusively at once.
    Update,
}

/// What to scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The index whose order the rows come in.
    pub index: WhichIndex,
    /// Where the range begins.
    pub lower: KeyBound,
    /// Where it ends.
    pub upper: KeyBound,
    /// From the lower end, or from the upper.
    pub direction: Direction,
    /// What is done with the rows.
    pub mode: ScanMode,
    /// Stop after this many rows.
    pub limit: Option<u64>,
}

impl Scan {
    /// All rows in the order of the primary key.
    pub fn all() -> Scan {
        Scan {
            index: WhichIndex::Primary,
            lower: KeyBound::Unbounded,
            upper: KeyBound::Unbounded,
            direction: Direction::Forward,
            mode: ScanMode::Share,
            limit: None,
        }
    }

    /// The rows whose key in `index` begins with these values.
    pub fn prefix(index: WhichIndex, values: Vec<Value>) -> Scan {
        let (lower, upper) = (KeyBound::Included(values.clone()), KeyBound::Included(values));
        Scan { index, lower, upper, ..Scan::all() }
    }

    fn is_whole(&self) -> bool {
        self.lower == KeyBound::Unbounded && self.upper == KeyBound::Unbounded && self.limit.is_none()
    }

    fn record_mode(&self) -> RecordMode {
        match self.mode {
            ScanMode::Share => RecordMode::Shared,
            ScanMode::Update => RecordMode::Exclusive,
        }
    }
}

/// The range as bytes. None if it is empty because nothing comes after its lower end.
fn byte_range(table: &TableVersion, scan: &Scan) -> Result<Option<(Bound<Key>, Bound<Key>)>> {
    let shape = table.schema.key_shape(scan.index);
    let prefix = |values: &Vec<Value>| {
        let mut key = Key::new();
        values.as_slice().encode_prefix_into(shape, &mut key).map(|()| key)
    };
    let lower = match &scan.lower {
        KeyBound::Unbounded => Bound::Unbounded,
        KeyBound::Included(values) => Bound::Included(prefix(values)?),
        KeyBound::Excluded(values) => {
            let mut key = prefix(values)?;
            if !key.turn_into_prefix_end() {
                return Ok(None);
            }
            Bound::Included(key)
        }
    };
    let upper = match &scan.upper {
        KeyBound::Unbounded => Bound::Unbounded,
        KeyBound::Excluded(values) => Bound::Excluded(prefix(values)?),
        KeyBound::Included(values) => {
            let mut key = prefix(values)?;
            if key.turn_into_prefix_end() { Bound::Excluded(key) } else { Bound::Unbounded }
        }
    };
    Ok(Some((lower, upper)))
}

fn as_bytes(bound: &Bound<Key>) -> Bound<&[u8]> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}

/// Whether a lock on the whole table makes locks on its rows and intervals needless.
fn covers(held: Option<TableMode>, mode: RecordMode) -> bool {
    match held {
        Some(TableMode::Exclusive) => true,
        Some(TableMode::Shared | TableMode::SharedIntentExclusive) => mode == RecordMode::Shared,
        _ => false,
    }
}

impl Context {
    fn lock_for_scan(&mut self, table: &Table, scan: &Scan) -> Result<u32> {
        let (intent, whole) = match scan.mode {
            ScanMode::Share => (TableMode::IntentShared, TableMode::Shared),
            ScanMode::Update => (TableMode::IntentExclusive, TableMode::Exclusive),
        };
        match scan.mode {
            ScanMode::Share => self.check()?,
            ScanMode::Update => self.check_write()?,
        }
        self.use_table(table, if scan.is_whole() { whole } else { intent })
    }

    /// Reads the row that an index entry points to, its row locked, into `body`. False if the entry is no row's any
    /// more, which is then noted as what the answer depends on.
    #[allow(clippy::too_many_arguments, reason = "the scan's buffers are lent one by one")]
    fn row_of_entry(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        record: RecordRef,
        mode: RecordMode,
        body: &mut Vec<u8>,
        scratch: &mut Key,
    ) -> Result<bool> {
        let mut record = record;
        let mut refused: Option<(RecordRef, Key)> = None;
        loop {
            let place = self.place_of_entry(slot, which, entry, record, mode)?;
            if let Some(place) = place
                && self.read_place_into(slot, place, body)
                && self.row_has_key(slot, which, entry, body, scratch)
            {
                return Ok(true);
            }
            if which == WhichIndex::Primary {
                return Ok(false);
            }
            // The leaf was read before the lock was there: the entry may have gone since (I3: that removal is what is
            // seen), or point to another slot, and the old slot may hold another row by now.
            let now = self.tables.at(slot).index(which).get(entry);
            let Some(value) = now.value else {
                self.depend(now.removal);
                return Ok(false);
            };
            if place.is_some() {
                // The same answer twice, the second time under the lock: the row has left this key.
                if value == record.0
                    && refused.as_ref().is_some_and(|(r, key)| *r == record && **key == *self.key)
                {
                    return Ok(false);
                }
                refused = Some((record, self.key.clone()));
            }
            record = RecordRef(value);
        }
    }

    /// The place of the row that an index entry points to, its row locked; None if the entry is no row's of the range.
    fn place_of_entry(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        record: RecordRef,
        mode: RecordMode,
    ) -> Result<Option<Place>> {
        match which {
            WhichIndex::Primary => {
                self.key.clear();
                self.key.extend_from_slice(entry);
            }
            WhichIndex::Secondary(_) => {
                if !self.find_primary_key(slot, which, entry, record) {
                    return Ok(None);
                }
            }
        }
        let hash = self.lock_key(slot, mode)?;
        // The lock makes whatever the key's row is now stay; the entry was read before.
        Ok(Some(self.locate(slot, hash)))
    }

    /// Puts the primary key of the row that a secondary entry points to into `self.key`. The row is not locked: the
    /// segment's latch keeps it from changing while it is looked at, and the caller looks again under its lock.
    fn find_primary_key(&mut self, slot: u32, which: WhichIndex, entry: &[u8], record: RecordRef) -> bool {
        let mut record = record;
        loop {
            let table = self.tables.at(slot);
            let segments = table.segments();
            let latched = segments.latch(record.segment());
            let (free, absent) = (segments.is_free(record), segments.is_absent(record));
            if !free {
                segments.read(record, &mut self.body);
            }
            drop(latched);
            if !free && absent && !self.body.is_empty() {
                self.key.clear();
                self.key.extend_from_slice(&self.body);
                return true;
            }
            if !free && !absent {
                let row = &self.body[table.row_at()..];
                table.schema.primary_key_of_row(row, table.row_number(&self.body), &mut self.key);
                return true;
            }
            // The slot was given up since the entry was read: the entry is gone, or points elsewhere.
            match table.index(which).get(entry).value {
                None => return false,
                Some(now) => record = RecordRef(now),
            }
        }
    }

    /// Whether the row in `body`, whose primary key is in `self.key`, has this key in the index.
    fn row_has_key(
        &self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        body: &[u8],
        scratch: &mut Key,
    ) -> bool {
        match which {
            WhichIndex::Primary => true,
            WhichIndex::Secondary(position) => {
                let table = self.tables.at(slot);
                table.schema.index_key_of_row(position, &body[table.row_at()..], &self.key, scratch);
                **scratch == *entry
            }
        }
    }
}

impl Transaction {
    /// Visits the rows of a range in the order of an index, as the transaction sees them. The range is locked against
    /// rows that come into it (I7), and each row that is visited.
    ///
    /// `visit` gets each row with its identity, and says whether to go on. Do not change the index's columns of rows
    /// that are still to come: collect identities first.
    ///
    /// # Errors
    /// Bounds that do not fit the index, what a lock can meet, and what `visit` gives.
    pub fn scan(
        &mut self,
        table: &Table,
        scan: &Scan,
        mut visit: impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let context = self.context();
        let slot = context.lock_for_scan(table, scan)?;
        let Some((lower, upper)) = byte_range(context.tables.at(slot), scan)? else {
            return Ok(());
        };
        if scan.limit == Some(0) {
            return Ok(());
        }
        let mode = scan.record_mode();
        let index_id = context.tables.at(slot).index_id(scan.index);
        let mut guard = Guard::Leave;
        if !covers(context.tables.locked(slot), mode)
            && !covers(context.tables.locked(slot), RecordMode::Shared)
            && !canary::skips_interval_locks()
        {
            let owner = context.owner.as_mut().expect("the transaction is open");
            context.core.locks.interval(owner, index_id, as_bytes(&lower), as_bytes(&upper));
            guard = Guard::Set;
        }
        let version = context.tables.shared(slot).clone();
        let floor = version.floor();
        context.depend(floor);
        let mut batch = Batch::new();
        if let Some(limit) = scan.limit {
            batch.limit(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        let range = ScanRange { low: as_bytes(&lower), high: as_bytes(&upper) };
        let (mut body, mut row_key, mut scratch) = (Vec::new(), RowKey::default(), Key::new());
        let mut rows = 0;
        loop {
            let more = version.index(scan.index).read_leaf(&range, scan.direction, guard, &mut batch);
            context.depend(batch.removal());
            for (entry, value) in batch.iter() {
                context.check()?;
                if !context.row_of_entry(
                    slot,
                    scan.index,
                    entry,
                    RecordRef(value),
                    mode,
                    &mut body,
                    &mut scratch,
                )? {
                    continue;
                }
                row_key.0.clone_from(&context.key);
                rows += 1;
                if visit(&row_key, view(&version, &body))?.is_break() || Some(rows) == scan.limit {
                    return Ok(());
                }
                if rows == ESCALATE_ROWS {
                    context.escalate(slot, mode)?;
                }
            }
            if more == More::No {
                return Ok(());
            }
        }
    }
}

impl Context {
    /// Swaps locks on many rows for one on their table.
    fn escalate(&mut self, slot: u32, mode: RecordMode) -> Result<()> {
        let whole = match mode {
            RecordMode::Shared => TableMode::Shared,
            RecordMode::Exclusive => TableMode::Exclusive,
        };
        self.use_slot(slot, whole).map(drop)
    }
}
