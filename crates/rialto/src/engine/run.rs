//! The loop that runs a transaction until it has its place or has failed.

use std::sync::Arc;
use std::time::Duration;

use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::error::Result;
use crate::foreign::catch;
use crate::inside::InBody;
use crate::reply::{Failure, Outcome};
use crate::row::Value;
use crate::txn::Transaction;
use crate::txn::committed::Committed;
use crate::txn::core::Core;
use crate::txn::options::TxOptions;
use crate::txn::runs::{Run, Runs};

/// Runs `body` until its transaction has its place or has failed; after a failure it also waits until what the body
/// read is durable.
pub(crate) fn run<T>(
    core: &Arc<Core>,
    options: &TxOptions,
    mut runs: Runs,
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<(T, Committed)> {
    let in_body = InBody::enter(core.storage.catalog.opening())?;
    loop {
        match run_once(core, options, &mut runs, &mut body) {
            Run::Placed(value, committed) => return Ok((value, committed)),
            Run::Again(rest) => take_rest(core, rest),
            Run::Failed(transaction, failure) => {
                if matches!(failure, Failure::Panic(_)) {
                    // The payload of a panic is foreign code, which may call a procedure when it is dropped.
                    // Therefore a caller that visits executors gives its turn up before that.
                    drop(WaitGuard::enter(&core.clock, Awaited::Others));
                }
                drop(in_body);
                transaction.map_or(Ok(()), Transaction::abort)?;
                return failure.tell();
            }
        }
    }
}

/// Runs `body` as [`Database::submit_with`](crate::Database::submit_with) does, but does not wait after a failure
/// either, and keeps a panic of the body. The caller has entered a body ([`InBody`]).
pub(crate) fn run_to_completion(
    core: &Arc<Core>,
    options: &TxOptions,
    mut body: impl FnMut(&mut Transaction) -> Result<Vec<Value>>,
) -> Outcome<Vec<Value>> {
    let mut runs = Runs::new();
    loop {
        match run_once(core, options, &mut runs, &mut body).outcome(core) {
            Ok(outcome) => return outcome,
            Err(rest) => take_rest(core, rest),
        }
    }
}

/// Runs `body` as a transaction, once. The caller has entered a body ([`InBody`]).
#[inline(always)]
pub(crate) fn run_once<T>(
    core: &Arc<Core>,
    options: &TxOptions,
    runs: &mut Runs,
    body: &mut impl FnMut(&mut Transaction) -> Result<T>,
) -> Run<T> {
    let mut transaction = match runs.begin(core, options) {
        Ok(transaction) => transaction,
        Err(error) => return Run::Failed(None, Failure::Error(error)),
    };
    let outcome = match catch(|| body(&mut transaction)) {
        Err(_) | Ok(Err(_)) if runs.is_spoiled(&mut transaction) => {
            return runs.again(transaction, None);
        }
        Err(panic) => return Run::Failed(Some(transaction), Failure::Panic(panic)),
        Ok(outcome) => outcome,
    };
    runs.end(core, transaction, outcome)
}

/// Rests before the next run.
pub(crate) fn take_rest(core: &Core, rest: Option<Duration>) {
    let Some(rest) = rest else { return };
    let _waiting = WaitGuard::enter(&core.clock, Awaited::Others);
    match rest.is_zero() {
        true => core.clock.look_later(0),
        false => core.clock.rest(rest),
    }
}
