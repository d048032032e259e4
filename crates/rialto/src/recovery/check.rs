//! `rialto check`: verifies a database's files offline. Reads only.
//!
//! In order: the home blocks; every image of the backup copy in force, and of the other one; then a recovery in memory,
//! which reads the log as far as it chains; and of what it gives, every index by its structure and against the rows.

use std::fmt;
use std::sync::Arc;

use super::load::{check_image, open_copy};
use super::{Calls, Recovery, RecoveryReport};
use crate::catalog::TableVersion;
use crate::checkpoint::home::{HOME_FILE, HomeBlock, HomeError, HomeFile, HomeSlot, read_home};
use crate::checkpoint::image::backup_name;
use crate::error::{Error, Result};
use crate::io::{Caching, Disk};
use crate::row::{Key, RowView, WhichIndex};
use crate::store::memory::index::{Index, NodePool};
use crate::store::memory::segments::Copy;
use crate::store::memory::{Budget, RecordRef, SEGMENT_BYTES, Segments};

/// Whether a finding is damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing; the database is sound.
    Note,
    /// Corruption, or files that cannot be read.
    Damage,
}

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether it is damage.
    pub severity: Severity,
    /// What, naming the file and the offset.
    pub what: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
    /// What was verified, for people.
    pub verified: Vec<String>,
    /// The recovery in memory, if it came to its end.
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

/// Memory for a database of any size that the machine can hold, as a check has to.
pub(crate) fn memory(memory_bytes: u64) -> Result<(Arc<Segments>, Arc<NodePool>)> {
    let failed = |error: std::io::Error| Error::Io {
        file: "memory".to_owned(),
        offset: 0,
        operation: "reserving address space".to_owned(),
        cause: error.to_string(),
    };
    let budget = Arc::new(Budget::new(memory_bytes));
    let segments = Arc::new(Segments::reserve(budget.clone()).map_err(failed)?);
    let nodes = NodePool::new(memory_bytes as usize, budget).map_err(failed)?;
    Ok((segments, nodes))
}

/// Verifies the database on a disk, with at most `memory_bytes` of memory for its tables. Nobody may have it open.
///
/// # Errors
/// [`HomeError::NewerVersion`], and [`HomeError::Failed`] if there is no database, or one that another program wrote. All else
/// is in the report.
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
    if let Some(copy) = home.copy {
        check_copy(&**disk, &home, copy, &mut report);
        let older = slots.iter().find_map(|slot| match slot {
            HomeSlot::Valid(block) if !block.retired && *block != home => Some(*block),
            _ => None,
        });
        for other in Copy::FILES.into_iter().filter(|&other| other != copy) {
            check_other_copy(&**disk, &home, other, &mut report);
        }
        if let Some(older) = older.filter(|_| !report.is_sound()) {
            report.note(format!(
                "an opening falls back to checkpoint {}, which is in force too, with redo from place {} on",
                older.sequence, older.redo_start
            ));
        }
    }
    if report.is_sound() {
        match recover(disk, &home, memory_bytes, threads, &mut report) {
            Ok(()) => {}
            // Whole, but not for this program: nothing is damaged.
            Err(error @ Error::Unsupported { .. }) => return Err(HomeError::Failed(error)),
            Err(error) => report.damage(error),
        }
    }
    Ok(report)
}

/// Every image of the copy in force.
fn check_copy(disk: &dyn Disk, home: &HomeBlock, copy: Copy, report: &mut CheckReport) {
    let mut images = 0u32;
    let mut visit = |number: usize, bytes: &mut [u8], report: &mut CheckReport| match check_image(
        home, copy, number, bytes,
    ) {
        Ok(_) => images += 1,
        Err(error) => report.damage(error),
    };
    if let Err(error) = each_image(disk, copy, Some(home.segments as usize), report, &mut visit) {
        report.damage(error);
    }
    report.verified.push(format!(
        "\"{}\" (in force): {images} of {} images",
        backup_name(copy),
        home.segments
    ));
}

/// The copy that is not in force may be half overwritten: what is wrong with it is no damage.
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

/// The images that should be in a copy, by their number; those that the file holds if that is not known.
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

fn recover(
    disk: &Arc<dyn Disk>,
    home: &HomeBlock,
    memory_bytes: u64,
    threads: usize,
    report: &mut CheckReport,
) -> Result<()> {
    let (segments, nodes) = memory(memory_bytes)?;
    let recovered =
        Recovery { disk, segments: &segments, nodes: &nodes, threads, calls: Calls::Left, tell: None };
    let recovered = recovered.run(home)?;
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
    let is_read = recovered.report.left.is_none();
    for load in recovered.loads.iter().filter(|load| is_read && load.lsn.0 == 0) {
        report.note(format!("load file {} is not needed: the next checkpoint removes it", load.number));
    }
    for table in &recovered.tables {
        check_table(table, report);
    }
    report.recovery = Some(recovered.report);
    Ok(())
}

/// Every row against each index, and each index by its structure.
fn check_table(table: &TableVersion, report: &mut CheckReport) {
    let mut rows = 0;
    let mut wrong = Vec::new();
    let (mut body, mut primary, mut key) = (Vec::new(), Key::new(), Key::new());
    for id in table.heap.owned() {
        for slot in table.segments().slots(id) {
            let Ok(slot) = slot else {
                wrong.push(slot.expect_err("just looked at"));
                break;
            };
            if table.segments().is_absent(slot) {
                continue;
            }
            rows += 1;
            table.segments().read(slot, &mut body);
            let row = body.get(table.row_at()..).unwrap_or(&[]);
            if let Err(error) = RowView::validate(&table.schema, row) {
                wrong.push(format!("the row at {}: {error}", place(slot)));
                continue;
            }
            table.schema.primary_key_of_row(row, table.row_number(&body), &mut primary);
            points(&table.primary, &primary, slot, table, WhichIndex::Primary, &mut wrong);
            for (position, index) in table.secondaries.iter().enumerate() {
                table.schema.index_key_of_row(position, row, &primary, &mut key);
                points(index, &key, slot, table, WhichIndex::Secondary(position), &mut wrong);
            }
        }
    }
    let all = std::iter::once(&table.primary).chain(&table.secondaries);
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
    let indexes = table.secondaries.len() + 1;
    report.verified.push(format!("table \"{}\": {rows} rows in {indexes} indexes", table.name()));
}

fn place(slot: RecordRef) -> String {
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
        wrong.push(format!("index \"{name}\" does not lead to the row {key} at {}", place(slot)));
    }
}
