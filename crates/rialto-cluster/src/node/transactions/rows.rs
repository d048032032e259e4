//! The system's rows of a partition: those of the protocol, in a table of the partition.

use std::ops::ControlFlow;

use rialto::row::{Column, ColumnType, IntoKey, Key, Value, WhichIndex};
use rialto::{Database, Error, Result, Scan, Table, TableDef, Transaction, fault_injection};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::work::SqlWork;
use crate::protocol::transactions::{Branches, Opening, Request, RowChange, SystemRows, TransactionId};

/// The table's name.
pub const TABLE: &str = "rialto_cluster";

/// What a row is about: the first byte of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The comparison of replicas that was made last. It has the first key of all: a range after it does not contain
    /// it.
    Comparison = 0,
    Bound = 1,
    Committed = 2,
    Decision = 3,
    Answer = 4,
    Lost = 5,
}

/// Makes the table in a new partition.
///
/// # Errors
/// Those of the database.
pub fn make_table(db: &Database) -> Result<()> {
    let columns = vec![Column::new("key", ColumnType::Bytes), Column::new("value", ColumnType::Bytes)];
    let def = TableDef::new(TABLE, columns).with_primary_key(&["key"]);
    db.transact(|tx| tx.create_table(&def).map(drop))
}

/// The name of a prepared transaction.
pub fn name(id: TransactionId) -> String {
    id.name()
}

/// The note of a prepared transaction: its row of the protocol.
pub fn note(id: TransactionId, branches: &Branches) -> Vec<u8> {
    bytes(&(id, branches))
}

/// Makes changes in a transaction. The rows of prepared branches are the kernel's own.
///
/// # Errors
/// Those of the database.
pub fn apply(tx: &mut Transaction<'_>, table: &Table, changes: &[RowChange<SqlWork>]) -> Result<()> {
    for change in changes {
        match change {
            RowChange::Prepared(..) => {}
            RowChange::NotPrepared(id) => remove(tx, table, &key(Kind::Bound, id))?,
            RowChange::Bound(id, opening) => bind(tx, table, *id, *opening)?,
            RowChange::Committed(id, branches) => {
                put(tx, table, key(Kind::Committed, id), bytes(&(id, branches)))?;
            }
            RowChange::Settled(id) => {
                remove(tx, table, &key(Kind::Committed, id))?;
                remove(tx, table, &key(Kind::Bound, id))?;
            }
            RowChange::Decision(id, decision, branches) => {
                put(tx, table, key(Kind::Decision, id), bytes(&(id, decision, branches)))?;
            }
            RowChange::Forgotten(id) => remove(tx, table, &key(Kind::Decision, id))?,
            RowChange::Answer(request, reply) => {
                put(tx, table, key(Kind::Answer, &request.session), bytes(&(request, reply)))?;
            }
            RowChange::Expired { session, number } => remove_answer(tx, table, (*session, *number))?,
            RowChange::Lost(lost) => put(tx, table, key(Kind::Lost, &()), bytes(lost))?,
        }
    }
    Ok(())
}

/// All rows, as an opening finds them.
///
/// # Errors
/// [`Error::Corrupt`] for a row, or the note of a prepared transaction, that makes no sense; those of the database.
pub fn read(db: &Database) -> Result<SystemRows<SqlWork>> {
    let table = db.table(TABLE)?;
    let mut rows = SystemRows::default();
    for prepared in db.prepared() {
        rows.prepared.push(parse(&prepared.note)?);
    }
    db.transact(|tx| {
        let mut found = SystemRows { prepared: std::mem::take(&mut rows.prepared), ..SystemRows::default() };
        tx.scan(&table, &Scan::all(), |_, row| {
            let (Value::Bytes(key), Value::Bytes(value)) = (row.get(0), row.get(1)) else {
                return Err(damaged());
            };
            match key.first() {
                // It is for the standbys' redo alone.
                Some(0) => {}
                Some(1) => found.bound.push(parse(&value)?),
                Some(2) => found.committed.push(parse(&value)?),
                Some(3) => found.decisions.push(parse(&value)?),
                Some(4) => found.answers.push(parse(&value)?),
                Some(5) => found.lost = parse(&value)?,
                _ => return Err(damaged()),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        rows = found;
        Ok(())
    })?;
    Ok(rows)
}

/// Writes the row of a comparison, in place of the one before.
///
/// # Errors
/// Those of the database.
pub fn put_comparison(tx: &mut Transaction<'_>, table: &Table, value: Vec<u8>) -> Result<()> {
    put(tx, table, key(Kind::Comparison, &()), value)
}

/// The primary key of that row.
pub fn comparison_row() -> [Value; 1] {
    [Value::Bytes(key(Kind::Comparison, &()))]
}

/// The row of the last comparison, if there is one.
///
/// # Errors
/// Those of the database.
pub fn comparison(tx: &mut Transaction<'_>, table: &Table) -> Result<Option<Vec<u8>>> {
    let Some(row) = tx.get(table, &comparison_row()[..])? else { return Ok(None) };
    match row.get(1)? {
        Value::Bytes(value) => Ok(Some(value)),
        _ => Err(damaged()),
    }
}

/// The key of that row, as the table's primary index has it: all others come after it.
///
/// # Errors
/// Those of a table that is another one.
pub fn comparison_key(table: &Table) -> Result<Vec<u8>> {
    let (schema, mut encoded) = (table.schema(), Key::new());
    comparison_row()[..].encode_into(schema.key_shape(WhichIndex::Primary), &mut encoded)?;
    Ok(encoded.to_vec())
}

fn key<T: Serialize>(kind: Kind, of: &T) -> Vec<u8> {
    postcard::to_extend(of, vec![kind as u8]).expect("a key has bytes")
}

fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("a row has bytes")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|_| damaged())
}

fn damaged() -> Error {
    let what = format!("a row of the table {TABLE} makes no sense: it was changed, or is of another version");
    Error::Corrupt { file: TABLE.to_owned(), offset: 0, what }
}

fn put(tx: &mut Transaction<'_>, table: &Table, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
    let key = Value::Bytes(key);
    match tx.update(table, &[key.clone()][..], &[(1, Value::Bytes(value.clone()))])? {
        true => Ok(()),
        false => tx.insert(table, &[key, Value::Bytes(value)]),
    }
}

/// Binds a branch to an opening. Writes of several openings may come in any order, and the last one counts.
fn bind(tx: &mut Transaction<'_>, table: &Table, id: TransactionId, opening: Opening) -> Result<()> {
    let key = key(Kind::Bound, &id);
    let before = match tx.get(table, &[Value::Bytes(key.clone())][..])? {
        None => None,
        Some(row) => {
            let Value::Bytes(value) = row.get(1)? else { return Err(damaged()) };
            let (_, before): (TransactionId, Opening) = parse(&value)?;
            Some(before)
        }
    };
    match before {
        Some(before) if before >= opening => Ok(()),
        _ => put(tx, table, key, bytes(&(id, opening))),
    }
}

/// Removes the row of an answer, unless a later request of the session has taken its place since it was found.
fn remove_answer(tx: &mut Transaction<'_>, table: &Table, (session, number): (u64, u64)) -> Result<()> {
    let key = key(Kind::Answer, &session);
    let Some(row) = tx.get(table, &[Value::Bytes(key.clone())][..])? else { return Ok(()) };
    let Value::Bytes(value) = row.get(1)? else { return Err(damaged()) };
    let (request, _) = postcard::take_from_bytes::<Request>(&value).map_err(|_| damaged())?;
    drop(row);
    match request.number == number || fault_injection::is_on("expiry-takes-later-answers") {
        true => remove(tx, table, &key),
        false => Ok(()),
    }
}

fn remove(tx: &mut Transaction<'_>, table: &Table, key: &[u8]) -> Result<()> {
    tx.delete(table, &[Value::Bytes(key.to_vec())][..]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::transactions::work::Answer;
    use crate::protocol::NodeId;
    use crate::protocol::transactions::Start;

    /// Makes changes one after the other, each in a transaction, and looks at the rows afterwards.
    fn with_changes(name: &str, test: impl FnOnce(&dyn Fn(RowChange<SqlWork>) -> SystemRows<SqlWork>)) {
        let directory = std::env::temp_dir().join(format!("rialto-rows-{name}-{}", std::process::id()));
        let options = rialto::Options { memory_bytes: 64 << 20, ..rialto::Options::default() };
        let db = Database::open_with(&directory, options).unwrap();
        make_table(&db).unwrap();
        let table = db.table(TABLE).unwrap();
        test(&|change| {
            db.transact(|tx| apply(tx, &table, std::slice::from_ref(&change))).unwrap();
            read(&db).unwrap()
        });
        drop(table);
        db.close().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// The removal of an answer that has expired may be late: a later call of the session keeps its answer.
    #[test]
    fn an_expired_answer_takes_no_later_one_with_it() {
        let answer = |number| {
            let request = Request { session: 7, number, issued: Duration::from_secs(number) };
            RowChange::Answer(request, Answer::Called(Ok(vec![b"done".to_vec()])))
        };
        with_changes("answers", |change| {
            change(answer(300));
            change(answer(301));
            let left = change(RowChange::Expired { session: 7, number: 300 }).answers;
            assert!(matches!(&left[..], [(request, _)] if request.number == 301), "{left:?}");
            change(RowChange::Expired { session: 7, number: 301 });
            assert!(change(RowChange::Expired { session: 8, number: 301 }).answers.is_empty());
        });
    }

    /// The rows of several openings that ask a branch are written by any worker.
    #[test]
    fn a_branch_is_bound_to_the_last_opening_in_whichever_order_the_rows_come() {
        let id = TransactionId { node: NodeId(0), start: Start(1), number: 7 };
        with_changes("bound", |change| {
            for (opening, bound) in [(6, 6), (5, 6), (6, 6), (8, 8), (7, 8)] {
                let rows = change(RowChange::Bound(id, Opening(opening)));
                assert_eq!(rows.bound, [(id, Opening(bound))]);
            }
            assert!(change(RowChange::NotPrepared(id)).bound.is_empty());
        });
    }
}
