//! `rialto cluster check`: verifies a backup, or the replicas of nodes that are stopped, and has nodes that run compare the
//! replicas of what they lead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rialto::Options;
use rialto::io::{Disk, FileDisk};
use rialto::recovery::check;
use rialto_cluster::node::Manifest;
use rialto_cluster::node::admin::{AdminRequest, Reached, ask};

use super::comparing::Comparing;
use super::failed::Failed;
use super::node_file::NodeFile;
use super::say::say;
use crate::args::MemoryArgs;

/// How long a node has to show that it runs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Verify a backup; or, for the nodes on this machine: of those that run, compare the replicas of the partitions that
/// they lead; of those that are stopped, verify the replicas (checksums, log, and that indexes agree with tables)
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR", required_unless_present = "backup")]
    data: Option<PathBuf>,
    /// The directory of a backup by `rialto cluster backup`, which is verified instead: that its files are all there,
    /// and as they were written
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "memory_bytes"])]
    backup: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Verifies the backup, or the replicas of stopped nodes one after the other, while those that run compare theirs. A
/// node that does not answer, or compares for another command, is told, and the others are gone through all the same.
pub fn run(args: &CheckArgs) -> Result<ExitCode, Failed> {
    if let Some(backup) = &args.backup {
        let manifest = Manifest::verify(backup).map_err(Failed::unusable)?;
        say(format_args!("{}", super::backup::in_words(&manifest, backup)))?;
        return Ok(ExitCode::SUCCESS);
    }
    args.memory.warn();
    let data = args.data.as_deref().expect("it is required without a backup");
    let (mut is_sound, mut is_whole) = (true, true);
    let mut comparing = Vec::new();
    for (directory, file) in NodeFile::all(data)? {
        let reached = ask(&directory, &AdminRequest::Status, PATIENCE);
        if reached.map_err(|error| Failed::of_file(&directory, &error))? != Reached::Down {
            match Comparing::begin(directory, file.name) {
                Ok(begun) => comparing.push(begun),
                Err(failed) => {
                    is_whole = false;
                    say(failed.text)?;
                }
            }
            continue;
        }
        say(format_args!("{}: it is stopped; its replicas are verified", file.name))?;
        for database in databases(&directory)? {
            is_sound &= verify(&database, args.memory)?;
        }
    }
    for comparing in comparing {
        match comparing.end() {
            Ok(compared) => {
                is_sound &= compared.is_same;
                is_whole &= compared.is_whole;
            }
            Err(failed) => {
                is_whole = false;
                say(failed.text)?;
            }
        }
    }
    Ok(ExitCode::from(match (is_sound, is_whole) {
        (false, _) => 1,
        (true, false) => 4,
        (true, true) => 0,
    }))
}

/// The databases in a node's directory, with the numbers of their partitions, in order.
fn databases(directory: &Path) -> Result<Vec<(u32, PathBuf)>, Failed> {
    let entries = fs::read_dir(directory).map_err(|error| Failed::of_file(directory, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Failed::of_file(directory, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("partition-").and_then(|number| number.parse().ok());
        let database = path.join("database");
        if let Some(number) = number
            && database.is_dir()
        {
            found.push((number, database));
        }
    }
    found.sort();
    Ok(found)
}

/// Verifies a database, and says what was found. Gives whether it is sound.
fn verify((partition, path): &(u32, PathBuf), memory: MemoryArgs) -> Result<bool, Failed> {
    let unusable =
        |what: &dyn std::fmt::Display| Failed::unusable(format_args!("{}: {what}", path.display()));
    let disk: Arc<dyn Disk> = FileDisk::open(path).map_err(|error| unusable(&error))?;
    let _lock = disk.lock().map_err(|error| unusable(&error))?;
    let report = check::check(&disk, memory.bytes(), Options::default().recovery_threads)
        .map_err(|error| unusable(&error))?;
    let text = report.to_string();
    let lines: Vec<String> = text.trim_end().lines().map(|line| format!("  {line}")).collect();
    say(format_args!("partition {partition}: {}\n{}", path.display(), lines.join("\n")))?;
    Ok(report.is_sound())
}
