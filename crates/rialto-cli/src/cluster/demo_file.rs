//! [`DemoFile`]: the file `demo.json` of a demo's directory.

use std::net::TcpListener;
use std::path::Path;

use rialto_cluster::node::PROMISE_MS_USUAL;
use rialto_cluster::protocol::replication::Unprotected;
use serde::{Deserialize, Serialize};

use super::failed::Failed;
use super::files::{self, Readers};
use super::init::{Level2, NodeSpec, PromiseArgs, sizes};
use super::node_file::Links;

/// The file's name.
const FILE: &str = "demo.json";
/// Ports are looked for here: below those that the system gives to outgoing connections, so that a demo that goes on
/// finds its own free.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// What was chosen when a demo was made, and its ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoFile {
    pub partitions: u32,
    pub replicas: u32,
    pub links: Links,
    /// A demo that was made before there was a choice has the first one.
    #[serde(default)]
    pub unprotected: Unprotected,
    /// How long a promise holds, in milliseconds. A demo that was made before there was a choice has the usual length.
    #[serde(default = "usual_promise")]
    pub promise_ms: u32,
    /// The demo's own etcd: the ports for its clients and its peers.
    pub etcd: [u16; 2],
    /// The nodes: the ports for other nodes and for clients.
    pub nodes: Vec<[u16; 2]>,
}

fn usual_promise() -> u32 {
    PROMISE_MS_USUAL
}

/// What the command line chooses.
#[derive(Debug, Clone, Copy)]
pub struct Choices {
    pub nodes: Option<u16>,
    pub partitions: Option<u32>,
    pub replicas: Option<u32>,
    pub links: Option<Links>,
    pub unprotected: Option<Level2>,
    pub promise: PromiseArgs,
}

impl DemoFile {
    /// The file in a demo's directory. It is made by the choices if there is none; else they have to agree with it.
    pub fn open(directory: &Path, choices: Choices) -> Result<DemoFile, Failed> {
        let path = directory.join(FILE);
        if let Some(text) = files::read(&path)? {
            let wrong =
                |what: &dyn std::fmt::Display| Failed::unusable(format_args!("{}: {what}", path.display()));
            let found: DemoFile = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
            if found.nodes.is_empty() {
                return Err(wrong(&"it has no nodes"));
            }
            return match choices.other_than(&found) {
                None => Ok(found),
                Some(what) => Err(wrong(&format_args!(
                    "the demo was made with {what}, which stays as it is; give another --data, or leave that option out"
                ))),
            };
        }
        let nodes = usize::from(choices.nodes.unwrap_or(3));
        let (partitions, replicas) = sizes(nodes, choices.partitions, choices.replicas);
        let mut ports = free_ports(2 * nodes + 2)?.into_iter();
        let mut pair = || [ports.next().expect("enough ports"), ports.next().expect("enough ports")];
        let (etcd, nodes) = (pair(), (0..nodes).map(|_| pair()).collect());
        let links = choices.links.unwrap_or(Links::PlainOnLoopback);
        let unprotected = choices.unprotected.map(Unprotected::from).unwrap_or_default();
        let promise_ms = choices.promise.chosen();
        let file = DemoFile { partitions, replicas, links, unprotected, promise_ms, etcd, nodes };
        let text = serde_json::to_string(&file).expect("the file has numbers");
        files::write(&path, &(text + "\n"), Readers::Owner)?;
        Ok(file)
    }

    /// The nodes.
    pub fn specs(&self) -> Vec<NodeSpec> {
        // With zeros in front the order of the names is that of the numbers.
        let width = (self.nodes.len() - 1).to_string().len();
        (0..)
            .zip(&self.nodes)
            .map(|(number, [links, sql]): (usize, _)| NodeSpec {
                name: format!("node{number:0width$}"),
                address: format!("127.0.0.1:{links}"),
                sql: format!("127.0.0.1:{sql}"),
            })
            .collect()
    }

    /// Where the demo's own etcd takes clients and peers.
    pub fn etcd_urls(&self) -> [String; 2] {
        self.etcd.map(|port| format!("http://127.0.0.1:{port}"))
    }
}

impl Choices {
    /// What a demo has otherwise than it is chosen.
    fn other_than(&self, found: &DemoFile) -> Option<String> {
        let nodes = found.nodes.len();
        if self.nodes.is_some_and(|chosen| usize::from(chosen) != nodes) {
            return Some(format!("--nodes {nodes}"));
        }
        if self.partitions.is_some_and(|chosen| chosen != found.partitions) {
            return Some(format!("--partitions {}", found.partitions));
        }
        if self.replicas.is_some_and(|chosen| chosen != found.replicas) {
            return Some(format!("--replicas {}", found.replicas));
        }
        if self.unprotected.is_some_and(|chosen| Unprotected::from(chosen) != found.unprotected) {
            return Some("another --unprotected".to_owned());
        }
        if !self.promise.is_left_out() && self.promise.chosen() != found.promise_ms {
            return Some(format!("--promise-ms {}", found.promise_ms));
        }
        let is_other = self.links.is_some_and(|chosen| chosen != found.links);
        is_other.then(|| "other --links".to_owned())
    }
}

/// Ports of the loopback address at which nothing listens, as many as are wanted.
fn free_ports(wanted: usize) -> Result<Vec<u16>, Failed> {
    // Demos that begin at the same time begin to look at different places.
    let begin = (std::process::id() * 64) as usize % PORTS.len();
    // All are held until the end, so that they differ.
    let found: Vec<(u16, TcpListener)> = PORTS
        .skip(begin)
        .chain(PORTS.take(begin))
        .filter_map(|port| Some((port, TcpListener::bind(("127.0.0.1", port)).ok()?)))
        .take(wanted)
        .collect();
    match found.len() == wanted {
        true => Ok(found.iter().map(|(port, _)| *port).collect()),
        false => Err(Failed::failing(format_args!(
            "127.0.0.1 does not have {wanted} free ports from {} to {}",
            PORTS.start,
            PORTS.end - 1
        ))),
    }
}
