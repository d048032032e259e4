//! Databases with an archive, and restores with it.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use rialto::backup::{Archive, Backup, Restore, RestoreReport, RestoreTo, restore};
use rialto::io::{Caching, Disk, MemoryDisk, Open};
use rialto::recovery::check::check;
use rialto::row::{Column, ColumnType};
use rialto::{BackupKind, Database, Durability, Lsn, Options, Scan, TableDef, TxOptions};

use super::quiet::{options, thing};

pub fn archiving(archive: &Arc<dyn Disk>) -> Options {
    Options { archive: Some(Archive::on(archive.clone())), ..options() }
}

/// A backup of the current database, as a stream.
pub fn full(db: &Database) -> (Vec<u8>, Lsn) {
    let mut bytes = Vec::new();
    let report = db.backup_to(&mut bytes, BackupKind::Full).unwrap();
    (bytes, report.place)
}

pub fn plan(backup: &[u8], archive: &Arc<dyn Disk>, to: RestoreTo) -> Restore {
    let mut plan = Restore::new(vec![Backup::stream("b", Cursor::new(backup.to_vec()))]);
    plan.archive = Some(Archive::on(archive.clone()));
    (plan.to, plan.memory_bytes, plan.threads) = (to, 64 << 20, 2);
    plan
}

pub fn restored(plan: Restore) -> (Database, RestoreReport, Arc<MemoryDisk>) {
    let target = MemoryDisk::new();
    let report = restore(plan, target.clone()).unwrap();
    let shared: Arc<dyn Disk> = target.clone();
    let checked = check(&shared, 64 << 20, 2).unwrap();
    assert!(checked.is_sound(), "{checked}");
    (Database::open_on(target.clone(), options()).unwrap(), report, target)
}

pub fn refused(plan: Restore) -> (String, u8) {
    let target = MemoryDisk::new();
    let error = restore(plan, target.clone()).unwrap_err();
    assert!(target.list().unwrap().is_empty(), "nothing is left");
    (error.to_string(), error.exit_code())
}

pub fn ids(db: &Database) -> BTreeSet<i32> {
    let table = db.table("things").unwrap();
    let mut ids = BTreeSet::new();
    db.transact(|tx| {
        ids.clear();
        tx.scan(&table, &Scan::all(), |_, row| {
            ids.insert(row.get_i32(0)?);
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    ids
}

/// Adds one row of this many bytes. Gives the commit's place.
pub fn add(db: &Database, id: i32, bytes: usize) -> Lsn {
    let table = db.table("things").unwrap();
    let level_1 = TxOptions { durability: Some(Durability::Memory), ..TxOptions::default() };
    db.submit_with(&level_1, |tx| tx.insert(&table, &thing(id, bytes))).unwrap().1.lsn()
}

/// A copy of a disk's contents.
pub fn copied(disk: &dyn Disk) -> Arc<MemoryDisk> {
    disk_of(&contents(disk))
}

/// A disk with these files.
pub fn disk_of<'a>(files: impl IntoIterator<Item = &'a (String, Vec<u8>)>) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new();
    for (name, bytes) in files {
        disk.open(name, Open::Create, Caching::Buffered).unwrap().write_at(bytes, 0).unwrap();
    }
    disk
}

/// The files of a disk, with their bytes; not the shared map, which ends with the machine.
pub fn contents(disk: &dyn Disk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name != "log-tail");
    names.sort_unstable();
    let read = |name: String| {
        let file = disk.open(&name, Open::ReadOnly, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// Makes a table by a bulk load of 400 rows.
pub fn loaded(db: &Database, name: &str) {
    let columns = vec![Column::new("id", ColumnType::Int4), Column::new("text", ColumnType::Text)];
    db.transact(|tx| {
        let table = tx.create_table(&TableDef::new(name, columns.clone()).with_primary_key(&["id"]))?;
        (0..400).try_for_each(|id| tx.insert(&table, &thing(id, 300)))
    })
    .unwrap();
}
