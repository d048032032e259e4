//! Cancel requests, and statements that no rollback undoes.

use super::*;

#[test]
fn a_cancel_between_the_statements_of_a_query_string_ends_the_next() {
    let mut session = bank();
    let cancel = session.cancel();
    let statements = ["set lock_timeout = 100", "select a from t where a = 1", "savepoint s", "rollback"];
    for next in statements {
        for first in ["set lock_timeout = 100", "select a from t where a = 1", "begin"] {
            session.set_in_string(true);
            let prepared = session.prepare(first, &[]).unwrap();
            session.execute(&prepared, &[], &mut Collected::default()).unwrap();
            cancel.request();
            assert_eq!(code(&mut session, next), "57014", "{next} behind {first}");
            session.set_in_string(false);
            run(&mut session, "rollback");
            cancel.request();
            assert_eq!(
                column(&mut session, "select a from t where a = 1"),
                ["1"],
                "there was nothing to cancel"
            );
        }
    }
}

#[test]
fn a_cancel_request_ends_a_backup_that_is_being_written() {
    let db = database();
    let mut session = Session::new(db.clone(), "ann", "bank");
    run(&mut session, "create table big (id int primary key, text text)");
    let table = db.table("big").unwrap();
    let text = "x".repeat(30_000);
    let row = |id| [Value::Int4(id), Value::Text(text.clone())];
    db.transact(|tx| (0..500).try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cancelled-{}", std::process::id()));
    let unfinished = path.join("backup.unfinished");
    let statement = format!("backup to '{}'", path.display());
    // A backup may end before the request comes, which then ends nothing.
    let is_cancelled = (0..20).any(|_| {
        let _ = std::fs::remove_dir_all(&path);
        let (cancel, has_ended) = (session.cancel(), AtomicBool::new(false));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !unfinished.exists() && !has_ended.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                cancel.request();
            });
            let outcome = try_run(&mut session, &statement, &[]);
            has_ended.store(true, Ordering::Relaxed);
            outcome
        });
        outcome.is_err_and(|error| error.sqlstate.code() == "57014") && !path.join("backup.rialto").exists()
    });
    assert!(is_cancelled && !unfinished.exists());
    run(&mut session, &statement);
    std::fs::remove_dir_all(&path).unwrap();
}

/// A cancel request that comes after the backup ends nothing, nor do later statements of its pipeline. A client that
/// gets an error for a backup takes it for none, while increments would be based on it.
#[test]
fn what_no_rollback_takes_back_is_told_as_done() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("done-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let path = |name: &str| directory.join(name);
    let options = Options { archive: Some(Archive::on(MemoryDisk::new())), ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    let mut session = Session::new(db, "ann", "bank");
    run(&mut session, "create table t (a int primary key)");
    let cancel = session.cancel();
    let statements = [
        format!("backup to '{}'", path("full").display()),
        format!("backup incremental to '{}'", path("increment").display()),
        "archive log".to_owned(),
        "alter system set rialto.raise_stalls = '7ms'".to_owned(),
    ];
    for sql in &statements {
        let prepared = session.prepare(sql, &[]).unwrap();
        session.execute(&prepared, &[], &mut Collected::default()).unwrap();
        cancel.request();
        session.finish().unwrap_or_else(|error| panic!("{sql}: {} {error}", error.sqlstate.code()));
        assert_eq!(value(&mut session, "select count(*) from t"), "0", "behind {sql}");
    }
    // A statement behind it belongs to another transaction, with nothing before it. So another backup is taken, and no
    // later statement undoes it.
    let prepared = session.prepare(&statements[3], &[]).unwrap();
    session.execute(&prepared, &[], &mut Collected::default()).unwrap();
    let again = session.prepare("alter system set rialto.raise_stalls = '9ms'", &[]).unwrap();
    session.execute(&again, &[], &mut Collected::default()).unwrap_or_else(|error| panic!("{error}"));
    let insert = session.prepare("insert into t values (1)", &[]).unwrap();
    session.execute(&insert, &[], &mut Collected::default()).unwrap();
    let error = session.execute(&prepared, &[], &mut Collected::default()).unwrap_err();
    assert_eq!(error.sqlstate.code(), "25001", "it stands behind an insert");
    session.fail(&error).unwrap();
    assert_eq!(value(&mut session, "select count(*) from t"), "0");
    assert_eq!(value(&mut session, "show rialto.raise_stalls"), "9ms");
    session.execute(&prepared, &[], &mut Collected::default()).unwrap();
    session.execute(&insert, &[], &mut Collected::default()).unwrap();
    cancel.request();
    let error = session.finish().unwrap_err();
    assert_eq!(error.sqlstate.code(), "57014");
    session.fail(&error).unwrap();
    assert_eq!(value(&mut session, "select count(*) from t"), "0");
    assert_eq!(value(&mut session, "show rialto.raise_stalls"), "7ms");
    drop(session);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A long list of names is processed between two checks for a cancel request.
#[test]
fn a_request_ends_a_statement_of_many_names() {
    let mut session = bank();
    run(&mut session, "create table many (a int)");
    let names = |name: &str| vec![name; 50_000].join(", ");
    for sql in [
        format!("drop table if exists {}", names("nothing")),
        format!("drop index if exists {}", names("nothing")),
        format!("truncate {}", names("many")),
        format!("analyze {}", names("many")),
    ] {
        let prepared = session.prepare(&sql, &[]).unwrap();
        let cancel = session.cancel();
        // A request that comes before the statement runs, or after its last name, does not reach it.
        let cancelled = std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                (0..50).find_map(|_| {
                    let answer = session.execute(&prepared, &[], &mut Collected::default());
                    if answer.is_ok() {
                        session.abandon();
                    }
                    let error = answer.err()?;
                    session.fail(&error).unwrap();
                    Some(error.sqlstate.code())
                })
            });
            while !running.is_finished() {
                cancel.request();
                std::thread::yield_now();
            }
            running.join().unwrap()
        });
        session.take_notices();
        assert_eq!(cancelled, Some("57014"), "{}", &sql[..30]);
    }
}

#[test]
fn a_cancel_between_the_statements_of_a_query_string_ends_its_reading() {
    let mut session = bank();
    let cancel = session.cancel();
    for known in ["select a from t where a = 1", "select a from t", "begin"] {
        // With one plan, or more, nothing is parsed again.
        let read = session.read(known).unwrap();
        session.prepare_read(known, read).unwrap();
        session.set_in_string(true);
        session.read(known).map(drop).unwrap();
        cancel.request();
        let error = session.read(known).map(drop).expect_err(known);
        assert_eq!(error.sqlstate.code(), "57014", "{known}");
        session.set_in_string(false);
        assert!(session.read(known).is_ok(), "{known}");
    }
}

/// Until the end of an implicit block there is something to cancel, also between two of its statements.
#[test]
fn a_cancel_within_an_implicit_block_ends_it() {
    let mut session = bank();
    let cancel = session.cancel();
    let insert = session.prepare("insert into t (a) values (99)", &[]).unwrap();
    let select = session.prepare("select a from t where a = 1", &[]).unwrap();
    for at_end in [false, true] {
        session.execute(&insert, &[], &mut Collected::default()).unwrap();
        cancel.request();
        let error = match at_end {
            true => session.finish().unwrap_err(),
            false => session.execute(&select, &[], &mut Collected::default()).unwrap_err(),
        };
        assert_eq!(error.sqlstate.code(), "57014", "at the end: {at_end}");
        session.fail(&error).unwrap();
        assert_eq!(value(&mut session, "select count(*) from t where a = 99"), "0");
        // The request was for that block.
        session.execute(&select, &[], &mut Collected::default()).unwrap();
        session.finish().unwrap();
    }
    // In a block that the client has begun, the client waits for nothing between two statements.
    run(&mut session, "begin");
    cancel.request();
    run(&mut session, "select a from t where a = 1");
    cancel.request();
    run(&mut session, "commit");
}

#[test]
fn what_no_rollback_takes_back_stands_alone_in_its_query_string() {
    let mut session = bank();
    let alone = ["archive log", "alter system set rialto.raise_stalls = '1ms'", "backup to '/nonexistent/b'"];
    for sql in alone {
        for before in [None, Some("select a from t where a = 1")] {
            session.set_in_string(true);
            if let Some(sql) = before {
                let prepared = session.prepare(sql, &[]).unwrap();
                session.execute(&prepared, &[], &mut Collected::default()).unwrap();
            }
            assert_eq!(code(&mut session, sql), "25001", "{sql} behind {before:?}");
            session.set_in_string(false);
        }
        run(&mut session, "begin");
        assert_eq!(code(&mut session, sql), "25001", "{sql}");
        run(&mut session, "rollback");
    }
    assert_eq!(value(&mut session, "show rialto.raise_stalls"), "0");
    run(&mut session, "alter system set rialto.raise_stalls = '1ms'");
    assert_eq!(value(&mut session, "show rialto.raise_stalls"), "1ms");
}
