//! The disk-resident tables of a database: how they come and go.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::ids::Lsn;
use crate::io::{FaultKind, FaultyDisk, MemoryDisk, Processor, SimulatedDisk};
use crate::store::paged::Fingers;
use crate::store::paged::page_access::PageAccess;
use crate::store::paged::page_backup::PagesHeld;
use crate::store::tree::Admit;

fn options() -> PageOptions {
    PageOptions { page_bytes: 4_096, cache_bytes: 4_096 * 64, ..PageOptions::default() }
}

/// Another process may have the directory by then.
#[test]
fn no_table_is_made_after_the_close() {
    let disk = MemoryDisk::new();
    let tables = DiskTables::new(disk.clone(), 1, PageOptions { writes_behind: true, ..options() });
    tables.close();
    assert_eq!(tables.make(HeapId(1), &[]).err(), Some(Error::Closed));
    assert_eq!(disk.list().unwrap(), [""; 0], "no page file is made");
    assert!(tables.stats().is_none());

    let tables = DiskTables::new(disk, 1, options());
    tables.make(HeapId(1), &[]).unwrap();
    tables.close();
    assert_eq!(tables.make(HeapId(2), &[]).err(), Some(Error::Closed));
}

/// The first of two threads that share a processor waits for the simulated disk while it makes the page file.
#[test]
fn tables_are_made_beside_each_other_on_a_simulated_disk() {
    let (tells, ended) = mpsc::channel();
    let run = thread::spawn(move || {
        let (processor, hands) = Processor::new(Duration::ZERO);
        let clock = Clock::from(hands.clone());
        let disk = SimulatedDisk::named("charm", MemoryDisk::new(), clock.clone()).unwrap();
        let tables = DiskTables::new(disk, 1, PageOptions { clock, ..options() });
        let make = |heap| drop(tables.make(HeapId(heap), &[]).unwrap());
        let threads = (1..3).map(|heap| Box::new(move || make(heap)) as Box<dyn FnOnce() + Send>);
        processor.run(&hands, threads.collect(), || ());
        assert!(hands.now() > Duration::ZERO, "the test's own premise: making the file takes time");
        assert!((1..3).all(|heap| tables.find(HeapId(heap)).is_some()));
        tells.send(()).unwrap();
    });
    // A thread that waits beside the clock for one that waits by it never ends.
    if ended.recv_timeout(Duration::from_secs(60)) != Err(mpsc::RecvTimeoutError::Timeout) {
        return run.join().unwrap();
    }
    panic!("the second thread hangs");
}

/// The same beside a backup, whose cut waits for the table.
#[test]
fn a_backup_begins_beside_a_table_that_is_made_on_a_simulated_disk() {
    let (tells, ended) = mpsc::channel();
    let run = thread::spawn(move || {
        let (processor, hands) = Processor::new(Duration::ZERO);
        let clock = Clock::from(hands.clone());
        let disk = SimulatedDisk::named("charm", MemoryDisk::new(), clock.clone()).unwrap();
        let tables = DiskTables::new(disk, 1, PageOptions { clock, ..options() });
        let makes = || drop(tables.make(HeapId(1), &[]).unwrap());
        let backs_up = || {
            if let Some(mut backup) = tables.begin_backup(PagesHeld::All) {
                backup.cut(|cut| cut());
            }
        };
        processor.run(&hands, vec![Box::new(makes), Box::new(backs_up)], || ());
        tells.send(()).unwrap();
    });
    if ended.recv_timeout(Duration::from_secs(60)) != Err(mpsc::RecvTimeoutError::Timeout) {
        return run.join().unwrap();
    }
    panic!("the backup hangs");
}

const ROWS: u32 = 5_000;

/// A table with this storage, two indexes, and rows of which some have long bodies: more pages than there are frames.
fn fill(tables: &DiskTables, heap: u32) -> PagedTable {
    let indexes = [IndexId(10 * heap), IndexId(10 * heap + 1)];
    let table = tables.make(HeapId(heap), &indexes).unwrap();
    let access = PageAccess::plain();
    for number in 0..ROWS {
        let key = number.to_be_bytes();
        let length = if number % 500 == 0 { 9_000 } else { 800 };
        let location = table.reserve(&access, &key, length).unwrap();
        table.enter_row(&access, &key, (location, length), || Admit::Go).unwrap();
        table.put(&Fingers::none(), &key, location, &vec![7; length], Lsn(1));
    }
    table
}

fn rows(table: &PagedTable) -> usize {
    let access = PageAccess::plain();
    let is_there = |row: &u32| table.find(&access, &row.to_be_bytes()).unwrap().location.is_some();
    (0..ROWS).filter(is_there).count()
}

/// Writes a checkpoint, in force beside the one before it.
fn checkpoint(tables: &DiskTables) -> PagesAt {
    let mut checkpoint = tables.begin_checkpoint(false).unwrap();
    checkpoint.cut(|cut| cut());
    let at = checkpoint.write().unwrap();
    checkpoint.complete();
    at
}

fn pages(tables: &DiskTables) -> u64 {
    tables.stats().unwrap().pages
}

/// One of the reads fails, or all from one on.
#[test]
fn pages_of_a_table_that_is_gone_are_freed_when_they_can_be_read() {
    let fails = [FaultyDisk::fail, FaultyDisk::fail_always];
    let cases = [0, 1, 3].into_iter().flat_map(|after| fails.map(|fail| (after, fail)));
    for (case, (after, fail)) in cases.enumerate() {
        let disk = FaultyDisk::new(1);
        let mut tables = DiskTables::new(disk.clone(), 1, options());
        fill(&tables, 1);
        let of_first = pages(&tables);
        let second = fill(&tables, 2);
        let of_second = pages(&tables) - of_first;
        assert!(of_first > 500, "the test's own premise: they are on disk");
        tables.find(HeapId(1)).unwrap().discard();
        fail(&disk, FaultKind::Read, PAGE_FILE, after);
        tables.free_gone();
        disk.mend();
        let unread = pages(&tables) - of_second;
        assert!(unread > 0 && (after == 0 || unread < of_first), "case {case}: {unread} of {of_first} pages");
        assert!(tables.has_tables());
        // The numbers of those that are free are used again before the others are freed.
        let third = fill(&tables, 3);
        let expected = pages(&tables) - unread;
        let mut others = [second, third];
        if case % 2 == 1 {
            let at = checkpoint(&tables);
            tables.close();
            tables = DiskTables::open(disk, 1, options(), (Some(at), None)).unwrap();
            assert!(tables.find(HeapId(1)).is_some(), "the rest of it is to be freed");
            tables.keep_only(|heap| heap != HeapId(1));
            others = [2, 3].map(|heap| tables.find(HeapId(heap)).unwrap());
        }
        for _ in 0..2 {
            tables.free_gone();
            assert_eq!(pages(&tables), expected, "case {case}");
            assert!(tables.find(HeapId(1)).is_none());
            assert_eq!(
                others.each_ref().map(rows),
                [ROWS as usize; 2],
                "case {case}: none of theirs is freed"
            );
        }
        // Two checkpoints later the page file has the pages that there are, and the lists of them.
        (0..2).for_each(|_| _ = checkpoint(&tables));
        let stats = tables.stats().unwrap();
        assert!(stats.used_bytes <= (expected + 64) * stats.page_bytes, "case {case}: {stats:?}");
    }
}

/// The thread that writes behind has a reference to the store while it runs.
#[test]
fn the_thread_that_writes_behind_has_ended_when_the_close_returns() {
    for round in 0..20 {
        let options = PageOptions { cache_bytes: 4_096 * 512, writes_behind: true, ..options() };
        let tables = DiskTables::new(MemoryDisk::new(), 1, options);
        fill(&tables, 1);
        let store = Arc::downgrade(tables.state().store.as_ref().unwrap());
        assert_eq!(store.strong_count(), 3, "here, in the thread, in its handle");
        tables.close();
        assert_eq!(store.strong_count(), 1, "round {round}");
    }
}
