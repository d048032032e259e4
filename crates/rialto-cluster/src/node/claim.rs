//! [`claim()`]: which directory is a node's.
//!
//! A node is known by its name, and a second directory of the same name may have old replicas of it, or none. So each
//! directory has a random number, and the control store keeps the number of the only directory that may run as the
//! node: the first one that has run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rialto::fault_injection;
use serde::{Deserialize, Serialize};

use super::facts::NodeFacts;
use super::random::random_number;
use super::running::NodeError;
use crate::control::ControlStore;

/// The file's name, in the node's directory.
const FILE: &str = "identity.json";

/// The node that a directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    /// The node's number.
    node: u32,
    /// The directory's own random number, in hexadecimal digits.
    directory: String,
}

impl Identity {
    fn read(directory: &Path) -> io::Result<Option<Identity>> {
        let path = directory.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn draw(node: u32, directory: &Path) -> io::Result<Identity> {
        let identity = Identity { node, directory: format!("{:016x}", random_number()) };
        fs::create_dir_all(directory)?;
        let (path, new) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&identity).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()?;
        Ok(identity)
    }
}

/// Whether a node's directory has replicas, whole or not.
///
/// # Errors
/// Those of the file system.
pub fn has_replicas(directory: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        if entry?.file_name().to_string_lossy().starts_with("partition-") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has a directory be the node's, unless another one is. `has_place` says whether a configuration names the node: a directory
/// without a number may then have its replicas. With `takes_over`, an operator says that the other directory is lost.
///
/// # Errors
/// [`NodeError::Directory`] if another directory is the node's, or if this one belongs to another node, such as an
/// earlier one of the same name.
pub(super) fn claim(
    store: &dyn ControlStore,
    me: &NodeFacts,
    directory: &Path,
    has_place: bool,
    takes_over: bool,
) -> Result<(), NodeError> {
    let refused = |why: String| NodeError::Directory(format!("{}: {why}", directory.display()));
    let found = Identity::read(directory)?;
    let has_replicas = has_replicas(directory)?;
    let is_mine = found.as_ref().is_some_and(|found| found.node == me.node);
    if fault_injection::is_on("any-directory-of-the-name") {
        return Ok(());
    }
    let may_be_old = match &found {
        Some(_) => !is_mine,
        None => !has_place,
    };
    if has_replicas && may_be_old {
        return Err(refused(format!(
            "its replicas, the directories partition-N, are those of an earlier node {}, which has left the cluster; the node \
             of this name is number {} now. Remove them, or give the node another directory",
            me.name, me.node
        )));
    }
    let identity = match found.filter(|_| is_mine) {
        Some(found) => found,
        None => match &me.directory {
            Some(_) if !takes_over => return Err(refused(another(me))),
            _ => Identity::draw(me.node, directory)?,
        },
    };
    match &me.directory {
        Some(claimed) if *claimed == identity.directory => Ok(()),
        Some(_) if !takes_over => Err(refused(another(me))),
        _ => NodeFacts::set_directory(store, me.node, &identity.directory).map_err(NodeError::from),
    }
}

fn another(me: &NodeFacts) -> String {
    format!(
        "{} has run from another directory, and only that one is its own. If that is lost for good, this one takes its place: \
         rialto cluster node --new-directory --data DIR",
        me.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::MemoryStore;
    use crate::node::facts::Standing;

    #[test]
    fn a_node_has_one_directory() {
        let parent = std::env::temp_dir().join(format!("rialto-claim-{}", std::process::id()));
        let _ = fs::remove_dir_all(&parent);
        let (one, two) = (parent.join("one"), parent.join("two"));
        let store = MemoryStore::new();
        let join = || NodeFacts::join(&store, "b", "127.0.0.1:1", "127.0.0.1:2").unwrap();
        join();
        let claims = |directory: &Path, has_place, takes_over| {
            let me = NodeFacts::all(&store).unwrap().remove(0);
            claim(&store, &me, directory, has_place, takes_over).map_err(|error| error.to_string())
        };
        for _ in 0..2 {
            claims(&one, false, false).unwrap();
        }
        fs::create_dir_all(one.join("partition-3")).unwrap();
        claims(&one, true, false).unwrap();
        // A second directory is none of the node's, unless an operator says so. Then the first one is none.
        assert!(claims(&two, true, false).unwrap_err().contains("--new-directory"));
        claims(&two, true, true).unwrap();
        claims(&two, true, false).unwrap();
        assert!(claims(&one, true, false).unwrap_err().contains("another directory"));
        // It leaves, and another node gets its name. What the first node has left is not the new one's.
        NodeFacts::set_standing(&store, "b", Standing::Left).unwrap();
        join();
        for takes_over in [false, true] {
            assert!(claims(&one, true, takes_over).unwrap_err().contains("an earlier node b"));
        }
        // An empty one may be.
        claims(&two, false, false).unwrap();
        claims(&two, true, false).unwrap();
        // Replicas that are there before the first start: those of a restored cluster, which configurations name.
        NodeFacts::set_standing(&store, "b", Standing::Left).unwrap();
        join();
        let three = parent.join("three");
        fs::create_dir_all(three.join("partition-1")).unwrap();
        assert!(claims(&three, false, false).is_err());
        claims(&three, true, false).unwrap();
        fs::remove_dir_all(&parent).unwrap();
    }
}
