//! The log files: they are created and zeroed before they are needed, filled in turn, and used again when a checkpoint
//! frees them.
//!
//! ```text
//!  log-0000000007
//!  0      8        12   16          32         40      48         56         4096                  4096 + capacity
//!  +------+--------+----+-----------+----------+-------+----------+----------+---------------------+
//!  |magic |version | 0  | database  | sequence | start | capacity | checksum | stream bytes from   |
//!  |      |        |    |           | number   |       |          | 0..56    | start, `capacity`   |
//!  +------+--------+----+-----------+----------+-------+----------+----------+---------------------+
//! ```
//!
//! A file gets its final name only after its header, and zeros for its whole length, are synced; then the directory is
//! synced; and only then may a commit rely on its room (I10). Files are made in the order of their sequence numbers and
//! freed from the oldest on, so from a redo start on no number is missing. The zeros are written, not only reserved: a
//! write into a reserved but unwritten extent changes the file's metadata, which each sync would have to write too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::archive::Archiver;
use super::block::BLOCK_MAX;
use super::subscriptions::{Subscription, Subscriptions};
use super::{LogFileLayout, LogOptions, LogPoint, PAGE, block};
use crate::io::{AlignedBuffer, Caching, Clock, Disk, DiskError, DiskResult, File, Open, remove_in_steps};
use crate::log::log_file::{LogFile, header};
use crate::{Error, Lsn, Result, fault_injection};

pub(super) const UNFINISHED: &str = "log-unfinished";
const SPARE: &str = "log-spare-";
const ZEROS: usize = 1 << 20;
/// On a full disk a file may be shorter. Each attempt takes at most this part of the bytes of any other file, or what
/// there is room for; it never takes fewer bytes than these.
const SHORT: u64 = 16;
const SHORT_BYTES_MIN: u64 = 4 * PAGE as u64;

/// The name of the log file with this sequence number.
pub(crate) fn name(sequence: u64) -> String {
    format!("log-{sequence:010}")
}

/// The sequence number of the log file with this name.
pub(crate) fn sequence(name: &str) -> Option<u64> {
    number(name.strip_prefix("log-")?)
}

fn spare_name(sequence: u64) -> String {
    format!("{SPARE}{sequence:010}")
}

/// Whether a file that was freed, and is to be used again, has this name.
pub(super) fn is_spare(name: &str) -> bool {
    name.strip_prefix(SPARE).and_then(number).is_some()
}

fn number(digits: &str) -> Option<u64> {
    (digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[derive(Debug, Default)]
struct Inner {
    /// Oldest first, without gaps. The files after the gatherer's are prepared.
    files: VecDeque<Arc<LogFile>>,
    spares: Vec<String>,
    /// The number of spares that were kept the last time: about what the log uses between two checkpoints.
    kept_max: usize,
    /// The stream position that has to be covered by prepared files.
    wanted: u64,
    closed: bool,
    /// The last attempt to make a new file met a full disk.
    full: Option<DiskError>,
    /// A checkpoint is under way.
    room_is_left: bool,
    /// The checkpoint began after an attempt that met a full disk.
    is_behind_full: bool,
    /// The last checkpoint of this kind has ended, and left no spare.
    may_be_short: bool,
    /// Attempts to prepare a file: how many were begun, and the number of the last that has ended.
    begun: u64,
    ended: u64,
    /// Why that one failed.
    problem: Option<String>,
}

/// A request for room: attempts to prepare a file are counted from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoomRequest {
    /// Attempts that were begun before the request.
    begun: u64,
}

/// All log files of a log.
#[derive(Debug)]
pub(crate) struct FileTable {
    disk: Arc<dyn Disk>,
    database: u128,
    first_file_bytes: u64,
    file_bytes: u64,
    bytes_max: u64,
    spares_max: usize,
    caching: Caching,
    inner: Mutex<Inner>,
    /// The preparer sleeps on this.
    asked: Condvar,
    /// Threads that wait for the preparer's attempts sleep on this.
    changed: Condvar,
    /// Held during a preparation, so that there is one at a time.
    preparing: Mutex<()>,
    /// The clock by which threads wait for each other there.
    clock: Clock,
    prepared: AtomicU64,
    /// The gatherer's position at which it asks for the next file.
    threshold: AtomicU64,
    /// Copies the files that are freed to the archive, if there is one.
    archiver: OnceLock<Archiver>,
    /// Which files stay for readers behind the writer.
    pub(super) subscriptions: Subscriptions,
}

impl FileTable {
    /// A table of these files, oldest first. Other log files and left-overs in the directory become spares or are
    /// removed.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        database: u128,
        options: &LogOptions,
        caching: Caching,
        files: Vec<Arc<LogFile>>,
    ) -> Result<FileTable> {
        let table = FileTable {
            disk,
            database,
            first_file_bytes: options.first_file_bytes,
            file_bytes: options.file_bytes,
            bytes_max: options.bytes_max,
            spares_max: options.spare_files_max,
            caching,
            inner: Mutex::new(Inner { files: files.into(), ..Inner::default() }),
            asked: Condvar::new(),
            changed: Condvar::new(),
            preparing: Mutex::new(()),
            clock: Clock::System,
            prepared: AtomicU64::new(0),
            threshold: AtomicU64::new(0),
            archiver: OnceLock::new(),
            subscriptions: Subscriptions::default(),
        };
        table.sweep()?;
        table.publish(&table.inner.lock());
        Ok(table)
    }

    /// The same on another clock.
    pub(crate) fn on_clock(self, clock: &Clock) -> FileTable {
        FileTable { clock: clock.clone(), ..self }
    }

    /// Finds the spares, and removes what no longer belongs to the log.
    fn sweep(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        for found in self.disk.list()? {
            let known = |number| inner.files.iter().any(|file| file.sequence == number);
            // A spare was a file of the log before those that it has, or else may hold blocks of a file to come.
            let last = inner.files.back().map_or(0, |last| last.sequence);
            let is_of_later = found.strip_prefix(SPARE).and_then(number).is_some_and(|number| number > last);
            let stray =
                found == UNFINISHED || is_of_later || sequence(&found).is_some_and(|number| !known(number));
            if stray || is_spare(&found) && inner.spares.len() >= self.spares_max {
                self.disk.remove(&found)?;
            } else if is_spare(&found) {
                // Under another bound, files have another size.
                match self.is_of_our_size(&found)? {
                    true => inner.spares.push(found),
                    false => self.disk.remove(&found)?,
                }
            }
        }
        Ok(())
    }

    fn is_of_our_size(&self, name: &str) -> Result<bool> {
        let length = self.disk.open(name, Open::ReadOnly, Caching::Buffered)?.length()?;
        Ok(length == PAGE as u64 + self.file_bytes)
    }

    /// What the files count against the bound. A file made under an earlier, higher bound counts as one of this
    /// bound's: before it can be freed, the log has to continue after it.
    fn counted(&self, inner: &Inner) -> u64 {
        inner.files.iter().map(|file| file.capacity.min(self.file_bytes)).sum()
    }

    /// What the log up to this position takes of the bound. What a file made under an earlier, higher bound holds
    /// beyond this bound's file size takes nothing, as in [`FileTable::counted`].
    pub(crate) fn used(&self, position: u64) -> u64 {
        let inner = self.inner.lock();
        let filled = |file: &LogFile| position.saturating_sub(file.start).min(file.capacity);
        inner.files.iter().map(|file| filled(file).min(self.file_bytes)).sum()
    }

    /// The bound on the bytes of all files.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The most that can be promised to one packet, once all files are freed but the one that the log ends in.
    pub(crate) fn most_for_one(&self) -> u64 {
        let beside_the_last = (self.bytes_max / self.file_bytes).saturating_sub(1).max(1);
        beside_the_last.saturating_mul(self.file_bytes)
    }

    fn publish(&self, inner: &Inner) {
        let Some(last) = inner.files.back() else { return };
        // The next file is begun when half of the last one is left.
        self.threshold.store(last.end() - last.capacity / 2, Ordering::SeqCst);
        self.prepared.store(last.end(), Ordering::SeqCst);
    }

    /// The stream position up to which files are prepared.
    pub(crate) fn prepared(&self) -> u64 {
        self.prepared.load(Ordering::SeqCst)
    }

    /// Whether the next file should be prepared, now that the gatherer is at `position`.
    pub(crate) fn is_due(&self, position: u64) -> bool {
        position >= self.threshold.load(Ordering::Relaxed)
    }

    /// Writes and syncs whole pages of the stream that were read from a cache, which may never have reached the disk.
    pub(super) fn write_again(&self, start: u64, pages: &[u8]) -> Result<()> {
        let (mut from, end) = (start, start + pages.len() as u64);
        while from < end {
            let part = self.at(from).expect("log files follow each other without gaps");
            let to = end.min(part.end());
            let mut bytes = AlignedBuffer::zeroed((to - from) as usize);
            bytes.copy_from_slice(&pages[(from - start) as usize..(to - start) as usize]);
            let is_kept = !fault_injection::is_on("tail-not-written-again");
            if is_kept || to == end {
                part.file.write_at(&bytes, part.offset(from))?;
            }
            if is_kept {
                part.file.sync()?;
            }
            from = to;
        }
        Ok(())
    }

    /// The checksums' seed of the blocks of a file.
    pub(super) fn seed_of(&self, sequence: u64) -> u64 {
        block::seed(self.database, sequence)
    }

    /// The number and the beginning of the next file.
    pub(super) fn next(&self) -> (u64, u64) {
        self.inner.lock().files.back().map_or((1, 0), |last| (last.sequence + 1, last.end()))
    }

    /// The file that ends at this position, or that the position lies in.
    pub(super) fn ending_at(&self, position: u64) -> Option<Arc<LogFile>> {
        let inner = self.inner.lock();
        inner.files.iter().rev().find(|file| (file.start + 1..=file.end()).contains(&position)).cloned()
    }

    /// Removes the files from this position on, in which the log has nothing.
    pub(super) fn remove_from(&self, position: u64) -> Result<()> {
        let _one = self.clock.lock(&self.preparing);
        let mut removed = Vec::new();
        while let Some(last) = self.inner.lock().files.pop_back_if(|last| last.start >= position) {
            let spare = spare_name(last.sequence);
            self.disk.rename(&name(last.sequence), &spare)?;
            // The last file goes first, and no crash brings it back under its name: it may be cut.
            self.disk.sync_directory()?;
            removed.push(spare);
        }
        self.publish(&self.inner.lock());
        Ok(removed.iter().try_for_each(|spare| remove_in_steps(&*self.disk, spare))?)
    }

    /// The file that holds the position, if it is prepared; at a boundary, the file after it.
    pub(crate) fn at(&self, position: u64) -> Option<Arc<LogFile>> {
        let inner = self.inner.lock();
        inner.files.iter().rev().find(|file| (file.start..file.end()).contains(&position)).cloned()
    }

    /// Makes the next log file, from a spare if there is one. On a full disk it makes a short file if no checkpoint can
    /// free another: the file that the log ends in is never freed, so the log has to continue after it.
    pub(crate) fn prepare(&self) -> Result<()> {
        let may_be_short = self.inner.lock().may_be_short;
        self.prepare_within(self.bytes_max, may_be_short)
    }

    /// As [`FileTable::prepare`], but beyond the bound if need be, and short on a full disk: a log that cannot be
    /// opened has no checkpoint to make room.
    pub(crate) fn prepare_to_open(&self) -> Result<()> {
        self.prepare_within(u64::MAX, true)
    }

    /// For a follower: makes the next log file as another log has it, with room for so many bytes of the stream.
    pub(super) fn prepare_as(&self, capacity: u64) -> Result<()> {
        self.prepare_next(Some(capacity), self.bytes_max, false)
    }

    /// For a copy that is received: makes the next log file as another log has it; the first one may be any.
    pub(super) fn prepare_at(&self, layout: &LogFileLayout) -> Result<Arc<LogFile>> {
        let _one = self.clock.lock(&self.preparing);
        let file = self.make(layout.sequence, layout.start.0, layout.bytes, None, false)?;
        self.inner.lock().files.push_back(file.clone());
        Ok(file)
    }

    fn prepare_within(&self, bytes_max: u64, may_be_short: bool) -> Result<()> {
        self.prepare_next(None, bytes_max, may_be_short)
    }

    fn prepare_next(&self, capacity: Option<u64>, bytes_max: u64, may_be_short: bool) -> Result<()> {
        let _one = self.clock.lock(&self.preparing);
        let (sequence, start, used, spare) = {
            let inner = self.inner.lock();
            let (sequence, start) = inner.files.back().map_or((1, 0), |last| (last.sequence + 1, last.end()));
            (sequence, start, self.counted(&inner), inner.spares.last().cloned())
        };
        let usual = if sequence == 1 { self.first_file_bytes } else { self.file_bytes };
        let capacity = capacity.unwrap_or(usual);
        if used.saturating_add(capacity) > bytes_max {
            let reason = format!(
                "its files hold {used} of at most {bytes_max} bytes (log_bytes_max), and none is free for reuse yet"
            );
            return Err(Error::LogFull { reason });
        }
        let spare = spare.filter(|_| capacity == self.file_bytes);
        let made = self.make(sequence, start, capacity, spare, may_be_short);
        if made.is_err() {
            // The part of a file that a full disk had room for is of no use. Whether it can be removed makes no
            // difference here.
            let _ = remove_in_steps(&*self.disk, UNFINISHED);
        }
        let file = made?;
        let mut inner = self.inner.lock();
        inner.files.push_back(file);
        self.publish(&inner);
        Ok(())
    }

    /// Makes a log file from the spare, or a new one.
    fn make(
        &self,
        sequence: u64,
        start: u64,
        mut capacity: u64,
        spare: Option<String>,
        may_be_short: bool,
    ) -> Result<Arc<LogFile>> {
        let name = name(sequence);
        let is_made_over = spare.map_or(Ok(false), |spare| self.begin_over(&spare))?;
        if !is_made_over {
            capacity = self.make_anew(capacity, may_be_short)?;
        }
        let file = self.disk.open(UNFINISHED, Open::Existing, Caching::Direct)?;
        if file.length()? != PAGE as u64 + capacity {
            drop(file);
            capacity = self.make_anew(capacity, may_be_short)?;
        }
        let file = self.disk.open(UNFINISHED, Open::Existing, Caching::Direct)?;
        file.write_at(&header(self.database, sequence, start, capacity), 0)?;
        file.sync()?;
        drop(file);
        self.disk.rename(UNFINISHED, &name)?;
        self.disk.sync_directory()?;
        Ok(Arc::new(LogFile::open(&*self.disk, &name, self.database, self.caching)?))
    }

    /// Begins to turn a spare into a log file; `false` if it is gone, because something else has removed it.
    fn begin_over(&self, spare: &str) -> DiskResult<bool> {
        // Renamed first: a spare that is being turned into a log file has to be recognised as unfinished.
        let is_there = match self.disk.rename(spare, UNFINISHED) {
            Err(error) if error.is_missing() => false,
            renamed => renamed.map(|()| true)?,
        };
        self.inner.lock().spares.retain(|other| other != spare);
        Ok(is_there)
    }

    /// Takes room on the disk for a new file, unless a checkpoint is to have it first ([`FileTable::leave_room`]).
    /// Returns how many bytes of the stream the file holds: fewer on a full disk, if it may be short.
    fn make_anew(&self, capacity: u64, may_be_short: bool) -> Result<u64> {
        let (is_left, full) = {
            let inner = self.inner.lock();
            (inner.room_is_left, inner.full.clone())
        };
        if let Some(full) = full.filter(|_| is_left) {
            return Err(full.into());
        }
        let Err(error) = self.make_zeros(capacity) else {
            let mut inner = self.inner.lock();
            (inner.full, inner.may_be_short) = (None, false);
            return Ok(capacity);
        };
        {
            let mut inner = self.inner.lock();
            (inner.full, inner.may_be_short) = (error.is_full().then(|| error.clone()), false);
        }
        if error.is_full() && may_be_short {
            let mut short = (capacity / SHORT).next_multiple_of(PAGE as u64).max(SHORT_BYTES_MIN);
            while (SHORT_BYTES_MIN..capacity).contains(&short) {
                // Whether the room can be given back shows when the short file is made.
                let _ = remove_in_steps(&*self.disk, UNFINISHED);
                match self.make_zeros(short) {
                    Err(error) if error.is_full() => short = (short / 2).next_multiple_of(PAGE as u64),
                    made => return Ok(made.map(|()| short)?),
                }
            }
        }
        Err(error.into())
    }

    /// A checkpoint begins, or has ended. Invariant: **from an attempt that met a full disk to the end of the next
    /// checkpoint that begins after it, no attempt takes room that the checkpoint may need**, even for a moment,
    /// because the checkpoint is what frees log.
    pub(crate) fn leave_room(&self, is_left: bool) {
        let full = {
            let mut inner = self.inner.lock();
            inner.room_is_left = is_left;
            if is_left {
                inner.is_behind_full = inner.full.is_some();
            } else if inner.is_behind_full {
                (inner.full, inner.may_be_short) = (None, inner.spares.is_empty());
            }
            inner.full.is_some()
        };
        if is_left && full {
            // An attempt that has begun gives back the room that it has taken.
            drop(self.clock.lock(&self.preparing));
        }
    }

    fn make_zeros(&self, capacity: u64) -> DiskResult<()> {
        match self.disk.remove(UNFINISHED) {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        // Past the system's cache: its write-back is throttled, and with it everything else that is not direct, such as
        // the inode that a commit's sync may have to write.
        let file = self.disk.open(UNFINISHED, Open::CreateNew, Caching::Direct)?;
        let bytes = PAGE as u64 + capacity;
        file.allocate(bytes)?;
        let zeros = AlignedBuffer::zeroed(ZEROS.min(bytes as usize));
        let mut at = 0;
        while at < bytes {
            let length = (bytes - at).min(zeros.len() as u64);
            file.write_at(&zeros[..length as usize], at)?;
            at += length;
            // In small pieces, so that a commit's own sync never has to wait for the whole file.
            if at.is_multiple_of(8 << 20) {
                file.sync()?;
            }
        }
        file.sync()
    }

    /// Asks the preparer for room up to `position`, and for the next file if the last one is half full.
    pub(crate) fn want(&self, position: u64) -> RoomRequest {
        let mut inner = self.inner.lock();
        inner.wanted = inner.wanted.max(position);
        // No further request until the preparer has answered.
        self.threshold.store(u64::MAX, Ordering::Relaxed);
        self.asked.notify_one();
        RoomRequest { begun: inner.begun }
    }

    /// Sleeps until there is another file, or an attempt that was begun after the request `asked` has failed, or for a
    /// short while. Returns why that attempt failed. An earlier failure does not count, because its cause may be gone:
    /// a checkpoint may have freed files.
    pub(crate) fn wait_for_attempt(&self, asked: RoomRequest, most: Duration) -> Option<String> {
        let mut inner = self.inner.lock();
        // By the real clock: the preparer is a thread of a log that has threads.
        let (until, ended) = (Instant::now() + most, inner.ended);
        let is_answered = |inner: &Inner| {
            inner.ended > asked.begun || inner.ended > ended && inner.problem.is_none() || inner.closed
        };
        while !is_answered(&inner) {
            if self.changed.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        if inner.ended > asked.begun { inner.problem.clone() } else { None }
    }

    /// The preparer thread's loop. Calls `made` after each file.
    pub(crate) fn serve(&self, made: impl Fn()) {
        let mut inner = self.inner.lock();
        while !inner.closed {
            if inner.wanted <= self.prepared() {
                self.asked.wait(&mut inner);
                continue;
            }
            let wanted = std::mem::take(&mut inner.wanted);
            inner.begun += 1;
            drop(inner);
            let prepared = self.prepare();
            made();
            inner = self.inner.lock();
            inner.ended = inner.begun;
            inner.problem = prepared.err().map(|error| match error {
                Error::LogFull { reason } => reason,
                error => error.to_string(),
            });
            self.changed.notify_all();
            // After a failure nothing is lost yet: commits continue in the room that there is. The next attempt begins
            // when a commit needs more, or at once if one has asked for more since this attempt began.
            if inner.problem.is_none() {
                inner.wanted = inner.wanted.max(wanted);
            }
        }
    }

    /// Ends [`FileTable::serve`] and every wait.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.asked.notify_one();
        self.changed.notify_all();
    }

    /// Frees the files that hold only packets before `lsn` and lie before the durable position.
    ///
    /// As many files as are freed are kept as spares, or one less than the last time if that is more. About as many
    /// will be needed before the next ones are freed. A spare costs one page when it is used again. A new file costs
    /// zeros for its whole length, blocks that the device has to find, and others that it has to give up. The spares
    /// and the log together stay within the bound of the log, as far as `spare_files_max` allows. The other freed files
    /// are removed in steps.
    ///
    /// With an archive, files that the archive does not have yet stay.
    pub(crate) fn free_before(&self, lsn: Lsn, durable: u64) -> Result<u64> {
        self.free_before_beside(lsn, durable, |_| false)
    }

    /// As [`FileTable::free_before`]; the file that log cursors need, in a log that ends at `log_end`, and those after it stay, too.
    pub(super) fn free_what_no_cursor_needs(&self, lsn: Lsn, durable: u64, log_end: u64) -> Result<u64> {
        self.free_before_beside(lsn, durable, |file| {
            self.subscriptions.keep(file.end(), log_end)
                && !fault_injection::is_on("log-freed-under-a-cursor")
        })
    }

    fn free_before_beside(&self, lsn: Lsn, durable: u64, stays: impl Fn(&LogFile) -> bool) -> Result<u64> {
        let last = match self.archiver() {
            Some(archiver) => archiver.take(&self.freeable(lsn, durable)),
            None => u64::MAX,
        };
        let one = self.clock.lock(&self.preparing);
        let (mut freed, mut surplus) = (Vec::new(), Vec::new());
        let (kept_max, mut bytes) = {
            let mut inner = self.inner.lock();
            while let (Some(oldest), Some(next)) = (inner.files.front(), inner.files.get(1)) {
                if oldest.sequence > last || stays(oldest) || !LogFile::is_behind(next, lsn, durable) {
                    break;
                }
                freed.push((name(oldest.sequence), spare_name(oldest.sequence), oldest.capacity));
                inner.files.pop_front();
            }
            if freed.is_empty() {
                return Ok(0);
            }
            inner.kept_max = freed.len().max(inner.kept_max.saturating_sub(1));
            let files: u64 = inner.files.iter().map(|file| file.capacity).sum();
            (inner.kept_max.max(self.spares_max), files + inner.spares.len() as u64 * self.file_bytes)
        };
        // The thread that prepares files waits meanwhile, so it takes no spare.
        let before = self.inner.lock().spares.len();
        let (count, mut kept) = (freed.len() as u64, Vec::new());
        for (old, spare, capacity) in freed {
            self.disk.rename(&old, &spare)?;
            let spares = before + kept.len();
            let within = spares < self.spares_max || bytes + capacity <= self.bytes_max;
            if capacity == self.file_bytes && spares < kept_max && within {
                kept.push(spare);
                bytes += capacity;
            } else {
                surplus.push(spare);
            }
        }
        // From here on no crash brings back a file under the name that it had in the log: it may be cut, or used again.
        // After an error here that is not certain, and the renamed files wait for the next opening.
        self.disk.sync_directory()?;
        {
            let mut inner = self.inner.lock();
            inner.spares.extend(kept);
            // Spares that were kept for a busier time.
            let too_many = inner.spares.len().saturating_sub(kept_max);
            surplus.extend(inner.spares.drain(..too_many));
        }
        self.publish(&self.inner.lock());
        drop(one);
        for spare in surplus {
            remove_in_steps(&*self.disk, &spare)?;
        }
        Ok(count)
    }

    /// The files that [`FileTable::free_before`] frees, oldest first.
    fn freeable(&self, lsn: Lsn, durable: u64) -> Vec<Arc<LogFile>> {
        let inner = self.inner.lock();
        let pairs = inner.files.iter().zip(inner.files.iter().skip(1));
        pairs
            .take_while(|(_, next)| LogFile::is_behind(next, lsn, durable))
            .map(|(file, _)| file.clone())
            .collect()
    }

    /// From now on the files from this position on stay for a reader, up to a bound. `None`: they are not there any more.
    pub(super) fn subscribe(&self, position: u64, bytes_max: u64) -> Option<Arc<Subscription>> {
        // Files are freed with this held.
        let inner = self.inner.lock();
        let is_there = inner.files.front().is_some_and(|oldest| oldest.start <= position);
        is_there.then(|| self.subscriptions.add(position, bytes_max))
    }

    /// The place of the first packet that begins in the oldest file, if that is known.
    pub(super) fn oldest_place(&self) -> Option<Lsn> {
        self.inner.lock().files.front().and_then(|oldest| oldest.first())
    }

    /// The file at whose beginning a recovery begins to read that goes on behind this point; at least one block of it lies
    /// whole in pages before the point.
    pub(super) fn start_before(&self, point: &LogPoint) -> Option<Arc<LogFile>> {
        let inner = self.inner.lock();
        let begins = |file: &Arc<LogFile>| {
            file.start < point.position.0 && file.first().is_some_and(|first| first <= point.lsn.next())
        };
        let newest = inner.files.iter().rposition(begins)?;
        // Its first block may end behind the last whole page. Then nothing of the file was on the disk at the point, and the file
        // before it has not been freed.
        let is_near = point.position.0 - inner.files[newest].start < (BLOCK_MAX + PAGE) as u64;
        let back = usize::from(is_near && !fault_injection::is_on("copy-begins-in-its-last-page"));
        let earlier = newest.checked_sub(back).filter(|&earlier| begins(&inner.files[earlier]));
        Some(inner.files[earlier.unwrap_or(newest)].clone())
    }

    /// Opens a file of the log to read it.
    pub(super) fn open_to_read(&self, file: &LogFile) -> DiskResult<Arc<dyn File>> {
        self.disk.open(&name(file.sequence), Open::ReadOnly, Caching::Buffered)
    }

    /// From here on no file is freed that the archive does not have.
    pub(crate) fn archive_to(&self, archiver: Archiver) {
        // An opening has one archive.
        let _ = self.archiver.set(archiver);
    }

    pub(crate) fn archiver(&self) -> Option<&Archiver> {
        self.archiver.get()
    }

    /// Has the archive copy all that is durable, of the file that is being written its durable part.
    pub(crate) fn archive_all(&self, durable: u64) -> Result<()> {
        let Some(archiver) = self.archiver() else { return Ok(()) };
        archiver.take_up_to(&self.before(durable), durable)
    }

    /// Refuses an archive that has the log of another life of the database.
    pub(crate) fn check_archive(&self, durable: u64) -> Result<()> {
        let Some(archiver) = self.archiver() else { return Ok(()) };
        archiver.check_is_ours(&self.before(durable), durable)
    }

    /// The files that begin before `position`.
    fn before(&self, position: u64) -> Vec<Arc<LogFile>> {
        self.inner.lock().files.iter().filter(|file| file.start < position).cloned().collect()
    }

    /// The oldest position that is still there, and the number of files.
    pub(crate) fn extent(&self) -> (u64, usize) {
        let inner = self.inner.lock();
        (inner.files.front().map_or(0, |file| file.start), inner.files.len())
    }

    /// The files after the one that holds `position`: prepared and, as far as the log knows, never written.
    pub(crate) fn behind(&self, position: u64) -> Vec<Arc<LogFile>> {
        self.inner.lock().files.iter().filter(|file| file.start >= position).cloned().collect()
    }
}
