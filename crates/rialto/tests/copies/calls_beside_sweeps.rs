//! Values beside calls, beside a transaction-consistent black/white sweep (`Logging::Transaction`): recovery redoes the
//! packets that the copy lacks, and no others, of whatever kind.
//!
//! A gate holds the sweep's writes at a place of the backup copy. A transaction that runs meanwhile, and touches only
//! segments after that place, is white: the copy has all of it, and its place is after the redo start.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::gated::{GatedDisk, disk};
use rialto::io::{Caching, Disk, MemoryDisk, Open};
use rialto::recovery::RecoveryReport;
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{Action, Checkpointing, Database, Logging, OpenError, Options, Procedure, Scan, TableDef};

const SEGMENT: u64 = 64 << 10;
/// The key of a row that is inserted into the last segment.
const KEY: i32 = 1000;
/// The amount that a call of "add" gives its row.
const ADDED: i32 = 9;

fn remove() -> Procedure {
    let remove = Action::exclusive("things", |transaction, arguments, _| {
        let id = arguments.get::<i32>(0)?;
        transaction.delete(arguments.table()?, id).map(drop)
    });
    Procedure::new("remove", [ColumnType::Int4], remove.by_argument(0)).deterministic(1)
}

fn add() -> Procedure {
    let add = Action::exclusive("things", |transaction, arguments, _| {
        let id = arguments.get::<i32>(0)?;
        transaction.insert(arguments.table()?, &row(id, ADDED))
    });
    Procedure::new("add", [ColumnType::Int4], add.by_argument(0)).deterministic(1)
}

fn options() -> Options {
    Options {
        memory_bytes: 256 << 20,
        logging: Logging::Transaction,
        checkpoint: Checkpointing::TransactionBlackWhite,
        checkpoint_interval: Duration::from_secs(3600),
        procedures: vec![remove(), add()],
        recovery_threads: 2,
        ..Options::default()
    }
}

fn row(id: i32, n: i32) -> [Value; 3] {
    [Value::Int4(id), Value::Int4(n), Value::Text("x".repeat(30_000))]
}

/// A database, and the expected rows, from the requests to its transactions: `n` by `id`.
struct Things {
    db: Database,
    rows: BTreeMap<i32, i32>,
}

impl Things {
    /// Logged as values.
    fn put(&mut self, id: i32, n: i32) {
        let table = self.db.table("things").unwrap();
        self.db.transact(|tx| tx.insert(&table, &row(id, n))).unwrap();
        self.rows.insert(id, n);
    }

    /// Logged as values.
    fn set(&mut self, id: i32, n: i32) {
        let table = self.db.table("things").unwrap();
        assert!(self.db.transact(|tx| tx.update(&table, id, &[(1, Value::Int4(n))])).unwrap());
        self.rows.insert(id, n);
    }

    /// Logged as values.
    fn delete(&mut self, id: i32) {
        let table = self.db.table("things").unwrap();
        assert!(self.db.transact(|tx| tx.delete(&table, id)).unwrap());
        self.rows.remove(&id);
    }

    /// A call of this procedure.
    fn add(&mut self, id: i32) {
        self.db.call("add", &[Value::Int4(id)]).unwrap();
        self.rows.insert(id, ADDED);
    }

    /// A call of this procedure.
    fn remove(&mut self, id: i32) {
        self.db.call("remove", &[Value::Int4(id)]).unwrap();
        self.rows.remove(&id);
    }

    /// Closes the database, and opens it again with these options.
    fn open_again(self, disk: &GatedDisk, options: Options) -> Things {
        let Things { db, rows } = self;
        db.close().unwrap();
        let db = Database::open_on(disk.disk.clone(), options).unwrap_or_else(|error| panic!("{error}"));
        Things { db, rows }
    }
}

/// Two rows in a segment, the last two of which are deleted, so that the last segment has room. A
/// transaction-consistent copy is in force, so calls are logged as such.
fn filled() -> (GatedDisk, Things) {
    let disk = disk();
    let db = Database::open_on(disk.disk.clone(), options()).unwrap();
    let columns = vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int4),
        Column::new("text", ColumnType::Text),
    ];
    db.transact(|tx| {
        tx.create_table(&TableDef::new("things", columns.clone()).with_primary_key(&["id"]))?;
        tx.create_index("things", "things_n", &["n"], true)
    })
    .unwrap();
    let mut things = Things { db, rows: BTreeMap::new() };
    for id in 0..40 {
        things.put(id, 10 * id);
    }
    things.db.checkpoint().unwrap();
    for id in [38, 39] {
        things.delete(id);
    }
    (disk, things)
}

/// Makes a checkpoint, and runs `work` while its sweep is held before it writes the tenth segment.
fn beside_a_sweep(disk: &GatedDisk, things: &mut Things, work: impl FnOnce(&mut Things)) {
    disk.gate.set(10 * SEGMENT);
    let db = things.db.clone();
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| db.checkpoint());
        disk.gate.wait_until_reached();
        work(things);
        disk.gate.set(u64::MAX);
        sweep.join().unwrap().unwrap()
    });
    assert_eq!(db.metrics().aborted_straddling, 0, "the test's own premise: all of it is white");
}

/// The database's rows. Checks each index, and that no row is twice in it.
fn rows(db: &Database) -> BTreeMap<i32, i32> {
    let table = db.table("things").unwrap();
    let by = |index: WhichIndex| {
        let mut rows = BTreeMap::new();
        db.read(|tx| {
            rows.clear();
            tx.scan(&table, &Scan { index, ..Scan::all() }, |_, row| {
                let (id, n) = (row.get_i32(0)?, row.get_i32(1)?);
                assert_eq!(rows.insert(id, n), None, "row {id} is there twice by {index:?}");
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
        rows
    };
    let rows = by(WhichIndex::Primary);
    assert_eq!(by(WhichIndex::Secondary(0)), rows);
    rows
}

/// Closes the database, and opens it again by recovery. `check` finds it sound, and the rows are those that its
/// transactions left.
fn recovered(disk: &GatedDisk, Things { db, rows: expected }: Things) -> RecoveryReport {
    db.close().unwrap();
    let shared: Arc<dyn Disk> = disk.disk.clone();
    let report = check(&shared, 256 << 20, 2).unwrap();
    assert!(report.is_sound(), "{report}");
    let db = Database::open_on(disk.disk.clone(), options()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rows(&db), expected);
    db.recovery().unwrap().clone()
}

/// The copy has the insert and the call that takes it back. So it has no such row, and nothing in it says up to which
/// place.
#[test]
fn a_row_that_a_held_call_deleted_stays_deleted() {
    let (disk, mut things) = filled();
    beside_a_sweep(&disk, &mut things, |things| {
        things.put(KEY, 7);
        things.remove(KEY);
    });
    assert_eq!(recovered(&disk, things).calls, 0, "the copy has the call");
}

/// A call that is run again finds the rows that it found.
#[test]
fn a_call_behind_the_sweep_puts_anew_what_a_held_call_deleted() {
    let (disk, mut things) = filled();
    beside_a_sweep(&disk, &mut things, |things| {
        things.put(KEY, 7);
        things.remove(KEY);
    });
    things.add(KEY);
    assert_eq!(recovered(&disk, things).calls, 1);
}

/// Held values delete a row of a held call, and the other way round; packets of both kinds go on after the sweep.
#[test]
fn values_and_calls_take_turns_beside_a_sweep() {
    let (disk, mut things) = filled();
    beside_a_sweep(&disk, &mut things, |things| {
        things.add(KEY);
        things.put(KEY + 1, 7);
        things.delete(KEY);
        things.remove(KEY + 1);
    });
    things.put(KEY, 12);
    things.add(KEY + 1);
    things.delete(KEY);
    things.remove(KEY + 1);
    things.add(KEY);
    assert_eq!(recovered(&disk, things).calls, 3);
}

/// A sweep that is cut off has no copy in force: what it would have held is redone.
#[test]
fn what_a_sweep_that_is_cut_off_would_have_held_is_done_again() {
    let (disk, mut things) = filled();
    let mut left = None;
    beside_a_sweep(&disk, &mut things, |things| {
        things.put(KEY, 7);
        things.put(KEY + 1, 8);
        things.remove(KEY);
        left = Some(copied(&*disk.disk));
    });
    let again = Database::open_on(left.unwrap(), options()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rows(&again), things.rows);
    assert_eq!(rows(&things.db), things.rows);
    assert_eq!(again.recovery().unwrap().calls, 1);
}

/// A disk with the same files.
fn copied(disk: &dyn Disk) -> Arc<MemoryDisk> {
    let copy = MemoryDisk::new();
    for name in disk.list().unwrap() {
        let Ok(from) = disk.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; from.length().unwrap() as usize];
        from.read_at(&mut bytes, 0).unwrap();
        copy.open(&name, Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    }
    copy
}

/// Changes the home blocks, and corrects their checksums.
fn change_home(disk: &dyn Disk, change: impl Fn(&mut [u8])) {
    let file = disk.open("home", Open::Existing, Caching::Buffered).unwrap();
    for at in [0, 4096] {
        let mut block = [0; 4096];
        file.read_at(&mut block, at).unwrap();
        change(&mut block);
        let checksum = xxhash_rust::xxh3::xxh3_64(&block[..4088]);
        block[4088..].copy_from_slice(&checksum.to_le_bytes());
        file.write_at(&block, at).unwrap();
    }
}

/// An earlier program noted only for calls that the copy has them. After values, which may be in the copy as well,
/// that is refused; where there are none it suffices.
#[test]
fn a_copy_that_does_not_name_the_values_that_it_holds() {
    for beside_values in [false, true] {
        let (disk, mut things) = filled();
        beside_a_sweep(&disk, &mut things, |things| {
            if beside_values {
                // Of a segment that the copy has already, so no program names it.
                things.set(0, 5);
            }
            things.remove(37);
        });
        let Things { db, rows: expected } = things;
        db.close().unwrap();
        change_home(&*disk.disk, |block| block[12] &= !8);
        match Database::open_on(disk.disk.clone(), options()) {
            Ok(db) if !beside_values => assert_eq!(rows(&db), expected),
            Err(OpenError::Unsupported { what }) if beside_values => {
                let says = " of the log is a call of procedure \"remove\" version 1 (Logging::Transaction), which the copy of \
                            checkpoint 3 has, made by an earlier Rialto that did not note which values before it are in the \
                            copy, too: rows that the call deleted could come back. Restore a backup; or open the database \
                            with the Rialto that wrote it, ";
                assert!(what.starts_with("place ") && what.contains(says), "{what}");
                let shared: Arc<dyn Disk> = disk.disk.clone();
                let checked = check(&shared, 256 << 20, 2);
                let text = checked.map_or_else(|error| error.to_string(), |report| report.to_string());
                assert!(text.contains(says), "{text}");
            }
            other => panic!("{beside_values}: {other:?}"),
        }
    }
}

/// The older copy is fuzzy, of an opening that logged values, and was made beside commits. All calls are after its
/// clearance: up to there the log makes it whole, so it can replace a damaged transaction-consistent copy.
#[test]
fn calls_are_run_again_on_a_fuzzy_copy_that_stands_in() {
    let values = || Options { logging: Logging::Value, checkpoint: Checkpointing::Fuzzy, ..options() };
    let (disk, things) = filled();
    let mut things = things.open_again(&disk, values());
    beside_a_sweep(&disk, &mut things, |things| {
        [(0, 3), (36, 4)].into_iter().for_each(|(id, n)| things.set(id, n));
        things.delete(35);
        things.put(KEY, 7);
    });
    let mut things = things.open_again(&disk, options());
    assert_eq!(things.db.recovery().unwrap().checkpoint, 3, "the fuzzy one");
    let logged = |things: &Things| things.db.metrics().log.bytes;
    beside_a_sweep(&disk, &mut things, |things| {
        things.put(KEY + 1, 8);
        things.delete(KEY);
    });
    let before = logged(&things);
    for id in 0..10 {
        things.remove(id);
        things.add(KEY + 10 + id);
        things.remove(KEY + 10 + id);
    }
    things.add(KEY);
    assert!(logged(&things) - before < 10 * 30_000, "the test's own premise: calls are logged as such");
    let Things { db, rows: expected } = things;
    db.close().unwrap();

    for name in ["backup-1", "backup-0"] {
        let damaged = copied(&*disk.disk);
        let file = damaged.open(name, Open::Existing, Caching::Buffered).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 70).unwrap();
        file.write_at(&[byte[0] ^ 4], 70).unwrap();
        if name == "backup-0" {
            // A refusal of the older copy says why that copy is used.
            let without = Options { procedures: Vec::new(), ..options() };
            let refused = Database::open_on(damaged.clone(), without).map(drop).unwrap_err().to_string();
            let says =
                "falling back to checkpoint 3, since \"backup-0\" of checkpoint 4 is damaged at offset 0 (";
            assert!(refused.contains(says) && refused.contains(", which is not there: "), "{refused}");
        }
        for _ in 0..2 {
            let db = Database::open_on(damaged.clone(), options()).unwrap_or_else(|error| panic!("{error}"));
            let report = db.recovery().unwrap();
            assert_eq!((rows(&db), report.calls), (expected.clone(), 31), "{name}");
            let older = report.fell_back.as_ref().map(|fell_back| fell_back.older);
            assert_eq!(older, (name == "backup-0").then_some(3));
            db.close().unwrap();
        }
    }
}
