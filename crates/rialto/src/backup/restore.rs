//! Restore: makes a database of a backup.
//!
//! # The crash argument
//!
//! A restored database has an *identity of its own*. Every image, of a segment or of a page, is sealed anew for it, and
//! its log begins with a file and a pad of its own. The checksums of images, commit blocks and load files are seeded with the database's identity;
//! a log file's header, the ring and the home block name it. So nothing that the old database wrote, before the
//! restored place or after it, ever verifies in the new one: no block of the abandoned tail can chain on, and no image
//! or load file of the old database is taken for the new one's. The new log continues with the place after the restored
//! one, so that the rows' `Lsn`s stay in their order. The new database's files cannot show that the old database had
//! other packets at the later places. The archive of the new database's log has a directory of its own.
//!
//! Images of pages go into a new page file, with the words that a checkpoint publishes of them. Redo of an archived log
//! writes pages to addresses that these words do not name, and then publishes words of its own.
//!
//! The home block is written *last*, after everything else is durable. Until then the directory is no database: a
//! crash, or an error whose cleaning up also fails, leaves the file [`RESTORING`], and an opening refuses a directory
//! with this file. Another restore begins anew over it.
//!
//! Once the home file is durable the directory is a database, with [`RESTORING`] or without: an opening removes that
//! file. So an error after that moment takes nothing back. An error before it removes everything, in the other order:
//! first the home file, which may exist already, durably, then all else, and [`RESTORING`] last. So a directory with
//! files and without [`RESTORING`] is a whole database, at any time.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::redo::RestoreProgress;
use super::stream::{BackupHeader, ReadPart, StreamKind, StreamReader};
use super::{Archive, BACKUP_FILE, Backup, CopyObserver, CopyProgress};
use crate::checkpoint::home::{HOME_FILE, HomeFile, HomePages, NEW_HOME_FILE, RestoredHome};
use crate::checkpoint::image_sums::ImageSums;
use crate::engine::Procedure;
use crate::error::Error;
use crate::fault_injection;
use crate::foreign::Progress;
use crate::ids::Lsn;
use crate::io::{AlignedBuffer, Caching, Disk, File, FileDisk, Open};
use crate::log::{Log, LogOptions, LogPoint};
use crate::recovery::{OpenError, threads_by_default};
use crate::seed;
use crate::store::budget::memory_bytes_by_default;
use crate::store::memory::SEGMENT_BYTES;
use crate::store::memory::image::{self, ImageHeader, backup_name, seed_of};
use crate::store::memory::segments::{Copy, IMAGE_HEADER_BYTES};
use crate::store::paged::{CACHE_BYTES_BY_DEFAULT, PAGE_FILE, PageList, RestoredPages};

/// The file in a directory which says that a restore to it is not complete.
pub(crate) const RESTORING: &str = "restore-unfinished";
/// The number of the first checkpoint of a restored database.
pub(super) const FIRST_CHECKPOINT: u64 = 1;

/// How far a database is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestoreTo {
    /// To the last backup, and to the end of the archived log if an archive is given.
    #[default]
    End,
    /// Up to this place in the log.
    Place(Lsn),
    /// Up to the last group that was on its way to the disk by this time, exact to the machine's clock and 10 ms. A
    /// time that occurs twice in the log, because the clock was set back, is refused.
    Time(SystemTime),
}

/// What is restored, and how far.
pub struct Restore {
    /// A full backup, and the increments on it in the order in which they were taken.
    pub backups: Vec<Backup>,
    /// The archived log that follows them.
    pub archive: Option<Archive>,
    /// How far to restore; to the end by default.
    pub to: RestoreTo,
    /// The bound on the memory that redo may take, in bytes; by default as in [`Options`](crate::Options). Without an
    /// archive no such memory is needed.
    pub memory_bytes: u64,
    /// The memory that pages of disk-resident tables take while the archived log is redone, in bytes; by default as in
    /// [`Options`](crate::Options). Redo has at least 64 pages in memory.
    pub cache_bytes: u64,
    /// How many threads redo uses; by default as in [`Options`](crate::Options). It uses at least one, and at most
    /// [`Options::RECOVERY_THREADS_MAX`](crate::Options::RECOVERY_THREADS_MAX).
    pub threads: usize,
    /// The procedures whose calls an archived log may have ([`Logging::Transaction`](crate::Logging::Transaction)), as
    /// [`Options::procedures`](crate::Options::procedures); none by default.
    pub procedures: Vec<Procedure>,
    /// Is told how many bytes of the backups are restored; nothing by default.
    pub observer: Option<CopyObserver>,
    /// Receives lines about a long redo of the archived log, which follows, as
    /// [`Options::progress`](crate::Options::progress); none by default.
    pub progress: Option<Progress>,
}

impl fmt::Debug for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restore")
            .field("backups", &self.backups)
            .field("archive", &self.archive)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// The report of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// The identity of the database that was backed up.
    pub from: u128,
    /// The identity of the restored database.
    pub database: u128,
    /// The last place that the restored database holds.
    pub place: Lsn,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Bytes of its page file: of disk-resident tables.
    pub page_bytes: u64,
    /// Packets of the archived log that were redone.
    pub packets: u64,
    /// When the last of them was on its way to the disk, if the log tells.
    pub time: Option<SystemTime>,
    /// Backups that were given but not needed, because a later one is full.
    pub needless: Vec<String>,
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RestoreReport { from, database, place, bytes, page_bytes, packets, needless, .. } = self;
        write!(
            f,
            "restored database {from:032x} up to place {place}, {packets} packets of it from the archive, {bytes} bytes, "
        )?;
        if *page_bytes > 0 {
            write!(f, "{page_bytes} bytes of pages, ")?;
        }
        write!(f, "as database {database:032x}")?;
        for name in needless {
            write!(f, "\nnot needed: {name}, because a full backup follows it")?;
        }
        Ok(())
    }
}

impl Restore {
    /// A restore of these backups alone.
    pub fn new(backups: Vec<Backup>) -> Restore {
        Restore {
            backups,
            archive: None,
            to: RestoreTo::End,
            memory_bytes: memory_bytes_by_default(),
            cache_bytes: CACHE_BYTES_BY_DEFAULT,
            threads: threads_by_default(),
            procedures: Vec::new(),
            observer: None,
            progress: None,
        }
    }

    /// Makes a database in a directory, which is created if it is missing, and otherwise has to be empty.
    ///
    /// # Errors
    /// As [`restore`].
    pub fn to_directory(self, path: impl AsRef<Path>) -> Result<RestoreReport, OpenError> {
        let path = path.as_ref();
        let failed = |error| OpenError::directory(&path.display().to_string(), &error);
        restore(self, FileDisk::create(path).map_err(failed)?)
    }
}

/// Makes a database of backups on an empty disk. After an error it is empty again.
///
/// # Errors
/// [`OpenError::Unsupported`] if the disk is not empty, if the backups do not follow each other, or if the archive is
/// of another database, does not reach as far as requested, or has the requested time twice; [`OpenError::Corrupt`]
/// with file and offset for a damaged or cut backup, and for a damaged or missing log file; [`OpenError::Memory`];
/// [`OpenError::Locked`]; [`OpenError::Io`].
pub fn restore(restore: Restore, to: Arc<dyn Disk>) -> Result<RestoreReport, OpenError> {
    let directory = to.describe();
    let lock = to.lock().map_err(|error| OpenError::directory(&directory, &error))?;
    make_empty(&*to, is_of_a_restore, &format!("restore to {directory}"))?;
    let restored = begin(&to, seed::identifier()).and_then(|mut target| restore.run(&mut target));
    if restored.is_err() {
        // The first error is returned; files that cannot be removed make no database.
        let _ = clear(&*to, is_of_a_restore);
    }
    drop(lock);
    restored
}

/// Marks an empty directory as unfinished, durably, and begins the restore of a database of this identity.
pub(super) fn begin(to: &Arc<dyn Disk>, database: u128) -> Result<RestoreTarget, OpenError> {
    let mark = to.open(RESTORING, Open::Create, Caching::Buffered)?;
    if !fault_injection::is_on("restore-mark-not-durable") {
        mark.sync()?;
        to.sync_directory()?;
    }
    Ok(RestoreTarget::new(to.clone(), database)?)
}

/// Tells by its name whether a file is one that is made before the home file.
pub(super) type IsMade = fn(&str) -> bool;

/// Refuses a directory that is not empty, except for what an interrupted restore left there, which it removes: files that
/// `is_made` tells. `doing` says what is refused.
pub(super) fn make_empty(to: &dyn Disk, is_made: IsMade, doing: &str) -> Result<(), OpenError> {
    let names = to.list()?;
    let is_unfinished =
        names.iter().any(|name| name == RESTORING) && !names.iter().any(|name| name == HOME_FILE);
    match names.iter().find(|name| !(is_unfinished && is_made(name))) {
        None if is_unfinished => {
            // A home file whose removal was not made durable may still exist.
            to.sync_directory()?;
            Ok(clear(to, is_made)?)
        }
        None => Ok(()),
        Some(name) => {
            let what = format!(
                "cannot {doing}: it is not empty (it holds \"{name}\"); use an empty or a new directory"
            );
            Err(OpenError::Unsupported { what })
        }
    }
}

/// Whether a restore makes a file of this name.
pub(super) fn is_of_a_restore(name: &str) -> bool {
    [HOME_FILE, NEW_HOME_FILE, RESTORING, PAGE_FILE].contains(&name)
        || name == backup_name(Copy::Ping)
        || Log::makes(name)
}

/// Removes everything that a restore makes: first the home file, which makes it a database, and last the mark that it
/// is unfinished. Each removal is durable before the next one.
pub(super) fn clear(to: &dyn Disk, is_made: IsMade) -> Result<(), Error> {
    let (home, rest): (Vec<_>, Vec<_>) = to
        .list()?
        .into_iter()
        .filter(|name| is_made(name) && name != RESTORING)
        .partition(|name| name == HOME_FILE);
    for names in [home, rest].iter().filter(|names| !names.is_empty()) {
        names.iter().try_for_each(|name| to.remove(name))?;
        to.sync_directory()?;
    }
    match to.remove(RESTORING) {
        Err(error) if !error.is_missing() => Err(error.into()),
        _ => Ok(to.sync_directory()?),
    }
}

/// The database in the making.
pub(super) struct RestoreTarget {
    pub disk: Arc<dyn Disk>,
    pub database: u128,
    /// Its first backup copy.
    pub copy: Arc<dyn File>,
    pub sums: ImageSums,
    buffer: AlignedBuffer,
    /// The pages of the backups, if the last one has a list of them.
    pages: Option<RestoredPages>,
}

impl RestoreTarget {
    fn new(disk: Arc<dyn Disk>, database: u128) -> Result<RestoreTarget, Error> {
        let copy = disk.open(&backup_name(Copy::Ping), Open::CreateNew, Caching::Direct)?;
        let buffer = AlignedBuffer::zeroed(SEGMENT_BYTES);
        let sums = ImageSums::default();
        Ok(RestoreTarget { disk, database, copy, sums, buffer, pages: None })
    }

    pub fn put(&mut self, number: u32, heap: Option<crate::HeapId>, bytes: &[u8]) -> Result<(), Error> {
        let used = IMAGE_HEADER_BYTES + bytes.len();
        self.buffer[IMAGE_HEADER_BYTES..used].copy_from_slice(bytes);
        let header = ImageHeader { heap, segment: number, used, sequence: FIRST_CHECKPOINT };
        let sealed = image::seal(&mut self.buffer, &header, seed_of(self.database));
        self.sums.set(Copy::Ping, number, sealed.checksum);
        Ok(self.copy.write_at(sealed.bytes, u64::from(number) * SEGMENT_BYTES as u64)?)
    }

    /// A backup with this list of pages follows; what the backups before it have stays if it is an increment.
    pub fn put_list(&mut self, list: PageList, is_increment: bool) -> Result<(), Error> {
        match &mut self.pages {
            Some(pages) if is_increment && pages.list().page_bytes == list.page_bytes => {
                pages.follow(list)?
            }
            _ => {
                self.remove_pages()?;
                self.pages = Some(RestoredPages::begin(&self.disk, seed_of(self.database), list)?);
            }
        }
        Ok(())
    }

    /// Adds a page's image, which is in the list that was put.
    pub fn put_page(&mut self, number: u32, image: &[u8]) -> Result<(), Error> {
        self.pages.as_mut().expect("a page comes behind the list").put(number, image)
    }

    /// The pages of the backups, if the last one has a list of them.
    pub fn pages(&self) -> Option<&RestoredPages> {
        self.pages.as_ref()
    }

    /// The bytes of the page file, if it has pages.
    pub fn page_bytes(&self, pages: Option<HomePages>) -> Result<u64, OpenError> {
        match pages {
            Some(_) => Ok(self.disk.open(PAGE_FILE, Open::ReadOnly, Caching::Buffered)?.length()?),
            None => Ok(0),
        }
    }

    /// The database has no pages.
    fn remove_pages(&mut self) -> Result<(), Error> {
        self.pages.take().map_or(Ok(()), RestoredPages::remove)
    }

    /// Makes the pages of the backups durable, which are as of this place, and gives what a home block says of them.
    pub fn publish_pages(&mut self, place: Lsn) -> Result<Option<HomePages>, Error> {
        let published = self.pages.as_mut().map(RestoredPages::publish).transpose()?;
        Ok(published.map(|pages| HomePages::new(pages, place)))
    }

    /// The digest of the images of the segments below `segments`.
    pub fn digest(&self, segments: u32) -> u64 {
        self.sums.digest(Copy::Ping, segments, seed_of(self.database))
    }

    /// Makes it a database whose next place is the one after `place`; everything else is written.
    fn finish(&self, reached: &RestoreProgress) -> Result<(), Error> {
        let RestoreProgress { place, segments, next_id, pages, .. } = *reached;
        self.copy.sync()?;
        let options = LogOptions::of_a_log_that_is_only_made();
        Log::create_at(&self.disk, self.database, &options, place)?.close()?;
        self.name_home((segments, next_id), LogPoint::beginning_after(place), pages)
    }

    /// Makes it a database with so many segments and this next identifier, whose log goes on from this point. Everything
    /// else is on the disk.
    pub fn name_home(
        &self,
        (segments, next_id): (u32, u32),
        point: LogPoint,
        pages: Option<HomePages>,
    ) -> Result<(), Error> {
        let digest = self.digest(segments);
        let home = RestoredHome { database_id: self.database, segments, next_id, point, digest, pages };
        HomeFile::restore(&*self.disk, &home)?;
        // It is a database now. If this fails, the next opening does it.
        let _ = self.disk.remove(RESTORING).and_then(|()| self.disk.sync_directory());
        Ok(())
    }
}

impl Restore {
    fn run(mut self, target: &mut RestoreTarget) -> Result<RestoreReport, OpenError> {
        let mut chain = Chain::default();
        let backups = std::mem::take(&mut self.backups);
        let observer = self.observer.take();
        let mut progress =
            CopyProgress::of(observer.as_ref(), backups.iter().map(|backup| backup.bytes).sum());
        let mut read = 0;
        for mut backup in backups {
            read = chain.add(&mut backup, target, read, &mut progress)?;
        }
        progress.end(read);
        let Some((_, header)) = &chain.last else {
            return Err(OpenError::Options { what: "a restore without a backup".to_owned() });
        };
        StreamReader::check_whole(
            &chain.name(),
            header,
            &chain.there,
            target.pages.as_ref(),
            StreamKind::Backup,
        )?;
        self.check_not_before(header, &chain.name())?;
        let pages = target.publish_pages(header.place)?;
        let reached = match &self.archive {
            Some(archive) => self.redo(archive, (header, pages), &chain.name(), target)?,
            None => self.backup_alone((header, pages), &chain.name())?,
        };
        let page_bytes = target.page_bytes(reached.pages)?;
        let report = RestoreReport {
            from: header.database,
            database: target.database,
            place: reached.place,
            bytes: u64::from(reached.segments) * SEGMENT_BYTES as u64,
            page_bytes,
            packets: reached.packets,
            time: (reached.time_ms > 0).then(|| UNIX_EPOCH + Duration::from_millis(reached.time_ms)),
            needless: chain.needless,
        };
        target.finish(&reached)?;
        Ok(report)
    }
}

/// A sequence of backups, each following the one before.
#[derive(Default)]
struct Chain {
    last: Option<(String, BackupHeader)>,
    there: HashSet<u32>,
    needless: Vec<String>,
}

impl Chain {
    fn name(&self) -> String {
        self.last.as_ref().map_or(BACKUP_FILE.to_owned(), |(name, _)| name.clone())
    }

    /// Adds a backup; the bytes of those before it are `read`. Gives these and its own.
    fn add(
        &mut self,
        backup: &mut Backup,
        target: &mut RestoreTarget,
        read: u64,
        progress: &mut CopyProgress<'_>,
    ) -> Result<u64, OpenError> {
        let Backup { name, from, .. } = backup;
        let mut reader = StreamReader::begin(&mut **from, name, StreamKind::Backup)?;
        let header = reader.header;
        self.check(name, &header)?;
        if header.base.is_none() {
            self.needless.extend(self.last.take().map(|(name, _)| name));
            self.there.clear();
        }
        if !header.has_pages {
            target.remove_pages()?;
        }
        while let Some(part) = reader.next()? {
            match part {
                ReadPart::Segment(segment) => {
                    target.put(segment.number, segment.heap, segment.bytes)?;
                    self.there.insert(segment.number);
                }
                ReadPart::List(list) => target.put_list(list, header.base.is_some())?,
                ReadPart::Page(page) => target.put_page(page.number, page.image)?,
                ReadPart::Log(_) => unreachable!("a backup has no log"),
            }
            progress.at(read + reader.position());
        }
        let read = read + reader.position();
        self.last = Some((name.clone(), header));
        Ok(read)
    }

    /// Whether the backup follows the ones before it.
    fn check(&self, name: &str, header: &BackupHeader) -> Result<(), OpenError> {
        let refuse = |what: String| Err(OpenError::Unsupported { what });
        let Some((base, base_place)) = header.base else { return Ok(()) };
        match &self.last {
            None => refuse(format!(
                "\"{name}\" is an increment on backup {base:032x} (place {base_place}): give the full backup that it \
                 follows first, and the increments between"
            )),
            Some((before, last)) if last.database != header.database => refuse(format!(
                "\"{name}\" is a backup of database {:032x}, \"{before}\" of database {:032x}: they do not go together",
                header.database, last.database
            )),
            Some((before, last)) if last.id != base => refuse(format!(
                "\"{name}\" is an increment on backup {base:032x} (place {base_place}), but \"{before}\" is backup {:032x} \
                 (place {}): give the increments in the order in which they were taken, and leave out none",
                last.id, last.place
            )),
            Some(_) => Ok(()),
        }
    }
}
