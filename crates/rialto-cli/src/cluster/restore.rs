//! `rialto cluster restore`: makes a new cluster from a backup.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rialto_cluster::control::ControlStore;
use rialto_cluster::node::{
    ClusterFacts, FactsError, Manifest, check_restored, first_primary, restore_partition,
};
use rialto_cluster::protocol::PartitionId;

use super::backup::in_words;
use super::control::{TlsArgs, connect};
use super::failed::Failed;
use super::files;
use super::init::{Level2, NodeSpec, Plan, PromiseArgs, check_addresses, make, sizes};
use super::node_file::Links;
use super::say::say;

/// Make a new cluster as init does, with the data of a backup
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory of a backup by `rialto cluster backup`
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The members of the etcd that is the control store; one that answers is enough
    #[arg(long, value_name = "URL[,URL]", value_delimiter = ',', required = true)]
    control: Vec<String>,
    /// What is put before each key in etcd; it ends with /. No cluster may be there yet
    #[arg(long, value_name = "PREFIX", default_value = "rialto/")]
    prefix: String,
    #[command(flatten)]
    control_tls: TlsArgs,
    /// The directory in which a directory for each node is made, with the node's name; new or empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// A node: its name, where other nodes reach it, and the loopback address of its machine where clients reach it;
    /// give it once for each node. The nodes may differ from those of the cluster that was backed up, also in number
    #[arg(long = "node", value_name = "NAME=HOST:PORT,sql=HOST:PORT", required = true)]
    nodes: Vec<NodeSpec>,
    /// The number of replicas of each partition, the primary among them [default: 2, or 1 with one node]
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// How nodes talk to each other
    #[arg(long, value_enum, default_value = "tls")]
    links: Links,
    /// What happens to a commit at level 2 (standby) while its partition has one replica in sync; it never changes
    #[arg(long, value_enum, default_value = "on-disk")]
    unprotected: Level2,
    #[command(flatten)]
    promise: PromiseArgs,
}

/// Makes it, and says so.
pub fn run(args: &RestoreArgs) -> Result<ExitCode, Failed> {
    let manifest = Manifest::verify(&args.from).map_err(Failed::unusable)?;
    let partitions = u32::try_from(manifest.partitions.len()).expect("a manifest counts its partitions");
    let (partitions, replicas) = sizes(args.nodes.len(), Some(partitions), args.replicas);
    let plan = Plan {
        control: args.control.clone(),
        prefix: args.prefix.clone(),
        control_tls: args.control_tls.clone(),
        data: args.data.clone(),
        nodes: args.nodes.clone(),
        partitions,
        replicas,
        links: args.links,
        unprotected: args.unprotected.into(),
        promise_ms: args.promise.chosen(),
        restored: Some(manifest.clone()),
    };
    say(in_words(&manifest, &args.from))?;
    check_addresses(&plan)?;
    let store = connect(&plan.control, &plan.prefix, plan.control_tls.read()?)?;
    make_of(&plan, &manifest, &args.from, &store)?;
    say(format_args!(
        "made; move each node's directory to its machine, and run there: rialto cluster node --data {}. The other replicas \
         take copies of those that were restored",
        plan.data.join("NAME").display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the databases first, and the cluster once all are there: no node can begin with a part of them.
fn make_of(plan: &Plan, manifest: &Manifest, from: &Path, store: &dyn ControlStore) -> Result<(), Failed> {
    let nodes = plan.facts();
    // All that may be refused is refused before there is anything to be removed. The cluster's number comes later.
    let facts = ClusterFacts {
        id: String::new(),
        partitions: plan.partitions,
        replicas: plan.replicas,
        unprotected: plan.unprotected,
        promise_ms: plan.promise_ms,
    };
    match check_restored(store, &facts, &nodes, manifest) {
        Err(FactsError::Another(_)) => {
            return Err(Failed::unusable(format_args!(
                "the control store has a cluster under {} already; give another --prefix",
                plan.prefix
            )));
        }
        checked => checked?,
    }
    files::make_directory(&plan.data)?;
    let mut entries = std::fs::read_dir(&plan.data).map_err(|error| Failed::of_file(&plan.data, &error))?;
    if entries.next().is_some() {
        return Err(Failed::unusable(format_args!(
            "{} is not empty; give a new or an empty directory",
            plan.data.display()
        )));
    }
    for of in &manifest.partitions {
        let node = first_primary(&nodes, PartitionId(of.partition));
        let directory = plan.data.join(&node.name);
        files::make_directory(&directory)?;
        restore_partition(from, of, &directory).map_err(|why| {
            Failed::unusable(format_args!(
                "{why}; the cluster was not made: remove {} before another try",
                plan.data.display()
            ))
        })?;
        say(format_args!(
            "partition {}: restored for {}, up to place {}",
            of.partition, node.name, of.place
        ))?;
    }
    // With the cluster in the control store, the nodes' directories have to be there.
    for directory in [Some(&*plan.data), plan.data.parent()].into_iter().flatten() {
        files::sync_directory(directory)?;
    }
    make(plan, store)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rialto_cluster::control::MemoryStore;
    use rialto_cluster::node::{PROMISE_MS_USUAL, PartitionBackup};

    use super::*;

    #[test]
    fn nothing_that_is_there_is_written_to() {
        let data = std::env::temp_dir().join(format!("rialto-restore-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir_all(data.join("a")).unwrap();
        let plan = Plan {
            control: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "rialto/".to_owned(),
            control_tls: TlsArgs::none(),
            data: data.clone(),
            nodes: vec!["a=127.0.0.1:7001,sql=127.0.0.1:8001".parse().unwrap()],
            partitions: 1,
            replicas: 1,
            links: Links::PlainOnLoopback,
            unprotected: Level2::OnDisk.into(),
            promise_ms: PROMISE_MS_USUAL,
            restored: None,
        };
        let of = PartitionBackup {
            partition: 0,
            file: "partition-0.backup".to_owned(),
            place: 1,
            epoch: 3,
            bytes: 0,
            checksum: String::new(),
        };
        let manifest = Manifest::new("77", 1, vec![of]);
        let store = MemoryStore::new();
        let refused = make_of(&plan, &manifest, &data, &store).unwrap_err();
        assert!(refused.code == 3 && refused.text.contains("is not empty"), "{}", refused.text);
        assert!(matches!(ClusterFacts::read(&store), Err(FactsError::NoCluster)));
        // So are choices that make no sense.
        let twice = Plan {
            data: data.join("b"),
            nodes: ["a=127.0.0.1:7001,sql=127.0.0.1:8001", "a=127.0.0.1:7002,sql=127.0.0.1:8002"]
                .map(|node| node.parse().unwrap())
                .into(),
            ..plan.clone()
        };
        let refused = make_of(&twice, &manifest, &data, &store).unwrap_err();
        assert!(refused.code == 2 && refused.text.contains("two nodes"), "{}", refused.text);
        assert!(!twice.data.exists(), "before anything is made");
        make(&plan, &store).unwrap();
        let elsewhere = Plan { data: data.join("b"), ..plan };
        let refused = make_of(&elsewhere, &manifest, &data, &store).unwrap_err();
        assert!(refused.code == 3 && refused.text.contains("--prefix"), "{}", refused.text);
        assert!(!elsewhere.data.exists());
        std::fs::remove_dir_all(&data).unwrap();
    }
}
