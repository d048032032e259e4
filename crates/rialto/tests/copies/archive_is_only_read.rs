//! A restore only reads the disk of the archive, and opens no more files at a time for a longer log.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::quiet::{count, level, options, thing, things};
use rialto::backup::{Archive, Backup, Restore, restore};
use rialto::io::{Caching, DirectoryLock, Disk, DiskResult, File, MemoryDisk, Open, SharedMap};
use rialto::{BackupKind, Database, Durability, Options};

/// A read-only disk, which counts the most files that are open at a time.
#[derive(Debug)]
struct OnlyRead {
    inner: Arc<MemoryDisk>,
    open: Arc<AtomicUsize>,
    most: AtomicUsize,
}

struct OpenFile {
    inner: Arc<dyn File>,
    open: Arc<AtomicUsize>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Disk for OnlyRead {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        assert_eq!(open, Open::ReadOnly, "\"{name}\" of a disk that is only read");
        let inner = self.inner.open(name, open, caching)?;
        self.most.fetch_max(self.open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Ok(Arc::new(OpenFile { inner, open: self.open.clone() }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, _to: &str) -> DiskResult<()> {
        panic!("a rename of \"{from}\" on a disk that is only read")
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        panic!("a removal of \"{name}\" from a disk that is only read")
    }

    fn sync_directory(&self) -> DiskResult<()> {
        panic!("a sync of a directory that is only read")
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        panic!("a lock in a directory that is only read")
    }

    fn map_shared(&self, name: &str, _bytes: usize) -> DiskResult<SharedMap> {
        panic!("a map \"{name}\" in a directory that is only read")
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        self.inner.shared_bytes(name)
    }

    fn boot(&self) -> u128 {
        self.inner.boot()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl File for OpenFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        self.inner.write_at(buffer, offset)
    }

    fn sync(&self) -> DiskResult<()> {
        self.inner.sync()
    }

    fn length(&self) -> DiskResult<u64> {
        self.inner.length()
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.inner.set_length(bytes)
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.inner.allocate(bytes)
    }
}

/// An archive may be on a read-only mount, and has more files than a process may open.
#[test]
fn a_restore_only_reads_the_archive_and_has_few_files_of_it_open() {
    let archive = MemoryDisk::new();
    let archiving =
        Options { archive: Some(Archive::on(archive.clone())), log_bytes_max: 16 << 20, ..options() };
    let db = Database::open_on(MemoryDisk::new(), archiving).unwrap();
    let table = things(&db);
    let mut backup = Vec::new();
    db.backup_to(&mut backup, BackupKind::Full).unwrap();
    let mut rows = 0;
    while archive.list().unwrap().len() < 5 {
        for _ in 0..100 {
            db.transact_with(&level(Durability::Memory), |tx| tx.insert(&table, &thing(rows, 30_000)))
                .unwrap();
            rows += 1;
        }
        db.checkpoint().unwrap();
    }
    db.close().unwrap();

    let archive = Arc::new(OnlyRead { inner: archive, open: Arc::default(), most: AtomicUsize::new(0) });
    let mut plan = Restore::new(vec![Backup::stream("b", Cursor::new(backup))]);
    plan.archive = Some(Archive::on(archive.clone()));
    (plan.memory_bytes, plan.threads) = (128 << 20, 2);
    let target = MemoryDisk::new();
    restore(plan, target.clone()).unwrap();
    assert_eq!(archive.open.load(Ordering::SeqCst), 0, "all were closed");
    let most = archive.most.load(Ordering::SeqCst);
    assert!(most <= 2, "{most}: what is read, and where its end is looked for");
    let db = Database::open_on(target, Options { memory_bytes: 128 << 20, ..options() }).unwrap();
    assert_eq!(count(&db), rows as u64);
}
