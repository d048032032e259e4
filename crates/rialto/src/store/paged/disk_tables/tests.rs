//! The disk-resident tables of a database: how they come and go.

use super::*;
use crate::io::MemoryDisk;

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
