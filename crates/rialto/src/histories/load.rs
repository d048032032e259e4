//! Random transactions on one table, with what they saw and did.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::io::Random;
use crate::isolate::{Grains, LockGrain};
use crate::row::{Column, ColumnType, Value, WhichIndex};
use crate::{Database, Error, KeyBound, Scan, ScanMode, Table, TableDef, Transaction, TxOptions};

use super::history::{Done, Event, Predicate};
use crate::interleavings::common::calls::KEYS;

const GROUPS: u64 = 4;

fn version_of(row: &crate::row::Row) -> Result<u64, Error> {
    Ok(row.view().get_i64(2)? as u64)
}

struct Body<'a, 'tx> {
    tx: &'a mut Transaction<'tx>,
    table: &'a Table,
    random: Random,
    number: u64,
    filler_bytes: u64,
    events: Vec<Event>,
}

impl Body<'_, '_> {
    fn wrote(&self, key: i32) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Write { key: at, .. } if *at == key))
    }

    fn read(&mut self, key: i32) -> Result<(), Error> {
        let seen = self.tx.get(self.table, key)?.map(|row| version_of(&row)).transpose()?;
        self.events.push(Event::Read { key, seen });
        Ok(())
    }

    fn scan(&mut self, mode: ScanMode) -> Result<(), Error> {
        let (predicate, mut scan) = if self.random.chance(1, 2) {
            let low = self.random.below(KEYS as u64) as i32;
            let high = (low + self.random.below(6) as i32).min(KEYS - 1);
            let (lower, upper) = (vec![Value::Int4(low)], vec![Value::Int4(high)]);
            let scan =
                Scan { lower: KeyBound::Included(lower), upper: KeyBound::Included(upper), ..Scan::all() };
            (Predicate::Keys(low, high), scan)
        } else {
            let group = self.random.below(GROUPS) as i32;
            (Predicate::Group(group), Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(group)]))
        };
        if self.random.chance(1, 2) {
            scan.direction = crate::Direction::Backward;
        }
        scan.mode = mode;
        let mut seen = Vec::new();
        self.tx.scan(self.table, &scan, |_, row| {
            seen.push((row.get_i32(0)?, row.get_i64(2)? as u64));
            Ok(ControlFlow::Continue(()))
        })?;
        self.events.push(Event::Scan { predicate, seen });
        Ok(())
    }

    /// A text of any length, so that rows outgrow their slots and move.
    fn filler(&mut self) -> Value {
        Value::Text("x".repeat(self.random.below(self.filler_bytes) as usize))
    }

    fn write(&mut self, key: i32) -> Result<(), Error> {
        let (group, version) = (self.random.below(GROUPS) as i32, self.number);
        if self.random.chance(1, 3) {
            let row = [Value::Int4(key), Value::Int4(group), Value::Int8(version as i64), self.filler()];
            match self.tx.insert(self.table, &row) {
                Ok(()) => self.events.push(Event::Write { key, over: None, version, group: Some(group) }),
                Err(Error::DuplicateKey { .. }) => {}
                Err(error) => return Err(error),
            }
            return Ok(());
        }
        let Some(row) = self.tx.get_for_update(self.table, key)? else {
            self.events.push(Event::Read { key, seen: None });
            return Ok(());
        };
        let over = Some(version_of(&row)?);
        if self.random.chance(1, 3) {
            assert!(self.tx.delete(self.table, key)?, "the locked row {key} is there");
            self.events.push(Event::Write { key, over, version, group: None });
        } else {
            let mut changes = vec![(2, Value::Int8(version as i64))];
            let mut now = row.view().get_i32(1)?;
            if self.random.chance(1, 2) {
                now = group;
                changes.push((1, Value::Int4(group)));
            }
            if self.random.chance(1, 2) {
                changes.push((3, self.filler()));
            }
            assert!(self.tx.update(self.table, key, &changes)?, "the locked row {key} is there");
            self.events.push(Event::Write { key, over, version, group: Some(now) });
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Error> {
        for _ in 0..2 + self.random.below(5) {
            match self.random.below(2) {
                0 => {
                    let key = self.random.below(KEYS as u64) as i32;
                    self.read(key)?;
                }
                _ => self.scan(ScanMode::Share)?,
            }
            if self.random.chance(1, 4) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        for _ in 0..2 + self.random.below(3) {
            let key = self.random.below(KEYS as u64) as i32;
            match self.random.below(6) {
                0..2 => self.read(key)?,
                2..4 => {
                    let mode = if self.random.chance(1, 6) { ScanMode::Update } else { ScanMode::Share };
                    self.scan(mode)?;
                }
                _ if self.wrote(key) => {}
                _ => self.write(key)?,
            }
            if self.random.chance(1, 4) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// Transactions on a table of a database.
pub struct Load {
    db: Database,
    table: Table,
    /// Rows have a text of fewer bytes than this.
    filler_bytes: u64,
    numbers: AtomicU64,
}

impl Load {
    /// Makes the table and its first rows, which are the first transaction of the history.
    pub fn new(db: Database, filler_bytes: u64) -> (Load, Done) {
        Load::begin(db, filler_bytes, |_| {})
    }

    /// The same with a disk-resident table, in a pool of so many frames.
    pub fn in_pages(db: Database, filler_bytes: u64, frames: u64, grain: LockGrain) -> (Load, Done) {
        let core = db.core().clone();
        Load::begin(db, filler_bytes, |table| {
            table.move_to_pages(frames);
            core.storage.disk_tables.note_there();
            if grain == LockGrain::Page {
                // Eight keys, of four bytes.
                core.locks.set_grains(Grains::of_bits(table.version().index_id(WhichIndex::Primary), 29));
            }
        })
    }

    fn begin(db: Database, filler_bytes: u64, prepare: impl FnOnce(&Table)) -> (Load, Done) {
        let table = db.transact(|tx| {
            let columns = vec![
                Column::new("id", ColumnType::Int4),
                Column::new("part", ColumnType::Int4),
                Column::new("writer", ColumnType::Int8),
                Column::new("filler", ColumnType::Text),
            ];
            let table = tx.create_table(&TableDef::new("things", columns).with_primary_key(&["id"]))?;
            tx.create_index("things", "by_part", &["part"], false)?;
            Ok(table)
        });
        let table = table.unwrap();
        prepare(&table);
        let load = Load { db, table, filler_bytes, numbers: AtomicU64::new(1) };
        let first = load.submit(false, |body| {
            for key in 0..KEYS {
                let (part, filler) = (Value::Int4(key % 4), body.filler());
                let row = [Value::Int4(key), part, Value::Int8(body.number as i64), filler];
                body.tx.insert(body.table, &row)?;
                let version = body.number;
                body.events.push(Event::Write { key, over: None, version, group: Some(key % 4) });
            }
            Ok(())
        });
        (load, first)
    }

    fn submit(&self, read_only: bool, work: impl Fn(&mut Body) -> Result<(), Error>) -> Done {
        let submit = || {
            self.db.submit_with(&TxOptions { read_only, ..TxOptions::default() }, |tx| {
                // Each run has a number of its own: what an earlier run wrote was never committed.
                let number = self.numbers.fetch_add(1, Ordering::Relaxed);
                let mut body = Body {
                    tx,
                    table: &self.table,
                    random: Random::new(number),
                    number,
                    filler_bytes: self.filler_bytes,
                    events: Vec::new(),
                };
                work(&mut body)?;
                Ok(body.events)
            })
        };
        let (events, ticket) = loop {
            match submit() {
                // Others have claimed the pages in memory.
                Err(Error::CacheFull { .. }) => std::thread::yield_now(),
                submitted => break submitted.unwrap(),
            }
        };
        let place = ticket.lsn().0;
        ticket.wait().unwrap();
        Done { place, events }
    }

    /// A transaction.
    pub fn one(&self, random: &mut Random) -> Done {
        let random = random.fork();
        let read_only = random.clone().chance(1, 4);
        self.submit(read_only, |body| {
            body.random = random.clone();
            if read_only { body.look() } else { body.run() }
        })
    }
}
