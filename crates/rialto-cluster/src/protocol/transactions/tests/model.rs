//! The model of a partition's kernel: keys with a balance and a list of their writers, locks with bounded waits, a log
//! of which a standby and a disk have a prefix, room for commits.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::transactions::{
    Access, Keeps, Level, Locking, Lost, Ran, RowChange, Start, Step, SystemRows, TransactionId, Work,
};
use crate::protocol::{NodeId, PartitionId};

/// The longest wait for a lock.
pub const LOCK_WAIT: Duration = Duration::from_millis(50);
/// Keys of a partition.
pub const KEYS: u8 = 3;
/// How many commits have room at a time.
const ROOM: usize = 4;

/// The work of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bank;

impl Work for Bank {
    type Action = Vec<Op>;
    type Reply = Answer;
}

/// What an action does, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Reads a key.
    Read(u8),
    /// Reads a key, adds to its balance, and appends the transaction to its writers.
    Add(u8, i64),
    /// Fails, as a statement does: what the action has written is undone, and its transaction goes on.
    Fail,
}

/// Whether the action writes in the end.
pub fn writes(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Add(..))) && !ops.contains(&Op::Fail)
}

/// What a transaction has seen of a key: how many had written it, and the last of them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Seen {
    pub key: (PartitionId, u8),
    pub writers: usize,
    pub last: Option<TransactionId>,
    pub balance: i64,
}

/// What an action, or a transaction, gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answer {
    pub seen: Vec<Seen>,
    pub has_failed: bool,
}

/// A key's value.
#[derive(Debug, Clone, Default)]
pub struct Value {
    pub balance: i64,
    pub writers: Vec<TransactionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Shared,
    Exclusive,
}

#[derive(Debug, Clone)]
enum Effects {
    None,
    Prepared { writes: Vec<(u8, i64)>, locks: BTreeMap<u8, Mode> },
    Committed(Vec<(u8, i64)>),
}

#[derive(Debug, Clone)]
struct Record {
    transaction: TransactionId,
    effects: Effects,
    rows: Vec<RowChange<Bank>>,
}

#[derive(Debug, Clone)]
struct Running {
    sequence: u32,
    ops: Vec<Op>,
    at: usize,
    seen: Vec<Seen>,
    until: Duration,
    written_before: usize,
}

#[derive(Debug, Clone)]
struct Open {
    locking: Locking,
    writes: Vec<(u8, i64)>,
    locks: BTreeMap<u8, Mode>,
    running: Option<Running>,
    has_room: bool,
}

/// What the kernel tells the participant.
#[derive(Debug, Clone)]
pub enum Told {
    Ran(TransactionId, u32, Option<Ran<Bank>>),
    Durable(TransactionId, Step),
}

/// A partition.
#[derive(Debug, Clone)]
pub struct Model {
    id: PartitionId,
    values: Vec<Value>,
    pub rows: SystemRows<Bank>,
    open: BTreeMap<TransactionId, Open>,
    waiting: Vec<TransactionId>,
    log: Vec<Record>,
    replicated: usize,
    on_disk: usize,
    awaited: Vec<(TransactionId, Step, usize, Level)>,
    /// Room that other work has taken.
    pub taken: usize,
    /// Reads without locks pass rows that a transaction over several partitions has written.
    pub passes_writes: bool,
    told: Vec<Told>,
}

impl Model {
    pub fn new(id: PartitionId) -> Model {
        Model {
            id,
            values: vec![Value { balance: 100, writers: Vec::new() }; usize::from(KEYS)],
            rows: SystemRows::default(),
            open: BTreeMap::new(),
            waiting: Vec::new(),
            log: Vec::new(),
            replicated: 0,
            on_disk: 0,
            awaited: Vec::new(),
            taken: 0,
            passes_writes: false,
            told: Vec::new(),
        }
    }

    pub fn take_told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    pub fn value(&self, key: u8) -> &Value {
        &self.values[usize::from(key)]
    }

    /// Whether nothing is open, locked or prepared.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty() && self.awaited.is_empty()
    }

    /// Whether a commit of this transaction is in the part of the log that no promotion loses.
    pub fn has_durable_commit(&self, id: TransactionId) -> bool {
        let is_commit = |record: &Record| matches!(record.effects, Effects::Committed(_));
        self.log[..self.replicated].iter().any(|record| record.transaction == id && is_commit(record))
    }

    pub fn begin(&mut self, id: TransactionId, locking: Locking) {
        let open =
            Open { locking, writes: Vec::new(), locks: BTreeMap::new(), running: None, has_room: false };
        assert!(self.open.insert(id, open).is_none(), "{id} has a branch in {}", self.id);
    }

    pub fn run(&mut self, id: TransactionId, sequence: u32, ops: Vec<Op>, now: Duration) {
        let open = self.open.get_mut(&id).expect("it has begun");
        let (written_before, until) = (open.writes.len(), now + LOCK_WAIT);
        open.running = Some(Running { sequence, ops, at: 0, seen: Vec::new(), until, written_before });
        self.waiting.push(id);
        self.go_on();
    }

    /// Whether the commit has room now.
    pub fn reserve(&mut self, id: TransactionId) -> bool {
        let has_room = self.has_room();
        self.open.get_mut(&id).expect("it is open").has_room = has_room;
        has_room
    }

    pub fn prepare(&mut self, id: TransactionId, rows: Vec<RowChange<Bank>>, level: Level) {
        let open = &self.open[&id];
        let effects = Effects::Prepared { writes: open.writes.clone(), locks: open.locks.clone() };
        self.append(id, effects, rows);
        self.wait_for(id, Step::Prepared, level);
    }

    pub fn commit(&mut self, id: TransactionId, keeps: Keeps, rows: Vec<RowChange<Bank>>, level: Level) {
        let has_room = self.open[&id].has_room || self.has_room();
        assert!(has_room, "{id} is decided and finds no room in {}", self.id);
        let mut open = self.open.remove(&id).expect("it is open");
        if keeps == Keeps::AnswerOnly {
            open.writes.clear();
        }
        for (key, delta) in &open.writes {
            let value = &mut self.values[usize::from(*key)];
            value.balance += delta;
            value.writers.push(id);
        }
        if !(open.writes.is_empty() && rows.is_empty()) {
            self.append(id, Effects::Committed(open.writes), rows);
        }
        self.wait_for(id, Step::Commit, level);
        self.go_on();
    }

    pub fn abort(&mut self, id: TransactionId, rows: Vec<RowChange<Bank>>, level: Level) {
        assert!(self.open.remove(&id).is_some(), "{id} is not open in {}", self.id);
        self.waiting.retain(|waiting| *waiting != id);
        self.awaited.retain(|(awaited, ..)| *awaited != id);
        if !rows.is_empty() {
            self.append(id, Effects::None, rows);
            self.wait_for(id, Step::Aborted, level);
        }
        self.go_on();
    }

    pub fn await_reads(&mut self, id: TransactionId, level: Level) {
        self.wait_for(id, Step::Reads, level);
    }

    pub fn await_answer(&mut self, id: TransactionId, level: Level) {
        self.wait_for(id, Step::Answer, level);
    }

    pub fn write(&mut self, id: TransactionId, rows: Vec<RowChange<Bank>>, level: Level, step: Step) {
        self.append(id, Effects::None, rows);
        self.wait_for(id, step, level);
    }

    /// The opening that follows a loss says so in a row.
    pub fn has_lost(&mut self, lost: Lost) {
        let none = TransactionId { node: NodeId(0), start: Start(0), number: 0 };
        self.append(none, Effects::None, vec![RowChange::Lost(lost)]);
    }

    /// Ends waits for locks that have taken too long.
    pub fn tick(&mut self, now: Duration) {
        for at in (0..self.waiting.len()).rev() {
            let id = self.waiting[at];
            let open = self.open.get_mut(&id).expect("it waits");
            if open.running.as_ref().is_some_and(|running| running.until <= now) {
                self.waiting.remove(at);
                let sequence = open.running.take().expect("it runs").sequence;
                self.told.push(Told::Ran(id, sequence, None));
            }
        }
    }

    /// Standbys, or the disk, have so many more records.
    pub fn progress(&mut self, replicated: usize, on_disk: usize) {
        self.replicated = (self.replicated + replicated).min(self.log.len());
        self.on_disk = (self.on_disk + on_disk).min(self.log.len());
        self.tell_what_is_durable();
    }

    /// Whether all of the log is durable at each level.
    pub fn is_durable(&self) -> bool {
        self.replicated.min(self.on_disk) == self.log.len()
    }

    /// How many records have come since the oldest decision that is remembered, with it.
    pub fn since_decision(&self) -> usize {
        let is_remembered = |change: &RowChange<Bank>| match change {
            RowChange::Decision(id, ..) => self.rows.decisions.iter().any(|(of, ..)| of == id),
            _ => false,
        };
        let at = self.log.iter().position(|record| record.rows.iter().any(is_remembered));
        at.map_or(0, |at| self.log.len() - at)
    }

    /// How many records the disk is not known to have.
    pub fn not_on_disk(&self) -> usize {
        self.log.len() - self.on_disk
    }

    /// How many records no standby is known to have.
    pub fn unreplicated(&self) -> usize {
        self.log.len() - self.replicated
    }

    pub fn replicated(&self) -> usize {
        self.replicated
    }

    /// The next opening, of this process or of a promoted standby, has the log without its newest records.
    pub fn fail_over(&mut self, lost: usize) {
        let log = std::mem::take(&mut self.log);
        let (replicated, on_disk) = (self.replicated, self.on_disk);
        let passes_writes = self.passes_writes;
        *self = Model::new(self.id);
        self.passes_writes = passes_writes;
        let kept = log.len() - lost;
        for record in log.into_iter().take(kept) {
            self.redo(&record);
            self.log.push(record);
        }
        self.replicated = replicated.min(kept);
        self.on_disk = on_disk.min(kept);
        // What has not prepared is gone; those that have keep their locks and their room.
    }

    fn redo(&mut self, record: &Record) {
        let id = record.transaction;
        match &record.effects {
            Effects::None => {}
            Effects::Prepared { writes, locks } => {
                let open = Open {
                    locking: Locking::ReadsLock,
                    writes: writes.clone(),
                    locks: locks.clone(),
                    running: None,
                    has_room: true,
                };
                self.open.insert(id, open);
            }
            Effects::Committed(writes) => {
                for (key, delta) in writes {
                    let value = &mut self.values[usize::from(*key)];
                    value.balance += delta;
                    value.writers.push(id);
                }
            }
        }
        for change in &record.rows {
            self.rows.apply(change);
            if let RowChange::NotPrepared(id) = change {
                self.open.remove(id);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.taken + self.open.values().filter(|open| open.has_room).count() < ROOM
    }

    /// Other work takes all the room that there is.
    pub fn fill(&mut self) {
        self.taken = ROOM - self.open.values().filter(|open| open.has_room).count().min(ROOM);
    }

    fn append(&mut self, transaction: TransactionId, effects: Effects, rows: Vec<RowChange<Bank>>) {
        rows.iter().for_each(|change| self.rows.apply(change));
        self.log.push(Record { transaction, effects, rows });
    }

    fn wait_for(&mut self, id: TransactionId, step: Step, level: Level) {
        self.awaited.push((id, step, self.log.len(), level));
        self.tell_what_is_durable();
    }

    fn tell_what_is_durable(&mut self) {
        let (replicated, on_disk, told) = (self.replicated, self.on_disk, &mut self.told);
        self.awaited.retain(|&(id, step, up_to, level)| {
            let is_durable = match level {
                Level::Memory => true,
                Level::Standby => up_to <= replicated,
                Level::Disk => up_to <= replicated.min(on_disk),
            };
            if is_durable {
                told.push(Told::Durable(id, step));
            }
            !is_durable
        });
    }

    /// Runs each waiting action as far as its locks are free, the first that waits first.
    fn go_on(&mut self) {
        let mut at = 0;
        while at < self.waiting.len() {
            let id = self.waiting[at];
            if self.go_on_with(id) {
                self.waiting.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether the action is done.
    fn go_on_with(&mut self, id: TransactionId) -> bool {
        loop {
            let open = &self.open[&id];
            let running = open.running.as_ref().expect("it runs");
            let Some(op) = running.ops.get(running.at).copied() else {
                let open = self.open.get_mut(&id).expect("it is open");
                let Running { sequence, seen, .. } = open.running.take().expect("it runs");
                let access = if open.writes.is_empty() { Access::Reads } else { Access::Writes };
                let reply = Answer { seen, has_failed: false };
                self.told.push(Told::Ran(
                    id,
                    sequence,
                    Some(Ran { reply, access, has_failed: false, is_passing: false }),
                ));
                return true;
            };
            let only_reads = running.ops.iter().all(|op| matches!(op, Op::Read(_)));
            let (key, mode) = match op {
                Op::Read(key) => (key, Mode::Shared),
                Op::Add(key, _) => (key, Mode::Exclusive),
                Op::Fail => {
                    let open = self.open.get_mut(&id).expect("it is open");
                    let running = open.running.as_mut().expect("it runs");
                    open.writes.truncate(running.written_before);
                    running.at = running.ops.len();
                    continue;
                }
            };
            if open.locking == Locking::AsAlone && only_reads {
                // At one instant, after each decision that may have been told.
                let is_written = |other: &Open, key: &u8| {
                    let is_over_partitions = other.locking == Locking::ReadsLock;
                    is_over_partitions && other.locks.get(key) == Some(&Mode::Exclusive)
                };
                let reads_written = |op: &Op| match op {
                    Op::Read(key) => self.open.values().any(|other| is_written(other, key)),
                    Op::Add(..) | Op::Fail => false,
                };
                if !self.passes_writes && running.ops.iter().any(reads_written) {
                    return false;
                }
            } else {
                let conflicts = self.open.iter().any(|(of, other)| {
                    let held = other.locks.get(&key);
                    *of != id && held.is_some_and(|held| *held.max(&mode) == Mode::Exclusive)
                });
                if conflicts {
                    return false;
                }
            }
            let value = &self.values[usize::from(key)];
            let seen = Seen {
                key: (self.id, key),
                writers: value.writers.len(),
                last: value.writers.last().copied(),
                balance: value.balance,
            };
            let open = self.open.get_mut(&id).expect("it is open");
            if open.locking == Locking::ReadsLock || !only_reads {
                let held = open.locks.entry(key).or_insert(mode);
                *held = (*held).max(mode);
            }
            if let Op::Add(key, delta) = op {
                open.writes.push((key, delta));
            }
            let running = open.running.as_mut().expect("it runs");
            running.seen.push(seen);
            running.at += 1;
        }
    }
}
