//! Prepared transactions: they keep what they have locked, through whatever ends the database, until they are decided.

mod decisions;
mod definitions;
mod lives;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::disk_tables::definition;
use rialto::io::{Caching, Disk, FaultyDisk, MemoryDisk, Open};
use rialto::row::{Column, ColumnType, Value, WhichIndex};
use rialto::{
    Checkpointing, Database, Durability, Engine, Error, Executors, Follower, LockGrain, LockPolicy, Logging,
    Options, Scan, Table, TableDef, Transaction, TxOptions,
};

type Row = (i32, i32, String);

fn for_branches(durability: Durability) -> TxOptions {
    TxOptions {
        may_prepare: true,
        lock_wait: LockPolicy::Refuse,
        durability: Some(durability),
        ..TxOptions::default()
    }
}

/// The options of transactions that look whether a lock is there.
fn probing() -> TxOptions {
    TxOptions { lock_wait: LockPolicy::Refuse, ..TxOptions::default() }
}

fn values(id: i32, row: &Row) -> [Value; 4] {
    [Value::Int4(id), Value::Int4(row.0), Value::Int4(row.1), Value::Text(row.2.clone())]
}

fn small() -> Options {
    Options { memory_bytes: 64 << 20, checkpoint: Checkpointing::None, ..Options::default() }
}

fn two_columns(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("n", ColumnType::Int4)];
    let table = TableDef::new("t", columns).with_primary_key(&["id"]);
    let table = db.transact(|tx| tx.create_table(&table)).unwrap();
    db.transact(|tx| (0..10).try_for_each(|id| tx.insert(&table, &[Value::Int4(id), Value::Int4(0)])))
        .unwrap();
    table
}

fn numbers(db: &Database) -> Vec<i32> {
    let table = db.table("t").unwrap();
    let mut found = Vec::new();
    db.transact(|tx| {
        found.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            found.push(row.get_i32(1)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    found
}

/// A transaction that adds 1 to two rows.
fn adds(db: &Database, level: Durability, ids: [i32; 2]) -> Result<Transaction<'static>, Error> {
    let table = db.table("t")?;
    let mut tx = db.begin_with(&for_branches(level))?;
    for id in ids {
        assert!(tx.modify(&table, id, |row| row.add(1, 1).map(drop))?);
    }
    Ok(tx)
}

/// How far a life has come before its disk went down.
#[derive(Debug, Default)]
struct Told {
    vote: bool,
    decision: bool,
}

fn vote_and_decide(db: &Database, commits: bool, told: &mut Told) -> Result<(), Error> {
    adds(db, Durability::Disk, [2, 7])?.prepare("it", b"note")?;
    told.vote = true;
    let ticket = if commits { db.commit_prepared("it")? } else { db.abort_prepared("it")? };
    ticket.wait()?;
    told.decision = true;
    Ok(())
}

/// A machine that loses power at any step of a vote and a decision.
#[test]
fn a_vote_and_a_decision_are_there_whichever_step_the_power_is_lost_in() {
    for commits in [true, false] {
        let (mut step, mut kept) = (1, 0);
        loop {
            let disk = FaultyDisk::new(step);
            let db = Database::open_on(disk.clone(), small()).unwrap();
            two_columns(&db);
            // Makes the system table of prepared transactions.
            drop(adds(&db, Durability::Disk, [0, 1]).unwrap());
            db.sync().unwrap();
            let about = format!("commits: {commits}, step {step}");
            disk.crash_at(disk.steps() + step);
            let mut told = Told::default();
            let outcome = vote_and_decide(&db, commits, &mut told);
            let went_down = disk.is_down();
            drop(db);
            if !went_down {
                assert_eq!(outcome, Ok(()), "{about}");
                disk.crash();
            }
            let db = Database::open_on(disk.restart(), small()).unwrap();
            let listed: Vec<String> = db.prepared().into_iter().map(|one| one.name).collect();
            let is_there = listed == ["it"];
            assert!(is_there || listed.is_empty(), "{about}: {listed:?}");
            if told.vote && !told.decision && !is_there && commits {
                // The decision was on disk before it could be told.
                assert_eq!(numbers(&db)[2], 1, "{about}: neither voted nor decided");
            }
            if told.decision {
                assert!(!is_there, "{about}: the decision is lost");
            }
            if is_there {
                kept += 1;
                db.commit_prepared("it").unwrap().wait().unwrap();
            }
            let all = numbers(&db);
            let added = match is_there || told.decision && commits {
                true => 1,
                // Both rows or none.
                false => all[2],
            };
            assert!(added == 0 || commits || is_there, "{about}: an abort has changed something");
            assert_eq!(all, [0, 0, added, 0, 0, 0, 0, added, 0, 0], "{about}");
            db.close().unwrap();
            if !went_down {
                break;
            }
            step += 1;
        }
        assert!(step > 4 && kept > 0, "{step} steps, {kept} times prepared again");
    }
}

/// What its commit needs it has: a log that is full for others takes it.
#[test]
fn a_prepared_transaction_commits_though_the_log_is_full() {
    for commits in [true, false] {
        let options = Options { log_bytes_max: 4 << 20, log_wait_max: Duration::from_millis(200), ..small() };
        let disk = FaultyDisk::new(1);
        let db = Database::open_on(disk.clone(), options.clone()).unwrap();
        let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
        let table = TableDef::new("texts", columns).with_primary_key(&["id"]);
        let texts = db.transact(|tx| tx.create_table(&table)).unwrap();
        two_columns(&db);
        let mut tx = adds(&db, Durability::Disk, [2, 7]).unwrap();
        let long = |id: i32| [Value::Int4(id), Value::Text("a".repeat(30_000))];
        (0..10).for_each(|id| tx.insert(&texts, &long(id)).unwrap());
        tx.prepare("it", b"").unwrap();
        let fill = |id: i32| db.transact(|tx| tx.insert(&texts, &long(id)));
        let full = (100..1_000).find_map(|id| fill(id).err());
        assert!(matches!(full, Some(Error::LogFull { .. })), "{full:?}");
        while db.transact(|tx| tx.modify(&db.table("t")?, 0, |row| row.add(1, 0).map(drop))).is_ok() {}
        let decided = if commits { db.commit_prepared("it") } else { db.abort_prepared("it") };
        decided.unwrap().wait().unwrap();
        drop(db);
        disk.crash();
        let options = Options { log_bytes_max: 64 << 20, ..options };
        let db = Database::open_on(disk.restart(), options).unwrap();
        assert_eq!(db.prepared(), []);
        assert_eq!(numbers(&db)[2], i32::from(commits));
        let texts = db.table("texts").unwrap();
        let is_there = db.transact(|tx| tx.get(&texts, 0)).unwrap().is_some();
        assert_eq!(is_there, commits);
        db.close().unwrap();
    }
}

/// After a time-out and a cancel, and with nothing for the decision to wait for. (Where a decision waits, time-outs would be
/// looked at; no test makes one wait yet.)
#[test]
fn only_a_decision_ends_a_prepared_transaction() {
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), small()).unwrap();
    let table = two_columns(&db);
    let limits = TxOptions {
        timeout: Some(Duration::from_millis(200)),
        lock_timeout: Some(Duration::from_millis(1)),
        ..for_branches(Durability::Memory)
    };
    let mut tx = db.begin_with(&limits).unwrap();
    let canceller = tx.canceller();
    assert!(tx.modify(&table, 3, |row| row.add(1, 1).map(drop)).unwrap());
    // Rolled back before the vote, and not there after it.
    let savepoint = tx.savepoint();
    tx.insert(&table, &[Value::Int4(77), Value::Int4(1)]).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    tx.prepare("it", b"").unwrap();
    canceller.cancel();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(db.prepared().len(), 1);
    db.commit_prepared("it").unwrap().wait().unwrap();
    assert_eq!(numbers(&db), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    // The same for an abort.
    let mut tx = db.begin_with(&limits).unwrap();
    let canceller = tx.canceller();
    assert!(tx.modify(&table, 4, |row| row.add(1, 1).map(drop)).unwrap());
    tx.prepare("it", b"").unwrap();
    canceller.cancel();
    std::thread::sleep(Duration::from_millis(250));
    db.abort_prepared("it").unwrap().wait().unwrap();
    assert_eq!(numbers(&db), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    db.close().unwrap();
}

#[test]
fn what_cannot_be_prepared_is_refused_by_name() {
    let db = Database::open_on(FaultyDisk::new(1), small()).unwrap();
    let table = two_columns(&db);
    let one = [Value::Int4(90), Value::Int4(1)];
    let fails = |tx: Transaction<'static>, name: &str, expected: &str| {
        let told = tx.prepare(name, b"").unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
        assert_eq!(numbers(&db).len(), 10, "{told}: it is aborted");
    };
    let mut plain = db.begin().unwrap();
    plain.insert(&table, &one).unwrap();
    fails(plain, "it", "TxOptions::may_prepare");
    let branch = || db.begin_with(&for_branches(Durability::Disk)).unwrap();
    for bytes in [0, 201] {
        let mut tx = branch();
        tx.insert(&table, &one).unwrap();
        fails(tx, &"x".repeat(bytes), &format!("name of {bytes} bytes, expected 1 to 200"));
    }
    adds(&db, Durability::Disk, [1, 2]).unwrap().prepare(&"x".repeat(200), b"").unwrap();
    let told = adds(&db, Durability::Disk, [3, 4]).unwrap().prepare(&"x".repeat(200), b"").unwrap_err();
    assert!(matches!(told, Error::PreparedExists { .. }), "{told}");
    for decide in [Database::commit_prepared, Database::abort_prepared] {
        assert!(matches!(decide(&db, "other"), Err(Error::NoSuchPrepared { .. })));
        let nested = db.transact(|_| decide(&db, &"x".repeat(200)).map(drop));
        assert!(matches!(nested, Err(Error::Nested)), "{nested:?}");
    }
    // The record is the system's.
    let records = db.table("rialto_prepared").unwrap();
    let key = [Value::Text("y".to_owned()), Value::Int4(0), Value::Bytes(Vec::new())];
    let written = db.transact(|tx| tx.insert(&records, &key));
    assert!(matches!(written, Err(Error::Unsupported { .. })), "{written:?}");
    let dropped = db.transact(|tx| tx.drop_table("rialto_prepared"));
    assert!(matches!(dropped, Err(Error::Unsupported { .. })), "{dropped:?}");
    db.abort_prepared(&"x".repeat(200)).unwrap().wait().unwrap();
    assert_eq!(numbers(&db), [0; 10]);
    for (options, expected) in [
        (Options { logging: Logging::None, ..small() }, "Options::logging none"),
        (
            Options { engine: Engine::central(), lock_grain: LockGrain::Page, ..small() },
            "Options::lock_grain page",
        ),
    ] {
        let db = Database::open_on(FaultyDisk::new(2), options).unwrap();
        let told = db.begin_with(&for_branches(Durability::Disk)).err().expect("it is refused").to_string();
        assert!(told.contains(expected), "{told}");
        db.close().unwrap();
    }
    db.close().unwrap();
}

/// A follower has the prepared transactions of its primary, and takes their locks when it leads.
#[test]
fn a_follower_that_leads_has_what_was_prepared() {
    let (disk, copy) = (MemoryDisk::new(), MemoryDisk::new());
    let db = Database::open_on(disk.clone(), small()).unwrap();
    two_columns(&db);
    adds(&db, Durability::Disk, [1, 2]).unwrap().prepare("before", b"1").unwrap();
    db.close().unwrap();
    for name in disk.list().unwrap() {
        let Ok(file) = disk.open(&name, Open::ReadOnly, Caching::Buffered) else { continue };
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        copy.open(&name, Open::Create, Caching::Buffered).unwrap().write_at(&bytes, 0).unwrap();
    }
    let db = Database::open_on(disk, small()).unwrap();
    let follower = Follower::open_on(copy, small()).unwrap();
    assert_eq!(follower.database().prepared(), [], "they are the primary's");
    let told = follower.database().commit_prepared("before").err();
    assert!(matches!(told, Some(Error::Following)), "{told:?}");
    adds(&db, Durability::Disk, [3, 4]).unwrap().prepare("after", b"2").unwrap();
    adds(&db, Durability::Disk, [5, 6]).unwrap().prepare("decided", b"3").unwrap();
    db.commit_prepared("decided").unwrap().wait().unwrap();
    let mut cursor = db.log_cursor(Some(follower.point()), u64::MAX).unwrap();
    while let Some(blocks) = cursor.next_blocks(1 << 20, Duration::ZERO).unwrap() {
        follower.append(&blocks).unwrap();
    }
    // A reader is in the way of the locks that leading takes.
    let table = follower.database().table("t").unwrap();
    assert!(follower.wait_redone(follower.received(), Duration::from_secs(60)).unwrap());
    let mut reader = follower.database().begin().unwrap();
    reader.get(&table, 3).unwrap().unwrap();
    let refused = follower.lead(Duration::from_millis(50)).err();
    assert!(matches!(refused, Some(Error::LockTimeout { .. })), "{refused:?}");
    reader.abort().unwrap();
    let led = follower.lead(Duration::from_secs(60)).unwrap();
    let notes: Vec<(String, Vec<u8>)> = led.prepared().into_iter().map(|one| (one.name, one.note)).collect();
    assert_eq!(notes, [("after".to_owned(), b"2".to_vec()), ("before".to_owned(), b"1".to_vec())]);
    for id in [1, 2, 3, 4] {
        let read = led.begin_with(&probing()).unwrap().get(&table, id);
        assert!(matches!(read, Err(Error::WouldWait { .. })), "{id}: {read:?}");
    }
    led.commit_prepared("before").unwrap().wait().unwrap();
    led.abort_prepared("after").unwrap().wait().unwrap();
    assert_eq!(numbers(&led), [0, 1, 1, 0, 0, 1, 1, 0, 0, 0]);
    follower.close().unwrap();
    db.close().unwrap();
}

fn on_executors(executors: usize) -> Options {
    let engine = Engine::DataOriented(Executors::of(executors, 0));
    Options { engine, lock_timeout: Duration::from_millis(100), ..small() }
}

/// Handles of a table that is gone, in a transaction that goes on after the error.
#[test]
fn a_table_that_was_not_there_any_more_is_not_locked_again() {
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), small()).unwrap();
    let table = two_columns(&db);
    let columns = vec![Column::new("id", ColumnType::Int4)];
    let gone = db.transact(|tx| tx.create_table(&TableDef::new("gone", columns.clone()))).unwrap();
    db.transact(|tx| tx.drop_table("gone")).unwrap();
    let mut tx = db.begin_with(&for_branches(Durability::Disk)).unwrap();
    let counted = tx.count(&gone);
    assert!(matches!(counted, Err(Error::NoSuchTable { .. })), "{counted:?}");
    // That there is no table of a name is locked, too.
    assert!(tx.table("gone").is_err());
    tx.insert(&table, &[Value::Int4(50), Value::Int4(5)]).unwrap();
    tx.prepare("it", b"").unwrap();
    for _ in 0..2 {
        db.clone().close().unwrap();
    }
    disk.kill();
    let db = Database::open_on(disk.restart(), small()).unwrap();
    let made = db.begin_with(&probing()).unwrap().create_table(&TableDef::new("gone", columns));
    assert!(matches!(made, Err(Error::WouldWait { .. })), "{made:?}");
    db.commit_prepared("it").unwrap().wait().unwrap();
    assert_eq!(numbers(&db).len(), 11);
    db.close().unwrap();
}

/// Reads of an index's entries, under locks at executors, beside another prepared transaction in the same rows.
#[test]
fn what_was_prepared_on_executors_is_prepared_again_on_any_engine() {
    for engine in [on_executors(1).engine, Engine::thin(), Engine::central()] {
        let disk = FaultyDisk::new(1);
        let db = Database::open_on(disk.clone(), on_executors(1)).unwrap();
        let table = db.transact(|tx| tx.create_table(&definition("in_memory"))).unwrap();
        let row = |id: i32| values(id, &(1, id, "t".to_owned()));
        db.transact(|tx| (0..4).try_for_each(|id| tx.insert(&table, &row(id)))).unwrap();
        let mut reader = db.begin_with(&for_branches(Durability::Disk)).unwrap();
        let scan = Scan::prefix(WhichIndex::Secondary(0), vec![Value::Int4(1)]);
        let mut entries = 0;
        reader
            .entries(&table, &scan, |_, _| {
                entries += 1;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert_eq!(entries, 4);
        reader.prepare("reader", b"").unwrap();
        let mut writer = db.begin_with(&for_branches(Durability::Disk)).unwrap();
        let written = writer.update(&table, 2, &[(3, Value::Text("u".to_owned()))]);
        if written.is_ok() {
            writer.prepare("writer", b"").unwrap();
        }
        drop(db);
        disk.kill();
        let db = Database::open_on(disk.restart(), Options { engine, ..on_executors(1) }).unwrap();
        let mut changes = db.begin_with(&probing()).unwrap();
        let changed = changes.update(&db.table("in_memory").unwrap(), 1, &[(1, Value::Int4(3))]);
        assert!(matches!(changed, Err(Error::WouldWait { .. })), "{changed:?}");
        drop(changes);
        for one in db.prepared() {
            db.commit_prepared(&one.name).unwrap().wait().unwrap();
        }
        db.close().unwrap();
    }
}

/// The next opening may have another level of its own.
#[test]
fn a_decision_is_as_durable_as_its_transaction_asked() {
    let disk = FaultyDisk::new(1);
    let options =
        Options { durability: Durability::Memory, memory_flush_interval: Duration::from_secs(60), ..small() };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    two_columns(&db);
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("it", b"").unwrap();
    drop(db);
    disk.kill();
    let disk = disk.restart();
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    db.commit_prepared("it").unwrap().wait().unwrap();
    disk.crash();
    drop(db);
    let db = Database::open_on(disk.restart(), options).unwrap();
    assert_eq!(db.prepared(), []);
    assert_eq!(numbers(&db)[2], 1);
    db.close().unwrap();
}

/// A handle that is still there when the database closes reads nothing that an undecided transaction has changed.
#[test]
fn a_close_leaves_what_is_prepared_locked() {
    for options in [small(), Options { engine: Engine::central(), ..small() }, on_executors(1)] {
        let db = Database::open_on(FaultyDisk::new(1), options).unwrap();
        let table = two_columns(&db);
        adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("it", b"").unwrap();
        let mut reader = db.begin_with(&probing()).unwrap();
        db.clone().close().unwrap();
        let read = reader.get(&table, 2);
        assert!(read.is_err(), "{read:?}");
        for told in [db.commit_prepared("it").err(), db.abort_prepared("other").err()] {
            assert!(matches!(told, Some(Error::Closed)), "{told:?}");
        }
    }
}
