//! [`Transactions`]: all transactions of a node.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rialto::Database;
use rialto_sql::partitions::{Branches, NodeCounts, Opening as SqlOpening, PartitionNumber, Partitions};

use super::coordinators::{Cancelled, Coordinators};
use super::directory::{Directory, Serves};
use super::opening;
use super::served::{ServedPartition, Unfinished};
use super::session::SessionTransaction;
use super::work::SqlWork;
use super::workers::Workers;
use crate::net::Class as LinkClass;
use crate::node::clock::NodeClock;
use crate::node::facts::NodeFacts;
use crate::node::packet::Packet;
use crate::node::replica::HostedReplica;
use crate::node::sending::Sending;
use crate::protocol::transactions::{Address, Class, Message, Sender, Start};
use crate::protocol::{NodeId, PartitionId};

/// How often time is told to the state machines.
const TICK: Duration = Duration::from_millis(10);
/// How often other nodes are told what runs and what is served here.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// All transactions of a node: those that it coordinates, and the partitions that it serves.
pub struct Transactions {
    me: NodeId,
    partitions: u32,
    clock: NodeClock,
    sending: Arc<Sending>,
    directory: Directory,
    coordinators: Coordinators,
    workers: Workers,
    served: RwLock<BTreeMap<PartitionId, Arc<ServedPartition>>>,
    replicas: RwLock<Vec<Weak<HostedReplica>>>,
    nodes: RwLock<Vec<NodeFacts>>,
    committed: Committed,
    is_closed: AtomicBool,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// How many transactions of sessions of this node were committed, by their partitions.
#[derive(Default)]
struct Committed {
    over_one: AtomicU64,
    over_several: AtomicU64,
}

impl Transactions {
    /// The transactions of a node that starts. The number of its start is kept in its directory.
    ///
    /// # Errors
    /// If the directory cannot be used, or no thread can start.
    pub fn start(
        me: NodeId,
        partitions: u32,
        directory: &Path,
        sending: Arc<Sending>,
    ) -> io::Result<Arc<Transactions>> {
        let start = next_start(directory)?;
        let transactions = Arc::new(Transactions {
            me,
            partitions,
            clock: NodeClock,
            sending,
            directory: Directory::default(),
            coordinators: Coordinators::new(me, start),
            workers: Workers::default(),
            served: RwLock::default(),
            replicas: RwLock::default(),
            nodes: RwLock::default(),
            committed: Committed::default(),
            is_closed: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let ticked = Arc::downgrade(&transactions);
        let tick = move || {
            let mut next_heartbeat = Instant::now();
            while let Some(node) = ticked.upgrade().filter(|node| !node.is_closed()) {
                node.tick();
                if Instant::now() >= next_heartbeat {
                    next_heartbeat = Instant::now() + HEARTBEAT;
                    node.heartbeat();
                }
                drop(node);
                std::thread::sleep(TICK);
            }
        };
        transactions.spawn("rialto-tick", tick)?;
        Ok(transactions)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Serves a replica's partition whenever it leads.
    ///
    /// # Errors
    /// If no thread can start.
    pub fn serve(self: &Arc<Transactions>, replica: &Arc<HostedReplica>) -> io::Result<()> {
        self.replicas.write().push(Arc::downgrade(replica));
        let (node, hosted) = (Arc::downgrade(self), Arc::downgrade(replica));
        let name = format!("rialto-serve-{}", replica.partition().0);
        self.spawn(&name, move || opening::serve(&node, &hosted))
    }

    /// The nodes of the cluster, this one among them.
    pub fn set_nodes(&self, nodes: Vec<NodeFacts>) {
        *self.nodes.write() = nodes;
    }

    /// Ends: no partition is served any more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for served in std::mem::take(&mut *self.served.write()).into_values() {
            served.end();
        }
        for coordinated in self.coordinators.all() {
            for partition in (0..self.partitions).map(PartitionId) {
                // Nothing is sent any more.
                let _ = coordinated.partition_gone(partition);
            }
        }
        for thread in self.threads.lock().drain(..) {
            // A panic there has told of itself.
            let _ = thread.join();
        }
        self.workers.close();
    }

    /// What an operator sees of the partitions that are served here.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let now = self.now();
        self.served.read().values().map(|served| served.unfinished(now)).collect()
    }

    /// How many transactions are coordinated here at this moment.
    pub fn coordinated(&self) -> usize {
        self.coordinators.len()
    }

    /// What was counted since the start.
    pub fn counts(&self) -> NodeCounts {
        NodeCounts {
            start: self.coordinators.start().0,
            messages_sent: self.sending.messages_sent(),
            over_one: self.committed.over_one.load(Ordering::Relaxed),
            over_several: self.committed.over_several.load(Ordering::Relaxed),
        }
    }

    /// The partitions, for SQL sessions.
    pub fn partitions(self: &Arc<Transactions>) -> Arc<dyn Partitions> {
        Arc::new(ClusterPartitions(self.clone()))
    }

    // What comes from other nodes.

    /// A message about a transaction has come.
    pub fn received(&self, message: Message<SqlWork>) {
        self.deliver(message);
    }

    /// A node says that it serves a partition.
    pub fn heard(&self, serves: Serves) {
        if self.directory.hear(serves) {
            // Branches of earlier openings are gone.
            self.partition_gone(serves.partition);
        }
    }

    /// A session on another node wants a branch to end what it runs.
    pub fn cancelled(&self, cancelled: Cancelled) {
        if let Some(served) = self.find_served(cancelled.partition) {
            served.cancel(cancelled.transaction);
        }
    }

    /// The connection from a node has ended.
    pub fn connection_ended(&self, node: NodeId) {
        let served: Vec<_> = self.served.read().values().cloned().collect();
        for served in served {
            served.connection_ended(node);
        }
        for serves in self.directory.of_node(node) {
            // It says so again if only the connection has ended. Until then statements wait for a primary.
            self.directory.forget(serves);
            self.partition_gone(serves.partition);
        }
    }

    /// A connection to a node has begun: it is told what is served here.
    pub fn connection_began(&self, node: NodeId) {
        for served in self.served.read().values() {
            let _ = self.sending.send(node, LinkClass::Protocol, &Packet::Serves(served.serves()), &[]);
        }
    }

    fn partition_gone(&self, partition: PartitionId) {
        for coordinated in self.coordinators.all() {
            let messages = coordinated.partition_gone(partition);
            self.deliver_all(messages);
        }
    }

    // For the parts.

    pub(super) fn me(&self) -> NodeId {
        self.me
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now().0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A transaction of a session was committed in this many partitions.
    pub(super) fn has_committed(&self, partitions: usize) {
        let count = match partitions {
            0 | 1 => &self.committed.over_one,
            _ => &self.committed.over_several,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn coordinators(&self) -> &Coordinators {
        &self.coordinators
    }

    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    fn find_served(&self, partition: PartitionId) -> Option<Arc<ServedPartition>> {
        self.served.read().get(&partition).cloned()
    }

    /// A partition is served here from now on.
    pub(super) fn begin_to_serve(&self, served: &Arc<ServedPartition>) {
        let serves = served.serves();
        self.served.write().insert(serves.partition, served.clone());
        self.heard(serves);
        for node in self.others() {
            let _ = self.sending.send(node, LinkClass::Protocol, &Packet::Serves(serves), &[]);
        }
    }

    /// It is not any more.
    pub(super) fn end_to_serve(&self, served: &Arc<ServedPartition>) {
        let serves = served.serves();
        let mut all = self.served.write();
        if all.get(&serves.partition).is_some_and(|now| now.serves() == serves) {
            all.remove(&serves.partition);
        }
        drop(all);
        self.directory.forget(serves);
        self.partition_gone(serves.partition);
    }

    /// Delivers messages, here or on other nodes.
    pub(super) fn deliver_all(&self, messages: Vec<Message<SqlWork>>) {
        for message in messages {
            if let Some(message) = self.send_away(message) {
                self.deliver(message);
            }
        }
    }

    /// Sends a message to another node. Gives it back if it is for this one.
    pub(super) fn send_away(&self, message: Message<SqlWork>) -> Option<Message<SqlWork>> {
        let node = match message.to {
            Address::Coordinator(node) => node,
            Address::Partition(partition) => match self.directory.find(partition) {
                Some(serves) => serves.node,
                // It is lost.
                None => return None,
            },
        };
        if node == self.me {
            return Some(message);
        }
        let class = match message.class() {
            Class::Request => LinkClass::Work,
            Class::Reserved => LinkClass::Protocol,
        };
        let to = message.to;
        let packet = Packet::Transaction(Box::new(message));
        let sent = self.sending.send(node, class, &packet, &[]);
        if let (Err(_), Packet::Transaction(message), Address::Partition(partition)) = (sent, packet, to)
            && class == LinkClass::Work
            && let Some(coordinated) = self.coordinators.find(message.transaction)
        {
            // The request was not taken: its transaction cannot go on.
            let messages = coordinated.partition_gone(partition);
            self.deliver_all(messages);
        }
        None
    }

    /// Takes a message that is for this node; another one is sent on.
    pub(super) fn deliver(&self, message: Message<SqlWork>) {
        match message.to {
            Address::Coordinator(node) if node == self.me => {
                if let Some(coordinated) = self.coordinators.find(message.transaction) {
                    let messages = coordinated.receive(message);
                    self.deliver_all(messages);
                }
            }
            Address::Partition(partition) => match self.find_served(partition) {
                Some(served) => served.receive(message),
                None => {
                    // From a session of this node it is sent on; one of another node's is not: the two could go on for ever.
                    let is_mine = matches!(message.from, Sender::Coordinator(node) if node == self.me)
                        || matches!(message.from, Sender::Partition(from, _) if self.find_served(from).is_some());
                    if is_mine {
                        let _ = self.send_away(message);
                    }
                }
            },
            Address::Coordinator(_) => {}
        }
    }

    /// Has a branch end what it runs.
    pub(super) fn cancel(&self, node: NodeId, cancelled: Cancelled) {
        if node == self.me {
            return self.cancelled(cancelled);
        }
        let _ = self.sending.send(node, LinkClass::Protocol, &Packet::Cancel(cancelled), &[]);
    }

    fn others(&self) -> Vec<NodeId> {
        let nodes = self.nodes.read();
        nodes.iter().map(|node| NodeId(node.node)).filter(|node| *node != self.me).collect()
    }

    fn tick(&self) {
        let served: Vec<_> = self.served.read().values().cloned().collect();
        served.iter().for_each(ServedPartition::tick);
        let now = self.now();
        for coordinated in self.coordinators.all() {
            let messages = coordinated.tick(now);
            self.deliver_all(messages);
        }
    }

    fn heartbeat(&self) {
        for partition in (0..self.partitions).map(PartitionId) {
            let message = Message {
                from: Sender::Coordinator(self.me),
                to: Address::Partition(partition),
                transaction: self.coordinators.no_transaction(),
                body: self.coordinators.heartbeat(),
            };
            if let Some(message) = self.send_away(message) {
                self.deliver(message);
            }
        }
        let serves: Vec<_> = self.served.read().values().map(|served| served.serves()).collect();
        for node in self.others() {
            for serves in &serves {
                let _ = self.sending.send(node, LinkClass::Protocol, &Packet::Serves(*serves), &[]);
            }
        }
    }

    /// A database of this node that has all definitions.
    fn catalog(&self) -> Option<Database> {
        let replicas: Vec<_> = self.replicas.read().iter().filter_map(Weak::upgrade).collect();
        // Definitions come to a primary first.
        let leads = replicas.iter().find_map(|replica| replica.lead().map(|lead| lead.database().clone()));
        leads.or_else(|| replicas.iter().find_map(|replica| replica.readable()))
    }
}

/// The partitions, as SQL sessions see them.
struct ClusterPartitions(Arc<Transactions>);

impl Partitions for ClusterPartitions {
    fn count(&self) -> u32 {
        self.0.partitions
    }

    fn nearest(&self) -> PartitionNumber {
        let here = self.0.served.read().keys().next().copied();
        PartitionNumber(here.unwrap_or(PartitionId(0)).0)
    }

    fn catalog(&self) -> Database {
        loop {
            if let Some(db) = self.0.catalog() {
                return db;
            }
            std::thread::sleep(TICK);
        }
    }

    fn nodes(&self) -> Vec<String> {
        self.0.nodes.read().iter().map(|node| node.sql.clone()).collect()
    }

    fn counts(&self) -> Option<NodeCounts> {
        Some(self.0.counts())
    }

    fn begin(&self, opening: &SqlOpening) -> rialto_sql::Result<Box<dyn Branches>> {
        Ok(Box::new(SessionTransaction::new(self.0.clone(), opening.clone())))
    }
}

/// The number of this start of the node: one more than the last one, in a file.
fn next_start(directory: &Path) -> io::Result<Start> {
    use std::io::Write;
    std::fs::create_dir_all(directory)?;
    let path = directory.join("starts");
    let last: u64 = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: expected a number", path.display()))
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "{}", last + 1)?;
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    std::fs::File::open(directory)?.sync_all()?;
    Ok(Start(last + 1))
}
