//! [`Forcing`]: an operator has a replica lead, whatever the control store and other replicas say.

use rialto::log::LogPoint;

use super::common::Common;
use super::configuration::{Known, Loss};
use super::event::{At, Effect, Report};
use super::message::Message;
use crate::protocol::{Epoch, Moment, NodeId};

/// A promotion by force. It fences the other replicas first: each of them takes an epoch above all that were seen, and
/// neither serves nor promotes itself in a lower one from then on. Those that have more log are reported.
#[derive(Debug)]
pub(super) struct Forcing {
    without: Vec<NodeId>,
    /// What the control store has, whatever that is.
    base: Option<Known>,
    epoch: Epoch,
    /// The epoch has to be above this one.
    above: Epoch,
    fenced: Vec<(NodeId, Option<LogPoint>)>,
    next_fence: Moment,
}

impl Forcing {
    pub fn new(without: Vec<NodeId>, now: Moment) -> Forcing {
        Forcing { without, base: None, epoch: Epoch(0), above: Epoch(0), fenced: Vec::new(), next_fence: now }
    }

    /// The control store has this.
    pub fn read(&mut self, found: Known) {
        self.base = Some(found);
    }

    /// A swap has found something else in the control store.
    pub fn lost(&mut self) {
        self.base = None;
    }

    /// A replica is fenced in this epoch.
    pub fn fenced(&mut self, node: NodeId, epoch: Epoch, received: Option<LogPoint>) {
        if epoch == self.epoch && self.fenced.iter().all(|(fenced, _)| *fenced != node) {
            self.fenced.push((node, received));
        }
    }

    /// A replica has seen epochs up to this one.
    pub fn refused(&mut self, above: Epoch) {
        self.above = self.above.max(above);
    }

    pub fn advance(&mut self, common: &mut Common, at: At) {
        if common.store.open_swap().is_some() {
            return;
        }
        let Some(base) = &self.base else { return common.want_read(at.now) };
        let is_behind = common.saved.epoch > self.epoch
            || base.configuration.epoch >= self.epoch
            || common.saved.proposed >= self.epoch
            || self.above >= self.epoch;
        if is_behind {
            let saved = common.saved.epoch.max(common.saved.proposed);
            self.epoch = saved.max(base.configuration.epoch).max(self.above).next();
            self.fenced.clear();
            common.raise(self.epoch);
            self.next_fence = at.now;
        }
        let mut others: Vec<NodeId> = base.configuration.nodes().collect();
        others.extend(common.known.iter().flat_map(|known| known.configuration.nodes()));
        others.sort_unstable();
        others.dedup();
        let is_fenced = |node: &NodeId| self.fenced.iter().any(|(fenced, _)| fenced == node);
        others.retain(|node| *node != common.me.node && !is_fenced(node) && !self.without.contains(node));
        if !others.is_empty() {
            if at.now >= self.next_fence {
                self.next_fence = at.now + common.options.heartbeat;
                for node in others {
                    common.send(node, None, Message::Fence);
                }
            }
            return;
        }
        let Some(at) = at.with_log() else { return };
        if !common.is_on_disk(at) || !common.is_store_there(at.now) {
            return;
        }
        let mut next = base.configuration.led_by(common.me, &[]);
        next.epoch = self.epoch;
        let next = next.with_loss(Loss::Disks);
        let end = at.log.received.position;
        let is_ahead = |(node, received): &(NodeId, Option<LogPoint>)| {
            received.filter(|received| received.position > end).map(|received| (*node, received))
        };
        let ahead = self.fenced.iter().filter_map(is_ahead).collect();
        // Nor is the end of the log known of replicas whose database was not open.
        let is_unknown = |(node, received): &(NodeId, Option<LogPoint>)| received.is_none().then_some(*node);
        let unasked = self.without.iter().copied().chain(self.fenced.iter().filter_map(is_unknown)).collect();
        common.effect(Effect::Report(Report::ForcedLoss { ahead, unasked }));
        common.propose(base, next);
    }
}
