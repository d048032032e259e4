//! Reads of a range, by any index, in either direction.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::context::Context;
use super::read::{RowKey, view};
use super::scope::Touch;
use super::seek::{Probe, RowLocking};
use super::transaction::Transaction;
use crate::commit::write_set::CurrentLocation;
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::isolate::{LockMode, LockPolicy, LockTarget, RangeLock, RecordMode, Span};
use crate::row::{IndexRef, IntoKey, Key, RowView, Schema, Value, WhichIndex};
pub use crate::store::Direction;
use crate::store::{Batch, Followed, Guard, Leaf, More, RowLocation, ScanRange, Table, TableVersion};
use crate::unlikely::unlikely;

/// Each time that a scan has locked this many more rows one by one, it asks for a lock on the table instead.
pub(super) const ESCALATE_ROWS: u64 = 4_096;
/// How many rows ahead a scan prefetches.
const PREFETCHED_ROWS: usize = 4;

/// One end of a scan. The values are those of the index's columns, or of its first columns. In the second case all keys
/// that begin with these values are inside the range, or all are outside.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum KeyBound {
    /// No bound: to the end of the index.
    #[default]
    Unbounded,
    /// The range has the keys that begin with these values.
    Included(Vec<Value>),
    /// The range has none of the keys that begin with these values: it ends before them, or begins behind them.
    Excluded(Vec<Value>),
}

/// What a scan does to the rows that it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScanMode {
    /// Reads them.
    #[default]
    Share,
    /// Reads them to change them: locks each exclusively at once.
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
    /// Whether it begins at the lower end or at the upper one.
    pub direction: Direction,
    /// What is done with the rows.
    pub mode: ScanMode,
    /// Stop after this many rows.
    pub limit: Option<u64>,
}

/// What a scan reads of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    Rows,
    /// The columns that an [`IndexEntry`](super::IndexEntry) has.
    Entries,
}

/// What a scan calls with its rows. Debug builds compile one scan for all of them.
#[cfg(debug_assertions)]
type RowVisitor<'v> = dyn FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>> + 'v;

/// How a scan locks the rows that entries lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowLocks {
    /// Each row by itself.
    Each,
    /// The rows are in a span that is locked.
    Spanned,
    /// No row: the keys of the entries are locked, and the scan reads no more than these.
    None,
}

impl ScanMode {
    /// How the rows are locked.
    pub(super) fn record_mode(self) -> RecordMode {
        match self {
            ScanMode::Share => RecordMode::Shared,
            ScanMode::Update => RecordMode::Exclusive,
        }
    }
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
}

/// The range as bytes. `None` if it is empty because nothing comes after its lower end.
fn byte_range(table: &TableVersion, scan: &Scan) -> Result<Option<(Bound<Key>, Bound<Key>)>> {
    let shape = table.schema.find_key_shape(scan.index)?;
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

/// The key by which a wait for a range is described.
fn first_key(lower: Bound<&[u8]>) -> Vec<u8> {
    match lower {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) | Bound::Excluded(key) => key.to_vec(),
    }
}

impl Context {
    fn lock_for_scan(&mut self, table: &Table, mode: ScanMode, is_whole: bool) -> Result<u32> {
        let (intent, whole) = match mode {
            ScanMode::Share => (LockMode::IntentShared, LockMode::Shared),
            ScanMode::Update => (LockMode::IntentExclusive, LockMode::Exclusive),
        };
        match mode {
            ScanMode::Share => self.check()?,
            ScanMode::Update => self.check_write()?,
        }
        // A whole scan by an action with an identifier leaves its scope, and is refused below. Therefore it does not
        // lock the whole table, where it would wait for other transactions, and for the other parts of its own.
        let is_whole = is_whole && !self.scope.has_identifier();
        self.use_table(table, if is_whole { whole } else { intent })
    }

    /// Reads the row that an index entry leads to into `body`, its key, locked, into `self.key`. False if the entry
    /// leads to no row; then the answer depends on what made it so, which is noted. `record` is what the scan read in
    /// `leaf`.
    fn row_of_entry(
        &mut self,
        slot: u32,
        (which, entry): (WhichIndex, &[u8]),
        (record, leaf): (RowLocation, Leaf),
        (mode, locks): (RecordMode, RowLocks),
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        if locks == RowLocks::None {
            return self.row_of_locked_entry(slot, which, entry, body);
        }
        let locking = match locks {
            RowLocks::Spanned => RowLocking::Covered,
            _ => self.row_locking(slot, mode),
        };
        if locking == RowLocking::ByName || self.pages(slot).is_some() {
            return self.row_of_entry_by_name(slot, which, entry, mode, body);
        }
        let covered = locking == RowLocking::Covered;
        if which == WhichIndex::Primary {
            self.key.clear();
            self.key.extend_from_slice(entry);
        }
        if !covered && self.reads.is_active() {
            let there = self.read_row_unlocked(slot, which, Some(entry), Some((record, leaf)), body)?;
            if there && which != WhichIndex::Primary {
                self.key_of_body(slot, true, body);
            }
            return Ok(there);
        }
        let mut record = record;
        if !covered {
            match self.lock_present(slot, which, Some(entry), Some((record, leaf)), mode)? {
                Probe::Present(locked) => record = locked,
                Probe::Absent { removal, .. } => {
                    self.depend_on_removal(removal);
                    return Ok(false);
                }
            }
        }
        let mut there = matches!(self.stored(slot, record), CurrentLocation::Stored(_));
        self.tables.at(slot).store.read(record, body);
        if which != WhichIndex::Primary {
            self.key_of_body(slot, there, body);
        }
        if self.writes.is_empty() {
            return Ok(there);
        }
        // If this transaction writes the row, the entry may have a key that the row no longer has, or does not have
        // yet.
        if let Some(own) = self.find_own(slot) {
            there = self.read_at_into(slot, CurrentLocation::Own(own), body)?
                && (fault_injection::is_on("own-entry-taken-for-its-row")
                    || self.row_has_key(slot, which, entry, body));
        }
        Ok(there)
    }

    /// The same in the central form and the local one, where a row is locked by the name of its primary key.
    fn row_of_entry_by_name(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
        mode: RecordMode,
        body: &mut Vec<u8>,
    ) -> Result<bool> {
        if which == WhichIndex::Primary {
            self.key.clear();
            self.key.extend_from_slice(entry);
            let location = self.seek(slot, mode)?;
            return self.read_at_into(slot, location, body);
        }
        let mut refused: Option<(RowLocation, Key)> = None;
        loop {
            let Some(record) = self.find_primary_key(slot, which, entry)? else { return Ok(false) };
            let location = self.seek(slot, mode)?;
            if self.read_at_into(slot, location, body)? && self.row_has_key(slot, which, entry, body) {
                return Ok(true);
            }
            // The entry was followed before the lock was held: it may have gone since, or lead to another row. If the
            // same answer comes twice, the second time under the lock, the entry's row is one that this transaction has
            // changed, and it now has another key.
            if refused.as_ref().is_some_and(|(before, key)| *before == record && *key == self.key) {
                return Ok(false);
            }
            refused = Some((record, self.key.clone()));
        }
    }

    /// Puts the primary key of the row that a secondary entry leads to into `self.key`, and returns its record. The row
    /// is not locked; the caller looks it up again under its lock. `None` if the entry is gone (I3: the answer then
    /// depends on the removal).
    fn find_primary_key(
        &mut self,
        slot: u32,
        which: WhichIndex,
        entry: &[u8],
    ) -> Result<Option<RowLocation>> {
        let table = self.tables.at(slot);
        let Followed { record, removal, there, .. } =
            table.read_by_entry(&self.page_access, which, entry, &mut self.body)?;
        if record.is_none() {
            self.depend_on_removal(removal);
            return Ok(None);
        }
        let body = std::mem::take(&mut self.body);
        self.key_of_body(slot, there, &body);
        self.body = body;
        Ok(record)
    }

    /// Puts the primary key of the row in `body` into `self.key`. In a slot that holds no row yet, `body` is the key.
    pub(super) fn key_of_body(&mut self, slot: u32, there: bool, body: &[u8]) {
        if there {
            let table = self.tables.at(slot);
            let row = &body[table.row_at()..];
            table.schema.primary_key_of_row(row, table.row_number(body), &mut self.key);
        } else {
            self.key.clear();
            self.key.extend_from_slice(body);
        }
    }

    /// Whether the row in `body`, whose primary key is in `self.key`, has this key in the index.
    pub(super) fn row_has_key(&self, slot: u32, which: WhichIndex, entry: &[u8], body: &[u8]) -> bool {
        match which {
            WhichIndex::Primary => true,
            WhichIndex::Secondary(position) => {
                let (table, mut key) = (self.tables.at(slot), Key::new());
                table.schema.index_key_of_row(position, &body[table.row_at()..], &self.key, &mut key);
                *key == *entry
            }
        }
    }
}

impl Transaction<'_> {
    /// Visits the rows of a range in the order of an index, as the transaction sees them. The range is locked against
    /// rows that come into it (I7), and each row that is visited.
    ///
    /// `visit` gets each row with its identity, and says whether to go on. Do not change the index's columns of rows
    /// that are still to come: collect their identities first.
    ///
    /// # Errors
    /// The error of bounds that do not fit the index; [`Error::NoSuchIndex`] for an index that the table does not have;
    /// the errors of a lock request; the error of `visit`.
    pub fn scan(
        &mut self,
        table: &Table,
        scan: &Scan,
        mut visit: impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        #[cfg(debug_assertions)]
        let mut visit: &mut RowVisitor<'_> = &mut visit;
        self.operate(|context| context.scan_with_scratch(table, None, scan, Reads::Rows, &mut visit))
    }

    /// As [`Transaction::scan`], with a scan that was planned for this schema, as [`Table::schema`] returned it. A scan
    /// names its index by position, and in another schema of the table another index may have this position. Therefore
    /// the schema is compared under the table's lock, before the scan reads anything.
    ///
    /// # Errors
    /// As [`Transaction::scan`]; [`Error::TableChanged`] if the table has another schema by now. Then nothing was
    /// visited.
    pub fn scan_planned(
        &mut self,
        table: &Table,
        schema: &Arc<Schema>,
        scan: &Scan,
        mut visit: impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        #[cfg(debug_assertions)]
        let mut visit: &mut RowVisitor<'_> = &mut visit;
        self.operate(|context| context.scan_with_scratch(table, Some(schema), scan, Reads::Rows, &mut visit))
    }
}

/// A scan with its bounds as bytes.
pub(super) struct ByteScan {
    pub index: WhichIndex,
    pub bounds: (Bound<Key>, Bound<Key>),
    pub direction: Direction,
    pub mode: RecordMode,
    pub reads: Reads,
    pub limit: Option<u64>,
    /// How many rows earlier parts of the scan have given since it asked for the table, or began.
    pub before: u64,
}

/// Where a scan has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanEnd {
    /// At the end of its range.
    Bound,
    /// Before that.
    Early,
}

/// Memory of scans, reused from one to the next.
#[derive(Default)]
pub(crate) struct ScanScratch {
    batch: Batch,
    body: Vec<u8>,
    key: RowKey,
}

impl Context {
    pub(super) fn scan_with_scratch(
        &mut self,
        table: &Table,
        planned: Option<&Arc<Schema>>,
        scan: &Scan,
        reads: Reads,
        visit: &mut impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut scratch = self.scan_scratch.take().unwrap_or_default();
        let outcome = self.scan(table, planned, scan, reads, &mut scratch, visit);
        self.scan_scratch = Some(scratch);
        outcome
    }

    fn scan(
        &mut self,
        table: &Table,
        planned: Option<&Arc<Schema>>,
        scan: &Scan,
        reads: Reads,
        scratch: &mut ScanScratch,
        visit: &mut impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        match self.begin_scan(table, planned, scan, reads)? {
            Some((slot, range)) if range.limit != Some(0) => self.scan_bytes(slot, &range, scratch, visit),
            _ => Ok(()),
        }
    }

    /// Locks the table for a scan and gives the range as bytes. None: nothing is in it.
    pub(super) fn begin_scan(
        &mut self,
        table: &Table,
        planned: Option<&Arc<Schema>>,
        scan: &Scan,
        reads: Reads,
    ) -> Result<Option<(u32, ByteScan)>> {
        let slot = self.use_for_scan(table, scan.mode, scan.is_whole())?;
        let is_other = planned.is_some_and(|planned| !Arc::ptr_eq(planned, &self.tables.at(slot).schema));
        if is_other && !fault_injection::is_on("plan-of-an-older-definition") {
            return Err(Error::TableChanged { table: table.name() });
        }
        let Some(bounds) = byte_range(self.tables.at(slot), scan)? else { return Ok(None) };
        let Scan { index, direction, limit, .. } = *scan;
        let range =
            ByteScan { index, bounds, direction, mode: scan.mode.record_mode(), reads, limit, before: 0 };
        self.stay_in_scan(slot, &range)?;
        Ok(Some((slot, range)))
    }

    /// As [`Context::begin_scan`], of the rows whose key in an index begins with `prefix`.
    pub(super) fn begin_scan_by(
        &mut self,
        table: &Table,
        index: impl IndexRef,
        prefix: impl IntoKey,
    ) -> Result<(u32, ByteScan)> {
        let slot = self.use_for_scan(table, ScanMode::Share, false)?;
        let schema = &self.tables.at(slot).schema;
        let index = index.find(schema)?;
        let mut lower = Key::new();
        prefix.encode_prefix_into(schema.find_key_shape(index)?, &mut lower)?;
        let mut upper = lower.clone();
        let upper = if upper.turn_into_prefix_end() { Bound::Excluded(upper) } else { Bound::Unbounded };
        let range = ByteScan {
            index,
            bounds: (Bound::Included(lower), upper),
            direction: Direction::Forward,
            mode: RecordMode::Shared,
            reads: Reads::Rows,
            limit: None,
            before: 0,
        };
        self.stay_in_scan(slot, &range)?;
        Ok((slot, range))
    }

    /// As [`Context::begin_scan`], of the rows whose entries in an index lie in a range of its keys.
    pub(super) fn begin_scan_within(
        &mut self,
        table: &Table,
        index: WhichIndex,
        bounds: (Bound<Key>, Bound<Key>),
        limit: Option<u64>,
    ) -> Result<(u32, ByteScan)> {
        let slot = self.use_for_scan(table, ScanMode::Share, false)?;
        self.tables.at(slot).schema.find_key_shape(index)?;
        let (direction, mode) = (Direction::Forward, RecordMode::Shared);
        let range = ByteScan { index, bounds, direction, mode, reads: Reads::Rows, limit, before: 0 };
        self.stay_in_scan(slot, &range)?;
        Ok((slot, range))
    }

    fn use_for_scan(&mut self, table: &Table, mode: ScanMode, is_whole: bool) -> Result<u32> {
        if self.scope.is_on() {
            self.stay_in_table(table, Touch::Read)?;
        }
        let slot = self.lock_for_scan(table, mode, is_whole)?;
        // I3: an answer without a row also depends on the table's definition.
        let floor = self.tables.at(slot).floor();
        self.depend(floor);
        Ok(slot)
    }

    fn stay_in_scan(&mut self, slot: u32, range: &ByteScan) -> Result<()> {
        match self.scope.is_on() {
            true => {
                let (lower, upper) = &range.bounds;
                self.stay_in_range(slot, range.index, (lower, upper), range.reads == Reads::Entries)
            }
            false => Ok(()),
        }
    }

    /// The same for a table that is locked already.
    pub(super) fn scan_bytes(
        &mut self,
        slot: u32,
        scan: &ByteScan,
        scratch: &mut ScanScratch,
        visit: &mut impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let ended = self.scan_rows(slot, scan, scratch, visit);
        if unlikely(self.noted_locks.is_some()) {
            self.note_scan(slot, scan, ended.as_ref().is_ok_and(|ended| *ended == ScanEnd::Bound));
        }
        ended.map(drop)
    }

    /// Notes what a scan has read of its range, for a transaction that may be prepared: all of it, or the part up to the
    /// last entry.
    #[cold]
    fn note_scan(&mut self, slot: u32, scan: &ByteScan, is_whole: bool) {
        let index = self.tables.at(slot).index_id(scan.index);
        let fetches = self.fetches();
        let Some(noted) = &mut self.noted_locks else { return };
        let last = noted.last_entry.take();
        let (lower, upper) = &scan.bounds;
        let (lower, upper) = (as_bytes(lower), as_bytes(upper));
        let range = match (is_whole, &last, scan.direction) {
            (true, ..) => (lower, upper),
            (false, Some(last), Direction::Forward) => (lower, Bound::Included(&**last)),
            (false, Some(last), Direction::Backward) => (Bound::Included(&**last), upper),
            (false, None, _) => return,
        };
        if !fetches && !fault_injection::is_on("prepared-scans-unnoted") {
            noted.range(index, range);
        }
    }

    fn scan_rows(
        &mut self,
        slot: u32,
        scan: &ByteScan,
        scratch: &mut ScanScratch,
        visit: &mut impl FnMut(&RowKey, RowView<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<ScanEnd> {
        let ByteScan { bounds: (lower, upper), mode, .. } = scan;
        let mode = *mode;
        let index_id = self.tables.at(slot).index_id(scan.index);
        let mut guard = Guard::Leave;
        let is_covered = self.is_covered(slot, RecordMode::Shared);
        let unlocked = self.reads.is_active() && !is_covered && !self.reads_pages(slot)?;
        let fetches = self.fetches();
        let mut locks = if fetches { RowLocks::None } else { RowLocks::Each };
        if !unlocked && !is_covered && !fetches && !fault_injection::is_on("no-interval-locks") {
            let (range, mut rows_too) = ((as_bytes(lower), as_bytes(upper)), mode == RecordMode::Shared);
            let mut locked = None;
            if self.scope.is_locked() {
                let Some(span) = Span::between(range.0, range.1) else { return Ok(ScanEnd::Bound) };
                let is_locked = |mode| self.scope.has_locked_span(slot, scan.index, span.borrow(), mode);
                locked = is_locked(RecordMode::Shared).then_some(RangeLock::Keys);
                rows_too |= is_locked(mode);
            }
            let locked = match locked {
                Some(locked) => locked,
                None => self.lock(
                    |core, owner, _, _, wait| core.locks.range(owner, index_id, range, wait),
                    |_, _| LockTarget::Interval { index: index_id, key: first_key(range.0) },
                )?,
            };
            match (locked, scan.index, scan.reads) {
                (RangeLock::Gaps, ..) => guard = Guard::Set,
                (RangeLock::Keys, WhichIndex::Primary, _) if rows_too => locks = RowLocks::Spanned,
                // One that may be prepared locks the rows, too: what keeps their entries here would not do so in another
                // form of locks, which the next opening may have.
                (RangeLock::Keys, WhichIndex::Secondary(_), Reads::Entries) if self.noted_locks.is_none() => {
                    locks = RowLocks::None;
                }
                (RangeLock::Keys, ..) => {}
            }
        }
        let version = self.tables.shared(slot).clone();
        let floor = version.floor();
        self.depend(floor);
        if self.side.noted {
            self.side.note_absence(index_id, Lsn::ZERO);
        }
        let ScanScratch { batch, body, key } = scratch;
        batch.begin();
        if let Some(limit) = scan.limit {
            batch.limit(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        let range = ScanRange { low: as_bytes(lower), high: as_bytes(upper) };
        let (mut rows, mut escalates_at) = (0, ESCALATE_ROWS.saturating_sub(scan.before));
        loop {
            // Done between two leaves: under a lock on the table a row is read where its entry leads, without a second
            // look-up, so no entry may be older than that lock.
            if rows >= escalates_at && locks == RowLocks::Each {
                escalates_at = rows + ESCALATE_ROWS;
                self.escalate(slot, mode)?;
            }
            fault_injection::pause(64);
            let more = version.store.read_leaf(
                &self.page_access,
                scan.index,
                &range,
                scan.direction,
                guard,
                batch,
            )?;
            if fault_injection::is_on("later-leaves-unguarded") {
                guard = Guard::Leave;
            }
            self.depend_on_removal(batch.removal());
            let leaf = batch.leaf();
            if unlocked && (rows == 0 || !fault_injection::is_on("later-leaves-unnoted")) {
                self.note_leaf(slot, scan.index, leaf)?;
            }
            for (nth, (entry, record)) in batch.rows().enumerate() {
                if nth + PREFETCHED_ROWS < batch.len() {
                    version.store.prefetch(batch.location(nth + PREFETCHED_ROWS));
                }
                self.check()?;
                if rows == escalates_at && fault_injection::is_on("stale-leaf-after-escalation") {
                    escalates_at += ESCALATE_ROWS;
                    self.escalate(slot, mode)?;
                }
                let (at, found) = ((scan.index, entry), (record, leaf));
                let is_row = self.row_of_entry(slot, at, found, (mode, locks), body)?;
                if let Some(noted) = &mut self.noted_locks {
                    noted.last_entry = Some(entry.to_vec());
                }
                if !is_row {
                    continue;
                }
                key.0.clone_from(&self.key);
                rows += 1;
                if visit(key, view(&version, body))?.is_break() || Some(rows) == scan.limit {
                    return Ok(ScanEnd::Early);
                }
            }
            if more == More::No {
                return Ok(ScanEnd::Bound);
            }
        }
    }
}

impl Context {
    /// Notes that the transaction has seen the gap that this removal left (I3), or an earlier one.
    pub(super) fn depend_on_removal(&mut self, removal: Lsn) {
        self.depend(removal);
        if self.side.noted {
            self.side.note_removal(removal);
        }
    }

    /// Locks the table instead of further rows, if that lock is free at once. Escalation only saves locks, so it
    /// neither waits nor fails: where other transactions use the table, the scan goes on row by row. A part of a phase
    /// does not escalate either: its locks on tables end with it, and its transaction's intention lock would conflict.
    fn escalate(&mut self, slot: u32, mode: RecordMode) -> Result<()> {
        let part_asks = self.owner.is_part() && fault_injection::is_on("part-asks-for-the-table");
        if self.owner.is_part() && !part_asks {
            return Ok(());
        }
        let whole = match mode {
            RecordMode::Shared => LockMode::Shared,
            RecordMode::Exclusive => LockMode::Exclusive,
        };
        let waits = fault_injection::is_on("stale-leaf-after-escalation") || part_asks;
        let refuse = if waits { self.choices.lock_wait } else { LockPolicy::Refuse };
        let policy = std::mem::replace(&mut self.choices.lock_wait, refuse);
        let asked = self.use_slot(slot, whole);
        self.choices.lock_wait = policy;
        match asked {
            Ok(_) | Err(Error::WouldWait { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
