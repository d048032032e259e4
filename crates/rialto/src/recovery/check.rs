//! `rialto check`: verifies a database's files offline. It only reads.
//!
//! It checks in this order: the home blocks; every image of the backup copies in force, and of the other ones; then a
//! recovery in memory, which reads the log as far as it chains; and every recovered index by its structure and against
//! the rows.

use std::fmt;
use std::sync::Arc;

use super::load::{check_digest, check_image, open_copy};
use super::{
    Calls, Recovered, Recovery, RecoveryPages, RecoveryReport, Room, Start, is_of_the_machine,
    recover_either, within_memory,
};
use crate::checkpoint::home::{
    HOME_FILE, HomeBlock, HomeError, HomeFile, HomeSlot, older_in_force, read_home,
};
use crate::checkpoint::image_sums::ImageSums;
use crate::error::{Error, Result};
use crate::io::{Caching, Disk};
use crate::row::{Key, RowView, WhichIndex};
use crate::store::TableVersion;
use crate::store::memory::image::backup_name;
use crate::store::memory::load_file::load_file_name;
use crate::store::memory::segments::Copy;
use crate::store::memory::{LoadCommit, RecordRef, SEGMENT_BYTES};
use crate::store::paged::{PageAccess, PagedTable};
use crate::store::tree::{Batch, Direction, Guard, Index, More, ScanRange};

/// Whether a finding is damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing; the database is sound.
    Note,
    /// Corruption, or files that cannot be read.
    Damage,
}

/// One finding of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether it is damage.
    pub severity: Severity,
    /// The finding, with the file and the offset.
    pub what: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The findings, in the order in which they were made.
    pub findings: Vec<Finding>,
    /// What was verified, in words.
    pub verified: Vec<String>,
    /// The recovery in memory, if it was completed.
    pub recovery: Option<RecoveryReport>,
}

impl CheckReport {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Damage)
    }

    fn damage(&mut self, what: impl fmt::Display) {
        self.findings.push(Finding { severity: Severity::Damage, what: what.to_string() });
    }

    fn note(&mut self, what: impl fmt::Display) {
        self.findings.push(Finding { severity: Severity::Note, what: what.to_string() });
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for what in &self.verified {
            writeln!(f, "verified: {what}")?;
        }
        for finding in &self.findings {
            let severity = if finding.severity == Severity::Damage { "DAMAGE" } else { "note" };
            writeln!(f, "{severity}: {}", finding.what)?;
        }
        write!(f, "{}", if self.is_sound() { "sound" } else { "DAMAGED" })
    }
}

/// Verifies the database on a disk, with at most `memory_bytes` of memory for its tables. No process may have it open.
///
/// # Errors
/// [`HomeError::NewerVersion`], [`HomeError::OlderVersion`]; [`HomeError::Failed`] if there is no database, if another
/// program wrote it, if it does not fit into the memory ([`Error::MemoryLimit`]), or if the system gives not enough
/// address space ([`Error::Io`]). Everything else is in the report.
pub fn check(disk: &Arc<dyn Disk>, memory_bytes: u64, threads: usize) -> Result<CheckReport, HomeError> {
    let mut report = CheckReport::default();
    if !HomeFile::exists(&**disk)? {
        let what = format!("checking {}: there is no database (no file \"{HOME_FILE}\")", disk.describe());
        return Err(HomeError::Failed(Error::Unsupported { what }));
    }
    let (slots, home) = match read_home(&**disk) {
        Ok(found) => found,
        Err(HomeError::Failed(error)) => {
            report.damage(error);
            return Ok(report);
        }
        Err(newer) => return Err(newer),
    };
    for (number, slot) in slots.iter().enumerate() {
        if let HomeSlot::Damaged(why) = slot {
            let offset = number * 4096;
            report.note(format!(
                "\"{HOME_FILE}\" at offset {offset}: {why}; the other block is in force (a crash in the middle of a \
                 checkpoint leaves this)"
            ));
        }
    }
    report
        .verified
        .push(format!("home: checkpoint {} is in force, redo from place {}", home.sequence, home.redo_start));
    let older = older_in_force(&slots, &home);
    if let Some(copy) = home.copy {
        check_copy(&**disk, &home, copy, true, &mut report);
    }
    let newest_is_whole = report.is_sound();
    for other in Copy::FILES.into_iter().filter(|&other| Some(other) != home.copy && home.copy.is_some()) {
        match older.filter(|older| older.copy == Some(other)) {
            Some(older) => check_copy(&**disk, &older, other, false, &mut report),
            None => check_other_copy(&**disk, &home, other, &mut report),
        }
    }
    if !report.is_sound() {
        if let Some(older) = older.filter(|_| !newest_is_whole) {
            let stands_in =
                recover_either(&home, Some(&older), |start| recover(disk, start, memory_bytes, threads));
            match stands_in {
                Ok(_) => report.note(format!(
                    "an opening falls back to checkpoint {}, which is in force too, with redo from place {} on",
                    older.sequence, older.redo_start
                )),
                Err(error) if is_of_the_machine(&error) => return Err(HomeError::Failed(error)),
                Err(error) => {
                    let older = older.sequence;
                    report.note(format!("an opening does not fall back to checkpoint {older}: {error}"));
                }
            }
        }
        return Ok(report);
    }
    match recover(disk, &Start::newest(&home), memory_bytes, threads) {
        Ok(recovered) => check_recovered(recovered, &home, &mut report),
        // The files are whole, but not for this program, or not for this machine: nothing is damaged.
        Err(error) if matches!(error, Error::Unsupported { .. }) || is_of_the_machine(&error) => {
            return Err(HomeError::Failed(error));
        }
        Err(error) => report.damage(error),
    }
    Ok(report)
}

/// Checks every image of a copy that a home block in force names, and that they are the images that its checkpoint
/// completed. An opening reads the newest copy; if only the older one is damaged, the database is sound, and the next
/// checkpoint writes that copy anew.
fn check_copy(disk: &dyn Disk, home: &HomeBlock, copy: Copy, is_newest: bool, report: &mut CheckReport) {
    let found = |error: Error, report: &mut CheckReport| {
        match is_newest {
        true => report.damage(error),
        false => report.note(format!(
            "{error}; so checkpoint {} cannot stand in for the newest: the next checkpoint writes this copy anew",
            home.sequence
        )),
    }
    };
    let (mut images, sums) = (0u32, ImageSums::default());
    let mut visit = |number: usize, bytes: &mut [u8], report: &mut CheckReport| match check_image(
        home, copy, number, bytes,
    ) {
        Ok(checked) => {
            images += 1;
            sums.set(copy, number as u32, checked.checksum);
        }
        Err(error) => found(error, report),
    };
    let read = each_image(disk, copy, Some(home.segments as usize), report, &mut visit);
    let checked = match read {
        Ok(()) if images == home.segments => check_digest(home, copy, &sums),
        read => read,
    };
    if let Err(error) = checked {
        found(error, report);
    }
    let which = if is_newest { "in force" } else { "in force too, the older" };
    report.verified.push(format!(
        "\"{}\" ({which}): {images} of {} images of checkpoint {}",
        backup_name(copy),
        home.segments,
        home.sequence
    ));
}

/// Checks a copy that is not in force. It may be half overwritten: errors in it are no damage.
fn check_other_copy(disk: &dyn Disk, home: &HomeBlock, copy: Copy, report: &mut CheckReport) {
    let any = HomeBlock { sequence: u64::MAX, ..*home };
    let (mut images, mut wrong) = (0u32, 0u32);
    let mut visit =
        |number: usize, bytes: &mut [u8], _: &mut CheckReport| match check_image(&any, copy, number, bytes) {
            Ok(_) => images += 1,
            Err(_) => wrong += 1,
        };
    match each_image(disk, copy, None, report, &mut visit) {
        Ok(()) if wrong > 0 => report.note(format!(
            "\"{}\", which is not in force, has {wrong} images that are not whole: the next checkpoint writes them anew",
            backup_name(copy)
        )),
        Ok(()) => {}
        Err(Error::Corrupt { .. }) if copy == Copy::Third => return,
        Err(Error::Corrupt { .. }) => report.note(format!("\"{}\" is not there yet", backup_name(copy))),
        Err(error) => report.damage(error),
    }
    report.verified.push(format!("\"{}\" (not in force): {images} images", backup_name(copy)));
}

/// The images that should be in a copy, by their number; if that number is unknown, those that the file holds.
fn each_image(
    disk: &dyn Disk,
    copy: Copy,
    count: Option<usize>,
    report: &mut CheckReport,
    visit: &mut dyn FnMut(usize, &mut [u8], &mut CheckReport),
) -> Result<()> {
    let file = open_copy(disk, copy, Caching::Buffered)?;
    let length = file.length()?;
    let count = count.unwrap_or(length.div_ceil(SEGMENT_BYTES as u64) as usize);
    let mut bytes = vec![0; SEGMENT_BYTES];
    for number in 0..count {
        let offset = (number * SEGMENT_BYTES) as u64;
        let there = length.saturating_sub(offset).min(SEGMENT_BYTES as u64) as usize;
        file.read_at(&mut bytes[..there], offset)?;
        visit(number, &mut bytes[..there], report);
    }
    Ok(())
}

/// Recovers in memory, as an opening does, but without running calls.
pub(super) fn recover(
    disk: &Arc<dyn Disk>,
    start: &Start,
    memory_bytes: u64,
    threads: usize,
) -> Result<Recovered> {
    within_memory((&**disk, &start.home), threads, memory_bytes, |Room { threads, segments, nodes }| {
        let calls = Calls::Left;
        let pages = RecoveryPages::read_only();
        Recovery {
            disk,
            segments: &segments,
            nodes: &nodes,
            pages,
            threads,
            calls,
            tell: None,
            redo_up_to: crate::Lsn::MAX,
        }
        .run(start)
    })
}

fn check_recovered(recovered: Recovered, home: &HomeBlock, report: &mut CheckReport) {
    report.verified.push(format!(
        "log: places {} to {}, {} packets redone",
        home.redo_start, recovered.report.log_end, recovered.report.packets
    ));
    if let Some(loss) = recovered.report.loss() {
        report.note(loss);
    }
    if let Some(left) = recovered.report.left_at_calls() {
        report.note(left);
    }
    for load in &recovered.loads {
        let (name, start) = (load_file_name(load.number), home.redo_start);
        match load.committed {
            // A recovery finds no load in the other two states.
            LoadCommit::At(_) | LoadCommit::Later | LoadCommit::Going => {}
            LoadCommit::BeforeOrNever(_) => report.note(format!(
                "\"{name}\" is of a bulk load from before the redo start {start}: it goes when neither an older checkpoint \
                 nor the archive needs it"
            )),
            LoadCommit::Never => {
                report.note(format!("\"{name}\" is not needed: the next checkpoint removes it"));
            }
        }
    }
    for table in &recovered.tables {
        check_table(table, report);
    }
    report.recovery = Some(recovered.report);
}

/// Checks every row against each index, and each index by its structure.
fn check_table(table: &TableVersion, report: &mut CheckReport) {
    let mut rows = 0;
    let mut wrong = Vec::new();
    let (mut body, mut primary, mut key) = (Vec::new(), Key::new(), Key::new());
    let Some(store) = table.store.memory() else { return check_pages(table, report) };
    for id in store.heap.owned() {
        for slot in store.segments().slots(id) {
            let Ok(slot) = slot else {
                wrong.push(slot.expect_err("just looked at"));
                break;
            };
            if store.segments().is_absent(slot) {
                continue;
            }
            rows += 1;
            store.segments().read(slot, &mut body);
            let row = body.get(table.row_at()..).unwrap_or(&[]);
            if let Err(error) = RowView::validate(&table.schema, row) {
                wrong.push(format!("the row at {}: {error}", slot_name(slot)));
                continue;
            }
            table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
            points(&store.primary, &primary, slot, table, WhichIndex::Primary, &mut wrong);
            for (position, index) in store.secondaries.iter().enumerate() {
                table.schema.index_key_of_row(position, row, &primary, &mut key);
                points(index, &key, slot, table, WhichIndex::Secondary(position), &mut wrong);
            }
        }
    }
    let all = std::iter::once(&store.primary).chain(&store.secondaries);
    for (number, index) in all.enumerate() {
        match index.check() {
            Ok(entries) if entries == rows => {}
            Ok(entries) => wrong.push(format!("index {number} has {entries} entries for {rows} rows")),
            Err(what) => wrong.push(what),
        }
    }
    for what in &wrong {
        report.damage(format!("table \"{}\": {what}", table.name()));
    }
    let indexes = store.secondaries.len() + 1;
    report.verified.push(format!("table \"{}\": {rows} rows in {indexes} indexes", table.name()));
}

/// Checks the rows of a disk-resident table, as the checkpoint has left them, against each index.
fn check_pages(table: &TableVersion, report: &mut CheckReport) {
    let by = &PageAccess::plain();
    let checked = table.store.pages().map_or(Ok((0, Vec::new())), |pages| {
        let (mut rows, mut wrong) = (0, Vec::new());
        let (mut body, mut found) = (Vec::new(), Vec::new());
        each_key(pages, WhichIndex::Primary, |key| {
            rows += 1;
            pages.read(by, key, &mut body)?;
            let (row, mut primary) = (body.get(table.row_at()..).unwrap_or(&[]), Key::new());
            if let Err(error) = RowView::validate(&table.schema, row) {
                wrong.push(format!("a row: {error}"));
                return Ok(());
            }
            table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
            let name = || table.schema.print_key(WhichIndex::Primary, key);
            if primary[..] != *key {
                wrong.push(format!("the row of the key {} has another key", name()));
            }
            for position in 0..table.schema.indexes().len() {
                let mut entry = Key::new();
                table.schema.index_key_of_row(position, row, key, &mut entry);
                let (_, is_there) = pages.follow_to_key(by, position, &entry, &mut found)?;
                if !is_there || found != key {
                    let index = &table.schema.indexes()[position].name;
                    wrong.push(format!("index \"{index}\" does not lead to the row of the key {}", name()));
                }
            }
            Ok(())
        })?;
        for position in 0..table.schema.indexes().len() {
            let mut entries = 0;
            each_key(pages, WhichIndex::Secondary(position), |_| {
                entries += 1;
                Ok(())
            })?;
            if entries != rows {
                wrong.push(format!("index {position} has {entries} entries for {rows} rows"));
            }
        }
        if pages.rows() != rows {
            wrong.push(format!("{rows} rows, where {} are counted", pages.rows()));
        }
        Ok::<_, Error>((rows, wrong))
    });
    let name = table.name();
    match checked {
        Ok((rows, wrong)) => {
            wrong.iter().for_each(|what| report.damage(format!("table \"{name}\": {what}")));
            let indexes = table.schema.indexes().len() + 1;
            let verified =
                format!("table \"{name}\": {rows} rows in {indexes} indexes, in pages as of the checkpoint");
            report.verified.push(verified);
        }
        Err(error) => report.damage(format!("table \"{name}\": {error}")),
    }
}

/// Gives all keys of an index of a disk-resident table.
fn each_key(pages: &PagedTable, which: WhichIndex, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut batch = Batch::new();
    loop {
        let more = pages.read_leaf(
            &PageAccess::plain(),
            which,
            &ScanRange::ALL,
            Direction::Forward,
            Guard::Leave,
            &mut batch,
        )?;
        batch.iter().try_for_each(|(key, _)| take(key))?;
        if more == More::No {
            return Ok(());
        }
    }
}

fn slot_name(slot: RecordRef) -> String {
    format!("unit {} of segment {}", slot.0 % (SEGMENT_BYTES as u64 / 16), slot.segment().0)
}

fn points(
    index: &Index,
    key: &Key,
    slot: RecordRef,
    table: &TableVersion,
    which: WhichIndex,
    wrong: &mut Vec<String>,
) {
    if index.get(key).value != Some(slot.0) {
        let name = table.schema.key_shape(which).name();
        let key = table.schema.print_key(which, key);
        wrong.push(format!("index \"{name}\" does not lead to the row {key} at {}", slot_name(slot)));
    }
}
