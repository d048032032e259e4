//! `rialto cluster backup`: backs up all partitions as they are at one moment.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest};
use rialto_cluster::node::{BackupStatus, Manifest};

use super::failed::Failed;
use super::view::{NodeState, NodeView, View};
use crate::output::{print, tell};

/// How often the command looks again.
const POLL: Duration = Duration::from_millis(200);
/// How long the node that takes the backup may be silent.
const SILENT_WITHIN: Duration = Duration::from_secs(60);

/// Back up all partitions as they are at one moment, while the cluster is used
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The directory that has the directories of the nodes on this machine, or that of one node
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The directory for the backup, on this machine; new or empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The node of this machine that gets the partitions from their primaries and writes the backup [default: the first
    /// one that answers]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Has a node take a backup, and waits until it is complete.
pub fn run(args: &BackupArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    let node = match &args.node {
        Some(name) => {
            let node = view.node(name)?;
            if node.directory.is_none() {
                return Err(Failed::unusable(format_args!(
                    "--node {name}: it is not on this machine, and writes to its own: run this there"
                )));
            }
            node
        }
        None => {
            let is_up = |node: &&NodeView| node.state == NodeState::Up && node.directory.is_some();
            view.nodes.iter().find(is_up).ok_or_else(|| {
                Failed::failing(
                    "no node of this machine answers; start one: rialto cluster node --data DIR/NAME",
                )
            })?
        }
    };
    // The node has another working directory.
    let to = std::path::absolute(&args.to).map_err(|error| Failed::of_file(&args.to, &error))?;
    tell(format_args!("{} backs up all partitions to {}", node.name, to.display()));
    let begun = match view.ask(node, AdminRequest::Backup { to: to.clone() })? {
        AdminAnswer::BackupBegun(backup) => backup,
        AdminAnswer::Refused(why) => {
            return Err(Failed::failing(format_args!("{} refuses: {why}", node.name)));
        }
        other => return Err(Failed::failing(format_args!("{} gives no number: {other:?}", node.name))),
    };
    let mut heard = Instant::now();
    loop {
        std::thread::sleep(POLL);
        match view.ask(node, AdminRequest::BackupStatus) {
            Ok(AdminAnswer::Backup(status)) => match end_of(&begun, status) {
                None => heard = Instant::now(),
                Some(Ok(manifest)) => return Ok(print(in_words(&manifest, &to), ExitCode::SUCCESS)),
                Some(Err(End::Failed(why))) => {
                    return Err(Failed::failing(format_args!("there is no backup: {why}")));
                }
                Some(Err(End::Unknown)) => {
                    return Err(Failed::failing(format_args!(
                        "{} has started again, or taken another backup, meanwhile. If {} has no manifest.json, it is \
                         no backup",
                        node.name,
                        to.display()
                    )));
                }
            },
            Ok(other) => {
                return Err(Failed::failing(format_args!(
                    "{} does not tell how far it is: {other:?}",
                    node.name
                )));
            }
            Err(failed) if heard.elapsed() > SILENT_WITHIN => {
                return Err(Failed::failing(format_args!(
                    "{}. If {} has no manifest.json, it is no backup",
                    failed.text,
                    to.display()
                )));
            }
            // It is overloaded, or starts again.
            Err(_) => {}
        }
    }
}

/// Why there is no manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Failed(String),
    /// The node knows nothing of this backup any more.
    Unknown,
}

/// How the backup of this number has ended, if it has, by what its node says of the last one that it has taken.
fn end_of(begun: &str, status: BackupStatus) -> Option<Result<Manifest, End>> {
    match status {
        BackupStatus::Runs { backup, .. } if backup == begun => None,
        BackupStatus::Done(manifest) if manifest.backup == begun => Some(Ok(*manifest)),
        BackupStatus::Failed { backup, why } if backup == begun => Some(Err(End::Failed(why))),
        BackupStatus::None
        | BackupStatus::Runs { .. }
        | BackupStatus::Done(_)
        | BackupStatus::Failed { .. } => Some(Err(End::Unknown)),
    }
}

/// A backup, for an operator.
pub fn in_words(manifest: &Manifest, directory: &Path) -> String {
    let places: Vec<String> = manifest.partitions.iter().map(|of| of.place.to_string()).collect();
    format!(
        "{}: backup {} of cluster {}: {} partitions, {} bytes, up to the places {}",
        directory.display(),
        manifest.backup,
        manifest.cluster,
        manifest.partitions.len(),
        manifest.bytes(),
        places.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_another_backup_is_not_that_of_this_one() {
        let (mine, other) = ("0000000000000011", "0000000000000022");
        let runs = |backup: &str| BackupStatus::Runs { backup: backup.to_owned(), to: PathBuf::from("/b") };
        let failed =
            |backup: &str| BackupStatus::Failed { backup: backup.to_owned(), why: "its node".to_owned() };
        let done = |backup| BackupStatus::Done(Box::new(Manifest::new("77", backup, Vec::new())));
        assert_eq!(end_of(mine, runs(mine)), None);
        assert_eq!(end_of(mine, failed(mine)), Some(Err(End::Failed("its node".to_owned()))));
        assert!(matches!(end_of(mine, done(0x11)), Some(Ok(_))));
        for status in [runs(other), failed(other), done(0x22), BackupStatus::None] {
            assert_eq!(end_of(mine, status), Some(Err(End::Unknown)));
        }
    }
}
