//! [`Committed`]: a transaction that has its place in the log and waits for the log to be durable.

use super::context::Context;
use super::core::Core;
use super::runs::Runs;
use super::transaction::Transaction;
use crate::account::{Ledger, waits};
use crate::commit::NoPlace;
use crate::error::Result;
use crate::ids::Lsn;
use crate::inside::InBody;
use crate::reply::{Ticket, TicketAccount};
use crate::unlikely::unlikely;

/// A transaction that has its place. Its context is kept for the wait. Without a context it has ended: no wait is
/// needed, and it is accounted for ([`Runs::to_reply`]).
pub(crate) struct Committed {
    context: Option<Box<Context>>,
    lsn: Lsn,
}

impl Committed {
    /// Whether no wait is needed.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.context.is_none()
    }

    #[inline(always)]
    pub(crate) fn wait_here(&mut self) -> Result<()> {
        let context = self.context.as_ref().expect("until dropped");
        if unlikely(!context.core.commits.log.reaches(self.lsn, context.choices.durability)) {
            return self.wait_for_log();
        }
        let (accounts, procedure) = (&context.core.commits.accounts, context.choices.procedure);
        accounts.committed(context.number, procedure, &context.ledger.spent(None, context.core.clock.now()));
        Ok(())
    }

    #[inline(never)]
    fn wait_for_log(&mut self) -> Result<()> {
        let context = self.context.as_ref().expect("until dropped");
        let placed = context.core.clock.now();
        let outcome =
            context.core.commits.log.wait(self.lsn, context.choices.durability, &context.patience());
        let spent = context.ledger.spent(Some(placed), context.core.clock.now());
        context.core.commits.accounts.committed(context.number, context.choices.procedure, &spent);
        if !InBody::is_inside(context.core.storage.catalog.opening()) {
            context.core.commits.log.wake_listeners();
        }
        outcome
    }

    /// Waits until the outcome is durable, and ends the transaction.
    #[inline(never)]
    pub(crate) fn reply(mut self, core: &Core) -> Result<()> {
        self.wait_here()?;
        self.give_back(core);
        Ok(())
    }

    /// Returns the context as a drop does, without changing a count of references.
    #[inline(always)]
    pub(crate) fn give_back(mut self, core: &Core) {
        if let Some(context) = self.context.take() {
            core.contexts.give_back(context);
        }
        std::mem::forget(self);
    }

    /// A ticket that tells when the outcome is durable, instead of a wait here.
    pub(crate) fn ticket(&mut self) -> Ticket {
        let context = self.context.as_ref().expect("until dropped");
        let (durability, procedure) = (context.choices.durability, context.choices.procedure);
        let placed = context.core.clock.now();
        let spent = context.ledger.spent(None, placed);
        context.core.commits.accounts.left_to_ticket(context.number, procedure, &spent);
        context.core.commits.log.leave(self.lsn, durability);
        let account = TicketAccount { procedure, placed, before_ns: spent.response_ns };
        Ticket::new(context.log.clone(), self.lsn, durability, context.patience()).with_account(account)
    }
}

impl Drop for Committed {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            context.lease.clone().contexts.give_back(context);
        }
    }
}

impl Transaction<'_> {
    /// Commits the last of some runs; without runs it commits the transaction of a handle, whose account begins here
    /// but for its time.
    #[inline(never)]
    pub(crate) fn take_place(&mut self, by: Option<(&Runs, &Core)>) -> Result<Committed, NoPlace> {
        let context = self.context.as_mut().expect("the transaction is open");
        let before = by.is_none().then(waits::now);
        // The transaction of a handle cannot be run again from here; therefore it waits.
        context.waits_for_sweep = by.is_none_or(|(runs, _)| runs.waits_for_sweep());
        let lsn = context.commit()?;
        let ledger = match (by, before) {
            (Some((runs, _)), _) => Ledger {
                began: runs.started.unwrap_or(context.began),
                waits: runs.waits.sample(),
                lock_wait_ns: runs.lock_wait_ns + context.lock_wait_ns,
            },
            (None, before) => Ledger {
                began: context.began,
                waits: before.unwrap_or_default(),
                lock_wait_ns: context.lock_wait_ns,
            },
        };
        if let Some((Runs { replies: true, .. }, core)) = by
            && !unlikely(!context.core.commits.log.has_reached(lsn, context.choices.durability))
        {
            let (accounts, procedure) = (&core.commits.accounts, context.choices.procedure);
            accounts.committed(context.number, procedure, &ledger.spent(None, core.clock.now()));
            if let Some(context) = self.context.take() {
                core.contexts.give_back(context);
            }
            return Ok(Committed { context: None, lsn });
        }
        context.ledger = ledger;
        Ok(Committed { context: self.context.take(), lsn })
    }

    /// As [`Transaction::take_place`], for a handle.
    pub(crate) fn take_place_once(&mut self) -> Result<Committed> {
        self.take_place(None).map_err(|none| match none {
            NoPlace::Error(error) => error,
            NoPlace::Straddles => unreachable!("the commit of a handle waits for the sweep"),
        })
    }

    /// Counts a run that a deadlock ended and that will be tried again. Returns how long it waited for locks.
    pub(crate) fn give_up(&mut self) -> u64 {
        let context = self.context.as_mut().expect("the transaction is open");
        context.abort();
        context.core.commits.accounts.deadlock(context.number, context.choices.procedure);
        context.lock_wait_ns
    }
}
