//! `rialto cluster init`: makes a cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use rialto_cluster::control::ControlStore;
use rialto_cluster::node::{
    ClusterFacts, Manifest, NodeFacts, PARTITIONS_MAX, PROMISE_MS, PROMISE_MS_USUAL, Standing, init_restored,
};
use rialto_cluster::protocol::replication::Unprotected;
use rustix::rand::{GetRandomFlags, getrandom};

use super::authority::Authority;
use super::control::{TlsArgs, connect};
use super::failed::Failed;
use super::files;
use super::node_file::{Links, NodeFile};
use super::say::say;

/// How many partitions a node has, unless something else is asked for: so the load of a node that fails spreads.
pub const PARTITIONS_A_NODE: u32 = 4;
/// How many replicas a partition has, unless something else is asked for.
pub const REPLICAS: u32 = 2;

/// Make a cluster: its partitions and nodes in the control store, and a directory for each node
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The members of the etcd that is the control store; one that answers is enough
    #[arg(long, value_name = "URL[,URL]", value_delimiter = ',', required = true)]
    control: Vec<String>,
    /// What is put before each key in etcd; it ends with /
    #[arg(long, value_name = "PREFIX", default_value = "rialto/")]
    prefix: String,
    #[command(flatten)]
    control_tls: TlsArgs,
    /// The directory in which a directory for each node is made, with the node's name; move each to its node's machine
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// A node: its name, where other nodes reach it, and the loopback address of its machine where clients reach it;
    /// give it once for each node. The other replicas of a partition are on the nodes that follow that of its primary
    /// in this order
    #[arg(long = "node", value_name = "NAME=HOST:PORT,sql=HOST:PORT", required = true)]
    nodes: Vec<NodeSpec>,
    /// The number of partitions, which never changes [default: 4 for each node]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
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

/// How long a promise holds, on the command line.
#[derive(Debug, Clone, Copy, Args)]
pub struct PromiseArgs {
    /// How long a standby's promise holds, in milliseconds, for all nodes: a standby takes over from a silent primary
    /// once its promise has run out; it never changes [default: 2000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(promise_range()))]
    promise_ms: Option<u32>,
}

fn promise_range() -> std::ops::RangeInclusive<i64> {
    i64::from(*PROMISE_MS.start())..=i64::from(*PROMISE_MS.end())
}

impl PromiseArgs {
    /// The choice, or the default.
    pub fn chosen(self) -> u32 {
        self.promise_ms.unwrap_or(PROMISE_MS_USUAL)
    }

    /// Whether it was left out.
    pub fn is_left_out(self) -> bool {
        self.promise_ms.is_none()
    }
}

/// What becomes of a commit at level 2 in an unprotected partition, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level2 {
    /// It is answered once it is on that replica's disk
    OnDisk,
    /// It is refused with SQLSTATE 53000, and has no effect
    Refused,
}

impl From<Level2> for Unprotected {
    fn from(chosen: Level2) -> Unprotected {
        match chosen {
            Level2::OnDisk => Unprotected::WhenOnDisk,
            Level2::Refused => Unprotected::Refused,
        }
    }
}

/// A node on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    pub name: String,
    pub address: String,
    pub sql: String,
}

impl FromStr for NodeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeSpec, String> {
        let expected = || format!("{text:?}: expected NAME=HOST:PORT,sql=HOST:PORT");
        let (name, rest) = text.split_once('=').ok_or_else(expected)?;
        let (address, sql) = rest.split_once(",sql=").ok_or_else(expected)?;
        for address in [address, sql] {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            match port {
                Some(0) => {
                    return Err(format!(
                        "{address}: give a port other than 0, which other nodes and clients can know"
                    ));
                }
                Some(_) => {}
                None => return Err(expected()),
            }
        }
        if name.is_empty() {
            return Err(expected());
        }
        Ok(NodeSpec { name: name.to_owned(), address: address.to_owned(), sql: sql.to_owned() })
    }
}

/// A cluster that is to be made.
#[derive(Clone)]
pub struct Plan {
    pub control: Vec<String>,
    pub prefix: String,
    pub control_tls: TlsArgs,
    pub data: PathBuf,
    pub nodes: Vec<NodeSpec>,
    pub partitions: u32,
    pub replicas: u32,
    pub links: Links,
    pub unprotected: Unprotected,
    /// How long a promise holds, in milliseconds.
    pub promise_ms: u32,
    /// The backup whose partitions the cluster is to have, if it is not to be empty.
    pub restored: Option<Manifest>,
}

impl Plan {
    /// The nodes, as the control store gets them.
    pub fn facts(&self) -> Vec<NodeFacts> {
        let facts = |(node, spec): (u32, &NodeSpec)| NodeFacts {
            node,
            name: spec.name.clone(),
            address: spec.address.clone(),
            sql: spec.sql.clone(),
            standing: Standing::Member,
            directory: None,
        };
        (0..).zip(&self.nodes).map(facts).collect()
    }
}

/// The number of partitions and of replicas for so many nodes.
pub fn sizes(nodes: usize, partitions: Option<u32>, replicas: Option<u32>) -> (u32, u32) {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let partitions = partitions.unwrap_or(nodes.saturating_mul(PARTITIONS_A_NODE).min(PARTITIONS_MAX));
    (partitions, replicas.unwrap_or(REPLICAS.min(nodes)))
}

/// Makes a cluster, and says so.
pub fn run(args: &InitArgs) -> Result<ExitCode, Failed> {
    let (partitions, replicas) = sizes(args.nodes.len(), args.partitions, args.replicas);
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
        restored: None,
    };
    let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    say(format_args!(
        "in etcd at {}, under {}: a cluster of {partitions} partitions, {replicas} replicas each, on the nodes {}\n\
         in {}: a directory for each node{}",
        plan.control.join(", "),
        plan.prefix,
        names.join(", "),
        plan.data.display(),
        match plan.links {
            Links::Tls =>
                ", with a certificate; and the directory authority, whose key signs the certificates: keep it apart from the nodes",
            Links::PlainOnLoopback => "; nodes talk without encryption, and on this machine only",
            Links::PlainAnywhere => "; nodes talk without encryption",
        }
    ))?;
    let store = connect(&plan.control, &plan.prefix, plan.control_tls.read()?)?;
    let made = make(&plan, &store)?;
    let what = match made {
        Made::Now => {
            "made; move each node's directory to its machine, and run there: rialto cluster node --data"
        }
        Made::Before => {
            "all of it was there already: nothing was changed. Each node runs by: rialto cluster node --data"
        }
    };
    say(format_args!("{what} {}", plan.data.join("NAME").display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether there was something to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    Now,
    Before,
}

/// Makes a cluster. What is there already, of the same cluster, stays as it is.
pub fn make(plan: &Plan, store: &dyn ControlStore) -> Result<Made, Failed> {
    check_addresses(plan)?;
    let mut made = Made::Before;
    let facts = in_store(plan, store, &mut made)?;
    files::make_directory(&plan.data)?;
    let authority = match plan.links {
        Links::Tls => Some(Authority::open(&plan.data.join("authority"), &facts.id)?),
        Links::PlainOnLoopback | Links::PlainAnywhere => None,
    };
    for spec in &plan.nodes {
        if make_directory_of(plan, spec, &facts, authority.as_ref())? == Made::Now {
            made = Made::Now;
        }
    }
    Ok(made)
}

/// Refuses addresses at which nodes would not talk as the plan says, or would not start.
pub fn check_addresses(plan: &Plan) -> Result<(), Failed> {
    if let Links::PlainOnLoopback = plan.links
        && let Some(node) = plan.nodes.iter().find(|node| !is_loopback(&node.address))
    {
        return Err(Failed::usage(format_args!(
            "--links plain-on-loopback: {} is no loopback address; available: --links tls, or plain-anywhere for a network \
             without other machines",
            node.address
        )));
    }
    // Such a node would not start: its server refuses the address.
    if let Some(node) = plan.nodes.iter().find(|node| !is_loopback(&node.sql)) {
        return Err(Failed::usage(format_args!(
            "sql={}: this address of {} for clients is no loopback address. There are no users and no TLS for clients yet, so a \
             node takes them only from its own machine: give sql=127.0.0.1:PORT; a client elsewhere needs a tunnel or a proxy",
            node.sql, node.name
        )));
    }
    Ok(())
}

/// Makes the directory of a node, unless it is there.
pub fn make_directory_of(
    plan: &Plan,
    spec: &NodeSpec,
    facts: &ClusterFacts,
    authority: Option<&Authority>,
) -> Result<Made, Failed> {
    let directory = plan.data.join(&spec.name);
    let wanted = NodeFile {
        name: spec.name.clone(),
        cluster: facts.id.clone(),
        control: plan.control.clone(),
        prefix: plan.prefix.clone(),
        address: spec.address.clone(),
        sql: spec.sql.clone(),
        links: plan.links,
    };
    match NodeFile::find(&directory)? {
        Some(found) if found == wanted => Ok(Made::Before),
        Some(found) => Err(another(&directory, &found, &wanted)),
        None => {
            files::make_directory(&directory)?;
            if let Some(authority) = authority {
                authority.certify(&directory, &spec.name)?;
            }
            plan.control_tls.copy_to(&directory)?;
            // Last: with it, the directory is a node's.
            wanted.write(&directory)?;
            Ok(Made::Now)
        }
    }
}

/// Makes the cluster in the control store, and gives what it has.
fn in_store(plan: &Plan, store: &dyn ControlStore, made: &mut Made) -> Result<ClusterFacts, Failed> {
    let nodes = plan.facts();
    let new = ClusterFacts {
        id: format!("{:032x}", random_number()?),
        partitions: plan.partitions,
        replicas: plan.replicas,
        unprotected: plan.unprotected,
        promise_ms: plan.promise_ms,
    };
    match &plan.restored {
        Some(manifest) => init_restored(store, &new, &nodes, manifest)?,
        None => rialto_cluster::node::init(store, &new, &nodes)?,
    }
    let facts = ClusterFacts::read(store)?;
    if facts.id == new.id {
        *made = Made::Now;
    }
    let found = NodeFacts::all(store)?;
    // It may be drained, or have joined later.
    let is_there = |node: &NodeFacts| {
        found
            .iter()
            .any(|other| (&other.name, &other.address, &other.sql) == (&node.name, &node.address, &node.sql))
    };
    if let Some(missing) = nodes.iter().find(|node| !is_there(node)) {
        let names: Vec<String> =
            found.iter().map(|node| format!("{}={},sql={}", node.name, node.address, node.sql)).collect();
        return Err(Failed::unusable(format_args!(
            "the control store has a cluster already, and {} is not one of its nodes: {}. Give the same nodes, or another \
             --prefix",
            missing.name,
            names.join(" ")
        )));
    }
    Ok(facts)
}

fn another(directory: &Path, found: &NodeFile, wanted: &NodeFile) -> Failed {
    let why = match found.cluster == wanted.cluster {
        true => "was made with other options",
        false => "is of another cluster",
    };
    Failed::unusable(format_args!("{} {why}; give another --data, or remove it", directory.display()))
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn random_number() -> Result<u128, Failed> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(filled) if filled == bytes.len() => Ok(u128::from_le_bytes(bytes)),
        Ok(_) => Err(Failed::failing("the system gives no random bytes")),
        Err(error) => Err(Failed::failing(format_args!("random bytes of the system: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use rialto_cluster::control::MemoryStore;

    use super::*;

    fn plan(data: &Path, links: Links) -> Plan {
        Plan {
            control: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "rialto/".to_owned(),
            control_tls: TlsArgs::none(),
            data: data.to_owned(),
            nodes: ["a=127.0.0.1:7001,sql=127.0.0.1:8001", "b=127.0.0.1:7002,sql=127.0.0.1:8002"]
                .map(|text| text.parse().unwrap())
                .into(),
            partitions: 8,
            replicas: 2,
            links,
            unprotected: Unprotected::WhenOnDisk,
            promise_ms: PROMISE_MS_USUAL,
            restored: None,
        }
    }

    /// A directory that goes with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("rialto-init-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_node_is_read_from_the_command_line() {
        let node: NodeSpec = "a-1=10.0.0.1:7000,sql=[::1]:5432".parse().unwrap();
        assert_eq!((&*node.name, &*node.address, &*node.sql), ("a-1", "10.0.0.1:7000", "[::1]:5432"));
        for wrong in ["a", "a=b", "a=h:1", "a=h:1,sql=h", "=h:1,sql=h:2", "a=h:0,sql=h:2", "a=h:1,sql=h:x"] {
            assert!(wrong.parse::<NodeSpec>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cluster_is_made_once_and_what_is_missing_is_made_again() {
        let (store, directory) = (MemoryStore::new(), Directory::new("once"));
        let plan = plan(&directory.0, Links::Tls);
        assert_eq!(make(&plan, &store).unwrap(), Made::Now);
        let read = || NodeFile::all(&directory.0).unwrap();
        let first = read();
        assert_eq!(first.len(), 2);
        assert_eq!(make(&plan, &store).unwrap(), Made::Before);
        assert_eq!(read(), first);
        // A directory that was lost is made again, for the same cluster and by the same authority.
        std::fs::remove_dir_all(directory.0.join("b")).unwrap();
        assert_eq!(make(&plan, &store).unwrap(), Made::Now);
        assert_eq!(read(), first);
        for (path, node) in &first {
            assert!(matches!(node.security(path).unwrap(), rialto_cluster::net::Security::Tls(_)));
        }
        // Other choices are refused, and change nothing.
        let other = Plan { partitions: 9, ..self::plan(&directory.0, Links::Tls) };
        assert_eq!(make(&other, &store).unwrap_err().code, 3);
        let other = Plan { unprotected: Unprotected::Refused, ..self::plan(&directory.0, Links::Tls) };
        assert_eq!(make(&other, &store).unwrap_err().code, 3);
        let other = Plan { promise_ms: 500, ..self::plan(&directory.0, Links::Tls) };
        let refused = make(&other, &store).unwrap_err();
        assert!(refused.code == 3 && refused.text.contains("promises of 2000 ms"), "{}", refused.text);
        let mut other = self::plan(&directory.0, Links::Tls);
        other.nodes[1].sql = "127.0.0.1:9999".to_owned();
        assert_eq!(make(&other, &store).unwrap_err().code, 3);
        assert_eq!(read(), first);
    }

    #[test]
    fn one_replica_alone_cannot_refuse_what_is_unprotected() {
        let (store, directory) = (MemoryStore::new(), Directory::new("unprotected"));
        let alone = Plan { replicas: 1, unprotected: Unprotected::Refused, ..plan(&directory.0, Links::Tls) };
        let refused = make(&alone, &store).unwrap_err();
        assert!(refused.code == 2 && refused.text.contains("always unprotected"), "{}", refused.text);
        make(&Plan { replicas: 2, ..alone }, &store).unwrap();
        assert_eq!(ClusterFacts::read(&store).unwrap().unprotected, Unprotected::Refused);
    }

    #[test]
    fn plain_links_stay_on_the_machine_unless_another_choice_is_named() {
        let (store, directory) = (MemoryStore::new(), Directory::new("plain"));
        let mut plan = plan(&directory.0, Links::PlainOnLoopback);
        plan.nodes[1].address = "10.0.0.1:7000".to_owned();
        assert_eq!(make(&plan, &store).unwrap_err().code, 2);
        plan.links = Links::PlainAnywhere;
        assert_eq!(make(&plan, &store).unwrap(), Made::Now);
    }

    #[test]
    fn clients_are_taken_at_loopback_addresses_only() {
        let (store, directory) = (MemoryStore::new(), Directory::new("clients"));
        let mut plan = plan(&directory.0, Links::Tls);
        for sql in ["10.0.0.1:5432", "0.0.0.0:5432", "db.example:5432"] {
            plan.nodes[1].sql = sql.to_owned();
            let refused = make(&plan, &store).unwrap_err();
            assert!(refused.code == 2 && refused.text.contains("no users and no TLS"), "{}", refused.text);
            assert!(!directory.0.exists(), "{sql} has left something");
        }
        plan.nodes[1].sql = "[::1]:5432".to_owned();
        assert_eq!(make(&plan, &store).unwrap(), Made::Now);
    }

    #[test]
    fn private_keys_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (store, directory) = (MemoryStore::new(), Directory::new("keys"));
        make(&plan(&directory.0, Links::Tls), &store).unwrap();
        for file in ["authority/authority.key", "a/node.key", "b/node.key", "a", "authority"] {
            let mode = std::fs::metadata(directory.0.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}: {mode:o}");
        }
    }
}
