//! [`Context`]: what a transaction works with, from its begin to its end.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::calls::NumberSource;
use super::cancellation::Cancellation;
use super::core::{Core, Lease};
use super::ddl_state::DdlState;
use super::fetch::FetchStage;
use super::options::{CommitWaits, LockPolicy, TxOptions};
use super::part::PartView;
use super::prepared::NotedLocks;
use super::releases::DeferredRelease;
use super::savepoint::SavepointState;
use super::scan::ScanScratch;
use super::scope::Scope;
use super::two_stage::StagedExecution;
use super::unlocked::UnlockedReads;
use crate::account::wait_guard::WaitGuard;
use crate::account::waits::WaitSums;
use crate::account::{Ledger, ProcedureId};
use crate::commit::sweep_side::SweepSide;
use crate::commit::tables::TableCache;
use crate::commit::write_set::{ENTRIES_PER_PACKET, Mark, WriteSet};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::io::{FOR_EVER, Moment};
use crate::isolate::{LockError, LockTarget, Owner, Wait};
use crate::log::{Durability, PacketHome, PacketSlot, Patience};
use crate::reply::LogLease;
use crate::row::{FieldPatch, Key};
use crate::store::Prefetched;
use crate::store::paged::PageAccess;
use crate::unlikely::unlikely;

/// A transaction's working state, lent from a pool with its memory, lock slot and table cache.
pub(crate) struct Context {
    /// The home slot of its packet; for a part's context, a slot among those of parts. It stands before the core, and
    /// is therefore dropped before it.
    pub(super) home: Option<PacketHome>,
    /// The transaction's packet. Before the transaction writes, this is the home slot's packet, empty, if the last
    /// transaction kept it to its end.
    pub packet: Option<PacketSlot>,
    pub core: Arc<Core>,
    /// The same core, behind a count that only this context's transactions and their tickets touch.
    pub lease: Lease,
    /// For its tickets.
    pub log: LogLease,
    /// This context's number, below [`Options::transactions_max`](crate::Options::transactions_max); for a part's
    /// context, its number among those of parts.
    pub number: usize,
    /// The lock slot; none while `deferred` has it.
    pub owner: Owner,
    /// Whether a transaction is in it.
    pub open: bool,
    /// Set when its transaction has ended but holds locks at executors, which another thread releases.
    pub deferred: Option<Arc<DeferredRelease>>,
    /// Whether it was refused a lock.
    pub(super) was_refused: bool,
    /// Whether it writes: it may write, and it has its packet.
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
    /// Scratch: the changes of a row.
    pub patches: Vec<FieldPatch>,
    /// Scratch, present after the first scan.
    pub scan_scratch: Option<Box<ScanScratch>>,
    pub began: Moment,
    /// How long the transaction has waited for locks, once it has ended.
    pub lock_wait_ns: u64,
    /// The waits that its slot had counted when the last transaction ended.
    pub(super) waited_before_ns: u64,
    /// Where its time went, once it has its place.
    pub ledger: Ledger,
    pub reads: UnlockedReads,
    /// What was found of keys before their look-ups: by this transaction, or for it just before it began.
    pub prefetched: Prefetched,
    /// How its operations reach pages.
    pub page_access: PageAccess,
    /// Whether it is in the fetch stage of two-stage execution.
    pub(super) fetch_stage: FetchStage,
    /// Whether [`Runs`](super::runs::Runs) leads it through the stages.
    pub(super) is_led: bool,
    /// The statement that is on its way through the stages, where the caller runs the statements.
    pub(super) statement: Option<Box<StagedExecution>>,
    /// What the running action may touch, and has locked.
    pub scope: Scope,
    /// Its side of a black/white sweep.
    pub side: SweepSide,
    /// What it knows of its transaction while that runs in parts.
    pub view: PartView,
    /// Whether it is a context for parts.
    pub(super) is_for_parts: bool,
    /// Parts that it has absorbed and that hold locks for it until it ends, because the lock tables were leased when
    /// the parts met.
    #[allow(clippy::vec_box, reason = "contexts are lent in their boxes")]
    pub(super) kept_parts: Vec<Box<Context>>,
    /// The longest that the packet may become, in bytes.
    pub room: usize,
    /// The bytes that the write set's index entries may take.
    pub room_for_entries: usize,
    /// Snapshots that its commit was promised room for.
    pub promised: usize,
    /// Set when its commit has waited, and goes on without its executor's turn.
    pub(super) blocked: Option<WaitGuard>,
    /// Whether its commit has passed the barrier of [`Definitions`](crate::commit::Definitions), and keeps others
    /// there.
    pub(super) defines: bool,
    /// Where hidden row numbers come from.
    pub numbers: NumberSource,
    /// Where in the packet the call begins as which the transaction is logged; 0 if it is logged as its write set.
    pub call_from: u32,
    /// The first error of an operation that another run on the same rows may not get. It is kept for the call of a
    /// deterministic procedure, which sets when that begins.
    pub of_the_moment: Option<Error>,
    /// Whether DDL has made the table cache out of date.
    pub forget_tables: bool,
    /// The error of a doomed transaction, such as a deadlock's victim: nothing but an abort is left.
    doomed: Option<Error>,
    /// Whether it runs again because another transaction of its thread has met its executor lease; such runs do not
    /// count as deadlocks.
    pub met_lease: bool,
    /// Whether its commit waits for a black/white sweep that it straddles, and is not aborted.
    pub waits_for_sweep: bool,
    limit: Option<TimeLimit>,
    pub(super) waits: CommitWaits,
    /// Whether it has voted to commit, and waits for a decision.
    has_voted: bool,
    /// The locks that it has taken, if it may be prepared. Then each operation takes the long way, which notes them.
    pub(super) noted_locks: Option<Box<NotedLocks>>,
    /// Whether it has a limit, may be prepared, is doomed, or has written and may no longer write.
    has_limits: bool,
    /// Whether it has a limit, waits of its own for its commit, or is doomed.
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
    /// Whether increments are logged as such ([`Logging::Action`](crate::Logging::Action)).
    pub operations: bool,
}

/// What a statement's fetch stage puts back at its end.
pub(super) struct BeforeFetchStage {
    mark: Mark,
    savepoints: usize,
    lock_wait: LockPolicy,
    has_limits: bool,
    was_refused: bool,
    of_the_moment: Option<Error>,
}

/// How long a transaction may take ([`TxOptions::timeout`]).
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    timeout: Duration,
    deadline: Moment,
}

impl Context {
    /// `None`: there is no lock slot left.
    pub fn new(core: Arc<Core>, number: usize) -> Option<Context> {
        let owner = core.locks.take()?;
        let (choices, began) = (core.choices(&TxOptions::default()), core.clock.now());
        let opening = core.storage.catalog.opening();
        let waited_before_ns = core.locks.waited_ns(&owner);
        let page_access = PageAccess::of(core.locks.disk_waits(&owner).clone());
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
            deferred: None,
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
            ledger: Ledger { began, waits: WaitSums::default(), lock_wait_ns: 0 },
            reads: UnlockedReads::default(),
            prefetched: Prefetched::default(),
            page_access,
            fetch_stage: FetchStage::default(),
            is_led: false,
            statement: None,
            scope: Scope::default(),
            side: SweepSide::default(),
            view: PartView::default(),
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
            waits_for_sweep: false,
            limit: None,
            waits: CommitWaits::default(),
            has_voted: false,
            noted_locks: None,
            has_limits: false,
            has_times: false,
        })
    }

    /// Makes the context, which was just lent, a fresh transaction's. A transaction that runs again after a deadlock
    /// passes when it first `started`.
    #[inline(always)]
    pub fn begin(&mut self, options: &TxOptions, started: Option<Moment>) -> Result<()> {
        if unlikely(options.has_times() || self.has_times) {
            self.begin_with_times(options, started)?;
        }
        self.began = self.core.clock.now();
        let owner = &mut self.owner;
        self.core.locks.open(owner, started.unwrap_or(self.began));
        self.open = true;
        self.choices = self.core.choices(options);
        self.tables.begin();
        self.read_unlocked(false);
        self.side.begin(self.core.storage.painting().is_noted());
        if unlikely(self.scope.is_on()) {
            self.scope.end();
        }
        self.depends = Lsn::ZERO;
        // A canceller of an earlier transaction must not reach this one.
        if unlikely(self.cancellation.is_used()) {
            self.cancellation = Cancellation::new();
        }
        Ok(())
    }

    /// The part of [`Context::begin`] for times, and for what an earlier transaction has left of them.
    #[cold]
    fn begin_with_times(&mut self, options: &TxOptions, started: Option<Moment>) -> Result<()> {
        let waits = options.waits()?;
        // All runs of a transaction share one limit.
        let now = self.core.clock.now();
        let spent = started.map_or(Duration::ZERO, |started| now - started);
        let limit = options.timeout.map(|timeout| TimeLimit {
            timeout,
            deadline: now + timeout.min(FOR_EVER).saturating_sub(spent),
        });
        (self.waits, self.limit, self.doomed, self.was_refused) = (waits, limit, None, false);
        self.has_voted = false;
        self.noted_locks = options.may_prepare.then(Box::default);
        (self.has_limits, self.has_times) = (limit.is_some() || options.may_prepare, options.has_times());
        self.met_lease = false;
        if unlikely(self.is_led || self.fetches()) {
            self.is_led = false;
            self.end_fetch_stage();
            self.page_access.forget_giving_up();
        }
        Ok(())
    }

    /// Makes the context a fresh one for a part of this transaction.
    pub fn begin_as_part(&mut self, whole: &Context) -> Result<()> {
        self.is_for_parts = true;
        self.begin(&TxOptions::default(), Some(whole.owner.started()))?;
        (self.began, self.depends, self.choices) = (whole.began, whole.depends, whole.choices);
        (self.waits, self.limit) = (whole.waits, whole.limit);
        (self.has_limits, self.has_times) = (whole.limit.is_some(), whole.has_times);
        Ok(())
    }

    /// What the transaction says about the stall of its commit.
    pub fn patience(&self) -> Patience {
        let CommitWaits { stall, willing_to_wait } = self.waits;
        Patience { began: Some(self.began), stall, willing_to_wait }
    }

    /// Whether it runs a deterministic procedure, and is logged as a call unless something else forbids it.
    #[inline]
    pub fn may_be_a_call(&self) -> bool {
        self.ddl.is_none() && !matches!(self.numbers, NumberSource::Next)
    }

    /// The check that every operation begins with.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if unlikely(self.is_hindered()) { self.check_slowly() } else { Ok(()) }
    }

    /// Whether anything has to be checked.
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
            && self.core.clock.now() > limit.deadline
        {
            return Err(self.timed_out());
        }
        match &self.doomed {
            None if self.fetches() => self.fetch_stage.step(),
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Begins the fetch stage of a statement. Gives what its end puts back.
    pub(super) fn before_fetch_stage(&mut self) -> BeforeFetchStage {
        let before = BeforeFetchStage {
            mark: self.mark(),
            savepoints: self.savepoints.len(),
            lock_wait: self.choices.lock_wait,
            has_limits: self.has_limits,
            was_refused: self.was_refused,
            of_the_moment: self.of_the_moment.take(),
        };
        self.begin_fetch_stage();
        before
    }

    /// Ends it: the transaction is as it was.
    pub(super) fn after_fetch_stage(&mut self, before: BeforeFetchStage) {
        self.savepoints.truncate(before.savepoints);
        self.roll_back_to(&before.mark);
        self.end_fetch_stage();
        self.choices.lock_wait = before.lock_wait;
        (self.has_limits, self.doomed) = (before.has_limits, None);
        (self.was_refused, self.of_the_moment) = (before.was_refused, before.of_the_moment);
        self.end_statements_fetch_stage();
    }

    /// [`Runs`](super::runs::Runs) leads it through the stages. The next transaction of the context begins without that.
    pub(super) fn be_led(&mut self) {
        (self.is_led, self.has_times) = (true, true);
    }

    /// From now on each operation takes the long way, with all checks. The next transaction of the context begins without that.
    pub(super) fn hinder(&mut self) {
        (self.has_limits, self.has_times) = (true, true);
    }

    /// Whether the transaction may go on to its place. Each wait on the way there checks this repeatedly.
    pub(super) fn check_open(&self) -> Result<()> {
        self.core.storage.check_open()?;
        self.check()
    }

    /// From now on nothing ends it but a decision: no limit, and no cancel.
    pub(super) fn outlast_limits(&mut self) {
        (self.limit, self.cancellation) = (None, Cancellation::new());
        (self.noted_locks, self.has_limits) = (None, false);
        (self.choices.lock_timeout, self.waits_for_sweep) = (FOR_EVER, true);
        // The next transaction of the context begins without it.
        (self.doomed, self.has_voted, self.has_times) = (None, true, true);
    }

    /// Whether it has voted.
    pub(super) fn has_voted(&self) -> bool {
        self.has_voted
    }

    /// Refuses what a transaction cannot do once it has voted.
    pub(super) fn check_has_not_voted(&self) -> Result<()> {
        match self.has_voted {
            false => Ok(()),
            true => {
                let what = "a definition in the decision of a prepared transaction: it takes rows".to_owned();
                Err(Error::Unsupported { what })
            }
        }
    }

    pub(super) fn set_waits(&mut self, waits: CommitWaits) {
        // The next transaction of the context begins without these waits.
        (self.waits, self.has_times) = (waits, true);
    }

    /// Decides whether the transaction may write from here on.
    pub(super) fn set_read_only(&mut self, read_only: bool) {
        self.choices.read_only = self.scope.set_read_only(read_only);
        // A transaction that has written may not write on unless each write is checked.
        let gives_up = self.writing && read_only;
        let (has_limit, may_prepare) = (self.limit.is_some(), self.noted_locks.is_some());
        self.has_limits = has_limit || may_prepare || self.doomed.is_some() || gives_up || self.fetches();
    }

    /// Ends an action in shared mode: the transaction's own choice decides again whether it may write.
    pub fn end_shared_action(&mut self) {
        let read_only = self.scope.is_read_only_after();
        self.choices.read_only = read_only;
        if unlikely(read_only && self.writing) {
            self.has_limits = true;
        }
    }

    /// Notes an error that an operation gives to its body.
    #[cold]
    pub(super) fn note_error(&mut self, error: &Error) {
        if matches!(error, Error::Deadlock { .. }) && self.page_access.gave_up().is_some() {
            self.doom(error.clone());
        }
        if !error.is_of_the_moment() {
            // I3: the error may rest on what a definition made of a table, and on no row.
            self.depend_on_definitions();
        } else if self.of_the_moment.is_none() {
            self.of_the_moment = Some(error.clone());
        }
    }

    /// Dooms the transaction: nothing but an abort is left.
    pub fn doom(&mut self, error: Error) {
        (self.doomed, self.has_limits, self.has_times) = (Some(error), true, true);
    }

    /// Dooms the transaction if a part of it is doomed.
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

    /// The check that every write begins with; the first write also takes a packet.
    #[inline(always)]
    pub fn check_write(&mut self) -> Result<()> {
        if unlikely(self.writing || !self.begin_to_write()) { self.check_write_slowly() } else { Ok(()) }
    }

    /// Begins with the packet that is kept for the context, if it is free and nothing has to be checked.
    #[inline(always)]
    fn begin_to_write(&mut self) -> bool {
        if unlikely(self.is_hindered() || self.choices.read_only || !self.core.commits.log.is_open()) {
            return false;
        }
        if unlikely(self.packet.is_none()) {
            self.packet = self.home.as_mut().and_then(PacketHome::borrow);
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
                    None if self.fetches() => return Err(self.refuse_packet()),
                    None => {
                        debug_assert!(!self.view.is_part(), "a part that writes has its packet");
                        self.core.locks.return_lease(&mut self.owner);
                        self.core.commits.log.wait_for_packet(|| self.check_open())?
                    }
                });
            }
        }
        self.writing = true;
        Ok(())
    }

    /// Takes a packet, if one is free, for a transaction whose parts will write.
    pub(super) fn reserve_packet(&mut self) -> Result<()> {
        if self.packet.is_none() {
            let packet = self.core.commits.log.try_borrow_packet_at(&mut self.home)?;
            let none = Error::TooManyPackets { limit: self.core.defaults.packet_slots };
            self.packet = Some(packet.ok_or(none)?);
        }
        Ok(())
    }

    /// Takes the packet of a part that will write: its own, which is always free when the part begins.
    pub(super) fn take_part_packet(&mut self) {
        let pool = &self.core.part_packets;
        let home = self.home.get_or_insert_with(|| pool.home().expect("there is one for each part"));
        self.packet = Some(home.borrow().expect("the part before has given it back"));
    }

    /// Gives back a reserved packet if nothing was written.
    pub(super) fn give_up_reserved_packet(&mut self) {
        if !self.writing && self.packet_bytes().is_empty() {
            self.packet = None;
        }
    }

    /// Runs a lock request, adds its waiting time, and puts the lock's name into its error.
    #[inline]
    pub fn lock<T>(
        &mut self,
        request: impl FnOnce(&Core, &mut Owner, &TableCache, &Key, &Wait<'_>) -> Result<T, LockError>,
        target: impl FnOnce(&TableCache, &Key) -> LockTarget,
    ) -> Result<T> {
        self.lock_since(&mut None, request, target)
    }

    /// The same for an operation that may have to ask again, for the same lock or for another one. `since` is when the
    /// first of its requests began to wait, so that all of them share one time-out.
    #[inline]
    pub fn lock_since<T>(
        &mut self,
        since: &mut Option<Moment>,
        request: impl FnOnce(&Core, &mut Owner, &TableCache, &Key, &Wait<'_>) -> Result<T, LockError>,
        target: impl FnOnce(&TableCache, &Key) -> LockTarget,
    ) -> Result<T> {
        if unlikely(self.fetches()) {
            return Err(self.refuse_lock());
        }
        self.ask(since, request, target)
    }

    /// The same, in the fetch stage too.
    #[inline]
    pub(super) fn ask<T>(
        &mut self,
        since: &mut Option<Moment>,
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
        // The next transaction of the context begins without it.
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

    /// Notes that the transaction has read something that this place wrote (I3).
    #[inline]
    pub fn depend(&mut self, lsn: Lsn) {
        if !fault_injection::is_on("reads-not-waited-for") {
            self.depends = self.depends.max(lsn);
        }
    }

    /// Notes that the transaction has found something that rests on definitions, the last of which may be one of them
    /// (I3).
    #[cold]
    pub fn depend_on_definitions(&mut self) {
        let changed_at = self.core.storage.catalog.changed_at();
        self.depend(changed_at);
    }

    #[inline]
    pub fn packet_bytes(&self) -> &[u8] {
        self.packet.as_ref().map_or(&[], |packet| packet.bytes())
    }

    /// The present position in the write set and the packet.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.writes.mark(self.packet_bytes().len())
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
