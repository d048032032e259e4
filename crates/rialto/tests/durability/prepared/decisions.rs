//! Decisions: rows that are written with them, and the room that they need.

mod room;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use rialto::Background;

/// A table of decisions, by the names of their transactions.
fn decisions(db: &Database) -> Table {
    let columns = vec![Column::new("name", ColumnType::Text), Column::new("commits", ColumnType::Bool)];
    db.transact(|tx| {
        tx.create_table(&TableDef::new("decisions", columns.clone()).with_primary_key(&["name"]))
    })
    .unwrap()
}

fn decided(db: &Database, name: &str) -> Option<bool> {
    let table = db.table("decisions").unwrap();
    let row = db.transact(|tx| tx.get(&table, name)).unwrap()?;
    Some(row.get(1usize).unwrap() == Value::Bool(true))
}

/// Decides a transaction, and notes that in the table of decisions.
fn decide(db: &Database, name: &str, commits: bool) -> Result<(), Error> {
    let note = |tx: &mut Transaction| {
        let table = tx.table("decisions")?;
        tx.insert(&table, &[Value::Text(name.to_owned()), Value::Bool(commits)])
    };
    let ((), ticket) = match commits {
        true => db.commit_prepared_with(name, note)?,
        false => db.abort_prepared_with(name, note)?,
    };
    ticket.wait()
}

/// The notes of votes, and rows of decisions, over a loss of power or a kill at any step.
#[test]
fn the_rows_of_a_decision_are_there_exactly_with_it() {
    for (commits, is_killed) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut step, mut undecided, mut over) = (1, 0, 0);
        loop {
            let disk = FaultyDisk::new(step);
            let db = Database::open_on(disk.clone(), small()).unwrap();
            two_columns(&db);
            decisions(&db);
            drop(adds(&db, Durability::Disk, [0, 1]).unwrap());
            db.sync().unwrap();
            let about = format!("commits: {commits}, killed: {is_killed}, step {step}");
            match is_killed {
                true => disk.kill_at(disk.steps() + step),
                false => disk.crash_at(disk.steps() + step),
            }
            let voted = adds(&db, Durability::Disk, [2, 7]).and_then(|tx| tx.prepare("it", b"a note"));
            let told = voted.clone().and_then(|()| decide(&db, "it", commits));
            let went_down = disk.is_down();
            drop(db);
            if !went_down {
                assert_eq!(told, Ok(()), "{about}");
                if is_killed { disk.kill() } else { disk.crash() }
            }
            let db = Database::open_on(disk.restart(), small()).unwrap();
            let prepared = db.prepared();
            let is_there = !prepared.is_empty();
            if is_there {
                assert_eq!((&*prepared[0].name, &*prepared[0].note), ("it", &b"a note"[..]), "{about}");
                undecided += 1;
            }
            let found = decided(&db, "it");
            assert!(!is_there || found.is_none(), "{about}: decided, and prepared still");
            assert!(told.is_err() || found == Some(commits), "{about}: the row of the decision is lost");
            if voted.is_ok() && !is_there {
                assert_eq!(found, Some(commits), "{about}: its transaction has ended");
            }
            over += u32::from(found.is_some());
            let of_commit = found == Some(true);
            if is_there {
                decide(&db, "it", true).unwrap();
            }
            let added = i32::from(of_commit || is_there);
            assert_eq!(numbers(&db), [0, 0, added, 0, 0, 0, 0, added, 0, 0], "{about}");
            db.close().unwrap();
            if !went_down {
                break;
            }
            step += 1;
        }
        assert!(step > 4 && undecided > 0 && over > 0, "{step} steps, {undecided} undecided, {over} over");
    }
}

/// A body that fails leaves the transaction undecided, with nothing of what it has written.
#[test]
fn a_body_that_fails_decides_nothing() {
    let disk = FaultyDisk::new(1);
    let options = Options { lock_timeout: Duration::from_millis(30), ..small() };
    let db = Database::open_on(disk.clone(), options.clone()).unwrap();
    let (t, table) = (two_columns(&db), decisions(&db));
    let row = |name: &str| [Value::Text(name.to_owned()), Value::Bool(true)];
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("it", b"").unwrap();
    let write = |tx: &mut Transaction| {
        tx.insert(&table, &row("a"))?;
        // Its own writes, and more of its own rows.
        assert_eq!(tx.get(&t, 2)?.unwrap().get(1usize)?, Value::Int4(1));
        tx.modify(&t, 3, |row| row.add(1, 1).map(drop)).map(drop)
    };
    // An error.
    let failed = db.commit_prepared_with("it", |tx| {
        write(tx)?;
        tx.insert(&table, &row("a"))
    });
    assert!(matches!(failed, Err(Error::DuplicateKey { .. })), "{:?}", failed.err());
    // A lock that another transaction has.
    let mut other = db.begin().unwrap();
    assert!(other.modify(&t, 5, |row| row.add(1, 1).map(drop)).unwrap());
    let waited = db.commit_prepared_with("it", |tx| {
        write(tx)?;
        tx.modify(&t, 5, |row| row.add(1, 1).map(drop))
    });
    assert!(matches!(waited, Err(Error::LockTimeout { .. })), "{:?}", waited.err());
    other.abort().unwrap();
    // A definition, of which the body makes nothing; and a savepoint.
    let refused = db.commit_prepared_with("it", |tx| {
        let savepoint = tx.savepoint();
        let columns = vec![Column::new("id", ColumnType::Int4)];
        let made = tx.create_table(&TableDef::new("more", columns)).map(drop);
        assert!(matches!(made, Err(Error::Unsupported { .. })), "{made:?}");
        write(tx)?;
        tx.rollback_to(&savepoint)?;
        Err::<(), _>(Error::Cancelled)
    });
    assert!(matches!(refused, Err(Error::Cancelled)));
    // A panic.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.commit_prepared_with("it", |tx| -> Result<(), Error> {
            write(tx)?;
            panic!("of the body")
        })
    }));
    assert!(panicked.is_err());
    // Inside the body the transaction is being decided, and no other body runs.
    let ((), ticket) = db
        .commit_prepared_with("it", |tx| {
            assert!(matches!(db.commit_prepared("it"), Err(Error::PreparedBusy { .. })));
            assert_eq!(db.prepared().len(), 1);
            tx.insert(&table, &row("b"))
        })
        .unwrap();
    ticket.wait().unwrap();
    assert_eq!((decided(&db, "a"), decided(&db, "b"), db.prepared().len()), (None, Some(true), 0));
    assert_eq!(numbers(&db), [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]);
    // An abort: after a body that fails it can be aborted again, and not be committed.
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("it", b"").unwrap();
    let failed = db.abort_prepared_with("it", |tx| {
        // What it had written is taken back.
        assert_eq!(tx.get(&t, 2)?.unwrap().get(1usize)?, Value::Int4(1));
        tx.insert(&table, &row("b"))
    });
    assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
    assert!(matches!(db.commit_prepared("it"), Err(Error::Unsupported { .. })));
    db.abort_prepared_with("it", |tx| tx.insert(&table, &row("c"))).unwrap().1.wait().unwrap();
    drop(db);
    disk.crash();
    let db = Database::open_on(disk.restart(), options).unwrap();
    assert_eq!((decided(&db, "a"), decided(&db, "b"), decided(&db, "c")), (None, Some(true), Some(true)));
    assert_eq!(numbers(&db), [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]);
    db.close().unwrap();
}

/// Two bodies that wait for each other: one is a deadlock's victim, and undecided still.
#[test]
fn a_body_that_is_a_deadlocks_victim_decides_nothing() {
    let db = Database::open_on(MemoryDisk::new(), small()).unwrap();
    let t = two_columns(&db);
    let rows = [(1, 2), (2, 1)];
    for (name, nth) in [("a", 5), ("b", 6)] {
        adds(&db, Durability::Memory, [nth, nth + 2]).unwrap().prepare(name, b"").unwrap();
    }
    let both = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (name, (first, second)) in ["a", "b"].into_iter().zip(rows) {
            let (db, t, both) = (&db, &t, &both);
            scope.spawn(move || {
                let decided = db.commit_prepared_with(name, |tx| {
                    tx.modify(t, first, |row| row.add(1, 1).map(drop))?;
                    both.wait();
                    tx.modify(t, second, |row| row.add(1, 1).map(drop)).map(drop)
                });
                match decided {
                    Ok(((), ticket)) => ticket.wait().unwrap(),
                    Err(Error::Deadlock { .. }) => {
                        // What it has locked stays locked until it is decided.
                        assert!(db.prepared().iter().any(|one| one.name == name));
                        db.abort_prepared(name).unwrap().wait().unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            });
        }
    });
    assert_eq!(db.prepared(), []);
    let numbers = numbers(&db);
    assert_eq!(numbers[1..3], [1, 1]);
    assert_eq!(numbers[5..9].iter().sum::<i32>(), 2);
    db.close().unwrap();
}

fn full_log() -> Options {
    Options { log_bytes_max: 4 << 20, log_wait_max: Duration::from_millis(200), ..small() }
}

fn texts(db: &Database) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    db.transact(|tx| tx.create_table(&TableDef::new("texts", columns.clone()).with_primary_key(&["id"])))
        .unwrap()
}

fn long(id: i32) -> [Value; 2] {
    [Value::Int4(id), Value::Text("a".repeat(30_000))]
}

/// Commits until the log takes no more, not even a small commit.
fn fill(db: &Database, texts: &Table, from: i32) {
    let full = (from..from + 1_000).find_map(|id| db.transact(|tx| tx.insert(texts, &long(id))).err());
    assert!(matches!(full, Some(Error::LogFull { .. })), "{full:?}");
    while db.transact(|tx| tx.modify(&db.table("t")?, 0, |row| row.add(1, 0).map(drop))).is_ok() {}
}

/// The branch that decides by its own commit, with a row of its decision; and rows of the decision of a prepared one.
#[test]
fn what_was_reserved_commits_though_the_log_is_full() {
    let disk = FaultyDisk::new(1);
    let db = Database::open_on(disk.clone(), full_log()).unwrap();
    let (texts, _) = (texts(&db), decisions(&db));
    two_columns(&db);
    adds(&db, Durability::Disk, [1, 8]).unwrap().prepare("it", b"").unwrap();
    let mut tx = db.begin().unwrap();
    (0..10).for_each(|id| tx.insert(&texts, &long(id)).unwrap());
    tx.reserve().unwrap();
    let mut late = db.begin().unwrap();
    late.modify(&db.table("t").unwrap(), 4, |row| row.add(1, 1).map(drop)).unwrap();
    fill(&db, &texts, 100);
    let refused = late.reserve();
    assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
    late.abort().unwrap();
    let table = tx.table("decisions").unwrap();
    tx.insert(&table, &[Value::Text("own".to_owned()), Value::Bool(true)]).unwrap();
    tx.submit().unwrap().wait().unwrap();
    decide(&db, "it", true).unwrap();
    drop(db);
    disk.crash();
    let options = Options { log_bytes_max: 64 << 20, ..full_log() };
    let db = Database::open_on(disk.restart(), options).unwrap();
    assert_eq!((decided(&db, "own"), decided(&db, "it")), (Some(true), Some(true)));
    assert_eq!(numbers(&db), [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]);
    let texts = db.table("texts").unwrap();
    assert!(db.transact(|tx| tx.get(&texts, 9)).unwrap().is_some());
    db.close().unwrap();
}

#[test]
fn what_cannot_be_reserved_is_refused_by_name() {
    let db = Database::open_on(MemoryDisk::new(), small()).unwrap();
    two_columns(&db);
    let mut defines = db.begin().unwrap();
    defines.create_index("t", "t_n", &["n"], false).unwrap();
    let refused = defines.reserve();
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    defines.commit().unwrap();
    let read_only = TxOptions { read_only: true, ..TxOptions::default() };
    assert_eq!(db.begin_with(&read_only).unwrap().reserve(), Err(Error::ReadOnly));
    db.close().unwrap();
}

/// An opening that finds no room in the log for the decision of a prepared transaction keeps it, and takes no further votes
/// until there is room. Each opening takes a page of the log, and this many take the room that the vote had.
#[test]
fn an_opening_without_room_for_a_decision_keeps_it() {
    [false, true].into_iter().for_each(without_room);
}

fn without_room(is_driven: bool) {
    let disk = MemoryDisk::new();
    let db = Database::open_on(disk.clone(), full_log()).unwrap();
    let texts = texts(&db);
    two_columns(&db);
    decisions(&db);
    let mut tx = adds(&db, Durability::Disk, [1, 8]).unwrap();
    (0..10).for_each(|id| tx.insert(&texts, &long(id)).unwrap());
    tx.prepare("it", b"").unwrap();
    fill(&db, &texts, 100);
    db.close().unwrap();
    let mut openings = 0;
    let db = loop {
        let db = Database::open_on(disk.clone(), full_log()).unwrap();
        assert_eq!(db.prepared().len(), 1);
        match adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"") {
            Err(Error::LogFull { reason }) if reason.contains("earlier opening") => break db,
            other => _ = other.map(|()| db.abort_prepared("other").unwrap().wait().unwrap()),
        }
        db.close().unwrap();
        openings += 1;
        assert!(openings < 100, "there is room still");
    };
    // Nor is there room for less than what it would keep.
    db.close().unwrap();
    (0..3).for_each(|_| Database::open_on(disk.clone(), full_log()).unwrap().close().unwrap());
    let mut db = Database::open_on(disk.clone(), full_log()).unwrap();
    let late = db.commit_prepared("it").map(drop);
    assert!(matches!(late, Err(Error::LogFull { .. })), "{late:?}");
    assert_eq!(db.prepared().len(), 1);
    match is_driven {
        false => (0..2).for_each(|_| _ = db.checkpoint().unwrap()),
        // The opening makes the checkpoints.
        true => {
            db.close().unwrap();
            let options =
                Options { background: Background::Driven, checkpoint: Checkpointing::Fuzzy, ..full_log() };
            db = Database::open_on(disk, options).unwrap();
        }
    }
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"").unwrap();
    if !is_driven {
        fill(&db, &db.table("texts").unwrap(), 2_000);
    }
    // It has had room from the checkpoint on.
    decide(&db, "it", true).unwrap();
    decide(&db, "other", true).unwrap();
    assert_eq!(numbers(&db), [0, 1, 1, 0, 0, 0, 0, 1, 1, 0]);
    db.close().unwrap();
}

/// A reader without locks waits at what a branch has written, until the branch is decided.
#[test]
fn readers_without_locks_wait_for_what_a_branch_has_written() {
    for engine in [Engine::thin(), Engine::central(), on_executors(4).engine] {
        let options = Options { engine, lock_timeout: Duration::from_millis(50), ..small() };
        let db = Database::open_on(MemoryDisk::new(), options).unwrap();
        let table = two_columns(&db);
        let mut branch = db.begin_with(&for_branches(Durability::Memory)).unwrap();
        assert!(branch.modify(&table, 1, |row| row.add(1, 1).map(drop)).unwrap());
        branch.insert(&table, &[Value::Int4(20), Value::Int4(1)]).unwrap();
        assert!(branch.delete(&table, 3).unwrap());
        let read = |id: i32| db.read(|tx| tx.get(&table, id).map(|row| row.is_some()));
        let scan = || {
            db.read(|tx| {
                let mut rows = 0;
                tx.scan(&table, &Scan::all(), |_, _| {
                    rows += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(rows)
            })
        };
        let look = |when: &str| {
            for id in [1, 3, 20] {
                let waits = read(id);
                assert!(
                    matches!(waits, Err(Error::LockTimeout { .. })),
                    "{when}, {engine:?}, {id}: {waits:?}"
                );
            }
            let waits = scan();
            assert!(matches!(waits, Err(Error::LockTimeout { .. })), "{when}, {engine:?}: {waits:?}");
            assert_eq!(read(5), Ok(true), "{when}, {engine:?}");
        };
        look("open");
        branch.prepare("it", b"").unwrap();
        look("prepared");
        db.commit_prepared("it").unwrap().wait().unwrap();
        assert_eq!((read(1), read(3), read(20), scan()), (Ok(true), Ok(false), Ok(true), Ok(10)));
        db.close().unwrap();
    }
}
