//! I3: what a session tells of the catalog, absences included, is durable before it is told.

mod held;
#[path = "../../../rialto/tests/common/hooked.rs"]
mod hooked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use held::HeldDisk;
use rialto::io::{Disk, FaultKind, FaultyDisk, MemoryDisk};
use rialto::{Checkpointing, Database, Options};
use rialto_sql::run::Collected;
use rialto_sql::{Session, SqlError};

fn run(session: &mut Session, sql: &str) -> Result<(), SqlError> {
    let prepared = session.prepare(sql, &[]);
    let answer = prepared.and_then(|prepared| {
        session.execute(&prepared, &[], &mut Collected::default())?;
        session.finish()
    });
    answer.map_err(|error| session.fail(&error).err().unwrap_or(error))
}

/// A database that syncs its log only when a transaction waits for that.
fn open(disk: Arc<dyn Disk>) -> Database {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        memory_flush_interval: Duration::from_secs(3_600),
        ..Options::default()
    };
    Database::open_on(disk, options).unwrap()
}

/// Two sessions on a database whose log can no longer be synced. The first has run `definition` without waiting for the
/// log; the second waits for it.
fn after(definition: &str) -> (Session, Session) {
    let disk = FaultyDisk::new(7);
    let database = open(disk.clone());
    let session = || Session::new(database.clone(), "ann", "bank");
    let (mut first, second) = (session(), session());
    run(&mut first, "create table t (a int primary key)").unwrap();
    run(&mut first, "create index t_a on t (a)").unwrap();
    run(&mut first, "set rialto.durability = 'memory'").unwrap();
    disk.fail_always(FaultKind::Sync, "log-0", 0);
    run(&mut first, definition).unwrap();
    (first, second)
}

/// Prepares a statement and ends as at a Sync. Gives the error's code.
fn told(session: &mut Session, sql: &str) -> Option<&'static str> {
    let answer = session.prepare(sql, &[]).and_then(|_| session.finish());
    let error = answer.err()?;
    let told = session.fail(&error).err().unwrap_or(error);
    Some(told.sqlstate.code())
}

#[test]
fn no_absence_is_told_before_it_is_durable() {
    for before in [&[][..], &["begin"], &["set lock_timeout = '5s'"], &["begin", "savepoint s"]] {
        for sql in
            ["select * from t", "insert into t values (1)", "explain delete from t", "copy t to stdout"]
        {
            let (mut first, mut second) = after("drop table t");
            for statement in before {
                run(&mut second, statement).unwrap();
            }
            // The definition may be lost: then the table would exist again.
            assert_eq!(told(&mut second, sql), Some("08007"), "{before:?} {sql}");
            drop(first.take_notices());
        }
    }
    // A session that asks for a lower level waits for less.
    let (mut first, _) = after("drop table t");
    assert_eq!(told(&mut first, "select * from t"), Some("42P01"));
    for (definition, sql) in [
        ("drop table t", "analyze t"),
        ("drop table t", "drop table t"),
        ("drop index t_a", "drop index t_a"),
        ("create table u (a int)", "create table u (a int)"),
    ] {
        let (_first, mut second) = after(definition);
        let told = run(&mut second, sql).unwrap_err();
        assert!(matches!(told.sqlstate.code(), "08007" | "58030"), "{definition}; {sql}: {told}");
    }
}

#[test]
fn no_presence_is_told_before_it_is_durable() {
    for sql in ["select * from u", "insert into u values (1)", "select b from u where b = $1"] {
        let (mut first, mut second) = after("create table u (b int)");
        assert_eq!(told(&mut second, sql), Some("08007"), "{sql}");
        assert_eq!(told(&mut first, sql), None, "{sql}");
    }
}

/// A plan that was made at level memory is told at the level that the session asks for by then, whether it is prepared
/// again, described or run.
#[test]
fn a_plan_of_a_lower_level_is_told_of_at_the_level_of_the_answer() {
    for sql in ["select b from u limit 0", "explain select b from u"] {
        for level in ["disk", "default"] {
            let (_first, mut second) = after("create table u (b int)");
            run(&mut second, "set rialto.durability = 'memory'").unwrap();
            let prepared = second.prepare(sql, &[]).unwrap();
            assert!(second.settle_plan(&prepared).is_ok(), "at level memory it is told");
            run(&mut second, &format!("set rialto.durability = '{level}'")).unwrap();
            let described = second.settle_plan(&prepared).map_err(|error| error.sqlstate.code());
            assert_eq!(described, Err("08007"), "{sql} {level}");
            assert_eq!(told(&mut second, sql), Some("08007"), "{sql} {level}");
            let error = second.execute(&prepared, &[], &mut Collected::default()).unwrap_err();
            let error = second.fail(&error).err().unwrap_or(error);
            assert_eq!(error.sqlstate.code(), "08007", "{sql} {level}");
            // A statement that tells of no table waits for no definition.
            assert_eq!(told(&mut second, "set rialto.durability = 'memory'"), None);
            run(&mut second, "set rialto.durability = 'memory'").unwrap();
            assert_eq!(told(&mut second, sql), None, "{sql} {level}");
        }
    }
}

/// The answer to a statement: its rows, or the error's code.
fn rows_told(session: &mut Session, sql: &str) -> Result<String, &'static str> {
    let mut rows = Collected::default();
    let answer = session.prepare(sql, &[]).and_then(|prepared| {
        session.execute(&prepared, &[], &mut rows)?;
        session.finish()
    });
    let told = answer.map_err(|error| session.fail(&error).err().unwrap_or(error));
    told.map(|()| format!("{:?}", rows.0)).map_err(|error| error.sqlstate.code())
}

/// Whether this is the error of a log that has failed.
fn is_lost(told: &Result<String, &str>) -> bool {
    matches!(told, Err("08007" | "58030"))
}

/// A session waits for one definition while another one comes, which will not be durable.
#[test]
fn no_index_is_told_before_it_is_durable() {
    for durability in ["disk", "default"] {
        let disk = HeldDisk::new();
        let database = open(disk.disk.clone());
        let session = || Session::new(database.clone(), "ann", "bank");
        let (mut first, mut second) = (session(), session());
        run(&mut first, "create table t (a int primary key, b int)").unwrap();
        run(&mut first, "set rialto.durability = 'memory'").unwrap();
        run(&mut second, &format!("set rialto.durability = '{durability}'")).unwrap();
        disk.hold();
        run(&mut first, "create table u (a int)").unwrap();
        let explain = "explain select a from t where b = 1";
        std::thread::scope(|scope| {
            let explains = scope.spawn(|| rows_told(&mut second, explain));
            disk.wait_until_held();
            let defines = scope.spawn(|| run(&mut first, "create index t_b on t (b)"));
            while database.table("t").unwrap().schema().indexes().is_empty() {
                std::thread::yield_now();
            }
            disk.let_the_last_one_go();
            let told = explains.join().unwrap();
            let told_of = told.as_ref().is_ok_and(|plan| plan.contains("t_b"));
            assert!(!told_of && told.is_ok() || is_lost(&told), "{told:?}");
            let _ = defines.join().unwrap();
        });
        // From now on no definition is told, even if it was awaited before.
        let told = rows_told(&mut second, explain);
        assert!(is_lost(&told), "{told:?}");
    }
}

/// While a transaction drops a table and makes it anew, no other transaction can take the name.
#[test]
fn a_table_that_is_made_anew_is_never_absent() {
    let options = Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() };
    let database = Database::open_on(MemoryDisk::new(), options).unwrap();
    let session = || Session::new(database.clone(), "ann", "bank");
    let mut first = session();
    run(&mut first, "create table t (a int primary key, b int)").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = ["explain select b from t where a = 1", "select b from t where a = 1"]
            .into_iter()
            .map(|sql| {
                let (done, mut second) = (&done, session());
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        run(&mut second, sql).map_err(|error| format!("{sql}: {error}"))?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut changes = Vec::new();
        for _ in 0..300 {
            let before = database.catalog_version();
            for sql in ["begin", "drop table t", "create table t (a int primary key, b int)"] {
                run(&mut first, sql).unwrap();
            }
            for index in 0..8 {
                run(&mut first, &format!("create index t_{index} on t (b, a)")).unwrap();
            }
            run(&mut first, "commit").unwrap();
            changes.push(database.catalog_version() - before);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(changes, [1; 300], "each commit is visible at once");
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Ok::<(), String>(()));
        }
    });
}
