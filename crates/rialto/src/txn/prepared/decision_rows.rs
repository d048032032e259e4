//! Rows that are written with a decision: in the packet that commits the prepared transaction, or ends its abort.

use super::registry::Undecided;
use crate::commit::write_set::Mark;
use crate::error::Result;
use crate::foreign::catch;
use crate::isolate::LockPolicy;
use crate::reply::Failure;
use crate::txn::context::Context;
use crate::txn::transaction::Transaction;

/// Writes the rows.
pub(crate) type DecisionRows<'a> = &'a mut dyn FnMut(&mut Transaction<'_>) -> Result<()>;

/// The log's room for such rows that each prepared transaction keeps beside the room for its commit, in bytes.
pub(in crate::txn) const ROWS_BYTES: usize = 4 << 10;
/// They may take this much of the write set, in bytes, however large the prepared transaction's own part is.
const ROWS_BYTES_MAX: usize = 1 << 20;

impl Undecided {
    /// Has rows written by a prepared transaction that is being decided. After a failure some may be written.
    pub(super) fn write_rows(self, rows: DecisionRows<'_>) -> (Undecided, Result<(), Failure>) {
        let mut context = self.context;
        let (choices, bounds) = (context.choices, (context.room, context.room_for_entries));
        let most = context.packet_bytes().len() + ROWS_BYTES_MAX;
        (context.room, context.room_for_entries) = (bounds.0.max(most), usize::MAX);
        context.choices.lock_timeout = context.core.defaults.lock_timeout;
        context.choices.lock_wait = LockPolicy::Wait;
        let mut transaction = Transaction::of(context);
        let mut written = match catch(|| rows(&mut transaction)) {
            // A victim of a deadlock fails, too, if its body has gone on.
            Ok(written) => written.and_then(|()| transaction.check()).map_err(Failure::Error),
            Err(panic) => Err(Failure::Panic(panic)),
        };
        // I3: the failure may rest on what the body has read.
        if written.is_err()
            && let Err(error) = transaction.settled().wait()
        {
            written = Err(Failure::Error(error));
        }
        let mut context = transaction.context.take().expect("it does not end in its body");
        context.savepoints.clear();
        context.end_statement();
        context.outlast_limits();
        context.choices = choices;
        (context.room, context.room_for_entries) = bounds;
        (Undecided { context, ..self }, written)
    }
}

impl Context {
    /// Takes back what was written since the mark.
    pub(super) fn take_rows_back(&mut self, mark: &Mark) {
        self.roll_back_to(mark);
        self.side.note_anything_absent();
    }
}
