//! The kernel's calls to the file system of a faulty disk.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use rialto::io::{Disk, Open};
use rustix::fs::OFlags;

use crate::served::{Handle, Served, errno};

/// The kernel asks again each time: it caches no names and no lengths.
const NEVER_KEPT: Duration = Duration::ZERO;

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
        // The list may be read again from its start: then it has to be the current one.
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
