//! [`Fixture`]: a database that inputs run on, one after the other, and that is each time what it was.

use std::ops::ControlFlow;
use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::row::{Column, IndexDef};
use rialto::{Checkpointing, Database, Durability, Options, Scan};

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
/// After so many changes a database is made anew, so that its log stays short.
const CHANGES_MAX: usize = 1_000;

/// The definition of a table, and its rows as they are encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct TableContents {
    name: String,
    columns: Vec<Column>,
    primary_key: Option<Vec<usize>>,
    indexes: Vec<(String, Vec<usize>, bool)>,
    rows: Vec<Vec<u8>>,
}

/// A database that inputs run on.
#[derive(Debug)]
pub struct Fixture {
    database: Database,
    set_up: &'static [&'static str],
    base: Vec<TableContents>,
    changes: usize,
}

impl Fixture {
    /// One that these statements make.
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

    /// Makes the database what it was. Its definitions cannot be dropped while a transaction is left open, so this shows that none is.
    pub fn restore(&mut self) {
        if contents(&self.database) == self.base {
            return;
        }
        self.changes += 1;
        if self.changes == CHANGES_MAX {
            *self = Fixture::made_by(self.set_up);
            return;
        }
        let dropped = self
            .database
            .transact(|tx| user_tables(&self.database).try_for_each(|table| tx.drop_table(&table.name())));
        dropped.expect("the tables can be dropped");
        run_all(&self.database, self.set_up);
    }
}

impl Default for Fixture {
    /// One with tables of all types, with and without a primary key, filled and empty.
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

fn user_tables(database: &Database) -> impl Iterator<Item = rialto::Table> {
    database.tables().into_iter().filter(|table| !table.name().starts_with("rialto_"))
}

/// All that is committed in a database.
pub fn contents(database: &Database) -> Vec<TableContents> {
    let read = |table: rialto::Table| {
        let schema = table.schema();
        let mut rows = Vec::new();
        let scanned = database.read(|tx| {
            rows.clear();
            tx.scan(&table, &Scan::all(), |_, row| {
                rows.push(row.bytes().to_vec());
                Ok(ControlFlow::Continue(()))
            })
        });
        scanned.expect("what is committed can be read");
        let index = |index: &IndexDef| (index.name.clone(), index.columns.clone(), index.unique);
        TableContents {
            name: table.name(),
            columns: schema.columns().to_vec(),
            primary_key: schema.primary_key().map(<[usize]>::to_vec),
            indexes: schema.indexes().iter().map(index).collect(),
            rows,
        }
    };
    user_tables(database).map(read).collect()
}
