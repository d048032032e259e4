//! [`give_up()`]: what becomes of the directory of a replica that its node has no more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::node::replica::SavedFile;
use crate::protocol::NodeId;
use crate::protocol::replication::Known;

/// Whether there is something of a replica's directory.
///
/// # Errors
/// Those of the file system.
pub fn is_left(directory: &Path) -> io::Result<bool> {
    Ok(directory.try_exists()? || half_deleted(directory).try_exists()?)
}

/// Where a directory is deleted: one that is half deleted is never opened.
fn half_deleted(directory: &Path) -> PathBuf {
    directory.with_extension("given-up")
}

/// Deletes the directory of a closed replica, under a configuration that was read after it was closed. It stays if the
/// configuration has the replica, is older than what the replica has seen, is of another control store, has fewer replicas in
/// sync than the partition is to have, or if something was lost that the replica may have.
///
/// # Errors
/// Those of the file system, with the directory's name. What is left is deleted by another call.
pub fn give_up(directory: &Path, node: NodeId, known: &Known, replicas: u32) -> io::Result<()> {
    let leaves = half_deleted(directory);
    if !directory.try_exists()? {
        return remove(&leaves);
    }
    if known.configuration.has(node) {
        return Ok(());
    }
    let saved = SavedFile::in_directory(directory).read()?;
    let is_older = known.configuration.epoch < saved.epoch || saved.store != Some(known.store);
    // An epoch that the replica has only heard of, a fence's say, says nothing of what it has.
    let has_lost = known.configuration.lost_before.memories > saved.agrees;
    let is_spare = known.configuration.in_sync.len() >= replicas as usize;
    let is_older = is_older && !rialto::fault_injection::is_on("given-up-under-an-older-configuration");
    if is_older || has_lost || !is_spare {
        return Ok(());
    }
    remove(&leaves)?;
    fs::rename(directory, &leaves)?;
    remove(&leaves)
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let what = format!("{}: {error}", directory.display());
            Err(io::Error::new(error.kind(), what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Revision;
    use crate::protocol::replication::{Configuration, LostBefore, Member, Saved, StoreIdentity};
    use crate::protocol::{Epoch, Life};

    #[test]
    fn a_directory_goes_only_under_a_newer_configuration_of_the_same_store() {
        let parent = std::env::temp_dir().join(format!("rialto-given-up-{}", std::process::id()));
        let directory = parent.join("partition-3");
        fs::create_dir_all(&directory).unwrap();
        let store = StoreIdentity(5);
        let saved = Saved { store: Some(store), epoch: Epoch(9), agrees: Epoch(7), ..Saved::default() };
        SavedFile::in_directory(&directory).write(&saved).unwrap();
        let known = |epoch, store, lost_before, node| Known {
            store,
            revision: Revision(1),
            configuration: Configuration {
                epoch: Epoch(epoch),
                primary: NodeId(node),
                in_sync: vec![Member { node: NodeId(node), life: Life(1) }],
                learners: Vec::new(),
                lost_before: LostBefore { memories: Epoch(lost_before), disks: Epoch(0) },
            },
        };
        let kept = [
            known(10, store, 0, 2),
            known(8, store, 0, 1),
            known(10, StoreIdentity(6), 0, 1),
            // It was fenced in epoch 9 by a force that has lost what was answered before: it may have it.
            known(9, store, 9, 1),
            known(10, store, 8, 1),
        ];
        for known in kept {
            give_up(&directory, NodeId(2), &known, 1).unwrap();
            assert!(directory.exists(), "{known:?}");
        }
        // The others are fewer than they are to be.
        give_up(&directory, NodeId(2), &known(9, store, 4, 1), 2).unwrap();
        assert!(directory.exists());
        give_up(&directory, NodeId(2), &known(9, store, 4, 1), 1).unwrap();
        assert!(!directory.exists());
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        // What an earlier process has left half deleted goes, too.
        fs::create_dir_all(parent.join("partition-3.given-up")).unwrap();
        give_up(&directory, NodeId(2), &known(9, store, 0, 1), 1).unwrap();
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        fs::remove_dir_all(&parent).unwrap();
    }
}
