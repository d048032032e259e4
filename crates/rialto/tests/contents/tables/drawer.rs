//! [`Drawer`]: draws transactions. Each operation goes to the database and to the model, and the two have to agree on
//! its outcome.

use std::ops::ControlFlow;

use rialto::io::Random;
use rialto::row::{Value, WhichIndex};
use rialto::{
    Direction, Error, KeyBound, Result, RowKey, Savepoint, Scan, ScanMode, Table as Handle, Transaction,
};

use super::contents::{COUNT, Contents, Index, K, N, Row, TEXT, Table, U, assert_ordered};
use super::one_of;

/// Keys that rows compete for.
const KEYS: u64 = 40;
/// The first of the keys that no two rows draw.
const FRESH: i64 = 1 << 40;

pub struct Drawer {
    pub random: Random,
    /// The seed, and what else a failure message contains.
    pub about: String,
    /// The most rows of one load.
    load: u64,
    /// Whether transactions may reach the bound of memory or of write sets.
    is_tight: bool,
    /// How many operations there were.
    pub operations: u64,
    /// Row numbers that were given out.
    serial: i64,
    /// The transaction's operations so far.
    steps: Vec<String>,
}

impl Drawer {
    pub fn new(random: Random, about: String) -> Drawer {
        Drawer { random, about, load: 500, is_tight: false, operations: 0, serial: 0, steps: Vec::new() }
    }

    /// Loads up to this many rows at a time, and accepts that bounds may refuse an operation.
    pub fn come_to_bounds(&mut self, load: u64) {
        (self.load, self.is_tight) = (load, true);
    }

    /// Draws the operations of a transaction, and gives the contents that it leaves if it commits.
    ///
    /// # Errors
    /// Errors that end a transaction in any case: it straddles a checkpoint, or the database has stopped.
    pub fn transaction(&mut self, tx: &mut Transaction, before: &Contents) -> Result<Contents> {
        self.steps.clear();
        let mut contents = before.clone();
        let mut savepoints: Vec<(Savepoint, Contents)> = Vec::new();
        for _ in 0..1 + self.random.below(10) {
            match self.random.below(16) {
                0..3 => self.define(tx, &mut contents)?,
                3 | 4 => {
                    self.steps.push("savepoint".to_owned());
                    savepoints.push((tx.savepoint(), contents.clone()));
                }
                5 | 6 if !savepoints.is_empty() => {
                    savepoints.truncate(1 + self.random.below(savepoints.len() as u64) as usize);
                    let (savepoint, then) = savepoints.last().expect("one is left");
                    self.steps.push(format!("rollback to savepoint {}", savepoints.len()));
                    tx.rollback_to(savepoint)?;
                    contents.clone_from(then);
                }
                7 if self.random.chance(1, 2) => {
                    if let Some((savepoint, _)) = savepoints.pop() {
                        self.steps.push("release".to_owned());
                        tx.release_savepoint(savepoint)?;
                    }
                }
                _ => self.change_rows(tx, &mut contents)?,
            }
            if self.random.chance(1, 3) {
                contents.assert_seen(tx, &self.told());
            }
        }
        self.count(tx, &mut contents)?;
        Ok(contents)
    }

    /// Counts the transaction, as its last operation.
    fn count(&self, tx: &mut Transaction, contents: &mut Contents) -> Result<()> {
        let count = tx.table(COUNT)?;
        let counted = tx.modify(&count, 0, |fields| fields.add(1, 1).map(drop));
        match self.tolerate(counted)? {
            Some(found) => assert!(found, "{}: the count is there", self.told()),
            // There is no room for it, so the transaction cannot commit.
            None => return Err(Error::aborted("it has come to a bound")),
        }
        contents.transactions += 1;
        Ok(())
    }

    /// The text of a failure.
    fn told(&self) -> String {
        format!("{}, transaction: {}", self.about, self.steps.join("; "))
    }

    /// None for an error that a bound may give. Then the operation had no effect.
    fn tolerate<T>(&self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(Error::MemoryLimit { .. } | Error::WriteSetTooLarge { .. }) if self.is_tight => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an operation was done, given whether the model says that it violates a unique key.
    fn agree(&self, outcome: Result<bool>, is_broken: bool) -> Result<bool> {
        match outcome {
            Err(Error::DuplicateKey { index, key, .. }) => {
                assert!(is_broken, "{}: refused for {key} of {index}, which no row has", self.told());
                Ok(false)
            }
            outcome => match self.tolerate(outcome)? {
                None => Ok(false),
                Some(found) => {
                    assert!(found, "{}: the row is not found", self.told());
                    assert!(!is_broken, "{}: a unique key is given twice", self.told());
                    Ok(true)
                }
            },
        }
    }

    fn text(&mut self) -> String {
        let length = match self.random.below(30) {
            0 => self.random.below(3_000),
            1..5 => self.random.below(200),
            _ => self.random.below(20),
        };
        char::from(b'a' + self.random.below(26) as u8).to_string().repeat(length as usize)
    }

    fn row(&mut self, is_fresh: bool) -> (i64, Row) {
        self.serial += 1;
        let fresh = FRESH + self.serial;
        let k = if is_fresh { fresh } else { self.random.below(KEYS) as i64 };
        let u = match self.random.below(3) {
            0 => None,
            _ if is_fresh => Some(fresh),
            _ => Some(self.random.below(KEYS) as i64),
        };
        let n = if is_fresh && self.random.chance(1, 2) { fresh } else { self.random.below(20) as i64 };
        (self.serial, Row { k, u, n, text: self.text() })
    }

    fn any_table(&mut self, contents: &Contents) -> Option<String> {
        let at = self.random.below(contents.tables.len().max(1) as u64) as usize;
        contents.tables.keys().nth(at).cloned()
    }

    fn define(&mut self, tx: &mut Transaction, contents: &mut Contents) -> Result<()> {
        self.operations += 1;
        let name = format!("t{}", self.random.below(4));
        let Some(table) = contents.tables.get_mut(&name) else { return self.create(tx, contents, name) };
        match self.random.below(12) {
            10 | 11 => {
                let spared = one_of(&mut self.random, &[3, 100, usize::MAX]);
                self.clear(tx, &name, table, spared)?;
            }
            0 => {
                self.steps.push(format!("drop {name}"));
                let dropped = tx.drop_table(&name);
                if self.tolerate(dropped)?.is_some() {
                    contents.tables.remove(&name);
                }
            }
            1..4 => {
                self.steps.push(format!("truncate {name}"));
                let handle = tx.table(&name)?;
                let truncated = tx.truncate(&handle);
                if self.tolerate(truncated)?.is_some() {
                    table.rows.clear();
                    if self.random.chance(2, 3) {
                        self.load(tx, &name, table)?;
                    }
                }
            }
            4 if !table.indexes.is_empty() => {
                let at = self.random.below(table.indexes.len() as u64) as usize;
                self.steps.push(format!("drop index {}", table.indexes[at].name));
                let dropped = tx.drop_index(&table.indexes[at].name);
                if self.tolerate(dropped)?.is_some() {
                    table.indexes.remove(at);
                }
            }
            5..8 if table.indexes.len() < 4 => self.create_index(tx, &name, table)?,
            8 if !table.is_keyed => {
                self.steps.push(format!("add a primary key to {name}"));
                let added = tx.add_primary_key(&name, &["k"]).map(|()| true);
                if self.agree(added, table.has_twice(&[K]))? {
                    table.is_keyed = true;
                }
            }
            _ => self.load(tx, &name, table)?,
        }
        Ok(())
    }

    fn create(&mut self, tx: &mut Transaction, contents: &mut Contents, name: String) -> Result<()> {
        let extra_columns = if self.random.chance(1, 5) { 1 + self.random.below(60) as usize } else { 0 };
        let mut table =
            Table { is_keyed: self.random.chance(1, 2), extra_columns, indexes: vec![], rows: [].into() };
        self.steps.push(format!("create {name}, keyed {}", table.is_keyed));
        let created = tx.create_table(&table.definition(&name));
        if self.tolerate(created)?.is_none() {
            return Ok(());
        }
        for _ in 0..self.random.below(3) {
            self.create_index(tx, &name, &mut table)?;
        }
        if self.random.chance(2, 3) {
            self.load(tx, &name, &mut table)?;
        }
        contents.tables.insert(name, table);
        Ok(())
    }

    fn create_index(&mut self, tx: &mut Transaction, name: &str, table: &mut Table) -> Result<()> {
        let index = Index {
            // Few names, so that names are used again.
            name: format!("{name}_{}", self.random.below(6)),
            columns: match self.random.below(6) {
                0 => vec![K],
                1 | 2 => vec![U],
                3 => vec![N],
                4 => vec![N, U],
                _ => vec![U, K],
            },
            is_unique: self.random.chance(2, 3),
        };
        if table.indexes.iter().any(|other| other.name == index.name) {
            return Ok(());
        }
        self.steps.push(format!("{index:?}"));
        let columns = Table::column_names(&index.columns);
        let created = tx.create_index(name, &index.name, &columns, index.is_unique).map(|()| true);
        if self.agree(created, index.is_unique && table.has_twice(&index.columns))? {
            table.indexes.push(index);
        }
        Ok(())
    }

    /// Inserts many rows, few of which have keys that other rows may have.
    fn load(&mut self, tx: &mut Transaction, name: &str, table: &mut Table) -> Result<()> {
        let rows = self.load / 2 + self.random.below(self.load / 2);
        // Rows of one size fill segments of their own.
        let length = one_of(&mut self.random, &[None, None, Some(250), Some(1_200)]);
        self.steps.push(format!("load {rows} rows into {name}, texts of {length:?}"));
        let handle = tx.table(name)?;
        for _ in 0..rows {
            let is_fresh = !self.random.chance(1, 25);
            let (serial, mut row) = self.row(is_fresh);
            if let Some(length) = length {
                row.text = "l".repeat(length);
            }
            self.insert(tx, &handle, table, (serial, row))?;
        }
        Ok(())
    }

    /// Fills one of three tables to the bound of memory with rows of one size, or empties it.
    ///
    /// # Errors
    /// As [`Drawer::transaction`].
    pub fn refill(&mut self, tx: &mut Transaction, before: &Contents) -> Result<Contents> {
        self.steps.clear();
        let (mut contents, name) = (before.clone(), format!("t{}", self.random.below(3)));
        match contents.tables.get_mut(&name) {
            None => {
                let table = Table { is_keyed: true, ..Table::default() };
                tx.create_table(&table.definition(&name))?;
                contents.tables.insert(name, table);
            }
            Some(table) if table.rows.is_empty() => {
                let length = one_of(&mut self.random, &[100, 400, 1_500, 4_000]);
                self.steps.push(format!("fill {name} with texts of {length}"));
                let handle = tx.table(&name)?;
                loop {
                    let (serial, row) = self.row(true);
                    let row = Row { text: "f".repeat(length), ..row };
                    if !self.insert(tx, &handle, table, (serial, row))? {
                        break;
                    }
                }
            }
            Some(table) => self.clear(tx, &name, table, usize::MAX)?,
        }
        self.count(tx, &mut contents)?;
        Ok(contents)
    }

    /// Deletes rows one by one, but one in `spared` stays.
    fn clear(&mut self, tx: &mut Transaction, name: &str, table: &mut Table, spared: usize) -> Result<()> {
        self.steps.push(format!("delete rows of {name}"));
        let handle = tx.table(name)?;
        let mut keys = Vec::new();
        tx.scan(&handle, &Scan { mode: ScanMode::Update, ..Scan::all() }, |key, row| {
            keys.push((key.clone(), row.get_i64(0)?));
            Ok(ControlFlow::Continue(()))
        })?;
        for (nth, (key, serial)) in keys.into_iter().enumerate() {
            if nth % spared == spared / 2 {
                continue;
            }
            self.operations += 1;
            let deleted = tx.delete_at(&handle, &key);
            if self.agree(deleted, false)? {
                table.rows.remove(&serial);
            }
        }
        Ok(())
    }

    fn insert(
        &mut self,
        tx: &mut Transaction,
        handle: &Handle,
        table: &mut Table,
        (serial, row): (i64, Row),
    ) -> Result<bool> {
        self.operations += 1;
        let is_broken = table.has_key_of(serial, &row);
        let inserted = tx.insert(handle, &table.values(serial, &row)).map(|()| true);
        let is_done = self.agree(inserted, is_broken)?;
        if is_done {
            table.rows.insert(serial, row);
        }
        Ok(is_done)
    }

    fn change_rows(&mut self, tx: &mut Transaction, contents: &mut Contents) -> Result<()> {
        let Some(name) = self.any_table(contents) else { return Ok(()) };
        self.steps.push(format!("change rows of {name}"));
        let table = contents.tables.get_mut(&name).expect("it was just drawn");
        let handle = tx.table(&name)?;
        for _ in 0..1 + self.random.below(16) {
            match self.random.below(12) {
                0..4 => {
                    let row = self.row(false);
                    self.insert(tx, &handle, table, row)?;
                }
                4 | 5 => self.delete(tx, &handle, table)?,
                6..10 => self.update(tx, &handle, table)?,
                10 => self.look(tx, &handle, table)?,
                _ => self.look_by(tx, &handle, table)?,
            }
        }
        Ok(())
    }

    fn any_row(&mut self, table: &Table) -> Option<(i64, Row)> {
        let at = self.random.below(table.rows.len().max(1) as u64) as usize;
        table.rows.iter().nth(at).map(|(serial, row)| (*serial, row.clone()))
    }

    fn delete(&mut self, tx: &mut Transaction, handle: &Handle, table: &mut Table) -> Result<()> {
        let Some((serial, row)) = self.any_row(table) else { return Ok(()) };
        self.operations += 1;
        let deleted = match table.is_keyed {
            true => tx.delete(handle, row.k),
            false => {
                let at = find(tx, handle, serial)?;
                tx.delete_at(handle, &at)
            }
        };
        if self.agree(deleted, false)? {
            table.rows.remove(&serial);
        }
        Ok(())
    }

    /// Sets columns of a row, or adds to its number.
    fn update(&mut self, tx: &mut Transaction, handle: &Handle, table: &mut Table) -> Result<()> {
        let Some((serial, before)) = self.any_row(table) else { return Ok(()) };
        self.operations += 1;
        let mut row = before.clone();
        let outcome = if self.random.chance(1, 3) {
            let by = self.random.below(7) as i64 - 3;
            row.n += by;
            if self.random.chance(1, 8) {
                row.text = self.text();
            }
            let text = (row.text != before.text).then(|| row.value(serial, TEXT));
            let edit = |fields: &mut rialto::Fields<'_>| {
                fields.add(N, by)?;
                if let Some(text) = &text { fields.set(TEXT, text).map(drop) } else { Ok(()) }
            };
            match table.is_keyed {
                true => tx.modify(handle, before.k, edit),
                false => {
                    let at = find(tx, handle, serial)?;
                    tx.modify_at(handle, &at, edit)
                }
            }
        } else {
            let (_, other) = self.row(false);
            let mut columns: Vec<usize> =
                [U, N, TEXT].into_iter().filter(|_| self.random.chance(1, 3)).collect();
            if columns.is_empty() || self.random.chance(1, 4) {
                columns.push(K);
            }
            for column in &columns {
                match *column {
                    K => row.k = other.k,
                    U => row.u = other.u,
                    N => row.n = other.n,
                    _ => row.text.clone_from(&other.text),
                }
            }
            let changes: Vec<_> = columns.iter().map(|&column| (column, row.value(serial, column))).collect();
            match table.is_keyed {
                true => tx.update(handle, before.k, &changes),
                false => {
                    let at = find(tx, handle, serial)?;
                    tx.update_at(handle, &at, &changes)
                }
            }
        };
        if self.agree(outcome, table.has_key_of(serial, &row))? {
            table.rows.insert(serial, row);
        }
        Ok(())
    }

    fn any_index<'a>(&mut self, handle: &Handle, table: &'a Table) -> (WhichIndex, Option<&'a Index>) {
        let at = self.random.below(table.indexes.len() as u64 + 1) as usize;
        let Some(index) = table.indexes.get(at) else { return (WhichIndex::Primary, None) };
        let position = handle.schema().indexes().iter().position(|it| it.name == index.name);
        (WhichIndex::Secondary(position.expect("the table has it")), Some(index))
    }

    /// Scans a range of an index in either direction, up to a limit.
    fn look(&mut self, tx: &mut Transaction, handle: &Handle, table: &Table) -> Result<()> {
        self.operations += 1;
        let (which, index) = self.any_index(handle, table);
        let columns = table.columns_of(index);
        // Bounds by its first column, if that is never NULL.
        let bounded = columns.first().copied().filter(|&column| column != U);
        let bound = |drawer: &mut Drawer| match drawer.random.below(3) {
            _ if bounded.is_none() => None,
            0 => None,
            kind => Some((drawer.random.below(KEYS) as i64, kind == 1)),
        };
        let (lower, upper) = (bound(self), bound(self));
        let of = |bound: Option<(i64, bool)>| match bound {
            None => KeyBound::Unbounded,
            Some((at, true)) => KeyBound::Included(vec![Value::Int8(at)]),
            Some((at, false)) => KeyBound::Excluded(vec![Value::Int8(at)]),
        };
        let direction = if self.random.chance(1, 2) { Direction::Forward } else { Direction::Backward };
        let limit = self.random.chance(1, 3).then(|| self.random.below(6));
        let scan = Scan { index: which, lower: of(lower), upper: of(upper), direction, limit, ..Scan::all() };
        let mut found = Vec::new();
        tx.scan(handle, &scan, |_, row| {
            found.push(table.read(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let is_within = |(serial, row): &(&i64, &Row)| {
            let Some(column) = bounded else { return true };
            let at = row.key(**serial, &[column]).expect("it is never NULL")[0];
            lower.is_none_or(|(bound, included)| at > bound || included && at == bound)
                && upper.is_none_or(|(bound, included)| at < bound || included && at == bound)
        };
        let expected: Vec<_> = table.rows.iter().filter(is_within).collect();
        let about = format!("{}: {scan:?} of {}", self.told(), handle.name());
        assert_eq!(found.len(), expected.len().min(limit.unwrap_or(u64::MAX) as usize), "{about}");
        for (serial, row) in &found {
            assert!(expected.contains(&(serial, row)), "{about}: row {serial}, {row:?}");
        }
        assert_ordered(&found, &columns, direction, &about);
        // The rows that a limit leaves out come after those that it gives.
        if limit.is_some() && !columns.contains(&U) {
            let key = |serial: i64, row: &Row| row.key(serial, &columns);
            let mut keys: Vec<_> = expected.iter().map(|(serial, row)| key(**serial, row)).collect();
            keys.sort();
            if direction == Direction::Backward {
                keys.reverse();
            }
            let found: Vec<_> = found.iter().map(|(serial, row)| key(*serial, row)).collect();
            assert_eq!(found, keys[..found.len()], "{about}: the first of the range");
        }
        Ok(())
    }

    /// Looks up the row of a unique key.
    fn look_by(&mut self, tx: &mut Transaction, handle: &Handle, table: &Table) -> Result<()> {
        let (which, index) = self.any_index(handle, table);
        let columns = table.columns_of(index);
        if columns.is_empty() || index.is_some_and(|index| !index.is_unique) {
            return Ok(());
        }
        self.operations += 1;
        let there = if self.random.chance(1, 2) { self.any_row(table) } else { None };
        let (serial, row) = there.unwrap_or_else(|| (-1, self.row(false).1));
        let Some(key) = row.key(serial, &columns) else { return Ok(()) };
        let values: Vec<_> = key.iter().map(|&number| Value::Int8(number)).collect();
        let mode = if self.random.chance(1, 2) { ScanMode::Share } else { ScanMode::Update };
        let found = tx.look_by(handle, which, &values[..], mode, |row| row.get_i64(0));
        let Some(found) = self.tolerate(found)? else { return Ok(()) };
        let has_it = |(serial, row): &(&i64, &Row)| row.key(**serial, &columns).as_ref() == Some(&key);
        let expected = table.rows.iter().find(has_it).map(|(serial, _)| *serial);
        assert_eq!(found.transpose()?, expected, "{}: {key:?} by {index:?}", self.told());
        Ok(())
    }
}

/// The position of the row of this number in a table without a key.
fn find(tx: &mut Transaction, handle: &Handle, serial: i64) -> Result<RowKey> {
    let mut at = None;
    tx.scan(handle, &Scan::all(), |key, row| {
        if row.get_i64(0)? != serial {
            return Ok(ControlFlow::Continue(()));
        }
        at = Some(key.clone());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(at.expect("the row is there"))
}
