//! The disk-resident tables of a database: how they come and go.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::io::{MemoryDisk, Processor, SimulatedDisk};

fn options() -> PageOptions {
    PageOptions { page_bytes: 4_096, cache_bytes: 4_096 * 64, ..PageOptions::default() }
}

/// Another process may have the directory by then.
#[test]
fn no_table_is_made_after_the_close() {
    let disk = MemoryDisk::new();
    let tables = DiskTables::new(disk.clone(), 1, PageOptions { writes_behind: true, ..options() });
    tables.close();
    assert_eq!(tables.find_or_make(HeapId(1), &[]).err(), Some(Error::Closed));
    assert_eq!(disk.list().unwrap(), [""; 0], "no page file is made");
    assert!(tables.stats().is_none());

    let tables = DiskTables::new(disk, 1, options());
    tables.find_or_make(HeapId(1), &[]).unwrap();
    tables.close();
    assert_eq!(tables.find_or_make(HeapId(2), &[]).err(), Some(Error::Closed));
    assert!(tables.find_or_make(HeapId(1), &[]).is_ok(), "it is there");
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
        let make = |heap| drop(tables.find_or_make(HeapId(heap), &[]).unwrap());
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
