//! `rialto cluster join`: adds a node to a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rialto_cluster::control::ControlStore;
use rialto_cluster::node::{ClusterFacts, Joined, NodeFacts, PROMISE_MS_USUAL, has_replicas};
use rialto_cluster::protocol::replication::Unprotected;

use super::authority::Authority;
use super::control::{TlsArgs, connect};
use super::failed::Failed;
use super::init::{Made, NodeSpec, Plan, check_addresses, make_directory_of};
use super::node_file::{Links, NodeFile};
use super::say::say;
use crate::output::print;

/// Add a node to a running cluster: put it on the control store's list, and make its directory
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The directory in which the node's directory is made. It has the directory of another node, unless --control is
    /// given. With TLS it also has the directory `authority`, which `rialto cluster init` has made
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The node: its name, where other nodes reach it, and the loopback address of its machine where clients reach it
    #[arg(long, value_name = "NAME=HOST:PORT,sql=HOST:PORT")]
    node: NodeSpec,
    /// The members of the etcd that is the control store [default: as another node in DIR has it]
    #[arg(long, value_name = "URL[,URL]", value_delimiter = ',')]
    control: Vec<String>,
    /// What is put before each key in etcd; it ends with /
    #[arg(long, value_name = "PREFIX", default_value = "rialto/", requires = "control")]
    prefix: String,
    #[command(flatten)]
    control_tls: TlsArgs,
    /// How nodes talk to each other [default: as another node in DIR does; tls with --control]
    #[arg(long, value_enum)]
    links: Option<Links>,
}

impl JoinArgs {
    /// The node as part of the cluster, and the cluster's number if a node's file says it.
    fn plan(&self) -> Result<(Plan, Option<String>), Failed> {
        let plan = |control: &[String], prefix: &str, control_tls, links| Plan {
            control: control.to_vec(),
            prefix: prefix.to_owned(),
            control_tls,
            data: self.data.clone(),
            nodes: vec![self.node.clone()],
            // The control store has them.
            partitions: 0,
            replicas: 0,
            links,
            unprotected: Unprotected::default(),
            promise_ms: PROMISE_MS_USUAL,
            restored: None,
        };
        if !self.control.is_empty() {
            let links = self.links.unwrap_or(Links::Tls);
            return Ok((plan(&self.control, &self.prefix, self.control_tls.clone(), links), None));
        }
        let files = NodeFile::all(&self.data).map_err(|failed| Failed {
            text: format!("{}; or give --control, with the members of etcd", failed.text),
            code: failed.code,
        })?;
        let (directory, file) = files.first().expect("there is one at least");
        if self.links.is_some_and(|links| links != file.links) {
            return Err(Failed::usage(format_args!(
                "--links: the node {} has another choice, and all nodes of a cluster have the same; leave this option out",
                file.name
            )));
        }
        let tls = TlsArgs::in_directory(directory);
        Ok((plan(&file.control, &file.prefix, tls, file.links), Some(file.cluster.clone())))
    }
}

/// Adds it, and says so.
pub fn run(args: &JoinArgs) -> Result<ExitCode, Failed> {
    let (plan, cluster) = args.plan()?;
    let store = connect(&plan.control, &plan.prefix, plan.control_tls.read()?)?;
    say(format_args!(
        "in etcd at {}, under {}: the node {} at {}\nin {}: a directory for it{}",
        plan.control.join(", "),
        plan.prefix,
        args.node.name,
        args.node.address,
        plan.data.display(),
        match plan.links {
            Links::Tls => ", with a certificate by the authority that is there",
            Links::PlainOnLoopback | Links::PlainAnywhere => "",
        }
    ))?;
    let text = join(&plan, cluster.as_deref(), &store)?;
    Ok(print(text, ExitCode::SUCCESS))
}

/// Adds the only node of a plan. Gives what became of it, in words.
fn join(plan: &Plan, cluster: Option<&str>, store: &dyn ControlStore) -> Result<String, Failed> {
    let spec = &plan.nodes[0];
    check_addresses(plan)?;
    let facts = ClusterFacts::read(store)?;
    if cluster.is_some_and(|cluster| cluster != facts.id) {
        return Err(Failed::unusable(format_args!(
            "the control store has another cluster under {} than the nodes in {}",
            plan.prefix,
            plan.data.display()
        )));
    }
    // Before anything is changed.
    let authority = match plan.links {
        Links::Tls => Some(Authority::find(&plan.data.join("authority"), &facts.id)?),
        Links::PlainOnLoopback | Links::PlainAnywhere => None,
    };
    let directory = plan.data.join(&spec.name);
    let is_new = NodeFacts::all(store)?.iter().all(|node| node.name != spec.name);
    if is_new && has_replicas(&directory).map_err(|error| Failed::of_file(&directory, &error))? {
        return Err(Failed::unusable(format_args!(
            "{} has replicas, the directories partition-N: those of an earlier node {}, which has left the cluster. Remove \
             them, or give another --data",
            directory.display(),
            spec.name
        )));
    }
    let joined = NodeFacts::join(store, &spec.name, &spec.address, &spec.sql)?;
    let made = make_directory_of(plan, spec, &facts, authority.as_ref())?;
    let next = format!(
        "Move {} to its machine, and run there: rialto cluster node --data {}. It gets replicas by rialto cluster balance",
        directory.display(),
        directory.display()
    );
    Ok(match (joined, made) {
        (Joined::New(_), _) => format!("{} has joined. {next}", spec.name),
        (Joined::Again(_), _) => {
            format!("{} is not drained any more, and may get replicas. {next}", spec.name)
        }
        (Joined::Before(_), Made::Now) => {
            format!("{} had joined already; its directory was made. {next}", spec.name)
        }
        (Joined::Before(_), Made::Before) => {
            format!("{} had joined already: nothing was changed. {next}", spec.name)
        }
    })
}

#[cfg(test)]
mod tests {
    use rialto_cluster::control::MemoryStore;
    use rialto_cluster::node::Standing;

    use super::*;
    use crate::cluster::init::{Made, make};

    fn plan(data: &std::path::Path, nodes: &[&str]) -> Plan {
        Plan {
            control: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "rialto/".to_owned(),
            control_tls: TlsArgs::none(),
            data: data.to_owned(),
            nodes: nodes.iter().map(|text| text.parse().unwrap()).collect(),
            partitions: 4,
            replicas: 2,
            links: Links::Tls,
            unprotected: Unprotected::default(),
            promise_ms: PROMISE_MS_USUAL,
            restored: None,
        }
    }

    #[test]
    fn a_node_joins_once_with_a_certificate_of_the_same_authority() {
        let data = std::env::temp_dir().join(format!("rialto-join-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&data);
        let store = MemoryStore::new();
        let first = plan(&data, &["a=10.0.0.1:7000,sql=127.0.0.1:1", "b=10.0.0.2:7000,sql=127.0.0.1:1"]);
        assert_eq!(make(&first, &store).unwrap(), Made::Now);
        let new = plan(&data, &["c=10.0.0.3:7000,sql=127.0.0.1:1"]);
        let away = data.with_extension("away");
        // Without the authority nothing is done.
        std::fs::rename(data.join("authority"), &away).unwrap();
        let refused = join(&new, None, &store).unwrap_err();
        assert!(refused.text.contains("authority") && refused.code == 3, "{}", refused.text);
        assert_eq!(NodeFacts::all(&store).unwrap().len(), 2);
        std::fs::rename(&away, data.join("authority")).unwrap();
        assert!(join(&new, None, &store).unwrap().starts_with("c has joined."));
        assert!(join(&new, None, &store).unwrap().contains("nothing was changed"));
        NodeFacts::set_standing(&store, "c", Standing::Draining).unwrap();
        assert!(join(&new, None, &store).unwrap().contains("not drained any more"));
        let files = NodeFile::all(&data).unwrap();
        let (directory, file) = &files[2];
        assert_eq!(file.name, "c");
        assert!(matches!(file.security(directory).unwrap(), rialto_cluster::net::Security::Tls(_)));
        // The first nodes are made again as before, and another cluster's number is refused.
        assert_eq!(make(&first, &store).unwrap(), Made::Before);
        assert_eq!(join(&new, Some("77"), &store).unwrap_err().code, 3);
        // What an earlier node of the name has left is not given to a new one.
        std::fs::create_dir_all(data.join("e").join("partition-2")).unwrap();
        let old = plan(&data, &["e=10.0.0.5:7000,sql=127.0.0.1:1"]);
        assert!(join(&old, None, &store).unwrap_err().text.contains("an earlier node e"));
        assert_eq!(NodeFacts::all(&store).unwrap().len(), 3);
        let taken = plan(&data, &["d=10.0.0.3:7000,sql=127.0.0.1:1"]);
        assert!(join(&taken, None, &store).unwrap_err().text.contains("is the address of c"));
        std::fs::remove_dir_all(&data).unwrap();
    }
}
