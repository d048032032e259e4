//! Several versions of one procedure, in one log.

use std::ops::ControlFlow;

use rialto::io::MemoryDisk;
use rialto::recovery::inspect::inspect;
use rialto::row::{ColumnType, Value};
use rialto::{Database, OpenError, Options, Procedure, Scan};

use super::{calls, exclusive, int8, prepare};

/// Inserts 1000 times its version plus an argument.
fn mark(version: u32) -> Procedure {
    let base = 1000 * i64::from(version);
    let mark =
        exclusive("done", move |tx, table, values| tx.insert(table, &[Value::Int8(base + int8(&values[0]))]));
    Procedure::new("mark", [ColumnType::Int8], mark).deterministic(version)
}

fn with(versions: &[u32]) -> Options {
    Options { procedures: versions.iter().map(|&version| mark(version)).collect(), ..calls() }
}

fn marks(db: &Database) -> Vec<i64> {
    let table = db.table("done").unwrap();
    let mut marks = Vec::new();
    db.transact(|tx| {
        marks.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            marks.push(row.get_i64(0)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    marks
}

/// A new version replaces another while the database is open. The log is recovered by both, in whichever order they are
/// given, and the higher one is called from then on. Each missing version is named. A checkpoint ends the need for
/// both.
#[test]
fn a_log_with_calls_of_two_versions_is_recovered_by_both() {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), with(&[1])).unwrap();
    prepare(&db);
    let call = |db: &Database, n: i64| db.call("mark", &[Value::Int8(n)]).map(drop).unwrap();
    call(&db, 1);
    db.register(mark(2)).unwrap();
    call(&db, 2);
    db.close().unwrap();

    let text = inspect(&(disk.clone() as _), 64 << 20, 2).unwrap();
    assert!(text.contains("can run again (\"mark\" version 1, \"mark\" version 2): "), "{text}");
    for (given, missing) in [(1, 2), (2, 1)] {
        let error = Database::open_on(disk.clone(), with(&[given])).unwrap_err();
        let OpenError::Unsupported { what } = error else { panic!("{error:?}") };
        let expected = format!(
            "is a call of procedure \"mark\" version {missing} (Logging::Transaction), of which only version {given} is there: \
             open the database with version {missing} in Options::procedures, too; after a checkpoint it is needed no longer"
        );
        assert!(what.ends_with(&expected), "{what}");
    }
    let mut expected = vec![1001, 2002];
    for (n, versions) in [(3, &[1, 2][..]), (4, &[2, 1]), (5, &[3, 1, 2])] {
        let db = Database::open_on(disk.clone(), with(versions)).unwrap();
        assert_eq!((db.recovery().unwrap().calls, marks(&db)), (n as u64 - 1, expected.clone()));
        let highest = versions.iter().copied().max();
        assert_eq!(db.registered_version("mark"), highest);
        call(&db, n);
        expected.push(1000 * i64::from(highest.unwrap()) + n);
        expected.sort_unstable();
        db.close().unwrap();
    }
    let db = Database::open_on(disk.clone(), with(&[1, 2, 3])).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    assert_eq!(marks(&Database::open_on(disk, with(&[])).unwrap()), expected);
}
