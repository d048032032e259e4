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

/// How often it looks.
const LOOK: Duration = Duration::from_millis(200);
/// How long the node that takes the backup may be silent.
const SILENT_WITHIN: Duration = Duration::from_secs(60);

/// Back up all partitions as they are at one moment, while the cluster is used
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The directory that has the directories of the nodes on this machine
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The directory of this machine that the backup is written to. A node makes it, or it is empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The node of this machine that gets the partitions from their primaries, and writes them [default: the first
    /// one that answers]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Has a node take a backup, and waits until it is complete.
pub fn run(args: &BackupArgs) -> Result<ExitCode, Failed> {
    let view = View::of(&args.data)?;
    let node = match &args.node {
        Some(name) => view.node(name)?,
        None => {
            let is_up = |node: &&NodeView| node.state == NodeState::Up && node.directory.is_some();
            view.nodes.iter().find(is_up).ok_or_else(|| {
                Failed::failing("no node of this machine answers; start one: rialto cluster node --data")
            })?
        }
    };
    // The node has another working directory.
    let to = std::path::absolute(&args.to).map_err(|error| Failed::of_file(&args.to, &error))?;
    tell(format_args!("{} backs up all partitions to {}", node.name, to.display()));
    if let AdminAnswer::Refused(why) = node.ask(&AdminRequest::Backup { to: to.clone() })? {
        return Err(Failed::failing(format_args!("{} refuses: {why}", node.name)));
    }
    let mut heard = Instant::now();
    loop {
        std::thread::sleep(LOOK);
        match node.ask(&AdminRequest::BackupStatus) {
            Ok(AdminAnswer::Backup(BackupStatus::Done(manifest))) => {
                return Ok(print(in_words(&manifest, &to), ExitCode::SUCCESS));
            }
            Ok(AdminAnswer::Backup(BackupStatus::Failed(why))) => {
                return Err(Failed::failing(format_args!("there is no backup: {why}")));
            }
            Ok(AdminAnswer::Backup(BackupStatus::Runs(_))) => heard = Instant::now(),
            Ok(_) => {
                return Err(Failed::failing(format_args!(
                    "{} has started again meanwhile: what is in {} is no backup",
                    node.name,
                    to.display()
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
