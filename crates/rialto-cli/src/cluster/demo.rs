//! `rialto cluster demo`: a cluster on this machine, in the foreground.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use rialto_cluster::control::{ControlError, EtcdStore};
use rialto_cluster::node::admin::{AdminRequest, Reached, ask};
use rialto_cluster::node::{ClusterFacts, FactsError, NodeFacts};

use super::control::{TlsArgs, connect};
use super::demo_file::{Choices, DemoFile};
use super::ending::Ending;
use super::failed::Failed;
use super::files;
use super::init::{Level2, NodeSpec, Plan, PromiseArgs, make};
use super::node_file::{Links, NodeFile};
use super::processes::{Process, end_all, end_other, find_program};
use super::say::say;
use super::shares::LOG_BYTES;
use super::view::{NodeState, View};
use crate::args::MemoryArgs;
use crate::output::tell;

/// How often processes are looked at.
const POLL: Duration = Duration::from_millis(200);
/// How long the beginning waits until all replicas are in sync, once all partitions serve.
const SYNC_WAIT: Duration = Duration::from_secs(30);
/// How long a node has to show that it runs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Run a cluster on this machine in the foreground, with an etcd of its own, until SIGTERM or SIGINT
///
/// Each node is a process. One that dies is not started again: `rialto cluster node --data DIR/NAME` starts it by hand.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The number of nodes [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: Option<u16>,
    /// The directory for all data of the demo; a demo that has run there before goes on with its data
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The number of partitions [default: 4 for each node]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// The number of replicas of each partition, the primary among them [default: 2, or 1 with one node]
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// How nodes talk to each other [default: plain-on-loopback]
    #[arg(long, value_enum)]
    links: Option<Links>,
    /// What happens to a commit at level 2 (standby) while its partition has one replica in sync [default: on-disk]
    #[arg(long, value_enum)]
    unprotected: Option<Level2>,
    #[command(flatten)]
    promise: PromiseArgs,
    /// The program etcd, by its name or path
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    etcd: PathBuf,
    /// The memory of all nodes together
    #[command(flatten)]
    memory: MemoryArgs,
    /// The bound on the logs of all nodes together, in bytes [default: 4 GiB for each]
    #[arg(long, value_name = "N")]
    log_bytes: Option<u64>,
}

/// Runs it.
pub fn run(args: &DemoArgs) -> Result<ExitCode, Failed> {
    files::make_directory(&args.data)?;
    let _lock = files::lock(&args.data.join("demo.lock"), "runs this demo")?;
    let (nodes, partitions) = (args.nodes, args.partitions);
    let choices = Choices {
        nodes,
        partitions,
        replicas: args.replicas,
        links: args.links,
        unprotected: args.unprotected,
        promise: args.promise,
    };
    let file = DemoFile::open(&args.data, choices)?;
    let Some(etcd) = find_program(&args.etcd)? else {
        return Err(Failed::usage(format_args!(
            "there is no program {}: install it (Debian: etcd-server), or give its path by --etcd",
            args.etcd.display()
        )));
    };
    args.memory.warn();
    let mut demo = Demo {
        data: &args.data,
        specs: file.specs(),
        file,
        ending: Ending::new()?,
        etcd: Vec::new(),
        nodes: Vec::new(),
        bounds: Default::default(),
    };
    let ran = demo.run(args, &etcd);
    demo.end();
    ran.map(|()| ExitCode::SUCCESS)
}

struct Demo<'a> {
    data: &'a Path,
    file: DemoFile,
    specs: Vec<NodeSpec>,
    ending: Ending,
    /// One process, once it runs.
    etcd: Vec<Process>,
    /// Those nodes that this process has started.
    nodes: Vec<Process>,
    /// The bounds on the memory and the logs of each node, in bytes.
    bounds: [String; 2],
}

/// Whether the demo goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    ToItsEnd,
}

impl Demo<'_> {
    /// Starts all of it, says so, and waits for the end.
    fn run(&mut self, args: &DemoArgs, etcd: &Path) -> Result<(), Failed> {
        self.start_etcd(etcd)?;
        let Some(store) = self.reach_etcd()? else { return Ok(()) };
        // Nodes may have left, and others have joined, since it was made.
        self.follow_members(&store)?;
        let count = self.specs.len() as u64;
        let [control, _] = self.file.etcd_urls();
        let plan = Plan {
            control: vec![control],
            prefix: "rialto/".to_owned(),
            control_tls: TlsArgs::none(),
            data: self.data.to_owned(),
            nodes: self.specs.clone(),
            partitions: self.file.partitions,
            replicas: self.file.replicas,
            links: self.file.links,
            unprotected: self.file.unprotected,
            promise_ms: self.file.promise_ms,
            restored: None,
        };
        make(&plan, &store)?;
        drop(store);
        let log_bytes = args.log_bytes.unwrap_or(LOG_BYTES.saturating_mul(count)) / count;
        self.bounds = [args.memory.bytes() / count, log_bytes].map(|bytes| bytes.to_string());
        self.start_nodes()?;
        if self.wait_until_all_serve()? == Goes::ToItsEnd {
            return Ok(());
        }
        say(format_args!("ready sql={} data={}", self.specs[0].sql, self.data.display()))?;
        while !self.ending.comes_within(POLL) {
            self.tell_ends();
        }
        Ok(())
    }

    /// Takes the nodes that the control store has, if it has a cluster already: those with a directory here.
    fn follow_members(&mut self, store: &EtcdStore) -> Result<(), Failed> {
        match ClusterFacts::read(store) {
            Ok(_) => {}
            Err(FactsError::NoCluster) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let nodes = NodeFacts::all(store)?;
        self.specs.retain(|spec| nodes.iter().any(|node| node.name == spec.name));
        for NodeFacts { name, address, sql, .. } in nodes {
            let is_here = NodeFile::find(&self.data.join(&name))?.is_some();
            if is_here && self.specs.iter().all(|spec| spec.name != name) {
                self.specs.push(NodeSpec { name, address, sql });
            }
        }
        Ok(())
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.data.join(format!("{name}.log"))
    }

    fn start_etcd(&mut self, program: &Path) -> Result<(), Failed> {
        let [client, peer] = self.file.etcd_urls();
        let directory = self.data.join("etcd");
        let cluster = format!("demo={peer}");
        let arguments: [(&str, &OsStr); 8] = [
            ("--name", "demo".as_ref()),
            ("--data-dir", directory.as_os_str()),
            ("--listen-client-urls", client.as_ref()),
            ("--advertise-client-urls", client.as_ref()),
            ("--listen-peer-urls", peer.as_ref()),
            ("--initial-advertise-peer-urls", peer.as_ref()),
            ("--initial-cluster", cluster.as_ref()),
            ("--initial-cluster-state", "new".as_ref()),
        ];
        let arguments: Vec<&OsStr> =
            arguments.iter().flat_map(|(name, value)| [name.as_ref(), *value]).collect();
        self.etcd.push(Process::start("etcd", program.as_os_str(), &arguments, &self.log_of("etcd"))?);
        Ok(())
    }

    /// Waits until etcd answers; none if the demo is to end.
    fn reach_etcd(&mut self) -> Result<Option<EtcdStore>, Failed> {
        let [client, _] = self.file.etcd_urls();
        loop {
            match connect(std::slice::from_ref(&client), "rialto/", None) {
                Ok(store) => return Ok(Some(store)),
                Err(ControlError::Unavailable(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(status) = self.etcd.iter_mut().find_map(Process::ended) {
                return Err(Failed::failing(format_args!(
                    "etcd has ended ({status}); its output is in {}",
                    self.log_of("etcd").display()
                )));
            }
            if self.ending.comes_within(POLL) {
                return Ok(None);
            }
        }
    }

    fn start_nodes(&mut self) -> Result<(), Failed> {
        let own = std::env::current_exe()
            .map_err(|error| Failed::failing(format_args!("this program's own path: {error}")))?;
        for spec in &self.specs {
            let directory = self.data.join(&spec.name);
            let reached = ask(&directory, &AdminRequest::Status, PATIENCE);
            if reached.map_err(|error| Failed::of_file(&directory, &error))? != Reached::Down {
                tell(format_args!("{} runs already", spec.name));
                continue;
            }
            let arguments = self.node_arguments(&spec.name);
            let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
            let log = self.log_of(&spec.name);
            self.nodes.push(Process::start(&spec.name, own.as_os_str(), &arguments, &log)?);
        }
        Ok(())
    }

    /// What this program is given to run a node.
    fn node_arguments(&self, name: &str) -> Vec<OsString> {
        let [memory_bytes, log_bytes] = &self.bounds;
        let mut arguments: Vec<OsString> = ["cluster", "node", "--data"].map(OsString::from).into();
        arguments.push(self.data.join(name).into());
        arguments.extend(["--memory-bytes", memory_bytes, "--log-bytes", log_bytes].map(OsString::from));
        arguments
    }

    /// Waits until all partitions serve, and then for some time until all their replicas are in sync.
    fn wait_until_all_serve(&mut self) -> Result<Goes, Failed> {
        let mut served = None;
        loop {
            let view = View::of(self.data)?;
            let all_serve = view.partitions.len() == self.file.partitions as usize
                && view.partitions.iter().all(|partition| partition.serves.is_some());
            let are_up = view.nodes.iter().all(|node| node.state == NodeState::Up);
            if all_serve && are_up {
                let since = *served.get_or_insert_with(Instant::now);
                let behind = view.partitions.iter().filter(|partition| {
                    let found = partition.configuration.as_ref();
                    found.is_none_or(|found| found.in_sync.len() < self.file.replicas as usize)
                });
                let behind: Vec<String> = behind.map(|partition| partition.id.to_string()).collect();
                if behind.is_empty() {
                    return Ok(Goes::On);
                }
                if since.elapsed() > SYNC_WAIT {
                    tell(format_args!("replicas of these partitions still catch up: {}", behind.join(", ")));
                    return Ok(Goes::On);
                }
            }
            if let Some((name, status)) = self.one_that_ended() {
                return Err(Failed::failing(format_args!(
                    "{name} has ended ({status}); its output is in {}",
                    self.log_of(&name).display()
                )));
            }
            if self.ending.comes_within(POLL) {
                return Ok(Goes::ToItsEnd);
            }
        }
    }

    fn one_that_ended(&mut self) -> Option<(String, ExitStatus)> {
        let mut processes = self.etcd.iter_mut().chain(&mut self.nodes);
        processes.find_map(|process| process.ended().map(|status| (process.name.clone(), status)))
    }

    /// Tells of each process that has ended.
    fn tell_ends(&mut self) {
        while let Some((name, status)) = self.one_that_ended() {
            match name.as_str() {
                "etcd" => tell(format_args!(
                    "etcd has ended ({status}), and is not started again: a partition serves as long as all its replicas in \
                     sync are alive. Its output is in {}",
                    self.log_of(&name).display()
                )),
                _ => tell(format_args!(
                    "{name} has ended ({status}), and is not started again; to start it: rialto {}",
                    self.node_arguments(&name).join(OsStr::new(" ")).display()
                )),
            }
        }
    }

    /// Ends all of it: the nodes, also those that have joined or were started again by hand, and then etcd.
    fn end(&mut self) {
        end_all(&mut self.nodes);
        for (directory, node) in NodeFile::all(self.data).unwrap_or_default() {
            let reached = ask(&directory, &AdminRequest::Status, PATIENCE);
            let pid = match reached {
                Ok(Reached::Answered { pid, .. }) => Some(pid),
                Ok(Reached::Silent { pid }) => pid,
                Ok(Reached::Down) | Err(_) => None,
            };
            if let Some(pid) = pid {
                end_other(&node.name, pid);
            }
        }
        end_all(&mut self.etcd);
    }
}
