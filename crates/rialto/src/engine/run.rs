//! The loop that runs a transaction until it has its place in the log or has failed.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::account::wait_guard::{Awaited, WaitGuard};
use crate::error::{Error, Result};
use crate::foreign::catch;
use crate::inside::InBody;
use crate::reply::{Failure, Outcome};
use crate::row::Value;
use crate::txn::Transaction;
use crate::txn::committed::Committed;
use crate::txn::core::Core;
use crate::txn::options::TxOptions;
use crate::txn::runs::{Run, Runs};
use crate::unlikely::unlikely;

/// Runs `body` until its transaction has its place or has failed; after a failure it also waits until what the body
/// read is durable.
pub(crate) fn run<T>(
    core: &Arc<Core>,
    options: &TxOptions,
    runs: Runs,
    #[cfg_attr(not(debug_assertions), allow(unused_mut, reason = "the other builds change it"))]
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<(T, Committed)> {
    // Where speed matters less than the time of a build, bodies share what is compiled for their type of result.
    #[cfg(debug_assertions)]
    let body: &mut dyn FnMut(&mut Transaction) -> Result<T> = &mut body;
    run_told(core, options, runs, body, |_, error| error, |error| error)
}

/// As [`run`], of a body that has an error type of its own. Its error is the last run's; whether the body runs again
/// depends on the transaction alone, not on what the body makes of the transaction's errors.
pub(crate) fn run_own<T, E: From<Error>>(
    core: &Arc<Core>,
    options: &TxOptions,
    runs: Runs,
    mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
) -> Result<(T, Committed), E> {
    // Of the run that has begun last.
    let own = Cell::new(None);
    let body = |transaction: &mut Transaction| {
        own.set(None);
        body(transaction)
    };
    let why = |transaction: &mut Transaction, error| {
        own.set(Some(error));
        // A victim runs again, whatever its body made of that. Any other error ends the transaction, and `own` is told
        // for it.
        transaction.check().err().unwrap_or(Error::Cancelled)
    };
    run_told(core, options, runs, body, why, |error| own.take().unwrap_or_else(|| E::from(error)))
}

/// `why` says what an error of the body's is to the transaction, `tell` what the error of its last run is to the
/// caller.
fn run_told<T, E, O: From<Error>>(
    core: &Arc<Core>,
    options: &TxOptions,
    mut runs: Runs,
    mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    why: impl Fn(&mut Transaction, E) -> Error,
    tell: impl FnOnce(Error) -> O,
) -> Result<(T, Committed), O> {
    let in_body = InBody::enter(core.storage.catalog.opening())?;
    let mut body = |transaction: &mut Transaction| body(transaction).map_err(|error| why(transaction, error));
    loop {
        match run_once(core, options, &mut runs, &mut body) {
            Run::Placed(value, committed) => return Ok((value, committed)),
            Run::Again(backoff) => wait_backoff(core, backoff),
            Run::Failed(transaction, failure) => {
                if matches!(failure, Failure::Panic(_)) {
                    // The payload of a panic is foreign code, which may call a procedure when it is dropped.
                    // Therefore a caller that visits executors gives its turn up before that.
                    drop(WaitGuard::enter(&core.clock, Awaited::Others));
                }
                drop(in_body);
                // Of a run that did not begin, `tell` knows nothing: what a body gave in a run without effect is not
                // told.
                let Some(transaction) = transaction else { return failure.tell().map_err(O::from) };
                transaction.abort()?;
                return failure.tell().map_err(tell);
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
            Err(backoff) => wait_backoff(core, backoff),
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
    let outcome = catch(|| body(&mut transaction));
    if unlikely(runs.is_staged()) && runs.ends_stage(core, &mut transaction) {
        return runs.again(transaction, None);
    }
    let outcome = match outcome {
        Err(_) | Ok(Err(_)) if runs.is_invalidated(&mut transaction) => {
            return runs.again(transaction, None);
        }
        Err(panic) => return Run::Failed(Some(transaction), Failure::Panic(panic)),
        Ok(outcome) => outcome,
    };
    runs.end(core, transaction, outcome)
}

/// Waits for the back-off before the next run.
pub(crate) fn wait_backoff(core: &Core, backoff: Option<Duration>) {
    let Some(backoff) = backoff else { return };
    let _waiting = WaitGuard::enter(&core.clock, Awaited::Others);
    match backoff.is_zero() {
        true => core.clock.look_later(0),
        false => core.clock.rest(backoff),
    }
}
