//! [`Archiver`]: copies log files to an archive before the log frees them.
//!
//! A file is copied under another name, synced, renamed, and its name is made durable, before it is freed; therefore at
//! any time each byte of the log is in the directory, in the archive, or in both. A file that was not full when it was
//! copied is copied again. While the archive fails, the log keeps its files, up to its bound.
//!
//! The archive never goes back: a copy of a log file is replaced only by one that holds at least as much. What a call
//! of `archive_log` reported to be in the archive therefore stays there, also if other calls read an earlier durable
//! position and come to copy later (`ArchiveState::up_to`).
//!
//! Nor does the archive go back across openings: a copy of a log file, or of a load file, is replaced only by one that
//! begins with it, byte for byte (`Archiver::check_goes_on`). If a directory was copied while the database was closed,
//! and both copies are then opened, the database has two *lives*: two logs with the same identity and the same file
//! names. The archive keeps the files of the life that it has; the other life is refused, and keeps its log.
//!
//! Before it copies its first log file, the archiver looks at the file before that, which the database may have freed:
//! if the archive has all of it, its last block has to be the one that the log names as its predecessor
//! (`Archiver::check_follows`). An archive that lacks a part in between has a gap, which a restore names, and cannot
//! tell whose log it has.
//!
//! An archiver has its directory to itself: it locks the directory before it looks at the contents, and holds the lock
//! until the database closes. A copy under its other name (`NAME.unfinished`) has therefore one writer. One that is
//! there when the lock is taken was cut short, and is removed, as after an error.

use std::sync::Arc;

use hashbrown::HashSet;
use parking_lot::Mutex;

use super::PAGE;
use super::block::{self, BLOCK_MAX};
use super::files;
use super::log_file::{LogFile, LogFileHeader};
use super::reader::first_block;
use crate::fault_injection;
use crate::io::{AlignedBuffer, Caching, DirectoryHolder, DirectoryLock, Disk, File, Open, remove_in_steps};
use crate::store::{load_file_name, load_file_number};
use crate::{Error, Result};

const PIECE: usize = 1 << 20;
/// The suffix of copies that are not complete.
const UNFINISHED: &str = ".unfinished";

/// What an archive has received since the database was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveStats {
    /// Whole log files.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Why the last copy failed; the log is kept meanwhile.
    pub failure: Option<String>,
}

/// Copies files of a data directory to the archive of its database.
#[derive(Debug)]
pub(crate) struct Archiver {
    from: Arc<dyn Disk>,
    to: Arc<dyn Disk>,
    database: u128,
    /// Held while a file is copied.
    state: Mutex<ArchiveState>,
    /// Apart from the state, because a reader of the figures must not wait for a copy.
    stats: Mutex<ArchiveStats>,
}

#[derive(Debug, Default)]
struct ArchiveState {
    /// The lock of the archive's directory, once something was to be copied.
    directory: Option<DirectoryLock>,
    /// The database is closed: nothing is copied any more.
    closed: bool,
    /// The log files up to this one were copied whole.
    done: u64,
    /// The archive has the log up to this position of the stream, if not more.
    up_to: u64,
    /// Whether the oldest log file here was found to follow on the one before it in the archive.
    follows: bool,
    /// Whether the archive's log was found to be the beginning of this one.
    is_ours: bool,
    loads: HashSet<u64>,
}

impl Archiver {
    pub(crate) fn new(from: Arc<dyn Disk>, to: Arc<dyn Disk>, database: u128) -> Archiver {
        Archiver { from, to, database, state: Mutex::default(), stats: Mutex::default() }
    }

    pub(crate) fn stats(&self) -> ArchiveStats {
        self.stats.lock().clone()
    }

    /// Copies whole log files, oldest first. Returns the number of the last one in the archive, or of one before it.
    pub(super) fn take(&self, files: &[Arc<LogFile>]) -> u64 {
        let mut state = self.state.lock();
        let done = state.done;
        for file in files.iter().filter(|file| file.sequence > done) {
            let held = self.hold(&mut state).and_then(|()| self.check_follows(&mut state, files));
            let copied = held.and_then(|()| self.copy_log(file, PAGE as u64 + file.capacity));
            if self.note(copied).is_err() {
                break;
            }
            state.done = file.sequence;
            self.stats.lock().files += 1;
        }
        state.done
    }

    /// Copies log files as far as they were durable when the caller read the durable position. Another caller may have
    /// read a later position and copied first: then the archive has all that this one asks for.
    pub(super) fn take_up_to(&self, files: &[Arc<LogFile>], durable: u64) -> Result<()> {
        let mut state = self.state.lock();
        if durable < state.up_to {
            return Ok(());
        }
        self.note(self.hold(&mut state))?;
        self.note(self.check_follows(&mut state, files))?;
        for file in files.iter().filter(|file| file.sequence > state.done).cloned().collect::<Vec<_>>() {
            self.note(self.copy_log(&file, bytes_until(&file, durable)))?;
        }
        state.up_to = durable;
        Ok(())
    }

    /// Refuses an archive that has another life's log, before any file goes there. `files` are all log files that begin
    /// before the durable position.
    pub(super) fn check_is_ours(&self, files: &[Arc<LogFile>], durable: u64) -> Result<()> {
        let mut state = self.state.lock();
        if !state.is_ours {
            self.note(self.hold(&mut state))?;
            self.note(self.check_follows(&mut state, files))?;
            let check = |file: &Arc<LogFile>| {
                self.check_goes_on(&files::name(file.sequence), bytes_until(file, durable))
            };
            // A file that is copied already may be freed by now, and has shown the same.
            let done = state.done;
            self.note(files.iter().filter(|file| file.sequence > done).try_for_each(check))?;
            state.is_ours = true;
        }
        Ok(())
    }

    /// Copies the load file of this number, if it was not copied yet. If the load was committed, its place is durable.
    pub(crate) fn take_load(&self, number: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.loads.contains(&number) {
            return Ok(());
        }
        self.note(self.hold(&mut state))?;
        let name = load_file_name(number);
        let file = self.from.open(&name, Open::ReadOnly, Caching::Buffered);
        let length = file.and_then(|file| file.length()).map_err(Error::from);
        let copied = length.and_then(|length| {
            self.check_goes_on(&name, length)?;
            self.copy(&name, length, length)
        });
        self.note(copied)?;
        state.loads.insert(number);
        Ok(())
    }

    /// Makes sure that the archive's directory is this archiver's alone.
    fn hold(&self, state: &mut ArchiveState) -> Result<()> {
        if state.directory.is_some() {
            return Ok(());
        }
        if state.closed {
            return Err(Error::Closed);
        }
        let directory = match self.to.lock() {
            Err(error) if error.is_locked() => {
                let what = format!(
                    "this log in the archive {}: {} archives there; wait for it, or give this database an archive of its own",
                    self.to.describe(),
                    DirectoryHolder::name(error.holder())
                );
                return Err(Error::Unsupported { what });
            }
            held => held?,
        };
        for name in self.to.list()?.iter().filter(|name| is_unfinished(name)) {
            remove_in_steps(&*self.to, name)?;
        }
        state.directory = Some(directory);
        Ok(())
    }

    /// Ends all copying, also of calls that have begun before: another process may archive there.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        (state.directory, state.closed) = (None, true);
    }

    /// Keeps the outcome of the last attempt for the metrics.
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        self.stats.lock().failure = outcome.as_ref().err().map(Error::to_string);
        outcome
    }

    /// Refuses an archive whose log ends, at the end of a file, with another block than the one that the oldest of
    /// these files names as its predecessor.
    fn check_follows(&self, state: &mut ArchiveState, files: &[Arc<LogFile>]) -> Result<()> {
        let Some(oldest) = files.first().filter(|_| !state.follows) else { return Ok(()) };
        let (before, name) = (files::name(oldest.sequence.saturating_sub(1)), files::name(oldest.sequence));
        let another_life = |differs: String| {
            let what = format!(
                "this log in the archive {}: {differs}, so it is another life's of the same database (a copy of its directory), or \
                 damaged; give this life an archive of its own and take a full backup",
                self.to.describe()
            );
            Err(Error::Unsupported { what })
        };
        let there = match self.to.open(&before, Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => None,
            opened => {
                let file = opened?;
                let end = LogFileHeader::read(&*file, self.database).ok().map(|header| header.end());
                if let Some(end) = end.filter(|&end| end != oldest.start) {
                    return another_life(format!(
                        "\"{before}\" there ends at position {end}, and \"{name}\" of the database begins at {}",
                        oldest.start
                    ));
                }
                last_checksum(&*file, oldest.start, block::seed(self.database, oldest.sequence - 1))?
            }
        };
        let here = self.from.open(&name, Open::ReadOnly, Caching::Buffered)?;
        let named = first_block(oldest, &*here)?.map(|first| first.previous);
        if let (Some(there), Some(named)) = (there, named)
            && there != named
        {
            return another_life(format!(
                "\"{before}\" there ends with the block of checksum {there:016x}, and \"{name}\" of the database follows on the block \
                 of checksum {named:016x}"
            ));
        }
        state.follows = true;
        Ok(())
    }

    /// Copies the first `bytes` bytes of a log file. The bytes after them are of no use, but every log file has its
    /// full length.
    fn copy_log(&self, file: &LogFile, bytes: u64) -> Result<()> {
        let name = files::name(file.sequence);
        self.check_goes_on(&name, bytes)?;
        self.copy(&name, bytes, PAGE as u64 + file.capacity)
    }

    /// Whether a copy of the first `bytes` bytes of a file begins with the archive's file of that name, without the
    /// zeros at the end of the latter.
    fn check_goes_on(&self, name: &str, bytes: u64) -> Result<()> {
        let has = match self.to.open(name, Open::ReadOnly, Caching::Buffered) {
            Err(error) if error.is_missing() => return Ok(()),
            opened => opened?,
        };
        let from = self.from.open(name, Open::ReadOnly, Caching::Direct)?;
        let length = has.length()?;
        let mut theirs = vec![0; PIECE.min(length as usize)];
        let mut ours = AlignedBuffer::zeroed(PIECE);
        let mut parted = None;
        for at in (0..length).step_by(PIECE) {
            let piece = (length - at).min(PIECE as u64) as usize;
            has.read_at(&mut theirs[..piece], at)?;
            ours.fill(0);
            let copied = bytes.saturating_sub(at).min(PIECE as u64) as usize;
            if parted.is_none() && copied > 0 {
                from.read_at(&mut ours[..copied], at)?;
            }
            let differs = || theirs[..piece].iter().zip(&ours[..piece]).position(|(their, our)| their != our);
            let same = if parted.is_some() { 0 } else { differs().unwrap_or(piece) };
            if same < piece {
                parted.get_or_insert(at + same as u64);
            }
            if let (Some(parted), true) = (parted, theirs[same..piece].iter().any(|&byte| byte != 0)) {
                let what = format!(
                    "this log in the archive {}: \"{name}\" there differs from the database's from offset {parted} on, so it is \
                     another life's of the same database (a copy of its directory), or damaged; give this life an archive of \
                     its own and take a full backup",
                    self.to.describe()
                );
                return Err(Error::Unsupported { what });
            }
        }
        Ok(())
    }

    /// Copies the first `bytes` bytes to a file that is `length` bytes long.
    fn copy(&self, name: &str, bytes: u64, length: u64) -> Result<()> {
        let unfinished = format!("{name}{UNFINISHED}");
        let copied = self.copy_under(&unfinished, name, bytes, length);
        if copied.is_err() {
            // A full disk may have held only a part of the copy. If that cannot be removed, the next holder of the lock
            // removes it.
            let _ = remove_in_steps(&*self.to, &unfinished);
        }
        copied
    }

    fn copy_under(&self, unfinished: &str, name: &str, bytes: u64, length: u64) -> Result<()> {
        let from = self.from.open(name, Open::ReadOnly, Caching::Direct)?;
        let to = self.to.open(unfinished, Open::Create, Caching::Direct)?;
        to.set_length(0)?;
        let mut buffer = AlignedBuffer::zeroed(PIECE.min(bytes as usize).next_multiple_of(PAGE));
        let mut at = 0;
        while at < bytes {
            let piece = (bytes - at).min(buffer.len() as u64) as usize;
            from.read_at(&mut buffer[..piece], at)?;
            to.write_at(&buffer[..piece], at)?;
            at += piece as u64;
        }
        to.set_length(length)?;
        if !fault_injection::is_on("archive-copy-not-synced") {
            to.sync()?;
        }
        self.to.rename(unfinished, name)?;
        self.to.sync_directory()?;
        self.stats.lock().bytes += bytes;
        Ok(())
    }
}

/// Whether a copy that is not complete has this name.
fn is_unfinished(name: &str) -> bool {
    let of = name.strip_suffix(UNFINISHED);
    of.is_some_and(|of| files::sequence(of).is_some() || load_file_number(of).is_some())
}

/// The checksum of the last block of a log file that ends at this position of the stream, if its blocks reach its end.
fn last_checksum(file: &dyn File, end: u64, seed: u64) -> Result<Option<u64>> {
    let length = file.length()?;
    let tail = length.saturating_sub(PAGE as u64).min(end).min(BLOCK_MAX as u64);
    let mut bytes = vec![0; tail as usize];
    file.read_at(&mut bytes, length - tail)?;
    let checksum_at = |at: usize| {
        let (block, position) = (&bytes[at..], end - tail + at as u64);
        let length = block::claimed_length(block, position, block.len() as u64)?;
        if length < block.len() {
            return None;
        }
        block::verify(block, seed).map(|(_, checksum)| checksum)
    };
    Ok((0..bytes.len()).step_by(8).find_map(checksum_at))
}

/// The bytes of a log file up to this position of the stream.
fn bytes_until(file: &LogFile, durable: u64) -> u64 {
    PAGE as u64 + file.capacity.min(durable - file.start)
}
