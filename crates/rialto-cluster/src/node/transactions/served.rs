//! [`ServedPartition`]: a partition that this node serves.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rialto::{Error, Lsn, Result, Table, fault_injection};
use rialto_sql::partitions::BranchPool;
use serde::{Deserialize, Serialize};

use super::branch::{Branch, Task, has_no_effect, of_the_system};
use super::cluster::Transactions;
use super::counts::Counters;
use super::directory::Serves;
use super::in_parts::in_parts;
use super::inbox::Given;
use super::rows;
use super::statements_here::StatementsHere;
use super::work::SqlWork;
use super::workers::Job;
use crate::node::calls::time_of_day;
use crate::node::replica::{Haste, Lead};
use crate::protocol::transactions::{
    Decision, Effect, Level, Locking, Message, Opened, Opening, Participant, Ran, RowChange, Step,
    SystemRows, TransactionId, Undecided,
};
use crate::protocol::{NodeId, PartitionId};

/// A partition that this node serves, in one opening.
pub struct ServedPartition {
    serves: Serves,
    lead: Lead,
    pool: Arc<BranchPool>,
    table: Table,
    node: Weak<Transactions>,
    state: Mutex<State>,
    /// Statements that run here without a branch.
    statements: StatementsHere,
    /// Branches that are being prepared.
    preparing: Arc<AtomicUsize>,
}

struct State {
    participant: Participant<SqlWork>,
    /// Those that are open here, or prepared by this opening; none once the partition is not served any more.
    branches: Option<HashMap<TransactionId, Arc<Branch>>>,
    /// Those that have got tasks in this step, and have no thread.
    ready: Vec<Arc<Branch>>,
    /// What an operator has decided in this opening.
    operator_decided: BTreeMap<TransactionId, Decision>,
    /// No branch is prepared meanwhile.
    held: Option<Held>,
    /// Rows that are to go, which nothing waits for, and what is told then.
    to_forget: Forgetting,
}

/// Rows of ended transactions that are to go: many of them go in one transaction.
#[derive(Default)]
struct Forgetting {
    rows: Vec<RowChange<SqlWork>>,
    transactions: Vec<TransactionId>,
    level: Option<Level>,
}

/// The most rows that go in one transaction.
const FORGOTTEN_MAX: usize = 256;

impl State {
    fn branch(&self, id: TransactionId) -> Option<&Arc<Branch>> {
        self.branches.as_ref()?.get(&id)
    }

    /// How far a decision that was made is.
    fn stage(&self, id: TransactionId) -> DecisionStage {
        match self.participant.remembers(id) {
            None => DecisionStage::Over,
            Some(_) if self.participant.is_recording(id) => DecisionStage::Recording,
            Some(_) => DecisionStage::Telling,
        }
    }
}

/// A backup is to find nothing prepared.
struct Held {
    backup: u64,
    until: Instant,
    /// Branches that are to be prepared afterwards.
    waiting: Vec<(TransactionId, Vec<RowChange<SqlWork>>, Level)>,
}

/// Whether a backup finds something prepared in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearance {
    /// Nothing is prepared, and nothing will be as long as it is held.
    Clear,
    /// Something is prepared, and waits for its decision.
    InDoubt,
    /// It is not held for this backup, or not any more.
    NotHeld,
}

/// A branch that is being prepared, from when it is given the task until the kernel has it as prepared or not.
pub struct BeingPrepared(Arc<AtomicUsize>);

impl BeingPrepared {
    fn new(count: &Arc<AtomicUsize>) -> BeingPrepared {
        count.fetch_add(1, Ordering::SeqCst);
        BeingPrepared(count.clone())
    }
}

impl Drop for BeingPrepared {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What an operator sees of the transactions of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The partition.
    pub partition: PartitionId,
    /// Transactions that are open, prepared, unconfirmed or not forgotten.
    pub transactions: usize,
    /// How long the branch that is in doubt for longest has been so.
    pub in_doubt_for: Option<Duration>,
    /// How many are prepared.
    pub prepared: usize,
    /// Transactions that an operator has to decide, after a loss.
    pub undecided: Vec<Undecided>,
    /// Transactions that an operator has decided in this opening, or that an earlier one has decided and told not all branches
    /// of, and how far that is.
    pub decided: Vec<(TransactionId, Decision, DecisionStage)>,
    /// The opening.
    pub opening: Opening,
}

/// How far a decision is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionStage {
    /// It is being written down: if the primary fails now, the transaction is undecided again.
    Recording,
    /// It stays. Not all branches have ended so.
    Telling,
    /// All branches have ended so.
    Over,
}

/// Why an operator's decision on a transaction has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDecided {
    /// It was decided otherwise before.
    Otherwise(Decision, DecisionStage),
    /// This replica does not serve at this moment: another one may be primary.
    NotServing,
    /// It does not wait for an operator here.
    NotUndecided,
}

impl ServedPartition {
    /// A partition whose rows were read by this opening.
    pub fn new(
        serves: Serves,
        lead: Lead,
        table: Table,
        rows: SystemRows<SqlWork>,
        node: &Arc<Transactions>,
    ) -> Arc<ServedPartition> {
        let opened = Opened { partition: serves.partition, opening: serves.opening, rows };
        let participant = Participant::open(opened, node.now());
        let pool = BranchPool::new(lead.database().clone());
        let state = State {
            participant,
            branches: Some(HashMap::new()),
            ready: Vec::new(),
            operator_decided: BTreeMap::new(),
            held: None,
            to_forget: Forgetting::default(),
        };
        let (node, state) = (Arc::downgrade(node), Mutex::new(state));
        let (statements, preparing) = (StatementsHere::default(), Arc::default());
        Arc::new(ServedPartition { serves, lead, pool, table, node, state, statements, preparing })
    }

    pub fn serves(&self) -> Serves {
        self.serves
    }

    /// The node's transactions, unless the node has ended.
    pub fn node(&self) -> Option<Arc<Transactions>> {
        self.node.upgrade()
    }

    pub fn lead(&self) -> &Lead {
        &self.lead
    }

    pub fn pool(&self) -> &Arc<BranchPool> {
        &self.pool
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Statements that run here without a branch.
    pub fn statements(&self) -> &StatementsHere {
        &self.statements
    }

    /// What an operator sees.
    pub fn unfinished(&self, now: Duration) -> Unfinished {
        let state = self.state.lock();
        Unfinished {
            partition: self.serves.partition,
            transactions: state.participant.unfinished(),
            in_doubt_for: state.participant.in_doubt_for(now),
            prepared: self.lead.database().prepared().len(),
            undecided: state.participant.undecided(now),
            decided: state
                .operator_decided
                .iter()
                .map(|(id, decision)| (*id, *decision, state.stage(*id)))
                .collect(),
            opening: self.serves.opening,
        }
    }

    /// An operator decides a transaction that waits for that. What was decided so already stays so.
    ///
    /// # Errors
    /// See [`NotDecided`].
    pub fn operator_decides(
        self: &Arc<ServedPartition>,
        id: TransactionId,
        decision: Decision,
    ) -> std::result::Result<(), NotDecided> {
        // A primary that another one has followed would write nothing that stays.
        if !self.lead.serves() {
            return Err(NotDecided::NotServing);
        }
        let mut settled = false;
        self.step(|participant, _| settled = participant.operator_decides(id, decision));
        let mut state = self.state.lock();
        if settled {
            state.operator_decided.insert(id, decision);
            return Ok(());
        }
        // An operator may have decided it in this opening, and anything in an earlier one.
        let before = state.operator_decided.get(&id).copied().or_else(|| state.participant.remembers(id));
        match before {
            Some(before) if before == decision => {
                state.operator_decided.insert(id, decision);
                Ok(())
            }
            Some(before) => Err(NotDecided::Otherwise(before, state.stage(id))),
            None => Err(NotDecided::NotUndecided),
        }
    }

    /// Whether it knows of a transaction that has not ended everywhere.
    pub fn has(&self, id: TransactionId) -> bool {
        self.state.lock().participant.has(id)
    }

    /// A message has come.
    pub fn receive(self: &Arc<ServedPartition>, message: Message<SqlWork>) {
        self.step(|participant, now| participant.receive(message, now));
    }

    /// A message has come, from a thread that has something to run meanwhile. Gives the branches that have tasks now, and no
    /// thread.
    pub fn receive_here(self: &Arc<ServedPartition>, message: Message<SqlWork>) -> Vec<Arc<Branch>> {
        self.take_step(|participant, now| participant.receive(message, now))
    }

    /// The connection of a node has ended.
    pub fn connection_ended(self: &Arc<ServedPartition>, node: NodeId) {
        self.step(|participant, now| participant.connection_ended(node, now));
    }

    /// Some time has passed.
    pub fn tick(self: &Arc<ServedPartition>) {
        self.step(|participant, now| participant.tick(now));
        if let Some(node) = self.node.upgrade() {
            self.forget(&node, &mut self.state.lock());
        }
        let ended = |held: &Held| held.until <= Instant::now();
        let over = self.state.lock().held.take_if(|held| ended(held));
        self.go_on(over);
    }

    /// No branch is prepared from now on, for at most this time, for a backup. Those that are to be wait. A transaction
    /// that has some of its votes by then, and lacks others, is soon given up.
    pub fn hold(&self, backup: u64, within: Duration) {
        let Some(node) = self.node.upgrade() else { return };
        let mut state = self.state.lock();
        if state.held.is_none() && !fault_injection::is_on("backup-beside-votes") {
            state.held = Some(Held { backup, until: Instant::now() + within, waiting: Vec::new() });
            state.participant.hurry(true, node.now());
        }
    }

    /// Whether something is prepared, while none is for this backup.
    pub fn clearance(&self, backup: u64) -> Clearance {
        if fault_injection::is_on("backup-beside-votes") {
            return Clearance::Clear;
        }
        let state = self.state.lock();
        let holds = |held: &Held| held.backup == backup && held.until > Instant::now();
        if !state.held.as_ref().is_some_and(holds) {
            return Clearance::NotHeld;
        }
        // In this order: what is not being prepared any more, the kernel has.
        let is_being_prepared = self.preparing.load(Ordering::SeqCst) > 0;
        match is_being_prepared || !self.lead.database().prepared().is_empty() {
            true => Clearance::InDoubt,
            false => Clearance::Clear,
        }
    }

    /// Branches are prepared again, if they were not for this backup.
    pub fn release(self: &Arc<ServedPartition>, backup: u64) {
        let over = self.state.lock().held.take_if(|held| held.backup == backup);
        self.go_on(over);
    }

    fn go_on(self: &Arc<ServedPartition>, over: Option<Held>) {
        let (Some(Held { waiting, .. }), Some(node)) = (over, self.node.upgrade()) else { return };
        let mut state = self.state.lock();
        let is_held = state.held.is_some();
        state.participant.hurry(is_held, node.now());
        for (transaction, rows, level) in waiting {
            self.prepare(&node, &mut state, transaction, rows, level);
        }
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        ready.into_iter().for_each(|branch| self.queue(&node, Job::Branch(branch)));
    }

    /// A session wants what its branch runs to end.
    pub fn cancel(&self, id: TransactionId) {
        if let Some(branch) = self.state.lock().branch(id) {
            branch.cancels.lock().cancel();
        }
    }

    /// A branch has run an action, or could not.
    pub fn ran(self: &Arc<ServedPartition>, id: TransactionId, sequence: u32, ran: Option<Ran<SqlWork>>) {
        self.step(|participant, now| participant.ran(id, sequence, ran, now));
    }

    /// A branch has reserved what its commit needs, or there is no room.
    pub fn reserved(self: &Arc<ServedPartition>, id: TransactionId, has_room: bool) {
        self.step(|participant, now| participant.reserved(id, has_room, now));
    }

    /// A step may be answered.
    pub fn durable(self: &Arc<ServedPartition>, id: TransactionId, step: Step) {
        self.step(|participant, now| participant.durable(id, step, now));
    }

    /// A commit that must not fail has failed. Nothing of it is known to have stayed: another opening finds out.
    pub fn commit_failed(&self, id: TransactionId, error: &Error) {
        self.lead.resign(format!("the commit of {id} has failed: {error}"));
    }

    /// The partition is not served any more: what runs here ends, and what is not prepared leaves nothing.
    pub fn end(&self) {
        self.statements.end();
        let branches = self.state.lock().branches.take();
        branches.into_iter().flatten().for_each(|(_, branch)| branch.end());
    }

    fn step(self: &Arc<ServedPartition>, act: impl FnOnce(&mut Participant<SqlWork>, Duration)) {
        let ready = self.take_step(act);
        if let Some(node) = self.node.upgrade() {
            ready.into_iter().for_each(|branch| self.queue(&node, Job::Branch(branch)));
        }
    }

    /// Takes a step. Gives the branches that have tasks then, and no thread.
    fn take_step(
        self: &Arc<ServedPartition>,
        act: impl FnOnce(&mut Participant<SqlWork>, Duration),
    ) -> Vec<Arc<Branch>> {
        let Some(node) = self.node.upgrade() else { return Vec::new() };
        let mut here = Vec::new();
        let ready = {
            let mut state = self.state.lock();
            if !fault_injection::is_on("answers-expire-by-uptime") {
                state.participant.tell_time_of_day(time_of_day());
            }
            act(&mut state.participant, node.now());
            let effects = state.participant.take_effects();
            // In their order, before another step is taken. Nothing of it blocks.
            for effect in effects {
                self.carry_out(&node, &mut state, effect, &mut here);
            }
            std::mem::take(&mut state.ready)
        };
        for message in here {
            node.deliver(message);
        }
        ready
    }

    fn carry_out(
        self: &Arc<ServedPartition>,
        node: &Arc<Transactions>,
        state: &mut State,
        effect: Effect<SqlWork>,
        here: &mut Vec<Message<SqlWork>>,
    ) {
        match effect {
            Effect::Send(message) => here.extend(node.send_away(message)),
            Effect::Begin { transaction, locking } => self.begin(state, transaction, locking),
            Effect::Run { transaction, sequence, action } => {
                self.give(node, state, transaction, Task::Run { sequence, action });
            }
            Effect::Reserve { transaction, level } => {
                self.give(node, state, transaction, Task::Reserve { level });
            }
            Effect::Prepare { transaction, rows, level } => match &mut state.held {
                Some(held) => held.waiting.push((transaction, rows, level)),
                None => self.prepare(node, state, transaction, rows, level),
            },
            Effect::AwaitReads { transaction, level } => {
                self.give(node, state, transaction, Task::AwaitReads { level });
            }
            Effect::AwaitAnswer { transaction, level } => {
                // Another step: the state machine takes one after the other.
                let served = self.clone();
                self.work(node, move || {
                    let place = served.lead.database().log_end().lsn;
                    served.tell(transaction, place, level, Step::Answer);
                });
            }
            Effect::Commit { transaction, keeps, rows, level } => {
                self.give(node, state, transaction, Task::Commit { keeps, rows, level });
            }
            Effect::Abort { transaction, rows, level } => {
                if let Some(held) = &mut state.held {
                    held.waiting.retain(|(waiting, ..)| *waiting != transaction);
                }
                if let Some(branch) = state.branch(transaction) {
                    branch.cancels.lock().cancel();
                }
                self.give(node, state, transaction, Task::Abort { rows, level });
            }
            Effect::Release { transaction } => self.give(node, state, transaction, Task::Release),
            Effect::Write { transaction, rows, level, step: Step::Rows }
                if matches!(rows[..], [RowChange::Forgotten(_) | RowChange::Settled(_)]) =>
            {
                let gathered = &mut state.to_forget;
                gathered.rows.extend(rows);
                gathered.transactions.push(transaction);
                gathered.level = gathered.level.max(Some(level));
                if gathered.rows.len() == FORGOTTEN_MAX {
                    self.forget(node, state);
                }
            }
            Effect::Write { transaction, rows, level, step } => {
                let served = self.clone();
                self.work(node, move || match served.write(&rows) {
                    Ok(place) => served.tell(transaction, place, level, step),
                    // The rows stay until another opening finds them.
                    Err(error) if step == Step::Expired && has_no_effect(&error) => {
                        served.durable(transaction, step);
                    }
                    Err(error) => served.commit_failed(transaction, &error),
                });
            }
            // The operator sees it among the undecided.
            Effect::AskOperator { .. } => {}
        }
    }

    /// Removes the rows that were gathered: in one transaction, or in several where its limits are lower.
    fn forget(self: &Arc<ServedPartition>, node: &Transactions, state: &mut State) {
        let Forgetting { rows, transactions, level: Some(level) } = std::mem::take(&mut state.to_forget)
        else {
            return;
        };
        Counters::add(&node.counters().forgettings);
        let served = self.clone();
        self.work(node, move || {
            // A primary that gave up here would meet the same rows in its next opening.
            let removed = in_parts(0..rows.len(), &has_no_effect, &mut |part| {
                let place = served.write(&rows[part.clone()])?;
                served.tell_all(transactions[part].to_vec(), place, level);
                Ok(())
            });
            if let Err((first, error)) = removed {
                let id = transactions[first];
                served.lead.resign(format!("the row of {id}, which has ended, cannot be removed: {error}"));
            }
        });
    }

    /// Tells of the removed rows of transactions once that may be answered.
    fn tell_all(self: &Arc<ServedPartition>, transactions: Vec<TransactionId>, place: Lsn, level: Level) {
        let served = self.clone();
        let tell = move || transactions.iter().for_each(|id| served.durable(*id, Step::Rows));
        let haste = Haste::Lingers;
        let once = tell.clone();
        let once = move |is_answered: bool| {
            if is_answered {
                once();
            }
        };
        if self.lead.ask((place, level), haste, once) == Some(true) {
            tell();
        }
    }

    fn begin(self: &Arc<ServedPartition>, state: &mut State, id: TransactionId, locking: Locking) {
        // A replica that does not serve at this moment, or drains, answers nothing: its coordinator gives up.
        if let (Some(branches), Ok(admitted)) = (&mut state.branches, self.lead.admit()) {
            branches.insert(id, Branch::new(id, self, locking, admitted));
        }
    }

    fn prepare(
        self: &Arc<ServedPartition>,
        node: &Transactions,
        state: &mut State,
        id: TransactionId,
        rows: Vec<RowChange<SqlWork>>,
        level: Level,
    ) {
        let counted = BeingPrepared::new(&self.preparing);
        self.give(node, state, id, Task::Prepare { rows, level, counted });
    }

    /// Gives a branch a task. One that is not here, as it was prepared by an earlier opening or was not admitted, is not open.
    fn give(
        self: &Arc<ServedPartition>,
        node: &Transactions,
        state: &mut State,
        id: TransactionId,
        task: Task,
    ) {
        Counters::add(&node.counters().tasks);
        let is_last = task.is_last();
        let given = match state.branch(id) {
            Some(branch) => match branch.give(task) {
                Given::Waits => {
                    let branch = branch.clone();
                    state.ready.push(branch);
                    Given::Taken
                }
                given => given,
            },
            None => Given::NotTaken(task),
        };
        if is_last && let Some(branches) = &mut state.branches {
            branches.remove(&id);
        }
        let served = self.clone();
        match given {
            Given::NotTaken(Task::Commit { rows, level, .. }) => {
                self.work(node, move || served.commit_prepared(id, &rows, level));
            }
            Given::NotTaken(Task::Abort { rows, level }) if !rows.is_empty() => {
                self.work(node, move || served.abort_prepared(id, &rows, level));
            }
            // It was not admitted.
            Given::NotTaken(Task::Run { sequence, .. }) => {
                self.work(node, move || served.ran(id, sequence, None));
            }
            Given::NotTaken(_) | Given::Taken | Given::Waits => {}
        }
    }

    fn work(self: &Arc<ServedPartition>, node: &Transactions, job: impl FnOnce() + Send + 'static) {
        self.queue(node, Job::OfPartition(self.clone(), Box::new(job)));
    }

    /// Queues what may block. Without a thread for it nothing comes of it, as if the node had ended.
    pub fn queue(&self, node: &Transactions, job: Job) {
        if let Err(error) = node.workers().run(job) {
            self.has_no_thread(&error);
        }
    }

    /// No thread can start for what may block, so nothing more comes of the partition's transactions here.
    pub fn has_no_thread(&self, error: &io::Error) {
        self.lead.resign(format!(
            "no thread can start for a transaction of {}: {error}. Raise the limits of threads and of memory that the \
             operating system sets for the node's process",
            self.serves.partition
        ));
    }

    /// Commits a prepared branch, and tells when that may be answered.
    pub fn commit_prepared(
        self: &Arc<ServedPartition>,
        id: TransactionId,
        rows: &[RowChange<SqlWork>],
        level: Level,
    ) {
        let db = self.lead.database();
        let body = |tx: &mut rialto::Transaction<'_>| rows::apply(tx, &self.table, rows);
        match retried(|| db.commit_prepared_with(&rows::name(id), body)) {
            // Its client was answered when it was decided.
            Ok(((), ticket)) => self.tell_with(id, (ticket.lsn(), level), Step::Commit, Haste::Lingers),
            // Another opening with the same options would find the same: the branch waits, prepared, for other ones.
            Err(Error::LogTooSmall { length, limit, log_bytes_max }) => {
                self.lead.tell_trouble(format!(
                    "the branch of {id}, which is to commit, needs {length} bytes of the log, and a log of {log_bytes_max} \
                     bytes (log_bytes_max) can make room for {limit}. It keeps its locks, and no other branch can vote here. Start \
                     the nodes that have a replica of {} again with a higher log_bytes_max",
                    self.serves.partition
                ));
            }
            Err(error) => self.commit_failed(id, &error),
        }
    }

    /// Aborts a prepared branch, if it is prepared, and tells when that may be answered.
    pub fn abort_prepared(
        self: &Arc<ServedPartition>,
        id: TransactionId,
        rows: &[RowChange<SqlWork>],
        level: Level,
    ) {
        let db = self.lead.database();
        let body = |tx: &mut rialto::Transaction<'_>| rows::apply(tx, &self.table, rows);
        let placed = match retried(|| db.abort_prepared_with(&rows::name(id), body)) {
            Ok(((), ticket)) => Ok(ticket.lsn()),
            Err(Error::NoSuchPrepared { .. }) => self.write(rows),
            Err(error) => Err(error),
        };
        match placed {
            Ok(place) => self.tell(id, place, level, Step::Aborted),
            Err(error) => self.commit_failed(id, &error),
        }
    }

    /// Writes rows of the system. Gives their place.
    ///
    /// # Errors
    /// Those of the database.
    pub fn write(&self, rows: &[RowChange<SqlWork>]) -> Result<Lsn> {
        let db = self.lead.database();
        let written = retried(|| db.submit_with(&of_the_system(), |tx| rows::apply(tx, &self.table, rows)));
        written.map(|((), ticket)| ticket.lsn())
    }

    /// Tells of a step once its place may be answered at a level. It does not wait.
    pub fn tell(self: &Arc<ServedPartition>, id: TransactionId, place: Lsn, level: Level, step: Step) {
        self.tell_with(id, (place, level), step, Haste::Hurries);
    }

    fn tell_with(
        self: &Arc<ServedPartition>,
        id: TransactionId,
        (place, level): (Lsn, Level),
        step: Step,
        haste: Haste,
    ) {
        let served = self.clone();
        let once = move |is_answered: bool| {
            if is_answered {
                served.durable(id, step);
            }
        };
        if self.lead.ask((place, level), haste, once) == Some(true) {
            self.durable(id, step);
        }
    }

    /// An action has run, and its reply is told once a place may be answered at a level. It does not wait.
    pub fn ran_once_durable(
        self: &Arc<ServedPartition>,
        id: TransactionId,
        sequence: u32,
        ran: Ran<SqlWork>,
        (place, level): (Lsn, Level),
    ) {
        let (served, told) = (self.clone(), ran.clone());
        let once = move |is_answered: bool| served.ran(id, sequence, is_answered.then_some(told));
        if let Some(is_answered) = self.lead.ask((place, level), Haste::Hurries, once) {
            self.ran(id, sequence, is_answered.then_some(ran));
        }
    }
}

/// How many times, and after which pauses, a commit of the system's that must not fail is tried.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Tries again while there is no room, or a lock is taken.
fn retried<T>(mut act: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match act() {
            Err(
                Error::LockTimeout { .. }
                | Error::Deadlock { .. }
                | Error::LogFull { .. }
                | Error::MemoryLimit { .. }
                | Error::TooManyTransactions { .. }
                | Error::PreparedBusy { .. },
            ) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    act()
}
