//! [`Records`]: a table whose rows are values of a Rust type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use crate::catalog::TableDef;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::row::{self, IndexRef, IntoKey, Record, Schema, WhichIndex};
use crate::store::Table;
use crate::txn::{Rows, Scan, ScanMode, Transaction};

/// A table whose rows are values of the Rust type `R`. It is cheap to clone, and valid as long as the table exists.
/// [`Database::records`] returns it.
pub struct Records<R> {
    table: Table,
    record: PhantomData<fn() -> R>,
}

impl<R: Record> Records<R> {
    /// The record with this primary key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get(&self, transaction: &mut Transaction, key: R::Key) -> Result<Option<R>> {
        transaction.look(&self.table, key, R::decode)?.transpose()
    }

    /// The record that has this key in a unique index.
    ///
    /// # Errors
    /// As [`Transaction::look_by`].
    pub fn get_by(
        &self,
        transaction: &mut Transaction,
        index: impl IndexRef,
        key: impl IntoKey,
    ) -> Result<Option<R>> {
        transaction.look_by(&self.table, index, key, ScanMode::Share, R::decode)?.transpose()
    }

    /// The records of a range in the order of the scan's index: [`Transaction::rows`].
    ///
    /// # Errors
    /// As [`Transaction::rows`].
    pub fn rows<'t>(
        &self,
        transaction: &'t mut Transaction,
        scan: &Scan,
    ) -> Result<impl Iterator<Item = Result<R>> + use<'t, R>> {
        Ok(decoded(transaction.rows(&self.table, scan)?))
    }

    /// The records whose key in an index has these values in its first columns: [`Transaction::rows_by`].
    ///
    /// # Errors
    /// As [`Transaction::rows`].
    pub fn rows_by<'t, I: IndexRef, K: IntoKey>(
        &self,
        transaction: &'t mut Transaction,
        index: I,
        prefix: K,
    ) -> Result<impl Iterator<Item = Result<R>> + use<'t, R, I, K>> {
        Ok(decoded(transaction.rows_by(&self.table, index, prefix)?))
    }

    /// Inserts a record.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn insert(&self, transaction: &mut Transaction, record: &R) -> Result<()> {
        transaction.insert_with(&self.table, |schema, row| record.encode(schema, row))
    }

    /// Replaces the record that has the primary key of this one. False if there is none.
    ///
    /// # Errors
    /// As [`Transaction::update`]; [`Error::Unsupported`] if the table has no primary key.
    pub fn update(&self, transaction: &mut Transaction, record: &R) -> Result<bool> {
        transaction.replace_with(&self.table, |schema, row| record.encode(schema, row))
    }

    /// Deletes the record with this primary key. False if there is none.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub fn delete(&self, transaction: &mut Transaction, key: R::Key) -> Result<bool> {
        transaction.delete(&self.table, key)
    }

    /// Calls `visit` with each record of a range, in the order of the scan's index, until it returns
    /// [`Break`](std::ops::ControlFlow::Break).
    ///
    /// # Errors
    /// As [`Transaction::scan`]; the error of `visit`.
    pub fn scan(
        &self,
        transaction: &mut Transaction,
        scan: &Scan,
        mut visit: impl FnMut(R) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        transaction.scan(&self.table, scan, |_, row| visit(R::decode(row)?))
    }

    /// The index of this name, for a [`Scan`].
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    pub fn index(&self, name: &str) -> Result<WhichIndex> {
        self.table.schema().index_named(name)
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

impl Database {
    /// The table of a record type. If no table has the type's name, it is created, with its indexes, in a transaction
    /// of its own.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] if the table exists and its columns, primary key or indexes are not the record's; the
    /// table may have other indexes too. Else as [`Transaction::create_table`].
    pub fn records<R: Record>(&self) -> Result<Records<R>> {
        let there = match self.table(R::TABLE) {
            Err(Error::NoSuchTable { .. }) => match self.transact(|tx| tx.create_table(&TableDef::of::<R>()))
            {
                // Another thread has created it meanwhile.
                Err(Error::NameTaken { name }) => {
                    self.table(R::TABLE).map_err(|_| Error::NameTaken { name })?
                }
                Err(error) => return Err(error),
                Ok(table) => table,
            },
            there => there?,
        };
        check::<R>(&there.schema())?;
        Ok(Records { table: there, record: PhantomData })
    }
}

fn decoded<R: Record>(rows: Rows<'_>) -> impl Iterator<Item = Result<R>> {
    rows.map(|row| R::decode(row?.view()))
}

fn check<R: Record>(schema: &Schema) -> Result<()> {
    row::fits::<R>(schema)?;
    for (name, columns, unique) in R::indexes() {
        let index = schema.indexes().iter().find(|index| index.name == name);
        let found = index.map(|index| {
            let columns = index.columns.iter().map(|&column| schema.columns()[column].name.as_str());
            (columns.collect::<Vec<_>>(), index.unique)
        });
        let expected = (columns, unique);
        if found.as_ref() == Some(&expected) {
            continue;
        }
        let print = |(columns, unique): &(Vec<&str>, bool)| {
            format!("({}){}", columns.join(", "), if *unique { " unique" } else { "" })
        };
        let record = std::any::type_name::<R>();
        return Err(Error::SchemaMismatch {
            record: record.rsplit("::").next().unwrap_or(record).to_owned(),
            table: schema.table().to_owned(),
            reason: format!(
                "the record has index \"{name}\" on {}, but that of the table is {}: create it with \
                 Transaction::create_index",
                print(&expected),
                found.as_ref().map_or("none".to_owned(), print)
            ),
        });
    }
    Ok(())
}

impl<R> Clone for Records<R> {
    fn clone(&self) -> Records<R> {
        Records { table: self.table.clone(), record: PhantomData }
    }
}

impl<R> fmt::Debug for Records<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Records").field(&self.table).finish()
    }
}
