//! An open file of the faulty disk.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::disk::assert_aligned;
use super::super::{Caching, DiskError, DiskResult, File};
use super::hangs::Hangs;
use super::inode::{SECTOR_BYTES, SharedInode};
use super::stray::{Stray, any_part};
use super::{FaultKind, FaultyDiskState, StepFate, eio, enospc};

/// A handle belongs to the disk on which it was opened: it is down when that disk is down, and stays so after a
/// restart.
///
/// Locks: the disk's state first, then the file.
pub(super) struct FaultyFile {
    pub(super) name: String,
    /// The number of its directory.
    pub(super) folder: usize,
    pub(super) writable: bool,
    pub(super) caching: Caching,
    pub(super) node: Arc<SharedInode>,
    pub(super) state: Arc<Mutex<FaultyDiskState>>,
    pub(super) hangs: Arc<Hangs>,
}

impl fmt::Debug for FaultyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyFile").field("name", &self.name).field("caching", &self.caching).finish()
    }
}

impl FaultyFile {
    fn check_writable(&self, offset: u64, operation: &'static str) -> DiskResult<()> {
        if self.writable {
            return Ok(());
        }
        Err(DiskError::new(&self.name, offset, operation, io::ErrorKind::PermissionDenied))
    }

    /// A change of length happens wholly or not at all, except an allocation that finds the disk full.
    fn change_length(&self, bytes: u64, operation: &'static str, grows: bool) -> DiskResult<()> {
        self.check_writable(bytes, operation)?;
        self.hangs.pass(FaultKind::Write, &self.name);
        let mut state = self.state.lock();
        let step = state.step(&self.name, bytes, operation)?;
        if state.trips(FaultKind::Write, self.folder, &self.name) {
            return Err(eio(&self.name, bytes, operation));
        }
        let free = state.free();
        let mut inode = self.node.lock();
        let missing = inode.missing_blocks(bytes);
        if grows && missing > 0 && (missing > free || state.trips(FaultKind::Full, self.folder, &self.name)) {
            let length = inode.length();
            let sectors = bytes.saturating_sub(length).min(free).div_ceil(SECTOR_BYTES);
            inode.allocate(length + state.random.below(sectors.max(1)) * SECTOR_BYTES);
            return Err(enospc(&self.name, bytes, operation));
        }
        if state.happens(step) {
            if grows { inode.allocate(bytes) } else { inode.set_length(bytes) }
        }
        drop(inode);
        state.finish(step, &self.name, bytes, operation)?;
        if self.caching == Caching::DirectSync {
            self.node.lock().sync();
        }
        Ok(())
    }
}

impl File for FaultyFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DiskResult<()> {
        assert_aligned(self.caching, buffer, offset);
        self.hangs.pass(FaultKind::Read, &self.name);
        let mut state = self.state.lock();
        state.check(&self.name, offset, "read")?;
        if state.trips(FaultKind::Read, self.folder, &self.name) {
            return Err(eio(&self.name, offset, "read"));
        }
        if self.node.lock().read(buffer, offset) {
            return Ok(());
        }
        Err(DiskError::new(&self.name, offset, "read", io::ErrorKind::UnexpectedEof))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> DiskResult<()> {
        assert_aligned(self.caching, buffer, offset);
        self.check_writable(offset, "write")?;
        self.hangs.pass(FaultKind::Write, &self.name);
        let mut state = self.state.lock();
        let step = state.step(&self.name, offset, "write")?;
        let free = state.free();
        let mut inode = self.node.lock();
        let missing = inode.missing_blocks(offset + buffer.len() as u64);
        let fails = state.trips(FaultKind::Write, self.folder, &self.name);
        let full = !fails
            && (state.trips(FaultKind::FullToOverwrite, self.folder, &self.name)
                || missing > 0 && (missing > free || state.trips(FaultKind::Full, self.folder, &self.name)));
        let sectors = (buffer.len() as u64).div_ceil(SECTOR_BYTES);
        let mut part = |sectors: u64| {
            let bytes = state.random.below(sectors.max(1)) * SECTOR_BYTES;
            &buffer[..buffer.len().min(bytes as usize)]
        };
        // A write that finds the disk full is never whole; one that fails otherwise may be.
        let (written, error) = if fails {
            (part(sectors + 1), Some(eio(&self.name, offset, "write")))
        } else if full {
            (part(sectors.min(free.div_ceil(SECTOR_BYTES))), Some(enospc(&self.name, offset, "write")))
        } else if step == StepFate::Dies {
            (part(sectors + 1), None)
        } else {
            (buffer, None)
        };
        let is_whole = error.is_none() && step == StepFate::Whole && !buffer.is_empty();
        let kind = if is_whole { state.strays(self.folder, &self.name) } else { None };
        let lost = kind.map(|_| any_part(&mut state.random, offset, buffer.len()));
        match &lost {
            Some(lost) => inode.write_but(buffer, offset, lost.clone()),
            None => inode.write(written, offset),
        }
        drop(inode);
        if let Some(error) = error {
            return Err(error);
        }
        if let Some(lost) = lost {
            let (part, from) = (&buffer[lost.clone()], offset + lost.start as u64);
            let is_misdirected = kind == Some(FaultKind::MisdirectedWrite);
            let landed = is_misdirected.then(|| state.land(self.folder, &self.node, from, part)).flatten();
            let (step, name, bytes) = (state.steps, self.name.clone(), lost.len() as u64);
            state.strays.push(Stray { step, name, offset: from, bytes, landed });
        }
        state.finish(step, &self.name, offset, "write")?;
        if self.caching == Caching::DirectSync && !buffer.is_empty() {
            if let Some(reverts) = state.sync_fails(self.folder, &self.name) {
                let mut inode = self.node.lock();
                inode.fail_last();
                if reverts {
                    inode.revert();
                }
                return Err(eio(&self.name, offset, "write"));
            }
            self.node.lock().sync_last();
        }
        Ok(())
    }

    fn sync(&self) -> DiskResult<()> {
        self.hangs.pass(FaultKind::Sync, &self.name);
        let mut state = self.state.lock();
        if self.caching == Caching::DirectSync {
            return state.check(&self.name, 0, "sync");
        }
        let step = state.step(&self.name, 0, "sync")?;
        state.finish(step, &self.name, 0, "sync")?;
        let mut inode = self.node.lock();
        if let Some(reverts) = state.sync_fails(self.folder, &self.name) {
            inode.fail_sync();
            if reverts {
                inode.revert();
            }
            return Err(eio(&self.name, 0, "sync"));
        }
        inode.sync();
        Ok(())
    }

    fn length(&self) -> DiskResult<u64> {
        self.state.lock().check(&self.name, 0, "length")?;
        Ok(self.node.lock().length())
    }

    fn set_length(&self, bytes: u64) -> DiskResult<()> {
        self.change_length(bytes, "set length", false)
    }

    fn allocate(&self, bytes: u64) -> DiskResult<()> {
        self.change_length(bytes, "allocate", true)
    }
}
