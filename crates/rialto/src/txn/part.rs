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

    /// Begins a part of this transaction: whoever waits for a lock of the part's waits for the transaction. The part uses
    /// tables by the intentions of the transaction, which has entered them before.
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
        self.share_doom(part);
        if !self.forgets_parts() {
            self.colours.absorb(&part.colours);
        }
        if !part.writes.is_empty() {
            self.writing = true;
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
            let slot_of = |slot| {
                let known =
                    tables.find(part.tables.id(slot)).expect("the transaction has its parts' tables locked");
                let is_same = std::ptr::eq(tables.at(known), part.tables.at(slot));
                assert!(is_same, "a table stays as it is while the transaction has it locked");
                known
            };
            let packet = packet.as_ref().map_or(&[][..], |packet| packet.bytes());
            writes.absorb(&mut part.writes, base as u32, slot_of, packet);
        }
        self.core.locks.hand_over(&mut part.owner, &mut self.owner);
        part.packet = None;
        part.finish();
    }

    fn forgets_parts(&self) -> bool {
        #[cfg(test)]
        return self.core.contexts.forgets_parts.load(std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(test))]
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::io::MemoryDisk;
    use crate::{Checkpointing, Database, Error, Options};

    /// What a body made of it does not matter: a victim ends without effect.
    #[test]
    fn a_part_that_is_a_victim_dooms_its_transaction() {
        let options =
            Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut transaction = db.begin().unwrap();
        let mut part = transaction.begin_part().unwrap();
        let victim = Error::Deadlock { waiting_for: "a row".to_owned() };
        part.context().doom(victim.clone());
        transaction.absorb(part);
        assert_eq!(transaction.commit(), Err(victim));
    }
}
