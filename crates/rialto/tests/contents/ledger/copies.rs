//! Backups, full ones and increments, and an archive of the log, made while clients work; what each of them has to
//! have, and restores of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rialto::backup::{Archive, BACKUP_FILE, Backup, Restore, RestoreTo, restore};
use rialto::io::{Disk, FaultyDisk, MemoryDisk, Random};
use rialto::{BackupKind, Checkpointing, Database, Error, Lsn, OpenError, Options};

use super::clients::procedures;
use super::contents::{Contents, contents};
use super::told::{Moment, Told};

/// The number of the archive's directory on the machine; that of the database is 0, and each backup has one from
/// [`BACKUPS`] on.
const ARCHIVE: usize = 1;
const BACKUPS: usize = 2;

/// The archive on a machine.
pub fn archive_on(machine: &FaultyDisk) -> Archive {
    Archive::on(machine.directory(ARCHIVE))
}

/// Where backups go.
#[derive(Debug, Clone)]
pub enum Shelf {
    /// A disk that loses nothing.
    Elsewhere,
    /// Directories of the database's machine.
    Machine(Arc<FaultyDisk>),
}

/// A complete backup.
#[derive(Debug, Clone)]
pub struct Taken {
    disk: Arc<dyn Disk>,
    /// The number of its directory on the machine.
    directory: usize,
    /// The backup that it is an increment on.
    base: Option<usize>,
    /// The last place in it.
    pub place: Lsn,
    /// Of each writer, how many transactions were acknowledged before it began.
    pub least: Vec<i64>,
    began: Moment,
    pub ended: Moment,
}

/// A call, or a close, that has archived everything that had committed before.
#[derive(Debug, Clone)]
pub struct Archived {
    /// Of each writer, how many transactions were acknowledged before.
    pub least: Vec<i64>,
    pub began: Moment,
    ended: Moment,
}

/// Backups in the order in which they were taken, and what was archived.
#[derive(Debug, Clone)]
pub struct Copies {
    pub taken: Vec<Taken>,
    pub archived: Vec<Archived>,
    /// Backups that have begun.
    begun: usize,
    /// The last backup of this opening, which an increment follows.
    base: Option<usize>,
    /// The database's.
    machine: Arc<FaultyDisk>,
    /// Whether a call of the machine's disk may fail while the machine runs.
    has_fault: bool,
    /// Whether the database may be closed while copies are made.
    pub may_be_closed: bool,
    about: String,
}

/// How many transactions of each writer answers have told by now.
fn committed(told: &[Told]) -> Vec<i64> {
    told.iter().map(|it| it.least(false)).collect()
}

impl Copies {
    /// No copies yet, of a database on this machine.
    pub fn new(machine: &Arc<FaultyDisk>, has_fault: bool, about: &str) -> Copies {
        Copies {
            taken: Vec::new(),
            archived: Vec::new(),
            begun: 0,
            base: None,
            machine: machine.clone(),
            has_fault,
            may_be_closed: false,
            about: about.to_owned(),
        }
    }

    /// Takes one backup after another, and archives the log if there is an archive, until the clients have ended.
    pub fn keep(
        &mut self,
        db: &Database,
        shelf: &Shelf,
        told: &[Told],
        mut random: Random,
        over: &AtomicBool,
    ) {
        let has_archive = db.metrics().archive.is_some();
        self.take(db, shelf, told, BackupKind::Full);
        while !over.load(Ordering::SeqCst) {
            if has_archive && random.chance(1, 2) {
                self.archive(told, || db.archive_log());
            } else {
                let kind = if random.chance(1, 2) { BackupKind::Full } else { BackupKind::Incremental };
                self.take(db, shelf, told, kind);
            }
            std::thread::sleep(Duration::from_micros(random.below(3_000)));
        }
    }

    /// Takes a backup, unless the disk ends or the log grows too fast.
    pub fn take(&mut self, db: &Database, shelf: &Shelf, told: &[Told], kind: BackupKind) {
        let directory = BACKUPS + self.begun;
        let disk: Arc<dyn Disk> = match shelf {
            Shelf::Elsewhere => MemoryDisk::new(),
            Shelf::Machine(machine) => machine.directory(directory),
        };
        self.begun += 1;
        let (began, least) = (told[0].now(), committed(told));
        let report = match db.backup_on(disk.clone(), kind) {
            Ok(report) => report,
            Err(Error::LogFull { .. }) => return,
            Err(error) => return self.check_failure(&error),
        };
        let base = report.base.map(|_| self.base.expect("an increment follows a backup of this opening"));
        let ended = told[0].now();
        self.base = Some(self.taken.len());
        self.taken.push(Taken { disk, directory, base, place: report.place, least, began, ended });
    }

    /// Makes the archive take everything that has committed so far.
    pub fn archive(&mut self, told: &[Told], take: impl FnOnce() -> Result<(), Error>) {
        let (began, least) = (told[0].now(), committed(told));
        match take() {
            Ok(()) => self.archived.push(Archived { least, began, ended: told[0].now() }),
            Err(error) => self.check_failure(&error),
        }
    }

    /// Fails if no event of the disk or the database can have led to this error.
    fn check_failure(&self, error: &Error) {
        let is_closed = self.may_be_closed && matches!(error, Error::Closed);
        let is_possible = is_closed || self.has_fault || self.machine.is_down();
        assert!(is_possible, "{}, on a disk that works: {error}", self.about);
    }

    /// One of the backups that were complete before the machine lost its power in a step.
    pub fn any_before(&self, step: u64, random: &mut Random) -> Option<&Taken> {
        let before = self.taken.iter().filter(|taken| taken.ended.step < step).count();
        self.taken[..before].get(random.below(before.max(1) as u64) as usize)
    }

    /// A backup that was being taken in that step, and is complete on this machine all the same.
    pub fn last_within(&self, step: u64, machine: &FaultyDisk) -> Option<&Taken> {
        let is_within = |taken: &&Taken| (taken.began.step..=taken.ended.step).contains(&step);
        let is_there = |taken: &&Taken| {
            let names = machine.directory(taken.directory).list().expect("the power is on");
            names.iter().any(|name| name == BACKUP_FILE)
        };
        self.taken.iter().filter(is_within).find(is_there)
    }

    /// The last promise of the archive before that step.
    pub fn archived_before(&self, step: u64) -> Option<&Archived> {
        self.archived.iter().rfind(|archived| archived.ended.step < step)
    }

    /// Whether something was promised just before this step.
    pub fn is_just_behind(&self, step: u64) -> bool {
        let taken = self.taken.iter().map(|taken| taken.ended.step);
        let ends = taken.chain(self.archived.iter().map(|archived| archived.ended.step));
        ends.into_iter().any(|end| (end + 1..=end + 2).contains(&step))
    }

    /// How many directories of the machine they use, including that of the database.
    pub fn directories(&self) -> usize {
        BACKUPS + self.begun
    }

    /// A backup and everything that it is an increment on, as they lie on a machine, or elsewhere.
    pub fn chain(&self, last: &Taken, machine: Option<&FaultyDisk>) -> Vec<Backup> {
        let mut chain = Vec::new();
        let mut next = Some(last);
        while let Some(taken) = next {
            let disk = machine.map_or(taken.disk.clone(), |machine| machine.directory(taken.directory));
            let backup = Backup::on(disk, &format!("backup-{}", taken.directory));
            chain.push(backup.unwrap_or_else(|error| panic!("a backup that came to its end: {error}")));
            next = taken.base.map(|base| &self.taken[base]);
        }
        chain.reverse();
        chain
    }
}

/// A restore of these.
pub fn plan(chain: Vec<Backup>, archive: Option<Archive>, to: RestoreTo, memory_bytes: u64) -> Restore {
    Restore { archive, to, memory_bytes, procedures: procedures(), threads: 2, ..Restore::new(chain) }
}

/// The contents of a restored database, and the place up to which it was restored; or the error.
pub fn restored(plan: Restore, about: &str) -> Result<(Lsn, Contents), OpenError> {
    let (disk, memory_bytes) = (MemoryDisk::new(), plan.memory_bytes);
    let report = restore(plan, disk.clone())?;
    Ok((report.place, opened(disk, memory_bytes, about)))
}

/// The contents of a database that a restore has made.
pub fn opened(disk: Arc<dyn Disk>, memory_bytes: u64, about: &str) -> Contents {
    let options = Options {
        memory_bytes,
        checkpoint: Checkpointing::None,
        procedures: procedures(),
        ..Options::default()
    };
    let db = Database::open_on(disk, options).unwrap_or_else(|error| panic!("{about}: {error}"));
    contents(&db, about)
}

/// Whether a restore is refused because the archive has no log yet.
pub fn has_no_log(error: &OpenError) -> bool {
    error.to_string().contains("holds no log of database")
}
