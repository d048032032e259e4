//! [`Transaction`]: from `begin` to its place in the log.

use std::cell::Cell;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::calls::NumberSource;
use super::cancellation::Cancellation;
use super::canceller::Canceller;
use super::colour::{Colours, Settled};
use super::ddl_state::DdlState;
use super::loaded_rows::{LoadMark, LoadedRows};
use super::options::{CommitWaits, LockPolicy, TxOptions};
use super::part::{Choice, View};
use super::releases::Debt;
use super::scan::ScanScratch;
use super::scope::Scope;
use super::tables::TableCache;
use super::unlocked::UnlockedReads;
use super::write_set::{ENTRIES_PER_PACKET, Mark, WriteSet, key_of};
use crate::account::blocked::Blocked;
use crate::account::waits::{Waiting, Waits};
use crate::account::{Ledger, ProcedureId};
use crate::canary;
use crate::commit::Gate;
use crate::commit::Logging;
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::inside::check_may_wait;
use crate::io::{FOR_EVER, Moment};
use crate::isolate::{LockError, LockTarget, Owner, Wait};
use crate::log::group_commit::WAIT_MAX;
use crate::log::{Durability, HomeSlot, PacketKind, PacketSlot, Patience};
use crate::opening::Opening;
use crate::rarely::rarely;
use crate::reply::{Failure, LogLease, Outcome, Ticket};
use crate::row::{FieldPatch, Key};
use crate::store::memory::{RecordRef, SegmentId};
use crate::txn::core::{Core, Lease};

/// How often a commit looks again that waits at a gate, for room for snapshots, or for definitions.
const GATE_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often a commit looks again that waits for a black/white sweep to paint some segments.
const COLOUR_LOOK_EVERY: Duration = Duration::from_millis(2);

/// A transaction: the handle that a body of [`Database::transact`](crate::Database::transact) works with, or that
/// [`Database::begin`](crate::Database::begin) gives for use across calls. It is `Send`; dropping it aborts.
///
/// Reads and writes take their locks as they run and give copies. Writes stay in the transaction's own write set until
/// it commits (I1), and are seen by its own reads.
///
/// The lifetime of a handle is `'static`. Each body is lent a transaction of a lifetime of its own. No other transaction has that
/// type, so what a body gives back is the transaction that it was lent.
///
/// ```
/// fn handles(db: &rialto::Database, other: &rialto::Database) -> rialto::Result<()> {
///     let (mut one, mut two) = (db.begin()?, other.begin()?);
///     std::mem::swap(&mut one, &mut two);
///     db.transact(|tx| tx.check())?;
///     one.commit()
/// }
/// # let _flow = rialto::Flow::of(|tx, _, _| tx.check());
/// ```
///
/// ```compile_fail,E0521
/// fn closure(db: &rialto::Database, other: &rialto::Database) -> rialto::Result<()> {
///     let mut two = other.begin()?;
///     db.transact(|tx| Ok(std::mem::swap(tx, &mut two)))
/// }
/// ```
///
/// ```compile_fail,E0521
/// fn action(other: rialto::Database) -> rialto::Flow {
///     rialto::Flow::of(move |tx, _, _| std::mem::replace(tx, other.begin()?).commit())
/// }
/// ```
pub struct Transaction<'body> {
    /// Present until the transaction ends.
    pub(crate) context: Option<Box<Context>>,
    /// Neither longer nor shorter lifetimes will do.
    lent: PhantomData<fn(&'body ()) -> &'body ()>,
}

/// A transaction's working state, lent from a pool with its memory, lock slot and table cache.
pub(crate) struct Context {
    /// The packet slot that is kept for it, a part's among those of parts. Before the core, and so dropped before it.
    home: Option<HomeSlot>,
    /// The transaction's packet; before it writes, that of the home slot, empty, if the last transaction had it to itself to the
    /// end.
    pub packet: Option<PacketSlot>,
    pub core: Arc<Core>,
    /// The same, behind a count that only this context's transactions and their tickets touch.
    pub lease: Lease,
    /// For its tickets.
    pub log: LogLease,
    /// This context's number, below [`Options::transactions_max`](crate::Options::transactions_max); of a part's, among those
    /// of parts.
    pub number: usize,
    /// The lock slot; none, while it is in the debt.
    pub owner: Owner,
    /// Whether a transaction is in it.
    pub open: bool,
    /// Its transaction has ended, but holds locks at executors, which another thread releases.
    pub debt: Option<Arc<Debt>>,
    /// It was refused a lock that it asked for.
    was_refused: bool,
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
    pub cancellation: Arc<Cancellation>,
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
    /// What it has of its transaction while that runs in parts.
    pub view: View,
    /// Whether it is one of those for parts.
    is_for_parts: bool,
    /// Parts that it has absorbed, and that hold locks for it until it ends: the lock tables were out when the parts met.
    #[allow(clippy::vec_box, reason = "contexts are lent in their boxes")]
    pub(super) kept_parts: Vec<Box<Context>>,
    /// How long the packet may become.
    pub room: usize,
    /// What the write set's index entries may take.
    pub room_for_entries: usize,
    /// Snapshots that its commit was promised room for.
    pub promised: usize,
    /// Its commit has waited, and goes on without its executor's turn.
    blocked: Option<Blocked>,
    /// Its commit has passed the gate of [`Definitions`](crate::commit::Definitions), and keeps others there.
    defines: bool,
    /// Where hidden row numbers come from.
    pub numbers: NumberSource,
    /// Where in the packet the call begins that the transaction is logged as; 0 if it is logged as its write set.
    pub call_from: u32,
    /// The first error that an operation has given and that another run on the same rows may not give. Of a deterministic
    /// procedure's call, which says when that begins.
    pub of_the_moment: Option<Error>,
    /// DDL has made the table cache out of date.
    pub forget_tables: bool,
    /// Chosen as a deadlock's victim: nothing but an abort is left.
    doomed: Option<Error>,
    /// It runs again because another transaction of its thread has met its executor lease, whatever the number of its deadlocks.
    pub met_lease: bool,
    limit: Option<TimeLimit>,
    pub(super) waits: CommitWaits,
    /// Whether it has a limit, is doomed, or has written and may write no more.
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
    /// How many entries the list of tables has.
    pub tables: usize,
    pub ddl_changes: usize,
    pub loaded_rows: LoadMark,
}

/// A point in a transaction to which it can be rolled back. Good until the transaction ends, or the savepoint or one
/// before it is released or rolled back; one that an action of a flow makes is good in that action only, and none of before is
/// good there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    opening: Opening,
    id: u64,
}

impl Context {
    /// `None`: there is no lock slot left.
    pub fn new(core: Arc<Core>, number: usize) -> Option<Context> {
        let owner = core.locks.take()?;
        let (choices, began) = (core.choices(&TxOptions::default()), Moment::now());
        let opening = core.storage.catalog.opening();
        let waited_before_ns = core.locks.waited_ns(&owner);
        let room = core.defaults.write_set_bytes_max;
        Some(Context {
            home: None,
            packet: None,
            lease: Lease::new(&core),
            log: LogLease::new(&core.commits.log, &core.commits.accounts),
            core,
            number,
            owner,
            open: false,
            debt: None,
            was_refused: false,
            writing: false,
            writes: WriteSet::default(),
            tables: TableCache::new(opening),
            ddl: None,
            savepoints: Vec::new(),
            savepoint_counter: 0,
            depends: Lsn::ZERO,
            choices,
            cancellation: Cancellation::new(),
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
            view: View::default(),
            is_for_parts: false,
            kept_parts: Vec::new(),
            room,
            room_for_entries: ENTRIES_PER_PACKET * room,
            promised: 0,
            blocked: None,
            defines: false,
            numbers: NumberSource::Next,
            call_from: 0,
            of_the_moment: None,
            forget_tables: false,
            doomed: None,
            met_lease: false,
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
            self.begin_with_times(options, started)?;
        }
        self.began = Moment::now();
        let owner = &mut self.owner;
        self.core.locks.open(owner, started.unwrap_or(self.began));
        self.open = true;
        self.choices = self.core.choices(options);
        self.tables.begin();
        self.read_unlocked(false);
        self.colours.begin(self.core.storage.segments.painting().is_noted());
        if rarely(self.scope.is_on()) {
            self.scope.end();
        }
        self.depends = Lsn::ZERO;
        // A canceller of an earlier transaction must not reach this one.
        if rarely(self.cancellation.is_used()) {
            self.cancellation = Cancellation::new();
        }
        Ok(())
    }

    /// What [`Context::begin`] does of times and of what an earlier transaction has left of them.
    #[cold]
    fn begin_with_times(&mut self, options: &TxOptions, started: Option<Moment>) -> Result<()> {
        let waits = options.waits()?;
        // All its runs have one limit.
        let spent = started.map_or(0, |started| Moment::now().ns_since(started));
        let limit = options.timeout.map(|timeout| TimeLimit {
            timeout,
            deadline: Instant::now() + timeout.min(FOR_EVER).saturating_sub(Duration::from_nanos(spent)),
        });
        (self.waits, self.limit, self.doomed, self.was_refused) = (waits, limit, None, false);
        (self.has_limits, self.has_times) = (limit.is_some(), options.has_times());
        self.met_lease = false;
        Ok(())
    }

    /// Makes the context a fresh one for a part of this transaction.
    pub fn begin_as_part(&mut self, whole: &Context) -> Result<()> {
        self.is_for_parts = true;
        self.begin(&TxOptions::default(), Some(whole.owner.started()))?;
        (self.began, self.depends, self.choices) = (whole.began, whole.depends, whole.choices);
        (self.waits, self.limit) = (whole.waits, whole.limit);
        (self.has_limits, self.has_times) = (whole.limit.is_some(), whole.has_times);
        if whole.colours.is_patient() {
            self.colours.be_patient();
        }
        Ok(())
    }

    /// What the transaction says about the stall of its commit.
    pub fn patience(&self) -> Patience {
        let CommitWaits { stall, willing_to_wait } = self.waits;
        Patience { began: Some(self.began), stall, willing_to_wait }
    }

    /// Whether it runs a deterministic procedure, and is logged as a call unless something else says no.
    #[inline]
    pub fn may_be_a_call(&self) -> bool {
        self.ddl.is_none() && !matches!(self.numbers, NumberSource::Next)
    }

    /// What every operation checks first.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if rarely(self.is_hindered()) { self.check_slowly() } else { Ok(()) }
    }

    /// Whether there is something to be checked.
    #[inline]
    pub fn is_hindered(&self) -> bool {
        self.has_limits || self.cancellation.is_asked()
    }

    #[cold]
    fn check_slowly(&self) -> Result<()> {
        if self.cancellation.is_asked() {
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

    pub(super) fn set_waits(&mut self, waits: CommitWaits) {
        // The next transaction of the context begins without them.
        (self.waits, self.has_times) = (waits, true);
    }

    /// Decides whether the transaction may write from here on.
    pub(super) fn set_read_only(&mut self, read_only: bool) {
        self.choices.read_only = self.scope.set_read_only(read_only);
        // A transaction that has written may not write on unless each write is checked.
        let gives_up = self.writing && read_only;
        self.has_limits = self.limit.is_some() || self.doomed.is_some() || gives_up;
    }

    /// Ends an action in shared mode: whether the transaction may write is the transaction's choice again.
    pub fn end_shared_action(&mut self) {
        let read_only = self.scope.is_read_only_after();
        self.choices.read_only = read_only;
        if rarely(read_only && self.writing) {
            self.has_limits = true;
        }
    }

    /// An operation gives this error to its body.
    #[cold]
    fn note_error(&mut self, error: &Error) {
        if !error.is_of_the_moment() {
            // I3: it may rest on what a definition made of a table, and on no row.
            self.depend_on_definitions();
        } else if self.of_the_moment.is_none() {
            self.of_the_moment = Some(error.clone());
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
        if rarely(self.is_hindered() || self.choices.read_only || !self.core.commits.log.is_open()) {
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
            Some(_) => self.core.commits.log.check_open()?,
            None => {
                self.packet = Some(match self.core.commits.log.try_borrow_packet_at(&mut self.home)? {
                    Some(packet) => packet,
                    None => {
                        debug_assert!(!self.view.is_part(), "a part that writes has its packet");
                        self.core.locks.leave_stint(&mut self.owner);
                        self.core.commits.log.wait_for_packet(|| self.check_open())?
                    }
                });
            }
        }
        self.writing = true;
        Ok(())
    }

    /// Has a packet from here on, if one is free, for a transaction whose parts will write.
    pub(super) fn reserve_packet(&mut self) -> Result<()> {
        if self.packet.is_none() {
            let packet = self.core.commits.log.try_borrow_packet_at(&mut self.home)?;
            let none = Error::TooManyPackets { limit: self.core.defaults.packet_slots };
            self.packet = Some(packet.ok_or(none)?);
        }
        Ok(())
    }

    /// Has a packet from here on, for a part that will write: its own, always free when it begins.
    pub(super) fn take_part_packet(&mut self) {
        let pool = &self.core.part_packets;
        let home = self.home.get_or_insert_with(|| pool.home().expect("there is one for each part"));
        self.packet = Some(home.borrow().expect("the part before has given it back"));
    }

    /// Gives a packet back that was reserved, if nothing was written.
    pub(super) fn give_up_reserved_packet(&mut self) {
        if !self.writing && self.packet_bytes().is_empty() {
            self.packet = None;
        }
    }

    /// Runs a lock request, keeps its waiting time and puts the lock's name into its error.
    #[inline]
    pub fn lock<T>(
        &mut self,
        request: impl FnOnce(&Core, &mut Owner, &TableCache, &Key, &Wait<'_>) -> Result<T, LockError>,
        target: impl FnOnce(&TableCache, &Key) -> LockTarget,
    ) -> Result<T> {
        self.lock_since(&mut None, request, target)
    }

    /// The same of an operation that may have to ask again, for the same lock or for another one: `since` is when the first of
    /// its requests began to wait, so that all of them have one time-out.
    #[inline]
    pub fn lock_since<T>(
        &mut self,
        since: &mut Option<Instant>,
        request: impl FnOnce(&Core, &mut Owner, &TableCache, &Key, &Wait<'_>) -> Result<T, LockError>,
        target: impl FnOnce(&TableCache, &Key) -> LockTarget,
    ) -> Result<T> {
        let wait = Wait {
            policy: self.choices.lock_wait,
            since: Cell::new(*since),
            timeout: Some(self.choices.lock_timeout),
            deadline: self.limit.map(|limit| limit.deadline),
            cancelled: self.cancellation.flag(),
        };
        let owner = &mut self.owner;
        let outcome = request(&self.core, owner, &self.tables, &self.key, &wait);
        *since = wait.since.get();
        match outcome {
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
        // The next transaction of the context begins without.
        (self.was_refused, self.has_times) = (true, true);
        let lock = || target(&self.tables, &self.key).in_words(&self.core.storage.catalog);
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
            LockError::Split => {
                let what = format!("another part of a phase has changed {}", lock());
                self.need_whole(what)
            }
            LockError::TooMany { limit } => Error::TooManyLocks { limit },
            LockError::NoMemory { limit } => Error::LockMemory { limit },
            LockError::Shutdown => Error::Closed,
        }
    }

    /// The transaction has read something that this place wrote (I3).
    #[inline]
    pub fn depend(&mut self, lsn: Lsn) {
        if !canary::is_back("reads-not-waited-for") {
            self.depends = self.depends.max(lsn);
        }
    }

    /// The transaction has come to what rests on definitions, the last of which may be one of them (I3).
    #[cold]
    pub fn depend_on_definitions(&mut self) {
        let changed_at = self.core.storage.catalog.changed_at();
        self.depend(changed_at);
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
        while let Some(add) = self.writes.last_add(mark) {
            let (index, key) = (self.tables.at(add.slot).index(add.index), self.writes.key_of_add(add));
            match add.replaced {
                Some(before) => {
                    index.replace(key, add.record.0, before.0);
                }
                None => {
                    index.remove(key, None);
                }
            }
            self.writes.pop_add();
        }
        let packet = self.packet.as_ref().map_or(&[][..], |packet| packet.bytes());
        while let Some(write) = self.writes.pop_write(mark, packet) {
            if let Some(ddl) = &mut self.ddl {
                ddl.write_counts.take_back(write.heap, self.writes.len());
            }
            let table = self.tables.at(write.slot);
            let heap = &table.heap;
            if write.entered && !canary::is_back("abort-leaves-placeholder") {
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
        if let Some(ddl) = &mut self.ddl {
            ddl.forget_loads(mark.packet);
        }
    }

    /// Ends the transaction without effect.
    pub fn abort(&mut self) {
        if rarely(self.view.is_out_of_order()) {
            self.end_view();
        }
        if let Some(ddl) = self.ddl.take() {
            self.core.locks.leave_stint(&mut self.owner);
            // The index entries of rows in tables that go away need no taking back one by one, but do no harm.
            self.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
            ddl.discard(self);
        } else {
            self.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
        }
        if self.open && !self.reads.runs_again() {
            self.core.commits.accounts.aborted(self.number, self.choices.procedure);
        }
        // Whether it writes is not to be known here: a panic in a shared action leaves that as it is in the action.
        self.packet = None;
        self.finish_unapplied();
        if rarely(self.blocked.is_some()) {
            self.await_turn();
        }
    }

    /// Ends a run that has done nothing but ask for locks. It is to run again, and counts as no abort.
    pub(super) fn end_undone(&mut self) {
        debug_assert!(self.writes.is_empty() && self.ddl.is_none());
        self.packet = None;
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

    /// Forgets the savepoints from this position on. Without a savepoint no loaded row is taken back by itself.
    pub fn forget_savepoints(&mut self, position: usize) {
        self.savepoints.truncate(position);
        if let Some(ddl) = &mut self.ddl
            && self.savepoints.is_empty()
        {
            ddl.loaded_rows = LoadedRows::default();
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
        if rarely(!self.kept_parts.is_empty()) {
            self.end_kept_parts();
        }
        if std::mem::take(&mut self.open) {
            if rarely(self.owner.holds_at_executors() && self.is_held_up()) {
                self.note_waits(self.core.locks.waited_ns(&self.owner));
                self.debt = Some(Debt::incur(self.core.clone(), self.owner.take()));
            } else {
                self.release_locks();
            }
        }
        if rarely(std::mem::take(&mut self.forget_tables)) {
            self.tables.clear();
        }
    }

    /// These may wait for lock tables, so the transaction's own go back before (L12).
    #[cold]
    fn end_kept_parts(&mut self) {
        self.core.locks.end_stint(&mut self.owner);
        std::mem::take(&mut self.kept_parts).into_iter().for_each(Context::end_part);
    }

    /// Releases what the transaction holds at executors, if it need not wait for a lock table for that: not beside an executor lease of its
    /// thread, and not for long (L15), least of all if it was refused a lock, of which its caller is to be told in time. Nor does a
    /// thread wait that would give its turn away for that: it would come back to it only when the next body has ended.
    fn is_held_up(&mut self) -> bool {
        let Context { core, owner, .. } = self;
        if core.locks.is_beside_own_lease(owner.id()) {
            return true;
        }
        !core.locks.release_at_once(owner)
            && (self.was_refused || Blocked::would_give_turn_away() || !core.locks.release_in_time(owner))
    }

    /// Returns the context to its pool.
    pub(super) fn give_back(self: Box<Self>) {
        let lease = self.lease.clone();
        let pool = if self.is_for_parts { &lease.part_contexts } else { &lease.contexts };
        pool.give_back(self);
    }

    /// As [`Context::give_back`], with its lock slot, which a debt had.
    pub(super) fn get_slot_back(mut self: Box<Self>, owner: Owner) {
        self.owner = owner;
        self.give_back();
    }

    #[inline(always)]
    fn release_locks(&mut self) {
        let Context { core, owner, .. } = self;
        let waited_ns = core.locks.finish(owner, &*core.storage.segments);
        self.note_waits(waited_ns);
    }

    /// The transaction has waited for locks for as long as its slot's waits in all have grown to this.
    #[inline(always)]
    fn note_waits(&mut self, waited_ns: u64) {
        self.lock_wait_ns = waited_ns - std::mem::replace(&mut self.waited_before_ns, waited_ns);
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
        if rarely(self.blocked.is_some()) {
            // I3: the thread comes to ask for it when it has its turn.
            self.core.commits.log.leave(lsn, self.choices.durability);
            self.await_turn();
        }
        Ok(lsn)
    }

    /// The commit is about to wait. Invariant: **a commit that has waited goes on without its executor's turn until it has ended.** So its
    /// locks, its room in the log and the gates that it has passed are kept from others for as long as the commit takes, and not for
    /// as long as the body that happens to have the turn.
    #[cold]
    fn leave_turn(&mut self) {
        self.blocked.get_or_insert_with(Blocked::enter);
    }

    /// The commit has ended.
    #[cold]
    fn await_turn(&mut self) {
        if let Some(blocked) = self.blocked.take() {
            drop(Waiting::for_turn(blocked));
        }
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
        self.core.commits.in_flight.leave(self.number);
        if rarely(owes) {
            self.end_flight();
        }
        match alone {
            Some(_) => self.keep_packet(),
            None => {
                if let Some(packet) = self.packet.take() {
                    self.core.commits.log.applied(packet);
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
        let is_commit = core.commits.packet_kind() == PacketKind::Commit;
        if choices.durability != Durability::Memory || !is_commit || canary::is_back("release-before-place") {
            return None;
        }
        let gate = core.commits.in_flight.enter(*number, core.commits.log.place());
        let placed = match gate == Gate::Open && core.storage.is_open() {
            true => {
                let whole = WholeOrNothing;
                let placed = core.commits.log.place_alone(packet, PacketKind::Commit);
                std::mem::forget(whole);
                placed
            }
            false => None,
        };
        if placed.is_none() {
            core.commits.in_flight.leave(*number);
        }
        placed
    }

    /// Takes the place of a commit in the queue, after all that can fail there. Whether it owes a sweep something: see
    /// [`Context::end_flight`].
    #[inline(never)]
    fn place_among_others(&mut self) -> Result<(Lsn, bool)> {
        self.reserve()?;
        if rarely(self.ddl.is_some()) {
            self.enter_definitions()?;
        }
        // I5: in flight from before its push until the last of its writes is applied.
        let owes = match self.enter_flight() {
            Ok(owes) => owes | self.defines,
            Err(error) => {
                self.leave_definitions();
                return Err(error);
            }
        };
        if canary::is_back("release-before-place") {
            let owner = &mut self.owner;
            self.core.locks.release_all_thin(owner, &*self.core.storage.segments);
            std::thread::yield_now();
        }
        Ok((self.push(owes), owes))
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

    /// Takes the place of the packet. A commit that owes a sweep nothing is held by none.
    #[inline(always)]
    fn push(&mut self, owes: bool) -> Lsn {
        if rarely(owes || self.call_from != 0) {
            return self.push_beside_calls();
        }
        let Context { core, packet: Some(packet), .. } = self else {
            unreachable!("a writing transaction has a packet")
        };
        core.commits.log.push(packet, core.commits.packet_kind())
    }

    /// The same of a call, and of all that may lie beside calls in the log. Recovery leaves out the packets that the backup copy
    /// holds ([`Packet::held_by`]): all of them where calls are logged, since a row that a held packet has put must not come
    /// back after the held call that has deleted it. (Without calls, values and operations are redone row by row, as the rows'
    /// places say.)
    ///
    /// [`Packet::held_by`]: crate::log::Packet::held_by
    #[cold]
    fn push_beside_calls(&mut self) -> Lsn {
        let held_by = if self.core.commits.logging == Logging::Transaction { self.held_by() } else { None };
        let Context { core, packet: Some(packet), call_from, .. } = self else {
            unreachable!("a writing transaction has a packet")
        };
        match (*call_from, held_by) {
            (0, None) => core.commits.log.push(packet, core.commits.packet_kind()),
            (0, Some(sweep)) => core.commits.log.push_held(packet, core.commits.packet_kind(), sweep),
            (from, held_by) => core.commits.log.push_call(packet, from, held_by),
        }
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
        let owes = match self.core.commits.in_flight.enter(self.number, self.core.commits.log.place()) {
            Gate::Open => false,
            gate => self.enter_flight_slowly(gate)?,
        };
        if let Err(error) = self.core.storage.check_open() {
            self.core.commits.in_flight.leave(self.number);
            self.end_flight();
            return Err(error);
        }
        Ok(owes)
    }

    /// Passes the gate that checkpoints hold while they take what they need of the catalog. After the log's room is reserved,
    /// which may take a checkpoint, and with no executor's locks in hand.
    #[cold]
    fn enter_definitions(&mut self) -> Result<()> {
        let mut since = None;
        while !self.core.commits.definitions.try_enter() {
            self.wait_for_others(&mut since, |context| {
                context.core.commits.definitions.wait(GATE_LOOK_EVERY)
            })?;
        }
        self.defines = true;
        Ok(())
    }

    /// As [`Context::wait_at_gate`], for what other transactions do: no longer than for a lock of theirs.
    fn wait_for_others(&mut self, since: &mut Option<Instant>, wait: impl FnOnce(&Context)) -> Result<()> {
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        if waited < self.choices.lock_timeout.max(GATE_LOOK_EVERY) {
            return self.wait_at_gate(wait);
        }
        self.core.commits.in_flight.leave(self.number);
        self.leave_definitions();
        Err(Error::LockTimeout {
            lock: "the passage of a gate before a checkpoint or a definition".to_owned(),
            waited_ms: waited.as_millis() as u64,
        })
    }

    /// Waits at a gate, after which every gate is to be passed anew. Invariant: **a thread that waits at a gate has passed none.** What
    /// closes a gate waits for those that have passed it.
    #[cold]
    fn wait_at_gate(&mut self, wait: impl FnOnce(&Context)) -> Result<()> {
        self.core.commits.in_flight.leave(self.number);
        self.leave_definitions();
        self.leave_turn();
        let waiting = Waiting::at_gate();
        wait(self);
        drop(waiting);
        self.check_open()
    }

    /// Whether the transaction may go on to its place: for each look of what waits on the way there.
    fn check_open(&self) -> Result<()> {
        self.core.storage.check_open()?;
        self.check()
    }

    /// The DDL is visible, or has no place after all.
    #[cold]
    fn leave_definitions(&mut self) {
        if std::mem::take(&mut self.defines) {
            self.core.commits.definitions.leave();
        }
    }

    /// Gives back what the commit had of a sweep, and of the gate before DDL, on its way.
    #[cold]
    fn end_flight(&mut self) {
        self.leave_definitions();
        self.core.storage.segments.snapshots().keep_promise(std::mem::take(&mut self.promised));
        self.end_colour();
    }

    #[cold]
    fn enter_flight_slowly(&mut self, mut gate: Gate) -> Result<bool> {
        self.core.locks.leave_stint(&mut self.owner);
        let mut since = None;
        loop {
            let segments = &self.core.storage.segments;
            match gate {
                Gate::Open => return Ok(false),
                Gate::Snapshots => {
                    let needed = self.segments_to_keep();
                    if segments.snapshots().promise(needed) {
                        self.promised = needed;
                        return Ok(needed > 0);
                    }
                    if let Err(nested) = check_may_wait(self.core.storage.catalog.opening()) {
                        self.core.commits.in_flight.leave(self.number);
                        self.end_flight();
                        return Err(nested);
                    }
                    self.wait_at_gate(|context| {
                        context.core.storage.segments.snapshots().wait(GATE_LOOK_EVERY);
                    })?;
                }
                Gate::Colours => {
                    let settled = self.settle_colour();
                    if settled == Settled::OneColour {
                        return Ok(true);
                    }
                    let waits = self.colours.is_patient() || self.ddl.is_some();
                    if settled == Settled::Mixed && !waits {
                        self.core.commits.in_flight.leave(self.number);
                        self.core.commits.accounts.mixed(self.number, self.choices.procedure);
                        return Err(Error::MixedColours);
                    }
                    self.wait_at_gate(|context| {
                        context.core.storage.segments.painting().wait(COLOUR_LOOK_EVERY)
                    })?;
                }
                Gate::Closed => {
                    self.wait_for_others(&mut since, |context| {
                        context.core.commits.in_flight.wait_at_gate(GATE_LOOK_EVERY);
                    })?;
                }
            }
            if self.ddl.is_some() {
                self.enter_definitions()?;
            }
            gate = self.core.commits.in_flight.enter(self.number, self.core.commits.log.place());
        }
    }

    /// How many segments the commit may have to keep before it changes them.
    fn segments_to_keep(&self) -> usize {
        let places = self.writes.writes().iter().flat_map(|write| [write.record, write.lands_in()]);
        let segments =
            places.map(RecordRef::segment).filter(|&id| self.core.storage.segments.is_to_be_kept(id));
        let mut segments: SmallVec<[SegmentId; 16]> = segments.collect();
        segments.sort_unstable();
        segments.dedup();
        segments.into_iter().filter(|&id| self.core.storage.segments.is_in_cut(id)).count()
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
        let Context { core, packet: Some(packet), call_from, .. } = self else { return Ok(()) };
        // Of a call what comes before it stays here.
        let length = packet.bytes().len() - *call_from as usize;
        let is_there =
            canary::is_back("no-room-in-the-log") || core.commits.log.reserves_at_once(packet, length);
        if is_there { Ok(()) } else { self.reserve_slowly(length) }
    }

    #[cold]
    fn reserve_slowly(&mut self, length: usize) -> Result<()> {
        let Some(packet) = &mut self.packet else { return Ok(()) };
        let length = if self.core.commits.packet_kind() == PacketKind::Unlogged { 0 } else { length };
        if self.core.commits.log.try_reserve_record(packet, length)? {
            return Ok(());
        }
        self.core.locks.leave_stint(&mut self.owner);
        self.leave_turn();
        let Some(mut packet) = self.packet.take() else { return Ok(()) };
        let reserved = self.core.commits.log.reserve_record(&mut packet, length, &|| self.check_open());
        self.packet = Some(packet);
        reserved
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A slot that still holds locks is lent to no other owner.
        if self.owner.has_slot() {
            self.core.locks.give_back(&mut self.owner);
        }
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

impl Transaction<'static> {
    /// The transaction in an open context.
    pub(crate) fn of(context: Box<Context>) -> Transaction<'static> {
        Transaction { context: Some(context), lent: PhantomData }
    }
}

impl Transaction<'_> {
    pub(crate) fn context(&mut self) -> &mut Context {
        self.context.as_mut().expect("the transaction is open")
    }

    /// Runs an operation. Every operation that can meet an error of the moment runs here, so that none of these errors reaches the
    /// body unnoticed: the body may go on, and do what it would not have done without the error.
    #[inline(always)]
    pub(super) fn operate<T>(&mut self, work: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        let context = self.context();
        let outcome = work(context);
        if let Err(error) = &outcome {
            context.note_error(error);
        }
        outcome
    }

    /// Commits and waits until the outcome is as durable as the transaction asked.
    ///
    /// # Errors
    /// Those that keep a transaction from taking its place, after which it is aborted, told when what it read is durable (I3);
    /// [`Error::OutcomeUnknown`] if the log fails before the answer.
    pub fn commit(mut self) -> Result<()> {
        match self.take_place(None) {
            Ok(mut committed) => committed.wait_here(),
            Err(error) => self.fail(error),
        }
    }

    /// Commits without waiting: the ticket tells when the outcome is durable. Dropping the ticket cancels nothing.
    ///
    /// # Errors
    /// Those that keep a transaction from taking its place; it is then aborted, and the error told when what it read is durable
    /// (I3), as [`Transaction::commit`] does.
    pub fn submit(mut self) -> Result<Ticket> {
        match self.take_place(None) {
            Ok(mut committed) => Ok(committed.ticket()),
            Err(error) => self.fail(error),
        }
    }

    /// Aborts, and tells the error that the commit met. The error rests on what the transaction has read: it is told when that is
    /// durable; if it never will be, the log's error is.
    pub(crate) fn fail<T>(self, error: Error) -> Result<T> {
        self.abort()?;
        Err(error)
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
        Ticket::new(context.log.clone(), context.depends, context.choices.durability, context.patience())
    }

    /// What became of the transaction if this is how it failed: it ends, and holds nothing when that is told.
    pub(crate) fn failed<T>(mut self, failure: Failure) -> Outcome<T> {
        Outcome::failed(failure, Some(self.settled()))
    }

    fn release(&mut self) {
        if let Some(context) = self.context.take() {
            context.give_back();
        }
    }

    /// Changes how the transaction waits for locks from here on.
    pub fn set_lock_policy(&mut self, policy: LockPolicy) {
        self.context().choose(Choice::LockPolicy(policy));
    }

    /// Changes how durable the transaction's commit will be.
    pub fn set_durability(&mut self, durability: Durability) {
        let context = self.context();
        let durability = context.core.commits.durability(durability);
        context.choose(Choice::Durability(durability));
    }

    /// Changes what the transaction has chosen, from here on, as if it had begun with these options: how durable its commit
    /// is, the limit of its waits for locks, whether it may write, and the waits of its commit. Its isolation, time-out,
    /// lock policy and procedure stay as they are.
    ///
    /// # Errors
    /// [`Error::BadDefinition`] for waits that are too long; nothing is changed then. [`Error::Deadlock`] in a body that has read
    /// without locks ([`Database::read`](crate::Database::read)) and chooses to write: it runs again, with locks.
    pub fn choose(&mut self, options: &TxOptions) -> Result<()> {
        let waits = options.waits()?;
        let context = self.context();
        let Choices { durability, lock_timeout, read_only, .. } = context.core.choices(options);
        context.check_read_only_choice(read_only)?;
        context.choose(Choice::All { durability, lock_timeout, read_only, waits });
        Ok(())
    }

    /// Changes how long the transaction stalls at its commit ([`TxOptions::commit_stall`]) and how long it is willing to
    /// wait in all ([`TxOptions::willing_to_wait`]). More than [`WAIT_MAX`](crate::log::group_commit::WAIT_MAX) counts as
    /// that.
    pub fn set_waits(&mut self, commit_stall: Option<Duration>, willing_to_wait: Option<Duration>) {
        let bounded = |wait: Option<Duration>| wait.map(|wait| wait.min(WAIT_MAX));
        let waits = CommitWaits { stall: bounded(commit_stall), willing_to_wait: bounded(willing_to_wait) };
        self.context().choose(Choice::Waits(waits));
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
        self.operate(|context| context.check())
    }

    /// A handle that cancels this transaction from another thread.
    pub fn canceller(&mut self) -> Canceller {
        let context = self.context();
        context.cancellation.follow(context.owner.transaction());
        Canceller { cancellation: context.cancellation.clone(), core: context.core.clone() }
    }

    /// Goes on after it was cancelled, as after a rollback to a savepoint. A canceller can cancel it again.
    pub fn clear_cancellation(&mut self) {
        self.context().cancellation.clear();
    }

    /// A point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        let context = self.context();
        context.savepoint_counter += 1;
        let state = SavepointState {
            // No other context has it, a part's neither.
            id: context.savepoint_counter << 16 | u64::from(context.owner.id()),
            mark: context.mark(),
            tables: context.tables.len(),
            ddl_changes: context.ddl.as_ref().map_or(0, |ddl| ddl.changes()),
            loaded_rows: context.ddl.as_mut().map_or_else(LoadMark::default, |ddl| ddl.loaded_rows.mark()),
        };
        context.savepoints.push(state);
        Savepoint { opening: context.tables.opening(), id: state.id }
    }

    fn find_savepoint(&mut self, savepoint: &Savepoint) -> Result<usize> {
        let context = self.context();
        let missing = || Error::NoSuchSavepoint { name: format!("number {}", savepoint.id) };
        if savepoint.opening != context.tables.opening() {
            return Err(missing());
        }
        let found = context.savepoints.iter().rposition(|state| state.id == savepoint.id);
        found.filter(|&position| position >= context.scope.savepoints_before()).ok_or_else(missing)
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
        if !canary::is_back("savepoint-keeps-writes") {
            context.roll_back_to(&state.mark);
        }
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
        self.context().forget_savepoints(position);
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(context) = &mut self.context {
            context.abort();
        }
        self.release();
    }
}
