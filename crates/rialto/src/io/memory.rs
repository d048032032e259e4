//! The memory disk: for tests, and for databases that need not survive their process.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::disk::{LOCK_FILE, assert_aligned, check_map, check_name};
use super::image::FileImage;
use super::{Caching, DirectoryLock, Disk, DiskError, DiskResult, File, Open, Random, SharedMap};

/// A data directory in memory. It lives as long as a reference to it: a database that is opened on the same
/// `MemoryDisk` again finds all that the previous one wrote. A sync does nothing; nothing is ever lost.
#[derive(Debug)]
pub struct MemoryDisk {
    entries: Mutex<BTreeMap<String, MemoryEntry>>,
    locked: Arc<AtomicBool>,
    boot: u128,
}

#[derive(Debug)]
enum MemoryEntry {
    File(Arc<RwLock<FileImage>>),
    Map(SharedMap),
}

impl MemoryDisk {
    /// An empty directory.
    #[allow(clippy::new_without_default, reason = "a disk is always shared, so this answers an Arc")]
    pub fn new() -> Arc<MemoryDisk> {
        static DISKS: AtomicU64 = AtomicU64::new(1);
        let mut random = Random::new(DISKS.fetch_add(1, Ordering::Relaxed));
        Arc::new(MemoryDisk {
            entries: Mutex::default(),
            locked: Arc::default(),
            boot: u128::from(random.next()) << 64 | u128::from(random.next()),
        })
    }
}

impl Disk for MemoryDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        check_name(name, "open")?;
        let failed = |kind: io::ErrorKind| Err(DiskError::new(name, 0, "open", kind));
        let mut entries = self.entries.lock();
        let image = match entries.get(name) {
            Some(_) if open == Open::CreateNew => return failed(io::ErrorKind::AlreadyExists),
            Some(MemoryEntry::File(image)) => image.clone(),
            Some(MemoryEntry::Map(_)) => return Err(is_map(name, "open")),
            None if open.creates() => {
                let image = Arc::<RwLock<FileImage>>::default();
                entries.insert(name.to_owned(), MemoryEntry::File(image.clone()));
                image
            }
            None => return failed(io::ErrorKind::NotFound),
        };
        Ok(Arc::new(MemoryFile { name: name.to_owned(), writable: open != Open::ReadOnly, caching, image }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        Ok(self.entries.lock().keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        check_name(from, "rename")?;
        check_name(to, "rename")?;
        let mut entries = self.entries.lock();
        let Some(entry) = entries.remove(from) else {
            return Err(DiskError::new(from, 0, "rename", io::ErrorKind::NotFound));
        };
        entries.insert(to.to_owned(), entry);
        Ok(())
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        check_name(name, "remove")?;
        let removed = self.entries.lock().remove(name);
        removed.map(drop).ok_or_else(|| DiskError::new(name, 0, "remove", io::ErrorKind::NotFound))
    }

    fn sync_directory(&self) -> DiskResult<()> {
        Ok(())
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        FlagLock::take(&self.locked)
    }

    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        check_map(name, bytes)?;
        let mut entries = self.entries.lock();
        match entries.get(name) {
            Some(MemoryEntry::Map(map)) if map.len() == bytes => return Ok(map.clone()),
            Some(MemoryEntry::File(_)) => return Err(is_file(name)),
            _ => {}
        }
        let map = SharedMap::anonymous(bytes).map_err(|error| DiskError::new(name, 0, "map", error))?;
        entries.insert(name.to_owned(), MemoryEntry::Map(map.clone()));
        Ok(map)
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        check_name(name, "map")?;
        match self.entries.lock().get(name) {
            Some(MemoryEntry::Map(map)) => Ok(Some(map.len())),
            Some(MemoryEntry::File(_)) => Err(is_file(name)),
            None => Ok(None),
        }
    }

    fn boot(&self) -> u128 {
        self.boot
    }

    fn has_speed(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "memory (lost when the process ends)".to_owned()
    }
}

/// The error for a shared map that is used as a file.
pub(super) fn is_map(name: &str, operation: &'static str) -> DiskError {
    let cause = "this name belongs to a shared map; use map_shared";
    DiskError::new(name, 0, operation, io::Error::new(io::ErrorKind::InvalidInput, cause))
}

/// The error for a file that is used as a shared map.
pub(super) fn is_file(name: &str) -> DiskError {
    let cause = "this name belongs to a file; a shared map needs a name of its own";
    DiskError::new(name, 0, "map", io::Error::new(io::ErrorKind::InvalidInput, cause))
}

/// The directory lock of a disk in memory: a flag that is set while the guard lives.
pub(super) struct FlagLock(Arc<AtomicBool>);

impl FlagLock {
    pub(super) fn take(flag: &Arc<AtomicBool>) -> DiskResult<DirectoryLock> {
        if flag.swap(true, Ordering::Acquire) {
            return Err(DiskError::new(LOCK_FILE, 0, "lock", io::ErrorKind::WouldBlock));
        }
        Ok(DirectoryLock::new(FlagLock(flag.clone())))
    }
}

impl Drop for FlagLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct MemoryFile {
    name: String,
    writable: bool,
    caching: Caching,
    image: Arc<RwLock<FileImage>>,
}

impl MemoryFile {
    fn check_writable(&self, offset: u64, operation: &'static str) -> DiskResult<()> {
        if self.writable {
            return Ok(());
        }
        Err(DiskError::new(&self.name, offset, operation, io::ErrorKind::PermissionDenied))
    }
}

impl File for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        assert_aligned(self.caching, buffer, offset);
        if self.image.read().read(buffer, offset) {
            return Ok(());
        }
        Err(DiskError::new(&self.name, offset, "read", io::ErrorKind::UnexpectedEof))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        assert_aligned(self.caching, buffer, offset);
        self.check_writable(offset, "write")?;
        self.image.write().write(buffer, offset);
        Ok(())
    }

    fn sync(&self) -> DiskResult<()> {
        Ok(())
    }

    fn length(&self) -> DiskResult<u64> {
        Ok(self.image.read().length())
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.check_writable(bytes, "set length")?;
        self.image.write().set_length(bytes);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.check_writable(bytes, "allocate")?;
        self.image.write().grow(bytes);
        Ok(())
    }
}
