//! The log's room for decisions: votes take none that a decision waits for, and an opening needs no more than the votes had.

use super::*;

/// A database that has no room in its log for the decision of "it", but some for small votes.
fn without_room(disk: &Arc<MemoryDisk>) -> Database {
    let db = Database::open_on(disk.clone(), full_log()).unwrap();
    let texts = texts(&db);
    two_columns(&db);
    let mut tx = adds(&db, Durability::Disk, [1, 8]).unwrap();
    (0..10).for_each(|id| tx.insert(&texts, &long(id)).unwrap());
    tx.prepare("it", b"").unwrap();
    fill(&db, &texts, 100);
    db.close().unwrap();
    for _ in 0..100 {
        let db = Database::open_on(disk.clone(), full_log()).unwrap();
        match adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"") {
            Err(Error::LogFull { reason }) if reason.contains("earlier opening") => return db,
            other => _ = other.map(|()| db.abort_prepared("other").unwrap().wait().unwrap()),
        }
        db.close().unwrap();
    }
    panic!("there is room still")
}

/// A decision that is being made, and has no room yet, keeps votes waiting as one that is not.
#[test]
fn no_vote_comes_before_a_decision_that_waits_for_room() {
    let db = without_room(&MemoryDisk::new());
    let mut vote = Ok(());
    // It may find as much as it needs without the rows that it has room for.
    let decided = db.commit_prepared_with("it", |_| {
        let voting = || adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"");
        vote = std::thread::scope(|threads| threads.spawn(voting).join().unwrap());
        Ok(())
    });
    assert!(
        matches!(&vote, Err(Error::LogFull { reason }) if reason.contains("earlier opening")),
        "{vote:?}"
    );
    // A checkpoint frees some, for both.
    (0..2).for_each(|_| _ = db.checkpoint().unwrap());
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"").unwrap();
    match decided {
        Ok(((), ticket)) => ticket.wait().unwrap(),
        Err(_) => db.commit_prepared("it").unwrap().wait().unwrap(),
    }
    db.commit_prepared("other").unwrap().wait().unwrap();
    db.close().unwrap();
}

/// The names and the notes are long: the deletions of their records are a large part of what is reserved.
#[test]
fn an_opening_reserves_no_more_than_the_votes_have() {
    let disk = MemoryDisk::new();
    let options = || Options { log_bytes_max: 32 << 20, ..full_log() };
    let db = Database::open_on(disk.clone(), options()).unwrap();
    let texts = texts(&db);
    two_columns(&db);
    let name = |nth: i32| format!("{nth:0>200}");
    for nth in 0..40 {
        let mut tx = db.begin_with(&for_branches(Durability::Memory)).unwrap();
        tx.insert(&texts, &[Value::Int4(nth), Value::Text("a".to_owned())]).unwrap();
        tx.prepare(&name(nth), &[7; 320 << 10]).unwrap();
    }
    fill(&db, &texts, 1_000);
    // An opening takes a page or two for itself; this leaves some.
    (0..2).for_each(|nth| db.abort_prepared(&name(nth)).unwrap().wait().unwrap());
    db.close().unwrap();
    let db = Database::open_on(disk, options()).unwrap();
    assert_eq!(db.prepared().len(), 38);
    adds(&db, Durability::Memory, [2, 7]).unwrap().prepare("other", b"").unwrap();
    for nth in 2..40 {
        db.commit_prepared(&name(nth)).unwrap().wait().unwrap();
    }
    db.commit_prepared("other").unwrap().wait().unwrap();
    db.close().unwrap();
}

/// A log whose bound has become smaller than what a decision needs says so, and does not tell of a next checkpoint.
#[test]
fn a_log_that_has_become_too_small_is_named() {
    let disk = MemoryDisk::new();
    let options =
        |log_bytes_max| Options { log_bytes_max, log_wait_max: Duration::from_millis(200), ..small() };
    let db = Database::open_on(disk.clone(), options(64 << 20)).unwrap();
    let texts = texts(&db);
    two_columns(&db);
    let mut tx = adds(&db, Durability::Disk, [1, 8]).unwrap();
    (0..200).for_each(|id| tx.insert(&texts, &long(id)).unwrap());
    tx.prepare("it", b"").unwrap();
    (0..2).for_each(|_| _ = db.checkpoint().unwrap());
    db.close().unwrap();
    let db = Database::open_on(disk.clone(), options(4 << 20)).unwrap();
    let vote = adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"");
    assert!(matches!(vote, Err(Error::LogTooSmall { .. })), "{vote:?}");
    let words = vote.unwrap_err().to_string();
    assert!(words.contains("reopen with a higher limit") && !words.contains("checkpoint"), "{words}");
    // It can be aborted all the same.
    db.abort_prepared("it").unwrap().wait().unwrap();
    adds(&db, Durability::Disk, [2, 7]).unwrap().prepare("other", b"").unwrap();
    db.commit_prepared("other").unwrap().wait().unwrap();
    db.close().unwrap();
}
