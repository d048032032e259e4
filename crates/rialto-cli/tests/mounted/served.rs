//! The calls of a file system, served from a [`FaultyDisk`].

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, RenameFlags};
use rialto::io::{
    AlignedBuffer, BUFFER_ALIGNMENT, Caching, Disk, DiskError, FaultyDisk, File, LOCK_FILE, Open,
};
use rustix::fs::OFlags;

use crate::killer::Killer;
use crate::names::{Names, ROOT};
use crate::reluctance::Reluctance;

/// The disk's name for the file of the directory's lock: it keeps the original name from users.
const LOCK_ON_DISK: &str = "lock-file";
/// The only file that is mapped into memory: the ring of the database's log.
const MAPPED: &str = "log-tail";

/// The file system. It is flat, and passes each call to the disk.
///
/// The kernel's page cache is not used, because the disk models one: each file is opened for direct access, except
/// where it is mapped into memory. Mapped pages belong to the kernel until it writes them, and a kill does not prevent
/// that.
#[derive(Debug)]
pub struct Served {
    pub disk: Arc<FaultyDisk>,
    killer: Arc<Killer>,
    pub reluctance: Arc<Reluctance>,
    /// If not, `FileDisk` reserves room by writing zeros.
    pub knows_fallocate: bool,
    pub names: Mutex<Names>,
    pub handles: Mutex<HashMap<u64, Handle>>,
    last_handle: AtomicU64,
}

/// An open file, or a directory as it was when it was opened.
#[derive(Debug, Clone)]
pub enum Handle {
    File(Arc<OpenFile>),
    Directory(Arc<Vec<(u64, FileType, String)>>),
}

#[derive(Debug)]
pub struct OpenFile {
    number: u64,
    /// Writes are durable when the file is synced.
    pub file: Arc<dyn File>,
    /// Writes are durable when they are answered, if it was opened so.
    synced: Option<Arc<dyn File>>,
    /// Opened past the page cache: lengths and offsets are whole blocks.
    direct: bool,
    /// Mapped into memory: the kernel writes its pages, also after the process has ended.
    is_mapped: bool,
}

impl OpenFile {
    /// The unit of its calls: a call moves whole blocks.
    fn block(&self) -> usize {
        if self.direct { BUFFER_ALIGNMENT } else { 1 }
    }
}

/// The kernel's number of an error. After a loss of power it is an I/O error.
pub fn errno(error: &DiskError) -> Errno {
    use std::io::ErrorKind;
    match (error.source.raw_os_error(), error.kind()) {
        (Some(code), _) => Errno::from_i32(code),
        (None, ErrorKind::NotFound) => Errno::ENOENT,
        (None, ErrorKind::AlreadyExists) => Errno::EEXIST,
        (None, ErrorKind::InvalidInput) => Errno::EINVAL,
        (None, ErrorKind::PermissionDenied) => Errno::EBADF,
        (None, _) => Errno::EIO,
    }
}

/// The disk's name for a name.
fn on_disk(name: &OsStr) -> Result<&str, Errno> {
    match name.to_str() {
        Some(LOCK_FILE) => Ok(LOCK_ON_DISK),
        Some(LOCK_ON_DISK) | None => Err(Errno::EINVAL),
        Some(name) => Ok(name),
    }
}

fn in_root(parent: INodeNo) -> Result<(), Errno> {
    if parent.0 == ROOT { Ok(()) } else { Err(Errno::ENOTDIR) }
}

fn attributes(number: u64, length: u64) -> FileAttr {
    let (kind, perm) =
        if number == ROOT { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o644) };
    let time: SystemTime = UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(number),
        size: length,
        blocks: length.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: BUFFER_ALIGNMENT as u32,
        flags: 0,
    }
}

impl Served {
    /// Serves this disk. If its seed is odd, the mount has no `fallocate`.
    pub fn new(disk: Arc<FaultyDisk>, killer: Arc<Killer>, reluctance: Arc<Reluctance>) -> Served {
        Served {
            knows_fallocate: disk.seed().is_multiple_of(2),
            disk,
            killer,
            reluctance,
            names: Mutex::new(Names::new()),
            handles: Mutex::default(),
            last_handle: AtomicU64::new(0),
        }
    }

    /// Called before each call that changes something. An error if the call does not take place, because the process
    /// was killed in it.
    pub fn step(&self) -> Result<(), Errno> {
        if self.killer.passes(self.disk.steps() + 1) { Ok(()) } else { Err(Errno::EIO) }
    }

    pub fn add(&self, handle: Handle) -> FileHandle {
        let number = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        self.handles.lock().unwrap().insert(number, handle);
        FileHandle(number)
    }

    pub fn open_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        match self.handles.lock().unwrap().get(&handle.0) {
            Some(Handle::File(file)) => Ok(file.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// The file of this number; by an open handle of it if there is one, because the file may have no name any more.
    pub fn file(&self, number: u64, handle: Option<FileHandle>) -> Result<Arc<dyn File>, Errno> {
        if let Some(handle) = handle {
            return Ok(self.open_file(handle)?.file.clone());
        }
        if let Some(name) = self.names.lock().unwrap().name(number) {
            return self.disk.open(&name, Open::Existing, Caching::Buffered).map_err(|error| errno(&error));
        }
        let handles = self.handles.lock().unwrap();
        let open = handles.values().find_map(|handle| match handle {
            Handle::File(file) if file.number == number => Some(file.file.clone()),
            _ => None,
        });
        open.ok_or(Errno::ENOENT)
    }

    pub fn attributes_of(&self, number: u64, handle: Option<FileHandle>) -> Result<FileAttr, Errno> {
        if number == ROOT {
            return Ok(attributes(ROOT, 0));
        }
        let length = self.file(number, handle)?.length().map_err(|error| errno(&error))?;
        Ok(attributes(number, length))
    }

    /// Opens a file and tells the kernel how to access it.
    pub fn opened(&self, name: &str, flags: i32, open: Open) -> Result<(u64, FileHandle, FopenFlags), Errno> {
        let flags = OFlags::from_bits_retain(flags as u32);
        let failed = |error: DiskError| errno(&error);
        let file = self.disk.open(name, open, Caching::Buffered).map_err(failed)?;
        let synced = flags
            .contains(OFlags::DSYNC)
            .then(|| self.disk.open(name, Open::Existing, Caching::DirectSync).map_err(failed));
        let direct = flags.contains(OFlags::DIRECT);
        let is_mapped = name == MAPPED;
        let number = self.names.lock().unwrap().number(name);
        let open = OpenFile { number, file, synced: synced.transpose()?, direct, is_mapped };
        let handle = self.add(Handle::File(Arc::new(open)));
        // A map needs the kernel's pages.
        let how = if is_mapped { FopenFlags::empty() } else { FopenFlags::FOPEN_DIRECT_IO };
        Ok((number, handle, how))
    }

    pub fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        in_root(parent)?;
        let name = on_disk(name)?;
        let file = self.disk.open(name, Open::Existing, Caching::Buffered).map_err(|error| errno(&error))?;
        let length = file.length().map_err(|error| errno(&error))?;
        Ok(attributes(self.names.lock().unwrap().number(name), length))
    }

    pub fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle, FopenFlags), Errno> {
        in_root(parent)?;
        let name = on_disk(name)?;
        self.reluctance.lets_pass()?;
        self.step()?;
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let open = if exclusive { Open::CreateNew } else { Open::Create };
        let (number, handle, how) = self.opened(name, flags, open)?;
        Ok((self.attributes_of(number, Some(handle))?, handle, how))
    }

    pub fn read_file(&self, handle: FileHandle, offset: u64, bytes: u32) -> Result<Vec<u8>, Errno> {
        let open = self.open_file(handle)?;
        let failed = |error: DiskError| errno(&error);
        let length = open.file.length().map_err(failed)?;
        let mut length = u64::from(bytes).min(length.saturating_sub(offset)) as usize;
        if !open.is_mapped {
            length = self.reluctance.moves(length, open.block())?;
        }
        let mut buffer = vec![0; length];
        open.file.read_at(&mut buffer, offset).map_err(failed)?;
        Ok(buffer)
    }

    /// Writes as many bytes as the call moves.
    pub fn write_file(&self, handle: FileHandle, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let open = self.open_file(handle)?;
        let whole = |number: u64| number.is_multiple_of(BUFFER_ALIGNMENT as u64);
        if open.direct && !(whole(offset) && whole(data.len() as u64)) {
            return Err(Errno::EINVAL);
        }
        // The kernel takes a short write of a page of a map for an error of the disk.
        let moved =
            if open.is_mapped { data.len() } else { self.reluctance.moves(data.len(), open.block())? };
        let data = &data[..moved];
        let step = self.step();
        if !open.is_mapped {
            step?;
        }
        let written = match &open.synced {
            Some(synced) => {
                let mut buffer = AlignedBuffer::zeroed(data.len());
                buffer.copy_from_slice(data);
                synced.write_at(&buffer, offset)
            }
            None => open.file.write_at(data, offset),
        };
        written.map(|()| moved).map_err(|error| errno(&error))
    }

    pub fn list(&self) -> Result<Vec<(u64, FileType, String)>, Errno> {
        let names = self.disk.list().map_err(|error| errno(&error))?;
        let dots = [".", ".."].map(|name| (ROOT, FileType::Directory, name.to_owned()));
        let files = names.into_iter().map(|name| {
            let number = self.names.lock().unwrap().number(&name);
            let name = if name == LOCK_ON_DISK { LOCK_FILE.to_owned() } else { name };
            (number, FileType::RegularFile, name)
        });
        Ok(dots.into_iter().chain(files).collect())
    }

    pub fn take_away(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        in_root(parent)?;
        let name = on_disk(name)?;
        self.step()?;
        self.disk.remove(name).map_err(|error| errno(&error))?;
        self.names.lock().unwrap().remove(name);
        Ok(())
    }

    pub fn give_name(
        &self,
        parents: [INodeNo; 2],
        from: &OsStr,
        to: &OsStr,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        parents.into_iter().try_for_each(in_root)?;
        if !flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (on_disk(from)?, on_disk(to)?);
        self.step()?;
        self.disk.rename(from, to).map_err(|error| errno(&error))?;
        self.names.lock().unwrap().rename(from, to);
        Ok(())
    }
}
