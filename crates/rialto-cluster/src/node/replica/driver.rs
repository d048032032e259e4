//! The driver of a replica: takes what happens to the state machine, and carries out what it says. `thread` is its own thread,
//! `at_once` what others may have it take.

mod at_once;
mod thread;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rialto::log::{LogCursor, LogPoint};
use rialto::{Error, Follower, Lsn};

use super::answering::Told;
use super::database::{DatabasePlace, Done, IfMissing, Kernel, KernelWork, Task, close};
use super::hosted::{Admission, ReplicaOptions, Shared};
use super::inputs::Inputs;
use super::saved_file::SavedFile;
use super::shipping::{NotShipped, Shipping};
use super::store_requests::{StoreRequests, read_configuration};
use crate::control::{ControlError, ControlStore};
use crate::net::Class;
use crate::node::compare::answer_comparisons;
use crate::node::packet::{Packet, blocks};
use crate::node::random::random_number;
use crate::node::sending::Sending;
use crate::node::transfer::Transfers;
use crate::protocol::replication::{
    At, Contents, Effect, Envelope, Event, LostBefore, Member, Message, Once, Replica, Report, RoleKind,
    Saved,
};
use crate::protocol::{Epoch, Life, NodeId};

/// How often a replica tries again to open what could not be opened.
const OPEN_AGAIN: Duration = Duration::from_secs(2);
/// How often the log's watcher looks whether it is still wanted.
const WATCH: Duration = Duration::from_millis(500);
/// How long commits at level 1 gather before they are shipped: so much more of them a failover may lose.
const LINGER: Duration = Duration::from_millis(1);

/// What happens to a replica.
pub enum Input {
    /// A message of another replica, and the bytes beside it.
    Received(Box<Envelope>, Vec<u8>),
    /// The control store has answered.
    Store(Event),
    /// A task of the database has ended.
    Kernel(Done),
    /// The log has grown, or more of it is on the disk.
    LogMoved,
    /// An answer waits for the disk.
    Sync,
    /// The last transaction has ended, while the replica drains.
    Idle,
    /// Reads at the replica have to know how old its tables are.
    AskEnd,
    /// A copy went to another node; its cursor keeps the log behind it.
    Copied(NodeId, Box<LogCursor>),
    /// The tables of another replica are not those of this one.
    Differs(Member),
    /// An operator wants another primary.
    Switchover(NodeId),
    /// The partition is to have a replica on this node.
    Add(NodeId),
    /// The partition is to have no replica on this node, once this is so.
    Remove(NodeId, Once),
    /// An operator has this replica lead.
    Force(Vec<NodeId>),
    /// It cannot go on as primary, for this reason: if it still leads as it did then.
    Resign(u64, String),
    /// The replica ends.
    Close,
}

/// Starts the driver of a replica.
pub fn start(
    shared: Arc<Shared>,
    node: NodeId,
    options: ReplicaOptions,
    store: Arc<dyn ControlStore>,
    sending: Arc<Sending>,
    transfers: Arc<Transfers>,
) -> io::Result<(Inputs, JoinHandle<()>)> {
    fs::create_dir_all(&options.directory)?;
    let saved_file = SavedFile::in_directory(&options.directory);
    let saved = saved_file.read()?;
    let inputs = Inputs::new();
    let partition = shared.partition;
    let (from_store, from_kernel) = (inputs.clone(), inputs.clone());
    let requests = StoreRequests::new(store.clone(), partition, move |event| {
        let _ = from_store.send(Input::Store(event));
    })?;
    let ReplicaOptions { directory, database, replication, make } = options;
    let log_bytes = database.log_bytes_max / 4;
    let place = DatabasePlace { partition, directory, options: database, make };
    let work = KernelWork::new(place, transfers, move |done| {
        let _ = from_kernel.send(Input::Kernel(done));
    })?;
    let me = Member { node, life: Life(0) };
    let driver = Driver {
        shared,
        me,
        replication,
        saved,
        saved_file,
        store,
        requests,
        work,
        shipping: Shipping::new(sending.clone(), partition, me, log_bytes),
        sending,
        log_bytes,
        inputs: inputs.clone(),
        stops: None,
        effects: Vec::new(),
        follow_ups: VecDeque::new(),
        leads_since: None,
        told_leads: 0,
        changes: Changes::None,
        opening_at: None,
        open_again: None,
        log_ended: false,
        syncs: Syncs::No,
        is_shipped: Arc::default(),
        watching: None,
        is_unfit: false,
        left: None,
        is_at_once: false,
    };
    let brought = inputs.clone();
    let name = format!("rialto-replica-{}", partition.0);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        thread::serve(&brought, driver);
    })?;
    Ok((inputs, thread))
}

/// Whether a task that changes the database is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changes {
    None,
    Opens,
    /// It is to lead, in this epoch.
    Leads(Epoch),
    /// It was to lead, and is to follow once that has ended.
    LeadsInVain,
}

/// Whether the log is being written to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syncs {
    No,
    /// It is.
    Once,
    /// It is, and is to be afterwards: more is to reach the disk.
    Again,
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    me: Member,
    replication: crate::protocol::replication::ReplicationOptions,
    saved: Saved,
    saved_file: SavedFile,
    store: Arc<dyn ControlStore>,
    requests: StoreRequests,
    work: KernelWork,
    shipping: Shipping,
    sending: Arc<Sending>,
    log_bytes: u64,
    inputs: Inputs,
    /// Why it cannot go on, until its thread ends it.
    stops: Option<Stops>,
    effects: Vec<Effect>,
    /// What is left of a step that another thread has taken, from the first effect on that may wait.
    left: Option<Left>,
    /// Whether a thread drives that has brought an input.
    is_at_once: bool,
    follow_ups: VecDeque<Event>,
    /// The epoch in which the database was asked to lead, and what was lost by then.
    leads_since: Option<(Epoch, LostBefore)>,
    /// What was told of its role.
    told_leads: u64,
    changes: Changes,
    /// What was redone when the opening for transactions was looked at last.
    opening_at: Option<(Lsn, u64)>,
    open_again: Option<Instant>,
    log_ended: bool,
    syncs: Syncs,
    /// Whether other nodes have replicas of the partition, and the thread that watches the log for them.
    is_shipped: Arc<AtomicBool>,
    watching: Option<std::thread::Thread>,
    /// Whether the state machine was told that the database cannot go on.
    is_unfit: bool,
}

/// The effects of a step that are not carried out yet, in order.
struct Left {
    effects: VecDeque<Effect>,
    /// What the step has received, and the bytes beside it.
    message: Option<Message>,
    beside: Vec<u8>,
}

/// The replica cannot go on, for a reason that is told.
struct Stops(String);

impl Driver {
    fn answer_waiting(&self) {
        let leads = self.shared.state.lock().leads;
        if self.shared.answer_waiting() == Told::Panicked {
            // What was to be told is not: another opening finds out.
            let why =
                "a step of one of its transactions has failed in a panic, which the node's output shows";
            let _ = self.inputs.send(Input::Resign(leads, why.to_owned()));
        }
    }

    fn trouble(&self, what: String) {
        self.shared.state.lock().trouble = Some(what);
    }

    /// Ends the replica: nothing is answered any more, and the database is closed.
    fn end(self) {
        let kernel = self.shared.end();
        drop(self.shipping);
        // The tasks that are on their way end first.
        drop(self.work);
        for left in self.inputs.end() {
            if let Input::Kernel(Done::Led(db, _)) = left {
                let _ = db.close();
            }
        }
        close(kernel);
    }

    // The beginning.

    /// Opens the database. It is made only for the recorded primary of the first configuration: before a primary serves it
    /// swaps in another one, so nothing was ever answered.
    fn first_open(&mut self) {
        if self.saved.contents == Contents::AmidACopy {
            return self.begin(Life(random_number()));
        }
        let if_missing = match read_configuration(&*self.store, self.shared.partition) {
            Ok(Some(known)) => {
                let first = known.configuration;
                let is_new = first.epoch == Epoch(1) && first.primary == self.me.node;
                if is_new && self.saved == Saved::default() { IfMissing::Create } else { IfMissing::TakeCopy }
            }
            Ok(None) | Err(ControlError::Unavailable(_) | ControlError::Refused(_)) => IfMissing::TakeCopy,
        };
        self.changes = Changes::Opens;
        self.work.begin(Task::Open(if_missing));
    }

    fn opened(&mut self, follower: Arc<Follower>, life: Life) -> Result<(), Stops> {
        self.changes = Changes::None;
        (self.log_ended, self.is_unfit) = (false, false);
        let me = Member { node: self.me.node, life };
        answer_comparisons(&follower, self.shared.partition, me, self.sending.clone());
        let begins = {
            self.shared.reads.open(&follower);
            let mut state = self.shared.state.lock();
            state.kernel = Kernel::Following(follower);
            state.machine.is_none()
        };
        if begins {
            self.begin(life);
        } else {
            self.take_life(life);
        }
        self.step(Event::Opened { life }, &[])
    }

    /// There is no database. If the control store did not say whether one is to be made, it is asked again; else the state
    /// machine has the replica take a copy.
    fn is_missing(&mut self) {
        self.changes = Changes::None;
        let is_known = matches!(read_configuration(&*self.store, self.shared.partition), Ok(Some(_)));
        if self.saved == Saved::default() && !is_known {
            self.open_again = Some(Instant::now() + OPEN_AGAIN);
            return;
        }
        self.saved.contents = Contents::AmidACopy;
        self.begin(Life(random_number()));
    }

    fn take_life(&mut self, life: Life) {
        if self.me.life != life {
            self.me.life = life;
            self.shipping =
                Shipping::new(self.sending.clone(), self.shared.partition, self.me, self.log_bytes);
        }
    }

    /// A state machine begins, as in a new process.
    fn begin(&mut self, life: Life) {
        self.take_life(life);
        let (partition, now) = (self.shared.partition, self.shared.clock.now());
        let machine = Replica::open(partition, self.me, self.saved, self.replication, now);
        self.shared.state.lock().machine = Some(machine);
    }

    /// Opens the database again in some time, and has a new state machine begin: this one is unfit.
    fn is_unfit(&mut self) {
        if !std::mem::replace(&mut self.is_unfit, true) {
            self.open_again = Some(Instant::now() + OPEN_AGAIN);
        }
    }

    /// The time has come to open the database again.
    fn open_again(&mut self) -> Result<(), Stops> {
        if self.changes != Changes::None {
            return Ok(());
        }
        self.open_again = None;
        let (is_closed, has_machine) = {
            let state = self.shared.state.lock();
            (matches!(state.kernel, Kernel::Closed), state.machine.is_some())
        };
        if !has_machine {
            self.first_open();
        } else if self.is_unfit || is_closed {
            // What it had is not answered, nor acknowledged, by the new one.
            self.shared.state.lock().machine = None;
            self.close_and_follow()?;
        }
        Ok(())
    }

    // What happens.

    fn take(&mut self, input: Input) -> Result<(), Stops> {
        match input {
            Input::Received(envelope, beside) => {
                self.shared.queued.fetch_sub(beside.len(), Ordering::Relaxed);
                if let Message::Status { stream, received, .. } = &envelope.message {
                    self.shipping.acknowledged(envelope.from.node, *stream, *received);
                }
                self.step(Event::Received(*envelope), &beside)
            }
            Input::Store(event) => self.step(event, &[]),
            Input::Kernel(done) => self.done(done),
            Input::LogMoved => {
                // What moves from here on is told again. What moved before is seen by this step: the swap acquires what
                // was written before the flag was set.
                self.shared.is_log_moved.swap(false, Ordering::AcqRel);
                self.step(Event::LogMoved, &[])
            }
            Input::Sync => {
                self.sync();
                Ok(())
            }
            Input::Idle => self.step(Event::Drained, &[]),
            Input::Copied(to, cursor) => {
                self.shipping.keep(to, *cursor);
                Ok(())
            }
            Input::AskEnd => {
                self.shared.reads.takes_question();
                self.step(Event::AskEnd, &[])
            }
            Input::Differs(member) => self.step(Event::Differs { member }, &[]),
            Input::Switchover(to) => self.step(Event::Switchover { to }, &[]),
            Input::Add(node) => {
                // The life of a learner decides nothing.
                let member = Member { node, life: Life(0) };
                self.step(Event::AddLearner { member }, &[])
            }
            Input::Remove(node, once) => self.step(Event::Remove { node, once }, &[]),
            Input::Force(without) => self.step(Event::Force { without }, &[]),
            Input::Resign(leads, _) if self.shared.state.lock().leads != leads => Ok(()),
            Input::Resign(_, why) => {
                self.trouble(why);
                self.is_unfit();
                self.step(Event::LogStopped, &[])
            }
            Input::Close => Ok(()),
        }
    }

    fn done(&mut self, done: Done) -> Result<(), Stops> {
        match done {
            Done::Opened(follower, life) => self.opened(follower, life),
            Done::Missing => {
                self.is_missing();
                Ok(())
            }
            Done::Moved => self.step(Event::LogMoved, &[]),
            Done::Synced => {
                if std::mem::replace(&mut self.syncs, Syncs::No) == Syncs::Again {
                    self.sync();
                }
                self.step(Event::LogMoved, &[])
            }
            Done::NotOpened(why) => {
                self.trouble(why);
                self.changes = Changes::None;
                self.open_again = Some(Instant::now() + OPEN_AGAIN);
                self.step(Event::RedoFailed, &[])
            }
            Done::NotCopied(why) => {
                self.trouble(why);
                self.changes = Changes::None;
                self.step(Event::StartOverFailed, &[])
            }
            Done::Led(db, epoch) => {
                let is_wanted = self.changes == Changes::Leads(epoch);
                let leading = Kernel::Leading(db.clone());
                {
                    let mut state = self.shared.state.lock();
                    state.kernel = leading;
                    state.admission = Admission::Open;
                    state.leads += 1;
                    state.running = 0;
                    state.began = self.leads_since.unwrap_or((epoch, LostBefore::default()));
                }
                if !is_wanted {
                    return self.close_and_follow();
                }
                self.changes = Changes::None;
                (self.log_ended, self.is_unfit) = (false, false);
                if let Err(error) = self.watch(&db) {
                    return Err(Stops(format!("no thread can start: {error}")));
                }
                self.step(Event::Led, &[])
            }
            Done::NotLed(why) => {
                self.trouble(format!("it cannot lead: {why}"));
                let is_wanted = matches!(self.changes, Changes::Leads(_));
                let opens = self.changes == Changes::Opens;
                if !opens {
                    self.changes = Changes::None;
                }
                match is_wanted {
                    true => self.step(Event::LeadFailed, &[]),
                    // It is being opened anew already.
                    false if opens => Ok(()),
                    false => self.close_and_follow(),
                }
            }
        }
    }

    /// Tells of the log's growth, while the database leads and other nodes have replicas of it: once each [`LINGER`]. What waits
    /// for its level tells of it at once. Where no other node has a replica nothing is to be shipped, and no thread is woken.
    fn watch(&mut self, db: &rialto::Database) -> io::Result<()> {
        let Ok(mut cursor) = db.log_cursor(None, 0) else { return Ok(()) };
        let (inputs, is_shipped) = (self.inputs.clone(), self.is_shipped.clone());
        let shared = self.shared.clone();
        let watch = move || {
            // It ends with the database, or with the driver.
            loop {
                let is_shipped = is_shipped.load(Ordering::Acquire);
                let patience = if is_shipped { WATCH } else { Duration::ZERO };
                let Ok(has_more) = cursor.has_more(patience) else { return };
                cursor.pass();
                if has_more && !shared.log_moved(&inputs) {
                    return;
                }
                std::thread::park_timeout(if is_shipped { LINGER } else { WATCH });
            }
        };
        let name = format!("rialto-watch-{}", self.shared.partition.0);
        let watching = std::thread::Builder::new().name(name).spawn(watch)?;
        self.watching = Some(watching.thread().clone());
        Ok(())
    }

    /// Looks whether other nodes have replicas.
    fn look_for_others(&mut self) {
        let is_shipped = {
            let state = self.shared.state.lock();
            let known = state.machine.as_ref().and_then(Replica::known);
            known.is_some_and(|known| known.configuration.nodes().any(|node| node != self.me.node))
        };
        let before = self.is_shipped.swap(is_shipped, Ordering::AcqRel);
        if is_shipped
            && !before
            && let Some(watching) = &self.watching
        {
            watching.unpark();
        }
    }

    fn tick(&mut self) -> Result<(), Stops> {
        if self.open_again.is_some_and(|at| Instant::now() >= at) {
            self.open_again()?;
        }
        let (log_ended, redo_failed) = match &self.shared.state.lock().kernel {
            Kernel::Leading(db) => (db.stopped().map(|error| error.to_string()), None),
            Kernel::Following(follower) => (
                follower.database().stopped().map(|error| error.to_string()),
                follower.failure().map(|error| error.to_string()),
            ),
            Kernel::Closed => (None, None),
        };
        if let Some(why) = log_ended
            && !std::mem::replace(&mut self.log_ended, true)
        {
            self.trouble(format!("its log has stopped: {why}"));
            self.step(Event::LogStopped, &[])?;
        }
        if let Some(why) = redo_failed
            && !self.is_unfit
        {
            self.trouble(format!("its redo has failed: {why}"));
            self.is_unfit();
            self.step(Event::RedoFailed, &[])?;
        }
        self.look_at_opening()?;
        self.step(Event::Tick, &[])?;
        self.look_for_others();
        self.forget_trouble();
        Ok(())
    }

    /// Tells whether the redo moves of a database that is to take transactions.
    fn look_at_opening(&mut self) -> Result<(), Stops> {
        let reached = match (&self.shared.state.lock().kernel, self.changes) {
            (Kernel::Following(follower), Changes::Leads(_)) => (follower.redone(), follower.steps()),
            _ => return Ok(()),
        };
        match self.opening_at.replace(reached) {
            Some(before) if before == reached => Ok(()),
            _ => self.step(Event::OpeningMoved, &[]),
        }
    }

    /// What went wrong is over once the replica is in sync, and fit.
    fn forget_trouble(&self) {
        let mut state = self.shared.state.lock();
        let known = state.machine.as_ref().and_then(Replica::known);
        let is_in_sync = known.is_some_and(|known| known.configuration.is_in_sync(self.me));
        if is_in_sync && !self.is_unfit && !self.log_ended && self.changes == Changes::None {
            state.trouble = None;
        }
    }

    // Steps and their effects.

    fn step(&mut self, event: Event, beside: &[u8]) -> Result<(), Stops> {
        self.one_step(event, beside)?;
        self.follow_up()
    }

    fn follow_up(&mut self) -> Result<(), Stops> {
        while self.left.is_none()
            && let Some(event) = self.follow_ups.pop_front()
        {
            self.one_step(event, &[])?;
        }
        Ok(())
    }

    fn one_step(&mut self, event: Event, beside: &[u8]) -> Result<(), Stops> {
        let message = match &event {
            Event::Received(envelope) => Some(envelope.message.clone()),
            _ => None,
        };
        {
            let mut state = self.shared.state.lock();
            let at = At { now: self.shared.clock.now(), log: state.kernel.log() };
            // Before the database is open nothing happens.
            let Some(machine) = &mut state.machine else { return Ok(()) };
            machine.step(at, event, &mut self.effects);
            if machine.role() == RoleKind::Following && self.leads_since.is_some() {
                // What has its place and was not answered is not answered any more.
                state.leads += 1;
            }
        }
        let effects = VecDeque::from(std::mem::take(&mut self.effects));
        self.carry_out_all(effects, message, beside)
    }

    fn carry_out_all(
        &mut self,
        mut effects: VecDeque<Effect>,
        message: Option<Message>,
        beside: &[u8],
    ) -> Result<(), Stops> {
        while let Some(effect) = effects.pop_front() {
            if self.is_at_once && self.may_wait(&effect) {
                effects.push_front(effect);
                self.left = Some(Left { effects, message, beside: beside.to_vec() });
                return Ok(());
            }
            self.carry_out(effect, message.as_ref(), beside)?;
        }
        Ok(())
    }

    /// What another thread has left of its step.
    fn carry_out_left(&mut self) -> Result<(), Stops> {
        let Some(Left { effects, message, beside }) = self.left.take() else { return Ok(()) };
        self.carry_out_all(effects, message, &beside)?;
        self.follow_up()
    }

    fn carry_out(&mut self, effect: Effect, message: Option<&Message>, beside: &[u8]) -> Result<(), Stops> {
        match effect {
            Effect::Save(saved) => {
                assert!(!self.is_at_once, "only the driver's thread writes the replica's file");
                self.saved = saved;
                let written = self.saved_file.write(&saved);
                written.map_err(|error| Stops(format!("its file cannot be written: {error}")))?;
            }
            Effect::Send(envelope) => {
                let to = envelope.to;
                // It may be lost.
                let _ = self.sending.send(to, Class::Protocol, &Packet::Replication(envelope), &[]);
            }
            Effect::Read(ticket) => self.requests.read(ticket),
            Effect::Swap { ticket, store, expected, configuration } => {
                self.requests.swap(ticket, store, expected, configuration);
            }
            Effect::Ship { to, stream, begin, end } => {
                let (kernel, epoch) = {
                    let state = self.shared.state.lock();
                    let epoch = state.machine.as_ref().map_or(Epoch(0), Replica::epoch);
                    (state.kernel.clone(), epoch)
                };
                let Kernel::Leading(db) = kernel else { return Ok(()) };
                if let Err(NotShipped::NotThere) = self.shipping.ship(&db, epoch, to, stream, (begin, end)) {
                    self.follow_ups.push_back(Event::CannotShip { to: to.node, stream });
                }
            }
            Effect::Append { .. } => self.append(message, beside),
            Effect::RedoUpTo(last) => {
                if let Kernel::Following(follower) = &self.shared.state.lock().kernel {
                    self.shared.reads.allow(last);
                    follower.redo_up_to(last);
                }
            }
            Effect::EndKnown { asked_at, end } => self.shared.reads.end_known(asked_at, end.lsn),
            Effect::SyncDisk => self.sync(),
            Effect::Lead { epoch, lost_before } => self.lead(epoch, lost_before),
            Effect::Follow => self.follow()?,
            Effect::Drain => {
                let is_idle = {
                    let mut state = self.shared.state.lock();
                    state.admission = Admission::Draining;
                    state.running == 0
                };
                if is_idle {
                    self.follow_ups.push_back(Event::Drained);
                }
            }
            Effect::GoOn => self.shared.state.lock().admission = Admission::Open,
            Effect::StartOver { primary } => self.start_over(primary),
            Effect::AnswersGrew => self.answer_waiting(),
            Effect::Report(report) => self.trouble(in_words(&report)),
        }
        Ok(())
    }

    /// Writes the log to the disk, up to its end as it is now.
    fn sync(&mut self) {
        if self.syncs != Syncs::No {
            self.syncs = Syncs::Again;
            return;
        }
        self.syncs = Syncs::Once;
        let kernel = self.shared.state.lock().kernel.clone();
        self.work.begin(Task::Sync(kernel));
    }

    fn append(&mut self, message: Option<&Message>, beside: &[u8]) {
        let Some(Message::Blocks { begin, end, .. }) = message else { return };
        let Ok(blocks) = blocks(beside, *begin, *end) else { return };
        let kernel = self.shared.state.lock().kernel.clone();
        let Kernel::Following(follower) = kernel else { return };
        match follower.append(&blocks) {
            Ok(()) => {}
            Err(Error::LoadFileMissing { number, .. }) => {
                let from = {
                    let state = self.shared.state.lock();
                    state.machine.as_ref().and_then(|machine| Some(machine.known()?.configuration.primary))
                };
                if let Some(from) = from {
                    self.work.begin(Task::LoadFile { from, number, follower });
                }
            }
            Err(error) => {
                self.trouble(format!("blocks of the log cannot be taken: {error}"));
                self.is_unfit();
                self.follow_ups.push_back(Event::AppendFailed);
            }
        }
        self.follow_ups.push_back(Event::LogMoved);
    }

    fn lead(&mut self, epoch: Epoch, lost_before: LostBefore) {
        self.leads_since = Some((epoch, lost_before));
        let kernel = self.shared.state.lock().kernel.clone();
        match kernel {
            // It is to be closed first.
            Kernel::Following(_) if self.changes != Changes::None => {
                self.follow_ups.push_back(Event::LeadFailed)
            }
            Kernel::Following(follower) => {
                (self.changes, self.opening_at) = (Changes::Leads(epoch), None);
                // The redo is not to wait for them.
                self.shared.reads.close();
                self.work.begin(Task::Lead(follower, epoch));
            }
            Kernel::Leading(_) => self.follow_ups.push_back(Event::Led),
            Kernel::Closed => self.follow_ups.push_back(Event::LeadFailed),
        }
    }

    fn follow(&mut self) -> Result<(), Stops> {
        self.leads_since = None;
        let mut state = self.shared.state.lock();
        state.leads += 1;
        match &state.kernel {
            Kernel::Leading(_) => {
                drop(state);
                self.close_and_follow()
            }
            Kernel::Following(_) => {
                drop(state);
                match self.changes {
                    // It is closed once that has ended.
                    Changes::Leads(_) => {
                        self.changes = Changes::LeadsInVain;
                        Ok(())
                    }
                    _ => self.close_and_follow(),
                }
            }
            Kernel::Closed => Ok(()),
        }
    }

    /// Closes the database that has led, and opens it as a follower.
    fn close_and_follow(&mut self) -> Result<(), Stops> {
        let kernel = self.close_kernel();
        self.changes = Changes::Opens;
        self.work.begin(Task::Follow(kernel));
        Ok(())
    }

    fn close_kernel(&mut self) -> Kernel {
        self.shared.reads.close();
        let mut state = self.shared.state.lock();
        self.shared.changed.notify_all();
        std::mem::replace(&mut state.kernel, Kernel::Closed)
    }

    fn start_over(&mut self, primary: NodeId) {
        if self.changes != Changes::None {
            // Nothing was touched. It is asked for again.
            return self.follow_ups.push_back(Event::StartOverFailed);
        }
        let old = self.close_kernel();
        self.changes = Changes::Opens;
        self.work.begin(Task::StartOver { from: primary, old });
    }

    fn ship_again(&mut self) -> Result<(), Stops> {
        for (to, stream, why) in self.shipping.go_on_all() {
            if why == NotShipped::NotThere {
                self.step(Event::CannotShip { to, stream }, &[])?;
            }
        }
        Ok(())
    }
}

fn in_words(report: &Report) -> String {
    let point = |point: &LogPoint| format!("place {}", point.lsn.0);
    match report {
        Report::StoreRefused { found } => format!(
            "the control store has the configuration of {}, and this replica has seen a newer one, or another store: it \
             was restored. To go on with this store, make a replica lead: rialto cluster force-promote",
            found.configuration.epoch
        ),
        Report::CutOffRefused => {
            "the primary asks this replica to start over with a copy, but it is in sync, and does not"
                .to_owned()
        }
        Report::Removed { epoch } => format!("the partition has no replica on this node since {epoch}"),
        Report::CannotLead { epoch } => format!("it was to lead in {epoch}, but its database cannot"),
        Report::ForceRefused => {
            "it cannot lead by force: the partition has no replica here, or its database is not whole"
                .to_owned()
        }
        Report::ForcedLoss { ahead, unasked } => {
            let ahead: Vec<String> =
                ahead.iter().map(|(node, end)| format!("{node} (up to {})", point(end))).collect();
            let unasked: Vec<String> = unasked.iter().map(NodeId::to_string).collect();
            format!(
                "it leads by force. What only these replicas have is lost: [{}]. These were not asked: [{}]",
                ahead.join(", "),
                unasked.join(", ")
            )
        }
    }
}
