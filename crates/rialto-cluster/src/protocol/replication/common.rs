//! [`Common`]: what a replica has in each role.

use std::sync::Arc;

use rialto::Lsn;
use rialto::fault_injection;
use rialto::log::{LogPoint, LogPosition};

use super::configuration::{Configuration, Known, Member};
use super::event::{Contents, Effect, Saved, WithLog};
use super::message::{Envelope, Fitness, Message};
use super::options::ReplicationOptions;
use super::store::PendingRequests;
use crate::protocol::{Epoch, Life, Moment, NodeId, PartitionId};

/// Before every block.
pub(super) const BEGINNING: LogPoint = LogPoint { lsn: Lsn(0), position: LogPosition(0), checksum: 0 };

/// What a replica has in each role: its names, what it has seen, its requests to the control store, and the effects of the
/// step that is taken.
#[derive(Debug)]
pub(super) struct Common {
    pub partition: PartitionId,
    pub me: Member,
    pub options: ReplicationOptions,
    pub saved: Saved,
    /// The epoch of the last fence that it has taken.
    pub fenced: Epoch,
    /// The epoch of the configuration whose primary is copied, or was copied last.
    pub copied_in: Epoch,
    /// The newest configuration that is known to have been in force. Its epoch is at most the saved one.
    pub known: Option<Arc<Known>>,
    pub fitness: Fitness,
    /// How many times in a row its database was to lead, and did not.
    pub lead_failures: u32,
    /// The configuration in the control store that was refused last.
    pub refused: Option<Known>,
    pub store: PendingRequests,
    pub out: Vec<Effect>,
}

impl Common {
    /// The configuration in force, as far as this replica can know: none newer was heard of.
    pub fn current(&self) -> Option<Arc<Known>> {
        self.known.as_ref().filter(|known| known.configuration.epoch == self.saved.epoch).cloned()
    }

    pub fn effect(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    pub fn save(&mut self) {
        let saved = self.saved;
        self.effect(Effect::Save(saved));
    }

    /// Notes an epoch that was seen.
    pub fn raise(&mut self, epoch: Epoch) {
        if epoch > self.saved.epoch {
            self.saved.epoch = epoch;
            self.save();
        }
    }

    pub fn send(&mut self, to: NodeId, to_life: Option<Life>, message: Message) {
        let (partition, epoch, from) = (self.partition, self.saved.epoch, self.me);
        self.effect(Effect::Send(Envelope { partition, epoch, from, to, to_life, message }));
    }

    /// Whether this node has a replica of the partition, as far as it knows.
    pub fn is_member(&self) -> bool {
        self.known.as_ref().is_none_or(|known| known.configuration.has(self.me.node))
    }

    /// Whether its database is whole.
    pub fn is_whole(&self) -> bool {
        self.saved.contents == Contents::Whole
    }

    /// Asks the control store for the configuration, unless it was asked just now.
    pub fn want_read(&mut self, now: Moment) {
        if let Some(effect) = self.store.want_read(now, &self.options) {
            self.effect(effect);
        }
    }

    /// Asks the control store for the configuration if it was not asked for long.
    pub fn poll(&mut self, now: Moment) {
        if self.store.is_poll_due(now, &self.options) && !fault_injection::is_on("store-not-polled") {
            self.want_read(now);
        }
    }

    /// Whether the control store has answered lately. If not, it is asked. No swap is opened before: an open swap is a
    /// burden until it is concluded, and a store that is away does not do that.
    pub fn is_store_there(&mut self, now: Moment) -> bool {
        let is_there =
            self.store.is_there(now, &self.options) || fault_injection::is_on("swap-opened-blindly");
        if !is_there {
            self.want_read(now);
        }
        is_there
    }

    /// Sends a swap from a configuration to the next one. That it may be done is on the disk before.
    pub fn propose(&mut self, from: &Known, to: Configuration) {
        self.saved.proposed = self.saved.proposed.max(to.epoch);
        self.save();
        let effect = self.store.open(from.clone(), to);
        self.effect(effect);
    }

    /// Whether a swap of this replica may still be done: one of this process, or one of an earlier process in the same life.
    pub fn has_open_swap(&self) -> bool {
        let known = self.known.as_ref().map_or(Epoch(0), |known| known.configuration.epoch);
        let is_marked =
            self.saved.proposed > known && !fault_injection::is_on("open-swap-forgotten-by-an-opening");
        self.store.open_swap().is_some() || is_marked
    }

    /// Whether a configuration is not older than what was seen, and of the same store.
    pub fn is_acceptable(&self, found: &Known) -> bool {
        if fault_injection::is_on("restored-store-believed") {
            return true;
        }
        let is_same = |known: &Known| known.configuration == found.configuration;
        self.saved.store.is_none_or(|store| store == found.store)
            && found.configuration.epoch >= self.saved.epoch
            && self
                .known
                .as_ref()
                .is_none_or(|known| known.configuration.epoch != found.configuration.epoch || is_same(known))
    }

    /// Has everything that the log has go to the disk. True once it is there.
    pub fn is_on_disk(&mut self, at: WithLog) -> bool {
        let is_on_disk = at.log.on_disk.position >= at.log.received.position;
        if !is_on_disk && self.store.may_sync(at.now, &self.options) {
            self.effect(Effect::SyncDisk);
        }
        is_on_disk
    }
}

/// The earlier one of two points of one log.
pub(super) fn earlier(one: LogPoint, other: LogPoint) -> LogPoint {
    if one.position <= other.position { one } else { other }
}

/// The later one of two points of one log.
pub(super) fn later(one: LogPoint, other: LogPoint) -> LogPoint {
    if one.position >= other.position { one } else { other }
}
