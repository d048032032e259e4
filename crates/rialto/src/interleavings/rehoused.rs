//! DDL in the middle of a sweep: the copy in force then has the catalog from before the DDL, each segment as it was
//! before it or after it, and redo begins before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::hooked::{About, HookedDisk};
use super::*;

#[derive(Debug, Clone, Copy)]
enum Ddl {
    /// Another heap, with rows inserted one by one.
    Truncate,
    /// Another heap, loaded in the same transaction.
    TruncateAndLoad,
    /// Another identity: earlier redo records name rows by number, later ones by key.
    AddPrimaryKey,
    /// The same name for another table.
    DropAndCreate,
    /// An index that earlier redo records do not know.
    CreateIndex,
}

const KINDS: [Ddl; 5] =
    [Ddl::Truncate, Ddl::TruncateAndLoad, Ddl::AddPrimaryKey, Ddl::DropAndCreate, Ddl::CreateIndex];

fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int4),
        Column::new("n", ColumnType::Int8),
        Column::new("text", ColumnType::Text),
    ]
}

fn def(kind: Ddl) -> TableDef {
    let def = TableDef::new("t", columns());
    if matches!(kind, Ddl::AddPrimaryKey) { def } else { def.with_primary_key(&["id"]) }
}

fn row(id: i32, n: i64) -> [Value; 3] {
    [Value::Int4(id), Value::Int8(n), text(6_000)]
}

/// Gives every row with `id % 3 == 1` another `n` and a longer text, and deletes every row with `id % 3 == 2`; by
/// identity, so that it works with and without a key.
fn churn(tx: &mut Transaction, table: &Table, n: i64) -> Result<()> {
    let mut keys = Vec::new();
    tx.scan(table, &Scan::all(), |key, row| {
        keys.push((key.clone(), row.get_i32(0)?));
        Ok(ControlFlow::Continue(()))
    })?;
    for (key, id) in keys {
        match id % 3 {
            1 => assert!(tx.update_at(table, &key, &[(1, Value::Int8(n)), (2, text(6_500))])?),
            2 => assert!(tx.delete_at(table, &key)?),
            _ => {}
        }
    }
    Ok(())
}

/// Work before the DDL, the DDL, and work after it, all of it after the redo start.
fn script(db: &Database, kind: Ddl) {
    let table = db.table("t").unwrap();
    db.transact(|tx| (20..26).try_for_each(|id| tx.insert(&table, &row(id, 2)))).unwrap();
    db.transact(|tx| churn(tx, &table, 3)).unwrap();
    db.transact(|tx| match kind {
        Ddl::Truncate => tx.truncate(&table),
        Ddl::TruncateAndLoad => {
            tx.truncate(&table)?;
            (0..14).try_for_each(|id| tx.insert(&table, &row(id, 4)))
        }
        Ddl::AddPrimaryKey => tx.add_primary_key("t", &["id"]),
        Ddl::DropAndCreate => {
            tx.drop_table("t")?;
            tx.create_table(&def(kind)).map(drop)
        }
        Ddl::CreateIndex => tx.create_index("t", "by_n", &["n"], false),
    })
    .unwrap();
    let table = db.table("t").unwrap();
    db.transact(|tx| (50..60).try_for_each(|id| tx.insert(&table, &row(id, 5)))).unwrap();
    db.transact(|tx| churn(tx, &table, 6)).unwrap();
}

/// All rows with the length of their text, in the order of the primary key or of their numbers, and by each index.
fn contents(db: &Database) -> Vec<Vec<(i32, i64, usize)>> {
    let table = db.table("t").unwrap();
    let indexes = table.schema().indexes().len();
    let mut all = Vec::new();
    db.read(|tx| {
        all.clear();
        for which in std::iter::once(WhichIndex::Primary).chain((0..indexes).map(WhichIndex::Secondary)) {
            let mut rows = Vec::new();
            tx.scan(&table, &Scan { index: which, ..Scan::all() }, |_, row| {
                rows.push((row.get_i32(0)?, row.get_i64(1)?, row.get_str(2)?.len()));
                Ok(ControlFlow::Continue(()))
            })?;
            all.push(rows);
        }
        if table.schema().primary_key().is_some() {
            for &(id, n, _) in &all[0] {
                assert_eq!(tx.get(&table, id)?.expect("by its key").get(1)?, Value::Int8(n));
            }
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(table.rows_estimate(), all[0].len() as u64);
    all
}

/// Runs the script before the `moment`-th write of the sweep (past the last one: before the home block is written), and
/// then crashes. False if the sweep had fewer writes.
fn ddl_at(kind: Ddl, moment: usize) -> bool {
    let about = format!("{kind:?} before write {moment} of the sweep");
    let faulty = FaultyDisk::new(seed());
    let disk = HookedDisk::new(faulty.clone());
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let table = db.transact(|tx| tx.create_table(&def(kind))).unwrap();
    // Inserted without a bulk load, so that nothing is left to a load file.
    for id in 0..20 {
        db.transact_with(&level_1(), |tx| tx.insert(&table, &row(id, 1))).unwrap();
    }
    let (writes, after) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let hook = {
        let (db, writes, after) = (db.clone(), writes.clone(), after.clone());
        move |file: &str, what: About| {
            let counts = matches!(what, About::Write(_)) && (file.starts_with("backup") || file == "home");
            if counts && writes.fetch_add(1, Ordering::SeqCst) == moment {
                script(&db, kind);
                *after.lock() = Some(contents(&db));
            }
        }
    };
    disk.before(hook);
    let report = db.checkpoint().unwrap();
    disk.unhook();
    let Some(expected) = after.lock().take() else { return false };
    assert!(!report.skipped, "{about}");
    let (disk, db) = crashed(&faulty, db);
    assert_eq!(db.recovery().unwrap().redo_start, report.redo_start, "{about}");
    assert_eq!(contents(&db), expected, "{about}");
    // The database goes on: another checkpoint of what was recovered, and another crash.
    let table = db.table("t").unwrap();
    db.transact(|tx| tx.insert(&table, &row(1000, 7))).unwrap();
    db.checkpoint().unwrap();
    let expected = contents(&db);
    let (_, db) = crashed(&disk, db);
    assert_eq!(contents(&db), expected, "{about}, after another checkpoint and crash");
    true
}

/// A commit that began before the DDL is still being applied when a checkpoint begins. The checkpoint waits for it, so
/// that its redo start lies after the DDL, and the copy's catalog is that of the redo start.
fn ddl_behind_a_commit_on_its_way(kind: Ddl) {
    let about = format!("{kind:?} behind a commit that is on its way");
    let faulty = FaultyDisk::new(seed());
    let db = Database::open_on(faulty.clone(), options()).unwrap();
    let table = db.transact(|tx| tx.create_table(&def(kind))).unwrap();
    let held = db.transact(|tx| tx.create_table(&TableDef::new("held", columns()).with_primary_key(&["id"])));
    let held = held.unwrap();
    for id in 0..20 {
        db.transact_with(&level_1(), |tx| tx.insert(&table, &row(id, 1))).unwrap();
    }
    db.transact(|tx| tx.insert(&held, &row(1, 1))).unwrap();
    let segment = record_of(&held, 1).segment();
    let place = db.core().commits.log.place().next();
    let (report, expected) = std::thread::scope(|scope| {
        let latched = Arc::new(AtomicBool::new(false));
        scope.spawn({
            let (db, latched) = (&db, latched.clone());
            move || {
                let _latched = db.core().storage.memory.segments.latch(segment);
                latched.store(true, Ordering::SeqCst);
                until("the checkpoint keeps DDL back", || db.core().commits.definitions.is_held());
                // The checkpoint waits for the commit now, or is about to.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        until("the segment is latched", || latched.load(Ordering::SeqCst));
        scope.spawn(|| commit(&db, |tx| set_n(tx, &held, 1, 9)));
        until("the commit has its place", || db.core().commits.log.place() == place);
        script(&db, kind);
        let expected = contents(&db);
        (db.checkpoint().unwrap(), expected)
    });
    let ddl = db.core().storage.catalog.changed_at();
    assert!(place < ddl && ddl < report.redo_start, "{about}: DDL at {ddl}, redo from {}", report.redo_start);
    let (_, db) = crashed(&faulty, db);
    assert_eq!(db.recovery().unwrap().redo_start, report.redo_start, "{about}");
    assert_eq!(contents(&db), expected, "{about}");
    let held = db.table("held").unwrap();
    let n = db.read(|tx| tx.get(&held, 1)?.unwrap().get(1)).unwrap();
    assert_eq!(n, Value::Int8(9), "{about}");
}

#[test]
fn a_checkpoint_waits_for_commits_that_ddl_has_passed() {
    KINDS.into_iter().for_each(ddl_behind_a_commit_on_its_way);
}

#[test]
fn ddl_at_each_moment_of_a_sweep_is_recovered() {
    for kind in KINDS {
        let moments = (0..).take_while(|&moment| ddl_at(kind, moment)).count();
        assert!(moments > 4, "{kind:?}: the sweep had {moments} writes");
    }
}
