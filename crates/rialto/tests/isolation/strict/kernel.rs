//! The tables in the kernel, and a transaction of the kernel as a script's session.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use rialto::io::Random;
use rialto::row::{Column, ColumnType, RowView, Schema, Value, WhichIndex};
use rialto::{
    Database, Direction, Error, KeyBound, Result, Savepoint, Scan, ScanMode, Table, TableDef, Transaction,
};

use super::observed::{
    EXTRA, Found, GRAVES, Key, ROWS, Row, State, TABLES, Values, Version, text_of, versions_in,
};
use super::scans::{By, RangeScan};
use super::script::{Put, Session};
use super::space::Space;

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

    /// Makes them, with graves and the first rows.
    pub fn create(db: &Database, space: Space) -> Tables {
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
                let rows = tx.table(ROWS[table])?;
                for (key, found) in space.first().into_iter().filter(|(key, _)| key.table == table) {
                    tx.insert(&graves, &[Value::Int4(key.id), Value::Text(String::new())])?;
                    if let Found { values: Some(values), versions, .. } = found {
                        tx.insert(&rows, &values_of(key, &Row { values, versions }))?;
                    }
                }
            }
            Ok(())
        })
        .unwrap();
        Tables::of(db)
    }
}

/// Only a read that is not valid gives a text that is no list.
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

/// The outcome of a write, where a key in use is an answer.
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

impl<'a, 'tx> Running<'a, 'tx> {
    /// A transaction that has done nothing yet. Sometimes it prefetches some of the keys that it may use.
    pub fn begun(
        tx: &'a mut Transaction<'tx>,
        tables: &'a Tables,
        space: Space,
        random: &mut Random,
    ) -> Running<'a, 'tx> {
        if random.chance(1, 2) {
            for table in tables.rows.iter().chain(&tables.graves) {
                let ids: Vec<i32> = (0..random.below(6)).map(|_| space.id(random)).collect();
                tx.prefetch(table, ids);
            }
        }
        Running { tx, tables, savepoints: Vec::new() }
    }
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
        let bound = |id| KeyBound::Included(vec![Value::Int4(id)]);
        let scan = Scan { lower: bound(low), upper: bound(high), ..Scan::all() };
        self.tx.scan(&self.tables.graves[table], &scan, |_, row| {
            seen.push(grave_of(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(seen)
    }

    fn scan(&mut self, asked: &RangeScan) -> Result<Vec<(i32, Row)>> {
        let rows = &self.tables.rows[asked.table];
        let schema = rows.schema();
        let index = index_of(&schema, asked.table, asked.by);
        let mode = if asked.to_change { ScanMode::Update } else { ScanMode::Share };
        if let (By::Tag, 0, Some(tag), true) = (asked.by, asked.table, asked.value(), asked.breaks) {
            let found = self.tx.look_by(rows, index, tag, mode, row_of);
            // The index may have been replaced meanwhile.
            return match found {
                _ if !Arc::ptr_eq(&schema, &rows.schema()) => Err(Error::TableChanged { table: rows.name() }),
                found => found?.into_iter().collect(),
            };
        }
        let bound = |bound: Bound<i32>| match bound {
            Bound::Unbounded => KeyBound::Unbounded,
            Bound::Included(value) => KeyBound::Included(vec![Value::Int4(value)]),
            Bound::Excluded(value) => KeyBound::Excluded(vec![Value::Int4(value)]),
        };
        let scan = Scan {
            index,
            lower: bound(asked.lower),
            upper: bound(asked.upper),
            direction: if asked.backward { Direction::Backward } else { Direction::Forward },
            mode,
            limit: asked.limit.filter(|_| !asked.breaks).map(|limit| limit as u64),
        };
        let mut seen = Vec::new();
        self.tx.scan_planned(rows, &schema, &scan, |_, row| {
            seen.push(row_of(row)?);
            let is_enough = asked.limit == Some(seen.len());
            Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(seen)
    }

    fn insert(&mut self, key: Key, row: &Row) -> Result<Put> {
        let done = self.tx.insert(&self.tables.rows[key.table], &values_of(key, row));
        put(done.map(|()| true), key.table)
    }

    fn update(&mut self, key: Key, row: &Row) -> Result<Put> {
        let rows = &self.tables.rows[key.table];
        let (last, before) = row.versions.split_last().expect("its own");
        let changes: Vec<_> = values_of(key, row).into_iter().enumerate().skip(1).collect();
        if last % 2 == 0 {
            return put(self.tx.update(rows, key.id, &changes), key.table);
        }
        // The part by an addition.
        let done = self.tx.modify(rows, key.id, |fields| {
            assert_eq!(fields.get(3), Value::Text(text_of(before)), "{key:?}, which is locked");
            let part = fields.get_i32(1)?;
            fields.add(1, i64::from(row.values.part) - i64::from(part))?;
            changes[1..].iter().try_for_each(|(column, value)| fields.set(*column, value))
        });
        put(done, key.table)
    }

    fn rename(&mut self, from: Key, to: Key, row: &Row) -> Result<Put> {
        let changes: Vec<_> = values_of(to, row).into_iter().enumerate().collect();
        put(self.tx.update(&self.tables.rows[from.table], from.id, &changes), from.table)
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

/// The index on a column; of the parts the one that is made and dropped, while it exists.
fn index_of(schema: &Schema, table: usize, by: By) -> WhichIndex {
    let named = |name: &str| schema.indexes().iter().position(|index| index.name == name);
    let position = match by {
        By::Id => return WhichIndex::Primary,
        By::Part => named(EXTRA[table]).or_else(|| named(&format!("{}_by_part", ROWS[table]))),
        By::Tag => named(&format!("{}_by_tag", ROWS[table])),
    };
    WhichIndex::Secondary(position.expect("it is there in each version of the table"))
}

/// The state of all keys, by the primary index; checked against the other indexes.
pub fn state(db: &Database) -> State {
    let tables = Tables::of(db);
    let (rows, graves) = db
        .transact(|tx| {
            let mut running = Running { tx, tables: &tables, savepoints: Vec::new() };
            let (mut rows, mut graves) = (Vec::new(), Vec::new());
            for (table, name) in ROWS.iter().enumerate() {
                let all = running.scan(&RangeScan::all(table, By::Id))?;
                for position in 0..tables.rows[table].schema().indexes().len() {
                    let which = WhichIndex::Secondary(position);
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
