//! The commit of a transaction: its place in the log, then its writes, then its locks (I2).

use std::hint::cold_path;

use super::context::Context;
use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::commit::write_set::key_of;
use crate::commit::{Applied, Applying, CommitBarrier, Logging, NoPlace, Placed, Reserved};
use crate::error::Result;
use crate::fault_injection;
use crate::ids::Lsn;
use crate::log::{Durability, PacketKind};
use crate::unlikely::unlikely;

impl Context {
    /// Takes the place in the log, applies, and releases (I2). Returns the place that the reply has to wait for.
    pub fn commit(&mut self) -> Result<Lsn, NoPlace> {
        let lsn = match self.place_and_apply() {
            Ok(applied) => applied.map_or(self.depends, Applied::lsn),
            Err(error) => {
                self.abort();
                return Err(error);
            }
        };
        self.finish();
        if unlikely(self.blocked.is_some()) {
            // I3: the thread asks for this write when it has its turn again.
            self.core.commits.log.leave(lsn, self.choices.durability);
            self.await_turn();
        }
        Ok(lsn)
    }

    /// `None`: there was nothing to log.
    #[inline(always)]
    fn place_and_apply(&mut self) -> Result<Option<Applied>, NoPlace> {
        self.prepare()?;
        if self.writes.is_empty() && self.logs_nothing() {
            self.drop_packet();
            return Ok(None);
        }
        let placed = match self.place_alone() {
            Some(placed) => placed,
            None => self.place_among_others()?,
        };
        Ok(Some(self.apply_placed(placed)))
    }

    #[inline(always)]
    fn apply_placed(&mut self, placed: Placed) -> Applied {
        let (owes, is_alone) = (placed.owes(), placed.is_alone());
        let applied = placed.apply(|lsn| self.apply(lsn));
        self.core.commits.in_progress.leave(self.number);
        if unlikely(owes) {
            self.leave_barrier();
        }
        match is_alone {
            true => self.keep_packet(),
            false => {
                if let Some(packet) = self.packet.take() {
                    self.core.commits.log.applied(packet);
                }
            }
        }
        applied
    }

    /// Reserves the log's room for a transaction that is to be prepared, whose packet will grow by this many bytes.
    pub(super) fn reserve_for_decision(&mut self, more_bytes: usize) -> Result<()> {
        let length = self.packet_bytes().len() + more_bytes;
        let reserved = self.reserve_room_slowly(length);
        self.await_turn();
        reserved
    }

    /// Commits what a prepared transaction has written. After an error it is as it was, and can be decided again. Tells when
    /// it has its room in the log.
    pub(super) fn commit_prepared(&mut self, has_room: impl FnOnce()) -> Result<Lsn> {
        if self.ddl.is_some() {
            self.core.locks.return_lease(&mut self.owner);
        }
        let reserved = self.reserve_room().map_err(NoPlace::from).and_then(|()| {
            has_room();
            self.pass_barriers()
        });
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(none) => {
                self.await_turn();
                return Err(match none {
                    NoPlace::Error(error) => error,
                    NoPlace::Straddles => unreachable!("the commit waits for the sweep"),
                });
            }
        };
        let lsn = self.push(reserved.owes);
        let applied = self.apply_placed(reserved.at(lsn));
        self.finish();
        self.await_turn();
        Ok(applied.lsn())
    }

    /// Commits a packet of the log that is redone, at the place that it has there.
    pub(super) fn commit_redone(&mut self, lsn: Lsn) -> Result<(), NoPlace> {
        let reserved = match self.prepare().map_err(NoPlace::from).and_then(|()| self.pass_barriers()) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.abort();
                return Err(error);
            }
        };
        let placed = reserved.at(self.core.commits.log.take_redone_place());
        let owes = placed.owes();
        let applied = placed.apply(|lsn| self.apply(lsn)).lsn();
        debug_assert_eq!(applied, lsn, "packets are redone in their order");
        self.core.commits.in_progress.leave(self.number);
        if owes {
            self.leave_barrier();
        }
        self.packet = None;
        self.finish();
        if self.blocked.is_some() {
            self.await_turn();
        }
        Ok(())
    }

    /// Called before the commit waits. Invariant: **a commit that has waited goes on without its executor's turn until
    /// it has ended.** So it keeps its locks, its room in the log and its passed barriers from other transactions for
    /// as long as the commit takes, and not for as long as the body that happens to have the turn.
    #[cold]
    pub(super) fn leave_turn(&mut self) {
        self.blocked.get_or_insert_with(|| WaitGuard::enter(&self.core.clock, Awaited::Commit));
    }

    /// Called when the commit has ended: waits for the turn again.
    #[cold]
    pub(super) fn await_turn(&mut self) {
        if let Some(blocked) = self.blocked.take() {
            blocked.end(&self.core.clock);
        }
    }

    /// Applies all writes, then makes the DDL visible.
    #[inline(always)]
    fn apply(&mut self, lsn: Lsn) {
        if unlikely(self.core.storage.watched.is_any()) {
            self.note_changed_rows();
        }
        let writes = Applying {
            writes: &self.writes,
            packet: self.packet_bytes(),
            tables: &self.tables,
            fingers: self.page_access.fingers(),
            number: self.number,
            defines: self.ddl.is_some(),
        };
        writes.apply(lsn);
        if self.ddl.is_some() {
            self.publish_ddl(lsn);
        }
    }

    /// Notes the rows that it changes in tables that are copied meanwhile.
    #[cold]
    fn note_changed_rows(&self) {
        let packet = self.packet_bytes();
        let changed = self.writes.writes().iter().map(|write| (write.heap, key_of(write, packet)));
        if !fault_injection::is_on("moved-rows-not-watched") {
            self.core.storage.watched.note(changed);
        }
    }

    #[cold]
    fn publish_ddl(&mut self, lsn: Lsn) {
        if let Some(ddl) = self.ddl.take() {
            ddl.publish(self, lsn);
            // I2: the rows become visible with the definitions, so no lock is released before the definitions are
            // visible. Locks on records in storage that goes have to be released before it goes.
            let owner = &mut self.owner;
            self.core.locks.release_records(owner, &self.core.storage);
            ddl.discard_replaced(self);
        }
    }

    /// If no other commit is at the log, takes the place of a commit at level 1 and makes it durable there in one step.
    /// Such a commit is in progress from before its place (I5).
    #[inline(always)]
    fn place_alone(&mut self) -> Option<Placed> {
        let Context { core, packet: Some(packet), ddl: None, call_from: 0, number, choices, .. } = self
        else {
            return None;
        };
        let is_commit = core.commits.packet_kind() == PacketKind::Commit;
        if choices.durability != Durability::Memory
            || !is_commit
            || fault_injection::is_on("release-before-place")
        {
            return None;
        }
        let barrier = core.commits.in_progress.enter(*number, core.commits.log.place());
        let placed = match barrier == CommitBarrier::Open && core.storage.is_open() {
            true => Placed::alone(|| core.commits.log.place_alone(packet, PacketKind::Commit)),
            false => None,
        };
        if placed.is_none() {
            core.commits.in_progress.leave(*number);
        }
        placed
    }

    /// Takes the place of a commit in the queue, after every step that can fail.
    #[inline(never)]
    fn place_among_others(&mut self) -> Result<Placed, NoPlace> {
        let reserved = self.reserve()?;
        if fault_injection::is_on("release-before-place") {
            let owner = &mut self.owner;
            self.core.locks.release_all_thin(owner, &self.core.storage);
            std::thread::yield_now();
        }
        let lsn = self.push(reserved.owes);
        Ok(reserved.at(lsn))
    }

    /// Reserves the log's room, and passes the barriers.
    #[inline(always)]
    fn reserve(&mut self) -> Result<Reserved, NoPlace> {
        self.reserve_room()?;
        self.pass_barriers()
    }

    #[inline(always)]
    fn pass_barriers(&mut self) -> Result<Reserved, NoPlace> {
        if unlikely(self.ddl.is_some()) {
            self.enter_definitions()?;
        }
        // I5: in progress from before its push until the last of its writes is applied.
        match self.pass_barrier() {
            Ok(owes) => Ok(Reserved { owes: owes | self.defines }),
            Err(error) => {
                self.leave_definitions();
                Err(error)
            }
        }
    }

    /// Keeps the packet for the next transaction if it is the home slot's; only this context has seen it.
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

    /// Whether there is no effective DDL either: a definition may have been refused, or rolled back to a savepoint. Its
    /// state is then dropped.
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

    /// Pushes the packet and takes its place. A commit that owes a sweep nothing is held by no sweep.
    #[inline(always)]
    fn push(&mut self, owes: bool) -> Lsn {
        if unlikely(owes || self.call_from != 0) {
            return self.push_beside_calls();
        }
        let Context { core, packet: Some(packet), .. } = self else {
            unreachable!("a writing transaction has a packet")
        };
        core.commits.log.push(packet, core.commits.packet_kind())
    }

    /// The same for a call, and for every packet that may lie beside calls in the log. Recovery leaves out the packets
    /// that the backup copy holds ([`Packet::held_by`]). Where calls are logged it leaves out all of them, since a row
    /// that a held packet has put must not come back after the held call that has deleted it. (Without calls, values
    /// and operations are redone row by row, as the places in the rows tell.)
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

    /// Applies the write set of a call that runs again, at the place that the call has in the log. A panic there ends
    /// the recovery, and not the process.
    pub fn apply_again(&mut self, lsn: Lsn) {
        if self.writing {
            self.apply(lsn);
        }
        self.finish_unapplied();
    }

    /// Does everything that can fail before the place (I10).
    #[inline(always)]
    fn prepare(&mut self) -> Result<()> {
        self.check()?;
        if unlikely(self.is_invalidated()) {
            return self.invalidate();
        }
        if unlikely(self.ddl.is_some()) {
            self.core.locks.return_lease(&mut self.owner);
            self.prepare_ddl()?;
        }
        Ok(())
    }

    /// Reserves log space for the packet.
    #[inline(always)]
    fn reserve_room(&mut self) -> Result<()> {
        let Context { core, packet: Some(packet), call_from, .. } = self else { return Ok(()) };
        // If the transaction is logged as a call, the bytes before the call stay here.
        let length = packet.bytes().len() - *call_from as usize;
        let is_there =
            fault_injection::is_on("no-room-in-the-log") || core.commits.log.reserves_at_once(packet, length);
        if is_there { Ok(()) } else { self.reserve_room_slowly(length) }
    }

    #[cold]
    fn reserve_room_slowly(&mut self, length: usize) -> Result<()> {
        let Some(packet) = &mut self.packet else { return Ok(()) };
        let length = if self.core.commits.packet_kind() == PacketKind::Unlogged { 0 } else { length };
        if self.core.commits.log.try_reserve_record(packet, length)? {
            return Ok(());
        }
        self.core.locks.return_lease(&mut self.owner);
        self.leave_turn();
        let Some(mut packet) = self.packet.take() else { return Ok(()) };
        let reserved = self.core.commits.log.reserve_record(&mut packet, length, &|| self.check_open());
        self.packet = Some(packet);
        reserved
    }
}
