//! [`Transactions`]: all transactions of a node.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rialto::{Database, fault_injection};
use rialto_sql::partitions::{
    Branches, CancelBranches, NodeCounts, Opening as SqlOpening, PartitionNumber, Partitions, Positions,
    ReplicaReads, Written,
};

use super::branch::Branch;
use super::coordinators::{Cancelled, Coordinators};
use super::counts::{Counters, TransactionCounts};
use super::definitions;
use super::directory::{Directory, Serves};
use super::opening;
use super::positions;
use super::reading::ReadingTransaction;
use super::served::{DecisionStage, NotDecided, ServedPartition, Unfinished};
use super::session::SessionTransaction;
use super::waiting::Waiting;
use super::work::{SqlWork, too_long_reply};
use super::workers::{Job, Workers};
use crate::net::{Class as LinkClass, SendError};
use crate::node::calls::Procedures;
use crate::node::clock::NodeClock;
use crate::node::facts::{ClusterFacts, NodeFacts};
use crate::node::packet::Packet;
use crate::node::replica::HostedReplica;
use crate::node::sending::Sending;
use crate::protocol::replication::Unprotected;
use crate::protocol::transactions::{
    Act, Address, Body, Class, Decision, Message, Opening, Outcome, Sender, Start, TransactionId,
};
use crate::protocol::{NodeId, PartitionId};

/// How often time is told to the state machines.
const TICK: Duration = Duration::from_millis(10);
/// How long a request waits for room on its way.
const ROOM_WITHIN: Duration = Duration::from_secs(10);
/// How long a session waits for a replica of its node that has the definitions.
const CATALOG_WITHIN: Duration = Duration::from_secs(20);
/// By this factor the protocol's clock is slower than the node's. The protocol's times are those of a network whose nodes
/// answer within milliseconds. On a machine whose threads wait for a processor, or whose disk takes its time, a branch would
/// be given up while its vote is on the way.
const PROTOCOL_PACE: u32 = 8;
/// How often other nodes are told what runs and what is served here.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// All transactions of a node: those that it coordinates, and the partitions that it serves.
pub struct Transactions {
    me: NodeId,
    /// The cluster's number.
    cluster: String,
    partitions: u32,
    unprotected: Unprotected,
    clock: NodeClock,
    sending: Arc<Sending>,
    directory: Directory,
    coordinators: Coordinators,
    workers: Workers,
    served: RwLock<BTreeMap<PartitionId, Arc<ServedPartition>>>,
    replicas: RwLock<Vec<Weak<HostedReplica>>>,
    nodes: RwLock<Vec<NodeFacts>>,
    counters: Counters,
    procedures: Procedures,
    /// What had no room, in the order in which it goes: votes and decisions do not wait for replies.
    waiting: Mutex<Waiting>,
    /// What goes with the next message to its node.
    riders: Mutex<BTreeMap<NodeId, Vec<Message<SqlWork>>>>,
    /// The catalog that was given last.
    last_catalog: Mutex<Option<Database>>,
    is_closed: AtomicBool,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Transactions {
    /// The transactions of a node of this cluster that starts. The number of the node's start is kept in its directory.
    ///
    /// # Errors
    /// If the directory cannot be used, or no thread can start.
    pub fn start(
        me: NodeId,
        cluster: &ClusterFacts,
        directory: &Path,
        sending: Arc<Sending>,
        procedures: Procedures,
    ) -> io::Result<Arc<Transactions>> {
        let start = next_start(directory)?;
        let transactions = Arc::new(Transactions {
            me,
            cluster: cluster.id.clone(),
            partitions: cluster.partitions,
            unprotected: cluster.unprotected,
            clock: NodeClock,
            sending,
            directory: Directory::default(),
            coordinators: Coordinators::new(me, start),
            workers: Workers::default(),
            served: RwLock::default(),
            replicas: RwLock::default(),
            nodes: RwLock::default(),
            counters: Counters::default(),
            procedures,
            waiting: Mutex::default(),
            riders: Mutex::default(),
            last_catalog: Mutex::default(),
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
        let gives_way = Arc::downgrade(&transactions);
        let give_way = move || {
            while let Some(node) = gives_way.upgrade().filter(|node| !node.is_closed()) {
                node.hosted().iter().for_each(|replica| replica.give_way());
                drop(node);
                std::thread::sleep(TICK);
            }
        };
        transactions.spawn("rialto-give-way", give_way)?;
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

    /// Begins to end: no partition is served any more, and no session gets an answer. The replicas end afterwards, and then
    /// [`Transactions::close`].
    pub fn stop(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for served in std::mem::take(&mut *self.served.write()).into_values() {
            served.end();
        }
        self.coordinators.close();
    }

    /// Ends its threads. They may wait for answers of replicas, which have ended before.
    pub fn close(&self) {
        for thread in self.threads.lock().drain(..) {
            // A panic there has told of itself.
            let _ = thread.join();
        }
        self.workers.close();
    }

    /// Whether this node has a replica whose definitions can be read.
    pub fn has_catalog(&self) -> bool {
        self.catalog().is_some()
    }

    /// What an operator sees of the partitions that are served here.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let now = self.now();
        let in_time = |mut of: Unfinished| {
            of.in_doubt_for = of.in_doubt_for.map(|time| time * PROTOCOL_PACE);
            of.undecided.iter_mut().for_each(|undecided| undecided.age *= PROTOCOL_PACE);
            of
        };
        self.served.read().values().map(|served| in_time(served.unfinished(now))).collect()
    }

    /// An operator decides a transaction whose deciding partition has had a loss, and is served here. What was
    /// decided so already stays so.
    ///
    /// # Errors
    /// Why it has no effect, in words.
    pub fn operator_decides(
        &self,
        partition: PartitionId,
        id: TransactionId,
        decision: Decision,
    ) -> std::result::Result<(), String> {
        let served =
            self.find_served(partition).ok_or_else(|| format!("{partition} is not served by this node"))?;
        served.operator_decides(id, decision).map_err(|why| match why {
            NotDecided::Otherwise(before, DecisionStage::Recording) => {
                format!(
                    "{id} is being decided otherwise: {before}. Until that is on record it may still be lost"
                )
            }
            NotDecided::Otherwise(before, _) => {
                format!("{id} was decided otherwise before: {before}. That stays")
            }
            NotDecided::NotServing => {
                format!("this node's replica of {partition} does not serve; another one may be primary")
            }
            NotDecided::NotUndecided => format!("{id} does not wait for an operator in {partition}"),
        })
    }

    /// Whether a partition that this node leads may know of this transaction, and it has not ended everywhere.
    pub fn has(&self, id: TransactionId) -> bool {
        let served = self.served.read();
        // What is not read yet may have it.
        let is_opening = |replica: &Weak<HostedReplica>| {
            let replica = replica.upgrade().filter(|replica| replica.lead().is_some());
            replica.is_some_and(|replica| !served.contains_key(&replica.partition()))
        };
        served.values().any(|served| served.has(id)) || self.replicas.read().iter().any(is_opening)
    }

    /// The cluster's number.
    pub(super) fn cluster(&self) -> &str {
        &self.cluster
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
            over_one: self.counters.over_one.load(Ordering::Relaxed),
            over_several: self.counters.over_several.load(Ordering::Relaxed),
            reads_at_replicas: self.counters.reads_at_replicas.load(Ordering::Relaxed),
            reads_sent_on: self.counters.reads_sent_on.load(Ordering::Relaxed),
            reads_ended: self.hosted().iter().map(|replica| replica.reads_ended()).sum(),
        }
    }

    /// The same in more detail: what transactions cost.
    pub fn transaction_counts(&self) -> TransactionCounts {
        self.counters.now((self.workers.jobs(), self.workers.wake_ups()))
    }

    /// The partitions, for SQL sessions.
    pub fn partitions(self: &Arc<Transactions>) -> Arc<dyn Partitions> {
        Arc::new(ClusterPartitions(self.clone()))
    }

    // What comes from other nodes.

    /// A message about a transaction has come, and what rode with it.
    pub fn received(&self, message: Message<SqlWork>, riders: Vec<Message<SqlWork>>) {
        self.deliver(message);
        riders.into_iter().for_each(|rider| self.deliver(rider));
    }

    /// A node says that it serves a partition.
    pub fn heard(&self, serves: Serves) {
        if self.directory.hear(serves) {
            // Branches of earlier openings are gone. Others may have begun in this one.
            self.partition_gone(serves.partition, Opening(serves.opening.0.saturating_sub(1)));
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
            self.is_gone(serves);
        }
    }

    /// A connection to a node has begun: it is told what is served here.
    pub fn connection_began(&self, node: NodeId) {
        for served in self.served.read().values() {
            self.announce(node, served.serves());
        }
    }

    fn announce(&self, node: NodeId, serves: Serves) {
        if self.sending.send(node, LinkClass::Protocol, &Packet::Serves(serves), &[]).is_ok() {
            Counters::add(&self.counters.announcements);
        }
    }

    /// A partition is not served any more in this opening, or its node cannot be reached.
    fn is_gone(&self, serves: Serves) {
        self.directory.forget(serves);
        self.partition_gone(serves.partition, serves.opening);
    }

    /// The openings of a partition up to this one have ended, or cannot be reached. Transactions of later ones go on.
    fn partition_gone(&self, partition: PartitionId, up_to: Opening) {
        for coordinated in self.coordinators.all() {
            let messages = coordinated.partition_gone(partition, up_to);
            self.deliver_all(messages);
        }
    }

    // For the parts.

    pub(super) fn me(&self) -> NodeId {
        self.me
    }

    /// What becomes of commits at level 2 in unprotected partitions.
    pub(super) fn unprotected(&self) -> Unprotected {
        self.unprotected
    }

    /// The protocol's clock.
    pub(super) fn now(&self) -> Duration {
        self.clock.now().0 / PROTOCOL_PACE
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Where partitions are served.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A transaction of a session or a call was committed in this many partitions.
    pub(super) fn has_committed(&self, partitions: usize) {
        let count = match partitions {
            0 | 1 => &self.counters.over_one,
            _ => &self.counters.over_several,
        };
        Counters::add(count);
    }

    pub(super) fn coordinators(&self) -> &Coordinators {
        &self.coordinators
    }

    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn procedures(&self) -> &Procedures {
        &self.procedures
    }

    pub(super) fn partitions_count(&self) -> u32 {
        self.partitions
    }

    /// A partition that is served here.
    pub fn find_served(&self, partition: PartitionId) -> Option<Arc<ServedPartition>> {
        self.served.read().get(&partition).cloned()
    }

    /// A partition is served here from now on.
    pub(super) fn begin_to_serve(&self, served: &Arc<ServedPartition>) {
        let serves = served.serves();
        self.served.write().insert(serves.partition, served.clone());
        self.heard(serves);
        self.others().into_iter().for_each(|node| self.announce(node, serves));
    }

    /// It is not any more.
    pub(super) fn end_to_serve(&self, served: &Arc<ServedPartition>) {
        let serves = served.serves();
        let mut all = self.served.write();
        if all.get(&serves.partition).is_some_and(|now| now.serves() == serves) {
            all.remove(&serves.partition);
        }
        drop(all);
        self.is_gone(serves);
    }

    /// Delivers messages, here or on other nodes. A request that finds no room is not sent, and its transaction ends.
    pub(super) fn deliver_all(&self, messages: Vec<Message<SqlWork>>) {
        for message in messages {
            if let Some(message) = self.send_within(Duration::ZERO, message) {
                self.deliver(message);
            }
        }
    }

    /// The same on the thread of a session or a call: its requests wait for room. Gives the last branch here that has got
    /// something to do then: this thread would wait for it, and runs it instead.
    pub(super) fn request_all(&self, messages: Vec<Message<SqlWork>>) -> Own {
        let mut ready: Vec<Arc<Branch>> = Vec::new();
        for message in messages {
            let Some(message) = self.send_within(ROOM_WITHIN, message) else { continue };
            let served = match message.to {
                Address::Partition(partition) => self.find_served(partition),
                Address::Coordinator(_) => None,
            };
            match served {
                Some(served) => ready.append(&mut served.receive_here(message)),
                None => self.deliver(message),
            }
        }
        let may_run = |branch: &mut Arc<Branch>| !branch.may_wait_for_its_coordinator();
        let own = match fault_injection::is_on("sessions-hand-all-over") {
            true => None,
            false => ready.pop_if(may_run),
        };
        for branch in ready {
            branch.served.clone().queue(self, Job::Branch(branch));
        }
        Own(own)
    }

    /// Sends a message to another node. Gives it back if it is for this one. It never blocks.
    pub(super) fn send_away(&self, message: Message<SqlWork>) -> Option<Message<SqlWork>> {
        self.send_within(Duration::ZERO, message)
    }

    fn send_within(&self, room_within: Duration, message: Message<SqlWork>) -> Option<Message<SqlWork>> {
        let node = match message.to {
            Address::Coordinator(node) => node,
            Address::Partition(partition) => match self.directory.find(partition) {
                Some(serves) => serves.node,
                None => {
                    self.is_not_sent(&message, SendError::NotConnected);
                    return None;
                }
            },
        };
        if node == self.me {
            return Some(message);
        }
        match message.class() {
            // Nothing waits for it: if it is lost, it is asked for again.
            Class::Reserved
                if matches!(message.body, Body::Forgotten) && !fault_injection::is_on("nothing-rides") =>
            {
                self.riders.lock().entry(node).or_default().push(message);
            }
            Class::Request => self.send_request(room_within, node, message),
            Class::Reserved => self.send_reserved(node, message),
        }
        None
    }

    /// A message is lost. If it is a request, its transaction ends; all else is sent again, or its connection's end tells.
    fn is_not_sent(&self, message: &Message<SqlWork>, error: SendError) {
        if let Address::Partition(partition) = message.to
            && message.class() == Class::Request
            && let Some(coordinated) = self.coordinators.find(message.transaction)
        {
            let messages = coordinated.not_sent(partition, error);
            self.deliver_all(messages);
        }
    }

    /// Sends a request. It waits for room for this long.
    fn send_request(&self, room_within: Duration, node: NodeId, message: Message<SqlWork>) {
        let packet = Packet::Transaction(Box::new(message), self.take_riders(node));
        let began = Instant::now();
        let error = loop {
            match self.sending.send(node, LinkClass::Work, &packet, &[]) {
                Ok(()) => return self.has_sent(&packet),
                Err(SendError::Full) if began.elapsed() < room_within && !self.is_closed() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => break error,
            }
        };
        if let Packet::Transaction(message, riders) = packet {
            if error == SendError::Full {
                self.keep_riders(node, riders);
            }
            self.is_not_sent(&message, error);
        }
    }

    /// Counts what went.
    fn has_sent(&self, packet: &Packet) {
        let Packet::Transaction(message, riders) = packet else { return };
        let is_low = matches!(message.body, Body::Low { .. });
        Counters::add(if is_low { &self.counters.announcements } else { &self.counters.messages });
        self.counters.riders.fetch_add(riders.len() as u64, Ordering::Relaxed);
    }

    /// Sends what belongs to work that was admitted. What there is no room for waits: it is not sent again otherwise.
    fn send_reserved(&self, node: NodeId, message: Message<SqlWork>) {
        let mut waiting = self.waiting.lock();
        let lane = (node, link_class(&message));
        let unsent = match waiting.has(lane) {
            true => Some(message),
            false => self.try_send(node, message),
        };
        if let Some(message) = unsent {
            waiting.push(lane, message);
        }
    }

    /// Gives the message back if there is no room for it. A reply that is too long becomes an error.
    fn try_send(&self, node: NodeId, message: Message<SqlWork>) -> Option<Message<SqlWork>> {
        let class = link_class(&message);
        let packet = Packet::Transaction(Box::new(message), self.take_riders(node));
        let sent = self.sending.send(node, class, &packet, &[]);
        if sent.is_ok() {
            self.has_sent(&packet);
        }
        let Packet::Transaction(mut message, riders) = packet else { return None };
        match sent {
            Ok(()) => None,
            // Both nodes are told of the end of their connection.
            Err(SendError::NotConnected | SendError::NotAMember) => None,
            Err(SendError::Full) => {
                self.keep_riders(node, riders);
                Some(*message)
            }
            Err(SendError::TooLong) => {
                let (Body::Reply { reply: Some(reply), .. } | Body::Outcome(Outcome::Answered(reply))) =
                    &mut message.body
                else {
                    return None;
                };
                *reply = too_long_reply(reply);
                let shorter = Packet::Transaction(message, riders);
                let sent = self.sending.send(node, LinkClass::Protocol, &shorter, &[]);
                if sent.is_ok() {
                    self.has_sent(&shorter);
                }
                match (sent, shorter) {
                    (Err(SendError::Full), Packet::Transaction(message, riders)) => {
                        self.keep_riders(node, riders);
                        Some(*message)
                    }
                    _ => None,
                }
            }
        }
    }

    /// What goes with a message to a node.
    fn take_riders(&self, node: NodeId) -> Vec<Message<SqlWork>> {
        self.riders.lock().get_mut(&node).map(std::mem::take).unwrap_or_default()
    }

    /// What it went with has not gone.
    fn keep_riders(&self, node: NodeId, riders: Vec<Message<SqlWork>>) {
        self.riders.lock().entry(node).or_default().extend(riders);
    }

    /// Sends what had no room before.
    fn send_waiting(&self) {
        self.waiting.lock().send(|node, message| self.try_send(node, message));
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
                    // From a session or a partition of this node it is sent on; one of another node's is not: the two could go
                    // on for ever.
                    let is_mine = match message.from {
                        Sender::Coordinator(node) => node == self.me,
                        Sender::Partition(from, _) => self.find_served(from).is_some(),
                    };
                    let left = if is_mine { self.send_away(message) } else { Some(message) };
                    if let Some(message) = left {
                        self.refuse(partition, message);
                    }
                }
            },
            Address::Coordinator(_) => {}
        }
    }

    /// Says that a partition is not served here to a coordinator that waits for an answer: there is no branch in the opening
    /// that it believes in.
    fn refuse(&self, partition: PartitionId, message: Message<SqlWork>) {
        let Sender::Coordinator(node) = message.from else { return };
        let (Body::Call { opening, .. }
        | Body::Act(Act { opening, .. })
        | Body::Prepare { opening, .. }
        | Body::Confirm { opening, .. }) = message.body
        else {
            return;
        };
        let answer = Message {
            from: Sender::Partition(partition, opening),
            to: Address::Coordinator(node),
            transaction: message.transaction,
            body: Body::NoBranch,
        };
        self.deliver_all(vec![answer]);
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
        self.send_waiting();
        let served: Vec<_> = self.served.read().values().cloned().collect();
        served.iter().for_each(ServedPartition::tick);
        let now = self.now();
        for coordinated in self.coordinators.all() {
            let messages = coordinated.tick(now);
            self.deliver_all(messages);
            if let Some(partition) = coordinated.is_late() {
                self.cancelled(Cancelled { partition, transaction: coordinated.id });
            }
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
            serves.iter().for_each(|serves| self.announce(node, *serves));
        }
    }

    fn hosted(&self) -> Vec<Arc<HostedReplica>> {
        self.replicas.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// This node's replica of a partition.
    pub(super) fn find_replica(&self, partition: PartitionId) -> Option<Arc<HostedReplica>> {
        // A newer one takes the place of one that is being closed.
        self.hosted().into_iter().rev().find(|replica| replica.partition() == partition)
    }

    /// A database of this node that has all definitions.
    fn catalog(&self) -> Option<Database> {
        let replicas = self.hosted();
        // Definitions come to a primary first.
        let leads = replicas.iter().find_map(|replica| replica.lead().map(|lead| lead.database().clone()));
        leads.or_else(|| replicas.iter().find_map(|replica| replica.readable()))
    }
}

/// A branch that the thread of its session or call runs itself, if there is one.
#[must_use]
pub(super) struct Own(Option<Arc<Branch>>);

impl Own {
    /// Runs what it has to do. It may wait for locks.
    ///
    /// A panic there, which has told of itself, ends the transaction for its session, as far as its outcome is known: no
    /// answer of the branch comes.
    pub(super) fn run(self) {
        let Some(branch) = self.0 else { return };
        if catch_unwind(AssertUnwindSafe(|| branch.run())).is_err()
            && let Some(node) = branch.served.node()
            && let Some(coordinated) = node.coordinators().find(branch.id)
        {
            coordinated.give_up();
        }
    }
}

/// Which room a message takes that is no request. Rows do not take that of votes and promises.
fn link_class(message: &Message<SqlWork>) -> LinkClass {
    match message.body {
        Body::Reply { .. } | Body::Outcome(_) => LinkClass::Work,
        _ => LinkClass::Protocol,
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
        let began = Instant::now();
        loop {
            if let Some(db) = self.0.catalog() {
                *self.0.last_catalog.lock() = Some(db.clone());
                return db;
            }
            // Statements then say that it is closed.
            if (began.elapsed() >= CATALOG_WITHIN || self.0.is_closed())
                && let Some(db) = self.0.last_catalog.lock().clone()
            {
                return db;
            }
            std::thread::sleep(TICK);
        }
    }

    fn await_definitions(
        &self,
        catalog: &Database,
        check: &dyn Fn() -> rialto_sql::Result<()>,
    ) -> rialto_sql::Result<bool> {
        definitions::await_definitions(&self.0.hosted(), catalog, check)
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

    fn begin_reading(
        &self,
        opening: &SqlOpening,
        reads: &ReplicaReads,
    ) -> rialto_sql::Result<Box<dyn Branches>> {
        Ok(Box::new(ReadingTransaction::new(self.0.clone(), opening.clone(), reads.clone())))
    }

    fn cluster(&self) -> Option<String> {
        Some(self.0.cluster().to_owned())
    }

    fn positions(
        &self,
        opening: &SqlOpening,
        written: &[Written],
        watch: &dyn Fn(Arc<dyn CancelBranches>),
    ) -> rialto_sql::Result<Positions> {
        positions::positions(&self.0, opening, written, watch)
    }
}

/// The number of this start of the node: above the last one, which is in a file, and not below the time in milliseconds.
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
    // Also above that of a file that was lost, or put back.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let next = u64::try_from(since.as_millis()).unwrap_or(0).max(last + 1);
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "{next}")?;
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    std::fs::File::open(directory)?.sync_all()?;
    Ok(Start(next))
}
