use std::ops::ControlFlow;
use std::time::Duration;

use rialto::backup::CopyOptions;
use rialto::io::MemoryDisk;
use rialto::row::{Column, ColumnType, Value};
use rialto::{Database, Options, Scan, TableDef};

use super::super::read_permit::NotRead;
use super::*;

const PATIENCE: Duration = Duration::from_millis(1);

/// A follower that was opened at a copy of a database with a row, and the database.
fn follower() -> (Database, Arc<Follower>) {
    let options = Options { memory_bytes: 64 << 20, log_bytes_max: 64 << 20, ..Options::default() };
    let db = Database::open_on(MemoryDisk::new(), options.clone()).unwrap();
    let columns = vec![Column::new("id", ColumnType::Int8)];
    let table = TableDef::new("numbers", columns).with_primary_key(&["id"]);
    db.transact(|tx| {
        let table = tx.create_table(&table)?;
        tx.insert(&table, &[Value::Int8(1)])
    })
    .unwrap();
    let mut copy = Vec::new();
    db.copy_to(&mut copy, &CopyOptions::default()).unwrap();
    let disk = MemoryDisk::new();
    Follower::receive_on(disk.clone(), &mut &copy[..]).unwrap();
    let follower = Follower::open_on_redoing_up_to(disk, options, Lsn::ZERO).unwrap();
    (db, Arc::new(follower))
}

fn at(milliseconds: u64) -> Moment {
    Moment(Duration::from_millis(milliseconds))
}

const WANTED: Wanted = Wanted { staleness: Duration::from_millis(100), after: Lsn::ZERO };

/// Reads of a follower's tables whose log may be redone as far as they have it, and which are of this time.
fn reads(follower: &Arc<Follower>, as_of: Moment) -> Arc<Reads> {
    let reads = Arc::new(Reads::new(PATIENCE));
    reads.open(follower);
    reads.allow(follower.redone());
    reads.end_known(as_of, follower.redone());
    reads
}

#[test]
fn tables_of_a_copy_are_read_once_all_that_they_have_may_be_redone() {
    let (_db, follower) = follower();
    let reads = Arc::new(Reads::new(PATIENCE));
    reads.open(&follower);
    reads.end_known(at(1000), follower.redone());
    let begin = || reads.begin(WANTED, || at(1010));
    assert!(matches!(begin(), Begun::TooOld), "nothing was allowed");
    reads.allow(Lsn(follower.redone().0 - 1));
    assert!(matches!(begin(), Begun::TooOld), "the newest transaction was not allowed");
    reads.allow(follower.redone());
    assert!(matches!(begin(), Begun::Yes(..)));
    // A primary that has just begun may know less.
    reads.allow(Lsn::ZERO);
    assert!(matches!(begin(), Begun::Yes(..)));
}

#[test]
fn tables_grow_old_by_the_clock_at_the_moment_of_the_permit() {
    let (_db, follower) = follower();
    let reads = reads(&follower, at(1000));
    assert!(matches!(reads.begin(WANTED, || at(1040)), Begun::Yes(_, Renewal::NotYet)));
    assert!(matches!(reads.begin(WANTED, || at(1099)), Begun::Yes(_, Renewal::Due)));
    assert!(matches!(reads.begin(WANTED, || at(1100)), Begun::TooOld));
    assert!(reads.is_young(WANTED, || at(1099)) && !reads.is_young(WANTED, || at(1100)));
}

#[test]
fn a_question_is_asked_for_all_that_want_it() {
    let reads = Reads::new(PATIENCE);
    assert!(reads.ask() && !reads.ask() && !reads.ask());
    reads.takes_question();
    assert!(reads.ask());
}

#[test]
fn a_programs_read_is_ended_with_the_tables() {
    let (_db, follower) = follower();
    let reads = reads(&follower, at(1000));
    let Begun::Yes(permit, _) = reads.begin(WANTED, || at(1000)) else { panic!("it can be read") };
    let count = |permit: &ReadPermit, between: &dyn Fn()| {
        permit.read(|tx| {
            let table = tx.table("numbers")?;
            between();
            let mut rows = 0;
            tx.scan(&table, &Scan::all(), |_, _| {
                rows += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(rows)
        })
    };
    assert_eq!(count(&permit, &|| ()).unwrap(), 1);
    assert!(matches!(count(&permit, &|| reads.close()), Err(NotRead::GaveWay)));
    assert!(matches!(count(&permit, &|| ()), Err(NotRead::GaveWay)));
    assert!(matches!(reads.begin(WANTED, || at(1000)), Begun::Closed));
}
