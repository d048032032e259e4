//! `rialto inspect`: describes a directory in words. It only reads.
//!
//! How long a recovery takes is predicted from the directory: how much there is to load and to redo, and how fast
//! earlier recoveries were. Beside it stands how long the recovery took that inspect itself makes in memory.

use std::fmt::Write;
use std::sync::Arc;

use super::check;
use super::rates::explain;
use super::{RecoveryRates, recover_either, work};
use crate::checkpoint::home::{HomeBlock, HomeError, HomeSlot, older_in_force, read_home};
use crate::error::Error;
use crate::fault_injection;
use crate::io::{Caching, Disk, Open};
use crate::log::WritePath;
use crate::store::memory::image::backup_name;

/// Describes the files of a database and, by a recovery in `memory_bytes` of memory, its log and tables. No process may
/// have it open.
///
/// # Errors
/// As [`read_home`]. An error of the recovery is part of the text.
pub fn inspect(disk: &Arc<dyn Disk>, memory_bytes: u64, threads: usize) -> Result<String, HomeError> {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("directory  {}", disk.describe()));
    let (slots, home) = read_home(&**disk)?;
    line(format!("database   {:032x}", home.database_id));
    for (number, slot) in slots.iter().enumerate() {
        line(format!("home {number}     {}", describe(slot, &home)));
    }
    line("files".to_owned());
    for name in disk.list()? {
        // A shared map is not a file; its size is found in another way.
        let bytes = match disk.open(&name, Open::ReadOnly, Caching::Buffered).and_then(|file| file.length()) {
            Ok(bytes) => bytes,
            Err(_) => disk.shared_bytes(&name)?.map_or(0, |bytes| bytes as u64),
        };
        line(format!("  {name:<16} {bytes:>14} bytes"));
    }
    if let Some(measured) = WritePath::recorded(&**disk) {
        line(format!("log writes {measured}"));
    }
    // What is wrong with the log is reported below.
    if let Ok(work) = work(disk, &home) {
        let rates = RecoveryRates::recorded(&**disk).unwrap_or_default();
        line(format!("recovery   predicted: {}", rates.estimate(&work)));
        for part in explain(&work, &rates) {
            line(format!("  {part}"));
        }
    }
    let older =
        older_in_force(&slots, &home).filter(|_| !fault_injection::is_on("inspect-without-the-older"));
    let recovered =
        recover_either(&home, older.as_ref(), |start| check::recover(disk, start, memory_bytes, threads));
    match recovered {
        Ok((recovered, fell_back)) => {
            let report = &recovered.report;
            line(format!("recovery   from checkpoint {}", report.checkpoint));
            if let Some(fell_back) = fell_back {
                line(format!("damaged    {fell_back}"));
            }
            line(format!("recovery   took, here and now on {threads} threads: {}", report.parts()));
            line(format!(
                "log        places {} to {}: {} packets, {} redo records",
                report.redo_start, report.log_end, report.packets, report.records
            ));
            if let Some(loss) = report.loss() {
                line(format!("lost       {loss}"));
            }
            if let Some(left) = report.left_at_calls() {
                line(format!("calls      {left}"));
            }
            line("tables".to_owned());
            for table in &recovered.tables {
                let schema = &table.schema;
                line(format!(
                    "  {} (table {}, heap {}): {} rows in {} segments",
                    table.name(),
                    table.id.0,
                    table.store.heap().0,
                    table.store.rows(),
                    table.store.owned().len()
                ));
                for column in schema.columns() {
                    let null = if column.nullable { "" } else { " not null" };
                    line(format!("    {:<20} {}{null}", column.name, column.ty));
                }
                let names = |columns: &[usize]| {
                    columns
                        .iter()
                        .map(|&at| schema.columns()[at].name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                if let Some(key) = schema.primary_key() {
                    line(format!("    primary key ({})", names(key)));
                }
                for index in schema.indexes() {
                    let unique = if index.unique { "unique " } else { "" };
                    line(format!("    {unique}index {} ({})", index.name, names(&index.columns)));
                }
            }
        }
        Err(Error::MemoryLimit { .. }) => line(format!(
            "recovery   not made here: the tables do not fit into {memory_bytes} bytes of memory, give it more"
        )),
        Err(error) => line(format!("not recoverable: {error}")),
    }
    Ok(out)
}

fn describe(slot: &HomeSlot, current: &HomeBlock) -> String {
    match slot {
        HomeSlot::Blank => "never written".to_owned(),
        HomeSlot::Damaged(why) => format!("damaged: {why}"),
        HomeSlot::Valid(block) => {
            let mut text = format!("checkpoint {}", block.sequence);
            match block.copy {
                Some(copy) => write!(text, ", \"{}\" of {} segments", backup_name(copy), block.segments),
                None => write!(text, ", no backup copy yet"),
            }
            .expect("writing to a string");
            write!(text, ", redo from place {}, clearance {}", block.redo_start, block.clearance)
                .expect("as above");
            text.push_str(match (block.retired, block == current) {
                (true, _) => " (retired)",
                (false, true) => " (in force)",
                (false, false) => " (older)",
            });
            text
        }
    }
}
