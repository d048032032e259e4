//! Recovery: from the files of a directory to the tables (System M, sections 2.5 and 3). Disk-resident tables: `pages`.
//!
//! ```text
//! home block ─▶ LOAD the copy in force ─▶ SYSTEM TABLES ─▶ their tables ─▶ REDO the log ─▶ SECONDARY INDEXES
//!               in parallel (load.rs)     (catalog.rs)     primary index    by key,         in parallel, unique
//!                                                          (table.rs)       in parallel     ones checked
//!                                                                           (redo.rs)       (indexes.rs)
//! ```
//!
//! # The redo rule
//!
//! The copy is fuzzy: it has each record as some packet left it, and different records as different packets left them.
//! No packet of which it has anything is past the clearance. Redo goes through the log from the redo start in order. A
//! record whose `Lsn` is higher than the packet's is left alone: the copy has a later state of it. A put inserts or
//! replaces. A patch or a delete of an absent row does nothing: a later packet removed the row, or moved it, and a move
//! logs it whole. So whatever state of a row the copy has, the row is right once redo has passed the last packet that
//! wrote it. Redoing packets again changes nothing (I8).
//!
//! The copy holds nothing of a packet past its clearance. So once redo has reached the clearance all rows are as they
//! were at that place. From there on a packet that changes a row which does not exist is an error. This holds unless
//! commits were never logged ([`Logging::None`](crate::Logging::None)).
//!
//! # Operations, beside a fuzzy copy too
//!
//! With action logging (AOPER) the log has operations, such as an addition. The paper runs it with action-consistent
//! copies only: its records carry no place, so nothing shows whether a fuzzy copy has an action or half of one. Here a
//! row's `Lsn` shows that, so operations are redone on any copy:
//!
//! - *A row's image is whole.* All changes of a packet to a row are applied under one hold of its segment's latch,
//!   which the sweep takes to copy the segment. So an image with `Lsn` w holds all of packet w's work on the row, and
//!   nothing of a later one.
//! - *An operation is done once.* It is redone only on an image of a lower `Lsn`, and sets the row's `Lsn` to its own
//!   place under the same hold. It is its packet's first record for the row; later changes of the row by the same
//!   packet are logged as values. So if w is the packet's own place, the operation is skipped, and the values replace
//!   equal values (`commit/redo.rs`).
//! - *An operation is redone on the state that it was first done on.* Every packet before the redo start was applied
//!   whole before the sweep began. So an image with `Lsn` w lacks only packets after w, and redo meets all of them, in
//!   log order. If a row's slots were copied at different moments, because it moved, or went and came back, the copy
//!   has the row *twice* or *not at all*. *Twice*: the loader keeps the image with the higher `Lsn`; that is one image,
//!   and the rule above holds for it. *Not at all*: then the row moved, or was inserted, during the sweep, in a packet
//!   that redo meets and that has the row whole. Before that packet redo does nothing to the absent row, and from it on
//!   the row is right. An image of a row that went during the sweep is brought up to its delete and then goes.
//! - *No row gets an `Lsn` before redo has reached that place*, except by a bulk load of the operation's own
//!   transaction. The exception does no harm: a bulk load needs DDL in its transaction, and such a transaction logs
//!   values only (`txn/change.rs`).
//!
//! # A damaged copy
//!
//! If the copy that the newest home block names is damaged, recovery starts from the older copy ([`fall_back`]). It can
//! do so while the older home block is not retired and the log has everything that the damaged copy has. The older copy
//! is another start of the same redo.
//!
//! # Calls
//!
//! A call of a procedure (System M's TOPER) has no rows in the log, whose places could show whether the copy holds the
//! call. Therefore a call is run again only in two cases ([`HomeBlock::fits_call`]). On a transaction-consistent copy
//! calls are run again from the cut on. On any copy calls after the clearance are run again, because up to there redo
//! makes the copy whole. With copy-on-update the cut is exactly the redo start. A black/white sweep has no such place:
//! each packet that its copy holds names the sweep ([`Packet::held_by`](crate::log::Packet)), and recovery leaves it
//! out.
//!
//! Where calls are logged, this applies to packets of values, too: **recovery does exactly the packets that the copy
//! lacks**, in their order. Redoing a packet that the copy has would bring its rows back to an earlier state, since an
//! absent row has no `Lsn` that forbids it. In a log of values a later packet, which is redone as well, corrects that;
//! but a call that the copy has is not run again.
//!
//! A log may hold values, operations and calls of many openings. Calls are logged only while a transaction-consistent
//! checkpoint is in force. If the database is later opened with other logging, a checkpoint of another kind has its
//! redo start after all calls before it, and its clearance before all calls after it. So the copy in force fits the
//! packets from its redo start on. If a log holds a call that its copy does not fit, recovery refuses it. (See
//! [`calls`]; `engine/replay` runs the calls, and `engine/deterministic.rs` says what is logged as a call.)
//!
//! # Tables that change during redo
//!
//! The catalog is rows of system tables. So at each place in the log these rows say which tables exist, which heap each
//! has, and by which key its redo records name rows. A copy's system tables are exactly those of its redo start,
//! whatever made the copy, and all its segments belong to tables that they describe (`checkpoint/catalog_copy.rs`).
//! From there on the log's DDL moves the catalog on: after a packet's records for the system tables are redone, and
//! before anything else is, [`redo`] brings the tables in line with them. Before a packet with DDL redo waits until its
//! workers have caught up (a *barrier*).
//!
//! So **nothing is left out that cannot be explained**. Each of these is an error that names it: rows of the system
//! tables that make no sense together, a segment without a table, a redo record or a load file for a table that does
//! not exist at its place, and a change of a catalog row that does not exist.
//!
//! # How long it takes
//!
//! The parts are measured ([`RecoveryReport`]). Their costs are kept in the directory ([`RecoveryRates`]), so that
//! `rialto inspect`, a running database, and a recovery in progress (`progress.rs`) can predict the time of a recovery.
//!
//! Kept here: **I4** (the log must reach the clearance of the checkpoint in force), **I8** (recovery writes only to
//! memory, and pages to free addresses of the page file), **I9** (nothing is interpreted before its checksum has been
//! verified; errors name file and offset).

pub(crate) mod calls;
mod catalog;
pub mod check;
mod compact;
mod fall_back;
mod heaps;
mod indexes;
pub mod inspect;
pub(crate) mod load;
mod open_error;
mod pages;
mod progress;
mod rates;
pub(crate) mod redo;
mod replay;
mod table;
#[cfg(test)]
mod tests;
mod within_memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::calls::Calls;
pub use self::fall_back::FellBack;
pub(crate) use self::fall_back::{Start, recover_either};
pub use self::open_error::OpenError;
pub(crate) use self::progress::{RecoveryProgress, Tell};
use self::progress::{Step, coarse};
use self::redo::Redo;
pub(crate) use self::within_memory::{
    Room, THREADS_MAX, is_of_the_machine, memory, threads_by_default, within_memory,
};
use crate::catalog::system::{after_load, is_system};
use crate::checkpoint::home::{HOME_FILE, HomeBlock, HomePages};
use crate::checkpoint::image_sums::ImageSums;
pub use crate::checkpoint::recovery_rates::{Cost, RecoveryEstimate, RecoveryRates, RecoveryWork};
use crate::error::{Error, Result};
use crate::fault_injection;
use crate::ids::Lsn;
use crate::io::{Caching, Disk, Open};
use crate::log::{self, LogEnd};
use crate::store::TableVersion;
use crate::store::memory::image::seed_of;
use crate::store::memory::load_file::load_file_number;
use crate::store::memory::{LoadCommit, LoadFile, SEGMENT_BYTES, Segments};
use crate::store::paged::{DiskTables, PageOptions, PagesAt, PublishedAt};
use crate::store::tree::NodePool;

/// The report of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The checkpoint from which it started.
    pub checkpoint: u64,
    /// Where redo began.
    pub redo_start: Lsn,
    /// The last place in the log.
    pub log_end: Lsn,
    /// Bytes of the backup copy.
    pub loaded_bytes: u64,
    /// Bytes of records in it.
    pub record_bytes: u64,
    /// Packets redone.
    pub packets: u64,
    /// Redo records in them, rows of load files included.
    pub records: u64,
    /// Of these packets, the calls of procedures, which were run again
    /// ([`Logging::Transaction`](crate::Logging::Transaction)).
    pub calls: u64,
    /// The place at which the tables were left as they were, and how many packets of the log were only read from there
    /// on. This is at a call of a procedure, in a program that has no procedures (`rialto check`), and never in an open
    /// database.
    pub left: Option<(Lsn, u64)>,
    /// The procedures that the packets from there on call, by name and version: the directory needs them until the next
    /// checkpoint.
    pub needs: Vec<(String, u32)>,
    /// Commits whose writes were never logged ([`Logging::None`](crate::Logging::None)), by a process that did not
    /// close the database: they are lost. Users should be told ([`RecoveryReport::warnings`]).
    pub unlogged: u64,
    /// Present if the older backup copy stood in for the newest, which is damaged. Users should be told.
    pub fell_back: Option<FellBack>,
    /// The number of users' tables.
    pub tables: u64,
    /// The number of rows in them.
    pub rows: u64,
    /// Reading the backup copy.
    pub load_time: Duration,
    /// Building the primary indexes of what was loaded.
    pub primary_time: Duration,
    /// Redoing the log.
    pub redo_time: Duration,
    /// Building the secondary indexes.
    pub secondary_time: Duration,
    /// Bytes of log, from the beginning of the file that held the redo start.
    pub log_bytes: u64,
    /// The part of `redo_time` in which the log was read.
    pub read_time: Duration,
    /// Bytes of load files redone.
    pub bulk_bytes: u64,
    /// The part of `redo_time` that load files took.
    pub bulk_time: Duration,
    /// Bytes of segments in use at its end.
    pub memory_bytes: u64,
    /// How long it was predicted to take. Unset on a disk in memory, whose times mean nothing.
    pub predicted: Option<Duration>,
}

impl RecoveryReport {
    /// What is lost, in words, if something is.
    pub fn loss(&self) -> Option<String> {
        (self.unlogged > 0).then(|| {
            format!(
                "{} commits are lost: they ran with logging none, and the database was not closed; it is as it was when \
                 it was opened for them",
                self.unlogged
            )
        })
    }

    /// What a user should be told of the opened database, one line each: the damaged copy for which an older one has
    /// stood in, and what is lost.
    pub fn warnings(&self) -> Vec<String> {
        self.fell_back.iter().map(ToString::to_string).chain(self.loss()).collect()
    }

    /// Which part of the log is not in the tables, in words, if any is.
    pub fn left_at_calls(&self) -> Option<String> {
        self.left.map(|(from, packets)| {
            let needs = self.needs.iter().map(|(name, version)| format!("\"{name}\" version {version}"));
            format!(
                "the last {packets} transactions, from place {from} on, begin with a call of a procedure (Logging::Transaction) \
                 that only a program with its procedures can run again ({}): their part of the log was read and is whole, and \
                 the tables are as they were before it",
                needs.collect::<Vec<_>>().join(", ")
            )
        })
    }

    /// How long each part took.
    pub fn parts(&self) -> RecoveryEstimate {
        RecoveryEstimate {
            load: self.load_time,
            primary: self.primary_time,
            redo: self.redo_time,
            secondary: self.secondary_time,
        }
    }

    /// What was done, in one line of text.
    pub fn summary(&self) -> String {
        format!(
            "recovered in {}: loaded {} in {}, indexed in {}, redid {} transactions in {}",
            coarse(self.took()),
            progress::bytes(self.loaded_bytes),
            coarse(self.load_time),
            coarse(self.primary_time + self.secondary_time),
            self.packets,
            coarse(self.redo_time)
        )
    }

    /// The sum of the parts.
    pub fn took(&self) -> Duration {
        self.parts().total()
    }
}

/// Waits for a thread of a scope, and passes on its panic. A scope also waits at its end, but by means inside std that
/// ThreadSanitizer does not see (`.ci/sanitize`); it sees a join.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The work of a recovery, from the sizes of the files and the ends of the log. It is an estimate: only reading all of
/// the log shows where it ends.
fn work(disk: &Arc<dyn Disk>, home: &HomeBlock) -> Result<RecoveryWork> {
    let extent = log::recover(disk, home.database_id, home.log_start())?.extent()?;
    let (copy_bytes, bulk_bytes) = (load::copy_bytes(home), bulk_bytes(disk, home)?);
    Ok(RecoveryWork {
        copy_bytes,
        memory_bytes: copy_bytes + bulk_bytes,
        log_bytes: extent.bytes,
        packets: (extent.lsn + 1).saturating_sub(home.log_start().0),
        bulk_bytes,
    })
}

/// Bytes of the load files that were begun after the copy, so that redo needs them. The other load files are in the
/// copy, and wait for their removal. (An estimate: a load that was begun before the copy and committed after it is not
/// counted.)
fn bulk_bytes(disk: &Arc<dyn Disk>, home: &HomeBlock) -> Result<u64> {
    let mut bytes = 0;
    let is_needed =
        |name: &String| load_file_number(name).is_some_and(|number| number >= u64::from(home.next_id));
    for name in disk.list()?.into_iter().filter(is_needed) {
        bytes += disk.open(&name, Open::ReadOnly, Caching::Buffered)?.length()?;
    }
    Ok(bytes)
}

/// Where and how to recover.
pub(crate) struct Recovery<'a> {
    pub disk: &'a Arc<dyn Disk>,
    /// Empty segments.
    pub segments: &'a Arc<Segments>,
    pub nodes: &'a Arc<NodePool>,
    /// How pages are kept, and those of an older checkpoint that stay as they are.
    pub pages: RecoveryPages,
    pub threads: usize,
    /// What recovery does with calls of procedures in the log.
    pub calls: Calls<'a>,
    /// Receives lines about the steps of a long recovery.
    pub tell: Option<Tell<'a>>,
    /// The last packet that is redone, unless the copy has later ones; the log behind it is only read. For a follower.
    pub redo_up_to: Lsn,
}

/// How a recovery keeps the pages of disk-resident tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecoveryPages {
    pub options: PageOptions,
    /// Of the other checkpoint, if that is in force too.
    pub other: Option<HomePages>,
}

impl RecoveryPages {
    /// For a recovery from `start`, where the home file has these blocks in force.
    pub fn beside(options: PageOptions, start: &Start, in_force: [Option<&HomeBlock>; 2]) -> RecoveryPages {
        let mut others = in_force.into_iter().flatten();
        let other = others.find(|block| block.sequence != start.home.sequence);
        RecoveryPages { options, other: other.and_then(|other| other.pages) }
    }

    /// For a look at a database, which writes nothing.
    pub fn read_only() -> RecoveryPages {
        let options = PageOptions { is_read_only: true, ..PageOptions::default() };
        RecoveryPages { options, other: None }
    }

    /// The disk-resident tables as a checkpoint has left them.
    fn open(&self, disk: &Arc<dyn Disk>, home: &HomeBlock) -> Result<DiskTables> {
        let (disk, seed) = (disk.clone(), seed_of(home.database_id));
        let at = |pages: HomePages| {
            let at = PublishedAt::of_numbers(pages.root, pages.words)?;
            Some(PagesAt { page_bytes: pages.page_bytes, at })
        };
        let current = home.pages.and_then(at);
        if current.is_some() != home.pages.is_some() {
            let what = "the home block's checksum is right, but no page has its root".to_owned();
            return Err(Error::Corrupt { file: HOME_FILE.to_owned(), offset: 0, what });
        }
        DiskTables::open(disk, seed, self.options.clone(), (current, self.other.and_then(at)))
    }
}

/// A database in memory, as its files describe it.
pub(crate) struct Recovered {
    /// All tables, with the system tables.
    pub tables: Vec<Arc<TableVersion>>,
    /// Those that are disk-resident.
    pub disk_tables: Arc<DiskTables>,
    /// An identifier that was never used; nor was a higher one.
    pub next_id: u32,
    /// The load files in the directory.
    pub loads: Vec<LoadFile>,
    /// The checksums of the images in the copy.
    pub sums: ImageSums,
    /// For [`Log::open`](crate::log::Log::open).
    pub log_end: LogEnd,
    pub report: RecoveryReport,
}

impl Recovery<'_> {
    /// Brings the database of this home block into memory. Writes nothing to the disk but pages of disk-resident tables, to
    /// addresses of the page file that no home block in force names.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with file and offset; [`Error::Io`]; [`Error::MemoryLimit`].
    pub fn run(&self, start: &Start) -> Result<Recovered> {
        let home = &start.home;
        let progress = RecoveryProgress::new(self.tell);
        let threads = self.threads.max(1);
        let mut report = RecoveryReport {
            checkpoint: home.sequence,
            redo_start: home.redo_start,
            ..RecoveryReport::default()
        };

        if progress.is_told() || self.disk.has_speed() {
            let rates = RecoveryRates::recorded(&**self.disk).unwrap_or_default();
            // What is wrong with the log is found when it is redone.
            let estimate = rates.estimate(&work(self.disk, home).unwrap_or_default());
            progress.expect(Step::Load, estimate.load);
            progress.expect(Step::Primary, estimate.primary);
            progress.expect(Step::Redo, estimate.redo);
            progress.expect(Step::Secondary, estimate.secondary);
            report.predicted = Some(estimate.total());
        }

        let began = Instant::now();
        let mut loaded = load::load(&**self.disk, home, self.segments, threads, &progress)?;
        let sums = std::mem::take(&mut loaded.sums);
        (report.loaded_bytes, report.record_bytes) = (loaded.bytes, loaded.record_bytes);
        report.load_time = began.elapsed();

        let began = Instant::now();
        let disk_tables = Arc::new(self.pages.open(self.disk, home)?);
        let mut redo = Redo::new(self, start, (loaded, &disk_tables), &progress)?;
        report.primary_time = began.elapsed();

        let began = Instant::now();
        let (database, witness) = (home.database_id, start.witness());
        let mut reader = log::recover_through(self.disk, database, home.log_start(), witness)?;
        if progress.is_told() {
            let extent = reader.extent().unwrap_or_default();
            progress.begin(Step::Redo, extent.bytes + bulk_bytes(self.disk, home).unwrap_or_default());
        }
        let log_start = reader.position();
        // A fuzzy copy is whole only once all is redone of which it has a part.
        let last = self.redo_up_to.max(home.holds_to());
        let last = if fault_injection::is_on("opening-redoes-everything") { Lsn::MAX } else { last };
        reader.redo_up_to(last);
        redo.run(&mut reader, last)?;
        report.read_time = reader.read_time();
        let log_end = reader.finish()?;
        report.log_bytes = log_end.position().0 - log_start;
        (report.bulk_bytes, report.bulk_time) = (redo.bulk_bytes, redo.bulk_time);
        if log_end.lsn() < start.clearance() {
            let what = format!(
                "checkpoint {} holds changes up to place {}, but the log ends at place {}: log files are missing",
                start.instead_of.map_or(home.sequence, |newest| newest.sequence),
                start.clearance(),
                log_end.lsn()
            );
            return Err(Error::Corrupt { file: HOME_FILE.to_owned(), offset: 0, what });
        }
        (report.packets, report.records, report.unlogged) = (redo.packets, redo.records, redo.lost);
        redo.wait_for_calls()?;
        (report.calls, report.left) = (redo.calls_replayed(), redo.left);
        report.needs = std::mem::take(&mut redo.needs).into_iter().collect();
        report.log_end = log_end.lsn();
        report.redo_time = began.elapsed();

        let began = Instant::now();
        let loads = self.loads(&redo.loads, home)?;
        // A load that was not committed has left its file: if another load got its number, removing this file would
        // remove that load's own.
        let unused = loads.iter().map(|load| after_load(load.number)).max();
        let next_id = redo.next_id.max(unused.unwrap_or(0));
        let tables = redo.finish(log_end.redone())?;
        report.secondary_time = began.elapsed();
        let user = tables.iter().filter(|table| !is_system(table.id));
        report.rows = user.clone().map(|table| table.store.rows()).sum();
        report.tables = user.count() as u64;
        report.memory_bytes = u64::from(self.segments.high_water()) * SEGMENT_BYTES as u64;
        progress.end(|| report.summary());
        Ok(Recovered { tables, disk_tables, next_id, loads, sums, log_end, report })
    }

    /// The existing load files. A load whose packet redo did not meet was begun before the checkpoint, or never
    /// committed: a load that was begun after it would have its packet after the redo start.
    fn loads(&self, redone: &[LoadFile], home: &HomeBlock) -> Result<Vec<LoadFile>> {
        let numbers = self.disk.list()?.into_iter().filter_map(|name| load_file_number(&name));
        let load = |number| {
            let passed = redone.iter().find(|load| load.number == number).copied();
            passed.unwrap_or_else(|| LoadFile {
                number,
                committed: match number < u64::from(home.next_id)
                    && !fault_injection::is_on("load-goes-before-its-copy")
                {
                    true => LoadCommit::BeforeOrNever(home.redo_start),
                    false => LoadCommit::Never,
                },
            })
        };
        Ok(numbers.map(load).collect())
    }
}

#[cfg(test)]
impl Recovery<'_> {
    /// The tables of the copy in force alone, as if the log ended before its redo start.
    pub fn without_log(&self, home: &HomeBlock) -> Result<Vec<Arc<TableVersion>>> {
        let progress = RecoveryProgress::new(None);
        let loaded = load::load(&**self.disk, home, self.segments, self.threads, &progress)?;
        let disk_tables = Arc::new(self.pages.open(self.disk, home)?);
        Redo::new(self, &Start::newest(home), (loaded, &disk_tables), &progress)?
            .finish(Lsn(home.redo_start.0.saturating_sub(1)))
    }
}
