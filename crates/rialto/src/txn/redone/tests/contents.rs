//! What a database has: for comparisons.

use std::collections::BTreeMap;

use crate::Database;
use crate::catalog::Description;
use crate::io::{Caching, Disk, MemoryDisk, Open};
use crate::row::{Key, WhichIndex};
use crate::store::TableVersion;
use crate::store::paged::PageAccess;
use crate::store::tree::{Batch, Direction, Guard, More, ScanRange};

/// A table: its description, its rows with their hidden numbers by their keys, and the keys in each secondary index.
#[derive(Debug, PartialEq)]
pub struct Contents {
    pub description: Description,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub entries: Vec<Vec<Vec<u8>>>,
}

fn keys(version: &TableVersion, which: WhichIndex) -> Vec<Vec<u8>> {
    let (mut batch, mut keys) = (Batch::new(), Vec::new());
    loop {
        let (by, all) = (PageAccess::plain(), ScanRange::ALL);
        let more =
            version.store.read_leaf(&by, which, &all, Direction::Forward, Guard::Leave, &mut batch).unwrap();
        keys.extend(batch.iter().map(|(key, _)| key.to_vec()));
        if more == More::No {
            return keys;
        }
    }
}

fn body(version: &TableVersion, which: WhichIndex, key: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let found = version.store.follow(&PageAccess::plain(), which, key, &mut body).unwrap();
    assert!(found.there, "table \"{}\": no row behind {key:02x?} of {which:?}", version.name());
    body
}

/// The contents of a table in which no transaction is in progress. Its indexes fit its rows.
fn contents(version: &TableVersion) -> Contents {
    let name = version.name();
    let primary = keys(version, WhichIndex::Primary);
    let rows: BTreeMap<Vec<u8>, Vec<u8>> =
        primary.into_iter().map(|key| (key.clone(), body(version, WhichIndex::Primary, &key))).collect();
    assert_eq!(version.store.rows(), rows.len() as u64, "the rows of table \"{name}\"");
    if let Some(pages) = version.store.pages() {
        assert_eq!(pages.unsettled(), [""; 0], "table \"{name}\"");
    }
    let mut entries = Vec::new();
    for position in 0..version.schema.indexes().len() {
        let mut of_rows: Vec<(Vec<u8>, &Vec<u8>)> = Vec::new();
        for (key, body) in &rows {
            let mut entry = Key::new();
            version.schema.index_key_of_row(position, &body[version.row_at()..], key, &mut entry);
            of_rows.push((entry.to_vec(), body));
        }
        of_rows.sort();
        let there = keys(version, WhichIndex::Secondary(position));
        assert!(
            there.iter().eq(of_rows.iter().map(|(entry, _)| entry)),
            "index {position} of table \"{name}\""
        );
        for (entry, expected) in &of_rows {
            assert_eq!(&&body(version, WhichIndex::Secondary(position), entry), expected, "table \"{name}\"");
        }
        entries.push(there);
    }
    for body in rows.values().filter(|_| version.numbered) {
        assert!(
            version.row_number(body) < version.numbers.next(),
            "table \"{name}\" may give a number again"
        );
    }
    Contents { description: Description::of_version(version), rows, entries }
}

/// All tables, the system's too.
pub fn all(db: &Database) -> BTreeMap<String, Contents> {
    let tables = db.core().storage.catalog.all();
    tables.iter().map(|table| (table.name(), contents(&table.version()))).collect()
}

/// Both have the same.
pub fn assert_same(found: &BTreeMap<String, Contents>, expected: &BTreeMap<String, Contents>, about: &str) {
    assert!(
        found.keys().eq(expected.keys()),
        "{about}: tables {:?}, expected {:?}",
        found.keys(),
        expected.keys()
    );
    for (name, expected) in expected {
        let found = &found[name];
        assert_eq!(found.description, expected.description, "{about}");
        assert_eq!(found.rows.len(), expected.rows.len(), "{about}: the rows of table \"{name}\"");
        let other = expected.rows.iter().find(|(key, body)| found.rows.get(*key) != Some(*body));
        assert_eq!(
            other,
            None,
            "{about}: a row of table \"{name}\", found {:?}",
            other.map(|(key, _)| found.rows.get(key))
        );
        assert_eq!(found.entries, expected.entries, "{about}: the indexes of table \"{name}\"");
    }
}

/// A copy of the files on a disk.
pub fn copy_of(disk: &MemoryDisk) -> std::sync::Arc<MemoryDisk> {
    let copy = MemoryDisk::new();
    for name in disk.list().unwrap() {
        copy_file(disk, &copy, &name);
    }
    copy
}

/// Copies a file; what is shared memory is left out.
pub fn copy_file(from: &MemoryDisk, to: &MemoryDisk, name: &str) {
    let Ok(file) = from.open(name, Open::ReadOnly, Caching::Buffered) else { return };
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let copy = to.open(name, Open::Create, Caching::Buffered).unwrap();
    copy.set_length(0).unwrap();
    copy.write_at(&bytes, 0).unwrap();
}
