//! A workload's tables in a database: how they are created and loaded, and how existing ones are recognised.
//!
//! Beside a workload's own tables there is one with a single row, which names the workload and its sizes. A database
//! is used again if it has exactly these tables and that row.

use std::fmt::Display;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Result, Table, TableDef, Transaction};

/// Why a database cannot be used for a workload.
#[derive(Debug, Clone, PartialEq)]
pub enum ShapeError {
    /// It holds something else, and what was asked for.
    OtherShape {
        /// What it holds.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// Loading or reading it failed.
    Failed(Error),
}

impl From<Error> for ShapeError {
    fn from(error: Error) -> ShapeError {
        ShapeError::Failed(error)
    }
}

/// What a workload has in `T` tables, by `S` sizes.
pub(crate) trait Data<const T: usize, const S: usize>: Sized + PartialEq + Display {
    /// What it is called, with its article.
    const NAME: &'static str;
    /// The table of one row that says the sizes.
    const TABLE: &'static str;
    /// The workload, as it is said there.
    const KIND: &'static str;
    /// The names of the sizes.
    const SIZES: [&'static str; S];

    /// That of these sizes.
    fn of_sizes(sizes: [u32; S]) -> Self;
    /// The sizes.
    fn sizes(&self) -> [u32; S];
    /// The workload's tables.
    fn tables() -> [TableDef; T];

    /// Fills the tables, and creates indexes on them. `progress` is told how far it is.
    ///
    /// # Errors
    /// What inserts can meet.
    fn fill(
        &self,
        transaction: &mut Transaction,
        tables: &[Table; T],
        progress: &mut dyn FnMut(&str),
    ) -> Result<()>;

    /// The tables in the database, if they hold this; loaded, if the database is empty. The second is whether they were there
    /// already.
    ///
    /// # Errors
    /// [`ShapeError::OtherShape`] if the database holds something else.
    fn open_or_load(
        &self,
        database: &Database,
        progress: &mut dyn FnMut(&str),
    ) -> Result<([Table; T], bool), ShapeError> {
        let there = match look::<T, S, Self>(database)? {
            Found::Nothing => {
                load(database, self, progress)?;
                false
            }
            Found::Data(found) if found == *self => true,
            Found::Data(found) => {
                let expected = format!("one of {self}");
                return Err(ShapeError::OtherShape { found: format!("{} of {found}", Self::NAME), expected });
            }
            Found::Other(found) => {
                let expected = format!("{} of {self}", Self::NAME);
                return Err(ShapeError::OtherShape { found, expected });
            }
        };
        let mut tables = Vec::with_capacity(T);
        for definition in Self::tables() {
            tables.push(database.table(&definition.name)?);
        }
        Ok((tables.try_into().expect("one for each definition"), there))
    }
}

/// What a database holds.
enum Found<D> {
    /// No tables.
    Nothing,
    /// The workload, of these sizes.
    Data(D),
    /// Something else, in words.
    Other(String),
}

/// The table of one row.
fn sizes_table<const T: usize, const S: usize, D: Data<T, S>>() -> TableDef {
    let mut columns = vec![Column::new("kind", ColumnType::Text)];
    columns.extend(D::SIZES.map(|name| Column::new(name, ColumnType::Int4)));
    TableDef::new(D::TABLE, columns).with_primary_key(&["kind"])
}

fn look<const T: usize, const S: usize, D: Data<T, S>>(database: &Database) -> Result<Found<D>> {
    let mut names: Vec<String> = database.tables().iter().map(Table::name).collect();
    names.retain(|name| !name.starts_with("rialto_"));
    names.sort();
    if names.is_empty() {
        return Ok(Found::Nothing);
    }
    let others = || Ok(Found::Other(format!("other tables ({})", names.join(", "))));
    let mut expected: Vec<String> = D::tables().map(|definition| definition.name).into();
    expected.push(D::TABLE.to_owned());
    expected.sort();
    if names != expected {
        return others();
    }
    let table = database.table(D::TABLE)?;
    if table.schema().columns().len() != S + 1 {
        return others();
    }
    match database.read(|transaction| transaction.get(&table, D::KIND))? {
        None => others(),
        Some(row) => {
            let mut sizes = [0; S];
            for (size, column) in sizes.iter_mut().zip(1..) {
                *size = row.view().get_i32(column)? as u32;
            }
            Ok(Found::Data(D::of_sizes(sizes)))
        }
    }
}

/// Creates and fills all tables in one transaction: a crash leaves all of them or nothing.
fn load<const T: usize, const S: usize, D: Data<T, S>>(
    database: &Database,
    data: &D,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    database.transact(|transaction| {
        let mut tables = Vec::with_capacity(T);
        for definition in D::tables() {
            tables.push(transaction.create_table(&definition)?);
        }
        let sizes = transaction.create_table(&sizes_table::<T, S, D>())?;
        let mut row = vec![Value::Text(D::KIND.to_owned())];
        row.extend(data.sizes().map(|size| Value::Int4(size as i32)));
        transaction.insert(&sizes, &row)?;
        data.fill(transaction, &tables.try_into().expect("one for each definition"), progress)
    })
}
