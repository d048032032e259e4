//! Two-stage execution of the statements of a transaction whose body the kernel does not run: that of a handle.
//!
//! The transaction may hold locks of earlier statements, and have written. The fetch stage of a statement reads its
//! pages without further locks, and is taken back to where the transaction was. I/O of a fetch stage under locks of
//! earlier statements is unavoidable: between two statements the caller decides. A statement does not begin in one
//! stage and convert to two: at its first missing page it could not give up the locks of those before it.

use super::context::Context;
use super::transaction::Transaction;
use super::two_stage::StagedExecution;
use crate::account::waits;
use crate::catalog::Residence;
use crate::foreign::catch;
use crate::store::Table;
use crate::unlikely::unlikely;

impl Transaction<'_> {
    /// Runs the next statement of a transaction of [`Database::begin`](crate::Database::begin) ahead, so that its pages of
    /// disk-resident tables are in memory when it runs. `statement` runs without locks, and nothing that it does is kept: no
    /// change, no error, no panic. It may meet what no transaction sees, such as two reads of two moments. The pages stay in
    /// memory until the next call, or the end of the transaction. `tables` are those that the statement uses.
    ///
    /// This does nothing where it is of no use: in the body of [`Database::transact`](crate::Database::transact), which has stages
    /// of its own; if none of the tables is disk-resident; after a definition in the same transaction; and
    /// where the strategy of the moment is not TSTE ([`Options::two_stage`]). So the caller runs the statement in any case.
    ///
    /// ```
    /// # fn statement(db: &rialto::Database, table: &rialto::Table) -> rialto::Result<()> {
    /// let mut tx = db.begin()?;
    /// let mut statement = |tx: &mut rialto::Transaction<'_>| tx.delete(table, 7);
    /// tx.fetch_ahead(&[table], |tx| drop(statement(tx)));
    /// statement(&mut tx)?;
    /// tx.commit()
    /// # }
    /// ```
    ///
    /// The statement is lent a transaction of a lifetime of its own, which no other transaction has.
    ///
    /// ```compile_fail
    /// fn swapped(db: &rialto::Database, table: &rialto::Table) -> rialto::Result<()> {
    ///     let mut two = db.begin()?;
    ///     db.begin()?.fetch_ahead(&[table], |tx| std::mem::swap(tx, &mut two));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Blocking
    /// It waits for the disk, and for no lock.
    ///
    /// [`Options::two_stage`]: crate::Options::two_stage
    pub fn fetch_ahead(
        &mut self,
        tables: &[&Table],
        statement: impl for<'statement> FnOnce(&mut Transaction<'statement>),
    ) {
        if !unlikely(self.context().core.has_stages()) {
            return;
        }
        let is_on_disk = |table: &&Table| table.residence() == Residence::Disk;
        if tables.iter().any(is_on_disk) && self.context().begin_statement() {
            let before = self.context().before_fetch_stage();
            drop(catch(|| statement(self)));
            self.context().after_fetch_stage(before);
        }
    }
}

impl Transaction<'_> {
    /// The statement that was fetched ahead is over: its pages need not stay in memory until the next one, or the transaction's end.
    /// This does nothing while the statement is fetched ahead.
    pub fn end_fetched(&mut self) {
        if unlikely(self.context().statement.is_some()) && !self.context().fetches() {
            self.context().end_statement();
        }
    }
}

impl Context {
    /// Begins a statement. True: its fetch stage comes first, and has begun.
    fn begin_statement(&mut self) -> bool {
        if self.is_led || self.is_for_parts || self.ddl.is_some() || self.fetches() || self.check().is_err() {
            return false;
        }
        self.end_statement();
        let Some(stages) = &self.core.stages else { return false };
        let procedure = self.choices.procedure;
        let now = self.core.clock.now();
        let mut execution = Box::new(StagedExecution::of_statement(procedure, stages.begin(procedure), now));
        execution.begin_run(&self.page_access, now, waits::now().page_ns);
        let fetches = execution.fetches();
        self.statement = Some(execution);
        fetches
    }

    /// Ends the fetch stage of a statement. Its operate stage begins.
    pub(super) fn end_statements_fetch_stage(&mut self) {
        let counts = self.page_access.counts();
        let now = self.core.clock.now();
        if let Some(execution) = &mut self.statement {
            let page_ns = waits::now().page_ns;
            execution.end_run(&self.page_access, now, 0, page_ns);
            execution.begin_run(&self.page_access, now, page_ns);
        }
        self.core.commits.accounts.touched_pages(self.number, self.choices.procedure, counts);
    }

    /// Ends the operate stage of a statement, if one has begun, and counts what the transaction has done with pages since.
    #[cold]
    pub(super) fn end_statement(&mut self) {
        if let (Some(mut execution), Some(stages)) = (self.statement.take(), &self.core.stages)
            && let Some(told) = execution.end_statement(&self.page_access, || self.core.locks.waiters())
        {
            stages.tell(execution.procedure, &told);
        }
        let counts = self.page_access.take_counts();
        self.core.commits.accounts.touched_pages(self.number, self.choices.procedure, counts);
    }
}
