//! Parts of a transaction: what actions of one phase do at the same time, each in a context of its own, until they meet.

use super::transaction::{Context, Transaction};
use super::write_set::Mark;
use crate::error::Result;

impl Transaction {
    /// It may wait for anybody from here on.
    pub(crate) fn leave_stint(&mut self) {
        let context = self.context();
        context.core.locks.leave_stint(&mut context.owner);
    }

    /// Begins a part of this transaction: whoever waits for a lock of the part's waits for the transaction.
    pub(crate) fn begin_part(&mut self) -> Result<Transaction> {
        let whole = self.context();
        let mut context = whole.lease.core().lend()?;
        if let Err(error) = context.begin_as_part(whole) {
            whole.core.contexts.give_back(context);
            return Err(error);
        }
        whole.core.locks.follow(&mut context.owner, &whole.owner);
        Ok(Transaction { context: Some(context) })
    }

    /// The part has run: all that it did and holds is the transaction's from here on.
    pub(crate) fn absorb(&mut self, mut part: Transaction) {
        let mut context = part.context.take().expect("a part is open until it is absorbed");
        self.context().absorb(&mut context);
        self.context().core.contexts.give_back(context);
    }

    /// The part is given up; what it has read the transaction's error depends on (I3).
    pub(crate) fn forget(&mut self, mut part: Transaction) {
        let mut context = part.context.take().expect("a part is open until it is given up");
        let whole = self.context();
        whole.depend(context.depends);
        context.roll_back_to(&Mark { writes: 0, adds: 0, packet: 0 });
        context.packet = None;
        context.finish();
        whole.core.contexts.give_back(context);
    }
}

impl Context {
    /// Takes over what a part has read, written and locked. The keys that it wrote are none of this context's own.
    fn absorb(&mut self, part: &mut Context) {
        self.depend(part.depends);
        self.colours.absorb(&part.colours);
        if !part.writes.is_empty() {
            let base = match (&mut self.packet, part.packet.take()) {
                (Some(packet), Some(of_part)) => {
                    let base = packet.bytes().len();
                    packet.bytes_mut().extend_from_slice(of_part.bytes());
                    base
                }
                (own @ None, of_part) => {
                    *own = of_part;
                    0
                }
                (Some(_), None) => unreachable!("whoever has written has a packet"),
            };
            let Context { writes, tables, packet, .. } = self;
            let slot_of = |slot| match tables.find(part.tables.id(slot)) {
                Some(slot) => slot,
                None => tables.put(part.tables.shared(slot).clone()),
            };
            let packet = packet.as_ref().map_or(&[][..], |packet| packet.bytes());
            writes.absorb(&mut part.writes, base as u32, slot_of, packet);
        }
        self.core.locks.hand_over(&mut part.owner, &mut self.owner);
        part.packet = None;
        part.finish();
    }
}
