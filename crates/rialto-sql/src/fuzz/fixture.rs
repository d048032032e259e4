//! [`Fixture`]: a database on which inputs run one after the other, and which each input finds unchanged.

use std::ops::ControlFlow;
use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, IndexDef};
use rialto::{Checkpointing, Database, Durability, NewIndex, Options, Scan, Table, TableDef, Transaction};

use crate::Session;
use crate::run::Collected;

const TABLES: [&str; 7] = [
    "create table account (id integer not null, owner text, balance bigint, note char(20))",
    "alter table account add primary key (id)",
    "create index account_owner on account (owner, balance)",
    "create table event (account integer, at timestamp not null, what varchar, primary key (account, at))",
    "create table kinds (b boolean, i2 smallint, i4 int, i8 int8, f8 double precision, n numeric(12,2), t text unique, \
     c char(3), x bytea, d date, ts timestamp)",
    "insert into account values (1, 'ann', 100, null), (2, 'bob', 200, 'x'), (-7, null, -9223372036854775808, '')",
    "insert into kinds values (true, 1, 2, 3, 0.5, 1.25, 't', 'c', '\\x00ff', '2026-01-31', '2026-01-31 12:00:00'), \
     (null, null, null, null, null, null, null, null, null, null, null)",
];
/// After this number of changes the database is made again, so that its log stays short.
const CHANGES_MAX: usize = 1_000;

/// The definition of a table, and its encoded rows.
#[derive(Debug, Clone, PartialEq)]
pub struct TableContents {
    name: String,
    columns: Vec<Column>,
    primary_key: Option<Vec<usize>>,
    indexes: Vec<(String, Vec<usize>, bool)>,
    rows: Vec<Vec<u8>>,
}

impl TableContents {
    /// Makes the table, with its rows.
    fn make(&self, tx: &mut Transaction) -> rialto::Result<()> {
        let names =
            |columns: &[usize]| columns.iter().map(|&column| self.columns[column].name.clone()).collect();
        let index = |(name, columns, unique): &(String, Vec<usize>, bool)| NewIndex {
            name: name.clone(),
            columns: names(columns),
            unique: *unique,
        };
        let table = tx.create_table(&TableDef {
            primary_key: self.primary_key.as_deref().map(names),
            indexes: self.indexes.iter().map(index).collect(),
            ..TableDef::new(&self.name, self.columns.clone())
        })?;
        self.rows.iter().try_for_each(|row| tx.insert_encoded(&table, row))
    }
}

/// A database on which inputs run.
#[derive(Debug)]
pub struct Fixture {
    database: Database,
    set_up: &'static [&'static str],
    base: Vec<TableContents>,
    changes: usize,
}

impl Fixture {
    /// The database that these statements make.
    pub fn made_by(set_up: &'static [&'static str]) -> Fixture {
        let options = Options {
            memory_bytes: 64 << 20,
            checkpoint: Checkpointing::None,
            durability: Durability::Memory,
            transactions_max: 16,
            packets_max: 32,
            memory_flush_interval: Duration::from_secs(3600),
            ..Options::default()
        };
        let database = Database::open_on(MemoryDisk::new(), options).expect("a new database opens");
        run_all(&database, set_up);
        let base = contents(&database);
        Fixture { database, set_up, base, changes: 0 }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Makes the database what it was. Tables that were replaced, or have other rows, are made again. That takes their
    /// locks: where there is something to make again, no transaction is left open.
    pub fn restore(&mut self) {
        let now = contents(&self.database);
        if now == self.base {
            return;
        }
        self.changes += 1;
        if self.changes == CHANGES_MAX {
            *self = Fixture::made_by(self.set_up);
            return;
        }
        let restored = self.database.transact(|tx| {
            let other = now.iter().filter(|table| !self.base.contains(table));
            other.into_iter().try_for_each(|table| tx.drop_table(&table.name))?;
            self.base.iter().filter(|table| !now.contains(table)).try_for_each(|table| table.make(tx))
        });
        restored.expect("no transaction is open");
    }
}

impl Default for Fixture {
    /// A database with tables of all types, with and without a primary key, filled and empty.
    fn default() -> Fixture {
        Fixture::made_by(&TABLES)
    }
}

fn run_all(database: &Database, statements: &[&str]) {
    let mut session = Session::new(database.clone(), "ann", "bank");
    for text in statements {
        let prepared = session.prepare(text, &[]).expect(text);
        session.execute(&prepared, &[], &mut Collected::default()).expect(text);
        session.finish().expect(text);
    }
}

/// The committed contents of a database.
pub fn contents(database: &Database) -> Vec<TableContents> {
    let tables = database.tables().into_iter().filter(|table| !table.name().starts_with("rialto_"));
    let tables: Vec<Table> = tables.collect();
    let contents = database.read(|tx| tables.iter().map(|table| contents_of(tx, table)).collect());
    contents.expect("what is committed can be read")
}

fn contents_of(tx: &mut Transaction, table: &Table) -> rialto::Result<TableContents> {
    let schema = table.schema();
    let mut rows = Vec::new();
    tx.scan(table, &Scan::all(), |_, row| {
        rows.push(row.bytes().to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    let index = |index: &IndexDef| (index.name.clone(), index.columns.clone(), index.unique);
    Ok(TableContents {
        name: table.name(),
        columns: schema.columns().to_vec(),
        primary_key: schema.primary_key().map(<[usize]>::to_vec),
        indexes: schema.indexes().iter().map(index).collect(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixture_is_what_it_was() {
        let mut fixture = Fixture::default();
        let before = contents(fixture.database());
        for change in [
            &["insert into account values (7, 'eve', 1, null)", "drop table event"][..],
            &["create index on kinds (i4)", "create table more (a int)", "delete from account"],
            &["drop table account", "create table account (id int)", "truncate kinds"],
        ] {
            run_all(fixture.database(), change);
            assert_ne!(contents(fixture.database()), before);
            fixture.restore();
            assert_eq!(contents(fixture.database()), before);
        }
    }
}
