//! A workload's tables in a database: how they are created and loaded, and how existing ones are recognised.
//!
//! Beside a workload's own tables there is one with a single row, which names the workload and its sizes. A database
//! is used again if it has exactly these tables and that row.
//!
//! Tables in memory are loaded in one transaction: a crash leaves all of them or nothing. Tables on disk are loaded in many,
//! because they may be larger than memory; the row with the sizes comes last.

use std::fmt::Display;

use rialto::io::Clock;
use rialto::row::{Column, ColumnType, Value, ValueRef};
use rialto::{Database, Durability, Error, Residence, Result, Table, TableDef, Transaction, TxOptions};

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

    /// The secondary indexes.
    fn indexes() -> Vec<IndexOf> {
        Vec::new()
    }

    /// Fills the tables. `loader` is told how far it is.
    ///
    /// # Errors
    /// What inserts can meet.
    fn fill(&self, loader: &mut Loader<'_>, tables: &[Table; T]) -> Result<()>;

    /// The tables in the database, if they hold this; loaded, if the database is empty. The second is whether they were there
    /// already.
    ///
    /// # Errors
    /// [`ShapeError::OtherShape`] if the database holds something else.
    fn open_or_load(
        &self,
        database: &Database,
        residence: Residence,
        progress: &mut dyn FnMut(&str),
    ) -> Result<([Table; T], bool), ShapeError> {
        let there = match look::<T, S, Self>(database)? {
            Found::Nothing => {
                load(database, residence, self, progress)?;
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
            let table = database.table(&definition.name)?;
            if table.residence() != residence {
                return Err(ShapeError::OtherShape {
                    found: format!("{} {}", Self::NAME, place(table.residence())),
                    expected: format!("one {}", place(residence)),
                });
            }
            tables.push(table);
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
        None => Ok(Found::Other(format!("what a load of {} has left that did not come to its end", D::NAME))),
        Some(row) => {
            let mut sizes = [0; S];
            for (size, column) in sizes.iter_mut().zip(1..) {
                *size = row.view().get_i32(column)? as u32;
            }
            Ok(Found::Data(D::of_sizes(sizes)))
        }
    }
}

/// A secondary index of a workload's table.
pub(crate) struct IndexOf {
    pub table: &'static str,
    pub name: &'static str,
    pub columns: &'static [&'static str],
    pub is_unique: bool,
}

fn place(residence: Residence) -> &'static str {
    match residence {
        Residence::Disk => "on disk",
        _ => "in memory",
    }
}

/// Inserts the rows of a load.
pub(crate) struct Loader<'a> {
    database: &'a Database,
    transaction: Option<Transaction<'static>>,
    /// After so many rows a new transaction begins.
    rows_per_transaction: Option<u32>,
    rows: u32,
    progress: &'a mut dyn FnMut(&str),
}

impl Loader<'_> {
    /// The clock of the database.
    pub fn clock(&self) -> &Clock {
        self.database.clock()
    }

    fn transaction(&mut self) -> &mut Transaction<'static> {
        self.transaction.as_mut().expect("one is open, but between two")
    }

    /// Inserts a row.
    pub fn insert(&mut self, table: &Table, values: &[Value]) -> Result<()> {
        self.transaction().insert(table, values)?;
        self.inserted()
    }

    /// Inserts a row whose values are borrowed.
    pub fn insert_borrowed(&mut self, table: &Table, values: &[ValueRef<'_>]) -> Result<()> {
        self.transaction().insert_borrowed(table, values)?;
        self.inserted()
    }

    fn inserted(&mut self) -> Result<()> {
        self.rows += 1;
        if Some(self.rows) == self.rows_per_transaction { self.begin_next() } else { Ok(()) }
    }

    fn begin_next(&mut self) -> Result<()> {
        self.rows = 0;
        self.commit()?;
        // The last one makes all of them durable.
        let options = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
        self.transaction = Some(self.database.begin_with(&options)?);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.transaction.take().expect("one is open, but between two").commit()
    }

    /// Tells how far it is.
    pub fn tell(&mut self, progress: &str) {
        (self.progress)(progress);
    }
}

/// Rows of one transaction of a load of tables on disk.
const ROWS_PER_TRANSACTION: u32 = 500;

/// Creates and fills all tables.
fn load<const T: usize, const S: usize, D: Data<T, S>>(
    database: &Database,
    residence: Residence,
    data: &D,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let is_on_disk = residence == Residence::Disk;
    let mut loader = Loader {
        database,
        transaction: Some(database.begin()?),
        rows_per_transaction: is_on_disk.then_some(ROWS_PER_TRANSACTION),
        rows: 0,
        progress,
    };
    let mut tables = Vec::with_capacity(T);
    for definition in D::tables() {
        let name = definition.name.clone();
        let mut definition = definition.with_residence(residence);
        for index in D::indexes().iter().filter(|index| is_on_disk && index.table == name) {
            definition = definition.with_index(index.name, index.columns, index.is_unique);
        }
        tables.push(loader.transaction().create_table(&definition)?);
    }
    let sizes = loader.transaction().create_table(&sizes_table::<T, S, D>())?;
    data.fill(&mut loader, &tables.try_into().expect("one for each definition"))?;
    // Faster than with the rows, where it can be done.
    for index in D::indexes().iter().filter(|_| !is_on_disk) {
        loader.transaction().create_index(index.table, index.name, index.columns, index.is_unique)?;
    }
    if is_on_disk {
        loader.commit()?;
        loader.transaction = Some(database.begin()?);
    }
    let mut row = vec![Value::Text(D::KIND.to_owned())];
    row.extend(data.sizes().map(|size| Value::Int4(size as i32)));
    loader.transaction().insert(&sizes, &row)?;
    loader.commit()
}
