//! [`Transaction`]: the handle that a body works with.

use std::marker::PhantomData;
use std::time::Duration;

use super::canceller::Canceller;
use super::context::{Choices, Context};
use super::options::{CommitWaits, LockPolicy, TxOptions};
use super::part::ActionChoice;
use crate::account::ProcedureId;
use crate::error::{Error, Result};
use crate::log::Durability;
use crate::log::group_commit::WAIT_MAX;
use crate::reply::{Failure, Outcome, Ticket};

/// A transaction: the handle that a body of [`Database::transact`](crate::Database::transact) works with, or that
/// [`Database::begin`](crate::Database::begin) returns for use across calls. It is `Send`; dropping it aborts.
///
/// Reads and writes take their locks as they run and return copies. Writes stay in the transaction's own write set
/// until it commits (I1); its own reads see them.
///
/// # Blocking
/// Each operation on rows or definitions may wait for locks, each up to the transaction's lock time-out
/// ([`TxOptions::lock_timeout`]); with [`LockPolicy::Refuse`] it fails instead. The first write may also wait for a
/// packet, up to [`Options::log_wait_max`](crate::Options::log_wait_max).
///
/// The lifetime of a handle is `'static`. Each body is lent a transaction of a lifetime of its own. No other
/// transaction has that type, so a body ends with the transaction that it was lent.
///
/// ```
/// fn handles(db: &rialto::Database, other: &rialto::Database) -> rialto::Result<()> {
///     let (mut one, mut two) = (db.begin()?, other.begin()?);
///     std::mem::swap(&mut one, &mut two);
///     db.transact(|tx| tx.check())?;
///     one.commit()
/// }
/// # let _flow = rialto::Flow::of(|tx, _, _| tx.check());
/// ```
///
/// ```compile_fail,E0521
/// fn closure(db: &rialto::Database, other: &rialto::Database) -> rialto::Result<()> {
///     let mut two = other.begin()?;
///     db.transact(|tx| Ok(std::mem::swap(tx, &mut two)))
/// }
/// ```
///
/// ```compile_fail,E0521
/// fn action(other: rialto::Database) -> rialto::Flow {
///     rialto::Flow::of(move |tx, _, _| std::mem::replace(tx, other.begin()?).commit())
/// }
/// ```
pub struct Transaction<'body> {
    /// Present until the transaction ends.
    pub(crate) context: Option<Box<Context>>,
    /// Makes the lifetime invariant.
    lent: PhantomData<fn(&'body ()) -> &'body ()>,
}

impl Transaction<'static> {
    /// The transaction in an open context.
    pub(crate) fn of(context: Box<Context>) -> Transaction<'static> {
        Transaction { context: Some(context), lent: PhantomData }
    }
}

impl Transaction<'_> {
    pub(crate) fn context(&mut self) -> &mut Context {
        self.context.as_mut().expect("the transaction is open")
    }

    /// Runs an operation. Every operation that can meet an error of the moment runs here, so that none of these errors
    /// reaches the body unnoticed: the body may go on, and do what it would not have done without the error.
    #[inline(always)]
    pub(super) fn operate<T>(&mut self, work: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        let context = self.context();
        let outcome = work(context);
        if let Err(error) = &outcome {
            context.note_error(error);
        }
        outcome
    }

    /// Gives the transaction to this account from now on ([`TxOptions::procedure`](crate::TxOptions::procedure)). Its statements of
    /// [`Transaction::fetch_ahead`] are executed by what earlier ones of the same account have met; its time goes to the account that
    /// it has at its end.
    #[inline]
    pub fn set_procedure(&mut self, procedure: ProcedureId) {
        self.context().choices.procedure = procedure;
    }

    /// Commits and waits until the outcome is as durable as the transaction asked.
    ///
    /// # Blocking
    /// The call may wait for room in the log, for a checkpoint that the transaction straddles, and then until the log
    /// is durable up to the transaction's place.
    ///
    /// # Errors
    /// The errors that keep a transaction from taking its place; then it is aborted, and the error is returned when
    /// what it read is durable (I3). [`Error::OutcomeUnknown`] if the log fails before the answer.
    pub fn commit(mut self) -> Result<()> {
        match self.take_place_once() {
            Ok(mut committed) => committed.wait_here(),
            Err(error) => self.fail(error),
        }
    }

    /// Commits without waiting: the ticket tells when the outcome is durable. Dropping the ticket cancels nothing.
    ///
    /// # Blocking
    /// As [`Transaction::commit`], without the wait for the log's durability.
    ///
    /// # Errors
    /// The errors that keep a transaction from taking its place; then it is aborted, and the error is returned when
    /// what it read is durable (I3), as with [`Transaction::commit`].
    pub fn submit(mut self) -> Result<Ticket> {
        match self.take_place_once() {
            Ok(mut committed) => Ok(committed.ticket()),
            Err(error) => self.fail(error),
        }
    }

    /// Aborts, and returns the error of the commit. The error rests on what the transaction has read, so it is returned
    /// when that is durable; if that can never be durable, the log's error is returned.
    pub(crate) fn fail<T>(self, error: Error) -> Result<T> {
        self.abort()?;
        Err(error)
    }

    /// Aborts: nothing of the transaction is kept. Waits until what it read is durable, since the caller may act on it.
    ///
    /// # Blocking
    /// The call waits until what the transaction read is durable.
    ///
    /// # Errors
    /// The error of the log if it fails before that.
    pub fn abort(mut self) -> Result<()> {
        let ticket = self.settled();
        self.context().abort();
        self.release();
        ticket.wait()
    }

    /// A ticket for what the transaction has read so far: done when all of it is as durable as the transaction asks. A
    /// caller that reports a failed operation to the outside waits for it first (I3).
    pub fn settled(&mut self) -> Ticket {
        let context = self.context();
        Ticket::new(context.log.clone(), context.depends, context.choices.durability, context.patience())
    }

    /// The outcome of the transaction if it fails in this way. The transaction ends, and holds nothing when the outcome
    /// is told.
    pub(crate) fn failed<T>(mut self, failure: Failure) -> Outcome<T> {
        Outcome::failed(failure, Some(self.settled()))
    }

    fn release(&mut self) {
        if let Some(context) = self.context.take() {
            context.give_back();
        }
    }

    /// Changes how the transaction waits for locks from now on.
    pub fn set_lock_policy(&mut self, policy: LockPolicy) {
        self.context().choose(ActionChoice::LockPolicy(policy));
    }

    /// Changes how durable the transaction's commit will be.
    pub fn set_durability(&mut self, durability: Durability) {
        let context = self.context();
        let durability = context.core.commits.durability(durability);
        context.choose(ActionChoice::Durability(durability));
    }

    /// Changes the transaction's choices from now on, as if it had begun with these options: how durable its commit is,
    /// the limit of its waits for locks, whether it may write, and the waits of its commit. Its isolation, time-out,
    /// lock policy and procedure stay as they are.
    ///
    /// # Errors
    /// [`Error::BadDefinition`] for waits that are too long; then nothing is changed. [`Error::Deadlock`] in a body
    /// that has read without locks ([`Database::read`](crate::Database::read)) and chooses to write: it runs again,
    /// with locks.
    pub fn choose(&mut self, options: &TxOptions) -> Result<()> {
        let waits = options.waits()?;
        let context = self.context();
        let Choices { durability, lock_timeout, read_only, .. } = context.core.choices(options);
        context.check_read_only_choice(read_only)?;
        context.choose(ActionChoice::All { durability, lock_timeout, read_only, waits });
        Ok(())
    }

    /// Changes how long the transaction stalls at its commit ([`TxOptions::commit_stall`]) and how long it is willing
    /// to wait in all ([`TxOptions::willing_to_wait`]). A longer time than
    /// [`WAIT_MAX`](crate::log::group_commit::WAIT_MAX) counts as `WAIT_MAX`.
    pub fn set_waits(&mut self, commit_stall: Option<Duration>, willing_to_wait: Option<Duration>) {
        let bounded = |wait: Option<Duration>| wait.map(|wait| wait.min(WAIT_MAX));
        let waits = CommitWaits { stall: bounded(commit_stall), willing_to_wait: bounded(willing_to_wait) };
        self.context().choose(ActionChoice::Waits(waits));
    }

    /// How durable the transaction's commit will be.
    pub fn durability(&mut self) -> Durability {
        self.context().choices.durability
    }

    /// An error if the transaction may not go on. For long work between operations.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Timeout`]; [`Error::Deadlock`] if it is a deadlock's victim.
    pub fn check(&mut self) -> Result<()> {
        self.operate(|context| context.check())
    }

    /// A handle that cancels this transaction from another thread.
    pub fn canceller(&mut self) -> Canceller {
        let context = self.context();
        context.cancellation.follow(context.owner.transaction());
        Canceller { cancellation: context.cancellation.clone(), core: context.core.clone() }
    }

    /// Replaces the transaction's canceller by this one.
    pub(crate) fn follow(&mut self, canceller: &Canceller) {
        let context = self.context();
        context.cancellation = canceller.cancellation.clone();
        context.cancellation.follow(context.owner.transaction());
    }

    /// Goes on after a cancel, for example after a rollback to a savepoint. A canceller can cancel it again.
    pub fn clear_cancellation(&mut self) {
        let context = self.context();
        // What a fetch stage does is dropped; the cancel stays for the transaction.
        if !context.fetches() {
            context.cancellation.clear();
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(context) = &mut self.context {
            context.abort();
        }
        self.release();
    }
}
