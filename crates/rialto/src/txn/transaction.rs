//! [`Transaction`]: from `begin` to its place in the log.

use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::calls::NumberSource;
use super::colour::{Colours, Settled};
use super::ddl_state::DdlState;
use super::options::{CommitWaits, LockPolicy, TxOptions};
use super::scan::ScanScratch;
use super::scope::Scope;
use super::tables::TableCache;
use super::ticket::Ticket;
use super::unlocked::UnlockedReads;
use super::write_set::{Mark, WriteSet, key_of};
use crate::account::waits::{Waiting, Waits};
use crate::account::{Ledger, ProcedureId};
use crate::canary;
use crate::core::{Core, Lease};
use crate::engine::transaction_server::blocked::Blocked;
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::in_flight::Gate;
use crate::io::Moment;
use crate::lock::{LockError, LockTarget, Owner, Wait};
use crate::log::group_commit::WAIT_MAX;
use crate::log::{Durability, HomeSlot, PacketKind, PacketSlot, Patience};
use crate::rarely::rarely;
use crate::row::{FieldPatch, Key};
use crate::store::memory::{RecordRef, SegmentId};

/// How often a commit looks again that waits for room for snapshots.
const SNAPSHOT_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often a commit looks again that waits for a black/white sweep to paint some segments.
const COLOUR_LOOK_EVERY: Duration = Duration::from_millis(2);

/// A transaction: the handle that a body of [`Database::transact`](crate::Database::transact) works with, or that
/// [`Database::begin`](crate::Database::begin) gives for use across calls. It is `Send`; dropping it aborts.
///
/// Reads and writes take their locks as they run and give copies. Writes stay in the transaction's own write set until
/// it commits (I1), and are seen by its own reads.
pub struct Transaction {
    /// Present until the transaction ends.
    pub(crate) context: Option<Box<Context>>,
}

/// A transaction's working state, lent from a pool with its memory, lock slot and table cache.
pub(crate) struct Context {
    /// The packet slot that is kept for it. Before the core, and so dropped before it.
    home: Option<HomeSlot>,
    /// The transaction's packet; before it writes, that of the home slot, empty, if the last transaction had it to itself to the
    /// end.
    pub packet: Option<PacketSlot>,
    pub core: Arc<Core>,
    /// The same, behind a count that only this context's transactions and their tickets touch.
    pub lease: Lease,
    /// This context's number, below [`Options::transactions_max`](crate::Options::transactions_max).
    pub number: usize,
    /// The lock slot.
    pub owner: Owner,
    /// Whether a transaction is in it.
    pub open: bool,
    /// Whether it writes: it was seen that it may, and its packet is there.
    pub writing: bool,
    pub writes: WriteSet,
    pub tables: TableCache,
    pub ddl: Option<Box<DdlState>>,
    pub savepoints: Vec<SavepointState>,
    pub savepoint_counter: u64,
    /// The highest place of anything read, absence included (I3).
    pub depends: Lsn,
    pub choices: Choices,
    pub cancelled: Arc<AtomicBool>,
    /// Scratch, so that operations allocate nothing.
    pub key: Key,
    pub body: Vec<u8>,
    pub other_body: Vec<u8>,
    /// Scratch: what changes of a row.
    pub patches: Vec<FieldPatch>,
    /// Scratch, once there was a scan.
    pub scan_scratch: Option<Box<ScanScratch>>,
    pub began: Moment,
    /// What the transaction has waited for locks, once it has ended.
    pub lock_wait_ns: u64,
    /// What its slot had counted of waits when the last transaction ended.
    waited_before_ns: u64,
    /// Where its time went, once it has its place.
    pub ledger: Ledger,
    pub reads: UnlockedReads,
    /// What the action that runs may touch, and has locked.
    pub scope: Scope,
    /// Its side of a black/white sweep.
    pub colours: Colours,
    /// Snapshots that its commit was promised room for.
    pub promised: usize,
    /// Where hidden row numbers come from.
    pub numbers: NumberSource,
    /// Where in the packet the call begins that the transaction is logged as; 0 if it is logged as its write set.
    pub call_from: u32,
    /// DDL has made the table cache out of date.
    pub forget_tables: bool,
    /// Chosen as a deadlock's victim: nothing but an abort is left.
    doomed: Option<Error>,
    limit: Option<TimeLimit>,
    waits: CommitWaits,
    /// Whether it has a limit or is doomed.
    has_limits: bool,
    /// Whether it has a limit, waits of its own, or is doomed.
    has_times: bool,
}

/// [`TxOptions`] with the database's defaults filled in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choices {
    pub durability: Durability,
    pub lock_timeout: Duration,
    pub read_only: bool,
    pub lock_wait: LockPolicy,
    pub procedure: ProcedureId,
    /// Increments are logged as such ([`Logging::Action`](crate::Logging::Action)).
    pub operations: bool,
}

/// How long a transaction may take ([`TxOptions::timeout`]).
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    timeout: Duration,
    deadline: Instant,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SavepointState {
    pub id: u64,
    pub mark: Mark,
    pub ddl_changes: usize,
    pub direct_rows: usize,
}

/// A point in a transaction to which it can be rolled back. Good until the transaction ends, or the savepoint or one
/// before it is released or rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    id: u64,
}

/// Cancels a transaction from another thread.
#[derive(Clone)]
pub struct Canceller {
    cancelled: Arc<AtomicBool>,
    core: Arc<Core>,
    owner: u16,
}

impl Canceller {
    /// Makes the transaction's running or next operation fail with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.core.locks.interrupt(self.owner);
    }
}

impl Context {
    /// `None`: there is no lock slot left.
    pub fn new(core: Arc<Core>, number: usize) -> Option<Context> {
        let owner = core.locks.take()?;
        let (choices, began) = (core.choices(&TxOptions::default()), Moment::now());
        let waited_before_ns = core.locks.waited_ns(&owner);
        Some(Context {
            home: None,
            packet: None,
            lease: Lease::new(&core),
            core,
            number,
            owner,
            open: false,
            writing: false,
            writes: WriteSet::default(),
            tables: TableCache::default(),
            ddl: None,
            savepoints: Vec::new(),
            savepoint_counter: 0,
            depends: Lsn::ZERO,
            choices,
            cancelled: Arc::new(AtomicBool::new(false)),
            key: Key::new(),
            body: Vec::new(),
            other_body: Vec::new(),
            patches: Vec::new(),
            scan_scratch: None,
            began,
            lock_wait_ns: 0,
            waited_before_ns,
            ledger: Ledger { began, waits: Waits::default(), lock_wait_ns: 0 },
            reads: UnlockedReads::default(),
            scope: Scope::default(),
            colours: Colours::default(),
            promised: 0,
            numbers: NumberSource::Next,
            call_from: 0,
            forget_tables: false,
            doomed: None,
            limit: None,
            waits: CommitWaits::default(),
            has_limits: false,
            has_times: false,
        })
    }

    /// Makes the context, which was lent just now, a fresh transaction's. One that runs again after a deadlock says when it
    /// first `started`.
    #[inline(always)]
    pub fn begin(&mut self, options: &TxOptions, started: Option<Moment>) -> Result<()> {
        if rarely(options.has_times() || self.has_times) {
            self.begin_with_times(options)?;
        }
        self.began = Moment::now();
        let owner = &mut self.owner;
        self.core.locks.open(owner, started.unwrap_or(self.began));
        self.open = true;
        self.choices = self.core.choices(options);
        self.tables.begin();
        self.read_unlocked(false);
        self.colours.begin(self.core.segments.painting().is_noted());
        if rarely(self.scope.is_on()) {
            self.scope.end();
        }
        self.depends = Lsn::ZERO;
        // A canceller of an earlier transaction must not reach this one.
        if rarely(self.cancelled.load(Ordering::Relaxed) || Arc::strong_count(&self.cancelled) > 1) {
            self.cancelled = Arc::new(AtomicBool::new(false));
        }
        Ok(())
    }

    /// What [`Context::begin`] does of times and of what an earlier transaction has left of them.
    #[cold]
    fn begin_with_times(&mut self, options: &TxOptions) -> Result<()> {
        let waits = options.waits()?;
        let limit = options.timeout.map(|timeout| TimeLimit { timeout, deadline: Instant::now() + timeout });
        (self.waits, self.limit, self.doomed) = (waits, limit, None);
        (self.has_limits, self.has_times) = (limit.is_some(), options.has_times());
        Ok(())
    }

    /// Makes the context a fresh one for a part of this transaction.
    pub fn begin_as_part(&mut self, whole: &Context) -> Result<()> {
        self.begin(&TxOptions::default(), Some(whole.began))?;
        self.choices = whole.choices;
        (self.waits, self.limit) = (whole.waits, whole.limit);
        (self.has_limits, self.has_times) = (whole.limit.is_some(), whole.has_times);
        self.colours.patient = whole.colours.patient;
        Ok(())
    }

    /// What the transaction says about the stall of its commit.
    pub fn patience(&self) -> Patience {
        let CommitWaits { stall, willing_to_wait } = self.waits;
        Patience { began: Some(self.began), stall, willing_to_wait }
    }

    /// What every operation checks first.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if rarely(self.is_hindered()) { self.check_slowly() } else { Ok(()) }
    }

    /// Whether there is something to be checked.
    #[inline]
    pub fn is_hindered(&self) -> bool {
        self.has_limits || self.cancelled.load(Ordering::Relaxed)
    }

    #[cold]
    fn check_slowly(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if let Some(limit) = self.limit
            && Instant::now() > limit.deadline
        {
            return Err(self.timed_out());
        }
        match &self.doomed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Leaves nothing but an abort.
    pub fn doom(&mut self, error: Error) {
        (self.doomed, self.has_limits, self.has_times) = (Some(error), true, true);
    }

    /// Is doomed if a part of it is.
    pub fn share_doom(&mut self, part: &mut Context) {
        if self.doomed.is_none()
            && let Some(error) = part.doomed.take()
        {
            self.doom(error);
        }
    }

    fn timed_out(&self) -> Error {
        Error::Timeout { limit_ms: self.limit.map_or(0, |limit| limit.timeout.as_millis() as u64) }
    }

    /// What every write checks first; sees to a packet for the first.
    #[inline(always)]
    pub fn check_write(&mut self) -> Result<()> {
        if rarely(self.writing || !self.begin_to_write()) { self.check_write_slowly() } else { Ok(()) }
    }

    /// Begins with the packet that is kept for the context, if it is free and there is nothing to be checked.
    #[inline(always)]
    fn begin_to_write(&mut self) -> bool {
        if rarely(self.is_hindered() || self.choices.read_only || !self.core.log.is_open()) {
            return false;
        }
        if rarely(self.packet.is_none()) {
            self.packet = self.home.as_mut().and_then(HomeSlot::borrow);
        }
        self.writing = self.packet.is_some();
        self.writing
    }

    #[inline(never)]
    fn check_write_slowly(&mut self) -> Result<()> {
        self.check()?;
        if self.choices.read_only {
            return Err(Error::ReadOnly);
        }
        if self.writing {
            return Ok(());
        }
        match self.packet {
            Some(_) => self.core.log.check_open()?,
            None => {
                self.packet = Some(match self.core.log.try_borrow_packet_at(&mut self.home)? {
                    Some(packet) => packet,
                    None => {
                        self.core.locks.leave_stint(&mut self.owner);
                        self.core.log.borrow_packet()?
                    }
                });
            }
        }
        self.writing = true;
        Ok(())
    }

    /// Runs a lock request, keeps its waiting time and puts the lock's name into its error.
    pub fn lock<T>(
        &mut self,
        request: impl FnOnce(&Core, &mut Owner, &TableCache, &Key, &Wait<'_>) -> Result<T, LockError>,
        target: impl FnOnce(&TableCache, &Key) -> LockTarget,
    ) -> Result<T> {
        let wait = Wait {
            policy: self.choices.lock_wait,
            timeout: Some(self.choices.lock_timeout),
            deadline: self.limit.map(|limit| limit.deadline),
            cancelled: &self.cancelled,
        };
        let owner = &mut self.owner;
        match request(&self.core, owner, &self.tables, &self.key, &wait) {
            Ok(granted) => Ok(granted),
            Err(error) => Err(self.lock_error(error, target)),
        }
    }

    #[cold]
    fn lock_error(
        &mut self,
        error: LockError,
        target: impl FnOnce(&TableCache, &Key) -> LockTarget,
    ) -> Error {
        let lock = || self.core.catalog.print_lock(&target(&self.tables, &self.key));
        match error {
            LockError::Deadlock => {
                let error = Error::Deadlock { waiting_for: lock() };
                self.doom(error.clone());
                error
            }
            LockError::Timeout { waited } => {
                Error::LockTimeout { lock: lock(), waited_ms: waited.as_millis() as u64 }
            }
            LockError::Deadline { .. } => self.timed_out(),
            LockError::WouldWait => Error::WouldWait { lock: lock() },
            LockError::Cancelled => Error::Cancelled,
            LockError::Shutdown => Error::Closed,
        }
    }

    /// The transaction has read something that this place wrote (I3).
    #[inline]
    pub fn depend(&mut self, lsn: Lsn) {
        self.depends = self.depends.max(lsn);
    }

    #[inline]
    pub fn packet_bytes(&self) -> &[u8] {
        self.packet.as_ref().map_or(&[], |packet| packet.bytes())
    }

    /// Where the transaction stands now.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.writes.mark(self.packet_bytes().len())
    }

    /// Takes writes, their index entries and their slots back, down to `mark`.
    pub fn roll_back_to(&mut self, mark: &Mark) {
        while let Some(add) = self.writes.pop_add(mark) {
            let index = self.tables.at(add.slot).index(add.index);
            match add.replaced {
                Some(before) => {
                    index.replace(&add.key, add.record.0, before.0);
                }
                None => {
                    index.remove(&add.key, None);
                }
            }
        }
        let packet = self.packet.as_ref().map_or(&[][..], |packet| packet.bytes());
        while let Some(write) = self.writes.pop_write(mark, packet) {
            let table = self.tables.at(write.slot);
            let heap = &table.heap;
            if write.entered {
                table.primary.remove(key_of(&write, packet), None);
            }
            if let Some(moved_to) = write.moved_to {
                heap.release(self.number, moved_to);
            }
            if write.fresh {
                heap.release(self.number, write.record);
            }
        }
        if let Some(packet) = &mut self.packet {
            packet.bytes_mut().truncate(mark.packet);
        }
    }

    /// Ends the transaction without effect.
    pub fn abort(&mut self) {
        if let Some(ddl) = self.ddl.take() {
            self.core.locks.leave_stint(&mut self.owner);
            // The index entries of rows in tables that go away need no taking back one by one, but do no harm.
            self.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
            ddl.discard(self);
        } else {
            self.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
        }
        if self.open && !self.reads.runs_again() {
            self.core.accounts.aborted(self.number, self.choices.procedure);
        }
        self.finish_unapplied();
    }

    #[inline(never)]
    fn finish_unapplied(&mut self) {
        self.drop_packet();
        self.finish();
    }

    /// Gives the packet of a transaction back that has no place.
    #[inline(always)]
    fn drop_packet(&mut self) {
        if rarely(self.writing) {
            self.packet = None;
        }
    }

    /// Releases the locks and what else the transaction held. Its packet is gone already, or empty.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        debug_assert!(self.packet_bytes().is_empty());
        self.writing = false;
        self.writes.clear();
        self.savepoints.clear();
        if rarely(self.call_from != 0 || !matches!(self.numbers, NumberSource::Next)) {
            (self.call_from, self.numbers) = (0, NumberSource::Next);
        }
        if std::mem::take(&mut self.open) {
            let Context { core, owner, .. } = self;
            let waited_ns = core.locks.finish(owner, &*core.segments);
            self.lock_wait_ns = waited_ns - std::mem::replace(&mut self.waited_before_ns, waited_ns);
        }
        if rarely(std::mem::take(&mut self.forget_tables)) {
            self.tables.clear();
        }
    }

    /// Takes the place in the log, applies, releases (I2). Gives what the reply has to wait for.
    pub fn commit(&mut self) -> Result<Lsn> {
        if let Err(error) = self.prepare() {
            self.abort();
            return Err(error);
        }
        let lsn = if self.writes.is_empty() && self.logs_nothing() {
            self.drop_packet();
            self.depends
        } else {
            match self.place_and_apply() {
                Ok(lsn) => lsn,
                Err(error) => {
                    self.abort();
                    return Err(error);
                }
            }
        };
        self.finish();
        Ok(lsn)
    }

    #[inline(always)]
    fn place_and_apply(&mut self) -> Result<Lsn> {
        let alone = self.place_alone();
        let (lsn, owes) = match alone {
            Some(lsn) => (lsn, false),
            None => self.place_among_others()?,
        };
        let whole = WholeOrNothing;
        self.apply(lsn);
        std::mem::forget(whole);
        self.core.in_flight.leave(self.number);
        if rarely(owes) {
            self.end_flight();
        }
        match alone {
            Some(_) => self.keep_packet(),
            None => {
                if let Some(packet) = self.packet.take() {
                    self.core.log.applied(packet);
                }
            }
        }
        Ok(lsn)
    }

    /// Takes the place of a commit at level 1 and makes it durable there in one go, if nobody else is at it. In flight from
    /// before it (I5), if so.
    #[inline(always)]
    fn place_alone(&mut self) -> Option<Lsn> {
        let Context { core, packet: Some(packet), ddl: None, call_from: 0, number, choices, .. } = self
        else {
            return None;
        };
        let is_commit = core.packet_kind() == PacketKind::Commit;
        if choices.durability != Durability::Memory || !is_commit || canary::releases_before_place() {
            return None;
        }
        let gate = core.in_flight.enter(*number, core.log.place());
        let placed = match gate == Gate::Open && core.is_open() {
            true => {
                let whole = WholeOrNothing;
                let placed = core.log.place_alone(packet, PacketKind::Commit);
                std::mem::forget(whole);
                placed
            }
            false => None,
        };
        if placed.is_none() {
            core.in_flight.leave(*number);
        }
        placed
    }

    /// Takes the place of a commit in the queue, after all that can fail there. Whether it owes a sweep something: see
    /// [`Context::end_flight`].
    #[inline(never)]
    fn place_among_others(&mut self) -> Result<(Lsn, bool)> {
        self.reserve()?;
        // I5: in flight from before its push until the last of its writes is applied.
        let owes = self.enter_flight()?;
        if canary::releases_before_place() {
            let owner = &mut self.owner;
            self.core.locks.release_all_thin(owner, &*self.core.segments);
            std::thread::yield_now();
        }
        Ok((self.push(), owes))
    }

    /// Keeps the packet, which only this context has seen, for the next transaction, if it is the home slot's.
    #[inline(always)]
    fn keep_packet(&mut self) {
        match &mut self.packet {
            Some(packet) if self.home.as_ref().is_some_and(|home| home.is(packet)) => packet.reuse(),
            packet => {
                cold_path();
                *packet = None;
            }
        }
    }

    /// Whether there is no DDL either that has come to something: it may have been refused, or rolled back to a savepoint.
    /// Then it is forgotten.
    #[inline(always)]
    fn logs_nothing(&mut self) -> bool {
        self.ddl.is_none() || self.discards_ddl()
    }

    #[cold]
    fn discards_ddl(&mut self) -> bool {
        let nothing = self.packet_bytes().is_empty();
        if nothing && let Some(ddl) = self.ddl.take() {
            ddl.discard(self);
        }
        nothing
    }

    /// Takes the place of the packet.
    #[inline(always)]
    fn push(&mut self) -> Lsn {
        if rarely(self.call_from != 0) {
            return self.push_call();
        }
        let Context { core, packet: Some(packet), .. } = self else {
            unreachable!("a writing transaction has a packet")
        };
        core.log.push(packet, core.packet_kind())
    }

    /// The same of a call. It is replayed whole, so it must not be where the backup copy holds it. (Values and operations are
    /// redone row by row, as the rows' places say.)
    #[cold]
    fn push_call(&mut self) -> Lsn {
        let held_by = self.held_by();
        let packet = self.packet.as_mut().expect("a writing transaction has a packet");
        self.core.log.push_call(packet, self.call_from, held_by)
    }

    /// Applies the write set of a call that runs again, at the place that the call has in the log.
    pub fn apply_again(&mut self, lsn: Lsn) {
        if self.writing {
            self.apply(lsn);
        }
        self.finish_unapplied();
    }

    /// Passes the gate before the place. What the commit may have to keep for a sweep at a cut is promised to it (I10), what
    /// it is white on for a black/white sweep it holds. Gives whether there is any of both, for [`Context::end_flight`]. After
    /// an error it is not in flight.
    #[inline(always)]
    fn enter_flight(&mut self) -> Result<bool> {
        let owes = match self.core.in_flight.enter(self.number, self.core.log.place()) {
            Gate::Open => false,
            gate => self.enter_flight_slowly(gate)?,
        };
        if let Err(error) = self.core.check_open() {
            self.core.in_flight.leave(self.number);
            self.end_flight();
            return Err(error);
        }
        Ok(owes)
    }

    /// Gives back what the commit had of a sweep on its way.
    #[cold]
    fn end_flight(&mut self) {
        self.core.segments.snapshots().keep_promise(std::mem::take(&mut self.promised));
        self.end_colour();
    }

    #[cold]
    fn enter_flight_slowly(&mut self, mut gate: Gate) -> Result<bool> {
        self.core.locks.leave_stint(&mut self.owner);
        loop {
            let segments = &self.core.segments;
            match gate {
                Gate::Open => return Ok(false),
                Gate::Snapshots => {
                    let needed = self.segments_to_keep();
                    if segments.snapshots().promise(needed) {
                        self.promised = needed;
                        return Ok(needed > 0);
                    }
                    self.core.in_flight.leave(self.number);
                    let _waiting = Waiting::for_latch();
                    let _blocked = Blocked::enter();
                    segments.snapshots().wait(SNAPSHOT_LOOK_EVERY);
                }
                Gate::Colours => {
                    let settled = self.settle_colour();
                    if settled == Settled::OneColour {
                        return Ok(true);
                    }
                    self.core.in_flight.leave(self.number);
                    let waits = self.colours.patient || self.ddl.is_some();
                    if settled == Settled::Mixed && !waits {
                        self.core.accounts.mixed(self.number, self.choices.procedure);
                        return Err(Error::MixedColours);
                    }
                    let _waiting = Waiting::for_latch();
                    let _blocked = Blocked::enter();
                    self.core.segments.painting().wait(COLOUR_LOOK_EVERY);
                }
                Gate::Closed => {
                    self.core.in_flight.leave(self.number);
                    let _waiting = Waiting::for_latch();
                    self.core.in_flight.wait_at_gate();
                }
            }
            self.core.check_open()?;
            self.check()?;
            gate = self.core.in_flight.enter(self.number, self.core.log.place());
        }
    }

    /// How many segments the commit may have to keep before it changes them.
    fn segments_to_keep(&self) -> usize {
        let places = self.writes.writes().iter().flat_map(|write| [write.record, write.lands_in()]);
        let segments = places.map(RecordRef::segment).filter(|&id| self.core.segments.is_to_be_kept(id));
        let mut segments: SmallVec<[SegmentId; 16]> = segments.collect();
        segments.sort_unstable();
        segments.dedup();
        segments.len()
    }

    /// Everything that can fail, done before the place (I10).
    #[inline(always)]
    fn prepare(&mut self) -> Result<()> {
        self.check()?;
        if rarely(self.is_spoiled()) {
            return self.spoil();
        }
        if rarely(self.ddl.is_some()) {
            self.core.locks.leave_stint(&mut self.owner);
            self.prepare_ddl()?;
        }
        Ok(())
    }

    /// Reserves log space for the packet.
    #[inline(always)]
    fn reserve(&mut self) -> Result<()> {
        let Context { core, packet: Some(packet), .. } = self else { return Ok(()) };
        if core.log.reserves_at_once(packet) { Ok(()) } else { self.reserve_slowly() }
    }

    #[cold]
    fn reserve_slowly(&mut self) -> Result<()> {
        let Some(packet) = &mut self.packet else { return Ok(()) };
        if !self.core.log.try_reserve(packet, 0)? {
            self.core.locks.leave_stint(&mut self.owner);
            self.core.log.reserve(packet, 0)?;
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.core.locks.give_back(&mut self.owner);
    }
}

/// Held while a lone commit takes its place and while a write set is applied. A panic there (a bug of ours: nothing in it can
/// fail, I10) leaves a place without a packet, or tables that no log prefix describes, which must be neither read nor
/// checkpointed: the process ends, and recovery makes them whole.
struct WholeOrNothing;

impl Drop for WholeOrNothing {
    fn drop(&mut self) {
        eprintln!(
            "rialto: a panic while a commit was applied; ending the process, reopen the database to recover"
        );
        std::process::abort();
    }
}

impl Transaction {
    pub(crate) fn context(&mut self) -> &mut Context {
        self.context.as_mut().expect("the transaction is open")
    }

    /// Commits and waits until the outcome is as durable as the transaction asked.
    ///
    /// # Errors
    /// Those that keep a transaction from taking its place, after which it is aborted; [`Error::OutcomeUnknown`] if the
    /// log fails after that.
    pub fn commit(mut self) -> Result<()> {
        self.take_place(None)?.wait_here()
    }

    /// Commits without waiting: the ticket tells when the outcome is durable. Dropping the ticket cancels nothing.
    ///
    /// # Errors
    /// Those that keep a transaction from taking its place; it is then aborted.
    pub fn submit(mut self) -> Result<Ticket> {
        Ok(self.take_place(None)?.ticket())
    }

    /// Aborts: nothing of the transaction is kept. Waits until what it read is durable, since the caller may act on it.
    ///
    /// # Errors
    /// If the log fails before that.
    pub fn abort(mut self) -> Result<()> {
        let ticket = self.settled();
        self.context().abort();
        self.release();
        ticket.wait()
    }

    /// A ticket for what the transaction has read so far: done when all of it is as durable as the transaction asks.
    /// Whoever tells somebody outside of a failed operation waits for it first (I3).
    pub fn settled(&mut self) -> Ticket {
        let context = self.context();
        Ticket::new(context.lease.clone(), context.depends, context.choices.durability, context.patience())
    }

    fn release(&mut self) {
        if let Some(context) = self.context.take() {
            context.lease.clone().contexts.give_back(context);
        }
    }

    /// Changes how the transaction waits for locks from here on.
    pub fn set_lock_policy(&mut self, policy: LockPolicy) {
        self.context().choices.lock_wait = policy;
    }

    /// Changes how durable the transaction's commit will be.
    pub fn set_durability(&mut self, durability: Durability) {
        let context = self.context();
        context.choices.durability = context.core.durability(durability);
    }

    /// Changes how long the transaction stalls at its commit ([`TxOptions::commit_stall`]) and how long it is willing to
    /// wait in all ([`TxOptions::willing_to_wait`]). More than [`WAIT_MAX`](crate::log::group_commit::WAIT_MAX) counts as
    /// that.
    pub fn set_waits(&mut self, commit_stall: Option<Duration>, willing_to_wait: Option<Duration>) {
        let bounded = |wait: Option<Duration>| wait.map(|wait| wait.min(WAIT_MAX));
        let waits = CommitWaits { stall: bounded(commit_stall), willing_to_wait: bounded(willing_to_wait) };
        let context = self.context();
        (context.waits, context.has_times) = (waits, true);
    }

    /// How durable the transaction's commit will be.
    pub fn durability(&mut self) -> Durability {
        self.context().choices.durability
    }

    /// An error if the transaction may not go on: for work between operations that takes long.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Timeout`]; [`Error::Deadlock`] if it is a deadlock's victim.
    pub fn check(&mut self) -> Result<()> {
        self.context().check()
    }

    /// A handle that cancels this transaction from another thread.
    pub fn canceller(&mut self) -> Canceller {
        let context = self.context();
        Canceller {
            cancelled: context.cancelled.clone(),
            core: context.core.clone(),
            owner: context.owner.id(),
        }
    }

    /// A point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        let context = self.context();
        context.savepoint_counter += 1;
        let state = SavepointState {
            id: context.savepoint_counter,
            mark: context.mark(),
            ddl_changes: context.ddl.as_ref().map_or(0, |ddl| ddl.changes()),
            direct_rows: context.ddl.as_ref().map_or(0, |ddl| ddl.direct_rows()),
        };
        context.savepoints.push(state);
        Savepoint { id: state.id }
    }

    fn find_savepoint(&mut self, savepoint: &Savepoint) -> Result<usize> {
        let savepoints = &self.context().savepoints;
        let missing = || Error::NoSuchSavepoint { name: format!("number {}", savepoint.id) };
        savepoints.iter().rposition(|state| state.id == savepoint.id).ok_or_else(missing)
    }

    /// Takes back everything since the savepoint, which stays. Locks are kept.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`] if it was released, or rolled back over.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let position = self.find_savepoint(savepoint)?;
        let context = self.context();
        let state = context.savepoints[position];
        context.savepoints.truncate(position + 1);
        context.roll_back_to(&state.mark);
        context.colours.note_anything_absent();
        context.roll_back_ddl(&state);
        Ok(())
    }

    /// Forgets a savepoint and those after it; their changes stay.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`] if it was released before, or rolled back over.
    pub fn release_savepoint(&mut self, savepoint: Savepoint) -> Result<()> {
        let position = self.find_savepoint(&savepoint)?;
        self.context().savepoints.truncate(position);
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(context) = &mut self.context {
            context.abort();
        }
        self.release();
    }
}
