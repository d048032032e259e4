//! Which workload a database holds: a table of one row says its kind and its two sizes.

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
pub(crate) enum Found {
    /// No tables.
    Nothing,
    /// The workload, of these sizes.
    Sizes([u32; 2]),
    /// Something else, in words.
    Other(String),
}

impl Found {
    /// Whether the workload is there, in the shape that was asked for; if nothing is there, it is loaded. `what` it is
    /// called.
    pub(crate) fn or_load<S: PartialEq + Display>(
        self,
        what: &str,
        shape: &S,
        of_sizes: impl FnOnce([u32; 2]) -> S,
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
pub(crate) fn table(name: &str, sizes: [&str; 2]) -> TableDef {
    let size = |name| Column::new(name, ColumnType::Int4);
    let columns = vec![Column::new("kind", ColumnType::Text), size(sizes[0]), size(sizes[1])];
    TableDef::new(name, columns).with_primary_key(&["kind"])
}

/// Its row.
pub(crate) fn row(kind: &str, sizes: [u32; 2]) -> [Value; 3] {
    let [first, second] = sizes.map(|size| Value::Int4(size as i32));
    [Value::Text(kind.to_owned()), first, second]
}

/// Looks whether a database has exactly these tables (by name, in order), and table `name` among them says that they are
/// of this kind.
pub(crate) fn look(database: &Database, name: &str, kind: &str, tables: &[&str]) -> Result<Found> {
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
    if table.schema().columns().len() != 3 {
        return others();
    }
    match database.read(|transaction| transaction.get(&table, kind))? {
        None => others(),
        Some(row) => {
            let size = |column| row.view().get_i32(column).map(|size| size as u32);
            Ok(Found::Sizes([size(1)?, size(2)?]))
        }
    }
}
