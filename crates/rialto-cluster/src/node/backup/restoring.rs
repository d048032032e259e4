//! [`restore_partition`]: makes the database of a partition of a new cluster.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use rialto::backup::{Backup, Restore};

use super::manifest::{PartitionBackup, sync_directory};
use crate::node::replica::database_directory;
use crate::protocol::PartitionId;

/// Makes the database of a partition in a node's directory, where it is found when the node starts. The other
/// replicas take copies of it. It is on the disk when this returns; the caller makes the name of the node's directory
/// durable.
///
/// # Errors
/// In words: the backup is damaged, there is something already, or an error of the file system.
pub fn restore_partition(from: &Path, of: &PartitionBackup, node_directory: &Path) -> Result<(), String> {
    let to = database_directory(node_directory, PartitionId(of.partition));
    let there = to.try_exists().map_err(|error| format!("{}: {error}", to.display()))?;
    if there {
        return Err(format!("{} is there already", to.display()));
    }
    let parent = to.parent().expect("a database's directory is in the replica's");
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let path = from.join(&of.file);
    let wrong = |what: String| format!("{}: {what}", path.display());
    let file = File::open(&path).map_err(|error| wrong(error.to_string()))?;
    let name = path.display().to_string();
    let backup = Backup::stream(&name, BufReader::with_capacity(1 << 20, file));
    let report = Restore::new(vec![backup]).to_directory(&to).map_err(|error| error.to_string())?;
    for directory in [parent, node_directory] {
        sync_directory(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    match report.place.0 == of.place {
        true => Ok(()),
        false => Err(wrong(format!("its cut is at place {}, and not at place {}", report.place, of.place))),
    }
}
