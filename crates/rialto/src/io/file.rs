//! The file disk: a directory of the operating system.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, IFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::directory_holder::{self, DirectoryHolder, MARK_BYTES_MAX};
use super::disk::{DIRECTORY, LOCK_FILE, assert_aligned, check_map, check_name};
use super::transfer::{PartialTransfer, read_all, write_all};
use super::{
    AlignedBuffer, BUFFER_ALIGNMENT, Caching, DirectoryLock, Disk, DiskError, DiskResult, File, Open, Random,
    SharedMap,
};
use crate::fault_injection;

/// A data directory on a file system. Files are opened relative to the directory's own handle, so that neither a change
/// of the working directory nor a rename of the data directory misleads it.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    directory: OwnedFd,
    boot: u128,
}

impl FileDisk {
    /// Opens the directory; creates it, and the directories above it, if they are missing.
    pub fn create(path: impl AsRef<Path>) -> DiskResult<Arc<FileDisk>> {
        let path = path.as_ref();
        make_directories(path)
            .map_err(|error| DiskError::new(&path.to_string_lossy(), 0, "create", error))?;
        FileDisk::open(path)
    }

    /// Opens a directory that exists; an [`is_missing`](DiskError::is_missing) error if it does not.
    pub fn open(path: impl AsRef<Path>) -> DiskResult<Arc<FileDisk>> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| DiskError::new(&path.to_string_lossy(), 0, "open", error))?;
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Arc::new(FileDisk { path, directory, boot: boot_of_machine() }))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the file `lock` and then the directory, and marks them as this process's.
    fn lock_files(&self) -> DiskResult<HeldDirectory> {
        // No link is followed: the mark would overwrite a file elsewhere.
        let file = self
            .open_at(LOCK_FILE, OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW)
            .map_err(|error| DiskError::new(LOCK_FILE, 0, "open", error))?;
        let file = Locked::lock(file).map_err(|(error, file)| match error {
            Errno::WOULDBLOCK => {
                DiskError::new(LOCK_FILE, 0, "lock", DirectoryHolder::error(self.holder(file.as_fd())))
            }
            error => DiskError::new(LOCK_FILE, 0, "lock", error),
        })?;
        // The directory is locked, too, because a lock file can be removed while it is locked.
        let directory = self
            .open_at(".", OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|error| DiskError::new(DIRECTORY, 0, "open", error))?;
        match Locked::lock(directory) {
            Err((error @ Errno::WOULDBLOCK, _)) => Err(DiskError::new(DIRECTORY, 0, "lock", error)),
            // Some file systems only lock files.
            directory => {
                let held = HeldDirectory { _directory: directory.ok(), file, boot: self.boot };
                held.mark(None);
                Ok(held)
            }
        }
    }

    /// The process that has marked the lock file as its own, if it is alive.
    fn holder(&self, file: BorrowedFd<'_>) -> Option<DirectoryHolder> {
        let mut mark = [0; MARK_BYTES_MAX];
        let length = rustix::io::pread(file, &mut mark, 0).ok()?;
        DirectoryHolder::of_mark(std::str::from_utf8(&mark[..length]).ok()?, self.boot)
    }

    fn open_at(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags | OFlags::CLOEXEC, mode))
    }
}

/// An open file that is locked until this is dropped.
///
/// The lock belongs to the open file, not to the process: the kernel releases it when the last descriptor is closed,
/// however processes end. A child has a copy of each descriptor from its fork on. Therefore the guard does not only
/// close its own descriptor: it unlocks the file.
#[derive(Debug)]
struct Locked(OwnedFd);

impl Locked {
    /// Gives the file back if it cannot be locked.
    fn lock(file: OwnedFd) -> Result<Locked, (Errno, OwnedFd)> {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Locked(file)),
            Err(error) => Err((error, file)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If this fails, the lock is released with the last descriptor.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// A directory that this process has locked. The fields are dropped in the opposite order of their locking: a process
/// that gets the file therefore finds the directory free.
#[derive(Debug)]
pub(super) struct HeldDirectory {
    _directory: Option<Locked>,
    file: Locked,
    boot: u128,
}

impl HeldDirectory {
    /// Writes into the lock file which process has the directory, and where it serves the database. If that fails, for
    /// one because the disk is full, the holder stays unnamed.
    pub(super) fn mark(&self, address: Option<&str>) {
        let mut mark = directory_holder::mark(self.boot, address).into_bytes();
        mark.truncate(MARK_BYTES_MAX);
        // No reader takes the rest of an older mark for the end of this one: a mark that is cut names nothing.
        let _ = rustix::fs::ftruncate(&self.file.0, 0);
        let _ = rustix::io::pwrite(&self.file.0, &mark, 0);
    }
}

impl Drop for HeldDirectory {
    fn drop(&mut self) {
        let _ = rustix::fs::ftruncate(&self.file.0, 0);
    }
}

/// Creates the directory and each missing one above it, and makes their entries durable. This includes the entry of the
/// deepest existing one: an earlier attempt may have created it and then failed, or been killed, before that entry was
/// durable.
fn make_directories(path: &Path) -> io::Result<()> {
    let is_there = path.is_dir();
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None if is_there => return Ok(()),
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    if is_there {
        return match fs::File::open(parent).and_then(|parent| parent.sync_all()) {
            // No attempt creates a directory in one that it cannot read, or that is read-only. Some file systems cannot
            // sync a directory.
            Err(error) if is_of_others(error.kind()) => Ok(()),
            synced => synced,
        };
    }
    make_directories(parent)?;
    // Opened first: if that is refused, no directory is created.
    let above = fs::File::open(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        result => result?,
    }
    above.sync_all()
}

/// Whether the sync of a directory fails in a way that shows that a parent of the data directory is not this database's
/// to sync.
fn is_of_others(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    matches!(error, InvalidInput | PermissionDenied | ReadOnlyFilesystem)
}

/// The kernel's identifier of this boot. Where it cannot be read, a number that no other process gets, so that no
/// shared map of an earlier process is trusted.
fn boot_of_machine() -> u128 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or_else(|_| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut random =
            Random::new(since.map_or(0, |time| time.as_nanos() as u64) ^ u64::from(std::process::id()));
        u128::from(random.next()) << 64 | u128::from(random.next())
    })
}

impl Disk for FileDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        check_name(name, "open")?;
        let access = match open {
            Open::Existing => OFlags::RDWR,
            Open::Create => OFlags::RDWR | OFlags::CREATE,
            Open::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Open::ReadOnly => OFlags::RDONLY,
        };
        let sync = if caching == Caching::DirectSync { OFlags::DSYNC } else { OFlags::empty() };
        let direct = if caching == Caching::Buffered { OFlags::empty() } else { OFlags::DIRECT };
        let file = match self.open_at(name, access | sync | direct) {
            Err(Errno::INVAL) if caching != Caching::Buffered => {
                // The file system has no direct access. The refused call may have created the file already.
                let again = if open == Open::CreateNew { OFlags::RDWR | OFlags::CREATE } else { access };
                self.open_at(name, again | sync)
            }
            result => result,
        };
        let file = file.map_err(|error| DiskError::new(name, 0, "open", error))?;
        Ok(Arc::new(OsFile { name: name.to_owned(), caching, file: fs::File::from(file) }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        let failed = |error: io::Error| DiskError::new(DIRECTORY, 0, "list", error);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let is_file = match entry.file_type() {
                FileType::RegularFile => true,
                // The type that opening the name would find. A link that leads nowhere is listed, because the name
                // exists: opening it reports the cause.
                FileType::Unknown | FileType::Symlink => {
                    rustix::fs::statat(&self.directory, name, AtFlags::empty())
                        .map_or(true, |stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
                }
                _ => false,
            };
            if is_file && name != LOCK_FILE {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        check_name(from, "rename")?;
        check_name(to, "rename")?;
        rustix::fs::renameat(&self.directory, from, &self.directory, to)
            .map_err(|error| DiskError::new(from, 0, "rename", error))
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        check_name(name, "remove")?;
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())
            .map_err(|error| DiskError::new(name, 0, "remove", error))
    }

    fn sync_directory(&self) -> DiskResult<()> {
        if fault_injection::is_on("directory-sync-left-out") {
            return Ok(());
        }
        retry_on_intr(|| rustix::fs::fsync(&self.directory))
            .map_err(|error| DiskError::new(DIRECTORY, 0, "sync", error))
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        Ok(DirectoryLock::new(self.lock_files()?))
    }

    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        check_map(name, bytes)?;
        let failed = |error: io::Error| DiskError::new(name, 0, "map", error);
        let found = self.shared_bytes(name)?;
        if found.is_some_and(|found| found != bytes) {
            // Removed, not cut: a map of the old size that is still alive keeps its own pages.
            self.remove(name)?;
        }
        let file = self
            .open_at(name, OFlags::RDWR | OFlags::CREATE)
            .map_err(|error| DiskError::new(name, 0, "open", error))?;
        if found != Some(bytes) {
            write_in_place(file.as_fd());
        }
        // Also for a map that exists: the process that created it may have been killed before its blocks were reserved.
        if let Err(error) = reserve(file.as_fd(), name, bytes as u64) {
            if found != Some(bytes) {
                // The part of the blocks that a full disk had is of no use. Whether it can be removed makes no
                // difference here.
                let _ = self.remove(name);
            }
            return Err(error);
        }
        SharedMap::of_file(file.as_fd(), bytes).map_err(failed)
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        check_name(name, "map")?;
        // Follows a link, as opening does.
        match rustix::fs::statat(&self.directory, name, AtFlags::empty()) {
            Ok(stat) => Ok(Some(stat.st_size as usize)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(DiskError::new(name, 0, "map", error)),
        }
    }

    fn boot(&self) -> u128 {
        self.boot
    }

    fn describe(&self) -> String {
        format!("file {}", self.path.display())
    }
}

/// Asks the file system to overwrite the file's blocks in place, if it would otherwise write each page elsewhere
/// (btrfs): there a page of a map that is written again needs a new block, and a full disk is a `SIGBUS`.
fn write_in_place(file: BorrowedFd<'_>) {
    // Nothing is lost if the file system does not know the flag, or has no need of it.
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Reserves blocks for the first `bytes` bytes; the file grows to that length if it is shorter.
fn reserve(file: BorrowedFd<'_>, name: &str, bytes: u64) -> DiskResult<()> {
    let failed = |offset: u64, error: io::Error| DiskError::new(name, offset, "allocate", error);
    if bytes == 0 {
        return Ok(());
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Ok(()) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(error) => return Err(failed(0, error.into())),
    }
    write_zeros(file, name, bytes)
}

/// Writes zeros behind the end of a file, so that it has this many bytes and blocks for them. What lies before the end
/// was written in the same way.
fn write_zeros(file: BorrowedFd<'_>, name: &str, bytes: u64) -> DiskResult<()> {
    let failed = |offset: u64, error: io::Error| DiskError::new(name, offset, "allocate", error);
    let mut from = rustix::fs::fstat(file).map_err(|error| failed(0, error.into()))?.st_size as u64;
    let flags = rustix::fs::fcntl_getfl(file).map_err(|error| failed(0, error.into()))?;
    let whole = from.next_multiple_of(BUFFER_ALIGNMENT as u64);
    if flags.contains(OFlags::DIRECT) && from < whole && from < bytes {
        // A full disk has cut off an earlier attempt within a block, which the file owns. Direct access writes whole
        // blocks.
        let lengthened = retry_on_intr(|| rustix::fs::ftruncate(file, whole));
        lengthened.map_err(|error| failed(from, error.into()))?;
        from = whole;
    }
    let zeros = AlignedBuffer::zeroed(1 << 16);
    let missing = bytes.saturating_sub(from) as usize;
    let write = |done: usize| {
        let part = &zeros[..zeros.len().min(missing - done)];
        rustix::io::pwrite(file, part, from + done as u64)
    };
    write_all(missing, write).map_err(|cut| failed(from + cut.done as u64, cut.error))
}

/// An open file of the operating system.
#[derive(Debug)]
struct OsFile {
    name: String,
    caching: Caching,
    file: fs::File,
}

impl OsFile {
    fn failed(&self, offset: u64, operation: &'static str, error: impl Into<io::Error>) -> DiskError {
        DiskError::new(&self.name, offset, operation, error)
    }

    /// `DirectSync` makes writes durable, but not changes of length: those are synced here, so that `sync` has nothing
    /// to do.
    fn sync_length(&self) -> DiskResult<()> {
        if self.caching == Caching::DirectSync { self.fdatasync() } else { Ok(()) }
    }

    fn fdatasync(&self) -> DiskResult<()> {
        // Also with O_DIRECT, which bypasses the page cache, but not the device's cache. A sync that a signal
        // interrupted has not failed: nothing that it was to write counts as written, and it consumed no error of the
        // device.
        retry_on_intr(|| rustix::fs::fdatasync(&self.file)).map_err(|error| self.failed(0, "sync", error))
    }
}

impl File for OsFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        assert_aligned(self.caching, buffer, offset);
        let block = (self.caching != Caching::Buffered).then_some(BUFFER_ALIGNMENT);
        let read = |rest: &mut [u8], done: usize| rustix::io::pread(&self.file, rest, offset + done as u64);
        read_all(buffer, block, read).map_err(|PartialTransfer { done, error }| {
            let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
            self.failed(if is_end { offset } else { offset + done as u64 }, "read", error)
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        assert_aligned(self.caching, buffer, offset);
        let write = |done: usize| rustix::io::pwrite(&self.file, &buffer[done..], offset + done as u64);
        write_all(buffer.len(), write).map_err(|cut| self.failed(offset, "write", cut.error))
    }

    #[cfg(feature = "io-uring")]
    fn read_each(&self, reads: &mut [(u64, &mut [u8])]) -> DiskResult<()> {
        reads.iter().for_each(|(offset, buffer)| assert_aligned(self.caching, buffer, *offset));
        let made = if reads.len() > 1 { super::ring::read_each(self.file.as_fd(), reads) } else { None };
        for (nth, (offset, buffer)) in reads.iter_mut().enumerate() {
            match made.as_ref().map(|made| &made[nth]) {
                Some(Ok(bytes)) if *bytes == buffer.len() => {}
                // Not read in full, failed, or not tried: it is made again, which also reports the error.
                _ => self.read_at(buffer, *offset)?,
            }
        }
        Ok(())
    }

    #[cfg(feature = "io-uring")]
    fn write_each(&self, writes: &[(u64, &[u8])]) -> DiskResult<()> {
        writes.iter().for_each(|(offset, buffer)| assert_aligned(self.caching, buffer, *offset));
        let made = if writes.len() > 1 { super::ring::write_each(self.file.as_fd(), writes) } else { None };
        for (nth, (offset, buffer)) in writes.iter().enumerate() {
            match made.as_ref().map(|made| &made[nth]) {
                Some(Ok(bytes)) if *bytes == buffer.len() => {}
                // Not written in full, failed, or not tried: it is made again, which also reports the error.
                _ => self.write_at(buffer, *offset)?,
            }
        }
        Ok(())
    }

    fn sync(&self) -> DiskResult<()> {
        if self.caching == Caching::DirectSync { Ok(()) } else { self.fdatasync() }
    }

    fn length(&self) -> DiskResult<u64> {
        let stat = rustix::fs::fstat(&self.file).map_err(|error| self.failed(0, "length", error))?;
        Ok(stat.st_size as u64)
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.file.set_len(bytes).map_err(|error| self.failed(bytes, "set length", error))?;
        self.sync_length()
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        reserve(self.file.as_fd(), &self.name, bytes)?;
        self.sync_length()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use super::super::conformance::ScratchDirectory;
    use super::*;

    const CHILD: &str = "RIALTO_IO_TEST_CHILD";

    /// Not a test by itself: the process that the next test starts, and that kills itself.
    #[test]
    fn child_that_is_killed() {
        let Ok(path) = std::env::var(CHILD) else { return };
        let disk = FileDisk::open(path).unwrap();
        let _lock = disk.lock().unwrap();
        let map = disk.map_shared("ring", 1 << 20).unwrap();
        for (at, word) in map.as_words().iter().enumerate() {
            word.store(at as u64 * 3, Ordering::Release);
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_shared_map_outlives_sigkill_and_the_lock_does_not() {
        let scratch = ScratchDirectory::new("sigkill");
        let disk = FileDisk::create(&scratch.0).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "io::file::tests::child_that_is_killed"])
            .env(CHILD, &scratch.0)
            .output()
            .unwrap()
            .status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
        let _lock = disk.lock().unwrap();
        assert_eq!(disk.shared_bytes("ring").unwrap(), Some(1 << 20));
        let map = disk.map_shared("ring", 1 << 20).unwrap();
        assert!(
            map.as_words().iter().enumerate().all(|(at, word)| word.load(Ordering::Acquire) == at as u64 * 3)
        );
    }

    #[test]
    fn a_map_has_its_blocks_before_it_is_used() {
        use std::os::unix::fs::MetadataExt;
        let scratch = ScratchDirectory::new("blocks");
        let disk = FileDisk::create(&scratch.0).unwrap();
        let _map = disk.map_shared("ring", 1 << 20).unwrap();
        let blocks = fs::metadata(scratch.0.join("ring")).unwrap().blocks();
        assert!(blocks * 512 >= 1 << 20, "{blocks} blocks");
    }

    #[test]
    fn zeros_are_written_behind_an_end_within_a_block() {
        let scratch = ScratchDirectory::new("zeros");
        let disk = FileDisk::create(&scratch.0).unwrap();
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            fs::write(scratch.0.join("f"), [7; 5_000]).unwrap();
            let file = match disk.open_at("f", OFlags::RDWR | flags) {
                // A file system without direct access.
                Err(Errno::INVAL) if flags == OFlags::DIRECT => continue,
                file => file.unwrap(),
            };
            write_zeros(file.as_fd(), "f", 4_096).unwrap();
            assert_eq!(fs::read(scratch.0.join("f")).unwrap(), [7; 5_000]);
            write_zeros(file.as_fd(), "f", 200_704).unwrap();
            let expected = [vec![7; 5_000], vec![0; 195_704]].concat();
            assert!(fs::read(scratch.0.join("f")).unwrap() == expected, "{flags:?}");
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let scratch = ScratchDirectory::new("missing");
        let error = FileDisk::open(&scratch.0).unwrap_err();
        assert!(error.is_missing() && error.to_string().contains("rialto-io-missing"), "{error}");
        FileDisk::create(&scratch.0).unwrap();
        let disk = FileDisk::open(&scratch.0).unwrap();
        assert_ne!(disk.boot(), 0);
        assert_eq!(disk.boot(), FileDisk::open(&scratch.0).unwrap().boot());
        fs::create_dir(scratch.0.join("folder")).unwrap();
        assert_eq!(disk.list().unwrap(), Vec::<String>::new(), "folders are no files");
    }

    #[test]
    fn a_link_is_listed_as_what_opening_it_would_find() {
        let scratch = ScratchDirectory::new("links");
        let disk = FileDisk::create(&scratch.0).unwrap();
        fs::create_dir(scratch.0.join("folder")).unwrap();
        fs::write(scratch.0.join("folder/file"), "file").unwrap();
        for (target, name) in
            [("folder", "to-folder"), ("folder/file", "to-file"), ("gone", "to-nothing"), ("loop", "loop")]
        {
            std::os::unix::fs::symlink(target, scratch.0.join(name)).unwrap();
        }
        assert_eq!(disk.list().unwrap(), ["loop", "to-file", "to-nothing"]);
    }

    #[test]
    fn a_directory_whose_lock_file_is_removed_stays_locked() {
        let scratch = ScratchDirectory::new("unlinked");
        let disk = FileDisk::create(&scratch.0).unwrap();
        let lock = disk.lock().unwrap();
        fs::remove_file(scratch.0.join(LOCK_FILE)).unwrap();
        let error = FileDisk::open(&scratch.0).unwrap().lock().unwrap_err();
        assert!(error.is_locked(), "{error}");
        drop(lock);
        drop(disk.lock().unwrap());
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_refused_and_its_target_stays() {
        let scratch = ScratchDirectory::new("lock-link");
        let disk = FileDisk::create(scratch.0.join("data")).unwrap();
        let target = scratch.0.join("target");
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, scratch.0.join("data/lock")).unwrap();
        assert!(!disk.lock().unwrap_err().is_locked());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    }

    #[test]
    fn a_locked_directory_names_its_holder_until_it_is_given_back() {
        let scratch = ScratchDirectory::new("holder");
        let disk = FileDisk::create(&scratch.0).unwrap();
        let lock = disk.lock().unwrap();
        let holder = || FileDisk::open(&scratch.0).unwrap().lock().unwrap_err().holder().cloned();
        let named = holder().expect("this process has it");
        assert_eq!((named.process, named.address), (std::process::id(), None));
        lock.announce("127.0.0.1:7");
        assert_eq!(holder().unwrap().address.as_deref(), Some("127.0.0.1:7"));
        // A mark that another process left, which has ended: its number may be in use again, by another process.
        let mark = fs::read_to_string(scratch.0.join(LOCK_FILE)).unwrap();
        fs::write(scratch.0.join(LOCK_FILE), mark.replacen(' ', " 9", 1)).unwrap();
        assert_eq!(holder(), None);
        drop(lock);
        assert_eq!(fs::read_to_string(scratch.0.join(LOCK_FILE)).unwrap(), "");
        drop(disk.lock().unwrap());
    }

    /// A child process has copies of its parent's descriptors from its fork on.
    #[test]
    fn a_lock_ends_with_its_guard_although_a_child_has_copied_descriptors() {
        let scratch = ScratchDirectory::new("copies");
        let disk = FileDisk::create(&scratch.0).unwrap();
        let lock = disk.lock_files().unwrap();
        let HeldDirectory { _directory: directory, file, .. } = &lock;
        let _copies = [&directory.as_ref().unwrap().0, &file.0].map(|file| file.try_clone().unwrap());
        let other = FileDisk::open(&scratch.0).unwrap();
        assert!(other.lock().unwrap_err().is_locked());
        drop(lock);
        drop(other.lock().unwrap());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "direct access needs multiples of 4096")]
    fn direct_access_asks_for_alignment() {
        let scratch = ScratchDirectory::new("alignment");
        let disk = FileDisk::create(&scratch.0).unwrap();
        let _ = disk.open("f", Open::Create, Caching::Direct).unwrap().write_at(&[0; 100], 0);
    }
}
