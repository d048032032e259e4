//! Taking a backup of a running database.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use parking_lot::Mutex;

use super::stream::{BackupHeader, StreamKind, StreamWriter, WrittenStream, write_error};
use super::{
    BACKUP_FILE, BackupKind, BackupOptions, BackupReport, CopyProgress, CutMeeting, RESTORING, UNFINISHED,
};
use crate::checkpoint::home::HOME_FILE;
use crate::checkpoint::{CheckpointSource, Cleared, HeldDefinitions};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::foreign::Stream;
use crate::ids::{HeapId, Lsn};
use crate::io::{Caching, Clock, DirectoryHolder, DirectoryLock, Disk, File, Open, remove_in_steps};
use crate::log::Log;
use crate::opening::Opening;
use crate::seed;
use crate::store::memory::segments::{Copy, IMAGE_HEADER_BYTES, Swept};
use crate::store::memory::{SEGMENT_BYTES, SegmentId, Segments};
use crate::store::paged::{ChangedPages, PageBackup, PagesHeld};

/// Bytes in one write.
const WRITE_BYTES: usize = 1 << 20;

/// Where a backup goes.
pub(crate) enum Destination<'a> {
    /// To a file of its own on a disk, whose name is made durable.
    Directory(Arc<dyn Disk>),
    /// To a stream.
    Stream(&'a mut dyn Write),
}

/// An open destination. It is dropped after the backup, when checkpoints no longer wait: removing a large file takes
/// long.
pub(crate) enum Output<'a> {
    File(BackupFile),
    Stream(&'a mut dyn Write),
}

impl Output<'_> {
    /// Opens the destination.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a directory that is no place for a backup; [`Error::Io`].
    pub fn open(to: Destination<'_>) -> Result<Output<'_>> {
        match to {
            Destination::Directory(disk) => Ok(Output::File(BackupFile::create(disk)?)),
            Destination::Stream(out) => Ok(Output::Stream(out)),
        }
    }
}

/// What a database remembers of its backups while it is open.
#[derive(Default)]
pub(crate) struct Backups {
    last: Mutex<Option<(u128, Lsn)>>,
}

/// What a backup needs of an open database, while none of its checkpoints runs.
pub(crate) struct Taking<'a> {
    pub source: &'a dyn CheckpointSource,
    pub database: u128,
    pub opening: Opening,
    pub clock: &'a Clock,
    pub snapshot_bytes_max: u64,
    pub log_bytes_max: u64,
    /// Called with how long the cut kept commits from their places, and the most bytes of snapshot copies at the same
    /// time.
    pub note_cut: &'a dyn Fn(Duration, u64),
    /// Whether the database is being closed.
    pub is_stopped: &'a dyn Fn() -> bool,
    pub options: &'a BackupOptions<'a>,
    /// For a copy for a follower: the log, of which the copy has the part before its cut.
    pub log: Option<&'a Arc<Log>>,
}

impl Backups {
    /// Takes a backup. No checkpoint sweeps meanwhile.
    pub fn take(&self, taking: &Taking<'_>, to: &mut Output<'_>) -> Result<BackupReport> {
        let kind = taking.options.kind;
        // This is only measured, and therefore by the machine's clock.
        let began = Instant::now();
        let mut last = self.last.lock();
        let base = if kind == BackupKind::Full { None } else { *last };
        let why_full = (kind == BackupKind::Incremental && base.is_none())
            .then(|| "no backup was taken since the database was opened".to_owned());
        let segments = taking.source.segments();
        if base.is_none() && !fault_injection::is_on("full-backup-of-changes") {
            taking.take_all();
        }
        let mut cleared = Cleared::new(segments, Copy::Elsewhere);
        let WrittenBackup { header, written, cut_held, snapshot_bytes, progress, changed, .. } =
            taking.write(base, to, &mut cleared)?;
        cleared.keep();
        changed.into_iter().for_each(ChangedPages::forget);
        *last = Some((header.id, header.place));
        progress.end(0);
        Ok(BackupReport {
            id: header.id,
            base: base.map(|base| base.0),
            place: header.place,
            segments: written.segments,
            pages: written.pages,
            bytes: written.bytes,
            cut_held,
            snapshot_bytes,
            took: began.elapsed(),
            why_full,
        })
    }
}

/// The written part of a report.
pub(super) struct WrittenBackup<'a> {
    pub header: BackupHeader,
    pub written: WrittenStream,
    pub cut_held: Duration,
    pub snapshot_bytes: u64,
    pub progress: CopyProgress<'a>,
    /// The pages that had changed since the last backup.
    pub changed: Option<ChangedPages>,
    /// Bytes of log in it.
    pub log_bytes: u64,
}

impl<'a> Taking<'a> {
    /// The backup is to have all segments.
    pub(super) fn take_all(&self) {
        let segments = self.source.segments();
        (0..segments.high_water()).for_each(|number| segments.set_dirty(SegmentId(number), Copy::Elsewhere));
    }

    fn kind(&self) -> StreamKind {
        if self.log.is_some() { StreamKind::Copy } else { StreamKind::Backup }
    }

    pub(super) fn write(
        &self,
        base: Option<(u128, Lsn)>,
        to: &mut Output<'_>,
        cleared: &mut Cleared<'_>,
    ) -> Result<WrittenBackup<'a>> {
        match to {
            Output::File(out) => {
                let name = format!("{}/{BACKUP_FILE}", out.disk.describe());
                let written = self.stream(base, out, &name, cleared)?;
                out.finish()?;
                Ok(written)
            }
            Output::Stream(out) => {
                let mut out = io::BufWriter::with_capacity(WRITE_BYTES, Stream(*out, self.opening));
                let name = format!("the {}'s stream", self.kind().noun());
                let written = self.stream(base, &mut out, &name, cleared)?;
                out.flush().map_err(|error| write_error(&name, written.written.bytes, &error))?;
                Ok(written)
            }
        }
    }

    fn stream(
        &self,
        base: Option<(u128, Lsn)>,
        out: &mut dyn Write,
        name: &str,
        cleared: &mut Cleared<'_>,
    ) -> Result<WrittenBackup<'a>> {
        let segments = self.source.segments();
        let disk_tables = self.source.disk_tables();
        disk_tables.iter().for_each(|tables| tables.free_gone());
        let meeting = self.options.meeting;
        // Definitions are not held yet: one that others wait for may have to be committed first.
        if let Some(meeting) = meeting {
            let at_begin = self.source.log_bytes_used();
            let check = || self.check_wanted().and_then(|()| self.check_log(at_begin));
            if !meeting.comes_next(&check) {
                return Err(check().err().unwrap_or(Error::Cancelled));
            }
        }
        let uncut = BackupCutGuard(self.source);
        segments.whiten(Copy::Elsewhere, self.snapshot_bytes_max);
        // For the catalog at the cut: a transaction-consistent cut has it whole, as it has all else.
        let held = HeldDefinitions::hold(self.source);
        let pages_held = if base.is_some() { PagesHeld::Changed } else { PagesHeld::All };
        let mut pages = disk_tables.and_then(|tables| tables.begin_backup(pages_held));
        // The pages are cut at the same moment: in tables of both kinds the backup has the same transactions.
        let heaps = &held.defined.heaps;
        let mut have_met = true;
        let mut meet = || have_met = meeting.is_none_or(CutMeeting::is_there);
        let (cut, point) = match &mut pages {
            Some(pages) => pages.cut(|cut_pages| {
                let mut cut_and_meet = || {
                    cut_pages();
                    meet();
                };
                self.source.cut_at_a_point(heaps, &mut cut_and_meet)
            })?,
            None => self.source.cut_at_a_point(heaps, &mut meet)?,
        };
        if !have_met {
            return Err(Error::Cancelled);
        }
        let heaps = &*heaps.clone();
        drop(held);
        let header = BackupHeader {
            database: self.database,
            id: seed::identifier(),
            base,
            place: point.lsn,
            point: Some(point),
            segments: cut.end,
            next_id: self.source.next_id(),
            time_ms: self.clock.calendar_ms(),
            has_pages: pages.is_some(),
        };
        let mut writer = StreamWriter::begin((out, name), self.kind(), &header)?;
        let options = self.options;
        let page_bytes = pages.as_ref().map_or(0, PageBackup::bytes);
        let to_copy = || {
            let dirty = (0..cut.end).filter(|&number| segments.is_dirty(SegmentId(number), Copy::Elsewhere));
            dirty.count() as u64 * SEGMENT_BYTES as u64
        };
        let mut progress =
            CopyProgress::of_backup(options.observer.as_ref(), self.opening, || to_copy() + page_bytes);
        let log_bytes = self.source.log_bytes_used();
        // Segments come first: commits may wait until the backup has copied what they change.
        let copied = self.copy(segments, (cut.end, heaps), log_bytes, &mut writer, cleared, &mut progress);
        let snapshot_bytes = segments.snapshots().most_bytes();
        drop(uncut);
        (self.note_cut)(cut.held, snapshot_bytes);
        let copied = copied?;
        let changed = match pages {
            Some(mut pages) => {
                self.copy_pages(&mut pages, log_bytes, &mut writer, &mut progress, (copied, page_bytes))?;
                Some(pages.end())
            }
            None => None,
        };
        // Clearance: the database must not lose what is in its backup.
        if !fault_injection::is_on("backup-before-its-clearance") {
            self.source.wait_durable(header.place)?;
        }
        let copied_log = self.log.map_or(Ok(0), |log| self.copy_log(log, point, log_bytes, &mut writer))?;
        let (written, cut_held) = (writer.end()?, cut.held);
        Ok(WrittenBackup {
            header,
            written,
            cut_held,
            snapshot_bytes,
            progress,
            changed,
            log_bytes: copied_log,
        })
    }

    /// Copies the segments below `end` that the last backup lacks, as they were at the cut. Segments of storage that no
    /// table had then are free in the backup, and still dirty for the next one (`checkpoint/catalog_copy.rs`). Gives how many
    /// bytes that were.
    fn copy(
        &self,
        segments: &Segments,
        (end, heaps): (u32, &HashSet<HeapId>),
        log_bytes: u64,
        writer: &mut StreamWriter<'_>,
        cleared: &mut Cleared<'_>,
        progress: &mut CopyProgress<'_>,
    ) -> Result<u64> {
        let mut copied = 0;
        let mut buffer = vec![0; SEGMENT_BYTES];
        let mut next = 0;
        while next < end {
            // Commits may wait for the room that a snapshot takes.
            let in_the_way = if segments.snapshots().is_short() { segments.snapshots().any() } else { None };
            let id = in_the_way.unwrap_or(SegmentId(next));
            if in_the_way.is_none() {
                next += 1;
            }
            self.check_wanted()?;
            if !segments.is_dirty(id, Copy::Elsewhere) {
                continue;
            }
            self.check_log(log_bytes)?;
            progress.at(copied);
            // A segment that changes behind the cut may come twice.
            copied += SEGMENT_BYTES as u64;
            cleared.note(id);
            let mut swept = segments.sweep_snapshot(id, &mut buffer);
            if swept.is_none() {
                swept = segments.sweep(segments.latch(id), id, Copy::Elsewhere, &mut buffer).copied();
            }
            // The last backup may already have what the cut had.
            let Some(Swept { heap, used, latched }) = swept else {
                cleared.forget_last();
                continue;
            };
            drop(latched);
            let (heap, used) = match heap {
                Some(heap) if !heaps.contains(&heap) => {
                    segments.set_dirty(id, Copy::Elsewhere);
                    (None, 0)
                }
                heap => (heap, used),
            };
            writer.segment(id.0, heap, &buffer[..used.max(IMAGE_HEADER_BYTES)])?;
        }
        Ok(copied)
    }

    /// Copies the pages that the last backup lacks, as they were at the cut, behind the list of all. So many bytes are
    /// `copied`, and so many bytes of pages were `expected` in the progress.
    fn copy_pages(
        &self,
        pages: &mut PageBackup<'_>,
        log_bytes: u64,
        writer: &mut StreamWriter<'_>,
        progress: &mut CopyProgress<'_>,
        (mut copied, expected): (u64, u64),
    ) -> Result<()> {
        let check = || {
            self.check_wanted()?;
            self.check_log(log_bytes)
        };
        check()?;
        let list = pages.write(&check)?;
        progress.correct(expected, pages.bytes());
        writer.list(&list)?;
        pages.read(|number, image| {
            check()?;
            progress.at(copied);
            copied += image.len() as u64;
            writer.page(number, image)
        })
    }

    /// Fails if the database closes, or the backup is cancelled.
    pub(super) fn check_wanted(&self) -> Result<()> {
        if (self.is_stopped)() {
            return Err(Error::Closed);
        }
        match self.options.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Fails if the log, which had `at_begin` bytes, comes near its bound: checkpoints wait for the backup, so it must
    /// not go on until the log is full. It also fails while a transaction waits for more room than is left before that:
    /// the transaction may need nearly all of it.
    pub(super) fn check_log(&self, at_begin: u64) -> Result<()> {
        let noun = self.kind().noun();
        if self.source.log_is_short() {
            let reason = format!(
                "a {noun} keeps checkpoints waiting, and a transaction waits for the room that one would make; the \
                 {noun} is given up"
            );
            return Err(Error::LogFull { reason });
        }
        let used = self.source.log_bytes_used();
        if used > at_begin && used > self.log_bytes_max / 8 * 7 {
            let reason = format!(
                "a {noun} keeps checkpoints waiting, and the log has come to {used} of at most {} bytes \
                 (log_bytes_max); the {noun} is given up",
                self.log_bytes_max
            );
            return Err(Error::LogFull { reason });
        }
        Ok(())
    }
}

/// Ends the cut, so that it does not outlast the backup.
struct BackupCutGuard<'a>(&'a dyn CheckpointSource);

impl Drop for BackupCutGuard<'_> {
    fn drop(&mut self) {
        self.0.forget_cut();
    }
}

/// A backup in a directory. It has another name until it is complete, and an incomplete one is removed. No other
/// process writes there meanwhile.
pub(crate) struct BackupFile {
    disk: Arc<dyn Disk>,
    _directory: DirectoryLock,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    at: u64,
    is_finished: bool,
}

impl BackupFile {
    fn create(disk: Arc<dyn Disk>) -> Result<BackupFile> {
        // The lock is taken first, so that no other process comes between it and the list. If both refuse, the list's
        // error says more.
        let locked = disk.lock();
        for name in disk.list()? {
            let what = match name.as_str() {
                BACKUP_FILE => "a backup",
                HOME_FILE => "a database",
                RESTORING => "a restore that was not completed",
                _ => continue,
            };
            let what = format!(
                "a backup to {}: it holds {what} (\"{name}\") already; use another directory",
                disk.describe()
            );
            return Err(Error::Unsupported { what });
        }
        let directory = match locked {
            Err(error) if error.is_locked() => {
                let what = format!(
                    "a backup to {}: {} writes there; wait for it, or use another directory",
                    disk.describe(),
                    DirectoryHolder::name(error.holder())
                );
                return Err(Error::Unsupported { what });
            }
            held => held?,
        };
        let file = disk.open(UNFINISHED, Open::Create, Caching::Buffered)?;
        let buffer = Vec::with_capacity(WRITE_BYTES);
        let out = BackupFile { disk, _directory: directory, file, buffer, at: 0, is_finished: false };
        // A crash may have left an unfinished backup.
        out.file.set_length(0)?;
        Ok(out)
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.at).map_err(io::Error::other)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the backup durable, and then gives it its name.
    fn finish(&mut self) -> Result<()> {
        self.write_buffer().map_err(|error| write_error(UNFINISHED, self.at, &error))?;
        self.file.sync()?;
        self.disk.rename(UNFINISHED, BACKUP_FILE)?;
        self.is_finished = true;
        Ok(self.disk.sync_directory()?)
    }
}

impl Drop for BackupFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // It may be all that a full disk had room for. If it cannot be removed, the next backup to this directory
            // overwrites it.
            let _ = remove_in_steps(&*self.disk, UNFINISHED);
        }
    }
}

impl Write for BackupFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_buffer()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()
    }
}
