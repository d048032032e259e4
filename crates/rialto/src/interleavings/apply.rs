//! Commits that are held between their place and the last of their writes.

use std::process::Command;

use super::*;
use crate::store::paged::PageAccess;
use crate::store::tree::Admit;
use crate::{Error, LockPolicy};

/// I2: a commit has its place, and the log has it on disk, but it is not applied yet. A transaction that wants its row
/// waits, and comes after it in the log; other transactions go on. A transaction that is slow before its place holds up
/// no other one.
#[test]
fn a_commit_held_after_its_place_keeps_its_locks_and_the_order() {
    let faulty = FaultyDisk::new(seed());
    let (db, table) = filled(faulty.clone());
    let core = db.core();
    let mut slow = db.begin().unwrap();
    set_n(&mut slow, &table, 9, 1).unwrap();
    let record = record_of(&table, 0);
    let place = core.commits.log.place().next();
    let (first, second) = std::thread::scope(|scope| {
        let latched = core.storage.memory.segments.latch(record.segment());
        let first = scope.spawn(|| commit(&db, |tx| set_n(tx, &table, 0, 1)));
        until("it has its place", || core.commits.log.place() == place);
        let second = scope.spawn(|| {
            commit(&db, |tx| {
                tx.modify(&table, 0, |fields| {
                    let n = fields.get_i64(1)?;
                    fields.set_i64(1, n * 10 + 2)
                })
                .map(drop)
            })
        });
        // Rows of another segment are free, and their commit is durable after the first one's.
        db.transact(|tx| set_n(tx, &table, ROWS - 1, 3)).unwrap();
        assert_eq!(core.commits.log.durable_position(), place.next(), "I2: the log waits for no apply");
        until("the second waits for the lock", || !db.lock_waits().is_empty());
        assert!(!second.is_finished());
        drop(latched);
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!((first, second), (place, place.next().next()));
    assert_eq!(slow.submit().unwrap().lsn(), second.next(), "dense: one that was not pushed has no place");
    db.sync().unwrap();
    let (_, db) = crashed(&faulty, db);
    let rows = rows(&db);
    assert_eq!((n_of(&rows, 0), n_of(&rows, ROWS - 1), n_of(&rows, 9)), (12, 3, 1));
}

/// I2: rows become visible together with the definitions of their transaction. Its commit is held in the middle of
/// releasing its rows. Another transaction has one of these rows by then, and finds the table that was made with it.
#[test]
fn a_holder_of_a_transactions_row_finds_the_table_that_it_made() {
    let (db, table) = filled(FaultyDisk::new(seed()));
    let locks = &db.core().locks;
    let record = |id| record_of(&table, id).0;
    let apart = (1..ROWS).find(|&id| locks.are_apart(record(0), record(id))).unwrap();
    let mut maker = db.begin().unwrap();
    for id in [0, apart] {
        set_n(&mut maker, &table, id, 1).unwrap();
    }
    maker.create_table(&TableDef::new("made", vec![Column::new("id", ColumnType::Int4)])).unwrap();
    let (db, table) = (&db, &table);
    std::thread::scope(|scope| {
        let look = |id: i32| {
            db.transact_with(&level_1(), |tx| {
                let n = tx.get(table, id)?.unwrap().get("n")?;
                Ok((n, tx.table("made").map(drop)))
            })
        };
        // Both wait, so each row's lock is released by way of its lock head.
        let first = scope.spawn(move || look(0));
        let other = scope.spawn(move || look(apart));
        until("both wait", || db.lock_waits().len() == 2);
        let latched = locks.latch_of(record(apart));
        let committer = scope.spawn(|| maker.commit());
        assert_eq!(first.join().unwrap(), Ok((Value::Int8(1), Ok(()))));
        assert!(!committer.is_finished());
        drop(latched);
        assert_eq!(other.join().unwrap(), Ok((Value::Int8(1), Ok(()))));
        committer.join().unwrap().unwrap();
    });
}

/// A scan meets an insert that has its place and is not applied: it waits, and then sees the row.
#[test]
fn a_scan_waits_for_an_insert_that_is_not_applied_yet() {
    let faulty = FaultyDisk::new(seed());
    let (db, table) = filled(faulty.clone());
    let core = db.core();
    let record = record_of(&table, 0);
    let place = core.commits.log.place().next();
    let by_key = Scan { lower: KeyBound::Included(vec![Value::Int4(100)]), ..Scan::all() };
    let scans = [by_key, with_n(77)];
    let ids = |options: &TxOptions, scan: &Scan| {
        let mut ids = Vec::new();
        db.transact_with(options, |tx| {
            ids.clear();
            tx.scan(&table, scan, |_, row| {
                ids.push(row.get_i32(0)?);
                Ok(ControlFlow::Continue(()))
            })
        })
        .map(|()| ids)
    };
    let refuse = TxOptions { lock_wait: LockPolicy::Refuse, ..level_1() };
    std::thread::scope(|scope| {
        let latched = core.storage.memory.segments.latch(record.segment());
        // Its first write is held by the latch, so the insert behind it is not applied either.
        let writer = scope.spawn(|| {
            commit(&db, |tx| {
                set_n(tx, &table, 0, 1)?;
                tx.insert(&table, &[Value::Int4(100), Value::Int8(77), text(10)])
            })
        });
        until("it has its place", || core.commits.log.place() == place);
        for scan in &scans {
            let found = ids(&refuse, scan);
            assert!(matches!(found, Err(Error::WouldWait { .. })), "{scan:?}: {found:?}");
        }
        let waiting: Vec<_> = scans.iter().map(|scan| scope.spawn(|| ids(&level_1(), scan))).collect();
        until("both wait", || db.lock_waits().len() == 2);
        drop(latched);
        for scan in waiting {
            assert_eq!(scan.join().unwrap().unwrap(), [100]);
        }
        writer.join().unwrap();
    });
}

const DIRECTORY: &str = "RIALTO_TRAP_DIRECTORY";

/// The child process of the next test. As a test of its own it does nothing.
#[test]
fn child_that_panics_while_it_applies() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let db = Database::open_with(directory, options()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int4)];
    let table =
        db.transact(|tx| tx.create_table(&TableDef::new("t", columns.clone()).with_primary_key(&["id"])));
    let table = table.unwrap();
    db.transact(|tx| tx.insert(&table, &[Value::Int4(1)])).unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &[Value::Int4(2)]).unwrap();
    // A bug of the kernel, simulated here: the write set names bytes that the packet does not have.
    tx.context().packet.as_mut().unwrap().bytes_mut().truncate(1);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tx.submit()));
    // This is not reached. Nothing could end well from here, so there is no panic.
    std::process::exit(7);
}

/// A panic between the place and the last write leaves tables that no prefix of the log describes: no thread may go on
/// with them, not even one that catches the panic. Reopening makes them whole.
#[test]
fn a_panic_while_a_commit_is_applied_ends_the_process() {
    let directory = std::env::temp_dir().join(format!("rialto-interleavings-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "interleavings::apply::child_that_panics_while_it_applies", "--nocapture"])
        .env(DIRECTORY, &directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(6), "SIGABRT: {said}");
    let line =
        "rialto: a panic while a commit was applied; ending the process, reopen the database to recover";
    assert!(said.contains(line), "{said}");
    let db = Database::open_with(&directory, options()).unwrap();
    let table = db.table("t").unwrap();
    let found = db.read(|tx| Ok((tx.get(&table, 1)?.is_some(), tx.get(&table, 2)?.is_some()))).unwrap();
    assert_eq!(found, (true, false), "what was durable is there; the other commit had no waiter");
    db.close().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A state that no schedule produces: an entry leads to a free slot. A reader that met one would search for ever;
/// instead it reports it.
#[test]
#[should_panic(expected = "leads to a free slot")]
fn an_entry_that_leads_to_a_free_slot_is_said_to_be_a_bug() {
    let (db, table) = filled(FaultyDisk::new(seed()));
    let record = record_of(&table, 5);
    db.transact(|tx| tx.delete(&table, 5).map(drop)).unwrap();
    let version = table.version();
    assert!(version.store.memory().unwrap().segments().is_free(record), "the test's own premise");
    version.store.memory().unwrap().primary.insert(b"left", record.0, || Admit::Go).unwrap();
    version.read_by_entry(&PageAccess::plain(), WhichIndex::Primary, b"left", &mut Vec::new()).unwrap();
}
