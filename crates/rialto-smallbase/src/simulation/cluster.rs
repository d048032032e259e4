//! [`Cluster`]: nodes, their threads, and what these do.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rialto::io::Random;

use super::cores::{Arrival, CoreId, Cores, NodeId, Start, ThreadId};
use super::event_queue::EventQueue;
use super::life::{By, Life, Place};
use super::network::Network;
use super::outcome::Simulated;
use super::service::{erlang, exponential};
use super::setup::{Arrivals, Machines, Setup};
use super::threads::{Jobs, Path, Role, Task, Thread};

/// What happens at a time.
enum Event {
    /// The thread of a core has done its step.
    Done(CoreId),
    /// A message is there for a reader.
    Arrives(ThreadId, Task),
    /// A transaction is due at a node.
    Due(NodeId),
    /// A node sends what is for no transaction.
    Beat(NodeId),
}

/// A cluster that runs.
///
/// Invariants:
/// 1. A thread is asleep, in a queue of [`Cores`], or on a core; on a core it has one event to come.
/// 2. Each transaction that has begun is at one place: in an inbox, in a queue of jobs, on its way, or at a thread.
pub struct Cluster<'s> {
    setup: &'s Setup,
    random: Random,
    events: EventQueue<Event>,
    now_ns: u64,
    cores: Cores,
    network: Network,
    threads: Vec<Thread>,
    /// The reader of a connection, by the node that reads and the node that writes.
    readers: HashMap<(NodeId, NodeId), ThreadId>,
    jobs: Vec<Jobs>,
    tickers: Vec<ThreadId>,
    clients: Vec<ThreadId>,
    /// Of an open loop: transactions that are due, by node; and its clients that have nothing to do.
    due: Vec<VecDeque<u64>>,
    free: Vec<Vec<ThreadId>>,
    window_ns: (u64, u64),
    seen: Simulated,
}

fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

impl<'s> Cluster<'s> {
    pub fn new(setup: &'s Setup) -> Cluster<'s> {
        let (machines, per_machine) = match setup.machines {
            Machines::One { cores } => (1, cores),
            Machines::Each { cores } => (setup.nodes as usize, cores),
        };
        let cores = Cores::new(machines, per_machine);
        let nodes = setup.nodes as usize;
        let begin = ns(setup.warmup_s * 1e6);
        let window_ns = (begin, begin + ns(setup.window_s * 1e6));
        let seen = Simulated {
            window_us: setup.window_s * 1e6,
            cores: cores.count(),
            available: setup.available,
            ..Simulated::default()
        };
        let mut cluster = Cluster {
            setup,
            random: Random::new(setup.seed),
            events: EventQueue::new(),
            now_ns: 0,
            network: Network::new(setup.wire, setup.message_bytes, setup.nodes),
            cores,
            threads: Vec::new(),
            readers: HashMap::new(),
            jobs: (0..nodes).map(|_| Jobs::default()).collect(),
            tickers: Vec::new(),
            clients: Vec::new(),
            due: vec![VecDeque::new(); nodes],
            free: vec![Vec::new(); nodes],
            window_ns,
            seen,
        };
        for node in 0..setup.nodes {
            for _ in 0..setup.clients {
                let client = cluster.add_thread(node, Role::Client);
                cluster.clients.push(client);
                cluster.free[node as usize].push(client);
            }
            let ticker = cluster.add_thread(node, Role::Ticker);
            cluster.tickers.push(ticker);
        }
        cluster
    }

    /// Runs until the end of the window.
    pub fn run(mut self) -> Simulated {
        self.begin();
        while let Some((at, event)) = self.events.take() {
            if at > self.window_ns.1 {
                break;
            }
            self.now_ns = at;
            match event {
                Event::Done(core) => self.done(core),
                Event::Arrives(reader, task) => self.give(reader, task),
                Event::Due(node) => self.is_due(node),
                Event::Beat(node) => self.beat(node),
            }
        }
        let waits = self.threads.iter().filter(|thread| thread.due_ns.is_some()).count();
        self.seen.unanswered = waits as u64;
        self.seen
    }

    fn begin(&mut self) {
        match self.setup.arrivals {
            Arrivals::Closed => {
                for client in self.clients.clone() {
                    self.wake(client);
                }
            }
            Arrivals::PerNode(rate) => {
                for node in 0..self.setup.nodes {
                    let first = exponential(1e6 / rate, &mut self.random);
                    self.events.put(ns(first), Event::Due(node));
                }
            }
        }
        if self.setup.beats_per_s > 0.0 && self.setup.nodes > 1 {
            for node in 0..self.setup.nodes {
                // They do not beat at once.
                let first = 1e6 / self.setup.beats_per_s * f64::from(node) / f64::from(self.setup.nodes);
                self.events.put(ns(first), Event::Beat(node));
            }
        }
    }

    fn add_thread(&mut self, node: NodeId, role: Role) -> ThreadId {
        let machine = match self.setup.machines {
            Machines::One { .. } => 0,
            Machines::Each { .. } => node as usize,
        };
        self.threads.push(Thread {
            role,
            node,
            is_asleep: true,
            inbox: VecDeque::new(),
            current: None,
            began_ns: 0,
            due_ns: None,
        });
        self.cores.add_thread(node, machine)
    }

    fn thread(&mut self, thread: ThreadId) -> &mut Thread {
        &mut self.threads[thread as usize]
    }

    fn is_in_window(&self) -> bool {
        self.now_ns >= self.window_ns.0
    }

    // Threads and cores.

    fn wake(&mut self, thread: ThreadId) {
        if std::mem::take(&mut self.thread(thread).is_asleep)
            && let Some(start) = self.cores.wake(thread)
        {
            self.start(start);
        }
    }

    /// A thread has got a core: it takes its next step, once it is there.
    fn start(&mut self, start: Start) {
        let (costs, in_window) = (&self.setup.costs, self.is_in_window());
        let counts = u64::from(in_window);
        match start.arrival {
            Arrival::Queued => self.seen.queued += counts,
            Arrival::Idle => self.seen.idle += counts,
            Arrival::Pulled => self.seen.pulled += counts,
        }
        let mean_us = if start.arrival == Arrival::Queued { costs.switch_us } else { costs.idle_us };
        let mut cost_us = erlang(mean_us, &mut self.random);
        if start.is_cold {
            self.seen.cold += counts;
            cost_us += erlang(costs.cold_us, &mut self.random);
        }
        let now_ns = self.now_ns;
        self.thread(start.thread).began_ns = now_ns;
        if self.thread(start.thread).role == Role::Worker && self.thread(start.thread).current.is_none() {
            let node = self.thread(start.thread).node;
            self.jobs[node as usize].coming -= 1;
        }
        // A thread that gave way has the step that it was to take.
        let step_us = match self.thread(start.thread).current {
            Some(task) => self.cost_us(&task),
            None => self.take(start.thread).unwrap_or(0.0),
        };
        self.run_for(start.core, cost_us + step_us);
    }

    fn run_for(&mut self, core: CoreId, us: f64) {
        let ends = self.now_ns + ns(us);
        // Of the step, what is in the window.
        let (first, last) = (self.now_ns.max(self.window_ns.0), ends.min(self.window_ns.1));
        self.seen.busy_us += last.saturating_sub(first) as f64 / 1e3;
        self.events.put(ends, Event::Done(core));
    }

    /// The thread of a core has done its step.
    fn done(&mut self, core: CoreId) {
        let thread = self.cores.running(core).expect("a step is done on a core that has a thread");
        if let Some(task) = self.thread(thread).current.take() {
            self.go_on(thread, task);
        }
        match self.take(thread) {
            None => {
                self.fall_asleep(thread);
                if let Some(start) = self.cores.sleep(core) {
                    self.start(start);
                }
            }
            Some(us) => {
                let ran_us = (self.now_ns - self.thread(thread).began_ns) as f64 / 1e3;
                let next = (ran_us >= self.setup.slice_us).then(|| self.cores.give_way(core)).flatten();
                match next {
                    Some(start) => self.start(start),
                    None => self.run_for(core, us),
                }
            }
        }
    }

    fn fall_asleep(&mut self, thread: ThreadId) {
        let (role, node) = (self.thread(thread).role, self.thread(thread).node as usize);
        self.thread(thread).is_asleep = true;
        match role {
            Role::Worker => self.jobs[node].asleep.push(thread),
            Role::Client if self.thread(thread).due_ns.is_none() => self.free[node].push(thread),
            Role::Client | Role::Reader | Role::Ticker => {}
        }
    }

    /// The next step of a thread that runs. Gives its cost; none if there is nothing for it to do.
    fn take(&mut self, thread: ThreadId) -> Option<f64> {
        let node = self.thread(thread).node;
        let task = match self.thread(thread).role {
            Role::Reader | Role::Ticker => self.thread(thread).inbox.pop_front()?,
            Role::Worker => {
                let task = self.jobs[node as usize].queue.pop_front()?;
                if !self.jobs[node as usize].queue.is_empty() {
                    self.call_worker(node);
                }
                task
            }
            Role::Client => match self.thread(thread).inbox.pop_front() {
                Some(task) => task,
                None => self.begin_transaction(thread)?,
            },
        };
        self.thread(thread).current = Some(task);
        Some(self.cost_us(&task))
    }

    fn begin_transaction(&mut self, client: ThreadId) -> Option<Task> {
        let own = self.thread(client).node;
        if self.thread(client).due_ns.is_some() {
            // It waits for its answer.
            return None;
        }
        let due_ns = match self.setup.arrivals {
            Arrivals::Closed => self.now_ns + ns(self.setup.costs.between_us),
            Arrivals::PerNode(_) => self.due[own as usize].pop_front()?,
        };
        self.thread(client).due_ns = Some(due_ns);
        self.seen.begun += 1;
        let nodes = u64::from(self.setup.nodes);
        let is_remote = nodes > 1 && self.random.chance(u64::from(self.setup.remote_pct), 100);
        let other = match is_remote {
            true => (u64::from(own) + 1 + self.random.below(nodes - 1)) % nodes,
            false => u64::from(own),
        };
        let path = if is_remote { Path::Remote } else { Path::Local };
        Some(Task { path, step: 0, client, own, other: other as NodeId })
    }

    /// Has a worker come for what is queued, unless one comes already.
    fn call_worker(&mut self, node: NodeId) {
        if self.jobs[node as usize].coming > 0 {
            return;
        }
        self.jobs[node as usize].coming += 1;
        let worker = match self.jobs[node as usize].asleep.pop() {
            Some(worker) => worker,
            None => self.add_thread(node, Role::Worker),
        };
        self.wake(worker);
    }

    // Transactions.

    fn life(&self, path: Path) -> &'s Life {
        match path {
            Path::Local => &self.setup.local,
            Path::Remote | Path::Beat => &self.setup.remote,
        }
    }

    /// What a step costs.
    fn cost_us(&mut self, task: &Task) -> f64 {
        let share = self.life(task.path).steps[usize::from(task.step)].share;
        let costs = &self.setup.costs;
        let before_us = if task.step == 0 && task.path != Path::Beat { costs.between_us } else { 0.0 };
        before_us
            + match task.path {
                Path::Local => costs.local.draw(&mut self.random) * share,
                Path::Remote | Path::Beat => costs.remote_us * share,
            }
    }

    fn node_of(&self, task: &Task, place: Place) -> NodeId {
        match place {
            Place::Own => task.own,
            Place::Other => task.other,
            Place::OwnStandby => (task.own + 1) % self.setup.nodes,
            Place::OtherStandby => (task.other + 1) % self.setup.nodes,
        }
    }

    /// A step is done: the answer, and the way to the next one.
    fn go_on(&mut self, thread: ThreadId, task: Task) {
        let life = self.life(task.path);
        let step = life.steps[usize::from(task.step)];
        if step.answers && task.path != Path::Beat {
            self.answer(&task);
        }
        // A beat is written and read.
        let is_last = task.path == Path::Beat && task.step == 1;
        let Some(next) = life.steps.get(usize::from(task.step) + 1).filter(|_| !is_last) else { return };
        let task = Task { step: task.step + 1, ..task };
        let (from, to) = (self.thread(thread).node, self.node_of(&task, next.place));
        match next.by {
            By::Reader => {
                let reader = self.reader(to, from);
                self.seen.messages += u64::from(self.is_in_window());
                let arrives = self.network.send(from, self.now_ns);
                match arrives > self.now_ns {
                    true => self.events.put(arrives, Event::Arrives(reader, task)),
                    false => self.give(reader, task),
                }
            }
            By::Worker => {
                self.jobs[to as usize].queue.push_back(task);
                self.call_worker(to);
            }
            By::Client => self.give(task.client, task),
        }
    }

    fn give(&mut self, thread: ThreadId, task: Task) {
        self.thread(thread).inbox.push_back(task);
        self.wake(thread);
    }

    fn reader(&mut self, at: NodeId, of: NodeId) -> ThreadId {
        if let Some(reader) = self.readers.get(&(at, of)) {
            return *reader;
        }
        let reader = self.add_thread(at, Role::Reader);
        self.readers.insert((at, of), reader);
        reader
    }

    fn answer(&mut self, task: &Task) {
        let (now_ns, in_window) = (self.now_ns, self.is_in_window());
        let due_ns = self.thread(task.client).due_ns.take().expect("a transaction is answered once");
        self.seen.answered += 1;
        if in_window {
            let latencies = match task.path {
                Path::Local => &mut self.seen.local,
                Path::Remote | Path::Beat => &mut self.seen.remote,
            };
            latencies.record(Duration::from_nanos(now_ns.saturating_sub(due_ns)));
        }
    }

    fn is_due(&mut self, node: NodeId) {
        let Arrivals::PerNode(rate) = self.setup.arrivals else { return };
        self.due[node as usize].push_back(self.now_ns);
        let next = self.now_ns + ns(exponential(1e6 / rate, &mut self.random));
        self.events.put(next, Event::Due(node));
        if let Some(client) = self.free[node as usize].pop() {
            self.wake(client);
        }
    }

    fn beat(&mut self, own: NodeId) {
        let next = self.now_ns + ns(1e6 / self.setup.beats_per_s);
        self.events.put(next, Event::Beat(own));
        let ticker = self.tickers[own as usize];
        let others = (0..self.setup.nodes).filter(|other| *other != own);
        for other in others {
            let task = Task { path: Path::Beat, step: 0, client: ticker, own, other };
            self.thread(ticker).inbox.push_back(task);
        }
        self.wake(ticker);
    }
}
