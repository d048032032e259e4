//! [`Archiver`]: copies of log files that outlive their use.
//!
//! A file is copied under another name, synced, renamed, and its name is made durable, before it is freed; so at any time
//! each byte of the log is in the directory, in the archive, or in both. A file that was not full when it was copied is copied
//! again. While the archive fails the log keeps its files, up to its bound.
//!
//! The archive never goes back: a copy of a log file is replaced only by one that holds at least as much. So what a call of
//! `archive_log` was told to be in the archive stays there, whichever other calls read an earlier durable position and come to
//! copy later (`State::up_to`).

use std::sync::Arc;

use hashbrown::HashSet;
use parking_lot::Mutex;

use super::PAGE;
use super::files::{self, LogFile};
use crate::checkpoint::load_file::load_file_name;
use crate::io::{AlignedBuffer, Caching, Disk, Open};
use crate::{Error, Result};

const PIECE: usize = 1 << 20;

/// What an archive has taken since the database was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveStats {
    /// Log files, whole ones.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Why it took nothing the last time; the log is kept meanwhile.
    pub failure: Option<String>,
}

/// Copies files of a data directory to the archive of its database.
#[derive(Debug)]
pub(crate) struct Archiver {
    from: Arc<dyn Disk>,
    to: Arc<dyn Disk>,
    /// Held while a file is copied.
    state: Mutex<State>,
    /// Apart: a reader of the figures must not wait for a copy.
    stats: Mutex<ArchiveStats>,
}

#[derive(Debug, Default)]
struct State {
    /// The log files up to this one were copied whole.
    done: u64,
    /// The archive has the log up to this position of the stream, if not more.
    up_to: u64,
    loads: HashSet<u64>,
}

impl Archiver {
    pub(crate) fn new(from: Arc<dyn Disk>, to: Arc<dyn Disk>) -> Archiver {
        Archiver { from, to, state: Mutex::default(), stats: Mutex::default() }
    }

    pub(crate) fn stats(&self) -> ArchiveStats {
        self.stats.lock().clone()
    }

    /// Copies whole log files, oldest first. Gives the number of the last that is in the archive, or one before it.
    pub(super) fn take(&self, files: &[Arc<LogFile>]) -> u64 {
        let mut state = self.state.lock();
        for file in files {
            if file.sequence <= state.done {
                continue;
            }
            let length = PAGE as u64 + file.capacity;
            let copied = self.copy(&files::name(file.sequence), length, length);
            if self.note(copied).is_err() {
                break;
            }
            state.done = file.sequence;
            self.stats.lock().files += 1;
        }
        state.done
    }

    /// Copies log files as far as they were durable when the caller read the durable position. Another caller may have read a
    /// later one and been here first: then the archive has all that this one asks for.
    pub(super) fn take_up_to(&self, files: &[Arc<LogFile>], durable: u64) -> Result<()> {
        let mut state = self.state.lock();
        if durable < state.up_to {
            return Ok(());
        }
        for file in files.iter().filter(|file| file.sequence > state.done).cloned().collect::<Vec<_>>() {
            let bytes = PAGE as u64 + file.capacity.min(durable - file.start);
            // What lies behind it in the file is of no use, but every log file has its length.
            let length = PAGE as u64 + file.capacity;
            self.note(self.copy(&files::name(file.sequence), bytes, length))?;
        }
        state.up_to = durable;
        Ok(())
    }

    /// Copies the load file of this number, if it was not copied yet.
    pub(crate) fn take_load(&self, number: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.loads.contains(&number) {
            return Ok(());
        }
        let name = load_file_name(number);
        let file = self.from.open(&name, Open::ReadOnly, Caching::Buffered);
        let length = file.and_then(|file| file.length()).map_err(Error::from);
        self.note(length.and_then(|length| self.copy(&name, length, length)))?;
        state.loads.insert(number);
        Ok(())
    }

    /// Keeps what the last attempt came to for the metrics.
    pub(crate) fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        self.stats.lock().failure = outcome.as_ref().err().map(Error::to_string);
        outcome
    }

    /// Copies the first `bytes` bytes to a file that is `length` bytes long.
    fn copy(&self, name: &str, bytes: u64, length: u64) -> Result<()> {
        let unfinished = format!("{name}.unfinished");
        let from = self.from.open(name, Open::ReadOnly, Caching::Direct)?;
        let to = self.to.open(&unfinished, Open::Create, Caching::Direct)?;
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
        to.sync()?;
        self.to.rename(&unfinished, name)?;
        self.to.sync_directory()?;
        self.stats.lock().bytes += bytes;
        Ok(())
    }
}
