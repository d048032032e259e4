//! Which workload a database holds: a table of one row says its kind and its sizes.

use std::fmt::Display;

use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Error, Result, Table, TableDef};

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

/// What a database holds.
pub(crate) enum Found<const N: usize> {
    /// No tables.
    Nothing,
    /// The workload, of these sizes.
    Sizes([u32; N]),
    /// Something else, in words.
    Other(String),
}

impl<const N: usize> Found<N> {
    /// Whether the workload is there, in the shape that was asked for; if nothing is there, it is loaded. `what` it is
    /// called.
    pub(crate) fn or_load<S: PartialEq + Display>(
        self,
        what: &str,
        shape: &S,
        of_sizes: impl FnOnce([u32; N]) -> S,
        load: impl FnOnce() -> Result<()>,
    ) -> Result<bool, ShapeError> {
        match self {
            Found::Nothing => Ok(load().map(|()| false)?),
            Found::Sizes(sizes) => {
                let found = of_sizes(sizes);
                if found == *shape {
                    return Ok(true);
                }
                let expected = format!("one of {shape}");
                Err(ShapeError::OtherShape { found: format!("{what} of {found}"), expected })
            }
            Found::Other(found) => {
                Err(ShapeError::OtherShape { found, expected: format!("{what} of {shape}") })
            }
        }
    }
}

/// The table that says it; `sizes` are the names of the sizes.
pub(crate) fn table<const N: usize>(name: &str, sizes: [&str; N]) -> TableDef {
    let mut columns = vec![Column::new("kind", ColumnType::Text)];
    columns.extend(sizes.map(|name| Column::new(name, ColumnType::Int4)));
    TableDef::new(name, columns).with_primary_key(&["kind"])
}

/// Its row.
pub(crate) fn row<const N: usize>(kind: &str, sizes: [u32; N]) -> Vec<Value> {
    let mut row = vec![Value::Text(kind.to_owned())];
    row.extend(sizes.map(|size| Value::Int4(size as i32)));
    row
}

/// Looks whether a database has exactly these tables (by name, in order), and table `name` among them says that they are
/// of this kind.
pub(crate) fn look<const N: usize>(
    database: &Database,
    name: &str,
    kind: &str,
    tables: &[&str],
) -> Result<Found<N>> {
    let mut names: Vec<String> = database.tables().iter().map(Table::name).collect();
    names.retain(|name| !name.starts_with("rialto_"));
    names.sort();
    if names.is_empty() {
        return Ok(Found::Nothing);
    }
    let others = || Ok(Found::Other(format!("other tables ({})", names.join(", "))));
    if names != tables {
        return others();
    }
    let table = database.table(name)?;
    if table.schema().columns().len() != N + 1 {
        return others();
    }
    match database.read(|transaction| transaction.get(&table, kind))? {
        None => others(),
        Some(row) => {
            let mut sizes = [0; N];
            for (size, column) in sizes.iter_mut().zip(1..) {
                *size = row.view().get_i32(column)? as u32;
            }
            Ok(Found::Sizes(sizes))
        }
    }
}
