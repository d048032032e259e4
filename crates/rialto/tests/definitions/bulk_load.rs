//! Tables that a transaction has made or emptied, and loads: its operations on them have the same results as row by
//! row.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use rialto::io::{MemoryDisk, Random};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Checkpointing, Database, Error, Options, Savepoint, Scan, Table, TableDef, Transaction};

/// This many rows go into such a table by the packet before its load begins.
const BEFORE_LOAD: i32 = 256;

fn options() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

/// A row without its key: two unique keys, one of which may be NULL, and a key that other rows may have, too.
type Fields = (i32, Option<i32>, i32);
type Rows = BTreeMap<i32, Fields>;

fn values(id: i32, (u, w, v): Fields) -> [Value; 4] {
    [Value::Int4(id), Value::Int4(u), w.map_or(Value::Null, Value::Int4), Value::Int4(v)]
}

fn create(tx: &mut Transaction) -> rialto::Result<Table> {
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("u", ColumnType::Int4),
        Column::nullable("w", ColumnType::Int4),
        Column::new("v", ColumnType::Int4),
    ];
    tx.create_table(&TableDef::new("t", columns).with_primary_key(&["id"]))?;
    tx.create_index("t", "by_u", &["u"], true)?;
    tx.create_index("t", "by_w", &["w"], true)?;
    tx.create_index("t", "by_v", &["v"], false)?;
    tx.table("t")
}

/// Checks that each index gives these rows.
fn check(tx: &mut Transaction, expected: &Rows, when: &str) -> rialto::Result<()> {
    let table = tx.table("t")?;
    for index in 0..4 {
        let which = if index == 0 { WhichIndex::Primary } else { WhichIndex::Secondary(index - 1) };
        let mut found = Rows::new();
        let mut visits = 0;
        let scan = Scan { index: which, ..Scan::all() };
        tx.scan(&table, &scan, |_, row| {
            let w = if row.is_null(2) { None } else { Some(row.get_i32(2)?) };
            found.insert(row.get_i32(0)?, (row.get_i32(1)?, w, row.get_i32(3)?));
            visits += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        assert!(found == *expected && visits == expected.len(), "{when}: by {which:?}: {visits} rows");
    }
    Ok(())
}

/// One transaction with its expected rows.
struct Run<'a> {
    tx: Transaction<'static>,
    table: Table,
    rows: Rows,
    savepoints: Vec<(Savepoint, Rows)>,
    random: &'a mut Random,
}

impl Run<'_> {
    fn below(&mut self, limit: i32) -> i32 {
        self.random.below(limit as u64) as i32
    }

    /// Few keys, so that they collide.
    fn fields(&mut self) -> Fields {
        let w = if self.below(3) > 0 { Some(self.below(3_000)) } else { None };
        (self.below(3_000), w, self.below(50))
    }

    /// Whether a row may have this key and these fields, where `instead_of` is its key now.
    fn is_free(&self, id: i32, (u, w, _): Fields, instead_of: Option<i32>) -> bool {
        self.rows
            .iter()
            .filter(|(other, _)| Some(**other) != instead_of)
            .all(|(&other, fields)| other != id && fields.0 != u && (w.is_none() || fields.1 != w))
    }

    fn outcome(&self, outcome: rialto::Result<bool>, expected: bool, what: &str) {
        match outcome {
            Ok(done) => assert!(done && expected, "{what} was done"),
            Err(Error::DuplicateKey { .. }) => assert!(!expected, "{what} was refused: {outcome:?}"),
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn insert(&mut self, id: i32, fields: Fields) {
        let expected = self.is_free(id, fields, None);
        let outcome = self.tx.insert(&self.table, &values(id, fields)).map(|()| true);
        self.outcome(outcome, expected, &format!("insert {id} {fields:?}"));
        if expected {
            self.rows.insert(id, fields);
        }
    }

    fn insert_any(&mut self) {
        let (id, fields) = (self.below(3_000), self.fields());
        self.insert(id, fields);
    }

    fn any(&mut self) -> Option<i32> {
        let nth = self.random.below(self.rows.len().max(1) as u64) as usize;
        self.rows.keys().nth(nth).copied()
    }

    fn step(&mut self) {
        match self.below(20) {
            0..10 => {
                // Rows of mostly new keys, one after the other.
                for _ in 0..=self.below(40) {
                    self.insert_any();
                }
            }
            10..13 => {
                let Some(id) = self.any() else { return };
                assert_eq!(self.tx.delete(&self.table, id), Ok(true));
                self.rows.remove(&id);
                if self.below(2) == 0 {
                    self.insert_any();
                }
            }
            13..17 => {
                let Some(id) = self.any() else { return };
                let (mut to, mut fields) = (id, self.rows[&id]);
                match self.below(4) {
                    0 => to = self.below(3_000),
                    1 => fields.0 = self.below(3_000),
                    2 => fields.1 = self.fields().1,
                    _ => fields.2 = self.below(50),
                }
                let expected = self.is_free(to, fields, Some(id));
                let changes: Vec<_> = values(to, fields).into_iter().enumerate().collect();
                let outcome = self.tx.update(&self.table, id, &changes);
                self.outcome(outcome, expected, &format!("update {id} to {to} {fields:?}"));
                if expected {
                    self.rows.remove(&id);
                    self.rows.insert(to, fields);
                }
            }
            17 => self.savepoints.push((self.tx.savepoint(), self.rows.clone())),
            18 => {
                let nth = self.random.below(self.savepoints.len() as u64 + 1) as usize;
                let Some((savepoint, rows)) = self.savepoints.get(nth).cloned() else { return };
                self.tx.rollback_to(&savepoint).unwrap();
                self.table = self.tx.table("t").unwrap();
                self.savepoints.truncate(nth + 1);
                self.rows = rows;
            }
            _ if self.below(8) == 0 => {
                self.tx.truncate(&self.table).unwrap();
                self.table = self.tx.table("t").unwrap();
                self.rows.clear();
            }
            _ => {
                let Some((savepoint, _)) = self.savepoints.pop() else { return };
                self.tx.release_savepoint(savepoint).unwrap();
            }
        }
    }
}

fn random_loads(random: &mut Random) {
    let disk = MemoryDisk::new();
    let mut db = Database::open_on(disk.clone(), options()).unwrap();
    let mut committed: Option<Rows> = None;
    for _ in 0..6 {
        let mut tx = db.begin().unwrap();
        let table = match committed {
            None => create(&mut tx).unwrap(),
            Some(_) => {
                let table = tx.table("t").unwrap();
                tx.truncate(&table).unwrap();
                tx.table("t").unwrap()
            }
        };
        let mut run = Run { tx, table, rows: Rows::new(), savepoints: Vec::new(), random };
        for _ in 0..run.below(80) {
            run.step();
        }
        let Run { mut tx, rows, .. } = run;
        check(&mut tx, &rows, "within the transaction").unwrap();
        if random.below(4) == 0 {
            tx.abort().unwrap();
        } else {
            tx.commit().unwrap();
            committed = Some(rows);
        }
        if let Some(rows) = &committed {
            db.transact(|tx| check(tx, rows, "after it")).unwrap();
            if random.below(2) == 0 {
                db.close().unwrap();
                db = Database::open_on(disk.clone(), options()).unwrap();
                db.transact(|tx| check(tx, rows, "after a recovery")).unwrap();
            }
        }
    }
}

#[test]
fn a_load_does_what_inserts_row_by_row_would() {
    let end = Instant::now() + Random::test_time_from_environment();
    let seed = Random::seed_from_environment();
    println!("RIALTO_SEED={seed}");
    let mut random = Random::new(seed);
    while Instant::now() < end {
        random_loads(&mut random);
    }
}

/// The keys that rows of the load have given up are free, before the load has begun and after.
#[test]
fn a_unique_key_is_taken_over_from_a_row_of_the_load() {
    for rows in [100, 400] {
        let db = Database::open_on(MemoryDisk::new(), options()).unwrap();
        let mut expected = Rows::new();
        db.transact(|tx| {
            let table = create(tx)?;
            for n in 0..rows {
                tx.insert(&table, &values(n, (n, Some(n), n)))?;
                expected.insert(n, (n, Some(n), n));
            }
            assert!(tx.delete(&table, 5)?);
            expected.remove(&5);
            tx.insert(&table, &values(100_000, (5, Some(5), 5)))?;
            expected.insert(100_000, (5, Some(5), 5));
            // By an update.
            assert!(tx.update(&table, 6, &[(1, Value::Int4(-6))])?);
            expected.insert(6, (-6, Some(6), 6));
            tx.insert(&table, &values(100_001, (6, None, 6)))?;
            expected.insert(100_001, (6, None, 6));
            let taken = tx.insert(&table, &values(100_002, (-6, None, 6)));
            assert!(matches!(taken, Err(Error::DuplicateKey { .. })), "{taken:?}");
            check(tx, &expected, "within the transaction")
        })
        .unwrap();
        db.transact(|tx| check(tx, &expected, "after it")).unwrap();
    }
}

/// The first row that would have begun the load is refused; the transaction goes on.
#[test]
fn a_load_whose_first_row_is_refused_loses_none_of_the_next() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let mut expected = Rows::new();
    db.transact(|tx| {
        let table = create(tx)?;
        for n in 0..BEFORE_LOAD {
            tx.insert(&table, &values(n, (n, None, n)))?;
            expected.insert(n, (n, None, n));
        }
        let refused = tx.insert(&table, &values(BEFORE_LOAD, (7, None, 7)));
        assert!(matches!(refused, Err(Error::DuplicateKey { .. })), "{refused:?}");
        for n in BEFORE_LOAD..BEFORE_LOAD + 100 {
            tx.insert(&table, &values(n, (n, None, n)))?;
            expected.insert(n, (n, None, n));
        }
        Ok(())
    })
    .unwrap();
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    db.transact(|tx| check(tx, &expected, "after a recovery")).unwrap();
}

/// A transaction that would write more than it may: the operation is refused and leaves nothing, also where its row
/// would have gone into a load, or have begun one.
#[test]
fn an_operation_that_passes_the_write_sets_bound_leaves_no_row_in_a_load() {
    let is_refused = |outcome: rialto::Result<()>| match outcome {
        Ok(()) => false,
        Err(Error::WriteSetTooLarge { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    let run = |limit: usize, rows: i32, is_moved: bool| -> Rows {
        let options = Options { write_set_bytes_max: limit, ..options() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let mut tx = db.begin().unwrap();
        let table = create(&mut tx).unwrap();
        let mut expected = Rows::new();
        for n in 0..rows {
            if !is_refused(tx.insert(&table, &values(n, (n, None, n)))) {
                expected.insert(n, (n, None, n));
            }
        }
        for n in (0..rows).filter(|_| is_moved) {
            let to = n + 10_000;
            if !is_refused(tx.update(&table, n, &[(0, Value::Int4(to))]).map(|_| ())) {
                let fields = expected.remove(&n).unwrap();
                expected.insert(to, fields);
            }
        }
        check(&mut tx, &expected, &format!("a bound of {limit} bytes, {rows} rows")).unwrap();
        expected
    };
    // Up to where all rows before the load fit, then on through the row that begins it.
    let (mut too_few, mut enough) = (4_096, 65_536);
    while too_few + 1 < enough {
        let limit = usize::midpoint(too_few, enough);
        match run(limit, BEFORE_LOAD, false).len() as i32 {
            BEFORE_LOAD => enough = limit,
            _ => too_few = limit,
        }
    }
    let rows =
        (enough..enough + 40).map(|limit| run(limit, BEFORE_LOAD + 20, false).len()).collect::<Vec<_>>();
    assert_eq!(rows.last(), Some(&(BEFORE_LOAD as usize + 20)), "the load has begun");
    // Rows whose keys change: the delete is in the packet, and the row goes into the load.
    for limit in enough + 40..enough + 72 {
        let rows = run(limit + 600, 2 * BEFORE_LOAD, true);
        assert_eq!(rows.len() as i32, 2 * BEFORE_LOAD);
        assert!(rows.contains_key(&10_000) && rows.contains_key(&(2 * BEFORE_LOAD - 1)), "some are refused");
    }
}
