//! Runs bound statements in a transaction.
//!
//! Invariant: a statement decides on all its writes before it makes the first, so an UPDATE never meets its own rows.
//! Rows that are to be changed are read with X locks at once.

mod kept;
mod matches;
mod select;
mod write;

use rialto::Transaction;
use rialto::row::Value;
use smallvec::SmallVec;

pub use kept::KEPT_BYTES_MAX;
pub(crate) use kept::{bytes_of, sort_order};
pub use select::{copy_out, select, stay_with_definition};
pub(crate) use select::{series, window};
pub(crate) use write::evaluate;
pub use write::{delete, insert, update};

use crate::error::{Result, SqlError};
use crate::expr::{Columns, Context, Expr};
use crate::prepared::Prepared;
use kept::Budget;

/// Takes the rows of a result.
///
/// Invariant: rows come with their plan, and so with its columns, since a statement may have been planned again for a
/// table that has changed.
pub trait RowSink {
    /// A plan begins, and the next rows are its rows. If the table turns out to have changed, another plan begins
    /// before the first row.
    fn begin(&mut self, _plan: &Prepared) -> Result<()> {
        Ok(())
    }

    /// Whether [`RowSink::begin`] announces the result's columns. If not, they were announced before, and may not
    /// change.
    fn tells_columns(&self) -> bool {
        false
    }

    /// One row of the plan, one value for each of its [`Prepared::row_columns`].
    fn row(&mut self, plan: &Prepared, values: &[Value]) -> Result<()>;

    /// Tells the client something at once, while the statement runs. By default nothing is told.
    fn tell(&mut self, _notice: &SqlError) -> Result<()> {
        Ok(())
    }

    /// The last row of a COPY has come.
    fn end(&mut self, _plan: &Prepared) -> Result<()> {
        Ok(())
    }

    /// Forgets the rows so far, because the statement runs again; `false` if some cannot be taken back.
    fn restart(&mut self) -> bool;
}

/// Rows kept in memory.
#[derive(Debug, Default)]
pub struct Collected(pub Vec<Vec<Value>>);

impl RowSink for Collected {
    fn row(&mut self, _plan: &Prepared, values: &[Value]) -> Result<()> {
        self.0.push(values.to_vec());
        Ok(())
    }

    fn restart(&mut self) -> bool {
        self.0.clear();
        true
    }
}

/// The transaction of a running statement, and the rest.
pub struct Run<'a, 'tx> {
    /// The transaction.
    pub tx: &'a mut Transaction<'tx>,
    /// The rest.
    pub out: Out<'a>,
}

/// What a running statement has besides the transaction.
pub struct Out<'a> {
    /// Arguments and the time.
    pub context: Context<'a>,
    /// The plan that runs.
    pub plan: &'a Prepared,
    /// Takes its rows.
    pub sink: &'a mut dyn RowSink,
}

impl Out<'_> {
    /// Sends a row of these expressions.
    pub(crate) fn send<C: Columns + ?Sized>(&mut self, items: &[Expr], row: &C) -> Result<()> {
        let mut values: SmallVec<[Value; 4]> = SmallVec::with_capacity(items.len());
        let mut budget = Budget::default();
        for item in items {
            let value = item.eval(row, self.context)?;
            if let Value::Text(_) | Value::Bytes(_) = &value {
                budget.take(bytes_of([&value]))?;
            }
            values.push(value);
        }
        self.sink.row(self.plan, &values)
    }
}

/// Whether all conditions hold for a row that the statement has just found.
pub(crate) fn holds<C: Columns + ?Sized>(filter: &[Expr], row: &C, context: Context<'_>) -> Result<bool> {
    context.texts.begin_row();
    for condition in filter {
        if condition.truth(row, context)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Carries an error of its own out of a closure that the kernel calls: the kernel gets a stand-in, the caller gets the
/// original.
struct Carried(Option<crate::SqlError>);

impl Carried {
    fn new() -> Carried {
        Carried(None)
    }

    /// Keeps the error and gives the kernel one that ends its operation.
    fn keep<T>(&mut self, result: Result<T>) -> rialto::Result<T> {
        result.map_err(|error| {
            self.0 = Some(error);
            rialto::Error::aborted("the statement failed")
        })
    }

    /// The kernel's result, with the original error if it was kept.
    fn give<T>(self, result: rialto::Result<T>) -> Result<T> {
        match self.0 {
            Some(error) => Err(error),
            None => Ok(result?),
        }
    }
}
