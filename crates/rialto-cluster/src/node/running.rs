//! [`Node`]: a process that keeps replicas of partitions.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rialto::{Options, fault_injection};

use super::admin::Relay;
use super::backup::{BackupStatus, Backups};
use super::calls::Procedures;
use super::claim::claim;
use super::compare::{ComparisonStatus, Comparisons, Difference, LastComparison};
use super::facts::{ClusterFacts, FactsError, NodeFacts, Standing};
use super::members::{Keeper, Placement, give_up, is_left};
use super::pace::Pace;
use super::packet::Packet;
use super::replica::{
    HostedReplica, NewPartition, ReplicaOptions, read_configuration, read_configurations, replica_directory,
};
use super::sending::Sending;
use super::transactions::Transactions;
use super::transfer::{Pull, Source, Transfers};
use crate::control::{ControlError, ControlStore};
use crate::net::{ConnectionId, Direction, Event, Handler, Links, Nagle, OpenError, Security};
use crate::protocol::replication::{Known, ReplicationOptions};
use crate::protocol::{Epoch, NodeId, PartitionId};

/// How often a node looks at the control store for other nodes and for replicas that it is to have.
const LOOK_AROUND: Duration = Duration::from_millis(1000);
/// How long a configuration without a replica stands before the replica's directory is deleted: replicas in sync that are
/// dead are dropped from it meanwhile.
const SPARE_FOR: Duration = Duration::from_secs(10);

/// How a node is run.
#[derive(Clone)]
pub struct NodeOptions {
    /// The node's name, which the control store has.
    pub name: String,
    /// Its directory: each replica has one in it.
    pub directory: PathBuf,
    /// Another directory has run as this node, and is lost for good.
    pub takes_over: bool,
    /// The options of each replica's database.
    pub database: Options,
    /// The times and bounds of replication, but for two that the cluster has ([`ClusterFacts::replication`]): the
    /// length of a promise, and what becomes of level 2 in unprotected partitions.
    pub replication: ReplicationOptions,
    /// How long the node of a replica may be away before the replica is made again on another node, in partitions that
    /// this node leads. None: for ever.
    pub repair_after: Option<Duration>,
    /// After so long a move whose new replica gets no further is taken back; after a fifth of it, one whose new replica is not
    /// heard.
    pub move_patience: Duration,
    /// The bytes that this node sends each second of the copies that replicas on other nodes take, all of them together. None:
    /// no bound. A checkpoint of a partition waits while it is copied, so a slow copy needs room in the log.
    pub copy_bytes_per_second: Option<NonZeroU64>,
    /// How often the replicas of each partition that this node leads are compared with each other, in the background.
    /// None: only when an operator asks for it.
    pub compare_every: Option<Duration>,
    /// How connections to other nodes are protected.
    pub security: Security,
    /// How these connections differ from the usual ones.
    pub links: LinkOptions,
    /// Makes what each new partition has from the beginning.
    pub make: NewPartition,
    /// The procedures that can be called. All nodes should have the same ones.
    pub procedures: Procedures,
}

/// How a node's connections differ from the usual ones; by default in nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// Where the node takes connections, if that is not the address that the control store has of it: behind a proxy, say,
    /// which the other nodes connect to.
    pub listen: Option<SocketAddr>,
    /// Whether the kernel holds small messages back. Other nodes choose for what they send themselves.
    pub nagle: Nagle,
}

impl LinkOptions {
    /// The options of the connections of a node, which the others reach at this address.
    fn complete(
        self,
        cluster: u128,
        (node, name): (NodeId, &str),
        address: SocketAddr,
        security: Security,
    ) -> crate::net::Options {
        let listen = self.listen.unwrap_or(address);
        crate::net::Options {
            nagle: self.nagle,
            ..crate::net::Options::new(cluster, node, name, listen, security)
        }
    }
}

/// Why a node does not run.
#[derive(Debug)]
pub enum NodeError {
    /// The control store does not give what it needs.
    Facts(FactsError),
    /// The cluster has no node of this name.
    NotANode {
        /// The name.
        name: String,
        /// The names of those that there are.
        nodes: Vec<String>,
    },
    /// Its address, as the control store has it, is none.
    Address {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// Its directory is not the one of the node, in words.
    Directory(String),
    /// Its links cannot be opened.
    Links(OpenError),
    /// A directory cannot be used, or no thread can start.
    Io(io::Error),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Facts(error) => error.fmt(f),
            NodeError::NotANode { name, nodes } => {
                write!(f, "the cluster has no node {name}; it has {}", nodes.join(", "))
            }
            NodeError::Address { address, error } => write!(f, "the address {address}: {error}"),
            NodeError::Directory(why) => f.write_str(why),
            NodeError::Links(error) => error.fmt(f),
            NodeError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<FactsError> for NodeError {
    fn from(error: FactsError) -> NodeError {
        NodeError::Facts(error)
    }
}

impl From<io::Error> for NodeError {
    fn from(error: io::Error) -> NodeError {
        NodeError::Io(error)
    }
}

/// A node of a cluster, while it runs.
pub struct Node {
    parts: Arc<Parts>,
    links: Option<Arc<Links>>,
    looking: Option<JoinHandle<()>>,
    comparing: Option<JoinHandle<()>>,
}

/// What the threads of a node share.
pub(super) struct Parts {
    pub me: NodeId,
    pub facts: ClusterFacts,
    pub options: NodeOptions,
    pub store: Arc<dyn ControlStore>,
    pub sending: Arc<Sending>,
    pub transfers: Arc<Transfers>,
    pub transactions: Arc<Transactions>,
    pub backups: Backups,
    pub relay: Relay,
    pub comparisons: Comparisons,
    replicas: RwLock<BTreeMap<PartitionId, Arc<HostedReplica>>>,
    /// Replicas that are being closed, each on a thread of its own: a copy may have to end.
    closings: Mutex<BTreeMap<PartitionId, JoinHandle<()>>>,
    /// Directories that may be deleted once this has stood: under which configuration, and since when.
    spare: Mutex<BTreeMap<PartitionId, (Epoch, Instant)>>,
    /// The nodes, as the control store had them last.
    nodes: RwLock<Vec<NodeFacts>>,
    /// Why a replica that it is to have is not there.
    trouble: Mutex<Option<String>>,
    is_closed: Mutex<bool>,
    closing: Condvar,
}

impl Node {
    /// Runs a node: opens its replicas and its links. They find the other nodes in the background.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn open(mut options: NodeOptions, store: Arc<dyn ControlStore>) -> Result<Node, NodeError> {
        let facts = ClusterFacts::read(&*store)?;
        options.replication = facts.replication(options.replication);
        let nodes = NodeFacts::all(&*store)?;
        let Some(me) = nodes.iter().find(|node| node.name == options.name) else {
            let nodes = nodes.into_iter().map(|node| node.name).collect();
            return Err(NodeError::NotANode { name: options.name, nodes });
        };
        let known = read_configurations(&*store).map_err(FactsError::from)?.0;
        let has_place = known.values().any(|known| known.configuration.has(NodeId(me.node)));
        claim(&*store, me, &options.directory, has_place, options.takes_over)?;
        let (me, my_name, address) = (NodeId(me.node), me.name.clone(), me.address.clone());
        let address = resolve(&address).map_err(|error| NodeError::Address { address, error })?;
        let number = facts.number().expect("facts that were read have a number");
        let sending = Arc::new(Sending::default());
        let (security, link_options) = (options.security.clone(), options.links);
        let transactions =
            Transactions::start(me, &facts, &options.directory, sending.clone(), options.procedures.clone())?;
        let pace = Pace::new(options.copy_bytes_per_second);
        let parts = Arc::new(Parts {
            me,
            facts,
            options,
            store,
            transfers: Arc::new(Transfers::new(sending.clone(), pace)),
            transactions,
            backups: Backups::default(),
            relay: Relay::new(sending.clone()),
            comparisons: Comparisons::default(),
            sending,
            replicas: RwLock::default(),
            closings: Mutex::default(),
            spare: Mutex::default(),
            nodes: RwLock::default(),
            trouble: Mutex::default(),
            is_closed: Mutex::new(false),
            closing: Condvar::new(),
        });
        let link_options = link_options.complete(number, (me, &my_name), address, security);
        let handler: Arc<dyn Handler> = Arc::new(Receiving(parts.clone()));
        let links = Arc::new(Links::open(link_options, handler).map_err(NodeError::Links)?);
        parts.sending.open(&links);
        let mut node =
            Node { parts: parts.clone(), links: Some(links.clone()), looking: None, comparing: None };
        parts.see(&links, nodes)?;
        // What fails is tried again, and told meanwhile.
        if let Ok((known, _)) = read_configurations(&*parts.store) {
            *parts.trouble.lock() = parts.host_replicas(&known).err().map(|error| error.to_string());
        }
        let compared = parts.clone();
        let compare = move || compared.comparisons.run(&compared, compared.options.compare_every);
        node.comparing = Some(std::thread::Builder::new().name("rialto-compare".to_owned()).spawn(compare)?);
        let mut keeper = Keeper::new(me, parts.options.repair_after, parts.options.move_patience);
        let looks = Arc::downgrade(&links);
        let look = move || {
            while !parts.closes_within(LOOK_AROUND) {
                let Some(links) = looks.upgrade() else { return };
                parts.look_around(&links, &mut keeper);
            }
        };
        node.looking = Some(std::thread::Builder::new().name("rialto-look".to_owned()).spawn(look)?);
        Ok(node)
    }

    /// This node's number.
    pub fn id(&self) -> NodeId {
        self.parts.me
    }

    /// The cluster.
    pub fn facts(&self) -> &ClusterFacts {
        &self.parts.facts
    }

    /// The nodes of the cluster, as they were seen last.
    pub fn nodes(&self) -> Vec<NodeFacts> {
        self.parts.nodes.read().clone()
    }

    /// This node's replica of a partition, if it has one.
    pub fn replica(&self, partition: PartitionId) -> Option<Arc<HostedReplica>> {
        self.parts.replica(partition)
    }

    /// All replicas of this node.
    pub fn replicas(&self) -> Vec<Arc<HostedReplica>> {
        self.parts.replicas.read().values().cloned().collect()
    }

    /// The transactions that this node coordinates, and those of the partitions that it serves.
    pub fn transactions(&self) -> &Arc<Transactions> {
        &self.parts.transactions
    }

    /// Begins to take a backup of the whole cluster to a directory of this machine, which is made, or is empty. It
    /// goes on in the background; [`Node::backup_status`] says how far it is. Gives the backup's number, as its manifest
    /// has it.
    ///
    /// # Errors
    /// In words: another one is being taken here, or no thread can start.
    pub fn begin_backup(&self, to: &Path) -> Result<String, String> {
        Backups::begin(&self.parts, to)
    }

    /// The progress of the last backup that was begun here.
    pub fn backup_status(&self) -> BackupStatus {
        self.parts.backups.status()
    }

    /// What operators ask through other nodes.
    pub(super) fn relay(&self) -> &Relay {
        &self.parts.relay
    }

    /// Begins to compare the replicas of each partition that this node leads. It goes on in the background;
    /// [`Node::comparison_status`] says how far it is. Gives the comparison's number.
    ///
    /// # Errors
    /// In words: another one runs here.
    pub fn begin_comparison(&self) -> Result<u64, String> {
        self.parts.comparisons.begin()
    }

    /// The progress of the last comparison that was begun here.
    pub fn comparison_status(&self) -> ComparisonStatus {
        self.parts.comparisons.status()
    }

    /// The last comparison of each partition that this node leads.
    pub fn last_comparisons(&self) -> Vec<LastComparison> {
        self.parts.comparisons.last()
    }

    /// What differs in the partitions that this node leads, as comparisons have found it, the newest last.
    pub fn differences(&self) -> Vec<Difference> {
        self.parts.comparisons.differences()
    }

    /// Why a replica that this node is to have is not there, if so.
    pub fn trouble(&self) -> Option<String> {
        self.parts.trouble.lock().clone()
    }

    /// The connections with other nodes.
    ///
    /// # Panics
    /// Once the node is closed, which takes it.
    pub fn links(&self) -> &Links {
        self.links.as_ref().expect("a node that runs has links")
    }

    /// Ends the node: its replicas, and its links. Other nodes take over what it led once its promises have run out.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        *self.parts.is_closed.lock() = true;
        self.parts.closing.notify_all();
        self.parts.transfers.close();
        self.parts.comparisons.close();
        self.parts.transactions.stop();
        for thread in [self.looking.take(), self.comparing.take()].into_iter().flatten() {
            // A panic there has told of itself.
            let _ = thread.join();
        }
        let replicas = std::mem::take(&mut *self.parts.replicas.write());
        for replica in replicas.values() {
            replica.close();
        }
        for closing in std::mem::take(&mut *self.parts.closings.lock()).into_values() {
            // A panic there has told of itself.
            let _ = closing.join();
        }
        self.parts.transactions.close();
        self.links = None;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

fn resolve(address: &str) -> io::Result<std::net::SocketAddr> {
    use std::net::ToSocketAddrs;
    let none = || io::Error::other("it is no address of this machine: expected host:port");
    address.to_socket_addrs()?.next().ok_or_else(none)
}

impl Parts {
    pub fn replica(&self, partition: PartitionId) -> Option<Arc<HostedReplica>> {
        self.replicas.read().get(&partition).cloned()
    }

    /// All replicas of the node.
    pub fn replicas(&self) -> Vec<Arc<HostedReplica>> {
        self.replicas.read().values().cloned().collect()
    }

    /// The name of a node.
    pub fn name_of(&self, node: NodeId) -> String {
        let nodes = self.nodes.read();
        let found = nodes.iter().find(|facts| facts.node == node.0);
        found.map_or_else(|| node.to_string(), |facts| facts.name.clone())
    }

    fn closes_within(&self, time: Duration) -> bool {
        let mut is_closed = self.is_closed.lock();
        if !*is_closed {
            self.closing.wait_for(&mut is_closed, time);
        }
        *is_closed
    }

    /// Looks at the control store for other nodes, for replicas that this node is to have, and for moves.
    fn look_around(&self, links: &Links, keeper: &mut Keeper) {
        // While the store is away everything stays as it is.
        let store = &*self.store;
        let mut trouble = Vec::new();
        let (known, unreadable) = match read_configurations(store) {
            Ok(read) => read,
            Err(ControlError::Unavailable(_)) => return,
            Err(error) => {
                *self.trouble.lock() = Some(error.to_string());
                return;
            }
        };
        let (nodes, all) = match NodeFacts::with_left(store) {
            Ok(all) => {
                // A node that has left has to be reached as long as a configuration names it.
                let is_named =
                    |node: &NodeFacts| known.values().any(|known| known.configuration.has(NodeId(node.node)));
                let is_there = |node: &&NodeFacts| node.standing != Standing::Left || is_named(node);
                (all.iter().filter(is_there).cloned().collect(), all)
            }
            Err(FactsError::Store(ControlError::Unavailable(_))) => return,
            // Those that were seen last stay.
            Err(error) => {
                trouble.push(error.to_string());
                let nodes = self.nodes.read().clone();
                (nodes.clone(), nodes)
            }
        };
        // A node goes only if the list says that it has left: a store that was restored may not know it yet.
        let mut nodes: Vec<NodeFacts> = nodes;
        for missing in self.nodes.read().iter() {
            let is_missing = all.iter().all(|node| node.node != missing.node);
            if is_missing && !fault_injection::is_on("list-of-a-restored-store") {
                trouble.push(format!(
                    "the control store does not have the node {} any more, which has not left: was it restored? To put it there \
                     again: rialto cluster join",
                    missing.name
                ));
                nodes.push(missing.clone());
            }
        }
        nodes.sort_unstable_by_key(|node| node.node);
        trouble.extend(unreadable);
        let has_left = all.iter().any(|node| node.node == self.me.0 && node.standing == Standing::Left);
        let seen = self.see(links, nodes).and_then(|()| self.host_replicas(&known));
        // A directory that cannot be used, or threads that cannot start, may be another time.
        trouble.extend(seen.err().map(|error| error.to_string()));
        trouble.extend(has_left.then(|| "this node has left the cluster: end it".to_owned()));
        match Placement::with(store, &self.facts, all, known) {
            Ok(mut placement) => {
                let replicas: Vec<_> = self.replicas.read().values().cloned().collect();
                // What the store does not take now is tried again.
                let _ = keeper.look(store, &mut placement, &replicas);
                trouble.extend(placement.moves.unreadable().chain(keeper.trouble()).cloned());
            }
            Err(ControlError::Unavailable(_)) => {}
            Err(error) => trouble.push(error.to_string()),
        }
        *self.trouble.lock() = (!trouble.is_empty()).then(|| trouble.join("; "));
    }

    fn see(&self, links: &Links, nodes: Vec<NodeFacts>) -> io::Result<()> {
        if *self.nodes.read() == nodes {
            return Ok(());
        }
        let members: Vec<_> = nodes.iter().map(NodeFacts::link_member).collect();
        links.set_members(&members)?;
        self.transactions.set_nodes(nodes.clone());
        *self.nodes.write() = nodes;
        Ok(())
    }

    /// Opens the replicas that this node is to have, and gives up those that it is to have no more. Gives the first error,
    /// after all were tried.
    fn host_replicas(&self, known: &BTreeMap<PartitionId, Known>) -> io::Result<()> {
        let mut hosted = Ok(());
        for partition in self.facts.partitions() {
            if *self.is_closed.lock() {
                break;
            }
            let Some(known) = known.get(&partition) else { continue };
            if self.is_closing(partition) {
                continue;
            }
            let is_here = known.configuration.nodes().any(|node| node == self.me);
            let has_ended = self.replica(partition).is_some_and(|replica| replica.has_ended());
            if has_ended {
                self.replicas.write().remove(&partition);
            }
            if is_here && self.replica(partition).is_none() {
                hosted = hosted.and(self.host(partition));
            } else if !is_here {
                hosted = hosted.and(self.give_up(partition));
            }
        }
        hosted
    }

    fn directory_of(&self, partition: PartitionId) -> PathBuf {
        replica_directory(&self.options.directory, partition)
    }

    /// Closes a replica that has itself accepted a configuration without it, and deletes its directory.
    fn give_up(&self, partition: PartitionId) -> io::Result<()> {
        if let Some(replica) = self.replica(partition) {
            if !replica.is_removed() {
                return Ok(());
            }
            self.replicas.write().remove(&partition);
            // What it copies is not needed any more.
            self.transfers.end_pulls_of(partition);
            let close = move || replica.close();
            let closing = std::thread::Builder::new().name("rialto-closing".to_owned()).spawn(close)?;
            self.closings.lock().insert(partition, closing);
            return Ok(());
        }
        let directory = self.directory_of(partition);
        if !is_left(&directory)? {
            return Ok(());
        }
        // Read once nothing is acknowledged any more.
        let known = read_configuration(&*self.store, partition).map_err(io::Error::other)?;
        let Some(known) = known else { return Ok(()) };
        if self.has_stood(partition, known.configuration.epoch) {
            give_up(&directory, self.me, &known, self.facts.replicas)?;
        }
        Ok(())
    }

    /// Whether a replica that was removed is still being closed.
    fn is_closing(&self, partition: PartitionId) -> bool {
        let mut closings = self.closings.lock();
        let is_closing = closings.get(&partition).is_some_and(|closing| !closing.is_finished());
        if !is_closing {
            closings.remove(&partition);
        }
        is_closing
    }

    /// Whether a configuration without this node has stood for long enough.
    fn has_stood(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let mut spare = self.spare.lock();
        let (of, since) = spare.entry(partition).or_insert_with(|| (epoch, Instant::now()));
        if *of != epoch {
            (*of, *since) = (epoch, Instant::now());
        }
        since.elapsed() >= SPARE_FOR
    }

    fn host(&self, partition: PartitionId) -> io::Result<()> {
        let options = ReplicaOptions {
            directory: self.directory_of(partition),
            database: self.options.database.clone(),
            replication: self.options.replication,
            make: self.options.make.clone(),
        };
        let (store, sending, transfers) = (self.store.clone(), self.sending.clone(), self.transfers.clone());
        let replica = HostedReplica::open(partition, self.me, options, store, sending, transfers)?;
        let replica = Arc::new(replica);
        self.transactions.serve(&replica)?;
        self.replicas.write().insert(partition, replica);
        Ok(())
    }

    fn wanted(self: &Arc<Parts>, by: NodeId, pull: Pull) {
        let partition = pull.source.partition();
        let (replica, parts) = (self.replica(partition), self.clone());
        self.transfers.wanted(by, pull, move |pushing| {
            let replica = replica.ok_or("the node has no replica of this partition")?;
            match pull.source {
                Source::Copy(_) => replica.push_copy(by, pushing),
                Source::LoadFile { number, .. } => replica.push_load_file(number, pushing),
                Source::Backup { backup, opening, .. } => {
                    Backups::write(&parts, by, (backup, partition, opening), pushing)
                }
            }
        });
    }
}

/// What comes from other nodes.
struct Receiving(Arc<Parts>);

impl Handler for Receiving {
    fn message(&self, from: NodeId, _connection: ConnectionId, payload: &[u8]) {
        // Bytes that are no packet come from a node of another version, and are dropped.
        let Ok((packet, beside)) = Packet::from_bytes(payload) else { return };
        let parts = &self.0;
        match packet {
            Packet::Replication(envelope) if envelope.from.node == from => {
                if let Some(replica) = parts.replica(envelope.partition) {
                    replica.received(envelope, beside);
                }
            }
            // The sender is another one than it says.
            Packet::Replication(_) => {}
            Packet::Pull(pull) => parts.wanted(from, pull),
            Packet::Piece(piece) => parts.transfers.came(from, piece, beside),
            Packet::Transaction(message, riders) => parts.transactions.received(*message, riders),
            Packet::Serves(serves) if serves.node == from => parts.transactions.heard(serves),
            Packet::Serves(_) => {}
            Packet::Cancel(cancelled) => parts.transactions.cancelled(cancelled),
            Packet::Backup(message) => parts.backups.received(from, message),
            Packet::Relay(message) => parts.relay.received(from, message, beside),
            Packet::Compared(answer) => parts.comparisons.received(from, answer),
        }
    }

    fn event(&self, event: Event) {
        match event {
            Event::Began { peer, direction: Direction::Outgoing, .. } => {
                self.0.transactions.connection_began(peer);
            }
            Event::Ended { peer, .. } => {
                self.0.transfers.cut(peer);
                self.0.transactions.connection_ended(peer);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_listens_and_sends_as_it_is_told() {
        let [known, own]: [SocketAddr; 2] = ["127.0.0.1:7", "127.0.0.1:8"].map(|text| text.parse().unwrap());
        let complete =
            |links: LinkOptions| links.complete(1, (NodeId(0), "a"), known, Security::PlainOnLoopback);
        let usual = complete(LinkOptions::default());
        assert_eq!((usual.listen, usual.nagle), (known, Nagle::Off));
        let other = complete(LinkOptions { listen: Some(own), nagle: Nagle::On });
        assert_eq!((other.listen, other.nagle), (own, Nagle::On));
    }
}
