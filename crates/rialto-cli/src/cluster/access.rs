//! [`Access`]: the control store of a cluster, for a command that changes where replicas are.

use std::path::Path;

use rialto_cluster::control::EtcdStore;
use rialto_cluster::node::{ClusterFacts, NodeFacts, Placement, Standing};
use rialto_cluster::protocol::PartitionId;

use super::control::{connect, tls_in};
use super::failed::Failed;
use super::node_file::NodeFile;

/// The control store of a cluster, and what it says of the cluster.
pub struct Access {
    pub store: EtcdStore,
    pub facts: ClusterFacts,
}

impl Access {
    /// That of the nodes whose directories are in this one.
    pub fn of(data: &Path) -> Result<Access, Failed> {
        let files = NodeFile::all(data)?;
        let (directory, file) = files.first().expect("there is one at least");
        let store = connect(&file.control, &file.prefix, tls_in(directory)?)?;
        let facts = ClusterFacts::read(&store)?;
        if facts.id != file.cluster {
            return Err(Failed::unusable(format_args!(
                "the control store has another cluster under {} than {}",
                file.prefix,
                directory.display()
            )));
        }
        Ok(Access { store, facts })
    }

    /// Where replicas are.
    pub fn placement(&self) -> Result<Placement, Failed> {
        Ok(Placement::read(&self.store, &self.facts)?)
    }

    /// The node of a name; none if it has left the cluster.
    pub fn node(&self, name: &str) -> Result<Option<NodeFacts>, Failed> {
        let all = NodeFacts::with_left(&self.store)?;
        let there = all.iter().find(|node| node.name == name && node.standing != Standing::Left);
        if let Some(node) = there {
            return Ok(Some(node.clone()));
        }
        if all.iter().any(|node| node.name == name) {
            return Ok(None);
        }
        let names: Vec<&str> = all
            .iter()
            .filter(|node| node.standing != Standing::Left)
            .map(|node| node.name.as_str())
            .collect();
        Err(Failed::usage(format_args!("the cluster has no node {name}; it has {}", names.join(", "))))
    }

    /// The number of a node of this name that has left the cluster, and that configurations name all the same: a command that it
    /// gets a replica was carried out late.
    pub fn left_behind(&self, name: &str) -> Result<Option<(NodeFacts, Vec<PartitionId>)>, Failed> {
        let placement = self.placement()?;
        let all = NodeFacts::with_left(&self.store)?;
        let left = all.into_iter().filter(|node| node.name == name && node.standing == Standing::Left);
        let with = left.map(|node| {
            let partitions = placement.on(node.node);
            (node, partitions)
        });
        Ok(with.into_iter().find(|(_, partitions)| !partitions.is_empty()))
    }

    /// Has the next steps try nodes again to which moves have failed.
    pub fn forget_failed(&self) -> Result<(), Failed> {
        Ok(self.placement()?.moves.forget_failed(&self.store)?)
    }

    /// Gives a node another standing.
    pub fn set_standing(&self, name: &str, standing: Standing) -> Result<(), Failed> {
        Ok(NodeFacts::set_standing(&self.store, name, standing).map(drop)?)
    }
}
