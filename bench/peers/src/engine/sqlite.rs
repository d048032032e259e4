//! SQLite: WAL, one connection that clients queue for.
//!
//! SQLite has one writer at a time and no way to let several clients' transactions share a sync, so clients queue on a
//! mutex. They queue for one connection: with a connection each, every commit of another would empty a client's page
//! cache, and SQLite's own queue is a loop of sleeps. One connection also allows the exclusive locking mode, which keeps
//! the index of the WAL on the heap.

use std::path::Path;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OpenFlags, params};

use super::{CACHE_BYTES, Client, Engine, is_new};
use crate::error::{PeerError, Result};
use crate::guarantee::Guarantee;
use crate::table::Table;
use crate::tpcb::{self, Movement, Rows, Shape, Source, Sums};

pub const NAME: &str = "sqlite";

pub const fn settings(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::Machine => {
            "WAL, synchronous FULL (every commit syncs the WAL), exclusive locking mode, 2 GiB cache, BEGIN IMMEDIATE, \
             cached prepared statements; clients queue for one connection, no group commit"
        }
        // NORMAL leaves out the sync of a commit and keeps those of checkpoints; a SIGKILL needs neither.
        Guarantee::Process => {
            "WAL, synchronous OFF (commits are written, never synced), exclusive locking mode, 2 GiB cache, BEGIN \
             IMMEDIATE, cached prepared statements; clients queue for one connection"
        }
    }
}

/// Pages of the WAL after which a commit makes a checkpoint: 16 MB, since the same page is often written again. 1,000 (the
/// default) and 16,384 measured the same.
const CHECKPOINT_PAGES: u32 = 4_000;
const STATEMENTS_MAX: usize = 16;

/// What is open.
pub struct Sqlite {
    shape: Shape,
    connection: Mutex<Connection>,
}

fn at(during: &'static str) -> impl FnOnce(rusqlite::Error) -> PeerError {
    PeerError::engine(NAME, during)
}

/// As long as the records of the other engines, with their keys.
fn filler(table: Table) -> String {
    "a".repeat(if table == Table::Branches { 86 } else { 82 })
}

const fn update(table: Table) -> &'static str {
    match table {
        Table::Branches => "UPDATE branches SET balance = balance + ?1 WHERE id = ?2",
        Table::Tellers => "UPDATE tellers SET balance = balance + ?1 WHERE id = ?2",
        Table::Accounts => "UPDATE accounts SET balance = balance + ?1 WHERE id = ?2",
    }
}

impl Sqlite {
    pub fn open(directory: &Path, guarantee: Guarantee, shape: Shape) -> Result<Sqlite> {
        let new = is_new(directory)?;
        // The mutex is ours.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(directory.join("bank.sqlite"), flags).map_err(at("opening"))?;
        let synchronous = match guarantee {
            Guarantee::Machine => "FULL",
            Guarantee::Process => "OFF",
        };
        connection
            .execute_batch(&format!(
                "PRAGMA page_size = 4096; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA \
                 synchronous = {synchronous}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA cache_size = \
                 -{}; PRAGMA temp_store = MEMORY;",
                CACHE_BYTES / 1024
            ))
            .map_err(at("setting pragmas"))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        let bank = Sqlite { shape, connection: Mutex::new(connection) };
        if new {
            bank.load()?;
        }
        Ok(bank)
    }
}

/// A transaction on the connection.
struct InTransaction<'a>(&'a Connection);

impl Rows for InTransaction<'_> {
    fn add(&mut self, table: Table, key: u32, delta: i64) -> Result<()> {
        let changed = self
            .0
            .prepare_cached(update(table))
            .and_then(|mut statement| statement.execute(params![delta, key]))
            .map_err(at("updating a balance"))?;
        if changed == 1 { Ok(()) } else { Err(PeerError::Row { table, key }) }
    }

    fn append(&mut self, movement: &Movement, time_us: i64) -> Result<()> {
        let Movement { account, teller, branch, delta } = *movement;
        let filler = "xxxxxxxxxxxxxxxxxxxx";
        self.0
            .prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
            .and_then(|mut statement| {
                statement.execute(params![account, teller, branch, delta, time_us, filler])
            })
            .map_err(at("inserting into the history"))?;
        Ok(())
    }
}

fn run(connection: &Connection, statement: &'static str) -> Result<()> {
    let mut prepared = connection.prepare_cached(statement).map_err(at(statement))?;
    prepared.execute(()).map_err(at(statement)).map(drop)
}

fn in_transaction(
    connection: &MutexGuard<'_, Connection>,
    body: impl FnOnce(&mut InTransaction<'_>) -> Result<()>,
) -> Result<()> {
    run(connection, "BEGIN IMMEDIATE")?;
    body(&mut InTransaction(connection))?;
    run(connection, "COMMIT")
}

impl Sqlite {
    /// Creates all rows.
    fn load(&self) -> Result<()> {
        let connection = self.connection.lock();
        connection
            .execute_batch(
                "CREATE TABLE branches (id INTEGER PRIMARY KEY, bid INTEGER NOT NULL, balance INTEGER NOT NULL, \
                 filler TEXT NOT NULL);
                 CREATE TABLE tellers (id INTEGER PRIMARY KEY, bid INTEGER NOT NULL, balance INTEGER NOT NULL, \
                 filler TEXT NOT NULL);
                 CREATE TABLE accounts (id INTEGER PRIMARY KEY, bid INTEGER NOT NULL, balance INTEGER NOT NULL, \
                 filler TEXT NOT NULL);
                 CREATE TABLE history (aid INTEGER NOT NULL, tid INTEGER NOT NULL, bid INTEGER NOT NULL, delta \
                 INTEGER NOT NULL, mtime INTEGER NOT NULL, filler TEXT NOT NULL);",
            )
            .map_err(at("creating tables"))?;
        for rows in tpcb::new_rows(self.shape) {
            in_transaction(&connection, |transaction| {
                for row in rows {
                    let text = format!("INSERT INTO {} VALUES (?1, ?2, 0, ?3)", row.table);
                    transaction
                        .0
                        .prepare_cached(&text)
                        .and_then(|mut insert| {
                            insert.execute(params![row.key, row.branch, filler(row.table)])
                        })
                        .map_err(at("loading"))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Engine for Sqlite {
    fn client<'a>(&'a self, seed: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(SqliteClient { connection: &self.connection, source: Source::new(self.shape, seed) }))
    }

    fn audit(&self) -> Result<Sums> {
        let connection = self.connection.lock();
        let mut sums = Sums::default();
        for table in Table::ALL {
            let mut select =
                connection.prepare(&format!("SELECT balance, filler FROM {table}")).map_err(at("reading"))?;
            let mut rows = select.query(()).map_err(at("reading"))?;
            while let Some(row) = rows.next().map_err(at("reading"))? {
                sums.row(table, row.get(0).map_err(at("reading a balance"))?);
            }
        }
        let mut select = connection.prepare("SELECT delta FROM history").map_err(at("reading"))?;
        let mut rows = select.query(()).map_err(at("reading"))?;
        while let Some(row) = rows.next().map_err(at("reading"))? {
            sums.history(row.get(0).map_err(at("reading a delta"))?);
        }
        Ok(sums)
    }

    fn checkpoint_now_and_not_again(&self) -> Result<()> {
        let pragmas = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint = 0;";
        self.connection.lock().execute_batch(pragmas).map_err(at("making a checkpoint"))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.connection.into_inner().close().map_err(|(_, error)| at("closing")(error))
    }
}

struct SqliteClient<'a> {
    connection: &'a Mutex<Connection>,
    source: Source,
}

impl Client for SqliteClient<'_> {
    fn transact(&mut self, now: Instant) -> Result<()> {
        let (movement, time_us) = self.source.next(now);
        in_transaction(&self.connection.lock(), |rows| tpcb::transact(rows, &movement, time_us))
    }
}
