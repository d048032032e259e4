//! How far a restore goes: to its backup, or beyond it by the archived log.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Archive;
use super::restore::{FIRST_CHECKPOINT, Restore, RestoreTarget, RestoreTo};
use super::stream::BackupHeader;
use crate::checkpoint::RunLength;
use crate::checkpoint::catalog_copy::{CatalogCopy, ImageTarget};
use crate::checkpoint::fuzzy::Fuzzy;
use crate::checkpoint::home::{HomeBlock, HomePages};
use crate::checkpoint::sweep::{Pace, Sweep, SweepControl};
use crate::engine::replay::ByProcedures;
use crate::error::Error;
use crate::ids::Lsn;
use crate::io::Clock;
use crate::log::{self, LogReader, ReadUntil, Witness};
use crate::recovery::OpenError;
use crate::recovery::{Calls, Recovery, RecoveryPages, Room, Tell, within_memory};
use crate::row::Timestamp;
use crate::store::memory::image::seed_of;
use crate::store::memory::segments::Copy;
use crate::store::paged::PageOptions;

/// How far a restore has come.
pub(super) struct RestoreProgress {
    pub place: Lsn,
    pub segments: u32,
    pub next_id: u32,
    pub packets: u64,
    /// The pages of disk-resident tables, as of the place.
    pub pages: Option<HomePages>,
    /// When the last group was gathered, in milliseconds since 1970; 0 if unknown.
    pub time_ms: u64,
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A time as it is given on the command line.
fn time_text(time_ms: u64) -> String {
    if time_ms == 0 {
        return "a time that is not known".to_owned();
    }
    format!("{} UTC", Timestamp(i64::try_from(time_ms).unwrap_or(i64::MAX).saturating_mul(1000)))
}

fn refuse<T>(what: String) -> Result<T, OpenError> {
    Err(OpenError::Unsupported { what })
}

impl Restore {
    /// How far the backup called `name` reaches without an archive.
    pub(super) fn backup_alone(
        &self,
        (header, pages): (&BackupHeader, Option<HomePages>),
        name: &str,
    ) -> Result<RestoreProgress, OpenError> {
        let beyond = match self.to {
            RestoreTo::End => false,
            RestoreTo::Place(place) => place > header.place,
            RestoreTo::Time(time) => millis(time) > header.time_ms,
        };
        if beyond {
            return refuse(format!(
                "cannot restore to {}: \"{name}\" reaches place {} at {}, and no archive of the log that follows is given",
                self.goal(),
                header.place,
                time_text(header.time_ms)
            ));
        }
        let BackupHeader { place, segments, next_id, .. } = *header;
        Ok(RestoreProgress { place, segments, next_id, packets: 0, pages, time_ms: 0 })
    }

    /// Refuses a place or time that lies before the backup.
    pub(super) fn check_not_before(&self, header: &BackupHeader, name: &str) -> Result<(), OpenError> {
        let before = match self.to {
            RestoreTo::End => false,
            RestoreTo::Place(place) => place < header.place,
            RestoreTo::Time(time) => millis(time) < header.time_ms,
        };
        if before {
            return refuse(format!(
                "cannot restore to {}: \"{name}\" holds everything up to place {} at {} already; give an earlier backup",
                self.goal(),
                header.place,
                time_text(header.time_ms)
            ));
        }
        Ok(())
    }

    fn goal(&self) -> String {
        match self.to {
            RestoreTo::End => "the end".to_owned(),
            RestoreTo::Place(place) => format!("place {place}"),
            RestoreTo::Time(time) => time_text(millis(time)),
        }
    }

    /// Redoes the archived log onto the backup called `name`, whose pages these are, and writes the segments and the pages
    /// that have changed. The segments are in memory meanwhile.
    pub(super) fn redo(
        &self,
        archive: &Archive,
        (header, pages): (&BackupHeader, Option<HomePages>),
        name: &str,
        target: &RestoreTarget,
    ) -> Result<RestoreProgress, OpenError> {
        let database = header.database;
        let is_log = |name: &String| name.starts_with("log-") && !name.ends_with(".unfinished");
        let disk = match archive.find(database)? {
            Some(disk) if disk.list()?.iter().any(is_log) => disk,
            _ => {
                return refuse(format!(
                    "the archive {archive} holds no log of database {database:032x}, which \"{name}\" is of: give that \
                     database's archive"
                ));
            }
        };
        target.copy.sync()?;
        let home = HomeBlock {
            database_id: target.database,
            sequence: FIRST_CHECKPOINT,
            copy: Some(Copy::Ping),
            segments: header.segments,
            redo_start: header.place.next(),
            next_id: header.next_id,
            sweep: 0,
            clearance: header.place,
            point: header.point,
            transaction_consistent: true,
            logged: true,
            names_held: true,
            digest: target.digest(header.segments),
            pages,
            redone: None,
            retired: false,
        };
        let witness = header.point.map(|point| Witness { name: name.to_owned(), point });
        let until = match self.to {
            RestoreTo::End => ReadUntil::End,
            RestoreTo::Place(place) => ReadUntil::Place(place),
            RestoreTo::Time(time) => ReadUntil::Time(millis(time)),
        };
        let procedures = ByProcedures(&self.procedures);
        let in_archive = |error: Error| match error {
            Error::Corrupt { file, offset, what } => {
                OpenError::Corrupt { file: format!("{archive}/{file}"), offset, what }
            }
            error => error.into(),
        };
        let tell = self.progress.as_deref().map(|progress| progress as Tell<'_>);
        let page_options = PageOptions { cache_bytes: self.cache_bytes, ..PageOptions::default() };
        let attempt = |Room { threads, segments, nodes }| {
            let calls = Calls::Replayed(&procedures);
            let recovery = Recovery {
                disk: &target.disk,
                segments: &segments,
                nodes: &nodes,
                pages: RecoveryPages { options: page_options.clone(), other: None },
                threads,
                calls,
                tell,
                redo_up_to: Lsn::MAX,
            };
            let mut log = log::read_archive(&disk, database, home.redo_start, witness.clone(), until)?;
            let replayed = recovery.replay(&home, &*disk, database, &mut log)?;
            Ok((segments, log, replayed))
        };
        let redone = within_memory((&*target.disk, &home), self.threads, self.memory_bytes, attempt);
        let (segments, log, replayed) = redone.map_err(in_archive)?;
        let (place, time_ms) = (log.lsn().max(header.place), log.time_ms());
        self.check_reached(archive, header, log)?;
        let end = segments.high_water();
        let (clock, control) = (Clock::System, SweepControl::default());
        let images = ImageTarget {
            copy: Copy::Ping,
            file: &*target.copy,
            seed: seed_of(target.database),
            sequence: FIRST_CHECKPOINT,
            sums: &target.sums,
        };
        let catalog = CatalogCopy::take(&segments, Arc::new(replayed.heaps), u64::MAX, &images)?;
        let sweep = Sweep {
            segments: &segments,
            target: images,
            end,
            pace: Pace::Unpaced,
            run: RunLength::Auto,
            spool: true,
            clock: &clock,
            control: &control,
        };
        sweep.run(catalog, &mut Fuzzy::default())?;
        let pages = replayed.disk_tables.write_once()?.map(|pages| HomePages::new(pages, place));
        Ok(RestoreProgress {
            place,
            segments: end,
            next_id: replayed.next_id,
            packets: replayed.packets,
            pages,
            time_ms,
        })
    }

    /// Checks that the archive reached as far as requested; for a time, that it reached every group gathered by then.
    fn check_reached(
        &self,
        archive: &Archive,
        header: &BackupHeader,
        log: LogReader,
    ) -> Result<(), OpenError> {
        let place = log.lsn();
        let reached = match self.to {
            RestoreTo::End => true,
            RestoreTo::Place(place) => log.lsn() >= place || place == header.place,
            // An archive that ends before the backup tells no time of what follows it.
            RestoreTo::Time(time) => log.is_stopped() || log.is_witnessed() && log.time_ms() >= millis(time),
        };
        if !reached {
            return refuse(format!(
                "cannot restore to {}: the archive {archive} reaches place {place} at {}; what was committed later is in the \
                 database's own log until a checkpoint frees it or the database is closed",
                self.goal(),
                time_text(log.time_ms())
            ));
        }
        match log.find_again() {
            Some(again) => refuse(format!(
                "cannot restore to {}: the archive {archive} passes that time behind place {place}, and at place {again} it \
                 has not come yet, because the machine's clock was set back between; restore to a place",
                self.goal()
            )),
            None => Ok(()),
        }
    }
}
