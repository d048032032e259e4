//! [`InProcess`]: partitions in one process, each a database in memory, for tests.
//!
//! A branch runs on a thread of its own. All that passes between a session and its branches is encoded and decoded, as
//! on a network. The commit is a two-phase commit without a log of its own: nothing decides after a crash.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rialto::io::MemoryDisk;
use rialto::{Checkpointing, Database, Durability, Options};
use rialto_sql::parse::READING_ROOM_BYTES;
use rialto_sql::partitions::{
    Answer, BranchCanceller, BranchPool, BranchSession, Branches, CancelBranches, Choices, Next, Opening,
    PartitionNumber, Partitions, Portions, Reply, Request, Told, Work,
};
use rialto_sql::room::Room;
use rialto_sql::{Result, Session, SqlError, SqlState};

/// What was counted.
#[derive(Default)]
pub struct Counts {
    /// Calls of [`Branches::run`].
    pub exchanges: AtomicU64,
    /// Branches that were opened.
    pub branches: AtomicU64,
    /// Branches that may not be prepared: their transactions have no other branch.
    pub alone: AtomicU64,
    /// Calls of [`Branches::commit`].
    pub commits: AtomicU64,
    /// Of these, those with a two-phase commit.
    pub two_phase: AtomicU64,
    /// The bytes of the largest reply.
    pub largest_reply: AtomicUsize,
}

impl Counts {
    pub fn take(counter: &AtomicU64) -> u64 {
        counter.swap(0, Ordering::SeqCst)
    }
}

/// Partitions in one process.
pub struct InProcess {
    pools: Vec<Arc<BranchPool>>,
    nearest: PartitionNumber,
    names: Arc<AtomicU64>,
    pub counts: Arc<Counts>,
}

pub fn new_database(memory_bytes: u64) -> Database {
    let options = Options {
        memory_bytes,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        transactions_max: 64,
        packets_max: 128,
        memory_flush_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    Database::open_on(MemoryDisk::new(), options).expect("a new database opens")
}

impl InProcess {
    pub fn new(count: u32) -> Arc<InProcess> {
        InProcess::of((0..count).map(|_| new_database(64 << 20)).collect())
    }

    pub fn of(databases: Vec<Database>) -> Arc<InProcess> {
        let nearest = PartitionNumber(databases.len() as u32 / 2);
        let pools = databases.into_iter().map(BranchPool::new).collect();
        Arc::new(InProcess { pools, nearest, names: Arc::default(), counts: Arc::default() })
    }

    pub fn databases(&self) -> Vec<Database> {
        self.pools.iter().map(|pool| pool.database().clone()).collect()
    }

    /// A session of the user `ann`, in the database `bank`.
    pub fn session(self: &Arc<InProcess>) -> Session {
        Session::over_partitions(self.clone(), "ann", "bank", Room::new(READING_ROOM_BYTES))
    }
}

impl Partitions for InProcess {
    fn count(&self) -> u32 {
        self.pools.len() as u32
    }

    fn nearest(&self) -> PartitionNumber {
        self.nearest
    }

    fn catalog(&self) -> Database {
        self.pools[self.nearest.0 as usize].database().clone()
    }

    fn begin(&self, opening: &Opening) -> Result<Box<dyn Branches>> {
        Ok(Box::new(Transaction {
            pools: self.pools.clone(),
            opening: opening.clone(),
            names: self.names.clone(),
            counts: self.counts.clone(),
            branches: BTreeMap::new(),
            cancels: Arc::default(),
            has_defined: false,
            is_over: false,
        }))
    }
}

/// What the thread of a branch is told.
enum Order {
    Request(Vec<u8>),
    ClearCancellation,
    Settle,
    Prepare(String),
    Commit,
    Abort,
}

/// The branch of one partition, on its thread.
struct Branch {
    orders: Sender<Order>,
    replies: Receiver<Vec<u8>>,
    outcomes: Receiver<Result<()>>,
    thread: Option<thread::JoinHandle<()>>,
    has_written: bool,
}

#[derive(Default)]
struct Cancels {
    is_asked: bool,
    cancellers: Vec<BranchCanceller>,
}

struct Cancel(Arc<Mutex<Cancels>>);

impl CancelBranches for Cancel {
    fn cancel(&self) {
        let mut cancels = self.0.lock().unwrap();
        cancels.is_asked = true;
        cancels.cancellers.iter().for_each(BranchCanceller::cancel);
    }
}

struct Transaction {
    pools: Vec<Arc<BranchPool>>,
    opening: Opening,
    names: Arc<AtomicU64>,
    counts: Arc<Counts>,
    branches: BTreeMap<PartitionNumber, Branch>,
    cancels: Arc<Mutex<Cancels>>,
    /// A transaction that has changed definitions cannot be prepared.
    has_defined: bool,
    is_over: bool,
}

impl Transaction {
    fn open(&mut self, partition: PartitionNumber) -> &mut Branch {
        let (pools, opening, cancels, counts) = (&self.pools, &self.opening, &self.cancels, &self.counts);
        self.branches.entry(partition).or_insert_with(|| {
            let (orders, inbox) = channel();
            let (outbox, replies) = channel();
            let (told, outcomes) = channel();
            let pool = pools[partition.0 as usize].clone();
            let (opening, cancels, counts) = (opening.clone(), cancels.clone(), counts.clone());
            counts.branches.fetch_add(1, Ordering::SeqCst);
            let thread =
                thread::spawn(move || Worker { pool, opening, cancels, counts, inbox, outbox, told }.serve());
            Branch { orders, replies, outcomes, thread: Some(thread), has_written: false }
        })
    }

    fn order(&mut self, partition: PartitionNumber, order: Order) -> Result<()> {
        let branch = self.branches.get_mut(&partition).expect("the branch is open");
        branch.orders.send(order).expect("its thread runs");
        branch.outcomes.recv().expect("its thread runs")
    }

    fn order_all(&mut self, partitions: &[PartitionNumber], order: impl Fn() -> Order) -> Result<()> {
        let outcomes: Vec<_> = partitions.iter().map(|partition| self.order(*partition, order())).collect();
        outcomes.into_iter().collect()
    }
}

impl Branches for Transaction {
    fn run(&mut self, requests: Vec<(PartitionNumber, Request)>) -> Vec<Reply> {
        assert!(!self.is_over, "the transaction is over");
        self.counts.exchanges.fetch_add(1, Ordering::SeqCst);
        let partitions: Vec<_> = requests.iter().map(|(partition, _)| *partition).collect();
        let mut then_commits = false;
        for (partition, request) in requests {
            if let Request::Run(run) = &request {
                then_commits |= run.then_commit;
                self.has_defined |=
                    matches!(&run.work, Work::Statement(statement) if statement.expects.is_none());
            }
            let bytes = postcard::to_stdvec(&request).unwrap();
            self.open(partition).orders.send(Order::Request(bytes)).expect("its thread runs");
        }
        assert!(!then_commits || self.branches.len() == 1, "a transaction of one request has one branch");
        let replies = partitions.into_iter().map(|partition| {
            let branch = self.branches.get_mut(&partition).unwrap();
            let bytes = branch.replies.recv().expect("its thread runs");
            self.counts.largest_reply.fetch_max(bytes.len(), Ordering::SeqCst);
            let reply: Reply = postcard::from_bytes(&bytes).unwrap();
            branch.has_written = reply.has_written;
            self.is_over |= then_commits && !matches!(reply.answer, Ok(Answer::More(_)));
            reply
        });
        replies.collect()
    }

    fn canceller(&self) -> Arc<dyn CancelBranches> {
        Arc::new(Cancel(self.cancels.clone()))
    }

    fn clear_cancellation(&mut self) {
        self.cancels.lock().unwrap().is_asked = false;
        for branch in self.branches.values() {
            branch.orders.send(Order::ClearCancellation).expect("its thread runs");
        }
    }

    fn settle(&mut self, _: &Choices) -> Result<()> {
        let all: Vec<_> = self.branches.keys().copied().collect();
        self.order_all(&all, || Order::Settle)
    }

    fn commit(mut self: Box<Self>, _: &Choices) -> Result<()> {
        self.counts.commits.fetch_add(1, Ordering::SeqCst);
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for (partition, branch) in &self.branches {
            if branch.has_written { writers.push(*partition) } else { readers.push(*partition) }
        }
        if writers.len() > 1 && !self.has_defined {
            self.counts.two_phase.fetch_add(1, Ordering::SeqCst);
            let number = self.names.fetch_add(1, Ordering::SeqCst);
            let name = format!("t{number}");
            let mut prepared: Vec<PartitionNumber> = Vec::new();
            for partition in &writers {
                if let Err(error) = self.order(*partition, Order::Prepare(name.clone())) {
                    for partition in prepared {
                        let database = self.pools[partition.0 as usize].database();
                        database.abort_prepared(&name)?.wait()?;
                    }
                    return Err(error);
                }
                prepared.push(*partition);
            }
            for partition in prepared {
                self.pools[partition.0 as usize].database().commit_prepared(&name)?.wait()?;
            }
        } else {
            self.order_all(&writers, || Order::Commit)?;
        }
        self.order_all(&readers, || Order::Commit)
    }

    fn abort(mut self: Box<Self>, _: &Choices) -> Result<()> {
        let all: Vec<_> = self.branches.keys().copied().collect();
        self.order_all(&all, || Order::Abort)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        for branch in self.branches.values_mut() {
            // Without its sender the thread ends.
            branch.orders = channel().0;
            let ended = branch.thread.take().map(thread::JoinHandle::join);
            assert!(thread::panicking() || !matches!(ended, Some(Err(_))), "a branch has panicked");
        }
    }
}

/// The thread of a branch.
struct Worker {
    pool: Arc<BranchPool>,
    opening: Opening,
    cancels: Arc<Mutex<Cancels>>,
    counts: Arc<Counts>,
    inbox: Receiver<Order>,
    outbox: Sender<Vec<u8>>,
    told: Sender<Result<()>>,
}

impl Worker {
    fn serve(self) {
        let mut branch: Option<BranchSession> = None;
        while let Ok(order) = self.inbox.recv() {
            let outcome = match order {
                Order::Request(bytes) => {
                    let reply = self.request(&mut branch, postcard::from_bytes(&bytes).unwrap());
                    let _ = self.outbox.send(postcard::to_stdvec(&reply).unwrap());
                    continue;
                }
                Order::ClearCancellation => {
                    if let Some(branch) = &mut branch {
                        branch.clear_cancellation();
                    }
                    continue;
                }
                Order::Settle => match &mut branch {
                    Some(branch) => branch.settled().and_then(|ticket| Ok(ticket.wait()?)),
                    None => Ok(()),
                },
                Order::Prepare(name) => branch.take().map_or(Ok(()), |branch| branch.prepare(&name, b"")),
                Order::Commit => branch.take().map_or(Ok(()), BranchSession::commit),
                Order::Abort => branch.take().map_or(Ok(()), BranchSession::abort),
            };
            let _ = self.told.send(outcome);
        }
    }

    fn request(&self, branch: &mut Option<BranchSession>, request: Request) -> Reply {
        let Request::Run(run) = request else { panic!("no statement runs: {request:?}") };
        let then_commit = run.then_commit;
        if branch.is_none() {
            self.counts.alone.fetch_add(u64::from(then_commit), Ordering::SeqCst);
            match self.pool.begin(&self.opening, &run) {
                Ok(begun) => {
                    let mut cancels = self.cancels.lock().unwrap();
                    if cancels.is_asked {
                        begun.canceller().cancel();
                    }
                    cancels.cancellers.push(begun.canceller());
                    *branch = Some(begun);
                }
                Err(error) => return Reply { answer: Err(Told::from(&error)), has_written: false },
            }
        }
        let running = branch.as_mut().expect("it was begun");
        let mut reply = running.run(*run, &mut Stream { worker: self });
        if then_commit {
            let ended = branch.take().expect("it has run");
            match &reply.answer {
                Ok(_) => {
                    if let Err(error) = ended.commit() {
                        reply.answer = Err(Told::from(&error));
                    }
                }
                Err(_) => drop(ended.abort()),
            }
        }
        reply
    }
}

struct Stream<'w> {
    worker: &'w Worker,
}

impl Portions for Stream<'_> {
    fn give(&mut self, reply: Reply) -> Result<Next> {
        let _ = self.worker.outbox.send(postcard::to_stdvec(&reply).unwrap());
        loop {
            match self.worker.inbox.recv() {
                Ok(Order::Request(bytes)) => match postcard::from_bytes(&bytes).unwrap() {
                    Request::Fetch => return Ok(Next::Fetch),
                    Request::Close => return Ok(Next::Close),
                    Request::Run(_) => panic!("a statement runs"),
                },
                Ok(Order::ClearCancellation) => {}
                Ok(_) => panic!("a statement runs"),
                Err(_) => return Err(SqlError::new(SqlState::Cancelled, "the session has gone")),
            }
        }
    }
}
