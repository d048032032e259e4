//! `rialto cluster node`: a node, in the foreground.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rialto_cluster::control::{ControlError, ControlStore, EtcdStore};
use rialto_cluster::node::admin::AdminSocket;
use rialto_cluster::node::{
    ClusterFacts, FactsError, LinkOptions, Node, NodeError, NodeFacts, NodeOptions, Procedures, make_table,
    read_configuration,
};
use rialto_cluster::protocol::NodeId;
use rialto_cluster::protocol::replication::ReplicationOptions;

use super::control::{connect, tls_in};
use super::ending::Ending;
use super::failed::Failed;
use super::files;
use super::node_file::NodeFile;
use super::shares::{Counts, LOG_BYTES, Shares};
use super::sql::SqlServer;
use crate::args::MemoryArgs;
use crate::event_log::{EventFilter, QUIET};
use crate::output::{Results, tell};

/// How often a node that cannot start yet tries again, and looks for what it has to tell.
const AGAIN: Duration = Duration::from_secs(1);
/// After so long without progress a replica that moves to another node is taken back.
const MOVE_PATIENCE: Duration = Duration::from_secs(300);

/// Run a node in the foreground, until SIGTERM or SIGINT
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The node's directory, which `rialto cluster init` has made
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The directory from which this node has run before is lost for good: this one takes its place, and the former one
    /// is refused from then on
    #[arg(long)]
    new_directory: bool,
    /// The memory of all its replicas together; each has the same share. Replicas are counted when the node starts
    #[command(flatten)]
    memory: MemoryArgs,
    /// The bound on the logs of all its replicas together, in bytes [default: 4 GiB]
    #[arg(long, value_name = "N")]
    log_bytes: Option<u64>,
    /// How many seconds the node of a replica may be away until this node, if it leads the partition, makes the replica
    /// again on another node; 0: never
    #[arg(long, value_name = "S", default_value_t = 300)]
    repair_after_seconds: u64,
    /// The bound on how fast this node sends copies of its partitions to other nodes, all together, in bytes a second:
    /// 4194304 or more; 0: no bound
    #[arg(long, value_name = "N", default_value_t = 128 << 20, value_parser = copy_pace)]
    copy_bytes_per_second: u64,
    /// How many seconds apart the replicas of each partition that this node leads are compared in the background; 0:
    /// only by `rialto cluster check`
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(..=315_360_000))]
    compare_every_seconds: u64,
    /// Which events are printed on stderr: a level (off, error, warn, info, debug, trace), or TARGET=LEVEL, several of
    /// them with commas
    #[arg(long, value_name = "LEVEL|FILTER", default_value = QUIET)]
    log: EventFilter,
}

/// Runs a node.
pub fn run(args: &NodeArgs) -> Result<ExitCode, Failed> {
    let file = NodeFile::read(&args.data)?;
    let log = args.log.print().map_err(|error| Failed::failing(format_args!("starting the log: {error}")))?;
    let lock = files::lock(&args.data.join("node.lock"), "runs this node")?;
    let mut ending = Ending::new()?;
    args.memory.warn();
    // Before the logs open their files.
    rialto_server::raise_open_files();
    let listener = TcpListener::bind(&file.sql).map_err(|error| {
        Failed::unusable(format_args!("no clients can be taken at {}: {error}", file.sql))
    })?;
    let Some(store) = reach_store(&file, &args.data, &mut ending)? else { return Ok(ExitCode::SUCCESS) };
    let store: Arc<dyn ControlStore> = Arc::new(store);
    let Some(node) = open(args, &file, &store, &mut ending)? else { return Ok(ExitCode::SUCCESS) };
    let node = Arc::new(node);
    // It was held while the replicas were opened, so that another program's port is found out before.
    drop(listener);
    let open_admin = || {
        AdminSocket::open(&args.data, node.clone()).map_err(|error| {
            Failed::failing(format_args!("{}: the admin socket: {error}", args.data.display()))
        })
    };
    let (mut early, mut told) = (None, Told::default());
    // A node whose replicas are all being copied has no definitions yet.
    while !node.transactions().has_catalog() {
        // One that has just joined, or is drained, may have none for long.
        if early.is_none() && node.replicas().is_empty() {
            early = Some(open_admin()?);
        }
        told.tell(&node);
        if ending.comes_within(AGAIN) {
            drop(early);
            Arc::into_inner(node).expect("its listeners have ended").close();
            return Ok(ExitCode::SUCCESS);
        }
    }
    let sql = SqlServer::start(&node, &file.sql, &args.data)?;
    let admin = match early {
        Some(admin) => admin,
        None => open_admin()?,
    };
    let mut out = Results::new();
    // It serves whether or not that is read.
    let _ = writeln!(out, "ready sql={} data={}", sql.address(), args.data.display());
    let _ = out.flush();
    while !ending.comes_within(AGAIN) {
        told.tell(&node);
    }
    drop((sql, admin));
    Arc::into_inner(node).expect("its listeners have ended").close();
    // The last word is the program's.
    drop(log);
    drop(lock);
    Ok(ExitCode::SUCCESS)
}

/// A pace of copies. At a slower one than this a receiver would take the pause between two pieces for the end.
fn copy_pace(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 4 << 20;
    match text.parse() {
        Ok(bytes) if bytes == 0 || bytes >= LEAST => Ok(bytes),
        _ => Err(format!("expected 0, or a number of bytes from {LEAST} on")),
    }
}

/// Connects to the control store, and waits until it answers; none if the process is to end.
fn reach_store(file: &NodeFile, directory: &Path, ending: &mut Ending) -> Result<Option<EtcdStore>, Failed> {
    let tls = tls_in(directory)?;
    let mut waiting = Waiting::default();
    loop {
        match connect(&file.control, &file.prefix, tls.clone()) {
            Ok(store) => return Ok(Some(store)),
            Err(ControlError::Unavailable(why)) => waiting.tell(&why),
            Err(error) => return Err(error.into()),
        }
        if ending.comes_within(AGAIN) {
            return Ok(None);
        }
    }
}

/// Opens the node, and waits until the control store answers; none if the process is to end.
fn open(
    args: &NodeArgs,
    file: &NodeFile,
    store: &Arc<dyn ControlStore>,
    ending: &mut Ending,
) -> Result<Option<Node>, Failed> {
    let mut waiting = Waiting::default();
    loop {
        match open_once(args, file, store) {
            Ok(node) => return Ok(Some(node)),
            Err(Opening::NotYet(why)) => waiting.tell(&why),
            Err(Opening::Failed(failed)) => return Err(failed),
        }
        if ending.comes_within(AGAIN) {
            return Ok(None);
        }
    }
}

/// Why a node is not open.
enum Opening {
    /// The control store does not answer.
    NotYet(String),
    Failed(Failed),
}

impl From<NodeError> for Opening {
    fn from(error: NodeError) -> Opening {
        match error {
            NodeError::Facts(FactsError::Store(ControlError::Unavailable(why))) => Opening::NotYet(why),
            error => Opening::Failed(error.into()),
        }
    }
}

impl From<FactsError> for Opening {
    fn from(error: FactsError) -> Opening {
        NodeError::from(error).into()
    }
}

fn open_once(args: &NodeArgs, file: &NodeFile, store: &Arc<dyn ControlStore>) -> Result<Node, Opening> {
    let facts = ClusterFacts::read(&**store)?;
    if facts.id != file.cluster {
        return Err(Opening::Failed(Failed::unusable(format_args!(
            "{} belongs to another cluster than the one that the control store has under {}",
            args.data.display(),
            file.prefix
        ))));
    }
    let nodes = NodeFacts::all(&**store)?;
    let me = nodes.iter().find(|node| node.name == file.name).map(|node| NodeId(node.node));
    let mut here = 0;
    for partition in facts.partitions() {
        let known = read_configuration(&**store, partition).map_err(FactsError::from)?;
        let is_here = known.is_some_and(|known| known.configuration.nodes().any(|node| Some(node) == me));
        here += u32::from(is_here);
    }
    let nodes = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let counts = Counts { here, partitions: facts.partitions, replicas: facts.replicas, nodes };
    let log_bytes = args.log_bytes.unwrap_or(LOG_BYTES);
    let shares = Shares::new(counts, args.memory.bytes(), log_bytes).map_err(Opening::Failed)?;
    let options = NodeOptions {
        name: file.name.clone(),
        directory: args.data.clone(),
        takes_over: args.new_directory,
        database: shares.options(),
        replication: ReplicationOptions::default(),
        repair_after: Some(args.repair_after_seconds).filter(|s| *s > 0).map(Duration::from_secs),
        copy_bytes_per_second: NonZeroU64::new(args.copy_bytes_per_second),
        move_patience: MOVE_PATIENCE,
        compare_every: Some(args.compare_every_seconds).filter(|s| *s > 0).map(Duration::from_secs),
        security: file.security(&args.data).map_err(Opening::Failed)?,
        links: LinkOptions::default(),
        make: Arc::new(make_table),
        procedures: Procedures::default(),
    };
    Ok(Node::open(options, store.clone())?)
}

/// Tells once for what a node waits.
#[derive(Default)]
struct Waiting(Option<String>);

impl Waiting {
    fn tell(&mut self, why: &str) {
        if self.0.is_none() {
            tell(format_args!("waiting for the control store: {why}"));
            self.0 = Some(why.to_owned());
        }
    }
}

/// What has been told of what went wrong.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    /// Tells what was not told before, or was over meanwhile.
    fn tell(&mut self, node: &Node) {
        let replicas = node.replicas().into_iter().filter_map(|replica| {
            let status = replica.status();
            Some(format!("{}: {}", status.partition, status.trouble?))
        });
        let differences = node.differences().into_iter().map(|difference| difference.to_string());
        let now: BTreeSet<String> = node.trouble().into_iter().chain(replicas).chain(differences).collect();
        for what in now.difference(&self.0) {
            tell(what);
        }
        self.0 = now;
    }
}
