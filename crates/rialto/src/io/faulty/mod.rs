//! The faulty disk: a disk in memory that loses whatever a real one may lose.
//!
//! # The fault model
//!
//! All choices come from one seed. A run of one thread with the same seed and the same calls fails in the same way.
//!
//! **Steps.** Each operation that changes something is a step: creating a file or a shared map, write, sync, set
//! length, allocate, rename, remove, sync of the directory. Steps are numbered from 1 ([`steps`](FaultyDisk::steps)),
//! also when they fail. Opening what exists, reads, `list` and `length` are no steps, nor is the sync of a
//! [`DirectSync`](super::Caching::DirectSync) file, which does nothing.
//!
//! **Machine crash** ([`crash_at`](FaultyDisk::crash_at), [`crash`](FaultyDisk::crash)). The step at which the power is
//! lost fails, having happened wholly, in part or not at all. Everything after it fails, reads included.
//! [`restart`](FaultyDisk::restart) returns the disk that the next boot finds:
//!
//! * What was synced is there: bytes and length of a file as they were when its last successful sync began.
//! * Of the changes of a file since then any subset is kept, in any order. Of a write, each 512-byte sector is kept or
//!   lost on its own: a sector is never torn within, and never holds bytes that were not written there. A write beyond
//!   the end may leave its length and lose its bytes; those read as zeros.
//! * Names are as they were when the directory was last synced, plus any subset of the later creations, renames and
//!   removals that makes sense. A rename is kept or lost, never half done. Syncing a file does not make its name
//!   durable; a name may be durable while its file is still empty.
//! * Each shared map is gone, or keeps some of its pages, the others being zeros; the boot has another number.
//!
//! **Process crash** ([`kill_at`](FaultyDisk::kill_at), [`kill`](FaultyDisk::kill)). The step at which it happens
//! fails, having happened or not; of a write, a first part has happened. The next process finds everything else as it
//! was, synced or not, with the same shared maps under the same boot. What was not synced is still not synced.
//!
//! **Errors** ([`fail`](FaultyDisk::fail), [`fail_always`](FaultyDisk::fail_always)), chosen by the file's name:
//!
//! * *Read*: fails; the bytes are unharmed. ([`damage`](FaultyDisk::damage) harms them without an error.)
//! * *Write* (also of set length and allocate): fails; a first part of the write may have happened.
//! * *Full*: a call that needs new blocks fails, a first part of it done (an allocation keeps the blocks that it got):
//!   writes behind the part of the file that was written or allocated, allocations, new shared maps. Writes to existing
//!   room still succeed. A disk whose room is used up ([`leave_room`](FaultyDisk::leave_room)) fails in the same way;
//!   files that are removed give their room back.
//! * *Full to overwrite*: writes fail in this way, wherever they go: the file system writes overwritten blocks to
//!   another place, or the device has less room than it said.
//! * *Sync*: fails, and the page cache forgets that the pages were dirty. This process, and the next one if the machine
//!   stays up, read them as written; yet a crash of the machine may lose any of them even after a later sync succeeded,
//!   unless they were written again before that sync. A failed sync of the directory aborts the file system's journal:
//!   from then on no sync of the directory succeeds. *Sync reverts*: the same, but those pages read at once as the
//!   device has them: some file systems discard what they could not write.
//!
//! **Stray writes** ([`fail`](FaultyDisk::fail) of [`LostWrite`](FaultKind::LostWrite) or
//! [`MisdirectedWrite`](FaultKind::MisdirectedWrite), [`strays`](FaultyDisk::strays)): consecutive whole sectors of a
//! write that succeeds, or all of it, do not reach their place. The place keeps the bytes that it had, or zeros where
//! the file ended before. No sync changes that. Those of a misdirected write land in a file of the same directory, on
//! the device at once, at the same offset within a block as their own place.
//!
//! **Hanging calls** ([`hang`](FaultyDisk::hang)): they do nothing until they are released, and then continue.
//!
//! **Several directories** ([`directory`](FaultyDisk::directory)): other disks of the same machine. Their steps are
//! counted together, all lose their power in one step, and they share the room. Names, syncs of the directory, locks
//! and injected errors are each directory's own; [`mend`](FaultyDisk::mend) ends the errors of all.
//!
//! **Trace** ([`trace`](FaultyDisk::trace), [`take_trace`](FaultyDisk::take_trace)). For each step that succeeds, the
//! trace keeps the disk as it would be if the power had been lost in that step. One run of many threads thereby gives a
//! crash at each of its steps.
//!
//! Not modelled: sectors that decay by themselves ([`damage`](FaultyDisk::damage) does it on demand), a device that
//! reports success for each sync without doing it, a file system that exposes stale blocks.

mod directory;
mod file;
mod folder;
mod hangs;
mod inode;
mod saved;
mod stray;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use self::directory::DirectoryChange;
use self::file::FaultyFile;
use self::folder::Folder;
use self::hangs::Hangs;
use self::inode::SharedInode;
pub use self::stray::Stray;
pub use self::trace::TracedStep;
use super::disk::{DIRECTORY, LOCK_FILE, check_map, check_name};
use super::memory::{FlagLock, is_file, is_map};
use super::{Caching, DirectoryLock, Disk, DiskError, DiskResult, File, Open, Random, SharedMap};

/// The calls that an injected error affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Reads of a file (`EIO`).
    Read,
    /// Writes, changes of length and allocations of a file (`EIO`).
    Write,
    /// Syncs of a file, or of the directory, whose name here is `.` (`EIO`); also writes of a `DirectSync` file, which
    /// sync themselves.
    Sync,
    /// The same, and what was to be synced then reads as it was before.
    SyncReverts,
    /// Calls that need new blocks (`ENOSPC`).
    Full,
    /// Writes, also where the file has its blocks (`ENOSPC`).
    FullToOverwrite,
    /// Writes that succeed although a part of them is lost: its place keeps what it had.
    LostWrite,
    /// The same, and that part is written to another place.
    MisdirectedWrite,
}

/// A disk in memory that fails as it is told, and that has lost after a crash what a real disk may lose. Its module
/// states the fault model.
///
/// A test opens a database on it, sets [`crash_at`](Self::crash_at), works until calls fail, drops the database, and
/// opens the next one on the disk that [`restart`](Self::restart) returns.
#[derive(Debug)]
pub struct FaultyDisk {
    seed: u64,
    /// Which directory of the machine it is.
    number: usize,
    state: Arc<Mutex<FaultyDiskState>>,
    hangs: Arc<Hangs>,
}

/// How the disk responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    /// The machine has crashed.
    Crashed,
    /// The process was killed.
    Killed,
}

#[derive(Debug)]
struct FaultyDiskState {
    random: Random,
    power: Power,
    steps: u64,
    /// The step at which the power changes.
    end: Option<(u64, Power)>,
    faults: Vec<Fault>,
    folders: Vec<Folder>,
    boot: u128,
    /// The bytes that all files and shared maps together can occupy.
    room: Option<u64>,
    has_speed: bool,
    /// The steps since a trace was asked for.
    trace: Option<Vec<TracedStep>>,
    strays: Vec<Stray>,
}

#[derive(Debug)]
struct Fault {
    kind: FaultKind,
    /// The number of the directory.
    folder: usize,
    prefix: String,
    /// Matching calls that still succeed.
    spared: u64,
    always: bool,
}

/// What happens to a step that may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepFate {
    /// It succeeds.
    Whole,
    /// The machine crashes in it: it is begun, never completed, and the restart decides what is left of it.
    Crashes,
    /// The process dies in it: it happens up to a point chosen by the seed, and its caller gets no answer.
    Dies,
}

impl FaultyDiskState {
    /// Fails if the power is off.
    fn check(&self, name: &str, offset: u64, operation: &'static str) -> DiskResult<()> {
        let cause = match self.power {
            Power::On => return Ok(()),
            Power::Crashed => "the simulated machine has crashed",
            Power::Killed => "the simulated process was killed",
        };
        Err(DiskError::new(name, offset, operation, io::Error::other(cause)))
    }

    /// Counts a step, unless the power is off already.
    fn step(&mut self, name: &str, offset: u64, operation: &'static str) -> DiskResult<StepFate> {
        self.check(name, offset, operation)?;
        self.steps += 1;
        let steps = self.steps;
        Ok(match self.end {
            Some((end, Power::Killed)) if end <= steps => StepFate::Dies,
            Some((end, _)) if end <= steps => StepFate::Crashes,
            _ => StepFate::Whole,
        })
    }

    /// After a step's work: if it was the last one, the power is switched off and the caller gets an error. No inode is
    /// locked meanwhile.
    fn finish(&mut self, step: StepFate, name: &str, offset: u64, operation: &'static str) -> DiskResult<()> {
        match step {
            StepFate::Whole => self.keep_trace(name, offset, operation),
            StepFate::Crashes => self.power = Power::Crashed,
            StepFate::Dies => self.power = Power::Killed,
        }
        self.check(name, offset, operation)
    }

    /// Whether a step that is not a write takes place at all.
    fn happens(&mut self, step: StepFate) -> bool {
        step != StepFate::Dies || self.random.chance(1, 2)
    }

    /// Whether an injected error hits this call on a file of this directory.
    fn trips(&mut self, kind: FaultKind, folder: usize, name: &str) -> bool {
        let mut trips = false;
        self.faults.retain_mut(|fault| {
            if fault.kind != kind || fault.folder != folder || !name.starts_with(&fault.prefix) {
                return true;
            }
            if fault.spared > 0 {
                fault.spared -= 1;
                return true;
            }
            trips = true;
            fault.always
        });
        trips
    }

    /// Whether a sync fails, and if so, whether what it did not write then reads as before.
    fn sync_fails(&mut self, folder: usize, name: &str) -> Option<bool> {
        let reverts = self.trips(FaultKind::SyncReverts, folder, name);
        (self.trips(FaultKind::Sync, folder, name) || reverts).then_some(reverts)
    }

    /// The bytes that all files and shared maps occupy.
    fn taken(&self) -> u64 {
        self.folders.iter().map(Folder::taken).sum()
    }

    /// The bytes that are free.
    fn free(&self) -> u64 {
        self.room.map_or(u64::MAX, |room| room.saturating_sub(self.taken()))
    }
}

fn eio(name: &str, offset: u64, operation: &'static str) -> DiskError {
    DiskError::new(name, offset, operation, rustix::io::Errno::IO)
}

fn enospc(name: &str, offset: u64, operation: &'static str) -> DiskError {
    DiskError::new(name, offset, operation, rustix::io::Errno::NOSPC)
}

fn number(random: &mut Random) -> u128 {
    u128::from(random.next()) << 64 | u128::from(random.next())
}

impl FaultyDisk {
    /// An empty disk that draws all its choices from `seed`.
    pub fn new(seed: u64) -> Arc<FaultyDisk> {
        let mut random = Random::new(seed);
        let boot = number(&mut random);
        FaultyDisk::with(
            seed,
            FaultyDiskState {
                random,
                power: Power::On,
                steps: 0,
                end: None,
                faults: Vec::new(),
                folders: vec![Folder::default()],
                boot,
                room: None,
                has_speed: false,
                trace: None,
                strays: Vec::new(),
            },
        )
    }

    fn with(seed: u64, state: FaultyDiskState) -> Arc<FaultyDisk> {
        Arc::new(FaultyDisk { seed, number: 0, state: Arc::new(Mutex::new(state)), hangs: Arc::default() })
    }

    /// A directory of the same machine, by its number; it is empty at the first call. A new disk is directory 0.
    /// Hanging calls ([`hang`](Self::hang)) are those of all directories.
    pub fn directory(&self, number: usize) -> Arc<FaultyDisk> {
        let mut state = self.state.lock();
        let count = state.folders.len().max(number + 1);
        state.folders.resize_with(count, Folder::default);
        Arc::new(FaultyDisk { seed: self.seed, number, state: self.state.clone(), hangs: self.hangs.clone() })
    }

    /// The seed with which this disk, or the first of its restarts, was made.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many steps have begun since the disk was made or restarted.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Whether the power is off: every call fails.
    pub fn is_down(&self) -> bool {
        self.state.lock().power != Power::On
    }

    /// Crashes the machine in step `step` (counted from 1), or in the next step if that one has passed. Replaces an
    /// earlier `crash_at` or `kill_at`.
    pub fn crash_at(&self, step: u64) {
        self.state.lock().end = Some((step, Power::Crashed));
    }

    /// Kills the process in step `step`; otherwise as [`crash_at`](Self::crash_at).
    pub fn kill_at(&self, step: u64) {
        self.state.lock().end = Some((step, Power::Killed));
    }

    /// Crashes the machine now, between two steps; also a machine whose process was killed before.
    pub fn crash(&self) {
        self.state.lock().power = Power::Crashed;
        self.let_go();
    }

    /// Kills the process now, between two steps.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        if state.power == Power::On {
            state.power = Power::Killed;
        }
        drop(state);
        self.let_go();
    }

    /// The `after + 1`-th next call of this kind on a file whose name begins with `prefix` fails, once; with the kinds
    /// for stray writes it goes astray.
    pub fn fail(&self, kind: FaultKind, prefix: &str, after: u64) {
        self.inject(kind, prefix, after, false);
    }

    /// As [`fail`](Self::fail), for that call and each such call after it, until [`mend`](Self::mend).
    pub fn fail_always(&self, kind: FaultKind, prefix: &str, after: u64) {
        self.inject(kind, prefix, after, true);
    }

    fn inject(&self, kind: FaultKind, prefix: &str, after: u64, always: bool) {
        let (folder, prefix) = (self.number, prefix.to_owned());
        self.state.lock().faults.push(Fault { kind, folder, prefix, spared: after, always });
    }

    /// From now on each such call hangs before it does anything, until [`let_go`](Self::let_go), or until the power is
    /// switched off by [`crash`](Self::crash) or [`kill`](Self::kill). With [`Sync`](FaultKind::Sync): syncs of files
    /// and of the directory, `.`.
    pub fn hang(&self, kind: FaultKind, prefix: &str) {
        self.hangs.arm(kind, prefix);
    }

    /// How many calls hang.
    pub fn hanging(&self) -> usize {
        self.hangs.hanging()
    }

    /// Releases the calls that hang; no later call hangs.
    pub fn let_go(&self) {
        self.hangs.let_go();
    }

    /// From now on there is room for this many bytes more than all files and shared maps occupy; also on the next
    /// restarts.
    pub fn leave_room(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.room = Some(state.taken() + bytes);
    }

    /// From now on, also on the next restarts, the disk says that its times are meaningful ([`Disk::has_speed`]). Work
    /// that is done only on such disks, and its writes, thereby meet crashes and faults, too. The number of their steps
    /// depends on the machine, so a seed does not give the same run again.
    pub fn pretend_speed(&self) {
        self.state.lock().has_speed = true;
    }

    /// Takes back all injected errors that have not happened yet. What failed syncs have lost stays lost.
    pub fn mend(&self) {
        self.state.lock().faults.clear();
    }

    /// Changes each of `length` bytes of a file at `offset` to another value, on the device and in the page cache, like
    /// a decayed sector without an error (I9).
    pub fn damage(&self, name: &str, offset: u64, length: usize) -> DiskResult<()> {
        let mut state = self.state.lock();
        let Some(node) = state.folders[self.number].directory.find(name) else {
            return Err(DiskError::new(name, offset, "damage", io::ErrorKind::NotFound));
        };
        let whole = node.lock().damage(&mut state.random, offset, length);
        if whole { Ok(()) } else { Err(DiskError::new(name, offset, "damage", io::ErrorKind::UnexpectedEof)) }
    }

    /// The disk that the next process finds, after a machine crash or a process crash. Its steps count from 0 and it
    /// has no injected errors. This disk stays down, so that what is left of the old database cannot touch the new one.
    /// Only shared maps are the same memory after a process crash: no thread may still write to them.
    ///
    /// Another call on the same crashed disk returns another of the states that this crash may have left. For a machine
    /// with several directories it returns the same directory; the others are [beside it](Self::directory).
    ///
    /// # Panics
    ///
    /// If the power is on: crash the machine or kill the process first.
    pub fn restart(&self) -> Arc<FaultyDisk> {
        let mut state = self.state.lock();
        let mut random = state.random.fork();
        let (folders, boot) = match state.power {
            Power::On => panic!("restart of a disk whose power is on: call crash() or kill() first"),
            Power::Killed => (state.folders.iter().map(Folder::cloned).collect(), state.boot),
            Power::Crashed => {
                let folders = state.folders.iter().map(|folder| folder.survivor(&mut random)).collect();
                (folders, number(&mut random))
            }
        };
        let (power, steps, end, faults) = (Power::On, 0, None, Vec::new());
        let (room, has_speed) = (state.room, state.has_speed);
        let (trace, strays) = (None, Vec::new());
        let state = FaultyDiskState {
            random,
            power,
            steps,
            end,
            faults,
            folders,
            boot,
            room,
            has_speed,
            trace,
            strays,
        };
        FaultyDisk::with(self.seed, state).directory(self.number)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, name: &str, open: Open, caching: Caching) -> DiskResult<Arc<dyn File>> {
        check_name(name, "open")?;
        let mut state = self.state.lock();
        state.check(name, 0, "open")?;
        if state.folders[self.number].maps.contains_key(name) {
            return Err(is_map(name, "open"));
        }
        let node = match state.folders[self.number].directory.find(name) {
            Some(_) if open == Open::CreateNew => {
                return Err(DiskError::new(name, 0, "open", io::ErrorKind::AlreadyExists));
            }
            Some(node) => node,
            None if open.creates() => {
                let step = state.step(name, 0, "create")?;
                let node = Arc::<SharedInode>::default();
                if state.happens(step) {
                    let change = DirectoryChange::Create { name: name.to_owned(), node: node.clone() };
                    state.folders[self.number].directory.change(change);
                }
                state.finish(step, name, 0, "create")?;
                node
            }
            None => return Err(DiskError::new(name, 0, "open", io::ErrorKind::NotFound)),
        };
        Ok(Arc::new(FaultyFile {
            name: name.to_owned(),
            folder: self.number,
            writable: open != Open::ReadOnly,
            caching,
            node,
            state: self.state.clone(),
            hangs: self.hangs.clone(),
        }))
    }

    fn list(&self) -> DiskResult<Vec<String>> {
        let state = self.state.lock();
        state.check(DIRECTORY, 0, "list")?;
        let folder = &state.folders[self.number];
        let names: BTreeSet<&String> = folder.directory.names().chain(folder.maps.keys()).collect();
        Ok(names.into_iter().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        check_name(from, "rename")?;
        check_name(to, "rename")?;
        let mut state = self.state.lock();
        let step = state.step(from, 0, "rename")?;
        if let Some(map) =
            [from, to].into_iter().find(|&name| state.folders[self.number].maps.contains_key(name))
        {
            return Err(is_map(map, "rename"));
        }
        let Some(node) = state.folders[self.number].directory.find(from) else {
            return Err(DiskError::new(from, 0, "rename", io::ErrorKind::NotFound));
        };
        if from != to && state.happens(step) {
            let (from, to) = (from.to_owned(), to.to_owned());
            state.folders[self.number].directory.change(DirectoryChange::Rename { from, to, node });
        }
        state.finish(step, from, 0, "rename")
    }

    fn remove(&self, name: &str) -> DiskResult<()> {
        check_name(name, "remove")?;
        let mut state = self.state.lock();
        let step = state.step(name, 0, "remove")?;
        let node = state.folders[self.number].directory.find(name);
        if node.is_none() && !state.folders[self.number].maps.contains_key(name) {
            return Err(DiskError::new(name, 0, "remove", io::ErrorKind::NotFound));
        }
        if state.happens(step) {
            let folder = &mut state.folders[self.number];
            match node {
                Some(node) => {
                    folder.directory.change(DirectoryChange::Remove { name: name.to_owned(), node });
                }
                None => drop(folder.maps.remove(name)),
            }
        }
        state.finish(step, name, 0, "remove")
    }

    fn sync_directory(&self) -> DiskResult<()> {
        self.hangs.pass(FaultKind::Sync, DIRECTORY);
        let mut state = self.state.lock();
        let step = state.step(DIRECTORY, 0, "sync")?;
        state.finish(step, DIRECTORY, 0, "sync")?;
        let fails = state.sync_fails(self.number, DIRECTORY).is_some();
        let directory = &mut state.folders[self.number].directory;
        if fails {
            directory.abort();
        }
        if directory.sync() { Ok(()) } else { Err(eio(DIRECTORY, 0, "sync")) }
    }

    fn lock(&self) -> DiskResult<DirectoryLock> {
        let state = self.state.lock();
        state.check(LOCK_FILE, 0, "lock")?;
        FlagLock::take(&state.folders[self.number].locked)
    }

    fn map_shared(&self, name: &str, bytes: usize) -> DiskResult<SharedMap> {
        check_map(name, bytes)?;
        let mut state = self.state.lock();
        state.check(name, 0, "map")?;
        if state.folders[self.number].directory.find(name).is_some() {
            return Err(is_file(name));
        }
        if let Some(map) = state.folders[self.number].maps.get(name).filter(|map| map.len() == bytes) {
            return Ok(map.clone());
        }
        let step = state.step(name, 0, "map")?;
        if bytes as u64 > state.free() || state.trips(FaultKind::Full, self.number, name) {
            return Err(enospc(name, 0, "map"));
        }
        let map = SharedMap::anonymous(bytes).map_err(|error| DiskError::new(name, 0, "map", error))?;
        if state.happens(step) {
            state.folders[self.number].maps.insert(name.to_owned(), map.clone());
        }
        state.finish(step, name, 0, "map")?;
        Ok(map)
    }

    fn shared_bytes(&self, name: &str) -> DiskResult<Option<usize>> {
        check_name(name, "map")?;
        let state = self.state.lock();
        state.check(name, 0, "map")?;
        if state.folders[self.number].directory.find(name).is_some() {
            return Err(is_file(name));
        }
        Ok(state.folders[self.number].maps.get(name).map(SharedMap::len))
    }

    fn boot(&self) -> u128 {
        self.state.lock().boot
    }

    fn has_speed(&self) -> bool {
        self.state.lock().has_speed
    }

    fn describe(&self) -> String {
        format!("faulty (in memory, seed {})", self.seed)
    }
}
