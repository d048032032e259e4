//! [`HostedReplica`]: a replica, as the rest of its node has it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rialto::fault_injection;
use rialto::log::LogPoint;
use rialto::{Database, Lsn, Options};

use super::answering::AnswerQueue;
use super::database::{Kernel, NewPartition};
use super::driver::{self, Input};
use super::inputs::Inputs;
use super::reads::Reads;
use crate::control::ControlStore;
use crate::node::clock::NodeClock;
use crate::node::sending::Sending;
use crate::node::transfer::{Pushing, Transfers};
use crate::protocol::replication::{
    Configuration, Envelope, LostBefore, Member, Once, Replica, ReplicationOptions, RoleKind,
};
use crate::protocol::transactions::Level;
use crate::protocol::{Epoch, NodeId, PartitionId};

/// The most bytes of blocks that wait at a replica.
const QUEUED_MAX: usize = 64 << 20;

/// How a replica is kept.
#[derive(Clone)]
pub struct ReplicaOptions {
    /// The replica's directory; it is made if it is missing.
    pub directory: PathBuf,
    /// The options of its database.
    pub database: Options,
    /// The times and bounds of its replication.
    pub replication: ReplicationOptions,
    /// Makes what each partition has from the beginning, when the partition is new.
    pub make: NewPartition,
}

/// The progress of a replica that catches up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Catching {
    /// The end of what it has of this replica's log, in bytes.
    pub received: u64,
    /// The most bytes that it has taken of one copy.
    pub copied: u64,
}

impl Catching {
    /// Whether it has got further in one of both.
    pub fn is_beyond(self, before: Catching) -> bool {
        self.received > before.received || self.copied > before.copied
    }
}

/// Counts what another node takes of a copy.
struct Counted<'c> {
    pushing: &'c mut Pushing,
    shared: &'c Shared,
    to: NodeId,
    bytes: u64,
}

impl std::io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.pushing.write(bytes)?;
        self.bytes += written as u64;
        let mut copied = self.shared.copied.lock();
        let most = copied.entry(self.to).or_default();
        *most = self.bytes.max(*most);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.pushing.flush()
    }
}

/// This replica does not serve: another one may lead, or a promise has run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotServing {
    /// The node whose replica is primary, as far as this one knows.
    pub primary: Option<NodeId>,
    /// Whether a transaction that ran may have taken effect.
    pub outcome: Outcome,
}

/// What is known of a transaction that is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did not run.
    HasNotRun,
    /// It ran here. It is lost, or it stays.
    Unknown,
}

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this node's replica of the partition does not serve")?;
        match self.primary {
            Some(primary) => write!(f, "; the primary is on {primary}, as far as it knows"),
            None => f.write_str("; it does not know the primary"),
        }
    }
}

impl std::error::Error for NotServing {}

/// What an operator sees of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The partition.
    pub partition: PartitionId,
    /// Whether it leads.
    pub role: RoleKind,
    /// Whether it takes transactions at this moment.
    pub serves: bool,
    /// The highest epoch that it has seen.
    pub epoch: Epoch,
    /// The newest configuration that it knows.
    pub configuration: Option<Configuration>,
    /// The end of its log; nothing while its database is not open.
    pub received: Option<LogPoint>,
    /// The end of what is on its disk.
    pub on_disk: Option<LogPoint>,
    /// What went wrong last.
    pub trouble: Option<String>,
}

/// What the driver and the rest of the node share.
pub(super) struct Shared {
    pub partition: PartitionId,
    pub clock: NodeClock,
    pub state: Mutex<State>,
    /// The most bytes of one copy that another node has taken.
    pub copied: Mutex<BTreeMap<NodeId, u64>>,
    /// Bytes of blocks that have come and were not taken yet.
    pub queued: AtomicUsize,
    /// Whether the driver is to look at the log anyway.
    pub is_log_moved: AtomicBool,
    /// Told when the replica begins to lead, or stops leading.
    pub changed: Condvar,
    /// The transactions that read while it follows.
    pub reads: Arc<Reads>,
}

pub(super) struct State {
    /// None before the database is opened.
    pub machine: Option<Replica>,
    pub kernel: Kernel,
    pub admission: Admission,
    /// How many times it has begun to lead, or stopped leading: what began at an earlier number is over.
    pub leads: u64,
    /// The epoch in which it has begun to lead, and whether what was answered before is there.
    pub began: (Epoch, LostBefore),
    /// Transactions that were admitted and have not ended.
    pub running: usize,
    /// What waits until it may be answered.
    pub waiting: AnswerQueue,
    pub trouble: Option<String>,
    /// What is wrong as long as it leads as it did then.
    pub lasting_trouble: Option<(u64, String)>,
}

/// Whether transactions begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Open,
    Draining,
}

impl State {
    pub fn primary(&self) -> Option<NodeId> {
        Some(self.machine.as_ref()?.known()?.configuration.primary)
    }

    /// Whether the state machine leads. It may have been deposed, and the database not be closed yet.
    fn is_to_lead(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.role() == RoleKind::Leading)
    }
}

/// A replica of a partition on this node.
pub struct HostedReplica {
    pub(super) shared: Arc<Shared>,
    inputs: Inputs,
    driver: Mutex<Option<JoinHandle<()>>>,
}

impl HostedReplica {
    /// Opens a replica. It goes on where it was, or takes a copy; which one leads is found out meanwhile.
    ///
    /// # Errors
    /// If its directory cannot be used, or no thread can start.
    pub fn open(
        partition: PartitionId,
        node: NodeId,
        options: ReplicaOptions,
        store: Arc<dyn ControlStore>,
        sending: Arc<Sending>,
        transfers: Arc<Transfers>,
    ) -> std::io::Result<HostedReplica> {
        let shared = Arc::new(Shared {
            partition,
            clock: NodeClock,
            state: Mutex::new(State {
                machine: None,
                kernel: Kernel::Closed,
                admission: Admission::Open,
                leads: 0,
                began: (Epoch(0), LostBefore::default()),
                running: 0,
                waiting: AnswerQueue::default(),
                trouble: None,
                lasting_trouble: None,
            }),
            copied: Mutex::default(),
            queued: AtomicUsize::new(0),
            is_log_moved: AtomicBool::new(false),
            changed: Condvar::new(),
            reads: Arc::new(Reads::new(options.replication.redo_waits_max)),
        });
        let (inputs, driver) = driver::start(shared.clone(), node, options, store, sending, transfers)?;
        Ok(HostedReplica { shared, inputs, driver: Mutex::new(Some(driver)) })
    }

    /// The partition.
    pub fn partition(&self) -> PartitionId {
        self.shared.partition
    }

    /// A message of another replica has come, with bytes beside it.
    pub fn received(&self, envelope: Envelope, beside: &[u8]) {
        // Blocks beyond this are lost, and sent again: the log may not take them for some time.
        let queued = self.shared.queued.fetch_add(beside.len(), Ordering::Relaxed);
        if queued > QUEUED_MAX && !beside.is_empty() {
            self.shared.queued.fetch_sub(beside.len(), Ordering::Relaxed);
            return;
        }
        // The thread that reads a link holds no lock.
        let _ = self.inputs.drive(Input::Received(Box::new(envelope), beside.to_vec()));
    }

    /// The tables of another replica are not those of this one, which leads: that one is to take a new copy.
    pub(in crate::node) fn differs(&self, member: Member) {
        self.tell(Input::Differs(member));
    }

    /// The replica leads on another node, which is one of its standbys.
    pub fn switch_over(&self, to: NodeId) {
        self.tell(Input::Switchover(to));
    }

    /// The partition gets a replica on another node, if this one leads. The caller repeats it until the configuration
    /// shows it.
    pub fn add(&self, node: NodeId) {
        self.tell(Input::Add(node));
    }

    /// The partition has no replica on another node any more, if this one leads, and under a configuration for which
    /// this holds. The caller repeats it until the configuration shows it.
    pub fn remove(&self, node: NodeId, once: Once) {
        self.tell(Input::Remove(node, once));
    }

    /// The progress of another node's replica that catches up with this one. It never goes back while the node's
    /// database and this process are the same.
    pub fn catching(&self, node: NodeId) -> Catching {
        let state = self.shared.state.lock();
        let peers = state.machine.as_ref().map(|machine| machine.status(self.shared.clock.now()).peers);
        let peer = peers.into_iter().flatten().find(|peer| peer.member.node == node);
        let received = peer.and_then(|peer| peer.received).map_or(0, |received| received.position.0);
        let copied = self.shared.copied.lock().get(&node).copied().unwrap_or(0);
        Catching { received, copied }
    }

    /// How many transactions were admitted and have not ended.
    pub fn running(&self) -> usize {
        self.shared.state.lock().running
    }

    /// While this replica serves: the nodes whose replicas are not in sync, and are not heard.
    pub fn unheard(&self) -> Vec<NodeId> {
        let state = self.shared.state.lock();
        state.machine.as_ref().map_or_else(Vec::new, |machine| machine.unheard(self.shared.clock.now()))
    }

    /// The replica leads by force.
    pub fn force(&self, without: Vec<NodeId>) {
        self.tell(Input::Force(without));
    }

    /// The database, for a transaction, while this replica serves.
    ///
    /// # Errors
    /// [`NotServing`].
    pub fn admit(&self) -> Result<Admitted, NotServing> {
        let lead = self.lead().ok_or_else(|| {
            let primary = self.shared.state.lock().primary();
            NotServing { primary, outcome: Outcome::HasNotRun }
        })?;
        lead.admit()
    }

    /// The replica's time as primary, if it leads now.
    pub fn lead(&self) -> Option<Lead> {
        let state = self.shared.state.lock();
        match &state.kernel {
            Kernel::Leading(db) if state.is_to_lead() => Some(Lead {
                db: db.clone(),
                leads: state.leads,
                epoch: state.began.0,
                lost_before: state.began.1,
                shared: self.shared.clone(),
                inputs: self.inputs.clone(),
            }),
            Kernel::Leading(_) | Kernel::Following(_) | Kernel::Closed => None,
        }
    }

    /// Waits for at most this time until the replica begins to lead, or stops leading.
    pub fn wait_for_change(&self, patience: Duration) {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_for(&mut state, patience);
    }

    /// The database, for readers of which it may lie behind the primary: a standby's, or the primary's. None while it
    /// is opened or copied.
    pub fn readable(&self) -> Option<Database> {
        match &self.shared.state.lock().kernel {
            Kernel::Closed => None,
            Kernel::Following(follower) => Some(follower.database().clone()),
            Kernel::Leading(db) => Some(db.clone()),
        }
    }

    /// Writes a copy of the database for another node's replica.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn push_copy(&self, to: NodeId, pushing: &mut Pushing) -> Result<(), String> {
        let db = self.readable().ok_or("the replica is not open")?;
        let mut counted = Counted { pushing, shared: &self.shared, to, bytes: 0 };
        let copied = db.copy_to(&mut counted, &rialto::backup::CopyOptions::default());
        let (_, cursor) = copied.map_err(|error| error.to_string())?;
        self.tell(Input::Copied(to, Box::new(cursor)));
        Ok(())
    }

    /// Writes a load file of the database for another node's replica.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn push_load_file(&self, number: u64, pushing: &mut Pushing) -> Result<(), String> {
        let db = self.readable().ok_or("the replica is not open")?;
        let mut bytes = db.load_file(number).map_err(|error| error.to_string())?;
        std::io::copy(&mut bytes, pushing).map_err(|error| error.to_string()).map(drop)
    }

    /// What an operator sees of it.
    pub fn status(&self) -> ReplicaStatus {
        let state = self.shared.state.lock();
        let log = state.kernel.log();
        let machine = state.machine.as_ref();
        ReplicaStatus {
            partition: self.shared.partition,
            role: machine.map_or(RoleKind::Following, Replica::role),
            serves: machine.is_some_and(|machine| machine.serves(self.shared.clock.now())),
            epoch: machine.map_or(Epoch(0), Replica::epoch),
            configuration: machine.and_then(|machine| Some(machine.known()?.configuration.clone())),
            received: log.map(|log| log.received),
            on_disk: log.map(|log| log.on_disk),
            trouble: match &state.lasting_trouble {
                Some((leads, why)) if *leads == state.leads => Some(why.clone()),
                _ => state.trouble.clone(),
            },
        }
    }

    /// Whether the newest configuration that it has seen is without it.
    pub fn is_removed(&self) -> bool {
        let state = self.shared.state.lock();
        state.machine.as_ref().is_some_and(Replica::is_removed)
    }

    /// Whether it has ended by itself: its own file could not be written.
    pub fn has_ended(&self) -> bool {
        self.driver.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends the replica. Its database is closed; nothing that runs is answered any more.
    pub fn close(&self) {
        self.tell(Input::Close);
        if let Some(driver) = self.driver.lock().take() {
            // A panic there has told of itself.
            let _ = driver.join();
        }
    }

    pub(super) fn tell(&self, input: Input) {
        // After the end nothing is to be told.
        let _ = self.inputs.send(input);
    }
}

impl Drop for HostedReplica {
    fn drop(&mut self) {
        self.close();
    }
}

/// The time of a replica as primary, from when its database takes transactions until it follows again.
#[derive(Clone)]
pub struct Lead {
    pub(super) db: Database,
    pub(super) leads: u64,
    epoch: Epoch,
    lost_before: LostBefore,
    pub(super) shared: Arc<Shared>,
    pub(super) inputs: Inputs,
}

impl Lead {
    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The epoch in which it has begun to lead.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What may be lost of what was answered in earlier epochs.
    pub fn lost_before(&self) -> LostBefore {
        self.lost_before
    }

    /// Whether it goes on.
    pub fn goes_on(&self) -> bool {
        self.goes_on_in(&self.shared.state.lock())
    }

    pub(super) fn goes_on_in(&self, state: &State) -> bool {
        state.leads == self.leads && matches!(state.kernel, Kernel::Leading(_)) && state.is_to_lead()
    }

    /// The database, for a transaction, while the replica serves.
    ///
    /// # Errors
    /// [`NotServing`].
    pub fn admit(&self) -> Result<Admitted, NotServing> {
        let admitted = self.admit_here()?;
        std::mem::forget(admitted);
        Ok(Admitted { lead: self.clone() })
    }

    /// The same for a transaction that ends before the caller lets go of this.
    ///
    /// # Errors
    /// [`NotServing`].
    pub(in crate::node) fn admit_here(&self) -> Result<AdmittedHere<'_>, NotServing> {
        let mut state = self.shared.state.lock();
        let serves = state.machine.as_ref().is_some_and(|machine| machine.serves(self.shared.clock.now()));
        if !serves || state.admission != Admission::Open || !self.goes_on_in(&state) {
            return Err(NotServing { primary: state.primary(), outcome: Outcome::HasNotRun });
        }
        state.running += 1;
        Ok(AdmittedHere { lead: self })
    }

    /// A transaction that was admitted has ended.
    fn has_ended(&self, state: &mut State) {
        if state.leads == self.leads {
            state.running -= 1;
            if state.running == 0 && state.admission == Admission::Draining {
                let _ = self.inputs.send(Input::Idle);
            }
        }
    }

    /// Whether commits at level 2 are refused at this moment: too few replicas are in sync, and the cluster's operator has
    /// chosen that. A commit is asked for before it has its place; what has its place is answered once it is on the disk.
    pub fn refuses_level_2(&self) -> bool {
        let state = self.shared.state.lock();
        let refuses = state.machine.as_ref().is_some_and(Replica::refuses_level_2);
        refuses && !fault_injection::is_on("unprotected-commits-unasked")
    }

    /// Whether the replica takes transactions at this moment: it is the primary for sure.
    pub fn serves(&self) -> bool {
        let state = self.shared.state.lock();
        let serves = state.machine.as_ref().is_some_and(|machine| machine.serves(self.shared.clock.now()));
        serves && self.goes_on_in(&state)
    }

    /// Something is wrong as long as the replica leads, and is shown to the operator. It goes on all the same.
    pub fn tell_trouble(&self, why: String) {
        self.shared.state.lock().lasting_trouble = Some((self.leads, why));
    }

    /// The replica cannot go on as primary: a commit that must not fail has failed.
    pub fn resign(&self, why: String) {
        let _ = self.inputs.send(Input::Resign(self.leads, why));
    }
}

/// The database of a replica that serves, for one transaction: a planned change of the primary waits for it.
pub struct Admitted {
    lead: Lead,
}

impl Deref for Admitted {
    type Target = Lead;

    fn deref(&self) -> &Lead {
        &self.lead
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.lead.has_ended(&mut self.lead.shared.state.lock());
    }
}

/// As [`Admitted`], on the thread that has asked.
pub(in crate::node) struct AdmittedHere<'l> {
    lead: &'l Lead,
}

impl AdmittedHere<'_> {
    /// Its transaction has ended: a planned change of the primary does not wait for the answer. Waits for that as
    /// [`Lead::answer_until`] does.
    ///
    /// # Errors
    /// [`NotServing`]: it must not be answered.
    pub fn answer_until(self, place: Lsn, level: Level, until: Option<Instant>) -> Result<bool, NotServing> {
        let lead = self.lead;
        std::mem::forget(self);
        let mut state = lead.shared.state.lock();
        lead.has_ended(&mut state);
        if lead.may_answer(&state, place, level) {
            return Ok(true);
        }
        drop(state);
        lead.answer_until(place, level, until)
    }
}

impl Drop for AdmittedHere<'_> {
    fn drop(&mut self) {
        self.lead.has_ended(&mut self.lead.shared.state.lock());
    }
}
