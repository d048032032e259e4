//! How a replica takes what the control store has: configurations, and the outcomes of swaps.

use std::sync::Arc;

use rialto::fault_injection;

use super::configuration::{Configuration, Known};
use super::event::{At, Effect, ReadOutcome, Report, SwapOutcome};
use super::following::Following;
use super::leading::Leading;
use super::replica::{Replica, Role};

impl Replica {
    /// Takes a configuration that another replica knows. It was in force, so one of another store that is newer was put there by
    /// force.
    pub(super) fn learn(&mut self, at: At, found: &Known) {
        let epoch = found.configuration.epoch;
        let is_newer = self.common.known.as_ref().is_none_or(|known| epoch > known.configuration.epoch);
        if is_newer && epoch >= self.common.saved.epoch {
            self.adopt(at, found.clone());
        }
    }

    pub(super) fn read(&mut self, at: At, outcome: ReadOutcome) {
        let found = match outcome {
            ReadOutcome::Is(found) => found,
            ReadOutcome::Missing => return self.common.store.seen(at.now),
            ReadOutcome::Unavailable => return self.common.store.unavailable(at.now, &self.common.options),
        };
        self.common.store.seen(at.now);
        if let Role::Following(following) = &mut self.role
            && let Some(forcing) = &mut following.forcing
        {
            match self.common.store.open_swap() {
                Some(swap) if swap.to == found.configuration => self.adopt(at, found),
                Some(swap) if swap.from == found => self.send_swap_again(),
                _ => {
                    self.common.store.conclude();
                    // A store that was restored may not know the replica yet.
                    let is_newest = found.configuration.epoch >= self.common.saved.epoch;
                    if is_newest && !found.configuration.has(self.common.me.node) {
                        following.forcing = None;
                        return self.common.effect(Effect::Report(Report::ForceRefused));
                    }
                    forcing.read(found);
                }
            }
            return;
        }
        if !self.common.is_acceptable(&found) {
            if self.common.refused.as_ref() != Some(&found) {
                self.common.refused = Some(found.clone());
                self.common.effect(Effect::Report(Report::StoreRefused { found }));
            }
            return;
        }
        let known = self.common.known.as_ref().map(|known| known.configuration.epoch);
        if known != Some(found.configuration.epoch) {
            self.adopt(at, found);
        } else if fault_injection::is_on("read-concludes-a-swap") {
            self.common.store.conclude();
        } else if self.common.store.open_swap().is_some() {
            // It was not done yet, but may still be. Only a definite answer concludes it.
            self.send_swap_again();
        }
    }

    fn send_swap_again(&mut self) {
        if let Some(effect) = self.common.store.send_again() {
            self.common.effect(effect);
        }
    }

    pub(super) fn swapped(&mut self, at: At, outcome: SwapOutcome) {
        if outcome != SwapOutcome::Unknown {
            self.common.store.seen(at.now);
        }
        let Some(swap) = self.common.store.open_swap() else { return };
        match outcome {
            SwapOutcome::Done(revision) => {
                let (store, configuration) = (swap.from.store, swap.to.clone());
                self.adopt(at, Known { store, revision, configuration });
            }
            SwapOutcome::Lost => {
                self.common.store.read_soon();
                if let Role::Following(Following { forcing: Some(forcing), .. }) = &mut self.role {
                    self.common.store.conclude();
                    forcing.lost();
                }
            }
            SwapOutcome::Unknown => {}
        }
    }

    /// Takes a configuration that has become known, and was put in force.
    fn adopt(&mut self, at: At, known: Known) {
        let configuration = &known.configuration;
        let swap = self.common.store.open_swap();
        let is_own = swap.is_some_and(|swap| swap.to == *configuration);
        if swap.is_some_and(|swap| swap.to.epoch <= configuration.epoch) {
            self.common.store.conclude();
        }
        // A database that is not open cannot lead, nor one that has lost its memory since the swap was sent. A replica that is
        // recorded as primary all the same goes on as such.
        let is_me =
            configuration.is_in_sync(self.common.me) || fault_injection::is_on("leads-in-another-life");
        let leads = is_own && is_me && configuration.primary == self.common.me.node;
        let log = at.with_log().filter(|_| leads);
        let primary = self.common.known.as_ref().map(|known| known.configuration.primary);
        let is_same_primary = primary == Some(configuration.primary);
        let (epoch, lost_before) = (configuration.epoch, configuration.lost_before);
        self.tell_removal(configuration);
        self.common.saved.epoch = self.common.saved.epoch.max(epoch);
        self.common.saved.store = Some(known.store);
        if configuration.is_in_sync(self.common.me) {
            self.common.saved.agrees = self.common.saved.agrees.max(epoch);
        }
        self.common.save();
        self.common.known = Some(Arc::new(known));
        match &mut self.role {
            Role::Leading(leading) if log.is_some() => leading.reconfigured(&self.common, at.now),
            Role::Leading(_) => self.follow(at.now),
            Role::Following(following) => match log {
                Some(at) => {
                    self.common.effect(Effect::Lead { epoch, lost_before });
                    self.role = Role::Leading(Leading::new(epoch, at));
                }
                None => following.reconfigured(is_same_primary),
            },
        }
    }

    /// Tells the operator of a configuration without this replica, unless it is the first one that is seen here.
    fn tell_removal(&mut self, configuration: &Configuration) {
        let (epoch, is_known) = (configuration.epoch, self.common.saved.store.is_some());
        let is_untold = fault_injection::is_on("removal-untold");
        if is_known && !is_untold && self.common.is_member() && !configuration.has(self.common.me.node) {
            self.common.effect(Effect::Report(Report::Removed { epoch }));
        }
    }
}
