//! The seam: the kernel's interface to a disk, and what it may rely on.

use std::any::Any;
use std::fmt::{self, Debug};
use std::io;
use std::sync::Arc;

use super::file::HeldDirectory;
use super::{BUFFER_ALIGNMENT, DiskError, DiskResult, SharedMap};

/// The file that carries a directory's lock; no other file may have this name, and [`Disk::list`] leaves it out.
pub const LOCK_FILE: &str = "lock";

/// The name under which errors of the directory itself are reported.
pub(super) const DIRECTORY: &str = ".";

/// Whether a file has to exist before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Existing,
    /// Opened if it exists, else created empty.
    Create,
    /// Created empty; an error if it exists.
    CreateNew,
    /// It must exist, and writing is refused.
    ReadOnly,
}

impl Open {
    pub(super) fn creates(self) -> bool {
        matches!(self, Open::Create | Open::CreateNew)
    }
}

/// How a file's bytes travel between the caller and the device.
///
/// With [`Direct`](Caching::Direct) and [`DirectSync`](Caching::DirectSync) each buffer's address, each length and each
/// offset is a multiple of [`BUFFER_ALIGNMENT`](super::BUFFER_ALIGNMENT) (use [`AlignedBuffer`](super::AlignedBuffer)):
/// debug builds assert it on every disk, a release build gets the system's `EINVAL`. Where a file system refuses direct
/// access the file is opened buffered, with the same crash guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Through the system's page cache. A write is durable after the next [`File::sync`].
    Buffered,
    /// Past the page cache (`O_DIRECT`). The device's own cache may still hold a write: it is durable only after the
    /// next [`File::sync`].
    Direct,
    /// Past both caches (`O_DIRECT|O_DSYNC`): a write is durable when [`File::write_at`] returns, its length included,
    /// and so is a change of length. Therefore [`File::sync`] does nothing.
    DirectSync,
}

/// A data directory: a flat set of named files, its lock, and the memory beside it that outlives a process.
///
/// What survives a crash of the machine: a file's bytes and length as they were when a [`File::sync`] of it began that
/// returned `Ok`, and the names as they were when a [`sync_directory`](Disk::sync_directory) began that returned `Ok`.
/// Of everything else any part may be lost or kept, except that a rename is never half done. Syncing a new file does
/// not make its name durable. After a failed sync nothing that it covered may be trusted, even if a later sync succeeds
/// (I4).
///
/// Names are plain file names: no `/`, not empty, not `.`, `..` or [`LOCK_FILE`].
pub trait Disk: Send + Sync + Debug {
    /// Opens a file.
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>>;

    /// The names of all files and shared maps in the directory, sorted.
    fn list(&self) -> DiskResult<Vec<String>>;

    /// Gives a file another name, atomically, and replaces a file that has that name. Open handles stay with their
    /// file. Durable after [`sync_directory`](Disk::sync_directory). Not for shared maps.
    fn rename(&self, from: &str, to: &str) -> DiskResult<()>;

    /// Removes a file or a shared map. Open handles and maps stay usable until they are dropped.
    fn remove(&self, name: &str) -> DiskResult<()>;

    /// Makes creations, renames and removals durable. Never tried again after a failure.
    fn sync_directory(&self) -> DiskResult<()>;

    /// Takes the directory for this process until the guard is dropped, or the process ends in any way. An error of
    /// kind `WouldBlock` ([`DiskError::is_locked`]) if another process, or this one, holds it.
    fn lock(&self) -> DiskResult<DirectoryLock>;

    /// Memory of `bytes` bytes, a positive multiple of 8, that outlives the process but not necessarily the machine
    /// (tag it with [`boot`](Disk::boot)). Found again under its name with its contents; created, zeroed, when missing
    /// or when [`shared_bytes`](Disk::shared_bytes) is another number (the old contents are then gone). Its room is
    /// reserved here, so that a full disk is an error now and not a `SIGBUS` later.
    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap>;

    /// The size of the shared map of this name, or `None` if there is none. A map whose configured size has changed can
    /// thereby be read before it is created anew.
    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>>;

    /// A number that changes with each start of the machine: contents of shared maps are valid only under the boot that
    /// wrote them.
    fn boot(&self) -> u128;

    /// Whether the times of its calls are meaningful: not for disks that are memory.
    fn has_speed(&self) -> bool {
        true
    }

    /// What this disk is, for people: its path, or its parameters.
    fn describe(&self) -> String;
}

/// An open file. Positions are explicit, so one handle serves any number of threads.
pub trait File: Send + Sync + Debug {
    /// The name it was opened under.
    fn name(&self) -> &str;

    /// Fills `buffer` from `offset`. An `UnexpectedEof` error if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()>;

    /// Fills each of these buffers from its offset, in any order, or side by side. The error is that of one of the reads; the buffers
    /// may have any content then. Without a buffer this does nothing.
    fn read_each(&self, reads: &mut [(u64, &mut [u8])]) -> DiskResult<()> {
        reads.iter_mut().try_for_each(|(offset, buffer)| self.read_at(buffer, *offset))
    }

    /// Writes all of `buffer` at `offset`; the file grows if it ends before. After an error any part may have been
    /// written.
    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()>;

    /// Writes each of these buffers at its offset, in any order, or side by side; no two overlap. Buffers and offsets are aligned as for
    /// [`File::write_at`], and the file grows as there. The error is that of one of the writes; any part of any of them may
    /// have been written then. Without a buffer this does nothing.
    fn write_each(&self, writes: &[(u64, &[u8])]) -> DiskResult<()> {
        writes.iter().try_for_each(|(offset, buffer)| self.write_at(buffer, *offset))
    }

    /// Makes the file's bytes and length durable (`fdatasync`). Never tried again after a failure (I4).
    fn sync(&self) -> DiskResult<()>;

    /// The length in bytes.
    fn length(&self) -> DiskResult<u64>;

    /// Cuts or extends (with zeros, not reserved) to `bytes`. Durable after [`sync`](File::sync).
    fn set_length(&self, bytes: u64) -> DiskResult<()>;

    /// Reserves room for the first `bytes` bytes, so that writing there cannot meet a full disk; the file grows, with
    /// zeros, if it is shorter. Durable after [`sync`](File::sync).
    fn allocate(&self, bytes: u64) -> DiskResult<()>;
}

/// Holds a directory's lock until it is dropped.
pub struct DirectoryLock {
    guard: Box<dyn Any + Send + Sync>,
}

impl DirectoryLock {
    /// A lock that is released when `guard` is dropped.
    pub fn new(guard: impl Any + Send + Sync) -> DirectoryLock {
        DirectoryLock { guard: Box::new(guard) }
    }

    /// Tells other processes that find the directory locked where this one serves the database in it. Does nothing on a
    /// disk that only this process can open.
    pub fn announce(&self, address: &str) {
        if let Some(held) = self.guard.downcast_ref::<HeldDirectory>() {
            held.mark(Some(address));
        }
    }
}

impl Debug for DirectoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryLock")
    }
}

/// Refuses a name that is not a plain file name.
pub(super) fn check_name(name: &str, operation: &'static str) -> DiskResult<()> {
    if name.is_empty() || name == "." || name == ".." || name == LOCK_FILE || name.contains(['/', '\0']) {
        let cause = "expected a plain file name: not empty, without \"/\", not \".\", \"..\" or \"lock\"";
        return Err(DiskError::new(name, 0, operation, io::Error::new(io::ErrorKind::InvalidInput, cause)));
    }
    Ok(())
}

/// Refuses sizes that a shared map cannot have.
pub(super) fn check_map(name: &str, bytes: usize) -> DiskResult<()> {
    check_name(name, "map")?;
    if bytes == 0 || !bytes.is_multiple_of(8) {
        let cause = format!("expected a positive multiple of 8 bytes, found {bytes}");
        return Err(DiskError::new(name, 0, "map", io::Error::new(io::ErrorKind::InvalidInput, cause)));
    }
    Ok(())
}

/// In debug builds, asserts what direct access requires, on every disk, so that a caller's mistake shows on each.
#[inline]
pub(super) fn assert_aligned(caching: Caching, buffer: &[u8], offset: u64) {
    if cfg!(debug_assertions) && caching != Caching::Buffered {
        let (address, length) = (buffer.as_ptr() as usize, buffer.len());
        assert!(
            address.is_multiple_of(BUFFER_ALIGNMENT)
                && length.is_multiple_of(BUFFER_ALIGNMENT)
                && offset.is_multiple_of(BUFFER_ALIGNMENT as u64),
            "direct access needs multiples of {BUFFER_ALIGNMENT}: address {address:#x}, length {length}, offset {offset}"
        );
    }
}
