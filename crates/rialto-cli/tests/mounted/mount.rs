//! A directory that the kernel serves from a [`FaultyDisk`].

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rialto::io::{
    AlignedBuffer, BUFFER_ALIGNMENT, Caching, Disk, DiskError, FaultyDisk, File, LOCK_FILE, Open,
};
use rustix::fs::OFlags;

use crate::killer::Killer;
use crate::names::{Names, ROOT};
use crate::reluctance::Reluctance;

/// What the disk calls the file that carries the directory's lock: it keeps that name from users.
const LOCK_ON_DISK: &str = "lock-file";
/// The only file that is mapped into memory: the ring of the database's log.
const MAPPED: &str = "log-tail";
/// The kernel asks again each time: it keeps no names and no lengths.
const NEVER_KEPT: Duration = Duration::ZERO;

/// A mounted faulty disk; it is unmounted when this is dropped.
pub struct Mounted {
    pub disk: Arc<FaultyDisk>,
    pub killer: Arc<Killer>,
    pub reluctance: Arc<Reluctance>,
    at: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts the disk at a directory, which is made if it is not there.
    pub fn new(disk: Arc<FaultyDisk>, at: &Path) -> std::io::Result<Mounted> {
        let reluctance = Arc::new(Reluctance::new(disk.seed()));
        Mounted::with(disk, at, reluctance)
    }

    fn with(disk: Arc<FaultyDisk>, at: &Path, reluctance: Arc<Reluctance>) -> std::io::Result<Mounted> {
        std::fs::create_dir_all(at)?;
        let killer = Arc::<Killer>::default();
        let system = Served {
            knows_fallocate: disk.seed().is_multiple_of(2),
            disk: disk.clone(),
            killer: killer.clone(),
            reluctance: reluctance.clone(),
            names: Mutex::new(Names::new()),
            handles: Mutex::default(),
            last_handle: AtomicU64::new(0),
        };
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("rialto-faulty".to_owned()), MountOption::DefaultPermissions];
        let session = fuser::spawn_mount(system, at, &config)?;
        Ok(Mounted { disk, killer, reluctance, at: at.to_owned(), session: Some(session) })
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Mounts another disk in the place of this one, which nobody uses any more.
    pub fn replace(&mut self, disk: Arc<FaultyDisk>) {
        self.unmount();
        let (at, reluctance) = (self.at.clone(), self.reluctance.clone());
        *self = Mounted::with(disk, &at, reluctance).expect("what was mounted once is mounted again");
    }

    /// Unmounts it in this namespace. Servers that other tests have started meanwhile have copies of the mount in theirs: its session
    /// ends with the last of these, and is not waited for.
    fn unmount(&mut self) {
        drop(self.session.take());
        let device = |path: &Path| rustix::fs::stat(path).expect("the directory is there").st_dev;
        let above = self.at.parent().expect("it lies in the scratch directory");
        assert_eq!(device(&self.at), device(above), "nobody uses the mount, so it is gone");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Another disk may be mounted there meanwhile.
        if self.session.take().is_none() {
            return;
        }
        // In a failing test the server may be running still: then the mount goes with its last user.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.at).output();
    }
}

/// The file system: flat, each call passed on to the disk.
///
/// The kernel's page cache stays out of it, since the disk models one: each file is opened for direct access, except where it is
/// mapped into memory. Those pages are the kernel's until it writes them, which a kill does not prevent.
#[derive(Debug)]
struct Served {
    disk: Arc<FaultyDisk>,
    killer: Arc<Killer>,
    reluctance: Arc<Reluctance>,
    /// Where it is not, `FileDisk` reserves room by writing zeros.
    knows_fallocate: bool,
    names: Mutex<Names>,
    handles: Mutex<HashMap<u64, Handle>>,
    last_handle: AtomicU64,
}

/// An open file, or a directory as it was when it was opened.
#[derive(Debug, Clone)]
enum Handle {
    File(Arc<OpenFile>),
    Directory(Arc<Vec<(u64, FileType, String)>>),
}

#[derive(Debug)]
struct OpenFile {
    number: u64,
    /// Writes are durable when the file is synced.
    file: Arc<dyn File>,
    /// Writes are durable when they are answered, if it was opened so.
    synced: Option<Arc<dyn File>>,
    /// Opened past the page cache: lengths and places are whole blocks.
    direct: bool,
    /// Mapped into memory: the kernel writes its pages, also after the process has ended.
    is_mapped: bool,
}

impl OpenFile {
    /// What a call moves no part of.
    fn block(&self) -> usize {
        if self.direct { BUFFER_ALIGNMENT } else { 1 }
    }
}

/// The error as the kernel knows it. The power is gone: an I/O error.
fn errno(error: &DiskError) -> Errno {
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

/// What a name is called on the disk.
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
    /// Before each call that changes something: whether it takes place, which it does not if the process was killed in it.
    fn step(&self) -> Result<(), Errno> {
        if self.killer.passes(self.disk.steps() + 1) { Ok(()) } else { Err(Errno::EIO) }
    }

    fn add(&self, handle: Handle) -> FileHandle {
        let number = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        self.handles.lock().unwrap().insert(number, handle);
        FileHandle(number)
    }

    fn open_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        match self.handles.lock().unwrap().get(&handle.0) {
            Some(Handle::File(file)) => Ok(file.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// The file of this number, by an open handle of it where there is one: it may have no name any more.
    fn file(&self, number: u64, handle: Option<FileHandle>) -> Result<Arc<dyn File>, Errno> {
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

    fn attributes_of(&self, number: u64, handle: Option<FileHandle>) -> Result<FileAttr, Errno> {
        if number == ROOT {
            return Ok(attributes(ROOT, 0));
        }
        let length = self.file(number, handle)?.length().map_err(|error| errno(&error))?;
        Ok(attributes(number, length))
    }

    /// Opens a file and says how the kernel is to go about it.
    fn opened(&self, name: &str, flags: i32, open: Open) -> Result<(u64, FileHandle, FopenFlags), Errno> {
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

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        in_root(parent)?;
        let name = on_disk(name)?;
        let file = self.disk.open(name, Open::Existing, Caching::Buffered).map_err(|error| errno(&error))?;
        let length = file.length().map_err(|error| errno(&error))?;
        Ok(attributes(self.names.lock().unwrap().number(name), length))
    }

    fn make(
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

    fn read_file(&self, handle: FileHandle, offset: u64, bytes: u32) -> Result<Vec<u8>, Errno> {
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

    /// Writes as much of it as the call moves.
    fn write_file(&self, handle: FileHandle, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let open = self.open_file(handle)?;
        let whole = |number: u64| number.is_multiple_of(BUFFER_ALIGNMENT as u64);
        if open.direct && !(whole(offset) && whole(data.len() as u64)) {
            return Err(Errno::EINVAL);
        }
        // The kernel takes it for an error of the disk if not all of a page of a map is written.
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

    fn list(&self) -> Result<Vec<(u64, FileType, String)>, Errno> {
        let names = self.disk.list().map_err(|error| errno(&error))?;
        let dots = [".", ".."].map(|name| (ROOT, FileType::Directory, name.to_owned()));
        let files = names.into_iter().map(|name| {
            let number = self.names.lock().unwrap().number(&name);
            let name = if name == LOCK_ON_DISK { LOCK_FILE.to_owned() } else { name };
            (number, FileType::RegularFile, name)
        });
        Ok(dots.into_iter().chain(files).collect())
    }

    fn take_away(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        in_root(parent)?;
        let name = on_disk(name)?;
        self.step()?;
        self.disk.remove(name).map_err(|error| errno(&error))?;
        self.names.lock().unwrap().remove(name);
        Ok(())
    }

    fn give_name(
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

fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent, name) {
            Ok(attributes) => reply.entry(&NEVER_KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(number.0, handle) {
            Ok(attributes) => reply.attr(&NEVER_KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            if let Some(size) = size {
                let file = self.file(number.0, handle)?;
                self.step()?;
                file.set_length(size).map_err(|error| errno(&error))?;
            }
            self.attributes_of(number.0, handle)
        };
        match set() {
            Ok(attributes) => reply.attr(&NEVER_KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.take_away(parent, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.give_name([parent, new_parent], name, new_name, flags));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(name) = self.names.lock().unwrap().name(number.0) else {
            return reply.error(Errno::ENOENT);
        };
        let writes = OFlags::from_bits_retain(flags.0 as u32).intersects(OFlags::WRONLY | OFlags::RDWR);
        let open = if writes { Open::Existing } else { Open::ReadOnly };
        let opened = self.reluctance.lets_pass().and_then(|()| self.opened(&name, flags.0, open));
        match opened {
            Ok((_, handle, how)) => reply.opened(handle, how),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(parent, name, flags) {
            Ok((attributes, handle, how)) => {
                reply.created(&NEVER_KEPT, &attributes, Generation(0), handle, how)
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(handle, offset, bytes) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _how: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_file(handle, offset, data) {
            Ok(moved) => reply.written(moved as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(
        &self,
        _: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.lock().unwrap().remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _number: INodeNo, handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        let sync = || {
            let open = self.open_file(handle)?;
            self.reluctance.lets_pass()?;
            self.step()?;
            open.file.sync().map_err(|error| errno(&error))
        };
        answer(reply, sync());
    }

    fn opendir(&self, _: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.list() {
            Ok(list) => reply.opened(self.add(Handle::Directory(Arc::new(list))), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(Handle::Directory(list)) = self.handles.lock().unwrap().get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        // The list may be read again from its start: then it is to be that of now.
        let list = if offset == 0 { self.list().map(Arc::new) } else { Ok(list) };
        let list = match list {
            Ok(list) => list,
            Err(error) => return reply.error(error),
        };
        self.handles.lock().unwrap().insert(handle.0, Handle::Directory(list.clone()));
        for (at, (number, kind, name)) in list.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*number), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles.lock().unwrap().remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _number: INodeNo, _handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        let sync = || {
            self.reluctance.lets_pass()?;
            self.step()?;
            self.disk.sync_directory().map_err(|error| errno(&error))
        };
        answer(reply, sync());
    }

    fn fallocate(
        &self,
        _: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = || {
            if mode != 0 || !self.knows_fallocate {
                return Err(Errno::EOPNOTSUPP);
            }
            let open = self.open_file(handle)?;
            self.reluctance.lets_pass()?;
            self.step()?;
            open.file.allocate(offset + length).map_err(|error| errno(&error))
        };
        answer(reply, allocate());
    }
}
