//! The tables in the kernel, and a transaction of the kernel as a script's session.

use std::ops::ControlFlow;

use rialto::row::{Column, ColumnType, RowView, Value, WhichIndex};
use rialto::{
    Database, Direction, Error, KeyBound, Result, Savepoint, Scan, ScanMode, Table, TableDef, Transaction,
};

use super::observed::{
    Found, GRAVES, Key, Predicate, ROWS, Row, State, TABLES, Values, Version, keys_of, text_of, versions_in,
};
use super::script::{Put, Session};

const BY_PART: WhichIndex = WhichIndex::Secondary(0);
const BY_TAG: WhichIndex = WhichIndex::Secondary(1);
/// Handles of all tables.
#[derive(Clone)]
pub struct Tables {
    pub rows: [Table; TABLES],
    pub graves: [Table; TABLES],
}

impl Tables {
    pub fn of(db: &Database) -> Tables {
        let open = |names: [&str; TABLES]| names.map(|name| db.table(name).unwrap());
        Tables { rows: open(ROWS), graves: open(GRAVES) }
    }

    /// Makes them, with graves and no rows.
    pub fn create(db: &Database) -> Tables {
        db.transact(|tx| {
            for table in 0..TABLES {
                let columns = vec![
                    Column::new("id", ColumnType::Int4),
                    Column::new("part", ColumnType::Int4),
                    Column::nullable("tag", ColumnType::Int4),
                    Column::new("versions", ColumnType::Text),
                ];
                tx.create_table(&TableDef::new(ROWS[table], columns).with_primary_key(&["id"]))?;
                tx.create_index(ROWS[table], &format!("{}_by_part", ROWS[table]), &["part"], false)?;
                tx.create_index(ROWS[table], &format!("{}_by_tag", ROWS[table]), &["tag"], table == 0)?;
                let columns =
                    vec![Column::new("id", ColumnType::Int4), Column::new("versions", ColumnType::Text)];
                let graves =
                    tx.create_table(&TableDef::new(GRAVES[table], columns).with_primary_key(&["id"]))?;
                for key in keys_of(table) {
                    tx.insert(&graves, &[Value::Int4(key.id), Value::Text(String::new())])?;
                }
            }
            Ok(())
        })
        .unwrap();
        Tables::of(db)
    }
}

/// A text that is no list comes only of a read that will not hold.
fn versions_of(text: &str) -> Result<Vec<Version>> {
    versions_in(text).ok_or_else(|| Error::aborted(format!("no list: {text:?}")))
}

pub fn row_of(view: RowView<'_>) -> Result<(i32, Row)> {
    let tag = if view.is_null(2) { None } else { Some(view.get_i32(2)?) };
    let values = Values { part: view.get_i32(1)?, tag };
    Ok((view.get_i32(0)?, Row { values, versions: versions_of(view.get_str(3)?)? }))
}

pub fn grave_of(view: RowView<'_>) -> Result<(i32, Vec<Version>)> {
    Ok((view.get_i32(0)?, versions_of(view.get_str(1)?)?))
}

/// The row's values in its table.
pub fn values_of(key: Key, row: &Row) -> Vec<Value> {
    let Values { part, tag } = row.values;
    let tag = tag.map_or(Value::Null, Value::Int4);
    vec![Value::Int4(key.id), Value::Int4(part), tag, Value::Text(text_of(&row.versions))]
}

/// What a write came to, where a key that is taken is an answer.
pub fn put(outcome: Result<bool>, table: usize) -> Result<Put> {
    match outcome {
        Ok(true) => Ok(Put::Done),
        Ok(false) => Ok(Put::Missing),
        Err(Error::DuplicateKey { index, .. }) if index == format!("{}_by_tag", ROWS[table]) => {
            Ok(Put::TagTaken)
        }
        Err(Error::DuplicateKey { .. }) => Ok(Put::KeyTaken),
        Err(error) => Err(error),
    }
}

/// A transaction.
pub struct Running<'a, 'tx> {
    pub tx: &'a mut Transaction<'tx>,
    pub tables: &'a Tables,
    pub savepoints: Vec<Savepoint>,
}

impl Session for Running<'_, '_> {
    type Error = Error;

    fn get(&mut self, key: Key, to_change: bool) -> Result<Option<Row>> {
        let table = &self.tables.rows[key.table];
        let row = match to_change {
            true => self.tx.get_for_update(table, key.id)?,
            false => self.tx.get(table, key.id)?,
        };
        row.map(|row| row_of(row.view()).map(|(_, row)| row)).transpose()
    }

    fn grave(&mut self, key: Key) -> Result<Vec<Version>> {
        let row = self.tx.get(&self.tables.graves[key.table], key.id)?;
        let row = row.ok_or_else(|| Error::aborted("each key has a grave"))?;
        grave_of(row.view()).map(|(_, versions)| versions)
    }

    fn graves(&mut self, table: usize, low: i32, high: i32) -> Result<Vec<(i32, Vec<Version>)>> {
        let mut seen = Vec::new();
        self.tx.scan(&self.tables.graves[table], &range(low, high), |_, row| {
            seen.push(grave_of(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(seen)
    }

    fn scan(
        &mut self,
        table: usize,
        predicate: Predicate,
        backward: bool,
        to_change: bool,
    ) -> Result<Vec<(i32, Row)>> {
        let mut scan = match predicate {
            Predicate::Keys(low, high) => range(low, high),
            Predicate::Part(part) => Scan::prefix(BY_PART, vec![Value::Int4(part)]),
            Predicate::Tag(tag) => Scan::prefix(BY_TAG, vec![Value::Int4(tag)]),
        };
        if backward {
            scan.direction = Direction::Backward;
        }
        if to_change {
            scan.mode = ScanMode::Update;
        }
        let (mut seen, rows) = (Vec::new(), &self.tables.rows[table]);
        let schema = rows.schema();
        if scan.index == BY_PART && schema.indexes().len() == 3 {
            // While the index that comes and goes is there.
            scan.index = WhichIndex::Secondary(2);
        }
        self.tx.scan_planned(rows, &schema, &scan, |_, row| {
            seen.push(row_of(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(seen)
    }

    fn insert(&mut self, key: Key, row: &Row) -> Result<Put> {
        let done = self.tx.insert(&self.tables.rows[key.table], &values_of(key, row));
        put(done.map(|()| true), key.table)
    }

    fn update(&mut self, key: Key, row: &Row) -> Result<Put> {
        let changes: Vec<_> = values_of(key, row).into_iter().enumerate().skip(1).collect();
        put(self.tx.update(&self.tables.rows[key.table], key.id, &changes), key.table)
    }

    fn delete(&mut self, key: Key) -> Result<bool> {
        self.tx.delete(&self.tables.rows[key.table], key.id)
    }

    fn bury(&mut self, key: Key, versions: &[Version]) -> Result<()> {
        let change = [(1, Value::Text(text_of(versions)))];
        match self.tx.update(&self.tables.graves[key.table], key.id, &change)? {
            true => Ok(()),
            false => panic!("{key:?} has no grave"),
        }
    }

    fn truncate(&mut self, table: usize) -> Result<()> {
        self.tx.truncate(&self.tables.rows[table])
    }

    fn savepoint(&mut self) -> Result<()> {
        let savepoint = self.tx.savepoint();
        self.savepoints.push(savepoint);
        Ok(())
    }

    fn roll_back(&mut self) -> Result<()> {
        let savepoint = self.savepoints.pop().expect("a savepoint");
        self.tx.rollback_to(&savepoint)?;
        self.tx.release_savepoint(savepoint)
    }

    fn release(&mut self) -> Result<()> {
        let savepoint = self.savepoints.pop().expect("a savepoint");
        self.tx.release_savepoint(savepoint)
    }

    fn may_go_on(&self, error: &Error) -> bool {
        matches!(error, Error::WouldWait { .. } | Error::LockTimeout { .. })
    }
}

fn range(low: i32, high: i32) -> Scan {
    let bound = |id| KeyBound::Included(vec![Value::Int4(id)]);
    Scan { lower: bound(low), upper: bound(high), ..Scan::all() }
}

/// All keys as they are, by the primary index; checked against the other indexes.
pub fn state(db: &Database) -> State {
    let tables = Tables::of(db);
    let (rows, graves) = db
        .transact(|tx| {
            let mut running = Running { tx, tables: &tables, savepoints: Vec::new() };
            let (mut rows, mut graves) = (Vec::new(), Vec::new());
            for (table, name) in ROWS.iter().enumerate() {
                let all = running.scan(table, Predicate::Keys(0, i32::MAX), false, false)?;
                for which in [BY_PART, BY_TAG] {
                    let mut by_it = Vec::new();
                    running.tx.scan(
                        &running.tables.rows[table],
                        &Scan { index: which, ..Scan::all() },
                        |_, row| {
                            by_it.push(row_of(row)?);
                            Ok(ControlFlow::Continue(()))
                        },
                    )?;
                    by_it.sort_by_key(|(id, _)| *id);
                    assert_eq!(by_it, all, "{which:?} of {name}");
                }
                rows.extend(all.into_iter().map(|(id, row)| (Key { table, id }, row)));
                let all = running.graves(table, 0, i32::MAX)?;
                graves.extend(all.into_iter().map(|(id, versions)| (Key { table, id }, versions)));
            }
            Ok((rows, graves))
        })
        .unwrap();
    let mut state: State = graves
        .into_iter()
        .map(|(key, versions)| (key, Found { in_grave: versions.len(), versions, values: None }))
        .collect();
    for (key, row) in rows {
        let found = state.get_mut(&key).expect("each key has a grave");
        assert_eq!(row.versions[..found.in_grave], found.versions, "the grave and the row of {key:?}");
        (found.versions, found.values) = (row.versions, Some(row.values));
    }
    state
}
