//! What a [`Branch`] runs of a call.

use std::sync::Arc;
use std::time::Duration;

use rialto::{Database, Durability, Error, Result, Retries, Transaction, TxOptions, fault_injection};

use super::branch::{Body, Branch};
use super::work::{Answer, unprotected};
use crate::node::calls::{ActionInput, CallAction, Failure, Outputs, Part, Procedure, words_of};
use crate::protocol::transactions::{Access, Level, Locking};

/// The longest wait for a lock of a call over several partitions: two of them may wait for each other, and no partition
/// sees both waits. The call is run again.
const LOCK_WAIT_OVER_PARTITIONS: Duration = Duration::from_millis(50);
/// The most bytes of outputs that are kept in a row, which has at most 32 KiB.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// The most bytes of arguments, and of outputs. A message between nodes has at most 4 MiB: there is room for both in
/// it.
pub const ARGUMENT_BYTES_MAX: usize = 1 << 20;
const OUTPUT_BYTES_MAX: usize = 2 << 20;

impl Branch {
    /// Runs a part of a call.
    pub fn call(&self, sequence: u32, call: CallAction, mut body: Body) -> Body {
        let CallAction { procedure: name, version, access, level, is_numbered, part } = call;
        let Some(node) = self.served.node() else { return body };
        let Some(procedure) = node.procedures().find(&name, Some(version)) else {
            return self.failed(sequence, Failure::NotInstalled, level, body);
        };
        // As the operator has chosen for a partition with too few replicas in sync.
        let needs_others = access == Access::Writes && level == Level::Standby;
        let is_refused =
            self.served.lead().refuses_level_2() && !fault_injection::is_on("calls-run-unprotected");
        if needs_others && !matches!(part, Part::Settle) && is_refused {
            let why = unprotected(self.served.serves().partition).to_string();
            return self.failed(sequence, Failure::Passing(why), level, body);
        }
        let (mut body, ran) = match part {
            Part::Whole { arguments } => self.whole(procedure, (level, access, is_numbered), &arguments),
            Part::Some { phase, actions, arguments, earlier } => {
                let input = ActionInput { arguments: &arguments, earlier: &earlier };
                let places = (usize::from(phase), &actions[..]);
                self.some(procedure, body, (level, access), |tx| procedure.run_some(tx, places, input))
            }
            Part::Settle => {
                let place = match &mut body {
                    Body::Call(tx, _) => tx.settled().lsn(),
                    _ => rialto::Lsn::ZERO,
                };
                self.ran_once_durable(sequence, Answer::Nothing, Access::Reads, (place, level));
                return body;
            }
        };
        match ran {
            Ok(outputs) if is_too_long(&outputs, is_numbered) => {
                if self.locking == Locking::AsAlone {
                    end(&mut body);
                }
                self.failed(sequence, Failure::TooLong, level, body)
            }
            Ok(outputs) => {
                self.ran_with(sequence, Answer::Called(Ok(outputs)), access);
                body
            }
            Err(error) if is_of_the_moment(&error) && !tells_why(&error) => {
                end(&mut body);
                // Its coordinator runs the call again.
                self.served.ran(self.id, sequence, None);
                body
            }
            Err(error) => {
                if self.locking == Locking::AsAlone {
                    end(&mut body);
                }
                let failure = match is_of_the_moment(&error) {
                    true => Failure::Passing(words_of(&error)),
                    false => Failure::Failed(words_of(&error)),
                };
                self.failed(sequence, failure, level, body)
            }
        }
    }

    /// Runs a whole call, again after each deadlock.
    fn whole(
        &self,
        procedure: &Arc<Procedure>,
        (level, access, is_numbered): (Level, Access, bool),
        arguments: &[u8],
    ) -> (Body, Result<Outputs>) {
        let db = self.served.lead().database().clone();
        let read_only = access == Access::Reads && !is_numbered;
        let options = TxOptions { read_only, ..options(&db, procedure, level) };
        let mut retries = Retries::default();
        let mut begun = db.begin_with(&options);
        loop {
            let mut tx = match begun {
                Ok(tx) => tx,
                Err(error) => return (Body::Nothing, Err(error)),
            };
            self.watch(&mut tx);
            let mut outputs = Outputs::new();
            let error = match procedure.run(&mut tx, arguments, &mut outputs) {
                Ok(()) => return (Body::Call(tx, access), Ok(outputs)),
                // A victim runs again, whatever its body made of that.
                Err(error) => tx.check().err().unwrap_or(error),
            };
            begun = db.begin_again(tx, error, &options, &mut retries);
        }
    }

    /// Runs some actions of a call over several partitions, in the transaction that earlier ones have opened.
    fn some(
        &self,
        procedure: &Arc<Procedure>,
        body: Body,
        (level, access): (Level, Access),
        run: impl FnOnce(&mut Transaction<'_>) -> Result<Outputs>,
    ) -> (Body, Result<Outputs>) {
        let mut tx = match body {
            Body::Call(tx, _) => tx,
            Body::Nothing => {
                let db = self.served.lead().database();
                let options = TxOptions {
                    lock_timeout: Some(LOCK_WAIT_OVER_PARTITIONS),
                    may_prepare: true,
                    read_only: access == Access::Reads,
                    ..options(db, procedure, level)
                };
                match db.begin_with(&options) {
                    Ok(mut tx) => {
                        self.watch(&mut tx);
                        tx
                    }
                    Err(error) => return (Body::Nothing, Err(error)),
                }
            }
            body => return (body, Err(Error::aborted("the branch takes no actions any more"))),
        };
        let ran = run(&mut tx);
        let ran = ran.map_err(|error| tx.check().err().unwrap_or(error));
        (Body::Call(tx, access), ran)
    }

    /// Has other threads end what the transaction waits for.
    fn watch(&self, tx: &mut Transaction<'static>) {
        let canceller = tx.canceller();
        let mut cancels = self.cancels.lock();
        if cancels.is_asked {
            canceller.cancel();
        }
        cancels.canceller = Some(Box::new(move || canceller.cancel()));
    }

    /// The call has failed. What led to that is durable before it is told.
    fn failed(&self, sequence: u32, failure: Failure, level: Level, mut body: Body) -> Body {
        let mut place = self.served.lead().database().log_end().lsn;
        if let Body::Call(tx, _) = &mut body {
            // What it has read may have its place in the log, and not be in it yet.
            place = place.max(tx.settled().lsn());
        }
        self.ran_once_durable(sequence, Answer::Called(Err(failure)), Access::Reads, (place, level));
        body
    }
}

/// The options of a call's transaction.
pub fn options(db: &Database, procedure: &Procedure, level: Level) -> TxOptions {
    let durability = match level {
        Level::Disk => Durability::Disk,
        Level::Memory | Level::Standby => Durability::Memory,
    };
    TxOptions {
        durability: Some(durability),
        procedure: Some(db.procedure_id(procedure.name())),
        ..TxOptions::default()
    }
}

/// Whether the same call may succeed if it is run again: the error says nothing of its arguments and rows, nor of what its
/// body may not do.
pub fn is_of_the_moment(error: &Error) -> bool {
    let is_of_the_body = matches!(
        error,
        Error::ReadOnly
            | Error::Nested
            | Error::PreparedExists { .. }
            | Error::NoSuchPrepared { .. }
            | Error::Replay { .. }
    );
    error.is_of_the_moment() && !is_of_the_body
}

/// Whether such an error may stay for long, so that the program is told of it if no try ends otherwise: a limit that
/// has been reached, or definitions and data that are not as the body expects.
fn tells_why(error: &Error) -> bool {
    matches!(
        error,
        Error::ForeignHandle { .. }
            | Error::NoSuchTable { .. }
            | Error::WriteSetTooLarge { .. }
            | Error::MemoryLimit { .. }
            | Error::NumbersUsedUp { .. }
            | Error::TooManyLocks { .. }
            | Error::LockMemory { .. }
            | Error::CacheFull { .. }
            | Error::TooManyTransactions { .. }
            | Error::TooManyPackets { .. }
            | Error::LogTooSmall { .. }
            | Error::LogFull { .. }
            | Error::DiskFull { .. }
            | Error::Corrupt { .. }
    )
}

/// Whether a call may not give these outputs. One that has a number keeps them in a row.
pub fn is_too_long(outputs: &[Vec<u8>], is_numbered: bool) -> bool {
    let bytes_max = if is_numbered { KEPT_BYTES_MAX } else { OUTPUT_BYTES_MAX };
    outputs.iter().map(Vec::len).sum::<usize>() > bytes_max
}

/// Ends the open transaction, which leaves nothing.
fn end(body: &mut Body) {
    if let Body::Call(tx, _) = std::mem::replace(body, Body::Nothing) {
        // Nothing that it has read is answered as its own.
        let _ = tx.abort();
    }
}
